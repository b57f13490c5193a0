//! The memory that all connections share for what they receive, work on and send.
//!
//! An idle connection holds next to nothing: [`INPUT_FREE_BYTES`] of a request and [`OUTPUT_FREE_BYTES`] of answers.
//! For more it needs a [`Share`] of a [`Pool`]. A request passes through the pools in this order:
//!
//! 1. `buffers`: [`INPUT_BYTES`] to read into;
//! 2. `medium`: the whole of a request that did not fit into the buffer, or `long`: of a request of more than
//!    [`MEDIUM_BYTES_MAX`], the part that has arrived;
//! 3. `updates` and `searches`: requests that are being worked on, and `transactions`: updates that wait for the end of
//!    their transaction, which never wait for memory;
//! 4. `answers`: answers that wait to be written.
//!
//! Persistent searches have a pool of their own, `persistent`, since they may hold their shares for ever. Nobody waits
//! for it.
//!
//! `handshakes` is for TLS handshakes of more than
//! [`HANDSHAKE_FREE_BYTES`](crate::handshake_memory::HANDSHAKE_FREE_BYTES). Their connections hold nothing else yet.
//!
//! The pools of requests (1 and 2) exist twice, for bound and for anonymous connections. So anonymous clients cannot
//! make bound ones wait.
//!
//! # Shares are fair
//!
//! A share is charged to the accounts of its holder's address and identity ([`accounts`](crate::accounts)). A claimant
//! gets a share if it then holds at most [`FAIR_MULTIPLE`] times the bytes that are left. So a single claimant can have
//! all but an eighth; `n` claimants that take as much as they can have seven parts of `7n + 1` each; and something is
//! always left for a newcomer. The pool `long`, seven eighths of `input_bytes_max`, has no such bound: while one
//! request has all of it, others use `medium`, the last eighth, and a slow sender gives way. The waiter that holds
//! least is served next.
//!
//! # Every wait ends
//!
//! The holder of a share may wait for a share of a later pool, never of an earlier one. Within one pool:
//!
//! - A waiter for a whole share holds nothing of the pool. One waiter at a time *gathers* the bytes that others return,
//!   but leaves an eighth of the pool for small shares. It needs at most seven eighths, so it has enough as soon as the
//!   shares that were there before it have ended.
//! - A request in `long` *grows* as its bytes arrive, and keeps its bytes while it waits for more. It may grow only if
//!   afterwards all growing requests can still be completed in some order, each with the bytes that are left and those
//!   that the requests before it have returned. So at least one of them waits only for its peer, not for memory.
//!
//! The holder of a share of the last pool waits only for its peer. While others wait for memory, slow peers are closed:
//! the sender of a request when it is [overdue](ARRIVAL_BYTES_PER_SECOND), the longest overdue first, and a reader of
//! answers after `stalled_seconds_max`.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use crate::accounts::{Claimant, Holdings, Kind};
use crate::config::Limits;

/// Bytes of one read, and of the burst that is decoded together: some two hundred requests. Larger reads save no
/// processor time.
pub(crate) const INPUT_BYTES: usize = 16 << 10;
/// Bytes of a request that a connection may hold without a share.
pub(crate) const INPUT_FREE_BYTES: usize = 1 << 10;
/// Bytes of answers that a connection may hold without a share.
pub(crate) const OUTPUT_FREE_BYTES: usize = 4 << 10;
/// Bytes of a request that a peer must send each second while others wait for memory. Slower peers give way.
pub(crate) const ARRIVAL_BYTES_PER_SECOND: usize = 64 << 10;
/// How far a peer may fall behind this rate.
const ARRIVAL_GRACE: Duration = Duration::from_secs(1);
/// The least time between two peers that are closed for a waiter.
const GIVING_WAY: Duration = Duration::from_millis(20);
/// The most buffers of [`INPUT_BYTES`] that waiting connections hold at once. Other connections read smaller pieces.
const BUFFERS_MAX: usize = 64;
/// The divisor of `input_bytes_max` that gives the memory for requests of anonymous connections.
const ANONYMOUS_PART: usize = 4;
/// Bytes of searches under way, besides one small search that each connection may have: of four with the largest
/// filters.
const SEARCHES_BYTES_MAX: usize = 32 << 20;
/// Bytes of persistent searches: of some five hundred with short filters.
const PERSISTENT_BYTES_MAX: usize = 16 << 20;
/// Bytes of long TLS handshakes under way, of 32 KiB each.
const HANDSHAKES_BYTES_MAX: usize = 2 << 20;
/// A claimant may hold this many times the bytes that are left in a pool.
const FAIR_MULTIPLE: usize = 7;
/// The divisor of a pool's bytes that gives what a single claimant leaves. With less than that, a pool is short.
const LEFT_PART: usize = FAIR_MULTIPLE + 1;
/// Bytes of the longest request in `medium`.
pub(crate) const MEDIUM_BYTES_MAX: usize = 64 << 10;
/// The divisor of `long` that gives the most bytes by which a request grows at once.
const GROWTH_PART: usize = 16;

