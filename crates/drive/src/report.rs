//! The report of a run, and its forms: a table for people, JSON, CSV and HTML.

mod csv;
mod html;
mod json;
mod table;

use std::time::Duration;

use hdrhistogram::Histogram;

use crate::server_use::ServerUse;
use crate::stats::{Counts, Stats};

/// The report of a run.
#[derive(Debug, Clone, Default)]
pub struct Report {
    /// The name of the plan: of its file, or of the preset.
    pub plan: String,
    /// The server's URL.
    pub url: String,
    /// The seed of random values.
    pub seed: u64,
    /// When the run began, as RFC 3339 writes it.
    pub begun: String,
    /// Whether the run was stopped early.
    pub is_cut_short: bool,
    /// The phases, in the order in which they ran.
    pub phases: Vec<PhaseReport>,
}

impl Report {
    /// Whether every answer was as expected, and no connection failed.
    pub fn is_clean(&self) -> bool {
        self.phases.iter().all(|phase| phase.errors.is_empty())
    }
}

/// The report of a phase.
#[derive(Debug, Clone, Default)]
pub struct PhaseReport {
    /// The phase's name.
    pub name: String,
    /// How many connections its sessions have together.
    pub connections: u32,
    /// The longest queue of its sessions, in requests.
    pub queue: u32,
    /// The longest transactions of its sessions, in updates.
    pub transaction: Option<u32>,
    /// Whether the phase was stopped early.
    pub is_cut_short: bool,
    /// From the end of ramp-up to the last answer, in seconds.
    pub seconds: f64,
    /// One row for each name of operations, in the order of the plan. Transactions come last.
    pub operations: Vec<OperationReport>,
    /// All operations of the plan together.
    pub total: OperationReport,
    /// Answers that were not as expected, and connections that failed, by kind. The most frequent comes first.
    pub errors: Vec<ErrorReport>,
    /// The first answers that were not as expected, each with its request and with what was expected.
    pub examples: Vec<String>,
    /// How many operations were due and could not be sent before the end.
    pub unsent: u64,
    /// The phase interval by interval, ramp-up included.
    pub series: Vec<Point>,
    /// The processor time of the threads that drove the connections.
    pub client_cpu: Duration,
    /// What the server used, if its process ID was given.
    pub server: Option<ServerUse>,
    /// The size of the server's data on disk at the end, if their folder was given, in bytes.
    pub database_bytes: Option<u64>,
}

/// The operations of one name.
#[derive(Debug, Clone, Default)]
pub struct OperationReport {
    /// The name under which they are reported.
    pub name: String,
    /// How many were answered, as expected or not.
    pub answered: u64,
    /// How many were not answered as expected, or not at all.
    pub failed: u64,
    /// How many entries the server sent.
    pub entries: u64,
    /// The time from when they were due to their last answer.
    pub latency: Latencies,
}

/// Latencies in nanoseconds.
#[derive(Debug, Clone, Default)]
pub struct Latencies {
    /// The shortest.
    pub min: u64,
    /// The mean.
    pub mean: u64,
    /// The median.
    pub p50: u64,
    /// The 90th percentile.
    pub p90: u64,
    /// The 99th percentile.
    pub p99: u64,
    /// The 99.9th percentile.
    pub p999: u64,
    /// The longest.
    pub max: u64,
    /// The distribution, cumulated: latencies an eighth of a power of two apart, each with the number of those that
    /// were not longer.
    pub distribution: Vec<(u64, u64)>,
}

/// One kind of error.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ErrorReport {
    /// The operation's name.
    pub operation: String,
    /// What went wrong.
    pub reason: String,
    /// How often it did.
    pub count: u64,
}

/// One interval of a phase.
#[derive(Debug, Clone, Default)]
pub struct Point {
    /// The end of the interval, in seconds since the phase began.
    pub seconds: f64,
    /// Its length, in seconds.
    pub length: f64,
    /// How many operations were answered in it.
    pub answered: u64,
    /// How many failed in it.
    pub failed: u64,
    /// How many entries the server sent.
    pub entries: u64,
    /// The median of the latencies, in nanoseconds.
    pub p50: u64,
    /// Their 99th percentile, in nanoseconds.
    pub p99: u64,
    /// The longest latency, in nanoseconds.
    pub max: u64,
    /// Whether the interval is counted: the ramp-up is not.
    pub is_counted: bool,
}

impl Point {
    pub(crate) fn new(
        end: Duration,
        length: Duration,
        counts: &[Counts],
        is_counted: bool,
    ) -> Self {
        let all = OperationReport::sum("", counts);
        Point {
            seconds: end.as_secs_f64(),
            length: length.as_secs_f64(),
            answered: all.answered,
            failed: all.failed,
            entries: all.entries,
            p50: all.latency.p50,
            p99: all.latency.p99,
            max: all.latency.max,
            is_counted,
        }
    }

