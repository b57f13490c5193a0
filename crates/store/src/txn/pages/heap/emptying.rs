//! Segments in which little lives, and the room that emptying them gives.

use super::damaged;
use crate::env::RESERVE_PAGES;
use crate::error::Result;
use crate::format::page::PAGE_BYTES;
use crate::format::pointer::{RecordPointer, Segment};
use crate::heap::{SegmentUse, segment_key, segment_of};
use crate::ids::{HeapNo, PageNo};
use crate::tree::View;
use crate::txn::pages::TxnPages;

/// For each page of a segment that new values begin so many pages of others are emptied at most, and for as much as a
/// page holds of what is removed.
pub(super) const PAGES_MAX: u32 = 4;

/// So many segments are chosen as victims with one look at all of them, or a share of all.
const VICTIMS_M: usize = 4;
const VICTIMS_SHARE: usize = 32;

/// Where more bytes of each page live, a segment is not worth being emptied.
const LIVE_SHARE_MAX: u64 = PAGE_BYTES as u64 * 3 / 4;

/// For each heap some segments in which little lives, as far as was known when they were noted: what a process keeps
/// from one transaction to the next.
#[derive(Default)]
pub(in crate::txn::pages) struct Victims(Vec<(HeapNo, Vec<PageNo>)>);

#[cfg(test)]
thread_local! {
    static EMPTIED: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

/// How many segments this thread has emptied.
#[cfg(test)]
pub(crate) fn emptied() -> u64 {
    EMPTIED.get()
}

impl TxnPages {
    /// The segment of a heap with the fewest newest records, if one is to be emptied. What this transaction has added
    /// to stays.
    pub(in crate::txn::pages) fn segment_to_empty_of(
        &mut self,
        heap: HeapNo,
    ) -> Result<Option<(Segment, u32)>> {
        let at = self.open_heap(heap)?;
        let open = &mut self.heaps.open[at];
        if open.emptied_left == 0 || !open.usage.is_wasteful() {
            return Ok(None);
        }
        if !self.has_savepoint() {
            self.note_tails()?;
            self.note_outdated()?;
        }
        let mut found = self.next_victim(heap)?;
        if found.is_none() {
            let victims = self.choose_victims(heap)?;
            self.shop.victims.0.retain(|(other, _)| *other != heap);
            self.shop.victims.0.push((heap, victims));
            found = self.next_victim(heap)?;
        }
        let left = &mut self.heaps.open[at].emptied_left;
        *left = found.map_or(0, |(segment, _)| left.saturating_sub(segment.pages));
        Ok(found)
    }

    /// The next of the segments that were chosen as victims, if it still is worth while.
    fn next_victim(&mut self, heap: HeapNo) -> Result<Option<(Segment, u32)>> {
        loop {
            let mut known = self.shop.victims.0.iter_mut();
            let known = known.find(|(other, _)| *other == heap);
            let Some(first) = known.and_then(|(_, known)| known.pop()) else {
                return Ok(None);
            };
            if let Some(usage) = self.segment_usage(&segment_key(heap, first))?
                && usage.live_share() <= LIVE_SHARE_MAX
                && !self.has_added_to(first)
            {
                let pages = usage.pages;
                return Ok(Some((Segment { first, pages }, usage.used)));
            }
        }
    }

    /// Those segments of a heap in which the fewest bytes live, the first of them last. A look at all of them is not
    /// for each one that is emptied.
    fn choose_victims(&self, heap: HeapNo) -> Result<Vec<PageNo>> {
        let mut found = Vec::new();
        let mut cursor = View::new(self, self.heaps.segments).cursor();
        let mut is_there = cursor.seek_after(&segment_key(heap, PageNo(0)))?;
        while is_there && let Some((key, value)) = cursor.record()? {
            let Some(first) = segment_of(heap, key) else {
                break;
            };
            let usage = SegmentUse::decode(value).ok_or_else(|| damaged(first))?;
            // Of a larger one more may live.
            let share = usage.live_share();
            if share <= LIVE_SHARE_MAX && !self.has_added_to(first) {
                found.push((share, first));
            }
            is_there = cursor.next()?;
        }
        let kept = found.len().min(VICTIMS_M + found.len() / VICTIMS_SHARE);
        if kept < found.len() {
            found.select_nth_unstable(kept);
            found.truncate(kept);
        }
        found.sort_unstable_by(|one, next| next.cmp(one));
        Ok(found.into_iter().map(|(_, first)| first).collect())
    }

    /// Whether so many pages are to be had without those that are kept for others.
    pub(in crate::txn::pages) fn has_room_for(&mut self, pages: u64) -> Result<bool> {
        let end = self.view.limit() + pages;
        match self.inner.make_room(end, RESERVE_PAGES) {
            Err(error) if !error.is_full() => Err(error),
            result => Ok(result.is_ok() || self.allocator.has_pages(pages)),
        }
    }

    /// Frees a segment out of which all that lives was moved.
    pub(in crate::txn::pages) fn free_segment_of(
        &mut self,
        heap: HeapNo,
        segment: Segment,
    ) -> Result<()> {
        #[cfg(test)]
        EMPTIED.set(EMPTIED.get() + 1);
        let at = self.open_heap(heap)?;
        let Some(usage) = self.segment_usage(&segment_key(heap, segment.first))? else {
            // As soon as it was seen to be empty.
            return Ok(());
        };
        // Those that were moved are counted where they are now, and those that are outdated are not counted any more.
        let is_inside = |(other, pointer, _): &&(HeapNo, RecordPointer, u32)| {
            *other == heap && segment.has(*pointer)
        };
        let outdated = self.heaps.outdated.iter().filter(is_inside);
        let outdated = outdated.map(|(.., bytes)| u64::from(*bytes)).sum();
        let counted = u64::from(usage.live).saturating_sub(outdated);
        self.give_up_segment(at, segment, counted)
    }
}
