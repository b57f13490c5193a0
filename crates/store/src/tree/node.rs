//! One page of a tree: a slotted page of entries in ascending order of their keys.
//!
//! ```text
//!  offset  size  field
//!       0    24  common header; its bytes 6..8 hold the [`Run`] of the last insertions
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
//! A cell of a leaf is `s: u16, v: u16, tail, value`, one of a branch `s: u16, child: u48, [records: u48,] tail`: `s` is the length of
//! the key behind the prefix, and the tail is what remains of it behind the head. The key itself is nowhere in one piece.
//! `v` is the length of the value, or [`LARGE`] and the value is 12 bytes that point to an extent. `records`, in counted trees,
//! is the number of records below the child. The key of a branch's first entry is taken to be less than every key, and is empty.
//!
//! The heads lie together, sixteen to a cache line, because a search reads nothing else until its last comparison: keys whose
//! heads differ are ordered by their heads, and keys with equal heads by their tails and then their lengths.
//!
//! Reading trusts nothing: every offset and length is checked where it is used, and what does not fit is [`Error::Corrupt`].

#![deny(clippy::indexing_slicing)]

use std::cmp::Ordering;

use super::prefetch;
use crate::error::{Error, Result};
use crate::page::{CommitNo, PAGE_BYTES, Page, PageKind, PageNo};

/// The length of the header of a tree page.
pub(super) const NODE_HEADER_BYTES: usize = 32;

/// What a tree page has for its prefix, slots and cells.
pub(crate) const NODE_ROOM_BYTES: usize = PAGE_BYTES - NODE_HEADER_BYTES;

/// What one leaf entry may take, slot and cell; a longer value goes to an extent. Two such entries always fit into a page,
/// which is why a page can always be split in two around a new entry.
pub(super) const ENTRY_BYTES_MAX: usize = 2000;

/// In the place of a value's length: the value is in an extent.
pub(super) const LARGE: u16 = 0x8000;

/// The length of a pointer to an extent: page number and length of the value, 48 bits each.
pub(super) const EXTENT_POINTER_BYTES: usize = 12;

const RUN_AT: usize = 6;
const COUNT_AT: usize = 24;
const PREFIX_LEN_AT: usize = 26;
const CELLS_AT: usize = 28;
const DEAD_AT: usize = 30;

const HEAD_BYTES: usize = 4;
const HEADS_STEP: usize = 8;
const U48_BYTES: usize = 6;

/// The bytes that the slots of `n` entries take.
pub(crate) fn slots_bytes(n: usize) -> usize {
    n.next_multiple_of(HEADS_STEP) * HEAD_BYTES + n * 2
}

/// The bytes that a cell takes.
pub(crate) fn cell_bytes(kind: PageKind, suffix_len: usize, payload_len: usize) -> usize {
    let fixed = if kind == PageKind::Leaf { 4 } else { 2 };
    fixed + suffix_len.saturating_sub(HEAD_BYTES) + payload_len
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
    suffix.get(HEAD_BYTES..).unwrap_or_default()
}

/// The payload of a branch entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Child {
    pub(crate) page: PageNo,
    /// Records below it; 0 in trees that are not counted.
    pub(crate) records: u64,
}

impl Child {
    /// The payload as stored, of which a tree that is not counted takes the first six bytes.
    pub(crate) fn encode(self) -> [u8; 2 * U48_BYTES] {
        encode_pair(self.page.0, self.records)
    }

    pub(super) fn decode(payload: &[u8]) -> Option<Self> {
        match payload.first_chunk() {
            Some(both) => {
                let (page, records) = decode_pair(both);
                Some(Self {
                    page: PageNo(page),
                    records,
                })
            }
            None => payload.first_chunk().map(|page| Self {
                page: PageNo(decode_u48(*page)),
                records: 0,
            }),
        }
    }
}

