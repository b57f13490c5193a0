//! Fair turns: of the keys that wait at the same time, the one that has had the least processor time is next.
//!
//! Each key (an address, an identity) has a clock that runs while its jobs do. A key that comes anew gets the time of
//! the one that has had least, so that having been away is no advantage; one that left with more keeps it as long as
//! that is more.

use std::collections::HashMap;
use std::hash::Hash;

/// Keys that are remembered without having a job.
const KEYS_MAX: usize = 4096;

/// The clocks of the keys of one kind.
#[derive(Debug)]
pub(super) struct Clocks<K> {
    known: HashMap<K, Clock>,
    /// The time that new keys get, in microseconds.
    floor: u64,
}

#[derive(Clone, Copy, Debug)]
struct Clock {
    micros: u64,
    /// Jobs that wait or run.
    jobs: usize,
}

impl<K: Copy + Eq + Hash> Clocks<K> {
    pub(super) fn new() -> Self {
        Self {
            known: HashMap::new(),
            floor: 0,
        }
    }

    /// The time of a key.
    pub(super) fn micros(&self, key: K) -> u64 {
        let known = self.known.get(&key);
        known.map_or(0, |clock| clock.micros).max(self.floor)
    }

    /// A job comes.
    pub(super) fn enter(&mut self, key: K) {
        let micros = self.micros(key);
        let clock = self.known.entry(key).or_insert(Clock { micros, jobs: 0 });
        clock.micros = micros;
        clock.jobs += 1;
    }

    /// A job has had so much time.
    pub(super) fn charge(&mut self, key: K, micros: u64) {
        if let Some(clock) = self.known.get_mut(&key) {
            clock.micros = clock.micros.max(self.floor).saturating_add(micros);
        }
        let here = self.known.values().filter(|clock| clock.jobs > 0);
        let least = here.map(|clock| clock.micros).min();
        self.floor = self.floor.max(least.unwrap_or(0));
    }

    /// A job goes.
    pub(super) fn leave(&mut self, key: K) {
        if let Some(clock) = self.known.get_mut(&key) {
            clock.jobs = clock.jobs.saturating_sub(1);
        }
        if self.known.values().all(|clock| clock.jobs == 0) {
            // Nobody waits: nobody is to be put behind anybody.
            *self = Self::new();
            return;
        }
        if self.known.len() > KEYS_MAX {
            let gone = self.known.values().filter(|clock| clock.jobs == 0);
            let least = gone.map(|clock| clock.micros).min();
            self.floor = self.floor.max(least.unwrap_or(0));
        }
        let floor = self.floor;
        self.known
            .retain(|_, clock| clock.jobs > 0 || clock.micros > floor);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Serves the key with the least time; `work` says what a job of each takes.
    fn serve(clocks: &mut Clocks<char>, keys: &[(char, u64)], turns: usize) -> String {
        let mut served = String::new();
        for _ in 0..turns {
            let next = keys.iter().min_by_key(|(key, _)| clocks.micros(*key));
            let (key, work) = next.unwrap();
            clocks.charge(*key, *work);
            served.push(*key);
        }
        served
    }

    #[test]
    fn time_is_shared_and_not_turns() {
        let mut clocks = Clocks::new();
        clocks.enter('a');
        clocks.enter('b');
        assert_eq!(serve(&mut clocks, &[('a', 10), ('b', 10)], 6), "ababab");
        assert_eq!(serve(&mut clocks, &[('a', 30), ('b', 10)], 8), "abbbabbb");
    }

    #[test]
    fn who_comes_later_is_next_and_does_not_make_up_for_it() {
        let mut clocks = Clocks::new();
        clocks.enter('a');
        assert_eq!(serve(&mut clocks, &[('a', 10)], 100), "a".repeat(100));
        clocks.enter('b');
        assert_eq!(serve(&mut clocks, &[('b', 10), ('a', 10)], 6), "bababa");
    }

    #[test]
    fn leaving_and_coming_back_is_no_advantage() {
        let mut clocks = Clocks::new();
        clocks.enter('b');
        for _ in 0..5 {
            clocks.enter('a');
            clocks.charge('a', 1000);
            clocks.leave('a');
        }
        clocks.enter('a');
        assert_eq!(serve(&mut clocks, &[('a', 10), ('b', 10)], 5), "bbbbb");
    }

    #[test]
    fn few_keys_are_remembered() {
        let mut clocks = Clocks::new();
        clocks.enter(0);
        for key in 1..5 * KEYS_MAX {
            clocks.enter(key);
            clocks.charge(key, 10);
            clocks.leave(key);
            assert!(clocks.known.len() <= KEYS_MAX + 1);
        }
        clocks.leave(0);
        assert!(clocks.known.is_empty());
    }
}
