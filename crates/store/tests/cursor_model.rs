//! Write transactions with several cursors, nested transactions and trees of every kind, beside ordered sets of pairs.

#![allow(clippy::unwrap_used)]

use std::cmp::Ordering;
use std::collections::BTreeSet;

use proptest::prelude::*;
use sapwood_store::{
    Comparators, Duplicates, Env, Error, KeyOrder, Options, TreeId, TreeKind, WriteCursor, WriteTxn,
};

type Pair = (Vec<u8>, Vec<u8>);

/// Keys and values as byte strings that are ordered as the tree orders what they stand for: descending orders are those
/// of inverted bytes.
type Model = BTreeSet<Pair>;

const CURSORS: usize = 3;

#[derive(Clone, Debug)]
enum Op {
    Move(usize, u8),
    Seek(usize, u8, u8, u8),
    /// Only looks for a key, which a put that follows makes use of.
    Look(usize, u8),
    Put(usize, u8, u8),
    Insert(usize, u8, u8),
    Append(usize, u8, u8),
    PutCurrent(usize, u8),
    Delete(usize),
    DeleteKey(usize),
    Reserve(usize, u8, u16),
    /// Changes beside all cursors.
    TxnPut(u8, u8),
    TxnDelete(u8),
    DeleteRun(u8, u8),
    Nested(Vec<Op>, bool),
}

fn ops() -> impl Strategy<Value = Op> {
    let (c, k, v) = (0..CURSORS, any::<u8>(), any::<u8>());
    let leaf = prop_oneof![
        30 => (c.clone(), any::<u8>()).prop_map(|(c, m)| Op::Move(c, m)),
        6 => (c.clone(), k, v, any::<u8>()).prop_map(|(c, k, v, how)| Op::Seek(c, k, v, how)),
        8 => (c.clone(), k).prop_map(|(c, k)| Op::Look(c, k)),
        15 => (c.clone(), k, v).prop_map(|(c, k, v)| Op::Put(c, k, v)),
        3 => (c.clone(), k, v).prop_map(|(c, k, v)| Op::Insert(c, k, v)),
        15 => (c.clone(), k, v).prop_map(|(c, k, v)| Op::Append(c, k, v)),
        4 => (c.clone(), v).prop_map(|(c, v)| Op::PutCurrent(c, v)),
        10 => c.clone().prop_map(Op::Delete),
        2 => c.clone().prop_map(Op::DeleteKey),
        2 => (c, k, 0u16..6000).prop_map(|(c, k, len)| Op::Reserve(c, k, len)),
        10 => (k, v).prop_map(|(k, v)| Op::TxnPut(k, v)),
        3 => k.prop_map(Op::TxnDelete),
        2 => (k, v).prop_map(|(k, v)| Op::DeleteRun(k, v)),
    ];
    leaf.prop_recursive(3, 40, 10, |inner| {
        (prop::collection::vec(inner, 0..10), any::<bool>())
            .prop_map(|(ops, kept)| Op::Nested(ops, kept))
    })
}

/// Where a cursor stands: on this pair, or in the gap it left; or nowhere.
type Standing = Option<Pair>;

struct Run<'a> {
    kind: TreeKind,
    descending: bool,
    tree: TreeId,
    cursors: &'a mut [(WriteCursor, Standing)],
}

