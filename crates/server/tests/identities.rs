//! Who a connection is while its entry is deleted or renamed, and what it is told it may do.

#![allow(clippy::unwrap_used)]

use sapwood_ldap::extended::{NOTICE_OF_DISCONNECTION, START_TLS};
use sapwood_ldap::list::ChangeKind;
use sapwood_ldap::message::{Request, Scope};
use sapwood_ldap::result::ResultCode;
use sapwood_server::password;
use sapwood_testkit::requests::message;
use sapwood_testkit::{ADMIN, Answer, Client, PASSWORD, SUFFIX, TestServer, requests};

fn anne() -> String {
    format!("cn=anne,{SUFFIX}")
}

/// Adds a person with the password of these tests.
fn add(server: &TestServer, dn: &str) {
    let stored = String::from_utf8(password::hash(PASSWORD.as_bytes())).unwrap();
    let person = [
        ("objectClass", "person"),
        ("sn", "x"),
        ("userPassword", stored.as_str()),
    ];
    server.add(&[(dn, &person)]);
}

fn bound(server: &TestServer) -> Client {
    let mut client = server.connect();
    client.bind(&anne(), PASSWORD).succeeded();
    client
}

fn is_told_to_go(answer: &Answer) -> bool {
    answer.id == 0 && answer.code == ResultCode::StrongerAuthRequired
}

#[test]
fn the_connection_of_a_deleted_user_ends() {
    let server = TestServer::start();
    add(&server, &anne());
    server.add_people(10, 10);
    let mut admin = server.admin();
    let mut user = bound(&server);
    let all = user.search(SUFFIX, Scope::Subtree, "(objectClass=*)").len();
    assert!(all > 10);
    // The entry of another one is none of its business.
    let other = format!("cn=other,{SUFFIX}");
    add(&server, &other);
    admin.ask(Request::Delete(&other)).succeeded();
    assert_eq!(
        user.search(SUFFIX, Scope::Subtree, "(objectClass=*)").len(),
        all
    );
    // Once the delete is answered, nothing more is read: a burst is not begun either.
    admin.ask(Request::Delete(&anne())).succeeded();
    let burst: Vec<u8> = (100..110)
        .flat_map(|id| requests::search(id, SUFFIX, Scope::Subtree, "(objectClass=*)"))
        .collect();
    user.send(&burst);
    let answer = user.receive().unwrap();
    assert!(is_told_to_go(&answer), "{answer:?}");
    assert_eq!(answer.name.as_deref(), Some(NOTICE_OF_DISCONNECTION));
    assert!(user.receive().is_none(), "nothing is answered after it");
    // Another entry of the same name is another one.
    add(&server, &anne());
    let mut user = bound(&server);
    assert_eq!(
        user.search(SUFFIX, Scope::Subtree, "(objectClass=*)").len(),
        all
    );
}

/// An entry that was there again before the connection said anything.
#[test]
fn an_entry_of_the_same_name_is_not_the_user() {
    let server = TestServer::start();
    add(&server, &anne());
    let mut user = bound(&server);
    let mut admin = server.admin();
    admin.ask(Request::Delete(&anne())).succeeded();
    add(&server, &anne());
    user.send(&requests::search(
        100,
        SUFFIX,
        Scope::Base,
        "(objectClass=*)",
    ));
    assert!(is_told_to_go(&user.receive().unwrap()));
}

#[test]
fn a_search_under_way_ends_with_its_user() {
    let server = TestServer::start();
    add(&server, &anne());
    server.add_people(4000, 4000);
    let mut user = bound(&server);
    user.send(&requests::search(
        77,
        SUFFIX,
        Scope::Subtree,
        "(objectClass=*)",
    ));
    assert_eq!(user.receive().unwrap().id, 77);
    let mut admin = server.admin();
    admin.ask(Request::Delete(&anne())).succeeded();
    let mut entries = 0;
    loop {
        let answer = user.receive().unwrap();
        if is_told_to_go(&answer) {
            break;
        }
        assert!(answer.id == 77 && !answer.ends);
        entries += 1;
    }
    assert!(entries < 4000, "the search went on to its end");
}

#[test]
fn a_renamed_user_stays_and_is_told_the_new_name() {
    let server = TestServer::start();
    add(&server, &anne());
    let mut user = bound(&server);
    assert_eq!(user.who_am_i(), format!("dn:{}", anne()));
    let mut admin = server.admin();
    admin.ask(requests::rename(&anne(), "cn=Anna")).succeeded();
    let anna = format!("cn=Anna,{SUFFIX}");
    assert_eq!(user.who_am_i(), format!("dn:{anna}"));
    // What it changes is changed by the name it has.
    let change = (ChangeKind::Replace, "userPassword", ["another"].as_slice());
    user.tell(&requests::modify(99, &anna, &[change]))
        .succeeded();
    let filter = format!("(modifiersName={anna})");
    assert_eq!(
        admin.search(&anna, Scope::Base, &filter).len(),
        2,
        "the entry and the end"
    );
    assert_eq!(admin.who_am_i(), format!("dn:{ADMIN}"));
}

/// What the root DSE has of an attribute on this connection.
fn told(client: &mut Client, attribute: &str) -> Vec<String> {
    client.root_dse().values(attribute)
}

#[test]
fn a_connection_is_told_of_what_works_on_it() {
    let server = TestServer::start();
    let (mut plain, mut tls, mut local) = (
        server.connect(),
        server.connect_tls(),
        server.connect_local(),
    );
    for (client, mechanisms, start_tls) in [
        (&mut plain, &["SCRAM-SHA-256", "SCRAM-SHA-512"][..], true),
        (
            &mut tls,
            &[
                "PLAIN",
                "SCRAM-SHA-256",
                "SCRAM-SHA-256-PLUS",
                "SCRAM-SHA-512",
                "SCRAM-SHA-512-PLUS",
            ],
            true,
        ),
        (
            &mut local,
            &["EXTERNAL", "SCRAM-SHA-256", "SCRAM-SHA-512"],
            false,
        ),
    ] {
        assert_eq!(told(client, "supportedSASLMechanisms"), mechanisms);
        let extensions = told(client, "supportedExtension");
        assert_eq!(extensions.iter().any(|oid| oid == START_TLS), start_tls);
        assert!(
            extensions
                .iter()
                .any(|oid| oid == sapwood_ldap::extended::WHO_AM_I)
        );
        assert_eq!(told(client, "defaultNamingContext"), [SUFFIX]);
        assert_eq!(told(client, "vendorName"), ["Sapwood"]);
        assert_eq!(told(client, "vendorVersion"), ["test"]);
        // Language ranges (RFC 3866 §3).
        let features = told(client, "supportedFeatures");
        assert!(features.iter().any(|oid| oid == "1.3.6.1.4.1.4203.1.5.5"));
    }
}

#[test]
fn an_echo_of_a_long_name_is_bounded() {
    let server = TestServer::start();
    let mut admin = server.admin();
    let long = format!("cn={},{SUFFIX}", "x".repeat(1 << 20));
    let answer = admin.ask(Request::Delete(&long));
    answer.expect(ResultCode::InvalidDnSyntax);
    assert!(answer.diagnostic.len() <= 1024 && answer.diagnostic.ends_with("..."));
    admin.send(&message(99, Request::Delete(&long[..60_000])));
    let answer = admin.receive().unwrap();
    assert!(
        answer.diagnostic.len() <= 1024,
        "{}",
        answer.diagnostic.len()
    );
}
