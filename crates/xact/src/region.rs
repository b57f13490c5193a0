//! The lock region: what all threads and processes that have a space open share.
//!
//! It consists of atomics and page frames, is valid when all its bytes are zero, and is volatile: the first process to
//! open the space makes it anew. Everything in it that changes often has a cache line to itself.
//!
//! ```text
//!  magic, layout version, number of frames, pages that have a place in the file, pages of the space
//!  commit lock         one commit at a time
//!  maintenance lock    one at a time moves versions into the file
//!  gate                the process that wants no other transaction to begin, see `large`
//!  last                the newest commit: appended to the log, not necessarily durable
//!  ring                where the frames in use begin and end
//!  progress            how far the file has been brought, and where the log is read from after a crash
//!  log                 the state of the log that its users share
//!  processes           who has the space open
//!  slots               the running transactions, see `slot`
//!  log buffer          records of the log on their way to the disk
//!  buckets             where the search for a page's versions begins, see `versions`
//!  frame headers, frames
//!  frame headers, frames of the spill: room on the disk only since it was needed
//! ```

// Frames are memory that others write to, at other times.
#![allow(unsafe_code)]

#[cfg(not(shuttle))]
mod mapped;
#[cfg(shuttle)]
mod model;
pub(crate) mod slot;
pub(crate) mod versions;

use std::fs::File;
use std::ops::Deref;
use std::ptr;

use sapwood_wal::lock::Lock;
use sapwood_wal::process::{PROCESSES_MAX, ProcessEntry};
use sapwood_wal::sync::{AtomicU32, AtomicU64, Ordering, fence};
use sapwood_wal::{Lsn, Position, Shared};

use self::slot::{SLOTS_MAX, Slot};
use self::versions::FrameHeader;
use crate::error::Result;
use crate::page::PageBytes;
use crate::step::step;

#[cfg(not(shuttle))]
use self::mapped::Parts;
#[cfg(shuttle)]
use self::model::Parts;

const MAGIC: u64 = u64::from_be_bytes(*b"SAPWXACT");

/// The version of everything in the region, that of the log's shared state included. Processes that disagree about it
/// cannot share a space.
const LAYOUT: u32 = 9;

/// What may be on its way to the log: many small commits. Larger ones gain little by it.
const LOG_BUFFER_BYTES: usize = if cfg!(shuttle) { 8 } else { 256 } * 1024;

/// Something alone on its cache lines.
#[derive(Default)]
#[repr(C, align(64))]
pub(crate) struct Line<T>(T);

impl<T> Deref for Line<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

/// The part of the region whose size is fixed, as it lies in memory.
#[repr(C)]
pub(crate) struct Layout {
    magic: AtomicU64,
    layout: AtomicU32,
    _reserved: AtomicU32,
    frames: AtomicU64,
    spill: AtomicU64,
    pages: AtomicU64,
    size: AtomicU64,
    pub(crate) committer: Line<Lock>,
    pub(crate) maintainer: Line<Lock>,
    /// 0, or 1 + the process entry of a transaction that is too large for the log.
    pub(crate) gate: Line<AtomicU32>,
    /// The version of the newest commit that went straight into the file.
    pub(crate) large: Line<AtomicU64>,
    /// Not 0 since a sync of the data file has failed.
    pub(crate) poisoned: Line<AtomicU32>,
    last: Line<Last>,
    pub(crate) ring: Line<Ring>,
    /// Where frames are put, see `Area`.
    area: Line<AtomicU64>,
    pub(crate) progress: Line<Progress>,
    log: Line<Shared>,
    pub(crate) processes: Line<[ProcessEntry; PROCESSES_MAX]>,
    pub(crate) slots: Line<Slots>,
    log_buffer: Line<[AtomicU64; LOG_BUFFER_BYTES / 8]>,
}

/// The newest commit. Its version is where its record ends in the log.
#[derive(Default)]
#[repr(C)]
struct Last {
    version: AtomicU64,
    /// The one whose version is not `version` is free for the next commit, so that the one that dies between two stores
    /// leaves the other one whole.
    positions: [LastPosition; 2],
}

#[derive(Default)]
#[repr(C)]
struct LastPosition {
    version: AtomicU64,
    chain: AtomicU64,
}

/// The ring of frames. Frames are numbered from 0 on and for ever.
#[derive(Default)]
#[repr(C)]
pub(crate) struct Ring {
    /// The next frame to be used. For the holder of the commit lock to move.
    pub(crate) head: AtomicU64,
    /// Everything before it is in the file, or superseded. For the holder of the maintenance lock to move.
    pub(crate) tail: AtomicU64,
    /// The newest version before the tail. Raised before the tail is moved.
    pub(crate) passed: AtomicU64,
    /// Everything before it is looked at by nobody: its places may be used again.
    pub(crate) free: AtomicU64,
    /// Versions up to this one may be on their way into the file: nobody begins with an older one.
    pub(crate) floor: AtomicU64,
}

