//! Random operations on trees with duplicates, whole keys and other orders, against ordered sets.

#![allow(clippy::unwrap_used)]

mod memory_pages;
mod whole_tree;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use proptest::prelude::*;
use sapwood_store::tree::{Cursor, TreeMut, TreeRecord, View};
use sapwood_store::{Duplicates, Error, KeyOrder, TreeKind};
use whole_tree::check;

use memory_pages::MemoryPages;

/// Keys and values as byte strings that are ordered bytewise as the tree orders what they stand for.
type Model = BTreeMap<Vec<u8>, BTreeSet<Vec<u8>>>;

fn compare(pages: &MemoryPages, tree: &TreeRecord, records: &[(Vec<u8>, Vec<u8>)]) {
    let records = records.iter().map(|(key, value)| (&key[..], &value[..]));
    whole_tree::compare(pages, tree, records);
}

/// What a bytewise ordered string stands for, and the other way round.
fn fold(order: KeyOrder, bytes: &[u8]) -> Vec<u8> {
    match order {
        KeyOrder::Bytes => bytes.to_vec(),
        // Integers have one length here.
        _ => bytes.iter().rev().copied().collect(),
    }
}

/// A tree beside its model.
struct Both {
    pages: MemoryPages,
    tree: TreeRecord,
    model: Model,
}

impl Both {
    fn key(&self, key: &[u8]) -> Vec<u8> {
        fold(self.tree.kind.order, key)
    }

    fn value(&self, value: &[u8]) -> Vec<u8> {
        let duplicates = self.tree.kind.duplicates.unwrap();
        fold(duplicates.order, value)
    }

