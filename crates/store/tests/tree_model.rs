//! Random operations on trees, against an ordered map.

#![allow(clippy::unwrap_used)]

mod memory_pages;
mod whole_tree;

use std::collections::BTreeMap;
use std::ops::Bound;

use proptest::prelude::*;
use sapwood_store::bulk::TreeBuilder;
use sapwood_store::page::{AppendPages, HeapNo, PageNo, WritePages};
use sapwood_store::tree::{self, TreeKind, TreeMut, TreeRecord, View};
use sapwood_store::{Error, KEY_BYTES_MAX};
use whole_tree::check;

use memory_pages::MemoryPages;

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

fn compare(pages: &MemoryPages, tree: &TreeRecord, model: &Model) {
    let records = model.iter().map(|(key, value)| (&key[..], &value[..]));
    whole_tree::compare(pages, tree, records);
}

/// Everything that can be asked about one key, which need not exist.
fn probe(pages: &MemoryPages, tree: &TreeRecord, model: &Model, key: &[u8]) {
    let view = View::new(pages, *tree);
    assert_eq!(view.get(key).unwrap(), model.get(key).map(Vec::as_slice));
    let at_least = model
        .range::<[u8], _>((Bound::Included(key), Bound::Unbounded))
        .next();
    let greater = model
        .range::<[u8], _>((Bound::Excluded(key), Bound::Unbounded))
        .next();
    let at_most = model
        .range::<[u8], _>((Bound::Unbounded, Bound::Included(key)))
        .next_back();
    let less = model
        .range::<[u8], _>((Bound::Unbounded, Bound::Excluded(key)))
        .next_back();
    let mut cursor = view.cursor();
    let slices =
        |record: Option<(&'_ Vec<u8>, &'_ Vec<u8>)>| record.map(|(k, v)| (k.clone(), v.clone()));
    let expect = |cursor: &mut tree::Cursor<'_, MemoryPages>, found: bool, record| {
        assert_eq!(found, Option::is_some(&record));
        let got = cursor
            .record()
            .unwrap()
            .map(|(k, v)| (k.to_vec(), v.to_vec()));
        assert_eq!(got, record);
    };
    let found = cursor.seek(key).unwrap();
    expect(&mut cursor, found, slices(at_least));
    if found {
        let before = cursor.prev().unwrap();
        expect(&mut cursor, before, slices(less));
    }
    let found = cursor.seek_after(key).unwrap();
    expect(&mut cursor, found, slices(greater));
    let found = cursor.seek_back(key).unwrap();
    expect(&mut cursor, found, slices(at_most));
    if found {
        let next = cursor.next().unwrap();
        expect(&mut cursor, next, slices(greater));
    }
    let found = cursor.seek_before(key).unwrap();
    expect(&mut cursor, found, slices(less));
    let found = cursor.seek_exact(key).unwrap();
    assert_eq!(found, model.contains_key(key));
    if tree.kind.counted {
        let rank = model
            .range::<[u8], _>((Bound::Unbounded, Bound::Excluded(key)))
            .count() as u64;
        assert_eq!(view.rank(key).unwrap(), rank);
        let found = cursor.seek_nth(rank).unwrap();
        expect(&mut cursor, found, slices(at_least));
    } else {
        assert!(matches!(view.rank(key), Err(Error::NotCounted)));
    }
}

