//! Password policies as clients meet them, with a clock that the test sets.

#![allow(clippy::unwrap_used)]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use sapwood_directory::Clock;
use sapwood_ldap::controls::*;
use sapwood_ldap::extended::{PASSWORD_MODIFY, PasswordModify, generated_password};
use sapwood_ldap::list::ChangeKind::{Add, Delete, Replace};
use sapwood_ldap::list::{AttributesBuf, OctetStringsBuf};
use sapwood_ldap::message::{AddRequest, Request, Scope, SearchRequest};
use sapwood_ldap::result::ResultCode;
use sapwood_testkit::requests::{self, Change, modify};
use sapwood_testkit::{Answer, Client, SUFFIX, TestServer};

const ANN: &str = "cn=Ann,dc=example,dc=com";
const POLICY: &str = "cn=policy,dc=example,dc=com";
/// 2025-01-01T00:00:00Z, in seconds since 1970.
const START: u64 = 1_735_689_600;

/// The SHA-1 of `a known password`, and that of another one.
const BREACHED: &str =
    "C2368E453CADD057839D4883F1508F6261881B74:5\nFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFF:1\n";

/// A clock that stands still until it is moved.
struct Hands(AtomicU64);

impl Clock for Hands {
    fn now_micros(&self) -> u64 {
        self.0.load(Ordering::Relaxed) * 1_000_000
    }
}

/// A server with a policy, and Ann, whose password the administrator has set.
struct Bench {
    server: TestServer,
    clock: Arc<Hands>,
}

impl Bench {
    fn new(policy: &[(&str, &str)]) -> Bench {
        Bench::with(policy, "")
    }

    /// The same that asks more of passwords.
    fn with(policy: &[(&str, &str)], passwords: &str) -> Bench {
        let clock = Arc::new(Hands(AtomicU64::new(START)));
        let config = format!("[passwords]\nbreached_file = 'breached.txt'\n{passwords}");
        let server = TestServer::at(clock.clone(), &config);
        std::fs::write(server.path("breached.txt"), BREACHED).unwrap();
        let mut attributes = AttributesBuf::default();
        attributes.push(b"objectClass", [b"device".as_slice(), b"pwdPolicy"]);
        let own = [("cn", "policy"), ("pwdAttribute", "userPassword")];
        for (description, value) in own.iter().chain(policy) {
            attributes.push(description.as_bytes(), [value.as_bytes()]);
        }
        let attributes = attributes.view();
        let dn = POLICY;
        let policy = requests::message(1, Request::Add(AddRequest { dn, attributes }));
        let ann = [
            ("objectClass", "person"),
            ("cn", "Ann"),
            ("sn", "x"),
            ("userPassword", "first password"),
        ];
        let mut admin = server.admin();
        let overlay = [
            ("objectClass", "olcPPolicyConfig"),
            ("olcOverlay", "ppolicy"),
            ("olcPPolicyDefault", POLICY),
            ("olcPPolicyUseLockout", "TRUE"),
        ];
        let overlay = requests::add(
            3,
            "olcOverlay=ppolicy,olcDatabase={1}mdb,cn=config",
            &overlay,
        );
        for add in [policy, overlay, requests::add(2, ANN, &ann)] {
            admin.tell(&add).succeeded();
        }
        Bench { server, clock }
    }

    fn pass(&self, seconds: u64) {
        self.clock.0.fetch_add(seconds, Ordering::Relaxed);
    }

    /// What a bind with the control is answered.
    fn bind(&self, password: &str) -> (ResultCode, PasswordPolicyResponse) {
        bind(&mut self.server.connect(), ANN, password)
    }

    /// The values of an operational attribute of Ann, as the administrator reads them.
    fn values(&self, attribute: &str) -> Vec<String> {
        let attributes = OctetStringsBuf::from_iter([attribute.as_bytes()]);
        let filter = sapwood_ldap::filter_text::parse("(objectClass=*)").unwrap();
        let request = SearchRequest {
            attributes: attributes.view(),
            ..SearchRequest::new(ANN, Scope::Base, filter.as_filter())
        };
        let request = Request::Search(request);
        let found = self.server.admin().ask_all(request, &[]);
        found[0].values(attribute)
    }

