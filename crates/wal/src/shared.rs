//! The state of a log that all its users share, possibly across processes.

use crate::gather::Group;
use crate::lock::Lock;
use crate::sync::{AtomicU32, AtomicU64, Ordering};
use crate::{Lsn, Position};

/// The state of a running log: where it ends, what is durable, who syncs. It consists of atomics only and is valid when
/// all its bytes are zero (a log that has not been started), so it may live in private memory (`Arc<Shared>`) or in
/// memory that several processes map, behind any type that gives `AsRef<Shared>`. It is volatile: after a reboot or a
/// crash of all processes it must begin with zeros again, and [`Wal::start`](crate::Wal::start) fills it.
///
/// One process at a time changes the end, floor and tails: the one with the caller's writer lock. Everybody takes part
/// in the rest.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub struct Shared {
    /// `STOPPED`, `RUNNING` or `POISONED`.
    state: AtomicU32,
    /// Odd while somebody syncs; see `group`.
    pub(crate) turn: AtomicU32,
    /// The futex words on which others wait for that to end.
    pub(crate) bells: [Bell; 2],
    /// Not 0 if the buffer holds what the block of `written` begins with; see `buffer`. For the holder of the writer
    /// lock.
    primed: AtomicU32,
    unused: AtomicU32,
    /// The sync under way makes everything before this durable.
    pub(crate) leading_to: AtomicU64,
    /// Everything before it is durable.
    durable: AtomicU64,
    /// How many syncs there have been.
    syncs: AtomicU64,
    /// Where the next record goes. Everything before it is complete.
    end: AtomicU64,
    /// Everything before it may be overwritten.
    floor: AtomicU64,
    /// The end with the checksum of the last record. The one whose LSN is not `end` is free for the next record, so
    /// that the one that dies between two stores leaves the other one whole.
    tails: [Tail; 2],
    /// Everything before it is in the files, if perhaps in the page cache only.
    written: AtomicU64,
    /// Held by the one that writes to the files; see `buffer`.
    pub(crate) writing: Lock,
    /// Held by the one that makes a segment.
    pub(crate) making: Lock,
    /// Who shares syncs.
    pub(crate) group: Group,
}

#[derive(Debug, Default)]
#[repr(C)]
pub(crate) struct Bell {
    /// How often it was rung.
    pub(crate) rings: AtomicU32,
    /// How many wait for it; too high when one of them was killed, which costs a system call and nothing else.
    pub(crate) sleepers: AtomicU32,
}

#[derive(Debug, Default)]
#[repr(C)]
struct Tail {
    lsn: AtomicU64,
    chain: AtomicU32,
    unused: AtomicU32,
}

const STOPPED: u32 = 0;
const RUNNING: u32 = 1;
const POISONED: u32 = 2;

/// Whether a log can be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Stopped,
    Running,
    Poisoned,
}

impl Shared {
    pub(crate) fn state(&self) -> State {
        match self.state.load(Ordering::Acquire) {
            STOPPED => State::Stopped,
            RUNNING => State::Running,
            _ => State::Poisoned,
        }
    }

    pub(crate) fn poison(&self) {
        self.state.store(POISONED, Ordering::SeqCst);
    }

    pub(crate) fn start(&self, floor: Lsn, end: Position) {
        let [first, second] = &self.tails;
        first.lsn.store(end.lsn.0, Ordering::Relaxed);
        first.chain.store(end.chain, Ordering::Relaxed);
        second.lsn.store(u64::MAX, Ordering::Relaxed);
        self.floor.store(floor.0, Ordering::Relaxed);
        self.end.store(end.lsn.0, Ordering::Relaxed);
        self.durable.store(end.lsn.0, Ordering::Relaxed);
        self.written.store(end.lsn.0, Ordering::Relaxed);
        self.primed.store(0, Ordering::Relaxed);
        self.state.store(RUNNING, Ordering::Release);
    }

    pub(crate) fn end(&self) -> Lsn {
        Lsn(self.end.load(Ordering::Acquire))
    }

