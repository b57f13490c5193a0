//! The lock region: what all threads and processes that have an environment open share. There is one for each store;
//! those parts that the whole environment has once are in the first store's: the log, the appender's lock, the
//! processes, poison.
//!
//! It consists of atomics only, is valid when all its bytes are zero, and is volatile: the first process to open the
//! environment salvages the records that dead ones have left in it, and writes it anew (see `open`). Everything in it
//! that changes often has a cache line to itself.
//!
//! ```text
//!  magic, layout version
//!  boot                   under which run of the system it is in memory
//!  writer lock            one write transaction at a time
//!  checkpoint lock        one checkpoint at a time
//!  growth lock            one at a time makes the file grow
//!  append lock            one at a time appends to the log and applies what it has appended
//!  archive lock           one at a time archives
//!  poisoned               whether a sync of the data file has failed
//!  applied head           the newest commit: pages written, record appended, not necessarily durable
//!  visible head           the newest commit whose predecessors and itself are durable, or need not be: what new snapshots see
//!  room, checkpoints      pages the file has room for, commits on the meta pages, the target of a checkpoint
//!  unlogged               the newest commits, as far as the log does not have them
//!  log                    the state of the log that its users share
//!  heads                  a ring of the last HEADS commits' roots, indexed by commit number
//!  processes              who has the environment open
//!  slots                  the reader table
//!  log buffer             records of the log on their way to the disk
//! ```

// The region is a raw mapping that is looked at through one structure of atomics.
#![allow(unsafe_code)]

use std::fs::File;
use std::ops::Deref;

use sapwood_wal::lock::Lock;
use sapwood_wal::process::{PROCESSES_MAX, ProcessEntry, boot_id, stamp_of};
use sapwood_wal::storage::Window;
use sapwood_wal::{Lsn, Shared, sync};

use crate::env::options::Durability;
use crate::env::readers::Slot;
use crate::error::{Error, Result};
use crate::format::roots::{Head, ROOTS_WORDS, Roots, SNAPSHOT_WORDS, position};
use crate::ids::CommitNo;
use crate::limits::READERS_MAX;
use crate::sync::{Arc, AtomicU32, AtomicU64, Ordering, fence};

const MAGIC: u64 = u64::from_be_bytes(*b"SAPWLOCK");

/// The version of everything below, that of the log's shared state included. Processes that disagree about it cannot
/// share an environment.
const LAYOUT: u32 = 13;

/// How many commits may be applied but not visible yet, and a few more.
pub(crate) const HEADS: u64 = 64;

/// What may be on its way to the log: many small commits. Larger ones gain little by it.
const LOG_BUFFER_BYTES: usize = 256 * 1024;

/// Something alone on its cache lines.
#[repr(C, align(64))]
pub(crate) struct Line<T>(T);

impl<T> Line<T> {
    pub(crate) const fn new(content: T) -> Self {
        Self(content)
    }
}

impl<T> Deref for Line<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

/// The region, as it lies in memory.
#[repr(C)]
pub(crate) struct Layout {
    magic: AtomicU64,
    layout: AtomicU32,
    /// The system's boot id, 0 if what is here is gone when nobody has it open.
    boot: [AtomicU64; 2],
    /// What tells the lock file that this was made in from copies of it: device, inode, time of birth.
    stamp: [AtomicU64; 3],
    pub(crate) writer: Line<Lock>,
    pub(crate) checkpointer: Line<Lock>,
    pub(crate) grower: Line<Lock>,
    pub(crate) appender: Line<Lock>,
    pub(crate) archiver: Line<Lock>,
    /// Not 0 since a sync of the data file has failed.
    pub(crate) poisoned: Line<AtomicU32>,
    applied: Line<AtomicU64>,
    visible: Line<AtomicU64>,
    /// Pages that the file has room for, allocated and synced: only these are handed out.
    pub(crate) room: Line<AtomicU64>,
    pub(crate) metas: Line<Metas>,
    unlogged: Line<Unlogged>,
    log: Line<Shared>,
    /// Every record of the log before this position has been applied.
    pub(crate) log_applied: Line<AtomicU64>,
    heads: [HeadCell; HEADS as usize],
    pub(crate) processes: Line<[ProcessEntry; PROCESSES_MAX]>,
    /// All slots from this one on have never been used.
    pub(crate) slots_end: Line<AtomicU32>,
    pub(crate) slots: [Slot; READERS_MAX],
    log_buffer: Line<[sync::AtomicU64; LOG_BUFFER_BYTES / 8]>,
}

