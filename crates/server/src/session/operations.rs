//! The operations of a session that are not answered yet, and what they wait for.

use std::sync::Arc;

use sapwood_directory::engine::Engine;
use sapwood_directory::{AccountChange, Outcome, Requester, Snapshot, StoreSet, UpdateRequest};
use sapwood_ldap::controls::PasswordValidationDetails;

use super::awaited::Awaited;
use super::bind::{Authorization, Challenged, Hashing, Verdict};
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
    /// How many of the next searches to begin together. It is one while searches need more than one step.
    pub(super) prefetch: usize,
    /// The message ids of the updates that the writer has, for Cancel. A client may repeat an id, so that this does not
    /// count them; `answers_due` of [`Output`](super::output::Output) does.
    pub(super) updating: MessageIds,
    /// Answers of applied updates that wait for something else, such as a change of the schema.
    pub(super) awaited: Awaited,
    pub(super) tree_deletes: TreeDeletes,
    /// The number of updates under way by their shards, if the directory has several stores.
    pub(super) shards: Vec<(StoreSet, usize)>,
    /// The message id of a request that no other may overlap.
    pub(super) exclusive: Option<u32>,
    /// What this request waits for: a hasher, or the time of the answer to a failed bind.
    pub(super) hashing: Option<Hashing>,
    /// Whether the bind under way is to leave the connection as it is, by Verify Credentials.
    pub(super) verifies: bool,
    /// Whether the client of the bind under way has sent the control of password policies, and there are policies.
    pub(super) tells_policy: bool,
    /// Whether the client of the bind under way wants to know whom it has bound.
    pub(super) tells_identity: bool,
    /// Whether the bind under way tells what its searches may take.
    pub(super) tells_limits: bool,
    /// What the client may do if the bind under way succeeds.
    pub(super) authorization: Authorization,
    /// The operations under way, as limits count them.
    pub(super) counted_as: Counted,
    /// The claim under which the bind under way counts as one that may fail.
    pub(super) counted: Option<Claim>,
    /// A SASL bind that waits for the client's next message.
    pub(super) challenged: Option<Challenged>,
    pub(super) transactions: Transactions,
    pub(super) lburp: Lburp,
    /// Response controls that requests have asked for.
    pub(super) wishes: Wishes,
    /// The share that the first request of the input waits for, and the one that it was granted.
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
            verifies: false,
            tells_policy: false,
            tells_identity: false,
            tells_limits: false,
            authorization: Authorization::default(),
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

/// Something that another thread has done for a session, or tells it.
pub(crate) enum Completion<E: Engine> {
    /// Updates with the same shards, durable if they succeeded.
    Updated {
        shards: StoreSet,
        answers: Vec<(Reply, Outcome)>,
        /// The memory for answers that their response controls hold.
        room: Share,
    },
    /// The password of a bind has been checked, and perhaps hashed again to be stored in another form.
    Verified {
        id: u32,
        verdict: Verdict,
        change: Option<AccountChange>,
    },
    /// The passwords of an update have been checked and hashed.
    Hashed(Box<Hashed>),
    /// The same for an operation of a bulk update.
    LburpHashed(Box<HashedOperation>),
    /// A long search or compare has been prepared.
    Prepared(Box<Prepared<E>>),
    /// The fetch with this number has ended. It may have begun a snapshot, or have failed.
    Fetched {
        number: u64,
        fetched: Result<Option<Snapshot<E>>, Outcome>,
    },
    /// There was a commit. Persistent searches go on with it, and answers may wait for it.
    Committed,
    /// Another connection needs the place. The session ends unless it is at work.
    MakeRoom,
    /// The server stops. The session ends its searches, finishes its updates, and then ends.
    Stop,
}

/// An update whose passwords have been checked and hashed.
pub(crate) struct Hashed {
    /// The update, or the outcome if it is refused.
    pub(super) request: Result<UpdateRequest, Outcome>,
    /// What came of looking at the password, if the client wants to know.
    pub(super) details: Option<PasswordValidationDetails>,
    /// The requester.
    pub(super) by: Arc<Requester>,
    pub(super) reply: Reply,
    /// The identifier of the transaction that it belongs to.
    pub(super) transaction: Option<Vec<u8>>,
    /// The update's share of the queue.
    pub(super) share: Share,
}

/// A wanted share of the memory for requests that are worked on.
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

    /// Takes the share that [`Session::wants_share`] has asked for.
    pub(crate) fn granted(&mut self, share: Share) {
        self.operations.granted = share;
        self.operations.wanted = None;
    }

    /// A share for the next request: one that was granted, or one that is there at once. `None` makes the request wait.
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

    /// Takes in what another thread has done. Call [`Session::process`] afterwards.
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
                    // Count them down one by one: the room reserved for the others must not go to this answer's texts.
                    self.output.answers_due -= 1;
                    // The id of a bulk update is removed with the last of its operations.
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
