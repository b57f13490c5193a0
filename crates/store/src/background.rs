//! What happens beside commits: checkpoints when the log has grown or nobody commits, syncs for commits that nobody waits for, growth of the file
//! and the log ahead of need, and compaction of a store that rests.

use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::compact;
use crate::env::{Env, Inner};
use crate::error::Result;
use crate::ids::CommitNo;
use crate::log::checkpoint;
use crate::sync::{Arc, AtomicBool, Condvar, Mutex, Ordering, PoisonError, Weak, lock};

/// The background thread of one process and what it is asked for. It exists from the first write transaction on.
#[derive(Default)]
pub(crate) struct Background {
    asked: Mutex<Asked>,
    changed: Condvar,
    /// There may have been commits since the last settling, so that the thread looks for a quiet moment.
    restless: AtomicBool,
    thread: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Default)]
struct Asked {
    stop: bool,
    checkpoint: bool,
    growth: bool,
    log_segment: bool,
    log_write: bool,
    /// After how long without a commit.
    compaction: Option<Duration>,
}

impl Background {
    /// Starts the thread, unless it runs already or is not wanted.
    pub(crate) fn start(inner: &Arc<Inner>) -> Result<()> {
        let this = &inner.background;
        let Some(idle) = inner.options.idle_checkpoint else {
            return Ok(());
        };
        let mut thread = lock(&this.thread);
        if thread.is_none() && inner.wal.is_some() {
            let inner = Arc::downgrade(inner);
            // What was left undone before is looked for too.
            this.restless.store(true, Ordering::Release);
            let builder = std::thread::Builder::new().name("sapwood-checkpoint".into());
            *thread = Some(builder.spawn(move || run(&inner, idle))?);
        }
        Ok(())
    }

    /// Says that there was a commit; `is_due` whether it left the log so long that a checkpoint is wanted now.
    pub(crate) fn committed(&self, is_due: bool) {
        if !self.restless.swap(true, Ordering::AcqRel) || is_due {
            let mut asked = lock(&self.asked);
            if is_due && asked.checkpoint {
                return;
            }
            asked.checkpoint |= is_due;
            drop(asked);
            self.changed.notify_one();
        }
    }

    pub(crate) fn ask_for_growth(&self) {
        let mut asked = lock(&self.asked);
        if !std::mem::replace(&mut asked.growth, true) {
            drop(asked);
            self.changed.notify_one();
        }
    }

    pub(crate) fn ask_for_log_segment(&self) {
        let mut asked = lock(&self.asked);
        if !std::mem::replace(&mut asked.log_segment, true) {
            drop(asked);
            self.changed.notify_one();
        }
    }

    pub(crate) fn ask_for_log_write(&self) {
        let mut asked = lock(&self.asked);
        if !std::mem::replace(&mut asked.log_write, true) {
            drop(asked);
            self.changed.notify_one();
        }
    }

    /// Ends the thread and waits for it.
    pub(crate) fn stop(&self) {
        lock(&self.asked).stop = true;
        self.changed.notify_all();
        // Not under the lock: the thread takes it for its own transactions.
        let thread = lock(&self.thread).take();
        if let Some(thread) = thread {
            // It has nothing to say; a panic has been reported already.
            let _: std::thread::Result<()> = thread.join();
        }
    }

    /// Waits until something is asked for, or until there has been no commit for a while. `None` when it is time to stop.
    fn wait(&self, inner: &Inner, idle: Duration) -> Option<Work> {
        let mut asked = lock(&self.asked);
        // When there will have been a while since which commit.
        let mut quiet = None;
        loop {
            if asked.stop {
                return None;
            }
            if std::mem::take(&mut asked.log_write) {
                drop(asked);
                // What cannot be written now stays in memory, and is tried again when there is no room for more.
                let _: Option<sapwood_wal::Result<()>> =
                    inner.wal.as_ref().map(|wal| wal.write_through());
                asked = lock(&self.asked);
                continue;
            }
            if std::mem::take(&mut asked.log_segment) {
                return Some(Work::LogSegment);
            }
            if std::mem::take(&mut asked.checkpoint) {
                return Some(Work::Checkpoint);
            }
            if std::mem::take(&mut asked.growth) {
                return Some(Work::Growth);
            }
            if self.restless.load(Ordering::Acquire) {
                let since = || (Instant::now() + idle, inner.region.applied());
                let (end, before) = *quiet.get_or_insert_with(since);
                let left = end.saturating_duration_since(Instant::now());
                let waited = self.changed.wait_timeout(asked, left);
                let (guard, waited) = waited.unwrap_or_else(PoisonError::into_inner);
                asked = guard;
                if waited.timed_out() {
                    if inner.region.applied() != before {
                        return Some(Work::Sync);
                    }
                    self.restless.store(false, Ordering::Release);
                    return Some(Work::Settle);
                }
            } else if let Some(after) = asked.compaction {
                let before = inner.region.applied();
                let waited = self.changed.wait_timeout(asked, after);
                let (guard, waited) = waited.unwrap_or_else(PoisonError::into_inner);
                asked = guard;
                if waited.timed_out() && inner.region.applied() == before {
                    asked.compaction = None;
                    return Some(Work::Compaction(after));
                }
            } else {
                asked = self
                    .changed
                    .wait(asked)
                    .unwrap_or_else(PoisonError::into_inner);
            }
        }
    }

    fn is_asked_to_stop(&self) -> bool {
        lock(&self.asked).stop
    }
}

enum Work {
    Checkpoint,
    Growth,
    LogSegment,
    /// Commits that nobody waits for do not stay without the disk for long.
    Sync,
    Settle,
    /// After so long without a commit.
    Compaction(Duration),
}

/// A compaction that was of no use, such as one beside a reader that keeps pages, is tried again after twice the time, at most this.
const COMPACTION_WAIT_MAX: Duration = Duration::from_secs(24 * 60 * 60);

fn run(inner: &Weak<Inner>, idle: Duration) {
    // Whoever ends the thread keeps the environment until it has ended.
    let Some(inner) = inner.upgrade() else {
        return;
    };
    let mut compacted = None;
    while let Some(work) = inner.background.wait(&inner, idle) {
        // What fails here fails again, and is told, where somebody waits for it.
        match work {
            Work::Checkpoint => drop(checkpoint::checkpoint_due(&inner)),
            Work::Growth => inner.grow_ahead(),
            Work::LogSegment => inner.make_log_segment_if_due(),
            Work::Sync => drop(inner.sync()),
            Work::Settle => {
                drop(checkpoint::settle(&inner));
                ask_for_compaction_if_due(&inner, compacted);
                if let Some(shop) = lock(&inner.workshop).as_mut() {
                    shop.rest();
                }
            }
            Work::Compaction(after) => {
                let may_go_on = |newest| {
                    !inner.background.is_asked_to_stop() && inner.region.applied() == newest
                };
                let env = Env::in_background(&inner);
                drop(compact::compact(&env, &mut |_| (), &may_go_on));
                compacted = Some((inner.region.applied(), after));
                ask_for_compaction_if_due(&inner, compacted);
            }
        }
    }
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
    lock(&inner.background.asked).compaction = is_due.then_some(after);
}
