//! A memory-mapped, multi-version B+tree store: one file, copy on write, snapshots without locks.
//!
//! An [`Env`] is opened by any number of processes. [`Env::read`] gives a [`Snapshot`], whose [`Tree`]s are read in place;
//! [`Env::write`] gives the one [`WriteTxn`], whose [`commit`](WriteTxn::commit) gives a [`Ticket`] to wait for.

mod backup;
pub mod bulk;
mod bulk_load;
mod check;
mod commit;
mod env;
pub mod error;
mod lock;
pub mod page;
mod process;
mod readers;
mod snapshot;
mod stat;
mod sync;
pub mod tree;
mod write;

pub use backup::restore;
pub use bulk_load::{BulkLoad, BulkTree};
pub use check::{PROBLEMS_MAX, Report};
pub use commit::Ticket;
pub use env::{CHECKPOINT_BYTES_DEFAULT, Env, Options};
pub use error::{Error, Result};
pub use page::{CommitNo, PageNo};
pub use process::PROCESSES_MAX;
pub use readers::READERS_MAX;
pub use snapshot::{MappedPages, Snapshot, Tree, TreeCursor};
pub use stat::{Reader, Stat};
pub use tree::{KEY_BYTES_MAX, TreeKind, VALUE_BYTES_MAX};
pub use write::{Savepoint, TREE_NAME_BYTES_MAX, TreeId, WriteTxn};
