//! The search for more pages in the free list.
//!
//! A single page comes from what commits have freed lately, then from the ready extents in the tree, then from what is
//! not blocked any more, then from a zone. Of what is not blocked any more, many pages go to the zones first and are
//! taken from there in the order of their numbers: the system writes pages that lie close together in less time. For an
//! extent, a bounded number of records and zones is looked at, and what does not suffice goes to the zones, where it
//! merges: if nothing is found, the file grows, and a later transaction finds more.

use std::collections::btree_map::Entry;

use super::{ChangedZone, PageAllocator};
use crate::env::Inner;
use crate::env::mapping::MappedPages;
use crate::error::{Error, Result};
use crate::format::free_list::zone::{ZONE_PAGES, Zone, by_zone, zone_of};
use crate::format::free_list::{
    FreeExtent, FreeRecord, PageRange, PendingKey, READY_KEY, UNBLOCKED, impossible, read_pending,
    zone_key,
};
use crate::format::roots::Roots;
use crate::ids::{CommitNo, PageNo};
use crate::tree::View;

/// How many records of the free list one look examines.
const EXAMINED_MAX: usize = 64;

/// With so many pages found a look for single pages ends: enough for several small commits, so that not each of them
/// changes records of earlier ones.
const PAGES_ENOUGH: u64 = 64;

/// If a look for single pages has found so many, they go to the zones, to be taken from there in order.
const PAGES_SWEPT: u64 = if cfg!(test) { 16 } else { 2 * PAGES_ENOUGH };

/// How many zones are searched for a range of pages, apart from those that a long range covers.
const ZONES_EXAMINED_MAX: u64 = 64;

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

/// The free list as it was when the transaction began. All it speaks of was within the store then, which the
/// transaction may make smaller.
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

impl PageAllocator {
    /// Looks for more single pages, in bounded time. Gives whether it has found any; if not, there are hardly any.
    pub(crate) fn refill(&mut self, list: FreeList<'_>) -> Result<bool> {
        if self.take_unblocked(list)? > 0 || self.take_ready(list)? > 0 {
            return Ok(true);
        }
        let before = self.entries.len();
        let mut found = self.look(list, u64::MAX)?;
        if found >= PAGES_SWEPT {
            for range in self.entries.split_off(before) {
                self.change_zone(list, range, true)?;
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
            self.take_range(list, pages)?;
        }
        Ok(())
    }

    /// Takes all pages that may be used again, however many there are; the lowest are to be used first. Before anything
    /// else is taken.
    pub(crate) fn take_all(&mut self, list: FreeList<'_>) -> Result<()> {
        self.reclaim(list.inner);
        self.next_blocked = PendingKey::first_of(CommitNo(0));
        while !self.has_seen_all() {
            self.look(list, u64::MAX)?;
            self.take_zone(list, u64::MAX)?;
        }
        self.entries.retain(|range| range.pages > 0);
        self.entries.sort_unstable_by_key(|range| range.first);
        self.first_left = 0;
        self.lowest_first = true;
        Ok(())
    }

    /// Whether there is no single page that has not been found.
    pub(crate) fn has_seen_all(&self) -> bool {
        self.has_seen_pending() && self.laps >= 2
    }

    /// Whether all extents and all ranges in zones have been looked at.
    pub(crate) fn has_seen_all_ranges(&self) -> bool {
        self.has_seen_pending() && self.range_laps >= 2
    }

    fn has_seen_pending(&self) -> bool {
        self.has_seen_unblocked && self.next_blocked.blocker == UNBLOCKED
    }

    /// Forgets what was protected, and looks at everything again: much may have been freed.
    pub(crate) fn look_again(&mut self) {
        self.protected = None;
        self.has_reclaimed = false;
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

    pub(super) fn take_ready(&mut self, list: FreeList<'_>) -> Result<u64> {
        if self.ready.is_some() {
            return Ok(0);
        }
        let value = list.view().get(&READY_KEY)?.unwrap_or_default();
        self.ready = Some(value.to_vec());
        let FreeRecord::Ready(ranges) = list.decode(&READY_KEY, value)? else {
            return Err(impossible());
        };
        let found = ranges.iter().map(|range| u64::from(range.pages)).sum();
        self.entries.extend(ranges.into_iter().rev());
        Ok(found)
    }

    /// Takes pending records from a key on, those that nothing blocked or those that something did; gives where to go
    /// on.
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
                return Ok(match unblocked {
                    true => at,
                    false => PendingKey::first_of(UNBLOCKED),
                });
            };
            if unblocked {
                if !protected.sees(key.freed) {
                    self.has_seen_unblocked = true;
                    return Ok(key);
                }
            } else if key.blocker == UNBLOCKED {
                return Ok(key);
            } else if protected.has(key.blocker) || !protected.sees(key.freed) {
                // The others with this blocker were freed later.
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
                    self.entries.push(extent.page_range());
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
                for range in zone.ranges_from(number, self.next_page) {
                    taken.push(range);
                    found += u64::from(range.pages);
                    if found >= enough {
                        break;
                    }
                }
                self.next_page = match taken.last() {
                    Some(last) if found >= enough => last.first.0 + u64::from(last.pages),
                    _ => (number + 1) * ZONE_PAGES,
                };
                if found > 0 {
                    for &range in &taken {
                        self.change_zone(list, range, false)?;
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

    /// Takes the first range of so many pages among the next zones, which may lie across their borders.
    fn take_range(&mut self, list: FreeList<'_>, pages: u32) -> Result<()> {
        let mut cursor = list.view().cursor();
        let mut on_zone = cursor.seek(&zone_key(zone_of(self.next_page)))?;
        let mut gathered = PageRange {
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
                self.range_laps += 1;
                self.next_page = 0;
                return Ok(());
            };
            self.examined += 1;
            let changed = self.zones.get(&number);
            let zone = changed.map_or(stored, |changed| changed.zone.clone());
            for range in zone.ranges(number) {
                if gathered.first.0 + u64::from(gathered.pages) == range.first.0 {
                    gathered.pages = gathered.pages.saturating_add(range.pages);
                } else {
                    gathered = range;
                }
                if gathered.pages >= pages {
                    let range = PageRange { pages, ..gathered };
                    self.change_zone(list, range, false)?;
                    self.entries.push(range);
                    return Ok(());
                }
            }
            self.next_page = (number + 1) * ZONE_PAGES;
            on_zone = cursor.next()?;
        }
        // The last range may go on in the next zone.
        if gathered.pages > 0 {
            self.next_page = gathered.first.0;
        }
        Ok(())
    }

    /// Sets the bits of these pages. They have been the other way.
    pub(super) fn change_zone(
        &mut self,
        list: FreeList<'_>,
        range: PageRange,
        free: bool,
    ) -> Result<()> {
        for (number, range) in by_zone(range) {
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
            if !zone.zone.set(range, free) {
                return Err(Error::Damaged("the free list has a page twice".into()));
            }
        }
        Ok(())
    }
}

impl Inner {
    /// The free list as of a commit.
    pub(crate) fn free_list<'a>(
        &'a self,
        pages: &'a MappedPages,
        roots: &'a Roots,
    ) -> FreeList<'a> {
        FreeList {
            inner: self,
            pages,
            roots,
        }
    }
}
