//! The persistent allocator of a space: areas whose sizes are powers of two, cut from free extents, which join when
//! they touch.
//!
//! ```text
//!  page 0        roots, see `root_page`
//!  page 1        the end of what was ever handed out
//!  pages 2-17    arenas: their free extents, see `free_extents`
//!  page 18 on    areas, and nodes
//!
//!  arena    0   328  lists: for each size the first free area, which begins with the offset of the next
//!         512        the root of the tree of free extents
//! ```
//!
//! All of it is read and written like everything else in a transaction, so an allocation happens or does not happen
//! with the rest. Each slot has its arena, so that transactions which run at the same time seldom meet; an arena gets a
//! *chunk* at a time from the end. What a transaction gives back goes to its own arena, wherever it came from: what
//! lies side by side in two arenas joins only when there is no room left at all.
//!
//! The lists hold what found no page for a node when the tree needed one and the space was full, and what earlier
//! releases, which had nothing else, have left there. It goes into the tree before an arena gets another chunk.

mod free_extents;

use self::free_extents::{CLASS_MAX, CLASS_MIN, FreeExtent, alignment};
use crate::error::{Error, Result};
use crate::fixed::{Fixed, Ptr};
use crate::memory::{Fault, Memory, PAGE_BYTES};

const PAGE: u64 = PAGE_BYTES as u64;
const END: Ptr<u64> = Ptr::new(PAGE);
const ARENAS: u64 = 16;
const ARENAS_AT: u64 = 2 * PAGE;
const AREAS_AT: u64 = ARENAS_AT + ARENAS * PAGE;
/// What the root and the allocator take up at the beginning of a space, in bytes. A program may look at it and not
/// store there.
pub const RESERVED_BYTES: u64 = AREAS_AT;

/// What an arena takes from the end at least.
const CHUNK_BYTES: u64 = 256 << 10;
/// So many listed areas go into the tree at a time, and so many where there is no room left.
const LISTED_MAX: usize = 64;
const LISTED_MAX_WITHOUT_ROOM: usize = 1 << 16;

/// Takes an area from an arena, whose number may be any.
pub(crate) fn allocate(
    memory: &mut impl Memory<Error = Error>,
    arena: u32,
    limit: u64,
    bytes: u64,
) -> Result<u64> {
    let class = class_of(bytes)?;
    Heap::new(memory, arena, limit).allocate(class)
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
    let mut heap = Heap::new(memory, arena, limit);
    heap.check(offset, class, "this was never allocated")?;
    let bytes = 1 << class;
    heap.give(FreeExtent { offset, bytes })
}

/// The end of what was ever handed out.
pub(crate) fn end(memory: &impl Memory<Error = Error>) -> Result<u64> {
    let end = memory.load(END)?.max(AREAS_AT);
    if !end.is_multiple_of(PAGE) {
        let reason = "what was handed out ends within a page";
        return Err(Fault::Damaged {
            offset: END.get(),
            reason,
        }
        .into());
    }
    Ok(end)
}

/// The binary logarithm of the size of an area for so many bytes.
fn class_of(bytes: u64) -> Result<u32> {
    let class = bytes.checked_next_power_of_two().map(u64::ilog2);
    match class.map(|class| class.max(CLASS_MIN)) {
        Some(class) if class <= CLASS_MAX && bytes > 0 => Ok(class),
        _ => Err(Fault::Full { bytes }.into()),
    }
}

/// The allocator as one arena uses it.
pub(crate) struct Heap<'a, M> {
    pub(crate) memory: &'a mut M,
    arena: u64,
    /// The size of the space.
    pub(crate) limit: u64,
    /// Pages that are no nodes any more, and are to be given back.
    pub(crate) emptied: Vec<u64>,
}

impl<'a, M: Memory<Error = Error>> Heap<'a, M> {
    pub(crate) fn new(memory: &'a mut M, arena: u32, limit: u64) -> Self {
        Self {
            memory,
            arena: u64::from(arena) % ARENAS,
            limit,
            emptied: Vec::new(),
        }
    }

    fn allocate(&mut self, class: u32) -> Result<u64> {
        if let Some(area) = self.take(class)? {
            return Ok(area);
        }
        if self.unlist()?
            && let Some(area) = self.take(class)?
        {
            return Ok(area);
        }
        if self.add_chunk(class)?
            && let Some(area) = self.take(class)?
        {
            return Ok(area);
        }
        let own = self.arena;
        for arena in 0..ARENAS {
            self.arena = arena;
            if let Some(area) = self.take(class)? {
                return Ok(area);
            }
            if let Some(area) = self.take_listed(class)? {
                return Ok(area);
            }
        }
        self.arena = own;
        self.take_across(class)?.ok_or_else(|| {
            let bytes = 1 << class;
            Fault::Full { bytes }.into()
        })
    }

