//! What can go wrong with a space.

use std::io;

use crate::memory::Fault;

/// Why a space or a transaction cannot do what it was asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The operating system refused.
    #[error("{action}: {source}")]
    Io {
        /// What was being done, as in "cannot open the space".
        action: &'static str,
        /// The system's answer.
        source: io::Error,
    },
    /// The log refused. After [`sapwood_wal::Error::Poisoned`] the space must be closed by all processes and opened
    /// again.
    #[error(transparent)]
    Log(#[from] sapwood_wal::Error),
    /// Another transaction has changed what this one used: it has changed nothing and may be tried again, which
    /// [`Space::transaction`](crate::Space::transaction) does by itself.
    #[error("another transaction has changed what this one used")]
    Conflict,
    /// A transaction inside this one was given up, so this one cannot be committed either.
    #[error("a transaction inside this one was given up")]
    GivenUp,
    /// What a data structure found wrong, or an access outside of the space.
    #[error(transparent)]
    Fault(#[from] Fault),
    /// A write in a transaction that only reads.
    #[error("a read-only transaction cannot write")]
    ReadOnly,
    /// A transaction on a space in which this thread runs one already, also if the folder was opened a second time:
    /// [`Transaction::transaction`](crate::Transaction::transaction) runs one inside the other.
    #[error("this thread already runs a transaction on this space")]
    Nested,
    /// A page of the file is not what was written: it was damaged outside of transactions. Other pages may be read;
    /// [`Space::check`](crate::Space::check) says which are damaged.
    #[error("the page at {offset} is damaged: it does not match its checksum")]
    PageDamaged {
        /// Where in the space the page begins.
        offset: u64,
    },
    /// A file that is damaged, or belongs to something else.
    #[error("the space is damaged: {0}")]
    Damaged(String),
    /// A file of another release.
    #[error(
        "the {what} has format version {found}, and this release reads only version {known}: have the release that wrote it write out \
        what it holds, and put that into a new space"
    )]
    UnknownVersion {
        /// What has it.
        what: &'static str,
        /// The version it says it has.
        found: u32,
        /// The version this release writes and reads.
        known: u32,
    },
    /// The versions that a long transaction sees take up all frames or all of the log, and it did not end in time.
    #[error("process {pid} runs a transaction that keeps old versions from being given up")]
    Pinned {
        /// The process that runs it.
        pid: u32,
    },
    /// Another process or thread has held this transaction up for longer than
    /// [`Options::patience`](crate::Options::patience); it has changed nothing. It may have been stopped, or waits for
    /// what this thread holds.
    #[error("process {pid} {by}, and has not gone on in time")]
    Stalled {
        /// The process that runs it: perhaps this one.
        pid: u32,
        /// What it does.
        by: &'static str,
    },
    /// As many transactions run as can: [`SLOTS_MAX`](crate::SLOTS_MAX).
    #[error("too many transactions run at the same time")]
    SlotsFull,
    /// A space is made larger by the first process to open it, and another one has it open.
    #[error(
        "the space can have {bytes} bytes, and becomes larger only when it is opened while nobody has it open"
    )]
    InUse {
        /// How large it can become while it is in use.
        bytes: u64,
    },
    /// As many processes have the space open as can.
    #[error("too many processes have the space open")]
    ProcessesFull,
    /// The space was opened by a process of which this one is a child: it must open the space itself.
    #[error("the space was opened before this process was forked")]
    Forked,
    /// An earlier sync of the data file failed, or a dead process left what could not be completed. The space must be
    /// closed by all processes and opened again, which recovers it from the log.
    #[error("an earlier failure left the space unusable until it is closed and recovered")]
    Poisoned,
    /// A space that is there already was opened with options that say otherwise than those that it was made with.
    #[error(
        "the space was made with {what} {made}, and is asked for with {asked}: leave it out, or say the same"
    )]
    MadeOtherwise {
        /// Which option.
        what: &'static str,
        /// What it was when the space was made.
        made: String,
        /// What it is now.
        asked: String,
    },
    /// A space that does not hold what [`Options::layout`](crate::Options::layout) says.
    #[error("the space holds {made}, and is opened as {asked}")]
    OtherLayout {
        /// What it holds, as far as it says so.
        made: String,
        /// What it was asked for.
        asked: String,
    },
    /// A space that is always at the same address ([`Options::address`](crate::Options::address)) finds something else
    /// there: another space or a library, when it is opened; when a transaction is begun, another one of this process.
    #[error("something else has the addresses from {address:#x} on that the space needs")]
    AddressTaken {
        /// Where the space is to be.
        address: u64,
    },
    /// Options that cannot be.
    #[error("a space cannot be like this: {0}")]
    BadOptions(&'static str),
}

impl Error {
    /// Whether the disk is full.
    pub(crate) fn is_full_disk(&self) -> bool {
        matches!(self, Self::Io { source, .. } if source.kind() == io::ErrorKind::StorageFull)
    }
}

/// The result of a call on a space.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Names the action when a system call fails.
pub(crate) trait Doing<T> {
    fn doing(self, action: &'static str) -> Result<T>;
}

impl<T> Doing<T> for io::Result<T> {
    fn doing(self, action: &'static str) -> Result<T> {
        self.map_err(|source| Error::Io { action, source })
    }
}

impl<T> Doing<T> for rustix::io::Result<T> {
    fn doing(self, action: &'static str) -> Result<T> {
        self.map_err(|source| Error::Io {
            action,
            source: source.into(),
        })
    }
}
