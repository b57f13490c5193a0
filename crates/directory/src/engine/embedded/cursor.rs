//! Scans and posting lists, read in place from the store's trees.

use std::ops::Bound;

use sapwood_store as store;
use sapwood_store::page::ReadPages;
use sapwood_store::tree::{Cursor as StoreCursor, View};

use crate::engine::postings::{BlockCursor, BlockTree, List};
use crate::engine::{Cursor, Direction, EntryId, Index, Postings, Range, Result};

/// A scan of a tree of the store.
pub struct EmbeddedCursor<'t> {
    /// `None` when there is nothing to scan.
    cursor: Option<store::TreeCursor<'t>>,
    is_over: bool,
    direction: Direction,
    /// The far end.
    end: Bound<Vec<u8>>,
    /// Whether the cursor stands on a record that was not lent yet.
    ahead: bool,
}

impl<'t> EmbeddedCursor<'t> {
    pub(super) fn new(
        tree: Option<store::Tree<'t>>,
        range: Range<'_>,
        direction: Direction,
    ) -> Result<EmbeddedCursor<'t>> {
        let (near, end) = match direction {
            Direction::Forward => (range.from, range.to),
            Direction::Backward => (range.to, range.from),
        };
        let end = end.map(<[u8]>::to_vec);
        let mut scan = EmbeddedCursor {
            cursor: None,
            is_over: false,
            direction,
            end,
            ahead: true,
        };
        let Some(tree) = tree else { return Ok(scan) };
        let mut cursor = tree.cursor();
        let mut standing = match (near, direction) {
            (Bound::Unbounded, Direction::Forward) => cursor.first()?,
            (Bound::Unbounded, Direction::Backward) => cursor.last()?,
            (Bound::Included(key) | Bound::Excluded(key), Direction::Forward) => {
                cursor.seek(key)?
            }
            (Bound::Included(key) | Bound::Excluded(key), Direction::Backward) => {
                cursor.seek_back(key)?
            }
        };
        if let Bound::Excluded(key) = near
            && standing
            && cursor.key()? == Some(key)
        {
            standing = match direction {
                Direction::Forward => cursor.next()?,
                Direction::Backward => cursor.prev()?,
            };
        }
        scan.cursor = standing.then_some(cursor);
        Ok(scan)
    }
}

impl Cursor for EmbeddedCursor<'_> {
    fn next(&mut self) -> Result<Option<(&[u8], &[u8])>> {
        let Some(cursor) = self.cursor.as_mut().filter(|_| !self.is_over) else {
            return Ok(None);
        };
        let standing = match (std::mem::take(&mut self.ahead), self.direction) {
            (true, _) => true,
            (false, Direction::Forward) => cursor.next()?,
            (false, Direction::Backward) => cursor.prev()?,
        };
        let record = if standing { cursor.record()? } else { None };
        let Some((key, value)) = record else {
            self.is_over = true;
            return Ok(None);
        };
        let within = match (&self.end, self.direction) {
            (Bound::Unbounded, _) => true,
            (Bound::Included(end), Direction::Forward) => key <= end.as_slice(),
            (Bound::Excluded(end), Direction::Forward) => key < end.as_slice(),
            (Bound::Included(end), Direction::Backward) => key >= end.as_slice(),
            (Bound::Excluded(end), Direction::Backward) => key > end.as_slice(),
        };
        if !within {
            self.is_over = true;
            return Ok(None);
        }
        Ok(Some((key, value)))
    }
}

/// A posting list of an index of the store.
pub struct EmbeddedPostings<'t> {
    list: List<'t, store::Tree<'t>>,
}

impl<'t> EmbeddedPostings<'t> {
    pub(super) fn new(
        index: Index,
        tree: Option<store::Tree<'t>>,
        key: &[u8],
    ) -> Result<EmbeddedPostings<'t>> {
        Ok(EmbeddedPostings {
            list: List::new(index, tree, key)?,
        })
    }
}

impl Postings for EmbeddedPostings<'_> {
    fn next(&mut self) -> Result<Option<EntryId>> {
        self.list.next()
    }

    fn seek(&mut self, id: EntryId) -> Result<Option<EntryId>> {
        self.list.seek(id)
    }
}

impl<'t, P: ReadPages + ?Sized> BlockTree<'t> for View<'t, P> {
    type Cursor = StoreCursor<'t, P>;

    fn cursor(&self) -> StoreCursor<'t, P> {
        View::cursor(self)
    }

    fn estimate(&self, from: Bound<&[u8]>, to: Bound<&[u8]>) -> Result<u64> {
        Ok(View::estimate(self, from, to)?)
    }
}

impl<'t, P: ReadPages + ?Sized> BlockCursor<'t> for StoreCursor<'t, P> {
    fn seek(&mut self, key: &[u8]) -> Result<bool> {
        Ok(StoreCursor::seek(self, key)?)
    }

    fn seek_back(&mut self, key: &[u8]) -> Result<bool> {
        Ok(StoreCursor::seek_back(self, key)?)
    }

    fn next(&mut self) -> Result<bool> {
        Ok(StoreCursor::next(self)?)
    }

    fn record(&mut self) -> Result<Option<(&[u8], &'t [u8])>> {
        Ok(StoreCursor::record(self)?)
    }
}
