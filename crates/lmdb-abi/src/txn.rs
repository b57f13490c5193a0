//! Transactions: begun, nested, ended, and the records read and written in them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use sapwood_store::tree::TreeRecord;
use sapwood_store::{Comparators, Durability, Savepoint, Snapshot, Tree, TreeId, WriteTxn};

use crate::cursor::Cursor;
use crate::database::{self, CORE, FREE, Handle, MAIN, RECORD_BYTES};
use crate::env::{Env, MAP_BYTES_DEFAULT, Open, stat_of, txn_id};
use crate::error::{Code, Result};
use crate::free_list::FreeList;
use crate::readers::Held;
use crate::values::db_flags::{CREATE, DUPFIXED, DUPSORT, INTEGERDUP, INTEGERKEY, PERSISTENT};
use crate::values::env_flags::{MAPASYNC, NOMETASYNC, NOSYNC, NOTLS, RDONLY, WRITEMAP};
use crate::values::write_flags::{APPEND, APPENDDUP, MULTIPLE, NODUPDATA, NOOVERWRITE, RESERVE};
use crate::values::{KEY_BYTES_MAX, Stat, VALUE_BYTES_MAX, Val};

/// `MDB_txn`
pub struct Txn {
    pub(crate) open: Arc<Open>,
    /// Where it stands itself, once it does.
    own: *mut Txn,
    /// What `mdb_txn_env` gives.
    env: *mut Env,
    /// The transaction around this one, null if there is none. Only [`crate::abi`] follows pointers.
    parent: *mut Txn,
    child: *mut Txn,
    /// The open cursors of a write transaction, which ends them.
    pub(crate) cursors: Vec<*mut Cursor>,
    flags: u32,
    state: State,
    has_failed: bool,
    /// By handle.
    databases: Vec<Option<Database>>,
    /// The handles' count of closings when `databases` was last compared with them.
    closings: u64,
    /// Handles that were opened here.
    opened: Vec<u32>,
    /// Tells this turn of the transaction from all others there have been: what a cursor has seen in another is over.
    turn: u64,
    /// The first turn of the outermost transaction: whose the handles are that are opened here.
    root: u64,
}

enum State {
    Reading {
        slot: Arc<Held>,
        /// None once it is reset.
        snapshot: Option<Snapshot>,
    },
    /// None while a child is at work with it.
    Writing(Option<Box<Writing>>),
}

/// The write transaction itself, which its children are lent.
struct Writing {
    txn: WriteTxn,
    /// Where the nested transactions began, the innermost last.
    savepoints: Vec<Savepoint>,
    has_changed: bool,
}

/// A database as a transaction knows it.
#[derive(Clone)]
struct Database {
    /// Of its handle.
    sequence: u32,
    flags: u32,
    comparators: Comparators,
    tree: TreePlace,
}

/// Where a database's tree is.
#[derive(Clone, Copy)]
enum TreePlace {
    /// The main database, into which nothing has been put.
    Missing,
    InSnapshot(TreeRecord),
    InTxn(TreeId),
}

/// A value to be stored.
#[derive(Clone, Copy)]
pub(crate) enum Value<'v> {
    Bytes(&'v [u8]),
    /// Room of this length, which the caller fills.
    Room(usize),
}

impl Value<'_> {
    fn len(&self) -> usize {
        match self {
            Self::Bytes(bytes) => bytes.len(),
            Self::Room(len) => *len,
        }
    }
}

/// What became of a value.
pub(crate) enum Stored {
    Done,
    /// The room that was asked for, to be filled before the transaction's next change.
    Room(Val),
    /// The key was there; this is its first value.
    Exists(Val),
}

impl Txn {
    /// `mdb_txn_begin` of a read transaction.
    pub(crate) fn begin_read(open: &Arc<Open>, env: *mut Env) -> Result<Self> {
        let slot = if open.flags() & NOTLS != 0 {
            open.readers.hold()?
        } else {
            open.readers.of_thread()?
        };
        let mut txn = Self::new(
            open,
            env,
            RDONLY,
            State::Reading {
                slot,
                snapshot: None,
            },
        );
        txn.renew()?;
        Ok(txn)
    }

