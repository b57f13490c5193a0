//! Views whose pages are asked for (`demand`), of mode tracked.
//!
//! What a transaction has filled goes when it ends, but for pages that are expected to be looked at again: those that
//! were asked for twice within a few transactions and that nobody has changed. They are *kept*. The next transaction
//! finds them there without a fault, and they count as read by it from its beginning, whether it looks at them or not,
//! since nothing tells. A store to one is a fault. A tree's upper blocks are such pages.
//!
//! ```text
//!  asked for                  reading or writing; dropped at the end
//!  asked for again soon       the same; kept at the end, if it is as it was
//!  kept                       reading, and in the read set, of each transaction in this view
//!  changed, by anybody        dropped
//! ```
//!
//! So a transaction may lose for a page that it did not need. The next attempt keeps nothing and cannot; and from time
//! to time all pages are dropped, so that those that are needed no more get lost.

// Memory that is filled and emptied under the program's loads and stores.
#![allow(unsafe_code)]

use std::mem;
use std::ptr;

use rustix::mm::MprotectFlags;

use crate::allocator::RESERVED_BYTES;
use crate::area::Area;
use crate::error::{Doing, Result};
use crate::explicit;
use crate::inner::Inner;
use crate::page::{PAGE_BYTES, page_of};

use super::{CLOSED, Ended, KEPT, READ, View, WRITTEN, map_file, touched_bytes};

/// So many pages are kept at most. A commit compares them with what others have committed meanwhile.
pub(super) const EXPECTED_MAX: usize = 256;
/// A page that is asked for again within so many transactions in the view is expected to be asked for once more.
const SOON: u64 = 256;
/// All pages are dropped once in so many transactions.
const LEARNT_ANEW: u64 = 4096;

impl View {
    /// Drops the kept pages that have changed since they were kept, as far as the new snapshot sees that.
    pub(super) fn begin_asked(&mut self, inner: &Inner) -> Result<()> {
        self.transactions += 1;
        let snapshot = self.snapshot;
        if self.kept_count > 0 {
            let region = &*inner.region;
            let mut changed = Ok(());
            let seen = region.changes(self.seen, &snapshot, |page| {
                // What is told may be of another time, and anything.
                let is_kept = page < self.pages && self.state(page) & KEPT != 0;
                if is_kept && changed.is_ok() {
                    changed = self.drop_kept(page);
                }
            });
            changed?;
            match seen {
                Some(seen) => self.seen = seen,
                None => self.forget_all()?,
            }
        }
        if self.kept_count == 0 {
            self.seen = snapshot.tail;
        }
        self.touched_count = self.kept_count;
        Ok(())
    }

    fn drop_kept(&mut self, page: u64) -> Result<()> {
        self.forget(page, 1)?;
        self.set_state(page, 0);
        self.kept.set_word(page, 0);
        let places = 0..self.kept_count;
        if let Some(place) = places.into_iter().find(|at| self.touched_page(*at) == page) {
            self.kept_count -= 1;
            let last = self.touched_page(self.kept_count);
            self.touched.set_word(place as u64, last);
        }
        Ok(())
    }

    /// The transaction has ended; `changed` is what it has changed of what it has touched, in that order, if it was
    /// committed. The pages that were kept and are kept on are not looked at: there may be many.
    pub(super) fn rest_asked(&mut self, ended: Ended, changed: &[u64]) -> Result<()> {
        let mut changed = changed.iter().peekable();
        for place in self.kept_count..mem::take(&mut self.touched_count) {
            let page = self.touched_page(place);
            let state = self.state(page);
            let is_changed = changed.next_if(|next| **next == page).is_some();
            if state & KEPT != 0 {
                // It was opened for stores.
                self.drop_kept(page)?;
                continue;
            }
            let is_open = state & WRITTEN != 0;
            let is_clean = !is_open || matches!(ended, Ended::Committed(_)) && !is_changed;
            if !is_clean || self.kept_count >= EXPECTED_MAX || !self.is_expected(page) {
                self.forget(page, 1)?;
                self.kept.set_word(page, self.transactions);
                self.set_state(page, 0);
                continue;
            }
            let stored_to = state & (WRITTEN | CLOSED) == WRITTEN;
            if stored_to && let Some(demand) = &self.demand {
                demand.close_for_stores(self.page(page))?;
            }
            self.set_state(page, READ | KEPT);
            // Not behind the page that is being looked at.
            self.touched.set_word(self.kept_count as u64, page);
            self.kept_count += 1;
        }
        self.kept_newest = self.kept_newest.max(self.snapshot.version);
        if ended == Ended::Lost || self.transactions.is_multiple_of(LEARNT_ANEW) {
            self.drop_all_kept()?;
        }
        Ok(())
    }

