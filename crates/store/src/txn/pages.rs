//! The pages of a write transaction: taken from the free list or from behind the last page, changed in place, undone by
//! savepoints.
//!
//! A page that has been written several times since the last checkpoint began, and is taken again, is stored to through
//! a window: it is dirty, and from the next time on also mapped for writing, so that stores to it cost nothing. All
//! others are made in memory and written when the transaction commits.

// Pages of the transaction's own are written through windows; who else may look at them is argued at each place.
#![allow(unsafe_code)]

pub(crate) mod heap;
#[cfg(test)]
mod heap_tests;
mod hot_pages;
#[cfg(test)]
mod large_tests;
mod run;
mod save;
mod states;
mod undo;

use std::collections::BTreeMap;
use std::io::IoSlice;

use crate::env::mapping::{MappedPages, PlainPages, TxnRecords, Windows};
use crate::env::{Inner, RESERVE_PAGES};
use crate::error::{Error, Result};
use crate::format::free_list::recent::Named;
use crate::format::free_list::{FreeExtent, PageRange};
use crate::format::page::{PAGE_BYTES, Page, PageKind};
use crate::format::pages::{ReadPages, WritePages};
use crate::format::pointer::RecordPointer;
use crate::format::pointer_leaf::PointerLeaf;
use crate::format::prefetch;
use crate::format::roots::Head;
use crate::ids::{CommitNo, PageNo};
use crate::log::checkpoint;
use crate::log::record::Base;
use crate::space::allocator::{PageAllocator, Resume};
use crate::sync::Arc;
use crate::txn::KnownTrees;

use heap::{Heaps, HeapsBefore, Victims};
use hot_pages::HotPages;
use states::{PageStates, State};
use undo::{Destination, Source, Undo};

/// What a process keeps from one write transaction to the next.
pub(crate) struct Workshop {
    windows: Windows,
    /// While no transaction uses them.
    plain: Option<Box<PlainPages>>,
    /// While no transaction uses them.
    records: Option<Box<TxnRecords>>,
    hot_pages: HotPages,
    states: PageStates,
    known_trees: KnownTrees,
    victims: Victims,
    resume: Resume,
    named: Option<Named>,
    /// Where log records are put together.
    pub(crate) record: Vec<u8>,
}

impl Workshop {
    pub(crate) fn new(inner: &Inner) -> Self {
        Self {
            windows: Windows::new(inner.data.file.clone()),
            // Pages that are nowhere but in memory cost no faults.
            plain: inner.wal.as_ref().map(|_| Box::default()),
            records: None,
            hot_pages: HotPages::default(),
            states: PageStates::default(),
            known_trees: KnownTrees::default(),
            victims: Victims::default(),
            resume: Resume::default(),
            named: None,
            record: Vec::new(),
        }
    }

    /// Unmaps all windows and gives memory back, since nobody has written for a while.
    pub(crate) fn rest(&mut self) {
        self.windows.clear();
        self.victims = Victims::default();
        if let Some(plain) = &mut self.plain {
            **plain = PlainPages::default();
        }
    }
}

/// As many single pages are taken from behind the last one at a time.
const GROWN_PAGES: u32 = if cfg!(test) { 3 } else { 16 };

/// A transaction that takes so many pages has some windows unmapped that a checkpoint would have to protect.
const UNMAPPING_PAGES: usize = 16;

/// Pages that a transaction which compacts keeps for the catalog and the free list.
const COMMIT_PAGES: u64 = if cfg!(test) { 16 } else { 64 };

/// The pages of the one write transaction.
pub(crate) struct TxnPages {
    inner: Arc<Inner>,
    commit: CommitNo,
    view: MappedPages,
    /// What it begins from.
    head: Head,
    shop: Box<Workshop>,
    allocator: PageAllocator,
    extents: BTreeMap<PageNo, u32>,
    freed: Vec<FreeExtent>,
    recycled: Vec<PageNo>,
    held: Vec<FreeExtent>,
    heaps: Heaps,
    undo: Vec<Undo>,
    /// What a savepoint that has ended knew of heaps: the next one takes its memory.
    spare_heaps: Option<Box<HeapsBefore>>,
    /// The newest savepoint; 0 if there is none.
    epoch: u64,
    /// The last pages of the file may be used: for deletions and what a commit itself needs.
    pub(crate) may_use_reserve: bool,
    /// All changes so far were there to make room.
    pub(crate) only_frees: bool,
    /// No more looking through the free list, which is being changed.
    saving: bool,
    /// Pages were written that no log record can tell of.
    appended: bool,
    /// The log was emptied to get at more pages.
    reclaimed: bool,
    /// Pages at the end of the store were given up.
    has_cut: bool,
}

