//! Reading values out of line.

use super::View;
use crate::error::{Error, Result};
use crate::format::pages::ReadPages;
use crate::format::pointer::RecordPointer;
use crate::format::pointer_leaf::PointerLeaf;
use crate::heap::Record;
use crate::ids::{CommitNo, PageNo};
use crate::tree::node::Node;

impl<'p, P: ReadPages + ?Sized> View<'p, P> {
    /// The page, if it is a leaf of pointers that others may store to while it is read.
    #[inline]
    pub(in crate::tree) fn shared_pointers(
        &self,
        number: PageNo,
        level: usize,
    ) -> Result<Option<&'p PointerLeaf>> {
        match self.record.kind.out_of_line && level == 0 {
            true => self.pages.shared_pointers(number),
            false => Ok(None),
        }
    }

    /// The value at a slot of a leaf.
    #[inline]
    pub(in crate::tree) fn out_of_line_value(
        &self,
        leaf: &Node<'p>,
        slot: usize,
    ) -> Result<&'p [u8]> {
        if let Some(pointers) = leaf.shared_pointers()
            && let Some((key, pointer)) = pointers.pair(slot)
            && self.pages.own_pointer(pointers.number(), slot).is_none()
        {
            return Record::as_of(self.pages, pointer, key, self.pages.as_of());
        }
        self.out_of_line_value_beside(leaf, slot)
    }

    /// The same where the transaction that asks has something to say.
    fn out_of_line_value_beside(&self, leaf: &Node<'p>, slot: usize) -> Result<&'p [u8]> {
        let pointer = pointer(self.pages, leaf, slot)?;
        let key = leaf.pointer_key(slot)?;
        Record::as_of(self.pages, pointer, key, self.pages.as_of())
    }

    /// The record at a slot of a leaf as of a commit, verified, and where it is.
    pub(in crate::tree) fn verified_record(
        &self,
        leaf: &Node<'p>,
        slot: usize,
        commit: CommitNo,
    ) -> Result<(RecordPointer, Record<'p>)> {
        let newest = pointer(self.pages, leaf, slot)?;
        let key = leaf.pointer_key(slot)?;
        let (at, _) = Record::find(self.pages, newest, key, commit)?;
        Ok((at, Record::verify(self.pages, at)?))
    }

    /// Asks the processor for the record of a key whose pair is in the leaf, if that is there already.
    pub(in crate::tree) fn fetch_out_of_line(&self, leaf: &Node<'p>, key: &[u8]) -> Result<()> {
        let found = leaf.search(key, 0, self.orders.keys)?;
        if found.exact {
            self.pages
                .fetch_record(pointer(self.pages, leaf, found.slot)?);
        }
        Ok(())
    }
}

/// What there is at a slot of a leaf of pointers.
pub(in crate::tree) fn pointer<P: ReadPages + ?Sized>(
    pages: &P,
    leaf: &Node<'_>,
    slot: usize,
) -> Result<RecordPointer> {
    let pointer = match leaf.shared_pointers() {
        Some(pointers) => pages
            .own_pointer(leaf.number(), slot)
            .or_else(|| pointers.pointer(slot)),
        None => RecordPointer::decode(leaf.cell(slot)?.payload),
    };
    pointer.ok_or_else(|| Error::corrupt(leaf.number(), "has no pointer where one should be"))
}
