//! Changing the values of a key that may have several.

use super::{Change, TreeMut, is_inline};
use crate::error::{Error, Result};
use crate::format::pages::WritePages;
use crate::format::tree_record::{TreeKind, TreeRecord};
use crate::ids::PageNo;
use crate::tree::duplicates::{Values, damaged, encode_sub_page};
use crate::tree::node::{ENTRY_BYTES_MAX, Found, Mark, Node};
use crate::tree::{Order, Orders, Position, View};

/// Values in a tree of their own go back to the leaf when they fit into so many bytes: far less than what sent them
/// there.
const SUB_PAGE_AGAIN_BYTES: usize = ENTRY_BYTES_MAX / 4;

impl<P: WritePages + ?Sized> TreeMut<'_, P> {
    pub(super) fn put_duplicate(&mut self, key: &[u8], value: &[u8]) -> Result<bool> {
        self.find(key, value.len())?
            .put_duplicate(key, value, false)
    }

    /// Adds a value behind those of its key; [`Error::OutOfOrder`] if that is not its place.
    pub fn append_duplicate(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.append_duplicate_at(None, key, value)
    }

    /// The same, without a search if a cursor stands at a record of the key: `at` is where.
    pub(crate) fn append_duplicate_at(
        &mut self,
        at: Option<&Position>,
        key: &[u8],
        value: &[u8],
    ) -> Result<()> {
        if self.record.kind.duplicates.is_none() {
            return Err(Error::NoDuplicates);
        }
        let change = match at {
            Some(at) => {
                self.check_lengths(key, value.len())?;
                Change::along(self, at)?
            }
            None => self.find(key, value.len())?,
        };
        change.put_duplicate(key, value, true).map(drop)
    }

    /// Adds many values of `size` bytes each to a key; how many of them were not there.
    pub fn put_multiple(&mut self, key: &[u8], size: usize, values: &[u8]) -> Result<usize> {
        if self.record.kind.duplicates.is_none() {
            return Err(Error::NoDuplicates);
        }
        if size == 0 || !values.len().is_multiple_of(size) {
            return Err(Error::ValueSize {
                found: values.len(),
                expected: size,
            });
        }
        let mut new = 0;
        for value in values.chunks_exact(size) {
            new += usize::from(self.put_duplicate(key, value)?);
        }
        Ok(new)
    }

    /// Removes one value of a key, or a record if it has this value. Answers whether it was there.
    pub fn delete_duplicate(&mut self, key: &[u8], value: &[u8]) -> Result<bool> {
        if self.record.kind.duplicates.is_none() {
            let view = View::with_orders(&*self.pages, *self.record, self.orders);
            return Ok(view.get(key)? == Some(value) && self.delete(key)?);
        }
        let change = self.find(key, 0)?;
        if !change.place.exact {
            return Ok(false);
        }
        change.delete_duplicate(key, value)
    }

    /// Frees the tree of values that a record of a leaf may have; how many values the record has.
    pub(super) fn clear_duplicates(&mut self, leaf: PageNo, slot: usize) -> Result<u64> {
        let kind = self.record.page_kind(0);
        let node = Node::open(self.pages.page(leaf)?, leaf, kind, 0)?;
        let values = Values::of(&node, slot, self.record.kind)?;
        let len = values.len();
        if let Values::Tree(mut tree) = values {
            TreeMut::new(self.pages, &mut tree).clear()?;
        }
        Ok(len)
    }
}

