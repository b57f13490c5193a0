//! Long searches and compares: a [worker](crate::workers) makes them ready, beside the session's thread.
//!
//! Text that expands takes up to 0.12 s per MiB until it is prepared, and a request can bring megabytes. To divide that
//! into steps, the filter, the base and every rule that prepares a value would each have to stop and go on anywhere; so
//! the whole beginning of a search goes to another thread instead, in one piece. Meanwhile the session reads on: what
//! is being made ready counts as under way, and can be abandoned and canceled. The worker may still finish it for
//! nobody.
//!
//! The request's share of the memory for searches is held until then, which bounds the queue: all that waits has about
//! 1.5 MB of text together, or is one longer request by itself. So none waits here for long, and its time limit is
//! looked at when its turn comes.

use std::ops::ControlFlow;

use sapwood_directory::{Clock, Identity, Outcome, SearchOptions, Snapshot, SystemClock};
use sapwood_ldap::message::{Operation, Request, RequestMessage};
use sapwood_ldap::result::ResultCode;

use super::search::{Queued, Reading, UnderWay, begin_compare, begin_search};
use super::{Burst, Completion, Session};
use crate::memory::Share;
use crate::workers::{Ticket, Turn};

/// A search or compare that a worker makes ready.
pub(super) struct Preparing {
    pub(super) id: u32,
    pub(super) operation: Operation,
    /// Tells it from others of its connection, also from one before it with the same message id.
    pub(super) number: u64,
    _ticket: Ticket,
}

/// What a worker has made ready.
pub(crate) struct Prepared {
    number: u64,
    reading: Result<Reading, Outcome>,
    share: Share,
}

/// A long request by itself.
struct Long {
    bytes: Vec<u8>,
    snapshot: Snapshot,
    identity: Identity,
    options: SearchOptions,
}

impl Long {
    /// Begins what the request asks for.
    fn begin(self) -> Result<Reading, Outcome> {
        let Long {
            bytes,
            snapshot,
            identity,
            options,
        } = self;
        let deadline = options.deadline_micros;
        if deadline.is_some_and(|deadline| SystemClock.now_micros() >= deadline) {
            let diagnostic = "the time limit came before the request was made ready";
            return Err(Outcome::new(ResultCode::TimeLimitExceeded, diagnostic));
        }
        let Ok(message) = RequestMessage::decode(&bytes) else {
            return Err(failed());
        };
        let controls = message.controls;
        match &message.op {
            Request::Search(request) => {
                begin_search(snapshot, &identity, request, controls, options).map(Reading::Search)
            }
            Request::Compare(request) => {
                let channel = options.channel;
                begin_compare(snapshot, &identity, request, controls, channel, deadline)
                    .map(Reading::Compare)
            }
            _ => Err(failed()),
        }
    }
}

/// What is told of a request on which a worker has panicked.
fn failed() -> Outcome {
    Outcome::new(
        ResultCode::Unavailable,
        "the server failed to make the request ready",
    )
}

impl Session {
    /// Has a worker make a search or a compare ready.
    pub(super) fn prepare(
        &mut self,
        bytes: &[u8],
        message: &RequestMessage<'_>,
        share: Share,
        burst: &mut Burst<'_>,
    ) {
        // It was decoded and is copied, which is enough for this turn.
        self.turn_used = true;
        let (id, operation) = (message.id, message.op.operation());
        let snapshot = match burst.snapshot(self) {
            Ok(snapshot) => snapshot.clone(),
            Err(outcome) => return self.answer(id, operation, &outcome),
        };
        let mut options = self.search_options(id);
        // The time limits count from now on.
        let wanted = match message.op {
            Request::Search(request) => u64::from(request.time_limit) * 1_000_000,
            _ => 0,
        };
        let wanted = (wanted > 0).then(|| SystemClock.now_micros() + wanted);
        options.deadline_micros = options.deadline_micros.into_iter().chain(wanted).min();
        let mut long = Some(Long {
            bytes: bytes.to_vec(),
            snapshot,
            identity: self.identity.clone(),
            options,
        });
        let mut share = share;
        let number = self.searches.next_number();
        let session = self.completions.clone();
        let job = move |turn| {
            let reading = match (turn, long.take()) {
                (Turn::Step, Some(long)) => long.begin(),
                // Nobody waits for it any more, or it has panicked.
                _ => Err(failed()),
            };
            let prepared = Prepared {
                number,
                reading,
                share: std::mem::take(&mut share),
            };
            let _ = session.send(Completion::Prepared(Box::new(prepared)));
            ControlFlow::Break(())
        };
        let claim = self.claim(&self.identity);
        let ticket = self.service.preparers.submit(claim, job);
        self.searches.push(Queued::Preparing(Preparing {
            id,
            operation,
            number,
            _ticket: ticket,
        }));
    }

    /// A worker has made a request ready, which may have been abandoned meanwhile.
    pub(super) fn prepared(&mut self, prepared: Prepared) {
        let Prepared {
            number,
            reading,
            share,
        } = prepared;
        let Some(Preparing { id, operation, .. }) = self.searches.take_prepared(number) else {
            return;
        };
        match reading {
            Ok(reading) => {
                let running = UnderWay::new(id, reading, share);
                self.searches.push(Queued::UnderWay(running));
            }
            Err(outcome) => self.answer(id, operation, &outcome),
        }
    }
}
