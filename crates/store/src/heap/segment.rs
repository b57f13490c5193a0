//! Where records stand: extents that are filled from their beginning, by any number of commits.
//!
//! ```text
//!  offset  size  field
//!       0    24  common header; its checksum is of these 32 bytes, 0 if reach is
//!      24     4  pages
//!      28     4  reach  commits since the first one whose snapshots may meet records of it, and one more; 0: all may
//!      32        records, across page borders
//! ```
//!
//! A snapshot meets a record of a later commit where that commit stored a pointer to it in a leaf that both have. That
//! is not done to a leaf that a meta page leads to. So no snapshot as old as the newest meta page meets records of a
//! segment that is begun now, and one that stays keeps only what was written before the next checkpoint.
//!
//! One tree of the store has a record for each segment, behind one for its heap. All numbers of keys are big-endian:
//!
//! ```text
//!  key    4  heap            key    4  heap
//!         8  0                      8  first page
//!  value  8  first page of the      4  pages
//!            segment being filled   4  bytes in use, header included
//!         8  pages in all           4  of them in records that are the newest of their keys
//!         8  bytes in newest records
//! ```
//!
//! The record of heap 0 has the number of the last heap in place of the first page.

#![deny(clippy::indexing_slicing)]

use super::Record;
use crate::error::{Error, Result};
use crate::format::page::{PAGE_BYTES, PAGE_HEADER_BYTES, PAGE_NO_MAX, PageKind, checksum};
use crate::format::pages::ReadPages;
use crate::format::pointer::{RecordPointer, Segment};
use crate::ids::{CommitNo, HeapNo, PageNo};

/// Where the first record begins.
pub(crate) const SEGMENT_HEADER_BYTES: usize = PAGE_HEADER_BYTES + 8;

/// How long a segment is at most, in pages.
pub(crate) const SEGMENT_PAGES_MAX: u32 = if cfg!(test) { 4 } else { 256 };
/// The same at least.
const SEGMENT_PAGES_MIN: u32 = if cfg!(test) { 2 } else { 8 };

/// What is in a segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SegmentUse {
    pub(crate) pages: u32,
    /// Bytes in use, header included: where the next record will begin.
    pub(crate) used: u32,
    /// Bytes of records that are the newest of their keys.
    pub(crate) live: u32,
}

impl Segment {
    /// What it begins with, as a transaction makes it that becomes this commit. Snapshots from `met_since` on may meet
    /// records of it.
    pub(crate) fn header(
        self,
        commit: CommitNo,
        met_since: CommitNo,
    ) -> [u8; SEGMENT_HEADER_BYTES] {
        let reach = match met_since {
            CommitNo(0) => 0,
            CommitNo(since) => u32::try_from(commit.0.saturating_sub(since) + 1).unwrap_or(0),
        };
        let mut header = [0; SEGMENT_HEADER_BYTES];
        let mut put = |at: usize, part: &[u8]| {
            if let Some(place) = header.get_mut(at..at + part.len()) {
                place.copy_from_slice(part);
            }
        };
        put(4, &[PageKind::Segment as u8]);
        put(8, &self.first.0.to_le_bytes());
        put(16, &commit.0.to_le_bytes());
        put(24, &self.pages.to_le_bytes());
        put(28, &reach.to_le_bytes());
        if reach > 0 {
            let (_, covered) = header.split_at(4);
            let sum = checksum(&[covered]);
            header[..4].copy_from_slice(&sum.to_le_bytes());
        }
        header
    }

    /// Whether a record is in it.
    pub(crate) fn has(self, at: RecordPointer) -> bool {
        let pages = self.first.0..self.first.0 + u64::from(self.pages);
        pages.contains(&at.page().0)
    }

    /// The commit that began it, as what it begins with says.
    pub(crate) fn commit<P: ReadPages + ?Sized>(self, pages: &P) -> Result<CommitNo> {
        self.begun(pages).map(|(commit, _)| commit)
    }

    /// The first commit whose snapshots may meet records of it; 0 if any may.
    pub(crate) fn met_since<P: ReadPages + ?Sized>(self, pages: &P) -> Result<CommitNo> {
        self.begun(pages).map(|(_, met_since)| met_since)
    }

