//! A table of pages by number, made to be filled and emptied often.

/// What is known of some pages, in the order in which they were added.
#[derive(Debug)]
pub(crate) struct PageTable<T> {
    entries: Vec<(u64, T)>,
    /// 1 + places in `entries`, by hash with linear probing; 0 where there is none. At most half full.
    index: Vec<u32>,
}

impl<T> Default for PageTable<T> {
    fn default() -> Self {
        Self {
            entries: Vec::new(),
            index: vec![0; 64],
        }
    }
}

impl<T> PageTable<T> {
    pub(crate) fn get(&self, page: u64) -> Option<&T> {
        let place = self.index[self.find(page)].checked_sub(1)?;
        Some(&self.entries[place as usize].1)
    }

    pub(crate) fn get_mut(&mut self, page: u64) -> Option<&mut T> {
        let place = self.index[self.find(page)].checked_sub(1)?;
        Some(&mut self.entries[place as usize].1)
    }

    pub(crate) fn get_or_try_insert_with<E>(
        &mut self,
        page: u64,
        make: impl FnOnce() -> Result<T, E>,
    ) -> Result<&mut T, E> {
        let mut at = self.find(page);
        if self.index[at] == 0 {
            let made = make()?;
            if (self.entries.len() + 1) * 2 > self.index.len() {
                self.grow();
                at = self.find(page);
            }
            self.entries.push((page, made));
            self.index[at] = self.entries.len() as u32;
        }
        Ok(&mut self.entries[self.index[at] as usize - 1].1)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, &T)> {
        self.entries.iter().map(|(page, entry)| (*page, entry))
    }

    pub(crate) fn clear(&mut self) {
        if self.entries.len() * 8 < self.index.len() {
            // Backwards, so that none is cut off from where its search begins.
            while let Some((page, _)) = self.entries.last() {
                let at = self.find(*page);
                self.index[at] = 0;
                self.entries.pop();
            }
        } else {
            self.entries.clear();
            self.index.fill(0);
        }
    }

    /// Where in the index a page is, or would be.
    fn find(&self, page: u64) -> usize {
        let mask = self.index.len() - 1;
        let mut at = (page.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize & mask;
        while let Some(place) = self.index[at].checked_sub(1)
            && self.entries[place as usize].0 != page
        {
            at = (at + 1) & mask;
        }
        at
    }

    fn grow(&mut self) {
        self.index = vec![0; self.index.len() * 2];
        for place in 0..self.entries.len() {
            let at = self.find(self.entries[place].0);
            self.index[at] = place as u32 + 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn is_a_map(rounds in prop::collection::vec(prop::collection::vec((0..300_u64, any::<u8>()), 0..200), 1..5)) {
            let mut table = PageTable::default();
            for round in rounds {
                let mut model = BTreeMap::new();
                for (page, value) in round {
                    let page = page * 0x1_0000_0001;
                    model.entry(page).or_insert(value);
                    let made = table.get_or_try_insert_with(page, || Ok::<_, ()>(value));
                    prop_assert_eq!(made.copied(), Ok(model[&page]));
                    let failed = table.get_or_try_insert_with(page + 1, || Err(()));
                    prop_assert_eq!(failed.is_err(), !model.contains_key(&(page + 1)));
                    prop_assert_eq!(table.get(page), model.get(&page));
                    prop_assert_eq!(table.get(page + 1), model.get(&(page + 1)));
                }
                let found: BTreeMap<u64, u8> = table.iter().map(|(page, value)| (page, *value)).collect();
                prop_assert_eq!(&found, &model);
                prop_assert_eq!(table.iter().count(), model.len());
                table.clear();
                prop_assert!(model.keys().all(|page| table.get(*page).is_none()));
            }
        }
    }
}
