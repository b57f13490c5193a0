//! Runs a plan phase by phase. The connections of a phase are spread over threads (`worker.rs`), whose stats one more
//! thread, the caller's, gathers in intervals (`monitor.rs`).

mod monitor;
mod worker;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use sapwood_client::{Error, Options};

use crate::interpreter::{Budget, Weights};
use crate::plan::{Instruction, Phase, Plan, PlannedOperation, Session};
use crate::report::{PhaseReport, Point};
use crate::request_queue::Shared;
use crate::server_use::disk_bytes;
use crate::stop_token::StopToken;
use crate::values::Variable;
use monitor::Monitor;
use worker::{PlannedConnection, Worker};

/// The target of the load, and the options that override the plan.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The server: an `ldap`, `ldaps` or `ldapi` URL.
    pub url: String,
    /// How to connect: TLS, and the largest message.
    pub connect: Options,
    /// A name and a password. Connections bind with them unless their session has a bind of its own.
    pub bind: Option<(String, Vec<u8>)>,
    /// How many connections each session has.
    pub connections: Option<u32>,
    /// The most requests in flight on each connection.
    pub queue: Option<u32>,
    /// How many updates each transaction has.
    pub transaction: Option<u32>,
    /// Operations per second of each session.
    pub rate: Option<f64>,
    /// How long phases last. Without it, and without a duration or count in the plan, they last [`Settings::DURATION`].
    pub duration: Option<Duration>,
    /// The connections of a phase begin one by one within this time. It is not counted, unless the phase ends in it.
    pub ramp_up: Duration,
    /// The seed of random values: the same seed gives the same values.
    pub seed: u64,
    /// How many threads drive connections.
    pub threads: usize,
    /// A connection fails when its server gives no answer for this long.
    pub answer_timeout: Duration,
    /// The time between two points of the series.
    pub interval: Duration,
    /// The process ID of a server on this machine. Its processor time and memory are reported.
    pub server_pid: Option<u32>,
    /// The folder of a server's data on this machine. Its size is reported.
    pub database: Option<PathBuf>,
    /// Ends the run early.
    pub stop: StopToken,
}

impl Settings {
    /// How long a phase lasts that has neither a duration nor a count.
    pub const DURATION: Duration = Duration::from_secs(10);

    /// Settings that leave the plan as it is, and use one thread.
    pub fn new(url: impl Into<String>) -> Self {
        Settings {
            url: url.into(),
            connect: Options::default(),
            bind: None,
            connections: None,
            queue: None,
            transaction: None,
            rate: None,
            duration: None,
            ramp_up: Duration::ZERO,
            seed: 1,
            threads: 1,
            answer_timeout: Duration::from_secs(60),
            interval: Duration::from_secs(1),
            server_pid: None,
            database: None,
            stop: StopToken::default(),
        }
    }
}

/// Receives the progress of a run.
pub trait Observer {
    /// A phase begins. Its connections are open and bound.
    fn begins(&mut self, phase: &str, connections: u32);
    /// An interval is over.
    fn point(&mut self, point: &Point);
    /// A phase is over.
    fn ends(&mut self, report: &PhaseReport);
}

/// Listens to nothing.
impl Observer for () {
    fn begins(&mut self, _phase: &str, _connections: u32) {}
    fn point(&mut self, _point: &Point) {}
    fn ends(&mut self, _report: &PhaseReport) {}
}

/// Runs the phases of a plan one after the other, and returns their reports. After a stop no phase begins.
///
/// # Errors
/// When a connection cannot be opened or its bind fails. What goes wrong later is in the reports.
pub fn run(
    plan: Plan,
    settings: &Settings,
    observer: &mut dyn Observer,
) -> Result<Vec<PhaseReport>, Error> {
    let Plan {
        phases,
        variables,
        operations,
    } = plan;
    let (operations, variables) = (Arc::new(operations), Arc::new(variables));
    let mut reports = Vec::with_capacity(phases.len());
    for phase in phases {
        match run_phase(phase, &operations, &variables, settings, observer)? {
            Some(report) => reports.push(report),
            None => break,
        }
    }
    Ok(reports)
}

/// The names under which a phase reports its operations.
struct Labels {
    names: Vec<String>,
    /// The index of each operation's name.
    of_operations: Vec<usize>,
    /// How many names are of operations of the plan. The names of transactions and connections follow them.
    planned: usize,
}

impl Labels {
    fn new(phase: &Phase, operations: &[PlannedOperation]) -> Self {
        let mut names: Vec<String> = Vec::new();
        let mut of_operations = vec![0; operations.len()];
        let steps = phase.sessions.iter().flat_map(|session| &session.steps);
        for instruction in steps.flat_map(|step| &step.instructions) {
            if let Instruction::Operation { operation, .. } = instruction {
                let index = *operation as usize;
                let label = &operations[index].label;
                let known = names.iter().position(|name| name == label);
                of_operations[index] = known.unwrap_or_else(|| {
                    names.push(label.clone());
                    names.len() - 1
                });
            }
        }
        let planned = names.len();
        names.extend(["start transaction", "end transaction", "connection"].map(str::to_owned));
        Labels {
            names,
            of_operations,
            planned,
        }
    }
}

