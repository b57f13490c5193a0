//! Values out of line beside a simple model, with segments of a few pages: savepoints that are returned to across them,
//! transactions that are too long for the log, large values, trees that are dropped and made again. What is counted of
//! each segment is exact after each commit, or [`Env::check`] says so.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use sapwood_testkit::Random;
use sapwood_testkit::storage::recording::Disk;

use crate::env::Env;
use crate::env::options::{LOG_BYTES_MIN, Options};
use crate::error::Result;
use crate::format::page::PAGE_BYTES;
use crate::format::tree_record::TreeKind;
use crate::txn::pages::heap;
use crate::txn::snapshot::{Snapshot, Tree};
use crate::txn::{Savepoint, WriteTxn};

type Values = BTreeMap<u64, Vec<u8>>;

/// The trees that there are.
type Model = BTreeMap<&'static str, Values>;

const NAMES: [&str; 3] = ["first", "second", "third"];

fn options() -> Options {
    Options::new()
        .log_bytes(4 * LOG_BYTES_MIN)
        .idle_checkpoint(None)
}

/// A store, and what is to be in it.
struct Life {
    env: Env,
    disk: Option<Disk>,
    random: Random,
    /// Of a transaction at most.
    changes: usize,
    /// Of so many changes one drops a tree.
    rare: usize,
    model: Model,
    kept: Vec<(Snapshot, Model)>,
    /// So many changes failed because the store was full.
    refused: usize,
    pages_max: Option<usize>,
}

fn compare_tree(tree: &Tree<'_>, values: &Values) {
    let mut cursor = tree.cursor();
    for (key, value) in values {
        assert!(cursor.next().unwrap(), "too few records");
        let found = cursor.record().unwrap();
        assert_eq!(found, Some((&key.to_be_bytes()[..], &value[..])));
    }
    assert!(!cursor.next().unwrap(), "too many records");
    assert_eq!(tree.record().records, values.len() as u64);
}

fn compare(snapshot: &Snapshot, model: &Model) {
    for name in NAMES {
        let tree = snapshot.tree(name).unwrap();
        assert_eq!(tree.is_some(), model.contains_key(name), "{name}");
        if let (Some(tree), Some(values)) = (tree, model.get(name)) {
            compare_tree(&tree, values);
        }
    }
}

impl Life {
    fn new(seed: u64, (changes, rare): (usize, usize), in_memory: bool) -> Self {
        let disk = (!in_memory).then(Disk::new);
        let env = match &disk {
            Some(disk) => Env::on_storage(Arc::new(disk.clone()), &options()),
            None => Env::in_memory(&options()),
        };
        Self {
            env: env.unwrap(),
            disk,
            random: Random::new(seed),
            changes,
            rare,
            model: Model::new(),
            kept: Vec::new(),
            refused: 0,
            pages_max: None,
        }
    }

    /// Has the store be full from so many pages on.
    fn limit(&mut self, pages: Option<usize>) {
        self.pages_max = pages;
        if let Some(pages) = pages {
            self.env.set_bytes_max((pages * PAGE_BYTES) as u64);
        }
    }

    fn value(&mut self) -> Vec<u8> {
        let length = match self.random.below(20) {
            0 => self.random.below(12 * PAGE_BYTES),
            1..4 => self.random.below(3000),
            _ => self.random.below(200),
        };
        vec![self.random.number() as u8; length]
    }

