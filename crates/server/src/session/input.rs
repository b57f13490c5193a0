//! What comes: requests are decoded, a burst at a time, and each is begun.

use std::collections::VecDeque;
use std::time::Instant;

use sapwood_directory::engine::Engine;
use sapwood_directory::{Outcome, Searches, Snapshot};
use sapwood_ldap::controls::RequestControls;
use sapwood_ldap::error::{DecodeError, Malformed};
use sapwood_ldap::extended::START_TLS;
use sapwood_ldap::message::Request;
use sapwood_ldap::result::ResultCode;

use super::output::OUTPUT_FIRST_BYTES;
use super::password_policy::changes_password_only;
use super::prefetch::Coming;
use super::reply::Unit;
use super::{Draining, Reader, Session, Then, extended};
use crate::closing::Reason;
use crate::memory::{INPUT_BYTES, INPUT_FREE_BYTES};

/// What was received.
#[derive(Default)]
pub(super) struct Input {
    /// What was not decoded yet: the start of a request at most, between bursts.
    pub(super) bytes: Vec<u8>,
    /// Bytes that the request at the start needs to be complete.
    pub(super) needed: usize,
    /// Bytes that were looked through for what ends searches.
    pub(super) scanned: usize,
    /// The peer's end was read before requests that came before it were taken.
    pub(super) has_seen_end: bool,
    /// When the burst came, if somebody has asked.
    now: Option<Instant>,
}

impl<E: Engine> Session<E> {
    /// Where received bytes are appended.
    pub(crate) fn input(&mut self) -> &mut Vec<u8> {
        &mut self.input.bytes
    }

    /// Bytes that the request being received needs in all, as far as is known.
    pub(crate) fn input_needed(&self) -> usize {
        self.input.needed
    }

    /// Whether more requests can be taken: there is room for their answers, and nothing keeps them waiting.
    pub(crate) fn wants_input(&self) -> bool {
        self.takes_requests()
            && self.input.bytes.len() < INPUT_BYTES.max(self.input.needed)
            // Behind the end there is nothing to wait for before these are taken.
            && !(self.input.has_seen_end && self.first_bytes() > 0)
    }

    /// Whether what has come leaves room in what a connection may hold without a share.
    pub(crate) fn fits_free_input(&self) -> bool {
        self.input.bytes.len() < INPUT_FREE_BYTES
    }

    /// The peer sends nothing more: what is under way is finished, then the session ends. If there are requests that
    /// cannot be taken yet, that is told again when they have been.
    pub(crate) fn peer_closed(&mut self) {
        if !self.wants_input() && !self.is_hashing() {
            self.input.has_seen_end = true;
            return;
        }
        if self.leave_bind() {
            return;
        }
        // What they waited for has come, such as memory: they are taken next.
        if !self.is_hashing() && self.first_bytes() > 0 {
            self.input.has_seen_end = true;
            return;
        }
        self.draining = Some(Draining::PeerClosed);
        self.input.bytes.clear();
        self.input.needed = 0;
        self.operations.wanted = None;
        self.stop_hashing();
    }

    pub(super) fn take_burst(&mut self) {
        let input = std::mem::take(&mut self.input.bytes);
        let mut burst = Burst {
            snapshot: self.kept_for(Reader::Request),
            ..Burst::default()
        };
        self.input.now = None;
        if self.output.bytes.capacity() == 0 {
            self.output.bytes.reserve_exact(OUTPUT_FIRST_BYTES);
        }
        let mut taken = 0;
        (self.input.needed, self.input.scanned) = (0, 0);
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
                if self.settings.is_logged {
                    self.records.repeat();
                }
                break;
            }
            if self.has_read(length) {
                burst.snapshot = None;
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
        self.input.bytes = input;
        self.input.bytes.drain(..taken);
        self.end_burst(self.input.bytes.len());
        if self.then == Then::Close {
            self.input.bytes.clear();
        }
    }

