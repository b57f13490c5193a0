//! Tree delete (the control 1.2.840.113556.1.4.805): a delete that takes what is below its target with it. One of a
//! large tree is several commits. Between two of them the session looks whether it is to go on: the time limit of the
//! client's searches, Abandon, Cancel, and the end of the connection or the server end it, and the client is told how
//! many entries are gone. Requests that come behind it do not wait for its end.

use std::sync::Arc;
use std::time::{Duration, Instant};

use sapwood_directory::engine::Engine;
use sapwood_directory::{Outcome, Requester, StoreSet, UpdateRequest};
use sapwood_ldap::message::Operation;
use sapwood_ldap::result::ResultCode;

use super::record::Record;
use super::reply::{Reply, ReplyKind, Unit};
use super::{Burst, Draining, Session};
use crate::memory::Share;

/// When a tree delete has to end, if there is a limit.
#[derive(Clone, Copy, Debug)]
pub(super) struct Deadline(pub(super) Option<Instant>);

/// How many copies of its request a tree delete has: one is the writer's.
pub(super) const COPIES: usize = 2;

/// A tree delete under way.
#[derive(Debug)]
pub(super) struct TreeDelete {
    /// The whole message.
    request: Vec<u8>,
    by: Arc<Requester>,
    shards: StoreSet,
    pub(super) deadline: Deadline,
    /// Entries that are gone.
    deleted: u64,
    /// The memory of its request.
    _share: Share,
}

/// The tree deletes of a session by their message ids, with what is to end them.
#[derive(Debug, Default)]
pub(super) struct TreeDeletes(Vec<(u32, Wanted)>);

/// What its client wants of a tree delete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wanted {
    /// That it goes on.
    All,
    /// That it ends without an answer.
    Abandoned,
    /// That it ends, asked for by a Cancel with this message id.
    Canceled(u32),
}

impl TreeDeletes {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn has(&self, id: u32) -> bool {
        self.0.iter().any(|(known, _)| *known == id)
    }

    /// Has the one with this message id end as soon as it can, without an answer; whether there is one.
    pub(super) fn abandon(&mut self, target: u32) -> bool {
        self.end(target, Wanted::Abandoned)
    }

    /// The same, for a Cancel with the message id `by`, which is answered then.
    pub(super) fn cancel(&mut self, target: u32, by: u32) -> bool {
        self.end(target, Wanted::Canceled(by))
    }

    /// Has all end, as nobody waits for them any more.
    pub(super) fn abandon_all(&mut self) {
        for (_, wanted) in &mut self.0 {
            *wanted = Wanted::Abandoned;
        }
    }

    fn end(&mut self, target: u32, end: Wanted) -> bool {
        let known = self.0.iter_mut();
        let mut going_on = known.filter(|(id, wanted)| *id == target && *wanted == Wanted::All);
        let found = going_on.next();
        found.map(|(_, wanted)| *wanted = end).is_some()
    }

    fn take(&mut self, id: u32) -> Wanted {
        let at = self.0.iter().position(|(known, _)| *known == id);
        at.map_or(Wanted::All, |at| self.0.swap_remove(at).1)
    }
}

impl<E: Engine> Session<E> {
    /// When a tree delete that begins now has to end; what is read for that may not be here.
    pub(super) fn tree_delete_deadline(
        &mut self,
        by: &Arc<Requester>,
        burst: &mut Burst<'_, E>,
    ) -> Result<Deadline, Outcome> {
        let snapshot = burst.snapshot(self)?.clone();
        let seconds = self.limits(&snapshot, by)?.seconds_max(0);
        let seconds = (seconds > 0).then(|| Duration::from_secs(u64::from(seconds)));
        Ok(Deadline(seconds.map(|seconds| self.now() + seconds)))
    }

    /// What is kept of a tree delete while the writer has it.
    pub(super) fn begin_tree_delete(
        &mut self,
        (id, request): (u32, &[u8]),
        by: &Arc<Requester>,
        (shards, deadline): (StoreSet, Deadline),
        share: Share,
    ) -> Reply {
        self.operations.tree_deletes.0.push((id, Wanted::All));
        let kind = ReplyKind::TreeDelete(Box::new(TreeDelete {
            request: request.to_vec(),
            by: by.clone(),
            shards,
            deadline,
            deleted: 0,
            _share: share,
        }));
        Reply::new(id, kind)
    }

    /// Takes in what the writer has done of a tree delete: answers it, or has it go on.
    #[cold]
    pub(super) fn tree_delete_answered(
        &mut self,
        (id, mut record): (u32, Option<Box<Record>>),
        mut tree: TreeDelete,
        mut outcome: Outcome,
    ) {
        let wanted = self.operations.tree_deletes.take(id);
        if let Some(count) = outcome.unfinished.take() {
            tree.deleted += u64::from(count.get());
            match self.tree_delete_end(wanted, &tree) {
                Some(end) => outcome = end,
                None => return self.delete_more((id, record), tree),
            }
        } else if let Wanted::Canceled(by) = wanted {
            let late = Outcome::new(ResultCode::TooLate, "the delete had come to its end");
            self.answer_extended(by, &late, None, None);
        }
        if outcome.code != ResultCode::Success && tree.deleted > 0 {
            outcome.diagnostic = format!(
                "{}; {} entries below the target are deleted, it and others are not",
                outcome.diagnostic, tree.deleted
            );
        }
        if let Some(record) = &mut record {
            record.settle(&outcome);
        }
        match (wanted, outcome.code) {
            (Wanted::Abandoned, ResultCode::Canceled) => {
                self.operations.wishes.remove(&id);
                return;
            }
            (Wanted::Canceled(by), ResultCode::Canceled) => {
                self.answer_extended(by, &Outcome::SUCCESS, None, None);
            }
            _ => {}
        }
        if let Some(record) = record {
            self.records.put(id, record);
        }
        self.answer(id, Operation::Delete, &outcome);
    }

    /// Why a tree delete goes no further, if that is so.
    fn tree_delete_end(&self, wanted: Wanted, tree: &TreeDelete) -> Option<Outcome> {
        let (code, diagnostic) = match (wanted, self.draining) {
            (Wanted::Abandoned | Wanted::Canceled(_), _) => {
                (ResultCode::Canceled, "canceled by the client")
            }
            (_, Some(Draining::ServerStops)) => (ResultCode::Unavailable, "the server is stopping"),
            (_, Some(Draining::PeerClosed)) => (
                ResultCode::Unavailable,
                "the client has closed the connection",
            ),
            (Wanted::All, None) => {
                let is_over = tree.deadline.0.is_some_and(|until| Instant::now() >= until);
                let diagnostic = "the time limit of who asks is over";
                is_over.then_some((ResultCode::TimeLimitExceeded, diagnostic))?
            }
        };
        Some(Outcome::new(code, diagnostic))
    }

    /// Has the writer delete more of a tree.
    fn delete_more(&mut self, (id, record): (u32, Option<Box<Record>>), tree: TreeDelete) {
        let mut unit = Unit {
            answer_room: Some(self.answer_room()),
            ..Unit::default()
        };
        let request = UpdateRequest::Message(tree.request.clone());
        let (by, shards) = (tree.by.clone(), tree.shards);
        self.operations.tree_deletes.0.push((id, Wanted::All));
        let kind = ReplyKind::TreeDelete(Box::new(tree));
        let reply = Reply { id, kind, record };
        self.push((request, &by), reply, shards, Share::default(), &mut unit);
        self.submit(unit);
    }
}
