//! Transactions as the program sees them.

// Pages are lent out as slices; the borrows of the transaction say how long.
#![allow(unsafe_code)]

use std::cell::RefCell;
use std::fmt;
use std::marker::PhantomData;
use std::ptr::NonNull;
use std::slice;

use sapwood_wal::Position;

use crate::address::Turn;
use crate::allocator::{self, RESERVED_BYTES};
use crate::commit::Wait;
use crate::context::{Access, Context, Idle};
use crate::error::{Error, Result};
use crate::explicit;
use crate::inner::Inner;
use crate::memory::{Fault, Memory};
use crate::page::{PAGE_BYTES, PageBytes, pages_of};
use crate::region::slot::Snapshot;
use crate::root_page::{self, Layout};
use crate::running;

/// The least that a transaction that writes has read ahead.
const PREFETCH_BYTES_MIN: u64 = 64 << 10;

/// What a transaction is going to do with some bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageAccess {
    /// Read them.
    Read,
    /// Write to them, and perhaps read them.
    Write,
}

/// A running transaction. It sees the space as one commit left it, whatever others do meanwhile, and its own writes.
///
/// Given up unless it is committed. Belongs to the thread that began it.
pub struct Transaction<'s> {
    inner: &'s Inner,
    /// Where its context goes when it ends.
    idle: &'s Idle,
    /// `None` only while it is dropped.
    context: RefCell<Option<Context>>,
    /// How many pages it has.
    pages: u64,
    read_only: bool,
    /// Whether one inside it was given up.
    given_up: bool,
    /// That it has the addresses of a space that has its own.
    _turn: Option<Turn<'s>>,
    thread: PhantomData<*const ()>,
}

impl<'s> Transaction<'s> {
    pub(crate) fn begin(inner: &'s Inner, idle: &'s Idle, read_only: bool) -> Result<Self> {
        inner.check_usable()?;
        if !read_only {
            running::enter(inner.identity)?;
        }
        let begun = || {
            let addresses = inner.addresses.as_ref();
            let patience = inner.options.patience;
            let turn = addresses
                .map(|addresses| addresses.begin(patience))
                .transpose()?;
            let mut context = match idle.take() {
                Some(context) => context,
                None => Context::new(inner)?,
            };
            match context.begin(inner, read_only, true) {
                Ok(()) => Ok((context, turn)),
                Err(error) => {
                    idle.keep(context);
                    Err(error)
                }
            }
        };
        let (context, turn) = begun().inspect_err(|_| {
            if !read_only {
                running::leave(inner.identity);
            }
        })?;
        Ok(Self {
            inner,
            idle,
            pages: context.pages,
            context: RefCell::new(Some(context)),
            read_only,
            given_up: false,
            _turn: turn,
            thread: PhantomData,
        })
    }

    /// Runs `body` as a part of this transaction: what it does happens when this transaction is committed. If `body`
    /// fails this transaction can no longer be committed.
    ///
    /// # Errors
    /// Those of `body`.
    pub fn transaction<R, E: From<Error>>(
        &mut self,
        body: impl FnOnce(&mut Self) -> Result<R, E>,
    ) -> Result<R, E> {
        let result = body(self);
        self.given_up |= result.is_err();
        result
    }

    /// Has it committed no more.
    pub(crate) fn give_up(&mut self) {
        self.given_up = true;
    }

    /// Whether one inside it was given up.
    pub(crate) fn is_given_up(&self) -> bool {
        self.given_up
    }

    /// Commits. With durable commits it is on the disk when this returns.
    ///
    /// # Errors
    /// [`Error::Conflict`] if another transaction has got in the way: nothing has happened, and it may be begun again.
    /// [`Error::GivenUp`], [`Error::Pinned`], [`Error::Stalled`], [`Error::Log`], [`Error::Io`], [`Error::Poisoned`].
    pub fn commit(mut self) -> Result<()> {
        self.try_commit(Wait::Promised)
    }

    /// The size of the space in bytes.
    pub fn bytes(&self) -> u64 {
        self.pages * PAGE_BYTES as u64
    }

    /// Where the space is in memory while this transaction runs, unless the mode is explicit. A load shows what the
    /// transaction sees, and a store belongs to it: both until it ends, and only by the thread that runs it. A store in
    /// a transaction that only reads is a segmentation fault, as is one to the first [`RESERVED_BYTES`], which are the
    /// allocator's.
    ///
    /// A system call does not fault but fails with `EFAULT` when it is given memory that was not touched yet: see
    /// [`Transaction::touch`].
    pub fn map(&self) -> Option<NonNull<u8>> {
        match self.context.borrow().as_ref()?.access {
            Access::Explicit(_) => None,
            Access::Mapped(ref view) => Some(view.base()),
        }
    }

