//! Attribute-scoped query: searches among the entries that an attribute of their base names.

#![allow(clippy::unwrap_used)]

use sapwood_ldap::ber;
use sapwood_ldap::controls::{ATTRIBUTE_SCOPED_QUERY, PAGED_RESULTS, PagedResults, SYNC_REQUEST};
use sapwood_ldap::filter_text;
use sapwood_ldap::list::ChangeKind::{Add, Replace};
use sapwood_ldap::message::{Request, Scope, SearchRequest};
use sapwood_ldap::result::ResultCode;
use sapwood_testkit::{Answer, Client, SUFFIX, TestServer, requests};

const ANN: &str = "cn=ann,dc=example,dc=com";
const CREW: &str = "cn=crew,dc=example,dc=com";
/// `secret`.
const STORED: &str = "{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ=";

/// A group of Ann, thirty others, somebody who is not there, and Ann once more.
fn server() -> TestServer {
    let server = TestServer::start();
    let ann = [
        ("objectClass", "person"),
        ("sn", "x"),
        ("userPassword", STORED),
    ];
    server.add(&[(ANN, &ann)]);
    let mut members = vec!["CN=Gone, dc=example, dc=com".to_owned()];
    for number in 0..30 {
        let dn = format!("cn=p{number},{SUFFIX}");
        let sn = format!("s{}", number % 3);
        server.add(&[(&dn, &[("objectClass", "person"), ("sn", &sn)])]);
        members.push(dn);
    }
    let crew = [
        ("objectClass", "groupOfNames"),
        ("cn", "crew"),
        ("member", ANN),
    ];
    server.add(&[(CREW, &crew)]);
    let members: Vec<&str> = members.iter().map(String::as_str).collect();
    let more = requests::modify(1, CREW, &[(Add, "member", &members)]);
    server.admin().tell(&more).succeeded();
    server
}

fn value(attribute: &str) -> Vec<u8> {
    let mut value = Vec::new();
    let list = ber::open(&mut value, ber::SEQUENCE, 0);
    ber::put_octets(&mut value, ber::OCTET_STRING, attribute.as_bytes());
    ber::close(&mut value, list);
    value
}

fn ask(
    client: &mut Client,
    base: &str,
    scope: Scope,
    filter: &str,
    attribute: &str,
) -> Vec<Answer> {
    let filter = filter_text::parse(filter).unwrap();
    let request = SearchRequest::new(base, scope, filter.as_filter());
    let value = value(attribute);
    let control = (ATTRIBUTE_SCOPED_QUERY, true, Some(value.as_slice()));
    client.ask_all(Request::Search(request), &[control])
}

/// How many entries are found, and the result of the response control.
fn found(client: &mut Client, filter: &str, attribute: &str) -> (usize, u8) {
    let answers = ask(client, CREW, Scope::Base, filter, attribute);
    let (end, entries) = answers.split_last().unwrap();
    end.succeeded();
    assert!(entries.iter().all(|answer| answer.entry.is_some()));
    let (oid, value) = &end.controls[0];
    assert_eq!(oid, ATTRIBUTE_SCOPED_QUERY);
    (entries.len(), *value.last().unwrap())
}

#[test]
fn what_the_base_names_is_searched() {
    let server = server();
    let mut admin = server.admin();
    for (filter, attribute, expected) in [
        ("(objectClass=*)", "member", 31),
        ("(sn=s1)", "MEMBER", 10),
        ("(sn=none)", "member", 0),
        // The base is none of them.
        ("(cn=crew)", "member", 0),
        ("(objectClass=*)", "seeAlso", 0),
        ("(cn=crew)", "entryDN", 1),
    ] {
        assert_eq!(
            found(&mut admin, filter, attribute),
            (expected, 0),
            "{filter} {attribute}"
        );
    }
    let mut page = Vec::new();
    let (mut pages, mut names) = (0, std::collections::BTreeSet::new());
    let mut cookie = Vec::new();
    loop {
        page.clear();
        let paged = PagedResults {
            size: 7,
            cookie: &cookie,
        };
        paged.encode(&mut page);
        let filter = filter_text::parse("(objectClass=person)").unwrap();
        let request = SearchRequest::new(CREW, Scope::Base, filter.as_filter());
        let value = value("member");
        let controls = [
            (ATTRIBUTE_SCOPED_QUERY, true, Some(value.as_slice())),
            (PAGED_RESULTS, true, Some(page.as_slice())),
        ];
        let answers = admin.ask_all(Request::Search(request), &controls);
        let (end, entries) = answers.split_last().unwrap();
        end.succeeded();
        names.extend(entries.iter().filter_map(|answer| answer.entry.clone()));
        pages += 1;
        let told = end.controls.iter().find(|(oid, _)| oid == PAGED_RESULTS);
        cookie = PagedResults::decode(&told.unwrap().1)
            .unwrap()
            .cookie
            .to_vec();
        if cookie.is_empty() {
            break;
        }
    }
    assert_eq!((pages, names.len()), (5, 31));
}

#[test]
fn only_what_may_be_read_is_followed_and_found() {
    let server = server();
    let mut client = server.connect();
    client.bind(ANN, "secret").succeeded();
    let mut with = |rule: &str| {
        let rules = [
            "to attrs=userPassword by anonymous auth by * none",
            rule,
            "to * by users read",
        ];
        server.configure(&[(Replace, "olcAccess", &rules)]);
        found(&mut client, "(objectClass=person)", "member").0
    };
    assert_eq!(with("to * by users read"), 31);
    assert_eq!(with("to attrs=member by * search"), 0);
    assert_eq!(
        with(&format!("to attrs=member val.exact=\"{ANN}\" by * none")),
        30
    );
    assert_eq!(with("to filter=(sn=s1) by * none"), 21);
}

#[test]
fn what_cannot_be_followed_is_refused() {
    let server = server();
    let mut admin = server.admin();
    let all = "(objectClass=*)";
    for (base, scope, attribute, code) in [
        (CREW, Scope::Base, "cn", ResultCode::InvalidAttributeSyntax),
        (
            CREW,
            Scope::Base,
            "nonsense",
            ResultCode::InvalidAttributeSyntax,
        ),
        (
            CREW,
            Scope::Subtree,
            "member",
            ResultCode::UnwillingToPerform,
        ),
        ("", Scope::Base, "member", ResultCode::UnwillingToPerform),
        (
            "cn=none,dc=example,dc=com",
            Scope::Base,
            "member",
            ResultCode::NoSuchObject,
        ),
    ] {
        let answers = ask(&mut admin, base, scope, all, attribute);
        assert_eq!(answers.len(), 1);
        answers[0].expect(code);
    }
    let filter = filter_text::parse(all).unwrap();
    let request = SearchRequest::new(CREW, Scope::Base, filter.as_filter());
    let value = value("member");
    let controls = [
        (ATTRIBUTE_SCOPED_QUERY, true, Some(value.as_slice())),
        (SYNC_REQUEST, true, Some(b"\x30\x03\x0a\x01\x01".as_slice())),
    ];
    let answers = admin.ask_all(Request::Search(request), &controls);
    answers[0].expect(ResultCode::UnwillingToPerform);
}
