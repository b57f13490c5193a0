//! Commits: applied, logged, durable, visible.
//!
//! 1. Trees' records go into the catalog, used and freed pages into the free list.
//! 2. Each page is sealed, and what distinguishes it from the page it was copied from goes into a log record.
//! 3. The record is appended: the commit is *applied*. The next write transaction may begin.
//! 4. The log is synced up to the record, once for all that wait: the commit is *durable*.
//! 5. It is shown to new snapshots: it is *visible*, and acknowledged.
//!
//! A crash before 4 leaves a record that is whole, and then the commit has happened, or one that is not, and then it has not;
//! nobody has been told either way. The pages written in place of free ones say nothing by themselves.
//!
//! A transaction that is too large for a log record, or wrote pages outside of the log, takes another way: the data file is
//! synced, and a record that holds only the new roots commits it. It is preceded and followed by a checkpoint. Preceded,
//! because a replay from further back would write over pages of this commit that an earlier one had used for something else;
//! followed, because only a meta page or a checkpoint's target protects pages which the log does not hold.

use std::fmt;
use std::io::IoSlice;

use sapwood_wal::{Position, Wal};

use crate::checkpoint::{self, CheckpointLock};
use crate::env::{Env, Inner};
use crate::error::Result;
use crate::guard::Guard;
use crate::head::{Head, Roots};
use crate::own::OwnPages;
use crate::page::{CommitNo, PageNo, ReadPages};
use crate::record::{RecordHeader, encode_extent, encode_page};
use crate::region::HEADS;
use crate::write::WriteTxn;

/// What a commit promises.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Durability {
    /// The commit is visible only once it is durable, which [`Ticket::wait`] waits for: whatever anybody has seen
    /// survives a power cut.
    #[default]
    Durable,
    /// The commit is logged but nobody waits for the disk: it is visible as soon as all [`Durability::Durable`] commits
    /// before it are durable. A power cut may take the last of these commits away (whole ones, and none without its
    /// successors), but never damages anything; the death of a process takes none. They become durable with the next
    /// durable commit, with [`Env::sync`] and [`Ticket::wait`], and by themselves after about as long as
    /// [`Options::idle_checkpoint`](crate::Options::idle_checkpoint) says.
    Relaxed,
}

/// The claim to a commit that is applied and logged but perhaps not durable yet. It may be cloned, sent to another thread and waited
/// for any number of times, at any later time. If it is dropped without waiting, the commit becomes durable with the next
/// one that is waited for, or after a moment by itself.
#[derive(Clone)]
pub struct Ticket {
    env: Env,
    commit: CommitNo,
    log: Position,
}

impl Ticket {
    pub(crate) fn new(env: Env, head: &Head) -> Self {
        Self {
            env,
            commit: head.commit,
            log: head.log,
        }
    }

    /// The number of the commit.
    pub fn commit(&self) -> CommitNo {
        self.commit
    }

    /// Whether new snapshots see the commit.
    pub fn is_visible(&self) -> bool {
        self.env.inner().region.visible() >= self.commit
    }

    /// Whether the commit is durable and visible. (In memory nothing is durable, and visible is all that it can be.)
    pub fn is_durable(&self) -> bool {
        let wal = self.env.inner().wal.as_ref();
        self.is_visible() && wal.is_none_or(|wal| wal.durable() >= self.log.lsn)
    }

    /// Waits until the commit is durable and visible; one sync of the log serves all that wait.
    ///
    /// A failed sync is an error for all that wait for it: whether the commit survives is decided when the environment is
    /// opened again.
    pub fn wait(&self) -> Result<CommitNo> {
        let inner = self.env.inner();
        inner.check_usable()?;
        if !self.is_durable() {
            inner.make_visible(self.commit, self.log.lsn)?;
        }
        Ok(self.commit)
    }
}

impl fmt::Debug for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ticket")
            .field("commit", &self.commit)
            .finish_non_exhaustive()
    }
}

/// Does everything up to having the commit applied. Gives its head, or the one the transaction began from if nothing changed.
pub(crate) fn commit(txn: &mut WriteTxn, durability: Durability) -> Result<Head> {
    let env = txn.env().clone();
    let inner = env.inner();
    inner.check_sound()?;
    txn.own_mut().may_use_reserve = true;
    let catalog = txn.save_catalog()?;
    if txn.own().is_unchanged() {
        return Ok(*txn.head());
    }
    let before = *txn.head();
    let pages = txn.own_mut();
    let free = pages.save_free_list()?;
    let header = RecordHeader {
        has_changes: true,
        store: inner.identity.store,
        timeline: inner.identity.timeline,
        commit: CommitNo(before.commit.0 + 1),
        roots: Roots {
            pages: pages.view().limit(),
            catalog,
            free,
        },
    };
    wait_for_place(inner, &before)?;
    match &inner.wal {
        None => {
            let mut record = pages.take_record_buffer();
            finish_pages(pages, &header, 0, &mut record)?;
            pages.keep_record_buffer(record);
            Ok(apply(inner, &header, Position::default(), durability))
        }
        Some(wal) => commit_logged(inner, wal, pages, &header, durability),
    }
}

