//! Maintenance: committed versions go into the file, and the log begins later.
//!
//! A *pass* has a commit as its target, up to which the log is durable. It takes the frames from the tail on whose
//! versions every running transaction may see, and writes each into the file unless the target supersedes it. When the
//! target is reached the file holds that commit or, page by page, something later: a *checkpoint* may sync it and have
//! the log replayed from there.
//!
//! Passes go in small steps, by the one that has just committed, and either finds that all that was committed is
//! durable, so that nothing keeps it from the file, or finds the frames or the log half used. A pass that meets a
//! version which a running transaction must not see stays there, and is gone on with later.

// Frames are looked at as pages.
#![allow(unsafe_code)]

use std::time::{Duration, Instant};

use sapwood_wal::lock::Taken;
use sapwood_wal::sync::{self, Ordering, fence};
use sapwood_wal::{Lsn, Position};

use super::CommitLock;
use crate::error::{Doing, Error, Result};
use crate::guard::Guard;
use crate::header::{Header, write_header};
use crate::inner::Inner;
use crate::mode::Mode;
use crate::page::PAGE_BYTES;
use crate::places::HEADER_PAGES;
use crate::region::slot::Slot;
use crate::region::versions::Found;
use crate::region::{load_position, store_position};
use crate::step::step;

/// How many frames a commit looks at for each one it has used.
const FRAMES_PER_FRAME: u64 = 4;
/// And how many besides.
const FRAMES_AT_LEAST: u64 = 16;
const MAINTAINS: &str = "brings versions into the file";
/// How long somebody waits for room in memory before versions go to the disk. (A model checker has nothing to wait
/// for.)
const SPILL_AFTER: Duration = Duration::from_millis(if cfg!(shuttle) { 0 } else { 20 });
/// How long somebody who waits for room sleeps before looking again.
const LOOK_AFTER: Duration = Duration::from_millis(1);

/// Whether a transaction is the only one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Alone {
    /// It is.
    Yes,
    /// It is not, and gives way to one that wants to be.
    No,
}

/// Why versions are brought into the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Because {
    /// There is little room for more. The one that is in the way is looked at: it may be dead.
    RoomIsScarce,
    /// They are durable, and the pages still in the processor's caches. Nothing is lost if it is not done now.
    TheyMayBe,
}

/// The maintenance lock, given back when dropped.
pub(crate) struct Maintenance<'a>(&'a Inner);

impl Drop for Maintenance<'_> {
    fn drop(&mut self) {
        self.0.region.maintainer.unlock();
    }
}

