//! Writes what is kept of binds, on a thread of its own: nobody waits for it, and binds that come meanwhile are written
//! together.

use std::io;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use sapwood_directory::Directory;
use sapwood_directory::engine::Engine;

/// How long binds are gathered. What came last is forgotten when the machine stops.
const REST: Duration = Duration::from_secs(10);

/// The thread. Dropping it writes what is left.
pub(crate) struct AccountKeeper {
    /// Ends its waiting.
    end: Box<dyn Fn() + Send + Sync>,
    thread: Option<JoinHandle<()>>,
}

impl AccountKeeper {
    /// Begins to write what is kept of the binds of a directory.
    pub(crate) fn start<E: Engine>(directory: Directory<E>) -> io::Result<AccountKeeper> {
        let keeper = directory.clone();
        let thread = thread::Builder::new()
            .name("accounts".into())
            .spawn(move || keep(&keeper))?;
        Ok(AccountKeeper {
            end: Box::new(move || directory.end_accounts()),
            thread: Some(thread),
        })
    }
}

impl Drop for AccountKeeper {
    fn drop(&mut self) {
        (self.end)();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn keep<E: Engine>(directory: &Directory<E>) {
    while directory.wait_for_accounts() {
        directory.rest_between_accounts(REST);
        write(directory);
    }
    write(directory);
}

fn write<E: Engine>(directory: &Directory<E>) {
    if let Err(error) = directory.write_accounts() {
        tracing::error!("failures and last binds are not written: {error}. This is tried again");
    }
}
