//! Making a leaf anew with one entry changed.
//!
//! The cell of an entry that takes its own place again stands where the old one did, and those below make room. So a
//! leaf has no gaps to be closed later, and most of it is two runs of bytes.

#![deny(clippy::indexing_slicing)]

use std::ops::Range;

use super::{
    CELLS_AT, Cell, DEAD_AT, HEAD_BYTES, HEADS_STEP, InsertionRun, Mark, NODE_HEADER_BYTES, Node,
    PREFIX_LEN_AT, cell_bytes, head_of, slots_bytes, tail_of,
};
use crate::error::{Error, Result};
use crate::format::page::{PAGE_BYTES, PageKind, Successor};
use crate::ids::PageNo;
use crate::tree::node::insertions::RUN_AT;

/// An entry as it will be stored.
#[derive(Clone, Copy)]
pub(crate) struct Entry<'e> {
    pub(crate) key: &'e [u8],
    pub(crate) payload: &'e [u8],
    pub(crate) mark: Mark,
}

/// What happens at a slot of a leaf.
#[derive(Clone, Copy)]
pub(crate) enum Edit<'e> {
    /// The entry takes its own place again.
    Replace(Entry<'e>),
    /// A new one comes before it.
    Insert(Entry<'e>),
    Remove,
}

/// A leaf as it will be. Positions are those in the leaf as it is.
pub(crate) struct Remade<'e> {
    kind: PageKind,
    edit: Edit<'e>,
    slot: usize,
    n: usize,
    heads: usize,
    offsets: usize,
    cells: usize,
    /// The cell that goes, or the place where the first one begins.
    hole: Range<usize>,
    /// The key of what comes.
    suffix: &'e [u8],
    /// The bytes of the cell that comes.
    need: usize,
    /// Nothing but the payload is new.
    keeps_key: bool,
}

impl Node<'_> {
    /// The leaf with an entry changed; `None` if that takes more than one pass: it has no room, or another prefix.
    pub(crate) fn remade<'e>(&self, slot: usize, edit: Edit<'e>) -> Result<Option<Remade<'e>>> {
        if !self.kind.is_leaf() || self.kind.has_equal_entries() {
            return Ok(None);
        }
        let cells = usize::from(self.page.u16_at(CELLS_AT));
        let outside = || Error::corrupt(self.number(), "cell outside its page");
        let (hole, old) = match edit {
            Edit::Insert(_) if slot <= self.n => (cells..cells, None),
            _ => (
                self.cell_range(slot).ok_or_else(outside)?,
                Some(self.cell(slot)?),
            ),
        };
        if hole.start < cells || hole.end > PAGE_BYTES {
            return Err(outside());
        }
        let (mut suffix, mut need, mut keeps_key) = (&[][..], 0, false);
        if let Edit::Replace(entry) | Edit::Insert(entry) = edit {
            match entry.key.strip_prefix(self.prefix) {
                Some(behind) => suffix = behind,
                None => return Ok(None),
            }
            let is_alike = |old: Cell<'_>| {
                old.mark == entry.mark
                    && old.mark != Mark::Extent
                    && old.payload.len() == entry.payload.len()
            };
            keeps_key = old.is_some_and(is_alike);
            need = match keeps_key {
                true => hole.len(),
                false => cell_bytes(self.kind, suffix.len(), entry.payload.len()),
            };
        }
        let heads = NODE_HEADER_BYTES + self.prefix.len();
        let remade = Remade {
            kind: self.kind,
            edit,
            slot,
            n: self.n,
            heads,
            offsets: heads + self.n.next_multiple_of(HEADS_STEP) * HEAD_BYTES,
            cells,
            hole,
            suffix,
            need,
            keeps_key,
        };
        let floor = heads + slots_bytes(self.kind, remade.entries());
        let fits = floor + need <= cells + remade.hole.len();
        Ok(fits.then_some(remade))
    }

    /// Where a cell stands.
    pub(super) fn cell_range(&self, slot: usize) -> Option<Range<usize>> {
        let cell = self.find_cell(slot)?;
        let at = usize::from(u16::from_le_bytes(*self.offsets.get(slot)?));
        Some(at..at + cell_bytes(self.kind, cell.suffix_len, cell.payload.len()))
    }
}

