//! The reader table: which commits are being looked at, so that their pages are not used again.
//!
//! Each slot has a cache line of its own. A thread that wants to read takes an idle slot that its process has claimed
//! earlier, or claims one from the table; claimed slots go back to the process, not to the table, so that a snapshot
//! begins and ends without ever writing to memory that other threads write to.
//!
//! *Pinning.* A reader stores the visible commit in its slot and looks again: if another commit has become visible
//! meanwhile, it starts over. A writer that wants to use a page again notes the visible commit first and then reads the
//! slots. All four are sequentially consistent, so either the writer finds the reader's commit in the slot, or the
//! reader, looking again, finds a commit that is at least the one the writer noted, and a page is never used again
//! while that one, or a later one, can see it (see `space`).
//!
//! *Parking.* The one that reads from a snapshot holds references into its pages, which nothing can take back. An owner
//! that will not read for a while marks its slot as parked: the commit stays pinned, but the one that wants its pages
//! may exchange the mark for that of an expired snapshot, and the owner takes its own mark back the same way. Both are
//! exchanges of the one word, so one of them comes first: either the snapshot goes on, pinned without a gap, or its
//! owner learns that it is over.

// Idle handles are passed around as raw pointers, so that taking one and putting it back is one atomic operation each.
#![allow(unsafe_code)]

use std::cell::Cell;
use std::ptr;

use sapwood_wal::process::thread_number;

use crate::env::region::{Line, Region};
use crate::env::{Env, Inner};
use crate::error::{Error, Result};
use crate::ids::CommitNo;
use crate::sync::{Arc, AtomicPtr, AtomicU32, AtomicU64, Ordering};

/// In a slot's commit: the snapshot is parked.
const PARKED: u64 = 1 << 63;

/// What a slot holds whose parked snapshot was ended.
const EXPIRED: u64 = PARKED;

/// A slot of the reader table. All zeroes is a free one.
#[cfg_attr(all(test, shuttle), derive(Default))]
#[repr(C, align(64))]
pub(crate) struct Slot {
    /// The commit that is looked at, perhaps `PARKED`; 0 if none, `EXPIRED` if no more.
    commit: AtomicU64,
    /// 1 + the entry of the process that has claimed the slot; 0 if none.
    owner: AtomicU32,
    /// The thread that claimed it.
    thread: AtomicU32,
}

/// A slot that is in use, as others see it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pinned {
    pub(crate) commit: CommitNo,
    pub(crate) process: u16,
    pub(crate) thread: u32,
    pub(crate) is_parked: bool,
}

impl Slot {
    /// Pins the visible commit; gives what `look` finds for it. `look` gives nothing if it came too late for that
    /// commit.
    #[inline]
    pub(crate) fn pin_visible<T>(
        &self,
        visible: impl Fn() -> CommitNo,
        look: impl Fn(CommitNo) -> Option<T>,
    ) -> (CommitNo, T) {
        loop {
            let commit = visible();
            self.pin(commit);
            if visible() == commit
                && let Some(found) = look(commit)
            {
                return (commit, found);
            }
        }
    }

    fn pin(&self, commit: CommitNo) {
        self.commit.swap(commit.0, Ordering::SeqCst);
    }

    pub(crate) fn unpin(&self) {
        self.commit.store(0, Ordering::Release);
    }

    /// For its owner.
    pub(crate) fn park(&self) {
        self.commit.fetch_or(PARKED, Ordering::Release);
    }

    /// For its owner; whether the commit has been pinned all the time.
    pub(crate) fn resume(&self) -> bool {
        let parked = self.commit.load(Ordering::Relaxed);
        parked != EXPIRED && self.replace(parked, parked & !PARKED)
    }

    /// Ends a snapshot that is parked and sees a commit before `oldest`; for anybody.
    pub(crate) fn expire(&self, oldest: CommitNo) -> bool {
        let word = self.commit.load(Ordering::SeqCst);
        let is_parked = word & PARKED != 0 && word != EXPIRED;
        is_parked && word & !PARKED < oldest.0 && self.replace(word, EXPIRED)
    }

    fn replace(&self, word: u64, with: u64) -> bool {
        let replaced =
            self.commit
                .compare_exchange(word, with, Ordering::SeqCst, Ordering::Relaxed);
        replaced.is_ok()
    }

