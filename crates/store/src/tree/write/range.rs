//! Removing everything between two bounds: what lies wholly between them is cut off as high up as possible.

use std::ops::Bound;

use super::{Change, TreeMut};
use crate::error::Result;
use crate::format::pages::WritePages;
use crate::ids::PageNo;
use crate::tree::View;
use crate::tree::node::{Child, Node, NodeMut};

/// The bounds as far as they concern a page; `Unbounded` where the page lies wholly within.
#[derive(Clone, Copy)]
struct Bounds<'k> {
    from: Bound<&'k [u8]>,
    to: Bound<&'k [u8]>,
}

impl<P: WritePages + ?Sized> TreeMut<'_, P> {
    /// Removes all records between two bounds; how many there were.
    pub fn delete_range(&mut self, from: Bound<&[u8]>, to: Bound<&[u8]>) -> Result<u64> {
        let view = View::with_orders(&*self.pages, *self.record, self.orders);
        if view.range(from, to)?.next()?.is_none() {
            return Ok(0);
        }
        self.way.is_current = false;
        let level = usize::from(self.record.height) - 1;
        let before = self.record.records;
        let root = self.record.root;
        match self.cut(root, level, Bounds { from, to })? {
            Some(child) => self.record.root = child.page,
            None => {
                self.record.root = PageNo(0);
                self.record.height = 0;
            }
        }
        self.mend_at(from)?;
        self.mend_at(to)?;
        if self.record.kind.out_of_line {
            self.empty_segments()?;
        }
        Ok(before - self.record.records)
    }

    fn open(&self, number: PageNo, level: usize) -> Result<Node<'_>> {
        let kind = self.record.page_kind(level);
        Node::open(self.pages.page(number)?, number, kind, level)
    }

    fn open_mut(&mut self, number: PageNo, level: usize) -> Result<NodeMut<'_>> {
        let kind = self.record.page_kind(level);
        NodeMut::open(self.pages.page_mut(number)?, number, kind, level)
    }

    /// Removes what lies between the bounds from a page and all below it. What is left of it, `None` if nothing is.
    fn cut(&mut self, number: PageNo, level: usize, bounds: Bounds<'_>) -> Result<Option<Child>> {
        if let (Bound::Unbounded, Bound::Unbounded) = (bounds.from, bounds.to) {
            let removed = self.clear_below(number, level)?;
            self.record.records = self.record.records.saturating_sub(removed);
            return Ok(None);
        }
        match level {
            0 => self.cut_leaf(number, bounds),
            _ => self.cut_branch(number, level, bounds),
        }
    }

    fn cut_leaf(&mut self, number: PageNo, bounds: Bounds<'_>) -> Result<Option<Child>> {
        let leaf = self.open(number, 0)?;
        let order = self.orders.keys;
        let behind = |key: &[u8], and_it: bool| {
            let place = leaf.search(key, 0, order)?;
            Ok::<_, crate::error::Error>(place.slot + usize::from(place.exact && and_it))
        };
        let start = match bounds.from {
            Bound::Unbounded => 0,
            Bound::Included(key) => behind(key, false)?,
            Bound::Excluded(key) => behind(key, true)?,
        };
        let end = match bounds.to {
            Bound::Unbounded => leaf.len(),
            Bound::Included(key) => behind(key, true)?,
            Bound::Excluded(key) => behind(key, false)?,
        };
        let left = leaf.len() - end.saturating_sub(start);
        if start >= end {
            return Ok(Some(Child {
                page: number,
                records: left as u64,
            }));
        }
        let mut removed = 0;
        for slot in start..end {
            removed += self.clear_values(number, slot)?;
        }
        self.record.records = self.record.records.saturating_sub(removed);
        if left == 0 {
            self.free_page(number, 0)?;
            return Ok(None);
        }
        let number = self.pages.touch(number)?;
        let mut leaf = self.open_mut(number, 0)?;
        for slot in (start..end).rev() {
            leaf.remove(slot)?;
        }
        Ok(Some(Child {
            page: number,
            records: left as u64,
        }))
    }

    fn cut_branch(
        &mut self,
        number: PageNo,
        level: usize,
        bounds: Bounds<'_>,
    ) -> Result<Option<Child>> {
        let branch = self.open(number, level)?;
        let order = self.orders.keys;
        let slot_of = |bound: Bound<&[u8]>, otherwise: usize| match bound {
            Bound::Unbounded => Ok(otherwise),
            Bound::Included(key) | Bound::Excluded(key) => branch.child_slot(key, order),
        };
        let n = branch.len();
        let (first, last) = (
            slot_of(bounds.from, 0)?,
            slot_of(bounds.to, n.saturating_sub(1))?,
        );
        let number = self.pages.touch(number)?;
        // From behind, so that slots before stay what they are.
        for slot in (first..=last).rev() {
            let child = self.open(number, level)?.child(slot)?;
            let bound_at = |is_there: bool, bound| match is_there {
                true => bound,
                false => Bound::Unbounded,
            };
            let below = Bounds {
                from: bound_at(slot == first, bounds.from),
                to: bound_at(slot == last, bounds.to),
            };
            match self.cut(child.page, level - 1, below)? {
                Some(left) => {
                    let records = left.records * u64::from(self.record.kind.counted);
                    let left = Child { records, ..left };
                    if left != child {
                        self.open_mut(number, level)?.set_child(slot, left)?;
                    }
                }
                None => self.open_mut(number, level)?.remove_child(slot)?,
            }
        }
        let branch = self.open(number, level)?;
        if branch.len() == 0 {
            self.free_page(number, level)?;
            return Ok(None);
        }
        let records = branch.records_before(branch.len())?;
        Ok(Some(Child {
            page: number,
            records,
        }))
    }

    /// Mends the pages on the way to a bound.
    fn mend_at(&mut self, bound: Bound<&[u8]>) -> Result<()> {
        let (Bound::Included(key) | Bound::Excluded(key)) = bound else {
            return Ok(());
        };
        let mut change = Change::find(self, key)?;
        change.touch(0)?;
        for level in 0..change.height() {
            change.mend(level)?;
        }
        change.shrink()
    }
}
