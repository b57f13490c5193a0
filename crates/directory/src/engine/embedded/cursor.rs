//! Scans and posting lists, read in place from the store's trees.

use std::ops::Bound;

use sapwood_store as store;
use sapwood_store::page::ReadPages;
use sapwood_store::tree::{Cursor as StoreCursor, View};

use crate::engine::pending::Amended;
use crate::engine::postings::{BlockCursor, BlockTree, Change, List};
use crate::engine::{Cursor, Direction, EntryId, Index, Postings, Range, Result};

/// A scan of a table, which may lie in several stores.
pub struct EmbeddedCursor<'t> {
    scan: Scan<'t>,
    others: Others<'t>,
}

/// What else is scanned.
enum Others<'t> {
    None,
    /// Trees whose keys all come behind those of the scan, the last one first.
    InTurn(Vec<store::Tree<'t>>),
    /// Trees whose keys come between those of the scan.
    Merged(Vec<Scan<'t>>),
}

impl<'t> EmbeddedCursor<'t> {
    pub(super) fn new(
        tree: Option<store::Tree<'t>>,
        range: Range<'_>,
        direction: Direction,
    ) -> Result<EmbeddedCursor<'t>> {
        Ok(EmbeddedCursor {
            scan: Scan::new(tree, range, direction)?,
            others: Others::None,
        })
    }

    /// Scans trees one after the other: all keys of a tree come before those of the next.
    pub(super) fn in_turn(
        mut trees: Vec<store::Tree<'t>>,
        range: Range<'_>,
        direction: Direction,
    ) -> Result<EmbeddedCursor<'t>> {
        if direction == Direction::Forward {
            trees.reverse();
        }
        let first = trees.pop();
        Ok(EmbeddedCursor {
            scan: Scan::new(first, range, direction)?,
            others: Others::InTurn(trees),
        })
    }

    /// Scans trees in the order of all their keys.
    pub(super) fn merged(
        mut trees: Vec<store::Tree<'t>>,
        range: Range<'_>,
        direction: Direction,
    ) -> Result<EmbeddedCursor<'t>> {
        let first = trees.pop();
        let others = trees
            .into_iter()
            .map(|tree| Scan::new(Some(tree), range, direction))
            .collect::<Result<_>>()?;
        Ok(EmbeddedCursor {
            scan: Scan::new(first, range, direction)?,
            others: Others::Merged(others),
        })
    }
}

impl Cursor for EmbeddedCursor<'_> {
    fn next(&mut self) -> Result<Option<(&[u8], &[u8])>> {
        let EmbeddedCursor { scan, others } = self;
        match others {
            Others::None => {}
            Others::InTurn(trees) => {
                while !scan.advance()? {
                    let Some(tree) = trees.pop() else {
                        return Ok(None);
                    };
                    scan.go_on_with(tree)?;
                }
            }
            Others::Merged(others) => {
                let direction = scan.direction;
                let mut next: Option<&mut Scan<'_>> = None;
                for scan in std::iter::once(scan).chain(others) {
                    if !scan.advance_to_key()? {
                        continue;
                    }
                    let is_next = match (&next, direction) {
                        (None, _) => true,
                        (Some(next), Direction::Forward) => scan.key < next.key,
                        (Some(next), Direction::Backward) => scan.key > next.key,
                    };
                    if is_next {
                        next = Some(scan);
                    }
                }
                return match next {
                    Some(scan) => scan.next(),
                    None => Ok(None),
                };
            }
        }
        scan.next()
    }
}

/// A scan of a tree of the store.
struct Scan<'t> {
    /// `None` when there is nothing to scan.
    cursor: Option<store::TreeCursor<'t>>,
    is_over: bool,
    direction: Direction,
    /// The far end.
    end: Bound<Vec<u8>>,
    /// Whether the cursor stands on a record that was not handed out yet.
    stands_on_next: bool,
    /// Whether it is known that this record is within the range.
    looked_at: bool,
    /// Its key, when it was [asked for](Scan::advance_to_key).
    key: Vec<u8>,
}

