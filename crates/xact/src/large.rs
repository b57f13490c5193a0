//! Transactions too large for the log.
//!
//! Such a transaction waits until it runs alone, and keeps others from beginning meanwhile (the *gate*). It writes its
//! record into a file of its own, syncs that, and appends a short record to the log that names it: that is its commit.
//! Then its pages go straight into the data file, a checkpoint makes an end to the record in the log, and the file
//! goes.

use std::io::{ErrorKind, IoSlice};
use std::time::{Duration, Instant};

use sapwood_wal::Position;
use sapwood_wal::storage::{OpenMode, Storage};
use sapwood_wal::sync::{self, Ordering};

use crate::commit::{Attempt, CommitLock, Committed};
use crate::error::{Doing, Error, Result};
use crate::guard::Guard;
use crate::maintenance::Alone;
use crate::page::PAGE_BYTES;
use crate::record::{Pages, Record, runs, write_parts};
use crate::recovery;
use crate::space::{Inner, offset_in_file};
use crate::step::step;
use crate::sums::{SumWriter, sum_at};
use crate::region::versions::NewVersion;

const NAME: &str = "large";
const WRITING: &str = "cannot write the file of a large transaction";
const READING: &str = "cannot read the file of a large transaction";

/// Commits a transaction that is too large for the log.
pub(crate) fn commit(inner: &Inner, attempt: &Attempt<'_>) -> Result<Committed> {
    let gate = Gate::close(inner)?;
    step();
    gate.wait_until_alone(attempt.slot)?;
    let lock = CommitLock::take(inner)?;
    if !inner.is_current(attempt, attempt.snapshot.version) {
        return Err(Error::Conflict);
    }
    inner.slot(attempt.slot).end();
    inner.empty_ring()?;
    inner.make_room(0, 0, Alone::Yes)?;
    end_last(inner)?;
    step();
    // A full disk is an error before the commit, and none after it.
    make_room_in_file(inner, attempt.changes).doing("cannot make room in the data file")?;
    step();
    let checksum = write(inner, attempt.changes)?;
    step();
    let record = Record::encode_large(checksum, attempt.record_bytes);
    let end = inner.wal.append(&[IoSlice::new(&record)])?;
    // From here on it has happened, or will have.
    step();
    finish(inner, end, |sums| store(inner, attempt.changes, sums))
        .inspect_err(|_| inner.poison())?;
    drop(lock);
    drop(gate);
    Ok(Committed { version: end.lsn.0 })
}

/// Completes the commit of a process that died after it had appended the record.
pub(crate) fn complete(inner: &Inner, checksum: u32, bytes: u64, end: Position) -> Result<()> {
    inner.empty_ring()?;
    let file = read(&*inner.storage, checksum, bytes)?;
    let pages = pages(&file)?;
    finish(inner, end, |sums| {
        recovery::apply(&*inner.data, pages, inner.pages, sums)
    })
}

