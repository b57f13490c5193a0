//! The environment: a folder with one log, one lock region and one or more stores, opened by any number of processes.

pub(crate) mod comparators;
pub(crate) mod file_names;
pub(crate) mod mapping;
pub(crate) mod options;
pub(crate) mod readers;
pub(crate) mod region;

use std::fmt;
use std::path::Path;
use std::sync::OnceLock;

use sapwood_wal::Wal;
use sapwood_wal::process::Membership;
use sapwood_wal::storage::{File, Storage};

use crate::background::Background;
use crate::backup::Content;
use crate::check::{self, Report};
use crate::commit::multi_store;
use crate::commit::multi_store::JointTxn;
use crate::compact::{self, Compacted};
use crate::env::comparators::Registry;
use crate::env::mapping::{DataFile, MappedPages, WINDOW_PAGES};
use crate::env::options::Options;
use crate::env::readers::IdleReaders;
use crate::env::region::Region;
use crate::error::{Error, Result};
use crate::format::free_list::FreePages;
use crate::format::meta::StoreIdentity;
use crate::format::page::PAGE_BYTES;
use crate::format::roots::Roots;
use crate::guard::Guard;
use crate::ids::CommitNo;
use crate::log::archive;
use crate::log::checkpoint;
use crate::log::checkpoint::CheckpointLock;
use crate::open;
use crate::space::allocator::FreeList;
use crate::stat::Stat;
use crate::stat::free_pages;
use crate::sync::{Arc, AtomicU64, Mutex, Ordering, Weak};
use crate::txn::WriteTxn;
use crate::txn::bulk_load::BulkLoad;
use crate::txn::pages::Workshop;
use crate::txn::snapshot::Snapshot;
use crate::{backup, stat};

/// An open environment. Clones are handles to the same one; it is closed when the last handle, snapshot and
/// transaction is gone.
///
/// Any number of processes may have one environment open. Opening it twice in a process gives the same environment (the
/// options of the first opening stay in force), unless its data file was deleted or replaced meanwhile: then what was
/// open before can be read, and a commit to it fails with [`Error::Poisoned`](crate::Error::Poisoned). In a child after
/// `fork` every operation fails with [`Error::Forked`](crate::Error::Forked): the child opens it anew. (A cursor may go
/// on to the end of the page it stands on. That page, and values that were read before, stay what they are only as long
/// as the parent keeps its snapshot.)
#[derive(Clone)]
pub struct Env {
    owner: Arc<Owner>,
    /// Which store of it.
    store: usize,
}

/// All handles to an environment together. Snapshots outlive it, everything else belongs to it.
pub(crate) struct Owner {
    /// The stores, by number: at least one, until it is closed.
    stores: Vec<Arc<Inner>>,
    /// Whether the environment is closed with it.
    closes: bool,
}

/// What an open store consists of, with what it shares with the others of its environment.
pub(crate) struct Inner {
    pub(crate) region: Arc<Region>,
    /// Those of all stores of the environment, by number.
    pub(crate) regions: Arc<[Arc<Region>]>,
    /// All stores of the environment, by number.
    pub(crate) stores: Arc<OnceLock<Vec<Weak<Inner>>>>,
    pub(crate) membership: Arc<Membership>,
    pub(crate) data: DataFile,
    /// `None` in memory, where nothing can be made durable.
    pub(crate) wal: Option<Arc<Wal>>,
    pub(crate) identity: StoreIdentity,
    pub(crate) options: Options,
    pub(crate) idle_readers: IdleReaders,
    /// How trees are compared whose order the store does not know.
    pub(crate) comparators: Registry,
    /// Here while there is no write transaction in this process.
    pub(crate) workshop: Mutex<Option<Box<Workshop>>>,
    pub(crate) background: Background,
    /// How many pages the store may have, by [`Env::set_bytes_max`].
    pub(crate) pages_max: AtomicU64,
}

