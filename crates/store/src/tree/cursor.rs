//! Moving through a tree.

mod duplicates;

use std::cmp::Ordering;
use std::ops::Bound;

use super::ahead::Ahead;
use super::{Step, Steps, View};
use crate::error::{Error, Result};
use crate::format::pages::ReadPages;
use crate::ids::PageNo;
use crate::tree::duplicates::Values;
use crate::tree::node::{Found, Mark, Node};

use duplicates::Among;

/// A place in a tree. It moves in both directions and hands out records without copying their values.
///
/// A cursor stands on a record, or nowhere: before its first seek, after it ran off either end, and after an error. One
/// that a write transaction has lent, or that [`Cursor::stand_at`] has moved, may also stand in the *gap* where its
/// record would be: then the next record is the one that follows, the previous one the one that precedes, and what the
/// cursor shows is what follows.
///
/// In a tree with duplicates each value of a key is a record.
///
/// ```
/// # fn main() -> sapwood_store::Result<()> {
/// # use sapwood_store::{Env, Options, TreeKind};
/// # let env = Env::in_memory(&Options::new())?;
/// let mut txn = env.write()?;
/// let colours = txn.create_tree("colours", TreeKind::DUPLICATES)?;
/// for (thing, colour) in [("sea", "blue"), ("sea", "green"), ("sky", "blue")] {
///     txn.put(colours, thing.as_bytes(), colour.as_bytes())?;
/// }
/// let mut cursor = txn.view(colours)?.cursor();
/// assert!(cursor.seek(b"s")?);
/// assert_eq!(cursor.record()?, Some((&b"sea"[..], &b"blue"[..])));
/// assert_eq!(cursor.duplicates()?, 2);
/// assert!(cursor.next_duplicate()?);
/// assert!(!cursor.next_duplicate()?);
/// assert!(cursor.next_key()?);
/// assert_eq!(cursor.whole_key()?, Some(&b"sky"[..]));
/// # Ok(())
/// # }
/// ```
pub struct Cursor<'p, P: ?Sized> {
    view: View<'p, P>,
    /// The way from the root to the leaf, by level. Valid above level 0, up to the tree's height, while there is a
    /// leaf.
    steps: Steps,
    leaf: Option<Node<'p>>,
    slot: usize,
    /// The record that it stood on is gone: it stands before `slot`, which at the tree's end is behind the last record;
    /// in an empty tree there is no leaf either.
    gap: bool,
    /// Where among the values of its key.
    among: Among<'p, P>,
    ahead: Ahead,
    key: Vec<u8>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Direction {
    Forward,
    Back,
}

/// Who goes on from record to record has the cell of the record that comes so much later fetched: cells lie in a leaf
/// in the order in which they were put.
const CELLS_AHEAD: usize = 6;

/// A page and a slot in it.
type Spot = (PageNo, usize);

/// Where a cursor stands, without the pages: to go on from there while the tree is unchanged.
#[derive(Clone, Default)]
pub(crate) struct Position {
    /// The way there, above the leaves.
    pub(super) steps: Steps,
    leaf: Option<PageNo>,
    slot: usize,
    gap: bool,
    among: duplicates::Position,
}

impl Position {
    /// The leaf and the slot of its key; `None` if that is gone.
    #[inline]
    pub(crate) fn key_place(&self) -> Option<(PageNo, usize)> {
        Some((self.leaf?, self.slot)).filter(|_| !self.gap)
    }

    /// Whether a record is there, and not the gap that one has left.
    pub(crate) fn is_on_record(&self) -> bool {
        self.key_place().is_some() && !self.among.is_in_gap()
    }

    /// Where the search for a key ended that is not there: its leaf, and the slot where it would be.
    pub(crate) fn missed_place(&self) -> Option<(PageNo, usize)> {
        Some((self.leaf?, self.slot)).filter(|_| self.gap)
    }

