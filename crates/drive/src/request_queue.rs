//! What a connection has in flight: requests are made here, and answers are checked.

use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;

use sapwood_client::{Error, OperationError};
use sapwood_ldap::ber::{self, Reader};
use sapwood_ldap::error::DecodeError;
use sapwood_ldap::message::{Operation, Response, ResponseMessage};
use sapwood_ldap::result::ResultCode;

use crate::interpreter::{Budget, Interpreter, Next, Weights};
use crate::mismatch::{self, EXAMPLES_MAX, Sent};
use crate::plan::{PlannedOperation, QUEUE_MAX, Session};
use crate::random::Random;
use crate::stats::Stats;
use crate::template::MESSAGE_ID_BASE;
use crate::transaction;
use crate::values::{CONNECTION, TRANSACTION, Values, Variable};

/// The bits of a message ID that tell requests in flight apart; those above count how often each was used.
const SLOT_BITS: u32 = 20;
const SLOTS_MAX: u32 = 1 << SLOT_BITS;
/// A transaction's start and end go beside the queue.
const _: () = assert!(QUEUE_MAX + 2 <= SLOTS_MAX);
const GENERATION_MIN: u32 = MESSAGE_ID_BASE >> SLOT_BITS;
const GENERATION_MAX: u32 = (1 << 11) - 1;

/// The part of a queue that is to be free before it is filled again: a few requests at a time cost a call to the system
/// and a packet each time, which is more than all else that is done for them.
const REFILLED_PART: u32 = 16;
/// Why an update failed that was answered well.
const NOT_COMMITTED: &str = "its transaction was not committed";
/// Transactions of a connection whose end is in flight when it begins another one: the server keeps all that is in them.
const ENDS_MAX: u32 = 1;

/// What all connections of a session share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) operations: Arc<Vec<PlannedOperation>>,
    pub(crate) variables: Arc<Vec<Variable>>,
    pub(crate) session: Session,
    pub(crate) weights: Weights,
    pub(crate) budget: Budget,
    /// The place of each operation's label.
    pub(crate) labels: Vec<usize>,
    /// The places of the labels of a transaction's start and end.
    pub(crate) start_label: usize,
    pub(crate) end_label: usize,
    /// Under which errors of connections are counted.
    pub(crate) connection_label: usize,
    pub(crate) queue: u32,
    pub(crate) transaction: Option<u32>,
    /// From one operation of a connection to its next, in nanoseconds.
    pub(crate) period_ns: Option<u64>,
    pub(crate) answer_timeout: Duration,
}

/// The requests in flight, and where the next ones come from.
pub(crate) struct RequestQueue {
    shared: Arc<Shared>,
    interpreter: Interpreter,
    random: Random,
    values: Values,
    /// The pass of a group in which each variable got its value.
    drawn: Vec<u64>,
    in_flight: Vec<InFlight>,
    free: Vec<u32>,
    /// Operations of the plan in flight.
    planned_in_flight: u32,
    transaction: Transaction,
    /// The number of the one that was begun last.
    number: u8,
    /// Transactions that are open or ending.
    ledgers: Vec<Ledger>,
    /// Transactions whose end is in flight.
    ends: u32,
    /// The next transaction is asked for right behind the end of the last, which not every server allows.
    starts_early: bool,
    /// Nothing is sent before every answer has come.
    is_waiting: bool,
    /// An operation that waits for that.
    held: Option<usize>,
    /// Nothing more will be sent.
    is_done: bool,
    /// When the next operation is due, if there is a rate.
    due_ns: u64,
}

/// What became of the transaction of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Transaction {
    None,
    Starting,
    /// So many operations are still to be sent in it.
    Open(u32),
}

/// The number of no transaction.
const OUTSIDE: u8 = 0;

/// What was answered well in a transaction, and is to be taken back if it is not committed.
#[derive(Debug)]
struct Ledger {
    number: u8,
    /// The place of the request that ends it.
    end: Option<usize>,
    /// By the place of their label.
    answered: Vec<u64>,
}

impl Ledger {
    /// The labels of what was answered well, and how often.
    fn counts(&self) -> impl Iterator<Item = (usize, u64)> {
        let counts = self.answered.iter().copied().enumerate();
        counts.filter(|(_, count)| *count > 0)
    }
}