/// A range taken from both ends in turn as `turns` says.
fn probe_range(
    pages: &MemoryPages,
    tree: &TreeRecord,
    model: &Model,
    from: Bound<&[u8]>,
    to: Bound<&[u8]>,
    turns: u32,
) {
    let view = View::new(pages, *tree);
    let ordered = match (from, to) {
        (Bound::Included(a), Bound::Included(b)) => a <= b,
        (Bound::Included(a) | Bound::Excluded(a), Bound::Included(b) | Bound::Excluded(b)) => a < b,
        _ => true,
    };
    let mut expected: std::collections::VecDeque<_> = if ordered {
        model.range::<[u8], _>((from, to)).collect()
    } else {
        Default::default()
    };
    let count = expected.len() as u64;
    if tree.kind.counted {
        assert_eq!(view.count(from, to).unwrap(), count);
        assert_eq!(view.estimate(from, to).unwrap(), count);
    } else {
        let estimate = view.estimate(from, to).unwrap();
        assert!(estimate <= tree.records);
        if tree.height <= 1 {
            assert_eq!(estimate, count);
        }
    }
    let mut range = view.range(from, to).unwrap();
    for turn in 0.. {
        let front = turns.rotate_left(turn) & 1 == 0;
        let (got, expected) = if front {
            (range.next().unwrap(), expected.pop_front())
        } else {
            (range.next_back().unwrap(), expected.pop_back())
        };
        assert_eq!(got, expected.map(|(k, v)| (k.as_slice(), v.as_slice())));
        if got.is_none() {
            break;
        }
    }
    assert_eq!(range.next().unwrap(), None);
    assert_eq!(range.next_back().unwrap(), None);
}

#[derive(Clone, Debug)]
enum Op {
    Put(Vec<u8>, Vec<u8>),
    Insert(Vec<u8>, Vec<u8>),
    Delete(Vec<u8>),
    /// Deletes existing records, from the one at this fraction of the tree on.
    DeleteRun(u16, u16),
    /// Inserts consecutive keys, and deletes one every so often, or all.
    PutRun(u32, u16, bool, u32),
    Probe(Vec<u8>),
    Range(Vec<u8>, Vec<u8>, u8, u32),
    Commit,
    Clear,
}

fn keys() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        4 => proptest::collection::vec(0u8..3, 0..7),
        4 => (0u32..400).prop_map(|n| format!("uid=user{n:05},ou=people").into_bytes()),
        2 => (0u32..2000).prop_map(|n| n.to_be_bytes().to_vec()),
        2 => proptest::collection::vec(any::<u8>(), 0..30),
        1 => (0u8..4, 0usize..1290, any::<u16>()).prop_map(|(fill, len, tail)| {
            let mut key = vec![fill; len];
            key.extend(tail.to_be_bytes());
            key
        }),
        1 => (0usize..40, any::<u8>()).prop_map(|(n, last)| {
            let mut key = vec![b'k'; KEY_BYTES_MAX - 41 + n];
            key.push(last);
            key
        }),
    ]
}

fn values() -> impl Strategy<Value = Vec<u8>> {
    let filled = |len: usize, fill: u8| {
        (0..len)
            .map(|i| fill.wrapping_add(i as u8))
            .collect::<Vec<u8>>()
    };
    prop_oneof![
        6 => (0usize..200, any::<u8>()).prop_map(move |(len, fill)| filled(len, fill)),
        2 => (0usize..2100, any::<u8>()).prop_map(move |(len, fill)| filled(len, fill)),
        1 => (1900usize..20_000, any::<u8>()).prop_map(move |(len, fill)| filled(len, fill)),
    ]
}

fn ops() -> impl Strategy<Value = Op> {
    prop_oneof![
        30 => (keys(), values()).prop_map(|(k, v)| Op::Put(k, v)),
        10 => (keys(), values()).prop_map(|(k, v)| Op::Insert(k, v)),
        15 => keys().prop_map(Op::Delete),
        5 => (any::<u16>(), 1u16..80).prop_map(|(at, n)| Op::DeleteRun(at, n)),
        4 => (0u32..5000, 1u16..300, any::<bool>(), 3u32..40)
            .prop_map(|(at, n, up, pause)| Op::PutRun(at, n, up, pause)),
        15 => keys().prop_map(Op::Probe),
        8 => (keys(), keys(), any::<u8>(), any::<u32>()).prop_map(|(a, b, bounds, turns)| Op::Range(a, b, bounds, turns)),
        4 => Just(Op::Commit),
        1 => (0u8..8).prop_map(|n| if n == 0 { Op::Clear } else { Op::Commit }),
    ]
}

fn bound(key: &[u8], choice: u8) -> Bound<&[u8]> {
    match choice % 3 {
        0 => Bound::Included(key),
        1 => Bound::Excluded(key),
        _ => Bound::Unbounded,
    }
}

