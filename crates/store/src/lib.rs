//! A memory-mapped, multi-version B+tree store: one file, copy on write, snapshots without locks.
//!
//! An [`Env`] is opened by any number of processes. [`Env::read`] gives a [`Snapshot`], whose [`Tree`]s are read in
//! place; [`Env::write`] gives the one [`WriteTxn`]. Its [`commit`](WriteTxn::commit) applies and logs what was done
//! and gives a [`Ticket`]; [`Ticket::wait_durable`] makes that durable, and visible.

#[cfg(test)]
mod apart_crash_tests;
#[cfg(all(test, feature = "shuttle"))]
mod apart_model_tests;
mod append;
mod archive;
mod background;
mod backup;
pub mod bulk;
mod bulk_load;
mod catalog;
mod check;
mod checkpoint;
mod commit;
mod compact;
#[cfg(test)]
mod compact_tests;
mod comparators;
#[cfg(test)]
mod crash_lives;
#[cfg(test)]
mod crash_tests;
mod env;
pub mod error;
mod file_names;
mod free;
#[cfg(test)]
mod full_disk_tests;
mod guard;
mod head;
mod joint;
#[cfg(test)]
mod joint_crash_tests;
mod mapped;
mod meta;
#[cfg(all(test, feature = "shuttle"))]
mod model_tests;
mod open;
mod options;
mod own;
pub mod page;
#[cfg(test)]
mod places_crash_tests;
mod readers;
mod record;
mod recovery;
mod region;
mod restore;
mod snapshot;
pub mod sort;
#[cfg(test)]
mod space_tests;
mod stat;
mod sync;
pub mod tree;
mod typed;
mod varint;
mod write;

pub use archive::Until;
pub use backup::BackupInfo;
pub use bulk_load::{BulkLoad, BulkTree};
pub use check::{PROBLEMS_MAX, Report};
pub use commit::{Durability, Ticket};
pub use compact::Compacted;
pub use env::Env;
pub use error::{Error, Result};
pub use file_names::FileNames;
pub use free::FreePages;
pub use joint::{JointTicket, JointTxn};
pub use mapped::MappedPages;
pub use meta::FORMAT_VERSION;
pub use options::{LOG_BYTES_DEFAULT, LOG_BYTES_MIN, Options, STORES_MAX};
pub use page::{CommitNo, PageNo};
pub use readers::READERS_MAX;
pub use restore::{Restore, restore};
pub use sapwood_wal::Error as LogError;
pub use sapwood_wal::process::PROCESSES_MAX;
pub use snapshot::{ChangedTree, Parked, Snapshot, Tree, TreeChanges, TreeCursor};
pub use stat::{Reader, Segments, Stat};
pub use tree::{
    Change, Comparator, Comparators, DUPLICATE_BYTES_MAX, Duplicates, KEY_BYTES_MAX, KeyOrder,
    KnownTree, LeafPlace, TreeKind, VALUE_BYTES_MAX,
};
pub use typed::{
    Encoding, FixedEncoding, KeyEncoding, TypedEntry, TypedRange, TypedTree, TypedTreeId, TypedView,
};
pub use write::{
    ChildTxn, CursorInTxn, Savepoint, TREE_NAME_BYTES_MAX, TreeId, WriteCursor, WriteTxn,
};
