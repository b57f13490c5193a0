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
mod ids;
mod limits;
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

pub use crate::env::options::Durability;
pub use crate::format::tree_record::{Duplicates, KeyOrder, TreeKind};
pub use crate::ids::{CommitNo, PageNo};
pub use crate::limits::READERS_MAX;
pub use crate::limits::STORES_MAX;
pub use crate::limits::TREE_NAME_BYTES_MAX;
pub use crate::limits::{DUPLICATE_BYTES_MAX, KEY_BYTES_MAX, VALUE_BYTES_MAX};
pub use backup::BackupInfo;
pub use backup::restore::{Restore, restore};
pub use check::{PROBLEMS_MAX, Report};
pub use commit::Ticket;
pub use commit::multi_store::{MultiStoreTicket, MultiStoreTxn};
pub use compact::Compacted;
pub use env::Env;
pub use env::file_names::FileNames;
pub use env::mapping::MappedPages;
pub use env::options::{LOG_BYTES_DEFAULT, LOG_BYTES_MIN, Options};
pub use error::{Error, Result};
pub use format::free_list::FreePages;
pub use format::meta::FORMAT_VERSION;
pub use log::archive::Until;
pub use sapwood_wal::Error as LogError;
pub use sapwood_wal::process::PROCESSES_MAX;
pub use sapwood_wal::storage::memory_bytes;
pub use stat::{Reader, Segments, Stat};
pub use tree::{Change, Comparator, Comparators, KnownTree, LeafPlace};
pub use txn::bulk_load::{BulkLoad, BulkTree};
pub use txn::snapshot::{ChangedTree, Parked, Snapshot, Tree, TreeChanges, TreeCursor};
pub use txn::{ChildTxn, CursorInTxn, Savepoint, TreeId, WriteCursor, WriteTxn};
pub use typed::{
    Encoding, FixedEncoding, KeyEncoding, TypedEntry, TypedRange, TypedTree, TypedTreeId, TypedView,
};

/// Pages, for those who keep trees elsewhere than in an environment.
pub mod page {
    pub use crate::format::page::{
        PAGE_BYTES, PAGE_HEADER_BYTES, PAGE_NO_MAX, Page, PageKind, checksum,
    };
    pub use crate::format::pages::{AppendPages, ReadPages, WritePages, WriteRecords};
    pub use crate::format::pointer::{RecordPointer, Segment};
    pub use crate::format::pointer_leaf::PointerLeaf;
    pub use crate::ids::HeapNo;
    pub use crate::ids::{CommitNo, PageNo, SnapshotId};
}

/// Runs the program in the package's README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct Readme;

/// Runs the programs in the guide.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/store/guide.md")]
pub struct Guide;
