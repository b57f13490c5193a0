//! A plan, once it is parsed.

use std::time::Duration;

use sapwood_ldap::message::Operation;

use crate::template::{Template, Text};
use crate::values::Variable;

/// The longest record of a plan, in bytes.
pub const RECORD_BYTES_MAX: usize = 1 << 20;
/// The most operations of a plan.
pub const OPERATIONS_MAX: usize = 1 << 20;
/// The most variables of a plan.
pub const VARIABLES_MAX: usize = 10_000;
/// The most bytes that the values of settings add to a plan.
pub const SETTINGS_BYTES_MAX: usize = 64 << 20;
/// The most references to variables in one record.
pub const REFERENCES_MAX: usize = 256;
/// How deep loops and groups may nest.
pub const NESTING_MAX: usize = 16;
/// The most sessions of a phase.
pub const SESSIONS_MAX: usize = 64;
/// The most names under which the operations of a phase are reported.
pub const LABELS_MAX: usize = 64;
/// The longest queue of a connection, in requests, and the longest transaction, in updates.
pub const QUEUE_MAX: u32 = 1_000_000;
/// The most connections of a session.
pub const CONNECTIONS_MAX: u32 = 10_000;

/// A plan: phases that run one after the other.
#[derive(Debug)]
pub struct Plan {
    pub(crate) phases: Vec<Phase>,
    pub(crate) variables: Vec<Variable>,
    pub(crate) operations: Vec<PlannedOperation>,
}

impl Plan {
    /// The names of the phases, in the order in which they run.
    pub fn phases(&self) -> impl Iterator<Item = &str> {
        self.phases.iter().map(|phase| phase.name.as_str())
    }

    /// Removes the phases whose names `keep` does not accept.
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

/// The work of some connections, and how they do it.
#[derive(Debug, Default)]
pub(crate) struct Session {
    pub(crate) name: String,
    pub(crate) connections: Option<u32>,
    pub(crate) queue: Option<u32>,
    /// How many updates each transaction has.
    pub(crate) transaction: Option<u32>,
    /// Operations per second of all connections together.
    pub(crate) rate: Option<f64>,
    /// How many operations all connections together send.
    pub(crate) count: Option<u64>,
    /// The name and the password to bind with.
    pub(crate) bind: Option<(String, Vec<u8>)>,
    pub(crate) order: Order,
    pub(crate) steps: Vec<Step>,
}

/// The order in which a session's steps run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Order {
    /// From the first to the last, then from the first again.
    #[default]
    Sequence,
    /// Each time a random one, by weight.
    Random,
}

/// One step of a session: an operation, a wait, or a loop or group with everything in it.
#[derive(Debug)]
pub(crate) struct Step {
    pub(crate) weight: u32,
    pub(crate) instructions: Vec<Instruction>,
}

/// An instruction of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Instruction {
    /// Send the operation with this index `times` times.
    Operation { operation: u32, times: u32 },
    /// Begins a loop that runs `times` times, up to its `End`.
    Loop { times: u32 },
    /// Begins a group, which runs once. Variables keep their values within it.
    Group,
    /// Ends the loop or group that begins at index `begin` of the step.
    End { begin: u32 },
    /// Wait until every request in flight is answered.
    Wait,
}

/// An operation of a plan, and the answer that it expects.
#[derive(Debug)]
pub(crate) struct PlannedOperation {
    /// The name under which it is reported.
    pub(crate) label: String,
    pub(crate) kind: Operation,
    /// The request outside of a transaction.
    pub(crate) request: Template,
    /// The request with a transaction's control. Only updates have one.
    pub(crate) in_transaction: Option<Template>,
    /// The indexes of the variables that the request and the expectation refer to, each once.
    pub(crate) variables: Vec<usize>,
    pub(crate) expect: Expect,
}

/// The answer that an operation expects.
#[derive(Debug, Default)]
pub(crate) struct Expect {
    /// The expected result codes. `None` means any.
    pub(crate) codes: Option<Vec<u32>>,
    /// The fewest and the most entries.
    pub(crate) entries: Option<(u64, u64)>,
    /// The attribute, in lower case, and a value of it that some entry must have.
    pub(crate) value: Option<(String, Text)>,
}

/// Why a plan cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("{}{reason}", line.map(|line| format!("line {line}: ")).unwrap_or_default())]
pub struct PlanError {
    /// The number of the line, from 1 on. `None` when the plan as a whole is wrong.
    pub line: Option<u64>,
    /// What is wrong, for people.
    pub reason: String,
}

impl PlanError {
    /// An error of the plan as a whole.
    pub(crate) fn of_plan(reason: impl Into<String>) -> Self {
        PlanError {
            line: None,
            reason: reason.into(),
        }
    }

    /// An error of a line.
    pub(crate) fn new(line: u64, reason: impl Into<String>) -> Self {
        PlanError {
            line: Some(line),
            reason: reason.into(),
        }
    }
}
