//! Pages that a write transaction may use, taken from the free list.
//!
//! Records are taken whole, without touching the tree; what has been taken and is left is written back when the
//! transaction commits. A single page comes from what the commits right before have freed, the last one first (its
//! pages are probably still in the processor's caches, dirty and mapped for writing), then from the ready extents in
//! the roots, then from what a [search] finds.

mod search;

use std::collections::BTreeMap;

use crate::env::Inner;
use crate::error::Result;
use crate::format::free_list::recent::{Named, Recent};
use crate::format::free_list::zone::Zone;
use crate::format::free_list::{
    FreeExtent, PageRange, PendingKey, UNBLOCKED, encode_ready, recent,
};
use crate::ids::{CommitNo, PageNo};
use crate::space::reuse::Protected;

pub(crate) use search::FreeList;

/// Among so many extents one is chosen for a single page.
const CHOICE: usize = 16;

/// More ready extents than this are not kept; then so many of them stay.
const READY_MAX: usize = 128;
const READY_KEPT: usize = 64;

/// Of what the roots have room for, ready and pending extents take no more than so many bytes each when the tree has
/// been written. What the next commits free goes into the rest, until the tree is written again.
const RECENT_READY_BYTES: usize = 100;
const RECENT_PENDING_BYTES: usize = 64;

/// Where one transaction's search ended and the next one's begins.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Resume {
    pending: PendingKey,
    page: u64,
}

impl Default for Resume {
    fn default() -> Self {
        Self {
            pending: PendingKey::first_of(CommitNo(0)),
            page: 0,
        }
    }
}

/// Pages that a write transaction may use.
#[derive(Debug)]
pub(crate) struct PageAllocator {
    entries: Vec<PageRange>,
    /// Entries before this one are used up.
    first_left: usize,
    /// They were sorted, and are to be used in their order.
    lowest_first: bool,
    protected: Option<Protected>,
    /// The ready extents in the roots, until the first page is taken.
    recent_ready: Vec<PageRange>,
    /// What the commits before have freed and the roots name, as far as it cannot be used again yet; the oldest first.
    pending: Vec<FreeExtent>,
    /// Whether the pending extents have been tested.
    has_reclaimed: bool,
    /// What the roots are to name: the pending extents, and so many of those that are left.
    named: Option<(Recent, usize)>,
    /// The ready extents, as the tree has them; `None` before they were looked at.
    ready: Option<Vec<u8>>,
    /// Where the search goes on among pending extents that are not blocked, and among those that were.
    next_unblocked: PendingKey,
    next_blocked: PendingKey,
    has_seen_unblocked: bool,
    /// The last search ended for having looked at enough and not for having found enough: a next one that began anew
    /// might never get further.
    was_cut_off: bool,
    /// Some records may be met a second time.
    looks_again: bool,
    /// From which page on zones are searched.
    next_page: u64,
    /// How often the end of the zones was met in looking for single pages, and for ranges.
    laps: u32,
    range_laps: u32,
    /// Pending records that were taken, and what of them is still blocked.
    taken: Vec<PendingKey>,
    blocked: Vec<FreeExtent>,
    /// Zones that differ from those in the tree, and whether they are there.
    zones: BTreeMap<u64, ChangedZone>,
    /// Records of the free list that were looked at.
    examined: u64,
}

#[derive(Debug)]
struct ChangedZone {
    zone: Zone,
    is_stored: bool,
}

/// Pages taken from a [`PageAllocator`], to be given back with [`PageAllocator::undo`] in the opposite order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Taken {
    entry: usize,
    pages: u32,
}

impl PageAllocator {
    /// An allocator of what the roots name, which is filled from where an earlier transaction left off.
    pub(crate) fn resuming(at: Resume, named: Named) -> Self {
        Self {
            entries: named.spare,
            first_left: 0,
            lowest_first: false,
            protected: None,
            recent_ready: named.ready,
            pending: named.pending,
            has_reclaimed: false,
            named: None,
            ready: None,
            next_unblocked: PendingKey::first_of(UNBLOCKED),
            next_blocked: at.pending,
            has_seen_unblocked: false,
            was_cut_off: false,
            looks_again: false,
            next_page: at.page,
            laps: 0,
            range_laps: 0,
            taken: Vec::new(),
            blocked: Vec::new(),
            zones: BTreeMap::new(),
            examined: 0,
        }
    }

