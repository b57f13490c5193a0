//! Trees from keys to values: two kinds, one way to walk through their records, and what a check of them counts.

pub(crate) mod bplus;
pub(crate) mod cache_oblivious;
mod range;

pub use self::bplus::BPlusTree;
pub use self::cache_oblivious::CacheObliviousTree;
pub use self::range::Range;

/// What a check has counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Census {
    /// Keys in the tree.
    pub keys: u64,
    /// Blocks or segments that hold values.
    pub leaves: u64,
    /// Bytes that records take in them.
    pub used_bytes: u64,
    /// Levels of blocks, or of index pages.
    pub height: usize,
}

/// What is the same to the letter for a tree that has a `memory` and gives a `cursor` for an edge.
macro_rules! tree_in_a_memory {
    ($tree:ident) => {
        crate::structure::in_a_memory!($tree);

        impl<M: Memory> $tree<M> {
            /// The records between two keys in order, from both ends.
            ///
            /// # Errors
            /// [`Fault::Damaged`](crate::Fault::Damaged), or what the memory says.
            pub fn range<'t, 'k>(
                &'t self,
                keys: impl std::ops::RangeBounds<&'k [u8]>,
            ) -> Result<crate::tree::Range<'t, M>, M::Error> {
                crate::tree::Range::between(&self.memory, &keys, |edge| self.cursor(edge))
            }
        }
    };
}

pub(crate) use tree_in_a_memory;
