//! Who may bind and how, over each kind of connection.

#![allow(clippy::unwrap_used)]

use sapwood_ldap::controls::{AUTHORIZATION_IDENTITY, AUTHORIZATION_IDENTITY_RESPONSE};
use sapwood_ldap::extended::{PASSWORD_MODIFY, PasswordModify, generated_password};
use sapwood_ldap::list::ChangeKind;
use sapwood_ldap::message::{Authentication, BindRequest, Request, Scope};
use sapwood_ldap::result::ResultCode;
use sapwood_testkit::{ADMIN, Client, PASSWORD, SUFFIX, TestServer, requests};

const ANN: &str = "cn=Ann,dc=example,dc=com";

fn with_ann() -> TestServer {
    let server = TestServer::start();
    let mut admin = server.admin();
    let person = [
        ("objectClass", "person"),
        ("cn", "Ann"),
        ("sn", "x"),
        ("userPassword", "ann's password"),
    ];
    admin.send(&requests::add(100, ANN, &person));
    admin.finish(100).pop().unwrap().succeeded();
    server
}

fn sasl(client: &mut Client, mechanism: &str, credentials: Option<&[u8]>) -> ResultCode {
    let authentication = Authentication::Sasl {
        mechanism,
        credentials,
    };
    client
        .ask(Request::Bind(BindRequest {
            version: 3,
            name: "",
            authentication,
        }))
        .code
}

#[test]
fn simple_binds() {
    let server = with_ann();
    let mut client = server.connect();
    assert_eq!(client.who_am_i(), "");
    client.bind(ANN, b"ann's password").succeeded();
    assert_eq!(client.who_am_i(), format!("dn:{ANN}"));
    client
        .bind(ANN, b"another")
        .expect(ResultCode::InvalidCredentials);
    assert_eq!(
        client.who_am_i(),
        "",
        "a bind that fails leaves the connection anonymous"
    );
    client
        .bind("CN = ANN, DC=Example,dc=com", b"ann's password")
        .succeeded();
    client
        .bind("cn=nobody,dc=example,dc=com", b"x")
        .expect(ResultCode::InvalidCredentials);
    client
        .bind("not a DN", b"x")
        .expect(ResultCode::InvalidCredentials);
    assert_eq!(
        client.bind(SUFFIX, b"x").code,
        ResultCode::InvalidCredentials,
        "an entry without a password"
    );
    client.bind("", b"x").expect(ResultCode::InvalidCredentials);
    client.bind(ADMIN, PASSWORD).succeeded();
    assert_eq!(client.who_am_i(), format!("dn:{ADMIN}"));
    client.bind("", b"").succeeded();
    assert_eq!(client.who_am_i(), "");
    assert_eq!(
        client.bind(ANN, b"").code,
        ResultCode::UnwillingToPerform,
        "no bind without a password (RFC 4513 §5.1.2)"
    );
    let authentication = Authentication::Simple(b"x");
    client
        .ask(Request::Bind(BindRequest {
            version: 2,
            name: ANN,
            authentication,
        }))
        .expect(ResultCode::ProtocolError);
}

#[test]
fn a_bind_in_a_burst_waits_for_what_came_before_and_holds_what_comes_after() {
    let server = with_ann();
    let mut client = server.admin();
    let mut burst = requests::add(
        10,
        &format!("cn=Bob,{SUFFIX}"),
        &[("objectClass", "person"), ("cn", "Bob"), ("sn", "x")],
    );
    let authentication = Authentication::Simple(b"ann's password");
    burst.extend(sapwood_testkit::requests::message(
        11,
        Request::Bind(BindRequest {
            version: 3,
            name: ANN,
            authentication,
        }),
    ));
    // Ann may not do this; the administrator could.
    burst.extend(requests::add(
        12,
        &format!("cn=Cid,{SUFFIX}"),
        &[("objectClass", "person"), ("cn", "Cid"), ("sn", "x")],
    ));
    client.send(&burst);
    let codes: Vec<_> = (0..3)
        .map(|_| client.receive().unwrap())
        .map(|answer| (answer.id, answer.code))
        .collect();
    assert_eq!(
        codes,
        [
            (10, ResultCode::Success),
            (11, ResultCode::Success),
            (12, ResultCode::InsufficientAccessRights)
        ]
    );
}

