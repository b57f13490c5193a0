//! What waits for one writer, in fair order: each identity has a queue of its own, and the one that has used the least
//! of the writer's time is next.
//!
//! The time that an identity has used begins where that of the last one stood when it has nothing waiting, so that
//! nobody saves up time. An identity whose updates take long while others wait rests for as long as they took, even if
//! nobody waits for a moment: so an identity that sends an update now and then finds the writer free half of the time.
//! An identity that is alone has all of it.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::accounts::Holder;

/// The time of one update from which on it has a turn by itself, and others theirs before the next.
pub(super) const SLOW: Duration = Duration::from_millis(10);
/// Identities that are remembered though nothing of them waits.
const REMEMBERED_MAX: usize = 1024;

/// Whose updates they are; those of nobody who is bound are one queue.
pub(super) type Whose = Option<Holder>;

/// The way into the queue. What waits is still taken out when it is dropped; then the other end is told.
#[derive(Debug)]
pub(super) struct QueueSender<T>(Arc<Shared<T>>);

/// The way out, of the one writer.
pub(super) struct QueueReceiver<T>(Arc<Shared<T>>);

#[derive(Debug)]
struct Shared<T> {
    state: Mutex<State<T>>,
    came: Condvar,
}

#[derive(Debug)]
struct State<T> {
    flows: BTreeMap<Whose, Flow<T>>,
    /// How much waits, over all.
    waiting: usize,
    /// What the one that was taken last had used.
    time: Duration,
    number: u64,
    /// The writer sleeps until something comes.
    sleeps: bool,
    is_closed: bool,
    has_ended: bool,
}

/// What one identity has waiting.
#[derive(Debug)]
struct Flow<T> {
    /// Each with its number, by which those who have used as much take turns.
    parts: VecDeque<(u64, T)>,
    used: Duration,
    /// It is not next before.
    rests_until: Option<Instant>,
    /// Its last updates took [`SLOW`] each, or longer.
    is_slow: bool,
}

