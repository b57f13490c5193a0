//! The one interface the directory is written against: an ordered, transactional key-value engine that also keeps
//! posting lists and a change feed.
//!
//! It is shaped so that the embedded store pays nothing for it (everything is generic and borrows from the map) and a
//! distributed transactional engine fits under it: values are owned-or-borrowed guards, limits are data ([`Caps`]),
//! posting lists and the rules of the tree are operations, and a [`Bundle`] may be run more than once.
//!
//! | piece | what it is |
//! | --- | --- |
//! | [`Engine`] | opens snapshots, applies bundles, tells what changed |
//! | [`Read`] | what a snapshot and an open transaction can both do |
//! | [`Write`] | what a transaction can do besides |
//! | [`Embedded`] | the engine over `sapwood-store` |
//! | [`Model`] | plain ordered maps: what the conformance suite compares an engine with |
//! | [`Shy`] | on top of another engine, for tests: reads answer [`Error::NotHere`] first, bundles run again |

mod embedded;
pub(crate) mod ids;
mod model;
mod pending;
mod placement;
mod postings;
mod shy;
mod table;

use std::ops::{Bound, Deref};

pub use embedded::{
    Embedded, EmbeddedCursor, EmbeddedPostings, EmbeddedSnapshot, EmbeddedTicket, EmbeddedTxn,
};
pub use model::{Model, ModelSnapshot, ModelTicket, ModelTxn};
pub(crate) use pending::GRAM_BYTES;
pub use placement::StoreSet;
pub(crate) use placement::partition_of;
pub use postings::{INDEX_KEY_BYTES_MAX, append_escaped, take_escaped};
pub(crate) use postings::{put_varint, take_varint};
pub use shy::footprint::Footprint;
pub use shy::{Shy, ShySnapshot};
pub use table::{
    AttributeNo, EntryId, Index, IndexKind, STORE_ENTRIES_MAX, STORES_MAX, Table, TableName,
};

/// The number of a commit, increasing in commit order. 0 is "before the first commit".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CommitNo(pub u64);

/// A place in the change feed: up to which commit it reaches in each store. The default is the place before the first
/// change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FeedPosition(Vec<CommitNo>);

impl FeedPosition {
    /// The last commit of a store that it is behind; 0 for none.
    pub fn commit(&self, store: usize) -> CommitNo {
        self.0.get(store).copied().unwrap_or_default()
    }

    /// The same of all stores that it says something of.
    pub fn commits(&self) -> &[CommitNo] {
        &self.0
    }

    /// Moves it behind a commit of a store, which must be one of an engine's.
    pub fn advance(&mut self, store: usize, commit: CommitNo) {
        if self.0.len() <= store {
            self.0.resize(store + 1, CommitNo(0));
        }
        self.0[store] = commit;
    }
}

/// What an engine can report; the meaning is kept whatever the engine.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Another transaction changed what this one read, more often than the engine retries.
    #[error("conflict with another transaction; try again")]
    Conflict,
    /// What is asked for is not at hand. The snapshot, or the bundle's transaction, has noted that it is wanted: once
    /// that is fetched the same is asked again. Nothing that anybody can see has happened meanwhile.
    #[error("what is asked for has not been fetched yet")]
    NotHere,
    /// [`Write::insert`] met a key that exists.
    #[error("the key exists already")]
    Exists,
    /// A key, value or transaction is larger than [`Caps`] allows.
    #[error("{what} of {bytes} bytes is larger than the {limit_bytes} bytes this engine takes")]
    TooLarge {
        /// What was too large: "key", "value" or "transaction".
        what: &'static str,
        /// Its size.
        bytes: usize,
        /// The limit.
        limit_bytes: usize,
    },
    /// The snapshot or feed position is older than the engine remembers.
    #[error("the snapshot or feed position is older than what is kept")]
    TooOld,
    /// The engine cannot work now (no space, poisoned by a failed sync, not reachable); nothing was changed.
    #[error("the store is unavailable: {0}")]
    Unavailable(String),
    /// A file that the engine was to read is not what it should be, such as no backup. The store has nothing to do with
    /// it.
    #[error("{0}")]
    WrongFile(String),
    /// It is not known whether the commit happened.
    #[error("the outcome of the commit is not known: {0}")]
    Undetermined(String),
    /// Stored data contradicts itself.
    #[error("the store is damaged: {0}")]
    Corrupt(String),
}

/// What an engine call returns.
pub type Result<T> = std::result::Result<T, Error>;

