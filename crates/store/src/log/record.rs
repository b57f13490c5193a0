//! The log record of a commit: what changed, page by page, byte by byte.
//!
//! ```text
//!  offset  size  field
//!       0     1  kind       8: the changes follow; 9: the data file was synced first, there are only new roots, and places
//!       1     1  zero
//!       2     2  store      number of the store within the environment
//!       4     4  timeline
//!       8     8  commit
//!      16     v  pages      in the roots: see `format::roots`
//!     ...    6v  catalog    the words of the record of the tree of trees
//!     ...     v  n          bytes of the name of the tree whose record is held beside it, at most 31: these, and 6v for that record. 0: none
//!     ...    6v  free       the words of the record of the free list
//!     ...     v  n          bytes of the free pages in the roots, and these
//!     ...    6v  segments   the words of the record of the tree of segments
//!     ...        items      up to the end of the record
//!
//!  page:    1  tag 3
//!           v  number, v base (0: begins as zeroes)
//!           4  checksum of the finished page
//!              runs of changed bytes: see `difference`
//!  extent:  1  tag 2
//!           v  first page, v pages, v bytes up to the trailing zeroes, the bytes
//!  records: 1  tag 4
//!           v  place, v bytes, the bytes: what was added to a segment
//!  changed: 1  tag 6
//!           v  place, v n, and n times, one behind the other there, a record that replaces another one: see `value_deltas`
//!              2p + 1: the record at place p, which was moved as it is; or
//!              2p: it replaces the one at place p; v bytes of the value, 4 checksum of the record, and runs:
//!              v bytes taken over, v bytes passed over, v new bytes, those
//!  places:  1  tag 5
//!           v  number of the leaf, v n, and n times
//!           v  slots between this one and the one before, v place
//! ```
//!
//! Of a leaf that the same commit has made there are no places beside the page. See [`crate::heap`] for what these two
//! are about.
//!
//! A transaction over several stores is one record, of kind 3, with such a record for each of them in it:
//!
//! ```text
//!       0     1  kind       3
//!       1     1  zero
//!       2     2  n          stores
//!       4    4n  lengths    u32 each
//!    4+4n        records    one after the other, in ascending order of their stores
//! ```
//!
//! All integers are little-endian; `v` is a variable-length integer, seven bits to a byte, the low ones first. A page
//! is rebuilt from its base as of the commit before, so records are replayed one after the other and none is left out.
//! A page's own number, commit and checksum are not among the changes: they follow from the item.

#![deny(clippy::indexing_slicing)]

mod difference;
mod pointers;
mod value_deltas;

use sapwood_wal::Position;

use crate::error::{Error, Result};
use crate::format::catalog::{Catalog, tree_from_words, tree_to_words};
use crate::format::free_list::recent::Recent;
use crate::format::page::{PAGE_BYTES, Page};
use crate::format::pointer::RecordPointer;
use crate::format::roots::{Head, Roots};
use crate::format::tree_record::TreeRecord;
use crate::ids::{CommitNo, PageNo};
use crate::varint;

pub(crate) use pointers::{PointersItem, encode_pointers};
pub(crate) use value_deltas::{
    ValueDeltasItem, begin_value_deltas, encode_moved, encode_value_delta,
};

// Others were those of formats before this one.
const KIND_MULTI_STORE: u8 = 3;
const KIND_CHANGES: u8 = 10;
const KIND_ROOTS: u8 = 9;
const TAG_EXTENT: u8 = 2;
const TAG_PAGE: u8 = 3;
const TAG_RECORDS: u8 = 4;
const TAG_VALUE_DELTAS: u8 = 6;
const TAG_POINTERS: u8 = 5;
/// What stands before the roots.
const FIXED_BYTES: usize = 16;

/// Zeroes are looked for in blocks of so many bytes.
const BLOCK_BYTES: usize = 64;

