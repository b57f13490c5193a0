//! One-time passwords behind passwords, with a clock that the test sets.

#![allow(clippy::unwrap_used)]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use hmac::{Hmac, KeyInit, Mac};
use sapwood_directory::Clock;
use sapwood_ldap::list::AttributesBuf;
use sapwood_ldap::list::ChangeKind::{Add, Replace};
use sapwood_ldap::message::{AddRequest, Request, Scope};
use sapwood_ldap::result::ResultCode;
use sapwood_testkit::requests::{self, Change, modify};
use sapwood_testkit::{SUFFIX, TestServer};
use sha1::Sha1;

const ANN: &str = "cn=Ann,dc=example,dc=com";
const BOB: &str = "cn=Bob,dc=example,dc=com";
const TOTP: &str = "cn=totp,dc=example,dc=com";
const HOTP: &str = "cn=hotp,dc=example,dc=com";
const KEY: &str = "12345678901234567890";
/// A step of 30 seconds, and its beginning in seconds since 1970.
const STEP: u64 = 50_000_000;
const START: u64 = STEP * 30;

/// A clock that stands still until it is moved.
struct Hands(AtomicU64);

impl Clock for Hands {
    fn now_micros(&self) -> u64 {
        self.0.load(Ordering::Relaxed) * 1_000_000
    }
}

/// A server with two tokens: Ann's counts time, and Bob's counts uses. Each holds its own parameters.
struct Bench {
    server: TestServer,
    clock: Arc<Hands>,
}

impl Bench {
    fn new() -> Bench {
        let clock = Arc::new(Hands(AtomicU64::new(START)));
        let server = TestServer::at(clock.clone(), "");
        let common: [(&str, &[&str]); 3] = [
            ("oathSecret", &[KEY]),
            ("oathOTPLength", &["6"]),
            ("oathHMACAlgorithm", &["1.2.840.113549.2.7"]),
        ];
        let totp: [(&str, &[&str]); 5] = [
            (
                "objectClass",
                &["device", "oathTOTPToken", "oathTOTPParams"],
            ),
            ("cn", &["totp"]),
            ("oathTOTPTimeStepPeriod", &["30"]),
            ("oathTOTPTimeStepWindow", &["2"]),
            ("oathTOTPParams", &[TOTP]),
        ];
        let hotp: [(&str, &[&str]); 4] = [
            (
                "objectClass",
                &["device", "oathHOTPToken", "oathHOTPParams"],
            ),
            ("cn", &["hotp"]),
            ("oathHOTPLookAhead", &["2"]),
            ("oathHOTPParams", &[HOTP]),
        ];
        let mut admin = server.admin();
        for (dn, own) in [(TOTP, &totp[..]), (HOTP, &hotp[..])] {
            admin.tell(&add(dn, &[own, &common].concat())).succeeded();
        }
        for (dn, name, class, attribute, token) in [
            (ANN, "Ann", "oathTOTPUser", "oathTOTPToken", TOTP),
            (BOB, "Bob", "oathHOTPUser", "oathHOTPToken", HOTP),
        ] {
            let person: [(&str, &[&str]); 5] = [
                ("objectClass", &["person", class]),
                ("cn", &[name]),
                ("sn", &["x"]),
                ("userPassword", &["pencil"]),
                (attribute, &[token]),
            ];
            admin.tell(&add(dn, &person)).succeeded();
        }
        let overlay: [(&str, &[&str]); 2] = [
            ("objectClass", &["olcOverlayConfig"]),
            ("olcOverlay", &["otp"]),
        ];
        let dn = "olcOverlay=otp,olcDatabase={1}mdb,cn=config";
        admin.tell(&add(dn, &overlay)).succeeded();
        Bench { server, clock }
    }

    /// The time is so many steps behind the start.
    fn at(&self, steps: u64) {
        let time = START + 30 * steps;
        self.clock.0.store(time, Ordering::Relaxed);
    }

    /// What a bind with the one-time password of a number behind the password is answered.
    fn bind(&self, dn: &str, password: &str, number: u64) -> ResultCode {
        let password = format!("{password}{}", shown(number));
        self.server.connect().bind(dn, password).code
    }

    /// The only value of an attribute of an entry, as the administrator reads it.
    fn value(&self, dn: &str, attribute: &str) -> String {
        let found = self
            .server
            .admin()
            .search(dn, Scope::Base, "(objectClass=*)");
        found[0].values(attribute).concat()
    }

