//! What the log looks like on disk. All numbers are little-endian.
//!
//! A log is a ring of segment files of equal size. Each begins with a header page, written once; the pages after it are
//! written with zeros before the first use, so that a later write changes neither the size nor the extents of the file
//! and `fdatasync(2)` has no metadata to write.
//!
//! | offset | size | segment header |
//! | --- | --- | --- |
//! | 0 | 8 | `SAPWLOG\0` |
//! | 8 | 4 | format version |
//! | 12 | 4 | CRC-32 of the rest of these 64 bytes |
//! | 16 | 16 | log id |
//! | 32 | 8 | bytes per segment, header page included |
//! | 40 | 4 | segments in the ring |
//! | 44 | 4 | place of this segment in the ring |
//! | 48 | 16 | zero |
//!
//! The space after the headers is one endless stream of bytes, addressed by LSN and wound around the ring. A record is
//! wherever its predecessor ends and may run over segment borders:
//!
//! | offset | size | record |
//! | --- | --- | --- |
//! | 0 | 4 | `SWR1` |
//! | 4 | 4 | CRC-32 of bytes 8 to 56 |
//! | 8 | 16 | log id |
//! | 24 | 8 | LSN of this byte 0 |
//! | 32 | 8 | durable LSN when the record was written |
//! | 40 | 4 | the predecessor's bytes 4 to 8 |
//! | 44 | 4 | length of the payload |
//! | 48 | 4 | CRC-32 of the payload |
//! | 52 | 4 | zero |
//! | 56 | | payload, then zeros up to a multiple of 8 |
//!
//! Log id and exact LSN tell a record from what an earlier lap left there. The predecessor's checksum, which covers its
//! own predecessor's and so on, tells it from what an abandoned future left there. The durable LSN tells damage from an
//! end: whatever lies before the durable LSN of any intact record was once acknowledged.

#![deny(clippy::indexing_slicing)]

use crate::error::{Error, Result};
use crate::{LogId, Lsn, Options, Position};

/// The format version this release writes, and the only one it reads.
pub(crate) const FORMAT_VERSION: u32 = 1;
/// The page at the start of each segment that holds its header.
pub(crate) const SEGMENT_HEADER_BYTES: u64 = 4096;
/// The size of a record's header.
pub(crate) const RECORD_HEADER_BYTES: usize = 56;
/// Records begin at multiples of this.
pub(crate) const RECORD_ALIGNMENT_BYTES: u64 = 8;

const SEGMENT_MAGIC: [u8; 8] = *b"SAPWLOG\0";
const SEGMENT_HEADER_USED_BYTES: usize = 64;
const RECORD_MAGIC: [u8; 4] = *b"SWR1";

/// The place of a segment in the ring of a certain log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SegmentHeader {
    pub(crate) log: LogId,
    pub(crate) shape: Options,
    pub(crate) place: u32,
}

impl SegmentHeader {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(SEGMENT_HEADER_USED_BYTES);
        bytes.extend_from_slice(&SEGMENT_MAGIC);
        bytes.extend_from_slice(&FORMAT_VERSION.to_le_bytes());
        bytes.extend_from_slice(&[0; 4]);
        bytes.extend_from_slice(&self.log.0);
        bytes.extend_from_slice(&self.shape.segment_bytes.to_le_bytes());
        bytes.extend_from_slice(&self.shape.segments.to_le_bytes());
        bytes.extend_from_slice(&self.place.to_le_bytes());
        bytes.resize(SEGMENT_HEADER_USED_BYTES, 0);
        let checksum = segment_header_checksum(&bytes);
        if let Some(field) = bytes.get_mut(12..16) {
            field.copy_from_slice(&checksum.to_le_bytes());
        }
        bytes
    }

    /// Reads the header of `file`. The version is looked at before anything a version could change.
    pub(crate) fn decode(bytes: &[u8], file: &str, check_sum: bool) -> Result<Self> {
        let damaged = |what| Error::CorruptSegment {
            file: file.to_owned(),
            what,
        };
        let mut fields = Fields(bytes);
        if fields.take() != Some(SEGMENT_MAGIC) {
            return Err(damaged("it does not begin like a log segment"));
        }
        let found = fields.u32().ok_or(damaged("it is cut short"))?;
        if found != FORMAT_VERSION {
            return Err(Error::UnknownVersion {
                file: file.to_owned(),
                found,
                known: FORMAT_VERSION,
            });
        }
        let header = (|| {
            let checksum = fields.u32()?;
            let log = LogId(fields.take()?);
            let segment_bytes = fields.u64()?;
            let segments = fields.u32()?;
            let place = fields.u32()?;
            let shape = Options {
                segment_bytes,
                segments,
            };
            Some((checksum, Self { log, shape, place }))
        })();
        let (checksum, header) = header.ok_or(damaged("it is cut short"))?;
        let used = bytes.get(..SEGMENT_HEADER_USED_BYTES);
        let used = used.ok_or(damaged("it is cut short"))?;
        if check_sum && checksum != segment_header_checksum(used) {
            return Err(damaged("the checksum of its header does not match"));
        }
        header.shape.check()?;
        Ok(header)
    }
}

fn segment_header_checksum(header: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(header.get(..12).unwrap_or_default());
    hasher.update(header.get(16..).unwrap_or_default());
    hasher.finalize()
}

