//! Indexes: kept by every update, added and dropped while the directory is in use, and checked.

use crate::made::{Directory, in_memory};
use proptest::prelude::*;
use sapwood_directory::engine::{
    self, AttributeNo, Bundle, Cursor, Direction, Engine, EntryId, Index, IndexKind, Range, Table,
    Ticket, Verdict, Write,
};
use sapwood_directory::{Error, IndexDefinition, IndexStatus, StoreSet};
use sapwood_ldap::list::ChangeKind::{Add, Delete, Replace};
use sapwood_ldap::message::Scope;
use sapwood_testkit::directories::*;

use crate::query::{query, search};

#[track_caller]
fn clean(directory: &Directory) {
    assert_eq!(
        directory.check(|_| {}).unwrap().problems,
        Vec::<String>::new()
    );
}

fn definition(attribute: &str, kinds: &str) -> IndexDefinition {
    IndexDefinition {
        attribute: attribute.into(),
        equality: kinds.contains("eq"),
        presence: kinds.contains("pres"),
        substring: kinds.contains("sub"),
        approximate: kinds.contains("approx"),
        ordering: kinds.contains("ord"),
    }
}

fn listed(directory: &Directory, attribute: &str) -> Vec<(&'static str, bool)> {
    let all = directory.indexes().unwrap();
    all.into_iter()
        .filter(|index| index.attribute == attribute)
        .map(
            |IndexStatus {
                 kind, is_complete, ..
             }| (kind, is_complete),
        )
        .collect()
}

/// More entries than an index is built from in one transaction.
fn crowded() -> Directory {
    let directory = in_memory();
    seed(&directory);
    let updates: Vec<_> = (0..2500)
        .map(|at| as_admin(person(&format!("p{at}"))))
        .collect();
    directory
        .apply(&updates)
        .unwrap()
        .ticket
        .unwrap()
        .wait()
        .unwrap();
    directory
}

#[test]
fn updates_keep_indexes() {
    let directory = in_memory();
    seed(&directory);
    let anne = "uid=anne,ou=People,dc=example,dc=com";
    let steps = [
        person("anne"),
        person("berta"),
        modify(
            anne,
            &[
                (Add, "cn", &["Äpfel", "x", "ab", "A\u{1F600}b"]),
                (Add, "cn;lang-de", &["Anna Anna Anna"]),
            ],
        ),
        modify(anne, &[(Delete, "cn", &["x"]), (Replace, "sn", &["y"])]),
        modify(
            anne,
            &[
                (Add, "objectClass", &["posixAccount"]),
                (Add, "uidNumber", &["-7"]),
                (Add, "gidNumber", &["1"]),
                (Add, "homeDirectory", &["/"]),
            ],
        ),
        modify(anne, &[(Replace, "uidNumber", &["12345678901234567890"])]),
        rename(anne, "cn=Anna", false, Some("dc=example,dc=com")),
        delete("uid=berta,ou=People,dc=example,dc=com"),
        modify(
            "cn=Anna,dc=example,dc=com",
            &[(Delete, "cn;lang-de", &[]), (Add, "description", &["long"])],
        ),
        add(
            "cn=g,dc=example,dc=com",
            &format!(
                "objectClass: groupOfNames\ncn: g\nmember: {anne}\nmember: cn={}",
                "n".repeat(3000)
            ),
        ),
        delete("cn=g,dc=example,dc=com"),
    ];
    for step in steps {
        succeed(&directory, step);
        clean(&directory);
    }
}

#[test]
fn indexes_are_added_and_dropped() {
    let directory = crowded();
    let mut seen = Vec::new();
    directory
        .add_index(&definition("jpegPhoto", "pres ord"), |_| ())
        .unwrap_err();
    directory
        .add_index(&definition("surname", "eq sub pres"), |filed| {
            seen.push(filed)
        })
        .unwrap();
    assert_eq!(seen.last(), Some(&2502));
    assert_eq!(
        listed(&directory, "sn"),
        [("eq", true), ("pres", true), ("sub", true)]
    );
    directory
        .add_index(&definition("gidNumber", "eq ord"), |_| ())
        .unwrap();
    clean(&directory);
    succeed(&directory, delete("uid=p7,ou=People,dc=example,dc=com"));
    clean(&directory);
    // Adding again what is there does nothing.
    directory
        .add_index(&definition("sn", "eq"), |_| panic!("nothing is filed"))
        .unwrap();
    assert!(directory.drop_index(&definition("sn", "sub pres")).unwrap());
    assert!(!directory.drop_index(&definition("sn", "sub pres")).unwrap());
    assert_eq!(listed(&directory, "sn"), [("eq", true)]);
    assert!(matches!(
        directory.drop_index(&definition("objectClass", "eq")),
        Err(Error::Config(_))
    ));
    assert!(matches!(
        directory.add_index(&definition("jpegPhoto", "eq"), |_| ()),
        Err(Error::Config(_))
    ));
    assert!(matches!(
        directory.add_index(&definition("nonsense", "eq"), |_| ()),
        Err(Error::Config(_))
    ));
    clean(&directory);
}

