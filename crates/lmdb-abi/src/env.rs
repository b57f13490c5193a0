//! Environments: opened from paths and flags, and what can be asked of them.

use std::ffi::{CStr, CString, OsStr, c_char, c_void};
use std::fs::{self, File, TryLockError};
use std::io::{ErrorKind, Read};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use sapwood_store::FileNames;
use sapwood_store::page::PAGE_BYTES;

use crate::database::{Handles, MAP_SIZE_KEY, SETTINGS_TREE, main_tree};
use crate::error::{Code, Result};
use crate::gathered::Gathered;
use crate::readers::{READERS_DEFAULT, Readers};
use crate::values::env_flags::{CHANGEABLE, CHANGELESS, NOLOCK, NOSUBDIR, NOSYNC, RDONLY};
use crate::values::{EnvInfo, Stat};

/// The bound of the data file's size unless the program sets one, in bytes.
pub(crate) const MAP_BYTES_DEFAULT: u64 = 1 << 20;

/// The length of the log, in bytes: as much can be committed while a checkpoint waits for the disk, for which programs
/// with `MDB_NOSYNC` would otherwise wait.
const LOG_BYTES: u64 = 64 << 20;

/// The length of the log's files, in bytes. Every new environment writes as much, and there are programs with many
/// small ones.
const LOG_SEGMENT_BYTES: u64 = 4 << 20;

pub(crate) const DATA_NAME: &str = "data.mdb";
const LOCK_NAME: &str = "lock.mdb";
const LOG_NAME: &str = "log.mdb";

/// `MDB_env`: first settings, then an open environment.
pub struct Env {
    settings: Mutex<Settings>,
    flags: Arc<AtomicU32>,
    context: AtomicPtr<c_void>,
    open: OnceLock<Arc<Open>>,
}

struct Settings {
    map_bytes: Option<u64>,
    readers_max: u32,
    dbs_max: u32,
}

/// An environment once it is open.
pub(crate) struct Open {
    pub(crate) store: sapwood_store::Env,
    pub(crate) readers: Arc<Readers>,
    path: CString,
    /// The data file, locked against environments that are not to be shared.
    _locked: File,
    /// The data file for programs that ask for a descriptor, with which they may do what they like: it has no locks,
    /// and can be written to unless the environment is only read.
    data: File,
    handles: Mutex<Handles>,
    /// How often a handle has been closed: a transaction that sees the same number as before need not look.
    closings: AtomicU64,
    map_bytes: AtomicU64,
    /// The map size that the store is known to hold.
    stored_map_bytes: AtomicU64,
    /// As in [`Env::flags`].
    flags: Arc<AtomicU32>,
    /// There is a write transaction in this process.
    is_writing: AtomicBool,
    /// The room that a write transaction gathers values in, while there is none.
    gathered: Mutex<Gathered>,
}

impl Default for Env {
    fn default() -> Self {
        Self {
            settings: Mutex::new(Settings {
                map_bytes: None,
                readers_max: READERS_DEFAULT,
                dbs_max: 0,
            }),
            flags: Arc::default(),
            context: AtomicPtr::new(ptr::null_mut()),
            open: OnceLock::new(),
        }
    }
}

impl Env {
    /// `mdb_env_open`
    pub fn open(&self, path: &CStr, flags: u32, mode: u32) -> Result {
        if self.open.get().is_some() || flags & !(CHANGEABLE | CHANGELESS) != 0 {
            return Err(Code::EINVAL);
        }
        let flags = self.flags.load(Ordering::Relaxed) | flags;
        let settings = self.settings();
        let place = Place::new(path, flags)?;
        let options = sapwood_store::Options::new()
            .create(flags & RDONLY == 0)
            .over_empty(flags & RDONLY == 0)
            .log_bytes(LOG_BYTES)
            .log_segment_bytes(LOG_SEGMENT_BYTES)
            // Programs number transactions by their own.
            .idle_compaction(None)
            .alone_when_closed(flags & NOSUBDIR != 0)
            .names(place.names.clone())
            .permissions(mode);
        let (store, locked) = place.open(&options, flags)?;
        let writes = flags & RDONLY == 0;
        let data = File::options().read(true).write(writes).open(&place.data)?;
        let open = Open {
            store,
            readers: Readers::new(settings.readers_max),
            path: path.to_owned(),
            _locked: locked,
            data,
            handles: Mutex::new(Handles::new(settings.dbs_max)),
            closings: AtomicU64::new(0),
            map_bytes: AtomicU64::new(0),
            stored_map_bytes: AtomicU64::new(0),
            flags: self.flags.clone(),
            is_writing: AtomicBool::new(false),
            gathered: Mutex::default(),
        };
        let map_bytes = match settings.map_bytes {
            Some(bytes) => bytes,
            None => open.stored_map_bytes()?,
        };
        open.set_map_bytes(map_bytes)?;
        self.flags.store(flags, Ordering::Relaxed);
        self.open.set(Arc::new(open)).map_err(|_| Code::EINVAL)
    }

