//! Group commit: how a record becomes durable.
//!
//! Whoever waits while nobody syncs becomes the *leader*: it syncs everything that has been appended so far, says so, and wakes the
//! others. Whoever comes while the leader syncs waits for it to finish; by then more records have been appended, and one of
//! those still waiting leads the next sync. There is no timer: the group is whatever came in while the disk was busy.
//!
//! `Shared::turn` is the whole protocol. It is odd while somebody leads, it changes with every beginning and end, and everybody
//! else sleeps on it. Leading is a courtesy and no lock: two who sync at the same time do no harm, since each one says only what
//! its own sync has shown. So a leader that was killed is simply replaced by whoever loses patience first.

use std::time::Duration;

use crate::Lsn;
use crate::error::{Error, Result};
use crate::guard::Guard;
use crate::log::Wal;
use crate::shared::State;
use crate::sync::{self, Ordering, PoisonError};

/// How long a follower waits for one and the same leader before it leads itself, in case the leader was killed.
const LEADER_PATIENCE: Duration = Duration::from_secs(1);

impl Wal {
    /// Waits until everything before `lsn` is durable, which is what [`Wal::append`] returned. All who wait at the same time, in
    /// this process and others, share a sync.
    ///
    /// # Errors
    /// [`Error::Io`] for the one whose sync failed and [`Error::Poisoned`] for everybody else, from then on: what was not durable before
    /// may or may not be after the next recovery. [`Error::NotInLog`] if nothing was appended there.
    pub fn sync_to(&self, lsn: Lsn) -> Result<()> {
        let shared = self.shared();
        loop {
            if shared.durable() >= lsn {
                return Ok(());
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
            if is_led(turn) && self.wait_for_end_of(turn) {
                continue;
            }
            // An odd turn here is one whose leader has taken too long.
            let mine = turn.wrapping_add(if is_led(turn) { 2 } else { 1 });
            if self.change_turn(turn, mine) {
                let end = shared.end();
                let synced = self.sync_range(shared.durable(), end, end);
                // This does nothing if somebody has lost patience with us.
                self.change_turn(mine, mine.wrapping_add(1));
                synced?;
            }
        }
    }

    /// Whether the turn has changed in time.
    fn wait_for_end_of(&self, turn: u32) -> bool {
        let shared = self.shared();
        shared.sleepers.fetch_add(1, Ordering::SeqCst);
        let started = std::time::Instant::now();
        let changed = loop {
            if shared.turn.load(Ordering::SeqCst) != turn {
                break true;
            }
            let waited = started.elapsed();
            if waited >= LEADER_PATIENCE {
                break false;
            }
            sync::wait_while(&shared.turn, turn, LEADER_PATIENCE - waited);
        };
        shared.sleepers.fetch_sub(1, Ordering::SeqCst);
        changed
    }

    /// Changes the turn, unless it has changed already, and wakes those who wait for the end of one.
    fn change_turn(&self, from: u32, to: u32) -> bool {
        let shared = self.shared();
        let changed = shared
            .turn
            .compare_exchange(from, to, Ordering::SeqCst, Ordering::SeqCst)
            .is_ok();
        let ended = changed && !is_led(to);
        if ended
            && shared.sleepers.load(Ordering::SeqCst) > 0
            && self.guards.has(Guard::WakeFollowers)
        {
            sync::wake_all(&shared.turn);
        }
        changed
    }

    /// Syncs the segments of `from..to` and says that everything before `durable` is durable. A failure is the end of the log.
    pub(crate) fn sync_range(&self, from: Lsn, to: Lsn, durable: Lsn) -> Result<()> {
        let _one_at_a_time = self.syncing.lock().unwrap_or_else(PoisonError::into_inner);
        if self.is_poisoned() {
            return Err(Error::Poisoned);
        }
        if self.guards.has(Guard::SyncRecords) {
            self.ring.sync(from, to).inspect_err(|_| {
                if self.guards.has(Guard::PoisonOnFailedSync) {
                    self.poison();
                }
            })?;
        }
        self.shared().made_durable(durable);
        Ok(())
    }

    /// Ends all use of the log and tells everybody who waits.
    pub(crate) fn poison(&self) {
        let shared = self.shared();
        shared.poison();
        // Those who sleep would learn of it at the end of the turn anyway, unless it is not our turn.
        sync::wake_all(&shared.turn);
    }
}

const fn is_led(turn: u32) -> bool {
    turn % 2 == 1
}

#[cfg(all(test, not(feature = "shuttle")))]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::io::IoSlice;
    use std::sync::Arc;

    use super::*;
    use crate::storage::{Memory, OpenMode, Storage};
    use crate::{LogId, Options, Position, Shared};

    #[test]
    fn a_leader_that_was_killed_is_replaced() {
        let storage: Arc<dyn Storage> = Arc::new(Memory::new());
        let options = Options {
            segment_bytes: 8192,
            segments: 2,
        };
        Wal::create(&storage, "log", LogId([0; 16]), &options).unwrap();
        let shared = Arc::new(Shared::default());
        let log = Wal::open(&storage, "log", OpenMode::Write, shared.clone()).unwrap();
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
}
