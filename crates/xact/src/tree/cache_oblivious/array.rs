//! An array of segments in key order, with room left in each, and its index.
//!
//! The segments are in use from the first one to the last one that the index bounds; those behind it have never been
//! touched. They lie in a few areas of the memory of the same size, which find room where a single one would not. When
//! the array has grown at its end there are more: each further area has as many segments as all before it.
//!
//! ```text
//! OFFSET  SIZE  DESCRIPTION
//!      0     8  segments in each of the areas it began with
//!      8     8  how many areas it began with
//!     16     8  how many areas there are
//!     24     8  offset of the index
//!     32   288  offsets of the areas
//! ```

use std::ops::Range;

use super::KEY_BYTES_MAX;
use super::index::{Bound, HEAD_BYTES, Index, SEGMENTS_MAX};
use crate::block::{
    Block, BlockMut, CELL_HEADER_BYTES, HEADER_BYTES, Kind, Records, damaged, separator,
};
use crate::fixed::Fixed;
use crate::memory::{Fault, Memory, PAGE_BYTES};

/// A segment is a page, the granule of conflicts and of disks.
pub(super) const SEGMENT_BYTES: usize = PAGE_BYTES;

/// Bytes of a segment for records and their slots.
pub(super) const CAPACITY: usize = SEGMENT_BYTES - HEADER_BYTES;

/// How full segments are packed where no record is expected soon: a tenth is left for those that come all the same.
pub(super) const DENSE_BYTES: usize = CAPACITY / 10 * 9;

/// An array begins with so many areas, a small one with a single one: less than 1 MiB.
const FIRST_AREAS: u64 = 8;
const SMALL_SEGMENTS_MAX: u64 = 256;

/// So many areas hold as many segments as an array can have, however small the first ones are.
const AREAS_MAX: usize = FIRST_AREAS as usize + SEGMENTS_MAX.ilog2() as usize;

/// Bytes that describe an array.
pub(super) const ARRAY_BYTES: usize = 32 + 8 * AREAS_MAX;

/// Fewer segments than this are not worth asking for ahead.
const AHEAD_SEGMENTS_MIN: u64 = 8;

/// As many segments are asked for at a time where all of them are not needed in memory at once: 1 MiB.
const AHEAD_SEGMENTS_MAX: u64 = 256;

/// Segments and their index.
#[derive(Clone, Copy, Debug)]
pub(super) struct Array {
    /// Segments in each of the first areas.
    first: u64,
    /// How many of those there are.
    first_areas: u64,
    /// Where each area begins; 0 behind the last.
    areas: [u64; AREAS_MAX],
    pub(super) index: Index,
}

/// Where free room is wanted when records are spread over segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Spread {
    /// Everywhere alike.
    Even,
    /// Before the record of this number: keys arrive in order there.
    Gap(usize),
    /// At the end: so many bytes in each segment until there are no more records.
    Fill(usize),
}

impl Array {
    /// Takes room for an array of so many segments or a few more. Its index is not cleared and its segments are not
    /// made yet.
    pub(super) fn allocate<M: Memory>(memory: &mut M, segments: u64) -> Result<Self, M::Error> {
        if !(1..=SEGMENTS_MAX).contains(&segments) {
            let bytes = segments.saturating_mul(SEGMENT_BYTES as u64);
            return Err(Fault::Full { bytes }.into());
        }
        let first_areas = match segments {
            ..SMALL_SEGMENTS_MAX => 1,
            _ => FIRST_AREAS,
        };
        let first = segments.div_ceil(first_areas);
        let segments = first_areas * first;
        let index = memory.allocate(Index::pages(segments) * PAGE_BYTES as u64)?;
        let mut areas = [0; AREAS_MAX];
        for (area, _) in areas.iter_mut().zip(0..first_areas) {
            *area = memory.allocate(first * SEGMENT_BYTES as u64)?;
        }
        Ok(Self {
            first,
            first_areas,
            areas,
            index: Index::new(index, segments),
        })
    }

