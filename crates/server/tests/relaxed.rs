//! The controls relax rules and ignore no-user-modification: what an update may do with them, and who may ask.

#![allow(clippy::unwrap_used)]

use sapwood_ldap::controls::{IGNORE_NO_USER_MODIFICATION, RELAX_RULES};
use sapwood_ldap::filter_text;
use sapwood_ldap::list::ChangeKind::{Add, Delete, Replace};
use sapwood_ldap::list::OctetStringsBuf;
use sapwood_ldap::message::{Request, Scope, SearchRequest};
use sapwood_ldap::result::ResultCode;
use sapwood_testkit::{Client, SUFFIX, TestServer, requests};

/// `secret`.
const STORED: &str = "{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ=";
const UUID: &str = "597ae2f6-16a6-1027-98f4-d28b5365dc14";
const ANN: &str = "cn=ann,dc=example,dc=com";

fn asked(client: &mut Client, message: &[u8], oid: &str) -> ResultCode {
    let message = requests::with(message, &[(oid, true, None)]);
    client.tell(&message).code
}

fn added(client: &mut Client, cn: &str, oid: &str, more: &[(&str, &str)]) -> ResultCode {
    let dn = format!("cn={cn},{SUFFIX}");
    let attributes = [&[("objectClass", "person"), ("cn", cn), ("sn", "x")], more].concat();
    let id = client.id();
    asked(client, &requests::add(id, &dn, &attributes), oid)
}

