//! A B+tree: blocks of a size chosen at creation, values in the leaves.
//!
//! The tree is described on a page of its own, which changes only when the root does:
//!
//! ```text
//! OFFSET  SIZE  DESCRIPTION
//!      0     8  "sapbplus"
//!      8     4  block size in bytes
//!     12     4  height: levels of blocks, at least 1
//!     16     8  root block
//! ```
//!
//! Blocks have no links to their neighbours and nothing is counted, so that an insert that splits nothing changes one
//! block, and inserts of several processes meet only where their keys do. A block that is merged away is marked before
//! it is freed: a transaction that is about to change it must find that it lost.

mod change;
mod range;

use std::ops::{Bound, RangeBounds};

use crate::block::{Block, BlockMut, Kind, damaged};
use crate::fixed::Fixed;
use crate::memory::{Fault, Memory, PAGE_BYTES};
use crate::structure::Magic;
use crate::tree::{Census, tree_in_a_memory};
use crate::value;

pub(crate) use range::Way;

/// The smallest block: 2 KiB.
pub const BLOCK_BYTES_MIN: usize = 2 << 10;

/// The largest block: 512 KiB.
pub const BLOCK_BYTES_MAX: usize = 512 << 10;

const MAGIC: Magic = Magic {
    bytes: *b"sapbplus",
    missing: "no B+tree begins here",
};
const DESCRIPTION_BYTES: usize = 24;

/// No tree is higher: with blocks of the smallest size and the longest keys this many levels hold more than any memory
/// does.
const HEIGHT_MAX: usize = 32;

/// A B+tree in a memory.
///
/// The memory is whatever implements [`Memory`]; `&mut M` does too, so that a tree can be opened for a moment, as in a
/// transaction.
#[derive(Debug)]
pub struct BPlusTree<M> {
    memory: M,
    at: u64,
    block_bytes: usize,
}

#[derive(Clone, Copy)]
struct Root {
    block: u64,
    height: usize,
}

/// The way from the root to a leaf: each block and which of its children is next, or which record it is in the leaf.
#[derive(Clone, Copy, Debug)]
struct Path {
    steps: [(u64, usize); HEIGHT_MAX],
    height: usize,
}

/// Where a key is, or would be.
struct Found<'t, M> {
    path: Path,
    leaf: Block<'t, M>,
    /// How many keys of the leaf are lower.
    index: usize,
    /// Whether the next one is the key.
    found: bool,
}

impl Path {
    fn step(&self, depth: usize) -> (u64, usize) {
        self.steps[..self.height][depth]
    }
}

tree_in_a_memory!(BPlusTree);

impl<M: Memory> BPlusTree<M> {
    /// Makes an empty tree of blocks of `block_bytes`, a power of two from [`BLOCK_BYTES_MIN`] to [`BLOCK_BYTES_MAX`].
    ///
    /// # Errors
    /// [`Fault::BlockSize`], or what the memory says.
    pub fn create(mut memory: M, block_bytes: usize) -> Result<Self, M::Error> {
        block_size(block_bytes)?;
        let at = memory.allocate(PAGE_BYTES as u64)?;
        let block = memory.allocate(block_bytes as u64)?;
        BlockMut::format(&mut memory, block, block_bytes, Kind::Leaf, 0)?;
        let mut tree = Self {
            memory,
            at,
            block_bytes,
        };
        MAGIC.store(&mut tree.memory, at)?;
        u32::try_from(block_bytes)
            .unwrap_or(0)
            .encode(tree.memory.write(at + 8, 4)?);
        tree.set_root(Root { block, height: 1 })?;
        Ok(tree)
    }

    /// The tree that [`BPlusTree::offset`] has named.
    ///
    /// # Errors
    /// [`Fault::Damaged`] if there is none, or what the memory says.
    pub fn open(memory: M, offset: u64) -> Result<Self, M::Error> {
        let description = MAGIC.description(&memory, offset, DESCRIPTION_BYTES)?;
        let block_bytes = u32::decode(&description[8..12]) as usize;
        block_size(block_bytes)
            .map_err(|_| damaged(offset, "the B+tree has an impossible block size"))?;
        Ok(Self {
            memory,
            at: offset,
            block_bytes,
        })
    }

    /// The longest key that fits, in bytes: an eighth of a block, less what is stored with it.
    pub fn key_bytes_max(&self) -> usize {
        (self.block_bytes / 8 - 32).min(usize::from(u16::MAX))
    }

    /// The value of a key.
    ///
    /// # Errors
    /// [`Fault::Damaged`], or what the memory says.
    pub fn get(&self, key: &[u8]) -> Result<Option<&[u8]>, M::Error> {
        let place = self.find(key)?;
        if !place.found {
            return Ok(None);
        }
        value::load(&self.memory, place.leaf.cell(place.index)?).map(Some)
    }

