//! What can go wrong with a space.

use std::io;

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
    /// The log refused.
    #[error(transparent)]
    Log(#[from] sapwood_wal::Error),
    /// The transaction has lost to another one and must be begun again, which `Space::transaction`
    /// does by itself.
    #[error("another transaction has changed what this one used")]
    Conflict,
    /// An access outside of the space.
    #[error("{length} bytes at {offset} are not all within the {bytes} bytes of the space")]
    OutOfBounds {
        /// Where the access began.
        offset: u64,
        /// How many bytes it wanted.
        length: u64,
        /// The size of the space.
        bytes: u64,
    },
    /// A file that is damaged, or is no space at all.
    #[error("the space is damaged: {0}")]
    Damaged(String),
    /// A data structure in the space is damaged, or cannot do what it was asked.
    #[error(transparent)]
    Structure(#[from] crate::Fault),
}

/// The result of a call on a space.
pub type Result<T> = std::result::Result<T, Error>;
