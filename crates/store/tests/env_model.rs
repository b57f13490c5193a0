//! Random use of an environment through its public interface, against ordered maps: several trees, savepoints, transactions
//! that are dropped, commits that are not waited for, snapshots held meanwhile, bulk loads, checkpoints, reopening.

#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::sync::Arc;

use proptest::prelude::*;
use sapwood_store::{
    CommitNo, Env, Options, Savepoint, Snapshot, Ticket, Tree, TreeId, TreeKind, WriteTxn,
};
use sapwood_wal::storage::Memory;

type Records = BTreeMap<Vec<u8>, Vec<u8>>;

/// The trees by name. Those with an even number are counted.
type State = BTreeMap<String, Records>;

const TREES: u8 = 4;
const SNAPSHOTS_MAX: usize = 4;

#[derive(Clone, Debug)]
enum Change {
    Put(u8, Vec<u8>, Vec<u8>),
    Insert(u8, Vec<u8>, Vec<u8>),
    Delete(u8, Vec<u8>),
    /// Deletes a run of existing records.
    DeleteRun(u8, u16, u8),
    PutRun(u8, u16, u8, u16),
    DropTree(u8),
    Savepoint,
    Rollback,
    Release,
    /// Reads the transaction's own writes.
    Look(u8, Vec<u8>),
}

#[derive(Clone, Copy, Debug)]
enum End {
    Drop,
    Commit,
    CommitAndWait,
}

#[derive(Clone, Debug)]
enum Step {
    Write(Vec<Change>, End),
    Bulk(u8, Records),
    Hold,
    Release(u8),
    Wait,
    Checkpoint,
    Check,
    Reopen,
}

fn keys() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        4 => (0u32..300).prop_map(|n| format!("uid=user{n:05}").into_bytes()),
        2 => proptest::collection::vec(any::<u8>(), 0..12),
        1 => (0u8..3, 0usize..1200, any::<u8>()).prop_map(|(fill, len, last)| {
            let mut key = vec![fill; len];
            key.push(last);
            key
        }),
    ]
}

fn values() -> impl Strategy<Value = Vec<u8>> {
    let len = prop_oneof![8 => 0usize..150, 3 => 0usize..2200, 1 => 2000usize..30_000];
    (len, any::<u8>()).prop_map(|(len, fill)| vec![fill; len])
}

fn changes() -> impl Strategy<Value = Vec<Change>> {
    let tree = || 0..TREES;
    let change = prop_oneof![
        20 => (tree(), keys(), values()).prop_map(|(t, k, v)| Change::Put(t, k, v)),
        6 => (tree(), keys(), values()).prop_map(|(t, k, v)| Change::Insert(t, k, v)),
        8 => (tree(), keys()).prop_map(|(t, k)| Change::Delete(t, k)),
        3 => (tree(), any::<u16>(), any::<u8>()).prop_map(|(t, at, n)| Change::DeleteRun(t, at, n)),
        3 => (tree(), any::<u16>(), any::<u8>(), 0u16..300).prop_map(|(t, at, n, len)| Change::PutRun(t, at, n, len)),
        1 => tree().prop_map(Change::DropTree),
        4 => Just(Change::Savepoint),
        3 => Just(Change::Rollback),
        2 => Just(Change::Release),
        6 => (tree(), keys()).prop_map(|(t, k)| Change::Look(t, k)),
    ];
    proptest::collection::vec(change, 0..25)
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let end =
        prop_oneof![1 => Just(End::Drop), 4 => Just(End::Commit), 4 => Just(End::CommitAndWait)];
    let step = prop_oneof![
        20 => (changes(), end).prop_map(|(changes, end)| Step::Write(changes, end)),
        1 => (0..TREES, proptest::collection::btree_map(keys(), values(), 0..200)).prop_map(|(t, r)| Step::Bulk(t, r)),
        3 => Just(Step::Hold),
        3 => any::<u8>().prop_map(Step::Release),
        2 => Just(Step::Wait),
        2 => Just(Step::Checkpoint),
        2 => Just(Step::Check),
        2 => Just(Step::Reopen),
    ];
    proptest::collection::vec(step, 1..60)
}

fn name(tree: u8) -> String {
    format!("tree {tree}")
}

fn kind(tree: u8) -> TreeKind {
    TreeKind {
        counted: tree.is_multiple_of(2),
    }
}

