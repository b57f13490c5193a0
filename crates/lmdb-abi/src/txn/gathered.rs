//! How cursors put values behind those of a key: see [`crate::gathered`].

use std::cmp::Ordering;

use sapwood_store::WriteCursor;

use super::{State, Txn};
use crate::database::{self, CORE};
use crate::error::{Code, Result};
use crate::gathered::{
    BYTES_MAX, Database, Gathered, KNOWN_BYTES, Key, Known, SHOWN_BYTES, Seat, VALUE_BYTES_MAX,
    WAITING_BYTES, show,
};
use crate::values::Val;
use crate::values::db_flags::DUPFIXED;

impl Txn {
    /// `MDB_SET` in a database with duplicates, by a cursor of its tree: the value that it has come to.
    pub(crate) fn seek(
        &mut self,
        dbi: u32,
        key: &[u8],
        cursor: &mut WriteCursor,
        seat: &mut Seat,
    ) -> Result<Option<Val>> {
        if self.gathered.shown.len() + VALUE_BYTES_MAX > SHOWN_BYTES {
            self.store_gathered(dbi)?;
        }
        seat.turn = self.gathered.turn;
        let Gathered {
            databases, shown, ..
        } = &mut self.gathered;
        let database = databases.get(dbi as usize);
        let database = database.filter(|database| database.tree.is_some());
        let known = database.and_then(|database| database.keys.get(&Key::of(key)?));
        seat.is_known = known.is_some();
        if let Some(known) = known {
            (seat.is_taken, seat.count) = (true, known.count);
            cursor.stand_on(key, known.first());
            return Ok(Some(show(shown, known.first())));
        }
        let State::Writing(Some(writing)) = &self.state else {
            return Err(Code::BAD_TXN);
        };
        let found = cursor.seek_exact(&writing.txn, key)?;
        let is_long = found.is_some_and(|found| found.len() > VALUE_BYTES_MAX);
        if is_long && database.is_some() {
            self.store_gathered(dbi)?;
            return self.seek(dbi, key, cursor, seat);
        }
        seat.is_taken = !is_long;
        seat.key.clear();
        seat.first.clear();
        seat.count = 0;
        let Some(found) = found else {
            seat.key.extend_from_slice(key);
            return Ok(None);
        };
        if seat.is_taken {
            seat.key.extend_from_slice(key);
            seat.first.extend_from_slice(found);
            seat.count = cursor.duplicates(&writing.txn)?;
        }
        Ok(Some(match database {
            Some(_) => show(shown, found),
            None => Val::to(found),
        }))
    }

    /// How many values the key has that a cursor has come to, if that is known without looking.
    pub(crate) fn count_at(&self, cursor: &WriteCursor, seat: &Seat) -> Result<Option<u64>> {
        match seat.is_known && seat.is_taken && seat.turn == self.gathered.turn {
            true => Ok(Some(seat.count)),
            false => self.count_beside(&seat.key, cursor, seat),
        }
    }

    /// How many values a key has that is not known, if the cursor has come to it and nothing has been changed since.
    pub(crate) fn count_beside(
        &self,
        key: &[u8],
        cursor: &WriteCursor,
        seat: &Seat,
    ) -> Result<Option<u64>> {
        let is_current = seat.is_taken && seat.turn == self.gathered.turn;
        let State::Writing(Some(writing)) = &self.state else {
            return Ok(None);
        };
        if !is_current || seat.is_known || seat.key != key {
            return Ok(None);
        }
        let come_to = cursor.known_key(&writing.txn)?;
        let is_there = come_to.is_some_and(|(come_to, _)| come_to == key);
        Ok(is_there.then_some(seat.count))
    }

    /// Gathers a value that a cursor puts behind those of a known key; whether it has, and the cursor stands on it.
    #[inline]
    pub(crate) fn gather(
        &mut self,
        dbi: u32,
        key: &[u8],
        value: &[u8],
        cursor: &mut WriteCursor,
        seat: &mut Seat,
    ) -> Result<bool> {
        if self.gathered.database(dbi).is_none() || self.open.closings() != self.closings {
            return Ok(false);
        }
        self.begin_change()?;
        let has_room = self.has_room_to_gather();
        let Gathered {
            databases,
            size,
            turn,
            ..
        } = &mut self.gathered;
        let known = databases.get_mut(dbi as usize).and_then(|database| {
            let known = database.keys.get_mut(&Key::of(key)?)?;
            Some((known, database.order, &mut database.size))
        });
        let Some((known, order, own_size)) = known.filter(|_| has_room) else {
            return Ok(false);
        };
        let order = database::compare(None, order, known.last(), value);
        if known.size != value.len() || order != Ordering::Less {
            return Ok(false);
        }
        if known.waiting.is_empty() {
            known.waiting.reserve(WAITING_BYTES);
            size.waiting += 1;
            own_size.waiting += 1;
        }
        known.waiting.extend_from_slice(value);
        known.last[..value.len()].copy_from_slice(value);
        known.count += 1;
        size.bytes += value.len();
        own_size.bytes += value.len();
        *turn += 1;
        (seat.is_taken, seat.is_known) = (true, true);
        (seat.turn, seat.count) = (*turn, known.count);
        cursor.stand_on(key, value);
        self.note_change();
        Ok(true)
    }

