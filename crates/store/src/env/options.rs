//! How an environment is opened.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use sapwood_wal::storage::{Folder, PRIVATE_PERMISSIONS};

use crate::env::archive::Archive;
use crate::env::file_names::FileNames;
use crate::error::Result;
use crate::guard::Guards;
use crate::limits::STORES_MAX;
use crate::sync::Arc;

/// How an environment is opened.
#[derive(Clone, Debug)]
pub struct Options {
    pub(crate) create: bool,
    pub(crate) read_only: bool,
    pub(crate) log_bytes: u64,
    pub(crate) log_segment_bytes: u64,
    pub(crate) idle_checkpoint: Option<Duration>,
    pub(crate) idle_compaction: Option<Duration>,
    pub(crate) names: FileNames,
    pub(crate) permissions: u32,
    pub(crate) shared: bool,
    pub(crate) over_empty: bool,
    pub(crate) durability: Durability,
    pub(crate) stores: u16,
    pub(crate) store_folders: BTreeMap<u16, PathBuf>,
    pub(crate) alone_when_closed: bool,
    pub(crate) archive: Option<Arc<Archive>>,
    pub(crate) parked_age_max: u64,
    pub(crate) memory_bytes: u64,
    pub(crate) guards: Guards,
}

/// The length of the log, in bytes, unless [`Options::log_bytes`] says otherwise.
pub const LOG_BYTES_DEFAULT: u64 = 64 << 20;

/// The shortest log, in bytes.
pub const LOG_BYTES_MIN: u64 = 64 << 10;

