//! Memory that a view notes things in, and that its signal handler may use.

// A mapping of its own, since the handler cannot allocate.
#![allow(unsafe_code)]

use std::ptr::{self, NonNull};
use std::slice;

use rustix::mm::{self, Advice, MapFlags, ProtFlags};

use crate::error::{Doing, Error, Result};

/// Zeroed memory that is there before the signal handler needs it, and takes up room only where it was used.
#[derive(Debug)]
pub(crate) struct Area {
    base: NonNull<u8>,
    bytes: usize,
}

impl Area {
    pub(crate) fn new(bytes: usize) -> Result<Self> {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: new memory at an address of the system's choice.
        let base = unsafe { mm::mmap_anonymous(ptr::null_mut(), bytes, access, flags) };
        let base = base.doing("cannot reserve memory for a view")?.cast();
        let base = NonNull::new(base).ok_or(Error::BadOptions("it is mapped at no address"))?;
        Ok(Self { base, bytes })
    }

    pub(crate) fn clear(&mut self) -> Result<()> {
        // SAFETY: the mapping is this value's own; its pages are zeroed when they are touched again.
        let cleared =
            unsafe { mm::madvise(self.base.as_ptr().cast(), self.bytes, Advice::LinuxDontNeed) };
        cleared.doing("cannot give up memory of a view")
    }

    /// Where it begins.
    pub(crate) fn base(&self) -> NonNull<u8> {
        self.base
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: the mapping is this value's own and stays where it is.
        unsafe { slice::from_raw_parts(self.base.as_ptr(), self.bytes) }
    }

    /// The number at a place, of those that lie side by side from the beginning.
    pub(crate) fn word(&self, place: u64) -> u64 {
        let bytes = self.bytes()[place as usize * size_of::<u64>()..].first_chunk();
        bytes.map_or(0, |bytes| u64::from_le_bytes(*bytes))
    }

    pub(crate) fn set_word(&mut self, place: u64, value: u64) {
        let at = place as usize * size_of::<u64>();
        self.bytes_mut()[at..at + size_of::<u64>()].copy_from_slice(&value.to_le_bytes());
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and borrowed exclusively.
        unsafe { slice::from_raw_parts_mut(self.base.as_ptr(), self.bytes) }
    }
}

impl Drop for Area {
    fn drop(&mut self) {
        // SAFETY: mapped with this size.
        let _ = unsafe { mm::munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}
