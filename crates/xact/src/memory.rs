//! The memory that a persistent data structure lives in: bytes at offsets.
//!
//! A structure written against [`Memory`] exists once and runs on plain memory (`Plain`), on a mapped file without
//! transactions (`File`) and inside a transaction on a space. It names places by offset, never by address, and asks for
//! bytes before it touches them: `read` and `write` are where a transaction learns what it used, and where an offset
//! from a damaged file is found out. Everything is generic over the memory, so on plain memory an access costs a bounds
//! check.
//!
//! Transactions conflict by pages of [`PAGE_BYTES`]: what is changed by different processes at once belongs on
//! different pages, and whatever invalidates a page for others must write to it.

use crate::fixed::{Fixed, Ptr};

/// The granule in which transactions notice each other.
pub const PAGE_BYTES: usize = 4096;

/// Bytes at offsets from 0, from which areas are allocated.
///
/// Offset 0 is never handed out and stands for "nothing". A structure finds its areas again from the root.
pub trait Memory {
    /// Why an access can fail: out of bounds, a conflict with another transaction, a full disk.
    /// A structure passes these on and adds its own [`Fault`]s.
    type Error: std::error::Error + From<Fault>;

    /// The bytes `offset..offset + bytes`.
    ///
    /// # Errors
    /// If they are not all within the memory. In a transaction: if another one has changed them in the meantime.
    fn read(&self, offset: u64, bytes: usize) -> Result<&[u8], Self::Error>;

    /// The bytes `offset..offset + bytes` in order to change them; until they are, they hold what [`Memory::read`]
    /// shows.
    ///
    /// # Errors
    /// As for [`Memory::read`], and in a read-only transaction.
    fn write(&mut self, offset: u64, bytes: usize) -> Result<&mut [u8], Self::Error>;

    /// Takes an area of at least `bytes`, more than 0, whose contents are unspecified, and returns its offset, which is
    /// a multiple of the largest power of two that is not above `bytes` nor above [`PAGE_BYTES`].
    ///
    /// # Errors
    /// If the memory cannot grow that far.
    fn allocate(&mut self, bytes: u64) -> Result<u64, Self::Error>;

    /// Gives back an area that was allocated with the same number of bytes.
    ///
    /// # Errors
    /// If there can be no such area.
    fn free(&mut self, offset: u64, bytes: u64) -> Result<(), Self::Error>;

    /// What [`Memory::set_root`] stored last, at first 0.
    ///
    /// # Errors
    /// As for [`Memory::read`].
    fn root(&self) -> Result<u64, Self::Error>;

    /// Stores the offset from which everything else in this memory is found.
    ///
    /// # Errors
    /// As for [`Memory::write`].
    fn set_root(&mut self, root: u64) -> Result<(), Self::Error>;

    /// A hint that these bytes will be read soon, for memory that has to fetch them from a disk.
    fn prefetch(&self, offset: u64, bytes: u64) {
        let _ = (offset, bytes);
    }

    /// Whether others may change this memory at the same time, as in a transaction. Then whatever takes a place away
    /// from them writes to it, so that they find out that they lost.
    fn is_shared(&self) -> bool {
        false
    }

    /// The value at a typed offset.
    ///
    /// # Errors
    /// As for [`Memory::read`].
    fn load<T: Fixed>(&self, at: Ptr<T>) -> Result<T, Self::Error> {
        Ok(T::decode(self.read(at.get(), T::BYTES)?))
    }

    /// Changes the value at a typed offset.
    ///
    /// # Errors
    /// As for [`Memory::write`].
    fn store<T: Fixed>(&mut self, at: Ptr<T>, value: &T) -> Result<(), Self::Error> {
        value.encode(self.write(at.get(), T::BYTES)?);
        Ok(())
    }

    /// Allocates a place for a value and stores it there.
    ///
    /// # Errors
    /// As for [`Memory::allocate`] and [`Memory::write`].
    fn place<T: Fixed>(&mut self, value: &T) -> Result<Ptr<T>, Self::Error> {
        let at = Ptr::new(self.allocate(T::BYTES as u64)?);
        self.store(at, value)?;
        Ok(at)
    }
}

