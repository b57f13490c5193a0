//! What a check knows of segments: what the tree of segments says of each, and what is found to live there.

use std::collections::{BTreeMap, BTreeSet};

use super::{Check, Sample, each_record};
use crate::env::mapping::MappedPages;
use crate::error::{Error, Result};
use crate::format::pages::ReadPages;
use crate::format::pointer::{RecordPointer, Segment};
use crate::format::tree_record::TreeRecord;
use crate::heap::{
    HeapUse, Record, SEGMENT_HEADER_BYTES, SegmentUse, segment_in_use, segment_key, segment_of,
};
use crate::ids::{CommitNo, HeapNo, PageNo};
use crate::tree::{CheckSink, View};

/// All segments of a store.
#[derive(Default)]
pub(crate) struct Heaps {
    segments: BTreeMap<(HeapNo, PageNo), Found>,
    /// By heap. Heap 0 has none, but its record is here.
    sums: BTreeMap<HeapNo, HeapUse>,
    /// Those of trees.
    trees: BTreeSet<HeapNo>,
}

struct Found {
    usage: SegmentUse,
    /// Bytes of records that keys lead to.
    live: u64,
}

impl Heaps {
    /// What the tree of segments says, as far as it can be read.
    fn read(pages: &MappedPages, segments: &TreeRecord, check: &mut Check<'_>) -> Result<Self> {
        let mut heaps = Self::default();
        let cursor = View::new(pages, *segments).cursor();
        each_record(cursor, segments.records, |key, value| {
            if heaps.add(key, value).is_none() {
                check.say("a record of it says what cannot be");
            }
        })?;
        Ok(heaps)
    }

    fn add(&mut self, key: &[u8], value: &[u8]) -> Option<()> {
        let heap = HeapNo(u32::from_be_bytes(*key.first_chunk()?));
        if key == segment_key(heap, PageNo(0)) {
            self.sums.insert(heap, HeapUse::decode(value)?);
            return Some(());
        }
        let first = segment_of(heap, key)?;
        let usage = SegmentUse::decode(value)?;
        if heap == HeapNo::default() || (usage.used as usize) < SEGMENT_HEADER_BYTES {
            return None;
        }
        self.segments
            .insert((heap, first), Found { usage, live: 0 });
        Some(())
    }

    /// The segments, with how many bytes of each are in use.
    pub(crate) fn segments(&self) -> impl Iterator<Item = (Segment, u32)> {
        self.segments.iter().map(|(&(_, first), found)| {
            let SegmentUse { pages, used, .. } = found.usage;
            (Segment { first, pages }, used)
        })
    }

    /// Notes that a tree has a heap; whether that is its own.
    pub(super) fn note_tree(&mut self, heap: HeapNo) -> bool {
        self.trees.insert(heap)
    }

    /// Notes that a key leads to a record of so many bytes; whether it is among what is in use of a segment of the
    /// heap.
    pub(super) fn note_record(&mut self, heap: HeapNo, at: RecordPointer, bytes: usize) -> bool {
        let mut before = self
            .segments
            .range_mut((heap, PageNo(0))..=(heap, at.page()));
        let Some((&(_, first), found)) = before.next_back() else {
            return false;
        };
        let pages = found.usage.pages;
        let segment = Segment { first, pages };
        let [begin, end] = [SEGMENT_HEADER_BYTES as u32, found.usage.used]
            .map(|bytes| segment.pointer(bytes).map_or(0, RecordPointer::offset));
        let is_inside = at.offset() >= begin && at.offset() + bytes as u64 <= end;
        if is_inside {
            found.live += bytes as u64;
        }
        is_inside
    }

