//! Explicit access: the program says what it reads and writes.
//!
//! What is read is lent straight from where it is: the mapped file, or the frame with the right version, or the
//! transaction's own copy of a page it has written to. Only a range over pages that do not lie side by side is copied
//! together. Pages that are written to are copied first, into *extents* of as many pages as one call asked for.

// Pages are lent to the program while more of them are looked up; the borrows of `Transaction` see to it that none is
// written to while it is lent.
#![allow(unsafe_code)]

use std::ptr;

use crate::buffer::Buffer;
use crate::error::Result;
use crate::inner::Inner;
use crate::page::{PAGE_BYTES, PageBytes, fetch, page_of, within_page};
use crate::region::slot::{Signature, Snapshot};
use crate::table::PageTable;

/// What an explicit transaction has touched.
#[derive(Debug, Default)]
pub(crate) struct Explicit {
    pages: PageTable<Page>,
    /// Own copies of consecutive pages.
    extents: Vec<Buffer>,
    /// Buffers of one page each, to be used again.
    spare: Vec<Buffer>,
    joined: Vec<Joined>,
}

/// How many buffers are kept for the next transaction.
const SPARE_MAX: usize = 64;
/// A page that is not written to.
const NONE: usize = usize::MAX;

#[derive(Clone, Copy, Debug)]
struct Page {
    /// The page as the snapshot has it.
    before: *const PageBytes,
    /// Where it is written to, if it is.
    own: *mut PageBytes,
    /// Which of the extents that is in.
    extent: usize,
}

// SAFETY: the pointers are used only while a transaction runs, by the thread it is lent to.
unsafe impl Send for Page {}

impl Page {
    fn now(&self) -> *const PageBytes {
        if self.own.is_null() {
            self.before
        } else {
            self.own
        }
    }
}

/// A range that was copied together.
#[derive(Debug)]
struct Joined {
    offset: u64,
    length: usize,
    buffer: Buffer,
}

impl Explicit {
    /// The bytes of a range that lies within the space and is not empty.
    pub(crate) fn read(
        &mut self,
        inner: &Inner,
        snapshot: &Snapshot,
        offset: u64,
        length: usize,
    ) -> Result<*const u8> {
        let first = page_of(offset);
        let last = page_of(offset + length as u64 - 1);
        let start = self.page(inner, snapshot, first)?;
        if first == last || self.is_consecutive(inner, snapshot, start, first..=last)? {
            let now = start.now();
            return Ok(now.cast::<u8>().wrapping_add(within_page(offset)));
        }
        Ok(self.join(offset, length))
    }

    /// Whether the pages lie one behind the other; they are all looked up.
    fn is_consecutive(
        &mut self,
        inner: &Inner,
        snapshot: &Snapshot,
        start: Page,
        pages: std::ops::RangeInclusive<u64>,
    ) -> Result<bool> {
        let mut is_consecutive = true;
        for (place, page) in pages.enumerate() {
            let page = self.page(inner, snapshot, page)?;
            is_consecutive &= page.extent == start.extent;
            is_consecutive &= page.now() == start.now().wrapping_add(place);
        }
        Ok(is_consecutive)
    }

    /// Copies a range together whose pages have been looked up.
    fn join(&mut self, offset: u64, length: usize) -> *const u8 {
        let known = |joined: &&Joined| joined.offset == offset && joined.length >= length;
        if let Some(joined) = self.joined.iter().find(known) {
            return joined.buffer.base().wrapping_add(within_page(offset));
        }
        let first = page_of(offset);
        let pages = page_of(offset + length as u64 - 1) - first + 1;
        let buffer = Buffer::new(pages as usize);
        for place in 0..pages {
            if let Some(page) = self.pages.get(first + place) {
                let to = buffer.base().wrapping_add(place as usize * PAGE_BYTES);
                // SAFETY: the page is valid while the transaction runs, and the buffer has room for it.
                unsafe { ptr::copy_nonoverlapping(page.now().cast::<u8>(), to, PAGE_BYTES) };
            }
        }
        let base = buffer.base();
        self.joined.push(Joined {
            offset,
            length,
            buffer,
        });
        base.wrapping_add(within_page(offset))
    }