fn run(kind: TreeKind, ops: &[Op]) {
    let mut pages = MemoryPages::default();
    let mut tree = TreeRecord::empty(kind);
    let mut model = Model::new();
    // The state of the last commit: a snapshot that later changes must not touch.
    let mut snapshot: Option<(TreeRecord, Model)> = None;
    for op in ops {
        match op {
            Op::Put(key, value) => {
                let new = tree::put(&mut pages, &mut tree, key, value).unwrap();
                assert_eq!(new, model.insert(key.clone(), value.clone()).is_none());
            }
            Op::Insert(key, value) => {
                let new = TreeMut::new(&mut pages, &mut tree)
                    .insert(key, value)
                    .unwrap();
                assert_eq!(new, !model.contains_key(key));
                model.entry(key.clone()).or_insert_with(|| value.clone());
            }
            Op::Delete(key) => {
                let was = tree::delete(&mut pages, &mut tree, key).unwrap();
                assert_eq!(was, model.remove(key).is_some());
            }
            Op::DeleteRun(at, n) => {
                let at = (usize::from(*at) * model.len()) >> 16;
                let keys: Vec<_> = model
                    .keys()
                    .skip(at)
                    .take(usize::from(*n))
                    .cloned()
                    .collect();
                for key in keys {
                    assert!(tree::delete(&mut pages, &mut tree, &key).unwrap());
                    model.remove(&key);
                }
            }
            Op::PutRun(at, n, up, pause) => {
                let mut tree = TreeMut::new(&mut pages, &mut tree);
                for i in 0..u32::from(*n) {
                    if i % pause == pause - 1 {
                        let deleted = format!("run{:06}", at + i / 2).into_bytes();
                        let was = tree.delete(&deleted).unwrap();
                        assert_eq!(was, model.remove(&deleted).is_some());
                    }
                    if i == 250 && *pause == 3 {
                        tree.clear().unwrap();
                        model.clear();
                    }
                    let i = if *up { i } else { u32::from(*n) - i };
                    let key = format!("run{:06}", at + i).into_bytes();
                    let value = vec![i as u8; 40];
                    let is_new = tree.put(&key, &value).unwrap();
                    assert_eq!(is_new, model.insert(key, value).is_none());
                }
            }
            Op::Probe(key) => probe(&pages, &tree, &model, key),
            Op::Range(a, b, bounds, turns) => {
                probe_range(
                    &pages,
                    &tree,
                    &model,
                    bound(a, *bounds),
                    bound(b, bounds / 3),
                    *turns,
                );
            }
            Op::Commit => {
                check(&mut pages, &tree);
                if let Some((tree, model)) = &snapshot {
                    compare(&pages, tree, model);
                }
                snapshot = Some((tree, model.clone()));
                pages.next_commit();
            }
            Op::Clear => {
                TreeMut::new(&mut pages, &mut tree).clear().unwrap();
                model.clear();
            }
        }
    }
    check(&mut pages, &tree);
    compare(&pages, &tree, &model);
    let keys: Vec<_> = model.keys().cloned().collect();
    for key in keys.iter().step_by(3).chain(keys.iter().rev()) {
        assert_eq!(
            tree::delete(&mut pages, &mut tree, key).unwrap(),
            model.remove(key).is_some()
        );
    }
    assert_eq!(tree, TreeRecord::empty(kind));
    assert_eq!(pages.in_use(), 0);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn behaves_like_an_ordered_map(counted: bool, ops in proptest::collection::vec(ops(), 1..300)) {
        run(TreeKind { counted, ..TreeKind::COMPACT }, &ops);
    }

    #[test]
    fn bulk_building_gives_the_same_tree(
        counted: bool,
        model in proptest::collection::btree_map(keys(), values(), 0..600),
        more in proptest::collection::vec((keys(), values()), 0..50),
    ) {
        let kind = TreeKind { counted, ..TreeKind::COMPACT };
        let mut pages = MemoryPages::default();
        let mut builder = TreeBuilder::new(kind);
        for (key, value) in &model {
            builder.push(&mut pages, key, value).unwrap();
        }
        let mut tree = builder.finish(&mut pages).unwrap();
        check(&mut pages, &tree);
        compare(&pages, &tree, &model);
        pages.next_commit();
        let mut model = model;
        for (key, value) in more {
            tree::put(&mut pages, &mut tree, &key, &value).unwrap();
            model.insert(key, value);
        }
        check(&mut pages, &tree);
        compare(&pages, &tree, &model);
    }

    #[test]
    fn a_record_survives_encoding(root in 1u64..1 << 48, records: u64, height in 1u8..24, counted: bool) {
        let record = TreeRecord { root: PageNo(root), records, leaf_pages: 3, branch_pages: 2, extent_pages: 1, height, heap: HeapNo::default(), kind: TreeKind { counted, ..TreeKind::COMPACT } };
        prop_assert_eq!(TreeRecord::decode(&record.encode()), Some(record));
    }

    #[test]
    fn any_bytes_are_a_record_or_none(bytes in proptest::collection::vec(any::<u8>(), 0..60)) {
        if let Some(record) = TreeRecord::decode(&bytes) {
            prop_assert_eq!(record.encode().to_vec(), bytes);
        }
    }
}

