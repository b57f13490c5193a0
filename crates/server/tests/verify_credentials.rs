//! Verify Credentials: whether a bind would succeed, on a connection that stays as it is.

#![allow(clippy::unwrap_used)]

use sapwood_ldap::controls::{
    Control, Controls, ControlsBuf, PASSWORD_POLICY, PasswordPolicyError, PasswordPolicyResponse,
};
use sapwood_ldap::extended::{VERIFY_CREDENTIALS, VerifyCredentials, verified};
use sapwood_ldap::list::AttributesBuf;
use sapwood_ldap::list::ChangeKind::Replace;
use sapwood_ldap::message::{AddRequest, Authentication, Request};
use sapwood_ldap::result::ResultCode;
use sapwood_testkit::requests::{self, modify};
use sapwood_testkit::{ADMIN, Client, PASSWORD, TestServer};

const ANN: &str = "cn=ann,dc=example,dc=com";
const POLICY: &str = "cn=policy,dc=example,dc=com";

fn server() -> TestServer {
    server_with("")
}

fn server_with(config: &str) -> TestServer {
    let server = TestServer::with(config);
    let ann = [
        ("objectClass", "person"),
        ("sn", "a"),
        ("userPassword", "first password"),
    ];
    server.add(&[(ANN, &ann)]);
    server
}

fn ask(
    client: &mut Client,
    name: &str,
    authentication: Authentication<'_>,
    controls: Controls<'_>,
) -> (ResultCode, Vec<(String, Vec<u8>)>) {
    let mut value = Vec::new();
    let asked = VerifyCredentials {
        name,
        authentication,
        controls,
    };
    asked.encode(&mut value);
    let answer = client.extended(VERIFY_CREDENTIALS, Some(&value));
    answer.succeeded();
    assert!(answer.controls.is_empty() && answer.name.is_none());
    let value = answer.value.unwrap();
    let (code, controls) = verified(&value).unwrap();
    let controls = controls.iter().map(|control| {
        let value = control.value.unwrap_or_default();
        (control.oid.to_owned(), value.to_vec())
    });
    (u32::try_from(code).unwrap().into(), controls.collect())
}

fn verify(client: &mut Client, name: &str, password: &str) -> ResultCode {
    let password = Authentication::Simple(password.as_bytes());
    let (code, controls) = ask(client, name, password, Controls::EMPTY);
    assert!(controls.is_empty());
    code
}

#[test]
fn the_connection_stays_bound_as_it_is() {
    let server = server();
    let mut client = server.admin();
    let own = client.who_am_i();
    for (name, password, code) in [
        (ANN, "first password", ResultCode::Success),
        (ANN, "another", ResultCode::InvalidCredentials),
        (
            "cn=nobody,dc=example,dc=com",
            "x",
            ResultCode::InvalidCredentials,
        ),
        (ADMIN, PASSWORD, ResultCode::Success),
        (ADMIN, "x", ResultCode::InvalidCredentials),
        // As a bind: anonymous, and a name without a password.
        ("", "", ResultCode::Success),
        (ANN, "", ResultCode::UnwillingToPerform),
        ("no name", "x", ResultCode::InvalidCredentials),
    ] {
        assert_eq!(
            verify(&mut client, name, password),
            code,
            "{name} {password}"
        );
        assert_eq!(client.who_am_i(), own);
    }
    let sasl = Authentication::Sasl {
        mechanism: "PLAIN",
        credentials: None,
    };
    let (code, _) = ask(&mut client, "", sasl, Controls::EMPTY);
    assert_eq!(code, ResultCode::AuthMethodNotSupported);
    // A bind behind it is a bind.
    client.bind(ANN, "first password").succeeded();
    assert_eq!(client.who_am_i(), format!("dn:{ANN}"));
    assert_eq!(verify(&mut client, ADMIN, PASSWORD), ResultCode::Success);
    assert_eq!(client.who_am_i(), format!("dn:{ANN}"));
    let offered = client.root_dse().values("supportedExtension");
    assert!(offered.iter().any(|oid| oid == VERIFY_CREDENTIALS));
}

