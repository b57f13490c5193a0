//! The allocator of memory without transactions.
//!
//! Small areas are of a size class each, and each class has a list of the free ones. Large areas are so many pages, and
//! free pages that are next to each other join: what was several areas becomes room for one that is larger, and what is
//! free at the end was never handed out. The free extents of pages stand in a table; when that is full, the smallest of
//! them goes into the lists.
//!
//! ```text
//! OFFSET  SIZE  DESCRIPTION
//!      0     8  "sapwheap"
//!      8     8  root
//!     16     8  end of what is handed out
//!     24     8  how many free extents there are
//!     32  2048  the first free area of each class; each free area begins with the offset of the next
//!   2080  2016  the free extents, each by offset and length, in order; no two of them touch
//! ```

use crate::fixed::Fixed;
use crate::memory::{Fault, PAGE_BYTES};

const MAGIC: [u8; 8] = *b"sapwheap";
const ROOT: usize = 8;
const END: usize = 16;
const COUNT: usize = 24;
const LISTS: usize = 32;
const EXTENTS: usize = LISTS + 8 * CLASSES;

/// Sizes grow in quarters of a power of two.
const CLASSES_PER_DOUBLING: u32 = 4;
const CLASSES: usize = (u64::BITS * CLASSES_PER_DOUBLING) as usize;

/// The bytes the allocator keeps for itself at the beginning.
pub(crate) const HEAP_BYTES: usize = PAGE_BYTES;

const PAGE: u64 = PAGE_BYTES as u64;

/// The smallest area.
const AREA_BYTES_MIN: u64 = 16;

/// The largest area: 1 TiB.
const AREA_BYTES_MAX: u64 = 1 << 40;

/// Areas from this size on are whole pages: from here on classes are, too.
const LARGE_BYTES_MIN: u64 = CLASSES_PER_DOUBLING as u64 * PAGE;

/// As many extents as the first page has room for.
const EXTENTS_MAX: usize = (HEAP_BYTES - EXTENTS) / EXTENT_BYTES;
const EXTENT_BYTES: usize = 16;

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
        return Err(damaged(0, "no heap begins here"));
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
    if size >= LARGE_BYTES_MIN {
        return allocate_large(memory, bytes.next_multiple_of(PAGE));
    }
    if let Some(area) = pop(memory, class, size)? {
        return Ok(area);
    }
    if size.is_multiple_of(PAGE)
        && let Some(area) = FreeExtents::load(memory.bytes())?.take(memory, size)?
    {
        return Ok(area);
    }
    extend(memory, size)
}

/// Takes an area of whole pages.
fn allocate_large<G: Growing>(memory: &mut G, size: u64) -> Result<u64, G::Error> {
    let (class, listed) = class(size)?;
    if listed == size
        && let Some(area) = pop(memory, class, size)?
    {
        return Ok(area);
    }
    if let Some(area) = FreeExtents::load(memory.bytes())?.take(memory, size)? {
        return Ok(area);
    }
    if let Some(area) = pop(memory, class, listed)? {
        if listed > size {
            free_pages(memory, area + size, listed - size)?;
        }
        return Ok(area);
    }
    extend(memory, size)
}

/// Takes an area behind everything that is handed out.
fn extend<G: Growing>(memory: &mut G, size: u64) -> Result<u64, G::Error> {
    let end = end(memory.bytes())?;
    let full = || Fault::Full { bytes: size };
    let alignment = alignment(size);
    let start = end.checked_next_multiple_of(alignment).ok_or_else(full)?;
    let end = start.checked_add(size).ok_or_else(full)?;
    if end > memory.bytes().len() as u64 {
        memory.grow(end)?;
    }
    end.encode(&mut memory.bytes_mut()[END..END + 8]);
    Ok(start)
}

pub(crate) fn free<G: Growing>(memory: &mut G, offset: u64, bytes: u64) -> Result<(), G::Error> {
    let (class, mut size) = class(bytes)?;
    let large = size >= LARGE_BYTES_MIN;
    if large {
        size = bytes.next_multiple_of(PAGE);
    }
    part(memory.bytes(), offset, size)?;
    if offset < HEAP_BYTES as u64 || !offset.is_multiple_of(alignment(size)) {
        return Err(damaged(offset, "no area begins here").into());
    }
    match large {
        true => free_pages(memory, offset, size),
        false => push(memory, class, offset),
    }
}

/// Gives back pages, which may be any that are within the memory.
fn free_pages<G: Growing>(memory: &mut G, offset: u64, bytes: u64) -> Result<(), G::Error> {
    let mut extents = FreeExtents::load(memory.bytes())?;
    extents.add((offset, bytes));
    let end = end(memory.bytes())?;
    if let Some((start, _)) = extents.pop_before(end) {
        start.encode(&mut memory.bytes_mut()[END..END + 8]);
    }
    let surplus = extents.surplus();
    extents.store(memory.bytes_mut());
    let Some((mut offset, mut bytes)) = surplus else {
        return Ok(());
    };
    // As few areas as possible, each as large as its class says.
    while bytes > 0 {
        let (mut class, mut size) = class(bytes)?;
        if size > bytes {
            class -= 1;
            size = size_of_class(class);
        }
        push(memory, class, offset)?;
        (offset, bytes) = (offset + size, bytes - size);
    }
    Ok(())
}

