//! Changing a tree: put, insert, delete, clear.
//!
//! A change first searches, and changes nothing when there is nothing to do. Then it makes the path its own from the root down
//! (copy on write, bringing children's new places and record counts up to date on the way), changes the leaf, and mends what
//! overflowed or became too empty on the way back up.

use super::entries::Entries;
use super::node::{Child, ENTRY_BYTES_MAX, NODE_ROOM_BYTES, Node, NodeMut, Place, Run, cell_bytes};
use super::value::{self, ExtentPointer};
use super::{HEIGHT_MAX, KEY_BYTES_MAX, TreeRecord, VALUE_BYTES_MAX};
use crate::error::{Error, Result};
use crate::page::{PageKind, PageNo, WritePages};

/// A page with less than this in use looks for a neighbour to share with.
const UNDERFULL_BYTES: usize = NODE_ROOM_BYTES / 4;

/// Two pages become one only if it still has this much room, or the next insertion would divide it again.
const MERGED_SPARE_BYTES: usize = NODE_ROOM_BYTES / 8;

/// Stores `value` under `key`, replacing what was there. Answers whether the key is new.
///
/// After an error other than [`Error::KeyTooLong`] and [`Error::ValueTooLong`] the tree may be half changed: the
/// transaction has to be given up, or taken back to a savepoint. The same holds for all changes.
pub fn put<P: WritePages + ?Sized>(
    pages: &mut P,
    tree: &mut TreeRecord,
    key: &[u8],
    value: &[u8],
) -> Result<bool> {
    let change = Change::find(pages, tree, key, value.len())?;
    change.store(key, value)
}

/// Stores `value` under `key` unless the key exists already: then nothing changes and the answer is `false`.
pub fn insert<P: WritePages + ?Sized>(
    pages: &mut P,
    tree: &mut TreeRecord,
    key: &[u8],
    value: &[u8],
) -> Result<bool> {
    let change = Change::find(pages, tree, key, value.len())?;
    if change.place.exact {
        return Ok(false);
    }
    change.store(key, value)
}

/// Removes `key` and its value. Answers whether it was there.
pub fn delete<P: WritePages + ?Sized>(
    pages: &mut P,
    tree: &mut TreeRecord,
    key: &[u8],
) -> Result<bool> {
    let change = Change::find(pages, tree, key, 0)?;
    if !change.place.exact {
        return Ok(false);
    }
    change.remove()?;
    Ok(true)
}

/// Removes every record and frees every page; the record is that of an empty tree afterwards.
pub fn clear<P: WritePages + ?Sized>(pages: &mut P, tree: &mut TreeRecord) -> Result<()> {
    if tree.height > 0 {
        clear_below(pages, tree, tree.root, usize::from(tree.height) - 1)?;
    }
    *tree = TreeRecord::empty(tree.kind);
    Ok(())
}

fn clear_below<P: WritePages + ?Sized>(
    pages: &mut P,
    tree: &TreeRecord,
    number: PageNo,
    level: usize,
) -> Result<()> {
    let entries = Node::open(pages.page(number)?, number, tree.page_kind(level), level)?.len();
    for slot in 0..entries {
        let node = Node::open(pages.page(number)?, number, tree.page_kind(level), level)?;
        if level > 0 {
            let child = node.child(slot)?.page;
            clear_below(pages, tree, child, level - 1)?;
        } else if let Some(extent) = large_value(&node, slot)? {
            pages.free(extent.first, extent.pages())?;
        }
    }
    pages.free(number, 1)
}

fn large_value(leaf: &Node<'_>, slot: usize) -> Result<Option<ExtentPointer>> {
    let cell = leaf.cell(slot)?;
    if !cell.large {
        return Ok(None);
    }
    let pointer = ExtentPointer::decode(cell.payload);
    pointer
        .map(Some)
        .ok_or_else(|| Error::corrupt(leaf.number(), "pointer to an extent is damaged"))
}

