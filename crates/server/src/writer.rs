//! The way of an update from a session to the disk and back.
//!
//! Sessions put *units* (the updates of one burst) into a queue. The writer thread takes everything that waits, applies
//! it as one batch, each update succeeding or failing alone. Only when its commit is durable are the outcomes sent back to
//! the sessions. When more updates wait by then, the acknowledging thread gets the batch with its commit ticket and waits for
//! the disk, so that the next batch is applied meanwhile; otherwise the writer itself does, which spares the processor the change of threads
//! and gathers what comes until then in one batch.
//!
//! A directory in several stores has a queue and a writer thread for each of them. A unit is divided by the *homes* of its
//! updates, the stores that they are to be applied in; those of several stores go to the writer of the first of these.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender, SyncSender};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use sapwood_directory::engine::{self, Ticket as _};
use sapwood_directory::{Directory, Outcome, StoreSet, Update, UpdateRequest};
use sapwood_ldap::message::Operation;
use sapwood_ldap::result::ResultCode;
use tokio::sync::mpsc::UnboundedSender;

use crate::memory::Share;
use crate::password::Password;
use crate::session::Completion;

/// Updates that become one batch at most, which some milliseconds apply. While it is on its way to the disk the next one is applied:
/// if all that a client has under way were one batch, disk and processor would wait for each other.
const BATCH_UPDATES_MAX: usize = 256;
/// Batches that are applied and wait until the acknowledging thread is done with another one, besides the last: more of them would only be smaller,
/// and each costs a commit.
const BATCHES_UNSYNCED_MAX: usize = 0;

/// When no update has come for so long, what the last ones put off is done.
const SETTLE_AFTER: Duration = Duration::from_secs(1);

type Ticket = <engine::Embedded as engine::Engine>::Ticket;

/// The updates of one burst of one session.
#[derive(Default)]
pub(crate) struct Unit {
    pub(crate) updates: Vec<Update>,
    /// One for each update: whom to answer and how.
    pub(crate) replies: Vec<Reply>,
    /// One for each update: the stores that it is to be applied in.
    pub(crate) homes: Vec<StoreSet>,
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
    /// A part of the LBURPUpdate response (RFC 4373 §5.4): of which request of the session, and the operation's number in it.
    LburpUpdate { request: u64, operation: u32 },
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
    homes: StoreSet,
    outcomes: Vec<Outcome>,
    ticket: Option<Ticket>,
}

/// Where batches go that are applied while more updates wait.
struct Applied {
    batches: SyncSender<Batch>,
    /// Those that were sent there and are not answered yet.
    unanswered: Arc<AtomicUsize>,
}

/// The entrance of the queues. The threads end when the last one is dropped.
#[derive(Clone, Debug)]
pub(crate) struct Writer {
    /// By store.
    queues: Vec<Sender<Part>>,
}

/// The updates of a unit that have the same homes.
struct Part {
    homes: StoreSet,
    updates: Vec<Update>,
    replies: Vec<Reply>,
    /// Who gets the answers.
    session: UnboundedSender<Completion>,
    /// What the unit holds of the shared memory, until all its parts are applied.
    shares: Arc<(Share, Vec<Share>)>,
}

/// The threads of the writer of one store.
fn start_one(
    directory: &Directory,
    threads: &mut Vec<JoinHandle<()>>,
) -> std::io::Result<Sender<Part>> {
    let (queue, waiting) = mpsc::channel();
    let (applied, unsynced) = mpsc::sync_channel(BATCHES_UNSYNCED_MAX);
    let directory = directory.clone();
    let applied = Applied {
        batches: applied,
        unanswered: Arc::default(),
    };
    let unanswered = Arc::clone(&applied.unanswered);
    let apply = move || apply(&directory, &waiting, &applied);
    let spawn = |name: &str| thread::Builder::new().name(name.into());
    threads.push(spawn("writer").spawn(apply)?);
    let acknowledge = move || acknowledge(&unsynced, &unanswered);
    threads.push(spawn("acknowledger").spawn(acknowledge)?);
    Ok(queue)
}

impl Writer {
    /// Starts, for each store, the writer and the acknowledging thread.
    pub(crate) fn start(directory: Directory) -> std::io::Result<(Self, WriterThreads)> {
        let mut threads = Vec::new();
        let queues = (0..directory.stores())
            .map(|_| start_one(&directory, &mut threads))
            .collect::<Result<_, _>>()?;
        Ok((Self { queues }, WriterThreads { threads }))
    }

