//! The environment: a folder with one log, one lock region and a store, opened by any number of processes.

use std::path::Path;
use std::time::Duration;

use crate::bulk_load::BulkLoad;
use crate::check::Report;
use crate::error::Result;
use crate::page::CommitNo;
use crate::snapshot::Snapshot;
use crate::stat::Stat;
use crate::write::WriteTxn;

/// How an environment is opened.
#[derive(Clone, Debug)]
pub struct Options {
    pub(crate) create: bool,
    pub(crate) read_only: bool,
    pub(crate) checkpoint_bytes: u64,
    pub(crate) idle_checkpoint: Option<Duration>,
}

/// The log length, in bytes, that starts a checkpoint unless [`Options::checkpoint_bytes`] says otherwise.
pub const CHECKPOINT_BYTES_DEFAULT: u64 = 64 << 20;

impl Default for Options {
    fn default() -> Self {
        Self {
            create: true,
            read_only: false,
            checkpoint_bytes: CHECKPOINT_BYTES_DEFAULT,
            idle_checkpoint: Some(Duration::from_secs(1)),
        }
    }
}

impl Options {
    /// Opens for reading and writing, creating the environment if there is none.
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether a missing environment (and its folder) is created; otherwise opening it fails. On by default.
    pub fn create(mut self, yes: bool) -> Self {
        self.create = yes;
        self
    }

    /// Whether [`Env::write`] is refused. An environment that needs recovery can then not be opened.
    pub fn read_only(mut self, yes: bool) -> Self {
        self.read_only = yes;
        self
    }

    /// How many bytes of log start a checkpoint in the background; bounds the work of a recovery.
    pub fn checkpoint_bytes(mut self, bytes: u64) -> Self {
        self.checkpoint_bytes = bytes;
        self
    }

    /// After how long without a commit the environment checkpoints by itself; `None` for never.
    pub fn idle_checkpoint(mut self, after: Option<Duration>) -> Self {
        self.idle_checkpoint = after;
        self
    }
}

/// An open environment. Clones are handles to the same one; it is closed when the last handle, snapshot and
/// transaction is gone.
///
/// Any number of processes may have one environment open. Opening it twice in a process gives the same environment
/// (the options of the first opening stay in force). In a child after `fork` every operation fails with
/// [`Error::Forked`](crate::Error::Forked): the child opens it anew.
#[derive(Clone, Debug)]
pub struct Env {}

impl Env {
    /// Opens the environment in the folder `path`, recovering it if its last user died.
    ///
    /// Fails with `NotFound` if there is none and it is not to be created, with
    /// [`Error::Corrupt`](crate::Error::Corrupt) if it is damaged beyond what the log can mend, and with
    /// [`Error::UnknownVersion`](crate::Error::UnknownVersion) if a newer version of this library wrote it.
    pub fn open(path: impl AsRef<Path>, options: &Options) -> Result<Self> {
        let _ = (path.as_ref(), options);
        todo!()
    }

    /// An environment in memory: the same code on an anonymous file, gone with its last handle.
    pub fn in_memory(options: &Options) -> Result<Self> {
        let _ = options;
        todo!()
    }

    /// The newest durable state, unchanging until the snapshot is dropped. Never waits for anybody.
    ///
    /// Fails with [`Error::ReadersFull`](crate::Error::ReadersFull) if all slots of the reader table are taken.
    pub fn read(&self) -> Result<Snapshot> {
        todo!()
    }

    /// Begins a write transaction, waiting until no other one is open in any process. It starts from the newest
    /// applied commit, which need not be durable yet. Dropped without [`WriteTxn::commit`] it leaves no trace.
    pub fn write(&self) -> Result<WriteTxn> {
        todo!()
    }

    /// Like [`Env::write`], but gives `None` instead of waiting for another write transaction.
    pub fn try_write(&self) -> Result<Option<WriteTxn>> {
        todo!()
    }

    /// Begins a bulk load: trees built from sorted input, without copy on write and without the log. It is the one
    /// write transaction until it is committed or dropped.
    pub fn bulk(&self) -> Result<BulkLoad> {
        todo!()
    }

    /// Makes the data file hold the newest durable commit by itself and lets the log before it be used again.
    /// Commits go on meanwhile. Gives the commit that the file now holds.
    pub fn checkpoint(&self) -> Result<CommitNo> {
        todo!()
    }

    /// Reads every page of the newest durable state: checksums, order, reachability, the free list, what is
    /// neither used nor free. `Err` is a failure to check; damage is told by the report.
    pub fn check(&self) -> Result<Report> {
        todo!()
    }

    /// Sizes, heads and readers, as of now.
    pub fn stat(&self) -> Result<Stat> {
        todo!()
    }

    /// Writes the newest durable state to the file `dest`, which must not exist, beside running readers and writers.
    /// Every page keeps its number. [`restore`](crate::restore) makes an environment of it.
    pub fn backup(&self, dest: impl AsRef<Path>) -> Result<CommitNo> {
        let _ = dest.as_ref();
        todo!()
    }
}
