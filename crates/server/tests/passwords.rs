//! Which passwords are stored, which let somebody bind, and what a flood of binds does to others.

#![allow(clippy::unwrap_used)]

mod support;

use sapwood_ldap::control::{Control, Controls, ControlsBuf, TRANSACTION_SPECIFICATION};
use sapwood_ldap::extended::*;
use sapwood_ldap::list::{AttributesBuf, ChangeKind};
use sapwood_ldap::message::*;
use sapwood_ldap::result::ResultCode;
use support::{
    ADMIN, Answer, Client, PASSWORD, SUFFIX, TestServer, add_request, message, modify_request,
    with_controls,
};

const ANN: &str = "cn=Ann,dc=example,dc=com";

/// Stored forms of "secret"; how they were made is told beside those of `password/stored/tests.rs`.
const KNOWN: [&str; 9] = [
    "{SMD5}UsKZVoBPf0PRiv7t30XEqsjJysvMzc7P",
    "{SSHA256}914Lnts+kpxwY4TsWm3QKe3pMtYh+0ju4DNi8qMy59LIycrLzM3Ozw==",
    "{CRYPT}abNANd1rDfiNc",
    "{CRYPT}$1$abcdefgh$cHJi5PXp/ki/ktXzqlk6I1",
    "{CRYPT}$2y$05$abcdefghijklmnopqrstuuOQiyCxlgf/oeuTqixKmWdcYUh4Hjl0a",
    "{CRYPT}$5$rounds=1500$abc$j9w6LBQPE6AGku.HVeWrSe6UrEwQo9.381p/0OfNtN0",
    "{CRYPT}$y$j75$abcdefghijklmnopqrstu.$cQjAYfMwB51ACkjNBqV7OEAUemp/TRZgJmoQ3b5QsN8",
    "{PBKDF2}10000$yMnKy8zNzs/IycrLzM3Ozw$J3pC05yihR7IBNjn3Vay/RpizQs",
    "{PBKDF2-SHA256}10000$ZGVmZ2hpamtsbW5vcHFyc3R1dnd4eXp7$WVgxWzlUAebp/FZ8QiJGoV5hoNEhPxohGa/UzF1Z/2w=",
];

/// Values that no password can match, and what of them the diagnostic names.
const REFUSED: [(&str, &str); 7] = [
    ("{SASL}ann@EXAMPLE.COM", "{SASL}"),
    ("{FOO}abc", "{FOO}"),
    ("{CLEARTEXT}secret", "{CLEARTEXT}"),
    ("{crypt}text", "{CRYPT}"),
    ("{SSHA}damaged", "{SSHA}"),
    (
        "{BCRYPT}$2b$31$L6Bc/AlTQHyd9liGgGEZyOFLPHNgyxeEPfgYfBCVxJ7JIlwxyVU3u",
        "{BCRYPT}",
    ),
    ("{PBKDF2_SHA256}AAAnEA==", "{PBKDF2_SHA256}"),
];

fn person<'p>(name: &'p str, password: &'p str) -> [(&'p str, &'p str); 4] {
    [
        ("objectClass", "person"),
        ("cn", name),
        ("sn", "x"),
        ("userPassword", password),
    ]
}

fn tell(client: &mut Client, request: &[u8]) -> Answer {
    client.send(request);
    client.receive().unwrap()
}

#[track_caller]
fn assert_code(answer: &Answer, code: ResultCode) {
    assert_eq!(answer.code, code, "{}", answer.diagnostic);
}

#[test]
fn passwords_that_others_have_stored_let_their_owners_bind() {
    let server = TestServer::start();
    let mut admin = server.admin();
    let mut client = server.connect();
    for (number, stored) in KNOWN.iter().enumerate() {
        let name = format!("p{number}");
        let dn = format!("cn={name},{SUFFIX}");
        let added = tell(&mut admin, &add_request(100, &dn, &person(&name, stored)));
        assert_code(&added, ResultCode::Success);
        assert_code(&client.bind(&dn, b"secret"), ResultCode::Success);
        // The stored form is no password.
        let literal = client.bind(&dn, stored.as_bytes());
        assert_code(&literal, ResultCode::InvalidCredentials);
    }
}

