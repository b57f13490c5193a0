//! What is under way: the operations of a session that are not answered yet, and what they wait for.

use std::sync::Arc;

use sapwood_directory::engine::Engine;
use sapwood_directory::{AccountChange, Outcome, Requester, Snapshot, StoreSet, UpdateRequest};

use super::awaited::Awaited;
use super::bind::{ActsAs, Challenged, Hashing, Verdict};
use super::extended::lburp::{HashedOperation, Lburp};
use super::extended::transaction::Transactions;
use super::ids::{MessageIds, Wishes};
use super::limits::Counted;
use super::long::Prepared;
use super::prefetch::PREFETCH_MAX;
use super::reply::{Reply, ReplyKind};
use super::tree_delete::TreeDeletes;
use super::{Draining, Session, Then, search};
use crate::memory::{Pool, Share};
use crate::workers::Claim;

/// The operations under way.
pub(super) struct Operations<E: Engine> {
    pub(super) searches: search::Running<E>,
    /// So many of the searches that come next are begun together: one, while searches are not done with their first
    /// step.
    pub(super) prefetch: usize,
    /// Message ids of the updates that the writer has, for Cancel. Clients may repeat one: how many updates there are
    /// [`Output::answers_due`](super::output::Output) says.
    pub(super) updating: MessageIds,
    /// Answers of updates that wait for something else than the writer.
    pub(super) awaited: Awaited,
    pub(super) tree_deletes: TreeDeletes,
    /// How many of them have these shards, if the directory is in several stores.
    pub(super) shards: Vec<(StoreSet, usize)>,
    /// The message id of the request that nothing may overlap.
    pub(super) exclusive: Option<u32>,
    /// What it waits for, if that is a hasher or the time at which a failed bind is answered.
    pub(super) hashing: Option<Hashing>,
    /// The client wants to know what a password policy says of the bind under way, and there are policies.
    pub(super) tells_policy: bool,
    /// The client wants to know who it is when the bind under way succeeds.
    pub(super) tells_identity: bool,
    /// As whom the client of the bind under way acts when it succeeds.
    pub(super) acts_as: ActsAs,
    /// What is under way, as it is counted for limits.
    pub(super) counted_as: Counted,
    /// In whose name the bind under way is counted as one that may fail.
    pub(super) counted: Option<Claim>,
    /// A SASL bind that its client goes on with.
    pub(super) challenged: Option<Challenged>,
    pub(super) transactions: Transactions,
    pub(super) lburp: Lburp,
    /// What requests want their responses to carry.
    pub(super) wishes: Wishes,
    /// The share that the first request of the input needs to go on, and what was granted for it.
    pub(super) wanted: Option<Wanted>,
    pub(super) granted: Share,
}

impl<E: Engine> Default for Operations<E> {
    fn default() -> Self {
        Self {
            searches: search::Running::default(),
            prefetch: PREFETCH_MAX,
            updating: MessageIds::default(),
            awaited: Awaited::default(),
            tree_deletes: TreeDeletes::default(),
            shards: Vec::new(),
            exclusive: None,
            hashing: None,
            tells_policy: false,
            tells_identity: false,
            acts_as: ActsAs::Itself,
            counted_as: Counted::default(),
            counted: None,
            challenged: None,
            transactions: Transactions::default(),
            lburp: Lburp::default(),
            wishes: Wishes::default(),
            wanted: None,
            granted: Share::default(),
        }
    }
}

/// What another thread has finished for a session.
pub(crate) enum Completion<E: Engine> {
    /// Updates with the same shards, durable if they succeeded.
    Updated {
        shards: StoreSet,
        answers: Vec<(Reply, Outcome)>,
        /// What their response controls hold of the memory for answers.
        room: Share,
    },
    /// The password of a bind has been checked; if it is right, perhaps it is to be stored anew.
    Verified {
        id: u32,
        verdict: Verdict,
        change: Option<AccountChange>,
    },
    /// Passwords have been checked and hashed; what is left is an update, or an answer.
    Hashed(Box<Hashed>),
    /// Those of an operation of a bulk update.
    LburpHashed(Box<HashedOperation>),
    /// A long search or compare has been made ready.
    Prepared(Box<Prepared<E>>),
    /// What something under this number waits for has been fetched, which may be a snapshot; or why not.
    Fetched {
        number: u64,
        fetched: Result<Option<Snapshot<E>>, Outcome>,
    },
    /// There was a commit, which persistent searches go on with, and answers may wait for.
    Committed,
    /// Somebody else needs the connection's place: the session ends unless it is being worked for.
    MakeRoom,
    /// The server stops: updates under way are finished, searches end, then the session does.
    Stop,
}

