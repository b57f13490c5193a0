//! The records of a write transaction: read, stored, removed.

use std::ops::Bound;

use super::{TreeId, WriteTxn};
use crate::error::Result;
use crate::format::pages::WritePages;
use crate::format::pointer::Segment;
use crate::ids::PageNo;
use crate::tree;
use crate::tree::Reserved;

impl WriteTxn {
    /// The value of `key`, this transaction's own changes included; the first of its duplicates.
    pub fn get(&self, tree: TreeId, key: &[u8]) -> Result<Option<&[u8]>> {
        self.view(tree)?.get(key)
    }

    /// Stores a record, in place of the one with the same key if there is one; whether there was none.
    ///
    /// In a tree with duplicates, adds `value` to those of the key; whether it was not there.
    pub fn put(&mut self, tree: TreeId, key: &[u8], value: &[u8]) -> Result<bool> {
        self.change(tree, false, |tree| tree.put(key, value))
    }

    /// Stores a record unless there is one with the same key; whether it was stored.
    pub fn insert(&mut self, tree: TreeId, key: &[u8], value: &[u8]) -> Result<bool> {
        self.change(tree, false, |tree| tree.insert(key, value))
    }

    /// Stores a record behind all others, without searching for its place.
    /// [`Error::OutOfOrder`](crate::Error::OutOfOrder) if its key is not greater than the last one; then nothing
    /// changes. In a tree with duplicates the key may be the last one, if the value is greater than its last.
    pub fn append(&mut self, tree: TreeId, key: &[u8], value: &[u8]) -> Result<()> {
        self.change(tree, false, |tree| tree.append(key, value))
    }

    /// Adds a value behind the other values of its key. [`Error::OutOfOrder`](crate::Error::OutOfOrder) if it is not
    /// greater than the last one; then nothing changes.
    pub fn append_duplicate(&mut self, tree: TreeId, key: &[u8], value: &[u8]) -> Result<()> {
        self.change(tree, false, |tree| tree.append_duplicate(key, value))
    }

    /// Adds many values of the same length to a key; how many of them were not there.
    /// [`Error::ValueSize`](crate::Error::ValueSize) unless `values` is a whole number of values of `size` bytes.
    pub fn put_multiple(
        &mut self,
        tree: TreeId,
        key: &[u8],
        size: usize,
        values: &[u8],
    ) -> Result<usize> {
        self.change(tree, false, |tree| tree.put_multiple(key, size, values))
    }

    /// Stores a record whose value of `len` bytes the caller writes into the answer, in its final place. It is zero
    /// until then. Not for trees with duplicates, whose values are ordered:
    /// [`Error::Duplicates`](crate::Error::Duplicates).
    ///
    /// ```
    /// # fn main() -> sapwood_store::Result<()> {
    /// # use sapwood_store::{Env, Options, TreeKind};
    /// # let env = Env::in_memory(&Options::new())?;
    /// let mut txn = env.write()?;
    /// let tree = txn.create_tree("blocks", TreeKind::COMPACT)?;
    /// txn.reserve(tree, b"first", 5)?.copy_from_slice(b"hello");
    /// assert_eq!(txn.get(tree, b"first")?, Some(&b"hello"[..]));
    /// # Ok(())
    /// # }
    /// ```
    pub fn reserve(&mut self, tree: TreeId, key: &[u8], len: usize) -> Result<&mut [u8]> {
        let place = self.change(tree, false, |tree| tree.reserve(key, len))?;
        if let Reserved::Extent { first, .. } = place {
            self.reserved.push(first);
        }
        tree::reserved_mut(self.pages_mut(), place)
    }

    /// Deletes a record; whether there was one. In a tree with duplicates, deletes the key with all its values.
    pub fn delete(&mut self, tree: TreeId, key: &[u8]) -> Result<bool> {
        self.change(tree, true, |tree| tree.delete(key))
    }

    /// Deletes one value of a key; whether it was there. In a tree without duplicates, deletes the record if it has
    /// this value.
    pub fn delete_duplicate(&mut self, tree: TreeId, key: &[u8], value: &[u8]) -> Result<bool> {
        self.change(tree, true, |tree| tree.delete_duplicate(key, value))
    }

    /// Deletes all records between two bounds; how many there were. What lies between is cut off in branches, without a
    /// search for each record.
    ///
    /// ```
    /// # fn main() -> sapwood_store::Result<()> {
    /// # use std::ops::Bound;
    /// # use sapwood_store::{Env, Options, TreeKind};
    /// # let env = Env::in_memory(&Options::new())?;
    /// let mut txn = env.write()?;
    /// let days = txn.create_tree("days", TreeKind::COMPACT)?;
    /// for day in 0..366_u16 {
    ///     txn.put(days, &day.to_be_bytes(), b"")?;
    /// }
    /// let february = (Bound::Included(&31_u16.to_be_bytes()[..]), Bound::Excluded(&60_u16.to_be_bytes()[..]));
    /// assert_eq!(txn.delete_range(days, february.0, february.1)?, 29);
    /// # Ok(())
    /// # }
    /// ```
    pub fn delete_range(
        &mut self,
        tree: TreeId,
        from: Bound<&[u8]>,
        to: Bound<&[u8]>,
    ) -> Result<u64> {
        self.change(tree, true, |tree| tree.delete_range(from, to))
    }

    /// Deletes all records of a tree.
    pub fn clear_tree(&mut self, tree: TreeId) -> Result<()> {
        self.change(tree, true, |tree| tree.clear())
    }

    /// Writes the leaf of a tree with values out of line in which a key is, and the way to it, once more.
    pub(crate) fn move_leaf(&mut self, tree: TreeId, key: &[u8]) -> Result<()> {
        self.change(tree, false, |tree| tree.move_leaf(key))
    }

    /// Writes a value that stands in this segment once more, elsewhere.
    pub(crate) fn move_out_of(&mut self, tree: TreeId, segment: Segment, key: &[u8]) -> Result<()> {
        self.change(tree, false, |tree| tree.move_out_of(segment, key))
    }

    /// Gives reserved extents, which are filled by now, their checksums.
    pub(super) fn seal_reserved(&mut self) -> Result<()> {
        let reserved: Vec<PageNo> = std::mem::take(&mut self.reserved);
        for first in reserved {
            // It may have been freed again, or be another value's extent by now, which it does no harm to seal again.
            if let Some(pages) = self.pages().own_extent(first) {
                tree::seal_extent(self.pages_mut().extent_mut(first, pages)?);
            }
        }
        Ok(())
    }
}
