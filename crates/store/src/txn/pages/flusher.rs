//! The thread that finishes pages of large transactions while their writer goes on: it seals them, makes what the log
//! record says of them, and writes them to their places in the file.
//!
//! Pages are handed over in batches. The thread only reads them, and seals copies: the writer and others may look at a
//! page meanwhile, and a writer that changes it again gets a copy of its own. Batches are finished in the order in
//! which they were handed over, so that of a page that is handed over again the later contents stay.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::ops::Range;
use std::thread::JoinHandle;

use sapwood_wal::process::Membership;
use sapwood_wal::storage::File;

use super::{WRITTEN_PAGES, is_joined};
use crate::env::Inner;
use crate::error::Result;
use crate::format::page::{Origins, PAGE_BYTES, Page};
use crate::format::prefetch;
use crate::ids::PageNo;
use crate::log::record::{Base, encode_page};
use crate::sync::{
    Arc, AtomicBool, AtomicU64, AtomicUsize, Condvar, Mutex, Ordering, PoisonError, lock,
};

/// How many batches may wait. A writer that has more finishes them itself, as on a machine that is busy with something
/// else; until then it had better not: the system lets but one thread write to a file at a time, and a second one waits
/// busily.
const WAITING_BATCHES_MAX: usize = if cfg!(test) { 4 } else { 64 };

/// The thread is woken for so many batches, unless the writer waits for them: to wake it costs the writer some
/// microseconds.
const WAKING_BATCHES: usize = 3;

/// So many batches are kept for the transactions that follow, and of each so many bytes of the log record.
const BATCHES_KEPT: usize = if cfg!(test) { 2 } else { 128 };
const LOGGED_BYTES_KEPT: usize = 16 << 10;

/// How often the thread looks for another batch before it sleeps: a few microseconds, as long as it takes to wake it.
const LOOKS_BEFORE_SLEEP: usize = 100;

/// How often a writer looks whether the last batch is done before it sleeps: about as long as one takes.
const LOOKS_FOR_LAST: usize = 2000;

/// Pages to be finished, and what has come of it.
#[derive(Default)]
pub(super) struct Batch {
    serial: u64,
    /// Ascending, at most [`WRITTEN_PAGES`]; none any more when they are finished.
    pages: Vec<HandedPage>,
    is_logged: bool,
    /// How many pages the store had before.
    pages_before: u64,
    /// What the log record says of them.
    logged: Vec<u8>,
    /// Where each of them stands in that.
    items: Vec<(PageNo, Range<usize>)>,
    error: Option<io::Error>,
}

pub(super) struct HandedPage {
    pub(super) number: PageNo,
    pub(super) page: Arc<Page>,
    /// What it was copied from. The writer waits for all batches before its transaction ends, until when that stands
    /// still.
    pub(super) base: Option<(PageNo, &'static Page)>,
    pub(super) origins: Option<Origins>,
}

impl Batch {
    pub(super) fn serial(&self) -> u64 {
        self.serial
    }

    pub(super) fn add(&mut self, page: HandedPage) {
        self.pages.push(page);
    }

    /// What the log record says of its pages.
    pub(super) fn items(&self) -> impl Iterator<Item = (PageNo, &[u8])> {
        let items = self.items.iter();
        items.map(|(number, at)| (*number, &self.logged[at.clone()]))
    }

    fn clear(&mut self) {
        self.pages.clear();
        self.logged.clear();
        self.logged.shrink_to(LOGGED_BYTES_KEPT);
        self.items.clear();
        self.error = None;
    }

    fn finish(&mut self, file: &dyn File, copies: &mut [Page]) {
        self.error = self.try_finish(file, copies).err();
        // The writer may change them in their places from now on.
        self.pages.clear();
    }

