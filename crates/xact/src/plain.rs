//! Plain memory: bytes on the heap.

use crate::heap::{self, Growing, HEAP_BYTES};
use crate::memory::{Fault, Memory};

/// Memory on the heap that grows as it is needed.
#[derive(Clone, Debug)]
pub struct Plain {
    bytes: Vec<u8>,
}

impl Plain {
    /// Empty memory.
    pub fn new() -> Self {
        let mut bytes = vec![0; HEAP_BYTES];
        heap::format(&mut bytes);
        Self { bytes }
    }

    /// The memory that [`Plain::as_bytes`] has shown.
    ///
    /// # Errors
    /// If these bytes are no such memory. Damage in the structures shows when they are used.
    pub fn from_bytes(bytes: Vec<u8>) -> Result<Self, Fault> {
        heap::recognise(&bytes)?;
        Ok(Self { bytes })
    }

    /// All of the memory.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }
}

impl Default for Plain {
    fn default() -> Self {
        Self::new()
    }
}

impl Growing for Plain {
    type Error = Fault;

    fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }

    fn grow(&mut self, bytes: u64) -> Result<(), Fault> {
        let full = || Fault::Full { bytes };
        let wanted = usize::try_from(bytes).map_err(|_| full())?;
        let more = wanted.saturating_sub(self.bytes.len());
        self.bytes.try_reserve(more).map_err(|_| full())?;
        self.bytes.resize(wanted, 0);
        Ok(())
    }
}

impl Memory for Plain {
    type Error = Fault;

    #[inline]
    fn read(&self, offset: u64, bytes: usize) -> Result<&[u8], Fault> {
        heap::part(&self.bytes, offset, bytes as u64)
    }

    #[inline]
    fn write(&mut self, offset: u64, bytes: usize) -> Result<&mut [u8], Fault> {
        let at = heap::place(&self.bytes, offset, bytes as u64)?;
        Ok(&mut self.bytes[at..at + bytes])
    }

    fn allocate(&mut self, bytes: u64) -> Result<u64, Fault> {
        heap::allocate(self, bytes)
    }

    fn free(&mut self, offset: u64, bytes: u64) -> Result<(), Fault> {
        heap::free(self, offset, bytes)
    }

    fn root(&self) -> Result<u64, Fault> {
        Ok(heap::root(&self.bytes))
    }

    fn set_root(&mut self, root: u64) -> Result<(), Fault> {
        heap::set_root(&mut self.bytes, root);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixed::Ptr;

    #[test]
    fn areas_are_aligned_apart_and_used_again() {
        let mut memory = Plain::new();
        let mut areas: Vec<(u64, u64)> = Vec::new();
        for bytes in [1, 16, 17, 100, 2048, 4096, 5000, 65536, 3] {
            let at = memory.allocate(bytes).unwrap();
            assert!(
                at.is_multiple_of(1 << bytes.ilog2().min(12)),
                "{bytes} at {at}"
            );
            for (other, length) in &areas {
                assert!(at >= other + length || other >= &(at + bytes));
            }
            memory
                .write(at, usize::try_from(bytes).unwrap())
                .unwrap()
                .fill(7);
            areas.push((at, bytes));
        }
        let before = memory.as_bytes().len();
        for (at, bytes) in &areas {
            memory.free(*at, *bytes).unwrap();
        }
        for (_, bytes) in areas {
            memory.allocate(bytes).unwrap();
        }
        assert_eq!(memory.as_bytes().len(), before);
    }

    #[test]
    fn areas_used_again_are_aligned_for_the_largest_request() {
        let mut memory = Plain::new();
        memory.allocate(2048).unwrap();
        let at = memory.allocate(4000).unwrap();
        memory.free(at, 4000).unwrap();
        assert!(memory.allocate(4096).unwrap().is_multiple_of(4096));
    }

    #[test]
    fn accesses_outside_are_errors() {
        let mut memory = Plain::new();
        let end = memory.as_bytes().len() as u64;
        for (offset, bytes) in [(end, 1), (end - 1, 2), (u64::MAX, 1), (0, usize::MAX)] {
            assert!(memory.read(offset, bytes).is_err());
            assert!(memory.write(offset, bytes).is_err());
            assert!(memory.free(offset, 8).is_err());
        }
        assert!(memory.free(16, 16).is_err(), "the allocator's own");
        assert!(memory.allocate(0).is_err());
    }

    #[test]
    fn typed_places_keep_their_values() {
        let mut memory = Plain::new();
        let number = memory.place(&-5_i64).unwrap();
        let pointer = memory.place(&number).unwrap();
        memory.set_root(pointer.get()).unwrap();
        let memory = Plain::from_bytes(memory.as_bytes().to_vec()).unwrap();
        let pointer: Ptr<Ptr<i64>> = Ptr::new(memory.root().unwrap());
        let number = memory.load(pointer).unwrap();
        assert_eq!(memory.load(number).unwrap(), -5);
        assert!(Plain::from_bytes(vec![0; 10]).is_err());
    }
}
