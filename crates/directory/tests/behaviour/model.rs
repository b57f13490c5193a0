//! Random updates on a directory and on the simplest thing that can stand for one, a map from DNs to attribute values:
//! the same result codes, and in the end the same entries.

use std::collections::{BTreeMap, BTreeSet};

use crate::made::{Directory, in_memory, in_stores};
use proptest::prelude::*;
use sapwood_directory::UpdateRequest;
use sapwood_directory::engine::Engine;
use sapwood_ldap::list::ChangeKind;
use sapwood_ldap::message::Scope;
use sapwood_ldap::result::ResultCode::{self, *};
use sapwood_testkit::directories::*;

use crate::query::{Query, query, search};

const SUFFIX: &str = "objectClass: domain\ndc: example";

/// Each entry's place is a path of small numbers below the suffix.
type Path = Vec<u8>;

/// What the model knows of an entry: its values of `ou` and `description`, in lower case.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Entry {
    ou: BTreeSet<String>,
    description: BTreeSet<String>,
}

#[derive(Clone, Debug)]
enum Action {
    Add(Path),
    Delete(Path),
    Describe(Path, ChangeKind, Vec<String>),
    Rename(Path, u8, bool, Option<Path>),
}

fn name(number: u8) -> String {
    format!("n{number}")
}

fn dn(path: &[u8]) -> String {
    let mut dn = String::new();
    for number in path.iter().rev() {
        dn.push_str(&format!("ou={},", name(*number)));
    }
    dn + "dc=example,dc=com"
}

fn path() -> impl Strategy<Value = Path> {
    prop::collection::vec(0u8..3, 0..4)
}

fn step() -> impl Strategy<Value = Action> {
    // Enough for an attribute to become large and to be so no more.
    let value = prop::sample::select(vec![
        "a", "A", "b", "c c", "C  C", "d", "e", "f", "F", "g", "h",
    ]);
    let value = value.prop_map(str::to_owned);
    let values = prop::collection::vec(value, 0..8).prop_map(|values| {
        let mut kept: Vec<String> = Vec::new();
        for value in values {
            // Mostly sets, or else nearly all would be refused.
            if value == "F" || !kept.iter().any(|known| normal(known) == normal(&value)) {
                kept.push(value);
            }
        }
        kept
    });
    let kind = prop::sample::select(vec![
        ChangeKind::Add,
        ChangeKind::Delete,
        ChangeKind::Replace,
    ]);
    prop_oneof![
        4 => path().prop_map(Action::Add),
        2 => path().prop_map(Action::Delete),
        6 => (path(), kind, values)
            .prop_filter("an add needs values", |(_, kind, values)| *kind != ChangeKind::Add || !values.is_empty())
            .prop_map(|(path, kind, values)| Action::Describe(path, kind, values)),
        3 => (path(), 0u8..3, any::<bool>(), prop::option::of(path()))
            .prop_map(|(path, number, delete_old, superior)| Action::Rename(path, number, delete_old, superior)),
    ]
}

/// The normal form of a value here: lower case, single spaces.
fn normal(value: &str) -> String {
    value
        .to_lowercase()
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ")
}

#[derive(Default)]
struct Tree(BTreeMap<Path, Entry>);

impl Tree {
    fn apply(&mut self, step: &Action) -> ResultCode {
        match step {
            Action::Add(path) => {
                if self.0.contains_key(path) {
                    return EntryAlreadyExists;
                }
                let Some((own, parent)) = path.split_last() else {
                    self.0.insert(Path::new(), Entry::default());
                    return Success;
                };
                if !self.0.contains_key(parent) {
                    return NoSuchObject;
                }
                let ou = BTreeSet::from([name(*own)]);
                self.0.insert(
                    path.clone(),
                    Entry {
                        ou,
                        ..Entry::default()
                    },
                );
                Success
            }
            Action::Delete(path) => {
                if !self.0.contains_key(path) {
                    return NoSuchObject;
                }
                if self
                    .0
                    .keys()
                    .any(|other| other.len() > path.len() && other.starts_with(path))
                {
                    return NotAllowedOnNonLeaf;
                }
                self.0.remove(path);
                Success
            }
            Action::Describe(path, kind, values) => {
                // A list of values is a set, whatever entry it is for (RFC 4511 §4.1.7).
                let distinct: BTreeSet<_> = values.iter().map(|value| normal(value)).collect();
                if *kind != ChangeKind::Delete && distinct.len() < values.len() {
                    return AttributeOrValueExists;
                }
                let Some(entry) = self.0.get_mut(path) else {
                    return NoSuchObject;
                };
                let mut description = entry.description.clone();
                let had = !description.is_empty();
                if *kind == ChangeKind::Replace {
                    description.clear();
                }
                if *kind == ChangeKind::Delete && (!had || values.is_empty()) {
                    if !had {
                        return NoSuchAttribute;
                    }
                    description.clear();
                }
                for value in values {
                    let value = normal(value);
                    match kind {
                        ChangeKind::Delete if !description.remove(&value) => {
                            return NoSuchAttribute;
                        }
                        ChangeKind::Delete => {}
                        _ if !description.insert(value) => return AttributeOrValueExists,
                        _ => {}
                    }
                }
                entry.description = description;
                Success
            }
            Action::Rename(path, number, delete_old, superior) => {
                if !self.0.contains_key(path) {
                    return NoSuchObject;
                }
                let Some((own, parent)) = path.split_last() else {
                    return UnwillingToPerform;
                };
                let parent = superior.as_deref().unwrap_or(parent);
                if !self.0.contains_key(parent) {
                    return NoSuchObject;
                }
                if parent.starts_with(path) {
                    return UnwillingToPerform;
                }
                let renamed = [parent, &[*number]].concat();
                if renamed != *path && self.0.contains_key(&renamed) {
                    return EntryAlreadyExists;
                }
                let moved: Vec<Path> = self
                    .0
                    .keys()
                    .filter(|other| other.starts_with(path))
                    .cloned()
                    .collect();
                for old in moved {
                    let entry = self.0.remove(&old).unwrap();
                    self.0
                        .insert([&renamed, &old[path.len()..]].concat(), entry);
                }
                let entry = self.0.get_mut(&renamed).unwrap();
                if *delete_old {
                    entry.ou.remove(&name(*own));
                }
                entry.ou.insert(name(*number));
                Success
            }
        }
    }
}

