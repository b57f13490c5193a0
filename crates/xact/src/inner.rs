//! An open space: what all of its transactions in this process share.

// Pages and sums are looked at through the mapping.
#![allow(unsafe_code)]

use std::sync::Arc;

use sapwood_wal::process::Membership;
use sapwood_wal::storage::{File, Identity, Map, Storage};
use sapwood_wal::sync::Ordering;
use sapwood_wal::{Lsn, Wal};

use crate::address::AddressRange;
use crate::error::{Doing, Error, Result};
use crate::mode::{Durability, Mode};
use crate::options::Options;
use crate::page::{PAGE_BYTES, PageBytes};
use crate::page_writer::PageWriter;
use crate::places::{offset_in_file, sum_at};
use crate::region::Region;
use crate::region::slot::Slot;
use crate::sums::{Verified, sum_of};

/// What belongs to an open space.
pub(crate) struct Inner {
    pub(crate) region: Arc<Region>,
    pub(crate) membership: Arc<Membership>,
    pub(crate) storage: Arc<dyn Storage>,
    pub(crate) data: Arc<dyn File>,
    pub(crate) writer: PageWriter,
    pub(crate) verified: Verified,
    pub(crate) map: Map,
    pub(crate) wal: Wal,
    pub(crate) id: [u8; 16],
    /// Of the data file: what tells the space from all others, however often it was opened.
    pub(crate) identity: Identity,
    /// The pages that have a place in the file; how many of them are a part of the space, the region says.
    pub(crate) pages: u64,
    pub(crate) mode: Mode,
    pub(crate) durability: Durability,
    pub(crate) options: Options,
    /// Where the space is in memory; 0 if anywhere.
    pub(crate) address: u64,
    /// These addresses. They outlive the contexts.
    pub(crate) addresses: Option<AddressRange>,
}

impl Inner {
    /// Refuses a space that is no longer fit for use.
    pub(crate) fn check_usable(&self) -> Result<()> {
        if self.membership.is_forked() {
            return Err(Error::Forked);
        }
        if self.region.poisoned.load(Ordering::SeqCst) != 0 {
            return Err(Error::Poisoned);
        }
        Ok(())
    }

    /// Refuses a data file that somebody has shortened, before more of it is used.
    pub(crate) fn check_size(&self) -> Result<()> {
        let size = self.data.size().doing("cannot look at the data file")?;
        if size < self.map.reserved() as u64 {
            self.poison();
            let cut = format!("somebody has cut the data file to {size} bytes");
            return Err(Error::Damaged(cut));
        }
        Ok(())
    }

    /// Has everybody stop.
    pub(crate) fn poison(&self) {
        self.region.poisoned.store(1, Ordering::SeqCst);
    }

    pub(crate) fn is_alive(&self, process: u16) -> bool {
        self.membership
            .is_alive(process, &self.region.processes[..])
    }

    /// The id of the process with an entry.
    pub(crate) fn pid_of(&self, process: u16) -> u32 {
        let entry = self.region.processes.get(usize::from(process));
        entry.map_or(0, |entry| entry.pid())
    }

    /// All slots that were ever used.
    pub(crate) fn slots(&self) -> impl Iterator<Item = &Slot> {
        let end = self.region.slots.end.load(Ordering::SeqCst) as usize;
        self.region.slots.table.iter().take(end)
    }

    pub(crate) fn slot(&self, number: u32) -> &Slot {
        &self.region.slots.table[number as usize]
    }

    /// Takes a free slot for a new context.
    pub(crate) fn take_slot(&self) -> Result<u32> {
        let me = self.membership.index();
        let take = || {
            let mut slots = (0..).zip(&self.region.slots.table);
            slots.find(|(_, slot)| slot.take(me))
        };
        let found = take().or_else(|| {
            self.reap_all();
            take()
        });
        let (number, _) = found.ok_or(Error::SlotsFull)?;
        self.region
            .slots
            .end
            .fetch_max(number + 1, Ordering::SeqCst);
        Ok(number)
    }

    /// Gives back the slots of a dead process, unless somebody else is about to; gives whether it has.
    pub(crate) fn reap(&self, process: u16) -> bool {
        let table = &self.region.processes[..];
        let clear = || self.region.slots.free_of(process);
        self.membership.reap(process, table, clear)
    }

    fn reap_all(&self) {
        let mut owners: Vec<u16> = self.slots().filter_map(Slot::owner).collect();
        owners.sort_unstable();
        owners.dedup();
        for owner in owners {
            if !self.is_alive(owner) {
                self.reap(owner);
            }
        }
    }

    /// Waits until what a transaction has seen is durable.
    pub(crate) fn wait_durable(&self, version: u64) -> Result<()> {
        if self.durability == Durability::Durable && self.wal.durable().0 < version {
            self.wal.sync_to(Lsn(version))?;
        }
        Ok(())
    }

    /// Where a page is in the file that is mapped.
    pub(crate) fn page_in_file(&self, page: u64) -> *const PageBytes {
        debug_assert!(page < self.pages);
        let offset = offset_in_file(page) as usize;
        self.map.as_ptr().wrapping_add(offset).cast()
    }

    /// Asks the system to read a range of the file ahead; a hint.
    pub(crate) fn prefetch(&self, offset: u64, bytes: u64) {
        let offset = usize::try_from(offset_in_file(0).saturating_add(offset));
        if let (Ok(offset), Ok(bytes)) = (offset, usize::try_from(bytes)) {
            self.map.prefetch(offset, bytes);
        }
    }

    /// Verifies a page of the file, unless that was done before in this process. For a running transaction that is to
    /// see what the file has; may be called in a signal handler.
    ///
    /// # Errors
    /// [`Error::PageDamaged`].
    pub(crate) fn verify(&self, page: u64) -> Result<()> {
        if self.verified.has(page) {
            return Ok(());
        }
        self.verify_again(page)?;
        self.verified.add(page);
        Ok(())
    }

    /// Verifies a page of the file, whether that was done before or not.
    pub(crate) fn verify_again(&self, page: u64) -> Result<()> {
        // SAFETY: within the mapping and the file; the caller's transaction keeps it from being written to.
        let bytes = unsafe { &*self.page_in_file(page) };
        if sum_of(bytes) != self.sum_in_file(page) {
            let offset = page * PAGE_BYTES as u64;
            return Err(Error::PageDamaged { offset });
        }
        Ok(())
    }

    /// The sum that the file has of a page.
    pub(crate) fn sum_in_file(&self, page: u64) -> u32 {
        let at = sum_at(page, self.pages) as usize;
        // SAFETY: within the mapping and the file, and aligned; as the page it is not written to now.
        unsafe { self.map.as_ptr().add(at).cast::<u32>().read() }.to_le()
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if !self.membership.is_forked() {
            self.region.slots.free_of(self.membership.index());
        }
    }
}
