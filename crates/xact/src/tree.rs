//! What the structures have in common for the one that uses them: how one is found in its memory; and what a check of a
//! tree counts.

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

/// How a kind of structure is told: the first bytes of its description.
pub(crate) struct Magic {
    pub(crate) bytes: [u8; 8],
    /// What is wrong where they are not.
    pub(crate) missing: &'static str,
}

impl Magic {
    /// Begins the description of a structure.
    pub(crate) fn store<M: Memory>(&self, memory: &mut M, at: u64) -> Result<(), M::Error> {
        let begin = memory.write(at, self.bytes.len())?;
        begin.copy_from_slice(&self.bytes);
        Ok(())
    }

    /// The description of the structure there.
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

/// What is the same to the letter for a structure that has a `memory` and is described `at` an offset of it.
macro_rules! in_a_memory {
    ($name:ident $(, $kind:ident)?) => {
        impl<M: Memory $(, $kind)?> $name<M $(, $kind)?> {
            /// Where it is described: what opens it again.
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
        }
    };
}

/// The same for a tree, which also gives a `cursor` for an edge.
macro_rules! tree_in_a_memory {
    ($tree:ident) => {
        crate::tree::in_a_memory!($tree);

        impl<M: Memory> $tree<M> {
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

pub(crate) use {in_a_memory, tree_in_a_memory};