    /// `mdb_txn_begin` of a write transaction, which waits for its turn.
    pub(crate) fn begin_write(open: &Arc<Open>, env: *mut Env, flags: u32) -> Result<Self> {
        if open.flags() & RDONLY != 0 {
            return Err(Code::EACCES);
        }
        let txn = open.store.write()?;
        if txn.store_bytes() > open.map_bytes() {
            return Err(Code::MAP_RESIZED);
        }
        let writing = Writing {
            txn,
            savepoints: Vec::new(),
            has_changed: false,
        };
        open.set_writing(true);
        let state = State::Writing(Some(Box::new(writing)));
        Ok(Self::new(open, env, flags, state))
    }

    /// `mdb_txn_begin` within another transaction; `own` is where that stands.
    pub(crate) fn begin_child(&mut self, own: *mut Txn, flags: u32) -> Result<Self> {
        if self.is_reading() {
            return Err(Code::EINVAL);
        }
        self.check()?;
        if (flags | self.open.flags()) & (RDONLY | WRITEMAP) != 0 {
            return Err(Code::BAD_TXN);
        }
        let State::Writing(lent) = &mut self.state else {
            return Err(Code::EINVAL);
        };
        let mut writing = lent.take().ok_or(Code::BAD_TXN)?;
        let savepoint = writing.txn.savepoint();
        writing.savepoints.push(savepoint);
        let state = State::Writing(Some(writing));
        let open = self.open.clone();
        let mut child = Self::new(&open, self.env, flags | self.flags, state);
        child.parent = own;
        child.root = self.root;
        Ok(child)
    }

    fn new(open: &Arc<Open>, env: *mut Env, flags: u32, state: State) -> Self {
        let turn = next_turn();
        Self {
            open: open.clone(),
            own: std::ptr::null_mut(),
            env,
            parent: std::ptr::null_mut(),
            child: std::ptr::null_mut(),
            cursors: Vec::new(),
            flags,
            state,
            has_failed: false,
            databases: Vec::new(),
            closings: open.closings(),
            opened: Vec::new(),
            turn,
            root: turn,
        }
    }

    /// Tells it where it stands, from where it does not move any more.
    pub(crate) fn stand_at(&mut self, own: *mut Txn) {
        self.own = own;
        if let State::Reading { slot, .. } = &self.state {
            slot.set_reader(own);
        }
    }

    pub(crate) fn env(&self) -> *mut Env {
        self.env
    }

    pub(crate) fn parent(&self) -> *mut Txn {
        self.parent
    }

    pub(crate) fn child(&self) -> *mut Txn {
        self.child
    }

    pub(crate) fn set_child(&mut self, child: *mut Txn) {
        self.child = child;
    }

    pub(crate) fn turn(&self) -> u64 {
        self.turn
    }

    pub(crate) fn is_reading(&self) -> bool {
        matches!(self.state, State::Reading { .. })
    }

    /// `mdb_txn_id`
    pub(crate) fn id(&self) -> u64 {
        match &self.state {
            State::Reading {
                snapshot: Some(snapshot),
                ..
            } => txn_id(snapshot.commit().0),
            State::Writing(Some(writing)) => txn_id(writing.txn.commit_no().0),
            _ => 0,
        }
    }

    /// Refuses everything but the end to a transaction that has failed, has a child, or is reset.
    pub(crate) fn check(&self) -> Result {
        let is_usable = match &self.state {
            State::Reading { snapshot, .. } => snapshot.is_some(),
            State::Writing(writing) => writing.is_some(),
        };
        if is_usable && !self.has_failed && self.child.is_null() {
            Ok(())
        } else {
            Err(Code::BAD_TXN)
        }
    }

    pub(crate) fn check_writable(&self) -> Result {
        if self.is_reading() {
            return Err(Code::EACCES);
        }
        self.check()
    }