/// Opens the connections of a phase, runs it and returns its report. Returns `None` when the run was stopped before the
/// phase began.
fn run_phase(
    phase: Phase,
    operations: &Arc<Vec<PlannedOperation>>,
    variables: &Arc<Vec<Variable>>,
    settings: &Settings,
    observer: &mut dyn Observer,
) -> Result<Option<PhaseReport>, Error> {
    let labels = Labels::new(&phase, operations);
    let has_end = phase.sessions.iter().all(|session| session.count.is_some());
    let duration = settings
        .duration
        .or(phase.duration)
        .or_else(|| (!has_end).then_some(Settings::DURATION));
    let end_ns = duration.map_or(u64::MAX, |duration| {
        (settings.ramp_up + duration).as_nanos() as u64
    });
    let mut report = PhaseReport::new(&phase.name);
    let mut connections = Vec::new();
    for (index, session) in phase.sessions.into_iter().enumerate() {
        let of_session = connections_of(session, index, &labels, operations, variables, settings);
        if let Some(first) = of_session.first() {
            report.queue = report.queue.max(first.shared.queue);
            report.transaction = report.transaction.max(first.shared.transaction);
        }
        connections.extend(of_session);
    }
    report.connections = connections.len() as u32;
    let ramp_ns = settings.ramp_up.as_nanos() as u64;
    for (index, connection) in (0..).zip(&mut connections) {
        connection.first_ns += nth_start_ns(ramp_ns, index, report.connections);
    }

    let threads = settings.threads.clamp(1, connections.len().max(1));
    let mut shares: Vec<Vec<PlannedConnection>> = (0..threads).map(|_| Vec::new()).collect();
    for (index, connection) in connections.into_iter().enumerate() {
        shares[index % threads].push(connection);
    }
    let (ready, are_ready) = channel();
    let mut workers = Vec::new();
    for share in shares {
        workers.push(Worker::start(
            share,
            labels.names.len(),
            settings,
            ready.clone(),
        )?);
    }
    drop(ready);
    // Every thread reports once whether it has connected. The first failure ends the run: dropping the workers ends the
    // other threads.
    for _ in 0..threads {
        are_ready
            .recv()
            .unwrap_or_else(|_| Err(Error::Closed("a thread has ended".to_owned())))?;
    }
    if settings.stop.is_requested() {
        return Ok(None);
    }
    observer.begins(&report.name, report.connections);
    let monitor = Monitor {
        epoch: Instant::now(),
        end_ns,
        labels: &labels,
        settings,
    };
    let total = monitor.follow(&mut workers, &are_ready, &mut report, observer);
    report.database_bytes = settings.database.as_deref().and_then(disk_bytes);
    report.complete(&labels.names, labels.planned, &total);
    observer.ends(&report);
    Ok(Some(report))
}

/// The connections of a session, which is the one with this index in its phase.
fn connections_of(
    session: Session,
    index: usize,
    labels: &Labels,
    operations: &Arc<Vec<PlannedOperation>>,
    variables: &Arc<Vec<Variable>>,
    settings: &Settings,
) -> Vec<PlannedConnection> {
    let connections = settings.connections.or(session.connections).unwrap_or(1);
    let rate = settings.rate.or(session.rate);
    let bind = session.bind.clone().or_else(|| settings.bind.clone());
    // Even at the lowest rate the next operation is due within a century, so that sums of times fit 64 bits.
    let period_ns =
        rate.map(|rate| ((f64::from(connections) * 1e9 / rate) as u64).clamp(1, 1 << 61));
    let shared = Arc::new(Shared {
        operations: Arc::clone(operations),
        variables: Arc::clone(variables),
        weights: Weights::new(&session),
        budget: Budget::new(session.count),
        labels: labels.of_operations.clone(),
        start_label: labels.planned,
        end_label: labels.planned + 1,
        connection_label: labels.planned + 2,
        queue: settings.queue.or(session.queue).unwrap_or(1),
        transaction: settings.transaction.or(session.transaction),
        period_ns,
        answer_timeout: settings.answer_timeout,
        session,
    });
    (0..connections)
        .map(|nth| PlannedConnection {
            shared: Arc::clone(&shared),
            number: nth + 1,
            bind: bind.clone(),
            seed: settings.seed ^ (index as u64) << 48,
            first_ns: period_ns.map_or(0, |period| nth_start_ns(period, nth, connections)),
        })
        .collect()
}

/// When the `nth` of `count` connections starts, if they start evenly spread over `span_ns`, in nanoseconds.
fn nth_start_ns(span_ns: u64, nth: u32, count: u32) -> u64 {
    (u128::from(span_ns) * u128::from(nth) / u128::from(count.max(1))) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_start_evenly_spread() {
        assert_eq!(
            [0, 1, 2, 3].map(|nth| nth_start_ns(8, nth, 4)),
            [0, 2, 4, 6]
        );
        // A ramp-up of a year for as many connections as a session may have.
        let year_ns = 366 * 86_400 * 1_000_000_000;
        assert!(nth_start_ns(year_ns, 9_999, 10_000) < year_ns);
    }
}
