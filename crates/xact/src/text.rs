//! A string: text of any length, that can be appended to.
//!
//! ```text
//! OFFSET  SIZE  DESCRIPTION
//!      0     8  "saptext\0"
//!      8     8  its length in bytes
//!     16     8  the room that it has: a power of two, or 0
//!     24     8  where it is
//! ```

use crate::block::damaged;
use crate::fixed::{Fixed, Ptr};
use crate::memory::{Fault, Memory, retire};
use crate::structure::{Magic, in_a_memory};
use crate::value::VALUE_BYTES_MAX;

const MAGIC: Magic = Magic {
    bytes: *b"saptext\0",
    missing: "no string begins here",
};
const DESCRIPTION_BYTES: usize = 32;

/// A string in a memory, as [`BPlusTree`](crate::BPlusTree) is a tree in one: at most [`VALUE_BYTES_MAX`] bytes of
/// UTF-8.
///
/// ```
/// use sapwood_xact::{Fault, Plain, Text};
///
/// let mut text = Text::create(Plain::new(), "so")?;
/// text.push_str(" on")?;
/// assert_eq!(text.get()?, "so on");
/// # Ok::<(), Fault>(())
/// ```
#[derive(Debug)]
pub struct Text<M> {
    memory: M,
    at: u64,
}

/// Where the bytes are.
#[derive(Clone, Copy, Debug, Default)]
struct Body {
    length: usize,
    room: usize,
    at: u64,
}

in_a_memory!(Text);

impl<M: Memory> Text<M> {
    /// Makes a string.
    ///
    /// # Errors
    /// [`Fault::ValueTooLong`], or what the memory says.
    pub fn create(mut memory: M, text: &str) -> Result<Self, M::Error> {
        let at = memory.allocate(DESCRIPTION_BYTES as u64)?;
        memory.write(at, DESCRIPTION_BYTES)?.fill(0);
        MAGIC.store(&mut memory, at)?;
        let mut made = Self { memory, at };
        made.set(text)?;
        Ok(made)
    }

    /// The string that [`Text::offset`] has named.
    ///
    /// # Errors
    /// [`Fault::Damaged`] if there is none, or what the memory says.
    pub fn open(memory: M, offset: u64) -> Result<Self, M::Error> {
        MAGIC.description(&memory, offset, DESCRIPTION_BYTES)?;
        Ok(Self { memory, at: offset })
    }

    /// The text.
    ///
    /// # Errors
    /// [`Fault::Damaged`], also if it is not UTF-8, or what the memory says.
    pub fn get(&self) -> Result<&str, M::Error> {
        let body = self.body()?;
        let bytes = self.memory.read(body.at, body.length)?;
        std::str::from_utf8(bytes).map_err(|_| damaged(body.at, "the string is not UTF-8"))
    }

    /// Its length in bytes.
    ///
    /// # Errors
    /// As for [`Text::get`].
    pub fn len(&self) -> Result<usize, M::Error> {
        Ok(self.body()?.length)
    }

    /// Whether there is none.
    ///
    /// # Errors
    /// As for [`Text::get`].
    pub fn is_empty(&self) -> Result<bool, M::Error> {
        Ok(self.len()? == 0)
    }

    /// Replaces the text.
    ///
    /// # Errors
    /// [`Fault::ValueTooLong`], and as for [`Text::get`].
    pub fn set(&mut self, text: &str) -> Result<(), M::Error> {
        self.replace(0, text)
    }

    /// Appends to the text.
    ///
    /// # Errors
    /// As for [`Text::set`].
    pub fn push_str(&mut self, text: &str) -> Result<(), M::Error> {
        self.replace(self.len()?, text)
    }

    /// Gives the string back, and the memory.
    ///
    /// # Errors
    /// As for [`Text::get`].
    pub fn destroy(mut self) -> Result<M, M::Error> {
        let body = self.body()?;
        if body.room > 0 {
            retire(&mut self.memory, body.at, body.room as u64)?;
        }
        retire(&mut self.memory, self.at, DESCRIPTION_BYTES as u64)?;
        Ok(self.memory)
    }

    /// Puts text in place of what comes behind the first bytes.
    fn replace(&mut self, kept: usize, text: &str) -> Result<(), M::Error> {
        let old = self.body()?;
        let length = kept.saturating_add(text.len());
        if length > VALUE_BYTES_MAX {
            let (bytes, max) = (length, VALUE_BYTES_MAX);
            return Err(Fault::ValueTooLong { bytes, max }.into());
        }
        let mut new = Body { length, ..old };
        if length > old.room {
            new.room = length.next_power_of_two();
            new.at = self.memory.allocate(new.room as u64)?;
            let before = self.memory.read(old.at, kept)?.to_vec();
            self.memory.write(new.at, kept)?.copy_from_slice(&before);
            if old.room > 0 {
                retire(&mut self.memory, old.at, old.room as u64)?;
            }
        }
        let place = self.memory.write(new.at + kept as u64, text.len())?;
        place.copy_from_slice(text.as_bytes());
        for (number, at) in [new.length as u64, new.room as u64, new.at]
            .iter()
            .zip([8, 16, 24])
        {
            self.memory.store(Ptr::new(self.at + at), number)?;
        }
        Ok(())
    }

    fn body(&self) -> Result<Body, M::Error> {
        let description = self.memory.read(self.at, DESCRIPTION_BYTES)?;
        let number = |at: usize| description.get(at..at + 8).map_or(0, u64::decode);
        let (length, room, at) = (number(8), number(16), number(24));
        if length > room || room > VALUE_BYTES_MAX as u64 || at.checked_add(room).is_none() {
            return Err(damaged(self.at, "the string has an impossible length"));
        }
        Ok(Body {
            length: length as usize,
            room: room as usize,
            at,
        })
    }
}