impl Env {
    /// Opens the environment in the folder `path`, recovering it if its last user died.
    ///
    /// The data file of a store may be a symbolic link to a block device, made before the environment is. Of a device whose first page is
    /// zero a store is made, as long as the device.
    ///
    /// Fails with `NotFound` if there is none and it is not to be created, with
    /// [`Error::Corrupt`](crate::Error::Corrupt) or [`Error::Damaged`](crate::Error::Damaged) if it is damaged beyond what
    /// the log can mend, and with [`Error::UnknownVersion`](crate::Error::UnknownVersion) if another version of this
    /// library wrote it.
    ///
    /// As long as the environment is open, its files are its own: all processes read the data file through a shared
    /// map, in which a page that somebody else writes to is damaged, and a page that somebody cuts off ends the process
    /// that looks at it (SIGBUS). The file's length is looked at where that costs nothing: when the environment is
    /// opened, before the file grows, is checked, copied or compacted, and before a checkpoint says that everything is
    /// in it. What is missing is told as [`Error::Damaged`](crate::Error::Damaged) then.
    pub fn open(path: impl AsRef<Path>, options: &Options) -> Result<Self> {
        open::open(path.as_ref(), options)
    }

    /// An environment in memory: the same code on an anonymous file, gone with its last handle.
    pub fn in_memory(options: &Options) -> Result<Self> {
        open::in_memory(options)
    }

    /// An environment in memory that begins with the contents of a backup ([`Env::backup`], [`Env::backup_stores`]), which is copied,
    /// checked in full, and stays as it is.
    pub fn in_memory_from(backup: impl AsRef<Path>, options: &Options) -> Result<Self> {
        open::in_memory_from(backup.as_ref(), options)
    }

    /// An environment on any storage, such as the simulated disk of crash tests. Opening the same storage again gives
    /// the same environment; other processes can open it only if the storage has a path.
    ///
    /// The storage answers for its files: they are what it says that they are, and as long as the environment is open
    /// nobody else changes them.
    ///
    /// Fails with [`Error::HasSnapshots`](crate::Error::HasSnapshots) as long as there are snapshots of the environment
    /// that was open there before, on a storage without a path or without [`Options::shared`].
    pub fn on_storage(storage: Arc<dyn Storage>, options: &Options) -> Result<Self> {
        open::on_storage(storage, options)
    }

    /// How many stores the environment has.
    pub fn stores(&self) -> usize {
        self.owner.stores.len()
    }

    /// A handle to another store of the environment, by its number from 0 on; `None` if there are fewer. ([`Env::open`] gives one to the first.)
    ///
    /// Each store is a data file with trees, commits and a writer of its own, so that several transactions can be under way at a time.
    /// What is done with a handle is done with its store. The stores share the log, and so each sync of it: commits become durable in the order in which
    /// they were made, whatever their stores, and a power cut leaves none without those before it. See [`Env::read_stores`] and
    /// [`Env::write_stores`] for what they do together.
    ///
    /// ```
    /// # fn main() -> sapwood_store::Result<()> {
    /// use sapwood_store::{Env, Options, TreeKind};
    ///
    /// let folder = tempfile::tempdir()?;
    /// let env = Env::open(folder.path(), &Options::new().stores(2))?;
    /// let (persons, groups) = (env.store(0).unwrap(), env.store(1).unwrap());
    /// let mut one = persons.write()?;
    /// let mut other = groups.write()?; // No need to wait for the one.
    /// other.create_tree("groups", TreeKind::COMPACT)?;
    /// one.create_tree("persons", TreeKind::COMPACT)?;
    /// let (other, one) = (other.commit()?, one.commit()?);
    /// one.wait_durable()?;
    /// other.wait_durable()?; // Synced already: its record stands before that of the one.
    /// # Ok(())
    /// # }
    /// ```
    pub fn store(&self, number: usize) -> Option<Self> {
        (number < self.stores()).then(|| Self {
            owner: self.owner.clone(),
            store: number,
        })
    }

    /// A snapshot of each store, by number, all of the same moment: of a transaction over several stores they show everything or
    /// nothing, and with a commit all that was visible before it.
    pub fn read_stores(&self) -> Result<Vec<Snapshot>> {
        multi_store::read(&self.owner.stores, Snapshot::begin, Snapshot::commit)
    }

