//! What distinguishes two states of a tree, found by going through both at once.
//!
//! Pages that both states refer to are the same pages: as long as the older state is pinned, none of its pages is used
//! for anything else. So wherever both walks arrive at the same page, all below it is passed over, and the work is in
//! proportion to what has changed. Where the two trees have been split differently the walks fall out of step, which
//! costs the way to one leaf.
//!
//! Leaves of places are the exception: what is stored in one leaves no trace above it, so that all of them are looked
//! at.

use std::cmp::Ordering;

use super::View;
use crate::error::{Error, Result};
use crate::format::pages::ReadPages;
use crate::ids::PageNo;
use crate::tree::duplicates::Values;
use crate::tree::node::Node;
use crate::tree::order::Order;

/// A record that differs: one that was put has a new value, one that was deleted has none. In a tree with duplicates
/// each value of a key is a record, which is either old or new.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Change<'c, 'p> {
    /// The key.
    pub key: &'c [u8],
    /// The value in the older state, if the key was there.
    pub old: Option<&'p [u8]>,
    /// The value in the newer state, if the key is there.
    pub new: Option<&'p [u8]>,
}

/// The records that differ between two states of a tree, in the order of their keys.
/// [`Snapshot::changes_since`](crate::Snapshot::changes_since) has an example.
pub struct Changes<'p, P: ?Sized> {
    both: Both<'p, P>,
    /// The key whose values are being compared, or the last that differed.
    key: Vec<u8>,
    values: Option<Box<Both<'p, P>>>,
    /// If the tree was made anew as another kind, what comes behind all that was deleted.
    then: Option<View<'p, P>>,
}

impl<'p, P: ReadPages + ?Sized> Changes<'p, P> {
    /// From one state to another, of which one may not have the tree at all. Both are read through snapshots of one
    /// store.
    pub(crate) fn between(old: Option<View<'p, P>>, new: Option<View<'p, P>>) -> Self {
        let (new, then) = match (old, new) {
            (Some(old), Some(new)) if old.record.kind != new.record.kind => (None, Some(new)),
            _ => (new, None),
        };
        Self {
            both: Both::trees(old, new),
            key: Vec::new(),
            values: None,
            then,
        }
    }

    /// The next record that differs.
    #[allow(clippy::should_implement_trait)] // It lends the key, which an iterator cannot.
    pub fn next(&mut self) -> Result<Option<Change<'_, 'p>>> {
        let found = self.find()?;
        Ok(found.map(|(old, new)| Change {
            key: &self.key,
            old,
            new,
        }))
    }

    fn find(&mut self) -> Result<Option<Pair<'p>>> {
        loop {
            if let Some(values) = &mut self.values {
                match values.step()? {
                    Some([true, true]) => continue,
                    Some([old, _]) => {
                        let side = &values.sides[usize::from(!old)];
                        let value = side.whole_value()?;
                        return Ok(Some(if old { (value, None) } else { (None, value) }));
                    }
                    None => self.values = None,
                }
            }
            match self.both.step()? {
                Some(stands) => {
                    self.key.clear();
                    self.key
                        .extend_from_slice(&self.both.keys[usize::from(!stands[0])]);
                    match self.both.values(stands)? {
                        Found::Pair((old, new)) if is_same(old, new) => {}
                        Found::Pair(pair) => return Ok(Some(pair)),
                        Found::Values(values) => self.values = Some(values),
                    }
                }
                None => match self.then.take() {
                    Some(new) => self.both = Both::trees(None, Some(new)),
                    None => return Ok(None),
                },
            }
        }
    }
}

impl<P: ?Sized> std::fmt::Debug for Changes<'_, P> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Changes").field(&self.key).finish()
    }
}

/// An old and a new value.
type Pair<'p> = (Option<&'p [u8]>, Option<&'p [u8]>);

/// Values that stand in the same place, such as extents, need not be looked at.
fn is_same(old: Option<&[u8]>, new: Option<&[u8]>) -> bool {
    match (old, new) {
        (Some(old), Some(new)) => std::ptr::eq(old, new) || old == new,
        _ => old == new,
    }
}

/// Which of the two sides stand on a record, whose key is the lowest.
type Stands = [bool; 2];