    /// Notes that a cursor has put a value behind the `count` others of a key, of which [`Txn::count_beside`] has told.
    pub(crate) fn note_last(
        &mut self,
        dbi: u32,
        key: &[u8],
        value: &[u8],
        count: u64,
        seat: &mut Seat,
    ) -> Result {
        seat.leave();
        if self.gathered.size.bytes >= BYTES_MAX {
            self.store_all_gathered()?;
        }
        let has_room = self.has_room_to_gather();
        let known = self.known_database(dbi)?;
        let has_own_order =
            known.comparators.keys.is_some() || known.comparators.duplicates.is_some();
        let is_fit = dbi >= CORE
            && known.flags & DUPFIXED != 0
            && !has_own_order
            && value.len() <= VALUE_BYTES_MAX
            && (count == 0 || seat.first.len() == value.len());
        let order = database::kind(known.flags).duplicates;
        let tree = known.tree.in_txn().filter(|_| is_fit && has_room);
        let (Some(tree), Some(key)) = (tree, Key::of(key)) else {
            return Ok(());
        };
        let Gathered {
            databases,
            size,
            turn,
            ..
        } = &mut self.gathered;
        if databases.len() <= dbi as usize {
            databases.resize_with(dbi as usize + 1, Database::new);
        }
        let database = &mut databases[dbi as usize];
        database.tree = Some(tree);
        database.order = order.unwrap_or_default().order;
        let mut known = Known {
            size: value.len(),
            first: [0; VALUE_BYTES_MAX],
            last: [0; VALUE_BYTES_MAX],
            count: count + 1,
            waiting: Vec::new(),
        };
        let first = if count == 0 { value } else { &seat.first };
        known.first[..first.len()].copy_from_slice(first);
        known.last[..value.len()].copy_from_slice(value);
        database.keys.insert(key, known);
        database.size.bytes += KNOWN_BYTES;
        size.bytes += KNOWN_BYTES;
        *turn += 1;
        (seat.is_taken, seat.is_known) = (true, true);
        (seat.turn, seat.count) = (*turn, count + 1);
        Ok(())
    }

    /// Whether the map surely has room for what has been gathered and for one value more: otherwise a program is to
    /// hear that the map is full from the call that fills it.
    fn has_room_to_gather(&self) -> bool {
        let State::Writing(Some(writing)) = &self.state else {
            return false;
        };
        let used = writing.txn.store_bytes_now();
        let needed = self.gathered.bytes_needed();
        self.gathered.size.bytes < BYTES_MAX && self.open.holds(used.saturating_add(needed))
    }

    /// Stores what has been gathered for a database, and forgets its keys.
    #[inline]
    pub(crate) fn store_gathered(&mut self, dbi: u32) -> Result {
        match self.gathered.database(dbi) {
            Some(_) => self.store_database(dbi),
            None => Ok(()),
        }
    }

    /// Stores all that has been gathered.
    pub(crate) fn store_all_gathered(&mut self) -> Result {
        for dbi in 0..self.gathered.databases.len() {
            self.store_gathered(dbi as u32)?;
        }
        Ok(())
    }

    #[cold]
    fn store_database(&mut self, dbi: u32) -> Result {
        let State::Writing(Some(writing)) = &mut self.state else {
            return Err(Code::BAD_TXN);
        };
        let Gathered {
            databases,
            size,
            turn,
            ..
        } = &mut self.gathered;
        let Some(database) = databases.get_mut(dbi as usize) else {
            return Ok(());
        };
        let keys = database.keys.iter();
        let mut keys: Vec<_> = keys
            .filter(|(_, known)| !known.waiting.is_empty())
            .collect();
        keys.sort_unstable_by_key(|(key, _)| *key);
        let stored = keys.into_iter().try_for_each(|(key, known)| {
            let tree = database.tree.ok_or(sapwood_store::Error::NoSuchTree)?;
            let stored = writing
                .txn
                .put_multiple(tree, key.bytes(), known.size, &known.waiting);
            stored.map(drop)
        });
        size.bytes -= database.size.bytes;
        size.waiting -= database.size.waiting;
        *turn += 1;
        database.clear();
        // They were answered for: without them the transaction is not what the program believes.
        self.has_failed |= stored.is_err();
        stored.map_err(Code::from)
    }
}
