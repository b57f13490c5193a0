//! Changing a tree whose values stand out of line.

use super::TreeMut;
use crate::error::{Error, Result};
use crate::format::page::PageKind;
use crate::format::pages::{ReadPages, WritePages};
use crate::format::pointer::{RecordPointer, Segment};
use crate::format::pointer_leaf::KEY_BYTES;
use crate::heap::Record;
use crate::ids::PageNo;
use crate::limits::HEIGHT_MAX;
use crate::tree::node::{Mark, Node};
use crate::tree::out_of_line::pointer;
use crate::tree::write::change::Change;

/// What emptying a segment may need beside the pages that its records and their ways take.
const SPARE_PAGES: u64 = 32;

impl<P: WritePages + ?Sized> TreeMut<'_, P> {
    /// Stores a value, and makes room in the heap if much of it is taken by what was replaced.
    pub(super) fn put_out_of_line(&mut self, key: &[u8], value: &[u8]) -> Result<bool> {
        let is_new = self.find(key, value.len())?.store_out_of_line(key, value)?;
        self.empty_segments()?;
        Ok(is_new)
    }

    /// Moves what lives in a few segments to the end of the heap, if there is too much there that does not.
    pub(super) fn empty_segments(&mut self) -> Result<()> {
        let heap = self.record.heap;
        while let Some((segment, used)) = self.pages.segment_to_empty(heap)? {
            let records = self.records_of(segment, used)?;
            // The records, what leads to them, and what is known of segments.
            let pages = self.record.leaf_pages + self.record.branch_pages;
            let ways = pages.min(HEIGHT_MAX as u64 * records.len() as u64);
            let room = u64::from(segment.pages) + ways + SPARE_PAGES;
            if !self.pages.has_room(room)? {
                break;
            }
            for (at, key) in records {
                let change = Change::find(self, &key)?;
                if change.place.exact && change.pointer()? == at {
                    change.pages.outdate_record(heap, at)?;
                    change.move_to_end(&key, at)?;
                }
            }
            self.pages.free_segment(heap, segment)?;
        }
        Ok(())
    }

    /// Writes the leaf with a key, and the way to it, once more, which a put of its value might not.
    pub(crate) fn move_leaf(&mut self, key: &[u8]) -> Result<()> {
        let mut change = Change::find(self, key)?;
        match change.place.exact {
            true => change.touch(0),
            false => Ok(()),
        }
    }

    /// Moves the record of a key to the end of the heap if it is in this segment.
    pub(crate) fn move_out_of(&mut self, segment: Segment, key: &[u8]) -> Result<()> {
        let change = Change::find(self, key)?;
        let Ok(key) = key.try_into() else {
            return Ok(());
        };
        if change.place.exact {
            let at = change.pointer()?;
            if segment.has(at) {
                change.pages.outdate_record(change.tree.heap, at)?;
                change.move_to_end(key, at)?;
            }
        }
        Ok(())
    }

    fn records_of(
        &self,
        segment: Segment,
        used: u32,
    ) -> Result<Vec<(RecordPointer, [u8; KEY_BYTES])>> {
        let mut records = Vec::new();
        segment.each(&*self.pages, used, |at, record| {
            records.push((at, record.key));
            Ok(())
        })?;
        Ok(records)
    }
}

impl<P: WritePages + ?Sized> Change<'_, P> {
    /// Stores a value out of line. Answers whether the key is new.
    pub(super) fn store_out_of_line(self, key: &[u8], value: &[u8]) -> Result<bool> {
        let key: &[u8; KEY_BYTES] = key.try_into().map_err(|_| Error::ValueSize {
            found: key.len(),
            expected: KEY_BYTES,
        })?;
        let heap = self.tree.heap;
        let new = !self.place.exact;
        let mut previous = RecordPointer::NONE;
        if !new {
            let old = self.pointer()?;
            let record = Record::read(&*self.pages, old)?;
            // What this transaction itself has replaced nobody else will ever look for.
            previous = match record.commit == self.pages.commit() {
                true => record.previous,
                false => old,
            };
            self.pages.outdate_record(heap, old)?;
        }
        let at = self.pages.add_record(heap, key, previous, value)?;
        self.tree.records += u64::from(new);
        self.lead_to_record(key, at)?;
        Ok(new)
    }

    /// The pointer to the record that the way leads to.
    fn pointer(&self) -> Result<RecordPointer> {
        pointer_at(&*self.pages, self.way.steps[0].page, self.place.slot)
    }

    /// Moves the record that the way leads to.
    fn move_to_end(self, key: &[u8; KEY_BYTES], at: RecordPointer) -> Result<()> {
        let to = self.pages.move_record(self.tree.heap, at)?;
        self.lead_to_record(key, to)
    }

    /// Has the leaf say where the record is.
    fn lead_to_record(mut self, key: &[u8; KEY_BYTES], at: RecordPointer) -> Result<()> {
        let leaf = self.way.steps[0].page;
        if self.place.exact && self.pages.store_pointer(leaf, self.place.slot, at)? {
            return Ok(());
        }
        self.store_payload(key, &at.encode(), Mark::OutOfLine)
    }

    /// Removes the record that the way leads to.
    pub(super) fn remove_out_of_line(self) -> Result<()> {
        let at = self.pointer()?;
        self.pages.outdate_record(self.tree.heap, at)?;
        self.remove(1)
    }
}

/// What there is at a slot of a leaf.
pub(super) fn pointer_at<P: ReadPages + ?Sized>(
    pages: &P,
    leaf: PageNo,
    slot: usize,
) -> Result<RecordPointer> {
    let node = match pages.shared_pointers(leaf)? {
        Some(pointers) => Node::of_pointers(pointers, leaf)?,
        None => Node::open(pages.page(leaf)?, leaf, PageKind::PointerLeaf, 0)?,
    };
    pointer(pages, &node, slot)
}