/// The limits of an engine. It answers what is beyond them with [`Error::TooLarge`]: an operation of a bundle is undone
/// then, and what becomes of it is the bundle's to say.
#[derive(Clone, Copy, Debug)]
pub struct Caps {
    /// Largest key of a table.
    pub key_bytes_max: usize,
    /// Largest value of a table.
    pub value_bytes_max: usize,
    /// Largest sum of the keys and values that the operations of one bundle may write. What the bundle writes in
    /// [`finish`](Bundle::finish) comes on top of that, and is small beside it.
    pub transaction_bytes_max: usize,
    /// How long a snapshot can be used; `None` is "as long as it is held".
    pub snapshot_age_max: Option<std::time::Duration>,
}

/// An ordered, transactional engine.
pub trait Engine: Send + Sync + 'static {
    /// A consistent view of one commit; owned, so that a search can keep it between steps.
    type Snapshot: Read + Send + Sync + 'static;
    /// Whether reads of a snapshot may answer [`Error::NotHere`].
    const REMOTE: bool = false;

    /// What a snapshot that has ended knew of its commit.
    type Retired: Send + Sync + 'static;
    /// The promise that a bundle becomes durable.
    type Ticket: Ticket;

    /// The engine's limits.
    fn caps(&self) -> Caps;

    /// How many stores with a writer each there are; 1 for an engine that has no such thing.
    fn stores(&self) -> usize {
        1
    }

    /// The newest visible commit. Where reads may answer [`Error::NotHere`] it may block, too, for a round to another
    /// machine: a thread that others wait for has another one call it.
    fn snapshot(&self) -> Result<Self::Snapshot>;

    /// The same, for work that may block: its reads wait for what is not here, and never answer [`Error::NotHere`].
    fn waiting_snapshot(&self) -> Result<Self::Snapshot> {
        self.snapshot()
    }

    /// Fetches, in one round, all that reads of a snapshot have found not to be here, those of other searches included.
    /// Returns when that is here.
    fn fetch(snapshot: &Self::Snapshot) -> Result<()> {
        let _ = snapshot;
        Ok(())
    }

    /// Ends a snapshot: its commit is held no longer.
    fn end(snapshot: Self::Snapshot) -> Self::Retired;

    /// The newest visible commit, and whether it is the one that `retired` is of. Then it knows what the ended
    /// snapshot knew.
    fn snapshot_after(&self, retired: Self::Retired) -> Result<(Self::Snapshot, bool)>;

    /// Runs a bundle as one transaction. The engine owns order, retry and commit: `bundle` may be run more than once.
    /// When this returns the bundle is applied; it is durable and visible once the ticket says so. No ticket when no
    /// operation was kept.
    fn write<B: Bundle>(&self, bundle: &mut B) -> Result<Option<Self::Ticket>>;

    /// Builds whole tables from sorted input in one commit; see [`Load`]. Durable and visible on return.
    fn load<L: Load>(&self, load: &mut L) -> Result<CommitNo>;

    /// Does what commits in some stores have put off, if there is any, so that reading becomes cheaper. Durable on
    /// return.
    fn settle(&self, stores: StoreSet) -> Result<()> {
        let _ = stores;
        Ok(())
    }

    /// The place in the change feed behind all that a snapshot shows.
    fn position(&self, snapshot: &Self::Snapshot) -> FeedPosition;

    /// Hands the records of [`Write::record_change`] that a snapshot shows behind a position to `each`, with the
    /// position behind each, until `each` answers false. Those of one store come in commit order; those of several in
    /// one that each client may have seen them done in. [`Error::TooOld`] when records behind the position are no
    /// longer kept, or the position is behind what the snapshot shows.
    fn changes(
        &self,
        snapshot: &Self::Snapshot,
        after: &FeedPosition,
        each: impl FnMut(&FeedPosition, &[u8]) -> bool,
    ) -> Result<()>;
}

/// A commit on its way to the disk.
pub trait Ticket: Send + 'static {
    /// Whether [`Ticket::wait`] would return at once.
    fn is_durable(&self) -> bool;
    /// Waits until the commit is durable and visible to new snapshots.
    fn wait(self) -> Result<CommitNo>;
}

/// Direction of a scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Ascending keys.
    Forward,
    /// Descending keys.
    Backward,
}

/// Where a snapshot has a record, if it has it.
#[derive(Clone, Copy, Debug)]
pub struct Place(sapwood_store::LeafPlace);

/// A range of keys, in `memcmp` order.
#[derive(Clone, Copy, Debug)]
pub struct Range<'k> {
    /// Where it begins.
    pub from: Bound<&'k [u8]>,
    /// Where it ends.
    pub to: Bound<&'k [u8]>,
}

