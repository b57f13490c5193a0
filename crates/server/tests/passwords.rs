//! Which passwords are stored, which let somebody bind, and what a flood of binds does to others.

#![allow(clippy::unwrap_used)]

use std::io::Write;
use std::net::TcpStream;

use sapwood_ldap::controls::{Controls, TRANSACTION_SPECIFICATION};
use sapwood_ldap::extended::*;
use sapwood_ldap::list::ChangeKind;
use sapwood_ldap::message::*;
use sapwood_ldap::result::ResultCode;
use sapwood_testkit::requests::message;
use sapwood_testkit::{ADMIN, Answer, Client, PASSWORD, SUFFIX, TestServer, requests};

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

#[test]
fn passwords_that_others_have_stored_let_their_owners_bind() {
    let server = TestServer::start();
    let mut admin = server.admin();
    let mut client = server.connect();
    for (number, stored) in KNOWN.iter().enumerate() {
        let name = format!("p{number}");
        let dn = format!("cn={name},{SUFFIX}");
        admin
            .tell(&requests::add(100, &dn, &person(&name, stored)))
            .succeeded();
        client.bind(&dn, b"secret").succeeded();
        // The stored form is no password.
        let literal = client.bind(&dn, stored.as_bytes());
        literal.expect(ResultCode::InvalidCredentials);
    }
}

#[test]
fn a_bind_stores_its_password_anew_where_that_is_asked_for() {
    let server = TestServer::start();
    let mut admin = server.admin();
    let verifier = ("authPassword", "MD5$c2FsdA==$aGFzaA==");
    let people: Vec<_> = (0..)
        .zip(KNOWN)
        .map(|(number, stored)| (format!("p{number}"), stored))
        .collect();
    for (name, stored) in &people {
        let dn = format!("cn={name},{SUFFIX}");
        let person = [&person(name, stored)[..], &[verifier]].concat();
        admin.tell(&requests::add(100, &dn, &person)).succeeded();
    }
    let mut stored = |name: &str| {
        let dn = format!("cn={name},{SUFFIX}");
        let found = admin.search(&dn, Scope::Base, "(objectClass=*)");
        assert_eq!(found[0].values("authPassword"), [verifier.1]);
        found[0].values("userPassword").concat()
    };
    let mut client = server.connect();
    for is_asked_for in [false, true] {
        if is_asked_for {
            server.configure(&[(ChangeKind::Replace, "sapwoodPasswordUpgrade", &["TRUE"])]);
        }
        for (name, before) in &people {
            let dn = format!("cn={name},{SUFFIX}");
            client
                .bind(&dn, b"wrong")
                .expect(ResultCode::InvalidCredentials);
            assert_eq!(stored(name), *before);
            client.bind(&dn, b"secret").succeeded();
            match is_asked_for {
                false => assert_eq!(stored(name), *before),
                true => assert!(stored(name).starts_with("{ARGON2}$argon2id$")),
            }
        }
    }
    // It is the same password, and stays in this form.
    for (name, _) in &people {
        let before = stored(name);
        client
            .bind(&format!("cn={name},{SUFFIX}"), b"secret")
            .succeeded();
        assert_eq!(stored(name), before);
    }
}

/// They were stored in silence; those with a scheme that is not known were hashed, so that the literal old hash let
/// somebody bind.
#[test]
fn values_that_no_password_can_match_are_refused_wherever_they_come() {
    let server = TestServer::start();
    let mut admin = server.admin();
    let ann = requests::add(100, ANN, &person("Ann", "secret"));
    admin.tell(&ann).succeeded();
    for (value, named) in REFUSED {
        let check = |answer: &Answer| {
            answer.refused(ResultCode::ConstraintViolation, named);
        };
        let ben = format!("cn=Ben,{SUFFIX}");
        check(&admin.tell(&requests::add(101, &ben, &person("Ben", value))));
        for kind in [ChangeKind::Add, ChangeKind::Replace] {
            // Alone, and beside one that is to be hashed.
            for values in [&[value][..], &["another", value]] {
                let changed = [(kind, "userPassword", values)];
                check(&admin.tell(&requests::modify(102, ANN, &changed)));
            }
        }
        let mut request = Vec::new();
        let modify = PasswordModify {
            user_identity: Some(ANN.as_bytes()),
            old_password: None,
            new_password: Some(value.as_bytes()),
        };
        modify.encode(&mut request);
        admin
            .extended(PASSWORD_MODIFY, Some(&request))
            .expect(ResultCode::ConstraintViolation);
        check(&in_a_transaction(&mut admin, value));
        check(&in_bulk(&mut admin, value));
    }
    let mut client = server.connect();
    client.bind(ANN, b"secret").succeeded();
}

