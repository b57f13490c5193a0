//! The records of a tree that keep pages behind some page in use.

use super::View;
use crate::error::{Error, Result};
use crate::format::pages::ReadPages;
use crate::format::pointer::Segment;
use crate::format::tree_record::TreeRecord;
use crate::ids::PageNo;
use crate::tree::node::Mark;
use crate::tree::out_of_line::pointer;
use crate::tree::value::ExtentPointer;

/// A record by whose rewriting a page moves.
pub(crate) struct Relocation<'a> {
    pub(crate) key: &'a [u8],
    /// In a tree with duplicates, which of the key's values.
    pub(crate) value: Option<&'a [u8]>,
}

/// Takes a relocation; whether it wants more.
type Each<'e> = dyn FnMut(Relocation<'_>) -> Result<bool> + 'e;

impl<'p, P: ReadPages + ?Sized> View<'p, P> {
    /// Tells, for each page of the tree from `tail` on, a record that is on it or below it. Gives whether `each` has
    /// wanted them all.
    pub(crate) fn relocations(&self, tail: PageNo, each: &mut Each<'_>) -> Result<bool> {
        match self.height().checked_sub(1) {
            Some(level) => self.relocations_below(self.record.root, level, false, tail, each),
            None => Ok(true),
        }
    }

    /// Tells the key of each value that stands in one of these segments, which are in the order of their pages, with
    /// that segment.
    pub(crate) fn values_in(
        &self,
        segments: &[Segment],
        each: &mut dyn FnMut(&[u8], Segment),
    ) -> Result<()> {
        match self.height().checked_sub(1) {
            Some(level) => self.values_in_below(self.record.root, level, segments, each),
            None => Ok(()),
        }
    }

    fn values_in_below(
        &self,
        number: PageNo,
        level: usize,
        segments: &[Segment],
        each: &mut dyn FnMut(&[u8], Segment),
    ) -> Result<()> {
        let node = self.open(number, level)?;
        for slot in 0..node.len() {
            if level > 0 {
                self.values_in_below(node.child(slot)?.page, level - 1, segments, each)?;
                continue;
            }
            let at = pointer(self.pages, &node, slot)?;
            let behind = segments.partition_point(|segment| segment.first <= at.page());
            let segment = behind.checked_sub(1).and_then(|at| segments.get(at));
            if let Some(segment) = segment.filter(|segment| segment.has(at)) {
                each(node.pointer_key(slot)?, *segment);
            }
        }
        Ok(())
    }

    /// `wanted` says that a page above is to move, and no record below that has been told yet.
    fn relocations_below(
        &self,
        number: PageNo,
        level: usize,
        wanted: bool,
        tail: PageNo,
        each: &mut Each<'_>,
    ) -> Result<bool> {
        let wanted = wanted || number >= tail;
        // Without extents and values of their own, leaves need not be looked at for what they refer to.
        let leads_on = self.record.extent_pages > 0 || self.record.kind.duplicates.is_some();
        if level == 0 && !wanted && !leads_on {
            return Ok(true);
        }
        let node = self.open(number, level)?;
        for slot in 0..node.len() {
            let wanted = wanted && slot == 0;
            let goes_on = if level > 0 {
                let child = node.child(slot)?.page;
                self.relocations_below(child, level - 1, wanted, tail, each)?
            } else {
                self.relocation_at(number, slot, wanted, tail, each)?
            };
            if !goes_on {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn relocation_at(
        &self,
        leaf: PageNo,
        slot: usize,
        wanted: bool,
        tail: PageNo,
        each: &mut Each<'_>,
    ) -> Result<bool> {
        let node = self.open(leaf, 0)?;
        let cell = node.cell(slot)?;
        let is_stray = match cell.mark {
            Mark::Inline | Mark::SubPage | Mark::OutOfLine => false,
            Mark::Extent => {
                let pointer = ExtentPointer::decode(cell.payload, leaf)?;
                pointer.first.0 + u64::from(pointer.pages()) > tail.0
            }
            Mark::SubTree => {
                let mut key = Vec::new();
                node.push_key(slot, &mut key)?;
                let record = TreeRecord::decode(cell.payload);
                let record =
                    record.ok_or_else(|| Error::corrupt(leaf, "a record leads nowhere"))?;
                // One of them moves the leaf as well.
                let mut told = false;
                let mut each_value = |relocation: Relocation<'_>| {
                    told = true;
                    each(Relocation {
                        key: &key,
                        value: Some(relocation.key),
                    })
                };
                let goes_on = self.of_values(record).relocations(tail, &mut each_value)?;
                if !goes_on || told {
                    return Ok(goes_on);
                }
                false
            }
        };
        if !wanted && !is_stray {
            return Ok(true);
        }
        let mut key = Vec::new();
        node.push_key(slot, &mut key)?;
        let duplicates = self.record.kind.duplicates;
        let value = duplicates.map(|_| self.value(&node, slot)).transpose()?;
        each(Relocation { key: &key, value })
    }
}