    fn tree(&mut self) -> TreeMut<'_, MemoryPages> {
        TreeMut::new(&mut self.pages, &mut self.tree)
    }

    fn view(&self) -> View<'_, MemoryPages> {
        View::new(&self.pages, self.tree)
    }

    fn put(&mut self, key: &[u8], value: &[u8]) {
        let (k, v) = (self.key(key), self.value(value));
        let new = self
            .model
            .entry(key.to_vec())
            .or_default()
            .insert(value.to_vec());
        assert_eq!(self.tree().put(&k, &v).unwrap(), new);
    }

    fn delete_duplicate(&mut self, key: &[u8], value: &[u8]) {
        let (k, v) = (self.key(key), self.value(value));
        let was = self
            .model
            .get_mut(key)
            .is_some_and(|values| values.remove(value));
        self.model.retain(|_, values| !values.is_empty());
        assert_eq!(self.tree().delete_duplicate(&k, &v).unwrap(), was);
    }

    fn records(&self) -> Vec<(Vec<u8>, Vec<u8>)> {
        let pairs = self.model.iter().flat_map(|(key, values)| {
            values
                .iter()
                .map(|value| (self.key(key), self.value(value)))
        });
        pairs.collect()
    }

    fn compare(&self) {
        let records = self.records();
        compare(&self.pages, &self.tree, &records);
        let mut range = self
            .view()
            .range(Bound::Unbounded, Bound::Unbounded)
            .unwrap();
        for (key, value) in &records {
            assert_eq!(range.next().unwrap(), Some((&key[..], &value[..])));
        }
        assert_eq!(range.next().unwrap(), None);
    }

    /// A walk of a cursor, beside an index into all records.
    fn walk(&self, start: (&[u8], &[u8]), steps: &[u8]) {
        let records = self.records();
        let folded: Vec<(Vec<u8>, Vec<u8>)> = self
            .model
            .iter()
            .flat_map(|(k, vs)| vs.iter().map(|v| (k.clone(), v.clone())))
            .collect();
        let view = self.view();
        let mut cursor = view.cursor();
        let (key, value) = (self.key(start.0), self.value(start.1));
        let same_key = |at: usize, key: &[u8]| folded.get(at).is_some_and(|(k, _)| k == key);

        let exact = folded.iter().position(|(k, v)| (&k[..], &v[..]) == start);
        let found = cursor.seek_duplicate(&key, &value).unwrap();
        assert_eq!(found, exact.is_some());
        let from = folded
            .iter()
            .position(|(k, v)| k == start.0 && &v[..] >= start.1);
        let found = cursor.seek_duplicate_from(&key, &value).unwrap();
        assert_eq!(found, from.is_some());
        if let Some(at) = from {
            assert_eq!(cursor.value().unwrap(), Some(&records[at].1[..]));
        }
        let at_most = folded.iter().rposition(|(k, _)| &k[..] <= start.0);
        assert_eq!(cursor.seek_back(&key).unwrap(), at_most.is_some());
        if let Some(at) = at_most {
            assert_eq!(cursor.value().unwrap(), Some(&records[at].1[..]));
        }
        let after = folded.iter().position(|(k, _)| &k[..] > start.0);
        assert_eq!(cursor.seek_after(&key).unwrap(), after.is_some());
        let before = folded.iter().rposition(|(k, _)| &k[..] < start.0);
        assert_eq!(cursor.seek_before(&key).unwrap(), before.is_some());
        assert_eq!(
            view.get(&key).unwrap().map(<[u8]>::to_vec),
            self.model
                .get(start.0)
                .map(|values| self.value(values.first().unwrap()))
        );
        let first = folded.iter().position(|(k, _)| &k[..] >= start.0);
        assert_eq!(cursor.seek(&key).unwrap(), first.is_some());
        let Some(mut at) = first else { return };

        for step in steps {
            let key = folded[at].0.clone();
            type Move<'p> = fn(&mut Cursor<'p, MemoryPages>) -> Result<bool, Error>;
            let (move_it, to, stays): (Move<'_>, Option<usize>, bool) = match step % 9 {
                0 => (
                    Cursor::next,
                    (at + 1 < folded.len()).then_some(at + 1),
                    false,
                ),
                1 => (Cursor::prev, at.checked_sub(1), false),
                2 => (
                    Cursor::next_key,
                    (at..folded.len()).find(|&i| !same_key(i, &key)),
                    false,
                ),
                3 => (
                    Cursor::prev_key,
                    (0..at).rev().find(|&i| !same_key(i, &key)),
                    false,
                ),
                4 => (
                    Cursor::next_duplicate,
                    same_key(at + 1, &key).then_some(at + 1),
                    true,
                ),
                5 => (
                    Cursor::prev_duplicate,
                    at.checked_sub(1).filter(|&i| same_key(i, &key)),
                    true,
                ),
                6 => (
                    Cursor::first_duplicate,
                    (0..=at).find(|&i| same_key(i, &key)),
                    false,
                ),
                7 => (
                    Cursor::last_duplicate,
                    (at..folded.len()).rev().find(|&i| same_key(i, &key)),
                    false,
                ),
                _ => (
                    Cursor::next_duplicate,
                    same_key(at + 1, &key).then_some(at + 1),
                    true,
                ),
            };
            let moved = move_it(&mut cursor).unwrap();
            assert_eq!(moved, to.is_some(), "step {step} from {at}");
            match to {
                Some(to) => at = to,
                None if stays => {}
                None => return,
            }
            let record = (&records[at].0[..], &records[at].1[..]);
            assert_eq!(cursor.record().unwrap(), Some(record), "step {step}");
            let count = self.model[&folded[at].0].len() as u64;
            assert_eq!(cursor.duplicates().unwrap(), count);
        }
    }

    /// All values of a key through the operations on pieces, in both directions.
    fn pieces(&self, key: &[u8]) {
        let mut cursor = self.view().cursor();
        if !cursor.seek_exact(&self.key(key)).unwrap() {
            return;
        }
        let values: Vec<u8> = self.model[key]
            .iter()
            .flat_map(|value| self.value(value))
            .collect();
        let mut found = cursor.duplicates_here().unwrap().unwrap().to_vec();
        while let Some(piece) = cursor.next_duplicates().unwrap() {
            found.extend(piece);
        }
        assert_eq!(found, values);
        let mut found = cursor.duplicates_here().unwrap().unwrap().to_vec();
        while let Some(piece) = cursor.prev_duplicates().unwrap() {
            found.splice(0..0, piece.iter().copied());
        }
        assert_eq!(found, values);
    }
}

