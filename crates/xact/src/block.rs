//! A block of records in key order, the node of both search trees.
//!
//! ```text
//! OFFSET  SIZE  DESCRIPTION
//!      0     2  kind
//!      2     2  level: 0 where values are stored
//!      4     4  changes: counts every change, so that each one writes to the block's first page
//!      8     4  count of records
//!     12     4  cells: where the lowest cell begins
//!     16     4  holes: bytes of cells that are no longer used
//!     20     4  fence: where the cell of the lower bound is, or 0
//!     24     8  first child, in a branch
//!     32     8  a slot for each record: the first 4 bytes of its key, 4 bytes where its cell is
//!            …  free
//!  cells     …  cells: 2 bytes length of key, 4 bytes length of value, key, value
//! ```
//!
//! Slots are sorted, cells are not: a change moves slots and writes one cell, which keeps logs short. A search compares
//! the first bytes that the slots repeat, and rarely looks at more than one cell. The top bit of a value's length says
//! that the value is stored outside of the block and these are its offset and length.
//!
//! Every number is checked before it is used; a contradiction is [`Fault::Damaged`].

#![deny(clippy::indexing_slicing)]

use std::cmp::Ordering;
use std::ops::Range;

use crate::fixed::Fixed;
use crate::memory::{Fault, Memory, PAGE_BYTES};

pub(crate) const HEADER_BYTES: usize = 32;
pub(crate) const SLOT_BYTES: usize = 8;
pub(crate) const CELL_HEADER_BYTES: usize = 6;

/// Bytes of a value's description when it is stored outside of the block.
pub(crate) const OUTSIDE_BYTES: usize = 16;

const OUTSIDE: u32 = 1 << 31;

/// What a block is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Nothing any more. The one that still finds its way here has read something outdated.
    Freed,
    /// Keys with values.
    Leaf,
    /// Keys with the blocks that begin at them.
    Branch,
    /// Nothing any more: the records are in the array that replaces this one.
    Moved,
}

impl Kind {
    fn tag(self) -> u16 {
        match self {
            Kind::Freed => 0x4652,
            Kind::Leaf => 0x4c45,
            Kind::Branch => 0x4252,
            Kind::Moved => 0x4d4f,
        }
    }

    fn of_tag(tag: u16) -> Option<Self> {
        [Kind::Freed, Kind::Leaf, Kind::Branch, Kind::Moved]
            .into_iter()
            .find(|kind| kind.tag() == tag)
    }
}

#[derive(Clone, Copy, Debug)]
struct Header {
    kind: Kind,
    level: u16,
    changes: u32,
    count: usize,
    cells: usize,
    holes: usize,
    fence: usize,
    first: u64,
}

impl Header {
    fn decode(from: &[u8], block_bytes: usize) -> Result<Self, &'static str> {
        let number = |at: usize| from.get(at..at + 4).map_or(0, u32::decode);
        let short = |at: usize| from.get(at..at + 2).map_or(0, u16::decode);
        let header = Self {
            kind: Kind::of_tag(short(0)).ok_or("no block begins here")?,
            level: short(2),
            changes: number(4),
            count: number(8) as usize,
            cells: number(12) as usize,
            holes: number(16) as usize,
            fence: number(20) as usize,
            first: from.get(24..HEADER_BYTES).map_or(0, u64::decode),
        };
        if header.count > block_bytes / SLOT_BYTES
            || header.slots_end() > header.cells
            || header.cells > block_bytes
            || header.holes > block_bytes - header.cells
            || header.fence > block_bytes
        {
            return Err("the block's header contradicts itself");
        }
        Ok(header)
    }

    fn encode(&self, to: &mut [u8]) {
        let number = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        let mut bytes = [0; HEADER_BYTES];
        let fields: [&[u8]; 8] = [
            &self.kind.tag().to_le_bytes(),
            &self.level.to_le_bytes(),
            &self.changes.to_le_bytes(),
            &number(self.count).to_le_bytes(),
            &number(self.cells).to_le_bytes(),
            &number(self.holes).to_le_bytes(),
            &number(self.fence).to_le_bytes(),
            &self.first.to_le_bytes(),
        ];
        let mut rest = bytes.as_mut_slice();
        for field in fields {
            let (place, behind) = rest.split_at_mut(field.len());
            place.copy_from_slice(field);
            rest = behind;
        }
        to.copy_from_slice(&bytes);
    }

    fn slots_end(&self) -> usize {
        HEADER_BYTES + SLOT_BYTES * self.count
    }

    /// Whether a record of these bytes, slot included, fits.
    fn fits(&self, bytes: usize) -> bool {
        self.cells - self.slots_end() + self.holes >= bytes
    }

    /// Bytes that records take, with their slots.
    fn used(&self, block_bytes: usize) -> usize {
        SLOT_BYTES * self.count + (block_bytes - self.cells) - self.holes
    }
}

