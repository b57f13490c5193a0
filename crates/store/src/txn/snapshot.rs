//! Snapshots and the trees in them.

use std::fmt;
use std::mem::ManuallyDrop;

use crate::env::mapping::MappedPages;
use crate::env::readers::ReaderHandle;
use crate::env::{Env, Inner};
use crate::error::{Error, Result};
use crate::format::catalog::Catalog;
use crate::format::page::PAGE_BYTES;
use crate::format::pages::ReadPages as _;
use crate::format::roots::{Head, SNAPSHOT_WORDS};
use crate::format::tree_record::TreeRecord;
use crate::ids::CommitNo;
use crate::sync::Arc;
use crate::tree::{Changes, Cursor, KnownTree, View};

/// A tree as a snapshot or an open write transaction sees it; values borrow from that.
pub type Tree<'s> = View<'s, MappedPages>;

/// A cursor over a [`Tree`].
pub type TreeCursor<'s> = Cursor<'s, MappedPages>;

/// The records that differ between two states of a [`Tree`].
pub type TreeChanges<'s> = Changes<'s, MappedPages>;

/// An unchanging view of the whole environment as of one commit, held by a slot of the reader table.
///
/// While it lives no page it can see is used again, so the file may grow under a writer: keep it only as long as it is
/// needed. It may be moved to and dropped by another thread.
///
/// What is read from it cannot outlive it:
///
/// ```compile_fail
/// # use sapwood_store::{Env, Options};
/// # let env = Env::in_memory(&Options::new()).unwrap();
/// let value = {
///     let snapshot = env.read().unwrap();
///     let tree = snapshot.tree("t").unwrap().unwrap();
///     tree.get(b"key").unwrap()
/// };
/// println!("{value:?}");
/// ```
#[must_use = "a snapshot pins its commit only as long as it lives"]
pub struct Snapshot {
    handle: ManuallyDrop<Box<ReaderHandle>>,
    pages: MappedPages,
    /// Decoded when it is asked for.
    catalog: [u64; Catalog::WORDS],
}

impl Env {
    /// The newest visible state, unchanging until the snapshot is dropped. Never waits for anybody.
    ///
    /// Fails with [`Error::ReadersFull`](crate::Error::ReadersFull) if all slots of the reader table are taken.
    #[inline]
    pub fn read(&self) -> Result<Snapshot> {
        Snapshot::begin(self.inner())
    }
}

impl Snapshot {
    #[inline]
    pub(crate) fn begin(inner: &Arc<Inner>) -> Result<Self> {
        inner.check_usable()?;
        let handle = ReaderHandle::take(inner)?;
        let (commit, words) = handle.pin(|commit| inner.region.snapshot_words(commit));
        let [pages, catalog @ ..]: [u64; SNAPSHOT_WORDS] = words;
        Ok(Self {
            handle: ManuallyDrop::new(handle),
            pages: pinned_pages(inner, pages, commit),
            catalog,
        })
    }

    /// A snapshot together with all roots of its commit, for callers that read much of it.
    pub(crate) fn begin_with_head(inner: &Arc<Inner>) -> Result<(Self, Head)> {
        inner.check_usable()?;
        inner.check_file()?;
        let handle = ReaderHandle::take(inner)?;
        let (commit, head) = handle.pin(|commit| inner.region.head(commit));
        let head = head?;
        let (pages, catalog) = (head.roots.pages, head.roots.catalog.to_words());
        let snapshot = Self {
            handle: ManuallyDrop::new(handle),
            pages: pinned_pages(inner, pages, commit),
            catalog,
        };
        Ok((snapshot, head))
    }

    /// The commit whose state this is.
    pub fn commit(&self) -> CommitNo {
        self.pages.as_of()
    }

    /// The size of the store, in bytes: pages that are used or free, without room for growth.
    pub fn store_bytes(&self) -> u64 {
        self.pages.limit() * PAGE_BYTES as u64
    }

    /// Lets go of the snapshot for a while in which nothing is read: as long as nobody wants its pages it can be
    /// resumed.
    pub fn park(self) -> Parked {
        self.handle.park();
        Parked(self)
    }

