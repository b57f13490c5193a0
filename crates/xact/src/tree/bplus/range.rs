//! How a walk finds its way from leaf to leaf.

use super::{BPlusTree, Found};
use crate::block::Block;
use crate::memory::{Memory, PAGE_BYTES};
use crate::tree::range::{self, Ahead, Cursor, Edge};

/// For each level above the leaf, the branch and which of its children leads down.
#[derive(Debug)]
pub(crate) struct Way<'t, M> {
    tree: &'t BPlusTree<M>,
    branches: Vec<(Block<'t, M>, usize)>,
    ahead: Ahead,
}

impl<M: Memory> BPlusTree<M> {
    /// The place of an edge.
    pub(super) fn cursor(&self, edge: Edge<'_>) -> Result<Cursor<'_, M>, M::Error> {
        let mut way = Way {
            tree: self,
            branches: Vec::new(),
            ahead: Ahead::new(self.block_bytes),
        };
        let (key, behind) = match edge {
            Edge::Before(key) => (key, false),
            Edge::Behind(key) => (key, true),
            Edge::First | Edge::Last => {
                let root = self.root()?;
                let root = self.block(root.block, root.height - 1)?;
                let last = matches!(edge, Edge::Last);
                let block = way.descend(root, last)?;
                if !last && self.block_bytes > PAGE_BYTES {
                    self.memory.prefetch(block.at(), self.block_bytes as u64);
                }
                return Ok(Cursor {
                    block,
                    index: if last { block.count() } else { 0 },
                    way: range::Way::BPlus(way),
                });
            }
        };
        let Found {
            path,
            leaf,
            index,
            found,
        } = self.find(key)?;
        for depth in 0..path.height - 1 {
            let (at, child) = path.step(depth);
            let branch = self.block(at, path.height - 1 - depth)?;
            way.branches.push((branch, child));
        }
        Ok(Cursor {
            block: leaf,
            index: index + usize::from(found && behind),
            way: range::Way::BPlus(way),
        })
    }
}

impl<'t, M: Memory> Way<'t, M> {
    /// Goes down to the first or the last leaf below a block.
    fn descend(&mut self, mut block: Block<'t, M>, last: bool) -> Result<Block<'t, M>, M::Error> {
        while block.level() > 0 {
            let child = if last { block.count() } else { 0 };
            let level = block.level() - 1;
            self.branches.push((block, child));
            block = self.tree.block(block.child(child)?, level)?;
        }
        Ok(block)
    }

    /// Goes to the next leaf or the one before, which must hold higher or lower keys: so no walk through a damaged tree
    /// is endless.
    pub(crate) fn turn(
        &mut self,
        leaf: &Block<'t, M>,
        forward: bool,
    ) -> Result<Option<Block<'t, M>>, M::Error> {
        let edge = match leaf.count() {
            0 => None,
            count => Some(leaf.key(if forward { count - 1 } else { 0 })?),
        };
        while let Some((branch, child)) = self.branches.pop() {
            let next = match forward {
                true => Some(child + 1).filter(|next| *next <= branch.count()),
                false => child.checked_sub(1),
            };
            let Some(next) = next else { continue };
            let below = self.tree.block(branch.child(next)?, branch.level() - 1)?;
            self.branches.push((branch, next));
            if below.level() > 0 {
                self.ahead.forget();
            }
            let leaf = self.descend(below, !forward)?;
            self.ask_ahead(forward)?;
            if leaf.count() == 0 {
                return Err(leaf.damaged("an empty leaf"));
            }
            let key = leaf.key(if forward { 0 } else { leaf.count() - 1 })?;
            let turned = edge.is_none_or(|edge| if forward { edge < key } else { key < edge });
            if !turned {
                return Err(leaf.damaged("keys are out of order"));
            }
            return Ok(Some(leaf));
        }
        Ok(None)
    }

    /// Asks for the leaves below the same branch that the walk will reach soon.
    fn ask_ahead(&mut self, forward: bool) -> Result<(), M::Error> {
        let Some((branch, child)) = self.branches.last() else {
            return Ok(());
        };
        let left = if forward {
            branch.count() - child
        } else {
            *child
        };
        for distance in self.ahead.turn(left as u64) {
            let distance = usize::try_from(distance).unwrap_or(left) + 1;
            let child = if forward {
                child + distance
            } else {
                child - distance
            };
            let at = branch.child(child)?;
            self.tree.memory.prefetch(at, self.tree.block_bytes as u64);
        }
        Ok(())
    }

    /// Which children lead to the leaf: comparable between the ways of one tree.
    pub(crate) fn turns(&self) -> Vec<usize> {
        self.branches.iter().map(|(_, child)| *child).collect()
    }
}
