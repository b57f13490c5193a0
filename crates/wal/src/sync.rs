//! Atomics, the mutex and the futex: everything that threads and processes share goes through here, so that the same code can
//! be run under a model checker (feature `shuttle`).

#[cfg(not(feature = "shuttle"))]
pub(crate) use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
#[cfg(not(feature = "shuttle"))]
pub(crate) use std::sync::{Mutex, PoisonError};

#[cfg(not(feature = "shuttle"))]
pub(crate) use crate::sys::{wait_while, wake_all, wake_one};

#[cfg(feature = "shuttle")]
pub(crate) use model::{wait_while, wake_all, wake_one};
#[cfg(feature = "shuttle")]
pub(crate) use shuttle::sync::atomic::{AtomicU32, AtomicU64, Ordering};
#[cfg(feature = "shuttle")]
pub(crate) use shuttle::sync::{Mutex, PoisonError};

/// The futex under the model checker. A wait has no end in time here, so a wake-up that gets lost is a deadlock, which the
/// checker reports.
#[cfg(feature = "shuttle")]
mod model {
    use std::time::Duration;

    use shuttle::sync::{Condvar, Mutex, PoisonError};

    use super::{AtomicU32, Ordering};

    shuttle::lazy_static! {
        /// All who sleep, whatever the word; they look at it again.
        static ref SLEEPERS: (Mutex<()>, Condvar) = (Mutex::new(()), Condvar::new());
    }

    pub(crate) fn wait_while(word: &AtomicU32, value: u32, _: Duration) {
        let (lock, woken) = &*SLEEPERS;
        let guard = lock.lock().unwrap_or_else(PoisonError::into_inner);
        if word.load(Ordering::SeqCst) == value {
            drop(woken.wait(guard).unwrap_or_else(PoisonError::into_inner));
        }
    }

    /// Whoever wakes up without need looks at its word again.
    pub(crate) fn wake_one(word: &AtomicU32) {
        wake_all(word);
    }

    pub(crate) fn wake_all(_: &AtomicU32) {
        let (lock, woken) = &*SLEEPERS;
        let _guard = lock.lock().unwrap_or_else(PoisonError::into_inner);
        woken.notify_all();
    }
}
