//! Checkpoints: the data file is made to hold a commit by itself, so that the log before it can be used again.
//!
//! 1. Pin the visible commit N as the *target*: its pages are not used again from here on, and nobody who begins a
//!    commit now stores places in them. Nobody stores any at this moment, since that takes the append lock.
//! 2. Sync the log up to the newest commit that is applied, whose places may be in N's pages, and N's part of the data
//!    file. Commits go on meanwhile; copy on write keeps them off N's pages. A commit that has begun before may still
//!    store places in them, once its record is durable.
//! 3. Write the meta page for N over the older of the two, and make it durable.
//! 4. Do the same with the other one. Now nothing refers to older pages.
//! 5. Let the log be used again before N, as far as no other store needs it.
//!
//! A crash before 3 changes nothing. During 3, one meta page may be torn: the other one is whole, and the log reaches
//! back to it. After 3, recovery begins at N. During 4, the page that 3 has written is whole.

use std::time::{Duration, Instant};

use sapwood_wal::lock::Taken;
use sapwood_wal::{Lsn, Position, Wal};

use crate::env::{Env, Held, Inner};
use crate::log::append::AppendLock;
use crate::log::archive;

use crate::env::region::{Metas, Region};
use crate::error::{Error, Result};
use crate::format::meta::Meta;
use crate::format::page::{PAGE_BYTES, Page};
use crate::format::roots::Head;
use crate::guard::{self, Guard};
use crate::ids::CommitNo;
use crate::sync::{Arc, Ordering};

/// A checkpoint syncs the data file in so many parts.
const SYNCED_PARTS: u64 = 32;
/// A part has at least so many bytes.
const SYNCED_BYTES_MIN: u64 = if cfg!(test) { 16 << 10 } else { 4 << 20 };

/// Of so many bytes of the data file the changed ones are written out at a time while others commit: log writes queue
/// behind them in the device.
const WRITTEN_OUT_BYTES_MIN: u64 = 64 << 10;
/// The same while nobody waits for the disk, or where commits would otherwise have to wait for the end of the
/// checkpoint.
const WRITTEN_OUT_BYTES_MAX: u64 = 4 << 20;
/// How long after somebody has waited for the disk others are expected to do so again.
const WAITED_FOR: Duration = Duration::from_millis(10);

/// So many times a part is written out at most before it is synced.
const TIMES_WRITTEN_OUT: usize = 3;

/// Held by the one that writes meta pages.
pub(crate) struct CheckpointLock<'i> {
    inner: &'i Inner,
    _held: Held<'i>,
}

impl<'i> CheckpointLock<'i> {
    pub(crate) fn take(inner: &'i Inner) -> Result<Self> {
        Self::adopt(inner, inner.hold(&inner.region.checkpointer))
    }

    /// Gives nothing if somebody else is at it.
    fn try_take(inner: &'i Inner) -> Result<Option<Self>> {
        let held = inner.try_hold(&inner.region.checkpointer);
        held.map(|held| Self::adopt(inner, held)).transpose()
    }

