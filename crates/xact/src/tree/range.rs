//! Walking through the records of a tree in order, from both ends.

use std::ops::{Bound, RangeBounds};

use crate::block::{Block, Record};
use crate::memory::Memory;
use crate::value;

use super::{bplus, cache_oblivious};

/// A walk asks for no more than so many bytes ahead of it, 4 MiB: half of it keeps a disk busy while the walk goes
/// through the other half.
const AHEAD_BYTES_MAX: u64 = 4 << 20;

/// How many bytes a walk asks for when it goes beyond its first block: 32 KiB.
const AHEAD_BYTES_MIN: u64 = 32 << 10;

/// The records between two keys: an iterator over keys and values that can be taken from both ends.
///
/// After an error the iterator has ended.
#[derive(Debug)]
pub struct Range<'t, M> {
    memory: &'t M,
    front: Cursor<'t, M>,
    back: Cursor<'t, M>,
    /// Both cursors have met.
    ended: bool,
}

/// Where a walk begins or ends.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Edge<'k> {
    /// Before all records.
    First,
    /// Behind all records.
    Last,
    /// Before the first record whose key is not below this one.
    Before(&'k [u8]),
    /// Behind the last record whose key is not above this one.
    Behind(&'k [u8]),
}

/// A place between two records.
#[derive(Debug)]
pub(crate) struct Cursor<'t, M> {
    /// The leaf or segment.
    pub(crate) block: Block<'t, M>,
    /// How many of its records are before the cursor.
    pub(crate) index: usize,
    pub(crate) way: Way<'t, M>,
}

/// How a cursor gets from a block of records to its neighbours.
#[derive(Debug)]
pub(crate) enum Way<'t, M> {
    BPlus(bplus::Way<'t, M>),
    CacheOblivious(Box<cache_oblivious::Way<'t, M>>),
}

/// How far ahead of a cursor blocks were asked for: little at first, as most walks are short, and twice as much each
/// time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ahead {
    /// How many blocks behind the cursor's are asked for.
    asked: u64,
    /// How many it will be next time.
    next: u64,
    max: u64,
}

impl<'t, M: Memory> Range<'t, M> {
    /// The records between two keys of a tree in which `open` finds the place of an edge.
    pub(crate) fn between<'k>(
        memory: &'t M,
        keys: &impl RangeBounds<&'k [u8]>,
        open: impl Fn(Edge<'k>) -> Result<Cursor<'t, M>, M::Error>,
    ) -> Result<Self, M::Error> {
        let front = open(match keys.start_bound() {
            Bound::Included(key) => Edge::Before(key),
            Bound::Excluded(key) => Edge::Behind(key),
            Bound::Unbounded => Edge::First,
        })?;
        let back = open(match keys.end_bound() {
            Bound::Included(key) => Edge::Behind(key),
            Bound::Excluded(key) => Edge::Before(key),
            Bound::Unbounded => Edge::Last,
        })?;
        let ended = !front.is_before(&back);
        Ok(Self {
            memory,
            front,
            back,
            ended,
        })
    }

    fn step(&mut self, forward: bool) -> Result<Option<Record<'t>>, M::Error> {
        while !self.ended {
            let (cursor, other) = if forward {
                (&mut self.front, &self.back)
            } else {
                (&mut self.back, &self.front)
            };
            let index = if forward {
                (cursor.index < cursor.block.count()).then_some(cursor.index)
            } else {
                cursor.index.checked_sub(1)
            };
            let Some(index) = index else {
                self.ended = !cursor.turn(forward, other)?;
                continue;
            };
            cursor.index = if forward { index + 1 } else { index };
            let cell = cursor.block.cell(index)?;
            if self.front.block.at() == self.back.block.at() {
                self.ended = self.front.index >= self.back.index;
                // The block that the other cursor is in is entered at its edge, perhaps beyond that cursor.
                if self.front.index > self.back.index {
                    return Ok(None);
                }
            }
            return Ok(Some((cell.key, value::load(self.memory, cell)?)));
        }
        Ok(None)
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

impl<M: Memory> Cursor<'_, M> {
    fn is_before(&self, other: &Self) -> bool {
        match (&self.way, &other.way) {
            (Way::BPlus(way), Way::BPlus(to)) => {
                (way.turns(), self.index) < (to.turns(), other.index)
            }
            (Way::CacheOblivious(way), Way::CacheOblivious(to)) => {
                (way.place(), self.index) < (to.place(), other.index)
            }
            _ => false,
        }
    }

    /// Goes to the next block or the one before, unless there is none or it is beyond the other cursor.
    fn turn(&mut self, forward: bool, other: &Self) -> Result<bool, M::Error> {
        let block = match (&mut self.way, &other.way) {
            (Way::BPlus(way), _) => way.turn(&self.block, forward)?,
            (Way::CacheOblivious(way), Way::CacheOblivious(other)) => {
                way.turn(forward, other.place())?
            }
            (Way::CacheOblivious(_), Way::BPlus(_)) => None,
        };
        let Some(block) = block else {
            return Ok(false);
        };
        self.index = if forward { 0 } else { block.count() };
        self.block = block;
        Ok(true)
    }
}

impl Ahead {
    /// For blocks of so many bytes.
    pub(crate) fn new(block_bytes: usize) -> Self {
        let blocks = |bytes: u64| (bytes / block_bytes.max(1) as u64).max(1);
        Self {
            asked: 0,
            next: blocks(AHEAD_BYTES_MIN),
            max: blocks(AHEAD_BYTES_MAX),
        }
    }

    /// The cursor gets into the next block, behind which the walk has `left` blocks in a row. Returns which of those
    /// are to be asked for now, counted from 0.
    pub(crate) fn turn(&mut self, left: u64) -> std::ops::Range<u64> {
        self.asked = self.asked.saturating_sub(1);
        // It asks again while half as much as it will ask for is still to come, so that the disk always has something
        // to do.
        if self.asked > self.next / 2 || self.asked >= left {
            return 0..0;
        }
        let first = self.asked;
        self.asked = self.next.max(first).min(left);
        self.next = (2 * self.next).min(self.max);
        first..self.asked
    }

    /// The blocks that follow are others than those asked for.
    pub(crate) fn forget(&mut self) {
        self.asked = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_walk_asks_once_for_every_block_and_never_beyond_its_end() {
        for (block_bytes, blocks) in [(4096, 5000_u64), (4096, 9), (512 << 10, 40), (2048, 1)] {
            let mut ahead = Ahead::new(block_bytes);
            let mut asked = 1;
            for block in 1..blocks {
                let more = ahead.turn(blocks - block - 1);
                if !more.is_empty() {
                    assert_eq!(asked.max(block + 1), block + 1 + more.start);
                    asked = block + 1 + more.end;
                }
                assert!(asked <= blocks && asked - block <= ahead.max + 1);
            }
            assert!(blocks < 3 || asked == blocks, "{asked} of {blocks}");
        }
    }
}
