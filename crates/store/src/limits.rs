//! What there may be at most. Each is checked before anything is allocated or stored.

/// The longest key, in bytes: three of them and their bookkeeping fit into one branch page.
pub const KEY_BYTES_MAX: usize = 1300;

/// The longest value, in bytes.
pub const VALUE_BYTES_MAX: usize = u32::MAX as usize;

/// The longest duplicate, in bytes.
pub const DUPLICATE_BYTES_MAX: usize = KEY_BYTES_MAX;

/// The most levels a tree may have, its leaves included: what a search keeps on its stack.
pub(crate) const HEIGHT_MAX: usize = 24;

/// The longest name of a tree, in bytes.
pub const TREE_NAME_BYTES_MAX: usize = 511;

/// How many snapshots there may be at a time, in all processes together.
pub const READERS_MAX: usize = 4096;

/// The most stores in an environment.
pub const STORES_MAX: u16 = 64;
