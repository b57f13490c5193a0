//! Random work on an environment against plain ordered maps: savepoints, several trees, snapshots that are kept,
//! commits that are not waited for, checkpoints, reopening.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;

use proptest::prelude::*;
use sapwood_store::{Env, Options, Snapshot, Tree, TreeKind, WriteTxn};

type Model = BTreeMap<u8, BTreeMap<Vec<u8>, Vec<u8>>>;

#[derive(Clone, Debug)]
enum Change {
    Put(u8, u16, usize),
    Insert(u8, u16, usize),
    Delete(u8, u16),
    DropTree(u8),
    /// Puts so many keys from one on, ascending or descending, by turns with one in another tree; every few, a delete.
    PutRun(u8, u16, u16, bool),
    /// Changes within a savepoint, and whether they are kept.
    Nested(Vec<Change>, bool),
}

#[derive(Clone, Debug)]
enum Step {
    /// A transaction: its changes, whether it is committed, and whether that is waited for.
    Transact(Vec<Change>, bool, bool),
    Checkpoint,
    KeepSnapshot,
    DropSnapshot(prop::sample::Index),
    Reopen,
}

fn change() -> impl Strategy<Value = Change> {
    let tree = 0_u8..3;
    let size = prop_oneof![6 => 0_usize..200, 1 => 2000_usize..20_000];
    let leaf = prop_oneof![
        6 => (tree.clone(), 0_u16..800, size.clone()).prop_map(|(t, k, s)| Change::Put(t, k, s)),
        2 => (tree.clone(), 0_u16..800, size).prop_map(|(t, k, s)| Change::Insert(t, k, s)),
        4 => (tree.clone(), 0_u16..800).prop_map(|(t, k)| Change::Delete(t, k)),
        2 => (tree.clone(), 0_u16..800, 1_u16..150, any::<bool>())
            .prop_map(|(t, k, n, up)| Change::PutRun(t, k, n, up)),
        1 => tree.prop_map(Change::DropTree),
    ];
    leaf.prop_recursive(3, 24, 8, |inner| {
        (prop::collection::vec(inner, 0..8), any::<bool>())
            .prop_map(|(changes, kept)| Change::Nested(changes, kept))
    })
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        12 => (prop::collection::vec(change(), 0..30), prop::bool::weighted(0.9), any::<bool>())
            .prop_map(|(changes, committed, waited)| Step::Transact(changes, committed, waited)),
        1 => Just(Step::Checkpoint),
        2 => Just(Step::KeepSnapshot),
        2 => any::<prop::sample::Index>().prop_map(Step::DropSnapshot),
        1 => Just(Step::Reopen),
    ]
}

fn apply(txn: &mut WriteTxn, model: &mut Model, change: &Change) {
    let mut open = |tree: u8| {
        let name = format!("tree {tree}");
        let id = txn.tree(&name).unwrap();
        assert_eq!(id.is_some(), model.contains_key(&tree));
        model.entry(tree).or_default();
        let counted = tree == 1;
        id.unwrap_or_else(|| {
            txn.create_tree(
                &name,
                TreeKind {
                    counted,
                    ..TreeKind::COMPACT
                },
            )
            .unwrap()
        })
    };
    match change {
        Change::Put(tree, key, size) => {
            let id = open(*tree);
            let (key, value) = (key.to_be_bytes().to_vec(), vec![*key as u8; *size]);
            let is_new = txn.put(id, &key, &value).unwrap();
            assert_eq!(
                is_new,
                model.get_mut(tree).unwrap().insert(key, value).is_none()
            );
        }
        Change::Insert(tree, key, size) => {
            let id = open(*tree);
            let (key, value) = (key.to_be_bytes().to_vec(), vec![*key as u8; *size]);
            let records = model.get_mut(tree).unwrap();
            let is_new = txn.insert(id, &key, &value).unwrap();
            assert_eq!(is_new, !records.contains_key(&key));
            records.entry(key).or_insert(value);
        }
        Change::Delete(tree, key) => {
            let id = open(*tree);
            let key = key.to_be_bytes();
            let existed = txn.delete(id, &key).unwrap();
            assert_eq!(
                existed,
                model.get_mut(tree).unwrap().remove(&key[..]).is_some()
            );
        }
        Change::PutRun(tree, first, count, up) => {
            for at in 0..*count {
                let key = match up {
                    true => first.saturating_add(at),
                    false => first.saturating_sub(at),
                };
                let put = Change::Put(*tree, key, usize::from(key * 7 % 200));
                apply(txn, model, &put);
                if at % 3 == 0 {
                    apply(txn, model, &Change::Put((tree + 1) % 3, key, 60));
                }
                if at % 11 == 0 {
                    apply(txn, model, &Change::Delete(*tree, key ^ (at & 31)));
                }
            }
        }
        Change::DropTree(tree) => {
            let existed = txn.drop_tree(format!("tree {tree}")).unwrap();
            assert_eq!(existed, model.remove(tree).is_some());
        }
        Change::Nested(changes, kept) => {
            let savepoint = txn.savepoint();
            let before = model.clone();
            for change in changes {
                apply(txn, model, change);
            }
            if !kept {
                txn.rollback_to(&savepoint);
                *model = before;
            }
            txn.release(savepoint);
        }
    }
}

