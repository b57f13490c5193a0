//! Requirements of RFC 4511 to 4513 that no other test is about. `docs/protocol.md` lists all of them with their tests.

#![allow(clippy::unwrap_used)]

use std::collections::HashSet;
use std::io::{Read, Write};

use sapwood_ldap::extended::WHO_AM_I;
use sapwood_ldap::filter::Filter;
use sapwood_ldap::list::{ChangeKind, OctetStringsBuf};
use sapwood_ldap::message::{
    AddRequest, Authentication, BindRequest, Request, Scope, SearchRequest,
};
use sapwood_ldap::result::ResultCode;
use sapwood_testkit::{Client, SUFFIX, TestServer, requests};

const ANN: &str = "cn=ann,dc=example,dc=com";
const ALIAS: &str = "ou=alias,dc=example,dc=com";

/// An add of an entry with several classes.
fn add(id: u32, dn: &str, classes: &[&str], attributes: &[(&str, &str)]) -> Vec<u8> {
    let mut list = requests::attributes(attributes);
    list.push(b"objectClass", classes.iter().map(|class| class.as_bytes()));
    let attributes = list.view();
    requests::message(id, Request::Add(AddRequest { dn, attributes }))
}

/// Adds an entry that another server has.
fn refer(server: &TestServer, dn: &str) {
    let classes = ["referral", "extensibleObject"];
    server.add_messages([add(1, dn, &classes, &[("ref", "ldap://localhost/")])]);
}

/// A server with Ann and an alias of hers.
fn with_alias() -> TestServer {
    let server = TestServer::with_any_passwords("");
    let ann = [
        ("objectClass", "person"),
        ("sn", "x"),
        ("userPassword", "secret"),
        ("description", "a person"),
    ];
    server.add(&[(ANN, &ann)]);
    let alias = [("aliasedObjectName", ANN), ("description", "an alias")];
    let classes = ["alias", "extensibleObject"];
    server.add_messages([add(1, ALIAS, &classes, &alias)]);
    server
}

fn sasl(client: &mut Client, name: &str, mechanism: &str) -> ResultCode {
    let authentication = Authentication::Sasl {
        mechanism,
        credentials: None,
    };
    let bind = BindRequest {
        version: 3,
        name,
        authentication,
    };
    client.ask(Request::Bind(bind)).code
}

/// Only searches follow aliases (RFC 4511 §4.2, §4.6 to §4.10).
#[test]
fn binds_compares_and_updates_follow_no_alias() {
    let server = with_alias();
    let mut client = server.connect();
    client.bind(ANN, b"secret").succeeded();
    client
        .bind(ALIAS, b"secret")
        .expect(ResultCode::InvalidCredentials);
    let mut client = server.admin();
    let below = format!("cn=below,{ALIAS}");
    let device = [("objectClass", "device")];
    let id = client.id();
    let added = client.tell(&requests::add(id, &below, &device));
    assert_ne!(added.code, ResultCode::Success);
    let found = client.search(ANN, Scope::OneLevel, "(objectClass=*)");
    assert!(found[0].ends, "{found:?}");

    let text = |client: &mut Client, value: &str| {
        let id = client.id();
        let compare = requests::compare(id, ALIAS, "description", value);
        client.tell(&compare).code
    };
    assert_eq!(text(&mut client, "an alias"), ResultCode::CompareTrue);
    assert_eq!(text(&mut client, "a person"), ResultCode::CompareFalse);
    let id = client.id();
    client
        .tell(&requests::describe(id, ALIAS, "another"))
        .succeeded();
    assert_eq!(text(&mut client, "another"), ResultCode::CompareTrue);
    client
        .ask(requests::rename(ALIAS, "ou=renamed"))
        .succeeded();
    let renamed = format!("ou=renamed,{SUFFIX}");
    client.ask(Request::Delete(&renamed)).succeeded();
    let found = client.search(ANN, Scope::Base, "(objectClass=*)");
    assert_eq!(found[0].values("description"), ["a person"]);
}

