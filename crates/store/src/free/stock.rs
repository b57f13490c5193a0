//! Pages that a write transaction may use, taken from the free list.
//!
//! Records are taken whole, without touching the tree; what has been taken and is left is written back when the transaction
//! commits. A single page comes from what the commits right before have freed, the last one first (its pages are probably
//! still in the processor's caches, dirty and mapped for writing), then from the ready extents in the roots, then from what other commits have freed lately, then from the ready extents
//! in the tree, then from what is not blocked any more, then from a zone. Of what is not blocked any more, many pages go to the zones first and are taken
//! from there in the order of their numbers: the system writes pages that lie close together in less time. For
//! an extent, a bounded number of records and zones is looked at, and what does not suffice goes to the zones, where it merges:
//! if nothing is found, the file grows, and a later transaction finds more.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use super::recent::{self, Named, Recent};
use super::zone::{ZONE_PAGES, Zone, by_zone, zone_of};
use super::{
    FreeExtent, FreeRecord, PendingKey, Protected, READY_KEY, Run, UNBLOCKED, encode_ready,
    impossible, read_pending, zone_key,
};
use crate::env::Inner;
use crate::error::{Error, Result};
use crate::head::Roots;
use crate::mapped::MappedPages;
use crate::page::{CommitNo, PageNo};
use crate::tree::View;

/// How many records of the free list one look examines.
const EXAMINED_MAX: usize = 64;

/// With so many pages found a look for single pages ends: enough for several small commits, so that not each of them changes records of
/// earlier ones.
const PAGES_ENOUGH: u64 = 64;

/// If a look for single pages has found so many, they go to the zones, to be taken from there in order.
const PAGES_SWEPT: u64 = if cfg!(test) { 16 } else { 2 * PAGES_ENOUGH };

/// How many zones are searched for a run of pages, apart from those that a long run covers.
const ZONES_EXAMINED_MAX: u64 = 64;

/// Among so many extents one is chosen for a single page.
const CHOICE: usize = 16;

/// More ready extents than this are not kept; then so many of them stay.
const READY_MAX: usize = 128;
const READY_KEPT: usize = 64;

/// Of what the roots have room for, ready and pending extents take no more than so many bytes each when the tree has been written. What the next commits free
/// goes into the rest, until the tree is written again.
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

/// A look for pages: what it has found, and when it ends.
struct Look {
    left: usize,
    found: u64,
    enough: u64,
}

impl Look {
    fn is_over(&self) -> bool {
        self.left == 0 || self.found >= self.enough
    }
}

/// Pages that a write transaction may use.
#[derive(Debug)]
pub(crate) struct Stock {
    entries: Vec<Run>,
    /// Entries before this one are used up.
    first_left: usize,
    /// They were sorted, and are to be used in their order.
    lowest_first: bool,
    protected: Option<Protected>,
    /// The ready extents in the roots, until the first page is taken.
    recent_ready: Vec<Run>,
    /// What the commits before have freed and the roots name, as far as it cannot be used again yet; the oldest first.
    pending: Vec<FreeExtent>,
    /// Whether the pending extents have been tested.
    has_ripened: bool,
    /// What the roots are to name: the pending extents, and so many of those that are left.
    named: Option<(Recent, usize)>,
    /// The ready extents, as the tree has them; `None` before they were looked at.
    ready: Option<Vec<u8>>,
    /// Where the search goes on among pending extents that are not blocked, and among those that were.
    next_unblocked: PendingKey,
    next_blocked: PendingKey,
    has_seen_unblocked: bool,
    /// The last search ended for having looked at enough and not for having found enough: a next one that began anew might never
    /// get further.
    was_cut_off: bool,
    /// Some records may be met a second time.
    looks_again: bool,
    /// From which page on zones are searched.
    next_page: u64,
    /// How often the end of the zones was met in looking for single pages, and for runs.
    laps: u32,
    run_laps: u32,
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

/// Pages taken from a [`Stock`], to be given back with [`Stock::undo`] in the opposite order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Taken {
    entry: usize,
    pages: u32,
}

/// The free list as it was when the transaction began. All it speaks of was within the store then, which the transaction may make smaller.
#[derive(Clone, Copy)]
pub(crate) struct FreeList<'a> {
    pub(crate) inner: &'a Inner,
    pub(crate) pages: &'a MappedPages,
    pub(crate) roots: &'a Roots,
}

