//! A cache-oblivious B-tree: records in key order in an array with gaps, under a static search tree.
//!
//! The array is a packed memory array. It is divided into segments of a page; a segment is a sorted block of records.
//! When one is full, the records of the smallest aligned window around it that has room to spare are spread over that
//! window: how full a window may be falls with its size, from [`LEAF_MAX`] to [`ROOT_MAX`], and how empty from
//! [`ROOT_MIN`] to [`LEAF_MIN`]. A walk through all records is a walk through the array from one end to the other,
//! however the disk below likes its blocks.
//!
//! A record that comes after all others begins a new segment behind the last when that is full, and an array that has
//! no room for it grows where it is: keys in order are written once, as in a log.
//!
//! When the whole array is too full or too empty, its records move to another one. They move from left to right in
//! steps of a few segments, each step complete in itself, so that it can be a transaction of its own: a search that
//! finds its segment moved goes on in the next array. Windows too large for one transaction are not rebalanced either:
//! the array moves then too.
//!
//! ```text
//! OFFSET  SIZE  DESCRIPTION
//!      0     8  "sappackd"
//!      8     8  reserved
//!     16   320  the array
//!    336   320  the next array, or zeros
//!    656     8  how far the move to it is: offset of a page, or 0
//! ```

mod array;
mod change;
mod index;
mod range;
mod rebalancer;
mod rebuild;

use std::sync::Arc;

use self::array::{ARRAY_BYTES, Array, SEGMENT_BYTES};
use self::rebuild::Progress;
use crate::block::{Block, BlockMut, Kind, damaged};
use crate::fixed::Fixed;
use crate::memory::{Memory, PAGE_BYTES};
use crate::structure::Magic;
use crate::tree::{Census, tree_in_a_memory};
use crate::value;

pub(crate) use range::Way;
pub use rebalancer::Rebalancer;

/// The longest key in bytes.
pub const KEY_BYTES_MAX: usize = 500;

/// How full the smallest window may be, and the whole array.
const LEAF_MAX: f64 = 0.95;
const ROOT_MAX: f64 = 0.80;

/// How empty the whole array may be, and a single segment.
const ROOT_MIN: f64 = 0.30;
const LEAF_MIN: f64 = 0.08;

const MAGIC: Magic = Magic {
    bytes: *b"sappackd",
    missing: "no cache-oblivious tree begins here",
};

/// Where the description has the array, the next one, and how far the move is.
const CURRENT_AT: usize = 16;
const NEXT_AT: usize = CURRENT_AT + ARRAY_BYTES;
const PROGRESS_AT: usize = NEXT_AT + ARRAY_BYTES;
const DESCRIPTION_BYTES: usize = PROGRESS_AT + 8;

/// A cache-oblivious B-tree in a memory.
///
/// It does what [`BPlusTree`](crate::BPlusTree) does and needs no block size. In a transaction it is opened with an
/// [`Rebalancer`] that outlives the transaction, and [`CacheObliviousTree::maintain`] is called in transactions of its
/// own while it says so ([`Space::transaction_relaxed`](crate::Space::transaction_relaxed), as nobody waits for them).
#[derive(Debug)]
pub struct CacheObliviousTree<M> {
    memory: M,
    at: u64,
    rebalancer: Arc<Rebalancer>,
}

/// What the tree's page says.
#[derive(Clone, Copy, Debug)]
struct Description {
    current: Array,
    /// The array that the records are moving to, and the page that says how far.
    next: Option<(Array, u64)>,
}

/// A segment of the tree: those of the next array come before those of the current one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SegmentId {
    side: Side,
    segment: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Side {
    Next,
    Current,
}

impl Description {
    fn array(&self, side: Side) -> Array {
        match (side, self.next) {
            (Side::Next, Some((next, _))) => next,
            _ => self.current,
        }
    }
}

tree_in_a_memory!(CacheObliviousTree);

impl<M: Memory> CacheObliviousTree<M> {
    /// Makes an empty tree that rebalances at once.
    ///
    /// # Errors
    /// What the memory says.
    pub fn create(mut memory: M) -> Result<Self, M::Error> {
        let at = memory.allocate(PAGE_BYTES as u64)?;
        let current = Array::allocate(&mut memory, 1)?;
        current.index.clear(&mut memory, 0..1)?;
        BlockMut::format(&mut memory, current.at(0), SEGMENT_BYTES, Kind::Leaf, 0)?;
        MAGIC.store(&mut memory, at)?;
        let mut tree = Self {
            memory,
            at,
            rebalancer: Arc::new(Rebalancer::immediate()),
        };
        tree.describe(Description {
            current,
            next: None,
        })?;
        Ok(tree)
    }

    /// The tree that [`CacheObliviousTree::offset`] has named, rebalancing at once.
    ///
    /// # Errors
    /// [`Fault::Damaged`](crate::Fault::Damaged) if there is none, or what the memory says.
    pub fn open(memory: M, offset: u64) -> Result<Self, M::Error> {
        Self::with_rebalancer(memory, offset, Arc::new(Rebalancer::immediate()))
    }

