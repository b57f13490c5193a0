//! Bulk loads: sorted input into full pages, outside of the log.

use std::fmt;

use crate::bulk::TreeBuilder;
use crate::env::Env;
use crate::error::{Error, Result};
use crate::format::page::{PAGE_BYTES, Page};
use crate::format::pages::{AppendPages, WritePages as _};
use crate::format::pointer::Segment;
use crate::format::tree_record::TreeKind;
use crate::ids::{CommitNo, HeapNo, PageNo};
use crate::txn::pages::{TxnPages, WRITTEN_BYTES};
use crate::txn::{TxnNo, WriteTxn};

/// Several trees being built from sorted input, to become visible with one commit. Input in any order goes through a
/// [`Sorter`](crate::sort::Sorter) first.
///
/// ```
/// # fn main() -> sapwood_store::Result<()> {
/// use sapwood_store::sort::Sorter;
/// use sapwood_store::{Env, Options, TreeKind};
///
/// let env = Env::in_memory(&Options::new())?;
/// let mut sorter = Sorter::new(&std::env::temp_dir(), 1 << 20, 1);
/// for word in ["oak", "ash", "elm"] {
///     sorter.push(word.as_bytes(), b"a tree")?;
/// }
/// let mut load = env.bulk()?;
/// let mut words = load.tree("words", TreeKind::COMPACT)?;
/// let mut sorted = sorter.finish()?;
/// while let Some((key, value)) = sorted.next()? {
///     words.push(&mut load, key, value)?;
/// }
/// assert_eq!(words.finish(&mut load)?, 3);
/// load.commit()?;
/// # Ok(())
/// # }
/// ```
#[must_use = "what was built is there only when the load is committed"]
#[derive(Debug)]
pub struct BulkLoad {
    txn: WriteTxn,
    /// Trees that were begun and are not finished.
    unfinished: usize,
    failed: bool,
}

impl Env {
    /// Begins a bulk load: trees built from sorted input, without copy on write and without the log. It is the one
    /// write transaction until it is committed or dropped.
    pub fn bulk(&self) -> Result<BulkLoad> {
        Ok(BulkLoad {
            txn: self.write()?,
            unfinished: 0,
            failed: false,
        })
    }
}

impl BulkLoad {
    /// Begins the tree `name`; [`Error::TreeExists`](crate::Error::TreeExists) if there is one already. Trees may be
    /// built one after the other, or several at once.
    pub fn tree(&mut self, name: impl AsRef<[u8]>, kind: TreeKind) -> Result<BulkTree> {
        let name = name.as_ref();
        if self.txn.tree(name)?.is_some() {
            return Err(Error::TreeExists(String::from_utf8_lossy(name).into()));
        }
        let heap = match kind.out_of_line {
            true => self.txn.pages_mut().new_heap()?,
            false => HeapNo::default(),
        };
        self.unfinished += 1;
        Ok(BulkTree {
            load: self.txn.number(),
            name: name.into(),
            builder: Some(TreeBuilder::in_heap(kind, heap)),
            batch: PageBatch::default(),
        })
    }

    /// Syncs what was built and commits it. Durable and visible on return.
    /// [`Error::TxnFailed`](crate::Error::TxnFailed) after any error, and if a tree was begun and not finished.
    pub fn commit(self) -> Result<CommitNo> {
        self.into_txn()?.commit()?.wait_durable()
    }

    /// Commits what was built in several stores of one environment at once: all of it is there, or nothing. As
    /// [`BulkLoad::commit`] otherwise, and as [`WriteTxn::commit_stores`].
    pub fn commit_stores(loads: Vec<Self>) -> Result<()> {
        let txns = loads.into_iter().map(Self::into_txn);
        WriteTxn::commit_stores(txns.collect::<Result<_>>()?)?.wait_durable()
    }

    fn into_txn(self) -> Result<WriteTxn> {
        // Nothing would refer to the pages of a tree that was not finished.
        if self.failed || self.unfinished > 0 {
            return Err(Error::TxnFailed);
        }
        Ok(self.txn)
    }
}

/// A tree being built by a [`BulkLoad`]; any other one refuses it with [`Error::ForeignTxn`](crate::Error::ForeignTxn).
/// If it is dropped without [`BulkTree::finish`], the load cannot be committed.
pub struct BulkTree {
    /// The transaction of its load.
    load: TxnNo,
    name: Vec<u8>,
    /// `None` after a failure.
    builder: Option<TreeBuilder>,
    batch: PageBatch,
}