    fn try_finish(&mut self, file: &dyn File, copies: &mut [Page]) -> io::Result<()> {
        let mut ahead = self.pages.iter();
        ahead.next().into_iter().for_each(HandedPage::fetch);
        let runs = self
            .pages
            .chunk_by(|one, next| is_joined(one.number, next.number, self.pages_before));
        for run in runs {
            let mut call = [IoSlice::new(&[]); WRITTEN_PAGES];
            for ((handed, copy), part) in run.iter().zip(&mut *copies).zip(&mut call) {
                ahead.next().into_iter().for_each(HandedPage::fetch);
                copy.bytes_mut().copy_from_slice(handed.page.bytes());
                copy.seal();
                if self.is_logged {
                    let from = self.logged.len();
                    encode_page(copy, handed.base(), &mut self.logged);
                    self.items.push((handed.number, from..self.logged.len()));
                }
                *part = IoSlice::new(copy.bytes());
            }
            if let Some(first) = run.first() {
                file.write_parts_at(&mut call[..run.len()], first.number.0 * PAGE_BYTES as u64)?;
            }
        }
        Ok(())
    }
}

impl HandedPage {
    fn base(&self) -> Option<Base<'_>> {
        let (number, page) = self.base?;
        Some(Base {
            number,
            page,
            origins: self.origins.as_ref(),
        })
    }

    /// Asks the processor for what it takes to finish the page.
    fn fetch(&self) {
        prefetch::page(&self.page);
        if let (Some((_, base)), Some(origins)) = (self.base, &self.origins) {
            origins.stored().for_each(|at| prefetch::part(base, at));
        }
    }
}

/// The writer's side.
pub(super) struct Flusher {
    shared: Arc<Shared>,
    file: Arc<dyn File>,
    membership: Arc<Membership>,
    thread: Thread,
    /// Of the newest batch.
    serial: u64,
    /// There were batches since the transaction began.
    is_used: bool,
    /// Where the writer seals what it finishes itself.
    copies: Vec<Page>,
    spare: Vec<Batch>,
}

enum Thread {
    /// There is none.
    Unwanted,
    /// It begins when it is needed.
    Wanted,
    Running(JoinHandle<()>),
}

#[derive(Default)]
struct Shared {
    queue: Mutex<Queue>,
    /// How many batches wait.
    waiting: AtomicUsize,
    /// How many were handed over and are not finished.
    unfinished: AtomicUsize,
    /// The newest batch that is finished. All before it are.
    done: AtomicU64,
    /// Bytes of log records so far.
    logged_bytes: AtomicUsize,
    stop: AtomicBool,
    /// A batch waits, or it is time to stop.
    asked: Condvar,
    /// A batch is finished.
    answered: Condvar,
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<Batch>,
    finished: Vec<Batch>,
    is_asleep: bool,
    is_awaited: bool,
    /// The thread has ended.
    is_over: bool,
}

impl Flusher {
    pub(super) fn new(inner: &Inner) -> Self {
        let is_wanted = inner.wal.is_some() && inner.options.idle_checkpoint.is_some();
        Self {
            shared: Arc::default(),
            file: inner.data.file.clone(),
            membership: inner.membership.clone(),
            thread: match is_wanted {
                true => Thread::Wanted,
                false => Thread::Unwanted,
            },
            serial: 0,
            is_used: false,
            copies: Vec::new(),
            spare: Vec::new(),
        }
    }

    /// Whether batches can be handed over; starts the thread, unless that is of no use. In unit tests batches may wait
    /// without one, which happens in the same order each time.
    pub(super) fn is_ready(&mut self) -> bool {
        if self.membership.is_forked() {
            return false;
        }
        if matches!(self.thread, Thread::Wanted) {
            let has_processor = || std::thread::available_parallelism().is_ok_and(|n| n.get() > 1);
            self.thread = match has_processor().then(|| self.start()) {
                Some(Ok(thread)) => Thread::Running(thread),
                // The writer does without.
                Some(Err(_)) | None => Thread::Unwanted,
            };
        }
        cfg!(test) || matches!(self.thread, Thread::Running(_))
    }

    fn start(&self) -> io::Result<JoinHandle<()>> {
        let (shared, file) = (self.shared.clone(), self.file.clone());
        let builder = std::thread::Builder::new().name("sapwood-finish".into());
        builder.spawn(move || shared.run(&*file))
    }

    /// An empty batch; `is_logged` says whether the log record is going to tell of its pages.
    pub(super) fn new_batch(&mut self, is_logged: bool, pages_before: u64) -> Batch {
        self.is_used = true;
        self.serial += 1;
        let mut batch = self.spare.pop().unwrap_or_default();
        batch.serial = self.serial;
        batch.is_logged = is_logged;
        batch.pages_before = pages_before;
        batch
    }

