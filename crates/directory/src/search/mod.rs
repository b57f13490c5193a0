//! Searches: resumable state machines that append finished messages to a buffer.

use sapwood_ldap::message::SearchRequest;

use crate::access::Identity;
use crate::directory::Snapshot;
use crate::engine::{Embedded, Engine};
use crate::error::Result;
use crate::outcome::Outcome;

/// What a search is asked besides its request.
#[derive(Clone, Debug, Default)]
pub struct SearchOptions {
    /// The message ID its responses carry.
    pub message_id: u32,
    /// ManageDsaIT (RFC 3296): referral objects are plain entries.
    pub manage_dsa_it: bool,
    /// Paged results (RFC 2696): entries of a page, and the cookie of the page before (empty for the first).
    pub page: Option<(u32, Vec<u8>)>,
    /// The server's own limit on entries; the request's counts too. 0 is no limit.
    pub entries_max: u32,
    /// When to end with timeLimitExceeded, in microseconds of the directory's clock. The request's limit counts too.
    pub deadline_micros: Option<u64>,
}

/// How much one step may do.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    /// Stop after so many entries were looked at.
    pub entries: u32,
    /// Stop when the buffer has at least so many bytes.
    pub out_bytes: usize,
}

/// Where a search is after a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// The budget ended first: call again.
    More,
    /// It ended so; the SearchResultDone is the caller's to write. The outcome's controls hold the next page's cookie.
    Done(Outcome),
}

/// A search under way: owns its snapshot and its plan.
pub struct Search<E: Engine = Embedded> {
    snapshot: Snapshot<E>,
}

impl<E: Engine> Search<E> {
    /// Begins a search. What is wrong with the request is told by the first step.
    pub fn new(
        snapshot: Snapshot<E>,
        identity: &Identity,
        request: &SearchRequest<'_>,
        options: SearchOptions,
    ) -> Search<E> {
        let _ = (identity, request, options);
        Search { snapshot }
    }

    /// Goes on: appends whole SearchResultEntry and SearchResultReference messages to `out`.
    pub fn step(&mut self, out: &mut Vec<u8>, budget: Budget) -> Result<Step> {
        let _ = (out, budget, &self.snapshot);
        unimplemented!()
    }
}