    /// Goes to the first record of a key and gives its value: [`Cursor::seek_exact`] without the cursor. If there is
    /// none, notes where it would be.
    pub(crate) fn seek_exact<'p, P: ReadPages + ?Sized>(
        &mut self,
        view: &View<'p, P>,
        key: &[u8],
    ) -> Result<Option<&'p [u8]>> {
        self.leaf = None;
        let found = view.search(key, |level, step, _| self.steps[level] = step)?;
        let Some((leaf, Found { slot, exact })) = found else {
            return Ok(None);
        };
        self.gap = !exact;
        (self.leaf, self.slot) = (Some(leaf.number()), slot);
        if !exact {
            return Ok(None);
        }
        if view.record.kind.duplicates.is_none() {
            self.among = duplicates::Position::First(1);
            return view.value(&leaf, slot).map(Some);
        }
        let values = Values::of(&leaf, slot, view.record.kind)?;
        self.among = duplicates::Position::First(values.len());
        view.first_of(&leaf, &values).map(Some)
    }
}

impl<'p, P: ReadPages + ?Sized> Cursor<'p, P> {
    pub(super) fn new(view: View<'p, P>) -> Self {
        Self {
            view,
            steps: Steps::default(),
            leaf: None,
            slot: 0,
            gap: false,
            among: Among::One,
            ahead: Ahead::default(),
            key: Vec::new(),
        }
    }

    /// A cursor where another one stood in the same tree.
    pub(crate) fn resume(view: View<'p, P>, position: &Position) -> Result<Self> {
        view.pages.check_process()?;
        let mut cursor = Self::new(view);
        cursor.gap = position.gap;
        if let Some(leaf) = position.leaf {
            let used = view.height();
            cursor.steps[..used].copy_from_slice(&position.steps[..used]);
            cursor.leaf = Some(view.open(leaf, 0)?);
            cursor.slot = position.slot;
            cursor.resume_among(&position.among)?;
        }
        Ok(cursor)
    }

    /// Notes where it stands. Only the steps there are, of many that there could be.
    pub(crate) fn note(&self, position: &mut Position) {
        let used = self.view.height();
        position.steps[..used].copy_from_slice(&self.steps[..used]);
        position.leaf = self.leaf.as_ref().map(|leaf| leaf.number());
        position.slot = self.slot;
        position.gap = self.gap;
        self.among.note(&mut position.among);
    }

    /// Goes to the record with this key, and in a tree with duplicates this value, or into the gap where it would be.
    pub fn stand_at(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        if self.search(key)? {
            return self.enter_at(value);
        }
        if let Some(leaf) = self.leaf
            && self.slot >= leaf.len()
        {
            let slot = self.slot;
            if !self.leave_leaf(Direction::Forward)? {
                (self.leaf, self.slot) = (Some(leaf), slot);
            }
        }
        self.gap = true;
        self.enter(Direction::Forward).map(drop)
    }

    /// Whether there is a record to be shown: the one it stands on, or the one that follows its gap.
    #[inline]
    pub fn is_on_record(&self) -> bool {
        self.here().is_some()
    }

    /// Whether its record is gone.
    pub fn is_in_gap(&self) -> bool {
        self.gap || self.is_among() && self.among.is_in_gap()
    }

    /// Whether it stands on a record or in a gap, and not nowhere.
    pub(crate) fn is_standing(&self) -> bool {
        self.leaf.is_some() || self.gap
    }

    /// Whether this is the tree that it moves in.
    pub(crate) fn is_in(&self, tree: &View<'p, P>) -> bool {
        std::ptr::eq(self.view.pages, tree.pages) && self.view.record.root == tree.record.root
    }

    pub(crate) fn has_duplicates(&self) -> bool {
        self.view.record.kind.duplicates.is_some()
    }

    /// Says that the caller reads on to the end of the tree, or goes on with that. Where data take more memory than
    /// there is, the cursor then asks the disk for much from the first leaf on, in place of more with each leaf.
    pub fn read_far(&mut self) {
        self.ahead.begin_far();
    }

