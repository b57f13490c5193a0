//! The store survives power cuts and failing disks, and it survives them because of its guards: without any single one
//! of them this suite fails.
//!
//! A *life* is what happens on a simulated disk between two power cuts: recovery, then random work that notes on the
//! recording which commits it is about to make and which were acknowledged. Each life is cut off in many states, each
//! of which is the beginning of another life. After each recovery every acknowledged commit is there, every other one
//! is wholly there or wholly absent, and a check finds nothing.

mod model;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use sapwood_testkit::Random;
use sapwood_testkit::storage::recording::{Crash, Disk, Fault, Image};
use sapwood_wal::Wal;
use sapwood_wal::storage::{OpenMode, Storage};

use crate::backup::restore::Restore;
use crate::env::Env;
use crate::env::file_names::DATA_NAME;
use crate::env::options::Durability;
use crate::env::options::{LOG_BYTES_MIN, Options};
use crate::error::Error;
use crate::format::page::PAGE_BYTES;
use crate::format::tree_record::TreeKind;
use crate::guard::{self, Guard, Guards};
use crate::log::checkpoint;
use crate::log::checkpoint::CheckpointLock;
use crate::txn::WriteTxn;
use crate::txn::snapshot::Snapshot;

use model::{Model, change, compare_with};

/// What is wrong, or nothing.
type Verdict = Result<(), String>;

/// How many lives a run of the suite begins with, how long each of them is, in how many states it is cut off, and in
/// how many each of those that follow.
const SEEDS: u64 = 5;
const STEPS: usize = 40;
const CRASHES: usize = 30;
const SECOND_CRASHES: usize = 6;

/// `SAPWOOD_CRASH_FACTOR` multiplies the number of lives looked at.
#[test]
fn every_crash_state_recovers() {
    let factor = std::env::var("SAPWOOD_CRASH_FACTOR").map_or(1, |factor| factor.parse().unwrap());
    whole_suite(Guards::default(), 0..SEEDS * factor).unwrap();
}

#[test]
fn the_suite_fails_without_any_single_guard() {
    // It ends at the first failure, so that many seeds cost nothing but patience with a useless guard. Those that have
    // shown what a guard is for come first.
    const SHOWN_BY: [u64; 5] = [0, 81, 12, 4, 3];
    let seeds = || SHOWN_BY.into_iter().chain(0..400);
    // One of them alone, if it is named.
    let only = std::env::var("SAPWOOD_TEST_GUARD").ok();
    let useless: Vec<Guard> = Guard::ALL
        .into_iter()
        .filter(|guard| {
            only.as_ref()
                .is_none_or(|only| format!("{guard:?}") == *only)
        })
        .filter(|guard| {
            let verdict = whole_suite(Guards::without(*guard), seeds());
            // Shown with `--nocapture`: it ought to fail for the right reason.
            eprintln!("without {guard:?}: {verdict:?}");
            verdict.is_ok()
        })
        .collect();
    assert!(useless.is_empty(), "the suite passes without {useless:?}");
}

fn whole_suite(guards: Guards, mut seeds: impl Iterator<Item = u64>) -> Verdict {
    seeds.try_for_each(|seed| {
        a_new_store_is_whole(guards, seed)
            .and_then(|()| lives(guards, seed))
            .map_err(|error| format!("seed {seed}: {error}"))
    })
}

/// Whatever a power cut leaves of a store's creation can be opened, or created again.
fn a_new_store_is_whole(guards: Guards, seed: u64) -> Verdict {
    let new = Life::begin(Disk::new(), guards, seed, History::default())?;
    for crash in new.disk.crashes(seed, 40) {
        let disk = Disk::from_image(crash.image()).map_err(|error| error.to_string())?;
        Life::begin(disk, guards, 0, new.history_at(&crash))
            .map_err(|error| format!("new store, {crash}: {error}"))?;
    }
    Ok(())
}

