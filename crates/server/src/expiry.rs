//! Deletes dynamic entries that have ended (RFC 2589), on a thread of its own.

use std::io;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender};
use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use sapwood_directory::Directory;
use sapwood_directory::engine::Engine;

use crate::committed::Committed;

/// How often is looked whether entries are to be deleted now.
const LOOKS: Duration = Duration::from_secs(1);

/// The thread. Dropping it ends it.
#[derive(Debug)]
pub(crate) struct Expiry {
    stopping: Arc<AtomicBool>,
    end: Option<SyncSender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Expiry {
    /// Begins to delete the entries of a directory that have ended. Those that have ended while no server ran are
    /// deleted at once.
    pub(crate) fn start<E: Engine>(
        directory: Directory<E>,
        committed: Committed,
    ) -> io::Result<Expiry> {
        let (end, ended) = mpsc::sync_channel(0);
        let stopping = Arc::<AtomicBool>::default();
        let is_stopping = Arc::clone(&stopping);
        let thread = thread::Builder::new()
            .name("expiry".into())
            .spawn(move || delete(&directory, &committed, &ended, &is_stopping))?;
        Ok(Expiry {
            stopping,
            end: Some(end),
            thread: Some(thread),
        })
    }
}

impl Drop for Expiry {
    fn drop(&mut self) {
        self.stopping.store(true, Ordering::Release);
        self.end = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn delete<E: Engine>(
    directory: &Directory<E>,
    committed: &Committed,
    ended: &Receiver<()>,
    stopping: &AtomicBool,
) {
    let mut last: Option<Instant> = None;
    loop {
        let interval = directory.expiry_interval().unwrap_or_else(|error| {
            tracing::error!(
                "entries that have ended are not deleted: {error}. This is tried again"
            );
            None
        });
        let is_due = interval.is_some_and(|seconds| {
            last.is_none_or(|last| last.elapsed() >= Duration::from_secs(seconds.into()))
        });
        if is_due {
            last = Some(Instant::now());
            match directory.delete_ended(|| !stopping.load(Ordering::Acquire)) {
                Ok(0) => {}
                Ok(deleted) => {
                    committed.announce();
                    tracing::info!("deleted dynamic entries that have ended: {deleted}");
                }
                Err(error) => tracing::error!(
                    "entries that have ended are not deleted: {error}. This is tried again"
                ),
            }
        }
        if ended.recv_timeout(LOOKS) != Err(RecvTimeoutError::Timeout) {
            return;
        }
    }
}
