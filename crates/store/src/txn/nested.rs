//! Savepoints, and nested transactions made of them.

use std::fmt;
use std::ops::{Deref, DerefMut};

use super::{TxnNo, WriteTxn};
use crate::txn::trees::State;

/// A point of a write transaction to return to. Savepoints nest to any depth.
#[derive(Debug)]
#[must_use = "nothing else leads back to a savepoint"]
pub struct Savepoint {
    txn: TxnNo,
    number: u64,
}

/// The state of a transaction at a savepoint.
pub(super) struct Mark {
    number: u64,
    undo: usize,
    trees: Vec<State>,
    failed: bool,
}

impl WriteTxn {
    /// Begins a nested transaction. While it lives the outer one cannot be used; it may have children of its own.
    ///
    /// ```
    /// # fn main() -> sapwood_store::Result<()> {
    /// # use sapwood_store::{Env, Options, TreeKind};
    /// # let env = Env::in_memory(&Options::new())?;
    /// let mut txn = env.write()?;
    /// let tree = txn.create_tree("numbers", TreeKind::COMPACT)?;
    /// let mut child = txn.child();
    /// child.put(tree, b"one", b"1")?;
    /// child.commit();
    /// let mut child = txn.child();
    /// child.put(tree, b"two", b"2")?;
    /// drop(child);
    /// assert!(txn.get(tree, b"one")?.is_some());
    /// assert!(txn.get(tree, b"two")?.is_none());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// ```compile_fail
    /// # use sapwood_store::{Env, Options, TreeKind};
    /// # let env = Env::in_memory(&Options::new()).unwrap();
    /// let mut txn = env.write().unwrap();
    /// let tree = txn.create_tree("numbers", TreeKind::COMPACT).unwrap();
    /// let mut child = txn.child();
    /// txn.put(tree, b"one", b"1").unwrap(); // The outer transaction waits for its child.
    /// child.commit();
    /// ```
    pub fn child(&mut self) -> ChildTxn<'_> {
        let savepoint = self.savepoint();
        ChildTxn {
            parent: self,
            savepoint: Some(savepoint),
        }
    }

    /// Marks the present state, to return to with [`WriteTxn::rollback_to`]. Costs nothing by itself; afterwards each
    /// page is copied when it is changed for the first time.
    ///
    /// ```
    /// # fn main() -> sapwood_store::Result<()> {
    /// # use sapwood_store::{Env, Options, TreeKind};
    /// # let env = Env::in_memory(&Options::new())?;
    /// let mut txn = env.write()?;
    /// let stock = txn.create_tree("stock", TreeKind::COMPACT)?;
    /// txn.put(stock, b"apples", b"3")?;
    /// let before = txn.savepoint();
    /// txn.delete(stock, b"apples")?;
    /// txn.rollback_to(&before);
    /// assert!(txn.get(stock, b"apples")?.is_some());
    /// // It can be returned to again, until it is released.
    /// txn.release(before);
    /// # Ok(())
    /// # }
    /// ```
    pub fn savepoint(&mut self) -> Savepoint {
        self.savepoints_so_far += 1;
        let number = self.savepoints_so_far;
        let undo = self.pages_mut().begin_savepoint(number);
        let mark = Mark {
            number,
            undo,
            trees: self.tree_states(),
            failed: self.failed,
        };
        self.savepoints.push(mark);
        let txn = self.number;
        Savepoint { txn, number }
    }

    /// Undoes everything since the savepoint, later savepoints included; it may be returned to again. Trees created
    /// since are gone, and so are their [`TreeId`](crate::TreeId)s. A transaction that had failed before the savepoint
    /// remains failed.
    ///
    /// Panics if the savepoint has been released or rolled back over, or belongs to another transaction.
    pub fn rollback_to(&mut self, savepoint: &Savepoint) {
        let at = self.index_of(savepoint);
        self.roll_back(at);
    }

    /// Forgets a savepoint and all later ones; the changes since become part of what is around it.
    ///
    /// Panics as [`WriteTxn::rollback_to`] does.
    pub fn release(&mut self, savepoint: Savepoint) {
        let at = self.index_of(&savepoint);
        self.forget(at);
    }

    fn roll_back(&mut self, at: usize) {
        self.savepoints.truncate(at + 1);
        if self.env().inner().check_usable().is_err() {
            return;
        }
        let Some(mark) = self.savepoints.pop() else {
            return;
        };
        let pages = self.pages_mut();
        let undone = pages.undo_to(mark.undo);
        pages.end_savepoint(mark.number);
        self.failed = mark.failed || undone.is_err();
        self.restore_trees(&mark.trees);
        self.savepoints.push(mark);
    }

    fn forget(&mut self, at: usize) {
        self.savepoints.truncate(at);
        let around = self.savepoints.last().map_or(0, |mark| mark.number);
        self.pages_mut().end_savepoint(around);
    }

    fn find(&self, savepoint: &Savepoint) -> Option<usize> {
        let mut marks = self.savepoints.iter();
        let at = marks.position(|mark| mark.number == savepoint.number);
        at.filter(|_| savepoint.txn == self.number)
    }

    fn index_of(&self, savepoint: &Savepoint) -> usize {
        match self.find(savepoint) {
            Some(at) => at,
            None => panic!("this savepoint is not one of the transaction's any more"),
        }
    }
}

/// A nested write transaction, which is used like the one around it. Dropped without [`ChildTxn::commit`] it leaves no
/// trace.
#[must_use = "a nested transaction that is dropped without being committed changes nothing"]
pub struct ChildTxn<'t> {
    parent: &'t mut WriteTxn,
    /// Until it is committed.
    savepoint: Option<Savepoint>,
}

impl ChildTxn<'_> {
    /// Makes its changes part of the transaction around it.
    pub fn commit(mut self) {
        if let Some(at) = self.mark() {
            self.parent.forget(at);
        }
        self.savepoint = None;
    }

    /// Where its savepoint is among those of the transaction around it.
    fn mark(&self) -> Option<usize> {
        self.parent.find(self.savepoint.as_ref()?)
    }
}

impl Deref for ChildTxn<'_> {
    type Target = WriteTxn;

    fn deref(&self) -> &WriteTxn {
        self.parent
    }
}

impl DerefMut for ChildTxn<'_> {
    fn deref_mut(&mut self) -> &mut WriteTxn {
        self.parent
    }
}

impl Drop for ChildTxn<'_> {
    fn drop(&mut self) {
        if let Some(at) = self.mark() {
            self.parent.roll_back(at);
            self.parent.forget(at);
        }
    }
}

impl fmt::Debug for ChildTxn<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ChildTxn").field(&self.parent).finish()
    }
}
