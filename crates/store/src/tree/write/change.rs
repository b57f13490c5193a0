//! One change on its way: the path is made the transaction's own from the root down, the leaf changed, and what
//! overflowed or became too empty mended on the way back up.

use std::cmp::Ordering;
use std::ops::Range;

use super::{TreeMut, Way, is_inline, large_value};
use crate::error::{Error, Result};
use crate::format::pages::WritePages;
use crate::format::prefetch;
use crate::format::tree_record::TreeRecord;
use crate::ids::PageNo;
use crate::limits::HEIGHT_MAX;
use crate::tree::entries::Entries;
use crate::tree::node::{Child, Found, InsertionRun, Mark, NODE_ROOM_BYTES, Node, NodeMut};
use crate::tree::{Orders, Position, Step, View, value};

/// A page with less than this in use looks for a neighbour to share with.
const UNDERFULL_BYTES: usize = NODE_ROOM_BYTES / 4;

/// Two pages become one only if it still has this much room, or the next insertion would divide it again.
const MERGED_SPARE_BYTES: usize = NODE_ROOM_BYTES / 8;

/// One change on its way: the tree and the way to the key's place in it. Steps are indexed by level, the leaf's being
/// 0.
pub(super) struct Change<'a, P: ?Sized> {
    pub(super) pages: &'a mut P,
    pub(super) tree: &'a mut TreeRecord,
    pub(super) orders: Orders,
    pub(super) way: &'a mut Way,
    pub(super) place: Found,
}

impl<'a, P: WritePages + ?Sized> Change<'a, P> {
    /// The way to a key.
    pub(super) fn find(tree: &'a mut TreeMut<'_, P>, key: &[u8]) -> Result<Self> {
        let is_near = tree.way.is_current && tree.way.is_near;
        let mut change = Self::nowhere(tree);
        if is_near && let Some(found) = change.find_nearby(key)? {
            change.way.steps[0].slot = found.slot;
            change.place = found;
            return Ok(change);
        }
        let before = change.way.steps[1];
        let pages = &*change.pages;
        let view = View::with_orders(pages, *change.tree, change.orders);
        let found = view.search(key, |level, step, child| {
            change.way.steps[level] = step;
            // Most changes will copy the leaf. Pages above it are in the caches.
            if level == 1
                && !pages.is_own(child)
                && let Ok(page) = pages.page(child)
            {
                prefetch::page(page);
            }
        })?;
        if let Some((leaf, found)) = found {
            let (page, slot) = (leaf.number(), found.slot);
            change.way.steps[0] = Step { page, slot };
            change.place = found;
        }
        let above = change.way.steps[1];
        change.way.is_near = above.page == before.page && above.slot.abs_diff(before.slot) <= 1;
        Ok(change)
    }

    /// Where a key is or would be in the leaf of the way, if it belongs there.
    fn find_nearby(&self, key: &[u8]) -> Result<Option<Found>> {
        let order = self.orders.keys;
        let leaf = self.node(0)?;
        let found = leaf.search(key, 0, order)?;
        if found.exact || (1..leaf.len()).contains(&found.slot) {
            return Ok(Some(found));
        }
        // Before the first key of the leaf, or behind the last one.
        for level in 1..self.height() {
            let node = self.node(level)?;
            let slot = self.way.steps[level].slot;
            let end = if found.slot == 0 { 0 } else { node.len() - 1 };
            if slot != end {
                let is_here = node.child_slot(key, order)? == slot;
                return Ok(is_here.then_some(found));
            }
        }
        Ok(Some(found))
    }

    /// The way on which a cursor stands in this tree as it is, or that it has gone in vain; [`Error::NoRecord`] if it
    /// is nowhere.
    pub(super) fn along(tree: &'a mut TreeMut<'_, P>, position: &Position) -> Result<Self> {
        let (found, missed) = (position.key_place(), position.missed_place());
        let (page, slot) = found.or(missed).ok_or(Error::NoRecord)?;
        let mut change = Self::nowhere(tree);
        for level in 1..change.height() {
            change.way.steps[level] = position.steps[level];
        }
        change.way.steps[0] = Step { page, slot };
        change.place = Found {
            slot,
            exact: found.is_some(),
        };
        Ok(change)
    }

