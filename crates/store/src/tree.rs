//! B+trees of ordered byte keys over pages.
//!
//! A tree is known by its [`TreeRecord`]; everything else is in pages. Reading goes through a [`View`], writing
//! through the functions [`put`], [`insert`], [`delete`] and [`clear`], which change the record in place; whoever owns
//! the transaction stores the record. A tree logs nothing and seals nothing but the extents of its large values.

mod check;
mod count;
mod cursor;
pub(crate) mod entries;
pub(crate) mod node;
mod prefetch;
pub(crate) mod value;
mod write;

use std::ops::Bound;

use crate::error::Result;
use crate::page::{PAGE_NO_MAX, PageKind, PageNo, ReadPages};

use node::Node;

pub use check::{CheckSink, check};
pub use cursor::{Cursor, Range};
pub use value::{extent_commit, verify_extent};
pub(crate) use write::is_inline;
pub use write::{clear, delete, insert, put};

/// The longest key, in bytes: three of them and their bookkeeping fit into one branch page.
pub const KEY_BYTES_MAX: usize = 1300;

/// The longest value, in bytes.
pub const VALUE_BYTES_MAX: usize = u32::MAX as usize;

/// The most levels a tree may have, its leaves included: what a search keeps on its stack.
pub const HEIGHT_MAX: usize = 24;

/// How a tree is kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TreeKind {
    /// Branch pages carry the number of records below each entry: [`View::rank`], [`View::nth`] and [`View::count`] work,
    /// at the price of changing the whole path from the root on each insertion (which copy on write does anyway).
    pub counted: bool,
}

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
}

const COUNTED: u8 = 1;

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
        }
    }

    /// The kind of the pages on a level, leaves being level 0.
    pub(crate) fn page_kind(&self, level: usize) -> PageKind {
        match (level, self.kind.counted) {
            (0, _) => PageKind::Leaf,
            (_, false) => PageKind::Branch,
            (_, true) => PageKind::CountedBranch,
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
        bytes[41] = if self.kind.counted { COUNTED } else { 0 };
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
            && flags & !COUNTED == 0
            && bytes[42..].iter().all(|&byte| byte == 0);
        sound.then_some(Self {
            root: PageNo(root),
            records,
            leaf_pages,
            branch_pages,
            extent_pages,
            height,
            kind: TreeKind {
                counted: flags & COUNTED != 0,
            },
        })
    }
}

/// A tree as of one moment, to be read.
pub struct View<'p, P: ?Sized> {
    pages: &'p P,
    record: TreeRecord,
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
        Self { pages, record }
    }

    /// The tree's record.
    pub fn record(&self) -> &TreeRecord {
        &self.record
    }

    /// The value stored under `key`.
    pub fn get(&self, key: &[u8]) -> Result<Option<&'p [u8]>> {
        let mut number = self.record.root;
        for level in (1..self.height()).rev() {
            let node = self.open(number, level)?;
            number = node.child(node.child_slot(key)?)?.page;
        }
        if self.height() == 0 {
            return Ok(None);
        }
        let leaf = self.open(number, 0)?;
        let place = leaf.search(key, 0)?;
        if place.exact {
            self.value(&leaf, place.slot).map(Some)
        } else {
            Ok(None)
        }
    }

    /// A cursor that stands nowhere yet.
    pub fn cursor(&self) -> Cursor<'p, P> {
        Cursor::new(*self)
    }

    /// The records between two bounds, in ascending order from the front and in descending order from the back.
    pub fn range(&self, from: Bound<&[u8]>, to: Bound<&[u8]>) -> Result<Range<'p, P>> {
        Range::new(*self, from, to)
    }

    fn height(&self) -> usize {
        usize::from(self.record.height)
    }

    #[inline]
    fn open(&self, number: PageNo, level: usize) -> Result<Node<'p>> {
        let page = self.pages.page(number)?;
        prefetch::slots(page, level);
        Node::open(page, number, self.record.page_kind(level), level)
    }

    #[inline]
    fn value(&self, leaf: &Node<'p>, slot: usize) -> Result<&'p [u8]> {
        let cell = leaf.cell(slot)?;
        if cell.large {
            value::load(self.pages, leaf.number(), cell.payload)
        } else {
            Ok(cell.payload)
        }
    }
}
