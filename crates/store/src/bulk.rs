//! Trees built from sorted input, bottom-up into full pages.

pub(crate) mod copy;
mod heap;

use std::cmp::Ordering;

use crate::error::{Error, Result};
use crate::format::page::{Page, PageKind};
use crate::format::pages::AppendPages;
use crate::format::tree_record::{TreeKind, TreeRecord};
use crate::ids::{HeapNo, PageNo};
use crate::limits::{HEIGHT_MAX, KEY_BYTES_MAX, VALUE_BYTES_MAX};
use crate::tree::entries::{Entries, common_prefix};
use crate::tree::node::{Child, InsertionRun, Mark, cell_bytes, encode_pair, slots_bytes};
use crate::tree::{Comparators, Order, Orders, is_inline, value};

use heap::{HeapBuilder, Placed};

/// Builds one tree from records in ascending order of their keys. Its pages are full and written one after the other.
///
/// Memory: one page for each level. Several builders may run on the same pages in turn.
pub struct TreeBuilder {
    tree: TreeRecord,
    levels: Vec<Level>,
    order: Order,
    last_key: Vec<u8>,
    page: Box<Page>,
    /// If values stand out of line.
    heap: Option<HeapBuilder>,
}

/// The page being filled on one level.
struct Level {
    entries: Entries,
    /// The separator before it: what its parent will call it.
    separator: Vec<u8>,
    prefix_len: usize,
    longest_key: usize,
    /// What the entries take in a page under this prefix.
    cells: usize,
    /// How many pages of the level are written.
    written: u64,
}

impl Level {
    fn new(kind: PageKind, level: usize) -> Self {
        Self {
            entries: Entries::new(kind, level),
            separator: Vec::new(),
            prefix_len: 0,
            longest_key: 0,
            cells: 0,
            written: 0,
        }
    }

    /// Appends an entry. Answers `false`, and appends it nevertheless, if the entries no longer fit into a page.
    fn push(&mut self, kind: PageKind, key: &[u8], payload: &[u8], mark: Mark) -> bool {
        self.entries.push(key, payload, mark);
        let n = self.entries.len();
        let first_key = usize::from(!kind.is_leaf());
        if n > first_key {
            let common = common_prefix(self.entries.key(first_key), key);
            self.longest_key = self.longest_key.max(key.len());
            let prefix_len = match kind.is_whole() {
                true => 0,
                false => common.min(self.longest_key.saturating_sub(4)),
            };
            if prefix_len == self.prefix_len {
                self.cells += cell_bytes(kind, key.len() - prefix_len, payload.len());
            } else {
                self.prefix_len = prefix_len;
                self.cells = self.entries.cells_bytes(0..n, prefix_len);
            }
        } else {
            self.cells += cell_bytes(kind, 0, payload.len());
        }
        self.prefix_len + slots_bytes(kind, n) + self.cells <= kind.room_bytes()
    }

    fn clear(&mut self) {
        self.entries.clear();
        (self.prefix_len, self.longest_key, self.cells) = (0, 0, 0);
    }
}

impl TreeBuilder {
    /// A builder of an empty tree, whose values do not stand out of line.
    pub fn new(kind: TreeKind) -> Self {
        Self::in_heap(kind, HeapNo::default())
    }

    /// A builder of an empty tree whose values, if they stand out of line, belong to this heap.
    pub(crate) fn in_heap(kind: TreeKind, heap: HeapNo) -> Self {
        let tree = TreeRecord {
            heap,
            ..TreeRecord::empty(kind)
        };
        Self {
            heap: kind.out_of_line.then(|| HeapBuilder::new(heap)),
            tree,
            levels: Vec::new(),
            order: Orders::new(kind, Comparators::default()).keys,
            last_key: Vec::new(),
            page: Box::new(Page::zeroed()),
        }
    }