fn request(step: &Action) -> UpdateRequest {
    match step {
        Action::Add(path) if path.is_empty() => add(&dn(path), SUFFIX),
        Action::Add(path) => {
            let own = name(path.last().copied().unwrap_or_default());
            add(
                &dn(path),
                &format!("objectClass: organizationalUnit\nou: {own}"),
            )
        }
        Action::Delete(path) => delete(&dn(path)),
        Action::Describe(path, kind, values) => {
            let values: Vec<&str> = values.iter().map(String::as_str).collect();
            modify(&dn(path), &[(*kind, "description", &values)])
        }
        Action::Rename(path, number, delete_old, superior) => {
            let superior = superior.as_ref().map(|path| dn(path));
            rename(
                &dn(path),
                &format!("OU={}", name(*number).to_uppercase()),
                *delete_old,
                superior.as_deref(),
            )
        }
    }
}

/// What the directory holds: lower-case DN to the values of the two attributes.
fn entries<E: Engine>(directory: &Directory<E>) -> BTreeMap<String, Entry> {
    let all = Query {
        step_entries: 10,
        step_bytes: 1000,
        ..query("dc=example,dc=com", Scope::Subtree, "(objectClass=*)")
    };
    let mut found = BTreeMap::new();
    for (dn, lines) in search(directory, &all).entries {
        let mut entry = Entry::default();
        for line in &lines {
            match line.split_once(": ").unwrap() {
                ("ou", value) => entry.ou.insert(normal(value)),
                ("description", value) => entry.description.insert(normal(value)),
                _ => continue,
            };
        }
        assert!(found.insert(dn.to_lowercase(), entry).is_none());
    }
    found
}

/// Applies the steps in batches to an empty directory, and compares it with a tree.
fn is_a_map<E: Engine>(
    directory: &Directory<E>,
    steps: &[Action],
    batch: usize,
) -> Result<(), TestCaseError> {
    succeed(directory, add(&dn(&[]), SUFFIX));
    let mut tree = Tree::default();
    tree.0.insert(Path::new(), Entry::default());
    for steps in steps.chunks(batch) {
        let updates: Vec<_> = steps.iter().map(|step| as_admin(request(step))).collect();
        let applied = directory.apply(&updates).unwrap();
        if let Some(ticket) = applied.ticket {
            sapwood_directory::Ticket::wait(ticket).unwrap();
        }
        prop_assert_eq!(applied.outcomes.len(), steps.len());
        for (step, outcome) in steps.iter().zip(applied.outcomes) {
            let expected = tree.apply(step);
            prop_assert_eq!(expected, outcome.code, "{:?}: {:?}", step, outcome);
        }
    }
    let expected: BTreeMap<_, _> = (tree.0.into_iter())
        .map(|(path, entry)| (dn(&path), entry))
        .collect();
    if !expected.is_empty() {
        prop_assert_eq!(entries(directory), expected);
    }
    prop_assert_eq!(
        directory.check(|_| {}).unwrap().problems,
        Vec::<String>::new()
    );
    Ok(())
}

proptest! {
    #![proptest_config(crate::made::random(64))]

    #[test]
    fn a_directory_is_a_map_of_entries(steps in prop::collection::vec(step(), 1..80), batch in 1usize..20) {
        is_a_map(&in_memory(), &steps, batch)?;
        is_a_map(&in_stores(), &steps, batch)?;
    }
}
