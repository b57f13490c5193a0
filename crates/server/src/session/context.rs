//! What an operation carries: who asks, and over what. Whom a connection is, beyond the moment at which it was bound.

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

/// Who asks, and over what.
pub(super) struct Context {
    /// The connection's number, for the access log.
    pub(super) number: u64,
    pub(super) peer: Peer,
    /// Where it came in.
    pub(super) endpoint: Arc<Endpoint>,
    /// What kind of connection it is.
    pub(super) channel: Channel,
    /// What TLS has established.
    pub(super) tls: Option<Box<Established>>,
    /// What rules may ask of the connection.
    pub(super) from: Arc<Connection>,
    /// The connection while nobody is bound, which each bind begins with.
    pub(super) nobody: Arc<Requester>,
    /// Who is bound, and what the access rules grant to them: made by the bind, and shared by all operations.
    pub(super) requester: Arc<Requester>,
    /// Whom it acts as.
    pub(super) acting: Acting,
    /// Whether it is an entry that is bound, or as which somebody acts.
    pub(super) is_user: bool,
    /// Whether the user has to change their password before anything else.
    pub(super) must_change: bool,
    /// Deletions that were counted when the user's entry, and that of who acts as the user, was certainly there.
    pub(super) deletions: u64,
    /// In whose name is taken what all share.
    pub(super) claimant: Arc<Claimant>,
}

impl Context {
    /// That of a connection which nobody is bound on yet.
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

    /// In whose name the session takes what is shared.
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

    /// Has the connection be somebody's. What it takes of what all share is taken in the name of who has authenticated.
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

    /// Somebody who asks over this connection.
    pub(super) fn requester(&self, identity: Identity) -> Arc<Requester> {
        let from = Some(self.context.from.clone());
        self.service.directory.requester_from(identity, from)
    }

    /// For whom work is done that somebody with this identity asks for, or that is about its password.
    pub(super) fn claim(&self, identity: &Identity) -> Claim {
        Claim {
            origin: self.context.peer.origin(),
            owner: Owner::from(identity),
        }
    }

    /// Ends the session of a user whose entry was deleted, or that of who acts as the user: there is nobody any more
    /// for whom it could go on (RFC 4513 §4). Done when any entry was deleted since the last time.
    pub(super) fn check_users(&mut self) {
        // Deletions may come faster than snapshots are begun: what was begun for a check serves it.
        let begun = self.check_begun();
        let deletions = begun.unwrap_or_else(|| self.service.directory.deletions());
        let check = Reader::Check(deletions);
        let snapshot = self.newest(check);
        if self.waits_for_fetch(check) {
            return;
        }
        let Ok(snapshot) = snapshot else {
            // What is asked fails for the same reason, and the next burst looks again.
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