/// Whether a record's value stands in its leaf.
pub(crate) fn is_inline(key: &[u8], value: &[u8]) -> bool {
    // A slot is six bytes.
    cell_bytes(PageKind::Leaf, key.len(), value.len()) + 6 <= ENTRY_BYTES_MAX
}

/// A step of the way from the root: a page, and the slot taken in it.
#[derive(Clone, Copy)]
struct Step {
    page: PageNo,
    slot: usize,
}

/// One change on its way: the tree and the way to the key's place in it. Steps are indexed by level, the leaf's being 0.
struct Change<'a, P: ?Sized> {
    pages: &'a mut P,
    tree: &'a mut TreeRecord,
    steps: [Step; HEIGHT_MAX],
    place: Place,
}

impl<'a, P: WritePages + ?Sized> Change<'a, P> {
    fn find(
        pages: &'a mut P,
        tree: &'a mut TreeRecord,
        key: &[u8],
        value_len: usize,
    ) -> Result<Self> {
        if key.len() > KEY_BYTES_MAX {
            return Err(Error::KeyTooLong(key.len()));
        }
        if value_len > VALUE_BYTES_MAX {
            return Err(Error::ValueTooLong(value_len));
        }
        let mut steps = [Step {
            page: PageNo(0),
            slot: 0,
        }; HEIGHT_MAX];
        let mut place = Place {
            slot: 0,
            exact: false,
        };
        let mut number = tree.root;
        for level in (0..usize::from(tree.height)).rev() {
            let node = Node::open(pages.page(number)?, number, tree.page_kind(level), level)?;
            let step = &mut steps[level];
            step.page = number;
            if level > 0 {
                step.slot = node.child_slot(key)?;
                number = node.child(step.slot)?.page;
            } else {
                place = node.search(key, 0)?;
                step.slot = place.slot;
            }
        }
        Ok(Self {
            pages,
            tree,
            steps,
            place,
        })
    }

    fn height(&self) -> usize {
        usize::from(self.tree.height)
    }