impl<M: Memory> Memory for &mut M {
    type Error = M::Error;

    fn read(&self, offset: u64, bytes: usize) -> Result<&[u8], Self::Error> {
        (**self).read(offset, bytes)
    }

    fn write(&mut self, offset: u64, bytes: usize) -> Result<&mut [u8], Self::Error> {
        (**self).write(offset, bytes)
    }

    fn allocate(&mut self, bytes: u64) -> Result<u64, Self::Error> {
        (**self).allocate(bytes)
    }

    fn free(&mut self, offset: u64, bytes: u64) -> Result<(), Self::Error> {
        (**self).free(offset, bytes)
    }

    fn root(&self) -> Result<u64, Self::Error> {
        (**self).root()
    }

    fn set_root(&mut self, root: u64) -> Result<(), Self::Error> {
        (**self).set_root(root)
    }

    fn prefetch(&self, offset: u64, bytes: u64) {
        (**self).prefetch(offset, bytes);
    }

    fn is_shared(&self) -> bool {
        (**self).is_shared()
    }
}

/// Gives an area back. Where others may be using it they find out that they lost: all of its pages are written to.
pub(crate) fn retire<M: Memory>(memory: &mut M, at: u64, bytes: u64) -> Result<(), M::Error> {
    let page_bytes = PAGE_BYTES as u64;
    let end = at.saturating_add(bytes);
    let mut place = at;
    while memory.is_shared() && place < end {
        let byte = memory.write(place, 1)?;
        byte.iter_mut().for_each(|byte| *byte = !*byte);
        place = (place / page_bytes + 1) * page_bytes;
    }
    memory.free(at, bytes)
}

/// What a data structure finds wrong with its memory or with what it was asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Fault {
    /// The bytes there cannot be what the structure stored.
    #[error("the structure is damaged at {offset}: {reason}")]
    Damaged {
        /// Where the contradiction was found.
        offset: u64,
        /// What is wrong there.
        reason: &'static str,
    },
    /// An access outside of the memory.
    #[error("{bytes} bytes at {offset} are not all within the memory")]
    OutOfBounds {
        /// Where the access began.
        offset: u64,
        /// How many bytes it wanted.
        bytes: u64,
    },
    /// A store to what the memory keeps for itself.
    #[error("what is at {offset} belongs to the allocator")]
    Reserved {
        /// Where the access began.
        offset: u64,
    },
    /// The memory cannot grow by that much.
    #[error("no room for {bytes} more bytes")]
    Full {
        /// How many bytes were asked for.
        bytes: u64,
    },
    /// The system has no random numbers to give.
    #[error("the system has no random numbers to give")]
    NoRandomness,
    /// A name of a root or a layout that is empty or too long.
    #[error("a name of {bytes} bytes: 1 to {max} are possible")]
    Name {
        /// The length of the name.
        bytes: usize,
        /// The longest name that fits.
        max: usize,
    },
    /// One named root more than there can be.
    #[error("there are {max} named roots already")]
    RootsFull {
        /// The most there can be.
        max: usize,
    },
    /// A key that is longer than this structure takes.
    #[error("a key of {bytes} bytes is longer than {max}")]
    KeyTooLong {
        /// The length of the key.
        bytes: usize,
        /// The longest key that fits.
        max: usize,
    },
    /// A value that is longer than this structure takes.
    #[error("a value of {bytes} bytes is longer than {max}")]
    ValueTooLong {
        /// The length of the value.
        bytes: usize,
        /// The longest value that fits.
        max: usize,
    },
    /// A block size that is no power of two between the limits.
    #[error("{bytes} bytes is not a block size: a power of two from {min} to {max} is")]
    BlockSize {
        /// The size asked for.
        bytes: usize,
        /// The smallest block size.
        min: usize,
        /// The largest block size.
        max: usize,
    },
}
