//! The reader table.

/// How many snapshots there may be at a time, in all processes together.
pub const READERS_MAX: usize = 4096;