    /// Completes what a dead process left half done: whatever it wrote to the meta pages is made durable and taken for
    /// what is on disk.
    fn adopt(inner: &'i Inner, (_held, taken): (Held<'i>, Taken)) -> Result<Self> {
        if taken == Taken::Inherited {
            let file = &inner.data.file;
            file.sync_data().inspect_err(|_| inner.poison())?;
            for slot in 0..2 {
                let mut page = Page::zeroed();
                file.read_exact_at(page.bytes_mut(), (slot * PAGE_BYTES) as u64)?;
                if let Some(meta) = Meta::decode(&page, slot, true)? {
                    inner.region.metas.note(slot, &meta.head);
                }
            }
        }
        Ok(Self { inner, _held })
    }

    /// Checkpoints the visible commit; does nothing if both meta pages hold it already.
    pub(crate) fn run(&self) -> Result<CommitNo> {
        let pinned = self.pin()?;
        let head = pinned.head;
        if self.oldest() < place(&head) {
            self.sync_log(&pinned)?;
            self.sync_pages(&head)?;
            guard::failpoint();
            self.write_meta_if_newer(&head)?;
            self.write_meta(&head)?;
            let completed = &self.inner.region.metas.completed;
            completed.fetch_add(1, Ordering::Relaxed);
        }
        Ok(head.commit)
    }

    /// Whether both meta pages hold the newest commit, visible or not.
    fn has_run(&self) -> bool {
        let applied = self.inner.region.applied().0;
        let mut places = places(&self.inner.region).into_iter();
        places.all(|(commit, _)| commit == applied)
    }

    /// Writes a meta page for a commit that is pinned and whose pages are synced, unless there is one.
    pub(crate) fn write_meta_if_newer(&self, head: &Head) -> Result<()> {
        if self.newest() < place(head) {
            self.write_meta(head)?;
        }
        Ok(())
    }

    /// Protects the visible commit. For nobody who holds the append lock: the one that does has either stored the
    /// places of its commit, which is applied then, or looks at the target before it stores them.
    ///
    /// If nothing has been committed to this store since, its log goes on at the end: what is before that belongs to
    /// others. Otherwise a store that rests would keep the log for ever.
    pub(crate) fn pin(&self) -> Result<Pinned> {
        let inner = self.inner;
        let region = &inner.region;
        let appending = AppendLock::take(inner)?;
        let (_, head) = pin_target(&region.metas, || region.visible(), |of| region.head(of));
        region.metas.superseded.store(0, Ordering::Relaxed);
        let (mut head, applied) = (head?, region.applied_head()?);
        if inner.regions.len() > 1 && applied.commit == head.commit {
            head.log = appending.end()?;
        }
        let applied = applied.log.lsn.max(head.log.lsn);
        Ok(Pinned { head, applied })
    }

    /// Protects a commit that is not visible yet; for the holder of the writer lock, who alone could use its pages
    /// again or store places in them.
    pub(crate) fn pin_applied(&self, commit: CommitNo) {
        let target = &self.inner.region.metas.target;
        target.store(commit.0, Ordering::SeqCst);
    }

    /// A relaxed commit may be visible without being durable. The log must not end before the meta page that says how
    /// it goes on: otherwise the other meta page would not lead to this commit. Nor must it end before a commit whose
    /// places the meta page leads to: they would be there without the commit, and be taken for those of the next one of
    /// its number.
    pub(crate) fn sync_log(&self, pinned: &Pinned) -> Result<()> {
        let guards = self.inner.options.guards;
        let lsn = match guards.has(Guard::SyncLogToApplied) {
            true => pinned.applied,
            false => pinned.head.log.lsn,
        };
        match &self.inner.wal {
            Some(wal) if guards.has(Guard::SyncLogBeforeMeta) => Ok(wal.sync_to(lsn)?),
            _ => Ok(()),
        }
    }

    /// Makes the pages of a commit that is pinned durable, a part of the file at a time: a sync of all of it would
    /// write, in one go, also what commits have changed meanwhile.
    pub(crate) fn sync_pages(&self, head: &Head) -> Result<()> {
        let inner = self.inner;
        inner.check_sound()?;
        let end = head.roots.pages * PAGE_BYTES as u64;
        let part_bytes = (end / SYNCED_PARTS).next_multiple_of(SYNCED_BYTES_MIN);
        let mut pace = Pace::new(Instant::now());
        let mut at = 0;
        while at < end {
            let length = part_bytes.min(end - at);
            let synced = self.sync_part(at, length, &mut pace);
            synced.inspect_err(|_| inner.poison())?;
            at += length;
        }
        Ok(())
    }

    /// What the sync itself has left to write are pages that were changed again since they were written out. It writes
    /// them in one go, which the one that waits for the disk then would wait for: so these are written out, too, and
    /// once more those that were changed during that, far fewer each time.
    fn sync_part(&self, start: u64, length: u64, pace: &mut Pace) -> Result<()> {
        for _ in 0..TIMES_WRITTEN_OUT {
            self.write_out_part(start, length, pace)?;
            if !pace.is_disk_waited_for(Instant::now()) {
                break;
            }
        }
        if self.inner.options.guards.has(Guard::SyncBeforeMeta) {
            self.inner.data.file.sync_range(start, length)?;
        }
        Ok(())
    }

    fn write_out_part(&self, start: u64, length: u64, pace: &mut Pace) -> Result<()> {
        let file = &self.inner.data.file;
        let mut written = 0;
        while written < length {
            let next = pace.next_bytes(Seen::now(self.inner), Instant::now());
            let bytes = next.min(length - written);
            file.write_out(start + written, bytes)?;
            written += bytes;
            // Who would do that is busy with this.
            self.inner.make_log_segment_if_due();
        }
        Ok(())
    }

    pub(crate) fn sync_data(&self) -> Result<()> {
        let inner = self.inner;
        inner.check_sound()?;
        if inner.options.guards.has(Guard::SyncBeforeMeta) {
            let synced = inner.data.file.sync_data();
            synced.inspect_err(|_| inner.poison())?;
        }
        Ok(())
    }

    fn newest(&self) -> (u64, u64) {
        let [first, second] = places(&self.inner.region);
        first.max(second)
    }

    fn oldest(&self) -> (u64, u64) {
        let [first, second] = places(&self.inner.region);
        first.min(second)
    }

    /// Writes a meta page in place of the older one. What it refers to is in the data file, synced.
    pub(crate) fn write_meta(&self, head: &Head) -> Result<()> {
        let inner = self.inner;
        inner.check_file()?;
        let [first, second] = places(&inner.region);
        let older = usize::from(second < first);
        let slot = match inner.options.guards.has(Guard::MetaInTurn) {
            true => older,
            false => 1 - older,
        };
        let meta = Meta {
            identity: inner.identity,
            head: *head,
            log_segments: match &inner.wal {
                Some(wal) => wal.segments()?,
                None => 0,
            },
        };
        let page = meta.encode(slot);
        let (file, offset) = (&inner.data.file, (slot * PAGE_BYTES) as u64);
        if inner.options.guards.has(Guard::SyncMeta) {
            // The pages of later commits, dirty by now, need not be waited for.
            let written = file.write_all_durably_at(page.bytes(), offset);
            written.inspect_err(|_| inner.poison())?;
        } else {
            file.write_all_at(page.bytes(), offset)?;
        }
        inner.region.metas.note(slot, head);
        self.recycle_log();
        Ok(())
    }

    /// Gives back to the file system what the file has behind the pages of the newest commit and of those that the meta
    /// pages hold, but for a little. For the holder of the writer lock: nobody else looks there.
    pub(crate) fn trim_file(&self, newest: &Head) -> Result<()> {
        let inner = self.inner;
        let mut needed = newest.roots.pages;
        if inner.options.guards.has(Guard::KeepPagesOfMetas) {
            let metas = inner.region.metas.pages.iter();
            let metas = metas.map(|pages| pages.load(Ordering::SeqCst));
            needed = metas.fold(needed, u64::max);
        }
        inner.cut_file(needed)
    }

    fn recycle_log(&self) {
        let Some(wal) = &self.inner.wal else {
            return;
        };
        if archive::archive(self.inner).is_err() {
            // What is not archived is kept; the one that finds the log full is told.
            return;
        }
        let guards = self.inner.options.guards;
        // A meta page that is not valid needs no log.
        let is_valid = |(commit, _): &(u64, u64)| *commit != 0;
        let needed = self.inner.regions.iter().map(|region| {
            let needed = places(region).into_iter().filter(is_valid);
            let needed = needed.map(|(_, lsn)| lsn);
            match guards.has(Guard::KeepLogOfOlderMeta) {
                true => needed.min(),
                false => needed.max(),
            }
        });
        let floor = match guards.has(Guard::KeepLogOfOtherStores) {
            true => needed.flatten().min(),
            false => needed.flatten().max(),
        };
        if let Some(floor) = floor {
            wal.recycle_before(Lsn(floor));
        }
    }
}