    fn change(&mut self, txn: &mut WriteTxn, now: &mut Model) -> Result<()> {
        let name = NAMES[self.random.below(NAMES.len())];
        let tree = match txn.tree(name).unwrap() {
            Some(tree) => tree,
            None => {
                let tree = txn.create_tree(name, TreeKind::OUT_OF_LINE)?;
                now.insert(name, Values::new());
                tree
            }
        };
        let values = now.get_mut(name).unwrap();
        let key = self.random.below(400) as u64;
        let bytes = key.to_be_bytes();
        match self.random.below(self.rare) {
            0 => {
                txn.clear_tree(tree)?;
                values.clear();
            }
            1 => {
                assert!(txn.drop_tree(name)?);
                now.remove(name);
            }
            2 => {
                let end = key + self.random.below(100) as u64;
                let (from, to) = (Bound::Included(&bytes[..]), end.to_be_bytes());
                let deleted = txn.delete_range(tree, from, Bound::Excluded(&to))?;
                let before = values.len();
                values.retain(|other, _| !(key..end).contains(other));
                assert_eq!(deleted as usize, before - values.len());
            }
            3..20 => {
                let was = txn.delete(tree, &bytes)?;
                assert_eq!(was, values.remove(&key).is_some());
            }
            20..30 => {
                let value = self.value();
                let is_new = txn.insert(tree, &bytes, &value)?;
                assert_eq!(is_new, !values.contains_key(&key));
                values.entry(key).or_insert(value);
            }
            _ => {
                let value = self.value();
                let is_new = txn.put(tree, &bytes, &value)?;
                assert_eq!(is_new, values.insert(key, value).is_none());
            }
        }
        Ok(())
    }

    fn transaction(&mut self) {
        let mut txn = self.env.write().unwrap();
        let mut now = self.model.clone();
        let mut savepoints: Vec<(Savepoint, Model)> = Vec::new();
        let changes = 1 + self.random.below(self.changes);
        for _ in 0..changes {
            match self.random.below(40) {
                0 | 1 => savepoints.push((txn.savepoint(), now.clone())),
                2 if !savepoints.is_empty() => {
                    savepoints.truncate(1 + self.random.below(savepoints.len()));
                    if let Some((savepoint, then)) = savepoints.last() {
                        txn.rollback_to(savepoint);
                        now.clone_from(then);
                    }
                }
                3 => {
                    if let Some((savepoint, _)) = savepoints.pop() {
                        txn.release(savepoint);
                    }
                }
                _ => {
                    let Err(error) = self.change(&mut txn, &mut now) else {
                        continue;
                    };
                    assert!(error.is_full(), "{error:?}");
                    self.refused += 1;
                    match savepoints.last() {
                        Some((savepoint, then)) => {
                            txn.rollback_to(savepoint);
                            now.clone_from(then);
                        }
                        None => return,
                    }
                }
            }
        }
        for (name, values) in &now {
            let tree = txn.tree(name).unwrap().unwrap();
            compare_tree(&txn.view(tree).unwrap(), values);
        }
        if self.random.below(8) > 0 {
            match txn.commit().and_then(|ticket| ticket.wait_durable()) {
                Ok(_) => self.model = now,
                Err(error) => assert!(error.is_full(), "{error:?}"),
            }
        }
    }

    fn go_on(&mut self, transactions: usize) {
        for _ in 0..transactions {
            self.transaction();
            let report = self.env.check().unwrap();
            assert!(report.is_clean(), "{:#?}", report.problems);
            let snapshot = self.env.read().unwrap();
            compare(&snapshot, &self.model);
            for (snapshot, then) in &self.kept {
                compare(snapshot, then);
            }
            match self.random.below(8) {
                0 => self.kept.push((snapshot, self.model.clone())),
                1 => drop(self.env.checkpoint().unwrap()),
                2 => {
                    let at = self.random.below(1 + self.kept.len());
                    self.kept.drain(..at);
                }
                3 if let Some(disk) = &self.disk => {
                    self.kept.clear();
                    drop(snapshot);
                    // What a process holds goes with its last handle.
                    self.env = Env::in_memory(&Options::new()).unwrap();
                    self.env = Env::on_storage(Arc::new(disk.clone()), &options()).unwrap();
                    self.limit(self.pages_max);
                }
                _ => {}
            }
        }
    }
}

#[test]
fn values_out_of_line_are_those_of_a_map() {
    let emptied = heap::emptied();
    for seed in 0..12 {
        for extent in [(30, 120), (600, 200), (100, 5000), (600, 20_000)] {
            for in_memory in [false, true] {
                Life::new(seed, extent, in_memory).go_on(25);
            }
        }
    }
    let emptied = heap::emptied() - emptied;
    assert!(emptied > 50, "{emptied} segments were emptied");
}

