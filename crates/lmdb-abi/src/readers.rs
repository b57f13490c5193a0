//! Slots of readers, as LMDB counts them: one for each thread that has ever read, or one for each read transaction
//! under `MDB_NOTLS`. The store has a reader table of its own, which is what protects pages; this one keeps LMDB's
//! rules.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::error::{Code, Result};

/// The number of readers unless the program asks for another.
pub(crate) const READERS_DEFAULT: u32 = 126;

/// The slots of one environment in this process.
#[derive(Debug)]
pub(crate) struct Readers {
    max: u32,
    closed: AtomicBool,
    slots: Mutex<Vec<Arc<Slot>>>,
}

/// A slot: whose it is, and what is read through it.
#[derive(Debug)]
pub(crate) struct Slot {
    pub(crate) thread: u64,
    /// The number of the transaction that is read, or [`IDLE`].
    txn: AtomicU64,
}

const IDLE: u64 = u64::MAX;

impl Slot {
    /// The number of the transaction that is read through it.
    pub(crate) fn txn(&self) -> Option<u64> {
        Some(self.txn.load(Ordering::Acquire)).filter(|&txn| txn != IDLE)
    }
}

/// A slot that somebody holds; it is given back when this is dropped.
#[derive(Debug)]
pub(crate) struct Held {
    readers: Arc<Readers>,
    slot: Arc<Slot>,
}

impl Held {
    /// Marks the slot busy before it is known with which transaction; refused if it is busy.
    pub(crate) fn occupy(&self) -> Result {
        self.slot
            .txn
            .compare_exchange(IDLE, 0, Ordering::AcqRel, Ordering::Relaxed)
            .map(drop)
            .map_err(|_| Code::BAD_RSLOT)
    }

    pub(crate) fn set(&self, txn: u64) {
        self.slot.txn.store(txn, Ordering::Release);
    }

    pub(crate) fn leave(&self) {
        self.slot.txn.store(IDLE, Ordering::Release);
    }

    /// Whether it is one of these.
    pub(crate) fn is_of(&self, readers: &Arc<Readers>) -> bool {
        Arc::ptr_eq(&self.readers, readers)
    }

    /// Whether its environment has been closed.
    pub(crate) fn is_over(&self) -> bool {
        self.readers.closed.load(Ordering::Relaxed)
    }

    /// Gives the slot back while somebody may still hold it, to whom it is of no use any more.
    pub(crate) fn give_back(&self) {
        let mut slots = self.readers.lock();
        slots.retain(|slot| !Arc::ptr_eq(slot, &self.slot));
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.give_back();
    }
}

impl Readers {
    pub(crate) fn new(max: u32) -> Arc<Self> {
        Arc::new(Self {
            max,
            closed: AtomicBool::new(false),
            slots: Mutex::default(),
        })
    }

    pub(crate) fn max(&self) -> u32 {
        self.max
    }

    /// All slots that are held.
    pub(crate) fn slots(&self) -> Vec<Arc<Slot>> {
        self.lock().clone()
    }

    /// A slot for one transaction.
    pub(crate) fn hold(self: &Arc<Self>) -> Result<Held> {
        let held = self.unlisted();
        let mut slots = self.lock();
        if slots.len() >= self.max as usize {
            return Err(Code::READERS_FULL);
        }
        slots.push(held.slot.clone());
        Ok(held)
    }

    /// A slot for one transaction that counts for nothing and stands in no list, as under `MDB_NOLOCK`.
    pub(crate) fn unlisted(self: &Arc<Self>) -> Held {
        Held {
            readers: self.clone(),
            slot: Arc::new(Slot {
                thread: this_thread(),
                txn: AtomicU64::new(IDLE),
            }),
        }
    }

    /// Threads forget their slots.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Relaxed);
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Arc<Slot>>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What tells this thread from the others of the process.
fn this_thread() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    thread_local! {
        static NUMBER: u64 = NEXT.fetch_add(1, Ordering::Relaxed);
    }
    NUMBER.try_with(|number| *number).unwrap_or(0)
}
