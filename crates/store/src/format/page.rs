//! Pages: their common header, their checksum, and the two traits through which trees see them.
//!
//! Every page begins with the same 24 bytes. All integers are little-endian.
//!
//! ```text
//!  offset  size  field
//!       0     4  checksum   CRC-32 of everything behind it (of the header and the value, in an extent)
//!       4     1  kind       PageKind
//!       5     1  level      height above the leaves: 0 in a leaf
//!       6     2  (of the kind)
//!       8     8  number     this page's own number: a page written to the wrong place is noticed
//!      16     8  commit     the commit that wrote it
//!      24        (of the kind)
//! ```

mod change;
mod origins;
mod successor;

use std::fmt;
use std::num::NonZeroU64;
use std::sync::atomic::{AtomicU64, Ordering};

use sapwood_wal::process::fork_count;

use crate::error::{Error, Result};
use crate::format::pointer_leaf::PlaceLeaf;
use crate::heap::{HeapNo, Place, Segment};

pub(crate) use change::Before;
pub use change::PageMut;
pub(crate) use origins::{Origin, Origins};
pub use successor::Successor;

/// The size of a page.
pub const PAGE_BYTES: usize = 4096;

/// The length of the header that all pages have in common.
pub const PAGE_HEADER_BYTES: usize = 24;

/// Page numbers are stored in 48 bits inside the pages.
pub const PAGE_NO_MAX: u64 = (1 << 48) - 1;

/// The number of a page within its store: its byte offset in the file divided by [`PAGE_BYTES`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct PageNo(pub u64);

impl fmt::Display for PageNo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The number of a commit, environment-wide; it only grows.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct CommitNo(pub u64);

impl fmt::Display for CommitNo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// What a page is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum PageKind {
    /// The root of everything as of one commit.
    Meta = 1,
    /// An inner page of a tree.
    Branch = 2,
    /// A page of a tree that holds records.
    Leaf = 3,
    /// The first page of a large value.
    Extent = 4,
    /// An inner page of a counted tree.
    CountedBranch = 5,
    /// A page of records whose keys stand in one piece.
    WholeLeaf = 6,
    /// An inner page whose keys stand in one piece.
    WholeBranch = 7,
    /// An inner page of a counted tree whose keys stand in one piece.
    CountedWholeBranch = 8,
    /// A page of keys of one length, and nothing else.
    PackedLeaf = 9,
    /// A page of keys of eight bytes and the places of their values.
    PlaceLeaf = 10,
    /// The first page of a segment of records.
    Segment = 11,
}

/// One page, as it is in the file.
#[repr(C, align(64))]
#[derive(Clone)]
pub struct Page([u8; PAGE_BYTES]);

const KIND_AT: usize = 4;
const LEVEL_AT: usize = 5;
const NUMBER_AT: usize = 8;
const COMMIT_AT: usize = 16;

impl Page {
    /// A page of zeroes, which is not a valid page of any kind.
    pub const fn zeroed() -> Self {
        Self([0; PAGE_BYTES])
    }

    /// Makes this an empty page of the given kind: everything behind the header is zero.
    pub fn init(&mut self, kind: PageKind, level: u8, number: PageNo, commit: CommitNo) {
        self.0.fill(0);
        self.0[KIND_AT] = kind as u8;
        self.0[LEVEL_AT] = level;
        self.set_number(number);
        self.set_commit(commit);
    }

    /// The whole page.
    pub fn bytes(&self) -> &[u8; PAGE_BYTES] {
        &self.0
    }

    /// The whole page, to be changed.
    pub fn bytes_mut(&mut self) -> &mut [u8; PAGE_BYTES] {
        &mut self.0
    }

    /// What the page is for; `None` if its kind is unknown.
    pub fn kind(&self) -> Option<PageKind> {
        match self.0[KIND_AT] {
            1 => Some(PageKind::Meta),
            2 => Some(PageKind::Branch),
            3 => Some(PageKind::Leaf),
            4 => Some(PageKind::Extent),
            5 => Some(PageKind::CountedBranch),
            6 => Some(PageKind::WholeLeaf),
            7 => Some(PageKind::WholeBranch),
            8 => Some(PageKind::CountedWholeBranch),
            9 => Some(PageKind::PackedLeaf),
            10 => Some(PageKind::PlaceLeaf),
            11 => Some(PageKind::Segment),
            _ => None,
        }
    }