impl<'k> Range<'k> {
    /// Every key.
    pub const ALL: Range<'static> = Range {
        from: Bound::Unbounded,
        to: Bound::Unbounded,
    };

    /// `from` and everything after it.
    pub fn from(from: &'k [u8]) -> Range<'k> {
        Range {
            from: Bound::Included(from),
            to: Bound::Unbounded,
        }
    }

    /// `from` up to and without `to`.
    pub fn between(from: &'k [u8], to: &'k [u8]) -> Range<'k> {
        Range {
            from: Bound::Included(from),
            to: Bound::Excluded(to),
        }
    }

    /// Whether `key` lies in the range.
    pub fn contains(&self, key: &[u8]) -> bool {
        let begun = match self.from {
            Bound::Included(from) => key >= from,
            Bound::Excluded(from) => key > from,
            Bound::Unbounded => true,
        };
        begun
            && match self.to {
                Bound::Included(to) => key <= to,
                Bound::Excluded(to) => key < to,
                Bound::Unbounded => true,
            }
    }
}

/// What a snapshot and an open transaction can both do. A transaction reads its own writes.
pub trait Read {
    /// A value: borrowed from the map, or owned by the guard.
    type Value<'r>: Deref<Target = [u8]>
    where
        Self: 'r;
    /// A scan of a table.
    type Cursor<'r>: Cursor
    where
        Self: 'r;
    /// A posting list being read.
    type Postings<'r>: Postings
    where
        Self: 'r;

    /// So many candidates behind one that is not here are [wanted](Read::want) with it; none where all is here.
    const PREFETCHED_CANDIDATES: usize = 0;

    /// Notes that the values of these keys are going to be asked for, so that the next fetch brings them.
    fn want<K: AsRef<[u8]>>(&self, table: Table, keys: &[K]) {
        let _ = (table, keys);
    }

    /// Notes that what is decided now depends on what this record is, although the operation has nothing else to do
    /// with it: a group that gives somebody a right. An engine that others write to as well sees that nobody has
    /// changed it before the transaction is committed, as with [`guard`](Write::guard). To one whose writers take turns
    /// the record is what its own last commit made it.
    #[inline]
    fn rely_on(&self, table: Table, key: &[u8]) {
        let _ = (table, key);
    }

    /// How many children an entry has, exactly: names below it in [`Table::Name`]. To be given by engines whose
    /// [`estimate`](Read::estimate) of that table is not exact.
    fn children(&self, parent: EntryId) -> Result<u64> {
        let (from, to) = parent.children_bounds();
        self.estimate(Table::Name, Range::between(&from, &to))
    }

    /// Whether an entry has a child.
    fn has_children(&self, parent: EntryId) -> Result<bool> {
        let (from, to) = parent.children_bounds();
        let range = Range::between(&from, &to);
        let mut children = self.scan(Table::Name, range, Direction::Forward)?;
        Ok(children.next()?.is_some())
    }

    /// The commit read: a snapshot's own; for a transaction, the one it is going to be.
    fn commit(&self) -> CommitNo;

    /// The value of `key`. A table that was never written is empty.
    fn get(&self, table: Table, key: &[u8]) -> Result<Option<Self::Value<'_>>>;

    /// Has what [`get`](Read::get) is going to read for these keys brought from memory, all of it at the same time.
    /// Whether that was worth it. Tells `each` where the record of a key, given by its place in `keys`, is to be looked
    /// for, if [`get_at`](Read::get_at) is any faster.
    fn prefetch<K: AsRef<[u8]>>(
        &self,
        table: Table,
        keys: &[K],
        each: impl FnMut(usize, Place),
    ) -> Result<bool> {
        let _ = (table, keys, each);
        Ok(false)
    }