/// Segments are freed and used again beside snapshots of any age, whose way back leads through records of later
/// commits.
#[test]
fn snapshots_of_any_age_see_their_values() {
    for seed in 0..30 {
        let mut random = Random::new(seed);
        let env = Env::on_storage(Arc::new(Disk::new()), &options()).unwrap();
        let mut txn = env.write().unwrap();
        txn.create_tree("t", TreeKind::OUT_OF_LINE).unwrap();
        txn.commit().unwrap().wait_durable().unwrap();
        let mut values = Values::new();
        let mut kept: Vec<(Snapshot, Values)> = Vec::new();
        for _ in 0..80 {
            let mut txn = env.write().unwrap();
            let tree = txn.tree("t").unwrap().unwrap();
            for _ in 0..random.below(150) {
                let key = random.below(40) as u64;
                let value = vec![random.number() as u8; 100 + random.below(600)];
                txn.put(tree, &key.to_be_bytes(), &value).unwrap();
                values.insert(key, value);
            }
            txn.commit().unwrap().wait_durable().unwrap();
            match random.below(12) {
                0 => drop(env.checkpoint().unwrap()),
                1..3 => kept.push((env.read().unwrap(), values.clone())),
                3 if !kept.is_empty() => drop(kept.swap_remove(random.below(kept.len()))),
                _ => {}
            }
            for (snapshot, then) in &kept {
                compare_tree(&snapshot.tree("t").unwrap().unwrap(), then);
            }
        }
        let report = env.check().unwrap();
        assert!(report.is_clean(), "seed {seed}: {:#?}", report.problems);
    }
}

/// The only place that a leaf was to say is taken back, and the transaction goes on: its record is one that a recovery
/// reads.
#[test]
fn a_leaf_of_which_nothing_is_left_to_be_stored_is_not_logged() {
    let disk = Disk::new();
    let env = Env::on_storage(Arc::new(disk.clone()), &options()).unwrap();
    let put = |txn: &mut WriteTxn, name, byte| {
        let tree = match txn.tree(name).unwrap() {
            Some(tree) => tree,
            None => txn.create_tree(name, TreeKind::OUT_OF_LINE).unwrap(),
        };
        txn.put(tree, &[0; 8], &[byte; 100]).unwrap();
    };
    let mut txn = env.write().unwrap();
    for name in NAMES {
        put(&mut txn, name, 1);
    }
    txn.commit().unwrap().wait_durable().unwrap();
    let mut txn = env.write().unwrap();
    put(&mut txn, NAMES[0], 2);
    let savepoint = txn.savepoint();
    put(&mut txn, NAMES[1], 3);
    txn.rollback_to(&savepoint);
    assert!(txn.pages().stores_pointers());
    txn.commit().unwrap().wait_durable().unwrap();
    let disk = Disk::from_image(&disk.synced_image()).unwrap();
    let env = Env::on_storage(Arc::new(disk), &options()).unwrap();
    let snapshot = env.read().unwrap();
    let found = NAMES.map(|name| {
        let tree = snapshot.tree(name).unwrap().unwrap();
        tree.get(&[0; 8]).unwrap().unwrap()[0]
    });
    assert_eq!(found, [2, 1, 1]);
}

/// Whatever fails for want of room, half way through emptying a segment too, leaves no trace.
#[test]
fn values_out_of_line_are_those_of_a_map_in_a_full_store() {
    let emptied = heap::emptied();
    let mut refused = 0;
    for seed in 0..12 {
        for (extent, pages) in [((60, 2000), 300), ((300, 2000), 400), ((300, 20_000), 500)] {
            for in_memory in [false, true] {
                let mut life = Life::new(seed, extent, in_memory);
                life.limit(Some(pages));
                life.go_on(40);
                refused += life.refused;
            }
        }
    }
    let emptied = heap::emptied() - emptied;
    assert!(refused > 100, "{refused} changes were refused");
    assert!(emptied > 100, "{emptied} segments were emptied");
}
