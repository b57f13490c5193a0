//! Moving through a tree.

use std::ops::Bound;

use super::node::Node;
use super::{HEIGHT_MAX, View};
use crate::error::{Error, Result};
use crate::page::{PageNo, ReadPages};

/// A place in a tree. It moves in both directions and hands out records without copying their values.
///
/// A cursor stands on a record, or nowhere: before its first seek, after it ran off either end, and after an error.
pub struct Cursor<'p, P: ?Sized> {
    view: View<'p, P>,
    /// The way from the root to the leaf, by level. Valid above level 0, up to the tree's height, while there is a leaf.
    steps: [Step; HEIGHT_MAX],
    leaf: Option<Node<'p>>,
    slot: usize,
    key: Vec<u8>,
}

#[derive(Clone, Copy)]
struct Step {
    page: PageNo,
    slot: u32,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Direction {
    Forward,
    Back,
}

impl<'p, P: ReadPages + ?Sized> Cursor<'p, P> {
    pub(super) fn new(view: View<'p, P>) -> Self {
        let steps = [Step {
            page: PageNo(0),
            slot: 0,
        }; HEIGHT_MAX];
        Self {
            view,
            steps,
            leaf: None,
            slot: 0,
            key: Vec::new(),
        }
    }

    /// Goes to the first record. Like all movements, answers whether the cursor stands on a record now.
    pub fn first(&mut self) -> Result<bool> {
        self.descend(
            self.view.height(),
            self.view.record.root,
            Direction::Forward,
        )
    }

    /// Goes to the last record.
    pub fn last(&mut self) -> Result<bool> {
        self.descend(self.view.height(), self.view.record.root, Direction::Back)
    }

    /// Goes to the first record whose key is `key` or greater.
    pub fn seek(&mut self, key: &[u8]) -> Result<bool> {
        self.search(key)?;
        self.settle()
    }

    /// Goes to the record with this very key.
    pub fn seek_exact(&mut self, key: &[u8]) -> Result<bool> {
        let exact = self.search(key)?;
        if !exact {
            self.leaf = None;
        }
        Ok(exact)
    }

    /// Goes to the last record whose key is `key` or less.
    pub fn seek_back(&mut self, key: &[u8]) -> Result<bool> {
        if self.search(key)? {
            Ok(true)
        } else {
            self.settle_back()
        }
    }

    /// Goes to the last record whose key is less than `key`.
    pub fn seek_before(&mut self, key: &[u8]) -> Result<bool> {
        self.search(key)?;
        self.settle_back()
    }

    /// Goes to the first record whose key is greater than `key`.
    pub fn seek_after(&mut self, key: &[u8]) -> Result<bool> {
        if self.search(key)? {
            self.next()
        } else {
            self.settle()
        }
    }

    /// Goes to record number `n`, counted from 0. Counted trees only.
    pub fn seek_nth(&mut self, n: u64) -> Result<bool> {
        if !self.view.record.kind.counted {
            return Err(Error::NotCounted);
        }
        self.leaf = None;
        if n >= self.view.record.records {
            return Ok(false);
        }
        let (mut number, mut left) = (self.view.record.root, n);
        for level in (1..self.view.height()).rev() {
            let node = self.view.open(number, level)?;
            let mut slot = 0;
            let mut child = node.child(0)?;
            while left >= child.records {
                left -= child.records;
                slot += 1;
                child = node.child(slot)?;
            }
            self.steps[level] = Step {
                page: number,
                slot: slot as u32,
            };
            number = child.page;
        }
        let leaf = self.view.open(number, 0)?;
        self.slot = usize::try_from(left)
            .ok()
            .filter(|&slot| slot < leaf.len())
            .ok_or_else(|| miscounted(number))?;
        self.leaf = Some(leaf);
        Ok(true)
    }

    /// Goes to the next record; to the first from nowhere.
    #[allow(clippy::should_implement_trait)] // A cursor lends its key, which an iterator cannot.
    pub fn next(&mut self) -> Result<bool> {
        match self.leaf {
            None => self.first(),
            Some(_) => {
                self.slot += 1;
                self.settle()
            }
        }
    }

    /// Goes to the record before; to the last from nowhere.
    pub fn prev(&mut self) -> Result<bool> {
        match self.leaf {
            None => self.last(),
            Some(_) => self.settle_back(),
        }
    }

    /// The key of the record the cursor stands on; `None` when it stands nowhere. It is put together in a buffer of the
    /// cursor and stays there until the cursor moves.
    pub fn key(&mut self) -> Result<Option<&[u8]>> {
        let Some(leaf) = &self.leaf else {
            return Ok(None);
        };
        self.key.clear();
        leaf.push_key(self.slot, &mut self.key)?;
        Ok(Some(&self.key))
    }

    /// The value of the record the cursor stands on.
    pub fn value(&self) -> Result<Option<&'p [u8]>> {
        self.leaf
            .as_ref()
            .map(|leaf| self.view.value(leaf, self.slot))
            .transpose()
    }

    /// Key and value of the record the cursor stands on.
    pub fn record(&mut self) -> Result<Option<(&[u8], &'p [u8])>> {
        let value = self.value()?;
        Ok(self.key()?.zip(value))
    }

