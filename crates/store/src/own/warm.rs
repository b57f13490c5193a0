//! Which pages were written since the last checkpoint began.

use crate::page::{CommitNo, PageNo};

/// The pages that this process has written since a checkpoint began, by number: the system has them in memory, and dirty, unless it has written
/// them out on its own account. Only speed depends on it.
#[derive(Default)]
pub(super) struct Warm {
    target: CommitNo,
    bits: Vec<u64>,
}

impl Warm {
    /// Forgets all pages if another checkpoint has begun: it has them written out, and has the first store to each noticed.
    pub(super) fn begin(&mut self, target: CommitNo) {
        if self.target != target {
            self.target = target;
            self.bits.clear();
        }
    }

    pub(super) fn has(&self, page: PageNo) -> bool {
        let word = self.bits.get((page.0 / 64) as usize);
        word.is_some_and(|word| word & (1 << (page.0 % 64)) != 0)
    }

    pub(super) fn insert(&mut self, page: PageNo) {
        let word = (page.0 / 64) as usize;
        if self.bits.len() <= word {
            self.bits.resize(word + 1, 0);
        }
        self.bits[word] |= 1 << (page.0 % 64);
    }
}
