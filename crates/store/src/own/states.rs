//! What a transaction knows of the pages that it has made or freed.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use crate::page::PageNo;

/// What the transaction knows of a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum State {
    /// Its own, in use.
    Own {
        /// The page that it, or the page it was divided from, was copied from, 0 if none: what the log record tells the difference to.
        base: PageNo,
        /// The savepoint for which it need not be kept as it is: see `Undo::Image`.
        epoch: u64,
    },
    /// Its own, free again.
    OwnFree,
    /// An earlier commit's, freed by this transaction.
    Freed,
}

/// What the transaction knows of pages. Whether one is its own and in use is asked with each change of a page, so there is a bit for that besides:
/// bits of all pages of a large transaction are in the processor's caches where entries of a table are not.
#[derive(Default)]
pub(super) struct OwnMap {
    states: HashMap<u64, State, BuildHasherDefault<PageHasher>>,
    /// By page number, as far as any was the transaction's own so far.
    in_use: Vec<u64>,
}

/// A table for more pages than this is not kept: it would be looked at as a whole by the small transactions that follow.
const STATES_KEPT: usize = 4096;

impl OwnMap {
    pub(super) fn is_empty(&self) -> bool {
        self.states.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.states.len()
    }

    pub(super) fn get(&self, page: PageNo) -> Option<State> {
        self.states.get(&page.0).copied()
    }

    pub(super) fn is_in_use(&self, page: PageNo) -> bool {
        let (word, bit) = place_of(page);
        self.in_use.get(word).is_some_and(|word| word & bit != 0)
    }

    pub(super) fn insert(&mut self, page: PageNo, state: State) {
        self.states.insert(page.0, state);
        let (word, bit) = place_of(page);
        if matches!(state, State::Own { .. }) {
            if self.in_use.len() <= word {
                self.in_use.resize(word + 1, 0);
            }
            self.in_use[word] |= bit;
        } else if let Some(word) = self.in_use.get_mut(word) {
            *word &= !bit;
        }
    }

    pub(super) fn remove(&mut self, page: PageNo) {
        self.states.remove(&page.0);
        let (word, bit) = place_of(page);
        if let Some(word) = self.in_use.get_mut(word) {
            *word &= !bit;
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (PageNo, State)> {
        let states = self.states.iter();
        states.map(|(page, state)| (PageNo(*page), *state))
    }

    pub(super) fn clear(&mut self) {
        for page in self.states.keys() {
            let (word, _) = place_of(PageNo(*page));
            if let Some(word) = self.in_use.get_mut(word) {
                *word = 0;
            }
        }
        self.states.clear();
        self.states.shrink_to(STATES_KEPT);
    }
}

/// The word of a page's bit, and the bit in it.
fn place_of(page: PageNo) -> (usize, u64) {
    ((page.0 / 64) as usize, 1 << (page.0 % 64))
}

/// Spreads page numbers, which are mostly consecutive, over a table; nobody can choose them to do harm.
#[derive(Default)]
struct PageHasher(u64);

impl Hasher for PageHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(u64::from(byte));
        }
    }

    fn write_u64(&mut self, number: u64) {
        // The golden ratio's fraction; the table looks at the high bits and the low ones.
        self.0 = (self.0 ^ number)
            .wrapping_mul(0x9e37_79b9_7f4a_7c15)
            .rotate_left(32);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn a_bit_is_set_for_own_pages_in_use_only(changes in prop::collection::vec((0..200_u64, 0..5), 0..200)) {
            let mut map = OwnMap::default();
            for (page, change) in changes {
                let page = PageNo(page);
                match change {
                    0 | 1 => map.insert(page, State::Own { base: PageNo(0), epoch: 0 }),
                    2 => map.insert(page, State::OwnFree),
                    3 => map.insert(page, State::Freed),
                    _ => map.remove(page),
                }
            }
            for page in (0..300).map(PageNo) {
                let is_own = matches!(map.get(page), Some(State::Own { .. }));
                prop_assert_eq!(map.is_in_use(page), is_own);
            }
            map.clear();
            prop_assert!(map.is_empty() && map.in_use.iter().all(|word| *word == 0));
        }
    }
}
