//! The memory for what a connection receives: none that is shared for short requests that come one at a time, and for
//! others as much as has arrived; see [`memory`](crate::memory).

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use sapwood_directory::engine::Engine;
use tokio::time::{Instant, Sleep, sleep_until};

use crate::memory::{
    INPUT_BYTES, INPUT_FREE_BYTES, MEDIUM_BYTES_MAX, Pool, Receiving, RequestPools, Share, Wait,
};
use crate::session::Session;

/// A wait for a share, if there is one. Meanwhile peers that are too slow are closed.
pub(crate) struct Waiting {
    wait: Option<Wait>,
    /// When it looks again for a peer that is too slow.
    way: Pin<Box<Sleep>>,
}

impl Waiting {
    /// For nothing so far.
    pub(crate) fn new() -> Self {
        Self {
            wait: None,
            way: Box::pin(sleep_until(Instant::now())),
        }
    }

    /// Waits for a share; the wait keeps its place until it is over.
    pub(crate) fn poll(
        &mut self,
        pool: &Pool,
        begin: impl FnOnce() -> Wait,
        cx: &mut Context<'_>,
    ) -> Poll<Share> {
        let wait = match &mut self.wait {
            Some(wait) => wait,
            none => {
                self.way.as_mut().reset(Instant::now());
                none.insert(begin())
            }
        };
        if let Poll::Ready(share) = wait.poll(cx) {
            self.wait = None;
            return Poll::Ready(share);
        }
        while self.way.as_mut().poll(cx).is_ready() {
            let next = pool.make_way(std::time::Instant::now());
            self.way.as_mut().reset(Instant::from_std(next));
        }
        Poll::Pending
    }

    fn is_there(&self) -> bool {
        self.wait.is_some()
    }

    fn end(&mut self) {
        self.wait = None;
    }
}

/// What a connection's input holds of the shared memory.
pub(crate) struct InputMemory {
    share: Share,
    /// The request that is arriving, while it holds shared memory.
    receiving: Option<Receiving>,
    waiting: Waiting,
    /// The last that was read did not fit into what is free of shares.
    is_long: bool,
}

impl InputMemory {
    pub(crate) fn new() -> Self {
        Self {
            share: Share::default(),
            receiving: None,
            waiting: Waiting::new(),
            is_long: false,
        }
    }

    /// The bytes of input that there is memory for, if there is any to read into.
    #[inline]
    pub(crate) fn poll_room<E: Engine>(
        &mut self,
        pools: &RequestPools,
        session: &mut Session<E>,
        cx: &mut Context<'_>,
    ) -> Option<usize> {
        let needed = session.input_needed();
        if needed > INPUT_BYTES && session.input().len() >= INPUT_BYTES {
            return if needed > MEDIUM_BYTES_MAX {
                self.poll_long(&pools.long, needed, session, cx)
            } else {
                self.poll_medium(&pools.medium, needed, session, cx)
            };
        }
        if self.share.bytes() > 0 {
            if pools.buffers.owns(&self.share) {
                return Some(INPUT_BYTES);
            }
            // That was a longer one, or came before a bind.
            session.input().shrink_to(INPUT_BYTES);
            self.receiving = None;
            self.share = Share::default();
        }
        if !self.waiting.is_there() {
            // Requests that come one at a time are short.
            if !self.is_long && session.fits_free_input() {
                return Some(INPUT_FREE_BYTES);
            }
            if let Some(share) = pools.buffers.try_take(session.claimant(), INPUT_BYTES) {
                self.share = share;
                return Some(INPUT_BYTES);
            }
            if session.fits_free_input() {
                return Some(INPUT_FREE_BYTES);
            }
        }
        let begin = || pools.buffers.wait(session.claimant(), INPUT_BYTES);
        let Poll::Ready(share) = self.waiting.poll(&pools.buffers, begin, cx) else {
            return None;
        };
        self.share = share;
        Some(INPUT_BYTES)
    }

