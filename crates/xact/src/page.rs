//! Pages: the unit of versions and conflicts.

pub(crate) use crate::memory::PAGE_BYTES;

/// What a page holds.
pub(crate) type PageBytes = [u8; PAGE_BYTES];

/// The page that holds this byte of a space.
pub(crate) const fn page_of(offset: u64) -> u64 {
    offset / PAGE_BYTES as u64
}

/// The pages that hold these bytes, of which there are some.
pub(crate) const fn pages_of(offset: u64, bytes: u64) -> std::ops::RangeInclusive<u64> {
    page_of(offset)..=page_of(offset + bytes - 1)
}

/// Where in its page this byte of a space is.
pub(crate) const fn within_page(offset: u64) -> usize {
    (offset % PAGE_BYTES as u64) as usize
}
