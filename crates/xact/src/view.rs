//! Views: the space as plain memory, for the modes *tracked* and *snapshot*.
//!
//! A view is a private mapping of the data file that belongs to one context. The file never holds anything that a
//! running transaction must not see, so a page is either as the file has it, or is copied from a frame when it is first
//! touched; what the transaction writes stays in the view. Which pages are touched is learnt from the protection of
//! pages, see `fault`:
//!
//! ```text
//!               tracked                       snapshot
//!  at first     no access                     reading (*); no access where frames have something newer than the view
//!  read         reading; is in the read set   reading
//!  written      writing; is in the write set  writing; is in the write set
//! ```
//!
//! (*) In a space with checksums: no access either. Pages that were verified are shown with the first of them that is
//! looked at, and stay so.
//!
//! In snapshot mode a copy of a page outlives the transaction as long as no later version of the page is known: what
//! was copied from a frame, and what was committed. So a page that others leave alone is read without a fault, and
//! written to with one.
//!
//! A transaction that touches very many pages is given them in groups, see `granule`.
//!
//! The allocator's pages may be stored to while it works, and by nobody else: a store of the program is an access that
//! was not allowed.
//!
//! In tracked mode, where the system allows it, a view is memory whose pages are asked for instead, see `demand` and
//! `asked`. A page that is read may be written to then, unless the transaction only reads; a commit finds out what has
//! changed.

// A mapping whose pages come and go under the program's loads and stores.
#![allow(unsafe_code)]

mod asked;
mod fault;

use std::ops::Range;
use std::os::fd::AsFd;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use rustix::mm::{self, Advice, MapFlags, MprotectFlags, ProtFlags};

use crate::address::{self, AddressRange};
use crate::allocator::RESERVED_BYTES;
use crate::area::Area;
use crate::demand::{self, Demand};
use crate::error::{Doing, Error, Result};
use crate::explicit;
use crate::granule::{self, Areas};
use crate::inner::Inner;
use crate::mode::Mode;
use crate::page::{PAGE_BYTES, PageBytes, page_of};
use crate::places::HEADER_PAGES;
use crate::region::slot::{Signature, Snapshot};

/// What is known of a page in the running transaction.
const READ: u8 = 1;
const WRITTEN: u8 = 2;
/// The view has a copy of its own, from a frame.
const COPIED: u8 = 4;
/// Snapshot mode: it may not be read yet, or it may, contrary to how pages are at first. Outlives the transaction.
const TURNED: u8 = 8;
/// The view has a copy of its own from a transaction before. Outlives the transaction. Snapshot mode: the copy is as
/// `kept` says.
const KEPT: u8 = 16;
/// A page of the allocator that was written to and is closed for stores again.
const CLOSED: u8 = 32;

/// So many pages are given back one by one; more of them all at once, which in snapshot mode has the pages that rest
/// readable looked up once more.
const PAGES_ONE_BY_ONE: usize = 256;
const PAGES_ONE_BY_ONE_IN_SNAPSHOT: usize = 4096;
/// So many pages are looked at when verified ones are shown.
const SHOWN_AT_ONCE: u64 = 64;
/// So many copies outlive transactions; when there are more all of them go. They take up 16 MiB of memory.
const KEPT_MAX: usize = 4096;

/// How a transaction has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// Committed, as this version. If it has changed nothing that is the one that it saw.
    Committed(u64),
    /// Given up.
    GivenUp,
    /// It met another one, and is repeated.
    Lost,
}

const MAPPING: &str = "cannot map the space: in modes tracked and snapshot each of the transactions that run at the same time takes up its size \
    in addresses";

