//! One page of a tree: a slotted page of entries in ascending order of their keys.
//!
//! ```text
//!  offset  size  field
//!       0    24  common header; its bytes 6..8 hold the [`InsertionRun`] of the last insertions
//!      24     2  n          number of entries
//!      26     2  p          length of the prefix that all keys of the page have in common
//!      28     2  cells      where the lowest cell begins
//!      30     2  dead       bytes of removed cells at or behind `cells`
//!      32     p  prefix
//!    32+p    4n  heads      the first 4 bytes of each key behind the prefix, zero-padded, as a number
//!     ...        room for heads up to the next multiple of 8, so that offsets rarely move
//!     ...    2n  offsets    where the cell of each entry begins
//!     ...        free
//!   cells        cells, up to the end of the page, in any order
//! ```
//!
//! A cell of a leaf is `s: u16, v: u16, tail, value`, one of a branch `s: u16, child: u48, [records: u48,] tail`: `s`
//! is the length of the key behind the prefix, and the tail is what remains of it behind the head. The key itself is
//! nowhere in one piece. The lowest bits of `v` are the length of the value as it stands in the cell, the highest ones
//! its [`Mark`]. `records`, in counted trees, is the number of records below the child. The key of a branch's first
//! entry is taken to be less than every key, and is empty.
//!
//! The heads lie together, sixteen to a cache line, because a search reads nothing else until its last comparison: keys
//! whose heads differ are ordered by their heads, and keys with equal heads by their tails and then their lengths.
//!
//! Pages of *whole* keys have no prefix, and their cells hold the whole key in the place of its tail. If they are
//! ordered otherwise than bytewise, a search compares whole keys and the heads mean nothing.
//!
//! *Packed* leaves hold keys of one length and no values, one behind the other:
//!
//! ```text
//!  offset  size  field
//!      24     2  n          number of keys
//!      26     2  size       of each
//!      28     4  zero
//!      32        keys
//! ```
//!
//! Leaves of places are like these, see [`crate::heap`].
//!
//! Reading trusts nothing: every offset and length is checked where it is used, and what does not fit is
//! [`Error::Corrupt`].

#![deny(clippy::indexing_slicing)]

mod child;
mod edit;
mod insertions;

use std::cmp::Ordering;
use std::ops::Range;

use child::child_bytes;

use super::Order;
use crate::error::{Error, Result};
use crate::format::page::{PAGE_BYTES, Page, PageKind};
use crate::format::pointer_leaf::{KEY_BYTES, PAIR_BYTES, PAIRS_MAX, PointerLeaf};
use crate::format::prefetch;
use crate::ids::{CommitNo, PageNo};

pub(crate) use child::decode_pair;
pub(crate) use child::{Child, encode_pair};
pub(crate) use edit::NodeMut;
pub(crate) use insertions::InsertionRun;

/// The length of the header of a tree page.
pub(crate) const NODE_HEADER_BYTES: usize = 32;

/// What a tree page has for its prefix, slots and cells.
pub(crate) const NODE_ROOM_BYTES: usize = PAGE_BYTES - NODE_HEADER_BYTES;

/// What one leaf entry may take, slot and cell; a longer value goes to an extent. Two such entries always fit into a
/// page, which is why a page can always be split in two around a new entry.
pub(crate) const ENTRY_BYTES_MAX: usize = 2000;

/// What the payload of a leaf's cell is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Mark {
    /// The value.
    #[default]
    Inline,
    /// A pointer to an extent that holds the value.
    Extent,
    /// Several values: see [`crate::tree::duplicates`].
    SubPage,
    /// The record of a tree whose keys are the values.
    SubTree,
    /// A place, in leaves that hold nothing else: see [`crate::heap`].
    OutOfLine,
}

impl Mark {
    const SHIFT: u32 = 14;
    const LENGTH_MASK: u16 = (1 << Self::SHIFT) - 1;

    /// Mark and length of a payload as stored. A page is shorter than what the bits of the length can say.
    fn encode(self, payload_len: usize) -> u16 {
        let bits = match self {
            // Leaves of places need not say what they hold.
            Self::Inline | Self::OutOfLine => 0,
            Self::SubPage => 1,
            // Pointers have but one length.
            Self::Extent => return 2 << Self::SHIFT,
            Self::SubTree => 3,
        };
        bits << Self::SHIFT | payload_len as u16 & Self::LENGTH_MASK
    }