enum Found<'p, P: ?Sized> {
    Pair(Pair<'p>),
    /// Of a key in a tree with duplicates: they are compared in turn.
    Values(Box<Both<'p, P>>),
}

/// The two walks.
struct Both<'p, P: ?Sized> {
    sides: [Side<'p, P>; 2],
    /// What was last put together for each side: its key, or a bound of it.
    keys: [Vec<u8>; 2],
    order: Order,
    /// Which sides stand on what has been told.
    told: Stands,
}

impl<'p, P: ReadPages + ?Sized> Both<'p, P> {
    fn trees(old: Option<View<'p, P>>, new: Option<View<'p, P>>) -> Self {
        let order = new
            .or(old)
            .map_or_else(Order::default, |view| view.orders.keys);
        Self::new([old, new].map(Side::tree), order)
    }

    fn new(sides: [Side<'p, P>; 2], order: Order) -> Self {
        Self {
            sides,
            keys: [Vec::new(), Vec::new()],
            order,
            told: [false; 2],
        }
    }

    /// Goes on to the next record that is not known to be the same on both sides. Its key is in `keys`, for each side
    /// that has it.
    fn step(&mut self) -> Result<Option<Stands>> {
        for (side, told) in self.sides.iter_mut().zip(std::mem::take(&mut self.told)) {
            if told {
                side.skip();
            }
        }
        loop {
            let next = [self.sides[0].look()?, self.sides[1].look()?];
            let stands = match (next[0], next[1]) {
                (Next::End, Next::End) => return Ok(None),
                (Next::Subtree(one, level), Next::Subtree(other, its_level)) => {
                    if (one, level) == (other, its_level) && self.is_same_below(one, level)? {
                        self.sides.iter_mut().for_each(Side::skip);
                        continue;
                    }
                    // The one that begins first, or is higher: below it the other one may turn up.
                    let first = self.compare([true, true])?;
                    let order = first.then(its_level.cmp(&level));
                    self.enter([order.is_le(), order.is_ge()])?;
                    continue;
                }
                (Next::Record, Next::Subtree(..)) if self.compare([false, true])?.is_lt() => {
                    [true, false]
                }
                (Next::Subtree(..), Next::Record) if self.compare([true, false])?.is_gt() => {
                    [false, true]
                }
                // The other side is at its end, or nothing there comes before what is below.
                (Next::Subtree(..), _) => {
                    self.enter([true, false])?;
                    continue;
                }
                (_, Next::Subtree(..)) => {
                    self.enter([false, true])?;
                    continue;
                }
                (Next::Record, Next::End) => {
                    self.sides[0].read_key(&mut self.keys[0])?;
                    [true, false]
                }
                (Next::End, Next::Record) => {
                    self.sides[1].read_key(&mut self.keys[1])?;
                    [false, true]
                }
                (Next::Record, Next::Record) => match self.compare([false, false])? {
                    Ordering::Less => [true, false],
                    Ordering::Equal => [true, true],
                    Ordering::Greater => [false, true],
                },
            };
            self.told = stands;
            return Ok(Some(stands));
        }
    }

    /// Whether all below a page that both sides have is the same. Of values out of line only the leaves know: their
    /// places are stored to where they are, and nothing above learns of it.
    fn is_same_below(&self, page: PageNo, level: usize) -> Result<bool> {
        let [Some(old), Some(new)] = self.sides.each_ref().map(Side::walk) else {
            return Ok(true);
        };
        if !new.view.record.kind.out_of_line {
            return Ok(true);
        }
        let older = old.view.pages.as_of().min(new.view.pages.as_of());
        match new.view.shared_pointers(page, level)? {
            Some(places) => Ok(places.changed() <= older),
            None => Ok(level == 0),
        }
    }

    /// Compares what the sides look at: the keys of records, the lower bounds of subtrees.
    fn compare(&mut self, subtrees: [bool; 2]) -> Result<Ordering> {
        let mut bounded = [true; 2];
        for (at, is_subtree) in subtrees.into_iter().enumerate() {
            let (side, key) = (&self.sides[at], &mut self.keys[at]);
            if is_subtree {
                bounded[at] = side.read_bound(key)?;
            } else {
                side.read_key(key)?;
            }
        }
        // Without a bound it begins before everything.
        match bounded {
            [true, true] => self.order.compare(&self.keys[0], &self.keys[1]),
            [old, new] => Ok(old.cmp(&new)),
        }
    }

    fn enter(&mut self, which: [bool; 2]) -> Result<()> {
        for (side, enters) in self.sides.iter_mut().zip(which) {
            if enters {
                side.enter()?;
            }
        }
        Ok(())
    }

    /// What the sides that stand on the record have there.
    fn values(&self, stands: Stands) -> Result<Found<'p, P>> {
        let trees = self.sides.iter().zip(stands);
        let mut trees = trees.map(|(side, stands)| side.walk().filter(|_| stands));
        let [old, new] = [trees.next().flatten(), trees.next().flatten()];
        let has_duplicates = |walk: &&Walk<'p, P>| walk.view.record.kind.duplicates.is_some();
        if let Some(walk) = new.or(old).filter(has_duplicates) {
            let order = walk.view.orders.duplicates;
            if let (Some(old), Some(new)) = (old, new)
                && old.has_same_cell(new)?
            {
                return Ok(Found::Pair((None, None)));
            }
            let values = |walk: Option<&Walk<'p, P>>| walk.map_or(Ok(Side::Nothing), Walk::values);
            let both = Both::new([values(old)?, values(new)?], order);
            return Ok(Found::Values(Box::new(both)));
        }
        let value = |walk: Option<&Walk<'p, P>>| walk.map(Walk::value).transpose();
        Ok(Found::Pair((value(old)?, value(new)?)))
    }
}

/// What comes next on a side.
#[derive(Clone, Copy)]
enum Next {
    /// All that is below a page on this level, in which the walk is not yet.
    Subtree(PageNo, usize),
    Record,
    End,
}

/// Records in order.
enum Side<'p, P: ?Sized> {
    Nothing,
    Tree(Walk<'p, P>),
    /// Values that stand in a leaf.
    List {
        values: Values<'p>,
        at: usize,
    },
}

impl<'p, P: ReadPages + ?Sized> Side<'p, P> {
    fn tree(view: Option<View<'p, P>>) -> Self {
        view.map_or(Self::Nothing, |view| Self::Tree(Walk::new(view)))
    }

    fn walk(&self) -> Option<&Walk<'p, P>> {
        match self {
            Self::Tree(walk) => Some(walk),
            _ => None,
        }
    }

    fn look(&mut self) -> Result<Next> {
        match self {
            Self::Nothing => Ok(Next::End),
            Self::Tree(walk) => walk.look(),
            Self::List { values, at } if (*at as u64) < values.len() => Ok(Next::Record),
            Self::List { .. } => Ok(Next::End),
        }
    }

    fn skip(&mut self) {
        match self {
            Self::Nothing => {}
            Self::Tree(walk) => walk.skip(),
            Self::List { at, .. } => *at += 1,
        }
    }

    fn enter(&mut self) -> Result<()> {
        match self {
            Self::Tree(walk) => walk.enter(),
            _ => Ok(()),
        }
    }

    fn read_key(&self, key: &mut Vec<u8>) -> Result<()> {
        key.clear();
        match self {
            Self::Tree(walk) => walk.read_key(key)?,
            _ => key.extend_from_slice(self.whole_value()?.unwrap_or_default()),
        }
        Ok(())
    }

    /// Reads the lower bound of what comes next; whether there is one.
    fn read_bound(&self, key: &mut Vec<u8>) -> Result<bool> {
        key.clear();
        match self {
            Self::Tree(walk) => walk.read_bound(key),
            _ => Ok(false),
        }
    }

    /// The value that is a record of this side, which has no keys beside.
    fn whole_value(&self) -> Result<Option<&'p [u8]>> {
        match self {
            Self::Nothing => Ok(None),
            Self::Tree(walk) => walk.whole_key(),
            Self::List { values, at } => Ok(values.get(*at)),
        }
    }
}

