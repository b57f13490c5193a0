//! Cursors: where they stand, and what `mdb_cursor_get` and its kin make of that.
//!
//! The store's cursors do the moving. What LMDB adds is what happens at the ends: a cursor that cannot go on stays on
//! its record, and tells so again each time. In a write transaction a cursor remembers its record, so that it finds its
//! place again whatever was changed meanwhile; in a read transaction it keeps its place, and remembers its record while
//! the transaction is reset, since programs go on from there when it is renewed.

use sapwood_store::{Tree, TreeCursor, TreeId, WriteCursor, WriteTxn};

use crate::database::FREE;
use crate::error::{Code, Result};
use crate::free_list::{FreeCursor, FreeList};
use crate::gathered::Seat;
use crate::lent;
use crate::txn::{Stored, Txn, Value};
use crate::values::db_flags::{DUPFIXED, DUPSORT};
use crate::values::write_flags::{APPENDDUP, CURRENT, NODUPDATA};
use crate::values::{CursorOp, Shown, Val};

/// What there is to an `MDB_cursor` besides the pointers that [`crate::abi`] follows.
pub(crate) struct Cursor {
    dbi: u32,
    is_writing: bool,
    place: Place,
    /// The transaction's turn that the place belongs to.
    turn: u64,
    /// It has been somewhere: LMDB's `C_INITIALIZED`.
    has_stood: bool,
    seat: Seat,
}

enum Place {
    /// Nowhere yet.
    None,
    /// In a snapshot, which lives at least as long as the transaction's turn; and the record it came from if it was
    /// parked before.
    Read(Box<TreeCursor<'static>>, Option<Record>),
    /// On a record, in whatever snapshot comes next.
    Parked(Record),
    Write(Box<WriteCursor>),
    Free(FreeCursor),
}

/// Key and value of a record.
type Record = (Box<[u8]>, Box<[u8]>);

impl Cursor {
    /// `mdb_cursor_open`
    pub(crate) fn open(txn: &mut Txn, dbi: u32) -> Result<Self> {
        if dbi == FREE && !txn.is_reading() {
            return Err(Code::EINVAL);
        }
        txn.handle(dbi)?;
        txn.check()?;
        if dbi != FREE {
            txn.view(dbi)?;
        }
        Ok(Self {
            dbi,
            is_writing: !txn.is_reading(),
            place: Place::None,
            turn: txn.turn(),
            has_stood: false,
            seat: Seat::default(),
        })
    }

    /// `mdb_cursor_renew`: what the cursor is from now on.
    pub(crate) fn renewed(&self, txn: &mut Txn) -> Result<Self> {
        if self.is_writing || !txn.is_reading() {
            return Err(Code::EINVAL);
        }
        Self::open(txn, self.dbi)
    }

    /// Its transaction has ended.
    pub(crate) fn leave_txn(&mut self) {
        self.place = Place::None;
    }

    /// Its transaction is about to be reset: remembers the record it stands on.
    pub(crate) fn park(&mut self, txn: &Txn) {
        if self.turn == txn.turn()
            && let Place::Read(cursor, parked) = &mut self.place
        {
            let record = match cursor.whole_record() {
                _ if cursor.is_in_gap() => parked.take(),
                Ok(Some((key, value))) => Some((key.into(), value.into())),
                // Behind the last record, or before a damaged one.
                _ => None,
            };
            self.place = record.map_or(Place::None, Place::Parked);
        }
    }

    pub(crate) fn dbi(&self) -> u32 {
        self.dbi
    }

    /// `mdb_cursor_get`
    pub(crate) fn get(
        &mut self,
        txn: &mut Txn,
        op: CursorOp,
        key: Option<&[u8]>,
        value: Option<&[u8]>,
    ) -> Result<Shown> {
        txn.check()?;
        let (flags, tree) = match self.dbi {
            FREE => (0, None),
            dbi => txn.flags_and_tree(dbi)?,
        };
        self.forget_other_turns(txn);
        self.check_op(op, flags, key, value)?;
        if op == CursorOp::Set
            && flags & DUPSORT != 0
            && let (Some(tree), Some(key)) = (tree, key)
        {
            return self.set(txn, tree, key);
        }
        self.seat.leave();
        self.walk(txn, flags, op, key, value)
    }

