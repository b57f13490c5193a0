//! What of a tree was written since a commit: a page's commit is at least that of everything below it, so a walk passes
//! over whatever is older. Only leaves of places say themselves when somebody stored to them last, and all are asked.

use super::{View, verify_extent};
use crate::error::{Error, Result};
use crate::format::pages::ReadPages;
use crate::format::tree_record::TreeRecord;
use crate::ids::{CommitNo, PageNo};
use crate::tree::node::{Mark, Node};
use crate::tree::value;
use crate::tree::value::ExtentPointer;

/// What was written.
pub(crate) enum Written {
    /// A page, or an extent of so many.
    Pages(PageNo, u32),
    /// A leaf of places, or words of it.
    PointerLeaf(PageNo),
}

impl<P: ReadPages + ?Sized> View<'_, P> {
    /// Tells every page and every extent of the tree that a commit after `since` wrote, verified; but for leaves of
    /// places, to which others may be storing.
    pub(crate) fn written_since(
        &self,
        since: CommitNo,
        each: &mut dyn FnMut(Written),
    ) -> Result<()> {
        match self.height().checked_sub(1) {
            Some(level) => self.page_since(self.record.root, level, since, each),
            None => Ok(()),
        }
    }

    fn page_since(
        &self,
        number: PageNo,
        level: usize,
        since: CommitNo,
        each: &mut dyn FnMut(Written),
    ) -> Result<()> {
        if let Some(places) = self.shared_pointers(number, level)? {
            Node::of_pointers(places, number)?;
            if places.commit().max(places.changed()) > since {
                each(Written::PointerLeaf(number));
            }
            return Ok(());
        }
        let page = self.pages.page(number)?;
        if page.commit() > since {
            page.verify(number)?;
            each(Written::Pages(number, 1));
        } else if !self.record.kind.out_of_line {
            return Ok(());
        }
        let node = self.open(number, level)?;
        for slot in 0..node.len() {
            if level > 0 {
                self.page_since(node.child(slot)?.page, level - 1, since, each)?;
                continue;
            }
            let cell = node.cell(slot)?;
            match cell.mark {
                Mark::Inline | Mark::SubPage | Mark::OutOfLine => {}
                Mark::Extent => self.extent_since(number, cell.payload, since, each)?,
                Mark::SubTree => {
                    let tree = TreeRecord::decode(cell.payload)
                        .ok_or_else(|| Error::corrupt(number, "duplicates are damaged"))?;
                    self.of_values(tree).written_since(since, each)?;
                }
            }
        }
        Ok(())
    }

    fn extent_since(
        &self,
        leaf: PageNo,
        payload: &[u8],
        since: CommitNo,
        each: &mut dyn FnMut(Written),
    ) -> Result<()> {
        let pointer = ExtentPointer::decode(payload, leaf)?;
        let extent = self.pages.extent(pointer.first, pointer.pages())?;
        if value::extent_commit(extent).is_none_or(|commit| commit > since) {
            verify_extent(extent, pointer.first)?;
            each(Written::Pages(pointer.first, pointer.pages()));
        }
        Ok(())
    }
}