impl Run<'_> {
    fn has_duplicates(&self) -> bool {
        self.kind.duplicates.is_some()
    }

    /// What a byte string of the model is in the tree.
    fn fold(&self, bytes: &[u8]) -> Vec<u8> {
        match self.descending {
            true => bytes.iter().map(|byte| !byte).collect(),
            false => bytes.to_vec(),
        }
    }

    fn key(&self, n: u8) -> Vec<u8> {
        vec![n % 6, 1]
    }

    fn value(&self, n: u8) -> Vec<u8> {
        match self.kind.duplicates {
            Some(Duplicates { fixed: true, .. }) => vec![n; 100],
            Some(_) => vec![n; 60 + usize::from(n % 3)],
            None => vec![n; usize::from(n) * 5],
        }
    }

    fn put(&self, model: &mut Model, pair: &Pair) {
        if !self.has_duplicates() {
            model.retain(|(key, _)| *key != pair.0);
        }
        model.insert(pair.clone());
    }

    /// The pair as a cursor remembers it: without duplicates, by its key alone.
    fn place(&self, (key, value): &Pair) -> Pair {
        match self.has_duplicates() {
            true => (key.clone(), value.clone()),
            false => (key.clone(), Vec::new()),
        }
    }

    fn is_there(&self, model: &Model, place: &Pair) -> bool {
        model.iter().any(|pair| self.place(pair) == *place)
    }

    fn apply(&mut self, txn: &mut WriteTxn, model: &mut Model, op: &Op) {
        match op {
            Op::Move(at, how) => self.go(txn, model, *at, *how),
            Op::Seek(at, k, v, how) => {
                self.seek(txn, model, *at, (self.key(*k), self.value(*v)), *how)
            }
            Op::Look(at, k) => {
                let key = self.key(*k);
                let first = model.iter().find(|(other, _)| *other == key).cloned();
                let shown = first.as_ref().map(|first| self.fold(&first.1));
                let key = self.fold(&key);
                let (cursor, standing) = &mut self.cursors[*at];
                let found = cursor.seek_exact(txn, &key).unwrap();
                assert_eq!(found.map(<[u8]>::to_vec), shown);
                *standing = first;
            }
            Op::Put(at, k, v) => {
                let pair = (self.key(*k), self.value(*v));
                let (key, value) = (self.fold(&pair.0), self.fold(&pair.1));
                let is_new = !self.is_there(model, &self.place(&pair));
                let (cursor, standing) = &mut self.cursors[*at];
                assert_eq!(cursor.put(txn, &key, &value).unwrap(), is_new);
                *standing = Some(pair.clone());
                self.put(model, &pair);
                self.shows(txn, model, *at);
            }
            Op::Insert(at, k, v) => {
                let pair = (self.key(*k), self.value(*v));
                let (key, value) = (self.fold(&pair.0), self.fold(&pair.1));
                let there = model.iter().find(|(key, _)| *key == pair.0).cloned();
                let (cursor, standing) = &mut self.cursors[*at];
                assert_eq!(cursor.insert(txn, &key, &value).unwrap(), there.is_none());
                *standing = there.or(Some(pair.clone()));
                if !model.iter().any(|(key, _)| *key == pair.0) {
                    model.insert(pair);
                }
                self.shows(txn, model, *at);
            }
            Op::Append(at, k, v) => self.append(txn, model, *at, (self.key(*k), self.value(*v))),
            Op::PutCurrent(at, v) => {
                let value = self.value(*v);
                let folded = self.fold(&value);
                let there = self.stands_on(model, *at);
                let (cursor, standing) = &mut self.cursors[*at];
                match cursor.put_current(txn, &folded) {
                    Ok(()) => {
                        let old = there.unwrap();
                        model.remove(&old);
                        model.insert((old.0.clone(), value.clone()));
                        *standing = Some((old.0, value));
                    }
                    Err(Error::NoRecord) => assert!(there.is_none()),
                    Err(error) => panic!("{error}"),
                }
                self.shows(txn, model, *at);
            }
            Op::Delete(at) => {
                let there = self.stands_on(model, *at);
                match self.cursors[*at].0.delete(txn) {
                    Ok(()) => assert!(model.remove(&there.unwrap())),
                    Err(Error::NoRecord) => assert!(there.is_none()),
                    Err(error) => panic!("{error}"),
                }
                self.shows(txn, model, *at);
            }
            Op::DeleteKey(at) => {
                let there = self.stands_on(model, *at);
                match self.cursors[*at].0.delete_key(txn) {
                    Ok(()) => {
                        let (key, _) = there.unwrap();
                        model.retain(|(other, _)| *other != key);
                    }
                    Err(Error::NoRecord) => assert!(there.is_none()),
                    Err(error) => panic!("{error}"),
                }
            }
            Op::Reserve(at, k, len) => {
                let key = self.key(*k);
                let value: Vec<u8> = (0..*len).map(|i| i as u8).collect();
                let folded = self.fold(&key);
                let stored = self.fold(&value);
                let (cursor, standing) = &mut self.cursors[*at];
                match cursor.reserve(txn, &folded, value.len()) {
                    Ok(place) => {
                        assert!(place.iter().all(|&byte| byte == 0));
                        place.copy_from_slice(&stored);
                        *standing = Some((key.clone(), value.clone()));
                        self.put(model, &(key, value));
                    }
                    Err(Error::Duplicates) => assert!(self.has_duplicates()),
                    Err(error) => panic!("{error}"),
                }
            }
            Op::TxnPut(k, v) => {
                let pair = (self.key(*k), self.value(*v));
                txn.put(self.tree, &self.fold(&pair.0), &self.fold(&pair.1))
                    .unwrap();
                self.put(model, &pair);
            }
            Op::TxnDelete(k) => {
                let key = self.key(*k);
                let was = model.iter().any(|(other, _)| *other == key);
                assert_eq!(txn.delete(self.tree, &self.fold(&key)).unwrap(), was);
                model.retain(|(other, _)| *other != key);
            }
            Op::DeleteRun(k, v) => {
                let key = self.key(*k);
                for n in *v..v.saturating_add(60) {
                    let pair = (key.clone(), self.value(n));
                    let was = model.remove(&pair);
                    let (key, value) = (self.fold(&pair.0), self.fold(&pair.1));
                    assert_eq!(txn.delete_duplicate(self.tree, &key, &value).unwrap(), was);
                }
            }
            Op::Nested(ops, kept) => {
                let mut inner = model.clone();
                let mut child = txn.child();
                for op in ops {
                    self.apply(&mut child, &mut inner, op);
                }
                if *kept {
                    child.commit();
                    *model = inner;
                }
            }
        }
    }

    /// As `slapadd` does: looks for the key, and puts a value behind its others.
    fn append(&mut self, txn: &mut WriteTxn, model: &mut Model, at: usize, pair: Pair) {
        let (key, value) = (self.fold(&pair.0), self.fold(&pair.1));
        let first = model.iter().find(|(key, _)| *key == pair.0).cloned();
        let shown = first.as_ref().map(|first| self.fold(&first.1));
        let last = model.iter().rfind(|(key, _)| *key == pair.0);
        let is_behind = last.is_none_or(|last| last.1 < pair.1);
        let (cursor, standing) = &mut self.cursors[at];
        let found = cursor.seek_exact(txn, &key).unwrap();
        assert_eq!(found.map(<[u8]>::to_vec), shown);
        *standing = first;
        self.shows(txn, model, at);
        let (cursor, standing) = &mut self.cursors[at];
        match cursor.append_duplicate(txn, &key, &value) {
            Ok(()) => {
                assert!(is_behind);
                *standing = Some(pair.clone());
                self.put(model, &pair);
            }
            Err(Error::OutOfOrder) => assert!(!is_behind),
            Err(Error::NoDuplicates) => assert!(!self.has_duplicates()),
            Err(error) => panic!("{error}"),
        }
        self.shows(txn, model, at);
    }

    /// The pair that a cursor stands on, unless that is gone.
    fn stands_on(&self, model: &Model, at: usize) -> Option<Pair> {
        let place = self.place(self.cursors[at].1.as_ref()?);
        model.iter().find(|pair| self.place(pair) == place).cloned()
    }

    /// The cursor shows its record, or what follows the gap it stands in.
    fn shows(&mut self, txn: &WriteTxn, model: &Model, at: usize) {
        let expected = self.cursors[at]
            .1
            .as_ref()
            .map(|pair| self.place(pair))
            .and_then(|place| {
                let next = model.iter().find(|pair| self.place(pair) >= place)?;
                // Behind the last value of a key is a gap that shows nothing.
                let ends_key = model.iter().any(|(key, _)| *key == place.0) && next.0 != place.0;
                (!ends_key).then(|| (self.fold(&next.0), self.fold(&next.1)))
            });
        // What is only looked at stays where it is.
        let count = self.cursors[at].0.read(txn).unwrap().duplicates();
        let counted = self.cursors[at].0.duplicates(txn);
        assert_eq!(counted.unwrap(), count.unwrap());
        let mut cursor = self.cursors[at].0.read(txn).unwrap();
        let value = cursor.value().unwrap().map(<[u8]>::to_vec);
        let key = cursor.key().unwrap().map(<[u8]>::to_vec);
        assert_eq!(key.filter(|_| value.is_some()).zip(value), expected);
    }

    fn go(&mut self, txn: &WriteTxn, model: &Model, at: usize, how: u8) {
        let how = how % 8;
        let standing = &self.cursors[at].1;
        let to: Standing = match (standing, how) {
            (_, 6) | (None, 0 | 2) => model.first().cloned(),
            (_, 7) | (None, 1 | 3) => model.last().cloned(),
            (None, _) => None,
            (Some(pair), how) => {
                let (place, key) = (self.place(pair), pair.0.clone());
                let before = |pair: &&Pair| self.place(pair) < place;
                let after = |pair: &&Pair| self.place(pair) > place;
                match how {
                    // What was stored again in a gap is where the cursor stands.
                    0 => model.iter().find(after).cloned(),
                    1 => model.iter().rfind(before).cloned(),
                    2 => model.iter().find(|pair| pair.0 > key).cloned(),
                    3 => model.iter().rfind(|pair| pair.0 < key).cloned(),
                    4 => model
                        .iter()
                        .find(|pair| after(pair) && pair.0 == key)
                        .cloned(),
                    _ => model
                        .iter()
                        .rfind(|pair| before(pair) && pair.0 == key)
                        .cloned(),
                }
            }
        };
        let (cursor, standing) = &mut self.cursors[at];
        let mut reading = cursor.read(txn).unwrap();
        let moved = match how {
            0 => reading.next(),
            1 => reading.prev(),
            2 => reading.next_key(),
            3 => reading.prev_key(),
            4 => reading.next_duplicate(),
            5 => reading.prev_duplicate(),
            6 => reading.first(),
            _ => reading.last(),
        };
        assert_eq!(moved.unwrap(), to.is_some(), "movement {how}");
        drop(reading);
        match (to, how) {
            (None, 4 | 5) => {}
            (to, _) => *standing = to,
        }
        self.shows(txn, model, at);
    }

    fn seek(&mut self, txn: &WriteTxn, model: &Model, at: usize, pair: Pair, how: u8) {
        let (key, value) = (self.fold(&pair.0), self.fold(&pair.1));
        let to = match how % 4 {
            0 => model.iter().find(|(key, _)| *key >= pair.0),
            1 => model.iter().find(|(key, _)| *key == pair.0),
            2 => model.get(&pair),
            _ => model.iter().rfind(|(key, _)| *key <= pair.0),
        };
        let (cursor, standing) = &mut self.cursors[at];
        let mut reading = match how < 128 {
            true => cursor.read(txn).unwrap(),
            false => cursor.read_from_nowhere(txn).unwrap(),
        };
        let found = match how % 4 {
            0 => reading.seek(&key),
            1 => reading.seek_exact(&key),
            2 => reading.seek_duplicate(&key, &value),
            _ => reading.seek_back(&key),
        };
        assert_eq!(found.unwrap(), to.is_some());
        drop(reading);
        *standing = to.cloned();
        self.shows(txn, model, at);
    }
}

