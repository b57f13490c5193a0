//! Server-side sorting (RFC 2891).

#![allow(clippy::unwrap_used)]

use sapwood_ldap::controls::{
    PAGED_RESULTS, PagedResults, SORT_REQUEST, SORT_RESPONSE, SortKey, SortResult, put_sort_keys,
};
use sapwood_ldap::filter_text;
use sapwood_ldap::list::ChangeKind;
use sapwood_ldap::message::{Request, Scope, SearchRequest};
use sapwood_ldap::result::ResultCode;
use sapwood_testkit::{Answer, Client, SUFFIX, TestServer, requests};

/// A key as ldapsearch has it: `-` for reverse, an attribute, and perhaps a rule behind a colon.
fn key(text: &str) -> SortKey<'_> {
    let (text, reverse) = match text.strip_prefix('-') {
        Some(text) => (text, true),
        None => (text, false),
    };
    let (attribute, rule) = match text.split_once(':') {
        Some((attribute, rule)) => (attribute, Some(rule.as_bytes())),
        None => (text, None),
    };
    SortKey {
        attribute: attribute.as_bytes(),
        rule,
        reverse,
    }
}

/// What one search asks for.
struct Asked<'a> {
    keys: &'a [&'a str],
    is_critical: bool,
    base: &'a str,
    filter: &'a str,
    size_limit: u32,
    page: Option<(u32, &'a [u8])>,
}

const PEOPLE: Asked<'_> = Asked {
    keys: &[],
    is_critical: true,
    base: SUFFIX,
    filter: "(objectClass=person)",
    size_limit: 0,
    page: None,
};

fn search(client: &mut Client, asked: &Asked<'_>) -> Vec<Answer> {
    let filter = filter_text::parse(asked.filter).unwrap();
    let request = SearchRequest {
        size_limit: asked.size_limit,
        ..SearchRequest::new(asked.base, Scope::Subtree, filter.as_filter())
    };
    let (mut keys, mut page) = (Vec::new(), Vec::new());
    put_sort_keys(&mut keys, asked.keys.iter().map(|text| key(text)));
    let mut controls = vec![(SORT_REQUEST, asked.is_critical, Some(keys.as_slice()))];
    if let Some((size, cookie)) = asked.page {
        PagedResults { size, cookie }.encode(&mut page);
        controls.push((PAGED_RESULTS, true, Some(page.as_slice())));
    }
    client.ask_all(Request::Search(request), &controls)
}

/// The first RDN values of the entries.
fn names(answers: &[Answer]) -> Vec<String> {
    let entries = answers.iter().filter_map(|answer| answer.entry.as_deref());
    let name = |dn: &str| dn.split(['=', ',']).nth(1).unwrap().to_owned();
    entries.map(name).collect()
}

/// What the response control says.
fn result(end: &Answer) -> (ResultCode, Option<String>) {
    let mut controls = end.controls.iter();
    let (_, value) = controls.find(|(oid, _)| oid == SORT_RESPONSE).unwrap();
    let result = SortResult::decode(value).unwrap();
    (result.code, result.attribute.map(str::to_owned))
}

fn sorted(client: &mut Client, keys: &[&str]) -> Vec<String> {
    let answers = search(client, &Asked { keys, ..PEOPLE });
    let end = answers.last().unwrap().succeeded();
    assert_eq!(result(end), (ResultCode::Success, None));
    names(&answers)
}

fn person(cn: &str, more: &[(&str, &str)]) -> (String, Vec<(String, String)>) {
    let attributes = [("objectClass", "inetOrgPerson"), ("cn", cn)];
    let all = attributes.iter().chain(more);
    let all = all.map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    (format!("cn={cn},{SUFFIX}"), all.collect())
}

fn serve(people: &[(String, Vec<(String, String)>)]) -> TestServer {
    let server = TestServer::start();
    server.add_messages(people.iter().enumerate().map(|(at, (dn, attributes))| {
        let attributes = attributes.iter().map(|(name, value)| (&**name, &**value));
        requests::add(at as u32 + 1, dn, &attributes.collect::<Vec<_>>())
    }));
    server
}

fn people() -> TestServer {
    serve(&[
        person("c", &[("sn", "Beta"), ("employeeType", "b")]),
        person("a", &[("sn", "alpha"), ("employeeType", "c")]),
        person("e", &[("sn", "beta"), ("employeeType", "a")]),
        person("b", &[("sn", "Gamma")]),
        person("d", &[("sn", "Alpha"), ("title", "x")]),
    ])
}

