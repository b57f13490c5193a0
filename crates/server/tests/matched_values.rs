//! Matched values (RFC 3876).

#![allow(clippy::unwrap_used)]

use sapwood_ldap::ber;
use sapwood_ldap::controls::MATCHED_VALUES;
use sapwood_ldap::filter_text;
use sapwood_ldap::list::{ChangeKind, OctetStringsBuf};
use sapwood_ldap::message::{Request, Scope, SearchRequest};
use sapwood_ldap::result::ResultCode;
use sapwood_testkit::{Answer, Client, SUFFIX, TestServer, requests};

fn value_of(items: &[&str]) -> Vec<u8> {
    let items = items.iter().map(|item| filter_text::parse(item).unwrap());
    let items: Vec<u8> = items
        .flat_map(|item| item.as_filter().as_ber().to_vec())
        .collect();
    let mut value = Vec::new();
    ber::put_octets(&mut value, ber::SEQUENCE, &items);
    value
}

fn asked(
    client: &mut Client,
    (base, scope, types_only): (&str, Scope, bool),
    attributes: &[&str],
    items: &[&str],
) -> Vec<Answer> {
    let filter = filter_text::parse("(objectClass=*)").unwrap();
    let attributes: OctetStringsBuf = attributes.iter().map(|name| name.as_bytes()).collect();
    let request = SearchRequest {
        attributes: attributes.view(),
        types_only,
        ..SearchRequest::new(base, scope, filter.as_filter())
    };
    let value = value_of(items);
    let controls = [(MATCHED_VALUES, true, Some(value.as_slice()))];
    let mut answers = client.ask_all(Request::Search(request), &controls);
    answers.pop().unwrap().succeeded();
    answers
}

fn of(client: &mut Client, dn: &str, attributes: &[&str], items: &[&str]) -> Answer {
    asked(client, (dn, Scope::Base, false), attributes, items).remove(0)
}

fn person() -> (TestServer, String) {
    let server = TestServer::start();
    let dn = format!("cn=ann,{SUFFIX}");
    server.add(&[(
        &dn,
        &[
            ("objectClass", "inetOrgPerson"),
            ("cn", "ann"),
            ("sn", "x"),
            ("mail", "ann@example.com"),
            ("description", "Ann at home"),
        ],
    )]);
    let add: requests::Change<'_> = (ChangeKind::Add, "mail", &["ann@example.org"]);
    let modify = requests::modify(1, &dn, &[add]);
    server.admin().tell(&modify).succeeded();
    (server, dn)
}

#[test]
fn values_are_sent_that_match_one_of_the_items() {
    let (server, dn) = person();
    let mut client = server.admin();
    let found = of(&mut client, &dn, &[], &["(mail=*@example.org)", "(cn=ANN)"]);
    assert_eq!(found.values("mail"), ["ann@example.org"]);
    assert_eq!(found.values("cn"), ["ann"]);
    // RFC 3876 §2: an attribute that has no values selected is there, without any.
    let (description, values) = (found.attributes.iter())
        .find(|(name, _)| name == "description")
        .unwrap();
    assert!(values.is_empty(), "{description}");
    for (items, mail, description) in [
        (&["(mail=*)"][..], 2, 0),
        (&["(:caseIgnoreMatch:=ann at home)"], 0, 1),
        (&["(description:caseExactMatch:=ann at home)"], 0, 0),
        (&["(mail=nobody@example.com)", "(unknown=*)"], 0, 0),
        (&["(objectClass=*)"], 0, 0),
        (&["(name=*)", "(description>=a)"], 0, 0),
        (&[], 0, 0),
    ] {
        let found = of(&mut client, &dn, &["mail", "description", "cn"], items);
        assert_eq!(found.attributes.len(), 3, "{items:?}");
        assert_eq!(found.values("mail").len(), mail, "{items:?}");
        assert_eq!(found.values("description").len(), description, "{items:?}");
        // A supertype selects values of its subtypes.
        assert_eq!(
            found.values("cn").len(),
            usize::from(items.contains(&"(name=*)"))
        );
    }
    // Only what is asked for, and types as before.
    let found = of(&mut client, &dn, &["1.1"], &["(cn=ann)"]);
    assert!(found.attributes.is_empty());
    let mut types = asked(
        &mut client,
        (&dn, Scope::Base, true),
        &["mail"],
        &["(cn=x)"],
    );
    assert_eq!(
        types.remove(0).attributes,
        [("mail".to_owned(), Vec::new())]
    );
}

