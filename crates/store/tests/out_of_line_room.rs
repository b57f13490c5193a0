//! The room that values out of line take: what was replaced and removed makes place for what comes, and a small
//! multiple of what lives is enough, unless a snapshot needs the rest.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::path::Path;

use sapwood_store::page::PAGE_BYTES;
use sapwood_store::{Env, Error, Options, Snapshot, TreeKind, WriteTxn};

type Content = BTreeMap<u64, Vec<u8>>;

const KEYS: u64 = 5000;
const VALUE_BYTES: usize = 1500;
const LIVE_BYTES: u64 = KEYS * VALUE_BYTES as u64;

/// What a heap may leave unused beside twice what lives: two segments, and those that are begun and waited for.
const SPARE_BYTES: u64 = 6 << 20;

fn options() -> Options {
    Options::new().log_bytes(4 << 20).idle_checkpoint(None)
}

/// Numbers that look random, the same each time.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }
}

fn value(numbers: &mut Numbers) -> Vec<u8> {
    let length = VALUE_BYTES / 2 + numbers.below(VALUE_BYTES as u64) as usize;
    vec![numbers.below(256) as u8; length]
}

struct Store {
    env: Env,
    numbers: Numbers,
    content: Content,
}

impl Store {
    fn filled(folder: &Path) -> Self {
        let mut store = Self {
            env: Env::open(folder, &options()).unwrap(),
            numbers: Numbers(3),
            content: Content::new(),
        };
        let mut txn = store.env.write().unwrap();
        txn.create_tree("apart", TreeKind::OUT_OF_LINE).unwrap();
        for key in 0..KEYS {
            store.put(&mut txn, key);
        }
        txn.commit().unwrap().wait_durable().unwrap();
        store
    }

    fn built(folder: &Path) -> Self {
        let mut store = Self {
            env: Env::open(folder, &options()).unwrap(),
            numbers: Numbers(3),
            content: Content::new(),
        };
        let mut load = store.env.bulk().unwrap();
        let mut tree = load.tree("apart", TreeKind::OUT_OF_LINE).unwrap();
        for key in 0..KEYS {
            let value = value(&mut store.numbers);
            tree.push(&mut load, &key.to_be_bytes(), &value).unwrap();
            store.content.insert(key, value);
        }
        tree.finish(&mut load).unwrap();
        load.commit().unwrap();
        store
    }

    fn put(&mut self, txn: &mut WriteTxn, key: u64) {
        let tree = txn.tree("apart").unwrap().unwrap();
        let value = value(&mut self.numbers);
        txn.put(tree, &key.to_be_bytes(), &value).unwrap();
        self.content.insert(key, value);
    }

    fn delete(&mut self, txn: &mut WriteTxn, key: u64) {
        let tree = txn.tree("apart").unwrap().unwrap();
        txn.delete(tree, &key.to_be_bytes()).unwrap();
        self.content.remove(&key);
    }

    /// Replaces as much as there is in all, in a few commits, and checkpoints.
    fn replace(&mut self) {
        for _ in 0..5 {
            let mut txn = self.env.write().unwrap();
            for _ in 0..KEYS / 5 {
                let key = self.numbers.below(KEYS);
                self.put(&mut txn, key);
            }
            txn.commit().unwrap().wait_durable().unwrap();
        }
        self.env.checkpoint().unwrap();
    }

    fn assert_sound(&self) {
        let report = self.env.check().unwrap();
        assert!(report.is_clean(), "{:#?}", report.problems);
        assert_same(&self.env.read().unwrap(), &self.content);
    }

    /// Bytes of the store and of its segments.
    fn sizes(&self) -> (u64, u64) {
        let stat = self.env.stat().unwrap();
        let bytes = |pages: u64| pages * PAGE_BYTES as u64;
        (bytes(stat.pages), bytes(stat.segments.unwrap().pages))
    }

    fn assert_small(&self) {
        let (store, segments) = self.sizes();
        let lives = self.env.stat().unwrap().segments.unwrap().live_bytes;
        assert!(segments <= 2 * lives + SPARE_BYTES, "{segments}, {lives}");
        assert!(store <= 4 * LIVE_BYTES + 2 * SPARE_BYTES, "{store}");
    }
}

fn assert_same(snapshot: &Snapshot, content: &Content) {
    let tree = snapshot.tree("apart").unwrap().unwrap();
    let mut cursor = tree.cursor();
    for (key, value) in content {
        assert!(cursor.next().unwrap());
        let found = cursor.record().unwrap();
        assert_eq!(found, Some((&key.to_be_bytes()[..], &value[..])));
    }
    assert!(!cursor.next().unwrap());
}

#[test]
fn what_was_replaced_makes_room() {
    for fill in [Store::filled, Store::built] {
        let folder = tempfile::tempdir().unwrap();
        let mut store = fill(folder.path());
        for _ in 0..25 {
            store.replace();
            store.assert_small();
        }
        store.assert_sound();
    }
}

/// A snapshot keeps what it sees, and only as long as it is there.
#[test]
fn what_a_snapshot_kept_makes_room_when_it_is_gone() {
    for fill in [Store::filled, Store::built] {
        let folder = tempfile::tempdir().unwrap();
        let mut store = fill(folder.path());
        store.replace();
        let (snapshot, then) = (store.env.read().unwrap(), store.content.clone());
        for _ in 0..6 {
            store.replace();
            assert_same(&snapshot, &then);
        }
        let (most, _) = store.sizes();
        drop(snapshot);
        for _ in 0..15 {
            store.replace();
        }
        store.assert_sound();
        let (now, segments) = store.sizes();
        assert!(now <= most + SPARE_BYTES, "{now}, {most}");
        assert!(segments <= 2 * LIVE_BYTES + SPARE_BYTES, "{segments}");
    }
}

