//! Pages of a write transaction that stay in plain memory until it commits.
//!
//! The first store to a page of the map that the system takes for clean costs a page fault, which is more than all else
//! that a small change of a page costs. A copy in memory that is used again and again costs none, and reaches the file
//! with a write, together with its neighbours.

use crate::format::page::Page;
use crate::ids::PageNo;
use crate::page_map::ByNumber;

/// How many pages of one transaction are kept in memory (256 MiB); the others are stored to through windows, where the
/// first store to each costs the system several times what a page in memory does.
const PAGES_MAX: usize = if cfg!(test) { 12 } else { 64 << 10 };

/// So many stay allocated for the transactions that follow (8 MiB).
const PAGES_KEPT: usize = if cfg!(test) { 4 } else { 2 << 10 };

/// Pages in memory, by number.
#[derive(Default)]
pub(crate) struct PlainPages(ByNumber<Box<Page>>);

impl PlainPages {
    /// The page, if it is here.
    #[inline]
    pub(crate) fn get(&self, number: PageNo) -> Option<&Page> {
        self.0.get(number).map(|page| &**page)
    }

    /// The page, if it is here, to be changed.
    #[inline]
    pub(crate) fn get_mut(&mut self, number: PageNo) -> Option<&mut Page> {
        self.0.get_mut(number).map(|page| &mut **page)
    }

    /// Takes a page in, with contents arbitrary, unless there are too many already. Answers whether it is here.
    pub(crate) fn insert(&mut self, number: PageNo) -> bool {
        let new = || Box::new(Page::zeroed());
        self.0.insert(number, PAGES_MAX, new).is_some()
    }

    /// Forgets a page.
    pub(crate) fn remove(&mut self, number: PageNo) {
        self.0.remove(number);
    }

    /// Forgets all pages.
    pub(crate) fn clear(&mut self) {
        self.0.clear(PAGES_KEPT);
    }
}
