//! What of a tree was written since a commit: a page's commit is at least that of everything below it, so a walk passes over
//! whatever is older.

use super::node::Mark;
use super::value::{self, ExtentPointer};
use super::{TreeRecord, View, verify_extent};
use crate::error::{Error, Result};
use crate::page::{CommitNo, PageNo, ReadPages};

impl<P: ReadPages + ?Sized> View<'_, P> {
    /// Tells every page and every extent of the tree that a commit after `since` wrote, verified.
    pub(crate) fn written_since(
        &self,
        since: CommitNo,
        each: &mut dyn FnMut(PageNo, u32),
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
        each: &mut dyn FnMut(PageNo, u32),
    ) -> Result<()> {
        let page = self.pages.page(number)?;
        if page.commit() <= since {
            return Ok(());
        }
        page.verify(number)?;
        each(number, 1);
        let node = self.open(number, level)?;
        for slot in 0..node.len() {
            if level > 0 {
                self.page_since(node.child(slot)?.page, level - 1, since, each)?;
                continue;
            }
            let cell = node.cell(slot)?;
            match cell.mark {
                Mark::Inline | Mark::SubPage => {}
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
        each: &mut dyn FnMut(PageNo, u32),
    ) -> Result<()> {
        let pointer = ExtentPointer::decode(payload)
            .ok_or_else(|| Error::corrupt(leaf, "pointer to an extent is damaged"))?;
        let extent = self.pages.extent(pointer.first, pointer.pages())?;
        if value::extent_commit(extent).is_none_or(|commit| commit > since) {
            verify_extent(extent, pointer.first)?;
            each(pointer.first, pointer.pages());
        }
        Ok(())
    }
}
