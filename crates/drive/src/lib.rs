//! A load and test client: a plan says what sessions do, the engine does it on as many connections as wanted and checks
//! every answer.
//!
//! ```text
//! plan -> records -> templates, variables                                         (parse, template, values)
//! connection: interpreter -> template + values -> one write; answers checked in place  (load_connection, request_queue, interpreter)
//! counts of all connections, second by second -> report: text, JSON, CSV, HTML    (stats, report)
//! ```
//!
//! Latency is counted from when an operation was due. Without a rate that is when it was put on the way; with a rate it
//! is its place in the schedule, whether or not the server kept it from being sent, so that a server that stalls is
//! charged with all that waited.

pub mod generate;
mod interpreter;
mod load_connection;
mod mismatch;
mod parse;
mod plan;
mod presets;
mod random;
mod report;
mod request_queue;
mod run;
mod server_use;
mod stats;
mod stop_token;
mod stream;
mod template;
mod timer;
mod transaction;
mod values;

pub use parse::PlanOptions;
pub use plan::{
    CONNECTIONS_MAX, LABELS_MAX, NESTING_MAX, OPERATIONS_MAX, Plan, PlanError, QUEUE_MAX,
    RECORD_BYTES_MAX, REFERENCES_MAX, VARIABLES_MAX,
};
pub use presets::PRESETS;
pub use report::{ErrorReport, Latencies, OperationReport, PhaseReport, Point, Report};
pub use run::{Observer, Settings, run};
pub use server_use::{ServerUse, disk_bytes};
pub use stop_token::StopToken;
pub use stream::{EntryStream, Format};
pub use values::{LIST_BYTES_MAX, VALUE_BYTES_MAX};
