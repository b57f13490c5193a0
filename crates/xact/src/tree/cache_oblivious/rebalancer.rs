//! What is to be done later, and where keys arrive in order: remembered in memory, by the one that uses the tree.

use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// After so many keys, each next to the one before, free room is left where the next ones will come.
const RUN_KEYS: i32 = 8;

/// What a [`CacheObliviousTree`](super::CacheObliviousTree) remembers from one operation to the next, shared by all who
/// open the tree in a process.
///
/// Forgetting it costs speed and nothing else.
#[derive(Debug)]
pub struct Rebalancer {
    deferred: bool,
    due: AtomicBool,
    /// A fingerprint of the key inserted last.
    last: AtomicU64,
    /// How many keys were inserted in order, up to it; negative when they fell.
    run: AtomicI32,
    /// The segment it was inserted in.
    segment: AtomicU64,
    measured: Mutex<Measured>,
}

/// How far the records were counted in order to decide what to do.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Measured {
    /// The array counted, to notice that it was replaced.
    pub(super) array: u64,
    /// How many segments have been counted.
    pub(super) segments: u64,
    /// The bytes found in them.
    pub(super) bytes: u64,
    /// Some part of the array was too full, not too empty.
    pub(super) crowded: bool,
}

/// Where the next key is expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Run {
    None,
    Rising,
    Falling,
}

impl Rebalancer {
    /// Operations do at once whatever is to be done: for memory without transactions.
    pub fn immediate() -> Self {
        Self::new(false)
    }

    /// Operations rebalance a few segments at most and leave the rest to
    /// [`CacheObliviousTree::maintain`](super::CacheObliviousTree::maintain), unless they find no room at all.
    pub fn deferred() -> Self {
        Self::new(true)
    }

    fn new(deferred: bool) -> Self {
        Self {
            deferred,
            due: AtomicBool::new(false),
            last: AtomicU64::new(u64::MAX),
            run: AtomicI32::new(0),
            segment: AtomicU64::new(0),
            measured: Mutex::default(),
        }
    }

    /// Whether there is something for [`CacheObliviousTree::maintain`](super::CacheObliviousTree::maintain) to do.
    pub fn due(&self) -> bool {
        self.due.load(Ordering::Relaxed)
    }

    pub(super) fn is_deferred(&self) -> bool {
        self.deferred
    }

    pub(super) fn set_due(&self, due: bool) {
        if due != self.due() {
            self.due.store(due, Ordering::Relaxed);
        }
    }

    pub(super) fn note_crowded(&self) {
        self.measured().crowded = true;
        self.set_due(true);
    }

    pub(super) fn measured(&self) -> std::sync::MutexGuard<'_, Measured> {
        self.measured.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes a new key with its neighbours in its segment.
    pub(super) fn note_insert(
        &self,
        segment: u64,
        key: &[u8],
        before: Option<&[u8]>,
        after: Option<&[u8]>,
    ) {
        let last = self.last.load(Ordering::Relaxed);
        let run = self.run.load(Ordering::Relaxed);
        let is_last = |key: Option<&[u8]>| key.is_some_and(|key| fingerprint(key) == last);
        let new = if is_last(before) {
            run.max(0).saturating_add(1)
        } else if is_last(after) {
            run.min(0).saturating_sub(1)
        } else if before.is_some() && after.is_some() {
            0
        } else {
            // At the edge of a segment the neighbour is in another one.
            run
        };
        if new != run {
            self.run.store(new, Ordering::Relaxed);
        }
        self.last.store(fingerprint(key), Ordering::Relaxed);
        self.segment.store(segment, Ordering::Relaxed);
    }

    pub(super) fn run(&self) -> Run {
        match self.run.load(Ordering::Relaxed) {
            RUN_KEYS.. => Run::Rising,
            run if run <= -RUN_KEYS => Run::Falling,
            _ => Run::None,
        }
    }

    /// How many segments are before the room for the next key of a run.
    pub(super) fn split(&self) -> u64 {
        let segment = self.segment.load(Ordering::Relaxed);
        match self.run() {
            Run::Falling => segment,
            _ => segment + 1,
        }
    }
}

fn fingerprint(key: &[u8]) -> u64 {
    u64::from(crc32fast::hash(key)) << 16 | (key.len() as u64 & 0xffff)
}