/// Random lives from one seed: the first one, for each of its crash states a second one, and for some of those a third.
fn lives(guards: Guards, seed: u64) -> Verdict {
    let mut first = Life::begin(Disk::new(), guards, seed, History::default())?;
    first.work(STEPS)?;
    let crashes = first.disk.crashes(seed, CRASHES);
    first.fill_log()?;
    first.a_damaged_meta_page_is_made_up_for()?;
    for (number, crash) in (0..).zip(crashes) {
        let second = || {
            let history = first.history_at(&crash);
            let disk = Disk::from_image(crash.image()).map_err(|error| error.to_string())?;
            let mut second = Life::begin(disk, guards, seed * 1000 + number, history)?;
            second.work(STEPS / 5)?;
            for crash in second.disk.crashes(seed + number, SECOND_CRASHES) {
                let history = second.history_at(&crash);
                let disk = Disk::from_image(crash.image()).map_err(|error| error.to_string())?;
                Life::begin(disk, guards, 0, history)
                    .map_err(|error| format!("{error}, second {crash}"))?;
            }
            Ok(())
        };
        second().map_err(|error: String| format!("{crash}: {error}"))?;
    }
    Ok(())
}

/// What is known of a store at some moment.
#[derive(Clone, Debug, Default)]
struct History {
    is_created: bool,
    /// The state after each commit that was tried, by its number.
    states: BTreeMap<u64, Arc<Model>>,
    /// This one must be there.
    acknowledged: u64,
}

/// A note on the recording: a kind and a number.
enum Note {
    Created,
    /// The commit of this number is going to be tried.
    Attempt(u64),
    Acknowledged(u64),
    /// From the commit of this number on others will be tried that change no record.
    Compacting(u64),
}

impl Note {
    fn encode(&self) -> u64 {
        match self {
            Self::Created => 0,
            Self::Attempt(commit) => 1 << 62 | commit,
            Self::Acknowledged(commit) => 2 << 62 | commit,
            Self::Compacting(commit) => 3 << 62 | commit,
        }
    }

    fn decode(note: u64) -> Self {
        let number = note & ((1 << 62) - 1);
        match note >> 62 {
            0 => Self::Created,
            1 => Self::Attempt(number),
            2 => Self::Acknowledged(number),
            _ => Self::Compacting(number),
        }
    }
}

struct Life {
    disk: Disk,
    env: Option<Env>,
    guards: Guards,
    /// Each time it is reopened, the log is removed and made anew.
    alone_when_closed: bool,
    random: Random,
    /// As it was at the beginning.
    before: History,
    history: History,
    /// Snapshots being kept, with the commit they have to show.
    kept: Vec<Snapshot>,
    /// Commits that were not waited for.
    applied: u64,
}

fn options(guards: Guards, alone_when_closed: bool) -> Options {
    let mut options = Options::new()
        .log_bytes(2 * LOG_BYTES_MIN)
        .alone_when_closed(alone_when_closed)
        .idle_checkpoint(None);
    options.guards = guards;
    options
}

/// Of some lives.
fn is_alone_when_closed(seed: u64) -> bool {
    seed % 3 == 1
}

fn told(error: Error) -> String {
    format!("{error} ({error:?})")
}

impl Life {
    /// Opens what is on the disk, and compares it with what is known.
    fn begin(disk: Disk, guards: Guards, seed: u64, history: History) -> Result<Self, String> {
        let env = open(&disk, guards, is_alone_when_closed(seed)).map_err(told)?;
        disk.note(Note::Created.encode());
        let mut life = Self {
            disk,
            env: Some(env),
            guards,
            alone_when_closed: is_alone_when_closed(seed),
            random: Random::new(seed),
            before: history.clone(),
            history,
            kept: Vec::new(),
            applied: 0,
        };
        life.compare()?;
        life.before = life.history.clone();
        Ok(life)
    }

    fn env(&self) -> Env {
        self.env.clone().unwrap()
    }

    /// The visible commit is one of those that may be there, and shows what it has to.
    fn compare(&mut self) -> Verdict {
        let env = self.env();
        let snapshot = env.read().map_err(told)?;
        let commit = snapshot.commit().0;
        let report = env.check().map_err(told)?;
        if !report.is_clean() {
            return Err(format!("check: {}", report.problems.join(", ")));
        }
        if self.history.states.is_empty() {
            self.history.states.insert(commit, Arc::default());
        }
        if commit < self.history.acknowledged {
            let acknowledged = self.history.acknowledged;
            return Err(format!("commit {acknowledged} was lost, {commit} is there"));
        }
        let Some(model) = self.history.states.get(&commit) else {
            return Err(format!("commit {commit} has never been tried"));
        };
        compare_with(&snapshot, model)?;
        // What is there now stays there, and the rest will never come.
        self.history.acknowledged = commit;
        self.history.states.split_off(&(commit + 1));
        self.applied = commit;
        Ok(())
    }

