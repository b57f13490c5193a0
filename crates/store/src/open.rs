//! Opening an environment: who is first recovers, everybody else joins.
//!
//! ```text
//!  lock        the lock region; locks on its bytes tell who lives, see `process`
//!  data-0      the store
//!  log*        the log
//! ```
//!
//! (or whatever [`FileNames`](crate::FileNames) calls them).
//!
//! Everything here happens while the lock file's opening byte is held, so one process at a time looks around. If no
//! process has the environment open, the lock region is of no value, whatever it holds: it is written anew from the
//! meta pages and the log.

use std::collections::HashMap;
use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use sapwood_wal::process::{LockFile, Membership};
use sapwood_wal::storage::{File, Folder, Identity, Memory, OpenMode, Storage, creating_with};
use sapwood_wal::{LogId, Wal};

use crate::background::Background;
use crate::backup::checked_copy;
use crate::checkpoint;
use crate::comparators::Registry;
use crate::env::{Env, Inner, Options, Owner};
use crate::error::{Error, Result};
use crate::guard::{Guard, Guards};
use crate::head::{Head, Roots};
use crate::mapped::{DataFile, WINDOW_PAGES};
use crate::meta::{Meta, NO_LOG, StoreIdentity};
use crate::page::{CommitNo, PAGE_BYTES, Page};
use crate::readers::{IdleReaders, give_back_all};
use crate::recovery;
use crate::region::Region;
use crate::sync::{Arc, AtomicU64, Mutex, Ordering, Weak, lock};

pub(crate) const DATA_NAME: &str = "data-0";
pub(crate) const NEW_DATA_NAME: &str = "data-0.new";

/// The commit that a new store consists of: nothing.
const FIRST_COMMIT: CommitNo = CommitNo(1);

/// The environments that this process has open, by folder and data file, so that opening one again gives the same. Held
/// while one is opened.
static OPEN: Mutex<Option<HashMap<Place, Weak<Owner>>>> = Mutex::new(None);

/// The folder, and the name of the data file in it.
type Place = (Identity, String);

pub(crate) fn open(path: &Path, options: &Options) -> Result<Env> {
    let mut open = lock(&OPEN);
    let open = open.get_or_insert_default();
    open.retain(|_, owner| owner.strong_count() > 0);
    if options.create {
        create_folder(path)?;
    }
    let folder = Folder::open(path)?.creating_with(options.permissions);
    let storage: Arc<dyn Storage> = Arc::new(folder);
    let identity = (storage.identity()?, options.names.data.clone());
    let known = open.get(&identity).and_then(Weak::upgrade);
    if let Some(owner) = known.filter(|owner| !owner.is_forked()) {
        return Ok(Env::from_owner(owner));
    }
    let env = if options.shared {
        open_folder(path, storage, options)?
    } else {
        open_storage(storage, options)?
    };
    open.insert(identity, Arc::downgrade(env.owner()));
    Ok(env)
}

fn create_folder(path: &Path) -> Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    fs::create_dir_all(path)?;
    if let Some(parent) = path.parent().filter(|parent| *parent != Path::new("")) {
        Folder::open(parent)?.sync_names()?;
    }
    Ok(())
}

fn open_folder(path: &Path, storage: Arc<dyn Storage>, options: &Options) -> Result<Env> {
    let mut how = creating_with(options.permissions);
    how.read(true).write(true).create(true).truncate(false);
    if !options.create {
        // No trace in a folder that is not an environment.
        storage.open(&options.names.data, OpenMode::Read)?;
    }
    let file = how.open(path.join(&options.names.lock))?;
    let locks = LockFile::new(file.try_clone()?);
    locks.lock_opening()?;
    let first = !locks.is_in_use()?;
    let region = Arc::new(if first {
        Region::create(&file)?
    } else {
        Region::join(&file)?
    });
    let opened = if first {
        start(&storage, &region, options)?
    } else {
        join(&storage, &region, options)?
    };
    let membership = Membership::join(locks, &region.processes[..], |index| {
        give_back_all(&region, index);
        !region.is_owner(index)
    })?
    .ok_or(Error::ProcessesFull)?;
    let env = opened.into_env(region, membership, options)?;
    env.inner().membership.unlock_opening();
    Ok(env)
}