/// A view of a space.
#[derive(Debug)]
pub(crate) struct View {
    base: NonNull<u8>,
    pages: u64,
    /// Whether its addresses are the space's own.
    is_fixed: bool,
    mode: Mode,
    /// Snapshot mode: whether pages may not be read at first, since they have to be verified.
    hides: bool,
    /// A byte for each page.
    states: Area,
    areas: Areas,
    /// Tracked mode: the pages are asked for, if `is_asked` says so for now.
    demand: Option<Demand>,
    is_asked: bool,
    /// The pages touched, in order. Where pages are asked for, those that were kept come first, and once more if they
    /// are written to.
    touched: Area,
    touched_count: usize,
    /// Whether a transaction runs that may be given pages.
    running: AtomicBool,
    /// The thread that runs it.
    thread: AtomicUsize,
    read_only: bool,
    inner: *const Inner,
    snapshot: Snapshot,
    /// What frames before it have of newer versions than the copies that are kept is accounted for, up to the version
    /// that is named.
    seen: u64,
    seen_version: u64,
    /// Snapshot mode: for each page of which a copy is kept, a version from which on it is right, as far as frames are
    /// accounted for. Where pages are asked for: in which of the view's transactions each was, last.
    kept: Area,
    /// How many are kept, and the newest of these versions.
    kept_count: usize,
    kept_newest: u64,
    /// How many transactions there were.
    transactions: u64,
    /// Whether it is shown to a transaction.
    is_shown: bool,
    /// Whether nothing is left of the transaction before.
    is_clean: bool,
}

// SAFETY: it is memory of its own, used by the thread that runs the transaction; `inner` is set anew for each one.
unsafe impl Send for View {}

impl View {
    /// A view of so many pages, which are the whole space, known to the signal handler.
    pub(crate) fn new(inner: &Inner, mode: Mode, pages: u64) -> Result<Box<Self>> {
        let bytes = pages as usize * PAGE_BYTES;
        let hides = mode == Mode::Snapshot && inner.verified.is_needed();
        let is_wanted = mode == Mode::Tracked && inner.options.userfault;
        let demand = Some(())
            .filter(|()| is_wanted)
            .and_then(|()| Demand::open());
        let place = inner.addresses.as_ref().map(AddressRange::base);
        // SAFETY: a new mapping, or at the addresses that the one transaction has whose turn it is.
        let map = |demand: &Demand| unsafe { demand.map(place, bytes) }.ok();
        let asked = demand.as_ref().and_then(map);
        let base = match asked {
            Some(base) => base,
            // SAFETY: as above.
            None => unsafe { map_file(inner, place, pages, at_first(mode, hides)) }?,
        };
        let mut view = Box::new(Self {
            base,
            pages,
            is_fixed: place.is_some(),
            mode,
            hides,
            states: Area::new(pages as usize)?,
            areas: Areas::default(),
            demand: demand.filter(|_| asked.is_some()),
            is_asked: asked.is_some(),
            touched: Area::new(touched_bytes(pages))?,
            touched_count: 0,
            running: AtomicBool::new(false),
            thread: AtomicUsize::new(0),
            read_only: true,
            inner: ptr::null(),
            snapshot: Snapshot {
                version: 0,
                tail: 0,
            },
            seen: 0,
            seen_version: 0,
            kept: Area::new(pages as usize * size_of::<u64>())?,
            kept_count: 0,
            kept_newest: 0,
            transactions: 0,
            is_shown: false,
            is_clean: true,
        });
        fault::register(&raw mut *view)?;
        Ok(view)
    }

    /// How many pages it shows.
    pub(crate) fn pages(&self) -> u64 {
        self.pages
    }

    /// Where the first byte of the space is in this view.
    pub(crate) fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// Where a byte of the space is in this view.
    pub(crate) fn place(&self, offset: u64) -> *mut u8 {
        self.base.as_ptr().wrapping_add(offset as usize)
    }

    /// Shows a snapshot to a transaction.
    pub(crate) fn begin(
        &mut self,
        inner: &Inner,
        snapshot: Snapshot,
        read_only: bool,
    ) -> Result<()> {
        let before = self.snapshot.version;
        self.inner = inner;
        self.snapshot = snapshot;
        self.read_only = read_only;
        // What was committed and could not be made durable must not be seen by those who only read.
        if !self.is_clean || self.kept_count > KEPT_MAX || self.kept_newest > snapshot.version {
            self.forget_all()?;
            self.seen = 0;
            self.is_clean = true;
        }
        if snapshot.version < self.seen_version {
            // Some of what was accounted for is newer than what this one may keep.
            self.seen = self.seen.min(snapshot.tail);
        }
        let is_large = inner.region.large.load(Ordering::SeqCst) > before;
        if is_large && self.kept_count > 0 && self.mode == Mode::Tracked {
            self.forget_all()?;
        }
        match self.mode {
            Mode::Snapshot => self.hide_newer(inner, is_large)?,
            _ if self.is_asked => self.begin_asked(inner)?,
            _ => {}
        }
        self.seen_version = snapshot.version;
        self.is_shown = true;
        self.thread.store(fault::this_thread(), Ordering::SeqCst);
        self.running.store(true, Ordering::SeqCst);
        Ok(())
    }