#[test]
fn an_open_transaction_goes_on() {
    use sapwood_ldap::extended::{END_TRANSACTION, EndTransaction, START_TRANSACTION};
    let server = server();
    let mut client = server.admin();
    let identifier = client.extended(START_TRANSACTION, None).value.unwrap();
    assert_eq!(
        verify(&mut client, ANN, "another"),
        ResultCode::InvalidCredentials
    );
    let mut value = Vec::new();
    let end = EndTransaction {
        commit: true,
        identifier: &identifier,
    };
    end.encode(&mut value);
    client.extended(END_TRANSACTION, Some(&value)).succeeded();
}

#[test]
fn what_is_malformed_is_refused_outright() {
    let server = server();
    let mut client = server.admin();
    for value in [None, Some(b"x".as_slice()), Some(b"\x30\x02\x04\x00")] {
        let answer = client.extended(VERIFY_CREDENTIALS, value);
        answer.expect(ResultCode::ProtocolError);
    }
    let mut controls = ControlsBuf::default();
    controls.push(Control {
        oid: "1.2.3.4",
        critical: true,
        value: None,
    });
    let password = Authentication::Simple(b"first password");
    let (code, _) = ask(&mut client, ANN, password, controls.view());
    assert_eq!(code, ResultCode::UnavailableCriticalExtension);
}

#[test]
fn policies_judge_and_tell() {
    let server = server();
    let mut admin = server.admin();
    let mut attributes = AttributesBuf::default();
    attributes.push(b"objectClass", [b"device".as_slice(), b"pwdPolicy"]);
    for (description, value) in [
        ("cn", "policy"),
        ("pwdAttribute", "userPassword"),
        ("pwdLockout", "TRUE"),
        ("pwdMaxFailure", "2"),
    ] {
        attributes.push(description.as_bytes(), [value.as_bytes()]);
    }
    let add = AddRequest {
        dn: POLICY,
        attributes: attributes.view(),
    };
    admin.ask(Request::Add(add)).succeeded();
    let overlay = [
        ("objectClass", "olcPPolicyConfig"),
        ("olcOverlay", "ppolicy"),
        ("olcPPolicyDefault", POLICY),
        ("olcPPolicyUseLockout", "TRUE"),
    ];
    let overlay = requests::add(
        1,
        "olcOverlay=ppolicy,olcDatabase={1}mdb,cn=config",
        &overlay,
    );
    admin.tell(&overlay).succeeded();
    let mut controls = ControlsBuf::default();
    controls.push(Control {
        oid: PASSWORD_POLICY,
        critical: false,
        value: None,
    });
    let mut told = |password: &str| {
        let password = Authentication::Simple(password.as_bytes());
        let (code, controls) = ask(&mut admin, ANN, password, controls.view());
        let [(oid, value)] = &controls[..] else {
            panic!("{controls:?}");
        };
        assert_eq!(oid, PASSWORD_POLICY);
        (code, PasswordPolicyResponse::decode(value).unwrap().error)
    };
    assert_eq!(told("first password"), (ResultCode::Success, None));
    let wrong = ResultCode::InvalidCredentials;
    assert_eq!(told("wrong"), (wrong, None));
    assert_eq!(told("wrong").0, wrong);
    // It is locked now, for binds as well.
    let locked = Some(PasswordPolicyError::AccountLocked);
    assert_eq!(told("first password"), (wrong, locked));
    server.connect().bind(ANN, "first password").expect(wrong);
    let unlock = modify(1, ANN, &[(Replace, "userPassword", &["second password"])]);
    server.admin().tell(&unlock).succeeded();
    assert_eq!(told("second password"), (ResultCode::Success, None));
}

#[test]
fn failures_count_with_those_of_binds() {
    let server = server_with("[limits]\nfailed_binds_per_name_max = 2\n");
    let mut client = server.connect();
    client
        .bind(ANN, "wrong")
        .expect(ResultCode::InvalidCredentials);
    assert_eq!(
        verify(&mut client, ANN, "wrong"),
        ResultCode::InvalidCredentials
    );
    assert_eq!(verify(&mut client, ANN, "first password"), ResultCode::Busy);
    client.bind(ANN, "first password").expect(ResultCode::Busy);
}
