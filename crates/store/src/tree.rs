//! B+trees of ordered byte keys over pages.
//!
//! A tree is known by its [`TreeRecord`]; everything else is in pages. Reading goes through a [`View`], writing
//! through the functions [`put`], [`insert`], [`delete`] and [`clear`], which change the record in place; whoever owns
//! the transaction stores the record. A tree logs nothing and seals nothing but the extents of its large values.

use std::ops::Bound;

use crate::error::{Error, Result};
use crate::page::{CommitNo, PAGE_NO_MAX, PageNo, ReadPages, WritePages};

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
        let _ = (key, self.pages);
        todo!()
    }

    /// A cursor that stands nowhere yet.
    pub fn cursor(&self) -> Cursor<'p, P> {
        Cursor::new(*self)
    }

    /// How many records have a key less than `key`. Counted trees only.
    pub fn rank(&self, key: &[u8]) -> Result<u64> {
        let _ = key;
        todo!()
    }

    /// How many records lie between the bounds. Counted trees only.
    pub fn count(&self, from: Bound<&[u8]>, to: Bound<&[u8]>) -> Result<u64> {
        let _ = (from, to);
        todo!()
    }

    /// About how many records lie between the bounds, in O(log n) from the shape of the search paths: exact in a
    /// counted tree.
    pub fn estimate(&self, from: Bound<&[u8]>, to: Bound<&[u8]>) -> Result<u64> {
        let _ = (from, to);
        todo!()
    }
}

/// A place in a tree. It moves in both directions and hands out records without copying their values.
///
/// A cursor stands on a record, or nowhere: before its first seek, and after it ran off either end.
pub struct Cursor<'p, P: ?Sized> {
    view: View<'p, P>,
}

impl<'p, P: ReadPages + ?Sized> Cursor<'p, P> {
    fn new(view: View<'p, P>) -> Self {
        Self { view }
    }

    /// Goes to the first record. Like all movements, answers whether the cursor stands on a record now.
    pub fn first(&mut self) -> Result<bool> {
        todo!()
    }

    /// Goes to the last record.
    pub fn last(&mut self) -> Result<bool> {
        todo!()
    }

    /// Goes to the first record whose key is `key` or greater.
    pub fn seek(&mut self, key: &[u8]) -> Result<bool> {
        let _ = (key, self.view);
        todo!()
    }

    /// Goes to the record with this very key.
    pub fn seek_exact(&mut self, key: &[u8]) -> Result<bool> {
        let _ = key;
        todo!()
    }

    /// Goes to the last record whose key is `key` or less.
    pub fn seek_back(&mut self, key: &[u8]) -> Result<bool> {
        let _ = key;
        todo!()
    }

    /// Goes to record number `n`, counted from 0. Counted trees only.
    pub fn seek_nth(&mut self, n: u64) -> Result<bool> {
        let _ = n;
        todo!()
    }

    /// Goes to the next record; to the first from nowhere.
    #[allow(clippy::should_implement_trait)] // A cursor lends its key, which an iterator cannot.
    pub fn next(&mut self) -> Result<bool> {
        todo!()
    }

    /// Goes to the record before; to the last from nowhere.
    pub fn prev(&mut self) -> Result<bool> {
        todo!()
    }

    /// The key of the record the cursor stands on; `None` when it stands nowhere. Puts it together in the cursor's buffer.
    pub fn key(&mut self) -> Result<Option<&[u8]>> {
        todo!()
    }

    /// The value of the record the cursor stands on.
    pub fn value(&self) -> Result<Option<&'p [u8]>> {
        todo!()
    }

    /// Key and value of the record the cursor stands on.
    pub fn record(&mut self) -> Result<Option<(&[u8], &'p [u8])>> {
        let value = self.value()?;
        Ok(self.key()?.zip(value))
    }
}

/// Stores `value` under `key`, replacing what was there. Answers whether the key is new.
pub fn put<P: WritePages + ?Sized>(
    pages: &mut P,
    tree: &mut TreeRecord,
    key: &[u8],
    value: &[u8],
) -> Result<bool> {
    let _ = (pages, tree, key, value);
    todo!()
}

/// Stores `value` under `key` unless the key exists already: then nothing changes and the answer is `false`.
pub fn insert<P: WritePages + ?Sized>(
    pages: &mut P,
    tree: &mut TreeRecord,
    key: &[u8],
    value: &[u8],
) -> Result<bool> {
    let _ = (pages, tree, key, value);
    todo!()
}

/// Removes `key` and its value. Answers whether it was there.
pub fn delete<P: WritePages + ?Sized>(
    pages: &mut P,
    tree: &mut TreeRecord,
    key: &[u8],
) -> Result<bool> {
    let _ = (pages, tree, key);
    todo!()
}

/// Removes every record and frees every page; the record is that of an empty tree afterwards.
pub fn clear<P: WritePages + ?Sized>(pages: &mut P, tree: &mut TreeRecord) -> Result<()> {
    let _ = (pages, tree);
    todo!()
}

/// The commit in an extent's header; `None` if the bytes do not begin with one.
pub fn extent_commit(extent: &[u8]) -> Option<CommitNo> {
    let _ = extent;
    todo!()
}

/// Checks the checksum of an extent and that it begins at page `first`.
pub fn verify_extent(extent: &[u8], first: PageNo) -> Result<()> {
    let _ = (extent, first);
    todo!()
}

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
    let _ = (pages, tree, parent, sink);
    todo!()
}