    /// Where the next transaction had best begin to look, once this one is committed.
    pub(crate) fn resume_at(&self) -> Resume {
        let pending = Some(self.next_blocked).filter(|_| self.was_cut_off);
        Resume {
            pending: pending.unwrap_or(Resume::default().pending),
            page: self.next_page,
        }
    }

    /// How many records of the free list have been looked at.
    #[cfg(test)]
    pub(crate) fn examined(&self) -> u64 {
        self.examined
    }

    /// Tests what the roots name; to be called before anything is taken.
    #[inline]
    pub(crate) fn reclaim(&mut self, inner: &Inner) {
        if !self.has_reclaimed {
            self.test_pending(inner);
        }
    }

    fn test_pending(&mut self, inner: &Inner) {
        self.has_reclaimed = true;
        if !self.pending.is_empty() {
            let protected = self.protected.get_or_insert_with(|| Protected::now(inner));
            let ripe = self
                .pending
                .extract_if(.., |extent| protected.allows(extent));
            let before = self.entries.len();
            self.entries.extend(ripe.map(|extent| extent.page_range()));
            self.entries[before..].reverse();
        }
        self.entries.append(&mut self.recent_ready);
    }

    /// One page, if there is one at hand, and one that is wanted rather than another if it is among the next few.
    pub(crate) fn take_page(
        &mut self,
        is_wanted: impl Fn(PageNo) -> bool,
    ) -> Option<(PageNo, Taken)> {
        while self.entries.get(self.first_left)?.pages == 0 {
            self.first_left += 1;
        }
        let few = (self.first_left..self.entries.len()).take(CHOICE);
        let mut wanted = few.filter(|&at| {
            let last = self.entries[at].first.0 + u64::from(self.entries[at].pages);
            self.entries[at].pages > 0 && is_wanted(PageNo(last - 1))
        });
        let chosen = match self.lowest_first {
            true => None,
            false => wanted.next(),
        };
        Some(self.take_from(chosen.unwrap_or(self.first_left), 1))
    }

    /// Consecutive pages, if they are at hand.
    pub(crate) fn take_extent(&mut self, pages: u32) -> Option<(PageNo, Taken)> {
        let entry = (self.first_left..self.entries.len())
            .filter(|&at| self.entries[at].pages >= pages)
            .min_by_key(|&at| self.entries[at].pages)?;
        Some(self.take_from(entry, pages))
    }

    fn take_from(&mut self, entry: usize, pages: u32) -> (PageNo, Taken) {
        let from = &mut self.entries[entry];
        from.pages -= pages;
        let first = PageNo(from.first.0 + u64::from(from.pages));
        (first, Taken { entry, pages })
    }

    /// Whether so many pages in a row are at hand.
    pub(crate) fn has_extent(&self, pages: u32) -> bool {
        let mut left = self.entries.iter().skip(self.first_left);
        left.any(|entry| entry.pages >= pages)
    }

    /// Undoes the last taking that has not been undone.
    pub(crate) fn undo(&mut self, taken: Taken) {
        self.entries[taken.entry].pages += taken.pages;
        self.first_left = self.first_left.min(taken.entry);
    }

    /// Whether so many pages are at hand.
    pub(crate) fn has_pages(&self, wanted: u64) -> bool {
        let mut pages = 0;
        let mut left = self.entries.iter().skip(self.first_left);
        left.any(|entry| {
            pages += u64::from(entry.pages);
            pages >= wanted
        })
    }

    /// Adds pages that nobody but the transaction has ever referred to.
    pub(crate) fn add(&mut self, range: PageRange) {
        self.entries.push(range);
    }

    /// Whether [`PageAllocator::take_all`] was called.
    pub(crate) fn is_lowest_first(&self) -> bool {
        self.lowest_first
    }

    /// Leaves alone, of all pages that were taken, those from `tail` on; how many are left.
    pub(crate) fn leave_tail(&mut self, list: FreeList<'_>, tail: PageNo) -> Result<u64> {
        let below = self.entries.partition_point(|range| range.first < tail);
        let mut above = self.entries.split_off(below);
        if let Some(last) = self.entries.last_mut() {
            let kept = u32::try_from(tail.0 - last.first.0).unwrap_or(u32::MAX);
            if last.pages > kept {
                above.push(PageRange {
                    first: tail,
                    pages: last.pages - kept,
                });
                last.pages = kept;
            }
        }
        for range in above {
            self.change_zone(list, range, true)?;
        }
        // Most were freed one by one. Nothing has been taken of them yet.
        self.entries.dedup_by(|next, range| {
            let is_next = range.first.0 + u64::from(range.pages) == next.first.0;
            let joined = range.pages.checked_add(next.pages).filter(|_| is_next);
            range.pages = joined.unwrap_or(range.pages);
            joined.is_some()
        });
        Ok(self
            .entries
            .iter()
            .map(|range| u64::from(range.pages))
            .sum())
    }

