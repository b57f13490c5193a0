//! Records out of line: a write transaction adds them to the segments of their heap, and keeps count of what lives
//! there.

mod emptying;
mod logged;
mod moved;

use super::TxnPages;
use crate::env::mapping::{Tail, TxnRecords};
use crate::error::{Error, Result};
use crate::format::free_list::FreeExtent;
use crate::format::page::PAGE_BYTES;
use crate::format::pages::{ReadPages, WritePages, WriteRecords};
use crate::format::pointer::{RecordPointer, Segment};
use crate::format::pointer_leaf;
use crate::format::tree_record::TreeRecord;
use crate::heap::{
    HeapUse, RECORD_BYTES_MAX, Record, SEGMENT_HEADER_BYTES, SEGMENT_PAGES_MAX, SegmentUse,
    segment_key, segment_of,
};
use crate::ids::{CommitNo, HeapNo, PageNo};
use crate::log::append::record_bytes_max;
use crate::tree;
use crate::tree::View;
use crate::txn::pages::states::State;
use crate::txn::pages::undo::{Destination, Undo};

/// So many records that were replaced are kept in mind before what that means for their segments is noted.
const OUTDATED_MAX: usize = 1 << 14;

const SEGMENT_BYTES: u64 = SEGMENT_PAGES_MAX as u64 * PAGE_BYTES as u64;

/// A record's place in the log takes so many bytes at most, for each record that is stored to in its place.
const PLACE_LOG_BYTES: usize = 24;

pub(super) use emptying::Victims;
#[cfg(test)]
pub(crate) use emptying::emptied;

/// What a transaction knows of heaps.
#[derive(Default)]
pub(super) struct Heaps {
    /// The tree of all segments, but for what `outdated` and the tails say.
    segments: TreeRecord,
    /// Those that the transaction has looked up.
    open: Vec<OpenHeap>,
    /// Records that are not the newest of their keys any more: their heaps, pointers and bytes.
    outdated: Vec<(HeapNo, RecordPointer, u32)>,
}

#[derive(Clone, Copy)]
struct OpenHeap {
    heap: HeapNo,
    /// `live` is as of all changes.
    usage: HeapUse,
    /// The index of the tail that is being filled.
    tail: Option<usize>,
    /// How many pages may still be emptied.
    emptied_left: u32,
}

/// The state of heaps and tails at a savepoint.
#[derive(Default)]
pub(super) struct HeapsBefore {
    segments: TreeRecord,
    open: Vec<OpenHeap>,
    /// How many were outdated: while there is a savepoint they stay in mind.
    outdated: usize,
    /// The ends of all tails.
    tails: Vec<u32>,
}

impl Heaps {
    pub(super) fn new(segments: TreeRecord) -> Self {
        Self {
            segments,
            ..Self::default()
        }
    }
}

fn damaged(segment: PageNo) -> Error {
    Error::corrupt(segment, "what is known of a segment contradicts itself")
}

impl TxnPages {
    /// A number for the heap of a new tree.
    pub(crate) fn new_heap(&mut self) -> Result<HeapNo> {
        let key = segment_key(HeapNo::default(), PageNo(0));
        // A number that is given out twice would mix the records of two trees.
        let mut usage = self.heap_usage(&key)?;
        usage.open.0 += 1;
        let heap = u32::try_from(usage.open.0).map_err(|_| damaged(self.heaps.segments.root))?;
        self.put_segment(&key, &usage.encode())?;
        Ok(HeapNo(heap))
    }

    /// The tree of all segments, once everything is noted there.
    pub(crate) fn save_heaps(&mut self) -> Result<TreeRecord> {
        self.note_tails()?;
        self.note_outdated()?;
        for open in std::mem::take(&mut self.heaps.open) {
            let key = segment_key(open.heap, PageNo(0));
            // What there is nothing of needs no record.
            match open.usage == HeapUse::default() {
                true => self.delete_segment(&key)?,
                false => self.put_segment(&key, &open.usage.encode())?,
            }
        }
        Ok(self.heaps.segments)
    }

    /// Has the tree of all segments say this.
    fn put_segment(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        let mut segments = self.heaps.segments;
        tree::put(self, &mut segments, key, value)?;
        self.heaps.segments = segments;
        Ok(())
    }

    fn delete_segment(&mut self, key: &[u8]) -> Result<()> {
        let mut segments = self.heaps.segments;
        tree::delete(self, &mut segments, key)?;
        self.heaps.segments = segments;
        Ok(())
    }

    /// What was added to segments.
    fn tails(&self) -> &[Tail] {
        let own = self.view.records.as_deref();
        own.map_or(&[], |own| &own.tails)
    }