impl<P: WritePages + ?Sized> Change<'_, P> {
    fn kind(&self) -> TreeKind {
        self.tree.kind
    }

    fn order(&self) -> Order {
        self.orders.duplicates
    }

    fn values(&self) -> Result<Values<'_>> {
        Values::of(&self.node(0)?, self.place.slot, self.kind())
    }

    /// A tree of values, to be changed.
    fn sub_tree<'s>(&'s mut self, tree: &'s mut TreeRecord) -> TreeMut<'s, P> {
        let orders = Orders {
            keys: self.orders.duplicates,
            duplicates: Order::default(),
        };
        TreeMut::with_orders(self.pages, tree, orders)
    }

    /// Adds a value to those of the key that the way leads to. Answers whether it was not there. If it is to come
    /// `last` and does not, that is an error.
    fn put_duplicate(mut self, key: &[u8], value: &[u8], last: bool) -> Result<bool> {
        if !self.place.exact {
            self.store_values(key, [value].into_iter())?;
            self.tree.records += 1;
            return Ok(true);
        }
        let values = self.values()?;
        if let Values::Tree(mut tree) = values {
            let mut sub_tree = self.sub_tree(&mut tree);
            let new = match last {
                true => sub_tree.append(value, &[]).map(|()| true)?,
                false => sub_tree.insert(value, &[])?,
            };
            if new {
                self.store_payload(key, &tree.encode(), Mark::SubTree)?;
                self.tree.records += 1;
            }
            return Ok(new);
        }
        let found = self.find_value(&values, value)?;
        let len = values.len() as usize;
        if last && (found.exact || found.slot < len) {
            return Err(Error::OutOfOrder);
        }
        if found.exact {
            return Ok(false);
        }
        let grown = match &values {
            Values::Page(page) => Some(page.with(found.slot, value).ok_or_else(|| self.damaged())?),
            _ => None,
        };
        if let Some(payload) = grown.filter(|payload| self.fits(key, payload)) {
            self.store_payload(key, &payload, Mark::SubPage)?;
            self.tree.records += 1;
            return Ok(true);
        }
        let values = self.take_values(len)?;
        let mut values: Vec<&[u8]> = values.iter().map(Vec::as_slice).collect();
        values.insert(found.slot, value);
        self.store_values(key, values.into_iter())?;
        self.tree.records += 1;
        Ok(true)
    }

    fn delete_duplicate(mut self, key: &[u8], value: &[u8]) -> Result<bool> {
        let values = self.values()?;
        if let Values::Tree(mut tree) = values {
            match self.sub_tree(&mut tree).delete(value) {
                Ok(true) => {}
                // A value of another size than all others.
                Ok(false) | Err(Error::ValueSize { .. }) => return Ok(false),
                Err(error) => return Err(error),
            }
            self.store_fewer(key, tree)?;
            self.tree.records = self.tree.records.saturating_sub(1);
            return Ok(true);
        }
        let len = values.len() as usize;
        let found = match self.find_value(&values, value) {
            Err(Error::ValueSize { .. }) => return Ok(false),
            found => found?,
        };
        if !found.exact {
            return Ok(false);
        }
        if len == 1 {
            self.remove(1)?;
            return Ok(true);
        }
        let mut values = self.take_values(len)?;
        values.remove(found.slot);
        self.store_values(key, values.iter().map(Vec::as_slice))?;
        self.tree.records = self.tree.records.saturating_sub(1);
        Ok(true)
    }

    /// Stores the record of a tree of values from which one was removed, or the values themselves if they are few.
    fn store_fewer(&mut self, key: &[u8], mut tree: TreeRecord) -> Result<()> {
        if tree.height == 1 && tree.records > 0 {
            let view = View::new(&*self.pages, tree);
            let leaf = view.open(tree.root, 0)?;
            if leaf.used() <= SUB_PAGE_AGAIN_BYTES {
                let mut values = Vec::with_capacity(leaf.len());
                for slot in 0..leaf.len() {
                    values.push(leaf.whole_key(slot)?.to_vec());
                }
                let payload = self.payload(values.iter().map(Vec::as_slice));
                if self.fits(key, &payload.0) {
                    self.sub_tree(&mut tree).clear()?;
                    return self.store_payload(key, &payload.0, payload.1);
                }
            }
        }
        self.store_payload(key, &tree.encode(), Mark::SubTree)
    }

    /// Where a value belongs among those in the leaf.
    fn find_value(&self, values: &Values<'_>, value: &[u8]) -> Result<Found> {
        let size = |expected: usize| match value.len() == expected {
            true => Ok(()),
            false => Err(Error::ValueSize {
                found: value.len(),
                expected,
            }),
        };
        match values {
            Values::One(other) => {
                if self.kind().has_fixed_duplicates() {
                    size(other.len())?;
                }
                Found::by(0..1, |_| self.order().compare(other, value))
            }
            Values::Page(page) => {
                if self.kind().has_fixed_duplicates() {
                    size(page.size())?;
                }
                page.search(value, self.order(), self.steps[0].page)
            }
            Values::Tree(_) => Err(self.damaged()),
        }
    }

    fn damaged(&self) -> Error {
        damaged(self.steps[0].page)
    }

    /// Copies of the values in the leaf.
    fn take_values(&self, len: usize) -> Result<Vec<Vec<u8>>> {
        let values = self.values()?;
        let value = |at: usize| match &values {
            Values::One(value) => Some(value.to_vec()),
            Values::Page(page) => page.get(at).map(<[u8]>::to_vec),
            Values::Tree(_) => None,
        };
        let values: Option<Vec<_>> = (0..len).map(value).collect();
        values.ok_or_else(|| self.damaged())
    }

    fn payload<'v>(
        &self,
        mut values: impl ExactSizeIterator<Item = &'v [u8]> + Clone,
    ) -> (Vec<u8>, Mark) {
        match values.len() {
            1 => (values.next().unwrap_or_default().to_vec(), Mark::Inline),
            _ => (encode_sub_page(self.kind(), values), Mark::SubPage),
        }
    }

    fn fits(&self, key: &[u8], payload: &[u8]) -> bool {
        is_inline(self.tree.page_kind(0), key, payload)
    }

    /// Stores all values of the key that the way leads to: in the leaf if they fit, otherwise in a tree of their own.
    fn store_values<'v>(
        &mut self,
        key: &[u8],
        values: impl ExactSizeIterator<Item = &'v [u8]> + Clone,
    ) -> Result<()> {
        let (payload, mark) = self.payload(values.clone());
        if self.fits(key, &payload) {
            return self.store_payload(key, &payload, mark);
        }
        let mut tree = TreeRecord::empty(self.kind().of_values());
        let mut sub_tree = self.sub_tree(&mut tree);
        for value in values {
            sub_tree.append(value, &[])?;
        }
        self.store_payload(key, &tree.encode(), Mark::SubTree)
    }

    /// Removes a key with all its values.
    pub(super) fn remove_with_duplicates(mut self) -> Result<()> {
        let values = self.values()?;
        let len = values.len();
        if let Values::Tree(mut tree) = values {
            self.sub_tree(&mut tree).clear()?;
        }
        self.remove(len)
    }
}
