//! Atomics, fences and futexes: everything that threads and processes share goes through here, so that the same code can
//! be run under a model checker.

use std::time::Duration;

use rustix::io::Errno;
use rustix::thread::futex;

pub(crate) use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering, fence};
pub(crate) use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};

/// Takes a mutex whose data stay consistent even if a holder panicked.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Sleeps while `word` is `value`, at most `timeout`; may return early. Works across processes.
pub(crate) fn futex_wait(word: &AtomicU32, value: u32, timeout: Duration) {
    let timeout = futex::Timespec {
        tv_sec: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(timeout.subsec_nanos()),
    };
    // Woken, timed out, interrupted or the word has changed: the caller looks at the word again in any case.
    let _: Result<(), Errno> = futex::wait(word, futex::Flags::empty(), value, Some(&timeout));
}

/// Wakes up to `count` sleepers on `word`.
pub(crate) fn futex_wake(word: &AtomicU32, count: u32) {
    // There is no error a valid address can cause.
    let _: Result<usize, Errno> = futex::wake(word, futex::Flags::empty(), count);
}
