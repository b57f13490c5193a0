//! Inserting and removing, and rebalancing the windows around.

use std::ops::Range;

use super::array::{CAPACITY, DENSE_BYTES, SEGMENT_BYTES, Spread};
use super::index::SEGMENTS_MAX;
use super::rebalancer::Run;
use super::{
    CacheObliviousTree, Description, KEY_BYTES_MAX, LEAF_MAX, LEAF_MIN, ROOT_MAX, ROOT_MIN,
    SegmentId, Side,
};
use crate::block::{
    BlockMut, CELL_HEADER_BYTES, Cell, OUTSIDE_BYTES, Records, SLOT_BYTES, damaged, separator,
};
use crate::memory::{Fault, Memory};
use crate::value;

/// With deferred rebalancing, windows above this level, of more than 16 segments, wait.
const DEFERRED_LEVEL: u32 = 4;

/// With deferred rebalancing, how full a window at that level may become meanwhile.
const CROWDED_MAX: f64 = 0.97;

/// The largest window rebalanced in one go, in segments: 4 MiB, as its records are in memory meanwhile. Beyond, the
/// whole array moves.
const WINDOW_SEGMENTS_MAX: u64 = 1 << 10;

/// The largest record in a segment: an eighth of it, so that windows at their densest can still be spread.
const CELL_BYTES_MAX: usize = CELL_HEADER_BYTES + KEY_BYTES_MAX + OUTSIDE_BYTES;

/// A move of the whole array makes room, after which a record fits; more than once is odd.
const MOVES_MAX: usize = 4;

impl<M: Memory> CacheObliviousTree<M> {
    /// Stores a value under a key, and tells whether the key is new.
    ///
    /// # Errors
    /// [`Fault::KeyTooLong`], [`Fault::ValueTooLong`], [`Fault::Damaged`], or what the memory says.
    /// After an error other than the first two the tree is fit for reading only if the memory undoes what was done.
    pub fn insert(&mut self, key: &[u8], value: &[u8]) -> Result<bool, M::Error> {
        if key.len() > KEY_BYTES_MAX {
            let (bytes, max) = (key.len(), KEY_BYTES_MAX);
            return Err(Fault::KeyTooLong { bytes, max }.into());
        }
        value::bound(value)?;
        let mut description = self.description()?;
        let mut place = self.find(&description, key)?;
        let block = self.segment(&description, place)?;
        let (mut index, found) = block.search(key)?;
        if found {
            let old = block.cell(index)?;
            if !old.outside && old.value.len() == value.len() {
                let at = block.at();
                BlockMut::open(&mut self.memory, at, SEGMENT_BYTES)?.overwrite(index, value)?;
                return Ok(false);
            }
            self.remove_at(&description, place, index)?;
        } else {
            let before = index.checked_sub(1).map(|before| block.key(before));
            let after = (index < block.count()).then(|| block.key(index));
            self.rebalancer.note_insert(
                place.segment,
                key,
                before.transpose()?,
                after.transpose()?,
            );
        }
        let outside = CELL_HEADER_BYTES + key.len() + value.len() > CELL_BYTES_MAX;
        let area = if outside {
            value::store(&mut self.memory, value)?
        } else {
            Default::default()
        };
        let cell = Cell {
            key,
            value: if outside { &area } else { value },
            outside,
        };
        let bytes = cell.bytes() + SLOT_BYTES;
        for _ in 0..MOVES_MAX {
            let block = self.segment(&description, place)?;
            // deferred rebalancing lives on the room that is left in each segment.
            let crowded = self.rebalancer.is_deferred() && block.used() + bytes > DENSE_BYTES;
            let fits = block.fits(bytes);
            if (!fits || crowded)
                && index == block.count()
                && self.extend(&description, place, cell)?
            {
                return Ok(!found);
            }
            if fits {
                description
                    .array(place.side)
                    .segment_mut(&mut self.memory, place.segment)?
                    .insert(index, cell)?;
                return Ok(!found);
            }
            if self.make_room(&description, place, index, cell)? {
                return Ok(!found);
            }
            description = self.description()?;
            place = self.find(&description, key)?;
            (index, _) = self.segment(&description, place)?.search(key)?;
        }
        Err(damaged(
            self.at,
            "the array has no room however large it is",
        ))
    }

    /// Removes a key with its value, and tells whether it was there.
    ///
    /// # Errors
    /// As for [`CacheObliviousTree::insert`].
    pub fn remove(&mut self, key: &[u8]) -> Result<bool, M::Error> {
        let description = self.description()?;
        let place = self.find(&description, key)?;
        let (index, found) = self.segment(&description, place)?.search(key)?;
        if found {
            self.remove_at(&description, place, index)?;
            let used = self.segment(&description, place)?.used();
            let array = description.array(place.side);
            if array.count() > 1 && (used as f64) < LEAF_MIN * CAPACITY as f64 {
                self.close_up(&description, place, used as u64)?;
            }
        }
        Ok(found)
    }

