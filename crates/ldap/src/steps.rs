//! Counts the steps of reading texts in tests, so that a test can say that twice the text is twice the work. Elsewhere
//! counting is nothing.

/// Notes so many steps: bytes looked at, words compared.
#[cfg(not(test))]
#[inline(always)]
pub(crate) fn count(_steps: usize) {}

#[cfg(test)]
pub(crate) use counted::{count, is_linear};

#[cfg(test)]
mod counted {
    use std::cell::Cell;

    thread_local! {
        static STEPS: Cell<usize> = const { Cell::new(0) };
    }

    pub(crate) fn count(steps: usize) {
        STEPS.set(STEPS.get() + steps);
    }

    /// Checks that what `work` does for `n` takes about twice as many steps for twice `n`.
    #[track_caller]
    pub(crate) fn is_linear(n: usize, work: impl Fn(usize)) {
        let steps_of = |n| {
            let before = STEPS.get();
            work(n);
            STEPS.get() - before
        };
        let (once, twice) = (steps_of(n), steps_of(2 * n));
        assert!(once >= n, "{once} steps for {n}: too few to be all");
        assert!(
            twice <= once * 9 / 4 + 1000,
            "{once} steps, and then {twice}"
        );
    }
}
