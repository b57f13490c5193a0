//! Walking through the records in order, from both ends.

use std::ops::Bound;

use super::{BPlusTree, Found, HEIGHT_MAX};
use crate::block::{Block, Cell, Record};
use crate::memory::Memory;
use crate::value;

/// How far ahead of a walk blocks are asked for, in bytes: enough to keep a disk busy.
const AHEAD_BYTES: usize = 256 << 10;

/// The records between two keys: an iterator over keys and values that can be taken from both ends.
///
/// After an error the iterator has ended.
#[derive(Debug)]
pub struct Range<'t, M> {
    tree: &'t BPlusTree<M>,
    front: Cursor<'t, M>,
    back: Cursor<'t, M>,
    /// Both cursors have met.
    ended: bool,
}

/// A place between two records.
#[derive(Debug)]
struct Cursor<'t, M> {
    /// For each level above the leaf, the block and the child that leads down.
    branches: Vec<(Block<'t, M>, usize)>,
    leaf: Block<'t, M>,
    /// How many records of the leaf are before the cursor.
    index: usize,
}

impl<'t, M: Memory> Range<'t, M> {
    pub(super) fn new(
        tree: &'t BPlusTree<M>,
        start: Bound<&[u8]>,
        end: Bound<&[u8]>,
    ) -> Result<Self, M::Error> {
        let front = match start {
            Bound::Included(key) => Cursor::at(tree, key, false)?,
            Bound::Excluded(key) => Cursor::at(tree, key, true)?,
            Bound::Unbounded => Cursor::first(tree)?,
        };
        let back = match end {
            Bound::Included(key) => Cursor::at(tree, key, true)?,
            Bound::Excluded(key) => Cursor::at(tree, key, false)?,
            Bound::Unbounded => Cursor::last(tree)?,
        };
        let ended = front.order() >= back.order();
        Ok(Self {
            tree,
            front,
            back,
            ended,
        })
    }

    fn step(&mut self, forward: bool) -> Result<Option<Record<'t>>, M::Error> {
        if self.ended {
            return Ok(None);
        }
        let cell = if forward {
            self.front.next(self.tree)?
        } else {
            self.back.previous(self.tree)?
        };
        let Some(cell) = cell else {
            self.ended = true;
            return Ok(None);
        };
        // The cursors can pass each other only within a leaf: each enters the other's before it gets beyond it.
        if self.front.leaf.at() == self.back.leaf.at() {
            self.ended = self.front.index >= self.back.index;
            if self.front.index > self.back.index {
                return Ok(None);
            }
        }
        Ok(Some((cell.key, value::load(&self.tree.memory, cell)?)))
    }
}

impl<'t, M: Memory> Cursor<'t, M> {
    /// Before the first record whose key is not below `key`, or not at or below it if `behind`.
    fn at(tree: &'t BPlusTree<M>, key: &[u8], behind: bool) -> Result<Self, M::Error> {
        let Found {
            path,
            leaf,
            index,
            found,
        } = tree.find(key)?;
        let mut branches = Vec::with_capacity(path.height - 1);
        for depth in 0..path.height - 1 {
            let (at, child) = path.step(depth);
            branches.push((tree.block(at, path.height - 1 - depth)?, child));
        }
        Ok(Self {
            branches,
            leaf,
            index: index + usize::from(found && behind),
        })
    }

    fn first(tree: &'t BPlusTree<M>) -> Result<Self, M::Error> {
        let root = tree.root()?;
        let leaf = tree.block(root.block, root.height - 1)?;
        Self::descend(tree, Vec::new(), leaf, false)
    }

    fn last(tree: &'t BPlusTree<M>) -> Result<Self, M::Error> {
        let root = tree.root()?;
        let leaf = tree.block(root.block, root.height - 1)?;
        Self::descend(tree, Vec::new(), leaf, true)
    }

