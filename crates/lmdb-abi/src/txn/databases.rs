//! The databases of a transaction: opened, looked up once, cleared and dropped.

use sapwood_store::{Comparators, KnownTree, Tree, TreeId, WriteTxn};

use super::{State, Txn, next_turn};
use crate::database::{self, CORE, FREE, Handle, MAIN};
use crate::env::stat_of;
use crate::error::{Code, Result};
use crate::free_list::FreeList;
use crate::values::Stat;
use crate::values::db_flags::{CREATE, DUPSORT, INTEGERKEY, PERSISTENT};

/// A database as a transaction knows it.
#[derive(Clone)]
pub(super) struct Database {
    /// Of its handle.
    sequence: u32,
    pub(super) flags: u32,
    pub(super) comparators: Comparators,
    pub(super) tree: TreePlace,
}

/// Where a database's tree is.
#[derive(Clone, Copy)]
pub(super) enum TreePlace {
    /// The main database, into which nothing has been put.
    Missing,
    InSnapshot(KnownTree),
    InTxn(TreeId),
}

impl TreePlace {
    #[inline]
    pub(super) fn in_txn(self) -> Option<TreeId> {
        match self {
            Self::InTxn(tree) => Some(tree),
            Self::Missing | Self::InSnapshot(_) => None,
        }
    }
}

impl Txn {
    /// `mdb_dbi_open`
    pub(crate) fn open_database(&mut self, name: Option<&[u8]>, flags: u32) -> Result<u32> {
        if flags & !(PERSISTENT | CREATE) != 0 {
            return Err(Code::EINVAL);
        }
        self.check()?;
        let Some(name) = name else {
            self.open_main(flags & PERSISTENT)?;
            return Ok(MAIN);
        };
        if self.database(MAIN)?.flags & (DUPSORT | INTEGERKEY) != 0 {
            return Err(if flags & CREATE != 0 {
                Code::INCOMPATIBLE
            } else {
                Code::NOTFOUND
            });
        }
        let tree = database::tree_of(name)?;
        if let Some(dbi) = self.open.handles().find(&tree, self.root) {
            return Ok(dbi);
        }
        self.open.handles().check_room()?;
        let flags = match self.get(MAIN, name) {
            Ok(record) => match database::record_flags(record) {
                Some(flags) if self.has_tree(&tree)? => flags,
                _ => return Err(Code::INCOMPATIBLE),
            },
            Err(Code::NOTFOUND) if flags & CREATE == 0 => return Err(Code::NOTFOUND),
            Err(Code::NOTFOUND) => {
                self.create_database(name, &tree, flags & PERSISTENT)?;
                flags & PERSISTENT
            }
            Err(error) => return Err(error),
        };
        let dbi = self.open.handles().open(tree, flags, self.root)?;
        self.opened.push(dbi);
        Ok(dbi)
    }

    /// The main database takes flags as long as there is nothing in it.
    fn open_main(&mut self, flags: u32) -> Result {
        let main = self.database(MAIN)?;
        if main.flags & flags == flags {
            return Ok(());
        }
        let flags = main.flags | flags;
        if self.is_reading() {
            return Err(Code::EACCES);
        }
        if self.stat(MAIN)?.entries > 0 {
            return Err(Code::INCOMPATIBLE);
        }
        let tree = database::main_tree();
        let writing = self.writing_mut()?;
        writing.txn.drop_tree(&tree)?;
        writing.txn.create_tree(&tree, database::kind(flags))?;
        writing.has_changed = true;
        if let Some(handle) = self.open.handles().get_mut(MAIN) {
            handle.flags = flags;
        }
        self.databases.clear();
        self.turn = next_turn();
        Ok(())
    }

    fn create_database(&mut self, name: &[u8], tree: &[u8], flags: u32) -> Result {
        self.begin_change()?;
        let main = self.main_for_writing()?;
        let writing = self.writing_mut()?;
        let made = writing
            .txn
            .create_tree(tree, database::kind(flags))
            .and_then(|_| writing.txn.put(main, name, &database::record(flags)));
        writing.has_changed = true;
        self.note_failure(made).map(drop)
    }

    /// Whether there is a tree of this name in the store.
    pub(super) fn has_tree(&mut self, tree: &[u8]) -> Result<bool> {
        Ok(match &mut self.state {
            State::Reading { snapshot, .. } => {
                let snapshot = snapshot.as_ref().ok_or(Code::BAD_TXN)?;
                snapshot.tree(tree)?.is_some()
            }
            State::Writing(writing) => {
                let writing = writing.as_mut().ok_or(Code::BAD_TXN)?;
                writing.txn.tree(tree)?.is_some()
            }
        })
    }

