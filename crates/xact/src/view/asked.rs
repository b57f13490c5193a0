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
//!  changed                    dropped; by itself while it is alone: kept
//! ```
//!
//! So a transaction may lose for a page that it did not need. The next attempt keeps nothing and cannot; and from time
//! to time all pages are dropped, so that those that are needed no more get lost.
//!
//! Where nobody but this view has committed for a while there is nobody to lose to. Then many more pages are kept, for
//! longer, and also those that the transaction itself has changed: what it has committed is what they hold.

// Memory that is filled and emptied under the program's loads and stores.
#![allow(unsafe_code)]

use std::mem;
use std::ops::Range;
use std::ptr;

use rustix::mm::MprotectFlags;

use crate::allocator::RESERVED_BYTES;
use crate::area::Area;
use crate::error::{Doing, Result};
use crate::explicit;
use crate::inner::Inner;
use crate::page::{PAGE_BYTES, page_of};

use super::{CLOSED, Ended, KEPT, READ, View, WRITTEN, map_file};

/// How readily pages are kept.
struct Keeping {
    /// So many at most. Each is looked up by a commit if others have committed meanwhile.
    pages: usize,
    /// A page that is asked for again within so many transactions in the view is expected to be asked for once more.
    soon: u64,
    /// All pages are dropped once in so many transactions.
    learnt_anew: u64,
}

const BESIDE_OTHERS: Keeping = Keeping {
    pages: 64,
    soon: 64,
    learnt_anew: 1024,
};
const ALONE: Keeping = Keeping {
    // They take up 4 MiB of memory.
    pages: 1024,
    soon: 1024,
    learnt_anew: 16_384,
};
/// A view is alone when nobody else has committed in so many of its transactions in a row.
const ALONE_AFTER: u64 = 32;

impl View {
    fn keeping(&self) -> &'static Keeping {
        if self.is_alone() {
            &ALONE
        } else {
            &BESIDE_OTHERS
        }
    }

    fn is_alone(&self) -> bool {
        self.alone >= ALONE_AFTER
    }

    /// Drops the kept pages that have changed since they were kept, as far as the new snapshot sees that.
    pub(super) fn begin_asked(&mut self, inner: &Inner) -> Result<()> {
        self.transactions += 1;
        self.kept_open = false;
        let snapshot = self.snapshot;
        self.alone = match snapshot.version == self.last_version {
            true => self.alone + 1,
            false => 0,
        };
        if self.kept_count > 0 {
            let region = &*inner.region;
            let mut changed = Ok(());
            let seen = region.changes(self.seen, &snapshot, |page, version| {
                // What is told may be of another time, and anything.
                let is_kept = page < self.pages && self.state(page) & KEPT != 0;
                if is_kept && version > self.kept_newest && changed.is_ok() {
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
    /// committed.
    pub(super) fn rest_asked(&mut self, ended: Ended, changed: &[u64]) -> Result<()> {
        let keeping = self.keeping();
        let learns_anew =
            ended == Ended::Lost || self.transactions.is_multiple_of(keeping.learnt_anew);
        let is_committed = matches!(ended, Ended::Committed(_));
        let mut changed = changed.iter().peekable();
        let count = mem::take(&mut self.touched_count);
        // Those that were kept before stay as they are, unless something was done to one of them.
        let stays_so = !learns_anew && !self.kept_open && self.kept_count <= keeping.pages;
        let first = if stays_so { self.kept_count } else { 0 };
        let mut kept = first;
        for place in first..count {
            let page = self.touched_page(place);
            let state = self.state(page);
            let is_changed = changed.next_if(|next| **next == page).is_some();
            let is_open = state & WRITTEN != 0;
            // What many change is not kept by those who share it.
            let is_clean = !is_open || is_committed && (!is_changed || self.is_alone());
            let stays = !learns_anew
                && is_clean
                && kept < keeping.pages
                && (state & KEPT != 0 || self.is_expected(page, keeping));
            if !stays {
                self.kept.set_word(page, self.transactions);
                self.set_state(page, 0);
                continue;
            }
            if is_open
                && state & CLOSED == 0
                && let Some(demand) = &self.demand
            {
                demand.close_for_stores(self.page(page))?;
            }
            self.set_state(page, READ | KEPT);
            let other = self.touched_page(kept);
            self.touched.set_word(kept as u64, page);
            self.touched.set_word(place as u64, other);
            kept += 1;
        }
        self.kept_count = kept;
        // Nobody else had changed what it has looked at when it was committed.
        self.kept_newest = self.kept_newest.max(self.last_version);
        self.forget_pages(kept..count)
    }

    /// Drops the pages at these places.
    fn forget_pages(&self, places: Range<usize>) -> Result<()> {
        let mut pages = places.map(|place| self.touched_page(place));
        pages.try_for_each(|page| self.forget(page, 1))
    }

    /// Whether a page that was asked for now was asked for not long ago, too.
    fn is_expected(&self, page: u64, keeping: &Keeping) -> bool {
        let asked_in = self.kept.word(page);
        asked_in != 0 && self.transactions - asked_in <= keeping.soon
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
            self.kept_open |= state & KEPT != 0;
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
        let room = [
            self.pages as usize,
            self.pages as usize * size_of::<u64>(),
            bytes,
        ]
        .map(Area::new);
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