    /// The tree of this name, if there is one.
    pub fn tree(&self, name: impl AsRef<[u8]>) -> Result<Option<Tree<'_>>> {
        let name = name.as_ref();
        self.inner().check_usable()?;
        let record = self.catalog()?.get(&self.pages, name)?;
        Ok(record.map(|record| self.named_tree(name, record)))
    }

    fn named_tree(&self, name: &[u8], record: TreeRecord) -> Tree<'_> {
        View::new(&self.pages, record).ordered_by(self.inner().comparators.of(name))
    }

    /// A tree that was found in this snapshot before ([`View::known`]), or in another one of the same commit, without
    /// looking it up again; comparators have to be given again ([`View::ordered_by`]).
    ///
    /// Fails with [`Error::ForeignSnapshot`] if it was found in a snapshot of another commit or store.
    #[inline]
    pub fn tree_of(&self, known: &KnownTree) -> Result<Tree<'_>> {
        if known.of != Some(self.pages.state()) {
            return Err(Error::ForeignSnapshot);
        }
        Ok(View::new(&self.pages, known.record))
    }

    /// The trees in which this snapshot differs from another one of the same store, in the order of their names; each
    /// tells its records that differ. The work is in proportion to what was written in between, not to what there is:
    /// whatever both snapshots have in the same pages is passed over. (Trees whose values stand out of line are looked
    /// through leaf by leaf.) The snapshots may be given in any order; `older` is what changes lead away from.
    ///
    /// Fails with [`Error::ForeignSnapshot`] if they are of different stores.
    ///
    /// ```
    /// # fn main() -> sapwood_store::Result<()> {
    /// use sapwood_store::{Change, Env, Options, TreeKind};
    ///
    /// let env = Env::in_memory(&Options::new())?;
    /// let mut txn = env.write()?;
    /// let colours = txn.create_tree("colours", TreeKind::COMPACT)?;
    /// txn.put(colours, b"sea", b"blue")?;
    /// txn.put(colours, b"sky", b"blue")?;
    /// txn.commit()?.wait_durable()?;
    /// let evening = env.read()?;
    ///
    /// let mut txn = env.write()?;
    /// let colours = txn.tree("colours")?.unwrap();
    /// txn.put(colours, b"sky", b"red")?;
    /// txn.delete(colours, b"sea")?;
    /// txn.commit()?.wait_durable()?;
    /// let night = env.read()?;
    ///
    /// let trees = night.changes_since(&evening)?;
    /// assert_eq!(trees[0].name, b"colours");
    /// let mut changes = trees[0].changes();
    /// let deleted = Change { key: b"sea", old: Some(b"blue"), new: None };
    /// assert_eq!(changes.next()?, Some(deleted));
    /// let replaced = Change { key: b"sky", old: Some(b"blue"), new: Some(b"red") };
    /// assert_eq!(changes.next()?, Some(replaced));
    /// assert_eq!(changes.next()?, None);
    /// # Ok(())
    /// # }
    /// ```
    pub fn changes_since<'s>(&'s self, older: &'s Self) -> Result<Vec<ChangedTree<'s>>> {
        self.inner().check_usable()?;
        if !Arc::ptr_eq(&self.inner().region, &older.inner().region) {
            return Err(Error::ForeignSnapshot);
        }
        let [before, now] = [older.catalog()?, self.catalog()?];
        let held = [&before, &now].into_iter().filter_map(Catalog::held);
        let mut names: Vec<_> = held.map(|(name, _)| name.to_vec()).collect();
        let trees = (before.view(&older.pages), now.view(&self.pages));
        let mut records = Changes::between(Some(trees.0), Some(trees.1));
        while let Some(record) = records.next()? {
            names.push(record.key.to_vec());
        }
        let mut cursor = now.view(&self.pages).cursor();
        while cursor.next()? {
            if let Some((name, stored)) = cursor.record()?
                && now.record(name, stored)?.kind.out_of_line
            {
                names.push(name.to_vec());
            }
        }
        names.sort_unstable();
        names.dedup();
        let mut changed = Vec::new();
        for name in names {
            let old = before.get(&older.pages, &name)?;
            let new = now.get(&self.pages, &name)?;
            let tree = ChangedTree {
                old: old.map(|record| older.named_tree(&name, record)),
                new: new.map(|record| self.named_tree(&name, record)),
                name,
            };
            let differs = match (old, new) {
                // The record says nothing of the values.
                (Some(old), Some(new)) if old == new && new.kind.out_of_line => {
                    tree.changes().next()?.is_some()
                }
                _ => old != new,
            };
            if differs {
                changed.push(tree);
            }
        }
        Ok(changed)
    }

    /// The names of all trees, ascending bytewise.
    pub fn tree_names(&self) -> Result<Vec<Vec<u8>>> {
        self.inner().check_usable()?;
        self.catalog()?.view(&self.pages).keys()
    }

    pub(crate) fn catalog(&self) -> Result<Catalog> {
        Catalog::from_words(&self.catalog)
    }

    pub(crate) fn pages(&self) -> &MappedPages {
        &self.pages
    }

    pub(crate) fn inner(&self) -> &Arc<Inner> {
        &self.handle.inner
    }
}

