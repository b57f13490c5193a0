//! What distinguishes two snapshots is what distinguishes the maps that they were made from.

#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use sapwood_store::{Duplicates, Env, Error, Options, Snapshot, TreeKind, WriteTxn};

type Records = BTreeSet<(Vec<u8>, Vec<u8>)>;
type Model = BTreeMap<&'static str, Records>;

const TREES: [&str; 6] = ["apart", "compact", "counted", "fixed", "pairs", "whole"];

fn kind(name: &str) -> TreeKind {
    match name {
        "apart" => TreeKind::OUT_OF_LINE,
        "compact" => TreeKind::COMPACT,
        "counted" => TreeKind::COUNTED,
        "pairs" => TreeKind::DUPLICATES,
        "fixed" => TreeKind {
            duplicates: Some(Duplicates {
                fixed: true,
                ..Duplicates::default()
            }),
            ..TreeKind::DUPLICATES
        },
        _ => TreeKind {
            whole: true,
            ..TreeKind::COMPACT
        },
    }
}

#[derive(Clone, Debug)]
enum Step {
    Put {
        tree: usize,
        key: u16,
        value: u16,
        size: usize,
    },
    Delete {
        tree: usize,
        key: u16,
    },
    /// Many keys, or many values of one.
    Fill {
        tree: usize,
        key: u16,
        count: u16,
    },
    Clear {
        tree: usize,
        from: u16,
        to: u16,
    },
    Drop {
        tree: usize,
    },
    Commit,
}

fn step() -> impl Strategy<Value = Step> {
    let tree = 0..TREES.len();
    prop_oneof![
        12 => (tree.clone(), 0..400_u16, any::<u16>(), prop_oneof![9 => 2..60_usize, 1 => 2..9000_usize])
            .prop_map(|(tree, key, value, size)| Step::Put { tree, key, value, size }),
        4 => (tree.clone(), 0..400_u16).prop_map(|(tree, key)| Step::Delete { tree, key }),
        4 => (tree.clone(), 0..400_u16, 1..900_u16)
            .prop_map(|(tree, key, count)| Step::Fill { tree, key, count }),
        1 => (tree.clone(), 0..400_u16, 0..400_u16)
            .prop_map(|(tree, from, to)| Step::Clear { tree, from, to }),
        1 => tree.prop_map(|tree| Step::Drop { tree }),
        6 => Just(Step::Commit),
    ]
}

fn key(number: u16) -> Vec<u8> {
    format!("{:08}", u32::from(number) * 7919 % 65536).into_bytes()
}

fn put(txn: &mut WriteTxn, model: &mut Model, name: &'static str, key: &[u8], value: &[u8]) {
    let tree = match txn.tree(name).unwrap() {
        Some(tree) => tree,
        None => txn.create_tree(name, kind(name)).unwrap(),
    };
    let value = match name {
        "fixed" => &value[..2],
        "pairs" => &value[..value.len().min(1000)],
        _ => value,
    };
    txn.put(tree, key, value).unwrap();
    let records = model.entry(name).or_default();
    if kind(name).duplicates.is_none() {
        records.retain(|(k, _)| k != key);
    }
    records.insert((key.to_vec(), value.to_vec()));
}

fn apply(txn: &mut WriteTxn, model: &mut Model, step: &Step) {
    match *step {
        Step::Put {
            tree,
            key: k,
            value,
            size,
        } => {
            let mut bytes = vec![value as u8; size];
            bytes[..2].copy_from_slice(&value.to_be_bytes());
            put(txn, model, TREES[tree], &key(k), &bytes);
        }
        Step::Fill {
            tree,
            key: k,
            count,
        } => {
            for n in 0..count {
                let value = (n ^ k).to_be_bytes();
                let many_values = kind(TREES[tree]).duplicates.is_some();
                let key = if many_values {
                    key(k)
                } else {
                    key(k.wrapping_add(n))
                };
                let records = model.entry(TREES[tree]).or_default();
                if !records.contains(&(key.clone(), value.to_vec())) {
                    put(txn, model, TREES[tree], &key, &value);
                }
            }
        }
        Step::Delete { tree, key: k } => {
            if let Some(id) = txn.tree(TREES[tree]).unwrap() {
                txn.delete(id, &key(k)).unwrap();
                let records = model.get_mut(TREES[tree]).unwrap();
                records.retain(|(of, _)| *of != key(k));
            }
        }
        Step::Clear { tree, from, to } => {
            if let Some(id) = txn.tree(TREES[tree]).unwrap() {
                let (from, to) = (key(from.min(to)), key(from.max(to)));
                let (from, to) = (from.clone().min(to.clone()), from.max(to));
                use std::ops::Bound::{Excluded, Included};
                txn.delete_range(id, Included(&from), Excluded(&to))
                    .unwrap();
                let records = model.get_mut(TREES[tree]).unwrap();
                records.retain(|(of, _)| *of < from || *of >= to);
            }
        }
        Step::Drop { tree } => {
            txn.drop_tree(TREES[tree]).unwrap();
            model.remove(TREES[tree]);
        }
        Step::Commit => {}
    }
}