    /// As [`CacheObliviousTree::open`], with what was remembered about the tree before.
    ///
    /// # Errors
    /// As for [`CacheObliviousTree::open`].
    pub fn with_rebalancer(
        memory: M,
        offset: u64,
        rebalancer: Arc<Rebalancer>,
    ) -> Result<Self, M::Error> {
        MAGIC.description(&memory, offset, DESCRIPTION_BYTES)?;
        Ok(Self {
            memory,
            at: offset,
            rebalancer,
        })
    }

    /// The longest key that fits, in bytes: [`KEY_BYTES_MAX`].
    pub fn key_bytes_max(&self) -> usize {
        KEY_BYTES_MAX
    }

    /// The value of a key.
    ///
    /// # Errors
    /// [`Fault::Damaged`](crate::Fault::Damaged), or what the memory says.
    pub fn get(&self, key: &[u8]) -> Result<Option<&[u8]>, M::Error> {
        let description = self.description()?;
        let place = self.find(&description, key)?;
        let block = self.segment(&description, place)?;
        match block.search(key)? {
            (index, true) => value::load(&self.memory, block.cell(index)?).map(Some),
            _ => Ok(None),
        }
    }

    /// Goes through the whole tree and verifies the structure: order, bounds, the accounts of every segment.
    ///
    /// # Errors
    /// [`Fault::Damaged`](crate::Fault::Damaged) at the first contradiction.
    pub fn check(&self) -> Result<Census, M::Error> {
        let description = self.description()?;
        let mut census = Census {
            height: description.current.index.height() as usize,
            ..Census::default()
        };
        for segment in 0..self.in_use(&description, Side::Current)?.start {
            let block = description.current.segment(&self.memory, segment)?;
            if block.kind() != Kind::Moved {
                return Err(block.damaged("a segment behind the move is in use"));
            }
        }
        let mut last = None;
        for side in [Side::Next, Side::Current] {
            let segments = self.in_use(&description, side)?;
            let array = description.array(side);
            for segment in segments.clone() {
                let block = array.segment(&self.memory, segment)?;
                if block.kind() != Kind::Leaf {
                    return Err(block.damaged("a segment that was moved is in use"));
                }
                for index in 0..block.count() {
                    value::load(&self.memory, block.cell(index)?)?;
                }
            }
            census.leaves += segments.end - segments.start;
            census.used_bytes += array.used(&self.memory, segments.clone())?;
            census.keys += array.check(&self.memory, segments, &mut last)?;
        }
        Ok(census)
    }

    fn description(&self) -> Result<Description, M::Error> {
        let bytes = self.memory.read(self.at, DESCRIPTION_BYTES)?;
        let array = |at: usize| Array::decode(self.at, &bytes[at..at + ARRAY_BYTES]);
        Ok(Description {
            current: array(CURRENT_AT)?,
            next: match u64::decode(&bytes[PROGRESS_AT..]) {
                0 => None,
                progress => Some((array(NEXT_AT)?, progress)),
            },
        })
    }

    fn describe(&mut self, description: Description) -> Result<(), M::Error> {
        let bytes = self.memory.write(self.at, DESCRIPTION_BYTES)?;
        description.current.encode(&mut bytes[CURRENT_AT..NEXT_AT]);
        let next = &mut bytes[NEXT_AT..PROGRESS_AT];
        let progress = match &description.next {
            None => {
                next.fill(0);
                0
            }
            Some((array, progress)) => {
                array.encode(next);
                *progress
            }
        };
        progress.encode(&mut bytes[PROGRESS_AT..]);
        Ok(())
    }

    /// Where a key belongs.
    fn find(&self, description: &Description, key: &[u8]) -> Result<SegmentId, M::Error> {
        let segment = description.current.find(&self.memory, key)?;
        if let Some((next, _)) = description.next {
            // Perhaps the one that began the move is gone.
            self.rebalancer.set_due(true);
            let block = description.current.segment(&self.memory, segment)?;
            if block.kind() == Kind::Moved {
                return Ok(SegmentId {
                    side: Side::Next,
                    segment: next.find(&self.memory, key)?,
                });
            }
        }
        Ok(SegmentId {
            side: Side::Current,
            segment,
        })
    }

    /// A segment that holds records.
    fn segment(
        &self,
        description: &Description,
        place: SegmentId,
    ) -> Result<Block<'_, M>, M::Error> {
        let block = description
            .array(place.side)
            .segment(&self.memory, place.segment)?;
        if block.kind() != Kind::Leaf {
            return Err(block.damaged("a segment that was moved is in use"));
        }
        Ok(block)
    }

    /// The segments of an array that hold records.
    fn in_use(
        &self,
        description: &Description,
        side: Side,
    ) -> Result<std::ops::Range<u64>, M::Error> {
        let Some((next, progress)) = description.next else {
            return Ok(match side {
                Side::Next => 0..0,
                Side::Current => 0..description.current.in_use(&self.memory)?,
            });
        };
        let progress = Progress::load(&self.memory, progress)?;
        let end = match side {
            Side::Next => next.count(),
            Side::Current => description.current.in_use(&self.memory)?,
        };
        let segments = match side {
            Side::Next => 0..progress.to,
            Side::Current => progress.from..end,
        };
        if segments.start > end || segments.end > end {
            return Err(damaged(self.at, "a move beyond the end of the array"));
        }
        Ok(segments)
    }
}
