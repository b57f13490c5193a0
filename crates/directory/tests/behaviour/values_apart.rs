//! Directories that take each other's updates and keep values apart: what several have changed of an entry is there.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use sapwood_directory::{
    AccountChange, Csn, LostAttribute, LostChange, LostWhat, Requester, UpdateRequest,
};
use sapwood_ldap::list::ChangeKind::{self, Add, Delete, Replace};
use sapwood_ldap::message::Scope;
use sapwood_replication::Rule;
use sapwood_testkit::directories::{add, apply, delete, modify, person, rename, succeed};

use crate::query::{query, search};
use crate::replicated::everything;
use crate::several_providers::{
    DATA, Member, PEOPLE, conflicts, dn, event, happen, members_by, peopled_by, registers,
    require_equal, settle, tell, value,
};

fn peopled() -> Vec<Member> {
    peopled_by(1, "values")
}

fn change(member: &Member, uid: &str, kind: ChangeKind, attribute: &str, values: &[&str]) {
    succeed(
        &member.directory,
        modify(&dn(uid), &[(kind, attribute, values)]),
    );
}

/// The values that an attribute of a person has everywhere.
fn values(all: &[Member], uid: &str, attribute: &str) -> BTreeSet<String> {
    let found = everything(&all[0].directory);
    let (_, lines) = found.iter().find(|(name, _)| *name == dn(uid)).unwrap();
    let of = |line: &String| Some(line.strip_prefix(attribute)?.strip_prefix(": ")?.to_owned());
    lines.iter().filter_map(of).collect()
}

fn set(values: &[&str]) -> BTreeSet<String> {
    values.iter().map(|value| (*value).to_owned()).collect()
}

fn lost(all: &[Member]) -> Vec<LostChange> {
    all.iter().flat_map(conflicts).collect()
}

