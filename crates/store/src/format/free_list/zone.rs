//! Zones: which of ZONE_PAGES consecutive pages are free for good.

#![deny(clippy::indexing_slicing)]

use super::PageRange;
use crate::format::roots::FIRST_PAGE;
use crate::ids::PageNo;

/// How many pages a zone has. (Fewer in unit tests, so that the crash tests see many.)
pub(crate) const ZONE_PAGES: u64 = if cfg!(test) { 64 } else { 4096 };

const WORDS: usize = (ZONE_PAGES / 64) as usize;

/// A bit for each page of a zone, set if it is free.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Zone([u64; WORDS]);

/// The zone of a page.
pub(crate) fn zone_of(page: u64) -> u64 {
    page / ZONE_PAGES
}

impl Zone {
    pub(crate) const EMPTY: Self = Self([0; WORDS]);

    /// Reads a zone of a store that has `limit` pages.
    pub(crate) fn decode(number: u64, value: &[u8], limit: u64) -> Option<Self> {
        let (words, rest) = value.as_chunks::<8>();
        let words: &[[u8; 8]; WORDS] = words.try_into().ok().filter(|_| rest.is_empty())?;
        let zone = Self(words.map(u64::from_le_bytes));
        let base = number.checked_mul(ZONE_PAGES)?;
        base.checked_add(ZONE_PAGES)?;
        // All others are between them.
        let ends = zone.next(0, true).zip(zone.last());
        let fit =
            ends.is_none_or(|(first, last)| base + first >= FIRST_PAGE && base + last < limit);
        fit.then_some(zone)
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        self.0.map(u64::to_le_bytes).as_flattened().to_vec()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0 == [0; WORDS]
    }

    /// Sets or clears the bits of these pages, which lie in one zone. Gives whether all of them had been the other way.
    pub(crate) fn set(&mut self, range: PageRange, free: bool) -> bool {
        let from = range.first.0 % ZONE_PAGES;
        let mut changed = true;
        for page in from..from + u64::from(range.pages) {
            if let Some(word) = self.0.get_mut((page / 64) as usize) {
                let bit = 1 << (page % 64);
                changed &= (*word & bit != 0) != free;
                if free {
                    *word |= bit;
                } else {
                    *word &= !bit;
                }
            }
        }
        changed
    }

    /// The free pages of zone `number`, ascending.
    pub(crate) fn ranges(&self, number: u64) -> impl Iterator<Item = PageRange> {
        self.ranges_from(number, 0)
    }

    /// Those from `page` on.
    pub(crate) fn ranges_from(&self, number: u64, page: u64) -> impl Iterator<Item = PageRange> {
        let base = number * ZONE_PAGES;
        let mut at = page.saturating_sub(base);
        std::iter::from_fn(move || {
            let first = self.next(at, true)?;
            let end = self.next(first, false).unwrap_or(ZONE_PAGES);
            at = end;
            Some(PageRange {
                first: PageNo(base + first),
                pages: (end - first) as u32,
            })
        })
    }

    /// The last page that is free.
    fn last(&self) -> Option<u64> {
        let number = self.0.iter().rposition(|&word| word != 0)?;
        let word = self.0.get(number)?;
        Some(number as u64 * 64 + 63 - u64::from(word.leading_zeros()))
    }

    /// The first page from `at` on whose bit is `free`.
    fn next(&self, at: u64, free: bool) -> Option<u64> {
        let (words, bit) = ((at / 64) as usize, at % 64);
        let mut mask = u64::MAX << bit;
        for (number, &word) in (0..).zip(&self.0).skip(words) {
            let wanted = if free { word } else { !word } & mask;
            if wanted != 0 {
                return Some(number * 64 + u64::from(wanted.trailing_zeros()));
            }
            mask = u64::MAX;
        }
        None
    }
}

/// The parts of a range in each zone that it touches, with the numbers of these zones.
pub(crate) fn by_zone(range: PageRange) -> impl Iterator<Item = (u64, PageRange)> {
    let end = range.first.0 + u64::from(range.pages);
    let mut at = range.first.0;
    std::iter::from_fn(move || {
        let zone = zone_of(at);
        let first = at;
        at = end.min((zone + 1) * ZONE_PAGES);
        (first < end).then_some((
            zone,
            PageRange {
                first: PageNo(first),
                pages: (at - first) as u32,
            },
        ))
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_zone_is_a_set_of_pages(
            changes in prop::collection::vec((0..ZONE_PAGES, 1..20_u64, any::<bool>()), 0..40),
            from in 0..ZONE_PAGES,
        ) {
            let mut zone = Zone::EMPTY;
            let mut model = BTreeSet::new();
            let base = 3 * ZONE_PAGES;
            for (first, pages, free) in changes {
                let pages = pages.min(ZONE_PAGES - first);
                let range = PageRange { first: PageNo(base + first), pages: pages as u32 };
                let mut changed = true;
                for page in base + first..base + first + pages {
                    changed &= if free { model.insert(page) } else { model.remove(&page) };
                }
                prop_assert_eq!(zone.set(range, free), changed);
            }
            let ranges: Vec<_> = zone.ranges(3).collect();
            let pages: Vec<_> = ranges
                .iter()
                .flat_map(|range| range.first.0..range.first.0 + u64::from(range.pages))
                .collect();
            prop_assert!(pages.iter().eq(&model));
            let from = base + from;
            let behind = zone.ranges_from(3, from).flat_map(|range| range.first.0..range.first.0 + u64::from(range.pages));
            prop_assert!(behind.eq(model.range(from..).copied()));
            prop_assert!(ranges.is_sorted_by(|a, b| a.first.0 + u64::from(a.pages) < b.first.0));
            prop_assert_eq!(zone.is_empty(), model.is_empty());
            prop_assert_eq!(Zone::decode(3, &zone.encode(), base + ZONE_PAGES), Some(zone.clone()));
            if let Some(last) = model.last() {
                prop_assert_eq!(Zone::decode(3, &zone.encode(), *last), None);
            }
        }
    }

    #[test]
    fn a_run_is_cut_at_the_borders_of_zones() {
        let range = PageRange {
            first: PageNo(ZONE_PAGES - 2),
            pages: ZONE_PAGES as u32 + 3,
        };
        let parts: Vec<_> = by_zone(range)
            .map(|(zone, range)| (zone, range.first.0, range.pages))
            .collect();
        let all = ZONE_PAGES as u32;
        let expected = [
            (0, ZONE_PAGES - 2, 2),
            (1, ZONE_PAGES, all),
            (2, 2 * ZONE_PAGES, 1),
        ];
        assert_eq!(parts, expected);
    }
}