    /// Goes down to the first or the last record below a block.
    fn descend(
        tree: &'t BPlusTree<M>,
        mut branches: Vec<(Block<'t, M>, usize)>,
        mut block: Block<'t, M>,
        last: bool,
    ) -> Result<Self, M::Error> {
        while block.level() > 0 {
            let child = if last { block.count() } else { 0 };
            let level = block.level() - 1;
            branches.push((block, child));
            block = tree.block(block.child(child)?, level)?;
        }
        Ok(Self {
            branches,
            leaf: block,
            index: if last { block.count() } else { 0 },
        })
    }

    fn next(&mut self, tree: &'t BPlusTree<M>) -> Result<Option<Cell<'t>>, M::Error> {
        if self.index == self.leaf.count() && !self.turn(tree, true)? {
            return Ok(None);
        }
        self.index += 1;
        self.leaf.cell(self.index - 1).map(Some)
    }

    fn previous(&mut self, tree: &'t BPlusTree<M>) -> Result<Option<Cell<'t>>, M::Error> {
        if self.index == 0 && !self.turn(tree, false)? {
            return Ok(None);
        }
        self.index -= 1;
        self.leaf.cell(self.index).map(Some)
    }

    /// Goes to the next leaf or the one before, which must hold higher or lower keys: so no walk through a damaged tree is endless.
    fn turn(&mut self, tree: &'t BPlusTree<M>, forward: bool) -> Result<bool, M::Error> {
        let edge = match self.leaf.count() {
            0 => None,
            count => Some(self.leaf.key(if forward { count - 1 } else { 0 })?),
        };
        while let Some((branch, child)) = self.branches.pop() {
            let next = match forward {
                true => Some(child + 1).filter(|next| *next <= branch.count()),
                false => child.checked_sub(1),
            };
            let Some(next) = next else { continue };
            if branch.level() == 1 {
                ask_ahead(tree, &branch, next, forward)?;
            }
            let below = tree.block(branch.child(next)?, branch.level() - 1)?;
            let mut branches = std::mem::take(&mut self.branches);
            branches.push((branch, next));
            *self = Self::descend(tree, branches, below, !forward)?;
            let count = self.leaf.count();
            if count == 0 {
                return Err(self.leaf.damaged("an empty leaf"));
            }
            let key = self.leaf.key(if forward { 0 } else { count - 1 })?;
            let turned = edge.is_none_or(|edge| if forward { edge < key } else { key < edge });
            if !turned {
                return Err(self.leaf.damaged("keys are out of order"));
            }
            return Ok(true);
        }
        Ok(false)
    }

    /// Where the cursor is: comparable between cursors of one tree.
    fn order(&self) -> [usize; HEIGHT_MAX] {
        let mut order = [0; HEIGHT_MAX];
        for (to, (_, child)) in order.iter_mut().zip(&self.branches) {
            *to = *child;
        }
        if let Some(to) = order.get_mut(self.branches.len()) {
            *to = self.index;
        }
        order
    }
}

/// Asks for the leaves that the walk will reach soon.
fn ask_ahead<M: Memory>(
    tree: &BPlusTree<M>,
    branch: &Block<'_, M>,
    next: usize,
    forward: bool,
) -> Result<(), M::Error> {
    let ahead = (AHEAD_BYTES / tree.block_bytes).max(1);
    // The first leaf below a branch asks for all of them, every further one for one more.
    let first = if forward {
        next == 1
    } else {
        next + 1 == branch.count()
    };
    let ask = |distance: usize| -> Result<(), M::Error> {
        let child = match forward {
            true => Some(next + distance).filter(|child| *child <= branch.count()),
            false => next.checked_sub(distance),
        };
        if let Some(child) = child {
            let at = branch.child(child)?;
            tree.memory.prefetch(at, tree.block_bytes as u64);
        }
        Ok(())
    };
    if first {
        for distance in 0..ahead {
            ask(distance)?;
        }
    }
    ask(ahead)
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
