//! Memory-mapped transactions: loads and stores in a mapped file, made atomic, isolated and durable, for several
//! threads and processes at once.
//!
//! A [`Space`] is a folder whose file is memory. What happens there happens in a [`Transaction`], as a whole or not at
//! all; it is on the disk when it has been committed.
//!
//! ```
//! use sapwood_xact::{Error, Memory, Options, Ptr, Space};
//!
//! # let folder = tempfile::tempdir().unwrap();
//! # let folder = folder.path();
//! let space = Space::open(folder, &Options::new().bytes(1 << 24).layout("counter", 1))?;
//! let count = || {
//!     space.transaction(|t| {
//!         let mut counter: Ptr<u64> = Ptr::new(t.named_root("counter")?);
//!         if counter.is_none() {
//!             counter = t.place(&0)?;
//!             t.set_named_root("counter", counter.get())?;
//!         }
//!         let count = t.load(counter)? + 1;
//!         t.store(counter, &count)?;
//!         Ok::<_, Error>(count)
//!     })
//! };
//! assert_eq!(count()?, 1);
//! assert_eq!(count()?, 2);
//! # Ok::<(), Error>(())
//! ```
//!
//! The closure runs again if another transaction got in the way. Structures are serial code over a [`Memory`]: the
//! [`BPlusTree`], the [`CacheObliviousTree`], the [`HashMap`], the [`Vector`], the [`Queue`], the [`Text`], and any
//! other.
//!
//! Where it runs: Linux, 64 bits, pages of 4096 bytes. Limits: 16 TiB less 16 GiB a space, [`SLOTS_MAX`] transactions
//! at once, 128 processes, [`NAMED_ROOTS_MAX`] named roots, [`VALUE_BYTES_MAX`] for a value of a tree.

pub mod abi;
mod address;
mod allocator;
#[cfg(all(test, not(shuttle)))]
mod allocator_tests;
mod area;
mod backup;
mod block;
mod buffer;
mod check;
mod commit;
mod context;
#[cfg(all(test, not(shuttle)))]
mod crash_tests;
mod demand;
mod error;
mod explicit;
mod file;
mod fixed;
mod granule;
mod grow;
mod guard;
mod hash_map;
mod header;
mod heap;
mod inner;
#[cfg(all(test, not(shuttle)))]
mod kill_tests;
mod large_file;
mod memory;
mod mode;
#[cfg(all(test, shuttle))]
mod model_tests;
mod open;
mod options;
mod page;
mod page_writer;
mod places;
mod plain;
mod queue;
mod record;
mod recovery;
mod region;
mod root_page;
mod running;
mod space;
mod step;
mod structure;
mod sums;
mod table;
mod text;
mod transaction;
mod tree;
mod value;
mod vector;
mod view;

pub use allocator::RESERVED_BYTES;
pub use check::Checked;
pub use error::{Error, Result};
pub use file::{File, FileError};
pub use fixed::{Fixed, Ptr, bytes_before};
pub use hash_map::{HASH_MAP_KEY_BYTES_MAX, HashMap};
pub use memory::{Fault, Memory, PAGE_BYTES};
pub use mode::{Durability, Mode};
pub use options::{
    LOG_BYTES_DEFAULT, Options, SPACE_BYTES_DEFAULT, SPILL_BYTES_DEFAULT, VERSIONS_BYTES_DEFAULT,
};
pub use plain::Plain;
pub use queue::Queue;
pub use region::slot::SLOTS_MAX;
pub use root_page::{Layout, NAME_BYTES_MAX, NAMED_ROOTS_MAX};
pub use space::{Space, Stat};
pub use text::Text;
pub use transaction::{Mapped, PageAccess, Transaction};
pub use tree::bplus::{BLOCK_BYTES_MAX, BLOCK_BYTES_MIN};
pub use tree::cache_oblivious::{KEY_BYTES_MAX as CACHE_OBLIVIOUS_KEY_BYTES_MAX, Rebalancer};
pub use tree::{BPlusTree, CacheObliviousTree, Census, Range};
pub use value::VALUE_BYTES_MAX;
pub use vector::{VECTOR_LENGTH_MAX, Vector};