/// An environment on a storage that no other process can see.
pub(crate) fn open_storage(storage: Arc<dyn Storage>, options: &Options) -> Result<Env> {
    let region = Arc::new(Region::private()?);
    let opened = start(&storage, &region, options)?;
    let membership = Membership::alone(&region.processes[..]);
    opened.into_env(region, membership, options)
}

pub(crate) fn in_memory(options: &Options) -> Result<Env> {
    let file = Memory::new().open(DATA_NAME, OpenMode::CreateNew)?;
    file.allocate(0, WINDOW_PAGES * PAGE_BYTES as u64)?;
    let identity = StoreIdentity {
        log: NO_LOG,
        ..StoreIdentity::new()
    };
    begin_in_memory(DataFile::new(file)?, identity, &first_head(), options)
}

/// An environment in memory that begins with what is in a backup.
pub(crate) fn in_memory_from(backup: &Path, options: &Options) -> Result<Env> {
    let mut from = std::fs::File::open(backup)?;
    let file = Memory::new().open(DATA_NAME, OpenMode::CreateNew)?;
    let (data, meta) = checked_copy(&mut from, &[], file)?;
    begin_in_memory(data, meta.identity, &meta.head, options)
}

fn begin_in_memory(
    data: DataFile,
    identity: StoreIdentity,
    head: &Head,
    options: &Options,
) -> Result<Env> {
    let region = Arc::new(Region::private()?);
    let pages = data.file.size()? / PAGE_BYTES as u64;
    region.growth.pages.store(pages, Ordering::SeqCst);
    region.start(head);
    let opened = Opened {
        data,
        wal: None,
        identity,
        must_checkpoint: false,
    };
    let membership = Membership::alone(&region.processes[..]);
    opened.into_env(region, membership, options)
}

struct Opened {
    data: DataFile,
    wal: Option<Wal>,
    identity: StoreIdentity,
    /// There are commits behind the meta pages whose pages the log does not hold: they are protected by a meta page only.
    must_checkpoint: bool,
}

impl Opened {
    fn into_env(
        self,
        region: Arc<Region>,
        membership: Membership,
        options: &Options,
    ) -> Result<Env> {
        let env = Env::new(Inner {
            region,
            membership,
            data: self.data,
            wal: self.wal,
            identity: self.identity,
            options: options.clone(),
            idle_readers: IdleReaders::new(),
            comparators: Registry::default(),
            workshop: Mutex::new(None),
            background: Background::default(),
            pages_max: AtomicU64::new(u64::MAX),
        });
        if self.must_checkpoint && options.guards.has(Guard::CheckpointRecoveredRoots) {
            checkpoint::checkpoint(env.inner())?;
        }
        Ok(env)
    }
}

/// Opens the files as the first one, and fills the region.
fn start(storage: &Arc<dyn Storage>, region: &Arc<Region>, options: &Options) -> Result<Opened> {
    let names = &options.names;
    if options.create && !has_data(&**storage, options)? {
        create(storage, options)?;
    }
    let file = storage.open(&names.data, OpenMode::Write)?;
    let metas = read_metas(&*file, options.guards)?;
    let meta = newest(&metas)?;
    // One of them, if giving it a log was interrupted.
    let stands_alone = metas
        .iter()
        .flatten()
        .any(|meta| meta.identity.log == NO_LOG);
    let metas = if stands_alone {
        give_log(storage, &*file, meta, options)?
    } else {
        metas
    };
    let wal = Wal::open(storage, &options.names.log, OpenMode::Write, region.clone())?;
    let data = DataFile::new(file)?;
    let recovered = recovery::recover(&data, &wal, &metas, region)?;
    Ok(Opened {
        data,
        wal: Some(wal),
        identity: recovered.identity,
        must_checkpoint: recovered.has_unlogged,
    })
}

