//! Bulk loads: sorted input into full pages, outside of the log.

use crate::error::Result;
use crate::page::CommitNo;
use crate::tree::TreeKind;

/// Several trees being built from sorted input, to become visible with one commit.
#[derive(Debug)]
pub struct BulkLoad {}

impl BulkLoad {
    /// Begins the tree `name`; [`Error::TreeExists`](crate::Error::TreeExists) if there is one already. One tree is
    /// built at a time.
    pub fn tree(&mut self, name: &str, kind: TreeKind) -> Result<BulkTree<'_>> {
        let _ = (name, kind);
        todo!()
    }

    /// Syncs what was built and commits it. Durable and visible on return.
    pub fn commit(self) -> Result<CommitNo> {
        todo!()
    }
}

/// A tree being built; dropped without [`BulkTree::finish`] it does not come into being.
#[derive(Debug)]
pub struct BulkTree<'b> {
    _load: std::marker::PhantomData<&'b mut BulkLoad>,
}

impl BulkTree<'_> {
    /// Adds a record, whose key must be greater than that of the record before it
    /// ([`Error::NotSorted`](crate::Error::NotSorted)).
    pub fn push(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        let _ = (key, value);
        todo!()
    }

    /// Completes the tree; the number of its records.
    pub fn finish(self) -> Result<u64> {
        todo!()
    }
}
