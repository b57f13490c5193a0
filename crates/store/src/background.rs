//! What happens beside commits: checkpoints when the log has grown or nobody commits, syncs for commits that nobody
//! waits for, growth of the file and the log ahead of need, and compaction of a store that rests, or that has long had
//! more free pages than its writers use.

use std::cell::Cell;
use std::time::{Duration, Instant};

use crate::compact;
use crate::env::background::Work;
use crate::env::{Env, Inner};
use crate::ids::CommitNo;
use crate::log::checkpoint;
use crate::sync::{Arc, Weak, lock};
use crate::txn::pages::Workshop;

/// A compaction that was of no use, such as one beside a reader that keeps pages, is tried again after twice the time,
/// at most this.
const COMPACTION_WAIT_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// Where others write, compaction takes one part in so many of the time, and of the writer lock.
const CLEANING_SHARE: u32 = 11;

/// So often in a row free pages are counted before those count as a surplus that there were each time.
const COUNTS: u32 = if cfg!(test) { 2 } else { 8 };

/// Counting takes one part in so many of the time at most.
const COUNTING_SHARE: u32 = 200;

/// The least surplus worth a compaction, in pages, and as a share of those that are in use.
const SURPLUS_MIN: u64 = if cfg!(test) { 64 } else { 4096 };
const SURPLUS_SHARE: u64 = 4;

/// The free pages that writers have left unused for a while.
struct Surplus {
    /// The fewest that there were.
    least: u64,
    counts: u32,
    /// How many are counted before they are given up: more after each time that this was of no use.
    wanted: u32,
    next: Instant,
}

impl Surplus {
    fn new() -> Self {
        Self {
            least: u64::MAX,
            counts: 0,
            wanted: COUNTS,
            next: Instant::now(),
        }
    }

    /// Counts once more, unless that was a moment ago; gives a surplus that is worth a compaction, in pages.
    fn count(&mut self, inner: &Arc<Inner>) -> Option<u64> {
        let start = Instant::now();
        if inner.options.idle_compaction.is_none() || start < self.next {
            return None;
        }
        let pages = compact::count_pages(inner).ok()?;
        self.next = start + start.elapsed() * COUNTING_SHARE;
        self.least = self.least.min(pages.ready);
        self.counts += 1;
        if self.counts < self.wanted {
            return None;
        }
        let surplus = self.least;
        (self.least, self.counts) = (u64::MAX, 0);
        (surplus > SURPLUS_MIN.max(pages.used / SURPLUS_SHARE)).then_some(surplus)
    }

    /// Waits longer before the next time if this one was of no use.
    fn note(&mut self, is_smaller: bool) {
        self.wanted = match is_smaller {
            true => COUNTS,
            false => self.wanted.saturating_mul(2),
        };
    }
}

/// Does what is asked for until it is told to stop.
pub(crate) fn run(inner: &Weak<Inner>, idle: Duration) {
    // The one that ends the thread keeps the environment until it has ended.
    let Some(inner) = inner.upgrade() else {
        return;
    };
    let mut compacted = None;
    let mut surplus = Surplus::new();
    while let Some(work) = inner.background.wait(&inner, idle) {
        let is_moment_over = matches!(work, Work::Sync | Work::Settle);
        match work {
            Work::Settle => {
                drop(checkpoint::settle(&inner));
                ask_for_compaction_if_due(&inner, compacted);
                let mut shop = lock(&inner.workshop);
                if let Some(shop) = shop.as_mut().and_then(|shop| shop.downcast_mut()) {
                    Workshop::rest(shop);
                }
            }
            Work::Compaction(after) => {
                let may_go_on = |newest| {
                    !inner.background.is_asked_to_stop() && inner.region.applied() == newest
                };
                let env = Env::in_background(&inner);
                drop(compact::compact(&env, 0, &mut |_| (), &may_go_on));
                compacted = Some((inner.region.applied(), after));
                ask_for_compaction_if_due(&inner, compacted);
            }
            urgent => serve(&inner, urgent),
        }
        if is_moment_over && let Some(pages) = surplus.count(&inner) {
            surplus.note(clean(&inner, pages, idle));
        }
    }
}

/// Does what does not take long. What fails here fails again, and is told, where somebody waits for it.
fn serve(inner: &Inner, work: Work) {
    match work {
        Work::Checkpoint => drop(checkpoint::checkpoint_due(inner)),
        Work::Growth => inner.grow_ahead(),
        Work::LogSegment => inner.make_log_segment_if_due(),
        // What cannot be written now stays in memory, and is tried again when there is no room for more.
        Work::LogWrite => drop(inner.wal.as_ref().map(|wal| wal.write_through())),
        Work::Sync => drop(inner.sync()),
        Work::Settle | Work::Compaction(_) => {}
    }
}

/// Compacts while others write, who keep what they use beside this surplus; whether the store has become smaller.
fn clean(inner: &Arc<Inner>, surplus: u64, idle: Duration) -> bool {
    let Ok(pages) = compact::count_pages(inner) else {
        return false;
    };
    let began = Cell::new(Instant::now());
    let may_go_on = |_| {
        let worked = began.get().elapsed();
        let end = Instant::now() + worked * (CLEANING_SHARE - 1);
        loop {
            let until = end.min(Instant::now() + idle.max(Duration::from_millis(1)));
            match inner.background.pause(until) {
                Some(work) => serve(inner, work),
                // Commits that nobody waits for do not stay without the disk for longer than otherwise.
                None if until < end => serve(inner, Work::Sync),
                None => break,
            }
            if inner.background.is_asked_to_stop() {
                return false;
            }
        }
        began.set(Instant::now());
        !inner.background.is_asked_to_stop()
    };
    let kept = pages.free.saturating_sub(surplus);
    let env = Env::in_background(inner);
    compact::compact(&env, kept, &mut |_| (), &may_go_on).is_ok_and(|done| done.now < done.before)
}

/// `compacted` says with which commit the last compaction ended, and after how long without a commit it had begun.
fn ask_for_compaction_if_due(inner: &Arc<Inner>, compacted: Option<(CommitNo, Duration)>) {
    let after = match (inner.options.idle_compaction, compacted) {
        (None, _) => return,
        (Some(_), Some((commit, after))) if commit == inner.region.applied() => {
            (after * 2).min(COMPACTION_WAIT_MAX)
        }
        (Some(after), _) => after,
    };
    let is_due = compact::is_due(inner).unwrap_or(false);
    inner.background.plan_compaction(is_due.then_some(after));
}