    /// The way to the end, which is the place of a key that is greater than all others. How it compares with the last
    /// key, `None` in an empty tree, is told.
    pub(super) fn find_end(
        tree: &'a mut TreeMut<'_, P>,
        key: &[u8],
    ) -> Result<(Self, Option<Ordering>)> {
        let mut change = Self::nowhere(tree);
        if change.height() == 0 {
            return Ok((change, None));
        }
        let view = View::with_orders(&*change.pages, *change.tree, change.orders);
        let each = |level: usize, step| change.way.steps[level] = step;
        let (leaf, last) = view.edge(view.record.root, view.height(), true, each)?;
        let compared = leaf.compare_key(last, key, change.orders.keys)?.reverse();
        let (page, slot) = (leaf.number(), last + 1);
        change.way.steps[0] = Step { page, slot };
        change.place = Found::gap(slot);
        Ok((change, Some(compared)))
    }

    /// Refuses a key of another size than the others' in a tree of packed keys.
    pub(super) fn check_packed(&self, key: &[u8]) -> Result<()> {
        if self.tree.kind.packed && self.height() > 0 {
            let leaf = self.node(0)?;
            let (found, expected) = (key.len(), leaf.packed_size());
            if leaf.len() > 0 && found != expected {
                return Err(Error::ValueSize { found, expected });
            }
        }
        Ok(())
    }

    fn nowhere(tree: &'a mut TreeMut<'_, P>) -> Self {
        tree.way.is_current = false;
        Self {
            pages: tree.pages,
            tree: tree.record,
            orders: tree.orders,
            way: &mut tree.way,
            place: Found::gap(0),
        }
    }

