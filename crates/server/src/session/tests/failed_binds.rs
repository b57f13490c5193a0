//! The time at which a bind that fails is answered tells nothing: neither who exists, nor what was wrong.

use base64ct::{Base64, Encoding};
use sapwood_ldap::list::ChangeKind::Add;
use sapwood_ldap::message::{Authentication, BindRequest, Response, ResponseMessage};

use super::*;
use crate::password::{ScramHash, ScramVerifier};
use crate::tls::{Bindings, Established};

const CONFIG: &str = "olcDatabase={1}mdb,cn=config";

impl Bench {
    /// Has a request succeed, however many other threads have to do with it.
    #[track_caller]
    pub(super) fn succeed(&mut self, request: &[u8]) {
        self.receive(request);
        let code = loop {
            match self.answers().pop() {
                Some((_, code)) => break code,
                None => self.wait(),
            }
        };
        assert_eq!(code, Some(ResultCode::Success));
    }

    pub(super) fn add_with_password(&mut self, name: &str, password: Option<&str>) {
        let password = password.map(|password| ("userPassword", password));
        let attributes = [("cn", name), ("sn", "x")].into_iter().chain(password);
        self.add_of_classes(&["person"], name, &attributes.collect::<Vec<_>>());
    }

    fn add_of_classes(&mut self, classes: &[&str], name: &str, attributes: &[(&str, &str)]) {
        let mut list = requests::attributes(attributes);
        list.push(b"objectClass", classes.iter().map(|class| class.as_bytes()));
        let op = AddRequest {
            dn: &format!("cn={name},o=X"),
            attributes: list.view(),
        };
        self.succeed(&message(10, Request::Add(op)));
    }

    /// Checks that this bind fails when the timer says so, and not before, in the same words as any other.
    #[track_caller]
    fn fails_by_timer(&mut self, bind: &[u8], what: &str) {
        let least = 2 * self.session.service.hashers.hash_time();
        let came = Instant::now();
        self.receive(&[bind, &extended(101, WHO_AM_I, None)].concat());
        assert_eq!(self.answers(), [], "{what}");
        while self.session.deadline().is_none() && self.session.output().is_empty() {
            self.wait();
        }
        // On a busy machine the hash may have taken that long itself.
        if self.session.deadline().is_some() {
            assert!(!self.session.is_idle() && !self.session.wants_input());
            self.session.expire();
            assert!(
                self.answers().is_empty() || came.elapsed() >= least,
                "{what}"
            );
            if self.session.deadline().is_some() {
                self.wait_for_deadline();
            }
        }
        assert!(came.elapsed() >= least, "{what}");
        let answer = &Answer::all(self.session.output())[0];
        answer.expect(ResultCode::InvalidCredentials);
        assert_eq!((&*answer.diagnostic, &*answer.matched), ("", ""), "{what}");
        assert_eq!(self.answers().len(), 2, "{what}");
    }

    /// What the server says to a message of a mechanism that goes on.
    fn challenge(&mut self, request: &[u8]) -> String {
        self.receive(request);
        let output = self.session.output().to_vec();
        let answer = ResponseMessage::decode(&output).unwrap();
        let Response::Bind(response) = answer.op else {
            panic!("{answer:?}");
        };
        assert_eq!(response.result.code, ResultCode::SaslBindInProgress);
        let told = response.server_sasl_credentials.unwrap().to_vec();
        self.answers();
        String::from_utf8(told).unwrap()
    }
}

pub(super) fn sasl(id: u32, mechanism: &str, credentials: &str) -> Vec<u8> {
    let authentication = Authentication::Sasl {
        mechanism,
        credentials: Some(credentials.as_bytes()),
    };
    let bind = BindRequest {
        version: 3,
        name: "",
        authentication,
    };
    message(id, Request::Bind(bind))
}

/// The time of the answer told who exists: a wrong password was refused at once where it was quick to check.
#[test]
fn a_failed_bind_is_answered_by_a_timer_whatever_failed() {
    let mut bench = Bench::admin("");
    let quick = "{SSHA}1G904nLkTkGWjKNnQuB/hpWXC/hzYWx0c2FsdA==";
    let damaged = "{SSHA}1G904nLkTk";
    let slow = String::from_utf8(password::hash(b"x")).unwrap();
    let people = [
        ("quick", Some(quick)),
        ("slow", Some(slow.as_str())),
        ("damaged", Some(damaged)),
        ("foreign", Some("{SASL}x@Y")),
        (
            "costly",
            Some("{PBKDF2}2000000000$c2FsdA$AAAAAAAAAAAAAAAAAAAAAAAAAAA"),
        ),
        ("none", None),
    ];
    for (name, password) in people {
        bench.add_with_password(name, password);
    }
    let names = people.map(|(name, _)| format!("cn={name},o=X"));
    let others = ["cn=nobody,o=X", "o=Y", "no DN", ADMIN, "o=X"].map(str::to_owned);
    let long = format!("cn={},o=X", "x".repeat(9000));
    for name in names.iter().chain(&others).chain([&long]) {
        bench.fails_by_timer(&bind(100, name, "wrong"), name);
    }
}

