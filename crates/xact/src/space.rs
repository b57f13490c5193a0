//! Spaces: how they are opened and what can be asked of them.

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use sapwood_wal::process::Membership;
use sapwood_wal::storage::{File, Identity, Map, Memory as MemoryFolder, Storage};
use sapwood_wal::sync::{Mutex, MutexGuard, Ordering, PoisonError};
use sapwood_wal::{Lsn, Wal};

use crate::address::{ALIGNMENT, AddressRange, END};
use crate::allocator::RESERVED_BYTES;
use crate::commit::Wait;
use crate::context::Context;
use crate::error::{Doing, Error, Result};
use crate::guard::Guards;
use crate::header::{HEADER_PAGES, Header, PAGES_MAX};
use crate::open;
use crate::page::{PAGE_BYTES, PageBytes, page_of};
use crate::page_writer::PageWriter;
use crate::region::{FRAMES_MAX, Region};
use crate::root_page::{self, Layout};
use crate::region::slot::{Slot, Snapshot, wait_while};
use crate::sums::{Checked, Verified};
use crate::transaction::Transaction;

/// How the system learns what a transaction reads and writes, and with it what isolation means. Chosen when a space is
/// made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mode {
    /// The program says what it reads and writes, with [`Memory::read`](crate::Memory::read) and
    /// [`Memory::write`](crate::Memory::write). Costs least. Transactions are serialisable.
    Explicit,
    /// Loads and stores in plain memory, see [`Transaction::map`]: the first access to a page in a transaction is a
    /// fault, by which the system learns of it. Transactions are serialisable.
    Tracked,
    /// Loads and stores in plain memory, of which only stores are noticed: what a transaction has read may change
    /// before it is committed, but what it has written may not. Transactions are isolated by snapshots (*snapshot
    /// isolation*): two that each read what the other one writes may both be committed.
    Snapshot,
}

impl Mode {
    fn name(self) -> &'static str {
        match self {
            Self::Explicit => "explicit",
            Self::Tracked => "tracked",
            Self::Snapshot => "snapshot",
        }
    }
}

/// Whether a commit survives a power cut. Chosen when a space is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Durability {
    /// A commit is on the disk when it returns.
    Durable,
    /// A commit survives the death of processes. After a power cut the last ones may be missing, but none is there
    /// without all before it.
    Eventual,
}

impl Durability {
    fn name(self) -> &'static str {
        match self {
            Self::Durable => "durable",
            Self::Eventual => "eventual",
        }
    }
}

/// How a space is made and opened.
#[derive(Clone, Debug)]
pub struct Options {
    pub(crate) create: bool,
    pub(crate) mode: Option<Mode>,
    pub(crate) durability: Option<Durability>,
    pub(crate) pages: u64,
    /// At least so many; 0 if that is left as it is.
    pub(crate) grown_pages: u64,
    /// So many have places in the file.
    pub(crate) room: Option<u64>,
    pub(crate) address: Option<u64>,
    pub(crate) layout: Option<Layout>,
    pub(crate) checksums: bool,
    pub(crate) log_bytes: u64,
    pub(crate) frames: u64,
    pub(crate) spill: u64,
    pub(crate) patience: Duration,
    pub(crate) backoff: bool,
    pub(crate) userfault: bool,
    pub(crate) guards: Guards,
}

/// The size of a new space unless another is chosen, in bytes. It takes up disk space only where something was written.
pub const SPACE_BYTES_DEFAULT: u64 = 16 << 30;
pub(crate) const NO_ADDRESS: &str =
    "in a mode with plain memory its address is a multiple of 4 GiB, and it ends below 128 TiB";
/// A space can become so many times as large while it is in use, unless another size is chosen.
const RESERVE: u64 = 16;
/// The size of a new log unless another is chosen, in bytes.
pub const LOG_BYTES_DEFAULT: u64 = 64 << 20;
/// The memory for versions that are not in the file yet unless another is chosen, in bytes.
pub const VERSIONS_BYTES_DEFAULT: u64 = 16 << 20;
/// The room on the disk for further versions unless another is chosen, in bytes. It is taken when it is needed.
pub const SPILL_BYTES_DEFAULT: u64 = 256 << 20;