    fn open(&self, number: PageNo, level: usize) -> Result<Node<'_>> {
        let page = self.pages.page(number)?;
        Node::open(page, number, self.tree.page_kind(level), level)
    }

    pub(super) fn height(&self) -> usize {
        usize::from(self.tree.height)
    }

    pub(super) fn node(&self, level: usize) -> Result<Node<'_>> {
        self.open(self.way.steps[level].page, level)
    }

    pub(super) fn node_mut(&mut self, level: usize) -> Result<NodeMut<'_>> {
        let number = self.way.steps[level].page;
        NodeMut::open(
            self.pages.page_mut(number)?,
            number,
            self.tree.page_kind(level),
            level,
        )
    }

    fn allocate(&mut self, level: usize) -> Result<PageNo> {
        *self.tree.pages_mut(level) += 1;
        self.pages.allocate()
    }

    pub(super) fn free(&mut self, number: PageNo, level: usize) -> Result<()> {
        let count = self.tree.pages_mut(level);
        *count = count.saturating_sub(1);
        self.pages.free(number, 1)
    }

    /// Makes the whole way the transaction's own, and adds `records` to the counts along it.
    pub(super) fn touch(&mut self, records: i64) -> Result<()> {
        let counts = records != 0 && self.tree.kind.counted;
        // What leads to a page of the transaction's own is its own, too.
        let is_own = |level: &usize| !counts && self.pages.is_own(self.way.steps[*level].page);
        let own = (0..self.height()).find(is_own).unwrap_or(self.height());
        for level in (0..own).rev() {
            let new = self.pages.touch(self.way.steps[level].page)?;
            self.lead_to(level, new, records)?;
        }
        Ok(())
    }

    /// Leads the way to where a page is now.
    fn lead_to(&mut self, level: usize, new: PageNo, records: i64) -> Result<()> {
        let old = std::mem::replace(&mut self.way.steps[level].page, new);
        if level + 1 >= self.height() {
            self.tree.root = new;
        } else if new != old || (records != 0 && self.tree.kind.counted) {
            let slot = self.way.steps[level + 1].slot;
            let mut child = self.node(level + 1)?.child(slot)?;
            child.page = new;
            child.records = child.records.wrapping_add_signed(records);
            self.node_mut(level + 1)?.set_child(slot, child)?;
        }
        Ok(())
    }

    /// Stores a value under the key that the way leads to. Answers whether the key is new.
    pub(super) fn store(mut self, key: &[u8], value: &[u8]) -> Result<bool> {
        let new = !self.place.exact;
        if is_inline(self.tree.page_kind(0), key, value) {
            self.store_payload(key, value, Mark::Inline)?;
        } else {
            let extent = value::store(self.pages, value)?;
            self.tree.extent_pages += u64::from(extent.pages());
            self.store_payload(key, &extent.encode(), Mark::Extent)?;
        }
        self.tree.records += u64::from(new);
        Ok(new)
    }

    /// Stores an entry of the leaf that the way leads to, in place of the one with the same key if there is one. The
    /// number of records is the caller's concern. Afterwards the way's step in the leaf is that of the entry.
    pub(super) fn store_payload(&mut self, key: &[u8], payload: &[u8], mark: Mark) -> Result<()> {
        let new = !self.place.exact;
        if self.tree.height == 0 {
            self.plant()?;
        }
        if new {
            self.touch(1)?;
            return self.insert(0, key, payload, mark);
        }
        self.free_large_value()?;
        self.touch(0)?;
        let slot = self.place.slot;
        if self.node_mut(0)?.replace(slot, payload, mark)? {
            self.way.is_current = true;
            return Ok(());
        }
        self.node_mut(0)?.remove(slot)?;
        // An entry that takes its own place again says nothing about where the next one goes.
        let run = InsertionRun::of(self.pages.page(self.way.steps[0].page)?);
        self.insert_in_run(0, run, key, payload, mark)
    }

    /// Makes an empty leaf the root of an empty tree.
    fn plant(&mut self) -> Result<()> {
        let root = self.allocate(0)?;
        let commit = self.pages.commit();
        let kind = self.tree.page_kind(0);
        NodeMut::init(self.pages.page_mut(root)?, root, commit, kind, 0, &[]);
        self.tree.root = root;
        self.tree.height = 1;
        self.way.steps[0] = Step {
            page: root,
            slot: 0,
        };
        Ok(())
    }

    fn free_large_value(&mut self) -> Result<()> {
        if self.tree.extent_pages > 0
            && let Some(extent) = large_value(&self.node(0)?, self.place.slot)?
        {
            let left = self.tree.extent_pages;
            self.tree.extent_pages = left.saturating_sub(u64::from(extent.pages()));
            self.pages.free(extent.first, extent.pages())?;
        }
        Ok(())
    }

    /// Inserts an entry at the way's slot of a level, dividing the page if it must be.
    fn insert(&mut self, level: usize, key: &[u8], payload: &[u8], mark: Mark) -> Result<()> {
        let Step { page, slot } = self.way.steps[level];
        let run = InsertionRun::of(self.pages.page(page)?).after(slot);
        self.insert_in_run(level, run, key, payload, mark)
    }

    /// As [`Change::insert`], after which the page's last insertions are this run.
    fn insert_in_run(
        &mut self,
        level: usize,
        run: InsertionRun,
        key: &[u8],
        payload: &[u8],
        mark: Mark,
    ) -> Result<()> {
        let Step { page: number, slot } = self.way.steps[level];
        let page = self.pages.page_mut(number)?;
        let mut node = NodeMut::open(page, number, self.tree.page_kind(level), level)?;
        if node.insert(slot, key, payload, mark)? {
            node.set_run(run);
            self.way.is_current = level == 0;
            return Ok(());
        }

        let node = self.node(level)?;
        let end = node.len();
        let ends_run = slot == end && run.cut() == Some(end) && node.takes(key);
        // A page that ascending insertions have filled stays as it is: the new entry begins the next one.
        let from = match ends_run && !self.tree.kind.counted {
            true => end.saturating_sub(1),
            false => 0,
        };
        let mut entries = Entries::new(node.kind(), level);
        entries.load(&node, from, &[])?;
        entries.insert(slot - from, key, payload, mark);
        let all = 0..entries.len();
        if !ends_run && entries.fit(all.clone(), 0) {
            return self.write(&entries, all, number, run).map(drop);
        }
        *self.tree.pages_mut(level) += 1;
        let beside = self.pages.allocate_beside(number)?;
        let (left, cut) = if ends_run {
            let records = entries.records(0..end - from);
            let page = number;
            (Child { page, records }, end)
        } else {
            let cut = entries
                .cut(run.cut())
                .ok_or_else(|| Error::corrupt(number, "entries cannot be divided"))?;
            (self.write(&entries, 0..cut, number, run)?, cut)
        };
        let right = self.write(&entries, cut - from..all.end, beside, run.moved(cut))?;
        if slot >= cut {
            let slot = slot - cut;
            self.way.steps[level] = Step { page: beside, slot };
        }
        let separator = entries.separator(cut - from, self.orders.keys.is_bytes());
        self.insert_sibling(level, left, right, separator)
    }

    /// Writes some entries as the contents of a page of the transaction's own; what the level above says of it.
    fn write(
        &mut self,
        entries: &Entries,
        range: Range<usize>,
        page: PageNo,
        run: InsertionRun,
    ) -> Result<Child> {
        let commit = self.pages.commit();
        let records = entries.records(range.clone());
        entries.write(range, self.pages.page_mut(page)?, page, commit, run)?;
        Ok(Child { page, records })
    }

    /// Tells the level above that the page on the way became two.
    fn insert_sibling(
        &mut self,
        level: usize,
        left: Child,
        right: Child,
        separator: &[u8],
    ) -> Result<()> {
        self.grow_if_root(level, left)?;
        let parent = &mut self.way.steps[level + 1];
        let slot = parent.slot;
        parent.slot += 1;
        self.node_mut(level + 1)?.set_child(slot, left)?;
        let kind = self.tree.page_kind(level + 1);
        self.insert(
            level + 1,
            separator,
            kind.child_payload(&right.encode()),
            Mark::Inline,
        )
    }

    /// Puts a new root above the root, if that is the page that was divided.
    fn grow_if_root(&mut self, level: usize, only: Child) -> Result<()> {
        if level + 1 < self.height() {
            return Ok(());
        }
        if self.height() == HEIGHT_MAX {
            return Err(Error::TreeTooHigh);
        }
        let root = self.allocate(level + 1)?;
        let commit = self.pages.commit();
        let mut entries = Entries::new(self.tree.page_kind(level + 1), level + 1);
        entries.push_child(&[], only);
        entries.write(
            0..1,
            self.pages.page_mut(root)?,
            root,
            commit,
            InsertionRun::default(),
        )?;
        self.tree.root = root;
        self.tree.height += 1;
        self.way.steps[level + 1] = Step {
            page: root,
            slot: 0,
        };
        Ok(())
    }

    /// Removes the entry that the way leads to, which stands for so many records.
    pub(super) fn remove(mut self, records: u64) -> Result<()> {
        self.free_large_value()?;
        self.touch(-1)?;
        let slot = self.place.slot;
        self.node_mut(0)?.remove(slot)?;
        self.tree.records = self.tree.records.saturating_sub(records);
        for level in 0..self.height() {
            if !self.mend(level)? {
                break;
            }
        }
        self.shrink()
    }

    /// Gives a page that became too empty to a neighbour, or takes from one. Answers whether its parent lost an entry.
    pub(super) fn mend(&mut self, level: usize) -> Result<bool> {
        let node = self.node(level)?;
        if level + 1 == self.height() {
            return Ok(false);
        }
        if node.len() == 0 {
            self.free(self.way.steps[level].page, level)?;
            let slot = self.way.steps[level + 1].slot;
            self.node_mut(level + 1)?.remove_child(slot)?;
            return Ok(true);
        }
        if node.used() >= UNDERFULL_BYTES {
            return Ok(false);
        }
        let siblings = self.node(level + 1)?.len();
        let slot = self.way.steps[level + 1].slot;
        // The left neighbour, or the right one of the first child.
        match slot {
            0 if siblings < 2 => Ok(false),
            0 => self.share(level, 0),
            _ => self.share(level, slot - 1),
        }
    }

    /// Makes one page of the children at `slot` and `slot + 1` of the level above, or divides their entries evenly.
    fn share(&mut self, level: usize, slot: usize) -> Result<bool> {
        let kind = self.tree.page_kind(level);
        let parent = self.node(level + 1)?;
        let (left, right) = (parent.child(slot)?.page, parent.child(slot + 1)?.page);
        let mut separator = Vec::new();
        parent.push_key(slot + 1, &mut separator)?;
        // Only in a copy is what the transaction has stored in a leaf of places.
        let (left, right) = match self.tree.kind.out_of_line && level == 0 {
            true => (
                self.touch_child(level + 1, slot)?,
                self.touch_child(level + 1, slot + 1)?,
            ),
            false => (left, right),
        };

        let mut entries = Entries::new(kind, level);
        entries.load(&self.open(left, level)?, 0, &[])?;
        entries.load(&self.open(right, level)?, 0, &separator)?;
        let n = entries.len();

        if entries.fit(0..n, MERGED_SPARE_BYTES) {
            let left = self.pages.touch(left)?;
            let left = self.write(&entries, 0..n, left, InsertionRun::default())?;
            self.free(right, level)?;
            self.node_mut(level + 1)?.set_child(slot, left)?;
            self.node_mut(level + 1)?.remove_child(slot + 1)?;
            return Ok(true);
        }

        let Some(cut) = entries.cut(None) else {
            return Ok(false);
        };
        // A new separator may be longer than the old one. If it does not fit, the page stays as it is, which harms
        // nobody.
        let separator = entries.separator(cut, self.orders.keys.is_bytes());
        if !self.replace_separator(level + 1, slot + 1, separator)? {
            return Ok(false);
        }
        for (slot, number, range) in [(slot, left, 0..cut), (slot + 1, right, cut..n)] {
            let number = self.pages.touch(number)?;
            let child = self.write(&entries, range, number, InsertionRun::default())?;
            self.node_mut(level + 1)?.set_child(slot, child)?;
        }
        Ok(false)
    }

    /// Makes a child of a branch on the way the transaction's own.
    fn touch_child(&mut self, level: usize, slot: usize) -> Result<PageNo> {
        let child = self.node(level)?.child(slot)?;
        let page = self.pages.touch(child.page)?;
        if page != child.page {
            self.node_mut(level)?
                .set_child(slot, Child { page, ..child })?;
        }
        Ok(page)
    }

    /// Gives an entry of a branch another key. Answers `false`, and changes nothing, if the page has no room for it.
    fn replace_separator(&mut self, level: usize, slot: usize, separator: &[u8]) -> Result<bool> {
        let number = self.way.steps[level].page;
        let node = self.node(level)?;
        let mut entries = Entries::new(node.kind(), level);
        entries.load(&node, 0, &[])?;
        entries.replace_key(slot, separator);
        if !entries.fit(0..entries.len(), 0) {
            return Ok(false);
        }
        let run = InsertionRun::of(self.pages.page(number)?);
        self.write(&entries, 0..entries.len(), number, run)?;
        Ok(true)
    }

    /// Takes away roots that became superfluous.
    pub(super) fn shrink(&mut self) -> Result<()> {
        while self.tree.height > 0 {
            let level = self.height() - 1;
            let root = self.node(level)?;
            let next = match (root.len(), level) {
                (0, _) => None,
                (1, 1..) => Some(root.child(0)?.page),
                _ => break,
            };
            self.free(self.tree.root, level)?;
            match next {
                Some(child) => {
                    self.tree.root = child;
                    self.tree.height -= 1;
                    self.way.steps[level - 1].page = child;
                }
                None => {
                    self.tree.root = PageNo(0);
                    self.tree.height = 0;
                }
            }
        }
        Ok(())
    }
}
