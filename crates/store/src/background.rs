//! What happens beside commits: checkpoints when the log has grown or nobody commits, syncs for commits that nobody waits for, and growth of the file and the log ahead of need.

use std::thread::JoinHandle;
use std::time::Duration;

use crate::checkpoint;
use crate::env::Inner;
use crate::error::Result;
use crate::sync::{Arc, AtomicBool, Condvar, Mutex, Ordering, PoisonError, Weak, lock};

/// The background thread of one process and what it is asked for. It exists from the first write transaction on.
#[derive(Default)]
pub(crate) struct Background {
    asked: Mutex<Asked>,
    changed: Condvar,
    /// There have been commits since the last settling, so that the thread looks for a quiet moment.
    restless: AtomicBool,
    thread: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Default)]
struct Asked {
    stop: bool,
    checkpoint: bool,
    growth: bool,
    log_segment: bool,
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

    /// Ends the thread and waits for it.
    pub(crate) fn stop(&self) {
        lock(&self.asked).stop = true;
        self.changed.notify_all();
        if let Some(thread) = lock(&self.thread).take() {
            // It has nothing to say; a panic has been reported already.
            let _: std::thread::Result<()> = thread.join();
        }
    }

    /// Waits until something is asked for, or until there has been no commit for a while. `None` when it is time to stop.
    fn wait(&self, inner: &Inner, idle: Duration) -> Option<Work> {
        let mut asked = lock(&self.asked);
        loop {
            if asked.stop {
                return None;
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
                let before = inner.region.applied();
                let waited = self.changed.wait_timeout(asked, idle);
                let (guard, waited) = waited.unwrap_or_else(PoisonError::into_inner);
                asked = guard;
                if waited.timed_out() {
                    if inner.region.applied() != before {
                        return Some(Work::Sync);
                    }
                    self.restless.store(false, Ordering::Release);
                    return Some(Work::Settle);
                }
            } else {
                asked = self
                    .changed
                    .wait(asked)
                    .unwrap_or_else(PoisonError::into_inner);
            }
        }
    }
}

enum Work {
    Checkpoint,
    Growth,
    LogSegment,
    /// Commits that nobody waits for do not stay without the disk for long.
    Sync,
    Settle,
}

fn run(inner: &Weak<Inner>, idle: Duration) {
    // Whoever ends the thread keeps the environment until it has ended.
    let Some(inner) = inner.upgrade() else {
        return;
    };
    while let Some(work) = inner.background.wait(&inner, idle) {
        // What fails here fails again, and is told, where somebody waits for it.
        match work {
            Work::Checkpoint => drop(checkpoint::checkpoint_due(&inner)),
            Work::Growth => inner.grow_ahead(),
            Work::LogSegment => inner.make_log_segment_if_due(),
            Work::Sync => drop(inner.sync()),
            Work::Settle => {
                drop(checkpoint::settle(&inner));
                if let Some(shop) = lock(&inner.workshop).as_mut() {
                    shop.rest();
                }
            }
        }
    }
}
