//! What a snapshot and a transaction read alike.

use sapwood_store::Tree;

use super::{EmbeddedCursor, EmbeddedPostings};
use crate::engine::postings;
use crate::engine::{CommitNo, Direction, EntryId, Index, Range, Read, Result, Table};

/// Where the trees of tables and indexes are found.
pub(super) trait Trees {
    fn commit(&self) -> CommitNo;

    /// The tree of a table; none when it was never written.
    fn table(&self, table: Table) -> Result<Option<Tree<'_>>>;

    /// The tree of an index's blocks; none when it was not created.
    fn blocks(&self, index: Index) -> Result<Option<Tree<'_>>>;
}

impl<T: Trees> Read for T {
    type Value<'r>
        = &'r [u8]
    where
        T: 'r;
    type Cursor<'r>
        = EmbeddedCursor<'r>
    where
        T: 'r;
    type Postings<'r>
        = EmbeddedPostings<'r>
    where
        T: 'r;

    fn commit(&self) -> CommitNo {
        Trees::commit(self)
    }

    #[inline]
    fn get(&self, table: Table, key: &[u8]) -> Result<Option<&[u8]>> {
        match self.table(table)? {
            Some(tree) => Ok(tree.get(key)?),
            None => Ok(None),
        }
    }

    fn scan(
        &self,
        table: Table,
        range: Range<'_>,
        direction: Direction,
    ) -> Result<EmbeddedCursor<'_>> {
        EmbeddedCursor::new(self.table(table)?, range, direction)
    }

    fn estimate(&self, table: Table, range: Range<'_>) -> Result<u64> {
        match self.table(table)? {
            Some(tree) => Ok(tree.estimate(range.from, range.to)?),
            None => Ok(0),
        }
    }

    fn postings(&self, index: Index, key: &[u8]) -> Result<EmbeddedPostings<'_>> {
        EmbeddedPostings::new(index, self.blocks(index)?, key)
    }

    fn scan_index(
        &self,
        index: Index,
        range: Range<'_>,
        each: impl FnMut(&[u8], EntryId) -> bool,
    ) -> Result<()> {
        self.blocks(index)?
            .map_or(Ok(()), |tree| postings::scan(index, tree, range, each))
    }

    fn cardinality(&self, index: Index, key: &[u8], few: &mut Vec<EntryId>) -> Result<u64> {
        postings::cardinality(index, self.blocks(index)?, key, few)
    }

    fn has_index(&self, index: Index) -> Result<bool> {
        Ok(self.blocks(index)?.is_some())
    }
}
