//! The free list: a tree of extents that nobody refers to any more, and the rule by which they may be used again.
//!
//! ```text
//!  key     8  freed   the commit that freed the extent, big-endian: the oldest come first
//!          8  first   its first page, big-endian
//!  value   8  born    the commit that wrote it (the earliest, where neighbours were joined)
//!          4  pages   its length
//! ```
//!
//! **Reuse rule.** The extent was live in the commits [born, freed). It may be used again only if
//!
//! - `freed` is visible: otherwise commits that can still become visible refer to it;
//! - no reader slot, neither meta page on disk and no checkpoint target lies in [born, freed).
//!
//! The test is made when an extent is taken, so that one long reader keeps only what it can see, and not everything freed
//! after it began.
//!
//! A transaction takes entries into its [`Stock`] without touching the tree, uses pages from the end of each, and
//! writes back at its commit what has changed: an entry that was used in part keeps its key. So a commit changes a page
//! at the left edge of the tree, where the oldest entries are used up, and one at the right edge, where its own are added.

use std::ops::Range;

use crate::env::Inner;
use crate::error::{Error, Result};
use crate::guard::Guard;
use crate::head::FIRST_PAGE;
use crate::mapped::MappedPages;
use crate::page::{CommitNo, PageNo};
use crate::readers;
use crate::sync::{AtomicU64, Ordering};
use crate::tree::{TreeRecord, View};

/// How many entries of the free list one look for pages examines. A look that finds nothing lets the file grow, and the
/// next transaction looks further on.
const EXAMINED_MAX: usize = 256;

/// With so many pages at hand a look ends early.
const PAGES_ENOUGH: u64 = 16;

pub(crate) const KEY_BYTES: usize = 16;
pub(crate) const VALUE_BYTES: usize = 12;

/// An extent in the free list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct FreeExtent {
    pub(crate) freed: CommitNo,
    pub(crate) born: CommitNo,
    pub(crate) first: PageNo,
    pub(crate) pages: u32,
}

impl FreeExtent {
    pub(crate) fn key(&self) -> [u8; KEY_BYTES] {
        let mut key = [0; KEY_BYTES];
        key[..8].copy_from_slice(&self.freed.0.to_be_bytes());
        key[8..].copy_from_slice(&self.first.0.to_be_bytes());
        key
    }

    pub(crate) fn value(&self) -> [u8; VALUE_BYTES] {
        let mut value = [0; VALUE_BYTES];
        value[..8].copy_from_slice(&self.born.0.to_le_bytes());
        value[8..].copy_from_slice(&self.pages.to_le_bytes());
        value
    }

    /// Reads an entry; it lies within the first `limit` pages of the store.
    pub(crate) fn decode(key: &[u8], value: &[u8], limit: u64) -> Result<Self> {
        let damaged = || Error::Damaged("the free list has an impossible entry".into());
        let key: &[u8; KEY_BYTES] = key.try_into().map_err(|_| damaged())?;
        let value: &[u8; VALUE_BYTES] = value.try_into().map_err(|_| damaged())?;
        let (freed, first) = key.split_first_chunk::<8>().ok_or_else(damaged)?;
        let (born, pages) = value.split_first_chunk::<8>().ok_or_else(damaged)?;
        let extent = Self {
            freed: CommitNo(u64::from_be_bytes(*freed)),
            born: CommitNo(u64::from_le_bytes(*born)),
            first: PageNo(u64::from_be_bytes(first.try_into().map_err(|_| damaged())?)),
            pages: u32::from_le_bytes(pages.try_into().map_err(|_| damaged())?),
        };
        let end = extent.first.0.checked_add(u64::from(extent.pages));
        let inside = extent.first.0 >= FIRST_PAGE && end.is_some_and(|end| end <= limit);
        if inside && extent.pages > 0 && extent.born <= extent.freed {
            Ok(extent)
        } else {
            Err(damaged())
        }
    }

    pub(crate) fn range(&self) -> Range<u64> {
        self.first.0..self.first.0 + u64::from(self.pages)
    }
}

/// The commits whose pages must not be used again, as of one moment. Later readers can only pin later commits than the one
/// that was visible then, so what was allowed stays allowed.
#[derive(Debug)]
pub(crate) struct Protected {
    visible: CommitNo,
    /// Ascending.
    commits: Vec<CommitNo>,
}

impl Protected {
    pub(crate) fn now(inner: &Inner) -> Self {
        // First: see `readers` on why.
        let guards = inner.options.guards;
        let visible = if guards.has(Guard::ProtectInvisible) {
            inner.region.visible()
        } else {
            inner.region.applied()
        };
        let mut commits = Vec::new();
        let mut protect = |guard, commit| {
            if guards.has(guard) {
                commits.push(commit);
            }
        };
        for reader in readers::pinned(inner) {
            protect(Guard::ProtectReaders, reader.commit);
        }
        let load = |commit: &AtomicU64| CommitNo(commit.load(Ordering::SeqCst));
        let metas = &inner.region.metas;
        for commit in &metas.commits {
            protect(Guard::ProtectMetas, load(commit));
        }
        protect(Guard::ProtectTarget, load(&metas.target));
        Self::new(visible, commits)
    }

