//! Opening an environment: who is first recovers, everybody else joins.
//!
//! ```text
//!  lock        the lock region; locks on its bytes tell who lives, see `process`
//!  data-0      the first store; others are data-1 and so on, there or in folders of their own
//!  log*        the log
//! ```
//!
//! (or whatever [`FileNames`](crate::FileNames) calls them).
//!
//! Everything here happens while the lock file's opening byte is held, so one process at a time looks around. If no
//! process has the environment open, the lock region is of no value but for what only it has: the records in its log
//! buffer are added to the log if they are the ones that follow there, and the newest commit is checkpointed if it
//! passed by the log. Then it is written anew from the meta pages and the log. Who cannot write to the files looks at
//! them as they are, see [`still`].

mod still;

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use sapwood_wal::process::{LockFile, Membership};
use sapwood_wal::storage::{
    File, Folder, Identity, Memory, OpenMode, Storage, creating_with, if_there,
};
use sapwood_wal::{LogId, Position, Shared, Wal};

use crate::background;
use crate::backup::restore::Restore;
use crate::env::background::Background;
use crate::env::comparators::Registry;
use crate::env::file_names::DATA_NAME;
use crate::env::mapping::{DataFile, WINDOW_PAGES};
use crate::env::options::Options;
use crate::env::readers::{IdleReaders, give_back_all};
use crate::env::region::Region;
use crate::env::{Env, Inner, Owner};
use crate::error::{Error, Result};
use crate::format::meta::{Meta, NO_LOG, StoreIdentity, newest, read_metas, stores_of, write_meta};
use crate::format::page::{PAGE_BYTES, Page};
use crate::format::roots::{Head, Roots};
use crate::guard::Guard;
use crate::ids::CommitNo;
use crate::limits::STORES_MAX;
use crate::log::recovery::Recovering;
use crate::log::{archive, checkpoint, recovery};
use crate::sync::{Arc, AtomicU64, Mutex, Ordering, Weak, lock};

/// The commit that a new store consists of: nothing.
const FIRST_COMMIT: CommitNo = CommitNo(1);

/// What this process has open, by folder and data file, so that opening it again gives the same environment. A place is
/// locked while one is opened there.
static OPEN: Mutex<BTreeMap<Location, Arc<Mutex<Known>>>> = Mutex::new(BTreeMap::new());

/// The folder, and the name of the data file in it.
type Location = (Identity, String);

/// The environment that was opened last at a place.
#[derive(Default)]
struct Known {
    owner: Weak<Owner>,
    /// Snapshots have them open when nobody has the environment any more.
    stores: Vec<Weak<Inner>>,
    /// Nobody who opens it anew sees its readers.
    is_private: bool,
}

impl Known {
    fn new(env: &Env, is_private: bool) -> Self {
        let stores = env.inner().stores.get();
        Self {
            owner: Arc::downgrade(env.owner()),
            stores: stores.cloned().unwrap_or_default(),
            is_private,
        }
    }

    /// The environment, if it is still open and belongs to this process.
    fn owner(&self) -> Option<Arc<Owner>> {
        let owner = self.owner.upgrade();
        owner.filter(|owner| !owner.is_forked())
    }

    /// Whether somebody has it open, be it with a snapshot only. No lock is held meanwhile. A process that closes it
    /// asks whether it is the last.
    fn is_open(&self) -> bool {
        self.stores.iter().any(|store| store.strong_count() > 0)
    }
}

