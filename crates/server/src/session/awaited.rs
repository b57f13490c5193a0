//! Answers that wait although their updates are durable: until the session is told of a commit with which what they
//! wait for has come. That is a change of the schema, for which the entries are looked at.

use sapwood_directory::engine::Engine;
use sapwood_directory::{AwaitedChange, Outcome, Snapshot};
use sapwood_ldap::result::ResultCode;

use super::Session;
use super::fetch::Fetch;
use super::reply::Reply;

/// The answers that wait.
#[derive(Default)]
pub(super) struct Awaited {
    answers: Vec<Awaiting>,
    /// While a snapshot is begun to see whether they have waited long enough.
    begins: Option<Fetch>,
    /// A commit has come since.
    is_behind: bool,
}

impl Awaited {
    pub(super) fn is_empty(&self) -> bool {
        self.answers.is_empty()
    }
}

/// An answer that waits.
struct Awaiting {
    reply: Reply,
    change: Box<AwaitedChange>,
}

impl<E: Engine> Session<E> {
    /// Has an answer wait. Until it comes the update is under way.
    #[cold]
    pub(super) fn have_wait(&mut self, reply: Reply, change: Box<AwaitedChange>) {
        self.output.answers_due += 1;
        self.operations.updating.extend([reply.id]);
        self.operations
            .awaited
            .answers
            .push(Awaiting { reply, change });
    }

    /// Answers those that have waited long enough, after a commit.
    pub(super) fn answer_awaited(&mut self) {
        if self.operations.awaited.is_empty() {
            return;
        }
        if !E::REMOTE {
            // Without a snapshot they wait for the next commit.
            if let Ok(snapshot) = self.last_snapshot.next(&self.service) {
                self.answer_awaited_in(&snapshot);
            }
        } else if self.operations.awaited.begins.is_some() {
            self.operations.awaited.is_behind = true;
        } else {
            self.operations.awaited.begins = Some(self.begin());
        }
    }

    /// The same in a snapshot that was begun under a number; whether it was begun for this.
    pub(super) fn begun_for_awaited(&mut self, number: u64, begun: Option<&Snapshot<E>>) -> bool {
        let awaited = &mut self.operations.awaited;
        if awaited.begins.take_if(|begin| begin.is(number)).is_none() {
            return false;
        }
        let is_behind = std::mem::take(&mut awaited.is_behind);
        if let Some(snapshot) = begun {
            self.answer_awaited_in(snapshot);
        }
        if is_behind {
            self.answer_awaited();
        }
        true
    }

    fn answer_awaited_in(&mut self, snapshot: &Snapshot<E>) {
        for awaiting in std::mem::take(&mut self.operations.awaited.answers) {
            match snapshot.settled(&awaiting.change) {
                Some(outcome) => self.end_wait(awaiting.reply, outcome),
                None => self.operations.awaited.answers.push(awaiting),
            }
        }
    }

    /// The server stops: what they wait for comes when it has been started again.
    pub(super) fn stop_awaiting(&mut self) {
        for awaiting in std::mem::take(&mut self.operations.awaited.answers) {
            let diagnostic = "the server is stopping: the change takes place after its next start, unless an entry \
                              is in its way";
            let outcome = Outcome::new(ResultCode::Unavailable, diagnostic);
            self.end_wait(awaiting.reply, outcome);
        }
    }

    fn end_wait(&mut self, reply: Reply, outcome: Outcome) {
        self.output.answers_due -= 1;
        self.operations.updating.remove(&reply.id);
        self.answer_update(reply, outcome);
    }
}