    fn drop_all_kept(&mut self) -> Result<()> {
        self.forget(0, self.pages)?;
        for place in 0..mem::take(&mut self.kept_count) {
            let page = self.touched_page(place);
            self.kept.set_word(page, self.transactions);
            self.set_state(page, 0);
        }
        Ok(())
    }

    /// Whether a page that was asked for now was asked for not long ago, too.
    fn is_expected(&self, page: u64) -> bool {
        let asked_in = self.kept.word(page);
        asked_in != 0 && self.transactions - asked_in <= SOON
    }

    /// Gives the transaction a page that is asked for, or opens one for stores.
    pub(super) fn fill(&mut self, page: u64, access: u8) -> Result<()> {
        let (Some(demand), state) = (&self.demand, self.state(page)) else {
            return Ok(());
        };
        // A page that may be stored to costs a comparison when the transaction is committed, less than to be told of
        // the first store. The allocator's pages are not the program's to store to.
        let is_reserved = page < page_of(RESERVED_BYTES);
        let is_write = access == WRITTEN || !self.read_only && !is_reserved;
        if state & READ != 0 {
            demand.open_for_stores(self.page(page))?;
            if state & KEPT != 0 {
                self.touched.set_word(self.touched_count as u64, page);
                self.touched_count += 1;
            }
        } else {
            // SAFETY: set when the transaction began, which runs and borrows the space.
            let inner = unsafe { &*self.inner };
            let before = explicit::verified(inner, &self.snapshot, page)?;
            demand.fill(self.page(page), before, is_write)?;
            self.touched.set_word(self.touched_count as u64, page);
            self.touched_count += 1;
        }
        self.set_state(page, state | READ | if is_write { WRITTEN } else { 0 });
        Ok(())
    }

    /// Goes on with protected pages of the file, in the middle of a transaction: copies take up memory, and those that
    /// were only read need none.
    pub(super) fn go_on_in_file(&mut self) -> Result<()> {
        let bytes = self.pages as usize * PAGE_BYTES;
        let room = [self.pages as usize, touched_bytes(self.pages), bytes].map(Area::new);
        let [Ok(states), Ok(touched), Ok(copies)] = room else {
            // Without room in addresses it goes on as it is.
            return Ok(());
        };
        // SAFETY: set when the transaction began, which runs and borrows the space.
        let inner = unsafe { &*self.inner };
        let (from, to) = (
            self.base.as_ptr().cast(),
            copies.base().as_ptr().cast::<libc::c_void>(),
        );
        let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED | libc::MREMAP_DONTUNMAP;
        // SAFETY: both are mappings of this size that belong to the view. The pages are found under their old address
        // again before the program goes on; the old mapping stays until the next call, so that nobody else is there.
        if unsafe { libc::mremap(from, bytes, bytes, flags, to) } == libc::MAP_FAILED {
            let error: std::io::Result<()> = Err(std::io::Error::last_os_error());
            error.doing("cannot move the copies of a view")?;
        }
        // SAFETY: all pages have moved.
        unsafe { map_file(inner, Some(self.base), self.pages, MprotectFlags::empty()) }?;
        self.is_asked = false;
        self.kept_count = 0;
        let states = std::mem::replace(&mut self.states, states);
        let touched = std::mem::replace(&mut self.touched, touched);
        let count = std::mem::take(&mut self.touched_count);
        for page in (0..count as u64).map(|place| touched.word(place)) {
            let is_written = states.bytes()[page as usize] & WRITTEN != 0;
            let access = if is_written { WRITTEN } else { READ };
            if self.state(page) & access == 0 {
                self.in_granules(page, |view, pages| view.admit_all(pages, access))?;
            }
            if is_written {
                let copy = &copies.bytes()[page as usize * PAGE_BYTES..][..PAGE_BYTES];
                // SAFETY: both are pages, and this one is open for stores.
                unsafe { ptr::copy_nonoverlapping(copy.as_ptr(), self.page(page), PAGE_BYTES) };
            }
        }
        self.close_reserved_in_handler();
        Ok(())
    }

    /// A child of the process that made the view has not got its memory.
    pub(super) fn is_of_parent(&self) -> bool {
        self.demand.as_ref().is_some_and(|demand| !demand.is_own())
    }
}