impl Env {
    /// Opens the environment in the folder `path`, recovering it if its last user died.
    ///
    /// The data file of a store may be a symbolic link to a block device, made before the environment is. Of a device
    /// whose first page is zero a store is made, as long as the device.
    ///
    /// Fails with `NotFound` if there is none and it is not to be created, with
    /// [`Error::Corrupt`](crate::Error::Corrupt) or [`Error::Damaged`](crate::Error::Damaged) if it is damaged beyond
    /// what the log can mend, and with [`Error::UnknownVersion`](crate::Error::UnknownVersion) if another version of
    /// this library wrote it.
    ///
    /// As long as the environment is open, its files are its own: all processes read the data file through a shared
    /// map, in which a page that somebody else writes to is damaged, and a page that somebody cuts off ends the process
    /// that looks at it (SIGBUS). The file's length is looked at where that costs nothing: when the environment is
    /// opened, before the file grows, is checked, copied or compacted, and before a checkpoint says that everything is
    /// in it. What is missing is told as [`Error::Damaged`](crate::Error::Damaged) then.
    pub fn open(path: impl AsRef<Path>, options: &Options) -> Result<Self> {
        let folder = match options.create && !options.read_only {
            true => Folder::create(path.as_ref())?,
            false => Folder::open(path.as_ref())?,
        };
        Self::on_storage(Arc::new(folder.creating_with(options.permissions)), options)
    }

    /// An environment in memory: the same code on an anonymous file, gone with its last handle.
    pub fn in_memory(options: &Options) -> Result<Self> {
        let stores = (0..options.stores).map(|store| {
            let file = Memory::new().open(DATA_NAME, OpenMode::CreateNew)?;
            file.allocate(0, WINDOW_PAGES * PAGE_BYTES as u64)?;
            let identity = StoreIdentity {
                store,
                log: NO_LOG,
                ..StoreIdentity::new()
            };
            Ok((DataFile::new(file)?, identity, first_head(Position::START)))
        });
        begin_in_memory(stores.collect::<Result<_>>()?, options)
    }

    /// An environment in memory that begins with the contents of a backup ([`Env::backup`], [`Env::backup_stores`]),
    /// which is copied, checked in full, and stays as it is.
    pub fn in_memory_from(backup: impl AsRef<Path>, options: &Options) -> Result<Self> {
        let restore = Restore::of(backup.as_ref());
        let stores = (0..restore.stores()?).map(|store| {
            let file = Memory::new().open(DATA_NAME, OpenMode::CreateNew)?;
            let (data, meta) = restore.data_file(store, file, None)?;
            Ok((data, meta.identity, meta.head))
        });
        begin_in_memory(stores.collect::<Result<_>>()?, options)
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
        if options.read_only && (options.create || options.stores > 1) {
            return Self::on_storage(storage, &options.clone().create(false).stores(1));
        }
        let place = (storage.identity()?, options.names.data.clone());
        let known = {
            let mut open = lock(&OPEN);
            // Nobody else is about to open what only the map refers to.
            open.retain(|_, known| Arc::strong_count(known) > 1 || lock(known).is_open());
            open.entry(place).or_default().clone()
        };
        let mut known = lock(&known);
        if let Some(owner) = known.owner() {
            if is_there(&owner, &*storage, options)? {
                return Ok(Self::from_owner(owner));
            }
            // Its snapshots read from a file that is no longer there.
            owner.abandon();
            *known = Known::default();
        }
        let path = storage.path().filter(|_| options.shared);
        let is_private = path.is_none();
        if (is_private || known.is_private) && known.is_open() {
            return Err(Error::HasSnapshots);
        }
        let env = match path.map(Path::to_owned) {
            Some(path) => open_folder(&path, storage, options)?,
            None => open_storage(storage, options)?,
        };
        *known = Known::new(&env, is_private);
        Ok(env)
    }
}

/// Whether the data file of an open environment still has its name.
fn is_there(owner: &Owner, storage: &dyn Storage, options: &Options) -> Result<bool> {
    let file = if_there(storage.open(&options.names.data, OpenMode::Read))?;
    file.map_or(Ok(false), |file| owner.is_in(&*file))
}

