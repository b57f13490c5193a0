//! Range retrieval: some values of an attribute by their places (Active Directory's `member;range=0-999`).

#![allow(clippy::unwrap_used)]

use sapwood_ldap::ber;
use sapwood_ldap::controls::MATCHED_VALUES;
use sapwood_ldap::filter_text;
use sapwood_ldap::list::{AttributesBuf, OctetStringsBuf};
use sapwood_ldap::message::{AddRequest, Request, Scope, SearchRequest};
use sapwood_testkit::requests::Control;
use sapwood_testkit::{Client, SUFFIX, TestServer};

/// The descriptions and values that a read of some attributes sends.
fn read(
    client: &mut Client,
    dn: &str,
    (attributes, types_only): (&[&str], bool),
    controls: &[Control<'_>],
) -> Vec<(String, Vec<String>)> {
    let filter = filter_text::parse("(objectClass=*)").unwrap();
    let attributes: OctetStringsBuf = attributes.iter().map(|name| name.as_bytes()).collect();
    let request = SearchRequest {
        attributes: attributes.view(),
        types_only,
        ..SearchRequest::new(dn, Scope::Base, filter.as_filter())
    };
    let mut answers = client.ask_all(Request::Search(request), controls);
    answers.pop().unwrap().succeeded();
    let text = |value: Vec<u8>| String::from_utf8(value).unwrap();
    let attributes = answers.remove(0).attributes.into_iter();
    attributes
        .map(|(name, values)| (name, values.into_iter().map(text).collect()))
        .collect()
}

/// A group of so many, who are called by numbers.
fn group(members: usize) -> (TestServer, String) {
    let server = TestServer::start();
    let dn = format!("cn=group,{SUFFIX}");
    let members: Vec<String> = (0..members)
        .map(|number| format!("cn={number},{SUFFIX}"))
        .collect();
    let mut attributes = AttributesBuf::default();
    attributes.push(b"objectClass", [b"groupOfNames".as_slice()]);
    attributes.push(b"cn", [b"group".as_slice()]);
    attributes.push(b"member", members.iter().map(String::as_bytes));
    attributes.push(b"description", [b"a".as_slice(), b"b", b"c"]);
    let add = AddRequest {
        dn: &dn,
        attributes: attributes.view(),
    };
    server.admin().ask(Request::Add(add)).succeeded();
    (server, dn)
}

fn names(read: &[(String, Vec<String>)]) -> Vec<&str> {
    read.iter().map(|(name, _)| name.as_str()).collect()
}

/// Few values, and as many as are kept in a way of their own.
#[test]
fn all_values_come_range_by_range() {
    for members in [3, 1000] {
        let (server, dn) = group(members);
        let mut client = server.admin();
        let all = read(&mut client, &dn, (&["member"], false), &[])
            .remove(0)
            .1;
        assert_eq!(all.len(), members);
        for step in [1, 2, 7, members - 1, members, members + 1] {
            if members / step > 200 {
                continue;
            }
            let (mut found, mut first) = (Vec::new(), 0);
            loop {
                let asked = format!("member;range={first}-{}", first + step - 1);
                let part = read(&mut client, &dn, (&[&asked], false), &[]);
                let [(name, values)] = &part[..] else {
                    panic!("{part:?}");
                };
                found.extend(values.clone());
                first += step;
                if *name != asked {
                    let last = format!("member;range={}-*", first - step);
                    assert_eq!(*name, last);
                    break;
                }
                assert_eq!(values.len(), step);
                assert!(found.len() < members, "there is a next one");
            }
            assert_eq!(found, all, "steps of {step}");
        }
        let rest = format!("MEMBER;Range={}-*", members - 1);
        let rest = read(&mut client, &dn, (&[&rest], false), &[]);
        let last = format!("member;range={}-*", members - 1);
        assert_eq!(rest, [(last, vec![all[members - 1].clone()])]);
        let behind = read(&mut client, &dn, (&["member;range=5000-5001"], false), &[]);
        assert_eq!(behind, [("member;range=5000-*".to_owned(), vec![])]);
    }
}

#[test]
fn other_attributes_come_whole() {
    let (server, dn) = group(10);
    let mut client = server.admin();
    let found = read(
        &mut client,
        &dn,
        (&["*", "+", "member;range=0-1"], false),
        &[],
    );
    let of = |name: &str| found.iter().find(|(found, _)| found == name).unwrap();
    assert_eq!(of("member;range=0-1").1.len(), 2);
    assert_eq!(of("description").1, ["a", "b", "c"]);
    assert_eq!(of("entryDN").1, std::slice::from_ref(&dn));
    assert!(!names(&found).contains(&"member"));
    // Two ranges, and what is none.
    let asked = ["description;range=1-1", "member;range=9-10", "cn;range=a-b"];
    let found = read(&mut client, &dn, (&asked, false), &[]);
    let mut sorted = names(&found);
    sorted.sort_unstable();
    assert_eq!(sorted, ["description;range=1-1", "member;range=9-*"]);
    // Without values there are no ranges of them.
    let found = read(&mut client, &dn, (&["member;range=0-1"], true), &[]);
    assert_eq!(found, [("member".to_owned(), vec![])]);
}

#[test]
fn with_matched_values_it_is_a_range_of_those_that_match() {
    let (server, dn) = group(10);
    let mut client = server.admin();
    let mut value = Vec::new();
    let filters = ["(description=b)", "(description=c)"];
    let filters = filters.map(|filter| filter_text::parse(filter).unwrap());
    let filters = filters.map(|filter| filter.as_filter().as_ber().to_vec());
    ber::put_octets(&mut value, ber::SEQUENCE, &filters.concat());
    let control = [(MATCHED_VALUES, true, Some(value.as_slice()))];
    for (asked, name, values) in [
        ("description;range=0-0", "description;range=0-0", &["b"][..]),
        ("description;range=1-9", "description;range=1-*", &["c"]),
        ("member;range=0-0", "member;range=0-*", &[]),
    ] {
        let found = read(&mut client, &dn, (&[asked], false), &control);
        let values = values.iter().map(|value| (*value).to_owned()).collect();
        assert_eq!(found, [(name.to_owned(), values)]);
    }
}
