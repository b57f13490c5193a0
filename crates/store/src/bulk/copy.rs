//! Copying a tree into a place without holes, page by page: nothing has to be compared, so every kind of tree can be
//! copied.

use crate::bulk::TreeBuilder;
use crate::error::{Error, Result};
use crate::format::pages::{AppendPages, ReadPages};
use crate::format::tree_record::{KeyOrder, TreeRecord};
use crate::ids::PageNo;
use crate::tree::node::{Child, Mark, Node, NodeMut};
use crate::tree::value::ExtentPointer;
use crate::tree::{View, value};

impl<P: ReadPages + ?Sized> View<'_, P> {
    /// Copies the whole tree behind the pages that `to` has so far, which need not be of the same store; the record of
    /// the copy. Where records can be put in order without the program's help, pages are filled anew. The tree has been
    /// checked.
    pub(crate) fn copy_to(&self, to: &mut dyn AppendPages) -> Result<TreeRecord> {
        let kind = self.record.kind;
        if kind.duplicates.is_some() || kind.packed || kind.order == KeyOrder::Custom {
            return self.copy_pages_to(to);
        }
        let mut builder = TreeBuilder::in_heap(kind, self.record.heap);
        let mut cursor = self.cursor();
        while cursor.next()? {
            if let Some((key, value)) = cursor.record()? {
                builder.push(to, key, value)?;
            }
        }
        builder.finish(to)
    }

    fn copy_pages_to(&self, to: &mut dyn AppendPages) -> Result<TreeRecord> {
        let mut copied = self.record;
        if let Some(level) = self.height().checked_sub(1) {
            copied.root = self.copy_page(copied.root, level, to)?;
        }
        Ok(copied)
    }

    /// Copies a page and, before it, all that it refers to; the number of the copy.
    fn copy_page(&self, number: PageNo, level: usize, to: &mut dyn AppendPages) -> Result<PageNo> {
        let node = self.open(number, level)?;
        let mut copy = Box::new(self.pages.page(number)?.clone());
        for slot in 0..node.len() {
            if let Some(payload) = self.copied_payload(&node, slot, level, to)? {
                let kind = self.record.page_kind(level);
                let mut node = NodeMut::open(&mut copy, number, kind, level)?;
                node.set_payload(slot, &payload)?;
            }
        }
        to.append(&mut copy)
    }

    /// What an entry says in the copy, if that is something else.
    fn copied_payload(
        &self,
        node: &Node<'_>,
        slot: usize,
        level: usize,
        to: &mut dyn AppendPages,
    ) -> Result<Option<Vec<u8>>> {
        if level > 0 {
            let child = node.child(slot)?;
            let page = self.copy_page(child.page, level - 1, to)?;
            let encoded = Child { page, ..child }.encode();
            return Ok(Some(node.kind().child_payload(&encoded).to_vec()));
        }
        let cell = node.cell(slot)?;
        match cell.mark {
            Mark::Inline | Mark::SubPage | Mark::OutOfLine => Ok(None),
            Mark::Extent => {
                let value = value::load(self.pages, node.number(), cell.payload)?;
                let first = value::append(to, value)?;
                let len = value.len() as u64;
                Ok(Some(ExtentPointer { first, len }.encode().to_vec()))
            }
            Mark::SubTree => {
                let tree = TreeRecord::decode(cell.payload)
                    .ok_or_else(|| Error::corrupt(node.number(), "duplicates are damaged"))?;
                let tree = self.of_values(tree).copy_pages_to(to)?;
                Ok(Some(tree.encode().to_vec()))
            }
        }
    }
}
