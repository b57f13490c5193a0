//! What a compaction does to heaps: it has them filled further ahead, and gives up segments in which nothing lives any
//! more.

use super::damaged;
use crate::error::Result;
use crate::format::pointer::Segment;
use crate::heap::{HeapUse, SegmentUse, segment_key};
use crate::ids::{HeapNo, PageNo};
use crate::tree::View;
use crate::txn::pages::TxnPages;

/// A segment that a compaction begins has no more pages than its record needs, or so many: a larger one would not find
/// its place between what is in use.
const COMPACTED_SEGMENT_PAGES: u32 = if cfg!(test) { 4 } else { 32 };

impl TxnPages {
    /// Pages for a segment that has room for a record of so many bytes, and more if they are to be had.
    pub(super) fn take_segment(&mut self, usage: HeapUse, record_bytes: usize) -> Result<Segment> {
        let mut pages = usage.next_segment_pages(record_bytes);
        let least = HeapUse::default().next_segment_pages(record_bytes);
        if self.is_compacting() {
            pages = pages.min(COMPACTED_SEGMENT_PAGES).max(least);
            while pages > least && !self.allocator.has_extent(pages) {
                pages = (pages / 2).max(least);
            }
        }
        loop {
            match self.allocate_segment(pages) {
                // There may be room for a shorter one.
                Err(error) if error.is_full() && pages > least => pages = (pages / 2).max(least),
                first => {
                    let first = first?;
                    return Ok(Segment { first, pages });
                }
            }
        }
    }

    /// Has the next record of a heap begin a segment if the one that is being filled has pages from `tail` on, and the
    /// transaction has not added to it: where it had to begin one there, there is no better place.
    pub(crate) fn fill_none_behind(&mut self, heap: HeapNo, tail: PageNo) -> Result<()> {
        let at = self.open_heap(heap)?;
        let open = self.heaps.open[at];
        let usage = open.usage;
        let added = open.tail.and_then(|at| self.tails().get(at));
        if usage.open == PageNo(0) || added.is_some_and(|added| added.len > 0) {
            return Ok(());
        }
        let key = segment_key(heap, usage.open);
        let filled = self.segment_usage(&key)?;
        let filled = filled.ok_or_else(|| damaged(usage.open))?;
        if usage.open.0 + u64::from(filled.pages) > tail.0 {
            self.fill_no_more(at);
        }
        Ok(())
    }

    pub(super) fn fill_no_more(&mut self, at: usize) {
        let open = &mut self.heaps.open[at];
        open.tail = None;
        open.usage.open = PageNo(0);
    }

    /// Frees a segment if nothing in it lives, and it is not the one that is being filled; in a transaction without
    /// savepoints.
    pub(crate) fn free_if_empty(&mut self, heap: HeapNo, first: PageNo) -> Result<()> {
        self.note_tails()?;
        self.note_outdated()?;
        let at = self.open_heap(heap)?;
        let is_filled = self.heaps.open[at].usage.open == first || self.has_added_to(first);
        match self.segment_usage(&segment_key(heap, first))? {
            Some(SegmentUse { pages, live: 0, .. }) if !is_filled => {
                self.free_segment_of(heap, Segment { first, pages })
            }
            _ => Ok(()),
        }
    }

    /// Writes what the tree of segments says under a key, and the way to it, once more.
    pub(crate) fn rewrite_segment_record(&mut self, key: &[u8]) -> Result<()> {
        let value = View::new(&*self, self.heaps.segments).get(key)?;
        match value.map(<[u8]>::to_vec) {
            Some(value) => self.put_segment(key, &value),
            None => Ok(()),
        }
    }
}
