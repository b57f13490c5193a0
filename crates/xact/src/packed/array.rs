//! An array of segments in key order, with room left in each, and its index.

use std::ops::Range;

use super::index::{Bound, HEAD_BYTES, Index};
use crate::block::{
    Block, BlockMut, CELL_HEADER_BYTES, HEADER_BYTES, Kind, Records, damaged, separator,
};
use crate::memory::{Memory, PAGE_BYTES};

/// A segment is a page, the granule of conflicts and of disks.
pub(super) const SEGMENT_BYTES: usize = PAGE_BYTES;

/// Bytes of a segment for records and their slots.
pub(super) const CAPACITY: usize = SEGMENT_BYTES - HEADER_BYTES;

/// How full segments are packed where no record is expected soon: a tenth is left for those that come all the same.
pub(super) const DENSE_BYTES: usize = CAPACITY / 10 * 9;

/// Fewer segments than this are not worth asking for ahead.
const AHEAD_SEGMENTS_MIN: u64 = 8;

/// As many segments are asked for at a time where all of them are not needed in memory at once: 1 MiB.
const AHEAD_SEGMENTS_MAX: u64 = 256;

/// Segments and their index.
#[derive(Clone, Copy, Debug)]
pub(super) struct Array {
    pub(super) segments: u64,
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
    pub(super) fn count(&self) -> u64 {
        self.index.segments()
    }

    pub(super) fn at(&self, segment: u64) -> u64 {
        self.segments + segment * SEGMENT_BYTES as u64
    }

    /// A segment in use, which may have been moved away.
    pub(super) fn segment<'m, M: Memory>(
        &self,
        memory: &'m M,
        segment: u64,
    ) -> Result<Block<'m, M>, M::Error> {
        let block = Block::open(memory, self.at(segment), SEGMENT_BYTES)?;
        if segment >= self.count()
            || block.level() != 0
            || !matches!(block.kind(), Kind::Leaf | Kind::Moved)
        {
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

    /// The lower bound of a segment; there is none for the first, for those behind the last in use, and behind the array.
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
        let count = end.saturating_sub(segments.start);
        if count >= AHEAD_SEGMENTS_MIN {
            memory.prefetch(self.at(segments.start), count * SEGMENT_BYTES as u64);
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

    /// Spreads records over a window of segments whose earlier contents they replace. `upper` is the lower bound of what
    /// follows. Returns how many segments were needed, or `None`, with nothing changed, where the records do not fit this way.
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
            BlockMut::format(memory, self.at(segment), SEGMENT_BYTES, Kind::Leaf, 0)?.fill(
                records,
                start..*end,
                fence,
            )?;
            start = *end;
        }
        for (segment, bound) in window.zip(&bounds).skip(1) {
            self.index.set(memory, segment, *bound)?;
        }
        Ok(Some(cuts.len() as u64))
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

    /// Verifies these segments: their blocks, and that keys lie between the bounds. `last` is the highest key before them.
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

    /// Makes the array known to a page, from the offset on.
    pub(super) fn decode<E: From<crate::memory::Fault>>(
        at: u64,
        bytes: [u64; 3],
    ) -> Result<Self, E> {
        let [segments, count, index] = bytes;
        if !(1..=super::index::SEGMENTS_MAX).contains(&count)
            || segments.checked_add(count * SEGMENT_BYTES as u64).is_none()
            || index
                .checked_add(Index::pages(count) * PAGE_BYTES as u64)
                .is_none()
        {
            return Err(damaged(at, "an array of an impossible size"));
        }
        Ok(Self {
            segments,
            index: Index::new(index, count),
        })
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

/// Where the records of each segment end when they take about `goal` bytes each, never more than that or [`DENSE_BYTES`], and at
/// least one record. What one takes too little the next may take more, so that the loss at their ends does not add up.
fn filled(records: &Records, range: Range<usize>, goal: usize) -> Vec<usize> {
    let mut cuts = Vec::new();
    let (mut total, mut sum) = (0, 0);
    for record in range.clone() {
        let bytes = records.bytes(record);
        let full = sum + bytes > goal.max(DENSE_BYTES);
        if sum > 0 && (full || total + bytes / 2 > goal * (cuts.len() + 1)) {
            cuts.push(record);
            sum = 0;
        }
        (total, sum) = (total + bytes, sum + bytes);
    }
    cuts.push(range.end);
    cuts
}

/// Records before the gap densely at the beginning, those behind it at the end, nothing between; `None` if there is no room.
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
