//! What an outcome says when an entry is not there: which one, and what there is near it.

use crate::made::{in_memory, peopled};
use sapwood_ldap::list::ChangeKind::Replace;
use sapwood_ldap::result::ResultCode;
use sapwood_testkit::directories::{add, delete, modify, refused, rename};

const PEOPLE: &str = "ou=People,dc=example,dc=com";

#[track_caller]
fn says(outcome: &sapwood_directory::Outcome, matched: &str, parts: &[&str]) {
    assert_eq!(outcome.matched_dn, matched);
    for part in parts {
        assert!(outcome.diagnostic.contains(part), "{}", outcome.diagnostic);
    }
}

#[test]
fn a_missing_parent_is_named() {
    let directory = peopled();
    let dn = format!("cn=x,ou=B,ou=A,{PEOPLE}");
    let outcome = refused(
        &directory,
        add(&dn, "objectClass: person\ncn: x\nsn: x"),
        ResultCode::NoSuchObject,
    );
    says(
        &outcome,
        PEOPLE,
        &[
            "'ou=B,ou=A,ou=People,dc=example,dc=com'",
            &format!("'{PEOPLE}'"),
        ],
    );
    let superior = format!("ou=A,{PEOPLE}");
    let moved = rename(
        &format!("uid=anne,{PEOPLE}"),
        "uid=anne",
        false,
        Some(&superior),
    );
    says(
        &refused(&directory, moved, ResultCode::NoSuchObject),
        PEOPLE,
        &["newSuperior", &superior],
    );
}

#[test]
fn a_missing_entry_is_named() {
    let directory = peopled();
    let dn = format!("cn=x,ou=A,{PEOPLE}");
    for request in [
        delete(&dn),
        modify(&dn, &[(Replace, "sn", &["x"])]),
        rename(&dn, "cn=y", true, None),
    ] {
        let outcome = refused(&directory, request, ResultCode::NoSuchObject);
        says(&outcome, PEOPLE, &[&dn, &format!("'{PEOPLE}'")]);
    }
}

#[test]
fn an_empty_naming_context_is_named() {
    let directory = in_memory();
    let added = add("ou=x,o=other", "objectClass: organizationalUnit\nou: x");
    for request in [added, delete("ou=x,o=other"), delete("o=other")] {
        says(
            &refused(&directory, request, ResultCode::NoSuchObject),
            "",
            &["'o=other' is empty"],
        );
    }
}
