//! Which pages may be used again, and which one is taken.

pub(crate) mod allocator;
pub(crate) mod reuse;