    /// What `mdb_cursor_get` does by moving the store's cursor.
    #[inline(never)] // What it keeps on the stack, the ways of most calls have no use for.
    fn walk(
        &mut self,
        txn: &mut Txn,
        flags: u32,
        op: CursorOp,
        key: Option<&[u8]>,
        value: Option<&[u8]>,
    ) -> Result<Shown> {
        let mut walk = Walk {
            op,
            has_duplicates: flags & DUPSORT != 0,
            key: key.unwrap_or_default(),
            value: value.unwrap_or_default(),
            has_stood: self.has_stood,
            shows_key: !matches!(
                op,
                CursorOp::Set | CursorOp::GetBoth | CursorOp::GetBothRange | CursorOp::GetMultiple
            ),
        };
        let lends = txn.lends() && flags & DUPSORT == 0;
        let room = lends.then(|| txn.room_to_lend());
        let mut copied = None;
        let go = |cursor: &mut TreeCursor<'_>| -> Result<Shown> {
            let shown = walk.go(cursor)?;
            if let Some(room) = room {
                let (key, value) = cursor.whole_record()?.ok_or(Code::NOTFOUND)?;
                copied = Some((key.to_vec(), lent::copy(value, room)));
            }
            Ok(shown)
        };
        let shown = if self.dbi == FREE {
            let shown = self.get_free(txn, op, walk.key);
            shown.inspect(|_| walk.has_stood = true)
        } else if op.is_absolute() {
            self.with_moved(txn, go)
        } else {
            self.with(txn, go)
        };
        self.has_stood = walk.has_stood;
        let mut shown = shown?;
        if let Some((key, value)) = copied {
            shown.value = txn.lend(self.dbi, &key, value).unwrap_or(shown.value);
        }
        shown.key = shown.key.filter(|_| walk.shows_key);
        Ok(shown)
    }

    /// `MDB_SET` in a write transaction, in a database with duplicates.
    #[inline]
    fn set(&mut self, txn: &mut Txn, tree: TreeId, key: &[u8]) -> Result<Shown> {
        self.has_stood = false;
        self.writing(tree, txn.written()?)?;
        let Place::Write(cursor) = &mut self.place else {
            return Err(Code::EINVAL);
        };
        let found = txn.seek(self.dbi, key, cursor, &mut self.seat)?;
        self.has_stood = found.is_some();
        Ok(Shown {
            key: None,
            value: found.ok_or(Code::NOTFOUND)?,
        })
    }

    /// `MDB_NEXT` where a read transaction's cursor stands on a record already, and nothing has happened that would
    /// have to be looked at: the step that a scan consists of. Otherwise `None`, and nothing is done.
    #[inline]
    pub(crate) fn step(&mut self, txn: &Txn) -> Option<Result<Shown>> {
        if !self.has_stood || self.turn != txn.turn() || !txn.is_reading_on() {
            return None;
        }
        let Place::Read(cursor, _) = &mut self.place else {
            return None;
        };
        Some(Self::step_on(cursor))
    }

    #[inline]
    fn step_on(cursor: &mut TreeCursor<'_>) -> Result<Shown> {
        // Behind the last record it stays there.
        if !cursor.is_on_record() {
            return Err(Code::NOTFOUND);
        }
        if !cursor.next()? {
            cursor.last()?;
            return Err(Code::NOTFOUND);
        }
        show(cursor)
    }