/// The head of a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct RecordHeader {
    /// Whether the changes follow; otherwise they are in the data file already, but for places.
    pub(crate) has_changes: bool,
    pub(crate) store: u16,
    pub(crate) timeline: u32,
    pub(crate) commit: CommitNo,
    pub(crate) roots: Roots,
}

impl RecordHeader {
    /// The head that the commit leaves, with the end of its record.
    pub(crate) fn head(&self, log: Position) -> Head {
        Head {
            commit: self.commit,
            log,
            roots: self.roots,
        }
    }

    /// Begins a record.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.clear();
        out.push(match self.has_changes {
            true => KIND_CHANGES,
            false => KIND_ROOTS,
        });
        out.push(0);
        out.extend_from_slice(&self.store.to_le_bytes());
        out.extend_from_slice(&self.timeline.to_le_bytes());
        out.extend_from_slice(&self.commit.0.to_le_bytes());
        // Mostly small numbers: they take a third of the room, of which there is little in the record of a small
        // commit.
        let roots = &self.roots;
        varint::put(roots.pages, out);
        put_tree(roots.catalog.tree(), out);
        match roots.catalog.held() {
            Some((name, record)) => {
                varint::put(name.len() as u64, out);
                out.extend_from_slice(name);
                put_tree(record, out);
            }
            None => varint::put(0, out),
        }
        put_tree(&roots.free, out);
        let recent = roots.recent.used();
        varint::put(recent.len() as u64, out);
        out.extend_from_slice(recent);
        put_tree(&roots.segments, out);
    }

    /// Reads the head of a record; the rest are its items.
    pub(crate) fn decode(record: &[u8]) -> Result<(Self, Items<'_>)> {
        let (fixed, mut items) = record
            .split_first_chunk::<FIXED_BYTES>()
            .ok_or_else(|| damaged("is too short"))?;
        let [kind, zero, s0, s1, t0, t1, t2, t3, commit @ ..] = *fixed;
        let has_changes = match kind {
            KIND_CHANGES => true,
            KIND_ROOTS => false,
            _ => return Err(damaged("is of an unknown kind, perhaps of another version")),
        };
        let roots = take_roots(&mut items)?;
        if zero != 0 {
            return Err(damaged("has something where nothing should be"));
        }
        let header = Self {
            has_changes,
            store: u16::from_le_bytes([s0, s1]),
            timeline: u32::from_le_bytes([t0, t1, t2, t3]),
            commit: CommitNo(u64::from_le_bytes(commit)).checked()?,
            roots,
        };
        let items = Items {
            has_changes,
            rest: items,
        };
        Ok((header, items))
    }
}

/// The records in a record: itself, or one for each store of a multi-store transaction.
pub(crate) struct Parts<'a> {
    lengths: &'a [[u8; 4]],
    rest: &'a [u8],
}

impl<'a> Parts<'a> {
    pub(crate) fn of(record: &'a [u8]) -> Result<Self> {
        match record.split_first_chunk::<4>() {
            Some((&[KIND_MULTI_STORE, 0, n0, n1], rest)) => {
                let bytes = usize::from(u16::from_le_bytes([n0, n1])) * 4;
                let lengths = rest.get(..bytes).ok_or_else(|| damaged("is too short"))?;
                let (lengths, _) = lengths.as_chunks();
                let rest = rest.get(bytes..).unwrap_or_default();
                let all = lengths.iter();
                let sum = all.map(|length| u64::from(u32::from_le_bytes(*length)));
                if sum.sum::<u64>() != rest.len() as u64 {
                    return Err(damaged("has parts of impossible lengths"));
                }
                Ok(Self { lengths, rest })
            }
            _ => Ok(Self {
                lengths: &[],
                rest: record,
            }),
        }
    }

    /// The length of what stands before so many parts.
    pub(crate) fn head_bytes(parts: usize) -> usize {
        4 + 4 * parts
    }

