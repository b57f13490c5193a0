//! Where everything is in the data file: two header pages, the pages of the space, and behind them their checksums.

use crate::page::PAGE_BYTES;

/// The pages before those of the space.
pub(crate) const HEADER_PAGES: u64 = 2;
/// The most pages of a space: 16 TiB less 16 GiB, which with header and checksums is less than the largest file of ext4
/// (16 TiB less a page).
pub(crate) const PAGES_MAX: u64 = (1 << 32) - (1 << 22);
const _: () = assert!(HEADER_PAGES + PAGES_MAX + sum_pages(PAGES_MAX) < 1 << 32);
/// Bytes of a checksum.
pub(crate) const SUM_BYTES: u64 = 4;

/// Where a page is in the data file.
pub(crate) fn offset_in_file(page: u64) -> u64 {
    (page + HEADER_PAGES) * PAGE_BYTES as u64
}

/// How many pages of the file hold the sums of so many pages.
pub(crate) const fn sum_pages(pages: u64) -> u64 {
    (pages * SUM_BYTES).div_ceil(PAGE_BYTES as u64)
}

/// Where the sum of a page is in the file of a space of so many pages.
pub(crate) fn sum_at(page: u64, pages: u64) -> u64 {
    offset_in_file(pages) + page * SUM_BYTES
}
