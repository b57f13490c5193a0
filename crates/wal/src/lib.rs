//! A durable redo log: opaque records, group commit, recycled segments, replay after a crash.
//!
//! [`Wal`] is the log. It knows nothing of what is in its records; the one that appends them keeps what they describe
//! elsewhere, and tells the log from time to time how much of it is no longer needed ([`Wal::recycle_before`]).
//!
//! [`storage`] is the one place that touches files, shared with whatever is built on the log; so are [`process`] and
//! [`lock`], by which processes know of each other, and [`sync`], through which they share memory.
//!
//! # The life of a log
//!
//! 1. [`Wal::create`] makes it, [`Wal::open`] opens it.
//! 2. The first process to open it rescues what dead ones have left in memory ([`Wal::salvage`]), reads everything back
//!    from the last checkpoint on ([`Wal::records`]) and starts it at the end it found ([`Wal::start`]). Processes that
//!    come later share the first one's [`Shared`] state and find it started.
//! 3. The one that has the writer lock, which is the caller's, appends records ([`Wal::append`],
//!    [`Wal::append_buffered`]); anybody waits for them to be durable ([`Wal::sync_to`]), and all who wait at the same
//!    time share one sync.
//! 4. When the holder of the writer lock died, its heir calls [`Wal::inherit`] first.
//! 5. A checkpoint lets the space be used again ([`Wal::recycle_before`]).
//!
//! # What is assumed of the disk
//!
//! After `fdatasync(2)` has returned success, what was written before is there after a power cut, and so is what a
//! write with `RWF_DSYNC` has written when it returns, past the page cache or through it. A write that was not synced
//! may be there wholly, in part (sector by sector, in any order) or not at all. A sector that is written again with the
//! same bytes at its start keeps these bytes. A read returns what was written, or an error, or damage that a CRC-32
//! shows.

mod buffer;
#[cfg(all(test, not(shuttle)))]
mod crash_tests;
mod error;
mod format;
mod gather;
mod group;
mod guard;
pub mod lock;
mod log;
#[cfg(all(test, shuttle))]
mod model_tests;
pub mod process;
mod records;
mod ring;
mod salvage;
mod shared;
pub mod storage;
pub mod sync;
mod sys;
mod write;

use std::fmt;

// The simulated disk, which belongs to the testkit, is a module of the unit tests here: it must see the traits that
// they see.
#[cfg(test)]
use crate as wal;

pub use error::{Error, Result};
pub use log::Wal;
pub use records::{Record, Records};
pub use shared::Shared;

/// Runs the program in the package's README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct Readme;

/// A place in the log: how many bytes had ever been appended before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lsn(pub u64);

impl fmt::Display for Lsn {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "log position {}", self.0)
    }
}

/// A place between two records: where the next one begins, and what it must say about the one before. A checkpoint
/// keeps the position from which the log is to be replayed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Position {
    /// Where the next record begins.
    pub lsn: Lsn,
    /// The checksum of the record before.
    pub chain: u32,
}

impl Position {
    /// The position before the first record.
    pub const START: Self = Self {
        lsn: Lsn(0),
        chain: 0,
    };
}

/// Tells one log from every other one; random bytes, or the id of what the log belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LogId(pub [u8; 16]);

/// The size of a new log. It is written into the log and cannot be changed later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// The size of a segment file in bytes: a multiple of 4096, at least 8192.
    pub segment_bytes: u64,
    /// How many segment files there are: at least 2. They are made when they are first needed, or by
    /// [`Wal::make_segment`] a little before.
    pub segments: u32,
}

/// The largest log, in bytes.
pub const LOG_BYTES_MAX: u64 = 1 << 40;
/// The most segments.
pub const SEGMENTS_MAX: u32 = 1 << 16;

impl Default for Options {
    /// 64 MiB in eight segments, which is read back and applied well within five seconds.
    fn default() -> Self {
        Self {
            segment_bytes: 8 * 1024 * 1024,
            segments: 8,
        }
    }
}

impl Options {
    fn check(&self) -> Result<()> {
        let bytes = self.segment_bytes.checked_mul(u64::from(self.segments));
        if self.segment_bytes < 8192 || !self.segment_bytes.is_multiple_of(4096) {
            Err(Error::BadShape(
                "a segment is a multiple of 4096 bytes and at least 8192",
            ))
        } else if self.segments < 2 || self.segments > SEGMENTS_MAX {
            Err(Error::BadShape("there are 2 to 65536 segments"))
        } else if bytes.is_none_or(|bytes| bytes > LOG_BYTES_MAX) {
            Err(Error::BadShape("all segments together have at most 1 TiB"))
        } else {
            Ok(())
        }
    }
}
