//! Commits: checked, logged, published, durable.
//!
//! 1. Nothing that the transaction touched may have changed since it began.
//! 2. Nothing that it wrote may be what an older transaction has lost over before: that one goes first.
//! 3. The granules that changed go into the log in one record. This is the moment at which the commit happens, if it
//!    does.
//! 4. The new pages go into frames, see `versions`.
//! 5. The commit becomes the last one: it is seen by transactions that begin now.
//! 6. The log is synced, once for all that wait. The commit is acknowledged. A *relaxed* one does not wait: it is as
//!    durable as the next that does.
//!
//! 1 to 5 happen under the commit lock, whose dead holder's heir looks whether 3 was completed, and then does 4 and 5.
//!
//! Between 5 and 6 others may build on the commit, but what they do comes later in the log, and is acknowledged later.
//! Those that only read see nothing that is not durable.

// Versions are copied for the heir of a dead committer.
#![allow(unsafe_code)]

mod large;
pub(crate) mod maintenance;

use std::io::IoSlice;
use std::time::Instant;

use sapwood_wal::lock::{Lock, Taken};
use sapwood_wal::sync::Ordering;
use sapwood_wal::{Lsn, Position};

use self::maintenance::Alone;
use crate::error::{Error, Result};
use crate::guard::Guard;
use crate::inner::Inner;
use crate::mode::Durability;
use crate::page::{PAGE_BYTES, PageBytes};
use crate::record::{Pages, Record};
use crate::region::slot::{Age, Signature, Snapshot};
use crate::region::versions::NewVersion;
use crate::running::runs_on_several_spaces;
use crate::step::step;

const COMMITS: &str = "is in the middle of a commit";
/// What keeps a transaction from being committed that has to make way.
const OLDER: &str = "runs an older transaction that goes first";
const OLDER_ON_ANOTHER_SPACE: &str = "runs an older transaction that goes first, and may be waiting for the one that this thread runs on \
    another space (transactions on several spaces are to be nested in the same order everywhere)";

/// So many newer versions are compared with all that a transaction has touched; where there are more its pages are
/// looked up one by one.
const LOOKED_AT_MAX: usize = 16;

/// What a transaction asks for when it wants to be committed.
pub(crate) struct Attempt<'a> {
    pub(crate) slot: u32,
    pub(crate) snapshot: Snapshot,
    /// The version that the first attempt of the transaction saw.
    pub(crate) first_version: u64,
    /// The pages that must not have changed.
    pub(crate) touched: &'a [u64],
    /// The pages that it has changed, no page twice.
    pub(crate) changes: &'a [NewVersion<'a>],
    /// The record of these changes, and its length. If it is too long for the log nobody has put it together.
    pub(crate) record: &'a [u8],
    pub(crate) record_bytes: u64,
}

impl Attempt<'_> {
    /// The pages that it has changed, as a signature.
    pub(crate) fn written(&self) -> Signature {
        let mut signature = Signature::default();
        let changes = self.changes.iter();
        changes.for_each(|change| signature.add(change.page));
        signature
    }

    fn age(&self) -> Age {
        Age::new(self.first_version, self.slot)
    }
}

/// When a commit is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    /// When it is as safe as the space promises.
    Promised,
    /// When others see it: it becomes as safe together with a later one.
    Relaxed,
}

/// A commit that others can see.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Committed {
    pub(crate) version: u64,
}

/// The commit lock, given back when dropped.
pub(crate) struct CommitLock<'a>(&'a Inner);

impl<'a> CommitLock<'a> {
    /// Takes the lock, and completes what a dead holder left.
    ///
    /// # Errors
    /// [`Error::Stalled`], and those of completing.
    pub(crate) fn take(inner: &'a Inner) -> Result<Self> {
        let taken = inner.lock_patiently(&inner.region.committer, COMMITS)?;
        step();
        let lock = Self(inner);
        inner.check_usable()?;
        if taken == Taken::Inherited {
            // Nobody may go on from something half done.
            inner.inherit().inspect_err(|_| inner.poison())?;
        }
        Ok(lock)
    }
}

impl Drop for CommitLock<'_> {
    fn drop(&mut self) {
        self.0.region.committer.unlock();
    }
}

