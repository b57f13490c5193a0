//! Asking the processor for cache lines before they are needed.
//!
//! The one place of the tree that needs `unsafe`: the intrinsic takes a raw pointer. It never faults, whatever it points to.

#![allow(unsafe_code)]

use crate::page::Page;

const LINE_BYTES: usize = 64;

/// The lines of a page that a search reads before its last comparison. They arrive together instead of one after the other.
const LEAF_LINES: usize = 4;
const BRANCH_LINES: usize = 12;

const CELL_LINES: usize = 3;

/// Fetches the beginning of a page that is about to be searched.
#[inline]
pub(super) fn slots(page: &Page, level: usize) {
    let lines = if level == 0 { LEAF_LINES } else { BRANCH_LINES };
    for line in page.bytes().chunks(LINE_BYTES).take(lines) {
        fetch(line);
    }
}

/// Fetches a page that is about to be copied.
pub(super) fn page(page: &Page) {
    page.bytes().chunks(LINE_BYTES).for_each(fetch);
}

/// Fetches a cell that begins at this offset, as far as most cells reach.
#[inline]
pub(super) fn cell(page: &Page, at: usize) {
    for line in page
        .bytes()
        .get(at..)
        .unwrap_or_default()
        .chunks(LINE_BYTES)
        .take(CELL_LINES)
    {
        fetch(line);
    }
}

#[inline]
fn fetch(line: &[u8]) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: prefetching reads nothing that the program could see; SSE, which it belongs to, is part of x86-64.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(line.as_ptr().cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = line;
}