/// A request in flight.
#[derive(Debug, Default)]
struct InFlight {
    generation: u32,
    kind: RequestKind,
    /// When it was due, in nanoseconds since the phase began.
    due_ns: u64,
    entries: u64,
    /// The value that an entry must have, until one has it.
    expected: Vec<u8>,
    is_expecting: bool,
    /// What an entry has in its place.
    found: String,
    sent: Sent,
    /// The number of the transaction it belongs to.
    transaction: u8,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum RequestKind {
    /// The slot is free.
    #[default]
    Free,
    Planned(usize),
    Start,
    End,
}

impl RequestQueue {
    pub(crate) fn new(shared: Arc<Shared>, number: u32, seed: u64) -> Self {
        let variables = shared.variables.len();
        let mut values = Values::new(variables);
        if let Some(value) = values.slot(CONNECTION) {
            value.set(number.to_string().as_bytes());
        }
        RequestQueue {
            interpreter: Interpreter::default(),
            random: Random::new(seed, u64::from(number)),
            values,
            drawn: vec![0; variables],
            in_flight: Vec::new(),
            free: Vec::new(),
            planned_in_flight: 0,
            transaction: Transaction::None,
            number: OUTSIDE,
            ledgers: Vec::new(),
            ends: 0,
            starts_early: true,
            is_waiting: false,
            held: None,
            is_done: false,
            due_ns: 0,
            shared,
        }
    }

    pub(crate) fn shared(&self) -> &Shared {
        &self.shared
    }

    /// Says when the first operation is due, if there is a rate.
    pub(crate) fn begin(&mut self, first_ns: u64) {
        self.due_ns = first_ns;
    }

    /// Nothing more will be sent.
    pub(crate) fn is_done(&self) -> bool {
        self.is_done
    }

    /// The connection is gone: nothing of what is in flight will be answered.
    pub(crate) fn give_up(&self, reason: &str, stats: &mut Stats) {
        for request in &self.in_flight {
            if let RequestKind::Planned(operation) = request.kind {
                let label = self.shared.labels[operation];
                stats.fail(label, format!("no answer: {reason}"), 1);
            }
        }
        for (label, count) in self.ledgers.iter().flat_map(Ledger::counts) {
            let reason = format!("the end of its transaction was not answered: {reason}");
            stats.fail(label, reason, count);
        }
        stats.fail(self.shared.connection_label, reason.to_owned(), 1);
    }

    /// Puts requests until the queue is full.
    pub(crate) fn fill(&mut self, now_ns: u64, end_ns: u64, out: &mut Vec<u8>) {
        let shared = Arc::clone(&self.shared);
        self.is_done |= now_ns >= end_ns;
        let free = shared.queue - self.planned_in_flight.min(shared.queue);
        if shared.period_ns.is_none() && free < shared.queue / REFILLED_PART && !self.is_done {
            return;
        }
        while !self.is_done && self.planned_in_flight < shared.queue {
            let due_ns = match shared.period_ns {
                None => now_ns,
                Some(_) if self.due_ns <= now_ns && self.due_ns < end_ns => self.due_ns,
                Some(_) => {
                    self.is_done |= self.due_ns >= end_ns;
                    break;
                }
            };
            if self.is_waiting {
                if !self.is_idle() {
                    break;
                }
                self.is_waiting = false;
            }
            if shared.transaction.is_some() && !self.is_in_transaction(now_ns, out) {
                break;
            }
            let next = match self.held.take() {
                Some(operation) => Next::Send(operation),
                None => self.interpreter.next(
                    &shared.session,
                    &shared.weights,
                    &shared.budget,
                    &mut self.random,
                ),
            };
            match next {
                Next::Done => self.is_done = true,
                Next::Wait => self.is_waiting = true,
                Next::Send(index) => {
                    let operation = &shared.operations[index];
                    // A bind goes alone (RFC 4511 §4.2.1).
                    if operation.kind == Operation::Bind {
                        if !self.is_idle() {
                            (self.held, self.is_waiting) = (Some(index), true);
                            continue;
                        }
                        self.is_waiting = true;
                    }
                    self.send(&shared, index, operation, due_ns, out);
                    if let Some(period) = shared.period_ns {
                        self.due_ns += period;
                    }
                }
            }
        }
        if self.is_done
            && let Transaction::Open(_) = self.transaction
        {
            self.commit(now_ns, out);
        }
    }

