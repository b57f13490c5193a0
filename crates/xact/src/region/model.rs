//! The parts of a region under a model checker, whose atomics are more than their bytes: on the heap.

// Frames are memory that threads write to, at different times.
#![allow(unsafe_code)]

use std::array;
use std::cell::UnsafeCell;
use std::fs::File;
use std::io::{self, ErrorKind};

use sapwood_wal::sync::AtomicU64;

use super::{Layout, Line, Slots};
use crate::error::{Doing, Result};
use crate::page::{PAGE_BYTES, PageBytes};
use crate::region::versions::FrameHeader;

pub(super) struct Parts {
    layout: Box<Layout>,
    buckets: Box<[AtomicU64]>,
    headers: Box<[FrameHeader]>,
    frames: Box<[UnsafeCell<PageBytes>]>,
}

// SAFETY: the frames are used by the rules of `versions`, which is what the checker is there for; everything else is
// atomics.
unsafe impl Sync for Parts {}

impl Parts {
    pub(super) fn private(frames: u64, spill: u64) -> Result<Self> {
        let layout = Layout {
            magic: Default::default(),
            layout: Default::default(),
            _reserved: Default::default(),
            frames: Default::default(),
            spill: Default::default(),
            pages: Default::default(),
            size: Default::default(),
            committer: Default::default(),
            maintainer: Default::default(),
            gate: Default::default(),
            large: Default::default(),
            poisoned: Default::default(),
            last: Default::default(),
            ring: Default::default(),
            area: Default::default(),
            progress: Default::default(),
            log: Default::default(),
            processes: Line(array::from_fn(|_| Default::default())),
            slots: Line(Slots {
                end: Default::default(),
                losers: Default::default(),
                table: array::from_fn(|_| Default::default()),
            }),
            log_buffer: Line(array::from_fn(|_| Default::default())),
        };
        Ok(Self {
            layout: Box::new(layout),
            buckets: (0..frames).map(|_| AtomicU64::default()).collect(),
            headers: (0..frames + spill)
                .map(|_| FrameHeader::default())
                .collect(),
            frames: (0..frames + spill)
                .map(|_| UnsafeCell::new([0; PAGE_BYTES]))
                .collect(),
        })
    }

    pub(super) fn create(_: &File, _: u64, _: u64) -> Result<Self> {
        let unsupported: io::Result<Self> = Err(ErrorKind::Unsupported.into());
        unsupported.doing("the checker knows one process only")
    }

    pub(super) fn join(file: &File) -> Result<(Self, u64, u64)> {
        Ok((Self::create(file, 0, 0)?, 0, 0))
    }

    pub(super) fn back_spill(&self) -> bool {
        true
    }

    pub(super) fn layout(&self) -> &Layout {
        &self.layout
    }

    pub(super) fn bucket(&self, place: usize) -> &AtomicU64 {
        &self.buckets[place]
    }

    pub(super) fn header(&self, place: usize) -> &FrameHeader {
        &self.headers[place]
    }

    pub(super) fn frame(&self, place: usize) -> *mut PageBytes {
        self.frames[place].get()
    }
}
