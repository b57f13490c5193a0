//! Changing a tree.
//!
//! A change first searches, and changes nothing when there is nothing to do. Then it makes the path its own from the
//! root down (copy on write, bringing children's new places and record counts up to date on the way), changes the leaf,
//! and mends what overflowed or became too empty on the way back up.

mod change;
mod duplicates;
mod out_of_line;
mod range;

use std::cmp::Ordering;
use std::ops::Range;

use super::{Comparators, Orders, Position, Step, Steps};
use crate::error::{Error, Result};
use crate::format::page::PageKind;
use crate::format::pages::WritePages;
use crate::format::pointer_leaf::KEY_BYTES;
use crate::format::tree_record::TreeRecord;
use crate::ids::PageNo;
use crate::limits::{DUPLICATE_BYTES_MAX, KEY_BYTES_MAX, VALUE_BYTES_MAX};
use crate::tree::node::{ENTRY_BYTES_MAX, Found, Mark, Node, entry_bytes};
use crate::tree::value;
use crate::tree::value::ExtentPointer;

use change::Change;

/// A tree to be changed: its pages, and its record, which is kept up to date.
///
/// A refused change ([`Error::is_refusal`]) leaves everything as it was. After any other error the tree may be half
/// changed: the transaction has to be given up, or taken back to a savepoint.
pub struct TreeMut<'a, P: ?Sized> {
    pages: &'a mut P,
    record: &'a mut TreeRecord,
    orders: Orders,
    pub(crate) way: Box<Way>,
}

/// The way of a change, on which the next one may end, too: puts in ascending order mostly go on in the same leaf.
#[derive(Clone, Copy, Default)]
pub(crate) struct Way {
    steps: Steps,
    /// The last change of the tree was stored at its end, and has left all pages where they were.
    pub(crate) is_current: bool,
    /// The last search ended in the leaf of the one before, or in a neighbour of that: where keys come in no order,
    /// nothing is looked for there.
    is_near: bool,
}

/// Where the bytes of a value are.
#[derive(Clone, Debug)]
pub(crate) enum Reserved {
    /// In a leaf.
    Leaf { page: PageNo, range: Range<usize> },
    /// In an extent.
    Extent { first: PageNo, len: usize },
}

impl<'a, P: WritePages + ?Sized> TreeMut<'a, P> {
    /// The tree of this record in these pages. Its order must not be
    /// [`Custom`](crate::format::tree_record::KeyOrder::Custom), or nothing is found in it.
    pub fn new(pages: &'a mut P, record: &'a mut TreeRecord) -> Self {
        let orders = Orders::new(record.kind, Comparators::default());
        Self::with_orders(pages, record, orders, Box::default())
    }

    /// `way` is that of the change before, or none.
    pub(crate) fn with_orders(
        pages: &'a mut P,
        record: &'a mut TreeRecord,
        orders: Orders,
        way: Box<Way>,
    ) -> Self {
        Self {
            pages,
            record,
            orders,
            way,
        }
    }

    /// Stores `value` under `key`, replacing what was there. Answers whether the key is new. In a tree with duplicates,
    /// adds the value to those of the key, and answers whether it was not there.
    pub fn put(&mut self, key: &[u8], value: &[u8]) -> Result<bool> {
        self.put_at(None, key, value)
    }

    /// The same, without a search if a cursor stands at a record of the key or has searched for it in vain: `at` is
    /// where.
    pub(crate) fn put_at(
        &mut self,
        at: Option<&Position>,
        key: &[u8],
        value: &[u8],
    ) -> Result<bool> {
        if self.record.kind.out_of_line {
            return self.put_out_of_line(key, value);
        }
        let has_duplicates = self.record.kind.duplicates.is_some();
        let change = self.find_at(at, key, value.len())?;
        match has_duplicates {
            true => change.put_duplicate(key, value, false),
            false => change.store(key, value),
        }
    }

    /// Stores `value` under `key` unless the key exists already: then nothing changes and the answer is `false`.
    pub fn insert(&mut self, key: &[u8], value: &[u8]) -> Result<bool> {
        let kind = self.record.kind;
        let change = self.find(key, value.len())?;
        if change.place.exact {
            return Ok(false);
        }
        if kind.out_of_line {
            let is_new = change.store_out_of_line(key, value)?;
            self.empty_segments()?;
            return Ok(is_new);
        }
        if kind.duplicates.is_some() {
            return change.put_duplicate(key, value, false);
        }
        change.store(key, value)
    }