#[derive(Clone, Debug)]
enum Op {
    Put(u8, u16),
    Insert(u8, u16),
    PutRun(u8, u16, u16),
    PutMultiple(u8, Vec<u16>),
    AppendDuplicate(u8, u16),
    Append(u8, u16),
    Delete(u8),
    DeleteDuplicate(u8, u16),
    DeleteRun(u8, u16, u16),
    DeleteRange(u8, u8, u8),
    Walk(u8, u16, Vec<u8>),
    Pieces(u8),
    Commit,
}

fn ops() -> impl Strategy<Value = Op> {
    let (k, v) = (any::<u8>(), any::<u16>());
    prop_oneof![
        20 => (k, v).prop_map(|(k, v)| Op::Put(k, v)),
        5 => (k, v).prop_map(|(k, v)| Op::Insert(k, v)),
        8 => (k, v, 1u16..400).prop_map(|(k, v, n)| Op::PutRun(k, v, n)),
        4 => (k, prop::collection::vec(v, 1..200)).prop_map(|(k, vs)| Op::PutMultiple(k, vs)),
        4 => (k, v).prop_map(|(k, v)| Op::AppendDuplicate(k, v)),
        3 => (k, v).prop_map(|(k, v)| Op::Append(k, v)),
        4 => k.prop_map(Op::Delete),
        8 => (k, v).prop_map(|(k, v)| Op::DeleteDuplicate(k, v)),
        6 => (k, v, 1u16..400).prop_map(|(k, v, n)| Op::DeleteRun(k, v, n)),
        2 => (k, k, any::<u8>()).prop_map(|(a, b, bounds)| Op::DeleteRange(a, b, bounds)),
        8 => (k, v, prop::collection::vec(any::<u8>(), 0..40)).prop_map(|(k, v, s)| Op::Walk(k, v, s)),
        3 => k.prop_map(Op::Pieces),
        4 => Just(Op::Commit),
    ]
}

/// Few keys with many values, and many with few.
fn key(kind: TreeKind, n: u8) -> Vec<u8> {
    let n = if n < 128 { n % 5 } else { n };
    match kind.order {
        KeyOrder::Integer => vec![0, 0, n, n],
        _ if n.is_multiple_of(50) => vec![n; 1300],
        _ => format!("key {n:03}").into_bytes(),
    }
}

fn value(kind: TreeKind, n: u16) -> Vec<u8> {
    let duplicates = kind.duplicates.unwrap();
    if duplicates.fixed || duplicates.order == KeyOrder::Integer {
        return u64::from(n % 2000).to_be_bytes().to_vec();
    }
    let len = match n % 300 {
        0 => 1300,
        1 => 0,
        n => 2 + usize::from(n % 40),
    };
    let mut value = n.to_be_bytes().to_vec();
    value.resize(len, n as u8);
    value
}

