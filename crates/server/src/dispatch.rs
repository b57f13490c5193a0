//! Which thread serves a new connection: one of those with the fewest.
//!
//! Every thread accepts, so that no connection waits for one thread while another has nothing to do. Which of them that
//! is the kernel decides, by a hash of the addresses or by who comes first, and of eight connections that stay it may
//! well choose the same one for seven. So a thread keeps what it has accepted only while no other has fewer
//! connections, and otherwise hands it over. One that comes while all have as many as each other, or none, stays where
//! it was accepted, so that short connections cost no change of threads.
//!
//! Those of addresses with many connections wait in a line of their own, which others overtake.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::mpsc::{
    Receiver, Sender, UnboundedReceiver, UnboundedSender, channel, unbounded_channel,
};

/// So many connections of addresses with many wait for a thread; more wait in the queue of the kernel.
const OF_MANY_MAX: usize = 64;

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
    threads: Vec<Lines<C>>,
}

/// Where connections wait for a thread.
#[derive(Debug)]
struct Lines<C> {
    of_few: UnboundedSender<(C, Place)>,
    of_many: Sender<(C, Place)>,
}

impl<C> Clone for Lines<C> {
    fn clone(&self) -> Self {
        Self {
            of_few: self.of_few.clone(),
            of_many: self.of_many.clone(),
        }
    }
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

/// What is handed over to a thread.
#[derive(Debug)]
pub(crate) struct Handed<C> {
    of_few: UnboundedReceiver<(C, Place)>,
    of_many: Receiver<(C, Place)>,
}

impl<C> Handed<C> {
    /// The next one; `None` when there will be no more.
    pub(crate) async fn next(&mut self) -> Option<(C, Place)> {
        tokio::select! {
            biased;
            Some(next) = self.of_few.recv() => Some(next),
            Some(next) = self.of_many.recv() => Some(next),
            else => None,
        }
    }
}

impl<C> Dispatch<C> {
    /// For each thread its way to the others and what is handed over to it.
    pub(crate) fn of_threads(loads: &Arc<Loads>) -> Vec<(Self, Handed<C>)> {
        let count = loads.counts().len();
        let (threads, handed): (Vec<_>, Vec<_>) = (0..count).map(|_| lines()).unzip();
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

    /// Hands a connection over to the thread of its place. One of an address with many waits until few others do.
    pub(crate) async fn hand_over(&self, connection: C, place: Place, is_of_many: bool) {
        let lines = &self.threads[place.thread];
        // A thread that takes no more has ended, as all do when the server stops; the connection is closed then.
        if is_of_many {
            let _ = lines.of_many.send((connection, place)).await;
        } else {
            let _ = lines.of_few.send((connection, place));
        }
    }
}

fn lines<C>() -> (Lines<C>, Handed<C>) {
    let (of_few, few) = unbounded_channel();
    let (of_many, many) = channel(OF_MANY_MAX);
    let handed = Handed {
        of_few: few,
        of_many: many,
    };
    (Lines { of_few, of_many }, handed)
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use super::*;

    /// What comes without waiting.
    fn now<T>(future: impl Future<Output = T>) -> Option<T> {
        let mut context = Context::from_waker(Waker::noop());
        match pin!(future).poll(&mut context) {
            Poll::Ready(value) => Some(value),
            Poll::Pending => None,
        }
    }

    /// What a thread does with a connection that it has accepted; its place if it keeps it.
    fn accept(dispatch: &Dispatch<()>) -> Option<Place> {
        let place = dispatch.place();
        if dispatch.is_own(&place) {
            return Some(place);
        }
        let handing_over = dispatch.hand_over((), place, false);
        assert!(now(handing_over).is_some(), "nobody waits here");
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
            assert_eq!(handed.of_few.len(), 4);
            assert!(now(handed.next()).is_some());
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
    fn those_of_addresses_with_many_are_overtaken_and_do_not_grow_without_end() {
        let loads = Loads::new(1);
        let (dispatch, mut handed) = Dispatch::of_threads(&loads).remove(0);
        let hand_over = |number, is_of_many| {
            let handing_over = dispatch.hand_over(number, dispatch.place(), is_of_many);
            now(handing_over).is_some()
        };
        for number in 0..OF_MANY_MAX {
            assert!(hand_over(number, true));
        }
        assert!(!hand_over(OF_MANY_MAX, true), "it waits");
        assert!(hand_over(1000, false));
        let mut next = || now(handed.next()).flatten().map(|(number, _)| number);
        assert_eq!(next(), Some(1000));
        assert_eq!(next(), Some(0));
        assert_eq!(next(), Some(1));
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