impl Default for Options {
    fn default() -> Self {
        Self {
            create: true,
            mode: None,
            durability: None,
            pages: SPACE_BYTES_DEFAULT / PAGE_BYTES as u64,
            grown_pages: 0,
            room: None,
            address: None,
            layout: None,
            checksums: true,
            log_bytes: LOG_BYTES_DEFAULT,
            frames: VERSIONS_BYTES_DEFAULT / PAGE_BYTES as u64,
            spill: SPILL_BYTES_DEFAULT / PAGE_BYTES as u64,
            patience: Duration::from_secs(10),
            backoff: true,
            userfault: true,
            guards: Guards::default(),
        }
    }
}

impl Options {
    /// The space as it was made; if it is not there a durable one in explicit mode is made.
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether a space that is not there is made.
    pub fn create(mut self, create: bool) -> Self {
        self.create = create;
        self
    }

    /// The mode: of a new space, which is [`Mode::Explicit`] otherwise. One that was made in another mode is not opened
    /// ([`Error::MadeOtherwise`]); [`Space::mode`] tells it to the one that asks for none.
    pub fn mode(mut self, mode: Mode) -> Self {
        self.mode = Some(mode);
        self
    }

    /// The durability: of a new space, which is [`Durability::Durable`] otherwise. One that was made with another is
    /// not opened, as with [`Options::mode`].
    pub fn durability(mut self, durability: Durability) -> Self {
        self.durability = Some(durability);
        self
    }

    /// What the program stores in the space, and in which version of its form: a name of 1 to
    /// [`NAME_BYTES_MAX`](crate::NAME_BYTES_MAX) bytes. A new space is said to hold that; one that holds something
    /// else, or does not say what it holds, is not opened ([`Error::OtherLayout`]). Who asks for no layout gets any: so
    /// a program that knows older versions looks at [`Transaction::layout`], and changes it with what it stores.
    pub fn layout(mut self, name: &str, version: u64) -> Self {
        let name = name.to_owned();
        self.layout = Some(Layout { name, version });
        self
    }

    /// Whether the pages of a new space have checksums; they do by default. A page in the file is verified when a
    /// process first looks at it, and by [`Space::check`]. They take up four bytes for each page that was written, in
    /// the file and in the log.
    pub fn checksums(mut self, checksums: bool) -> Self {
        self.checksums = checksums;
        self
    }

    /// The size of a new space in bytes, up to 16 TiB less 16 GiB. Disk space is taken up only where something was
    /// written; the address range is reserved in each process, and in the modes with plain memory for each transaction
    /// that runs at the same time.
    pub fn bytes(mut self, bytes: u64) -> Self {
        self.pages = bytes.div_ceil(PAGE_BYTES as u64);
        self
    }

    /// Makes a space that is smaller so large, in bytes, when it is opened. While another process has it open that is
    /// possible up to what [`Options::reserve_bytes`] says, and [`Error::InUse`] beyond. Nothing is ever made smaller.
    pub fn grow_to(mut self, bytes: u64) -> Self {
        self.grown_pages = bytes.div_ceil(PAGE_BYTES as u64);
        self
    }

    /// The size in bytes up to which a space can grow while it is in use, of one that is new or grows beyond what it
    /// had: by default 16 times its size. It takes up addresses in each process, twice, and no room on the disk.
    pub fn reserve_bytes(mut self, bytes: u64) -> Self {
        self.room = Some(bytes.div_ceil(PAGE_BYTES as u64));
        self
    }

    /// For how many pages a space of so many has places.
    pub(crate) fn room(&self, pages: u64) -> u64 {
        let room = self.room.unwrap_or(pages.saturating_mul(RESERVE));
        room.min(PAGES_MAX).max(pages)
    }

    /// Where the plain memory of a new space is, in whatever process and whenever, so that pointers into the space can
    /// be stored in it: a multiple of 4 GiB, such as `0x2000_0000_0000`, from which on nothing is for as many bytes as
    /// [`Options::reserve_bytes`] says. One that is there already knows its address, and is not opened at another one.
    ///
    /// One process opens such a space once, and its transactions take turns, those that only read as well: one that
    /// begins waits as long as [`Options::patience`] says ([`Error::AddressTaken`]).
    pub fn address(mut self, address: u64) -> Self {
        self.address = Some(address);
        self
    }

