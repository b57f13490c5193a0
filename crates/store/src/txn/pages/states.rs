//! What a transaction knows of the pages that it has made or freed.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use crate::ids::PageNo;
use crate::page_map::set::PageSet;

/// What the transaction knows of a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum State {
    /// Its own, in use.
    Own {
        /// The page that it, or the page it was divided from, was copied from, 0 if none: what the log record tells the
        /// difference to.
        base: PageNo,
        /// The savepoint for which it need not be kept as it is: see `Undo::Image`.
        epoch: u64,
    },
    /// Its own, free again.
    OwnFree,
    /// An earlier commit's, freed by this transaction.
    Freed,
}

/// What the transaction knows of pages. Whether one is its own and in use is asked with each change of a page, and each
/// page that is copied is freed, so there are bits for these: bits of all pages of a large transaction are in the
/// processor's caches where entries of a table are not.
#[derive(Default)]
pub(super) struct PageStates {
    /// Of its own pages.
    states: HashMap<u64, State, BuildHasherDefault<PageHasher>>,
    in_use: PageSet,
    freed: PageSet,
}

/// A table for more pages than this is not kept: it would be looked at as a whole by the small transactions that
/// follow.
const STATES_KEPT: usize = 4096;

impl PageStates {
    pub(super) fn is_empty(&self) -> bool {
        self.states.is_empty() && self.freed.is_empty()
    }

    pub(super) fn get(&self, page: PageNo) -> Option<State> {
        match self.is_freed(page) {
            true => Some(State::Freed),
            false => self.states.get(&page.0).copied(),
        }
    }

    pub(super) fn is_in_use(&self, page: PageNo) -> bool {
        self.in_use.has(page)
    }

    pub(super) fn is_freed(&self, page: PageNo) -> bool {
        self.freed.has(page)
    }

    pub(super) fn insert(&mut self, page: PageNo, state: State) {
        self.in_use.set(page, matches!(state, State::Own { .. }));
        self.freed.set(page, state == State::Freed);
        if state != State::Freed {
            self.states.insert(page.0, state);
        }
    }

    pub(super) fn remove(&mut self, page: PageNo) {
        self.states.remove(&page.0);
        self.in_use.set(page, false);
        self.freed.set(page, false);
    }

    /// How many pages have been its own, in use or free again.
    pub(super) fn own_count(&self) -> usize {
        self.states.len()
    }

    /// Its own pages.
    pub(super) fn iter(&self) -> impl Iterator<Item = (PageNo, State)> {
        let states = self.states.iter();
        states.map(|(page, state)| (PageNo(*page), *state))
    }

    pub(super) fn clear(&mut self) {
        self.in_use.clear();
        self.freed.clear();
        self.states.clear();
        self.states.shrink_to(STATES_KEPT);
    }
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
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn a_page_is_known_as_what_it_last_became(changes in prop::collection::vec((0..200_u64, 0..5_usize), 0..200)) {
            let mut map = PageStates::default();
            for _ in 0..2 {
                let mut model = BTreeMap::new();
                for &(page, change) in &changes {
                    let own = State::Own { base: PageNo(page), epoch: 0 };
                    let states = [Some(own), Some(own), Some(State::OwnFree), Some(State::Freed), None];
                    match states[change] {
                        Some(State::Freed) if matches!(model.get(&page), Some(State::Own { .. } | State::OwnFree)) => {}
                        Some(state) => {
                            map.insert(PageNo(page), state);
                            model.insert(page, state);
                        }
                        None => {
                            map.remove(PageNo(page));
                            model.remove(&page);
                        }
                    }
                }
                for page in 0..300 {
                    prop_assert_eq!(map.get(PageNo(page)), model.get(&page).copied());
                    let is_own = matches!(model.get(&page), Some(State::Own { .. }));
                    prop_assert_eq!(map.is_in_use(PageNo(page)), is_own);
                }
                prop_assert_eq!(map.is_empty(), model.is_empty());
                model.retain(|_, state| *state != State::Freed);
                let own: BTreeMap<_, _> = map.iter().map(|(page, state)| (page.0, state)).collect();
                prop_assert_eq!(own, model);
                map.clear();
                prop_assert!(map.is_empty());
                prop_assert!(map.in_use.is_empty());
            }
        }
    }
}
