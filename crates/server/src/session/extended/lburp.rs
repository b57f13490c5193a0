//! Bulk updates: LBURP (RFC 4373), with the incremental update style.
//!
//! The operations of an update request go to the writer as one part of the burst, so that they share commits; each is
//! judged as if it had been sent alone. A request that comes before its turn is kept, in the memory of transactions,
//! until those before it have come.

use std::collections::{HashMap, VecDeque};
use std::time::Instant;

use sapwood_directory::engine::Engine;
use sapwood_directory::{Outcome, StoreSet, UpdateRequest};
use sapwood_ldap::controls::{
    Control, ControlSet, Controls, KnownControl, RequestControls, TRANSACTION_SPECIFICATION,
};
use sapwood_ldap::error::{PartError, Violation};
use sapwood_ldap::extended::{
    self as oids, EndLburp, LburpUpdate, OperationResultsBuf, StartLburp, UpdateOperation,
    next_sequence_number, put_max_operations,
};
use sapwood_ldap::limits::INTEGER_MAX;
use sapwood_ldap::list::OctetStringsBuf;
use sapwood_ldap::message::Request;
use sapwood_ldap::result::ResultCode;

use super::{Call, ExtendedOperation};
use crate::memory::Share;
use crate::session::bind::stopped;
use crate::session::log::{self, LoggedName};
use crate::session::output::{BRIEF_TEXT_BYTES, UPDATE_ANSWER_BYTES, brief};
use crate::session::record::Record;
use crate::session::reply::{Reply, ReplyKind, Unit};
use crate::session::update::{UPDATE_BYTES, may_depend, target_dn};
use crate::session::{Completion, Session, Wanted, result};

pub(super) const fn operations<E: Engine>() -> &'static [ExtendedOperation<E>] {
    const {
        &[
            operation(oids::START_LBURP, oids::START_LBURP_RESPONSE),
            operation(oids::END_LBURP, oids::END_LBURP_RESPONSE),
            operation(oids::LBURP_UPDATE, oids::LBURP_UPDATE_RESPONSE),
        ]
    }
}

const fn operation<E: Engine>(oid: &'static str, response: &'static str) -> ExtendedOperation<E> {
    ExtendedOperation {
        oid,
        // RFC 4373 §9.1 registers it so.
        response: Some(response),
        works_on: |_| true,
        needs: None,
        is_exclusive: false,
        takes: ControlSet::EMPTY,
        run: |session, call| session.lburp(call),
    }
}

/// A request whose number is this far ahead of the one that is missing is refused.
const AHEAD_MAX: u32 = 64;
/// Bytes of a text of an operation's result.
const FAILED_TEXT_BYTES_MAX: usize = 512;
/// Bytes that a request which is kept counts for besides its own.
const KEPT_BYTES: usize = 256;

/// The bulk update of a session.
#[derive(Default)]
pub(in crate::session) struct Lburp {
    /// From its start to the response to its end.
    stream: Option<UpdateStream>,
    /// Requests whose operations are under way, the oldest first.
    under_way: VecDeque<UnderWay>,
    /// How many there were.
    requests: u64,
    /// The one whose passwords are being hashed.
    hashing: Option<Hashing>,
}

/// What has come of an update stream.
struct UpdateStream {
    /// The number of the request that is next.
    next: u32,
    /// Requests that came before their turn, by number.
    kept: HashMap<u32, Kept>,
    kept_bytes: usize,
    /// The number and the message id of the end.
    end: Option<(u32, u32)>,
    /// When the last request came.
    last_used: Instant,
}

/// An update request that waits for those before it.
struct Kept {
    id: u32,
    value: Vec<u8>,
    share: Share,
    /// What it counts for.
    bytes: usize,
}

/// An update request with operations that are not done.
struct UnderWay {
    request: u64,
    id: u32,
    /// Operations that are not done.
    left: usize,
    operations: usize,
    failed: Vec<(u32, Outcome)>,
}

