//! Answers that wait although their updates are durable: until the session is told of a commit with which what they
//! wait for has come. That is a change of the schema, for which the entries are looked at.

use sapwood_directory::Outcome;
use sapwood_directory::engine::Engine;
use sapwood_directory::schema_change::AwaitedChange;
use sapwood_ldap::result::ResultCode;

use super::Session;
use super::reply::Reply;

/// An answer that waits.
pub(super) struct Awaiting {
    reply: Reply,
    change: Box<AwaitedChange>,
}

impl<E: Engine> Session<E> {
    /// Has an answer wait. Until it comes the update is under way.
    #[cold]
    pub(super) fn have_wait(&mut self, reply: Reply, change: Box<AwaitedChange>) {
        self.output.answers_due += 1;
        self.operations.updating.extend([reply.id]);
        self.operations.awaiting.push(Awaiting { reply, change });
    }

    /// Answers those that have waited long enough, after a commit.
    pub(super) fn answer_awaited(&mut self) {
        if self.operations.awaiting.is_empty() {
            return;
        }
        // Without a snapshot they wait for the next commit.
        let Ok(snapshot) = self.last_snapshot.next(&self.service) else {
            return;
        };
        for awaiting in std::mem::take(&mut self.operations.awaiting) {
            match snapshot.settled(&awaiting.change) {
                Some(outcome) => self.end_wait(awaiting.reply, outcome),
                None => self.operations.awaiting.push(awaiting),
            }
        }
    }

    /// The server stops: what they wait for comes when it has been started again.
    pub(super) fn stop_awaiting(&mut self) {
        for awaiting in std::mem::take(&mut self.operations.awaiting) {
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
