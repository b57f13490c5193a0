//! Which thread serves a new connection: one of those with the fewest.
//!
//! Every thread accepts, so that no connection waits for one thread while another has nothing to do. Which of them that
//! is the kernel decides, by a hash of the addresses or by who comes first, and of eight connections that stay it may
//! well choose the same one for seven. So a thread keeps what it has accepted only while no other has fewer
//! connections, and otherwise hands it over. One that comes while all have as many as each other, or none, stays where
//! it was accepted, so that short connections cost no change of threads.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// The connections of each thread, by its number.
#[derive(Debug)]
pub(crate) struct Loads(Mutex<Vec<usize>>);

impl Loads {
    pub(crate) fn new(threads: usize) -> Arc<Self> {
        Arc::new(Self(Mutex::new(vec![0; threads])))
    }

    /// Those of each thread now, also those on their way to it.
    pub(crate) fn connections(&self) -> Vec<usize> {
        self.counts().clone()
    }

    /// Takes a place with one of the threads that have the fewest connections: with `own` if it is one of them.
    fn place(self: &Arc<Self>, own: usize) -> Place {
        let mut counts = self.counts();
        let fewest = counts.iter().copied().min().unwrap_or_default();
        let thread = if counts[own] == fewest {
            own
        } else {
            let found = counts.iter().position(|count| *count == fewest);
            found.unwrap_or(own)
        };
        counts[thread] += 1;
        Place {
            thread,
            loads: Arc::clone(self),
        }
    }

    fn counts(&self) -> MutexGuard<'_, Vec<usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A connection's place with a thread, given back when dropped.
#[derive(Debug)]
pub(crate) struct Place {
    thread: usize,
    loads: Arc<Loads>,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.loads.counts()[self.thread] -= 1;
    }
}

/// A thread's way to all of them.
#[derive(Debug)]
pub(crate) struct Dispatch<C> {
    own: usize,
    loads: Arc<Loads>,
    /// By the number of the thread.
    threads: Vec<UnboundedSender<(C, Place)>>,
}

// Derived, it would ask connections to be `Clone`.
impl<C> Clone for Dispatch<C> {
    fn clone(&self) -> Self {
        Self {
            own: self.own,
            loads: Arc::clone(&self.loads),
            threads: self.threads.clone(),
        }
    }
}

/// What other threads hand over to one.
pub(crate) type Handed<C> = UnboundedReceiver<(C, Place)>;

impl<C> Dispatch<C> {
    /// For each thread its way to the others and what they hand over to it.
    pub(crate) fn of_threads(loads: &Arc<Loads>) -> Vec<(Self, Handed<C>)> {
        let count = loads.counts().len();
        let (threads, handed): (Vec<_>, Vec<_>) = (0..count).map(|_| unbounded_channel()).unzip();
        let handed = handed.into_iter().enumerate();
        handed
            .map(|(own, handed)| {
                let dispatch = Self {
                    own,
                    loads: Arc::clone(loads),
                    threads: threads.clone(),
                };
                (dispatch, handed)
            })
            .collect()
    }

    /// A place for a connection that this thread has accepted.
    pub(crate) fn place(&self) -> Place {
        self.loads.place(self.own)
    }

    /// Whether a place is with this thread.
    pub(crate) fn is_own(&self, place: &Place) -> bool {
        place.thread == self.own
    }

    /// Hands a connection over to the thread of its place.
    pub(crate) fn hand_over(&self, connection: C, place: Place) {
        // A thread that takes no more has ended, as all do when the server stops; the connection is closed then.
        let _ = self.threads[place.thread].send((connection, place));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a thread does with a connection that it has accepted; its place if it keeps it.
    fn accept(dispatch: &Dispatch<()>) -> Option<Place> {
        let place = dispatch.place();
        if dispatch.is_own(&place) {
            return Some(place);
        }
        dispatch.hand_over((), place);
        None
    }

    #[test]
    fn connections_fall_evenly_whichever_thread_accepts_them() {
        let loads = Loads::new(3);
        let mut threads = Dispatch::of_threads(&loads);
        let mut kept: Vec<_> = (0..12).filter_map(|_| accept(&threads[0].0)).collect();
        assert_eq!(loads.connections(), [4, 4, 4]);
        assert_eq!(kept.len(), 4);
        for (_, handed) in &mut threads[1..] {
            assert_eq!(handed.len(), 4);
            assert!(handed.try_recv().is_ok());
        }
        assert_eq!(loads.connections(), [4, 3, 3]);
        // Those that end leave room for those that come.
        kept.clear();
        kept.extend((0..4).filter_map(|_| accept(&threads[2].0)));
        assert_eq!(kept.len(), 1);
        assert_eq!(loads.connections(), [3, 3, 4]);
    }

    #[test]
    fn who_comes_when_all_have_as_many_stays() {
        let loads = Loads::new(2);
        let threads = Dispatch::of_threads(&loads);
        for (dispatch, _) in &threads {
            for _ in 0..3 {
                assert!(accept(dispatch).is_some());
            }
        }
        assert_eq!(loads.connections(), [0, 0]);
    }

    #[test]
    fn what_a_thread_that_has_ended_is_handed_is_dropped() {
        let loads = Loads::new(2);
        let mut threads = Dispatch::of_threads(&loads);
        threads.truncate(1);
        let first = accept(&threads[0].0);
        assert!(first.is_some());
        assert!(accept(&threads[0].0).is_none());
        assert_eq!(loads.connections(), [1, 0]);
    }
}
