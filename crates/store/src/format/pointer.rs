//! Where values out of line are: a pointer to a record, and the segments that records fill.

use crate::format::page::PAGE_BYTES;
use crate::ids::PageNo;

/// Records begin at multiples of so many bytes.
pub(crate) const STEP_BYTES: u64 = 8;

/// A pointer to a record: the bytes of the file before it, divided by eight. 0 points to none, as the first page has no
/// records.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct RecordPointer(pub(crate) u64);

impl RecordPointer {
    pub(crate) const NONE: Self = Self(0);

    /// A pointer to so many bytes from the beginning of a page. `None` if no record begins there.
    pub(crate) fn at(page: PageNo, bytes: u64) -> Option<Self> {
        let offset = page.0.checked_mul(PAGE_BYTES as u64)?.checked_add(bytes)?;
        (offset.is_multiple_of(STEP_BYTES) && offset > 0).then_some(Self(offset / STEP_BYTES))
    }

    /// Reads a pointer as a leaf has it.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        Some(Self(u64::from_le_bytes(*bytes.first_chunk()?)))
    }

    /// The pointer as a leaf has it.
    pub(crate) fn encode(self) -> [u8; 8] {
        self.0.to_le_bytes()
    }

    pub(crate) fn offset(self) -> u64 {
        self.0.saturating_mul(STEP_BYTES)
    }

    /// A pointer to what stands so many bytes further behind, where a record may begin.
    pub(crate) fn behind(self, bytes: usize) -> Self {
        Self(self.0.saturating_add(bytes as u64 / STEP_BYTES))
    }

    /// The page in which it is.
    pub(crate) fn page(self) -> PageNo {
        PageNo(self.offset() / PAGE_BYTES as u64)
    }
}

/// A segment's pointer in the file.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Segment {
    pub(crate) first: PageNo,
    pub(crate) pages: u32,
}
