//! OpenLDAP's slapd with its overlay ppolicy, and sapwood, live through the same histories: binds with right and wrong
//! passwords, changes by the user and by the administrator, other policies, and time that passes. Result codes, the
//! control of password policies and what is kept with the entry must be the same after each step.
//!
//! The histories come from seeds; `SAME_POLICY_SEED` takes another one, and `SAME_POLICY_SEEDS` as many from the first
//! on. slapd's clock is that of libfaketime: it is started again for each step of the clock.

#![allow(clippy::unwrap_used, missing_docs)]

use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use sapwood_directory::Clock;
use sapwood_ldap::controls::{PASSWORD_POLICY, PasswordPolicyResponse};
use sapwood_ldap::extended::{PASSWORD_MODIFY, PasswordModify};
use sapwood_ldap::filter_text;
use sapwood_ldap::list::ChangeKind::{Add, Delete, Replace};
use sapwood_ldap::list::{AttributesBuf, OctetStringsBuf};
use sapwood_ldap::message::{
    AddRequest, ExtendedRequest, ModifyRequest, Request, Scope, SearchRequest,
};
use sapwood_ldap::result::ResultCode;
use sapwood_testkit::requests::{self, Change};
use sapwood_testkit::{Answer, Client, Random, SUFFIX, Slapd, SlapdSetup, TestServer};

/// Those that are always tried.
const SEEDS: u64 = 6;
const STEPS: usize = 60;

const ANN: &str = "cn=Ann,dc=example,dc=com";
const POLICY: &str = "cn=policy,dc=example,dc=com";
const PASSWORDS: [&str; 6] = [
    "one",
    "password two",
    "the third password",
    "fourth!",
    "a fifth one",
    "the sixth password, which is longer than most",
];
const WRONG: &str = "never was one";

/// What a policy may say, and the values among which a history chooses.
const POLICY_VALUES: [(&str, &[&str]); 17] = [
    ("pwdLockout", &["TRUE"]),
    ("pwdMaxFailure", &["1", "2", "3"]),
    ("pwdLockoutDuration", &["0", "20", "300"]),
    ("pwdFailureCountInterval", &["0", "15", "200"]),
    ("pwdMaxAge", &["0", "200", "1000"]),
    ("pwdExpireWarning", &["0", "100", "900"]),
    ("pwdGraceAuthNLimit", &["0", "1", "3"]),
    ("pwdGraceExpiry", &["0", "50", "500"]),
    ("pwdMustChange", &["TRUE", "FALSE"]),
    ("pwdAllowUserChange", &["TRUE", "TRUE", "FALSE"]),
    ("pwdSafeModify", &["TRUE", "FALSE", "FALSE"]),
    ("pwdInHistory", &["0", "1", "3"]),
    ("pwdMinAge", &["0", "0", "30"]),
    ("pwdCheckQuality", &["0", "1", "2"]),
    ("pwdMinLength", &["0", "4", "8"]),
    ("pwdMaxLength", &["0", "20"]),
    ("pwdMaxIdle", &["0", "0", "700"]),
];
/// How many seconds pass at once.
const PASSING: [u64; 7] = [1, 5, 16, 31, 101, 250, 800];

/// What is kept with the entry, and compared.
const KEPT: [&str; 8] = [
    "pwdAccountLockedTime",
    "pwdAccountTmpLockoutEnd",
    "pwdChangedTime",
    "pwdFailureTime",
    "pwdGraceUseTime",
    "pwdHistory",
    "pwdLastSuccess",
    "pwdReset",
];

const ASKS: (&str, bool, Option<&[u8]>) = (PASSWORD_POLICY, false, None);

#[test]
fn histories_of_passwords_go_the_same_way() {
    if let Ok(seed) = std::env::var("SAME_POLICY_SEED") {
        return live_through(seed.parse().unwrap());
    }
    let seeds = std::env::var("SAME_POLICY_SEEDS");
    let seeds = seeds.map_or(SEEDS, |seeds| seeds.parse().unwrap());
    (1..=seeds).for_each(live_through);
}

fn live_through(seed: u64) {
    let mut random = Random::new(seed);
    let mut pair = Pair::start(&mut random);
    for _ in 0..STEPS {
        pair.step(&mut random);
        pair.compare_kept();
    }
}

/// A clock that stands still until it is moved, in seconds since 1970.
struct Hands(AtomicU64);

/// 2025-01-01T00:00:00Z.
const START: u64 = 1_735_689_600;

impl Clock for Hands {
    fn now_micros(&self) -> u64 {
        self.0.load(Ordering::Relaxed) * 1_000_000
    }
}

/// What an operation is answered, as far as it is compared.
#[derive(Debug, PartialEq)]
struct Told {
    code: ResultCode,
    policy: PasswordPolicyResponse,
}