    /// Begins a transaction over several stores, named by their numbers, which waits for the write transactions in each of them.
    ///
    /// Fails with [`Error::NoSuchStore`] if there are not so many.
    ///
    /// ```
    /// # fn main() -> sapwood_store::Result<()> {
    /// # use sapwood_store::{Env, Options, TreeKind};
    /// let env = Env::in_memory(&Options::new().stores(2))?;
    /// let mut txn = env.write_stores(&[0, 1])?;
    /// for number in [0, 1] {
    ///     let store = txn.store(number)?;
    ///     let tree = store.create_tree("accounts", TreeKind::COMPACT)?;
    ///     store.put(tree, b"balance", b"100")?;
    /// }
    /// txn.commit()?.wait_durable()?;
    ///
    /// let snapshots = env.read_stores()?;
    /// assert!(snapshots[0].tree("accounts")?.is_some() && snapshots[1].tree("accounts")?.is_some());
    /// # Ok(())
    /// # }
    /// ```
    pub fn write_stores(&self, numbers: &[usize]) -> Result<JointTxn> {
        JointTxn::begin(self, numbers)
    }

    /// The newest visible state, unchanging until the snapshot is dropped. Never waits for anybody.
    ///
    /// Fails with [`Error::ReadersFull`](crate::Error::ReadersFull) if all slots of the reader table are taken.
    #[inline]
    pub fn read(&self) -> Result<Snapshot> {
        Snapshot::begin(self.inner())
    }

    /// Begins a write transaction, waiting until no other one is open in any process. It starts from the newest
    /// applied commit, which need not be durable yet. Dropped without [`WriteTxn::commit`] it leaves no trace.
    ///
    /// A thread that has one open already waits for itself for ever.
    pub fn write(&self) -> Result<WriteTxn> {
        WriteTxn::begin(self)
    }

    /// Like [`Env::write`], but gives `None` instead of waiting for another write transaction.
    pub fn try_write(&self) -> Result<Option<WriteTxn>> {
        WriteTxn::try_begin(self)
    }

    /// Begins a bulk load: trees built from sorted input, without copy on write and without the log. It is the one
    /// write transaction until it is committed or dropped.
    pub fn bulk(&self) -> Result<BulkLoad> {
        Ok(BulkLoad::new(self.write()?))
    }

    /// Makes every commit so far durable and visible, whatever its [`Durability`], with one sync of the log. Gives the newest of
    /// them.
    pub fn sync(&self) -> Result<CommitNo> {
        self.inner().check_may_write()?;
        self.inner().sync()
    }

    /// Makes the data file hold the newest durable commit by itself and lets the log before it be used again.
    /// Commits go on meanwhile. Gives the commit that the file now holds.
    pub fn checkpoint(&self) -> Result<CommitNo> {
        self.inner().check_may_write()?;
        checkpoint::checkpoint(self.inner())
    }

    /// Archives everything up to now, if the environment has an archive ([`Options::archive`]). Checkpoints do so too.
    pub fn archive(&self) -> Result<()> {
        self.sync()?;
        archive::archive(self.inner())
    }

    /// Moves what lies at the end of the store to free pages ahead of it, in bounded transactions, and gives the space behind back to
    /// the file system, while readers and writers go on. `progress` is told after each pass over the store.
    ///
    /// What a snapshot pins stays where it is, so that a long reader keeps the store from getting smaller; so do trees whose comparators are not
    /// registered. Each pass walks all branches of all trees, and the leaves of those with values of many pages or with duplicates.
    ///
    /// ```
    /// # fn main() -> sapwood_store::Result<()> {
    /// # use sapwood_store::{Env, Options, TreeKind};
    /// # let env = Env::in_memory(&Options::new())?;
    /// let mut txn = env.write()?;
    /// let tree = txn.create_tree("t", TreeKind::COMPACT)?;
    /// for n in 0..50_000_u32 {
    ///     txn.put(tree, &n.to_be_bytes(), &[7; 100])?;
    /// }
    /// txn.commit()?.wait_durable()?;
    /// let mut txn = env.write()?;
    /// let tree = txn.tree("t")?.unwrap();
    /// for n in (0..50_000_u32).filter(|n| n % 1000 >= 50) {
    ///     txn.delete(tree, &n.to_be_bytes())?;
    /// }
    /// txn.commit()?.wait_durable()?;
    /// let compacted = env.compact(|_| ())?;
    /// assert!(compacted.now < compacted.before / 4);
    /// # Ok(())
    /// # }
    /// ```
    pub fn compact(&self, mut progress: impl FnMut(Compacted)) -> Result<Compacted> {
        self.inner().check_usable()?;
        compact::compact(self, &mut progress, &|_| true)
    }

