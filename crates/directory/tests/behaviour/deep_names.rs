//! Entries so deep that their names have too many parts: no request makes them, and one that is there nevertheless
//! spoils nothing.

use crate::made::{Directory, in_memory};
use sapwood_directory::access::{DnScope, Rights, Rule, What, Who};
use sapwood_directory::{EntryId, Identity, Policy, Update};
use sapwood_ldap::message::{DerefAliases, Scope};
use sapwood_ldap::result::ResultCode;
use sapwood_testkit::directories::{add, apply, as_admin, refused, rename, seed, succeed};

use crate::query::{Query, query, search};

const PEOPLE: &str = "ou=People,dc=example,dc=com";

fn seeded() -> Directory {
    let directory = in_memory();
    seed(&directory);
    directory
}

fn unit(dn: &str, ou: &str) -> Update {
    as_admin(add(
        dn,
        &format!("objectClass: organizationalUnit\nou: {ou}"),
    ))
}

/// Adds units, of which each is below the one before; their DNs.
fn chain(directory: &Directory, name: &str, length: usize) -> Vec<String> {
    let mut dns = Vec::new();
    let mut above = PEOPLE.to_owned();
    for _ in 0..length {
        above = format!("ou={name},{above}");
        dns.push(above.clone());
    }
    let updates: Vec<Update> = dns.iter().map(|dn| unit(dn, name)).collect();
    let applied = directory.apply(&updates).unwrap();
    let is_done = |code| code == ResultCode::Success;
    assert!(applied.outcomes.iter().all(|outcome| is_done(outcome.code)));
    dns
}

#[test]
fn no_move_takes_entries_so_deep_that_they_cannot_be_named() {
    let directory = seeded();
    let (one, other) = (chain(&directory, "a", 300), chain(&directory, "b", 300));
    let below = |levels: usize| rename(&one[0], "ou=a", false, Some(&other[levels - 1]));
    let outcome = refused(&directory, below(300), ResultCode::AdminLimitExceeded);
    assert!(
        outcome.diagnostic.contains("512 parts"),
        "{}",
        outcome.diagnostic
    );
    // There are three parts above both.
    refused(&directory, below(210), ResultCode::AdminLimitExceeded);
    succeed(&directory, below(209));
    assert!(directory.check(|_| {}).unwrap().problems.is_empty());
}

/// Every search that passed such an entry failed, for all users and all filters.
#[test]
fn what_has_no_name_any_more_is_passed_over() {
    let directory = seeded();
    let (one, other) = (chain(&directory, "a", 505), chain(&directory, "b", 505));
    let alias = format!("cn=alias,{}", one[504]);
    let lines = "objectClass: alias\nobjectClass: extensibleObject\ncn: alias\naliasedObjectName: dc=example,dc=com";
    succeed(&directory, add(&alias, lines));
    // More than is looked at before a move.
    let units: Vec<Update> = (0..4096)
        .map(|n| unit(&format!("ou={n},{}", one[0]), &n.to_string()))
        .collect();
    directory.apply(&units).unwrap();
    succeed(
        &directory,
        rename(&one[0], "ou=a", false, Some(&other[504])),
    );
    let reads = Rule::to(What::everything()).by(Who::Anyone, Rights::UP_TO_READ);
    let elsewhere = Rule::to(What::entries(DnScope::Base, "cn=x")).by(Who::Anyone, Rights::NONE);
    directory
        .set_access(&Policy::from(vec![elsewhere, reads]))
        .unwrap();
    // The suffix, the units above, four of those that were moved, and what is next to the second of them.
    let named = 2 + 505 + 4 + 4096;
    let admin = Identity::Admin {
        dn: "cn=admin".into(),
    };
    let user = Identity::User {
        entry: EntryId(2),
        dn: PEOPLE.into(),
    };
    // The administrator sees one more, as the unit above it has a name.
    for (identity, more) in [(admin, 1), (user, 0)] {
        for deref in [DerefAliases::Never, DerefAliases::Always] {
            for filter in ["(objectClass=*)", "(ou=*)", "(cn=alias)"] {
                let found = search(
                    &directory,
                    &Query {
                        deref,
                        identity: identity.clone(),
                        attributes: &["1.1"],
                        step_entries: 10_000,
                        step_work: 1 << 30,
                        step_bytes: 1 << 30,
                        ..query("dc=example,dc=com", Scope::Subtree, filter)
                    },
                );
                assert_eq!(found.code, ResultCode::Success);
                let expected = match filter {
                    "(cn=alias)" => 0,
                    "(ou=*)" => named - 1 + more,
                    _ => named + more,
                };
                assert_eq!(found.entries.len(), expected, "{filter}");
            }
        }
    }
    assert!(!directory.check(|_| {}).unwrap().problems.is_empty());
    // Closer to the top they are there again.
    let (first, above) = (format!("ou=a,{}", other[504]), "dc=example,dc=com");
    succeed(&directory, rename(&first, "ou=a", false, Some(above)));
    assert!(directory.check(|_| {}).unwrap().problems.is_empty());
    let last = apply(
        &directory,
        rename(&format!("cn=alias,{}", one[504]), "cn=x", true, None),
    );
    assert_eq!(last.code, ResultCode::NoSuchObject, "{last:?}");
}