/// The result of the end of a transaction that adds somebody with this password.
fn in_a_transaction(client: &mut Client, password: &str) -> Answer {
    let identifier = client.extended(START_TRANSACTION, None).value.unwrap();
    let dn = format!("cn=Cid,{SUFFIX}");
    let add = requests::add(200, &dn, &person("Cid", password));
    let member = (TRANSACTION_SPECIFICATION, true, Some(identifier.as_slice()));
    let added = client.tell(&requests::with(&add, &[member]));
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
    client.extended(START_LBURP, Some(&value)).succeeded();
    let attributes = requests::attributes(&person("Dan", password));
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
    client.extended(END_LBURP, Some(&value)).succeeded();
    answer
}

#[test]
fn the_passwords_of_one_entry_are_bounded() {
    let server = TestServer::start();
    let mut admin = server.admin();
    let ann = requests::add(100, ANN, &person("Ann", "secret"));
    admin.tell(&ann).succeeded();
    let mut ann = server.connect();
    ann.bind(ANN, b"secret").succeeded();
    let change = |client: &mut Client, kind, values: &[&str]| {
        client.tell(&requests::modify(
            101,
            ANN,
            &[(kind, "userPassword", values)],
        ))
    };
    // Digests one after the other, of which an entry has eight at most.
    let digest = |letter| format!("{{SSHA}}uHVurLPaTVPboZtsce8c8nZ6/jvI{letter}A==");
    let digests: Vec<String> = ('A'..='T').map(digest).collect();
    let digests: Vec<&str> = digests.iter().map(String::as_str).collect();
    for digest in &digests[..7] {
        change(&mut ann, ChangeKind::Add, &[digest]).succeeded();
    }
    change(&mut ann, ChangeKind::Add, &digests[7..8])
        .refused(ResultCode::ConstraintViolation, "password_values_max");
    // All at once, in stored form and in clear text, which nobody begins to hash.
    change(&mut ann, ChangeKind::Replace, &digests).expect(ResultCode::ConstraintViolation);
    let clear: Vec<String> = (0..20_000)
        .map(|number| format!("clear {number}"))
        .collect();
    let clear: Vec<&str> = clear.iter().map(String::as_str).collect();
    change(&mut ann, ChangeKind::Replace, &clear).expect(ResultCode::ConstraintViolation);
    let each: Vec<_> = (0..500)
        .map(|_| (ChangeKind::Replace, "userPassword", &clear[..1]))
        .collect();
    ann.tell(&requests::modify(102, ANN, &each))
        .expect(ResultCode::ConstraintViolation);
    // Few that would take long together.
    let slow = |number| {
        format!(
            "{{PBKDF2-SHA256}}1900000$c2FsdA$AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA{number}AA"
        )
    };
    let slow: Vec<String> = (10..13).map(slow).collect();
    let slow: Vec<&str> = slow.iter().map(String::as_str).collect();
    change(&mut ann, ChangeKind::Replace, &slow)
        .refused(ResultCode::ConstraintViolation, "password_cost_ms_max");
    change(&mut ann, ChangeKind::Delete, &digests[..1]).succeeded();
    let mut client = server.connect();
    client.bind(ANN, b"secret").succeeded();
}

