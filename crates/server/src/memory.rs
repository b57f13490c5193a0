//! The memory that all connections share for what they receive, work on and send.
//!
//! A connection that waits holds next to nothing: [`INPUT_FREE_BYTES`] of a request and [`OUTPUT_FREE_BYTES`] of
//! answers. Whatever is more is a [`Share`] of a [`Pool`], in the order in which a request goes through them:
//!
//! 1. `buffers`: [`INPUT_BYTES`] for what arrives;
//! 2. `medium`: requests of which that many bytes have arrived, whole, and `long`: those of more than
//!    [`MEDIUM_BYTES_MAX`], as far as they have arrived;
//! 3. `updates` and `searches`: requests that are being worked on, and `transactions`: updates that wait for the end of
//!    theirs, which never wait for memory;
//! 4. `answers`: what waits to be written.
//!
//! Persistent searches have a pool of their own, `persistent`: they may hold what they have for ever. Nobody waits for
//! it.
//!
//! `handshakes` are of connections that have nothing of these: TLS ones of more than
//! [`HANDSHAKE_FREE_BYTES`](crate::handshake_memory::HANDSHAKE_FREE_BYTES).
//!
//! The first two are there twice, so that nobody can keep those who are bound waiting without being bound.
//!
//! # Shares are fair
//!
//! A share is charged to the accounts of its holder's address and identity ([`accounts`](crate::accounts)). A claimant
//! gets one if afterwards it holds at most [`FAIR_MULTIPLE`] times what is left. So one alone may have all but an
//! eighth, `n` of them that take what they can have seven parts of `7n + 1` each, and something is always left for who
//! comes. In `long`, which is seven eighths of `input_bytes_max`, there is no such bound: what others need while one
//! has it all is `medium`, the last eighth, and who is slow gives way. Of those who wait, who holds least is next.
//!
//! # Every wait ends
//!
//! Who holds a share may wait for one of a later pool, never for one of an earlier one. Of one pool:
//!
//! - A share that is wanted as a whole is waited for while none of this pool is held. One waiter at a time *gathers*
//!   what others give back, all but an eighth of the pool, which stays for what is small. As it needs no more than the
//!   other seven eighths, it has enough as soon as those have ended who were there before it.
//! - A request in `long` *grows* with what arrives, and holds what has arrived while it waits for more. It may grow
//!   only if afterwards all that grow could still become complete, in some order, each with what is left and what those
//!   before it have given back. So at least one of them never waits for memory for long, only for its peer.
//!
//! Who holds a share of the last pool waits for its peer alone. A peer that others wait for is closed: one that sends a
//! request, when it is [overdue](ARRIVAL_BYTES_PER_SECOND), the one that has been so for the longest first; one that
//! should read its answers, after `stalled_seconds_max`.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use crate::accounts::{Claimant, Holdings, Kind};
use crate::config::Limits;

/// Bytes that are read at once, and so the burst that is decoded at once: some two hundred requests. Larger reads cost
/// no less processor time.
pub(crate) const INPUT_BYTES: usize = 16 << 10;
/// Bytes of a request that a connection may hold without a share.
pub(crate) const INPUT_FREE_BYTES: usize = 1 << 10;
/// Bytes of answers that a connection may hold without a share.
pub(crate) const OUTPUT_FREE_BYTES: usize = 4 << 10;
/// Bytes of a request that a peer must send in each second while others wait for the memory; slower ones give way.
pub(crate) const ARRIVAL_BYTES_PER_SECOND: usize = 64 << 10;
/// How far behind that a peer may be.
const ARRIVAL_GRACE: Duration = Duration::from_secs(1);
/// Between two peers that are closed for a waiter.
const GIVING_WAY: Duration = Duration::from_millis(20);
/// Buffers of [`INPUT_BYTES`] that are held at once by connections which wait; others read in smaller pieces.
const BUFFERS_MAX: usize = 64;
/// The part of `input_bytes_max` that there is for long requests of anonymous connections.
const ANONYMOUS_PART: usize = 4;
/// Bytes of searches under way, besides one small search that each connection may have: of four with the largest
/// filters.
const SEARCHES_BYTES_MAX: usize = 32 << 20;
/// Bytes of persistent searches: of some five hundred with short filters.
const PERSISTENT_BYTES_MAX: usize = 16 << 20;
/// Bytes of long TLS handshakes under way, of 32 KiB each.
const HANDSHAKES_BYTES_MAX: usize = 2 << 20;
/// So many times what is left of a pool a claimant may hold.
const FAIR_MULTIPLE: usize = 7;
/// What is left of a pool then, if nobody else holds any of it; less is short.
const LEFT_PART: usize = FAIR_MULTIPLE + 1;
/// Bytes of the longest request that has its memory as a whole.
pub(crate) const MEDIUM_BYTES_MAX: usize = 64 << 10;
/// The largest part of `long` that a request grows by at once.
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

