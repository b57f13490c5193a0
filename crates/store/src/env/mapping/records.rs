//! What a write transaction has done to records out of line, and has not stored in its place yet.

use crate::format::page::PAGE_BYTES;
use crate::format::pointer::{RecordPointer, Segment};
use crate::ids::{HeapNo, PageNo};
use crate::page_map::ByNumber;

/// The records that a transaction has added, and the pointers that leaves will have when it is committed.
#[derive(Default)]
pub(crate) struct TxnRecords {
    /// One for each segment that it has added to.
    pub(crate) tails: Vec<Tail>,
    /// Of leaves that are not its own.
    pointers: ByNumber<Vec<(u16, RecordPointer)>>,
    stored: usize,
    /// The memory of a tail of the last transaction, for the first of this one: to grow it anew copies it all.
    spare: Vec<u8>,
}

/// What a transaction has added to a segment.
#[derive(Debug)]
pub(crate) struct Tail {
    pub(crate) heap: HeapNo,
    pub(crate) segment: Segment,
    /// Where it begins.
    pub(crate) from: u32,
    /// Its length.
    pub(crate) len: u32,
    /// Nothing, once it was written to its position in the file.
    pub(crate) bytes: Vec<u8>,
    /// Records that were moved, by where they are in `bytes`, and where they were before.
    pub(crate) moved: Vec<(u32, RecordPointer)>,
    /// The end up to which the tree of segments knows of it.
    pub(crate) noted: u32,
}

impl Tail {
    /// Where the next record will begin.
    pub(crate) fn end(&self) -> u32 {
        self.from + self.len
    }

    /// Where it begins in the file.
    pub(crate) fn offset(&self) -> u64 {
        self.segment.first.0 * PAGE_BYTES as u64 + u64::from(self.from)
    }

    /// Has it end where it did at a savepoint.
    pub(crate) fn end_at(&mut self, end: u32) {
        let len = end
            .checked_sub(self.from)
            .filter(|&len| len as usize <= self.bytes.len());
        // Otherwise it was written to the file since, up to there and further.
        let (from, len) = len.map_or((end, 0), |len| (self.from, len));
        (self.from, self.len) = (from, len);
        self.bytes.truncate(len as usize);
        self.moved.retain(|(at, _)| *at < len);
    }

    fn record(&self, at: RecordPointer, bytes: usize) -> Option<&[u8]> {
        let from = usize::try_from(at.offset().checked_sub(self.offset())?).ok()?;
        self.bytes.get(from..)?.get(..bytes)
    }
}

impl TxnRecords {
    /// The bytes of a record that is only in memory.
    #[inline]
    pub(super) fn record(&self, at: RecordPointer, bytes: usize) -> Option<&[u8]> {
        self.tails
            .iter()
            .rev()
            .find_map(|tail| tail.record(at, bytes))
    }

    /// The pointer that a leaf will have at a slot.
    #[inline]
    pub(super) fn pointer(&self, leaf: PageNo, slot: usize) -> Option<RecordPointer> {
        let pointers = self.pointers.get(leaf)?;
        let at = pointers.binary_search_by_key(&slot, |(slot, _)| usize::from(*slot));
        Some(pointers.get(at.ok()?)?.1)
    }

    /// Has a leaf say something else at a slot; what it would have said before, if it was to be stored to at all.
    pub(crate) fn store(
        &mut self,
        leaf: PageNo,
        slot: u16,
        to: Option<RecordPointer>,
    ) -> Option<RecordPointer> {
        if self.pointers.get(leaf).is_none()
            && let Some(pointers) = self.pointers.insert(leaf, usize::MAX, Vec::new)
        {
            // It may have been another leaf's.
            pointers.clear();
        }
        let pointers = self.pointers.get_mut(leaf)?;
        match (pointers.binary_search_by_key(&slot, |(slot, _)| *slot), to) {
            (Ok(at), Some(to)) => {
                let before = pointers.get_mut(at)?;
                Some(std::mem::replace(&mut before.1, to))
            }
            (Ok(at), None) => {
                self.stored -= 1;
                let before = pointers.remove(at).1;
                if pointers.is_empty() {
                    // The log has no item about nothing.
                    self.pointers.remove(leaf);
                }
                Some(before)
            }
            (Err(at), Some(to)) => {
                self.stored += 1;
                pointers.insert(at, (slot, to));
                None
            }
            (Err(_), None) => None,
        }
    }

    /// Takes what a leaf was to say, since a copy of it will.
    pub(crate) fn take_pointers(&mut self, leaf: PageNo) -> Vec<(u16, RecordPointer)> {
        let taken = self.pointers.get_mut(leaf).map(std::mem::take);
        let taken = taken.unwrap_or_default();
        self.stored -= taken.len();
        self.pointers.remove(leaf);
        taken
    }

    /// How many pointers there are to be stored.
    pub(crate) fn stored(&self) -> usize {
        self.stored
    }

    /// The leaves to be stored to, in any order, and what they will say, ascending.
    pub(crate) fn pointers(&self) -> impl Iterator<Item = (PageNo, &[(u16, RecordPointer)])> {
        let leaves = self.pointers.numbers().iter();
        leaves.filter_map(|&leaf| Some((leaf, self.pointers.get(leaf)?.as_slice())))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.stored == 0 && self.tails.iter().all(|tail| tail.len == 0)
    }

    /// Memory for the bytes of a tail.
    pub(crate) fn tail_bytes(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.spare)
    }

    pub(crate) fn clear(&mut self) {
        let tails = self.tails.drain(..).map(|tail| tail.bytes);
        let fits = tails.filter(|bytes| bytes.capacity() <= TAIL_BYTES_KEPT);
        if let Some(longest) = fits.max_by_key(Vec::capacity) {
            self.spare = longest;
            self.spare.clear();
        }
        self.pointers.clear(LEAVES_KEPT);
        self.stored = 0;
    }
}

/// The lists of so many leaves are kept for the transactions that follow.
const LEAVES_KEPT: usize = 1 << 12;
/// A tail of so many bytes at most is kept.
const TAIL_BYTES_KEPT: usize = 1 << 20;
