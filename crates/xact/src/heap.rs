//! The allocator of memory without transactions: areas of a size class each, and for each class a list of the free ones.
//!
//! ```text
//! OFFSET  SIZE  DESCRIPTION
//!      0     8  "sapwheap"
//!      8     8  root
//!     16     8  end of what was ever handed out
//!     24     8  reserved
//!     32   8 n  the first free area of each class; each free area begins with the offset of the next
//! ```

use crate::memory::{Fault, Fixed, PAGE_BYTES};

const MAGIC: [u8; 8] = *b"sapwheap";
const ROOT: usize = 8;
const END: usize = 16;
const LISTS: usize = 32;

/// Sizes grow in quarters of a power of two.
const CLASSES_PER_DOUBLING: u32 = 4;
const CLASSES: usize = (u64::BITS * CLASSES_PER_DOUBLING) as usize;

/// The bytes the allocator keeps for itself at the beginning.
pub(crate) const HEAP_BYTES: usize = PAGE_BYTES;

/// The smallest area.
const AREA_BYTES_MIN: u64 = 16;

/// The largest area: 1 TiB.
const AREA_BYTES_MAX: u64 = 1 << 40;

/// Bytes that can grow: what the allocator needs of its memory.
pub(crate) trait Growing {
    fn bytes(&self) -> &[u8];
    fn bytes_mut(&mut self) -> &mut [u8];
    /// Makes the memory at least so large.
    fn grow(&mut self, bytes: u64) -> Result<(), Self::Error>;
    type Error: From<Fault>;
}

/// Prepares memory of at least [`HEAP_BYTES`].
pub(crate) fn format(bytes: &mut [u8]) {
    bytes[..HEAP_BYTES].fill(0);
    bytes[..MAGIC.len()].copy_from_slice(&MAGIC);
    bytes[END..END + 8].copy_from_slice(&(HEAP_BYTES as u64).to_le_bytes());
}

/// Whether memory was prepared by [`format`].
pub(crate) fn recognise(bytes: &[u8]) -> Result<(), Fault> {
    if bytes.len() < HEAP_BYTES || bytes[..MAGIC.len()] != MAGIC {
        return Err(Fault::Damaged {
            offset: 0,
            reason: "no heap begins here",
        });
    }
    Ok(())
}

pub(crate) fn root(bytes: &[u8]) -> u64 {
    u64::decode(&bytes[ROOT..ROOT + 8])
}

pub(crate) fn set_root(bytes: &mut [u8], root: u64) {
    root.encode(&mut bytes[ROOT..ROOT + 8]);
}

pub(crate) fn allocate<G: Growing>(memory: &mut G, bytes: u64) -> Result<u64, G::Error> {
    let (class, size) = class(bytes)?;
    let list = LISTS + 8 * class;
    let free = u64::decode(&memory.bytes()[list..list + 8]);
    if free != 0 {
        let next = u64::decode(part(memory.bytes(), free, 8)?);
        part(memory.bytes(), free, size)?;
        memory.bytes_mut()[list..list + 8].copy_from_slice(&next.to_le_bytes());
        return Ok(free);
    }
    let end = u64::decode(&memory.bytes()[END..END + 8]);
    if end > memory.bytes().len() as u64 {
        return Err(Fault::Damaged {
            offset: END as u64,
            reason: "more was handed out than there is",
        }
        .into());
    }
    let alignment = alignment(size);
    let full = || Fault::Full { bytes };
    let start = end.checked_next_multiple_of(alignment).ok_or_else(full)?;
    let end = start.checked_add(size).ok_or_else(full)?;
    if end > memory.bytes().len() as u64 {
        memory.grow(end)?;
    }
    memory.bytes_mut()[END..END + 8].copy_from_slice(&end.to_le_bytes());
    Ok(start)
}

pub(crate) fn free<G: Growing>(memory: &mut G, offset: u64, bytes: u64) -> Result<(), G::Error> {
    let (class, size) = class(bytes)?;
    let list = LISTS + 8 * class;
    part(memory.bytes(), offset, size)?;
    if offset < HEAP_BYTES as u64 || !offset.is_multiple_of(alignment(size)) {
        return Err(Fault::Damaged {
            offset,
            reason: "no area begins here",
        }
        .into());
    }
    let next = u64::decode(&memory.bytes()[list..list + 8]);
    let at = place(memory.bytes(), offset, 8)?;
    memory.bytes_mut()[at..at + 8].copy_from_slice(&next.to_le_bytes());
    memory.bytes_mut()[list..list + 8].copy_from_slice(&offset.to_le_bytes());
    Ok(())
}

/// The index of a range in the memory, if it is all there.
#[inline]
pub(crate) fn place(bytes: &[u8], offset: u64, length: u64) -> Result<usize, Fault> {
    match offset.checked_add(length) {
        Some(end) if end <= bytes.len() as u64 => Ok(usize::try_from(offset).unwrap_or(0)),
        _ => Err(Fault::OutOfBounds {
            offset,
            bytes: length,
        }),
    }
}

/// A range of the memory.
#[inline]
pub(crate) fn part(bytes: &[u8], offset: u64, length: u64) -> Result<&[u8], Fault> {
    let at = place(bytes, offset, length)?;
    Ok(&bytes[at..at + usize::try_from(length).unwrap_or(0)])
}

/// A size class and the size of its areas.
fn class(bytes: u64) -> Result<(usize, u64), Fault> {
    if bytes == 0 || bytes > AREA_BYTES_MAX {
        return Err(Fault::Full { bytes });
    }
    let bytes = bytes.max(AREA_BYTES_MIN);
    let doubling = bytes.ilog2();
    let quarter = (1 << doubling) / u64::from(CLASSES_PER_DOUBLING);
    let quarters = (bytes - (1 << doubling)).div_ceil(quarter);
    let size = (1 << doubling) + quarters * quarter;
    let class = u64::from(doubling * CLASSES_PER_DOUBLING) + quarters;
    Ok((usize::try_from(class).unwrap_or(CLASSES) % CLASSES, size))
}

/// As [`Memory::allocate`](crate::Memory::allocate) promises, for every request that is served with areas of this size.
fn alignment(size: u64) -> u64 {
    (1 << size.ilog2()).min(PAGE_BYTES as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_holds_what_belongs_to_it_with_little_waste() {
        for bytes in (1..5000).chain([1 << 20, (1 << 20) + 1, AREA_BYTES_MAX]) {
            let (index, size) = class(bytes).unwrap();
            assert!(size >= bytes, "{bytes}");
            assert!(
                bytes < AREA_BYTES_MIN || size <= bytes + bytes / 4 + 1,
                "{bytes}"
            );
            assert_eq!(class(size).unwrap(), (index, size), "{bytes}");
            assert!(size.is_multiple_of(4));
        }
        assert!(class(0).is_err() && class(AREA_BYTES_MAX + 1).is_err());
    }
}