    fn begun<P: ReadPages + ?Sized>(self, pages: &P) -> Result<(CommitNo, CommitNo)> {
        let pointer = self.pointer(0).ok_or_else(|| self.corrupt())?;
        let header = pages.record(pointer, SEGMENT_HEADER_BYTES)?;
        let commit = header.get(16..).and_then(|rest| rest.first_chunk());
        let commit = commit.map_or(0, |bytes| u64::from_le_bytes(*bytes));
        let reach = header.get(28..).and_then(|rest| rest.first_chunk());
        let reach = reach.map_or(0, |bytes| u32::from_le_bytes(*bytes));
        let met_since = match reach.checked_sub(1) {
            Some(reach) => commit.saturating_sub(reach.into()),
            None => 0,
        };
        let (commit, met_since) = (CommitNo(commit), CommitNo(met_since));
        match header == self.header(commit, met_since) {
            true => Ok((commit, met_since)),
            false => Err(Error::corrupt(
                self.first,
                "is not the segment that it should be",
            )),
        }
    }

    /// Where so many bytes of it end.
    pub(crate) fn pointer(self, bytes: u32) -> Option<RecordPointer> {
        let is_inside = u64::from(bytes) <= u64::from(self.pages) * PAGE_BYTES as u64;
        RecordPointer::at(self.first, u64::from(bytes)).filter(|_| is_inside)
    }

    /// Gives each record among its first `used` bytes to `each`, in the order in which they were written.
    pub(crate) fn each<'r, P: ReadPages + ?Sized>(
        self,
        pages: &'r P,
        used: u32,
        mut each: impl FnMut(RecordPointer, Record<'r>) -> Result<()>,
    ) -> Result<()> {
        let mut at = SEGMENT_HEADER_BYTES;
        while at < used as usize {
            let pointer = self.pointer(at as u32);
            let pointer = pointer.ok_or_else(|| self.corrupt())?;
            let record = Record::read(pages, pointer)?;
            at += Record::bytes(record.value.len());
            each(pointer, record)?;
        }
        match at == used as usize || used == 0 {
            true => Ok(()),
            false => Err(self.corrupt()),
        }
    }

    fn corrupt(self) -> Error {
        Error::corrupt(self.first, "records do not end where its segment does")
    }
}

impl SegmentUse {
    /// How many bytes of each page live.
    pub(crate) fn live_share(self) -> u64 {
        u64::from(self.live / self.pages)
    }

    pub(crate) fn encode(self) -> [u8; 12] {
        let mut value = [0; 12];
        let numbers = [self.pages, self.used, self.live];
        for (place, number) in value.as_chunks_mut().0.iter_mut().zip(numbers) {
            *place = number.to_le_bytes();
        }
        value
    }

    /// `None` if that cannot be.
    pub(crate) fn decode(value: &[u8]) -> Option<Self> {
        let value: &[u8; 12] = value.try_into().ok()?;
        let [pages, used, live] = *value.as_chunks().0 else {
            return None;
        };
        let [pages, used, live] = [pages, used, live].map(u32::from_le_bytes);
        let bytes = u64::from(pages) * PAGE_BYTES as u64;
        // All of it can be counted with 32 bits.
        let fits = u64::from(used) <= bytes && live <= used && bytes <= u64::from(u32::MAX);
        let fits = fits && used.is_multiple_of(8);
        (fits && pages > 0).then_some(Self { pages, used, live })
    }
}

/// What there is of a heap in all.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct HeapUse {
    /// The segment that is being filled; 0: none.
    pub(crate) open: PageNo,
    pub(crate) pages: u64,
    /// Bytes of records that are the newest of their keys.
    pub(crate) live: u64,
}

impl HeapUse {
    pub(crate) fn encode(self) -> [u8; 24] {
        let mut value = [0; 24];
        let numbers = [self.open.0, self.pages, self.live];
        for (place, number) in value.as_chunks_mut().0.iter_mut().zip(numbers) {
            *place = number.to_le_bytes();
        }
        value
    }

