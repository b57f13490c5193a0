//! Matching entry count: searches that tell how many entries they would find.

#![allow(clippy::unwrap_used)]

use sapwood_ldap::ber;
use sapwood_ldap::controls::{
    MATCHING_ENTRY_COUNT, MATCHING_ENTRY_COUNT_RESPONSE, PAGED_RESULTS, PagedResults,
};
use sapwood_ldap::filter_text;
use sapwood_ldap::list::ChangeKind::Replace;
use sapwood_ldap::message::{Request, Scope, SearchRequest};
use sapwood_ldap::result::ResultCode;
use sapwood_testkit::{Answer, Client, SUFFIX, TestServer};

const ANN: &str = "cn=ann,dc=example,dc=com";
/// `secret`.
const STORED: &str = "{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ=";

/// Ann and twelve others.
fn server() -> TestServer {
    let server = TestServer::start();
    let ann = [
        ("objectClass", "person"),
        ("sn", "x"),
        ("userPassword", STORED),
    ];
    server.add(&[(ANN, &ann)]);
    for number in 0..12 {
        let dn = format!("cn=p{number},{SUFFIX}");
        let sn = format!("s{}", number % 3);
        server.add(&[(&dn, &[("objectClass", "person"), ("sn", &sn)])]);
    }
    server
}

/// What is asked: how many candidates may be looked at, also without an index, and whether the plan is told.
#[derive(Clone, Copy, Default)]
struct Asked {
    most: u32,
    unindexed: bool,
    plan: bool,
}

fn value(asked: Asked) -> Vec<u8> {
    let mut value = Vec::new();
    let list = ber::open(&mut value, ber::SEQUENCE, 0);
    ber::put_integer(&mut value, ber::context(0), i64::from(asked.most));
    ber::put_boolean(&mut value, ber::context(2), asked.unindexed);
    ber::put_boolean(&mut value, ber::context(3), asked.plan);
    ber::close(&mut value, list);
    value
}

fn search(client: &mut Client, scope: Scope, filter: &str, asked: Asked) -> Answer {
    let filter = filter_text::parse(filter).unwrap();
    let request = SearchRequest::new(SUFFIX, scope, filter.as_filter());
    let value = value(asked);
    let control = (MATCHING_ENTRY_COUNT, true, Some(value.as_slice()));
    let mut answers = client.ask_all(Request::Search(request), &[control]);
    assert_eq!(answers.len(), 1, "no entry is sent: {answers:?}");
    answers.remove(0)
}

/// `=12`, `<12` or `?`, and `unindexed` or a plan behind it.
fn count(client: &mut Client, scope: Scope, filter: &str, asked: Asked) -> String {
    let answer = search(client, scope, filter, asked);
    answer.succeeded();
    let (oid, value) = &answer.controls[0];
    assert_eq!(oid, MATCHING_ENTRY_COUNT_RESPONSE);
    let mut outer = ber::Reader::new(value);
    let mut reader = ber::Reader::new(outer.expect(ber::SEQUENCE, "response").unwrap());
    let (tag, content) = reader.element("entryCount").unwrap();
    let number = || ber::integer(content, "count").unwrap();
    let mut told = match tag {
        0x80 => format!("={}", number()),
        0x82 => format!("<{}", number()),
        0x83 => "?".to_owned(),
        other => panic!("{other}"),
    };
    if let Some(lines) = reader
        .optional(ber::context_constructed(0), "debugInfo")
        .unwrap()
    {
        let mut lines = ber::Reader::new(lines);
        while !lines.is_empty() {
            let line = lines.octets("line").unwrap();
            told += &format!(" {}", String::from_utf8(line.to_vec()).unwrap());
        }
    }
    if let Some(indexed) = reader.optional(ber::context(1), "searchIndexed").unwrap() {
        assert!(!ber::boolean(indexed, "searchIndexed").unwrap());
        told += " unindexed";
    }
    reader.end().unwrap();
    told
}

const PEOPLE: &str = "(objectClass=person)";
/// All but Ann.
const UNINDEXED: &str = "(cn=*p*)";