    /// The bytes of input that there is memory for without a wait, while what comes cannot be taken.
    pub(crate) fn room_to_watch<E: Engine>(
        &mut self,
        pools: &RequestPools,
        session: &mut Session<E>,
    ) -> Option<usize> {
        let behind_first = session.first_bytes() + INPUT_FREE_BYTES;
        if self.share.bytes() == 0 && !self.waiting.is_there() && !session.fits_free_input() {
            let share = pools.buffers.try_take(session.claimant(), INPUT_BYTES);
            self.share = share.unwrap_or_default();
        }
        let room = match pools.buffers.owns(&self.share) && self.share.bytes() > 0 {
            true => INPUT_BYTES.max(behind_first),
            false => behind_first,
        };
        (session.input().len() < room).then_some(room)
    }

    /// A request that has its memory as a whole.
    fn poll_medium<E: Engine>(
        &mut self,
        pool: &Pool,
        needed: usize,
        session: &Session<E>,
        cx: &mut Context<'_>,
    ) -> Option<usize> {
        if !pool.owns(&self.share) {
            let begin = || pool.wait(session.claimant(), needed);
            let Poll::Ready(share) = self.waiting.poll(pool, begin, cx) else {
                return None;
            };
            self.share = share;
            self.receiving = self.share.receive();
        }
        Some(needed)
    }

    /// A request that grows.
    fn poll_long<E: Engine>(
        &mut self,
        pool: &Pool,
        needed: usize,
        session: &mut Session<E>,
        cx: &mut Context<'_>,
    ) -> Option<usize> {
        let arrived = session.input().len();
        let held = if pool.owns(&self.share) {
            self.share.bytes()
        } else {
            0
        };
        // One that is longer than the whole pool counts as that.
        let room = |held| {
            if pool.is_whole(held, needed) {
                needed
            } else {
                held
            }
        };
        if arrived < room(held) {
            return Some(room(held));
        }
        let receiving = &mut self.receiving;
        let begin = || {
            if !matches!(receiving, Some(known) if known.is_in(pool)) {
                *receiving = None;
            }
            let receiving = receiving.get_or_insert_with(|| pool.receive(0, needed));
            receiving.awaits_peer(false);
            receiving.grow(session.claimant(), pool.grown(arrived), held)
        };
        let Poll::Ready(share) = self.waiting.poll(pool, begin, cx) else {
            return None;
        };
        if held > 0 {
            self.share.add(share);
        } else {
            self.share = share;
        }
        if let Some(receiving) = &self.receiving {
            receiving.awaits_peer(true);
        }
        Some(room(self.share.bytes()))
    }

    /// Notes that bytes have come, which make so many with those before them.
    pub(crate) fn came(&mut self, count: usize, input_bytes: usize) {
        self.is_long = input_bytes >= INPUT_FREE_BYTES;
        if let Some(receiving) = &self.receiving {
            receiving.arrived(count);
        }
    }

    /// The connection waits, and keeps more input than is free of shares.
    pub(crate) fn keep(&mut self, wants_input: bool) {
        let awaits_peer = wants_input && !self.waiting.is_there();
        match &self.receiving {
            Some(receiving) => receiving.awaits_peer(awaits_peer),
            None if awaits_peer => self.receiving = self.share.receive(),
            None => {}
        }
    }

    /// Gives back what it holds.
    pub(crate) fn give_back(&mut self) {
        self.receiving = None;
        self.share = Share::default();
    }

    /// Gives back what it holds, and waits for no more.
    pub(crate) fn end(&mut self) {
        self.waiting.end();
        self.give_back();
    }

    /// Whether the peer is too slow for others that wait. It is not while something of it `has_unread`: that it is late
    /// was found out by another thread, and ours may have been too busy to read.
    pub(crate) fn is_evicted(
        &self,
        cx: &mut Context<'_>,
        has_unread: impl FnOnce() -> bool,
    ) -> bool {
        let Some(receiving) = &self.receiving else {
            return false;
        };
        let is_evicted = receiving.is_evicted(cx);
        if is_evicted && has_unread() {
            receiving.stays();
            return false;
        }
        is_evicted
    }
}