/// They were stored in silence; those with a scheme that is not known were hashed, so that the literal old hash let
/// somebody bind.
#[test]
fn values_that_no_password_can_match_are_refused_wherever_they_come() {
    let server = TestServer::start();
    let mut admin = server.admin();
    let ann = add_request(100, ANN, &person("Ann", "secret"));
    assert_code(&tell(&mut admin, &ann), ResultCode::Success);
    for (value, named) in REFUSED {
        let check = |answer: &Answer| {
            assert_code(answer, ResultCode::ConstraintViolation);
            assert!(answer.diagnostic.contains(named), "{}", answer.diagnostic);
        };
        let ben = format!("cn=Ben,{SUFFIX}");
        check(&tell(
            &mut admin,
            &add_request(101, &ben, &person("Ben", value)),
        ));
        for kind in [ChangeKind::Add, ChangeKind::Replace] {
            // Alone, and beside one that is to be hashed.
            for values in [&[value][..], &["another", value]] {
                let changed = [(kind, "userPassword", values)];
                check(&tell(&mut admin, &modify_request(102, ANN, &changed)));
            }
        }
        let mut request = Vec::new();
        let modify = PasswordModify {
            user_identity: Some(ANN.as_bytes()),
            old_password: None,
            new_password: Some(value.as_bytes()),
        };
        modify.encode(&mut request);
        let answer = admin.extended(PASSWORD_MODIFY, Some(&request));
        assert_code(&answer, ResultCode::ConstraintViolation);
        check(&in_a_transaction(&mut admin, value));
        check(&in_bulk(&mut admin, value));
    }
    let mut client = server.connect();
    assert_code(&client.bind(ANN, b"secret"), ResultCode::Success);
}

/// The result of the end of a transaction that adds somebody with this password.
fn in_a_transaction(client: &mut Client, password: &str) -> Answer {
    let identifier = client.extended(START_TRANSACTION, None).value.unwrap();
    let mut controls = ControlsBuf::default();
    controls.push(Control {
        oid: TRANSACTION_SPECIFICATION,
        critical: true,
        value: Some(&identifier),
    });
    let mut attributes = AttributesBuf::default();
    for (description, value) in person("Cid", password) {
        attributes.push(description.as_bytes(), [value.as_bytes()]);
    }
    let op = Request::Add(AddRequest {
        dn: &format!("cn=Cid,{SUFFIX}"),
        attributes: attributes.view(),
    });
    let added = tell(client, &with_controls(200, op, controls.view()));
    if added.code != ResultCode::Success {
        return added;
    }
    let mut value = Vec::new();
    let end = EndTransaction {
        commit: true,
        identifier: &identifier,
    };
    end.encode(&mut value);
    client.extended(END_TRANSACTION, Some(&value))
}

/// The result of the one operation of a bulk update that adds somebody with this password.
fn in_bulk(client: &mut Client, password: &str) -> Answer {
    let mut value = Vec::new();
    let start = StartLburp {
        update_style: LBURP_INCREMENTAL,
    };
    start.encode(&mut value);
    assert_code(
        &client.extended(START_LBURP, Some(&value)),
        ResultCode::Success,
    );
    let mut attributes = AttributesBuf::default();
    for (description, value) in person("Dan", password) {
        attributes.push(description.as_bytes(), [value.as_bytes()]);
    }
    let mut operations = UpdateOperationsBuf::default();
    let op = Request::Add(AddRequest {
        dn: &format!("cn=Dan,{SUFFIX}"),
        attributes: attributes.view(),
    });
    operations.push(&op, Controls::EMPTY);
    let mut value = Vec::new();
    let update = LburpUpdate {
        sequence_number: 1,
        operations: operations.view(),
    };
    update.encode(&mut value);
    let mut answer = client.extended(LBURP_UPDATE, Some(&value));
    if let Some(value) = answer.value.take() {
        let results = OperationResults::decode(&value).unwrap();
        let (_, result) = results.iter().next().unwrap();
        answer.code = result.code;
        answer.diagnostic = result.diagnostic.to_owned();
    }
    let mut value = Vec::new();
    EndLburp { sequence_number: 2 }.encode(&mut value);
    assert_code(
        &client.extended(END_LBURP, Some(&value)),
        ResultCode::Success,
    );
    answer
}