    /// What was known at the moment of a power cut.
    fn history_at(&self, crash: &Crash) -> History {
        let mut history = self.before.clone();
        history.is_created |= !crash.notes().is_empty();
        for note in crash.notes() {
            match Note::decode(*note) {
                Note::Created => {}
                Note::Attempt(commit) => {
                    let state = self.history.states[&commit].clone();
                    history.states.insert(commit, state);
                }
                Note::Acknowledged(commit) => history.acknowledged = commit,
                Note::Compacting(commit) => {
                    let state = &self.history.states[&commit];
                    let all = self.history.states.range(commit..);
                    let same = all.take_while(|(_, other)| *other == state);
                    history
                        .states
                        .extend(same.map(|(&commit, state)| (commit, state.clone())));
                }
            }
        }
        history
    }

    fn work(&mut self, steps: usize) -> Verdict {
        for _ in 0..steps {
            self.step()?;
        }
        self.kept.clear();
        Ok(())
    }

    fn step(&mut self) -> Verdict {
        match self.random.below(22) {
            0..10 => self.transact(8, 300),
            20 => {
                let commit = self.env().sync().map_err(told)?;
                self.acknowledge(commit.0);
                Ok(())
            }
            10 => self.transact(3, 9000),
            11 => self.transact(400, 300),
            12 => self.bulk_load(),
            13 => {
                self.checkpoint(false)?;
                // Without log and without any commit since the checkpoint.
                self.transact(400, 300)
            }
            14..16 => self.checkpoint(true),
            16 => self.keep_snapshot(),
            17 => self.look_at_snapshots(),
            18 => self.give_up(),
            21 => self.compact(),
            _ => self.reopen(),
        }
    }

    /// Tries a commit of up to so many changes, and perhaps waits for it.
    fn transact(&mut self, changes: usize, value_bytes: usize) -> Verdict {
        let ticket = self.try_commit(changes, value_bytes)?;
        let commit = ticket.commit().0;
        if self.random.below(3) > 0 {
            ticket.wait_durable().map_err(told)?;
            self.acknowledge(commit);
        }
        if self.random.below(4) == 0 {
            // Whatever is visible now, it is whole.
            self.keep_snapshot()?;
        }
        self.look_at_snapshots()
    }

    fn try_commit(
        &mut self,
        changes: usize,
        value_bytes: usize,
    ) -> Result<crate::commit::Ticket, String> {
        let mut txn = self.env().write().map_err(told)?;
        let mut model = Model::clone(&self.history.states[&self.applied]);
        let count = 1 + self.random.below(changes);
        for _ in 0..count {
            change(&mut txn, &mut model, &mut self.random, value_bytes).map_err(told)?;
        }
        if self.random.below(4) == 0 {
            let savepoint = txn.savepoint();
            let mut undone = model.clone();
            for _ in 0..self.random.below(6) {
                change(&mut txn, &mut undone, &mut self.random, value_bytes).map_err(told)?;
            }
            txn.rollback_to(&savepoint);
        }
        if self.random.below(4) == 0 {
            self.nest(&mut txn, &mut model, value_bytes, 3)
                .map_err(told)?;
        }
        let commit = txn.commit_no().0;
        let model = Arc::new(model);
        self.history.states.insert(commit, model.clone());
        self.disk.note(Note::Attempt(commit).encode());
        let durability = match self.random.below(3) {
            0 => Durability::Relaxed,
            _ => Durability::Durable,
        };
        let env = self.env();
        let region = &env.inner().region;
        let nothing_waits = region.visible() == region.applied();
        let ticket = txn.commit_with(durability).map_err(told)?;
        if nothing_waits && durability == Durability::Relaxed && !ticket.is_visible() {
            return Err("a relaxed commit waits for nothing".into());
        }
        if ticket.commit().0 == commit {
            self.applied = commit;
        } else {
            // Nothing had changed.
            self.history.states.insert(ticket.commit().0, model);
        }
        Ok(ticket)
    }