fn changed(client: &mut Client, dn: &str, changes: &[requests::Change<'_>]) -> ResultCode {
    let id = client.id();
    asked(client, &requests::modify(id, dn, changes), RELAX_RULES)
}

/// The value of an attribute, operational ones included.
fn value(client: &mut Client, dn: &str, attribute: &str) -> String {
    let filter = filter_text::parse("(objectClass=*)").unwrap();
    let attributes = OctetStringsBuf::from_iter(["*", "+"]);
    let mut request = SearchRequest::new(dn, Scope::Base, filter.as_filter());
    request.attributes = attributes.view();
    client.ask_all(Request::Search(request), &[])[0]
        .values(attribute)
        .concat()
}

#[test]
fn an_entry_comes_from_another_server_as_it_was() {
    let server = TestServer::start();
    let mut admin = server.admin();
    let kept = [
        ("entryUUID", UUID),
        ("creatorsName", "cn=old"),
        ("createTimestamp", "20060101000000Z"),
        ("modifiersName", "cn=older"),
        ("modifyTimestamp", "20070101000000Z"),
    ];
    assert_eq!(
        added(&mut admin, "a", RELAX_RULES, &kept),
        ResultCode::Success
    );
    for (attribute, expected) in kept {
        assert_eq!(
            value(&mut admin, &format!("cn=a,{SUFFIX}"), attribute),
            expected
        );
    }
    // Nobody else has its entryUUID.
    for oid in [RELAX_RULES, IGNORE_NO_USER_MODIFICATION] {
        let code = added(&mut admin, "b", oid, &[("entryUUID", UUID)]);
        assert_eq!(code, ResultCode::ConstraintViolation);
    }
    for (wrong, code) in [
        (
            ("entryUUID", "597ae2f6"),
            ResultCode::InvalidAttributeSyntax,
        ),
        (
            ("createTimestamp", "2006"),
            ResultCode::InvalidAttributeSyntax,
        ),
        (
            ("createTimestamp", "20991231000000Z"),
            ResultCode::ConstraintViolation,
        ),
        // It is created now, and was changed before.
        (
            ("modifyTimestamp", "20060101000000Z"),
            ResultCode::ConstraintViolation,
        ),
        (
            ("structuralObjectClass", "person"),
            ResultCode::ConstraintViolation,
        ),
        (("memberOf", "cn=x"), ResultCode::ConstraintViolation),
    ] {
        assert_eq!(
            added(&mut admin, "b", RELAX_RULES, &[wrong]),
            code,
            "{wrong:?}"
        );
    }
    let left_out = [
        ("createTimestamp", "20060101000000Z"),
        ("structuralObjectClass", "device"),
        ("entryCSN", "20060101000000.000000Z#000000#000#000000"),
    ];
    let code = added(&mut admin, "b", IGNORE_NO_USER_MODIFICATION, &left_out);
    assert_eq!(code, ResultCode::Success);
    let dn = &format!("cn=b,{SUFFIX}");
    assert_eq!(value(&mut admin, dn, "createTimestamp"), "20060101000000Z");
    assert_eq!(value(&mut admin, dn, "structuralObjectClass"), "person");
    assert!(value(&mut admin, dn, "entryCSN").as_str() > "2026");
}

#[test]
fn an_entry_gets_another_structural_class_and_other_stamps() {
    let server = TestServer::start();
    let mut admin = server.admin();
    let dn = &format!("o=unit,{SUFFIX}");
    server.add(&[(dn, &[("objectClass", "organization"), ("o", "unit")])]);
    let becomes = |class| -> [requests::Change<'_>; 2] {
        [
            (Delete, "objectClass", &["organization"]),
            (Add, "objectClass", class),
        ]
    };
    let id = admin.id();
    let change = becomes(&["organizationalUnit", "extensibleObject"]);
    let plain = admin.tell(&requests::modify(id, dn, &change));
    assert_eq!(plain.code, ResultCode::ObjectClassModsProhibited);
    // The classes have to fit as always: ou is missing.
    assert_eq!(
        changed(&mut admin, dn, &change),
        ResultCode::ObjectClassViolation
    );
    let mut complete = change.to_vec();
    complete.push((Add, "ou", &["unit"]));
    assert_eq!(changed(&mut admin, dn, &complete), ResultCode::Success);
    assert_eq!(
        value(&mut admin, dn, "structuralObjectClass"),
        "organizationalUnit"
    );
    let alias: [requests::Change<'_>; 3] = [
        (Delete, "objectClass", &["organizationalUnit"]),
        (Add, "objectClass", &["alias"]),
        (Add, "aliasedObjectName", &[SUFFIX]),
    ];
    assert_eq!(
        changed(&mut admin, dn, &alias),
        ResultCode::ObjectClassModsProhibited
    );
    let stamps: [requests::Change<'_>; 3] = [
        (Replace, "createTimestamp", &["20060101000000Z"]),
        (Replace, "modifiersName", &["cn=old"]),
        (Replace, "modifyTimestamp", &["20070101000000Z"]),
    ];
    assert_eq!(changed(&mut admin, dn, &stamps), ResultCode::Success);
    for (_, attribute, values) in stamps {
        assert_eq!(value(&mut admin, dn, attribute), values[0]);
    }
    for wrong in [
        (Replace, "entryUUID", &[UUID][..]),
        (Delete, "createTimestamp", &[]),
        (
            Replace,
            "createTimestamp",
            &["20080101000000Z", "20080101000000Z"],
        ),
        (Replace, "modifyTimestamp", &["20050101000000Z"]),
    ] {
        let code = changed(&mut admin, dn, &[wrong]);
        assert_eq!(code, ResultCode::ConstraintViolation, "{wrong:?}");
    }
}

#[test]
fn who_may_not_manage_an_entry_relaxes_nothing() {
    let server = TestServer::start();
    server.add(&[(
        ANN,
        &[
            ("objectClass", "person"),
            ("sn", "a"),
            ("userPassword", STORED),
        ],
    )]);
    let people = &format!("ou=people,{SUFFIX}");
    server.add(&[(
        people,
        &[("objectClass", "organizationalUnit"), ("ou", "people")],
    )]);
    let rules = [
        "to dn.subtree=\"ou=people,dc=example,dc=com\" by dn.base=\"cn=ann,dc=example,dc=com\" manage",
        "to attrs=userPassword by anonymous auth by * none",
        "to * by users write",
    ];
    server.configure(&[(Replace, "olcAccess", &rules)]);
    let mut ann = server.connect();
    ann.bind(ANN, "secret").succeeded();
    let created = [("createTimestamp", "20060101000000Z")];
    for oid in [RELAX_RULES, IGNORE_NO_USER_MODIFICATION] {
        let code = added(&mut ann, "b", oid, &created);
        assert_eq!(code, ResultCode::InsufficientAccessRights);
    }
    // Whether somebody has an entryUUID is told nobody else either.
    let own = value(&mut server.admin(), ANN, "entryUUID");
    let code = added(&mut ann, "b", RELAX_RULES, &[("entryUUID", &own)]);
    assert_eq!(code, ResultCode::InsufficientAccessRights);
    let stamp: requests::Change<'_> = (Replace, "modifiersName", &["cn=old"]);
    assert_eq!(
        changed(&mut ann, ANN, &[stamp]),
        ResultCode::InsufficientAccessRights
    );
    let id = ann.id();
    let delete = requests::message(id, Request::Delete(ANN));
    let code = asked(&mut ann, &delete, RELAX_RULES);
    assert_eq!(code, ResultCode::InsufficientAccessRights);
    assert_eq!(changed(&mut ann, people, &[stamp]), ResultCode::Success);
    let id = ann.id();
    let dn = format!("cn=b,{people}");
    let attributes = [
        &[("objectClass", "person"), ("cn", "b"), ("sn", "x")][..],
        &created,
    ]
    .concat();
    let add = requests::add(id, &dn, &attributes);
    assert_eq!(asked(&mut ann, &add, RELAX_RULES), ResultCode::Success);
}