    fn change(&self, dn: &str, changes: &[Change<'_>]) {
        let change = modify(1, dn, changes);
        self.server.admin().tell(&change).succeeded();
    }
}

fn add(dn: &str, attributes: &[(&str, &[&str])]) -> Vec<u8> {
    let mut list = AttributesBuf::default();
    for (description, values) in attributes {
        let values = values.iter().map(|value| value.as_bytes());
        list.push(description.as_bytes(), values);
    }
    let attributes = list.view();
    requests::message(1, Request::Add(AddRequest { dn, attributes }))
}

/// What the tokens show (RFC 4226 §5.3).
fn shown(number: u64) -> String {
    let mut mac = <Hmac<Sha1> as KeyInit>::new_from_slice(KEY.as_bytes()).unwrap();
    mac.update(&number.to_be_bytes());
    let digest = mac.finalize().into_bytes();
    let at = usize::from(digest[19] & 0xf);
    let four: [u8; 4] = digest[at..at + 4].try_into().unwrap();
    let truncated = u32::from_be_bytes(four) & 0x7fff_ffff;
    format!("{:06}", truncated % 1_000_000)
}

const RIGHT: ResultCode = ResultCode::Success;
const WRONG: ResultCode = ResultCode::InvalidCredentials;

#[test]
fn both_factors_are_asked_for_and_a_step_is_accepted_once() {
    let bench = Bench::new();
    let alone = bench.server.connect().bind(ANN, "pencil");
    alone.refused(WRONG, "");
    assert_eq!(bench.bind(ANN, "pencil", STEP + 7), WRONG);
    assert_eq!(bench.value(TOTP, "oathTOTPLastTimeStep"), "");
    assert_eq!(bench.bind(ANN, "pencil", STEP), RIGHT);
    assert_eq!(bench.value(TOTP, "oathTOTPLastTimeStep"), STEP.to_string());
    assert_eq!(bench.bind(ANN, "pencil", STEP), WRONG);
    // Nor are those before it.
    assert_eq!(bench.bind(ANN, "pencil", STEP - 1), WRONG);
    bench.at(1);
    assert_eq!(bench.bind(ANN, "pencil", STEP + 1), RIGHT);
    // Who has no token, or is the administrator, needs none.
    bench.server.admin();
}

#[test]
fn a_step_is_used_up_whatever_the_password_is() {
    let bench = Bench::new();
    assert_eq!(bench.bind(ANN, "pencils", STEP), WRONG);
    assert_eq!(bench.value(TOTP, "oathTOTPLastTimeStep"), STEP.to_string());
    assert_eq!(bench.bind(ANN, "pencil", STEP), WRONG);
    assert_eq!(bench.bind(ANN, "", STEP + 1), WRONG);
    assert_eq!(bench.bind(ANN, "pencil", STEP + 2), RIGHT);
}

#[test]
fn one_of_many_binds_at_the_same_time_uses_a_step() {
    let bench = Bench::new();
    let password = format!("pencil{}", shown(STEP));
    let mut clients: Vec<_> = (0..8).map(|_| bench.server.connect()).collect();
    for client in &mut clients {
        client.send(&requests::bind(1, ANN, &password));
    }
    let answers = clients
        .iter_mut()
        .map(|client| client.finish(1).pop().unwrap());
    let codes: Vec<ResultCode> = answers.map(|answer| answer.code).collect();
    let right = codes.iter().filter(|code| **code == RIGHT).count();
    assert_eq!(right, 1, "{codes:?}");
    assert!(codes.iter().all(|code| [RIGHT, WRONG].contains(code)));
}

#[test]
fn a_clock_that_drifts_is_followed() {
    let bench = Bench::new();
    assert_eq!(bench.bind(ANN, "pencil", STEP + 3), WRONG);
    assert_eq!(bench.bind(ANN, "pencil", STEP + 2), RIGHT);
    assert_eq!(bench.value(TOTP, "oathTOTPTimeStepDrift"), "2");
    bench.at(10);
    assert_eq!(bench.bind(ANN, "pencil", STEP + 9), WRONG);
    assert_eq!(bench.bind(ANN, "pencil", STEP + 14), RIGHT);
    assert_eq!(bench.value(TOTP, "oathTOTPTimeStepDrift"), "4");
}

#[test]
fn counters_may_leave_some_out() {
    let bench = Bench::new();
    assert_eq!(bench.bind(BOB, "pencil", 3), WRONG);
    assert_eq!(bench.bind(BOB, "pencil", 0), RIGHT);
    assert_eq!(bench.bind(BOB, "pencil", 0), WRONG);
    assert_eq!(bench.bind(BOB, "pencil", 3), RIGHT);
    assert_eq!(bench.value(HOTP, "oathHOTPCounter"), "3");
    assert_eq!(bench.bind(BOB, "pencil", 2), WRONG);
    assert_eq!(bench.bind(BOB, "pencil", 4), RIGHT);
}

/// What is wrong with a token lets nobody in: neither without it, nor twice.
#[test]
fn tokens_that_cannot_be_read_accept_nothing() {
    let bench = Bench::new();
    let wrong: [(&str, &str, &str); 6] = [
        (TOTP, "oathOTPLength", "0"),
        (TOTP, "oathOTPLength", "9"),
        (TOTP, "oathHMACAlgorithm", "1.2.840.113549.2.5"),
        (TOTP, "oathTOTPTimeStepPeriod", "0"),
        (TOTP, "oathTOTPLastTimeStep", "99999999999999999999999"),
        (ANN, "oathTOTPToken", "cn=nobody,dc=example,dc=com"),
    ];
    for (dn, attribute, value) in wrong {
        let before = bench.value(dn, attribute);
        bench.change(dn, &[(Replace, attribute, &[value])]);
        assert_eq!(
            bench.bind(ANN, "pencil", STEP),
            WRONG,
            "{attribute}: {value}"
        );
        assert_eq!(bench.server.connect().bind(ANN, "pencil").code, WRONG);
        let values: &[&str] = if before.is_empty() { &[] } else { &[&before] };
        bench.change(dn, &[(Replace, attribute, values)]);
    }
    assert_eq!(bench.bind(ANN, "pencil", STEP), RIGHT);
}

#[test]
fn failures_of_either_factor_lock_the_account() {
    let bench = Bench::new();
    let mut admin = bench.server.admin();
    let policy: [(&str, &[&str]); 5] = [
        ("objectClass", &["device", "pwdPolicy"]),
        ("cn", &["policy"]),
        ("pwdAttribute", &["userPassword"]),
        ("pwdLockout", &["TRUE"]),
        ("pwdMaxFailure", &["2"]),
    ];
    let dn = "cn=policy,dc=example,dc=com";
    admin.tell(&add(dn, &policy)).succeeded();
    let overlay: [(&str, &[&str]); 3] = [
        ("objectClass", &["olcPPolicyConfig"]),
        ("olcOverlay", &["ppolicy"]),
        ("olcPPolicyDefault", &[dn]),
    ];
    let overlay = add("olcOverlay=ppolicy,olcDatabase={1}mdb,cn=config", &overlay);
    admin.tell(&overlay).succeeded();
    assert_eq!(bench.bind(ANN, "pencils", STEP), WRONG);
    assert_eq!(bench.bind(ANN, "pencil", STEP), WRONG);
    // Of a locked account nothing is used up.
    assert_eq!(bench.bind(ANN, "pencil", STEP + 1), WRONG);
    assert_eq!(bench.value(TOTP, "oathTOTPLastTimeStep"), STEP.to_string());
    bench.change(ANN, &[(Replace, "pwdAccountLockedTime", &[])]);
    assert_eq!(bench.bind(ANN, "pencil", STEP + 1), RIGHT);
}

#[test]
fn nobody_but_the_administrator_sees_a_key() {
    let bench = Bench::new();
    let cat = [
        ("objectClass", "person"),
        ("cn", "Cat"),
        ("sn", "x"),
        ("userPassword", "pencil"),
    ];
    let dn = format!("cn=Cat,{SUFFIX}");
    bench
        .server
        .admin()
        .tell(&requests::add(1, &dn, &cat))
        .succeeded();
    assert_eq!(bench.value(TOTP, "oathSecret"), KEY);
    let mut client = bench.server.connect();
    client.bind(&dn, "pencil").succeeded();
    let found = client.search(TOTP, Scope::Base, "(objectClass=*)");
    assert_eq!(found[0].values("cn"), ["totp"]);
    assert!(found[0].values("oathSecret").is_empty());
    let found = client.search(SUFFIX, Scope::Subtree, &format!("(oathSecret={KEY})"));
    assert_eq!(found.len(), 1);
    // A rule for all that is not a password does not mean it.
    let rules = [
        "to attrs=userPassword,oathSecret by self write by anonymous auth",
        "to attrs=description by * none",
        "to * by users read by anonymous auth",
    ];
    bench.server.configure(&[(Replace, "olcAccess", &rules)]);
    let found = client.search(TOTP, Scope::Base, "(objectClass=*)");
    assert_eq!(found[0].values("cn"), ["totp"]);
    assert!(found[0].values("oathSecret").is_empty());
    // One for the key alone would say less than it seems to.
    let alone = ["to attrs=oathSecret by users read"];
    let change = modify(
        2,
        "olcDatabase={1}mdb,cn=config",
        &[(Add, "olcAccess", &alone)],
    );
    let refused = bench.server.admin().tell(&change);
    refused.refused(ResultCode::UnwillingToPerform, "userPassword");
}

#[test]
fn without_the_overlay_the_password_is_enough() {
    let bench = Bench::new();
    let dn = "olcOverlay={2}otp,olcDatabase={1}mdb,cn=config";
    let found = bench
        .server
        .admin()
        .search(dn, Scope::Base, "(objectClass=*)");
    assert_eq!(found[0].values("olcOverlay"), ["{2}otp"]);
    bench.server.admin().ask(Request::Delete(dn)).succeeded();
    assert_eq!(bench.server.connect().bind(ANN, "pencil").code, RIGHT);
    assert_eq!(bench.bind(ANN, "pencil", STEP), WRONG);
}
