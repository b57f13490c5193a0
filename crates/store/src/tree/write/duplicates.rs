//! Changing the values of a key that may have several.

use std::cmp::Ordering;

use super::{Change, TreeMut};
use crate::error::{Error, Result};
use crate::format::page::PageKind;
use crate::format::pages::WritePages;
use crate::format::tree_record::TreeRecord;
use crate::ids::PageNo;
use crate::tree::duplicates::{SIZE_BYTES, Values, damaged, encode_sub_page};
use crate::tree::node::{ENTRY_BYTES_MAX, Found, Mark, Node, NodeMut, entry_bytes};
use crate::tree::{Order, Orders, Position, View};

/// Values in a tree of their own go back to the leaf when they fit into so many bytes: far less than what sent them
/// there.
const SUB_PAGE_AGAIN_BYTES: usize = ENTRY_BYTES_MAX / 4;

impl<P: WritePages + ?Sized> TreeMut<'_, P> {
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
        let change = self.find_at(at, key, value.len())?;
        change.put_duplicate(key, value, true).map(drop)
    }

    /// Puts a value in the place of another one of its key, whose record a cursor may stand at: `at` is where.
    /// [`Error::NoRecord`] if there is no such key.
    pub(crate) fn replace_duplicate(
        &mut self,
        at: Option<&Position>,
        key: &[u8],
        old: &[u8],
        new: &[u8],
    ) -> Result<()> {
        let mut change = self.find_at(at, key, new.len())?;
        if !change.place.exact {
            return Err(Error::NoRecord);
        }
        let (payload, mark) = change.copy_values()?;
        let values = change.values_of(&payload, mark)?;
        let has_same_place = change.orders.duplicates.compare(old, new)?.is_eq();
        // What is refused is refused before anything is changed.
        if values.len() > 1 {
            change.check_size(old.len(), new)?;
        }
        if has_same_place && !matches!(values, Values::Tree(_)) {
            let place = change.find_value(&values, old)?.slot;
            let values = (0..values.len() as usize).map(|at| match at == place {
                true => new,
                false => values.get(at).unwrap_or_default(),
            });
            return change.store_values(key, values);
        }
        self.delete_duplicate(key, old)?;
        self.put(key, new).map(drop)
    }

    /// Adds many values of `size` bytes each to a key; how many of them were not there. Those that ascend, and come
    /// behind all others of the key, are stored together.
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
        let mut new = values.len() / size;
        if new < 2 || !self.put_behind(key, size, values)? {
            new = 0;
            for value in values.chunks_exact(size) {
                new += usize::from(self.put(key, value)?);
            }
        }
        Ok(new)
    }

    /// Adds values of `size` bytes behind all others of their key; whether that is their place, and values of this tree
    /// are of one length. Otherwise nothing is changed.
    fn put_behind(&mut self, key: &[u8], size: usize, values: &[u8]) -> Result<bool> {
        let order = self.orders.duplicates;
        // A program's comparator may contradict itself, which would be noticed half way.
        let is_fit = self.record.kind.has_fixed_duplicates() && !matches!(order, Order::By(_));
        let each = values.chunks_exact(size);
        let is_less = |(one, next)| matches!(order.compare(one, next), Ok(Ordering::Less));
        if !is_fit || !each.clone().zip(each.clone().skip(1)).all(is_less) {
            return Ok(false);
        }
        let mut change = self.find(key, size)?;
        let mut list = Vec::with_capacity(ENTRY_BYTES_MAX + values.len());
        list.extend((size as u16).to_le_bytes());
        match change.place.exact.then(|| change.values()).transpose()? {
            Some(Values::Tree(mut tree)) => {
                if !change.sub_tree(&mut tree).append_keys(size, values)? {
                    return Ok(false);
                }
                change.store_payload(key, &tree.encode(), Mark::SubTree)?;
            }
            old => {
                if let Some(old) = &old {
                    let end = Found::gap(old.len() as usize);
                    if change.find_value(old, &values[..size])? != end {
                        return Ok(false);
                    }
                    list.extend_from_slice(old.packed());
                }
                list.extend_from_slice(values);
                change.store_list(key, &list, Mark::SubPage)?;
            }
        }
        change.tree.records += each.len() as u64;
        Ok(true)
    }

    /// Adds keys of `size` bytes, which ascend, behind all others of a tree of such values; whether that is their
    /// place.
    fn append_keys(&mut self, size: usize, keys: &[u8]) -> Result<bool> {
        let mut rest = keys;
        while let Some((key, others)) = rest.split_at_checked(size) {
            match self.append(key, &[]) {
                Err(Error::OutOfOrder) => return Ok(false),
                appended => appended?,
            }
            rest = others;
            // Where that stands there may be room for others.
            let leaf = self.way.steps[0].page;
            let page = self.pages.page_mut(leaf)?;
            let taken = NodeMut::open(page, leaf, PageKind::PackedLeaf, 0)?.extend_packed(rest)?;
            self.record.records += taken as u64;
            rest = &rest[taken * size..];
        }
        Ok(true)
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
    fn values(&self) -> Result<Values<'_>> {
        Values::of(&self.node(0)?, self.place.slot, self.tree.kind)
    }

    /// A tree of values, to be changed.
    fn sub_tree<'s>(&'s mut self, tree: &'s mut TreeRecord) -> TreeMut<'s, P> {
        let orders = Orders {
            keys: self.orders.duplicates,
            duplicates: Order::default(),
        };
        TreeMut::with_orders(self.pages, tree, orders, Box::default())
    }

    /// Adds a value to those of the key that the way leads to. Answers whether it was not there. If it is to come
    /// `last` and does not, that is an error.
    pub(super) fn put_duplicate(mut self, key: &[u8], value: &[u8], last: bool) -> Result<bool> {
        if !self.place.exact {
            self.store_list(key, value, Mark::Inline)?;
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
        let is_packed = len > 1 && self.tree.kind.has_fixed_duplicates();
        if !is_packed || !self.insert_packed(key, found.slot, len, value)? {
            let (payload, mark) = self.copy_values()?;
            let old = self.values_of(&payload, mark)?;
            let values = (0..len + 1).map(|at| match at.cmp(&found.slot) {
                Ordering::Less => old.get(at).unwrap_or_default(),
                Ordering::Equal => value,
                Ordering::Greater => old.get(at - 1).unwrap_or_default(),
            });
            self.store_values(key, values)?;
        }
        self.tree.records += 1;
        Ok(true)
    }

    /// Adds a value to several of its length, as number `at`, where they stand; whether the leaf has room for it.
    fn insert_packed(&mut self, key: &[u8], at: usize, len: usize, value: &[u8]) -> Result<bool> {
        let (size, slot) = (value.len(), self.place.slot);
        let bytes = SIZE_BYTES + (len + 1) * size;
        if !self.fits(key, bytes) {
            return Ok(false);
        }
        self.touch(0)?;
        let mut leaf = self.node_mut(0)?;
        let Some(payload) = leaf.resize(slot, bytes, Mark::SubPage)? else {
            return Ok(false);
        };
        let place = SIZE_BYTES + at * size;
        payload.copy_within(size..size + place, 0);
        payload[place..place + size].copy_from_slice(value);
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
        let (payload, mark) = self.copy_values()?;
        let old = self.values_of(&payload, mark)?;
        let values = (0..len - 1).map(|at| at + usize::from(at >= found.slot));
        self.store_values(key, values.map(|at| old.get(at).unwrap_or_default()))?;
        self.tree.records = self.tree.records.saturating_sub(1);
        Ok(true)
    }

    /// Stores the record of a tree of values from which one was removed, or the values themselves if they are few.
    fn store_fewer(&mut self, key: &[u8], mut tree: TreeRecord) -> Result<()> {
        if tree.height == 1 && tree.records > 0 {
            let view = View::new(&*self.pages, tree);
            let leaf = view.open(tree.root, 0)?;
            if leaf.used() <= SUB_PAGE_AGAIN_BYTES {
                let values = (0..leaf.len()).map(|slot| leaf.whole_key(slot));
                let values = values.collect::<Result<Vec<_>>>()?;
                let payload = self.payload(values.into_iter());
                if self.fits(key, payload.0.len()) {
                    self.sub_tree(&mut tree).clear()?;
                    return self.store_payload(key, &payload.0, payload.1);
                }
            }
        }
        self.store_payload(key, &tree.encode(), Mark::SubTree)
    }

    /// Where a value belongs among those in the leaf.
    fn find_value(&self, values: &Values<'_>, value: &[u8]) -> Result<Found> {
        self.check_size(values.get(0).map_or(0, <[u8]>::len), value)?;
        values.search(value, self.orders.duplicates, self.way.steps[0].page)
    }

    /// Refuses a value of another size than that of its key's others, where these have one.
    fn check_size(&self, expected: usize, value: &[u8]) -> Result<()> {
        let found = value.len();
        match self.tree.kind.has_fixed_duplicates() && found != expected {
            true => Err(Error::ValueSize { found, expected }),
            false => Ok(()),
        }
    }

    fn damaged(&self) -> Error {
        damaged(self.way.steps[0].page)
    }

    /// A copy of what holds the values in the leaf.
    fn copy_values(&self) -> Result<(Vec<u8>, Mark)> {
        let cell = self.node(0)?.cell(self.place.slot)?;
        Ok((cell.payload.to_vec(), cell.mark))
    }

    /// The values in such a copy: all are there.
    fn values_of<'v>(&self, payload: &'v [u8], mark: Mark) -> Result<Values<'v>> {
        Values::decode(payload, mark, self.tree.kind)
            .filter(Values::are_whole)
            .ok_or_else(|| self.damaged())
    }

    fn payload<'v>(
        &self,
        mut values: impl ExactSizeIterator<Item = &'v [u8]> + Clone,
    ) -> (Vec<u8>, Mark) {
        match values.len() {
            1 => (values.next().unwrap_or_default().to_vec(), Mark::Inline),
            _ => (encode_sub_page(self.tree.kind, values), Mark::SubPage),
        }
    }

    /// Whether values that take so many bytes together stand in the leaf.
    fn fits(&self, key: &[u8], bytes: usize) -> bool {
        entry_bytes(self.tree.page_kind(0), key.len(), bytes) <= ENTRY_BYTES_MAX
    }

    /// Stores all values of the key that the way leads to: in the leaf if they fit, otherwise in a tree of their own.
    fn store_values<'v>(
        &mut self,
        key: &[u8],
        values: impl ExactSizeIterator<Item = &'v [u8]> + Clone,
    ) -> Result<()> {
        let (payload, mark) = self.payload(values);
        self.store_list(key, &payload, mark)
    }

    /// The same for values in the form in which they would stand in the leaf.
    fn store_list(&mut self, key: &[u8], payload: &[u8], mark: Mark) -> Result<()> {
        if self.fits(key, payload.len()) {
            return self.store_payload(key, payload, mark);
        }
        let values = self.values_of(payload, mark)?;
        let is_fixed = self.tree.kind.has_fixed_duplicates();
        let mut tree = TreeRecord::empty(self.tree.kind.of_values());
        let mut sub_tree = self.sub_tree(&mut tree);
        if is_fixed {
            let size = values.get(0).map_or(0, <[u8]>::len);
            sub_tree.append_keys(size, values.packed())?;
        } else {
            for at in 0..values.len() as usize {
                sub_tree.append(values.get(at).unwrap_or_default(), &[])?;
            }
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