    /// Makes room for as many segments again at the end; they are not made yet. `None` if the array is as large as it
    /// can be.
    pub(super) fn grow<M: Memory>(&self, memory: &mut M) -> Result<Option<Self>, M::Error> {
        let count = self.count();
        let free = self.areas.iter().position(|area| *area == 0);
        let Some(free) = free.filter(|_| count <= SEGMENTS_MAX / 2) else {
            return Ok(None);
        };
        let mut grown = *self;
        grown.areas[free] = memory.allocate(count * SEGMENT_BYTES as u64)?;
        let pages = Index::pages(2 * count);
        let index = memory.allocate(pages * PAGE_BYTES as u64)?;
        grown.index = Index::new(index, 2 * count);
        grown.index.clear(memory, 0..pages)?;
        self.index.copy(memory, &grown.index)?;
        // The one that is about to change the index must find that it lost.
        let pages = Index::pages(count);
        self.index.clear(memory, 0..pages)?;
        memory.free(self.index.at(), pages * PAGE_BYTES as u64)?;
        Ok(Some(grown))
    }

    /// Gives back an array that no search reaches any more, of which the areas of the first `released` segments already
    /// are.
    pub(super) fn release<M: Memory>(&self, memory: &mut M, released: u64) -> Result<(), M::Error> {
        let pages = Index::pages(self.count());
        memory.free(self.index.at(), pages * PAGE_BYTES as u64)?;
        self.release_areas(memory, released..self.count())?;
        Ok(())
    }

    /// Gives back the areas that lie within these segments, of which the first begins one, and returns the end of the
    /// last area.
    pub(super) fn release_areas<M: Memory>(
        &self,
        memory: &mut M,
        segments: Range<u64>,
    ) -> Result<u64, M::Error> {
        let mut start = segments.start;
        while start < segments.end {
            let (area, together) = self.place(start);
            if start + together > segments.end {
                break;
            }
            memory.free(area, together * SEGMENT_BYTES as u64)?;
            start += together;
        }
        Ok(start)
    }

    /// The array that these [`ARRAY_BYTES`] at `at` describe.
    pub(super) fn decode<E: From<Fault>>(at: u64, bytes: &[u8]) -> Result<Self, E> {
        let impossible = || damaged::<E>(at, "an array of an impossible size");
        let mut numbers = bytes.chunks_exact(8).map(u64::decode);
        let mut number = || numbers.next().unwrap_or(0);
        let (first, first_areas, count, index) = (number(), number(), number(), number());
        let doublings = count
            .checked_sub(first_areas)
            .filter(|doublings| {
                (1..=FIRST_AREAS).contains(&first_areas) && *doublings < u64::from(u64::BITS)
            })
            .ok_or_else(impossible)?;
        let segments = (first.saturating_mul(first_areas)).saturating_mul(1 << doublings);
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        if !(1..=SEGMENTS_MAX).contains(&segments) || count > AREAS_MAX {
            return Err(impossible());
        }
        let end = |start: u64, pages: u64| start.checked_add(pages * PAGE_BYTES as u64);
        end(index, Index::pages(segments)).ok_or_else(impossible)?;
        let mut areas = [0; AREAS_MAX];
        for area in &mut areas[..count] {
            *area = number();
            end(*area, segments)
                .filter(|_| *area != 0)
                .ok_or_else(impossible)?;
        }
        Ok(Self {
            first,
            first_areas,
            areas,
            index: Index::new(index, segments),
        })
    }

    /// Describes the array in [`ARRAY_BYTES`].
    pub(super) fn encode(&self, to: &mut [u8]) {
        let areas = self.areas.iter().take_while(|area| **area != 0).count();
        let numbers = [self.first, self.first_areas, areas as u64, self.index.at()];
        let numbers = numbers.into_iter().chain(self.areas);
        for (to, number) in to.chunks_exact_mut(8).zip(numbers) {
            number.encode(to);
        }
    }

