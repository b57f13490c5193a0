//! The persistent allocator of a space: areas whose sizes are powers of two, and for each size a list of the free ones.
//!
//! ```text
//!  page 0        the root, alone on its page: everybody reads it, hardly anybody writes it
//!  page 1        the end of what was ever handed out
//!  pages 2-17    arenas: for each size the first free area, which begins with the offset of the next
//!  page 18 on    areas
//! ```
//!
//! All of it is read and written like everything else in a transaction, so an allocation happens or does not happen with the
//! rest. Each slot has its arena, so that transactions which run at the same time seldom meet; an arena gets a *chunk* at a
//! time from the end. Larger free areas are split; they are not joined again.

use crate::error::{Error, Result};
use crate::memory::{Fault, Fixed, Memory, Offset, PAGE_BYTES};

const PAGE: u64 = PAGE_BYTES as u64;
const ROOT: Offset<u64> = Offset::new(8);
const END: Offset<u64> = Offset::new(PAGE);
const ARENAS: u64 = 16;
const ARENAS_AT: u64 = 2 * PAGE;
const AREAS_AT: u64 = ARENAS_AT + ARENAS * PAGE;

/// The smallest area has 16 bytes.
const CLASS_MIN: u32 = 4;
/// The largest has 16 TiB.
const CLASS_MAX: u32 = 44;
const PAGE_CLASS: u32 = PAGE.ilog2();
/// What an arena takes from the end at least: 256 KiB.
const CHUNK_CLASS: u32 = 18;

pub(crate) fn root(memory: &impl Memory<Error = Error>) -> Result<u64> {
    memory.load(ROOT)
}

pub(crate) fn set_root(memory: &mut impl Memory<Error = Error>, root: u64) -> Result<()> {
    memory.store(ROOT, &root)
}

/// Takes an area from an arena, whose number may be any.
pub(crate) fn allocate(
    memory: &mut impl Memory<Error = Error>,
    arena: u32,
    limit: u64,
    bytes: u64,
) -> Result<u64> {
    let class = class_of(bytes)?;
    let arena = u64::from(arena) % ARENAS;
    let mut heap = Heap { memory, limit };
    if class < PAGE_CLASS {
        heap.take_small(arena, class)
    } else {
        heap.take(arena, class)
    }
}

/// Gives an area to an arena.
pub(crate) fn free(
    memory: &mut impl Memory<Error = Error>,
    arena: u32,
    limit: u64,
    offset: u64,
    bytes: u64,
) -> Result<()> {
    let class = class_of(bytes)?;
    let mut heap = Heap { memory, limit };
    heap.check(offset, class, "this was never allocated")?;
    heap.push(u64::from(arena) % ARENAS, class, offset)
}

/// The binary logarithm of the size of an area for so many bytes.
fn class_of(bytes: u64) -> Result<u32> {
    let class = bytes.checked_next_power_of_two().map(u64::ilog2);
    match class.map(|class| class.max(CLASS_MIN)) {
        Some(class) if class <= CLASS_MAX && bytes > 0 => Ok(class),
        _ => Err(Fault::Full { bytes }.into()),
    }
}

struct Heap<'a, M> {
    memory: &'a mut M,
    /// The size of the space.
    limit: u64,
}

impl<M: Memory<Error = Error>> Heap<'_, M> {
    /// Takes an area of less than a page.
    fn take_small(&mut self, arena: u64, class: u32) -> Result<u64> {
        if let Some(area) = self.pop(arena, class)? {
            return Ok(area);
        }
        let page = self.take(arena, PAGE_CLASS)?;
        // The first is handed out, the others go into the list so that the lower ones are handed out first.
        for place in (1..PAGE >> class).rev() {
            self.push(arena, class, page + (place << class))?;
        }
        Ok(page)
    }

    /// Takes an area of one or more pages.
    fn take(&mut self, arena: u64, class: u32) -> Result<u64> {
        if let Some(area) = self.split(arena, class)? {
            return Ok(area);
        }
        let chunk = class.max(CHUNK_CLASS);
        match self.grow(chunk) {
            Ok(area) => self.split_area(arena, area, chunk, class),
            Err(full) => {
                // Less than a chunk may be left, or others have something.
                for other in 0..ARENAS {
                    if let Some(area) = self.split(other, class)? {
                        return Ok(area);
                    }
                }
                if chunk > class {
                    self.grow(class)
                } else {
                    Err(full)
                }
            }
        }
    }

    /// Takes the smallest free area of an arena that is large enough, and keeps the rest of it.
    fn split(&mut self, arena: u64, class: u32) -> Result<Option<u64>> {
        for larger in class..=CLASS_MAX {
            if let Some(area) = self.pop(arena, larger)? {
                return self.split_area(arena, area, larger, class).map(Some);
            }
        }
        Ok(None)
    }

    fn split_area(&mut self, arena: u64, area: u64, from: u32, to: u32) -> Result<u64> {
        for class in (to..from).rev() {
            self.push(arena, class, area + (1 << class))?;
        }
        Ok(area)
    }

    /// Takes an area that was never handed out.
    fn grow(&mut self, class: u32) -> Result<u64> {
        let bytes = 1 << class;
        let area = self.memory.load(END)?.max(AREAS_AT);
        let end = area.checked_add(bytes).filter(|end| *end <= self.limit);
        let end = end.ok_or(Fault::Full { bytes })?;
        self.memory.store(END, &end)?;
        Ok(area)
    }

    fn pop(&mut self, arena: u64, class: u32) -> Result<Option<u64>> {
        let list = list_of(arena, class);
        let area = self.memory.load(list)?;
        if area == 0 {
            return Ok(None);
        }
        self.check(area, class, "a list of free areas leads elsewhere")?;
        let next = self.memory.load(Offset::<u64>::new(area))?;
        self.memory.store(list, &next)?;
        Ok(Some(area))
    }

    fn push(&mut self, arena: u64, class: u32, area: u64) -> Result<()> {
        let list = list_of(arena, class);
        let next = self.memory.load(list)?;
        self.memory.store(Offset::new(area), &next)?;
        self.memory.store(list, &area)
    }

    /// Refuses what cannot be an area.
    fn check(&self, offset: u64, class: u32, reason: &'static str) -> Result<()> {
        let alignment = (1 << class).min(PAGE);
        let end = offset.checked_add(1 << class);
        let end_max = self.limit;
        if offset < AREAS_AT
            || !offset.is_multiple_of(alignment)
            || end.is_none_or(|end| end > end_max)
        {
            return Err(Fault::Damaged { offset, reason }.into());
        }
        Ok(())
    }
}

fn list_of(arena: u64, class: u32) -> Offset<u64> {
    let place = u64::from(class - CLASS_MIN) * u64::BYTES as u64;
    Offset::new(ARENAS_AT + arena * PAGE + place)
}
