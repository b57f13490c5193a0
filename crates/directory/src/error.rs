//! What can go wrong with a directory as a whole. What a client did wrong is an [`crate::Outcome`] instead.

use sapwood_ldap::dn::{DN_BYTES_MAX, RDNS_MAX};

use crate::engine::{self, Engine, EntryId, Verdict};

/// An error of the directory itself, never of one client's request.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The engine failed.
    #[error(transparent)]
    Engine(#[from] engine::Error),
    /// There is no directory here, or one already.
    #[error("{0}")]
    State(String),
    /// A naming context, index or limit that cannot be.
    #[error("{0}")]
    Config(String),
    /// An entry whose name became too long when an entry above it was moved or renamed: it has none until one of them
    /// is again.
    #[error(
        "the name of entry {0} would have more than {RDNS_MAX} parts, or more than {DN_BYTES_MAX} bytes: move an entry \
         above it up, or give it a shorter name"
    )]
    NameTooLong(EntryId),
    /// Reading or writing a file beside the store failed.
    #[error("{what}: {source}")]
    File {
        /// What was being done, naming the file.
        what: String,
        /// The system's error.
        source: std::io::Error,
    },
}

impl Error {
    /// What becomes of the only operation of a bundle: an error of the engine aborts it, any other undoes it and is
    /// kept as the reason.
    pub(crate) fn verdict<T>(
        made: Result<T>,
        failure: &mut Option<Error>,
    ) -> engine::Result<Verdict> {
        match made {
            Ok(_) => Ok(Verdict::Keep),
            Err(Error::Engine(error)) => Err(error),
            Err(error) => {
                *failure = Some(error);
                Ok(Verdict::Undo)
            }
        }
    }

    /// Whether what was asked for is to be fetched first, and then asked for again.
    pub fn is_not_here(&self) -> bool {
        matches!(self, Error::Engine(engine::Error::NotHere))
    }

    /// Stored data contradicts itself.
    pub(crate) fn corrupt(what: impl Into<String>) -> Error {
        Error::Engine(engine::Error::Corrupt(what.into()))
    }
}

/// What a call on a directory returns.
pub type Result<T> = std::result::Result<T, Error>;

impl From<Error> for engine::Error {
    /// For what runs inside the engine and can only fail with the engine's errors.
    fn from(error: Error) -> engine::Error {
        match error {
            Error::Engine(error) => error,
            other => engine::Error::Unavailable(other.to_string()),
        }
    }
}

/// Reads, and has fetched what is not here, until all of it is. `read` must begin anew each time.
pub(crate) fn through<E: Engine, T>(
    snapshot: &E::Snapshot,
    mut read: impl FnMut() -> Result<T>,
) -> Result<T> {
    loop {
        match read() {
            Err(error) if E::REMOTE && error.is_not_here() => E::fetch(snapshot)?,
            done => return done,
        }
    }
}