fn run(kind: TreeKind, ops: &[Op]) {
    let mut both = Both {
        pages: MemoryPages::default(),
        tree: TreeRecord::empty(kind),
        model: Model::new(),
    };
    type Records = Vec<(Vec<u8>, Vec<u8>)>;
    let mut snapshot: Option<(TreeRecord, Records)> = None;
    let value = |n| value(kind, n);
    let key = |n| key(kind, n);
    for op in ops {
        match op {
            Op::Put(k, v) => both.put(&key(*k), &value(*v)),
            Op::Insert(k, v) => {
                let (k, v) = (key(*k), value(*v));
                let (folded, stored) = (both.key(&k), both.value(&v));
                let new = !both.model.contains_key(&k);
                assert_eq!(both.tree().insert(&folded, &stored).unwrap(), new);
                if new {
                    both.model.insert(k, BTreeSet::from([v]));
                }
            }
            Op::PutRun(k, v, n) => {
                (0..*n).for_each(|i| both.put(&key(*k), &value(v.wrapping_add(i))))
            }
            Op::PutMultiple(k, vs) if kind.duplicates.unwrap().fixed => {
                let k = key(*k);
                let mut many: Vec<Vec<u8>> = vs.iter().map(|&v| value(v)).collect();
                // Those that are in order, and behind the others, are stored together.
                if vs[0].is_multiple_of(2) {
                    many.sort();
                    many.dedup();
                }
                let values = both.model.entry(k.clone()).or_default();
                if let Some(last) = values.last().filter(|_| vs[0].is_multiple_of(4)) {
                    many.retain(|value| value > last);
                }
                let new = many
                    .iter()
                    .filter(|&value| values.insert(value.clone()))
                    .count();
                let packed: Vec<u8> = many.iter().flat_map(|v| both.value(v)).collect();
                let folded = both.key(&k);
                assert_eq!(both.tree().put_multiple(&folded, 8, &packed).unwrap(), new);
            }
            Op::PutMultiple(..) => {}
            Op::AppendDuplicate(k, v) => {
                let (k, v) = (key(*k), value(*v));
                let (folded, stored) = (both.key(&k), both.value(&v));
                let fits = both
                    .model
                    .get(&k)
                    .is_none_or(|values| values.last().unwrap() < &v);
                match both.tree().append_duplicate(&folded, &stored) {
                    Ok(()) => assert!(fits && both.model.entry(k).or_default().insert(v)),
                    Err(error) => assert!(!fits && matches!(error, Error::OutOfOrder)),
                }
            }
            Op::Append(k, v) => {
                let (k, v) = (key(*k), value(*v));
                let (folded, stored) = (both.key(&k), both.value(&v));
                let fits = both
                    .model
                    .last_key_value()
                    .is_none_or(|(last, values)| (last, values.last().unwrap()) < (&k, &v));
                match both.tree().append(&folded, &stored) {
                    Ok(()) => assert!(fits && both.model.entry(k).or_default().insert(v)),
                    Err(error) => assert!(!fits && matches!(error, Error::OutOfOrder)),
                }
            }
            Op::Delete(k) => {
                let k = key(*k);
                let folded = both.key(&k);
                let was = both.model.remove(&k).is_some();
                assert_eq!(both.tree().delete(&folded).unwrap(), was);
            }
            Op::DeleteDuplicate(k, v) => both.delete_duplicate(&key(*k), &value(*v)),
            Op::DeleteRun(k, v, n) => {
                (0..*n).for_each(|i| both.delete_duplicate(&key(*k), &value(v.wrapping_add(i))));
            }
            Op::DeleteRange(a, b, bounds) => {
                let (a, b) = (key(*a), key(*b));
                let (from, to) = (both.key(&a), both.key(&b));
                let bound = |choice: u8, key: &[u8]| match choice % 3 {
                    0 => Bound::Included(key.to_vec()),
                    1 => Bound::Excluded(key.to_vec()),
                    _ => Bound::Unbounded,
                };
                let before = both.records().len();
                let (lower, upper) = (bound(*bounds, &a), bound(bounds / 3, &b));
                both.model.retain(|key, _| {
                    let behind = match &lower {
                        Bound::Included(from) => key >= from,
                        Bound::Excluded(from) => key > from,
                        Bound::Unbounded => true,
                    };
                    let ahead = match &upper {
                        Bound::Included(to) => key <= to,
                        Bound::Excluded(to) => key < to,
                        Bound::Unbounded => true,
                    };
                    !(behind && ahead)
                });
                let removed = before - both.records().len();
                let (lower, upper) = (bound(*bounds, &from), bound(bounds / 3, &to));
                let lower = lower.as_ref().map(Vec::as_slice);
                let upper = upper.as_ref().map(Vec::as_slice);
                let found = both.tree().delete_range(lower, upper).unwrap();
                assert_eq!(found, removed as u64);
                check(&mut both.pages, &both.tree);
            }
            Op::Walk(k, v, steps) => both.walk((&key(*k), &value(*v)), steps),
            Op::Pieces(k) if kind.duplicates.unwrap().fixed => both.pieces(&key(*k)),
            Op::Pieces(_) => {}
            Op::Commit => {
                check(&mut both.pages, &both.tree);
                if let Some((tree, records)) = &snapshot {
                    compare(&both.pages, tree, records);
                }
                snapshot = Some((both.tree, both.records()));
                both.pages.next_commit();
            }
        }
    }
    check(&mut both.pages, &both.tree);
    both.compare();
    let keys: Vec<_> = both.model.keys().map(|k| both.key(k)).collect();
    for key in &keys {
        assert!(both.tree().delete(key).unwrap());
    }
    assert_eq!(both.tree, TreeRecord::empty(kind));
    assert_eq!(both.pages.in_use(), 0);
}