impl Told {
    fn of(answer: &Answer) -> Told {
        let mut controls = answer.controls.iter();
        let control = controls.find(|(oid, _)| oid == PASSWORD_POLICY);
        let policy = control.map(|(_, value)| PasswordPolicyResponse::decode(value).unwrap());
        Told {
            code: answer.code,
            policy: policy.unwrap_or_default(),
        }
    }
}

/// Both servers, and what they were told so far.
struct Pair {
    slapd: Slapd,
    sapwood: TestServer,
    clock: Arc<Hands>,
    password: &'static str,
    /// Whether a lock is stored, which may have ended.
    has_lock: bool,
    history: String,
}

impl Pair {
    /// Both with the same policy, and Ann.
    fn start(random: &mut Random) -> Pair {
        let slapd = Slapd::with(&SlapdSetup {
            global: "modulepath /usr/lib/ldap\nmoduleload ppolicy\n\
                     access to attrs=userPassword by self write by anonymous auth\n\
                     access to * by * read",
            database: "lastbind on\noverlay ppolicy\nppolicy_use_lockout\nppolicy_hash_cleartext\n\
                       ppolicy_default cn=policy,dc=example,dc=com",
            seconds: Some(START),
        });
        let clock = Arc::new(Hands(AtomicU64::new(START)));
        let mut pair = Pair {
            slapd,
            sapwood: TestServer::at(clock.clone(), ""),
            clock,
            password: PASSWORDS[0],
            has_lock: false,
            history: String::new(),
        };
        let overlay = [
            ("objectClass", "olcPPolicyConfig"),
            ("olcOverlay", "ppolicy"),
            ("olcPPolicyDefault", POLICY),
            ("olcPPolicyUseLockout", "TRUE"),
        ];
        let dn = "olcOverlay=ppolicy,olcDatabase={1}mdb,cn=config";
        let overlay = requests::add(1, dn, &overlay);
        pair.sapwood.admin().tell(&overlay).succeeded();
        let base = [("objectClass", "domain"), ("dc", "example")];
        let base = requests::add(1, SUFFIX, &base);
        Client::admin(pair.slapd.address()).tell(&base).succeeded();
        let mut policy = AttributesBuf::default();
        policy.push(b"objectClass", [b"device".as_slice(), b"pwdPolicy"]);
        policy.push(b"cn", [b"policy".as_slice()]);
        policy.push(b"pwdAttribute", [b"userPassword".as_slice()]);
        for (attribute, values) in POLICY_VALUES {
            // Without pwdLockout slapd stores locks that do not lock.
            if attribute == "pwdLockout" || !random.once_in(3) {
                let value = random.of(values);
                let _ = writeln!(pair.history, "{attribute}: {value}");
                policy.push(attribute.as_bytes(), [value.as_bytes()]);
            }
        }
        let attributes = policy.view();
        let policy = AddRequest {
            dn: POLICY,
            attributes,
        };
        let ann = [
            ("objectClass", "person"),
            ("cn", "Ann"),
            ("sn", "x"),
            ("userPassword", PASSWORDS[0]),
        ];
        for message in [
            requests::message(1, Request::Add(policy)),
            requests::add(1, ANN, &ann),
        ] {
            for mut client in pair.admins() {
                client.tell(&message).succeeded();
            }
        }
        pair
    }

    fn admins(&self) -> [Client; 2] {
        [Client::admin(self.slapd.address()), self.sapwood.admin()]
    }

    fn clients(&self) -> [Client; 2] {
        [
            Client::connect(self.slapd.address()),
            self.sapwood.connect(),
        ]
    }

    /// Asks both, and sees that they answer the same; what that is.
    fn ask(&mut self, what: &str, clients: &mut [Client; 2], request: &Request<'_>) -> Told {
        let answers = clients
            .each_mut()
            .map(|client| client.ask_with(*request, &[ASKS]));
        let [slapd, sapwood] = answers.each_ref().map(Told::of);
        let _ = writeln!(self.history, "{what}: {slapd:?}");
        assert_eq!(
            slapd, sapwood,
            "slapd (left) and sapwood (right) differ at the end of this:\n{}{:?}",
            self.history, answers
        );
        slapd
    }