    /// What does not add up, after all trees have been walked through without a finding.
    fn contradictions(&self) -> Vec<String> {
        let mut found = Vec::new();
        let mut sums: BTreeMap<HeapNo, HeapUse> = BTreeMap::new();
        for (&(heap, first), segment) in &self.segments {
            let sum = sums.entry(heap).or_default();
            sum.pages += u64::from(segment.usage.pages);
            sum.live += segment.live;
            if segment.live != u64::from(segment.usage.live) {
                let (live, said) = (segment.live, segment.usage.live);
                found.push(format!(
                    "of the segment at page {first} {live} bytes live, and not {said}"
                ));
            }
        }
        let heaps = sums.keys().chain(self.sums.keys()).chain(&self.trees);
        let last = self.sums.get(&HeapNo::default());
        let last = last.map_or(0, |last| last.open.0);
        if let Some(unknown) = heaps.max().filter(|heap| u64::from(heap.0) > last) {
            found.push(format!("heap {} is more than there ever were", unknown.0));
        }
        for (heap, sum) in &sums {
            if !self.trees.contains(heap) {
                found.push(format!("no tree has the segments of heap {}", heap.0));
            }
            if !self.sums.contains_key(heap) {
                found.push(format!("heap {} is not counted", heap.0));
            } else if self
                .sums
                .get(heap)
                .is_some_and(|said| said.pages != sum.pages || said.live != sum.live)
            {
                found.push(format!("heap {} is not as large as it says", heap.0));
            }
        }
        let counted = self.sums.iter().filter(|(heap, _)| heap.0 > 0);
        for (&heap, said) in counted {
            let is_open = said.open != PageNo(0);
            if is_open && !self.segments.contains_key(&(heap, said.open)) {
                let open = said.open;
                found.push(format!("heap {} fills a segment at page {open}", heap.0));
            }
            if !sums.contains_key(&heap) && (said.pages > 0 || said.live > 0) {
                found.push(format!("heap {} has no segments", heap.0));
            }
        }
        found
    }
}

impl Check<'_> {
    /// Checks all segments, and what is in them.
    pub(super) fn segments(&mut self, pages: &MappedPages, segments: &TreeRecord) -> Result<()> {
        let heaps = Heaps::read(pages, segments, self)?;
        let all: Vec<_> = heaps.segments().collect();
        for (at, &(segment, used)) in all.iter().enumerate() {
            if let Some((next, _)) = all.get(at + 1) {
                pages.read_ahead(next.first, next.pages.into());
            }
            if !self.in_use(segment.first, segment.pages) {
                continue;
            }
            let checked = check_segment(pages, segment, used, self.report.commit);
            self.report.take(&self.place, checked)?;
        }
        self.heaps = heaps;
        Ok(())
    }

    /// Compares what trees lead to with what the tree of segments says. After a problem not all of the trees has been
    /// seen.
    pub(super) fn sums(&mut self) {
        if self.report.is_clean() {
            self.heaps
                .contradictions()
                .iter()
                .for_each(|found| self.say(found));
        }
    }
}

impl Sample {
    /// Looks at the headers of some segments: so many of all heaps together, spread over the file. After an error not
    /// all of what tells of them has been looked at.
    pub(super) fn segments(
        &mut self,
        pages: &MappedPages,
        segments: &TreeRecord,
        count_max: u64,
    ) -> Result<()> {
        let mut cursor = View::new(pages, *segments).cursor();
        let last = match cursor.last()? {
            true => cursor.key()?.and_then(<[u8]>::first_chunk).copied(),
            false => None,
        };
        let heaps = last.map_or(0, u32::from_be_bytes);
        let of_each = count_max
            .checked_div(heaps.into())
            .unwrap_or_default()
            .max(1);
        let mut left = count_max;
        for heap in (1..=heaps).map(HeapNo) {
            // What was looked at last: where there are few, several ways lead to the same.
            let mut before = PageNo(0);
            for step in 0..of_each {
                if left == 0 {
                    return Ok(());
                }
                left -= 1;
                let from = (u128::from(self.pages) * u128::from(step) / u128::from(of_each)) as u64;
                if !cursor.seek(&segment_key(heap, PageNo(from.max(before.0 + 1))))? {
                    break;
                }
                let Some((key, value)) = cursor.record()? else {
                    break;
                };
                let Some((of, segment, _)) = segment_in_use(key, value)? else {
                    break;
                };
                if of != heap {
                    break;
                }
                before = segment.first;
                if !self.in_use(segment.first, segment.pages) {
                    let what = "a segment is outside of the file";
                    return Err(Error::corrupt(segment.first, what));
                }
                let commit = segment.commit(pages)?;
                Error::check_age(segment.first, commit, self.report.commit)?;
            }
        }
        Ok(())
    }
}

