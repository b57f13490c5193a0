//! Subentries (RFC 3672) are there for who asks for them by name, and in no other search.

use std::collections::BTreeSet;

use crate::made::{Directory, in_stores, over, peopled};
use sapwood_directory::engine::{self, Bundle, Embedded, Engine, StoreSet, Table, Ticket, Verdict};
use sapwood_directory::engine::{Cursor, Direction, Range, Write};
use sapwood_ldap::list::ChangeKind::Replace;
use sapwood_ldap::message::Scope;
use sapwood_ldap::result::ResultCode;
use sapwood_testkit::directories::{
    add, config, delete, holds, modify, options, person, refused, rename, seed, succeed,
};

use crate::query::{query, search};

const PEOPLE: &str = "ou=People,dc=example,dc=com";
const SUBENTRY: &str = "cn=Rules,ou=People,dc=example,dc=com";

fn subentry() -> sapwood_directory::UpdateRequest {
    add(
        SUBENTRY,
        "objectClass: subentry\nobjectClass: extensibleObject\ncn: Rules\nsubtreeSpecification: { }\nuid: rules",
    )
}

/// What searches find, but for one of base scope; and the subentry itself.
fn is_hidden<E: Engine>(directory: &Directory<E>, dn: &str) {
    for filter in [
        "(objectClass=*)",
        "(objectClass=subentry)",
        "(uid=rules)",
        "(cn=*)",
    ] {
        for base in ["", "dc=example,dc=com", PEOPLE, dn] {
            for scope in [Scope::OneLevel, Scope::Subtree, Scope::Subordinates] {
                let found = search(directory, &query(base, scope, filter));
                assert_eq!(found.code, ResultCode::Success);
                assert!(!found.dns().contains(dn), "{base:?} {scope:?} {filter}");
            }
        }
        let found = search(directory, &query(dn, Scope::Base, filter));
        assert_eq!(found.dns(), BTreeSet::from([dn]), "{filter}");
    }
}

#[test]
fn only_searches_of_base_scope_see_subentries() {
    let directory = peopled();
    succeed(&directory, subentry());
    is_hidden(&directory, SUBENTRY);
    let people = search(
        &directory,
        &query(PEOPLE, Scope::OneLevel, "(objectClass=*)"),
    );
    assert_eq!(
        people.dns(),
        BTreeSet::from(["uid=anne,ou=People,dc=example,dc=com"])
    );
    // It stays one when it is changed and renamed.
    succeed(
        &directory,
        modify(SUBENTRY, &[(Replace, "description", &["x"])]),
    );
    is_hidden(&directory, SUBENTRY);
    succeed(&directory, rename(SUBENTRY, "cn=Others", false, None));
    let renamed = "cn=Others,ou=People,dc=example,dc=com";
    is_hidden(&directory, renamed);
    assert!(holds(&directory, renamed, "cn", "rules"));

    let spread = in_stores();
    seed(&spread);
    succeed(&spread, subentry());
    is_hidden(&spread, SUBENTRY);
}

/// What a search with the control finds.
fn with_control<E: Engine>(
    directory: &Directory<E>,
    base: &str,
    scope: Scope,
    filter: &str,
    subentries: bool,
) -> BTreeSet<String> {
    let mut asked = query(base, scope, filter);
    asked.options.subentries = Some(subentries);
    let found = search(directory, &asked);
    assert_eq!(found.code, ResultCode::Success);
    assert!(found.references.is_empty() || !subentries);
    found.dns().into_iter().map(str::to_owned).collect()
}

/// RFC 3672 §3.
#[test]
fn the_control_shows_subentries_and_them_only() {
    let directory = peopled();
    let spread = in_stores();
    seed(&spread);
    succeed(&spread, person("anne"));
    for directory in [&directory, &spread] {
        succeed(directory, subentry());
        let elsewhere = "cn=Top,dc=example,dc=com";
        let of_top = "objectClass: subentry\ncn: Top\nsubtreeSpecification: {}";
        succeed(directory, add(elsewhere, of_top));
        let seen = |base: &str, scope, filter: &str, subentries| {
            with_control(directory, base, scope, filter, subentries)
        };
        let some = |dns: &[&str]| dns.iter().map(|dn| (*dn).to_owned()).collect();
        for (base, scope, filter, expected) in [
            (
                "",
                Scope::Subtree,
                "(objectClass=*)",
                some(&[SUBENTRY, elsewhere]),
            ),
            (
                "dc=example,dc=com",
                Scope::Subtree,
                "(cn=*)",
                some(&[SUBENTRY, elsewhere]),
            ),
            (
                "dc=example,dc=com",
                Scope::OneLevel,
                "(cn=*)",
                some(&[elsewhere]),
            ),
            (
                "dc=example,dc=com",
                Scope::Subordinates,
                "(uid=rules)",
                some(&[SUBENTRY]),
            ),
            (
                "dc=example,dc=com",
                Scope::Base,
                "(objectClass=*)",
                some(&[]),
            ),
            ("dc=example,dc=com", Scope::Subtree, "(uid=anne)", some(&[])),
            (PEOPLE, Scope::Subtree, "(!(uid=nobody))", some(&[SUBENTRY])),
            (SUBENTRY, Scope::Base, "(objectClass=*)", some(&[SUBENTRY])),
            (
                SUBENTRY,
                Scope::Subtree,
                "(objectClass=*)",
                some(&[SUBENTRY]),
            ),
        ] {
            let expected: BTreeSet<String> = expected;
            assert_eq!(
                seen(base, scope, filter, true),
                expected,
                "{base:?} {scope:?} {filter}"
            );
            // All others, and no subentry, not even as the base.
            let normal = seen(base, scope, filter, false);
            assert!(normal.is_disjoint(&expected), "{normal:?}");
            let without = search(directory, &query(base, scope, filter));
            let without = without.dns().into_iter().map(str::to_owned);
            let without: BTreeSet<String> = without.filter(|dn| dn != SUBENTRY).collect();
            assert_eq!(normal, without, "{base:?} {scope:?} {filter}");
        }
    }
}