    /// The size of a new log in bytes. A larger one is recycled less often and takes longer to read back after a crash.
    pub fn log_bytes(mut self, bytes: u64) -> Self {
        self.log_bytes = bytes;
        self
    }

    /// The memory for versions of pages that are not in the file yet, in bytes; rounded up to a power of two. It holds
    /// what is committed while a transaction runs that must not see it, until that is too much, see
    /// [`Options::spill_bytes`]. The first process to open the space decides.
    pub fn versions_bytes(mut self, bytes: u64) -> Self {
        self.frames = bytes.div_ceil(PAGE_BYTES as u64);
        self
    }

    /// The room in the file `lock` for versions beyond [`Options::versions_bytes`], in bytes; rounded up to a power of
    /// two, or 0. It is taken when a transaction has run for so long that they do not fit into memory, and given back
    /// when nobody has the space open any more. Together with the size of the log it says how much can be committed
    /// while a transaction runs, however long. The first process to open the space decides.
    pub fn spill_bytes(mut self, bytes: u64) -> Self {
        self.spill = bytes.div_ceil(PAGE_BYTES as u64);
        self
    }

    /// The numbers of frames: in memory, and on the disk.
    pub(crate) fn frames(&self) -> (u64, u64) {
        let spill = match self.spill {
            0 => 0,
            spill => spill.next_power_of_two(),
        };
        (self.frames.next_power_of_two(), spill)
    }

    /// How long a commit waits for another transaction that keeps old versions from being given up, before it fails
    /// with [`Error::Pinned`], and for one that goes first, or is in the middle of a commit or of bringing versions
    /// into the file, before it fails with [`Error::Stalled`]. 10 seconds by default.
    pub fn patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// Whether a transaction that has lost waits, before it tries again, for older ones that have lost too and that it
    /// would have to make way for after its work. It does by default.
    pub fn backoff(mut self, backoff: bool) -> Self {
        self.backoff = backoff;
        self
    }

    /// Whether mode tracked may learn of accesses with userfaultfd(2), where the system allows that; otherwise it
    /// protects pages. Yes by default.
    #[must_use]
    pub fn userfault(mut self, userfault: bool) -> Self {
        self.userfault = userfault;
        self
    }

    /// Refuses a space that was made otherwise than it is asked for.
    pub(crate) fn check_made(&self, header: &Header) -> Result<()> {
        let differs = |what, made: &dyn fmt::Display, asked: &dyn fmt::Display| {
            let (made, asked) = (made.to_string(), asked.to_string());
            Err(Error::MadeOtherwise { what, made, asked })
        };
        let (mode, durability, address) = (header.mode, header.durability, header.address);
        if let Some(asked) = self.mode.filter(|asked| *asked != mode) {
            return differs("mode", &mode.name(), &asked.name());
        }
        if let Some(asked) = self.durability.filter(|asked| *asked != durability) {
            return differs("durability", &durability.name(), &asked.name());
        }
        if let Some(asked) = self.address.filter(|asked| *asked != address) {
            let at = |address| format!("{address:#x}");
            return differs("address", &at(address), &at(asked));
        }
        Ok(())
    }

    fn is_address(&self, address: u64) -> bool {
        let bytes = self.room(self.pages.max(self.grown_pages)) * PAGE_BYTES as u64;
        address != 0
            && address.is_multiple_of(ALIGNMENT)
            && address.saturating_add(bytes) <= END
            && self.mode != Some(Mode::Explicit)
    }

    pub(crate) fn check(&self) -> Result<()> {
        if let Some(layout) = &self.layout {
            root_page::check_name(&layout.name)?;
        }
        if self.pages <= page_of(RESERVED_BYTES) || self.pages.max(self.grown_pages) > PAGES_MAX {
            Err(Error::BadOptions(
                "it has more than the 72 KiB that its allocator takes up, and at most 16 TiB less 16 GiB",
            ))
        } else if self.frames == 0 || self.frames > FRAMES_MAX {
            Err(Error::BadOptions(
                "versions take up 1 byte to 16 GiB of memory",
            ))
        } else if self.spill > FRAMES_MAX {
            Err(Error::BadOptions(
                "versions take up at most 16 GiB of the disk",
            ))
        } else if self.log_bytes > sapwood_wal::LOG_BYTES_MAX {
            Err(Error::BadOptions("the log has at most 1 TiB"))
        } else if let Some(address) = self.address
            && !self.is_address(address)
        {
            Err(Error::BadOptions(NO_ADDRESS))
        } else {
            Ok(())
        }
    }
}

