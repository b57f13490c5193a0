//! A memory-mapped, multi-version B+tree store: one file, copy on write, snapshots without locks.

pub mod bulk;
pub mod error;
pub mod page;
pub mod tree;

pub use error::{Error, Result};
