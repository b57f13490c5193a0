//! The environment: a folder with one log, one lock region and one or more stores, opened by any number of processes.

pub(crate) mod archive;
pub(crate) mod background;
pub(crate) mod comparators;
pub(crate) mod file_names;
pub(crate) mod mapping;
pub(crate) mod options;
pub(crate) mod readers;
pub(crate) mod region;

use std::any::Any;
use std::fmt;
use std::sync::OnceLock;

use sapwood_wal::Wal;
use sapwood_wal::lock::{Lock, Taken};
use sapwood_wal::process::Membership;
use sapwood_wal::storage::File;

use crate::env::background::Background;
use crate::env::comparators::Registry;
use crate::env::mapping::{DataFile, WINDOW_PAGES};
use crate::env::options::Options;
use crate::env::readers::IdleReaders;
use crate::env::region::Region;
use crate::error::{Error, Result};
use crate::format::meta::StoreIdentity;
use crate::format::page::PAGE_BYTES;
use crate::guard::Guard;
use crate::ids::CommitNo;
use crate::sync::{Arc, AtomicU64, Mutex, Ordering, Weak};

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
    pub(crate) stores: Vec<Arc<Inner>>,
    /// Whether the environment is closed with it.
    pub(crate) closes: bool,
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
    /// What the last write transaction of this process has left for the next; only `txn` knows what that is.
    pub(crate) workshop: Mutex<Option<Box<dyn Any + Send>>>,
    pub(crate) background: Background,
    /// Whether commits that only the data file and the region have survive the death of all processes, as far as
    /// anything does.
    pub(crate) keeps_unlogged: bool,
    /// How many pages the store may have, by [`Env::set_bytes_max`].
    pub(crate) pages_max: AtomicU64,
}

impl Env {
    /// How many stores the environment has.
    pub fn stores(&self) -> usize {
        self.owner.stores.len()
    }

    /// Whether the data file of one of the stores takes more memory than there is, so that reads wait for the disk: see
    /// [`Options::memory_bytes`].
    pub fn exceeds_memory(&self) -> bool {
        self.owner.stores.iter().any(|store| store.exceeds_memory())
    }

    /// A handle to another store of the environment, by its number from 0 on; `None` if there are fewer. ([`Env::open`]
    /// gives one to the first.)
    ///
    /// Each store is a data file with trees, commits and a writer of its own, so that several transactions can be under
    /// way at a time. What is done with a handle is done with its store. The stores share the log, and so each sync of
    /// it: commits become durable in the order in which they were made, whatever their stores, and a power cut leaves
    /// none without those before it. See [`Env::read_stores`] and [`Env::write_stores`] for what they do together.
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

    /// Makes every commit so far durable and visible, whatever its [`Durability`](crate::Durability), with one sync of
    /// the log; after many relaxed commits in a row, with a checkpoint. Gives the newest of them.
    pub fn sync(&self) -> Result<CommitNo> {
        self.inner().check_may_write()?;
        self.inner().region.begin_waiting();
        self.inner().sync()
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
        write!(f, "Env({})", self.inner().region.visible())
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

/// Pages at the end of the file that are kept for deletions when it cannot grow: what they need at most to free more.
/// Half of them are also for what the commit of another transaction needs, which is not much, but might be all there is
/// if there were many of them.
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
        if log || self.first_region().is_poisoned() {
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

    /// Makes everything up to a commit that the log has durable and visible, and shows whatever else has become durable
    /// with it.
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

    /// Sees to it that the file has room for `end` pages, and for the reserve behind them; where it cannot grow, for
    /// `kept` pages of that.
    pub(crate) fn make_room(&self, end: u64, kept: u64) -> Result<()> {
        self.check_size(end, kept)?;
        let room = self.region.room.load(Ordering::Acquire);
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
        let room = self.region.room.load(Ordering::Acquire);
        let _: Result<()> = self.grow_file(room + 1);
    }

    /// Waits for a lock of the region, and says whether the one that had it before has died with it.
    pub(crate) fn hold<'l>(&self, lock: &'l Lock) -> (Held<'l>, Taken) {
        let taken = lock.lock(self.membership.index(), |process| self.is_alive(process));
        (Held(lock), taken)
    }

    /// The same without waiting: `None` while somebody else has it.
    pub(crate) fn try_hold<'l>(&self, lock: &'l Lock) -> Option<(Held<'l>, Taken)> {
        let taken = lock.try_lock(self.membership.index(), |process| self.is_alive(process));
        taken.map(|taken| (Held(lock), taken))
    }

    /// As [`Inner::grow_ahead`], for the log.
    pub(crate) fn make_log_segment_if_due(&self) {
        if let Some(wal) = self.wal.as_ref().filter(|wal| wal.is_segment_due()) {
            let _: sapwood_wal::Result<()> = wal.make_segment();
        }
    }

    /// Whether the data file takes more memory than there is.
    pub(crate) fn exceeds_memory(&self) -> bool {
        self.data
            .exceed_memory(self.region.room.load(Ordering::Acquire))
    }

    /// Fails if somebody else has cut the data file. A thread that reads a page which is gone gets a SIGBUS.
    pub(crate) fn check_file(&self) -> Result<()> {
        let _held = self.hold(&self.region.grower);
        self.check_file_locked()
    }

    fn check_file_locked(&self) -> Result<()> {
        let room = self.region.room.load(Ordering::Acquire);
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

    fn grow_file(&self, end: u64) -> Result<()> {
        let _held = self.hold(&self.region.grower);
        let room = self.region.room.load(Ordering::Acquire);
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
        self.region.room.store(grown, Ordering::Release);
        Ok(())
    }

    /// Makes the file as small as the first `needed` pages allow, and the reserve behind them.
    pub(crate) fn cut_file(&self, needed: u64) -> Result<()> {
        let room = &self.region.room;
        let kept = (needed + RESERVE_PAGES).next_multiple_of(WINDOW_PAGES);
        let _held = self.hold(&self.region.grower);
        if kept < room.load(Ordering::Acquire) {
            room.store(kept, Ordering::Release);
            self.data.file.set_size(bytes(kept))?;
        }
        Ok(())
    }

    fn allocate(&self, room: u64, end: u64) -> Result<u64> {
        let end = end.next_multiple_of(WINDOW_PAGES);
        self.data.file.allocate(bytes(room), bytes(end - room))?;
        Ok(end)
    }
}

/// A lock, held until this is dropped.
pub(crate) struct Held<'l>(&'l Lock);

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.0.unlock();
    }
}

fn bytes(pages: u64) -> u64 {
    pages * PAGE_BYTES as u64
}

fn growth_step(room: u64) -> u64 {
    (room / 32).clamp(WINDOW_PAGES, GROWTH_PAGES_MAX)
}