    #[inline]
    fn send(
        &mut self,
        shared: &Shared,
        index: usize,
        operation: &PlannedOperation,
        due_ns: u64,
        out: &mut Vec<u8>,
    ) {
        let pass = self.interpreter.pass();
        for &variable in &operation.variables {
            if let Some(pass) = pass
                && std::mem::replace(&mut self.drawn[variable], pass) == pass
            {
                continue;
            }
            if let Some(value) = self.values.slot(variable) {
                shared.variables[variable].draw(&mut self.random, value);
            }
        }
        let id = self.take_slot(RequestKind::Planned(index), due_ns);
        if let Some((_, text)) = &operation.expect.value {
            let request = &mut self.in_flight[slot_of(id)];
            request.expected.clear();
            text.put(&self.values, &mut request.expected);
            request.is_expecting = true;
        }
        self.planned_in_flight += 1;
        let template = match (&operation.in_transaction, &mut self.transaction) {
            (Some(template), Transaction::Open(left)) => {
                *left -= 1;
                self.in_flight[slot_of(id)].transaction = self.number;
                template
            }
            _ => &operation.request,
        };
        let begin = out.len();
        template.put(id, &self.values, out);
        self.in_flight[slot_of(id)].sent.keep(&out[begin..]);
        if self.transaction == Transaction::Open(0) {
            self.commit(due_ns, out);
        }
    }

    /// Whether updates can be sent as part of a transaction; starts one if not.
    fn is_in_transaction(&mut self, now_ns: u64, out: &mut Vec<u8>) -> bool {
        let ends_max = if self.starts_early { ENDS_MAX } else { 0 };
        if self.transaction == Transaction::None && self.ends <= ends_max {
            let id = self.take_slot(RequestKind::Start, now_ns);
            transaction::put_start(id, out);
            self.transaction = Transaction::Starting;
        }
        matches!(self.transaction, Transaction::Open(_))
    }

    fn commit(&mut self, now_ns: u64, out: &mut Vec<u8>) {
        let id = self.take_slot(RequestKind::End, now_ns);
        self.ends += 1;
        if let Some(ledger) = self.ledgers.iter_mut().find(|own| own.end.is_none()) {
            ledger.end = Some(slot_of(id));
        }
        transaction::put_commit(id, self.values.get(TRANSACTION), out);
        self.transaction = Transaction::None;
        // The next one is asked for at once, so that a transaction costs one round trip.
        if !self.is_done {
            self.is_in_transaction(now_ns, out);
        }
    }

