//! The trees of a write transaction, by name: looked up, created, renamed, dropped.

use super::{TxnNo, WriteTxn};
use crate::error::{Error, Result};
use crate::format::catalog::Catalog;
use crate::format::tree_record::{TreeKind, TreeRecord};
use crate::ids::CommitNo;
use crate::limits::TREE_NAME_BYTES_MAX;
use crate::sync::Arc;
use crate::tree;
use crate::tree::{Orders, TreeMut, View, Way};
use crate::txn::pages::TxnPages;
use crate::txn::snapshot::Tree;

/// A tree within one write transaction; given by [`WriteTxn::tree`] and [`WriteTxn::create_tree`]. Any other
/// transaction refuses it with [`Error::NoSuchTree`](crate::Error::NoSuchTree).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct TreeId {
    txn: TxnNo,
    at: u32,
}

/// A tree that the transaction has looked up or created.
pub(super) struct OpenTree {
    state: State,
    /// As it is in the catalog; `None` if it was created here.
    stored: Option<(Arc<[u8]>, TreeRecord)>,
    orders: Orders,
    /// None before the first change.
    way: Option<Box<Way>>,
    /// The transaction's count of changes after the last one to this tree.
    pub(super) changed: u64,
}

impl OpenTree {
    /// Whether the catalog has to say something else of it.
    fn is_changed(&self) -> bool {
        let state = &self.state;
        match &self.stored {
            Some((name, was)) => state.is_dropped || *name != state.name || *was != state.record,
            None => !state.is_dropped,
        }
    }

    /// The tree as it is now, in the transaction's pages.
    #[inline]
    pub(super) fn view<'t>(&self, pages: &'t TxnPages) -> Tree<'t> {
        View::with_orders(pages.view(), self.state.record, self.orders)
    }

    /// Whether the catalog has it under this name.
    fn is_stored_as(&self, name: &[u8]) -> bool {
        let stored = self.stored.as_ref();
        stored.is_some_and(|(stored, _)| **stored == *name)
    }
}

/// What a savepoint brings back of a tree.
#[derive(Clone)]
pub(super) struct State {
    name: Arc<[u8]>,
    record: TreeRecord,
    is_dropped: bool,
}

impl WriteTxn {
    /// The tree of this name, if there is one. The answer stays valid for this transaction, through renaming too.
    ///
    /// Comparators that were registered for the name are in force from now on.
    pub fn tree(&mut self, name: impl AsRef<[u8]>) -> Result<Option<TreeId>> {
        let name = name.as_ref();
        self.env().inner().check_usable()?;
        let known = (0..)
            .zip(&self.trees)
            .find(|(_, tree)| *tree.state.name == *name && !tree.state.is_dropped);
        if let Some((at, _)) = known {
            self.renew_orders(at);
            return Ok(Some(self.id(at)));
        }
        // What the catalog still has under this name has been dropped or renamed.
        if self.trees.iter().any(|tree| tree.is_stored_as(name)) {
            return Ok(None);
        }
        let known = self.pages().known_trees().get(self.head().commit, name);
        let (name, record) = match known {
            Some(known) => known.clone(),
            None => {
                let catalog = &self.head().roots.catalog;
                let Some(record) = catalog.get(self.pages().view(), name)? else {
                    return Ok(None);
                };
                (name.into(), record)
            }
        };
        self.open_tree(name.clone(), record, Some((name, record)))
            .map(Some)
    }

    /// Tells the next transaction of the trees as the commit left them.
    pub(crate) fn keep_trees(&mut self, commit: CommitNo) {
        let before = self.head().commit;
        let Self { trees, pages, .. } = self;
        if let Some(pages) = pages {
            let stored = trees.iter().filter_map(|tree| tree.stored.as_ref());
            let left = trees.iter().filter(|tree| !tree.state.is_dropped);
            let left = left.map(|tree| (tree.state.name.clone(), tree.state.record));
            let known = pages.known_trees_mut();
            known.follow(before, commit, stored.map(|(name, _)| name), left);
        }
    }

    /// Puts a tree that was built apart into the transaction.
    pub(crate) fn add_built_tree(&mut self, name: &[u8], record: TreeRecord) -> Result<()> {
        self.check_new_name(name)?;
        self.open_tree(name.into(), record, None).map(drop)
    }

    /// Creates an empty tree; [`Error::TreeExists`](crate::Error::TreeExists) if there is one of this name,
    /// [`Error::TreeKind`](crate::Error::TreeKind) if the kind is not possible.
    /// A name has 1 to [`TREE_NAME_BYTES_MAX`] bytes, of any value.
    pub fn create_tree(&mut self, name: impl AsRef<[u8]>, kind: TreeKind) -> Result<TreeId> {
        let name = name.as_ref();
        self.check_new_name(name)?;
        if !kind.is_possible() {
            return Err(Error::TreeKind);
        }
        let mut record = TreeRecord::empty(kind);
        if kind.out_of_line {
            record.heap = self.pages_mut().new_heap()?;
        }
        self.open_tree(name.into(), record, None)
    }

