//! Steps: the places between two stores at which the kill tests have a process die. Outside of tests they are nothing.

/// Dies here if it is the turn of this step.
#[cfg(not(all(test, not(shuttle))))]
#[inline(always)]
pub(crate) fn step() {}

#[cfg(all(test, not(shuttle)))]
pub(crate) use counted::{die_at, step, stop_at};

#[cfg(all(test, not(shuttle)))]
mod counted {
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

    /// How many steps are left before the process dies.
    static LEFT: AtomicU64 = AtomicU64::new(u64::MAX);

    /// Whether it is only stopped.
    static STOPS: AtomicBool = AtomicBool::new(false);

    pub(crate) fn step() {
        if LEFT.fetch_sub(1, Ordering::Relaxed) == 0 {
            if STOPS.load(Ordering::Relaxed) {
                return crate::kill_tests::stop_here();
            }
            // No destructor runs, as if it was killed.
            std::process::abort();
        }
    }

    /// Has this process stop at its step `number` from here, until it is told to go on.
    pub(crate) fn stop_at(number: u64) {
        STOPS.store(true, Ordering::Relaxed);
        LEFT.store(number, Ordering::Relaxed);
    }

    /// Has this process die at its step `number` from here.
    pub(crate) fn die_at(number: u64) {
        LEFT.store(number, Ordering::Relaxed);
    }
}
