//! What stands in the log, what is appended to it, and what is made of it: checkpoints, archives, recovery.

pub(crate) mod append;
pub(crate) mod archive;
pub(crate) mod checkpoint;
pub(crate) mod record;
pub(crate) mod recovery;