    /// The transaction as plain memory, unless the mode is explicit: a structure over it, such as a tree, uses the
    /// space with loads and stores alone, each first one of which to a page is a fault that tells of it.
    pub fn mapped(&mut self) -> Option<Mapped<'_, 's>> {
        let base = self.map()?;
        Some(Mapped {
            base,
            transaction: self,
        })
    }

    /// Says that these bytes will be read, or written to as well: for memory that is handed to system calls, and to
    /// spare a fault for each page. The pages count as used then. In explicit mode there is no need for it.
    ///
    /// # Errors
    /// [`Error::ReadOnly`], [`Error::Io`], [`Error::PageDamaged`], [`Fault::OutOfBounds`], [`Fault::Reserved`].
    pub fn touch(&mut self, offset: u64, bytes: u64, access: PageAccess) -> Result<()> {
        self.check(offset, bytes)?;
        let is_write = access == PageAccess::Write;
        if is_write {
            self.check_writable(offset, bytes)?;
        }
        match self
            .context
            .get_mut()
            .as_mut()
            .map(|context| &mut context.access)
        {
            Some(Access::Mapped(view)) if bytes > 0 => {
                view.touch(pages_of(offset, bytes), is_write)
            }
            _ => Ok(()),
        }
    }

    /// The offset that [`Transaction::set_named_root`] has stored under a name, or 0. A structure is found so by
    /// the one that knows its name, beside [`Memory::root`], and none has to know of the others.
    ///
    /// # Errors
    /// As for [`Memory::read`].
    pub fn named_root(&self, name: &str) -> Result<u64> {
        root_page::named_root(self, name)
    }

    /// Stores an offset under a name of at most [`NAME_BYTES_MAX`](crate::NAME_BYTES_MAX) bytes; 0 removes the name.
    /// There are at most [`NAMED_ROOTS_MAX`](crate::NAMED_ROOTS_MAX), all on one page that everybody reads: a structure
    /// has one for as long as it exists, and changes what stands there.
    ///
    /// # Errors
    /// [`Fault::RootsFull`], [`Fault::Name`], and as for [`Memory::write`].
    pub fn set_named_root(&mut self, name: &str, root: u64) -> Result<()> {
        root_page::set_named_root(&mut Reserved(self), name, root)
    }

    /// All named roots, in no particular order.
    ///
    /// # Errors
    /// As for [`Memory::read`].
    pub fn named_roots(&self) -> Result<Vec<(String, u64)>> {
        root_page::named_roots(self)
    }

    /// What the space is said to hold, see [`Options::layout`](crate::Options::layout).
    ///
    /// # Errors
    /// As for [`Memory::read`].
    pub fn layout(&self) -> Result<Option<Layout>> {
        root_page::layout(self)
    }

    /// Says what the space holds from now on: for a program that brings its structures into another form, in the same
    /// transaction.
    ///
    /// # Errors
    /// [`Fault::Name`], and as for [`Memory::write`].
    pub fn set_layout(&mut self, layout: &Layout) -> Result<()> {
        root_page::set_layout(&mut Reserved(self), layout)
    }

    /// How much of the space was ever handed out, in bytes from its beginning. What was given back since is a part of
    /// that, and is handed out again.
    ///
    /// # Errors
    /// As for [`Memory::read`].
    pub fn handed_out(&self) -> Result<u64> {
        allocator::end(self)
    }

    /// Whether it only reads.
    pub fn is_read_only(&self) -> bool {
        self.read_only
    }

    /// A page as the transaction's snapshot has it, verified. That it was looked at is not noticed.
    pub(crate) fn page(&self, page: u64) -> Result<&PageBytes> {
        let found = explicit::verified(self.inner, &self.snapshot(), page)?;
        // SAFETY: it stays as it is while the transaction runs, which is borrowed.
        Ok(unsafe { &*found })
    }

    /// Whether it sees a space to which nothing was ever committed.
    pub(crate) fn is_untouched(&self) -> Result<bool> {
        // A copy of a space begins a log of its own, with what the space holds.
        let is_first = self.snapshot().version == Position::START.lsn.0;
        Ok(is_first && self.root()? == 0 && allocator::end(self)? == RESERVED_BYTES)
    }

    /// What it sees.
    pub(crate) fn snapshot(&self) -> Snapshot {
        let context = self.context.borrow();
        let nothing = Snapshot {
            version: 0,
            tail: 0,
        };
        context.as_ref().map_or(nothing, |context| context.snapshot)
    }