#[test]
fn the_passwords_of_one_entry_are_bounded() {
    let server = TestServer::start();
    let mut admin = server.admin();
    let ann = add_request(100, ANN, &person("Ann", "secret"));
    assert_code(&tell(&mut admin, &ann), ResultCode::Success);
    let mut ann = server.connect();
    assert_code(&ann.bind(ANN, b"secret"), ResultCode::Success);
    let change = |client: &mut Client, kind, values: &[&str]| {
        tell(
            client,
            &modify_request(101, ANN, &[(kind, "userPassword", values)]),
        )
    };
    // Digests one after the other, of which an entry has eight at most.
    let digest = |letter| format!("{{SSHA}}uHVurLPaTVPboZtsce8c8nZ6/jvI{letter}A==");
    let digests: Vec<String> = ('A'..='T').map(digest).collect();
    let digests: Vec<&str> = digests.iter().map(String::as_str).collect();
    for digest in &digests[..7] {
        assert_code(
            &change(&mut ann, ChangeKind::Add, &[digest]),
            ResultCode::Success,
        );
    }
    let ninth = change(&mut ann, ChangeKind::Add, &digests[7..8]);
    assert_code(&ninth, ResultCode::ConstraintViolation);
    assert!(
        ninth.diagnostic.contains("password_values_max"),
        "{}",
        ninth.diagnostic
    );
    // All at once, in stored form and in clear text, which nobody begins to hash.
    let all = change(&mut ann, ChangeKind::Replace, &digests);
    assert_code(&all, ResultCode::ConstraintViolation);
    let clear: Vec<String> = (0..20_000)
        .map(|number| format!("clear {number}"))
        .collect();
    let clear: Vec<&str> = clear.iter().map(String::as_str).collect();
    let all = change(&mut ann, ChangeKind::Replace, &clear);
    assert_code(&all, ResultCode::ConstraintViolation);
    let each: Vec<_> = (0..500)
        .map(|_| (ChangeKind::Replace, "userPassword", &clear[..1]))
        .collect();
    let all = tell(&mut ann, &modify_request(102, ANN, &each));
    assert_code(&all, ResultCode::ConstraintViolation);
    // Few that would take long together.
    let slow = |number| {
        format!(
            "{{PBKDF2-SHA256}}1900000$c2FsdA$AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA{number}AA"
        )
    };
    let slow: Vec<String> = (10..13).map(slow).collect();
    let slow: Vec<&str> = slow.iter().map(String::as_str).collect();
    let three = change(&mut ann, ChangeKind::Replace, &slow);
    assert_code(&three, ResultCode::ConstraintViolation);
    assert!(
        three.diagnostic.contains("password_cost_ms_max"),
        "{}",
        three.diagnostic
    );
    assert_code(
        &change(&mut ann, ChangeKind::Delete, &digests[..1]),
        ResultCode::Success,
    );
    let mut client = server.connect();
    assert_code(&client.bind(ANN, b"secret"), ResultCode::Success);
}