#[test]
fn entries_come_in_the_order_of_the_keys() {
    let server = people();
    let mut client = server.admin();
    for (keys, expected) in [
        (&["cn"][..], "abcde"),
        (&["-cn"], "edcba"),
        (&["sn", "cn"], "adceb"),
        (&["sn", "-cn"], "daecb"),
        (&["-sn", "cn"], "bcead"),
        (&["sn:caseExactOrderingMatch", "cn"], "dcbae"),
        (&["sn:2.5.13.6", "cn"], "dcbae"),
        (&["sn:caseIgnoreMatch", "cn"], "adceb"),
        // Who has no value comes last, or first in reverse.
        (&["employeeType", "cn"], "ecabd"),
        (&["-employeeType", "cn"], "bdace"),
        (&["entryDN"], "abcde"),
        (&["-entryDN"], "edcba"),
        (&["createTimestamp", "cn"], "abcde"),
        (&["entryCSN"], "caebd"),
        (&["title", "-entryCSN"], "dbeac"),
    ] {
        assert_eq!(sorted(&mut client, keys).concat(), expected, "{keys:?}");
    }
}

#[test]
fn the_least_of_several_values_counts_and_numbers_are_numbers() {
    let server = serve(&[
        person("a", &[("sn", "x"), ("departmentNumber", "10")]),
        person("b", &[("sn", "x"), ("departmentNumber", "9")]),
        person("c", &[("sn", "x"), ("departmentNumber", "8")]),
    ]);
    let mut client = server.admin();
    let add: requests::Change<'_> = (ChangeKind::Add, "departmentNumber", &["095", "11"]);
    let modify = requests::modify(1, &format!("cn=b,{SUFFIX}"), &[add]);
    client.tell(&modify).succeeded();
    assert_eq!(sorted(&mut client, &["departmentNumber"]).concat(), "bac");
    for (name, number) in [("a", "10"), ("b", "9"), ("c", "-8")] {
        let change = [
            (ChangeKind::Add, "objectClass", &["posixAccount"][..]),
            (ChangeKind::Add, "uid", &[name]),
            (ChangeKind::Add, "uidNumber", &[number]),
            (ChangeKind::Add, "gidNumber", &["1"]),
            (ChangeKind::Add, "homeDirectory", &["/"]),
        ];
        let dn = format!("cn={name},{SUFFIX}");
        client.tell(&requests::modify(1, &dn, &change)).succeeded();
    }
    assert_eq!(sorted(&mut client, &["uidNumber"]).concat(), "cba");
    assert_eq!(sorted(&mut client, &["-uidNumber"]).concat(), "abc");
}

#[test]
fn what_cannot_be_sorted_is_told() {
    let server = people();
    let mut client = server.admin();
    for (key, code) in [
        ("unknown", ResultCode::NoSuchAttribute),
        ("sn:unknownMatch", ResultCode::InappropriateMatching),
        (
            "sn:caseIgnoreSubstringsMatch",
            ResultCode::InappropriateMatching,
        ),
        ("sn:integerOrderingMatch", ResultCode::InappropriateMatching),
        ("jpegPhoto", ResultCode::InappropriateMatching),
    ] {
        let attribute = key.split(':').next().unwrap().to_owned();
        let told = (code, Some(attribute));
        for keys in [[key, "cn"], ["cn", key]] {
            let critical = search(
                &mut client,
                &Asked {
                    keys: &keys,
                    ..PEOPLE
                },
            );
            let [end] = &critical[..] else {
                panic!("{critical:?}");
            };
            end.expect(ResultCode::UnavailableCriticalExtension);
            assert_eq!(result(end), told, "{key}");
            let asked = Asked {
                keys: &keys,
                is_critical: false,
                ..PEOPLE
            };
            let unsorted = search(&mut client, &asked);
            let end = unsorted.last().unwrap().succeeded();
            assert_eq!((unsorted.len(), result(end)), (6, told.clone()), "{key}");
        }
    }
    // What the server makes itself has an order of its own.
    let asked = Asked {
        keys: &["objectClass"],
        base: "cn=config",
        filter: "(objectClass=*)",
        ..PEOPLE
    };
    let answers = search(&mut client, &asked);
    answers[0].expect(ResultCode::UnavailableCriticalExtension);
    assert_eq!(result(&answers[0]).0, ResultCode::UnwillingToPerform);
    // Errors of the search are what they are without the control.
    let asked = Asked {
        keys: &["cn"],
        base: "cn=nobody,dc=example,dc=com",
        ..PEOPLE
    };
    let answers = search(&mut client, &asked);
    answers[0].expect(ResultCode::NoSuchObject);
    assert!(answers[0].controls.is_empty());
    for value in [None, Some(&b"\x30\x00"[..]), Some(b"x")] {
        let id = client.id();
        let search = requests::search(id, SUFFIX, Scope::Base, "(cn=*)");
        client.send(&requests::with(&search, &[(SORT_REQUEST, false, value)]));
        client.finish(id)[0].expect(ResultCode::ProtocolError);
    }
}