#[test]
fn operational_attributes_and_synthetic_entries_take_part() {
    let (server, dn) = person();
    let mut client = server.admin();
    let entry_dn = format!("(entryDN={dn})");
    let items = [&*entry_dn, "(creatorsName=*)", "(mail=*.com)"];
    let found = of(&mut client, &dn, &["*", "+"], &items);
    assert_eq!(found.values("entryDN"), [dn.as_str()]);
    assert_eq!(found.values("creatorsName").len(), 1);
    assert_eq!(found.values("mail"), ["ann@example.com"]);
    for empty in ["entryUUID", "hasSubordinates", "sn", "modifiersName"] {
        let mut named = found.attributes.iter().filter(|(name, _)| name == empty);
        assert!(named.next().unwrap().1.is_empty(), "{empty}");
    }
    let control = format!("(supportedControl:objectIdentifierMatch:={MATCHED_VALUES})");
    let root = of(
        &mut client,
        "",
        &["supportedControl", "namingContexts"],
        &[&control],
    );
    assert_eq!(root.values("supportedControl"), [MATCHED_VALUES]);
    assert!(root.values("namingContexts").is_empty());
    let schema = ["(attributeTypes=2.5.4.3)"];
    let found = of(&mut client, "cn=Subschema", &["attributeTypes"], &schema);
    let [cn] = &found.values("attributeTypes")[..] else {
        panic!("{found:?}");
    };
    assert!(cn.contains("2.5.4.3 "), "{cn}");
}

/// Groups of very many members keep them in another way.
#[test]
fn one_of_very_many_values_is_found() {
    const MEMBERS: usize = 3000;
    let server = TestServer::start();
    let dn = &format!("cn=group,{SUFFIX}");
    let members: Vec<String> = (0..MEMBERS).map(|n| format!("cn={n},{SUFFIX}")).collect();
    let attributes = [
        ("objectClass", "groupOfNames"),
        ("cn", "group"),
        ("member", &members[0]),
    ];
    server.add(&[(dn, &attributes)]);
    let mut client = server.admin();
    let more: Vec<&str> = members[1..].iter().map(String::as_str).collect();
    let add: requests::Change<'_> = (ChangeKind::Add, "member", &more);
    client.tell(&requests::modify(1, dn, &[add])).succeeded();
    let one = format!("(member={})", members[7]);
    let again = format!("(member=CN=7,{SUFFIX})");
    let other = format!("(member={})", members[2999]);
    let nobody = format!("(member=cn=x,{SUFFIX})");
    let items = [&*one, &again, &other, &nobody];
    let mut found = of(&mut client, dn, &[], &items).values("member");
    found.sort();
    assert_eq!(found, [members[2999].as_str(), &members[7]]);
    // One after the other, in many steps.
    let below = format!("(member:dnOneLevelMatch:={SUFFIX})");
    let rounds: Vec<&str> = std::iter::repeat_n(&*nobody, 60).chain([&*below]).collect();
    assert_eq!(
        of(&mut client, dn, &[], &rounds).values("member").len(),
        MEMBERS
    );
    let absent = of(&mut client, dn, &["member"], &[&nobody]);
    assert_eq!(absent.attributes, [("member".to_owned(), Vec::new())]);
}

#[test]
fn what_may_not_be_read_is_not_sent() {
    let (server, dn) = person();
    server.configure(&[(ChangeKind::Replace, "sapwoodAnonymousRead", &["TRUE"])]);
    server.configure(&[(
        ChangeKind::Replace,
        "olcAccess",
        &["{0}to attrs=mail by * search", "{1}to * by * read"],
    )]);
    let mut client = server.connect();
    let found = of(&mut client, &dn, &[], &["(mail=*)", "(sn=*)"]);
    assert_eq!(found.values("sn"), ["x"]);
    assert!(
        !found.attributes.iter().any(|(name, _)| name == "mail"),
        "{found:?}"
    );
}

#[test]
fn nonsense_is_a_protocol_error() {
    let (server, dn) = person();
    let mut client = server.admin();
    let nested = value_of(&["(!(cn=a))"]);
    for value in [None, Some(&b""[..]), Some(b"\x30\x03\x01"), Some(&nested)] {
        let id = client.id();
        let search = requests::search(id, &dn, Scope::Base, "(cn=*)");
        client.send(&requests::with(&search, &[(MATCHED_VALUES, false, value)]));
        client.finish(id)[0].expect(ResultCode::ProtocolError);
    }
    let compare = requests::compare(1000, &dn, "cn", "ann");
    let of_compare = requests::with(&compare, &[(MATCHED_VALUES, true, Some(b"\x30\x00"))]);
    let code = ResultCode::UnavailableCriticalExtension;
    client.tell(&of_compare).expect(code);
}
