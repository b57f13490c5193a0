//! Snapshots and the trees in them.

use std::fmt;
use std::mem::ManuallyDrop;

use crate::env::Inner;
use crate::error::{Error, Result};
use crate::head::{Head, tree_from_words};
use crate::mapped::MappedPages;
use crate::page::{CommitNo, PAGE_BYTES};
use crate::readers::ReaderHandle;
use crate::sync::Arc;
use crate::tree::{Cursor, TreeRecord, View};

/// A tree as a snapshot or an open write transaction sees it; values borrow from that.
pub type Tree<'s> = View<'s, MappedPages>;

/// A cursor over a [`Tree`].
pub type TreeCursor<'s> = Cursor<'s, MappedPages>;

/// An unchanging view of the whole environment as of one commit, held by a slot of the reader table.
///
/// While it lives no page it can see is used again, so the file may grow under a writer: keep it only as long as it is
/// needed. It may be moved to and dropped by another thread.
pub struct Snapshot {
    handle: ManuallyDrop<Box<ReaderHandle>>,
    commit: CommitNo,
    pages: MappedPages,
    catalog: [u64; 6],
}

impl Snapshot {
    #[inline]
    pub(crate) fn begin(inner: &Arc<Inner>) -> Result<Self> {
        inner.check_usable()?;
        let handle = ReaderHandle::take(inner)?;
        let (commit, words) = handle.pin(|commit| inner.region.snapshot_words(commit));
        let [pages, catalog @ ..] = words;
        Ok(Self {
            handle: ManuallyDrop::new(handle),
            commit,
            pages: pinned_pages(inner, pages),
            catalog,
        })
    }

    /// A snapshot together with all roots of its commit.
    pub(crate) fn begin_with_head(inner: &Arc<Inner>) -> Result<(Self, Head)> {
        inner.check_usable()?;
        let handle = ReaderHandle::take(inner)?;
        let (commit, head) = handle.pin(|commit| inner.region.head(commit));
        let head = head?;
        let [pages, words @ ..] = head.roots.to_words();
        let catalog = std::array::from_fn(|at| words[at]);
        let snapshot = Self {
            handle: ManuallyDrop::new(handle),
            commit,
            pages: pinned_pages(inner, pages),
            catalog,
        };
        Ok((snapshot, head))
    }

    /// The commit whose state this is.
    pub fn commit(&self) -> CommitNo {
        self.commit
    }

    /// The size of the store, in bytes: pages that are used or free, without room for growth.
    pub fn store_bytes(&self) -> u64 {
        self.pages.limit() * PAGE_BYTES as u64
    }

    /// The tree of this name, if there is one.
    pub fn tree(&self, name: impl AsRef<[u8]>) -> Result<Option<Tree<'_>>> {
        let name = name.as_ref();
        self.inner().check_usable()?;
        let Some(record) = self.catalog()?.get(name)? else {
            return Ok(None);
        };
        let tree = View::new(&self.pages, decode_record(name, record)?);
        Ok(Some(tree.ordered_by(self.inner().comparators.of(name))))
    }

    /// A tree whose record was read from this very snapshot before ([`Tree::record`](View::record)), without looking
    /// it up again; comparators have to be given again ([`View::ordered_by`]). With the record of another snapshot, reading gives errors or old values.
    pub fn tree_of(&self, record: TreeRecord) -> Result<Tree<'_>> {
        self.inner().check_usable()?;
        Ok(View::new(&self.pages, record))
    }

    /// The names of all trees, ascending bytewise.
    pub fn tree_names(&self) -> Result<Vec<Vec<u8>>> {
        self.inner().check_usable()?;
        self.catalog()?.keys()
    }

    /// The tree of trees.
    pub(crate) fn catalog(&self) -> Result<Tree<'_>> {
        Ok(View::new(&self.pages, tree_from_words(&self.catalog)?))
    }

    pub(crate) fn pages(&self) -> &MappedPages {
        &self.pages
    }

    pub(crate) fn inner(&self) -> &Arc<Inner> {
        &self.handle.inner
    }
}

/// A tree's record as the catalog holds it.
pub(crate) fn decode_record(name: &[u8], record: &[u8]) -> Result<TreeRecord> {
    TreeRecord::decode(record).ok_or_else(|| {
        let name = String::from_utf8_lossy(name);
        Error::Damaged(format!("the catalog's record of tree '{name}' is not one"))
    })
}

#[allow(unsafe_code)] // One promise to keep, about pages that a reader slot has pinned.
#[inline]
fn pinned_pages(inner: &Inner, pages: u64) -> MappedPages {
    // SAFETY: all pages of a commit are within the file, and those it refers to stand still as long as the slot pins it,
    // which is as long as the snapshot lives.
    unsafe { inner.data.pages(pages) }
}

impl Drop for Snapshot {
    #[inline]
    #[allow(unsafe_code)] // Taking a field out of what is being dropped.
    fn drop(&mut self) {
        // SAFETY: the handle is not used again.
        let handle = unsafe { ManuallyDrop::take(&mut self.handle) };
        handle.put_back();
    }
}

impl fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Snapshot")
            .field("commit", &self.commit)
            .finish_non_exhaustive()
    }
}