impl TxnPages {
    /// The pages of the transaction that begins from `head`; the caller holds the writer lock.
    pub(crate) fn new(inner: Arc<Inner>, head: Head, mut shop: Box<Workshop>) -> Result<Box<Self>> {
        let roots = &head.roots;
        let (pages, segments) = (roots.pages, roots.segments);
        let named = Named::of(&roots.recent, head.commit, pages, shop.named.take())?;
        // SAFETY: all pages of a head are within the file. What the transaction looks at are pages of the newest
        // commit, which are not used again before a later one has become visible, and its own.
        let mut view = unsafe { inner.data.pages(pages) };
        if let Some(plain) = shop.plain.take() {
            view.plain = Some(plain);
        }
        if let Some(records) = shop.records.take() {
            view.records = Some(records);
        }
        if shop.hot_pages.begin(inner.region.metas.target()) {
            shop.windows.outdate();
        }
        Ok(Box::new(Self {
            commit: CommitNo(head.commit.0 + 1),
            view,
            head,
            allocator: PageAllocator::resuming(shop.resume, named),
            shop,
            extents: BTreeMap::new(),
            freed: Vec::new(),
            recycled: Vec::new(),
            held: Vec::new(),
            heaps: Heaps::new(segments),
            undo: Vec::new(),
            spare_heaps: None,
            epoch: 0,
            may_use_reserve: false,
            only_frees: true,
            saving: false,
            appended: false,
            reclaimed: false,
            has_cut: false,
            inner,
        }))
    }

    /// Gives back what the process keeps; `committed` says whether the free list has been changed.
    pub(crate) fn into_shop(mut self: Box<Self>, committed: bool) -> Box<Workshop> {
        if committed {
            self.shop.resume = self.allocator.resume_at();
        }
        self.shop.named = self.allocator.take_named(self.commit);
        self.shop.states.clear();
        self.shop.records = self.view.records.take();
        if let Some(records) = &mut self.shop.records {
            records.clear();
        }
        self.shop.plain = self.view.plain.take();
        if let Some(plain) = &mut self.shop.plain {
            plain.clear();
        }
        self.shop
    }

    /// How many records of the free list the transaction has looked at.
    #[cfg(test)]
    pub(crate) fn examined(&self) -> u64 {
        self.allocator.examined()
    }

    /// The commit that the transaction begins from.
    pub(crate) fn head(&self) -> &Head {
        &self.head
    }

    /// How many pages the store had at the beginning.
    pub(crate) fn pages_before(&self) -> u64 {
        self.head.roots.pages
    }

    /// The pages to be looked at, own ones included.
    pub(crate) fn view(&self) -> &MappedPages {
        &self.view
    }

    /// Whether nothing has been changed.
    pub(crate) fn is_unchanged(&self) -> bool {
        let has_changes = !self.shop.states.is_empty() || !self.extents.is_empty();
        !has_changes && self.records().is_none() && !self.appended && !self.has_cut
    }

    /// Whether it is there to move pages, or to give them up.
    pub(crate) fn is_compacting(&self) -> bool {
        self.allocator.is_lowest_first()
    }

    /// Whether pages were written that no log record can tell of.
    pub(crate) fn has_appended(&self) -> bool {
        self.appended
    }

    /// Whether all that it has changed are pages and extents of its own.
    pub(crate) fn is_logged_by_page(&self) -> bool {
        self.records().is_none() && !self.appended && !self.has_cut
    }

    /// How many pages the transaction has freed that were written by `commit` or before.
    pub(crate) fn superseded(&self, commit: CommitNo) -> u64 {
        let old = self.freed.iter().filter(|extent| extent.born <= commit);
        old.map(|extent| u64::from(extent.pages)).sum()
    }