/// What the meta pages on disk hold; 0 where a meta page is not valid.
#[cfg_attr(all(test, shuttle), derive(Default))]
#[repr(C)]
pub(crate) struct Metas {
    /// Their commits.
    pub(crate) commits: [AtomicU64; 2],
    /// The log positions from which these commits are replayed.
    pub(crate) lsns: [AtomicU64; 2],
    /// How many pages these commits have.
    pub(crate) pages: [AtomicU64; 2],
    /// The commit that a checkpoint is about to write, or the last one wrote.
    pub(crate) target: AtomicU64,
    /// Pages of the last target that commits since then have freed.
    pub(crate) superseded: AtomicU64,
    /// Checkpoints that have been completed since the region was set up.
    pub(crate) completed: AtomicU64,
}

/// Commits that the log does not have: the newest ones in a row, as long as nobody waits for any. Changed by the
/// holder of the writer lock.
#[repr(C)]
struct Unlogged {
    /// The commit before the first of them.
    before: AtomicU64,
    /// The last of them, which is stored before it is applied: a writer that dies in between leaves one too many.
    last: AtomicU64,
    /// How many commits nobody has waited for since anybody did.
    relaxed: AtomicU64,
}

impl Metas {
    /// Notes what a meta page holds from now on.
    pub(crate) fn note(&self, slot: usize, head: &Head) {
        self.pages[slot].store(head.roots.pages, Ordering::SeqCst);
        self.lsns[slot].store(head.log.lsn.0, Ordering::SeqCst);
        self.commits[slot].store(head.commit.0, Ordering::SeqCst);
    }

    /// The commit that a checkpoint is about to write, or the last one wrote.
    pub(crate) fn target(&self) -> CommitNo {
        CommitNo(self.target.load(Ordering::Relaxed))
    }

    /// The commit of a meta page.
    pub(crate) fn commit(&self, slot: usize) -> CommitNo {
        CommitNo(self.commits[slot].load(Ordering::SeqCst))
    }

    /// Where the newest one has the log begin.
    pub(crate) fn log_begin(&self) -> u64 {
        load(&self.lsns).into_iter().max().unwrap_or_default()
    }

    /// The newest commit that a meta page holds.
    pub(crate) fn written(&self) -> CommitNo {
        let written = load(&self.commits).into_iter().max();
        CommitNo(written.unwrap_or_default())
    }

    /// The newest commit that a meta page holds or is about to.
    pub(crate) fn newest(&self) -> CommitNo {
        self.written().max(self.target())
    }
}

/// The roots of one commit. A reader that meets the commit number it looks for before and after reading the rest has
/// read one commit's roots, whole. The first of its cache lines hold all that a snapshot needs.
#[repr(C, align(64))]
struct HeadCell {
    commit: AtomicU64,
    roots: [AtomicU64; ROOTS_WORDS],
    lsn: AtomicU64,
    /// The checksum of the record, and `RELAXED`.
    chain: AtomicU64,
}

impl HeadCell {
    /// Where its record ends, and `chain`.
    fn log(&self) -> (u64, u64) {
        let (lsn, chain) = (&self.lsn, &self.chain);
        (lsn.load(Ordering::Relaxed), chain.load(Ordering::Relaxed))
    }
}

