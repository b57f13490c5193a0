//! Slots: what every process knows of every running transaction.
//!
//! A slot says which commit a transaction sees and from which frame on it may look at frames, and so keeps both from
//! going away. To begin is to say so, and then to look whether somebody has gone further meanwhile:
//!
//! ```text
//!  a transaction begins                      maintenance
//!  1. read tail and last version             1. raise floor, or move tail
//!  2. store them in the slot                 2. fence
//!  3. fence                                  3. read all slots
//!  4. floor <= version, same tail?           4. do nothing that one of them must not see
//!     otherwise again from 1
//! ```
//!
//! Either step 3 on the right sees the slot, or step 4 on the left sees what was done. One that is too large for the
//! log closes the gate in place of step 1, and raises the floor before it opens it: so the one that begins looks at the
//! gate before the floor.
//!
//! A transaction that has lost to others also says how old it is and what it touched, and younger ones make way for it,
//! see `commit`.

use std::time::Duration;

use sapwood_wal::sync::{self, AtomicU32, AtomicU64, Ordering, fence};

use super::{Region, Slots};
use crate::guard::{Guard, Guards};
use crate::step::step;

/// How many transactions may run at the same time, in all processes together.
pub const SLOTS_MAX: usize = if cfg!(shuttle) { 8 } else { 2048 };

/// The bits of a signature.
const SIGNATURE_WORDS: usize = 8;

/// What a transaction sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Snapshot {
    /// The version of the newest commit it sees.
    pub(crate) version: u64,
    /// Frames from this one on stay what they are while the transaction runs.
    pub(crate) tail: u64,
}

/// Who goes first: the one that began first, and among those the lower slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Age {
    began: u64,
    slot: u32,
}

/// A place for one transaction at a time. All zeroes is a free one.
#[derive(Default)]
#[repr(C, align(64))]
pub(crate) struct Slot {
    /// 1 + the process entry whose slot it is, 0 if free.
    owner: AtomicU32,
    /// Changes whenever a transaction that others make way for ends; they sleep on it.
    turn: AtomicU32,
    /// 1 + the version of the newest commit that the transaction sees, 0 while none runs.
    version: AtomicU64,
    tail: AtomicU64,
    /// 1 + the version that the transaction's first attempt saw, 0 unless it has lost since.
    began: AtomicU64,
    /// The pages that it touched before it lost; all bits if others make way whatever they do.
    signature: [AtomicU64; SIGNATURE_WORDS],
}

impl Slot {
    pub(crate) fn owner(&self) -> Option<u16> {
        u16::try_from(self.owner.load(Ordering::SeqCst).checked_sub(1)?).ok()
    }

    /// Takes a free slot for a process.
    pub(crate) fn take(&self, process: u16) -> bool {
        self.owner
            .compare_exchange(
                0,
                u32::from(process) + 1,
                Ordering::SeqCst,
                Ordering::Relaxed,
            )
            .is_ok()
    }

    /// Begins a transaction that sees the newest commit that `newest` names, which never goes back. If the gate is
    /// closed no transaction has begun, but the slot may say so until it is ended; gives what the gate says then.
    pub(crate) fn begin(
        &self,
        region: &Region,
        guards: Guards,
        newest: impl Fn() -> u64,
    ) -> Result<Snapshot, u32> {
        loop {
            let tail = region.ring.tail.load(Ordering::SeqCst);
            let version = newest();
            self.tail.store(tail, Ordering::Relaxed);
            step();
            self.version.store(version + 1, Ordering::Release);
            fence(Ordering::SeqCst);
            step();
            match region.gate.load(Ordering::SeqCst) {
                0 => {}
                gate => return Err(gate),
            }
            step();
            let floor = region.ring.floor.load(Ordering::SeqCst);
            let is_behind = floor > version || region.ring.tail.load(Ordering::SeqCst) != tail;
            if !is_behind || !guards.has(Guard::LookAgain) {
                return Ok(Snapshot { version, tail });
            }
        }
    }

    /// The transaction no longer looks at anything.
    pub(crate) fn end(&self) {
        self.version.store(0, Ordering::Release);
    }

    /// Gives the slot of an ended or dead transaction back.
    pub(crate) fn free(&self, slots: &Slots) {
        self.forget_losses(slots);
        self.end();
        self.owner.store(0, Ordering::SeqCst);
    }

    /// What the transaction in the slot sees, if one runs.
    pub(crate) fn snapshot(&self) -> Option<Snapshot> {
        let version = self.version.load(Ordering::SeqCst).checked_sub(1)?;
        Some(Snapshot {
            version,
            tail: self.tail.load(Ordering::SeqCst),
        })
    }

    /// Says that the transaction has lost, and what it had touched; after its second loss others make way whatever they
    /// do.
    pub(crate) fn lose(&self, slots: &Slots, first_version: u64, touched: Signature) {
        if self.began.load(Ordering::Relaxed) == 0 {
            for (word, bits) in self.signature.iter().zip(touched.0) {
                word.store(bits, Ordering::Relaxed);
            }
            slots.losers.fetch_add(1, Ordering::SeqCst);
            step();
            self.began.store(first_version + 1, Ordering::SeqCst);
        } else {
            for word in &self.signature {
                word.store(u64::MAX, Ordering::SeqCst);
            }
        }
    }

    /// The transaction has ended after it had lost: those who made way go on.
    pub(crate) fn forget_losses(&self, slots: &Slots) {
        if self.began.swap(0, Ordering::SeqCst) != 0 {
            step();
            slots.losers.fetch_sub(1, Ordering::SeqCst);
            step();
            self.turn.fetch_add(1, Ordering::SeqCst);
            sync::wake_all(&self.turn);
        }
    }

    /// How old the transaction in the slot is, if it has lost before.
    pub(crate) fn age(&self, slot: u32) -> Option<Age> {
        let began = self.began.load(Ordering::SeqCst).checked_sub(1)?;
        Some(Age { began, slot })
    }

    /// Whether a transaction that has touched `pages` before may meet one that writes to `others`.
    pub(crate) fn touches(&self, others: &Signature) -> bool {
        let own = self.signature.iter();
        own.zip(others.0)
            .any(|(own, other)| own.load(Ordering::SeqCst) & other != 0)
    }

    pub(crate) fn turn(&self) -> u32 {
        self.turn.load(Ordering::SeqCst)
    }

    /// Sleeps until the transaction that is older ends, or for a while.
    pub(crate) fn wait_for_end(&self, turn: u32) {
        wait_while(&self.turn, turn);
    }
}

impl Age {
    pub(crate) fn new(began: u64, slot: u32) -> Self {
        Self { began, slot }
    }
}

/// How long somebody sleeps before looking whether those waited for still live.
const LOOK_AFTER: Duration = Duration::from_millis(20);

/// Sleeps while `word` is `value`, for a while.
pub(crate) fn wait_while(word: &AtomicU32, value: u32) {
    // Woken, timed out, interrupted or changed: the caller looks again in any case.
    sync::wait_while(word, value, LOOK_AFTER);
}

/// A set of pages as a few bits: two sets with a page in common have a bit in common.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Signature([u64; SIGNATURE_WORDS]);

impl Signature {
    pub(crate) fn add(&mut self, page: u64) {
        let hash = page.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0[(hash >> 61) as usize] |= 1 << (hash >> 55 & 63);
    }
}

impl Slots {
    /// Frees all that a process had.
    pub(crate) fn free_of(&self, process: u16) {
        for slot in &self.table {
            if slot.owner() == Some(process) {
                slot.free(self);
            }
        }
    }
}
