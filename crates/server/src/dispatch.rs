//! Which thread serves a new connection: one of those with the fewest.
//!
//! Every thread accepts, so that no connection waits for one thread while another has nothing to do. Which of them that
//! is the kernel decides, by a hash of the addresses or by who comes first, and of eight connections that stay it may
//! well choose the same one for seven. So a thread keeps what it has accepted only while no other has fewer
//! connections, and otherwise hands it over. One that comes while all have as many as each other, or none, stays where
//! it was accepted, so that short connections cost no change of threads.
//!
//! Those of addresses with many connections wait in a line of their own, which others overtake, and in which the
//! addresses take turns.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::peer::Origin;

/// So many connections of addresses with many wait for a thread. If they waited in the queue of the kernel, all others
/// would wait behind them.
const OF_MANY_MAX: usize = 256;

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
    of_many: Arc<OfMany<C>>,
}

/// The line of those of addresses with many connections.
#[derive(Debug)]
struct OfMany<C> {
    line: Mutex<Line<(C, Place)>>,
    /// The thread may wait for the next one.
    has_come: Notify,
}

impl<C> OfMany<C> {
    fn line(&self) -> MutexGuard<'_, Line<(C, Place)>> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn next(&self) -> (C, Place) {
        loop {
            if let Some(next) = self.line().next() {
                return next;
            }
            self.has_come.notified().await;
        }
    }
}

/// A line in which addresses take turns.
#[derive(Debug)]
struct Line<T> {
    waiting: HashMap<Origin, VecDeque<T>>,
    /// Whose turn is next, and after it.
    turns: VecDeque<Origin>,
    length: usize,
    /// The thread has ended.
    is_closed: bool,
}

impl<T> Default for Line<T> {
    fn default() -> Self {
        Self {
            waiting: HashMap::new(),
            turns: VecDeque::new(),
            length: 0,
            is_closed: false,
        }
    }
}

impl<T> Line<T> {
    /// Adds one of this address. In a full line the newest of the address with the most gives way, and is returned.
    fn join(&mut self, origin: Origin, one: T) -> Option<T> {
        if self.is_closed {
            return Some(one);
        }
        let own = self.waiting.entry(origin).or_default();
        if own.is_empty() {
            self.turns.push_back(origin);
        }
        own.push_back(one);
        self.length += 1;
        if self.length <= OF_MANY_MAX {
            return None;
        }
        let (&origin, longest) = self.waiting.iter_mut().max_by_key(|(_, own)| own.len())?;
        let gives_way = longest.pop_back();
        self.length -= 1;
        if longest.is_empty() {
            self.waiting.remove(&origin);
            self.turns.retain(|turn| *turn != origin);
        }
        gives_way
    }

    fn next(&mut self) -> Option<T> {
        let origin = self.turns.pop_front()?;
        let own = self.waiting.get_mut(&origin)?;
        let next = own.pop_front()?;
        self.length -= 1;
        if own.is_empty() {
            self.waiting.remove(&origin);
        } else {
            self.turns.push_back(origin);
        }
        Some(next)
    }
}