/// An update whose passwords have been checked and hashed.
pub(crate) struct Hashed {
    /// The update, or why there is none.
    pub(super) request: Result<UpdateRequest, Outcome>,
    /// For whom it is done.
    pub(super) by: Arc<Requester>,
    pub(super) reply: Reply,
    /// The identifier of the transaction that it belongs to.
    pub(super) transaction: Option<Vec<u8>>,
    /// The update's share of the queue.
    pub(super) share: Share,
}

/// A share of the memory for requests that are worked on.
#[derive(Clone, Copy, Debug)]
pub(super) enum Wanted {
    Update(usize),
    Search(usize),
}

impl<E: Engine> Session<E> {
    /// Whether no request is being worked on.
    pub(crate) fn is_idle(&self) -> bool {
        self.operations.searches.is_empty()
            && self.output.answers_due == 0
            && self.operations.exclusive.is_none()
            && self.operations.wanted.is_none()
            && !self.fetches()
    }

    /// Whether searches are under way, each of which has a snapshot.
    pub(crate) fn is_searching(&self) -> bool {
        !self.operations.searches.is_empty()
    }

    pub(super) fn takes_requests(&self) -> bool {
        self.then == Then::Continue
            && self.draining.is_none()
            && self.operations.exclusive.is_none()
            && self.operations.wanted.is_none()
            && !self.fetches()
            && self.has_room()
            && !self.operations.searches.is_full()
            && !self.waits_for_room()
            && self.output.answers_due < self.settings.config.limits.operations_max
    }

    /// The pool and the bytes that the next request waits for; see [`Session::granted`].
    pub(crate) fn wants_share(&self) -> Option<(&Pool, usize)> {
        self.operations.wanted.map(|wanted| self.pool_of(wanted))
    }

    pub(super) fn pool_of(&self, wanted: Wanted) -> (&Pool, usize) {
        let memory = &self.service.memory;
        match wanted {
            Wanted::Update(bytes) => (&memory.updates, bytes),
            Wanted::Search(bytes) => (&memory.searches, bytes),
        }
    }

    /// What [`Session::wants_share`] asked for is there.
    pub(crate) fn granted(&mut self, share: Share) {
        self.operations.granted = share;
        self.operations.wanted = None;
    }

    /// A share that the next request needs: what was granted, or what is there at once. Without it the request waits.
    pub(super) fn share(&mut self, wanted: Wanted) -> Option<Share> {
        let granted = std::mem::take(&mut self.operations.granted);
        let (pool, bytes) = self.pool_of(wanted);
        if pool.owns(&granted) && pool.suffices(granted.bytes(), bytes) {
            return Some(granted);
        }
        let share = pool.try_take(&self.context.claimant, bytes);
        if share.is_none() {
            self.operations.wanted = Some(wanted);
        }
        share
    }

    /// Takes in what another thread has finished. [`Session::process`] goes on.
    pub(crate) fn complete(&mut self, completion: Completion<E>) {
        match completion {
            Completion::Updated {
                shards,
                answers,
                room,
            } => {
                self.output.room.add(room);
                self.left(shards, answers.len());
                for (reply, outcome) in answers {
                    // One by one: what is kept for the others is not there for this one's texts.
                    self.output.answers_due -= 1;
                    // That of a bulk update is removed with the last of its operations.
                    if !matches!(reply.kind, ReplyKind::LburpUpdate { .. }) {
                        self.operations.updating.remove(&reply.id);
                    }
                    self.answer_update(reply, outcome);
                }
            }
            Completion::Verified {
                id,
                verdict,
                change,
            } => self.verified(id, verdict, change),
            Completion::Committed => {
                self.operations.searches.committed();
                self.answer_awaited();
            }
            Completion::MakeRoom => self.make_room(),
            Completion::Stop => {
                self.draining = self.draining.or(Some(Draining::ServerStops));
                self.operations.wanted = None;
                self.stop_reads();
                self.stop_hashing();
                self.stop_searches();
                self.stop_awaiting();
            }
            Completion::Hashed(hashed) => self.hashed(*hashed),
            Completion::Fetched { number, fetched } => self.fetched(number, fetched),
            Completion::Prepared(prepared) => self.prepared(*prepared),
            Completion::LburpHashed(hashed) => self.lburp_hashed(*hashed),
        }
    }
}
