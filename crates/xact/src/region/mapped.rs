//! The parts of a region in memory that processes share.

// The region is a raw mapping, looked at through structures of atomics and as pages.
#![allow(unsafe_code)]

use std::fs::File;

use sapwood_wal::storage::Window;
use sapwood_wal::sync::{AtomicU64, Ordering};

use super::{FRAMES_MAX, LAYOUT, Layout, MAGIC};
use crate::error::{Doing, Error, Result};
use crate::page::{PAGE_BYTES, PageBytes};
use crate::versions::FrameHeader;

/// A mapping: the layout, buckets, frame headers, frames.
pub(super) struct Parts {
    window: Window,
    /// Where frame headers begin, and where frames do.
    headers_at: usize,
    frames_at: usize,
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

fn region_bytes(frames: u64) -> usize {
    frames_at(frames) + frames as usize * PAGE_BYTES
}

const MAPPING: &str = "cannot map the lock region";

impl Parts {
    pub(super) fn private(frames: u64) -> Result<Self> {
        let window = Window::private(region_bytes(frames)).doing(MAPPING)?;
        Ok(Self::new(window, frames))
    }

    pub(super) fn create(file: &File, frames: u64) -> Result<Self> {
        let window = Window::fresh(file, region_bytes(frames));
        let window = window.doing("cannot make the lock region")?;
        Ok(Self::new(window, frames))
    }

    /// Gives the number of frames too.
    pub(super) fn join(file: &File) -> Result<(Self, u64)> {
        let damaged = |what: &str| Error::Damaged(format!("the lock region {what}"));
        let found = file.metadata().doing("cannot look at the lock region")?;
        let length = usize::try_from(found.len()).unwrap_or(0);
        if length < BUCKETS_AT {
            return Err(damaged("is cut short"));
        }
        // First what says how large all of it is.
        let head = Self::map(file, BUCKETS_AT, 0)?;
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
        if !frames.is_power_of_two() || frames > FRAMES_MAX || region_bytes(frames) != length {
            return Err(damaged("has the wrong size"));
        }
        Ok((Self::map(file, length, frames)?, frames))
    }

    /// Other processes change the memory only by the rules that hold here too, and nobody cuts the file while it is locked.
    fn map(file: &File, bytes: usize, frames: u64) -> Result<Self> {
        let window = Window::over(file, bytes).doing(MAPPING)?;
        Ok(Self::new(window, frames))
    }

    fn new(window: Window, frames: u64) -> Self {
        Self {
            window,
            headers_at: headers_at(frames),
            frames_at: frames_at(frames),
        }
    }

    pub(super) fn layout(&self) -> &Layout {
        // SAFETY: the mapping begins with the structure, page-aligned, and lives as long as `self`; all its fields are atomics,
        // for which every bit pattern is a value and which others may change at any time.
        unsafe { &*self.window.as_mut_ptr().cast() }
    }

    /// `place` is below the number of frames, here and in what follows.
    pub(super) fn bucket(&self, place: usize) -> &AtomicU64 {
        let at = BUCKETS_AT + place * size_of::<AtomicU64>();
        // SAFETY: within the mapping, aligned, and an atomic for which every bit pattern is a value.
        unsafe { &*self.window.as_mut_ptr().add(at).cast() }
    }

    pub(super) fn header(&self, place: usize) -> &FrameHeader {
        let at = self.headers_at + place * size_of::<FrameHeader>();
        // SAFETY: within the mapping, aligned, and it consists of atomics.
        unsafe { &*self.window.as_mut_ptr().add(at).cast() }
    }

    pub(super) fn frame(&self, place: usize) -> *mut PageBytes {
        let at = self.frames_at + place * PAGE_BYTES;
        // SAFETY: within the mapping, since the frames are its last part.
        unsafe { self.window.as_mut_ptr().add(at) }.cast()
    }
}