    fn remove_at(
        &mut self,
        description: &Description,
        place: SegmentId,
        index: usize,
    ) -> Result<(), M::Error> {
        let cell = self.segment(description, place)?.cell(index)?;
        if cell.outside {
            let area = cell.value.to_vec();
            value::free(&mut self.memory, &area)?;
        }
        description
            .array(place.side)
            .segment_mut(&mut self.memory, place.segment)?
            .remove(index)
    }

    /// Puts a record that comes after all others into a new segment behind the last one. Returns `false` if other
    /// records come after it or there is no room.
    fn extend(
        &mut self,
        description: &Description,
        place: SegmentId,
        cell: Cell<'_>,
    ) -> Result<bool, M::Error> {
        let (mut array, new) = (description.current, place.segment + 1);
        if place.side != Side::Current || array.in_use(&self.memory)? != new {
            return Ok(false);
        }
        let block = array.segment(&self.memory, place.segment)?;
        let Some(last) = block.count().checked_sub(1) else {
            return Ok(false);
        };
        let bound = separator(block.key(last)?, cell.key);
        if new == array.count() {
            if description.next.is_some() {
                return Ok(false);
            }
            let Some(grown) = array.grow(&mut self.memory)? else {
                return Ok(false);
            };
            self.describe(Description {
                current: grown,
                ..*description
            })?;
            array = grown;
        }
        // The one that is about to put a record of the new segment into this one must find that it lost.
        array
            .segment_mut(&mut self.memory, place.segment)?
            .note_change()?;
        let mut records = Records::default();
        records.push(cell);
        array.make(&mut self.memory, new, &records, Some(bound))?;
        Ok(true)
    }

    /// Rebalances the smallest window around a full segment that has room to spare, with the new record in it. Returns
    /// `false` if the record is still to be inserted, because the whole array had to move.
    fn make_room(
        &mut self,
        description: &Description,
        place: SegmentId,
        index: usize,
        cell: Cell<'_>,
    ) -> Result<bool, M::Error> {
        let array = description.array(place.side);
        let in_use = self.in_use(description, place.side)?;
        let mut windows = Windows::new(in_use.clone(), place.segment);
        let more = Some((place.segment, index, cell));
        let mut used = (cell.bytes() + SLOT_BYTES) as u64;
        used += array.used(&self.memory, windows.window.clone())?;
        while windows.widen() {
            for added in windows.added.clone() {
                used += array.used(&self.memory, added)?;
            }
            let fits = |max: f64| used as f64 <= max * windows.capacity();
            let deferred = self.rebalancer.is_deferred() && windows.level >= DEFERRED_LEVEL;
            let max = windows.bound(LEAF_MAX, ROOT_MAX);
            if deferred && !fits(max) {
                self.rebalancer.note_crowded();
            }
            if fits(if deferred { CROWDED_MAX } else { max })
                && self.rebalance(description, place.side, windows.window.clone(), None, more)?
            {
                return Ok(true);
            }
            if windows.window.end - windows.window.start >= WINDOW_SEGMENTS_MAX {
                break;
            }
        }
        // Room behind the last segment, as another array has more of it only if it is larger.
        if windows.window == in_use && place.side == Side::Current && description.next.is_none() {
            let end = array.count().min(self.segments_for(used)).max(in_use.end);
            let max = match self.rebalancer.is_deferred() {
                true => 1 << DEFERRED_LEVEL,
                false => WINDOW_SEGMENTS_MAX,
            };
            if used as f64 <= ROOT_MAX * end as f64 * CAPACITY as f64
                && end <= max
                && self.rebalance(description, place.side, in_use, Some(end), more)?
            {
                return Ok(true);
            }
        }
        self.move_all()?;
        Ok(false)
    }

    /// Rebalances the smallest window around a nearly empty segment that is not too empty itself; an array that is
    /// moves to a smaller one.
    fn close_up(
        &mut self,
        description: &Description,
        place: SegmentId,
        mut used: u64,
    ) -> Result<(), M::Error> {
        let array = description.array(place.side);
        let in_use = self.in_use(description, place.side)?;
        let mut windows = Windows::new(in_use.clone(), place.segment);
        while windows.widen() {
            for added in windows.added.clone() {
                used += array.used(&self.memory, added)?;
            }
            let capacity = match windows.window == in_use {
                // What has room and is not in use counts as well.
                true => array.count() as f64 * CAPACITY as f64,
                false => windows.capacity(),
            };
            if used as f64 >= windows.bound(LEAF_MIN, ROOT_MIN) * capacity {
                self.rebalance(description, place.side, windows.window.clone(), None, None)?;
                return Ok(());
            }
            if self.rebalancer.is_deferred() && windows.level >= DEFERRED_LEVEL
                || windows.window.end - windows.window.start >= WINDOW_SEGMENTS_MAX
            {
                break;
            }
        }
        if self.rebalancer.is_deferred() && array.count() > 1 << DEFERRED_LEVEL {
            self.rebalancer.set_due(true);
        } else if description.next.is_none() {
            self.move_all()?;
        }
        Ok(())
    }