/// The pools; see the [module](self).
#[derive(Debug)]
pub(crate) struct Memory {
    anonymous_requests: RequestPools,
    bound_requests: RequestPools,
    pub(crate) updates: Pool,
    pub(crate) transactions: Pool,
    pub(crate) searches: Pool,
    pub(crate) persistent: Pool,
    pub(crate) answers: Pool,
    pub(crate) handshakes: Pool,
}

/// The pools of requests that are being received.
#[derive(Debug)]
pub(crate) struct RequestPools {
    pub(crate) buffers: Pool,
    pub(crate) medium: Pool,
    pub(crate) long: Pool,
}

impl Memory {
    pub(crate) fn new(limits: &Limits) -> Self {
        let anonymous = limits.input_bytes_max / ANONYMOUS_PART;
        let anonymous = anonymous.max(limits.message_bytes_max_anonymous);
        let requests = |buffers, medium, long, bytes| RequestPools {
            buffers: Pool::new(buffers, BUFFERS_MAX * INPUT_BYTES),
            medium: Pool::new(medium, bytes / LEFT_PART),
            long: Pool::new(long, bytes / LEFT_PART * FAIR_MULTIPLE),
        };
        Self {
            anonymous_requests: requests(
                Kind::AnonymousBuffers,
                Kind::AnonymousMedium,
                Kind::AnonymousLong,
                anonymous,
            ),
            bound_requests: requests(
                Kind::BoundBuffers,
                Kind::BoundMedium,
                Kind::BoundLong,
                limits.input_bytes_max,
            ),
            updates: Pool::new(Kind::Updates, limits.update_queue_bytes_max),
            transactions: Pool::new(Kind::Transactions, limits.open_transactions_bytes_max),
            searches: Pool::new(Kind::Searches, SEARCHES_BYTES_MAX),
            persistent: Pool::new(Kind::Persistent, PERSISTENT_BYTES_MAX),
            answers: Pool::new(Kind::Answers, limits.answers_bytes_max),
            handshakes: Pool::new(Kind::Handshakes, HANDSHAKES_BYTES_MAX),
        }
    }

    /// The pools for the requests of a connection.
    pub(crate) fn requests(&self, is_anonymous: bool) -> &RequestPools {
        if is_anonymous {
            &self.anonymous_requests
        } else {
            &self.bound_requests
        }
    }
}

/// A number of bytes that connections share.
#[derive(Clone, Debug)]
pub(crate) struct Pool(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    kind: Kind,
    bytes: usize,
    free: AtomicUsize,
    /// How many wait. Bytes are returned without the queue's lock if nobody does.
    waiting: AtomicUsize,
    queue: Mutex<Queue>,
}

/// Waiters and receivers, at most one of each for every connection.
#[derive(Debug, Default)]
struct Queue {
    waiters: Vec<Waiter>,
    receivers: Vec<Receiver>,
    /// The last number that was given out.
    next: u64,
}

#[derive(Debug)]
struct Waiter {
    number: u64,
    claimant: Arc<Claimant>,
    bytes: usize,
    /// How many of these it has gathered.
    gathered: usize,
    /// The number of the receiver, if the bytes are for a request that grows.
    receiver: Option<u64>,
    waker: Option<Waker>,
}

impl Waiter {
    fn is_served(&self) -> bool {
        self.gathered == self.bytes
    }
}

