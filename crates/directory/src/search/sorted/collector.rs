//! What is gathered of the entries that a sorted search finds: a record for each, which is its sort keys and its id.

use std::path::Path;

use super::spool::{Merge, RECORD_BYTES_MAX, Spool};
use crate::engine::{EntryId, Read};
use crate::error::Result;
use crate::matching::candidate::Candidate;
use crate::matching::sort_key::SortKey;
use crate::schema::Schema;

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
    /// Those up to this one are passed over: the pages before had them.
    after: Option<Vec<u8>>,
    spool: Spool,
    record: Vec<u8>,
    is_full: bool,
    /// What the primary key of a list view's target is not before.
    target: Option<Vec<u8>>,
    /// How many records there are, and how many are before the target.
    pub(super) count: u64,
    pub(super) before_target: u64,
}

impl Collector {
    /// By these keys, the weightiest first; what does not fit into memory goes to a file in the folder.
    pub(super) fn new(keys: Vec<SortKey>, after: Option<Vec<u8>>, folder: &Path) -> Collector {
        Collector {
            keys,
            after,
            spool: Spool::new(folder),
            record: Vec::new(),
            is_full: false,
            target: None,
            count: 0,
            before_target: 0,
        }
    }

    /// Counts the records whose primary key is before that of a value; false if the rule of the key does not fit it.
    pub(super) fn aim(&mut self, schema: &Schema, value: &[u8]) -> bool {
        let bytes_max = self.key_bytes_max();
        let key = self.keys.first();
        self.target = key.and_then(|key| key.of_value((schema, bytes_max), value));
        self.target.is_some()
    }

    /// Bytes of the normal form of a key.
    fn key_bytes_max(&self) -> usize {
        KEYS_BYTES_MAX / self.keys.len().max(1)
    }

    /// Takes an entry, and of `work` what that was.
    pub(in crate::search) fn take<R: Read>(
        &mut self,
        schema: &Schema,
        id: EntryId,
        candidate: &mut Candidate<'_, R>,
        work: &mut u64,
    ) -> Result<()> {
        let bytes_max = self.key_bytes_max();
        self.record.clear();
        for key in &self.keys {
            key.append((schema, bytes_max), candidate, work, &mut self.record)?;
        }
        self.record.extend_from_slice(&id.to_key());
        let is_before = |after: &Vec<u8>| self.record <= *after;
        if !self.is_full && !self.after.as_ref().is_some_and(is_before) {
            self.is_full = !self.spool.push(&self.record)?;
            self.count += 1;
            let is_before = |target: &Vec<u8>| self.record < *target;
            self.before_target += u64::from(self.target.as_ref().is_some_and(is_before));
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

/// The entry of a record.
pub(super) fn id_of(record: &[u8]) -> Option<EntryId> {
    EntryId::from_key(record.last_chunk::<ID_BYTES>()?)
}
