//! Several stores survive power cuts together: a multi-store transaction is there in all its stores or in none, each
//! store has what was acknowledged, and one that rests does not lose what others commit meanwhile.

use std::collections::BTreeMap;
use std::sync::Arc;

use sapwood_testkit::Random;
use sapwood_testkit::storage::recording::{Crash, Disk};

use crate::env::Env;
use crate::env::options::{LOG_BYTES_MIN, Options};
use crate::error::Error;
use crate::format::tree_record::TreeKind;
use crate::guard::{Guard, Guards};
use crate::log::checkpoint;
use crate::log::checkpoint::CheckpointLock;
use crate::txn::WriteTxn;

/// What is wrong, or nothing.
type Verdict = Result<(), String>;

const STORES: usize = 3;

/// What the one tree of each store holds.
type Model = BTreeMap<u32, Vec<u8>>;

/// One commit, perhaps to several stores.
#[derive(Clone, Debug)]
struct Attempt {
    /// By store: the number of the commit, and what it makes of the store.
    parts: BTreeMap<usize, (u64, Model)>,
}

/// What is known at some moment: all attempts in order, and how many of them have been acknowledged at least, one by
/// one.
#[derive(Clone, Debug, Default)]
struct History {
    /// What was there at the beginning, by store.
    before: Vec<(u64, Model)>,
    attempts: Vec<Attempt>,
    acknowledged: Vec<usize>,
}

const ACKNOWLEDGED: u64 = 1 << 62;

struct Life {
    disk: Disk,
    env: Option<Env>,
    guards: Guards,
    random: Random,
    history: History,
    /// The newest state of each store.
    models: Vec<(u64, Model)>,
}

fn options(guards: Guards) -> Options {
    let mut options = Options::new()
        .log_bytes(2 * LOG_BYTES_MIN)
        .stores(STORES as u16)
        .idle_checkpoint(None);
    options.guards = guards;
    options
}

fn told(error: Error) -> String {
    format!("{error} ({error:?})")
}

impl Life {
    fn begin(disk: Disk, guards: Guards, seed: u64, known: &History) -> Result<Self, String> {
        let env = Env::on_storage(Arc::new(disk.clone()), &options(guards)).map_err(told)?;
        let mut life = Self {
            disk,
            env: Some(env),
            guards,
            random: Random::new(seed),
            history: History::default(),
            models: Vec::new(),
        };
        life.models = life.compare(known)?;
        life.history.before = life.models.clone();
        Ok(life)
    }

    fn store(&self, number: usize) -> Env {
        self.env.as_ref().unwrap().store(number).unwrap()
    }

    /// What is there is what the history allows. Gives it.
    fn compare(&self, known: &History) -> Result<Vec<(u64, Model)>, String> {
        let env = self.env.as_ref().unwrap();
        let snapshots = env.read_stores().map_err(told)?;
        let mut found = Vec::new();
        for (store, snapshot) in snapshots.iter().enumerate() {
            let report = self.store(store).check().map_err(told)?;
            if !report.is_clean() {
                return Err(format!("check of store {store}: {:?}", report.problems));
            }
            let mut model = Model::new();
            if let Some(tree) = snapshot.tree("t").map_err(told)? {
                let mut cursor = tree.cursor();
                while cursor.next().map_err(told)? {
                    let (key, value) = cursor.record().map_err(told)?.unwrap();
                    let key = u32::from_be_bytes(key.try_into().unwrap());
                    model.insert(key, value.to_vec());
                }
            }
            found.push((snapshot.commit().0, model));
        }
        let mut expected = known.before.clone();
        if expected.is_empty() {
            expected = vec![(1, Model::new()); STORES];
        }
        let mut lost = None;
        for (number, attempt) in known.attempts.iter().enumerate() {
            let there = attempt
                .parts
                .iter()
                .filter(|(store, (commit, _))| found[**store].0 >= *commit);
            let there = there.count();
            if there > 0 && there < attempt.parts.len() {
                return Err(format!("attempt {number} is there in {there} stores only"));
            }
            if there == 0 && known.acknowledged.contains(&number) {
                return Err(format!("attempt {number} was lost"));
            }
            match lost {
                // Whatever the stores: none is there without those before it.
                Some(before) if there > 0 => {
                    return Err(format!("attempt {number} is there without {before}"));
                }
                _ if there == 0 => lost = lost.or(Some(number)),
                _ => {}
            }
            if there > 0 {
                for (store, part) in &attempt.parts {
                    expected[*store] = part.clone();
                }
            }
        }
        if found != expected {
            let commits = |of: &[(u64, Model)]| of.iter().map(|(c, _)| *c).collect::<Vec<_>>();
            let (found, expected) = (commits(&found), commits(&expected));
            return Err(format!(
                "{found:?} is there and not {expected:?}, or differs"
            ));
        }
        Ok(found)
    }