/// A request that is arriving.
#[derive(Debug)]
struct Receiver {
    number: u64,
    held: usize,
    /// Bytes that it will hold when it is complete; those of `held` if it does not grow.
    whole: usize,
    /// When the peer is overdue. `None` while the server, not the peer, is to act.
    due: Option<Instant>,
    is_evicted: bool,
    waker: Option<Waker>,
}

impl Queue {
    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    fn receiver(&mut self, number: u64) -> Option<&mut Receiver> {
        self.receivers
            .iter_mut()
            .find(|receiver| receiver.number == number)
    }
}

impl Pool {
    fn new(kind: Kind, bytes: usize) -> Self {
        Self(Arc::new(Shared {
            kind,
            bytes,
            free: AtomicUsize::new(bytes),
            waiting: AtomicUsize::new(0),
            queue: Mutex::default(),
        }))
    }

    /// The largest share.
    fn most(&self) -> usize {
        self.0.bytes / LEFT_PART * FAIR_MULTIPLE
    }

    /// How many bytes a request that holds `bytes` grows to.
    pub(crate) fn grown(&self, bytes: usize) -> usize {
        let most = (self.0.bytes / GROWTH_PART).max(INPUT_BYTES);
        bytes + bytes.clamp(INPUT_BYTES, most)
    }

    fn share(&self, claimant: &Arc<Claimant>, bytes: usize) -> Share {
        Share(Some(Held {
            pool: self.clone(),
            claimant: Arc::clone(claimant),
            bytes,
        }))
    }

    /// Takes a share if it is there at once. One that is too large is cut to the largest share.
    pub(crate) fn try_take(&self, claimant: &Arc<Claimant>, bytes: usize) -> Option<Share> {
        self.try_take_above(claimant, bytes.min(self.most()), 0)
    }

    /// Takes a share for something optional: half of the pool stays for what is needed.
    pub(crate) fn try_take_extra(&self, claimant: &Arc<Claimant>, bytes: usize) -> Option<Share> {
        self.try_take_above(claimant, bytes, self.0.bytes / 2)
    }

    fn try_take_above(&self, claimant: &Arc<Claimant>, bytes: usize, kept: usize) -> Option<Share> {
        self.0
            .reserve(claimant, bytes, kept)
            .then(|| self.share(claimant, bytes))
    }

    /// Waits for a share. One that is too large is cut to the largest share.
    pub(crate) fn wait(&self, claimant: &Arc<Claimant>, bytes: usize) -> Wait {
        self.queue_up(claimant, bytes.min(self.most()), None)
    }

    fn queue_up(&self, claimant: &Arc<Claimant>, bytes: usize, receiver: Option<u64>) -> Wait {
        let mut queue = self.0.queue();
        let number = queue.number();
        queue.waiters.push(Waiter {
            number,
            claimant: Arc::clone(claimant),
            bytes,
            gathered: 0,
            receiver,
            waker: None,
        });
        self.0.waiting.fetch_add(1, Ordering::SeqCst);
        self.0.serve(&mut queue);
        Wait {
            pool: self.clone(),
            number,
        }
    }

    /// Whether a share of `held` bytes is what a claimant gets that asks for `wanted`.
    pub(crate) fn suffices(&self, held: usize, wanted: usize) -> bool {
        held >= wanted.min(self.most())
    }

    /// Whether a request that has grown to `held` bytes needs no more, or can get no more, for `wanted`.
    pub(crate) fn is_whole(&self, held: usize, wanted: usize) -> bool {
        held >= wanted.min(self.0.bytes)
    }

    /// Whether a share is of this pool.
    pub(crate) fn owns(&self, share: &Share) -> bool {
        let held = share.0.as_ref();
        held.is_some_and(|held| Arc::ptr_eq(&held.pool.0, &self.0))
    }

    /// Whether others wait, or soon will.
    pub(crate) fn is_short(&self) -> bool {
        self.0.free.load(Ordering::Relaxed) < self.0.bytes / LEFT_PART || self.has_waiters()
    }

    fn has_waiters(&self) -> bool {
        self.0.waiting.load(Ordering::SeqCst) > 0
    }