fn load<const N: usize>(words: &[AtomicU64; N]) -> [u64; N] {
    words.each_ref().map(|word| word.load(Ordering::Relaxed))
}

/// The commit may be seen before it is durable.
const RELAXED: u64 = 1 << 32;

impl Layout {
    /// Prepares a zeroed region for use, with one commit both applied and visible.
    pub(crate) fn start(&self, head: &Head) {
        self.store_head(head, Durability::Durable);
        self.applied.store(head.commit.0, Ordering::SeqCst);
        self.visible.store(head.commit.0, Ordering::SeqCst);
        self.layout.store(LAYOUT, Ordering::Relaxed);
        self.magic.store(MAGIC, Ordering::Release);
    }

    /// Whether what is here outlives all processes that use it: it is in a file, and as they left it.
    pub(crate) fn outlives_processes(&self) -> bool {
        let boot = load(&self.boot);
        boot != [0; 2] && boot == boot_words()
    }

    /// Whether a sync of the data file has failed.
    pub(crate) fn is_poisoned(&self) -> bool {
        self.poisoned.load(Ordering::Acquire) != 0
    }

    /// Whether this was made in this lock file, and not in another one that it was copied from.
    pub(crate) fn was_made_in(&self, file: &File) -> Result<bool> {
        Ok(load(&self.stamp) == stamp_of(file)?)
    }

    /// Refuses a region that another version of this program has set up.
    fn check(&self) -> Result<()> {
        if self.magic.load(Ordering::Acquire) != MAGIC {
            return Err(Error::Damaged("the lock region is not one".into()));
        }
        match self.layout.load(Ordering::Relaxed) {
            LAYOUT => Ok(()),
            found => Err(Error::UnknownVersion {
                what: "lock region",
                found,
                known: LAYOUT,
            }),
        }
    }

    /// The newest commit that readers see.
    pub(crate) fn visible(&self) -> CommitNo {
        CommitNo(self.visible.load(Ordering::SeqCst))
    }

    /// The newest commit.
    pub(crate) fn applied(&self) -> CommitNo {
        CommitNo(self.applied.load(Ordering::Acquire))
    }

    /// The head of a commit, unless that is so old that its place in the ring has been used again.
    pub(crate) fn head(&self, commit: CommitNo) -> Option<Result<Head>> {
        let read = |cell: &HeadCell| (load(&cell.roots), cell.log());
        let (words, (lsn, chain)) = self.read(commit, read)?;
        Some(Roots::from_words(&words).map(|roots| Head {
            commit,
            log: position(lsn, chain as u32),
            roots,
        }))
    }

    /// What `read` finds in the place of a commit in the ring, if that was not used again meanwhile.
    #[inline]
    fn read<T>(&self, commit: CommitNo, read: impl FnOnce(&HeadCell) -> T) -> Option<T> {
        let cell = &self.heads[(commit.0 % HEADS) as usize];
        if cell.commit.load(Ordering::Acquire) != commit.0 {
            return None;
        }
        let read = read(cell);
        fence(Ordering::Acquire);
        (cell.commit.load(Ordering::Relaxed) == commit.0).then_some(read)
    }

    /// What a snapshot of this commit needs: the number of pages and the words of the catalog.
    pub(crate) fn snapshot_words(&self, commit: CommitNo) -> Option<[u64; SNAPSHOT_WORDS]> {
        self.read(commit, |cell| {
            std::array::from_fn(|at| cell.roots[at].load(Ordering::Relaxed))
        })
    }

    /// The head of the newest commit; for the holder of the writer lock, behind whom it cannot move.
    pub(crate) fn applied_head(&self) -> Result<Head> {
        self.head(self.applied())
            .unwrap_or_else(|| Err(Error::Damaged("the applied head is missing".into())))
    }

