//! Changing a page of a tree in place.

#![deny(clippy::indexing_slicing)]

use std::ops::Range;

use super::{
    CELLS_AT, COUNT_AT, Child, DEAD_AT, HEAD_BYTES, HEADS_STEP, InsertionRun, KEY_BYTES, Mark,
    NODE_HEADER_BYTES, Node, PAIR_BYTES, PREFIX_LEN_AT, cell_bytes, child_bytes, head_of,
    slots_bytes, split_u16, tail_of,
};
use crate::error::{Error, Result};
use crate::format::page::{PAGE_BYTES, Page, PageKind};
use crate::ids::{CommitNo, PageNo};
use crate::tree::node::insertions::RUN_AT;

/// Where an entry stands in its page.
struct EntryLayout {
    cell: Range<usize>,
    payload: Range<usize>,
    mark: Mark,
}

/// A page of a tree, to be changed.
pub(crate) struct NodeMut<'a> {
    page: &'a mut Page,
    kind: PageKind,
    n: usize,
    /// Of a packed leaf, the size of its keys, of a leaf of places that of its pairs.
    prefix_len: usize,
}

impl<'a> NodeMut<'a> {
    /// Takes a page that [`Node::open`] takes.
    pub(crate) fn open(
        page: &'a mut Page,
        number: PageNo,
        kind: PageKind,
        level: usize,
    ) -> Result<Self> {
        let node = Node::open(page, number, kind, level)?;
        let (n, prefix_len) = (node.len(), usize::from(node.prefix_len));
        Ok(Self {
            page,
            kind,
            n,
            prefix_len,
        })
    }

    /// Makes a page an empty page of a tree whose keys will share a prefix.
    pub(crate) fn init(
        page: &'a mut Page,
        number: PageNo,
        commit: CommitNo,
        kind: PageKind,
        level: usize,
        prefix: &[u8],
    ) -> Self {
        page.init(kind, level as u8, number, commit);
        let prefix_len = match kind {
            PageKind::PointerLeaf => PAIR_BYTES,
            _ => prefix.len(),
        };
        page.set_u16_at(PREFIX_LEN_AT, prefix_len as u16);
        if !kind.has_equal_entries() {
            page.set_u16_at(CELLS_AT, PAGE_BYTES as u16);
        }
        // No prefix is longer than a key.
        let _: Option<()> = page.store(NODE_HEADER_BYTES, prefix);
        Self {
            page,
            kind,
            n: 0,
            prefix_len,
        }
    }

