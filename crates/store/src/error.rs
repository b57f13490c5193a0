//! What can go wrong in the store.

use crate::page::{CommitNo, PageNo};

/// The result of everything in this crate that can fail.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why an operation of the store failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The key is longer than [`KEY_BYTES_MAX`](crate::tree::KEY_BYTES_MAX).
    #[error("key of {0} bytes: a key may have at most {max}", max = crate::tree::KEY_BYTES_MAX)]
    KeyTooLong(usize),

    /// The value is longer than [`VALUE_BYTES_MAX`](crate::tree::VALUE_BYTES_MAX).
    #[error("value of {0} bytes: a value may have at most {max}", max = crate::tree::VALUE_BYTES_MAX)]
    ValueTooLong(usize),

    /// Records given to a bulk builder do not ascend strictly by key.
    #[error("bulk input is not sorted: record {0} does not come after its predecessor")]
    NotSorted(u64),

    /// A tree would need more levels than [`HEIGHT_MAX`](crate::tree::HEIGHT_MAX).
    #[error("the tree is full: it would need more than {max} levels", max = crate::tree::HEIGHT_MAX)]
    TreeTooHigh,

    /// Ranks and counts were asked of a tree that was not created as a counted one.
    #[error("the tree is not counted: it knows neither rank nor position")]
    NotCounted,

    /// Something that was read contradicts the format. The data file is damaged.
    #[error("damaged: page {page}: {what}")]
    Corrupt {
        /// The page (or first page of the extent) where it was seen.
        page: PageNo,
        /// What is wrong with it.
        what: &'static str,
    },

    /// A page carries a commit that is later than what refers to it.
    #[error("damaged: page {page}: written by commit {found}, but referred to by commit {parent}")]
    FromTheFuture {
        /// The page.
        page: PageNo,
        /// The commit in its header.
        found: CommitNo,
        /// The commit of the page that refers to it.
        parent: CommitNo,
    },

    /// Reading or writing a file failed.
    #[error(transparent)]
    Io(#[from] std::io::Error),
}

impl Error {
    /// The error for a page that contradicts the format.
    #[cold]
    pub(crate) fn corrupt(page: PageNo, what: &'static str) -> Self {
        Self::Corrupt { page, what }
    }
}
