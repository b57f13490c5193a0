//! B+trees of ordered byte keys over pages.
//!
//! A tree is known by its [`TreeRecord`]; everything else is in pages. Reading goes through a [`View`], writing
//! through [`TreeMut`], which changes the record in place; whoever owns the transaction stores the record. A tree logs nothing and seals nothing but the extents of its large values.

mod changes;
mod check;
mod count;
mod cursor;
mod duplicates;
pub(crate) mod entries;
pub(crate) mod memory;
pub(crate) mod node;
pub(crate) mod order;
pub(crate) mod out_of_line;
mod relocation;
mod since;
pub(crate) mod value;
mod write;

use std::ops::Bound;

use crate::error::{Error, Result};
use crate::format::page::{PAGE_NO_MAX, PageKind, PageNo, ReadPages, SnapshotId};
use crate::format::prefetch;

use duplicates::Values;
use node::{Cell, Mark, Node};

use crate::heap::HeapNo;
pub use changes::{Change, Changes};
pub use check::{CheckSink, check};
pub(crate) use cursor::Position;
pub use cursor::{Cursor, Range, Records};
pub use order::{Comparator, Comparators, KeyOrder};
pub(crate) use order::{Order, Orders};
pub(crate) use relocation::Stray;
pub(crate) use since::Written;
pub(crate) use value::seal_extent;
pub use value::{extent_commit, verify_extent};
pub(crate) use write::{Reserved, is_inline, reserved_mut};
pub use write::{TreeMut, clear, delete, insert, put};

/// The longest key, in bytes: three of them and their bookkeeping fit into one branch page.
pub const KEY_BYTES_MAX: usize = 1300;

/// The longest value, in bytes.
pub const VALUE_BYTES_MAX: usize = u32::MAX as usize;

/// The longest duplicate, in bytes.
pub const DUPLICATE_BYTES_MAX: usize = KEY_BYTES_MAX;

/// The most levels a tree may have, its leaves included: what a search keeps on its stack.
pub const HEIGHT_MAX: usize = 24;

/// How a tree is kept. It is chosen when the tree is created, and part of its record.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TreeKind {
    /// Branch pages carry the number of records below each entry: [`View::rank`], [`Cursor::seek_nth`] and [`View::count`] work,
    /// at the price of changing the whole path from the root on each insertion (which copy on write does anyway). Not
    /// together with duplicates.
    pub counted: bool,
    /// Each key stands in its page in one piece: [`Cursor::whole_key`] lends it for as long as the snapshot lives. Otherwise
    /// pages store what their keys have in common only once, and a cursor puts keys together. Needed for any order but
    /// [`KeyOrder::Bytes`], and for duplicates.
    pub whole: bool,
    /// How keys are ordered.
    pub order: KeyOrder,
    /// Whether a key may have several values, and how those are kept.
    pub duplicates: Option<Duplicates>,
    /// All keys have the same length, and there are no values: a leaf is nothing but its keys. Only together with whole keys, without
    /// counts and duplicates.
    pub packed: bool,
    /// Values stand apart from the leaves, one behind the other in the order in which they were written: to change one of many costs little more than to
    /// change one of few. Keys have eight bytes, of which the leaves hold hundreds; a value has at most 2 GiB. For many values of some hundred bytes that are changed at random.
    /// Room that changed values leave is used again once it is as much as the others take. Together with counts only.
    pub apart: bool,
}

/// How the values of one key are kept, where there may be several: in order, each value once, each at most
/// [`DUPLICATE_BYTES_MAX`] long.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Duplicates {
    /// All values of a key have the same length. They are packed without any bookkeeping, and can be
    /// read and stored many at a time ([`Cursor::duplicates_here`], [`WriteTxn::put_multiple`](crate::WriteTxn::put_multiple)).
    pub fixed: bool,
    /// How the values are ordered.
    pub order: KeyOrder,
}

impl TreeKind {
    /// One value for each key, as compact as possible: the default.
    pub const COMPACT: Self = Self {
        counted: false,
        whole: false,
        order: KeyOrder::Bytes,
        duplicates: None,
        packed: false,
        apart: false,
    };

    /// [`TreeKind::COMPACT`] with counts.
    pub const COUNTED: Self = Self {
        counted: true,
        ..Self::COMPACT
    };

    /// One value for each key of eight bytes, apart from the leaves.
    pub const APART: Self = Self {
        apart: true,
        ..Self::COMPACT
    };

    /// One value for each key, with keys in one piece.
    pub const WHOLE: Self = Self {
        whole: true,
        ..Self::COMPACT
    };

    /// Sorted duplicates.
    pub const DUPLICATES: Self = Self {
        duplicates: Some(Duplicates {
            fixed: false,
            order: KeyOrder::Bytes,
        }),
        ..Self::WHOLE
    };

