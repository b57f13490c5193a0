//! How an update is answered: what the writer keeps for the session, and hands back with the outcome.

use sapwood_directory::engine::Engine;
use sapwood_directory::{Outcome, StoreSet, UpdateRequest};
use sapwood_ldap::message::Operation;
use tokio::sync::mpsc::UnboundedSender;

use super::Completion;
use super::bind::BindEnd;
use super::record::Record;
use super::tree_delete::TreeDelete;
use crate::memory::Share;
use crate::password::Password;
use crate::writer::{self, Recipient};

/// Where other threads send what they have finished for a session.
pub(crate) type Completions<E> = UnboundedSender<Completion<E>>;

/// The updates of one burst of a session.
pub(super) type Unit<E> = writer::Unit<Completions<E>>;

impl<E: Engine> Recipient for Completions<E> {
    type Reply = Reply;

    fn answer(&self, shards: StoreSet, mut answers: Vec<(Reply, Outcome)>, room: Share) {
        for (reply, outcome) in &mut answers {
            if let Some(record) = &mut reply.record {
                record.settle(outcome);
            }
        }
        // The session may be gone; its updates stay.
        let _ = self.send(Completion::Updated {
            shards,
            answers,
            room,
        });
    }
}

/// How one update is answered.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(super) id: u32,
    pub(super) kind: ReplyKind,
    /// What is recorded of the update, while the writer has it.
    pub(super) record: Option<Box<Record>>,
}

impl Reply {
    pub(super) fn new(id: u32, kind: ReplyKind) -> Reply {
        let record = None;
        Reply { id, kind, record }
    }
}

/// What an update is answered with.
#[derive(Debug)]
pub(super) enum ReplyKind {
    /// The operation's own response.
    Response(Operation),
    /// That of a delete with what is below its target, which may go on.
    TreeDelete(Box<TreeDelete>),
    /// Password Modify (RFC 3062 §2), with the password that the server made.
    PasswordModify(Option<Password>),
    /// Refresh (RFC 2589 §4.2), with the seconds for which the entry lives on.
    Refresh(u32),
    /// The end of a bind, which waited for what policies keep with its entry.
    Bind(Box<BindEnd>),
    /// End Transaction (RFC 5805 §2.3).
    EndTransaction,
    /// A part of the LBURPUpdate response (RFC 4373 §5.4): of which request of the session, and the operation's number
    /// in it.
    LburpUpdate { request: u64, operation: u32 },
    /// The response of an update that was tried, and belongs to the transaction if it succeeded.
    Trial(Box<Trial>),
}

/// An update that was tried for an eager transaction.
#[derive(Debug)]
pub(super) struct Trial {
    /// The transaction's identifier.
    pub(super) identifier: Vec<u8>,
    pub(super) request: UpdateRequest,
    /// How the update is answered.
    pub(super) kind: ReplyKind,
}
