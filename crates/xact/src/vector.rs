//! A vector: values of one kind, one after the other, that is appended to and shortened at its end.
//!
//! ```text
//! OFFSET  SIZE  DESCRIPTION
//!      0     8  "sapvectr"
//!      8     8  how many values there are
//!     16     8  bytes of a value
//!     24   232  29 chunks, an offset each or 0: chunk k has room for 8 << k values
//! ```
//!
//! A chunk is never moved, so that a [`Ptr`] to a value stays good while the vector grows, and growing copies nothing.
//! It stays when values are taken from the end, until [`Vector::clear`].

use std::marker::PhantomData;

use crate::block::damaged;
use crate::fixed::{Fixed, Ptr};
use crate::memory::{Fault, Memory, retire};
use crate::structure::{Magic, in_a_memory};

const MAGIC: Magic = Magic {
    bytes: *b"sapvectr",
    missing: "no vector begins here",
};
const LENGTH: u64 = 8;
const VALUE_BYTES: u64 = 16;
const CHUNKS: u64 = 24;
const CHUNKS_MAX: u32 = 29;
const DESCRIPTION_BYTES: usize = (CHUNKS + 8 * CHUNKS_MAX as u64) as usize;
/// Values in the first chunk.
const FIRST: u64 = 8;

/// The most values of a vector: some 4 billion.
pub const VECTOR_LENGTH_MAX: u64 = FIRST * ((1 << CHUNKS_MAX) - 1);

/// A vector in a memory, as [`BPlusTree`](crate::BPlusTree) is a tree in one.
///
/// ```
/// use sapwood_xact::{Fault, Plain, Vector};
///
/// let mut vector: Vector<_, u64> = Vector::create(Plain::new())?;
/// vector.push(&3)?;
/// vector.push(&4)?;
/// vector.set(0, &5)?;
/// assert_eq!((vector.get(0)?, vector.pop()?, vector.len()?), (Some(5), Some(4), 1));
/// # Ok::<(), Fault>(())
/// ```
///
/// The one that appends or takes away changes its length, so only one at a time does; values are changed side by side
/// unless they are on the same page.
#[derive(Debug)]
pub struct Vector<M, T> {
    memory: M,
    at: u64,
    kind: PhantomData<fn() -> T>,
}

in_a_memory!(Vector, T);

impl<M: Memory, T: Fixed> Vector<M, T> {
    /// Makes an empty vector.
    ///
    /// # Errors
    /// What the memory says.
    pub fn create(mut memory: M) -> Result<Self, M::Error> {
        let at = memory.allocate(DESCRIPTION_BYTES as u64)?;
        memory.write(at, DESCRIPTION_BYTES)?.fill(0);
        MAGIC.store(&mut memory, at)?;
        memory.store(Ptr::new(at + VALUE_BYTES), &(T::BYTES as u64))?;
        Ok(Self {
            memory,
            at,
            kind: PhantomData,
        })
    }

    /// The vector that [`Vector::offset`] has named.
    ///
    /// # Errors
    /// [`Fault::Damaged`] if there is none, or one of values of another size; what the memory says.
    pub fn open(memory: M, offset: u64) -> Result<Self, M::Error> {
        let description = MAGIC.description(&memory, offset, CHUNKS as usize)?;
        if u64::decode(&description[VALUE_BYTES as usize..]) != T::BYTES as u64 {
            return Err(damaged(offset, "the vector has values of another size"));
        }
        Ok(Self {
            memory,
            at: offset,
            kind: PhantomData,
        })
    }

    /// How many values there are.
    ///
    /// # Errors
    /// [`Fault::Damaged`], or what the memory says.
    pub fn len(&self) -> Result<u64, M::Error> {
        let length = self.memory.load(Ptr::<u64>::new(self.at + LENGTH))?;
        if length > VECTOR_LENGTH_MAX {
            return Err(damaged(self.at, "the vector has an impossible length"));
        }
        Ok(length)
    }

    /// Whether there are none.
    ///
    /// # Errors
    /// As for [`Vector::len`].
    pub fn is_empty(&self) -> Result<bool, M::Error> {
        Ok(self.len()? == 0)
    }

    /// Where a value is; `None` behind the last one. It stays there until it is taken away.
    ///
    /// # Errors
    /// As for [`Vector::len`].
    pub fn ptr(&self, index: u64) -> Result<Option<Ptr<T>>, M::Error> {
        if index >= self.len()? {
            return Ok(None);
        }
        self.place(index).map(Some)
    }

