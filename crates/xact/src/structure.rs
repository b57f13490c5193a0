//! What the structures have in common for the one that uses them: how one is found in its memory.

use crate::block::damaged;
use crate::memory::Memory;

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

pub(crate) use in_a_memory;