/// What a checkpoint is about to have the data file hold.
pub(crate) struct Pinned {
    pub(crate) head: Head,
    /// Behind the record of the newest commit that was applied when it was pinned.
    applied: Lsn,
}

/// How much a checkpoint has written out at a time.
struct Pace {
    log_end: Option<Lsn>,
    durable: Option<Lsn>,
    /// When somebody was last seen to wait for the disk.
    waited: Instant,
    bytes: u64,
}

/// What a checkpoint sees of those who commit.
#[derive(Clone, Copy)]
struct Seen {
    log_end: Option<Lsn>,
    durable: Option<Lsn>,
    is_syncing: bool,
    is_urgent: bool,
}

impl Seen {
    fn now(inner: &Inner) -> Self {
        let wal = inner.wal.as_ref();
        Self {
            log_end: wal.map(|wal| wal.end()),
            durable: wal.map(|wal| wal.durable()),
            is_syncing: wal.is_some_and(|wal| wal.is_syncing()),
            is_urgent: is_urgent(inner),
        }
    }
}

impl Pace {
    fn new(now: Instant) -> Self {
        Self {
            log_end: None,
            durable: None,
            waited: now,
            bytes: WRITTEN_OUT_BYTES_MIN,
        }
    }

    /// That the log does not grow says little: the one that waits for the disk does not commit meanwhile.
    fn next_bytes(&mut self, seen: Seen, now: Instant) -> u64 {
        let was_synced = std::mem::replace(&mut self.durable, seen.durable) != seen.durable;
        if was_synced || seen.is_syncing {
            self.waited = now;
        }
        let has_grown = std::mem::replace(&mut self.log_end, seen.log_end) != seen.log_end;
        self.bytes = if seen.is_urgent {
            WRITTEN_OUT_BYTES_MAX
        } else if has_grown || self.is_disk_waited_for(now) {
            WRITTEN_OUT_BYTES_MIN
        } else {
            (self.bytes * 2).min(WRITTEN_OUT_BYTES_MAX)
        };
        self.bytes
    }

