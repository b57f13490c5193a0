//! The records of a transaction: read, put and deleted, with LMDB's refusals.

use sapwood_store::{TreeId, WriteCursor};

use super::Txn;
use super::databases::TreePlace;
use crate::database::{self, MAIN, RECORD_BYTES};
use crate::error::{Code, Result};
use crate::lent::{self, Copied};
use crate::values::db_flags::{DUPFIXED, DUPSORT, INTEGERDUP, INTEGERKEY};
use crate::values::env_flags::WRITEMAP;
use crate::values::write_flags::{APPEND, APPENDDUP, MULTIPLE, NODUPDATA, NOOVERWRITE};
use crate::values::{KEY_BYTES_MAX, VALUE_BYTES_MAX, Val};

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
    /// The cursor that was given stands on it.
    Stood,
    /// The room that was asked for, to be filled before the transaction's next change.
    Room(Val),
    /// The key was there; this is its first value.
    Exists(Val),
}

impl Txn {
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

    /// `mdb_get`, for the program.
    pub(crate) fn show(&mut self, dbi: u32, key: &[u8]) -> Result<Val> {
        let shown = Val::to(self.get(dbi, key)?);
        if !self.lends() || self.database(dbi)?.flags & DUPSORT != 0 {
            return Ok(shown);
        }
        let room = self.lent.room();
        let copy = lent::copy(self.get(dbi, key)?, room);
        Ok(self.lend(dbi, key, copy).unwrap_or(shown))
    }

    /// Whether the program may write to what it reads.
    pub(crate) fn lends(&self) -> bool {
        !self.is_reading() && self.open.flags() & WRITEMAP != 0
    }

    /// How long a value may be that is lent next, in bytes.
    pub(crate) fn room_to_lend(&self) -> usize {
        self.lent.room()
    }

    /// Where the program may write to the value of a record, in a database without duplicates; `None` if too much has
    /// been lent already.
    pub(crate) fn lend(&mut self, dbi: u32, key: &[u8], value: Option<Copied>) -> Option<Val> {
        self.lent.lend(dbi, key, value)
    }

    /// Stores what the program has written into the values that were lent to it.
    pub(super) fn take_back_lent(&mut self) -> Result {
        self.put_reserved()?;
        for (dbi, key, value) in self.lent.take() {
            // What stands for a database, or is in one that is closed by now, is not the program's to change.
            let is_same = match self.get_if_there(dbi, &key) {
                Ok(current) => current.is_none_or(|current| *current == *value),
                Err(_) => true,
            };
            if is_same || self.refuse_database_record(dbi, &key).is_err() {
                continue;
            }
            if !self.is_stretched {
                self.open.store.set_bytes_max(u64::MAX);
                self.is_stretched = true;
            }
            let tree = self.tree_for_writing(dbi)?;
            let writing = self.writing_mut()?;
            writing.has_changed = true;
            let stored = writing.txn.put(tree, &key, &value);
            self.note_failure(stored)?;
        }
        Ok(())
    }

    /// Stores the duplicate that the program was given room for.
    pub(super) fn put_reserved(&mut self) -> Result {
        let Some((dbi, key, value)) = self.lent.take_reserved() else {
            return Ok(());
        };
        let tree = self.tree_for_writing(dbi)?;
        let writing = self.writing_mut()?;
        writing.has_changed = true;
        let stored = writing.txn.put(tree, &key, &value);
        self.note_failure(stored).map(drop)
    }