    /// Hides the pages of which there are frames that no transaction in this view has accounted for.
    fn hide_newer(&mut self, inner: &Inner, is_large: bool) -> Result<()> {
        let region = &*inner.region;
        let tail = self.snapshot.tail;
        if tail > self.seen || is_large {
            // Something may have gone into the file that an old copy in this view stands before.
            self.forget_all()?;
            self.seen = tail;
        }
        let head = region.ring.head.load(Ordering::SeqCst);
        while self.seen < head {
            let content = region.content(self.seen);
            if content.version > self.snapshot.version {
                break;
            }
            let state = self.state(content.page);
            let is_known = if state & KEPT != 0 {
                self.kept.word(content.page) >= content.version
            } else {
                self.is_hidden(state)
            };
            if !is_known {
                self.hide(content.page)?;
            }
            self.seen += 1;
        }
        Ok(())
    }

    /// Snapshot mode: has the next access to a page be learnt of, and perhaps that to its neighbours.
    fn hide(&mut self, page: u64) -> Result<()> {
        self.in_granules(page, |view, pages| {
            let count = pages.end - pages.start;
            view.forget(pages.start, count)?;
            view.protect(pages.start, count, MprotectFlags::empty())?;
            let hidden = view.hidden();
            pages.for_each(|page| view.set_state(page, hidden));
            Ok(())
        })
    }

    /// Does something with a page, or with as many of its neighbours besides as are needed to remain within the number
    /// of areas that the system allows.
    fn in_granules(
        &mut self,
        page: u64,
        mut what: impl FnMut(&mut Self, Range<u64>) -> Result<()>,
    ) -> Result<()> {
        let mut granule = granule::pages();
        loop {
            let first = page - page % granule;
            let end = first.saturating_add(granule).min(self.pages);
            match what(self, first..end) {
                // Here it may allow fewer than by default, or the program may have many others.
                Err(Error::PageDamaged { offset }) => return Err(Error::PageDamaged { offset }),
                Err(_) if end - first < self.pages => granule = granule::larger(granule),
                result => return result,
            }
        }
    }

    /// The transaction is given no more pages: it is being committed.
    pub(crate) fn close(&mut self) {
        self.running.store(false, Ordering::SeqCst);
    }

    /// The transaction looks at nothing any more. `changed` is what it has changed, in the order of [`View::written`],
    /// if it was committed.
    pub(crate) fn end(&mut self, ended: Ended, changed: &[u64]) {
        self.close();
        if !std::mem::take(&mut self.is_shown) {
            return;
        }
        // A child of the process has no such view: what is there now may be anything.
        self.is_clean = !self.is_of_parent() && self.forget_touched(ended, changed).is_ok();
        self.touched_count = 0;
    }

    fn forget_touched(&mut self, ended: Ended, changed: &[u64]) -> Result<()> {
        let most = match self.mode {
            Mode::Snapshot => PAGES_ONE_BY_ONE_IN_SNAPSHOT,
            _ => PAGES_ONE_BY_ONE,
        };
        if self.places_of_its_own().len() > most || self.demand.is_some() && !self.is_asked {
            self.seen = 0;
            return self.forget_all();
        }
        if self.is_asked {
            return self.rest_asked(ended, changed);
        }
        for place in 0..self.touched_count {
            let page = self.touched_page(place);
            let state = self.state(page);
            if self.mode == Mode::Snapshot {
                self.rest(page, state, ended)?;
                continue;
            }
            if state & (WRITTEN | COPIED) != 0 {
                self.forget(page, 1)?;
            }
            self.protect(page, 1, MprotectFlags::empty())?;
            self.set_state(page, 0);
        }
        Ok(())
    }

