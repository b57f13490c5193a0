//! Sorting more records than fit into memory, on several threads: what unsorted input goes through before a bulk build.
//!
//! Records are collected in buffers. A full buffer is sorted and written as a *run* to a temporary file by one of a few
//! threads while the next one is being filled; at the end the runs are merged. The order is that of the keys, and of
//! the values among equal keys. Nothing is dropped: records that are wholly equal come out as often as they went in.
//!
//! Temporary files have no name once they are open: nothing stays behind, however the process ends.

mod buffer;
mod merge;
mod run;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, channel, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use crate::error::{Error, Result};
use crate::limits::{KEY_BYTES_MAX, VALUE_BYTES_MAX};

use buffer::Buffer;
use merge::Merge;
use run::{READ_BYTES_MIN, RunReader, SortedRun, TemporaryFile, WRITE_BYTES};

/// The least memory a sorter works with.
pub const SORT_MEMORY_BYTES_MIN: usize = 64 << 10;

/// Takes records in any order. See the [module](self).
pub struct Sorter {
    folder: PathBuf,
    memory_bytes: usize,
    buffer_bytes: usize,
    filling: Buffer,
    records: u64,
    workers: Option<Workers>,
    threads: usize,
}

/// The threads that sort and write, started when the first buffer is full.
struct Workers {
    full: SyncSender<Buffer>,
    empty: Receiver<Buffer>,
    threads: Vec<JoinHandle<Result<Vec<SortedRun>>>>,
    /// Set by the first thread that cannot write.
    failed: Arc<AtomicBool>,
}

impl Sorter {
    /// A sorter that keeps its temporary files in `folder`, uses about `memory_bytes` (at least
    /// [`SORT_MEMORY_BYTES_MIN`]; more only for single records that are larger) and `threads` threads besides the
    /// caller's.
    pub fn new(folder: &Path, memory_bytes: usize, threads: usize) -> Self {
        let memory_bytes = memory_bytes.max(SORT_MEMORY_BYTES_MIN);
        let threads = threads.clamp(1, 64);
        // One is filled while each thread sorts another; what is left goes to the buffers files are written through.
        let written_through = (threads * WRITE_BYTES).min(memory_bytes / (threads + 2));
        let buffer_bytes = (memory_bytes - written_through) / (threads + 1);
        Self {
            folder: folder.to_owned(),
            memory_bytes,
            buffer_bytes,
            filling: Buffer::new(buffer_bytes),
            records: 0,
            workers: None,
            threads,
        }
    }

    /// How many records were pushed.
    pub fn records(&self) -> u64 {
        self.records
    }

    /// Takes a record.
    pub fn push(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        if key.len() > KEY_BYTES_MAX {
            return Err(Error::KeyTooLong(key.len()));
        }
        if value.len() > VALUE_BYTES_MAX {
            return Err(Error::ValueTooLong(value.len()));
        }
        if !self.filling.has_room(key, value) && !self.filling.is_empty() {
            self.spill()?;
        }
        self.filling.push(key, value);
        self.records += 1;
        Ok(())
    }

    fn spill(&mut self) -> Result<()> {
        let workers = match &mut self.workers {
            Some(workers) => workers,
            None => self.workers.insert(Workers::start(
                self.threads,
                self.buffer_bytes,
                &self.folder,
            )?),
        };
        // A thread gives its buffers back even after it failed; it ends only when all that was sent is dealt with.
        let Ok(empty) = workers.empty.recv() else {
            return self.fail();
        };
        if workers.failed.load(Ordering::Relaxed) {
            return self.fail();
        }
        let full = std::mem::replace(&mut self.filling, empty);
        match workers.full.send(full) {
            Ok(()) => Ok(()),
            Err(_) => self.fail(),
        }
    }

    /// Why the threads are gone.
    fn fail(&mut self) -> Result<()> {
        let runs = self.workers.take().map(Workers::finish).transpose()?;
        debug_assert!(runs.is_none(), "threads do not end without a reason");
        Err(std::io::Error::other("a sorting thread ended early").into())
    }