fn kinds() -> impl Strategy<Value = TreeKind> {
    let order = prop_oneof![
        3 => Just(KeyOrder::Bytes),
        1 => Just(KeyOrder::Reverse),
        1 => Just(KeyOrder::Integer),
    ];
    (order.clone(), order, any::<bool>()).prop_map(|(order, of_values, fixed)| TreeKind {
        order,
        duplicates: Some(Duplicates {
            fixed,
            order: of_values,
        }),
        ..TreeKind::WHOLE
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn duplicates_behave_like_ordered_sets(kind in kinds(), ops in prop::collection::vec(ops(), 1..120)) {
        run(kind, &ops);
    }
}

/// Few values stand in the leaf, many have a tree, and when most of them are gone they return.
#[test]
fn values_move_out_and_return() {
    for fixed in [false, true] {
        let kind = TreeKind {
            duplicates: Some(Duplicates {
                fixed,
                order: KeyOrder::Bytes,
            }),
            ..TreeKind::WHOLE
        };
        let mut pages = MemoryPages::default();
        let mut record = TreeRecord::empty(kind);
        let mut tree = TreeMut::new(&mut pages, &mut record);
        for n in 0..10_000u64 {
            assert!(tree.put(b"key", &n.to_be_bytes()).unwrap());
        }
        let many = pages.in_use();
        // Packed values take nothing but themselves: 508 of 8 bytes in a page.
        assert_eq!(many == 1 + 20 + 1, fixed, "{many} pages");
        let mut tree = TreeMut::new(&mut pages, &mut record);
        for n in 20..10_000u64 {
            assert!(tree.delete_duplicate(b"key", &n.to_be_bytes()).unwrap());
        }
        assert_eq!(pages.in_use(), 1);
        check(&mut pages, &record);
    }
}

#[test]
fn what_does_not_fit_is_refused() {
    let fixed = TreeKind {
        duplicates: Some(Duplicates {
            fixed: true,
            order: KeyOrder::Bytes,
        }),
        ..TreeKind::WHOLE
    };
    let mut pages = MemoryPages::default();
    let mut record = TreeRecord::empty(fixed);
    let mut tree = TreeMut::new(&mut pages, &mut record);
    tree.put(b"k", b"12").unwrap();
    let wrong_size = |result: Result<bool, Error>| {
        assert!(matches!(
            result,
            Err(Error::ValueSize {
                found: 3,
                expected: 2
            })
        ));
    };
    wrong_size(tree.put(b"k", b"123"));
    for n in 0..2000u16 {
        tree.put(b"k", &n.to_be_bytes()).unwrap();
        if n % 997 == 0 {
            wrong_size(tree.put(b"k", b"123"));
            wrong_size(tree.append_duplicate(b"k", &[255; 3]).map(|()| true));
            wrong_size(tree.put_multiple(b"k", 3, &[255; 3]).map(|new| new > 0));
            wrong_size(
                tree.put_multiple(b"k", 3, b"\xff\xff0\xff\xff1")
                    .map(|new| new > 0),
            );
            assert!(!tree.delete_duplicate(b"k", b"123").unwrap());
        }
    }
    assert!(matches!(
        tree.put_multiple(b"k", 2, b"123"),
        Err(Error::ValueSize { .. })
    ));
    assert!(matches!(
        tree.put(b"k", &[0; 1301]),
        Err(Error::DuplicateTooLong(1301))
    ));

    let mut record = TreeRecord::empty(TreeKind::WHOLE);
    let mut tree = TreeMut::new(&mut pages, &mut record);
    assert!(matches!(
        tree.append_duplicate(b"k", b"v"),
        Err(Error::NoDuplicates)
    ));
    assert!(matches!(
        tree.put_multiple(b"k", 1, b"v"),
        Err(Error::NoDuplicates)
    ));
    tree.put(b"k", b"v").unwrap();
    assert!(!tree.delete_duplicate(b"k", b"w").unwrap());
    assert!(tree.delete_duplicate(b"k", b"v").unwrap());
}
