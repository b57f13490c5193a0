//! Memory-mapped transactions: loads and stores in a mapped file, made atomic, isolated and durable, for several threads and
//! processes at once.

mod block;
mod bplus;
mod error;
mod file;
mod heap;
mod memory;
mod packed;
mod plain;
mod value;

pub use bplus::{BLOCK_BYTES_MAX, BLOCK_BYTES_MIN, BPlusTree, Census, Range as BPlusRange};
pub use error::{Error, Result};
pub use file::{File, FileError};
pub use memory::{Fault, Fixed, Memory, Offset, PAGE_BYTES};
pub use packed::{KEY_BYTES_MAX as PACKED_KEY_BYTES_MAX, PackedTree, Range as PackedRange, Upkeep};
pub use plain::Plain;
pub use value::VALUE_BYTES_MAX;