    /// How many pages have been its own, in use or free again.
    pub(crate) fn own_count(&self) -> u64 {
        self.shop.states.own_count() as u64
    }

    /// Own pages in use with the pages they were copied from (0 if none), ascending.
    pub(crate) fn changed_pages(&self) -> Vec<(PageNo, PageNo)> {
        let mut pages: Vec<_> = self
            .shop
            .states
            .iter()
            .filter_map(|(page, state)| match state {
                State::Own { base, .. } => Some((page, base)),
                State::OwnFree | State::Freed => None,
            })
            .collect();
        pages.sort_unstable();
        pages
    }

    /// What an own page was copied from, 0 if nothing.
    pub(crate) fn base(&self, number: PageNo) -> Result<Option<Base<'_>>> {
        Ok(match number {
            PageNo(0) => None,
            _ => Some(Base {
                number,
                page: self.view.page(number)?,
            }),
        })
    }

    /// Asks the processor for what it takes to seal an own page and to tell its difference to what it was copied from.
    pub(crate) fn fetch(&self, number: PageNo, base: PageNo) -> Result<()> {
        prefetch::page(self.view.page(number)?);
        if base != PageNo(0) {
            prefetch::page(self.view.page(base)?);
        }
        Ok(())
    }

    /// The trees as the commit before left them, as far as this process made it.
    pub(crate) fn known_trees(&self) -> &KnownTrees {
        &self.shop.known_trees
    }

    pub(crate) fn known_trees_mut(&mut self) -> &mut KnownTrees {
        &mut self.shop.known_trees
    }

    /// Own extents in use, ascending.
    pub(crate) fn changed_extents(&self) -> Vec<(PageNo, u32)> {
        let extents = self.extents.iter();
        extents.map(|(first, pages)| (*first, *pages)).collect()
    }

    /// The length in pages of an own extent that begins here.
    pub(crate) fn own_extent(&self, first: PageNo) -> Option<u32> {
        self.extents.get(&first).copied()
    }

    /// Completes an own page that is not changed any more.
    pub(crate) fn seal(&mut self, number: PageNo) -> Result<&Page> {
        // SAFETY: an own page, and `&mut self` keeps everybody from looking.
        let page = unsafe { self.place(number)? };
        page.seal();
        self.view.page(number)
    }

    /// Writes those of some sealed neighbours, at most [`WRITTEN_PAGES`], that are in memory to the file.
    pub(crate) fn write_plain(&mut self, pages: &[(PageNo, PageNo)]) -> Result<()> {
        let Some(plain) = self.view.plain.as_deref() else {
            return Ok(());
        };
        for &(number, _) in pages {
            self.shop.hot_pages.count(number);
        }
        let file = &self.inner.data.file;
        for pages in pages.split(|(number, _)| plain.get(*number).is_none()) {
            let Some((first, _)) = pages.first() else {
                continue;
            };
            let mut call = [IoSlice::new(&[]); WRITTEN_PAGES];
            let mut count = 0;
            let parts = pages.iter().filter_map(|(number, _)| plain.get(*number));
            for (place, page) in call.iter_mut().zip(parts) {
                *place = IoSlice::new(page.bytes());
                count += 1;
            }
            file.write_parts_at(&mut call[..count], first.0 * PAGE_BYTES as u64)?;
        }
        Ok(())
    }

    /// Where an own page is stored to.
    ///
    /// # Safety
    /// The page is the transaction's own, and nobody looks at it while the reference lives.
    unsafe fn place(&mut self, number: PageNo) -> Result<&mut Page> {
        let plain = self.view.plain.as_deref_mut();
        match plain.and_then(|plain| plain.get_mut(number)) {
            Some(page) => Ok(page),
            // SAFETY: by the caller's promise; it lies within the file as all own pages do.
            None => unsafe { self.shop.windows.page(number) },
        }
    }

    /// Where the log record is put together.
    pub(crate) fn take_record_buffer(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.shop.record)
    }

    /// For the next time.
    pub(crate) fn keep_record_buffer(&mut self, mut buffer: Vec<u8>) {
        if buffer.capacity() <= RECORD_BUFFER_KEPT_BYTES {
            buffer.clear();
            self.shop.record = buffer;
        }
    }

    /// For a transaction that compacts, and has done nothing yet: only pages below `tail` are used again. Gives how
    /// many there are beside what a commit needs.
    pub(crate) fn use_only_below(&mut self, tail: PageNo) -> Result<u64> {
        let list = self.inner.free_list(&self.view, &self.head.roots);
        self.allocator.take_all(list)?;
        let pages = self.allocator.leave_tail(list, tail)?;
        Ok(pages.saturating_sub(COMMIT_PAGES))
    }

    /// Gives up the pages at the end of the store that may be used again, in a transaction that has done nothing yet,
    /// if they are more than its commit may need; whether it has.
    pub(crate) fn cut_tail(&mut self) -> Result<bool> {
        let list = self.inner.free_list(&self.view, &self.head.roots);
        self.allocator.take_all(list)?;
        let before = self.view.limit();
        let limit = self.allocator.cut_tail(before);
        self.has_cut = limit + COMMIT_PAGES < before;
        if self.has_cut {
            // SAFETY: less than what was within the file before, and nothing refers to the rest.
            unsafe { self.view.set_limit(limit) };
        }
        Ok(self.has_cut)
    }

    fn refill(&mut self) -> Result<bool> {
        if self.saving {
            return Ok(false);
        }
        let list = self.inner.free_list(&self.view, &self.head.roots);
        self.allocator.refill(list)
    }

    /// Where growing is no way out: has the rest of the free list looked at, then the newest commit checkpointed, so
    /// that what was freed before it can be used again.
    fn look_harder(
        &mut self,
        error: Error,
        has_seen_all: impl Fn(&PageAllocator) -> bool,
    ) -> Result<()> {
        if !error.is_full() || self.saving {
            return Err(error);
        }
        if !has_seen_all(&self.allocator) {
            return Ok(());
        }
        if self.reclaimed || self.inner.wal.is_none() {
            return Err(error);
        }
        self.reclaimed = true;
        checkpoint::empty_log(&self.inner)?;
        self.allocator.look_again();
        Ok(())
    }

    /// How many of the last pages of the file stay for others.
    fn kept_reserve(&self) -> u64 {
        match (self.may_use_reserve, self.only_frees) {
            (true, true) => 0,
            (true, false) => RESERVE_PAGES / 2,
            (false, _) => RESERVE_PAGES,
        }
    }

    /// Pages from behind the last one.
    fn grow(&mut self, pages: u32) -> Result<PageNo> {
        let first = self.view.limit();
        let end = first + u64::from(pages);
        self.inner.make_room(end, self.kept_reserve())?;
        // SAFETY: the file has room for so many pages.
        unsafe { self.view.set_limit(end) };
        Ok(PageNo(first))
    }

    /// Takes some pages from behind the last one into the allocator, if there is room for so many; whether there was.
    /// What is left of them the next transactions find in the roots: otherwise each would search the free list in vain
    /// first.
    fn grow_allocator(&mut self) -> bool {
        if self.saving || self.is_compacting() {
            return false;
        }
        let Ok(first) = self.grow(GROWN_PAGES) else {
            return false;
        };
        self.allocator.add(PageRange {
            first,
            pages: GROWN_PAGES,
        });
        true
    }

    /// A page that will take the place of `base`, or of nothing if that is 0.
    fn take_page(&mut self, base: PageNo) -> Result<(PageNo, Source)> {
        if let Some(page) = self.recycled.pop() {
            return Ok((page, Source::Recycled));
        }
        loop {
            self.allocator.reclaim(&self.inner);
            // What changes with each commit goes back and forth between pages that are mapped for writing, and what
            // rarely does stays out of them: each of those would have to be made so again.
            let hot_pages = &self.shop.hot_pages;
            let is_alike = |page| base.0 == 0 || hot_pages.has(page) == hot_pages.has(base);
            if let Some((page, taken)) = self.allocator.take_page(is_alike) {
                return Ok((page, Source::Allocator(taken)));
            }
            if !self.refill()? && !self.grow_allocator() {
                match self.grow(1) {
                    Ok(page) => return Ok((page, Source::Growth)),
                    Err(error) => self.look_harder(error, PageAllocator::has_seen_all)?,
                }
            }
        }
    }

    /// Pages of a segment, which no log record has as a whole.
    fn allocate_segment(&mut self, pages: u32) -> Result<PageNo> {
        let (first, source) = self.take_extent(pages)?;
        self.record_undo(Undo::Allocated {
            first,
            pages,
            source,
        });
        Ok(first)
    }

    fn take_extent(&mut self, pages: u32) -> Result<(PageNo, Source)> {
        loop {
            self.allocator.reclaim(&self.inner);
            if let Some((first, taken)) = self.allocator.take_extent(pages) {
                return Ok((first, Source::Allocator(taken)));
            }
            if !self.saving {
                let list = self.inner.free_list(&self.view, &self.head.roots);
                self.allocator.refill_extent(list, pages)?;
            }
            if let Some((first, taken)) = self.allocator.take_extent(pages) {
                return Ok((first, Source::Allocator(taken)));
            }
            match self.grow(pages) {
                Ok(first) => return Ok((first, Source::Growth)),
                Err(error) => self.look_harder(error, PageAllocator::has_seen_all_ranges)?,
            }
        }
    }

    fn allocate_from(&mut self, base: PageNo) -> Result<PageNo> {
        // Small transactions are short, and would only wait for it.
        if self.shop.states.own_count() % UNMAPPING_PAGES == UNMAPPING_PAGES - 1 {
            self.shop.windows.unmap_outdated();
        }
        let (page, source) = self.take_page(base)?;
        self.record_undo(Undo::Allocated {
            first: page,
            pages: 1,
            source,
        });
        let epoch = self.epoch;
        self.shop.states.insert(page, State::Own { base, epoch });
        // What was the transaction's own before stays where it is.
        if source != Source::Recycled
            && !self.shop.hot_pages.has(page)
            && let Some(plain) = self.view.plain.as_deref_mut()
        {
            plain.insert(page);
        }
        Ok(page)
    }

    /// The commit that wrote a page which is to be freed.
    fn born(&self, first: PageNo) -> Result<CommitNo> {
        let born = self.view.page(first)?.commit();
        Error::check_age(first, born, self.commit)?;
        Ok(born)
    }
}