impl Inner {
    /// Takes a lock whose holder does what is said, unless that takes too long: it may have been stopped.
    pub(crate) fn lock_patiently(&self, lock: &Lock, by: &'static str) -> Result<Taken> {
        let started = Instant::now();
        let is_alive = |other| self.is_alive(other);
        let goes_on = || started.elapsed() < self.options.patience;
        let taken = lock.lock_while(self.membership.index(), is_alive, goes_on);
        taken.ok_or_else(|| Error::Stalled {
            pid: lock.owner().map_or(0, |owner| self.pid_of(owner)),
            by,
        })
    }

    /// Commits, up to being seen by others; see [`Inner::acknowledge`]. The transaction's slot may have ended
    /// afterwards.
    ///
    /// # Errors
    /// [`Error::Conflict`], [`Error::Pinned`], [`Error::Log`] and others. Nothing has happened then.
    pub(crate) fn commit(&self, attempt: &Attempt<'_>) -> Result<Committed> {
        let frames = attempt.changes.len() as u64;
        let bytes = attempt.record_bytes;
        if frames > self.region.frames() / 4 || bytes > self.record_bytes_max() {
            return large::commit(self, attempt);
        }
        let mut version = attempt.snapshot.version;
        loop {
            let lock = CommitLock::take(self)?;
            if !self.is_current(attempt, version) {
                return Err(Error::Conflict);
            }
            // The one that waits below keeps nothing from being given up: what it waits for may be waiting for just
            // that.
            version = self.region.last_version();
            if let Some(older) = self.older_in_the_way(attempt.age(), || attempt.written()) {
                self.slot(attempt.slot).end();
                let turn = self.slot(older).turn();
                drop(lock);
                self.make_way(older, turn)?;
                continue;
            }
            self.region.leave_spill();
            if self.region.room() >= frames {
                let record = [IoSlice::new(attempt.record)];
                let appended = match self.durability {
                    Durability::Durable => self.wal.append_buffered(&record),
                    Durability::Eventual => self.wal.append(&record),
                };
                match appended {
                    Ok(end) => {
                        step();
                        let pages = attempt.changes.iter().copied();
                        self.region.publish(end.lsn.0, self.options.guards, pages);
                        self.region.set_last(end);
                        step();
                        drop(lock);
                        step();
                        return Ok(Committed { version: end.lsn.0 });
                    }
                    Err(sapwood_wal::Error::Full { .. }) => {}
                    Err(error) => return Err(error.into()),
                }
            }
            self.slot(attempt.slot).end();
            drop(lock);
            self.make_room(frames, bytes, Alone::No)?;
        }
    }

    /// The longest record that goes into the log.
    pub(crate) fn record_bytes_max(&self) -> u64 {
        self.wal.capacity() / 4
    }

    /// Waits until a commit is as safe as the space promises, unless nobody is promised anything, and does a part of
    /// what is to be done from time to time.
    pub(crate) fn acknowledge(&self, commit: Committed, frames: u64, wait: Wait) -> Result<()> {
        let waits = wait == Wait::Promised && self.durability == Durability::Durable;
        if waits && self.options.guards.has(Guard::SyncCommit) {
            self.wal.sync_to(Lsn(commit.version))?;
        }
        step();
        self.maintain_after(frames)
    }

    /// Whether nothing that a transaction touched has changed since a version, as far as can be told: of a transaction
    /// that has waited, the frames that would tell may be gone. For the holder of the commit lock.
    pub(crate) fn is_current(&self, attempt: &Attempt<'_>, version: u64) -> bool {
        let region = &*self.region;
        if region.last_version() == version {
            return true;
        }
        // Mostly a few versions are newer, where a transaction with a view may have been given many pages.
        let mut newer = region.pages_since(version);
        let few = attempt.touched.len().min(LOOKED_AT_MAX);
        let is_untouched = newer
            .by_ref()
            .take(few)
            .all(|page| !attempt.touched.contains(&page));
        let is_unchanged = |page: &u64| !region.is_changed_since(*page, version);
        // What is behind the tail is looked at last, since frames go there while the others are searched.
        is_untouched
            && (newer.next().is_none() || attempt.touched.iter().all(is_unchanged))
            && region.ring.passed.load(Ordering::SeqCst) <= version
            && region.large.load(Ordering::SeqCst) <= version
    }

