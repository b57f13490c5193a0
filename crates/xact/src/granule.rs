//! How many pages a fault gives a transaction access to.
//!
//! As a rule one. But each change of protection from a page to its neighbour begins another *area*, and the system
//! bounds how many of them a process has (`vm.max_map_count`, 65,530 by default). So the areas of all views are
//! counted, and the more there are, the more pages a fault lets in at once: those count as used, which may make for
//! conflicts that need not be, but a transaction may use as many pages as there are.

use std::sync::atomic::{AtomicUsize, Ordering};

/// So many areas are made page by page. The system's limit is left some for whatever else a program maps.
const AREAS_BY_PAGE: usize = 44_000;
/// So many more are made before the next larger granule is taken.
const AREAS_PER_GRANULE: usize = 3_000;
/// The next larger granule has so many times as many pages.
const GROWTH: u64 = 64;

/// The areas of all views in this process.
static AREAS: AtomicUsize = AtomicUsize::new(0);

/// The areas of one view.
#[derive(Debug, Default)]
pub(crate) struct Areas(usize);

impl Areas {
    /// A page's protection has changed: so many borders to its neighbours have become so many others.
    pub(crate) fn change(&mut self, before: usize, after: usize) {
        self.set((self.0 + after).saturating_sub(before));
    }

    /// All pages have the same protection again.
    pub(crate) fn clear(&mut self) {
        self.set(0);
    }

    fn set(&mut self, areas: usize) {
        AREAS.fetch_add(areas.wrapping_sub(self.0), Ordering::Relaxed);
        self.0 = areas;
    }
}

impl Drop for Areas {
    fn drop(&mut self) {
        self.clear();
    }
}

/// How many pages the next fault gives access to. They begin at a multiple of their number.
pub(crate) fn pages() -> u64 {
    pages_at(AREAS.load(Ordering::Relaxed))
}

fn pages_at(areas: usize) -> u64 {
    let beyond = areas.saturating_sub(AREAS_BY_PAGE);
    let level = beyond.div_ceil(AREAS_PER_GRANULE);
    GROWTH.saturating_pow(u32::try_from(level).unwrap_or(u32::MAX))
}

/// The next larger number of pages.
pub(crate) fn larger(pages: u64) -> u64 {
    pages.saturating_mul(GROWTH)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::places::PAGES_MAX;

    #[test]
    fn the_largest_space_takes_up_fewer_areas_than_the_system_has() {
        assert_eq!(pages_at(0), 1);
        assert_eq!(pages_at(AREAS_BY_PAGE), 1);
        let enough = (0..).find(|areas| pages_at(*areas) >= PAGES_MAX);
        assert!(
            enough.is_some_and(|areas| areas < 60_000),
            "all of it fits into one granule from {enough:?} areas on"
        );
    }
}