    /// A value; `None` behind the last one.
    ///
    /// # Errors
    /// As for [`Vector::len`].
    pub fn get(&self, index: u64) -> Result<Option<T>, M::Error> {
        match self.ptr(index)? {
            Some(place) => self.memory.load(place).map(Some),
            None => Ok(None),
        }
    }

    /// Changes a value; gives whether there is one.
    ///
    /// # Errors
    /// As for [`Vector::len`].
    pub fn set(&mut self, index: u64, value: &T) -> Result<bool, M::Error> {
        match self.ptr(index)? {
            Some(place) => self.memory.store(place, value).map(|()| true),
            None => Ok(false),
        }
    }

    /// Appends a value.
    ///
    /// # Errors
    /// [`Fault::Full`] beyond [`VECTOR_LENGTH_MAX`], and as for [`Vector::len`].
    pub fn push(&mut self, value: &T) -> Result<(), M::Error> {
        let index = self.len()?;
        if index == VECTOR_LENGTH_MAX {
            let bytes = T::BYTES as u64;
            return Err(Fault::Full { bytes }.into());
        }
        let (chunk, _) = chunk_of(index);
        let link = self.link(chunk);
        if self.memory.load(link)? == 0 {
            let area = self.memory.allocate(chunk_bytes::<T>(chunk))?;
            self.memory.store(link, &area)?;
        }
        let place = self.place(index)?;
        self.memory.store(place, value)?;
        self.set_len(index + 1)
    }

    /// Takes the last value away.
    ///
    /// # Errors
    /// As for [`Vector::len`].
    pub fn pop(&mut self) -> Result<Option<T>, M::Error> {
        let Some(last) = self.len()?.checked_sub(1) else {
            return Ok(None);
        };
        let place = self.place(last)?;
        let value = self.memory.load(place)?;
        self.set_len(last)?;
        Ok(Some(value))
    }

    /// The values in order.
    ///
    /// # Errors
    /// As for [`Vector::len`].
    pub fn iter(&self) -> Result<impl Iterator<Item = Result<T, M::Error>>, M::Error> {
        let all = 0..self.len()?;
        Ok(all.map(|index| self.memory.load(self.place(index)?)))
    }

    /// Takes all values away and gives their room back.
    ///
    /// # Errors
    /// As for [`Vector::len`].
    pub fn clear(&mut self) -> Result<(), M::Error> {
        self.set_len(0)?;
        for chunk in 0..CHUNKS_MAX {
            let link = self.link(chunk);
            let area = self.memory.load(link)?;
            if area != 0 {
                retire(&mut self.memory, area, chunk_bytes::<T>(chunk))?;
                self.memory.store(link, &0)?;
            }
        }
        Ok(())
    }

    /// Gives the vector back, and the memory.
    ///
    /// # Errors
    /// As for [`Vector::len`].
    pub fn destroy(mut self) -> Result<M, M::Error> {
        self.clear()?;
        retire(&mut self.memory, self.at, DESCRIPTION_BYTES as u64)?;
        Ok(self.memory)
    }

    fn set_len(&mut self, length: u64) -> Result<(), M::Error> {
        self.memory.store(Ptr::new(self.at + LENGTH), &length)
    }

    /// Where the offset of a chunk is.
    fn link(&self, chunk: u32) -> Ptr<u64> {
        Ptr::new(self.at + CHUNKS + 8 * u64::from(chunk))
    }

    fn place(&self, index: u64) -> Result<Ptr<T>, M::Error> {
        let (chunk, within) = chunk_of(index);
        let area = self.memory.load(self.link(chunk))?;
        let place = area.checked_add(within * T::BYTES as u64);
        match place.filter(|_| area != 0) {
            Some(place) => Ok(Ptr::new(place)),
            None => Err(damaged(self.at, "a chunk of the vector is missing")),
        }
    }
}

/// In which chunk a value is, and which it is there.
fn chunk_of(index: u64) -> (u32, u64) {
    let chunk = (index / FIRST + 1).ilog2();
    (chunk, index - FIRST * ((1 << chunk) - 1))
}

fn chunk_bytes<T: Fixed>(chunk: u32) -> u64 {
    (FIRST << chunk).saturating_mul(T::BYTES as u64)
}