    pub(crate) fn submit(&self, unit: Unit, session: UnboundedSender<Completion>) {
        let shares = Arc::new((unit.share, unit.transactions));
        let part = |homes, updates, replies| Part {
            homes,
            updates,
            replies,
            session: session.clone(),
            shares: Arc::clone(&shares),
        };
        let mut homes = unit.homes.iter().copied();
        let first = homes.next().unwrap_or(StoreSet::FIRST);
        if homes.all(|homes| homes == first) {
            return self.send(part(first, unit.updates, unit.replies));
        }
        let mut parts: Vec<Part> = Vec::new();
        for ((update, reply), homes) in unit.updates.into_iter().zip(unit.replies).zip(unit.homes) {
            let at = parts.iter().position(|part| part.homes == homes);
            let at = at.unwrap_or_else(|| {
                parts.push(part(homes, Vec::new(), Vec::new()));
                parts.len() - 1
            });
            parts[at].updates.push(update);
            parts[at].replies.push(reply);
        }
        parts.into_iter().for_each(|part| self.send(part));
    }

    fn send(&self, part: Part) {
        let store = usize::from(part.homes.least()).min(self.queues.len() - 1);
        if let Err(mpsc::SendError(part)) = self.queues[store].send(part) {
            // The writer thread is gone: only after a panic in it.
            let outcomes = vec![
                Outcome::new(
                    ResultCode::Unavailable,
                    "the writer has stopped; restart the server"
                );
                part.updates.len()
            ];
            answer(part.replies, outcomes, part.homes, &part.session);
        }
    }
}

/// The threads behind a [`Writer`].
#[derive(Debug)]
pub(crate) struct WriterThreads {
    threads: Vec<JoinHandle<()>>,
}

impl WriterThreads {
    /// Waits until all that was submitted is on the disk; every [`Writer`] must have been dropped.
    pub(crate) fn join(self) {
        for thread in self.threads {
            let _ = thread.join();
        }
    }
}

fn apply(directory: &Directory, waiting: &Receiver<Part>, applied: &Applied) {
    let mut next = None;
    // The stores with updates that may have put something off.
    let mut unsettled = StoreSet::default();
    loop {
        let Some(first) = next
            .take()
            .or_else(|| receive(directory, waiting, &mut unsettled))
        else {
            return;
        };
        let homes = first.homes;
        unsettled = unsettled.with(homes);
        let mut updates = Vec::new();
        let mut units = Vec::new();
        let mut gathered = 0;
        let mut shares = Vec::new();
        next = Some(first);
        // Updates of other stores, too, make a batch of their own: it waits for the writers of these.
        while let Some(mut part) = next.take_if(|part: &mut Part| part.homes == homes) {
            let requests = part.updates.iter().map(|update| &update.request);
            gathered += requests.map(UpdateRequest::updates).sum::<usize>();
            updates.append(&mut part.updates);
            shares.push(part.shares);
            units.push((part.replies, part.session));
            if gathered < BATCH_UPDATES_MAX {
                next = waiting.try_recv().ok();
            }
        }
        let (outcomes, ticket) = match directory.apply_in(&updates, homes) {
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
        let batch = Batch {
            units,
            homes,
            outcomes,
            ticket,
        };
        next = next.or_else(|| waiting.try_recv().ok());
        // Nothing is answered before what came before it.
        if next.is_none() && applied.unanswered.load(Ordering::Acquire) == 0 {
            finish(batch);
            continue;
        }
        applied.unanswered.fetch_add(1, Ordering::Relaxed);
        if applied.batches.send(batch).is_err() {
            return;
        }
    }
}

/// The next part of a unit; `None` when there will be no more. While none comes, does what was put off.
fn receive(
    directory: &Directory,
    waiting: &Receiver<Part>,
    unsettled: &mut StoreSet,
) -> Option<Part> {
    if unsettled.is_empty() {
        return waiting.recv().ok();
    }
    match waiting.recv_timeout(SETTLE_AFTER) {
        Ok(part) => return Some(part),
        Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {}
    }
    if let Err(error) = directory.settle(std::mem::take(unsettled)) {
        tracing::warn!("what updates have put off stays so: {error}");
    }
    waiting.recv().ok()
}

fn acknowledge(unsynced: &Receiver<Batch>, unanswered: &AtomicUsize) {
    while let Ok(batch) = unsynced.recv() {
        finish(batch);
        unanswered.fetch_sub(1, Ordering::Release);
    }
}

/// Waits until a batch is durable, and answers its updates.
fn finish(batch: Batch) {
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
        answer(replies, own, batch.homes, &session);
    }
}

fn answer(
    replies: Vec<Reply>,
    outcomes: Vec<Outcome>,
    homes: StoreSet,
    session: &UnboundedSender<Completion>,
) {
    let answers = replies.into_iter().zip(outcomes).collect();
    // The session may be gone; its updates stay.
    let _ = session.send(Completion::Updated { homes, answers });
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
