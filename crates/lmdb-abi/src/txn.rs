//! Transactions: begun, nested, reset and ended.

mod databases;
mod gathered;
mod reader;
mod records;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use sapwood_store::{Durability, Savepoint, Snapshot, WriteTxn};

use crate::database;
use crate::env::{Open, txn_id};
use crate::error::{Code, Result};
use crate::gathered::Gathered;
use crate::lent::Lent;
use crate::values::env_flags::{MAPASYNC, NOMETASYNC, NOSYNC, RDONLY, WRITEMAP};

use databases::Database;
use reader::Reader;
pub(crate) use records::{Stored, Value};

/// What there is to an `MDB_txn` besides the pointers that [`crate::abi`] follows.
pub(crate) struct Txn {
    pub(crate) open: Arc<Open>,
    /// Where it stands itself, once it does.
    own: *mut Txn,
    flags: u32,
    state: State,
    has_failed: bool,
    /// What the program may have written to since the last change.
    lent: Lent,
    /// What cursors have put and the store does not have yet.
    gathered: Gathered,
    /// It may use more than the map: what the program has written into its values needs pages that it could not know
    /// of.
    is_stretched: bool,
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

// A reader takes no memory of its own.
#[allow(clippy::large_enum_variant)]
enum State {
    Reading {
        slot: Arc<Reader>,
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

impl Txn {
    /// `mdb_txn_begin` of a read transaction.
    pub(crate) fn begin_read(open: &Arc<Open>) -> Result<Self> {
        let state = State::Reading {
            slot: Reader::new(open)?,
            snapshot: None,
        };
        let mut txn = Self::new(open, RDONLY, state);
        txn.renew()?;
        Ok(txn)
    }

    /// `mdb_txn_begin` of a write transaction, which waits for its turn.
    pub(crate) fn begin_write(open: &Arc<Open>, flags: u32) -> Result<Self> {
        if open.flags() & RDONLY != 0 {
            return Err(Code::EACCES);
        }
        let txn = open.store.write()?;
        if !open.holds(txn.store_bytes()) {
            return Err(Code::MAP_RESIZED);
        }
        let writing = Writing {
            txn,
            savepoints: Vec::new(),
            has_changed: false,
        };
        open.set_writing(true);
        let state = State::Writing(Some(Box::new(writing)));
        let mut txn = Self::new(open, flags, state);
        txn.gathered = std::mem::take(&mut *open.gathered());
        Ok(txn)
    }

    /// `mdb_txn_begin` within another transaction.
    pub(crate) fn begin_child(&mut self, flags: u32) -> Result<Self> {
        if self.is_reading() {
            return Err(Code::EINVAL);
        }
        self.check()?;
        self.store_all_gathered()?;
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
        let mut child = Self::new(&open, flags | self.flags, state);
        child.root = self.root;
        Ok(child)
    }

    fn new(open: &Arc<Open>, flags: u32, state: State) -> Self {
        let turn = next_turn();
        Self {
            open: open.clone(),
            own: std::ptr::null_mut(),
            flags,
            state,
            has_failed: false,
            lent: Lent::default(),
            gathered: Gathered::default(),
            is_stretched: false,
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
            slot.set_place(own);
        }
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

    /// Whether it reads, and no handle was closed since it last looked: what its cursors know of their databases holds.
    #[inline]
    pub(crate) fn is_reading_on(&self) -> bool {
        self.is_reading() && self.open.closings() == self.closings && self.check().is_ok()
    }

    /// Refuses everything but the end to a transaction that has failed, has a child, or is reset.
    pub(crate) fn check(&self) -> Result {
        let is_usable = match &self.state {
            State::Reading { snapshot, .. } => snapshot.is_some(),
            State::Writing(writing) => writing.is_some(),
        };
        if is_usable && !self.has_failed {
            Ok(())
        } else {
            Err(Code::BAD_TXN)
        }
    }

    /// What comes before each change: may this transaction write, and what has the program written into its values?
    pub(crate) fn begin_change(&mut self) -> Result {
        if self.is_reading() {
            return Err(Code::EACCES);
        }
        self.check()?;
        self.gathered.shown.clear();
        if self.lent.is_empty() {
            return Ok(());
        }
        self.take_back_lent()
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
            Ok(begun) if self.open.holds(begun.store_bytes()) => begun,
            refused => {
                slot.leave();
                return refused.map_or_else(|error| Err(error.into()), |_| Err(Code::MAP_RESIZED));
            }
        };
        slot.set(txn_id(begun.commit().0), self.own);
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
        let mut stored = self.store_all_gathered();
        if stored.is_ok() && !self.lent.is_empty() {
            stored = self.take_back_lent();
        }
        if let Err(error) = stored {
            self.abort(parent);
            return Err(error);
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
        self.end_writing();
        match committed {
            Ok(()) => self.publish_handles(&opened),
            Err(_) => self.close_handles(&opened),
        }
        committed
    }

    fn commit_root(&self, mut writing: Writing) -> Result {
        let map_bytes = self
            .open
            .map_bytes_to_store()
            .filter(|_| writing.has_changed);
        if let Some(bytes) = map_bytes {
            store_map_bytes(&mut writing.txn, bytes)?;
        }
        let id = txn_id(writing.txn.commit_no().0);
        let bytes = writing.txn.store_bytes_now();
        if writing.has_changed && !self.is_stretched && !self.open.could_commit(bytes, id) {
            return Err(Code::MAP_FULL);
        }
        if self.is_relaxed() {
            drop(writing.txn.commit_with(Durability::Relaxed)?);
        } else {
            writing
                .txn
                .commit_with(Durability::Durable)?
                .wait_durable()?;
        }
        if let Some(bytes) = map_bytes {
            self.open.note_stored_map_bytes(bytes);
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
                self.end_writing();
            }
        }
    }

    fn end_writing(&mut self) {
        self.gathered.clear();
        *self.open.gathered() = std::mem::take(&mut self.gathered);
        if self.is_stretched {
            // It is set anew with each size that the program sets, and is too large until then.
            let _: Result = self.open.set_map_bytes(self.open.map_bytes());
        }
        self.open.set_writing(false);
    }

    /// Goes on after a child. Trees that it created or dropped are looked up anew.
    fn take_back(&mut self, writing: Box<Writing>) {
        self.state = State::Writing(Some(writing));
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

    pub(crate) fn note_change(&mut self) {
        if let State::Writing(Some(writing)) = &mut self.state {
            writing.has_changed = true;
        }
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
