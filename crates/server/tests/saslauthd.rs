//! Passwords that another program knows: values `{SASL}user`, and a saslauthd that is asked about them.

#![allow(clippy::unwrap_used)]

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::mpsc::{Receiver, channel};
use std::thread;

use sapwood_ldap::list::ChangeKind::Replace;
use sapwood_ldap::result::ResultCode;
use sapwood_testkit::{Client, SUFFIX, TestServer, requests};

const ANN: &str = "cn=ann,dc=example,dc=com";
const BEN: &str = "cn=ben,dc=example,dc=com";

/// The texts of a question.
fn question(stream: &mut UnixStream) -> Vec<String> {
    let texts = (0..4).map(|_| {
        let mut length = [0; 2];
        stream.read_exact(&mut length).unwrap();
        let mut text = vec![0; u16::from_be_bytes(length).into()];
        stream.read_exact(&mut text).unwrap();
        String::from_utf8(text).unwrap()
    });
    texts.collect()
}

/// A saslauthd that knows one password, and tells what it was asked.
fn saslauthd(socket: &Path) -> Receiver<Vec<String>> {
    let listener = UnixListener::bind(socket).unwrap();
    let (asked, questions) = channel();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let question = question(&mut stream);
            let answer: &[u8] = match question[1] == "secret" {
                true => b"\0\x02OK",
                false => b"\0\x02NO",
            };
            stream.write_all(answer).unwrap();
            if asked.send(question).is_err() {
                return;
            }
        }
    });
    questions
}

fn person(client: &mut Client, dn: &str, password: &str) -> ResultCode {
    let attributes = [
        ("objectClass", "person"),
        ("sn", "x"),
        ("userPassword", password),
    ];
    let id = client.id();
    client.tell(&requests::add(id, dn, &attributes)).code
}

#[test]
fn who_has_a_password_elsewhere_binds_with_it() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("mux");
    let questions = saslauthd(&socket);
    let server = TestServer::with(&format!("[passwords]\nsaslauthd = '{}'", socket.display()));
    // What is stored stays, though other forms are replaced.
    server.configure(&[(Replace, "sapwoodPasswordUpgrade", &["TRUE"])]);
    let mut admin = server.admin();
    let stored = "{SASL}ann@EXAMPLE.COM";
    assert_eq!(person(&mut admin, ANN, stored), ResultCode::Success);
    assert_eq!(person(&mut admin, BEN, "secret"), ResultCode::Success);
    let mut client = server.connect();
    for _ in 0..2 {
        client.bind(ANN, "secret").succeeded();
        assert_eq!(client.who_am_i(), format!("dn:{ANN}"));
        let asked = questions.recv().unwrap();
        assert_eq!(asked, ["ann", "secret", "ldap", "EXAMPLE.COM"]);
    }
    client
        .bind(ANN, "wrong")
        .expect(ResultCode::InvalidCredentials);
    assert_eq!(questions.recv().unwrap()[1], "wrong");
    // Nobody else's password is told to it.
    client.bind(BEN, "secret").succeeded();
    assert!(questions.try_recv().is_err());
    let mut other = vec![String::from("{SASL}")];
    other.push(format!("{{SASL}}{}", "x".repeat(2000)));
    for wrong in other {
        let dn = format!("cn=carl,{SUFFIX}");
        assert_eq!(
            person(&mut admin, &dn, &wrong),
            ResultCode::ConstraintViolation
        );
    }
}

#[test]
fn without_an_answer_nobody_is_bound_and_nothing_counts() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("mux");
    let server = TestServer::with(&format!("[passwords]\nsaslauthd = '{}'", socket.display()));
    let mut admin = server.admin();
    assert_eq!(person(&mut admin, ANN, "{SASL}ann"), ResultCode::Success);
    let mut client = server.connect();
    client.bind(ANN, "secret").expect(ResultCode::Unavailable);
    assert_eq!(client.who_am_i(), "");
    let questions = saslauthd(&socket);
    client.bind(ANN, "secret").succeeded();
    assert_eq!(questions.recv().unwrap(), ["ann", "secret", "ldap", ""]);
}