/// Two 48-bit numbers as stored.
pub(crate) fn encode_pair(first: u64, second: u64) -> [u8; 2 * U48_BYTES] {
    let [a, b, c, d, e, f, ..] = first.to_le_bytes();
    let [u, v, w, x, y, z, ..] = second.to_le_bytes();
    [a, b, c, d, e, f, u, v, w, x, y, z]
}

pub(super) fn decode_pair(bytes: &[u8; 2 * U48_BYTES]) -> (u64, u64) {
    let [a, b, c, d, e, f, u, v, w, x, y, z] = *bytes;
    (
        decode_u48([a, b, c, d, e, f]),
        decode_u48([u, v, w, x, y, z]),
    )
}

fn decode_u48([a, b, c, d, e, f]: [u8; U48_BYTES]) -> u64 {
    u64::from_le_bytes([a, b, c, d, e, f, 0, 0])
}

/// The length of a payload in the pages of a kind that hold children.
fn child_bytes(kind: PageKind) -> usize {
    if kind == PageKind::CountedBranch {
        2 * U48_BYTES
    } else {
        U48_BYTES
    }
}

impl PageKind {
    /// As much of an encoded [`Child`] as branches of this kind store.
    pub(crate) fn child_payload(self, encoded: &[u8; 2 * U48_BYTES]) -> &[u8] {
        encoded.get(..child_bytes(self)).unwrap_or(encoded)
    }
}

/// Where the last insertions into a page went: a run of neighbours splits the page at its end instead of in the middle, so that
/// pages filled in ascending or descending order end up full. A hint, never relied upon.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Run(u16);

impl Run {
    const SLOT_MASK: u16 = 0x0FFF;
    const LENGTH_SHIFT: u32 = 12;
    const LENGTH_MAX: u16 = 7;
    /// How many insertions in a row make a run.
    const LENGTH_TRUSTED: u16 = 3;
    const DESCENDING: u16 = 0x8000;

    /// The run after an insertion at `slot`.
    pub(super) fn after(self, slot: usize) -> Self {
        let last = usize::from(self.0 & Self::SLOT_MASK);
        let length = (self.0 & !Self::DESCENDING) >> Self::LENGTH_SHIFT;
        let (descending, goes_on) = match slot {
            slot if slot == last + 1 => (0, self.0 & Self::DESCENDING == 0),
            slot if slot == last => (Self::DESCENDING, self.0 & Self::DESCENDING != 0),
            _ => (0, false),
        };
        let length = if goes_on {
            (length + 1).min(Self::LENGTH_MAX)
        } else {
            1
        };
        Self(descending | length << Self::LENGTH_SHIFT | slot as u16 & Self::SLOT_MASK)
    }

    /// The same run seen from a page whose entries begin at `offset` of the old one.
    pub(super) fn moved(self, offset: usize) -> Self {
        let slot = usize::from(self.0 & Self::SLOT_MASK).saturating_sub(offset);
        Self(self.0 & !Self::SLOT_MASK | slot as u16 & Self::SLOT_MASK)
    }

    /// Where to split a page after the insertion that led to this run; `None` in the middle.
    pub(super) fn cut(self) -> Option<usize> {
        let slot = usize::from(self.0 & Self::SLOT_MASK);
        let length = (self.0 & !Self::DESCENDING) >> Self::LENGTH_SHIFT;
        if length < Self::LENGTH_TRUSTED {
            None
        } else if self.0 & Self::DESCENDING == 0 {
            Some(slot)
        } else {
            Some(slot + 1)
        }
    }

    pub(super) fn of(page: &Page) -> Self {
        Self(page.u16_at(RUN_AT))
    }

    pub(super) fn store(self, page: &mut Page) {
        page.set_u16_at(RUN_AT, self.0);
    }
}

/// A search's answer: the entry with the key, or where it would be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Place {
    pub(super) slot: usize,
    pub(super) exact: bool,
}

/// What stands in a cell.
#[derive(Clone, Copy)]
pub(super) struct Cell<'p> {
    /// The length of the key behind the prefix.
    pub(super) suffix_len: usize,
    /// The key behind prefix and head.
    pub(super) tail: &'p [u8],
    /// The value, or a pointer to it, or a [`Child`].
    pub(super) payload: &'p [u8],
    /// Whether the payload is a pointer to an extent.
    pub(super) large: bool,
}

