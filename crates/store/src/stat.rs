//! Figures about an open environment.

use crate::env::{Env, Inner, readers};
use crate::error::{Error, Result};
use crate::format::free_list::{FreeExtent, FreePages, FreeRecord, PageRange};
use crate::format::page::PAGE_BYTES;
use crate::heap::{HeapUse, segment_key};
use crate::ids::{CommitNo, HeapNo, PageNo};
use crate::sync::{Arc, Ordering};
use crate::tree::View;
use crate::txn::snapshot::Snapshot;

/// Sizes, heads and readers of an environment at one moment.
///
/// ```
/// # fn main() -> sapwood_store::Result<()> {
/// # use sapwood_store::{Env, Options, TreeKind};
/// # let env = Env::in_memory(&Options::new())?;
/// let snapshot = env.read()?;
/// let mut txn = env.write()?;
/// txn.create_tree("t", TreeKind::COMPACT)?;
/// txn.commit()?.wait_durable()?;
/// // A snapshot that is one commit old, and what it keeps from being used again.
/// let stat = env.stat()?;
/// let [reader] = &stat.readers[..] else { panic!("there is one snapshot") };
/// assert_eq!((reader.commit, reader.age), (snapshot.commit(), 1));
/// assert_eq!(reader.pid, std::process::id());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Stat {
    /// The newest commit that readers see.
    pub visible: CommitNo,
    /// The newest commit that is applied; later ones than `visible` wait for the log's sync.
    pub applied: CommitNo,
    /// The commit that the data file holds without the log.
    pub checkpoint: CommitNo,
    /// How many checkpoints there have been since the environment was opened, by all processes.
    pub checkpoints: u64,
    /// Pages handed out so far, free ones included.
    pub pages: u64,
    /// Pages the data file has room for.
    pub pages_allocated: u64,
    /// Bytes of log that a recovery would read.
    pub log_bytes: u64,
    /// Bytes that were ever appended to the log; 0 where there is none.
    pub log_bytes_ever: u64,
    /// How often the log has been synced since the environment was opened, by all processes.
    pub log_syncs: u64,
    /// Those of the reader table's slots that hold a snapshot.
    pub readers: Vec<Reader>,
    /// What is taken by the values of trees that have them out of line. `None` if all slots of the reader table are
    /// taken, and nobody can look.
    pub segments: Option<Segments>,
}

/// Values out of line, of all trees of a store.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct Segments {
    /// Pages that are kept for them.
    pub pages: u64,
    /// Bytes of those that are the newest of their keys; the rest is room, and what was replaced.
    pub live_bytes: u64,
}

/// One snapshot in the reader table.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Reader {
    /// The process that holds it.
    pub pid: u32,
    /// The thread that claimed the slot.
    pub tid: u32,
    /// The commit it sees: what was freed by later ones, and existed then, cannot be used again.
    pub commit: CommitNo,
    /// How many commits have become visible since.
    pub age: u64,
    /// Its owner does not read at the moment, and it may be ended ([`Snapshot::park`](crate::Snapshot::park)).
    pub is_parked: bool,
}

impl Env {
    /// The free list of the visible commit.
    pub fn free_pages(&self) -> Result<Vec<FreePages>> {
        self.inner().check_usable()?;
        free_pages(self.inner())
    }

    /// Sizes, heads and readers, as of now.
    pub fn stat(&self) -> Result<Stat> {
        self.inner().check_usable()?;
        stat(self.inner())
    }

    /// All snapshots, and the bytes of free pages that each keeps from being used again: of what it sees, all that
    /// later commits have replaced or removed. What several see counts for each of them. Goes through the whole free
    /// list.
    pub fn kept_by_readers(&self) -> Result<Vec<(Reader, u64)>> {
        self.inner().check_usable()?;
        let readers = readers(self.inner());
        let commits: Vec<_> = readers.iter().map(|reader| reader.commit).collect();
        let kept = kept_bytes(&free_pages(self.inner())?, &commits);
        Ok(readers.into_iter().zip(kept).collect())
    }
}

/// What a snapshot costs others, for an owner that can begin a new one.
///
/// ```
/// # fn main() -> sapwood_store::Result<()> {
/// # use sapwood_store::{Env, Options, TreeKind};
/// # let env = Env::in_memory(&Options::new())?;
/// let mut snapshot = env.read()?;
/// # let mut txn = env.write()?;
/// # txn.create_tree("t", TreeKind::COMPACT)?;
/// # txn.commit()?.wait_durable()?;
/// // Between two steps of a long search.
/// if snapshot.has_outstayed(10_000, 64 << 20)? {
///     snapshot = env.read()?;
/// }
/// # assert_eq!(snapshot.age(), 1);
/// # Ok(())
/// # }
/// ```
impl Snapshot {
    /// How many commits have become visible since.
    pub fn age(&self) -> u64 {
        let visible = self.inner().region.visible();
        visible.0.saturating_sub(self.commit().0)
    }

    /// The bytes of free pages that the snapshot keeps from being used again: see [`Env::kept_by_readers`].
    pub fn kept_bytes(&self) -> Result<u64> {
        let kept = kept_bytes(&free_pages(self.inner())?, &[self.commit()]);
        Ok(kept.into_iter().sum())
    }

