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
use std::path::Path;

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
    /// The record is not here yet. The snapshot, or the bundle's transaction, has noted that it is wanted. Fetch it and
    /// ask again. Nothing visible has changed.
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
    /// A file given to the engine, such as a backup, is not what it should be. The store itself is not affected.
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

/// The limits of an engine. It answers [`Error::TooLarge`] to what exceeds them. An operation of a bundle is undone
/// then, and the bundle decides what becomes of it.
#[derive(Clone, Copy, Debug)]
pub struct Caps {
    /// Largest key of a table.
    pub key_bytes_max: usize,
    /// Largest value of a table.
    pub value_bytes_max: usize,
    /// Most bytes of keys and values that the operations of one bundle may write. The few bytes that
    /// [`finish`](Bundle::finish) writes are not counted.
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

    /// What an ended snapshot leaves to the next one of the same commit.
    type Retired: Send + Sync + 'static;
    /// The promise that a bundle becomes durable.
    type Ticket: Ticket;

    /// The engine's limits.
    fn caps(&self) -> Caps;

    /// The number of stores, each with a writer of its own. 1 for an engine without stores.
    fn stores(&self) -> usize {
        1
    }

    /// Whether there is less memory than data, so that reads wait for the disk.
    fn exceeds_memory(&self) -> bool {
        false
    }

    /// A snapshot of the newest visible commit. With an engine whose reads may answer [`Error::NotHere`], this may
    /// block for a round to another machine. A thread that others wait for lets another thread call it.
    fn snapshot(&self) -> Result<Self::Snapshot>;

    /// The same, for work that may block: its reads wait for what is not here, and never answer [`Error::NotHere`].
    fn waiting_snapshot(&self) -> Result<Self::Snapshot> {
        self.snapshot()
    }

    /// Fetches in one round whatever reads of a snapshot wanted and did not find here, those of other searches
    /// included. Returns when all of it is here.
    fn fetch(snapshot: &Self::Snapshot) -> Result<()> {
        let _ = snapshot;
        Ok(())
    }

    /// Ends a snapshot, which no longer holds its commit.
    fn end(snapshot: Self::Snapshot) -> Self::Retired;

    /// A snapshot of the newest visible commit, and whether `retired` is of the same one. It then starts with what that
    /// snapshot knew.
    fn snapshot_after(&self, retired: Self::Retired) -> Result<(Self::Snapshot, bool)>;

    /// Runs a bundle as one transaction. The engine decides on order, retries and the commit, so that `bundle` may run
    /// more than once. The bundle is applied when this returns, and durable and visible once the ticket says so. There
    /// is no ticket if no operation was kept.
    fn write<B: Bundle>(&self, bundle: &mut B) -> Result<Option<Self::Ticket>>;

    /// Builds whole tables from sorted input in one commit; see [`Load`]. Durable and visible on return.
    fn load<L: Load>(&self, load: &mut L) -> Result<CommitNo>;

    /// Does what commits in some stores have put off (pending postings), which makes reads cheaper. Durable on return.
    fn settle(&self, stores: StoreSet) -> Result<()> {
        let _ = stores;
        Ok(())
    }

    /// Writes a hot copy of the newest durable commit to `dest`, which must not exist: a file or, of several stores, a
    /// folder with one for each. Blocks for as long as that takes.
    fn back_up(&self, dest: &Path) -> Result<()> {
        let _ = dest;
        Err(Error::Unavailable("this engine makes no backups".into()))
    }

    /// The place in the change feed behind all that a snapshot shows.
    fn position(&self, snapshot: &Self::Snapshot) -> FeedPosition;

    /// Passes the records of [`Write::record_change`] that a snapshot shows after a position to `each`, each with the
    /// position after it, until `each` returns false. Records of one store come in commit order. Records of several
    /// stores come in an order in which clients may have seen the changes happen. [`Error::TooOld`] if records after
    /// the position were dropped, or if the position is later than the snapshot.
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

/// The place of a record in a snapshot that has it.
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

    /// How many candidates after a missing one are [wanted](Read::want) together with it. None where everything is
    /// here.
    const PREFETCHED_CANDIDATES: usize = 0;

    /// Announces reads of these keys, so that the next fetch brings their values.
    fn want<K: AsRef<[u8]>>(&self, table: Table, keys: &[K]) {
        let _ = (table, keys);
    }

    /// Notes that a decision depends on this record, though the operation does not touch it otherwise, such as a group
    /// that grants a right. An engine with other writers checks before the commit that nobody has changed the record,
    /// as with [`guard`](Write::guard). An engine whose writers take turns need not.
    #[inline]
    fn rely_on(&self, table: Table, key: &[u8]) {
        let _ = (table, key);
    }

    /// The exact number of an entry's children: names below it in [`Table::Name`]. Engines implement it if their
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

    /// The commit of a snapshot, or the one that a transaction is going to be.
    fn commit(&self) -> CommitNo;

    /// The value of `key`. A table that was never written is empty.
    fn get(&self, table: Table, key: &[u8]) -> Result<Option<Self::Value<'_>>>;

    /// Prefetches what [`get`](Read::get) will read for these keys, all at the same time, into the processor's caches.
    /// Returns whether there was anything to gain. Where [`get_at`](Read::get_at) is faster than `get`, passes the
    /// position of a key in `keys` and the place of its record to `each`.
    fn prefetch<K: AsRef<[u8]>>(
        &self,
        table: Table,
        keys: &[K],
        each: impl FnMut(usize, Place),
    ) -> Result<bool> {
        let _ = (table, keys, each);
        Ok(false)
    }