    #[inline]
    fn decode(stored: usize) -> (Self, usize) {
        let len = stored & usize::from(Self::LENGTH_MASK);
        match stored >> Self::SHIFT {
            0 => (Self::Inline, len),
            1 => (Self::SubPage, len),
            2 => (Self::Extent, EXTENT_POINTER_BYTES),
            _ => (Self::SubTree, len),
        }
    }
}

/// The length of a pointer to an extent: page number and length of the value, 48 bits each.
pub(crate) const EXTENT_POINTER_BYTES: usize = 12;

const COUNT_AT: usize = 24;
const PREFIX_LEN_AT: usize = 26;
const CELLS_AT: usize = 28;
const DEAD_AT: usize = 30;

const HEAD_BYTES: usize = 4;
const HEADS_STEP: usize = 8;

/// The bytes that the slots of `n` entries take.
pub(crate) fn slots_bytes(kind: PageKind, n: usize) -> usize {
    match kind {
        PageKind::PackedLeaf | PageKind::PointerLeaf => 0,
        _ => n.next_multiple_of(HEADS_STEP) * HEAD_BYTES + n * 2,
    }
}

/// The bytes that a cell takes.
pub(crate) fn cell_bytes(kind: PageKind, suffix_len: usize, payload_len: usize) -> usize {
    let fixed = match kind {
        PageKind::PackedLeaf | PageKind::PointerLeaf => 0,
        kind if kind.is_leaf() => 4,
        _ => 2,
    };
    let key = match kind.is_whole() {
        true => suffix_len,
        false => suffix_len.saturating_sub(HEAD_BYTES),
    };
    fixed + key + payload_len
}

/// The bytes that an entry takes, slot and cell.
pub(crate) fn entry_bytes(kind: PageKind, key_len: usize, payload_len: usize) -> usize {
    // A head and an offset.
    cell_bytes(kind, key_len, payload_len) + HEAD_BYTES + 2
}

/// The first bytes of a key behind its page's prefix as a number that sorts as they do.
fn head_of(suffix: &[u8]) -> u32 {
    match suffix.first_chunk::<HEAD_BYTES>() {
        Some(head) => u32::from_be_bytes(*head),
        None => {
            let mut head = [0; HEAD_BYTES];
            for (to, from) in head.iter_mut().zip(suffix) {
                *to = *from;
            }
            u32::from_be_bytes(head)
        }
    }
}

fn tail_of(suffix: &[u8]) -> &[u8] {
    // An empty tail still points into the key: comparing one that points nowhere is slow (the C library reads it under
    // an empty mask).
    suffix
        .get(HEAD_BYTES.min(suffix.len())..)
        .unwrap_or_default()
}

impl PageKind {
    /// Whether pages of this kind hold records.
    #[inline]
    pub(crate) fn is_leaf(self) -> bool {
        matches!(
            self,
            Self::Leaf | Self::WholeLeaf | Self::PackedLeaf | Self::PointerLeaf
        )
    }

    /// Whether keys stand in one piece.
    #[inline]
    pub(crate) fn is_whole(self) -> bool {
        matches!(
            self,
            Self::WholeLeaf
                | Self::WholeBranch
                | Self::CountedWholeBranch
                | Self::PackedLeaf
                | Self::PointerLeaf
        )
    }

    /// Whether a leaf has nothing but entries of one length, one behind the other.
    #[inline]
    fn has_equal_entries(self) -> bool {
        matches!(self, Self::PackedLeaf | Self::PointerLeaf)
    }

    /// What a page has for its prefix, slots and cells.
    pub(crate) fn room_bytes(self) -> usize {
        match self {
            Self::PointerLeaf => PAIRS_MAX * PAIR_BYTES,
            _ => NODE_ROOM_BYTES,
        }
    }
}

/// A search's answer: the entry with the key, or where it would be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Found {
    pub(crate) slot: usize,
    pub(crate) exact: bool,
}

impl Found {
    pub(crate) fn exactly(slot: usize) -> Self {
        Self { slot, exact: true }
    }

    /// Where it would be.
    pub(crate) fn gap(slot: usize) -> Self {
        Self { slot, exact: false }
    }