    /// Goes to the first record. Like all movements, answers whether the cursor stands on a record now.
    pub fn first(&mut self) -> Result<bool> {
        let root = self.view.root()?;
        self.descend(self.view.height(), root, Direction::Forward)?;
        self.enter(Direction::Forward)
    }

    /// Goes to the last record.
    pub fn last(&mut self) -> Result<bool> {
        let root = self.view.root()?;
        self.descend(self.view.height(), root, Direction::Back)?;
        self.enter(Direction::Back)
    }

    /// Goes to the first record whose key is `key` or greater.
    pub fn seek(&mut self, key: &[u8]) -> Result<bool> {
        self.search(key)?;
        self.settle()?;
        self.enter(Direction::Forward)
    }

    /// Goes to the record with this very key; the first one if it has several values.
    pub fn seek_exact(&mut self, key: &[u8]) -> Result<bool> {
        if !self.search(key)? {
            self.leaf = None;
        }
        self.enter(Direction::Forward)
    }

    /// Goes to the last record whose key is `key` or less.
    pub fn seek_back(&mut self, key: &[u8]) -> Result<bool> {
        if !self.search(key)? {
            self.settle_back()?;
        }
        self.enter(Direction::Back)
    }

    /// Goes to the last record whose key is less than `key`.
    pub fn seek_before(&mut self, key: &[u8]) -> Result<bool> {
        self.search(key)?;
        self.settle_back()?;
        self.enter(Direction::Back)
    }

    /// Goes to the first record whose key is greater than `key`.
    pub fn seek_after(&mut self, key: &[u8]) -> Result<bool> {
        if self.search(key)? {
            self.slot += 1;
        }
        self.settle()?;
        self.enter(Direction::Forward)
    }

    /// Goes to record number `n`, counted from 0. Counted trees only.
    pub fn seek_nth(&mut self, n: u64) -> Result<bool> {
        if !self.view.record.kind.counted {
            return Err(Error::NotCounted);
        }
        (self.leaf, self.gap) = (None, false);
        if n >= self.view.record.records {
            return Ok(false);
        }
        let (mut number, mut left) = (self.view.root()?, n);
        for level in (1..self.view.height()).rev() {
            let node = self.view.open(number, level)?;
            let mut slot = 0;
            let mut child = node.child(0)?;
            while left >= child.records {
                left -= child.records;
                slot += 1;
                child = node.child(slot)?;
            }
            self.steps[level] = Step { page: number, slot };
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
    #[inline]
    pub fn next(&mut self) -> Result<bool> {
        if self.is_among() && !self.gap && self.next_among()? {
            return Ok(true);
        }
        self.next_key()
    }

    /// Goes to the record before; to the last from nowhere.
    pub fn prev(&mut self) -> Result<bool> {
        if self.is_among() && !self.gap && self.prev_among()? {
            return Ok(true);
        }
        self.prev_key()
    }

    /// Goes to the next key, past all values of the present one; to the first from nowhere.
    #[inline]
    pub fn next_key(&mut self) -> Result<bool> {
        if self.leaf.is_none() {
            return self.first();
        }
        self.slot += usize::from(!std::mem::take(&mut self.gap));
        if let Some(leaf) = &self.leaf {
            leaf.prefetch_cell(self.slot + CELLS_AHEAD);
        }
        self.settle()?;
        self.enter(Direction::Forward)
    }

    /// Goes to the last value of the key before; to the last from nowhere.
    pub fn prev_key(&mut self) -> Result<bool> {
        if self.leaf.is_none() {
            return self.last();
        }
        self.gap = false;
        self.settle_back()?;
        self.enter(Direction::Back)
    }

    /// The leaf, if there is a record at the slot.
    #[inline]
    fn here(&self) -> Option<&Node<'p>> {
        // Only a gap at the end lies behind the last record.
        self.leaf.as_ref().filter(|leaf| self.slot < leaf.len())
    }

    /// The key of the record the cursor stands on; `None` when it stands nowhere. It is put together in a buffer of the
    /// cursor and stays there until the cursor moves.
    pub fn key(&mut self) -> Result<Option<&[u8]>> {
        self.key.clear();
        match self.leaf.as_ref().filter(|leaf| self.slot < leaf.len()) {
            Some(leaf) => leaf.push_key(self.slot, &mut self.key)?,
            None => return Ok(None),
        }
        Ok(Some(&self.key))
    }

    /// The key of the record the cursor stands on, as it stands in its page: in trees of whole keys. In others there is
    /// none, as if the cursor stood nowhere.
    pub fn whole_key(&self) -> Result<Option<&'p [u8]>> {
        if !self.view.record.kind.whole {
            return Ok(None);
        }
        self.here()
            .map(|leaf| leaf.whole_key(self.slot))
            .transpose()
    }