impl<C> Clone for Lines<C> {
    fn clone(&self) -> Self {
        Self {
            of_few: self.of_few.clone(),
            of_many: Arc::clone(&self.of_many),
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
    of_many: Arc<OfMany<C>>,
}

impl<C> Handed<C> {
    /// The next one.
    pub(crate) async fn next(&mut self) -> (C, Place) {
        tokio::select! {
            biased;
            Some(next) = self.of_few.recv() => next,
            next = self.of_many.next() => next,
        }
    }
}

impl<C> Drop for Handed<C> {
    fn drop(&mut self) {
        let ended = Line {
            is_closed: true,
            ..Line::default()
        };
        *self.of_many.line() = ended;
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

    /// Hands a connection over to the thread of its place. A thread that takes no more has ended, as all do when the
    /// server stops; the connection is closed then.
    pub(crate) fn hand_over(&self, connection: C, place: Place) {
        let _ = self.threads[place.thread].of_few.send((connection, place));
    }

    /// Hands over a connection of an address that has many: it is served after those of other addresses. Returns the
    /// connection for which the line is too long, this one or another.
    pub(crate) fn hand_over_of_many(
        &self,
        connection: C,
        place: Place,
        origin: Origin,
    ) -> Option<C> {
        let of_many = &self.threads[place.thread].of_many;
        let gives_way = of_many.line().join(origin, (connection, place));
        of_many.has_come.notify_one();
        gives_way.map(|(connection, _)| connection)
    }
}

fn lines<C>() -> (Lines<C>, Handed<C>) {
    let (of_few, few) = unbounded_channel();
    let of_many = Arc::new(OfMany {
        line: Mutex::default(),
        has_come: Notify::new(),
    });
    let handed = Handed {
        of_few: few,
        of_many: Arc::clone(&of_many),
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
    fn those_of_addresses_with_many_are_overtaken_and_take_turns() {
        let loads = Loads::new(1);
        let (dispatch, mut handed) = Dispatch::of_threads(&loads).remove(0);
        let of_many =
            |number, uid| dispatch.hand_over_of_many(number, dispatch.place(), Origin::Local(uid));
        for number in 0..OF_MANY_MAX {
            assert_eq!(of_many(number, 1), None);
        }
        assert_eq!(of_many(1000, 1), Some(1000), "its address has the most");
        assert_eq!(of_many(2000, 2), Some(OF_MANY_MAX - 1), "as it has here");
        assert_eq!(of_many(2001, 2), Some(OF_MANY_MAX - 2));
        assert_eq!(loads.connections(), [OF_MANY_MAX]);
        dispatch.hand_over(3000, dispatch.place());
        let mut next = || now(handed.next()).map(|(number, _)| number);
        let served: Vec<usize> = (0..6).map_while(|_| next()).collect();
        assert_eq!(served, [3000, 0, 2000, 1, 2001, 2]);
        assert_eq!(std::iter::from_fn(next).count(), OF_MANY_MAX - 5);
        assert_eq!(loads.connections(), [0]);
    }

    #[test]
    fn a_line_of_many_addresses_serves_all_but_the_one_that_gives_way() {
        let mut line = Line::default();
        let count = u32::try_from(OF_MANY_MAX).unwrap() + 1;
        let gave_way: Vec<u32> = (0..count)
            .filter_map(|uid| line.join(Origin::Local(uid), uid))
            .collect();
        assert_eq!(gave_way.len(), 1);
        let served: Vec<u32> = std::iter::from_fn(|| line.next()).collect();
        let all_others: Vec<u32> = (0..count).filter(|uid| *uid != gave_way[0]).collect();
        assert_eq!(served, all_others);
        assert!(line.waiting.is_empty() && line.length == 0);
    }

    #[test]
    fn who_joins_an_empty_line_is_waited_for() {
        let loads = Loads::new(1);
        let (dispatch, mut handed) = Dispatch::of_threads(&loads).remove(0);
        let mut waits = pin!(handed.next());
        let mut context = Context::from_waker(Waker::noop());
        assert!(waits.as_mut().poll(&mut context).is_pending());
        dispatch.hand_over_of_many((), dispatch.place(), Origin::Local(1));
        assert!(waits.as_mut().poll(&mut context).is_ready());
    }

    #[test]
    fn what_a_thread_that_has_ended_is_handed_is_dropped() {
        let loads = Loads::new(2);
        let mut threads = Dispatch::of_threads(&loads);
        threads.truncate(1);
        let first = accept(&threads[0].0);
        assert!(first.is_some());
        assert!(accept(&threads[0].0).is_none());
        let (dispatch, _) = &threads[0];
        let place = dispatch.place();
        assert!(!dispatch.is_own(&place));
        let closed = dispatch.hand_over_of_many((), place, Origin::Local(1));
        assert!(closed.is_some());
        assert_eq!(loads.connections(), [1, 0]);
    }
}