    /// The newest commit that it sees.
    #[cfg(all(test, shuttle))]
    pub(crate) fn version(&self) -> u64 {
        self.snapshot().version
    }

    /// Commits; after a conflict it can be begun again.
    pub(crate) fn try_commit(&mut self, wait: Wait) -> Result<()> {
        if self.given_up {
            return Err(Error::GivenUp);
        }
        self.inner.check_usable()?;
        let inner = self.inner;
        match self.context.get_mut() {
            Some(context) => context.commit(inner, wait),
            None => Ok(()),
        }
    }

    /// Begins another attempt; with backoff when no older one is in the way any more.
    pub(crate) fn begin_again(&mut self) -> Result<()> {
        let inner = self.inner;
        let Some(context) = self.context.get_mut() else {
            return Ok(());
        };
        if inner.options.backoff {
            context.give_way(inner)?;
        }
        context.begin(inner, false, false)?;
        self.pages = context.pages;
        Ok(())
    }

    /// Gives it up; what it has shown to the program is durable then.
    pub(crate) fn abort(&mut self) -> Result<()> {
        let inner = self.inner;
        if inner.membership.is_forked() {
            // The slot is the parent's, whose transaction goes on.
            return Err(Error::Forked);
        }
        match self.context.get_mut() {
            Some(context) => {
                context.end(inner);
                inner.wait_durable(context.snapshot.version)
            }
            None => Ok(()),
        }
    }

    fn slot(&mut self) -> u32 {
        let context = self.context.get_mut();
        context.as_ref().map_or(0, |context| context.slot)
    }

    fn check_writable(&self, offset: u64, bytes: u64) -> Result<()> {
        if self.read_only {
            return Err(Error::ReadOnly);
        }
        if offset < RESERVED_BYTES && bytes > 0 {
            return Err(Fault::Reserved { offset }.into());
        }
        Ok(())
    }

    fn check(&self, offset: u64, bytes: u64) -> Result<()> {
        let end = offset.checked_add(bytes);
        if end.is_none_or(|end| end > self.bytes()) {
            return Err(Fault::OutOfBounds { offset, bytes }.into());
        }
        Ok(())
    }
}

impl fmt::Debug for Transaction<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Transaction")
            .field("read_only", &self.read_only)
            .finish_non_exhaustive()
    }
}

impl Drop for Transaction<'_> {
    fn drop(&mut self) {
        if !self.read_only {
            running::leave(self.inner.identity);
        }
        if let Some(mut context) = self.context.get_mut().take() {
            if self.inner.membership.is_forked() {
                // The slot is the parent's.
                return;
            }
            context.end(self.inner);
            let slot = self.inner.slot(context.slot);
            slot.forget_losses(&self.inner.region.slots);
            self.idle.keep(context);
        }
    }
}

impl Memory for Transaction<'_> {
    type Error = Error;

    fn read(&self, offset: u64, bytes: usize) -> Result<&[u8]> {
        self.check(offset, bytes as u64)?;
        if bytes == 0 {
            return Ok(&[]);
        }
        let mut context = self.context.borrow_mut();
        let context = context.as_mut().ok_or(Error::GivenUp)?;
        let snapshot = context.snapshot;
        let start = match &mut context.access {
            Access::Explicit(explicit) => explicit.read(self.inner, &snapshot, offset, bytes)?,
            Access::Mapped(view) => {
                // Other threads may look at what is lent out, and must not be the first to touch it.
                view.touch(pages_of(offset, bytes as u64), false)?;
                view.place(offset).cast_const()
            }
        };
        // SAFETY: so many bytes lie there until the transaction ends. Nothing writes to them while `self` is borrowed:
        // others write only where this transaction's slot lets them, and this one only through `&mut self`.
        Ok(unsafe { slice::from_raw_parts(start, bytes) })
    }

    fn write(&mut self, offset: u64, bytes: usize) -> Result<&mut [u8]> {
        self.check_writable(offset, bytes as u64)?;
        self.write_anywhere(offset, bytes)
    }

    fn allocate(&mut self, bytes: u64) -> Result<u64> {
        let (slot, limit) = (self.slot(), self.bytes());
        allocator::allocate(&mut Reserved(self), slot, limit, bytes)
    }

    fn free(&mut self, offset: u64, bytes: u64) -> Result<()> {
        let (slot, limit) = (self.slot(), self.bytes());
        allocator::free(&mut Reserved(self), slot, limit, offset, bytes)
    }

    fn root(&self) -> Result<u64> {
        root_page::root(self)
    }

    fn set_root(&mut self, root: u64) -> Result<()> {
        root_page::set_root(&mut Reserved(self), root)
    }

    fn prefetch(&self, offset: u64, bytes: u64) {
        // The one that writes has little time, and mostly finds the pages in memory.
        if self.read_only || bytes >= PREFETCH_BYTES_MIN {
            self.inner.prefetch(offset, bytes);
        }
    }

    fn is_shared(&self) -> bool {
        true
    }
}