/// A walk through a tree, which enters a page only when it is told to.
struct Walk<'p, P: ?Sized> {
    view: View<'p, P>,
    /// The way from the root; empty before that was entered.
    frames: Vec<Frame<'p>>,
    /// The root was entered or skipped.
    begun: bool,
}

struct Frame<'p> {
    node: Node<'p>,
    level: usize,
    slot: usize,
}

impl<'p, P: ReadPages + ?Sized> Walk<'p, P> {
    fn new(view: View<'p, P>) -> Self {
        Self {
            begun: view.height() == 0,
            view,
            frames: Vec::new(),
        }
    }

    fn look(&mut self) -> Result<Next> {
        if !self.begun {
            return Ok(Next::Subtree(self.view.root()?, self.view.height() - 1));
        }
        while let Some(Frame { node, level, slot }) = self.frames.last() {
            if *slot < node.len() {
                return match level.checked_sub(1) {
                    None => Ok(Next::Record),
                    Some(below) => Ok(Next::Subtree(node.child(*slot)?.page, below)),
                };
            }
            self.frames.pop();
            self.skip();
        }
        Ok(Next::End)
    }

    fn skip(&mut self) {
        match self.frames.last_mut() {
            Some(frame) => frame.slot += 1,
            None => self.begun = true,
        }
    }

    fn enter(&mut self) -> Result<()> {
        if let Next::Subtree(page, level) = self.look()? {
            let node = self.view.open(page, level)?;
            self.frames.push(Frame {
                node,
                level,
                slot: 0,
            });
            self.begun = true;
        }
        Ok(())
    }

