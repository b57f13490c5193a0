//! Which processor each thread of sessions runs on, so that no two of them stay on one.
//!
//! The kernel tends to wake a thread where its waker runs. A client that wakes two threads of sessions so draws both to
//! one processor, and when all processors are busy they may stay there for seconds: each waits while the other serves
//! all of its connections, a multiple of the time that a request takes. A thread that begins a turn where another one
//! is, which then can only be waiting, therefore has the kernel move that one to a processor without any. Nothing is
//! bound to a processor: the kernel goes on to place threads as it likes.
//!
//! What threads say here are hints. One that is out of date costs a needless move, or a wait that could have been
//! avoided.

use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use rustix::thread::{CpuSet, Pid, gettid, sched_getaffinity, sched_getcpu, sched_setaffinity};

/// In the place of a thread's number or a processor's: there is none.
const NONE: usize = usize::MAX;

/// The processors, and the threads of sessions that run on them.
pub(crate) struct Processors {
    /// By the kernel's number of the processor: the thread that began a turn there last.
    occupants: Vec<Padded<AtomicUsize>>,
    /// By the number of the thread.
    threads: Vec<Padded<Thread>>,
    /// Held by who moves a thread: another one would take where that may run meanwhile for where it may run at all.
    moving: Mutex<()>,
}

/// By itself in its cache line, as its thread changes it with every sleep.
#[repr(align(64))]
struct Padded<T>(T);

struct Thread {
    /// The kernel's number of it, 0 before it runs.
    id: AtomicI32,
    /// Where it began its last turn; [`NONE`] while it has nothing to do.
    processor: AtomicUsize,
}

/// One thread's view of the processors.
#[derive(Clone)]
pub(crate) struct Seat {
    /// Nothing if there are more threads than processors: some have to share one then.
    processors: Option<Arc<Processors>>,
    thread: usize,
}

impl Processors {
    /// Seats for so many threads of sessions, on the processors that this process may use.
    pub(crate) fn seats(threads: usize) -> impl Iterator<Item = Seat> {
        let allowed = sched_getaffinity(None).ok();
        let allowed = allowed.filter(|allowed| threads <= allowed.count() as usize);
        let processors = allowed.map(|allowed| Arc::new(Self::new(&allowed, threads)));
        (0..threads).map(move |thread| Seat {
            processors: processors.clone(),
            thread,
        })
    }

    fn new(allowed: &CpuSet, threads: usize) -> Self {
        let last = (0..CpuSet::MAX_CPU).rfind(|&processor| allowed.is_set(processor));
        let thread = || Thread {
            id: AtomicI32::new(0),
            processor: AtomicUsize::new(NONE),
        };
        Self {
            occupants: (0..=last.unwrap_or(0))
                .map(|_| Padded(AtomicUsize::new(NONE)))
                .collect(),
            threads: (0..threads).map(|_| Padded(thread())).collect(),
            moving: Mutex::new(()),
        }
    }

    /// Notes that a thread begins a turn on a processor. Gives the thread that waits there, if there is one.
    fn begin_turn(&self, thread: usize, here: usize) -> Option<usize> {
        let occupant = &self.occupants.get(here)?.0;
        let own = &self.threads[thread].0.processor;
        if own.load(Ordering::Relaxed) == here && occupant.load(Ordering::Relaxed) == thread {
            return None;
        }
        own.store(here, Ordering::Relaxed);
        let before = occupant.swap(thread, Ordering::Relaxed);
        (before != thread && self.is_at(before, here)).then_some(before)
    }

    /// Whether a thread has something to do and began its last turn there.
    fn is_at(&self, thread: usize, processor: usize) -> bool {
        let thread = self.threads.get(thread);
        thread.is_some_and(|thread| thread.0.processor.load(Ordering::Relaxed) == processor)
    }

    /// The first processor behind this one that no thread of sessions is at.
    fn free_behind(&self, here: usize, allowed: &CpuSet) -> Option<usize> {
        let count = self.occupants.len();
        (1..count).map(|step| (here + step) % count).find(|&there| {
            let occupant = self.occupants[there].0.load(Ordering::Relaxed);
            allowed.is_set(there) && !self.is_at(occupant, there)
        })
    }

