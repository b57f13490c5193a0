//! The clock that change sequence numbers come from.
//!
//! It is a hybrid logical clock: it shows the time of day, but never goes back. However the system's clock is set, a
//! new CSN is greater than every CSN that this directory has made or received, and than that of the entry's last
//! change. All writers of a directory share the clock, and so does an import. When the directory is opened, and when
//! another process has written to it, the last CSN is recovered from the change feed.
//!
//! A received time moves the clock ahead of the system's clock by at most [`AHEAD_MICROS_MAX`]. If the last change of
//! an entry is further ahead, its next change still gets a greater CSN, but one that *stands apart*: the clock does not
//! follow.
//!
//! In a directory of several stores, a CSN may become visible later than a greater one of another writer. So each
//! writer registers when it begins to draw CSNs, until its commit has its place in the log. A feed record that is
//! written meanwhile contains the *watermark*: every reader of the record can see all changes up to that CSN.

use std::sync::{Mutex, MutexGuard, PoisonError};

use super::Csn;

/// How far ahead of the system's clock a received CSN can move the clock: one hour, in microseconds.
pub(crate) const AHEAD_MICROS_MAX: u64 = 3_600_000_000;

/// The clock of a directory.
#[derive(Debug, Default)]
pub(crate) struct HybridClock {
    /// The directory's own replica id.
    replica: u16,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The last CSN that was made or received.
    last: Csn,
    /// For each writer that draws CSNs now, the number of its drawing and the last CSN before it. All CSNs of the
    /// writer are greater.
    drawing: Vec<(u64, Csn)>,
    drawings: u64,
}

/// The CSN of a change, and what the clock shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Drawn {
    /// The CSN of the change.
    pub(crate) csn: Csn,
    /// The CSN of the clock. It differs if that of the change stands apart.
    pub(crate) clock: Csn,
}

/// The registration of a writer that draws CSNs. It ends when dropped, after the commit has its place in the log.
#[derive(Debug)]
pub(crate) struct Drawing<'c> {
    clock: &'c HybridClock,
    number: u64,
}

impl HybridClock {
    pub(crate) fn new(replica: u16) -> HybridClock {
        HybridClock {
            replica: replica & Csn::REPLICA_MAX,
            ..HybridClock::default()
        }
    }

    /// The CSN of the next change. `now` is the system's clock, in microseconds since 1970.
    pub(crate) fn next(&self, now: u64) -> Csn {
        let mut state = self.lock();
        state.next(now, self.replica)
    }

    /// The CSN of a change of an entry whose last known change is `last`.
    pub(crate) fn after(&self, last: Csn, now: u64) -> Drawn {
        let mut state = self.lock();
        let clock = state.next(now, self.replica);
        if clock > last {
            return Drawn { csn: clock, clock };
        }
        if last.micros <= now.saturating_add(AHEAD_MICROS_MAX) {
            state.last = self.own(last);
            let clock = state.next(now, self.replica);
            return Drawn { csn: clock, clock };
        }
        let csn = self.own(last.next());
        Drawn { csn, clock }
    }

    /// CSNs for a number of changes that are made together. Returns the first of them.
    pub(crate) fn next_of_many(&self, now: u64, changes: u64) -> Csn {
        let mut state = self.lock();
        let first = state.next(now, self.replica);
        state.last = first.plus(changes.saturating_sub(1));
        first
    }

    /// Takes in a CSN of another replica or process. One that is too far ahead of `now` is ignored.
    pub(crate) fn receive(&self, csn: Csn, now: u64) {
        if csn.micros <= now.saturating_add(AHEAD_MICROS_MAX) {
            self.recover(csn);
        }
    }

    /// Takes in a CSN that the clock of this directory has shown before.
    pub(crate) fn recover(&self, csn: Csn) {
        let mut state = self.lock();
        state.last = state.last.max(self.own(csn));
    }

