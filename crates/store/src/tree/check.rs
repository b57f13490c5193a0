//! Looking at everything in a tree.

use std::cmp::Ordering;

use super::ahead::Ahead;
use super::{View, extent_commit, verify_extent};
use crate::error::{Error, Result};
use crate::format::pages::ReadPages;
use crate::format::pointer::RecordPointer;
use crate::format::tree_record::TreeRecord;
use crate::heap::Record;
use crate::ids::{CommitNo, HeapNo, PageNo};
use crate::tree::duplicates::Values;
use crate::tree::node::{Mark, Node};
use crate::tree::value;
use crate::tree::value::ExtentPointer;

/// What [`check`] tells its caller.
pub trait CheckSink {
    /// A page of the tree (`pages` = 1) or an extent is in use. Answers whether it was not in use before: a page that
    /// is reached twice is not descended into twice.
    fn in_use(&mut self, first: PageNo, pages: u32) -> bool;

    /// A page that [`in_use`](CheckSink::in_use) was told of is a leaf of places.
    fn is_pointer_leaf(&mut self, leaf: PageNo) {
        let _ = leaf;
    }

    /// A key leads to a record of so many bytes. Answers whether there is a segment of the heap that has it.
    fn record(&mut self, heap: HeapNo, at: RecordPointer, bytes: usize) -> bool {
        let _ = (heap, at, bytes);
        true
    }

    /// Something is wrong.
    fn problem(&mut self, problem: Error);
}

/// [`View::check`] of a tree that is ordered as its record says.
pub fn check<P: ReadPages + ?Sized>(
    pages: &P,
    tree: &TreeRecord,
    parent: CommitNo,
    sink: &mut dyn CheckSink,
) {
    View::new(pages, *tree).check(parent, sink);
}

impl<P: ReadPages + ?Sized> View<'_, P> {
    /// Walks the whole tree: checksums, page numbers, commits, the order of keys within and between pages, separators,
    /// counts, duplicates, the record itself. `parent` is the commit of whatever holds the record. Goes on after each
    /// problem where that is possible.
    ///
    /// Order is not checked where the comparator is not known.
    pub fn check(&self, parent: CommitNo, sink: &mut dyn CheckSink) {
        let tree = self.record;
        let mut walk = Walk {
            view: *self,
            sink,
            // Records of later commits are not what the record of the tree tells of.
            as_of: self.pages.as_of().min(parent),
            found: TreeRecord {
                heap: tree.heap,
                ..TreeRecord::empty(tree.kind)
            },
            whole: true,
            ahead: Ahead::default(),
        };
        if let Err(problem) = self.pages.check_process() {
            walk.problem(problem);
        } else if tree.height > 0 {
            walk.page(tree.root, usize::from(tree.height) - 1, parent, None, None);
        }
        // After a problem the walk has not seen everything, and what it counted means nothing.
        if walk.whole {
            let found = TreeRecord {
                root: tree.root,
                height: tree.height,
                ..walk.found
            };
            if found.records != tree.records {
                walk.problem(Error::corrupt(
                    tree.root,
                    "the tree has not as many records as its record says",
                ));
            } else if found != tree {
                walk.problem(Error::corrupt(
                    tree.root,
                    "the tree has not as many pages as its record says",
                ));
            }
        }
    }

    /// Looks at the root, and at so many pages in all, spread evenly over the tree: checksums, page numbers, the order
    /// of keys within a page; of leaves, also at records out of line, of each at one or at as many as pages are
    /// left for it. [`CheckSink::in_use`] is told of each page of the tree.
    pub fn check_sample(&self, parent: CommitNo, pages_max: u64, sink: &mut dyn CheckSink) {
        let mut walk = Walk {
            view: *self,
            sink,
            as_of: self.pages.as_of().min(parent),
            found: self.record,
            whole: true,
            ahead: Ahead::default(),
        };
        if let Err(problem) = self.pages.check_process() {
            walk.problem(problem);
        } else if let Some(level) = usize::from(self.record.height).checked_sub(1) {
            walk.sample(self.record.root, level, parent, pages_max.max(1));
        }
    }
}

struct Walk<'a, 's, P: ?Sized> {
    view: View<'a, P>,
    sink: &'s mut dyn CheckSink,
    as_of: CommitNo,
    found: TreeRecord,
    whole: bool,
    ahead: Ahead,
}

