//! Moving the whole array: to a larger or smaller one, or to one whose free room is where it is wanted.
//!
//! A move goes from left to right. Each step takes some segments of the current array, appends their records to the
//! segments of the next one that are in use, and marks them as moved. Only the first step and the last change the
//! tree's description; how far the move is stands on a page that searches do not read:
//!
//! ```text
//! OFFSET  SIZE  DESCRIPTION
//!      0     8  pages of the next index that are cleared
//!      8     8  segments of the current array that are moved
//!     16     8  segments of the next array that are in use
//!     24     8  bytes to fill each of them with
//!     32     8  segments still to be left free where keys arrive in order
//!     40     8  so many segments of the current array are before those
//!     48     8  segments of the current array whose areas are given back
//! ```

use std::ops::Range;

use super::array::{Array, CAPACITY, DENSE_BYTES, SEGMENT_BYTES, Spread};
use super::index::Index;
use super::rebalancer::Run;
use super::{CacheObliviousTree, Description, ROOT_MAX, ROOT_MIN, Side};
use crate::block::{Kind, Records};
use crate::fixed::Fixed;
use crate::memory::{Memory, PAGE_BYTES};

/// How full the next array is: low enough that it stays for a while, high enough that a walk reads no more than in a
/// B+tree.
const NEXT_DENSITY: f64 = 0.67;

/// The same for deferred rebalancing, in transactions: what is moved goes to the log, into a version and into the file,
/// so that records move three times in their life there instead of five.
const NEXT_DENSITY_DEFERRED: f64 = 0.5;

/// One of so many segments of the next array is left for the end.
const SPARE_PART: u64 = 32;

/// Segments that one step of deferred rebalancing takes, leaves free or counts.
const STEP_SEGMENTS: u64 = 8;
const STEP_FREE_SEGMENTS: u64 = 32;
const STEP_COUNTED_SEGMENTS: u64 = 128;

/// Pages of an index that one step clears.
const STEP_PAGES: u64 = 16;

/// Steps that are done at once are larger by this factor.
const AT_ONCE: u64 = 32;

/// Arrays up to this size move in one go.
const SMALL_SEGMENTS: u64 = 16;

/// Of arrays larger than this one segment in so many is looked at to find out how much there is to move at once.
const SAMPLED_SEGMENTS_MIN: u64 = 1 << 10;
const SAMPLED_PART: u64 = 16;

const PROGRESS_BYTES: usize = 56;

/// How far a move is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Progress {
    pub(super) cleared: u64,
    pub(super) from: u64,
    pub(super) to: u64,
    pub(super) goal: u64,
    pub(super) gap: u64,
    pub(super) split: u64,
    pub(super) released: u64,
}

impl Progress {
    pub(super) fn load<M: Memory>(memory: &M, at: u64) -> Result<Self, M::Error> {
        let bytes = memory.read(at, PROGRESS_BYTES)?;
        let number = |field: usize| u64::decode(&bytes[8 * field..8 * field + 8]);
        Ok(Self {
            cleared: number(0),
            from: number(1),
            to: number(2),
            goal: number(3),
            gap: number(4),
            split: number(5),
            released: number(6),
        })
    }

    fn store<M: Memory>(&self, memory: &mut M, at: u64) -> Result<(), M::Error> {
        let numbers = [
            self.cleared,
            self.from,
            self.to,
            self.goal,
            self.gap,
            self.split,
            self.released,
        ];
        let bytes = memory.write(at, PROGRESS_BYTES)?;
        for (to, number) in bytes.chunks_exact_mut(8).zip(numbers) {
            number.encode(to);
        }
        Ok(())
    }
}

impl<M: Memory> CacheObliviousTree<M> {
    /// Does a part of what operations have left to do, as much as suits one transaction, and tells whether there is
    /// more.
    ///
    /// # Errors
    /// [`Fault::Damaged`](crate::Fault::Damaged), or what the memory says.
    pub fn maintain(&mut self) -> Result<bool, M::Error> {
        let description = self.description()?;
        let more = if description.next.is_some() {
            self.step(&description, 1)?
        } else {
            self.rebalancer.due() && self.measure(&description)?
        };
        self.rebalancer.set_due(more);
        Ok(more)
    }

    /// Moves all records to another array, at once, or finishes a move that has begun.
    pub(super) fn move_all(&mut self) -> Result<(), M::Error> {
        let mut description = self.description()?;
        if description.next.is_none() {
            let used = self.sampled(&description.current)?;
            let segments = self.segments_for(used);
            if description.current.count() <= SMALL_SEGMENTS {
                return self.move_in_one_go(&description, used);
            }
            self.begin(&description, segments, used)?;
            description = self.description()?;
        }
        while description.next.is_some() && self.step(&description, AT_ONCE)? {
            description = self.description()?;
        }
        Ok(())
    }