    fn step(&mut self, random: &mut Random) {
        match random.below(20) {
            0..=6 => {
                // After a lock that has ended slapd does not lock again.
                let password = match random.once_in(2) || self.has_lock {
                    true => self.password,
                    false => WRONG,
                };
                self.bind(password);
            }
            7..=10 => self.change_own(random),
            11 | 12 => self.set(random),
            13 => {
                let values: &[&str] = random.of(&[&["TRUE"], &[]]);
                self.administer(&[(Replace, "pwdReset", values)]);
            }
            14 => {
                let change: Change<'_> = match random.once_in(3) {
                    true => (Replace, "pwdAccountLockedTime", &["000001010000Z"]),
                    false => (Delete, "pwdAccountLockedTime", &[]),
                };
                self.administer(&[change]);
            }
            15 => {
                let (attribute, values) = random.of(&POLICY_VALUES);
                let value = random.of(values);
                self.change(POLICY, &[(Replace, attribute, &[value])]);
            }
            _ => self.pass(random.of(&PASSING)),
        }
    }

    fn pass(&mut self, seconds: u64) {
        let now = self.clock.0.fetch_add(seconds, Ordering::Relaxed) + seconds;
        let _ = writeln!(self.history, "{seconds} seconds pass: {}", now - START);
        self.slapd.restart_at(now);
    }

    /// Ann binds; both connections if she may.
    fn bind(&mut self, password: &str) -> Option<[Client; 2]> {
        let mut clients = self.clients();
        let request = requests::simple_bind(ANN, password.as_bytes());
        let told = self.ask(&format!("bind {password}"), &mut clients, &request);
        (told.code == ResultCode::Success).then_some(clients)
    }

    /// Ann changes her password.
    fn change_own(&mut self, random: &mut Random) {
        let Some(mut clients) = self.bind(self.password) else {
            return;
        };
        let (old, new) = (self.password, random.of(&PASSWORDS));
        let old = match random.once_in(6) {
            true => WRONG,
            false => old,
        };
        let both: [Change<'_>; 2] = [
            (Delete, "userPassword", &[old]),
            (Add, "userPassword", &[new]),
        ];
        let alone: [Change<'_>; 1] = [(Replace, "userPassword", &[new])];
        let mut value = Vec::new();
        let told = match random.below(4) {
            0 | 1 => {
                let changes = requests::changes(&both);
                let request = Request::Modify(ModifyRequest {
                    dn: ANN,
                    changes: changes.view(),
                });
                self.ask(&format!("from {old} to {new}"), &mut clients, &request)
            }
            2 => {
                let changes = requests::changes(&alone);
                let request = Request::Modify(ModifyRequest {
                    dn: ANN,
                    changes: changes.view(),
                });
                self.ask(&format!("replace with {new}"), &mut clients, &request)
            }
            _ => {
                let old = (!random.once_in(3)).then_some(old);
                PasswordModify {
                    user_identity: None,
                    old_password: old.map(str::as_bytes),
                    new_password: Some(new.as_bytes()),
                }
                .encode(&mut value);
                let request = Request::Extended(ExtendedRequest {
                    name: PASSWORD_MODIFY,
                    value: Some(&value),
                });
                // Each says in its own way that the old one is wrong.
                if old == Some(WRONG) {
                    for mut client in clients {
                        let answer = client.ask_with(request, &[ASKS]);
                        assert_ne!(answer.code, ResultCode::Success);
                    }
                    return;
                }
                self.ask(&format!("passwd {old:?} {new}"), &mut clients, &request)
            }
        };
        if told.code == ResultCode::Success {
            self.password = new;
        }
    }

    /// The administrator sets Ann's password.
    fn set(&mut self, random: &mut Random) {
        let new = random.of(&PASSWORDS);
        if self.administer(&[(Replace, "userPassword", &[new])]).code == ResultCode::Success {
            self.password = new;
        }
    }

    /// The administrator changes Ann's entry.
    fn administer(&mut self, changes: &[Change<'_>]) -> Told {
        self.change(ANN, changes)
    }

    fn change(&mut self, dn: &str, changes: &[Change<'_>]) -> Told {
        let what = format!("the administrator: {changes:?}");
        let changes = requests::changes(changes);
        let request = Request::Modify(ModifyRequest {
            dn,
            changes: changes.view(),
        });
        let mut admins = self.admins();
        self.ask(&what, &mut admins, &request)
    }

    /// Sees that both keep the same with Ann's entry.
    fn compare_kept(&mut self) {
        let [slapd, sapwood] = self.admins().map(|mut client| kept(&mut client));
        assert_eq!(
            slapd, sapwood,
            "slapd (left) and sapwood (right) keep something else at the end of this:\n{}",
            self.history
        );
        let mut kept = sapwood.iter();
        self.has_lock = kept.any(|(attribute, _)| *attribute == "pwdAccountLockedTime");
    }
}

/// What is kept with Ann's entry: times in seconds, and of used passwords how many there are.
fn kept(admin: &mut Client) -> Vec<(&'static str, Vec<String>)> {
    let attributes = OctetStringsBuf::from_iter(KEPT.map(str::as_bytes));
    let filter = filter_text::parse("(objectClass=*)").unwrap();
    let request = SearchRequest {
        attributes: attributes.view(),
        ..SearchRequest::new(ANN, Scope::Base, filter.as_filter())
    };
    let found = admin.ask_all(Request::Search(request), &[]);
    let entry = &found[0];
    let kept = KEPT.map(|attribute| {
        let mut values = entry.values(attribute);
        for value in &mut values {
            if attribute == "pwdHistory" {
                value.clear();
            } else if let Some(at) = value.find('.') {
                value.replace_range(at.., "Z");
            }
        }
        values.sort();
        (attribute, values)
    });
    kept.into_iter()
        .filter(|(_, values)| !values.is_empty())
        .collect()
}