#[test]
fn limits_count_in_the_order_of_the_keys() {
    let server = people();
    let mut client = server.admin();
    let asked = Asked {
        keys: &["-cn"],
        size_limit: 3,
        ..PEOPLE
    };
    let answers = search(&mut client, &asked);
    let end = answers.last().unwrap();
    end.expect(ResultCode::SizeLimitExceeded);
    assert_eq!(result(end).0, ResultCode::Success);
    assert_eq!(names(&answers).concat(), "edc");
}

#[test]
fn pages_follow_each_other_in_order() {
    let server = people();
    let mut client = server.admin();
    let keys = ["sn", "cn"];
    let mut page = |cookie: &[u8], keys: &[&str], size: u32| {
        let asked = Asked {
            keys,
            page: Some((size, cookie)),
            ..PEOPLE
        };
        let answers = search(&mut client, &asked);
        let end = answers.last().unwrap().clone();
        let mut controls = end.controls.iter();
        let value = controls.find(|(oid, _)| oid == PAGED_RESULTS);
        let cookie = value.map(|(_, value)| PagedResults::decode(value).unwrap().cookie.to_vec());
        (names(&answers).concat(), cookie, end.code)
    };
    for size in 1..7 {
        let (mut cookie, mut pages) = (Vec::new(), Vec::new());
        loop {
            let (found, next, code) = page(&cookie, &keys, size);
            assert_eq!(code, ResultCode::Success);
            pages.push(found);
            cookie = next.unwrap();
            if cookie.is_empty() {
                break;
            }
        }
        assert_eq!(pages.concat(), "adceb", "{size}");
        assert_eq!(pages.len(), 5usize.div_ceil(size as usize), "{size}");
    }
    let (_, cookie, _) = page(&[], &keys, 2);
    let cookie = cookie.unwrap();
    // It belongs to these keys.
    let (found, _, code) = page(&cookie, &["sn", "-cn"], 2);
    assert_eq!((&*found, code), ("", ResultCode::UnwillingToPerform));
    // What is added behind it is found, and what was deleted is not.
    let mut admin = server.admin();
    let delete = requests::message(1, Request::Delete("cn=c,dc=example,dc=com"));
    admin.tell(&delete).succeeded();
    let person = [("objectClass", "person"), ("cn", "f"), ("sn", "Beta")];
    server.add(&[("cn=f,dc=example,dc=com", &person)]);
    assert_eq!(page(&cookie, &keys, 2).0, "ef");
}

#[test]
fn who_may_not_search_a_key_learns_nothing_from_the_order() {
    let server = people();
    server.configure(&[
        (ChangeKind::Replace, "sapwoodAnonymousRead", &["TRUE"]),
        (
            ChangeKind::Replace,
            "olcAccess",
            &[
                "{0}to dn.exact=\"cn=c,dc=example,dc=com\" attrs=sn by * none",
                "{1}to attrs=employeeType by * none",
                "{2}to * by * read",
            ],
        ),
    ]);
    let mut client = server.connect();
    // As if it had none.
    assert_eq!(sorted(&mut client, &["sn", "cn"]).concat(), "adebc");
    let asked = Asked {
        keys: &["employeeType"],
        ..PEOPLE
    };
    let answers = search(&mut client, &asked);
    answers[0].expect(ResultCode::UnavailableCriticalExtension);
    let told = Some("employeeType".to_owned());
    let code = ResultCode::InsufficientAccessRights;
    assert_eq!(result(&answers[0]), (code, told));
}

/// More than fits into the memory that there is for it.
#[test]
fn thousands_of_entries_are_sorted() {
    const PEOPLE_COUNT: u64 = 4000;
    let scattered = |n: u64| format!("{:016x}", n.wrapping_mul(0x9E37_79B9_7F4A_7C15));
    let all: Vec<_> = (0..PEOPLE_COUNT)
        .map(|n| {
            let long = format!("{} {}", scattered(n), "x".repeat(30));
            person(&format!("p{n}"), &[("sn", &long)])
        })
        .collect();
    let server = serve(&all);
    let mut client = server.admin();
    let mut expected: Vec<(String, String)> = (0..PEOPLE_COUNT)
        .map(|n| (scattered(n), format!("p{n}")))
        .collect();
    expected.sort();
    let expected: Vec<String> = expected.into_iter().map(|(_, name)| name).collect();
    assert!(sorted(&mut client, &["sn"]) == expected);
    let reverse: Vec<String> = expected.into_iter().rev().collect();
    assert!(sorted(&mut client, &["-sn"]) == reverse);
}