    /// Whether somebody waits for a sync of the log, or did a moment ago.
    fn is_disk_waited_for(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.waited) < WAITED_FOR
    }
}

impl Env {
    /// Makes the data file hold the newest durable commit by itself and lets the log before it be used again.
    /// Commits go on meanwhile. Gives the commit that the file now holds.
    pub fn checkpoint(&self) -> Result<CommitNo> {
        self.inner().check_may_write()?;
        checkpoint(self.inner())
    }
}

/// The commits on the meta pages of a store, with the log positions behind them.
fn places(region: &Region) -> [(u64, u64); 2] {
    let metas = &region.metas;
    [0, 1].map(|slot: usize| {
        let commit = metas.commits[slot].load(Ordering::SeqCst);
        (commit, metas.lsns[slot].load(Ordering::SeqCst))
    })
}

fn place(head: &Head) -> (u64, u64) {
    (head.commit.0, head.log.lsn.0)
}

/// Checkpoints the newest durable commit.
pub(crate) fn checkpoint(inner: &Inner) -> Result<CommitNo> {
    if inner.wal.is_none() {
        return Ok(inner.region.visible());
    }
    CheckpointLock::take(inner)?.run()
}

/// Checkpoints the store, and others that keep much of the log.
pub(crate) fn checkpoint_due(inner: &Inner) -> Result<()> {
    checkpoint(inner)?;
    checkpoint_others_due(inner)
}

fn checkpoint_others_due(inner: &Inner) -> Result<()> {
    for other in inner.others() {
        if keeps_much(&other, &other.region) {
            other.sync()?;
            if let Some(lock) = CheckpointLock::try_take(&other)? {
                lock.run()?;
            }
        }
    }
    Ok(())
}

/// As [`checkpoint_due`], unless somebody else is at it.
pub(crate) fn checkpoint_due_if_nobody_does(inner: &Inner) -> Result<()> {
    let Some(lock) = CheckpointLock::try_take(inner)? else {
        return Ok(());
    };
    lock.run()?;
    drop(lock);
    checkpoint_others_due(inner)
}

/// Makes whatever has been applied durable and visible, and the data file hold it.
pub(crate) fn settle(inner: &Inner) -> Result<()> {
    inner.sync()?;
    checkpoint(inner).map(drop)
}