    /// Snapshot mode: keeps what is good for later transactions of a page that was touched.
    fn rest(&mut self, page: u64, state: u8, ended: Ended) -> Result<()> {
        let is_written = state & WRITTEN != 0;
        // Nobody else has changed a page that was written to and committed, so that it is as the transaction left it.
        let version = match ended {
            _ if !is_written => Some(self.snapshot.version),
            Ended::Committed(version) => Some(version),
            Ended::GivenUp | Ended::Lost => None,
        };
        match version {
            None => {
                self.forget(page, 1)?;
                // Without a copy before, it is the file that has what the transaction saw.
                let (access, rests) = match state & (COPIED | KEPT) {
                    0 => (MprotectFlags::READ, self.shown()),
                    _ => (MprotectFlags::empty(), self.hidden()),
                };
                self.protect(page, 1, access)?;
                self.set_state(page, rests);
            }
            Some(version) if state & (WRITTEN | COPIED) != 0 => {
                if is_written {
                    self.protect(page, 1, MprotectFlags::READ)?;
                }
                self.kept.set_word(page, version);
                self.kept_newest = self.kept_newest.max(version);
                self.set_state(page, KEPT | self.shown());
            }
            // What was read from the file, or kept, stays as it is.
            Some(_) => self.set_state(page, state & KEPT | self.shown()),
        }
        Ok(())
    }

    /// Learns of an access to an address that was not allowed; gives whether it may be repeated. `is_store` is `None`
    /// where the processor does not say: the first access to a page counts as reading then, and if it was a store it
    /// comes here again.
    ///
    /// # Safety
    /// The view is registered.
    pub(crate) unsafe fn resolve_fault(
        view: *mut Self,
        signal: i32,
        address: usize,
        is_store: Option<bool>,
    ) -> bool {
        // SAFETY: these fields do not change while the view is registered, or are atomic.
        let (base, pages, running, thread) = unsafe {
            (
                (*view).base,
                (*view).pages,
                (*view).running.load(Ordering::SeqCst),
                (*view).thread.load(Ordering::SeqCst),
            )
        };
        let Some(offset) = address.checked_sub(base.addr().get()) else {
            return false;
        };
        let page = page_of(offset as u64);
        if page >= pages || !running || thread != fault::this_thread() {
            return false;
        }
        // SAFETY: the thread that runs the transaction is here, and whatever else it does with the view is not
        // interrupted by a signal (`fault::undisturbed`), so nobody else uses the view now.
        unsafe { (*view).resolve(signal, page, is_store) }
    }

    fn resolve(&mut self, signal: i32, page: u64, is_store: Option<bool>) -> bool {
        if self.is_asked && signal != fault::ASKED {
            // A child of the process has not got this memory, and must not fill that of its parent.
            return false;
        }
        let state = self.state(page);
        let rests_readable = self.mode == Mode::Snapshot && !self.is_hidden(state);
        let is_readable = state & READ != 0 || rests_readable;
        let is_store = is_store.unwrap_or(is_readable);
        let (is_allowed, access) = if is_store {
            (state & WRITTEN != 0, WRITTEN)
        } else {
            (is_readable, READ)
        };
        // The allocator asks before it stores.
        let is_reserved = is_store && page < page_of(RESERVED_BYTES);
        !is_allowed && !is_reserved && self.admit(page, access).is_ok()
    }

    /// Gives the transaction access to a page that it had not, and perhaps to its neighbours.
    ///
    /// A function of its own in the program, too: what it looks at may have been changed by a handler since the caller
    /// looked.
    #[inline(never)]
    fn admit(&mut self, page: u64, access: u8) -> Result<()> {
        if access == WRITTEN && self.read_only {
            return Err(Error::ReadOnly);
        }
        if self.is_asked && self.touched_count >= demand::PAGES_MAX {
            self.go_on_in_file()?;
        }
        if self.is_asked {
            return self.fill(page, access);
        }
        self.in_granules(page, |view, pages| view.admit_all(pages, access))?;
        if access == READ || page >= page_of(RESERVED_BYTES) {
            // They may be among its neighbours.
            self.close_reserved_in_handler();
        }
        if self.hides && access == READ {
            self.show_verified(page)?;
        }
        Ok(())
    }

