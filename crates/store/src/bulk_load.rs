//! Bulk loads: sorted input into full pages, outside of the log.

use std::fmt;

use crate::bulk::TreeBuilder;
use crate::error::{Error, Result};
use crate::page::CommitNo;
use crate::tree::TreeKind;
use crate::write::{TreeId, WriteTxn};

/// Several trees being built from sorted input, to become visible with one commit.
#[derive(Debug)]
pub struct BulkLoad {
    txn: WriteTxn,
    failed: bool,
}

impl BulkLoad {
    pub(crate) fn new(txn: WriteTxn) -> Self {
        Self { txn, failed: false }
    }

    /// Begins the tree `name`; [`Error::TreeExists`](crate::Error::TreeExists) if there is one already. One tree is
    /// built at a time.
    pub fn tree(&mut self, name: impl AsRef<[u8]>, kind: TreeKind) -> Result<BulkTree<'_>> {
        let name = name.as_ref();
        if self.txn.tree(name)?.is_some() {
            return Err(Error::TreeExists(String::from_utf8_lossy(name).into()));
        }
        Ok(BulkTree {
            name: name.into(),
            kind,
            builder: Some(TreeBuilder::new(kind)),
            load: self,
        })
    }

    /// Syncs what was built and commits it. Durable and visible on return.
    pub fn commit(self) -> Result<CommitNo> {
        if self.failed {
            return Err(Error::TxnFailed);
        }
        self.txn.commit()?.wait()
    }
}

/// A tree being built. If it is dropped without [`BulkTree::finish`], the load cannot be committed.
pub struct BulkTree<'b> {
    name: Vec<u8>,
    kind: TreeKind,
    /// `None` after a failure.
    builder: Option<TreeBuilder>,
    load: &'b mut BulkLoad,
}

impl BulkTree<'_> {
    /// Adds a record, whose key must be greater than that of the record before it
    /// ([`Error::NotSorted`](crate::Error::NotSorted)).
    ///
    /// After any error the load cannot be committed.
    pub fn push(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        let builder = self.builder.as_mut().ok_or(Error::TxnFailed)?;
        let pushed = builder.push(self.load.txn.own_mut(), key, value);
        self.load.failed |= pushed.is_err();
        pushed
    }

    /// Completes the tree; the number of its records.
    pub fn finish(mut self) -> Result<u64> {
        let builder = self.builder.take().ok_or(Error::TxnFailed)?;
        let finished = builder.finish(self.load.txn.own_mut());
        self.load.failed |= finished.is_err();
        let record = finished?;
        let id: TreeId = self.load.txn.create_tree(&self.name, self.kind)?;
        self.load.txn.set_record(id, record);
        Ok(record.records)
    }
}

impl Drop for BulkTree<'_> {
    fn drop(&mut self) {
        // Nothing would refer to the pages of a tree that was not finished.
        self.load.failed |= self.builder.is_some();
    }
}

impl fmt::Debug for BulkTree<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BulkTree")
            .field("name", &String::from_utf8_lossy(&self.name))
            .finish_non_exhaustive()
    }
}