fn compare_tree(tree: &Tree<'_>, records: &Records) {
    assert_eq!(tree.record().records, records.len() as u64);
    let mut cursor = tree.cursor();
    for (key, value) in records {
        assert!(cursor.next().unwrap());
        assert_eq!(
            cursor.record().unwrap(),
            Some((key.as_slice(), value.as_slice()))
        );
    }
    assert!(!cursor.next().unwrap());
}

fn compare(snapshot: &Snapshot, state: &State) {
    let names: Vec<_> = state.keys().cloned().collect();
    assert_eq!(snapshot.tree_names().unwrap(), names);
    for (name, records) in state {
        compare_tree(&snapshot.tree(name).unwrap().unwrap(), records);
    }
}

/// An open write transaction, and what it should have made of the state it began from.
struct Writing {
    txn: WriteTxn,
    state: State,
    savepoints: Vec<(Savepoint, State)>,
}

impl Writing {
    /// The tree, created if there is none.
    fn tree(&mut self, tree: u8) -> TreeId {
        let name = name(tree);
        self.state.entry(name.clone()).or_default();
        match self.txn.tree(&name).unwrap() {
            Some(id) => id,
            None => self.txn.create_tree(&name, kind(tree)).unwrap(),
        }
    }

    fn records(&mut self, tree: u8) -> &mut Records {
        self.state.get_mut(&name(tree)).unwrap()
    }

    fn put(&mut self, tree: u8, key: &[u8], value: &[u8]) {
        let id = self.tree(tree);
        let new = self.txn.put(id, key, value).unwrap();
        assert_eq!(
            new,
            self.records(tree)
                .insert(key.to_vec(), value.to_vec())
                .is_none()
        );
    }

    fn delete(&mut self, tree: u8, key: &[u8]) {
        let id = self.tree(tree);
        let was = self.txn.delete(id, key).unwrap();
        assert_eq!(was, self.records(tree).remove(key).is_some());
    }

    fn change(&mut self, change: &Change) {
        match change {
            Change::Put(tree, key, value) => self.put(*tree, key, value),
            Change::Insert(tree, key, value) => {
                let id = self.tree(*tree);
                let new = self.txn.insert(id, key, value).unwrap();
                assert_eq!(new, !self.records(*tree).contains_key(key));
                self.records(*tree)
                    .entry(key.clone())
                    .or_insert_with(|| value.clone());
            }
            Change::Delete(tree, key) => self.delete(*tree, key),
            Change::DeleteRun(tree, at, n) => {
                self.tree(*tree);
                let records = self.records(*tree);
                let at = (usize::from(*at) * records.len()) >> 16;
                let keys: Vec<_> = records
                    .keys()
                    .skip(at)
                    .take(usize::from(*n))
                    .cloned()
                    .collect();
                keys.iter().for_each(|key| self.delete(*tree, key));
            }
            Change::PutRun(tree, at, n, len) => {
                for i in 0..u32::from(*n) {
                    let key = format!("run {:06}", u32::from(*at) + i);
                    self.put(*tree, key.as_bytes(), &vec![i as u8; usize::from(*len)]);
                }
            }
            Change::DropTree(tree) => {
                let was = self.txn.drop_tree(&name(*tree)).unwrap();
                assert_eq!(was, self.state.remove(&name(*tree)).is_some());
            }
            Change::Savepoint => {
                let savepoint = self.txn.savepoint();
                self.savepoints.push((savepoint, self.state.clone()));
            }
            Change::Rollback => {
                if let Some((savepoint, state)) = self.savepoints.last() {
                    self.txn.rollback_to(savepoint);
                    self.state = state.clone();
                }
            }
            Change::Release => {
                if let Some((savepoint, _)) = self.savepoints.pop() {
                    self.txn.release(savepoint);
                }
            }
            Change::Look(tree, key) => {
                let id = self.tree(*tree);
                assert_eq!(
                    self.txn.get(id, key).unwrap(),
                    self.state[&name(*tree)].get(key).map(Vec::as_slice)
                );
                let view = self.txn.view(id).unwrap();
                let mut range = view.range(Bound::Included(key), Bound::Unbounded).unwrap();
                for (key, value) in self.state[&name(*tree)]
                    .range::<[u8], _>((Bound::Included(key.as_slice()), Bound::Unbounded))
                    .take(5)
                {
                    assert_eq!(
                        range.next().unwrap(),
                        Some((key.as_slice(), value.as_slice()))
                    );
                }
            }
        }
    }
}

struct Model {
    storage: Arc<Memory>,
    env: Option<Env>,
    options: Options,
    /// The state after each commit that is applied or durable, from the oldest that may still be seen.
    states: BTreeMap<CommitNo, State>,
    tickets: VecDeque<Ticket>,
    held: Vec<Snapshot>,
}