    /// Stores a record behind all others; [`Error::OutOfOrder`] if that is not its place. With duplicates, the last key
    /// may get a value behind its last one.
    pub fn append(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.check_lengths(key, value.len())?;
        let has_duplicates = self.record.kind.duplicates.is_some();
        let (mut change, compared) = Change::find_end(self, key)?;
        change.check_packed(key)?;
        match compared {
            Some(Ordering::Less) => Err(Error::OutOfOrder),
            Some(Ordering::Equal) if !has_duplicates => Err(Error::OutOfOrder),
            _ if has_duplicates => {
                if compared == Some(Ordering::Equal) {
                    change.way.steps[0].slot -= 1;
                    change.place = Found::exactly(change.way.steps[0].slot);
                }
                change.put_duplicate(key, value, true).map(drop)
            }
            _ if change.tree.kind.out_of_line => {
                change.store_out_of_line(key, value)?;
                self.empty_segments()
            }
            _ => change.store(key, value).map(drop),
        }
    }

    /// Stores a value of zeroes under `key`, for the caller to write to.
    pub(crate) fn reserve(&mut self, key: &[u8], len: usize) -> Result<Reserved> {
        if self.record.kind.duplicates.is_some() {
            return Err(Error::Duplicates);
        }
        if self.record.kind.out_of_line {
            return Err(Error::OutOfLine);
        }
        let kind = self.record.page_kind(0);
        let mut change = self.find(key, len)?;
        let new = !change.place.exact;
        const ZEROES: &[u8] = &[0; ENTRY_BYTES_MAX];
        if let Some(value) = ZEROES.get(..len)
            && is_inline(kind, key, value)
        {
            change.store_payload(key, value, Mark::Inline)?;
            change.tree.records += u64::from(new);
            let Step { page, slot } = change.way.steps[0];
            let range = change.node_mut(0)?.payload_range(slot)?;
            return Ok(Reserved::Leaf { page, range });
        }
        let extent = value::reserve(change.pages, len)?;
        change.tree.extent_pages += u64::from(extent.pages());
        change.store_payload(key, &extent.encode(), Mark::Extent)?;
        change.tree.records += u64::from(new);
        Ok(Reserved::Extent {
            first: extent.first,
            len,
        })
    }

    /// Removes `key` and its value, or all its values. Answers whether it was there.
    pub fn delete(&mut self, key: &[u8]) -> Result<bool> {
        let has_duplicates = self.record.kind.duplicates.is_some();
        let change = self.find(key, 0)?;
        if !change.place.exact {
            return Ok(false);
        }
        match has_duplicates {
            true => change.remove_with_duplicates()?,
            false if change.tree.kind.out_of_line => {
                change.remove_out_of_line()?;
                self.empty_segments()?;
            }
            false => change.remove(1)?,
        }
        Ok(true)
    }

    /// Removes every record and frees every page; the record is that of an empty tree afterwards.
    pub fn clear(&mut self) -> Result<()> {
        self.way.is_current = false;
        if self.record.height > 0 {
            let level = usize::from(self.record.height) - 1;
            self.clear_below(self.record.root, level)?;
        }
        let TreeRecord { kind, heap, .. } = *self.record;
        if kind.out_of_line {
            self.pages.clear_heap(heap)?;
        }
        *self.record = TreeRecord {
            heap,
            ..TreeRecord::empty(kind)
        };
        Ok(())
    }

