//! What the background thread of a process is asked for.

use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::env::Inner;
use crate::error::Result;
use crate::ids::CommitNo;
use crate::sync::{Arc, AtomicBool, Condvar, Mutex, Ordering, PoisonError, Weak, lock};

/// The background thread of one process and what it is asked for. It exists from the first write transaction on.
pub(crate) struct Background {
    /// What the thread does until it is told to stop.
    work: fn(&Weak<Inner>, Duration),
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
    /// When there will have been a while since which commit.
    quiet: Option<(Instant, CommitNo)>,
}

impl Background {
    /// What is asked for will be done by `work`.
    pub(crate) fn new(work: fn(&Weak<Inner>, Duration)) -> Self {
        Self {
            work,
            asked: Mutex::default(),
            changed: Condvar::default(),
            restless: AtomicBool::default(),
            thread: Mutex::default(),
        }
    }

    /// Starts the thread, unless it runs already or is not wanted.
    pub(crate) fn start(inner: &Arc<Inner>) -> Result<()> {
        let this = &inner.background;
        let Some(idle) = inner.options.idle_checkpoint else {
            return Ok(());
        };
        let mut thread = lock(&this.thread);
        if thread.is_none() && inner.wal.is_some() {
            let (inner, work) = (Arc::downgrade(inner), this.work);
            // What was left undone before is looked for too.
            this.restless.store(true, Ordering::Release);
            let builder = std::thread::Builder::new().name("sapwood-checkpoint".into());
            *thread = Some(builder.spawn(move || work(&inner, idle))?);
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
        self.ask(|asked| &mut asked.growth);
    }

    pub(crate) fn ask_for_log_segment(&self) {
        self.ask(|asked| &mut asked.log_segment);
    }

    pub(crate) fn ask_for_log_write(&self) {
        self.ask(|asked| &mut asked.log_write);
    }

    fn ask(&self, what: impl FnOnce(&mut Asked) -> &mut bool) {
        let mut asked = lock(&self.asked);
        if !std::mem::replace(what(&mut asked), true) {
            drop(asked);
            self.changed.notify_one();
        }
    }

    /// After how long without a commit the store is to be compacted. For the thread itself.
    pub(crate) fn plan_compaction(&self, after: Option<Duration>) {
        lock(&self.asked).compaction = after;
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

    /// Waits until something is asked for, or until there has been no commit for a while. `None` when it is time to
    /// stop.
    pub(crate) fn wait(&self, inner: &Inner, idle: Duration) -> Option<Work> {
        let mut asked = lock(&self.asked);
        loop {
            if asked.stop {
                return None;
            }
            if let Some(work) = asked.urgent() {
                return Some(work);
            }
            if self.restless.load(Ordering::Acquire) {
                let since = || (Instant::now() + idle, inner.region.applied());
                let (end, before) = *asked.quiet.get_or_insert_with(since);
                let left = end.saturating_duration_since(Instant::now());
                let waited = self.changed.wait_timeout(asked, left);
                let (guard, waited) = waited.unwrap_or_else(PoisonError::into_inner);
                asked = guard;
                if waited.timed_out() {
                    asked.quiet = None;
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
                let waited = self.changed.wait(asked);
                asked = waited.unwrap_or_else(PoisonError::into_inner);
            }
        }
    }

    /// As [`Background::wait`], for the one that pauses in something long: waits until something is asked for that
    /// cannot be put off, or until then. `None` then, or when it is time to stop.
    pub(crate) fn pause(&self, until: Instant) -> Option<Work> {
        let mut asked = lock(&self.asked);
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if asked.stop || left.is_zero() {
                return None;
            }
            if let Some(work) = asked.urgent() {
                return Some(work);
            }
            let waited = self.changed.wait_timeout(asked, left);
            asked = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    pub(crate) fn is_asked_to_stop(&self) -> bool {
        lock(&self.asked).stop
    }
}

impl Asked {
    /// The first of what others wait for, or may soon.
    fn urgent(&mut self) -> Option<Work> {
        let mut all = [
            (&mut self.log_write, Work::LogWrite),
            (&mut self.log_segment, Work::LogSegment),
            (&mut self.checkpoint, Work::Checkpoint),
            (&mut self.growth, Work::Growth),
        ]
        .into_iter();
        all.find_map(|(is_asked, work)| std::mem::take(is_asked).then_some(work))
    }
}

/// What the thread is to do next.
pub(crate) enum Work {
    Checkpoint,
    Growth,
    LogSegment,
    LogWrite,
    /// Commits that nobody waits for do not stay without the disk for long.
    Sync,
    Settle,
    /// After so long without a commit.
    Compaction(Duration),
}