    /// Registers a request of `whole` bytes that is arriving and holds `held` bytes of this pool.
    pub(crate) fn receive(&self, held: usize, whole: usize) -> Receiving {
        let mut queue = self.0.queue();
        let number = queue.number();
        queue.receivers.push(Receiver {
            number,
            held,
            whole: whole.min(self.0.bytes),
            due: Some(Instant::now() + ARRIVAL_GRACE),
            is_evicted: false,
            waker: None,
        });
        Receiving {
            pool: self.clone(),
            number,
        }
    }

    /// Evicts the peer that is overdue for the longest, if anybody waits. Returns when to look again.
    pub(crate) fn make_way(&self, now: Instant) -> Instant {
        let mut queue = self.0.queue();
        let waits = queue.waiters.iter().any(|waiter| !waiter.is_served());
        let arriving = queue
            .receivers
            .iter_mut()
            .filter(|receiver| !receiver.is_evicted && receiver.held > 0);
        let next = arriving
            .filter_map(|receiver| Some((receiver.due?, receiver)))
            .min_by_key(|(due, _)| *due);
        match next {
            Some((due, receiver)) if waits && due <= now => {
                receiver.is_evicted = true;
                if let Some(waker) = receiver.waker.take() {
                    waker.wake();
                }
                now + GIVING_WAY
            }
            Some((due, _)) => due.max(now + GIVING_WAY),
            None => now + ARRIVAL_GRACE,
        }
    }

    #[cfg(test)]
    pub(crate) fn free_bytes(&self) -> usize {
        self.0.free.load(Ordering::Relaxed)
    }
}

impl Shared {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes bytes for a claimant if that is fair and leaves `kept`.
    fn reserve(&self, claimant: &Claimant, bytes: usize, kept: usize) -> bool {
        let held = claimant.held(self.kind) + bytes;
        let taken = self
            .free
            .fetch_update(Ordering::SeqCst, Ordering::Relaxed, |free| {
                let left = free.checked_sub(bytes)?;
                let is_fair = held <= FAIR_MULTIPLE * left.checked_sub(kept)?;
                is_fair.then_some(left)
            });
        if taken.is_ok() {
            claimant.add(self.kind, bytes);
        }
        taken.is_ok()
    }

    /// Takes bytes for a request that may grow.
    fn reserve_growth(&self, claimant: &Claimant, bytes: usize) -> bool {
        let take = |free: usize| free.checked_sub(bytes);
        let taken = self
            .free
            .fetch_update(Ordering::SeqCst, Ordering::Relaxed, take);
        if taken.is_ok() {
            claimant.add(self.kind, bytes);
        }
        taken.is_ok()
    }

    /// Takes up to `bytes` for a claimant, fair or not, as far as `kept` are left. Returns how many.
    fn gather(&self, claimant: &Claimant, bytes: usize, kept: usize) -> usize {
        let mut gathered = 0;
        let _ = self
            .free
            .fetch_update(Ordering::SeqCst, Ordering::Relaxed, |free| {
                gathered = free.saturating_sub(kept).min(bytes);
                Some(free - gathered)
            });
        claimant.add(self.kind, gathered);
        gathered
    }

    fn give_back(&self, claimant: &Claimant, bytes: usize) {
        claimant.remove(self.kind, bytes);
        self.free.fetch_add(bytes, Ordering::SeqCst);
        if self.waiting.load(Ordering::SeqCst) > 0 {
            self.serve(&mut self.queue());
        }
    }