    /// A nested transaction, with others in it, of which some are given up.
    fn nest(
        &mut self,
        txn: &mut WriteTxn,
        model: &mut Model,
        value_bytes: usize,
        depth: usize,
    ) -> Result<(), Error> {
        let mut inner = model.clone();
        let mut child = txn.child();
        for _ in 0..self.random.below(6) {
            change(&mut child, &mut inner, &mut self.random, value_bytes)?;
        }
        if depth > 0 && self.random.below(2) == 0 {
            self.nest(&mut child, &mut inner, value_bytes, depth - 1)?;
        }
        if self.random.below(2) == 0 {
            child.commit();
            *model = inner;
        }
        Ok(())
    }

    fn acknowledge(&mut self, commit: u64) {
        self.disk.note(Note::Acknowledged(commit).encode());
        self.history.acknowledged = commit;
    }

    fn bulk_load(&mut self) -> Verdict {
        let mut model = Model::clone(&self.history.states[&self.applied]);
        let name = format!("bulk {}", self.random.below(4));
        if model.contains_key(&name) {
            let mut txn = self.env().write().map_err(told)?;
            txn.drop_tree(&name).map_err(told)?;
            model.remove(&name);
            let commit = txn.commit_no().0;
            self.history.states.insert(commit, Arc::new(model));
            self.disk.note(Note::Attempt(commit).encode());
            drop(txn.commit().map_err(told)?);
            self.applied = commit;
            return Ok(());
        }
        let mut load = self.env().bulk().map_err(told)?;
        let mut tree = load.tree(&name, TreeKind::default()).map_err(told)?;
        let records = model.entry(name.clone()).or_default();
        for n in 0..self.random.below(300) as u32 {
            let value = vec![n as u8; self.random.below(200)];
            tree.push(&mut load, &n.to_be_bytes(), &value)
                .map_err(told)?;
            records.insert(n.to_be_bytes().to_vec(), value);
        }
        tree.finish(&mut load).map_err(told)?;
        let commit = self.applied + 1;
        self.history.states.insert(commit, Arc::new(model));
        self.disk.note(Note::Attempt(commit).encode());
        load.commit().map_err(told)?;
        self.applied = commit;
        self.acknowledge(commit);
        Ok(())
    }

    /// A checkpoint, perhaps with commits while it is under way.
    fn checkpoint(&mut self, with_commits: bool) -> Verdict {
        if with_commits {
            let env = self.env();
            let disk = self.disk.clone();
            let mut random = Random::new(self.random.number());
            let mut model = Model::clone(&self.history.states[&self.applied]);
            let (sender, receiver) = std::sync::mpsc::channel();
            let (failed, failure) = std::sync::mpsc::channel();
            let mut commits = move || -> Result<(), Error> {
                for _ in 0..1 + random.below(4) {
                    // A full log would wait for this checkpoint.
                    if env.inner().wal.as_ref().unwrap().room() < 40_000 {
                        break;
                    }
                    let mut txn = env.write()?;
                    for _ in 0..1 + random.below(3) {
                        change(&mut txn, &mut model, &mut random, 100)?;
                    }
                    let commit = txn.commit_no().0;
                    sender.send((commit, model.clone())).unwrap();
                    disk.note(Note::Attempt(commit).encode());
                    // Behind one that the log does not have it would wait for this checkpoint.
                    let waits = !env.inner().region.ends_unlogged();
                    let ticket = match waits {
                        true => txn.commit()?,
                        false => txn.commit_with(Durability::Relaxed)?,
                    };
                    if waits && ticket.commit().0 == commit {
                        ticket.wait_durable()?;
                        disk.note(Note::Acknowledged(commit).encode());
                    }
                }
                Ok(())
            };
            guard::at_failpoint(move || {
                if let Err(error) = commits() {
                    failed.send(told(error)).unwrap();
                }
            });
            let done = self.env().checkpoint().map_err(told);
            guard::at_failpoint(|| ());
            if let Ok(error) = failure.recv() {
                return Err(error);
            }
            let checkpointed = done?;
            for (commit, model) in receiver {
                self.history.states.insert(commit, Arc::new(model));
            }
            let env = self.env();
            let region = &env.inner().region;
            self.applied = region.applied().0;
            self.history.acknowledged = match region.holds_newest() {
                true => region.visible().0,
                false => checkpointed.0,
            };
        } else {
            let commit = self.env().checkpoint().map_err(told)?;
            self.acknowledge(commit.0);
        }
        Ok(())
    }

