//! What can go wrong in the store.

use std::io::ErrorKind;
use std::path::Path;

use crate::ids::{CommitNo, PageNo};

/// The result of everything in this crate that can fail.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why an operation of the store failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The key is longer than [`KEY_BYTES_MAX`](crate::limits::KEY_BYTES_MAX).
    #[error("key of {0} bytes: a key may have at most {max}", max = crate::limits::KEY_BYTES_MAX)]
    KeyTooLong(usize),

    /// The value is longer than [`VALUE_BYTES_MAX`](crate::limits::VALUE_BYTES_MAX).
    #[error("value of {0} bytes: a value may have at most {max}", max = crate::limits::VALUE_BYTES_MAX)]
    ValueTooLong(usize),

    /// The value is longer than [`DUPLICATE_BYTES_MAX`](crate::limits::DUPLICATE_BYTES_MAX), in a tree with duplicates.
    #[error("value of {0} bytes: in a tree with duplicates it may have at most {max}", max = crate::limits::DUPLICATE_BYTES_MAX)]
    DuplicateTooLong(usize),

    /// Where all have the same length, a value (or a key, where keys have) has another one.
    #[error("{found} bytes where {expected} are expected: all have the same length here")]
    ValueSize {
        /// The length.
        found: usize,
        /// The length that it should have, or be a multiple of.
        expected: usize,
    },

    /// A record to be appended does not come after all others.
    #[error("the record does not come after those that are there")]
    OutOfOrder,

    /// The operation is about several values of a key, of which the tree keeps one.
    #[error("the tree keeps no duplicates")]
    NoDuplicates,

    /// The operation is not possible in a tree with duplicates.
    #[error("not possible in a tree with duplicates")]
    Duplicates,

    /// A value is to be written in its place, in a tree whose values stand out of line.
    #[error("not possible in a tree whose values stand out of line")]
    OutOfLine,

    /// The tree is ordered by a comparator that has not been registered
    /// ([`Env::set_comparators`](crate::Env::set_comparators)).
    #[error("the tree has an order of its own, and no comparator is registered for it")]
    NoComparator,

    /// The choices that make up a tree's kind do not go together: see [`TreeKind`](crate::TreeKind).
    #[error("there is no tree of this kind: its choices do not go together")]
    TreeKind,

    /// A key or value is read as something that its bytes are not: see [`Encoding`](crate::Encoding).
    #[error("a {0} is not of the type that it is read as")]
    WrongType(&'static str),

    /// A cursor's record is asked for while it stands nowhere, or was deleted.
    #[error("the cursor does not stand on a record")]
    NoRecord,

    /// Records given to a bulk builder do not ascend strictly by key.
    #[error("bulk input is not sorted: record {0} does not come after its predecessor")]
    NotSorted(u64),

    /// A tree would need more levels than a tree may have (24).
    #[error("the tree is full: it would need more than {max} levels", max = crate::limits::HEIGHT_MAX)]
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

    /// The environment was opened before this process was forked off; a child opens it anew.
    #[error("the environment was opened by the parent process: a child has to open it anew")]
    Forked,

    /// The environment was opened read-only.
    #[error("the environment is open for reading only")]
    ReadOnly,

    /// The environment has fewer stores.
    #[error("there is no store {0} in this environment")]
    NoSuchStore(usize),

    /// Transactions to be committed together are not all of one environment, or a tree is built in another load than it
    /// was begun in.
    #[error("the transactions belong to different environments, or are not the same")]
    ForeignTxn,

    /// The archive does not lead a backup to this commit.
    #[error(
        "the archive does not lead to commit {0}: it lacks it, or that commit is not in the log but in the data file alone"
    )]
    NotInArchive(CommitNo),

    /// Several stores were to be brought to the commit of one.
    #[error(
        "a commit's number says nothing of several stores, each of which counts its own commits: name a moment instead of commit {0}"
    )]
    CommitOfOneStore(CommitNo),

    /// Snapshots to be compared are not of the same store, or a known tree ([`KnownTree`](crate::KnownTree)) is looked
    /// for in another snapshot than it was found in.
    #[error("the snapshots are of different stores, or of different commits")]
    ForeignSnapshot,

    /// More stores are wanted than the environment has, while others have it open.
    #[error(
        "the environment is open with {0} stores; more can be added only while nobody else has it open"
    )]
    StoresFixed(usize),

    /// Nothing would keep a snapshot's pages from being used again: the environment is open for reading only, and its
    /// lock file cannot be written to.
    #[error("no snapshot would be safe from writers: {0}")]
    Unprotected(&'static str),

    /// Processes that cannot write to the lock file have the environment open for reading only
    /// ([`Options::read_only`](crate::Options::read_only)): its files must not change before they have closed it.
    #[error(
        "processes that cannot write to its lock file are reading the environment: it can be written when they have closed it"
    )]
    HeldStill,

    /// A snapshot was parked for so long that its pages were wanted
    /// ([`Options::parked_age_max`](crate::Options::parked_age_max)).
    #[error("the snapshot of commit {0} is over: it was parked for too long")]
    SnapshotExpired(CommitNo),

    /// Snapshots have the store open still that others would open anew without knowing of them.
    #[error(
        "snapshots of the environment are still there, of which a new opening would know nothing: drop them first"
    )]
    HasSnapshots,

    /// All slots of the reader table are taken.
    #[error("too many snapshots at a time: the reader table has {max} slots", max = crate::limits::READERS_MAX)]
    ReadersFull,

    /// The store may have only so many pages ([`Env::set_bytes_max`](crate::Env::set_bytes_max)), and all that may be
    /// used again are.
    #[error("the store is full: it may have {0} pages")]
    StoreFull(u64),

    /// As many processes as possible have the environment open.
    #[error("too many processes: {max} have the environment open", max = sapwood_wal::process::PROCESSES_MAX)]
    ProcessesFull,

    /// A file was written in a format of another version.
    #[error(
        "format version {found} of the {what} is not known to this program, which knows {known}{remedy}",
        remedy = remedy(what, *found < *known)
    )]
    UnknownVersion {
        /// Which file.
        what: &'static str,
        /// Its version.
        found: u32,
        /// The version this program reads and writes.
        known: u32,
    },

    /// There is a tree of this name already.
    #[error("there is a tree '{0}' already")]
    TreeExists(String),

    /// The name of a tree is empty or longer than [`TREE_NAME_BYTES_MAX`](crate::TREE_NAME_BYTES_MAX).
    #[error("a tree name has 1 to {max} bytes, not {0}", max = crate::limits::TREE_NAME_BYTES_MAX)]
    TreeName(usize),

    /// The tree id belongs to another transaction, or its tree is gone.
    #[error("no such tree in this transaction")]
    NoSuchTree,

    /// An operation of this write transaction failed half way, so that it cannot be committed.
    #[error("the transaction failed earlier and cannot be committed")]
    TxnFailed,

    /// A write or sync failed, and nothing may be assumed about what reached the disk. No more commits are accepted
    /// until the environment has been closed by everybody and is opened again.
    #[error(
        "the environment refuses commits since a failed write, until all have closed it and it is opened anew"
    )]
    Poisoned,

    /// A file that should be a backup is none.
    #[error("not a backup: {0}")]
    NotABackup(String),

    /// A backup cannot be continued by, or restored together with, another one: it is something else than that needs.
    #[error("not the backup that is needed here: {0}")]
    NotTheBase(String),

    /// The environment as a whole contradicts itself or the format.
    #[error("damaged: {0}")]
    Damaged(String),

    /// The log refused. (That it is poisoned is told by [`Error::Poisoned`].)
    #[error(transparent)]
    Log(sapwood_wal::Error),

    /// Reading or writing a file failed.
    #[error(transparent)]
    Io(#[from] std::io::Error),
}