/// A tree that differs between two snapshots: [`Snapshot::changes_since`].
pub struct ChangedTree<'s> {
    /// Its name.
    pub name: Vec<u8>,
    /// The tree in the older snapshot, if it was there.
    pub old: Option<Tree<'s>>,
    /// The tree in the newer snapshot, if it is there.
    pub new: Option<Tree<'s>>,
}

impl<'s> ChangedTree<'s> {
    /// The records that differ. If the tree was made anew as one of another kind, first all that were deleted, then all
    /// that are there.
    pub fn changes(&self) -> TreeChanges<'s> {
        Changes::between(self.old, self.new)
    }
}

impl fmt::Debug for ChangedTree<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ChangedTree({:?})", String::from_utf8_lossy(&self.name))
    }
}

/// A snapshot that nobody reads from at the moment. It keeps its pages until it is more commits old than
/// [`Options::parked_age_max`](crate::Options::parked_age_max) allows and somebody wants them, or until
/// [`Env::expire_parked`](crate::Env::expire_parked).
///
/// ```
/// # fn main() -> sapwood_store::Result<()> {
/// use sapwood_store::{Env, Error, Options};
///
/// let env = Env::in_memory(&Options::new())?;
/// // A client that reads slowly: nothing borrowed from the snapshot outlives this.
/// let parked = env.read()?.park();
/// match parked.resume() {
///     Ok(snapshot) => assert!(snapshot.tree_names()?.is_empty()),
///     Err(Error::SnapshotExpired(commit)) => println!("{commit} is over: begin again"),
///     Err(error) => return Err(error),
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[must_use = "a parked snapshot that is dropped is over"]
pub struct Parked(Snapshot);

impl Parked {
    /// The commit whose state this is.
    pub fn commit(&self) -> CommitNo {
        self.0.commit()
    }

    /// Goes on with the very same state; [`Error::SnapshotExpired`] if it was ended meanwhile.
    pub fn resume(self) -> Result<Snapshot> {
        self.0.inner().check_usable()?;
        match self.0.handle.resume() {
            true => Ok(self.0),
            false => Err(Error::SnapshotExpired(self.0.commit())),
        }
    }
}

#[allow(unsafe_code)] // One promise to keep, about pages that a reader slot has pinned.
#[inline]
fn pinned_pages(inner: &Inner, pages: u64, commit: CommitNo) -> MappedPages {
    // SAFETY: all pages of a commit are within the file, and those it refers to stand still as long as the slot pins
    // it, which is as long as the snapshot lives. So does the region, which says how far the file has grown.
    unsafe {
        let pages = inner.data.pages(pages);
        pages.reading_as_of(commit, &inner.region.room)
    }
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
        write!(f, "Snapshot({})", self.commit())
    }
}