/// A space: a file of pages that transactions read and write as memory. Clones are the same space.
///
/// ```
/// use sapwood_xact::{BPlusTree, Error, Options, Space};
///
/// # let scratch = tempfile::tempdir().unwrap();
/// # let (folder, copy) = (scratch.path().join("space"), scratch.path().join("copy"));
/// let space = Space::open(&folder, &Options::new().bytes(1 << 24))?;
/// let tree = space.transaction(|t| Ok::<_, Error>(BPlusTree::create(t, 4096)?.offset()))?;
/// space.transaction(|t| BPlusTree::open(t, tree)?.insert(b"colour", b"green"))?;
/// space.back_up(&copy)?;
///
/// let copy = Space::open(&copy, &Options::new().create(false))?;
/// let mut reader = copy.begin_read()?;
/// assert_eq!(BPlusTree::open(&mut reader, tree)?.get(b"colour")?, Some(&b"green"[..]));
/// # Ok::<(), Error>(())
/// ```
#[derive(Clone)]
pub struct Space {
    pub(crate) inner: Arc<Inner>,
}

impl Space {
    /// Opens the space in the folder `path`, or makes it. The first process to open it recovers it.
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::Log`], [`Error::Damaged`], [`Error::UnknownVersion`], [`Error::MadeOtherwise`],
    /// [`Error::OtherLayout`], [`Error::ProcessesFull`], [`Error::BadOptions`].
    pub fn open(path: impl AsRef<Path>, options: &Options) -> Result<Self> {
        let space = open::open(path.as_ref(), options)?;
        space.check_layout()?;
        Ok(space)
    }

    /// A space in the memory of this process.
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::BadOptions`].
    pub fn in_memory(options: &Options) -> Result<Self> {
        Self::open_storage(Arc::new(MemoryFolder::new()), options)
    }

    /// A space on a storage that no other process can see, such as a simulated disk.
    ///
    /// # Errors
    /// As [`Space::open`].
    pub fn open_storage(storage: Arc<dyn Storage>, options: &Options) -> Result<Self> {
        let space = open::open_storage(storage, options)?;
        space.check_layout()?;
        Ok(space)
    }

    /// Compares what it holds with what it was asked for; a space that nothing was committed to holds that.
    fn check_layout(&self) -> Result<()> {
        let Some(asked) = &self.inner.options.layout else {
            return Ok(());
        };
        let mut made = self.read(|t| t.layout())?;
        if made.is_none() {
            made = self.transaction(|t| {
                let made = t.layout()?;
                if made.is_some() || !t.is_untouched()? {
                    return Ok(made);
                }
                t.set_layout(asked)?;
                Ok::<_, Error>(Some(asked.clone()))
            })?;
        }
        if made.as_ref() == Some(asked) {
            return Ok(());
        }
        let told = made.map(|made| made.to_string());
        Err(Error::OtherLayout {
            made: told.unwrap_or_else(|| "something that it does not name".to_owned()),
            asked: asked.to_string(),
        })
    }

    /// The size in bytes.
    pub fn bytes(&self) -> u64 {
        self.inner.region.size() * PAGE_BYTES as u64
    }

    /// The size in bytes up to which it can grow while it is in use.
    pub fn bytes_reserved(&self) -> u64 {
        self.inner.pages * PAGE_BYTES as u64
    }

    /// Makes it so large, in bytes, unless it is larger, while others may be using it. Transactions that run go on in
    /// what there was when they began. It is on the disk when this returns.
    ///
    /// # Errors
    /// [`Error::InUse`] if it has no places for so many, see [`Options::reserve_bytes`]; those of
    /// [`Space::checkpoint`].
    pub fn grow_to(&self, bytes: u64) -> Result<()> {
        self.inner.grow(bytes.div_ceil(PAGE_BYTES as u64))
    }

    /// The mode it was made with.
    pub fn mode(&self) -> Mode {
        self.inner.mode
    }

    /// The durability it was made with.
    pub fn durability(&self) -> Durability {
        self.inner.durability
    }

    /// Where its plain memory is, if that is always the same.
    pub fn address(&self) -> Option<u64> {
        Some(self.inner.address).filter(|address| *address != 0)
    }

    /// Whether its pages have checksums.
    pub fn has_checksums(&self) -> bool {
        self.inner.verified.is_needed()
    }

    /// Brings what is committed into the file and verifies all of its pages, beside the one that uses the space.
    /// Without checksums there is nothing to verify.
    ///
    /// # Errors
    /// Those of [`Space::checkpoint`] and [`Space::begin_read`]. Pages that are damaged are none.
    pub fn check(&self) -> Result<Checked> {
        self.inner.check_size()?;
        self.checkpoint()?;
        self.inner.check_pages()
    }

    /// Copies the space, as its newest durable commit has left it, into a folder that is made or has none, beside the
    /// one that uses it; gives how many pages that were. The copy is a space of its own: to restore it, open it, or
    /// have it copied to where it is wanted. Every page is verified.
    ///
    /// As long as it takes versions are kept for it as for any long reader, see [`Options::spill_bytes`].
    ///
    /// # Errors
    /// [`Error::PageDamaged`], [`Error::Io`], [`Error::Log`], [`Error::SlotsFull`]. There is no copy then.
    pub fn back_up(&self, path: impl AsRef<Path>) -> Result<u64> {
        self.inner.back_up(path.as_ref())
    }

    /// Runs a transaction: what `body` does happens as a whole, or not at all if it fails. `body` runs again if another
    /// transaction got in the way; the one that began first gets through.
    ///
    /// # Errors
    /// Those of `body`, and those of a commit: [`Error::Pinned`], [`Error::Stalled`], [`Error::Log`], [`Error::Io`],
    /// [`Error::Poisoned`]. After an error of the log or the disk it is undetermined whether the commit survives.
    pub fn transaction<R, E: From<Error>>(
        &self,
        body: impl FnMut(&mut Transaction<'_>) -> Result<R, E>,
    ) -> Result<R, E> {
        self.repeat(body, Wait::Promised)
    }

    /// As [`Space::transaction`], for what nobody is promised, such as the rebalancing of a tree: it does not wait for
    /// the disk. In a durable space the commit becomes durable with the next one that is waited for, or with a
    /// checkpoint. If all processes die before that, or the machine stops, it may be missing: as a whole, and with
    /// everything that was committed after it.
    ///
    /// # Errors
    /// As [`Space::transaction`].
    pub fn transaction_relaxed<R, E: From<Error>>(
        &self,
        body: impl FnMut(&mut Transaction<'_>) -> Result<R, E>,
    ) -> Result<R, E> {
        self.repeat(body, Wait::Relaxed)
    }

    fn repeat<R, E: From<Error>>(
        &self,
        mut body: impl FnMut(&mut Transaction<'_>) -> Result<R, E>,
        wait: Wait,
    ) -> Result<R, E> {
        let mut transaction = Transaction::begin(&self.inner, false)?;
        loop {
            let result = body(&mut transaction);
            let value = match result {
                Ok(value) => value,
                Err(error) => {
                    transaction.abort()?;
                    return Err(error);
                }
            };
            match transaction.try_commit(wait) {
                Ok(()) => return Ok(value),
                Err(Error::Conflict) => {}
                Err(error) => return Err(error.into()),
            }
            transaction.begin_again()?;
        }
    }

    /// Runs a transaction that only reads. It sees what was durable when it began, is never in anybody's way, and never
    /// has to be repeated.
    ///
    /// # Errors
    /// Those of `body`; [`Error::SlotsFull`], [`Error::Nested`].
    pub fn read<R, E: From<Error>>(
        &self,
        body: impl FnOnce(&Transaction<'_>) -> Result<R, E>,
    ) -> Result<R, E> {
        let transaction = Transaction::begin(&self.inner, true)?;
        body(&transaction)
    }

    /// Begins a transaction that the caller commits and, if that fails with [`Error::Conflict`], repeats.
    ///
    /// # Errors
    /// [`Error::SlotsFull`], [`Error::Nested`], [`Error::Forked`], [`Error::Io`].
    pub fn begin(&self) -> Result<Transaction<'_>> {
        Transaction::begin(&self.inner, false)
    }

    /// Begins a transaction that only reads.
    ///
    /// # Errors
    /// As [`Space::begin`].
    pub fn begin_read(&self) -> Result<Transaction<'_>> {
        Transaction::begin(&self.inner, true)
    }

    /// Brings all commits that no running transaction must not see into the file and lets their part of the log be used
    /// again. Happens by itself when the log or the memory for versions is half full.
    ///
    /// # Errors
    /// [`Error::Stalled`], [`Error::Damaged`] if the data file was cut, [`Error::Io`], [`Error::Log`],
    /// [`Error::Poisoned`].
    pub fn checkpoint(&self) -> Result<()> {
        self.inner.check_usable()?;
        self.inner.checkpoint()
    }

    /// What there is to know about it now.
    pub fn stat(&self) -> Stat {
        let inner = &*self.inner;
        let region = &inner.region;
        Stat {
            last: region.last_version(),
            durable: inner.wal.durable().0,
            syncs: inner.wal.syncs(),
            frames: region.frames(),
            frames_used: region.used(),
            pages_applied: region.progress.applied_pages.load(Ordering::Relaxed),
            checkpoints: region.progress.checkpoints.load(Ordering::Relaxed),
            transactions: inner
                .slots()
                .filter(|slot| slot.snapshot().is_some())
                .count(),
        }
    }
}

impl fmt::Debug for Space {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Space")
            .field("mode", &self.mode())
            .field("stat", &self.stat())
            .finish_non_exhaustive()
    }
}

