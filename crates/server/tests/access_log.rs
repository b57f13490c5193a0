//! What the access log says, and what it must not.

#![allow(clippy::unwrap_used)]

use std::io::Write;
use std::sync::{Arc, Mutex};

use sapwood_ldap::controls::{PROXIED_AUTHORIZATION, TRANSACTION_SPECIFICATION};
use sapwood_ldap::extended::{START_TRANSACTION, WHO_AM_I};
use sapwood_ldap::filter::Assertion;
use sapwood_ldap::message::{CompareRequest, ModifyDnRequest, Request, Scope};
use sapwood_ldap::result::ResultCode;
use sapwood_testkit::{ADMIN, PASSWORD, SUFFIX, TestServer, requests};

#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// People type the password where the name belongs, and clients compare with userPassword: with the access log on, all
/// of that was in it.
#[test]
fn no_password_is_logged() {
    let lines = Lines::default();
    let writer = lines.clone();
    tracing_subscriber::fmt()
        .with_writer(move || writer.clone())
        .with_max_level(tracing::Level::TRACE)
        .with_ansi(false)
        .init();
    let mut server = TestServer::with("[log]\naccess = true\n");
    let mut client = server.admin();
    for name in [
        "hunter2",
        "userPassword=hunter2,dc=example,dc=com",
        "hunter=2",
    ] {
        client.search(name, Scope::Base, "(cn=here)");
        client.ask(Request::Delete(name));
        let value: &[u8] = b"x";
        let attribute: &[u8] = b"cn";
        let assertion = Assertion { attribute, value };
        client.ask(Request::Compare(CompareRequest {
            dn: name,
            assertion,
        }));
        client.ask(Request::ModifyDn(ModifyDnRequest {
            dn: SUFFIX,
            new_rdn: name,
            delete_old_rdn: true,
            new_superior: None,
        }));
        client.send(&requests::add(500, name, &[("objectClass", "device")]));
        client.receive().unwrap();
    }
    for filter in [
        "(userPassword=hunter2)",
        "(&(cn=here)(!(2.5.4.35;x-y>=hunter2)))",
        "(userPassword=h*hunter2*hunter2)",
        "(userPassword:octetStringMatch:=hunter2)",
        "(:octetStringMatch:=hunter2)",
        "(|(pass=hunter2)(userPassword~=hunter2)(userPassword<=hunter2))",
    ] {
        client.search(SUFFIX, Scope::Subtree, filter);
    }
    for attribute in ["userPassword", "hunter2", "userpassword;lang-en"] {
        let assertion = Assertion {
            attribute: attribute.as_bytes(),
            value: b"hunter2",
        };
        client.ask(Request::Compare(CompareRequest {
            dn: SUFFIX,
            assertion,
        }));
    }
    client.bind("hunter2", b"hunter2");
    client.bind("", b"hunter2");
    client.bind("uid=hunter2", b"");
    client.bind(ADMIN, PASSWORD);
    // Who acts as whom, and who may not.
    let person = [
        ("objectClass", "person"),
        ("sn", "x"),
        ("userPassword", "{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ="),
    ];
    let (app, start) = (format!("cn=app,{SUFFIX}"), START_TRANSACTION);
    let mut admin = server.admin();
    admin.tell(&requests::add(600, &app, &person)).succeeded();
    fn acts(authzid: &[u8]) -> (&'static str, bool, Option<&[u8]>) {
        (PROXIED_AUTHORIZATION, true, Some(authzid))
    }
    let as_app = format!("dn:{app}").into_bytes();
    let begin = requests::with(&requests::extended(601, start, None), &[acts(&as_app)]);
    let transaction = admin.tell(&begin).value.unwrap();
    let member = (TRANSACTION_SPECIFICATION, true, Some(&*transaction));
    let describe = requests::describe(602, &app, "x");
    admin
        .tell(&requests::with(&describe, &[member]))
        .succeeded();
    let mut user = server.connect();
    user.bind(&app, "secret").succeeded();
    let who = requests::extended(603, WHO_AM_I, None);
    let asked = acts(b"dn:cn=carl,o=there");
    user.tell(&requests::with(&who, &[asked]))
        .expect(ResultCode::AuthorizationDenied);
    server.stop();
    let logged = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
    for there in [
        "(no DN, 7 bytes)",
        "(cn=here)",
        "userPassword=<7 bytes>",
        ADMIN,
    ] {
        assert!(logged.contains(there), "{there} in {logged}");
    }
    for (id, words) in [(601, "acts as"), (602, "acts as"), (603, "may not act as")] {
        let has = |line: &&str| line.contains(&format!("id={id} ")) && line.contains(words);
        let line = logged.lines().find(has).unwrap_or_default();
        assert!(line.contains(&format!("={app}")), "{id}: {line}");
        let is_told = match id {
            603 => line.contains("asked=cn=carl,o=there"),
            _ => line.contains(&format!("real={ADMIN}")),
        };
        assert!(is_told, "{line}");
    }
    let is_name = |line: &str| line.contains("uid=hunter2");
    for line in logged.lines().filter(|line| !is_name(line)) {
        assert!(!line.contains("hunter"), "{line}");
    }
    assert!(!logged.contains("the admin's password"));
}