/// A record as it is stored: the value may be the description of one outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cell<'m> {
    pub(crate) key: &'m [u8],
    pub(crate) value: &'m [u8],
    /// Whether `value` is the offset and length of a value outside of the block.
    pub(crate) outside: bool,
}

impl Cell<'_> {
    /// The bytes it takes in a block, without its slot.
    pub(crate) fn bytes(&self) -> usize {
        CELL_HEADER_BYTES + self.key.len() + self.value.len()
    }

    fn encode(&self, to: &mut [u8]) {
        let flag = if self.outside { OUTSIDE } else { 0 };
        // Callers bound both lengths by the block.
        let key_bytes = u16::try_from(self.key.len()).unwrap_or(u16::MAX);
        let value_bytes = u32::try_from(self.value.len()).unwrap_or(u32::MAX) | flag;
        let (head, rest) = to.split_at_mut(CELL_HEADER_BYTES);
        let (first, second) = head.split_at_mut(2);
        first.copy_from_slice(&key_bytes.to_le_bytes());
        second.copy_from_slice(&value_bytes.to_le_bytes());
        let (key, value) = rest.split_at_mut(self.key.len());
        key.copy_from_slice(self.key);
        value.copy_from_slice(self.value);
    }
}

/// The lengths in a cell's header: of the key, of the value, and whether that is outside.
#[inline]
fn lengths(header: &[u8]) -> (usize, usize, bool) {
    let (key, value) = header.split_at_checked(2).unwrap_or_default();
    let value = if value.len() == 4 {
        u32::decode(value)
    } else {
        0
    };
    let key = if key.len() == 2 { u16::decode(key) } else { 0 };
    (
        usize::from(key),
        (value & !OUTSIDE) as usize,
        value & OUTSIDE != 0,
    )
}

/// The first bytes of a key as slots repeat them, in an order that agrees with that of the keys.
#[inline]
fn head(key: &[u8]) -> u32 {
    match key.first_chunk::<4>() {
        Some(bytes) => u32::from_be_bytes(*bytes),
        None => {
            let mut bytes = [0; 4];
            for (to, from) in bytes.iter_mut().zip(key) {
                *to = *from;
            }
            u32::from_be_bytes(bytes)
        }
    }
}

/// A block to read.
#[derive(Debug)]
pub(crate) struct Block<'m, M> {
    memory: &'m M,
    at: u64,
    bytes: usize,
    header: Header,
    /// The whole block where it is one page at most; reading a larger one as a whole would fetch all its pages.
    whole: &'m [u8],
}

impl<M> Clone for Block<'_, M> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<M> Copy for Block<'_, M> {}

impl<'m, M: Memory> Block<'m, M> {
    /// The block of `bytes` bytes at `at`, whatever its kind.
    pub(crate) fn open(memory: &'m M, at: u64, bytes: usize) -> Result<Self, M::Error> {
        let (whole, header): (&[u8], _) = if bytes <= PAGE_BYTES {
            let whole = memory.read(at, bytes)?;
            (whole, whole)
        } else {
            (&[], memory.read(at, HEADER_BYTES)?)
        };
        let header = Header::decode(header, bytes).map_err(|reason| damaged(at, reason))?;
        Ok(Self {
            memory,
            at,
            bytes,
            header,
            whole,
        })
    }

    pub(crate) fn at(&self) -> u64 {
        self.at
    }

    pub(crate) fn kind(&self) -> Kind {
        self.header.kind
    }