/// Operations of an update request some of which have passwords to be hashed.
struct Hashing {
    request: u64,
    id: u32,
    /// In reverse: the next one is the last.
    to_do: Vec<Accepted>,
    done: Vec<Accepted>,
    share: ListShare,
}

/// An operation that can go to the writer.
struct Accepted {
    /// Its place in the list, from 1.
    number: u32,
    request: UpdateRequest,
    shards: StoreSet,
    has_cleartext: bool,
    /// What is recorded of it.
    record: Option<Box<Record>>,
}

/// What holds the memory of an update request on its way to the writer.
enum ListShare {
    /// A share of the writer's queue.
    Queue(Share),
    /// A share of the memory of transactions, where the request was kept.
    Kept(Share),
}

impl Lburp {
    pub(in crate::session) fn is_open(&self) -> bool {
        self.stream.is_some()
    }

    /// Whether the message id is that of an update request that waits for those before it.
    pub(in crate::session) fn keeps(&self, id: u32) -> bool {
        let stream = self.stream.iter();
        let mut kept = stream.flat_map(|stream| stream.kept.values());
        kept.any(|kept| kept.id == id)
    }

    /// Whether a request that was kept is next.
    pub(in crate::session) fn is_ready(&self) -> bool {
        let stream = self.stream.as_ref();
        stream.is_some_and(|stream| stream.kept.contains_key(&stream.next))
    }

    /// Since when a request is missing that others wait for.
    pub(in crate::session) fn waits_since(&self) -> Option<Instant> {
        let stream = self.stream.as_ref()?;
        let waits = !stream.kept.is_empty() || stream.end.is_some();
        (waits && self.under_way.is_empty() && self.hashing.is_none()).then_some(stream.last_used)
    }
}

impl UpdateStream {
    /// How far a number is ahead of the next one.
    fn distance(&self, number: u32) -> u32 {
        if number >= self.next {
            number - self.next
        } else {
            INTEGER_MAX - self.next + number
        }
    }

    /// Why a request with this number cannot be taken, now or later.
    fn check(&self, number: u32) -> Result<(), Outcome> {
        let reason = match self.end {
            _ if self.distance(number) >= AHEAD_MAX => format!(
                "the sequence number {number} is neither the next one, {}, nor among the {} behind it",
                self.next,
                AHEAD_MAX - 1
            ),
            Some((end, _)) if self.distance(number) >= self.distance(end) => {
                format!("the sequence number {number} is not before that of the end, {end}")
            }
            _ if self.kept.contains_key(&number) => {
                format!("the sequence number {number} was used before")
            }
            _ => return Ok(()),
        };
        Err(Outcome::new(ResultCode::OperationsError, reason))
    }
}

impl<E: Engine> Session<E> {
    /// `false` when it has to wait until what is under way has been answered, or for memory.
    fn lburp(&mut self, call: Call<'_, '_, '_, E>) -> bool {
        let (id, value) = (call.id, call.value.unwrap_or_default());
        let (name, refusal) = match call.oid {
            oids::START_LBURP => (oids::START_LBURP_RESPONSE, self.start_lburp(id, value)),
            oids::END_LBURP => (oids::END_LBURP_RESPONSE, self.end_lburp(id, value)),
            _ => match self.update_request(id, value, &mut call.burst.unit) {
                Ok(is_taken) => return is_taken,
                Err(refusal) => (oids::LBURP_UPDATE_RESPONSE, Err(refusal)),
            },
        };
        if let Err(refusal) = refusal {
            self.answer_extended(id, &refusal, Some(name), None);
        }
        true
    }

