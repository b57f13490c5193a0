//! The sessions of one thread that follow changes, such as those with persistent searches: all of them are told of
//! commits by one task of the thread, so that a commit wakes threads and not connections.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::time::Duration;

use sapwood_directory::engine::Engine;
use tokio::task::{AbortHandle, spawn_local};
use tokio::time::sleep;

use crate::committed::CommitWaiter;
use crate::session::{Completion, Completions, Service};

/// Between two times that sessions are told of commits. Each that is told reads what was changed: busy writers must not
/// have a thread do little else.
const PACE: Duration = Duration::from_millis(10);

type Sessions<E> = Rc<RefCell<HashMap<u64, Completions<E>>>>;

/// Who follows, by the number of the connection. Clones share it.
pub(crate) struct Followers<E: Engine> {
    sessions: Sessions<E>,
    /// Tells them, while there are any.
    task: Rc<RefCell<Option<AbortHandle>>>,
}

impl<E: Engine> Clone for Followers<E> {
    fn clone(&self) -> Self {
        Self {
            sessions: Rc::clone(&self.sessions),
            task: Rc::clone(&self.task),
        }
    }
}

impl<E: Engine> Default for Followers<E> {
    fn default() -> Self {
        Self {
            sessions: Rc::default(),
            task: Rc::default(),
        }
    }
}

impl<E: Engine> Followers<E> {
    /// Has a session told of commits from now on. Of those before, which it may not have seen, it is told nothing.
    ///
    /// Needs the thread's `LocalSet`.
    pub(crate) fn insert(&self, number: u64, session: Completions<E>, service: &Service<E>) {
        self.sessions.borrow_mut().insert(number, session);
        self.task.borrow_mut().get_or_insert_with(|| {
            let commits = service.writer.committed().waiter(&service.directory);
            spawn_local(tell(commits, Rc::clone(&self.sessions))).abort_handle()
        });
    }

    /// A session is told no longer.
    pub(crate) fn remove(&self, number: u64) {
        self.sessions.borrow_mut().remove(&number);
        if self.sessions.borrow().is_empty()
            && let Some(task) = self.task.borrow_mut().take()
        {
            task.abort();
        }
    }
}

async fn tell<E: Engine>(mut commits: CommitWaiter<E>, sessions: Sessions<E>) {
    while commits.wait().await {
        for session in sessions.borrow().values() {
            // One that has ended meanwhile needs to know nothing.
            let _ = session.send(Completion::Committed);
        }
        sleep(PACE).await;
    }
}
