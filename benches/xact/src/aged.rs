//! Memory whose free areas are in no order, as in a file in which much was allocated and freed.

use sapwood_xact::Memory;

use crate::keys;

/// A memory that hands out areas of one size at random.
#[derive(Debug)]
pub(crate) struct Aged<M> {
    memory: M,
    bytes: u64,
    areas: Vec<u64>,
    /// How many more are taken when there are none.
    more: u64,
}

impl<M: Memory> Aged<M> {
    /// With so many areas of so many bytes, among which the first ones are chosen.
    pub(crate) fn new(memory: M, bytes: u64, count: u64) -> Result<Self, M::Error> {
        let mut aged = Self {
            memory,
            bytes,
            areas: Vec::new(),
            more: count.max(1),
        };
        aged.refill()?;
        Ok(aged)
    }

    fn refill(&mut self) -> Result<(), M::Error> {
        for _ in 0..self.more {
            self.areas.push(self.memory.allocate(self.bytes)?);
        }
        self.areas.sort_by_key(|area| keys::spread(*area));
        self.more = (self.more / 8).max(1);
        Ok(())
    }
}

impl<M: Memory> Memory for Aged<M> {
    type Error = M::Error;

    fn read(&self, offset: u64, bytes: usize) -> Result<&[u8], M::Error> {
        self.memory.read(offset, bytes)
    }

    fn write(&mut self, offset: u64, bytes: usize) -> Result<&mut [u8], M::Error> {
        self.memory.write(offset, bytes)
    }

    fn allocate(&mut self, bytes: u64) -> Result<u64, M::Error> {
        if bytes != self.bytes {
            return self.memory.allocate(bytes);
        }
        if self.areas.is_empty() {
            self.refill()?;
        }
        match self.areas.pop() {
            Some(area) => Ok(area),
            None => self.memory.allocate(bytes),
        }
    }

    fn free(&mut self, offset: u64, bytes: u64) -> Result<(), M::Error> {
        if bytes == self.bytes {
            self.areas.push(offset);
            return Ok(());
        }
        self.memory.free(offset, bytes)
    }

    fn root(&self) -> Result<u64, M::Error> {
        self.memory.root()
    }

    fn set_root(&mut self, root: u64) -> Result<(), M::Error> {
        self.memory.set_root(root)
    }

    fn prefetch(&self, offset: u64, bytes: u64) {
        self.memory.prefetch(offset, bytes);
    }
}

#[cfg(test)]
mod tests {
    use sapwood_xact::Plain;

    use super::*;

    #[test]
    fn areas_come_in_no_order_and_once() {
        let mut memory = Aged::new(Plain::new(), 4096, 100).unwrap();
        let areas: Vec<u64> = (0..120).map(|_| memory.allocate(4096).unwrap()).collect();
        assert!(!areas.is_sorted());
        let mut sorted = areas.clone();
        sorted.sort_unstable();
        sorted.dedup();
        assert_eq!(sorted.len(), areas.len());
        memory.free(areas[0], 4096).unwrap();
        assert_eq!(memory.allocate(4096).unwrap(), areas[0]);
        assert!(memory.allocate(64).unwrap() > 0);
    }
}