    /// What the environment is once it is open.
    pub(crate) fn opened(&self) -> Result<&Arc<Open>> {
        self.open.get().ok_or(Code::EINVAL)
    }

    /// `mdb_env_set_flags`
    pub fn set_flags(&self, flags: u32, on: bool) -> Result {
        if flags & !CHANGEABLE != 0 {
            return Err(Code::EINVAL);
        }
        if on {
            self.flags.fetch_or(flags, Ordering::Relaxed);
        } else {
            self.flags.fetch_and(!flags, Ordering::Relaxed);
        }
        Ok(())
    }

    /// `mdb_env_get_flags`
    pub fn flags(&self) -> u32 {
        self.flags.load(Ordering::Relaxed) & (CHANGEABLE | CHANGELESS)
    }

    /// `mdb_env_set_mapsize`; once the environment is open, 0 asks for the size that other processes have set.
    pub fn set_map_size(&self, bytes: usize) -> Result {
        let bytes = bytes as u64;
        let Some(open) = self.open.get() else {
            self.settings().map_bytes = Some(bytes).filter(|&bytes| bytes > 0);
            return Ok(());
        };
        if open.is_writing.load(Ordering::Relaxed) {
            return Err(Code::EINVAL);
        }
        open.set_map_bytes(if bytes == 0 {
            open.stored_map_bytes()?
        } else {
            bytes
        })
    }

    /// `mdb_env_set_maxreaders`
    pub fn set_readers_max(&self, readers: u32) -> Result {
        if self.open.get().is_some() || readers == 0 {
            return Err(Code::EINVAL);
        }
        self.settings().readers_max = readers;
        Ok(())
    }

    /// `mdb_env_get_maxreaders`
    pub fn readers_max(&self) -> u32 {
        match self.open.get() {
            Some(open) => open.readers.max(),
            None => self.settings().readers_max,
        }
    }

    /// `mdb_env_set_maxdbs`
    pub fn set_dbs_max(&self, dbs: u32) -> Result {
        if self.open.get().is_some() {
            return Err(Code::EINVAL);
        }
        self.settings().dbs_max = dbs;
        Ok(())
    }

    /// `mdb_env_set_userctx`
    pub fn set_context(&self, context: *mut c_void) {
        self.context.store(context, Ordering::Relaxed);
    }

    /// `mdb_env_get_userctx`
    pub fn context(&self) -> *mut c_void {
        self.context.load(Ordering::Relaxed)
    }

    /// `mdb_env_get_path`: null as long as it is not open.
    pub fn path(&self) -> *const c_char {
        self.open
            .get()
            .map_or(ptr::null(), |open| open.path.as_ptr())
    }

    /// `mdb_env_get_fd`: -1 as long as it is not open.
    pub fn descriptor(&self) -> RawFd {
        self.open.get().map_or(-1, |open| open.data.as_raw_fd())
    }

    fn settings(&self) -> MutexGuard<'_, Settings> {
        self.settings.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Env {
    fn drop(&mut self) {
        if let Some(open) = self.open.get() {
            open.readers.close();
        }
    }
}

impl Open {
    /// `mdb_env_info`
    pub(crate) fn info(&self) -> Result<EnvInfo> {
        let stat = self.store.stat()?;
        let readers = self.reader_lines()?.len();
        Ok(EnvInfo {
            mapaddr: ptr::null_mut(),
            mapsize: usize_of(self.map_bytes.load(Ordering::Relaxed)),
            last_pgno: usize_of(stat.pages.saturating_sub(1)),
            last_txnid: usize_of(txn_id(stat.visible.0)),
            maxreaders: self.readers.max(),
            numreaders: u32::try_from(readers).unwrap_or(u32::MAX),
        })
    }