    /// Gives up, of all pages that were taken, those at the end of a store of `limit` pages; how many it has then.
    pub(crate) fn cut_tail(&mut self, mut limit: u64) -> u64 {
        while let Some(last) = self.entries.last()
            && last.first.0 + u64::from(last.pages) == limit
        {
            limit = last.first.0;
            self.entries.pop();
        }
        limit
    }

    /// Moves what is left beyond a few extents to the zones. Called when the transaction needs hardly any more pages.
    pub(crate) fn put_aside(&mut self, list: FreeList<'_>) -> Result<()> {
        self.take_ready(list)?;
        // What was taken is not undone any more.
        self.entries.retain(|range| range.pages > 0);
        self.first_left = 0;
        if self.entries.len() > READY_MAX {
            // The lowest stay, for they lie together: scattered ones would keep others from merging.
            self.entries.sort_unstable_by_key(|range| range.first);
            for range in self.entries.split_off(READY_KEPT) {
                self.change_zone(list, range, true)?;
            }
        }
        Ok(())
    }

    /// The pending records that were taken, and what is left of them.
    pub(crate) fn take_records(&mut self) -> (Vec<PendingKey>, Vec<FreeExtent>) {
        let taken = std::mem::take(&mut self.taken);
        (taken, std::mem::take(&mut self.blocked))
    }

    /// What the tree is to say of zones that have changed: nothing, if a zone has no free page any more.
    pub(crate) fn changed_zones(&mut self) -> Vec<(u64, Option<Zone>)> {
        std::mem::take(&mut self.zones)
            .into_iter()
            .filter(|(_, zone)| zone.is_stored || !zone.zone.is_empty())
            .map(|(number, zone)| (number, Some(zone.zone).filter(|zone| !zone.is_empty())))
            .collect()
    }

    /// Whether nothing was taken from the tree.
    pub(crate) fn leaves_list_alone(&self) -> bool {
        let has_taken_ready = self.ready.as_ref().is_some_and(|ready| !ready.is_empty());
        self.taken.is_empty()
            && self.blocked.is_empty()
            && self.zones.is_empty()
            && !has_taken_ready
    }

    /// What the roots are to name if the tree stays as it is: all that is left, and what this commit has freed. `None`
    /// if they have no room for it.
    pub(crate) fn all_recent(&mut self, freed: &[FreeExtent], commit: CommitNo) -> Option<Recent> {
        let pending = self.pending.iter().chain(freed).copied();
        let recent = Recent::encode(self.left(), pending, commit)?;
        self.pending.extend_from_slice(freed);
        self.named = Some((recent, usize::MAX));
        Some(recent)
    }

    /// What the roots are to name beside the tree: what is used first.
    pub(crate) fn recent(&mut self, commit: CommitNo) -> Option<Recent> {
        let count = self.recent_left();
        let ready = self.left().take(count);
        let recent = Recent::encode(ready, self.pending.iter().copied(), commit)?;
        self.named = Some((recent, count));
        Some(recent)
    }

    /// What the roots of `commit` name, if they were prepared; for the end.
    pub(crate) fn take_named(&mut self, commit: CommitNo) -> Option<Named> {
        let (recent, count) = self.named.take()?;
        let mut ready = std::mem::take(&mut self.entries);
        ready.drain(..self.first_left);
        ready.retain(|range| range.pages > 0);
        ready.truncate(count);
        let mut spare = std::mem::take(&mut self.recent_ready);
        spare.clear();
        Some(Named {
            recent,
            commit,
            ready,
            pending: std::mem::take(&mut self.pending),
            spare,
        })
    }

    fn left(&self) -> impl DoubleEndedIterator<Item = PageRange> {
        let left = self.entries.iter().skip(self.first_left);
        left.filter(|range| range.pages > 0).copied()
    }

    /// How many of the extents that are left the roots name beside the tree.
    fn recent_left(&self) -> usize {
        let mut bytes = 0;
        self.left()
            .take_while(|range| {
                bytes += recent::range_bytes(*range);
                bytes <= RECENT_READY_BYTES
            })
            .count()
    }