fn kinds() -> impl Strategy<Value = (TreeKind, bool)> {
    let duplicates = |fixed| TreeKind {
        duplicates: Some(Duplicates {
            fixed,
            order: KeyOrder::Bytes,
        }),
        ..TreeKind::WHOLE
    };
    prop_oneof![
        Just((TreeKind::COMPACT, false)),
        Just((TreeKind::COUNTED, false)),
        Just((TreeKind::WHOLE, false)),
        Just((TreeKind::WHOLE, true)),
        Just((duplicates(false), false)),
        Just((duplicates(false), true)),
        Just((duplicates(true), false)),
        Just((duplicates(true), true)),
    ]
}

fn descending(a: &[u8], b: &[u8]) -> Ordering {
    b.cmp(a)
}

/// Byte strings of different lengths and the same beginning would not be inverted by inverting their bytes.
fn inverted(a: &[u8], b: &[u8]) -> Ordering {
    let invert = |bytes: &[u8]| bytes.iter().map(|byte| !byte).collect::<Vec<_>>();
    invert(a).cmp(&invert(b))
}

const INVERTED: Comparators = Comparators {
    keys: Some(&inverted),
    duplicates: Some(&inverted),
};

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn cursors_stay_where_they_are(
        (kind, descending) in kinds(),
        transactions in prop::collection::vec((prop::collection::vec(ops(), 1..60), any::<bool>()), 1..5),
    ) {
        let folder = tempfile::tempdir().unwrap();
        let options = Options::new().log_bytes(256 << 10).idle_checkpoint(None);
        let open = || {
            let env = Env::open(folder.path(), &options).unwrap();
            if descending {
                env.set_comparators("tree", INVERTED);
            }
            env
        };
        let mut env = open();
        let mut model = Model::new();
        for (ops, committed) in &transactions {
            let mut txn = env.write().unwrap();
            let tree = match txn.tree("tree").unwrap() {
                Some(tree) => tree,
                None => txn.create_tree("tree", kind).unwrap(),
            };
            let mut inner = model.clone();
            let mut cursors: Vec<_> = (0..CURSORS).map(|_| (txn.cursor(tree), None)).collect();
            let mut run = Run { kind, descending, tree, cursors: &mut cursors };
            for op in ops {
                run.apply(&mut txn, &mut inner, op);
            }
            for at in 0..CURSORS {
                run.shows(&txn, &inner, at);
            }
            if *committed {
                txn.commit().unwrap().wait_durable().unwrap();
                model = inner;
            } else {
                drop(txn);
            }
            let report = env.check().unwrap();
            prop_assert!(report.is_clean(), "{:#?}", report.problems);
            prop_assert_eq!(report.records, model.len() as u64);
            drop(env);
            env = open();
        }
    }
}

