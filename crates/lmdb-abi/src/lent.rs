//! Values that a program may write to, in memory that is put into the database later.
//!
//! - With `MDB_WRITEMAP`, what a write transaction has read. In LMDB such a value lies in the writable map, and
//!   programs store into it. Here it is lent as a copy, which stays where it is until the transaction changes
//!   something. Then, and when it is committed, what the program has changed is put into the database.
//! - With `MDB_RESERVE`, in a database with duplicates: where the value belongs is not known before the program has
//!   written it.

use std::cell::Cell;
use std::collections::HashMap;
use std::rc::Rc;

use crate::values::Val;

/// How much is lent at a time, in bytes. What is read beyond that cannot be written to.
const BYTES_MAX: usize = 64 << 20;

/// A copy of a value, which the program may change at any time.
pub(crate) type Copied = Rc<[Cell<u8>]>;

/// The values that a transaction has lent, by database and key.
#[derive(Default)]
pub(crate) struct Lent {
    values: HashMap<(u32, Box<[u8]>), Copied>,
    bytes: usize,
    /// A duplicate that the program is writing.
    reserved: Option<(u32, Box<[u8]>, Copied)>,
}

impl Lent {
    pub(crate) fn is_empty(&self) -> bool {
        self.values.is_empty() && self.reserved.is_none()
    }

    /// Room for a duplicate. There is no other one.
    pub(crate) fn reserve(&mut self, dbi: u32, key: &[u8], size: usize) -> Val {
        let room: Copied = std::iter::repeat_with(|| Cell::new(0)).take(size).collect();
        let data = room.as_ptr().cast_mut().cast();
        self.reserved = Some((dbi, key.into(), room));
        Val { size, data }
    }

    #[inline]
    pub(crate) fn has_reserved(&self) -> bool {
        self.reserved.is_some()
    }

    /// The duplicate that the program has written: database, key and value.
    pub(crate) fn take_reserved(&mut self) -> Option<(u32, Box<[u8]>, Vec<u8>)> {
        let (dbi, key, room) = self.reserved.take()?;
        Some((dbi, key, bytes(&room)))
    }

    /// How long a value may be that is lent next, in bytes.
    pub(crate) fn room(&self) -> usize {
        BYTES_MAX - self.bytes
    }

    /// What was lent of this record already, or else this copy of its value; `None` if there was no room for one.
    pub(crate) fn lend(&mut self, dbi: u32, key: &[u8], value: Option<Copied>) -> Option<Val> {
        let place = (dbi, key.into());
        let lent = match self.values.get(&place) {
            Some(lent) => lent,
            None => {
                let value = value.filter(|value| value.len() <= self.room())?;
                self.bytes += value.len();
                self.values.entry(place).or_insert(value)
            }
        };
        Some(Val {
            size: lent.len(),
            data: lent.as_ptr().cast_mut().cast(),
        })
    }

    /// Takes back what was read: database, key and value as the program has left it.
    pub(crate) fn take(&mut self) -> impl Iterator<Item = (u32, Box<[u8]>, Vec<u8>)> + use<> {
        self.bytes = 0;
        let lent = std::mem::take(&mut self.values).into_iter();
        lent.map(|((dbi, key), value)| (dbi, key, bytes(&value)))
    }
}

fn bytes(value: &Copied) -> Vec<u8> {
    value.iter().map(Cell::get).collect()
}

/// A copy to be lent, unless it is longer than there is room for.
pub(crate) fn copy(value: &[u8], room: usize) -> Option<Copied> {
    let is_short = value.len() <= room;
    is_short.then(|| value.iter().copied().map(Cell::new).collect())
}
