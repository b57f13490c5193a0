//! Memory-mapped transactions: loads and stores in a mapped file, made atomic, isolated and durable, for several threads and
//! processes at once.

mod error;

pub use error::{Error, Result};
