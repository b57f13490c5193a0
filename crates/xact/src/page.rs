//! Pages: the unit of versions and conflicts.

// The prefetch instruction.
#![allow(unsafe_code)]

pub(crate) use crate::memory::PAGE_BYTES;

/// What the processor fetches at a time.
#[cfg(all(target_arch = "x86_64", not(miri)))]
const LINE_BYTES: usize = 64;

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

/// Has the processor fetch the lines of a page, all at once instead of one after the other as they are looked at. The
/// page may be anywhere: what is not in memory is left alone.
pub(crate) fn fetch(page: *const PageBytes) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    for line in (0..PAGE_BYTES).step_by(LINE_BYTES) {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: prefetching reads nothing that the program could see, faults nowhere, and SSE, which it belongs to,
        // is part of x86-64.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(page.cast::<i8>().wrapping_add(line)) };
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = page;
}