    /// The height above the leaves.
    pub fn level(&self) -> u8 {
        self.0[LEVEL_AT]
    }

    /// The page's own number.
    #[inline]
    pub fn number(&self) -> PageNo {
        PageNo(self.u64_at(NUMBER_AT))
    }

    /// Gives the page another number, as when it is copied.
    pub fn set_number(&mut self, number: PageNo) {
        self.set_u64_at(NUMBER_AT, number.0);
    }

    /// The commit that wrote the page.
    pub fn commit(&self) -> CommitNo {
        CommitNo(self.u64_at(COMMIT_AT))
    }

    /// Stamps the page with the commit that writes it.
    pub fn set_commit(&mut self, commit: CommitNo) {
        self.set_u64_at(COMMIT_AT, commit.0);
    }

    /// The checksum in the header. While a transaction works on the page it is stale; [`Page::seal`] renews it.
    pub fn checksum(&self) -> u32 {
        u32::from_le_bytes([self.0[0], self.0[1], self.0[2], self.0[3]])
    }

    /// Computes the checksum and stores it: the last thing done to a page before it is committed.
    pub fn seal(&mut self) {
        let sum = checksum(&[&self.0[4..]]);
        self.0[..4].copy_from_slice(&sum.to_le_bytes());
    }

    /// Checks the page's checksum and that it is the page `number`. Not for extents: see [`crate::tree::verify_extent`].
    pub fn verify(&self, number: PageNo) -> Result<()> {
        if self.checksum() != checksum(&[&self.0[4..]]) {
            return Err(Error::corrupt(number, "checksum does not match"));
        }
        if self.number() != number {
            return Err(Error::corrupt(number, "carries another page's number"));
        }
        Ok(())
    }

    pub(crate) fn u16_at(&self, at: usize) -> u16 {
        u16::from_le_bytes([self.0[at], self.0[at + 1]])
    }

    pub(crate) fn set_u16_at(&mut self, at: usize, value: u16) {
        self.0[at..at + 2].copy_from_slice(&value.to_le_bytes());
    }

    fn u64_at(&self, at: usize) -> u64 {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(&self.0[at..at + 8]);
        u64::from_le_bytes(bytes)
    }

    fn set_u64_at(&mut self, at: usize, value: u64) {
        self.0[at..at + 8].copy_from_slice(&value.to_le_bytes());
    }
}

impl fmt::Debug for Page {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Page")
            .field("number", &self.number())
            .field("kind", &self.kind())
            .field("level", &self.level())
            .field("commit", &self.commit())
            .finish_non_exhaustive()
    }
}

/// The checksum of pages and extents: CRC-32 (IEEE) of the parts, one after the other.
pub fn checksum(parts: &[&[u8]]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    for part in parts {
        hasher.update(part);
    }
    hasher.finalize()
}

/// Pages that stand still, told from all others that this process may know of: those of one store, since it was opened,
/// as of one commit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SnapshotId {
    pub(crate) file: FileNo,
    pub(crate) commit: CommitNo,
}

/// What tells an opened data file from all others of this process, and the process from those that were forked off from
/// it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct FileNo(NonZeroU64);

impl FileNo {
    /// So many bits count the files; those above them are the count of forks.
    const COUNT_BITS: u32 = 40;

    pub(crate) fn next() -> Self {
        static OPENED: AtomicU64 = AtomicU64::new(0);
        let count = OPENED.fetch_add(1, Ordering::Relaxed) & ((1 << Self::COUNT_BITS) - 1);
        let forks = u64::from(fork_count()) << Self::COUNT_BITS;
        Self(NonZeroU64::MIN.saturating_add(forks | count))
    }