/// The header of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RecordHeader {
    pub(crate) log: LogId,
    pub(crate) lsn: Lsn,
    pub(crate) durable: Lsn,
    pub(crate) previous: u32,
    pub(crate) payload_bytes: u32,
    pub(crate) payload_checksum: u32,
    /// Computed by `encode`; as found by `decode`.
    pub(crate) checksum: u32,
}

impl RecordHeader {
    /// The bytes of the header, with the checksum they end up with.
    pub(crate) fn encode(&mut self) -> [u8; RECORD_HEADER_BYTES] {
        let mut bytes = [0; RECORD_HEADER_BYTES];
        let mut rest: &mut [u8] = &mut bytes;
        put(&mut rest, &RECORD_MAGIC);
        put(&mut rest, &[0; 4]);
        put(&mut rest, &self.log.0);
        put(&mut rest, &self.lsn.0.to_le_bytes());
        put(&mut rest, &self.durable.0.to_le_bytes());
        put(&mut rest, &self.previous.to_le_bytes());
        put(&mut rest, &self.payload_bytes.to_le_bytes());
        put(&mut rest, &self.payload_checksum.to_le_bytes());
        self.checksum = crc32fast::hash(bytes.get(8..).unwrap_or_default());
        if let Some(field) = bytes.get_mut(4..8) {
            field.copy_from_slice(&self.checksum.to_le_bytes());
        }
        bytes
    }

    /// Whether it is worth looking closer.
    pub(crate) fn may_begin_with(bytes: &[u8]) -> bool {
        bytes.starts_with(&RECORD_MAGIC)
    }

    /// The header that `bytes` begin with, if there is an intact one.
    pub(crate) fn decode(bytes: &[u8], check_sum: bool) -> Option<Self> {
        let mut fields = Fields(bytes);
        if fields.take()? != RECORD_MAGIC {
            return None;
        }
        let header = Self {
            checksum: fields.u32()?,
            log: LogId(fields.take()?),
            lsn: Lsn(fields.u64()?),
            durable: Lsn(fields.u64()?),
            previous: fields.u32()?,
            payload_bytes: fields.u32()?,
            payload_checksum: fields.u32()?,
        };
        let covered = bytes.get(8..RECORD_HEADER_BYTES)?;
        (!check_sum || crc32fast::hash(covered) == header.checksum).then_some(header)
    }

    /// Where the next record begins, and what it must say about this one. `None` if there can be no such position.
    pub(crate) fn end(&self) -> Option<Position> {
        let bytes = record_bytes(u64::from(self.payload_bytes));
        Some(Position {
            lsn: Lsn(self.lsn.0.checked_add(bytes)?),
            chain: self.checksum,
        })
    }
}

/// What a record with so much payload takes up in the log.
pub(crate) const fn record_bytes(payload_bytes: u64) -> u64 {
    (RECORD_HEADER_BYTES as u64)
        .saturating_add(payload_bytes)
        .saturating_add(RECORD_ALIGNMENT_BYTES - 1)
        & !(RECORD_ALIGNMENT_BYTES - 1)
}

fn put(rest: &mut &mut [u8], field: &[u8]) {
    if let Some((head, tail)) = std::mem::take(rest).split_at_mut_checked(field.len()) {
        head.copy_from_slice(field);
        *rest = tail;
    }
}

/// Takes fixed-size fields off the front of a slice.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn take<const BYTES: usize>(&mut self) -> Option<[u8; BYTES]> {
        let (field, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*field)
    }

    fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_le_bytes)
    }
}

#[cfg(test)]
#[allow(clippy::indexing_slicing)]
mod tests {
    use super::*;

    fn record() -> RecordHeader {
        RecordHeader {
            log: LogId([7; 16]),
            lsn: Lsn(4096),
            durable: Lsn(800),
            previous: 0xdead_beef,
            payload_bytes: 13,
            payload_checksum: 99,
            checksum: 0,
        }
    }

    #[test]
    fn a_record_header_reads_back_and_every_flipped_bit_shows() {
        let mut header = record();
        let bytes = header.encode();
        assert_eq!(RecordHeader::decode(&bytes, true), Some(header));
        for bit in 0..bytes.len() * 8 {
            let mut damaged = bytes;
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(RecordHeader::decode(&damaged, true), None, "bit {bit}");
        }
        for length in 0..bytes.len() {
            assert_eq!(RecordHeader::decode(&bytes[..length], true), None);
        }
    }

    #[test]
    fn a_segment_header_reads_back_and_every_flipped_bit_shows() {
        let header = SegmentHeader {
            log: LogId([9; 16]),
            shape: Options::default(),
            place: 3,
        };
        let bytes = header.encode();
        assert_eq!(
            SegmentHeader::decode(&bytes, "log.3", true).unwrap(),
            header
        );
        for bit in 0..bytes.len() * 8 {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            let answer = SegmentHeader::decode(&damaged, "log.3", true);
            match bit / 8 {
                8..12 => assert!(matches!(answer, Err(Error::UnknownVersion { .. }))),
                _ => assert!(matches!(answer, Err(Error::CorruptSegment { .. }))),
            }
        }
    }

    #[test]
    fn records_are_aligned() {
        assert_eq!(record_bytes(0), 56);
        assert_eq!(record_bytes(1), 64);
        assert_eq!(record_bytes(8), 64);
        assert_eq!(record_bytes(u64::MAX) % RECORD_ALIGNMENT_BYTES, 0);
    }
}