    fn new(visible: CommitNo, mut commits: Vec<CommitNo>) -> Self {
        commits.sort_unstable();
        Self { visible, commits }
    }

    /// The reuse rule.
    pub(crate) fn allows(&self, born: CommitNo, freed: CommitNo) -> bool {
        if freed > self.visible {
            return false;
        }
        let before = self.commits.partition_point(|&commit| commit < born);
        self.commits
            .get(before)
            .is_none_or(|&commit| commit >= freed)
    }
}

/// Pages that a write transaction may use, taken from the free list.
#[derive(Default, Debug)]
pub(crate) struct Stock {
    entries: Vec<StockEntry>,
    /// Where the search goes on; entries before it have been looked at.
    resume: [u8; KEY_BYTES],
    /// Set once the search has come to the end and begun again: it ends where it started.
    until: Option<[u8; KEY_BYTES]>,
    started: [u8; KEY_BYTES],
    exhausted: bool,
    protected: Option<Protected>,
    /// Entries before this one are used up.
    first_left: usize,
}

#[derive(Clone, Copy, Debug)]
struct StockEntry {
    extent: FreeExtent,
    left: u32,
    /// What the tree says is left.
    stored: u32,
}

/// Pages taken from a [`Stock`], to be given back with [`Stock::undo`] in the opposite order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Taken {
    entry: usize,
    pages: u32,
}

impl Stock {
    /// A stock that is filled from where an earlier transaction left off.
    pub(crate) fn resuming(at: [u8; KEY_BYTES]) -> Self {
        Self {
            resume: at,
            started: at,
            ..Self::default()
        }
    }

    /// Where the next transaction had best begin to look, once this one is committed.
    pub(crate) fn resume_at(&self) -> [u8; KEY_BYTES] {
        self.entries
            .iter()
            .find(|entry| entry.left > 0)
            .map_or(self.resume, |entry| entry.extent.key())
    }

    /// One page, if there is one at hand.
    pub(crate) fn take_page(&mut self) -> Option<(PageNo, Taken)> {
        while let Some(entry) = self.entries.get(self.first_left) {
            if entry.left > 0 {
                return Some(self.take_from(self.first_left, 1));
            }
            self.first_left += 1;
        }
        None
    }

    /// Consecutive pages, if they are at hand.
    pub(crate) fn take_extent(&mut self, pages: u32) -> Option<(PageNo, Taken)> {
        let entry = (self.first_left..self.entries.len())
            .filter(|&at| self.entries[at].left >= pages)
            .min_by_key(|&at| self.entries[at].left)?;
        Some(self.take_from(entry, pages))
    }

    fn take_from(&mut self, entry: usize, pages: u32) -> (PageNo, Taken) {
        let from = &mut self.entries[entry];
        from.left -= pages;
        let first = PageNo(from.extent.first.0 + u64::from(from.left));
        (first, Taken { entry, pages })
    }

    /// Undoes the last taking that has not been undone.
    pub(crate) fn undo(&mut self, taken: Taken) {
        self.entries[taken.entry].left += taken.pages;
        self.first_left = self.first_left.min(taken.entry);
    }

    /// Looks through the free list for more, in bounded time. Gives whether it is worth trying again.
    pub(crate) fn refill(
        &mut self,
        inner: &Inner,
        pages: &MappedPages,
        free: &TreeRecord,
    ) -> Result<bool> {
        if self.exhausted || free.records == 0 {
            self.exhausted = true;
            return Ok(false);
        }
        let protected = self.protected.get_or_insert_with(|| Protected::now(inner));
        let mut cursor = View::new(pages, *free).cursor();
        let mut on_entry = cursor.seek(&self.resume)?;
        let mut found: u64 = 0;
        for _ in 0..EXAMINED_MAX {
            let entry = if on_entry { cursor.record()? } else { None };
            let Some((key, value)) = entry else {
                if self.until.is_some() || self.started == [0; KEY_BYTES] {
                    self.exhausted = true;
                    break;
                }
                self.until = Some(self.started);
                self.resume = [0; KEY_BYTES];
                on_entry = cursor.first()?;
                continue;
            };
            if self.until.is_some_and(|until| *key >= until[..]) {
                self.exhausted = true;
                break;
            }
            let extent = FreeExtent::decode(key, value, pages.limit())?;
            if extent.freed > protected.visible {
                // So are all behind it: as at the end of the list.
                on_entry = false;
                continue;
            }
            self.resume = extent.key();
            increment(&mut self.resume);
            if protected.allows(extent.born, extent.freed) {
                self.entries.push(StockEntry {
                    extent,
                    left: extent.pages,
                    stored: extent.pages,
                });
                found += u64::from(extent.pages);
                if found >= PAGES_ENOUGH {
                    break;
                }
            }
            on_entry = cursor.next()?;
        }
        Ok(found > 0)
    }

