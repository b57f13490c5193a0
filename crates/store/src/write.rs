//! Write transactions.

use crate::commit::Ticket;
use crate::error::Result;
use crate::page::CommitNo;
use crate::snapshot::Tree;
use crate::tree::TreeKind;

/// A tree within one write transaction; given by [`WriteTxn::tree`] and [`WriteTxn::create_tree`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct TreeId(pub(crate) u32);

/// A point of a write transaction to return to. Savepoints nest.
#[derive(Debug)]
pub struct Savepoint(pub(crate) u64);

/// The one write transaction of an environment. It sees its own changes; nobody else does before it is committed and
/// durable. It may be moved to another thread. Dropped without [`WriteTxn::commit`], it leaves no trace.
///
/// After an operation failed with anything but a refusal of its arguments (key or value too long, unknown tree), the
/// transaction may hold half of that operation: roll back to a savepoint or drop it.
/// Committing it is refused with [`Error::TxnFailed`](crate::Error::TxnFailed).
#[derive(Debug)]
pub struct WriteTxn {}

impl WriteTxn {
    /// The number this transaction's commit will have.
    pub fn commit_no(&self) -> CommitNo {
        todo!()
    }

    /// The tree of this name, if there is one. The answer stays valid for this transaction.
    pub fn tree(&mut self, name: &str) -> Result<Option<TreeId>> {
        let _ = name;
        todo!()
    }

    /// Creates an empty tree; [`Error::TreeExists`](crate::Error::TreeExists) if there is one of this name.
    /// A name has 1 to [`TREE_NAME_BYTES_MAX`] bytes.
    pub fn create_tree(&mut self, name: &str, kind: TreeKind) -> Result<TreeId> {
        let _ = (name, kind);
        todo!()
    }

    /// Deletes a tree and all in it; whether there was one. Its [`TreeId`] may not be used any more.
    pub fn drop_tree(&mut self, name: &str) -> Result<bool> {
        let _ = name;
        todo!()
    }

    /// The value of `key`, this transaction's own changes included.
    pub fn get(&self, tree: TreeId, key: &[u8]) -> Result<Option<&[u8]>> {
        let _ = (tree, key);
        todo!()
    }

    /// Stores a record, in place of the one with the same key if there is one; whether there was none.
    pub fn put(&mut self, tree: TreeId, key: &[u8], value: &[u8]) -> Result<bool> {
        let _ = (tree, key, value);
        todo!()
    }

    /// Stores a record unless there is one with the same key; whether it was stored.
    pub fn insert(&mut self, tree: TreeId, key: &[u8], value: &[u8]) -> Result<bool> {
        let _ = (tree, key, value);
        todo!()
    }

    /// Deletes a record; whether there was one.
    pub fn delete(&mut self, tree: TreeId, key: &[u8]) -> Result<bool> {
        let _ = (tree, key);
        todo!()
    }

    /// The tree as it is now, own changes included, to be read like a snapshot's.
    pub fn view(&self, tree: TreeId) -> Result<Tree<'_>> {
        let _ = tree;
        todo!()
    }

    /// Marks the present state, to return to with [`WriteTxn::rollback_to`]. Costs nothing by itself; afterwards each
    /// page is copied when it is changed for the first time.
    pub fn savepoint(&mut self) -> Savepoint {
        todo!()
    }

    /// Undoes everything since the savepoint, later savepoints included; it may be returned to again.
    /// Trees created since are gone, and so are their [`TreeId`]s.
    ///
    /// Panics if the savepoint has been released or rolled back over, or belongs to another transaction.
    pub fn rollback_to(&mut self, savepoint: &Savepoint) {
        let _ = savepoint;
        todo!()
    }

    /// Forgets a savepoint and all later ones; the changes since become part of what is around it.
    pub fn release(&mut self, savepoint: Savepoint) {
        let _ = savepoint;
        todo!()
    }

    /// Applies and logs everything, and lets the next write transaction begin. The commit is neither durable nor
    /// visible before [`Ticket::wait`] has returned.
    pub fn commit(self) -> Result<Ticket> {
        todo!()
    }
}

/// The longest name of a tree.
pub const TREE_NAME_BYTES_MAX: usize = 255;
