//! Things that belong to pages, found by the numbers of these without any search.

pub(crate) mod set;

use crate::ids::PageNo;
use crate::page_map::set::PageSet;

/// How many page numbers one table covers.
const TABLE_PAGES: usize = 256;

/// Places of consecutive pages: one more than the index of each, 0 for none.
type Table = [u32; TABLE_PAGES];

/// Something for each of some pages.
pub(crate) struct ByNumber<T> {
    /// Which pages there is something for: most are asked for in vain, for which one bit is enough.
    pages: PageSet,
    tables: Vec<Option<Box<Table>>>,
    /// As many as there are pages.
    numbers: Vec<PageNo>,
    /// Those of the pages, and behind them those that are kept for others.
    items: Vec<T>,
}

impl<T> Default for ByNumber<T> {
    fn default() -> Self {
        Self {
            pages: PageSet::default(),
            tables: Vec::new(),
            numbers: Vec::new(),
            items: Vec::new(),
        }
    }
}

impl<T> ByNumber<T> {
    /// The pages, in any order.
    pub(crate) fn numbers(&self) -> &[PageNo] {
        &self.numbers
    }

    #[inline]
    pub(crate) fn get(&self, number: PageNo) -> Option<&T> {
        self.place(number).map(|place| &self.items[place])
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, number: PageNo) -> Option<&mut T> {
        self.place(number).map(|place| &mut self.items[place])
    }

    /// What there is for the page; if there is nothing, something that was kept, or new, with contents arbitrary,
    /// unless there are `max` pages already.
    pub(crate) fn insert(
        &mut self,
        number: PageNo,
        max: usize,
        new: impl FnOnce() -> T,
    ) -> Option<&mut T> {
        if let Some(place) = self.place(number) {
            return Some(&mut self.items[place]);
        }
        let place = self.numbers.len();
        if place >= max {
            return None;
        }
        if place == self.items.len() {
            self.items.push(new());
        }
        self.numbers.push(number);
        self.set_pointer(number, Some(place));
        Some(&mut self.items[place])
    }

    /// Forgets a page.
    pub(crate) fn remove(&mut self, number: PageNo) {
        if let Some(place) = self.place(number) {
            self.set_pointer(number, None);
            self.numbers.swap_remove(place);
            self.items.swap(place, self.numbers.len());
            if let Some(&moved) = self.numbers.get(place) {
                self.set_pointer(moved, Some(place));
            }
        }
    }

    /// Forgets all pages, and keeps at most so many of what there was for them.
    pub(crate) fn clear(&mut self, kept: usize) {
        for at in 0..self.numbers.len() {
            self.set_pointer(self.numbers[at], None);
        }
        self.pages.clear();
        self.numbers.clear();
        self.items.truncate(kept);
    }

    #[inline]
    fn place(&self, number: PageNo) -> Option<usize> {
        if !self.pages.has(number) {
            return None;
        }
        let table = self.tables.get(number.0 as usize / TABLE_PAGES)?.as_ref()?;
        (table[number.0 as usize % TABLE_PAGES] as usize).checked_sub(1)
    }

    fn set_pointer(&mut self, number: PageNo, place: Option<usize>) {
        self.pages.set(number, place.is_some());
        let at = number.0 as usize / TABLE_PAGES;
        if self.tables.len() <= at {
            self.tables.resize_with(at + 1, || None);
        }
        let table = self.tables[at].get_or_insert_with(|| Box::new([0; TABLE_PAGES]));
        table[number.0 as usize % TABLE_PAGES] = place.map_or(0, |place| place as u32 + 1);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    const MAX: usize = 12;

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn what_belongs_to_a_page_is_found_by_its_number(steps in prop::collection::vec((0..40_u64, 0..8_u8), 0..200)) {
            let mut found = ByNumber::default();
            let mut model = BTreeMap::new();
            for (serial, (number, step)) in (1..).zip(steps) {
                // In three tables.
                let number = PageNo(number * 17);
                match step {
                    0 => {
                        found.clear(4);
                        model.clear();
                    }
                    1 | 2 => {
                        found.remove(number);
                        model.remove(&number.0);
                    }
                    _ => {
                        let fits = model.contains_key(&number.0) || model.len() < MAX;
                        let place = found.insert(number, MAX, || 0);
                        prop_assert_eq!(place.is_some(), fits);
                        if let Some(place) = place {
                            *place = serial;
                            model.insert(number.0, serial);
                        }
                    }
                }
                for number in (0..40).map(|number| number * 17) {
                    prop_assert_eq!(found.get(PageNo(number)), model.get(&number));
                }
                prop_assert_eq!(found.numbers().len(), model.len());
            }
        }
    }
}