    /// Reads every page of the newest durable state: checksums, order, reachability, the free list, what is
    /// neither used nor free. `Err` is a failure to check; damage is told by the report.
    pub fn check(&self) -> Result<Report> {
        check::check(self.inner())
    }

    /// Reads the roots of all trees of the newest durable state and some of their pages, about `pages_max` in all and
    /// spread evenly, and looks at each as [`Env::check`] does. Of the report, `records` and `pages_free` are 0, and
    /// `pages_used` is how many pages were read.
    ///
    /// So damage to what everything hangs on is found before anybody needs it, in a time that does not grow with the
    /// store.
    pub fn check_sample(&self, pages_max: u64) -> Result<Report> {
        self.inner().check_usable()?;
        check::check_sample(self.inner(), pages_max)
    }

    /// Bounds the size of the store: a transaction that would need pages behind the first `bytes` fails with
    /// [`Error::StoreFull`](crate::Error::StoreFull). A sixteenth, at most 64 pages, is kept for deletions and for what
    /// a commit itself needs. Holds for this process, until it is set anew; what is there already stays.
    ///
    /// Within an eighth of the bound each write transaction begins with a checkpoint, so that what earlier ones have
    /// freed can be used again.
    pub fn set_bytes_max(&self, bytes: u64) {
        let pages = bytes / PAGE_BYTES as u64;
        self.inner().pages_max.store(pages, Ordering::Relaxed);
    }

    /// Ends the snapshots of processes that died with them, which otherwise happens when their pages are wanted; how many
    /// there were.
    pub fn clear_dead_readers(&self) -> Result<usize> {
        self.inner().check_usable()?;
        Ok(readers::clear_dead(self.inner()))
    }

    /// Ends the snapshots that are parked ([`Snapshot::park`]), in any process, and more than `age_max` commits old; how many there were.
    pub fn expire_parked(&self, age_max: u64) -> Result<usize> {
        self.inner().check_usable()?;
        Ok(readers::expire_parked(self.inner(), age_max))
    }

    /// The free list of the visible commit.
    pub fn free_pages(&self) -> Result<Vec<FreePages>> {
        self.inner().check_usable()?;
        free_pages(self.inner())
    }

    /// Sizes, heads and readers, as of now.
    pub fn stat(&self) -> Result<Stat> {
        self.inner().check_usable()?;
        stat::stat(self.inner())
    }

    /// Writes the newest durable state to the file `dest`, which must not exist, beside running readers and writers.
    /// Every page keeps its number. [`restore`](crate::backup::restore) makes an environment of it.
    pub fn backup(&self, dest: impl AsRef<Path>) -> Result<CommitNo> {
        backup::backup(self.inner(), &Content::Full, dest.as_ref())
    }

    /// Writes the durable state of all stores at one moment to the folder `dest`, which must not exist or be empty, beside running readers and
    /// writers. [`Restore`](crate::Restore) makes an environment of it. Each file is a backup of its store too. Gives the commit of each store.
    pub fn backup_stores(&self, dest: impl AsRef<Path>) -> Result<Vec<CommitNo>> {
        backup::backup_stores(&self.owner.stores, &Content::Full, dest.as_ref())
    }

    /// As [`Env::backup_stores`], of what has changed since such a backup, full or incremental.
    ///
    /// [`Error::NotTheBase`](crate::Error::NotTheBase) if it is one of something else, from before a restore, or of fewer stores.
    pub fn backup_stores_since(
        &self,
        base: impl AsRef<Path>,
        dest: impl AsRef<Path>,
    ) -> Result<Vec<CommitNo>> {
        let content = Content::Since(base.as_ref().to_owned());
        backup::backup_stores(&self.owner.stores, &content, dest.as_ref())
    }

    /// As [`Env::backup_stores`], without free pages and with full pages: as small as the records allow. No increment can follow it.
    pub fn backup_stores_compacted(&self, dest: impl AsRef<Path>) -> Result<Vec<CommitNo>> {
        backup::backup_stores(&self.owner.stores, &Content::Compacted, dest.as_ref())
    }

    /// As [`Env::backup`], without free pages and with full pages: as small as the records allow. No increment can follow it.
    pub fn backup_compacted(&self, dest: impl AsRef<Path>) -> Result<CommitNo> {
        backup::backup(self.inner(), &Content::Compacted, dest.as_ref())
    }

