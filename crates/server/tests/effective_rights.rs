//! Get Effective Rights: what each entry tells of the rights of who asks, and of others.

#![allow(clippy::unwrap_used)]

use sapwood_ldap::controls::{GET_EFFECTIVE_RIGHTS, GetEffectiveRights};
use sapwood_ldap::filter_text;
use sapwood_ldap::list::ChangeKind::Replace;
use sapwood_ldap::list::OctetStringsBuf;
use sapwood_ldap::message::{Request, Scope, SearchRequest};
use sapwood_ldap::result::ResultCode;
use sapwood_testkit::{ADMIN, Answer, Client, SUFFIX, TestServer};

const ANN: &str = "cn=ann,dc=example,dc=com";
const BEN: &str = "cn=ben,dc=example,dc=com";
/// `secret`.
const STORED: &str = "{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ=";

fn server() -> TestServer {
    let server = TestServer::start();
    for (dn, sn) in [(ANN, "a"), (BEN, "b")] {
        let person = [
            ("objectClass", "person"),
            ("sn", sn),
            ("description", "x"),
            ("userPassword", STORED),
        ];
        server.add(&[(dn, &person)]);
    }
    let rules = [
        "to attrs=userPassword by self =xw by anonymous auth by * none",
        "to attrs=description by self write by * none",
        "to dn.base=\"cn=ann,dc=example,dc=com\" attrs=entry \
         by dn.base=\"cn=ben,dc=example,dc=com\" manage by users read",
        "to attrs=children by users add by * none",
        "to attrs=sn by self write by users read",
        "to * by users read",
    ];
    server.configure(&[(Replace, "olcAccess", &rules)]);
    server
}

fn bound(server: &TestServer, dn: &str) -> Client {
    let mut client = server.connect();
    client.bind(dn, "secret").succeeded();
    client
}

/// What is answered to a search for an entry, or for all, with a control value.
fn ask(client: &mut Client, base: &str, scope: Scope, value: Option<&[u8]>) -> Vec<Answer> {
    let filter = filter_text::parse("(objectClass=person)").unwrap();
    let request = SearchRequest::new(base, scope, filter.as_filter());
    let control = (GET_EFFECTIVE_RIGHTS, true, value);
    client.ask_all(Request::Search(request), &[control])
}

/// The rights on an entry, and on its attributes in the order of their names.
fn rights(client: &mut Client, dn: &str, value: Option<&[u8]>) -> (String, String) {
    let answers = ask(client, dn, Scope::Base, value);
    answers.last().unwrap().succeeded();
    let told = |name: &str| answers[0].values(name).concat();
    (
        told("entryLevelRights"),
        sorted(&told("attributeLevelRights")),
    )
}

fn sorted(list: &str) -> String {
    let mut each: Vec<&str> = list.split(", ").collect();
    each.sort_unstable();
    each.join(", ")
}

fn value(dn: Option<&str>, attributes: &[&str]) -> Vec<u8> {
    let attributes: OctetStringsBuf = attributes.iter().collect();
    let asked = GetEffectiveRights {
        dn,
        attributes: attributes.view(),
    };
    let mut value = Vec::new();
    asked.encode(&mut value);
    value
}

#[test]
fn everybody_learns_the_own_rights() {
    let server = server();
    let mut ann = bound(&server, ANN);
    let own = "cn:rsc, description:rscwo, objectClass:rsc, sn:rscwo";
    assert_eq!(rights(&mut ann, ANN, None), ("va".into(), own.into()));
    // What may not be read is not listed, unless it is named: then it is told whether it is there or not.
    let others = "cn:rsc, objectClass:rsc, sn:rsc";
    assert_eq!(rights(&mut ann, BEN, None), ("va".into(), others.into()));
    let named = value(None, &["userPassword", "nonsense", "mail", "description"]);
    let told = format!("description:none, mail:rsc, userPassword:none, {others}");
    assert_eq!(rights(&mut ann, BEN, Some(&named)).1, sorted(&told));
    let told = format!("mail:rsc, userPassword:wo, {own}");
    assert_eq!(rights(&mut ann, ANN, Some(&named)).1, sorted(&told));
}

#[test]
fn the_rights_of_others_are_told_to_who_manages_the_entry() {
    let server = server();
    let of_ann = b"dn:cn=ann,dc=example,dc=com".as_slice();
    let told = "cn:rsc, description:rscwo, objectClass:rsc, sn:rscwo, userPassword:wo";
    let mut admin = server.admin();
    let of_other = rights(&mut admin, ANN, Some(of_ann));
    assert_eq!(of_other, ("va".into(), told.into()));
    let nobody = rights(&mut admin, ANN, Some(b"dn:"));
    assert_eq!(nobody.0, "none");
    let mut own = rights(&mut admin, ANN, None);
    assert_eq!(own.0, "vadn");
    own = rights(&mut admin, ANN, Some(format!("dn:{ADMIN}").as_bytes()));
    assert_eq!(own.0, "vadn");
    // Who has no entry has the rights of those who are bound.
    let stranger = rights(&mut admin, ANN, Some(b"dn:cn=nobody,o=x"));
    assert_eq!(stranger.0, "va");
    // Ben manages the entry of Ann, and not his own.
    let mut ben = bound(&server, BEN);
    let answers = ask(&mut ben, SUFFIX, Scope::Subtree, Some(of_ann));
    answers.last().unwrap().succeeded();
    let of = |dn: &str| {
        answers
            .iter()
            .find(|answer| answer.entry.as_deref() == Some(dn))
    };
    assert_eq!(of(ANN).unwrap().values("entryLevelRights"), ["va"]);
    assert!(of(BEN).unwrap().values("entryLevelRights").is_empty());
}

#[test]
fn what_names_nobody_is_refused() {
    let server = server();
    let mut ann = bound(&server, ANN);
    for (wrong, code) in [
        (b"u:ann".as_slice(), ResultCode::ProtocolError),
        (b"ann", ResultCode::ProtocolError),
        (b"dn:no dn", ResultCode::InvalidDnSyntax),
    ] {
        let answers = ask(&mut ann, ANN, Scope::Base, Some(wrong));
        answers.last().unwrap().expect(code);
    }
}