    /// Gives a tree another name, which must not be taken. Its [`TreeId`] stays valid. Answers whether there was one.
    ///
    /// Comparators are registered by name: the one that has one for the old name registers it for the new one.
    ///
    /// ```
    /// # fn main() -> sapwood_store::Result<()> {
    /// # use sapwood_store::{Env, Options, TreeKind};
    /// # let env = Env::in_memory(&Options::new())?;
    /// let mut txn = env.write()?;
    /// let draft = txn.create_tree("draft", TreeKind::COMPACT)?;
    /// txn.create_tree("scratch", TreeKind::COMPACT)?;
    /// assert!(txn.rename_tree("draft", "final")?);
    /// assert!(txn.drop_tree("scratch")?);
    /// txn.put(draft, b"still", b"valid")?;
    /// assert_eq!(txn.tree_names()?, [b"final"]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn rename_tree(&mut self, from: impl AsRef<[u8]>, to: impl AsRef<[u8]>) -> Result<bool> {
        let Some(id) = self.tree(from)? else {
            return Ok(false);
        };
        self.check_new_name(to.as_ref())?;
        if let Some(tree) = self.trees.get_mut(id.at as usize) {
            tree.state.name = to.as_ref().into();
        }
        Ok(true)
    }

    /// Deletes a tree and all in it; whether there was one. Its [`TreeId`] may not be used any more.
    pub fn drop_tree(&mut self, name: impl AsRef<[u8]>) -> Result<bool> {
        let Some(id) = self.tree(name)? else {
            return Ok(false);
        };
        self.clear_tree(id)?;
        if let Some(tree) = self.trees.get_mut(id.at as usize) {
            tree.state.is_dropped = true;
        }
        Ok(true)
    }

    /// The names of all trees as they are now, ascending bytewise.
    pub fn tree_names(&self) -> Result<Vec<Vec<u8>>> {
        let catalog = &self.head().roots.catalog;
        let mut names = catalog.view(self.pages().view()).keys()?;
        names.retain(|name| !self.trees.iter().any(|tree| tree.is_stored_as(name)));
        let open = self.trees.iter().filter(|tree| !tree.state.is_dropped);
        names.extend(open.map(|tree| tree.state.name.to_vec()));
        names.sort_unstable();
        Ok(names)
    }

    /// How many trees there are now.
    pub fn tree_count(&self) -> u64 {
        let stored = self.head().roots.catalog.tree().records;
        let is_new = |tree: &&OpenTree| tree.stored.is_none() && !tree.state.is_dropped;
        let is_gone = |tree: &&OpenTree| tree.stored.is_some() && tree.state.is_dropped;
        let new = self.trees.iter().filter(is_new).count();
        let gone = self.trees.iter().filter(is_gone).count();
        (stored + new as u64).saturating_sub(gone as u64)
    }

    /// The tree as it is now, own changes included, to be read like a snapshot's.
    pub fn view(&self, tree: TreeId) -> Result<Tree<'_>> {
        Ok(self.open(tree)?.view(self.pages()))
    }

    fn check_new_name(&mut self, name: &[u8]) -> Result<()> {
        if name.is_empty() || name.len() > TREE_NAME_BYTES_MAX {
            return Err(Error::TreeName(name.len()));
        }
        if self.tree(name)?.is_some() {
            return Err(Error::TreeExists(String::from_utf8_lossy(name).into()));
        }
        Ok(())
    }

    fn open_tree(
        &mut self,
        name: Arc<[u8]>,
        record: TreeRecord,
        stored: Option<(Arc<[u8]>, TreeRecord)>,
    ) -> Result<TreeId> {
        let at = u32::try_from(self.trees.len()).map_err(|_| Error::NoSuchTree)?;
        self.trees.push(OpenTree {
            state: State {
                name,
                record,
                is_dropped: false,
            },
            stored,
            orders: Orders::default(),
            way: None,
            changed: 0,
        });
        self.renew_orders(at);
        Ok(self.id(at))
    }

    fn id(&self, at: u32) -> TreeId {
        let txn = self.number;
        TreeId { txn, at }
    }

    /// Takes the comparators that are registered now.
    fn renew_orders(&mut self, at: u32) {
        let inner = self.lock.env().inner();
        if let Some(tree) = self.trees.get_mut(at as usize) {
            let comparators = inner.comparators.of(&tree.state.name);
            tree.orders = Orders::new(tree.state.record.kind, comparators);
        }
    }

    #[inline]
    pub(super) fn open(&self, id: TreeId) -> Result<&OpenTree> {
        match self.trees.get(id.at as usize) {
            Some(tree) if id.txn == self.number && !tree.state.is_dropped => Ok(tree),
            _ => Err(Error::NoSuchTree),
        }
    }

    /// Changes a tree; `frees` says that the change is there to make room.
    pub(super) fn change<T>(
        &mut self,
        id: TreeId,
        frees: bool,
        how: impl FnOnce(&mut TreeMut<'_, TxnPages>) -> Result<T>,
    ) -> Result<T> {
        self.env().inner().check_usable()?;
        let Self {
            number,
            trees,
            pages,
            failed,
            ..
        } = self;
        let tree = match trees.get_mut(id.at as usize) {
            Some(tree) if id.txn == *number && !tree.state.is_dropped => tree,
            _ => return Err(Error::NoSuchTree),
        };
        let Some(pages) = pages.as_deref_mut() else {
            return Err(Error::TxnFailed);
        };
        pages.may_use_reserve = frees;
        pages.only_frees &= frees;
        // In its place: copied back, it would be read while what the change has stored is still on its way to the
        // caches.
        let record = &mut tree.state.record;
        let kind = record.kind;
        record.kind = tree.orders.recorded_in(kind);
        // A comparator may panic: what that breaks off is not committed.
        let failed_before = std::mem::replace(failed, true);
        // A change that is broken off leaves no way.
        let way = tree.way.take().unwrap_or_default();
        let mut changed = TreeMut::with_orders(pages, record, tree.orders, way);
        let result = how(&mut changed);
        tree.way = Some(changed.way);
        self.failed = failed_before;
        match &result {
            Ok(_) => {
                self.changes += 1;
                tree.changed = self.changes;
            }
            // What is refused changes nothing; after any other error only a savepoint's record counts.
            Err(error) => {
                tree.state.record.kind = kind;
                self.failed |= !error.is_refusal();
            }
        }
        result
    }

    /// The catalog with the records of changed trees: one that changes alone is held beside its root.
    pub(crate) fn save_catalog(&mut self) -> Result<Catalog> {
        let mut catalog = self.head().roots.catalog;
        let Self { trees, pages, .. } = self;
        let pages = pages.as_deref_mut().ok_or(Error::TxnFailed)?;
        // A compaction has those records written anew that it has looked up, whatever they say.
        let is_compacting = pages.is_compacting();
        let is_due = |tree: &&OpenTree| tree.is_changed() || is_compacting;
        let mut changed = trees.iter().filter(is_due);
        match (changed.next(), changed.next()) {
            (None, _) => return Ok(catalog),
            (Some(tree @ OpenTree { state, .. }), None)
                if !is_compacting
                    && !state.is_dropped
                    && tree.is_stored_as(&state.name)
                    && catalog.hold(&state.name, state.record) =>
            {
                return Ok(catalog);
            }
            _ => {}
        }
        let held = catalog
            .held()
            .map(|(name, record)| (name.to_vec(), *record));
        let mut catalog = *catalog.tree();
        if let Some((name, record)) = held {
            tree::put(pages, &mut catalog, &name, &record.encode())?;
        }
        // Names that are free now may have been given to other trees.
        for OpenTree { state, stored, .. } in &*trees {
            if let Some((name, _)) = stored
                && (state.is_dropped || state.name != *name)
            {
                tree::delete(pages, &mut catalog, name)?;
            }
        }
        let changed = trees.iter().filter(is_due);
        for OpenTree { state, .. } in changed.filter(|tree| !tree.state.is_dropped) {
            tree::put(pages, &mut catalog, &state.name, &state.record.encode())?;
        }
        Ok(Catalog::of(catalog))
    }

    pub(super) fn tree_states(&self) -> Vec<State> {
        self.trees.iter().map(|tree| tree.state.clone()).collect()
    }

    /// Brings the trees back to what they were; those that were looked up since are as in the catalog, those that were
    /// created since are gone.
    pub(super) fn restore_trees(&mut self, states: &[State]) {
        self.changes += 1;
        let mut states = states.iter();
        for tree in &mut self.trees {
            tree.changed = self.changes;
            tree.way = None;
            let is_new = tree.stored.is_none();
            tree.state = states.next().cloned().unwrap_or_else(|| {
                let State { name, record, .. } = &tree.state;
                let created = || (name.clone(), TreeRecord::empty(record.kind));
                let (name, record) = tree.stored.clone().unwrap_or_else(created);
                State {
                    name,
                    record,
                    is_dropped: is_new,
                }
            });
        }
    }
}
