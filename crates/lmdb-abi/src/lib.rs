//! `liblmdb.so`: the C interface of LMDB 0.9 over Sapwood's store.
//!
//! The contract is `lmdb.h`; its prose is not repeated here. What C programs call is in [`abi`], which knows raw
//! pointers and nothing else; what they mean by it is in the other modules, which are safe Rust. The file format is the
//! store's own.

pub mod abi;
mod copy;
mod cursor;
mod database;
mod env;
pub mod error;
mod free_list;
mod gathered;
mod lent;
mod readers;
pub mod tools;
mod txn;
pub mod values;

pub use abi::{MdbCursor, MdbTxn};
pub use env::Env;
pub use error::Code;
pub use values::{EnvInfo, Stat, Val};