/// Has both meta pages lead to the newest commit, if the log does not have it, before a record is appended: a replay
/// cannot go from what the log has to what comes behind. For the holder of the writer lock, who holds no checkpoint
/// lock.
pub(crate) fn hold_unlogged(inner: &Inner) -> Result<()> {
    if !inner.region.ends_unlogged() || !inner.options.guards.has(Guard::HoldUnlogged) {
        return Ok(());
    }
    let head = inner.region.applied_head()?;
    inner.make_visible(head.commit, head.log.lsn)?;
    checkpoint(inner).map(drop)
}

/// With fewer superseded pages than this no checkpoint is due on their account.
const SUPERSEDED_PAGES_MIN: u64 = if cfg!(test) { 64 } else { 2048 };

/// Whether a checkpoint is due: half as many pages as the store whose newest commit this is has in all serve the last
/// checkpoint's commit only, and are not used again before the next checkpoint; or a store keeps much of the log.
pub(crate) fn is_due(inner: &Inner, newest: &Head) -> bool {
    has_many_superseded(inner, newest.roots.pages)
        || inner.regions.iter().any(|region| keeps_much(inner, region))
}

/// Whether the next checkpoint would be due while one is under way, or the log is nearly full.
fn is_urgent(inner: &Inner) -> bool {
    let is_log_nearly_full = |wal: &Arc<Wal>| wal.room() < wal.capacity() / 4;
    inner.wal.as_ref().is_some_and(is_log_nearly_full)
        || has_many_superseded(inner, inner.region.room.load(Ordering::Relaxed))
}

fn has_many_superseded(inner: &Inner, pages: u64) -> bool {
    let superseded = inner.region.metas.superseded.load(Ordering::Relaxed);
    superseded > SUPERSEDED_PAGES_MIN.max(pages / 2)
}

fn keeps_much(inner: &Inner, region: &Region) -> bool {
    let Some(wal) = &inner.wal else {
        return false;
    };
    let used = wal.end().0.saturating_sub(region.metas.log_begin());
    used > wal.capacity() / 8 * 3
}

/// Has the log go on in its first segment, for want of space on the disk for the next one: deleting has to work on a
/// full disk. Gives `false` if it is there already. For nobody who holds a checkpoint lock.
///
/// 1. Everything is checkpointed, and nobody appends meanwhile: the log is of no use to anybody.
/// 2. All meta pages are written once more, with the same commits, and with the place where the log will go on.
/// 3. The log goes on there.
///
/// A crash during 2 leaves meta pages that name that place and others that name the end of the log, behind which there
/// is nothing: recovery does the rest.
pub(crate) fn begin_lap(inner: &Inner) -> Result<bool> {
    empty_log(inner)?;
    begin_lap_of_empty(inner)
}

/// The same with a log that was emptied, to which others may have appended since.
pub(crate) fn begin_lap_of_empty(inner: &Inner) -> Result<bool> {
    let Some(wal) = &inner.wal else {
        return Ok(false);
    };
    let stores: Vec<_> = inner.all_stores().collect();
    let locks = stores.iter().map(|store| CheckpointLock::take(store));
    let locks = locks.collect::<Result<Vec<_>>>()?;
    let appending = AppendLock::take(inner)?;
    let Some(place) = wal.next_lap()? else {
        return Ok(false);
    };
    if !locks.iter().all(CheckpointLock::has_run) {
        // Somebody has committed something meanwhile, and perhaps begun the lap; the caller tries again.
        return Ok(true);
    }
    // What was appended meanwhile, and is checkpointed, too.
    archive::archive(inner)?;
    // From the first meta page on that names the place, a record at the end of the log might not be found again.
    let begun = begin_lap_at(place, &locks, &appending);
    begun.inspect_err(|_| inner.poison())?;
    Ok(true)
}

