//! Pages of a write transaction that stay in plain memory until it commits.
//!
//! The first store to a page of the map that the system takes for clean costs a page fault, which is more than all else
//! that a small change of a page costs. A copy in memory that is used again and again costs none, and reaches the file
//! with a write, together with its neighbours.

// A page that nobody else has a share in is changed without asking how many have one.
#![allow(unsafe_code)]

use std::fmt;

use crate::format::page::Page;
use crate::ids::PageNo;
use crate::page_map::ByNumber;
use crate::sync::Arc;

/// How many pages of one transaction are kept in memory (256 MiB); the others are stored to through windows, where the
/// first store to each costs the system several times what a page in memory does.
const PAGES_MAX: usize = if cfg!(test) { 12 } else { 64 << 10 };

/// So many stay allocated for the transactions that follow (8 MiB).
const PAGES_KEPT: usize = if cfg!(test) { 4 } else { 2 << 10 };

/// Pages in memory, by number.
#[derive(Default)]
pub(crate) struct PlainPages(ByNumber<PlainPage>);

struct PlainPage {
    page: Arc<Page>,
    /// Somebody else may have a share in it. To ask the page itself costs as much as to store to it: what it would say
    /// lies elsewhere in memory than what is stored to, and is asked for with an instruction that waits for all stores
    /// before it.
    is_shared: bool,
}

impl PlainPages {
    /// The page, if it is here.
    #[inline]
    pub(crate) fn get(&self, number: PageNo) -> Option<&Page> {
        self.0.get(number).map(|plain| &*plain.page)
    }

    /// The page, if it is here, to be changed. Who has a share in it keeps it as it was.
    #[inline]
    pub(crate) fn get_mut(&mut self, number: PageNo) -> Option<&mut Page> {
        let plain = self.0.get_mut(number)?;
        if std::mem::take(&mut plain.is_shared) {
            return Some(Arc::make_mut(&mut plain.page));
        }
        // SAFETY: nobody else has a share: only `share` gives any, after which `make_mut` has to leave the page to
        // those who got one; and `&mut self` keeps everybody from looking at it from here.
        Some(unsafe { &mut *Arc::as_ptr(&plain.page).cast_mut() })
    }

    /// A share in the page, if it is here.
    pub(crate) fn share(&mut self, number: PageNo) -> Option<Arc<Page>> {
        let plain = self.0.get_mut(number)?;
        plain.is_shared = true;
        Some(plain.page.clone())
    }

    /// Takes a page in, with contents arbitrary, unless there are too many already. Answers whether it is here.
    pub(crate) fn insert(&mut self, number: PageNo) -> bool {
        let new = || PlainPage {
            page: Arc::new(Page::zeroed()),
            is_shared: false,
        };
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

impl fmt::Debug for PlainPages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("PlainPages")
            .field(&self.0.numbers())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_a_share_keeps_the_page_as_it_was() {
        let (one, other) = (PageNo(3), PageNo(900));
        let mut plain = PlainPages::default();
        assert!(plain.insert(one));
        plain.get_mut(one).unwrap().set_number(PageNo(1));
        let before = plain.share(one).unwrap();
        let again = plain.share(one).unwrap();
        plain.get_mut(one).unwrap().set_number(PageNo(2));
        plain.get_mut(one).unwrap().set_number(PageNo(4));
        assert_eq!([before.number(), again.number()], [PageNo(1); 2]);
        // The place of a page that is forgotten is used again.
        let last = plain.share(one).unwrap();
        plain.remove(one);
        assert!(plain.share(one).is_none());
        assert!(plain.insert(other));
        plain.get_mut(other).unwrap().set_number(PageNo(5));
        assert_eq!(last.number(), PageNo(4));
        assert_eq!(plain.get(other).unwrap().number(), PageNo(5));
        let kept = plain.share(other).unwrap();
        plain.clear();
        assert!(plain.insert(one));
        plain.get_mut(one).unwrap().set_number(PageNo(6));
        assert_eq!(kept.number(), PageNo(5));
    }
}