    /// What stands before the parts of these lengths.
    pub(crate) fn encode(lengths: &[u32]) -> Vec<u8> {
        let count = u16::try_from(lengths.len()).unwrap_or(u16::MAX);
        let mut out = vec![KIND_MULTI_STORE, 0];
        out.extend_from_slice(&count.to_le_bytes());
        for length in lengths {
            out.extend_from_slice(&length.to_le_bytes());
        }
        out
    }
}

impl<'a> Iterator for Parts<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let length = match self.lengths.split_first() {
            Some((length, lengths)) => {
                self.lengths = lengths;
                u32::from_le_bytes(*length) as usize
            }
            None if self.rest.is_empty() => return None,
            None => self.rest.len(),
        };
        let (part, rest) = self.rest.split_at_checked(length)?;
        self.rest = rest;
        Some(part)
    }
}

fn damaged(what: &str) -> Error {
    Error::Damaged(format!("a log record {what}"))
}

/// What a page was copied from.
#[derive(Clone, Copy)]
pub(crate) struct Base<'a> {
    pub(crate) number: PageNo,
    pub(crate) page: &'a Page,
}

/// Adds a sealed page that was copied from `base`, or began as zeroes.
pub(crate) fn encode_page(page: &Page, base: Option<Base<'_>>, out: &mut Vec<u8>) {
    out.push(TAG_PAGE);
    varint::put(page.number().0, out);
    varint::put(base.map_or(0, |base| base.number.0), out);
    out.extend_from_slice(&page.checksum().to_le_bytes());
    difference::put(base.map(|base| base.page.bytes()), page.bytes(), out);
}

/// How many bytes there are before the zeroes at the end. Zeroes may fill most of a page, so blocks of them are passed
/// over at once.
fn used_bytes(extent: &[u8]) -> usize {
    let is_zero = |block: &[u8]| block.iter().fold(0, |all, byte| all | byte) == 0;
    let blocks = extent.rchunks(BLOCK_BYTES);
    let zeroes = blocks.take_while(|block| is_zero(block)).count() * BLOCK_BYTES;
    let rest = extent.get(..extent.len().saturating_sub(zeroes));
    let last = rest.and_then(|rest| rest.iter().rposition(|&byte| byte != 0));
    last.map_or(0, |at| at + 1)
}

/// Adds an extent.
pub(crate) fn encode_extent(first: PageNo, extent: &[u8], out: &mut Vec<u8>) {
    let used = used_bytes(extent);
    out.push(TAG_EXTENT);
    varint::put(first.0, out);
    varint::put((extent.len() / PAGE_BYTES) as u64, out);
    varint::put(used as u64, out);
    out.extend_from_slice(extent.get(..used).unwrap_or_default());
}

/// Adds bytes that were added to a segment at this place.
pub(crate) fn encode_records(at: RecordPointer, bytes: &[u8], out: &mut Vec<u8>) {
    debug_assert!(at != RecordPointer::NONE && is_of_records(bytes));
    out.push(TAG_RECORDS);
    varint::put(at.0, out);
    varint::put(bytes.len() as u64, out);
    out.extend_from_slice(bytes);
}

/// Records, and the header of their segment, begin and end at places.
fn is_of_records(bytes: &[u8]) -> bool {
    let unit = RecordPointer(1).offset() as usize;
    !bytes.is_empty() && bytes.len().is_multiple_of(unit)
}

/// What happens to one page, extent or part of a segment.
#[derive(Debug)]
pub(crate) enum Item<'a> {
    Page(PageItem<'a>),
    Extent {
        first: PageNo,
        pages: u32,
        /// Zeroes follow.
        bytes: &'a [u8],
    },
    Records {
        at: RecordPointer,
        bytes: &'a [u8],
    },
    ValueDeltas(ValueDeltasItem<'a>),
    Pointers(PointersItem<'a>),
}

/// How a page is rebuilt.
#[derive(Debug)]
pub(crate) struct PageItem<'a> {
    pub(crate) number: PageNo,
    pub(crate) base: Option<PageNo>,
    checksum: u32,
    /// Checked: they lie within a page.
    runs: &'a [u8],
}

impl PageItem<'_> {
    /// Makes the page of its base, which is in `page` already (or zeroes, if it has none).
    pub(crate) fn apply(&self, page: &mut Page, commit: CommitNo) -> Result<()> {
        let before = page.clone();
        difference::apply(self.runs, before.bytes(), page.bytes_mut())?;
        page.finish(self.number, commit);
        let what = "cannot be rebuilt from its base and the log";
        match page.checksum() == self.checksum {
            true => Ok(()),
            false => Err(Error::corrupt(self.number, what)),
        }
    }
}