    /// As [`get`](Read::get), of a key whose place [`prefetch`](Read::prefetch) of the same snapshot has told.
    fn get_at(&self, table: Table, place: Place, key: &[u8]) -> Result<Option<Self::Value<'_>>> {
        let _ = place;
        self.get(table, key)
    }

    /// Gives the value of each key to `each`, with the key's place in `keys`, all of them brought from memory at the
    /// same time.
    fn get_each<K: AsRef<[u8]>>(
        &self,
        table: Table,
        keys: &[K],
        mut each: impl FnMut(usize, Option<&[u8]>),
    ) -> Result<()> {
        for (at, key) in keys.iter().enumerate() {
            each(at, self.get(table, key.as_ref())?.as_deref());
        }
        Ok(())
    }

    /// The same, together with what [`put`](Write::put) is going to read for these keys.
    fn get_each_to_put<K: AsRef<[u8]>>(
        &self,
        table: Table,
        keys: &[K],
        each: impl FnMut(usize, Option<&[u8]>),
    ) -> Result<()> {
        self.get_each(table, keys, each)
    }

    /// As [`prefetch`](Read::prefetch) for the lists that [`cardinality`](Read::cardinality) is going to read
    /// under these keys of an index.
    fn prefetch_lists<K: AsRef<[u8]>>(&self, index: Index, keys: &[K]) -> Result<bool> {
        let _ = (index, keys);
        Ok(false)
    }

    /// The records of `range`, in key order or against it.
    fn scan(
        &self,
        table: Table,
        range: Range<'_>,
        direction: Direction,
    ) -> Result<Self::Cursor<'_>>;

    /// About how many records `range` has. Nothing but the choice between plans may depend on it.
    fn estimate(&self, table: Table, range: Range<'_>) -> Result<u64>;

    /// The ids filed under `key`, ascending.
    fn postings(&self, index: Index, key: &[u8]) -> Result<Self::Postings<'_>>;

    /// Hands every key of an index in `range` (of index keys) with its ids to `each`, store by store in key order,
    /// until it answers false: how an index is checked, and how a range of values is read from an equality index.
    fn scan_index(
        &self,
        index: Index,
        range: Range<'_>,
        each: impl FnMut(&[u8], EntryId) -> bool,
    ) -> Result<()>;

    /// About how many ids are filed under `key`; exact while they fit a few blocks. If there are no more than
    /// [`POSTINGS_FEW_MAX`] of them, `few` is replaced by the ids, so that the one that asks need not read the list;
    /// otherwise by none.
    fn cardinality(&self, index: Index, key: &[u8], few: &mut Vec<EntryId>) -> Result<u64>;

    /// The store that an entry with this key in the name table is to be numbered in.
    fn birthplace(&self, name_key: &[u8]) -> u16;

    /// The end of the ids that entries of a store have here: none has this one or a later one. `None` where ids are not
    /// given in their order.
    fn ids_end(&self, store: u16) -> Result<Option<EntryId>> {
        let _ = store;
        Ok(None)
    }

    /// Whether the index was created (it may still be incomplete: that is the directory's to know).
    fn has_index(&self, index: Index) -> Result<bool>;

    /// Hands the last record of each store's part of the change feed to `each`.
    fn last_changes(&self, each: impl FnMut(&[u8])) -> Result<()>;
}

/// What a transaction can do besides reading.
pub trait Write: Read {
    /// Sets the value of `key`.
    fn put(&mut self, table: Table, key: &[u8], value: &[u8]) -> Result<()>;
    /// Sets the value of `key`, which must be new: [`Error::Exists`] otherwise.
    fn insert(&mut self, table: Table, key: &[u8], value: &[u8]) -> Result<()>;
    /// Removes `key`; whether it was there.
    fn delete(&mut self, table: Table, key: &[u8]) -> Result<bool>;

    /// States that what this operation does depends on what this record is: nobody else may change it meanwhile. What
    /// an operation writes need not be guarded.
    fn guard(&mut self, table: Table, key: &[u8]) -> Result<()>;
    /// States that this operation needs `parent` to stay while a child is added below it. Free under one writer; a lock
    /// key under snapshot isolation.
    fn guard_child(&mut self, parent: EntryId) -> Result<()>;
    /// States that this operation removes `parent` and needs it to stay without children.
    fn guard_removal(&mut self, parent: EntryId) -> Result<()>;
    /// States that this operation gives an entry another parent and needs what is above that to stay where it is: no
    /// other move may take place meanwhile.
    fn guard_move(&mut self) -> Result<()>;

    /// The id of a new entry, which has this key in the name table: one that no other entry has or had, in the store
    /// that is its [birthplace](Read::birthplace). Later ones need not be greater, and one that is not used, as its
    /// operation is undone or run again, may be lost. `None` when the store has used all.
    fn new_id(&mut self, name_key: &[u8]) -> Result<Option<EntryId>>;

    /// Makes an index readable in this transaction; whether it exists. Writing to it does so, too. Until then it reads
    /// as empty. The list of a key costs the same from now on however much was written.
    fn open_index(&mut self, index: Index) -> Result<bool>;
    /// The same for the ordering table of an attribute.
    fn open_order(&mut self, attribute: AttributeNo) -> Result<bool>;
    /// Makes an empty index; nothing happens when it exists.
    fn create_index(&mut self, index: Index) -> Result<()>;
    /// Drops an index with all it holds; whether it existed.
    fn drop_index(&mut self, index: Index) -> Result<bool>;
    /// Files `id` under `key`; nothing happens when it is there. The index must have been created.
    fn index_add(&mut self, index: Index, key: &[u8], id: EntryId) -> Result<()>;
    /// Takes `id` from under `key`; nothing happens when it is not there.
    fn index_remove(&mut self, index: Index, key: &[u8], id: EntryId) -> Result<()>;