    /// A place for a request; its message ID.
    #[inline]
    fn take_slot(&mut self, kind: RequestKind, due_ns: u64) -> u32 {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.in_flight.push(InFlight::default());
            self.in_flight.len() as u32 - 1
        });
        let request = &mut self.in_flight[slot as usize];
        request.generation = match request.generation {
            GENERATION_MIN..GENERATION_MAX => request.generation + 1,
            _ => GENERATION_MIN,
        };
        request.kind = kind;
        request.due_ns = due_ns;
        request.entries = 0;
        request.is_expecting = false;
        request.found.clear();
        request.transaction = OUTSIDE;
        request.generation << SLOT_BITS | slot
    }

    /// Nothing is in flight.
    pub(crate) fn is_idle(&self) -> bool {
        self.free.len() == self.in_flight.len()
    }

    /// When the next operation is due, if it can be sent then.
    pub(crate) fn next_due(&self) -> Option<u64> {
        let can_send =
            !self.is_done && !self.is_waiting && self.planned_in_flight < self.shared.queue;
        (can_send && self.shared.period_ns.is_some()).then_some(self.due_ns)
    }

    /// Operations that were due before the end and were not sent.
    pub(crate) fn unsent(&self, end_ns: u64) -> u64 {
        match self.shared.period_ns {
            Some(period) if end_ns < u64::MAX => {
                end_ns.saturating_sub(self.due_ns).div_ceil(period)
            }
            _ => 0,
        }
    }

    /// Takes a message from the server.
    #[inline]
    pub(crate) fn answer(
        &mut self,
        message: &[u8],
        now_ns: u64,
        stats: &mut Stats,
    ) -> Result<(), Error> {
        const SEARCH_RESULT_ENTRY: u8 = 0x64;
        const SEARCH_RESULT_REFERENCE: u8 = 0x73;
        const INTERMEDIATE_RESPONSE: u8 = 0x79;
        let mut fields = Reader::new(Reader::new(message).expect(ber::SEQUENCE, "LDAPMessage")?);
        let id = fields.integer("messageID")? as u32;
        let (tag, content) = fields.element("protocolOp")?;
        let slot = slot_of(id);
        let Some(request) = self.in_flight.get_mut(slot).filter(|request| {
            request.generation == id >> SLOT_BITS && request.kind != RequestKind::Free
        }) else {
            return self.unasked(id, message, stats);
        };
        let operation = match request.kind {
            RequestKind::Planned(operation) => operation,
            special => return self.transaction_answer(special, slot, message, now_ns, stats),
        };
        let shared = &self.shared;
        let label = shared.labels[operation];
        let planned = &shared.operations[operation];
        match tag {
            SEARCH_RESULT_ENTRY if planned.kind == Operation::Search => {
                request.entries += 1;
                if request.is_expecting
                    && let Some((attribute, _)) = &planned.expect.value
                {
                    request.is_expecting = !has_value(message, attribute, &request.expected)?;
                    if request.is_expecting && stats.examples.len() < EXAMPLES_MAX {
                        request.found = mismatch::values_of(message, attribute);
                    }
                }
                return Ok(());
            }
            SEARCH_RESULT_REFERENCE | INTERMEDIATE_RESPONSE => return Ok(()),
            _ if tag != response_tag(planned.kind) => return Err(Error::UnexpectedResponse),
            _ => {}
        }
        let code = Reader::new(content).enumerated("resultCode")?;
        let counts = &mut stats.operations[label];
        counts.answered += 1;
        counts.entries += request.entries;
        let latency = now_ns.saturating_sub(request.due_ns);
        counts.latency.saturating_record(latency);
        let expect = &planned.expect;
        let is_code_good = match &expect.codes {
            Some(codes) => codes.iter().any(|good| i64::from(*good) == code),
            None => true,
        };
        let wrong = |expected: &dyn Display, got: &dyn Display| {
            mismatch::describe(&request.sent, expected, got)
        };
        if !is_code_good {
            let reason = reason(message)?;
            let codes = expect.codes.iter().flatten();
            let codes = codes.map(|code| ResultCode::from(*code).to_string());
            let codes: Vec<String> = codes.collect();
            stats.keep_example(label, || wrong(&codes.join(" or "), &reason));
            stats.fail(label, reason, 1);
        } else if let Some((least, most)) = expect.entries
            && !(least..=most).contains(&request.entries)
        {
            let expected = match least == most {
                true => least.to_string(),
                false => format!("{least} to {most}"),
            };
            let entries = |count: &dyn Display| format!("{count} entries");
            stats.keep_example(label, || {
                wrong(&entries(&expected), &entries(&request.entries))
            });
            let reason = format!("{} entries in place of {expected}", request.entries);
            stats.fail(label, reason, 1);
        } else if request.is_expecting {
            let attribute = expect.value.as_ref().map_or("", |(name, _)| name.as_str());
            stats.keep_example(label, || {
                let expected = format!("{attribute} {}", mismatch::shown(&request.expected));
                let got = match request.entries {
                    0 => "no entry",
                    _ => request.found.as_str(),
                };
                wrong(&expected, &got)
            });
            stats.fail(
                label,
                format!("no entry has the expected value of {attribute}"),
                1,
            );
        } else if request.transaction != OUTSIDE
            && let number = request.transaction
            && let Some(ledger) = self.ledgers.iter_mut().find(|own| own.number == number)
        {
            ledger.answered[label] += 1;
        }
        self.planned_in_flight -= 1;
        self.free_slot(slot);
        Ok(())
    }

    fn free_slot(&mut self, slot: usize) {
        self.in_flight[slot].kind = RequestKind::Free;
        self.free.push(slot as u32);
    }

    /// A message that answers nothing that was asked.
    #[cold]
    fn unasked(&mut self, id: u32, message: &[u8], stats: &mut Stats) -> Result<(), Error> {
        let message = ResponseMessage::decode(message)?;
        let Some(result) = message.op.result().filter(|_| id == 0) else {
            return Err(Error::UnexpectedResponse);
        };
        if let Response::Extended(notice) = &message.op
            && notice.name == Some(transaction::ABORTED)
        {
            let reason = OperationError::new(result).to_string();
            let label = self.shared.end_label;
            stats.fail(
                label,
                format!("the server has aborted the transaction: {reason}"),
                1,
            );
            if let Transaction::Open(_) = self.transaction {
                self.transaction = Transaction::None;
                self.close(None, false, stats);
            }
            return Ok(());
        }
        Err(Error::Disconnected(OperationError::new(result)))
    }

    /// The answer to a transaction's start or end.
    fn transaction_answer(
        &mut self,
        kind: RequestKind,
        slot: usize,
        message: &[u8],
        now_ns: u64,
        stats: &mut Stats,
    ) -> Result<(), Error> {
        let label = match kind {
            RequestKind::Start => self.shared.start_label,
            _ => self.shared.end_label,
        };
        let due_ns = self.in_flight[slot].due_ns;
        self.free_slot(slot);
        let Response::Extended(response) = ResponseMessage::decode(message)?.op else {
            return Err(Error::UnexpectedResponse);
        };
        match kind {
            RequestKind::Start if response.result.code == ResultCode::Busy && self.starts_early => {
                // The server, as OpenLDAP's, takes one at a time: the next waits for the end of the last.
                self.starts_early = false;
                self.transaction = Transaction::None;
                return Ok(());
            }
            RequestKind::End => {
                self.ends -= 1;
                let is_committed = response.result.code == ResultCode::Success;
                self.close(Some(slot), is_committed, stats);
            }
            _ => {}
        }
        let counts = &mut stats.operations[label];
        counts.answered += 1;
        counts
            .latency
            .saturating_record(now_ns.saturating_sub(due_ns));
        if response.result.code != ResultCode::Success {
            let error = OperationError::new(&response.result);
            stats.fail(label, error.to_string(), 1);
            // Without transactions nothing of what was asked for can be done.
            return match kind {
                RequestKind::Start => Err(error.into()),
                _ => Ok(()),
            };
        }
        if kind == RequestKind::Start {
            if let Some(value) = self.values.slot(TRANSACTION) {
                value.set(response.value.unwrap_or_default());
            }
            let length = self.shared.transaction.unwrap_or(1);
            self.transaction = Transaction::Open(length);
            self.number = self.number.checked_add(1).unwrap_or(OUTSIDE + 1);
            self.ledgers.push(Ledger {
                number: self.number,
                end: None,
                answered: vec![0; stats.operations.len()],
            });
        }
        Ok(())
    }

    /// A transaction is over; `end` is the place of the request that ended it. If it is not committed, nothing of what was
    /// answered well in it was done.
    fn close(&mut self, end: Option<usize>, is_committed: bool, stats: &mut Stats) {
        let Some(place) = self.ledgers.iter().position(|own| own.end == end) else {
            return;
        };
        let ledger = self.ledgers.swap_remove(place);
        if is_committed {
            return;
        }
        for (label, count) in ledger.counts() {
            stats.fail(label, NOT_COMMITTED.to_owned(), count);
        }
    }
}