/// So many bytes are written with one call.
pub(crate) const WRITTEN_BYTES: usize = PAGE_BYTES * WRITTEN_PAGES;
pub(crate) const WRITTEN_PAGES: usize = if cfg!(test) { 4 } else { 16 };

/// The parts of ascending pages that one call is to write, of a store that had so many pages before.
pub(crate) fn neighbours(
    pages: &[(PageNo, PageNo)],
    pages_before: u64,
) -> impl Iterator<Item = &[(PageNo, PageNo)]> {
    let runs = pages.chunk_by(move |(one, _), (next, _)| is_joined(*one, *next, pages_before));
    runs.flat_map(|run| run.chunks(WRITTEN_PAGES))
}

/// Of pages that are new to a store as many are written with one call, and are in the file one behind the other. What
/// comes into the page cache with one call some file systems keep there in one piece, and look at as a whole with each
/// later write of one of its pages: on ext4 that takes 2.6 µs where sixteen pages came together, 1.5 where four did,
/// and 1.1 where one came alone; but a bulk build of single pages takes a third longer.
const NEW_PAGES: u64 = 4;

/// Whether one call is to write two pages of a store that had so many before.
fn is_joined(one: PageNo, next: PageNo, pages_before: u64) -> bool {
    one.0 + 1 == next.0 && (next.0 < pages_before || !next.0.is_multiple_of(NEW_PAGES))
}