/// One bind with them kept the hasher busy for half an hour, and the server could not be stopped.
#[test]
fn thousands_of_slow_passwords_that_are_there_already_hold_nobody_up() {
    let mut server = TestServer::with_any_passwords("[limits]\npassword_cost_ms_max = 300\n");
    let mut attributes = AttributesBuf::default();
    for (description, value) in &person("Ann", "")[..3] {
        attributes.push(description.as_bytes(), [value.as_bytes()]);
    }
    let values: Vec<String> = (10_000..30_000)
        .map(|number| format!("{{PBKDF2-SHA256}}200000$c2FsdA${number}{}", "A".repeat(38)))
        .collect();
    let parsed = sapwood_server::password::StoredPassword::parse(values[0].as_bytes());
    parsed.expect("a password may match it, so that it is tried");
    attributes.push(b"userPassword", values.iter().map(String::as_bytes));
    let op = Request::Add(AddRequest {
        dn: ANN,
        attributes: attributes.view(),
    });
    server.add_messages([message(1, op)]);
    let mut ann = server.connect();
    assert_code(&ann.bind(ANN, b"wrong"), ResultCode::InvalidCredentials);
    let waiting: Vec<_> = (0..20).map(|_| binding(&server, ANN)).collect();
    let mut admin = server.connect();
    assert_code(&admin.bind(ADMIN, PASSWORD), ResultCode::Success);
    server.stop();
    drop(waiting);
}

/// A connection that has asked to bind and has not looked for the answer.
fn binding(server: &TestServer, dn: &str) -> Client {
    let mut client = server.connect();
    let request = BindRequest {
        version: 3,
        name: dn,
        authentication: Authentication::Simple(b"wrong"),
    };
    client.send(&message(1, Request::Bind(request)));
    client
}

/// With 257 of them waiting, the administrator was told that the server was busy.
#[test]
fn a_flood_of_binds_makes_nobody_elses_busy() {
    let mut server = TestServer::start();
    let mut admin = server.admin();
    let ann = add_request(100, ANN, &person("Ann", "secret"));
    assert_code(&tell(&mut admin, &ann), ResultCode::Success);
    let nobody = format!("cn=nobody,{SUFFIX}");
    let flood: Vec<_> = (0..400)
        .map(|number| binding(&server, if number % 2 == 0 { ANN } else { &nobody }))
        .collect();
    let mut client = server.connect();
    assert_code(&client.bind(ADMIN, PASSWORD), ResultCode::Success);
    // What the others wait for is not waited for when they go, nor when the server stops.
    drop(flood);
    let more: Vec<_> = (0..100).map(|_| binding(&server, ANN)).collect();
    assert_code(&client.bind(ADMIN, PASSWORD), ResultCode::Success);
    server.stop();
    drop(more);
}

/// The password stood in the DN, in the file and in the log, in clear text.
#[test]
fn no_password_names_an_entry() {
    let server = TestServer::start();
    let mut admin = server.admin();
    let ann = add_request(100, ANN, &person("Ann", "secret"));
    assert_code(&tell(&mut admin, &ann), ResultCode::Success);
    for rdn in [
        "userPassword=clear",
        "cn=Ann+userPassword=clear",
        "2.5.4.35=clear",
    ] {
        let dn = format!("{rdn},{SUFFIX}");
        let attributes = [("objectClass", "person"), ("cn", "Ann"), ("sn", "x")];
        let added = tell(&mut admin, &add_request(101, &dn, &attributes));
        assert_code(&added, ResultCode::NamingViolation);
        assert!(
            added.diagnostic.contains("userPassword"),
            "{}",
            added.diagnostic
        );
        for delete_old_rdn in [true, false] {
            let renamed = admin.ask(Request::ModifyDn(ModifyDnRequest {
                dn: ANN,
                new_rdn: rdn,
                delete_old_rdn,
                new_superior: None,
            }));
            assert_code(&renamed, ResultCode::NamingViolation);
        }
    }
    assert_eq!(admin.search(SUFFIX, Scope::Subtree, "(cn=Ann)").len(), 2);
}