fn env_with(kind: TreeKind, pairs: &[(&[u8], &[u8])]) -> (Env, TreeId, WriteTxn) {
    let env = Env::in_memory(&Options::new()).unwrap();
    let mut txn = env.write().unwrap();
    let tree = txn.create_tree("tree", kind).unwrap();
    for (key, value) in pairs {
        txn.put(tree, key, value).unwrap();
    }
    (env, tree, txn)
}

/// A tree whose order nobody has told can be read from end to end, but not searched, and not changed.
#[test]
fn an_order_that_is_not_known_is_not_guessed() {
    let folder = tempfile::tempdir().unwrap();
    let options = Options::new().idle_checkpoint(None);
    let comparators = Comparators {
        keys: Some(&descending),
        duplicates: None,
    };
    let env = Env::open(folder.path(), &options).unwrap();
    env.set_comparators("tree", comparators);
    let mut txn = env.write().unwrap();
    let tree = txn.create_tree("tree", TreeKind::WHOLE).unwrap();
    for n in 0..1000u32 {
        txn.put(tree, &n.to_be_bytes(), b"").unwrap();
    }
    txn.commit().unwrap().wait_durable().unwrap();
    drop(env);

    let env = Env::open(folder.path(), &options).unwrap();
    let snapshot = env.read().unwrap();
    let tree = snapshot.tree("tree").unwrap().unwrap();
    assert_eq!(tree.record().kind.order, KeyOrder::Custom);
    assert!(matches!(tree.get(&[0; 4]), Err(Error::NoComparator)));
    let mut cursor = tree.cursor();
    for n in (0..1000u32).rev() {
        assert!(cursor.next().unwrap());
        assert_eq!(cursor.key().unwrap(), Some(&n.to_be_bytes()[..]));
    }
    assert!(tree.ordered_by(comparators).get(&[0; 4]).unwrap().is_some());
    let mut txn = env.write().unwrap();
    let id = txn.tree("tree").unwrap().unwrap();
    assert!(matches!(txn.put(id, b"k", b""), Err(Error::NoComparator)));
    assert!(env.check().unwrap().is_clean());
    env.set_comparators("tree", comparators);
    let id = txn.tree("tree").unwrap().unwrap();
    assert!(txn.put(id, b"key", b"").unwrap());
    txn.commit().unwrap().wait_durable().unwrap();
    assert!(env.check().unwrap().is_clean());
    // Another order is noticed.
    env.set_comparators(
        "tree",
        Comparators {
            keys: Some(&|a, b| a.cmp(b)),
            duplicates: None,
        },
    );
    assert!(!env.check().unwrap().is_clean());
}