    /// The end with its chain; for the one with the writer lock only.
    pub(crate) fn tail(&self) -> Option<Position> {
        let lsn = self.end();
        let tail = self
            .tails
            .iter()
            .find(|tail| tail.lsn.load(Ordering::Acquire) == lsn.0)?;
        Some(Position {
            lsn,
            chain: tail.chain.load(Ordering::Acquire),
        })
    }

    /// The end before the last record, if one has been appended; for the one with the writer lock only.
    pub(crate) fn before_last(&self) -> Option<Position> {
        let end = self.end();
        let is_other = |tail: &&Tail| {
            let lsn = tail.lsn.load(Ordering::Acquire);
            lsn != end.0 && lsn != u64::MAX
        };
        let tail = self.tails.iter().find(is_other)?;
        Some(Position {
            lsn: Lsn(tail.lsn.load(Ordering::Acquire)),
            chain: tail.chain.load(Ordering::Acquire),
        })
    }

    /// Moves the end behind a record that is completely written; for the one with the writer lock only.
    pub(crate) fn advance(&self, to: Position) {
        let now = self.end.load(Ordering::Relaxed);
        let [first, second] = &self.tails;
        let free = match first.lsn.load(Ordering::Relaxed) == now {
            true => second,
            false => first,
        };
        // The LSN goes last: until then the slot matches no end.
        free.lsn.store(u64::MAX, Ordering::Release);
        free.chain.store(to.chain, Ordering::Release);
        free.lsn.store(to.lsn.0, Ordering::Release);
        self.end.store(to.lsn.0, Ordering::Release);
    }

    /// Moves the end to a place where nothing is, from one that everything before is durable to; for the one with the
    /// writer lock, and with `writing`. The one that dies at this leaves an end that is not behind `written`, and
    /// nothing said to be durable that is not.
    pub(crate) fn skip_to(&self, to: Position) {
        self.set_primed(false);
        self.set_written(to.lsn);
        self.advance(to);
        self.durable.fetch_max(to.lsn.0, Ordering::SeqCst);
        self.raise_floor(to.lsn);
    }

    pub(crate) fn durable(&self) -> Lsn {
        Lsn(self.durable.load(Ordering::Acquire))
    }

    /// Whether a process of this number may be writing to the files of the log; see
    /// [`Wal::share_buffer`](crate::Wal::share_buffer).
    pub fn is_writer(&self, process: u16) -> bool {
        [&self.writing, &self.making]
            .iter()
            .any(|lock| lock.owner() == Some(process))
    }

    /// Whether everything that was appended is in the files; if it is not, and all users are dead, see
    /// [`Wal::salvage`](crate::Wal::salvage).
    pub fn is_written(&self) -> bool {
        self.written() >= self.end()
    }

    /// Everything before it has been handed to the system.
    pub(crate) fn written(&self) -> Lsn {
        Lsn(self.written.load(Ordering::Acquire))
    }

    /// For the holder of `writing`.
    pub(crate) fn set_written(&self, to: Lsn) {
        self.written.store(to.0, Ordering::Release);
    }

    pub(crate) fn is_primed(&self) -> bool {
        self.primed.load(Ordering::Acquire) != 0
    }

    pub(crate) fn set_primed(&self, is_primed: bool) {
        self.primed.store(u32::from(is_primed), Ordering::Release);
    }

    /// Says that everything before `to` is durable, and how that came about.
    pub(crate) fn made_durable(&self, to: Lsn) {
        self.syncs.fetch_add(1, Ordering::Relaxed);
        self.durable.fetch_max(to.0, Ordering::SeqCst);
    }

    pub(crate) fn syncs(&self) -> u64 {
        self.syncs.load(Ordering::Relaxed)
    }

    pub(crate) fn floor(&self) -> Lsn {
        Lsn(self.floor.load(Ordering::Acquire))
    }

    pub(crate) fn raise_floor(&self, to: Lsn) {
        self.floor.fetch_max(to.0, Ordering::AcqRel);
    }
}

impl AsRef<Shared> for Shared {
    fn as_ref(&self) -> &Shared {
        self
    }
}
