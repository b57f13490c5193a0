//! Dereference: entries that come with attributes of those that they name.

#![allow(clippy::unwrap_used)]

use sapwood_ldap::ber::{self, Reader};
use sapwood_ldap::controls::DEREFERENCE;
use sapwood_ldap::filter_text;
use sapwood_ldap::list::Attributes;
use sapwood_ldap::list::ChangeKind::{Add, Replace};
use sapwood_ldap::message::{Request, Scope, SearchRequest};
use sapwood_ldap::result::ResultCode;
use sapwood_testkit::{Answer, Client, SUFFIX, TestServer, requests};

const ANN: &str = "cn=ann,dc=example,dc=com";
const BEN: &str = "cn=ben,dc=example,dc=com";
const GONE: &str = "cn=gone,dc=example,dc=com";
const CREW: &str = "cn=crew,dc=example,dc=com";
/// `secret`.
const STORED: &str = "{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ=";

fn server() -> TestServer {
    let server = TestServer::start();
    for (dn, sn, manager) in [(ANN, "Harbor", BEN), (BEN, "Anchor", GONE)] {
        let person = [
            ("objectClass", "inetOrgPerson"),
            ("sn", sn),
            ("manager", manager),
            ("userPassword", STORED),
        ];
        server.add(&[(dn, &person)]);
    }
    let crew = [
        ("objectClass", "groupOfNames"),
        ("cn", "crew"),
        ("member", ANN),
        ("owner", ANN),
    ];
    server.add(&[(CREW, &crew)]);
    let more = requests::modify(1, CREW, &[(Add, "member", &[BEN, GONE])]);
    server.admin().tell(&more).succeeded();
    server
}

