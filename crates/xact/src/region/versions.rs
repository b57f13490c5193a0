//! Versions of pages that are committed but not in the file yet, because a running transaction must not see them there,
//! or because nobody has moved them yet.
//!
//! A version is a whole page in a *frame*. Frames form a ring and are used in the order of commits; maintenance takes
//! them from its tail into the file. The versions of a page are found through a bucket chosen by its number, which
//! holds the newest frame of that bucket, which names the one before, and so on, back to the tail:
//!
//! ```text
//!  bucket --> frame 19: page 7, commit 900 --> frame 12: page 7, commit 640 --> frame 4: behind the tail, not looked at
//! ```
//!
//! The ring has a second area on the disk, the spill, for the versions that a long transaction keeps, see `region`.
//!
//! The one that looks needs no lock: its slot keeps the frames from the tail of its beginning on, it skips what was
//! committed after it began, and it stops before the tail.
//!
//! A committer puts its record into the log before it touches frames. The one that takes over from a dead one fills the
//! same frames with the same pages again, so that each of the stores below may have happened or not.

// Frames are memory that others write to, at other times.
#![allow(unsafe_code)]

use sapwood_wal::sync::{AtomicU64, Ordering, fence};

use super::Region;
use super::slot::Snapshot;
use crate::guard::{Guard, Guards};
use crate::page::PageBytes;
use crate::step::step;

/// What is in a frame.
#[derive(Default)]
#[repr(C)]
pub(crate) struct FrameHeader {
    /// 1 + the page, 0 for none.
    page: AtomicU64,
    version: AtomicU64,
    /// 1 + the next older frame of the same bucket.
    next: AtomicU64,
    /// 1 + the frame of the page's next version.
    newer: AtomicU64,
    /// The granules in which the file's page may differ from it.
    mask: AtomicU64,
    sum: AtomicU64,
}

/// A version of a page that is being committed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NewVersion<'a> {
    pub(crate) page: u64,
    /// The granules in which it differs from the version before.
    pub(crate) mask: u64,
    /// Its checksum.
    pub(crate) sum: u32,
    pub(crate) bytes: &'a PageBytes,
}

/// A version of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) frame: u64,
    pub(crate) version: u64,
}

/// A frame as maintenance sees it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Content {
    pub(crate) page: u64,
    pub(crate) version: u64,
    /// The version that supersedes it.
    pub(crate) newer: Option<u64>,
    /// The granules in which the file's page may differ from it.
    pub(crate) mask: u64,
    /// Its checksum.
    pub(crate) sum: u32,
}

impl Region {
    /// The version of a page that a snapshot sees, unless it is in the file.
    pub(crate) fn find(&self, page: u64, at: &Snapshot) -> Option<Found> {
        self.search(page, at.tail, at.version)
    }

    /// Whether there is a version of a page newer than `version` that is not in the file. For the holder of the commit
    /// lock. A long transaction may keep many others, which are not looked at.
    pub(crate) fn is_changed_since(&self, page: u64, version: u64) -> bool {
        let tail = self.ring.tail.load(Ordering::SeqCst);
        let mut at = self.bucket(bucket_of(page)).load(Ordering::Acquire);
        while let Some(frame) = at.checked_sub(1)
            && frame >= tail
        {
            let header = self.header(frame);
            if header.version.load(Ordering::Acquire) <= version {
                return false;
            }
            if header.page.load(Ordering::Acquire) == page + 1 {
                return true;
            }
            at = header.next.load(Ordering::Acquire);
        }
        false
    }

    /// The pages of the versions newer than `version` that are not in the file, the newest first. For the holder of the
    /// commit lock.
    pub(crate) fn pages_since(&self, version: u64) -> impl Iterator<Item = u64> {
        let tail = self.ring.tail.load(Ordering::SeqCst);
        let head = self.ring.head.load(Ordering::SeqCst);
        (tail..head)
            .rev()
            .map(|frame| self.header(frame))
            .take_while(move |header| header.version.load(Ordering::Acquire) > version)
            .map(|header| header.page.load(Ordering::Acquire) - 1)
    }

    /// Tells the pages of the frames from `from` on that a snapshot may see; gives the frame at which that ends. `None`
    /// if these frames are too many, or some of them may be others by now, of which anything may have been told.
    ///
    /// The snapshot's slot keeps only frames from its tail on, and those before it may be filled anew while they are
    /// looked at. But not before the head is three quarters of all frames further, since no commit fills more than a
    /// quarter.
    pub(crate) fn changes(
        &self,
        from: u64,
        at: &Snapshot,
        mut tell: impl FnMut(u64),
    ) -> Option<u64> {
        let is_kept = || {
            let head = self.ring.head.load(Ordering::SeqCst);
            let is_kept = self.is_in_first_area(from) && head - from <= self.frames() / 4 * 3;
            is_kept.then_some(head)
        };
        let head = is_kept()?;
        let mut frame = from;
        while frame < head {
            let header = self.header(frame);
            if header.version.load(Ordering::Acquire) > at.version {
                break;
            }
            if let Some(page) = header.page.load(Ordering::Acquire).checked_sub(1) {
                tell(page);
            }
            frame += 1;
        }
        is_kept().map(|_| frame)
    }

