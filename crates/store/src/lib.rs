//! A memory-mapped, multi-version B+tree store: one file, copy on write, snapshots without locks.
//!
//! An [`Env`] is opened by any number of processes. [`Env::read`] gives a [`Snapshot`], whose [`Tree`]s are read in
//! place; [`Env::write`] gives the one [`WriteTxn`]. Its [`commit`](WriteTxn::commit) applies and logs what was done
//! and gives a [`Ticket`]; [`Ticket::wait_durable`] makes that durable, and visible.

mod background;
mod backup;
pub mod bulk;
mod check;
mod commit;
mod compact;
mod env;
pub mod error;
mod format;
mod guard;
mod heap;
mod log;
mod open;
mod page_map;
pub mod sort;
mod space;
mod stat;
mod sync;
#[cfg(test)]
mod tests;
pub mod tree;
mod txn;
mod typed;
mod varint;

pub use backup::BackupInfo;
pub use backup::restore::{Restore, restore};
pub use check::{PROBLEMS_MAX, Report};
pub use commit::multi_store::{JointTicket, JointTxn};
pub use commit::{Durability, Ticket};
pub use compact::Compacted;
pub use env::Env;
pub use env::file_names::FileNames;
pub use env::mapping::MappedPages;
pub use env::options::{LOG_BYTES_DEFAULT, LOG_BYTES_MIN, Options, STORES_MAX};
pub use env::readers::READERS_MAX;
pub use error::{Error, Result};
pub use format::free_list::FreePages;
pub use format::meta::FORMAT_VERSION;
pub use format::page::{CommitNo, PageNo};
pub use log::archive::Until;
pub use sapwood_wal::Error as LogError;
pub use sapwood_wal::process::PROCESSES_MAX;
pub use stat::{Reader, Segments, Stat};
pub use tree::{
    Change, Comparator, Comparators, DUPLICATE_BYTES_MAX, Duplicates, KEY_BYTES_MAX, KeyOrder,
    KnownTree, LeafPlace, TreeKind, VALUE_BYTES_MAX,
};
pub use txn::bulk_load::{BulkLoad, BulkTree};
pub use txn::snapshot::{ChangedTree, Parked, Snapshot, Tree, TreeChanges, TreeCursor};
pub use txn::{
    ChildTxn, CursorInTxn, Savepoint, TREE_NAME_BYTES_MAX, TreeId, WriteCursor, WriteTxn,
};
pub use typed::{
    Encoding, FixedEncoding, KeyEncoding, TypedEntry, TypedRange, TypedTree, TypedTreeId, TypedView,
};

/// Pages, for those who keep trees elsewhere than in an environment.
pub mod page {
    pub use crate::format::page::{
        AppendPages, CommitNo, PAGE_BYTES, PAGE_HEADER_BYTES, PAGE_NO_MAX, Page, PageKind, PageMut,
        PageNo, ReadPages, SnapshotId, Successor, WritePages, checksum,
    };
    pub use crate::format::pointer_leaf::PlaceLeaf;
    pub use crate::heap::{HeapNo, Place, Segment};
    pub use crate::tree::memory::MemoryPages;
}
