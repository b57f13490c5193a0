//! The way of an update from a session to the disk and back.
//!
//! Sessions put *units* (the updates of one burst) into one queue. The writer thread takes everything that waits, applies
//! it as one batch, each update succeeding or failing alone, and hands the batch with its commit ticket to the
//! acknowledging thread, which waits until the commit is durable and only then sends the outcomes back to the sessions.
//! So the next batch is applied while the last one is on its way to the disk, and one sync serves all that waited.

use std::sync::mpsc::{self, Receiver, RecvError, Sender, SyncSender};
use std::thread::{self, JoinHandle};

use sapwood_directory::engine::{self, Ticket as _};
use sapwood_directory::{Directory, Outcome, Update, UpdateRequest};
use sapwood_ldap::message::Operation;
use sapwood_ldap::result::ResultCode;
use tokio::sync::mpsc::UnboundedSender;

use crate::memory::Share;
use crate::password::Password;
use crate::session::Completion;

/// Updates that become one batch at most, which some milliseconds apply. While it is on its way to the disk the next one is applied:
/// if all that a client has under way were one batch, disk and processor would wait for each other.
const BATCH_UPDATES_MAX: usize = 256;
/// Batches that are applied and wait for the disk at most.
const BATCHES_UNSYNCED_MAX: usize = 16;

type Ticket = <engine::Embedded as engine::Engine>::Ticket;

/// The updates of one burst of one session.
#[derive(Default)]
pub(crate) struct Unit {
    pub(crate) updates: Vec<Update>,
    /// One for each update: whom to answer and how.
    pub(crate) replies: Vec<Reply>,
    /// The unit's share of the queue's bytes, given back when the unit has been applied, as is what its transactions hold.
    pub(crate) share: Share,
    pub(crate) transactions: Vec<Share>,
}

/// How one update is answered.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) id: u32,
    pub(crate) form: Form,
}

/// What an update is answered with.
#[derive(Debug)]
pub(crate) enum Form {
    /// The operation's own response.
    Response(Operation),
    /// Password Modify (RFC 3062 §2), with the password that the server made.
    PasswordModify(Option<Password>),
    /// End Transaction (RFC 5805 §2.3).
    EndTransaction,
    /// The response of an update that was tried, and belongs to the transaction if it succeeded.
    Trial(Box<Trial>),
}

/// An update that was tried for an eager transaction.
#[derive(Debug)]
pub(crate) struct Trial {
    /// The transaction's identifier.
    pub(crate) identifier: Vec<u8>,
    pub(crate) request: UpdateRequest,
    /// How the update is answered.
    pub(crate) form: Form,
}

struct Batch {
    units: Vec<(Vec<Reply>, UnboundedSender<Completion>)>,
    outcomes: Vec<Outcome>,
    ticket: Option<Ticket>,
}

/// The queue's entrance. The threads end when the last one is dropped.
#[derive(Clone, Debug)]
pub(crate) struct Writer {
    queue: Sender<Waiting>,
}

/// A unit and the session that gets its answers.
type Waiting = (Unit, UnboundedSender<Completion>);

impl Writer {
    /// Starts the writer and the acknowledging thread.
    pub(crate) fn start(directory: Directory) -> std::io::Result<(Self, WriterThreads)> {
        let (queue, waiting) = mpsc::channel();
        let (applied, unsynced) = mpsc::sync_channel(BATCHES_UNSYNCED_MAX);
        let apply = thread::Builder::new()
            .name("writer".into())
            .spawn(move || apply(&directory, &waiting, &applied))?;
        let acknowledge = thread::Builder::new()
            .name("acknowledger".into())
            .spawn(move || acknowledge(&unsynced))?;
        Ok((
            Self { queue },
            WriterThreads {
                threads: [apply, acknowledge],
            },
        ))
    }

    pub(crate) fn submit(&self, unit: Unit, session: UnboundedSender<Completion>) {
        if let Err(mpsc::SendError((unit, session))) = self.queue.send((unit, session)) {
            // The writer thread is gone: only after a panic in it.
            let outcomes = vec![
                Outcome::new(
                    ResultCode::Unavailable,
                    "the writer has stopped; restart the server"
                );
                unit.updates.len()
            ];
            answer(unit.replies, outcomes, &session);
        }
    }
}

/// The threads behind a [`Writer`].
#[derive(Debug)]
pub(crate) struct WriterThreads {
    threads: [JoinHandle<()>; 2],
}

impl WriterThreads {
    /// Waits until all that was submitted is on the disk; every [`Writer`] must have been dropped.
    pub(crate) fn join(self) {
        for thread in self.threads {
            let _ = thread.join();
        }
    }
}

fn apply(directory: &Directory, waiting: &Receiver<Waiting>, applied: &SyncSender<Batch>) {
    loop {
        let first = match waiting.recv() {
            Ok(unit) => unit,
            Err(RecvError) => return,
        };
        let mut updates = Vec::new();
        let mut units = Vec::new();
        let mut gathered = 0;
        let mut shares = Vec::new();
        let mut next = Some(first);
        while let Some((mut unit, session)) = next {
            let requests = unit.updates.iter().map(|update| &update.request);
            gathered += requests.map(UpdateRequest::updates).sum::<usize>();
            updates.append(&mut unit.updates);
            shares.push(unit.share);
            shares.append(&mut unit.transactions);
            units.push((unit.replies, session));
            next = if gathered < BATCH_UPDATES_MAX {
                waiting.try_recv().ok()
            } else {
                None
            };
        }
        let (outcomes, ticket) = match directory.apply(&updates) {
            Ok(batch) => (batch.outcomes, batch.ticket),
            Err(error) => {
                tracing::error!(
                    updates = updates.len(),
                    "a batch of updates failed: {error}"
                );
                (vec![refusal(&error); updates.len()], None)
            }
        };
        drop((updates, shares));
        if applied
            .send(Batch {
                units,
                outcomes,
                ticket,
            })
            .is_err()
        {
            return;
        }
    }
}

fn acknowledge(unsynced: &Receiver<Batch>) {
    while let Ok(batch) = unsynced.recv() {
        let mut outcomes = batch.outcomes;
        if let Some(ticket) = batch.ticket
            && let Err(error) = ticket.wait()
        {
            tracing::error!("a commit did not become durable: {error}");
            let refusal = refusal(&error.into());
            for outcome in outcomes
                .iter_mut()
                .filter(|outcome| outcome.code == ResultCode::Success)
            {
                *outcome = refusal.clone();
            }
        }
        let mut outcomes = outcomes.into_iter();
        for (replies, session) in batch.units {
            let own = outcomes.by_ref().take(replies.len()).collect();
            answer(replies, own, &session);
        }
    }
}

fn answer(replies: Vec<Reply>, outcomes: Vec<Outcome>, session: &UnboundedSender<Completion>) {
    // The session may be gone; its updates stay.
    let _ = session.send(Completion::Updated(
        replies.into_iter().zip(outcomes).collect(),
    ));
}

/// What a client is told when the directory itself failed.
pub(crate) fn refusal(error: &sapwood_directory::Error) -> Outcome {
    use sapwood_directory::Error;
    let code = match error {
        Error::Engine(engine::Error::Conflict) => ResultCode::Busy,
        Error::Engine(engine::Error::TooLarge { .. }) => ResultCode::AdminLimitExceeded,
        Error::Engine(engine::Error::Unavailable(_)) => ResultCode::Unavailable,
        _ => ResultCode::UnknownError,
    };
    Outcome::new(code, error.to_string())
}