    /// Has the transaction's tree of segments say which segments hold fewer newest records. Those with none are freed,
    /// but for those that it has added to or might.
    fn note_outdated(&mut self) -> Result<()> {
        let mut outdated = std::mem::take(&mut self.heaps.outdated);
        outdated.sort_unstable();
        let mut at = 0;
        while let Some(&(heap, pointer, _)) = outdated.get(at) {
            let found = self.segment_with(heap, pointer)?;
            let Some((segment, mut usage)) = found else {
                // It has been freed meanwhile, with all that was in it.
                at += 1;
                continue;
            };
            let end = segment.first.0 + u64::from(segment.pages);
            let here = outdated[at..]
                .iter()
                .take_while(|(other, pointer, _)| *other == heap && pointer.page().0 < end);
            let mut bytes = 0;
            for (_, _, length) in here {
                bytes = length.saturating_add(bytes);
                at += 1;
            }
            usage.live = usage
                .live
                .checked_sub(bytes)
                .ok_or_else(|| damaged(segment.first))?;
            let open = self.open_heap(heap)?;
            let is_filled = self.heaps.open[open].usage.open == segment.first;
            if usage.live == 0 && !is_filled && !self.has_added_to(segment.first) {
                self.give_up_segment(open, segment, 0)?;
                continue;
            }
            self.put_segment(&segment_key(heap, segment.first), &usage.encode())?;
        }
        outdated.clear();
        self.heaps.outdated = outdated;
        Ok(())
    }

    /// The same for what was added.
    fn note_tails(&mut self) -> Result<()> {
        let new = self.tails().iter().enumerate();
        let new = new.filter(|(_, tail)| tail.noted != tail.end());
        let new: Vec<_> = new
            .map(|(at, tail)| (at, tail.heap, tail.segment, tail.end()))
            .collect();
        for (at, heap, segment, end) in new {
            if let Some(tail) = self.view.records_or_new().tails.get_mut(at) {
                tail.noted = end;
            }
            let key = segment_key(heap, segment.first);
            let Some(usage) = self.segment_usage(&key)? else {
                // Everything in it has been removed.
                continue;
            };
            let added = end.saturating_sub(usage.used.max(SEGMENT_HEADER_BYTES as u32));
            let usage = SegmentUse {
                used: end,
                live: usage.live + added,
                ..usage
            };
            self.put_segment(&key, &usage.encode())?;
        }
        Ok(())
    }

    /// What is known of a heap, which may be nothing.
    fn heap_usage(&self, key: &[u8]) -> Result<HeapUse> {
        let stored = View::new(self, self.heaps.segments).get(key)?;
        let usage = stored.map_or(Some(HeapUse::default()), HeapUse::decode);
        usage.ok_or_else(|| damaged(self.heaps.segments.root))
    }

    fn segment_usage(&self, key: &[u8]) -> Result<Option<SegmentUse>> {
        let found = View::new(self, self.heaps.segments).get(key)?;
        let decode =
            |value| SegmentUse::decode(value).ok_or_else(|| damaged(self.heaps.segments.root));
        found.map(decode).transpose()
    }

    /// The segment of a heap in which a pointer is, if there is one.
    fn segment_with(
        &self,
        heap: HeapNo,
        pointer: RecordPointer,
    ) -> Result<Option<(Segment, SegmentUse)>> {
        let mut cursor = View::new(self, self.heaps.segments).cursor();
        if !cursor.seek_back(&segment_key(heap, pointer.page()))? {
            return Ok(None);
        }
        let Some((key, value)) = cursor.record()? else {
            return Ok(None);
        };
        let Some(first) = segment_of(heap, key) else {
            return Ok(None);
        };
        let usage = SegmentUse::decode(value).ok_or_else(|| damaged(first))?;
        let pages = usage.pages;
        let segment = Segment { first, pages };
        Ok(segment.has(pointer).then_some((segment, usage)))
    }

    /// The index of what is known of a heap.
    fn open_heap(&mut self, heap: HeapNo) -> Result<usize> {
        let known = self.heaps.open.iter().position(|open| open.heap == heap);
        if let Some(at) = known {
            return Ok(at);
        }
        let key = segment_key(heap, PageNo(0));
        let usage = self.heap_usage(&key)?;
        let mut tail = None;
        if usage.open != PageNo(0) {
            let found = self.segment_usage(&segment_key(heap, usage.open))?;
            let SegmentUse { pages, used, .. } = found.ok_or_else(|| damaged(usage.open))?;
            let first = usage.open;
            let segment = Segment { first, pages };
            tail = Some(self.begin_tail(heap, segment, used, &[]));
        }
        self.heaps.open.push(OpenHeap {
            heap,
            usage,
            tail,
            emptied_left: 0,
        });
        Ok(self.heaps.open.len() - 1)
    }

