//! The files of who did what: a line of JSON for each request, in the audit file and in that of the access log.

#![allow(clippy::unwrap_used)]

use std::path::Path;

use sapwood_ldap::controls::{
    Controls, PROXIED_AUTHORIZATION, SESSION_TRACKING, TRANSACTION_SPECIFICATION,
};
use sapwood_ldap::extended::*;
use sapwood_ldap::list::ChangeKind::{Add, Delete, Replace};
use sapwood_ldap::message::{ModifyRequest, Request, Scope};
use sapwood_ldap::result::ResultCode;
use sapwood_testkit::{ADMIN, Client, PASSWORD, SUFFIX, TestServer, requests};
use serde_json::Value;

const BOTH: &str = "[log]\naudit_file = 'audit.log'\naccess_file = 'access.log'\n";
const HASHED: &str = "{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ=";
/// What the hash is of.
const SECRET: &str = "secret";
const CODES: [ResultCode; 3] = [
    ResultCode::Success,
    ResultCode::InvalidCredentials,
    ResultCode::InsufficientAccessRights,
];

fn dn(name: &str) -> String {
    format!("cn={name},{SUFFIX}")
}

/// The lines of a file, each an object.
fn lines(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap();
    let lines = text.lines().map(|line| serde_json::from_str(line).unwrap());
    lines.collect()
}

/// Some members of a line, as text.
fn told(line: &Value, names: &[&str]) -> String {
    let members = names.iter().map(|name| match &line[*name] {
        Value::String(text) => text.clone(),
        Value::Null => "-".into(),
        other => other.to_string(),
    });
    members.collect::<Vec<_>>().join(" ")
}

fn person(client: &mut Client, name: &str) {
    let attributes = [
        ("objectClass", "person"),
        ("sn", "x"),
        ("userPassword", HASHED),
    ];
    let id = client.id();
    client
        .tell(&requests::add(id, &dn(name), &attributes))
        .succeeded();
}

#[test]
fn the_audit_file_says_who_did_what() {
    let mut server = TestServer::with(BOTH);
    let [success, wrong, insufficient] = CODES.map(ResultCode::code);
    let mut admin = server.admin();
    person(&mut admin, "ann");
    let changes = [
        (Add, "description", &["one"][..]),
        (Replace, "sn", &["y"]),
        (Replace, "sn", &["z"]),
        (Delete, "description", &[]),
    ];
    admin
        .tell(&requests::modify(50, &dn("ann"), &changes))
        .succeeded();
    let mut user = server.connect();
    user.bind(&dn("ann"), "wrong")
        .expect(ResultCode::InvalidCredentials);
    user.bind(&dn("ann"), SECRET).succeeded();
    user.tell(&requests::describe(51, &dn("ann"), "x"))
        .expect(ResultCode::InsufficientAccessRights);
    user.search(SUFFIX, Scope::Subtree, "(sn=z)");
    user.tell(&requests::compare(52, &dn("ann"), "sn", "z"));
    let new = password_modify(None, Some(SECRET.as_bytes()), Some(b"another secret"));
    user.extended(PASSWORD_MODIFY, Some(&new)).succeeded();
    // In somebody's name, for a session of the application.
    let tracking: &[u8] = b"\x30\x1b\x04\x0810.0.0.1\x04\x04wiki\x04\x031.2\x04\x04mona";
    let authzid = format!("dn:{}", dn("ann"));
    let list = [
        (PROXIED_AUTHORIZATION, true, Some(authzid.as_bytes())),
        (SESSION_TRACKING, false, Some(tracking)),
    ];
    let described = requests::describe(53, &dn("ann"), "x");
    admin
        .tell(&requests::with(&described, &list))
        .expect(ResultCode::InsufficientAccessRights);
    admin
        .ask(requests::rename(&dn("ann"), "cn=anna"))
        .succeeded();
    let begun = admin.extended(START_TRANSACTION, None);
    let transaction = begun.value.clone().unwrap();
    let member = (TRANSACTION_SPECIFICATION, true, Some(&*transaction));
    let deleted = requests::message(54, Request::Delete(&dn("anna")));
    admin.tell(&requests::with(&deleted, &[member])).succeeded();
    let end = EndTransaction {
        commit: true,
        identifier: &transaction,
    };
    let mut value = Vec::new();
    end.encode(&mut value);
    admin.extended(END_TRANSACTION, Some(&value)).succeeded();
    drop((admin, user));
    server.stop();

    let audit = lines(&server.path("audit.log"));
    let names = ["operation", "target", "bound", "acting", "result"];
    let ann = dn("ann");
    let number = format!("{success}");
    let hexadecimal: String = transaction
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    let expected = [
        format!("bind {ADMIN} {ADMIN} - {number}"),
        format!("add {ann} {ADMIN} - {number}"),
        format!("modify {ann} {ADMIN} - {number}"),
        format!("bind {ann}  - {wrong}"),
        format!("bind {ann} {ann} - {number}"),
        format!("modify {ann} {ann} - {insufficient}"),
        format!("extended - {ann} - {number}"),
        format!("modify {ann} {ADMIN} {ann} {insufficient}"),
        format!("modify DN {ann} {ADMIN} - {number}"),
        format!("extended - {ADMIN} - {number}"),
        format!("delete {} {ADMIN} - {number}", dn("anna")),
        format!("extended - {ADMIN} - {number}"),
    ];
    let told_of: Vec<String> = audit.iter().map(|line| told(line, &names)).collect();
    assert_eq!(told_of, expected);
    let changed = |at: usize| audit[at]["changes"].to_string();
    let added = r#"[{"add":"objectClass"},{"add":"sn"},{"add":"userPassword"}]"#;
    assert_eq!(changed(1), added);
    let modified = r#"[{"add":"description"},{"replace":"sn"},{"delete":"description"}]"#;
    assert_eq!(changed(2), modified);
    assert_eq!(audit[8]["new_rdn"], "cn=anna");
    for (at, name) in [
        (6, PASSWORD_MODIFY),
        (9, START_TRANSACTION),
        (11, END_TRANSACTION),
    ] {
        assert_eq!(audit[at]["name"], name);
    }
    for at in [10, 11] {
        assert_eq!(audit[at]["transaction"], hexadecimal);
    }
    let session = &audit[7]["session"];
    let of_session = told(session, &["address", "name", "format", "identifier"]);
    assert_eq!(of_session, "10.0.0.1 wiki 1.2 mona");
    for line in &audit {
        assert!(line["time"].as_str().unwrap().ends_with('Z'), "{line}");
        assert!(
            line["address"].as_str().unwrap().starts_with("127.0.0.1:"),
            "{line}"
        );
        assert!(
            line["microseconds"].is_u64() && line["connection"].is_u64(),
            "{line}"
        );
    }
    assert_eq!(audit[2]["message"], 50);

    // The other file has these lines, and more.
    let access = lines(&server.path("access.log"));
    assert!(audit.iter().all(|line| access.contains(line)));
    let of = |operation: &str| {
        let found = access.iter().filter(|line| line["operation"] == operation);
        found.collect::<Vec<_>>()
    };
    let searched = told(
        of("search")[0],
        &["target", "scope", "filter", "entries", "bound", "result"],
    );
    assert_eq!(searched, format!("{SUFFIX} sub (sn=z) 1 {ann} {number}"));
    let compared = told(of("compare")[0], &["target", "attribute", "result"]);
    assert_eq!(
        compared,
        format!("{ann} sn {}", ResultCode::CompareTrue.code())
    );
    assert_eq!(of("connect").len(), 2);
    assert_eq!(of("disconnect").len(), 2);
}