    /// Makes what was never handed out a free extent, enough for an area of a class together with what is free right
    /// before it. Gives `false` if there is not enough.
    fn add_chunk(&mut self, class: u32) -> Result<bool> {
        let end = self.end()?;
        let before = self.last_until(end)?.filter(|last| last.end() == end);
        let start = before.map_or(end, |before| before.offset);
        let area_end = start.next_multiple_of(alignment(class)) + (1 << class);
        let missing = area_end.saturating_sub(end).next_multiple_of(PAGE);
        let room = self.limit.saturating_sub(end);
        if room < missing.max(PAGE) {
            return Ok(false);
        }
        let bytes = missing.max(CHUNK_BYTES).min(room);
        let Some(offset) = self.extend(bytes)? else {
            return Ok(false);
        };
        self.give(FreeExtent { offset, bytes })?;
        Ok(true)
    }

    /// Takes so many bytes, whole pages, that were never handed out.
    pub(crate) fn extend(&mut self, bytes: u64) -> Result<Option<u64>> {
        let area = self.end()?;
        let end = area.checked_add(bytes).filter(|end| *end <= self.limit);
        if let Some(end) = end {
            self.memory.store(END, &end)?;
        }
        Ok(end.map(|_| area))
    }

    fn end(&self) -> Result<u64> {
        end(self.memory)
    }

    /// Takes an area of a class from extents that lie side by side in several arenas, or before what was never handed
    /// out.
    fn take_across(&mut self, class: u32) -> Result<Option<u64>> {
        let own = self.arena;
        let mut pieces = Vec::new();
        let mut listed = Vec::new();
        for arena in 0..ARENAS {
            self.arena = arena;
            self.pop_listed(LISTED_MAX_WITHOUT_ROOM, &mut listed)?;
            let extents = self.all_extents()?;
            pieces.extend(extents.into_iter().map(|piece| (piece, Some(arena))));
        }
        pieces.extend(joined(listed).into_iter().map(|piece| (piece, None)));
        pieces.sort_unstable();
        let end = self.end()?;
        let mut found = None;
        for run in pieces.chunk_by(|(before, _), (next, _)| before.end() == next.offset) {
            if found.is_none() {
                found = self.take_from_run(run, end, class, own)?;
                if found.is_some() {
                    continue;
                }
            }
            self.arena = own;
            for (piece, _) in run.iter().filter(|(_, arena)| arena.is_none()) {
                self.give(*piece)?;
            }
        }
        self.arena = own;
        Ok(found)
    }

    /// Takes an area of a class from pieces that lie side by side, each of an arena or of none, for the arena `own`.
    fn take_from_run(
        &mut self,
        run: &[(FreeExtent, Option<u64>)],
        end: u64,
        class: u32,
        own: u64,
    ) -> Result<Option<u64>> {
        let (Some((first, _)), Some((last, _))) = (run.first(), run.last()) else {
            return Ok(None);
        };
        let is_last = last.end() == end;
        let run_end = if is_last { self.limit } else { last.end() };
        let whole = FreeExtent {
            offset: first.offset,
            bytes: run_end.saturating_sub(first.offset),
        };
        let Some(area) = whole.place(class) else {
            return Ok(None);
        };
        for (piece, arena) in run {
            if let Some(arena) = arena {
                self.arena = *arena;
                self.remove(*piece)?;
            }
        }
        self.arena = own;
        let area_end = area + (1 << class);
        let mut rest_end = last.end();
        if area_end > rest_end {
            rest_end = area_end.next_multiple_of(PAGE);
            self.memory.store(END, &rest_end)?;
        }
        for (offset, end) in [(whole.offset, area), (area_end, rest_end)] {
            if offset < end {
                let bytes = end - offset;
                self.give(FreeExtent { offset, bytes })?;
            }
        }
        self.give_emptied()?;
        Ok(Some(area))
    }

    /// Puts an extent into the lists, as areas.
    pub(crate) fn list(&mut self, extent: FreeExtent) -> Result<()> {
        let mut offset = extent.offset;
        while offset < extent.end() {
            let left = extent.end() - offset;
            let mut class = left.ilog2().min(CLASS_MAX);
            while !offset.is_multiple_of(alignment(class)) {
                class -= 1;
            }
            self.push(class, offset)?;
            offset += 1 << class;
        }
        Ok(())
    }

    /// Takes some areas out of the lists and makes them free extents; gives whether there were any.
    fn unlist(&mut self) -> Result<bool> {
        let mut listed = Vec::new();
        self.pop_listed(LISTED_MAX, &mut listed)?;
        let was_any = !listed.is_empty();
        for extent in joined(listed) {
            self.give(extent)?;
        }
        Ok(was_any)
    }

