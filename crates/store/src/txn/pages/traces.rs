//! What is known of the bytes of own pages: where they stood before.

use crate::format::page::Origins;
use crate::ids::PageNo;
use crate::page_map::ByNumber;

/// How many pages of one transaction are followed, and kept for the next one (1 MiB); others are compared with what
/// they were copied from.
const PAGES_MAX: usize = if cfg!(test) { 20 } else { 4 << 10 };

/// The origins of the bytes of pages that were copied, by number.
#[derive(Default)]
pub(super) struct Traces(ByNumber<Origins>);

impl Traces {
    /// The origins of a page that is begun, unless too many are followed.
    pub(super) fn begin(&mut self, number: PageNo) -> Option<&mut Origins> {
        self.0.insert(number, PAGES_MAX, Origins::unknown)
    }

    /// What is known of a page, unless that is nothing.
    pub(super) fn get(&self, number: PageNo) -> Option<&Origins> {
        self.0.get(number).filter(|origins| origins.is_known())
    }

    #[inline]
    pub(super) fn get_mut(&mut self, number: PageNo) -> Option<&mut Origins> {
        self.0.get_mut(number)
    }

    pub(super) fn remove(&mut self, number: PageNo) {
        self.0.remove(number);
    }

    pub(super) fn clear(&mut self) {
        self.0.clear(PAGES_MAX);
    }
}
