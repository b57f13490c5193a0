//! B+trees of ordered byte keys over pages.
//!
//! A tree is known by its [`TreeRecord`]; everything else is in pages. Reading goes through a [`View`], writing through
//! [`TreeMut`], which changes the record in place; the one that owns the transaction stores the record. A tree logs
//! nothing and seals nothing but the extents of its large values.

mod ahead;
mod catalog;
mod changes;
mod check;
mod count;
mod cursor;
mod duplicates;
pub(crate) mod entries;
pub(crate) mod node;
pub(crate) mod order;
pub(crate) mod out_of_line;
mod relocation;
mod since;
pub(crate) mod value;
mod write;

use std::ops::Bound;

use crate::error::{Error, Result};
use crate::format::pages::ReadPages;
use crate::format::prefetch;
pub use crate::format::tree_record::{Duplicates, KeyOrder, TreeKind, TreeRecord};
use crate::ids::{PageNo, SnapshotId};
use crate::limits::HEIGHT_MAX;

use duplicates::{Values, damaged};
use node::{Cell, Found, Mark, Node};

pub(crate) use ahead::read_records_ahead;
pub use changes::{Change, Changes};
pub use check::{CheckSink, check};
pub(crate) use cursor::Position;
pub use cursor::{Cursor, Range, Records};
pub use order::{Comparator, Comparators};
pub(crate) use order::{Order, Orders};
pub(crate) use relocation::Relocation;
pub(crate) use since::Written;
pub(crate) use value::seal_extent;
pub use value::{extent_commit, verify_extent};
pub(crate) use write::{Reserved, Way, is_inline, reserved_mut};
pub use write::{TreeMut, delete, put};

/// A tree that was found in a snapshot, to be had without another lookup from any snapshot of the same commit:
/// [`Snapshot::tree_of`](crate::Snapshot::tree_of).
#[derive(Clone, Copy, Debug)]
pub struct KnownTree {
    pub(crate) record: TreeRecord,
    pub(crate) of: Option<SnapshotId>,
}

/// Where the leaf of a key is, as [`View::fetch_ahead`] has told: for [`View::get_in`].
#[derive(Clone, Copy, Debug)]
pub struct LeafPlace {
    page: PageNo,
    of: Option<SnapshotId>,
}

/// A step of the way from the root: a page, and the slot taken in it.
#[derive(Clone, Copy, Default)]
struct Step {
    page: PageNo,
    slot: usize,
}

/// A way from the root, by level, the leaves' being 0.
type Steps = [Step; HEIGHT_MAX];

/// So many leaves are fetched at the same time: about as many as a core waits for at once.
const FETCHED_KEYS: usize = 16;

/// A tree as of one moment, to be read.
pub struct View<'p, P: ?Sized> {
    pub(crate) pages: &'p P,
    pub(crate) record: TreeRecord,
    orders: Orders,
}

impl<P: ?Sized> Clone for View<'_, P> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<P: ?Sized> Copy for View<'_, P> {}

impl<'p, P: ReadPages + ?Sized> View<'p, P> {
    /// The tree of this record in these pages.
    pub fn new(pages: &'p P, record: TreeRecord) -> Self {
        let orders = Orders::new(record.kind, Comparators::default());
        Self::with_orders(pages, record, orders)
    }

    pub(crate) fn with_orders(pages: &'p P, record: TreeRecord, orders: Orders) -> Self {
        Self {
            pages,
            record,
            orders,
        }
    }

    /// The same tree, ordered by these comparators where its record says nothing else.
    pub fn ordered_by(self, comparators: Comparators) -> Self {
        let orders = Orders::new(self.record.kind, comparators);
        Self { orders, ..self }
    }

    /// The tree's record.
    pub fn record(&self) -> &TreeRecord {
        &self.record
    }

    /// What leads back to this tree, if it is a snapshot's. (A write transaction has [`TreeId`](crate::TreeId)s.)
    pub fn known(&self) -> KnownTree {
        KnownTree {
            record: self.record,
            of: self.pages.snapshot(),
        }
    }

    /// Where every way down begins.
    #[inline]
    fn root(&self) -> Result<PageNo> {
        self.pages.check_process()?;
        Ok(self.record.root)
    }

