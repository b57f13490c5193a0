//! The parts of a region in memory that processes share.

// The region is a raw mapping, looked at through structures of atomics and as pages.
#![allow(unsafe_code)]

use std::fs::File;

use rustix::fs::{FallocateFlags, fallocate};
use sapwood_wal::storage::Window;
use sapwood_wal::sync::{AtomicU64, Ordering};

use super::{FRAMES_MAX, LAYOUT, Layout, MAGIC};
use crate::error::{Doing, Error, Result};
use crate::page::{PAGE_BYTES, PageBytes};
use crate::region::versions::FrameHeader;

/// A mapping: the layout, buckets, frame headers, frames; then headers and frames of the spill.
pub(super) struct Parts {
    window: Window,
    /// What the spill gets its room in.
    file: Option<File>,
    frames: usize,
    /// Where frame headers begin, and where frames do.
    headers_at: usize,
    frames_at: usize,
    /// The same for the spill.
    spill_headers_at: usize,
    spill_frames_at: usize,
}

const fn in_pages(bytes: usize) -> usize {
    bytes.next_multiple_of(PAGE_BYTES)
}

const BUCKETS_AT: usize = in_pages(size_of::<Layout>());

fn headers_at(frames: u64) -> usize {
    BUCKETS_AT + in_pages(frames as usize * size_of::<AtomicU64>())
}

fn frames_at(frames: u64) -> usize {
    headers_at(frames) + in_pages(frames as usize * size_of::<FrameHeader>())
}

/// Where the spill begins.
fn spill_at(frames: u64) -> usize {
    frames_at(frames) + frames as usize * PAGE_BYTES
}

fn spill_frames_at(frames: u64, spill: u64) -> usize {
    spill_at(frames) + in_pages(spill as usize * size_of::<FrameHeader>())
}

fn region_bytes(frames: u64, spill: u64) -> usize {
    spill_frames_at(frames, spill) + spill as usize * PAGE_BYTES
}

const MAPPING: &str = "cannot map the lock region";

impl Parts {
    pub(super) fn private(frames: u64, spill: u64) -> Result<Self> {
        let window = Window::private(region_bytes(frames, spill)).doing(MAPPING)?;
        Ok(Self::new(window, None, frames, spill))
    }

    pub(super) fn create(file: &File, frames: u64, spill: u64) -> Result<Self> {
        let made = || {
            // All but the spill gets room on the disk now.
            Window::fresh(file, spill_at(frames))?;
            file.set_len(region_bytes(frames, spill) as u64)
        };
        made().doing("cannot make the lock region")?;
        Self::map(file, region_bytes(frames, spill), frames, spill)
    }

    /// Gives the numbers of frames too.
    pub(super) fn join(file: &File) -> Result<(Self, u64, u64)> {
        let damaged = |what: &str| Error::Damaged(format!("the lock region {what}"));
        let found = file.metadata().doing("cannot look at the lock region")?;
        let length = usize::try_from(found.len()).unwrap_or(0);
        if length < BUCKETS_AT {
            return Err(damaged("is cut short"));
        }
        // First what says how large all of it is.
        let head = Self::map(file, BUCKETS_AT, 0, 0)?;
        let head = head.layout();
        if head.magic.load(Ordering::Acquire) != MAGIC {
            return Err(damaged("is not one"));
        }
        let layout = head.layout.load(Ordering::Relaxed);
        if layout != LAYOUT {
            return Err(Error::UnknownVersion {
                what: "lock region",
                found: layout,
                known: LAYOUT,
            });
        }
        let frames = head.frames.load(Ordering::Relaxed);
        let spill = head.spill.load(Ordering::Relaxed);
        let is_number = |frames: u64| frames.is_power_of_two() && frames <= FRAMES_MAX;
        if !is_number(frames)
            || !(spill == 0 || is_number(spill))
            || region_bytes(frames, spill) != length
        {
            return Err(damaged("has the wrong size"));
        }
        Ok((Self::map(file, length, frames, spill)?, frames, spill))
    }

    /// Other processes change the memory only by the rules that hold here too, and nobody cuts the file while it is
    /// locked.
    fn map(file: &File, bytes: usize, frames: u64, spill: u64) -> Result<Self> {
        let window = Window::over(file, bytes).doing(MAPPING)?;
        let file = file.try_clone().doing(MAPPING)?;
        Ok(Self::new(window, Some(file), frames, spill))
    }

    fn new(window: Window, file: Option<File>, frames: u64, spill: u64) -> Self {
        Self {
            window,
            file,
            frames: frames as usize,
            headers_at: headers_at(frames),
            frames_at: frames_at(frames),
            spill_headers_at: spill_at(frames),
            spill_frames_at: spill_frames_at(frames, spill),
        }
    }

    /// Sees to it that the spill has room on the disk: a store to it would be a SIGBUS on a full one. Whether it has.
    pub(super) fn back_spill(&self) -> bool {
        let Some(file) = &self.file else {
            return true;
        };
        let (from, end) = (self.spill_headers_at as u64, self.window.len() as u64);
        fallocate(file, FallocateFlags::empty(), from, end - from).is_ok()
    }

    pub(super) fn layout(&self) -> &Layout {
        // SAFETY: the mapping begins with the structure, page-aligned, and lives as long as `self`; all its fields are
        // atomics, for which every bit pattern is a value and which others may change at any time.
        unsafe { &*self.window.as_mut_ptr().cast() }
    }

    /// `place` is below the number of frames, here; in what follows those of the spill come behind them.
    pub(super) fn bucket(&self, place: usize) -> &AtomicU64 {
        let at = BUCKETS_AT + place * size_of::<AtomicU64>();
        // SAFETY: within the mapping, aligned, and an atomic for which every bit pattern is a value.
        unsafe { &*self.window.as_mut_ptr().add(at).cast() }
    }

    pub(super) fn header(&self, place: usize) -> &FrameHeader {
        let at = match place.checked_sub(self.frames) {
            None => self.headers_at + place * size_of::<FrameHeader>(),
            Some(place) => self.spill_headers_at + place * size_of::<FrameHeader>(),
        };
        // SAFETY: within the mapping, aligned, and it consists of atomics.
        unsafe { &*self.window.as_mut_ptr().add(at).cast() }
    }

    pub(super) fn frame(&self, place: usize) -> *mut PageBytes {
        let at = match place.checked_sub(self.frames) {
            None => self.frames_at + place * PAGE_BYTES,
            Some(place) => self.spill_frames_at + place * PAGE_BYTES,
        };
        // SAFETY: within the mapping, since either kind of frames is followed by the rest of it or its end.
        unsafe { self.window.as_mut_ptr().add(at) }.cast()
    }
}