/// RFC 4511 §4.2: passwords are octets, which nobody changes.
#[test]
fn passwords_are_compared_as_they_are() {
    let server = TestServer::with_any_passwords("");
    let password = " \u{0}e\u{301}\u{7f} ";
    let ann = [
        ("objectClass", "person"),
        ("sn", "x"),
        ("userPassword", password),
    ];
    server.add(&[(ANN, &ann)]);
    let mut client = server.connect();
    client.bind(ANN, password).succeeded();
    let others = [password.trim(), " \u{0}\u{e9}\u{7f} ", " \u{0}", " "];
    for other in others {
        client
            .bind(ANN, other)
            .expect(ResultCode::InvalidCredentials);
    }
    client
        .bind(ANN, [password.as_bytes(), b"\xff"].concat())
        .expect(ResultCode::InvalidCredentials);
}

/// RFC 4513 §5.2.1.2.
#[test]
fn the_name_of_a_sasl_bind_is_ignored_and_no_mechanism_is_none() {
    let server = TestServer::start();
    let mut client = server.connect_local();
    for name in ["", ANN, "not a DN"] {
        assert_eq!(sasl(&mut client, name, "EXTERNAL"), ResultCode::Success);
    }
    assert_eq!(
        sasl(&mut client, "", ""),
        ResultCode::AuthMethodNotSupported
    );
    assert_eq!(client.who_am_i(), "");
}

/// RFC 4511 §4.1.9 and §4.2.2: what there is not is not sent, or is empty.
#[test]
fn the_answer_to_a_bind_has_nothing_that_is_not_needed() {
    let server = TestServer::start();
    let mut stream = server.tcp();
    stream.write_all(&requests::bind(1, "", b"")).unwrap();
    let mut answer = [0; 14];
    stream.read_exact(&mut answer).unwrap();
    // The message, its ID, a BindResponse, success, no matched name, no diagnostic.
    assert_eq!(
        answer,
        *b"\x30\x0c\x02\x01\x01\x61\x07\x0a\x01\x00\x04\x00\x04\x00"
    );
}

/// RFC 4511 §4.11.
#[test]
fn an_abandon_of_nothing_is_discarded() {
    let server = TestServer::start();
    let mut client = server.connect();
    for target in [0, 1, 77, i32::MAX as u32] {
        let id = client.id();
        client.send(&requests::message(id, Request::Abandon(target)));
    }
    assert_eq!(client.who_am_i(), "");
}

/// RFC 4511 §4.1.1 and §4.12: what is asked for is unknown, or its value is none.
#[test]
fn an_extended_operation_that_makes_no_sense_is_a_protocol_error() {
    let server = TestServer::start();
    let mut client = server.connect();
    for (name, value) in [
        ("1.2.3.4", None),
        ("1.2.3.4", Some(&b"\0\xff"[..])),
        (WHO_AM_I, Some(b"\0")),
        ("", None),
        ("not an OID", Some(b"")),
    ] {
        client
            .extended(name, value)
            .expect(ResultCode::ProtocolError);
    }
    assert_eq!(client.who_am_i(), "");
}

/// RFC 4511 §4.5.3.
#[test]
fn no_reference_is_sent_where_the_base_is_not_found() {
    let server = TestServer::start();
    let dn = "ou=elsewhere,dc=example,dc=com";
    refer(&server, dn);
    let mut client = server.admin();
    let found = client.search(SUFFIX, Scope::Subtree, "(ou=*)");
    assert_eq!(found.len(), 2, "{found:?}");
    assert_eq!(found[0].uris.len(), 1);
    let found = client.search("ou=no,dc=example,dc=com", Scope::Subtree, "(ou=*)");
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(found[0].code, ResultCode::NoSuchObject);
}

