//! What pages, commits and heaps are called by.

use std::fmt;
use std::num::NonZeroU64;
use std::sync::atomic::{AtomicU64, Ordering};

use sapwood_wal::process::fork_count;

/// The number of a page within its store: its byte offset in the file divided by
/// [`PAGE_BYTES`](crate::page::PAGE_BYTES).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct PageNo(pub u64);

impl fmt::Display for PageNo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The number of a commit, environment-wide; it only grows.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct CommitNo(pub u64);

impl CommitNo {
    /// The last one that there may be: records out of line have 48 bits for it.
    pub(crate) const MAX: Self = Self((1 << 48) - 1);
}

impl fmt::Display for CommitNo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Pages that stand still, told from all others that this process may know of: those of one store, since it was opened,
/// as of one commit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SnapshotId {
    pub(crate) file: FileNo,
    pub(crate) commit: CommitNo,
}

/// What tells an opened data file from all others of this process, and the process from those that were forked off from
/// it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct FileNo(NonZeroU64);

impl FileNo {
    /// So many bits count the files; those above them are the count of forks.
    const COUNT_BITS: u32 = 40;

    pub(crate) fn next() -> Self {
        static OPENED: AtomicU64 = AtomicU64::new(0);
        let count = OPENED.fetch_add(1, Ordering::Relaxed) & ((1 << Self::COUNT_BITS) - 1);
        let forks = u64::from(fork_count()) << Self::COUNT_BITS;
        Self(NonZeroU64::MIN.saturating_add(forks | count))
    }

    /// Whether this process was forked off since the file was opened.
    #[inline]
    pub(crate) fn is_forked(self) -> bool {
        (self.0.get() >> Self::COUNT_BITS) as u32 != fork_count()
    }
}

/// Which segments have the records of a tree whose values stand out of line. Unique within the store; 0 is none.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct HeapNo(pub(crate) u32);