    pub(crate) fn claim(&self, process: u16) -> bool {
        let owner = u32::from(process) + 1;
        let claimed = self
            .owner
            .compare_exchange(0, owner, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok();
        if claimed {
            self.thread.store(thread_number(), Ordering::Relaxed);
        }
        claimed
    }

    fn give_back(&self) {
        self.unpin();
        self.owner.store(0, Ordering::Release);
    }

    fn owner(&self) -> Option<u16> {
        let owner = self.owner.load(Ordering::Acquire).checked_sub(1)?;
        u16::try_from(owner).ok()
    }

    pub(crate) fn pinned(&self) -> Option<Pinned> {
        let word = self.commit.load(Ordering::SeqCst);
        let commit = word & !PARKED;
        if commit == 0 {
            return None;
        }
        Some(Pinned {
            is_parked: word & PARKED != 0,
            commit: CommitNo(commit),
            process: self.owner()?,
            thread: self.thread.load(Ordering::Relaxed),
        })
    }
}

/// A claimed slot. It keeps the environment's mappings alive.
pub(crate) struct ReaderHandle {
    pub(crate) inner: Arc<Inner>,
    slot: usize,
}

impl ReaderHandle {
    /// An idle handle of this process, or a slot claimed from the table.
    pub(crate) fn take(inner: &Arc<Inner>) -> Result<Box<Self>> {
        match inner.idle_readers.take() {
            Some(handle) => Ok(handle),
            None => Self::claim(inner),
        }
    }

    #[cold]
    fn claim(inner: &Arc<Inner>) -> Result<Box<Self>> {
        let claimed = claim_slot(inner).or_else(|| {
            reap_dead(inner);
            claim_slot(inner)
        });
        if claimed.is_none()
            && let Some(handle) = inner.idle_readers.take_any()
        {
            return Ok(handle);
        }
        let slot = claimed.ok_or(Error::ReadersFull)?;
        Ok(Box::new(Self {
            inner: inner.clone(),
            slot,
        }))
    }

    /// Pins the visible commit; gives what `look` finds for it. `look` gives nothing if it came too late for that
    /// commit.
    #[inline]
    pub(crate) fn pin<T>(&self, look: impl Fn(CommitNo) -> Option<T>) -> (CommitNo, T) {
        let region = &self.inner.region;
        region.slots[self.slot].pin_visible(|| region.visible(), look)
    }

    /// Lets the pinned commit go if somebody wants its pages.
    pub(crate) fn park(&self) {
        if !self.inner.membership.is_forked() {
            self.inner.region.slots[self.slot].park();
        }
    }

    /// Takes that back; whether it came in time.
    pub(crate) fn resume(&self) -> bool {
        self.inner.region.slots[self.slot].resume()
    }

    /// Unpins, and keeps the slot for the next one.
    #[inline]
    pub(crate) fn put_back(self: Box<Self>) {
        if self.inner.membership.is_forked() {
            // The slot is the parent's, who may be reading.
            std::mem::forget(self);
            return;
        }
        self.inner.region.slots[self.slot].unpin();
        IdleReaders::put(self);
    }
}

impl Drop for ReaderHandle {
    fn drop(&mut self) {
        if !self.inner.membership.is_forked() {
            self.inner.region.slots[self.slot].give_back();
        }
    }
}

impl Env {
    /// Ends the snapshots of processes that died with them, which otherwise happens when their pages are wanted; how
    /// many there were.
    pub fn clear_dead_readers(&self) -> Result<usize> {
        self.inner().check_usable()?;
        Ok(clear_dead(self.inner()))
    }