impl Inner {
    fn maintenance(&self) -> Result<Maintenance<'_>> {
        self.lock_patiently(&self.region.maintainer, MAINTAINS)?;
        // What a dead one left is whole: a step is repeated by the one that comes next.
        Ok(Maintenance(self))
    }

    /// As [`Inner::maintenance`], however long it takes: for what must be completed.
    fn maintenance_at_last(&self) -> Maintenance<'_> {
        let me = self.membership.index();
        self.region
            .maintainer
            .lock(me, |other| self.is_alive(other));
        Maintenance(self)
    }

    fn try_maintenance(&self) -> Option<Maintenance<'_>> {
        let me = self.membership.index();
        let taken: Option<Taken> = self
            .region
            .maintainer
            .try_lock(me, |other| self.is_alive(other));
        taken.map(|_| Maintenance(self))
    }

    /// Does a little after a commit that has used so many frames.
    pub(crate) fn maintain_after(&self, frames: u64) -> Result<()> {
        let frames_scarce = self.region.used() > self.region.frames() / 2;
        let log_scarce = self.wal.room() < self.wal.capacity() / 2;
        let why = if frames_scarce || log_scarce {
            Because::RoomIsScarce
        } else if self.mode != Mode::Snapshot && self.region.last_version() <= self.wal.durable().0
        {
            // In snapshot mode a view gives up all copies that it has kept when the tail gets past what it knows.
            Because::TheyMayBe
        } else {
            return Ok(());
        };
        let Some(lock) = self.try_maintenance() else {
            return Ok(());
        };
        let reached = match lock.advance(frames * FRAMES_PER_FRAME + FRAMES_AT_LEAST, why) {
            // The commit has happened, and its versions stay in memory. Who needs their room is told.
            Err(error) if error.is_full_disk() => return Ok(()),
            reached => reached?,
        };
        lock.find_free();
        if reached && log_scarce {
            lock.checkpoint()?;
        }
        Ok(())
    }

    /// Sees to it that a commit of so many frames and bytes of log has room. Must not be called with the commit lock,
    /// but for no frames.
    pub(crate) fn make_room(&self, frames: u64, log_bytes: u64, alone: Alone) -> Result<()> {
        let started = Instant::now();
        loop {
            self.check_usable()?;
            if alone == Alone::No {
                self.check_gate()?;
            }
            let lock = self.maintenance()?;
            let has_room =
                || self.region.room() >= frames && self.wal.room() >= log_bytes + LOG_SLACK_BYTES;
            if has_room() {
                return Ok(());
            }
            // The first pass may have had an earlier target.
            for _ in 0..2 {
                let reached = lock.advance(u64::MAX, Because::RoomIsScarce)?;
                lock.find_free();
                if reached && self.wal.room() < log_bytes + LOG_SLACK_BYTES {
                    lock.checkpoint()?;
                }
            }
            if has_room() {
                return Ok(());
            }
            let pin = lock.pin();
            drop(lock);
            let waited = started.elapsed();
            if self.region.room() < frames && waited >= SPILL_AFTER.min(self.options.patience) {
                let _lock = CommitLock::take(self)?;
                if self.region.change_area() {
                    continue;
                }
            }
            if pin.is_some_and(|owner| !self.is_alive(owner) && self.reap(owner)) {
                continue;
            }
            if waited >= self.options.patience {
                let pid = pin.map_or(0, |owner| self.pid_of(owner));
                return Err(Error::Pinned { pid });
            }
            sync::sleep(LOOK_AFTER);
        }
    }

    /// Brings everything into the file that may be there, and has the log begin as late as possible.
    pub(crate) fn checkpoint(&self) -> Result<()> {
        let lock = self.maintenance()?;
        // The first pass may have had an earlier target.
        for _ in 0..2 {
            lock.advance(u64::MAX, Because::RoomIsScarce)?;
            lock.find_free();
        }
        lock.checkpoint()
    }

    /// Makes the space so many pages large, unless it is larger.
    pub(crate) fn grow(&self, size: u64) -> Result<()> {
        self.check_usable()?;
        let is_large_enough = || self.region.size() >= size;
        if is_large_enough() {
            return Ok(());
        }
        if size > self.pages {
            let bytes = self.pages * PAGE_BYTES as u64;
            return Err(Error::InUse { bytes });
        }
        let lock = self.maintenance()?;
        if is_large_enough() {
            return Ok(());
        }
        lock.grow(size)
    }

    /// Brings all versions into the file and empties the ring; for a transaction that runs alone.
    pub(crate) fn empty_ring(&self) -> Result<()> {
        let lock = self.maintenance_at_last();
        for _ in 0..2 {
            lock.advance(u64::MAX, Because::RoomIsScarce)?;
            lock.find_free();
        }
        let ring = &self.region.ring;
        if ring.tail.load(Ordering::SeqCst) != ring.head.load(Ordering::SeqCst) {
            return Err(Error::Conflict);
        }
        Ok(())
    }

    /// A checkpoint at the newest commit, whose pages are all in the file; for a transaction that runs alone.
    pub(crate) fn checkpoint_at_last(&self) -> Result<()> {
        let lock = self.maintenance_at_last();
        store_position(&self.region.progress.target, Default::default());
        store_position(&self.region.progress.applied, self.region.last());
        lock.checkpoint()
    }
}

/// What is left of the log for records that are in no commit.
const LOG_SLACK_BYTES: u64 = 4096;

