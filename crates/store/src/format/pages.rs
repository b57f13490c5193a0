//! Pages as those see them who read, change or append to trees.

use crate::error::{Error, Result};
use crate::format::page::Page;
use crate::format::pointer::{RecordPointer, Segment};
use crate::format::pointer_leaf::PointerLeaf;
use crate::ids::{CommitNo, HeapNo, PageNo, SnapshotId};

/// Pages to be read: a snapshot's, or a write transaction's including its own changes.
pub trait ReadPages {
    /// Which snapshot's pages these are; `None` if they may change.
    #[inline]
    fn snapshot(&self) -> Option<SnapshotId> {
        None
    }

    /// Fails with [`Error::Forked`] in a process that was forked off from the one whose pages these are.
    #[inline]
    fn check_process(&self) -> Result<()> {
        Ok(())
    }

    /// The page with this number. A number that lies outside the store is [`Error::Corrupt`]: nothing else produces
    /// one.
    fn page(&self, number: PageNo) -> Result<&Page>;

    /// `pages` consecutive pages as one slice of bytes. A run that does not lie inside the store is [`Error::Corrupt`].
    fn extent(&self, first: PageNo, pages: u32) -> Result<&[u8]>;

    /// The leaf of pointers with this number, if others may store to it while it is read; `None` if [`ReadPages::page`]
    /// may give it.
    fn shared_pointers(&self, number: PageNo) -> Result<Option<&PointerLeaf>> {
        let _ = number;
        Ok(None)
    }

    /// What such a leaf will have at a slot, if this reader itself has changed that.
    #[inline]
    fn own_pointer(&self, leaf: PageNo, slot: usize) -> Option<RecordPointer> {
        let _ = (leaf, slot);
        None
    }

    /// The next `bytes` bytes from where a record begins. [`Error::Corrupt`] if they do not lie inside the store.
    fn record(&self, at: RecordPointer, bytes: usize) -> Result<&[u8]> {
        let _ = bytes;
        Err(Error::corrupt(at.page(), "records have no place here"))
    }

    /// Asks the processor for the first bytes of a record.
    fn fetch_record(&self, at: RecordPointer) {
        let _ = at;
    }

    /// Whether there is less memory than pages, so that one that is wanted may have to come from the disk.
    #[inline]
    fn exceed_memory(&self) -> bool {
        false
    }

    /// Where [they exceed memory](ReadPages::exceed_memory), asks the disk for pages that are about to be read, without
    /// waiting for them.
    #[inline]
    fn read_ahead(&self, first: PageNo, pages: u64) {
        let _ = (first, pages);
    }

    /// The commit whose records are read: of each key the newest that is not later.
    fn as_of(&self) -> CommitNo {
        CommitNo(u64::MAX)
    }
}

/// Pages of a write transaction.
///
/// Pages whose header carries [`WritePages::commit`] are the transaction's own and are changed in place; all others are
/// copied first, which is what [`WritePages::touch`] does.
pub trait WritePages: ReadPages + WriteRecords {
    /// The commit this transaction will become.
    fn commit(&self) -> CommitNo;

    /// A new page of the transaction's own, contents arbitrary; the caller initialises it.
    fn allocate(&mut self) -> Result<PageNo>;

    /// As [`WritePages::allocate`], for what an own page holds so far: the log looks for it there.
    fn allocate_beside(&mut self, page: PageNo) -> Result<PageNo> {
        let _ = page;
        self.allocate()
    }

    /// `pages` consecutive new pages, contents arbitrary.
    fn allocate_extent(&mut self, pages: u32) -> Result<PageNo>;

    /// An own page, to be changed.
    fn page_mut(&mut self, number: PageNo) -> Result<&mut Page>;

    /// Writes the whole of an extent allocated by this transaction, from parts one after the other.
    fn write_extent(&mut self, first: PageNo, parts: [&[u8]; 3]) -> Result<()>;

    /// An extent allocated by this transaction, to be filled in its place.
    fn extent_mut(&mut self, first: PageNo, pages: u32) -> Result<&mut [u8]>;

    /// Makes sure that the page is the transaction's own: an own page stays where it is, another one is copied to a new
    /// page (its number and commit in the header renewed) and the old one freed. Returns where it is now.
    fn touch(&mut self, number: PageNo) -> Result<PageNo>;

    /// Whether the page is known to be the transaction's own, without looking at it.
    fn is_own(&self, number: PageNo) -> bool {
        self.page(number)
            .is_ok_and(|page| page.commit() == self.commit())
    }

    /// Gives pages back: a page of a tree (`pages` = 1) or a whole extent.
    fn free(&mut self, first: PageNo, pages: u32) -> Result<()>;
}

/// What a write transaction does with values that stand out of line.
pub trait WriteRecords {
    /// Adds a record to those of a heap; where it is. `previous` points to the record that an earlier commit has for
    /// the key.
    fn add_record(
        &mut self,
        heap: HeapNo,
        key: &[u8; 8],
        previous: RecordPointer,
        value: &[u8],
    ) -> Result<RecordPointer>;

    /// Adds a record of the heap to it once more, because the room that it takes is wanted; where it is now. Earlier
    /// commits go on from there to where it was, and never learn of the room that they do not know.
    fn move_record(&mut self, heap: HeapNo, at: RecordPointer) -> Result<RecordPointer>;

    /// A record of a heap is not the newest of its key any more.
    fn outdate_record(&mut self, heap: HeapNo, at: RecordPointer) -> Result<()>;

    /// Has a leaf that is not the transaction's own say from the commit on that a record is there, if that may be
    /// stored where the leaf is; whether it may.
    fn store_pointer(&mut self, leaf: PageNo, slot: usize, at: RecordPointer) -> Result<bool>;

    /// A segment of the heap whose records had better be moved out of it, with the length of what it holds.
    fn segment_to_empty(&mut self, heap: HeapNo) -> Result<Option<(Segment, u32)>>;

    /// Whether so many pages may be taken for that, so that it does not fail half way.
    fn has_room(&mut self, pages: u64) -> Result<bool>;

    /// Frees a segment out of which all records have been moved.
    fn free_segment(&mut self, heap: HeapNo, segment: Segment) -> Result<()>;

    /// Frees all segments of a heap.
    fn clear_heap(&mut self, heap: HeapNo) -> Result<()>;
}

/// Where a bulk build puts its pages: one after the other, outside of any copy on write and without the log.
pub trait AppendPages {
    /// The commit that the built trees will belong to.
    fn commit(&self) -> CommitNo;

    /// Takes a finished page: gives it its number, seals it, writes it.
    fn append(&mut self, page: &mut Page) -> Result<PageNo>;

    /// The next `pages` pages, to be written as a whole by [`AppendPages::write_extent`] before anything else is
    /// appended.
    fn take_extent(&mut self, pages: u32) -> Result<PageNo>;

    /// Writes the extent that was taken last, from parts one after the other.
    fn write_extent(&mut self, first: PageNo, parts: [&[u8]; 3]) -> Result<()>;

    /// Takes an extent for one of a heap's segments, in which so many bytes are in use.
    fn keep_segment(&mut self, heap: HeapNo, segment: Segment, used: u32) -> Result<()>;
}