    /// As [`get`](Read::get), for a key whose place came from [`prefetch`](Read::prefetch) of the same snapshot.
    fn get_at(&self, table: Table, place: Place, key: &[u8]) -> Result<Option<Self::Value<'_>>> {
        let _ = place;
        self.get(table, key)
    }

    /// Passes the value of each key to `each`, with the key's position in `keys`. All of them are prefetched together.
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

    /// The same, and prefetches what [`put`](Write::put) will read for these keys, too.
    fn get_each_to_put<K: AsRef<[u8]>>(
        &self,
        table: Table,
        keys: &[K],
        each: impl FnMut(usize, Option<&[u8]>),
    ) -> Result<()> {
        self.get_each(table, keys, each)
    }

    /// As [`prefetch`](Read::prefetch), for the lists that [`cardinality`](Read::cardinality) will read under these
    /// keys of an index.
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

    /// An estimate of the number of records in `range`. Only the choice between plans may depend on it.
    fn estimate(&self, table: Table, range: Range<'_>) -> Result<u64>;

    /// How many records of a [counted](Table::is_counted) table come before `key`, exactly. Engines implement it, and
    /// [`key_at`](Read::key_at), if they need not count the records one by one.
    fn rank(&self, table: Table, key: &[u8]) -> Result<u64> {
        let range = Range {
            from: Bound::Unbounded,
            to: Bound::Excluded(key),
        };
        let mut records = self.scan(table, range, Direction::Forward)?;
        let mut before = 0;
        while records.next()?.is_some() {
            before += 1;
        }
        Ok(before)
    }

    /// The key of the record of a [counted](Table::is_counted) table that so many come before.
    fn key_at(&self, table: Table, before: u64) -> Result<Option<Vec<u8>>> {
        key_by_counting(self, table, before)
    }

    /// The ids filed under `key`, ascending.
    fn postings(&self, index: Index, key: &[u8]) -> Result<Self::Postings<'_>>;

    /// Passes every key of an index in `range` (of index keys) with its ids to `each`, store by store in key order,
    /// until it returns false. This is how indexes are checked, and how ranges of values are read from equality
    /// indexes.
    fn scan_index(
        &self,
        index: Index,
        range: Range<'_>,
        each: impl FnMut(&[u8], EntryId) -> bool,
    ) -> Result<()>;

    /// An estimate of the number of ids filed under `key`, exact while they fit into a few blocks. `few` becomes the
    /// ids if there are at most [`POSTINGS_FEW_MAX`], so that the caller need not read the list, and empty otherwise.
    fn cardinality(&self, index: Index, key: &[u8], few: &mut Vec<EntryId>) -> Result<u64>;

    /// The store in which an entry with this key in the name table gets its id.
    fn birthplace(&self, name_key: &[u8]) -> u16;

    /// The end of the ids of a store: no entry here has this id or a later one. `None` where ids are not given in
    /// ascending order.
    fn ids_end(&self, store: u16) -> Result<Option<EntryId>> {
        let _ = store;
        Ok(None)
    }

    /// Whether the index was created. Only the directory knows whether it is complete.
    fn has_index(&self, index: Index) -> Result<bool>;

    /// Passes the last record of each store in the change feed to `each`.
    fn last_changes(&self, each: impl FnMut(&[u8])) -> Result<()>;
}

/// What [`Read::key_at`] finds, record by record.
fn key_by_counting<R: Read + ?Sized>(
    view: &R,
    table: Table,
    before: u64,
) -> Result<Option<Vec<u8>>> {
    let mut records = view.scan(table, Range::ALL, Direction::Forward)?;
    for _ in 0..before {
        if records.next()?.is_none() {
            return Ok(None);
        }
    }
    Ok(records.next()?.map(|(key, _)| key.to_vec()))
}

/// What a transaction can do besides reading.
pub trait Write: Read {
    /// Sets the value of `key`.
    fn put(&mut self, table: Table, key: &[u8], value: &[u8]) -> Result<()>;
    /// Sets the value of `key`, which must be new: [`Error::Exists`] otherwise.
    fn insert(&mut self, table: Table, key: &[u8], value: &[u8]) -> Result<()>;
    /// Removes `key`; whether it was there.
    fn delete(&mut self, table: Table, key: &[u8]) -> Result<bool>;

    /// States that the operation depends on this record, which nobody else may change until the commit. What the
    /// operation writes need not be guarded.
    fn guard(&mut self, table: Table, key: &[u8]) -> Result<()>;
    /// States that this operation needs `parent` to stay while a child is added below it. Free under one writer; a lock
    /// key under snapshot isolation.
    fn guard_child(&mut self, parent: EntryId) -> Result<()>;
    /// States that this operation removes `parent` and needs it to stay without children.
    fn guard_removal(&mut self, parent: EntryId) -> Result<()>;
    /// States that the operation gives an entry another parent, and needs all entries above that to stay where they
    /// are. No other move may happen until the commit.
    fn guard_move(&mut self) -> Result<()>;

    /// A new id for the entry with this key in the name table, in the store that is its [birthplace](Read::birthplace).
    /// No other entry has it or ever had it. Later ids need not be greater, and an id may be lost when its operation is
    /// undone or runs again. `None` when the store has used all ids.
    fn new_id(&mut self, name_key: &[u8]) -> Result<Option<EntryId>>;

    /// Makes an index readable in this transaction, in which it reads as empty before. Writing to it has the same
    /// effect. Returns whether the index exists. From now on reading the list of a key costs the same however much the
    /// transaction writes.
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