    /// Operations per second.
    pub fn rate(&self) -> f64 {
        ratio(self.answered as f64, self.length)
    }
}

impl PhaseReport {
    pub(crate) fn new(name: &str) -> Self {
        PhaseReport {
            name: name.to_owned(),
            ..PhaseReport::default()
        }
    }

    /// Fills in what was counted. The first `planned` labels are of operations of the plan.
    pub(crate) fn complete(&mut self, labels: &[String], planned: usize, total: &Stats) {
        self.total = OperationReport::sum("all", &total.operations[..planned]);
        self.operations = labels
            .iter()
            .zip(&total.operations)
            .filter(|(_, counts)| counts.answered + counts.failed > 0)
            .map(|(label, counts)| OperationReport::sum(label, std::slice::from_ref(counts)))
            .collect();
        self.errors = total
            .errors
            .iter()
            .map(|((label, reason), count)| ErrorReport {
                operation: labels[*label].clone(),
                reason: reason.clone(),
                count: *count,
            })
            .collect();
        self.errors
            .sort_by_key(|error| std::cmp::Reverse(error.count));
        let examples = total.examples.iter();
        self.examples = examples
            .map(|(label, example)| format!("{}: {example}", labels[*label]))
            .collect();
        self.unsent = total.unsent;
    }

    /// "1 connection", "2 connections".
    fn connections_text(&self) -> String {
        let ending = if self.connections == 1 { "" } else { "s" };
        format!("{} connection{ending}", self.connections)
    }

    /// Operations per second.
    pub fn rate(&self) -> f64 {
        ratio(self.total.answered as f64, self.seconds)
    }

    /// Entries per second.
    pub fn entry_rate(&self) -> f64 {
        ratio(self.total.entries as f64, self.seconds)
    }

    /// The client's processor time per operation, in microseconds.
    pub fn client_cpu_us(&self) -> f64 {
        ratio(
            self.client_cpu.as_secs_f64() * 1e6,
            self.total.answered as f64,
        )
    }

    /// The server's processor time per operation, in microseconds.
    pub fn server_cpu_us(&self) -> Option<f64> {
        let server = self.server.as_ref()?;
        Some(ratio(
            server.cpu.as_secs_f64() * 1e6,
            self.total.answered as f64,
        ))
    }
}

fn ratio(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole } else { 0.0 }
}

impl OperationReport {
    fn sum(name: &str, counts: &[Counts]) -> Self {
        let mut report = OperationReport {
            name: name.to_owned(),
            ..OperationReport::default()
        };
        for counts in counts {
            report.answered += counts.answered;
            report.failed += counts.failed;
            report.entries += counts.entries;
        }
        report.latency = match counts {
            [one] => Latencies::new(&one.latency),
            [first, others @ ..] => {
                let mut latency = first.latency.clone();
                for other in others {
                    // All have the same bounds.
                    let _ = latency.add(&other.latency);
                }
                Latencies::new(&latency)
            }
            [] => Latencies::default(),
        };
        report
    }
}

impl Latencies {
    fn new(histogram: &Histogram<u64>) -> Self {
        if histogram.is_empty() {
            return Latencies::default();
        }
        let quantile = |quantile| histogram.value_at_quantile(quantile);
        Latencies {
            min: histogram.min(),
            mean: histogram.mean() as u64,
            p50: quantile(0.5),
            p90: quantile(0.9),
            p99: quantile(0.99),
            p999: quantile(0.999),
            max: histogram.max(),
            distribution: distribution(histogram),
        }
    }
}

/// The cumulated distribution of [`Latencies::distribution`].
fn distribution(histogram: &Histogram<u64>) -> Vec<(u64, u64)> {
    let step = 2f64.powf(1.0 / 8.0);
    let mut rows: Vec<(u64, u64)> = Vec::new();
    let mut count = 0;
    let mut limit = histogram.min().max(1) as f64;
    for bucket in histogram.iter_recorded() {
        let value = bucket.value_iterated_to();
        while value as f64 > limit {
            if rows.last().is_none_or(|(_, last)| *last < count) {
                rows.push((limit as u64, count));
            }
            limit *= step;
        }
        count += bucket.count_at_value();
    }
    rows.push((histogram.max(), count));
    rows
}

/// What follows the name of a run or a phase that was stopped early.
fn cut_short(is_cut_short: bool) -> &'static str {
    if is_cut_short { ", cut short" } else { "" }
}

/// A time given in nanoseconds, in the unit that suits it.
fn duration_text(nanoseconds: u64) -> String {
    let ns = nanoseconds as f64;
    match nanoseconds {
        0..1_000 => format!("{ns} ns"),
        1_000..1_000_000 => format!("{:.1} µs", ns / 1e3),
        1_000_000..1_000_000_000 => format!("{:.2} ms", ns / 1e6),
        _ => format!("{:.2} s", ns / 1e9),
    }
}

#[cfg(test)]
mod tests;