impl Model {
    fn new(options: Options) -> Self {
        let storage = Arc::new(Memory::new());
        let env = Env::on_storage(storage.clone(), &options).unwrap();
        let first = env.read().unwrap().commit();
        let states = BTreeMap::from([(first, State::new())]);
        Self {
            storage,
            env: Some(env),
            options,
            states,
            tickets: VecDeque::new(),
            held: Vec::new(),
        }
    }

    fn env(&self) -> &Env {
        self.env.as_ref().unwrap()
    }

    fn newest(&self) -> &State {
        self.states.last_key_value().unwrap().1
    }

    fn wait(&mut self) {
        for ticket in std::mem::take(&mut self.tickets) {
            let commit = ticket.wait().unwrap();
            assert!(ticket.is_durable());
            assert!(self.env().read().unwrap().commit() >= commit);
        }
    }

    fn step(&mut self, step: &Step) {
        match step {
            Step::Write(changes, end) => {
                let txn = self.env().write().unwrap();
                let mut writing = Writing {
                    txn,
                    state: self.newest().clone(),
                    savepoints: Vec::new(),
                };
                changes.iter().for_each(|change| writing.change(change));
                if let End::Drop = end {
                    return;
                }
                let state = writing.state;
                let ticket = writing.txn.commit().unwrap();
                self.states.insert(ticket.commit(), state);
                self.tickets.push_back(ticket);
                if let End::CommitAndWait = end {
                    self.wait();
                }
            }
            Step::Bulk(tree, records) => {
                let mut load = self.env().bulk().unwrap();
                if self.newest().contains_key(&name(*tree)) {
                    assert!(load.tree(&name(*tree), kind(*tree)).is_err());
                    return;
                }
                let mut building = load.tree(&name(*tree), kind(*tree)).unwrap();
                for (key, value) in records {
                    building.push(key, value).unwrap();
                }
                assert_eq!(building.finish().unwrap(), records.len() as u64);
                let commit = load.commit().unwrap();
                let mut state = self.newest().clone();
                state.insert(name(*tree), records.clone());
                self.states.insert(commit, state);
            }
            Step::Hold => {
                if self.held.len() < SNAPSHOTS_MAX {
                    self.held.push(self.env().read().unwrap());
                }
            }
            Step::Release(which) => {
                if !self.held.is_empty() {
                    let snapshot = self.held.swap_remove(usize::from(*which) % self.held.len());
                    compare(&snapshot, &self.states[&snapshot.commit()]);
                }
            }
            Step::Wait => self.wait(),
            Step::Checkpoint => {
                let visible = self.env().read().unwrap().commit();
                assert!(self.env().checkpoint().unwrap() >= visible);
            }
            Step::Check => self.check(),
            Step::Reopen => {
                // Whether a commit nobody waited for survives is open; waited for, all of them do.
                self.wait();
                for snapshot in std::mem::take(&mut self.held) {
                    compare(&snapshot, &self.states[&snapshot.commit()]);
                }
                self.env = None;
                self.env = Some(Env::on_storage(self.storage.clone(), &self.options).unwrap());
                let snapshot = self.env().read().unwrap();
                compare(&snapshot, self.newest());
            }
        }
    }

    fn check(&self) {
        let report = self.env().check().unwrap();
        assert!(report.is_clean(), "{:#?}", report.problems);
        let snapshot = self.env().read().unwrap();
        let state = &self.states[&snapshot.commit()];
        compare(&snapshot, state);
        if report.commit == snapshot.commit() {
            assert_eq!(report.trees, state.len() as u64);
            assert_eq!(
                report.records,
                state
                    .values()
                    .map(|records| records.len() as u64)
                    .sum::<u64>()
            );
        }
    }
}

fn run(options: Options, steps: &[Step]) {
    let mut model = Model::new(options);
    steps.iter().for_each(|step| model.step(step));
    model.step(&Step::Wait);
    model.check();
    model.step(&Step::Reopen);
    model.check();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    /// With a log so short that it goes round all the time, and that many transactions do not fit into.
    #[test]
    fn behaves_like_ordered_maps(steps in steps()) {
        run(Options::new().log_bytes(0).idle_checkpoint(None), &steps);
    }

    /// With a background thread, and a log that is never full.
    #[test]
    fn behaves_like_ordered_maps_with_a_long_log(steps in steps()) {
        run(Options::new().log_bytes(4 << 20), &steps);
    }
}
