//! The report as JSON (RFC 8259).

use std::fmt::Write;

use super::{ErrorReport, OperationReport, PhaseReport, Point, Report};

impl Report {
    /// The whole report as JSON, with series and distributions.
    pub fn json(&self) -> String {
        let phases: Vec<String> = self.phases.iter().map(phase).collect();
        format!(
            "{{\n\"plan\": {}, \"url\": {}, \"seed\": {}, \"begun\": {}, \"is_cut_short\": {},\n\"phases\": [{}]\n}}\n",
            text(&self.plan),
            text(&self.url),
            self.seed,
            text(&self.begun),
            self.is_cut_short,
            phases.join(",")
        )
    }
}

fn phase(phase: &PhaseReport) -> String {
    let server = phase.server.as_ref().map_or_else(
        || "null".to_owned(),
        |server| {
            format!(
                "{{\"cpu_seconds\": {}, \"memory_bytes\": {}}}",
                number(server.cpu.as_secs_f64()),
                server.memory_bytes
            )
        },
    );
    format!(
        "\n{{\"name\": {}, \"connections\": {}, \"queue\": {}, \"transaction\": {}, \"is_cut_short\": {}, \
         \"seconds\": {}, \"per_second\": {}, \"client_cpu_seconds\": {}, \"client_cpu_us\": {}, \"server\": {server}, \
         \"server_cpu_us\": {}, \"database_bytes\": {}, \"unsent\": {},\n \"total\": {},\n \
         \"operations\": [{}],\n \"errors\": [{}],\n \"examples\": [{}],\n \"series\": [{}]}}",
        text(&phase.name),
        phase.connections,
        phase.queue,
        phase
            .transaction
            .map_or_else(|| "null".to_owned(), |length| length.to_string()),
        phase.is_cut_short,
        number(phase.seconds),
        number(phase.rate()),
        number(phase.client_cpu.as_secs_f64()),
        number(phase.client_cpu_us()),
        phase
            .server_cpu_us()
            .map_or_else(|| "null".to_owned(), number),
        phase
            .database_bytes
            .map_or_else(|| "null".to_owned(), |bytes| bytes.to_string()),
        phase.unsent,
        operation(&phase.total),
        list(&phase.operations, operation),
        list(&phase.errors, error),
        list(&phase.examples, |example| text(example)),
        list(&phase.series, point),
    )
}

fn list<T>(items: &[T], of: impl Fn(&T) -> String) -> String {
    let items: Vec<String> = items.iter().map(of).collect();
    items.join(",\n  ")
}

fn operation(operation: &OperationReport) -> String {
    let latency = &operation.latency;
    let rows: Vec<String> = latency
        .distribution
        .iter()
        .map(|(limit, count)| format!("[{limit}, {count}]"))
        .collect();
    format!(
        "{{\"name\": {}, \"answered\": {}, \"failed\": {}, \"entries\": {}, \"latency_ns\": {{\"min\": {}, \
         \"mean\": {}, \"p50\": {}, \"p90\": {}, \"p99\": {}, \"p999\": {}, \"max\": {}, \"not_longer\": [{}]}}}}",
        text(&operation.name),
        operation.answered,
        operation.failed,
        operation.entries,
        latency.min,
        latency.mean,
        latency.p50,
        latency.p90,
        latency.p99,
        latency.p999,
        latency.max,
        rows.join(", ")
    )
}

fn error(error: &ErrorReport) -> String {
    format!(
        "{{\"operation\": {}, \"reason\": {}, \"count\": {}}}",
        text(&error.operation),
        text(&error.reason),
        error.count
    )
}

fn point(point: &Point) -> String {
    format!(
        "{{\"seconds\": {}, \"length\": {}, \"answered\": {}, \"failed\": {}, \"entries\": {}, \"p50_ns\": {}, \
         \"p99_ns\": {}, \"max_ns\": {}, \"is_counted\": {}}}",
        number(point.seconds),
        number(point.length),
        point.answered,
        point.failed,
        point.entries,
        point.p50,
        point.p99,
        point.max,
        point.is_counted
    )
}

fn number(number: f64) -> String {
    match number.is_finite() {
        true => format!("{number:.6}"),
        false => "null".to_owned(),
    }
}

fn text(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            // Writing to a string does not fail.
            c if c < ' ' => drop(write!(out, "\\u{:04x}", u32::from(c))),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}