fn slot_of(id: u32) -> usize {
    (id & (SLOTS_MAX - 1)) as usize
}

/// The tag of what ends an operation (RFC 4511 §4.1.1).
const fn response_tag(operation: Operation) -> u8 {
    match operation {
        Operation::Bind => 0x61,
        Operation::Search => 0x65,
        Operation::Modify => 0x67,
        Operation::Add => 0x69,
        Operation::Delete => 0x6b,
        Operation::ModifyDn => 0x6d,
        Operation::Compare => 0x6f,
        // Unbind and abandon have no answer, and plans have neither.
        Operation::Extended | Operation::Unbind | Operation::Abandon => 0x78,
    }
}

/// What the server says in place of what was expected.
#[cold]
fn reason(message: &[u8]) -> Result<String, DecodeError> {
    /// Diagnostics that name an entry would be as many as there are entries.
    const REASON_CHARACTERS_MAX: usize = 160;
    let message = ResponseMessage::decode(message)?;
    let reason = message.op.result().map_or_else(String::new, |result| {
        OperationError::new(result).to_string()
    });
    Ok(reason.chars().take(REASON_CHARACTERS_MAX).collect())
}

/// Whether the entry of a message has a value; `attribute` is in lower case.
fn has_value(message: &[u8], attribute: &str, value: &[u8]) -> Result<bool, DecodeError> {
    let Response::SearchEntry(entry) = ResponseMessage::decode(message)?.op else {
        return Ok(false);
    };
    Ok(entry.attributes.iter().any(|found| {
        found.description.eq_ignore_ascii_case(attribute.as_bytes())
            && found.values.iter().any(|found| found == value)
    }))
}