    /// Writes what has changed since a backup of this environment, full or an increment itself, to the file `dest`, which must not exist. The backup may be
    /// one of all stores ([`Env::backup_stores`]).
    /// [`Restore`](crate::Restore) puts them together. The work is in proportion to what has changed.
    ///
    /// [`Error::NotTheBase`](crate::Error::NotTheBase) if it is a backup of something else, or from before a restore.
    pub fn backup_since(&self, base: impl AsRef<Path>, dest: impl AsRef<Path>) -> Result<CommitNo> {
        let content = Content::Since(base.as_ref().to_owned());
        backup::backup(self.inner(), &content, dest.as_ref())
    }

    /// The first of these stores.
    pub(crate) fn new(stores: Vec<Inner>) -> Self {
        let stores: Vec<Arc<Inner>> = stores.into_iter().map(Arc::new).collect();
        if let Some(first) = stores.first() {
            first
                .stores
                .get_or_init(|| stores.iter().map(Arc::downgrade).collect());
        }
        Self::from_owner(Arc::new(Owner {
            stores,
            closes: true,
        }))
    }

    /// A store for its own background thread, which ends before the environment is closed.
    pub(crate) fn in_background(inner: &Arc<Inner>) -> Self {
        Self::from_owner(Arc::new(Owner {
            stores: vec![inner.clone()],
            closes: false,
        }))
    }

    pub(crate) fn from_owner(owner: Arc<Owner>) -> Self {
        Self { owner, store: 0 }
    }

    pub(crate) fn owner(&self) -> &Arc<Owner> {
        &self.owner
    }

    #[inline]
    pub(crate) fn inner(&self) -> &Arc<Inner> {
        &self.owner.stores[self.store]
    }
}

impl fmt::Debug for Env {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Env")
            .field("visible", &self.inner().region.visible())
            .finish_non_exhaustive()
    }
}

impl Owner {
    pub(crate) fn check_files(&self) -> Result<()> {
        self.stores.iter().try_for_each(|store| store.check_file())
    }

    pub(crate) fn is_forked(&self) -> bool {
        self.stores.iter().any(|store| store.membership.is_forked())
    }

    /// Whether this is the data file of its first store.
    pub(crate) fn is_in(&self, file: &dyn File) -> Result<bool> {
        let Some(first) = self.stores.first() else {
            return Ok(false);
        };
        Ok(first.data.file.identity()? == file.identity()?)
    }

    /// Ends all writing to files that were deleted while they were open, before others get their names. Snapshots stay.
    pub(crate) fn abandon(&self) {
        let Some(first) = self.stores.first() else {
            return;
        };
        if let Some(wal) = &first.wal {
            // Later this could go to a new file of the same name. If it fails, only deleted data is lost.
            let _: sapwood_wal::Result<()> = wal.write_through();
        }
        first.poison();
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        if self.is_forked() || !self.closes {
            return;
        }
        for store in &self.stores {
            store.background.stop();
        }
        if let Some(store) = self.stores.first()
            && let Some(wal) = &store.wal
            && !store.options.read_only
        {
            // Commits that nobody has waited for are not lost because this is closed. Who closes it cannot be told of a failure.
            let _: sapwood_wal::Result<()> = wal.write_through();
        }
        for store in &self.stores {
            if store.options.idle_checkpoint.is_some() && !store.options.read_only {
                // A courtesy to whoever opens the environment next; what it did not achieve, recovery does.
                let checkpointed = checkpoint::checkpoint(store);
                let _: Result<()> = checkpointed.and_then(|_| store.trim_file_if_nobody_writes());
            }
            store.idle_readers.close();
        }
        // Snapshots may outlive this, and the environment is open as long as they live.
        if self
            .stores
            .iter()
            .all(|store| Arc::strong_count(store) == 1)
        {
            // Whatever it has come to, the environment can be opened again.
            let _: Result<()> = open::leave(std::mem::take(&mut self.stores));
        }
    }
}

/// Pages at the end of the file that are kept for deletions when it cannot grow: what they need at most to free more. Half of them are also
/// for what the commit of another transaction needs, which is not much, but might be all there is if there were many of them.
pub(crate) const RESERVE_PAGES: u64 = if cfg!(test) { 16 } else { 64 };

