//! Transactions too large for the log.
//!
//! Such a transaction waits until it runs alone, and keeps others from beginning meanwhile (the *gate*). It writes its record into
//! a file of its own, syncs that, and appends a short record to the log that names it: that is its commit. Then its pages go
//! straight into the data file, a checkpoint makes an end to the record in the log, and the file goes.

use std::io::{ErrorKind, IoSlice};
use std::time::{Duration, Instant};

use sapwood_wal::Position;
use sapwood_wal::storage::{OpenMode, Storage};
use sapwood_wal::sync::{self, Ordering};

use crate::commit::{Attempt, CommitLock, Committed};
use crate::error::{Doing, Error, Result};
use crate::guard::Guard;
use crate::maintenance::Alone;
use crate::record::{Pages, Record};
use crate::recovery;
use crate::space::Inner;
use crate::step::step;

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
    write(inner, attempt.record)?;
    step();
    let checksum = crc32fast::hash(attempt.record);
    let record = Record::encode_large(checksum, attempt.record.len() as u64);
    let end = inner.wal.append(&[IoSlice::new(&record)])?;
    // From here on it has happened, or will have.
    step();
    let Record::Pages(pages) = Record::decode(attempt.record)? else {
        return Err(Error::Damaged("a large record names another one".into()));
    };
    finish(inner, pages, end).inspect_err(|_| inner.poison())?;
    drop(lock);
    drop(gate);
    Ok(Committed { version: end.lsn.0 })
}

/// Completes the commit of a process that died after it had appended the record.
pub(crate) fn complete(inner: &Inner, checksum: u32, bytes: u64, end: Position) -> Result<()> {
    inner.empty_ring()?;
    let file = read(&*inner.storage, checksum, bytes)?;
    finish(inner, pages(&file)?, end)
}

/// Brings the pages into the file, and makes an end to what the log needs.
fn finish(inner: &Inner, pages: Pages<'_>, end: Position) -> Result<()> {
    inner.wal.sync_to(end.lsn)?;
    step();
    let sums = inner.verified.is_needed() && inner.options.guards.has(Guard::StoreSums);
    recovery::apply(&*inner.data, pages, inner.pages, sums)?;
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
    // Whoever has chosen an older version to begin with, but has not said so yet, chooses again.
    region.ring.floor.fetch_max(last, Ordering::SeqCst);
    step();
    if region.upkeep.checkpoint.load(Ordering::SeqCst) < last {
        if inner.options.guards.has(Guard::KeepLarge) {
            inner.checkpoint_at_last()?;
            step();
        }
        remove(&*inner.storage)?;
    }
    Ok(())
}

fn write(inner: &Inner, record: &[u8]) -> Result<()> {
    remove(&*inner.storage)?;
    let written = || -> std::io::Result<()> {
        let file = inner.storage.open(NAME, OpenMode::CreateNew)?;
        step();
        file.write_all_at(record, 0)?;
        if inner.options.guards.has(Guard::SyncLarge) {
            file.sync_data()?;
            inner.storage.sync_names()?;
        }
        Ok(())
    };
    written().doing(WRITING)
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