    /// Takes areas out of the lists until there are so many.
    fn pop_listed(&mut self, most: usize, areas: &mut Vec<FreeExtent>) -> Result<()> {
        for class in CLASS_MIN..=CLASS_MAX {
            while areas.len() < most
                && let Some(offset) = self.pop(class)?
            {
                let bytes = 1 << class;
                areas.push(FreeExtent { offset, bytes });
            }
        }
        Ok(())
    }

    /// Takes an area of a class from the lists.
    fn take_listed(&mut self, class: u32) -> Result<Option<u64>> {
        for larger in class..=CLASS_MAX {
            if let Some(area) = self.pop(larger)? {
                if larger > class {
                    self.give(FreeExtent {
                        offset: area + (1 << class),
                        bytes: (1 << larger) - (1 << class),
                    })?;
                }
                return Ok(Some(area));
            }
        }
        Ok(None)
    }

    fn pop(&mut self, class: u32) -> Result<Option<u64>> {
        let list = self.list_of(class);
        let area = self.memory.load(list)?;
        if area == 0 {
            return Ok(None);
        }
        self.check(area, class, "a list of free areas leads elsewhere")?;
        let next = self.memory.load(Ptr::<u64>::new(area))?;
        self.memory.store(list, &next)?;
        Ok(Some(area))
    }

    fn push(&mut self, class: u32, area: u64) -> Result<()> {
        let list = self.list_of(class);
        let next = self.memory.load(list)?;
        self.memory.store(Ptr::new(area), &next)?;
        self.memory.store(list, &area)
    }

    /// Refuses what cannot be an area.
    fn check(&self, offset: u64, class: u32, reason: &'static str) -> Result<()> {
        let end = offset.checked_add(1 << class);
        if offset < AREAS_AT
            || !offset.is_multiple_of(alignment(class))
            || end.is_none_or(|end| end > self.limit)
        {
            return Err(Fault::Damaged { offset, reason }.into());
        }
        Ok(())
    }

    /// Refuses what cannot be a page of areas or a node.
    pub(crate) fn check_page(&self, offset: u64) -> Result<()> {
        self.check(offset, PAGE.ilog2(), "free extents lead elsewhere")
    }

    /// Where the page of the arena is.
    pub(crate) fn arena_at(&self) -> u64 {
        ARENAS_AT + self.arena * PAGE
    }

    fn list_of(&self, class: u32) -> Ptr<u64> {
        let place = u64::from(class - CLASS_MIN) * u64::BYTES as u64;
        Ptr::new(self.arena_at() + place)
    }
}

/// Areas as extents, of which no two touch.
fn joined(mut areas: Vec<FreeExtent>) -> Vec<FreeExtent> {
    areas.sort_unstable();
    areas.dedup_by(|area, before| {
        let touches = before.end() == area.offset;
        if touches {
            before.bytes += area.bytes;
        }
        touches
    });
    areas
}

/// Looks whether what is handed out and what is free make up the space, without anything left out or twice.
#[cfg(all(test, not(shuttle)))]
pub(crate) fn audit(
    memory: &mut impl Memory<Error = Error>,
    limit: u64,
    areas: impl IntoIterator<Item = (u64, u64)>,
    may_touch: bool,
) -> Result<()> {
    let mut pieces = Vec::new();
    for (offset, bytes) in areas {
        let bytes = 1 << class_of(bytes)?;
        pieces.push((FreeExtent { offset, bytes }, "an area"));
    }
    for arena in 0..ARENAS as u32 {
        let heap = Heap::new(memory, arena, limit);
        let nodes = heap.pages_of_tree(may_touch)?;
        let page = |offset| FreeExtent {
            offset,
            bytes: PAGE,
        };
        pieces.extend(nodes.into_iter().map(|at| (page(at), "a node")));
        let free = heap.all_extents()?;
        pieces.extend(free.into_iter().map(|extent| (extent, "free")));
        for class in CLASS_MIN..=CLASS_MAX {
            let mut offset = heap.memory.load(heap.list_of(class))?;
            while offset != 0 {
                let bytes = 1 << class;
                pieces.push((FreeExtent { offset, bytes }, "listed"));
                offset = heap.memory.load(Ptr::<u64>::new(offset))?;
            }
        }
    }
    pieces.sort_unstable();
    let mut at = AREAS_AT;
    for (piece, kind) in pieces {
        assert_eq!(piece.offset, at, "{kind}: {piece:?}");
        at = piece.end();
    }
    assert_eq!(at, Heap::new(memory, 0, limit).end()?, "the end");
    Ok(())
}
