//! A session: the protocol of one connection as a state machine on byte buffers, without input or output of its own.
//!
//! The [connection](crate::connection) reads into [`Session::input`], calls [`Session::process`] and writes what is in
//! [`Session::output`]. One call decodes every complete request: the *burst*. Its reads run on one snapshot, its updates
//! go to the writer as one unit, and its answers gather in the output buffer for one write. Searches that are not done
//! at once stay in [`searches`](search) and go on in turn, whenever there is room for output. A call ends when one of them
//! has used up its step.
//!
//! Bind, StartTLS and what needs a password hashed are *exclusive*: they wait until what came before has been answered,
//! and what comes after waits for them.

mod ahead;
mod bind;
pub(crate) mod controls;
pub(crate) mod extended;
mod heed;
mod identity;
mod ids;
mod log;
mod long;
mod search;
#[cfg(test)]
mod tests;
mod update;

use std::cell::Cell;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use sapwood_directory::{
    Channel, Identity, Outcome, Remains, Searches, Snapshot, StoreSet, UpdateRequest,
};
use sapwood_ldap::controls::{Controls, RequestControls};
use sapwood_ldap::error::{DecodeError, Malformed};
use sapwood_ldap::extended as oids;
use sapwood_ldap::list::OctetStringsBuf;
use sapwood_ldap::message::{ExtendedResponse, Message, Operation, Request, Response};
use sapwood_ldap::result::{LdapResult, ResultCode, shortened};
use tokio::sync::mpsc::UnboundedSender;

use self::ahead::{Coming, SEARCHES_AHEAD_MAX};
use self::bind::{Challenged, Hashing, Verdict};
use self::extended::lburp::{HashedOperation, Lburp};
use self::extended::transaction::Transactions;
use self::ids::MessageIds;
use self::long::Prepared;
use crate::accounts::{Claimant, Origin};
use crate::admission::Admission;
use crate::closing::Reason;
use crate::memory::{INPUT_BYTES, INPUT_FREE_BYTES, OUTPUT_FREE_BYTES, Pool, Share};
use crate::service::{Service, Settings};
use crate::writer::{Form, Reply, Unit};

/// Bytes of answers that are held back at most: some ten segments, more of which no call to the system makes cheaper.
const HELD_BYTES_MAX: usize = 16 << 10;
/// Bytes of output that are kept for the answer of each update under way. Few answers are longer.
const UPDATE_ANSWER_BYTES: usize = 256;
/// What the output begins with: few answers to one request are longer.
const OUTPUT_FIRST_BYTES: usize = 1 << 10;
/// Room for output is taken in multiples of this.
const ROOM_BYTES: usize = 16 << 10;

/// The other end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Peer {
    /// TCP.
    Tcp(SocketAddr),
    /// A socket in the file system, with the user id that the kernel vouches for.
    Local { uid: u32 },
}

impl Peer {
    /// Where its work comes from, for what is shared by address.
    pub(crate) fn origin(&self) -> Origin {
        match self {
            Self::Tcp(address) => Origin::of_address(address.ip()),
            Self::Local { uid } => Origin::Local(*uid),
        }
    }
}

impl std::fmt::Display for Peer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Tcp(address) => write!(f, "{address}"),
            Self::Local { uid } => write!(f, "local, user id {uid}"),
        }
    }
}

/// What another thread has finished for a session.
pub(crate) enum Completion {
    /// Updates with the same homes, durable if they succeeded.
    Updated {
        homes: StoreSet,
        answers: Vec<(Reply, Outcome)>,
    },
    /// The password of a bind has been checked.
    Verified { id: u32, verdict: Verdict },
    /// Passwords have been checked and hashed; what is left is an update, or an answer.
    Hashed(Box<Hashed>),
    /// Those of an operation of a bulk update.
    LburpHashed(Box<HashedOperation>),
    /// A long search or compare has been made ready.
    Prepared(Box<Prepared>),
    /// Somebody else needs the connection's place: the session ends unless it is being worked for.
    MakeRoom,
    /// The server stops: updates under way are finished, searches end, then the session does.
    Stop,
}