#[test]
fn updates_while_an_index_is_built_are_in_it() {
    let directory = crowded();
    let mut round = 0;
    directory
        .add_index(&definition("sn", "eq sub"), |_| {
            round += 1;
            let at = |number: i32| format!("uid=p{number},ou=People,dc=example,dc=com");
            apply(
                &directory,
                modify(&at(round), &[(Replace, "sn", &["changed early"])]),
            );
            apply(
                &directory,
                modify(&at(2400 - round), &[(Replace, "sn", &["changed late"])]),
            );
            apply(&directory, delete(&at(100 + round)));
            apply(&directory, delete(&at(2300 - round)));
            apply(&directory, person(&format!("new{round}")));
        })
        .unwrap();
    assert!(round > 2);
    clean(&directory);
}

/// How many runs of postings pend.
fn runs_pending(directory: &Directory) -> u64 {
    let snapshot = directory.engine().embedded().env().read().unwrap();
    let tree = snapshot.tree("pending").unwrap();
    tree.map_or(0, |tree| tree.record().records)
}

#[test]
fn pending_postings_are_found_and_merged() {
    let directory = crowded();
    clean(&directory);
    let found = |filter: &str| {
        let query = query("dc=example,dc=com", Scope::Subtree, filter);
        search(&directory, &query).entries.len()
    };
    let settle = || directory.settle(StoreSet::FIRST).unwrap();
    settle();
    assert_eq!((runs_pending(&directory), found("(cn=*new*)")), (0, 0));
    succeed(&directory, person("new1"));
    succeed(&directory, person("new2"));
    succeed(&directory, delete("uid=p7,ou=People,dc=example,dc=com"));
    assert!(runs_pending(&directory) > 0);
    for _ in 0..2 {
        clean(&directory);
        assert_eq!((found("(cn=*new*)"), found("(cn=*ew2*)")), (2, 1));
        assert_eq!(found("(&(cn=*p7)(cn=*p7*))"), 0);
        assert_eq!(found("(cn=*p70*)"), 11);
        settle();
        assert_eq!(runs_pending(&directory), 0);
    }
}

/// Does one thing to the tables behind the directory's back.
struct Tamper<F>(F);

impl<F: Fn(&mut dyn FnMut(Damage))> Bundle for Tamper<F> {
    fn operations(&self) -> usize {
        1
    }
    fn begin<T: Write>(&mut self, _txn: &mut T) -> engine::Result<()> {
        Ok(())
    }
    fn apply<T: Write>(&mut self, txn: &mut T, _operation: usize) -> engine::Result<Verdict> {
        // An index is read in a transaction once it was opened.
        let object_class = Index {
            attribute: AttributeNo(0),
            kind: IndexKind::Equality,
        };
        assert!(txn.open_index(object_class)?);
        (self.0)(&mut |damage| {
            match damage {
                Damage::Delete(table, key) => assert!(txn.delete(table, &key).unwrap()),
                Damage::Put(table, key, value) => txn.put(table, &key, &value).unwrap(),
                Damage::Add(index, key, id) => txn.index_add(index, &key, EntryId(id)).unwrap(),
                Damage::ToFirst(table, value) => {
                    let mut records = txn.scan(table, Range::ALL, Direction::Forward).unwrap();
                    let key = records.next().unwrap().unwrap().0.to_vec();
                    drop(records);
                    match value {
                        Some(value) => txn.put(table, &key, &value).unwrap(),
                        None => assert!(txn.delete(table, &key).unwrap()),
                    }
                }
                Damage::RemoveFirst(index) => {
                    let mut first = None;
                    txn.scan_index(index, Range::ALL, |key, id| {
                        first = Some((key.to_vec(), id));
                        false
                    })
                    .unwrap();
                    let (key, id) = first.unwrap();
                    txn.index_remove(index, &key, id).unwrap();
                }
            };
        });
        Ok(Verdict::Keep)
    }
    fn finish<T: Write>(&mut self, _txn: &mut T) -> engine::Result<()> {
        Ok(())
    }
}

