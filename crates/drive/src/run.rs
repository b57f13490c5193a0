//! Runs a plan: phase after phase, each with its connections spread over threads.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use sapwood_client::{Connection, Error, Options};
use tokio::sync::oneshot;
use tokio::task::JoinSet;

use crate::interpreter::{Budget, Weights};
use crate::load_connection::{LoadConnection, Schedule};
use crate::plan::{Instruction, Phase, Plan, PlannedOperation, Session};
use crate::report::{PhaseReport, Point, ServerUse, disk_bytes};
use crate::request_queue::Shared;
use crate::stats::Stats;
use crate::stop_token::StopToken;
use crate::values::Variable;

/// How often threads say how much processor time they have used, and look whether they are to stop.
const TICK_INTERVAL: Duration = Duration::from_millis(20);

/// Where the load goes, and what replaces what the plan says.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The server: an `ldap`, `ldaps` or `ldapi` URL.
    pub url: String,
    /// How to connect.
    pub connect: Options,
    /// Who connections bind as, unless their session says so itself: a name and a password.
    pub bind: Option<(String, Vec<u8>)>,
    /// Connections of each session.
    pub connections: Option<u32>,
    /// Requests in flight on each connection.
    pub queue: Option<u32>,
    /// Updates in each transaction.
    pub transaction: Option<u32>,
    /// Operations per second of each session.
    pub rate: Option<f64>,
    /// How long phases last. Without it, and without a duration or count in the plan, [`Settings::DURATION`].
    pub duration: Option<Duration>,
    /// Connections of a phase begin one by one within this time, which is not counted unless the phase ends in it.
    pub ramp_up: Duration,
    /// Random values are a function of it.
    pub seed: u64,
    /// Threads that drive connections.
    pub threads: usize,
    /// A connection whose server gives no answer for so long is given up.
    pub answer_timeout: Duration,
    /// Time between two points of the series.
    pub interval: Duration,
    /// The server's process, if it is on this machine: what it uses is reported.
    pub server_pid: Option<u32>,
    /// The server's data, if they are on this machine: their size is reported.
    pub database: Option<PathBuf>,
    /// Ends the run before its time.
    pub stop: StopToken,
}

impl Settings {
    /// How long a phase lasts when nothing else is said.
    pub const DURATION: Duration = Duration::from_secs(10);