/// The items of a record, in order.
#[derive(Debug)]
pub(crate) struct Items<'a> {
    /// Otherwise there are places only.
    has_changes: bool,
    rest: &'a [u8],
}

impl<'a> Items<'a> {
    /// The next item; `None` at the end.
    pub(crate) fn next(&mut self) -> Result<Option<Item<'a>>> {
        let Some((&tag, rest)) = self.rest.split_first() else {
            return Ok(None);
        };
        self.rest = rest;
        Ok(Some(match tag {
            TAG_POINTERS => Item::Pointers(PointersItem::take(&mut self.rest)?),
            _ if !self.has_changes => return Err(damaged("has an item of an unexpected kind")),
            TAG_PAGE => Item::Page(self.page()?),
            TAG_EXTENT => self.extent()?,
            TAG_RECORDS => self.records()?,
            TAG_VALUE_DELTAS => Item::ValueDeltas(ValueDeltasItem::take(&mut self.rest)?),
            _ => return Err(damaged("has an unknown item")),
        }))
    }

    fn page(&mut self) -> Result<PageItem<'a>> {
        let number = PageNo(take_number(&mut self.rest)?);
        let base = PageNo(take_number(&mut self.rest)?);
        let checksum = take(&mut self.rest, 4)?;
        let checksum = checksum.try_into().map_err(|_| damaged("is too short"))?;
        let from = self.rest;
        difference::walk(&mut self.rest, PAGE_BYTES, |_, _| ())?;
        let runs = from.get(..from.len() - self.rest.len()).unwrap_or_default();
        Ok(PageItem {
            number,
            base: (base.0 != 0).then_some(base),
            checksum: u32::from_le_bytes(checksum),
            runs,
        })
    }

    fn extent(&mut self) -> Result<Item<'a>> {
        let first = PageNo(take_number(&mut self.rest)?);
        let pages = u32::try_from(take_number(&mut self.rest)?).ok();
        let used = usize::try_from(take_number(&mut self.rest)?).ok();
        let (Some(pages), Some(used)) = (pages, used) else {
            return Err(damaged("has an extent of impossible length"));
        };
        let bytes = take(&mut self.rest, used)?;
        if used > pages as usize * PAGE_BYTES {
            return Err(damaged("has more bytes than the extent they belong to"));
        }
        Ok(Item::Extent {
            first,
            pages,
            bytes,
        })
    }

    fn records(&mut self) -> Result<Item<'a>> {
        let at = RecordPointer(take_number(&mut self.rest)?);
        let length = usize::try_from(take_number(&mut self.rest)?);
        let bytes = take(&mut self.rest, length.unwrap_or(usize::MAX))?;
        if at == RecordPointer::NONE || !is_of_records(bytes) {
            return Err(damaged("adds to a segment what cannot be there"));
        }
        Ok(Item::Records { at, bytes })
    }
}

fn take<'a>(input: &mut &'a [u8], length: usize) -> Result<&'a [u8]> {
    let (taken, rest) = input
        .split_at_checked(length)
        .ok_or_else(|| damaged("ends early"))?;
    *input = rest;
    Ok(taken)
}

