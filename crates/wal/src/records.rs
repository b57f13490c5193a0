//! Reading the log back: one record after the other, and the judgement where it ends.

use crate::error::{Error, Result};
use crate::format::{RECORD_ALIGNMENT_BYTES, RECORD_HEADER_BYTES, RecordHeader};
use crate::guard::{Guard, Guards};
use crate::ring::Ring;
use crate::{Lsn, Position};

/// How much of the log is read at once.
const READ_BYTES: usize = 256 * 1024;

/// A record that was read back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// Where it begins.
    pub lsn: Lsn,
    /// Where its successor begins.
    pub end: Position,
    /// What was appended.
    pub payload: &'a [u8],
}

/// The records of a log from some position on, in order. Made by [`Wal::records`](crate::Wal::records).
#[derive(Debug)]
pub struct Records<'a> {
    reader: Reader<'a>,
    payload_bytes_max: u64,
    at: Position,
    /// Everything before it is durable, as the records say.
    known_durable: Lsn,
    state: ReadState,
    /// Intact headers from the end on, up to a full lap.
    leftovers: Vec<Lsn>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReadState {
    Reading,
    Ended,
    Failed,
}

impl<'a> Records<'a> {
    pub(crate) fn new(
        ring: &'a Ring,
        from: Position,
        payload_bytes_max: u64,
        guards: Guards,
    ) -> Result<Self> {
        if !from.lsn.0.is_multiple_of(RECORD_ALIGNMENT_BYTES)
            || from.lsn.0.checked_add(ring.capacity()).is_none()
            || !ring.has_reached(from.lsn, false)?
        {
            return Err(Error::Corrupt {
                lsn: from.lsn,
                what: "the log never reached this position",
            });
        }
        Ok(Self {
            reader: Reader {
                ring,
                guards,
                buffer: Vec::new(),
                filled: 0,
                start: from.lsn,
            },
            payload_bytes_max,
            at: from,
            known_durable: from.lsn,
            state: ReadState::Reading,
            leftovers: Vec::new(),
        })
    }

    /// The next record, or `None` at the end of the log, where an append that was never acknowledged may have left
    /// anything.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if a later record proves that the one here had been durable, [`Error::Io`] if it cannot be
    /// read. Both are final.
    #[expect(
        clippy::should_implement_trait,
        reason = "the record borrows the buffer"
    )]
    pub fn next(&mut self) -> Result<Option<Record<'_>>> {
        if self.state != ReadState::Reading {
            return Ok(None);
        }
        self.state = ReadState::Failed;
        let Some((header, end)) = self.read_header()? else {
            self.judge_end()?;
            self.state = ReadState::Ended;
            return Ok(None);
        };
        self.state = ReadState::Reading;
        self.known_durable = self.known_durable.max(header.durable);
        self.at = end;
        let lsn = header.lsn;
        let payload = self.reader.payload_of(&header)?;
        Ok(Some(Record { lsn, end, payload }))
    }

    /// Behind the last record that was returned.
    pub fn position(&self) -> Position {
        self.at
    }

    /// The end of the log, once it has been found.
    pub(crate) fn end(&self) -> Option<Position> {
        (self.state == ReadState::Ended).then_some(self.at)
    }

    /// Everything before this is durable; what is between here and the end may or may not be.
    pub(crate) fn known_durable(&self) -> Lsn {
        self.known_durable.min(self.at.lsn)
    }

    /// Where something begins behind the end that looks like a record.
    pub(crate) fn leftovers(&self) -> &[Lsn] {
        &self.leftovers
    }

    /// The header of an intact record at the present position, and where that record ends.
    fn read_header(&mut self) -> Result<Option<(RecordHeader, Position)>> {
        let guards = self.reader.guards;
        let Some(header) = self.reader.header_at(self.at.lsn)? else {
            return Ok(None);
        };
        let Some(end) = header.end() else {
            return Ok(None);
        };
        let follows = header.previous == self.at.chain || !guards.has(Guard::Chain);
        if !follows || u64::from(header.payload_bytes) > self.payload_bytes_max {
            return Ok(None);
        }
        let payload = self.reader.payload_of(&header)?;
        let is_whole = payload.len() == header.payload_bytes as usize;
        let is_intact = crc32fast::hash(payload) == header.payload_checksum
            || !guards.has(Guard::PayloadChecksum);
        Ok((is_whole && is_intact).then_some((header, end)))
    }

    /// There is no record here. If a record further on was written when this place was durable already, one is lost;
    /// otherwise whatever is found from here on was left by an interrupted append or an abandoned future.
    fn judge_end(&mut self) -> Result<()> {
        let end = self.at.lsn;
        let leftovers = &mut self.leftovers;
        let mut is_damaged = false;
        leftovers.extend(self.reader.header_at(end)?.map(|_| end));
        self.reader.for_each_header_after(end, |header| {
            is_damaged |= header.durable > end;
            leftovers.push(header.lsn);
        })?;
        if is_damaged && self.reader.guards.has(Guard::DamageIsNoEnd) {
            return Err(Error::Corrupt {
                lsn: end,
                what: "a record that had been durable cannot be read",
            });
        }
        Ok(())
    }
}