/// Each page goes on where the one before ended, and a cookie of the other kind of search leads nowhere.
#[test]
fn subentries_come_in_pages() {
    let directory = peopled();
    for number in 0..5 {
        let lines = format!("objectClass: subentry\ncn: {number}\nsubtreeSpecification: {{}}");
        succeed(&directory, add(&format!("cn={number},{PEOPLE}"), &lines));
    }
    let page = |cookie: &[u8], subentries| {
        let mut asked = query("dc=example,dc=com", Scope::Subtree, "(objectClass=*)");
        asked.options.subentries = subentries;
        asked.options.page = Some((2, cookie.to_vec()));
        search(&directory, &asked)
    };
    let (mut seen, mut cookie) = (Vec::new(), Vec::new());
    loop {
        let found = page(&cookie, Some(true));
        assert_eq!(found.code, ResultCode::Success);
        seen.extend(found.entries.into_iter().map(|(dn, _)| dn));
        if found.cookie.is_empty() {
            break;
        }
        let other = page(&found.cookie, None);
        assert_eq!(other.code, ResultCode::UnwillingToPerform);
        cookie = found.cookie;
    }
    let all: BTreeSet<_> = seen.iter().collect();
    assert_eq!((seen.len(), all.len()), (5, 5), "{seen:?}");
}

/// They stand in the way of a delete as all children do, and are counted as such.
#[test]
fn subentries_are_children_and_have_none() {
    let directory = peopled();
    succeed(&directory, subentry());
    assert!(holds(&directory, PEOPLE, "numSubordinates", "2"));
    succeed(&directory, delete("uid=anne,ou=People,dc=example,dc=com"));
    assert!(holds(&directory, PEOPLE, "hasSubordinates", "TRUE"));
    refused(&directory, delete(PEOPLE), ResultCode::NotAllowedOnNonLeaf);
    let below = add(&format!("uid=x,{SUBENTRY}"), "objectClass: account\nuid: x");
    let outcome = refused(&directory, below, ResultCode::ObjectClassViolation);
    assert!(
        outcome.diagnostic.contains(SUBENTRY),
        "{}",
        outcome.diagnostic
    );
    succeed(&directory, person("ben"));
    let moved = rename(
        "uid=ben,ou=People,dc=example,dc=com",
        "uid=ben",
        false,
        Some(SUBENTRY),
    );
    refused(&directory, moved, ResultCode::ObjectClassViolation);
}

/// Takes all flags out of the records of entries and names, as they were before there was one for subentries.
struct WithoutFlags;

impl Bundle for WithoutFlags {
    fn operations(&self) -> usize {
        1
    }

    fn stores(&self) -> StoreSet {
        StoreSet::FIRST
    }

    fn begin<T: Write>(&mut self, _: &mut T) -> engine::Result<()> {
        Ok(())
    }

    fn apply<T: Write>(&mut self, txn: &mut T, _: usize) -> engine::Result<Verdict> {
        for table in [Table::Name, Table::Entry] {
            let mut records = Vec::new();
            let mut scan = txn.scan(table, Range::ALL, Direction::Forward)?;
            while let Some((key, record)) = scan.next()? {
                records.push((key.to_vec(), record.to_vec()));
            }
            drop(scan);
            for (key, mut record) in records {
                let flags = if table == Table::Name { 8 } else { 1 };
                record[flags] = 0;
                txn.put(table, &key, &record)?;
            }
        }
        Ok(Verdict::Keep)
    }

    fn finish<T: Write>(&mut self, _: &mut T) -> engine::Result<()> {
        Ok(())
    }
}

#[test]
fn those_of_an_older_directory_are_flagged_when_it_is_opened() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("data");
    let open = |create| {
        let store = sapwood_store::Options::new().create(create);
        over(Embedded::open(&path, &store).unwrap())
    };
    let directory = Directory::create_on(open(true), &config(), options()).unwrap();
    seed(&directory);
    succeed(&directory, person("anne"));
    succeed(&directory, subentry());
    let ticket = directory
        .engine()
        .write(&mut WithoutFlags)
        .unwrap()
        .unwrap();
    ticket.wait().unwrap();
    drop(directory);
    let directory = Directory::open_on(open(false), options()).unwrap();
    is_hidden(&directory, SUBENTRY);
    let below = add(&format!("uid=x,{SUBENTRY}"), "objectClass: account\nuid: x");
    refused(&directory, below, ResultCode::ObjectClassViolation);
    assert_eq!(
        directory.check(|_| {}).unwrap().problems,
        Vec::<String>::new()
    );
    let commit = directory.snapshot().unwrap().commit();
    drop(directory);
    // Once.
    let directory = Directory::open_on(open(false), options()).unwrap();
    assert_eq!(directory.snapshot().unwrap().commit(), commit);
}
