//! How a walk finds its way from segment to segment.

use super::array::SEGMENT_BYTES;
use super::{CacheObliviousTree, Description, SegmentId, Side};
use crate::block::Block;
use crate::memory::Memory;
use crate::tree::range::{self, Ahead, Cursor, Edge};

/// Where a cursor is among the segments.
#[derive(Debug)]
pub(crate) struct Way<'t, M> {
    tree: &'t CacheObliviousTree<M>,
    description: Description,
    /// The segments in use, of the next array and of the current one.
    in_use: [std::ops::Range<u64>; 2],
    place: SegmentId,
    ahead: Ahead,
}

impl<M: Memory> CacheObliviousTree<M> {
    /// The place of an edge.
    pub(super) fn cursor(&self, edge: Edge<'_>) -> Result<Cursor<'_, M>, M::Error> {
        let description = self.description()?;
        let in_use = [
            self.in_use(&description, Side::Next)?,
            self.in_use(&description, Side::Current)?,
        ];
        let place = match edge {
            Edge::Before(key) | Edge::Behind(key) => self.find(&description, key)?,
            Edge::First | Edge::Last => outermost(&in_use, matches!(edge, Edge::Last)),
        };
        let block = self.segment(&description, place)?;
        let index = match edge {
            Edge::First => 0,
            Edge::Last => block.count(),
            Edge::Before(key) => block.search(key)?.0,
            Edge::Behind(key) => {
                let (index, found) = block.search(key)?;
                index + usize::from(found)
            }
        };
        let way = Way {
            tree: self,
            description,
            in_use,
            place,
            ahead: Ahead::new(SEGMENT_BYTES),
        };
        Ok(Cursor {
            block,
            index,
            way: range::Way::CacheOblivious(Box::new(way)),
        })
    }
}

/// The first or the last segment in use. That none is would be a contradiction, which the look at a segment finds.
fn outermost([next, current]: &[std::ops::Range<u64>; 2], last: bool) -> SegmentId {
    let use_next = !next.is_empty() && (!last || current.is_empty());
    let (side, segments) = match use_next {
        true => (Side::Next, next),
        false => (Side::Current, current),
    };
    let segment = match last {
        true => segments.end.saturating_sub(1),
        false => segments.start,
    };
    SegmentId { side, segment }
}

impl<'t, M: Memory> Way<'t, M> {
    pub(crate) fn place(&self) -> SegmentId {
        self.place
    }

    /// Goes to the next segment or the one before, unless that is beyond the other cursor's.
    pub(crate) fn turn(
        &mut self,
        forward: bool,
        other: SegmentId,
    ) -> Result<Option<Block<'t, M>>, M::Error> {
        let [next, current] = &self.in_use;
        let SegmentId { side, segment } = self.place;
        let turned = match (side, forward) {
            (Side::Next, true) if segment + 1 < next.end => Some((side, segment + 1)),
            (Side::Next, true) if !current.is_empty() => Some((Side::Current, current.start)),
            (Side::Current, true) if segment + 1 < current.end => Some((side, segment + 1)),
            (Side::Current, false) if segment > current.start => Some((side, segment - 1)),
            (Side::Current, false) if !next.is_empty() => Some((Side::Next, next.end - 1)),
            (Side::Next, false) if segment > 0 => Some((side, segment - 1)),
            _ => None,
        };
        let place = turned.map(|(side, segment)| SegmentId { side, segment });
        // Empty segments can lead past the other cursor.
        let beyond = |place: &SegmentId| {
            if forward {
                *place > other
            } else {
                *place < other
            }
        };
        let Some(place) = place.filter(|place| !beyond(place)) else {
            return Ok(None);
        };
        if place.side != side {
            self.ahead.forget();
        }
        self.place = place;
        self.ask_ahead(forward, other);
        self.tree.segment(&self.description, place).map(Some)
    }

    /// Asks for the segments that the walk will reach soon.
    fn ask_ahead(&mut self, forward: bool, other: SegmentId) {
        let SegmentId { side, segment } = self.place;
        let segments = match side {
            Side::Next => &self.in_use[0],
            Side::Current => &self.in_use[1],
        };
        let edge = match forward {
            _ if other.side == side => other.segment,
            true => segments.end.saturating_sub(1),
            false => segments.start,
        };
        let ahead = self.ahead.turn(segment.abs_diff(edge));
        let ahead = match forward {
            true => segment + 1 + ahead.start..segment + 1 + ahead.end,
            false => segment - ahead.end..segment - ahead.start,
        };
        let array = self.description.array(side);
        array.prefetch(&self.tree.memory, ahead);
    }
}