/// A read-ahead buffer over the stream.
#[derive(Debug)]
struct Reader<'a> {
    ring: &'a Ring,
    guards: Guards,
    buffer: Vec<u8>,
    /// How much of the buffer holds bytes of the stream, the first of them at `start`.
    filled: usize,
    start: Lsn,
}

impl Reader<'_> {
    /// The bytes from `lsn` on, fewer than `length` where the log has no more segments. `length` is at most what the
    /// ring holds.
    fn peek(&mut self, lsn: Lsn, length: usize) -> Result<&[u8]> {
        let is_buffered = |skip: &usize| {
            let left = self.filled.checked_sub(*skip);
            left.is_some_and(|left| left >= length)
        };
        let skip = usize::try_from(lsn.0.wrapping_sub(self.start.0)).ok();
        let skip = match skip.filter(is_buffered) {
            Some(skip) => skip,
            None => {
                self.fill(lsn, length)?;
                0
            }
        };
        let bytes = self.buffer.get(skip..self.filled).unwrap_or_default();
        Ok(bytes.get(..length).unwrap_or(bytes))
    }

    /// Reads at least `length` bytes, if the log has them.
    fn fill(&mut self, lsn: Lsn, length: usize) -> Result<()> {
        let lap = usize::try_from(self.ring.capacity()).unwrap_or(usize::MAX);
        let wanted = length.max(READ_BYTES.min(lap));
        if self.buffer.len() < wanted {
            self.buffer = vec![0; wanted];
        }
        self.start = lsn;
        self.filled = 0;
        self.filled = self.ring.read(lsn, &mut self.buffer[..wanted])?;
        Ok(())
    }

    /// The payload behind a header; shorter where the log has no more segments.
    fn payload_of(&mut self, header: &RecordHeader) -> Result<&[u8]> {
        let from = Lsn(header.lsn.0.saturating_add(RECORD_HEADER_BYTES as u64));
        self.peek(from, header.payload_bytes as usize)
    }

    /// The header of a record of this log that begins exactly here.
    fn header_at(&mut self, lsn: Lsn) -> Result<Option<RecordHeader>> {
        let guards = self.guards;
        let log = self.ring.log();
        let bytes = self.peek(lsn, RECORD_HEADER_BYTES)?;
        let header = RecordHeader::decode(bytes, guards.has(Guard::HeaderChecksum));
        Ok(header.filter(|header| {
            (header.log == log || !guards.has(Guard::LogIdentity))
                && (header.lsn == lsn || !guards.has(Guard::ExactLsn))
        }))
    }

    /// Visits the intact headers of this log that begin behind `end` and less than a lap away, each exactly where it
    /// says.
    fn for_each_header_after(
        &mut self,
        end: Lsn,
        mut visit: impl FnMut(&RecordHeader),
    ) -> Result<()> {
        let capacity = self.ring.capacity();
        let step = RECORD_ALIGNMENT_BYTES as usize;
        let mut at = 0;
        while at < capacity {
            let length =
                usize::try_from(capacity - at).map_or(READ_BYTES, |left| left.min(READ_BYTES));
            let from = Lsn(end.0.saturating_add(at));
            let chunk = self.peek(from, length)?;
            if chunk.is_empty() {
                // Nothing was ever written behind the last segment.
                break;
            }
            let candidates: Vec<u64> = chunk
                .chunks_exact(step)
                .enumerate()
                .filter(|(_, bytes)| RecordHeader::may_begin_with(bytes))
                .map(|(index, _)| at + (index * step) as u64)
                .collect();
            at += chunk.len() as u64;
            for offset in candidates {
                let lsn = Lsn(end.0.saturating_add(offset));
                if offset > 0
                    && let Some(header) = self.header_at(lsn)?
                {
                    visit(&header);
                }
            }
        }
        Ok(())
    }
}