#[test]
fn a_failed_bind_of_a_sasl_mechanism_is_answered_by_a_timer_whatever_failed() {
    let mut bench = Bench::admin("");
    let verifier = ScramVerifier::new(ScramHash::Sha256, b"pencil").unwrap();
    let verifier = String::from_utf8(verifier.to_value()).unwrap();
    let slow = String::from_utf8(password::hash(b"pencil")).unwrap();
    let ann = [
        ("cn", "ann"),
        ("sn", "x"),
        ("userPassword", &*slow),
        ("authPassword", &*verifier),
    ];
    bench.add_of_classes(&["person", "authPasswordObject"], "ann", &ann);
    bench.session.secured(Established {
        ssf: 256,
        certificate: None,
        bindings: Bindings::default(),
    });
    for name in ["dn:cn=ann,o=X", "dn:cn=nobody,o=X", "u:ann", "no DN"] {
        let plain = sasl(100, "PLAIN", &format!("\0{name}\0wrong"));
        bench.fails_by_timer(&plain, &format!("PLAIN of {name}"));
        let escaped = name.replace('=', "=3D").replace(',', "=2C");
        let first = format!("n,,n={escaped},r=client");
        let challenge = bench.challenge(&sasl(99, "SCRAM-SHA-256", &first));
        let nonce = challenge.split(',').next().unwrap();
        let proof = Base64::encode_string(&[0; 32]);
        let last = sasl(100, "SCRAM-SHA-256", &format!("c=biws,{nonce},p={proof}"));
        bench.fails_by_timer(&last, &format!("SCRAM of {name}"));
    }
}

#[test]
fn a_bind_that_a_password_policy_has_to_do_with_fails_by_the_timer_too() {
    let mut bench = Bench::admin("");
    let policy = [
        ("cn", "policy"),
        ("pwdAttribute", "userPassword"),
        ("pwdLockout", "TRUE"),
        ("pwdMaxFailure", "5"),
    ];
    let overlay = [
        ("objectClass", "olcPPolicyConfig"),
        ("olcOverlay", "ppolicy"),
        ("olcPPolicyDefault", "cn=policy,o=X"),
    ];
    bench.add_of_classes(&["device", "pwdPolicy"], "policy", &policy);
    bench.succeed(&add(9, &format!("olcOverlay=ppolicy,{CONFIG}"), &overlay));
    let quick = "{SSHA}1G904nLkTkGWjKNnQuB/hpWXC/hzYWx0c2FsdA==";
    let slow = String::from_utf8(password::hash(b"pencil")).unwrap();
    for (name, password) in [("quick", quick), ("slow", &*slow), ("locked", &*slow)] {
        bench.add_with_password(name, Some(password));
    }
    let lock = [(Add, "pwdAccountLockedTime", &["000001010000Z"][..])];
    bench.succeed(&requests::modify(11, "cn=locked,o=X", &lock));
    for (name, password) in [
        ("locked", "pencil"),
        ("locked", "wrong"),
        ("quick", "wrong"),
        ("slow", "wrong"),
    ] {
        let dn = format!("cn={name},o=X");
        let what = format!("{password} of {name}");
        bench.fails_by_timer(&bind(100, &dn, password), &what);
    }
}

/// A client that has failed too often is told so, with the right password, too, and for names without an entry.
#[test]
fn who_fails_too_often_is_told_to_wait() {
    let mut bench = Bench::admin("failed_binds_per_name_max = 1\n");
    bench.add_with_password("ann", Some("{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ="));
    let mut code = |name: &str, password: &str| {
        bench.receive(&bind(100, &format!("cn={name},o=X"), password));
        while bench.session.output().is_empty() {
            bench.wait_for_deadline();
        }
        bench.answers()[0].1
    };
    let (wrong, busy) = (ResultCode::InvalidCredentials, ResultCode::Busy);
    for _ in 0..20 {
        assert_eq!(code("ann", "secret"), Some(ResultCode::Success));
    }
    for name in ["ann", "nobody"] {
        assert_eq!(code(name, "wrong"), Some(wrong), "{name}");
        assert_eq!(code(name, "wrong"), Some(busy), "{name}");
        assert_eq!(code(&name.to_uppercase(), "secret"), Some(busy), "{name}");
    }
    // Of others there is no such news.
    assert_eq!(code("carl", "wrong"), Some(wrong));
}
