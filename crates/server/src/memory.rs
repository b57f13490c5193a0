//! The memory that all connections share for what they receive, work on and send.
//!
//! A connection that waits holds next to nothing: [`INPUT_FREE_BYTES`] of a request and [`OUTPUT_FREE_BYTES`] of answers.
//! Whatever is more is a [`Share`] of a [`Pool`], in the order in which a request goes through them:
//!
//! 1. `buffers`: [`INPUT_BYTES`] for what arrives;
//! 2. `long`: requests that are longer, whole;
//! 3. `updates` and `searches`: requests that are being worked on, and `transactions`: updates that wait for the end of
//!    theirs, which never wait for memory;
//! 4. `answers`: what waits to be written.
//!
//! The first two are there twice, so that nobody can keep those who are bound waiting without being bound.
//!
//! Who holds a share may wait for one of a later pool, never for one of the same or an earlier one. Who holds a share of
//! the last waits for its peer alone, and a peer that keeps it waiting while the pool runs short is closed. So every
//! wait ends. Waits are served in their order.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::config::Limits;

/// Bytes that are read at once, and so the burst that is decoded at once: some two hundred requests. Larger reads cost no
/// less processor time.
pub(crate) const INPUT_BYTES: usize = 16 << 10;
/// Bytes of a request that a connection may hold without a share.
pub(crate) const INPUT_FREE_BYTES: usize = 1 << 10;
/// Bytes of answers that a connection may hold without a share.
pub(crate) const OUTPUT_FREE_BYTES: usize = 4 << 10;
/// Buffers of [`INPUT_BYTES`] that are held at once by connections which wait; others read in smaller pieces.
const BUFFERS_MAX: usize = 64;
/// The part of `input_bytes_max` that there is for long requests of anonymous connections.
const ANONYMOUS_PART: usize = 4;
/// Bytes of searches under way, besides one small search that each connection may have: of four with the largest filters.
const SEARCHES_BYTES_MAX: usize = 32 << 20;
/// A pool runs short when less than this part of it is left.
const SHORT_PART: usize = 8;

/// The pools; see the [module](self).
#[derive(Debug)]
pub(crate) struct Memory {
    anonymous_requests: RequestPools,
    bound_requests: RequestPools,
    pub(crate) updates: Pool,
    pub(crate) transactions: Pool,
    pub(crate) searches: Pool,
    pub(crate) answers: Pool,
}

/// Where requests are received.
#[derive(Debug)]
pub(crate) struct RequestPools {
    pub(crate) buffers: Pool,
    pub(crate) long: Pool,
}

impl RequestPools {
    fn new(long_bytes: usize) -> Self {
        Self {
            buffers: Pool::new(BUFFERS_MAX * INPUT_BYTES),
            long: Pool::new(long_bytes),
        }
    }

    /// Whether others wait, or soon will.
    pub(crate) fn are_short(&self) -> bool {
        self.buffers.is_short() || self.long.is_short()
    }
}

impl Memory {
    pub(crate) fn new(limits: &Limits) -> Self {
        Self {
            anonymous_requests: RequestPools::new(
                (limits.input_bytes_max / ANONYMOUS_PART).max(limits.message_bytes_max_anonymous),
            ),
            bound_requests: RequestPools::new(limits.input_bytes_max),
            updates: Pool::new(limits.update_queue_bytes_max),
            transactions: Pool::new(limits.open_transactions_bytes_max),
            searches: Pool::new(SEARCHES_BYTES_MAX),
            answers: Pool::new(limits.answers_bytes_max),
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
pub(crate) struct Pool {
    free: Arc<Semaphore>,
    bytes: usize,
}

impl Pool {
    /// `bytes` must be below 4 GiB, as [`Config`](crate::Config) checks.
    fn new(bytes: usize) -> Self {
        Self {
            free: Arc::new(Semaphore::new(bytes)),
            bytes,
        }
    }

    /// So much of `bytes` as there is in all: who needs more takes everything.
    fn permits(&self, bytes: usize) -> u32 {
        u32::try_from(bytes.min(self.bytes)).unwrap_or(u32::MAX)
    }

    /// Takes a share, unless somebody would have to wait for it.
    pub(crate) fn try_take(&self, bytes: usize) -> Option<Share> {
        let permits = self.permits(bytes);
        Some(Share(Some(
            Arc::clone(&self.free)
                .try_acquire_many_owned(permits)
                .ok()?,
        )))
    }

    /// Takes a share of the half that is not kept for those who cannot do without.
    pub(crate) fn try_take_extra(&self, bytes: usize) -> Option<Share> {
        if self.free.available_permits() < bytes + self.bytes / 2 {
            return None;
        }
        self.try_take(bytes)
    }

    /// Takes a share when it is its turn. A share of more than there is in all is all.
    pub(crate) async fn take(self, bytes: usize) -> Share {
        let permits = self.permits(bytes);
        // The semaphore is never closed.
        Share(self.free.acquire_many_owned(permits).await.ok())
    }

    /// Whether a share of `held` bytes is as much as one of `wanted` can be.
    pub(crate) fn suffices(&self, held: usize, wanted: usize) -> bool {
        held >= wanted.min(self.bytes)
    }

    /// Whether a share is of this pool.
    pub(crate) fn owns(&self, share: &Share) -> bool {
        share
            .0
            .as_ref()
            .is_some_and(|permit| Arc::ptr_eq(permit.semaphore(), &self.free))
    }

    /// Whether others wait, or soon will.
    pub(crate) fn is_short(&self) -> bool {
        self.free.available_permits() < self.bytes / SHORT_PART
    }

    #[cfg(test)]
    pub(crate) fn free_bytes(&self) -> usize {
        self.free.available_permits()
    }
}

/// A part of a [`Pool`], given back when dropped.
#[derive(Debug, Default)]
pub(crate) struct Share(Option<OwnedSemaphorePermit>);

impl Share {
    pub(crate) fn bytes(&self) -> usize {
        self.0.as_ref().map_or(0, OwnedSemaphorePermit::num_permits)
    }

    /// Joins two shares of one pool.
    pub(crate) fn add(&mut self, mut more: Self) {
        match &mut self.0 {
            Some(own) => {
                if let Some(more) = more.0.take() {
                    own.merge(more);
                }
            }
            None => *self = more,
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
            drop(own.split(surplus));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_come_and_go() {
        let pool = Pool::new(1000);
        let mut share = pool.try_take(300).unwrap();
        share.add(pool.try_take(100).unwrap());
        assert_eq!((share.bytes(), pool.free_bytes()), (400, 600));
        share.shrink_to(150);
        assert_eq!((share.bytes(), pool.free_bytes()), (150, 850));
        assert!(pool.try_take(851).is_none());
        let mut none = Share::default();
        none.add(pool.try_take(850).unwrap());
        assert!(pool.is_short());
        none.shrink_to(0);
        drop(share);
        assert_eq!(pool.free_bytes(), 1000);
    }

    #[test]
    fn more_than_all_is_all() {
        let pool = Pool::new(1000);
        let share = pool.try_take(5000).unwrap();
        assert!(pool.suffices(share.bytes(), 5000));
        assert_eq!(pool.free_bytes(), 0);
    }

    #[test]
    fn half_is_kept_for_those_who_need_it() {
        let pool = Pool::new(1000);
        let share = pool.try_take_extra(300).unwrap();
        assert!(pool.try_take_extra(300).is_none());
        assert!(pool.try_take(300).is_some());
        drop(share);
    }
}
