//! The pages of the mapped data file: everybody reads through one read-only map, the writer writes through windows.

// Pages are references into mappings of a file that other parts of the program, and other processes, write to.
#![allow(unsafe_code)]

mod plain;
mod records;

use std::collections::VecDeque;
use std::io::ErrorKind;
use std::ptr::NonNull;
use std::sync::Once;

use sapwood_wal::storage::{File, Map, Window, memory_bytes, read_ahead};

use crate::error::{Error, Result};
use crate::format::page::{PAGE_BYTES, PAGE_NO_MAX, Page};
use crate::format::pages::ReadPages;
use crate::format::pointer::RecordPointer;
use crate::format::pointer_leaf::PointerLeaf;
use crate::format::prefetch;
use crate::format::roots::FIRST_PAGE;
use crate::ids::{CommitNo, FileNo, PageNo, SnapshotId};
use crate::sync::{Arc, AtomicU64, Ordering};

pub(crate) use plain::PlainPages;
pub(crate) use records::{Tail, TxnRecords};

/// The address range first asked for when a data file is mapped, in bytes; halved until the system grants it.
const RESERVE_BYTES: usize = 4 << 40;

/// A smaller range than this is no use.
const RESERVE_BYTES_MIN: usize = 1 << 30;

/// The data file with its map.
pub(crate) struct DataFile {
    pub(crate) file: Arc<dyn File>,
    map: Map,
    number: FileNo,
    /// How many pages fit into memory.
    memory_pages: u64,
    /// The system has been told that they do not.
    advised: Once,
}