    pub(crate) fn level(&self) -> usize {
        usize::from(self.header.level)
    }

    pub(crate) fn count(&self) -> usize {
        self.header.count
    }

    /// The first child of a branch.
    pub(crate) fn first(&self) -> u64 {
        self.header.first
    }

    /// Bytes that records take, with their slots.
    pub(crate) fn used(&self) -> usize {
        self.header.used(self.bytes)
    }

    /// Whether a record of these bytes, slot included, fits.
    pub(crate) fn fits(&self, bytes: usize) -> bool {
        self.header.fits(bytes)
    }

    #[inline]
    fn part(&self, from: usize, bytes: usize) -> Result<&'m [u8], M::Error> {
        let end = from.saturating_add(bytes);
        if self.whole.is_empty() {
            if end > self.bytes {
                return Err(self.damaged("a cell reaches beyond the block"));
            }
            return self.memory.read(self.at + from as u64, bytes);
        }
        self.whole
            .get(from..end)
            .ok_or_else(|| self.damaged("a cell reaches beyond the block"))
    }

    #[inline]
    fn slot(&self, index: usize) -> Result<(u32, usize), M::Error> {
        if index >= self.header.count {
            return Err(self.damaged("a record that does not exist"));
        }
        let slot = self.part(HEADER_BYTES + SLOT_BYTES * index, SLOT_BYTES)?;
        let (head, cell) = slot.split_first_chunk::<4>().unwrap_or((&[0; 4], &[]));
        let cell = cell
            .first_chunk::<4>()
            .map_or(0, |c| u32::from_le_bytes(*c));
        Ok((u32::from_be_bytes(*head), cell as usize))
    }

    #[inline]
    fn cell_at(&self, at: usize) -> Result<Cell<'m>, M::Error> {
        if at < self.header.cells {
            return Err(self.damaged("a cell begins below the cells"));
        }
        let (key_bytes, value_bytes, outside) = lengths(self.part(at, CELL_HEADER_BYTES)?);
        let body = self.part(at + CELL_HEADER_BYTES, key_bytes + value_bytes)?;
        let (key, value) = body.split_at_checked(key_bytes).unwrap_or_default();
        Ok(Cell {
            key,
            value,
            outside,
        })
    }

    #[inline]
    fn key_at(&self, at: usize) -> Result<&'m [u8], M::Error> {
        let (key_bytes, _, _) = lengths(self.part(at, CELL_HEADER_BYTES)?);
        self.part(at + CELL_HEADER_BYTES, key_bytes)
    }

    /// The record at a place in the order.
    #[inline]
    pub(crate) fn cell(&self, index: usize) -> Result<Cell<'m>, M::Error> {
        self.cell_at(self.slot(index)?.1)
    }

    /// The key of the record at a place in the order.
    pub(crate) fn key(&self, index: usize) -> Result<&'m [u8], M::Error> {
        self.key_at(self.slot(index)?.1)
    }

    /// The lower bound kept beside the records.
    pub(crate) fn fence(&self) -> Result<Option<&'m [u8]>, M::Error> {
        match self.header.fence {
            0 => Ok(None),
            at => self.key_at(at).map(Some),
        }
    }

    /// How many keys are lower than `key`, and whether the next one is equal.
    pub(crate) fn search(&self, key: &[u8]) -> Result<(usize, bool), M::Error> {
        let wanted = head(key);
        let (mut low, mut high) = (0, self.header.count);
        while low < high {
            let middle = low.midpoint(high);
            let (head, at) = self.slot(middle)?;
            let order = match head.cmp(&wanted) {
                Ordering::Equal => self.key_at(at)?.cmp(key),
                decided => decided,
            };
            match order {
                Ordering::Less => low = middle + 1,
                Ordering::Equal => return Ok((middle, true)),
                Ordering::Greater => high = middle,
            }
        }
        Ok((low, false))
    }

    /// The child of a branch that is before its first key (0) or begins at key `index - 1`.
    pub(crate) fn child(&self, index: usize) -> Result<u64, M::Error> {
        match index.checked_sub(1) {
            None => Ok(self.header.first),
            Some(index) => {
                let cell = self.cell(index)?;
                let child: &[u8; 8] = cell
                    .value
                    .try_into()
                    .map_err(|_| self.damaged("a branch without a child"))?;
                Ok(u64::from_le_bytes(*child))
            }
        }
    }

    /// Verifies everything that can be seen in the block alone: the order of the keys, their heads, and that the cells
    /// neither overlap nor leave bytes unaccounted for.
    pub(crate) fn check(&self) -> Result<(), M::Error> {
        let mut ranges: Vec<Range<usize>> = Vec::new();
        let mut last: Option<&[u8]> = None;
        for index in 0..self.header.count {
            let (slot_head, at) = self.slot(index)?;
            let cell = self.cell_at(at)?;
            if slot_head != head(cell.key) {
                return Err(self.damaged("a slot repeats another key"));
            }
            if last.is_some_and(|last| last >= cell.key) {
                return Err(self.damaged("keys are out of order"));
            }
            last = Some(cell.key);
            ranges.push(at..at + cell.bytes());
        }
        if self.header.fence != 0 {
            let cell = self.cell_at(self.header.fence)?;
            if cell.key > self.key(0).unwrap_or(cell.key) {
                return Err(self.damaged("a key is below the lower bound"));
            }
            ranges.push(self.header.fence..self.header.fence + cell.bytes());
        }
        ranges.sort_by_key(|range| range.start);
        let mut end = self.header.cells;
        let mut holes = 0;
        for range in ranges {
            holes += range
                .start
                .checked_sub(end)
                .ok_or_else(|| self.damaged("cells overlap"))?;
            end = range.end;
        }
        if holes + (self.bytes - end) != self.header.holes {
            return Err(self.damaged("bytes of cells are lost"));
        }
        Ok(())
    }

    pub(crate) fn damaged(&self, reason: &'static str) -> M::Error {
        damaged(self.at, reason)
    }
}