    /// Ends the input and begins the output.
    pub fn finish(mut self) -> Result<Sorted> {
        let mut runs = match self.workers.take() {
            Some(workers) => workers.finish()?,
            None => Vec::new(),
        };
        self.filling.sort();
        // The last buffer is merged from where it is.
        let for_reading = self.memory_bytes - self.buffer_bytes;
        let at_once = (for_reading / READ_BYTES_MIN).max(2);
        while runs.len() > at_once {
            let some: Vec<_> = runs.drain(..at_once).collect();
            runs.push(merge_runs(some, for_reading, &self.folder)?);
        }
        let merge = Merge::new(open_runs(runs, for_reading)?, Some(self.filling))?;
        Ok(Sorted {
            merge,
            records: self.records,
        })
    }
}

impl Workers {
    fn start(count: usize, buffer_bytes: usize, folder: &Path) -> Result<Self> {
        let (full, work) = sync_channel::<Buffer>(count);
        let (give_back, empty) = channel();
        let work = Arc::new(Mutex::new(work));
        let failed = Arc::new(AtomicBool::new(false));
        let mut threads = Vec::new();
        for _ in 0..count {
            // Room is only taken when a buffer is filled.
            let _ = give_back.send(Buffer::new(buffer_bytes));
            let (work, failed) = (Arc::clone(&work), Arc::clone(&failed));
            let (give_back, folder) = (give_back.clone(), folder.to_owned());
            let thread = std::thread::Builder::new().name("sort".into());
            threads.push(thread.spawn(move || {
                let mut runs = Ok(Vec::new());
                loop {
                    let next = work.lock().unwrap_or_else(PoisonError::into_inner).recv();
                    let Ok(mut buffer) = next else { return runs };
                    if let Ok(done) = &mut runs {
                        match write_run(&mut buffer, &folder) {
                            Ok(run) => done.push(run),
                            Err(error) => {
                                runs = Err(error);
                                failed.store(true, Ordering::Relaxed);
                            }
                        }
                    }
                    buffer.clear();
                    let _ = give_back.send(buffer);
                }
            })?);
        }
        Ok(Self {
            full,
            empty,
            threads,
            failed,
        })
    }

    /// Waits for all that was sent to be written.
    fn finish(self) -> Result<Vec<SortedRun>> {
        drop(self.full);
        let mut runs = Vec::new();
        for thread in self.threads {
            match thread.join() {
                Ok(some) => runs.extend(some?),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        Ok(runs)
    }
}

fn write_run(buffer: &mut Buffer, folder: &Path) -> Result<SortedRun> {
    buffer.sort();
    let mut run = TemporaryFile::create(folder)?;
    for entry in 0..buffer.len() {
        let (key, value) = buffer.record(entry);
        run.push(key, value)?;
    }
    Ok(run.finish()?)
}

fn open_runs(runs: Vec<SortedRun>, memory_bytes: usize) -> Result<Vec<RunReader>> {
    let each = memory_bytes / runs.len().max(1);
    runs.into_iter().map(|run| Ok(run.read(each)?)).collect()
}

/// Makes one run of several, when they are too many to be merged at once.
fn merge_runs(runs: Vec<SortedRun>, memory_bytes: usize, folder: &Path) -> Result<SortedRun> {
    let mut merge = Merge::new(open_runs(runs, memory_bytes)?, None)?;
    let mut run = TemporaryFile::create(folder)?;
    while let Some((key, value)) = merge.next()? {
        run.push(key, value)?;
    }
    Ok(run.finish()?)
}

/// The records in order.
pub struct Sorted {
    merge: Merge,
    records: u64,
}

impl Sorted {
    /// How many records there are in all.
    pub fn records(&self) -> u64 {
        self.records
    }

    /// The next record.
    #[allow(clippy::should_implement_trait)] // It lends the record, which an iterator cannot.
    pub fn next(&mut self) -> Result<Option<(&[u8], &[u8])>> {
        Ok(self.merge.next()?)
    }
}

/// So many bytes of a key are compared at once.
const HEAD_BYTES: usize = 8;

/// The first eight bytes of a key as a number that sorts as they do: most comparisons need no more.
fn head_of(key: &[u8]) -> u64 {
    match key.first_chunk::<HEAD_BYTES>() {
        Some(head) => u64::from_be_bytes(*head),
        None => {
            let mut head = [0; HEAD_BYTES];
            head[..key.len()].copy_from_slice(key);
            u64::from_be_bytes(head)
        }
    }
}