/// Takes an area from the list of its class.
fn pop<G: Growing>(memory: &mut G, class: usize, size: u64) -> Result<Option<u64>, G::Error> {
    let list = LISTS + 8 * class;
    let area = u64::decode(&memory.bytes()[list..list + 8]);
    if area == 0 {
        return Ok(None);
    }
    let next = u64::decode(part(memory.bytes(), area, 8)?);
    part(memory.bytes(), area, size)?;
    next.encode(&mut memory.bytes_mut()[list..list + 8]);
    Ok(Some(area))
}

/// Puts an area into the list of its class.
fn push<G: Growing>(memory: &mut G, class: usize, area: u64) -> Result<(), G::Error> {
    let list = LISTS + 8 * class;
    let next = u64::decode(&memory.bytes()[list..list + 8]);
    let at = place(memory.bytes(), area, 8)?;
    next.encode(&mut memory.bytes_mut()[at..at + 8]);
    area.encode(&mut memory.bytes_mut()[list..list + 8]);
    Ok(())
}

/// The end of what is handed out.
fn end(bytes: &[u8]) -> Result<u64, Fault> {
    let end = u64::decode(&bytes[END..END + 8]);
    match end > bytes.len() as u64 {
        true => Err(damaged(END as u64, "more was handed out than there is")),
        false => Ok(end),
    }
}

/// The free extents of pages: offset and length of each, all of them within the memory.
struct FreeExtents(Vec<(u64, u64)>);

impl FreeExtents {
    fn load(bytes: &[u8]) -> Result<Self, Fault> {
        let count = usize::try_from(u64::decode(&bytes[COUNT..COUNT + 8]));
        let count = count.ok().filter(|count| *count <= EXTENTS_MAX);
        let count = count.ok_or(damaged(COUNT as u64, "more free extents than there can be"))?;
        let table = bytes[EXTENTS..HEAP_BYTES].chunks_exact(EXTENT_BYTES);
        let extents = table.take(count).map(|extent| {
            let (offset, length) = (u64::decode(&extent[..8]), u64::decode(&extent[8..]));
            let whole = offset.is_multiple_of(PAGE) && length.is_multiple_of(PAGE);
            if !whole || offset < HEAP_BYTES as u64 || length == 0 {
                return Err(damaged(offset, "no free pages begin here"));
            }
            part(bytes, offset, length)?;
            Ok((offset, length))
        });
        Ok(Self(extents.collect::<Result<_, _>>()?))
    }

    fn store(&self, bytes: &mut [u8]) {
        (self.0.len() as u64).encode(&mut bytes[COUNT..COUNT + 8]);
        let table = bytes[EXTENTS..HEAP_BYTES].chunks_exact_mut(EXTENT_BYTES);
        for (to, (offset, length)) in table.zip(&self.0) {
            offset.encode(&mut to[..8]);
            length.encode(&mut to[8..]);
        }
    }

    /// Takes pages from the smallest extent that has so many.
    fn take<G: Growing>(mut self, memory: &mut G, size: u64) -> Result<Option<u64>, G::Error> {
        let enough = self.0.iter_mut().filter(|(_, length)| *length >= size);
        let Some(extent) = enough.min_by_key(|(_, length)| *length) else {
            return Ok(None);
        };
        let offset = extent.0;
        *extent = (offset + size, extent.1 - size);
        self.0.retain(|(_, length)| *length > 0);
        self.store(memory.bytes_mut());
        Ok(Some(offset))
    }

    /// Adds an extent, which joins those that it touches.
    fn add(&mut self, (mut offset, mut length): (u64, u64)) {
        let mut place = self.0.partition_point(|(start, _)| *start < offset);
        if let Some((start, before)) = place.checked_sub(1).map(|before| self.0[before])
            && start + before == offset
        {
            place -= 1;
            self.0.remove(place);
            (offset, length) = (start, before + length);
        }
        if let Some((start, behind)) = self.0.get(place).copied()
            && offset + length == start
        {
            self.0.remove(place);
            length += behind;
        }
        self.0.insert(place, (offset, length));
    }

    /// Takes out the extent that ends there.
    fn pop_before(&mut self, end: u64) -> Option<(u64, u64)> {
        self.0.pop_if(|(offset, length)| *offset + *length == end)
    }

    /// Takes out the smallest if there are too many.
    fn surplus(&mut self) -> Option<(u64, u64)> {
        if self.0.len() <= EXTENTS_MAX {
            return None;
        }
        let smallest = (0..self.0.len()).min_by_key(|place| self.0[*place].1)?;
        Some(self.0.remove(smallest))
    }
}

