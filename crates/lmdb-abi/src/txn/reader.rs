//! What a transaction reads through: a slot of its own, or that of its thread.

// A thread that ends ends the transaction it reads in, which belongs to the C program.
#![allow(unsafe_code)]

use std::cell::RefCell;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, Ordering};

use super::Txn;
use crate::env::Open;
use crate::error::Result;
use crate::readers::{Held, Readers};
use crate::values::env_flags::{NOLOCK, NOTLS};

/// A slot, and who reads through it.
pub(super) struct Reader {
    held: Held,
    /// Null if nobody reads.
    txn: AtomicPtr<Txn>,
}

impl Reader {
    /// For a transaction that begins in this thread.
    pub(super) fn new(open: &Open) -> Result<Arc<Self>> {
        if open.flags() & NOLOCK != 0 {
            Ok(Self::through(open.readers.unlisted()))
        } else if open.flags() & NOTLS != 0 {
            open.readers.hold().map(Self::through)
        } else {
            Self::of_thread(&open.readers)
        }
    }

    fn through(held: Held) -> Arc<Self> {
        Arc::new(Self {
            held,
            txn: AtomicPtr::new(ptr::null_mut()),
        })
    }

    /// The slot of this thread, which is given back when the thread ends.
    fn of_thread(readers: &Arc<Readers>) -> Result<Arc<Self>> {
        let known = OWN.try_with(|own| {
            let mut own = own.0.borrow_mut();
            own.retain(|reader| !reader.held.is_over());
            own.iter()
                .find(|reader| reader.held.is_of(readers))
                .cloned()
        });
        if let Ok(Some(reader)) = known {
            return Ok(reader);
        }
        let reader = Self::through(readers.hold()?);
        // In a thread that is ending there is nowhere to keep it; the transaction does.
        let _: std::result::Result<(), _> =
            OWN.try_with(|own| own.0.borrow_mut().push(reader.clone()));
        Ok(reader)
    }

    /// Marks the slot busy before it is known with which transaction; refused if it is busy.
    pub(super) fn occupy(&self) -> Result {
        self.held.occupy()
    }

    /// Says which transaction is read: its number, and where it stands. It has to stay there until it leaves the slot.
    pub(super) fn set(&self, id: u64, txn: *mut Txn) {
        self.held.set(id);
        self.set_place(txn);
    }

    /// Says where the transaction stands that is read.
    pub(super) fn set_place(&self, txn: *mut Txn) {
        self.txn.store(txn, Ordering::Release);
    }

    pub(super) fn leave(&self) {
        self.txn.store(ptr::null_mut(), Ordering::Relaxed);
        self.held.leave();
    }
}

/// The slots of a thread, one for each environment it has read.
struct Own(RefCell<Vec<Arc<Reader>>>);

impl Drop for Own {
    /// The thread ends. A transaction that it still reads in is as good as forgotten: nobody else may use it.
    fn drop(&mut self) {
        for reader in self.0.get_mut().drain(..) {
            let txn = reader.txn.swap(ptr::null_mut(), Ordering::AcqRel);
            // SAFETY: a transaction that is noted has not left its slot, so it has not been freed.
            if let Some(txn) = unsafe { txn.as_mut() } {
                txn.reset();
            }
            reader.held.give_back();
        }
    }
}

thread_local! {
    static OWN: Own = const { Own(RefCell::new(Vec::new())) };
}
