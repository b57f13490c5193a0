//! Atomics, the mutex and the futex: everything that threads and processes share goes through here, so that the same
//! code can be run under a model checker (`RUSTFLAGS="--cfg shuttle"`). What is built on the log and shares memory uses
//! it too.

#[cfg(not(shuttle))]
pub use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
#[cfg(not(shuttle))]
pub use std::sync::{Mutex, MutexGuard, PoisonError};
#[cfg(not(shuttle))]
pub use std::thread::{sleep, yield_now};
#[cfg(not(shuttle))]
pub use std::thread_local;

#[cfg(not(shuttle))]
pub use crate::sys::{wait_while, wake_all, wake_one};

#[cfg(shuttle)]
pub use model::{sleep, wait_while, wake_all, wake_one};
#[cfg(shuttle)]
pub use shuttle::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
#[cfg(shuttle)]
pub use shuttle::sync::{Mutex, MutexGuard, PoisonError};
#[cfg(shuttle)]
pub use shuttle::{thread::yield_now, thread_local};

/// The futex under the model checker. A wait has no end in time here, so a wake-up that gets lost is a deadlock, which
/// the checker reports.
#[cfg(shuttle)]
mod model {
    use std::time::Duration;

    use shuttle::sync::{Condvar, Mutex, PoisonError};

    use super::{AtomicU32, Ordering};

    /// Who sleeps on which word: the word's address, and a number of the sleeper's own.
    #[derive(Default)]
    struct Sleepers {
        asleep: Vec<(usize, u64)>,
        next: u64,
    }

    shuttle::lazy_static! {
        static ref SLEEPERS: (Mutex<Sleepers>, Condvar) = (Mutex::default(), Condvar::new());
    }

    /// Lets others run.
    pub fn sleep(_: Duration) {
        shuttle::thread::yield_now();
    }

    /// Sleeps while `word` is `value`, until somebody wakes it.
    pub fn wait_while(word: &AtomicU32, value: u32, _: Duration) {
        let (lock, woken) = &*SLEEPERS;
        let mut sleepers = lock.lock().unwrap_or_else(PoisonError::into_inner);
        if word.load(Ordering::SeqCst) != value {
            return;
        }
        let me = (address_of(word), sleepers.next);
        sleepers.next += 1;
        sleepers.asleep.push(me);
        while sleepers.asleep.contains(&me) {
            sleepers = woken.wait(sleepers).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Wakes one of those who sleep on `word`.
    pub fn wake_one(word: &AtomicU32) {
        wake(word, 1);
    }

    /// Wakes everybody who sleeps on `word`.
    pub fn wake_all(word: &AtomicU32) {
        wake(word, usize::MAX);
    }

    fn wake(word: &AtomicU32, mut count: usize) {
        let (lock, woken) = &*SLEEPERS;
        let mut sleepers = lock.lock().unwrap_or_else(PoisonError::into_inner);
        sleepers.asleep.retain(|(address, _)| {
            let wakes = *address == address_of(word) && count > 0;
            count -= usize::from(wakes);
            !wakes
        });
        woken.notify_all();
    }

    fn address_of(word: &AtomicU32) -> usize {
        std::ptr::from_ref(word).addr()
    }
}
