//! Updates: results and effects, operation by operation.

use crate::On;
use crate::made::{in_memory, peopled};
use sapwood_directory::engine::Engine;
use sapwood_directory::{Identity, StoreSet, UpdateRequest};
use sapwood_ldap::list::ChangeKind::{Add, Delete, Increment, Replace};
use sapwood_ldap::result::ResultCode;
use sapwood_testkit::directories::*;

const ANNE: &str = "uid=anne,ou=People,dc=example,dc=com";

#[test]
fn an_added_entry_is_there_with_its_operational_attributes() {
    let directory = peopled();
    assert!(holds(
        &directory,
        "UID=Anne, ou=people, DC=EXAMPLE,dc=com",
        "cn",
        "person  ANNE"
    ));
    assert!(
        holds(&directory, ANNE, "objectClass", "organizationalPerson"),
        "superclasses are added"
    );
    assert!(holds(
        &directory,
        ANNE,
        "structuralObjectClass",
        "inetOrgPerson"
    ));
    assert!(holds(
        &directory,
        ANNE,
        "creatorsName",
        "cn=admin,dc=example,dc=com"
    ));
    assert!(holds(&directory, ANNE, "entryDN", ANNE));
    assert!(holds(&directory, ANNE, "hasSubordinates", "FALSE"));
    assert!(holds(
        &directory,
        "ou=People,dc=example,dc=com",
        "numSubordinates",
        "1"
    ));
    assert!(
        holds(&directory, ANNE, "name", "person anne"),
        "subtypes match"
    );
}

#[test]
fn adds_that_cannot_be_are_refused() {
    let directory = in_memory();
    seed(&directory);
    let refuse = |request: UpdateRequest, code| refused(&directory, request, code);
    refuse(person("a,b=c+"), ResultCode::InvalidDnSyntax);
    let outcome = refuse(
        add(
            "cn=x,ou=Nowhere,dc=example,dc=com",
            "objectClass: device\ncn: x",
        ),
        ResultCode::NoSuchObject,
    );
    assert_eq!(outcome.matched_dn, "dc=example,dc=com");
    refuse(
        add("cn=x,dc=elsewhere", "objectClass: device\ncn: x"),
        ResultCode::UnwillingToPerform,
    );
    refuse(
        add("cn=x,o=other", "objectClass: device\ncn: x"),
        ResultCode::NoSuchObject,
    );
    refuse(
        add("", "objectClass: device\ncn: x"),
        ResultCode::EntryAlreadyExists,
    );
    refuse(
        add(
            "ou=PEOPLE,dc=example,dc=com",
            "objectClass: organizationalUnit\nou: People",
        ),
        ResultCode::EntryAlreadyExists,
    );
    let at = "cn=x,dc=example,dc=com";
    refuse(
        add(
            "creatorsName=dc\\=x,dc=example,dc=com",
            "objectClass: device\ncn: y",
        ),
        ResultCode::NamingViolation,
    );
    refuse(
        add(at, "objectClass: device\ncn: x\ncn: X"),
        ResultCode::AttributeOrValueExists,
    );
    refuse(
        add(at, "objectClass: device\ncn: x\nnoSuchThing: 1"),
        ResultCode::UndefinedAttributeType,
    );
    refuse(
        add(at, "objectClass: device\ncn: x\nsn: 1"),
        ResultCode::ObjectClassViolation,
    );
    refuse(
        add(at, "objectClass: person\ncn: x"),
        ResultCode::ObjectClassViolation,
    );
    refuse(add(at, "cn: x"), ResultCode::ObjectClassViolation);
    refuse(
        add(at, "objectClass: noSuchClass\ncn: x"),
        ResultCode::InvalidAttributeSyntax,
    );
    refuse(
        add(at, "objectClass: device\ncn: x\nowner: nonsense"),
        ResultCode::InvalidAttributeSyntax,
    );
    refuse(
        add(
            at,
            "objectClass: device\ncn: x\nentryUUID: 00000000-0000-0000-0000-000000000000",
        ),
        ResultCode::ConstraintViolation,
    );
    assert!(!exists(&directory, at));
}

#[test]
fn the_values_in_its_name_are_values_of_an_entry() {
    let directory = in_memory();
    seed(&directory);
    let at = "cn=x+serialNumber=7,dc=example,dc=com";
    succeed(&directory, add(at, "objectClass: device\ncn: y"));
    assert!(holds(&directory, at, "cn", "x") && holds(&directory, at, "cn", "y"));
    assert!(holds(&directory, at, "serialNumber", "7"));
}