fn begin_lap_at(
    place: Position,
    locks: &[CheckpointLock<'_>],
    appending: &AppendLock<'_>,
) -> Result<()> {
    for lock in locks {
        let head = lock.inner.region.applied_head()?;
        let head = Head { log: place, ..head };
        if lock.inner.options.guards.has(Guard::MetasBeforeLap) {
            lock.write_meta(&head)?;
            lock.write_meta(&head)?;
        }
    }
    appending.begin_lap(place)
}

/// Makes the visible commit the target; gives what `look` finds for it, which is nothing if it came too late for that
/// commit. As with a reader's slot: the one that does not see the target has noted an earlier visible commit, which
/// then is not the one we find when looking again.
pub(crate) fn pin_target<T>(
    metas: &Metas,
    visible: impl Fn() -> CommitNo,
    look: impl Fn(CommitNo) -> Option<T>,
) -> (CommitNo, T) {
    loop {
        let commit = visible();
        metas.target.swap(commit.0, Ordering::SeqCst);
        if visible() == commit
            && let Some(found) = look(commit)
        {
            return (commit, found);
        }
    }
}

/// Waits for room in the log: every commit so far, to whichever store, is made durable and checkpointed. For nobody who
/// holds a checkpoint lock.
pub(crate) fn empty_log(inner: &Inner) -> Result<()> {
    if inner.wal.is_none() {
        return Err(Error::Damaged("there is no log to be emptied".into()));
    }
    inner.sync()?;
    archive::archive(inner)?;
    CheckpointLock::take(inner)?.run()?;
    for other in inner.others() {
        other.sync()?;
        CheckpointLock::take(&other)?.run()?;
    }
    Ok(())
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;

    #[test]
    fn little_is_written_out_at_a_time_as_long_as_somebody_waits_for_the_disk() {
        const MIN: u64 = WRITTEN_OUT_BYTES_MIN;
        let mut seen = Seen {
            log_end: Some(Lsn(8)),
            durable: Some(Lsn(0)),
            is_syncing: true,
            is_urgent: false,
        };
        let start = Instant::now();
        let mut pace = Pace::new(start);
        // One sync takes long, and nothing is appended meanwhile.
        for time in 1..=20 {
            assert_eq!(pace.next_bytes(seen, start + WAITED_FOR * time), MIN);
        }
        let synced = start + WAITED_FOR * 20;
        seen.is_syncing = false;
        seen.durable = seen.log_end;
        assert_eq!(pace.next_bytes(seen, synced), MIN);
        // The next one who waits may be about to come.
        assert!(pace.is_disk_waited_for(synced + WAITED_FOR / 2));
        assert_eq!(pace.next_bytes(seen, synced + WAITED_FOR / 2), MIN);
        let later = synced + WAITED_FOR;
        assert!(!pace.is_disk_waited_for(later));
        assert_eq!(pace.next_bytes(seen, later), 2 * MIN);
        assert_eq!(pace.next_bytes(seen, later), 4 * MIN);
        seen.is_urgent = true;
        assert_eq!(pace.next_bytes(seen, later), WRITTEN_OUT_BYTES_MAX);
        seen.is_urgent = false;
        // Syncs that came and went between two looks count, too.
        (seen.log_end, seen.durable) = (Some(Lsn(16)), Some(Lsn(16)));
        assert_eq!(pace.next_bytes(seen, later), MIN);
        assert!(pace.is_disk_waited_for(later));
    }
}

impl Inner {
    /// Makes everything up to a commit durable and visible, by a checkpoint if the log does not have it.
    pub(crate) fn make_durable(&self, commit: CommitNo, lsn: Lsn) -> Result<()> {
        self.make_visible(commit, lsn)?;
        match self.region.is_held(commit) {
            true => Ok(()),
            false => checkpoint(self).map(drop),
        }
    }

    /// Makes everything that has been applied durable and visible.
    pub(crate) fn sync(&self) -> Result<CommitNo> {
        let head = self.region.newest_head()?;
        self.make_durable(head.commit, head.log.lsn)?;
        Ok(head.commit)
    }

    /// Has the file trimmed, unless somebody is writing.
    pub(crate) fn trim_file_if_nobody_writes(&self) -> Result<()> {
        let writer = &self.region.writer;
        // A dead owner's place is left to the one that completes what it did.
        if writer.try_lock(self.membership.index(), |_| true).is_none() {
            return Ok(());
        }
        let trim = || CheckpointLock::take(self)?.trim_file(&self.region.applied_head()?);
        let result = trim();
        writer.unlock();
        result
    }
}