    /// `None` if that cannot be.
    pub(crate) fn decode(value: &[u8]) -> Option<Self> {
        let value: &[u8; 24] = value.try_into().ok()?;
        let [open, pages, live] = *value.as_chunks().0 else {
            return None;
        };
        let [open, pages, live] = [open, pages, live].map(u64::from_le_bytes);
        let fits = open <= PAGE_NO_MAX && pages <= PAGE_NO_MAX && live / PAGE_BYTES as u64 <= pages;
        fits.then_some(Self {
            open: PageNo(open),
            pages,
            live,
        })
    }

    /// Whether more of it is room that records left than records take.
    pub(crate) fn is_wasteful(self) -> bool {
        let spare = 2 * u64::from(SEGMENT_PAGES_MAX) * PAGE_BYTES as u64;
        let bytes = self.pages.saturating_mul(PAGE_BYTES as u64);
        bytes > self.live.saturating_mul(2).saturating_add(spare)
    }

    /// How long the next segment had better be, in pages, if a record of so many bytes has to go into it.
    pub(crate) fn next_segment_pages(self, record_bytes: usize) -> u32 {
        let bytes = SEGMENT_HEADER_BYTES + record_bytes;
        // No value has more bytes than 32 bits can say.
        let needed = bytes.div_ceil(PAGE_BYTES) as u32;
        let share = u32::try_from(self.pages / 8).unwrap_or(u32::MAX);
        needed.max(share.clamp(SEGMENT_PAGES_MIN, SEGMENT_PAGES_MAX))
    }
}

/// The key of a segment; of its heap with page 0.
pub(crate) fn segment_key(heap: HeapNo, first: PageNo) -> [u8; 12] {
    let mut key = [0; 12];
    let (place, rest) = key.split_at_mut(4);
    place.copy_from_slice(&heap.0.to_be_bytes());
    rest.copy_from_slice(&first.0.to_be_bytes());
    key
}

/// The first page of a segment with this key, if it is of the heap.
pub(crate) fn segment_of(heap: HeapNo, key: &[u8]) -> Option<PageNo> {
    let page = key.strip_prefix(&heap.0.to_be_bytes())?;
    let page = u64::from_be_bytes(page.try_into().ok()?);
    (1..=PAGE_NO_MAX).contains(&page).then_some(PageNo(page))
}

/// The heap and the segment that a record of the tree of segments tells of, with how many of its bytes are in use;
/// `None` if it is the record of a heap.
pub(crate) fn segment_in_use(key: &[u8], value: &[u8]) -> Result<Option<(HeapNo, Segment, u32)>> {
    let damaged = || Error::Damaged("what is known of a segment is damaged".into());
    let heap = key.first_chunk().map(|heap| u32::from_be_bytes(*heap));
    let heap = HeapNo(heap.ok_or_else(damaged)?);
    if key == segment_key(heap, PageNo(0)) {
        return Ok(None);
    }
    let first = segment_of(heap, key).ok_or_else(damaged)?;
    let SegmentUse { pages, used, .. } = SegmentUse::decode(value).ok_or_else(damaged)?;
    Ok(Some((heap, Segment { first, pages }, used)))
}

