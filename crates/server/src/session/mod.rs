//! A session: the protocol of one connection as a state machine on byte buffers, without input or output of its own.
//!
//! The [connection](crate::connection) reads into [`Session::input`], calls [`Session::process`] and writes what is in
//! [`Session::output`]. One call decodes every complete request: the *burst*. Its reads run on one snapshot, its
//! updates go to the writer as one unit, and its answers gather in the output buffer for one write. Searches that are
//! not done at once stay in [`searches`](search) and go on in turn, whenever there is room for output. A call ends when
//! one of them has used up its step.
//!
//! Bind, StartTLS and what needs a password hashed are *exclusive*: they wait until what came before has been answered,
//! and what comes after waits for them.

mod acting;
mod awaited;
mod backup;
mod bind;
mod context;
mod controls;
pub(crate) mod extended;
mod fetch;
mod ids;
mod input;
mod limits;
mod log;
mod long;
mod operations;
mod output;
mod password_policy;
mod prefetch;
pub(crate) mod record;
mod reply;
mod scan_ahead;
mod search;
mod second_factor;
mod service;
#[cfg(test)]
pub(crate) mod tests;
mod tree_delete;
mod update;
mod what_failed;

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

use sapwood_directory::engine::Engine;
use sapwood_directory::{Outcome, RetiredSnapshot, Snapshot};
use sapwood_ldap::result::{ResultCode, shortened};

use self::acting::Acting;
use self::context::Context;
use self::fetch::{Reader, Reads};
use self::input::{Burst, Input};
pub(crate) use self::operations::Completion;
use self::operations::{Hashed, Operations, Wanted};
pub(crate) use self::output::notice_of_disconnection;
use self::output::{Output, result};
use self::record::Records;
pub(crate) use self::reply::Completions;
use self::reply::Unit;
use self::search::STEP_WORK;
pub(crate) use self::service::{Parts, Service};
use crate::acknowledgements::Acknowledging;
use crate::admission::Admission;
use crate::closing::Reason;
use crate::endpoint::Endpoint;
use crate::memory::INPUT_FREE_BYTES;
use crate::peer::Peer;
use crate::printable::Printable;
use crate::settings::Settings;
use crate::tls::Established;

/// What the connection is to do once the output has been written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Then {
    /// Go on.
    Continue,
    /// Shake hands for TLS; what was read before is void.
    StartTls,
    /// Close the connection.
    Close,
}

/// Why no more requests are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Draining {
    PeerClosed,
    ServerStops,
}

/// What is left of the last snapshot of a thread's sessions. When nothing was written since, as mostly, the next one
/// knows what that one knew.
pub(crate) struct LastSnapshot<E: Engine>(Rc<Cell<Option<RetiredSnapshot<E>>>>);

impl<E: Engine> Clone for LastSnapshot<E> {
    fn clone(&self) -> Self {
        LastSnapshot(Rc::clone(&self.0))
    }
}

impl<E: Engine> Default for LastSnapshot<E> {
    fn default() -> Self {
        LastSnapshot(Rc::default())
    }
}

impl<E: Engine> LastSnapshot<E> {
    fn next(&self, service: &Service<E>) -> Result<Snapshot<E>, Outcome> {
        let directory = &service.directory;
        let next = match self.0.take() {
            Some(retired) => directory.snapshot_after(retired),
            None => directory.snapshot(),
        };
        next.map_err(|error| crate::writer::refusal(&error))
    }
}

pub(crate) struct Session<E: Engine> {
    service: Arc<Service<E>>,
    settings: Arc<Settings>,
    last_snapshot: LastSnapshot<E>,
    admission: Rc<Admission>,
    context: Context,
    input: Input,
    output: Output,
    operations: Operations<E>,
    reads: Reads<E>,
    records: Records,
    /// A search has used up its step, and other connections are next.
    turn_used: bool,
    /// Work that was done in this turn to find out who somebody is and as whom they may act, in about as many
    /// nanoseconds.
    turn_work: Cell<u64>,
    /// No more requests are taken; the session ends when it is idle.
    draining: Option<Draining>,
    then: Then,
    sends_on: bool,
    completions: Completions<E>,
    /// Of a server that follows this one: what it has on its disk.
    acknowledging: Option<Acknowledging>,
}

impl<E: Engine> Session<E> {
    pub(crate) fn new(
        service: Arc<Service<E>>,
        from: (Peer, Arc<Endpoint>),
        admission: Rc<Admission>,
        completions: Completions<E>,
        last_snapshot: LastSnapshot<E>,
    ) -> Self {
        let settings = service.settings();
        let context = Context::new(&service, from, &admission);
        Self {
            service,
            settings,
            last_snapshot,
            admission,
            context,
            input: Input::default(),
            output: Output::default(),
            operations: Operations::default(),
            reads: Reads::default(),
            records: Records::default(),
            turn_used: false,
            turn_work: Cell::new(0),
            draining: None,
            then: Then::Continue,
            sends_on: false,
            completions,
            acknowledging: None,
        }
    }

    /// The settings in force.
    pub(crate) fn settings(&mut self) -> &Settings {
        self.service.renew(&mut self.settings);
        &self.settings
    }

    /// Ends the session at once, whatever its peer does. Who does not read cannot be told.
    pub(crate) fn evict(&mut self, reason: Reason, code: ResultCode, diagnostic: &str) {
        if self.is_written() {
            return self.disconnect(reason, code, diagnostic);
        }
        self.service
            .close_log
            .log(reason, &self.context.peer, diagnostic);
        self.output.bytes.clear();
        (self.output.written, self.output.flushed) = (0, true);
        self.end();
    }