    fn node(&self, level: usize) -> Result<Node<'_>> {
        let number = self.steps[level].page;
        Node::open(
            self.pages.page(number)?,
            number,
            self.tree.page_kind(level),
            level,
        )
    }

    fn node_mut(&mut self, level: usize) -> Result<NodeMut<'_>> {
        let number = self.steps[level].page;
        NodeMut::open(
            self.pages.page_mut(number)?,
            number,
            self.tree.page_kind(level),
            level,
        )
    }

    fn allocate(&mut self, level: usize) -> Result<PageNo> {
        if level > 0 {
            self.tree.branch_pages += 1;
        } else {
            self.tree.leaf_pages += 1;
        }
        self.pages.allocate()
    }

    fn free(&mut self, number: PageNo, level: usize) -> Result<()> {
        let count = if level > 0 {
            &mut self.tree.branch_pages
        } else {
            &mut self.tree.leaf_pages
        };
        *count = count.saturating_sub(1);
        self.pages.free(number, 1)
    }

    /// Makes the whole way the transaction's own, and adds `records` to the counts along it.
    fn touch(&mut self, records: i64) -> Result<()> {
        for level in (0..self.height()).rev() {
            let old = self.steps[level].page;
            let new = self.pages.touch(old)?;
            self.steps[level].page = new;
            if level + 1 == self.height() {
                self.tree.root = new;
            } else if new != old || (records != 0 && self.tree.kind.counted) {
                let slot = self.steps[level + 1].slot;
                let mut child = self.node(level + 1)?.child(slot)?;
                child.page = new;
                child.records = child.records.wrapping_add_signed(records);
                self.node_mut(level + 1)?.set_child(slot, child)?;
            }
        }
        Ok(())
    }

    fn store(mut self, key: &[u8], value: &[u8]) -> Result<bool> {
        let new = !self.place.exact;
        if self.tree.height == 0 {
            let root = self.allocate(0)?;
            let commit = self.pages.commit();
            NodeMut::init(
                self.pages.page_mut(root)?,
                root,
                commit,
                PageKind::Leaf,
                0,
                &[],
            );
            self.tree.root = root;
            self.tree.height = 1;
            self.steps[0].page = root;
        }
        self.touch(i64::from(new))?;
        if !new && self.overwrite(value)? {
            return Ok(false);
        }
        if !new {
            self.free_large_value()?;
            let slot = self.place.slot;
            self.node_mut(0)?.remove(slot)?;
        }
        if is_inline(key, value) {
            self.insert(0, key, value, false)?;
        } else {
            let extent = value::store(self.pages, value)?;
            self.tree.extent_pages += u64::from(extent.pages());
            self.insert(0, key, &extent.encode(), true)?;
        }
        self.tree.records += u64::from(new);
        Ok(new)
    }

    /// Overwrites the old value if the new one has the same length and both stand in the leaf.
    fn overwrite(&mut self, value: &[u8]) -> Result<bool> {
        let slot = self.place.slot;
        let cell = self.node(0)?.cell(slot)?;
        if cell.large || cell.payload.len() != value.len() {
            return Ok(false);
        }
        self.node_mut(0)?.set_payload(slot, value)?;
        Ok(true)
    }

    fn free_large_value(&mut self) -> Result<()> {
        if let Some(extent) = large_value(&self.node(0)?, self.place.slot)? {
            self.tree.extent_pages = self
                .tree
                .extent_pages
                .saturating_sub(u64::from(extent.pages()));
            self.pages.free(extent.first, extent.pages())?;
        }
        Ok(())
    }

    /// Inserts an entry at the way's slot of a level, dividing the page if it must be.
    fn insert(&mut self, level: usize, key: &[u8], payload: &[u8], large: bool) -> Result<()> {
        let Step { page: number, slot } = self.steps[level];
        let page = self.pages.page_mut(number)?;
        let run = Run::of(page).after(slot);
        let mut node = NodeMut::open(page, number, self.tree.page_kind(level), level)?;
        if node.insert(slot, key, payload, large)? {
            run.store(page);
            return Ok(());
        }

        let commit = self.pages.commit();
        let mut entries = Entries::new(self.tree.page_kind(level), level);
        entries.load(&self.node(level)?, &[])?;
        let end = entries.len();
        entries.insert(slot, key, payload, large);
        let all = 0..entries.len();
        if entries.fit(all.clone(), 0) {
            return entries.write(all, self.pages.page_mut(number)?, number, commit, run);
        }
        let right = self.allocate(level)?;
        let cut = if slot == end && run.cut() == Some(end) {
            // A page that ascending insertions have filled stays as it is: the new entry begins the next one.
            end
        } else {
            let cut = entries
                .cut(run.cut())
                .ok_or_else(|| Error::corrupt(number, "entries cannot be divided"))?;
            entries.write(0..cut, self.pages.page_mut(number)?, number, commit, run)?;
            cut
        };
        entries.write(
            cut..all.end,
            self.pages.page_mut(right)?,
            right,
            commit,
            run.moved(cut),
        )?;
        let left = Child {
            page: number,
            records: entries.records(0..cut),
        };
        let right = Child {
            page: right,
            records: entries.records(cut..all.end),
        };
        self.insert_sibling(level, left, right, entries.separator(cut))
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
        let parent = &mut self.steps[level + 1];
        let slot = parent.slot;
        parent.slot += 1;
        self.node_mut(level + 1)?.set_child(slot, left)?;
        let kind = self.tree.page_kind(level + 1);
        self.insert(
            level + 1,
            separator,
            kind.child_payload(&right.encode()),
            false,
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
            Run::default(),
        )?;
        self.tree.root = root;
        self.tree.height += 1;
        self.steps[level + 1] = Step {
            page: root,
            slot: 0,
        };
        Ok(())
    }

    fn remove(mut self) -> Result<()> {
        self.touch(-1)?;
        self.free_large_value()?;
        let slot = self.place.slot;
        self.node_mut(0)?.remove(slot)?;
        self.tree.records = self.tree.records.saturating_sub(1);
        for level in 0..self.height() {
            if !self.mend(level)? {
                break;
            }
        }
        self.shrink()
    }

    /// Gives a page that became too empty to a neighbour, or takes from one. Answers whether its parent lost an entry.
    fn mend(&mut self, level: usize) -> Result<bool> {
        let node = self.node(level)?;
        if level + 1 == self.height() {
            return Ok(false);
        }
        if node.len() == 0 {
            self.free(self.steps[level].page, level)?;
            self.remove_child(level + 1, self.steps[level + 1].slot)?;
            return Ok(true);
        }
        if node.used() >= UNDERFULL_BYTES {
            return Ok(false);
        }
        let siblings = self.node(level + 1)?.len();
        let slot = self.steps[level + 1].slot;
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

        let mut entries = Entries::new(kind, level);
        entries.load(&Node::open(self.pages.page(left)?, left, kind, level)?, &[])?;
        entries.load(
            &Node::open(self.pages.page(right)?, right, kind, level)?,
            &separator,
        )?;
        let n = entries.len();
        let commit = self.pages.commit();

        if entries.fit(0..n, MERGED_SPARE_BYTES) {
            let left = self.pages.touch(left)?;
            entries.write(
                0..n,
                self.pages.page_mut(left)?,
                left,
                commit,
                Run::default(),
            )?;
            self.free(right, level)?;
            self.node_mut(level + 1)?.set_child(
                slot,
                Child {
                    page: left,
                    records: entries.records(0..n),
                },
            )?;
            self.remove_child(level + 1, slot + 1)?;
            return Ok(true);
        }

        let Some(cut) = entries.cut(None) else {
            return Ok(false);
        };
        // A new separator may be longer than the old one. If it does not fit, the page stays as it is, which harms nobody.
        if !self.replace_separator(level + 1, slot + 1, entries.separator(cut))? {
            return Ok(false);
        }
        for (slot, number, range) in [(slot, left, 0..cut), (slot + 1, right, cut..n)] {
            let number = self.pages.touch(number)?;
            entries.write(
                range.clone(),
                self.pages.page_mut(number)?,
                number,
                commit,
                Run::default(),
            )?;
            self.node_mut(level + 1)?.set_child(
                slot,
                Child {
                    page: number,
                    records: entries.records(range),
                },
            )?;
        }
        Ok(false)
    }

    /// Gives an entry of a branch another key. Answers `false`, and changes nothing, if the page has no room for it.
    fn replace_separator(&mut self, level: usize, slot: usize, separator: &[u8]) -> Result<bool> {
        let number = self.steps[level].page;
        let node = self.node(level)?;
        let child = node.child(slot)?;
        let mut entries = Entries::new(node.kind(), level);
        entries.load(&node, &[])?;
        entries.replace_key(slot, separator);
        if !entries.fit(0..entries.len(), 0) {
            return Ok(false);
        }
        let commit = self.pages.commit();
        self.node_mut(level)?.remove(slot)?;
        let kind = self.tree.page_kind(level);
        if !self.node_mut(level)?.insert(
            slot,
            separator,
            kind.child_payload(&child.encode()),
            false,
        )? {
            entries.write(
                0..entries.len(),
                self.pages.page_mut(number)?,
                number,
                commit,
                Run::default(),
            )?;
        }
        Ok(true)
    }

    fn remove_child(&mut self, level: usize, slot: usize) -> Result<()> {
        let mut parent = self.node_mut(level)?;
        parent.remove(slot)?;
        if slot == 0 && parent.as_node().is_some_and(|node| node.len() > 0) {
            parent.drop_first_key()?;
        }
        Ok(())
    }

    /// Takes away roots that became superfluous.
    fn shrink(&mut self) -> Result<()> {
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
                    self.steps[level - 1].page = child;
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
