//! What the access log says, and what it must not.

#![allow(clippy::unwrap_used)]

use std::io::Write;
use std::sync::{Arc, Mutex};

use sapwood_ldap::filter::Assertion;
use sapwood_ldap::message::{CompareRequest, ModifyDnRequest, Request, Scope};
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
    let is_name = |line: &str| line.contains("uid=hunter2");
    for line in logged.lines().filter(|line| !is_name(line)) {
        assert!(!line.contains("hunter"), "{line}");
    }
    assert!(!logged.contains("the admin's password"));
}
