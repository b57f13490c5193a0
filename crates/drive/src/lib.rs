//! A load driver: it runs a plan of requests on any number of connections, checks every answer, and reports rates and
//! latencies. It also generates entries to load.
//!
//! ```text
//! plan file -> templates, variables                           parse, template, values
//! workers, each a thread with connections                     run
//! connection: interpreter -> template + values -> one write   load_connection, request_queue, interpreter
//! answers, checked in place -> stats                          request_queue, mismatch, stats
//! stats, interval by interval -> text, JSON, CSV, HTML        run, report
//! ```
//!
//! A latency begins when the operation was due. Without a rate an operation is due when it is sent. With a rate it is
//! due at its place in a fixed schedule, even if the server kept it from being sent: a server that stalls is charged
//! with all that waited.

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
    RECORD_BYTES_MAX, REFERENCES_MAX, SESSIONS_MAX, SETTINGS_BYTES_MAX, VARIABLES_MAX,
};
pub use presets::PRESETS;
pub use report::{ErrorReport, Latencies, OperationReport, PhaseReport, Point, Report};
pub use run::{Observer, Settings, run};
pub use server_use::{ServerUse, disk_bytes};
pub use stop_token::StopToken;
pub use stream::{EntryStream, Format};
pub use values::{LISTS_BYTES_MAX, VALUE_BYTES_MAX};