/// Gives the pages that have changed, and their checksums, room in the file.
fn make_room_in_file(inner: &Inner, changes: &[NewVersion<'_>]) -> std::io::Result<()> {
    let page_bytes = PAGE_BYTES as u64;
    let mut at = 0;
    while let Some(first) = changes.get(at) {
        let left = changes.get(at..).unwrap_or_default().iter();
        let is_next = |(page, change): &(u64, &NewVersion<'_>)| change.page == *page;
        let count = (first.page..).zip(left).take_while(is_next).count() as u64;
        inner
            .data
            .allocate(offset_in_file(first.page), count * page_bytes)?;
        if inner.verified.is_needed() {
            let (from, end) = (first.page, first.page + count);
            let from = sum_at(from, inner.pages) / page_bytes * page_bytes;
            let end = sum_at(end, inner.pages).next_multiple_of(page_bytes);
            inner.data.allocate(from, end - from)?;
        }
        at += count as usize;
    }
    Ok(())
}

/// Stores the pages that have changed in the file, and their checksums if it has any.
fn store(inner: &Inner, changes: &[NewVersion<'_>], has_sums: bool) -> Result<()> {
    let mut sums = SumWriter::new(&*inner.data, inner.pages);
    for change in changes {
        let at = offset_in_file(change.page);
        for run in runs(change.mask) {
            let bytes = &change.bytes[run.clone()];
            inner
                .data
                .write_all_at(bytes, at + run.start as u64)
                .doing("cannot write to the data file")?;
        }
        if has_sums {
            sums.add(change.page, change.sum)?;
        }
        step();
    }
    sums.flush()
}

/// Brings the pages into the file, and makes an end to what the log needs.
fn finish(inner: &Inner, end: Position, store: impl FnOnce(bool) -> Result<()>) -> Result<()> {
    inner.wal.sync_to(end.lsn)?;
    step();
    let sums = inner.verified.is_needed() && inner.options.guards.has(Guard::StoreSums);
    store(sums)?;
    step();
    inner.region.large.store(end.lsn.0, Ordering::SeqCst);
    step();
    inner.region.set_last(end);
    step();
    end_last(inner)
}

/// Makes an end to the last large transaction's file, also if its process died before it could.
fn end_last(inner: &Inner) -> Result<()> {
    let region = &inner.region;
    let last = region.large.load(Ordering::SeqCst);
    // The one that has chosen an older version to begin with, but has not said so yet, chooses again.
    region.ring.floor.fetch_max(last, Ordering::SeqCst);
    step();
    if region.progress.checkpoint.load(Ordering::SeqCst) < last {
        if inner.options.guards.has(Guard::KeepLarge) {
            inner.checkpoint_at_last()?;
            step();
        }
        remove(&*inner.storage)?;
    }
    Ok(())
}

/// Writes the file; gives its checksum.
fn write(inner: &Inner, changes: &[NewVersion<'_>]) -> Result<u32> {
    remove(&*inner.storage)?;
    let written = || -> std::io::Result<u32> {
        let mut checksum = crc32fast::Hasher::new();
        let mut at = 0;
        let file = inner.storage.open(NAME, OpenMode::CreateNew)?;
        step();
        write_parts(changes, |part| {
            checksum.update(part);
            file.write_all_at(part, at)?;
            at += part.len() as u64;
            Ok(())
        })?;
        if inner.options.guards.has(Guard::SyncLarge) {
            file.sync_data()?;
            inner.storage.sync_names()?;
        }
        Ok(checksum.finalize())
    };
    written().doing(WRITING).inspect_err(|_| {
        // Its room is given back at once. Who comes next removes it otherwise.
        let _ = remove(&*inner.storage);
    })
}

/// Reads the file back.
///
/// # Errors
/// [`Error::Damaged`] if it is not the one that was written, [`Error::Io`].
pub(crate) fn read(storage: &dyn Storage, checksum: u32, bytes: u64) -> Result<Vec<u8>> {
    let file = storage.open(NAME, OpenMode::Read).doing(READING)?;
    let damaged = || Error::Damaged("the file of a large transaction is damaged".into());
    // No more is allocated than there is.
    if file.size().doing(READING)? != bytes {
        return Err(damaged());
    }
    let mut content = vec![0; usize::try_from(bytes).map_err(|_| damaged())?];
    file.read_exact_at(&mut content, 0).doing(READING)?;
    if crc32fast::hash(&content) != checksum {
        return Err(damaged());
    }
    Ok(content)
}

/// The pages in the file.
pub(crate) fn pages(file: &[u8]) -> Result<Pages<'_>> {
    match Record::decode(file)? {
        Record::Pages(pages) => Ok(pages),
        Record::Large { .. } => Err(Error::Damaged("a large record names another one".into())),
    }
}

/// Removes the file. Not being there is no error.
pub(crate) fn remove(storage: &dyn Storage) -> Result<()> {
    match storage.remove(NAME) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(error).doing("cannot remove the file of a large transaction")
        }
        _ => Ok(()),
    }
}

/// The closed gate, opened when dropped.
struct Gate<'a>(&'a Inner);

impl<'a> Gate<'a> {
    fn close(inner: &'a Inner) -> Result<Self> {
        let me = u32::from(inner.membership.index()) + 1;
        let gate = &inner.region.gate;
        let closed = gate.compare_exchange(0, me, Ordering::SeqCst, Ordering::Relaxed);
        // The other one waits for this one to end.
        closed.map(|_| Self(inner)).map_err(|_| Error::Conflict)
    }

    fn wait_until_alone(&self, own: u32) -> Result<()> {
        let Self(inner) = self;
        let started = Instant::now();
        let others = || {
            let mut slots = (0..).zip(inner.slots());
            slots.find(|(number, slot)| *number != own && slot.snapshot().is_some())
        };
        while let Some((_, slot)) = others() {
            let owner = slot.owner();
            if owner.is_some_and(|owner| !inner.is_alive(owner) && inner.reap(owner)) {
                continue;
            }
            if started.elapsed() >= inner.options.patience {
                let pid = owner.map_or(0, |owner| inner.pid_of(owner));
                return Err(Error::Pinned { pid });
            }
            sync::sleep(Duration::from_micros(200));
        }
        Ok(())
    }
}

impl Drop for Gate<'_> {
    fn drop(&mut self) {
        open(self.0, u32::from(self.0.membership.index()) + 1);
    }
}

fn open(inner: &Inner, owner: u32) {
    let gate = &inner.region.gate;
    let opened = gate.compare_exchange(owner, 0, Ordering::SeqCst, Ordering::Relaxed);
    if opened.is_ok() {
        sync::wake_all(gate);
    }
}

impl Inner {
    /// Has a transaction that waits give way to one that is too large for the log and waits for it to end.
    pub(crate) fn check_gate(&self) -> Result<()> {
        match self.region.gate.load(Ordering::SeqCst) {
            0 => Ok(()),
            _ => Err(Error::Conflict),
        }
    }

    /// Opens the gate that a dead process has closed, after completing what it was about.
    pub(crate) fn open_gate_of_dead(&self, owner: u16) -> Result<()> {
        let lock = CommitLock::take(self)?;
        self.reap(owner);
        end_last(self)?;
        open(self, u32::from(owner) + 1);
        drop(lock);
        Ok(())
    }
}
