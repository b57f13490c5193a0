//! Atomics, fences and locks: everything that threads and processes share goes through here, so that the same code can
//! be run under a model checker (`RUSTFLAGS="--cfg shuttle"`).

#[cfg(not(shuttle))]
pub(crate) use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering, fence};
pub(crate) use std::sync::{Arc, Weak};
#[cfg(not(shuttle))]
pub(crate) use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

#[cfg(shuttle)]
pub(crate) use shuttle::sync::atomic::{
    AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering, fence,
};
#[cfg(shuttle)]
pub(crate) use shuttle::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Takes a mutex whose data stay consistent even if a holder panicked.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