    /// Takes a batch that is not needed any more.
    pub(super) fn keep(&mut self, mut batch: Batch) {
        if self.spare.len() < BATCHES_KEPT {
            batch.clear();
            self.spare.push(batch);
        }
    }

    pub(super) fn has_room(&self) -> bool {
        self.shared.waiting.load(Ordering::Relaxed) < WAITING_BATCHES_MAX
    }

    /// Whether this batch and all before it are finished.
    pub(super) fn is_done(&self, serial: u64) -> bool {
        self.shared.done.load(Ordering::Acquire) >= serial
    }

    /// How many bytes there are of log records of all batches that are finished.
    pub(super) fn logged_bytes(&self) -> usize {
        self.shared.logged_bytes.load(Ordering::Relaxed)
    }

    /// Has a batch finished by the thread.
    pub(super) fn hand_over(&mut self, batch: Batch) {
        let mut queue = lock(&self.shared.queue);
        queue.waiting.push_back(batch);
        self.shared.unfinished.fetch_add(1, Ordering::Relaxed);
        let waiting = queue.waiting.len();
        self.shared.waiting.store(waiting, Ordering::Release);
        if queue.is_asleep && waiting >= WAKING_BATCHES {
            drop(queue);
            self.shared.asked.notify_one();
        }
    }

    /// Has the thread begin with what waits, however little that is.
    fn wake(&self) {
        let queue = lock(&self.shared.queue);
        if queue.is_asleep && !queue.waiting.is_empty() {
            drop(queue);
            self.shared.asked.notify_one();
        }
    }

    /// Finishes a batch at once. No older contents of its pages wait. An error is told by [`Flusher::take_back`], as
    /// those of the thread are.
    pub(super) fn finish(&mut self, batch: &mut Batch) {
        batch.finish(&*self.file, copies(&mut self.copies));
        self.shared.add_logged(batch);
    }

    /// Waits until this batch and all before it are finished.
    pub(super) fn wait_for(&mut self, serial: u64) -> Result<()> {
        if self.is_done(serial) || !self.is_used {
            return Ok(());
        }
        if !matches!(self.thread, Thread::Running(_)) {
            while !self.is_done(serial) && self.finish_waiting() {}
        } else {
            self.wake();
        }
        self.shared.wait_until(|shared| {
            shared.done.load(Ordering::Acquire) >= serial
                || shared.unfinished.load(Ordering::Acquire) == 0
        })
    }

    /// Waits until all batches are finished.
    pub(super) fn wait_for_all(&mut self) -> Result<()> {
        self.wait_for(u64::MAX)
    }

    /// Finishes the batches that wait, together with the thread, and gives all that are finished. None of those that
    /// wait has older contents of a page of another one.
    pub(super) fn take_back(&mut self, finished: &mut Vec<Batch>) -> Result<()> {
        if !self.is_used {
            return Ok(());
        }
        while self.finish_waiting() {}
        self.wait_for_all()?;
        let mut queue = lock(&self.shared.queue);
        finished.append(&mut queue.finished);
        drop(queue);
        let mut errors = finished.iter_mut().filter_map(|batch| batch.error.take());
        Ok(errors.next().map_or(Ok(()), Err)?)
    }

    /// Finishes the batch that has waited longest; whether there was one.
    fn finish_waiting(&mut self) -> bool {
        let Some(mut batch) = self.shared.pop(&mut lock(&self.shared.queue)) else {
            return false;
        };
        batch.finish(&*self.file, copies(&mut self.copies));
        self.shared.give_back(batch);
        true
    }

    /// Nobody is interested in the batches any more: has none of their pages written from now on.
    pub(super) fn cancel(&mut self) {
        if !self.is_used || self.membership.is_forked() {
            // The thread belongs to the process that this one was forked from.
            return;
        }
        if self.shared.unfinished.load(Ordering::Acquire) > 0 {
            while let Some(batch) = {
                let mut queue = lock(&self.shared.queue);
                self.shared.pop(&mut queue)
            } {
                self.shared.give_back(batch);
            }
            if self.wait_for_all().is_err() {
                self.shared = Arc::default();
                self.thread = Thread::Unwanted;
            }
        }
        let finished = std::mem::take(&mut lock(&self.shared.queue).finished);
        finished.into_iter().for_each(|batch| self.keep(batch));
        self.shared.logged_bytes.store(0, Ordering::Relaxed);
        self.is_used = false;
    }