/// Reads a segment from its beginning to the end of what is in use, which are the records of commits up to `newest`.
fn check_segment(pages: &MappedPages, segment: Segment, used: u32, newest: CommitNo) -> Result<()> {
    let mut before = segment.commit(pages)?;
    let in_order = |before: CommitNo, commit: CommitNo| {
        let disorder = "records are not in the order of their commits";
        match commit < before {
            true => Err(Error::corrupt(segment.first, disorder)),
            false => Error::check_age(segment.first, commit, newest),
        }
    };
    in_order(CommitNo::default(), before)?;
    segment.each(pages, used, |at, record| {
        Record::verify(pages, at)?;
        in_order(before, record.commit)?;
        before = record.commit;
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAP: HeapNo = HeapNo(2);

    /// A heap of two segments with three records.
    fn sound() -> Heaps {
        let mut heaps = Heaps::default();
        let sum = |open, pages, live| {
            let open = PageNo(open);
            HeapUse { open, pages, live }.encode()
        };
        let none = segment_key(HeapNo(0), PageNo(0));
        heaps.add(&none, &sum(2, 0, 0)).unwrap();
        let all = segment_key(HEAP, PageNo(0));
        heaps.add(&all, &sum(20, 6, 4080)).unwrap();
        for (first, used, live) in [(10, 8000, 80), (20, 4032, 4000)] {
            let (pages, first) = (3, PageNo(first));
            let usage = SegmentUse { pages, used, live };
            let key = segment_key(HEAP, first);
            heaps.add(&key, &usage.encode()).unwrap();
        }
        assert!(heaps.note_tree(HEAP) && !heaps.note_tree(HEAP));
        let at = |page, bytes| RecordPointer::at(PageNo(page), bytes).unwrap();
        for (pointer, bytes, is_inside) in [
            (at(10, 32), 80, true),
            (at(20, 32), 4000, true),
            (at(10, 24), 80, false),
            (at(11, 3864), 80, false),
            (at(20, 40), 4000, false),
            (at(13, 0), 8, false),
            (at(9, 0), 8, false),
            (at(23, 0), 8, false),
        ] {
            let found = heaps.note_record(HEAP, pointer, bytes);
            assert_eq!(found, is_inside, "{pointer:?}");
        }
        assert!(!heaps.note_record(HeapNo(1), at(10, 32), 80));
        assert!(!heaps.note_record(HeapNo(3), at(10, 32), 80));
        heaps
    }

    #[test]
    fn what_does_not_add_up_is_told() {
        assert_eq!(sound().contradictions(), [""; 0]);
        let told = |change: &dyn Fn(&mut Heaps)| {
            let mut heaps = sound();
            change(&mut heaps);
            heaps.contradictions().len()
        };
        let segment = |heaps: &mut Heaps, change: &dyn Fn(&mut Found)| {
            change(heaps.segments.get_mut(&(HEAP, PageNo(10))).unwrap());
        };
        let sum = |heaps: &mut Heaps, change: &dyn Fn(&mut HeapUse)| {
            change(heaps.sums.get_mut(&HEAP).unwrap());
        };
        assert_eq!(
            told(&|heaps| segment(heaps, &|found| found.usage.live = 88)),
            1
        );
        // Of the segment and of the heap.
        assert_eq!(told(&|heaps| segment(heaps, &|found| found.live = 0)), 2);
        assert_eq!(told(&|heaps| sum(heaps, &|sum| sum.live += 8)), 1);
        assert_eq!(told(&|heaps| sum(heaps, &|sum| sum.pages += 1)), 1);
        assert_eq!(told(&|heaps| sum(heaps, &|sum| sum.open = PageNo(11))), 1);
        assert_eq!(told(&|heaps| sum(heaps, &|sum| sum.open = PageNo(0))), 0);
        assert_eq!(told(&|heaps| heaps.sums.retain(|heap, _| *heap != HEAP)), 1);
        assert_eq!(told(&|heaps| heaps.sums.retain(|heap, _| *heap == HEAP)), 1);
        assert_eq!(told(&|heaps| heaps.trees.clear()), 1);
        assert_eq!(told(&|heaps| heaps.trees.extend([HeapNo(3)])), 1);
        assert!(told(&|heaps| heaps.segments.clear()) > 0);
    }

    #[test]
    fn impossible_records_are_refused() {
        let mut heaps = Heaps::default();
        let usage = |used| SegmentUse {
            pages: 3,
            used,
            live: 0,
        };
        let key = segment_key(HEAP, PageNo(10));
        assert!(heaps.add(&key, &usage(32).encode()).is_some());
        for (key, value) in [
            (&key[..], &usage(24).encode()[..]),
            (&key[..11], &usage(32).encode()),
            (&key[..3], &usage(32).encode()),
            (&segment_key(HeapNo(0), PageNo(10)), &usage(32).encode()),
            (&segment_key(HEAP, PageNo(u64::MAX)), &usage(32).encode()),
            (&segment_key(HEAP, PageNo(0)), &usage(32).encode()),
            (&key, &[0; 24]),
        ] {
            assert!(heaps.add(key, value).is_none(), "{key:?}");
        }
    }
}
