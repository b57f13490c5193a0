//! Group commit: how a record becomes durable.
//!
//! The one that waits while nobody syncs becomes the *leader*: it syncs everything that has been appended so far, says
//! so, and wakes the others. The one that comes while the leader syncs waits for it to finish; by then more records
//! have been appended, and one of those still waiting leads the next sync. The group is whatever came in while the disk
//! was busy, and those who come back at once, see `gather`.
//!
//! `Shared::turn` is odd while somebody leads, and changes with every beginning and end: its half is the number of the
//! sync under way, or of the next one. Everybody else knows which sync it waits for, the one under way or the next, and
//! sleeps on one of two *bells*: that of even syncs or that of odd ones. The leader rings the other bell for a single
//! sleeper, which leads the next sync, and then its own for all who sleep on it, since they are done. So each waiter is
//! woken once. A sleeper woken to lead who has nothing to wait for any more rings for the next one.
//!
//! Leading is a courtesy and no lock: two who sync at the same time do no harm, since each one says only what its own
//! sync has shown. So a leader that was killed is simply replaced by the one that finds out first, since the lock
//! `writing` still names it, or else by the one that loses patience.

use std::time::Duration;

use crate::Lsn;
use crate::error::{Error, Result};
use crate::guard::Guard;
use crate::log::Wal;
use crate::shared::State;
use crate::sync::{self, Ordering, PoisonError};

/// How long a follower waits for one and the same leader before it leads itself, in case the leader was killed.
const LEADER_PATIENCE: Duration = Duration::from_secs(1);
/// How long a follower sleeps before it looks whether the leader was killed while it wrote.
const LOOK_AFTER: Duration = Duration::from_millis(50);

/// How a wait for the end of a sync came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Waited {
    /// It has ended, or the log has.
    Ended,
    /// Its leader is dead.
    LeaderDied,
    /// It takes too long.
    TooLong,
}

/// For whom a bell is rung.
#[derive(Clone, Copy)]
enum For {
    One,
    All,
}

impl Wal {
    /// Waits until everything before `lsn` is durable, which is what [`Wal::append`] returned. All who wait at the same
    /// time, in this process and others, share a sync.
    ///
    /// # Errors
    /// [`Error::Io`] for the one whose sync failed and [`Error::Poisoned`] for everybody else, from then on: what was
    /// not durable before may or may not be after the next recovery. [`Error::NotInLog`] if nothing was appended there.
    pub fn sync_to(&self, lsn: Lsn) -> Result<()> {
        let shared = self.shared();
        // The sync that we may have been woken to lead.
        let mut next = None;
        let mut has_asked = false;
        loop {
            if shared.durable() >= lsn {
                self.pass_on(next);
                return Ok(());
            }
            if !has_asked {
                shared.group.ask();
                has_asked = true;
            }
            match shared.state() {
                State::Stopped => return Err(Error::NotStarted),
                State::Poisoned => return Err(Error::Poisoned),
                State::Running => {}
            }
            let end = shared.end();
            if lsn > end {
                return Err(Error::NotInLog { lsn, end });
            }
            let turn = shared.turn.load(Ordering::SeqCst);
            if is_led(turn) {
                let is_covered = lsn.0 <= shared.leading_to.load(Ordering::SeqCst);
                let number = sync_of(turn).wrapping_add(u32::from(!is_covered));
                next = (!is_covered).then_some(number);
                if self.wait_for_end_of(turn, number) == Waited::Ended {
                    continue;
                }
            }
            self.lead(turn)?;
        }
    }

    /// Whether somebody syncs the log, and waits for the disk.
    pub fn is_syncing(&self) -> bool {
        is_led(self.shared().turn.load(Ordering::SeqCst))
    }

    /// Syncs what there is, unless somebody else has begun to since `turn`. An odd turn is one whose leader has taken
    /// too long.
    fn lead(&self, turn: u32) -> Result<()> {
        let is_late = is_led(turn);
        let mine = turn.wrapping_add(if is_late { 2 } else { 1 });
        if !self.change_turn(turn, mine) {
            return Ok(());
        }
        let synced = self.make_durable();
        // This does nothing if somebody has lost patience with us.
        if self.change_turn(mine, mine.wrapping_add(1)) {
            let number = sync_of(mine);
            // Nobody has rung for those who waited for a leader that is late.
            let whom = if is_late { For::All } else { For::One };
            // The next leader comes first: the disk has nothing to do meanwhile, and those who are done may take the
            // processor from us.
            self.ring(number.wrapping_add(1), whom);
            self.ring(number, For::All);
        }
        synced
    }

    /// Waits for those who may come back in a moment; gives the end of what the leader is to sync.
    pub(crate) fn gather(&self) -> Lsn {
        let shared = self.shared();
        // Who comes while it waits takes part.
        let begun = || shared.leading_to.store(u64::MAX, Ordering::SeqCst);
        shared.group.wait(begun, || self.is_poisoned());
        // Whoever has asked has its record before the end.
        shared.group.close();
        let end = shared.end();
        shared.leading_to.store(end.0, Ordering::SeqCst);
        end
    }

    /// Waits until the turn has changed. The one that waits for the sync of another number than the turn's may be woken
    /// to lead it.
    fn wait_for_end_of(&self, turn: u32, number: u32) -> Waited {
        let shared = self.shared();
        let bell = &shared.bells[bell_of(number)];
        bell.sleepers.fetch_add(1, Ordering::SeqCst);
        let started = std::time::Instant::now();
        let waited = loop {
            // First: the one that changes what is looked at next rings afterwards.
            let rings = bell.rings.load(Ordering::SeqCst);
            if shared.turn.load(Ordering::SeqCst) != turn || self.is_poisoned() {
                break Waited::Ended;
            }
            let waited = started.elapsed();
            if waited >= LOOK_AFTER && self.has_writer_died() {
                break Waited::LeaderDied;
            }
            if waited >= LEADER_PATIENCE {
                break Waited::TooLong;
            }
            sync::wait_while(&bell.rings, rings, LOOK_AFTER);
        };
        bell.sleepers.fetch_sub(1, Ordering::SeqCst);
        waited
    }