fn open_folder(path: &Path, storage: Arc<dyn Storage>, options: &Options) -> Result<Env> {
    let mut how = creating_with(options.permissions);
    how.read(true).write(true).create(true).truncate(false);
    if !options.create {
        // No trace in a folder that is not an environment.
        storage.open(&options.names.data, OpenMode::Read)?;
    }
    let path = path.join(&options.names.lock);
    let places = StoreFiles::new(storage, options)?;
    let file = match how.open(&path) {
        Err(error) if options.read_only && is_unwritable(&error) => {
            return still::open(&places, still::lock(&path, &error)?);
        }
        opened => opened?,
    };
    let locks = LockFile::new(file.try_clone()?);
    locks.lock_opening()?;
    let first = !locks.is_in_use()?;
    if first && options.read_only && still::is_due(&places, &locks)? {
        locks.hold_still()?;
        locks.unlock_opening();
        return still::open(&places, Some(locks));
    }
    if first && locks.is_held_still()? {
        return Err(Error::HeldStill);
    }
    let regions: Regions = if first {
        salvage(&places, &file)?;
        Region::create(&file, places.count()?)?.into()
    } else {
        Region::join(&file)?.into()
    };
    let opened = match first {
        true => start_shared(&places, &regions)?,
        false => join(&places, &regions)?,
    };
    let table = &regions[0].processes;
    let membership = Membership::join(locks, &table[..], |index| {
        let give_back = |region: &Arc<Region>| give_back_all(region, index);
        regions.iter().for_each(give_back);
        !regions.iter().any(|region| region.is_owner(index))
    })?
    .ok_or(Error::ProcessesFull)?;
    let keeps_unlogged = regions[0].outlives_processes();
    let env = opened.into_env(&regions, membership, keeps_unlogged, options)?;
    env.inner().membership.unlock_opening();
    Ok(env)
}

/// Adds to the log what processes that died have left in the lock region's log buffer only, and has the meta pages
/// lead to the newest commit if only the region does. This may be interrupted and done again: the region stays as it is
/// until the files have it.
fn salvage(places: &StoreFiles<'_>, lock_file: &fs::File) -> Result<()> {
    let regions = Region::join(lock_file).unwrap_or_default();
    let Some(left) = regions.first() else {
        return Ok(());
    };
    let shared: &Shared = (**left).as_ref();
    let options = places.options;
    let is_needed = !shared.is_written() || !left.holds_newest();
    if !is_needed || !left.outlives_processes() || !has_data(&*places.storage, options)? {
        return Ok(());
    }
    let (files, stands_alone) = places.data_files(OpenMode::Write)?;
    let heads = files.iter().map(|(_, metas)| Ok(newest(metas)?.head.log));
    let heads = heads.collect::<Result<Vec<_>>>()?;
    let (false, Some(from)) = (stands_alone, heads.into_iter().min_by_key(|log| log.lsn)) else {
        return Ok(());
    };
    let own: Arc<Shared> = Arc::default();
    let wal = Wal::open(&places.storage, &options.names.log, OpenMode::Write, own)?;
    wal.salvage(from, shared, (**left).as_ref())?;
    match (&regions[..], &files[..]) {
        ([left], [(file, metas)]) if left.was_made_in(lock_file)? => {
            salvage_unlogged(left, &**file, metas, &wal)
        }
        _ => Ok(()),
    }
}

/// Checkpoints the newest commit that the dead have left, if the log does not have it. Its pages are in the file, in
/// the system's memory, as long as nobody has written to that since: the meta pages and the end of the log are as they
/// were, and the one that opens an environment without its lock file empties that first.
fn salvage_unlogged(
    left: &Region,
    file: &dyn File,
    metas: &[Option<Meta>; 2],
    wal: &Wal,
) -> Result<()> {
    let head = match left.head(left.applied()) {
        Some(Ok(head)) if !left.holds_newest() && !left.is_poisoned() => head,
        _ => return Ok(()),
    };
    // Or as this has left them, when it was interrupted.
    let is_as_left = (0..).zip(metas).all(|(slot, meta)| {
        let commit = meta.map_or(CommitNo(0), |meta| meta.head.commit);
        commit == left.metas.commit(slot) || commit == head.commit
    });
    let newest = newest(metas)?;
    let mut records = wal.records(newest.head.log)?;
    while records.next()?.is_some() {}
    let has_room = file.size()? / PAGE_BYTES as u64 >= head.roots.pages;
    if !is_as_left || records.position() != head.log || !has_room {
        return Ok(());
    }
    wal.keep(&records)?;
    file.sync_data()?;
    let meta = Meta {
        head,
        log_segments: wal.segments()?,
        ..*newest
    };
    let first = usize::from(metas[0].as_ref() == Some(newest));
    write_metas(file, [first, 1 - first], &meta)
}

