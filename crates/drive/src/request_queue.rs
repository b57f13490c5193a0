//! The requests that a connection has in flight. This file makes them; `answers.rs` checks what comes back, and
//! `transactions.rs` puts updates into transactions.

mod answers;
mod transactions;

use std::sync::Arc;
use std::time::Duration;

use sapwood_ldap::message::Operation;

use crate::interpreter::{Budget, Interpreter, Next, Weights};
use crate::mismatch::Sent;
use crate::plan::{PlannedOperation, QUEUE_MAX, Session};
use crate::random::Random;
use crate::template::MESSAGE_ID_BASE;
use crate::values::{CONNECTION, Values, Variable};
use transactions::{OUTSIDE, Transaction, Uncommitted};

/// The low bits of a message ID are the request's slot. The bits above count how often the slot was used, so that no
/// late answer is taken for that of another request.
const SLOT_BITS: u32 = 20;
const SLOTS_MAX: u32 = 1 << SLOT_BITS;
/// The start and the end of a transaction need slots beside the queue's.
const _: () = assert!(QUEUE_MAX + 2 <= SLOTS_MAX);
const GENERATION_MIN: u32 = MESSAGE_ID_BASE >> SLOT_BITS;
const GENERATION_MAX: u32 = (1 << 11) - 1;

/// The queue is filled again when one part in this many is free. Each filling costs a system call and a packet, which
/// for a few requests is more than everything else that is done for them.
const REFILLED_PART: u32 = 16;

/// What the connections of a session share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) operations: Arc<Vec<PlannedOperation>>,
    pub(crate) variables: Arc<Vec<Variable>>,
    pub(crate) session: Session,
    pub(crate) weights: Weights,
    pub(crate) budget: Budget,
    /// The index of each operation's label.
    pub(crate) labels: Vec<usize>,
    /// The indexes of the labels under which starts and ends of transactions, and errors of connections, are counted.
    pub(crate) start_label: usize,
    pub(crate) end_label: usize,
    pub(crate) connection_label: usize,
    /// The most operations of the plan in flight on a connection.
    pub(crate) queue: u32,
    /// The updates in each transaction, if the session has transactions.
    pub(crate) transaction: Option<u32>,
    /// With a rate: the time from one operation of a connection to its next, in nanoseconds.
    pub(crate) period_ns: Option<u64>,
    /// A connection fails when it gets no answer for this long.
    pub(crate) answer_timeout: Duration,
}

/// The requests of a connection in flight, and the source of the next ones.
pub(crate) struct RequestQueue {
    shared: Arc<Shared>,
    interpreter: Interpreter,
    random: Random,
    values: Values,
    /// For each variable, the pass through a group in which it was drawn last.
    drawn: Vec<u64>,
    /// Requests by slot, free slots included.
    slots: Vec<InFlight>,
    free_slots: Vec<u32>,
    /// How many operations of the plan are in flight.
    planned_in_flight: u32,
    transaction: Transaction,
    /// The number of the transaction that was opened last.
    transaction_number: u8,
    /// The transactions that are open or being committed.
    uncommitted: Vec<Uncommitted>,
    /// How many ends of transactions are in flight.
    ends_in_flight: u32,
    /// Whether the start of a transaction is sent right behind the end of the last. Not every server allows it.
    pipelines_starts: bool,
    /// Whether nothing may be sent before every request in flight is answered.
    is_waiting: bool,
    /// The operation that is sent after this wait.
    held: Option<usize>,
    /// Whether nothing more will be sent.
    is_done: bool,
    /// With a rate: when the next operation is due, in nanoseconds since the phase began.
    due_ns: u64,
}

/// A request in flight.
#[derive(Debug, Default)]
struct InFlight {
    /// How often the slot was used: the high bits of the message ID.
    generation: u32,
    kind: RequestKind,
    /// When the request was due, in nanoseconds since the phase began.
    due_ns: u64,
    /// How many entries have come.
    entries: u64,
    /// The value that some entry must have.
    expected: Vec<u8>,
    /// Whether no entry with the value has come yet.
    is_expecting: bool,
    /// The values that the last entry has instead.
    found: String,
    sent: Sent,
    /// The number of the request's transaction, or [`OUTSIDE`].
    transaction: u8,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum RequestKind {
    /// The slot is free.
    #[default]
    Free,
    /// The operation of the plan with this index.
    Planned(usize),
    StartTransaction,
    EndTransaction,
}

impl RequestQueue {
    /// The queue of a connection. `number` is its number in the session, from 1 on.
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
            slots: Vec::new(),
            free_slots: Vec::new(),
            planned_in_flight: 0,
            transaction: Transaction::None,
            transaction_number: OUTSIDE,
            uncommitted: Vec::new(),
            ends_in_flight: 0,
            pipelines_starts: true,
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

    /// With a rate, sets when the first operation is due, in nanoseconds since the phase began.
    pub(crate) fn begin(&mut self, first_ns: u64) {
        self.due_ns = first_ns;
    }

    /// Whether nothing more will be sent.
    pub(crate) fn is_done(&self) -> bool {
        self.is_done
    }

    /// Appends requests to `out` until the queue is full, or no more are due. After `end_ns` none are.
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
            if shared.transaction.is_some() && !self.ensure_transaction(now_ns, out) {
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

    /// Appends an operation of the plan with new values.
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
            let request = &mut self.slots[slot_of(id)];
            request.expected.clear();
            text.put(&self.values, &mut request.expected);
            request.is_expecting = true;
        }
        self.planned_in_flight += 1;
        let template = match (&operation.in_transaction, &mut self.transaction) {
            (Some(template), Transaction::Open(left)) => {
                *left -= 1;
                self.slots[slot_of(id)].transaction = self.transaction_number;
                template
            }
            _ => &operation.request,
        };
        let begin = out.len();
        template.put(id, &self.values, out);
        self.slots[slot_of(id)].sent.keep(&out[begin..]);
        if self.transaction == Transaction::Open(0) {
            self.commit(due_ns, out);
        }
    }

    /// Takes a slot for a request and returns its message ID.
    #[inline]
    fn take_slot(&mut self, kind: RequestKind, due_ns: u64) -> u32 {
        let slot = self.free_slots.pop().unwrap_or_else(|| {
            self.slots.push(InFlight::default());
            self.slots.len() as u32 - 1
        });
        let request = &mut self.slots[slot as usize];
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

    fn free_slot(&mut self, slot: usize) {
        self.slots[slot].kind = RequestKind::Free;
        self.free_slots.push(slot as u32);
    }

    /// Whether nothing is in flight.
    pub(crate) fn is_idle(&self) -> bool {
        self.free_slots.len() == self.slots.len()
    }

    /// When the next operation is due, in nanoseconds since the phase began. `None` without a rate, or when something
    /// else than time has to pass before.
    pub(crate) fn next_due(&self) -> Option<u64> {
        let can_send =
            !self.is_done && !self.is_waiting && self.planned_in_flight < self.shared.queue;
        (can_send && self.shared.period_ns.is_some()).then_some(self.due_ns)
    }

    /// How many operations were due before `end_ns` and were not sent.
    pub(crate) fn unsent(&self, end_ns: u64) -> u64 {
        match self.shared.period_ns {
            Some(period) if end_ns < u64::MAX => {
                end_ns.saturating_sub(self.due_ns).div_ceil(period)
            }
            _ => 0,
        }
    }
}

fn slot_of(id: u32) -> usize {
    (id & (SLOTS_MAX - 1)) as usize
}