/// An update whose passwords have been checked and hashed.
pub(crate) struct Hashed {
    /// The update, or why there is none.
    request: Result<UpdateRequest, Outcome>,
    reply: Reply,
    /// The identifier of the transaction that it belongs to.
    transaction: Option<Vec<u8>>,
    /// The update's share of the queue.
    share: Share,
}

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

/// A share of the memory for requests that are worked on.
#[derive(Clone, Copy, Debug)]
enum Wanted {
    Update(usize),
    Search(usize),
}

/// Why no more requests are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Draining {
    PeerClosed,
    ServerStops,
}

/// What is left of the last snapshot of a thread's sessions. When nothing was written since, as mostly, the next one knows what
/// that one knew.
#[derive(Clone, Default)]
pub(crate) struct LastSnapshot(Rc<Cell<Option<Remains>>>);

impl LastSnapshot {
    fn next(&self, service: &Service) -> Result<Snapshot, Outcome> {
        let directory = &service.directory;
        let next = match self.0.take() {
            Some(remains) => directory.snapshot_after(remains),
            None => directory.snapshot(),
        };
        next.map_err(|error| crate::writer::refusal(&error))
    }
}

pub(crate) struct Session {
    service: Arc<Service>,
    settings: Arc<Settings>,
    last_snapshot: LastSnapshot,
    peer: Peer,
    /// What kind of connection it is.
    channel: Channel,
    /// Deletions that were counted when the user's entry was certainly there.
    deletions: u64,
    /// The connection's number, for the access log.
    number: u64,
    admission: Rc<Admission>,
    /// In whose name it takes what is shared.
    claimant: Arc<Claimant>,
    identity: Identity,
    /// What was received and not yet decoded: the start of a request at most, between bursts.
    input: Vec<u8>,
    /// Bytes that the request at the start of `input` needs to be complete.
    input_needed: usize,
    /// Bytes of `input` that were looked through for what ends searches.
    heeded: usize,
    /// The peer's end was read before requests that came before it could be taken.
    has_seen_end: bool,
    output: Vec<u8>,
    /// Bytes of `output` that have been written.
    written: usize,
    searches: search::Running,
    /// So many of the searches that come next are begun together: one, as long as they are not done with their first step.
    ahead: usize,
    /// Message ids of the updates that the writer has.
    updating: MessageIds,
    /// How many of them have these homes, if the directory is in several stores.
    homes: Vec<(StoreSet, usize)>,
    /// The message id of the request that nothing may overlap.
    exclusive: Option<u32>,
    /// What it waits for, if that is a hasher or the time at which a failed bind is answered.
    hashing: Option<Hashing>,
    /// A SASL bind that its client goes on with.
    challenged: Option<Challenged>,
    transactions: Transactions,
    lburp: Lburp,
    /// Message ids of requests whose responses carry the server's name.
    naming: MessageIds,
    /// When the burst came, if somebody has asked.
    now: Option<Instant>,
    /// Responses that the client waits for, as it said.
    queue_length: u32,
    /// The share that the first request of `input` needs to go on, and what was granted for it.
    wanted: Option<Wanted>,
    granted: Share,
    /// Memory for output besides [`OUTPUT_FREE_BYTES`].
    room: Share,
    /// Updates that the writer or a hasher has.
    answers_due: usize,
    /// A search has used up its step, and other connections are next.
    turn_used: bool,
    /// Whether what was written has left the stream's own buffer.
    flushed: bool,
    /// No more requests are taken; the session ends when it is idle.
    draining: Option<Draining>,
    then: Then,
    sends_on: bool,
    completions: UnboundedSender<Completion>,
}