/// Writes both meta pages, the second one when the first is on the disk.
fn write_metas(file: &dyn File, slots: [usize; 2], meta: &Meta) -> Result<()> {
    for slot in slots {
        write_meta(file, slot, meta)?;
        file.sync_data()?;
    }
    Ok(())
}

/// Empties the lock file that others have left, for the one that opens the environment without it: what it does to the
/// files the region there knows nothing of. What only the region has goes to the files first.
fn empty_lock_file(path: &Path, places: &StoreFiles<'_>) -> Result<()> {
    let path = path.join(&places.options.names.lock);
    let opened = fs::File::options().read(true).write(true).open(path);
    let Some(file) = if_there(opened)? else {
        return Ok(());
    };
    if file.metadata()?.len() == 0 {
        return Ok(());
    }
    let locks = LockFile::new(file.try_clone()?);
    locks.lock_opening()?;
    if !locks.is_in_use()? {
        salvage(places, &file)?;
        file.set_len(0)?;
    }
    locks.unlock_opening();
    Ok(())
}

/// Whether the system does not let this process write there.
fn is_unwritable(error: &std::io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::ReadOnlyFilesystem | ErrorKind::PermissionDenied
    )
}

/// An environment on a storage that no other process can see.
pub(crate) fn open_storage(storage: Arc<dyn Storage>, options: &Options) -> Result<Env> {
    let places = StoreFiles::new(storage, options)?;
    if options.read_only {
        return still::open(&places, None);
    }
    let path = places.storage.path().map(Path::to_owned);
    if let Some(path) = &path {
        empty_lock_file(path, &places)?;
    }
    let regions: Regions = Region::private(places.count()?)?.into();
    let opened = start(&places, &regions)?;
    let membership = Membership::alone(&regions[0].processes[..]);
    // Nothing says what survives there, nor who else might open it.
    let keeps_unlogged = path.is_none();
    opened.into_env(&regions, membership, keeps_unlogged, options)
}

/// An environment in memory that begins with what is in a backup.
fn begin_in_memory(stores: Vec<(DataFile, StoreIdentity, Head)>, options: &Options) -> Result<Env> {
    let regions: Regions = Region::private(stores.len())?.into();
    let membership = Membership::alone(&regions[0].processes[..]);
    let mut opened = Opened {
        stores: Vec::with_capacity(stores.len()),
        wal: None,
    };
    for ((data, identity, head), region) in stores.into_iter().zip(&*regions) {
        let pages = data.file.size()? / PAGE_BYTES as u64;
        region.room.store(pages, Ordering::SeqCst);
        region.start(&head);
        opened.stores.push(OpenedStore {
            data,
            identity,
            must_checkpoint: false,
        });
    }
    opened.into_env(&regions, membership, false, options)
}

/// One for each store.
type Regions = Arc<[Arc<Region>]>;

struct Opened {
    stores: Vec<OpenedStore>,
    wal: Option<Arc<Wal>>,
}

struct OpenedStore {
    data: DataFile,
    identity: StoreIdentity,
    /// There are commits behind the meta pages whose pages the log does not hold: they are protected by a meta page
    /// only.
    must_checkpoint: bool,
}