/// The state of a space at some moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stat {
    /// How many bytes of log were ever written.
    pub last: u64,
    /// How many of them are durable.
    pub durable: u64,
    /// How many syncs of the log there were since the space was opened by the first process.
    pub syncs: u64,
    /// For how many versions of pages there is memory.
    pub frames: u64,
    /// How many versions there are: more than that while a long transaction keeps them from the file.
    pub frames_used: u64,
    /// How many pages were brought into the file since the space was opened by the first process.
    pub pages_applied: u64,
    /// How often the log was made to begin later since then.
    pub checkpoints: u64,
    /// How many transactions run, in all processes.
    pub transactions: usize,
}

/// What belongs to an open space.
pub(crate) struct Inner {
    pub(crate) region: Arc<Region>,
    pub(crate) membership: Arc<Membership>,
    pub(crate) storage: Arc<dyn Storage>,
    pub(crate) data: Arc<dyn File>,
    pub(crate) writer: PageWriter,
    pub(crate) verified: Verified,
    pub(crate) map: Map,
    pub(crate) wal: Wal,
    pub(crate) id: [u8; 16],
    /// Of the data file: what tells the space from all others, however often it was opened.
    pub(crate) identity: Identity,
    /// The pages that have a place in the file; how many of them are a part of the space, the region says.
    pub(crate) pages: u64,
    pub(crate) mode: Mode,
    pub(crate) durability: Durability,
    pub(crate) options: Options,
    /// Contexts that no transaction uses at the moment; each has a slot.
    pub(crate) idle: Mutex<Vec<Context>>,
    /// Where the space is in memory; 0 if anywhere.
    pub(crate) address: u64,
    /// These addresses. They outlive the contexts.
    pub(crate) addresses: Option<AddressRange>,
}