    /// RFC 4373 §5.1.
    fn start_lburp(&mut self, id: u32, value: &[u8]) -> Result<(), Outcome> {
        let start = StartLburp::decode(value).map_err(|error| malformed(&error))?;
        if self.is_anonymous() {
            let reason = "a bulk update needs a bind with a name and a password first";
            return Err(Outcome::new(ResultCode::StrongerAuthRequired, reason));
        }
        if self.operations.lburp.is_open() {
            let reason = "a bulk update is open: end it first";
            return Err(Outcome::new(ResultCode::OperationsError, reason));
        }
        if !self.operations.transactions.is_empty() {
            let reason = "a transaction is open: end it first";
            return Err(Outcome::new(ResultCode::OperationsError, reason));
        }
        if start.update_style != oids::LBURP_INCREMENTAL {
            let reason = format!(
                "the update style {} is not known, {} is",
                start.update_style,
                oids::LBURP_INCREMENTAL
            );
            return Err(Outcome::new(ResultCode::UnwillingToPerform, reason));
        }
        self.operations.lburp.stream = Some(UpdateStream {
            next: 1,
            kept: HashMap::new(),
            kept_bytes: 0,
            end: None,
            last_used: self.now(),
        });
        let mut value = Vec::new();
        put_max_operations(&mut value, self.operations_max());
        let name = Some(oids::START_LBURP_RESPONSE);
        self.answer_extended(id, &Outcome::SUCCESS, name, Some(&value));
        Ok(())
    }

    /// Most operations of one update request.
    fn operations_max(&self) -> u32 {
        let operations_max = self.settings.config.limits.lburp_operations_max;
        u32::try_from(operations_max).map_or(INTEGER_MAX, |max| max.min(INTEGER_MAX))
    }

    fn open_stream(&mut self) -> Result<&mut UpdateStream, Outcome> {
        let now = self.now();
        let Some(stream) = &mut self.operations.lburp.stream else {
            let reason = "no bulk update is open: start it first";
            return Err(Outcome::new(ResultCode::OperationsError, reason));
        };
        stream.last_used = now;
        Ok(stream)
    }

    /// RFC 4373 §5.5. It is answered when all that comes before it has been.
    fn end_lburp(&mut self, id: u32, value: &[u8]) -> Result<(), Outcome> {
        let end = EndLburp::decode(value).map_err(|error| malformed(&error))?;
        let number = end.sequence_number;
        let stream = self.open_stream()?;
        if stream.end.is_some() {
            let reason = "the end of the bulk update was asked for before";
            return Err(Outcome::new(ResultCode::OperationsError, reason));
        }
        stream.check(number)?;
        let ahead = stream.distance(number);
        if stream.kept.keys().any(|kept| stream.distance(*kept) > ahead) {
            let reason = format!("requests behind the sequence number {number} have come");
            return Err(Outcome::new(ResultCode::OperationsError, reason));
        }
        stream.end = Some((number, id));
        self.end_if_done();
        Ok(())
    }

    /// Answers the end of the bulk update once nothing is left before it.
    fn end_if_done(&mut self) {
        let lburp = &mut self.operations.lburp;
        let is_done = |stream: &mut UpdateStream| {
            let end = stream.end.filter(|(number, _)| *number == stream.next);
            end.map(|(_, id)| id)
        };
        if lburp.under_way.is_empty()
            && lburp.hashing.is_none()
            && let Some(id) = lburp.stream.as_mut().and_then(is_done)
        {
            lburp.stream = None;
            let name = Some(oids::END_LBURP_RESPONSE);
            self.answer_extended(id, &Outcome::SUCCESS, name, None);
        }
    }

    /// RFC 4373 §5.3. `false` when it has to wait.
    fn update_request(
        &mut self,
        id: u32,
        value: &[u8],
        unit: &mut Unit<E>,
    ) -> Result<bool, Outcome> {
        let stream = self.open_stream()?;
        // A request whose number can be read has its place in the stream, whatever else is wrong with it.
        let number = LburpUpdate::sequence_number(value).map_err(|error| malformed(&error))?;
        stream.check(number)?;
        if number != stream.next {
            self.keep(id, number, value)?;
            return Ok(true);
        }
        if !self.take_operations(id, value, None, unit) {
            return Ok(false);
        }
        self.take_kept(unit);
        Ok(true)
    }