    fn begin_tail(&mut self, heap: HeapNo, segment: Segment, from: u32, begin: &[u8]) -> usize {
        let own = self.view.records_or_new();
        let mut bytes = own.tail_bytes();
        bytes.extend_from_slice(begin);
        own.tails.push(Tail {
            heap,
            segment,
            from,
            len: bytes.len() as u32,
            bytes,
            moved: Vec::new(),
            noted: 0,
        });
        own.tails.len() - 1
    }

    /// A segment for a record of so many bytes, and more.
    fn begin_segment(&mut self, at: usize, record_bytes: usize) -> Result<usize> {
        let OpenHeap { heap, usage, .. } = self.heaps.open[at];
        let segment = self.take_segment(usage, record_bytes)?;
        let Segment { first, pages } = segment;
        let entry = SegmentUse {
            pages,
            used: SEGMENT_HEADER_BYTES as u32,
            live: 0,
        };
        self.put_segment(&segment_key(heap, first), &entry.encode())?;
        self.heaps.open[at].tail = None;
        self.write_out_tails()?;
        // Behind the newest meta page: see `Segment`. A checkpoint under way does not count, for it may fail.
        let written = self.inner.region.metas.written();
        let header = segment.header(self.commit, CommitNo(written.0 + 1));
        let tail = self.begin_tail(heap, segment, 0, &header);
        let open = &mut self.heaps.open[at];
        open.usage.open = first;
        open.usage.pages += u64::from(pages);
        open.tail = Some(tail);
        Ok(tail)
    }

    /// Takes a segment that was built into the heap of a tree that nobody else knows yet.
    pub(crate) fn keep_built_segment(
        &mut self,
        heap: HeapNo,
        segment: Segment,
        used: u32,
    ) -> Result<()> {
        let at = self.open_heap(heap)?;
        let live = used - SEGMENT_HEADER_BYTES as u32;
        let usage = SegmentUse {
            pages: segment.pages,
            used,
            live,
        };
        let key = segment_key(heap, segment.first);
        self.put_segment(&key, &usage.encode())?;
        let sum = &mut self.heaps.open[at].usage;
        sum.open = segment.first;
        sum.pages += u64::from(segment.pages);
        sum.live += u64::from(live);
        Ok(())
    }

    /// The index of the tail to which a record of so many bytes is to be added.
    fn tail_for(&mut self, heap: HeapNo, bytes: usize) -> Result<usize> {
        let at = self.open_heap(heap)?;
        let has_room = |tail: &Tail| {
            let room = tail.segment.pages as usize * PAGE_BYTES - tail.end() as usize;
            bytes <= room
        };
        let own = self.view.records_or_new();
        let tail = match self.heaps.open[at].tail {
            Some(tail) if own.tails.get(tail).is_some_and(has_room) => tail,
            _ => self.begin_segment(at, bytes)?,
        };
        self.heaps.open[at].usage.live += bytes as u64;
        Ok(tail)
    }

    /// Adds a record with the help of `put`; where it is.
    fn add(
        &mut self,
        heap: HeapNo,
        bytes: usize,
        moved_from: Option<RecordPointer>,
        put: impl FnOnce(&mut Vec<u8>),
    ) -> Result<RecordPointer> {
        if bytes > RECORD_BYTES_MAX {
            return Err(Error::ValueTooLong(bytes));
        }
        let tail = self.tail_for(heap, bytes)?;
        let own = self.view.records_or_new();
        let tail = own.tails.get_mut(tail).ok_or_else(|| damaged(PageNo(0)))?;
        let pointer = RecordPointer::at(tail.segment.first, u64::from(tail.end()));
        if let Some(from) = moved_from {
            tail.moved.push((tail.len, from));
        }
        put(&mut tail.bytes);
        tail.len = tail.bytes.len() as u32;
        pointer.ok_or_else(|| damaged(tail.segment.first))
    }

    fn has_added_to(&self, segment: PageNo) -> bool {
        let mut tails = self.tails().iter();
        tails.any(|tail| tail.segment.first == segment)
    }