impl Opened {
    fn into_env(
        self,
        regions: &Regions,
        membership: Membership,
        keeps_unlogged: bool,
        options: &Options,
    ) -> Result<Env> {
        let membership = Arc::new(membership);
        if let Some(wal) = &self.wal
            && !options.read_only
        {
            let (members, shared) = (membership.clone(), regions[0].clone());
            // Without the background thread, what nobody waits for would stay there for ever.
            let has_background = options.idle_checkpoint.is_some();
            let outlives = regions[0].outlives_processes() && has_background;
            wal.share_buffer(
                regions[0].clone(),
                outlives,
                membership.index(),
                move |process| members.is_alive(process, &shared.processes[..]),
            );
        }
        let stores = Arc::default();
        let must_checkpoint = self.stores.iter().map(|store| store.must_checkpoint);
        let must_checkpoint: Vec<bool> = must_checkpoint.collect();
        let inner = |(region, store): (&Arc<Region>, OpenedStore)| Inner {
            region: region.clone(),
            regions: regions.clone(),
            stores: Arc::clone(&stores),
            membership: membership.clone(),
            data: store.data.within(options.memory_bytes, regions.len()),
            wal: self.wal.clone(),
            identity: store.identity,
            options: options.clone(),
            idle_readers: IdleReaders::new(),
            comparators: Registry::default(),
            workshop: Mutex::new(None),
            background: Background::new(background::run),
            keeps_unlogged,
            pages_max: AtomicU64::new(u64::MAX),
        };
        let env = Env::new(regions.iter().zip(self.stores).map(inner).collect());
        env.owner().check_files()?;
        for (number, must) in must_checkpoint.into_iter().enumerate() {
            if must
                && options.guards.has(Guard::CheckpointRecoveredRoots)
                && let Some(store) = env.store(number)
            {
                checkpoint::checkpoint(store.inner())?;
            }
        }
        if !options.read_only {
            // What a crash kept from being archived, before anybody writes over it.
            archive::archive(env.inner())?;
        }
        Ok(env)
    }
}

/// Where the stores are.
struct StoreFiles<'o> {
    /// The folder of the log and of the first store.
    storage: Arc<dyn Storage>,
    /// Those of the stores that are elsewhere.
    others: BTreeMap<u16, Arc<dyn Storage>>,
    options: &'o Options,
}

impl<'o> StoreFiles<'o> {
    fn new(storage: Arc<dyn Storage>, options: &'o Options) -> Result<Self> {
        let folders = options.store_folders.iter();
        let others = folders
            .filter(|(store, _)| **store > 0)
            .map(|(store, path)| {
                let folder = Folder::open(path)?.creating_with(options.permissions);
                Ok((*store, Arc::new(folder) as Arc<dyn Storage>))
            });
        Ok(Self {
            storage,
            others: others.collect::<Result<_>>()?,
            options,
        })
    }

    fn storage_of(&self, store: u16) -> &Arc<dyn Storage> {
        self.others.get(&store).unwrap_or(&self.storage)
    }

    fn open(&self, store: u16, mode: OpenMode) -> Result<Arc<dyn File>> {
        let name = self.options.names.data_of(store);
        let file = self.storage_of(store).open(&name, mode);
        file.map_err(|error| match (store, error.kind()) {
            (0, _) => error.into(),
            (_, ErrorKind::NotFound) => Error::Damaged(format!(
                "the data file {name} of store {store} is not where it is looked for"
            )),
            _ => error.into(),
        })
    }

    fn metas(&self, file: &dyn File) -> Result<[Option<Meta>; 2]> {
        read_metas(file, self.options.guards)
    }

    /// The data files of all stores that there are, and whether they stand alone.
    fn data_files(&self, mode: OpenMode) -> Result<(Vec<DataAndMetas>, bool)> {
        let file = self.open(0, mode)?;
        let mut metas = self.metas(&*file)?;
        let known = stores_of(&metas);
        // One of them, if giving it a log was interrupted.
        let mut all = metas.iter().flatten();
        let stands_alone = all.any(|meta| meta.identity.log == NO_LOG);
        for meta in metas.iter_mut().flatten() {
            meta.identity.stores = known;
        }
        let mut files = vec![(file, metas)];
        for store in 1..known {
            let file = self.open(store, mode)?;
            let metas = self.metas(&*file)?;
            if newest(&metas)?.identity.store != store {
                return Err(Error::Damaged(format!(
                    "the data file of store {store} is that of another one"
                )));
            }
            files.push((file, metas));
        }
        Ok((files, stands_alone))
    }