    /// The same for those who hold no lock, while others commit.
    pub(crate) fn newest_head(&self) -> Result<Head> {
        loop {
            // A head that is gone has been followed by many others.
            if let Some(head) = self.head(self.applied()) {
                return head;
            }
        }
    }

    /// Makes a commit the newest one; for the holder of the writer lock. The caller has seen to it that the place in
    /// the ring is not that of a commit which may still be asked for.
    pub(crate) fn apply(&self, head: &Head, durability: Durability) {
        self.store_head(head, durability);
        self.applied.store(head.commit.0, Ordering::Release);
    }

    /// Makes a commit the newest one that the log does not have, as [`Layout::apply`] does others.
    pub(crate) fn apply_unlogged(&self, head: &Head) {
        let before = head.commit.0 - 1;
        if self.unlogged.last.load(Ordering::Relaxed) != before {
            self.unlogged.before.store(before, Ordering::SeqCst);
        }
        self.unlogged.last.store(head.commit.0, Ordering::SeqCst);
        self.apply(head, Durability::Relaxed);
    }

    /// Whether the newest commit is not in the log. Exact for the holder of the writer lock.
    pub(crate) fn ends_unlogged(&self) -> bool {
        let [before, last] = self.unlogged_ends();
        let applied = self.applied().0;
        before < applied && applied <= last
    }

    /// Whether the log has a commit, or the data file by itself.
    pub(crate) fn is_held(&self, commit: CommitNo) -> bool {
        let [before, last] = self.unlogged_ends();
        !(before < commit.0 && commit.0 <= last) || self.metas.written() >= commit
    }

    /// As [`Layout::is_held`], for the newest commit.
    pub(crate) fn holds_newest(&self) -> bool {
        self.is_held(self.applied())
    }

    fn unlogged_ends(&self) -> [u64; 2] {
        let Unlogged { before, last, .. } = &*self.unlogged;
        // In the opposite order of that in which they are stored.
        let last = last.load(Ordering::SeqCst);
        [before.load(Ordering::SeqCst), last]
    }

    /// Forgets a commit that was to be the newest one that the log does not have, and was not applied: its writer died.
    pub(crate) fn forget_unapplied(&self) {
        let applied = self.applied().0;
        self.unlogged.last.fetch_min(applied, Ordering::SeqCst);
    }

    /// Counts a commit that nobody waits for, as so many; how many there have been before it since anybody waited.
    pub(crate) fn count_relaxed(&self, commits: u64) -> u64 {
        self.unlogged.relaxed.fetch_add(commits, Ordering::Relaxed)
    }

    /// Somebody waits for a commit.
    pub(crate) fn begin_waiting(&self) {
        self.unlogged.relaxed.store(0, Ordering::Relaxed);
    }

    fn store_head(&self, head: &Head, durability: Durability) {
        let cell = &self.heads[(head.commit.0 % HEADS) as usize];
        cell.commit.store(0, Ordering::Relaxed);
        fence(Ordering::Release);
        for (place, word) in cell.roots.iter().zip(head.roots.to_words()) {
            place.store(word, Ordering::Relaxed);
        }
        cell.lsn.store(head.log.lsn.0, Ordering::Relaxed);
        let relaxed = match durability {
            Durability::Durable => 0,
            Durability::Relaxed => RELAXED,
        };
        let chain = u64::from(head.log.chain) | relaxed;
        cell.chain.store(chain, Ordering::Relaxed);
        cell.commit.store(head.commit.0, Ordering::Release);
    }

    /// Shows a commit, and with it all before it, to new snapshots. Its record is durable.
    pub(crate) fn publish(&self, commit: CommitNo) {
        self.visible.fetch_max(commit.0, Ordering::SeqCst);
    }