/// What LMDB's cursors do after a deletion: the next record is the one that followed, and the record shown too.
#[test]
fn after_a_deletion_next_is_what_followed() {
    let pairs: [(&[u8], &[u8]); 5] = [
        (b"a", b"1"),
        (b"a", b"2"),
        (b"a", b"3"),
        (b"b", b"1"),
        (b"c", b"1"),
    ];
    let (_env, tree, mut txn) = env_with(TreeKind::DUPLICATES, &pairs);
    let mut cursor = txn.cursor(tree);
    assert!(
        cursor
            .read(&txn)
            .unwrap()
            .seek_duplicate(b"a", b"2")
            .unwrap()
    );
    cursor.delete(&mut txn).unwrap();
    assert!(matches!(cursor.delete(&mut txn), Err(Error::NoRecord)));
    {
        let mut reading = cursor.read(&txn).unwrap();
        assert_eq!(reading.record().unwrap(), Some((&b"a"[..], &b"3"[..])));
        assert!(reading.next().unwrap());
        assert_eq!(reading.record().unwrap(), Some((&b"a"[..], &b"3"[..])));
    }
    cursor.delete(&mut txn).unwrap();
    {
        let mut reading = cursor.read(&txn).unwrap();
        assert!(!reading.next_duplicate().unwrap());
        assert!(reading.next().unwrap());
        assert_eq!(reading.record().unwrap(), Some((&b"b"[..], &b"1"[..])));
    }
    cursor.delete(&mut txn).unwrap();
    let mut reading = cursor.read(&txn).unwrap();
    assert!(reading.prev().unwrap());
    assert_eq!(reading.record().unwrap(), Some((&b"a"[..], &b"1"[..])));
}