#[test]
fn only_leaves_are_deleted() {
    let directory = peopled();
    refused(
        &directory,
        delete("ou=People,dc=example,dc=com"),
        ResultCode::NotAllowedOnNonLeaf,
    );
    succeed(&directory, delete(ANNE));
    let outcome = refused(&directory, delete(ANNE), ResultCode::NoSuchObject);
    assert_eq!(outcome.matched_dn, "ou=People,dc=example,dc=com");
    succeed(&directory, delete("ou=People,dc=example,dc=com"));
    refused(&directory, delete(""), ResultCode::UnwillingToPerform);
    refused(
        &directory,
        delete("cn=subschema"),
        ResultCode::UnwillingToPerform,
    );
}

#[test]
fn modifications_are_made_in_order_all_or_none() {
    let directory = peopled();
    succeed(
        &directory,
        modify(
            ANNE,
            &[
                (Add, "description", &["one", "two"]),
                (Delete, "description", &["ONE"]),
                (Replace, "title", &["Dr"]),
            ],
        ),
    );
    assert!(!holds(&directory, ANNE, "description", "one"));
    assert!(holds(&directory, ANNE, "description", "Two"));
    let refuse = |changes: &[_], code| refused(&directory, modify(ANNE, changes), code);
    refuse(
        &[
            (Replace, "title", &["Prof"]),
            (Add, "description", &["TWO"]),
        ],
        ResultCode::AttributeOrValueExists,
    );
    assert!(holds(&directory, ANNE, "title", "Dr"));
    refuse(
        &[(Delete, "description", &["three"])],
        ResultCode::NoSuchAttribute,
    );
    refuse(&[(Delete, "mobile", &[])], ResultCode::NoSuchAttribute);
    succeed(&directory, modify(ANNE, &[(Replace, "mobile", &[])]));
    refuse(&[(Delete, "sn", &[])], ResultCode::ObjectClassViolation);
    refuse(&[(Delete, "uid", &["anne"])], ResultCode::NotAllowedOnRdn);
    refuse(&[(Replace, "uid", &["berta"])], ResultCode::NotAllowedOnRdn);
    refuse(
        &[(Add, "uidNumber", &["1"])],
        ResultCode::ObjectClassViolation,
    );
    refuse(
        &[(Replace, "preferredLanguage", &["a", "b"])],
        ResultCode::ConstraintViolation,
    );
    refuse(
        &[(Add, "entryUUID", &["x"])],
        ResultCode::ConstraintViolation,
    );
    refuse(
        &[(Add, "nonsense", &["x"])],
        ResultCode::UndefinedAttributeType,
    );
    refuse(
        &[(Add, "manager", &["no dn"])],
        ResultCode::InvalidAttributeSyntax,
    );
    refuse(
        &[(Delete, "objectClass", &["inetOrgPerson"])],
        ResultCode::ObjectClassModsProhibited,
    );
    refused(
        &directory,
        modify("", &[(Add, "description", &["x"])]),
        ResultCode::UnwillingToPerform,
    );
    succeed(
        &directory,
        modify(
            ANNE,
            &[
                (Add, "objectClass", &["posixAccount"]),
                (Add, "uidNumber", &["41"]),
                (Add, "gidNumber", &["1"]),
                (Add, "homeDirectory", &["/home/anne"]),
            ],
        ),
    );
    succeed(
        &directory,
        modify(ANNE, &[(Increment, "uidNumber", &["-42"])]),
    );
    assert!(holds(&directory, ANNE, "uidNumber", "-1"));
    refuse(
        &[(Increment, "sn", &["1"])],
        ResultCode::ConstraintViolation,
    );
    refuse(
        &[(Increment, "uidNumber", &["1", "2"])],
        ResultCode::ProtocolError,
    );
}

#[test]
fn options_make_attributes_of_their_own() {
    let directory = peopled();
    succeed(
        &directory,
        modify(
            ANNE,
            &[
                (Add, "cn;lang-DE", &["Anna"]),
                (Add, "cn;x-b;lang-de", &["Anni"]),
            ],
        ),
    );
    assert!(holds(&directory, ANNE, "cn", "anni"));
    assert!(holds(&directory, ANNE, "cn;lang-de", "anna"));
    assert!(holds(&directory, ANNE, "cn;lang-de;X-B", "anni"));
    assert!(!holds(&directory, ANNE, "cn;x-b", "anna"));
    succeed(&directory, modify(ANNE, &[(Delete, "cn;lang-de", &[])]));
    assert!(!holds(&directory, ANNE, "cn", "anna"));
    assert!(holds(&directory, ANNE, "cn", "anni"));
}