    /// Goes through the whole tree and verifies the structure: levels, order, separators, the accounts of every block.
    ///
    /// # Errors
    /// [`Fault::Damaged`] at the first contradiction.
    pub fn check(&self) -> Result<Census, M::Error> {
        let root = self.root()?;
        let mut census = Census {
            height: root.height,
            ..Census::default()
        };
        // The keys found must rise from block to block, which no damaged tree can keep up for long: the walk ends.
        let mut last: Option<Vec<u8>> = None;
        let bounds = (Bound::Unbounded, Bound::Unbounded);
        self.check_below(root.block, root.height - 1, bounds, &mut last, &mut census)?;
        Ok(census)
    }

    fn check_below(
        &self,
        at: u64,
        level: usize,
        bounds: (Bound<&[u8]>, Bound<&[u8]>),
        last: &mut Option<Vec<u8>>,
        census: &mut Census,
    ) -> Result<(), M::Error> {
        let block = self.block(at, level)?;
        block.check()?;
        let misplaced = |key: &[u8]| {
            let is_inside = RangeBounds::<[u8]>::contains(&bounds, key);
            !is_inside || last.as_deref().is_some_and(|last| last >= key)
        };
        for index in 0..block.count() {
            if misplaced(block.key(index)?) {
                return Err(block.damaged("a key is in the wrong block"));
            }
        }
        if level == 0 {
            if block.count() == 0 && census.height > 1 {
                return Err(block.damaged("an empty leaf"));
            }
            for index in 0..block.count() {
                let cell = block.cell(index)?;
                value::load(&self.memory, cell)?;
                *last = Some(cell.key.to_vec());
            }
            census.keys += block.count() as u64;
            census.leaves += 1;
            census.used_bytes += block.used() as u64;
            return Ok(());
        }
        for index in 0..=block.count() {
            let low = match index.checked_sub(1) {
                Some(index) => Bound::Included(block.key(index)?),
                None => bounds.0,
            };
            let high = match index < block.count() {
                true => Bound::Excluded(block.key(index)?),
                false => bounds.1,
            };
            self.check_below(block.child(index)?, level - 1, (low, high), last, census)?;
        }
        Ok(())
    }

    fn root(&self) -> Result<Root, M::Error> {
        let description = self.memory.read(self.at, DESCRIPTION_BYTES)?;
        let height = u32::decode(&description[12..16]) as usize;
        if !(1..=HEIGHT_MAX).contains(&height) {
            return Err(damaged(self.at, "the B+tree has an impossible height"));
        }
        Ok(Root {
            block: u64::decode(&description[16..24]),
            height,
        })
    }

    fn set_root(&mut self, root: Root) -> Result<(), M::Error> {
        let place = self.memory.write(self.at + 12, 12)?;
        let (height, block) = place.split_at_mut(4);
        u32::try_from(root.height).unwrap_or(0).encode(height);
        root.block.encode(block);
        Ok(())
    }

    /// The block there, which must be of this level.
    fn block(&self, at: u64, level: usize) -> Result<Block<'_, M>, M::Error> {
        let block = Block::open(&self.memory, at, self.block_bytes)?;
        let kind = if level == 0 { Kind::Leaf } else { Kind::Branch };
        if block.kind() != kind || block.level() != level {
            return Err(block.damaged("a block of another level"));
        }
        Ok(block)
    }

    fn block_mut(&mut self, at: u64) -> Result<BlockMut<'_, M>, M::Error> {
        BlockMut::open(&mut self.memory, at, self.block_bytes)
    }

    /// Where a key belongs.
    fn find(&self, key: &[u8]) -> Result<Found<'_, M>, M::Error> {
        let root = self.root()?;
        let mut path = Path {
            steps: [(0, 0); HEIGHT_MAX],
            height: root.height,
        };
        let mut at = root.block;
        for (depth, step) in path.steps[..root.height].iter_mut().enumerate() {
            let level = root.height - 1 - depth;
            let block = self.block(at, level)?;
            let (index, found) = block.search(key)?;
            if level == 0 {
                *step = (at, index);
                return Ok(Found {
                    path,
                    leaf: block,
                    index,
                    found,
                });
            }
            let child = index + usize::from(found);
            *step = (at, child);
            at = block.child(child)?;
        }
        Err(damaged(self.at, "the B+tree has no leaf"))
    }
}

fn block_size(bytes: usize) -> Result<(), Fault> {
    if bytes.is_power_of_two() && (BLOCK_BYTES_MIN..=BLOCK_BYTES_MAX).contains(&bytes) {
        return Ok(());
    }
    Err(Fault::BlockSize {
        bytes,
        min: BLOCK_BYTES_MIN,
        max: BLOCK_BYTES_MAX,
    })
}
