//! The context of an operation: the requester, and the facts of the connection. Also the check that the user of a
//! connection still exists.

use std::sync::Arc;

use sapwood_directory::access::Connection;
use sapwood_directory::engine::Engine;
use sapwood_directory::{Channel, Identity, Requester};
use sapwood_ldap::result::ResultCode;

use super::acting::Acting;
use super::{Reader, Service, Session};
use crate::accounts::Claimant;
use crate::admission::Admission;
use crate::closing::Reason;
use crate::endpoint::Endpoint;
use crate::peer::Peer;
use crate::tls::Established;
use crate::workers::{Claim, Owner};

/// The requester and the facts of its connection.
pub(super) struct Context {
    /// The connection's number, for the access log.
    pub(super) number: u64,
    pub(super) peer: Peer,
    /// The listener that accepted it.
    pub(super) endpoint: Arc<Endpoint>,
    /// The kind of connection, on which the root DSE depends.
    pub(super) channel: Channel,
    /// The certificate and keys that TLS has established.
    pub(super) tls: Option<Box<Established>>,
    /// The facts of the connection that access rules may depend on.
    pub(super) from: Arc<Connection>,
    /// The anonymous requester of this connection. Every bind starts from it.
    pub(super) nobody: Arc<Requester>,
    /// The bound identity with its grants. A bind makes it, and all operations share it.
    pub(super) requester: Arc<Requester>,
    /// The requesters that it has acted as lately, on the data of one commit.
    pub(super) acting: Acting,
    /// Whether the requester, or the identity that has authenticated, is an entry, which may be deleted.
    pub(super) is_user: bool,
    /// Whether the user has to change their password before anything else.
    pub(super) must_change: bool,
    /// The count of deletions when these entries were last known to exist.
    pub(super) deletions: u64,
    /// The accounts that shared memory and places are charged to.
    pub(super) claimant: Arc<Claimant>,
}

impl Context {
    /// The context of a new connection, which is anonymous.
    pub(super) fn new<E: Engine>(
        service: &Service<E>,
        (peer, endpoint): (Peer, Arc<Endpoint>),
        admission: &Admission,
    ) -> Context {
        let from = peer.connection(&endpoint, 0);
        let nobody = service
            .directory
            .requester_from(Identity::Anonymous, Some(from.clone()));
        Context {
            number: admission.number,
            peer,
            endpoint,
            channel: Channel {
                is_vouched_for: matches!(peer, Peer::Local { .. }),
                takes_tls: service.tls.is_some() && !matches!(peer, Peer::Local { .. }),
                is_under_tls: false,
            },
            tls: None,
            from,
            requester: nobody.clone(),
            nobody,
            acting: Acting::default(),
            is_user: false,
            must_change: false,
            deletions: 0,
            claimant: admission.claimant(),
        }
    }

    /// Who is bound.
    pub(super) fn identity(&self) -> &Identity {
        self.requester.identity()
    }
}

impl<E: Engine> Session<E> {
    /// Whether nobody is bound.
    pub(crate) fn is_anonymous(&self) -> bool {
        *self.context.identity() == Identity::Anonymous
    }

    /// The accounts that the session charges shared memory and places to.
    pub(crate) fn claimant(&self) -> &Arc<Claimant> {
        &self.context.claimant
    }

    pub(super) fn set_identity(&mut self, identity: Identity) {
        if identity != *self.context.identity() || self.context.requester.is_acted_as() {
            let directory = &self.service.directory;
            let nobody = &mut self.context.nobody;
            if !directory.is_current(nobody) {
                *nobody = directory.renewed(nobody);
            }
            let requester = match identity {
                Identity::Anonymous => nobody.clone(),
                identity => self.requester(identity),
            };
            self.set_requester(requester);
        }
    }

    /// Makes a requester that of the connection. Shared memory and places are charged to the identity that has
    /// authenticated.
    pub(super) fn set_requester(&mut self, requester: Arc<Requester>) {
        let real = requester.real();
        self.context.claimant = self.context.claimant.bound_as(real);
        let is_bound = *real != Identity::Anonymous;
        self.admission.bind(&self.context.claimant, is_bound);
        let is_entry = |identity: &Identity| matches!(identity, Identity::User { .. });
        self.context.is_user = is_entry(real) || is_entry(requester.identity());
        self.context.requester = requester;
        self.context.acting = Acting::default();
    }

    /// A requester over this connection.
    pub(super) fn requester(&self, identity: Identity) -> Arc<Requester> {
        let from = Some(self.context.from.clone());
        self.service.directory.requester_from(identity, from)
    }

    /// The claim of work that an identity asks for, or that checks its password.
    pub(super) fn claim(&self, identity: &Identity) -> Claim {
        Claim {
            origin: self.context.peer.origin(),
            owner: Owner::from(identity),
        }
    }

    /// Ends the session if the entry of its user, or of the identity that acts as the user, has been deleted (RFC 4513
    /// §4). It is called when any entry was deleted since the last check.
    pub(super) fn check_users(&mut self) {
        // Deletions may come faster than snapshots are begun. A snapshot that was begun for a check is used for it.
        let begun = self.check_begun();
        let deletions = begun.unwrap_or_else(|| self.service.directory.deletions());
        let check = Reader::Check(deletions);
        let snapshot = self.newest(check);
        if self.waits_for_fetch(check) {
            return;
        }
        let Ok(snapshot) = snapshot else {
            // The requests fail for the same reason, and the next burst checks again.
            self.has_checked();
            return;
        };
        let requester = self.context.requester.clone();
        let are_there = self.read_in(&snapshot, |snapshot| {
            for identity in [requester.identity(), requester.real()] {
                if let Identity::User { entry, .. } = identity
                    && snapshot.dn_of(*entry)?.is_none()
                {
                    return Ok(false);
                }
            }
            Ok(true)
        });
        if self.waits_for_fetch(check) {
            return;
        }
        self.has_checked();
        self.last_snapshot.0.set(snapshot.end());
        match are_there {
            Ok(true) => self.context.deletions = deletions,
            Ok(false) => {
                self.set_identity(Identity::Anonymous);
                let reason = "the entry that this connection was bound as has been deleted";
                self.disconnect(Reason::Deleted, ResultCode::StrongerAuthRequired, reason);
            }
            Err(outcome) => tracing::error!(
                conn = self.context.number,
                "whether the user's entry is there: {}",
                outcome.diagnostic
            ),
        }
    }
}