#[test]
fn a_renamed_subtree_comes_along() {
    let directory = peopled();
    succeed(
        &directory,
        add(
            "ou=Old,dc=example,dc=com",
            "objectClass: organizationalUnit\nou: Old",
        ),
    );
    let people = "ou=People,dc=example,dc=com";
    refused(
        &directory,
        rename(people, "ou=Old", true, None),
        ResultCode::EntryAlreadyExists,
    );
    refused(
        &directory,
        rename(people, "ou=x", true, Some(ANNE)),
        ResultCode::UnwillingToPerform,
    );
    refused(
        &directory,
        rename(people, "ou=x", true, Some("ou=none,dc=example,dc=com")),
        ResultCode::NoSuchObject,
    );
    refused(
        &directory,
        rename(people, "ou=x,ou=y", true, None),
        ResultCode::InvalidDnSyntax,
    );
    refused(
        &directory,
        rename(people, "cn=x", true, None),
        ResultCode::ObjectClassViolation,
    );
    refused(
        &directory,
        rename("dc=example,dc=com", "dc=x", true, None),
        ResultCode::UnwillingToPerform,
    );
    succeed(
        &directory,
        rename(people, "ou=Leute", true, Some("ou=old,dc=example,dc=com")),
    );
    let moved = "uid=anne,ou=Leute,ou=Old,dc=example,dc=com";
    assert!(holds(&directory, moved, "entryDN", moved));
    assert!(!exists(&directory, ANNE));
    assert!(!holds(
        &directory,
        "ou=Leute,ou=Old,dc=example,dc=com",
        "ou",
        "People"
    ));
    succeed(&directory, rename(moved, "cn=Person anne", false, None));
    let moved = "cn=Person anne,ou=Leute,ou=Old,dc=example,dc=com";
    assert!(holds(&directory, moved, "uid", "anne"));
    succeed(&directory, rename(moved, "CN=PERSON Anne", true, None));
    assert!(holds(&directory, moved, "cn", "person anne"));
}

#[test]
fn referral_objects_refer_unless_managed() {
    let directory = in_memory();
    seed(&directory);
    succeed(
        &directory,
        add(
            "ou=Far,dc=example,dc=com",
            "objectClass: referral\nobjectClass: extensibleObject\nou: Far\nref: ldap://far.example/ou=There,dc=far Label",
        ),
    );
    let outcome = refused(
        &directory,
        delete("cn=x,ou=Far,dc=example,dc=com"),
        ResultCode::Referral,
    );
    assert_eq!(
        *outcome.referrals.unwrap(),
        ["ldap://far.example/cn=x,ou=There,dc=far"]
    );
    assert_eq!(outcome.matched_dn, "ou=Far,dc=example,dc=com");
    let outcome = refused(
        &directory,
        delete("ou=Far,dc=example,dc=com"),
        ResultCode::Referral,
    );
    assert_eq!(
        *outcome.referrals.unwrap(),
        ["ldap://far.example/ou=There,dc=far"]
    );
    refused(
        &directory,
        add(
            "cn=x,ou=Far,dc=example,dc=com",
            "objectClass: device\ncn: x",
        ),
        ResultCode::Referral,
    );
    let gone = delete("ou=Far,dc=example,dc=com");
    succeed(&directory, with(gone, &[MANAGE_DSA_IT]));
}

#[test]
fn aliases_have_no_children() {
    let directory = in_memory();
    seed(&directory);
    succeed(
        &directory,
        add(
            "cn=a,dc=example,dc=com",
            "objectClass: alias\nobjectClass: extensibleObject\ncn: a\naliasedObjectName: ou=People,dc=example,dc=com",
        ),
    );
    let outcome = refused(
        &directory,
        add("cn=b,cn=a,dc=example,dc=com", "objectClass: device\ncn: b"),
        ResultCode::AliasProblem,
    );
    assert_eq!(outcome.matched_dn, "cn=a,dc=example,dc=com");
}