    /// Whether there may be databases with names. For write transactions.
    pub(super) fn may_have_named(&mut self) -> Result<bool> {
        let txn = &mut self.writing_mut()?.txn;
        Ok(match txn.tree_count() {
            0 | 1 => false,
            2 => txn.tree(database::SETTINGS_TREE)?.is_none(),
            _ => true,
        })
    }

    /// `mdb_dbi_flags`
    pub(crate) fn database_flags(&mut self, dbi: u32) -> Result<u32> {
        Ok(self.database(dbi)?.flags)
    }

    /// `mdb_stat`
    pub(crate) fn stat(&mut self, dbi: u32) -> Result<Stat> {
        self.check()?;
        if dbi == FREE {
            return Ok(FreeList::read(&self.open)?.stat());
        }
        Ok(stat_of(self.view(dbi)?.as_ref().map(Tree::record)))
    }

    /// `mdb_drop`
    pub(crate) fn drop_database(&mut self, dbi: u32, delete: bool) -> Result {
        if dbi == FREE {
            return Err(Code::EINVAL);
        }
        let database = self.database(dbi)?;
        let place = database.tree;
        self.begin_change()?;
        let handle = self.handle(dbi)?;
        let tree = handle.tree.ok_or(Code::BAD_DBI)?;
        let writing = self.writing_mut()?;
        writing.has_changed = true;
        if dbi == MAIN {
            self.store_all_gathered()?;
            let writing = self.writing_mut()?;
            let dropped = drop_all_named(&mut writing.txn);
            self.note_failure(dropped)?;
            self.close_named();
        }
        let writing = self.writing_mut()?;
        let done = match (place, database::name_of(&tree)) {
            (TreePlace::InTxn(_), Some(name)) if delete && dbi >= CORE => {
                let main = writing.txn.tree(database::main_tree())?;
                writing.txn.drop_tree(&tree).and_then(|_| match main {
                    Some(main) => writing.txn.delete(main, name).map(drop),
                    None => Ok(()),
                })
            }
            (TreePlace::InTxn(id), _) => writing.txn.clear_tree(id),
            _ => Ok(()),
        };
        self.note_failure(done)?;
        if delete && dbi >= CORE {
            self.open.close_handle(dbi);
        }
        Ok(())
    }

    fn close_named(&mut self) {
        let mut dbi = CORE;
        while self.open.handles().get(dbi).is_some() {
            self.open.close_handle(dbi);
            dbi += 1;
        }
    }

    /// `mdb_set_compare` and `mdb_set_dupsort`
    pub(crate) fn set_comparators(
        &mut self,
        dbi: u32,
        set: impl FnOnce(&mut Comparators),
    ) -> Result {
        if dbi == FREE {
            return Err(Code::EINVAL);
        }
        self.handle(dbi)?;
        self.store_gathered(dbi)?;
        let (tree, comparators) = {
            let mut handles = self.open.handles();
            let handle = handles.get_mut(dbi).ok_or(Code::EINVAL)?;
            set(&mut handle.comparators);
            (handle.tree.clone(), handle.comparators)
        };
        let tree = tree.ok_or(Code::BAD_DBI)?;
        self.open.store.set_comparators(&*tree, comparators);
        if let Some(database) = self.databases.get_mut(dbi as usize) {
            *database = None;
        }
        self.turn = next_turn();
        Ok(())
    }

    /// An open handle, for what needs no tree.
    pub(crate) fn handle(&self, dbi: u32) -> Result<Handle> {
        let handles = self.open.handles();
        let handle = handles.get(dbi).cloned().ok_or(Code::EINVAL)?;
        if dbi != FREE && !handle.is_open_to(self.root) {
            return Err(Code::EINVAL);
        }
        Ok(handle)
    }

    /// A database's flags; and its tree, for cursors of a write transaction, without what has been gathered for it.
    #[inline]
    pub(crate) fn flags_and_tree(&mut self, dbi: u32) -> Result<(u32, Option<TreeId>)> {
        let Database { flags, tree, .. } = self.known_database(dbi)?;
        Ok((*flags, tree.in_txn()))
    }

    /// The database of a handle, with all that has been put into it.
    #[inline]
    pub(super) fn database(&mut self, dbi: u32) -> Result<&Database> {
        self.store_gathered(dbi)?;
        self.known_database(dbi)
    }

    /// The database of a handle, looked up once in a transaction.
    #[inline]
    pub(super) fn known_database(&mut self, dbi: u32) -> Result<&Database> {
        if self.open.closings() != self.closings {
            self.store_all_gathered()?;
            self.compare_handles();
        }
        let at = dbi as usize;
        if !matches!(self.databases.get(at), Some(Some(_))) {
            self.remember(dbi)?;
        }
        match self.databases.get(at) {
            Some(Some(database)) => Ok(database),
            _ => Err(Code::BAD_DBI),
        }
    }