/// For the holder of the maintenance lock.
#[derive(Default)]
#[repr(C)]
pub(crate) struct Progress {
    /// The commit up to which the present pass brings the file, as LSN and chain; 0 without one.
    pub(crate) target: [AtomicU64; 2],
    /// The commit up to which the file has been brought.
    pub(crate) applied: [AtomicU64; 2],
    /// The LSN from which the newest header has the log replayed, and that header's number. Its lowest bit says which
    /// of the two pages holds it: one store makes another header the newest, wherever a process dies.
    pub(crate) checkpoint: AtomicU64,
    pub(crate) header: AtomicU64,
    /// How often a header page was written, and how many pages were applied, since the region was made.
    pub(crate) checkpoints: AtomicU64,
    pub(crate) applied_pages: AtomicU64,
}

/// The transactions that run.
#[repr(C)]
pub(crate) struct Slots {
    /// All slots from this one on have never been used.
    pub(crate) end: AtomicU32,
    /// How many transactions have lost before; too high when one of them was killed, which costs time only.
    pub(crate) losers: AtomicU32,
    pub(crate) table: [Slot; SLOTS_MAX],
}

/// Where frames have their places. There are two areas, each used as a ring: that of the frames that are always there,
/// and the *spill*, for when a long transaction keeps so many versions that the first one is full. New frames go into
/// one of them, and from the moment that changes all before are in the other one; it may change when nobody looks any
/// more at what was there before that.
///
/// ```text
///  frames  0 ............. 4095 | 4096 ......... 9000 | 9001 ...
///          first area           | spill               | first area, since 0 to 4095 are free
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Area {
    /// The frames from this one on are here.
    from: u64,
    is_spill: bool,
}

impl Area {
    fn decode(word: u64) -> Self {
        Self {
            from: word >> 1,
            is_spill: word & 1 != 0,
        }
    }

    fn encode(self) -> u64 {
        self.from << 1 | u64::from(self.is_spill)
    }
}

/// A region. What can be reached through it are atomics, and frames, which `versions` says who may touch when.
pub(crate) struct Region {
    parts: Parts,
    frames: u64,
    spill: u64,
}

impl Region {
    /// A region for this process alone, zeroed. `frames` is a power of two, and `spill`, the number of further frames,
    /// too, or 0.
    pub(crate) fn private(frames: u64, spill: u64) -> Result<Self> {
        let parts = Parts::private(frames, spill)?;
        Ok(Self {
            parts,
            frames,
            spill,
        })
    }

    /// The region in the lock file, zeroed: for the first process, while nobody else can look at it.
    pub(crate) fn create(file: &File, frames: u64, spill: u64) -> Result<Self> {
        let parts = Parts::create(file, frames, spill)?;
        Ok(Self {
            parts,
            frames,
            spill,
        })
    }

    /// The region in the lock file that another process has made.
    pub(crate) fn join(file: &File) -> Result<Self> {
        let (parts, frames, spill) = Parts::join(file)?;
        Ok(Self {
            parts,
            frames,
            spill,
        })
    }

    /// Prepares a zeroed region for use; the log has been started, the file brought up to `applied`, and what is
    /// between that and `last` is in the file or in frames.
    pub(crate) fn start(&self, pages: u64, size: u64, last: Position, applied: Position) {
        self.pages.store(pages, Ordering::Relaxed);
        self.size.store(size, Ordering::Relaxed);
        let layout = &**self;
        layout.frames.store(self.frames, Ordering::Relaxed);
        layout.spill.store(self.spill, Ordering::Relaxed);
        store_position(&self.progress.applied, applied);
        self.ring.floor.store(last.lsn.0, Ordering::Relaxed);
        self.set_last(last);
        self.layout.store(LAYOUT, Ordering::Relaxed);
        self.magic.store(MAGIC, Ordering::Release);
    }

    /// How many pages have a place in the file.
    pub(crate) fn pages(&self) -> u64 {
        self.pages.load(Ordering::Relaxed)
    }

    /// How many pages the space has. It only grows.
    pub(crate) fn size(&self) -> u64 {
        self.size.load(Ordering::Acquire)
    }

    /// The space has so many pages from now on. For the holder of the maintenance lock.
    pub(crate) fn set_size(&self, pages: u64) {
        self.size.store(pages, Ordering::Release);
    }

    /// How many frames there are without the spill.
    pub(crate) fn frames(&self) -> u64 {
        self.frames
    }