/// What a comparator calls equal is overwritten where it stands: alone, among a few, and in a tree of values.
#[test]
fn a_value_is_replaced_by_one_with_the_same_place_in_the_order() {
    let env = Env::in_memory(&Options::new()).unwrap();
    env.set_comparators(
        "tree",
        Comparators {
            keys: None,
            duplicates: Some(&|a, b| a[..2].cmp(&b[..2])),
        },
    );
    let mut txn = env.write().unwrap();
    let tree = txn.create_tree("tree", TreeKind::DUPLICATES).unwrap();
    let value = |n: u16, mark: u8| {
        let mut value = vec![mark; 20];
        value[..2].copy_from_slice(&n.to_be_bytes());
        value
    };
    for (key, count) in [(b"one", 1), (b"few", 5), (b"all", 500)] {
        for n in 0..count {
            txn.put(tree, key, &value(n, 0)).unwrap();
        }
        let mut cursor = txn.cursor(tree);
        for n in [0, count / 2, count - 1] {
            let found = cursor.read(&txn).unwrap().seek_duplicate(key, &value(n, 7));
            assert!(found.unwrap());
            cursor.put_current(&mut txn, &value(n, 1)).unwrap();
            let reading = cursor.read(&txn).unwrap();
            assert_eq!(reading.value().unwrap(), Some(&value(n, 1)[..]));
            assert_eq!(reading.duplicates().unwrap(), u64::from(count));
        }
        let first = cursor.seek_exact(&txn, key).unwrap();
        assert_eq!(first, Some(&value(0, 1)[..]));
    }
    txn.commit().unwrap().wait_durable().unwrap();
    assert!(env.check().unwrap().is_clean());
}