    /// The way to a key, once its length and that of its value are found good.
    fn find(&mut self, key: &[u8], value_len: usize) -> Result<Change<'_, P>> {
        self.find_at(None, key, value_len)
    }

    /// The same, which a cursor may have gone already.
    fn find_at(
        &mut self,
        at: Option<&Position>,
        key: &[u8],
        value_len: usize,
    ) -> Result<Change<'_, P>> {
        self.check_lengths(key, value_len)?;
        let change = match at {
            Some(at) => Change::along(self, at)?,
            None => Change::find(self, key)?,
        };
        change.check_packed(key)?;
        Ok(change)
    }

    fn check_lengths(&self, key: &[u8], value_len: usize) -> Result<()> {
        if key.len() > KEY_BYTES_MAX {
            return Err(Error::KeyTooLong(key.len()));
        }
        let kind = self.record.kind;
        if value_len > VALUE_BYTES_MAX {
            return Err(Error::ValueTooLong(value_len));
        }
        if kind.duplicates.is_some() && value_len > DUPLICATE_BYTES_MAX {
            return Err(Error::DuplicateTooLong(value_len));
        }
        let (found, expected) = match (kind.packed, kind.out_of_line) {
            (true, _) if value_len > 0 => (value_len, 0),
            (true, _) if key.is_empty() => (0, 1),
            (_, true) if key.len() != KEY_BYTES => (key.len(), KEY_BYTES),
            _ => return Ok(()),
        };
        Err(Error::ValueSize { found, expected })
    }

    /// Frees a page and all below it; how many records were there.
    fn clear_below(&mut self, number: PageNo, level: usize) -> Result<u64> {
        let kind = self.record.page_kind(level);
        let entries = Node::open(self.pages.page(number)?, number, kind, level)?.len();
        let tree = self.record.kind;
        let is_plain = tree.duplicates.is_none() && !tree.out_of_line;
        let only_counts = is_plain && self.record.extent_pages == 0;
        let mut records = 0;
        if level == 0 && only_counts {
            records = entries as u64;
        } else {
            for slot in 0..entries {
                let node = Node::open(self.pages.page(number)?, number, kind, level)?;
                if level > 0 {
                    let child = node.child(slot)?.page;
                    records += self.clear_below(child, level - 1)?;
                } else {
                    records += self.clear_values(number, slot)?;
                }
            }
        }
        self.free_page(number, level)?;
        Ok(records)
    }

    /// Frees what a record of a leaf has outside of it; how many records it stands for.
    fn clear_values(&mut self, leaf: PageNo, slot: usize) -> Result<u64> {
        let kind = self.record.page_kind(0);
        let node = Node::open(self.pages.page(leaf)?, leaf, kind, 0)?;
        if self.record.kind.out_of_line {
            let pointer = out_of_line::pointer_at(&*self.pages, leaf, slot)?;
            self.pages.outdate_record(self.record.heap, pointer)?;
            return Ok(1);
        }
        if let Some(extent) = large_value(&node, slot)? {
            let pages = extent.pages();
            self.pages.free(extent.first, pages)?;
            let left = self.record.extent_pages.saturating_sub(u64::from(pages));
            self.record.extent_pages = left;
        }
        if self.record.kind.duplicates.is_some() {
            return self.clear_duplicates(leaf, slot);
        }
        Ok(1)
    }

    fn free_page(&mut self, number: PageNo, level: usize) -> Result<()> {
        let count = self.record.pages_mut(level);
        *count = count.saturating_sub(1);
        self.pages.free(number, 1)
    }
}

/// [`TreeMut::put`] in a tree that is ordered as its record says.
pub fn put<P: WritePages + ?Sized>(
    pages: &mut P,
    tree: &mut TreeRecord,
    key: &[u8],
    value: &[u8],
) -> Result<bool> {
    TreeMut::new(pages, tree).put(key, value)
}

/// [`TreeMut::delete`] in a tree that is ordered as its record says.
pub fn delete<P: WritePages + ?Sized>(
    pages: &mut P,
    tree: &mut TreeRecord,
    key: &[u8],
) -> Result<bool> {
    TreeMut::new(pages, tree).delete(key)
}

/// A value's bytes, to be written.
pub(crate) fn reserved_mut<P: WritePages + ?Sized>(
    pages: &mut P,
    place: Reserved,
) -> Result<&mut [u8]> {
    match place {
        Reserved::Leaf { page, range } => pages
            .page_mut(page)?
            .bytes_mut()
            .get_mut(range)
            .ok_or_else(|| Error::corrupt(page, "cell outside its page")),
        Reserved::Extent { first, len } => {
            let extent = pages.extent_mut(first, value::extent_pages(len))?;
            value::value_mut(extent, len).ok_or_else(|| Error::corrupt(first, "not an extent"))
        }
    }
}

fn large_value(leaf: &Node<'_>, slot: usize) -> Result<Option<ExtentPointer>> {
    let cell = leaf.cell(slot)?;
    let is_large = cell.mark == Mark::Extent;
    let pointer = is_large.then(|| ExtentPointer::decode(cell.payload, leaf.number()));
    pointer.transpose()
}

/// Whether a record's value stands in its leaf.
pub(crate) fn is_inline(kind: PageKind, key: &[u8], value: &[u8]) -> bool {
    entry_bytes(kind, key.len(), value.len()) <= ENTRY_BYTES_MAX
}
