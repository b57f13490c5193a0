//! Values that are too long for a block: an area of their own, described in the block by its offset and length.

use crate::block::{Cell, OUTSIDE_BYTES, damaged};
use crate::fixed::Fixed;
use crate::memory::{Fault, Memory};

/// The longest value of both trees: 64 MiB.
pub const VALUE_BYTES_MAX: usize = 64 << 20;

/// Refuses values that are too long for any tree.
pub(crate) fn bound(value: &[u8]) -> Result<(), Fault> {
    if value.len() > VALUE_BYTES_MAX {
        return Err(Fault::ValueTooLong {
            bytes: value.len(),
            max: VALUE_BYTES_MAX,
        });
    }
    Ok(())
}

/// Stores a value outside, and describes it.
pub(crate) fn store<M: Memory>(
    memory: &mut M,
    value: &[u8],
) -> Result<[u8; OUTSIDE_BYTES], M::Error> {
    let length = value.len() as u64;
    let at = memory.allocate(length)?;
    memory.write(at, value.len())?.copy_from_slice(value);
    let mut description = [0; OUTSIDE_BYTES];
    at.encode(&mut description[..8]);
    length.encode(&mut description[8..]);
    Ok(description)
}

/// The value of a record.
pub(crate) fn load<'m, M: Memory>(memory: &'m M, cell: Cell<'m>) -> Result<&'m [u8], M::Error> {
    if !cell.outside {
        return Ok(cell.value);
    }
    let (at, length) = describe::<M>(cell.value)?;
    memory.read(at, length)
}

/// Gives back the area of a value outside.
pub(crate) fn free<M: Memory>(memory: &mut M, description: &[u8]) -> Result<(), M::Error> {
    let (at, length) = describe::<M>(description)?;
    memory.free(at, length as u64)
}

fn describe<M: Memory>(description: &[u8]) -> Result<(u64, usize), M::Error> {
    let (at, length) = description
        .split_first_chunk::<8>()
        .filter(|(_, length)| length.len() == 8)
        .ok_or_else(|| damaged(0, "a value outside without its place"))?;
    let at = u64::from_le_bytes(*at);
    match usize::try_from(u64::decode(length)) {
        Ok(length) if (1..=VALUE_BYTES_MAX).contains(&length) => Ok((at, length)),
        _ => Err(damaged(at, "a value outside of an impossible length")),
    }
}
