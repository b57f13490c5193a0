//! Requests of updates, on their way from a session to the writer.

use std::sync::Arc;

use sapwood_ldap::message::RequestMessage;

use super::{Replicated, ReplicatedChange};
use crate::access::Requester;
use crate::engine::EntryId;
use crate::password_policy::AccountChange;

/// The longest message in a shared block. Longer ones have an allocation of their own.
const GATHERED_BYTES_MAX: usize = 16 << 10;

/// The least bytes of a block of messages, and the most. A longer message gets a block of its own length.
const BLOCK_BYTES_MIN: usize = 1 << 10;
const BLOCK_BYTES_MAX: usize = 64 << 10;

/// One update. It owns its data, since it travels from a session to the writer.
#[derive(Clone, Debug)]
pub struct Update {
    /// The requester, shared by the updates of a connection.
    pub requester: Arc<Requester>,
    /// The change.
    pub request: UpdateRequest,
}

/// The change that an update asks for.
#[derive(Clone, Debug)]
pub enum UpdateRequest {
    /// A whole encoded LDAPMessage with an AddRequest, DelRequest, ModifyRequest or ModifyDNRequest and its controls.
    Message(Vec<u8>),
    /// Password Modify (RFC 3062), after the server has checked the old password and found or made the new one.
    SetPassword {
        /// The entry, if it is known. It may have been renamed since. Its userPassword values are replaced.
        entry: Option<EntryId>,
        /// The last known DN of the entry.
        dn: String,
        /// The new password in its stored form.
        stored: Vec<u8>,
        /// The verifiers for authPassword, whose values are replaced, too.
        verifiers: Vec<Vec<u8>>,
        /// The stored password that the old one has matched. The update fails if it is no longer there.
        replaces: Option<Vec<u8>>,
    },
    /// A change that a bind causes in its entry.
    Account {
        /// The entry.
        entry: EntryId,
        /// The change.
        change: AccountChange,
    },
    /// Refresh (RFC 2589): a dynamic entry lives on for so many seconds from now.
    Refresh {
        /// The DN of the entry.
        dn: String,
        /// The seconds.
        seconds: u32,
    },
    /// Updates that take place together or not at all.
    Transaction(Transaction),
    /// Changes that were made at another server.
    Replicated(Box<Replicated>),
}