pub(crate) fn damaged<E: From<Fault>>(offset: u64, reason: &'static str) -> E {
    Fault::Damaged { offset, reason }.into()
}

/// Records outside of any block, in cell form, on their way from blocks to others.
#[derive(Debug, Default)]
pub(crate) struct Records {
    bytes: Vec<u8>,
    /// Where each cell ends.
    ends: Vec<usize>,
}

impl Records {
    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    fn range(&self, index: usize) -> Range<usize> {
        let start = match index.checked_sub(1) {
            Some(before) => self.ends.get(before).copied().unwrap_or(0),
            None => 0,
        };
        start..self.ends.get(index).copied().unwrap_or(start)
    }

    /// The bytes record `index` takes in a block, with its slot.
    pub(crate) fn bytes(&self, index: usize) -> usize {
        self.range(index).len() + SLOT_BYTES
    }

    /// The bytes of these records in a block, with their slots.
    pub(crate) fn bytes_of(&self, records: Range<usize>) -> usize {
        if records.is_empty() {
            return 0;
        }
        self.range(records.end - 1).end - self.range(records.start).start
            + SLOT_BYTES * records.len()
    }

    fn stored(&self, index: usize) -> &[u8] {
        self.bytes.get(self.range(index)).unwrap_or_default()
    }

    pub(crate) fn cell(&self, index: usize) -> Cell<'_> {
        let (header, body) = self
            .stored(index)
            .split_at_checked(CELL_HEADER_BYTES)
            .unwrap_or_default();
        let (key_bytes, _, outside) = lengths(header);
        let (key, value) = body.split_at_checked(key_bytes).unwrap_or_default();
        Cell {
            key,
            value,
            outside,
        }
    }

    pub(crate) fn key(&self, index: usize) -> &[u8] {
        self.cell(index).key
    }

    pub(crate) fn push(&mut self, cell: Cell<'_>) {
        let start = self.bytes.len();
        self.bytes.resize(start + cell.bytes(), 0);
        cell.encode(self.bytes.get_mut(start..).unwrap_or_default());
        self.ends.push(self.bytes.len());
    }

    /// Appends the records of a block.
    pub(crate) fn take<M: Memory>(
        &mut self,
        block: &Block<'_, M>,
        records: Range<usize>,
    ) -> Result<(), M::Error> {
        for index in records {
            self.push(block.cell(index)?);
        }
        Ok(())
    }
}

