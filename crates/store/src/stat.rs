//! Figures about an open environment.

use crate::page::CommitNo;

/// Sizes, heads and readers of an environment at one moment.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Stat {
    /// The newest commit that readers see.
    pub visible: CommitNo,
    /// The newest commit that is applied; later ones than `visible` wait for the log's sync.
    pub applied: CommitNo,
    /// The commit that the data file holds without the log.
    pub checkpoint: CommitNo,
    /// Pages handed out so far, free ones included.
    pub pages: u64,
    /// Pages the data file has room for.
    pub pages_allocated: u64,
    /// Those of the reader table's slots that hold a snapshot.
    pub readers: Vec<Reader>,
}

/// One snapshot in the reader table.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Reader {
    /// The process that holds it.
    pub pid: u32,
    /// The thread that claimed the slot.
    pub tid: u32,
    /// The commit it sees.
    pub commit: CommitNo,
    /// How many commits have become visible since.
    pub age: u64,
}