#[test]
fn a_put_goes_where_the_search_before_it_has_ended() {
    for kind in [
        TreeKind::COMPACT,
        TreeKind::COUNTED,
        TreeKind::WHOLE,
        TreeKind::DUPLICATES,
    ] {
        let (env, tree, mut txn) = env_with(kind, &[]);
        let mut cursor = txn.cursor(tree);
        for n in 0..3000u32 {
            let key = n.wrapping_mul(2_654_435_761).to_be_bytes();
            assert_eq!(cursor.seek_exact(&txn, &key).unwrap(), None);
            assert_eq!(cursor.read(&txn).unwrap().key().unwrap(), None);
            assert_eq!(cursor.seek_exact(&txn, &key).unwrap(), None);
            let other = [0, key[0], key[1], key[2], key[3]];
            match n % 7 {
                // The place is not what it was when the search ended.
                0 => drop(txn.put(tree, &other, b"other").unwrap()),
                // It is another key's.
                1 => drop(cursor.put(&mut txn, &other, b"other").unwrap()),
                _ => {}
            }
            assert!(cursor.put(&mut txn, &key, &key).unwrap());
            assert_eq!(cursor.seek_exact(&txn, &key).unwrap(), Some(&key[..]));
            assert_eq!(
                cursor.put(&mut txn, &key, b"second").unwrap(),
                kind.duplicates.is_some()
            );
        }
        txn.commit().unwrap().wait_durable().unwrap();
        assert!(env.check().unwrap().is_clean());
    }
}

#[test]
fn a_search_in_vain_gives_no_key_a_length_that_others_have_not() {
    let packed = TreeKind {
        packed: true,
        ..TreeKind::WHOLE
    };
    let (_env, tree, mut txn) = env_with(packed, &[]);
    let mut cursor = txn.cursor(tree);
    cursor.put(&mut txn, b"four", b"").unwrap();
    assert_eq!(cursor.seek_exact(&txn, b"other").unwrap(), None);
    let refused = cursor.put(&mut txn, b"other", b"");
    assert!(matches!(refused, Err(Error::ValueSize { .. })));
}

#[test]
fn appending_keeps_the_order() {
    for kind in [
        TreeKind::COMPACT,
        TreeKind::COUNTED,
        TreeKind::WHOLE,
        TreeKind::DUPLICATES,
    ] {
        let (env, tree, mut txn) = env_with(kind, &[]);
        for n in 0..5000u32 {
            txn.append(tree, &n.to_be_bytes(), b"value").unwrap();
        }
        for key in [4999u32, 17] {
            let refused = txn.append(tree, &key.to_be_bytes(), b"value");
            assert!(matches!(refused, Err(Error::OutOfOrder)));
        }
        assert_eq!(txn.view(tree).unwrap().record().records, 5000);
        // Full pages, as from any ascending input.
        let leaves = txn.view(tree).unwrap().record().leaf_pages;
        assert!(leaves < 5000 * 21 / 4000 + 2, "{leaves} leaves");
        txn.commit().unwrap().wait_durable().unwrap();
        assert!(env.check().unwrap().is_clean());
    }
}

