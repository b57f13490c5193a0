//! Trees built from sorted input, bottom-up into full pages.

use crate::error::Result;
use crate::page::AppendPages;
use crate::tree::{TreeKind, TreeRecord};

/// Builds one tree from records in ascending order of their keys. Its pages are full and written one after the other.
///
/// Memory: one page for each level. Several builders may run on the same pages in turn.
pub struct TreeBuilder {
    tree: TreeRecord,
}

impl TreeBuilder {
    /// A builder of an empty tree.
    pub fn new(kind: TreeKind) -> Self {
        Self {
            tree: TreeRecord::empty(kind),
        }
    }

    /// Appends a record, whose key must be greater than its predecessor's.
    pub fn push<P: AppendPages + ?Sized>(
        &mut self,
        pages: &mut P,
        key: &[u8],
        value: &[u8],
    ) -> Result<()> {
        let _ = (&self.tree, pages, key, value);
        todo!()
    }

    /// Writes what is left and returns the tree's record.
    pub fn finish<P: AppendPages + ?Sized>(self, pages: &mut P) -> Result<TreeRecord> {
        let _ = pages;
        todo!()
    }
}