    /// Serves all waiters that can be served, the one that holds least first.
    fn serve(&self, queue: &mut Queue) {
        let kept = self.bytes / LEFT_PART;
        loop {
            let waiting = (0..queue.waiters.len()).filter(|at| !queue.waiters[*at].is_served());
            let mut order: Vec<(Holdings, usize)> = waiting
                .map(|at| (queue.waiters[at].claimant.holdings(self.kind), at))
                .collect();
            order.sort_unstable();
            // Only one waiter gathers: the one that has begun.
            let gathering = |(_, at): &(Holdings, usize)| queue.waiters[*at].gathered > 0;
            let mut gatherer = order.iter().find(|one| gathering(one)).map(|(_, at)| *at);
            let mut served = None;
            for (_, at) in order {
                let waiter = &queue.waiters[at];
                let bytes = waiter.bytes - waiter.gathered;
                if let Some(receiver) = waiter.receiver {
                    if self.free.load(Ordering::SeqCst) >= bytes
                        && self.all_can_end(queue, receiver, bytes)
                        && self.reserve_growth(&waiter.claimant, bytes)
                    {
                        served = Some((at, bytes));
                        break;
                    }
                    continue;
                }
                if self.reserve(&waiter.claimant, bytes, 0) {
                    served = Some((at, bytes));
                    break;
                }
                if *gatherer.get_or_insert(at) == at {
                    let gathered = self.gather(&waiter.claimant, bytes, kept);
                    if gathered > 0 {
                        served = Some((at, gathered));
                        break;
                    }
                }
            }
            let Some((at, bytes)) = served else { return };
            let waiter = &mut queue.waiters[at];
            waiter.gathered += bytes;
            if waiter.is_served() {
                self.waiting.fetch_sub(1, Ordering::SeqCst);
                let (receiver, bytes) = (waiter.receiver, waiter.bytes);
                if let Some(waker) = waiter.waker.take() {
                    waker.wake();
                }
                if let Some(receiver) = receiver.and_then(|number| queue.receiver(number)) {
                    receiver.held += bytes;
                }
            }
        }
    }

    /// Whether all growing requests could still be completed if request `number` grew by `bytes` now.
    fn all_can_end(&self, queue: &Queue, number: u64, bytes: usize) -> bool {
        let growth = |receiver: &Receiver| {
            let more = if receiver.number == number { bytes } else { 0 };
            let held = receiver.held + more;
            (receiver.whole.saturating_sub(held), held)
        };
        let mut growing: Vec<(usize, usize)> = queue.receivers.iter().map(growth).collect();
        growing.sort_unstable();
        let held: usize = growing.iter().map(|(_, held)| held).sum();
        let Some(mut left) = self.bytes.checked_sub(held) else {
            return false;
        };
        growing.into_iter().all(|(missing, held)| {
            let can_end = missing <= left;
            left += held;
            can_end
        })
    }
}

/// A place in the queue for a share. Dropping it gives the place up.
#[derive(Debug)]
pub(crate) struct Wait {
    pool: Pool,
    number: u64,
}

impl Wait {
    /// The share, as soon as it is there. Do not call it again then.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Share> {
        let mut queue = self.pool.0.queue();
        let found = queue
            .waiters
            .iter()
            .position(|waiter| waiter.number == self.number);
        let Some(at) = found else {
            return Poll::Pending;
        };
        if !queue.waiters[at].is_served() {
            queue.waiters[at].waker = Some(cx.waker().clone());
            return Poll::Pending;
        }
        let waiter = queue.waiters.swap_remove(at);
        Poll::Ready(self.pool.share(&waiter.claimant, waiter.bytes))
    }
}

impl Drop for Wait {
    fn drop(&mut self) {
        let shared = &self.pool.0;
        let mut queue = shared.queue();
        let found = queue
            .waiters
            .iter()
            .position(|waiter| waiter.number == self.number);
        let Some(at) = found else { return };
        let waiter = queue.waiters.swap_remove(at);
        if !waiter.is_served() {
            shared.waiting.fetch_sub(1, Ordering::SeqCst);
        } else if let Some(receiver) = waiter.receiver.and_then(|number| queue.receiver(number)) {
            receiver.held -= waiter.bytes;
        }
        drop(queue);
        shared.give_back(&waiter.claimant, waiter.gathered);
    }
}

/// The registration of an arriving request with the pool whose memory it holds.
#[derive(Debug)]
pub(crate) struct Receiving {
    pool: Pool,
    number: u64,
}

impl Receiving {
    /// Waits until the request, which holds `held` bytes, can hold `bytes`, or all that it needs if that is less.
    pub(crate) fn grow(&self, claimant: &Arc<Claimant>, bytes: usize, held: usize) -> Wait {
        let mut queue = self.pool.0.queue();
        let whole = queue
            .receiver(self.number)
            .map_or(bytes, |receiver| receiver.whole);
        drop(queue);
        let missing = bytes.min(whole) - held;
        self.pool.queue_up(claimant, missing, Some(self.number))
    }