#[test]
fn passwords_are_stored_as_hashes() {
    let server = with_ann();
    let mut admin = server.admin();
    let entry = &admin.search(ANN, Scope::Base, "(objectClass=*)")[0];
    let stored = &entry
        .attributes
        .iter()
        .find(|(name, _)| name == "userPassword")
        .unwrap()
        .1[0];
    assert!(stored.starts_with(b"{ARGON2}$argon2id$"));
    let mut ann = server.connect();
    ann.bind(ANN, b"ann's password");
    let entry = &ann.search(ANN, Scope::Base, "(objectClass=*)")[0];
    assert!(
        entry
            .attributes
            .iter()
            .all(|(name, _)| name != "userPassword"),
        "not even one's own is readable"
    );
}

#[test]
fn anonymous_reads_the_root_dse_only() {
    let server = with_ann();
    let mut client = server.connect();
    let root = client.search("", Scope::Base, "(objectClass=*)");
    assert_eq!(root.len(), 2);
    assert_eq!(
        client
            .search(SUFFIX, Scope::Subtree, "(objectClass=*)")
            .iter()
            .filter(|answer| !answer.ends)
            .count(),
        0
    );
}

/// The connections that are there already are as those that come.
#[test]
fn a_modify_of_the_configuration_opens_the_directory_to_anonymous_reads_and_closes_it() {
    let server = with_ann();
    let mut client = server.connect();
    let mut search = || {
        let answers = client.search(SUFFIX, Scope::Subtree, "(cn=ann)");
        let code = answers.last().map(|answer| answer.code);
        (answers.len(), code)
    };
    let refused = (1, Some(ResultCode::InsufficientAccessRights));
    assert_eq!(search(), refused);
    for _ in 0..2 {
        server.configure(&[(ChangeKind::Replace, "sapwoodAnonymousRead", &["TRUE"])]);
        assert_eq!(search(), (2, Some(ResultCode::Success)));
        server.configure(&[(ChangeKind::Delete, "sapwoodAnonymousRead", &[])]);
        assert_eq!(search(), refused);
    }
    // Neither who is not bound nor a user changes it.
    let mut ann = server.connect();
    ann.bind(ANN, b"ann's password").succeeded();
    let change: [requests::Change<'_>; 1] =
        [(ChangeKind::Replace, "sapwoodAnonymousRead", &["TRUE"])];
    let change = requests::modify(5, "olcDatabase={1}mdb,cn=config", &change);
    ann.tell(&change)
        .expect(ResultCode::InsufficientAccessRights);
    server
        .connect()
        .tell(&change)
        .expect(ResultCode::StrongerAuthRequired);
    assert_eq!(search(), refused);
}

#[test]
fn limits_of_searches_hold_for_all_but_the_administrator() {
    let server = with_ann();
    server.configure(&[(ChangeKind::Replace, "olcSizeLimit", &["1"])]);
    let count = |client: &mut Client| {
        let answers = client.search(SUFFIX, Scope::Subtree, "(objectClass=*)");
        (answers.len(), answers.last().map(|answer| answer.code))
    };
    let mut ann = server.connect();
    ann.bind(ANN, b"ann's password").succeeded();
    assert_eq!(count(&mut ann), (2, Some(ResultCode::SizeLimitExceeded)));
    let mut admin = server.admin();
    assert_eq!(count(&mut admin), (3, Some(ResultCode::Success)));
    // Of a burst, too, whose searches are begun together.
    let search = |id| requests::search(id, SUFFIX, Scope::Subtree, "(objectClass=*)");
    ann.send(&[search(70), search(71)].concat());
    // Either may end first.
    for _ in 0..2 {
        let end = std::iter::from_fn(|| ann.receive()).find(|answer| answer.ends);
        end.unwrap().expect(ResultCode::SizeLimitExceeded);
    }
    server.configure(&[(ChangeKind::Replace, "olcSizeLimit", &["unlimited"])]);
    assert_eq!(count(&mut ann), (3, Some(ResultCode::Success)));
}

#[test]
fn external_on_a_local_socket_is_the_administrator() {
    let server = with_ann();
    let mut client = server.connect_local();
    assert_eq!(sasl(&mut client, "EXTERNAL", None), ResultCode::Success);
    assert_eq!(client.who_am_i(), format!("dn:{ADMIN}"));
    assert_eq!(
        sasl(
            &mut client,
            "EXTERNAL",
            Some(format!("dn:{ADMIN}").as_bytes())
        ),
        ResultCode::Success
    );
    assert_eq!(
        sasl(&mut client, "EXTERNAL", Some(b"dn:cn=other")),
        ResultCode::InvalidCredentials
    );
    assert_eq!(client.who_am_i(), "");
    assert_eq!(
        sasl(&mut client, "GSSAPI", None),
        ResultCode::AuthMethodNotSupported
    );
    let mut remote = server.connect();
    assert_eq!(
        sasl(&mut remote, "EXTERNAL", None),
        ResultCode::InappropriateAuthentication
    );
}

#[test]
fn ldaps_works_from_the_first_byte() {
    let server = with_ann();
    let mut client = server.connect_tls();
    client.bind(ANN, b"ann's password").succeeded();
    assert_eq!(client.search(ANN, Scope::Base, "(objectClass=*)").len(), 2);
}

fn modify_password(
    client: &mut Client,
    request: &PasswordModify<'_>,
) -> (ResultCode, Option<Vec<u8>>) {
    let mut value = Vec::new();
    request.encode(&mut value);
    let answer = client.extended(PASSWORD_MODIFY, Some(&value));
    let made = answer
        .value
        .map(|value| generated_password(&value).unwrap().unwrap().to_vec());
    (answer.code, made)
}

#[test]
fn passwords_can_be_modified() {
    let server = with_ann();
    let mut ann = server.connect();
    let own = PasswordModify {
        user_identity: None,
        old_password: None,
        new_password: Some(b"newer"),
    };
    assert_eq!(
        modify_password(&mut ann, &own).0,
        ResultCode::StrongerAuthRequired
    );
    ann.bind(ANN, b"ann's password");
    let wrong = PasswordModify {
        old_password: Some(b"wrong"),
        ..own
    };
    assert_eq!(
        modify_password(&mut ann, &wrong).0,
        ResultCode::InvalidCredentials
    );
    let right = PasswordModify {
        old_password: Some(b"ann's password"),
        ..own
    };
    assert_eq!(
        modify_password(&mut ann, &right),
        (ResultCode::Success, None)
    );
    ann.bind(ANN, b"ann's password")
        .expect(ResultCode::InvalidCredentials);
    ann.bind(ANN, b"newer").succeeded();
    // A password that the server makes.
    let (code, made) = modify_password(&mut ann, &PasswordModify::default());
    assert_eq!(code, ResultCode::Success);
    ann.bind(ANN, made.unwrap()).succeeded();
    // Somebody else's password.
    let mut admin = server.admin();
    let other = PasswordModify {
        user_identity: Some(ANN.as_bytes()),
        ..own
    };
    assert_eq!(modify_password(&mut admin, &other).0, ResultCode::Success);
    let none = PasswordModify {
        user_identity: Some(b"cn=nobody,dc=example,dc=com"),
        ..own
    };
    assert_eq!(
        modify_password(&mut admin, &none).0,
        ResultCode::NoSuchObject
    );
    let suffix = PasswordModify {
        user_identity: Some(SUFFIX.as_bytes()),
        ..own
    };
    assert_eq!(
        modify_password(&mut ann, &suffix).0,
        ResultCode::InsufficientAccessRights
    );
    let empty = PasswordModify {
        new_password: Some(b""),
        ..own
    };
    assert_eq!(
        modify_password(&mut ann, &empty).0,
        ResultCode::ConstraintViolation
    );
}

#[test]
fn who_was_renamed_changes_the_own_password_not_the_heirs() {
    let server = with_ann();
    let mut admin = server.admin();
    let mut ann = server.connect();
    ann.bind(ANN, b"ann's password").succeeded();
    let renamed = "cn=annie,dc=example,dc=com";
    let rename = requests::message(7, requests::rename(ANN, "cn=annie"));
    admin.tell(&rename).succeeded();
    let own = PasswordModify {
        user_identity: None,
        old_password: Some(b"ann's password"),
        new_password: Some(b"newer"),
    };
    assert_eq!(modify_password(&mut ann, &own).0, ResultCode::Success);
    server.connect().bind(renamed, b"newer").succeeded();
    // An heir has the name that she was bound with.
    let heir = [
        ("objectClass", "person"),
        ("cn", "ann"),
        ("sn", "heir"),
        ("userPassword", "heir's"),
    ];
    admin.tell(&requests::add(8, ANN, &heir)).succeeded();
    let own = PasswordModify {
        old_password: None,
        new_password: Some(b"newest"),
        ..own
    };
    assert_eq!(modify_password(&mut ann, &own).0, ResultCode::Success);
    server.connect().bind(renamed, b"newest").succeeded();
    server.connect().bind(ANN, b"heir's").succeeded();
}

#[test]
fn a_reload_changes_the_administrators_password() {
    let server = TestServer::start();
    std::fs::write(
        server.path("admin.password"),
        sapwood_server::password::hash(b"another"),
    )
    .unwrap();
    let mut client = server.connect();
    client
        .bind(ADMIN, b"another")
        .expect(ResultCode::InvalidCredentials);
    server.server.as_ref().unwrap().reload().unwrap();
    client.bind(ADMIN, b"another").succeeded();
    std::fs::write(
        server.path("sapwood.toml"),
        "[admin]\ndn = 'cn=x'\nnonsense = 1\n",
    )
    .unwrap();
    let error = server
        .server
        .as_ref()
        .unwrap()
        .reload()
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("sapwood.toml:3") && error.contains("nonsense"),
        "{error}"
    );
    assert_eq!(
        client.bind(ADMIN, b"another").code,
        ResultCode::Success,
        "all stays as it was"
    );
}

