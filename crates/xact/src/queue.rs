//! A queue: values go in at its end and come out at its beginning.
//!
//! ```text
//! OFFSET  SIZE  DESCRIPTION
//!      0     8  "sapqueue"
//!      8     8  bytes of a value
//!     16     8  the block that the next value comes from
//!     24     8  which it is there
//!   4096     8  the block that the next value goes to
//!   4104     8  which it will be there
//!
//!  a block
//!      0     8  how many blocks there were before it
//!      8     8  the next block, or 0
//!     16     …  values
//! ```
//!
//! Beginning and end are on pages of their own, and the one that takes a value from a block that is not the last one
//! looks at the beginning only: so one that puts in and one that takes out do not meet while there is a block between
//! them.

use std::marker::PhantomData;

use crate::block::damaged;
use crate::fixed::{Fixed, Ptr};
use crate::memory::{Memory, PAGE_BYTES, retire};
use crate::structure::{Magic, in_a_memory};

const MAGIC: Magic = Magic {
    bytes: *b"sapqueue",
    missing: "no queue begins here",
};
const VALUE_BYTES: u64 = 8;
const HEAD: u64 = 16;
const TAIL: u64 = PAGE_BYTES as u64;
const DESCRIPTION_BYTES: u64 = 2 * PAGE_BYTES as u64;
/// Where in a block the next one is named, and where its values begin.
const NEXT: u64 = 8;
const VALUES: u64 = 16;

/// A queue in a memory, as [`BPlusTree`](crate::BPlusTree) is a tree in one.
///
/// ```
/// use sapwood_xact::{Fault, Plain, Queue};
///
/// let mut queue: Queue<_, (u32, bool)> = Queue::create(Plain::new())?;
/// queue.push(&(3, true))?;
/// queue.push(&(4, false))?;
/// assert_eq!((queue.pop()?, queue.len()?), (Some((3, true)), 1));
/// # Ok::<(), Fault>(())
/// ```
#[derive(Debug)]
pub struct Queue<M, T> {
    memory: M,
    at: u64,
    kind: PhantomData<fn() -> T>,
}

/// A place for a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Position {
    block: u64,
    index: u64,
}

in_a_memory!(Queue, T);

impl<M: Memory, T: Fixed> Queue<M, T> {
    /// Values in a block: as many as fit on a page with its head, and at least one.
    const BLOCK_LENGTH: u64 = {
        let length = (PAGE_BYTES - VALUES as usize) / T::BYTES;
        if length == 0 { 1 } else { length as u64 }
    };
    const BLOCK_BYTES: u64 = VALUES + Self::BLOCK_LENGTH * T::BYTES as u64;

    /// Makes an empty queue.
    ///
    /// # Errors
    /// What the memory says.
    pub fn create(mut memory: M) -> Result<Self, M::Error> {
        let at = memory.allocate(DESCRIPTION_BYTES)?;
        MAGIC.store(&mut memory, at)?;
        memory.store(Ptr::new(at + VALUE_BYTES), &(T::BYTES as u64))?;
        let mut queue = Self {
            memory,
            at,
            kind: PhantomData,
        };
        let block = queue.new_block(0)?;
        let first = Position { block, index: 0 };
        queue.set_place(HEAD, first)?;
        queue.set_place(TAIL, first)?;
        Ok(queue)
    }

    /// The queue that [`Queue::offset`] has named.
    ///
    /// # Errors
    /// [`Fault::Damaged`](crate::Fault::Damaged) if there is none, or one of values of another size; what the memory
    /// says.
    pub fn open(memory: M, offset: u64) -> Result<Self, M::Error> {
        let description = MAGIC.description(&memory, offset, HEAD as usize)?;
        if u64::decode(&description[VALUE_BYTES as usize..]) != T::BYTES as u64 {
            return Err(damaged(offset, "the queue has values of another size"));
        }
        Ok(Self {
            memory,
            at: offset,
            kind: PhantomData,
        })
    }

    /// How many values there are. Looks at both ends.
    ///
    /// # Errors
    /// [`Fault::Damaged`](crate::Fault::Damaged), or what the memory says.
    pub fn len(&self) -> Result<u64, M::Error> {
        let (head, tail) = (self.place(HEAD)?, self.place(TAIL)?);
        let blocks = self
            .number(tail.block)?
            .checked_sub(self.number(head.block)?);
        blocks
            .and_then(|blocks| blocks.checked_mul(Self::BLOCK_LENGTH))
            .and_then(|before| before.checked_add(tail.index)?.checked_sub(head.index))
            .ok_or_else(|| damaged(self.at, "the queue ends before it begins"))
    }

    /// Whether there are none.
    ///
    /// # Errors
    /// As for [`Queue::len`].
    pub fn is_empty(&self) -> Result<bool, M::Error> {
        Ok(self.first()?.is_none())
    }