fn attributes_of(line: &LostChange) -> &[LostAttribute] {
    match &line.what {
        LostWhat::Attributes(attributes) => attributes,
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_two_change_of_an_entry_is_all_there() {
    for stores in [1, 3] {
        let mut all = peopled_by(stores, "values");
        change(&all[0], "a", Replace, "title", &["first"]);
        change(&all[0], "a", Add, "description", &["one"]);
        change(&all[1], "a", Add, "description", &["two", "three"]);
        change(&all[1], "a", Replace, "displayName", &["second"]);
        change(&all[2], "a", Add, "mail", &["third@example.com"]);
        change(&all[2], "a", Delete, "mail", &[]);
        settle(&mut all);
        require_equal(&all);
        assert_eq!(values(&all, "a", "title"), set(&["first"]));
        assert_eq!(values(&all, "a", "displayName"), set(&["second"]));
        assert_eq!(
            values(&all, "a", "description"),
            set(&["one", "two", "three"])
        );
        assert_eq!(values(&all, "a", "mail"), set(&[]));
        assert_eq!(lost(&all), []);
        // Both servers delete another value of what all have now.
        change(&all[0], "a", Delete, "description", &["one"]);
        change(&all[2], "a", Delete, "description", &["THREE"]);
        settle(&mut all);
        require_equal(&all);
        assert_eq!(values(&all, "a", "description"), set(&["two"]));
        assert_eq!(lost(&all), []);
    }
}

#[test]
fn of_one_register_the_later_change_wins_and_the_other_is_written_down() {
    let mut all = peopled();
    change(&all[0], "a", Replace, "displayName", &["earlier"]);
    change(&all[1], "a", Replace, "displayName", &["later"]);
    change(&all[0], "b", Replace, "userPassword", &["one", "two"]);
    change(&all[1], "b", Replace, "userPassword", &["three"]);
    change(&all[1], "b", Replace, "displayName", &["kept"]);
    settle(&mut all);
    require_equal(&all);
    assert_eq!(values(&all, "a", "displayName"), set(&["later"]));
    assert_eq!(values(&all, "b", "displayName"), set(&["kept"]));
    assert_eq!(values(&all, "b", "userPassword"), set(&["three"]));
    let lines = lost(&all);
    let of = |uid: &str| lines.iter().find(|line| line.dn == dn(uid)).unwrap();
    assert_eq!((of("a").rule, of("a").loser.replica), (Rule::Later, 1));
    assert_eq!(of("a").winner.replica, 2);
    let [told] = attributes_of(of("a")) else {
        panic!("{lines:?}")
    };
    assert_eq!(told.values, Some(vec![b"earlier".to_vec()]));
    let [secret] = attributes_of(of("b")) else {
        panic!("{lines:?}")
    };
    assert_eq!((&*secret.name, &secret.values), ("userPassword", &None));
}

#[test]
fn a_password_that_is_stored_in_another_form_is_no_newer_for_that() {
    let mut all = peopled();
    change(&all[0], "a", Replace, "userPassword", &["old"]);
    change(&all[0], "b", Replace, "userPassword", &["same"]);
    settle(&mut all);
    change(&all[0], "a", Replace, "userPassword", &["new"]);
    for (uid, from) in [("a", "old"), ("b", "same")] {
        let snapshot = all[1].directory.snapshot().unwrap();
        let name = dn(uid);
        let found = snapshot.through(|snapshot| snapshot.credentials(&name, 0));
        let change = AccountChange::StoreAnew {
            from: from.into(),
            to: b"another form".to_vec(),
        };
        let update = sapwood_directory::Update {
            requester: Requester::administrator(""),
            request: UpdateRequest::Account {
                entry: found.unwrap().unwrap().entry,
                change,
            },
        };
        let applied = all[1].directory.apply(&[update]).unwrap();
        assert!(applied.outcomes[0].code.is_success());
    }
    settle(&mut all);
    require_equal(&all);
    assert_eq!(values(&all, "a", "userPassword"), set(&["new"]));
    assert_eq!(values(&all, "b", "userPassword"), set(&["another form"]));
}

#[test]
fn a_value_that_is_added_before_it_is_deleted_elsewhere_is_written_down() {
    let mut all = peopled();
    change(&all[0], "a", Add, "description", &["x", "y"]);
    settle(&mut all);
    change(&all[0], "a", Delete, "description", &["x"]);
    change(&all[0], "a", Add, "description", &["x"]);
    change(&all[1], "a", Delete, "description", &["x"]);
    // A replace counts as a delete of all that were there before it, known or not.
    change(&all[0], "b", Add, "description", &["unknown"]);
    change(&all[1], "b", Replace, "description", &["z"]);
    change(&all[2], "b", Add, "description", &["after"]);
    settle(&mut all);
    require_equal(&all);
    assert_eq!(values(&all, "a", "description"), set(&["y"]));
    assert_eq!(values(&all, "b", "description"), set(&["z", "after"]));
    let lines = lost(&all);
    for (uid, value) in [("a", "x"), ("b", "unknown")] {
        let line = lines.iter().find(|line| line.dn == dn(uid)).unwrap();
        let [told] = attributes_of(line) else {
            panic!("{lines:?}")
        };
        assert!(told.is_added);
        assert_eq!(told.values, Some(vec![value.as_bytes().to_vec()]));
    }
}

#[test]
fn a_change_and_a_move_are_both_made() {
    let mut all = peopled();
    succeed(&all[0].directory, rename(&dn("a"), "uid=new", true, None));
    change(&all[1], "a", Replace, "displayName", &["changed"]);
    settle(&mut all);
    require_equal(&all);
    assert_eq!(values(&all, "new", "displayName"), set(&["changed"]));
    assert_eq!(values(&all, "new", "uid"), set(&["new"]));
    // What names an entry is always there.
    succeed(
        &all[0].directory,
        rename(&dn("new"), "uid=newer", true, None),
    );
    change(&all[1], "new", Replace, "uid", &["new", "other"]);
    settle(&mut all);
    require_equal(&all);
    assert_eq!(
        values(&all, "newer", "uid"),
        set(&["new", "newer", "other"])
    );
}

#[test]
fn a_delete_wins_over_all_that_did_not_know_of_it() {
    let mut all = peopled();
    succeed(&all[0].directory, delete(&dn("a")));
    change(&all[1], "a", Replace, "displayName", &["later"]);
    // The third hears of the change before it hears of the delete.
    assert!(tell(&mut all, 1, 2) && tell(&mut all, 0, 2));
    change(&all[0], "b", Replace, "displayName", &["earlier"]);
    succeed(&all[1].directory, delete(&dn("b")));
    settle(&mut all);
    require_equal(&all);
    let found = everything(&all[0].directory);
    assert!(
        found
            .iter()
            .all(|(name, _)| *name != dn("a") && *name != dn("b"))
    );
    let lines = lost(&all);
    for uid in ["a", "b"] {
        let is_told = |line: &&LostChange| line.dn == dn(uid) && line.rule == Rule::Deleted;
        assert!(lines.iter().find(is_told).is_some(), "{uid}: {lines:?}");
    }
}

#[test]
fn an_entry_that_is_needed_for_one_below_it_begins_another_life() {
    let mut all = peopled();
    succeed(&all[0].directory, delete(&dn("c")));
    let below = format!("cn=below,{}", dn("c"));
    let lines = "objectClass: device\ncn: below";
    succeed(&all[1].directory, add(&below, lines));
    change(
        &all[2],
        "c",
        Replace,
        "displayName",
        &["not known to the second"],
    );
    assert!(tell(&mut all, 0, 1));
    settle(&mut all);
    require_equal(&all);
    let found = everything(&all[0].directory);
    assert!(found.iter().any(|(name, _)| *name == below));
    assert_eq!(values(&all, "c", "sn"), set(&["c"]));
    // It goes on like any other.
    change(&all[2], "c", Replace, "displayName", &["again"]);
    change(&all[0], "c", Add, "description", &["again"]);
    settle(&mut all);
    require_equal(&all);
    assert_eq!(values(&all, "c", "displayName"), set(&["again"]));
    assert_eq!(values(&all, "c", "description"), set(&["again"]));
}

#[test]
fn the_earlier_of_two_entries_has_the_name() {
    let mut all = peopled();
    for (at, member) in all[..2].iter().enumerate() {
        succeed(&member.directory, person("new"));
        change(member, "new", Replace, "displayName", &[&at.to_string()]);
    }
    settle(&mut all);
    require_equal(&all);
    assert_eq!(values(&all, "new", "displayName"), set(&["0"]));
    let found = everything(&all[0].directory);
    let other = found
        .iter()
        .find(|(name, _)| name.starts_with("uid=new+entryUUID="));
    assert!(other.unwrap().1.contains("displayName: 1"), "{found:#?}");
}

#[test]
fn registers_are_told_to_servers_that_keep_them_and_take_no_room_before() {
    let all = members_by(1, 1, "entry");
    assert_eq!(registers(&all[0].directory, PEOPLE), None);
    let all = peopled();
    let kept = |uid: &str| registers(&all[0].directory, &dn(uid)).unwrap();
    assert!(kept("a").is_plain());
    change(&all[0], "a", Add, "description", &["one"]);
    assert!(!kept("a").is_plain() && kept("b").is_plain());
    let found = everything(&all[0].directory);
    let (_, lines) = found.iter().find(|(name, _)| *name == dn("a")).unwrap();
    assert_eq!(kept("a").csn, Csn::parse(value(lines, "entryCSN")).unwrap());
    assert!(lines.iter().all(|line| !line.contains("entryRegisters")));
    succeed(
        &all[0].directory,
        modify(
            DATA,
            &[(
                Add,
                "olcAccess",
                &["to attrs=mail by * none", "to * by * read"],
            )],
        ),
    );
    let mut asked = query(PEOPLE, Scope::Subtree, "(uid=a)");
    asked.attributes = &["entryRegisters"];
    asked.identity = sapwood_directory::Identity::Anonymous;
    let (_, lines) = search(&all[0].directory, &asked).entries.remove(0);
    assert!(lines.is_empty(), "{lines:?}");
}

/// An update of the values of one of few entries.
#[derive(Clone, Debug)]
enum Update {
    Add(u8, u8),
    Delete(u8, u8),
    Replace(u8, Vec<u8>),
    Single(u8, u8),
    Tell(usize, usize),
}

fn update() -> impl Strategy<Value = (usize, Update)> {
    let update = prop_oneof![
        4 => (0..2u8, 0..6u8).prop_map(|(uid, value)| Update::Add(uid, value)),
        3 => (0..2u8, 0..6u8).prop_map(|(uid, value)| Update::Delete(uid, value)),
        1 => (0..2u8, prop::collection::btree_set(0..6u8, 0..6))
            .prop_map(|(uid, values)| Update::Replace(uid, values.into_iter().collect())),
        2 => (0..2u8, any::<u8>()).prop_map(|(uid, value)| Update::Single(uid, value)),
        4 => (0..3usize, 0..3usize).prop_map(|(from, to)| Update::Tell(from, to)),
    ];
    (0..3usize, update)
}

/// The last change of each register.
#[derive(Default)]
struct Reference {
    values: BTreeMap<(u8, u8), (Csn, bool)>,
    single: BTreeMap<u8, (Csn, u8)>,
}

impl Reference {
    /// Makes an update, and takes it in if it was made.
    fn make(&mut self, member: &Member, update: &Update) {
        let text = |value: &u8| format!("v{value}");
        let (uid, request) = match update {
            Update::Add(uid, value) => (uid, (Add, "description", vec![text(value)])),
            Update::Delete(uid, value) => (uid, (Delete, "description", vec![text(value)])),
            Update::Replace(uid, values) => (
                uid,
                (Replace, "description", values.iter().map(text).collect()),
            ),
            Update::Single(uid, value) => (uid, (Replace, "displayName", vec![text(value)])),
            Update::Tell(..) => return,
        };
        let name = ["a", "b"][usize::from(*uid)];
        let (kind, attribute, values) = request;
        let values: Vec<&str> = values.iter().map(String::as_str).collect();
        let asked = modify(&dn(name), &[(kind, attribute, &values)]);
        if !apply(&member.directory, asked).code.is_success() {
            return;
        }
        let csn = registers(&member.directory, &dn(name)).unwrap().csn;
        let mut put = |value: &u8, is_present| {
            let known = self.values.entry((*uid, *value)).or_default();
            *known = (*known).max((csn, is_present));
        };
        match update {
            Update::Add(_, value) => put(value, true),
            Update::Delete(_, value) => put(value, false),
            Update::Replace(_, values) => {
                (0..6).for_each(|value| put(&value, values.contains(&value)))
            }
            Update::Single(_, value) => {
                let known = self.single.entry(*uid).or_default();
                *known = (*known).max((csn, *value));
            }
            Update::Tell(..) => {}
        }
    }
}

proptest! {
    #![proptest_config(crate::made::random(40))]

    /// What they have in the end follows from the changes alone.
    #[test]
    fn each_register_has_its_last_change(updates in prop::collection::vec(update(), 1..40)) {
        let mut all = peopled();
        let mut reference = Reference::default();
        for (at, update) in &updates {
            match update {
                Update::Tell(from, to) if from == to => {}
                Update::Tell(from, to) => {
                    tell(&mut all, *from, *to);
                }
                update => reference.make(&all[*at], update),
            }
        }
        settle(&mut all);
        require_equal(&all);
        for (uid, name) in [(0, "a"), (1, "b")] {
            let present = reference.values.iter().filter(|((of, _), (_, there))| *of == uid && *there);
            let expected: BTreeSet<String> = present.map(|((_, value), _)| format!("v{value}")).collect();
            prop_assert_eq!(values(&all, name, "description"), expected);
            let single = reference.single.get(&uid).map(|(_, value)| format!("v{value}"));
            let expected: BTreeSet<String> = single.into_iter().collect();
            prop_assert_eq!(values(&all, name, "displayName"), expected);
        }
    }

    #[test]
    fn they_become_equal_whatever_happens(events in prop::collection::vec(event(), 1..50)) {
        let mut all = members_by(3, 1, "values");
        settle(&mut all);
        for (at, event) in &events {
            happen(&mut all, *at, event);
        }
        settle(&mut all);
        require_equal(&all);
        let kept = |member: &Member| {
            let found = everything(&member.directory);
            let all = found.iter().map(|(dn, _)| registers(&member.directory, dn).unwrap());
            all.collect::<Vec<_>>()
        };
        prop_assert_eq!(kept(&all[0]), kept(&all[1]));
        prop_assert_eq!(kept(&all[0]), kept(&all[2]));
    }
}