    /// How many stores there will be: those that there are, and those that are wanted.
    fn count(&self) -> Result<usize> {
        let known = match if_there(self.storage.open(&self.options.names.data, OpenMode::Read))? {
            Some(file) => stores_of(&self.metas(&*file)?),
            None => 1,
        };
        Ok(usize::from(known.max(self.options.stores)))
    }
}

/// Opens the files as the first one, for reading only if so wanted: once they are in order.
fn start_shared(places: &StoreFiles<'_>, regions: &Regions) -> Result<Opened> {
    let opened = start(places, regions)?;
    if places.options.read_only && !opened.stores.iter().any(|store| store.must_checkpoint) {
        return join(places, regions);
    }
    Ok(opened)
}

/// Opens the files as the first one, and fills the regions.
fn start(places: &StoreFiles<'_>, regions: &Regions) -> Result<Opened> {
    let (storage, options) = (&places.storage, places.options);
    if options.create && !has_data(&**storage, options)? {
        create_log_and_store(places)?;
    }
    let (mut files, stands_alone) = places.data_files(OpenMode::Write)?;
    let known = u16::try_from(files.len()).unwrap_or(STORES_MAX);
    if stands_alone {
        give_log(storage, &mut files, options)?;
    }
    let log = newest(&files[0].1)?.identity.log;
    let mut stores = Vec::with_capacity(regions.len());
    for ((file, metas), region) in files.into_iter().zip(&**regions) {
        stores.push(Recovering::new(file, metas, region)?);
    }
    let shared = regions[0].clone();
    let wal = Wal::open(storage, &options.names.log, OpenMode::Write, shared)?;
    let end = recovery::recover(&mut stores, &wal, options.guards)?;
    for (store, region) in (known..).zip(regions.iter().skip(usize::from(known))) {
        let identity = StoreIdentity {
            store,
            log,
            ..StoreIdentity::new()
        };
        let meta = Meta {
            identity,
            head: first_head(end),
            log_segments: wal.segments()?,
        };
        let file = create_store(places, &meta)?;
        let added = Recovering::new(file.clone(), places.metas(&*file)?, region)?;
        added.fill_region();
        stores.push(added);
    }
    if stores.len() > usize::from(known) {
        let count = stores.len();
        stores[0].know_stores(count)?;
    }
    let stores = stores.into_iter().map(|store| OpenedStore {
        must_checkpoint: store.has_unlogged,
        identity: store.identity,
        data: store.data,
    });
    Ok(Opened {
        stores: stores.collect(),
        wal: Some(Arc::new(wal)),
    })
}

fn has_data(storage: &dyn Storage, options: &Options) -> Result<bool> {
    match if_there(storage.open(&options.names.data, OpenMode::Read))? {
        Some(file) if file.is_device()? => Ok(!is_blank(&*file)?),
        Some(file) => Ok(!options.over_empty || file.size()? > 0),
        None => Ok(false),
    }
}

/// Whether the first page of a device is zero, which it is not in a store.
fn is_blank(device: &dyn File) -> Result<bool> {
    let mut page = Page::zeroed();
    device.read_exact_at(page.bytes_mut(), 0)?;
    Ok(page.bytes().iter().all(|&byte| byte == 0))
}

