//! Checking everything that is in the file.

use crate::page::CommitNo;

/// What a check has found.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Report {
    /// The commit that was checked.
    pub commit: CommitNo,
    /// Trees, the catalog and the free list not counted.
    pub trees: u64,
    /// Records in them.
    pub records: u64,
    /// Pages in use.
    pub pages_used: u64,
    /// Pages in the free list.
    pub pages_free: u64,
    /// What is wrong, at most [`PROBLEMS_MAX`] findings; empty if all is well.
    pub problems: Vec<String>,
}

/// A report names at most this many problems.
pub const PROBLEMS_MAX: usize = 100;

impl Report {
    /// Whether nothing is wrong.
    pub fn is_clean(&self) -> bool {
        self.problems.is_empty()
    }
}