#[test]
fn users_change_their_own_password_and_nothing_else() {
    let directory = peopled();
    succeed(&directory, person("berta"));
    let entry = directory
        .snapshot()
        .unwrap()
        .through(|snapshot| snapshot.credentials(ANNE, usize::MAX))
        .unwrap()
        .unwrap()
        .entry;
    let anne = Identity::User {
        entry,
        dn: ANNE.into(),
    };
    let own = modify(ANNE, &[(Replace, "userPassword", &["{SSHA}x"])]);
    assert_eq!(
        apply_as(&directory, anne.clone(), own).code,
        ResultCode::Success
    );
    assert_eq!(
        directory
            .snapshot()
            .unwrap()
            .through(|snapshot| snapshot.credentials(ANNE, usize::MAX))
            .unwrap()
            .unwrap()
            .stored,
        [b"{SSHA}x".to_vec()]
    );
    let set = UpdateRequest::SetPassword {
        entry: None,
        verifiers: Vec::new(),
        replaces: None,
        dn: ANNE.into(),
        stored: b"{SSHA}y".to_vec(),
    };
    assert_eq!(
        apply_as(&directory, anne.clone(), set.clone()).code,
        ResultCode::Success
    );
    assert_eq!(
        directory
            .snapshot()
            .unwrap()
            .through(|snapshot| snapshot.credentials(ANNE, usize::MAX))
            .unwrap()
            .unwrap()
            .stored,
        [b"{SSHA}y".to_vec()]
    );
    for request in [
        modify(ANNE, &[(Replace, "title", &["x"])]),
        modify(
            "uid=berta,ou=People,dc=example,dc=com",
            &[(Replace, "userPassword", &["x"])],
        ),
        person("carla"),
        delete(ANNE),
        rename(ANNE, "uid=x", true, None),
    ] {
        assert_eq!(
            apply_as(&directory, anne.clone(), request).code,
            ResultCode::InsufficientAccessRights
        );
    }
    assert_eq!(
        apply_as(&directory, Identity::Anonymous, delete(ANNE)).code,
        ResultCode::StrongerAuthRequired
    );
    assert_eq!(
        apply_as(&directory, Identity::Anonymous, set).code,
        ResultCode::InsufficientAccessRights
    );
}

#[test]
fn in_a_batch_each_update_stands_alone_and_sees_those_before() {
    let directory = in_memory();
    seed(&directory);
    let updates: Vec<_> = [
        person("anne"),
        person("anne"),
        modify(
            ANNE,
            &[(Add, "cn;x-never", &["x"]), (Add, "nonsense", &["x"])],
        ),
        modify(ANNE, &[(Add, "title", &["Dr"])]),
        person("berta"),
    ]
    .into_iter()
    .map(as_admin)
    .collect();
    let applied = directory.apply(&updates).unwrap();
    let codes: Vec<_> = applied
        .outcomes
        .iter()
        .map(|outcome| outcome.code)
        .collect();
    assert_eq!(
        codes,
        [
            ResultCode::Success,
            ResultCode::EntryAlreadyExists,
            ResultCode::UndefinedAttributeType,
            ResultCode::Success,
            ResultCode::Success
        ]
    );
    assert!(applied.ticket.is_some());
    assert!(holds(&directory, ANNE, "title", "dr"));
    assert!(exists(&directory, "uid=berta,ou=people,dc=example,dc=com"));
    assert!(
        directory
            .apply(&[as_admin(person("anne"))])
            .unwrap()
            .ticket
            .is_none()
    );
}

#[test]
fn a_batch_that_is_told_to_end_leaves_what_is_behind_undone() {
    if <On as Engine>::REMOTE {
        // A bundle that runs again asks again.
        return;
    }
    let directory = in_memory();
    seed(&directory);
    let updates: Vec<_> = ["anne", "anne", "berta", "clara"]
        .map(|name| as_admin(person(name)))
        .into();
    let mut asked = 0;
    let mut goes_on = || {
        asked += 1;
        asked < 3
    };
    let shards = StoreSet::FIRST;
    let applied = directory
        .apply_while(&updates, shards, &mut goes_on)
        .unwrap();
    let codes: Vec<_> = applied
        .outcomes
        .iter()
        .map(|outcome| outcome.code)
        .collect();
    assert_eq!(
        codes,
        [
            ResultCode::Success,
            ResultCode::EntryAlreadyExists,
            ResultCode::Success
        ]
    );
    assert!(applied.ticket.is_some());
    assert!(exists(&directory, "uid=berta,ou=people,dc=example,dc=com"));
    assert!(!exists(&directory, "uid=clara,ou=people,dc=example,dc=com"));
}