    /// Keeps a request until it is its turn.
    fn keep(&mut self, id: u32, number: u32, value: &[u8]) -> Result<(), Outcome> {
        // It has the memory of its operations from now on: in its turn they go to the writer's queue, which asks for
        // none. A list that cannot be read is refused then, and has none.
        let operations = operations_of(value, self.operations_max() as usize);
        let operations = operations.map_or(0, |operations| operations.len());
        let bytes = value.len() + KEPT_BYTES + operations * UPDATE_BYTES;
        let bytes_max = self.settings.config.limits.transaction_bytes_max;
        let share = self
            .service
            .memory
            .transactions
            .try_take(&self.context.claimant, bytes);
        let stream = self.open_stream()?;
        let refused = |code, reason: String| {
            let reason = format!(
                "{reason}: send it again when the request {} has come",
                stream.next
            );
            Err(Outcome::new(code, reason))
        };
        if stream.kept_bytes + bytes > bytes_max {
            let reason = format!(
                "requests that came before their turn have more than {bytes_max} bytes (transaction_bytes_max)"
            );
            return refused(ResultCode::AdminLimitExceeded, reason);
        }
        let Some(share) = share.filter(|share| share.bytes() >= bytes) else {
            let reason = "memory for requests that came before their turn is short (open_transactions_bytes_max)";
            return refused(ResultCode::Busy, reason.to_owned());
        };
        let kept = Kept {
            id,
            value: value.to_vec(),
            share,
            bytes,
        };
        stream.kept.insert(number, kept);
        stream.kept_bytes += bytes;
        Ok(())
    }

    /// Does the request that was kept and is next, if there is one. Another one behind it has a turn of its own.
    pub(in crate::session) fn take_kept(&mut self, unit: &mut Unit<E>) {
        if self.takes_requests()
            && let Some(stream) = &mut self.operations.lburp.stream
            && let number = stream.next
            && let Some(mut kept) = stream.kept.remove(&number)
        {
            let is_taken = self.take_operations(kept.id, &kept.value, Some(&mut kept.share), unit);
            let Some(stream) = &mut self.operations.lburp.stream else {
                return;
            };
            if !is_taken {
                stream.kept.insert(number, kept);
                return;
            }
            stream.kept_bytes -= kept.bytes;
            self.turn_used |= self.operations.lburp.is_ready();
        }
        self.end_if_done();
    }

    /// Takes the next request of the stream; `false` when it has to wait.
    fn take_operations(
        &mut self,
        id: u32,
        value: &[u8],
        kept: Option<&mut Share>,
        unit: &mut Unit<E>,
    ) -> bool {
        let operations = match operations_of(value, self.operations_max() as usize) {
            Ok(operations) => operations,
            // RFC 4373 §5.4: none of them is done.
            Err(refusal) => {
                self.advance();
                let name = Some(oids::LBURP_UPDATE_RESPONSE);
                self.answer_extended(id, &refusal, name, None);
                return true;
            }
        };
        let shards = self.shards_of_operations(&operations);
        if shards.iter().any(|shards| self.overtakes(*shards, unit)) {
            return false;
        }
        let share = match kept {
            // It keeps the memory that it has.
            Some(share) => ListShare::Kept(std::mem::take(share)),
            None => {
                let wanted = Wanted::Update(value.len() + operations.len() * UPDATE_BYTES);
                match self.share(wanted) {
                    Some(share) => ListShare::Queue(share),
                    None => return false,
                }
            }
        };
        self.advance();
        let mut failed = Vec::new();
        let mut accepted = Vec::with_capacity(operations.len());
        let count = operations.len();
        for ((number, operation), shards) in (1..).zip(operations).zip(shards) {
            match self.accept(id, number, operation, shards) {
                Ok(operation) => accepted.push(operation),
                Err(outcome) => self.operation_failed(id, number, outcome, &mut failed),
            }
        }
        self.operations.lburp.requests += 1;
        let request = self.operations.lburp.requests;
        self.operations.lburp.under_way.push_back(UnderWay {
            request,
            id,
            left: accepted.len(),
            operations: count,
            failed,
        });
        if accepted.iter().any(|operation| operation.has_cleartext) {
            // What came before goes first; what comes after waits.
            self.submit(std::mem::take(unit));
            accepted.reverse();
            self.operations.lburp.hashing = Some(Hashing {
                request,
                id,
                done: Vec::with_capacity(accepted.len()),
                to_do: accepted,
                share,
            });
            self.hash_next();
        } else if accepted.is_empty() {
            self.answer_if_done(request);
        } else {
            self.push_operations(request, id, accepted, share, unit);
        }
        true
    }