impl<'t> Scan<'t> {
    fn new(
        tree: Option<store::Tree<'t>>,
        range: Range<'_>,
        direction: Direction,
    ) -> Result<Scan<'t>> {
        let (near, end) = match direction {
            Direction::Forward => (range.from, range.to),
            Direction::Backward => (range.to, range.from),
        };
        let end = end.map(<[u8]>::to_vec);
        let mut scan = Scan {
            cursor: None,
            is_over: false,
            direction,
            end,
            stands_on_next: true,
            looked_at: false,
            key: Vec::new(),
        };
        let Some(tree) = tree else { return Ok(scan) };
        let mut cursor = tree.cursor();
        if tree.record().kind.out_of_line {
            // Entries are scanned by those who go through all of them, in steps.
            cursor.read_far();
        }
        let mut standing = match (near, direction) {
            (Bound::Unbounded, Direction::Forward) => cursor.first()?,
            (Bound::Unbounded, Direction::Backward) => cursor.last()?,
            (Bound::Included(key) | Bound::Excluded(key), Direction::Forward) => {
                cursor.seek(key)?
            }
            (Bound::Included(key) | Bound::Excluded(key), Direction::Backward) => {
                cursor.seek_back(key)?
            }
        };
        if let Bound::Excluded(key) = near
            && standing
            && cursor.key()? == Some(key)
        {
            standing = match direction {
                Direction::Forward => cursor.next()?,
                Direction::Backward => cursor.prev()?,
            };
        }
        scan.cursor = standing.then_some(cursor);
        Ok(scan)
    }

    /// Scans another tree from its near end on.
    fn go_on_with(&mut self, tree: store::Tree<'t>) -> Result<()> {
        let mut cursor = tree.cursor();
        let standing = match self.direction {
            Direction::Forward => cursor.first()?,
            Direction::Backward => cursor.last()?,
        };
        self.cursor = standing.then_some(cursor);
        (self.is_over, self.stands_on_next, self.looked_at) = (false, true, false);
        Ok(())
    }

    /// Goes to the next record, if that was not done already, without lending it; whether there is one.
    fn advance(&mut self) -> Result<bool> {
        if !self.looked_at {
            let there_is = self.next()?.is_some();
            (self.stands_on_next, self.looked_at) = (there_is, there_is);
        }
        Ok(self.looked_at)
    }

    /// The same, and copies its key into `key`.
    fn advance_to_key(&mut self) -> Result<bool> {
        if self.looked_at {
            return Ok(true);
        }
        let there_is = self.advance()?;
        let Scan { cursor, key, .. } = self;
        if let Some(cursor) = cursor.as_mut().filter(|_| there_is) {
            key.clear();
            key.extend_from_slice(cursor.key()?.unwrap_or_default());
        }
        Ok(there_is)
    }

    fn next(&mut self) -> Result<Option<(&[u8], &[u8])>> {
        let Some(cursor) = self.cursor.as_mut().filter(|_| !self.is_over) else {
            return Ok(None);
        };
        self.looked_at = false;
        let standing = match (std::mem::take(&mut self.stands_on_next), self.direction) {
            (true, _) => true,
            (false, Direction::Forward) => cursor.next()?,
            (false, Direction::Backward) => cursor.prev()?,
        };
        let record = if standing { cursor.record()? } else { None };
        let Some((key, value)) = record else {
            self.is_over = true;
            return Ok(None);
        };
        let within = match (&self.end, self.direction) {
            (Bound::Unbounded, _) => true,
            (Bound::Included(end), Direction::Forward) => key <= end.as_slice(),
            (Bound::Excluded(end), Direction::Forward) => key < end.as_slice(),
            (Bound::Included(end), Direction::Backward) => key >= end.as_slice(),
            (Bound::Excluded(end), Direction::Backward) => key > end.as_slice(),
        };
        if !within {
            self.is_over = true;
            return Ok(None);
        }
        Ok(Some((key, value)))
    }
}

/// A posting list of an index: those of all stores, one after the other, for the ids of a store come before those of
/// the next.
pub struct EmbeddedPostings<'t> {
    list: StoreList<'t>,
    /// The lists of the other stores, the last one first.
    others: Vec<StoreList<'t>>,
}

type StoreList<'t> = Amended<List<'t, store::Tree<'t>>>;

impl<'t> EmbeddedPostings<'t> {
    /// `stores` has one at least: an index's tree, and what pends for the list.
    pub(super) fn new(
        index: Index,
        mut stores: impl DoubleEndedIterator<Item = Result<(Option<store::Tree<'t>>, Vec<Change>)>>,
        key: &[u8],
    ) -> Result<EmbeddedPostings<'t>> {
        let list = |(tree, changes)| Ok(Amended::new(List::new(index, tree, key)?, changes));
        let first = stores.next().transpose()?.unwrap_or_default();
        Ok(EmbeddedPostings {
            list: list(first)?,
            others: stores
                .rev()
                .map(|store| list(store?))
                .collect::<Result<_>>()?,
        })
    }
}

impl Postings for EmbeddedPostings<'_> {
    fn next(&mut self) -> Result<Option<EntryId>> {
        loop {
            let next = self.list.next()?;
            if next.is_some() {
                return Ok(next);
            }
            match self.others.pop() {
                Some(list) => self.list = list,
                None => return Ok(None),
            }
        }
    }

    fn seek(&mut self, id: EntryId) -> Result<Option<EntryId>> {
        loop {
            let found = self.list.seek(id)?;
            if found.is_some() {
                return Ok(found);
            }
            match self.others.pop() {
                Some(list) => self.list = list,
                None => return Ok(None),
            }
        }
    }
}

impl<'t, P: ReadPages + ?Sized> BlockTree<'t> for View<'t, P> {
    type Cursor = StoreCursor<'t, P>;

    fn cursor(&self) -> StoreCursor<'t, P> {
        View::cursor(self)
    }

    fn estimate(&self, from: Bound<&[u8]>, to: Bound<&[u8]>) -> Result<u64> {
        Ok(View::estimate(self, from, to)?)
    }
}

impl<'t, P: ReadPages + ?Sized> BlockCursor<'t> for StoreCursor<'t, P> {
    fn seek(&mut self, key: &[u8]) -> Result<bool> {
        Ok(StoreCursor::seek(self, key)?)
    }

    fn seek_back(&mut self, key: &[u8]) -> Result<bool> {
        Ok(StoreCursor::seek_back(self, key)?)
    }

    fn next(&mut self) -> Result<bool> {
        Ok(StoreCursor::next(self)?)
    }

    fn record(&mut self) -> Result<Option<(&[u8], &'t [u8])>> {
        Ok(StoreCursor::record(self)?)
    }
}