    /// The CSN that it shows.
    pub(crate) fn last(&self) -> Csn {
        self.lock().last
    }

    /// Registers a writer, whose CSNs become visible together.
    pub(crate) fn draw(&self) -> Drawing<'_> {
        let mut state = self.lock();
        let (number, last) = (state.drawings, state.last);
        state.drawings += 1;
        state.drawing.push((number, last));
        Drawing {
            clock: self,
            number,
        }
    }

    /// The watermark for a feed record: all changes up to it are visible to readers of the record. `own` is the
    /// registration of the writer of the record.
    pub(crate) fn watermark(&self, own: Option<&Drawing<'_>>) -> Csn {
        let state = self.lock();
        let others = state
            .drawing
            .iter()
            .filter(|(number, _)| own.is_none_or(|own| own.number != *number));
        others.map(|(_, last)| *last).fold(state.last, Csn::min)
    }

    /// The CSN with the replica id of this directory.
    fn own(&self, csn: Csn) -> Csn {
        Csn {
            replica: self.replica,
            ..csn
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn next(&mut self, now: u64, replica: u16) -> Csn {
        let next = match now > self.last.micros {
            true => Csn {
                micros: now,
                count: 0,
                replica,
            },
            false => Csn {
                replica,
                ..self.last.next()
            },
        };
        self.last = next;
        next
    }
}

impl Drop for Drawing<'_> {
    fn drop(&mut self) {
        let mut state = self.clock.lock();
        state.drawing.retain(|(number, _)| *number != self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn csn(micros: u64, count: u32, replica: u16) -> Csn {
        Csn {
            micros,
            count,
            replica,
        }
    }

    #[test]
    fn it_never_goes_back() {
        let clock = HybridClock::new(5);
        assert_eq!(clock.next(100), csn(100, 0, 5));
        assert_eq!(clock.next(100), csn(100, 1, 5));
        assert_eq!(clock.next(1), csn(100, 2, 5));
        assert_eq!(clock.next(101), csn(101, 0, 5));
        assert_eq!(clock.next_of_many(50, 1 << 24), csn(101, 1, 5));
        assert_eq!(clock.next(50), csn(102, 1, 5));
        clock.recover(csn(200, 3, 0));
        assert_eq!(clock.next(150), csn(200, 4, 5));
    }

    #[test]
    fn a_change_comes_behind_what_it_changes() {
        let clock = HybridClock::new(1);
        // Made elsewhere, where the clock is ahead: this one follows.
        let after = clock.after(csn(500, 7, 2), 100);
        assert_eq!(after.csn, csn(500, 8, 1));
        assert_eq!((after.clock, clock.last()), (after.csn, after.csn));
        // Too far ahead: nobody else gets such a time.
        let far = 100 + AHEAD_MICROS_MAX + 1;
        let after = clock.after(csn(far, 0, 2), 100);
        assert_eq!(after.csn, csn(far, 1, 1));
        assert_eq!(clock.next(100), csn(500, 10, 1));
        clock.receive(csn(far, 0, 2), 100);
        assert_eq!(clock.next(100), csn(500, 11, 1));
        clock.receive(csn(600, 0, 2), 100);
        assert_eq!(clock.next(100), csn(600, 1, 1));
        assert_eq!(clock.after(csn(3, 0, 2), 100).csn, csn(600, 2, 1));
    }

    #[test]
    fn the_watermark_waits_for_who_draws() {
        let clock = HybridClock::new(0);
        let before = clock.next(10);
        let one = clock.draw();
        clock.next(11);
        let other = clock.draw();
        let last = clock.next(12);
        assert_eq!(clock.watermark(Some(&other)), before);
        assert_eq!(clock.watermark(Some(&one)), csn(11, 0, 0));
        assert_eq!(clock.watermark(None), before);
        drop(one);
        assert_eq!(clock.watermark(Some(&other)), last);
        drop(other);
        assert_eq!(clock.watermark(None), last);
    }
}