    fn history_at(&self, crash: &Crash) -> History {
        let mut history = History {
            before: self.history.before.clone(),
            ..History::default()
        };
        for note in crash.notes() {
            let number = (note & (ACKNOWLEDGED - 1)) as usize;
            if note & ACKNOWLEDGED == 0 {
                history.attempts.push(self.history.attempts[number].clone());
            } else {
                history.acknowledged.push(number);
            }
        }
        history
    }

    fn step(&mut self) -> Verdict {
        match self.random.below(24) {
            0..8 => self.transact(1, 6, 200),
            8..14 => self.transact(2, 4, 200),
            14..16 => self.transact(STORES, 4, 200),
            16 => self.transact(1, 300, 400),
            17 => self.transact(2, 200, 400),
            18..22 => {
                let store = self.random.below(STORES);
                self.store(store).checkpoint().map(drop).map_err(told)
            }
            22 => self.transact(1, 200, 100),
            _ => self.reopen(),
        }
    }

    /// A commit to so many stores.
    fn transact(&mut self, stores: usize, changes: usize, value_bytes: usize) -> Verdict {
        let first = self.random.below(STORES);
        let numbers: Vec<usize> = (0..stores).map(|n| (first + n) % STORES).collect();
        let env = self.env.clone().unwrap();
        let mut txn = env.write_stores(&numbers).map_err(told)?;
        let mut parts = BTreeMap::new();
        for &number in &numbers {
            let mut model = self.models[number].1.clone();
            let part = txn.store(number).map_err(told)?;
            for _ in 0..1 + self.random.below(changes) {
                change(part, &mut model, &mut self.random, value_bytes).map_err(told)?;
            }
            parts.insert(number, (part.commit_no().0, model));
        }
        let attempt = self.history.attempts.len();
        self.history.attempts.push(Attempt {
            parts: parts.clone(),
        });
        self.disk.note(attempt as u64);
        let ticket = txn.commit().map_err(told)?;
        for (number, part) in parts {
            self.models[number] = part;
        }
        if self.random.below(3) > 0 {
            ticket.wait_durable().map_err(told)?;
            self.disk.note(ACKNOWLEDGED | attempt as u64);
            self.history.acknowledged.push(attempt);
        }
        Ok(())
    }

    fn reopen(&mut self) -> Verdict {
        self.env = None;
        let env = Env::on_storage(Arc::new(self.disk.clone()), &options(self.guards));
        self.env = Some(env.map_err(told)?);
        self.models = self.compare(&self.history)?;
        Ok(())
    }
}

/// Always changes something, so that there is a commit.
fn change(
    txn: &mut WriteTxn,
    model: &mut Model,
    random: &mut Random,
    value_bytes: usize,
) -> Result<(), Error> {
    let tree = match txn.tree("t")? {
        Some(tree) => tree,
        None => txn.create_tree("t", TreeKind::COMPACT)?,
    };
    let key = random.below(300) as u32;
    if random.below(4) == 0 && model.remove(&key).is_some() {
        assert!(txn.delete(tree, &key.to_be_bytes())?);
    } else {
        let value = vec![random.number() as u8; random.below(value_bytes)];
        txn.put(tree, &key.to_be_bytes(), &value)?;
        model.insert(key, value);
    }
    Ok(())
}

fn suite(guards: Guards, seeds: u64) -> Verdict {
    (0..seeds).try_for_each(|seed| {
        lives(guards, seed)
            .and_then(|()| a_resting_store_goes_on(guards, seed))
            .map_err(|error| format!("seed {seed}: {error}"))
    })
}

fn lives(guards: Guards, seed: u64) -> Verdict {
    let mut first = Life::begin(Disk::new(), guards, seed, &History::default())?;
    for _ in 0..30 {
        first.step()?;
    }
    for (number, crash) in (0..).zip(first.disk.crashes(seed, 25)) {
        let second = || {
            let disk = Disk::from_image(crash.image()).map_err(|error| error.to_string())?;
            let known = first.history_at(&crash);
            let mut second = Life::begin(disk, guards, seed * 1000 + number, &known)?;
            for _ in 0..5 {
                second.step()?;
            }
            for crash in second.disk.crashes(seed + number, 4) {
                let disk = Disk::from_image(crash.image()).map_err(|error| error.to_string())?;
                Life::begin(disk, guards, 0, &second.history_at(&crash))
                    .map_err(|error| format!("{error}, second {crash}"))?;
            }
            Ok(())
        };
        second().map_err(|error: String| format!("{crash}: {error}"))?;
    }
    Ok(())
}

