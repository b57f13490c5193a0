//! Memory-mapped transactions: loads and stores in a mapped file, made atomic, isolated and durable, for several threads and
//! processes at once.

mod error;
mod memory;

pub use error::{Error, Result};
pub use memory::{Fault, Fixed, Memory, Offset, PAGE_BYTES};