fn take_roots(input: &mut &[u8]) -> Result<Roots> {
    let pages = take_number(input)?;
    let tree = take_tree(input)?;
    let catalog = match take_number(input)? {
        0 => Catalog::of(tree),
        bytes => {
            let name = take(input, usize::try_from(bytes).unwrap_or(usize::MAX))?;
            Catalog::holding(tree, name, take_tree(input)?)
                .ok_or_else(|| damaged("names a tree wrongly"))?
        }
    };
    let free = take_tree(input)?;
    let used = take_number(input)?;
    let used = take(input, usize::try_from(used).unwrap_or(usize::MAX))?;
    let recent = Recent::from_used(used);
    let recent = recent.ok_or_else(|| damaged("names too many free pages"))?;
    let segments = take_tree(input)?;
    Roots {
        pages,
        catalog,
        free,
        recent,
        segments,
    }
    .checked()
}

fn put_tree(record: &TreeRecord, out: &mut Vec<u8>) {
    for word in tree_to_words(record) {
        varint::put(word, out);
    }
}

fn take_tree(input: &mut &[u8]) -> Result<TreeRecord> {
    let mut words = [0; TreeRecord::BYTES / 8];
    for word in &mut words {
        *word = take_number(input)?;
    }
    tree_from_words(&words)
}

