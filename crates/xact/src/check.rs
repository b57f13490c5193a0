//! Verifying all pages of a space, beside those that use it.

use std::ops::Range;

use crate::error::Result;
use crate::inner::Inner;
use crate::page::{PAGE_BYTES, page_of};
use crate::places::{SUM_BYTES, offset_in_file, sum_at};
use crate::sums::extents;
use crate::transaction::Transaction;

/// So many pages are checked in one transaction, so that a long check keeps nothing from being given up.
const PAGES_AT_ONCE: u64 = 256;

/// What [`Space::check`](crate::Space::check) has found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Checked {
    /// How many pages were verified: those that take up room in the file.
    pub pages: u64,
    /// Where the pages begin that are damaged, in order; the first 1000 of them.
    pub damaged: Vec<u64>,
}

const DAMAGED_MAX: usize = 1000;

impl Inner {
    /// Verifies all pages in the file, also those that were verified before, in transactions that only read.
    pub(crate) fn check_pages<'s>(
        &'s self,
        begin: impl Fn() -> Result<Transaction<'s>>,
    ) -> Result<Checked> {
        let mut checked = Checked::default();
        if !self.verified.is_needed() {
            return Ok(checked);
        }
        let data = &*self.data;
        // What has a sum, whether it has any room in the file or not; and what has room and must be zeros if it has no
        // sum.
        let sums = sum_at(0, self.pages)..sum_at(self.pages, self.pages);
        for extent in extents(data, sums.clone()) {
            let first = (extent.start - sums.start) / SUM_BYTES;
            let last = (extent.end - sums.start).div_ceil(SUM_BYTES);
            self.check_range(first..last, &begin, &mut checked, |sum| sum != 0)?;
        }
        for extent in extents(data, offset_in_file(0)..offset_in_file(self.pages)) {
            let first = page_of(extent.start - offset_in_file(0));
            let last = (extent.end - offset_in_file(0)).div_ceil(PAGE_BYTES as u64);
            self.check_range(first..last, &begin, &mut checked, |sum| sum == 0)?;
        }
        checked.damaged.sort_unstable();
        Ok(checked)
    }

    /// Verifies the pages of a range whose sums are of a kind.
    fn check_range<'s>(
        &'s self,
        pages: Range<u64>,
        begin: impl Fn() -> Result<Transaction<'s>>,
        checked: &mut Checked,
        is_wanted: impl Fn(u32) -> bool,
    ) -> Result<()> {
        let mut first = pages.start;
        while first < pages.end {
            let end = (first + PAGES_AT_ONCE).min(pages.end);
            let reader = begin()?;
            let snapshot = reader.snapshot();
            for page in first..end {
                // What is in memory goes into the file later, with its sum.
                let is_in_file = self.region.find(page, &snapshot).is_none();
                if is_in_file && is_wanted(self.sum_in_file(page)) {
                    checked.pages += 1;
                    if self.verify_again(page).is_err() && checked.damaged.len() < DAMAGED_MAX {
                        checked.damaged.push(page * PAGE_BYTES as u64);
                    }
                }
            }
            first = end;
        }
        Ok(())
    }
}