fn commit_logged(
    inner: &Inner,
    wal: &Wal,
    pages: &mut OwnPages,
    header: &RecordHeader,
    durability: Durability,
) -> Result<Head> {
    let mut record = pages.take_record_buffer();
    let max = usize::try_from(wal.record_bytes_max().min(wal.capacity() / 2)).unwrap_or(usize::MAX);
    let is_logged = finish_pages(pages, header, max, &mut record)?;
    let head = if is_logged {
        append(inner, wal, &record).map(|end| apply(inner, header, end, durability))
    } else {
        commit_unlogged(inner, wal, header, &mut record)
    };
    pages.keep_record_buffer(record);
    head
}

/// Seals all changed pages and writes the log record, unless that would have more than `max` bytes; gives whether it is there.
fn finish_pages(
    pages: &mut OwnPages,
    header: &RecordHeader,
    max: usize,
    record: &mut Vec<u8>,
) -> Result<bool> {
    header.encode(record);
    let mut fits = !pages.has_appended() && record.len() <= max;
    for (number, base) in pages.changed_pages() {
        pages.seal(number)?;
        if fits {
            let base = match base {
                PageNo(0) => None,
                base => Some((base, pages.page(base)?)),
            };
            encode_page(pages.page(number)?, base, record);
            fits = record.len() <= max;
        }
    }
    for (first, length) in pages.changed_extents() {
        if fits {
            encode_extent(first, pages.extent(first, length)?, record);
            fits = record.len() <= max;
        }
    }
    Ok(fits)
}

/// Appends the record, making room in the log if there is none.
fn append(inner: &Inner, wal: &Wal, record: &[u8]) -> Result<Position> {
    match wal.append(&[IoSlice::new(record)]) {
        Err(sapwood_wal::Error::Full { .. }) => {
            checkpoint::empty_log(inner)?;
            Ok(wal.append(&[IoSlice::new(record)])?)
        }
        result => Ok(result?),
    }
}

/// Makes the commit the newest one.
fn apply(inner: &Inner, header: &RecordHeader, log: Position, durability: Durability) -> Head {
    let head = Head {
        commit: header.commit,
        log,
        roots: header.roots,
    };
    inner.region.apply(&head, durability);
    match &inner.wal {
        None => inner.region.publish(head.commit),
        Some(wal) if durability == Durability::Relaxed => {
            inner.region.publish_ready(|| wal.durable());
        }
        Some(_) => {}
    }
    head
}

/// Commits by syncing the data file. The commit is durable and visible afterwards.
fn commit_unlogged(
    inner: &Inner,
    wal: &Wal,
    header: &RecordHeader,
    record: &mut Vec<u8>,
) -> Result<Head> {
    let before = inner.region.applied_head()?;
    inner.make_visible(before.commit, before.log.lsn)?;
    let guards = inner.options.guards;
    let lock = CheckpointLock::take(inner)?;
    // One sync serves the commit before and this one.
    let before = lock.pin()?;
    if guards.has(Guard::SyncBeforeRoots) {
        lock.sync_data()?;
    }
    if guards.has(Guard::CheckpointBeforeRoots) {
        lock.write_meta_if_newer(&before)?;
    }
    let header = RecordHeader {
        has_changes: false,
        ..*header
    };
    header.encode(record);
    lock.pin_applied(header.commit);
    let end = match wal.append(&[IoSlice::new(record)]) {
        Err(sapwood_wal::Error::Full { .. }) => {
            lock.run_twice()?;
            lock.pin_applied(header.commit);
            wal.append(&[IoSlice::new(record)])
        }
        result => result,
    }?;
    let head = apply(inner, &header, end, Durability::Durable);
    inner.make_visible(head.commit, end.lsn)?;
    // Without a meta page nothing would protect these pages for long.
    if guards.has(Guard::MetaAfterRoots) {
        lock.write_meta(&head).inspect_err(|_| inner.poison())?;
    }
    Ok(head)
}

/// Waits until the ring of heads has a place for one more commit.
fn wait_for_place(inner: &Inner, before: &Head) -> Result<()> {
    // The visible head and a few before it stay, for readers that are about to pin them.
    if before.commit.0 - inner.region.visible().0 >= HEADS - 4 {
        inner.make_visible(before.commit, before.log.lsn)?;
    }
    Ok(())
}

/// What is left to do once the writer lock is free again. The commit has happened: what fails here is told to whoever waits for
/// it, or by the next one.
pub(crate) fn afterwards(env: &Env, head: &Head) {
    let inner = env.inner();
    if inner.wal.is_none() {
        return;
    }
    let is_due = checkpoint::is_due(inner);
    if inner.options.idle_checkpoint.is_some() {
        inner.background.committed(is_due);
    } else if is_due && inner.make_visible(head.commit, head.log.lsn).is_ok() {
        let _: Result<()> = checkpoint::checkpoint_if_nobody_does(inner);
    }
}