    /// `mdb_txn_renew`
    pub(crate) fn renew(&mut self) -> Result {
        let State::Reading { slot, snapshot } = &mut self.state else {
            return Err(Code::EINVAL);
        };
        if snapshot.is_some() {
            return Err(Code::EINVAL);
        }
        slot.occupy()?;
        let begun = match self.open.store.read() {
            Ok(begun) if begun.store_bytes() <= self.open.map_bytes() => begun,
            refused => {
                slot.leave();
                return refused.map_or_else(|error| Err(error.into()), |_| Err(Code::MAP_RESIZED));
            }
        };
        slot.set(txn_id(begun.commit().0));
        slot.set_reader(self.own);
        *snapshot = Some(begun);
        self.turn = next_turn();
        self.databases.clear();
        Ok(())
    }

    /// `mdb_txn_reset`: the end of a read transaction that keeps its slot.
    pub(crate) fn reset(&mut self) {
        if let State::Reading { slot, snapshot } = &mut self.state
            && snapshot.take().is_some()
        {
            slot.leave();
            self.turn = next_turn();
            self.databases.clear();
        }
    }

    /// `mdb_txn_commit` of a transaction without children. Gives a nested one's work to its parent.
    pub(crate) fn commit(mut self, parent: Option<&mut Txn>) -> Result {
        if self.has_failed {
            self.abort(parent);
            return Err(Code::BAD_TXN);
        }
        let opened = std::mem::take(&mut self.opened);
        let State::Writing(writing) = &mut self.state else {
            self.reset();
            self.publish_handles(&opened);
            return Ok(());
        };
        let Some(mut writing) = writing.take() else {
            return Err(Code::BAD_TXN);
        };
        if let Some(parent) = parent {
            if let Some(savepoint) = writing.savepoints.pop() {
                writing.txn.release(savepoint);
            }
            parent.opened.extend(opened);
            parent.take_back(writing);
            return Ok(());
        }
        let committed = self.commit_root(*writing);
        self.open.set_writing(false);
        match committed {
            Ok(()) => self.publish_handles(&opened),
            Err(_) => self.close_handles(&opened),
        }
        committed
    }

    fn commit_root(&self, mut writing: Writing) -> Result {
        let map_bytes = self.open.map_bytes();
        if writing.has_changed && map_bytes > MAP_BYTES_DEFAULT {
            store_map_bytes(&mut writing.txn, map_bytes)?;
        }
        if self.is_relaxed() {
            writing.txn.commit_with(Durability::Relaxed)?;
        } else {
            writing.txn.commit_with(Durability::Durable)?.wait()?;
        }
        Ok(())
    }

    /// `mdb_txn_abort` of a transaction without children.
    pub(crate) fn abort(mut self, parent: Option<&mut Txn>) {
        let opened = std::mem::take(&mut self.opened);
        self.close_handles(&opened);
        let writing = match &mut self.state {
            State::Reading { .. } => return self.reset(),
            State::Writing(writing) => writing.take(),
        };
        let Some(mut writing) = writing else {
            return;
        };
        match parent {
            Some(parent) => {
                if let Some(savepoint) = writing.savepoints.pop() {
                    writing.txn.rollback_to(&savepoint);
                    writing.txn.release(savepoint);
                }
                parent.take_back(writing);
            }
            None => {
                drop(writing);
                self.open.set_writing(false);
            }
        }
    }

    /// Goes on after a child. Trees that it created or dropped are looked up anew.
    fn take_back(&mut self, writing: Box<Writing>) {
        self.state = State::Writing(Some(writing));
        self.child = std::ptr::null_mut();
        self.databases.clear();
    }

    fn publish_handles(&self, opened: &[u32]) {
        let mut handles = self.open.handles();
        opened.iter().for_each(|&dbi| handles.publish(dbi));
    }