fn password_modify(identity: Option<&[u8]>, old: Option<&[u8]>, new: Option<&[u8]>) -> Vec<u8> {
    let request = PasswordModify {
        user_identity: identity,
        old_password: old,
        new_password: new,
    };
    let mut value = Vec::new();
    request.encode(&mut value);
    value
}

/// Each operation of a bulk update has a line of its own, whether it succeeds or not.
#[test]
fn operations_of_bulk_updates_are_recorded_one_by_one() {
    let mut server = TestServer::with("[log]\naudit_file = 'audit.log'\n");
    let mut admin = server.admin();
    let mut start = Vec::new();
    let style = StartLburp {
        update_style: LBURP_INCREMENTAL,
    };
    style.encode(&mut start);
    admin.extended(START_LBURP, Some(&start)).succeeded();
    let mut operations = UpdateOperationsBuf::default();
    let attributes =
        requests::attributes(&[("objectClass", "device"), ("userPassword", "hunter2")]);
    let device = |dn| {
        Request::Add(sapwood_ldap::message::AddRequest {
            dn,
            attributes: attributes.view(),
        })
    };
    let (there, nowhere) = (dn("there"), dn("here,cn=nowhere"));
    operations.push(&Request::Delete(&dn("nobody")), Controls::EMPTY);
    operations.push(&device(&there), Controls::EMPTY);
    let described = requests::described("x");
    let changes = described.view();
    let modify = Request::Modify(ModifyRequest {
        dn: SUFFIX,
        changes,
    });
    operations.push(&modify, Controls::EMPTY);
    operations.push(&Request::Delete(&nowhere), Controls::EMPTY);
    let mut update = Vec::new();
    LburpUpdate {
        sequence_number: 1,
        operations: operations.view(),
    }
    .encode(&mut update);
    admin
        .extended(LBURP_UPDATE, Some(&update))
        .expect(ResultCode::UnknownError);
    drop(admin);
    server.stop();
    let audit = lines(&server.path("audit.log"));
    let of_update = audit.iter().filter(|line| line["part"].is_u64());
    let mut told_of: Vec<String> = of_update
        .map(|line| told(line, &["part", "operation", "target", "result"]))
        .collect();
    told_of.sort();
    let (success, none) = (ResultCode::Success.code(), ResultCode::NoSuchObject.code());
    let class = ResultCode::ObjectClassViolation.code();
    let expected = [
        format!("1 delete {} {none}", dn("nobody")),
        format!("2 add {there} {class}"),
        format!("3 modify {SUFFIX} {success}"),
        format!("4 delete {nowhere} {none}"),
    ];
    assert_eq!(told_of, expected);
}