impl<'a> FreeList<'a> {
    fn view(&self) -> View<'a, MappedPages> {
        View::new(self.pages, self.roots.free)
    }

    fn decode(&self, key: &[u8], value: &[u8]) -> Result<FreeRecord> {
        FreeRecord::decode(key, value, self.roots.pages)
    }

    fn pending(&self, key: PendingKey, value: &[u8]) -> Result<Vec<FreeExtent>> {
        read_pending(key.freed, value, self.roots.pages).ok_or_else(impossible)
    }

    fn zone(&self, number: u64) -> Result<Option<Zone>> {
        let key = zone_key(number);
        match self.view().get(&key)? {
            None => Ok(None),
            Some(value) => match self.decode(&key, value)? {
                FreeRecord::Zone(_, zone) => Ok(Some(zone)),
                _ => Err(impossible()),
            },
        }
    }
}

impl Stock {
    /// A stock of what the roots name, which is filled from where an earlier transaction left off.
    pub(crate) fn resuming(at: Resume, named: Named) -> Self {
        let Named {
            ready,
            pending,
            spare,
            ..
        } = named;
        Self {
            entries: spare,
            first_left: 0,
            lowest_first: false,
            protected: None,
            recent_ready: ready,
            pending,
            has_ripened: false,
            named: None,
            ready: None,
            next_unblocked: PendingKey::first_of(UNBLOCKED),
            next_blocked: at.pending,
            has_seen_unblocked: false,
            was_cut_off: false,
            looks_again: false,
            next_page: at.page,
            laps: 0,
            run_laps: 0,
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
    pub(crate) fn ripen(&mut self, inner: &Inner) {
        if !self.has_ripened {
            self.test_pending(inner);
        }
    }

    fn test_pending(&mut self, inner: &Inner) {
        self.has_ripened = true;
        if !self.pending.is_empty() {
            let protected = self.protected.get_or_insert_with(|| Protected::now(inner));
            let ripe = self
                .pending
                .extract_if(.., |extent| protected.allows(extent));
            let before = self.entries.len();
            self.entries.extend(ripe.map(|extent| extent.run()));
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
    pub(crate) fn add(&mut self, run: Run) {
        self.entries.push(run);
    }

    /// Looks for more single pages, in bounded time. Gives whether it has found any; if not, there are hardly any.
    pub(crate) fn refill(&mut self, list: FreeList<'_>) -> Result<bool> {
        if self.take_unblocked(list)? > 0 || self.take_ready(list)? > 0 {
            return Ok(true);
        }
        let before = self.entries.len();
        let mut found = self.look(list, u64::MAX)?;
        if found >= PAGES_SWEPT {
            for run in self.entries.split_off(before) {
                self.change_zone(list, run, true)?;
            }
            found = 0;
        }
        if found < PAGES_ENOUGH {
            found += self.take_zone(list, PAGES_ENOUGH)?;
        }
        Ok(found > 0)
    }

    /// Looks for consecutive pages, in bounded time. If there are none, what was found instead will merge.
    pub(crate) fn refill_extent(&mut self, list: FreeList<'_>, pages: u32) -> Result<()> {
        self.look(list, u64::MAX)?;
        if !self.entries.iter().any(|entry| entry.pages >= pages) {
            self.take_run(list, pages)?;
        }
        Ok(())
    }

    /// Takes all pages that may be used again, however many there are; the lowest are to be used first. Before anything else is taken.
    pub(crate) fn take_all(&mut self, list: FreeList<'_>) -> Result<()> {
        self.ripen(list.inner);
        self.next_blocked = PendingKey::first_of(CommitNo(0));
        while !self.has_seen_all() {
            self.look(list, u64::MAX)?;
            self.take_zone(list, u64::MAX)?;
        }
        self.entries.retain(|run| run.pages > 0);
        self.entries.sort_unstable_by_key(|run| run.first);
        self.first_left = 0;
        self.lowest_first = true;
        Ok(())
    }

    /// Whether [`Stock::take_all`] was called.
    pub(crate) fn is_lowest_first(&self) -> bool {
        self.lowest_first
    }

    /// Leaves alone, of all pages that were taken, those from `tail` on; how many are left.
    pub(crate) fn leave_tail(&mut self, list: FreeList<'_>, tail: PageNo) -> Result<u64> {
        let below = self.entries.partition_point(|run| run.first < tail);
        let mut above = self.entries.split_off(below);
        if let Some(last) = self.entries.last_mut() {
            let kept = u32::try_from(tail.0 - last.first.0).unwrap_or(u32::MAX);
            if last.pages > kept {
                above.push(Run {
                    first: tail,
                    pages: last.pages - kept,
                });
                last.pages = kept;
            }
        }
        for run in above {
            self.change_zone(list, run, true)?;
        }
        Ok(self.entries.iter().map(|run| u64::from(run.pages)).sum())
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

    /// Whether there is no single page that has not been found.
    pub(crate) fn has_seen_all(&self) -> bool {
        self.has_seen_pending() && self.laps >= 2
    }

    /// Whether all extents and all runs in zones have been looked at.
    pub(crate) fn has_seen_all_runs(&self) -> bool {
        self.has_seen_pending() && self.run_laps >= 2
    }

    fn has_seen_pending(&self) -> bool {
        self.has_seen_unblocked && self.next_blocked.blocker == UNBLOCKED
    }

    /// Forgets what was protected, and looks at everything again: much may have been freed.
    pub(crate) fn look_again(&mut self) {
        self.protected = None;
        self.has_ripened = false;
        self.has_seen_unblocked = false;
        self.next_blocked = PendingKey::first_of(CommitNo(0));
        self.looks_again = true;
    }

    /// Takes what commits have freed lately, a bounded number of records.
    fn take_unblocked(&mut self, list: FreeList<'_>) -> Result<u64> {
        let mut look = Look {
            left: EXAMINED_MAX,
            found: 0,
            enough: PAGES_ENOUGH,
        };
        if list.roots.free.records > 0 {
            self.protected(list.inner);
            self.next_unblocked = self.take_pending(list, self.next_unblocked, &mut look)?;
        }
        Ok(look.found)
    }

    /// Takes ready and pending extents until there are `enough` pages, or enough has been looked at.
    fn look(&mut self, list: FreeList<'_>, enough: u64) -> Result<u64> {
        if list.roots.free.records == 0 {
            self.has_seen_unblocked = true;
            self.next_blocked = PendingKey::first_of(UNBLOCKED);
            return Ok(0);
        }
        let mut look = Look {
            left: EXAMINED_MAX,
            found: self.take_ready(list)?,
            enough,
        };
        self.protected(list.inner);
        self.next_unblocked = self.take_pending(list, self.next_unblocked, &mut look)?;
        if self.next_blocked.blocker != UNBLOCKED {
            self.next_blocked = self.take_pending(list, self.next_blocked, &mut look)?;
            self.was_cut_off = look.left == 0 && self.next_blocked.blocker != UNBLOCKED;
        }
        Ok(look.found)
    }

    fn take_ready(&mut self, list: FreeList<'_>) -> Result<u64> {
        if self.ready.is_some() {
            return Ok(0);
        }
        let value = list.view().get(&READY_KEY)?.unwrap_or_default();
        self.ready = Some(value.to_vec());
        let FreeRecord::Ready(runs) = list.decode(&READY_KEY, value)? else {
            return Err(impossible());
        };
        let found = runs.iter().map(|run| u64::from(run.pages)).sum();
        self.entries.extend(runs.into_iter().rev());
        Ok(found)
    }

    /// Takes pending records from a key on, those that nothing blocked or those that something did; gives where to go on.
    fn take_pending(
        &mut self,
        list: FreeList<'_>,
        from: PendingKey,
        look: &mut Look,
    ) -> Result<PendingKey> {
        let Some(protected) = &self.protected else {
            return Ok(from);
        };
        let unblocked = from.blocker == UNBLOCKED;
        let mut at = from;
        if look.is_over() {
            return Ok(at);
        }
        let mut cursor = list.view().cursor();
        let mut on_record = cursor.seek(&at.encode())?;
        while !look.is_over() {
            look.left -= 1;
            self.examined += 1;
            let record = if on_record { cursor.record()? } else { None };
            let key = match &record {
                Some((key, _)) => PendingKey::of(key)?,
                None => None,
            };
            let Some((key, (_, value))) = key.zip(record) else {
                // Behind the last one.
                self.has_seen_unblocked |= unblocked;
                return Ok(if unblocked {
                    at
                } else {
                    PendingKey::first_of(UNBLOCKED)
                });
            };
            if unblocked {
                if !protected.sees(key.freed) {
                    self.has_seen_unblocked = true;
                    return Ok(key);
                }
            } else if key.blocker == UNBLOCKED {
                return Ok(key);
            } else if protected.has(key.blocker) {
                at = PendingKey::first_of(CommitNo(key.blocker.0 + 1));
                on_record = cursor.seek(&at.encode())?;
                continue;
            }
            let extents = list.pending(key, value)?;
            at = key.next();
            on_record = cursor.next()?;
            if self.looks_again && self.taken.contains(&key) {
                continue;
            }
            for extent in extents {
                if protected.allows(&extent) {
                    self.entries.push(extent.run());
                    look.found += u64::from(extent.pages);
                } else {
                    self.blocked.push(extent);
                }
            }
            self.taken.push(key);
        }
        Ok(at)
    }

    /// Takes the next pages of the next zone that has any, until there are `enough`.
    fn take_zone(&mut self, list: FreeList<'_>, enough: u64) -> Result<u64> {
        while self.laps < 2 {
            while let Some((number, zone)) = self.zone_from(list, zone_of(self.next_page))? {
                self.examined += 1;
                let mut found = 0;
                let mut taken = Vec::new();
                for run in zone.runs_from(number, self.next_page) {
                    taken.push(run);
                    found += u64::from(run.pages);
                    if found >= enough {
                        break;
                    }
                }
                self.next_page = match taken.last() {
                    Some(last) if found >= enough => last.first.0 + u64::from(last.pages),
                    _ => (number + 1) * ZONE_PAGES,
                };
                if found > 0 {
                    for &run in &taken {
                        self.change_zone(list, run, false)?;
                    }
                    self.entries.extend(taken);
                    return Ok(found);
                }
            }
            // From the first zone on once more; then there is none that has not been taken.
            self.laps += 1;
            self.next_page = 0;
        }
        Ok(0)
    }

    /// The first zone from `number` on, as the transaction leaves it so far.
    fn zone_from(&self, list: FreeList<'_>, number: u64) -> Result<Option<(u64, Zone)>> {
        let mut cursor = list.view().cursor();
        let mut stored = None;
        if cursor.seek(&zone_key(number))?
            && let Some((key, value)) = cursor.record()?
            && let FreeRecord::Zone(number, zone) = list.decode(key, value)?
        {
            stored = Some((number, zone));
        }
        let changed = self.zones.range(number..).next();
        let first = stored.as_ref().map_or(u64::MAX, |(number, _)| *number);
        Ok(match changed {
            Some((&number, changed)) if number <= first => Some((number, changed.zone.clone())),
            _ => stored,
        })
    }

    /// Takes the first run of so many pages among the next zones, which may lie across their borders.
    fn take_run(&mut self, list: FreeList<'_>, pages: u32) -> Result<()> {
        let mut cursor = list.view().cursor();
        let mut on_zone = cursor.seek(&zone_key(zone_of(self.next_page)))?;
        let mut gathered = Run {
            first: PageNo(0),
            pages: 0,
        };
        let zones = ZONES_EXAMINED_MAX + u64::from(pages) / ZONE_PAGES;
        for _ in 0..zones {
            let record = match if on_zone { cursor.record()? } else { None } {
                Some((key, value)) => list.decode(key, value)?,
                None => FreeRecord::Ready(Vec::new()),
            };
            let FreeRecord::Zone(number, stored) = record else {
                // Behind the last one.
                self.run_laps += 1;
                self.next_page = 0;
                return Ok(());
            };
            self.examined += 1;
            let changed = self.zones.get(&number);
            let zone = changed.map_or(stored, |changed| changed.zone.clone());
            for run in zone.runs(number) {
                if gathered.first.0 + u64::from(gathered.pages) == run.first.0 {
                    gathered.pages = gathered.pages.saturating_add(run.pages);
                } else {
                    gathered = run;
                }
                if gathered.pages >= pages {
                    let run = Run { pages, ..gathered };
                    self.change_zone(list, run, false)?;
                    self.entries.push(run);
                    return Ok(());
                }
            }
            self.next_page = (number + 1) * ZONE_PAGES;
            on_zone = cursor.next()?;
        }
        // The last run may go on in the next zone.
        if gathered.pages > 0 {
            self.next_page = gathered.first.0;
        }
        Ok(())
    }

    /// Sets the bits of these pages. They have been the other way.
    fn change_zone(&mut self, list: FreeList<'_>, run: Run, free: bool) -> Result<()> {
        for (number, run) in by_zone(run) {
            let zone = match self.zones.entry(number) {
                Entry::Occupied(entry) => entry.into_mut(),
                Entry::Vacant(entry) => {
                    let stored = list.zone(number)?;
                    entry.insert(ChangedZone {
                        is_stored: stored.is_some(),
                        zone: stored.unwrap_or(Zone::EMPTY),
                    })
                }
            };
            if !zone.zone.set(run, free) {
                return Err(Error::Damaged("the free list has a page twice".into()));
            }
        }
        Ok(())
    }

    /// Moves what is left beyond a few extents to the zones. Called when the transaction needs hardly any more pages.
    pub(crate) fn put_aside(&mut self, list: FreeList<'_>) -> Result<()> {
        self.take_ready(list)?;
        // What was taken is not undone any more.
        self.entries.retain(|run| run.pages > 0);
        self.first_left = 0;
        if self.entries.len() > READY_MAX {
            // The lowest stay, for they lie together: scattered ones would keep others from merging.
            self.entries.sort_unstable_by_key(|run| run.first);
            for run in self.entries.split_off(READY_KEPT) {
                self.change_zone(list, run, true)?;
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

    /// What the roots are to name if the tree stays as it is: all that is left, and what this commit has freed. `None` if they have no room
    /// for it.
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
        ready.retain(|run| run.pages > 0);
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

    fn left(&self) -> impl DoubleEndedIterator<Item = Run> {
        let left = self.entries.iter().skip(self.first_left);
        left.filter(|run| run.pages > 0).copied()
    }

    /// How many of the extents that are left the roots name beside the tree.
    fn recent_left(&self) -> usize {
        let mut bytes = 0;
        self.left()
            .take_while(|run| {
                bytes += recent::run_bytes(*run);
                bytes <= RECENT_READY_BYTES
            })
            .count()
    }

    /// Takes in what this commit has freed, and gives what is to be filed in the tree: what cannot be used again soon, and what the roots have
    /// no room for.
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

    /// The ready extents that the roots do not name, if they are not what the tree says; from now on it is taken to say so.
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

    fn empty() -> Stock {
        let named = Named::of(&Recent::EMPTY, CommitNo(1), 2, None).unwrap();
        Stock::resuming(Resume::default(), named)
    }

    #[test]
    fn a_wanted_page_goes_before_others_if_it_is_among_the_next() {
        let mut stock = empty();
        for first in (10..50).step_by(2) {
            stock.add(Run {
                first: PageNo(first),
                pages: 1,
            });
        }
        let mut take = |wanted: u64| {
            let taken = stock.take_page(|page| page.0 == wanted).unwrap();
            taken.0.0
        };
        assert_eq!(take(20), 20);
        assert_eq!(take(20), 10);
        assert_eq!(take(48), 12, "too far behind");
        assert_eq!(take(14), 14);
        stock.lowest_first = true;
        let lowest = stock.take_page(|page| page.0 == 30).unwrap();
        assert_eq!(lowest.0, PageNo(16));
    }

    #[test]
    fn a_stock_is_used_from_the_ends_and_undone() {
        let mut stock = empty();
        for (first, pages) in [(10, 2), (100, 50), (200, 8)] {
            stock.add(Run {
                first: PageNo(first),
                pages,
            });
        }
        let (page, first) = stock.take_page(|_| true).unwrap();
        assert_eq!(page, PageNo(11));
        let (extent, second) = stock.take_extent(5).unwrap();
        assert_eq!(extent, PageNo(203), "the smallest that suffices");
        assert_eq!(stock.take_extent(51), None);
        assert_eq!(stock.take_page(|_| true).unwrap().0, PageNo(10));
        assert_eq!(stock.take_page(|_| true).unwrap().0, PageNo(149));
        for first in (1000..4000).step_by(30) {
            stock.add(Run {
                first: PageNo(first),
                pages: 1,
            });
        }
        assert!(stock.changed_ready().is_some());
        assert!(stock.changed_ready().is_none());
        let (mut named, _) = stock
            .recent(CommitNo(1))
            .unwrap()
            .decode(CommitNo(1), 4000)
            .unwrap();
        let ready = stock.ready.clone().unwrap();
        named.extend(super::super::read_ready(&ready, 4000).unwrap().iter().rev());
        assert!(named.into_iter().eq(stock.left()), "all of them, and once");
        stock.undo(second);
        stock.undo(first);
        assert_eq!(stock.take_page(|_| true).unwrap().0, PageNo(10));
    }
}