    fn search(&self, page: u64, tail: u64, newest: u64) -> Option<Found> {
        let mut at = self.bucket(bucket_of(page)).load(Ordering::Acquire);
        while let Some(frame) = at.checked_sub(1)
            && frame >= tail
        {
            let header = self.header(frame);
            let version = header.version.load(Ordering::Acquire);
            if header.page.load(Ordering::Acquire) == page + 1 && version <= newest {
                return Some(Found { frame, version });
            }
            at = header.next.load(Ordering::Acquire);
        }
        None
    }

    /// The page in a frame that was found.
    ///
    /// # Safety
    /// The slot of a running transaction that began no later than the frame's becoming obsolete, or the maintenance
    /// lock with the frame not behind the tail, keeps the frame while the reference lives.
    pub(crate) unsafe fn version(&self, found: Found) -> &PageBytes {
        // SAFETY: frames that can be looked at are not written to; the caller's promise.
        unsafe { self.frame(found.frame) }
    }

    /// Puts the pages of a commit into frames, visible to those who begin when the commit is the last. The caller holds
    /// the commit lock and has seen to the room. May be repeated with the same pages if the one that began it died.
    pub(crate) fn publish<'a>(
        &self,
        version: u64,
        guards: Guards,
        pages: impl ExactSizeIterator<Item = NewVersion<'a>>,
    ) {
        let head = self.ring.head.load(Ordering::Relaxed);
        let end = head + pages.len() as u64;
        // Who has seen any of what follows sees the head there, too, see `changes`.
        fence(Ordering::Release);
        for (frame, new) in (head..).zip(pages) {
            let NewVersion {
                page,
                mask,
                sum,
                bytes,
            } = new;
            let before = self.newest_published(page);
            // SAFETY: the commit lock is held, and the room says that nobody looks at this frame.
            unsafe { self.fill_frame(frame, bytes) };
            step();
            let bucket = self.bucket(bucket_of(page));
            if !self.is_linked(bucket, frame) {
                let header = self.header(frame);
                header.version.store(version, Ordering::Relaxed);
                header.newer.store(0, Ordering::Relaxed);
                // If the one before is not in the file yet, and perhaps never will be.
                let carried = before.filter(|_| guards.has(Guard::CarryChanges));
                let before_mask = carried.map_or(0, |before| self.mask(before.frame));
                header.mask.store(mask | before_mask, Ordering::Relaxed);
                header.sum.store(u64::from(sum), Ordering::Relaxed);
                step();
                let next = bucket.load(Ordering::Relaxed);
                header.next.store(next, Ordering::Relaxed);
                step();
                header.page.store(page + 1, Ordering::Relaxed);
                step();
                bucket.store(frame + 1, Ordering::Release);
                step();
            }
            if let Some(before) = before {
                let newer = &self.header(before.frame).newer;
                newer.store(frame + 1, Ordering::Release);
            }
            step();
        }
        self.ring.head.store(end, Ordering::SeqCst);
        step();
    }

    fn mask(&self, frame: u64) -> u64 {
        self.header(frame).mask.load(Ordering::Acquire)
    }

    /// Whether a frame at or behind the head has been put before a bucket.
    fn is_linked(&self, bucket: &AtomicU64, frame: u64) -> bool {
        let mut at = bucket.load(Ordering::Acquire);
        while at > frame + 1 {
            at = self.header(at - 1).next.load(Ordering::Acquire);
        }
        at == frame + 1
    }

    /// The newest version of a page that is not of a commit under way, unless it is in the file. For the holder of the
    /// commit lock.
    pub(crate) fn newest_published(&self, page: u64) -> Option<Found> {
        self.search(
            page,
            self.ring.tail.load(Ordering::SeqCst),
            self.last_version(),
        )
    }

    /// Whether the frames before the head are already those of a commit.
    pub(crate) fn is_published(&self, version: u64) -> bool {
        let head = self.ring.head.load(Ordering::SeqCst);
        head > self.ring.tail.load(Ordering::SeqCst)
            && self.header(head - 1).version.load(Ordering::Acquire) == version
    }

    /// What is in a frame that is not behind the tail.
    pub(crate) fn content(&self, frame: u64) -> Content {
        let header = self.header(frame);
        let newer = header.newer.load(Ordering::Acquire).checked_sub(1);
        // If its commit is not completed yet, it will be: its record is in the log.
        let newer = newer.map(|frame| self.header(frame).version.load(Ordering::Acquire));
        Content {
            page: header.page.load(Ordering::Acquire) - 1,
            version: header.version.load(Ordering::Acquire),
            newer,
            mask: header.mask.load(Ordering::Acquire),
            sum: header.sum.load(Ordering::Acquire) as u32,
        }
    }
}

fn bucket_of(page: u64) -> u64 {
    page.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40
}