    fn compact(&mut self) -> Verdict {
        let before = self.applied;
        self.disk.note(Note::Compacting(before).encode());
        self.env().compact(|_| ()).map_err(told)?;
        let model = self.history.states[&before].clone();
        self.applied = self.env().inner().region.applied().0;
        for commit in before..=self.applied {
            self.history.states.insert(commit, model.clone());
        }
        self.acknowledge(self.applied);
        self.look_at_snapshots()
    }

    fn keep_snapshot(&mut self) -> Verdict {
        self.kept.push(self.env().read().map_err(told)?);
        Ok(())
    }

    fn look_at_snapshots(&mut self) -> Verdict {
        for snapshot in &self.kept {
            compare_with(snapshot, &self.history.states[&snapshot.commit().0])?;
        }
        if self.kept.len() > 3 {
            let at = self.random.below(self.kept.len());
            drop(self.kept.remove(at));
        }
        Ok(())
    }

    fn give_up(&mut self) -> Verdict {
        let mut txn = self.env().write().map_err(told)?;
        let mut model = Model::clone(&self.history.states[&self.applied]);
        for _ in 0..self.random.below(20) {
            change(&mut txn, &mut model, &mut self.random, 500).map_err(told)?;
        }
        Ok(())
    }

    fn reopen(&mut self) -> Verdict {
        self.kept.clear();
        self.env = None;
        self.env = Some(open(&self.disk, self.guards, self.alone_when_closed).map_err(told)?);
        let states = self.history.states.clone();
        self.compare()?;
        // For crashes before this moment.
        self.history.states = states;
        Ok(())
    }

    /// Commits until the log is as full as it may get: so much after each of two checkpoints that it could not hold
    /// what comes after the first without being kept for it.
    fn fill_log(&mut self) -> Verdict {
        checkpoint::empty_log(self.env().inner()).map_err(told)?;
        // So that the log has what follows.
        while self.env().inner().region.ends_unlogged() {
            let ticket = self.change_once(Durability::Durable)?;
            ticket.wait_durable().map_err(told)?;
            self.acknowledge(ticket.commit().0);
        }
        self.env().inner().region.begin_waiting();
        self.checkpoint_a_relaxed_commit()?;
        self.commit_without_checkpoint(|wal, start| wal.end().0 > start + 30_000)?;
        self.half_a_checkpoint()?;
        self.commit_without_checkpoint(|_, _| false)
    }

    /// Nobody but the checkpoint makes the commit durable, and yet not even damage to its meta page takes it away.
    fn checkpoint_a_relaxed_commit(&mut self) -> Verdict {
        drop(self.change_once(Durability::Relaxed)?);
        self.half_a_checkpoint()?;
        let mut image = self.disk.synced_image();
        let commits = self.meta_commits()?;
        let newer = usize::from(commits[1] > commits[0]);
        image.damage(DATA_NAME, (newer * PAGE_BYTES) as u64, |byte| *byte ^= 0x10);
        self.leads_to_the_same_state(&image)
            .map_err(|error| format!("newer meta page of a relaxed commit damaged: {error}"))
    }

    fn change_once(&mut self, durability: Durability) -> Result<crate::commit::Ticket, String> {
        let mut txn = self.env().write().map_err(told)?;
        let mut model = Model::clone(&self.history.states[&self.applied]);
        change(&mut txn, &mut model, &mut self.random, 100).map_err(told)?;
        let commit = txn.commit_no().0;
        self.history.states.insert(commit, Arc::new(model));
        self.disk.note(Note::Attempt(commit).encode());
        let ticket = txn.commit_with(durability).map_err(told)?;
        self.applied = ticket.commit().0;
        Ok(ticket)
    }

    /// A checkpoint that has come as far as its first meta page.
    fn half_a_checkpoint(&mut self) -> Verdict {
        let env = self.env();
        let half = || {
            let lock = CheckpointLock::take(env.inner())?;
            let pinned = lock.pin()?;
            lock.sync_log(&pinned)?;
            let head = pinned.head;
            lock.sync_pages(&head)?;
            lock.write_meta(&head)?;
            Ok(head.commit.0)
        };
        let commit = half().map_err(told)?;
        self.acknowledge(commit);
        Ok(())
    }