    /// The plan as it is, on one thread.
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

/// Told what happens.
pub trait Observer {
    /// A phase begins; its connections are made.
    fn begins(&mut self, phase: &str, connections: u32);
    /// An interval is over.
    fn point(&mut self, point: &Point);
    /// A phase is over.
    fn ends(&mut self, report: &PhaseReport);
}

/// Nobody listens.
impl Observer for () {
    fn begins(&mut self, _phase: &str, _connections: u32) {}
    fn point(&mut self, _point: &Point) {}
    fn ends(&mut self, _report: &PhaseReport) {}
}

/// Runs all phases of a plan, or those that begin before the run is stopped.
///
/// # Errors
/// When a connection cannot be made or its bind fails. What goes wrong later is in the reports.
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

/// The names that operations of a phase are reported under.
struct Labels {
    names: Vec<String>,
    /// The place of each operation's.
    of_operations: Vec<usize>,
    /// Places before this one are of operations of the plan; behind it come transactions and connections.
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
                let place = names.iter().position(|name| name == label);
                of_operations[index] = place.unwrap_or_else(|| {
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

/// A connection to be made.
struct Wanted {
    shared: Arc<Shared>,
    /// In its session, from 1 on.
    number: u32,
    bind: Option<(String, Vec<u8>)>,
    seed: u64,
    first_ns: u64,
}

/// `None` when the run was stopped before the phase began.
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
    let mut wanted = Vec::new();
    for (place, session) in phase.sessions.into_iter().enumerate() {
        let session_wants =
            connections_of(session, place, &labels, operations, variables, settings);
        if let Some(first) = session_wants.first() {
            report.queue = report.queue.max(first.shared.queue);
            report.transaction = report.transaction.max(first.shared.transaction);
        }
        wanted.extend(session_wants);
    }
    report.connections = wanted.len() as u32;
    let ramp_ns = settings.ramp_up.as_nanos() as u64;
    let count = wanted.len() as u64;
    for (place, wanted) in wanted.iter_mut().enumerate() {
        wanted.first_ns += ramp_ns * place as u64 / count.max(1);
    }

    let threads = settings.threads.clamp(1, wanted.len().max(1));
    let mut shares: Vec<Vec<Wanted>> = (0..threads).map(|_| Vec::new()).collect();
    for (place, wanted) in wanted.into_iter().enumerate() {
        shares[place % threads].push(wanted);
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
    // Every thread answers once, whatever happens; the first failure counts, and dropping the workers ends the others.
    for _ in 0..threads {
        are_ready
            .recv()
            .unwrap_or_else(|_| Err(Error::Closed("a thread has ended".to_owned())))?;
    }
    if settings.stop.is_requested() {
        return Ok(None);
    }
    observer.begins(&report.name, report.connections);
    let watch = Watch {
        epoch: Instant::now(),
        end_ns,
        labels: &labels,
        settings,
    };
    let total = watch.follow(&mut workers, &are_ready, &mut report, observer);
    report.database_bytes = settings.database.as_deref().and_then(disk_bytes);
    report.complete(&labels.names, labels.planned, &total);
    observer.ends(&report);
    Ok(Some(report))
}

fn connections_of(
    session: Session,
    place: usize,
    labels: &Labels,
    operations: &Arc<Vec<PlannedOperation>>,
    variables: &Arc<Vec<Variable>>,
    settings: &Settings,
) -> Vec<Wanted> {
    let connections = settings.connections.or(session.connections).unwrap_or(1);
    let rate = settings.rate.or(session.rate);
    let bind = session.bind.clone().or_else(|| settings.bind.clone());
    // No rate is so low that the next operation is further away than a century.
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
        .map(|index| Wanted {
            shared: Arc::clone(&shared),
            number: index + 1,
            bind: bind.clone(),
            seed: settings.seed ^ (place as u64) << 48,
            first_ns: period_ns.map_or(0, |period| {
                (u128::from(period) * u128::from(index) / u128::from(connections)) as u64
            }),
        })
        .collect()
}

/// A thread with its connections.
struct Worker {
    stats: Arc<Mutex<Stats>>,
    cpu_ns: Arc<AtomicU64>,
    begin: Sender<(Instant, u64)>,
    thread: std::thread::JoinHandle<()>,
}

impl Worker {
    fn start(
        share: Vec<Wanted>,
        labels: usize,
        settings: &Settings,
        ready: Sender<Result<(), Error>>,
    ) -> Result<Self, Error> {
        let stats = Arc::new(Mutex::new(Stats::new(labels)));
        let cpu_ns = Arc::new(AtomicU64::new(0));
        let (begin, begins) = channel();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let thread = std::thread::Builder::new()
            .name("drive".to_owned())
            .spawn({
                let (stats, cpu_ns, settings) = (stats.clone(), cpu_ns.clone(), settings.clone());
                move || {
                    let connected = runtime.block_on(async {
                        tokio::select! {
                            biased;
                            () = settings.stop.requested() => Ok(Vec::new()),
                            connected = connect(share, &settings, &stats) => connected,
                        }
                    });
                    let connections = match connected {
                        Ok(connections) => connections,
                        // Who asked has gone when another thread failed first.
                        Err(error) => return drop(ready.send(Err(error))),
                    };
                    if ready.send(Ok(())).is_err() {
                        return;
                    }
                    let Ok((epoch, end_ns)) = begins.recv() else {
                        return;
                    };
                    runtime.block_on(drive(connections, epoch, end_ns, &settings.stop, &cpu_ns));
                    // The end, which the other side may no longer wait for.
                    let _ = ready.send(Ok(()));
                }
            })?;
        Ok(Worker {
            stats,
            cpu_ns,
            begin,
            thread,
        })
    }
}

/// Makes connections and binds them.
async fn connect(
    share: Vec<Wanted>,
    settings: &Settings,
    stats: &Arc<Mutex<Stats>>,
) -> Result<Vec<(LoadConnection, u64)>, Error> {
    let mut connections = Vec::with_capacity(share.len());
    for wanted in share {
        let mut connection = Connection::open(&settings.url, &settings.connect).await?;
        if let Some((name, password)) = &wanted.bind {
            connection.bind(name, password).await?;
        }
        let first_ns = wanted.first_ns;
        let connection = LoadConnection::new(
            connection,
            wanted.shared,
            wanted.number,
            wanted.seed,
            stats.clone(),
        );
        connections.push((connection, first_ns));
    }
    Ok(connections)
}

/// Runs connections until all are done or stopped, keeping the thread's processor time up to date.
async fn drive(
    connections: Vec<(LoadConnection, u64)>,
    epoch: Instant,
    end_ns: u64,
    stop: &StopToken,
    cpu_ns: &AtomicU64,
) {
    let before = thread_cpu();
    let publish = || cpu_ns.store((thread_cpu() - before).as_nanos() as u64, Ordering::Relaxed);
    let mut running = JoinSet::new();
    // Each connection has its own word to wait for, which costs it least while none comes.
    let mut stops = Vec::with_capacity(connections.len());
    for (connection, first_ns) in connections {
        let schedule = Schedule {
            epoch,
            first_ns,
            end_ns,
        };
        let (stop, stopped) = oneshot::channel();
        stops.push(stop);
        running.spawn(connection.run(schedule, stopped));
    }
    let mut ticks = tokio::time::interval(TICK_INTERVAL);
    loop {
        tokio::select! {
            ended = running.join_next() => match ended {
                Some(Ok(())) => {}
                Some(Err(panic)) => std::panic::resume_unwind(panic.into_panic()),
                None => break,
            },
            _ = ticks.tick() => {
                publish();
                if stop.is_requested() {
                    for stop in stops.drain(..) {
                        // A connection that is done does not listen.
                        let _ = stop.send(());
                    }
                }
            }
        }
    }
    publish();
}

fn thread_cpu() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Follows the threads from the beginning of a phase to its end.
struct Watch<'w> {
    epoch: Instant,
    end_ns: u64,
    labels: &'w Labels,
    settings: &'w Settings,
}

impl Watch<'_> {
    fn follow(
        &self,
        workers: &mut Vec<Worker>,
        ends: &Receiver<Result<(), Error>>,
        report: &mut PhaseReport,
        observer: &mut dyn Observer,
    ) -> Stats {
        let labels = self.labels.names.len();
        for worker in workers.iter() {
            // A thread that is gone is noticed when it is waited for.
            let _ = worker.begin.send((self.epoch, self.end_ns));
        }
        let [mut total, mut ramp_up, mut part] = [(); 3].map(|()| Stats::new(labels));
        let (mut running, mut since) = (workers.len(), Duration::ZERO);
        let mut is_warm = self.settings.ramp_up.is_zero();
        let (mut measured_from, mut cpu_before) = (Duration::ZERO, Duration::ZERO);
        let mut server_before = self.settings.server_pid.and_then(ServerUse::read);
        while running > 0 {
            let next = match is_warm {
                true => since + self.settings.interval,
                false => (since + self.settings.interval).min(self.settings.ramp_up),
            };
            match ends.recv_timeout((self.epoch + next).saturating_duration_since(Instant::now())) {
                Ok(_) => {
                    running -= 1;
                    if running > 0 {
                        continue;
                    }
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => running = 0,
            }
            let now = self.epoch.elapsed();
            for worker in workers.iter() {
                let mut stats = worker.stats.lock().unwrap_or_else(PoisonError::into_inner);
                part.take(&mut stats);
            }
            let length = now.saturating_sub(since);
            let point = Point::new(
                now,
                length,
                &part.operations[..self.labels.planned],
                is_warm,
            );
            observer.point(&point);
            report.series.push(point);
            total.last_ns = part.last_ns;
            report.is_cut_short |= part.is_cut_short;
            match is_warm {
                true => total.add(&part),
                false => ramp_up.add(&part),
            }
            part = Stats::new(labels);
            since = now;
            if !is_warm && now >= self.settings.ramp_up {
                is_warm = true;
                measured_from = now;
                cpu_before = cpu(workers);
                server_before = self.settings.server_pid.and_then(ServerUse::read);
            }
        }
        if is_warm {
            // What went wrong is told whenever it was.
            for (label, example) in std::mem::take(&mut ramp_up.examples) {
                total.keep_example(label, || example);
            }
            for ((label, reason), count) in ramp_up.errors {
                let reason = format!("during ramp-up: {reason}");
                total.errors.insert((label, reason), count);
            }
        } else {
            // It was over before: then all of it counts.
            total = ramp_up;
            let points = report.series.iter_mut();
            points.for_each(|point| point.is_counted = true);
        }
        report.client_cpu = cpu(workers).saturating_sub(cpu_before);
        let server_after = self.settings.server_pid.and_then(ServerUse::read);
        report.server = server_after
            .zip(server_before)
            .map(|(after, before)| after.since(before));
        let last = Duration::from_nanos(total.last_ns);
        report.seconds = last.saturating_sub(measured_from).as_secs_f64();
        for worker in workers.drain(..) {
            if let Err(panic) = worker.thread.join() {
                std::panic::resume_unwind(panic);
            }
        }
        total
    }
}

fn cpu(workers: &[Worker]) -> Duration {
    let used = workers
        .iter()
        .map(|worker| worker.cpu_ns.load(Ordering::Relaxed));
    Duration::from_nanos(used.sum())
}