    /// The allocator stores no more for now: has a store to its pages be learnt of.
    pub(crate) fn close_reserved(&mut self) {
        if self.open_reserved().next().is_some() {
            fault::undisturbed(|| self.close_reserved_in_handler());
        }
    }

    /// As [`View::close_reserved`], where no signal is delivered.
    fn close_reserved_in_handler(&mut self) {
        loop {
            let Some(page) = self.open_reserved().next() else {
                return;
            };
            let closed = match &self.demand {
                Some(demand) if self.is_asked => demand.close_for_stores(self.page(page)),
                _ => self.protect(page, 1, MprotectFlags::READ),
            };
            if closed.is_err() {
                // The system has no room for one area more: they stay open until the transaction ends.
                return;
            }
            self.set_state(page, self.state(page) | CLOSED);
        }
    }

    /// The pages of the allocator that may be stored to.
    fn open_reserved(&self) -> impl Iterator<Item = u64> {
        let is_open = move |page: &u64| self.state(*page) & (WRITTEN | CLOSED) == WRITTEN;
        (0..page_of(RESERVED_BYTES)).filter(is_open)
    }

    /// Has the allocator store to a page once more.
    fn open_again(&mut self, page: u64) -> Result<()> {
        match &self.demand {
            Some(demand) if self.is_asked => demand.open_for_stores(self.page(page))?,
            _ => self.protect(page, 1, MprotectFlags::READ | MprotectFlags::WRITE)?,
        }
        self.set_state(page, self.state(page) & !CLOSED);
        Ok(())
    }

    /// Snapshot mode: shows what lies around a page and was verified before, so that it is not learnt of one by one.
    fn show_verified(&mut self, page: u64) -> Result<()> {
        let first = page - page % SHOWN_AT_ONCE;
        let end = (first + SHOWN_AT_ONCE).min(self.pages);
        // SAFETY: set when the transaction began, which runs and borrows the space.
        let inner = unsafe { &*self.inner };
        let may_be_shown = |view: &Self, page: u64| {
            view.state(page) == view.hidden()
                && inner.verified.has(page)
                && explicit::before(inner, &view.snapshot, page) == inner.page_in_file(page)
        };
        let before = (first..page).rev();
        let before = before.take_while(|page| may_be_shown(self, *page)).count() as u64;
        let behind = (page + 1..end).take_while(|page| may_be_shown(self, *page));
        let behind = behind.count() as u64;
        for (from, count) in [(page - before, before), (page + 1, behind)] {
            if count > 0 {
                self.protect(from, count, MprotectFlags::READ)?;
                (from..from + count).for_each(|page| self.set_state(page, self.shown()));
            }
        }
        Ok(())
    }

    fn admit_all(&mut self, pages: Range<u64>, access: u8) -> Result<()> {
        let (first, count) = (pages.start, pages.end - pages.start);
        // SAFETY: set when the transaction began, which runs and borrows the space.
        let inner = unsafe { &*self.inner };
        // Before anything is allowed.
        for page in pages.clone() {
            if self.state(page) & (READ | KEPT) == 0 {
                explicit::verified(inner, &self.snapshot, page)?;
            }
        }
        let writable = MprotectFlags::READ | MprotectFlags::WRITE;
        // All of them become one area.
        let is_write = access == WRITTEN || pages.clone().any(|p| self.state(p) & WRITTEN != 0);
        let is_writable = is_write || count > 1;
        if is_writable {
            self.protect(first, count, writable)?;
        }
        for page in pages {
            let state = self.state(page);
            let mut new = state & !(TURNED | CLOSED)
                | self.shown()
                | READ
                | if is_write { WRITTEN } else { 0 };
            if state & (READ | KEPT) == 0 {
                let before = explicit::before(inner, &self.snapshot, page);
                if before != inner.page_in_file(page) {
                    if !is_writable {
                        self.protect(page, 1, writable)?;
                    }
                    // SAFETY: the snapshot's slot keeps the frame; the page is writable and nobody else uses it.
                    unsafe { ptr::copy_nonoverlapping(before.cast(), self.page(page), PAGE_BYTES) };
                    new |= COPIED;
                }
            }
            if state & (READ | WRITTEN) == 0 {
                self.touched.set_word(self.touched_count as u64, page);
                self.touched_count += 1;
            }
            self.set_state(page, new);
        }
        if is_write {
            return Ok(());
        }
        self.protect(first, count, MprotectFlags::READ)
    }

