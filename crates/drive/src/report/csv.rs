//! The report as comma-separated values (RFC 4180): a row for each operation of each phase.

use super::{OperationReport, PhaseReport, Report};

const HEAD: &str = "phase,connections,queue,transaction,seconds,operation,answered,failed,entries,per_second,\
    min_ns,mean_ns,p50_ns,p90_ns,p99_ns,p999_ns,max_ns,client_cpu_us,server_cpu_us,is_cut_short\r\n";

impl Report {
    /// The report as CSV: for each phase a row of all its operations, then a row for each name of operations.
    pub fn csv(&self) -> String {
        let mut out = HEAD.to_owned();
        for phase in &self.phases {
            for operation in std::iter::once(&phase.total).chain(&phase.operations) {
                out.push_str(&row(phase, operation));
            }
        }
        out
    }
}

fn row(phase: &PhaseReport, operation: &OperationReport) -> String {
    let latency = &operation.latency;
    format!(
        "{},{},{},{},{:.3},{},{},{},{},{:.1},{},{},{},{},{},{},{},{:.3},{},{}\r\n",
        quoted(&phase.name),
        phase.connections,
        phase.queue,
        phase
            .transaction
            .map_or_else(String::new, |length| length.to_string()),
        phase.seconds,
        quoted(&operation.name),
        operation.answered,
        operation.failed,
        operation.entries,
        super::ratio(operation.answered as f64, phase.seconds),
        latency.min,
        latency.mean,
        latency.p50,
        latency.p90,
        latency.p99,
        latency.p999,
        latency.max,
        phase.client_cpu_us(),
        phase
            .server_cpu_us()
            .map_or_else(String::new, |cpu| format!("{cpu:.3}")),
        phase.is_cut_short,
    )
}

fn quoted(text: &str) -> String {
    match text.contains([',', '"', '\r', '\n']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text.to_owned(),
    }
}