    pub(crate) fn as_node(&self) -> Option<Node<'_>> {
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
        self.heads_at() + slots_bytes(self.kind, self.n + 1)
    }

    /// Inserts an entry at `slot`. Answers `false`, and changes nothing, if its key does not begin with the page's
    /// prefix or there is no room for it.
    pub(crate) fn insert(
        &mut self,
        slot: usize,
        key: &[u8],
        payload: &[u8],
        mark: Mark,
    ) -> Result<bool> {
        match self.kind {
            PageKind::PackedLeaf => return self.insert_packed(slot, &[key]),
            PageKind::PointerLeaf => return self.insert_packed(slot, &[key, payload]),
            _ => {}
        }
        let prefix = self
            .page
            .bytes()
            .get(NODE_HEADER_BYTES..self.heads_at())
            .unwrap_or_default();
        // The first entry of a branch has no key.
        let keyless = !self.kind.is_leaf() && slot == 0;
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
        self.write_cell(at, suffix, payload, mark)
            .ok_or_else(|| self.corrupt())?;
        self.open_slot(slot, head_of(suffix), at)
            .ok_or_else(|| self.corrupt())?;
        self.page.set_u16_at(CELLS_AT, at as u16);
        Ok(true)
    }

    /// Fills an empty page with entries in ascending order. Answers `false` if it has no room for them, or their keys
    /// do not begin with its prefix.
    pub(crate) fn fill<'e>(
        &mut self,
        entries: impl ExactSizeIterator<Item = (&'e [u8], &'e [u8], Mark)>,
    ) -> Result<bool> {
        if self.kind.has_equal_entries() {
            for (slot, (key, payload, mark)) in entries.enumerate() {
                if !self.insert(slot, key, payload, mark)? {
                    return Ok(false);
                }
            }
            return Ok(true);
        }
        Ok(self.fill_slots(entries).is_some())
    }

    fn fill_slots<'e>(
        &mut self,
        entries: impl ExactSizeIterator<Item = (&'e [u8], &'e [u8], Mark)>,
    ) -> Option<()> {
        let n = entries.len();
        let prefix = self.page.bytes().get(NODE_HEADER_BYTES..self.heads_at())?;
        let prefix = prefix.to_vec();
        let (heads, offsets) = (self.heads_at(), self.offsets_at(n));
        let floor = offsets + 2 * n;
        let mut at = PAGE_BYTES;
        for (slot, (key, payload, mark)) in entries.enumerate() {
            let suffix = match !self.kind.is_leaf() && slot == 0 {
                true => &[],
                false => key.strip_prefix(&prefix[..])?,
            };
            let need = cell_bytes(self.kind, suffix.len(), payload.len());
            at = at.checked_sub(need).filter(|&at| at >= floor)?;
            self.write_cell(at, suffix, payload, mark)?;
            let head = head_of(suffix).to_le_bytes();
            self.page.store(heads + HEAD_BYTES * slot, &head)?;
            self.page
                .store(offsets + 2 * slot, &(at as u16).to_le_bytes())?;
        }
        self.n = n;
        self.page.set_u16_at(COUNT_AT, n as u16);
        self.page.set_u16_at(CELLS_AT, at as u16);
        Some(())
    }

    fn insert_packed(&mut self, slot: usize, parts: &[&[u8]]) -> Result<bool> {
        let n = self.n;
        let bytes = parts.iter().map(|part| part.len()).sum();
        if n == 0 && self.kind == PageKind::PackedLeaf {
            self.page.set_u16_at(PREFIX_LEN_AT, bytes as u16);
            self.prefix_len = bytes;
        }
        let size = self.prefix_len;
        if bytes != size || size == 0 || slot > n {
            return Err(self.corrupt());
        }
        if (n + 1) * size > self.kind.room_bytes() {
            return Ok(false);
        }
        let (at, end) = (
            NODE_HEADER_BYTES + slot * size,
            NODE_HEADER_BYTES + n * size,
        );
        self.page.shift(at..end, at + size);
        let mut to = at;
        for part in parts {
            self.page.store(to, part).ok_or_else(|| self.corrupt())?;
            to += part.len();
        }
        self.n = n + 1;
        self.page.set_u16_at(COUNT_AT, self.n as u16);
        Ok(true)
    }

    /// Adds keys of its size behind the last one of a packed leaf, as many as it has room for; how many these are.
    pub(crate) fn extend_packed(&mut self, keys: &[u8]) -> Result<usize> {
        let (n, size) = (self.n, self.prefix_len);
        let end = NODE_HEADER_BYTES + n * size;
        let room = keys.len().min(PAGE_BYTES.saturating_sub(end));
        let taken = room.checked_div(size).unwrap_or(0);
        keys.get(..taken * size)
            .and_then(|keys| self.page.store(end, keys))
            .ok_or_else(|| self.corrupt())?;
        self.n = n + taken;
        self.page.set_u16_at(COUNT_AT, self.n as u16);
        let run = InsertionRun::of(self.page);
        self.set_run((n..self.n).fold(run, InsertionRun::after));
        Ok(taken)
    }

    fn remove_packed(&mut self, slot: usize) -> Result<()> {
        let (n, size) = (self.n, self.prefix_len);
        if slot >= n {
            return Err(self.corrupt());
        }
        let at = NODE_HEADER_BYTES + slot * size;
        let end = NODE_HEADER_BYTES + n * size;
        self.page.shift(at + size..end, at);
        self.page.clear(end - size..end);
        self.n = n - 1;
        self.page.set_u16_at(COUNT_AT, self.n as u16);
        Ok(())
    }

    fn write_cell(&mut self, at: usize, suffix: &[u8], payload: &[u8], mark: Mark) -> Option<()> {
        let len = (suffix.len() as u16).to_le_bytes();
        let value = mark.encode(payload.len()).to_le_bytes();
        let key = match self.kind.is_whole() {
            true => suffix,
            false => tail_of(suffix),
        };
        let leaf: [&[u8]; 4] = [&len, &value, key, payload];
        let branch: [&[u8]; 4] = [&len, &[], payload, key];
        let parts = if self.kind.is_leaf() { leaf } else { branch };
        let bytes = parts.iter().map(|part| part.len()).sum::<usize>();
        let mut cell = self.page.bytes_mut().get_mut(at..at + bytes)?;
        for part in parts {
            let (place, rest) = cell.split_at_mut_checked(part.len())?;
            place.copy_from_slice(part);
            cell = rest;
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
        let page = &mut *self.page;
        page.shift(old + 2 * slot..old + 2 * n, new + 2 * (slot + 1));
        if old != new {
            page.shift(old..old + 2 * slot, new);
        }
        page.shift(
            heads + HEAD_BYTES * slot..heads + HEAD_BYTES * n,
            heads + HEAD_BYTES * (slot + 1),
        );
        page.store(heads + HEAD_BYTES * slot, &head.to_le_bytes())?;
        page.store(new + 2 * slot, &(cell as u16).to_le_bytes())?;
        self.n = n + 1;
        self.page.set_u16_at(COUNT_AT, self.n as u16);
        Some(())
    }

    /// Removes the entry at `slot`; in a branch see [`NodeMut::remove_child`].
    pub(crate) fn remove(&mut self, slot: usize) -> Result<()> {
        if self.kind.has_equal_entries() {
            return self.remove_packed(slot);
        }
        let cell = self.layout(slot)?.cell;
        let n = self.n;
        let (heads, old, new) = (self.heads_at(), self.offsets_at(n), self.offsets_at(n - 1));
        let page = &mut *self.page;
        page.shift(
            heads + HEAD_BYTES * (slot + 1)..heads + HEAD_BYTES * n,
            heads + HEAD_BYTES * slot,
        );
        if old != new {
            page.shift(old..old + 2 * slot, new);
        }
        page.shift(old + 2 * (slot + 1)..old + 2 * n, new + 2 * slot);
        self.n = n - 1;
        self.page.set_u16_at(COUNT_AT, self.n as u16);
        if cell.start == self.cells() && cell.end <= PAGE_BYTES {
            self.page.set_u16_at(CELLS_AT, cell.end as u16);
        } else {
            let dead = (self.dead() + cell.len()).min(PAGE_BYTES);
            self.page.set_u16_at(DEAD_AT, dead as u16);
        }
        Ok(())
    }

    /// Removes an entry of a branch.
    pub(crate) fn remove_child(&mut self, slot: usize) -> Result<()> {
        self.remove(slot)?;
        match slot {
            0 if self.n > 0 => self.drop_first_key(),
            _ => Ok(()),
        }
    }

    /// Makes the first entry of a branch keyless, after the one before it was removed.
    fn drop_first_key(&mut self) -> Result<()> {
        let node = self.as_node().ok_or_else(|| self.corrupt())?;
        let payload = node.child(0)?.encode();
        self.remove(0)?;
        let inserted = self.insert(0, &[], self.kind.child_payload(&payload), Mark::Inline)?;
        inserted.then_some(()).ok_or_else(|| self.corrupt())
    }

    /// Where an entry of a page with slots stands.
    fn layout(&self, slot: usize) -> Result<EntryLayout> {
        self.find_layout(slot).ok_or_else(|| self.corrupt())
    }

    #[inline]
    fn find_layout(&self, slot: usize) -> Option<EntryLayout> {
        let offset = self.offsets_at(self.n) + 2 * slot;
        let has_place = slot < self.n && !self.kind.has_equal_entries();
        let at = usize::from(has_place.then(|| self.page.u16_at(offset))?);
        let (suffix_len, rest) = split_u16(self.page.bytes().get(at..)?)?;
        let (mark, len, skip) = if self.kind.is_leaf() {
            let (mark, len) = Mark::decode(split_u16(rest)?.0);
            (mark, len, cell_bytes(self.kind, suffix_len, 0))
        } else {
            (Mark::Inline, child_bytes(self.kind), 2)
        };
        let end = at + cell_bytes(self.kind, suffix_len, len);
        (end <= PAGE_BYTES).then_some(EntryLayout {
            cell: at..end,
            payload: at + skip..at + skip + len,
            mark,
        })
    }

    /// Where in the page the payload of an entry stands.
    pub(crate) fn payload_range(&self, slot: usize) -> Result<Range<usize>> {
        if self.kind == PageKind::PointerLeaf {
            let at = NODE_HEADER_BYTES + slot * PAIR_BYTES;
            let range = at + KEY_BYTES..at + PAIR_BYTES;
            return (slot < self.n)
                .then_some(range)
                .ok_or_else(|| self.corrupt());
        }
        Ok(self.layout(slot)?.payload)
    }

    /// Where the last insertions went.
    pub(crate) fn set_run(&mut self, run: InsertionRun) {
        self.page.set_u16_at(RUN_AT, run.0);
    }

    /// Replaces the payload of an entry by one of the same length.
    pub(crate) fn set_payload(&mut self, slot: usize, payload: &[u8]) -> Result<()> {
        let range = self.payload_range(slot)?;
        match range.len() == payload.len() {
            true => self.page.store(range.start, payload),
            false => None,
        }
        .ok_or_else(|| self.corrupt())
    }

    /// Gives an entry of a leaf another payload, of any length. Answers `false`, and changes nothing, if there is no
    /// room between slots and cells.
    pub(crate) fn replace(&mut self, slot: usize, payload: &[u8], mark: Mark) -> Result<bool> {
        match self.kind {
            // Its entries are nothing but keys.
            PageKind::PackedLeaf => return Ok(true),
            PageKind::PointerLeaf => return self.set_payload(slot, payload).map(|()| true),
            _ => {}
        }
        let resized = self.resize(slot, payload.len(), mark)?;
        Ok(resized
            .map(|place| place.copy_from_slice(payload))
            .is_some())
    }

    /// Gives the payload of an entry of a leaf with slots another length: the cells below make room, or close up. A
    /// payload that grows keeps its old bytes at its end. Answers `None`, and changes nothing, if there is no room
    /// between slots and cells.
    pub(crate) fn resize(
        &mut self,
        slot: usize,
        len: usize,
        mark: Mark,
    ) -> Result<Option<&mut [u8]>> {
        let old = self.layout(slot)?;
        let Range { start, end } = old.payload;
        if (old.mark, end - start) != (mark, len) {
            let cells = self.cells();
            let floor = self.heads_at() + slots_bytes(self.kind, self.n);
            let lowest = (cells + end - start).checked_sub(len);
            let Some(lowest) = lowest.filter(|&lowest| lowest >= floor) else {
                return Ok(None);
            };
            if old.cell.start < cells {
                return Err(self.corrupt());
            }
            self.page.shift(cells..start, lowest);
            self.page.clear(cells..lowest);
            self.move_offsets(old.cell.start, lowest.wrapping_sub(cells))
                .ok_or_else(|| self.corrupt())?;
            let at = old.cell.start + lowest - cells;
            self.page.set_u16_at(at + 2, mark.encode(len));
            self.page.set_u16_at(CELLS_AT, lowest as u16);
        }
        Ok(self.page.bytes_mut().get_mut(end - len..end))
    }

    /// Has the slots of cells that stand up to `last` say that these stand `by` bytes further on, which modulo 2^16 may
    /// be further ahead.
    fn move_offsets(&mut self, last: usize, by: usize) -> Option<()> {
        let at = self.offsets_at(self.n);
        let offsets = self.page.bytes_mut().get_mut(at..at + 2 * self.n)?;
        let (last, by) = (u16::try_from(last).ok()?, by as u16);
        // All are stored, moved or not: so the processor does many at a time.
        for offset in offsets.as_chunks_mut().0 {
            let cell = u16::from_le_bytes(*offset);
            let by = if cell <= last { by } else { 0 };
            *offset = cell.wrapping_add(by).to_le_bytes();
        }
        Some(())
    }

    pub(crate) fn set_child(&mut self, slot: usize, child: Child) -> Result<()> {
        self.set_payload(slot, self.kind.child_payload(&child.encode()))
    }

    /// Closes the gaps that removed cells left.
    fn compact(&mut self) -> Result<()> {
        let before = self.page.clone();
        self.pack(&before).ok_or_else(|| self.corrupt())
    }

    fn pack(&mut self, before: &Page) -> Option<()> {
        let node = Node::lay_out(before, self.kind)?;
        let floor = self.heads_at() + slots_bytes(self.kind, self.n);
        let offsets = self.offsets_at(self.n);
        let mut at = PAGE_BYTES;
        for slot in 0..node.len() {
            let (cell, from) = (node.find_cell(slot)?, node.offset(slot)?);
            let len = cell_bytes(self.kind, cell.suffix_len, cell.payload.len());
            at = at.checked_sub(len).filter(|&at| at >= floor)?;
            self.page.store(at, before.bytes().get(from..from + len)?)?;
            self.page
                .store(offsets + 2 * slot, &(at as u16).to_le_bytes())?;
        }
        // Nothing stale stays between slots and cells: what is not used is zero, in the page and in its log record.
        self.page.clear(floor..at);
        self.page.set_u16_at(CELLS_AT, at as u16);
        self.page.set_u16_at(DEAD_AT, 0);
        Some(())
    }
}