fn damaged(offset: u64, reason: &'static str) -> Fault {
    Fault::Damaged { offset, reason }
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

/// The size of the areas of a class.
fn size_of_class(class: usize) -> u64 {
    let quarters = class as u64 % u64::from(CLASSES_PER_DOUBLING);
    let doubling = class / CLASSES_PER_DOUBLING as usize;
    (1 << doubling) / u64::from(CLASSES_PER_DOUBLING) * (u64::from(CLASSES_PER_DOUBLING) + quarters)
}

/// As [`Memory::allocate`](crate::Memory::allocate) promises, for every request that is served with areas of this size.
fn alignment(size: u64) -> u64 {
    (1 << size.ilog2()).min(PAGE_BYTES as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::Memory as _;
    use crate::plain::Plain;

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
            assert_eq!(size_of_class(index), size, "{bytes}");
            assert!(size.is_multiple_of(4));
        }
        assert!(class(0).is_err() && class(AREA_BYTES_MAX + 1).is_err());
    }

    fn end_of(memory: &Plain) -> u64 {
        end(memory.as_bytes()).unwrap()
    }

    #[test]
    fn free_neighbours_become_room_for_a_larger_area() {
        let mut memory = Plain::new();
        let areas: Vec<u64> = (0..4).map(|_| memory.allocate(100_000).unwrap()).collect();
        let last = memory.allocate(100).unwrap();
        let before = end_of(&memory);
        for area in [areas[2], areas[0], areas[3], areas[1]] {
            memory.free(area, 100_000).unwrap();
        }
        assert_eq!(memory.allocate(400_000).unwrap(), areas[0]);
        assert_eq!(end_of(&memory), before);
        assert!(last > areas[3]);
        memory.free(areas[0], 400_000).unwrap();
        let block = memory.allocate(PAGE).unwrap();
        assert_eq!(block, areas[0], "a page of it");
    }

    #[test]
    fn what_is_free_at_the_end_was_never_handed_out() {
        let mut memory = Plain::new();
        let before = end_of(&memory);
        let areas: Vec<u64> = (0..3).map(|_| memory.allocate(1 << 20).unwrap()).collect();
        for area in [areas[1], areas[0], areas[2]] {
            memory.free(area, 1 << 20).unwrap();
        }
        assert_eq!(end_of(&memory), before);
    }

    #[test]
    fn more_extents_than_the_table_holds_are_used_again_too() {
        let mut memory = Plain::new();
        let size = |number: u64| LARGE_BYTES_MIN + number % 7 * PAGE;
        let areas: Vec<u64> = (0..1000)
            .map(|number| memory.allocate(size(number)).unwrap())
            .collect();
        let before = end_of(&memory);
        let every_second = || (0..1000).zip(&areas).step_by(2);
        for (number, area) in every_second() {
            memory.free(*area, size(number)).unwrap();
        }
        let mut taken: Vec<u64> = every_second()
            .map(|(number, _)| memory.allocate(size(number)).unwrap())
            .collect();
        // Extents of a size that is no class lie in the lists as two areas.
        assert!(end_of(&memory) - before < (before - HEAP_BYTES as u64) / 8);
        taken.extend(areas.iter().skip(1).step_by(2));
        taken.sort_unstable();
        taken.dedup();
        assert_eq!(taken.len(), 1000);
    }

    proptest::proptest! {
        #[test]
        fn areas_keep_to_themselves(steps in proptest::collection::vec((0..400_usize, 1..200_000_u64), 1..600)) {
            let mut memory = Plain::new();
            let mut areas: Vec<(u64, Vec<u8>)> = Vec::new();
            for (number, (which, bytes)) in steps.into_iter().enumerate() {
                if which < areas.len() {
                    let (area, content) = areas.swap_remove(which);
                    assert_eq!(memory.read(area, content.len()).unwrap(), content);
                    memory.free(area, content.len() as u64).unwrap();
                    continue;
                }
                let area = memory.allocate(bytes).unwrap();
                let content = vec![number.to_le_bytes()[0]; usize::try_from(bytes).unwrap()];
                memory.write(area, content.len()).unwrap().copy_from_slice(&content);
                areas.push((area, content));
            }
            for (area, content) in areas {
                assert_eq!(memory.read(area, content.len()).unwrap(), content);
            }
        }
    }

    #[test]
    fn impossible_extents_are_errors() {
        for (offset, length) in [
            (PAGE, u64::MAX - 4095),
            (8, PAGE),
            (0, PAGE),
            (PAGE, 0),
            (PAGE, 1),
        ] {
            let mut memory = Plain::new();
            let mut bytes = memory.as_bytes().to_vec();
            FreeExtents(vec![(offset, length)]).store(&mut bytes);
            memory = Plain::from_bytes(bytes).unwrap();
            assert!(memory.allocate(1 << 20).is_err());
        }
        let mut bytes = Plain::new().as_bytes().to_vec();
        bytes[COUNT] = 127;
        assert!(Plain::from_bytes(bytes).unwrap().allocate(1 << 20).is_err());
    }
}