    /// Does one request; `false` when it has to wait until what is under way has been answered.
    pub(super) fn request(&mut self, request: Coming<'_, E>, burst: &mut Burst<'_, E>) -> bool {
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
        if is_exclusive && self.has_persistent() {
            // RFC 4511 §4.2.1, §4.14.1: nothing is under way when they begin.
            match &message.op {
                Request::Bind(_) => self.end_persistent("a bind ends persistent searches"),
                Request::Extended(request) if request.name == START_TLS => {
                    self.end_persistent("StartTLS ends persistent searches");
                }
                _ => {}
            }
        }
        if is_exclusive && !(self.is_idle() && burst.unit.updates.is_empty()) {
            return false;
        }
        if let Request::Extended(request) = &message.op
            && self.overtakes(self.shards_of_end(request), &burst.unit)
        {
            return false;
        }
        let (id, operation) = (message.id, message.op.operation());
        if self.settings.is_logged {
            self.begin_record(&message);
        }
        let read;
        let controls = if message.controls.is_empty() {
            &RequestControls::NONE
        } else {
            match self.read_controls(&message, extended) {
                Ok(controls) => {
                    read = controls;
                    self.apply_controls(id, &read);
                    &read
                }
                Err(outcome) => {
                    self.answer(id, operation, &outcome);
                    return true;
                }
            }
        };
        if self.context.must_change && !changes_password_only(&message.op) {
            let checked = self.check_must_change();
            if self.waits_for_fetch(Reader::Request) {
                return false;
            }
            if let Err(outcome) = checked {
                self.answer(id, operation, &outcome);
                return true;
            }
        }
        let by = match self.asker((id, &message.op), controls, burst) {
            Ok(by) => by,
            Err(outcome) => {
                if self.waits_for_fetch(Reader::Request) {
                    return false;
                }
                if let Some(outcome) = outcome {
                    self.answer(id, operation, &outcome);
                }
                return true;
            }
        };
        if self.settings.is_logged {
            self.log_acting(id, &by);
            self.record_controls(id, &by, controls);
        }
        if by.may_be_limited() {
            let checked = self.check_limits(&message.op, controls, &by, burst);
            if self.waits_for_fetch(Reader::Request) {
                return false;
            }
            if let Err(outcome) = checked {
                self.answer(id, operation, &outcome);
                return true;
            }
        }
        match message.op {
            Request::Bind(request) => return self.bind(id, &request, controls),
            Request::Unbind => self.then = Then::Close,
            Request::Search(request) => {
                return self.search(&message, &request, controls, &by, (bytes, search), burst);
            }
            Request::Compare(request) => {
                return self.compare(&message, &request, controls, &by, bytes, burst);
            }
            Request::Abandon(abandoned) => self.abandon(abandoned),
            Request::Extended(request) => {
                return self.extended(id, &request, extended, (controls, &by), burst);
            }
            Request::Add(_) | Request::Modify(_) | Request::Delete(_) | Request::ModifyDn(_) => {
                return self.update(bytes, &message, controls, &by, burst);
            }
        }
        true
    }

    pub(super) fn message_bytes_max(&self) -> usize {
        let limits = &self.settings.config.limits;
        if self.is_anonymous() {
            limits.message_bytes_max_anonymous
        } else {
            limits.message_bytes_max
        }
    }

    /// What came is no LDAP message, or a longer one than is taken.
    pub(super) fn not_a_message(&mut self, malformed: &Malformed) {
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

    /// When the burst came.
    pub(super) fn now(&mut self) -> Instant {
        *self.input.now.get_or_insert_with(Instant::now)
    }
}

/// What is gathered while the requests of one burst are decoded.
pub(super) struct Burst<'i, E: Engine> {
    /// The requests that come next, as far as was looked ahead.
    pub(super) coming: VecDeque<Coming<'i, E>>,
    pub(super) snapshot: Option<Snapshot<E>>,
    pub(super) searches: Option<Searches<E>>,
    pub(super) unit: Unit<E>,
}

impl<E: Engine> Default for Burst<'_, E> {
    fn default() -> Self {
        Burst {
            coming: VecDeque::new(),
            snapshot: None,
            searches: None,
            unit: Unit::default(),
        }
    }
}

impl<E: Engine> Burst<'_, E> {
    /// The one snapshot that the reads of the burst run on.
    pub(super) fn snapshot(&mut self, session: &Session<E>) -> Result<&Snapshot<E>, Outcome> {
        let snapshot = match self.snapshot.take() {
            Some(snapshot) => snapshot,
            None => session.newest(Reader::Request)?,
        };
        Ok(self.snapshot.insert(snapshot))
    }
}