/// A block to change. Every method leaves it complete.
pub(crate) struct BlockMut<'m, M> {
    memory: &'m mut M,
    at: u64,
    bytes: usize,
    header: Header,
}

/// A key and its value.
pub(crate) type Record<'m> = (&'m [u8], &'m [u8]);

impl<'m, M: Memory> BlockMut<'m, M> {
    pub(crate) fn open(memory: &'m mut M, at: u64, bytes: usize) -> Result<Self, M::Error> {
        let header = Header::decode(memory.read(at, HEADER_BYTES)?, bytes)
            .map_err(|reason| damaged(at, reason))?;
        Ok(Self {
            memory,
            at,
            bytes,
            header,
        })
    }

    /// Makes an empty block where none is, or where everything may go.
    pub(crate) fn format(
        memory: &'m mut M,
        at: u64,
        bytes: usize,
        kind: Kind,
        level: usize,
    ) -> Result<Self, M::Error> {
        // The count of changes goes on from whatever is there, so that the page is different afterwards.
        let changes = memory.read(at + 4, 4).map(u32::decode)?;
        let header = Header {
            kind,
            level: u16::try_from(level).unwrap_or(u16::MAX),
            changes,
            count: 0,
            cells: bytes,
            holes: 0,
            fence: 0,
            first: 0,
        };
        let mut block = Self {
            memory,
            at,
            bytes,
            header,
        };
        block.store_header()?;
        Ok(block)
    }