    /// Shows the next commits, in order, up to the first that has to be durable and is not. Called when the log has
    /// become durable up to a position that `durable` gives, and when a relaxed commit was applied.
    pub(crate) fn publish_ready(&self, durable: impl FnOnce() -> Lsn) {
        // The one that calls this has stored either the durable position or the applied commit before, and looks at
        // both afterwards: of two that come at the same time, one sees what the other has stored.
        fence(Ordering::SeqCst);
        let durable = durable();
        let (visible, applied) = (self.visible(), self.applied());
        let mut ready = visible;
        while ready < applied && self.is_ready(CommitNo(ready.0 + 1), durable) {
            ready.0 += 1;
        }
        if ready > visible {
            self.publish(ready);
        }
    }

    /// Whether a commit may be shown once all before it are. Of one that has left the ring, somebody has shown a
    /// successor.
    fn is_ready(&self, commit: CommitNo, durable: Lsn) -> bool {
        let log = self.read(commit, HeadCell::log);
        log.is_some_and(|(lsn, chain)| chain & RELAXED != 0 || lsn <= durable.0)
    }

    /// Whether one of the locks still names this process entry as its owner.
    pub(crate) fn is_owner(&self, process: u16) -> bool {
        let locks = [
            &self.writer,
            &self.checkpointer,
            &self.grower,
            &self.appender,
            &self.archiver,
        ];
        locks.iter().any(|lock| lock.owner() == Some(process)) || self.log.is_writer(process)
    }
}

/// A mapped region. Those of all stores lie one after the other in one mapping.
pub(crate) struct Region {
    window: Arc<Window>,
    offset: usize,
}

const BYTES: usize = size_of::<Layout>();

impl Region {
    /// Regions for this process alone, zeroed.
    pub(crate) fn private(stores: usize) -> Result<Vec<Arc<Self>>> {
        Ok(Self::parts(Window::private(stores * BYTES)?))
    }

    /// The regions in the lock file, zeroed: for the first process, while nobody else can look at them.
    pub(crate) fn create(file: &File, stores: usize) -> Result<Vec<Arc<Self>>> {
        let regions = Self::parts(Window::fresh(file, stores * BYTES)?);
        for region in &regions {
            for (half, word) in region.boot.iter().zip(boot_words()) {
                half.store(word, Ordering::Relaxed);
            }
            for (place, word) in region.stamp.iter().zip(stamp_of(file)?) {
                place.store(word, Ordering::Relaxed);
            }
        }
        Ok(regions)
    }

    /// The regions in the lock file that another process has set up, one for each store.
    pub(crate) fn join(file: &File) -> Result<Vec<Arc<Self>>> {
        let bytes = file.metadata()?.len();
        let whole = bytes > 0 && bytes.is_multiple_of(BYTES as u64);
        let Some(bytes) = usize::try_from(bytes).ok().filter(|_| whole) else {
            let what = "the lock region has another size than this program's";
            return Err(Error::Damaged(what.into()));
        };
        let regions = Self::parts(Window::over(file, bytes)?);
        regions.iter().try_for_each(|region| region.check())?;
        Ok(regions)
    }

    fn parts(window: Window) -> Vec<Arc<Self>> {
        let window = Arc::new(window);
        let offsets = (0..window.len() / BYTES).map(|store| store * BYTES);
        let part = |offset| Self {
            window: window.clone(),
            offset,
        };
        offsets.map(part).map(Arc::new).collect()
    }
}

fn boot_words() -> [u64; 2] {
    let boot = boot_id();
    [boot as u64, (boot >> 64) as u64]
}

impl Deref for Region {
    type Target = Layout;

    #[inline]
    fn deref(&self) -> &Layout {
        // SAFETY: `parts` has seen to it that the structure lies within the mapping. That is page-aligned, the
        // structure's size is a multiple of its alignment, and the mapping lives as long as `self`. All fields are
        // atomics, for which every bit pattern is a value and which others, also other processes, may change at any
        // time. Nobody cuts the lock file while it is locked.
        unsafe { &*self.window.as_mut_ptr().add(self.offset).cast::<Layout>() }
    }
}

