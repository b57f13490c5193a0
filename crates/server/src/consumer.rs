//! This server as a consumer of others (RFC 4533): for each agreement of the configuration a thread that follows the
//! provider, as long as the agreement is there.
//!
//! [`machine`] says what is to be done with what the provider tells, [`link`] does it. Agreements are looked for once a
//! second: they change hardly ever, and nobody else is to be slower for it.

mod comparison;
mod lag;
mod link;
mod machine;
mod status;

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use sapwood_directory::engine::Engine;
use sapwood_directory::{Agreement, Directory};
use tokio::sync::watch;

pub use self::comparison::{Comparison, Difference, DifferenceKind, compare};
pub(crate) use self::lag::context_csns;
pub use self::lag::{Lag, lags};
use self::link::Link;
pub(crate) use self::link::connect;
pub use self::machine::{Machine, Stage, Step, Trouble, use_messages};
use self::status::{Board, Statuses};
pub use self::status::{ConsumerState, ConsumerStatus};
use crate::committed::Committed;

/// How often agreements are looked for.
const LOOK: Duration = Duration::from_secs(1);

/// The consumers. Dropping this ends them.
#[derive(Debug)]
pub(crate) struct Consumers {
    statuses: Arc<Statuses>,
    stop: Option<SyncSender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Consumers {
    /// Begins to follow what the agreements of a directory name.
    pub(crate) fn start<E: Engine>(
        directory: Directory<E>,
        committed: Committed,
    ) -> io::Result<Consumers> {
        let (stop, stopped) = mpsc::sync_channel(1);
        let statuses = Arc::<Statuses>::default();
        let known = Arc::clone(&statuses);
        let thread = thread::Builder::new()
            .name("consumers".into())
            .spawn(move || look_after(&directory, &committed, &known, &stopped))?;
        Ok(Consumers {
            statuses,
            stop: Some(stop),
            thread: Some(thread),
        })
    }

    /// What each is doing.
    pub(crate) fn statuses(&self) -> Vec<ConsumerStatus> {
        self.statuses.all()
    }
}

impl Drop for Consumers {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// A consumer that runs.
struct Running {
    agreement: Agreement,
    stop: watch::Sender<bool>,
    thread: JoinHandle<()>,
}

impl Running {
    fn end(self) {
        let _ = self.stop.send(true);
        let _ = self.thread.join();
    }
}

fn look_after<E: Engine>(
    directory: &Directory<E>,
    committed: &Committed,
    statuses: &Arc<Statuses>,
    stopped: &Receiver<()>,
) {
    let mut running: Vec<Running> = Vec::new();
    loop {
        let wanted = directory.ask_settings(|settings| {
            let wanted = settings.agreements.iter().filter(|one| !one.suspended);
            wanted.cloned().collect::<Vec<_>>()
        });
        match wanted {
            Ok(wanted) => adjust(directory, committed, statuses, &mut running, &wanted),
            Err(error) => tracing::error!("agreements cannot be read: {error}"),
        }
        if !matches!(stopped.recv_timeout(LOOK), Err(RecvTimeoutError::Timeout)) {
            break;
        }
    }
    // All of them at once: each may be about to apply something.
    running.iter().for_each(|one| {
        let _ = one.stop.send(true);
    });
    running.into_iter().for_each(Running::end);
}

/// Ends those that are not wanted any more, and begins those that are wanted and do not run.
fn adjust<E: Engine>(
    directory: &Directory<E>,
    committed: &Committed,
    statuses: &Arc<Statuses>,
    running: &mut Vec<Running>,
    wanted: &[Agreement],
) {
    if running.iter().map(|one| &one.agreement).eq(wanted) {
        return;
    }
    let (kept, ended): (Vec<_>, Vec<_>) = running
        .drain(..)
        .partition(|one| wanted.contains(&one.agreement));
    for one in ended {
        let rid = one.agreement.rid;
        one.end();
        statuses.forget(rid);
        tracing::info!("agreement {rid:03}: ended");
    }
    *running = kept;
    for agreement in wanted {
        if running.iter().any(|one| one.agreement == *agreement) {
            continue;
        }
        match begin(directory, committed, statuses, agreement) {
            Ok(one) => running.push(one),
            Err(error) => tracing::error!("agreement {:03}: {error}", agreement.rid),
        }
    }
    let place = |one: &Running| wanted.iter().position(|other| *other == one.agreement);
    running.sort_by_key(place);
}

fn begin<E: Engine>(
    directory: &Directory<E>,
    committed: &Committed,
    statuses: &Arc<Statuses>,
    agreement: &Agreement,
) -> io::Result<Running> {
    let (stop, stopped) = watch::channel(false);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .build()?;
    let mut link = Link::new(
        directory.clone(),
        committed.clone(),
        agreement.clone(),
        Board::new(statuses, agreement),
        stopped,
    );
    let thread = thread::Builder::new()
        .name(format!("consumer-{:03}", agreement.rid))
        .spawn(move || runtime.block_on(link.run()))?;
    Ok(Running {
        agreement: agreement.clone(),
        stop,
        thread,
    })
}