    fn block(&self) -> Result<Block<'_, M>, M::Error> {
        Block::open(self.memory, self.at, self.bytes)
    }

    fn store_header(&mut self) -> Result<(), M::Error> {
        self.header.changes = self.header.changes.wrapping_add(1);
        self.header
            .encode(self.memory.write(self.at, HEADER_BYTES)?);
        Ok(())
    }

    fn write(&mut self, from: usize, bytes: usize) -> Result<&mut [u8], M::Error> {
        self.memory.write(self.at + from as u64, bytes)
    }

    /// Whether a record of these bytes, slot included, fits.
    pub(crate) fn fits(&self, bytes: usize) -> bool {
        self.header.fits(bytes)
    }

    /// Changes nothing but the count of changes: for the one that relies on what the block does not hold.
    pub(crate) fn note_change(&mut self) -> Result<(), M::Error> {
        self.store_header()
    }

    pub(crate) fn set_first(&mut self, first: u64) -> Result<(), M::Error> {
        self.header.first = first;
        self.store_header()
    }

    pub(crate) fn set_kind(&mut self, kind: Kind) -> Result<(), M::Error> {
        self.header.kind = kind;
        self.store_header()
    }

    /// Puts a record at a place in the order. It [fits](Self::fits).
    pub(crate) fn insert(&mut self, index: usize, cell: Cell<'_>) -> Result<(), M::Error> {
        let need = cell.bytes() + SLOT_BYTES;
        if self.header.cells - self.header.slots_end() < need {
            self.compact()?;
            if self.header.cells - self.header.slots_end() < need {
                return Err(damaged(
                    self.at,
                    "the free bytes of the block are not there",
                ));
            }
        }
        let behind = self
            .header
            .count
            .checked_sub(index)
            .ok_or_else(|| damaged(self.at, "a place behind the last record"))?;
        let at = self.header.cells - cell.bytes();
        cell.encode(self.write(at, cell.bytes())?);
        let slots = self.write(HEADER_BYTES + SLOT_BYTES * index, SLOT_BYTES * (behind + 1))?;
        slots.copy_within(..SLOT_BYTES * behind, SLOT_BYTES);
        encode_slot(slots, 0, cell.key, at);
        self.header.cells = at;
        self.header.count += 1;
        self.store_header()
    }

    /// Takes a record out.
    pub(crate) fn remove(&mut self, index: usize) -> Result<(), M::Error> {
        let cell_bytes = self.block()?.cell(index)?.bytes();
        let behind = self.header.count - index - 1;
        let slots = self.write(HEADER_BYTES + SLOT_BYTES * index, SLOT_BYTES * (behind + 1))?;
        slots.copy_within(SLOT_BYTES.., 0);
        self.header.count -= 1;
        self.lose(cell_bytes)?;
        self.store_header()
    }

    /// Writes over a value with one of the same length.
    pub(crate) fn overwrite(&mut self, index: usize, value: &[u8]) -> Result<(), M::Error> {
        let (_, at) = self.block()?.slot(index)?;
        let cell = self.block()?.cell_at(at)?;
        if cell.value.len() != value.len() {
            return Err(damaged(self.at, "a value has changed its length"));
        }
        let at = at + CELL_HEADER_BYTES + cell.key.len();
        self.write(at, value.len())?.copy_from_slice(value);
        self.store_header()
    }

    /// Forgets the records from `index` on, without touching them.
    pub(crate) fn truncate(&mut self, index: usize) -> Result<(), M::Error> {
        let block = self.block()?;
        let mut lost = 0;
        for index in index..self.header.count {
            lost += block.cell(index)?.bytes();
        }
        self.header.count = self.header.count.min(index);
        self.lose(lost)?;
        self.store_header()
    }

    fn lose(&mut self, bytes: usize) -> Result<(), M::Error> {
        self.header.holes += bytes;
        if self.header.holes > self.bytes - self.header.cells {
            return Err(damaged(self.at, "cells overlap"));
        }
        Ok(())
    }

    /// Closes the holes between the cells.
    fn compact(&mut self) -> Result<(), M::Error> {
        let block = self.block()?;
        let mut records = Records::default();
        records.take(&block, 0..block.count())?;
        let fence = block.fence()?.map(<[u8]>::to_vec);
        self.fill(&records, 0..records.len(), fence.as_deref())
    }

    /// Replaces all records, and the lower bound kept beside them.
    pub(crate) fn fill(
        &mut self,
        records: &Records,
        range: Range<usize>,
        fence: Option<&[u8]>,
    ) -> Result<(), M::Error> {
        let fence = fence.map(|key| Cell {
            key,
            value: &[],
            outside: false,
        });
        let fence_bytes = fence.map_or(0, |cell| cell.bytes());
        let cell_bytes = records.bytes_of(range.clone()) - SLOT_BYTES * range.len() + fence_bytes;
        let slots_end = HEADER_BYTES + SLOT_BYTES * range.len();
        let cells = self
            .bytes
            .checked_sub(cell_bytes)
            .filter(|cells| *cells >= slots_end)
            .ok_or_else(|| damaged(self.at, "the records overlap in their block"))?;
        let tail = self.memory.write(self.at + cells as u64, cell_bytes)?;
        let mut at = cell_bytes;
        for index in range.clone() {
            let stored = records.stored(index);
            at -= stored.len();
            if let Some(to) = tail.get_mut(at..at + stored.len()) {
                to.copy_from_slice(stored);
            }
        }
        if let (Some(cell), Some(to)) = (fence, tail.get_mut(..at)) {
            cell.encode(to);
        }
        let slots = self
            .memory
            .write(self.at + HEADER_BYTES as u64, slots_end - HEADER_BYTES)?;
        let mut at = self.bytes;
        for (place, index) in range.clone().enumerate() {
            at -= records.stored(index).len();
            encode_slot(slots, place, records.key(index), at);
        }
        self.header.count = range.len();
        self.header.cells = cells;
        self.header.holes = 0;
        self.header.fence = if fence.is_some() { cells } else { 0 };
        self.store_header()
    }
}

fn encode_slot(slots: &mut [u8], place: usize, key: &[u8], at: usize) {
    let start = SLOT_BYTES * place;
    if let Some((to_head, to_at)) = slots
        .get_mut(start..start + SLOT_BYTES)
        .map(|slot| slot.split_at_mut(4))
    {
        to_head.copy_from_slice(&head(key).to_be_bytes());
        let at = u32::try_from(at).unwrap_or(u32::MAX);
        to_at.copy_from_slice(&at.to_le_bytes());
    }
}

/// The shortest key above `low` that is not above `high`.
pub(crate) fn separator<'k>(low: &[u8], high: &'k [u8]) -> &'k [u8] {
    let common = low.iter().zip(high).take_while(|(a, b)| a == b).count();
    high.get(..=common).unwrap_or(high)
}