    /// Spreads the records of a window, with one more at a place in one of its segments, evenly or, where keys arrive
    /// in order, with the room where the next ones will come. The window may get a further end than it had. Returns
    /// `false` if they do not fit.
    fn rebalance(
        &mut self,
        description: &Description,
        side: Side,
        window: Range<u64>,
        end: Option<u64>,
        more: Option<(u64, usize, Cell<'_>)>,
    ) -> Result<bool, M::Error> {
        let array = description.array(side);
        let mut records = Records::default();
        let mut spread = Spread::Even;
        match more {
            None => array.gather(&self.memory, window.clone(), &mut records)?,
            Some((segment, index, cell)) => {
                array.gather(&self.memory, window.start..segment, &mut records)?;
                let block = array.segment(&self.memory, segment)?;
                records.take(&block, 0..index)?;
                match self.rebalancer.run() {
                    Run::Rising => spread = Spread::Gap(records.len() + 1),
                    Run::Falling => spread = Spread::Gap(records.len()),
                    Run::None => {}
                }
                records.push(cell);
                records.take(&block, index..block.count())?;
                array.gather(&self.memory, segment + 1..window.end, &mut records)?;
            }
        }
        let window = window.start..end.unwrap_or(window.end);
        let upper = self.upper(description, side, window.end)?;
        let done = array.lay_out(&mut self.memory, window, &records, spread, upper.as_deref())?;
        Ok(done.is_some())
    }

    /// The lower bound of what follows a window.
    pub(super) fn upper(
        &self,
        description: &Description,
        side: Side,
        end: u64,
    ) -> Result<Option<Vec<u8>>, M::Error> {
        let (mut array, mut end) = (description.array(side), end);
        if side == Side::Next && end == self.in_use(description, side)?.end {
            // What is still to be moved follows.
            array = description.current;
            end = self.in_use(description, Side::Current)?.start;
        }
        if end >= array.count() {
            return Ok(None);
        }
        Ok(array.bound(&self.memory, end)?.map(<[u8]>::to_vec))
    }
}

/// The windows around a segment, each twice as large as the one before, as far as segments are in use.
struct Windows {
    segment: u64,
    in_use: Range<u64>,
    /// Levels of windows in what is in use.
    height: u32,
    level: u32,
    window: Range<u64>,
    /// What the window has gained last, on the left and on the right.
    added: [Range<u64>; 2],
}

impl Windows {
    fn new(in_use: Range<u64>, segment: u64) -> Self {
        Self {
            segment,
            // The array may have any number of segments, of which some may have been moved away.
            height: in_use
                .end
                .clamp(2, SEGMENTS_MAX)
                .next_power_of_two()
                .ilog2(),
            in_use,
            level: 0,
            window: segment..segment + 1,
            added: [0..0, 0..0],
        }
    }

    /// Goes on to the next window, if there is any.
    fn widen(&mut self) -> bool {
        while self.window != self.in_use && self.level < u64::BITS - 2 {
            self.level += 1;
            let start = self.segment >> self.level << self.level;
            let end = (start + (1 << self.level)).min(self.in_use.end);
            let wider = start.max(self.in_use.start)..end;
            if wider != self.window {
                self.added = [wider.start..self.window.start, self.window.end..wider.end];
                self.window = wider;
                return true;
            }
        }
        false
    }

    /// The bound on density at this level, between that of a segment and that of the whole array.
    fn bound(&self, leaf: f64, root: f64) -> f64 {
        let level = f64::from(self.level.min(self.height));
        leaf + (root - leaf) * level / f64::from(self.height)
    }

    /// Bytes of the window for records.
    fn capacity(&self) -> f64 {
        (self.window.end - self.window.start) as f64 * CAPACITY as f64
    }
}

/// The bytes of the records on a side.
impl<M: Memory> CacheObliviousTree<M> {
    pub(super) fn used_on(&self, description: &Description, side: Side) -> Result<u64, M::Error> {
        let in_use = self.in_use(description, side)?;
        description.array(side).used(&self.memory, in_use)
    }
}