    fn advance(&mut self) {
        if let Some(stream) = &mut self.operations.lburp.stream {
            stream.next = next_sequence_number(stream.next);
        }
    }

    /// The stores that operations are to be applied in. Those of one list that may depend on each other have the same,
    /// so that their order stays.
    fn shards_of_operations(
        &self,
        operations: &[Result<UpdateOperation<'_>, Violation>],
    ) -> Vec<StoreSet> {
        let directory = &self.service.directory;
        if directory.stores() == 1 {
            return vec![StoreSet::FIRST; operations.len()];
        }
        let shards = operations.iter().map(|operation| match operation {
            Ok(operation) => directory.shards_of(&operation.op),
            Err(_) => StoreSet::default(),
        });
        let mut shards: Vec<StoreSet> = shards.collect();
        let mut distinct: Vec<StoreSet> = Vec::new();
        for own in &shards {
            if !distinct.contains(own) {
                distinct.push(*own);
            }
        }
        let depends = |one: &StoreSet| distinct.iter().any(|other| may_depend(*other, *one));
        if distinct.iter().any(depends) {
            let all = distinct.iter().copied();
            let all = all.fold(StoreSet::default(), StoreSet::with);
            shards.fill(all);
        }
        shards
    }

    /// What is refused at once is so as if the operation had been sent alone.
    fn accept(
        &self,
        id: u32,
        number: u32,
        operation: Result<UpdateOperation<'_>, Violation>,
        shards: StoreSet,
    ) -> Result<Accepted, Outcome> {
        let operation =
            operation.map_err(|violation| Outcome::new(violation.code(), violation.to_string()))?;
        self.log_operation(id, number, &operation.op);
        let mut record = self.record_of_part(id, number, &operation.op);
        if let Err(refused) = check_controls(operation.controls) {
            if let Some(record) = &mut record {
                record.settle(&refused);
            }
            return Err(refused);
        }
        let mut message = Vec::new();
        operation.put_message(&mut message, id);
        Ok(Accepted {
            number,
            request: UpdateRequest::Message(message),
            shards,
            has_cleartext: self.is_to_be_hashed(&operation.op),
            record,
        })
    }

    fn push_operations(
        &mut self,
        request: u64,
        id: u32,
        accepted: Vec<Accepted>,
        share: ListShare,
        unit: &mut Unit<E>,
    ) {
        let mut queued = match share {
            ListShare::Queue(share) => share,
            ListShare::Kept(share) => {
                unit.transactions.push(share);
                Share::default()
            }
        };
        let by = self.context.requester.clone();
        for operation in accepted {
            let kind = ReplyKind::LburpUpdate {
                request,
                operation: operation.number,
            };
            let record = operation.record;
            let reply = Reply { id, kind, record };
            let share = std::mem::take(&mut queued);
            self.push(
                (operation.request, &by),
                reply,
                operation.shards,
                share,
                unit,
            );
        }
    }

    /// Has the next operation with passwords in the clear hashed, one at a time so that others get their turn between
    /// them; when there are no more, all go on their way.
    fn hash_next(&mut self) {
        let Some(mut hashing) = self.operations.lburp.hashing.take() else {
            return;
        };
        if self.draining.is_some() {
            return self.refuse_hashing(hashing);
        }
        while let Some(operation) = hashing.to_do.pop() {
            if !operation.has_cleartext {
                hashing.done.push(operation);
                continue;
            }
            let Accepted {
                number,
                shards,
                mut record,
                ..
            } = operation;
            let session = self.completions.clone();
            let done = move |hashed: Result<UpdateRequest, Outcome>, _| {
                if let (Err(outcome), Some(record)) = (&hashed, &mut record) {
                    record.settle(outcome);
                }
                let hashed = hashed.map_err(|outcome| (number, outcome));
                let hashed = hashed.map(|request| Accepted {
                    number,
                    request,
                    shards,
                    has_cleartext: false,
                    record,
                });
                let _ = session.send(Completion::LburpHashed(Box::new(HashedOperation(hashed))));
            };
            let by = self.context.requester.clone();
            self.hash_request(hashing.id, (operation.request, &by), done);
            self.operations.lburp.hashing = Some(hashing);
            return;
        }
        let Hashing {
            request,
            id,
            done,
            share,
            ..
        } = hashing;
        let mut unit = Unit::default();
        self.push_operations(request, id, done, share, &mut unit);
        self.submit(unit);
        self.answer_if_done(request);
        self.end_if_done();
    }

    /// Does nothing of a request whose passwords are being hashed: its session ends.
    fn refuse_hashing(&mut self, hashing: Hashing) {
        let Hashing {
            request,
            to_do,
            done,
            ..
        } = hashing;
        for operation in done.into_iter().chain(to_do) {
            self.operation_done(request, operation.number, stopped());
        }
        self.answer_if_done(request);
        self.end_if_done();
    }

    /// The passwords of an operation have been hashed.
    pub(in crate::session) fn lburp_hashed(&mut self, hashed: HashedOperation) {
        self.end_hashing();
        let Some(hashing) = &mut self.operations.lburp.hashing else {
            return;
        };
        match hashed.0 {
            Ok(operation) => hashing.done.push(operation),
            Err((number, outcome)) => {
                let request = hashing.request;
                self.operation_done(request, number, outcome);
            }
        }
        self.hash_next();
    }

    /// An operation of an update request has its result, durable if it is success.
    pub(in crate::session) fn operation_done(
        &mut self,
        request: u64,
        number: u32,
        outcome: Outcome,
    ) {
        let under_way = &mut self.operations.lburp.under_way;
        // They were numbered as they came.
        let Ok(at) = under_way.binary_search_by_key(&request, |own| own.request) else {
            return;
        };
        under_way[at].left -= 1;
        if outcome.code != ResultCode::Success {
            let mut failed = std::mem::take(&mut under_way[at].failed);
            self.operation_failed(
                self.operations.lburp.under_way[at].id,
                number,
                outcome,
                &mut failed,
            );
            self.operations.lburp.under_way[at].failed = failed;
        }
        // One whose passwords are being hashed is answered when the last of them is.
        let hashing = self.operations.lburp.hashing.as_ref();
        if hashing.is_none_or(|hashing| hashing.request != request) {
            self.answer_if_done(request);
        }
    }

    fn operation_failed(
        &self,
        id: u32,
        operation: u32,
        outcome: Outcome,
        failed: &mut Vec<(u32, Outcome)>,
    ) {
        if self.settings.config.log.access {
            let diagnostic = log::diagnostic(&outcome);
            let (conn, code) = (self.context.number, outcome.code.code());
            tracing::info!(target: "access", conn, id, operation, code, %diagnostic, "LBURP operation fails");
        }
        // They are kept until all are done.
        failed.push((operation, brief(&outcome, FAILED_TEXT_BYTES_MAX)));
    }

    /// Answers an update request once all its operations are done (RFC 4373 §5.4).
    fn answer_if_done(&mut self, request: u64) {
        let under_way = &mut self.operations.lburp.under_way;
        let Ok(at) = under_way.binary_search_by_key(&request, |own| own.request) else {
            return;
        };
        if under_way[at].left > 0 {
            return;
        }
        let Some(mut done) = under_way.remove(at) else {
            return;
        };
        self.operations.updating.remove(&done.id);
        let name = Some(oids::LBURP_UPDATE_RESPONSE);
        if done.failed.is_empty() {
            self.answer_extended(done.id, &Outcome::SUCCESS, name, None);
        } else {
            done.failed.sort_unstable_by_key(|(number, _)| *number);
            let mut value = results_of(&done.failed);
            if !self.take_room(value.len() + UPDATE_ANSWER_BYTES) {
                // Which of them have failed, and how, without more words.
                for (_, outcome) in &mut done.failed {
                    *outcome = Outcome {
                        matched_dn: String::new(),
                        diagnostic: String::new(),
                        ..brief(outcome, BRIEF_TEXT_BYTES)
                    };
                }
                value = results_of(&done.failed);
            }
            let reason = format!(
                "{} of {} operations failed",
                done.failed.len(),
                done.operations
            );
            let outcome = Outcome::new(ResultCode::UnknownError, reason);
            self.answer_extended(done.id, &outcome, name, Some(&value));
        }
        self.end_if_done();
    }

    /// A bind ends the bulk update: what waits for its turn is not done.
    pub(in crate::session) fn abandon_lburp(&mut self) {
        let Some(stream) = self.operations.lburp.stream.take() else {
            return;
        };
        let outcome = Outcome::new(
            ResultCode::OperationsError,
            "a bind has ended the bulk update",
        );
        for kept in stream.kept.into_values() {
            let name = Some(oids::LBURP_UPDATE_RESPONSE);
            self.answer_extended(kept.id, &outcome, name, None);
        }
        if let Some((_, id)) = stream.end {
            let name = Some(oids::END_LBURP_RESPONSE);
            self.answer_extended(id, &outcome, name, None);
        }
    }

    fn log_operation(&self, id: u32, number: u32, op: &Request<'_>) {
        if self.settings.config.log.access {
            let schema = self.service.directory.schema();
            let dn = LoggedName::dn(&schema, target_dn(op));
            let (conn, name) = (self.context.number, op.operation().name());
            tracing::info!(target: "access", conn, id, operation = number, %dn, "LBURP {name}");
        }
    }
}

/// An operation whose passwords have been hashed, or its number and why they could not be.
pub(crate) struct HashedOperation(Result<Accepted, (u32, Outcome)>);

/// What a response tells of the operations that failed (RFC 4373 §5.4).
fn results_of(failed: &[(u32, Outcome)]) -> Vec<u8> {
    let mut results = OperationResultsBuf::default();
    for (number, outcome) in failed {
        let mut referrals = OctetStringsBuf::default();
        results.push(*number, &result(outcome, &mut referrals));
    }
    let mut value = Vec::new();
    results.encode(&mut value);
    value
}

/// The operations of a request, each with what it may break of the protocol by itself.
fn operations_of(
    value: &[u8],
    operations_max: usize,
) -> Result<Vec<Result<UpdateOperation<'_>, Violation>>, Outcome> {
    let update = LburpUpdate::decode(value).map_err(|error| malformed(&error))?;
    let mut operations = Vec::new();
    for operation in update.operations.iter() {
        if operations.len() >= operations_max {
            let reason = format!(
                "an update request has at most {operations_max} operations (maxOperations, lburp_operations_max)"
            );
            return Err(Outcome::new(ResultCode::ProtocolError, reason));
        }
        operations.push(match operation {
            Ok(operation) => Ok(operation),
            Err(PartError::Violation(violation)) => Err(violation),
            Err(error) => return Err(malformed(&error)),
        });
    }
    Ok(operations)
}

/// Refuses controls that cannot go with an operation: those that say something to the session, which has said it at the
/// start, and those whose answer has no place in an OperationResult.
fn check_controls(controls: Controls<'_>) -> Result<(), Outcome> {
    let takes = ControlSet::EMPTY
        .with(KnownControl::Assertion)
        .with(KnownControl::ManageDsaIt);
    // An update that was meant to be part of a transaction must not be done by itself.
    let controls = controls.iter().map(|control| Control {
        critical: control.critical || control.oid == TRANSACTION_SPECIFICATION,
        ..control
    });
    match RequestControls::read(controls, takes) {
        Ok(_) => Ok(()),
        Err(refused) => Err(Outcome::new(refused.code(), refused.to_string())),
    }
}

fn malformed(error: &PartError) -> Outcome {
    Outcome::new(ResultCode::ProtocolError, format!("LBURP: {error}"))
}