    /// A transaction that began before this one, has lost since, and might lose again if this one was committed with
    /// what it has written.
    fn older_in_the_way(&self, own: Age, written: impl FnOnce() -> Signature) -> Option<u32> {
        if self.region.slots.losers.load(Ordering::SeqCst) == 0 {
            return None;
        }
        let written = written();
        let mut slots = (0..).zip(self.slots());
        let older = slots.find(|(number, slot)| {
            slot.age(*number).is_some_and(|age| age < own) && slot.touches(&written)
        });
        older.map(|(number, _)| number)
    }

    /// Has one that has lost wait for those that it would make way for after its next attempt, if it writes to the same
    /// pages again.
    pub(crate) fn give_way(&self, own: Age, written: Signature) -> Result<()> {
        while let Some(older) = self.older_in_the_way(own, || written) {
            let turn = self.slot(older).turn();
            // If that one has ended before its turn was looked at, it is another one's.
            if self.slot(older).age(older).is_some_and(|age| age < own) {
                match self.make_way(older, turn) {
                    // Where all have to wait, at the beginning, this one will too.
                    Err(Error::Conflict) => break,
                    result => result?,
                }
            }
        }
        Ok(())
    }

    /// Waits until an older transaction has ended.
    ///
    /// # Errors
    /// [`Error::Stalled`] if it does not end in time: its process may have been stopped, or its thread may be waiting
    /// on another space for this one.
    fn make_way(&self, older: u32, turn: u32) -> Result<()> {
        let slot = self.slot(older);
        let started = Instant::now();
        while slot.turn() == turn && slot.age(older).is_some() {
            self.check_usable()?;
            self.check_gate()?;
            slot.wait_for_end(turn);
            if started.elapsed() >= self.options.patience && slot.turn() == turn {
                return Err(Error::Stalled {
                    pid: slot.owner().map_or(0, |owner| self.pid_of(owner)),
                    by: match runs_on_several_spaces() {
                        true => OLDER_ON_ANOTHER_SPACE,
                        false => OLDER,
                    },
                });
            }
            if let Some(owner) = slot.owner()
                && !self.is_alive(owner)
            {
                self.reap(owner);
            }
        }
        Ok(())
    }

    /// Completes what a dead holder of the commit lock left.
    fn inherit(&self) -> Result<()> {
        let end = self.wal.inherit()?;
        let last = self.region.last();
        if end.lsn <= last.lsn {
            return Ok(());
        }
        let mut records = self.wal.records(last)?;
        let record = records.next()?.filter(|record| record.end == end);
        let record = record.ok_or_else(|| {
            Error::Damaged("the record of a commit that was interrupted is not in the log".into())
        })?;
        match Record::decode(record.payload)? {
            Record::Pages(pages) => self.publish_again(pages, end)?,
            Record::Large { checksum, bytes } => large::complete(self, checksum, bytes, end)?,
        }
        Ok(())
    }

    /// Copies a page as of the newest commit.
    fn copy_version(&self, page: u64, into: &mut PageBytes) {
        match self.region.newest_published(page) {
            // SAFETY: the commit lock is held, so that no frame is filled.
            Some(found) => into.copy_from_slice(unsafe { self.region.version(found) }),
            // SAFETY: the page is within the mapping and the file. It is not written to: versions on their way into the
            // file are found above.
            None => into.copy_from_slice(unsafe { &*self.page_in_file(page) }),
        }
    }

    /// Publishes a commit from its record.
    fn publish_again(&self, mut pages: Pages<'_>, end: Position) -> Result<()> {
        let region = &*self.region;
        if !region.is_published(end.lsn.0) {
            let mut changes = Vec::new();
            while let Some(change) = pages.next()? {
                if change.page >= self.pages {
                    return Err(Error::Damaged(
                        "a record writes outside of the space".into(),
                    ));
                }
                let mut bytes = Box::new([0; PAGE_BYTES]);
                self.copy_version(change.page, &mut bytes);
                change.apply(&mut bytes);
                changes.push((change, bytes));
            }
            let pages = changes.iter().map(|(change, bytes)| NewVersion {
                page: change.page,
                mask: change.mask,
                sum: change.sum,
                bytes,
            });
            region.publish(end.lsn.0, self.options.guards, pages);
        }
        region.set_last(end);
        Ok(())
    }
}
