//! Looking at everything in a tree.

use super::node::Node;
use super::value::{self, ExtentPointer};
use super::{TreeRecord, extent_commit, verify_extent};
use crate::error::{Error, Result};
use crate::page::{CommitNo, PageNo, ReadPages};

/// What [`check`] tells its caller.
pub trait CheckSink {
    /// A page of the tree (`pages` = 1) or an extent is in use. Answers whether it was not in use before: a page that
    /// is reached twice is not descended into twice.
    fn in_use(&mut self, first: PageNo, pages: u32) -> bool;

    /// Something is wrong.
    fn problem(&mut self, problem: Error);
}

/// Walks the whole tree: checksums, page numbers, commits, the order of keys within and between pages, separators, counts, the
/// record itself. `parent` is the commit of whatever holds the record. Goes on after each problem where that is possible.
pub fn check<P: ReadPages + ?Sized>(
    pages: &P,
    tree: &TreeRecord,
    parent: CommitNo,
    sink: &mut dyn CheckSink,
) {
    let mut walk = Walk {
        pages,
        tree,
        sink,
        found: TreeRecord::empty(tree.kind),
        whole: true,
    };
    if tree.height > 0 {
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
        } else if found != *tree {
            walk.problem(Error::corrupt(
                tree.root,
                "the tree has not as many pages as its record says",
            ));
        }
    }
}

struct Walk<'a, P: ?Sized> {
    pages: &'a P,
    tree: &'a TreeRecord,
    sink: &'a mut dyn CheckSink,
    found: TreeRecord,
    whole: bool,
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
        let start = if slot == 0 {
            0
        } else {
            *self.ends.get(slot - 1)?
        };
        self.bytes.get(start..*self.ends.get(slot)?)
    }
}

impl<'a, P: ReadPages + ?Sized> Walk<'a, P> {
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
        if node.commit() > parent {
            self.problem(Error::FromTheFuture {
                page: number,
                found: node.commit(),
                parent,
            });
        }
        let first_key = usize::from(level > 0);
        let below = keys
            .get(first_key)
            .zip(from)
            .is_some_and(|(key, from)| key < from);
        let above = node.len() > first_key
            && keys
                .get(node.len() - 1)
                .zip(to)
                .is_some_and(|(key, to)| key >= to);
        if below || above {
            self.wrong(number, "keys outside the separators around the page");
        }
        if level == 0 {
            self.found.leaf_pages += 1;
            self.found.records += node.len() as u64;
            self.values(&node);
            node.len() as u64
        } else {
            self.found.branch_pages += 1;
            self.children(&node, level, &keys, from, to)
        }
    }

    fn open(&self, number: PageNo, level: usize) -> Result<(Node<'a>, Keys)> {
        let page = self.pages.page(number)?;
        page.verify(number)?;
        let node = Node::open(page, number, self.tree.page_kind(level), level)?;
        node.check().map_err(|what| Error::corrupt(number, what))?;
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
            let from = if slot == 0 { from } else { keys.get(slot) };
            let to = keys.get(slot + 1).or(to);
            let was_whole = std::mem::replace(&mut self.whole, true);
            let found = self.page(child.page, level - 1, node.commit(), from, to);
            if self.whole && self.tree.kind.counted && child.records != found {
                self.wrong(node.number(), "a child has not as many records as counted");
            }
            self.whole &= was_whole;
            records = records.saturating_add(found);
        }
        records
    }

    fn values(&mut self, leaf: &Node<'a>) {
        for slot in 0..leaf.len() {
            if let Err(problem) = self.value(leaf, slot) {
                self.problem(problem);
            }
        }
    }

    fn value(&mut self, leaf: &Node<'a>, slot: usize) -> Result<()> {
        let cell = leaf.cell(slot)?;
        if !cell.large {
            return Ok(());
        }
        let pointer = ExtentPointer::decode(cell.payload)
            .ok_or_else(|| Error::corrupt(leaf.number(), "pointer to an extent is damaged"))?;
        if !self.sink.in_use(pointer.first, pointer.pages()) {
            return Err(Error::corrupt(pointer.first, "in use twice"));
        }
        self.found.extent_pages += u64::from(pointer.pages());
        let extent = self.pages.extent(pointer.first, pointer.pages())?;
        verify_extent(extent, pointer.first)?;
        value::load(self.pages, leaf.number(), cell.payload)?;
        match extent_commit(extent) {
            Some(found) if found > leaf.commit() => Err(Error::FromTheFuture {
                page: pointer.first,
                found,
                parent: leaf.commit(),
            }),
            _ => Ok(()),
        }
    }
}