impl BulkTree {
    /// Adds a record, whose key must be greater than that of the record before it
    /// ([`Error::NotSorted`](crate::Error::NotSorted)).
    ///
    /// After any error the load cannot be committed.
    pub fn push(&mut self, load: &mut BulkLoad, key: &[u8], value: &[u8]) -> Result<()> {
        self.check_load(load)?;
        let builder = self.builder.as_mut().ok_or(Error::TxnFailed)?;
        let mut pages = BatchPages {
            pages: load.txn.pages_mut(),
            batch: &mut self.batch,
        };
        let pushed = builder.push(&mut pages, key, value);
        load.failed |= pushed.is_err();
        pushed
    }

    /// Completes the tree; the number of its records.
    pub fn finish(mut self, load: &mut BulkLoad) -> Result<u64> {
        self.check_load(load)?;
        let builder = self.builder.take().ok_or(Error::TxnFailed)?;
        let mut pages = BatchPages {
            pages: load.txn.pages_mut(),
            batch: &mut self.batch,
        };
        let finished = builder
            .finish(&mut pages)
            .and_then(|record| pages.finish().map(|()| record));
        load.failed |= finished.is_err();
        let record = finished?;
        load.txn.add_built_tree(&self.name, record)?;
        load.unfinished -= 1;
        Ok(record.records)
    }

    fn check_load(&self, load: &BulkLoad) -> Result<()> {
        match load.txn.number() == self.load {
            true => Ok(()),
            false => Err(Error::ForeignTxn),
        }
    }
}

impl fmt::Debug for BulkTree {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BulkTree({:?})", String::from_utf8_lossy(&self.name))
    }
}

/// Neighbouring pages taken for one tree, so that its pages lie together though others are built at the same time; they
/// are collected and written with one call.
#[derive(Default)]
struct PageBatch {
    first: PageNo,
    pages: usize,
    used: usize,
    /// The last of the used pages, not written yet.
    bytes: Vec<u8>,
}

/// How many pages a tree takes at first; each time, twice as many.
const BATCH_PAGES_MIN: usize = 4;
/// How many it takes at most.
const BATCH_PAGES_MAX: usize = if cfg!(test) { 8 } else { 128 };

/// The pages of one tree of the transaction.
struct BatchPages<'r> {
    pages: &'r mut TxnPages,
    batch: &'r mut PageBatch,
}

impl BatchPages<'_> {
    /// Writes what is collected and gives back what was not used.
    fn finish(&mut self) -> Result<()> {
        self.write()?;
        let PageBatch {
            first, pages, used, ..
        } = *self.batch;
        self.pages
            .give_back_run(PageNo(first.0 + used as u64), (pages - used) as u32);
        *self.batch = PageBatch::default();
        Ok(())
    }

    fn write(&mut self) -> Result<()> {
        let written = self.batch.used - self.batch.bytes.len() / PAGE_BYTES;
        let first = PageNo(self.batch.first.0 + written as u64);
        self.pages.write_run(first, &[&self.batch.bytes])?;
        self.batch.bytes.clear();
        Ok(())
    }
}

impl AppendPages for BatchPages<'_> {
    fn commit(&self) -> CommitNo {
        self.pages.commit()
    }

    fn append(&mut self, page: &mut Page) -> Result<PageNo> {
        if self.batch.bytes.len() >= WRITTEN_BYTES {
            self.write()?;
        }
        if self.batch.used == self.batch.pages {
            self.write()?;
            let pages = (2 * self.batch.pages).clamp(BATCH_PAGES_MIN, BATCH_PAGES_MAX);
            self.batch.first = self.pages.take_run(pages as u32)?;
            (self.batch.pages, self.batch.used) = (pages, 0);
        }
        let number = PageNo(self.batch.first.0 + self.batch.used as u64);
        self.batch.used += 1;
        page.finish(number, self.pages.commit());
        self.batch.bytes.extend_from_slice(page.bytes());
        Ok(number)
    }

    fn take_extent(&mut self, pages: u32) -> Result<PageNo> {
        self.pages.take_run(pages)
    }

    fn write_extent(&mut self, first: PageNo, parts: [&[u8]; 3]) -> Result<()> {
        self.pages.write_run(first, &parts)
    }

    fn keep_segment(&mut self, heap: HeapNo, segment: Segment, used: u32) -> Result<()> {
        self.pages.keep_built_segment(heap, segment, used)
    }
}