    /// Moves a thread that waits for a processor to one without any, if there is one.
    fn move_from(&self, here: usize, thread: usize) {
        let Ok(_moving) = self.moving.try_lock() else {
            return;
        };
        let thread = &self.threads[thread].0;
        let Some(id) = Pid::from_raw(thread.id.load(Ordering::Relaxed)) else {
            return;
        };
        let Ok(allowed) = sched_getaffinity(Some(id)) else {
            return;
        };
        let Some(there) = self.free_behind(here, &allowed) else {
            return;
        };
        let mut only = CpuSet::new();
        only.set(there);
        // It waits in that processor's queue from the first of these calls on, and may be moved on again from the
        // second. An error leaves it where it is.
        if sched_setaffinity(Some(id), &only).is_ok() {
            let _ = sched_setaffinity(Some(id), &allowed);
            thread.processor.store(there, Ordering::Relaxed);
        }
    }
}

impl Seat {
    /// Makes the calling thread the one that the seat is of.
    pub(crate) fn take(&self) {
        if let Some(processors) = &self.processors {
            let id = gettid().as_raw_pid();
            processors.threads[self.thread]
                .0
                .id
                .store(id, Ordering::Relaxed);
        }
    }

    /// To be called when the thread goes on to another session's work.
    pub(crate) fn begin_turn(&self) {
        if let Some(processors) = &self.processors {
            let here = sched_getcpu();
            if let Some(waiting) = processors.begin_turn(self.thread, here) {
                processors.move_from(here, waiting);
            }
        }
    }

    /// To be called when the thread has nothing to do.
    pub(crate) fn sleep(&self) {
        if let Some(processors) = &self.processors {
            let thread = &processors.threads[self.thread].0;
            thread.processor.store(NONE, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn processors(count: usize, threads: usize) -> (Processors, CpuSet) {
        let mut allowed = CpuSet::new();
        (0..count).for_each(|processor| allowed.set(processor));
        (Processors::new(&allowed, threads), allowed)
    }

    #[test]
    fn whoever_begins_a_turn_where_another_one_waits_is_told() {
        let (processors, allowed) = processors(3, 3);
        assert_eq!(processors.begin_turn(0, 0), None);
        assert_eq!(processors.begin_turn(0, 0), None);
        assert_eq!(processors.begin_turn(1, 1), None);
        assert_eq!(processors.begin_turn(1, 0), Some(0));
        // Two are at the first, so that both others have none.
        assert_eq!(processors.free_behind(0, &allowed), Some(1));
        assert_eq!(processors.begin_turn(2, 1), None);
        assert_eq!(processors.free_behind(0, &allowed), Some(2));
        assert_eq!(processors.free_behind(1, &allowed), Some(2));
    }

    #[test]
    fn a_thread_that_sleeps_or_is_elsewhere_by_now_does_not_count() {
        let (processors, allowed) = processors(2, 2);
        assert_eq!(processors.begin_turn(0, 0), None);
        assert_eq!(processors.begin_turn(0, 1), None);
        assert_eq!(processors.begin_turn(1, 0), None);
        assert_eq!(processors.free_behind(0, &allowed), None);
        processors.threads[0]
            .0
            .processor
            .store(NONE, Ordering::Relaxed);
        assert_eq!(processors.free_behind(0, &allowed), Some(1));
        assert_eq!(processors.begin_turn(1, 1), None);
    }

    #[test]
    fn only_processors_that_are_allowed_are_free() {
        let (processors, mut allowed) = processors(4, 2);
        allowed.unset(1);
        assert_eq!(processors.begin_turn(0, 0), None);
        assert_eq!(processors.free_behind(0, &allowed), Some(2));
        // One that was not there when the server started.
        assert_eq!(processors.begin_turn(0, 4), None);
    }

    #[test]
    fn a_thread_that_was_moved_may_run_everywhere_as_before() {
        let (processors, _) = processors(CpuSet::MAX_CPU, 2);
        let here = sched_getcpu();
        let allowed = sched_getaffinity(None).unwrap();
        let id = gettid().as_raw_pid();
        processors.threads[1].0.id.store(id, Ordering::Relaxed);
        processors.move_from(here, 1);
        assert_eq!(sched_getaffinity(None).unwrap(), allowed);
        let moved = processors.threads[1].0.processor.load(Ordering::Relaxed);
        assert_eq!(moved == NONE, allowed.count() == 1);
        assert_ne!(moved, here);
    }

    #[test]
    fn more_threads_than_processors_stay_where_they_are() {
        let count = sched_getaffinity(None).unwrap().count() as usize;
        assert!(Processors::seats(count).all(|seat| seat.processors.is_some()));
        assert!(Processors::seats(count + 1).all(|seat| seat.processors.is_none()));
    }
}
