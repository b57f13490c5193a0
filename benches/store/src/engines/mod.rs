//! The engines, a file each; its first lines say how the engine is set.

#[cfg(feature = "system-peers")]
pub(crate) mod berkeley_db;
pub(crate) mod fjall;
pub(crate) mod lmdb;
pub(crate) mod redb;
#[cfg(feature = "system-peers")]
pub(crate) mod rocksdb;
pub(crate) mod sapwood;