    /// How many segments there is room for.
    pub(super) fn count(&self) -> u64 {
        self.index.segments()
    }

    /// How many segments are in use, unless a move has taken some of them or is still filling them.
    pub(super) fn in_use<M: Memory>(&self, memory: &M) -> Result<u64, M::Error> {
        Ok(self.index.last(memory)? + 1)
    }

    /// The offset of a segment, and how many are together from there on.
    fn place(&self, segment: u64) -> (u64, u64) {
        let begun = self.first * self.first_areas;
        let (area, start, end) = match segment < begun {
            true => {
                let area = segment / self.first;
                (area, area * self.first, (area + 1) * self.first)
            }
            false => {
                let doublings = (segment / begun).ilog2();
                let start = begun << doublings;
                (self.first_areas + u64::from(doublings), start, 2 * start)
            }
        };
        let area = usize::try_from(area)
            .ok()
            .and_then(|area| self.areas.get(area));
        let within = segment - start;
        let at = area.copied().unwrap_or(0) + within * SEGMENT_BYTES as u64;
        (at, end - segment)
    }

    /// The offset of a segment that there is room for.
    pub(super) fn at(&self, segment: u64) -> u64 {
        self.place(segment).0
    }

    /// A segment in use, which may have been moved away.
    pub(super) fn segment<'m, M: Memory>(
        &self,
        memory: &'m M,
        segment: u64,
    ) -> Result<Block<'m, M>, M::Error> {
        if segment >= self.count() {
            return Err(damaged(self.index.at(), "a segment beyond the array"));
        }
        let block = Block::open(memory, self.at(segment), SEGMENT_BYTES)?;
        if block.level() != 0 || !matches!(block.kind(), Kind::Leaf | Kind::Moved) {
            return Err(block.damaged("no segment is there"));
        }
        Ok(block)
    }

    pub(super) fn segment_mut<'m, M: Memory>(
        &self,
        memory: &'m mut M,
        segment: u64,
    ) -> Result<BlockMut<'m, M>, M::Error> {
        BlockMut::open(memory, self.at(segment), SEGMENT_BYTES)
    }

    /// The segment where a key belongs.
    pub(super) fn find<M: Memory>(&self, memory: &M, key: &[u8]) -> Result<u64, M::Error> {
        self.index
            .search(memory, key, |segment| self.full(memory, segment))
    }

    /// The lower bound of a segment where it stands in full.
    fn full<'m, M: Memory>(&self, memory: &'m M, segment: u64) -> Result<&'m [u8], M::Error> {
        let block = self.segment(memory, segment)?;
        match block.fence()? {
            Some(fence) => Ok(fence),
            None => Err(block.damaged("a segment without its lower bound")),
        }
    }

    /// The lower bound of a segment; there is none for the first, for those behind the last in use, and behind the
    /// array.
    pub(super) fn bound<'m, M: Memory>(
        &self,
        memory: &'m M,
        segment: u64,
    ) -> Result<Option<&'m [u8]>, M::Error> {
        match self.index.bound(memory, segment)? {
            Bound::Infinite => Ok(None),
            Bound::Exact(bound) => Ok(Some(bound)),
            Bound::Longer(_) => self.full(memory, segment).map(Some),
        }
    }

    /// Says that these segments will be read or written in order.
    pub(super) fn prefetch<M: Memory>(&self, memory: &M, segments: Range<u64>) {
        let end = segments.end.min(self.count());
        let mut start = segments.start;
        if end.saturating_sub(start) < AHEAD_SEGMENTS_MIN {
            return;
        }
        while start < end {
            let (at, together) = self.place(start);
            let count = together.min(end - start);
            memory.prefetch(at, count * SEGMENT_BYTES as u64);
            start += count;
        }
    }

    /// Bytes that records take in these segments.
    pub(super) fn used<M: Memory>(
        &self,
        memory: &M,
        segments: Range<u64>,
    ) -> Result<u64, M::Error> {
        let mut used = 0;
        for segment in segments.clone() {
            if (segment - segments.start).is_multiple_of(AHEAD_SEGMENTS_MAX) {
                let end = segments.end.min(segment + AHEAD_SEGMENTS_MAX);
                self.prefetch(memory, segment..end);
            }
            used += self.segment(memory, segment)?.used() as u64;
        }
        Ok(used)
    }

    /// Spreads records over a window of segments whose earlier contents they replace. `upper` is the lower bound of
    /// what follows. Returns how many segments were needed, or `None`, with nothing changed, where the records do not
    /// fit this way.
    pub(super) fn lay_out<M: Memory>(
        &self,
        memory: &mut M,
        window: Range<u64>,
        records: &Records,
        spread: Spread,
        upper: Option<&[u8]>,
    ) -> Result<Option<u64>, M::Error> {
        let segments = usize::try_from(window.end - window.start).unwrap_or(usize::MAX);
        let cuts = match spread {
            Spread::Even => even(records, segments),
            Spread::Fill(goal) => filled(records, 0..records.len(), goal),
            Spread::Gap(gap) => match gapped(records, segments, gap) {
                Some(cuts) => cuts,
                None => even(records, segments),
            },
        };
        if cuts.len() > segments {
            return Ok(None);
        }
        // The first segment of all and those that are made new have no bound to keep.
        let first = match self.bound(memory, window.start)? {
            Some(bound) if bound.len() > HEAD_BYTES => Some(bound.to_vec()),
            _ => None,
        };
        let mut bounds: Vec<Option<&[u8]>> = vec![first.as_deref()];
        let mut next = upper;
        for place in (1..cuts.len()).rev() {
            let start = cuts[place - 1];
            if start < cuts[place] {
                // Nothing shorter is known to be above the bound of the window itself.
                next = Some(match start.checked_sub(1) {
                    Some(low) => separator(records.key(low), records.key(start)),
                    None => records.key(start),
                });
            }
            bounds.push(next);
        }
        bounds[1..].reverse();
        let fences = bounds
            .iter()
            .map(|bound| bound.filter(|bound| bound.len() > HEAD_BYTES));
        let mut start = 0;
        for (end, fence) in cuts.iter().zip(fences.clone()) {
            let fence_bytes = fence.map_or(0, |fence| CELL_HEADER_BYTES + fence.len());
            if records.bytes_of(start..*end) + fence_bytes > CAPACITY {
                return Ok(None);
            }
            start = *end;
        }
        let mut start = 0;
        for ((segment, end), fence) in window.clone().zip(&cuts).zip(fences) {
            self.format(memory, segment)?
                .fill(records, start..*end, fence)?;
            start = *end;
        }
        for (segment, bound) in window.zip(&bounds).skip(1) {
            self.index.set(memory, segment, *bound)?;
        }
        Ok(Some(cuts.len() as u64))
    }

    /// Makes a segment of these records, wherever it has no bound to keep.
    pub(super) fn make<M: Memory>(
        &self,
        memory: &mut M,
        segment: u64,
        records: &Records,
        bound: Option<&[u8]>,
    ) -> Result<(), M::Error> {
        let fence = bound.filter(|bound| bound.len() > HEAD_BYTES);
        self.format(memory, segment)?
            .fill(records, 0..records.len(), fence)?;
        match segment {
            0 => Ok(()),
            _ => self.index.set(memory, segment, bound),
        }
    }

    fn format<'m, M: Memory>(
        &self,
        memory: &'m mut M,
        segment: u64,
    ) -> Result<BlockMut<'m, M>, M::Error> {
        BlockMut::format(memory, self.at(segment), SEGMENT_BYTES, Kind::Leaf, 0)
    }

    /// Takes the records of segments.
    pub(super) fn gather<M: Memory>(
        &self,
        memory: &M,
        segments: Range<u64>,
        records: &mut Records,
    ) -> Result<(), M::Error> {
        self.prefetch(memory, segments.clone());
        for segment in segments {
            let block = self.segment(memory, segment)?;
            records.take(&block, 0..block.count())?;
        }
        Ok(())
    }

    /// Verifies these segments: their blocks, and that keys lie between the bounds. `last` is the highest key before
    /// them.
    pub(super) fn check<M: Memory>(
        &self,
        memory: &M,
        segments: Range<u64>,
        last: &mut Option<Vec<u8>>,
    ) -> Result<u64, M::Error> {
        let mut keys = 0;
        for segment in segments {
            let block = self.segment(memory, segment)?;
            block.check()?;
            if let Some(bound) = self.bound(memory, segment)? {
                if last.as_deref().is_some_and(|last| last >= bound) {
                    return Err(block.damaged("a key is above its segment"));
                }
                if block.count() > 0 && block.key(0)? < bound {
                    return Err(block.damaged("a key is below its segment"));
                }
            }
            if block.count() > 0 {
                if last
                    .as_deref()
                    .is_some_and(|last| block.key(0).is_ok_and(|key| last >= key))
                {
                    return Err(block.damaged("keys are out of order"));
                }
                if segment > 0 && matches!(self.index.bound(memory, segment)?, Bound::Infinite) {
                    return Err(block.damaged("a segment that no search finds"));
                }
                *last = Some(block.key(block.count() - 1)?.to_vec());
            }
            keys += block.count() as u64;
        }
        Ok(keys)
    }
}

