//! The log record of a commit: what changed, page by page, byte by byte.
//!
//! ```text
//!  offset  size  field
//!       0     1  kind       1: the changes follow; 2: the data file was synced first, there are only new roots
//!       1     1  zero
//!       2     2  store      number of the store within the environment
//!       4     4  timeline
//!       8     8  commit
//!      16   104  roots      see `head`
//!     120        items      up to the end of the record
//!
//!  page:    1  tag 3
//!           v  number, v base (0: begins as zeroes)
//!           4  checksum of the finished page
//!              runs of changed bytes, ended by 0, 0: v bytes unchanged, v bytes changed * 4 + form, and by form
//!              0: the bytes
//!              1: v n, n bytes: what stood here has moved up, and these are in front
//!              2: v n, n bytes: what stood here has moved down, and these are behind
//!  extent:  1  tag 2
//!           v  first page, v pages, v bytes up to the trailing zeroes, the bytes
//! ```
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
//! All integers are little-endian; `v` is a variable-length integer, seven bits to a byte, the low ones first. A page is
//! rebuilt from its base as of the commit before, so records are replayed one after the other and none is left out.
//! A page's own number, commit and checksum are not among the changes: they follow from the item.

#![deny(clippy::indexing_slicing)]

use std::ops::Range;

use sapwood_wal::Position;

use crate::error::{Error, Result};
use crate::head::{Head, Roots};
use crate::page::{CommitNo, PAGE_BYTES, Page, PageNo};
use crate::varint;

const KIND_CHANGES: u8 = 1;
const KIND_ROOTS: u8 = 2;
const KIND_JOINT: u8 = 3;
const TAG_PAGE: u8 = 3;
const TAG_EXTENT: u8 = 2;
const HEADER_BYTES: usize = 16 + Roots::BYTES;

const CHECKSUM_BYTES: usize = 4;
const WORD_BYTES: usize = 8;
/// How far the entries of a page's arrays move when one comes or goes, and with them those of an array behind.
const MOVES: [usize; 5] = [2, 4, 6, 8, 10];
/// A shorter run is written as it is.
const MOVED_BYTES_MIN: usize = 16;
/// Compared at once: most of a page is unchanged.
const BLOCK_WORDS: usize = 8;

/// The head of a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct RecordHeader {
    /// Whether the changes follow; otherwise they are in the data file already.
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
        out.push(if self.has_changes {
            KIND_CHANGES
        } else {
            KIND_ROOTS
        });
        out.push(0);
        out.extend_from_slice(&self.store.to_le_bytes());
        out.extend_from_slice(&self.timeline.to_le_bytes());
        out.extend_from_slice(&self.commit.0.to_le_bytes());
        out.extend_from_slice(&self.roots.encode());
    }

    /// Reads the head of a record; the rest are its items.
    pub(crate) fn decode(record: &[u8]) -> Result<(Self, Items<'_>)> {
        let (header, items) = record
            .split_first_chunk::<HEADER_BYTES>()
            .ok_or_else(|| damaged("is too short"))?;
        let (fixed, roots) = header
            .split_first_chunk::<16>()
            .ok_or_else(|| damaged("is too short"))?;
        let roots = roots.first_chunk().ok_or_else(|| damaged("is too short"))?;
        let [kind, zero, s0, s1, t0, t1, t2, t3, commit @ ..] = *fixed;
        let has_changes = match kind {
            KIND_CHANGES => true,
            KIND_ROOTS => false,
            _ => return Err(damaged("is of an unknown kind")),
        };
        if zero != 0 || (!has_changes && !items.is_empty()) {
            return Err(damaged("has something where nothing should be"));
        }
        let header = Self {
            has_changes,
            store: u16::from_le_bytes([s0, s1]),
            timeline: u32::from_le_bytes([t0, t1, t2, t3]),
            commit: CommitNo(u64::from_le_bytes(commit)),
            roots: Roots::decode(roots)?,
        };
        Ok((header, Items { rest: items }))
    }
}

/// The records in a record: itself, or one for each store of a joint transaction.
pub(crate) struct Parts<'a> {
    lengths: &'a [[u8; 4]],
    rest: &'a [u8],
}