    /// Gives the transaction access to pages before it touches them.
    pub(crate) fn touch(
        &mut self,
        pages: std::ops::RangeInclusive<u64>,
        write: bool,
    ) -> Result<()> {
        let wanted = if write { WRITTEN } else { READ };
        for page in pages {
            let state = self.state(page);
            let rests_readable = self.mode == Mode::Snapshot && !self.is_hidden(state);
            if state & wanted == 0 && (write || !rests_readable) {
                fault::undisturbed(|| self.admit(page, wanted))?;
            } else if write && state & CLOSED != 0 {
                fault::undisturbed(|| self.open_again(page))?;
            }
        }
        Ok(())
    }

    /// The pages that no other transaction may have changed.
    pub(crate) fn touched(&self) -> impl Iterator<Item = u64> {
        let all_count = self.mode != Mode::Snapshot;
        (0..self.touched_count)
            .map(|place| self.touched_page(place))
            .filter(move |page| all_count || self.state(*page) & WRITTEN != 0)
    }

    /// The pages that were written to, before and after.
    ///
    /// # Safety
    /// The transaction still runs, and nothing is lent out for writing.
    pub(crate) unsafe fn written(&self) -> impl Iterator<Item = (u64, &PageBytes, &PageBytes)> {
        // SAFETY: set when the transaction began, which runs and borrows the space.
        let inner = unsafe { &*self.inner };
        self.places_of_its_own()
            .map(|place| self.touched_page(place))
            .filter(|page| self.state(*page) & WRITTEN != 0)
            .map(move |page| {
                let before = explicit::before(inner, &self.snapshot, page);
                let after: *const PageBytes = self.page(page).cast();
                // SAFETY: both are valid while the transaction runs; nobody writes to them by the caller's promise.
                unsafe { (page, &*before, &*after) }
            })
    }

    /// Where in the list of touched pages those are that this transaction was given, and no one before it.
    fn places_of_its_own(&self) -> Range<usize> {
        let kept = if self.is_asked { self.kept_count } else { 0 };
        kept..self.touched_count
    }

    /// What was touched, as a signature.
    pub(crate) fn signature(&self) -> Signature {
        let mut signature = Signature::default();
        self.touched().for_each(|page| signature.add(page));
        signature
    }

    fn page(&self, page: u64) -> *mut u8 {
        debug_assert!(page < self.pages);
        self.place(page * PAGE_BYTES as u64)
    }

    /// Snapshot mode: the states of a page that may not be read and of one that may, without a transaction.
    fn hidden(&self) -> u8 {
        if self.hides { 0 } else { TURNED }
    }

    fn shown(&self) -> u8 {
        TURNED - self.hidden()
    }

    fn is_hidden(&self, state: u8) -> bool {
        state & TURNED == self.hidden()
    }

    fn state(&self, page: u64) -> u8 {
        self.states.bytes()[page as usize]
    }

    fn set_state(&mut self, page: u64, state: u8) {
        if self.is_asked {
            self.states.bytes_mut()[page as usize] = state;
            return;
        }
        let before = self.borders(page);
        let known = std::mem::replace(&mut self.states.bytes_mut()[page as usize], state);
        self.kept_count += usize::from(state & KEPT != 0);
        self.kept_count -= usize::from(known & KEPT != 0);
        let after = self.borders(page);
        self.areas.change(before, after);
    }

    /// To how many of its neighbours a page has another protection.
    fn borders(&self, page: u64) -> usize {
        let states = self.states.bytes();
        let access = |state: u8| match (state & (WRITTEN | CLOSED) == WRITTEN, self.mode) {
            (true, _) => WRITTEN,
            (false, Mode::Snapshot) => READ * u8::from(!self.is_hidden(state)),
            (false, _) => state & READ,
        };
        let page = page as usize;
        let own = access(states[page]);
        let before = page
            .checked_sub(1)
            .is_some_and(|at| access(states[at]) != own);
        let after = states
            .get(page + 1)
            .is_some_and(|state| access(*state) != own);
        usize::from(before) + usize::from(after)
    }