/// RFC 4511 §4.1.10 and §4.5.3: in a URL, names are escaped.
#[test]
fn names_in_referrals_are_escaped() {
    let server = TestServer::start();
    let dn = "ou=où est-ce?,dc=example,dc=com";
    refer(&server, dn);
    let mut client = server.admin();
    let escaped = "ldap://localhost/ou=o%C3%B9%20est-ce%3F,dc=example,dc=com";
    let found = client.search(SUFFIX, Scope::Subtree, "(ou=*)");
    let reference = &found[0].uris[0];
    assert!(reference.starts_with(escaped), "{reference}");
    let below = format!("cn=x,{dn}");
    let found = client.search(&below, Scope::Base, "(objectClass=*)");
    assert_eq!(found[0].code, ResultCode::Referral);
    let referral = &found[0].uris[0];
    assert!(
        referral.starts_with(&escaped.replace("/ou", "/cn=x,ou")),
        "{referral}"
    );
}

/// RFC 4512 §2.5.3 and §3.3.
#[test]
fn options_and_superclasses_count_in_what_a_class_asks_for() {
    let server = TestServer::start();
    let with_option = [("objectClass", "inetOrgPerson"), ("sn;lang-de", "x")];
    let mut client = server.admin();
    let id = client.id();
    client
        .tell(&requests::add(id, ANN, &with_option))
        .succeeded();
    for class in ["person", "organizationalPerson", "top"] {
        let filter = format!("(objectClass={class})");
        let found = client.search(ANN, Scope::Base, &filter);
        assert_eq!(found.len(), 2, "{class}");
    }
    let none: requests::Change<'_> = (ChangeKind::Delete, "sn;lang-de", &[]);
    let id = client.id();
    client
        .tell(&requests::modify(id, ANN, &[none]))
        .expect(ResultCode::ObjectClassViolation);
}

/// RFC 4512 §4.1 and RFC 4517 §4.1: whatever a definition refers to is published.
#[test]
fn the_schema_has_all_that_its_definitions_refer_to() {
    let server = TestServer::start();
    let mut client = server.admin();
    let attributes = OctetStringsBuf::from_iter([b"+".as_slice()]);
    let search = SearchRequest {
        attributes: attributes.view(),
        ..SearchRequest::new("cn=Subschema", Scope::Base, Filter::OBJECT_CLASS_PRESENT)
    };
    let found = client.ask_all(Request::Search(search), &[]);
    let defined = |attribute: &str| -> HashSet<String> {
        let names = |definition: &String| {
            let words: Vec<&str> = definition.split_whitespace().collect();
            let quoted = words.iter().filter(|word| word.starts_with('\''));
            let mut names: Vec<String> = quoted
                .map(|word| word.trim_matches('\'').to_ascii_lowercase())
                .collect();
            names.push(words[1].to_owned());
            names
        };
        found[0].values(attribute).iter().flat_map(names).collect()
    };
    let (rules, syntaxes) = (defined("matchingRules"), defined("ldapSyntaxes"));
    assert!(!rules.is_empty() && !syntaxes.is_empty());
    let types = found[0].values("attributeTypes");
    let uses = found[0].values("matchingRuleUse");
    let rules_defined = found[0].values("matchingRules");
    let mut references = 0;
    for definition in types.iter().chain(&rules_defined) {
        let words: Vec<&str> = definition.split_whitespace().collect();
        for pair in words.windows(2) {
            let name = pair[1].split('{').next().unwrap().to_ascii_lowercase();
            let known = match pair[0] {
                "EQUALITY" | "ORDERING" | "SUBSTR" => &rules,
                "SYNTAX" => &syntaxes,
                _ => continue,
            };
            references += 1;
            assert!(known.contains(&name), "{} in {definition}", pair[1]);
        }
    }
    assert!(references > 100);
    for definition in uses {
        let oid = definition.split_whitespace().nth(1).unwrap();
        assert!(rules.contains(oid), "{definition}");
    }
}