impl Remade<'_> {
    /// How many entries there will be.
    fn entries(&self) -> usize {
        match self.edit {
            Edit::Replace(_) => self.n,
            Edit::Insert(_) => self.n + 1,
            Edit::Remove => self.n - 1,
        }
    }

    /// Puts the page together that takes the place of the one this was asked of.
    pub(crate) fn write(&self, page: Successor<'_>) -> Result<PageNo> {
        let number = page.number();
        self.put_together(page)
            .ok_or_else(|| Error::corrupt(number, "cells do not fit into their page"))
    }

    fn put_together(&self, mut page: Successor<'_>) -> Option<PageNo> {
        // Where the cells will begin. `remade` has seen that they fit.
        let cells = self.cells + self.hole.len() - self.need;
        if let Edit::Insert(_) = self.edit {
            let run = InsertionRun::of(page.old()).after(self.slot);
            page.set_header_u16(RUN_AT, run.0);
        }
        page.store(&(self.entries() as u16).to_le_bytes())?;
        page.copy(PREFIX_LEN_AT..CELLS_AT)?;
        page.store(&(cells as u16).to_le_bytes())?;
        page.copy(DEAD_AT..NODE_HEADER_BYTES)?;
        self.put_slots(&mut page)?;
        // What is not used is zero, in the page and in its log record.
        page.fill_to(cells)?;
        page.copy(self.cells..self.hole.start)?;
        self.put_cell(&mut page)?;
        page.copy(self.hole.end..PAGE_BYTES)?;
        page.finish()
    }

    /// The prefix, the heads and the offsets.
    fn put_slots(&self, page: &mut Successor<'_>) -> Option<()> {
        let head = |slot: usize| self.heads + slot * HEAD_BYTES;
        let entries = self.entries();
        let end = head(entries.next_multiple_of(HEADS_STEP));
        let (kept, next) = match self.edit {
            // In pages whose heads mean something it has the same head.
            Edit::Replace(_) => (self.n, self.n),
            Edit::Insert(_) => (self.slot, self.slot),
            Edit::Remove => (self.slot, self.slot + 1),
        };
        page.copy(NODE_HEADER_BYTES..head(kept))?;
        if let Edit::Insert(_) = self.edit {
            page.store(&head_of(self.suffix).to_le_bytes())?;
        }
        page.copy(head(next)..head(self.n))?;
        page.fill_to(head(entries.max(self.n)).min(end))?;
        match end == self.offsets {
            true => page.copy(page.len()..end)?,
            false => page.fill_to(end)?,
        }

        let offset = |slot: usize| self.offsets + slot * 2;
        let next = match self.edit {
            Edit::Replace(_) | Edit::Remove => self.slot + 1,
            Edit::Insert(_) => self.slot,
        };
        self.put_offsets(page, offset(0)..offset(self.slot))?;
        if !matches!(self.edit, Edit::Remove) {
            let place = self.hole.end - self.need;
            page.store(&(place as u16).to_le_bytes())?;
        }
        self.put_offsets(page, offset(next)..offset(self.n))
    }

    /// Some offsets. Those of cells below the one that goes change, by what modulo 2^16 is the same number up as down.
    fn put_offsets(&self, page: &mut Successor<'_>, from: Range<usize>) -> Option<()> {
        if self.hole.is_empty() || self.hole.len() == self.need {
            return page.copy(from);
        }
        let old = page.old().bytes().get(from)?.as_chunks().0;
        let new = page.part(2 * old.len())?.as_chunks_mut().0;
        let start = self.hole.start as u16;
        let by = (self.hole.len() as u16).wrapping_sub(self.need as u16);
        for (new, old) in new.iter_mut().zip(old) {
            let at = u16::from_le_bytes(*old);
            let moved = if at < start { at.wrapping_add(by) } else { at };
            *new = moved.to_le_bytes();
        }
        Some(())
    }

    fn put_cell(&self, page: &mut Successor<'_>) -> Option<()> {
        let (Edit::Replace(entry) | Edit::Insert(entry)) = self.edit else {
            return Some(());
        };
        if self.keeps_key {
            page.copy(self.hole.start..self.hole.end - entry.payload.len())?;
            return page.store(entry.payload);
        }
        page.store(&(self.suffix.len() as u16).to_le_bytes())?;
        page.store(&entry.mark.encode(entry.payload.len()).to_le_bytes())?;
        page.store(match self.kind.is_whole() {
            true => self.suffix,
            false => tail_of(self.suffix),
        })?;
        page.store(entry.payload)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::format::page::{Origins, Page, PageMut};
    use crate::ids::CommitNo;
    use crate::tree::Order;
    use crate::tree::node::{NODE_ROOM_BYTES, NodeMut, entry_bytes};

    const PREFIX: &[u8] = b"pre";

    /// What becomes of the record with a key: stored with so many bytes, or removed.
    fn changes() -> impl Strategy<Value = Vec<(Vec<u8>, Option<Vec<u8>>)>> {
        let key = prop::collection::vec(0..3_u8, 0..7);
        let value = prop::collection::vec(any::<u8>(), 0..160);
        let change = (key, prop::option::weighted(0.8, value));
        prop::collection::vec(change, 1..150)
    }

    fn records(node: &Node<'_>) -> Vec<(Vec<u8>, Vec<u8>)> {
        let record = |slot| {
            let mut key = Vec::new();
            node.push_key(slot, &mut key).unwrap();
            (key, node.cell(slot).unwrap().payload.to_vec())
        };
        (0..node.len()).map(record).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn a_leaf_holds_what_it_held_but_for_the_change(changes in changes(), is_whole: bool) {
            let (kind, prefix) = match is_whole {
                true => (PageKind::WholeLeaf, &b""[..]),
                false => (PageKind::Leaf, PREFIX),
            };
            let mut old = Page::zeroed();
            let mut number = PageNo(7);
            NodeMut::init(PageMut::from(&mut old), number, CommitNo(1), kind, 0, prefix);
            let mut model = BTreeMap::new();
            let mut origins = Origins::unknown();
            for (key, value) in changes {
                let key = [PREFIX, &key].concat();
                let node = Node::open(&old, number, kind, 0).unwrap();
                let place = node.search(&key, 0, Order::default()).unwrap();
                let edit = match &value {
                    None if !place.exact => continue,
                    None => Edit::Remove,
                    Some(payload) => {
                        let entry = Entry { key: &key, payload, mark: Mark::Inline };
                        if place.exact { Edit::Replace(entry) } else { Edit::Insert(entry) }
                    }
                };
                let suffix_len = key.len() - prefix.len();
                let bytes = |value: &Vec<u8>| entry_bytes(kind, suffix_len, value.len());
                let went = model.get(&key).map_or(0, bytes);
                let comes = value.as_ref().map_or(0, bytes);
                let remade = node.remade(place.slot, edit).unwrap();
                let Some(remade) = remade else {
                    // Heads come in groups.
                    let most = node.used() + comes - went + (HEADS_STEP - 1) * HEAD_BYTES;
                    prop_assert!(comes > went && most > NODE_ROOM_BYTES);
                    continue;
                };
                let mut page = Page::zeroed();
                page.bytes_mut().fill(0xEE);
                number.0 += 1;
                let successor = Successor::begin_traced(&old, &mut page, Some(&mut origins), number, CommitNo(2));
                prop_assert_eq!(remade.write(successor).unwrap(), number);
                match value {
                    Some(value) => drop(model.insert(key, value)),
                    None => drop(model.remove(&key)),
                }
                prop_assert!(origins.is_known() && origins.hold(&old, &page));
                let ends = origins.iter().map(|(at, _)| at.end);
                prop_assert_eq!(ends.last(), Some(PAGE_BYTES));
                prop_assert_eq!(page.commit(), CommitNo(2));
                let node = Node::open(&page, number, kind, 0).unwrap();
                prop_assert!(records(&node).into_iter().eq(model.clone()));
                let cells: usize = (0..node.len()).map(|slot| node.cell_range(slot).unwrap().len()).sum();
                prop_assert_eq!(node.used(), prefix.len() + slots_bytes(kind, node.len()) + cells);
                prop_assert_eq!(usize::from(page.u16_at(CELLS_AT)), PAGE_BYTES - cells);
                old = page;
            }
        }

        #[test]
        fn a_damaged_leaf_is_an_error(bytes in prop::collection::vec(any::<u8>(), 8), at in 24..200_usize, slot in 0..4_usize, what in 0..3_usize) {
            let mut old = Page::zeroed();
            let number = PageNo(7);
            let mut node = NodeMut::init(PageMut::from(&mut old), number, CommitNo(1), PageKind::Leaf, 0, b"");
            for slot in 0..4 {
                prop_assert!(node.insert(slot, &[slot as u8; 9], &[1; 30], Mark::Inline).unwrap());
            }
            old.bytes_mut()[at..at + 8].copy_from_slice(&bytes);
            let Ok(node) = Node::open(&old, number, PageKind::Leaf, 0) else {
                return Ok(());
            };
            let entry = Entry { key: &[2; 9], payload: &[3; 50], mark: Mark::Inline };
            let edit = [Edit::Replace(entry), Edit::Insert(entry), Edit::Remove][what];
            if let Ok(Some(remade)) = node.remade(slot, edit) {
                let mut page = Page::zeroed();
                // Whatever comes of it: it does not panic.
                let _ = remade.write(Successor::begin_traced(&old, &mut page, None, PageNo(8), CommitNo(2)));
            }
        }
    }
}