    /// Ends the snapshots that are parked ([`Snapshot::park`](crate::Snapshot::park)), in any process, and more than
    /// `age_max` commits old; how many there were.
    pub fn expire_parked(&self, age_max: u64) -> Result<usize> {
        self.inner().check_usable()?;
        Ok(expire_parked(self.inner(), age_max))
    }
}

fn claim_slot(inner: &Inner) -> Option<usize> {
    let me = inner.membership.index();
    let slot = inner.region.slots.iter().position(|slot| slot.claim(me))?;
    // Before the slot is first pinned: a writer that does not see this yet noted the visible commit earlier still.
    let end = u32::try_from(slot + 1).unwrap_or(u32::MAX);
    inner.region.slots_end.fetch_max(end, Ordering::SeqCst);
    Some(slot)
}

/// All snapshots of living processes. The caller has noted the visible commit before.
pub(crate) fn pinned(inner: &Inner) -> Vec<Pinned> {
    let me = inner.membership.index();
    let end = inner.region.slots_end.load(Ordering::SeqCst) as usize;
    let mut found: Vec<Pinned> = Vec::new();
    let mut dead: Vec<u16> = Vec::new();
    let mut alive: Vec<u16> = Vec::new();
    for slot in inner.region.slots.iter().take(end) {
        let Some(pinned) = slot.pinned() else {
            continue;
        };
        let process = pinned.process;
        let is_known = process == me || alive.contains(&process) || dead.contains(&process);
        if !is_known {
            if inner.is_alive(process) {
                alive.push(process);
            } else {
                dead.push(process);
            }
        }
        if process == me || alive.contains(&process) {
            found.push(pinned);
        }
    }
    for process in dead {
        reap(inner, process);
    }
    found
}

/// Ends all snapshots that are parked and more than `age_max` commits old; how many there were.
pub(crate) fn expire_parked(inner: &Inner, age_max: u64) -> usize {
    let region = &inner.region;
    let oldest = CommitNo(region.visible().0.saturating_sub(age_max));
    let end = region.slots_end.load(Ordering::SeqCst) as usize;
    let slots = region.slots.iter().take(end);
    slots.filter(|slot| slot.expire(oldest)).count()
}

/// Gives back all slots of dead processes; how many of them held a snapshot.
pub(crate) fn clear_dead(inner: &Inner) -> usize {
    let held = |slot: &&Slot| {
        slot.pinned()
            .is_some_and(|pin| !inner.is_alive(pin.process))
    };
    let count = inner.region.slots.iter().filter(held).count();
    reap_dead(inner);
    count
}

/// Gives back all slots of dead processes.
fn reap_dead(inner: &Inner) {
    let mut owners: Vec<u16> = inner.region.slots.iter().filter_map(Slot::owner).collect();
    owners.sort_unstable();
    owners.dedup();
    for process in owners {
        if !inner.is_alive(process) {
            reap(inner, process);
        }
    }
}

fn reap(inner: &Inner, process: u16) {
    inner
        .membership
        .reap(process, &inner.first_region().processes[..], || {
            give_back_all(&inner.region, process)
        });
}

/// Gives back the slots that a process left when it died; the one that takes over its entry does this first.
pub(crate) fn give_back_all(region: &Region, process: u16) {
    for slot in &region.slots {
        if slot.owner() == Some(process) {
            slot.give_back();
        }
    }
}

/// Claimed slots that are not in use, by thread as far as possible.
pub(crate) struct IdleReaders {
    places: [Line<AtomicPtr<ReaderHandle>>; PLACES],
}

const PLACES: usize = 64;

/// How many places are tried for a handle to be put back: as many as one thread keeps snapshots at a time.
const TRIED: usize = 4;

/// What lies in all places once the environment is closed: nothing is put there any more.
const CLOSED: *mut ReaderHandle = ptr::dangling_mut();

thread_local! {
    static PLACE: Cell<usize> = const { Cell::new(usize::MAX) };
}

/// The place at which the calling thread begins to look.
#[inline]
fn own_pointer() -> usize {
    let place = PLACE.get();
    if place != usize::MAX {
        return place;
    }
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let place = NEXT.fetch_add(1, Ordering::Relaxed) as usize % PLACES;
    PLACE.set(place);
    place
}

/// The handle of a place, if there is one, which is left as said.
#[inline]
fn take_out(place: &AtomicPtr<ReaderHandle>, left: *mut ReaderHandle) -> Option<Box<ReaderHandle>> {
    let handle = place.swap(left, Ordering::Acquire);
    let is_there = !handle.is_null() && handle != CLOSED;
    // SAFETY: `put` made it from a box, and the swap gave it to nobody else.
    is_there.then(|| unsafe { Box::from_raw(handle) })
}

impl IdleReaders {
    pub(crate) fn new() -> Self {
        Self {
            places: [const { Line::new(AtomicPtr::new(ptr::null_mut())) }; PLACES],
        }
    }

    #[inline]
    fn take(&self) -> Option<Box<ReaderHandle>> {
        let own = own_pointer();
        for tried in 0..TRIED {
            let place = &self.places[(own + tried) % PLACES];
            if tried > 0 && place.load(Ordering::Relaxed).is_null() {
                continue;
            }
            let handle = take_out(place, ptr::null_mut());
            if handle.is_some() {
                return handle;
            }
        }
        None
    }

    /// A handle that other threads have left, which only a full table is a reason to look for.
    #[cold]
    fn take_any(&self) -> Option<Box<ReaderHandle>> {
        self.places.iter().find_map(|place| {
            let handle = place.load(Ordering::Relaxed);
            if handle.is_null() || handle == CLOSED {
                return None;
            }
            take_out(place, ptr::null_mut())
        })
    }

    /// Keeps a handle for later, or gives its slot back to the table if there are enough.
    #[inline]
    fn put(handle: Box<ReaderHandle>) {
        let own = own_pointer();
        let handle = Box::into_raw(handle);
        for tried in 0..TRIED {
            // SAFETY: the handle is still ours, and keeps the environment with these places alive.
            let reader: &ReaderHandle = unsafe { &*handle };
            let place = &reader.inner.idle_readers.places[(own + tried) % PLACES];
            if place
                .compare_exchange(
                    ptr::null_mut(),
                    handle,
                    Ordering::Release,
                    Ordering::Relaxed,
                )
                .is_ok()
            {
                // From here on somebody else may have taken the handle, and even closed the environment.
                return;
            }
        }
        // SAFETY: made from a box above and given to nobody.
        drop(unsafe { Box::from_raw(handle) });
    }

    /// Gives all idle slots back and takes no more, which undoes the circle of an environment that owns handles that
    /// own it.
    pub(crate) fn close(&self) {
        for place in &self.places {
            drop(take_out(place, CLOSED));
        }
    }
}