#[test]
fn trees_are_renamed_and_cleared() {
    let (env, _, txn) = env_with(TreeKind::COMPACT, &[(b"k", b"v")]);
    txn.commit().unwrap().wait_durable().unwrap();
    let mut txn = env.write().unwrap();
    let tree = txn.tree("tree").unwrap().unwrap();
    let mut child = txn.child();
    assert!(child.rename_tree("tree", b"\xff\0other").unwrap());
    assert!(child.tree("tree").unwrap().is_none());
    assert_eq!(child.tree_names().unwrap(), [b"\xff\0other"]);
    drop(child);
    assert_eq!(txn.tree_names().unwrap(), [b"tree"]);
    assert!(txn.rename_tree("tree", b"\xff\0other").unwrap());
    assert!(!txn.rename_tree("tree", "third").unwrap());
    let second = txn.create_tree("tree", TreeKind::WHOLE).unwrap();
    assert!(matches!(
        txn.rename_tree("tree", b"\xff\0other"),
        Err(Error::TreeExists(_))
    ));
    txn.put(second, b"second", b"").unwrap();
    assert_eq!(txn.get(tree, b"k").unwrap(), Some(&b"v"[..]));
    txn.clear_tree(tree).unwrap();
    assert_eq!(txn.get(tree, b"k").unwrap(), None);
    txn.commit().unwrap().wait_durable().unwrap();
    let snapshot = env.read().unwrap();
    assert_eq!(
        snapshot.tree_names().unwrap(),
        [&b"tree"[..], b"\xff\0other"]
    );
    assert!(
        snapshot
            .tree("tree")
            .unwrap()
            .unwrap()
            .get(b"second")
            .unwrap()
            .is_some()
    );
    assert_eq!(
        snapshot
            .tree(b"\xff\0other")
            .unwrap()
            .unwrap()
            .record()
            .records,
        0
    );
    assert!(env.check().unwrap().is_clean());
}

#[test]
fn impossible_kinds_are_refused() {
    let (_env, _, mut txn) = env_with(TreeKind::COMPACT, &[]);
    let counted = TreeKind {
        counted: true,
        ..TreeKind::DUPLICATES
    };
    let reversed = TreeKind {
        order: KeyOrder::Reverse,
        ..TreeKind::COMPACT
    };
    for kind in [counted, reversed] {
        assert!(matches!(
            txn.create_tree("other", kind),
            Err(Error::TreeKind)
        ));
    }
}

/// Other threads read what the transaction has not committed.
#[test]
fn threads_read_inside_a_transaction() {
    let pairs: [(&[u8], &[u8]); 2] = [(b"a", b"1"), (b"b", b"2")];
    let (_env, tree, txn) = env_with(TreeKind::WHOLE, &pairs);
    std::thread::scope(|scope| {
        for (key, value) in pairs {
            let txn = &txn;
            scope.spawn(move || assert_eq!(txn.get(tree, key).unwrap(), Some(value)));
        }
    });
}

#[test]
fn refusals_do_not_spoil_a_transaction() {
    let (_env, tree, mut txn) = env_with(TreeKind::COMPACT, &[]);
    assert!(matches!(
        txn.put(tree, &[0; 1301], b""),
        Err(Error::KeyTooLong(1301))
    ));
    assert!(matches!(
        txn.append_duplicate(tree, b"", b""),
        Err(Error::NoDuplicates)
    ));
    txn.put(tree, b"k", b"v").unwrap();
    txn.commit().unwrap().wait_durable().unwrap();
}