    /// Whether the choices go together.
    pub fn is_possible(&self) -> bool {
        let needs_whole = self.order != KeyOrder::Bytes || self.duplicates.is_some() || self.packed;
        let exclusive = [self.counted, self.duplicates.is_some(), self.packed];
        let is_plain = !self.whole && !needs_whole;
        (is_plain || !self.apart)
            && (self.whole || !needs_whole)
            && exclusive.iter().filter(|&&is| is).count() <= 1
    }

    /// The kind of a tree that holds the values of one key.
    fn of_values(self) -> Self {
        let duplicates = self.duplicates.unwrap_or_default();
        Self {
            order: duplicates.order,
            packed: duplicates.fixed,
            ..Self::WHOLE
        }
    }

    fn has_fixed_duplicates(self) -> bool {
        self.duplicates.is_some_and(|duplicates| duplicates.fixed)
    }

    fn encode(self) -> u8 {
        let duplicates = self.duplicates.unwrap_or_default();
        let flags = [
            (self.counted, COUNTED),
            (self.whole, WHOLE),
            (self.duplicates.is_some(), DUPLICATES),
            (duplicates.fixed || self.packed || self.apart, FIXED),
        ];
        let set = flags.iter().filter(|(is, _)| *is);
        set.fold(0, |sum, (_, flag)| sum | flag)
            | (self.order.encode() << ORDER_SHIFT)
            | (duplicates.order.encode() << DUPLICATE_ORDER_SHIFT)
    }

    /// `None` if the flags are not those of a possible tree.
    fn decode(flags: u8) -> Option<Self> {
        let kind = Self {
            counted: flags & COUNTED != 0,
            whole: flags & WHOLE != 0,
            order: KeyOrder::decode(flags >> ORDER_SHIFT),
            duplicates: (flags & DUPLICATES != 0).then(|| Duplicates {
                fixed: flags & FIXED != 0,
                order: KeyOrder::decode(flags >> DUPLICATE_ORDER_SHIFT),
            }),
            packed: flags & (WHOLE | DUPLICATES | FIXED) == WHOLE | FIXED,
            apart: flags & (WHOLE | DUPLICATES | FIXED) == FIXED,
        };
        (kind.is_possible() && kind.encode() == flags).then_some(kind)
    }
}

const COUNTED: u8 = 1;
const WHOLE: u8 = 2;
const DUPLICATES: u8 = 4;
const FIXED: u8 = 8;
const ORDER_SHIFT: u32 = 4;
const DUPLICATE_ORDER_SHIFT: u32 = 6;

/// What there is to know about a tree outside of its pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TreeRecord {
    /// The root page; page 0 in an empty tree.
    pub root: PageNo,
    /// The number of records.
    pub records: u64,
    /// Leaf pages in use.
    pub leaf_pages: u64,
    /// Branch pages in use.
    pub branch_pages: u64,
    /// Pages of large values in use.
    pub extent_pages: u64,
    /// The number of levels: 0 in an empty tree, 1 when the root is a leaf.
    pub height: u8,
    /// How the tree is kept.
    pub kind: TreeKind,
    /// Where its values are if they stand apart.
    pub heap: HeapNo,
}

impl TreeRecord {
    /// The length of an encoded record.
    pub const BYTES: usize = 48;

    /// The record of an empty tree.
    pub fn empty(kind: TreeKind) -> Self {
        Self {
            root: PageNo(0),
            records: 0,
            leaf_pages: 0,
            branch_pages: 0,
            extent_pages: 0,
            height: 0,
            kind,
            heap: HeapNo::default(),
        }
    }

    /// The kind of the pages on a level, leaves being level 0.
    pub(crate) fn page_kind(&self, level: usize) -> PageKind {
        let TreeKind {
            counted,
            whole,
            packed,
            apart,
            ..
        } = self.kind;
        match (level, whole) {
            (0, _) if apart => PageKind::PlaceLeaf,
            (0, false) => PageKind::Leaf,
            (0, true) if packed => PageKind::PackedLeaf,
            (0, true) => PageKind::WholeLeaf,
            (_, false) if counted => PageKind::CountedBranch,
            (_, false) => PageKind::Branch,
            (_, true) if counted => PageKind::CountedWholeBranch,
            (_, true) => PageKind::WholeBranch,
        }
    }

    /// The record as it is stored.
    pub fn encode(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        let numbers = [
            self.root.0,
            self.records,
            self.leaf_pages,
            self.branch_pages,
            self.extent_pages,
        ];
        for (place, number) in bytes.chunks_exact_mut(8).zip(numbers) {
            place.copy_from_slice(&number.to_le_bytes());
        }
        bytes[40] = self.height;
        bytes[41] = self.kind.encode();
        bytes[42..46].copy_from_slice(&self.heap.0.to_le_bytes());
        bytes
    }

