//! Asking the processor for cache lines before they are needed.
//!
//! The one place of the tree that needs `unsafe`: the intrinsic takes a raw pointer. It never faults, whatever it
//! points to.

#![allow(unsafe_code)]

use std::ops::Range;

use crate::format::page::{PAGE_BYTES, Page};
use crate::format::tree_record::TreeRecord;

const LINE_BYTES: usize = 64;

/// The lines of a page that a search reads before its last comparison. They arrive together instead of one after the
/// other.
const LEAF_LINES: usize = 4;
const BRANCH_LINES: usize = 12;

const CELL_LINES: usize = 3;
const RECORD_LINES: usize = 6;

/// How much of a record out of line is fetched, in bytes.
pub(crate) const RECORD_BYTES: usize = RECORD_LINES * LINE_BYTES;

/// Bytes of a page's slot: a head and an offset.
const SLOT_BYTES: u64 = 6;
/// What stands before the slots, as far as the prefixes of most pages go.
const BEFORE_SLOTS_BYTES: u64 = 64;
/// Most lines of a page that are fetched for its slots.
const SLOT_LINES_MAX: u64 = 24;
/// Most bytes of a cell that are fetched. A processor fetches more itself when it finds that they are read one after
/// the other.
const CELL_BYTES_MAX: u64 = 384;

/// How many lines a look-up reads of a tree's pages, by how full they are on average. To have them all matters when
/// nothing else keeps the processor busy: each that is missing is waited for by itself.
pub(crate) struct ReadLines {
    leaf: usize,
    branch: usize,
    /// Bytes of a leaf's cell.
    cell_bytes: usize,
}

impl ReadLines {
    pub(crate) fn of(tree: &TreeRecord) -> Self {
        let lines = |bytes: u64, lines_max: u64| {
            let lines = bytes / LINE_BYTES as u64 + 1;
            lines.min(lines_max) as usize
        };
        let slots = |slots: u64, pages: u64| {
            let bytes = SLOT_BYTES.saturating_mul(slots) / pages.max(1);
            lines(BEFORE_SLOTS_BYTES.saturating_add(bytes), SLOT_LINES_MAX)
        };
        let leaf_bytes = tree.leaf_pages.saturating_mul(PAGE_BYTES as u64);
        ReadLines {
            leaf: slots(tree.records, tree.leaf_pages),
            branch: slots(tree.leaf_pages, tree.branch_pages),
            cell_bytes: (leaf_bytes / tree.records.max(1)).min(CELL_BYTES_MAX) as usize,
        }
    }

    /// Fetches the slots of a page.
    #[inline]
    pub(crate) fn fetch_slots(&self, page: &Page, level: usize) {
        fetch(page, 0, if level == 0 { self.leaf } else { self.branch });
    }

    /// Fetches a cell of a leaf that begins at this offset.
    #[inline]
    pub(crate) fn fetch_cell(&self, page: &Page, at: usize) {
        // It may begin anywhere in a line.
        part(page, at..at + self.cell_bytes);
    }
}

/// Fetches the beginning of a page that is about to be searched.
#[inline]
pub(crate) fn slots(page: &Page, level: usize) {
    fetch(page, 0, if level == 0 { LEAF_LINES } else { BRANCH_LINES });
}

/// Fetches a page that is about to be copied.
pub(crate) fn page(page: &Page) {
    fetch(page, 0, PAGE_BYTES / LINE_BYTES);
}

/// Fetches a cell that begins at this offset, as far as most cells reach.
#[inline]
pub(crate) fn cell(page: &Page, at: usize) {
    fetch(page, at, CELL_LINES);
}

/// Fetches a part of a page.
#[inline]
fn part(page: &Page, at: Range<usize>) {
    let first = at.start / LINE_BYTES;
    fetch(
        page,
        first * LINE_BYTES,
        at.end.div_ceil(LINE_BYTES) - first,
    );
}

/// Fetches the line of an address, whatever is there.
#[inline]
pub(crate) fn address(at: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: prefetching reads nothing that the program could see; SSE, which it belongs to, is part of x86-64.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(at.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = at;
}

/// Fetches the first lines of a record out of line.
#[inline]
pub(crate) fn record(at: *const u8) {
    for line in 0..RECORD_LINES {
        address(at.wrapping_add(line * LINE_BYTES));
    }
}

#[inline]
fn fetch(page: &Page, at: usize, lines: usize) {
    let bytes = page.bytes().get(at..).unwrap_or_default();
    for line in bytes.chunks(LINE_BYTES).take(lines) {
        address(line.as_ptr());
    }
}
