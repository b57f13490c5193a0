//! Pages of a write transaction that stay in plain memory until it commits.
//!
//! The first store to a page of the map that the system takes for clean costs a page fault, which is more than all else that a small
//! change of a page costs. A copy in memory that is used again and again costs none, and reaches the file with a write, together with its neighbours.

use std::fmt;

use crate::page::{Page, PageNo};

/// How many pages of one transaction are kept in memory (64 MiB); the others are stored to through windows.
const PAGES_MAX: usize = if cfg!(test) { 12 } else { 16 << 10 };

/// So many stay allocated for the transactions that follow (8 MiB).
const PAGES_KEPT: usize = if cfg!(test) { 4 } else { 2 << 10 };

/// How many page numbers one table covers.
const TABLE_PAGES: usize = 256;

/// Places of consecutive pages: one more than the index of each, 0 for none.
type Table = [u32; TABLE_PAGES];

/// Pages in memory, by number.
#[derive(Default)]
pub(crate) struct PlainPages {
    tables: Vec<Option<Box<Table>>>,
    /// As many as there are pages in use.
    numbers: Vec<PageNo>,
    /// Those in use, and behind them those that are kept.
    pages: Vec<Box<Page>>,
}

impl PlainPages {
    /// The page, if it is here.
    #[inline]
    pub(crate) fn get(&self, number: PageNo) -> Option<&Page> {
        self.place(number).map(|place| &*self.pages[place])
    }

    /// The page, if it is here, to be changed.
    #[inline]
    pub(crate) fn get_mut(&mut self, number: PageNo) -> Option<&mut Page> {
        self.place(number).map(|place| &mut *self.pages[place])
    }

    /// Takes a page in, with contents arbitrary, unless there are too many already. Answers whether it is here.
    pub(crate) fn insert(&mut self, number: PageNo) -> bool {
        if self.place(number).is_some() {
            return true;
        }
        let place = self.numbers.len();
        if place == PAGES_MAX {
            return false;
        }
        if place == self.pages.len() {
            self.pages.push(Box::new(Page::zeroed()));
        }
        self.numbers.push(number);
        self.set_place(number, Some(place));
        true
    }

    /// Forgets a page.
    pub(crate) fn remove(&mut self, number: PageNo) {
        if let Some(place) = self.place(number) {
            self.set_place(number, None);
            self.numbers.swap_remove(place);
            self.pages.swap(place, self.numbers.len());
            if let Some(&moved) = self.numbers.get(place) {
                self.set_place(moved, Some(place));
            }
        }
    }

    /// Forgets all pages.
    pub(crate) fn clear(&mut self) {
        for at in 0..self.numbers.len() {
            self.set_place(self.numbers[at], None);
        }
        self.numbers.clear();
        self.pages.truncate(PAGES_KEPT);
    }

    #[inline]
    fn place(&self, number: PageNo) -> Option<usize> {
        let table = self.tables.get(number.0 as usize / TABLE_PAGES)?.as_ref()?;
        (table[number.0 as usize % TABLE_PAGES] as usize).checked_sub(1)
    }

    fn set_place(&mut self, number: PageNo, place: Option<usize>) {
        let at = number.0 as usize / TABLE_PAGES;
        if self.tables.len() <= at {
            self.tables.resize_with(at + 1, || None);
        }
        let table = self.tables[at].get_or_insert_with(|| Box::new([0; TABLE_PAGES]));
        table[number.0 as usize % TABLE_PAGES] = place.map_or(0, |place| place as u32 + 1);
    }
}

impl fmt::Debug for PlainPages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("PlainPages").field(&self.numbers).finish()
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
        fn pages_are_found_by_their_numbers(steps in prop::collection::vec((0..40_u64, 0..8_u8), 0..200)) {
            let mut pages = PlainPages::default();
            let mut model = BTreeMap::new();
            for (serial, (number, step)) in (1..).zip(steps) {
                // In three tables.
                let number = PageNo(number * 17);
                match step {
                    0 => {
                        pages.clear();
                        model.clear();
                    }
                    1 | 2 => {
                        pages.remove(number);
                        model.remove(&number.0);
                    }
                    _ => {
                        let fits = model.contains_key(&number.0) || model.len() < PAGES_MAX;
                        prop_assert_eq!(pages.insert(number), fits);
                        if let Some(page) = pages.get_mut(number) {
                            page.set_number(PageNo(serial));
                            model.insert(number.0, PageNo(serial));
                        }
                    }
                }
                for number in (0..40).map(|number| number * 17) {
                    let found = pages.get(PageNo(number)).map(Page::number);
                    prop_assert_eq!(found, model.get(&number).copied());
                }
            }
        }
    }
}
