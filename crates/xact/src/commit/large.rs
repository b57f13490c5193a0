//! Transactions too large for the log.
//!
//! Such a transaction waits until it runs alone, and keeps others from beginning meanwhile (the *gate*). It writes its
//! record into a file of its own, syncs that, and appends a short record to the log that names it: that is its commit.
//! Then its pages go straight into the data file, a checkpoint makes an end to the record in the log, and the file
//! goes.

use std::io::IoSlice;
use std::time::{Duration, Instant};

use sapwood_wal::Position;
use sapwood_wal::sync::{self, Ordering};

use super::maintenance::Alone;
use super::{Attempt, CommitLock, Committed};
use crate::error::{Doing, Error, Result};
use crate::guard::Guard;
use crate::inner::Inner;
use crate::large_file;
use crate::page::PAGE_BYTES;
use crate::places::{offset_in_file, sum_at};
use crate::record::{Record, runs};
use crate::recovery;
use crate::region::versions::NewVersion;
use crate::step::step;
use crate::sums::SumWriter;

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
    let guards = inner.options.guards;
    let checksum = large_file::write(&*inner.storage, attempt.changes, guards)?;
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
    let file = large_file::read(&*inner.storage, checksum, bytes)?;
    let pages = large_file::pages(&file)?;
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
        large_file::remove(&*inner.storage)?;
    }
    Ok(())
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