fn compare(tree: Tree<'_>, records: &BTreeMap<Vec<u8>, Vec<u8>>) {
    let mut cursor = tree.cursor();
    for (key, value) in records {
        assert!(cursor.next().unwrap());
        assert_eq!(cursor.record().unwrap(), Some((&key[..], &value[..])));
    }
    assert!(!cursor.next().unwrap());
    assert_eq!(tree.record().records, records.len() as u64);
    if tree.record().kind.counted
        && let Some((at, key)) = records.keys().enumerate().nth(records.len() / 2)
    {
        assert_eq!(tree.rank(key).unwrap(), at as u64);
    }
}

fn compare_snapshot(snapshot: &Snapshot, model: &Model) {
    let names: Vec<_> = model
        .keys()
        .map(|tree| format!("tree {tree}").into_bytes())
        .collect();
    assert_eq!(snapshot.tree_names().unwrap(), names);
    for (name, records) in names.iter().zip(model.values()) {
        compare(snapshot.tree(name).unwrap().unwrap(), records);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn an_environment_is_what_its_model_is(steps in prop::collection::vec(step(), 1..30)) {
        let folder = tempfile::tempdir().unwrap();
        let options = Options::new().log_bytes(256 << 10).idle_checkpoint(None);
        let open = || Env::open(folder.path(), &options).unwrap();
        let mut env = Some(open());
        // The newest state, and that of each commit by number.
        let mut model = Model::new();
        let first = env.as_ref().unwrap().read().unwrap().commit();
        let mut states = BTreeMap::from([(first, model.clone())]);
        let mut kept = Vec::new();
        for step in &steps {
            let environment = env.as_ref().unwrap();
            match step {
                Step::Transact(changes, committed, waited) => {
                    let mut txn = environment.write().unwrap();
                    let mut after = model.clone();
                    for change in changes {
                        apply(&mut txn, &mut after, change);
                    }
                    for (tree, records) in &after {
                        let id = txn.tree(format!("tree {tree}")).unwrap().unwrap();
                        compare(txn.view(id).unwrap(), records);
                    }
                    if *committed {
                        let ticket = txn.commit().unwrap();
                        model = after;
                        states.insert(ticket.commit(), model.clone());
                        if *waited {
                            ticket.wait_durable().unwrap();
                            prop_assert!(environment.read().unwrap().commit() >= ticket.commit());
                        }
                    }
                }
                Step::Checkpoint => drop(environment.checkpoint().unwrap()),
                Step::KeepSnapshot => kept.push(environment.read().unwrap()),
                Step::DropSnapshot(at) if !kept.is_empty() => {
                    let snapshot = kept.remove(at.index(kept.len()));
                    compare_snapshot(&snapshot, &states[&snapshot.commit()]);
                }
                Step::DropSnapshot(_) => {}
                Step::Reopen => {
                    for snapshot in kept.drain(..) {
                        compare_snapshot(&snapshot, &states[&snapshot.commit()]);
                    }
                    env = None;
                    // Without a crash nothing that was applied is lost.
                    let reopened = env.insert(open());
                    compare_snapshot(&reopened.read().unwrap(), &model);
                }
            }
        }
        let environment = env.unwrap();
        environment.write().unwrap().commit().unwrap().wait_durable().unwrap();
        let report = environment.check().unwrap();
        prop_assert!(report.is_clean(), "{:#?}", report.problems);
        let newest = environment.read().unwrap();
        compare_snapshot(&newest, &model);
        for snapshot in kept {
            compare_snapshot(&snapshot, &states[&snapshot.commit()]);
        }
    }
}
