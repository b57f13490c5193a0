//! What a plan says, once it is read.

use std::time::Duration;

use sapwood_ldap::message::Operation;

use crate::template::{Template, Text};
use crate::values::Variable;

/// The longest record of a plan, in bytes.
pub const RECORD_BYTES_MAX: usize = 1 << 20;
/// Most operations of a plan.
pub const OPERATIONS_MAX: usize = 1 << 20;
/// Most variables of a plan.
pub const VARIABLES_MAX: usize = 10_000;
/// Most references to variables in one record.
pub const REFERENCES_MAX: usize = 256;
/// Most loops and groups within each other.
pub const NESTING_MAX: usize = 16;
/// Most names that operations are reported under, in one phase.
pub const LABELS_MAX: usize = 64;
/// Most requests in flight on a connection.
pub const QUEUE_MAX: u32 = 1_000_000;
/// Most connections of a session.
pub const CONNECTIONS_MAX: u32 = 10_000;

/// A plan: phases, one after the other.
#[derive(Debug)]
pub struct Plan {
    pub(crate) phases: Vec<Phase>,
    pub(crate) variables: Vec<Variable>,
    pub(crate) operations: Vec<PlannedOperation>,
}

impl Plan {
    /// The names of the phases, in their order.
    pub fn phases(&self) -> impl Iterator<Item = &str> {
        self.phases.iter().map(|phase| phase.name.as_str())
    }

    /// Leaves only the phases whose names `keep` accepts.
    pub fn retain_phases(&mut self, keep: impl Fn(&str) -> bool) {
        self.phases.retain(|phase| keep(&phase.name));
    }
}

/// Sessions that run at the same time.
#[derive(Debug)]
pub(crate) struct Phase {
    pub(crate) name: String,
    pub(crate) duration: Option<Duration>,
    pub(crate) sessions: Vec<Session>,
}

/// What some connections do.
#[derive(Debug, Default)]
pub(crate) struct Session {
    pub(crate) name: String,
    pub(crate) connections: Option<u32>,
    pub(crate) queue: Option<u32>,
    /// Operations in each transaction.
    pub(crate) transaction: Option<u32>,
    /// Operations per second, of all connections together.
    pub(crate) rate: Option<f64>,
    /// Operations in all, of all connections together.
    pub(crate) count: Option<u64>,
    pub(crate) bind: Option<(String, Vec<u8>)>,
    pub(crate) order: Order,
    pub(crate) steps: Vec<Step>,
}

/// How a session goes through its steps.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Order {
    /// From the first to the last, then from the first again.
    #[default]
    Sequence,
    /// One at random, by weight.
    Random,
}

/// One step of a session: an operation, a wait, or a loop or group with everything in it.
#[derive(Debug)]
pub(crate) struct Step {
    pub(crate) weight: u32,
    pub(crate) instructions: Vec<Instruction>,
}

/// What a step is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Instruction {
    /// Send the operation with this index `times` times.
    Operation { operation: u32, times: u32 },
    /// A loop, to be gone through `times` times, up to its `End`.
    Loop { times: u32 },
    /// Like a loop gone through once; variables keep their values in it.
    Group,
    /// The end of what began at index `begin` of the step.
    End { begin: u32 },
    /// Go on when every answer has come.
    Wait,
}

/// An operation to send, and what is expected of its answer.
#[derive(Debug)]
pub(crate) struct PlannedOperation {
    /// What it is reported under.
    pub(crate) label: String,
    pub(crate) kind: Operation,
    /// The request without a transaction's control.
    pub(crate) request: Template,
    /// The request as part of a transaction, if it can be one: it changes the directory.
    pub(crate) in_transaction: Option<Template>,
    /// The variables of the request and of what is expected, each once.
    pub(crate) variables: Vec<usize>,
    pub(crate) expect: Expect,
}

/// What an answer has to be.
#[derive(Debug, Default)]
pub(crate) struct Expect {
    /// Acceptable result codes; `None` is any.
    pub(crate) codes: Option<Vec<u32>>,
    /// Fewest and most entries.
    pub(crate) entries: Option<(u64, u64)>,
    /// An attribute, in lower case, and a value that some entry must have.
    pub(crate) value: Option<(String, Text)>,
}

/// Why a plan cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("{}{reason}", line.map(|line| format!("line {line}: ")).unwrap_or_default())]
pub struct PlanError {
    /// The line the trouble is at, the first being 1, if it is at one.
    pub line: Option<u64>,
    /// What the trouble is, as a sentence.
    pub reason: String,
}

impl PlanError {
    /// Trouble with all of it.
    pub(crate) fn of_all(reason: impl Into<String>) -> Self {
        PlanError {
            line: None,
            reason: reason.into(),
        }
    }

    pub(crate) fn new(line: u64, reason: impl Into<String>) -> Self {
        PlanError {
            line: Some(line),
            reason: reason.into(),
        }
    }
}