    fn read_key(&self, key: &mut Vec<u8>) -> Result<()> {
        match self.frames.last() {
            Some(frame) => frame.node.push_key(frame.slot, key),
            None => Ok(()),
        }
    }

    fn read_bound(&self, key: &mut Vec<u8>) -> Result<bool> {
        // The first entry of a branch begins where the branch does.
        let bounded = self.frames.iter().rev().find(|frame| frame.slot > 0);
        if let Some(frame) = bounded {
            frame.node.push_key(frame.slot, key)?;
        }
        Ok(bounded.is_some())
    }

    fn here(&self) -> Result<(&Node<'p>, usize)> {
        let frame = self.frames.last().ok_or(Error::NoRecord)?;
        Ok((&frame.node, frame.slot))
    }

    fn value(&self) -> Result<&'p [u8]> {
        let (leaf, slot) = self.here()?;
        self.view.value(leaf, slot)
    }

    fn whole_key(&self) -> Result<Option<&'p [u8]>> {
        let (leaf, slot) = self.here()?;
        leaf.whole_key(slot).map(Some)
    }

    /// Whether the values here are the same, whatever they are: then they stand in the same bytes, or in the same tree.
    fn has_same_cell(&self, other: &Self) -> Result<bool> {
        let ((leaf, slot), (its_leaf, its_slot)) = (self.here()?, other.here()?);
        let (cell, its) = (leaf.cell(slot)?, its_leaf.cell(its_slot)?);
        Ok(cell.mark == its.mark && cell.payload == its.payload)
    }

    /// The values of the key here.
    fn values(&self) -> Result<Side<'p, P>> {
        let (leaf, slot) = self.here()?;
        Ok(match Values::of(leaf, slot, self.view.record.kind)? {
            Values::Tree(record) => Side::tree(Some(self.view.of_values(record))),
            values => Side::List { values, at: 0 },
        })
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::env::Env;
    use crate::env::mapping::MappedPages;
    use crate::env::options::Options;
    use crate::format::page::Page;
    use crate::format::tree_record::TreeKind;

    /// Counts the pages that are looked at.
    struct Counting<'a>(&'a MappedPages, Cell<usize>);

    impl ReadPages for Counting<'_> {
        fn page(&self, number: PageNo) -> Result<&Page> {
            self.1.set(self.1.get() + 1);
            self.0.page(number)
        }

        fn extent(&self, first: PageNo, pages: u32) -> Result<&[u8]> {
            self.0.extent(first, pages)
        }
    }

    /// However large the tree, a few changes cost a few pages.
    #[test]
    fn the_work_is_in_proportion_to_the_changes() {
        let env = Env::in_memory(&Options::new()).unwrap();
        let key = |n: u32| n.wrapping_mul(0x9e37_79b9).to_be_bytes();
        let mut txn = env.write().unwrap();
        let tree = txn.create_tree("t", TreeKind::COMPACT).unwrap();
        for n in 0..100_000 {
            txn.put(tree, &key(n), &[7; 60]).unwrap();
        }
        txn.commit().unwrap().wait_durable().unwrap();
        let before = env.read().unwrap();
        let mut txn = env.write().unwrap();
        let tree = txn.tree("t").unwrap().unwrap();
        // Splits, merges and changes in place.
        for n in 100_000..100_040 {
            txn.put(tree, &key(n), &[8; 1000]).unwrap();
        }
        for n in 0..10 {
            txn.put(tree, &key(n), &[9; 60]).unwrap();
            txn.delete(tree, &key(n + 10)).unwrap();
        }
        let last = txn.get(tree, &key(500)).unwrap().map(<[u8]>::to_vec);
        txn.put(tree, &key(500), &last.unwrap()).unwrap();
        txn.commit().unwrap().wait_durable().unwrap();
        let after = env.read().unwrap();
        let record = |of: &crate::txn::snapshot::Snapshot| *of.tree("t").unwrap().unwrap().record();
        let pages = Counting(after.pages(), Cell::new(0));
        let [old, new] = [&before, &after].map(|of| Some(View::new(&pages, record(of))));
        let mut changes = Changes::between(old, new);
        let mut count = 0;
        while changes.next().unwrap().is_some() {
            count += 1;
        }
        assert_eq!(count, 60);
        // Two ways of three pages for each, and some where the trees were split differently.
        let (looked_at, all) = (pages.1.get(), record(&after).leaf_pages);
        assert!(all > 1500, "{all}");
        assert!(looked_at < 61 * 8, "{looked_at} of {all}");
        let mut none = Changes::between(new, new);
        assert_eq!(none.next().unwrap(), None);
        assert_eq!(pages.1.get(), looked_at);
    }
}