    /// The bytes of a range that lies within the space and is not empty, to be written to.
    pub(crate) fn write(
        &mut self,
        inner: &Inner,
        snapshot: &Snapshot,
        offset: u64,
        length: usize,
    ) -> Result<*mut u8> {
        self.joined.clear();
        let mut first = page_of(offset);
        let mut last = page_of(offset + length as u64 - 1);
        let start = self.page(inner, snapshot, first)?;
        if (first..last).all(|page| self.shares_extent(page, page + 1)) && start.extent != NONE {
            return Ok(start.own.cast::<u8>().wrapping_add(within_page(offset)));
        }
        // Before any page gets another place.
        for page in first..=last {
            self.page(inner, snapshot, page)?;
        }
        // Whatever else is in the extents that this one takes the place of comes along, so that it stays together.
        while first > 0 && self.shares_extent(first - 1, first) {
            first -= 1;
        }
        while self.shares_extent(last, last + 1) {
            last += 1;
        }
        let pages = (last - first + 1) as usize;
        let spare = if pages == 1 { self.spare.pop() } else { None };
        let buffer = spare.unwrap_or_else(|| Buffer::new(pages));
        let start: *mut PageBytes = buffer.base().cast();
        for (place, page) in (first..=last).enumerate() {
            if let Some(page) = self.pages.get_mut(page) {
                let own = start.wrapping_add(place);
                // SAFETY: the page is valid while the transaction runs; the buffer is new and has room for it.
                unsafe { ptr::copy_nonoverlapping(page.now(), own, 1) };
                page.own = own;
                page.extent = self.extents.len();
            }
        }
        self.extents.push(buffer);
        let skip = (page_of(offset) - first) as usize;
        let page = start.wrapping_add(skip).cast::<u8>();
        Ok(page.wrapping_add(within_page(offset)))
    }

    /// Whether two neighbouring pages have their own copies in the same extent, side by side then.
    fn shares_extent(&self, page: u64, next: u64) -> bool {
        let extent = |page| self.pages.get(page).map_or(NONE, |page| page.extent);
        extent(page) != NONE && extent(page) == extent(next)
    }

    fn page(&mut self, inner: &Inner, snapshot: &Snapshot, page: u64) -> Result<Page> {
        let found = self.pages.get_or_try_insert_with(page, || {
            let before = verified(inner, snapshot, page)?;
            // A search looks at some lines of it one after the other, and a copy at all of them.
            fetch(before);
            Ok(Page {
                before,
                own: ptr::null_mut(),
                extent: NONE,
            })
        });
        found.copied()
    }

    /// All pages that were touched.
    pub(crate) fn touched(&self) -> impl Iterator<Item = u64> {
        self.pages.iter().map(|(page, _)| page)
    }

    /// The pages that were written to, before and after.
    ///
    /// # Safety
    /// The transaction still runs, and nothing is lent out for writing.
    pub(crate) unsafe fn written(&self) -> impl Iterator<Item = (u64, &PageBytes, &PageBytes)> {
        let written = self.pages.iter().filter(|(_, page)| !page.own.is_null());
        // SAFETY: both are valid while the transaction runs; nobody writes to them by the caller's promise.
        written.map(|(number, page)| unsafe { (number, &*page.before, &*page.own) })
    }

    /// What was touched, as a signature.
    pub(crate) fn signature(&self) -> Signature {
        let mut signature = Signature::default();
        self.touched().for_each(|page| signature.add(page));
        signature
    }

    /// Forgets everything.
    pub(crate) fn clear(&mut self) {
        self.pages.clear();
        self.joined.clear();
        for buffer in self.extents.drain(..) {
            if buffer.pages() == 1 && self.spare.len() < SPARE_MAX {
                self.spare.push(buffer);
            }
        }
    }
}

/// As [`before`], verified if it is in the file.
///
/// # Errors
/// [`PageDamaged`](crate::Error::PageDamaged).
pub(crate) fn verified(inner: &Inner, snapshot: &Snapshot, page: u64) -> Result<*const PageBytes> {
    let before = before(inner, snapshot, page);
    if before == inner.page_in_file(page) {
        inner.verify(page)?;
    }
    Ok(before)
}

/// A page as a snapshot has it. It stays so while the snapshot's transaction runs.
pub(crate) fn before(inner: &Inner, snapshot: &Snapshot, page: u64) -> *const PageBytes {
    match inner.region.find(page, snapshot) {
        // SAFETY: the frame is one that the snapshot may see.
        Some(found) => unsafe { inner.region.version(found) },
        None => inner.page_in_file(page),
    }
}
