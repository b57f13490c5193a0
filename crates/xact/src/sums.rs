//! Checksums of the pages in the data file: damage is noticed before anybody sees it.
//!
//! Behind the pages of a space there are four bytes for each of them. A commit computes the sums of the pages that it
//! has written and puts them into its record; the one that brings a version into the file, or applies a record, stores
//! its sum besides. As a crash may leave the one without the other so it may leave half a page, and both are mended in
//! the same way: recovery applies all records since the checkpoint, each with its sums. What no record speaks of was
//! synced, page and sum, before the header that says so.
//!
//! A page is verified when a process first looks at it in the file, in a transaction for which the file has what it is
//! to see: neither page nor sum change then. What is only in memory (frames, copies of a transaction) is not verified.
//!
//! The sum of a page of zeros is 0, so that a page that was never written has the right one in a file that was only
//! made long.

// Memory that the system gives out as zeros is taken for numbers.
#![allow(unsafe_code)]

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::SeekFrom;
use sapwood_wal::storage::File;

use crate::error::{Doing, Result};
use crate::page::PageBytes;
use crate::places::{SUM_BYTES, sum_at};

/// The CRC-32 of a page of zeros.
const OF_ZEROS: u32 = 0xc71c_0011;

/// The sum of a page.
pub(crate) fn sum_of(page: &PageBytes) -> u32 {
    crc32fast::hash(page) ^ OF_ZEROS
}

/// Which pages this process has verified: a bit for each, most of them never touched.
pub(crate) struct Verified(Option<Vec<AtomicU64>>);

impl Verified {
    /// In a space without sums there is nothing to verify.
    pub(crate) fn new(pages: u64, has_sums: bool) -> Self {
        let words = usize::try_from(pages.div_ceil(u64::from(u64::BITS))).unwrap_or(usize::MAX);
        // Zeroed memory that the system gives out when it is touched.
        let zeroed = || {
            let mut words = std::mem::ManuallyDrop::new(vec![0_u64; words]);
            // SAFETY: an atomic number has the size and alignment of a number, zero is one, and the vector it came from
            // is not used again.
            unsafe { Vec::from_raw_parts(words.as_mut_ptr().cast(), words.len(), words.capacity()) }
        };
        Self(has_sums.then(zeroed))
    }

    pub(crate) fn is_needed(&self) -> bool {
        self.0.is_some()
    }

    /// Whether a page need not be looked at any more.
    pub(crate) fn has(&self, page: u64) -> bool {
        let word = |words: &Vec<AtomicU64>| words[(page / 64) as usize].load(Ordering::Relaxed);
        self.0
            .as_ref()
            .is_none_or(|words| word(words) >> (page % 64) & 1 != 0)
    }

    /// A page was verified.
    pub(crate) fn add(&self, page: u64) {
        if let Some(words) = &self.0 {
            words[(page / 64) as usize].fetch_or(1 << (page % 64), Ordering::Relaxed);
        }
    }
}

/// The parts of a range of the file that may hold something other than zeros.
pub(crate) fn extents(file: &dyn File, range: Range<u64>) -> impl Iterator<Item = Range<u64>> {
    let mut at = range.start;
    std::iter::from_fn(move || {
        if at >= range.end {
            return None;
        }
        // Nobody goes by the position of the file. Where the system cannot tell, all of it may hold something.
        let start = match rustix::fs::seek(file.handle(), SeekFrom::Data(at)) {
            Ok(start) => start,
            Err(rustix::io::Errno::NXIO) => return None,
            Err(_) => at,
        };
        if start >= range.end {
            return None;
        }
        let hole = rustix::fs::seek(file.handle(), SeekFrom::Hole(start));
        let end = hole.unwrap_or(range.end).clamp(start, range.end);
        at = end.max(at + 1);
        Some(start..end)
    })
}

/// Stores sums in the file, those of pages that lie side by side at once.
pub(crate) struct SumWriter<'a> {
    data: &'a dyn File,
    pages: u64,
    first: u64,
    sums: Vec<u8>,
}

/// So many bytes of sums are stored at once.
const STORED_BYTES_MAX: usize = 64 << 10;

impl<'a> SumWriter<'a> {
    pub(crate) fn new(data: &'a dyn File, pages: u64) -> Self {
        Self {
            data,
            pages,
            first: 0,
            sums: Vec::new(),
        }
    }

    /// Stores the sum of a page, now or with those of the next ones.
    pub(crate) fn add(&mut self, page: u64, sum: u32) -> Result<()> {
        let next = self.first + self.sums.len() as u64 / SUM_BYTES;
        if page != next || self.sums.len() >= STORED_BYTES_MAX {
            self.flush()?;
            self.first = page;
        }
        self.sums.extend_from_slice(&sum.to_le_bytes());
        Ok(())
    }

    /// Stores what is left.
    pub(crate) fn flush(&mut self) -> Result<()> {
        let at = sum_at(self.first, self.pages);
        let stored = self.data.write_all_at(&self.sums, at);
        self.sums.clear();
        stored.doing("cannot write the checksums of pages")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::PAGE_BYTES;

    #[test]
    fn zeros_have_no_sum() {
        assert_eq!(sum_of(&[0; PAGE_BYTES]), 0);
        assert_ne!(sum_of(&[1; PAGE_BYTES]), 0);
    }
}