    /// Whether this process was forked off since the file was opened.
    #[inline]
    pub(crate) fn is_forked(self) -> bool {
        (self.0.get() >> Self::COUNT_BITS) as u32 != fork_count()
    }
}

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

    /// The page with this number. A number that lies outside the store is [`Error::Corrupt`]: nothing else produces one.
    fn page(&self, number: PageNo) -> Result<&Page>;

    /// `pages` consecutive pages as one slice of bytes. A run that does not lie inside the store is [`Error::Corrupt`].
    fn extent(&self, first: PageNo, pages: u32) -> Result<&[u8]>;

    /// The leaf of places with this number, if others may store to it while it is read; `None` if [`ReadPages::page`] may give it.
    fn shared_places(&self, number: PageNo) -> Result<Option<&PlaceLeaf>> {
        let _ = number;
        Ok(None)
    }

    /// What such a leaf will have at a slot, if this reader itself has changed that.
    #[inline]
    fn own_place(&self, leaf: PageNo, slot: usize) -> Option<Place> {
        let _ = (leaf, slot);
        None
    }

    /// The next `bytes` bytes from where a record begins. [`Error::Corrupt`] if they do not lie inside the store.
    fn record(&self, at: Place, bytes: usize) -> Result<&[u8]> {
        let _ = bytes;
        Err(Error::corrupt(at.page(), "records have no place here"))
    }

    /// Asks the processor for the first bytes of a record.
    fn fetch_record(&self, at: Place) {
        let _ = at;
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
pub trait WritePages: ReadPages {
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
    fn page_mut(&mut self, number: PageNo) -> Result<PageMut<'_>>;

    /// Writes the whole of an extent allocated by this transaction, from parts one after the other.
    fn write_extent(&mut self, first: PageNo, parts: [&[u8]; 3]) -> Result<()>;

    /// An extent allocated by this transaction, to be filled in its place.
    fn extent_mut(&mut self, first: PageNo, pages: u32) -> Result<&mut [u8]>;

    /// Makes sure that the page is the transaction's own: an own page stays where it is, another one is copied to a new
    /// page (its number and commit in the header renewed) and the old one freed. Returns where it is now.
    fn touch(&mut self, number: PageNo) -> Result<PageNo> {
        match self.succeed(number)? {
            None => Ok(number),
            Some(page) => {
                let copied = page.copy_rest();
                copied.ok_or_else(|| Error::corrupt(number, "is not of a page's length"))
            }
        }
    }

    /// Frees a page and takes a new one into use, which the caller puts together from it, to the end; `None` if the page is the
    /// transaction's own already.
    fn succeed(&mut self, number: PageNo) -> Result<Option<Successor<'_>>>;

    /// Whether the page is known to be the transaction's own, without looking at it.
    fn is_own(&self, number: PageNo) -> bool {
        self.page(number)
            .is_ok_and(|page| page.commit() == self.commit())
    }

    /// Gives pages back: a page of a tree (`pages` = 1) or a whole extent.
    fn free(&mut self, first: PageNo, pages: u32) -> Result<()>;

    /// Adds a record to those of a heap; where it is. `previous` is the place of the record that an earlier commit has for the key.
    fn add_record(
        &mut self,
        heap: HeapNo,
        key: &[u8; 8],
        previous: Place,
        value: &[u8],
    ) -> Result<Place>;

    /// Adds a record of the heap to it once more, because the room that it takes is wanted; where it is now. Earlier commits go on from there to where it was,
    /// and never learn of the room that they do not know.
    fn move_record(&mut self, heap: HeapNo, at: Place) -> Result<Place>;

    /// A record of a heap is not the newest of its key any more.
    fn outdate_record(&mut self, heap: HeapNo, at: Place) -> Result<()>;

    /// Has a leaf that is not the transaction's own say from the commit on that a record is at this place, if that may be stored where the leaf is; whether it may.
    fn store_place(&mut self, leaf: PageNo, slot: usize, at: Place) -> Result<bool>;

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

    /// The next `pages` pages, to be written as a whole by [`AppendPages::write_extent`] before anything else is appended.
    fn take_extent(&mut self, pages: u32) -> Result<PageNo>;

    /// Writes the extent that was taken last, from parts one after the other.
    fn write_extent(&mut self, first: PageNo, parts: [&[u8]; 3]) -> Result<()>;

    /// Takes an extent for one of a heap's segments, in which so many bytes are in use.
    fn keep_segment(&mut self, heap: HeapNo, segment: Segment, used: u32) -> Result<()>;
}