/// One bind with them kept the hasher busy for half an hour, and the server could not be stopped.
#[test]
fn thousands_of_slow_passwords_that_are_there_already_hold_nobody_up() {
    let mut server = TestServer::with_any_passwords("[limits]\npassword_cost_ms_max = 300\n");
    let mut attributes = requests::attributes(&person("Ann", "")[..3]);
    let values: Vec<String> = (10_000..30_000)
        .map(|number| format!("{{PBKDF2-SHA256}}200000$c2FsdA${number}{}", "A".repeat(38)))
        .collect();
    sapwood_server::password::StoredPassword::parse(values[0].as_bytes())
        .expect("a password may match it, so that it is tried");
    attributes.push(b"userPassword", values.iter().map(String::as_bytes));
    let op = Request::Add(AddRequest {
        dn: ANN,
        attributes: attributes.view(),
    });
    server.add_messages([message(1, op)]);
    let mut ann = server.connect();
    ann.bind(ANN, b"wrong")
        .expect(ResultCode::InvalidCredentials);
    let waiting: Vec<_> = (0..20).map(|_| binding(&server, ANN)).collect();
    let mut admin = server.connect();
    admin.bind(ADMIN, PASSWORD).succeeded();
    server.stop();
    drop(waiting);
}

/// A connection that has asked to bind and has not looked for the answer.
fn binding(server: &TestServer, dn: &str) -> TcpStream {
    binding_from([127, 0, 0, 1], server, (dn, "wrong"))
}

fn binding_from(address: [u8; 4], server: &TestServer, (dn, password): (&str, &str)) -> TcpStream {
    let mut stream = server.tcp_from(address, 0);
    let bind = requests::bind(1, dn, password);
    stream.write_all(&bind).unwrap();
    stream
}

/// With 257 of them waiting, the administrator was told that the server was busy.
#[test]
fn a_flood_of_binds_makes_nobody_elses_busy() {
    let mut server = TestServer::start();
    let mut admin = server.admin();
    let ann = requests::add(100, ANN, &person("Ann", "secret"));
    admin.tell(&ann).succeeded();
    let nobody = format!("cn=nobody,{SUFFIX}");
    let mut client = server.connect();
    let mut flood = Vec::new();
    // From elsewhere, and from the same machine.
    for address in [[127, 0, 0, 2], [127, 0, 0, 1]] {
        // Those with the right password are answered as soon as it is checked.
        let binds = [(ANN, "secret"), (&*nobody, "wrong")];
        let binds = binds.into_iter().cycle().take(400);
        flood = binds
            .map(|bind| binding_from(address, &server, bind))
            .collect::<Vec<_>>();
        client.bind(ADMIN, PASSWORD).succeeded();
        let is_answered = |stream: &&TcpStream| {
            stream.set_nonblocking(true).unwrap();
            stream.peek(&mut [0]).is_ok()
        };
        let before = flood.iter().filter(is_answered).count();
        assert!(before < 100, "{before} of the 200 that came before it");
    }
    // What the others wait for is not waited for when they go, nor when the server stops.
    drop(flood);
    let more: Vec<_> = (0..100).map(|_| binding(&server, ANN)).collect();
    client.bind(ADMIN, PASSWORD).succeeded();
    server.stop();
    drop(more);
}

/// The password stood in the DN, in the file and in the log, in clear text.
#[test]
fn no_password_names_an_entry() {
    let server = TestServer::start();
    let mut admin = server.admin();
    let ann = requests::add(100, ANN, &person("Ann", "secret"));
    admin.tell(&ann).succeeded();
    for rdn in [
        "userPassword=clear",
        "cn=Ann+userPassword=clear",
        "2.5.4.35=clear",
    ] {
        let dn = format!("{rdn},{SUFFIX}");
        let attributes = [("objectClass", "person"), ("cn", "Ann"), ("sn", "x")];
        admin
            .tell(&requests::add(101, &dn, &attributes))
            .refused(ResultCode::NamingViolation, "userPassword");
        for delete_old_rdn in [true, false] {
            admin
                .ask(Request::ModifyDn(ModifyDnRequest {
                    dn: ANN,
                    new_rdn: rdn,
                    delete_old_rdn,
                    new_superior: None,
                }))
                .expect(ResultCode::NamingViolation);
        }
    }
    assert_eq!(admin.search(SUFFIX, Scope::Subtree, "(cn=Ann)").len(), 2);
}
