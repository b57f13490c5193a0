//! Who shares a sync: the leader waits a moment for those whose sync has just ended.
//!
//! Programs that commit one transaction after the other would fall into two groups for ever, each of which works while
//! the disk is busy with the other, and each commit would take two syncs. But those who are done mostly come back in
//! far less time than a sync takes. So the one that leads the next sync first waits until as many have come as there
//! were in the last one; then all of them share it, the disk is asked half as often, and each commit waits for one sync
//! only.
//!
//! It waits for half a sync at most, and not at all where one process or thread commits alone. When that was in vain,
//! so that those who waited with it have lost more time than those who came have gained, it leaves off for some syncs,
//! and for twice as many each time.
//!
//! What is synced, and who is told, does not depend on it. Counts that are wrong because somebody was killed, or
//! because two lead at once, cost one such wait.

use std::time::{Duration, Instant};

use crate::sync::{self, AtomicU64, Ordering};

/// The longest wait, however long a sync takes: the leader stays awake.
const WAIT_MAX: Duration = Duration::from_micros(100);

/// How often it looks at most. (A model checker has no time.)
const LOOKS_MAX: u32 = if cfg!(shuttle) { 2 } else { u32::MAX };

/// A leader that has waited in vain so often in a row leaves it off for 2 to the power of so many syncs.
const MISSES_MAX: u64 = 8;

/// What is known of those who share syncs.
#[derive(Debug, Default)]
#[repr(C)]
pub(crate) struct Group {
    /// How often somebody had to wait for a sync.
    asked: AtomicU64,
    /// What that was when the last sync began.
    covered: AtomicU64,
    /// What it will be when all have come back whom the last sync has served.
    expected: AtomicU64,
    /// How many it has served.
    served: AtomicU64,
    /// How long it took, in nanoseconds.
    duration: AtomicU64,
    /// How often waiting was in vain since it last was not.
    misses: AtomicU64,
    /// For how many syncs nobody is to wait.
    pause: AtomicU64,
}

impl Group {
    /// Says that somebody waits whose record is in the log.
    pub(crate) fn ask(&self) {
        self.asked.fetch_add(1, Ordering::SeqCst);
    }

    /// Says how long the sync has taken that ends now. For the one that leads, before anybody is woken.
    pub(crate) fn synced(&self, duration: Duration) {
        let nanoseconds = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        self.duration.store(nanoseconds, Ordering::Relaxed);
        let served = self.served.load(Ordering::Relaxed);
        let expected = self.asked.load(Ordering::SeqCst).wrapping_add(served);
        self.expected.store(expected, Ordering::Relaxed);
    }

    /// Whether the one that leads should wait for others, and how long at most.
    fn patience(&self) -> Option<Duration> {
        if self.missing() == 0 {
            return None;
        }
        let pause = self.pause.load(Ordering::Relaxed);
        if let Some(left) = pause.checked_sub(1) {
            self.pause.store(left, Ordering::Relaxed);
            return None;
        }
        let half = Duration::from_nanos(self.duration.load(Ordering::Relaxed) / 2);
        Some(half.min(WAIT_MAX))
    }

    /// How many have not come back; of counts that make no sense, none.
    fn missing(&self) -> u64 {
        let expected = self.expected.load(Ordering::Relaxed);
        let missing = expected.wrapping_sub(self.asked.load(Ordering::SeqCst));
        let is_possible = missing <= self.served.load(Ordering::Relaxed);
        if is_possible { missing } else { 0 }
    }

    /// Learns from a wait, before which so many had asked.
    fn learn(&self, before: u64, waited: Duration) {
        let came = self.asked.load(Ordering::SeqCst).wrapping_sub(before);
        let were_there = before.wrapping_sub(self.covered.load(Ordering::Relaxed));
        let lost = u128::from(were_there) * waited.as_nanos();
        let gained = u128::from(came) * u128::from(self.duration.load(Ordering::Relaxed));
        let misses = match gained < lost {
            true => MISSES_MAX.min(self.misses.load(Ordering::Relaxed) + 1),
            false => 0,
        };
        self.misses.store(misses, Ordering::Relaxed);
        let pause = if misses > 0 { 1 << misses } else { 0 };
        self.pause.store(pause, Ordering::Relaxed);
    }