impl<T> Shared<T> {
    fn state(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> State<T> {
    fn flow(&mut self, whose: Whose) -> &mut Flow<T> {
        if self.flows.len() > REMEMBERED_MAX && !self.flows.contains_key(&whose) {
            self.flows.retain(|_, flow| !flow.parts.is_empty());
        }
        let time = self.time;
        self.flows.entry(whose).or_insert_with(|| Flow {
            parts: VecDeque::new(),
            used: time,
            rests_until: None,
            is_slow: false,
        })
    }

    /// Whose turn it is.
    fn next(&self) -> Option<Whose> {
        if self.waiting == 0 {
            return None;
        }
        let rests = |until| !self.is_closed && Instant::now() < until;
        let flows = self.flows.iter();
        let waiting = flows.filter(|(_, flow)| !flow.rests_until.is_some_and(rests));
        let waiting =
            waiting.filter_map(|(whose, flow)| Some((flow.used, flow.parts.front()?.0, whose)));
        waiting
            .min_by_key(|(used, number, _)| (*used, *number))
            .map(|(_, _, whose)| *whose)
    }

    fn take(&mut self, whose: Whose) -> Option<T> {
        let flow = self.flows.get_mut(&whose)?;
        let (_, part) = flow.parts.pop_front()?;
        self.waiting -= 1;
        self.time = self.time.max(flow.used);
        Some(part)
    }

    /// Whether anything of others waits.
    fn others_wait(&self, whose: Whose) -> bool {
        let own = self.flows.get(&whose).map_or(0, |flow| flow.parts.len());
        self.waiting > own
    }
}

/// A queue, empty.
pub(super) fn queue<T>() -> (QueueSender<T>, QueueReceiver<T>) {
    let shared = Arc::new(Shared {
        state: Mutex::new(State {
            flows: BTreeMap::new(),
            waiting: 0,
            time: Duration::ZERO,
            number: 0,
            sleeps: false,
            is_closed: false,
            has_ended: false,
        }),
        came: Condvar::new(),
    });
    (QueueSender(Arc::clone(&shared)), QueueReceiver(shared))
}

impl<T> QueueSender<T> {
    /// Appends to what the identity has waiting; gives it back when nobody takes anything out any more.
    pub(super) fn push(&self, whose: Whose, part: T) -> Result<(), T> {
        let mut state = self.0.state();
        if state.has_ended {
            return Err(part);
        }
        state.number += 1;
        state.waiting += 1;
        let (number, time) = (state.number, state.time);
        let flow = state.flow(whose);
        if flow.parts.is_empty() {
            flow.used = flow.used.max(time);
        }
        flow.parts.push_back((number, part));
        if std::mem::take(&mut state.sleeps) {
            drop(state);
            self.0.came.notify_one();
        }
        Ok(())
    }
}

impl<T> Drop for QueueSender<T> {
    fn drop(&mut self) {
        self.0.state().is_closed = true;
        self.0.came.notify_one();
    }
}

/// What a wait for the next part has come to.
pub(super) enum Next<T> {
    Part(Whose, T),
    /// Nothing came in time.
    Nothing,
    /// Nothing will come any more.
    Closed,
}

impl<T> QueueReceiver<T> {
    /// Waits for the next part, until a moment if there is one.
    pub(super) fn wait(&self, until: Option<Instant>) -> Next<T> {
        let mut state = self.0.state();
        loop {
            if let Some(whose) = state.next()
                && let Some(part) = state.take(whose)
            {
                return Next::Part(whose, part);
            }
            if state.is_closed && state.waiting == 0 {
                return Next::Closed;
            }
            let now = Instant::now();
            if until.is_some_and(|until| until <= now) {
                return Next::Nothing;
            }
            let resting = state.flows.values().filter(|flow| !flow.parts.is_empty());
            let wake = resting
                .filter_map(|flow| flow.rests_until)
                .chain(until)
                .min();
            state.sleeps = true;
            let came = &self.0.came;
            state = match wake {
                Some(wake) => {
                    let waited = came.wait_timeout(state, wake.saturating_duration_since(now));
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
                None => came.wait(state).unwrap_or_else(PoisonError::into_inner),
            };
            state.sleeps = false;
        }
    }

    /// The next part, if it is to be applied together with those of this identity, which began, and of others.
    pub(super) fn take_with(
        &self,
        first: Whose,
        joins: impl FnOnce(&T) -> bool,
    ) -> Option<(Whose, T)> {
        let mut state = self.0.state();
        let whose = state.next()?;
        let is_slow = |whose| state.flows.get(&whose).is_some_and(|flow| flow.is_slow);
        if (is_slow(first) || is_slow(whose)) && (whose != first || state.others_wait(first)) {
            return None;
        }
        let (_, part) = state.flows.get(&whose)?.parts.front()?;
        if !joins(part) {
            return None;
        }
        Some((whose, state.take(whose)?))
    }

    /// Puts a part back where it was taken from; the last that was taken first.
    pub(super) fn put_back(&self, whose: Whose, part: T) {
        let mut state = self.0.state();
        state.waiting += 1;
        state.flow(whose).parts.push_front((0, part));
    }

    /// Whether the writer has something to do.
    pub(super) fn has_next(&self) -> bool {
        self.0.state().next().is_some()
    }

    /// Whether anything of others waits.
    pub(super) fn others_wait(&self, whose: Whose) -> bool {
        self.0.state().others_wait(whose)
    }

    /// Notes what updates of an identity took until `now`.
    pub(super) fn charge(&self, whose: Whose, updates: usize, time: Duration, now: Instant) {
        let mut state = self.0.state();
        let others_wait = state.others_wait(whose);
        let flow = state.flow(whose);
        flow.used += time;
        flow.is_slow = time >= SLOW * u32::try_from(updates).unwrap_or(u32::MAX);
        flow.rests_until = (others_wait && flow.is_slow).then(|| now + time);
    }
}

impl<T> Drop for QueueReceiver<T> {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.has_ended = true;
        state.flows.clear();
        state.waiting = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sapwood_directory::engine::EntryId;

    const MS: Duration = Duration::from_millis(1);

    fn user(number: u64) -> Whose {
        Some(Holder::User(EntryId(number)))
    }

    /// Takes out what is next, and has it take so long.
    fn turn(exit: &QueueReceiver<u32>, time: Duration) -> Option<u32> {
        let Next::Part(whose, part) = exit.wait(Some(Instant::now())) else {
            return None;
        };
        exit.charge(whose, 1, time, Instant::now());
        Some(part)
    }

    #[test]
    fn what_one_identity_sends_stays_in_order() {
        let (entrance, exit) = queue();
        (0..5).for_each(|number| entrance.push(user(1), number).unwrap());
        let taken: Vec<_> = (0..5).filter_map(|_| turn(&exit, MS)).collect();
        assert_eq!(taken, [0, 1, 2, 3, 4]);
        drop(entrance);
        assert!(matches!(exit.wait(None), Next::Closed));
    }

    #[test]
    fn turns_alternate_however_much_one_has_waiting() {
        let (entrance, exit) = queue();
        (0..10).for_each(|number| entrance.push(user(1), number).unwrap());
        (100..103).for_each(|number| entrance.push(user(2), number).unwrap());
        let taken: Vec<_> = (0..13).filter_map(|_| turn(&exit, MS)).collect();
        assert_eq!(taken[..6], [0, 100, 1, 101, 2, 102]);
        assert_eq!(taken[6..], [3, 4, 5, 6, 7, 8, 9]);
    }

    #[test]
    fn one_long_turn_is_paid_for_with_many_short_ones() {
        let (entrance, exit) = queue();
        entrance.push(user(1), 0).unwrap();
        assert_eq!(turn(&exit, 8 * MS), Some(0));
        entrance.push(user(1), 1).unwrap();
        (100..110).for_each(|number| entrance.push(user(2), number).unwrap());
        let taken: Vec<_> = (0..11).filter_map(|_| turn(&exit, MS)).collect();
        let place = taken.iter().position(|part| *part == 1).unwrap();
        assert!((8..=9).contains(&place), "{taken:?}");
        // Time that was not used is not saved up.
        entrance.push(user(3), 7).unwrap();
        (200..203).for_each(|number| entrance.push(user(2), number).unwrap());
        (8..10).for_each(|number| entrance.push(user(3), number).unwrap());
        let taken: Vec<_> = (0..6).filter_map(|_| turn(&exit, MS)).collect();
        assert_eq!(taken, [7, 200, 8, 201, 9, 202]);
    }

    #[test]
    fn who_keeps_others_waiting_for_long_rests_for_as_long() {
        let (entrance, exit) = queue();
        entrance.push(user(1), 0).unwrap();
        entrance.push(user(1), 1).unwrap();
        entrance.push(user(2), 100).unwrap();
        let long = Duration::from_secs(3600);
        assert_eq!(turn(&exit, long), Some(0));
        assert_eq!(turn(&exit, MS), Some(100));
        assert!(!exit.has_next(), "though the writer has nothing to do");
        entrance.push(user(2), 101).unwrap();
        assert_eq!(turn(&exit, MS), Some(101));
        // A server that stops does what is left.
        drop(entrance);
        assert_eq!(turn(&exit, long), Some(1));
    }

    #[test]
    fn who_is_alone_does_not_rest() {
        let (entrance, exit) = queue();
        (0..3).for_each(|number| entrance.push(user(1), number).unwrap());
        let taken: Vec<_> = (0..3)
            .filter_map(|_| turn(&exit, Duration::from_secs(3600)))
            .collect();
        assert_eq!(taken, [0, 1, 2]);
    }

    #[test]
    fn slow_updates_are_not_applied_together_with_those_of_others() {
        let (entrance, exit) = queue();
        let take = |first| exit.take_with(first, |_| true).map(|(_, part)| part);
        (0..3).for_each(|number| entrance.push(user(1), number).unwrap());
        assert_eq!(turn(&exit, SLOW), Some(0));
        // Alone they are.
        assert_eq!(take(user(1)), Some(1));
        exit.charge(user(1), 1, SLOW, Instant::now());
        entrance.push(user(2), 100).unwrap();
        assert_eq!(take(user(1)), None);
        assert_eq!(turn(&exit, MS), Some(100));
        assert_eq!(take(user(2)), None, "others would wait for it");
        exit.charge(user(1), 100, SLOW, Instant::now());
        assert_eq!(take(user(2)), Some(2));
        assert_eq!(take(user(2)), None);
    }

    #[test]
    fn what_is_put_back_is_next_of_its_own() {
        let (entrance, exit) = queue();
        (0..4).for_each(|number| entrance.push(user(1), number).unwrap());
        let taken: Vec<_> = (0..3)
            .filter_map(|_| match exit.wait(None) {
                Next::Part(_, part) => Some(part),
                _ => None,
            })
            .collect();
        exit.put_back(user(1), taken[2]);
        exit.put_back(user(1), taken[1]);
        let rest: Vec<_> = (0..3).filter_map(|_| turn(&exit, MS)).collect();
        assert_eq!(rest, [1, 2, 3]);
    }

    #[test]
    fn identities_are_not_remembered_without_bound() {
        let (entrance, exit) = queue();
        for number in 0..5000 {
            entrance.push(user(number), 0).unwrap();
            turn(&exit, MS);
        }
        assert!(exit.0.state().flows.len() <= REMEMBERED_MAX + 1);
        drop(exit);
        assert_eq!(entrance.push(user(1), 7), Err(7));
    }
}