/// No password could match it, and nobody would know before it is needed.
#[test]
fn a_file_without_a_password_of_the_administrator_is_refused() {
    let server = TestServer::start();
    for stored in ["{FOO}abc", "{SSHA}damaged"] {
        std::fs::write(server.path("admin.password"), stored).unwrap();
        let reloaded = server.server.as_ref().unwrap().reload();
        let error = reloaded.unwrap_err().to_string();
        let scheme = stored.split_inclusive('}').next().unwrap();
        assert!(
            error.contains("admin.password") && error.contains(scheme),
            "{error}"
        );
    }
    server.admin();
}

/// An initial response of PLAIN (RFC 4616).
fn plain(authzid: &str, authcid: &str, password: &str) -> Vec<u8> {
    [authzid, authcid, password].join("\0").into_bytes()
}

fn bind_plain(client: &mut Client, authzid: &str, authcid: &str, password: &str) -> ResultCode {
    let message = plain(authzid, authcid, password);
    sasl(client, "PLAIN", Some(&message))
}

#[test]
fn plain_binds_over_tls_only() {
    let server = with_ann();
    let dn = format!("dn:{ANN}");
    let confidential = ResultCode::ConfidentialityRequired;
    for mut client in [server.connect(), server.connect_local()] {
        let code = bind_plain(&mut client, "", &dn, "ann's password");
        assert_eq!(code, confidential);
        assert_eq!(client.who_am_i(), "");
    }
    let mut client = server.connect_tls();
    let mut bind = |authzid: &str, authcid: &str, password: &str| {
        let code = bind_plain(&mut client, authzid, authcid, password);
        let name = client.who_am_i();
        assert_eq!(code == ResultCode::Success, !name.is_empty());
        (code, name)
    };
    let ann = (ResultCode::Success, dn.clone());
    assert_eq!(bind("", &dn, "ann's password"), ann);
    assert_eq!(bind("", ANN, "ann's password"), ann);
    assert_eq!(
        bind("dn:CN=ann, dc=example,dc=com", &dn, "ann's password"),
        ann
    );
    let admin = format!("dn:{ADMIN}");
    assert_eq!(
        bind("", &admin, PASSWORD),
        (ResultCode::Success, admin.clone())
    );
    let refused = |code| (code, String::new());
    let wrong = refused(ResultCode::InvalidCredentials);
    assert_eq!(bind("", &dn, "another"), wrong);
    assert_eq!(bind("", "dn:cn=nobody,dc=example,dc=com", "x"), wrong);
    for name in ["Ann", "u:Ann", "dn:", "dn:Ann"] {
        assert_eq!(bind("", name, "ann's password"), wrong, "{name}");
    }
    // RFC 4513 §5: "with an invalidCredentials resultCode".
    for authzid in [admin.as_str(), "u:Ann", "dn:"] {
        assert_eq!(bind(authzid, &dn, "ann's password"), wrong, "{authzid}");
    }
    // The administrator may, with the right password.
    assert_eq!(bind(&dn, &admin, PASSWORD), ann);
    assert_eq!(bind(&dn, &admin, "another"), wrong);
    assert_eq!(bind("u:Ann", &admin, PASSWORD), wrong);
    let malformed = refused(ResultCode::ProtocolError);
    assert_eq!(bind("", "", "x"), malformed);
    assert_eq!(bind("", &dn, ""), malformed);
    assert_eq!(bind("", &dn, "x\0y"), malformed);
}