impl DataFile {
    pub(crate) fn new(file: Arc<dyn File>) -> Result<Self> {
        let mut reserve = RESERVE_BYTES;
        loop {
            match file.map(reserve) {
                Ok(map) => {
                    return Ok(Self {
                        file,
                        map,
                        number: FileNo::next(),
                        memory_pages: memory_bytes() / 4 * 3 / PAGE_BYTES as u64,
                        advised: Once::new(),
                    });
                }
                Err(_) if reserve > RESERVE_BYTES_MIN => reserve /= 2,
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// The number of pages the map can ever show.
    pub(crate) fn pages_max(&self) -> u64 {
        PAGE_NO_MAX.min((self.map.reserved() / PAGE_BYTES) as u64)
    }

    /// The same file, in so much memory at most, which it shares with those of other stores.
    pub(crate) fn within(mut self, memory_bytes: u64, stores: usize) -> Self {
        let pages = self.memory_pages.min(memory_bytes / PAGE_BYTES as u64);
        self.memory_pages = pages / stores as u64;
        self
    }

    /// Whether so many pages take more memory than there is.
    pub(crate) fn exceed_memory(&self, pages: u64) -> bool {
        pages > self.memory_pages
    }

    /// The first `pages` pages. If they do not fit into memory, the system is told to bring those that are wanted, and
    /// no others around them.
    ///
    /// # Safety
    /// The file has that many pages, and pages that are looked at stand still meanwhile: they belong to a commit that
    /// is pinned, or to the write transaction whose turn it is to look.
    pub(crate) unsafe fn pages(&self, pages: u64) -> MappedPages {
        let exceed_memory = self.exceed_memory(pages);
        if exceed_memory {
            self.advised.call_once(|| self.map.expect_jumps());
        }
        MappedPages {
            exceed_memory,
            base: self.map.as_ptr(),
            reserved: self.map.reserved() as u64,
            pages: pages.min(self.pages_max()),
            file: self.number,
            plain: None,
            records: None,
            as_of: CommitNo(u64::MAX),
            room: None,
        }
    }
}

/// The pages of the mapped data file, as far as a snapshot or write transaction may look.
pub struct MappedPages {
    base: *const u8,
    pages: u64,
    /// The length of the mapping, in bytes.
    reserved: u64,
    file: FileNo,
    /// Pages of a write transaction that are not in the file yet.
    pub(crate) plain: Option<Box<PlainPages>>,
    /// Records and pointers of a write transaction that are not in the file yet.
    pub(crate) records: Option<Box<TxnRecords>>,
    exceed_memory: bool,
    /// The commit whose records are read.
    as_of: CommitNo,
    /// How many pages the file has by now, where pointers may lead to the records of later commits.
    room: Option<NonNull<AtomicU64>>,
}

// SAFETY: a pointer into a mapping that belongs to no thread, and pages that belong to none either; the one that made
// this value keeps the mapping.
unsafe impl Send for MappedPages {}
// SAFETY: as above; there is only reading.
unsafe impl Sync for MappedPages {}

impl MappedPages {
    /// Which snapshot's pages these are, if they are a snapshot's.
    #[inline]
    pub(crate) fn state(&self) -> SnapshotId {
        SnapshotId {
            file: self.file,
            commit: self.as_of,
        }
    }

    /// How many pages there are to look at.
    pub(crate) fn limit(&self) -> u64 {
        self.pages
    }

    /// Changes how many pages may be looked at.
    ///
    /// # Safety
    /// As for [`DataFile::pages`].
    pub(crate) unsafe fn set_limit(&mut self, pages: u64) {
        self.pages = pages;
    }

    /// A page of the file.
    ///
    /// # Safety
    /// It is not stored to while the reference lives, which may be longer than `self` is borrowed.
    pub(crate) unsafe fn mapped<'p>(&self, number: PageNo) -> Result<&'p Page> {
        let at = self.at(number, 1)?.cast::<Page>();
        // SAFETY: inside the file, aligned to the page's size, and any bytes are a page. It stands still by the
        // caller's promise.
        Ok(unsafe { &*at })
    }

    /// Reads records as of a commit, from a file that goes on growing to `room` pages.
    ///
    /// # Safety
    /// `room` outlives the pages, and the file has so many at any time.
    pub(crate) unsafe fn reading_as_of(mut self, commit: CommitNo, room: &AtomicU64) -> Self {
        self.as_of = commit;
        self.room = Some(NonNull::from(room));
        self
    }

    /// The records in memory, of which there may be some from now on.
    pub(crate) fn records_or_new(&mut self) -> &mut TxnRecords {
        self.records.get_or_insert_default()
    }

    /// The bytes of the file from a place on.
    // In the way of every entry that is read.
    #[inline(always)]
    fn record_at(&self, at: RecordPointer, bytes: usize) -> Result<&[u8]> {
        let end = at.offset().saturating_add(bytes as u64);
        let limit = self.pages * PAGE_BYTES as u64;
        let is_behind_metas = at.offset() >= FIRST_PAGE * PAGE_BYTES as u64;
        if !is_behind_metas || (end > limit && end > self.room_bytes()) {
            return Err(outside_of_store(at));
        }
        if bytes > PAGE_BYTES {
            self.ask_for(at.offset(), bytes as u64);
        }
        // SAFETY: within the file, and thus the mapping. Nobody writes to a record that a pointer leads to as long as
        // there is somebody who may look for it.
        Ok(unsafe { std::slice::from_raw_parts(self.base.add(at.offset() as usize), bytes) })
    }

    /// Asks the disk for bytes of the file, if pages may have to come from there.
    #[cold]
    #[inline(never)]
    fn ask_for(&self, offset: u64, bytes: u64) {
        let left = self.reserved.saturating_sub(offset);
        if self.exceed_memory && left > 0 {
            let at = self.base.wrapping_add(offset as usize);
            read_ahead(at, bytes.min(left) as usize);
        }
    }

    #[cold]
    fn room_bytes(&self) -> u64 {
        let pages = self.room.map_or(0, |room| {
            // SAFETY: it outlives this by the promise made to `reading_as_of`.
            unsafe { room.as_ref() }.load(Ordering::Acquire)
        });
        let reserved = self.reserved / PAGE_BYTES as u64;
        pages.min(reserved) * PAGE_BYTES as u64
    }

    #[inline]
    fn at(&self, first: PageNo, pages: u64) -> Result<*const u8> {
        let end = first.0.checked_add(pages);
        if first.0 < FIRST_PAGE || end.is_none_or(|end| end > self.pages) {
            return Err(Error::corrupt(first, "lies outside of the store"));
        }
        // SAFETY: within the mapping, since `self.pages` is.
        Ok(unsafe { self.base.add(first.0 as usize * PAGE_BYTES) })
    }
}

impl ReadPages for MappedPages {
    #[inline]
    fn snapshot(&self) -> Option<SnapshotId> {
        // A transaction reads as of no commit.
        (self.as_of != CommitNo(u64::MAX)).then_some(self.state())
    }

    #[inline]
    fn check_process(&self) -> Result<()> {
        match self.file.is_forked() {
            true => Err(Error::Forked),
            false => Ok(()),
        }
    }

    #[inline]
    fn page(&self, number: PageNo) -> Result<&Page> {
        let at = self.at(number, 1)?.cast::<Page>();
        if let Some(page) = self.plain.as_deref().and_then(|plain| plain.get(number)) {
            return Ok(page);
        }
        // SAFETY: inside the file, aligned to the page's size, and any bytes are a page. It stands still by the promise
        // made to `DataFile::pages`.
        Ok(unsafe { &*at })
    }

    #[inline]
    fn extent(&self, first: PageNo, pages: u32) -> Result<&[u8]> {
        let at = self.at(first, u64::from(pages))?;
        self.read_ahead(first, u64::from(pages));
        // SAFETY: as for a page.
        Ok(unsafe { std::slice::from_raw_parts(at, pages as usize * PAGE_BYTES) })
    }

    #[inline]
    fn shared_pointers(&self, number: PageNo) -> Result<Option<&PointerLeaf>> {
        let at = self.at(number, 1)?.cast::<PointerLeaf>();
        if self
            .plain
            .as_deref()
            .is_some_and(|plain| plain.get(number).is_some())
        {
            return Ok(None);
        }
        // SAFETY: inside the file, aligned to the page's size, and any bytes are a leaf, of which all that does not
        // stand still is atomic.
        Ok(Some(unsafe { &*at }))
    }

    #[inline]
    fn own_pointer(&self, leaf: PageNo, slot: usize) -> Option<RecordPointer> {
        self.records.as_deref()?.pointer(leaf, slot)
    }

    #[inline(always)]
    fn record(&self, at: RecordPointer, bytes: usize) -> Result<&[u8]> {
        match self
            .records
            .as_deref()
            .and_then(|own| own.record(at, bytes))
        {
            Some(record) => Ok(record),
            None => self.record_at(at, bytes),
        }
    }

    #[inline]
    fn fetch_record(&self, at: RecordPointer) {
        if at.offset() < self.pages * PAGE_BYTES as u64 {
            let first = self.base.wrapping_add(at.offset() as usize);
            if self.exceed_memory {
                self.ask_for(at.offset(), prefetch::RECORD_BYTES as u64);
            }
            prefetch::record(first);
        }
    }

    #[inline]
    fn exceed_memory(&self) -> bool {
        self.exceed_memory
    }

    #[inline]
    fn read_ahead(&self, first: PageNo, pages: u64) {
        if self.exceed_memory {
            let bytes = |pages: u64| pages.saturating_mul(PAGE_BYTES as u64);
            self.ask_for(bytes(first.0), bytes(pages));
        }
    }

    fn as_of(&self) -> CommitNo {
        self.as_of
    }
}

/// The unit in which the file grows and windows are mapped, in pages: one mapping serves many new pages. (Fewer in unit
/// tests, so that the crash tests see more of both.)
pub(crate) const WINDOW_PAGES: u64 = if cfg!(test) { 16 } else { 256 };

/// How many windows stay mapped: enough for the pages of the largest transactions, which come back to them in any order
/// (a window mapped anew costs a hundred times what a change of a page does), and far from the number of mappings that
/// the system allows a process. A window that a process keeps open cannot be strayed into by safe code, and it lets the
/// next transaction write without a system call.
const WINDOWS_MAX: usize = 4096;

/// So many windows are unmapped at a time, which takes some 15 µs for each.
const UNMAPPED_WINDOWS: usize = if cfg!(test) { 2 } else { 8 };

/// The writable windows of the one who holds the writer lock. Windows are [`WINDOW_PAGES`] long; a larger extent gets
/// one of its own for as long as it is written.
pub(crate) struct Windows {
    file: Arc<dyn File>,
    /// By number of the window, as far as mapped so far.
    places: Vec<Option<Window>>,
    /// Mapped windows, the oldest first.
    mapped: VecDeque<usize>,
    /// So many of the oldest were mapped before the last checkpoint began.
    outdated: usize,
    extent: Option<Window>,
}

impl Windows {
    pub(crate) fn new(file: Arc<dyn File>) -> Self {
        Self {
            file,
            places: Vec::new(),
            mapped: VecDeque::new(),
            outdated: 0,
            extent: None,
        }
    }

    /// A page to write to.
    ///
    /// # Safety
    /// The page lies within the file, belongs to the write transaction that asks, and nobody looks at it while the
    /// reference lives.
    pub(crate) unsafe fn page(&mut self, number: PageNo) -> Result<&mut Page> {
        let (window, page) = (number.0 / WINDOW_PAGES, number.0 % WINDOW_PAGES);
        let window = self.window(window as usize)?;
        let place = place(window, page, PAGE_BYTES)?;
        // SAFETY: within the window, aligned, and any bytes are a page. Exclusive by promise.
        Ok(unsafe { place.cast::<Page>().as_mut() })
    }

    /// An extent to write to.
    ///
    /// # Safety
    /// As for [`Windows::page`].
    pub(crate) unsafe fn extent(&mut self, first: PageNo, pages: u32) -> Result<&mut [u8]> {
        let bytes = pages as usize * PAGE_BYTES;
        let (window, page) = (first.0 / WINDOW_PAGES, first.0 % WINDOW_PAGES);
        let place = if page + u64::from(pages) <= WINDOW_PAGES {
            place(self.window(window as usize)?, page, bytes)?
        } else {
            self.extent = None;
            let window = map_window(&*self.file, first, bytes)?;
            place(self.extent.insert(window), 0, bytes)?
        };
        // SAFETY: within a window; exclusive by promise.
        Ok(unsafe { std::slice::from_raw_parts_mut(place.as_ptr(), bytes) })
    }

    /// A leaf of pointers to store to, which others may be reading.
    ///
    /// # Safety
    /// The page lies within the file. While the reference lives, nothing of it is changed but the words that are stored
    /// at once, and nobody has a reference to it as a [`Page`] that is looked at.
    pub(crate) unsafe fn pointer_leaf(&mut self, leaf: PageNo) -> Result<&PointerLeaf> {
        let (window, page) = (leaf.0 / WINDOW_PAGES, leaf.0 % WINDOW_PAGES);
        let place = place(self.window(window as usize)?, page, PAGE_BYTES)?;
        // SAFETY: within the window, and as aligned as pages, which lie at multiples of their size; any bytes are a
        // leaf. What changes meanwhile are atomics, by promise.
        let leaf_of = unsafe { place.cast::<PointerLeaf>().as_ref() };
        match leaf_of.is(leaf) {
            true => Ok(leaf_of),
            false => Err(Error::corrupt(leaf, "is not a leaf of pointers")),
        }
    }

    /// A checkpoint has begun, which is going to write out what was stored to through these windows. Of each page that
    /// is mapped for writing it has to take the right to store to it from all processors, which costs more than all
    /// else that it does with the page: better it finds none.
    pub(crate) fn outdate(&mut self) {
        self.outdated = self.mapped.len();
    }

    /// Unmaps some of the windows that are from before the last checkpoint; while nobody has pages in them.
    pub(crate) fn unmap_outdated(&mut self) {
        let some = self.outdated.min(UNMAPPED_WINDOWS);
        self.outdated -= some;
        for window in self.mapped.drain(..some) {
            self.places[window] = None;
        }
    }

    /// Unmaps everything.
    pub(crate) fn clear(&mut self) {
        self.places.clear();
        self.mapped.clear();
        self.outdated = 0;
        self.extent = None;
    }

    #[inline]
    fn window(&mut self, number: usize) -> Result<&Window> {
        if !matches!(self.places.get(number), Some(Some(_))) {
            self.map(number)?;
        }
        match self.places.get(number) {
            Some(Some(window)) => Ok(window),
            _ => Err(outside(number as u64 * WINDOW_PAGES)),
        }
    }

    #[cold]
    fn map(&mut self, number: usize) -> Result<()> {
        if self.mapped.len() >= WINDOWS_MAX
            && let Some(oldest) = self.mapped.pop_front()
        {
            self.places[oldest] = None;
            self.outdated = self.outdated.saturating_sub(1);
        }
        const BYTES: usize = WINDOW_PAGES as usize * PAGE_BYTES;
        let window = map_window(&*self.file, PageNo(number as u64 * WINDOW_PAGES), BYTES)?;
        if self.places.len() <= number {
            self.places.resize_with(number + 1, || None);
        }
        self.places[number] = Some(window);
        self.mapped.push_back(number);
        Ok(())
    }
}

/// A window from a page on. There has always been room for it.
fn map_window(file: &dyn File, first: PageNo, bytes: usize) -> Result<Window> {
    let window = file.window(first.0 * PAGE_BYTES as u64, bytes);
    window.map_err(|error| match error.kind() {
        ErrorKind::InvalidInput => Error::Damaged(format!(
            "somebody else has cut the data file at or behind page {first}"
        )),
        _ => error.into(),
    })
}

/// Where to store `bytes` from the window's page `page` on.
#[inline]
fn place(window: &Window, page: u64, bytes: usize) -> Result<NonNull<u8>> {
    let place = window.place(page as usize * PAGE_BYTES, bytes);
    place.ok_or_else(|| outside(page))
}

#[cold]
fn outside_of_store(at: RecordPointer) -> Error {
    Error::corrupt(at.page(), "lies outside of the store")
}

#[cold]
fn outside(page: u64) -> Error {
    Error::corrupt(PageNo(page), "lies outside of its window")
}
