//! Write transactions.

pub(crate) mod bulk_load;
mod cursor;
mod known_trees;
mod nested;
pub(crate) mod pages;
mod records;
pub(crate) mod snapshot;
mod trees;
mod writer;

use std::fmt;
use std::sync::atomic::AtomicU64;

use crate::env::background::Background;
use crate::env::{Env, Inner};
use crate::error::{Error, Result};
use crate::format::page::PAGE_BYTES;
use crate::format::roots::Head;
use crate::ids::{CommitNo, PageNo};
use crate::log::checkpoint;
use crate::sync::{Arc, Ordering, lock};
use crate::txn::pages::{TxnPages, Workshop};

use nested::Mark;
use trees::OpenTree;
use writer::WriterLock;

pub(crate) use known_trees::KnownTrees;

pub use cursor::{CursorInTxn, WriteCursor};
pub use nested::{ChildTxn, Savepoint};
pub use trees::TreeId;

/// What tells a write transaction from all others of this process, so that what belongs to one is refused by the
/// others.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct TxnNo(u64);

impl Env {
    /// Begins a write transaction, waiting until no other one is open in any process. It starts from the newest
    /// applied commit, which need not be durable yet. Dropped without [`WriteTxn::commit`] it leaves no trace.
    ///
    /// A thread that has one open already waits for itself for ever.
    pub fn write(&self) -> Result<WriteTxn> {
        WriteTxn::new(WriterLock::take(self)?)
    }

    /// Like [`Env::write`], but gives `None` instead of waiting for another write transaction.
    pub fn try_write(&self) -> Result<Option<WriteTxn>> {
        WriterLock::try_take(self)?.map(WriteTxn::new).transpose()
    }
}

impl TxnNo {
    fn next() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

/// The one write transaction of an environment. It sees its own changes; nobody else does before it is committed and
/// durable. It may be moved to another thread, and other threads may read in it while nobody writes. Dropped without
/// [`WriteTxn::commit`], it leaves no trace.
///
/// After an operation failed with anything but a refusal of its arguments ([`Error::is_refusal`]), the
/// transaction may hold half of that operation: roll back to a savepoint or drop it.
/// Committing it is refused with [`Error::TxnFailed`](crate::Error::TxnFailed).
///
/// ```
/// # fn main() -> sapwood_store::Result<()> {
/// use sapwood_store::{Env, Options, TreeKind};
///
/// let env = Env::in_memory(&Options::new())?;
/// let mut txn = env.write()?;
/// let colours = txn.create_tree("colours", TreeKind::COMPACT)?;
/// txn.put(colours, b"sky", b"blue")?;
/// txn.commit()?.wait_durable()?;
///
/// let snapshot = env.read()?;
/// let colours = snapshot.tree("colours")?.unwrap();
/// assert_eq!(colours.get(b"sky")?, Some(&b"blue"[..]));
/// # Ok(())
/// # }
/// ```
#[must_use = "a transaction that is dropped without being committed changes nothing"]
pub struct WriteTxn {
    number: TxnNo,
    /// `None` once it is over.
    pages: Option<Box<TxnPages>>,
    trees: Vec<OpenTree>,
    savepoints: Vec<Mark>,
    savepoints_so_far: u64,
    /// Counts changes, so that cursors notice them.
    changes: u64,
    /// Extents whose values were written by the caller, to be sealed before the commit.
    reserved: Vec<PageNo>,
    failed: bool,
    /// Dropped last.
    lock: WriterLock,
}

impl WriteTxn {
    fn new(writer: WriterLock) -> Result<Self> {
        let inner = writer.env().inner().clone();
        Background::start(&inner)?;
        let head = inner.region.applied_head()?;
        if inner.is_nearly_full(head.roots.pages) {
            // What the meta pages still protect had better be used again.
            checkpoint::checkpoint(&inner)?;
        }
        let shop = lock(&inner.workshop).take();
        let shop = shop.and_then(|shop| shop.downcast().ok());
        let shop = shop.unwrap_or_else(|| Box::new(Workshop::new(&inner)));
        Ok(Self {
            number: TxnNo::next(),
            pages: Some(TxnPages::new(inner, head, shop)?),
            trees: Vec::new(),
            savepoints: Vec::new(),
            savepoints_so_far: 0,
            changes: 0,
            reserved: Vec::new(),
            failed: false,
            lock: writer,
        })
    }

    /// The number this transaction's commit will have.
    pub fn commit_no(&self) -> CommitNo {
        CommitNo(self.head().commit.0 + 1)
    }

    /// The size of the store when it began, in bytes: pages that are used or free, without room for growth.
    pub fn store_bytes(&self) -> u64 {
        self.head().roots.pages * PAGE_BYTES as u64
    }

    /// The size of the store as it is now, in bytes.
    pub fn store_bytes_now(&self) -> u64 {
        self.pages().view().limit() * PAGE_BYTES as u64
    }

    /// Refuses what cannot be committed, and ends all changes.
    pub(crate) fn finish(&mut self) -> Result<()> {
        self.env().inner().check_usable()?;
        if self.failed {
            return Err(Error::TxnFailed);
        }
        self.seal_reserved()
    }

    pub(crate) fn number(&self) -> TxnNo {
        self.number
    }

    pub(crate) fn env(&self) -> &Env {
        self.lock.env()
    }

    /// The commit it began from.
    pub(crate) fn head(&self) -> &Head {
        self.pages().head()
    }

    pub(crate) fn pages(&self) -> &TxnPages {
        match &self.pages {
            Some(pages) => pages,
            None => unreachable!("only `commit` and `drop` end a transaction"),
        }
    }

    pub(crate) fn pages_mut(&mut self) -> &mut TxnPages {
        self.inner_and_pages().1
    }

    /// The store, and the pages.
    pub(crate) fn inner_and_pages(&mut self) -> (&Arc<Inner>, &mut TxnPages) {
        match &mut self.pages {
            Some(pages) => (self.lock.env().inner(), pages),
            None => unreachable!("only `commit` and `drop` end a transaction"),
        }
    }

    pub(crate) fn end(&mut self, committed: bool) {
        if let Some(pages) = self.pages.take() {
            let inner = self.lock.env().inner();
            *lock(&inner.workshop) = Some(pages.into_shop(committed));
        }
    }
}

impl Drop for WriteTxn {
    fn drop(&mut self) {
        self.end(false);
    }
}

impl fmt::Debug for WriteTxn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WriteTxn")
            .field("commit", &self.commit_no())
            .field("failed", &self.failed)
            .finish_non_exhaustive()
    }
}

/// Other threads may read in a transaction; `pages` says why that is safe.
const _: () = {
    const fn is_send_and_sync<T: Send + Sync>() {}
    is_send_and_sync::<WriteTxn>();
};
