//! What can go wrong with a log.

use std::io;

use crate::Lsn;

/// Why a log cannot do what it was asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The operating system refused. Nothing was acknowledged; the log goes on, unless it says [`Error::Poisoned`] from
    /// now on.
    #[error("{action} {file}: {source}")]
    Io {
        /// What was being done, as in "cannot write".
        action: &'static str,
        /// The file it was done to.
        file: String,
        /// The system's answer.
        source: io::Error,
    },
    /// The log has no room for the record until [`Wal::recycle_before`](crate::Wal::recycle_before) frees some.
    #[error("the log is full: {needed} bytes needed, {room} bytes left before the next checkpoint")]
    Full {
        /// The bytes the record takes up in the log.
        needed: u64,
        /// The bytes that are free.
        room: u64,
    },
    /// There is no space on the disk for the segment that the record needs; the log may be able to do with those that
    /// it has ([`Wal::begin_lap`](crate::Wal::begin_lap)).
    #[error("the log cannot become longer: {0}")]
    NoSegment(#[source] Box<Error>),
    /// The record is larger than [`Wal::record_bytes_max`](crate::Wal::record_bytes_max), so it would not fit even into
    /// an empty log.
    #[error("a log record of {bytes} bytes is larger than the {max} bytes this log takes")]
    RecordTooLarge {
        /// The bytes of the record.
        bytes: u64,
        /// The most this log takes.
        max: u64,
    },
    /// A record that had been made durable cannot be read back, so what follows it cannot be replayed either.
    #[error("the log is damaged at {lsn}: {what}")]
    Corrupt {
        /// Where the damaged record begins.
        lsn: Lsn,
        /// What is wrong there.
        what: &'static str,
    },
    /// A segment file is missing, cut short, or its header is damaged.
    #[error("log segment {file} is damaged: {what}")]
    CorruptSegment {
        /// The name of the file.
        file: String,
        /// What is wrong with it.
        what: &'static str,
    },
    /// The log was written by a later release, or is not a log at all.
    #[error("log segment {file} has format version {found}; this release knows version {known}")]
    UnknownVersion {
        /// The name of the file.
        file: String,
        /// The version it says it has.
        found: u32,
        /// The version this release writes and reads.
        known: u32,
    },
    /// A sync or the repair of a failed write failed, so nobody knows what is on the disk. Nothing is acknowledged any
    /// more until all processes have closed the log and it was recovered anew.
    #[error("an earlier write to the disk failed; the log must be closed and recovered")]
    Poisoned,
    /// The log was opened but [`Wal::start`](crate::Wal::start) was not called yet.
    #[error("the log has not been recovered yet")]
    NotStarted,
    /// [`Wal::start`](crate::Wal::start) was called before all records had been read, which would have cut off the
    /// others.
    #[error("the log cannot be started before all of its records were read")]
    Unread,
    /// The log has records in a buffer which this process does not share, so it cannot make them durable
    /// ([`Wal::share_buffer`](crate::Wal::share_buffer)).
    #[error("records of the log are in a buffer that this process does not share")]
    NotBuffered,
    /// A position beyond the end of the log, or one that is no longer in it.
    #[error("{lsn} is not in the log, which ends at {end}")]
    NotInLog {
        /// The position asked for.
        lsn: Lsn,
        /// The end of the log.
        end: Lsn,
    },
    /// A log cannot have this shape.
    #[error("a log cannot have this size: {0}")]
    BadShape(&'static str),
}

/// The result of a call on the log.
pub type Result<T> = std::result::Result<T, Error>;

/// Names the action and the file when a system call fails.
pub(crate) trait Doing<T> {
    fn doing(self, action: &'static str, file: &str) -> Result<T>;
}

impl<T> Doing<T> for io::Result<T> {
    fn doing(self, action: &'static str, file: &str) -> Result<T> {
        self.map_err(|source| Error::Io {
            action,
            file: file.to_owned(),
            source,
        })
    }
}