/// Opens the files of an environment that others have open.
fn join(places: &StoreFiles<'_>, regions: &Regions) -> Result<Opened> {
    let options = places.options;
    if usize::from(options.stores) > regions.len() {
        return Err(Error::StoresFixed(regions.len()));
    }
    let mode = match options.read_only {
        true => OpenMode::Read,
        false => OpenMode::Write,
    };
    let mut stores = Vec::with_capacity(regions.len());
    for (store, _) in (0..).zip(&**regions) {
        let file = places.open(store, mode)?;
        // One of them may be under the pen of a checkpoint, but both say whose they are.
        let identity = newest(&places.metas(&*file)?)?.identity;
        stores.push(OpenedStore {
            data: DataFile::new(file)?,
            identity,
            must_checkpoint: false,
        });
    }
    let shared = regions[0].clone();
    let wal = Wal::open(&places.storage, &options.names.log, mode, shared)?;
    if stores.iter().any(|store| store.identity.log != wal.id()) {
        return Err(Error::Damaged("the log belongs to another store".into()));
    }
    Ok(Opened {
        stores,
        wal: Some(Arc::new(wal)),
    })
}

/// Makes the log and an empty first store. Its data file gets its name last: if that is there, everything is.
fn create_log_and_store(places: &StoreFiles<'_>) -> Result<()> {
    let identity = StoreIdentity::new();
    create_log(&places.storage, identity.log, places.options)?;
    let meta = Meta {
        identity,
        head: first_head(Position::START),
        log_segments: 0,
    };
    create_store(places, &meta).map(drop)
}

/// Makes an empty store. One that is there already was not added to the environment any more.
fn create_store(places: &StoreFiles<'_>, meta: &Meta) -> Result<Arc<dyn File>> {
    let store = meta.identity.store;
    let (storage, options) = (places.storage_of(store), places.options);
    match storage.open(&options.names.data_of(store), OpenMode::Write) {
        Ok(file) if file.is_device()? => return create_on_device(file, meta, options),
        _ => {}
    }
    let new_data = options.names.new_data_of(store);
    if_there(storage.remove(&new_data))?;
    let file = storage.open(&new_data, OpenMode::CreateNew)?;
    file.allocate(0, WINDOW_PAGES * PAGE_BYTES as u64)?;
    for slot in 0..2 {
        write_meta(&*file, slot, meta)?;
    }
    if options.guards.has(Guard::SyncNewStore) {
        file.sync_data()?;
    }
    storage.rename(&new_data, &options.names.data_of(store))?;
    storage.sync_names()?;
    Ok(file)
}

/// Makes an empty store of a device that holds nothing, or what an interrupted attempt has left. The first meta page
/// comes last: without it the device is blank.
fn create_on_device(
    device: Arc<dyn File>,
    meta: &Meta,
    options: &Options,
) -> Result<Arc<dyn File>> {
    let metas = read_metas(&*device, options.guards)?;
    let is_ours = newest(&metas).is_ok_and(|found| found.identity.log == meta.identity.log);
    if !is_blank(&*device)? && !is_ours {
        let name = options.names.data_of(meta.identity.store);
        return Err(Error::Damaged(format!(
            "the device {name} holds something else: a store is made only where the first page is zero"
        )));
    }
    device.allocate(0, WINDOW_PAGES * PAGE_BYTES as u64)?;
    write_metas(&*device, [1, 0], meta)?;
    Ok(device)
}

fn create_log(storage: &Arc<dyn Storage>, id: LogId, options: &Options) -> Result<()> {
    const SEGMENTS_MIN: u64 = 8;
    const SEGMENTS_MAX: u64 = 64;
    const GRANULE: u64 = 4096;
    // They are made when they are needed: a long log of a store that is seldom written to need not take more room than
    // a short one.
    let segments =
        (options.log_bytes / options.log_segment_bytes).clamp(SEGMENTS_MIN, SEGMENTS_MAX);
    Wal::remove(&**storage, &options.names.log)?;
    let segment = (options.log_bytes / segments).next_multiple_of(GRANULE);
    let shape = sapwood_wal::Options {
        segment_bytes: segment,
        segments: segments as u32,
    };
    Wal::create(storage, &options.names.log, id, &shape)?;
    Ok(())
}

/// A data file and its meta pages.
type DataAndMetas = (Arc<dyn File>, [Option<Meta>; 2]);