    /// About how many bytes of records are in an array; of one that is small, exactly so many.
    fn sampled(&self, array: &Array) -> Result<u64, M::Error> {
        let in_use = array.in_use(&self.memory)?;
        if in_use < SAMPLED_SEGMENTS_MIN {
            return array.used(&self.memory, 0..in_use);
        }
        let looked_at = || (0..in_use).step_by(SAMPLED_PART as usize);
        for segment in looked_at() {
            self.memory
                .prefetch(array.at(segment), SEGMENT_BYTES as u64);
        }
        let mut used = 0;
        for segment in looked_at() {
            used += array.segment(&self.memory, segment)?.used() as u64;
        }
        Ok(used * SAMPLED_PART)
    }

    /// Counts some more segments, and begins a move when all are counted and it is worth it.
    fn measure(&mut self, description: &Description) -> Result<bool, M::Error> {
        let array = description.current;
        let in_use = array.in_use(&self.memory)?;
        let mut measured = *self.rebalancer.measured();
        if measured.array != array.index.at() {
            measured.array = array.index.at();
            (measured.segments, measured.bytes) = (0, 0);
        }
        let end = in_use.min(measured.segments + STEP_COUNTED_SEGMENTS);
        measured.bytes += array.used(&self.memory, measured.segments..end)?;
        measured.segments = end;
        let complete = end == in_use;
        let bytes = measured.bytes;
        if complete {
            (measured.segments, measured.bytes) = (0, 0);
        }
        let crowded = measured.crowded;
        measured.crowded &= !complete;
        *self.rebalancer.measured() = measured;
        if !complete {
            return Ok(true);
        }
        let density = bytes as f64 / (array.count() as f64 * CAPACITY as f64);
        if !crowded && density >= ROOT_MIN {
            return Ok(false);
        }
        // Crowded in one part and empty elsewhere, it stays as large as it is.
        let segments = match density < ROOT_MIN {
            true => self.segments_for(bytes),
            false => self.segments_for(bytes).max(in_use),
        };
        self.begin(description, segments, bytes)?;
        Ok(true)
    }

    /// Takes room for the next array and decides how it will be filled.
    fn begin(
        &mut self,
        description: &Description,
        segments: u64,
        used: u64,
    ) -> Result<(), M::Error> {
        // Some are kept for what is inserted meanwhile, and for what comes behind all others later.
        let room = segments + segments / SPARE_PART;
        let next = Array::allocate(&mut self.memory, room)?;
        let page = self.memory.allocate(PAGE_BYTES as u64)?;
        let mut progress = Progress {
            cleared: 0,
            from: 0,
            to: 0,
            goal: used.div_ceil(segments).max(1),
            gap: 0,
            split: 0,
            released: 0,
        };
        let split = self.rebalancer.split();
        // What comes behind all others finds room there anyway.
        if self.rebalancer.run() != Run::None && split < description.current.in_use(&self.memory)? {
            // Some are lost where records do not fill a segment exactly, and at the seams between steps.
            let dense = used.div_ceil(DENSE_BYTES as u64);
            progress.goal = DENSE_BYTES as u64;
            progress.gap = segments.saturating_sub(dense + dense / 8 + 2);
            progress.split = split;
        }
        progress.store(&mut self.memory, page)?;
        self.describe(Description {
            next: Some((next, page)),
            ..*description
        })
    }

    /// Goes on with a move by a bounded amount, and tells whether there is more to do.
    fn step(&mut self, description: &Description, factor: u64) -> Result<bool, M::Error> {
        let (Some((next, page)), current) = (description.next, description.current) else {
            return Ok(false);
        };
        let mut progress = Progress::load(&self.memory, page)?;
        // Says that what was read is possible.
        let (rest, used) = (
            self.in_use(description, Side::Current)?,
            self.in_use(description, Side::Next)?,
        );
        let pages = Index::pages(next.count());
        if progress.cleared < pages {
            let end = pages.min(progress.cleared + STEP_PAGES * factor);
            next.index.clear(&mut self.memory, progress.cleared..end)?;
            progress.cleared = end;
        } else if progress.gap > 0 && progress.from >= progress.split {
            let free = progress.gap.min(STEP_FREE_SEGMENTS * factor);
            let end = next.count().min(progress.to + free);
            let bound = match progress.from {
                // Whatever comes below all keys belongs there.
                0 => Some(Vec::new()),
                from => self.upper(description, Side::Current, from)?,
            };
            self.leave_free(&next, progress.to..end, bound.as_deref())?;
            progress.to = end;
            progress.gap -= free;
        } else if !rest.is_empty() {
            let end = rest.end.min(progress.from + STEP_SEGMENTS * factor);
            let end = match progress.gap {
                0 => end,
                _ => end.min(progress.split),
            };
            if factor == AT_ONCE {
                let ahead = end + STEP_SEGMENTS * factor;
                current.prefetch(&self.memory, end..ahead.min(rest.end));
            }
            let Some(to) = self.append(description, &next, rest.start..end, used.end, &progress)?
            else {
                // Far more was inserted meanwhile than the next array was made for.
                let used = self.used_on(description, Side::Current)?
                    + self.used_on(description, Side::Next)?;
                self.move_in_one_go(description, used)?;
                return Ok(false);
            };
            // Where the move is done in one go and nobody else is there, nobody looks for what has moved: the pages are
            // not written once more, and their room is given back before it is needed for others.
            if factor < AT_ONCE || self.memory.is_shared() {
                for segment in progress.from..end {
                    current
                        .segment_mut(&mut self.memory, segment)?
                        .set_kind(Kind::Moved)?;
                }
            } else {
                let areas = progress.released..end;
                progress.released = current.release_areas(&mut self.memory, areas)?;
            }
            (progress.from, progress.to) = (end, to);
        } else {
            self.describe(Description {
                current: next,
                next: None,
            })?;
            self.memory.free(page, PAGE_BYTES as u64)?;
            current.release(&mut self.memory, progress.released)?;
            return Ok(false);
        }
        progress.store(&mut self.memory, page)?;
        Ok(true)
    }