    fn commit_without_checkpoint(&mut self, is_enough: impl Fn(&Wal, u64) -> bool) -> Verdict {
        let env = self.env();
        let _nobody_else = CheckpointLock::take(env.inner()).map_err(told)?;
        let wal = env.inner().wal.as_ref().unwrap();
        let start = wal.end().0;
        // Room for one more, so that no transaction has to empty the log, which needs the lock.
        while wal.room() > 25_000 && !is_enough(wal, start) {
            // The log has each of them: to wait for any other takes the lock.
            env.inner().region.begin_waiting();
            let ticket = self.try_commit(2, 100)?;
            ticket.wait_durable().map_err(told)?;
            self.acknowledge(ticket.commit().0);
        }
        Ok(())
    }

    /// A restore arrives at a state that there was.
    fn is_restored_by(&self, restore: &Restore, dest: &Path) -> Verdict {
        let commit = restore.into_folder(dest).map_err(told)?[0].0;
        let env = Env::open(dest, &Options::new().idle_checkpoint(None)).map_err(told)?;
        let model = self.history.states.get(&commit);
        let model = model.ok_or_else(|| format!("commit {commit} has never been tried"))?;
        compare_with(&env.read().map_err(told)?, model)
    }

    /// If the newer meta page has become unreadable, the older one and the log lead to the same state.
    fn a_damaged_meta_page_is_made_up_for(&self) -> Verdict {
        let commits = self.meta_commits()?;
        let newer = usize::from(commits[1] > commits[0]);
        for at in [0, 30, 88, 120] {
            let mut image = self.disk.synced_image();
            let offset = (newer * PAGE_BYTES + at) as u64;
            image.damage(DATA_NAME, offset, |byte| *byte ^= 0x10);
            self.leads_to_the_same_state(&image)
                .map_err(|error| format!("byte {at} of the newer meta page damaged: {error}"))?;
        }
        Ok(())
    }

    fn leads_to_the_same_state(&self, image: &Image) -> Verdict {
        let disk = Disk::from_image(image).map_err(|error| error.to_string())?;
        Self::begin(disk, self.guards, 0, self.history.clone()).map(drop)
    }

    fn meta_commits(&self) -> Result<[u64; 2], String> {
        let file = self.disk.open(DATA_NAME, OpenMode::Read);
        let file = file.map_err(|error| error.to_string())?;
        let mut commits = [0; 2];
        for (slot, commit) in commits.iter_mut().enumerate() {
            let mut bytes = [0; 8];
            file.read_exact_at(&mut bytes, (slot * PAGE_BYTES + 16) as u64)
                .map_err(|error| error.to_string())?;
            *commit = u64::from_le_bytes(bytes);
        }
        Ok(commits)
    }
}

fn open(disk: &Disk, guards: Guards, alone_when_closed: bool) -> Result<Env, Error> {
    let options = options(guards, alone_when_closed);
    Env::on_storage(Arc::new(disk.clone()), &options)
}

/// Taking the log away when the environment is closed, and giving it another one when it is opened.
#[test]
fn closing_and_opening_survive_power_cuts() {
    let run = || {
        let seed = 1;
        assert!(is_alone_when_closed(seed));
        let mut life = Life::begin(Disk::new(), Guards::default(), seed, History::default())?;
        for _ in 0..4 {
            life.transact(8, 300)?;
            life.reopen()?;
        }
        let names = life.disk.names().map_err(|error| error.to_string())?;
        assert!(names.iter().any(|name| name.starts_with("log")));
        life.env = None;
        let names = life.disk.names().map_err(|error| error.to_string())?;
        assert_eq!(names, [DATA_NAME]);
        for crash in life.disk.crashes(seed, 400) {
            let disk = Disk::from_image(crash.image()).map_err(|error| error.to_string())?;
            let mut after = Life::begin(disk, Guards::default(), 1, life.history_at(&crash))
                .map_err(|error| format!("{crash}: {error}"))?;
            after.transact(8, 300)?;
            after.reopen()?;
        }
        Ok::<_, String>(())
    };
    run().unwrap();
}