    /// Takes in what this commit has freed, and gives what is to be filed in the tree: what cannot be used again soon,
    /// and what the roots have no room for.
    pub(crate) fn file_pending(
        &mut self,
        freed: Vec<FreeExtent>,
        commit: CommitNo,
        inner: &Inner,
    ) -> Vec<FreeExtent> {
        let mut pending = std::mem::take(&mut self.pending);
        pending.extend(freed);
        let protected = self.protected(inner);
        let mut bytes = 0;
        // The newest stay: they will be used first.
        let (mut stay, mut filed) = (Vec::new(), Vec::new());
        for extent in pending.into_iter().rev() {
            let added = recent::extent_bytes(&extent, commit);
            if protected.blocker(&extent) == UNBLOCKED && bytes + added <= RECENT_PENDING_BYTES {
                bytes += added;
                stay.push(extent);
            } else {
                filed.push(extent);
            }
        }
        stay.reverse();
        self.pending = stay;
        filed
    }

    /// The ready extents that the roots do not name, if they are not what the tree says; from now on it is taken to say
    /// so.
    pub(crate) fn changed_ready(&mut self) -> Option<Vec<u8>> {
        // What is used first stands last: what an earlier commit has written of the others stays as it is.
        let left: Vec<_> = self.left().skip(self.recent_left()).collect();
        let ready = encode_ready(left.into_iter().rev());
        if self.ready.as_deref().unwrap_or_default() == ready {
            return None;
        }
        self.ready = Some(ready.clone());
        Some(ready)
    }

    /// What the reuse rule forbids at the moment.
    pub(crate) fn protected(&mut self, inner: &Inner) -> &Protected {
        self.protected.get_or_insert_with(|| Protected::now(inner))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn empty() -> PageAllocator {
        let named = Named::of(&Recent::EMPTY, CommitNo(1), 2, None).unwrap();
        PageAllocator::resuming(Resume::default(), named)
    }

    #[test]
    fn a_wanted_page_goes_before_others_if_it_is_among_the_next() {
        let mut allocator = empty();
        for first in (10..50).step_by(2) {
            allocator.add(PageRange {
                first: PageNo(first),
                pages: 1,
            });
        }
        let mut take = |wanted: u64| {
            let taken = allocator.take_page(|page| page.0 == wanted).unwrap();
            taken.0.0
        };
        assert_eq!(take(20), 20);
        assert_eq!(take(20), 10);
        assert_eq!(take(48), 12, "too far behind");
        assert_eq!(take(14), 14);
        allocator.lowest_first = true;
        let lowest = allocator.take_page(|page| page.0 == 30).unwrap();
        assert_eq!(lowest.0, PageNo(16));
    }

    #[test]
    fn an_allocator_is_used_from_the_ends_and_undone() {
        let mut allocator = empty();
        for (first, pages) in [(10, 2), (100, 50), (200, 8)] {
            allocator.add(PageRange {
                first: PageNo(first),
                pages,
            });
        }
        let (page, first) = allocator.take_page(|_| true).unwrap();
        assert_eq!(page, PageNo(11));
        let (extent, second) = allocator.take_extent(5).unwrap();
        assert_eq!(extent, PageNo(203), "the smallest that suffices");
        assert_eq!(allocator.take_extent(51), None);
        assert_eq!(allocator.take_page(|_| true).unwrap().0, PageNo(10));
        assert_eq!(allocator.take_page(|_| true).unwrap().0, PageNo(149));
        for first in (1000..4000).step_by(30) {
            allocator.add(PageRange {
                first: PageNo(first),
                pages: 1,
            });
        }
        assert!(allocator.changed_ready().is_some());
        assert!(allocator.changed_ready().is_none());
        let (mut named, _) = allocator
            .recent(CommitNo(1))
            .unwrap()
            .decode(CommitNo(1), 4000)
            .unwrap();
        let ready = allocator.ready.clone().unwrap();
        named.extend(
            crate::format::free_list::read_ready(&ready, 4000)
                .unwrap()
                .iter()
                .rev(),
        );
        assert!(
            named.into_iter().eq(allocator.left()),
            "all of them, and once"
        );
        allocator.undo(second);
        allocator.undo(first);
        assert_eq!(allocator.take_page(|_| true).unwrap().0, PageNo(10));
    }
}