/// What the tree of segments says of heaps up to `last` that were written anew, of whose segments so many bytes are in
/// use. They are in the order of heaps and pages.
pub(crate) fn segment_records(
    last: HeapNo,
    segments: &[(HeapNo, Segment, u32)],
) -> Vec<([u8; 12], Vec<u8>)> {
    if last == HeapNo::default() {
        return Vec::new();
    }
    let counter = HeapUse {
        open: PageNo(u64::from(last.0)),
        ..HeapUse::default()
    };
    let key = segment_key(HeapNo::default(), PageNo(0));
    let mut records = vec![(key, counter.encode().to_vec())];
    for heap in segments.chunk_by(|(one, ..), (next, ..)| one == next) {
        let mut sum = HeapUse::default();
        let mut parts = Vec::with_capacity(heap.len());
        for &(heap, Segment { first, pages }, used) in heap {
            let live = used.saturating_sub(SEGMENT_HEADER_BYTES as u32);
            sum.open = first;
            sum.pages += u64::from(pages);
            sum.live += u64::from(live);
            let usage = SegmentUse { pages, used, live };
            parts.push((segment_key(heap, first), usage.encode().to_vec()));
        }
        if let Some((number, ..)) = heap.first() {
            records.push((segment_key(*number, PageNo(0)), sum.encode().to_vec()));
        }
        records.append(&mut parts);
    }
    records
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::page::Page;

    struct File(Vec<u8>);

    const SEGMENT: Segment = Segment {
        first: PageNo(5),
        pages: 2,
    };

    impl ReadPages for File {
        fn page(&self, number: PageNo) -> Result<&Page> {
            Err(Error::corrupt(number, "there are only records"))
        }

        fn extent(&self, first: PageNo, _pages: u32) -> Result<&[u8]> {
            Err(Error::corrupt(first, "there are only records"))
        }

        fn record(&self, at: RecordPointer, bytes: usize) -> Result<&[u8]> {
            let from = at.offset().checked_sub(5 * PAGE_BYTES as u64);
            from.and_then(|from| self.0.get(from as usize..)?.get(..bytes))
                .ok_or_else(|| Error::corrupt(at.page(), "lies outside of the store"))
        }
    }

    #[test]
    fn records_are_met_in_the_order_of_writing() {
        let mut file = File(SEGMENT.header(CommitNo(3), CommitNo(2)).to_vec());
        let values: Vec<Vec<u8>> = (0..40).map(|n| vec![n as u8; n * 7]).collect();
        let mut pointers = Vec::new();
        for (n, value) in values.iter().enumerate() {
            pointers.push(SEGMENT.pointer(file.0.len() as u32).unwrap());
            let record = Record {
                commit: CommitNo(n as u64),
                previous: RecordPointer(n as u64),
                key: (n as u64).to_be_bytes(),
                value,
            };
            record.encode(&mut file.0);
        }
        let used = file.0.len() as u32;
        let mut met = Vec::new();
        let each = |at, record: Record<'_>| {
            met.push((at, record.key, record.value.to_vec()));
            Ok(())
        };
        SEGMENT.each(&file, used, each).unwrap();
        assert_eq!(met.len(), values.len());
        for (n, (at, key, value)) in met.into_iter().enumerate() {
            assert_eq!((at, key), (pointers[n], (n as u64).to_be_bytes()));
            assert_eq!(value, values[n]);
        }
        assert!(SEGMENT.each(&file, used - 8, |_, _| Ok(())).is_err());
        assert!(SEGMENT.pointer(2 * PAGE_BYTES as u32).is_some());
        assert!(SEGMENT.pointer(2 * PAGE_BYTES as u32 + 8).is_none());
        assert!(SEGMENT.pointer(12).is_none());
    }

    #[test]
    fn what_a_segment_begins_with_is_read_back() {
        for (commit, met_since) in [(3, 2), (3, 3), (1 << 40, 7), (1, 1)] {
            let header = SEGMENT.header(CommitNo(commit), CommitNo(met_since));
            let file = File(header.to_vec());
            assert_eq!(SEGMENT.commit(&file).unwrap(), CommitNo(commit));
            // What is too far back is not told: any snapshot may meet it then.
            let told = if commit == 1 << 40 { 0 } else { met_since };
            assert_eq!(SEGMENT.met_since(&file).unwrap(), CommitNo(told));
            let is_told = told > 0;
            for at in 0..if is_told { SEGMENT_HEADER_BYTES } else { 0 } {
                let mut damaged = File(file.0.clone());
                damaged.0[at] ^= 1;
                assert!(SEGMENT.met_since(&damaged).is_err(), "byte {at}");
            }
        }
    }

    #[test]
    fn what_is_in_a_segment_is_read_back() {
        let usage = SegmentUse {
            pages: 200,
            used: 70_000,
            live: 12_345,
        };
        let value = usage.encode();
        assert_eq!(SegmentUse::decode(&value), Some(usage));
        for len in 0..value.len() {
            assert_eq!(SegmentUse::decode(&value[..len]), None);
        }
        for (pages, used, live) in [(0, 0, 0), (1, 4104, 0), (1, 40, 48), (1, 41, 0)] {
            let value = SegmentUse { pages, used, live }.encode();
            assert_eq!(SegmentUse::decode(&value), None);
        }
    }
}