/// The file grows by one part in 32, but at most by this many pages at a time.
const GROWTH_PAGES_MAX: u64 = 4 * 1024;

impl Inner {
    /// Fails in a forked child.
    #[inline]
    pub(crate) fn check_usable(&self) -> Result<()> {
        if self.membership.is_forked() {
            return Err(Error::Forked);
        }
        Ok(())
    }

    /// Fails in a forked child, and where only reading is allowed.
    pub(crate) fn check_may_write(&self) -> Result<()> {
        self.check_usable()?;
        if self.options.read_only {
            return Err(Error::ReadOnly);
        }
        Ok(())
    }

    /// Fails after a failure that leaves it open what is on the disk.
    pub(crate) fn check_sound(&self) -> Result<()> {
        let log = self.wal.as_ref().is_some_and(|wal| wal.is_poisoned());
        if log || self.first_region().poisoned.load(Ordering::Acquire) != 0 {
            return Err(Error::Poisoned);
        }
        Ok(())
    }

    /// Says that a sync of the data file failed: no checkpoint and no commit from now on.
    pub(crate) fn poison(&self) {
        self.first_region().poisoned.store(1, Ordering::SeqCst);
    }

    /// Whether the process with this entry lives.
    pub(crate) fn is_alive(&self, process: u16) -> bool {
        self.membership
            .is_alive(process, &self.first_region().processes[..])
    }

    /// The region with what the whole environment has once.
    #[inline]
    pub(crate) fn first_region(&self) -> &Region {
        &self.regions[0]
    }

    /// All stores of the environment, as long as it is open.
    pub(crate) fn all_stores(&self) -> impl Iterator<Item = Arc<Self>> {
        let stores = self.stores.get().into_iter().flatten();
        stores.filter_map(Weak::upgrade)
    }

    /// The others.
    pub(crate) fn others(&self) -> impl Iterator<Item = Arc<Self>> {
        self.all_stores()
            .filter(|other| !Arc::ptr_eq(&other.region, &self.region))
    }

    /// Makes everything up to a commit durable and visible, and shows whatever else has become durable with it.
    pub(crate) fn make_visible(&self, commit: CommitNo, lsn: sapwood_wal::Lsn) -> Result<()> {
        if let Some(wal) = &self.wal
            && self.options.guards.has(Guard::SyncLog)
        {
            wal.sync_to(lsn)?;
            self.region.publish(commit);
            self.region.publish_ready(|| wal.durable());
        } else {
            self.region.publish(commit);
        }
        Ok(())
    }

    /// Makes everything that has been applied durable and visible.
    pub(crate) fn sync(&self) -> Result<CommitNo> {
        loop {
            let applied = self.region.applied();
            // A head that is gone has been followed by many others.
            if let Some(head) = self.region.head(applied) {
                self.make_visible(applied, head?.log.lsn)?;
                return Ok(applied);
            }
        }
    }