    /// Drops an ordinary table with all it holds; whether it existed. (`Table::Order` of an attribute that is no longer
    /// indexed.)
    fn drop_table(&mut self, table: Table) -> Result<bool>;

    /// Appends the change record of this transaction to the feed. At most once for each transaction.
    fn record_change(&mut self, record: &[u8]) -> Result<()>;
    /// Forgets the oldest change records of the store that this transaction's record is in, one after the other, as
    /// long as the feed of all stores would take more than `bytes_max` if all had as much as this one, or `is_old` says
    /// so of a record: some `work_bytes` of them now, and never the last.
    fn trim_changes(
        &mut self,
        bytes_max: u64,
        work_bytes: u64,
        is_old: impl FnMut(&[u8]) -> bool,
    ) -> Result<()>;
    /// The size of all data without the change feed, in bytes, estimated by that of one of the transaction's stores.
    fn data_bytes(&self) -> Result<u64>;
}

/// What becomes of one operation of a bundle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Its writes stay.
    Keep,
    /// Its writes are undone; the others are not touched, unless the bundle stands or falls as one.
    Undo,
}

/// Operations that become one transaction, each succeeding or failing alone. An error from any method aborts the whole
/// bundle and is returned by [`Engine::write`], but for [`Error::NotHere`], after which an engine may undo the
/// operation, go on with the next, and run them again: also after all were applied and [`finish`](Bundle::finish) was
/// called, as when the commit met another one. Only [`settled`](Bundle::settled) says that it was the last time.
pub trait Bundle {
    /// How many operations there are. They may become fewer while the bundle runs: asked before each.
    fn operations(&self) -> usize;
    /// The stores that the operations are known to write to. An engine that finds that there are others runs the bundle
    /// again.
    fn stores(&self) -> StoreSet {
        StoreSet::FIRST
    }
    /// Whether one [`Verdict::Undo`] undoes all.
    fn stands_or_falls_as_one(&self) -> bool {
        false
    }
    /// Called first in each run; forgets what an earlier run left.
    fn begin<T: Write>(&mut self, txn: &mut T) -> Result<()>;
    /// Applies one operation. What it wrote is undone when it answers [`Verdict::Undo`].
    fn apply<T: Write>(&mut self, txn: &mut T, operation: usize) -> Result<Verdict>;
    /// Called last in each run: what is written once for the whole bundle. Not called when nothing was kept.
    fn finish<T: Write>(&mut self, txn: &mut T) -> Result<()>;
    /// The last run was the last indeed: what was kept in it is committed, what was undone stays undone. What the
    /// bundle remembers from one [`Engine::write`] to the next moves on here, not before.
    fn settled(&mut self) {}
}

/// Tables built bottom-up from sorted input, all becoming visible in one commit. Each table must be empty.
pub trait Load {
    /// Feeds the tables one after the other, each at most once.
    fn run<B: Loader>(&mut self, loader: &mut B) -> Result<()>;
}

/// Takes the records of a table being built: keys ascend.
pub type PushRecord<'f> = dyn FnMut(&[u8], &[u8]) -> Result<()> + 'f;

/// Takes the postings of an index being built: (key, id) ascends, equal pairs are taken once.
pub type PushPosting<'f> = dyn FnMut(&[u8], EntryId) -> Result<()> + 'f;

/// Where a [`Load`] puts what it has.
pub trait Loader {
    /// Builds a table of the records that `fill` pushes.
    fn table(
        &mut self,
        table: Table,
        fill: impl FnOnce(&mut PushRecord<'_>) -> Result<()>,
    ) -> Result<()>;
    /// Builds an index of the postings that `fill` pushes.
    fn index(
        &mut self,
        index: Index,
        fill: impl FnOnce(&mut PushPosting<'_>) -> Result<()>,
    ) -> Result<()>;
}

/// A scan: lends one record at a time.
pub trait Cursor {
    /// The next record.
    fn next(&mut self) -> Result<Option<(&[u8], &[u8])>>;
}

/// A list of no more ids is handed out where it is counted.
pub const POSTINGS_FEW_MAX: usize = 16;

/// A posting list being read: ids ascend.
pub trait Postings {
    /// The next id.
    fn next(&mut self) -> Result<Option<EntryId>>;
    /// The first id at or after `id` that was not read yet, which is then read.
    fn seek(&mut self, id: EntryId) -> Result<Option<EntryId>>;
}