    fn area_now(&self) -> Area {
        Area::decode(self.area.load(Ordering::Acquire))
    }

    /// How many frames are used, as far as was known last.
    pub(crate) fn used(&self) -> u64 {
        // In this order, since both only grow, and the head that is loaded last is not behind what was free before.
        let free = self.ring.free.load(Ordering::Acquire);
        self.ring.head.load(Ordering::Acquire) - free
    }

    /// How many frames are free for a commit, as far as was known last.
    pub(crate) fn room(&self) -> u64 {
        let Area { from, is_spill } = self.area_now();
        let frames = if is_spill { self.spill } else { self.frames };
        let free = self.ring.free.load(Ordering::Acquire).max(from);
        let used = self.ring.head.load(Ordering::Acquire).saturating_sub(free);
        frames.saturating_sub(used)
    }

    /// Has new frames go into the other area, if nobody looks at any frame there and it has room on the disk; whether
    /// they do. For the holder of the commit lock.
    pub(crate) fn change_area(&self) -> bool {
        let Area { from, is_spill } = self.area_now();
        if self.ring.free.load(Ordering::SeqCst) < from {
            return false;
        }
        if !is_spill && (self.spill == 0 || !self.parts.back_spill()) {
            return false;
        }
        let to = Area {
            from: self.ring.head.load(Ordering::Relaxed),
            is_spill: !is_spill,
        };
        step();
        self.area.store(to.encode(), Ordering::Release);
        step();
        true
    }

    /// Whether all frames from this one on are where frames are without the spill.
    pub(crate) fn is_in_first_area(&self, frame: u64) -> bool {
        let Area { from, is_spill } = self.area_now();
        !is_spill && frame >= from
    }

    /// Leaves the spill when nothing is in it. For the holder of the commit lock.
    pub(crate) fn leave_spill(&self) {
        if self.area_now().is_spill && self.used() == 0 {
            self.change_area();
        }
    }

    /// The version of the newest commit.
    pub(crate) fn last_version(&self) -> u64 {
        self.last.version.load(Ordering::SeqCst)
    }

    /// The newest commit's place in the log.
    pub(crate) fn last(&self) -> Position {
        loop {
            let version = self.last_version();
            let found = self.last.positions.iter().find_map(|position| {
                if position.version.load(Ordering::Acquire) != version {
                    return None;
                }
                let chain = position.chain.load(Ordering::Acquire);
                fence(Ordering::Acquire);
                let unchanged = position.version.load(Ordering::Relaxed) == version;
                unchanged.then_some(Position {
                    lsn: Lsn(version),
                    chain: chain as u32,
                })
            });
            if let Some(position) = found {
                return position;
            }
        }
    }

    /// Makes a commit the newest one; for the holder of the commit lock.
    pub(crate) fn set_last(&self, to: Position) {
        let now = self.last.version.load(Ordering::Relaxed);
        let [first, second] = &self.last.positions;
        let free = if first.version.load(Ordering::Relaxed) == now {
            second
        } else {
            first
        };
        free.version.store(u64::MAX, Ordering::Release);
        step();
        fence(Ordering::Release);
        free.chain.store(u64::from(to.chain), Ordering::Release);
        step();
        free.version.store(to.lsn.0, Ordering::Release);
        step();
        self.last.version.store(to.lsn.0, Ordering::SeqCst);
    }

    /// Whether one of the locks or the gate still names this process entry.
    pub(crate) fn is_owner(&self, process: u16) -> bool {
        [&self.committer, &self.maintainer]
            .into_iter()
            .any(|lock| lock.owner() == Some(process))
            || self.log.is_writer(process)
            || self.gate.load(Ordering::SeqCst) == u32::from(process) + 1
    }

    /// Where the search for the versions of some pages begins.
    pub(crate) fn bucket(&self, number: u64) -> &AtomicU64 {
        self.parts.bucket((number % self.frames) as usize)
    }

    /// What is in a frame.
    pub(crate) fn header(&self, number: u64) -> &FrameHeader {
        self.parts.header(self.place(number))
    }

    /// The page in a frame.
    ///
    /// # Safety
    /// Nobody writes to the frame while the reference lives.
    pub(crate) unsafe fn frame(&self, number: u64) -> &PageBytes {
        // SAFETY: within the region; by the caller's promise it does not change.
        unsafe { &*self.parts.frame(self.place(number)) }
    }

    /// Fills a frame.
    ///
    /// # Safety
    /// The caller holds the commit lock, and nobody looks at the frame.
    pub(crate) unsafe fn fill_frame(&self, number: u64, page: &PageBytes) {
        // SAFETY: within the region; by the caller's promise nobody else uses this memory.
        unsafe { ptr::copy_nonoverlapping(page, self.parts.frame(self.place(number)), 1) };
    }