/// A snapshot costs what it sees, and what was written before the next checkpoint: not more, however long it stays.
#[test]
fn a_snapshot_that_stays_costs_a_bounded_room() {
    for fill in [Store::filled, Store::built] {
        let folder = tempfile::tempdir().unwrap();
        let mut store = fill(folder.path());
        store.replace();
        let (snapshot, then) = (store.env.read().unwrap(), store.content.clone());
        let mut sizes = Vec::new();
        for _ in 0..40 {
            store.replace();
            sizes.push(store.sizes().0);
        }
        assert_same(&snapshot, &then);
        store.assert_sound();
        let (soon, late) = (sizes[9], sizes[39]);
        assert!(late <= soon + SPARE_BYTES, "{sizes:?}");
        assert!(late <= 8 * LIVE_BYTES + 2 * SPARE_BYTES, "{sizes:?}");
    }
}

/// Nothing is ever replaced.
#[test]
fn what_was_removed_makes_room() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = Store::filled(folder.path());
    for round in 0..20 {
        for part in 0..5 {
            let mut txn = store.env.write().unwrap();
            for _ in 0..KEYS / 5 {
                let key = store.numbers.below(KEYS) + round * KEYS;
                store.put(&mut txn, key + KEYS);
                let old: Vec<u64> = store
                    .content
                    .range(..key)
                    .map(|(key, _)| *key)
                    .take(2)
                    .collect();
                old.into_iter().for_each(|key| store.delete(&mut txn, key));
            }
            txn.commit().unwrap().wait_durable().unwrap();
            if part == 3 {
                store.env.checkpoint().unwrap();
            }
        }
        store.assert_small();
    }
    store.assert_sound();
    // All but a few, one here and one there.
    let all: Vec<u64> = store.content.keys().copied().collect();
    for keys in all.chunks(500) {
        let mut txn = store.env.write().unwrap();
        for (at, key) in keys.iter().enumerate() {
            if at % 50 != 0 {
                store.delete(&mut txn, *key);
            }
        }
        txn.commit().unwrap().wait_durable().unwrap();
    }
    store.assert_sound();
    store.assert_small();
}

/// A store that is full takes values again when those were removed that were written with one another.
#[test]
fn a_full_store_goes_on_after_removals() {
    const BYTES_MAX: u64 = 24 << 20;
    let folder = tempfile::tempdir().unwrap();
    let mut store = Store::filled(folder.path());
    store.env.set_bytes_max(BYTES_MAX);
    let mut next = KEYS;
    for round in 0..4 {
        let before = next;
        loop {
            let mut txn = store.env.write().unwrap();
            let tree = txn.tree("apart").unwrap().unwrap();
            let put = (next..next + 50).try_for_each(|key| {
                txn.put(tree, &key.to_be_bytes(), &[key as u8; VALUE_BYTES])
                    .map(drop)
            });
            match put
                .and_then(|()| txn.commit())
                .and_then(|ticket| ticket.wait_durable())
            {
                Ok(_) => {
                    let new = (next..next + 50).map(|key| (key, vec![key as u8; VALUE_BYTES]));
                    store.content.extend(new);
                    next += 50;
                }
                Err(Error::StoreFull(_)) => break,
                Err(error) => panic!("{error:?}"),
            }
        }
        assert!(
            next > before + 1000,
            "round {round}: {} were stored",
            next - before
        );
        store.assert_sound();
        // In the order of writing, so that there are segments in which nothing lives.
        let removed: Vec<u64> = store.content.keys().copied().collect();
        let removed = &removed[..removed.len() / 2];
        for keys in removed.chunks(100) {
            let mut txn = store.env.write().unwrap();
            keys.iter().for_each(|key| store.delete(&mut txn, *key));
            txn.commit().unwrap().wait_durable().unwrap();
        }
        store.assert_sound();
    }
}

/// Values that need segments of their own, and small ones between them, in transactions that are too long for the log.
#[test]
fn large_values_make_room_too() {
    const LARGE_BYTES: u64 = 3 << 20;
    let folder = tempfile::tempdir().unwrap();
    let mut store = Store::filled(folder.path());
    for round in 0..30_u64 {
        let mut txn = store.env.write().unwrap();
        let tree = txn.tree("apart").unwrap().unwrap();
        for key in [KEYS + round % 5, KEYS + 7 + round % 3] {
            let length = LARGE_BYTES + store.numbers.below(100_000);
            let value = vec![round as u8; length as usize];
            txn.put(tree, &key.to_be_bytes(), &value).unwrap();
            store.content.insert(key, value);
            for _ in 0..100 {
                let key = store.numbers.below(KEYS);
                store.put(&mut txn, key);
            }
        }
        txn.commit().unwrap().wait_durable().unwrap();
        if round % 3 == 0 {
            store.env.checkpoint().unwrap();
        }
        let lives = store.env.stat().unwrap().segments.unwrap().live_bytes;
        let (size, segments) = store.sizes();
        let spare = SPARE_BYTES + 4 * LARGE_BYTES;
        assert!(segments <= 2 * lives + spare, "{segments}, {lives}");
        assert!(size <= 4 * lives + 2 * spare, "{size}, {lives}");
    }
    store.assert_sound();
}