    /// The free list as of a commit.
    pub(crate) fn free_list<'a>(
        &'a self,
        pages: &'a MappedPages,
        roots: &'a Roots,
    ) -> FreeList<'a> {
        FreeList {
            inner: self,
            pages,
            roots,
        }
    }

    /// Sees to it that the file has room for `end` pages, and for the reserve behind them; where it cannot grow, for `kept` pages of that.
    pub(crate) fn make_room(&self, end: u64, kept: u64) -> Result<()> {
        self.check_size(end, kept)?;
        let room = self.region.growth.pages.load(Ordering::Acquire);
        if end + RESERVE_PAGES <= room {
            if end + growth_step(room) / 2 > room {
                self.background.ask_for_growth();
            }
            return Ok(());
        }
        match self.grow_file(end + RESERVE_PAGES) {
            Err(_) if kept < RESERVE_PAGES && end + kept <= room => Ok(()),
            result => result,
        }
    }

    /// Whether the store has come close to [`Env::set_bytes_max`].
    pub(crate) fn is_nearly_full(&self, pages: u64) -> bool {
        let max = self.pages_max.load(Ordering::Relaxed);
        pages >= max - max / 8
    }

    #[inline]
    fn check_size(&self, end: u64, kept: u64) -> Result<()> {
        let max = self.pages_max.load(Ordering::Relaxed);
        let reserve = (max / 16).min(RESERVE_PAGES) * kept / RESERVE_PAGES;
        if end > max - reserve {
            return Err(Error::StoreFull(max));
        }
        Ok(())
    }

    /// Grows the file ahead of need; what fails now is tried again when it is needed.
    pub(crate) fn grow_ahead(&self) {
        let room = self.region.growth.pages.load(Ordering::Acquire);
        let _: Result<()> = self.grow_file(room + 1);
    }

    /// As [`Inner::grow_ahead`], for the log.
    pub(crate) fn make_log_segment_if_due(&self) {
        if let Some(wal) = self.wal.as_ref().filter(|wal| wal.is_segment_due()) {
            let _: sapwood_wal::Result<()> = wal.make_segment();
        }
    }

    fn grow_file(&self, end: u64) -> Result<()> {
        let region = &self.region;
        region
            .grower
            .lock(self.membership.index(), |process| self.is_alive(process));
        let result = self.grow_file_locked(end);
        region.grower.unlock();
        result
    }

    /// Fails if somebody else has cut the data file. A thread that reads a page which is gone gets a SIGBUS.
    pub(crate) fn check_file(&self) -> Result<()> {
        let region = &self.region;
        region
            .grower
            .lock(self.membership.index(), |process| self.is_alive(process));
        let result = self.check_file_locked();
        region.grower.unlock();
        result
    }

    fn check_file_locked(&self) -> Result<()> {
        let room = self.region.growth.pages.load(Ordering::Acquire);
        // A disk that does not answer says nothing of the file.
        let size = self.data.file.size();
        let pages = size.map_or(room, |size| size / PAGE_BYTES as u64);
        if pages < room {
            return Err(Error::Damaged(format!(
                "somebody else has cut the data file: it has {pages} of {room} pages"
            )));
        }
        Ok(())
    }

    fn grow_file_locked(&self, end: u64) -> Result<()> {
        let room = self.region.growth.pages.load(Ordering::Acquire);
        if end <= room {
            return Ok(());
        }
        self.check_file_locked()?;
        if end > self.data.pages_max() {
            return Err(std::io::Error::from(std::io::ErrorKind::StorageFull).into());
        }
        let ample = end.max(room + growth_step(room));
        let grown = self
            .allocate(room, ample)
            .or_else(|_| self.allocate(room, end))?;
        if self.options.guards.has(Guard::SyncGrowth) {
            let synced = self.data.file.sync_room(bytes(room), bytes(grown - room));
            synced.inspect_err(|_| self.poison())?;
        }
        self.region.growth.pages.store(grown, Ordering::Release);
        Ok(())
    }

    /// Makes the file as small as the first `needed` pages allow, and the reserve behind them.
    pub(crate) fn cut_file(&self, needed: u64) -> Result<()> {
        let growth = &self.region.growth.pages;
        let kept = (needed + RESERVE_PAGES).next_multiple_of(WINDOW_PAGES);
        let me = self.membership.index();
        let grower = &self.region.grower;
        grower.lock(me, |process| self.is_alive(process));
        let result = if kept < growth.load(Ordering::Acquire) {
            growth.store(kept, Ordering::Release);
            self.data.file.set_size(bytes(kept))
        } else {
            Ok(())
        };
        grower.unlock();
        Ok(result?)
    }

    /// Has the file trimmed, unless somebody is writing.
    fn trim_file_if_nobody_writes(&self) -> Result<()> {
        let writer = &self.region.writer;
        // A dead owner's place is left to whoever completes what it did.
        if writer.try_lock(self.membership.index(), |_| true).is_none() {
            return Ok(());
        }
        let trim = || CheckpointLock::take(self)?.trim_file(&self.region.applied_head()?);
        let result = trim();
        writer.unlock();
        result
    }

    fn allocate(&self, room: u64, end: u64) -> Result<u64> {
        let end = end.next_multiple_of(WINDOW_PAGES);
        self.data.file.allocate(bytes(room), bytes(end - room))?;
        Ok(end)
    }
}

fn bytes(pages: u64) -> u64 {
    pages * PAGE_BYTES as u64
}

fn growth_step(room: u64) -> u64 {
    (room / 32).clamp(WINDOW_PAGES, GROWTH_PAGES_MAX)
}