    /// Halves the entries until the one is found that `compare` calls equal, or the gap.
    #[inline]
    pub(crate) fn by(
        within: Range<usize>,
        compare: impl Fn(usize) -> Result<Ordering>,
    ) -> Result<Self> {
        let (mut low, mut high) = (within.start, within.end);
        while low < high {
            let middle = low + (high - low) / 2;
            match compare(middle)? {
                Ordering::Equal => return Ok(Self::exactly(middle)),
                Ordering::Greater => high = middle,
                Ordering::Less => low = middle + 1,
            }
        }
        Ok(Self::gap(low))
    }
}

/// What stands in a cell.
#[derive(Clone, Copy)]
pub(crate) struct Cell<'p> {
    /// The length of the key behind the prefix.
    pub(crate) suffix_len: usize,
    /// The key behind prefix and head.
    pub(crate) tail: &'p [u8],
    /// The value, or a pointer to it, or a [`Child`].
    pub(crate) payload: &'p [u8],
    /// What the payload is.
    pub(crate) mark: Mark,
}

/// A page of a tree, to be read.
#[derive(Clone, Copy)]
pub(crate) struct Node<'p> {
    page: &'p Page,
    /// What is read in place of the page, where others may store to it meanwhile.
    places: Option<&'p PointerLeaf>,
    kind: PageKind,
    n: u16,
    /// Of a packed leaf, the size of its keys, of a leaf of places that of its pairs.
    prefix_len: u16,
    /// Where the offsets begin.
    offsets_at: u16,
}

/// The page of a node that has none.
static NO_PAGE: Page = Page::zeroed();

impl<'p> Node<'p> {
    /// Takes a page as the tree page it is expected to be.
    #[inline(always)]
    pub(crate) fn open(
        page: &'p Page,
        number: PageNo,
        kind: PageKind,
        level: usize,
    ) -> Result<Self> {
        if !page.is(number, kind, level) {
            return Err(Error::corrupt(
                number,
                "not the page of the tree that it should be",
            ));
        }
        Self::lay_out(page, kind)
            .ok_or_else(|| Error::corrupt(number, "header of a tree page is damaged"))
    }

    #[inline(always)]
    fn lay_out(page: &'p Page, kind: PageKind) -> Option<Self> {
        let (n, prefix_len) = (page.u16_at(COUNT_AT), page.u16_at(PREFIX_LEN_AT));
        let node = |offsets_at: usize| Self {
            page,
            places: None,
            kind,
            n,
            prefix_len,
            offsets_at: offsets_at as u16,
        };
        let (number, len) = (usize::from(n), usize::from(prefix_len));
        if kind.has_equal_entries() {
            let fits = number * len <= kind.room_bytes() && (len > 0 || n == 0);
            let is_size = kind == PageKind::PackedLeaf || len == PAIR_BYTES;
            return (fits && is_size).then(|| node(0));
        }
        let cells = usize::from(page.u16_at(CELLS_AT));
        let offsets_at = NODE_HEADER_BYTES + len + number.next_multiple_of(HEADS_STEP) * HEAD_BYTES;
        (cells <= PAGE_BYTES && offsets_at + 2 * number <= cells).then(|| node(offsets_at))
    }