    fn close_handles(&self, opened: &[u32]) {
        for &dbi in opened {
            self.open.close_handle(dbi);
        }
    }

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
        self.check_writable()?;
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
    fn has_tree(&mut self, tree: &[u8]) -> Result<bool> {
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
        self.check_writable()?;
        let handle = self.handle(dbi)?;
        let tree = handle.tree.ok_or(Code::BAD_DBI)?;
        let writing = self.writing_mut()?;
        writing.has_changed = true;
        if dbi == MAIN {
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

    /// The database of a handle, looked up once in a transaction.
    fn database(&mut self, dbi: u32) -> Result<&Database> {
        if self.open.closings() != self.closings {
            self.compare_handles();
        }
        let at = dbi as usize;
        if !matches!(self.databases.get(at), Some(Some(_))) {
            let database = self.look_up(dbi)?;
            if self.databases.len() <= at {
                self.databases.resize(at + 1, None);
            }
            self.databases[at] = Some(database);
        }
        match self.databases.get(at) {
            Some(Some(database)) => Ok(database),
            _ => Err(Code::BAD_DBI),
        }
    }

    /// Forgets databases whose handles were closed.
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

    #[cold]
    fn look_up(&mut self, dbi: u32) -> Result<Database> {
        self.check()?;
        let handle = self.handle(dbi)?;
        let tree = handle.tree.ok_or(Code::EINVAL)?;
        let (place, kind) = match &mut self.state {
            State::Reading { snapshot, .. } => {
                let snapshot = snapshot.as_ref().ok_or(Code::BAD_TXN)?;
                let tree = snapshot.tree(&tree)?;
                tree.map(|tree| {
                    let record = *tree.record();
                    (TreePlace::InSnapshot(record), record.kind)
                })
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
                TreePlace::InSnapshot(record),
            ) => Some(snapshot.tree_of(record)?.ordered_by(comparators)),
            (State::Writing(Some(writing)), TreePlace::InTxn(id)) => Some(writing.txn.view(id)?),
            _ => return Err(Code::BAD_TXN),
        })
    }

    /// For cursors: the tree in a write transaction, and the transaction.
    pub(crate) fn written_tree(&mut self, dbi: u32) -> Result<Option<(TreeId, &mut WriteTxn)>> {
        let place = self.database(dbi)?.tree;
        Ok(match place {
            TreePlace::InTxn(id) => Some((id, &mut self.writing_mut()?.txn)),
            _ => None,
        })
    }

    fn writing_mut(&mut self) -> Result<&mut Writing> {
        match &mut self.state {
            State::Writing(Some(writing)) => Ok(writing),
            State::Writing(None) => Err(Code::BAD_TXN),
            State::Reading { .. } => Err(Code::EACCES),
        }
    }

    /// After a failure that may have left half of a change, the transaction can only be aborted.
    pub(crate) fn note_failure<T>(&mut self, result: sapwood_store::Result<T>) -> Result<T> {
        result.map_err(|error| {
            self.has_failed |= !error.is_refusal();
            error.into()
        })
    }

    /// `mdb_get`
    pub(crate) fn get(&mut self, dbi: u32, key: &[u8]) -> Result<&[u8]> {
        self.check()?;
        if key.is_empty() {
            return Err(Code::BAD_VALSIZE);
        }
        match self.view(dbi)? {
            Some(tree) => tree.get(key)?.ok_or(Code::NOTFOUND),
            None => Err(Code::NOTFOUND),
        }
    }

    /// `mdb_put`, and what `mdb_cursor_put` stores.
    pub(crate) fn put(
        &mut self,
        dbi: u32,
        key: &[u8],
        value: Value<'_>,
        flags: u32,
    ) -> Result<Stored> {
        self.check_writable()?;
        let db_flags = self.check_put(dbi, key, value, flags)?;
        if flags & NOOVERWRITE != 0
            && let Some(value) = self.get_if_there(dbi, key)?
        {
            return Ok(Stored::Exists(Val::to(value)));
        }
        if flags & APPEND != 0 && db_flags & DUPSORT != 0 && self.is_last_key(dbi, key)? {
            return Err(Code::KEYEXIST);
        }
        let tree = self.tree_for_writing(dbi)?;
        let Value::Bytes(value) = value else {
            return self.reserve(tree, key, value.len(), flags);
        };
        let writing = self.writing_mut()?;
        writing.has_changed = true;
        let txn = &mut writing.txn;
        let stored = if flags & APPEND != 0 {
            txn.append(tree, key, value).map(|()| true)
        } else if flags & APPENDDUP != 0 && db_flags & DUPSORT != 0 {
            txn.append_duplicate(tree, key, value).map(|()| true)
        } else {
            txn.put(tree, key, value)
        };
        let is_new = self.note_failure(stored)?;
        if !is_new && flags & NODUPDATA != 0 && db_flags & DUPSORT != 0 {
            return Err(Code::KEYEXIST);
        }
        Ok(Stored::Done)
    }

    /// Refuses what cannot be put; gives the database's flags.
    pub(crate) fn check_put(
        &mut self,
        dbi: u32,
        key: &[u8],
        value: Value<'_>,
        flags: u32,
    ) -> Result<u32> {
        let db_flags = self.database(dbi)?.flags;
        check_sizes(db_flags, key, value)?;
        if flags & RESERVE != 0 && db_flags & DUPSORT != 0 {
            return Err(Code::INCOMPATIBLE);
        }
        if value.len() == 0 && db_flags & DUPSORT != 0 && !self.may_be_empty(dbi, key)? {
            return Err(Code::BAD_VALSIZE);
        }
        self.refuse_database_record(dbi, key)?;
        Ok(db_flags)
    }

    /// A value of no length is never one of several.
    fn may_be_empty(&mut self, dbi: u32, key: &[u8]) -> Result<bool> {
        let other = self.get_if_there(dbi, key)?;
        Ok(other.is_none_or(<[u8]>::is_empty))
    }

    fn reserve(&mut self, tree: TreeId, key: &[u8], len: usize, flags: u32) -> Result<Stored> {
        if flags & APPEND != 0 {
            let writing = self.writing_mut()?;
            let last = {
                let mut cursor = writing.txn.view(tree)?.cursor();
                cursor.last()? && cursor.seek(key)?
            };
            if last {
                return Err(Code::KEYEXIST);
            }
        }
        let writing = self.writing_mut()?;
        writing.has_changed = true;
        let room = writing.txn.reserve(tree, key, len).map(|room| Val {
            size: room.len(),
            data: room.as_mut_ptr().cast(),
        });
        self.note_failure(room).map(Stored::Room)
    }

    /// `MDB_MULTIPLE`: stores `values`, `size` bytes each, and counts in `done` those that were.
    pub(crate) fn put_multiple(
        &mut self,
        dbi: u32,
        key: &[u8],
        size: usize,
        values: &[u8],
        flags: u32,
        done: &mut usize,
    ) -> Result {
        if self.database(dbi)?.flags & DUPFIXED == 0 {
            return Err(Code::INCOMPATIBLE);
        }
        if size == 0 {
            return Err(Code::BAD_VALSIZE);
        }
        let flags = flags & !MULTIPLE;
        let mut rest = values;
        if flags == 0 {
            self.check_writable()?;
            let first = values.get(..size).ok_or(Code::BAD_VALSIZE)?;
            check_sizes(self.database(dbi)?.flags, key, Value::Bytes(first))?;
            self.refuse_database_record(dbi, key)?;
            let tree = self.tree_for_writing(dbi)?;
            let writing = self.writing_mut()?;
            writing.has_changed = true;
            let stored = writing.txn.put_multiple(tree, key, size, values);
            self.note_failure(stored)?;
            *done = values.len() / size;
            return Ok(());
        }
        while let Some((value, others)) = rest.split_at_checked(size) {
            self.put(dbi, key, Value::Bytes(value), flags)?;
            *done += 1;
            rest = others;
        }
        Ok(())
    }

    /// `mdb_del`: one value of the key, or all.
    pub(crate) fn delete(&mut self, dbi: u32, key: &[u8], value: Option<&[u8]>) -> Result {
        self.check_writable()?;
        if key.is_empty() {
            return Err(Code::BAD_VALSIZE);
        }
        let database = self.database(dbi)?;
        let (db_flags, place) = (database.flags, database.tree);
        self.refuse_database_record(dbi, key)?;
        let TreePlace::InTxn(tree) = place else {
            return Err(Code::NOTFOUND);
        };
        let writing = self.writing_mut()?;
        let deleted = match value.filter(|_| db_flags & DUPSORT != 0) {
            Some(value) => writing.txn.delete_duplicate(tree, key, value),
            None => writing.txn.delete(tree, key),
        };
        writing.has_changed |= matches!(deleted, Ok(true));
        if self.note_failure(deleted)? {
            Ok(())
        } else {
            Err(Code::NOTFOUND)
        }
    }

    pub(crate) fn note_change(&mut self) {
        if let State::Writing(Some(writing)) = &mut self.state {
            writing.has_changed = true;
        }
    }

    fn get_if_there(&mut self, dbi: u32, key: &[u8]) -> Result<Option<&[u8]>> {
        match self.view(dbi)? {
            Some(tree) => Ok(tree.get(key)?),
            None => Ok(None),
        }
    }

    fn is_last_key(&mut self, dbi: u32, key: &[u8]) -> Result<bool> {
        let Some(tree) = self.view(dbi)? else {
            return Ok(false);
        };
        let mut cursor = tree.cursor();
        Ok(cursor.last()? && cursor.whole_key()? == Some(key))
    }

    /// Records that stand for named databases are changed by `mdb_dbi_open` and `mdb_drop` alone.
    pub(crate) fn refuse_database_record(&mut self, dbi: u32, key: &[u8]) -> Result {
        if dbi != MAIN {
            return Ok(());
        }
        let is_like_one = self
            .get_if_there(MAIN, key)?
            .is_some_and(|value| value.len() == RECORD_BYTES);
        if is_like_one && self.has_tree(&database::tree_of(key)?)? {
            return Err(Code::INCOMPATIBLE);
        }
        Ok(())
    }

    /// The tree of a database, which is made if it is the main one and missing.
    pub(crate) fn tree_for_writing(&mut self, dbi: u32) -> Result<TreeId> {
        match self.database(dbi)?.tree {
            TreePlace::InTxn(id) => Ok(id),
            _ => self.main_for_writing(),
        }
    }

    fn main_for_writing(&mut self) -> Result<TreeId> {
        if let TreePlace::InTxn(id) = self.database(MAIN)?.tree {
            return Ok(id);
        }
        let flags = self.handle(MAIN)?.flags;
        let txn = &mut self.writing_mut()?.txn;
        let id = txn.create_tree(database::main_tree(), database::kind(flags))?;
        self.databases.clear();
        Ok(id)
    }

    /// Whether a power cut may take its commit away. (It never damages anything, which it may in LMDB.)
    fn is_relaxed(&self) -> bool {
        let flags = self.flags | self.open.flags();
        flags & (NOSYNC | NOMETASYNC) != 0 || flags & (WRITEMAP | MAPASYNC) == WRITEMAP | MAPASYNC
    }
}

fn next_turn() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

fn check_sizes(flags: u32, key: &[u8], value: Value<'_>) -> Result {
    let is_allowed = |bytes: usize| (1..=KEY_BYTES_MAX).contains(&bytes);
    let key_fits = is_allowed(key.len()) && (flags & INTEGERKEY == 0 || database::is_integer(key));
    let value_fits = if flags & DUPSORT == 0 {
        value.len() <= VALUE_BYTES_MAX
    } else {
        let is_integer = |value| match value {
            Value::Bytes(bytes) => database::is_integer(bytes),
            Value::Room(_) => false,
        };
        let is_short = value.len() <= KEY_BYTES_MAX;
        let may_be_empty = flags & (DUPFIXED | INTEGERDUP) == 0;
        is_short
            && (may_be_empty || value.len() > 0)
            && (flags & INTEGERDUP == 0 || is_integer(value))
    };
    if key_fits && value_fits {
        Ok(())
    } else {
        Err(Code::BAD_VALSIZE)
    }
}

fn store_map_bytes(txn: &mut WriteTxn, map_bytes: u64) -> Result {
    let settings = match txn.tree(database::SETTINGS_TREE)? {
        Some(settings) => settings,
        None => txn.create_tree(database::SETTINGS_TREE, sapwood_store::TreeKind::COMPACT)?,
    };
    let stored = txn.get(settings, database::MAP_SIZE_KEY)?;
    let stored = stored.and_then(<[u8]>::first_chunk);
    if stored.is_none_or(|bytes| u64::from_le_bytes(*bytes) < map_bytes) {
        txn.put(settings, database::MAP_SIZE_KEY, &map_bytes.to_le_bytes())?;
    }
    Ok(())
}

fn drop_all_named(txn: &mut WriteTxn) -> sapwood_store::Result<()> {
    for tree in txn.tree_names()? {
        if database::name_of(&tree).is_some() {
            txn.drop_tree(&tree)?;
        }
    }
    Ok(())
}