    fn touched_page(&self, place: usize) -> u64 {
        self.touched.word(place as u64)
    }

    /// Has the file show again where the view has copies.
    fn forget(&self, page: u64, pages: u64) -> Result<()> {
        let place = self.page(page).cast();
        // SAFETY: within the mapping, of which nothing is lent out; private copies go, the file stays.
        let forgotten =
            unsafe { mm::madvise(place, pages as usize * PAGE_BYTES, Advice::LinuxDontNeed) };
        forgotten.doing("cannot give up pages of a view")
    }

    fn forget_all(&mut self) -> Result<()> {
        self.states.clear()?;
        match &self.demand {
            Some(_) if self.is_asked => self.forget(0, self.pages)?,
            Some(demand) => {
                let bytes = self.pages as usize * PAGE_BYTES;
                // SAFETY: the view's own mapping, of which nothing is lent out.
                unsafe { demand.map(Some(self.base), bytes) }?;
                self.is_asked = true;
            }
            None => {
                self.forget(0, self.pages)?;
                self.protect(0, self.pages, at_first(self.mode, self.hides))?;
            }
        }
        self.areas.clear();
        self.kept_count = 0;
        self.kept_newest = 0;
        Ok(())
    }

    fn protect(&self, page: u64, pages: u64, access: MprotectFlags) -> Result<()> {
        let place = self.page(page).cast();
        // SAFETY: within the mapping, which is this view's own.
        let protected = unsafe { mm::mprotect(place, pages as usize * PAGE_BYTES, access) };
        protected.doing("cannot protect pages of a view")
    }
}

/// What the list of the touched pages of a view takes up.
fn touched_bytes(pages: u64) -> usize {
    (pages as usize + asked::EXPECTED_MAX) * size_of::<u64>()
}

/// Maps the file privately: where the system likes, or in place of what is mapped at a place.
///
/// # Safety
/// What is mapped at the place is the caller's own, of this size, and nothing of it is lent out.
unsafe fn map_file(
    inner: &Inner,
    place: Option<NonNull<u8>>,
    pages: u64,
    access: MprotectFlags,
) -> Result<NonNull<u8>> {
    let bytes = pages as usize * PAGE_BYTES;
    let fixed = place.map_or(MapFlags::empty(), |_| MapFlags::FIXED);
    let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | fixed;
    let offset = HEADER_PAGES * PAGE_BYTES as u64;
    let place = place.map_or(ptr::null_mut(), |place| place.as_ptr().cast());
    let access = ProtFlags::from_bits_retain(access.bits());
    // SAFETY: a new mapping at an address of the system's choice, or the caller's promise.
    let base = unsafe {
        mm::mmap(
            place,
            bytes,
            access,
            flags,
            inner.data.handle().as_fd(),
            offset,
        )
    };
    let base = base.doing(MAPPING)?;
    if inner.addresses.is_some() {
        // A child opens the space itself, at the same address.
        // SAFETY: the range was just mapped.
        unsafe { mm::madvise(base, bytes, Advice::LinuxDontFork) }.doing(MAPPING)?;
    }
    // As `Map::expect_jumps`.
    // SAFETY: the range was just mapped; this advice changes no memory, and is a hint whose error means nothing.
    let _ = unsafe { mm::madvise(base, bytes, Advice::Random) };
    NonNull::new(base.cast()).ok_or(Error::BadOptions("it is mapped at no address"))
}

/// What may be done with a page of a new view.
fn at_first(mode: Mode, hides: bool) -> MprotectFlags {
    match mode {
        Mode::Snapshot if !hides => MprotectFlags::READ,
        _ => MprotectFlags::empty(),
    }
}

impl Drop for View {
    fn drop(&mut self) {
        fault::unregister(&raw mut *self);
        if self.is_of_parent() {
            return;
        }
        let bytes = self.pages as usize * PAGE_BYTES;
        if self.is_fixed {
            // SAFETY: mapped with this size; nothing is lent out any more.
            unsafe { address::empty(self.base, bytes) };
            return;
        }
        // SAFETY: as above.
        let _ = unsafe { mm::munmap(self.base.as_ptr().cast(), bytes) };
    }
}