/// The keys of a page one after the other, with where each ends.
struct Keys {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Keys {
    fn of(node: &Node<'_>) -> Result<Self> {
        let mut keys = Self {
            bytes: Vec::new(),
            ends: Vec::with_capacity(node.len()),
        };
        for slot in 0..node.len() {
            node.push_key(slot, &mut keys.bytes)?;
            keys.ends.push(keys.bytes.len());
        }
        Ok(keys)
    }

    fn get(&self, slot: usize) -> Option<&[u8]> {
        let start = match slot {
            0 => 0,
            _ => *self.ends.get(slot - 1)?,
        };
        self.bytes.get(start..*self.ends.get(slot)?)
    }
}

impl<'a, P: ReadPages + ?Sized> Walk<'a, '_, P> {
    fn problem(&mut self, problem: Error) {
        self.whole = false;
        self.sink.problem(problem);
    }

    fn wrong(&mut self, page: PageNo, what: &'static str) {
        self.problem(Error::corrupt(page, what));
    }

    /// Checks a page and all below it. Its keys must lie in `from..to`. Returns the number of records.
    fn page(
        &mut self,
        number: PageNo,
        level: usize,
        parent: CommitNo,
        from: Option<&[u8]>,
        to: Option<&[u8]>,
    ) -> u64 {
        if !self.sink.in_use(number, 1) {
            self.wrong(number, "in use twice");
            return 0;
        }
        let (node, keys) = match self.open(number, level) {
            Ok(opened) => opened,
            Err(problem) => {
                self.problem(problem);
                return 0;
            }
        };
        if let Err(problem) = Error::check_age(number, node.commit(), parent) {
            self.problem(problem);
        }
        let first_key = usize::from(level > 0);
        let below = keys
            .get(first_key)
            .zip(from)
            .is_some_and(|(key, from)| self.is_less(key, from));
        let above = node.len() > first_key
            && keys
                .get(node.len() - 1)
                .zip(to)
                .is_some_and(|(key, to)| !self.is_less(key, to));
        if (below || above) && !self.view.orders.keys.is_unknown() {
            self.wrong(number, "keys outside the separators around the page");
        }
        if level == 0 {
            self.found.leaf_pages += 1;
            if self.view.record.kind.out_of_line {
                self.sink.is_pointer_leaf(number);
            }
            self.values(&node);
            node.len() as u64
        } else {
            self.found.branch_pages += 1;
            self.children(&node, level, &keys, from, to)
        }
    }

    /// Checks a page and, of what is below it, so much that they are at most `pages_max` pages.
    fn sample(&mut self, number: PageNo, level: usize, parent: CommitNo, pages_max: u64) {
        if !self.sink.in_use(number, 1) {
            return self.wrong(number, "outside of the store");
        }
        let node = match self.open(number, level) {
            Ok((node, _)) => node,
            Err(problem) => return self.problem(problem),
        };
        if let Err(problem) = Error::check_age(number, node.commit(), parent) {
            self.problem(problem);
        }
        let below = pages_max - 1;
        if level == 0 {
            for slot in spread(node.len(), below.max(1)) {
                let cell = node.cell(slot);
                let is_out_of_line = cell.is_ok_and(|cell| cell.mark == Mark::OutOfLine);
                if is_out_of_line && let Err(problem) = self.value(&node, slot) {
                    self.problem(problem);
                }
            }
            return;
        }
        let visited = below.min(node.len() as u64);
        for (visit, slot) in (0..).zip(spread(node.len(), below)) {
            let share = below / visited + u64::from(visit < below % visited);
            match node.child(slot) {
                Ok(child) => self.sample(child.page, level - 1, node.commit(), share),
                Err(problem) => self.problem(problem),
            }
        }
    }

    fn is_less(&self, a: &[u8], b: &[u8]) -> bool {
        matches!(self.view.orders.keys.compare(a, b), Ok(Ordering::Less))
    }

