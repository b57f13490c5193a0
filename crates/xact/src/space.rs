//! Spaces: what can be asked of them.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use sapwood_wal::storage::{Memory as MemoryFolder, Storage};
use sapwood_wal::sync::Ordering;

use crate::check::Checked;
use crate::commit::Wait;
use crate::context::Idle;
use crate::error::{Error, Result};
use crate::inner::Inner;
use crate::mode::{Durability, Mode};
use crate::open;
use crate::options::Options;
use crate::page::PAGE_BYTES;
use crate::transaction::Transaction;

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
    pub(crate) shared: Arc<Shared>,
}

/// What clones share.
pub(crate) struct Shared {
    /// Goes before `inner`, whose addresses its contexts may have.
    pub(crate) idle: Idle,
    pub(crate) inner: Inner,
}

impl Space {
    /// Opens the space in the folder `path`, or makes it. The first process to open it recovers it.
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::Log`], [`Error::Damaged`], [`Error::UnknownVersion`], [`Error::MadeOtherwise`],
    /// [`Error::OtherLayout`], [`Error::ProcessesFull`], [`Error::BadOptions`].
    pub fn open(path: impl AsRef<Path>, options: &Options) -> Result<Self> {
        Self::new(open::open(path.as_ref(), options)?)
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
        Self::new(open::open_storage(storage, options)?)
    }

    fn new(inner: Inner) -> Result<Self> {
        let idle = Idle::default();
        let space = Self {
            shared: Arc::new(Shared { idle, inner }),
        };
        space.check_layout()?;
        Ok(space)
    }

    /// Compares what it holds with what it was asked for; a space that nothing was committed to holds that.
    fn check_layout(&self) -> Result<()> {
        let Some(asked) = &self.shared.inner.options.layout else {
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
        self.shared.inner.region.size() * PAGE_BYTES as u64
    }

    /// The size in bytes up to which it can grow while it is in use.
    pub fn bytes_reserved(&self) -> u64 {
        self.shared.inner.pages * PAGE_BYTES as u64
    }

    /// Makes it so large, in bytes, unless it is larger, while others may be using it. Transactions that run go on in
    /// what there was when they began. It is on the disk when this returns.
    ///
    /// # Errors
    /// [`Error::InUse`] if it has no places for so many, see [`Options::reserve_bytes`]; those of
    /// [`Space::checkpoint`].
    pub fn grow_to(&self, bytes: u64) -> Result<()> {
        self.shared.inner.grow(bytes.div_ceil(PAGE_BYTES as u64))
    }

    /// The mode it was made with.
    pub fn mode(&self) -> Mode {
        self.shared.inner.mode
    }

    /// The durability it was made with.
    pub fn durability(&self) -> Durability {
        self.shared.inner.durability
    }

    /// Where its plain memory is, if that is always the same.
    pub fn address(&self) -> Option<u64> {
        Some(self.shared.inner.address).filter(|address| *address != 0)
    }

    /// Whether its pages have checksums.
    pub fn has_checksums(&self) -> bool {
        self.shared.inner.verified.is_needed()
    }

    /// Brings what is committed into the file and verifies all of its pages, beside the one that uses the space.
    /// Without checksums there is nothing to verify.
    ///
    /// # Errors
    /// Those of [`Space::checkpoint`] and [`Space::begin_read`]. Pages that are damaged are none.
    pub fn check(&self) -> Result<Checked> {
        self.shared.inner.check_size()?;
        self.checkpoint()?;
        self.shared.inner.check_pages(|| self.begin_read())
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
        self.shared
            .inner
            .back_up(path.as_ref(), || self.begin_read())
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
        let mut transaction = Transaction::begin(&self.shared.inner, &self.shared.idle, false)?;
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
        let transaction = Transaction::begin(&self.shared.inner, &self.shared.idle, true)?;
        body(&transaction)
    }

    /// Begins a transaction that the caller commits and, if that fails with [`Error::Conflict`], repeats.
    ///
    /// # Errors
    /// [`Error::SlotsFull`], [`Error::Nested`], [`Error::Forked`], [`Error::Io`].
    pub fn begin(&self) -> Result<Transaction<'_>> {
        Transaction::begin(&self.shared.inner, &self.shared.idle, false)
    }

    /// Begins a transaction that only reads.
    ///
    /// # Errors
    /// As [`Space::begin`].
    pub fn begin_read(&self) -> Result<Transaction<'_>> {
        Transaction::begin(&self.shared.inner, &self.shared.idle, true)
    }

    /// Brings all commits that no running transaction must not see into the file and lets their part of the log be used
    /// again. Happens by itself when the log or the memory for versions is half full.
    ///
    /// # Errors
    /// [`Error::Stalled`], [`Error::Damaged`] if the data file was cut, [`Error::Io`], [`Error::Log`],
    /// [`Error::Poisoned`].
    pub fn checkpoint(&self) -> Result<()> {
        self.shared.inner.check_usable()?;
        self.shared.inner.checkpoint()
    }

    /// What there is to know about it now.
    pub fn stat(&self) -> Stat {
        let inner = &self.shared.inner;
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
