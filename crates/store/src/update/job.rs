//! Work that one thread lends to another.
//!
//! Unsafe code: the lender's closure lives on its stack, and whoever runs it knows nothing of that. What makes this sound is that
//! [`lend`] does not end, in whatever way, before the job is gone.

#![allow(unsafe_code)]

use std::mem::transmute;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};

/// What is lent: to be run at most once, on any thread. It says whether what it did to the transaction is to be kept, and does not panic.
pub(super) type Work<'w, T> = dyn FnMut(&mut T) -> bool + Send + 'w;

/// Somebody else's work. The lender waits until this is gone, run or not.
pub(super) struct Job<T: 'static> {
    work: NonNull<Work<'static, T>>,
    is_over: NonNull<AtomicBool>,
}

// SAFETY: it is a `&mut Work`, which is `Send`, and a reference to an atomic.
unsafe impl<T> Send for Job<T> {}

/// Lends `work` out as a job while `during` runs, which has to see to it that the job is gone when it returns: the process is aborted if
/// it is not.
pub(super) fn lend<T: 'static, R>(work: &mut Work<'_, T>, during: impl FnOnce(Job<T>) -> R) -> R {
    let is_over = AtomicBool::new(false);
    let _watch = Watch(&is_over);
    // SAFETY: only the lifetime changes, and `_watch` lets nobody out of here as long as the job is there.
    let work = unsafe { transmute::<NonNull<Work<'_, T>>, NonNull<Work<'static, T>>>(work.into()) };
    during(Job {
        work,
        is_over: NonNull::from(&is_over),
    })
}

impl<T> Job<T> {
    /// Does the work.
    pub(super) fn run(mut self, txn: &mut T) -> bool {
        // SAFETY: the lender waits for this job, and has no other way to its work meanwhile; there is one job only.
        let work = unsafe { self.work.as_mut() };
        work(txn)
    }
}

impl<T> Drop for Job<T> {
    fn drop(&mut self) {
        // SAFETY: the lender waits for this store; nothing is touched behind it.
        unsafe { self.is_over.as_ref() }.store(true, Ordering::Release);
    }
}

/// Ends the process if the lender would go on without its work.
struct Watch<'l>(&'l AtomicBool);

impl Drop for Watch<'_> {
    fn drop(&mut self) {
        if !self.0.load(Ordering::Acquire) {
            std::process::abort();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_run_by_another_thread_and_may_be_dropped() {
        let mut sum = 1;
        let kept = lend(
            &mut |number: &mut u32| {
                sum += *number;
                true
            },
            |job| std::thread::scope(|scope| scope.spawn(|| job.run(&mut 4)).join().unwrap()),
        );
        assert!(kept);
        lend(&mut |_: &mut u32| unreachable!("nobody runs it"), drop);
        assert_eq!(sum, 5);
    }
}
