//! Walking through the records in order, from both ends.

use std::ops::Bound;

use super::array::SEGMENT_BYTES;
use super::{Description, PackedTree, Place, Side};
use crate::block::{Block, Record};
use crate::memory::Memory;
use crate::value;

/// A walk asks for so many segments at a time, while it still has as many: 512 KiB.
const AHEAD_SEGMENTS: u64 = 128;

/// The records between two keys: an iterator over keys and values that can be taken from both ends.
///
/// After an error the iterator has ended.
#[derive(Debug)]
pub struct Range<'t, M> {
    tree: &'t PackedTree<M>,
    description: Description,
    /// The segments in use, of the next array and of the current one.
    in_use: [std::ops::Range<u64>; 2],
    front: Cursor<'t, M>,
    back: Cursor<'t, M>,
    /// Both cursors have met.
    ended: bool,
}

/// A place between two records.
#[derive(Debug)]
struct Cursor<'t, M> {
    place: Place,
    block: Block<'t, M>,
    /// How many records of the segment are before the cursor.
    index: usize,
}

impl<'t, M: Memory> Range<'t, M> {
    pub(super) fn new(
        tree: &'t PackedTree<M>,
        start: Bound<&[u8]>,
        end: Bound<&[u8]>,
    ) -> Result<Self, M::Error> {
        let description = tree.description()?;
        let in_use = [
            tree.in_use(&description, Side::Next)?,
            tree.in_use(&description, Side::Current)?,
        ];
        let at = |key: &[u8], behind: bool| -> Result<Cursor<'t, M>, M::Error> {
            let place = tree.find(&description, key)?;
            let block = tree.segment(&description, place)?;
            let (index, found) = block.search(key)?;
            Ok(Cursor {
                place,
                block,
                index: index + usize::from(found && behind),
            })
        };
        let edge = |last: bool| -> Result<Cursor<'t, M>, M::Error> {
            let [next, current] = &in_use;
            let (next, current) = (
                (!next.is_empty()).then_some((Side::Next, next)),
                (!current.is_empty()).then_some((Side::Current, current)),
            );
            let edge = if last {
                current.or(next)
            } else {
                next.or(current)
            };
            // One of the arrays holds the records; both being out of use is a contradiction that the look at a segment finds.
            let (side, segments) = edge.unwrap_or((Side::Current, &(0..1)));
            let segment = if last {
                segments.end - 1
            } else {
                segments.start
            };
            let place = Place { side, segment };
            let block = tree.segment(&description, place)?;
            Ok(Cursor {
                place,
                block,
                index: if last { block.count() } else { 0 },
            })
        };
        let front = match start {
            Bound::Included(key) => at(key, false)?,
            Bound::Excluded(key) => at(key, true)?,
            Bound::Unbounded => edge(false)?,
        };
        let back = match end {
            Bound::Included(key) => at(key, true)?,
            Bound::Excluded(key) => at(key, false)?,
            Bound::Unbounded => edge(true)?,
        };
        let ended = (front.place, front.index) >= (back.place, back.index);
        let range = Self {
            tree,
            description,
            in_use,
            front,
            back,
            ended,
        };
        Ok(range)
    }

    fn step(&mut self, forward: bool) -> Result<Option<Record<'t>>, M::Error> {
        loop {
            if self.ended {
                return Ok(None);
            }
            let cursor = if forward {
                &mut self.front
            } else {
                &mut self.back
            };
            let here = if forward {
                (cursor.index < cursor.block.count()).then_some(cursor.index)
            } else {
                cursor.index.checked_sub(1)
            };
            if let Some(index) = here {
                let cell = cursor.block.cell(index)?;
                cursor.index = if forward { index + 1 } else { index };
                self.ended =
                    self.front.place == self.back.place && self.front.index >= self.back.index;
                // A segment that the other cursor is in is entered at its edge, perhaps beyond that cursor.
                if self.front.place == self.back.place && self.front.index > self.back.index {
                    return Ok(None);
                }
                return Ok(Some((cell.key, value::load(&self.tree.memory, cell)?)));
            }
            self.turn(forward)?;
        }
    }

    /// Goes to the next segment or the one before.
    fn turn(&mut self, forward: bool) -> Result<(), M::Error> {
        let [next, current] = &self.in_use;
        let cursor = if forward {
            &mut self.front
        } else {
            &mut self.back
        };
        let Place { side, segment } = cursor.place;
        let turned = match (side, forward) {
            (Side::Next, true) if segment + 1 < next.end => Some((side, segment + 1)),
            (Side::Next, true) if !current.is_empty() => Some((Side::Current, current.start)),
            (Side::Current, true) if segment + 1 < current.end => Some((side, segment + 1)),
            (Side::Current, false) if segment > current.start => Some((side, segment - 1)),
            (Side::Current, false) if !next.is_empty() => Some((Side::Next, next.end - 1)),
            (Side::Next, false) if segment > 0 => Some((side, segment - 1)),
            _ => None,
        };
        let Some((side, segment)) = turned else {
            self.ended = true;
            return Ok(());
        };
        let place = Place { side, segment };
        let array = self.description.array(side);
        let first = segment % AHEAD_SEGMENTS;
        if forward && first == 0 || !forward && first == AHEAD_SEGMENTS - 1 {
            // The part after the one that begins here.
            let ahead = match forward {
                true => Some(segment + AHEAD_SEGMENTS),
                false => (segment - first).checked_sub(AHEAD_SEGMENTS),
            };
            if let Some(ahead) = ahead.filter(|ahead| *ahead < array.count()) {
                let bytes = AHEAD_SEGMENTS * SEGMENT_BYTES as u64;
                self.tree.memory.prefetch(array.at(ahead), bytes);
            }
        }
        let block = self.tree.segment(&self.description, place)?;
        cursor.place = place;
        cursor.block = block;
        cursor.index = if forward { 0 } else { block.count() };
        // Empty segments can lead past the other cursor.
        self.ended = self.front.place > self.back.place;
        Ok(())
    }
}

impl<'t, M: Memory> Iterator for Range<'t, M> {
    type Item = Result<Record<'t>, M::Error>;

    fn next(&mut self) -> Option<Self::Item> {
        let item = self.step(true).transpose();
        self.ended |= matches!(item, Some(Err(_)));
        item
    }
}

impl<M: Memory> DoubleEndedIterator for Range<'_, M> {
    fn next_back(&mut self) -> Option<Self::Item> {
        let item = self.step(false).transpose();
        self.ended |= matches!(item, Some(Err(_)));
        item
    }
}