/// RFC 4422 §3.2: a client that sends no initial response is asked for one.
#[test]
fn plain_without_an_initial_response_goes_on_in_the_next_bind() {
    let server = with_ann();
    let mut client = server.connect_tls();
    let message = plain("", &format!("dn:{ANN}"), "ann's password");
    assert_eq!(
        sasl(&mut client, "PLAIN", None),
        ResultCode::SaslBindInProgress
    );
    assert_eq!(client.who_am_i(), "");
    assert_eq!(
        sasl(&mut client, "PLAIN", Some(&message)),
        ResultCode::Success
    );
    assert_eq!(client.who_am_i(), format!("dn:{ANN}"));
    // RFC 4511 §4.2.1: another bind aborts it.
    assert_eq!(
        sasl(&mut client, "PLAIN", None),
        ResultCode::SaslBindInProgress
    );
    client.bind(ANN, b"ann's password").succeeded();
    assert_eq!(
        sasl(&mut client, "NONE", None),
        ResultCode::AuthMethodNotSupported
    );
    assert_eq!(client.who_am_i(), "");
}

/// RFC 3829: a bind that succeeds says whom it has bound, if it is asked.
#[test]
fn a_bind_says_who_the_client_is() {
    let server = with_ann();
    let mut client = server.connect();
    let asked = [(AUTHORIZATION_IDENTITY, true, None)];
    let mut told = |dn: &str, password: &str, asked: &[requests::Control<'_>]| {
        let request = requests::simple_bind(dn, password.as_bytes());
        let answer = client.ask_with(request, asked);
        let value = |(oid, value): &(String, Vec<u8>)| {
            assert_eq!(oid, AUTHORIZATION_IDENTITY_RESPONSE);
            String::from_utf8(value.clone()).unwrap()
        };
        let values: Vec<_> = answer.controls.iter().map(value).collect();
        (answer.code, values)
    };
    let success = |name: &str| (ResultCode::Success, vec![name.to_owned()]);
    assert_eq!(
        told(ANN, "ann's password", &asked),
        success(&format!("dn:{ANN}"))
    );
    assert_eq!(
        told(ADMIN, PASSWORD, &asked),
        success(&format!("dn:{ADMIN}"))
    );
    assert_eq!(told("", "", &asked), success(""));
    assert_eq!(
        told(ANN, "wrong", &asked),
        (ResultCode::InvalidCredentials, vec![])
    );
    assert_eq!(
        told(ANN, "ann's password", &[]),
        (ResultCode::Success, vec![])
    );
}