impl Inner {
    /// Refuses a space that is no longer fit for use.
    pub(crate) fn check_usable(&self) -> Result<()> {
        if self.membership.is_forked() {
            return Err(Error::Forked);
        }
        if self.region.poisoned.load(Ordering::SeqCst) != 0 {
            return Err(Error::Poisoned);
        }
        Ok(())
    }

    /// Refuses a data file that somebody has shortened, before more of it is used.
    pub(crate) fn check_size(&self) -> Result<()> {
        let size = self.data.size().doing("cannot look at the data file")?;
        if size < self.map.reserved() as u64 {
            self.poison();
            let cut = format!("somebody has cut the data file to {size} bytes");
            return Err(Error::Damaged(cut));
        }
        Ok(())
    }

    /// Has everybody stop.
    pub(crate) fn poison(&self) {
        self.region.poisoned.store(1, Ordering::SeqCst);
    }

    pub(crate) fn is_alive(&self, process: u16) -> bool {
        self.membership
            .is_alive(process, &self.region.processes[..])
    }

    /// The id of the process with an entry.
    pub(crate) fn pid_of(&self, process: u16) -> u32 {
        let entry = self.region.processes.get(usize::from(process));
        entry.map_or(0, |entry| entry.pid())
    }

    /// All slots that were ever used.
    pub(crate) fn slots(&self) -> impl Iterator<Item = &Slot> {
        let end = self.region.slots.end.load(Ordering::SeqCst) as usize;
        self.region.slots.table.iter().take(end)
    }