/// Gives data files that stand alone a log of their own; the first one last, which tells whether this was done.
fn give_log(
    storage: &Arc<dyn Storage>,
    files: &mut [DataAndMetas],
    options: &Options,
) -> Result<()> {
    let log = StoreIdentity::new().log;
    create_log(storage, log, options)?;
    for (file, metas) in files.iter_mut().rev() {
        let mut meta = *newest(metas)?;
        meta.identity.log = log;
        meta.head.log = Position::START;
        meta.log_segments = 0;
        write_metas(&**file, [0, 1], &meta)?;
        *metas = [Some(meta); 2];
    }
    Ok(())
}

/// Leaves an environment that nobody in this process uses any more. If no other process does either, its data files are
/// made to stand alone if that is wanted, and the lock file is emptied: what it holds then is of no value to anybody.
pub(crate) fn leave(stores: Vec<Arc<Inner>>) -> Result<()> {
    let Some(first) = stores.first() else {
        return Ok(());
    };
    let options = &first.options;
    let Some(wal) = first.wal.clone().filter(|_| !options.read_only) else {
        return Ok(());
    };
    let membership = first.membership.clone();
    if !membership.lock_opening_if_last()? {
        return Ok(());
    }
    if options.alone_when_closed && options.archive.is_none() {
        take_log(&stores, &wal)?;
    }
    let region = Arc::downgrade(&first.region);
    let shared: &Shared = (*first.region).as_ref();
    let is_written = shared.is_written() && first.region.holds_newest();
    drop((stores, wal));
    // Nobody looks at a region that is cut off.
    if is_written && region.strong_count() == 0 {
        membership.empty_lock_file()?;
    }
    Ok(())
}

/// Makes data files that stand alone of those of an environment that nobody else has open, if that is wanted. Until it
/// is closed nobody can open it.
///
/// The first file says whether the log is missing, so it comes first, and its meta pages in the opposite order as in
/// [`give_log`]: where this was interrupted, that never leaves two meta pages which name different logs.
fn take_log(stores: &[Arc<Inner>], wal: &Wal) -> Result<()> {
    let mut metas = Vec::with_capacity(stores.len());
    for store in stores {
        checkpoint::settle(store)?;
        let head = store.region.applied_head()?;
        let commits = &store.region.metas.commits;
        let is_held = |slot: &AtomicU64| slot.load(Ordering::SeqCst) == head.commit.0;
        if !commits.iter().all(is_held) {
            return Ok(());
        }
        metas.push(Meta {
            identity: StoreIdentity {
                log: NO_LOG,
                ..store.identity
            },
            head: Head {
                log: Position::START,
                ..head
            },
            log_segments: 0,
        });
    }
    for (store, meta) in stores.iter().zip(&metas) {
        write_metas(&*store.data.file, [1, 0], meta)?;
    }
    Ok(wal.remove_files()?)
}

/// The head of a new store whose log begins here.
fn first_head(log: Position) -> Head {
    Head {
        commit: FIRST_COMMIT,
        log,
        roots: Roots::empty(),
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
            // Commits that nobody has waited for are not lost because this is closed. Who closes it cannot be told of a
            // failure.
            let _: sapwood_wal::Result<()> = wal.write_through();
        }
        for store in &self.stores {
            let is_wanted = store.options.idle_checkpoint.is_some() || !store.region.holds_newest();
            if is_wanted && !store.options.read_only {
                // A courtesy to the one that opens the environment next; what it did not achieve, recovery does.
                let checkpointed = checkpoint::checkpoint(store);
                let _: Result<()> = checkpointed.and_then(|_| store.trim_file_if_nobody_writes());
            }
            store.idle_readers.close();
        }
        // Snapshots may outlive this, and the environment is open as long as they live.
        let mut stores = self.stores.iter();
        if stores.all(|store| Arc::strong_count(store) == 1) {
            // Whatever it has come to, the environment can be opened again.
            let _: Result<()> = leave(std::mem::take(&mut self.stores));
        }
    }
}