    /// What all keys of a page with slots have in common.
    #[inline]
    fn prefix(&self) -> &'p [u8] {
        let end = NODE_HEADER_BYTES + usize::from(self.prefix_len);
        let prefix = self.page.bytes().get(NODE_HEADER_BYTES..end);
        prefix.unwrap_or_default()
    }

    /// Whether it takes an entry of this key, if it has room.
    pub(crate) fn takes(&self, key: &[u8]) -> bool {
        self.kind.is_whole() || key.starts_with(self.prefix())
    }

    /// The heads of a page with slots.
    #[inline]
    fn heads(&self) -> &'p [[u8; HEAD_BYTES]] {
        let at = NODE_HEADER_BYTES + usize::from(self.prefix_len);
        let heads = self.page.bytes().get(at..at + HEAD_BYTES * self.len());
        heads.unwrap_or_default().as_chunks().0
    }

    /// Where the cell of an entry begins, in a page with slots.
    #[inline]
    fn offset(&self, slot: usize) -> Option<usize> {
        let at = usize::from(self.offsets_at) + 2 * slot;
        let offset = self.page.bytes().get(at..)?.first_chunk()?;
        (slot < self.len()).then(|| usize::from(u16::from_le_bytes(*offset)))
    }

    /// Takes a leaf of places that others may store to as the one that it is expected to be.
    #[inline]
    pub(crate) fn of_pointers(places: &'p PointerLeaf, number: PageNo) -> Result<Self> {
        if !places.is(number) {
            return Err(Error::corrupt(
                number,
                "not the page of the tree that it should be",
            ));
        }
        Ok(Self {
            page: &NO_PAGE,
            places: Some(places),
            kind: PageKind::PointerLeaf,
            n: places.len() as u16,
            prefix_len: PAIR_BYTES as u16,
            offsets_at: 0,
        })
    }

    /// The leaf of places, if others may store to it.
    pub(crate) fn shared_pointers(&self) -> Option<&'p PointerLeaf> {
        self.places
    }

    /// The key of an entry of a leaf of places.
    #[inline]
    pub(crate) fn pointer_key(&self, slot: usize) -> Result<&'p [u8; KEY_BYTES]> {
        let key = match self.places {
            Some(places) => places.key(slot),
            None => self.packed(slot..slot + 1).and_then(<[u8]>::first_chunk),
        };
        self.inside(key)
    }

    /// The size of the keys of a packed leaf, of the pairs of a leaf of places.
    pub(crate) fn packed_size(&self) -> usize {
        usize::from(self.prefix_len)
    }

    /// The keys, or pairs, from `slot` on, one behind the other.
    pub(crate) fn packed(&self, slots: Range<usize>) -> Option<&'p [u8]> {
        let size = self.packed_size();
        let keys = self.page.bytes().get(NODE_HEADER_BYTES..)?;
        keys.get(..self.len() * size)?
            .get(slots.start * size..slots.end * size)
    }

    pub(crate) fn number(&self) -> PageNo {
        match self.places {
            Some(places) => places.number(),
            None => self.page.number(),
        }
    }

    pub(crate) fn commit(&self) -> CommitNo {
        match self.places {
            Some(places) => places.commit(),
            None => self.page.commit(),
        }
    }

    pub(crate) fn kind(&self) -> PageKind {
        self.kind
    }

    /// The number of entries.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        usize::from(self.n)
    }

    /// The bytes of the page that are in use, header aside.
    pub(crate) fn used(&self) -> usize {
        match self.kind {
            PageKind::PackedLeaf => return self.len() * self.packed_size(),
            PageKind::PointerLeaf => return self.len() * PAIR_BYTES,
            _ => {}
        }
        let cells = PAGE_BYTES.saturating_sub(usize::from(self.page.u16_at(CELLS_AT)));
        let live = cells.saturating_sub(usize::from(self.page.u16_at(DEAD_AT)));
        usize::from(self.prefix_len) + slots_bytes(self.kind, self.len()) + live
    }

    /// A part of an entry; [`Error::Corrupt`] if that does not lie inside the page.
    #[inline(always)]
    fn inside<T>(&self, part: Option<T>) -> Result<T> {
        part.ok_or_else(|| Error::corrupt(self.number(), "cell outside its page"))
    }

    fn head(&self, slot: usize) -> Option<u32> {
        self.heads().get(slot).map(|head| u32::from_le_bytes(*head))
    }

    #[inline]
    pub(crate) fn cell(&self, slot: usize) -> Result<Cell<'p>> {
        self.inside(self.find_cell(slot))
    }

    #[inline]
    fn find_cell(&self, slot: usize) -> Option<Cell<'p>> {
        match self.kind {
            PageKind::PackedLeaf => return self.packed_cell(slot),
            PageKind::PointerLeaf => return self.pointer_cell(slot),
            _ => {}
        }
        let at = self.offset(slot)?;
        let bytes = self.page.bytes().get(at..)?;
        let (suffix_len, rest) = split_u16(bytes)?;
        // In whole pages the head is repeated in the cell.
        let head_len = match self.kind.is_whole() {
            true => HEAD_BYTES.min(suffix_len),
            false => 0,
        };
        let tail_len = suffix_len.saturating_sub(HEAD_BYTES);
        if self.kind.is_leaf() {
            let (value, rest) = split_u16(rest)?;
            let (mark, payload_len) = Mark::decode(value);
            let (tail, rest) = rest.get(head_len..)?.split_at_checked(tail_len)?;
            Some(Cell {
                suffix_len,
                tail,
                payload: rest.get(..payload_len)?,
                mark,
            })
        } else {
            let (payload, rest) = rest.split_at_checked(child_bytes(self.kind))?;
            Some(Cell {
                suffix_len,
                tail: rest.get(head_len..)?.get(..tail_len)?,
                payload,
                mark: Mark::Inline,
            })
        }
    }

    fn packed_cell(&self, slot: usize) -> Option<Cell<'p>> {
        let key = self.packed(slot..slot + 1)?;
        Some(Cell {
            suffix_len: key.len(),
            tail: tail_of(key),
            payload: &[],
            mark: Mark::Inline,
        })
    }

    /// Nobody sees the payload of a leaf that others may store to: that is read as a whole.
    fn pointer_cell(&self, slot: usize) -> Option<Cell<'p>> {
        let (key, payload): (&[u8], &[u8]) = match self.places {
            Some(places) => (places.key(slot)?, &[]),
            None => self.packed(slot..slot + 1)?.split_at_checked(KEY_BYTES)?,
        };
        Some(Cell {
            suffix_len: key.len(),
            tail: tail_of(key),
            payload,
            mark: Mark::OutOfLine,
        })
    }

    /// The key of an entry, in a page of whole keys.
    #[inline]
    pub(crate) fn whole_key(&self, slot: usize) -> Result<&'p [u8]> {
        self.inside(self.find_whole_key(slot))
    }

    #[inline]
    fn find_whole_key(&self, slot: usize) -> Option<&'p [u8]> {
        match self.kind {
            PageKind::PackedLeaf => return self.packed(slot..slot + 1),
            PageKind::PointerLeaf => {
                return self.pointer_key(slot).ok().map(<[u8; KEY_BYTES]>::as_slice);
            }
            _ => {}
        }
        let at = self.offset(slot)?;
        let (len, rest) = split_u16(self.page.bytes().get(at..)?)?;
        let skip = match self.kind.is_leaf() {
            true => 2,
            false => child_bytes(self.kind),
        };
        rest.get(skip..)?.get(..len)
    }

    /// Key and payload of an entry, and what that is, in a leaf of whole keys: the cell is read once for both.
    #[inline]
    pub(crate) fn whole_entry(&self, slot: usize) -> Result<(&'p [u8], Mark, &'p [u8])> {
        self.inside(self.find_whole_entry(slot))
    }

    #[inline]
    fn find_whole_entry(&self, slot: usize) -> Option<(&'p [u8], Mark, &'p [u8])> {
        if self.kind != PageKind::WholeLeaf {
            let key = self.find_whole_key(slot)?;
            return self
                .find_cell(slot)
                .map(|cell| (key, cell.mark, cell.payload));
        }
        let at = self.offset(slot)?;
        let (key_len, rest) = split_u16(self.page.bytes().get(at..)?)?;
        let (stored, rest) = split_u16(rest)?;
        let (mark, payload_len) = Mark::decode(stored);
        let (key, rest) = rest.split_at_checked(key_len)?;
        Some((key, mark, rest.get(..payload_len)?))
    }

    /// Searches the entries for a key, from slot `from` on.
    #[inline]
    pub(crate) fn search(&self, key: &[u8], from: usize, order: Order) -> Result<Found> {
        if let Some(places) = self.places
            && let Ok(key) = key.try_into()
        {
            return Ok(places.search(key).map_or_else(Found::gap, Found::exactly));
        }
        if !order.is_bytes() || self.kind.has_equal_entries() {
            return self.search_whole(key, from, order);
        }
        let prefix = self.prefix();
        let Some(suffix) = key.strip_prefix(prefix) else {
            let slot = if key < prefix { from } else { self.len() };
            return Ok(Found::gap(slot));
        };
        let head = head_of(suffix);
        let heads = self.heads();
        let slot = from
            + heads
                .get(from..)
                .unwrap_or_default()
                .partition_point(|other| u32::from_le_bytes(*other) < head);
        if heads.get(slot) != Some(&head.to_le_bytes()) {
            return Ok(Found::gap(slot));
        }
        if self.kind.is_leaf() {
            self.prefetch_cell(slot);
        }
        self.search_equal_heads(suffix, head, slot)
    }

    /// Searches by comparing whole keys.
    fn search_whole(&self, key: &[u8], from: usize, order: Order) -> Result<Found> {
        Found::by(from..self.len(), |slot| {
            order.compare(self.whole_key(slot)?, key)
        })
    }

    /// Fetches a cell that is probably wanted, before the comparison waits for its beginning.
    #[inline]
    pub(crate) fn prefetch_cell(&self, slot: usize) {
        // In a page without slots there are no offsets to follow.
        if self.offsets_at > 0
            && let Some(at) = self.offset(slot)
        {
            prefetch::cell(self.page, at);
        }
    }

    /// Fetches the whole page, without waiting for it.
    pub(crate) fn prefetch_page(&self) {
        if self.places.is_none() {
            prefetch::page(self.page);
        }
    }

    /// Fetches the cell that a search for this key probably ends at, without waiting for it.
    pub(crate) fn prefetch_near(&self, key: &[u8], order: Order, lines: &prefetch::ReadLines) {
        if let (Some(places), Ok(key)) = (self.places, key.try_into()) {
            places.fetch_pair(key);
        }
        if !order.is_bytes() || self.kind.has_equal_entries() {
            return;
        }
        if let Some(suffix) = key.strip_prefix(self.prefix()) {
            let head = head_of(suffix);
            let slot = self
                .heads()
                .partition_point(|other| u32::from_le_bytes(*other) < head);
            if let Some(at) = self.offset(slot) {
                lines.fetch_cell(self.page, at);
            }
        }
    }

    /// Goes on from the first slot whose head is that of the key: almost always the only one.
    #[inline]
    fn search_equal_heads(&self, suffix: &[u8], head: u32, first: usize) -> Result<Found> {
        match self.compare(first, suffix)? {
            Ordering::Equal => return Ok(Found::exactly(first)),
            Ordering::Greater => return Ok(Found::gap(first)),
            Ordering::Less => {}
        }
        let low = first + 1;
        if self.head(low) != Some(head) {
            return Ok(Found::gap(low));
        }
        let rest = self.heads().get(low..).unwrap_or_default();
        let high = low + rest.partition_point(|other| u32::from_le_bytes(*other) == head);
        Found::by(low..high, |slot| self.compare(slot, suffix))
    }

    /// Compares the key of an entry, whose head is that of `suffix`, with `suffix`.
    #[inline]
    fn compare(&self, slot: usize, suffix: &[u8]) -> Result<Ordering> {
        let cell = self.cell(slot)?;
        Ok(cell
            .tail
            .cmp(tail_of(suffix))
            .then(cell.suffix_len.cmp(&suffix.len())))
    }

    /// How the key of an entry compares with `key`.
    pub(crate) fn compare_key(&self, slot: usize, key: &[u8], order: Order) -> Result<Ordering> {
        if self.kind.is_whole() {
            return order.compare(self.whole_key(slot)?, key);
        }
        let mut own = Vec::new();
        self.push_key(slot, &mut own)?;
        Ok(own.as_slice().cmp(key))
    }

    /// The slot of the child that a key belongs to.
    #[inline]
    pub(crate) fn child_slot(&self, key: &[u8], order: Order) -> Result<usize> {
        let place = self.search(key, 1, order)?;
        Ok(match place.exact {
            true => place.slot,
            false => place.slot.saturating_sub(1),
        })
    }

    #[inline]
    pub(crate) fn child(&self, slot: usize) -> Result<Child> {
        let cell = self.find_cell(slot);
        self.inside(cell.and_then(|cell| Child::decode(cell.payload)))
    }

    /// Appends the key of an entry to `out`.
    pub(crate) fn push_key(&self, slot: usize, out: &mut Vec<u8>) -> Result<()> {
        if self.kind.is_whole() {
            out.extend_from_slice(self.whole_key(slot)?);
            return Ok(());
        }
        self.push_key_in(slot, &self.cell(slot)?, out);
        Ok(())
    }

    /// The same in a page without whole keys, with the entry's cell at hand.
    #[inline]
    pub(crate) fn push_key_in(&self, slot: usize, cell: &Cell<'_>, out: &mut Vec<u8>) {
        let head = self.head(slot).unwrap_or_default().to_be_bytes();
        let prefix = self.prefix();
        out.reserve(prefix.len() + cell.suffix_len);
        out.extend_from_slice(prefix);
        match cell.suffix_len {
            // As ids have, of which a page holds few.
            HEAD_BYTES => out.extend_from_slice(&head),
            _ => {
                out.extend_from_slice(head.get(..cell.suffix_len).unwrap_or(&head));
                out.extend_from_slice(cell.tail);
            }
        }
    }

    /// The number of records below the entries before `slot`.
    pub(crate) fn records_before(&self, slot: usize) -> Result<u64> {
        let mut sum = 0u64;
        for slot in 0..slot.min(self.len()) {
            sum = sum.saturating_add(self.child(slot)?.records);
        }
        Ok(sum)
    }

    /// Checks everything about the page that can be seen without its neighbours.
    pub(crate) fn check(&self, order: Order) -> Result<(), &'static str> {
        if self.kind.is_whole() && !order.is_unknown() {
            self.check_order(order)?;
        }
        if self.kind == PageKind::PointerLeaf {
            return Ok(());
        }
        if self.kind == PageKind::PackedLeaf {
            return match self.packed_size() {
                ..=crate::limits::KEY_BYTES_MAX => Ok(()),
                _ => Err("key too long"),
            };
        }
        if self.kind.is_whole() && self.prefix_len > 0 {
            return Err("prefix in a page of whole keys");
        }
        let cells = usize::from(self.page.u16_at(CELLS_AT));
        let dead = usize::from(self.page.u16_at(DEAD_AT));
        let mut live = 0;
        let mut before: Option<(u32, Cell<'_>)> = None;
        let first_key = self.first_key();
        for slot in 0..self.len() {
            let (Some(cell), Some(head)) = (self.find_cell(slot), self.head(slot)) else {
                return Err("cell outside its page");
            };
            let at = self.offset(slot).unwrap_or_default();
            if at < cells {
                return Err("cell outside the area of cells");
            }
            live += cell_bytes(self.kind, cell.suffix_len, cell.payload.len());
            if usize::from(self.prefix_len) + cell.suffix_len > crate::limits::KEY_BYTES_MAX {
                return Err("key too long");
            }
            let padding = head
                .to_be_bytes()
                .get(cell.suffix_len..)
                .is_some_and(|rest| rest.iter().any(|&b| b != 0));
            if padding {
                return Err("head longer than its key");
            }
            let key = self.find_whole_key(slot).filter(|_| self.kind.is_whole());
            if key.is_some_and(|key| head_of(key) != head) {
                return Err("head is not that of its key");
            }
            if slot < first_key {
                if cell.suffix_len != 0 || head != 0 {
                    return Err("first separator of a branch is not empty");
                }
                continue;
            }
            if let Some((head_before, cell_before)) = before.filter(|_| !self.kind.is_whole()) {
                let order = head_before
                    .cmp(&head)
                    .then_with(|| cell_before.tail.cmp(cell.tail))
                    .then_with(|| cell_before.suffix_len.cmp(&cell.suffix_len));
                if order != Ordering::Less {
                    return Err("keys out of order");
                }
            }
            before = Some((head, cell));
        }
        if live + dead != PAGE_BYTES.saturating_sub(cells) {
            return Err("cells do not fill the area of cells");
        }
        Ok(())
    }

    /// The first entry that has a key.
    fn first_key(&self) -> usize {
        usize::from(!self.kind.is_leaf())
    }

    fn check_order(&self, order: Order) -> Result<(), &'static str> {
        for slot in self.first_key() + 1..self.len() {
            let (Some(before), Some(key)) =
                (self.find_whole_key(slot - 1), self.find_whole_key(slot))
            else {
                return Err("cell outside its page");
            };
            if !matches!(order.compare(before, key), Ok(Ordering::Less)) {
                return Err("keys out of order");
            }
        }
        Ok(())
    }
}

#[inline]
fn split_u16(bytes: &[u8]) -> Option<(usize, &[u8])> {
    let (number, rest) = bytes.split_first_chunk()?;
    Some((usize::from(u16::from_le_bytes(*number)), rest))
}
