//! What an outcome says when an entry is not there: which one, and what there is near it.

use crate::made::{Directory, in_memory, peopled};
use crate::query::{Query, asked, query, steps};
use sapwood_directory::{Outcome, Search, SearchOptions, Step};
use sapwood_ldap::list::ChangeKind::Replace;
use sapwood_ldap::message::Scope;
use sapwood_ldap::result::ResultCode;
use sapwood_testkit::SUFFIX;
use sapwood_testkit::directories::{add, delete, modify, refused, rename, succeed};

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

#[test]
fn indexes_that_would_help_are_named() {
    let directory = peopled();
    let lines = "objectClass: inetOrgPerson\ncn: x\nsn: x\ntitle: x\nl: x\nmail: x@example.com\njpegPhoto: x";
    succeed(&directory, add(&format!("cn=x,{PEOPLE}"), lines));
    let refused = |filter: &str| {
        let asked = Query {
            options: SearchOptions {
                candidates_max: 1,
                ..SearchOptions::default()
            },
            ..query(SUFFIX, Scope::Subtree, filter)
        };
        let (_, outcome) = asked_of(&directory, &asked);
        assert_eq!(outcome.code, ResultCode::AdminLimitExceeded);
        outcome.diagnostic
    };
    let added = |spec: &str| format!("'sapwood index DIR add \"{spec}\"'");
    for (filter, missing) in [
        ("(title=x)", &["title eq"][..]),
        ("(|(title=x*)(l=*))", &["l pres", "title sub"]),
        // What cannot be made is not named: sn has no ordering rule, and jpegPhoto none at all.
        ("(|(cn=*)(sn>=a))", &[]),
        ("(mail~=x)", &["mail approx"]),
        (
            "(createTimestamp~=20260101000000Z)",
            &["createTimestamp eq"],
        ),
        ("(sn~=x)", &["sn approx"]),
        ("(|(cn=*)(jpegPhoto=x))", &[]),
        ("(!(title=x))", &[]),
        (
            "(createTimestamp>=20260101000000Z)",
            &["createTimestamp ord"],
        ),
    ] {
        let told = refused(filter);
        for spec in missing {
            assert!(told.contains(&added(spec)), "{filter}: {told}");
        }
        assert_eq!(
            told.matches("sapwood index").count(),
            missing.len(),
            "{told}"
        );
    }
}

/// A search with its outcome.
fn asked_of(directory: &Directory, query: &Query<'_>) -> (Vec<u8>, Outcome) {
    asked(query, |request| {
        let requester = directory.requester(query.identity.clone());
        let snapshot = directory.snapshot().unwrap();
        let mut search = Search::new(snapshot, &requester, request, query.options.clone());
        steps(query, |wire, budget| {
            let step = search.step(wire, budget).unwrap();
            if step == Step::Fetch {
                search.snapshot().fetch().unwrap();
            }
            step
        })
    })
}