impl<'a> Parts<'a> {
    pub(crate) fn of(record: &'a [u8]) -> Result<Self> {
        match record.split_first_chunk::<4>() {
            Some((&[KIND_JOINT, 0, n0, n1], rest)) => {
                let bytes = usize::from(u16::from_le_bytes([n0, n1])) * 4;
                let lengths = rest.get(..bytes).ok_or_else(|| damaged("is too short"))?;
                let (lengths, _) = lengths.as_chunks();
                let rest = rest.get(bytes..).unwrap_or_default();
                let sum = lengths
                    .iter()
                    .map(|length| u64::from(u32::from_le_bytes(*length)));
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
        let mut out = vec![KIND_JOINT, 0];
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

/// Adds a sealed page that was copied from `base`, or began as zeroes.
pub(crate) fn encode_page(page: &Page, base: Option<(PageNo, &Page)>, out: &mut Vec<u8>) {
    const ZEROES: &Page = &Page::zeroed();
    out.push(TAG_PAGE);
    varint::put(page.number().0, out);
    varint::put(base.map_or(0, |(number, _)| number.0), out);
    out.extend_from_slice(&page.checksum().to_le_bytes());
    let base = base.map_or(ZEROES, |(_, page)| page);
    put_difference(base.bytes(), page.bytes(), out);
}

/// How many bytes there are before the zeroes at the end. Zeroes may fill most of a page, so blocks of them are passed over at once.
fn used_bytes(extent: &[u8]) -> usize {
    const BLOCK_BYTES: usize = BLOCK_WORDS * WORD_BYTES;
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

/// What happens to one page or extent.
#[derive(Debug)]
pub(crate) enum Item<'a> {
    Page(PageItem<'a>),
    Extent {
        first: PageNo,
        pages: u32,
        /// Zeroes follow.
        bytes: &'a [u8],
    },
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
        let bytes = page.bytes_mut();
        walk_runs(&mut &*self.runs, |at, run| {
            run.apply(bytes.get_mut(at).unwrap_or_default());
        })?;
        page.set_number(self.number);
        page.set_commit(commit);
        page.seal();
        if page.checksum() == self.checksum {
            Ok(())
        } else {
            Err(Error::corrupt(
                self.number,
                "cannot be rebuilt from its base and the log",
            ))
        }
    }
}

/// The items of a record, in order.
#[derive(Debug)]
pub(crate) struct Items<'a> {
    rest: &'a [u8],
}

impl<'a> Items<'a> {
    /// The next item; `None` at the end.
    pub(crate) fn next(&mut self) -> Result<Option<Item<'a>>> {
        let Some((&tag, rest)) = self.rest.split_first() else {
            return Ok(None);
        };
        self.rest = rest;
        match tag {
            TAG_PAGE => self.page().map(Item::Page).map(Some),
            TAG_EXTENT => self.extent().map(Some),
            _ => Err(damaged("has an unknown item")),
        }
    }

    fn page(&mut self) -> Result<PageItem<'a>> {
        let number = PageNo(take_number(&mut self.rest)?);
        let base = PageNo(take_number(&mut self.rest)?);
        let checksum = take(&mut self.rest, 4)?;
        let checksum = checksum.try_into().map_err(|_| damaged("is too short"))?;
        let from = self.rest;
        walk_runs(&mut self.rest, |_, _| ())?;
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
}

fn take<'a>(input: &mut &'a [u8], length: usize) -> Result<&'a [u8]> {
    let (taken, rest) = input
        .split_at_checked(length)
        .ok_or_else(|| damaged("ends early"))?;
    *input = rest;
    Ok(taken)
}

fn take_number(input: &mut &[u8]) -> Result<u64> {
    varint::take(input).ok_or_else(|| damaged("has a number that ends early or is too large"))
}

/// Whether a word differs, apart from what is not among the changes: checksum, number and commit.
fn differs(at: usize, base: [u8; WORD_BYTES], page: [u8; WORD_BYTES]) -> bool {
    match at {
        0 => u64::from_le_bytes(base) >> 32 != u64::from_le_bytes(page) >> 32,
        1 | 2 => false,
        _ => base != page,
    }
}

fn put_difference(base: &[u8; PAGE_BYTES], page: &[u8; PAGE_BYTES], out: &mut Vec<u8>) {
    let mut written = 0;
    let mut put = |words: Range<usize>| {
        // The checksum before the first changed byte is not among the changes.
        let mut at = (words.start * WORD_BYTES).max(CHECKSUM_BYTES)..words.end * WORD_BYTES;
        let is_same = |at: usize| base.get(at) == page.get(at);
        while !at.is_empty() && is_same(at.start) {
            at.start += 1;
        }
        while !at.is_empty() && is_same(at.end - 1) {
            at.end -= 1;
        }
        if let (Some(before), Some(after)) = (base.get(at.clone()), page.get(at.clone()))
            && !at.is_empty()
        {
            varint::put((at.start - written) as u64, out);
            Run::between(before, after).put(after.len(), out);
            written = at.end;
        }
    };
    let (base, page) = (
        base.as_chunks::<WORD_BYTES>().0,
        page.as_chunks::<WORD_BYTES>().0,
    );
    // The run that is being gathered.
    let mut run = 0..0;
    let blocks = base.as_chunks::<BLOCK_WORDS>().0;
    let blocks = blocks.iter().zip(page.as_chunks::<BLOCK_WORDS>().0);
    for (block, (before, after)) in (0..).step_by(BLOCK_WORDS).zip(blocks) {
        if is_same(before, after) {
            continue;
        }
        for (at, (before, after)) in (block..).zip(before.iter().zip(after)) {
            if !differs(at, *before, *after) {
                continue;
            }
            if at != run.end {
                put(run);
                run = at..at;
            }
            run.end = at + 1;
        }
    }
    put(run);
    out.extend_from_slice(&[0, 0]);
}