    /// Where a frame is that is used, or about to be.
    fn place(&self, number: u64) -> usize {
        let Area { from, is_spill } = self.area_now();
        let place = if (number >= from) == is_spill {
            self.frames + number % self.spill
        } else {
            number % self.frames
        };
        place as usize
    }
}

/// The most frames, which take up 16 GiB.
pub(crate) const FRAMES_MAX: u64 = 1 << 22;

/// Reads a position that only the holder of the maintenance lock changes.
pub(crate) fn load_position([lsn, chain]: &[AtomicU64; 2]) -> Position {
    Position {
        lsn: Lsn(lsn.load(Ordering::Acquire)),
        chain: chain.load(Ordering::Acquire) as u32,
    }
}

/// Writes a position so that an heir who finds it half written finds none.
pub(crate) fn store_position([lsn, chain]: &[AtomicU64; 2], to: Position) {
    lsn.store(0, Ordering::Release);
    step();
    chain.store(u64::from(to.chain), Ordering::Release);
    step();
    lsn.store(to.lsn.0, Ordering::Release);
}

impl Deref for Region {
    type Target = Layout;

    fn deref(&self) -> &Layout {
        self.parts.layout()
    }
}

impl AsRef<Shared> for Region {
    fn as_ref(&self) -> &Shared {
        &self.log
    }
}

impl AsRef<[AtomicU64]> for Region {
    fn as_ref(&self) -> &[AtomicU64] {
        &*self.log_buffer
    }
}

#[cfg(all(test, not(shuttle)))]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::error::Error;
    use crate::page::PAGE_BYTES;

    #[test]
    fn a_region_in_a_file_is_shared_and_checked() {
        let file = tempfile::tempfile().unwrap();
        assert!(Region::join(&file).is_err(), "joined an empty file");
        let first = Region::create(&file, 8, 16).unwrap();
        assert!(Region::join(&file).is_err(), "joined before it was started");
        let at = |lsn| Position {
            lsn: Lsn(lsn),
            chain: 9,
        };
        first.start(77, 70, at(64), at(64));
        let second = Region::join(&file).unwrap();
        assert_eq!(
            (second.pages(), second.size(), second.last()),
            (77, 70, at(64))
        );
        first.set_last(at(128));
        assert_eq!(second.last(), at(128));
        // SAFETY: nobody looks at the frame.
        unsafe { first.fill_frame(9, &[3; PAGE_BYTES]) };
        // SAFETY: nobody writes any more.
        assert_eq!(unsafe { second.frame(1) }, &[3; PAGE_BYTES]);
        let is_sparse = |file: &File| {
            use std::os::unix::fs::MetadataExt;
            let found = file.metadata().unwrap();
            found.blocks() * 512 + 16 * PAGE_BYTES as u64 <= found.len()
        };
        assert!(is_sparse(&file), "the spill takes up no room");
        let fill = |number: u64| {
            // SAFETY: nobody looks at the frame.
            unsafe { first.fill_frame(number, &[number as u8; PAGE_BYTES]) };
            first.ring.head.store(number + 1, Ordering::SeqCst);
        };
        // SAFETY: nobody writes to frames that are used.
        let is_right = |number: u64| unsafe { second.frame(number) }[5] == number as u8;
        (0..8).for_each(fill);
        assert_eq!((first.room(), second.used()), (0, 8));
        assert!(first.change_area());
        assert!(!is_sparse(&file));
        assert_eq!(second.room(), 16);
        (8..24).for_each(fill);
        assert_eq!(second.room(), 0);
        assert!(!first.change_area(), "all frames are looked at");
        assert!((0..24).all(is_right));
        second.ring.free.store(7, Ordering::SeqCst);
        assert!(!first.change_area(), "one in the first area is");
        second.ring.free.store(10, Ordering::SeqCst);
        assert_eq!(second.room(), 2);
        first.leave_spill();
        assert_eq!(second.room(), 2, "frames in it are looked at");
        (24..26).for_each(fill);
        assert!(second.change_area());
        (26..34).for_each(fill);
        assert_eq!(second.room(), 0);
        assert!((10..34).all(is_right));
        second.ring.free.store(34, Ordering::SeqCst);
        assert!(first.change_area());
        first.leave_spill();
        assert_eq!((second.room(), second.used()), (8, 0));
        first.layout.store(LAYOUT + 1, Ordering::Relaxed);
        assert!(matches!(
            Region::join(&file),
            Err(Error::UnknownVersion { found, .. }) if found == LAYOUT + 1
        ));
    }
}