    fn check_op(
        &self,
        op: CursorOp,
        flags: u32,
        key: Option<&[u8]>,
        value: Option<&[u8]>,
    ) -> Result {
        use CursorOp as Op;
        match op {
            Op::GetCurrent | Op::FirstDup | Op::LastDup | Op::GetMultiple if !self.has_stood => {
                return Err(Code::EINVAL);
            }
            Op::GetMultiple | Op::NextMultiple | Op::PrevMultiple if flags & DUPFIXED == 0 => {
                return Err(Code::INCOMPATIBLE);
            }
            Op::GetBoth | Op::GetBothRange if value.is_none() => return Err(Code::EINVAL),
            Op::GetBoth | Op::GetBothRange | Op::FirstDup | Op::LastDup if flags & DUPSORT == 0 => {
                return Err(Code::INCOMPATIBLE);
            }
            _ => {}
        }
        match op {
            Op::GetBoth | Op::GetBothRange | Op::Set | Op::SetKey | Op::SetRange => match key {
                None => Err(Code::EINVAL),
                Some([]) => Err(Code::BAD_VALSIZE),
                Some(_) => Ok(()),
            },
            _ => Ok(()),
        }
    }

    /// A place in another snapshot is none, unless its record was remembered.
    fn forget_other_turns(&mut self, txn: &Txn) {
        if self.turn != txn.turn() {
            self.turn = txn.turn();
            self.seat.leave();
            if !matches!(self.place, Place::Parked(_)) {
                self.place = Place::None;
                self.has_stood = false;
            }
        }
    }