    /// Reads a stored record; `None` if it is not one.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; Self::BYTES] = bytes.try_into().ok()?;
        let mut numbers = [0; 5];
        for (number, place) in numbers.iter_mut().zip(bytes.as_chunks::<8>().0) {
            *number = u64::from_le_bytes(*place);
        }
        let [root, records, leaf_pages, branch_pages, extent_pages] = numbers;
        let (height, flags) = (bytes[40], bytes[41]);
        let sound = root <= PAGE_NO_MAX
            && usize::from(height) <= HEIGHT_MAX
            && (height == 0) == (root == 0)
            && bytes[46..].iter().all(|&byte| byte == 0);
        let kind = TreeKind::decode(flags)?;
        let heap = HeapNo(u32::from_le_bytes(*bytes[42..].first_chunk()?));
        let has_heap = heap != HeapNo::default();
        (sound && has_heap == kind.apart).then_some(Self {
            root: PageNo(root),
            records,
            leaf_pages,
            branch_pages,
            extent_pages,
            height,
            kind,
            heap,
        })
    }
}

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
        let mut number = self.root()?;
        for level in (1..self.height()).rev() {
            let node = self.open(number, level)?;
            number = node.child(node.child_slot(key, self.orders.keys)?)?.page;
        }
        if self.height() == 0 {
            return Ok(None);
        }
        self.find_in(&self.open(number, 0)?, key)
    }

    #[inline]
    fn find_in(&self, leaf: &Node<'p>, key: &[u8]) -> Result<Option<&'p [u8]>> {
        let place = leaf.search(key, 0, self.orders.keys)?;
        if place.exact {
            self.value(leaf, place.slot).map(Some)
        } else {
            Ok(None)
        }
    }

    /// Asks the processor for what [`get`](Self::get) is going to read for these keys, so that their leaves come from memory at the same time
    /// and not one after the other. A tree that the caches hold gains nothing from it. Tells `each` where the leaf is that a key, given by its place in
    /// `keys`, is in if it is there: for [`get_in`](Self::get_in).
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

    /// Gives the value of each of these keys to `each`, with the key's place in `keys` and in their order, so that their leaves come from memory
    /// at the same time.
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
        if self.record.kind.apart {
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

    /// Finds the leaf of each key, has what `fetch_leaf` asks for of several of them come from memory, and then tells `each` of them.
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
                    match self.shared_places(*number, level - 1)? {
                        Some(places) => places.fetch_head(),
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
            if self.record.kind.apart {
                for (leaf, key) in leaves.iter().flatten().zip(keys) {
                    self.fetch_apart(leaf, key.as_ref())?;
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

    #[inline]
    pub(crate) fn open(&self, number: PageNo, level: usize) -> Result<Node<'p>> {
        if !self.record.kind.apart {
            prefetch::slots(self.pages.page(number)?, level);
        }
        self.node(number, level)
    }

    #[inline]
    fn node(&self, number: PageNo, level: usize) -> Result<Node<'p>> {
        if let Some(places) = self.shared_places(number, level)? {
            return Node::of_places(places, number);
        }
        let page = self.pages.page(number)?;
        Node::open(page, number, self.record.page_kind(level), level)
    }

    #[inline]
    fn value(&self, leaf: &Node<'p>, slot: usize) -> Result<&'p [u8]> {
        if self.record.kind.apart {
            return self.apart_value(leaf, slot);
        }
        self.value_in(leaf, slot, &leaf.cell(slot)?)
    }

    /// The value in a cell.
    #[inline]
    fn value_in(&self, leaf: &Node<'p>, slot: usize, cell: &Cell<'p>) -> Result<&'p [u8]> {
        match cell.mark {
            Mark::Inline => Ok(cell.payload),
            Mark::Extent => value::load(self.pages, leaf.number(), cell.payload),
            Mark::SubPage | Mark::SubTree => self.first_duplicate(leaf, slot),
            Mark::Apart => self.apart_value(leaf, slot),
        }
    }

    #[cold]
    fn first_duplicate(&self, leaf: &Node<'p>, slot: usize) -> Result<&'p [u8]> {
        let damaged = || Error::corrupt(leaf.number(), "duplicates are damaged");
        match Values::of(leaf, slot, self.record.kind)? {
            Values::One(value) => Ok(value),
            Values::Page(page) => page.get(0).ok_or_else(damaged),
            Values::Tree(tree) => {
                let mut cursor = self.of_values(tree).cursor();
                cursor.first()?;
                cursor.whole_key()?.ok_or_else(damaged)
            }
        }
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
