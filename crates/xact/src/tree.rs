//! What both search trees have in common for whoever uses them: how one is found in its memory, and what a check of it counts.

use crate::block::damaged;
use crate::memory::Memory;

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

/// How a kind of tree is told: the first bytes of its description.
pub(crate) struct Magic {
    pub(crate) bytes: [u8; 8],
    /// What is wrong where they are not.
    pub(crate) missing: &'static str,
}

impl Magic {
    /// Begins the description of a tree.
    pub(crate) fn store<M: Memory>(&self, memory: &mut M, at: u64) -> Result<(), M::Error> {
        let begin = memory.write(at, self.bytes.len())?;
        begin.copy_from_slice(&self.bytes);
        Ok(())
    }

    /// The description of the tree there.
    pub(crate) fn description<'m, M: Memory>(
        &self,
        memory: &'m M,
        at: u64,
        bytes: usize,
    ) -> Result<&'m [u8], M::Error> {
        let description = memory.read(at, bytes)?;
        match description.starts_with(&self.bytes) {
            true => Ok(description),
            false => Err(damaged(at, self.missing)),
        }
    }
}

/// What is the same to the letter for a tree that has a `memory`, is described `at` an offset of it and gives a `cursor` for an edge.
macro_rules! tree_in_a_memory {
    ($tree:ident) => {
        impl<M: Memory> $tree<M> {
            /// Where the tree is described: what opens it again.
            pub fn offset(&self) -> u64 {
                self.at
            }

            /// The memory it lives in.
            pub fn memory(&self) -> &M {
                &self.memory
            }

            /// The memory it lives in, given back.
            pub fn into_memory(self) -> M {
                self.memory
            }

            /// The records between two keys in order, from both ends.
            ///
            /// # Errors
            /// [`Fault::Damaged`](crate::Fault::Damaged), or what the memory says.
            pub fn range<'t, 'k>(
                &'t self,
                keys: impl std::ops::RangeBounds<&'k [u8]>,
            ) -> Result<crate::range::Range<'t, M>, M::Error> {
                crate::range::Range::between(&self.memory, &keys, |edge| self.cursor(edge))
            }
        }
    };
}

pub(crate) use tree_in_a_memory;