/// A borrowed [`UpdateRequest`], wherever it is stored.
#[derive(Clone, Copy, Debug)]
#[expect(missing_docs, reason = "as in UpdateRequest")]
pub enum RequestView<'r> {
    Message(&'r [u8]),
    SetPassword {
        entry: Option<EntryId>,
        dn: &'r str,
        stored: &'r [u8],
        verifiers: &'r [Vec<u8>],
        replaces: Option<&'r [u8]>,
    },
    Account {
        entry: EntryId,
        change: &'r AccountChange,
    },
    Refresh {
        dn: &'r str,
        seconds: u32,
    },
    Transaction(&'r Transaction),
    Replicated(&'r Replicated),
}

/// A transaction (RFC 5805) of one identity. Its updates are applied in turn, and each sees those before it.
#[derive(Clone, Debug)]
pub struct Transaction {
    /// The updates.
    pub updates: TransactionUpdates,
    /// Whether everything is undone at the end. The outcome is then that of the last update, unless
    /// [`Settlement::failed`](crate::Settlement::failed) names one before it.
    pub is_trial: bool,
}

/// The updates of a transaction with their message ids, in order. None of them is a transaction.
///
/// The messages are stored one after the other in a few blocks. With an allocation for each message, the session would
/// allocate and the writer would free all of them.
#[derive(Clone, Debug, Default)]
pub struct TransactionUpdates {
    updates: Vec<Gathered>,
    blocks: Vec<Vec<u8>>,
    others: Vec<UpdateRequest>,
}

/// An update of a transaction.
#[derive(Clone, Copy, Debug)]
struct Gathered {
    id: u32,
    place: Place,
}

#[derive(Clone, Copy, Debug)]
enum Place {
    /// A part of a block.
    Block {
        block: u32,
        at: u32,
        length: u32,
    },
    Other(usize),
}

impl UpdateRequest {
    /// The same, borrowed.
    pub fn view(&self) -> RequestView<'_> {
        match self {
            UpdateRequest::Message(message) => RequestView::Message(message),
            UpdateRequest::SetPassword {
                entry,
                dn,
                stored,
                verifiers,
                replaces,
            } => RequestView::SetPassword {
                entry: *entry,
                dn,
                stored,
                verifiers,
                replaces: replaces.as_deref(),
            },
            UpdateRequest::Account { entry, change } => RequestView::Account {
                entry: *entry,
                change,
            },
            UpdateRequest::Refresh { dn, seconds } => RequestView::Refresh {
                dn,
                seconds: *seconds,
            },
            UpdateRequest::Transaction(transaction) => RequestView::Transaction(transaction),
            UpdateRequest::Replicated(replicated) => RequestView::Replicated(replicated),
        }
    }

    /// The number of its updates.
    pub fn updates(&self) -> usize {
        match self {
            UpdateRequest::Transaction(transaction) => transaction.updates.len(),
            UpdateRequest::Replicated(replicated) => replicated.changes.len().max(1),
            _ => 1,
        }
    }
}

impl RequestView<'_> {
    /// Bytes of the messages it holds.
    pub fn bytes(self) -> usize {
        match self {
            RequestView::Message(message) => message.len(),
            RequestView::SetPassword { dn, stored, .. } => dn.len() + stored.len(),
            RequestView::Account { change, .. } => match change {
                AccountChange::StoreAnew { from, to } => from.len() + to.len(),
                _ => size_of::<AccountChange>(),
            },
            RequestView::Refresh { dn, .. } => dn.len(),
            RequestView::Transaction(transaction) => {
                let updates = transaction.updates.iter();
                updates.map(|(_, request)| request.bytes()).sum()
            }
            RequestView::Replicated(replicated) => {
                let changes = replicated.changes.iter();
                changes.map(ReplicatedChange::bytes).sum()
            }
        }
    }

    /// The same as an owned request.
    pub fn to_request(self) -> UpdateRequest {
        match self {
            RequestView::Message(message) => UpdateRequest::Message(message.to_vec()),
            RequestView::SetPassword {
                entry,
                dn,
                stored,
                verifiers,
                replaces,
            } => UpdateRequest::SetPassword {
                entry,
                dn: dn.to_owned(),
                stored: stored.to_vec(),
                verifiers: verifiers.to_vec(),
                replaces: replaces.map(<[u8]>::to_vec),
            },
            RequestView::Account { entry, change } => UpdateRequest::Account {
                entry,
                change: change.clone(),
            },
            RequestView::Refresh { dn, seconds } => UpdateRequest::Refresh {
                dn: dn.to_owned(),
                seconds,
            },
            RequestView::Transaction(transaction) => {
                UpdateRequest::Transaction(transaction.clone())
            }
            RequestView::Replicated(replicated) => {
                UpdateRequest::Replicated(Box::new(replicated.clone()))
            }
        }
    }
}

impl<'r> RequestView<'r> {
    /// The decoded message. `None` if it is no message, or a malformed one.
    pub(super) fn message(self) -> Option<RequestMessage<'r>> {
        match self {
            RequestView::Message(message) => RequestMessage::decode(message).ok(),
            RequestView::SetPassword { .. }
            | RequestView::Account { .. }
            | RequestView::Refresh { .. }
            | RequestView::Transaction(_)
            | RequestView::Replicated(_) => None,
        }
    }
}

impl TransactionUpdates {
    /// Adds an update.
    pub fn push(&mut self, id: u32, request: RequestView<'_>) {
        let place = match request {
            RequestView::Message(message) if message.len() <= GATHERED_BYTES_MAX => {
                self.gather(message)
            }
            request => {
                self.others.push(request.to_request());
                Place::Other(self.others.len() - 1)
            }
        };
        self.updates.push(Gathered { id, place });
    }