    /// `mdb_put`, and what `mdb_cursor_put` stores, which a cursor need not search for where it stands. (Nothing that
    /// stands there has been gathered, then.)
    pub(crate) fn put(
        &mut self,
        dbi: u32,
        key: &[u8],
        value: Value<'_>,
        flags: u32,
        cursor: Option<&mut WriteCursor>,
    ) -> Result<Stored> {
        self.begin_change()?;
        if cursor.is_none() {
            self.store_gathered(dbi)?;
        }
        let (db_flags, tree) = self.check_put(dbi, key, value)?;
        if flags & NOOVERWRITE != 0
            && let Some(value) = self.get_if_there(dbi, key)?
        {
            return Ok(Stored::Exists(Val::to(value)));
        }
        if flags & APPEND != 0 && db_flags & DUPSORT != 0 && self.is_last_key(dbi, key)? {
            return Err(Code::KEYEXIST);
        }
        let tree = match tree {
            Some(tree) => tree,
            None => self.tree_for_writing(dbi)?,
        };
        let Value::Bytes(value) = value else {
            if db_flags & DUPSORT != 0 {
                return Ok(Stored::Room(self.lent.reserve(dbi, key, value.len())));
            }
            return self.reserve(tree, key, value.len(), flags);
        };
        let writing = self.writing_mut()?;
        writing.has_changed = true;
        let txn = &mut writing.txn;
        let has_duplicates = db_flags & DUPSORT != 0;
        let is_last = flags & APPENDDUP != 0 && has_duplicates;
        let cursor = cursor.filter(|cursor| cursor.tree() == tree);
        let done = cursor.as_ref().map_or(Stored::Done, |_| Stored::Stood);
        let stored = match cursor {
            Some(cursor) if flags & APPEND != 0 => cursor.append(txn, key, value).map(|()| true),
            Some(cursor) if is_last => cursor.append_duplicate(txn, key, value).map(|()| true),
            Some(cursor) => cursor.put(txn, key, value),
            None if flags & APPEND != 0 => txn.append(tree, key, value).map(|()| true),
            None if is_last => txn.append_duplicate(tree, key, value).map(|()| true),
            None => txn.put(tree, key, value),
        };
        let is_new = self.note_failure(stored)?;
        match !is_new && flags & NODUPDATA != 0 && has_duplicates {
            true => Err(Code::KEYEXIST),
            false => Ok(done),
        }
    }

    /// Refuses what cannot be put; gives the database's flags and its tree, unless that is yet to be made.
    #[inline]
    pub(crate) fn check_put(
        &mut self,
        dbi: u32,
        key: &[u8],
        value: Value<'_>,
    ) -> Result<(u32, Option<TreeId>)> {
        let (db_flags, tree) = self.flags_and_tree(dbi)?;
        check_sizes(db_flags, key, value)?;
        if value.len() == 0 && db_flags & DUPSORT != 0 && !self.may_be_empty(dbi, key)? {
            return Err(Code::BAD_VALSIZE);
        }
        if dbi == MAIN {
            self.refuse_database_record(dbi, key)?;
        }
        Ok((db_flags, tree))
    }

    /// A value of no length is never one of several.
    fn may_be_empty(&mut self, dbi: u32, key: &[u8]) -> Result<bool> {
        let other = self.get_if_there(dbi, key)?;
        Ok(other.is_none_or(<[u8]>::is_empty))
    }

    fn reserve(&mut self, tree: TreeId, key: &[u8], len: usize, flags: u32) -> Result<Stored> {
        if flags & APPEND != 0 {
            let writing = self.writing_mut()?;
            if writing.txn.view(tree)?.cursor().seek(key)? {
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
            self.begin_change()?;
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
            self.put(dbi, key, Value::Bytes(value), flags, None)?;
            *done += 1;
            rest = others;
        }
        Ok(())
    }

    /// `mdb_del`: one value of the key, or all.
    pub(crate) fn delete(&mut self, dbi: u32, key: &[u8], value: Option<&[u8]>) -> Result {
        self.begin_change()?;
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

    pub(super) fn get_if_there(&mut self, dbi: u32, key: &[u8]) -> Result<Option<&[u8]>> {
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
        if dbi != MAIN || !self.may_have_named()? {
            return Ok(());
        }
        // There are few trees and many records. What is no name of a database stands for none.
        let is_name = match database::tree_of(key) {
            Ok(tree) => self.has_tree(&tree)?,
            Err(_) => false,
        };
        let stands_for_one = is_name
            && self
                .get_if_there(MAIN, key)?
                .is_some_and(|value| value.len() == RECORD_BYTES);
        if stands_for_one {
            return Err(Code::INCOMPATIBLE);
        }
        Ok(())
    }
}

#[inline]
fn check_sizes(flags: u32, key: &[u8], value: Value<'_>) -> Result {
    let is_allowed = |bytes: usize| (1..=KEY_BYTES_MAX).contains(&bytes);
    let key_fits = is_allowed(key.len()) && (flags & INTEGERKEY == 0 || database::is_integer(key));
    let value_fits = if flags & DUPSORT == 0 {
        value.len() <= VALUE_BYTES_MAX
    } else {
        let is_short = value.len() <= KEY_BYTES_MAX;
        let may_be_empty = flags & (DUPFIXED | INTEGERDUP) == 0;
        is_short
            && (may_be_empty || value.len() > 0)
            && (flags & INTEGERDUP == 0 || matches!(value.len(), 4 | 8))
    };
    if key_fits && value_fits {
        Ok(())
    } else {
        Err(Code::BAD_VALSIZE)
    }
}