    /// Appends a record, whose key must be greater than its predecessor's.
    pub fn push<P: AppendPages + ?Sized>(
        &mut self,
        pages: &mut P,
        key: &[u8],
        value: &[u8],
    ) -> Result<()> {
        if key.len() > KEY_BYTES_MAX {
            return Err(Error::KeyTooLong(key.len()));
        }
        if value.len() > VALUE_BYTES_MAX {
            return Err(Error::ValueTooLong(value.len()));
        }
        if self.tree.kind.duplicates.is_some() {
            return Err(Error::Duplicates);
        }
        if self.tree.records > 0 && self.order.compare(key, &self.last_key)? != Ordering::Greater {
            return Err(Error::NotSorted(self.tree.records));
        }
        self.last_key.clear();
        self.last_key.extend_from_slice(key);
        self.tree.records += 1;
        if let Some(heap) = &mut self.heap {
            let placed = heap.push(pages, key, value)?;
            return self.append_pointers(pages, &placed);
        }
        if is_inline(self.tree.page_kind(0), key, value) {
            return self.append(pages, 0, key, value, Mark::Inline);
        }
        let first = value::append(pages, value)?;
        self.tree.extent_pages += u64::from(value::extent_pages(value.len()));
        self.append(
            pages,
            0,
            key,
            &encode_pair(first.0, value.len() as u64),
            Mark::Extent,
        )
    }

    /// Writes what is left and returns the tree's record.
    pub fn finish<P: AppendPages + ?Sized>(mut self, pages: &mut P) -> Result<TreeRecord> {
        if let Some(heap) = &mut self.heap {
            let placed = heap.write(pages)?;
            self.append_pointers(pages, &placed)?;
        }
        let mut level = 0;
        while level < self.levels.len() {
            let is_root = level + 1 == self.levels.len() && self.levels[level].written == 0;
            let end = self.levels[level].entries.len();
            let child = self.write(pages, level, end)?;
            if is_root {
                self.tree.root = child.page;
                self.tree.height = level as u8 + 1;
                break;
            }
            let separator = std::mem::take(&mut self.levels[level].separator);
            self.append_child(pages, level + 1, &separator, child)?;
            level += 1;
        }
        Ok(self.tree)
    }

    fn append_pointers<P: AppendPages + ?Sized>(
        &mut self,
        pages: &mut P,
        placed: &Placed,
    ) -> Result<()> {
        placed
            .pointers()
            .try_for_each(|(key, at)| self.append(pages, 0, key, &at.encode(), Mark::OutOfLine))
    }

    fn append_child<P: AppendPages + ?Sized>(
        &mut self,
        pages: &mut P,
        level: usize,
        separator: &[u8],
        child: Child,
    ) -> Result<()> {
        let payload = child.encode();
        let stored = self.tree.page_kind(level).child_payload(&payload);
        self.append(pages, level, separator, stored, Mark::Inline)
    }

    /// Appends an entry to a level; if its page is full, writes that first and tells the level above.
    fn append<P: AppendPages + ?Sized>(
        &mut self,
        pages: &mut P,
        level: usize,
        key: &[u8],
        payload: &[u8],
        mark: Mark,
    ) -> Result<()> {
        if level == HEIGHT_MAX {
            return Err(Error::TreeTooHigh);
        }
        let kind = self.tree.page_kind(level);
        if level == self.levels.len() {
            self.levels.push(Level::new(kind, level));
        }
        let current = &mut self.levels[level];
        if current.push(kind, key, payload, mark) {
            return Ok(());
        }
        let end = current.entries.len() - 1;
        let separator = current
            .entries
            .separator(end, self.order.is_bytes())
            .to_vec();
        let child = self.write(pages, level, end)?;
        let current = &mut self.levels[level];
        current.clear();
        current.push(kind, key, payload, mark);
        let separator = std::mem::replace(&mut current.separator, separator);
        self.append_child(pages, level + 1, &separator, child)
    }

    /// Writes the first `end` entries of a level as a page.
    fn write<P: AppendPages + ?Sized>(
        &mut self,
        pages: &mut P,
        level: usize,
        end: usize,
    ) -> Result<Child> {
        let current = &mut self.levels[level];
        current.written += 1;
        current.entries.write(
            0..end,
            &mut self.page,
            PageNo(0),
            pages.commit(),
            InsertionRun::default(),
        )?;
        let records = current.entries.records(0..end);
        *self.tree.pages_mut(level) += 1;
        Ok(Child {
            page: pages.append(&mut self.page)?,
            records,
        })
    }
}