    /// Appends the records of some segments to the `used` segments of the next array, and returns how many those are
    /// then, or `None` if the array is too small.
    fn append(
        &mut self,
        description: &Description,
        next: &Array,
        segments: Range<u64>,
        used: u64,
        progress: &Progress,
    ) -> Result<Option<u64>, M::Error> {
        // The last segment in use is filled up first.
        let mut start = used.saturating_sub(1);
        loop {
            let mut records = Records::default();
            next.gather(&self.memory, start..used, &mut records)?;
            description
                .current
                .gather(&self.memory, segments.clone(), &mut records)?;
            let goal = usize::try_from(progress.goal).map_or(CAPACITY, |goal| goal.min(CAPACITY));
            let window = start..next.count() - progress.gap.min(next.count() - used);
            let upper = self.upper(description, Side::Current, segments.end)?;
            next.prefetch(
                &self.memory,
                used..used + (segments.end - segments.start) * 2,
            );
            for spread in [Spread::Fill(goal), Spread::Fill(DENSE_BYTES)] {
                let laid_out = next.lay_out(
                    &mut self.memory,
                    window.clone(),
                    &records,
                    spread,
                    upper.as_deref(),
                )?;
                if let Some(count) = laid_out {
                    for left in start + count..used {
                        // What was there is further to the front now.
                        next.segment_mut(&mut self.memory, left)?
                            .set_kind(Kind::Freed)?;
                        next.index.set(&mut self.memory, left, None)?;
                    }
                    return Ok(Some(start + count));
                }
            }
            if start == 0 {
                return Ok(None);
            }
            // Twice as many of those before give way.
            start = start.saturating_sub(used - start + 1);
        }
    }

    /// Makes segments that hold nothing yet.
    fn leave_free(
        &mut self,
        array: &Array,
        segments: Range<u64>,
        bound: Option<&[u8]>,
    ) -> Result<(), M::Error> {
        let none = Records::default();
        for segment in segments {
            array.make(&mut self.memory, segment, &none, bound)?;
        }
        Ok(())
    }

    /// Moves everything through memory in one go: for arrays so small that steps are not worth it, or when steps have
    /// failed.
    fn move_in_one_go(&mut self, description: &Description, used: u64) -> Result<(), M::Error> {
        let mut records = Records::default();
        for side in [Side::Next, Side::Current] {
            let in_use = self.in_use(description, side)?;
            description
                .array(side)
                .gather(&self.memory, in_use, &mut records)?;
        }
        let mut segments = self.segments_for(used);
        loop {
            let array = Array::allocate(&mut self.memory, segments)?;
            array
                .index
                .clear(&mut self.memory, 0..Index::pages(array.count()))?;
            let spread = match self.rebalancer.run() {
                Run::Falling => Spread::Gap(0),
                Run::Rising | Run::None => Spread::Even,
            };
            let window = 0..array.count();
            let laid_out = array.lay_out(&mut self.memory, window, &records, spread, None)?;
            if laid_out.is_some() {
                self.abandon(description)?;
                return self.describe(Description {
                    current: array,
                    next: None,
                });
            }
            array.release(&mut self.memory, 0)?;
            segments *= 2;
        }
    }

    /// How many segments the next array has for so many bytes of records.
    pub(super) fn segments_for(&self, bytes: u64) -> u64 {
        let density = match self.rebalancer.is_deferred() {
            true => NEXT_DENSITY_DEFERRED,
            false => NEXT_DENSITY,
        };
        (bytes as f64 / (density * CAPACITY as f64)).ceil().max(1.0) as u64
    }

    /// Gives back all arrays after their records have gone elsewhere.
    fn abandon(&mut self, description: &Description) -> Result<(), M::Error> {
        for side in [Side::Next, Side::Current] {
            let array = description.array(side);
            for segment in self.in_use(description, side)? {
                array
                    .segment_mut(&mut self.memory, segment)?
                    .set_kind(Kind::Freed)?;
            }
        }
        let mut released = 0;
        if let Some((next, page)) = description.next {
            released = Progress::load(&self.memory, page)?.released;
            self.memory.free(page, PAGE_BYTES as u64)?;
            next.release(&mut self.memory, 0)?;
        }
        description.current.release(&mut self.memory, released)
    }
}

/// The density that the next array has must lie between those that make an array move.
const _: () = assert!(ROOT_MIN < NEXT_DENSITY_DEFERRED && NEXT_DENSITY < ROOT_MAX);