/// While one store fills the log, however often it is checkpointed, another keeps what was committed to it before.
fn a_resting_store_goes_on(guards: Guards, seed: u64) -> Verdict {
    let mut life = Life::begin(Disk::new(), guards, seed, &History::default())?;
    life.store(1).checkpoint().map_err(told)?;
    life.transact(STORES, 4, 200)?;
    life.fill_log()?;
    let image = life.disk.synced_image();
    let disk = Disk::from_image(&image).map_err(|error| error.to_string())?;
    Life::begin(disk, guards, 0, &life.history).map(drop)?;
    checkpoint::empty_log(life.store(2).inner()).map_err(told)?;
    life.reopen()
}

impl Life {
    /// Commits to the first store, and checkpoints it, until the log is full; the second one is never checkpointed.
    fn fill_log(&mut self) -> Verdict {
        let (busy, resting) = (self.store(0), self.store(1));
        let _nobody = CheckpointLock::take(resting.inner()).map_err(told)?;
        let wal = busy.inner().wal.as_ref().unwrap();
        while wal.room() > 20_000 && wal.end().0 < 3 * wal.capacity() {
            let mut txn = busy.write().map_err(told)?;
            let (commit, mut model) = self.models[0].clone();
            for _ in 0..4 {
                change(&mut txn, &mut model, &mut self.random, 200).map_err(told)?;
            }
            let attempt = self.history.attempts.len();
            let part = (commit + 1, model);
            self.models[0] = part.clone();
            self.history.attempts.push(Attempt {
                parts: BTreeMap::from([(0, part)]),
            });
            self.disk.note(attempt as u64);
            txn.commit().map_err(told)?.wait_durable().map_err(told)?;
            self.disk.note(ACKNOWLEDGED | attempt as u64);
            self.history.acknowledged.push(attempt);
            busy.checkpoint().map_err(told)?;
        }
        Ok(())
    }
}

#[test]
fn every_crash_state_of_several_stores_recovers() {
    let factor = std::env::var("SAPWOOD_CRASH_FACTOR").map_or(1, |factor| factor.parse().unwrap());
    suite(Guards::default(), 4 * factor).unwrap();
}

#[test]
fn the_suite_fails_without_what_keeps_several_stores_together() {
    for guard in [Guard::KeepLogOfOtherStores, Guard::SyncLog] {
        let verdict = suite(Guards::without(guard), 100);
        eprintln!("without {guard:?}: {verdict:?}");
        assert!(verdict.is_err(), "the suite passes without {guard:?}");
    }
}

/// Stores can be added later, and a power cut meanwhile leaves the environment with those that it had or with all.
#[test]
fn adding_stores_survives_power_cuts() {
    let open = |disk: &Disk, stores| {
        let options = options(Guards::default()).stores(stores);
        Env::on_storage(Arc::new(disk.clone()), &options).map_err(told)
    };
    let put = |env: &Env, value: &[u8]| {
        let mut txn = env.write().unwrap();
        let tree = match txn.tree("t").unwrap() {
            Some(tree) => tree,
            None => txn.create_tree("t", TreeKind::COMPACT).unwrap(),
        };
        txn.put(tree, b"key", value).unwrap();
        txn.commit().unwrap().wait_durable().unwrap();
    };
    let disk = Disk::new();
    let env = open(&disk, 1).unwrap();
    put(&env, b"before");
    drop(env);
    let image = disk.synced_image();
    let disk = Disk::from_image(&image).unwrap();
    drop(open(&disk, 3).unwrap());
    for crash in disk.crashes(1, 60) {
        for stores in [1, 3] {
            let disk = Disk::from_image(crash.image()).unwrap();
            let env = open(&disk, stores).unwrap_or_else(|error| panic!("{crash}: {error}"));
            assert!(env.stores() == 1 || env.stores() == 3, "{crash}");
            for store in 0..env.stores() {
                put(&env.store(store).unwrap(), b"after");
            }
            drop(env);
            let env = open(&disk, 1).unwrap();
            for store in 0..env.stores() {
                let store = env.store(store).unwrap();
                assert!(store.check().unwrap().is_clean());
                let snapshot = store.read().unwrap();
                let tree = snapshot.tree("t").unwrap().unwrap();
                assert_eq!(tree.get(b"key").unwrap(), Some(&b"after"[..]), "{crash}");
            }
        }
    }
}
