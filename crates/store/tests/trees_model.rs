//! Whichever trees commits are about, created, changed, renamed and dropped by turns: every snapshot has those that it
//! should have.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::path::PathBuf;

use proptest::prelude::*;
use sapwood_store::{Durability, Env, Options, Restore, Snapshot, TreeKind, WriteTxn};

/// The number that each tree holds.
type Model = BTreeMap<String, u32>;

#[derive(Clone, Debug)]
enum Step {
    /// A transaction that changes these trees, or looks at them only.
    Change(Vec<(usize, bool)>),
    /// As many with one tree each.
    ChangeAlone(usize, u8),
    Drop(usize),
    Rename(usize, usize),
    Checkpoint,
    Reopen,
    Backup,
}

/// One name is too long to stand beside the catalog's root.
fn name(number: usize) -> String {
    match number {
        0 => "a tree with a name as long as few trees have one".into(),
        _ => format!("tree {number}"),
    }
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let tree = 0..4_usize;
    let step = prop_oneof![
        4 => prop::collection::vec((tree.clone(), prop::bool::weighted(0.7)), 0..4).prop_map(Step::Change),
        8 => (tree.clone(), 1..5_u8).prop_map(|(tree, times)| Step::ChangeAlone(tree, times)),
        1 => tree.clone().prop_map(Step::Drop),
        2 => (tree.clone(), tree).prop_map(|(from, to)| Step::Rename(from, to)),
        1 => Just(Step::Checkpoint),
        2 => Just(Step::Reopen),
        1 => Just(Step::Backup),
    ];
    prop::collection::vec(step, 1..40)
}

fn change(txn: &mut WriteTxn, model: &mut Model, name: &str) {
    let tree = match txn.tree(name).unwrap() {
        Some(tree) => tree,
        None => txn.create_tree(name, TreeKind::COMPACT).unwrap(),
    };
    let number = model.entry(name.into()).or_default();
    *number += 1;
    txn.put(tree, b"number", &number.to_be_bytes()).unwrap();
}

fn read(snapshot: &Snapshot) -> Model {
    let names = snapshot.tree_names().unwrap();
    let number = |name: Vec<u8>| {
        let tree = snapshot.tree(&name).unwrap().unwrap();
        let number = tree.get(b"number").unwrap().unwrap();
        let number = u32::from_be_bytes(number.try_into().unwrap());
        (String::from_utf8(name).unwrap(), number)
    };
    names.into_iter().map(number).collect()
}

fn commit(txn: WriteTxn, lazily: bool) {
    match lazily {
        true => drop(txn.commit_with(Durability::Relaxed).unwrap()),
        false => drop(txn.commit().unwrap().wait_durable().unwrap()),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn snapshots_have_the_trees_of_the_model(steps in steps()) {
        let folder = tempfile::tempdir().unwrap();
        let options = Options::new().log_bytes(64 << 10).idle_checkpoint(None);
        let open = || Env::open(folder.path().join("env"), &options).unwrap();
        let mut env = open();
        let mut model = Model::new();
        let mut before: Option<(Snapshot, Model)> = None;
        let mut backups: Vec<PathBuf> = Vec::new();
        for (at, step) in steps.into_iter().enumerate() {
            match step {
                Step::Change(trees) => {
                    let mut txn = env.write().unwrap();
                    for (tree, changes) in trees {
                        if changes {
                            change(&mut txn, &mut model, &name(tree));
                        } else {
                            let known = model.contains_key(&name(tree));
                            prop_assert_eq!(txn.tree(name(tree)).unwrap().is_some(), known);
                        }
                    }
                    prop_assert_eq!(txn.tree_count(), model.len() as u64);
                    commit(txn, at % 3 == 0);
                }
                Step::ChangeAlone(tree, times) => {
                    for _ in 0..times {
                        let mut txn = env.write().unwrap();
                        change(&mut txn, &mut model, &name(tree));
                        commit(txn, at % 2 == 0);
                    }
                }
                Step::Drop(tree) => {
                    let mut txn = env.write().unwrap();
                    let existed = model.remove(&name(tree)).is_some();
                    prop_assert_eq!(txn.drop_tree(name(tree)).unwrap(), existed);
                    prop_assert_eq!(txn.tree_count(), model.len() as u64);
                    commit(txn, false);
                }
                Step::Rename(from, to) => {
                    let mut txn = env.write().unwrap();
                    let (from, to) = (name(from), name(to));
                    if model.contains_key(&from) && !model.contains_key(&to) {
                        prop_assert!(txn.rename_tree(&from, &to).unwrap());
                        let number = model.remove(&from).unwrap();
                        model.insert(to, number);
                    }
                    commit(txn, at % 2 == 0);
                }
                Step::Checkpoint => drop(env.checkpoint().unwrap()),
                Step::Reopen => {
                    before = None;
                    drop(env);
                    env = open();
                }
                Step::Backup => {
                    let file = folder.path().join(format!("backup {at}"));
                    let restored = folder.path().join(format!("restored {at}"));
                    match (backups.last(), at % 4) {
                        (None, 0) => drop(env.backup_compacted(&file).unwrap()),
                        (None, _) => drop(env.backup(&file).unwrap()),
                        (Some(last), _) => drop(env.backup_since(last, &file).unwrap()),
                    }
                    backups.push(file);
                    let restore = Restore::of(&backups[0]);
                    let restore = backups[1..].iter().fold(restore, Restore::increment);
                    restore.into_folder(&restored).unwrap();
                    if at % 4 == 0 {
                        // Nothing follows a compacted one.
                        backups.clear();
                    }
                    let restored = Env::open(&restored, &options).unwrap();
                    prop_assert_eq!(&read(&restored.read().unwrap()), &model);
                }
            }
            env.sync().unwrap();
            let now = env.read().unwrap();
            prop_assert_eq!(&read(&now), &model);
            if let Some((before, was)) = &before {
                prop_assert_eq!(&read(before), was);
                let told = now.changes_since(before).unwrap();
                let told: Vec<_> = told.iter().map(|tree| String::from_utf8(tree.name.clone()).unwrap()).collect();
                let changed = |name: &&String| was.get(*name) != model.get(*name);
                for name in was.keys().chain(model.keys()).filter(changed) {
                    prop_assert!(told.contains(name), "{} has changed", name);
                }
                prop_assert!(told.is_sorted());
            }
            before = Some((now, model.clone()));
            let report = env.check().unwrap();
            prop_assert!(report.is_clean(), "{:?}", report.problems);
            prop_assert_eq!(report.trees, model.len() as u64);
        }
    }
}
