//! A space whose plain memory is always at the same address, so that what is stored in it may be pointers.
//!
//! The addresses are taken when the space is opened, all that it can grow to, and hold nothing but the view of the
//! transaction that runs. There can be one: the transactions of a process take turns.

// Addresses that are mapped.
#![allow(unsafe_code)]

use std::ptr::{self, NonNull};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::mm::{self, Advice, MapFlags, ProtFlags};

use crate::error::{Doing, Error, Result};

/// An address is a multiple of this.
pub(crate) const ALIGNMENT: u64 = 1 << 32;
/// All of a space lies below: where addresses of programs end on the processors that there are, or before.
pub(crate) const END: u64 = 1 << 47;

/// The addresses of a space in this process.
#[derive(Debug)]
pub(crate) struct AddressRange {
    base: NonNull<u8>,
    bytes: usize,
    /// The thread whose transaction has them.
    turn: Mutex<Option<ThreadId>>,
    ended: Condvar,
}

// SAFETY: they are addresses without memory until a view takes them, which one does at a time.
unsafe impl Send for AddressRange {}
// SAFETY: as above.
unsafe impl Sync for AddressRange {}

impl AddressRange {
    /// Takes addresses that nothing in the process has.
    pub(crate) fn take(address: u64, bytes: usize) -> Result<Self> {
        let wanted = ptr::with_exposed_provenance_mut(address as usize);
        // SAFETY: with this flag nothing that is mapped is replaced.
        let taken = unsafe { map_nothing(wanted, bytes, MapFlags::FIXED_NOREPLACE) };
        let base = match taken {
            Err(Errno::EXIST) => return Err(Error::AddressTaken { address }),
            taken => taken.doing("cannot take the addresses of the space")?,
        };
        let range = Self {
            base,
            bytes,
            turn: Mutex::new(None),
            ended: Condvar::new(),
        };
        // Linux before 4.17 does not know the flag, and chooses another place when this one is taken.
        if range.base.addr().get() as u64 != address {
            return Err(Error::AddressTaken { address });
        }
        Ok(range)
    }

    pub(crate) fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// Waits for the turn of a transaction of this thread.
    ///
    /// # Errors
    /// [`Error::AddressTaken`] if it has one already, or another thread has not ended its own in time.
    pub(crate) fn begin(&self, patience: Duration) -> Result<Turn<'_>> {
        let started = Instant::now();
        let mut turn = self.turn();
        while let Some(thread) = *turn {
            let left = patience.saturating_sub(started.elapsed());
            if thread == thread::current().id() || left.is_zero() {
                let address = self.base.addr().get() as u64;
                return Err(Error::AddressTaken { address });
            }
            let waited = self.ended.wait_timeout(turn, left);
            turn = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        *turn = Some(thread::current().id());
        Ok(Turn(self))
    }

    fn turn(&self) -> MutexGuard<'_, Option<ThreadId>> {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for AddressRange {
    fn drop(&mut self) {
        // SAFETY: taken with this size; no view is there any more.
        let _ = unsafe { mm::munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}

/// The addresses belong to a transaction, until this is dropped.
#[derive(Debug)]
pub(crate) struct Turn<'p>(&'p AddressRange);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        *self.0.turn() = None;
        self.0.ended.notify_one();
    }
}

/// Has a view's addresses be without memory again, and nobody else's.
///
/// # Safety
/// The range is a view's, of which nothing is lent out.
pub(crate) unsafe fn empty(base: NonNull<u8>, bytes: usize) {
    // SAFETY: the caller's promise. If the system has no room for it the addresses keep what they have.
    let _ = unsafe { map_nothing(base.as_ptr(), bytes, MapFlags::FIXED) };
}

/// # Safety
/// As for [`mm::mmap_anonymous`].
unsafe fn map_nothing(at: *mut u8, bytes: usize, how: MapFlags) -> rustix::io::Result<NonNull<u8>> {
    let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | how;
    // SAFETY: the caller's promise.
    let base = unsafe { mm::mmap_anonymous(at.cast(), bytes, ProtFlags::empty(), flags) }?;
    // A child opens the space itself, at the same address.
    // SAFETY: the range was just mapped.
    unsafe { mm::madvise(base, bytes, Advice::LinuxDontFork) }?;
    NonNull::new(base.cast()).ok_or(Errno::NOMEM)
}
