//! Pointers stored beside a checkpoint, under a model checker: at no moment does a meta page on the disk lead to a
//! pointer whose record a power cut would take.
//!
//! `RUSTFLAGS="--cfg shuttle" cargo test -p sapwood-store --lib model`, as with `model_tests`.

use shuttle::thread;

use sapwood_wal::Position;

use crate::env::region::Metas;
use crate::format::roots::{Head, Roots};
use crate::ids::CommitNo;
use crate::log::checkpoint::pin_target;
use crate::sync::{Arc, AtomicU64, Mutex, Ordering, lock};

const SCHEDULES: usize = 20_000;
const COMMITS: u64 = 7;

/// Which of the rules is broken.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Broken {
    Nothing,
    /// A checkpoint pins its commit while somebody appends.
    Lock,
    /// It syncs the log up to its own commit only.
    SyncToApplied,
    /// Pointers are stored in an old leaf before their record is durable.
    SyncBeforeStoring,
}

/// What the checker does not look at: where the others are is known, and looked at all at once, whenever one of them is
/// somewhere. Commits, by number.
mod plain {
    pub(crate) use std::sync::atomic::AtomicU64;
    pub(crate) use std::sync::atomic::Ordering::SeqCst;
}

/// A store with one leaf, in which each commit stores a pointer.
struct Model {
    broken: Broken,
    appender: Mutex<()>,
    metas: Metas,
    visible: AtomicU64,
    applied: AtomicU64,
    /// The log is on the disk up to here.
    durable: plain::AtomicU64,
    /// The last commit that stored in each leaf, by the commit that made the leaf.
    stored: Vec<plain::AtomicU64>,
    /// The leaf of each commit.
    leaves: Vec<plain::AtomicU64>,
    /// The commits of the meta pages on the disk.
    on_disk: [plain::AtomicU64; 2],
}

impl Model {
    fn new(broken: Broken) -> Self {
        let all = || (0..=COMMITS).map(|_| plain::AtomicU64::new(1)).collect();
        let model = Self {
            broken,
            appender: Mutex::new(()),
            metas: Metas::default(),
            visible: AtomicU64::new(1),
            applied: AtomicU64::new(1),
            durable: plain::AtomicU64::new(1),
            stored: all(),
            leaves: all(),
            on_disk: [1, 1].map(plain::AtomicU64::new),
        };
        for slot in 0..2 {
            model.metas.note(slot, &head(1));
        }
        model.metas.target.store(1, Ordering::SeqCst);
        model
    }

    /// The last commit that stored in the leaf of one.
    fn stored_in_leaf_of(&self, commit: u64) -> u64 {
        let leaf = self.leaves[commit as usize].load(plain::SeqCst);
        self.stored[leaf as usize].load(plain::SeqCst)
    }

    /// Whatever was stored may be on the disk.
    fn check(&self) {
        for commit in &self.on_disk {
            let stored = self.stored_in_leaf_of(commit.load(plain::SeqCst));
            let durable = self.durable.load(plain::SeqCst);
            assert!(stored <= durable, "a meta page leads to a lost pointer");
        }
    }

    fn sync_log(&self, commit: u64) {
        thread::yield_now();
        self.durable.fetch_max(commit, plain::SeqCst);
    }

    fn write(&self) {
        for commit in 2..=COMMITS {
            let newest_leaf = self.leaves[commit as usize - 1].load(plain::SeqCst);
            let copies = newest_leaf <= self.metas.newest().0;
            let appending = lock(&self.appender);
            let leaf = match copies {
                true => commit,
                false => newest_leaf,
            };
            self.leaves[commit as usize].store(leaf, plain::SeqCst);
            let is_old = || leaf <= self.metas.newest().0;
            if !copies && self.broken != Broken::SyncBeforeStoring && is_old() {
                self.sync_log(commit);
            }
            thread::yield_now();
            self.stored[leaf as usize].store(commit, plain::SeqCst);
            self.check();
            self.applied.store(commit, Ordering::SeqCst);
            drop(appending);
            match commit % 3 {
                // Nobody waits for it yet.
                0 => {}
                // A relaxed one.
                1 => self.visible.store(commit, Ordering::SeqCst),
                _ => {
                    self.sync_log(commit);
                    self.visible.store(commit, Ordering::SeqCst);
                }
            }
        }
    }

    fn pin(&self) -> (u64, u64) {
        let appending = (self.broken != Broken::Lock).then(|| lock(&self.appender));
        let visible = || CommitNo(self.visible.load(Ordering::SeqCst));
        let (commit, ()) = pin_target(&self.metas, visible, |_| Some(()));
        let applied = self.applied.load(Ordering::SeqCst);
        drop(appending);
        (commit.0, applied)
    }

    fn checkpoint(&self) {
        for _ in 0..2 {
            let (commit, applied) = self.pin();
            self.sync_log(match self.broken {
                Broken::SyncToApplied => commit,
                _ => applied,
            });
            thread::yield_now();
            // The leaf is synced. A replay from here stores no pointer again that a commit up to this one stored.
            assert!(
                self.stored_in_leaf_of(commit) >= commit,
                "a pointer is missing"
            );
            for (slot, on_disk) in self.on_disk.iter().enumerate() {
                thread::yield_now();
                on_disk.store(commit, plain::SeqCst);
                self.check();
                self.metas.note(slot, &head(commit));
            }
        }
        thread::yield_now();
        self.check();
    }
}

fn head(commit: u64) -> Head {
    Head {
        commit: CommitNo(commit),
        log: Position::default(),
        roots: Roots::empty(),
    }
}

fn pointers_beside_a_checkpoint(broken: Broken) {
    let model = Arc::new(Model::new(broken));
    let checkpointer = {
        let model = model.clone();
        thread::spawn(move || model.checkpoint())
    };
    model.write();
    if let Err(panic) = checkpointer.join() {
        std::panic::resume_unwind(panic);
    }
}

#[test]
fn model_of_pointers() {
    let run = || pointers_beside_a_checkpoint(Broken::Nothing);
    shuttle::check_random(run, SCHEDULES);
    shuttle::check_pct(run, 5 * SCHEDULES, 4);
}

#[test]
#[should_panic(expected = "a meta page leads to a lost pointer")]
fn model_of_pointers_fails_without_the_lock() {
    shuttle::check_random(|| pointers_beside_a_checkpoint(Broken::Lock), SCHEDULES);
}

#[test]
#[should_panic(expected = "a meta page leads to a lost pointer")]
fn model_of_pointers_fails_if_the_log_is_synced_up_to_the_target_only() {
    let run = || pointers_beside_a_checkpoint(Broken::SyncToApplied);
    shuttle::check_random(run, SCHEDULES);
}

#[test]
#[should_panic(expected = "a meta page leads to a lost pointer")]
fn model_of_pointers_fails_if_old_leaves_are_stored_to_at_once() {
    let run = || pointers_beside_a_checkpoint(Broken::SyncBeforeStoring);
    shuttle::check_random(run, SCHEDULES);
}