    /// Has somebody else lead the sync that this thread was woken to lead, and need not. If somebody leads already, the
    /// end of that wakes everybody who has to be.
    fn pass_on(&self, next: Option<u32>) {
        if let Some(number) = next
            && !is_led(self.shared().turn.load(Ordering::SeqCst))
        {
            self.ring(number, For::One);
        }
    }

    fn ring(&self, number: u32, whom: For) {
        let bell = &self.shared().bells[bell_of(number)];
        bell.rings.fetch_add(1, Ordering::SeqCst);
        if bell.sleepers.load(Ordering::SeqCst) > 0 && self.guards.has(Guard::WakeFollowers) {
            match whom {
                For::One => sync::wake_one(&bell.rings),
                For::All => sync::wake_all(&bell.rings),
            }
        }
    }

    /// Changes the turn, unless it has changed already.
    fn change_turn(&self, from: u32, to: u32) -> bool {
        let turn = &self.shared().turn;
        turn.compare_exchange(from, to, Ordering::SeqCst, Ordering::SeqCst)
            .is_ok()
    }

    /// Syncs the segments of `from..to` and says that everything before `durable` is durable. A failure is the end of
    /// the log.
    pub(crate) fn sync_range(&self, from: Lsn, to: Lsn, durable: Lsn) -> Result<()> {
        let _one_at_a_time = self.syncing.lock().unwrap_or_else(PoisonError::into_inner);
        if self.is_poisoned() {
            return Err(Error::Poisoned);
        }
        self.sync_files(from, to)
            .inspect_err(|_| self.poison_after_sync())?;
        self.shared().made_durable(durable);
        Ok(())
    }

    /// Makes what was written to the segments of `from..to` durable.
    pub(crate) fn sync_files(&self, from: Lsn, to: Lsn) -> Result<()> {
        if self.guards.has(Guard::SyncRecords) {
            self.ring.sync(from, to)?;
        }
        Ok(())
    }

    pub(crate) fn poison_after_sync(&self) {
        if self.guards.has(Guard::PoisonOnFailedSync) {
            self.poison();
        }
    }

    /// Ends all use of the log and tells everybody who waits.
    pub(crate) fn poison(&self) {
        self.shared().poison();
        // Those who sleep would learn of it at the end of the turn anyway, unless it is not our turn.
        self.ring(0, For::All);
        self.ring(1, For::All);
    }
}

/// The number of the sync under way in this turn, or of the next one.
const fn sync_of(turn: u32) -> u32 {
    turn >> 1
}

const fn bell_of(sync: u32) -> usize {
    (sync & 1) as usize
}

const fn is_led(turn: u32) -> bool {
    turn % 2 == 1
}

#[cfg(all(test, not(shuttle)))]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::io::IoSlice;
    use std::sync::Arc;

    use super::*;
    use crate::storage::{Memory, OpenMode, Storage};
    use crate::sync::AtomicU64;
    use crate::{LogId, Options, Position, Shared};

    fn new_log() -> (Wal, Arc<Shared>) {
        let storage: Arc<dyn Storage> = Arc::new(Memory::new());
        let options = Options {
            segment_bytes: 8192,
            segments: 2,
        };
        Wal::create(&storage, "log", LogId([0; 16]), &options).unwrap();
        let shared = Arc::new(Shared::default());
        let log = Wal::open(&storage, "log", OpenMode::Write, shared.clone()).unwrap();
        (log, shared)
    }

    #[test]
    fn a_leader_that_was_killed_is_replaced() {
        let (log, shared) = new_log();
        let mut records = log.records(Position::START).unwrap();
        assert!(records.next().unwrap().is_none());
        log.start(Lsn(0), &records).unwrap();
        // Somebody began to lead and never came back; even at the last number there is.
        for turn in [1, u32::MAX] {
            shared.turn.store(turn, Ordering::SeqCst);
            let end = log.append(&[IoSlice::new(b"record")]).unwrap();
            std::thread::scope(|scope| {
                for _ in 0..3 {
                    scope.spawn(|| log.sync_to(end.lsn).unwrap());
                }
            });
            assert!(!is_led(shared.turn.load(Ordering::SeqCst)));
        }
    }

    #[test]
    fn a_leader_that_was_killed_while_it_wrote_is_noticed() {
        const DEAD: u16 = 7;
        let (log, shared) = new_log();
        let words: Vec<AtomicU64> = (0..1024).map(|_| AtomicU64::new(0)).collect();
        log.share_buffer(Arc::new(words), false, 0, |process| process != DEAD);
        let mut records = log.records(Position::START).unwrap();
        assert!(records.next().unwrap().is_none());
        log.start(Lsn(0), &records).unwrap();
        shared.turn.store(1, Ordering::SeqCst);
        assert_eq!(log.wait_for_end_of(1, 1), Waited::TooLong);
        shared.writing.lock(DEAD, |_| true);
        assert_eq!(log.wait_for_end_of(1, 1), Waited::LeaderDied);
        let end = log.append_buffered(&[IoSlice::new(b"record")]).unwrap();
        assert!(log.is_syncing());
        log.sync_to(end.lsn).unwrap();
        assert!(!log.is_syncing());
        assert_eq!(log.durable(), end.lsn);
        assert_eq!(shared.writing.owner(), None);
    }
}
