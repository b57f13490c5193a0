//! Systems for which nothing is written yet: each call answers `Unsupported`, beginning with that which opens a folder,
//! so that nothing is ever half there.

// Functions that are unsafe to call elsewhere are so here.
#![allow(unsafe_code)]

use std::ffi::CStr;
use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, IoSlice};
use std::path::Path;
use std::ptr::NonNull;
#[cfg(not(shuttle))]
use std::{sync::atomic::AtomicU32, time::Duration};

use crate::sys::{Identity, OpenMode};

fn unsupported<T>() -> io::Result<T> {
    Err(io::Error::new(
        ErrorKind::Unsupported,
        "Sapwood's files can be opened on Linux only, so far",
    ))
}

pub(crate) fn open_folder(_: &Path) -> io::Result<File> {
    unsupported()
}

pub(crate) fn open(_: &File, _: &str, _: OpenMode, _: u32) -> io::Result<File> {
    unsupported()
}

/// As on Linux, but anybody may use it.
pub fn creating_with(_: u32) -> OpenOptions {
    OpenOptions::new()
}

pub(crate) fn open_in_memory(_: &CStr) -> io::Result<File> {
    unsupported()
}

pub(crate) fn rename(_: &File, _: &str, _: &str) -> io::Result<()> {
    unsupported()
}

pub(crate) fn remove(_: &File, _: &str) -> io::Result<()> {
    unsupported()
}

pub(crate) fn sync_all(_: &File) -> io::Result<()> {
    unsupported()
}

pub(crate) fn sync_data(_: &File) -> io::Result<()> {
    unsupported()
}

pub(crate) fn identity(_: &File) -> io::Result<Identity> {
    unsupported()
}

pub(crate) fn is_device(_: &File) -> io::Result<bool> {
    unsupported()
}

pub(crate) fn size(_: &File) -> io::Result<u64> {
    unsupported()
}

pub(crate) fn set_size(_: &File, _: u64) -> io::Result<()> {
    unsupported()
}

pub(crate) fn read_at(_: &File, _: &mut [u8], _: u64) -> io::Result<usize> {
    unsupported()
}

pub(crate) fn write_at(_: &File, _: &[IoSlice<'_>], _: u64) -> io::Result<usize> {
    unsupported()
}

pub(crate) fn write_durably_at(_: &File, _: &[IoSlice<'_>], _: u64) -> io::Result<usize> {
    unsupported()
}

pub(crate) fn sync_range(_: &File, _: u64, _: u64) -> io::Result<()> {
    unsupported()
}

pub(crate) fn write_out(_: &File, _: u64, _: u64) -> io::Result<()> {
    unsupported()
}

pub(crate) fn allocate(_: &File, _: u64, _: u64) -> io::Result<()> {
    unsupported()
}

pub(crate) fn sync_room(_: &File, _: u64, _: u64) -> io::Result<()> {
    unsupported()
}

pub(crate) fn map_shared(_: &File, _: usize) -> io::Result<NonNull<u8>> {
    unsupported()
}

pub(crate) fn map_writable(_: &File, _: u64, _: usize) -> io::Result<NonNull<u8>> {
    unsupported()
}

pub(crate) fn map_copy(_: &File, _: usize) -> io::Result<NonNull<u8>> {
    unsupported()
}

pub(crate) fn map_private(_: usize) -> io::Result<NonNull<u8>> {
    unsupported()
}

/// # Safety
/// None is needed: nothing can be mapped.
pub(crate) unsafe fn unmap(_: NonNull<u8>, _: usize) {}

/// # Safety
/// None is needed: nothing can be mapped.
pub(crate) unsafe fn will_jump(_: NonNull<u8>, _: usize) {}

/// # Safety
/// None is needed: nothing can be mapped.
pub(crate) unsafe fn will_need(_: NonNull<u8>, _: usize) {}

/// No limit is known.
pub fn memory_bytes() -> u64 {
    u64::MAX
}

/// The number by which the system knows the calling thread.
pub fn thread_number() -> u32 {
    0
}

#[cfg(not(shuttle))]
/// Waits for a moment.
pub fn wait_while(_: &AtomicU32, _: u32, patience: Duration) {
    // Waiting may end early.
    std::thread::sleep(patience.min(Duration::from_millis(1)));
}

#[cfg(not(shuttle))]
/// Nobody sleeps.
pub fn wake_one(_: &AtomicU32) {}

#[cfg(not(shuttle))]
/// Nobody sleeps.
pub fn wake_all(_: &AtomicU32) {}

#[derive(Debug)]
pub(crate) struct ByteLocks;

impl ByteLocks {
    pub(crate) fn new(_: File) -> Self {
        Self
    }

    pub(crate) fn lock(&self, _: i64) -> io::Result<()> {
        unsupported()
    }

    pub(crate) fn lock_shared(&self, _: i64) -> io::Result<()> {
        unsupported()
    }

    pub(crate) fn try_lock(&self, _: i64) -> io::Result<bool> {
        unsupported()
    }

    pub(crate) fn empty_file(&self) -> io::Result<()> {
        unsupported()
    }

    pub(crate) fn unlock(&self, _: i64) {}

    pub(crate) fn is_locked(&self, _: i64, _: i64) -> io::Result<bool> {
        unsupported()
    }
}

/// How many forks lie between the program's start and this process.
pub fn fork_count() -> u32 {
    0
}

pub(crate) fn count_forks() {}

pub(crate) fn own_namespace() -> u64 {
    0
}

pub(crate) fn boot_id() -> io::Result<u128> {
    unsupported()
}

pub(crate) fn start_time(_: u32) -> io::Result<u64> {
    unsupported()
}
