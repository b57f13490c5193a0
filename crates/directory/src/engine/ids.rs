//! The ids of new entries, where those of a store are given one after the other: a record of the meta table says which
//! is next. An engine that many servers write to has each of them lease some instead.

use super::{EntryId, Error, Read, Result, STORE_ENTRIES_MAX, Table, Write};

const NEXT_ID_KEY: &[u8] = b"next id";

/// The id that the next new entry of a store gets.
pub(crate) fn next<R: Read>(read: &R, store: u16) -> Result<EntryId> {
    let root = EntryId::root_of(store);
    match read.get(Table::Meta, &key(store))? {
        None => Ok(EntryId(root.0 + 1)),
        Some(id) => EntryId::from_key(&id)
            .filter(|id| *id > root && id.0 <= root.0 + STORE_ENTRIES_MAX)
            .ok_or_else(|| Error::Corrupt("the next entry id is no id".into())),
    }
}

/// Sets the id that the next new entry of its store gets.
pub(crate) fn put_next<W: Write>(txn: &mut W, id: EntryId) -> Result<()> {
    txn.put(Table::Meta, &key(id.store()), &id.to_key())
}

fn key(store: u16) -> Vec<u8> {
    let mut key = NEXT_ID_KEY.to_vec();
    if store > 0 {
        key.push(0);
        key.extend_from_slice(&store.to_be_bytes());
    }
    key
}

/// The ids that a transaction gives. The records are written once, at its end: an id that an operation got which was
/// undone is not given again.
#[derive(Clone, Debug, Default)]
pub(super) struct GivenIds {
    /// The next ones of the stores that have given any.
    next: Vec<EntryId>,
}

impl GivenIds {
    /// Gives an id of a store; none when the store has used all.
    pub(super) fn give<R: Read>(&mut self, read: &R, store: u16) -> Result<Option<EntryId>> {
        let known = self.next.iter().position(|id| id.store() == store);
        let at = match known {
            Some(at) => at,
            None => {
                self.next.push(next(read, store)?);
                self.next.len() - 1
            }
        };
        let id = self.next[at];
        if id.0 >= EntryId::root_of(store).0 + STORE_ENTRIES_MAX {
            return Ok(None);
        }
        self.next[at] = EntryId(id.0 + 1);
        Ok(Some(id))
    }

    /// Writes the records, at the end of a transaction.
    pub(super) fn put<W: Write>(&self, txn: &mut W) -> Result<()> {
        self.next.iter().try_for_each(|next| put_next(txn, *next))
    }
}