    /// Goes to where `key` is or would be, which may be behind the last record of a leaf. Answers whether it is there.
    fn search(&mut self, key: &[u8]) -> Result<bool> {
        self.leaf = None;
        if self.view.height() == 0 {
            return Ok(false);
        }
        let mut number = self.view.record.root;
        for level in (1..self.view.height()).rev() {
            let node = self.view.open(number, level)?;
            let slot = node.child_slot(key)?;
            self.steps[level] = Step {
                page: number,
                slot: slot as u32,
            };
            number = node.child(slot)?.page;
        }
        let leaf = self.view.open(number, 0)?;
        let place = leaf.search(key, 0)?;
        self.leaf = Some(leaf);
        self.slot = place.slot;
        Ok(place.exact)
    }

    /// From behind the last record of a leaf, goes on to the next leaf.
    #[inline]
    fn settle(&mut self) -> Result<bool> {
        match &self.leaf {
            None => Ok(false),
            Some(leaf) if self.slot < leaf.len() => Ok(true),
            Some(_) => self.leave_leaf(Direction::Forward),
        }
    }

    /// Goes one record back, to the leaf before if need be.
    #[inline]
    fn settle_back(&mut self) -> Result<bool> {
        match self.leaf {
            None => Ok(false),
            Some(_) if self.slot > 0 => {
                self.slot -= 1;
                Ok(true)
            }
            Some(_) => self.leave_leaf(Direction::Back),
        }
    }

    fn leave_leaf(&mut self, direction: Direction) -> Result<bool> {
        self.leaf = None;
        for level in 1..self.view.height() {
            let Step { page, slot } = self.steps[level];
            let node = self.view.open(page, level)?;
            let next = match direction {
                Direction::Forward => (slot as usize + 1 < node.len()).then_some(slot + 1),
                Direction::Back => slot.checked_sub(1),
            };
            if let Some(slot) = next {
                self.steps[level].slot = slot;
                return self.descend(level, node.child(slot as usize)?.page, direction);
            }
        }
        Ok(false)
    }

    /// Goes to the first (or, backwards, last) record below a page, which is on the level below `level`.
    fn descend(&mut self, level: usize, mut number: PageNo, direction: Direction) -> Result<bool> {
        self.leaf = None;
        if level == 0 {
            return Ok(false);
        }
        for level in (0..level).rev() {
            let node = self.view.open(number, level)?;
            let last = node
                .len()
                .checked_sub(1)
                .ok_or_else(|| Error::corrupt(number, "empty page in a tree"))?;
            let slot = if direction == Direction::Forward {
                0
            } else {
                last
            };
            if level == 0 {
                self.slot = slot;
                self.leaf = Some(node);
            } else {
                self.steps[level] = Step {
                    page: number,
                    slot: slot as u32,
                };
                number = node.child(slot)?.page;
            }
        }
        Ok(true)
    }

    /// What tells two places in the same tree apart.
    fn place(&self) -> Option<(PageNo, usize)> {
        self.leaf.as_ref().map(|leaf| (leaf.number(), self.slot))
    }
}

#[cold]
fn miscounted(page: PageNo) -> Error {
    Error::corrupt(page, "fewer records than its parent counts")
}

/// The records between two bounds, taken from either end.
pub struct Range<'p, P: ?Sized> {
    front: Cursor<'p, P>,
    back: Cursor<'p, P>,
    /// Whether there is anything left: what lies from `front` to `back`, but not what was taken already.
    left: bool,
    front_taken: bool,
    back_taken: bool,
}

impl<'p, P: ReadPages + ?Sized> Range<'p, P> {
    pub(super) fn new(view: View<'p, P>, from: Bound<&[u8]>, to: Bound<&[u8]>) -> Result<Self> {
        let (mut front, mut back) = (view.cursor(), view.cursor());
        let some = match from {
            Bound::Unbounded => front.first()?,
            Bound::Included(key) => front.seek(key)?,
            Bound::Excluded(key) => front.seek_after(key)?,
        } && match to {
            Bound::Unbounded => back.last()?,
            Bound::Included(key) => back.seek_back(key)?,
            Bound::Excluded(key) => back.seek_before(key)?,
        };
        let left = some && (front.place() == back.place() || front.key()? <= back.key()?);
        Ok(Self {
            front,
            back,
            left,
            front_taken: false,
            back_taken: false,
        })
    }

    /// The next record from the front.
    #[allow(clippy::should_implement_trait)] // It lends the key, which an iterator cannot.
    pub fn next(&mut self) -> Result<Option<(&[u8], &'p [u8])>> {
        if self.left && self.front_taken {
            self.left = self.front.place() != self.back.place() && self.front.next()?;
        }
        if !self.left || self.back_taken && self.front.place() == self.back.place() {
            self.left = false;
            return Ok(None);
        }
        self.front_taken = true;
        self.front.record()
    }

    /// The next record from the back.
    pub fn next_back(&mut self) -> Result<Option<(&[u8], &'p [u8])>> {
        if self.left && self.back_taken {
            self.left = self.front.place() != self.back.place() && self.back.prev()?;
        }
        if !self.left || self.front_taken && self.front.place() == self.back.place() {
            self.left = false;
            return Ok(None);
        }
        self.back_taken = true;
        self.back.record()
    }
}