/// Where the records of each segment end when all are about equally full.
fn even(records: &Records, segments: usize) -> Vec<usize> {
    let total = records.bytes_of(0..records.len()) as u64;
    let mut cuts = Vec::with_capacity(segments);
    let (mut record, mut sum) = (0, 0);
    for segment in 1..segments as u64 {
        let goal = total * segment / segments as u64;
        while record < records.len() && sum + records.bytes(record) as u64 / 2 <= goal {
            sum += records.bytes(record) as u64;
            record += 1;
        }
        cuts.push(record);
    }
    cuts.push(records.len());
    cuts
}

/// Where the records of each segment end when they take about `goal` bytes each, never more than that or
/// [`DENSE_BYTES`], and at least one record. What one takes too little the next may take more, so that the loss at
/// their ends does not add up.
fn filled(records: &Records, range: Range<usize>, goal: usize) -> Vec<usize> {
    let mut cuts = Vec::new();
    let (mut total, mut sum) = (0, 0);
    // The lower bound takes room as well; it is not longer than the first key, but that of the first segment is any.
    let mut fence_bytes = CELL_HEADER_BYTES + KEY_BYTES_MAX;
    for record in range.clone() {
        let bytes = records.bytes(record);
        let full = sum + bytes > goal.max(DENSE_BYTES).min(CAPACITY - fence_bytes);
        if sum > 0 && (full || total + bytes / 2 > goal * (cuts.len() + 1)) {
            cuts.push(record);
            sum = 0;
            fence_bytes = CELL_HEADER_BYTES + records.key(record).len();
        }
        (total, sum) = (total + bytes, sum + bytes);
    }
    cuts.push(range.end);
    cuts
}

/// Records before the gap densely at the beginning, those behind it at the end, nothing between; `None` if there is no
/// room.
fn gapped(records: &Records, segments: usize, gap: usize) -> Option<Vec<usize>> {
    let mut cuts = filled(records, 0..gap, DENSE_BYTES);
    let after = match gap < records.len() {
        true => filled(records, gap..records.len(), DENSE_BYTES),
        false => Vec::new(),
    };
    let free = segments.checked_sub(cuts.len() + after.len())?;
    cuts.extend(std::iter::repeat_n(gap, free));
    cuts.extend(after);
    Some(cuts)
}