    /// Ends the thread until it is needed again, and gives memory back.
    pub(super) fn rest(&mut self) {
        if self.membership.is_forked() {
            return;
        }
        if matches!(self.thread, Thread::Running(_)) {
            self.shared.stop.store(true, Ordering::SeqCst);
            // Between its last look and its sleep the thread holds the lock.
            drop(lock(&self.shared.queue));
            self.shared.asked.notify_one();
            if let Thread::Running(thread) = std::mem::replace(&mut self.thread, Thread::Wanted) {
                // It has nothing to say; a panic has been reported already.
                let _: std::thread::Result<()> = thread.join();
            }
            self.shared = Arc::default();
            self.serial = 0;
        }
        self.spare = Vec::new();
        self.copies = Vec::new();
    }
}

impl Drop for Flusher {
    fn drop(&mut self) {
        self.rest();
    }
}

/// Room for the copies of one batch.
fn copies(copies: &mut Vec<Page>) -> &mut [Page] {
    copies.resize(WRITTEN_PAGES, const { Page::zeroed() });
    copies
}

impl Shared {
    fn run(&self, file: &dyn File) {
        let _over = Over(self);
        let mut own = Vec::new();
        let copies = copies(&mut own);
        while let Some(mut batch) = self.next() {
            batch.finish(file, copies);
            self.give_back(batch);
        }
    }

    /// The batch that has waited longest, as soon as there is one. `None` when it is time to stop.
    fn next(&self) -> Option<Batch> {
        let is_asked =
            || self.waiting.load(Ordering::Acquire) > 0 || self.stop.load(Ordering::Acquire);
        for _ in 0..LOOKS_BEFORE_SLEEP {
            if is_asked() {
                break;
            }
            std::hint::spin_loop();
        }
        let mut queue = lock(&self.queue);
        loop {
            if self.stop.load(Ordering::Acquire) {
                return None;
            }
            if let Some(batch) = self.pop(&mut queue) {
                return Some(batch);
            }
            queue.is_asleep = true;
            queue = self
                .asked
                .wait(queue)
                .unwrap_or_else(PoisonError::into_inner);
            queue.is_asleep = false;
        }
    }

    fn pop(&self, queue: &mut Queue) -> Option<Batch> {
        let batch = queue.waiting.pop_front();
        self.waiting.store(queue.waiting.len(), Ordering::Release);
        batch
    }

    fn give_back(&self, batch: Batch) {
        self.add_logged(&batch);
        let mut queue = lock(&self.queue);
        self.done.fetch_max(batch.serial, Ordering::Release);
        queue.finished.push(batch);
        self.unfinished.fetch_sub(1, Ordering::Release);
        if queue.is_awaited {
            drop(queue);
            self.answered.notify_one();
        }
    }

    fn add_logged(&self, batch: &Batch) {
        self.logged_bytes
            .fetch_add(batch.logged.len(), Ordering::Relaxed);
    }

    /// Waits for something that a finished batch may bring.
    fn wait_until(&self, is_so: impl Fn(&Self) -> bool) -> Result<()> {
        for _ in 0..LOOKS_FOR_LAST {
            if is_so(self) {
                return Ok(());
            }
            std::hint::spin_loop();
        }
        let mut queue = lock(&self.queue);
        while !is_so(self) {
            if queue.is_over {
                return Err(io::Error::other("the thread that finishes pages has died").into());
            }
            queue.is_awaited = true;
            queue = self
                .answered
                .wait(queue)
                .unwrap_or_else(PoisonError::into_inner);
            queue.is_awaited = false;
        }
        Ok(())
    }
}

/// Says that the thread has ended, however it did.
struct Over<'a>(&'a Shared);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        lock(&self.0.queue).is_over = true;
        self.0.answered.notify_all();
    }
}