enum Damage {
    Delete(Table, Vec<u8>),
    Put(Table, Vec<u8>, Vec<u8>),
    Add(Index, Vec<u8>, u64),
    RemoveFirst(Index),
    /// Deletes the first record of a table, or gives it another value.
    ToFirst(Table, Option<Vec<u8>>),
}

#[test]
fn the_check_finds_what_does_not_agree() {
    // Number 0 is objectClass and 1 entryUUID, which are indexed first.
    let object_class = Index {
        attribute: AttributeNo(0),
        kind: IndexKind::Equality,
    };
    let key = |id: u64| id.to_be_bytes().to_vec();
    let cases: Vec<(Damage, &str)> = vec![
        (Damage::Delete(Table::Entry, key(2)), "records in the table"),
        (
            // A record without attributes, and without operational ones.
            Damage::Put(Table::Entry, key(2), [&[2][..], &[0; 23]].concat()),
            "operational attributes cannot be read",
        ),
        (
            Damage::Put(Table::State, key(99), vec![1]),
            "does not exist",
        ),
        (
            Damage::Put(
                Table::Name,
                b"\0\0\0\0\0\0\0\x01ou=nobody\0\0".to_vec(),
                [key(2), vec![0]].concat(),
            ),
            "records in the table name",
        ),
        (
            Damage::Put(Table::Entry, key(2), vec![1, 2, 3]),
            "not of the form",
        ),
        (
            Damage::Put(Table::Meta, b"next id".to_vec(), key(1)),
            "still to be given",
        ),
        (
            Damage::Add(object_class, b"nonsense".to_vec(), 2),
            "has entry 2 under 'nonsense'",
        ),
        (Damage::RemoveFirst(object_class), "lacks entry"),
        (
            Damage::Put(Table::Values, [&key(2), &[9; 3][..]].concat(), vec![]),
            "records in the table values",
        ),
        (
            Damage::ToFirst(Table::Values, None),
            "not what its record tells",
        ),
        (
            Damage::ToFirst(Table::Values, Some(b"street x".to_vec())),
            "does not stand under its normal form",
        ),
    ];
    for (damage, expected) in cases {
        let directory = in_memory();
        seed(&directory);
        let streets = ["street 1", "street 2", "street 3", "street 4", "street 5"];
        let people = "ou=People,dc=example,dc=com";
        succeed(&directory, modify(people, &[(Add, "street", &streets)]));
        clean(&directory);
        let damage = std::cell::RefCell::new(Some(damage));
        let mut tamper =
            Tamper(|each: &mut dyn FnMut(Damage)| each(damage.borrow_mut().take().unwrap()));
        directory
            .engine()
            .embedded()
            .write(&mut tamper)
            .unwrap()
            .unwrap()
            .wait()
            .unwrap();
        let problems = directory.check(|_| {}).unwrap().problems;
        assert!(
            problems.iter().any(|problem| problem.contains(expected)),
            "{expected}: {problems:?}"
        );
    }
}

proptest! {
    #![proptest_config(crate::made::random(24))]

    #[test]
    fn whatever_is_updated_the_tables_agree(steps in prop::collection::vec((0u8..6, 0u8..6, 0u8..6, ".{0,12}"), 1..60)) {
        let directory = in_memory();
        seed(&directory);
        let name = |at: u8| format!("uid=p{at},ou=People,dc=example,dc=com");
        let updates: Vec<_> = steps
            .into_iter()
            .map(|(action, one, other, text)| {
                as_admin(match action {
                    0 => person(&format!("p{one}")),
                    1 => delete(&name(one)),
                    2 => modify(&name(one), &[(Add, "cn", &[&text])]),
                    3 => modify(&name(one), &[(Replace, "cn;lang-de", &[&text, "b"]), (Replace, "title", &[&text])]),
                    4 => rename(&name(one), &format!("uid=p{other}"), text.len() % 2 == 0, None),
                    _ => rename(&name(one), &format!("uid=p{one}"), true, Some(&name(other))),
                })
            })
            .collect();
        for batch in updates.chunks(7) {
            if let Some(ticket) = directory.apply(batch).unwrap().ticket {
                ticket.wait().unwrap();
            }
        }
        prop_assert_eq!(directory.check(|_| {}).unwrap().problems, Vec::<String>::new());
    }
}
