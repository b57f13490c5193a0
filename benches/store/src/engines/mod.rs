//! The engines, a file each; its first lines say how the engine is set.

pub(crate) mod lmdb;
pub(crate) mod redb;
pub(crate) mod sapwood;