    /// The value of the record the cursor stands on.
    #[inline]
    pub fn value(&self) -> Result<Option<&'p [u8]>> {
        let Some(leaf) = self.here() else {
            return Ok(None);
        };
        match &self.among {
            Among::One => self.view.value(leaf, self.slot).map(Some),
            among => among.value(leaf.number()),
        }
    }

    /// Key and value of the record the cursor stands on, both as they stand in their pages: in trees of whole keys. In
    /// others there is none, as if the cursor stood nowhere.
    #[inline]
    pub fn whole_record(&self) -> Result<Option<(&'p [u8], &'p [u8])>> {
        let Some(leaf) = self.here().filter(|_| self.view.record.kind.whole) else {
            return Ok(None);
        };
        let (key, mark, payload) = leaf.whole_entry(self.slot)?;
        let value = match &self.among {
            Among::One if mark == Mark::Inline => Some(payload),
            Among::One => Some(self.view.value(leaf, self.slot)?),
            among => among.value(leaf.number())?,
        };
        Ok(value.map(|value| (key, value)))
    }

    /// Key and value of the record the cursor stands on.
    pub fn record(&mut self) -> Result<Option<(&[u8], &'p [u8])>> {
        if self.view.record.kind.out_of_line {
            let Some(leaf) = self.leaf.as_ref().filter(|leaf| self.slot < leaf.len()) else {
                return Ok(None);
            };
            let value = self.view.out_of_line_value(leaf, self.slot)?;
            self.key.clear();
            self.key.extend_from_slice(leaf.pointer_key(self.slot)?);
            return Ok(Some((&self.key, value)));
        }
        let Some(leaf) = self.leaf.filter(|leaf| self.slot < leaf.len()) else {
            return Ok(None);
        };
        if leaf.kind().is_whole() || !matches!(self.among, Among::One) {
            let value = self.value()?;
            return Ok(self.key()?.zip(value));
        }
        let cell = leaf.cell(self.slot)?;
        let value = self.view.value_in(&leaf, self.slot, &cell)?;
        self.key.clear();
        leaf.push_key_in(self.slot, &cell, &mut self.key);
        Ok(Some((&self.key, value)))
    }

    /// Goes to where `key` is or would be, which may be behind the last record of a leaf. Answers whether it is there.
    fn search(&mut self, key: &[u8]) -> Result<bool> {
        (self.leaf, self.gap) = (None, false);
        let steps = &mut self.steps;
        let each = |level: usize, step, _| steps[level] = step;
        let Some((leaf, found)) = self.view.search(key, each)? else {
            return Ok(false);
        };
        (self.leaf, self.slot) = (Some(leaf), found.slot);
        Ok(found.exact)
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
        self.view.pages.check_process()?;
        for level in 1..self.view.height() {
            let Step { page, slot } = self.steps[level];
            let node = self.view.open(page, level)?;
            let next = match direction {
                Direction::Forward => (slot + 1 < node.len()).then_some(slot + 1),
                Direction::Back => slot.checked_sub(1),
            };
            if let Some(slot) = next {
                if level == 1 && direction == Direction::Forward {
                    self.ahead.go_on(&self.view, &node, slot);
                }
                self.steps[level].slot = slot;
                return self.descend(level, node.child(slot)?.page, direction);
            }
        }
        Ok(false)
    }

    /// Goes to the first (or, backwards, last) record below a page, the uppermost of so many levels.
    fn descend(&mut self, height: usize, page: PageNo, direction: Direction) -> Result<bool> {
        (self.leaf, self.gap) = (None, false);
        if height == 0 {
            return Ok(false);
        }
        let is_back = direction == Direction::Back;
        let steps = &mut self.steps;
        let each = |level: usize, step| steps[level] = step;
        let (leaf, slot) = self.view.edge(page, height, is_back, each)?;
        (self.leaf, self.slot) = (Some(leaf), slot);
        Ok(true)
    }

    /// What tells two places in the same tree apart.
    fn place(&self) -> Option<(Spot, Option<Spot>)> {
        let leaf = self.leaf.as_ref()?;
        Some(((leaf.number(), self.slot), self.among.place()))
    }

    /// Whether its key does not come after that of the other.
    fn is_at_most(&mut self, other: &mut Self) -> Result<bool> {
        if self.place() == other.place() {
            return Ok(true);
        }
        let order = self.view.orders.keys;
        match (self.key()?, other.key()?) {
            (Some(key), Some(other)) => Ok(order.compare(key, other)? != Ordering::Greater),
            _ => Ok(false),
        }
    }
}

