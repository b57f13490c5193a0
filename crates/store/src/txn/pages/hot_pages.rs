//! How often pages were written since the last checkpoint began.

use crate::ids::{CommitNo, PageNo};

/// A page that was written so often is hot. Until then a write of all of it costs less than the fault of the first
/// store through a window.
const TIMES_HOT: u64 = if cfg!(test) { 1 } else { 3 };
const TIMES_BITS: u64 = 2;
const TIMES_MASK: u64 = (1 << TIMES_BITS) - 1;
const WORD_PAGES: u64 = u64::BITS as u64 / TIMES_BITS;

/// How often this process has written each page since a checkpoint began: the system has them in memory, and dirty,
/// unless it has written them out on its own account. Only speed depends on it.
#[derive(Default)]
pub(super) struct HotPages {
    target: CommitNo,
    /// By page number, up to [`TIMES_HOT`].
    times: Vec<u64>,
}

impl HotPages {
    /// Forgets all pages if another checkpoint has begun, and says whether it has: it has them written out, and has the
    /// first store to each noticed.
    pub(super) fn begin(&mut self, target: CommitNo) -> bool {
        let has_begun = self.target != target;
        if has_begun {
            self.target = target;
            self.times.clear();
        }
        has_begun
    }

    pub(super) fn has(&self, page: PageNo) -> bool {
        let (word, shift) = place_of(page);
        let word = self.times.get(word).copied().unwrap_or_default();
        word >> shift & TIMES_MASK >= TIMES_HOT
    }

    /// A page is being written.
    pub(super) fn count(&mut self, page: PageNo) {
        if !self.has(page) {
            let (word, shift) = place_of(page);
            if self.times.len() <= word {
                self.times.resize(word + 1, 0);
            }
            self.times[word] += 1 << shift;
        }
    }
}

/// The word of a page's number of times, and where in it that begins.
fn place_of(page: PageNo) -> (usize, u64) {
    (
        (page.0 / WORD_PAGES) as usize,
        page.0 % WORD_PAGES * TIMES_BITS,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_hot_until_the_next_checkpoint() {
        let mut hot_pages = HotPages::default();
        let pages = [0, 31, 32, 1000].map(PageNo);
        hot_pages.begin(CommitNo(5));
        for page in pages {
            assert!(!hot_pages.has(page));
            for _ in 0..9 {
                hot_pages.count(page);
            }
            assert!(hot_pages.has(page));
        }
        let all = (0..2000).map(PageNo).filter(|page| hot_pages.has(*page));
        assert!(all.eq(pages), "and no other is");
        hot_pages.begin(CommitNo(5));
        assert!(hot_pages.has(PageNo(31)));
        hot_pages.begin(CommitNo(6));
        assert!(!pages.iter().any(|page| hot_pages.has(*page)));
    }
}
