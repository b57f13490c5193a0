//! The combiner under a model checker, which runs it in many orders that real threads would hardly ever take. A wake-up that got lost would
//! be a deadlock, which the checker reports.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use shuttle::thread;

use super::combiner::{Combiner, Failure, Ran, Store};
use super::job::Job;
use crate::sync::{Arc, Condvar, Mutex, lock};

const SCHEDULES: usize = 4_000;
const THREADS: u32 = 3;
const UPDATES: u32 = 2;

/// What a commit may do instead of succeeding.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Trouble {
    None,
    /// The second preparation fails.
    FailsToPrepare,
    /// The second commit fails.
    FailsToCommit,
    /// The second commit panics.
    PanicsInCommit,
    /// The second wait fails, and all that follow.
    FailsToWait,
}

#[derive(Default)]
struct Disk {
    is_taken: bool,
    committed: Vec<u32>,
    durable: usize,
    prepared: u32,
    commits: u32,
    waits: u32,
}

struct Model {
    disk: Mutex<Disk>,
    free: Condvar,
    trouble: Trouble,
    /// How many works a transaction takes.
    enough: usize,
}

/// What was there, and what is new.
struct Txn {
    all: Vec<u32>,
    works: usize,
}

impl Model {
    fn new(trouble: Trouble, enough: usize) -> Self {
        Self {
            disk: Mutex::default(),
            free: Condvar::new(),
            trouble,
            enough,
        }
    }

    fn take(&self) -> Vec<u32> {
        let mut disk = lock(&self.disk);
        while disk.is_taken {
            disk = match self.free.wait(disk) {
                Ok(disk) => disk,
                Err(poisoned) => poisoned.into_inner(),
            };
        }
        disk.is_taken = true;
        disk.committed.clone()
    }

    fn give_back(&self, all: Option<Vec<u32>>) -> usize {
        let mut disk = lock(&self.disk);
        if let Some(all) = all {
            disk.committed = all;
        }
        disk.is_taken = false;
        self.free.notify_one();
        disk.committed.len()
    }
}

impl Store for Model {
    type Txn = Txn;
    type Ticket = usize;
    type Error = &'static str;

    fn begin(&self) -> Result<Txn, &'static str> {
        Ok(Txn {
            all: self.take(),
            works: 0,
        })
    }

    fn run(&self, txn: &mut Txn, is_first: bool, job: Job<Txn>) -> Ran {
        let before = txn.all.len();
        assert_eq!(is_first, txn.works == 0);
        txn.works += 1;
        if job.run(txn) {
            return Ran::Kept;
        }
        txn.all.truncate(before);
        if is_first {
            self.give_back(None);
            return Ran::Spoilt;
        }
        Ran::Undone
    }

    fn is_enough(&self, txn: &Txn) -> bool {
        txn.works >= self.enough
    }

    fn is_wanted(&self) -> bool {
        false
    }

    fn prepare(&self, _: &mut Txn) -> Result<(), &'static str> {
        let prepared = {
            let mut disk = lock(&self.disk);
            disk.prepared += 1;
            disk.prepared
        };
        if self.trouble == Trouble::FailsToPrepare && prepared == 2 {
            // The combiner drops the transaction.
            self.give_back(None);
            return Err("not prepared");
        }
        Ok(())
    }

    fn commit(&self, txn: Txn) -> Result<usize, &'static str> {
        let commits = {
            let mut disk = lock(&self.disk);
            disk.commits += 1;
            disk.commits
        };
        match (self.trouble, commits) {
            (Trouble::FailsToCommit, 2) => {
                self.give_back(None);
                Err("no commit")
            }
            (Trouble::PanicsInCommit, 2) => {
                self.give_back(None);
                // As a panic does, but silently.
                resume_unwind(Box::new("in the store"))
            }
            _ => Ok(self.give_back(Some(txn.all))),
        }
    }

    fn wait(&self, ticket: &usize) -> Result<(), &'static str> {
        let mut disk = lock(&self.disk);
        disk.waits += 1;
        if self.trouble == Trouble::FailsToWait && disk.waits > 1 {
            return Err("no sync");
        }
        disk.durable = disk.durable.max(*ticket);
        Ok(())
    }

    fn lost() -> &'static str {
        "lost"
    }
}