    /// Frees a segment, so many bytes of which the sums still count.
    fn give_up_segment(&mut self, at: usize, segment: Segment, counted: u64) -> Result<()> {
        let OpenHeap { heap, usage, .. } = self.heaps.open[at];
        if usage.open == segment.first {
            self.fill_no_more(at);
        }
        let sum = &mut self.heaps.open[at].usage;
        sum.live = sum.live.saturating_sub(counted);
        sum.pages = sum.pages.saturating_sub(u64::from(segment.pages));
        self.delete_segment(&segment_key(heap, segment.first))?;
        let met_since = segment.met_since(&*self)?;
        if met_since > self.commit {
            return Err(damaged(segment.first));
        }
        self.free_records(segment, met_since)
    }

    /// Frees a segment. Snapshots of `met_since` and later may meet its records on their way back to older ones.
    fn free_records(&mut self, segment: Segment, met_since: CommitNo) -> Result<()> {
        let Segment { first, pages } = segment;
        if self.shop.states.is_freed(first) || first.0 + u64::from(pages) > self.view.limit() {
            return Err(Error::corrupt(first, "is freed a second time"));
        }
        self.shop.states.insert(first, State::Freed);
        self.freed.push(FreeExtent {
            freed: self.commit,
            born: met_since,
            first,
            pages,
        });
        self.record_undo(Undo::Freed {
            first,
            pages,
            was: None,
            to: Destination::Freed,
        });
        Ok(())
    }

    /// Writes what was added to segments that are full, if it is too much for a log record in any case or there is no
    /// log.
    fn write_out_tails(&mut self) -> Result<()> {
        let max = record_bytes_max(&self.inner);
        let own = self.view.records_or_new();
        let waiting = own.tails.iter().map(|tail| tail.bytes.len());
        if waiting.sum::<usize>() <= max {
            return Ok(());
        }
        self.appended |= self.inner.wal.is_some();
        self.write_tails()?;
        let Self { heaps, view, .. } = self;
        let is_open = |at| heaps.open.iter().any(|open| open.tail == Some(at));
        for (at, tail) in view.records_or_new().tails.iter_mut().enumerate() {
            if !is_open(at) {
                tail.bytes = Vec::new();
            }
        }
        Ok(())
    }

    /// Writes what was added to segments to its pointer in the file.
    pub(crate) fn write_tails(&mut self) -> Result<()> {
        let file = &self.inner.data.file;
        for tail in self.tails().iter().filter(|tail| !tail.bytes.is_empty()) {
            file.write_all_at(&tail.bytes, tail.offset())?;
        }
        Ok(())
    }

    /// The records and pointers to be logged.
    pub(super) fn records(&self) -> Option<&TxnRecords> {
        self.view.records.as_deref().filter(|own| !own.is_empty())
    }

    /// The state that a savepoint brings back. It takes the memory of one that has ended.
    pub(super) fn heaps_before(&self, spare: Option<Box<HeapsBefore>>) -> Box<HeapsBefore> {
        let mut before = spare.unwrap_or_default();
        before.segments = self.heaps.segments;
        before.open.clone_from(&self.heaps.open);
        before.outdated = self.heaps.outdated.len();
        before.tails.clear();
        before.tails.extend(self.tails().iter().map(Tail::end));
        before
    }

    pub(super) fn bring_heaps_back(&mut self, before: &HeapsBefore) {
        self.heaps.segments = before.segments;
        self.heaps.open.clone_from(&before.open);
        self.heaps.outdated.truncate(before.outdated);
        let Some(own) = self.view.records.as_deref_mut() else {
            return;
        };
        own.tails.truncate(before.tails.len());
        for (tail, &end) in own.tails.iter_mut().zip(&before.tails) {
            tail.end_at(end);
        }
    }

    /// Has the copy of a leaf say what the leaf was to say, and that nobody has stored in it: so what it is like as of
    /// any later commit is seen from its records alone.
    pub(super) fn bring_pointers_along(&mut self, leaf: PageNo, copy: PageNo) -> Result<()> {
        pointer_leaf::clear_changed(self.page_mut(copy)?);
        let Some(own) = self.view.records.as_deref_mut() else {
            return Ok(());
        };
        let pointers = own.take_pointers(leaf);
        if pointers.is_empty() {
            return Ok(());
        }
        let page = self.page_mut(copy)?;
        for &(slot, pointer) in &pointers {
            pointer_leaf::set_pointer(page, usize::from(slot), pointer)
                .ok_or_else(|| damaged(copy))?;
        }
        for (slot, pointer) in pointers {
            let before = Some(pointer);
            self.record_undo(Undo::RecordPointer { leaf, slot, before });
        }
        Ok(())
    }
}