    /// `mdb_env_sync`: every commit that has been answered becomes durable, unless it is asked for politely where
    /// commits need not be.
    pub(crate) fn sync(&self, force: bool) -> Result {
        if self.flags() & RDONLY != 0 {
            return Err(Code::EACCES);
        }
        if force || self.flags() & NOSYNC == 0 {
            self.store.sync()?;
        }
        Ok(())
    }

    /// What `mdb_reader_list` says, line by line.
    pub(crate) fn reader_table(&self) -> Result<Vec<String>> {
        let mut lines = self.reader_lines()?;
        if self.flags() & NOLOCK != 0 {
            lines.push("(no reader locks)\n".into());
        } else if lines.is_empty() {
            lines.push("(no active readers)\n".into());
        } else {
            lines.insert(0, "    pid     thread     txnid\n".into());
        }
        Ok(lines)
    }

    /// One line for each slot in use, in this process and in others: process, thread, transaction. Under `MDB_NOLOCK`
    /// there are none.
    pub(crate) fn reader_lines(&self) -> Result<Vec<String>> {
        let line = |pid: u32, thread: u64, txn: Option<u64>| {
            let txn = txn.map_or_else(|| "-".into(), |txn| txn.to_string());
            format!("{pid:10} {thread:x} {txn}\n")
        };
        if self.flags() & NOLOCK != 0 {
            return Ok(Vec::new());
        }
        let own = std::process::id();
        let slots = self.readers.slots();
        let mut lines: Vec<_> = slots
            .iter()
            .map(|slot| line(own, slot.thread, slot.txn()))
            .collect();
        let stat = self.store.stat()?;
        let others = stat.readers.iter().filter(|reader| reader.pid != own);
        lines.extend(
            others.map(|reader| line(reader.pid, reader.tid.into(), Some(txn_id(reader.commit.0)))),
        );
        Ok(lines)
    }

    pub(crate) fn flags(&self) -> u32 {
        self.flags.load(Ordering::Relaxed)
    }

    pub(crate) fn handles(&self) -> MutexGuard<'_, Handles> {
        self.handles.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `mdb_dbi_close`
    pub(crate) fn close_handle(&self, dbi: u32) {
        if self.handles().close(dbi) {
            self.closings.fetch_add(1, Ordering::Release);
        }
    }

    pub(crate) fn closings(&self) -> u64 {
        self.closings.load(Ordering::Acquire)
    }

    pub(crate) fn set_writing(&self, yes: bool) {
        self.is_writing.store(yes, Ordering::Relaxed);
    }

    /// The room that the next write transaction gathers values in.
    pub(crate) fn gathered(&self) -> MutexGuard<'_, Gathered> {
        self.gathered.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn map_bytes(&self) -> u64 {
        self.map_bytes.load(Ordering::Relaxed)
    }

    /// What a commit is to store as the map size; small ones are not worth a page, and a size is never stored twice.
    pub(crate) fn map_bytes_to_store(&self) -> Option<u64> {
        let stored = self.stored_map_bytes.load(Ordering::Relaxed);
        Some(self.map_bytes()).filter(|&bytes| bytes > stored.max(MAP_BYTES_DEFAULT))
    }

    /// A commit has stored it.
    pub(crate) fn note_stored_map_bytes(&self, bytes: u64) {
        self.stored_map_bytes.fetch_max(bytes, Ordering::Relaxed);
    }

    /// Never less than what is in use.
    pub(crate) fn set_map_bytes(&self, bytes: u64) -> Result {
        let used = self.store.stat()?.pages * PAGE_BYTES as u64;
        let bytes = if used > bound(bytes) { used } else { bytes };
        self.store.set_bytes_max(bound(bytes));
        self.map_bytes.store(bytes, Ordering::Relaxed);
        Ok(())
    }