    /// Runs `walk` with the store's cursor. In a main database into which nothing was put there is nothing to be found.
    fn with<T>(
        &mut self,
        txn: &mut Txn,
        walk: impl FnOnce(&mut TreeCursor<'_>) -> Result<T>,
    ) -> Result<T> {
        self.with_from(true, txn, walk)
    }

    /// As [`Cursor::with`], for a walk that does not begin where the cursor stands.
    fn with_moved<T>(
        &mut self,
        txn: &mut Txn,
        walk: impl FnOnce(&mut TreeCursor<'_>) -> Result<T>,
    ) -> Result<T> {
        self.with_from(false, txn, walk)
    }

    fn with_from<T>(
        &mut self,
        here: bool,
        txn: &mut Txn,
        walk: impl FnOnce(&mut TreeCursor<'_>) -> Result<T>,
    ) -> Result<T> {
        if txn.is_reading() {
            return self.with_reading(txn, walk);
        }
        let (tree, txn) = txn.written_tree(self.dbi)?.ok_or(Code::NOTFOUND)?;
        let cursor = self.writing(tree, txn)?;
        let mut cursor = match here {
            true => cursor.read(txn)?,
            false => cursor.read_from_nowhere(txn)?,
        };
        walk(&mut cursor)
    }

    fn with_reading<T>(
        &mut self,
        txn: &mut Txn,
        walk: impl FnOnce(&mut TreeCursor<'_>) -> Result<T>,
    ) -> Result<T> {
        if !matches!(self.place, Place::Read(..)) {
            let tree = txn.view(self.dbi)?.ok_or(Code::NOTFOUND)?;
            let mut cursor = outlive(tree);
            let parked = match std::mem::replace(&mut self.place, Place::None) {
                Place::Parked(record) => {
                    cursor.stand_at(&record.0, &record.1)?;
                    Some(record)
                }
                _ => None,
            };
            self.place = Place::Read(Box::new(cursor), parked);
        }
        match &mut self.place {
            Place::Read(cursor, _) => walk(cursor),
            _ => Err(Code::EINVAL),
        }
    }

    #[inline]
    fn writing(&mut self, tree: TreeId, txn: &WriteTxn) -> Result<&mut WriteCursor> {
        if !matches!(&self.place, Place::Write(cursor) if cursor.tree() == tree) {
            self.place = Place::Write(Box::new(txn.cursor(tree)));
        }
        match &mut self.place {
            Place::Write(cursor) => Ok(cursor),
            _ => Err(Code::EINVAL),
        }
    }

    fn get_free(&mut self, txn: &Txn, op: CursorOp, key: &[u8]) -> Result<Shown> {
        if !matches!(self.place, Place::Free(_)) {
            self.place = Place::Free(FreeCursor::new(FreeList::read(&txn.open)?));
        }
        match &mut self.place {
            Place::Free(cursor) => cursor.get(op, key, self.has_stood),
            _ => Err(Code::EINVAL),
        }
    }

    /// `mdb_cursor_count`
    pub(crate) fn count(&mut self, txn: &mut Txn) -> Result<u64> {
        if self.dbi == FREE {
            return Err(Code::INCOMPATIBLE);
        }
        let (flags, tree) = txn.flags_and_tree(self.dbi)?;
        if flags & DUPSORT == 0 {
            return Err(Code::INCOMPATIBLE);
        }
        txn.check()?;
        self.forget_other_turns(txn);
        if !self.has_stood {
            return Err(Code::EINVAL);
        }
        let count = match tree {
            Some(tree) => {
                let known = match &self.place {
                    Place::Write(cursor) => txn.count_at(cursor, &self.seat)?,
                    _ => None,
                };
                match known {
                    Some(count) => count,
                    None => {
                        txn.store_gathered(self.dbi)?;
                        let txn = txn.written()?;
                        self.writing(tree, txn)?.duplicates(txn)?
                    }
                }
            }
            None if txn.is_reading() => {
                self.with_reading(txn, |cursor| Ok(cursor.duplicates()?))?
            }
            None => return Err(Code::NOTFOUND),
        };
        match count {
            0 => Err(Code::NOTFOUND),
            count => Ok(count),
        }
    }

    /// `mdb_cursor_put`, but for `MDB_MULTIPLE`.
    pub(crate) fn put(
        &mut self,
        txn: &mut Txn,
        key: &[u8],
        value: Value<'_>,
        flags: u32,
    ) -> Result<Stored> {
        self.forget_other_turns(txn);
        if flags & CURRENT != 0 {
            self.seat.leave();
            txn.begin_change()?;
            return self.put_current(txn, value, flags);
        }
        let (dbi, seat) = (self.dbi, &mut self.seat);
        let (cursor, come_to) = match (&mut self.place, value) {
            (Place::Write(cursor), Value::Bytes(bytes)) if is_gathered(flags) => {
                if txn.gather(dbi, key, bytes, cursor, seat)? {
                    self.has_stood = true;
                    return Ok(Stored::Stood);
                }
                let come_to = txn.count_beside(key, cursor, seat)?;
                (Some(&mut **cursor), come_to.map(|count| (bytes, count)))
            }
            (Place::Write(cursor), _) => (Some(&mut **cursor), None),
            _ => (None, None),
        };
        if come_to.is_none() {
            txn.store_gathered(dbi)?;
        }
        let stored = txn.put(dbi, key, value, flags, cursor);
        match (&stored, come_to) {
            (Ok(Stored::Stood), Some((bytes, count))) if count == 0 || flags & APPENDDUP != 0 => {
                txn.note_last(dbi, key, bytes, count, seat)?;
            }
            _ => seat.leave(),
        }
        match (&stored, value) {
            (Ok(Stored::Stood), _) => self.has_stood = true,
            (Ok(Stored::Exists(_)), _) => {
                self.has_stood = self.with(txn, |cursor| Ok(cursor.seek_exact(key)?))?;
            }
            (Ok(_), Value::Bytes(value)) => self.stand_on(txn, key, value)?,
            (Ok(_), Value::Room(_)) => self.stand_on(txn, key, &[])?,
            (Err(Code::KEYEXIST), Value::Bytes(value)) if flags & NODUPDATA != 0 => {
                self.stand_on(txn, key, value)?;
            }
            (Err(_), _) => {}
        }
        stored
    }

    /// `mdb_cursor_put` with `MDB_MULTIPLE`, after which the cursor stands on the last value stored.
    pub(crate) fn put_multiple(
        &mut self,
        txn: &mut Txn,
        key: &[u8],
        size: usize,
        values: &[u8],
        flags: u32,
        done: &mut usize,
    ) -> Result {
        txn.begin_change()?;
        self.seat.leave();
        self.forget_other_turns(txn);
        let stored = txn.put_multiple(self.dbi, key, size, values, flags, done);
        if let Some(last) = done
            .checked_sub(1)
            .and_then(|last| values.get(last * size..(last + 1) * size))
        {
            self.stand_on(txn, key, last)?;
        }
        stored
    }

    fn stand_on(&mut self, txn: &mut Txn, key: &[u8], value: &[u8]) -> Result {
        if let Some((tree, txn)) = txn.written_tree(self.dbi)? {
            self.writing(tree, txn)?.stand_on(key, value);
            self.has_stood = true;
        }
        Ok(())
    }

    /// Over the record the cursor stands on, whatever key is given.
    fn put_current(&mut self, txn: &mut Txn, value: Value<'_>, flags: u32) -> Result<Stored> {
        let key = self.current_key(txn)?;
        txn.check_put(self.dbi, &key, value)?;
        let Value::Bytes(bytes) = value else {
            return txn.put(self.dbi, &key, value, flags & !CURRENT, None);
        };
        txn.note_change();
        let (tree, store) = txn.written_tree(self.dbi)?.ok_or(Code::NOTFOUND)?;
        let put = self.writing(tree, store)?.put_current(store, bytes);
        txn.note_failure(put)?;
        Ok(Stored::Done)
    }

    /// `mdb_cursor_del`
    pub(crate) fn delete(&mut self, txn: &mut Txn, flags: u32) -> Result {
        txn.begin_change()?;
        self.seat.leave();
        self.forget_other_turns(txn);
        let key = self.current_key(txn)?;
        txn.refuse_database_record(self.dbi, &key)?;
        let all = flags & NODUPDATA != 0;
        txn.note_change();
        let (tree, store) = txn.written_tree(self.dbi)?.ok_or(Code::NOTFOUND)?;
        let cursor = self.writing(tree, store)?;
        let deleted = if all {
            cursor.delete_key(store)
        } else {
            cursor.delete(store)
        };
        txn.note_failure(deleted)
    }

    /// The key of the record to be changed. In the gap that a deletion has left that is what followed, and there it
    /// stands from now on.
    fn current_key(&mut self, txn: &mut Txn) -> Result<Vec<u8>> {
        if !self.has_stood {
            return Err(Code::EINVAL);
        }
        if let Place::Write(cursor) = &self.place
            && let Some((tree, txn)) = txn.written_tree(self.dbi)?
            && tree == cursor.tree()
            && let Some((key, true)) = cursor.known_key(txn)?
        {
            return Ok(key.to_vec());
        }
        self.with(txn, |cursor| {
            leave_gap(cursor)?;
            let key = cursor.whole_key()?.ok_or(Code::NOTFOUND)?;
            Ok(key.to_vec())
        })
    }
}

/// Whether what a cursor puts with these flags may be gathered.
fn is_gathered(flags: u32) -> bool {
    flags & !(NODUPDATA | APPENDDUP) == 0
}

/// From a gap to the record that follows it.
fn leave_gap(cursor: &mut TreeCursor<'_>) -> Result {
    if cursor.is_in_gap() && cursor.is_on_record() {
        cursor.next()?;
    }
    Ok(())
}

/// One operation of `mdb_cursor_get`.
struct Walk<'a> {
    op: CursorOp,
    has_duplicates: bool,
    key: &'a [u8],
    value: &'a [u8],
    has_stood: bool,
    shows_key: bool,
}

impl Walk<'_> {
    fn go(&mut self, cursor: &mut TreeCursor<'_>) -> Result<Shown> {
        use CursorOp as Op;
        let stands = match self.op {
            Op::First => self.stood(cursor.first()?),
            Op::Last => self.stood(cursor.last()?),
            Op::Next | Op::NextDup | Op::NextNodup => self.next(cursor)?,
            Op::Prev | Op::PrevDup | Op::PrevNodup => self.prev(cursor)?,
            Op::GetCurrent => {
                leave_gap(cursor)?;
                true
            }
            Op::FirstDup => self.is_there(cursor)? && cursor.first_duplicate()?,
            Op::LastDup => self.is_there(cursor)? && cursor.last_duplicate()?,
            Op::Set | Op::SetKey => self.stood(cursor.seek_exact(self.key)?),
            Op::SetRange => {
                self.has_stood = true;
                cursor.seek(self.key)?
            }
            Op::GetBoth => self.stood(cursor.seek_duplicate(self.key, self.value)?),
            Op::GetBothRange => self.stood(cursor.seek_duplicate_from(self.key, self.value)?),
            Op::GetMultiple => return Self::show_many(cursor, TreeCursor::duplicates_here),
            // All values that lie together with the next one, also those before it.
            Op::NextMultiple if !self.has_stood => {
                let stands = cursor.first()?;
                self.stood(stands) && cursor.duplicates()? > 1
            }
            Op::NextMultiple => self.has_duplicates && cursor.next_duplicate()?,
            Op::PrevMultiple if self.has_stood => {
                return Self::show_many(cursor, TreeCursor::prev_duplicates);
            }
            Op::PrevMultiple => {
                let stands = cursor.last()?;
                self.stood(stands);
                return Self::show_many(cursor, TreeCursor::duplicates_here);
            }
        };
        if !stands {
            return Err(Code::NOTFOUND);
        }
        if self.op == Op::NextMultiple {
            return Self::show_many(cursor, TreeCursor::duplicates_here);
        }
        show(cursor)
    }

    /// Whether there is a record. The key of several values is not shown where the cursor moves among them.
    fn is_there(&mut self, cursor: &TreeCursor<'_>) -> Result<bool> {
        self.shows_key = cursor.duplicates()? <= 1;
        Ok(cursor.is_on_record())
    }

    fn stood(&mut self, yes: bool) -> bool {
        self.has_stood = yes;
        yes
    }

    fn next(&mut self, cursor: &mut TreeCursor<'_>) -> Result<bool> {
        if !self.has_stood {
            let stands = cursor.first()?;
            return Ok(self.stood(stands));
        }
        if !cursor.is_on_record() {
            // Behind the last record, where it stays.
            return Ok(false);
        }
        let moved = match self.op {
            CursorOp::NextDup if self.has_duplicates => return Ok(cursor.next_duplicate()?),
            CursorOp::NextNodup => cursor.next_key()?,
            _ => cursor.next()?,
        };
        if !moved {
            cursor.last()?;
        }
        Ok(moved)
    }

    fn prev(&mut self, cursor: &mut TreeCursor<'_>) -> Result<bool> {
        if !self.has_stood {
            let stands = cursor.last()?;
            return Ok(self.stood(stands));
        }
        let moved = match self.op {
            CursorOp::PrevDup if self.has_duplicates => return Ok(cursor.prev_duplicate()?),
            CursorOp::PrevNodup => cursor.prev_key()?,
            _ => cursor.prev()?,
        };
        if !moved {
            cursor.first()?;
        }
        Ok(moved)
    }

    fn show_many<'c>(
        cursor: &mut TreeCursor<'c>,
        piece: impl FnOnce(&mut TreeCursor<'c>) -> sapwood_store::Result<Option<&'c [u8]>>,
    ) -> Result<Shown> {
        let values = piece(cursor)?.ok_or(Code::NOTFOUND)?;
        Ok(Shown {
            key: cursor.whole_key()?.map(Val::to),
            value: Val::to(values),
        })
    }
}

/// The record that a cursor stands on.
#[inline]
fn show(cursor: &TreeCursor<'_>) -> Result<Shown> {
    let (key, value) = cursor.whole_record()?.ok_or(Code::NOTFOUND)?;
    Ok(Shown {
        key: Some(Val::to(key)),
        value: Val::to(value),
    })
}

/// A cursor without the lifetime of its snapshot.
#[allow(unsafe_code)] // A handle of a C program borrows from another one, which no lifetime can say.
fn outlive(tree: Tree<'_>) -> TreeCursor<'static> {
    // SAFETY: the snapshot stays where it is as long as the transaction's turn lasts. `Cursor::forget_other_turns`
    // drops the cursor, which looks at no page, before anything else is done with it in another turn.
    unsafe { std::mem::transmute::<TreeCursor<'_>, TreeCursor<'static>>(tree.cursor()) }
}