fn has_data(storage: &dyn Storage, options: &Options) -> Result<bool> {
    match storage.open(&options.names.data, OpenMode::Read) {
        Ok(file) => Ok(!options.over_empty || file.size()? > 0),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Opens the files of an environment that others have open.
fn join(storage: &Arc<dyn Storage>, region: &Arc<Region>, options: &Options) -> Result<Opened> {
    let file = storage.open(&options.names.data, OpenMode::Write)?;
    // One of them may be under the pen of a checkpoint, but both say whose they are.
    let metas = read_metas(&*file, options.guards)?;
    let identity = newest(&metas)?.identity;
    let wal = Wal::open(storage, &options.names.log, OpenMode::Write, region.clone())?;
    if wal.id() != identity.log {
        return Err(Error::Damaged("the log belongs to another store".into()));
    }
    Ok(Opened {
        data: DataFile::new(file)?,
        wal: Some(wal),
        identity,
        must_checkpoint: false,
    })
}

/// Makes an empty store. Its data file gets its name last: if that is there, everything is.
fn create(storage: &Arc<dyn Storage>, options: &Options) -> Result<()> {
    let identity = StoreIdentity::new();
    create_log(storage, identity.log, options)?;
    let new_data = options.names.new_data();
    match storage.remove(&new_data) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error.into()),
        _ => {}
    }
    let file = storage.open(&new_data, OpenMode::CreateNew)?;
    file.allocate(0, WINDOW_PAGES * PAGE_BYTES as u64)?;
    let meta = Meta {
        identity,
        head: first_head(),
    };
    for slot in 0..2 {
        write_meta(&*file, slot, &meta)?;
    }
    if options.guards.has(Guard::SyncNewStore) {
        file.sync_data()?;
    }
    storage.rename(&new_data, &options.names.data)?;
    storage.sync_names()?;
    Ok(())
}

fn create_log(storage: &Arc<dyn Storage>, id: LogId, options: &Options) -> Result<()> {
    const SEGMENTS: u32 = 8;
    const GRANULE: u64 = 4096;
    Wal::remove(&**storage, &options.names.log)?;
    let segment = (options.log_bytes / u64::from(SEGMENTS)).next_multiple_of(GRANULE);
    let shape = sapwood_wal::Options {
        segment_bytes: segment,
        segments: SEGMENTS,
    };
    Wal::create(storage, &options.names.log, id, &shape)?;
    Ok(())
}

/// Gives a data file that stands alone a log of its own.
fn give_log(
    storage: &Arc<dyn Storage>,
    file: &dyn File,
    meta: &Meta,
    options: &Options,
) -> Result<[Option<Meta>; 2]> {
    let mut meta = *meta;
    meta.identity.log = StoreIdentity::new().log;
    meta.head.log = sapwood_wal::Position::START;
    create_log(storage, meta.identity.log, options)?;
    for slot in 0..2 {
        write_meta(file, slot, &meta)?;
        file.sync_data()?;
    }
    Ok([Some(meta); 2])
}

fn first_head() -> Head {
    Head {
        commit: FIRST_COMMIT,
        log: sapwood_wal::Position::START,
        roots: Roots::empty(),
    }
}

pub(crate) fn write_meta(file: &dyn File, slot: usize, meta: &Meta) -> Result<()> {
    let offset = (slot * PAGE_BYTES) as u64;
    file.write_all_at(meta.encode(slot).bytes(), offset)?;
    Ok(())
}

pub(crate) fn read_metas(file: &dyn File, guards: Guards) -> Result<[Option<Meta>; 2]> {
    let mut metas = [None; 2];
    for (slot, meta) in metas.iter_mut().enumerate() {
        let mut page = Page::zeroed();
        match file.read_exact_at(page.bytes_mut(), (slot * PAGE_BYTES) as u64) {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => continue,
            Err(error) => return Err(error.into()),
        }
        *meta = Meta::decode(&page, slot, guards.has(Guard::MetaChecksum))?;
    }
    Ok(metas)
}

/// The one with the later commit.
pub(crate) fn newest(metas: &[Option<Meta>; 2]) -> Result<&Meta> {
    metas
        .iter()
        .flatten()
        .max_by_key(|meta| meta.head.commit)
        .ok_or_else(|| Error::Damaged("neither meta page of the data file is valid".into()))
}