    /// Notes that `bytes` have arrived, which moves the peer's deadline.
    pub(crate) fn arrived(&self, bytes: usize) {
        let nanos = bytes as u64 * 1_000_000_000 / ARRIVAL_BYTES_PER_SECOND as u64;
        let latest = Instant::now() + ARRIVAL_GRACE;
        if let Some(receiver) = self.pool.0.queue().receiver(self.number) {
            let due = receiver.due.map(|due| due + Duration::from_nanos(nanos));
            receiver.due = Some(due.map_or(latest, |due| due.min(latest)));
        }
    }

    /// Says whether the server waits for the peer, whose deadline runs only then.
    pub(crate) fn awaits_peer(&self, awaits: bool) {
        if let Some(receiver) = self.pool.0.queue().receiver(self.number) {
            if !awaits {
                receiver.due = None;
            } else if receiver.due.is_none() {
                receiver.due = Some(Instant::now() + ARRIVAL_GRACE);
            }
        }
    }

    /// Whether the peer was evicted because it is too slow. Wakes the task of `cx` when it is.
    pub(crate) fn is_evicted(&self, cx: &mut Context<'_>) -> bool {
        let mut queue = self.pool.0.queue();
        let Some(receiver) = queue.receiver(self.number) else {
            return false;
        };
        receiver.waker = Some(cx.waker().clone());
        receiver.is_evicted
    }

    /// Withdraws the eviction, until the peer is found too slow again.
    pub(crate) fn stays(&self) {
        if let Some(receiver) = self.pool.0.queue().receiver(self.number) {
            receiver.is_evicted = false;
        }
    }

    /// Whether it is registered with this pool.
    pub(crate) fn is_in(&self, pool: &Pool) -> bool {
        Arc::ptr_eq(&self.pool.0, &pool.0)
    }
}

impl Drop for Receiving {
    fn drop(&mut self) {
        let shared = &self.pool.0;
        let mut queue = shared.queue();
        queue
            .receivers
            .retain(|receiver| receiver.number != self.number);
        // Others may grow now.
        if shared.waiting.load(Ordering::SeqCst) > 0 {
            shared.serve(&mut queue);
        }
    }
}

/// Memory for the answers to updates with read controls, which are as long as the entries that they show. The writer
/// takes it without waiting: the updates of others would wait, too.
#[derive(Clone, Debug)]
pub(crate) struct AnswerRoom {
    pub(crate) answers: Pool,
    pub(crate) claimant: Arc<Claimant>,
}

/// A part of a [`Pool`], given back when dropped.
#[derive(Debug, Default)]
pub(crate) struct Share(Option<Held>);

#[derive(Debug)]
struct Held {
    pool: Pool,
    claimant: Arc<Claimant>,
    bytes: usize,
}

impl Drop for Held {
    fn drop(&mut self) {
        if self.bytes > 0 {
            self.pool.0.give_back(&self.claimant, self.bytes);
        }
    }
}

impl Share {
    /// Registers a request that is arriving and holds all the memory that it needs.
    pub(crate) fn receive(&self) -> Option<Receiving> {
        let held = self.0.as_ref()?;
        Some(held.pool.receive(held.bytes, held.bytes))
    }

    pub(crate) fn bytes(&self) -> usize {
        self.0.as_ref().map_or(0, |held| held.bytes)
    }

    /// Joins two shares of one pool.
    pub(crate) fn add(&mut self, mut more: Self) {
        match (&mut self.0, &mut more.0) {
            (Some(own), Some(more)) => {
                if !Arc::ptr_eq(&own.claimant, &more.claimant) {
                    // Another identity is bound now. It is charged from now on.
                    own.claimant.remove(own.pool.0.kind, own.bytes);
                    more.claimant.add(own.pool.0.kind, own.bytes);
                    own.claimant = Arc::clone(&more.claimant);
                }
                own.bytes += std::mem::take(&mut more.bytes);
            }
            (Some(_), None) => {}
            (None, _) => *self = more,
        }
    }

