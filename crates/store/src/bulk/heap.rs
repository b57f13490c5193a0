//! The values of a tree that is built, where they stand out of line: gathered until there are enough for a segment.

use crate::error::{Error, Result};
use crate::format::page::PAGE_BYTES;
use crate::format::pages::AppendPages;
use crate::format::pointer::{RecordPointer, Segment};
use crate::format::pointer_leaf::KEY_BYTES;
use crate::heap::{RECORD_BYTES_MAX, Record, SEGMENT_HEADER_BYTES, SEGMENT_PAGES_MAX};
use crate::ids::HeapNo;

/// Values on their way to a segment.
pub(super) struct HeapBuilder {
    heap: HeapNo,
    bytes: Vec<u8>,
    /// Their keys, and where among the bytes each begins.
    records: Vec<([u8; KEY_BYTES], u32)>,
}

impl HeapBuilder {
    pub(super) fn new(heap: HeapNo) -> Self {
        Self {
            heap,
            bytes: Vec::new(),
            records: Vec::new(),
        }
    }

    /// Adds a value. Gives the keys and pointers of those before it once they fill a segment, which is written.
    pub(super) fn push<P: AppendPages + ?Sized>(
        &mut self,
        pages: &mut P,
        key: &[u8],
        value: &[u8],
    ) -> Result<Placed> {
        let key = key.try_into().map_err(|_| Error::ValueSize {
            found: key.len(),
            expected: KEY_BYTES,
        })?;
        if Record::bytes(value.len()) > RECORD_BYTES_MAX {
            return Err(Error::ValueTooLong(value.len()));
        }
        let full = SEGMENT_PAGES_MAX as usize * PAGE_BYTES;
        let end = SEGMENT_HEADER_BYTES + self.bytes.len() + Record::bytes(value.len());
        let placed = match end > full && !self.records.is_empty() {
            true => self.write(pages)?,
            false => Placed::default(),
        };
        let at = u32::try_from(self.bytes.len()).map_err(|_| Error::ValueTooLong(value.len()))?;
        let record = Record {
            commit: pages.commit(),
            previous: RecordPointer::NONE,
            key,
            value,
        };
        record.encode(&mut self.bytes);
        self.records.push((key, at));
        Ok(placed)
    }

    /// Writes what is gathered as a segment; the keys and pointers of what is in it.
    pub(super) fn write<P: AppendPages + ?Sized>(&mut self, pages: &mut P) -> Result<Placed> {
        if self.records.is_empty() {
            return Ok(Placed::default());
        }
        let used = SEGMENT_HEADER_BYTES + self.bytes.len();
        // A value has at most 2^32 - 1 bytes, so the pages of a segment are at most 2^20 + 1.
        let count = used.div_ceil(PAGE_BYTES) as u32;
        let segment = Segment {
            first: pages.take_extent(count)?,
            pages: count,
        };
        // Its records are the first of their keys, so that only snapshots with its leaves meet them.
        let header = segment.header(pages.commit(), pages.commit());
        let zeroes = [0; PAGE_BYTES];
        let rest = count as usize * PAGE_BYTES - used;
        pages.write_extent(segment.first, [&header, &self.bytes, &zeroes[..rest]])?;
        pages.keep_segment(self.heap, segment, used as u32)?;
        self.bytes.clear();
        let records = std::mem::take(&mut self.records);
        Ok(Placed { segment, records })
    }
}

/// Records that have been written, with the bytes of their segment before each.
#[derive(Default)]
pub(super) struct Placed {
    segment: Segment,
    records: Vec<([u8; KEY_BYTES], u32)>,
}

impl Placed {
    /// Keys and pointers, in the order of the keys.
    pub(super) fn pointers(&self) -> impl Iterator<Item = (&[u8; KEY_BYTES], RecordPointer)> {
        self.records.iter().filter_map(|(key, at)| {
            let bytes = SEGMENT_HEADER_BYTES as u64 + u64::from(*at);
            Some((key, RecordPointer::at(self.segment.first, bytes)?))
        })
    }
}