impl Session {
    pub(crate) fn new(
        service: Arc<Service>,
        peer: Peer,
        secure: bool,
        admission: Rc<Admission>,
        completions: UnboundedSender<Completion>,
        last_snapshot: LastSnapshot,
    ) -> Self {
        let settings = service.settings();
        let channel = Channel {
            is_vouched_for: peer.is_trusted(),
            takes_tls: service.tls.is_some() && matches!(peer, Peer::Tcp(_)),
            is_under_tls: secure,
        };
        Self {
            service,
            settings,
            last_snapshot,
            peer,
            channel,
            deletions: 0,
            number: admission.number,
            claimant: admission.claimant(),
            admission,
            identity: Identity::Anonymous,
            input: Vec::new(),
            input_needed: 0,
            heeded: 0,
            has_seen_end: false,
            output: Vec::new(),
            written: 0,
            searches: search::Running::default(),
            ahead: SEARCHES_AHEAD_MAX,
            updating: MessageIds::default(),
            homes: Vec::new(),
            exclusive: None,
            hashing: None,
            challenged: None,
            transactions: Transactions::default(),
            lburp: Lburp::default(),
            naming: MessageIds::default(),
            now: None,
            queue_length: 0,
            wanted: None,
            granted: Share::default(),
            room: Share::default(),
            answers_due: 0,
            turn_used: false,
            flushed: true,
            draining: None,
            then: Then::Continue,
            sends_on: false,
            completions,
        }
    }

    /// The settings in force.
    pub(crate) fn settings(&mut self) -> &Settings {
        self.service.renew(&mut self.settings);
        &self.settings
    }

    /// Where received bytes are appended.
    pub(crate) fn input(&mut self) -> &mut Vec<u8> {
        &mut self.input
    }

    /// Bytes that the request being received needs in all, as far as is known.
    pub(crate) fn input_needed(&self) -> usize {
        self.input_needed
    }

    /// Whether nobody is bound.
    pub(crate) fn is_anonymous(&self) -> bool {
        self.identity == Identity::Anonymous
    }

    /// In whose name the session takes what is shared.
    pub(crate) fn claimant(&self) -> &Arc<Claimant> {
        &self.claimant
    }

    fn set_identity(&mut self, identity: Identity) {
        if identity != self.identity {
            self.claimant = self.claimant.bound_as(&identity);
            let is_bound = identity != Identity::Anonymous;
            self.admission.bind(&self.claimant, is_bound);
            self.identity = identity;
        }
    }

    /// Whether more requests can be taken: there is room for their answers, and nothing keeps them waiting.
    pub(crate) fn wants_input(&self) -> bool {
        self.takes_requests() && self.input.len() < INPUT_BYTES.max(self.input_needed)
    }

    /// Whether what has come leaves room in what a connection may hold without a share.
    pub(crate) fn fits_free_input(&self) -> bool {
        self.input.len() < INPUT_FREE_BYTES
    }

    /// What is to be written. Answers of a queue whose length the client told are held back while more of them come; not
    /// while the session waits for memory, for then others may wait for what they take.
    pub(crate) fn output(&self) -> &[u8] {
        let output = &self.output[self.written..];
        let held = self.awaits_queue() && !self.is_idle() && output.len() < HELD_BYTES_MAX;
        let waits = || self.wanted.is_some() || self.waits_for_room() || !self.has_room();
        if held && !waits() { &[] } else { output }
    }

    /// Whether the client waits for more answers, so that what it has sent is to be read before what is there is written.
    pub(crate) fn awaits_queue(&self) -> bool {
        self.queue_length > 0 && self.then == Then::Continue && self.draining.is_none()
    }

    /// Notes that the first `count` bytes of [`Session::output`] have been written; with `flushed` the stream keeps none of
    /// them.
    pub(crate) fn wrote(&mut self, count: usize, flushed: bool) {
        self.written += count;
        self.flushed = flushed;
        let output_bytes_max = self.settings.config.limits.output_bytes_max;
        if self.written == self.output.len() {
            self.output.clear();
            self.written = 0;
            // One answer may be much larger than the rest; its memory is not kept.
            self.output.shrink_to(2 * output_bytes_max);
            if flushed && !self.searches.is_gathering() {
                self.room
                    .shrink_to(output_bytes_max + self.answers_due * UPDATE_ANSWER_BYTES);
            }
        } else if self.written >= output_bytes_max {
            self.output.drain(..self.written);
            self.written = 0;
        }
    }

    /// Whether all output has been written and has left the stream's own buffer.
    pub(crate) fn is_written(&self) -> bool {
        self.output().is_empty() && self.flushed
    }

