//! A search under way goes on with the data, and with the rights, as they are by then.

use std::cell::Cell;

use sapwood_directory::{Budget, Identity, Search, Step, Wire};
use sapwood_ldap::controls::Controls;
use sapwood_ldap::list::ChangeKind::{Delete, Replace};
use sapwood_ldap::message::Scope;
use sapwood_ldap::result::ResultCode;
use sapwood_testkit::Answer;
use sapwood_testkit::directories::{add, delete, modify, person, rename, succeed};

use crate::made::{Directory, in_memory, in_stores};
use crate::query::{Query, asked, query};

const PEOPLE: &str = "ou=People,dc=example,dc=com";
const SUFFIX: &str = "dc=example,dc=com";

fn dn(uid: &str) -> String {
    format!("uid={uid},{PEOPLE}")
}

/// Five people.
fn populate(directory: &Directory) {
    sapwood_testkit::directories::seed(directory);
    for uid in ["a", "b", "c", "d", "e"] {
        succeed(directory, person(uid));
    }
}

/// Has a search go on in the newest snapshot before each step, and `change` the directory once it has found an entry.
fn renewed(
    directory: &Directory,
    query: &Query<'_>,
    change: impl FnOnce(),
) -> (Vec<String>, ResultCode) {
    let mut out = Vec::new();
    let mut change = Some(change);
    let entries = |out: &[u8]| -> Vec<String> {
        let answers = Answer::all(out);
        answers
            .into_iter()
            .filter_map(|answer| answer.entry)
            .collect()
    };
    let code = asked(query, |request| {
        let requester = directory.requester(query.identity.clone());
        let (snapshot, options) = (directory.snapshot().unwrap(), query.options.clone());
        let mut search = Search::new(snapshot, &requester, request, options);
        loop {
            let budget = Budget {
                entries: 1,
                work: 1 << 20,
                out_bytes: 1 << 20,
            };
            let mut wire = Wire::new(&mut out, 1, Controls::EMPTY);
            match search.step(&mut wire, budget).unwrap() {
                Step::Done(outcome) => return outcome.code,
                Step::Fetch => search.snapshot().fetch().unwrap(),
                Step::More => {}
                Step::Room(_) | Step::Wait => panic!("there is room, and an end"),
            }
            if !entries(&out).is_empty()
                && let Some(change) = change.take()
            {
                change();
            }
            let (snapshot, options) = (directory.snapshot().unwrap(), query.options.clone());
            search.renew(snapshot, &requester, request, options);
        }
    });
    (entries(&out), code)
}

/// Through names, through all entries, and through lists of an index.
const WAYS: [(&str, Scope, &str); 3] = [
    (PEOPLE, Scope::OneLevel, "(sn=*)"),
    (SUFFIX, Scope::Subtree, "(sn=*)"),
    (SUFFIX, Scope::Subtree, "(cn=*)"),
];

#[test]
fn what_has_changed_is_seen_where_the_search_has_not_been() {
    for directory in [in_memory, in_stores] {
        for (base, scope, filter) in WAYS {
            let directory = directory();
            populate(&directory);
            let first = Cell::new(None);
            let before = crate::query::search(&directory, &query(base, scope, filter));
            first.set(Some(before.entries[0].0.clone()));
            let first = first.take().unwrap();
            let (gone, moved) = match first == dn("b") {
                true => ("a", "c"),
                false => ("b", "c"),
            };
            let (found, code) = renewed(&directory, &query(base, scope, filter), || {
                succeed(&directory, delete(&first));
                succeed(&directory, delete(&dn(gone)));
                succeed(&directory, rename(&dn(moved), "uid=z", true, None));
                succeed(&directory, person("y"));
            });
            assert_eq!(code, ResultCode::Success);
            let has = |dn: &str| found.iter().filter(|found| *found == dn).count();
            assert_eq!(has(&first), 1, "{found:?}");
            assert_eq!(has(&dn(gone)), 0, "{found:?}");
            let twice = found.iter().any(|dn| has(dn) != 1);
            assert!(!twice, "{found:?}");
            let after = crate::query::search(&directory, &query(base, scope, filter));
            // In the order of names, and with several stores, what is new may be where the search has been.
            for dn in after.dns() {
                assert!(
                    has(dn) == 1 || dn == self::dn("y") || dn == self::dn("z"),
                    "{found:?}"
                );
            }
        }
    }
}

#[test]
fn limits_count_what_was_found_before() {
    let directory = in_memory();
    populate(&directory);
    for (base, scope, filter) in WAYS {
        let asked = Query {
            size_limit: 3,
            ..query(base, scope, filter)
        };
        let (found, code) = renewed(&directory, &asked, || {});
        assert_eq!((found.len(), code), (3, ResultCode::SizeLimitExceeded));
    }
}

#[test]
fn who_is_put_out_of_a_group_loses_what_it_grants() {
    let directory = in_memory();
    populate(&directory);
    let group = format!("cn=readers,{PEOPLE}");
    let lines = format!(
        "objectClass: groupOfNames\ncn: readers\nmember: {}\nmember: {PEOPLE}",
        dn("a")
    );
    succeed(&directory, add(&group, &lines));
    let rule = format!("to * by group=\"{group}\" read");
    let config = "olcDatabase={1}mdb,cn=config";
    succeed(
        &directory,
        modify(config, &[(Replace, "olcAccess", &[&rule])]),
    );
    let snapshot = directory.snapshot().unwrap();
    let found = snapshot.through(|snapshot| snapshot.credentials(&dn("a"), 0));
    let found = found.unwrap().unwrap();
    let identity = Identity::User {
        entry: found.entry,
        dn: found.dn,
    };
    for (base, scope, filter) in WAYS {
        let asked = Query {
            identity: identity.clone(),
            ..query(base, scope, filter)
        };
        let (found, _) = renewed(&directory, &asked, || {});
        assert!(found.len() >= 5, "{found:?}");
        let member = dn("a");
        let (found, code) = renewed(&directory, &asked, || {
            succeed(
                &directory,
                modify(&group, &[(Delete, "member", &[&member])]),
            );
        });
        assert_eq!(found.len(), 1, "{found:?} {code:?}");
        let back = sapwood_ldap::list::ChangeKind::Add;
        succeed(&directory, modify(&group, &[(back, "member", &[&member])]));
    }
}

#[test]
fn a_search_is_over_at_its_end() {
    let directory = in_memory();
    populate(&directory);
    asked(&query(SUFFIX, Scope::Base, "(dc=*)"), |request| {
        let requester = directory.requester(sapwood_testkit::directories::admin());
        let snapshot = directory.snapshot().unwrap();
        let mut search = Search::new(snapshot, &requester, request, Default::default());
        let budget = Budget {
            entries: 9,
            work: 1 << 20,
            out_bytes: 1 << 20,
        };
        let mut out = Vec::new();
        loop {
            let mut wire = Wire::new(&mut out, 1, Controls::EMPTY);
            match search.step(&mut wire, budget).unwrap() {
                Step::Done(outcome) => break assert_eq!(outcome.code, ResultCode::Success),
                _ => search.snapshot().fetch().unwrap(),
            }
        }
        let mut wire = Wire::new(&mut out, 1, Controls::EMPTY);
        assert!(search.step(&mut wire, budget).is_err());
    });
}
