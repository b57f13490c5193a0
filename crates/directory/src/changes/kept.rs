//! How far back the change feed reaches.

use std::time::Duration;

use super::record::Record;
use crate::engine::{Result, Write};

/// How much of the change feed is kept, in all stores together. What is older is forgotten by later commits, little by
/// little; the last record of each store always stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChangesKept {
    /// For how long, as the directory's clock tells.
    pub age: Duration,
    /// Bytes on the disk at most, as long as nobody reads.
    pub unread_bytes: u64,
    /// The same while somebody reads; a quarter of the data if that is more.
    pub read_bytes: u64,
}

impl Default for ChangesKept {
    /// Seven days, 64 MiB and 256 MiB.
    fn default() -> ChangesKept {
        ChangesKept {
            age: Duration::from_hours(7 * 24),
            unread_bytes: 64 << 20,
            read_bytes: 256 << 20,
        }
    }
}

/// The feed is trimmed once in so many commits of a store.
const TRIM_COMMITS: u64 = 256;
/// The same, after so many bytes of records.
const TRIM_BYTES: u64 = 1 << 20;
/// What a record takes besides its bytes, about.
const RECORD_EXTRA_BYTES: u64 = 24;

/// What a writer has added to the feed since it was trimmed.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Added {
    bytes: u64,
}

impl Added {
    /// Counts the record of a transaction and, now and then, forgets twice as much of what is too old or too much: so
    /// the feed shrinks while it is written, and no commit pays for much more than itself.
    pub(crate) fn count<W: Write>(
        &mut self,
        txn: &mut W,
        record_bytes: usize,
        kept: &ChangesKept,
        is_read: bool,
        now_micros: impl FnOnce() -> u64,
    ) -> Result<()> {
        self.bytes += record_bytes as u64 + RECORD_EXTRA_BYTES;
        if self.bytes < TRIM_BYTES && !txn.commit().0.is_multiple_of(TRIM_COMMITS) {
            return Ok(());
        }
        // Other processes may have written, too.
        let work_bytes = 2 * self.bytes.max(TRIM_BYTES / 2);
        self.bytes = 0;
        let bytes_max = match is_read {
            true => kept.read_bytes.max(txn.data_bytes()? / 4),
            false => kept.unread_bytes,
        };
        let age_micros = u64::try_from(kept.age.as_micros()).unwrap_or(u64::MAX);
        let oldest = now_micros().saturating_sub(age_micros);
        let is_old =
            |record: &[u8]| Record::read(record).is_ok_and(|record| record.begun().micros < oldest);
        txn.trim_changes(bytes_max, work_bytes, is_old)
    }
}