#[test]
fn candidates_are_looked_at_if_they_are_few() {
    let server = server();
    let mut admin = server.admin();
    let up_to = |most| Asked {
        most,
        ..Asked::default()
    };
    for (scope, filter, most, expected) in [
        (Scope::Base, "(objectClass=*)", 1, "=1"),
        (Scope::Base, PEOPLE, 1, "=0"),
        (Scope::Base, PEOPLE, 0, "<1"),
        (Scope::OneLevel, PEOPLE, 13, "=13"),
        (Scope::OneLevel, "(sn=s1)", 13, "=4"),
        (Scope::OneLevel, PEOPLE, 12, "<13"),
        (Scope::Subtree, UNINDEXED, 100, "? unindexed"),
    ] {
        let told = count(&mut admin, scope, filter, up_to(most));
        assert_eq!(told, expected, "{scope:?} {filter} {most}");
    }
    let even = |most| Asked {
        unindexed: true,
        ..up_to(most)
    };
    for (most, expected) in [(100, "=12 unindexed"), (3, "? unindexed")] {
        assert_eq!(
            count(&mut admin, Scope::Subtree, UNINDEXED, even(most)),
            expected
        );
    }
    let plan = Asked {
        plan: true,
        ..up_to(13)
    };
    let told = count(&mut admin, Scope::OneLevel, PEOPLE, plan);
    assert!(told.starts_with("=13 plan: "), "{told}");
    assert!(told.ends_with(" candidates: 13"), "{told}");
}

#[test]
fn nobody_is_told_of_what_they_may_not_see() {
    let server = server();
    let mut client = server.connect();
    client.bind(ANN, "secret").succeeded();
    let hide = |rights: &str| {
        let rules = [
            "to attrs=userPassword by anonymous auth by * none".to_owned(),
            format!("to filter=(sn=s1) by * {rights}"),
            "to * by users read".to_owned(),
        ];
        let rules: Vec<&str> = rules.iter().map(String::as_str).collect();
        server.configure(&[(Replace, "olcAccess", &rules)]);
    };
    hide("none");
    let all = |most| Asked {
        most,
        plan: true,
        ..Asked::default()
    };
    for scope in [Scope::OneLevel, Scope::Subtree] {
        assert_eq!(count(&mut client, scope, PEOPLE, all(100)), "=9");
        assert_eq!(count(&mut client, scope, PEOPLE, all(9)), "=9");
        assert_eq!(count(&mut client, scope, PEOPLE, all(8)), "?");
        // Whether there are hidden ones makes no difference.
        assert_eq!(count(&mut client, scope, "(sn=s1)", all(0)), "=0");
        assert_eq!(count(&mut client, scope, "(sn=none)", all(0)), "=0");
    }
    // Found, and not to be read.
    hide("search");
    assert_eq!(count(&mut client, Scope::OneLevel, PEOPLE, all(100)), "=9");
    hide("manage");
    assert_eq!(count(&mut client, Scope::OneLevel, PEOPLE, all(100)), "=13");
}

#[test]
fn what_sends_entries_otherwise_is_refused() {
    let server = server();
    let mut admin = server.admin();
    let filter = filter_text::parse("(objectClass=*)").unwrap();
    let value = value(Asked::default());
    let mut page = Vec::new();
    let paged = PagedResults {
        size: 2,
        cookie: b"",
    };
    paged.encode(&mut page);
    let unwilling = ResultCode::UnwillingToPerform;
    let request = SearchRequest::new(SUFFIX, Scope::Subtree, filter.as_filter());
    let controls = [
        (MATCHING_ENTRY_COUNT, true, Some(value.as_slice())),
        (PAGED_RESULTS, true, Some(page.as_slice())),
    ];
    let answers = admin.ask_all(Request::Search(request), &controls);
    answers.last().unwrap().expect(unwilling);
    let request = SearchRequest::new("", Scope::Base, filter.as_filter());
    let answers = admin.ask_all(Request::Search(request), &controls[..1]);
    answers.last().unwrap().expect(unwilling);
    let wrong = [(MATCHING_ENTRY_COUNT, false, Some(b"x".as_slice()))];
    let request = SearchRequest::new(SUFFIX, Scope::Base, filter.as_filter());
    let answers = admin.ask_all(Request::Search(request), &wrong);
    answers.last().unwrap().expect(ResultCode::ProtocolError);
}