    /// Whether all of the free list has been looked through.
    pub(crate) fn is_exhausted(&self) -> bool {
        self.exhausted
    }

    /// Entries whose remainder differs from what the tree says, each with its remaining pages (perhaps 0); from now on the
    /// tree is taken to say so.
    pub(crate) fn changed(&mut self) -> Vec<(FreeExtent, u32)> {
        let mut changed = Vec::new();
        for entry in &mut self.entries {
            if entry.left != entry.stored {
                entry.stored = entry.left;
                changed.push((entry.extent, entry.left));
            }
        }
        changed
    }
}

/// The next key in order.
fn increment(key: &mut [u8; KEY_BYTES]) {
    for byte in key.iter_mut().rev() {
        *byte = byte.wrapping_add(1);
        if *byte != 0 {
            break;
        }
    }
}

/// Joins neighbours among extents that were freed by the same commit.
pub(crate) fn join_neighbours(extents: &mut Vec<FreeExtent>) {
    extents.sort_unstable_by_key(|extent| extent.first);
    extents.dedup_by(|next, extent| {
        let joined = extent.pages.checked_add(next.pages);
        match joined {
            Some(pages) if extent.range().end == next.first.0 && extent.freed == next.freed => {
                extent.pages = pages;
                extent.born = extent.born.min(next.born);
                true
            }
            _ => false,
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn protected(visible: u64, commits: &[u64]) -> Protected {
        Protected::new(
            CommitNo(visible),
            commits.iter().map(|&commit| CommitNo(commit)).collect(),
        )
    }

    #[test]
    fn the_reuse_rule() {
        let rule = protected(20, &[10, 5, 15]);
        let allows = |born, freed| rule.allows(CommitNo(born), CommitNo(freed));
        assert!(allows(6, 10), "freed by the commit that is pinned");
        assert!(!allows(6, 11), "10 sees it");
        assert!(!allows(5, 6), "5 sees it");
        assert!(allows(11, 15));
        assert!(!allows(15, 16));
        assert!(allows(16, 20));
        assert!(!allows(16, 21), "20 is visible and sees it");
        assert!(allows(12, 12), "nobody ever saw it");
        assert!(!allows(21, 21), "not visible yet");
        assert!(protected(3, &[]).allows(CommitNo(1), CommitNo(3)));
    }

    #[test]
    fn neighbours_are_joined() {
        let extent = |first, pages, born| FreeExtent {
            freed: CommitNo(9),
            born: CommitNo(born),
            first: PageNo(first),
            pages,
        };
        let mut extents = vec![
            extent(12, 1, 8),
            extent(10, 2, 5),
            extent(20, 1, 1),
            extent(13, 4, 7),
        ];
        join_neighbours(&mut extents);
        assert_eq!(extents, [extent(10, 7, 5), extent(20, 1, 1)]);
    }

    #[test]
    fn entries_are_read_back_and_checked() {
        let extent = FreeExtent {
            freed: CommitNo(300),
            born: CommitNo(7),
            first: PageNo(70_000),
            pages: 3,
        };
        let (key, value) = (extent.key(), extent.value());
        let decode = |limit| FreeExtent::decode(&key, &value, limit);
        assert_eq!(decode(70_003).unwrap(), extent);
        assert!(decode(70_002).is_err());
        assert!(FreeExtent::decode(&key[1..], &value, 70_003).is_err());
        assert!(FreeExtent::decode(&key, &[], 70_003).is_err());
    }

    #[test]
    fn a_stock_is_used_from_the_ends_and_undone() {
        let mut stock = Stock::default();
        for (first, pages) in [(10, 2), (100, 50), (200, 8)] {
            stock.entries.push(StockEntry {
                extent: FreeExtent {
                    freed: CommitNo(1),
                    born: CommitNo(1),
                    first: PageNo(first),
                    pages,
                },
                left: pages,
                stored: pages,
            });
        }
        let (page, first) = stock.take_page().unwrap();
        assert_eq!(page, PageNo(11));
        let (extent, second) = stock.take_extent(5).unwrap();
        assert_eq!(extent, PageNo(203), "the smallest that suffices");
        assert_eq!(stock.take_extent(51), None);
        assert_eq!(stock.take_page().unwrap().0, PageNo(10));
        assert_eq!(stock.take_page().unwrap().0, PageNo(149));
        let changed: Vec<_> = stock.changed().iter().map(|change| change.1).collect();
        assert_eq!(changed, [0, 49, 3]);
        assert!(stock.changed().is_empty());
        stock.undo(second);
        stock.undo(first);
        assert_eq!(stock.take_page().unwrap().0, PageNo(10));
    }
}