    /// Puts a value in at the end.
    ///
    /// # Errors
    /// As for [`Queue::len`].
    pub fn push(&mut self, value: &T) -> Result<(), M::Error> {
        let mut tail = self.place(TAIL)?;
        if tail.index == Self::BLOCK_LENGTH {
            let number = self.number(tail.block)?.wrapping_add(1);
            let block = self.new_block(number)?;
            self.memory.store(Ptr::new(tail.block + NEXT), &block)?;
            tail = Position { block, index: 0 };
        }
        self.memory.store(Self::ptr(tail), value)?;
        tail.index += 1;
        self.set_place(TAIL, tail)
    }

    /// Takes the value out that was put in first.
    ///
    /// # Errors
    /// As for [`Queue::len`].
    pub fn pop(&mut self) -> Result<Option<T>, M::Error> {
        let Some(first) = self.first()? else {
            return Ok(None);
        };
        let value = self.memory.load(Self::ptr(first))?;
        let before = self.place(HEAD)?.block;
        if before != first.block {
            retire(&mut self.memory, before, Self::BLOCK_BYTES)?;
        }
        let index = first.index + 1;
        self.set_place(HEAD, Position { index, ..first })?;
        Ok(Some(value))
    }

    /// The value that comes out next, which stays in.
    ///
    /// # Errors
    /// As for [`Queue::len`].
    pub fn front(&self) -> Result<Option<T>, M::Error> {
        match self.first()? {
            Some(first) => self.memory.load(Self::ptr(first)).map(Some),
            None => Ok(None),
        }
    }

    /// The values in the order in which they come out.
    ///
    /// # Errors
    /// As for [`Queue::len`].
    pub fn iter(&self) -> Result<impl Iterator<Item = Result<T, M::Error>>, M::Error> {
        let mut next = self.first()?;
        Ok(std::iter::from_fn(move || {
            let place = next.take()?;
            let mut step = || {
                let value = self.memory.load(Self::ptr(place))?;
                let index = place.index + 1;
                next = self.settled(Position { index, ..place })?;
                Ok(value)
            };
            Some(step())
        }))
    }

    /// Gives the queue back, and the memory.
    ///
    /// # Errors
    /// As for [`Queue::len`].
    pub fn destroy(mut self) -> Result<M, M::Error> {
        let mut block = self.place(HEAD)?.block;
        loop {
            let next = self.next(block)?;
            retire(&mut self.memory, block, Self::BLOCK_BYTES)?;
            match next {
                Some(next) => block = next,
                None => break,
            }
        }
        retire(&mut self.memory, self.at, DESCRIPTION_BYTES)?;
        Ok(self.memory)
    }

    /// Where the next value comes from, if there is one.
    fn first(&self) -> Result<Option<Position>, M::Error> {
        self.settled(self.place(HEAD)?)
    }

    /// The place of the value that a place stands before: perhaps the first one in the next block.
    fn settled(&self, place: Position) -> Result<Option<Position>, M::Error> {
        match self.next(place.block)? {
            // The one that puts in writes elsewhere.
            Some(_) if place.index < Self::BLOCK_LENGTH => Ok(Some(place)),
            Some(block) => {
                let place = Position { block, index: 0 };
                // A block is only begun for a value.
                Ok(Some(place))
            }
            None => {
                let tail = self.place(TAIL)?;
                if tail.block != place.block || tail.index < place.index {
                    return Err(damaged(self.at, "the queue ends before it begins"));
                }
                Ok((place != tail).then_some(place))
            }
        }
    }

    /// The block behind one, whose number must be the next: no walk goes in a circle.
    fn next(&self, block: u64) -> Result<Option<u64>, M::Error> {
        let next = self.memory.load(Ptr::<u64>::new(block + NEXT))?;
        if next == 0 {
            return Ok(None);
        }
        if self.number(next)?.checked_sub(1) != Some(self.number(block)?) {
            return Err(damaged(block, "a block of the queue leads elsewhere"));
        }
        Ok(Some(next))
    }

    fn number(&self, block: u64) -> Result<u64, M::Error> {
        self.memory.load(Ptr::new(block))
    }

    fn new_block(&mut self, number: u64) -> Result<u64, M::Error> {
        let block = self.memory.allocate(Self::BLOCK_BYTES)?;
        self.memory.store(Ptr::new(block), &number)?;
        self.memory.store(Ptr::new(block + NEXT), &0_u64)?;
        Ok(block)
    }

    fn place(&self, end: u64) -> Result<Position, M::Error> {
        let at = self.at + end;
        let place = Position {
            block: self.memory.load(Ptr::new(at))?,
            index: self.memory.load(Ptr::new(at + 8))?,
        };
        let in_space = place.block.checked_add(Self::BLOCK_BYTES).is_some();
        if place.index > Self::BLOCK_LENGTH || !in_space {
            return Err(damaged(at, "the queue has an impossible end"));
        }
        Ok(place)
    }

    fn set_place(&mut self, end: u64, place: Position) -> Result<(), M::Error> {
        let at = self.at + end;
        self.memory.store(Ptr::new(at), &place.block)?;
        self.memory.store(Ptr::new(at + 8), &place.index)
    }

    fn ptr(place: Position) -> Ptr<T> {
        Ptr::new(place.block + VALUES + place.index * T::BYTES as u64)
    }
}
