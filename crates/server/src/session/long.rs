//! Long searches and compares: a [worker](crate::workers) makes them ready, beside the session's thread, and frees what
//! it has made when they have ended.
//!
//! Text that expands takes up to 0.12 s per MiB until it is prepared, and a request can bring megabytes. To divide that
//! into steps, the filter, the base and every rule that prepares a value would each have to stop and go on anywhere; so
//! the whole beginning of a search goes to another thread instead, in one piece, and then, in steps, its plan.
//! Meanwhile the session reads on: what is being made ready counts as under way, and can be abandoned and canceled. The
//! worker may still finish its step for nobody.
//!
//! A request of up to [`MEDIUM_BYTES_MAX`] takes a worker eight milliseconds at most. So there are workers who take no
//! longer ones: who asks for little waits for others who do, not for a megabyte of somebody else.
//!
//! The request's share of the memory for searches is held until then, which bounds the queue: all that waits has about
//! 1.5 MB of text together, or is one longer request by itself. So none waits here for long, and its time limit is
//! looked at when its turn comes.

use std::ops::ControlFlow;
use std::sync::Arc;

use sapwood_directory::engine::Engine;
use sapwood_directory::{
    Clock, CompareOptions, Outcome, Requester, SearchOptions, Snapshot, SystemClock,
};
use sapwood_ldap::controls::{ControlsBuf, RequestControls};
use sapwood_ldap::filter::FilterBuf;
use sapwood_ldap::message::{Operation, Request, RequestMessage};
use sapwood_ldap::result::ResultCode;

use super::search::{Queued, Reading, UnderWay, begin_compare};
use super::{Burst, Completion, Reader, Session};
use crate::memory::{MEDIUM_BYTES_MAX, Share};
use crate::workers::{Disposer, Length, Ticket, Turn};

/// A search or compare that a worker makes ready.
pub(super) struct Preparing {
    pub(super) id: u32,
    pub(super) operation: Operation,
    /// Tells it from others of its connection, also from one before it with the same message id.
    pub(super) number: u64,
    _ticket: Option<Ticket>,
}

impl Preparing {
    /// One that a thread of its own makes ready.
    pub(super) fn new(id: u32, operation: Operation, number: u64) -> Preparing {
        Preparing {
            id,
            operation,
            number,
            _ticket: None,
        }
    }
}

/// What a worker has made ready.
pub(crate) struct Prepared<E: Engine> {
    number: u64,
    running: Result<UnderWay<E>, Outcome>,
}

impl<E: Engine> Prepared<E> {
    pub(super) fn new(number: u64, running: Result<UnderWay<E>, Outcome>) -> Prepared<E> {
        Prepared { number, running }
    }
}

/// A long request, on its way to be ready.
enum Stage<E: Engine> {
    /// As it came.
    Long(Box<Long<E>>),
    /// Its candidates are being looked for.
    Planning(Box<UnderWay<E>>),
    /// It is ready, or given up.
    Ended,
}

impl<E: Engine> Stage<E> {
    /// Does a step; what it comes to, if that was the last one.
    fn step(&mut self) -> ControlFlow<Result<UnderWay<E>, Outcome>> {
        match std::mem::replace(self, Stage::Ended) {
            Stage::Long(long) => match long.begin() {
                Ok(running) => *self = Stage::Planning(Box::new(running)),
                Err(outcome) => return ControlFlow::Break(Err(outcome)),
            },
            Stage::Planning(mut running) => match running.plan() {
                ControlFlow::Continue(()) => *self = Stage::Planning(running),
                ControlFlow::Break(planned) => {
                    return ControlFlow::Break(planned.map(|()| *running));
                }
            },
            Stage::Ended => return ControlFlow::Break(Err(failed())),
        }
        ControlFlow::Continue(())
    }
}

/// A long request by itself.
struct Long<E: Engine> {
    bytes: Vec<u8>,
    snapshot: Snapshot<E>,
    requester: Arc<Requester>,
    options: SearchOptions,
    entry_controls: ControlsBuf,
    share: Share,
    disposer: Disposer,
}

