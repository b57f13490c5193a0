//! Inserting and removing: splits upwards when a block is full, merges upwards when one is nearly empty.

use super::{BPlusTree, Found, HEIGHT_MAX, Path, Root};
use crate::block::{
    Block, BlockMut, CELL_HEADER_BYTES, Cell, HEADER_BYTES, Kind, Records, SLOT_BYTES, damaged,
    separator,
};
use crate::memory::{Fault, Memory};
use crate::value;

impl<M: Memory> BPlusTree<M> {
    /// Stores a value under a key, and tells whether the key is new.
    ///
    /// # Errors
    /// [`Fault::KeyTooLong`], [`Fault::ValueTooLong`], [`Fault::Damaged`], or what the memory says.
    /// After an error other than the first two the tree is fit for reading only if the memory undoes what was done.
    pub fn insert(&mut self, key: &[u8], value: &[u8]) -> Result<bool, M::Error> {
        let max = self.key_bytes_max();
        if key.len() > max {
            let bytes = key.len();
            return Err(Fault::KeyTooLong { bytes, max }.into());
        }
        value::bound(value)?;
        let Found {
            path,
            leaf,
            index,
            found,
        } = self.find(key)?;
        if found {
            let old = leaf.cell(index)?;
            if !old.outside && old.value.len() == value.len() {
                let at = leaf.at();
                self.block_mut(at)?.overwrite(index, value)?;
                return Ok(false);
            }
            self.remove_at(&path)?;
        }
        let outside = CELL_HEADER_BYTES + key.len() + value.len() > self.cell_bytes_max();
        let description = if outside {
            value::store(&mut self.memory, value)?
        } else {
            Default::default()
        };
        let cell = Cell {
            key,
            value: if outside { &description } else { value },
            outside,
        };
        self.put(&path, path.height - 1, cell)?;
        Ok(!found)
    }

    /// Removes a key with its value, and tells whether it was there.
    ///
    /// # Errors
    /// As for [`BPlusTree::insert`].
    pub fn remove(&mut self, key: &[u8]) -> Result<bool, M::Error> {
        let Found { path, found, .. } = self.find(key)?;
        if found {
            self.remove_at(&path)?;
            self.mend(&path)?;
        }
        Ok(found)
    }

    /// The largest cell: at least four of them fit into a block.
    fn cell_bytes_max(&self) -> usize {
        self.block_bytes / 4 - HEADER_BYTES
    }

    /// Bytes for records and their slots.
    fn capacity(&self) -> usize {
        self.block_bytes - HEADER_BYTES
    }

    /// Takes the record at the end of the path out of its leaf.
    fn remove_at(&mut self, path: &Path) -> Result<(), M::Error> {
        let (at, index) = path.step(path.height - 1);
        let cell = self.block(at, 0)?.cell(index)?;
        if cell.outside {
            let description = cell.value.to_vec();
            value::free(&mut self.memory, &description)?;
        }
        self.block_mut(at)?.remove(index)
    }

    /// Puts a cell where the path leads at this depth, and splits what is too full for it.
    fn put(&mut self, path: &Path, depth: usize, cell: Cell<'_>) -> Result<(), M::Error> {
        let (at, index) = path.step(depth);
        let mut block = self.block_mut(at)?;
        if block.fits(cell.bytes() + SLOT_BYTES) {
            return block.insert(index, cell);
        }
        let level = path.height - 1 - depth;
        let block = self.block(at, level)?;
        let mut records = Records::default();
        records.take(&block, 0..index)?;
        records.push(cell);
        records.take(&block, index..block.count())?;
        let cut = self.cut(&records, self.edge(path, depth)?);
        let right = self.memory.allocate(self.block_bytes as u64)?;
        let kind = if level == 0 { Kind::Leaf } else { Kind::Branch };
        let mut new = BlockMut::format(&mut self.memory, right, self.block_bytes, kind, level)?;
        let up = if level == 0 {
            new.fill(&records, cut..records.len(), None)?;
            separator(records.key(cut - 1), records.key(cut)).to_vec()
        } else {
            // The middle key of a branch goes up; its child becomes the first of the new block.
            let middle = records.cell(cut);
            let first: &[u8; 8] = middle
                .value
                .try_into()
                .map_err(|_| damaged(at, "a branch without a child"))?;
            new.set_first(u64::from_le_bytes(*first))?;
            new.fill(&records, cut + 1..records.len(), None)?;
            middle.key.to_vec()
        };
        // What stays on the left keeps its cells; the rest of them becomes a hole.
        let mut left = self.block_mut(at)?;
        if index < cut {
            left.truncate(cut - 1)?;
            left.insert(index, cell)?;
        } else {
            left.truncate(cut)?;
        }
        let right_child = right.to_le_bytes();
        let cell = Cell {
            key: &up,
            value: &right_child,
            outside: false,
        };
        if depth > 0 {
            return self.put(path, depth - 1, cell);
        }
        self.grow(at, path.height, cell)
    }

    /// Puts a root over two halves of the old one.
    fn grow(&mut self, left: u64, height: usize, right: Cell<'_>) -> Result<(), M::Error> {
        if height == HEIGHT_MAX {
            return Err(damaged(self.at, "the B+tree has an impossible height"));
        }
        let root = self.memory.allocate(self.block_bytes as u64)?;
        let mut block = BlockMut::format(
            &mut self.memory,
            root,
            self.block_bytes,
            Kind::Branch,
            height,
        )?;
        block.set_first(left)?;
        block.insert(0, right)?;
        self.set_root(Root {
            block: root,
            height: height + 1,
        })
    }