type Updates = Combiner<Txn, usize, &'static str>;

/// Adds a number, or tries to and gives up.
fn update(updates: &Updates, model: &Model, number: u32, gives_up: bool) -> bool {
    let result = updates.update(model, &mut |txn: &mut Txn| {
        txn.all.push(number);
        !gives_up
    });
    let disk = lock(&model.disk);
    let is_durable = disk.committed[..disk.durable].contains(&number);
    match result {
        Ok(()) => assert_eq!(
            is_durable, !gives_up,
            "told of {number} too early, or of nothing"
        ),
        Err(Failure::Own(_) | Failure::Shared(_)) => {
            assert_ne!(model.trouble, Trouble::None);
            assert!(!is_durable, "{number} failed and is there");
        }
        Err(Failure::Nested) => unreachable!("no update is within another"),
    }
    result.is_ok() && !gives_up
}

fn unless_the_store_panics<R>(trouble: Trouble, what: impl FnOnce() -> R) -> Option<R> {
    let result = catch_unwind(AssertUnwindSafe(what));
    result
        .map_err(|panic| {
            let is_expected = panic.downcast_ref() == Some(&"in the store");
            if !is_expected || trouble != Trouble::PanicsInCommit {
                resume_unwind(panic);
            }
        })
        .ok()
}

/// Several threads update, and another one writes for itself.
fn all_are_told(trouble: Trouble, enough: usize) {
    let model = Arc::new(Model::new(trouble, enough));
    let updates = Arc::new(Updates::new());
    let threads: Vec<_> = (0..THREADS)
        .map(|thread| {
            let (model, updates) = (model.clone(), updates.clone());
            thread::spawn(move || {
                let numbers = (0..UPDATES).map(|update| thread * UPDATES + update);
                let kept = numbers.filter(|&number| {
                    let gives_up = number % 4 == 3;
                    let update = || update(&updates, &model, number, gives_up);
                    unless_the_store_panics(trouble, update).unwrap_or(false)
                });
                kept.collect::<Vec<u32>>()
            })
        })
        .collect();
    let is_taken = || lock(&model.disk).is_taken;
    let take = || updates.give_way(&*model, is_taken, || model.take());
    let mut kept = Vec::new();
    if let Some(mut all) = unless_the_store_panics(trouble, take) {
        all.push(1000);
        model.give_back(Some(all));
        kept.push(1000);
    }
    for thread in threads {
        match thread.join() {
            Ok(its) => kept.extend(its),
            Err(panic) => resume_unwind(panic),
        }
    }
    let disk = lock(&model.disk);
    assert!(!disk.is_taken, "a transaction was left open");
    for number in &kept {
        assert!(disk.committed.contains(number), "{number} was lost");
    }
    if matches!(trouble, Trouble::None) {
        assert_eq!(disk.committed.len(), kept.len());
    }
}

fn check(trouble: Trouble) {
    for enough in [1, 2, usize::MAX] {
        shuttle::check_random(move || all_are_told(trouble, enough), SCHEDULES);
        shuttle::check_pct(move || all_are_told(trouble, enough), SCHEDULES, 3);
    }
}

#[test]
fn model_of_updates() {
    check(Trouble::None);
}

#[test]
fn model_of_updates_that_cannot_be_prepared() {
    check(Trouble::FailsToPrepare);
}

#[test]
fn model_of_updates_whose_commit_fails() {
    check(Trouble::FailsToCommit);
}

#[test]
fn model_of_updates_that_cannot_be_made_durable() {
    check(Trouble::FailsToWait);
}

#[test]
fn model_of_updates_whose_leader_panics() {
    check(Trouble::PanicsInCommit);
}