    /// Whether LMDB could commit a store of this size to a map of few pages, which programs, their tests above all,
    /// make to see it full. LMDB does not use the last page, and a commit needs some that cannot be used again at once:
    /// one that the first commit has replaced, or three, of a database, of the main one and of the list of free pages.
    pub(crate) fn could_commit(&self, store_bytes: u64, id: u64) -> bool {
        const PAGES_MAX: u64 = 16;
        let unused = match id {
            0 | 1 => 1,
            2 => 2,
            _ => 4,
        };
        let (map, store) = (self.map_bytes(), store_bytes / PAGE_BYTES as u64);
        let map = map / PAGE_BYTES as u64;
        map > PAGES_MAX || store + unused <= map
    }

    /// Whether a store of this size is within the map, and the room behind it that the store keeps.
    pub(crate) fn holds(&self, store_bytes: u64) -> bool {
        store_bytes <= bound(self.map_bytes())
    }

    /// The map size that was set last, by whatever process.
    fn stored_map_bytes(&self) -> Result<u64> {
        let snapshot = self.store.read()?;
        let stored = match snapshot.tree(SETTINGS_TREE)? {
            Some(settings) => settings.get(MAP_SIZE_KEY)?.and_then(<[u8]>::first_chunk),
            None => None,
        };
        Ok(stored.map_or(MAP_BYTES_DEFAULT, |bytes| u64::from_le_bytes(*bytes)))
    }

    /// `mdb_env_stat`: that of the main database.
    pub(crate) fn stat(&self) -> Result<Stat> {
        let snapshot = self.store.read()?;
        let main = snapshot.tree(main_tree())?;
        Ok(stat_of(main.as_ref().map(sapwood_store::Tree::record)))
    }
}

/// Where the files of an environment are.
struct Place {
    folder: PathBuf,
    names: FileNames,
    lock: PathBuf,
    data: PathBuf,
}

impl Place {
    fn new(path: &CStr, flags: u32) -> Result<Self> {
        let path = Path::new(OsStr::from_bytes(path.to_bytes()));
        if flags & NOSUBDIR == 0 {
            // The store would make the folder; LMDB does not.
            if !fs::metadata(path)?.is_dir() {
                return Err(Code(libc::ENOTDIR));
            }
            return Ok(Self {
                folder: path.to_owned(),
                names: FileNames::new(DATA_NAME, LOCK_NAME, LOG_NAME)?,
                lock: path.join(LOCK_NAME),
                data: path.join(DATA_NAME),
            });
        }
        let name = path.file_name().and_then(OsStr::to_str);
        let name = name.ok_or(Code::EINVAL)?;
        let parent = path.parent().filter(|parent| *parent != Path::new(""));
        let folder = parent.unwrap_or(Path::new("."));
        fs::metadata(folder)?;
        Ok(Self {
            folder: folder.to_owned(),
            names: FileNames::new(name, format!("{name}-lock"), format!("{name}-log"))?,
            lock: folder.join(format!("{name}-lock")),
            data: path.to_owned(),
        })
    }

    /// Opens the store, and the data file with a lock of its own. `MDB_NOLOCK` leaves it to the programs that nobody
    /// writes while others read or write. Where there is a lock file it keeps that promise for them; one is made for
    /// nobody who wants none and writes.
    fn open(
        &self,
        options: &sapwood_store::Options,
        flags: u32,
    ) -> Result<(sapwood_store::Env, File)> {
        if flags & NOLOCK == 0 {
            return self.open_locked(options, flags);
        }
        let reads = flags & RDONLY != 0;
        if reads || self.lock.exists() {
            match self.open_locked(options, flags) {
                Err(refused) if self.has_no_locks(refused) => {}
                opened => return opened,
            }
        }
        self.open_unlocked(options, reads)
    }

    /// A store whose files can be written to is opened for writing even for those who only read: another environment of
    /// the program may want to write, and is the same to the store.
    fn open_locked(
        &self,
        options: &sapwood_store::Options,
        flags: u32,
    ) -> Result<(sapwood_store::Env, File)> {
        let data = self.lock_data(File::try_lock_shared)?;
        let opened = sapwood_store::Env::open(&self.folder, options);
        let store = match &opened {
            Err(sapwood_store::Error::Io(error)) if flags & RDONLY != 0 && is_unwritable(error) => {
                sapwood_store::Env::open(&self.folder, &options.clone().read_only(true))
            }
            _ => opened,
        };
        self.with_data(store, data, File::try_lock_shared)
    }