/// A log record's buffer that is larger than this is not kept.
const RECORD_BUFFER_KEPT_BYTES: usize = 1 << 20;

impl ReadPages for TxnPages {
    fn page(&self, number: PageNo) -> Result<&Page> {
        self.view.page(number)
    }

    fn extent(&self, first: PageNo, pages: u32) -> Result<&[u8]> {
        self.view.extent(first, pages)
    }

    fn shared_pointers(&self, number: PageNo) -> Result<Option<&PointerLeaf>> {
        self.view.shared_pointers(number)
    }

    fn own_pointer(&self, leaf: PageNo, slot: usize) -> Option<RecordPointer> {
        self.view.own_pointer(leaf, slot)
    }

    fn record(&self, at: RecordPointer, bytes: usize) -> Result<&[u8]> {
        self.view.record(at, bytes)
    }

    fn fetch_record(&self, at: RecordPointer) {
        self.view.fetch_record(at);
    }

    fn as_of(&self) -> CommitNo {
        self.view.as_of()
    }
}

impl WritePages for TxnPages {
    fn commit(&self) -> CommitNo {
        self.commit
    }

    fn allocate(&mut self) -> Result<PageNo> {
        self.allocate_from(PageNo(0))
    }

    fn allocate_beside(&mut self, page: PageNo) -> Result<PageNo> {
        match self.shop.states.get(page) {
            Some(State::Own { base, .. }) => self.allocate_from(base),
            _ => self.allocate(),
        }
    }