/// Replay gives each page the number that it had: an increment leads from a backup of before a power cut to what
/// recovery has arrived at, and the next increment on from there.
#[test]
fn increments_lead_across_power_cuts() {
    let folder = tempfile::tempdir().unwrap();
    for seed in 0..3 {
        let mut first =
            Life::begin(Disk::new(), Guards::default(), seed, History::default()).unwrap();
        first.work(20).unwrap();
        let full = folder.path().join(format!("full {seed}"));
        let commit = first.env().backup(&full).unwrap();
        first.acknowledge(commit.0);
        let disk = Disk::from_image(&first.disk.synced_image()).unwrap();
        let history = first.history.clone();
        let mut second = Life::begin(disk, Guards::default(), seed + 100, history).unwrap();
        second.work(20).unwrap();
        for (number, crash) in (0..).zip(second.disk.crashes(seed, 25)) {
            let run = tempfile::tempdir_in(folder.path()).unwrap();
            let path = |name: &str| run.path().join(name);
            let disk = Disk::from_image(crash.image()).unwrap();
            let history = second.history_at(&crash);
            let seed = seed * 1000 + number;
            let third =
                Life::begin(disk, Guards::default(), seed, history).and_then(|mut third| {
                    // No handle is kept: it would be opened again without having been closed.
                    let one = third.env().backup_since(&full, path("one"));
                    one.map_err(told)?;
                    let restore = Restore::of(&full).increment(path("one"));
                    third.is_restored_by(&restore, &path("env 1"))?;
                    third.work(4)?;
                    let two = third.env().backup_since(path("one"), path("two"));
                    two.map_err(told)?;
                    third.is_restored_by(&restore.increment(path("two")), &path("env 2"))
                });
            third.unwrap_or_else(|error| panic!("seed {seed}, {crash}: {error}"));
        }
    }
}

/// Every call on the disk fails once, in each way, for once and for ever. Nothing acknowledged is lost, and nothing is
/// half there; with a disk that works again everything goes on.
#[test]
fn failing_calls() {
    let mut seed = 0;
    for fault in [
        Fault::ShortWrite(100),
        Fault::NoSpace,
        Fault::Io,
        Fault::Interrupted,
    ] {
        for lasting in [false, true] {
            for nth in (0..120).step_by(if cfg!(debug_assertions) { 17 } else { 1 }) {
                seed += 1;
                fails_at(seed, nth, fault, lasting).unwrap_or_else(|error| {
                    panic!("seed {seed}, call {nth}, {fault:?}, lasting {lasting}: {error}")
                });
            }
        }
    }
}

fn fails_at(seed: u64, nth: u64, fault: Fault, lasting: bool) -> Verdict {
    let mut life = Life::begin(Disk::new(), Guards::default(), seed, History::default())?;
    life.transact(8, 300)?;
    life.disk.fail(nth, fault, lasting);
    let mut failures = Vec::new();
    for _ in 0..20 {
        let done = match life.random.below(8) {
            0 => life.transact(400, 300),
            1 => life.bulk_load(),
            2 => life.checkpoint(false),
            3 => life.reopen(),
            _ => life.transact(8, 300),
        };
        if life.env.is_none() {
            life.disk.heal();
            life.env = Some(open(&life.disk, life.guards, life.alone_when_closed).map_err(told)?);
            life.compare()?;
        }
        failures.extend(done.err());
    }
    if matches!(fault, Fault::Interrupted | Fault::ShortWrite(_)) && !failures.is_empty() {
        return Err(format!("what ought to go on failed: {failures:?}"));
    }
    for crash in life.disk.crashes(seed, 6) {
        // The recording began with this life, whose history has been cut by reopening.
        let disk = Disk::from_image(crash.image()).map_err(|error| error.to_string())?;
        match open(&disk, life.guards, false) {
            Ok(env) => {
                let report = env.check().map_err(told)?;
                if !report.is_clean() {
                    return Err(format!("{crash}: {:?}", report.problems));
                }
            }
            Err(error) if crash.notes().is_empty() => drop(error),
            Err(error) => return Err(format!("{crash}: {}", told(error))),
        }
    }
    life.disk.heal();
    life.kept.clear();
    life.env = None;
    life.env = Some(open(&life.disk, life.guards, life.alone_when_closed).map_err(told)?);
    life.compare()?;
    life.transact(8, 300)?;
    life.compare()
}