    /// Without a lock file the one that writes is alone, and the one that only reads looks at the files as they are.
    fn open_unlocked(
        &self,
        options: &sapwood_store::Options,
        reads: bool,
    ) -> Result<(sapwood_store::Env, File)> {
        let lock = if reads {
            File::try_lock_shared
        } else {
            File::try_lock
        };
        let data = self.lock_data(lock)?;
        let options = options.clone().shared(false).read_only(reads);
        let store = sapwood_store::Env::open(&self.folder, &options);
        self.with_data(store, data, lock)
    }

    /// The store and the locked data file, which may not have been there before.
    fn with_data(
        &self,
        store: sapwood_store::Result<sapwood_store::Env>,
        data: Option<File>,
        lock: Lock,
    ) -> Result<(sapwood_store::Env, File)> {
        let store = store.map_err(not_an_environment)?;
        let data = match data {
            Some(data) => data,
            None => self.lock_data(lock)?.ok_or(Code::ENOENT)?,
        };
        Ok((store, data))
    }

    /// Whether no lock file can be made, or the file system has no locks.
    fn has_no_locks(&self, refused: Code) -> bool {
        match refused.0 {
            libc::EACCES | libc::EPERM | libc::EROFS => !self.lock.exists(),
            code => [libc::ENOLCK, libc::ENOSYS, libc::EOPNOTSUPP].contains(&code),
        }
    }

    /// Opens the data file, if it is there, and sees to it that nobody else has it open where one of both wants no
    /// locks.
    fn lock_data(&self, lock: Lock) -> Result<Option<File>> {
        let file = match File::open(&self.data) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        if file.metadata()?.len() == 0 {
            // It will be replaced.
            return Ok(None);
        }
        match lock(&file) {
            Ok(()) => Ok(Some(file)),
            Err(TryLockError::WouldBlock) => Err(Code::EAGAIN),
            // A file system without locks.
            Err(TryLockError::Error(_)) => Ok(Some(file)),
        }
    }
}

/// How a file is locked, against environments that are not to be shared.
type Lock = fn(&File) -> std::result::Result<(), TryLockError>;

fn is_unwritable(error: &std::io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::ReadOnlyFilesystem | ErrorKind::PermissionDenied
    )
}

/// Whether the data file of an environment is one of LMDB itself.
pub(crate) fn is_of_lmdb(path: &CStr, flags: u32) -> bool {
    const MAGIC: [u8; 4] = 0xBEEF_C0DE_u32.to_le_bytes();
    const MAGIC_AT: usize = 16;
    let mut start = [0; MAGIC_AT + MAGIC.len()];
    let place = Place::new(path, flags).and_then(|place| Ok(File::open(place.data)?));
    let read = place.map(|mut file| file.read_exact(&mut start).is_ok());
    read == Ok(true) && start.ends_with(&MAGIC)
}

/// Files that contradict themselves when they are opened are none of ours.
fn not_an_environment(error: sapwood_store::Error) -> Code {
    match error {
        sapwood_store::Error::Damaged(_) => Code::INVALID,
        error => error.into(),
    }
}

/// The store's bound for a map of so many bytes. It keeps a sixteenth of its bound for deletions, at most 64 pages; the
/// map is what puts may use.
fn bound(map_bytes: u64) -> u64 {
    const KEPT_PAGES_MAX: u64 = 64;
    let pages = map_bytes / PAGE_BYTES as u64;
    map_bytes.saturating_add((pages / 15).min(KEPT_PAGES_MAX) * PAGE_BYTES as u64)
}

/// LMDB's number of the state that the store's `commit` made: it counts from the empty environment, which is 0.
pub(crate) fn txn_id(commit: u64) -> u64 {
    commit.saturating_sub(1)
}

fn usize_of(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

/// The statistics of a tree; of an empty one if there is none.
pub(crate) fn stat_of(record: Option<&sapwood_store::tree::TreeRecord>) -> Stat {
    let psize = PAGE_BYTES as u32;
    match record {
        None => Stat {
            psize,
            ..Stat::default()
        },
        Some(record) => Stat {
            psize,
            depth: record.height.into(),
            branch_pages: usize_of(record.branch_pages),
            leaf_pages: usize_of(record.leaf_pages),
            overflow_pages: usize_of(record.extent_pages),
            entries: usize_of(record.records),
        },
    }
}
