//! What came of a run, and its forms: for people, as JSON, as CSV, as HTML.

mod csv;
mod html;
mod json;
mod table;

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use hdrhistogram::Histogram;

use crate::stats::{Counts, Stats};

/// The whole run.
#[derive(Debug, Clone, Default)]
pub struct Report {
    /// What was run: a file's name or a preset's.
    pub plan: String,
    /// The server's URL.
    pub url: String,
    /// What random values were made from.
    pub seed: u64,
    /// When it was begun, in the form of RFC 3339.
    pub begun: String,
    /// Whether the run was stopped before it had done all it was to do.
    pub is_cut_short: bool,
    /// Its phases, in the order in which they ran.
    pub phases: Vec<PhaseReport>,
}

impl Report {
    /// Whether every answer was the expected one.
    pub fn is_clean(&self) -> bool {
        self.phases.iter().all(|phase| phase.errors.is_empty())
    }
}

/// One phase.
#[derive(Debug, Clone, Default)]
pub struct PhaseReport {
    /// Its name.
    pub name: String,
    /// Connections of all its sessions.
    pub connections: u32,
    /// The longest queue of its sessions.
    pub queue: u32,
    /// The longest transactions of its sessions, in operations.
    pub transaction: Option<u32>,
    /// Whether it was stopped before its end.
    pub is_cut_short: bool,
    /// From the end of ramp-up to the last answer, in seconds.
    pub seconds: f64,
    /// By name, in the order of the plan; transactions last.
    pub operations: Vec<OperationReport>,
    /// All operations of the plan together.
    pub total: OperationReport,
    /// Answers that were not as expected, and connections that failed.
    pub errors: Vec<ErrorReport>,
    /// The first answers that were not as expected, each with what was asked and expected.
    pub examples: Vec<String>,
    /// Operations that were due and could not be sent before the end.
    pub unsent: u64,
    /// The whole phase, ramp-up included.
    pub series: Vec<Point>,
    /// Processor time of the threads that drove the connections.
    pub client_cpu: Duration,
    /// What the server used, if its process is known.
    pub server: Option<ServerUse>,
    /// What the server's data take on disk at the end, if it is known where they are.
    pub database_bytes: Option<u64>,
}

/// Operations of one name.
#[derive(Debug, Clone, Default)]
pub struct OperationReport {
    /// The name.
    pub name: String,
    /// How many were answered.
    pub answered: u64,
    /// How many were answered otherwise than expected, or not at all.
    pub failed: u64,
    /// Entries that came.
    pub entries: u64,
    /// How long they took.
    pub latency: Latencies,
}

/// Latencies in nanoseconds.
#[derive(Debug, Clone, Default)]
pub struct Latencies {
    /// The shortest.
    pub min: u64,
    /// The mean.
    pub mean: u64,
    /// Half are not longer.
    pub p50: u64,
    /// 90 % are not longer.
    pub p90: u64,
    /// 99 % are not longer.
    pub p99: u64,
    /// 99.9 % are not longer.
    pub p999: u64,
    /// The longest.
    pub max: u64,
    /// The distribution: latencies that are an eighth of a power of two apart, and how many were not longer.
    pub distribution: Vec<(u64, u64)>,
}

/// One kind of error.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ErrorReport {
    /// The operation's name.
    pub operation: String,
    /// What happened.
    pub reason: String,
    /// How often.
    pub count: u64,
}

/// One interval of a phase.
#[derive(Debug, Clone, Default)]
pub struct Point {
    /// Its end, in seconds since the phase began.
    pub seconds: f64,
    /// How long it was, in seconds.
    pub length: f64,
    /// Operations that were answered in it.
    pub answered: u64,
    /// Those that failed.
    pub failed: u64,
    /// Entries that came.
    pub entries: u64,
    /// Half of the latencies in nanoseconds are not longer.
    pub p50: u64,
    /// 99 % are not longer.
    pub p99: u64,
    /// The longest.
    pub max: u64,
    /// Whether it is counted: it is not in ramp-up.
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

    /// Fills in what was counted; operations before `planned` are the plan's.
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

    /// The number of connections, in words.
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

    /// Microseconds of this side's processor time per operation.
    pub fn client_cpu_us(&self) -> f64 {
        ratio(
            self.client_cpu.as_secs_f64() * 1e6,
            self.total.answered as f64,
        )
    }

    /// Microseconds of the server's processor time per operation.
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

/// How many latencies are not longer than each of a row of limits.
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

/// What a server's process has used.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct ServerUse {
    /// Processor time, user and system, of all its threads.
    pub cpu: Duration,
    /// Memory that is its own, pages of files not counted, in bytes.
    pub memory_bytes: u64,
}

impl ServerUse {
    /// Reads it from `/proc`; `None` when there is no such process.
    pub fn read(pid: u32) -> Option<Self> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The second field is the name in parentheses and may hold anything; utime and stime are fields 14 and 15.
        let (_, fields) = stat.rsplit_once(')')?;
        let ticks = fields
            .split_ascii_whitespace()
            .skip(11)
            .take(2)
            .map(|field| field.parse::<u64>().ok())
            .sum::<Option<u64>>()?;
        let cpu = ticks as f64 / rustix::param::clock_ticks_per_second() as f64;
        let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let kib = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name))?;
            line.split_ascii_whitespace().next()?.parse::<u64>().ok()
        };
        let own = kib("RssAnon:").unwrap_or_default() + kib("RssShmem:").unwrap_or_default();
        Some(ServerUse {
            cpu: Duration::from_secs_f64(cpu),
            memory_bytes: own << 10,
        })
    }

    pub(crate) fn since(self, before: ServerUse) -> ServerUse {
        ServerUse {
            cpu: self.cpu.saturating_sub(before.cpu),
            memory_bytes: self.memory_bytes,
        }
    }
}

/// Bytes that the files of a folder occupy; `None` when they cannot be looked at.
pub fn disk_bytes(folder: &Path) -> Option<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(folder).ok()? {
        let entry = entry.ok()?;
        // A file may have gone since it was listed.
        bytes += match entry.metadata() {
            Ok(metadata) if metadata.is_dir() => disk_bytes(&entry.path()).unwrap_or_default(),
            Ok(metadata) => metadata.blocks() * 512,
            Err(_) => 0,
        };
    }
    Some(bytes)
}

/// What is said behind a run or a phase that was stopped.
fn cut_short(is_cut_short: bool) -> &'static str {
    if is_cut_short { ", cut short" } else { "" }
}

/// Nanoseconds in a unit that reads well.
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
