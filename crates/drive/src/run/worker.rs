//! A thread with its share of a phase's connections.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use sapwood_client::{Connection, Error};
use tokio::sync::oneshot;
use tokio::task::JoinSet;

use super::Settings;
use crate::load_connection::{LoadConnection, Schedule};
use crate::request_queue::Shared;
use crate::stats::Stats;
use crate::stop_token::StopToken;

/// How often a thread publishes its processor time and looks for a stop.
const TICK_INTERVAL: Duration = Duration::from_millis(20);

/// A connection that a worker is to open.
pub(super) struct PlannedConnection {
    pub(super) shared: Arc<Shared>,
    /// Its number in the session, from 1 on.
    pub(super) number: u32,
    /// The name and the password to bind with.
    pub(super) bind: Option<(String, Vec<u8>)>,
    pub(super) seed: u64,
    /// When it sends its first request, in nanoseconds since the phase began.
    pub(super) first_ns: u64,
}

/// A thread that drives connections.
pub(super) struct Worker {
    /// What its connections have counted since the monitor took the stats last.
    pub(super) stats: Arc<Mutex<Stats>>,
    /// The processor time that the thread has used in the phase.
    pub(super) cpu_ns: Arc<AtomicU64>,
    /// Starts the phase: its beginning, and its end in nanoseconds since then.
    pub(super) begin: Sender<(Instant, u64)>,
    pub(super) thread: std::thread::JoinHandle<()>,
}

impl Worker {
    /// Starts a thread that opens its share of the connections, reports through `ready` that it has, waits for the
    /// beginning of the phase, and reports again at its end.
    ///
    /// # Errors
    /// When the system gives no thread or no event queue.
    pub(super) fn start(
        share: Vec<PlannedConnection>,
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
                        // Nobody receives it when another thread has failed before.
                        Err(error) => return drop(ready.send(Err(error))),
                    };
                    if ready.send(Ok(())).is_err() {
                        return;
                    }
                    let Ok((epoch, end_ns)) = begins.recv() else {
                        return;
                    };
                    runtime.block_on(drive(connections, epoch, end_ns, &settings.stop, &cpu_ns));
                    // The monitor may have ended early.
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

/// Opens connections and binds them.
async fn connect(
    share: Vec<PlannedConnection>,
    settings: &Settings,
    stats: &Arc<Mutex<Stats>>,
) -> Result<Vec<(LoadConnection, u64)>, Error> {
    let mut connections = Vec::with_capacity(share.len());
    for planned in share {
        let mut connection = Connection::open(&settings.url, &settings.connect).await?;
        if let Some((name, password)) = &planned.bind {
            connection.bind(name, password).await?;
        }
        let first_ns = planned.first_ns;
        let connection = LoadConnection::new(
            connection,
            planned.shared,
            planned.number,
            planned.seed,
            stats.clone(),
        );
        connections.push((connection, first_ns));
    }
    Ok(connections)
}

/// Runs connections until all are done or stopped. Publishes the thread's processor time meanwhile.
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
    // Each connection waits for a channel of its own, which costs least while no stop comes.
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
                        // A connection that is done has dropped its receiver.
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