    #[cold]
    fn remember(&mut self, dbi: u32) -> Result {
        let database = self.look_up(dbi)?;
        let at = dbi as usize;
        if self.databases.len() <= at {
            self.databases.resize(at + 1, None);
        }
        self.databases[at] = Some(database);
        Ok(())
    }

    /// Forgets databases whose handles were closed.
    #[cold]
    fn compare_handles(&mut self) {
        self.closings = self.open.closings();
        let handles = self.open.handles();
        for (at, database) in self.databases.iter_mut().enumerate() {
            let handle = u32::try_from(at).ok().and_then(|dbi| handles.get(dbi));
            let is_same = |database: &Database| {
                handle.is_some_and(|handle| handle.sequence == database.sequence)
            };
            if !database.as_ref().is_some_and(is_same) {
                *database = None;
            }
        }
    }

    fn look_up(&mut self, dbi: u32) -> Result<Database> {
        self.check()?;
        let handle = self.handle(dbi)?;
        let tree = handle.tree.ok_or(Code::EINVAL)?;
        let (place, kind) = match &mut self.state {
            State::Reading { snapshot, .. } => {
                let snapshot = snapshot.as_ref().ok_or(Code::BAD_TXN)?;
                let tree = snapshot.tree(&tree)?;
                tree.map(|tree| (TreePlace::InSnapshot(tree.known()), tree.record().kind))
            }
            State::Writing(writing) => {
                let txn = &mut writing.as_mut().ok_or(Code::BAD_TXN)?.txn;
                match txn.tree(&tree)? {
                    Some(id) => Some((TreePlace::InTxn(id), txn.view(id)?.record().kind)),
                    None => None,
                }
            }
        }
        .map_or((TreePlace::Missing, None), |(place, kind)| {
            (place, Some(kind))
        });
        let flags = match kind {
            Some(kind) if dbi == MAIN => database::flags(kind),
            None if dbi == MAIN => 0,
            None => return Err(Code::NOTFOUND),
            Some(_) => handle.flags,
        };
        Ok(Database {
            sequence: handle.sequence,
            flags,
            comparators: handle.comparators,
            tree: place,
        })
    }

    /// The tree of a database; `None` if nothing has ever been put into it.
    pub(crate) fn view(&mut self, dbi: u32) -> Result<Option<Tree<'_>>> {
        if dbi == FREE {
            return Err(Code::EINVAL);
        }
        if self.lent.has_reserved() {
            self.put_reserved()?;
        }
        let &Database {
            tree, comparators, ..
        } = self.database(dbi)?;
        Ok(match (&self.state, tree) {
            (_, TreePlace::Missing) => None,
            (
                State::Reading {
                    snapshot: Some(snapshot),
                    ..
                },
                TreePlace::InSnapshot(known),
            ) => Some(snapshot.tree_of(&known)?.ordered_by(comparators)),
            (State::Writing(Some(writing)), TreePlace::InTxn(id)) => Some(writing.txn.view(id)?),
            _ => return Err(Code::BAD_TXN),
        })
    }

    /// For cursors: the tree in a write transaction, and the transaction.
    pub(crate) fn written_tree(&mut self, dbi: u32) -> Result<Option<(TreeId, &mut WriteTxn)>> {
        let tree = self.database(dbi)?.tree.in_txn();
        tree.map(|tree| Ok((tree, self.written()?))).transpose()
    }

    /// The write transaction, with all that the program has stored.
    #[inline]
    pub(crate) fn written(&mut self) -> Result<&mut WriteTxn> {
        if self.lent.has_reserved() {
            self.put_reserved()?;
        }
        Ok(&mut self.writing_mut()?.txn)
    }

    /// The tree of a database, which is made if it is the main one and missing.
    pub(crate) fn tree_for_writing(&mut self, dbi: u32) -> Result<TreeId> {
        match self.database(dbi)?.tree {
            TreePlace::InTxn(id) => Ok(id),
            _ => self.main_for_writing(),
        }
    }

    pub(super) fn main_for_writing(&mut self) -> Result<TreeId> {
        if let TreePlace::InTxn(id) = self.database(MAIN)?.tree {
            return Ok(id);
        }
        let flags = self.handle(MAIN)?.flags;
        let txn = &mut self.writing_mut()?.txn;
        let id = txn.create_tree(database::main_tree(), database::kind(flags))?;
        self.databases.clear();
        Ok(id)
    }
}

fn drop_all_named(txn: &mut WriteTxn) -> sapwood_store::Result<()> {
    for tree in txn.tree_names()? {
        if database::name_of(&tree).is_some() {
            txn.drop_tree(&tree)?;
        }
    }
    Ok(())
}