    /// Ends the session if it waits for its peer, as somebody else needs its place.
    fn make_room(&mut self) {
        if self.is_idle() || !self.is_written() {
            let diagnostic =
                "all connections are in use (limits.connections_max), and this one made room";
            self.evict(Reason::Full, ResultCode::Unavailable, diagnostic);
        } else {
            self.admission.stays();
        }
    }

    /// Whether the peer was told to go while it was sending.
    pub(crate) fn sends_on(&self) -> bool {
        self.sends_on
    }

    /// What to do when the output has been written.
    pub(crate) fn then(&self) -> Then {
        self.then
    }

    /// Whether there is work to do without more input: searches under way and room for their entries, or requests
    /// behind one whose beginning was enough for this turn.
    pub(crate) fn has_work(&self) -> bool {
        let has_requests = || {
            let are_there = !self.input.bytes.is_empty() || self.operations.lburp.is_ready();
            self.turn_used && are_there && self.takes_requests()
        };
        self.has_room() && self.then != Then::Close && (self.can_step() || has_requests())
    }

    /// Whether [`process`](Self::process) would find nothing to do: only input, or another thread, makes the session go
    /// on.
    pub(crate) fn waits(&self) -> bool {
        self.input.bytes.is_empty()
            && self.operations.searches.is_empty()
            && self.draining.is_none()
            && self.then == Then::Continue
    }

    /// TLS protects the connection from now on; what was received before is dropped, for it may have been slipped in by
    /// others.
    pub(crate) fn secured(&mut self, established: Established) {
        let has_certificate = established.certificate.is_some();
        let ssf = u32::from(established.ssf);
        if self.settings.config.log.access {
            let number = self.context.number;
            tracing::info!(target: "access", conn = number, ssf = established.ssf, certificate = has_certificate, "tls");
        }
        self.context.channel.is_under_tls = true;
        self.context.channel.is_vouched_for |= has_certificate;
        self.context.tls = Some(Box::new(established));
        let from = self.context.peer.connection(&self.context.endpoint, ssf);
        let directory = &self.service.directory;
        for requester in [&mut self.context.requester, &mut self.context.nobody] {
            *requester = directory.requester_over(requester, from.clone());
        }
        self.context.from = from;
        self.context.acting = Acting::default();
        self.stop_reads();
        self.input.bytes.clear();
        self.input.needed = 0;
        self.then = Then::Continue;
    }

    /// Decodes and does every complete request that there is room for, then goes on with the searches under way.
    /// Requests come first: one of them may abandon a search.
    pub(crate) fn process(&mut self) {
        self.service.renew(&mut self.settings);
        let directory = &self.service.directory;
        if !directory.is_current(&self.context.requester) {
            self.context.requester = directory.renewed(&self.context.requester);
        }
        if self.context.is_user
            && self.context.deletions != self.service.directory.deletions()
            && !self.fetches()
        {
            self.check_users();
        }
        // One short request by itself mostly does with the room that is free.
        if self.input.bytes.len() > INPUT_FREE_BYTES
            || !self.is_idle()
            || !self.output.bytes.is_empty()
        {
            self.reserve_room();
        }
        self.turn_used = false;
        self.turn_work.set(0);
        if self.operations.lburp.is_ready() {
            let mut unit = Unit::default();
            self.take_kept(&mut unit);
            self.submit(unit);
        }
        if !self.input.bytes.is_empty() && self.takes_requests() {
            self.take_burst();
        }
        if !self.input.bytes.is_empty() && self.must_read_on() {
            self.read_on();
        }
        self.operations.searches.wake();
        self.step_searches();
        match self.draining {
            Some(Draining::ServerStops) if self.is_idle() && self.then != Then::Close => {
                let reason = "the server is stopping";
                self.abort_transactions(&Outcome::new(ResultCode::Unavailable, reason));
                self.disconnect(Reason::Stopping, ResultCode::Unavailable, reason);
            }
            Some(Draining::PeerClosed) if self.is_idle() => self.then = Then::Close,
            _ => {}
        }
        self.count_operations();
    }

    /// Counts work that was done at once as work of this turn.
    fn charge(&self, work: u64) {
        let done = self.turn_work.get();
        self.turn_work.set(done.saturating_add(work));
    }

    /// Has others be next if the work that was done at once is that of a step.
    fn end_long_turn(&mut self) {
        self.turn_used |= self.turn_work.get() >= STEP_WORK;
    }

    /// Tells the peer why the connection ends (RFC 4511 §4.4.1), and ends it. Nothing is answered after it.
    fn disconnect(&mut self, reason: Reason, code: ResultCode, diagnostic: &str) {
        self.service
            .close_log
            .log(reason, &self.context.peer, diagnostic);
        if self.settings.config.log.access {
            let (conn, code) = (self.context.number, code.code());
            let diagnostic = Printable(shortened(diagnostic));
            tracing::info!(target: "access", conn, code, %diagnostic, "disconnect");
        }
        notice_of_disconnection(&mut self.output.bytes, code, diagnostic);
        self.sends_on = matches!(
            reason,
            Reason::TooLong | Reason::Malformed | Reason::Stalled
        );
        self.end();
    }

    /// Nothing more is taken or worked on.
    fn end(&mut self) {
        self.operations.searches.clear();
        self.operations.wanted = None;
        self.stop_reads();
        self.then = Then::Close;
    }
}