/// As `==`, without a call and without a branch for each word.
fn is_same(
    before: &[[u8; WORD_BYTES]; BLOCK_WORDS],
    after: &[[u8; WORD_BYTES]; BLOCK_WORDS],
) -> bool {
    let words = before.iter().zip(after);
    let difference =
        words.map(|(before, after)| u64::from_le_bytes(*before) ^ u64::from_le_bytes(*after));
    difference.fold(0, |all, word| all | word) == 0
}

/// What became of some bytes of a page.
#[derive(Clone, Copy, Debug)]
enum Run<'a> {
    /// They are these now.
    New(&'a [u8]),
    /// They moved up, behind these.
    Up(&'a [u8]),
    /// They moved down, in front of these.
    Down(&'a [u8]),
}

impl<'a> Run<'a> {
    /// How `before` became `after`, which is as long.
    fn between(before: &[u8], after: &'a [u8]) -> Self {
        if after.len() >= MOVED_BYTES_MIN {
            for by in MOVES {
                let (Some((low, high)), Some((new, moved))) = (
                    before.split_at_checked(before.len() - by),
                    after.split_at_checked(by),
                ) else {
                    break;
                };
                if low == moved {
                    return Run::Up(new);
                }
                let (Some((_, moved)), Some((kept, new))) = (
                    before.split_at_checked(by),
                    after.split_at_checked(low.len()),
                ) else {
                    break;
                };
                debug_assert_eq!(high.len(), new.len());
                if moved == kept {
                    return Run::Down(new);
                }
            }
        }
        Run::New(after)
    }

    fn put(self, bytes: usize, out: &mut Vec<u8>) {
        let (form, new) = match self {
            Run::New(new) => (0, new),
            Run::Up(new) => (1, new),
            Run::Down(new) => (2, new),
        };
        varint::put(bytes as u64 * 4 + form, out);
        if form != 0 {
            varint::put(new.len() as u64, out);
        }
        out.extend_from_slice(new);
    }

    /// Does it to the bytes, which are at least as many as the new ones.
    fn apply(self, bytes: &mut [u8]) {
        match self {
            Run::New(new) => bytes.copy_from_slice(new),
            Run::Up(new) => {
                bytes.copy_within(..bytes.len() - new.len(), new.len());
                bytes.split_at_mut(new.len()).0.copy_from_slice(new);
            }
            Run::Down(new) => {
                let moved = bytes.len() - new.len();
                bytes.copy_within(new.len().., 0);
                bytes.split_at_mut(moved).1.copy_from_slice(new);
            }
        }
    }
}

/// Calls `each` with every run of changed bytes, which lies within a page, and leaves the input behind them.
fn walk_runs<'a>(input: &mut &'a [u8], mut each: impl FnMut(Range<usize>, Run<'a>)) -> Result<()> {
    let mut at = 0;
    loop {
        let unchanged = take_number(input)?;
        let changed = take_number(input)?;
        if unchanged == 0 && changed == 0 {
            return Ok(());
        }
        let (changed, form) = (changed / 4, changed % 4);
        let left = (PAGE_BYTES - at) as u64;
        if unchanged > left || changed == 0 || changed > left - unchanged {
            return Err(damaged("changes bytes beyond the end of a page"));
        }
        let start = at + unchanged as usize;
        at = start + changed as usize;
        let new = match form {
            0 => changed,
            _ => take_number(input)?,
        };
        if new > changed {
            return Err(damaged("moves more bytes than there are"));
        }
        let new = take(input, new as usize)?;
        let run = match form {
            0 => Run::New(new),
            1 => Run::Up(new),
            2 => Run::Down(new),
            _ => return Err(damaged("has a run of an unknown form")),
        };
        each(start..at, run);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::page::PageKind;

    fn page(number: u64, commit: u64, changes: &[(usize, u8)]) -> Page {
        let mut page = Page::zeroed();
        page.init(PageKind::Leaf, 0, PageNo(number), CommitNo(commit));
        for &(at, byte) in changes {
            page.bytes_mut()[24 + at % (PAGE_BYTES - 24)] = byte;
        }
        page.seal();
        page
    }

    fn header() -> RecordHeader {
        RecordHeader {
            has_changes: true,
            store: 0,
            timeline: 1,
            commit: CommitNo(9),
            roots: Roots::empty(),
        }
    }

    #[test]
    fn a_small_change_is_a_small_item() {
        let base = page(5, 8, &[(100, 1), (2000, 2)]);
        let next = page(6, 9, &[(100, 1), (2000, 3)]);
        let mut out = Vec::new();
        encode_page(&next, Some((PageNo(5), &base)), &mut out);
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
            encode_page(&next, Some((PageNo(5), &base)), &mut out);
            assert!(out.len() < 24, "{} bytes", out.len());
        }
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
                let to = if near { (from + to % 23).saturating_sub(11).max(24) } else { to };
                let bytes = bytes.min(PAGE_BYTES - from.max(to));
                next.bytes_mut().copy_within(from..from + bytes, to);
            }
            next.seal();
            let mut out = Vec::new();
            header().encode(&mut out);
            encode_page(&next, has_base.then_some((PageNo(5), &base)), &mut out);
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