type OldAndNew = (Option<Vec<u8>>, Option<Vec<u8>>);
type Told = Vec<(String, Vec<u8>, Option<Vec<u8>>, Option<Vec<u8>>)>;

fn told(old: &Snapshot, new: &Snapshot) -> Told {
    let mut told = Vec::new();
    for tree in new.changes_since(old).unwrap() {
        let mut changes = tree.changes();
        while let Some(change) = changes.next().unwrap() {
            let own = |value: Option<&[u8]>| value.map(<[u8]>::to_vec);
            let name = String::from_utf8(tree.name.clone()).unwrap();
            told.push((name, change.key.to_vec(), own(change.old), own(change.new)));
        }
    }
    told
}

fn expected(old: &Model, new: &Model) -> Told {
    let mut expected = Vec::new();
    for name in TREES {
        let nothing = Records::new();
        let [old, new] = [old, new].map(|model| model.get(name).unwrap_or(&nothing));
        let mut differ: BTreeMap<_, OldAndNew> = BTreeMap::new();
        let by_value = kind(name).duplicates.is_some();
        let place = |(key, value): &(Vec<u8>, Vec<u8>)| {
            (
                key.clone(),
                if by_value { value.clone() } else { Vec::new() },
            )
        };
        for record in old.difference(new) {
            differ.entry(place(record)).or_default().0 = Some(record.1.clone());
        }
        for record in new.difference(old) {
            differ.entry(place(record)).or_default().1 = Some(record.1.clone());
        }
        expected.extend(
            differ
                .into_iter()
                .map(|((key, _), (old, new))| (name.to_owned(), key, old, new)),
        );
    }
    expected
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn changes_are_those_of_the_model(steps in prop::collection::vec(step(), 1..60)) {
        let env = Env::in_memory(&Options::new()).unwrap();
        let mut model = Model::new();
        let mut kept = vec![(env.read().unwrap(), model.clone())];
        let mut txn = Some(env.write().unwrap());
        for step in steps.iter().chain([&Step::Commit]) {
            apply(txn.as_mut().unwrap(), &mut model, step);
            if matches!(step, Step::Commit) {
                txn.take().unwrap().commit().unwrap().wait_durable().unwrap();
                kept.push((env.read().unwrap(), model.clone()));
                txn = Some(env.write().unwrap());
            }
        }
        let (last, last_model) = kept.last().unwrap();
        for (snapshot, model) in &kept {
            prop_assert_eq!(told(snapshot, last), expected(model, last_model));
            prop_assert_eq!(told(last, snapshot), expected(last_model, model));
        }
    }
}

#[test]
fn a_tree_made_anew_as_another_kind_is_deleted_and_put() {
    let env = Env::in_memory(&Options::new()).unwrap();
    let make = |kind| {
        let mut txn = env.write().unwrap();
        txn.drop_tree("t").unwrap();
        let tree = txn.create_tree("t", kind).unwrap();
        txn.put(tree, b"key", b"value").unwrap();
        txn.commit().unwrap().wait_durable().unwrap();
        env.read().unwrap()
    };
    let one = make(TreeKind::COMPACT);
    let again = make(TreeKind::COMPACT);
    assert!(told(&one, &again).is_empty());
    let other = make(TreeKind::DUPLICATES);
    let (name, key, value) = ("t".to_owned(), b"key".to_vec(), Some(b"value".to_vec()));
    assert_eq!(
        told(&one, &other),
        [
            (name.clone(), key.clone(), value.clone(), None),
            (name, key, None, value)
        ]
    );
}

#[test]
fn snapshots_of_different_stores_are_refused() {
    let env = Env::in_memory(&Options::new().stores(2)).unwrap();
    let snapshots = env.read_stores().unwrap();
    assert!(matches!(
        snapshots[0].changes_since(&snapshots[1]),
        Err(Error::ForeignSnapshot)
    ));
}