impl Default for Options {
    fn default() -> Self {
        Self {
            create: true,
            read_only: false,
            log_bytes: LOG_BYTES_DEFAULT,
            log_segment_bytes: 8 << 20,
            idle_checkpoint: Some(Duration::from_secs(1)),
            idle_compaction: Some(Duration::from_secs(10)),
            names: FileNames::default(),
            permissions: PRIVATE_PERMISSIONS,
            shared: true,
            over_empty: false,
            durability: Durability::Durable,
            stores: 1,
            store_folders: BTreeMap::new(),
            alone_when_closed: false,
            archive: None,
            parked_age_max: u64::MAX,
            memory_bytes: u64::MAX,
            guards: Guards::default(),
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

    /// Whether only reading is wanted: nothing is created, and whatever would change the store fails with
    /// [`Error::ReadOnly`](crate::Error::ReadOnly).
    ///
    /// - While others have the environment open, data file and log are opened for reading, and snapshots are as new and
    ///   as safe as theirs. That takes write access to the lock file, where the reader table is; without it opening
    ///   fails with [`Error::Unprotected`](crate::Error::Unprotected).
    /// - When nobody has, the first one to open it recovers as always, and then opens the files for reading.
    /// - If the files cannot be written to (for want of permission, or on a read-only medium), or on a storage that no
    ///   other process sees, the environment is what the files hold: what the log has behind the data file is replayed
    ///   in memory. As long as it is open, others can open it in the same way only; who wants to write gets
    ///   [`Error::HeldStill`](crate::Error::HeldStill). On a read-only medium without a lock file, and without
    ///   [`Options::shared`], the caller answers for nobody writing.
    pub fn read_only(mut self, yes: bool) -> Self {
        self.read_only = yes;
        self
    }

    /// Whether it was asked for reading only.
    pub fn is_read_only(&self) -> bool {
        self.read_only
    }

    /// The length of the log of a new environment, in bytes, at least [`LOG_BYTES_MIN`]. When three eighths of it are
    /// used, a checkpoint begins; so it bounds the work of a recovery. A transaction that changes more than half of it
    /// is committed by syncing the data file instead.
    pub fn log_bytes(mut self, bytes: u64) -> Self {
        self.log_bytes = bytes.max(LOG_BYTES_MIN);
        self
    }

    /// The length of the files that the log of a new environment consists of, in bytes; 8 MiB by default. There are 8
    /// to 64 of them, which are made when they are first needed: short ones for environments that are seldom written
    /// to.
    pub fn log_segment_bytes(mut self, bytes: u64) -> Self {
        self.log_segment_bytes = bytes.max(1);
        self
    }

    /// What [`WriteTxn::commit`](crate::WriteTxn::commit) promises;
    /// [`WriteTxn::commit_with`](crate::WriteTxn::commit_with) says it for one commit.
    ///
    /// ```
    /// # fn main() -> sapwood_store::Result<()> {
    /// use sapwood_store::{Durability, Env, Options, TreeKind};
    ///
    /// let folder = tempfile::tempdir()?;
    /// let env = Env::open(folder.path(), &Options::new())?;
    /// let mut txn = env.write()?;
    /// let events = txn.create_tree("events", TreeKind::COMPACT)?;
    /// txn.put(events, b"1", b"started")?;
    /// // Visible at once; a power cut may take it back.
    /// let first = txn.commit_with(Durability::Relaxed)?;
    /// assert!(first.is_visible());
    ///
    /// let mut txn = env.write()?;
    /// let events = txn.tree("events")?.unwrap();
    /// txn.put(events, b"2", b"paid")?;
    /// // Others go on writing while this is waited for, here or on another thread.
    /// let second = txn.commit()?;
    /// let waiting = std::thread::spawn(move || second.wait_durable());
    /// waiting.join().unwrap()?;
    /// assert!(first.is_durable());
    /// # Ok(())
    /// # }
    /// ```
    pub fn durability(mut self, durability: Durability) -> Self {
        self.durability = durability;
        self
    }

    /// After how long without a commit the environment checkpoints by itself. With `None` there is no background thread
    /// at all, and checkpoints happen within a commit that finds three eighths of the log used. Otherwise each store
    /// that is written to has one.
    pub fn idle_checkpoint(mut self, after: Option<Duration>) -> Self {
        self.idle_checkpoint = after;
        self
    }

    /// After how long without a commit the environment compacts itself ([`Env::compact`](crate::Env::compact)) if more
    /// than an eighth of it is free; never with `None`, or without [`Options::idle_checkpoint`]. What it does are
    /// commits like others, of which snapshots see nothing but the numbers. It ends as soon as somebody else commits,
    /// and where a reader keeps pages it waits longer each time. Unless this is `None`, free pages that writers have
    /// left unused for a while are given back, too, while they go on, in a tenth of the time.
    pub fn idle_compaction(mut self, after: Option<Duration>) -> Self {
        self.idle_compaction = after;
        self
    }

    /// How many stores the environment has at least, 1 to [`STORES_MAX`]: those that are missing are added when it is
    /// opened, which is possible only while nobody else has it open. There is no way to take one away. See
    /// [`Env::store`](crate::Env::store).
    pub fn stores(mut self, count: u16) -> Self {
        self.stores = count.clamp(1, STORES_MAX);
        self
    }

    /// The existing folder in which the data file of this store is, perhaps on another device than the log, which is in
    /// the environment's. Everybody who opens the environment has to say so. The first store, number 0, stays where the
    /// log is.
    pub fn store_folder(mut self, store: u16, folder: impl Into<PathBuf>) -> Self {
        self.store_folders.insert(store, folder.into());
        self
    }

    /// Whether the last to close the environment removes the log, so that each data file stands alone, as a backup
    /// does, and can be copied and moved. It gets another one when it is opened again, which takes a few syncs more.
    /// Without effect with an archive, whose logs have to follow each other.
    pub fn alone_when_closed(mut self, yes: bool) -> Self {
        self.alone_when_closed = yes;
        self
    }

    /// Keeps all that is written to the log in this folder, which exists and serves no other environment, so that
    /// [`Restore::archive`](crate::Restore::archive) can bring a backup to any commit or moment after it. A checkpoint
    /// archives before it lets the log be used again: if that fails, the log fills up, and then commits fail with that
    /// error. Every process that writes has to say the same. Nothing is ever removed from the folder: what is older
    /// than the oldest backup is no longer needed.
    pub fn archive(mut self, folder: impl AsRef<Path>) -> Result<Self> {
        let folder = Folder::open(folder.as_ref())?.creating_with(self.permissions);
        self.archive = Some(Arc::new(Archive::new(Arc::new(folder))));
        Ok(self)
    }

    /// How many commits old a parked snapshot ([`Snapshot::park`](crate::Snapshot::park)) may become, of whatever
    /// process, before a write transaction of this one that looks for pages ends it. Never, unless this is set. A
    /// snapshot that is not parked is not ended whatever its age, since nothing could take back what has been read from
    /// it.
    pub fn parked_age_max(mut self, commits: u64) -> Self {
        self.parked_age_max = commits;
        self
    }

    /// How much memory data files may take at most, in bytes, if that is less than three quarters of what the machine
    /// or a control group lets this process have. Of longer ones only pages that are wanted are read, and scans, checks
    /// and backups read ahead by themselves; of others the system reads with a page that is wanted as many around it as
    /// the disk is set to.
    pub fn memory_bytes(mut self, bytes: u64) -> Self {
        self.memory_bytes = bytes;
        self
    }

    /// What the files are called. Everybody who opens the environment has to use the same names, and different
    /// environments in one folder different ones.
    pub fn names(mut self, names: FileNames) -> Self {
        self.names = names;
        self
    }

    /// Whether a data file without a byte, such as one made to reserve a name, is as good as none. Otherwise it counts
    /// as damaged.
    pub fn over_empty(mut self, yes: bool) -> Self {
        self.over_empty = yes;
        self
    }

    /// The permission bits of the files that are created, before the process's umask; by default only the owner reads
    /// and writes them.
    pub fn permissions(mut self, bits: u32) -> Self {
        self.permissions = bits & 0o777;
        self
    }

    /// Whether other processes may open the environment meanwhile, which is what the lock file is for. Without one (for
    /// a folder in which none can be made, or on a file system that knows no locks) the caller answers for nobody else
    /// having the environment open: that would damage it.
    pub fn shared(mut self, yes: bool) -> Self {
        self.shared = yes;
        self
    }
}

/// What a commit promises.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Durability {
    /// The commit is visible only once it is durable, which [`Ticket::wait_durable`](crate::Ticket::wait_durable) waits
    /// for: whatever anybody has seen survives a power cut.
    #[default]
    Durable,
    /// Nobody waits for the disk: the commit is visible as soon as all [`Durability::Durable`] commits before it are
    /// durable. A power cut may take the last of these commits away (whole ones, and none without its
    /// successors), but never damages anything; the death of processes, of all of them too, takes none, as long as the
    /// lock file stays with the others, and the machine on, until the environment is opened for writing again. They
    /// become durable with the next durable commit, with [`Env::sync`](crate::Env::sync) and
    /// [`Ticket::wait_durable`](crate::Ticket::wait_durable), and by themselves after about as long as
    /// [`Options::idle_checkpoint`](crate::Options::idle_checkpoint) says. After hundreds of them in a row, or a
    /// few large ones, none of which anybody has waited for, they are not logged any more: the next wait then takes a
    /// checkpoint, some milliseconds instead of a sync of the log.
    Relaxed,
}
