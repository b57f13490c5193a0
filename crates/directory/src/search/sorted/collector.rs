//! What is gathered of the entries that a sorted search finds: a record for each, which is its sort keys and its id.

use std::path::Path;

use crate::engine::{EntryId, Read};
use crate::error::Result;
use crate::matching::candidate::Candidate;
use crate::matching::sort_key::{Form, SortKey};
use crate::schema::Schema;
use crate::sorting::{Merge, RECORD_BYTES_MAX, Spool};

/// Bytes of the normal forms of all keys of an entry together. An escaped form has twice as many at most.
const KEYS_BYTES_MAX: usize = 1 << 10;
/// Bytes of an id, which is the end of a record.
const ID_BYTES: usize = 8;
/// Bytes around a key at most.
const KEY_ENVELOPE_BYTES: usize = 3;

const _: () = assert!(
    2 * KEYS_BYTES_MAX + sapwood_ldap::controls::SORT_KEYS_MAX * KEY_ENVELOPE_BYTES + ID_BYTES
        <= RECORD_BYTES_MAX
);

/// Gathers records.
#[derive(Debug)]
pub(in crate::search) struct Collector {
    keys: Vec<SortKey>,
    form: Form,
    /// Those up to this one are passed over: the pages before had them.
    after: Option<Vec<u8>>,
    spool: Spool,
    record: Vec<u8>,
    is_full: bool,
}

impl Collector {
    /// By these keys, the weightiest first; what does not fit into memory goes to a file in the folder.
    pub(super) fn new(keys: Vec<SortKey>, after: Option<Vec<u8>>, folder: &Path) -> Collector {
        Collector {
            form: form_of(keys.len()),
            keys,
            after,
            spool: Spool::new(folder),
            record: Vec::new(),
            is_full: false,
        }
    }

    /// Of the entries that do not stand in the index of a key.
    pub(super) fn of_absent(key: SortKey, folder: &Path) -> Collector {
        let behind_all = key.before_absent();
        Collector {
            form: Form::OfIndex,
            ..Collector::new(vec![key], Some(behind_all), folder)
        }
    }

    /// Takes an entry, and of `work` what that was.
    pub(in crate::search) fn take<R: Read>(
        &mut self,
        schema: &Schema,
        id: EntryId,
        candidate: &mut Candidate<'_, R>,
        work: &mut u64,
    ) -> Result<()> {
        self.record.clear();
        for key in &self.keys {
            key.append((schema, self.form), candidate, work, &mut self.record)?;
        }
        let turns = self.keys.first().is_some_and(SortKey::is_reverse);
        self.record.extend_from_slice(&turned(id, turns));
        let is_before = |after: &Vec<u8>| self.record <= *after;
        if !self.is_full && !self.after.as_ref().is_some_and(is_before) {
            self.is_full = !self.spool.push(&self.record)?;
        }
        Ok(())
    }

    /// Whether there was no room for one.
    pub(super) fn is_full(&self) -> bool {
        self.is_full
    }

    /// The records in their order.
    pub(super) fn merge(self) -> Result<Merge> {
        self.spool.merge()
    }
}

/// What is compared of each of so many keys.
pub(super) fn form_of(keys: usize) -> Form {
    Form::Cut(KEYS_BYTES_MAX / keys.max(1))
}

/// An id as it ends a record: entries with the same keys come in the order of their ids, or in reverse if the first key
/// is in reverse.
fn turned(id: EntryId, turns: bool) -> [u8; ID_BYTES] {
    let key = id.to_key();
    match turns {
        true => key.map(|byte| !byte),
        false => key,
    }
}

/// The entry of a record.
pub(super) fn id_of(record: &[u8], turns: bool) -> Option<EntryId> {
    let id = EntryId::from_key(record.last_chunk::<ID_BYTES>()?)?;
    EntryId::from_key(&turned(id, turns))
}

/// What of a record is its keys.
pub(super) fn keys_of(record: &[u8]) -> Option<&[u8]> {
    Some(record.split_last_chunk::<ID_BYTES>()?.0)
}