fn take_number(input: &mut &[u8]) -> Result<u64> {
    varint::take(input).ok_or_else(|| damaged("has a number that ends early or is too large"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::format::page::PageKind;
    use crate::format::tree_record::TreeKind;

    fn page(number: u64, commit: u64, changes: &[(usize, u8)]) -> Page {
        let mut page = Page::zeroed();
        page.init(PageKind::Leaf, 0, PageNo(number), CommitNo(commit));
        for &(at, byte) in changes {
            page.bytes_mut()[24 + at % (PAGE_BYTES - 24)] = byte;
        }
        page.seal();
        page
    }

    fn copied(page: &Page) -> Base<'_> {
        Base {
            number: PageNo(5),
            page,
        }
    }

    pub(crate) fn header() -> RecordHeader {
        let tree = TreeRecord::empty(TreeKind::COUNTED);
        RecordHeader {
            has_changes: true,
            store: 0,
            timeline: 1,
            commit: CommitNo(9),
            roots: Roots {
                catalog: Catalog::holding(*Catalog::empty().tree(), b"colours", tree).unwrap(),
                segments: TreeRecord {
                    records: 300,
                    ..TreeRecord::empty(TreeKind::COMPACT)
                },
                ..Roots::empty()
            },
        }
    }

    #[test]
    fn a_small_change_is_a_small_item() {
        let base = page(5, 8, &[(100, 1), (2000, 2)]);
        let next = page(6, 9, &[(100, 1), (2000, 3)]);
        let mut out = Vec::new();
        encode_page(&next, Some(copied(&base)), &mut out);
        assert!(out.len() < 16, "{} bytes", out.len());
    }

    #[test]
    fn an_entry_that_comes_or_goes_in_an_array_is_a_small_item() {
        let entries: Vec<_> = (0..1000).map(|at| (at, (at * 7 % 251) as u8)).collect();
        let base = page(5, 8, &entries);
        for (from, to) in [(300, 304), (304, 300)] {
            let mut next = page(6, 9, &entries);
            next.bytes_mut().copy_within(from..900, to);
            next.seal();
            let mut out = Vec::new();
            encode_page(&next, Some(copied(&base)), &mut out);
            assert!(out.len() < 24, "{} bytes", out.len());
        }
    }

    #[test]
    fn what_stands_elsewhere_is_not_written_again() {
        let contents: Vec<_> = (0..4000)
            .map(|at| (at, (at * at / 7 % 253) as u8))
            .collect();
        let base = page(5, 8, &contents);
        let mut next = page(6, 9, &contents);
        // Gaps of 100 bytes are closed, as in a page that is compacted, and what is left over is zero.
        for at in [700, 1500, 2600] {
            next.bytes_mut().copy_within(400..at, 500);
        }
        next.bytes_mut()[400..700].fill(0);
        next.seal();
        let mut out = Vec::new();
        encode_page(&next, Some(copied(&base)), &mut out);
        assert!(out.len() < 60, "{} bytes", out.len());
        let mut record = Vec::new();
        header().encode(&mut record);
        record.extend_from_slice(&out);
        let (_, mut items) = RecordHeader::decode(&record).unwrap();
        let Some(Item::Page(item)) = items.next().unwrap() else {
            panic!("no page")
        };
        let mut rebuilt = base.clone();
        item.apply(&mut rebuilt, CommitNo(9)).unwrap();
        assert!(rebuilt.bytes() == next.bytes());
    }

    #[test]
    fn numbers() {
        for number in [0, 1, 127, 128, 300, u64::from(u32::MAX), u64::MAX] {
            let mut out = Vec::new();
            varint::put(number, &mut out);
            let mut input = &out[..];
            assert_eq!(take_number(&mut input).unwrap(), number);
            assert!(input.is_empty());
        }
        assert!(take_number(&mut &[0xff; 9][..]).is_err());
        assert!(take_number(&mut &[0xff; 10][..]).is_err());
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn pages_are_rebuilt(
            before in prop::collection::vec((0..PAGE_BYTES, any::<u8>()), 0..200),
            after in prop::collection::vec((0..PAGE_BYTES, any::<u8>()), 0..200),
            moves in prop::collection::vec((24..PAGE_BYTES, 0..600_usize, 24..PAGE_BYTES), 0..4),
            near: bool,
            has_base: bool,
        ) {
            let base = page(5, 8, &before);
            let mut next = page(6, 9, &if has_base { [before, after].concat() } else { after });
            for (from, bytes, to) in moves {
                // Mostly a little up or down, as arrays in which an entry comes or goes.
                let to = if near { (from + to % 23).saturating_sub(11).clamp(24, PAGE_BYTES) } else { to };
                let bytes = bytes.min(PAGE_BYTES - from.max(to));
                next.bytes_mut().copy_within(from..from + bytes, to);
            }
            next.seal();
            let mut out = Vec::new();
            header().encode(&mut out);
            encode_page(&next, has_base.then(|| copied(&base)), &mut out);
            encode_extent(PageNo(70), &[&next.bytes()[..], &[0; PAGE_BYTES]].concat(), &mut out);
            let (found, mut items) = RecordHeader::decode(&out).unwrap();
            prop_assert_eq!(found, header());
            let Some(Item::Page(item)) = items.next().unwrap() else { panic!("no page") };
            prop_assert_eq!(item.number, PageNo(6));
            prop_assert_eq!(item.base, has_base.then_some(PageNo(5)));
            let mut rebuilt = if has_base { base.clone() } else { Page::zeroed() };
            item.apply(&mut rebuilt, CommitNo(9)).unwrap();
            prop_assert!(rebuilt.bytes() == next.bytes());
            // A base with other contents is noticed.
            let mut other = if has_base { base } else { Page::zeroed() };
            other.bytes_mut()[4090] ^= 1;
            let noticed = item.apply(&mut other, CommitNo(9)).is_err();
            prop_assert!(noticed || other.bytes() == next.bytes());
            let Some(Item::Extent { first, pages, bytes }) = items.next().unwrap() else { panic!("no extent") };
            prop_assert_eq!((first, pages), (PageNo(70), 2));
            prop_assert!(next.bytes().starts_with(bytes));
            prop_assert!(items.next().unwrap().is_none());
        }

        #[test]
        fn any_bytes_are_a_record_or_an_error(mut bytes in prop::collection::vec(any::<u8>(), 0..400)) {
            let mut valid = Vec::new();
            header().encode(&mut valid);
            let at = bytes.len().min(valid.len());
            // Half of the time behind a valid header, so that the items are reached.
            if bytes.first().is_some_and(|byte| byte % 2 == 0) {
                bytes.splice(0..at, valid);
            }
            if let Ok((_, mut items)) = RecordHeader::decode(&bytes) {
                while let Ok(Some(item)) = items.next() {
                    if let Item::Page(item) = item {
                        let _ = item.apply(&mut Page::zeroed(), CommitNo(1));
                    }
                }
            }
        }
    }
}