/// A page of a tree, to be read.
#[derive(Clone, Copy)]
pub(super) struct Node<'p> {
    page: &'p Page,
    kind: PageKind,
    prefix: &'p [u8],
    heads: &'p [[u8; HEAD_BYTES]],
    offsets: &'p [[u8; 2]],
}

impl<'p> Node<'p> {
    /// Takes a page as the tree page it is expected to be.
    #[inline]
    pub(super) fn open(
        page: &'p Page,
        number: PageNo,
        kind: PageKind,
        level: usize,
    ) -> Result<Self> {
        if page.number() != number
            || page.kind() != Some(kind)
            || usize::from(page.level()) != level
        {
            return Err(Error::corrupt(
                number,
                "not the page of the tree that it should be",
            ));
        }
        Self::lay_out(page, kind)
            .ok_or_else(|| Error::corrupt(number, "header of a tree page is damaged"))
    }

    #[inline]
    fn lay_out(page: &'p Page, kind: PageKind) -> Option<Self> {
        let n = usize::from(page.u16_at(COUNT_AT));
        let prefix_len = usize::from(page.u16_at(PREFIX_LEN_AT));
        let cells = usize::from(page.u16_at(CELLS_AT));
        if cells > PAGE_BYTES || NODE_HEADER_BYTES + prefix_len + slots_bytes(n) > cells {
            return None;
        }
        let (_, rest) = page.bytes().split_at_checked(NODE_HEADER_BYTES)?;
        let (prefix, rest) = rest.split_at_checked(prefix_len)?;
        let (heads, rest) = rest.split_at_checked(n.next_multiple_of(HEADS_STEP) * HEAD_BYTES)?;
        let heads = heads.as_chunks().0.get(..n)?;
        let offsets = rest.as_chunks().0.get(..n)?;
        Some(Self {
            page,
            kind,
            prefix,
            heads,
            offsets,
        })
    }

    pub(super) fn number(&self) -> PageNo {
        self.page.number()
    }

    pub(super) fn commit(&self) -> CommitNo {
        self.page.commit()
    }

    pub(super) fn kind(&self) -> PageKind {
        self.kind
    }

    /// The number of entries.
    pub(super) fn len(&self) -> usize {
        self.heads.len()
    }

    /// The bytes of the page that are in use, header aside.
    pub(super) fn used(&self) -> usize {
        let cells = PAGE_BYTES.saturating_sub(usize::from(self.page.u16_at(CELLS_AT)));
        let live = cells.saturating_sub(usize::from(self.page.u16_at(DEAD_AT)));
        self.prefix.len() + slots_bytes(self.len()) + live
    }

    fn head(&self, slot: usize) -> Option<u32> {
        self.heads.get(slot).map(|head| u32::from_le_bytes(*head))
    }