/// Where requests are received.
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

    /// Where requests of such a connection are received.
    pub(crate) fn requests(&self, is_anonymous: bool) -> &RequestPools {
        if is_anonymous {
            &self.anonymous_requests
        } else {
            &self.bound_requests
        }
    }
}

/// Bytes to be shared.
#[derive(Clone, Debug)]
pub(crate) struct Pool(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    kind: Kind,
    bytes: usize,
    free: AtomicUsize,
    /// Whether anybody waits, so that who gives back looks into the queue only then.
    waiting: AtomicUsize,
    queue: Mutex<Queue>,
}

/// Who waits, and who receives. Both lists are at most as long as there are connections.
#[derive(Debug, Default)]
struct Queue {
    waiters: Vec<Waiter>,
    receivers: Vec<Receiver>,
    /// The number of the next one.
    next: u64,
}

#[derive(Debug)]
struct Waiter {
    number: u64,
    claimant: Arc<Claimant>,
    bytes: usize,
    /// What it has of them.
    gathered: usize,
    /// The request that is to grow.
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
    /// What it holds when it is complete; the same if it does not grow.
    whole: usize,
    /// When the peer's next bytes must be there if others wait; `None` while it is not the peer's turn.
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

    /// The most that a share can be.
    fn most(&self) -> usize {
        self.0.bytes / LEFT_PART * FAIR_MULTIPLE
    }

    /// What a request of so many bytes, which are its memory now, grows to.
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

    /// Takes a share, unless somebody would have to wait for it. A share of more than one can be is as much as one can
    /// be.
    pub(crate) fn try_take(&self, claimant: &Arc<Claimant>, bytes: usize) -> Option<Share> {
        self.try_take_above(claimant, bytes.min(self.most()), 0)
    }

    /// Takes a share of the half that is not kept for those who cannot do without.
    pub(crate) fn try_take_extra(&self, claimant: &Arc<Claimant>, bytes: usize) -> Option<Share> {
        self.try_take_above(claimant, bytes, self.0.bytes / 2)
    }

    fn try_take_above(&self, claimant: &Arc<Claimant>, bytes: usize, kept: usize) -> Option<Share> {
        self.0
            .reserve(claimant, bytes, kept)
            .then(|| self.share(claimant, bytes))
    }

    /// Waits for a share. A share of more than one can be is as much as one can be.
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

    /// Whether a share of `held` bytes is as much as one of `wanted` can be.
    pub(crate) fn suffices(&self, held: usize, wanted: usize) -> bool {
        held >= wanted.min(self.most())
    }

    /// Whether a request that grew to `held` bytes is as large as one of `wanted` can be.
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

    /// Notes that a request of `whole` bytes, of which `held` have memory here, is arriving.
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

    /// Has the peer close that is overdue for the longest, if anybody waits. When to look again.
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

    /// Takes bytes for a claimant if that is fair, and leaves `kept` of them.
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