/// A transaction as plain memory, see [`Transaction::mapped`]. Nothing is asked for before it is used: `read` and
/// `write` only look whether the space is that large. So what they lend out is for this thread, which learns of a page
/// that is damaged by a segmentation fault, and system calls refuse it, as with [`Transaction::map`].
#[derive(Debug)]
pub struct Mapped<'t, 's> {
    base: NonNull<u8>,
    transaction: &'t mut Transaction<'s>,
}

impl Memory for Mapped<'_, '_> {
    type Error = Error;

    #[inline]
    fn read(&self, offset: u64, bytes: usize) -> Result<&[u8]> {
        self.transaction.check(offset, bytes as u64)?;
        let start = self.base.as_ptr().wrapping_add(offset as usize);
        // SAFETY: so many bytes lie there until the transaction ends, which is borrowed; a load from a page that the
        // transaction does not have yet gets it, or ends the process. Nothing writes to them while `self` is borrowed.
        Ok(unsafe { slice::from_raw_parts(start, bytes) })
    }

    #[inline]
    fn write(&mut self, offset: u64, bytes: usize) -> Result<&mut [u8]> {
        self.transaction.check(offset, bytes as u64)?;
        self.transaction.check_writable(offset, bytes as u64)?;
        let start = self.base.as_ptr().wrapping_add(offset as usize);
        // SAFETY: as above, and they are lent to nobody else while `self` is borrowed; a store makes the page the
        // transaction's own.
        Ok(unsafe { slice::from_raw_parts_mut(start, bytes) })
    }

    fn allocate(&mut self, bytes: u64) -> Result<u64> {
        self.transaction.allocate(bytes)
    }

    fn free(&mut self, offset: u64, bytes: u64) -> Result<()> {
        self.transaction.free(offset, bytes)
    }

    fn root(&self) -> Result<u64> {
        self.transaction.root()
    }

    fn set_root(&mut self, root: u64) -> Result<()> {
        self.transaction.set_root(root)
    }

    fn prefetch(&self, offset: u64, bytes: u64) {
        self.transaction.prefetch(offset, bytes);
    }

    fn is_shared(&self) -> bool {
        true
    }
}

/// A transaction as the allocator uses it, for as long as it works: what it keeps for itself is its own.
pub(crate) struct Reserved<'t, 's>(pub(crate) &'t mut Transaction<'s>);

impl Drop for Reserved<'_, '_> {
    fn drop(&mut self) {
        let context = self.0.context.get_mut();
        if let Some(Access::Mapped(view)) = context.as_mut().map(|context| &mut context.access) {
            view.close_reserved();
        }
    }
}

impl Memory for Reserved<'_, '_> {
    type Error = Error;

    fn read(&self, offset: u64, bytes: usize) -> Result<&[u8]> {
        self.0.read(offset, bytes)
    }

    fn write(&mut self, offset: u64, bytes: usize) -> Result<&mut [u8]> {
        self.0.write_anywhere(offset, bytes)
    }

    fn allocate(&mut self, bytes: u64) -> Result<u64> {
        self.0.allocate(bytes)
    }

    fn free(&mut self, offset: u64, bytes: u64) -> Result<()> {
        self.0.free(offset, bytes)
    }

    fn root(&self) -> Result<u64> {
        self.0.root()
    }

    fn set_root(&mut self, root: u64) -> Result<()> {
        self.0.set_root(root)
    }
}

impl Transaction<'_> {
    fn write_anywhere(&mut self, offset: u64, bytes: usize) -> Result<&mut [u8]> {
        self.check(offset, bytes as u64)?;
        if self.read_only {
            return Err(Error::ReadOnly);
        }
        if bytes == 0 {
            return Ok(&mut []);
        }
        let context = self.context.get_mut();
        let context = context.as_mut().ok_or(Error::GivenUp)?;
        let snapshot = context.snapshot;
        let start = match &mut context.access {
            Access::Explicit(explicit) => explicit.write(self.inner, &snapshot, offset, bytes)?,
            Access::Mapped(view) => {
                view.touch(pages_of(offset, bytes as u64), true)?;
                view.place(offset)
            }
        };
        // SAFETY: so many bytes of this transaction's own lie there, and are lent to nobody else while `self` is
        // borrowed.
        Ok(unsafe { slice::from_raw_parts_mut(start, bytes) })
    }
}
