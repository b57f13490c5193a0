//! Counts the steps of work whose cost a client decides, in tests and under fuzzing, so that a test can say that twice
//! the input is twice the work. Elsewhere counting is nothing.

/// Notes so many steps: characters read, values compared, keys looked up.
#[cfg(not(any(test, feature = "count-steps")))]
#[inline(always)]
pub(crate) fn count(_steps: usize) {}

#[cfg(any(test, feature = "count-steps"))]
pub(crate) use counted::count;
#[cfg(feature = "count-steps")]
pub use counted::counted;
#[cfg(all(test, not(feature = "count-steps")))]
pub(crate) use counted::counted;

#[cfg(any(test, feature = "count-steps"))]
mod counted {
    use std::cell::Cell;

    thread_local! {
        static STEPS: Cell<u64> = const { Cell::new(0) };
    }

    pub(crate) fn count(steps: usize) {
        STEPS.set(STEPS.get() + steps as u64);
    }

    /// What `work` answers, and the steps that this thread took for it.
    #[cfg_attr(not(feature = "count-steps"), allow(dead_code, unreachable_pub))]
    pub fn counted<T>(work: impl FnOnce() -> T) -> (T, u64) {
        let before = STEPS.get();
        let answer = work();
        (answer, STEPS.get() - before)
    }
}
