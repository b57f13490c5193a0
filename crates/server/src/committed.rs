//! Wakes all who wait for commits, such as a search that follows changes.
//!
//! The writer announces its commits when they are visible. Those of other processes, which may write to a directory of
//! one store, nobody announces: who waits looks for them once a second. What stores elsewhere commit their engine is to
//! announce.

use std::time::Duration;

use sapwood_directory::engine::{Embedded, Engine, Read as _};
use sapwood_directory::{CommitNo, Directory};
use tokio::sync::watch;
use tokio::time::timeout;

/// How often who waits looks for commits of other processes.
const POLL: Duration = Duration::from_secs(1);

/// Announces commits.
#[derive(Clone, Debug)]
pub(crate) struct Committed {
    announced: watch::Sender<()>,
}

/// Waits for commits. Those since it was made are not missed.
pub struct CommitWaiter<E: Engine = Embedded> {
    directory: Directory<E>,
    announced: watch::Receiver<()>,
    /// The commit that was there when it was woken last.
    seen: Option<CommitNo>,
}

impl Committed {
    pub(crate) fn new() -> Committed {
        Committed {
            announced: watch::Sender::new(()),
        }
    }

    /// Announces a commit that is visible.
    pub(crate) fn announce(&self) {
        // Mostly nobody waits. Who begins to do so later sees the commit.
        if self.announced.receiver_count() > 0 {
            self.announced.send_replace(());
        }
    }

    /// Waits for commits to a directory from now on.
    pub(crate) fn waiter<E: Engine>(&self, directory: &Directory<E>) -> CommitWaiter<E> {
        CommitWaiter {
            directory: directory.clone(),
            announced: self.announced.subscribe(),
            seen: newest(directory),
        }
    }
}

impl<E: Engine> CommitWaiter<E> {
    /// Returns when something was committed since the last call, or since the waiter was made; a snapshot taken then
    /// shows it. May return too often. `false` when the server has stopped.
    ///
    /// Needs a Tokio runtime with time. Safe to cancel.
    pub async fn wait(&mut self) -> bool {
        loop {
            let announced = self.announced.changed();
            // Several stores have one process that writes.
            let woken = match self.directory.stores() {
                1 if !E::REMOTE => timeout(POLL, announced).await.ok(),
                _ => Some(announced.await),
            };
            let newest = newest(&self.directory);
            match woken {
                Some(Err(_)) => return false,
                Some(Ok(())) => {}
                None if newest > self.seen => {}
                None => continue,
            }
            self.seen = newest;
            return true;
        }
    }
}

/// The newest visible commit; `None` if the store cannot be read, which the one that reads it next is told, and if it
/// takes a round to another machine to know.
fn newest<E: Engine>(directory: &Directory<E>) -> Option<CommitNo> {
    if E::REMOTE {
        return None;
    }
    let snapshot = directory.engine().snapshot().ok()?;
    Some(snapshot.commit())
}