/// Ascending and descending insertions leave full pages behind.
#[test]
fn runs_fill_their_pages() {
    for step in [1i64, -1] {
        let mut pages = MemoryPages::default();
        let mut tree = TreeRecord::empty(TreeKind::default());
        for i in 0..20_000i64 {
            let key = (1_000_000 + i * step).to_be_bytes();
            tree::put(&mut pages, &mut tree, &key, &[7; 100]).unwrap();
        }
        check(&mut pages, &tree);
        // A record takes 110 bytes: 37 of them fill a page.
        let full = 20_000 / 37;
        assert!(
            tree.leaf_pages <= full + full / 20,
            "{} leaf pages for a run of step {step}",
            tree.leaf_pages
        );
    }
}

/// Several ascending runs at once, between each other's records: each fills its pages all the same.
#[test]
fn interleaved_runs_fill_their_pages() {
    let mut pages = MemoryPages::default();
    let mut tree = TreeRecord::empty(TreeKind::default());
    for i in 0..4_000u32 {
        for run in 0..5u32 {
            let key = [run.to_be_bytes(), i.to_be_bytes()].concat();
            tree::put(&mut pages, &mut tree, &key, &[7; 100]).unwrap();
        }
    }
    check(&mut pages, &tree);
    let full = 20_000 / 37;
    assert!(
        tree.leaf_pages <= full + full / 8,
        "{} leaf pages",
        tree.leaf_pages
    );
}

#[test]
fn what_is_too_long_is_refused_and_changes_nothing() {
    let mut pages = MemoryPages::default();
    let mut tree = TreeRecord::empty(TreeKind::default());
    let longest = vec![1; KEY_BYTES_MAX];
    let too_long = vec![1; KEY_BYTES_MAX + 1];
    assert!(tree::put(&mut pages, &mut tree, &longest, b"").unwrap());
    let before = tree;
    assert!(matches!(
        tree::put(&mut pages, &mut tree, &too_long, b""),
        Err(Error::KeyTooLong(_))
    ));
    assert!(View::new(&pages, tree).get(&too_long).unwrap().is_none());
    assert_eq!(tree, before);
}

#[test]
fn bulk_input_must_ascend() {
    let mut pages = MemoryPages::default();
    let mut builder = TreeBuilder::new(TreeKind::default());
    builder.push(&mut pages, b"b", b"").unwrap();
    assert!(matches!(
        builder.push(&mut pages, b"b", b""),
        Err(Error::NotSorted(1))
    ));
    assert!(matches!(
        builder.push(&mut pages, b"a", b""),
        Err(Error::NotSorted(1))
    ));
    builder.push(&mut pages, b"c", b"").unwrap();
    assert_eq!(builder.finish(&mut pages).unwrap().records, 2);
    assert_eq!(AppendPages::commit(&pages), WritePages::commit(&pages));
}