    fn allocate_extent(&mut self, pages: u32) -> Result<PageNo> {
        let first = self.allocate_segment(pages)?;
        self.extents.insert(first, pages);
        Ok(first)
    }

    fn page_mut(&mut self, number: PageNo) -> Result<&mut Page> {
        self.keep_image(number)?;
        // SAFETY: an own page, and `&mut self` keeps everybody from looking.
        unsafe { self.place(number) }
    }

    fn write_extent(&mut self, first: PageNo, parts: [&[u8]; 3]) -> Result<()> {
        let bytes = parts.iter().map(|part| part.len()).sum();
        let pages = self.extents.get(&first).copied().unwrap_or(0);
        if pages as usize * PAGE_BYTES != bytes {
            return Err(not_own_extent(first));
        }
        self.write_run(first, &parts)
    }

    fn extent_mut(&mut self, first: PageNo, pages: u32) -> Result<&mut [u8]> {
        if self.extents.get(&first) != Some(&pages) {
            return Err(not_own_extent(first));
        }
        // SAFETY: an own extent, and `&mut self` keeps everybody from looking.
        unsafe { self.shop.windows.extent(first, pages) }
    }

    fn touch(&mut self, number: PageNo) -> Result<PageNo> {
        if self.born(number)? == self.commit {
            return Ok(number);
        }
        let (copy, commit) = (self.allocate_from(number)?, self.commit);
        self.free(number, 1)?;
        // SAFETY: a page of an earlier commit, which nobody stores to while the transaction can look at it.
        let old = unsafe { self.view.mapped(number)? };
        // SAFETY: an own page that nobody looks at yet; `old` is another page.
        let page = unsafe { self.place(copy)? };
        page.bytes_mut().copy_from_slice(old.bytes());
        page.set_number(copy);
        page.set_commit(commit);
        if page.kind() == Some(PageKind::PointerLeaf) {
            self.bring_pointers_along(number, copy)?;
        }
        Ok(copy)
    }

    fn is_own(&self, number: PageNo) -> bool {
        self.shop.states.is_in_use(number)
    }

    fn free(&mut self, first: PageNo, pages: u32) -> Result<()> {
        let born = self.born(first)?;
        // What is known of an earlier commit's pages are bits.
        let was = match born == self.commit {
            true => self.shop.states.get(first),
            false => None,
        };
        let extent = FreeExtent {
            freed: self.commit,
            born,
            first,
            pages,
        };
        let freed_twice = || Error::corrupt(first, "is freed a second time");
        let to = if born != self.commit {
            let own = &mut self.shop.states;
            let is_known = own.is_in_use(first) || own.is_freed(first);
            if is_known || first.0 + u64::from(pages) > self.view.limit() {
                return Err(freed_twice());
            }
            own.insert(first, State::Freed);
            self.freed.push(extent);
            Destination::Freed
        } else if let Some(State::Own { epoch, .. }) = was {
            if pages != 1 {
                return Err(freed_twice());
            }
            self.shop.states.insert(first, State::OwnFree);
            if epoch >= self.epoch {
                self.recycled.push(first);
                Destination::Recycled
            } else {
                self.held.push(extent);
                Destination::Held
            }
        } else {
            if self.extents.remove(&first) != Some(pages) {
                return Err(freed_twice());
            }
            self.held.push(extent);
            Destination::Held
        };
        self.record_undo(Undo::Freed {
            first,
            pages,
            was,
            to,
        });
        Ok(())
    }
}

fn not_own_extent(first: PageNo) -> Error {
    Error::corrupt(first, "is not the transaction's extent")
}