    /// For the one that leads: waits for those who may come back in a moment, if that seems worth it, unless it is in
    /// vain. `begun` is called before.
    pub(crate) fn wait(&self, begun: impl FnOnce(), is_in_vain: impl Fn() -> bool) {
        let Some(patience) = self.patience() else {
            return;
        };
        let before = self.asked.load(Ordering::SeqCst);
        begun();
        let started = Instant::now();
        let mut looks = 0;
        while self.missing() > 0
            && looks < LOOKS_MAX
            && started.elapsed() < patience
            && !is_in_vain()
        {
            looks += 1;
            // They need the processor, perhaps this one.
            sync::yield_now();
        }
        self.learn(before, started.elapsed());
    }

    /// Says that those take part in a sync who have come so far.
    pub(crate) fn close(&self) {
        let asked = self.asked.load(Ordering::SeqCst);
        let covered = self.covered.swap(asked, Ordering::Relaxed);
        let served = asked.wrapping_sub(covered);
        self.served.store(served, Ordering::Relaxed);
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;

    const SYNC: Duration = Duration::from_micros(100);

    /// One sync with all who have come so far.
    fn sync(group: &Group) {
        group.close();
        group.synced(SYNC);
    }

    fn ask(group: &Group, times: usize) {
        (0..times).for_each(|_| group.ask());
    }

    #[test]
    fn who_is_alone_does_not_wait() {
        let group = Group::default();
        for _ in 0..10 {
            group.ask();
            assert_eq!(group.patience(), None);
            sync(&group);
        }
    }

    #[test]
    fn those_are_awaited_whom_the_last_sync_has_served() {
        let group = Group::default();
        ask(&group, 2);
        group.close();
        // Two more come while the disk is busy, one of whom leads then.
        ask(&group, 2);
        group.synced(SYNC);
        assert_eq!(group.missing(), 2);
        assert_eq!(group.patience(), Some(SYNC / 2));
        ask(&group, 2);
        assert_eq!((group.missing(), group.patience()), (0, None));
        // From then on there are four in every sync, and the first of them to come back waits for three.
        sync(&group);
        group.ask();
        assert_eq!(group.missing(), 3);
        // A fifth does no harm.
        ask(&group, 4);
        assert_eq!((group.missing(), group.patience()), (0, None));
    }

    #[test]
    fn waits_in_vain_get_rare_until_one_is_not() {
        let group = Group::default();
        let mut without = 0;
        for misses in 1..=MISSES_MAX + 2 {
            ask(&group, 2);
            sync(&group);
            group.ask();
            let mut pause = 0;
            while group.patience().is_none() {
                pause += 1;
            }
            assert_eq!(pause, without, "after {} misses", misses - 1);
            let before = group.asked.load(Ordering::SeqCst);
            group.learn(before, SYNC / 2);
            without = 1 << misses.min(MISSES_MAX);
        }
        let before = group.asked.load(Ordering::SeqCst);
        ask(&group, 1);
        group.learn(before, SYNC / 4);
        ask(&group, 2);
        sync(&group);
        assert!(group.patience().is_some());
    }

    #[test]
    fn counts_of_the_dead_are_forgotten() {
        let group = Group::default();
        ask(&group, 3);
        sync(&group);
        // Two were killed, so that the next sync begins without them.
        group.ask();
        assert_eq!(group.missing(), 2);
        sync(&group);
        group.ask();
        assert_eq!(group.patience(), None);
    }

    #[test]
    fn slow_disks_are_not_waited_for_longer() {
        let group = Group::default();
        ask(&group, 2);
        group.close();
        group.synced(Duration::from_secs(1));
        assert_eq!(group.patience(), Some(WAIT_MAX));
    }
}