type Specs<'s> = &'s [(&'s str, &'s [&'s str])];

fn value(specs: Specs<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    let list = ber::open(&mut out, ber::SEQUENCE, 0);
    for (followed, attributes) in specs {
        let spec = ber::open(&mut out, ber::SEQUENCE, 0);
        ber::put_octets(&mut out, ber::OCTET_STRING, followed.as_bytes());
        let asked = ber::open(&mut out, ber::SEQUENCE, 0);
        for attribute in *attributes {
            ber::put_octets(&mut out, ber::OCTET_STRING, attribute.as_bytes());
        }
        ber::close(&mut out, asked);
        ber::close(&mut out, spec);
    }
    ber::close(&mut out, list);
    out
}

fn ask(client: &mut Client, base: &str, specs: Specs<'_>, is_critical: bool) -> Vec<Answer> {
    let filter = filter_text::parse("(objectClass=*)").unwrap();
    let request = SearchRequest::new(base, Scope::Base, filter.as_filter());
    let value = value(specs);
    let control = (DEREFERENCE, is_critical, Some(value.as_slice()));
    client.ask_all(Request::Search(request), &[control])
}

/// What comes with an entry: `member cn=ann,… cn=ann sn=Harbor`, a line for each value.
fn told(client: &mut Client, base: &str, specs: Specs<'_>) -> Vec<String> {
    let answers = ask(client, base, specs, true);
    answers.last().unwrap().succeeded();
    let controls = &answers[0].controls;
    let control = controls.iter().find(|(oid, _)| oid == DEREFERENCE);
    let Some((_, value)) = control else {
        return Vec::new();
    };
    let text = |octets: &[u8]| String::from_utf8(octets.to_vec()).unwrap();
    let mut list = Reader::new(Reader::new(value).expect(ber::SEQUENCE, "list").unwrap());
    let mut lines = Vec::new();
    while !list.is_empty() {
        let mut result = Reader::new(list.expect(ber::SEQUENCE, "result").unwrap());
        let followed = text(result.octets("derefAttr").unwrap());
        let dn = text(result.octets("derefVal").unwrap());
        let mut line = format!("{followed} {}", dn.split(',').next().unwrap());
        let attributes = result.optional(ber::context_constructed(0), "attrVals");
        if let Some(attributes) = attributes.unwrap() {
            let attributes = Attributes::from_ber(attributes).unwrap();
            assert!(!attributes.is_empty());
            for attribute in attributes {
                for value in attribute.values {
                    line += &format!(" {}={}", text(attribute.description), text(value));
                }
            }
        }
        result.end().unwrap();
        lines.push(line);
    }
    lines
}

#[test]
fn values_are_followed_to_what_they_name() {
    let server = server();
    let mut admin = server.admin();
    let by_member = told(&mut admin, CREW, &[("MEMBER", &["sn", "CN", "mail"])]);
    assert_eq!(
        by_member,
        [
            "member cn=ann sn=Harbor cn=ann",
            "member cn=ben sn=Anchor cn=ben",
            "member cn=gone",
        ]
    );
    let several: Specs<'_> = &[("owner", &["hasSubordinates"]), ("seeAlso", &["cn"])];
    assert_eq!(
        told(&mut admin, CREW, several),
        ["owner cn=ann hasSubordinates=FALSE"]
    );
    // Subtypes are others.
    let name: Specs<'_> = &[("owner", &["name"])];
    assert_eq!(told(&mut admin, CREW, name), ["owner cn=ann"]);
    // What is computed is followed, too.
    let own: Specs<'_> = &[("entryDN", &["cn"])];
    assert_eq!(told(&mut admin, CREW, own), ["entryDN cn=crew cn=crew"]);
    // Nothing to follow.
    assert!(told(&mut admin, SUFFIX, &[("member", &["cn"])]).is_empty());
    assert!(told(&mut admin, "", &[("subschemaSubentry", &["cn"])]).is_empty());
}

#[test]
fn what_may_not_be_seen_is_not_told() {
    let server = server();
    let mut client = server.connect();
    client.bind(ANN, "secret").succeeded();
    let specs: Specs<'_> = &[("member", &["cn", "sn", "userPassword"])];
    let mut with = |rules: &[&str]| {
        let mut all = vec!["to attrs=userPassword by anonymous auth by * none"];
        all.extend(rules);
        all.push("to * by * read");
        server.configure(&[(Replace, "olcAccess", &all)]);
        told(&mut client, CREW, specs)
    };
    let whole = [
        "member cn=ann cn=ann sn=Harbor",
        "member cn=ben cn=ben sn=Anchor",
        "member cn=gone",
    ];
    assert_eq!(with(&[]), whole);
    // As if it were not there.
    for hidden in ["by * none", "by * =r", "by * =s"] {
        let rule = format!("to dn.base=\"{BEN}\" attrs=entry {hidden}");
        assert_eq!(
            with(&[&rule]),
            [whole[0], "member cn=ben", whole[2]],
            "{hidden}"
        );
    }
    assert_eq!(
        with(&["to attrs=sn by * search"]),
        ["member cn=ann cn=ann", "member cn=ben cn=ben", whole[2]]
    );
    let value = format!("to attrs=member val.exact=\"{BEN}\" by * none");
    assert_eq!(with(&[&value]), [whole[0], whole[2]]);
    assert!(with(&["to attrs=member by * search"]).is_empty());
}

#[test]
fn requests_are_refused_as_slapd_refuses_them() {
    let server = server();
    let mut admin = server.admin();
    for (specs, critical, code) in [
        (
            &[("nonsense", &["cn"][..])][..],
            false,
            ResultCode::ProtocolError,
        ),
        (
            &[("member", &["cn"]), ("MEMBER", &["sn"])],
            false,
            ResultCode::ProtocolError,
        ),
        (&[("cn", &["cn"])], true, ResultCode::ProtocolError),
        (&[("cn", &["cn"])], false, ResultCode::Success),
        (&[("member", &[])], false, ResultCode::ProtocolError),
    ] {
        let answers = ask(&mut admin, CREW, specs, critical);
        answers.last().unwrap().expect(code);
        assert!(answers[0].controls.is_empty());
    }
}

#[test]
fn too_much_is_not_told_at_all() {
    let server = server();
    let mut admin = server.admin();
    let names: Vec<String> = (0..1000)
        .map(|number| format!("cn=m{number},{SUFFIX}"))
        .collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let group = [
        ("objectClass", "groupOfNames"),
        ("cn", "many"),
        ("member", ANN),
    ];
    let many = format!("cn=many,{SUFFIX}");
    server.add(&[(&many, &group)]);
    let specs: Specs<'_> = &[("member", &["sn"])];
    let add = requests::modify(1, &many, &[(Add, "member", &names[..999])]);
    admin.tell(&add).succeeded();
    let lines = told(&mut admin, &many, specs);
    assert_eq!(lines.len(), 1000);
    assert!(lines.contains(&"member cn=ann sn=Harbor".to_owned()));
    let add = requests::modify(1, &many, &[(Add, "member", &names[999..])]);
    admin.tell(&add).succeeded();
    assert!(told(&mut admin, &many, specs).is_empty());
    // Nor does an entry come along that has very many values.
    let owner = requests::modify(1, CREW, &[(Replace, "owner", &[&many])]);
    admin.tell(&owner).succeeded();
    assert!(told(&mut admin, CREW, &[("owner", &["member"])]).is_empty());
    assert_eq!(
        told(&mut admin, CREW, &[("owner", &["cn"])]),
        ["owner cn=many cn=many"]
    );
}