    /// A change of Ann's entry by the administrator.
    fn change(&self, changes: &[Change<'_>]) {
        self.server
            .admin()
            .tell(&modify(1, ANN, changes))
            .succeeded();
    }

    /// A client that Ann is bound as.
    fn ann(&self, password: &str) -> Client {
        let mut client = self.server.connect();
        client.bind(ANN, password).succeeded();
        client
    }
}

const ASKS: (&str, bool, Option<&[u8]>) = (PASSWORD_POLICY, false, None);

fn bind(client: &mut Client, dn: &str, password: &str) -> (ResultCode, PasswordPolicyResponse) {
    let request = requests::simple_bind(dn, password.as_bytes());
    let answer = client.ask_with(request, &[ASKS]);
    (answer.code, response(&answer).unwrap())
}

/// The control of an answer.
fn response(answer: &Answer) -> Option<PasswordPolicyResponse> {
    let mut controls = answer.controls.iter();
    let (_, value) = controls.find(|(oid, _)| oid == PASSWORD_POLICY)?;
    Some(PasswordPolicyResponse::decode(value).unwrap())
}

fn error(error: PasswordPolicyError) -> PasswordPolicyResponse {
    PasswordPolicyResponse {
        error: Some(error),
        warning: None,
    }
}

fn warning(warning: PasswordPolicyWarning) -> PasswordPolicyResponse {
    PasswordPolicyResponse {
        error: None,
        warning: Some(warning),
    }
}

const NOTHING: PasswordPolicyResponse = PasswordPolicyResponse {
    error: None,
    warning: None,
};
const WRONG: (ResultCode, PasswordPolicyResponse) = (ResultCode::InvalidCredentials, NOTHING);
const RIGHT: (ResultCode, PasswordPolicyResponse) = (ResultCode::Success, NOTHING);

#[test]
fn too_many_failures_lock_until_the_time_is_over() {
    let bench = Bench::new(&[
        ("pwdLockout", "TRUE"),
        ("pwdMaxFailure", "2"),
        ("pwdLockoutDuration", "60"),
    ]);
    assert_eq!(bench.bind("wrong"), WRONG);
    assert_eq!(bench.values("pwdFailureTime"), ["20250101000000.000000Z"]);
    assert_eq!(bench.bind("first password"), RIGHT);
    assert!(bench.values("pwdFailureTime").is_empty());
    assert_eq!(bench.values("pwdLastSuccess"), ["20250101000000Z"]);
    assert_eq!(bench.bind("wrong"), WRONG);
    bench.pass(1);
    assert_eq!(bench.bind("wrong"), WRONG);
    assert_eq!(bench.values("pwdAccountLockedTime"), ["20250101000001Z"]);
    let locked = (
        ResultCode::InvalidCredentials,
        error(PasswordPolicyError::AccountLocked),
    );
    assert_eq!(bench.bind("first password"), locked);
    // Who does not ask is told nothing.
    let silent = bench.server.connect().bind(ANN, "first password");
    assert!(
        silent
            .expect(ResultCode::InvalidCredentials)
            .controls
            .is_empty()
    );
    bench.pass(59);
    assert_eq!(bench.bind("first password"), locked);
    bench.pass(1);
    assert_eq!(bench.bind("first password"), RIGHT);
    assert!(bench.values("pwdAccountLockedTime").is_empty());
    // Nobody is told whether there is such an entry.
    let nobody = bind(
        &mut bench.server.connect(),
        "cn=Nobody,dc=example,dc=com",
        "x",
    );
    assert_eq!(nobody, WRONG);
    // The administrator is never locked out.
    for _ in 0..3 {
        let wrong = bench.server.connect().bind(sapwood_testkit::ADMIN, "wrong");
        wrong.expect(ResultCode::InvalidCredentials);
    }
    bench.server.admin();
}

#[test]
fn administrators_lock_and_unlock() {
    let bench = Bench::new(&[("pwdLockout", "TRUE"), ("pwdMaxFailure", "1")]);
    let locked = error(PasswordPolicyError::AccountLocked);
    bench.change(&[(Add, "pwdAccountLockedTime", &["000001010000Z"])]);
    assert_eq!(bench.bind("first password").1, locked);
    bench.change(&[(Delete, "pwdAccountLockedTime", &[])]);
    assert_eq!(bench.bind("first password"), RIGHT);
    assert_eq!(bench.bind("wrong"), WRONG);
    assert_eq!(bench.bind("first password").1, locked);
    bench.change(&[(Delete, "pwdAccountLockedTime", &[])]);
    assert!(bench.values("pwdFailureTime").is_empty());
    assert_eq!(bench.bind("first password"), RIGHT);
    // A new password unlocks, too.
    assert_eq!(bench.bind("wrong"), WRONG);
    bench.change(&[(Replace, "userPassword", &["second password"])]);
    assert!(bench.values("pwdAccountLockedTime").is_empty());
    assert_eq!(bench.bind("second password"), RIGHT);
    // What nobody may write.
    for attribute in ["pwdFailureTime", "pwdChangedTime", "pwdGraceUseTime"] {
        let change = modify(1, ANN, &[(Add, attribute, &["20250101000000Z"])]);
        let refused = bench.server.admin().tell(&change);
        refused.expect(ResultCode::ConstraintViolation);
    }
}

#[test]
fn a_password_warns_and_expires() {
    let bench = Bench::new(&[
        ("pwdMaxAge", "100"),
        ("pwdExpireWarning", "10"),
        ("pwdGraceAuthNLimit", "1"),
    ]);
    assert_eq!(bench.values("pwdChangedTime"), ["20250101000000Z"]);
    assert_eq!(bench.bind("first password"), RIGHT);
    bench.pass(95);
    let soon = warning(PasswordPolicyWarning::TimeBeforeExpiration(5));
    assert_eq!(bench.bind("first password"), (ResultCode::Success, soon));
    bench.pass(6);
    let last = warning(PasswordPolicyWarning::GraceAuthNsRemaining(0));
    assert_eq!(bench.bind("first password"), (ResultCode::Success, last));
    assert_eq!(bench.values("pwdGraceUseTime"), ["20250101000141.000000Z"]);
    let expired = error(PasswordPolicyError::PasswordExpired);
    let refused = (ResultCode::InvalidCredentials, expired);
    assert_eq!(bench.bind("first password"), refused);
    assert_eq!(bench.bind("wrong"), WRONG);
    bench.change(&[(Replace, "userPassword", &["second password"])]);
    assert!(bench.values("pwdGraceUseTime").is_empty());
    assert_eq!(bench.bind("second password"), RIGHT);
}

#[test]
fn a_password_that_was_reset_is_changed_first() {
    let bench = Bench::new(&[("pwdMustChange", "TRUE")]);
    assert_eq!(bench.bind("first password"), RIGHT);
    bench.change(&[(Replace, "userPassword", &["from the helpdesk"])]);
    assert_eq!(bench.values("pwdReset"), ["TRUE"]);
    let mut client = bench.server.connect();
    let reset = error(PasswordPolicyError::ChangeAfterReset);
    assert_eq!(
        bind(&mut client, ANN, "from the helpdesk"),
        (ResultCode::Success, reset)
    );
    let search = requests::search(7, SUFFIX, Scope::Base, "(objectClass=*)");
    let refused = client.tell(&requests::with(&search, &[ASKS]));
    refused.expect(ResultCode::InsufficientAccessRights);
    assert_eq!(response(&refused), Some(reset));
    let other = modify(8, ANN, &[(Replace, "description", &["x"])]);
    client
        .tell(&other)
        .expect(ResultCode::InsufficientAccessRights);
    assert_eq!(client.who_am_i(), format!("dn:{ANN}"));
    client
        .tell(&modify(9, ANN, &[(Replace, "userPassword", &["my own"])]))
        .succeeded();
    client.tell(&search).succeeded();
    assert!(bench.values("pwdReset").is_empty());
    // With Password Modify.
    bench.change(&[(Replace, "userPassword", &["from the helpdesk"])]);
    client.bind(ANN, "from the helpdesk").succeeded();
    client
        .tell(&search)
        .expect(ResultCode::InsufficientAccessRights);
    password_modify(&mut client, None, Some("my own")).succeeded();
    client.tell(&search).succeeded();
}

fn password_modify(client: &mut Client, old: Option<&str>, new: Option<&str>) -> Answer {
    let mut value = Vec::new();
    PasswordModify {
        user_identity: None,
        old_password: old.map(str::as_bytes),
        new_password: new.map(str::as_bytes),
    }
    .encode(&mut value);
    let request = sapwood_ldap::message::ExtendedRequest {
        name: PASSWORD_MODIFY,
        value: Some(&value),
    };
    client.ask_with(Request::Extended(request), &[ASKS])
}

#[track_caller]
fn refused(answer: &Answer, code: ResultCode, why: PasswordPolicyError) {
    answer.expect(code);
    assert_eq!(response(answer), Some(error(why)));
}

#[test]
fn users_change_passwords_as_the_policy_says() {
    let bench = Bench::new(&[
        ("pwdInHistory", "2"),
        ("pwdMinAge", "10"),
        ("pwdMinLength", "8"),
        ("pwdMaxLength", "16"),
        ("pwdCheckQuality", "2"),
        ("pwdSafeModify", "TRUE"),
    ]);
    let mut client = bench.ann("first password");
    let by_modify = |client: &mut Client, old: &str, new: &str| {
        let changes: [Change<'_>; 2] = [
            (Delete, "userPassword", &[old]),
            (Add, "userPassword", &[new]),
        ];
        client.tell(&requests::with(&modify(5, ANN, &changes), &[ASKS]))
    };
    let young = PasswordPolicyError::PasswordTooYoung;
    let answer = by_modify(&mut client, "first password", "password two");
    refused(&answer, ResultCode::ConstraintViolation, young);
    bench.pass(10);
    let must = PasswordPolicyError::MustSupplyOldPassword;
    let alone = modify(6, ANN, &[(Replace, "userPassword", &["password two"])]);
    let answer = client.tell(&requests::with(&alone, &[ASKS]));
    refused(&answer, ResultCode::InsufficientAccessRights, must);
    let answer = password_modify(&mut client, None, Some("password two"));
    refused(&answer, ResultCode::InsufficientAccessRights, must);
    let answer = by_modify(&mut client, "not my password", "password two");
    refused(&answer, ResultCode::UnwillingToPerform, must);
    for (new, why) in [
        ("short", PasswordPolicyError::PasswordTooShort),
        (
            "much too long a password",
            PasswordPolicyError::PasswordTooLong,
        ),
        (
            "{SSHA}1G904nLkTkGWjKNnQuB/hpWXC/hzYWx0c2FsdA==",
            PasswordPolicyError::InsufficientPasswordQuality,
        ),
        ("first password", PasswordPolicyError::PasswordInHistory),
    ] {
        let answer = by_modify(&mut client, "first password", new);
        refused(&answer, ResultCode::ConstraintViolation, why);
    }
    by_modify(&mut client, "first password", "password two").succeeded();
    assert_eq!(bench.values("pwdHistory").len(), 1);
    assert_eq!(bench.values("pwdChangedTime"), ["20250101000010Z"]);
    bench.pass(10);
    let again = PasswordPolicyError::PasswordInHistory;
    for used in ["first password", "password two"] {
        let answer = password_modify(&mut client, Some("password two"), Some(used));
        refused(&answer, ResultCode::ConstraintViolation, again);
    }
    password_modify(&mut client, Some("password two"), Some("third password")).succeeded();
    bench.pass(10);
    password_modify(&mut client, Some("third password"), Some("fourth password")).succeeded();
    // The first one is forgotten.
    assert_eq!(bench.values("pwdHistory").len(), 2);
    bench.pass(10);
    password_modify(&mut client, Some("fourth password"), Some("first password")).succeeded();
    // One that is made is as long as is allowed.
    bench.pass(10);
    let made = password_modify(&mut client, Some("first password"), None);
    let made = made.succeeded().value.clone().unwrap();
    let made = generated_password(&made).unwrap().unwrap().to_vec();
    assert_eq!(made.len(), 16);
    client.bind(ANN, &made).succeeded();
    // Several passwords are refused, the administrator's too.
    let two = modify(
        9,
        ANN,
        &[(Replace, "userPassword", &["one password", "another one"])],
    );
    bench
        .server
        .admin()
        .tell(&two)
        .refused(ResultCode::ConstraintViolation, "one value");
    // The rest is left to the administrator.
    bench.change(&[(Replace, "userPassword", &["x"])]);
    bench.change(&[(Replace, "userPassword", &["x"])]);
}

/// What is asked of a password when the policy is that of the test of details, and which of it is so.
fn checked(is_long: bool, is_secret: bool, is_strong: bool) -> PasswordValidation {
    let requirement = |description: &str, length, is_met| CheckedRequirement {
        description: description.to_owned(),
        length,
        is_met,
    };
    PasswordValidation::Checked(vec![
        requirement("The password has at least 8 bytes.", Some((8, 0)), is_long),
        requirement("The password is not known from a breach.", None, is_secret),
        requirement("The password is hard to guess.", None, is_strong),
    ])
}

#[test]
fn what_is_asked_of_a_password_is_told() {
    let rules = [
        ("pwdMinLength", "8"),
        ("pwdMaxAge", "1000"),
        ("pwdCheckQuality", "2"),
        ("pwdSafeModify", "TRUE"),
        ("pwdMustChange", "TRUE"),
    ];
    let bench = Bench::with(&rules, "strength_min = 3\n");
    const TELL: (&str, bool, Option<&[u8]>) = (PASSWORD_VALIDATION_DETAILS, true, None);
    #[track_caller]
    fn told(answer: &Answer, code: ResultCode, details: PasswordValidationDetails) {
        answer.expect(code);
        let mut value = Vec::new();
        details.encode(&mut value);
        let expected = (PASSWORD_VALIDATION_DETAILS_RESPONSE.to_owned(), value);
        assert!(
            answer.controls.contains(&expected),
            "{answer:?} {details:?}"
        );
    }
    let looked_at = |validation| PasswordValidationDetails {
        validation,
        misses_current: false,
        must_change: false,
        expires_in: Some(1000),
    };
    let not_told = |validation, misses_current| PasswordValidationDetails {
        validation,
        misses_current,
        must_change: false,
        expires_in: None,
    };
    let change = |client: &mut Client, changes: &[Change<'_>]| {
        client.tell(&requests::with(&modify(5, ANN, changes), &[TELL]))
    };
    let by_modify = |client: &mut Client, old: &str, new: &str| {
        let (delete, add) = ([old], [new]);
        let changes = [
            (Delete, "userPassword", &delete[..]),
            (Add, "userPassword", &add[..]),
        ];
        change(client, &changes)
    };
    let mut ann = bench.ann("first password");
    let refused = ResultCode::ConstraintViolation;
    for (new, validation) in [
        ("short", checked(false, true, false)),
        ("a known password", checked(true, false, true)),
        ("password1", checked(true, true, false)),
    ] {
        let answer = by_modify(&mut ann, "first password", new);
        told(&answer, refused, looked_at(validation));
    }
    // Who does not show that they know the password is told nothing of what is asked.
    let alone = [(Replace, "userPassword", &["short"][..])];
    let unknown = not_told(PasswordValidation::NotAttempted, true);
    let answer = change(&mut ann, &alone);
    told(
        &answer,
        ResultCode::InsufficientAccessRights,
        unknown.clone(),
    );
    let answer = by_modify(&mut ann, "guessed", "short");
    told(&answer, ResultCode::UnwillingToPerform, unknown);
    let good = "seven purple llamas hum";
    let answer = by_modify(&mut ann, "first password", good);
    told(
        &answer,
        ResultCode::Success,
        looked_at(checked(true, true, true)),
    );
    // The same by Password Modify.
    for (old, new, code, details) in [
        (
            "guessed",
            "short",
            ResultCode::InvalidCredentials,
            not_told(PasswordValidation::NotAttempted, false),
        ),
        (
            good,
            "short",
            refused,
            looked_at(checked(false, true, false)),
        ),
    ] {
        let mut value = Vec::new();
        PasswordModify {
            user_identity: None,
            old_password: Some(old.as_bytes()),
            new_password: Some(new.as_bytes()),
        }
        .encode(&mut value);
        let request = sapwood_ldap::message::ExtendedRequest {
            name: PASSWORD_MODIFY,
            value: Some(&value),
        };
        let answer = ann.ask_with(Request::Extended(request), &[TELL]);
        told(&answer, code, details);
    }
    // Passwords that nobody looks at.
    let mut admin = bench.server.admin();
    let answer = change(&mut admin, &[(Replace, "sn", &["y"])]);
    told(
        &answer,
        ResultCode::Success,
        not_told(PasswordValidation::NoPassword, false),
    );
    let several = not_told(PasswordValidation::SeveralPasswords, false);
    let answer = change(&mut admin, &[(Replace, "userPassword", &["one", "two"])]);
    told(&answer, refused, several);
    let reset = PasswordValidationDetails {
        must_change: true,
        ..looked_at(PasswordValidation::NotAttempted)
    };
    let answer = change(&mut admin, &[(Replace, "userPassword", &["x"])]);
    told(&answer, ResultCode::Success, reset);
    let search = requests::search(8, SUFFIX, Scope::Base, "(objectClass=*)");
    let answer = admin.tell(&requests::with(&search, &[TELL]));
    answer.expect(ResultCode::UnavailableCriticalExtension);
}

/// Of who may not change the password each guess was compared, and answered.
#[test]
fn who_may_not_change_a_password_cannot_try_it_with_a_change() {
    let bench = Bench::new(&[
        ("pwdInHistory", "2"),
        ("pwdMinAge", "10"),
        ("pwdSafeModify", "FALSE"),
    ]);
    const BOB: &str = "cn=Bob,dc=example,dc=com";
    let bob = [
        ("objectClass", "person"),
        ("cn", "Bob"),
        ("sn", "x"),
        ("userPassword", "the password of Bob"),
    ];
    bench.server.add(&[(BOB, &bob)]);
    let mut client = bench.server.connect();
    client.bind(BOB, "the password of Bob").succeeded();
    for seconds in [0, 10] {
        bench.pass(seconds);
        for guess in ["first password", "not her password"] {
            let changes: [&[Change<'_>]; 2] = [
                &[
                    (Delete, "userPassword", &[guess]),
                    (Add, "userPassword", &["another password"]),
                ],
                &[(Replace, "userPassword", &[guess])],
            ];
            for changes in changes {
                let answer = client.tell(&requests::with(&modify(5, ANN, changes), &[ASKS]));
                let may_not = "do not let you change userPassword";
                answer.refused(ResultCode::InsufficientAccessRights, may_not);
                assert_eq!(response(&answer), None);
            }
        }
    }
    bench.ann("first password");
}

#[test]
fn what_is_known_from_a_breach_is_not_chosen() {
    let bench = Bench::new(&[("pwdCheckQuality", "1")]);
    let mut client = bench.ann("first password");
    let replace = |client: &mut Client, new: &str| {
        let changes: [Change<'_>; 1] = [(Replace, "userPassword", &[new])];
        client.tell(&requests::with(&modify(5, ANN, &changes), &[ASKS]))
    };
    let known = PasswordPolicyError::InsufficientPasswordQuality;
    let answer = replace(&mut client, "a known password");
    refused(&answer, ResultCode::ConstraintViolation, known);
    let answer = password_modify(&mut client, None, Some("a known password"));
    refused(&answer, ResultCode::ConstraintViolation, known);
    replace(&mut client, "an unknown password").succeeded();
    // The administrator may.
    bench.change(&[(Replace, "userPassword", &["a known password"])]);
    // While the list cannot be read, nothing is known of a password.
    std::fs::remove_file(bench.server.path("breached.txt")).unwrap();
    client.bind(ANN, "a known password").succeeded();
    let answer = replace(&mut client, "an unknown password");
    answer.refused(ResultCode::Unavailable, "list of breached passwords");
    let changes: [Change<'_>; 1] = [(Replace, "pwdCheckQuality", &["0"])];
    let lax = modify(6, POLICY, &changes);
    bench.server.admin().tell(&lax).succeeded();
    replace(&mut client, "an unknown password").succeeded();
}

#[test]
fn nobody_but_the_administrator_sees_used_passwords() {
    let bench = Bench::new(&[("pwdInHistory", "3")]);
    bench.change(&[(Replace, "userPassword", &["second password"])]);
    assert_eq!(bench.values("pwdHistory").len(), 1);
    let attributes = OctetStringsBuf::from_iter([b"+".as_slice(), b"*", b"pwdHistory"]);
    let filter = sapwood_ldap::filter_text::parse("(objectClass=*)").unwrap();
    let request = SearchRequest {
        attributes: attributes.view(),
        ..SearchRequest::new(ANN, Scope::Base, filter.as_filter())
    };
    let request = Request::Search(request);
    let mut ann = bench.ann("second password");
    let mut is_hidden = || {
        let found = ann.ask_all(request, &[]);
        assert_eq!(found[0].values("pwdChangedTime").len(), 1);
        found[0].values("pwdHistory").is_empty()
    };
    assert!(is_hidden());
    // It showed where rules pick attributes out one by one.
    let rules = [
        "to attrs=userPassword by self =xw by anonymous auth",
        "to attrs=sn by * none",
        "to * by users read by anonymous auth",
    ];
    bench.server.configure(&[(Replace, "olcAccess", &rules)]);
    assert!(is_hidden());
}

#[test]
fn without_the_overlay_nothing_is_kept() {
    let bench = Bench::new(&[("pwdMaxFailure", "1"), ("pwdLockout", "TRUE")]);
    let dn = "olcOverlay=ppolicy,olcDatabase={1}mdb,cn=config";
    let delete = Request::Delete(dn);
    bench.server.admin().ask(delete).succeeded();
    let mut client = bench.server.connect();
    for _ in 0..2 {
        client
            .bind(ANN, "wrong")
            .expect(ResultCode::InvalidCredentials);
    }
    let answer = client.ask_with(requests::simple_bind(ANN, b"first password"), &[ASKS]);
    assert_eq!(response(answer.succeeded()), None);
    assert!(bench.values("pwdFailureTime").is_empty() && bench.values("pwdLastSuccess").is_empty());
}

#[test]
fn who_may_compare_a_password_learns_whether_it_can_be_used() {
    let bench = Bench::new(&[
        ("pwdMaxAge", "100"),
        ("pwdLockout", "TRUE"),
        ("pwdMaxFailure", "1"),
        ("pwdLockoutDuration", "60"),
    ]);
    let told = |client: &mut Client, dn: &str| {
        let filter = sapwood_ldap::filter_text::parse("(objectClass=*)").unwrap();
        let request = SearchRequest::new(dn, Scope::Base, filter.as_filter());
        let found = client.ask_all(Request::Search(request), &[(ACCOUNT_USABILITY, true, None)]);
        assert!(!found[0].values("cn").is_empty());
        let mut controls = found[0].controls.iter();
        let control = controls.find(|(oid, _)| oid == ACCOUNT_USABILITY);
        control.map(|(_, value)| AccountUsability::decode(value).unwrap())
    };
    let usable = |seconds| {
        let expires_in = Some(seconds);
        Some(AccountUsability::Usable { expires_in })
    };
    let (mut admin, mut ann) = (bench.server.admin(), bench.ann("first password"));
    assert_eq!(told(&mut admin, ANN), usable(100));
    assert_eq!(told(&mut admin, POLICY), None);
    assert_eq!(told(&mut ann, ANN), None);
    let rules = [
        "to attrs=userPassword by users compare by anonymous auth",
        "to * by users read by anonymous auth",
    ];
    bench.server.configure(&[(Replace, "olcAccess", &rules)]);
    assert_eq!(told(&mut ann, ANN), usable(100));
    let (code, _) = bench.bind("wrong");
    assert_eq!(code, ResultCode::InvalidCredentials);
    bench.pass(10);
    let locked = Unusable {
        inactive: true,
        unlocks_in: Some(50),
        ..Unusable::default()
    };
    let locked = Some(AccountUsability::Unusable(locked));
    assert_eq!(told(&mut ann, ANN), locked);
    assert_eq!(told(&mut admin, ANN), locked);
    bench.pass(50);
    assert_eq!(told(&mut ann, ANN), usable(40));
    bench.pass(41);
    let expired = Unusable {
        expired: true,
        remaining_grace: Some(0),
        ..Unusable::default()
    };
    assert_eq!(
        told(&mut ann, ANN),
        Some(AccountUsability::Unusable(expired))
    );
}

#[test]
fn what_is_easy_to_guess_is_refused_where_that_is_asked_for() {
    let bench = Bench::with(&[("pwdCheckQuality", "1")], "strength_min = 3");
    let mut client = bench.ann("first password");
    let mut replace =
        |new: &str| client.tell(&modify(5, ANN, &[(Replace, "userPassword", &[new])]));
    let poor = PasswordPolicyError::InsufficientPasswordQuality;
    for guessable in ["P@ssw0rd1", "qwertyuiop", "ann2025"] {
        let answer = replace(guessable);
        answer.refused(ResultCode::ConstraintViolation, "easy to guess");
    }
    let control = requests::with(
        &modify(6, ANN, &[(Replace, "userPassword", &["abcdefgh"])]),
        &[ASKS],
    );
    replace("vT3kq9Zp2LmX").succeeded();
    let answer = bench.ann("vT3kq9Zp2LmX").tell(&control);
    assert_eq!(response(&answer), Some(error(poor)));
    // An administrator may set any.
    bench.change(&[(Replace, "userPassword", &["abcdefgh"])]);
}