    /// The value stored under `key`; the first one if it has several.
    pub fn get(&self, key: &[u8]) -> Result<Option<&'p [u8]>> {
        match self.search(key, |_, _, _| {})? {
            Some((leaf, Found { slot, exact: true })) => self.value(&leaf, slot).map(Some),
            _ => Ok(None),
        }
    }

    /// The leaf where a key is or would be, and where in it; `None` in an empty tree. Tells `each` of the way there:
    /// the level, the step, and the page that it leads to.
    #[inline]
    fn search(
        &self,
        key: &[u8],
        mut each: impl FnMut(usize, Step, PageNo),
    ) -> Result<Option<(Node<'p>, Found)>> {
        let mut number = self.root()?;
        if self.height() == 0 {
            return Ok(None);
        }
        for level in (1..self.height()).rev() {
            let node = self.open(number, level)?;
            let slot = node.child_slot(key, self.orders.keys)?;
            let child = node.child(slot)?.page;
            each(level, Step { page: number, slot }, child);
            number = child;
        }
        let leaf = self.open(number, 0)?;
        let found = leaf.search(key, 0, self.orders.keys)?;
        Ok(Some((leaf, found)))
    }

    /// The leaf with the first of the records below a page, or with the `last` one, and that record's slot. The page is
    /// the uppermost of so many levels. Tells `each` of the way there.
    fn edge(
        &self,
        mut number: PageNo,
        height: usize,
        last: bool,
        mut each: impl FnMut(usize, Step),
    ) -> Result<(Node<'p>, usize)> {
        let mut level = height.saturating_sub(1);
        loop {
            let node = self.open(number, level)?;
            let end = node.len().checked_sub(1);
            let end = end.ok_or_else(|| Error::corrupt(number, "empty page in a tree"))?;
            let slot = if last { end } else { 0 };
            if level == 0 {
                return Ok((node, slot));
            }
            each(level, Step { page: number, slot });
            number = node.child(slot)?.page;
            level -= 1;
        }
    }

    #[inline]
    fn find_in(&self, leaf: &Node<'p>, key: &[u8]) -> Result<Option<&'p [u8]>> {
        let place = leaf.search(key, 0, self.orders.keys)?;
        match place.exact {
            true => self.value(leaf, place.slot).map(Some),
            false => Ok(None),
        }
    }

    /// Asks the processor for what [`get`](Self::get) is going to read for these keys, so that their leaves come from
    /// memory at the same time and not one after the other. A tree that the caches hold gains nothing from it. Tells
    /// `each` where the leaf is that a key, given by its place in `keys`, is in if it is there: for
    /// [`get_in`](Self::get_in).
    pub fn fetch_ahead<K: AsRef<[u8]>>(
        &self,
        keys: &[K],
        mut each: impl FnMut(usize, LeafPlace),
    ) -> Result<()> {
        let lines = prefetch::ReadLines::of(&self.record);
        let fetch = |leaf: &Node<'p>, key: &[u8]| leaf.prefetch_near(key, self.orders.keys, &lines);
        let of = self.pages.snapshot();
        self.each_leaf(keys, &lines, fetch, |at, leaf| {
            let page = leaf.number();
            each(at, LeafPlace { page, of });
            Ok(())
        })
    }

    /// As [`get`](Self::get), without the way to the leaf if this tree has told that for this very key, in a snapshot
    /// of the same commit. In a write transaction, whose pages change, it is the same as `get`.
    pub fn get_in(&self, leaf: LeafPlace, key: &[u8]) -> Result<Option<&'p [u8]>> {
        if leaf.of.is_none() || leaf.of != self.pages.snapshot() {
            return self.get(key);
        }
        self.pages.check_process()?;
        self.find_in(&self.node(leaf.page, 0)?, key)
    }

    /// Gives the value of each of these keys to `each`, with the key's place in `keys` and in their order, so that
    /// their leaves come from memory at the same time.
    pub fn get_each<K: AsRef<[u8]>>(
        &self,
        keys: &[K],
        each: impl FnMut(usize, Option<&'p [u8]>),
    ) -> Result<()> {
        let lines = prefetch::ReadLines::of(&self.record);
        let fetch = |leaf: &Node<'p>, key: &[u8]| leaf.prefetch_near(key, self.orders.keys, &lines);
        self.each_value(keys, &lines, fetch, each)
    }

    /// The same for records that are going to be changed: their leaves, which will be copied, come as a whole.
    pub fn get_each_to_change<K: AsRef<[u8]>>(
        &self,
        keys: &[K],
        each: impl FnMut(usize, Option<&'p [u8]>),
    ) -> Result<()> {
        let lines = prefetch::ReadLines::of(&self.record);
        if self.record.kind.out_of_line {
            // A change leaves what is there as it is.
            return self.get_each(keys, each);
        }
        self.each_value(keys, &lines, |leaf, _| leaf.prefetch_page(), each)
    }

    fn each_value<K: AsRef<[u8]>>(
        &self,
        keys: &[K],
        lines: &prefetch::ReadLines,
        fetch_leaf: impl Fn(&Node<'p>, &[u8]),
        mut each: impl FnMut(usize, Option<&'p [u8]>),
    ) -> Result<()> {
        if self.height() == 0 {
            (0..keys.len()).for_each(|at| each(at, None));
        }
        self.each_leaf(keys, lines, fetch_leaf, |at, leaf| {
            each(at, self.find_in(leaf, keys[at].as_ref())?);
            Ok(())
        })
    }

    /// Finds the leaf of each key, has what `fetch_leaf` asks for of several of them come from memory, and then tells
    /// `each` of them.
    fn each_leaf<K: AsRef<[u8]>>(
        &self,
        keys: &[K],
        lines: &prefetch::ReadLines,
        fetch_leaf: impl Fn(&Node<'p>, &[u8]),
        mut each: impl FnMut(usize, &Node<'p>) -> Result<()>,
    ) -> Result<()> {
        let root = self.root()?;
        if self.height() == 0 {
            return Ok(());
        }
        for (chunk, keys) in keys.chunks(FETCHED_KEYS).enumerate() {
            let mut numbers = [root; FETCHED_KEYS];
            for level in (1..self.height()).rev() {
                // Each pass asks for what the next one reads, of all keys.
                let mut steps = [None; FETCHED_KEYS];
                for ((key, number), step) in keys.iter().zip(numbers).zip(&mut steps) {
                    let node = self.node(number, level)?;
                    let slot = node.child_slot(key.as_ref(), self.orders.keys)?;
                    node.prefetch_cell(slot);
                    *step = Some((node, slot));
                }
                for ((node, slot), number) in steps.iter().flatten().zip(&mut numbers) {
                    *number = node.child(*slot)?.page;
                    // What is above, all searches go through.
                    if level == 1 && self.height() > 2 {
                        self.pages.read_ahead(*number, 1);
                    }
                    match self.shared_pointers(*number, level - 1)? {
                        Some(pointers) => pointers.fetch_head(),
                        None => lines.fetch_slots(self.pages.page(*number)?, level - 1),
                    }
                }
            }
            let mut leaves = [None; FETCHED_KEYS];
            for ((key, number), place) in keys.iter().zip(numbers).zip(&mut leaves) {
                let leaf = self.node(number, 0)?;
                fetch_leaf(&leaf, key.as_ref());
                *place = Some(leaf);
            }
            if self.record.kind.out_of_line {
                for (leaf, key) in leaves.iter().flatten().zip(keys) {
                    self.fetch_out_of_line(leaf, key.as_ref())?;
                }
            }
            for (at, leaf) in leaves.iter().flatten().enumerate() {
                each(chunk * FETCHED_KEYS + at, leaf)?;
            }
        }
        Ok(())
    }

    /// All keys, ascending.
    pub(crate) fn keys(&self) -> Result<Vec<Vec<u8>>> {
        let mut keys = Vec::new();
        let mut cursor = self.cursor();
        while cursor.next_key()? {
            keys.push(cursor.key()?.unwrap_or_default().to_vec());
        }
        Ok(keys)
    }

    /// A cursor that stands nowhere yet.
    pub fn cursor(&self) -> Cursor<'p, P> {
        Cursor::new(*self)
    }

    /// The records between two bounds, in ascending order from the front and in descending order from the back.
    pub fn range(&self, from: Bound<&[u8]>, to: Bound<&[u8]>) -> Result<Range<'p, P>> {
        Range::new(*self, from, to)
    }

    pub(crate) fn height(&self) -> usize {
        usize::from(self.record.height)
    }

    #[inline(always)] // A node is large to be handed on.
    pub(crate) fn open(&self, number: PageNo, level: usize) -> Result<Node<'p>> {
        if self.record.kind.out_of_line {
            return self.node(number, level);
        }
        let page = self.pages.page(number)?;
        prefetch::slots(page, level);
        Node::open(page, number, self.record.page_kind(level), level)
    }

    #[inline]
    fn node(&self, number: PageNo, level: usize) -> Result<Node<'p>> {
        if let Some(pointers) = self.shared_pointers(number, level)? {
            return Node::of_pointers(pointers, number);
        }
        let page = self.pages.page(number)?;
        Node::open(page, number, self.record.page_kind(level), level)
    }

    #[inline]
    fn value(&self, leaf: &Node<'p>, slot: usize) -> Result<&'p [u8]> {
        if self.record.kind.out_of_line {
            return self.out_of_line_value(leaf, slot);
        }
        self.value_in(leaf, slot, &leaf.cell(slot)?)
    }

    /// The value in a cell.
    #[inline]
    fn value_in(&self, leaf: &Node<'p>, slot: usize, cell: &Cell<'p>) -> Result<&'p [u8]> {
        match cell.mark {
            Mark::Inline => Ok(cell.payload),
            Mark::Extent => value::load(self.pages, leaf.number(), cell.payload),
            Mark::SubPage | Mark::SubTree => {
                self.first_of(leaf, &Values::of(leaf, slot, self.record.kind)?)
            }
            Mark::OutOfLine => self.out_of_line_value(leaf, slot),
        }
    }

    /// The first of the values of a key.
    fn first_of(&self, leaf: &Node<'p>, values: &Values<'p>) -> Result<&'p [u8]> {
        let Values::Tree(tree) = values else {
            return values.get(0).ok_or_else(|| damaged(leaf.number()));
        };
        let tree = self.of_values(*tree);
        let (leaf, first) = tree.edge(tree.root()?, tree.height(), false, |_, _| {})?;
        leaf.whole_key(first)
    }

    /// The tree of the values of one key.
    pub(crate) fn of_values(&self, record: TreeRecord) -> Self {
        let orders = Orders {
            keys: self.orders.duplicates,
            duplicates: Order::default(),
        };
        Self::with_orders(self.pages, record, orders)
    }
}
