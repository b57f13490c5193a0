//! How what has become of batches is told: when they are durable, and where that is asked for, when other servers have
//! them; updates of what is copied from another server, when they are made there.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, SendError, SyncSender};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use sapwood_directory::engine::{Engine, Ticket as _};
use sapwood_directory::{Commit, Csn, Directory, Outcome, StoreSet};
use sapwood_ldap::result::ResultCode;

use super::forwarding::{Forwardable, Forwarded, Forwarder};
use super::{Batch, Recipient, refusal};
use crate::acknowledgements::Acknowledgements;
use crate::committed::Committed;
use crate::memory::Share;

/// Batches that are durable here and wait until other servers have them. Behind so many no more are taken.
const BATCHES_HELD_MAX: usize = 1024;

/// Updates of a batch that are made elsewhere, by their places.
pub(super) type ForwardedUpdates = BTreeMap<usize, Forwardable>;

/// How what has become of batches is told.
pub(super) struct Answers<E: Engine, R: Recipient> {
    committed: Committed,
    forwarder: Arc<Forwarder<E, R>>,
    /// Where those go that other servers have to have first.
    held: Option<(Directory<E>, SyncSender<Held<R>>)>,
}

/// A batch that is durable here.
struct Held<R: Recipient> {
    units: Vec<(Vec<R::Reply>, R, Share)>,
    shards: StoreSet,
    outcomes: Vec<Outcome>,
    forwarded: ForwardedUpdates,
    /// The change that other servers have to have; [`Csn::default`] if there is none.
    csn: Csn,
    since: Instant,
}

impl<E: Engine, R: Recipient> Clone for Answers<E, R> {
    fn clone(&self) -> Self {
        Self {
            committed: self.committed.clone(),
            forwarder: Arc::clone(&self.forwarder),
            held: self.held.clone(),
        }
    }
}

impl<E: Engine, R: Recipient> Answers<E, R> {
    /// Starts the thread that waits for other servers, if it is waited for any.
    pub(super) fn start(
        directory: &Directory<E>,
        committed: &Committed,
        acknowledgements: Option<&Arc<Acknowledgements>>,
        threads: &mut Vec<JoinHandle<()>>,
    ) -> io::Result<Answers<E, R>> {
        let forwarder = Forwarder::new(directory.clone(), committed.clone());
        let forwarder = Arc::new(forwarder);
        let held = match acknowledgements.cloned() {
            None => None,
            Some(acknowledgements) => {
                let (held, waiting) = mpsc::sync_channel(BATCHES_HELD_MAX);
                let forwarder = Arc::clone(&forwarder);
                let hold = move || hold(&waiting, &acknowledgements, &forwarder);
                threads.push(thread::Builder::new().name("peers".into()).spawn(hold)?);
                Some((directory.clone(), held))
            }
        };
        Ok(Answers {
            committed: committed.clone(),
            forwarder,
            held,
        })
    }

    /// Waits until a batch is durable, announces it, and answers its updates.
    pub(super) fn finish(&self, batch: Batch<E, R>) {
        let mut outcomes = batch.outcomes;
        match batch.ticket.map(Commit::wait) {
            None => {}
            Some(Ok(_)) => self.committed.announce(),
            Some(Err(error)) => {
                tracing::error!("a commit did not become durable: {error}");
                let refusal = refusal(&error.into());
                for outcome in outcomes
                    .iter_mut()
                    .filter(|outcome| outcome.code == ResultCode::Success)
                {
                    *outcome = refusal.clone();
                }
            }
        }
        let Some((directory, held)) = &self.held else {
            let answers = (outcomes, batch.forwarded);
            return answer(batch.units, batch.shards, answers, &self.forwarder);
        };
        let has_success = outcomes
            .iter()
            .any(|outcome| outcome.code == ResultCode::Success);
        let csn = match has_success.then(|| directory.newest_change()) {
            None => Csn::default(),
            Some(Ok(csn)) => csn,
            Some(Err(error)) => {
                tracing::error!("which change others are to have is not known: {error}");
                Csn::default()
            }
        };
        let batch = Held {
            units: batch.units,
            shards: batch.shards,
            outcomes,
            forwarded: batch.forwarded,
            csn,
            since: Instant::now(),
        };
        // The thread is gone: only after a panic in it.
        if let Err(SendError(batch)) = held.send(batch) {
            let answers = (batch.outcomes, batch.forwarded);
            answer(batch.units, batch.shards, answers, &self.forwarder);
        }
    }
}

/// Answers batches when other servers have them, or do not have them in time.
fn hold<E: Engine, R: Recipient>(
    held: &Receiver<Held<R>>,
    acknowledgements: &Acknowledgements,
    forwarder: &Forwarder<E, R>,
) {
    while let Ok(mut batch) = held.recv() {
        let until = batch.since + acknowledgements.time();
        if let Err(missing) = acknowledgements.wait(batch.csn, until) {
            let done = |outcome: &&mut Outcome| outcome.code == ResultCode::Success;
            for outcome in batch.outcomes.iter_mut().filter(done) {
                outcome.diagnostic.clone_from(&missing);
            }
        }
        let answers = (batch.outcomes, batch.forwarded);
        answer(batch.units, batch.shards, answers, forwarder);
    }
}

/// Answers the updates of a batch, but for those that are made elsewhere.
fn answer<E: Engine, R: Recipient>(
    units: Vec<(Vec<R::Reply>, R, Share)>,
    shards: StoreSet,
    (outcomes, mut forwarded): (Vec<Outcome>, ForwardedUpdates),
    forwarder: &Forwarder<E, R>,
) {
    let mut outcomes = outcomes.into_iter().enumerate();
    for (replies, session, room) in units {
        // Not more of the outcomes than there are replies.
        let answers = replies.into_iter().zip(outcomes.by_ref());
        if forwarded.is_empty() {
            let here = answers.map(|(reply, (_, outcome))| (reply, outcome));
            session.answer(shards, here.collect(), room);
            continue;
        }
        let mut here = Vec::new();
        for (reply, (at, outcome)) in answers {
            match forwarded.remove(&at) {
                None => here.push((reply, outcome)),
                Some(what) => forwarder.forward(Forwarded {
                    what,
                    recipient: session.clone(),
                    reply,
                    shards,
                }),
            }
        }
        session.answer(shards, here, room);
    }
}