    pub(crate) fn slot(&self, number: u32) -> &Slot {
        &self.region.slots.table[number as usize]
    }

    /// Takes a free slot for a new context.
    pub(crate) fn take_slot(&self) -> Result<u32> {
        let me = self.membership.index();
        let take = || {
            let mut slots = (0..).zip(&self.region.slots.table);
            slots.find(|(_, slot)| slot.take(me))
        };
        let found = take().or_else(|| {
            self.reap_all();
            take()
        });
        let (number, _) = found.ok_or(Error::SlotsFull)?;
        self.region
            .slots
            .end
            .fetch_max(number + 1, Ordering::SeqCst);
        Ok(number)
    }

    /// Gives back the slots of a dead process, unless somebody else is about to; gives whether it has.
    pub(crate) fn reap(&self, process: u16) -> bool {
        let table = &self.region.processes[..];
        let clear = || free_slots_of(&self.region, process);
        self.membership.reap(process, table, clear)
    }

    fn reap_all(&self) {
        let mut owners: Vec<u16> = self.slots().filter_map(Slot::owner).collect();
        owners.sort_unstable();
        owners.dedup();
        for owner in owners {
            if !self.is_alive(owner) {
                self.reap(owner);
            }
        }
    }

    /// Begins a transaction in a slot; waits while one that is too large for the log has the space for itself.
    pub(crate) fn begin_in(&self, slot: u32, read_only: bool) -> Result<Snapshot> {
        self.check_usable()?;
        let region = &*self.region;
        let sees_durable = read_only && self.durability == Durability::Durable;
        loop {
            let begun = self.slot(slot).begin(region, self.options.guards, || {
                let last = region.last_version();
                if sees_durable {
                    last.min(self.wal.durable().0)
                } else {
                    last
                }
            });
            let gate = match begun {
                Ok(snapshot) => return Ok(snapshot),
                Err(gate) => gate,
            };
            self.slot(slot).end();
            wait_while(&region.gate, gate);
            let owner = u16::try_from(gate - 1).unwrap_or(u16::MAX);
            if region.gate.load(Ordering::SeqCst) == gate && !self.is_alive(owner) {
                self.open_gate_of_dead(owner)?;
            }
            self.check_usable()?;
        }
    }

    /// Waits until what a transaction has seen is durable.
    pub(crate) fn wait_durable(&self, version: u64) -> Result<()> {
        if self.durability == Durability::Durable && self.wal.durable().0 < version {
            self.wal.sync_to(Lsn(version))?;
        }
        Ok(())
    }

    /// Where a page is in the file that is mapped.
    pub(crate) fn page_in_file(&self, page: u64) -> *const PageBytes {
        debug_assert!(page < self.pages);
        let offset = (page + HEADER_PAGES) as usize * PAGE_BYTES;
        self.map.as_ptr().wrapping_add(offset).cast()
    }

    /// Asks the system to read a range of the file ahead; a hint.
    pub(crate) fn prefetch(&self, offset: u64, bytes: u64) {
        let offset = usize::try_from(offset_in_file(0).saturating_add(offset));
        if let (Ok(offset), Ok(bytes)) = (offset, usize::try_from(bytes)) {
            self.map.prefetch(offset, bytes);
        }
    }

    pub(crate) fn idle(&self) -> MutexGuard<'_, Vec<Context>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Where a page is in the data file.
pub(crate) fn offset_in_file(page: u64) -> u64 {
    (page + HEADER_PAGES) * PAGE_BYTES as u64
}

/// Frees all slots that a process had.
pub(crate) fn free_slots_of(region: &Region, process: u16) {
    for slot in &region.slots.table {
        if slot.owner() == Some(process) {
            slot.free(&region.slots);
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if !self.membership.is_forked() {
            free_slots_of(&self.region, self.membership.index());
        }
    }
}