    /// Takes bytes for a claimant, fair or not, as many as there are besides `kept` and up to `bytes`.
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

    /// Gives to those who wait what they can have, who holds least first.
    fn serve(&self, queue: &mut Queue) {
        let kept = self.bytes / LEFT_PART;
        loop {
            let waiting = (0..queue.waiters.len()).filter(|at| !queue.waiters[*at].is_served());
            let mut order: Vec<(Holdings, usize)> = waiting
                .map(|at| (queue.waiters[at].claimant.holdings(self.kind), at))
                .collect();
            order.sort_unstable();
            // Who gathers goes on to.
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

    /// Whether all requests that grow could become complete if one of them grew by so many bytes now.
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

/// A place among those who wait for a share; it is given up when dropped.
#[derive(Debug)]
pub(crate) struct Wait {
    pool: Pool,
    number: u64,
}

impl Wait {
    /// The share, when it is there. Not to be called again then.
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

/// A request that is arriving and holds memory, as its pool knows it.
#[derive(Debug)]
pub(crate) struct Receiving {
    pool: Pool,
    number: u64,
}

impl Receiving {
    /// Waits for what is missing of `bytes`, or of the whole request if that is less, besides what is `held`.
    pub(crate) fn grow(&self, claimant: &Arc<Claimant>, bytes: usize, held: usize) -> Wait {
        let mut queue = self.pool.0.queue();
        let whole = queue
            .receiver(self.number)
            .map_or(bytes, |receiver| receiver.whole);
        drop(queue);
        let missing = bytes.min(whole) - held;
        self.pool.queue_up(claimant, missing, Some(self.number))
    }

    /// Notes that so many bytes have come.
    pub(crate) fn arrived(&self, bytes: usize) {
        let nanos = bytes as u64 * 1_000_000_000 / ARRIVAL_BYTES_PER_SECOND as u64;
        let latest = Instant::now() + ARRIVAL_GRACE;
        if let Some(receiver) = self.pool.0.queue().receiver(self.number) {
            let due = receiver.due.map(|due| due + Duration::from_nanos(nanos));
            receiver.due = Some(due.map_or(latest, |due| due.min(latest)));
        }
    }

    /// Says whether it is the peer's turn.
    pub(crate) fn awaits_peer(&self, awaits: bool) {
        if let Some(receiver) = self.pool.0.queue().receiver(self.number) {
            if !awaits {
                receiver.due = None;
            } else if receiver.due.is_none() {
                receiver.due = Some(Instant::now() + ARRIVAL_GRACE);
            }
        }
    }

    /// Whether the peer is too slow for those who wait.
    pub(crate) fn is_evicted(&self, cx: &mut Context<'_>) -> bool {
        let mut queue = self.pool.0.queue();
        let Some(receiver) = queue.receiver(self.number) else {
            return false;
        };
        receiver.waker = Some(cx.waker().clone());
        receiver.is_evicted
    }

    /// Has the peer stay until it is found to be too slow once more.
    pub(crate) fn stays(&self) {
        if let Some(receiver) = self.pool.0.queue().receiver(self.number) {
            receiver.is_evicted = false;
        }
    }

    /// Whether it is in this pool.
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

/// Where somebody's answers get their memory that are as long as what is read for them: those of updates with read
/// controls. They cannot wait for it, for others' updates would wait with them.
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
    /// Notes that a request which has all the memory it needs is arriving.
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
                    // Somebody else is bound by now, who is charged from now on.
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

    /// Gives back what is more than `bytes`.
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
        let (first, second) = (pool.receive(0, 600), pool.receive(0, 600));
        let held = (grow(&first, &slow), grow(&second, &fast));
        let start = Instant::now();
        let mut context = Context::from_waker(Waker::noop());
        first.arrived(0);
        second.arrived(0);
        let late = start + 2 * ARRIVAL_GRACE;
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
