//! Slots of readers, as LMDB counts them: one for each thread that has ever read, or one for each read transaction
//! under `MDB_NOTLS`. The store has a reader table of its own, which is what protects pages; this one keeps LMDB's
//! rules.

// A thread that ends ends the transaction it reads in, which belongs to the C program.
#![allow(unsafe_code)]

use std::cell::RefCell;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::error::{Code, Result};
use crate::txn::Txn;

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
    /// Who reads; null if nobody does.
    reader: AtomicPtr<Txn>,
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

    /// Says where the reader is. It has to stay there until it leaves the slot.
    pub(crate) fn set_reader(&self, reader: *mut Txn) {
        self.slot.reader.store(reader, Ordering::Release);
    }

    pub(crate) fn leave(&self) {
        self.slot.reader.store(ptr::null_mut(), Ordering::Relaxed);
        self.slot.txn.store(IDLE, Ordering::Release);
    }

    fn give_back(&self) {
        let mut slots = self.readers.lock();
        slots.retain(|slot| !Arc::ptr_eq(slot, &self.slot));
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.give_back();
    }
}

/// The slots of a thread, one for each environment it has read.
struct Own(RefCell<Vec<Arc<Held>>>);

impl Drop for Own {
    /// The thread ends. A transaction that it still reads in is as good as forgotten: nobody else may use it.
    fn drop(&mut self) {
        for held in self.0.get_mut().drain(..) {
            let reader = held.slot.reader.swap(ptr::null_mut(), Ordering::AcqRel);
            // SAFETY: a reader that is noted has not left its slot, so it has not been freed.
            if let Some(reader) = unsafe { reader.as_mut() } {
                reader.reset();
            }
            held.give_back();
        }
    }
}

thread_local! {
    static OWN: Own = const { Own(RefCell::new(Vec::new())) };
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
    pub(crate) fn hold(self: &Arc<Self>) -> Result<Arc<Held>> {
        let held = self.unlisted();
        let mut slots = self.lock();
        if slots.len() >= self.max as usize {
            return Err(Code::READERS_FULL);
        }
        slots.push(held.slot.clone());
        Ok(held)
    }

    /// A slot for one transaction that counts for nothing and stands in no list, as under `MDB_NOLOCK`.
    pub(crate) fn unlisted(self: &Arc<Self>) -> Arc<Held> {
        Arc::new(Held {
            readers: self.clone(),
            slot: Arc::new(Slot {
                thread: this_thread(),
                txn: AtomicU64::new(IDLE),
                reader: AtomicPtr::new(ptr::null_mut()),
            }),
        })
    }

    /// The slot of this thread, which is given back when the thread ends.
    pub(crate) fn of_thread(self: &Arc<Self>) -> Result<Arc<Held>> {
        let known = OWN.try_with(|own| {
            let mut own = own.0.borrow_mut();
            own.retain(|held| !held.readers.closed.load(Ordering::Relaxed));
            own.iter()
                .find(|held| Arc::ptr_eq(&held.readers, self))
                .cloned()
        });
        if let Ok(Some(held)) = known {
            return Ok(held);
        }
        let held = self.hold()?;
        // In a thread that is ending there is nowhere to keep it; the transaction does.
        let _: std::result::Result<(), _> =
            OWN.try_with(|own| own.0.borrow_mut().push(held.clone()));
        Ok(held)
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