    /// Whether the path keeps to the first (-1) or the last (1) child of every block above `depth`.
    fn edge(&self, path: &Path, depth: usize) -> Result<i8, M::Error> {
        let (mut first, mut last) = (true, true);
        for above in 0..depth {
            let (at, index) = path.step(above);
            let block = self.block(at, path.height - 1 - above)?;
            first &= index == 0;
            last &= index == block.count();
        }
        let (at, index) = path.step(depth);
        let block = self.block(at, path.height - 1 - depth)?;
        first &= index == 0;
        last &= index == block.count();
        Ok(i8::from(last) - i8::from(first))
    }

    /// Where to split records that are too many for a block: in the middle by bytes, but at the very end or beginning
    /// when keys arrive in order there, so that blocks stay full.
    fn cut(&self, records: &Records, edge: i8) -> usize {
        let count = records.len();
        match edge {
            // A branch needs a key on either side of the one that goes up.
            1 => count - 2 + usize::from(count < 3),
            -1 => 1,
            _ => {
                let half = records.bytes_of(0..count) / 2;
                let mut sum = 0;
                for index in 0..count {
                    let bytes = records.bytes(index);
                    if sum + bytes / 2 >= half {
                        return index.clamp(1, count - 1);
                    }
                    sum += bytes;
                }
                count - 1
            }
        }
    }

    /// Joins the blocks along the path, from the leaf upwards, that have become too empty.
    fn mend(&mut self, path: &Path) -> Result<(), M::Error> {
        for depth in (1..path.height).rev() {
            let level = path.height - 1 - depth;
            let (at, _) = path.step(depth);
            let block = self.block(at, level)?;
            if block.used() >= self.capacity() / 3 {
                return Ok(());
            }
            let (parent, index) = path.step(depth - 1);
            let siblings = self.block(parent, level + 1)?.count();
            if level == 0 && block.count() == 0 {
                self.discard(at)?;
                if siblings == 0 {
                    // Nothing is left below the parent.
                    return self.uproot(path, depth - 1);
                }
                self.drop_child(parent, index)?;
            } else {
                let merged = index < siblings && self.merge(parent, index, level)?
                    || index > 0 && self.merge(parent, index - 1, level)?;
                if !merged {
                    return Ok(());
                }
            }
        }
        self.lower()
    }

    /// Removes a branch without children, and every branch above that has no other child.
    fn uproot(&mut self, path: &Path, depth: usize) -> Result<(), M::Error> {
        for depth in (0..=depth).rev() {
            let (at, _) = path.step(depth);
            self.discard(at)?;
            if depth > 0 {
                let (parent, index) = path.step(depth - 1);
                let level = path.height - depth;
                if self.block(parent, level)?.count() > 0 {
                    self.drop_child(parent, index)?;
                    return self.lower();
                }
            }
        }
        let block = self.memory.allocate(self.block_bytes as u64)?;
        BlockMut::format(&mut self.memory, block, self.block_bytes, Kind::Leaf, 0)?;
        self.set_root(Root { block, height: 1 })
    }

    /// Takes a child out of a branch that has others.
    fn drop_child(&mut self, parent: u64, index: usize) -> Result<(), M::Error> {
        if index > 0 {
            return self.block_mut(parent)?.remove(index - 1);
        }
        let next = Block::open(&self.memory, parent, self.block_bytes)?.child(1)?;
        let mut parent = self.block_mut(parent)?;
        parent.remove(0)?;
        parent.set_first(next)
    }

    /// Moves everything from child `index + 1` of a branch into child `index` if it leaves room to spare.
    fn merge(&mut self, parent: u64, index: usize, level: usize) -> Result<bool, M::Error> {
        let branch = self.block(parent, level + 1)?;
        let (left_at, right_at) = (branch.child(index)?, branch.child(index + 1)?);
        let (left, right) = (self.block(left_at, level)?, self.block(right_at, level)?);
        let between = branch.key(index)?;
        let middle = match level {
            0 => 0,
            _ => CELL_HEADER_BYTES + between.len() + 8 + SLOT_BYTES,
        };
        if left.used() + right.used() + middle > self.capacity() / 8 * 7 {
            return Ok(false);
        }
        let mut records = Records::default();
        records.take(&left, 0..left.count())?;
        if level > 0 {
            records.push(Cell {
                key: between,
                value: &right.first().to_le_bytes(),
                outside: false,
            });
        }
        records.take(&right, 0..right.count())?;
        self.block_mut(left_at)?
            .fill(&records, 0..records.len(), None)?;
        self.discard(right_at)?;
        self.block_mut(parent)?.remove(index)?;
        Ok(true)
    }

    /// Takes roots away that have one child only.
    fn lower(&mut self) -> Result<(), M::Error> {
        let root = self.root()?;
        let block = self.block(root.block, root.height - 1)?;
        if root.height == 1 || block.count() > 0 {
            return Ok(());
        }
        let first = block.first();
        self.discard(root.block)?;
        self.set_root(Root {
            block: first,
            height: root.height - 1,
        })?;
        self.lower()
    }

    fn discard(&mut self, at: u64) -> Result<(), M::Error> {
        self.block_mut(at)?.set_kind(Kind::Freed)?;
        self.memory.free(at, self.block_bytes as u64)
    }
}