    /// Returns all but `bytes`.
    pub(crate) fn shrink_to(&mut self, bytes: usize) {
        let surplus = self.bytes().saturating_sub(bytes);
        if surplus == 0 {
            return;
        }
        if bytes == 0 {
            self.0 = None;
        } else if let Some(own) = &mut self.0 {
            own.bytes -= surplus;
            own.pool.0.give_back(&own.claimant, surplus);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::accounts::Accounts;
    use crate::peer::Peer;

    const KIND: Kind = Kind::BoundLong;

    /// Claimants of different addresses.
    fn claimants<const COUNT: usize>() -> [Arc<Claimant>; COUNT] {
        let accounts = Arc::new(Accounts::default());
        std::array::from_fn(|uid| {
            accounts.claimant(&Peer::Local {
                uid: u32::try_from(uid).unwrap(),
                gid: 0,
            })
        })
    }

    fn poll(wait: &mut Wait) -> Option<Share> {
        match wait.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(share) => Some(share),
            Poll::Pending => None,
        }
    }

    #[test]
    fn shares_come_and_go() {
        let [one, other] = claimants();
        let pool = Pool::new(KIND, 1000);
        let mut share = pool.try_take(&one, 300).unwrap();
        share.add(pool.try_take(&one, 100).unwrap());
        assert_eq!((share.bytes(), pool.free_bytes()), (400, 600));
        share.shrink_to(150);
        assert_eq!((share.bytes(), pool.free_bytes()), (150, 850));
        assert_eq!(one.held(KIND), 150);
        let mut none = Share::default();
        none.add(pool.try_take(&other, 743).unwrap());
        assert!(pool.is_short());
        share.add(none);
        assert_eq!((one.held(KIND), other.held(KIND)), (0, 893));
        share.shrink_to(0);
        assert_eq!(pool.free_bytes(), 1000);
        assert_eq!(other.held(KIND), 0);
    }

    #[test]
    fn one_alone_may_have_all_but_an_eighth_and_more_is_as_much_as_that() {
        let [one, other] = claimants();
        let pool = Pool::new(KIND, 800);
        let share = pool.try_take(&one, 5000).unwrap();
        assert!(pool.suffices(share.bytes(), 5000));
        assert_eq!(pool.free_bytes(), 100);
        assert!(pool.try_take(&one, 1).is_none());
        assert!(pool.try_take(&other, 80).is_some());
    }

    #[test]
    fn however_many_take_what_they_can_something_is_left_for_who_comes() {
        let claimants: [_; 9] = claimants();
        let pool = Pool::new(KIND, 64_000);
        let (greedy, late) = claimants.split_at(8);
        let mut shares = Vec::new();
        loop {
            let taken = greedy.iter().filter_map(|one| pool.try_take(one, 16));
            let before = shares.len();
            shares.extend(taken);
            if shares.len() == before {
                break;
            }
        }
        assert!(pool.try_take(&late[0], 64_000 / 64 / 2).is_some());
    }

    #[test]
    fn half_is_kept_for_those_who_need_it() {
        let [one] = claimants();
        let pool = Pool::new(KIND, 1000);
        let share = pool.try_take_extra(&one, 300).unwrap();
        assert!(pool.try_take_extra(&one, 300).is_none());
        assert!(pool.try_take(&one, 300).is_some());
        drop(share);
    }

    #[test]
    fn who_holds_least_is_next() {
        let [rich, poor, third] = claimants();
        let pool = Pool::new(KIND, 800);
        let some = pool.try_take(&rich, 300).unwrap();
        let all = pool.try_take(&third, 430).unwrap();
        let mut first = pool.wait(&rich, 280);
        let mut second = pool.wait(&poor, 200);
        assert!(poll(&mut first).is_none() && poll(&mut second).is_none());
        drop(all);
        let poor = poll(&mut second).unwrap();
        assert!(
            poll(&mut first).is_none(),
            "it would have 580, and 20 were left"
        );
        drop(poor);
        assert_eq!(poll(&mut first).unwrap().bytes(), 280);
        drop(some);
        drop(first);
        assert_eq!(pool.free_bytes(), 800);
    }

    #[test]
    fn a_large_share_is_gathered_while_small_ones_come_and_go() {
        let [large, small, other] = claimants();
        let pool = Pool::new(KIND, 800);
        let before = pool.try_take(&other, 400).unwrap();
        let mut wait = pool.wait(&large, 700);
        assert!(poll(&mut wait).is_none());
        let mut shares: Vec<Share> = Vec::new();
        // Those who come meanwhile have an eighth among them.
        for _ in 0..10 {
            shares.push(pool.try_take(&small, 50).unwrap());
            assert!(pool.try_take(&small, 50).is_none());
            shares.pop();
        }
        let late = pool.try_take(&small, 50).unwrap();
        drop(before);
        assert!(poll(&mut wait).is_none());
        drop(late);
        assert_eq!(poll(&mut wait).unwrap().bytes(), 700);
        drop(wait);
        assert_eq!(pool.free_bytes(), 800);
    }

    #[test]
    fn who_gives_up_waiting_gives_back_what_was_gathered() {
        let [large, other] = claimants();
        let pool = Pool::new(KIND, 800);
        let before = pool.try_take(&other, 400).unwrap();
        drop(pool.wait(&large, 700));
        assert_eq!((pool.free_bytes(), large.held(KIND)), (400, 0));
        let wait = pool.wait(&large, 700);
        drop(before);
        drop(wait);
        assert_eq!((pool.free_bytes(), large.held(KIND)), (800, 0));
        assert!(!pool.has_waiters());
    }

    #[test]
    fn requests_that_grow_never_wait_for_each_other_in_a_circle() {
        let claimants: [_; 5] = claimants();
        let pool = Pool::new(KIND, 1000);
        // Each is 400 long and grows by 50, in turns.
        let requests: Vec<_> = claimants.iter().map(|_| pool.receive(0, 400)).collect();
        let mut held: Vec<Share> = claimants.iter().map(|_| Share::default()).collect();
        let mut waits: Vec<Option<Wait>> = claimants.iter().map(|_| None).collect();
        let mut requests: Vec<Option<Receiving>> = requests.into_iter().map(Some).collect();
        let mut rounds = 0;
        while requests.iter().any(Option::is_some) {
            let before: usize = held.iter().map(Share::bytes).sum();
            let mut ended = false;
            for at in 0..claimants.len() {
                let Some(request) = &requests[at] else {
                    continue;
                };
                let wait = waits[at].get_or_insert_with(|| {
                    request.grow(&claimants[at], held[at].bytes() + 50, held[at].bytes())
                });
                if let Some(share) = poll(wait) {
                    held[at].add(share);
                    waits[at] = None;
                }
                if held[at].bytes() == 400 {
                    requests[at] = None;
                    held[at] = Share::default();
                    ended = true;
                }
            }
            let after: usize = held.iter().map(Share::bytes).sum();
            assert!(ended || after > before, "all wait for each other");
            rounds += 1;
        }
        assert!(rounds > 8, "they cannot all grow at once");
        assert_eq!(pool.free_bytes(), 1000);
    }

    #[test]
    fn the_one_that_is_overdue_for_the_longest_gives_way_and_only_to_who_waits() {
        let [slow, fast, other] = claimants();
        let pool = Pool::new(KIND, 1000);
        let grow =
            |request: &Receiving, claimant| poll(&mut request.grow(claimant, 400, 0)).unwrap();
        // Nobody is overdue at `start`, and everybody is at `late`, however slow this machine is.
        let start = Instant::now();
        let (first, second) = (pool.receive(0, 600), pool.receive(0, 600));
        let held = (grow(&first, &slow), grow(&second, &fast));
        let mut context = Context::from_waker(Waker::noop());
        first.arrived(0);
        second.arrived(0);
        let late = Instant::now() + 2 * ARRIVAL_GRACE;
        pool.make_way(late);
        assert!(!first.is_evicted(&mut context), "nobody waits");
        let third = pool.receive(0, 400);
        let mut wait = third.grow(&other, 400, 0);
        assert!(poll(&mut wait).is_none());
        assert!(pool.make_way(start) > start, "nobody is overdue yet");
        assert!(!first.is_evicted(&mut context));
        // It is not its fault.
        first.awaits_peer(false);
        pool.make_way(late);
        assert!(!first.is_evicted(&mut context) && second.is_evicted(&mut context));
        // More of it has come than was read.
        second.stays();
        assert!(!second.is_evicted(&mut context));
        pool.make_way(late);
        assert!(second.is_evicted(&mut context));
        drop((held.1, second));
        assert!(poll(&mut wait).is_some());
    }
}