    #[inline]
    pub(super) fn cell(&self, slot: usize) -> Result<Cell<'p>> {
        self.find_cell(slot)
            .ok_or_else(|| Error::corrupt(self.number(), "cell outside its page"))
    }

    #[inline]
    fn find_cell(&self, slot: usize) -> Option<Cell<'p>> {
        let at = usize::from(u16::from_le_bytes(*self.offsets.get(slot)?));
        let bytes = self.page.bytes().get(at..)?;
        let (suffix_len, rest) = split_u16(bytes)?;
        let tail_len = suffix_len.saturating_sub(HEAD_BYTES);
        if self.kind == PageKind::Leaf {
            let (value, rest) = split_u16(rest)?;
            let large = value & usize::from(LARGE) != 0;
            let payload_len = if large { EXTENT_POINTER_BYTES } else { value };
            let (tail, rest) = rest.split_at_checked(tail_len)?;
            Some(Cell {
                suffix_len,
                tail,
                payload: rest.get(..payload_len)?,
                large,
            })
        } else {
            let (payload, rest) = rest.split_at_checked(child_bytes(self.kind))?;
            Some(Cell {
                suffix_len,
                tail: rest.get(..tail_len)?,
                payload,
                large: false,
            })
        }
    }

    /// Searches the entries for a key, from slot `from` on.
    #[inline]
    pub(super) fn search(&self, key: &[u8], from: usize) -> Result<Place> {
        let Some(suffix) = key.strip_prefix(self.prefix) else {
            let slot = if key < self.prefix { from } else { self.len() };
            return Ok(Place { slot, exact: false });
        };
        let head = head_of(suffix);
        let heads = self.heads.get(from..).unwrap_or_default();
        let slot = from + heads.partition_point(|other| u32::from_le_bytes(*other) < head);
        if self.head(slot) != Some(head) {
            return Ok(Place { slot, exact: false });
        }
        if self.kind == PageKind::Leaf {
            self.prefetch_cell(slot);
        }
        self.search_equal_heads(suffix, head, slot)
    }

    /// Fetches a cell that is probably wanted, before the comparison waits for its beginning.
    #[inline]
    fn prefetch_cell(&self, slot: usize) {
        if let Some(offset) = self.offsets.get(slot) {
            prefetch::cell(self.page, usize::from(u16::from_le_bytes(*offset)));
        }
    }

    /// Goes on from the first slot whose head is that of the key: almost always the only one.
    #[inline]
    fn search_equal_heads(&self, suffix: &[u8], head: u32, first: usize) -> Result<Place> {
        match self.compare(first, suffix)? {
            Ordering::Equal => {
                return Ok(Place {
                    slot: first,
                    exact: true,
                });
            }
            Ordering::Greater => {
                return Ok(Place {
                    slot: first,
                    exact: false,
                });
            }
            Ordering::Less => {}
        }
        let mut low = first + 1;
        if self.head(low) != Some(head) {
            return Ok(Place {
                slot: low,
                exact: false,
            });
        }
        let rest = self.heads.get(low..).unwrap_or_default();
        let mut high = low + rest.partition_point(|other| u32::from_le_bytes(*other) == head);
        while low < high {
            let middle = low + (high - low) / 2;
            match self.compare(middle, suffix)? {
                Ordering::Equal => {
                    return Ok(Place {
                        slot: middle,
                        exact: true,
                    });
                }
                Ordering::Greater => high = middle,
                Ordering::Less => low = middle + 1,
            }
        }
        Ok(Place {
            slot: low,
            exact: false,
        })
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

    /// The slot of the child that a key belongs to.
    #[inline]
    pub(super) fn child_slot(&self, key: &[u8]) -> Result<usize> {
        let place = self.search(key, 1)?;
        Ok(if place.exact {
            place.slot
        } else {
            place.slot.saturating_sub(1)
        })
    }

    #[inline]
    pub(super) fn child(&self, slot: usize) -> Result<Child> {
        let child = self
            .find_cell(slot)
            .and_then(|cell| Child::decode(cell.payload));
        child.ok_or_else(|| Error::corrupt(self.number(), "cell outside its page"))
    }

    /// Appends the key of an entry to `out`.
    pub(super) fn push_key(&self, slot: usize, out: &mut Vec<u8>) -> Result<()> {
        let cell = self.cell(slot)?;
        let head = self.head(slot).unwrap_or_default().to_be_bytes();
        out.extend_from_slice(self.prefix);
        out.extend_from_slice(head.get(..cell.suffix_len).unwrap_or(&head));
        out.extend_from_slice(cell.tail);
        Ok(())
    }

    /// The number of records below the entries before `slot`.
    pub(super) fn records_before(&self, slot: usize) -> Result<u64> {
        let mut sum = 0u64;
        for slot in 0..slot.min(self.len()) {
            sum = sum.saturating_add(self.child(slot)?.records);
        }
        Ok(sum)
    }

    /// Checks everything about the page that can be seen without its neighbours.
    pub(super) fn check(&self) -> Result<(), &'static str> {
        let cells = usize::from(self.page.u16_at(CELLS_AT));
        let dead = usize::from(self.page.u16_at(DEAD_AT));
        let mut live = 0;
        let mut before: Option<(u32, Cell<'_>)> = None;
        let first_key = usize::from(self.kind != PageKind::Leaf);
        for slot in 0..self.len() {
            let (Some(cell), Some(head)) = (self.find_cell(slot), self.head(slot)) else {
                return Err("cell outside its page");
            };
            let at = self
                .offsets
                .get(slot)
                .map_or(0, |offset| usize::from(u16::from_le_bytes(*offset)));
            if at < cells {
                return Err("cell outside the area of cells");
            }
            live += cell_bytes(self.kind, cell.suffix_len, cell.payload.len());
            if self.prefix.len() + cell.suffix_len > super::KEY_BYTES_MAX {
                return Err("key too long");
            }
            let padding = head
                .to_be_bytes()
                .get(cell.suffix_len..)
                .is_some_and(|rest| rest.iter().any(|&b| b != 0));
            if padding {
                return Err("head longer than its key");
            }
            if slot < first_key {
                if cell.suffix_len != 0 || head != 0 {
                    return Err("first separator of a branch is not empty");
                }
                continue;
            }
            if let Some((head_before, cell_before)) = before {
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
}

#[inline]
fn split_u16(bytes: &[u8]) -> Option<(usize, &[u8])> {
    let (number, rest) = bytes.split_first_chunk()?;
    Some((usize::from(u16::from_le_bytes(*number)), rest))
}

/// A page of a tree, to be changed.
pub(super) struct NodeMut<'a> {
    page: &'a mut Page,
    kind: PageKind,
    n: usize,
    prefix_len: usize,
}

impl<'a> NodeMut<'a> {
    /// Takes a page that [`Node::open`] takes.
    pub(super) fn open(
        page: &'a mut Page,
        number: PageNo,
        kind: PageKind,
        level: usize,
    ) -> Result<Self> {
        let node = Node::open(page, number, kind, level)?;
        let (n, prefix_len) = (node.len(), node.prefix.len());
        Ok(Self {
            page,
            kind,
            n,
            prefix_len,
        })
    }

    /// Makes a page an empty page of a tree whose keys will share a prefix.
    pub(super) fn init(
        page: &'a mut Page,
        number: PageNo,
        commit: CommitNo,
        kind: PageKind,
        level: usize,
        prefix: &[u8],
    ) -> Self {
        page.init(kind, level as u8, number, commit);
        page.set_u16_at(PREFIX_LEN_AT, prefix.len() as u16);
        page.set_u16_at(CELLS_AT, PAGE_BYTES as u16);
        if let Some(place) = page
            .bytes_mut()
            .get_mut(NODE_HEADER_BYTES..NODE_HEADER_BYTES + prefix.len())
        {
            place.copy_from_slice(prefix);
        }
        Self {
            page,
            kind,
            n: 0,
            prefix_len: prefix.len(),
        }
    }

    pub(super) fn as_node(&self) -> Option<Node<'_>> {
        Node::lay_out(self.page, self.kind)
    }

    fn corrupt(&self) -> Error {
        Error::corrupt(self.page.number(), "cells do not fit into their page")
    }

    fn cells(&self) -> usize {
        usize::from(self.page.u16_at(CELLS_AT))
    }

    fn dead(&self) -> usize {
        usize::from(self.page.u16_at(DEAD_AT))
    }

    fn heads_at(&self) -> usize {
        NODE_HEADER_BYTES + self.prefix_len
    }

    fn offsets_at(&self, n: usize) -> usize {
        self.heads_at() + n.next_multiple_of(HEADS_STEP) * HEAD_BYTES
    }

    /// Where the slots would end with one entry more.
    fn end_with_one_more(&self) -> usize {
        self.heads_at() + slots_bytes(self.n + 1)
    }

    /// Inserts an entry at `slot`. Answers `false`, and changes nothing, if its key does not begin with the page's prefix or
    /// there is no room for it.
    pub(super) fn insert(
        &mut self,
        slot: usize,
        key: &[u8],
        payload: &[u8],
        large: bool,
    ) -> Result<bool> {
        let prefix = self
            .page
            .bytes()
            .get(NODE_HEADER_BYTES..self.heads_at())
            .unwrap_or_default();
        // The first entry of a branch has no key.
        let keyless = self.kind != PageKind::Leaf && slot == 0;
        let suffix = match key.strip_prefix(prefix) {
            _ if keyless => &[],
            Some(suffix) => suffix,
            None => return Ok(false),
        };
        let need = cell_bytes(self.kind, suffix.len(), payload.len());
        let floor = self.end_with_one_more() + need;
        if self.cells() < floor {
            if self.cells() + self.dead() < floor {
                return Ok(false);
            }
            self.compact()?;
            if self.cells() < floor {
                return Err(self.corrupt());
            }
        }
        let at = self.cells() - need;
        self.write_cell(at, suffix, payload, large)
            .ok_or_else(|| self.corrupt())?;
        self.open_slot(slot, head_of(suffix), at)
            .ok_or_else(|| self.corrupt())?;
        self.page.set_u16_at(CELLS_AT, at as u16);
        Ok(true)
    }

    fn write_cell(&mut self, at: usize, suffix: &[u8], payload: &[u8], large: bool) -> Option<()> {
        let len = (suffix.len() as u16).to_le_bytes();
        let value = if large { LARGE } else { payload.len() as u16 }.to_le_bytes();
        let leaf: [&[u8]; 4] = [&len, &value, tail_of(suffix), payload];
        let branch: [&[u8]; 4] = [&len, &[], payload, tail_of(suffix)];
        let mut at = at;
        for part in if self.kind == PageKind::Leaf {
            leaf
        } else {
            branch
        } {
            self.page
                .bytes_mut()
                .get_mut(at..at + part.len())?
                .copy_from_slice(part);
            at += part.len();
        }
        Some(())
    }

    fn open_slot(&mut self, slot: usize, head: u32, cell: usize) -> Option<()> {
        let n = self.n;
        if slot > n {
            return None;
        }
        let (heads, old, new) = (self.heads_at(), self.offsets_at(n), self.offsets_at(n + 1));
        let end = new + 2 * (n + 1);
        if end > self.cells() {
            return None;
        }
        let bytes = self.page.bytes_mut();
        bytes.copy_within(old + 2 * slot..old + 2 * n, new + 2 * (slot + 1));
        if old != new {
            bytes.copy_within(old..old + 2 * slot, new);
        }
        bytes.copy_within(
            heads + HEAD_BYTES * slot..heads + HEAD_BYTES * n,
            heads + HEAD_BYTES * (slot + 1),
        );
        let head_at = heads + HEAD_BYTES * slot;
        bytes
            .get_mut(head_at..head_at + HEAD_BYTES)?
            .copy_from_slice(&head.to_le_bytes());
        let offset_at = new + 2 * slot;
        bytes
            .get_mut(offset_at..offset_at + 2)?
            .copy_from_slice(&(cell as u16).to_le_bytes());
        self.n = n + 1;
        self.page.set_u16_at(COUNT_AT, self.n as u16);
        Some(())
    }

    /// Removes the entry at `slot`. In a branch, the entry that becomes the first one keeps its separator: see
    /// [`NodeMut::drop_first_key`].
    pub(super) fn remove(&mut self, slot: usize) -> Result<()> {
        let (len, at) = self
            .as_node()
            .and_then(|node| {
                let cell = node.find_cell(slot)?;
                let at = u16::from_le_bytes(*node.offsets.get(slot)?);
                Some((
                    cell_bytes(self.kind, cell.suffix_len, cell.payload.len()),
                    usize::from(at),
                ))
            })
            .ok_or_else(|| self.corrupt())?;
        let n = self.n;
        let (heads, old, new) = (self.heads_at(), self.offsets_at(n), self.offsets_at(n - 1));
        let bytes = self.page.bytes_mut();
        bytes.copy_within(
            heads + HEAD_BYTES * (slot + 1)..heads + HEAD_BYTES * n,
            heads + HEAD_BYTES * slot,
        );
        if old != new {
            bytes.copy_within(old..old + 2 * slot, new);
        }
        bytes.copy_within(old + 2 * (slot + 1)..old + 2 * n, new + 2 * slot);
        self.n = n - 1;
        self.page.set_u16_at(COUNT_AT, self.n as u16);
        if at == self.cells() && at + len <= PAGE_BYTES {
            self.page.set_u16_at(CELLS_AT, (at + len) as u16);
        } else {
            let dead = (self.dead() + len).min(PAGE_BYTES);
            self.page.set_u16_at(DEAD_AT, dead as u16);
        }
        Ok(())
    }

    /// Makes the first entry of a branch keyless, after the one before it was removed.
    pub(super) fn drop_first_key(&mut self) -> Result<()> {
        let node = self.as_node().ok_or_else(|| self.corrupt())?;
        let payload = node.child(0)?.encode();
        self.remove(0)?;
        let inserted = self.insert(0, &[], self.kind.child_payload(&payload), false)?;
        if inserted {
            Ok(())
        } else {
            Err(self.corrupt())
        }
    }

    /// Replaces the payload of an entry by one of the same length.
    pub(super) fn set_payload(&mut self, slot: usize, payload: &[u8]) -> Result<()> {
        let place = self.as_node().and_then(|node| {
            let cell = node.find_cell(slot)?;
            let at = usize::from(u16::from_le_bytes(*node.offsets.get(slot)?));
            let skip = if self.kind == PageKind::Leaf {
                4 + cell.tail.len()
            } else {
                2
            };
            (cell.payload.len() == payload.len()).then_some(at + skip)
        });
        let bytes = self.page.bytes_mut();
        match place.and_then(|at| bytes.get_mut(at..at + payload.len())) {
            Some(place) => {
                place.copy_from_slice(payload);
                Ok(())
            }
            None => Err(self.corrupt()),
        }
    }

    pub(super) fn set_child(&mut self, slot: usize, child: Child) -> Result<()> {
        let payload = child.encode();
        self.set_payload(
            slot,
            payload.get(..child_bytes(self.kind)).unwrap_or_default(),
        )
    }

    /// Closes the gaps that removed cells left.
    fn compact(&mut self) -> Result<()> {
        let old = self.page.clone();
        let node = Node::lay_out(&old, self.kind).ok_or_else(|| self.corrupt())?;
        let floor = self.heads_at() + slots_bytes(self.n);
        let offsets = self.offsets_at(self.n);
        let bytes = self.page.bytes_mut();
        let mut at = PAGE_BYTES;
        for slot in 0..node.len() {
            let copied = node.find_cell(slot).and_then(|cell| {
                let len = cell_bytes(self.kind, cell.suffix_len, cell.payload.len());
                let from = usize::from(u16::from_le_bytes(*node.offsets.get(slot)?));
                let to = at.checked_sub(len).filter(|&to| to >= floor)?;
                bytes
                    .get_mut(to..to + len)?
                    .copy_from_slice(old.bytes().get(from..from + len)?);
                let offset_at = offsets + 2 * slot;
                bytes
                    .get_mut(offset_at..offset_at + 2)?
                    .copy_from_slice(&(to as u16).to_le_bytes());
                Some(to)
            });
            at = copied
                .ok_or_else(|| Error::corrupt(old.number(), "cells do not fit into their page"))?;
        }
        // Nothing stale stays between slots and cells: what is not used is zero, in the page and in its log record.
        if let Some(gap) = bytes.get_mut(floor..at) {
            gap.fill(0);
        }
        self.page.set_u16_at(CELLS_AT, at as u16);
        self.page.set_u16_at(DEAD_AT, 0);
        Ok(())
    }
}
