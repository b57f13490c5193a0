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

use std::fmt;
use std::ops::Range;

use crate::error::{Error, Result};
use crate::ids::{CommitNo, PageNo};

/// The size of a page.
pub const PAGE_BYTES: usize = 4096;

/// The length of the header that all pages have in common.
pub const PAGE_HEADER_BYTES: usize = 24;

/// Page numbers are stored in 48 bits inside the pages.
pub const PAGE_NO_MAX: u64 = (1 << 48) - 1;

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
    PointerLeaf = 10,
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
            10 => Some(PageKind::PointerLeaf),
            11 => Some(PageKind::Segment),
            _ => None,
        }
    }

    /// The height above the leaves.
    pub fn level(&self) -> u8 {
        self.0[LEVEL_AT]
    }

    /// Whether this is the page `number`, of this kind, and so high above the leaves.
    #[inline(always)]
    pub(crate) fn is(&self, number: PageNo, kind: PageKind, level: usize) -> bool {
        let found = usize::from(self.u16_at(KIND_AT));
        found == kind as usize | level << 8 && self.number() == number
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

    /// Gives a page that was put together elsewhere its number and its commit, and seals it.
    pub(crate) fn finish(&mut self, number: PageNo, commit: CommitNo) {
        self.set_number(number);
        self.set_commit(commit);
        self.seal();
    }

    /// Computes the checksum and stores it: the last thing done to a page before it is committed.
    pub fn seal(&mut self) {
        let sum = checksum(&[&self.0[4..]]);
        self.0[..4].copy_from_slice(&sum.to_le_bytes());
    }

    /// Checks the page's checksum and that it is the page `number`. Not for extents: see
    /// [`crate::tree::verify_extent`].
    pub fn verify(&self, number: PageNo) -> Result<()> {
        if self.checksum() != checksum(&[&self.0[4..]]) {
            return Err(Error::corrupt(number, "checksum does not match"));
        }
        if self.number() != number {
            return Err(Error::corrupt(number, "carries another page's number"));
        }
        Ok(())
    }

    /// Stores bytes; `None` if they do not lie within the page.
    pub(crate) fn store(&mut self, at: usize, bytes: &[u8]) -> Option<()> {
        let place = self.0.get_mut(at..at + bytes.len())?;
        place.copy_from_slice(bytes);
        Some(())
    }

    /// Sets bytes to zero, as far as they lie within the page.
    pub(crate) fn clear(&mut self, at: Range<usize>) {
        if let Some(place) = self.0.get_mut(at) {
            place.fill(0);
        }
    }

    /// Moves bytes to where they stand from `to` on; positions outside of the page panic.
    pub(crate) fn shift(&mut self, from: Range<usize>, to: usize) {
        self.0.copy_within(from, to);
    }

    #[inline]
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