/// What can be done about a file of another version.
fn remedy(what: &str, is_older: bool) -> &'static str {
    match is_older {
        true if what == DATA_FILE => {
            ": have the program that wrote it export what is there, and import that with this one"
        }
        true => "",
        false => ": a later program wrote it",
    }
}

/// How [`Error::UnknownVersion`] calls the file of a store.
pub(crate) const DATA_FILE: &str = "data file";

impl Error {
    pub(crate) fn not_the_base(path: &Path, what: &str) -> Self {
        Self::NotTheBase(format!("{} is {what}", path.display()))
    }

    /// Tells in which file it is, where an error of itself does not say.
    pub(crate) fn in_file(self, path: &Path) -> Self {
        let path = path.display();
        match self {
            Self::Damaged(what) => Self::Damaged(format!("{path}: {what}")),
            Self::NotABackup(what) => Self::NotABackup(format!("{path} {what}")),
            Self::Io(error) => std::io::Error::new(error.kind(), format!("{path}: {error}")).into(),
            other => other,
        }
    }

    /// Whether this refuses the arguments of a change, which then has changed nothing: the transaction can go on.
    pub fn is_refusal(&self) -> bool {
        matches!(
            self,
            Self::KeyTooLong(_)
                | Self::ValueTooLong(_)
                | Self::DuplicateTooLong(_)
                | Self::ValueSize { .. }
                | Self::OutOfOrder
                | Self::NoDuplicates
                | Self::Duplicates
                | Self::NoComparator
                | Self::TreeKind
                | Self::TreeExists(_)
                | Self::TreeName(_)
                | Self::NoSuchTree
                | Self::NoRecord
        )
    }

    /// Whether the store has as many pages as it may have, be it for want of disk space, quota, or by a limit of the
    /// process.
    pub(crate) fn is_full(&self) -> bool {
        match self {
            Self::StoreFull(_) => true,
            Self::Io(error) => matches!(
                error.kind(),
                ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge
            ),
            _ => false,
        }
    }

    /// Whether a page, written by the commit `found`, may be what one of the commit `parent` refers to.
    pub(crate) fn check_age(page: PageNo, found: CommitNo, parent: CommitNo) -> Result<()> {
        match found > parent {
            true => Err(Self::FromTheFuture {
                page,
                found,
                parent,
            }),
            false => Ok(()),
        }
    }

    /// The error for a page that contradicts the format.
    #[cold]
    pub(crate) fn corrupt(page: PageNo, what: &'static str) -> Self {
        Self::Corrupt { page, what }
    }
}

impl From<sapwood_wal::Error> for Error {
    fn from(error: sapwood_wal::Error) -> Self {
        match error {
            sapwood_wal::Error::Poisoned => Self::Poisoned,
            error => Self::Log(error),
        }
    }
}