    fn gather(&mut self, message: &[u8]) -> Place {
        let has_room = |block: &Vec<u8>| block.capacity() - block.len() >= message.len();
        if !self.blocks.last().is_some_and(has_room) {
            // A new block is not longer than what all blocks hold so far, so that little memory is unused.
            let used = self.blocks.iter().map(Vec::len).sum::<usize>();
            let bytes = used.clamp(BLOCK_BYTES_MIN, BLOCK_BYTES_MAX);
            self.blocks
                .push(Vec::with_capacity(bytes.max(message.len())));
        }
        let block = self.blocks.len() - 1;
        let gathered = &mut self.blocks[block];
        let at = gathered.len() as u32;
        gathered.extend_from_slice(message);
        Place::Block {
            block: block as u32,
            at,
            length: message.len() as u32,
        }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.updates.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.updates.is_empty()
    }

    /// The message id of an update.
    pub fn id(&self, at: usize) -> Option<u32> {
        self.updates.get(at).map(|update| update.id)
    }

    /// The updates with their message ids.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (u32, RequestView<'_>)> + Clone {
        let updates = self.updates.iter();
        updates.map(|update| (update.id, self.request(update.place)))
    }

    /// Their message ids.
    pub fn ids(&self) -> impl ExactSizeIterator<Item = u32> + '_ {
        self.updates.iter().map(|update| update.id)
    }

    fn request(&self, place: Place) -> RequestView<'_> {
        match place {
            Place::Block { block, at, length } => {
                let block = &self.blocks[block as usize];
                RequestView::Message(&block[at as usize..][..length as usize])
            }
            Place::Other(at) => self.others[at].view(),
        }
    }
}

impl FromIterator<(u32, UpdateRequest)> for TransactionUpdates {
    fn from_iter<I: IntoIterator<Item = (u32, UpdateRequest)>>(updates: I) -> Self {
        let mut gathered = TransactionUpdates::default();
        for (id, request) in updates {
            gathered.push(id, request.view());
        }
        gathered
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn updates_come_back_as_they_were_gathered() {
        let lengths = [0, 1, 300, 900, GATHERED_BYTES_MAX, GATHERED_BYTES_MAX + 1];
        let mut requests: Vec<_> = (0..3000_usize)
            .map(|n| UpdateRequest::Message(vec![n as u8; lengths[n * n % 7 % 6]]))
            .collect();
        requests[100] = UpdateRequest::SetPassword {
            entry: None,
            dn: "cn=x".into(),
            stored: b"{X}".to_vec(),
            verifiers: Vec::new(),
            replaces: None,
        };
        let gathered: TransactionUpdates = (7..).zip(requests.iter().cloned()).collect();
        assert_eq!(gathered.len(), requests.len());
        assert!(!gathered.is_empty());
        assert!(gathered.ids().eq(7..3007));
        assert_eq!((gathered.id(1), gathered.id(3000)), (Some(8), None));
        for ((_, view), request) in gathered.iter().zip(&requests) {
            match (view, request) {
                (RequestView::Message(found), UpdateRequest::Message(message)) => {
                    assert_eq!(found, message);
                }
                (RequestView::SetPassword { dn, .. }, _) => assert_eq!(dn, "cn=x"),
                other => panic!("{other:?}"),
            }
            assert_eq!(view.bytes(), request.view().bytes());
        }
    }

    #[test]
    fn little_memory_is_taken_in_vain() {
        for messages in [1, 10, 100, 10_000] {
            let mut gathered = TransactionUpdates::default();
            for id in 0..messages {
                gathered.push(id, RequestView::Message(&[0; 200]));
            }
            let used = 200 * messages as usize;
            let taken: usize = gathered.blocks.iter().map(Vec::capacity).sum();
            assert!(taken <= BLOCK_BYTES_MIN + 2 * used, "{taken} for {used}");
        }
    }
}
