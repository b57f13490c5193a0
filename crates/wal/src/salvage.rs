//! What the users of a log leave in the memory they shared when all of them die: records that were appended and not
//! written yet.
//!
//! Nothing in that memory is believed. Records are taken from it one after the other as long as each is one that
//! recovery would take if it were in the files: whole, of this log, at its place, and naming the checksum of the one
//! before it, the first of them that of the last record in the files. So memory in which something else is left, or
//! which the log has outlived, changes nothing.

use std::io::IoSlice;

use crate::buffer;
use crate::error::Result;
use crate::format::{RECORD_HEADER_BYTES, RecordHeader};
use crate::guard::Guard;
use crate::log::Wal;
use crate::shared::{Shared, State};
use crate::sync::AtomicU64;
use crate::{Lsn, Position};

impl Wal {
    /// Hands to the system what the last users of the log, all of whom are dead, have left in the memory of
    /// [`Wal::share_buffer`], `words`, with their state `left`. For the one that opens the log first, before it is read
    /// for [`Wal::start`]; `floor` is a position from which it can be read. The memory stays as it is, so that this can
    /// be interrupted and done again.
    ///
    /// # Errors
    /// Those of [`Wal::records`] and [`Records::next`](crate::Records::next); [`Error::Io`](crate::Error::Io).
    pub fn salvage(&self, floor: Position, left: &Shared, words: &[AtomicU64]) -> Result<()> {
        let (written, end) = (left.written(), left.end());
        let length = end.0.saturating_sub(buffer::block_of(written).0);
        let is_there = written < end && length <= words.len() as u64 * 8;
        if left.state() == State::Stopped || !is_there || !self.guards.has(Guard::SalvageBuffer) {
            return Ok(());
        }
        let mut records = self.records(floor)?;
        while records.next()?.is_some() {}
        let from = records.position();
        if from.lsn < written || from.lsn >= end {
            return Ok(());
        }
        let mut bytes = vec![0; buffer::offset(end.0 - from.lsn.0)];
        buffer::load(words, from.lsn, &mut bytes);
        let behind = self.end_of_records(from, &bytes);
        let room = self.capacity().saturating_sub(from.lsn.0 - floor.lsn.0);
        if from.lsn < behind && behind.0 - from.lsn.0 <= room {
            self.ring.prepare(from.lsn, behind)?;
            let salvaged = bytes.get(..buffer::offset(behind.0 - from.lsn.0));
            let salvaged = salvaged.unwrap_or_default();
            self.ring.write(from.lsn, &[IoSlice::new(salvaged)])?;
        }
        Ok(())
    }

    /// Where the records end that `bytes` begin with, the first of which follows `at`.
    fn end_of_records(&self, mut at: Position, mut bytes: &[u8]) -> Lsn {
        while let Some((end, rest)) = self.next_position(at, bytes) {
            at = end;
            bytes = rest;
        }
        at.lsn
    }

    /// The position behind the record that `bytes` begin with, and the bytes there.
    fn next_position<'b>(&self, at: Position, bytes: &'b [u8]) -> Option<(Position, &'b [u8])> {
        let header = RecordHeader::decode(bytes, true)?;
        let end = header.end()?;
        let payload_bytes = header.payload_bytes as usize;
        let payload = bytes.get(RECORD_HEADER_BYTES..)?.get(..payload_bytes)?;
        // A record of another place may end before this one begins.
        let length = end.lsn.0.checked_sub(at.lsn.0)?;
        let rest = bytes.get(buffer::offset(length)..)?;
        let is_next = header.log == self.id()
            && header.lsn == at.lsn
            && header.previous == at.chain
            && u64::from(header.payload_bytes) <= self.record_bytes_max()
            && crc32fast::hash(payload) == header.payload_checksum;
        is_next.then_some((end, rest))
    }
}