/// Wherever clients put passwords, and with the values of changes asked for: none is in the files.
#[test]
fn no_password_is_in_the_files() {
    let config = format!("{BOTH}audit_values = true\n");
    let mut server = TestServer::with(&config);
    let mut admin = server.admin();
    person(&mut admin, "ann");
    for name in [
        "hunter2",
        "userPassword=hunter2,dc=example,dc=com",
        "2.5.4.35=hunter2",
    ] {
        admin.search(name, Scope::Base, "(cn=here)");
        admin.ask(Request::Delete(name));
        admin.tell(&requests::compare(60, name, "cn", "x"));
        admin.ask(requests::rename(SUFFIX, name));
        admin.tell(&requests::add(61, name, &[("objectClass", "device")]));
        admin.tell(&requests::describe(62, name, "x"));
        let value = password_modify(Some(name.as_bytes()), None, Some(b"hunter2"));
        admin.extended(PASSWORD_MODIFY, Some(&value));
    }
    for attribute in [
        "userPassword",
        "userPassword;lang-en",
        "2.5.4.35",
        "authPassword",
        "hunter2",
    ] {
        admin.tell(&requests::compare(63, &dn("ann"), attribute, "hunter2"));
        let named = attribute.replace("hunter2", "unknown");
        admin.search(SUFFIX, Scope::Subtree, &format!("({named}=*hunter2*)"));
        for kind in [Delete, Add, Replace] {
            let changes = [
                (kind, attribute, &["hunter2"][..]),
                (Replace, "sn", &["shown"]),
            ];
            admin.tell(&requests::modify(64, &dn("ann"), &changes));
        }
        let attributes = [
            ("objectClass", "person"),
            ("sn", "x"),
            (attribute, "hunter2"),
        ];
        admin.tell(&requests::add(65, &dn("bert"), &attributes));
    }
    let value = password_modify(
        Some(dn("ann").as_bytes()),
        Some(b"hunter2"),
        Some(b"a hunter2"),
    );
    admin.extended(PASSWORD_MODIFY, Some(&value));
    let mut user = server.connect();
    for (name, password) in [
        (dn("ann").as_str(), "hunter2"),
        ("hunter2", "hunter2"),
        ("", "hunter2"),
        (ADMIN, "hunter2"),
        (ADMIN, PASSWORD),
    ] {
        user.bind(name, password);
    }
    drop((admin, user));
    server.stop();
    for file in ["audit.log", "access.log"] {
        let text = std::fs::read_to_string(server.path(file)).unwrap();
        for password in ["hunter2", "aHVudGVyMg", PASSWORD, HASHED, "another secret"] {
            let line = text.lines().find(|line| line.contains(password));
            assert_eq!(line, None, "{file} has {password}");
        }
        assert!(
            text.contains(r#"{"replace":"sn","values":["shown"]}"#),
            "{text}"
        );
        assert!(text.lines().count() > 30, "{text}");
        lines(&server.path(file));
    }
}

/// What has taken place is recorded as such, whether its client waits for the answer or not.
#[test]
fn updates_of_clients_that_have_gone_are_recorded() {
    let mut server = TestServer::with("[log]\naudit_file = 'audit.log'\n");
    let mut admin = server.admin();
    for number in 0..50 {
        let device = [("objectClass", "device")];
        admin.send(&requests::add(
            100 + number,
            &dn(&format!("d{number}")),
            &device,
        ));
    }
    drop(admin);
    server.stop();
    let snapshot = server.directory.snapshot().unwrap();
    let is_there = |line: &Value| {
        let target = line["target"].as_str().unwrap();
        let found = snapshot.through(|snapshot| snapshot.credentials(target, 0));
        found.unwrap().is_some()
    };
    let audit = lines(&server.path("audit.log"));
    for line in audit.iter().filter(|line| line["operation"] == "add") {
        assert_eq!(line["result"] == 0, is_there(line), "{line}");
    }
}

/// Without a file there are no records, and nothing is made for them.
#[test]
fn without_files_nothing_is_written() {
    let mut server = TestServer::start();
    server
        .admin()
        .search(SUFFIX, Scope::Base, "(objectClass=*)");
    server.stop();
    let names = std::fs::read_dir(server.folder.path()).unwrap();
    let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    assert_eq!(names.filter(|name| name.ends_with(".log")).count(), 0);
}