impl WriteRecords for TxnPages {
    fn add_record(
        &mut self,
        heap: HeapNo,
        key: &[u8; 8],
        previous: RecordPointer,
        value: &[u8],
    ) -> Result<RecordPointer> {
        let record = Record {
            commit: self.commit,
            previous,
            key: *key,
            value,
        };
        let at = self.open_heap(heap)?;
        let filled = self.heaps.open[at].usage.open;
        let pointer = self.add(heap, Record::bytes(value.len()), None, |out| {
            record.encode(out);
        })?;
        let open = &mut self.heaps.open[at];
        if open.usage.open != filled
            && let Some(tail) = open.tail
            && let Some(tail) = self.view.records_or_new().tails.get(tail)
        {
            open.emptied_left = emptying::PAGES_MAX.saturating_mul(tail.segment.pages);
        }
        Ok(pointer)
    }

    fn move_record(&mut self, heap: HeapNo, at: RecordPointer) -> Result<RecordPointer> {
        let record = Record::verify(&*self, at)?;
        let value = record.value.to_vec();
        let is_own = record.commit == self.commit;
        let moved = Record {
            commit: self.commit,
            previous: if is_own { record.previous } else { at },
            key: record.key,
            value: &value,
        };
        let bytes = Record::bytes(value.len());
        self.add(heap, bytes, (!is_own).then_some(at), |out| {
            moved.encode(out);
        })
    }

    fn outdate_record(&mut self, heap: HeapNo, at: RecordPointer) -> Result<()> {
        let bytes = Record::bytes(Record::read(&*self, at)?.value.len());
        let open = self.open_heap(heap)?;
        let open = &mut self.heaps.open[open];
        let live = open.usage.live;
        let left = live.checked_sub(bytes as u64);
        open.usage.live = left.ok_or_else(|| damaged(at.page()))?;
        if live / SEGMENT_BYTES != open.usage.live / SEGMENT_BYTES {
            open.emptied_left = emptying::PAGES_MAX * SEGMENT_PAGES_MAX;
        }
        self.heaps.outdated.push((heap, at, bytes as u32));
        if self.heaps.outdated.len() >= OUTDATED_MAX && !self.has_savepoint() {
            self.note_tails()?;
            self.note_outdated()?;
        }
        Ok(())
    }

    /// Where a leaf may be stored to: it is newer than what a checkpoint is about to hold, and the log has room to tell
    /// of it, also if all stores commit at once.
    fn store_pointer(&mut self, leaf: PageNo, slot: usize, at: RecordPointer) -> Result<bool> {
        if self.is_own(leaf) {
            return Ok(false);
        }
        let Some(pointers) = self.view.shared_pointers(leaf)? else {
            return Ok(false);
        };
        let stored = self.view.records.as_deref().map_or(0, |own| own.stored());
        let has_room = self.inner.wal.is_none()
            || (stored + 1) * PLACE_LOG_BYTES * self.inner.regions.len()
                <= record_bytes_max(&self.inner) / 4;
        if pointers.commit() <= self.inner.region.metas.newest() || !has_room {
            return Ok(false);
        }
        let slot = u16::try_from(slot).map_err(|_| damaged(leaf))?;
        let before = self.view.records_or_new().store(leaf, slot, Some(at));
        self.record_undo(Undo::RecordPointer { leaf, slot, before });
        Ok(true)
    }

    fn segment_to_empty(&mut self, heap: HeapNo) -> Result<Option<(Segment, u32)>> {
        self.segment_to_empty_of(heap)
    }

    fn has_room(&mut self, pages: u64) -> Result<bool> {
        self.has_room_for(pages)
    }

    fn free_segment(&mut self, heap: HeapNo, segment: Segment) -> Result<()> {
        self.free_segment_of(heap, segment)
    }

    fn clear_heap(&mut self, heap: HeapNo) -> Result<()> {
        let at = self.open_heap(heap)?;
        let mut all = Vec::new();
        let mut cursor = View::new(&*self, self.heaps.segments).cursor();
        let mut is_there = cursor.seek_after(&segment_key(heap, PageNo(0)))?;
        while is_there && let Some((key, value)) = cursor.record()? {
            let Some(first) = segment_of(heap, key) else {
                break;
            };
            let usage = SegmentUse::decode(value).ok_or_else(|| damaged(first))?;
            let pages = usage.pages;
            all.push(Segment { first, pages });
            is_there = cursor.next()?;
        }
        for segment in all {
            self.delete_segment(&segment_key(heap, segment.first))?;
            // A snapshot that has the tree sees its values too, so that only snapshots without it could gain by more.
            self.free_records(segment, CommitNo(0))?;
        }
        let open = &mut self.heaps.open[at];
        open.usage = HeapUse::default();
        open.tail = None;
        // What is in mind as outdated is in segments that are no more.
        Ok(())
    }
}
