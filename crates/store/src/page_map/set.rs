//! Sets of pages.

use crate::ids::PageNo;

/// A bit for each page, as far as any was set so far. Those of all pages that a large transaction comes to are in the
/// processor's caches.
#[derive(Default)]
pub(crate) struct PageSet {
    words: Vec<u64>,
    /// Where bits may be set.
    used: Vec<usize>,
    /// How many are set.
    count: usize,
}

/// So much of the list of a set's used words is kept.
const USED_KEPT: usize = 4096;

impl PageSet {
    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }

    #[inline]
    pub(crate) fn has(&self, page: PageNo) -> bool {
        let (word, bit) = place_of(page);
        self.words.get(word).is_some_and(|word| word & bit != 0)
    }

    #[inline]
    pub(crate) fn set(&mut self, page: PageNo, is_set: bool) {
        if self.has(page) == is_set {
            return;
        }
        let (at, bit) = place_of(page);
        if self.words.len() <= at {
            self.words.resize(at + 1, 0);
        }
        let word = &mut self.words[at];
        if *word == 0 {
            self.used.push(at);
        }
        *word ^= bit;
        match is_set {
            true => self.count += 1,
            false => self.count -= 1,
        }
    }

    pub(crate) fn clear(&mut self) {
        for &at in &self.used {
            self.words[at] = 0;
        }
        self.used.clear();
        self.used.shrink_to(USED_KEPT);
        self.count = 0;
    }
}

/// The word of a page's bit, and the bit in it.
fn place_of(page: PageNo) -> (usize, u64) {
    ((page.0 / 64) as usize, 1 << (page.0 % 64))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn a_set_has_what_was_set(steps in prop::collection::vec((0..200_u64, 0..20_u8), 0..200)) {
            let mut set = PageSet::default();
            let mut model = BTreeSet::new();
            for (page, step) in steps {
                match step {
                    0 => {
                        set.clear();
                        model.clear();
                    }
                    step => {
                        set.set(PageNo(page), step > 8);
                        match step > 8 {
                            true => model.insert(page),
                            false => model.remove(&page),
                        };
                    }
                }
                prop_assert_eq!(set.is_empty(), model.is_empty());
                prop_assert!((0..300).filter(|page| set.has(PageNo(*page))).eq(model.iter().copied()));
            }
        }
    }
}
