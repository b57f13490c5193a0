//! Where a page's last insertions went.

use crate::format::page::Page;

/// Where in a page's header the hint stands.
pub(super) const RUN_AT: usize = 6;

/// Where the last insertions into a page went: a run of neighbours splits the page at its end instead of in the middle,
/// so that pages filled in ascending or descending order end up full. A hint, never relied upon.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct InsertionRun(pub(super) u16);

impl InsertionRun {
    const SLOT_MASK: u16 = 0x0FFF;
    const LENGTH_SHIFT: u32 = 12;
    const LENGTH_MAX: u16 = 7;
    /// How many insertions in a row make a run.
    const LENGTH_TRUSTED: u16 = 3;
    const DESCENDING: u16 = 0x8000;

    /// The run after an insertion at `slot`.
    pub(crate) fn after(self, slot: usize) -> Self {
        let last = usize::from(self.0 & Self::SLOT_MASK);
        let length = (self.0 & !Self::DESCENDING) >> Self::LENGTH_SHIFT;
        let (descending, goes_on) = match slot {
            slot if slot == last + 1 => (0, self.0 & Self::DESCENDING == 0),
            slot if slot == last => (Self::DESCENDING, self.0 & Self::DESCENDING != 0),
            _ => (0, false),
        };
        let length = match goes_on {
            true => (length + 1).min(Self::LENGTH_MAX),
            false => 1,
        };
        Self(descending | length << Self::LENGTH_SHIFT | slot as u16 & Self::SLOT_MASK)
    }

    /// The same run seen from a page whose entries begin at `offset` of the old one.
    pub(crate) fn moved(self, offset: usize) -> Self {
        let slot = usize::from(self.0 & Self::SLOT_MASK).saturating_sub(offset);
        Self(self.0 & !Self::SLOT_MASK | slot as u16 & Self::SLOT_MASK)
    }

    /// Where to split a page after the insertion that led to this run; `None` in the middle.
    pub(crate) fn cut(self) -> Option<usize> {
        let slot = usize::from(self.0 & Self::SLOT_MASK);
        let length = (self.0 & !Self::DESCENDING) >> Self::LENGTH_SHIFT;
        if length < Self::LENGTH_TRUSTED {
            None
        } else if self.0 & Self::DESCENDING == 0 {
            Some(slot)
        } else {
            Some(slot + 1)
        }
    }

    pub(crate) fn of(page: &Page) -> Self {
        Self(page.u16_at(RUN_AT))
    }
}