#[cold]
fn miscounted(page: PageNo) -> Error {
    Error::corrupt(page, "fewer records than its parent counts")
}

/// The records between two bounds, taken from either end: lent one after the other by [`Range::next`], or, with keys of
/// their own, by an iterator.
///
/// ```
/// # fn main() -> sapwood_store::Result<()> {
/// # use std::ops::Bound;
/// # use sapwood_store::{Env, Options, TreeKind};
/// # let env = Env::in_memory(&Options::new())?;
/// # let mut txn = env.write()?;
/// # let colours = txn.create_tree("colours", TreeKind::COMPACT)?;
/// # txn.put(colours, b"sea", b"green")?;
/// # txn.put(colours, b"sky", b"blue")?;
/// let colours = txn.view(colours)?;
/// for record in colours.range(Bound::Excluded(b"sea"), Bound::Unbounded)? {
///     let (key, value) = record?;
///     assert_eq!((&key[..], value), (&b"sky"[..], &b"blue"[..]));
/// }
/// # Ok(())
/// # }
/// ```
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
        let left = some && front.is_at_most(&mut back)?;
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

/// The records of a [`Range`] with copies of their keys. It ends after an error.
pub struct Records<'p, P: ?Sized> {
    range: Range<'p, P>,
    has_failed: bool,
}

impl<'p, P: ?Sized> Records<'p, P> {
    fn owned(
        has_failed: &mut bool,
        record: Result<Option<(&[u8], &'p [u8])>>,
    ) -> Option<Result<(Vec<u8>, &'p [u8])>> {
        *has_failed = record.is_err();
        let record = record.transpose()?;
        Some(record.map(|(key, value)| (key.to_vec(), value)))
    }
}

impl<'p, P: ReadPages + ?Sized> IntoIterator for Range<'p, P> {
    type Item = Result<(Vec<u8>, &'p [u8])>;
    type IntoIter = Records<'p, P>;

    fn into_iter(self) -> Records<'p, P> {
        Records {
            range: self,
            has_failed: false,
        }
    }
}

impl<'p, P: ReadPages + ?Sized> Iterator for Records<'p, P> {
    type Item = Result<(Vec<u8>, &'p [u8])>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.has_failed {
            return None;
        }
        Self::owned(&mut self.has_failed, self.range.next())
    }
}

impl<P: ReadPages + ?Sized> DoubleEndedIterator for Records<'_, P> {
    fn next_back(&mut self) -> Option<Self::Item> {
        if self.has_failed {
            return None;
        }
        Self::owned(&mut self.has_failed, self.range.next_back())
    }
}

impl<P: ReadPages + ?Sized> std::iter::FusedIterator for Records<'_, P> {}
