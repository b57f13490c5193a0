//! Real attributes only, and virtual attributes only.

#![allow(clippy::unwrap_used)]

use sapwood_ldap::controls::{MATCHED_VALUES, REAL_ATTRIBUTES_ONLY, VIRTUAL_ATTRIBUTES_ONLY};
use sapwood_ldap::filter_text;
use sapwood_ldap::list::{AttributesBuf, ChangeKind, OctetStringsBuf};
use sapwood_ldap::message::{AddRequest, Request, Scope, SearchRequest};
use sapwood_ldap::result::ResultCode;
use sapwood_testkit::{Answer, Client, SUFFIX, TestServer, requests};

fn read(client: &mut Client, dn: &str, attributes: &[&str], controls: &[&str]) -> Answer {
    let filter = filter_text::parse("(objectClass=*)").unwrap();
    let attributes: OctetStringsBuf = attributes.iter().map(|name| name.as_bytes()).collect();
    let request = SearchRequest {
        attributes: attributes.view(),
        ..SearchRequest::new(dn, Scope::Base, filter.as_filter())
    };
    let nothing = b"\x30\x00".as_slice();
    let controls = controls.iter().map(|oid| match *oid {
        MATCHED_VALUES => (*oid, true, Some(nothing)),
        oid => (oid, true, None),
    });
    let controls: Vec<_> = controls.collect();
    client
        .ask_all(Request::Search(request), &controls)
        .remove(0)
}

fn has(entry: &Answer, attribute: &str) -> bool {
    let mut names = entry.attributes.iter();
    names.any(|(name, _)| name.eq_ignore_ascii_case(attribute))
}

#[test]
fn what_an_entry_has_itself_is_told_from_what_is_computed() {
    let server = TestServer::start();
    let dn = format!("cn=ann,{SUFFIX}");
    server.add(&[(
        &dn,
        &[("objectClass", "person"), ("cn", "ann"), ("sn", "x")],
    )]);
    let mut client = server.admin();
    let collection = format!("cn=collection,{SUFFIX}");
    let mut subentry = AttributesBuf::default();
    let classes = [b"subentry".as_slice(), b"collectiveAttributeSubentry"];
    subentry.push(b"objectClass", classes);
    for (name, value) in [
        ("cn", "collection"),
        ("subtreeSpecification", "{}"),
        ("c-l", "Ulm"),
    ] {
        subentry.push(name.as_bytes(), [value.as_bytes()]);
    }
    let add = AddRequest {
        dn: &collection,
        attributes: subentry.view(),
    };
    client.ask(Request::Add(add)).succeeded();
    let every = ["*", "+"];
    let real = ["cn", "sn", "objectClass", "entryUUID", "creatorsName"];
    let computed = ["entryDN", "subschemaSubentry", "hasSubordinates", "c-l"];
    for (controls, has_real, has_computed) in [
        (&[][..], true, true),
        (&[REAL_ATTRIBUTES_ONLY], true, false),
        (&[VIRTUAL_ATTRIBUTES_ONLY], false, true),
        (&[REAL_ATTRIBUTES_ONLY, MATCHED_VALUES], true, false),
        (&[VIRTUAL_ATTRIBUTES_ONLY, MATCHED_VALUES], false, true),
    ] {
        let entry = read(&mut client, &dn, &every, controls);
        for name in real {
            assert_eq!(has(&entry, name), has_real, "{name} {controls:?}");
        }
        for name in computed {
            assert_eq!(has(&entry, name), has_computed, "{name} {controls:?}");
        }
    }
    // Named ones, and user attributes by default.
    let entry = read(
        &mut client,
        &dn,
        &["entryDN", "cn"],
        &[REAL_ATTRIBUTES_ONLY],
    );
    assert!(has(&entry, "cn") && !has(&entry, "entryDN"));
    let entry = read(&mut client, &dn, &[], &[VIRTUAL_ATTRIBUTES_ONLY]);
    assert!(has(&entry, "c-l") && !has(&entry, "cn"));
    // A subentry has what it holds itself.
    let entry = read(&mut client, &collection, &[], &[REAL_ATTRIBUTES_ONLY]);
    assert_eq!(entry.values("c-l"), ["Ulm"]);
    let both = [REAL_ATTRIBUTES_ONLY, VIRTUAL_ATTRIBUTES_ONLY];
    read(&mut client, &dn, &[], &both).expect(ResultCode::UnwillingToPerform);
}

/// Groups of very many members keep them in another way.
#[test]
fn very_many_values_are_real() {
    let server = TestServer::start();
    let dn = format!("cn=group,{SUFFIX}");
    let members: Vec<String> = (0..2000).map(|n| format!("cn={n},{SUFFIX}")).collect();
    let group = [
        ("objectClass", "groupOfNames"),
        ("cn", "group"),
        ("member", &*members[0]),
    ];
    server.add(&[(&dn, &group)]);
    let mut client = server.admin();
    let more: Vec<&str> = members[1..].iter().map(String::as_str).collect();
    let add: requests::Change<'_> = (ChangeKind::Add, "member", &more);
    client.tell(&requests::modify(1, &dn, &[add])).succeeded();
    let real = read(&mut client, &dn, &[], &[REAL_ATTRIBUTES_ONLY]);
    assert_eq!(real.values("member").len(), 2000);
    let computed = read(&mut client, &dn, &[], &[VIRTUAL_ATTRIBUTES_ONLY]);
    assert!(computed.attributes.is_empty(), "{computed:?}");
}