impl AsRef<Shared> for Region {
    fn as_ref(&self) -> &Shared {
        &self.log
    }
}

impl AsRef<[sync::AtomicU64]> for Region {
    fn as_ref(&self) -> &[sync::AtomicU64] {
        &*self.log_buffer
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    fn one(regions: Result<Vec<Arc<Region>>>) -> Arc<Region> {
        regions.unwrap().remove(0)
    }

    fn head(commit: u64) -> Head {
        let mut roots = Roots::empty();
        roots.pages = 100 + commit;
        roots.free.records = commit;
        Head {
            commit: CommitNo(commit),
            log: position(commit * 8, commit as u32),
            roots,
        }
    }

    #[test]
    fn heads_are_never_read_in_half() {
        let region = one(Region::private(1));
        region.start(&head(1));
        let writer = {
            let region = region.clone();
            std::thread::spawn(move || {
                for commit in 2..20_000 {
                    region.apply(&head(commit), Durability::Durable);
                    region.publish(CommitNo(commit));
                }
            })
        };
        while !writer.is_finished() {
            let commit = region.visible();
            if let Some(found) = region.head(commit) {
                assert_eq!(found.unwrap(), head(commit.0));
            }
        }
        writer.join().unwrap();
        assert_eq!(region.applied_head().unwrap(), head(19_999));
        assert!(region.head(CommitNo(19_999 - HEADS)).is_none());
    }

    #[test]
    fn commits_are_shown_in_order() {
        use Durability::{Durable, Relaxed};
        let region = one(Region::private(1));
        region.start(&head(1));
        let visible_when = |durable: u64| {
            region.publish_ready(|| Lsn(durable));
            region.visible().0
        };
        for (commit, durability) in [
            (2, Relaxed),
            (3, Durable),
            (4, Relaxed),
            (5, Relaxed),
            (6, Durable),
        ] {
            region.apply(&head(commit), durability);
        }
        assert_eq!(visible_when(8), 2);
        assert_eq!(visible_when(3 * 8 - 1), 2);
        assert_eq!(visible_when(3 * 8), 5);
        assert_eq!(visible_when(5 * 8), 5);
        assert_eq!(visible_when(6 * 8), 6);
        let wide = head(2).log.chain;
        assert_eq!(region.head(CommitNo(2)).unwrap().unwrap().log.chain, wide);
    }

    #[test]
    fn a_region_in_a_file_is_shared_and_checked() {
        let file = tempfile::tempfile().unwrap();
        assert!(Region::join(&file).is_err());
        let regions = Region::create(&file, 2).unwrap();
        let (first, other) = (&regions[0], &regions[1]);
        assert!(Region::join(&file).is_err(), "joined before it was started");
        first.start(&head(5));
        assert!(Region::join(&file).is_err(), "not all were started");
        other.start(&head(7));
        let joined = Region::join(&file).unwrap();
        assert!(joined[0].outlives_processes());
        let another = tempfile::tempfile().unwrap();
        assert!(joined[0].was_made_in(&file).unwrap());
        assert!(!joined[0].was_made_in(&another).unwrap());
        assert!(!one(Region::private(1)).outlives_processes());
        assert_eq!(joined.len(), 2);
        assert_eq!(joined[1].applied(), CommitNo(7));
        let second = &joined[0];
        first.apply(&head(6), Durability::Relaxed);
        assert_eq!(second.applied(), CommitNo(6));
        assert_eq!(second.visible(), CommitNo(5));
        let layout: &Layout = first;
        layout.boot[1].fetch_xor(1, Ordering::Relaxed);
        assert!(
            !joined[0].outlives_processes(),
            "the machine was started again"
        );
        layout.layout.store(LAYOUT + 1, Ordering::Relaxed);
        assert!(matches!(
            Region::join(&file),
            Err(Error::UnknownVersion { found, .. }) if found == LAYOUT + 1
        ));
    }
}