    /// Whether it is more than so many commits old, or keeps more than so many bytes. The latter goes through the whole
    /// free list: ask now and then.
    pub fn has_outstayed(&self, age_max: u64, kept_bytes_max: u64) -> Result<bool> {
        let age = self.age();
        Ok(age > age_max || age > 0 && self.kept_bytes()? > kept_bytes_max)
    }
}

/// The bytes of free pages that a snapshot of each of these commits sees.
fn kept_bytes(free: &[FreePages], commits: &[CommitNo]) -> Vec<u64> {
    let mut order: Vec<CommitNo> = commits.to_vec();
    order.sort_unstable();
    order.dedup();
    // By how much each commit sees more, and less, than the one before.
    let mut begins = vec![0_u64; order.len() + 1];
    let mut ends = begins.clone();
    let place = |of: CommitNo| order.partition_point(|commit| *commit < of);
    for free in free {
        if let (Some(born), Some(freed)) = (free.born, free.freed) {
            let bytes = u64::from(free.pages) * PAGE_BYTES as u64;
            begins[place(born)] += bytes;
            ends[place(freed)] += bytes;
        }
    }
    let seen = begins.iter().zip(&ends).scan(0, |seen, (more, less)| {
        *seen = *seen + more - less;
        Some(*seen)
    });
    let seen: Vec<u64> = seen.collect();
    commits.iter().map(|commit| seen[place(*commit)]).collect()
}

fn readers(inner: &Inner) -> Vec<Reader> {
    let visible = inner.region.visible();
    let pinned = readers::pinned(inner);
    pinned
        .iter()
        .map(|pinned| Reader {
            pid: inner
                .first_region()
                .processes
                .get(usize::from(pinned.process))
                .map_or(0, |entry| entry.pid()),
            tid: pinned.thread,
            commit: pinned.commit,
            age: visible.0.saturating_sub(pinned.commit.0),
            is_parked: pinned.is_parked,
        })
        .collect()
}

pub(crate) fn stat(inner: &Arc<Inner>) -> Result<Stat> {
    let region = &inner.region;
    let visible = region.visible();
    let readers = readers(inner);
    let metas = &region.metas;
    let wal = inner.wal.as_ref();
    let roots = region.newest_head()?.roots;
    let segments = match roots.segments.height {
        0 => Some(Segments::default()),
        _ => segments(inner)?,
    };
    Ok(Stat {
        visible,
        applied: region.applied(),
        checkpoint: metas.written(),
        checkpoints: metas.completed.load(Ordering::Relaxed),
        pages: roots.pages,
        pages_allocated: region.room.load(Ordering::Acquire),
        log_bytes: wal.map_or(0, |wal| wal.end().0.saturating_sub(metas.log_begin())),
        log_bytes_ever: wal.map_or(0, |wal| wal.end().0),
        log_syncs: wal.map_or(0, |wal| wal.syncs()),
        readers,
        segments,
    })
}

/// The sums over all heaps, as of the visible commit.
fn segments(inner: &Arc<Inner>) -> Result<Option<Segments>> {
    let (snapshot, head) = match Snapshot::begin_with_head(inner) {
        Err(Error::ReadersFull) => return Ok(None),
        begun => begun?,
    };
    let mut sum = Segments::default();
    let mut cursor = View::new(snapshot.pages(), head.roots.segments).cursor();
    let mut heap = HeapNo(1);
    // From one heap to the next, past the segments between.
    while cursor.seek(&segment_key(heap, PageNo(0)))? {
        let Some((key, value)) = cursor.record()? else {
            break;
        };
        let damaged = || Error::Damaged("what is known of segments is damaged".into());
        let its = HeapNo(u32::from_be_bytes(*key.first_chunk().ok_or_else(damaged)?));
        let usage = HeapUse::decode(value).filter(|_| its >= heap);
        let usage = usage.ok_or_else(damaged)?;
        sum.pages = sum.pages.saturating_add(usage.pages);
        sum.live_bytes = sum.live_bytes.saturating_add(usage.live);
        let Some(next) = its.0.checked_add(1) else {
            break;
        };
        heap = HeapNo(next);
    }
    Ok(Some(sum))
}

/// The whole free list of the visible commit.
pub(crate) fn free_pages(inner: &Arc<Inner>) -> Result<Vec<FreePages>> {
    let (snapshot, head) = Snapshot::begin_with_head(inner)?;
    let mut cursor = View::new(snapshot.pages(), head.roots.free).cursor();
    let (ready, pending) = head.roots.recent.decode(head.commit, head.roots.pages)?;
    let pending = pending.iter().map(FreeExtent::pages);
    let mut all: Vec<_> = ready.iter().map(PageRange::pages).chain(pending).collect();
    for _ in 0..head.roots.free.records {
        cursor.next()?;
        let Some((key, value)) = cursor.record()? else {
            break;
        };
        let record = FreeRecord::decode(key, value, snapshot.pages().limit())?;
        all.extend(record.pages());
    }
    Ok(all)
}