    /// Takes the output buffer away when it has been written, for a session that waits holds none; its room is given back.
    pub(crate) fn take_output_buffer(&mut self) -> Option<Vec<u8>> {
        if !self.output.is_empty() {
            return None;
        }
        if self.flushed && !self.searches.is_gathering() {
            self.room.shrink_to(
                (self.answers_due * UPDATE_ANSWER_BYTES).saturating_sub(OUTPUT_FREE_BYTES),
            );
        }
        Some(std::mem::take(&mut self.output))
    }

    /// Bytes of shared memory that this session holds until its answers have been written.
    pub(crate) fn shared_for_answers(&self) -> usize {
        self.room.bytes() + self.searches.shared_bytes()
    }

    /// Ends the session at once, whatever its peer does. Who does not read cannot be told.
    pub(crate) fn show_out(&mut self, reason: Reason, code: ResultCode, diagnostic: &str) {
        if self.is_written() {
            return self.disconnect(reason, code, diagnostic);
        }
        self.service.closings.log(reason, &self.peer, diagnostic);
        self.output.clear();
        (self.written, self.flushed) = (0, true);
        self.end();
    }

    /// Ends the session if it waits for its peer, as somebody else needs its place.
    fn make_room(&mut self) {
        if self.is_idle() || !self.is_written() {
            let diagnostic =
                "all connections are in use (limits.connections_max), and this one made room";
            self.show_out(Reason::Full, ResultCode::Unavailable, diagnostic);
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
        let has_requests = || self.turn_used && !self.input.is_empty() && self.takes_requests();
        self.has_room() && self.then != Then::Close && (self.can_step() || has_requests())
    }

    /// Whether [`process`](Self::process) would find nothing to do: only input, or another thread, makes the session go on.
    pub(crate) fn waits(&self) -> bool {
        self.input.is_empty()
            && self.searches.is_empty()
            && self.draining.is_none()
            && self.then == Then::Continue
    }

    /// Whether no request is being worked on.
    pub(crate) fn is_idle(&self) -> bool {
        self.searches.is_empty()
            && self.updating.is_empty()
            && self.exclusive.is_none()
            && self.wanted.is_none()
    }

    /// Whether searches are under way, each of which has a snapshot.
    pub(crate) fn is_searching(&self) -> bool {
        !self.searches.is_empty()
    }

    /// The pool and the bytes that the next request waits for; see [`Session::granted`].
    pub(crate) fn wants_share(&self) -> Option<(&Pool, usize)> {
        self.wanted.map(|wanted| self.pool_of(wanted))
    }

    fn pool_of(&self, wanted: Wanted) -> (&Pool, usize) {
        let memory = &self.service.memory;
        match wanted {
            Wanted::Update(bytes) => (&memory.updates, bytes),
            Wanted::Search(bytes) => (&memory.searches, bytes),
        }
    }

    /// What [`Session::wants_share`] asked for is there.
    pub(crate) fn granted(&mut self, share: Share) {
        self.granted = share;
        self.wanted = None;
    }

    /// A share that the next request needs: what was granted, or what is there at once. Without it the request waits.
    fn share(&mut self, wanted: Wanted) -> Option<Share> {
        let granted = std::mem::take(&mut self.granted);
        let (pool, bytes) = self.pool_of(wanted);
        if pool.owns(&granted) && pool.suffices(granted.bytes(), bytes) {
            return Some(granted);
        }
        let share = pool.try_take(&self.claimant, bytes);
        if share.is_none() {
            self.wanted = Some(wanted);
        }
        share
    }

    /// The bytes of room for output that a search waits for; see [`Session::granted_room`].
    pub(crate) fn wants_room(&self) -> Option<usize> {
        let needed = self.searches.needed_max()?;
        // Nobody waits for room while holding what is not written.
        (self.is_written() && !self.would_fit(needed) && self.then != Then::Close).then_some(needed)
    }

    /// The room that [`Session::wants_room`] asked for is there.
    pub(crate) fn granted_room(&mut self, share: Share) {
        self.room.add(share);
    }

    /// TLS protects the connection from now on; what was received before is dropped, for it may have been slipped in by others.
    pub(crate) fn secured(&mut self) {
        self.channel.is_under_tls = true;
        self.input.clear();
        self.input_needed = 0;
        self.then = Then::Continue;
    }

    /// The peer sends nothing more: what is under way is finished, then the session ends. If there are requests that
    /// cannot be taken yet, that is told again when they have been.
    pub(crate) fn peer_closed(&mut self) {
        if !self.wants_input() && self.hashing.is_none() {
            self.has_seen_end = true;
            return;
        }
        self.draining = Some(Draining::PeerClosed);
        self.input.clear();
        self.input_needed = 0;
        self.wanted = None;
        self.stop_hashing();
    }

    /// Decodes and does every complete request that there is room for, then goes on with the searches under way. Requests
    /// come first: one of them may abandon a search.
    pub(crate) fn process(&mut self) {
        self.service.renew(&mut self.settings);
        if let Identity::User { entry, .. } = self.identity
            && self.deletions != self.service.directory.deletions()
        {
            self.check_user(entry);
        }
        // One short request by itself mostly does with the room that is free.
        if self.input.len() > INPUT_FREE_BYTES || !self.is_idle() || !self.output.is_empty() {
            self.reserve_room();
        }
        self.turn_used = false;
        if self.lburp.is_ready() && self.takes_requests() {
            let mut unit = Unit::default();
            self.take_kept(&mut unit);
            self.submit(unit);
        }
        if !self.input.is_empty() && self.takes_requests() {
            self.take_burst();
        }
        if !self.input.is_empty() && self.must_read_on() {
            self.read_on();
        }
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
    }

    fn take_burst(&mut self) {
        let input = std::mem::take(&mut self.input);
        let mut burst = Burst::default();
        self.now = None;
        if self.output.capacity() == 0 {
            self.output.reserve_exact(OUTPUT_FIRST_BYTES);
        }
        let mut taken = 0;
        (self.input_needed, self.heeded) = (0, 0);
        while taken < input.len() {
            if !self.has_room() {
                self.reserve_room();
            }
            if self.turn_used || !self.takes_requests() {
                break;
            }
            let next = match self.next_request(&input[taken..], &mut burst) {
                Ok(Some(next)) => next,
                Ok(None) => break,
                Err(malformed) => {
                    self.not_a_message(&malformed);
                    break;
                }
            };
            let length = next.bytes.len();
            if !self.request(next, &mut burst) {
                break;
            }
            taken += length;
        }
        let Burst {
            coming,
            snapshot,
            searches,
            unit,
        } = burst;
        self.submit(unit);
        drop((coming, searches));
        if let Some(snapshot) = snapshot {
            self.last_snapshot.0.set(snapshot.end());
        }
        self.input = input;
        self.input.drain(..taken);
        if self.then == Then::Close {
            self.input.clear();
        }
    }

    /// Takes in what another thread has finished. [`Session::process`] goes on.
    pub(crate) fn complete(&mut self, completion: Completion) {
        match completion {
            Completion::Updated { homes, answers } => {
                self.answers_due -= answers.len();
                self.left(homes, answers.len());
                for (reply, outcome) in answers {
                    // That of a bulk update is removed with the last of its operations.
                    if !matches!(reply.form, Form::LburpUpdate { .. }) {
                        self.updating.remove(&reply.id);
                    }
                    self.answer_update(reply, outcome);
                }
            }
            Completion::Verified { id, verdict } => self.verified(id, verdict),
            Completion::MakeRoom => self.make_room(),
            Completion::Stop => {
                self.draining = self.draining.or(Some(Draining::ServerStops));
                self.wanted = None;
                self.stop_hashing();
                self.stop_searches();
            }
            Completion::Hashed(hashed) => self.hashed(*hashed),
            Completion::Prepared(prepared) => self.prepared(*prepared),
            Completion::LburpHashed(hashed) => self.lburp_hashed(*hashed),
        }
    }

    fn unsent_bytes(&self) -> usize {
        self.output.len() - self.written
    }

    /// Bytes of output that the session may hold.
    fn room(&self) -> usize {
        OUTPUT_FREE_BYTES + self.room.bytes()
    }

    /// The part of the room that is not kept for the answers of updates.
    fn open_room(&self) -> usize {
        self.room()
            .saturating_sub(self.answers_due * UPDATE_ANSWER_BYTES)
    }

    /// Tries to have room for a full output and the answers of the updates under way; whether there is more than before.
    fn reserve_room(&mut self) -> bool {
        let output_bytes_max = self.settings.config.limits.output_bytes_max;
        let wanted = output_bytes_max + self.answers_due * UPDATE_ANSWER_BYTES;
        if self.room() >= wanted {
            return false;
        }
        let more = (wanted - self.room()).next_multiple_of(ROOM_BYTES);
        let share = self
            .service
            .memory
            .answers
            .try_take_extra(&self.claimant, more);
        let taken = share.is_some();
        self.room.add(share.unwrap_or_default());
        taken
    }

    /// When the burst came.
    fn now(&mut self) -> Instant {
        *self.now.get_or_insert_with(Instant::now)
    }

    /// Whether there is room for the answer of one more request.
    fn has_room(&self) -> bool {
        let unsent = self.unsent_bytes();
        self.flushed
            && unsent < self.settings.config.limits.output_bytes_max
            && unsent + UPDATE_ANSWER_BYTES <= self.open_room()
    }

    fn takes_requests(&self) -> bool {
        self.then == Then::Continue
            && self.draining.is_none()
            && self.exclusive.is_none()
            && self.wanted.is_none()
            && self.has_room()
            && !self.searches.is_full()
            && !self.waits_for_room()
            && self.updating.len() < self.settings.config.limits.operations_max
    }

    fn message_bytes_max(&self) -> usize {
        let limits = &self.settings.config.limits;
        if self.is_anonymous() {
            limits.message_bytes_max_anonymous
        } else {
            limits.message_bytes_max
        }
    }

    /// Does one request; `false` when it has to wait until what is under way has been answered.
    fn request(&mut self, request: Coming<'_>, burst: &mut Burst<'_>) -> bool {
        let Coming {
            bytes,
            message,
            search,
        } = request;
        let message = match message {
            Ok(message) => message,
            Err(DecodeError::Malformed(malformed)) => {
                self.not_a_message(&malformed);
                return true;
            }
            Err(DecodeError::Refused {
                id,
                operation,
                violation,
            }) => {
                self.answer(
                    id,
                    operation,
                    &Outcome::new(violation.code(), violation.to_string()),
                );
                return true;
            }
            Err(error) => {
                self.disconnect(
                    Reason::Malformed,
                    ResultCode::ProtocolError,
                    &error.to_string(),
                );
                return true;
            }
        };
        let extended = match &message.op {
            Request::Extended(request) => extended::find(request.name),
            _ => None,
        };
        let is_exclusive = matches!(message.op, Request::Bind(_))
            || extended.is_some_and(|extended| extended.is_exclusive);
        if is_exclusive && !(self.is_idle() && burst.unit.updates.is_empty()) {
            return false;
        }
        if let Request::Extended(request) = &message.op
            && self.overtakes(self.homes_of_end(request), &burst.unit)
        {
            return false;
        }
        let (id, operation) = (message.id, message.op.operation());
        let read;
        let controls = if message.controls.is_empty() {
            &RequestControls::NONE
        } else {
            match self.read_controls(&message, extended) {
                Ok(controls) => {
                    read = controls;
                    self.heed_controls(id, &read);
                    &read
                }
                Err(outcome) => {
                    self.answer(id, operation, &outcome);
                    return true;
                }
            }
        };
        match message.op {
            Request::Bind(request) => self.bind(id, &request),
            Request::Unbind => self.then = Then::Close,
            Request::Search(request) => {
                return self.search(&message, &request, controls, bytes, search, burst);
            }
            Request::Compare(request) => {
                return self.compare(&message, &request, controls, bytes, burst);
            }
            Request::Abandon(abandoned) => self.abandon(abandoned),
            Request::Extended(request) => {
                return self.extended(id, &request, extended, controls, burst);
            }
            Request::Add(_) | Request::Modify(_) | Request::Delete(_) | Request::ModifyDn(_) => {
                return self.update(bytes, &message, controls, burst);
            }
        }
        true
    }

    /// Appends the response that ends an operation, if it has one.
    fn answer(&mut self, id: u32, operation: Operation, outcome: &Outcome) {
        let mut referrals = OctetStringsBuf::default();
        if let Some(response) = Response::of_result(operation, result(outcome, &mut referrals)) {
            self.log_result(id, operation, outcome);
            self.queue_length = self.queue_length.saturating_sub(1);
            let controls = self.response_controls(id, &outcome.controls);
            let controls = Controls::from_ber(&controls).unwrap_or_default();
            Message {
                id,
                op: response,
                controls,
            }
            .encode(&mut self.output);
        }
    }

    /// Tells the peer why the connection ends (RFC 4511 §4.4.1), and ends it. Nothing is answered after it.
    fn disconnect(&mut self, reason: Reason, code: ResultCode, diagnostic: &str) {
        self.service.closings.log(reason, &self.peer, diagnostic);
        if self.settings.config.log.access {
            tracing::info!(target: "access", conn = self.number, code = code.code(), diagnostic = %shortened(diagnostic), "disconnect");
        }
        notice_of_disconnection(&mut self.output, code, diagnostic);
        self.sends_on = matches!(
            reason,
            Reason::TooLong | Reason::Malformed | Reason::Stalled
        );
        self.end();
    }

    /// What came is no LDAP message, or a longer one than is taken.
    fn not_a_message(&mut self, malformed: &Malformed) {
        let (reason, diagnostic) = match malformed {
            Malformed::TooLarge { bytes, bytes_max } => {
                let setting = if self.is_anonymous() {
                    "limits.message_bytes_max_anonymous, before a bind"
                } else {
                    "limits.message_bytes_max"
                };
                let diagnostic = format!(
                    "a request has {bytes} bytes, and may have at most {bytes_max} ({setting})"
                );
                (Reason::TooLong, diagnostic)
            }
            other => (Reason::Malformed, other.to_string()),
        };
        self.disconnect(reason, ResultCode::ProtocolError, &diagnostic);
    }

    /// Nothing more is taken or worked on.
    fn end(&mut self) {
        self.searches.clear();
        self.wanted = None;
        self.then = Then::Close;
    }

    fn log_result(&self, id: u32, operation: Operation, outcome: &Outcome) {
        if self.settings.config.log.access {
            let diagnostic = log::diagnostic(outcome);
            let code = outcome.code.code();
            tracing::info!(target: "access", conn = self.number, id, code, %diagnostic, "{} ends", operation.name());
        }
    }
}

/// Appends a Notice of Disconnection (RFC 4511 §4.4.1).
pub(crate) fn notice_of_disconnection(out: &mut Vec<u8>, code: ResultCode, diagnostic: &str) {
    let op = Response::Extended(ExtendedResponse {
        result: LdapResult::new(code, diagnostic),
        name: Some(oids::NOTICE_OF_DISCONNECTION),
        value: None,
    });
    Message {
        id: 0,
        op,
        controls: Controls::EMPTY,
    }
    .encode(out);
}

/// What is gathered while the requests of one burst are decoded.
#[derive(Default)]
struct Burst<'i> {
    /// The requests that come next, as far as was looked ahead.
    coming: VecDeque<Coming<'i>>,
    snapshot: Option<Snapshot>,
    searches: Option<Searches>,
    unit: Unit,
}

impl Burst<'_> {
    /// The one snapshot that the reads of the burst run on.
    fn snapshot(&mut self, session: &Session) -> Result<&Snapshot, Outcome> {
        let snapshot = match self.snapshot.take() {
            Some(snapshot) => snapshot,
            None => session.last_snapshot.next(&session.service)?,
        };
        Ok(self.snapshot.insert(snapshot))
    }
}

/// An outcome as LDAPResult; `referrals` keeps the URLs.
fn result<'a>(outcome: &'a Outcome, referrals: &'a mut OctetStringsBuf) -> LdapResult<'a> {
    for url in &outcome.referrals {
        referrals.push(url.as_bytes());
    }
    LdapResult {
        code: outcome.code,
        matched_dn: &outcome.matched_dn,
        diagnostic: &outcome.diagnostic,
        referral: (!outcome.referrals.is_empty()).then(|| referrals.view()),
    }
}
