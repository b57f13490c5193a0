//! Trees whose values stand out of line, beside a simple model.

#![allow(clippy::unwrap_used)] // A test may panic.

use std::collections::BTreeMap;
use std::ops::Bound;

use proptest::prelude::*;
use sapwood_store::{Env, Options, TreeId, TreeKind, WriteTxn};

type Model = BTreeMap<u64, Vec<u8>>;

fn value(seed: u64, len: usize) -> Vec<u8> {
    let bytes = seed.to_le_bytes();
    bytes.iter().copied().cycle().take(len).collect()
}

fn assert_same(tree: &sapwood_store::Tree<'_>, model: &Model) {
    let mut cursor = tree.cursor();
    let mut expected = model.iter();
    while cursor.next().unwrap() {
        let (key, value) = cursor.record().unwrap().unwrap();
        let (number, wanted) = expected.next().expect("no more records");
        assert_eq!((key, value), (&number.to_be_bytes()[..], &wanted[..]));
    }
    assert_eq!(expected.next(), None);
    assert_eq!(tree.record().records, model.len() as u64);
    for (number, wanted) in model {
        assert_eq!(tree.get(&number.to_be_bytes()).unwrap(), Some(&wanted[..]));
    }
    let keys: Vec<[u8; 8]> = (0..64_u64).map(u64::to_be_bytes).collect();
    let mut found = 0;
    tree.get_each(&keys, |at, value| {
        assert_eq!(value, model.get(&(at as u64)).map(Vec::as_slice));
        found += 1;
    })
    .unwrap();
    assert_eq!(found, keys.len());
}

#[derive(Clone, Debug)]
enum Step {
    Put(u64, usize),
    Insert(u64, usize),
    Delete(u64),
    DeleteRange(u64, u64),
    Clear,
    Savepoint,
    RollBack,
    Commit,
    Abort,
    Snapshot,
    Reopen,
    Checkpoint,
}

fn step() -> impl Strategy<Value = Step> {
    let key = prop_oneof![4 => 0..40_u64, 1 => 0..2000_u64, 1 => any::<u64>()];
    let len = prop_oneof![8 => 0..300_usize, 1 => 0..6000_usize, 1 => 0..40_000_usize];
    prop_oneof![
        40 => (key.clone(), len.clone()).prop_map(|(key, len)| Step::Put(key, len)),
        8 => (key.clone(), len).prop_map(|(key, len)| Step::Insert(key, len)),
        6 => key.clone().prop_map(Step::Delete),
        2 => (key.clone(), key).prop_map(|(from, to)| Step::DeleteRange(from, to)),
        1 => Just(Step::Clear),
        4 => Just(Step::Savepoint),
        3 => Just(Step::RollBack),
        12 => Just(Step::Commit),
        2 => Just(Step::Abort),
        3 => Just(Step::Snapshot),
        2 => Just(Step::Reopen),
        3 => Just(Step::Checkpoint),
    ]
}

fn begin(env: &Env) -> (WriteTxn, TreeId) {
    let mut txn = env.write().unwrap();
    let tree = match txn.tree("t").unwrap() {
        Some(tree) => tree,
        None => txn.create_tree("t", TreeKind::OUT_OF_LINE).unwrap(),
    };
    (txn, tree)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 60, ..ProptestConfig::default() })]

    #[test]
    fn a_tree_behaves_like_a_map(steps in prop::collection::vec(step(), 1..200)) {
        let folder = tempfile::tempdir().unwrap();
        let options = Options::new().create(true);
        let mut env = Env::open(folder.path(), &options).unwrap();
        let mut committed = Model::new();
        let mut snapshots = Vec::new();
        let mut rest = steps.into_iter().peekable();
        let mut seed = 0;
        while rest.peek().is_some() {
            let (mut txn, tree) = begin(&env);
            let mut now = committed.clone();
            let mut savepoints = Vec::new();
            let mut last = None;
            for step in rest.by_ref() {
                seed += 1;
                match step {
                    Step::Put(key, len) => {
                        let value = value(seed, len);
                        let is_new = txn.put(tree, &key.to_be_bytes(), &value).unwrap();
                        prop_assert_eq!(is_new, now.insert(key, value).is_none());
                    }
                    Step::Insert(key, len) => {
                        let value = value(seed, len);
                        let is_new = txn.insert(tree, &key.to_be_bytes(), &value).unwrap();
                        prop_assert_eq!(is_new, !now.contains_key(&key));
                        now.entry(key).or_insert(value);
                    }
                    Step::Delete(key) => {
                        let was = txn.delete(tree, &key.to_be_bytes()).unwrap();
                        prop_assert_eq!(was, now.remove(&key).is_some());
                    }
                    Step::DeleteRange(from, to) => {
                        let (low, high) = (from.min(to), from.max(to));
                        let (a, b) = (low.to_be_bytes(), high.to_be_bytes());
                        let deleted = txn.delete_range(tree, Bound::Included(&a), Bound::Excluded(&b)).unwrap();
                        let before = now.len();
                        now.retain(|key, _| !(low..high).contains(key));
                        prop_assert_eq!(deleted as usize, before - now.len());
                    }
                    Step::Clear => {
                        txn.clear_tree(tree).unwrap();
                        now.clear();
                    }
                    Step::Savepoint => savepoints.push((txn.savepoint(), now.clone())),
                    Step::RollBack => {
                        if let Some((savepoint, then)) = savepoints.pop() {
                            txn.rollback_to(&savepoint);
                            now = then;
                            txn.release(savepoint);
                        }
                    }
                    step => {
                        last = Some(step);
                        break;
                    }
                }
            }
            assert_same(&txn.view(tree).unwrap(), &now);
            if matches!(last, Some(Step::Abort)) {
                drop(txn);
            } else {
                txn.commit().unwrap().wait_durable().unwrap();
                committed = now;
            }
            let report = env.check().unwrap();
            prop_assert!(report.is_clean(), "{:#?}", report.problems);
            match last {
                Some(Step::Snapshot) => snapshots.push((env.read().unwrap(), committed.clone())),
                Some(Step::Reopen) => {
                    snapshots.clear();
                    drop(env);
                    env = Env::open(folder.path(), &options).unwrap();
                }
                Some(Step::Checkpoint) => {
                    env.checkpoint().unwrap();
                }
                _ => {}
            }
            for (snapshot, then) in &snapshots {
                match snapshot.tree("t").unwrap() {
                    Some(tree) => assert_same(&tree, then),
                    None => prop_assert!(then.is_empty()),
                }
            }
            let snapshot = env.read().unwrap();
            if let Some(tree) = snapshot.tree("t").unwrap() {
                assert_same(&tree, &committed);
            }
        }
    }
}