impl Maintenance<'_> {
    /// Takes up to `budget` frames into the file; gives whether the target of the pass was reached.
    fn advance(&self, mut budget: u64, why: Because) -> Result<bool> {
        let Self(inner) = self;
        let region = &*inner.region;
        inner.check_usable()?;
        let mut target = load_position(&region.progress.target);
        if target.lsn == Lsn(0) {
            target = region.last();
            store_position(&region.progress.target, target);
        }
        let guards = inner.options.guards;
        if guards.has(Guard::SyncBeforeApply) {
            inner.wal.sync_to(target.lsn)?;
        }
        let floor = target.lsn.0;
        step();
        region.ring.floor.fetch_max(floor, Ordering::SeqCst);
        step();
        fence(Ordering::SeqCst);
        let head = region.ring.head.load(Ordering::SeqCst);
        let tail = region.ring.tail.load(Ordering::SeqCst);
        let mut limit = floor.min(inner.oldest_version());
        let mut frame = tail;
        let mut passed = region.ring.passed.load(Ordering::SeqCst);
        let mut reached = false;
        while budget > 0 {
            let content = (frame < head).then(|| region.content(frame));
            let Some(content) = content.filter(|content| content.version <= floor) else {
                reached = true;
                break;
            };
            if content.version > limit {
                if why == Because::TheyMayBe {
                    break;
                }
                // Perhaps the one in the way is dead, or has ended meanwhile.
                inner.reap_below(content.version);
                limit = floor.min(inner.oldest_version());
                if content.version > limit {
                    break;
                }
            }
            let is_superseded = content
                .newer
                .is_some_and(|newer| newer <= floor || !guards.has(Guard::ApplyWholePass));
            if !is_superseded {
                let found = Found {
                    frame,
                    version: content.version,
                };
                // SAFETY: the maintenance lock is held, and the frame is not behind the tail.
                let bytes = unsafe { region.version(found) };
                inner
                    .writer
                    .write(content.page, content.mask, content.sum, bytes)
                    .doing("cannot write to the data file")?;
                step();
                region
                    .progress
                    .applied_pages
                    .fetch_add(1, Ordering::Relaxed);
            }
            passed = content.version;
            frame += 1;
            budget -= 1;
        }
        step();
        region.ring.passed.store(passed, Ordering::SeqCst);
        step();
        region.ring.tail.store(frame, Ordering::SeqCst);
        step();
        if reached {
            store_position(&region.progress.applied, target);
            store_position(&region.progress.target, Default::default());
        }
        Ok(reached)
    }

    /// Lets the frames before the tail be used again that nobody looks at any more.
    fn find_free(&self) {
        let region = &*self.0.region;
        let tail = region.ring.tail.load(Ordering::SeqCst);
        fence(Ordering::SeqCst);
        let snapshots = self.0.slots().filter_map(Slot::snapshot);
        let seen = snapshots.map(|snapshot| snapshot.tail).min();
        let free = match seen {
            Some(oldest) if self.0.options.guards.has(Guard::KeepSeenFrames) => oldest.min(tail),
            _ => tail,
        };
        step();
        region.ring.free.fetch_max(free, Ordering::SeqCst);
    }

    /// Which process runs the transaction that keeps most from being given up.
    fn pin(&self) -> Option<u16> {
        let running = self
            .0
            .slots()
            .filter_map(|slot| Some((slot, slot.snapshot()?)));
        running
            .min_by_key(|(_, snapshot)| (snapshot.version, snapshot.tail))
            .and_then(|(slot, _)| slot.owner())
    }

    /// Syncs the file and writes a header, from whose position the log is replayed from now on.
    fn checkpoint(&self) -> Result<()> {
        let Self(inner) = self;
        let progress = &inner.region.progress;
        let applied = load_position(&progress.applied);
        inner.check_usable()?;
        let checkpoint = progress.checkpoint.load(Ordering::SeqCst);
        if applied.lsn.0 <= checkpoint {
            // The one that wrote that header may have died before it gave the room in the log back.
            inner.wal.recycle_before(Lsn(checkpoint));
            return Ok(());
        }
        self.write_header(applied, inner.region.size())
    }

    /// Makes the space so many pages large, which have their places in the file: when both headers say so.
    fn grow(&self, size: u64) -> Result<()> {
        let Self(inner) = self;
        self.advance(u64::MAX, Because::RoomIsScarce)?;
        let mut applied = load_position(&inner.region.progress.applied);
        if applied.lsn.0 < inner.region.progress.checkpoint.load(Ordering::SeqCst) {
            // One that has died has left no position, and the pass that makes one has met a transaction.
            let pid = self.pin().map_or(0, |owner| inner.pid_of(owner));
            return Err(Error::Pinned { pid });
        }
        if applied.lsn == Position::START.lsn {
            applied = Position::START;
        }
        for _ in 0..2 {
            self.write_header(applied, size)?;
        }
        step();
        inner.region.set_size(size);
        step();
        Ok(())
    }

    /// Syncs the file and has a header say that the log is replayed from a position, and how large the space is.
    fn write_header(&self, applied: Position, size: u64) -> Result<()> {
        let Self(inner) = self;
        let progress = &inner.region.progress;
        inner.check_size()?;
        let guards = inner.options.guards;
        let number = progress.header.load(Ordering::SeqCst) + 1;
        let header = Header {
            id: inner.id,
            pages: inner.pages,
            reserve: inner.pages - size,
            address: inner.address,
            replay_from: applied,
            mode: inner.mode,
            durability: inner.durability,
            has_sums: inner.verified.is_needed(),
            grown_from: 0,
            number,
        };
        let written = || {
            if guards.has(Guard::SyncBeforeHeader) {
                inner.data.sync_data()?;
            }
            step();
            write_header(&*inner.data, number % HEADER_PAGES, &header)?;
            step();
            if guards.has(Guard::SyncHeader) {
                inner.data.sync_data()?;
            }
            Ok(())
        };
        // After a sync that failed, one that succeeds proves nothing.
        written()
            .inspect_err(|_: &std::io::Error| inner.poison())
            .doing("cannot sync the data file")?;
        step();
        progress.header.store(number, Ordering::SeqCst);
        step();
        progress.checkpoint.store(applied.lsn.0, Ordering::SeqCst);
        step();
        progress.checkpoints.fetch_add(1, Ordering::Relaxed);
        step();
        inner.wal.recycle_before(applied.lsn);
        Ok(())
    }
}

impl Inner {
    /// The oldest version that a running transaction sees.
    fn oldest_version(&self) -> u64 {
        let snapshots = self.slots().filter_map(Slot::snapshot);
        let versions = snapshots.map(|snapshot| snapshot.version);
        versions.min().unwrap_or(u64::MAX)
    }

    /// Ends the transactions of dead processes that must not see a version.
    fn reap_below(&self, version: u64) {
        let in_the_way = |slot: &&Slot| {
            let snapshot = slot.snapshot();
            snapshot.is_some_and(|snapshot| snapshot.version < version)
        };
        let mut owners: Vec<u16> = self
            .slots()
            .filter(in_the_way)
            .filter_map(Slot::owner)
            .collect();
        owners.sort_unstable();
        owners.dedup();
        for owner in owners {
            if !self.is_alive(owner) {
                self.reap(owner);
            }
        }
    }
}