impl<E: Engine> Long<E> {
    /// Begins what the request asks for.
    fn begin(self) -> Result<UnderWay<E>, Outcome> {
        let Long {
            bytes,
            snapshot,
            requester,
            options,
            entry_controls,
            share,
            disposer,
        } = self;
        let deadline = options.deadline_micros;
        if deadline.is_some_and(|deadline| SystemClock.now_micros() >= deadline) {
            let diagnostic = "the time limit came before the request was made ready";
            return Err(Outcome::new(ResultCode::TimeLimitExceeded, diagnostic));
        }
        let Ok(message) = RequestMessage::decode(&bytes) else {
            return Err(failed());
        };
        let reading = match &message.op {
            Request::Search(request) => Reading::begin(snapshot, &requester, request, options),
            Request::Compare(request) => {
                let options = CompareOptions {
                    channel: options.channel,
                    manage_dsa_it: options.manage_dsa_it,
                    assertion: options.assertion.as_ref().map(FilterBuf::as_filter),
                    deadline_micros: deadline,
                };
                Reading::Compare(begin_compare(snapshot, &requester, request, options))
            }
            _ => return Err(failed()),
        };
        let running = UnderWay::new(message.id, message.op.operation(), reading, share);
        let mut running = running.with_controls(entry_controls).long(disposer);
        running.keep_request(bytes);
        Ok(running)
    }
}

/// What is told of a request on which a worker has panicked.
fn failed() -> Outcome {
    Outcome::new(
        ResultCode::Unavailable,
        "the server failed to make the request ready",
    )
}

impl<E: Engine> Session<E> {
    /// Has a worker make a search or a compare ready; `false` when it has to wait for what is not here.
    pub(super) fn prepare(
        &mut self,
        bytes: &[u8],
        message: &RequestMessage<'_>,
        (controls, by): (&RequestControls<'_>, &Arc<Requester>),
        share: Share,
        burst: &mut Burst<'_, E>,
    ) -> bool {
        // It was decoded and is copied, which is enough for this turn.
        self.turn_used = true;
        let (id, operation) = (message.id, message.op.operation());
        let limited = burst.snapshot(self).cloned().and_then(|snapshot| {
            let limits = self.limits(&snapshot, by)?;
            Ok((snapshot, limits))
        });
        if self.waits_for_fetch(Reader::Request) {
            return false;
        }
        let (snapshot, limits) = match limited {
            Ok(limited) => limited,
            Err(outcome) => {
                self.answer(id, operation, &outcome);
                return true;
            }
        };
        let asked = match message.op {
            Request::Search(request) => (request.size_limit, request.time_limit),
            _ => (0, 0),
        };
        let mut options = self.search_options(controls, limits, asked);
        // The time limits count from now on.
        let wanted = u64::from(asked.1) * 1_000_000;
        let wanted = (wanted > 0).then(|| SystemClock.now_micros() + wanted);
        options.deadline_micros = options.deadline_micros.into_iter().chain(wanted).min();
        let claim = self.claim(self.context.requester.real());
        let length = match bytes.len() {
            ..=MEDIUM_BYTES_MAX => Length::Short,
            _ => Length::Long,
        };
        let preparers = &self.service.preparers;
        let mut stage = Stage::Long(Box::new(Long {
            bytes: bytes.to_vec(),
            snapshot,
            requester: by.clone(),
            options,
            entry_controls: self.entry_controls(controls),
            share,
            disposer: preparers.disposer(claim, length),
        }));
        let number = self.operations.searches.next_number();
        let session = self.completions.clone();
        let job = move |turn| {
            let step = match turn {
                Turn::Step => stage.step(),
                // Nobody waits for it any more, or it has panicked.
                Turn::Stop => {
                    stage = Stage::Ended;
                    ControlFlow::Break(Err(failed()))
                }
            };
            let ControlFlow::Break(running) = step else {
                return ControlFlow::Continue(());
            };
            let prepared = Prepared { number, running };
            let _ = session.send(Completion::Prepared(Box::new(prepared)));
            ControlFlow::Break(())
        };
        let ticket = preparers.submit(claim, length, job);
        self.operations.searches.push(Queued::Preparing(Preparing {
            id,
            operation,
            number,
            _ticket: Some(ticket),
        }));
        true
    }

    /// A worker has made a request ready, which may have been abandoned meanwhile.
    pub(super) fn prepared(&mut self, prepared: Prepared<E>) {
        let Prepared { number, running } = prepared;
        let Some(Preparing { id, operation, .. }) = self.operations.searches.take_prepared(number)
        else {
            return;
        };
        match running {
            Ok(running) => self.operations.searches.push(Queued::UnderWay(running)),
            Err(outcome) => self.answer(id, operation, &outcome),
        }
    }
}