    fn open(&self, number: PageNo, level: usize) -> Result<(Node<'a>, Keys)> {
        let node = match self.view.shared_pointers(number, level)? {
            // Its checksum is that of when it was made. What it says now is checked record by record.
            Some(places) if places.has_too_many() => {
                return Err(Error::corrupt(number, "more keys than a page has room for"));
            }
            Some(places) => Node::of_pointers(places, number)?,
            None => {
                let page = self.view.pages.page(number)?;
                page.verify(number)?;
                Node::open(page, number, self.view.record.page_kind(level), level)?
            }
        };
        node.check(self.view.orders.keys)
            .map_err(|what| Error::corrupt(number, what))?;
        if node.len() == 0 {
            return Err(Error::corrupt(number, "empty page in a tree"));
        }
        Ok((node, Keys::of(&node)?))
    }

    fn children(
        &mut self,
        node: &Node<'a>,
        level: usize,
        keys: &Keys,
        from: Option<&[u8]>,
        to: Option<&[u8]>,
    ) -> u64 {
        let mut records = 0u64;
        for slot in 0..node.len() {
            let child = match node.child(slot) {
                Ok(child) => child,
                Err(problem) => {
                    self.problem(problem);
                    continue;
                }
            };
            if level == 1 {
                self.ahead.go_on(&self.view, node, slot);
            }
            let from = if slot == 0 { from } else { keys.get(slot) };
            let to = keys.get(slot + 1).or(to);
            let was_whole = std::mem::replace(&mut self.whole, true);
            let found = self.page(child.page, level - 1, node.commit(), from, to);
            if self.whole && self.view.record.kind.counted && child.records != found {
                self.wrong(node.number(), "a child has not as many records as counted");
            }
            self.whole &= was_whole;
            records = records.saturating_add(found);
        }
        records
    }

    fn values(&mut self, leaf: &Node<'a>) {
        for slot in 0..leaf.len() {
            let records = match self.view.record.kind.duplicates {
                Some(_) => self.duplicates(leaf, slot),
                None => self.value(leaf, slot).map(|()| 1),
            };
            match records {
                Ok(records) => self.found.records = self.found.records.saturating_add(records),
                Err(problem) => self.problem(problem),
            }
        }
    }

    fn duplicates(&mut self, leaf: &Node<'a>, slot: usize) -> Result<u64> {
        let values = Values::of(leaf, slot, self.view.record.kind)?;
        match values {
            Values::One(_) => {}
            Values::Page(page) => page
                .check(self.view.orders.duplicates)
                .map_err(|what| Error::corrupt(leaf.number(), what))?,
            Values::Tree(tree) => self.view.of_values(tree).check(leaf.commit(), self.sink),
        }
        Ok(values.len())
    }

    fn record(&mut self, leaf: &Node<'a>, slot: usize) -> Result<()> {
        let (at, record) = self.view.verified_record(leaf, slot, self.as_of)?;
        let bytes = Record::bytes(record.value.len());
        match self.sink.record(self.view.record.heap, at, bytes) {
            true => Ok(()),
            false => Err(Error::corrupt(
                at.page(),
                "has a record that is in no segment of its tree",
            )),
        }
    }

    fn value(&mut self, leaf: &Node<'a>, slot: usize) -> Result<()> {
        let cell = leaf.cell(slot)?;
        match cell.mark {
            Mark::Extent => {}
            Mark::Inline => return Ok(()),
            Mark::OutOfLine => return self.record(leaf, slot),
            Mark::SubPage | Mark::SubTree => {
                return Err(Error::corrupt(
                    leaf.number(),
                    "duplicates where there are none",
                ));
            }
        }
        let pointer = ExtentPointer::decode(cell.payload, leaf.number())?;
        if !self.sink.in_use(pointer.first, pointer.pages()) {
            return Err(Error::corrupt(pointer.first, "in use twice"));
        }
        self.found.extent_pages += u64::from(pointer.pages());
        let extent = self.view.pages.extent(pointer.first, pointer.pages())?;
        verify_extent(extent, pointer.first)?;
        value::load(self.view.pages, leaf.number(), cell.payload)?;
        let commit = extent_commit(extent).unwrap_or_default();
        Error::check_age(pointer.first, commit, leaf.commit())
    }
}

/// At most `max` of so many slots, evenly spread.
fn spread(slots: usize, max: u64) -> impl Iterator<Item = usize> {
    let taken = slots.min(usize::try_from(max).unwrap_or(usize::MAX));
    (0..taken).map(move |number| number * slots / taken)
}
