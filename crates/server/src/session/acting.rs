//! For whom a request is done: for who is bound, or for somebody else whom they act as, by a control of the request
//! (RFC 4370) or by the authorization identity of a SASL bind. Whether they may is decided anew for each commit, and of
//! an update once more where it is applied.

use std::collections::VecDeque;
use std::sync::Arc;

use sapwood_directory::access::{ACTING_WORK_MAX, Mapped, NOT_AUTHORIZED, UserName};
use sapwood_directory::engine::{CommitNo, Engine};
use sapwood_directory::{Error, Identity, Outcome, Requester, Snapshot};
use sapwood_ldap::controls::{ProxiedAuthorization, RequestControls, Whom};
use sapwood_ldap::extended::{END_TRANSACTION, PASSWORD_MODIFY};
use sapwood_ldap::message::Request;
use sapwood_ldap::result::ResultCode;

use super::log::LoggedName;
use super::search::STEP_WORK;
use super::{Burst, Session};
use crate::auth::lookup;
use crate::service::Settings;

/// Identities that a session remembers to act as.
const KNOWN_MAX: usize = 4;
/// Work that a search for an entry counts for, in about as many nanoseconds.
const SEARCHING_WORK: u64 = 1 << 21;
/// Bytes of a name.
const NAME_BYTES_MAX: usize = 8 << 10;

/// Whom a session acts as by the data of one commit.
#[derive(Default)]
pub(super) struct Acting {
    commit: CommitNo,
    known: VecDeque<(Named, Arc<Requester>)>,
}

/// Whom a request asks to act as; without a control, the one that the bind has asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Named {
    ByBind,
    AuthzId(String),
    Dn(String),
}

impl Acting {
    fn find(&mut self, commit: CommitNo, named: &Named) -> Option<Arc<Requester>> {
        if self.commit != commit {
            (self.commit, self.known) = (commit, VecDeque::new());
        }
        let mut known = self.known.iter();
        let found = known.find(|(known, _)| known == named);
        found.map(|(_, requester)| requester.clone())
    }

    fn keep(&mut self, named: Named, requester: Arc<Requester>) {
        if self.known.len() == KNOWN_MAX {
            self.known.pop_front();
        }
        self.known.push_back((named, requester));
    }
}

/// What is told who may not act as whom they ask for. That there is no such identity sounds the same.
pub(super) fn denied() -> Outcome {
    Outcome::new(ResultCode::AuthorizationDenied, NOT_AUTHORIZED)
}

/// Somebody as whom they ask to act, if they may: themselves, if that is whom they name.
pub(super) fn acts_as<E: Engine>(
    snapshot: &Snapshot<E>,
    settings: &Settings,
    asker: &Arc<Requester>,
    whom: Whom<'_>,
    work: &mut u64,
) -> Result<Option<Arc<Requester>>, Error> {
    let known = match whom {
        Whom::Dn(dn) => of_dn(snapshot, settings, dn)?,
        Whom::AuthzId("") => Some(Identity::Anonymous),
        Whom::AuthzId(authzid) => match authzid.split_once(':') {
            Some((kind, dn)) if kind.eq_ignore_ascii_case("dn") => of_dn(snapshot, settings, dn)?,
            _ => of_user(snapshot, settings, authzid, work)?,
        },
    };
    let is_same = match (&known, asker.identity()) {
        (Some(Identity::User { entry, .. }), Identity::User { entry: own, .. }) => entry == own,
        (Some(known), own) => known == own && *own != Identity::Anonymous,
        (None, _) => false,
    };
    if is_same {
        let may = snapshot.is_authorized(asker, work)?;
        return Ok(may.then(|| asker.clone()));
    }
    // The answer for a name that nobody has is no, and takes as long as if somebody had it.
    let is_known = known.is_some();
    let identity = known.unwrap_or_else(|| {
        let dn = match whom {
            Whom::Dn(dn) | Whom::AuthzId(dn) => dn.strip_prefix("dn:").unwrap_or(dn),
        };
        Identity::External { dn: dn.to_owned() }
    });
    let acting = snapshot.acting(asker, identity, work)?;
    Ok(acting.filter(|_| is_known))
}

/// Who has a DN: the administrator, or an entry.
fn of_dn<E: Engine>(
    snapshot: &Snapshot<E>,
    settings: &Settings,
    dn: &str,
) -> Result<Option<Identity>, Error> {
    if dn.len() > NAME_BYTES_MAX {
        return Ok(None);
    }
    if settings.is_admin(snapshot.schema(), dn) {
        let dn = settings.config.admin.dn.clone();
        return Ok(Some(Identity::Admin { dn }));
    }
    snapshot.identity_of(dn)
}

/// Whom a user's name stands for.
fn of_user<E: Engine>(
    snapshot: &Snapshot<E>,
    settings: &Settings,
    authzid: &str,
    work: &mut u64,
) -> Result<Option<Identity>, Error> {
    let Some(user) = UserName::read(authzid) else {
        return Ok(None);
    };
    let in_force = snapshot.settings();
    *work = work.saturating_sub(in_force.mapping_work(authzid));
    let of = (user.mechanism, user.realm);
    let mapped = in_force.mapped_user(snapshot.schema(), user.name, of);
    if matches!(mapped, Some(Mapped::Search { .. })) {
        *work = work.saturating_sub(SEARCHING_WORK);
    }
    let found = lookup::by_mapping(snapshot, settings, mapped)?;
    // That a search for it takes too long is the operator's fault, and is told by the log.
    let known = found.unwrap_or_default();
    Ok(known.filter(|known| !matches!(known, Identity::External { .. })))
}

impl<E: Engine> Session<E> {
    /// For whom a request is done.
    pub(super) fn asker(
        &mut self,
        op: &Request<'_>,
        controls: &RequestControls<'_>,
        burst: &mut Burst<'_, E>,
    ) -> Result<Arc<Requester>, Outcome> {
        if controls.proxied_authorization.is_none() && !self.context.requester.is_acted_as() {
            return Ok(self.context.requester.clone());
        }
        match op {
            Request::Bind(_) | Request::Unbind | Request::Abandon(_) => {
                Ok(self.context.requester.clone())
            }
            _ => self.acting(op, controls, burst),
        }
    }

    #[cold]
    fn acting(
        &mut self,
        op: &Request<'_>,
        controls: &RequestControls<'_>,
        burst: &mut Burst<'_, E>,
    ) -> Result<Arc<Requester>, Outcome> {
        if let Some(proxied) = controls.proxied_authorization {
            self.check_proxied(op, controls, proxied)?;
        }
        let snapshot = burst.snapshot(self)?.clone();
        let acting = self.acting_in(&snapshot, controls.proxied_authorization);
        self.read_in(&snapshot, |_| acting)?.ok_or_else(denied)
    }

    /// Refuses what no identity makes good.
    fn check_proxied(
        &mut self,
        op: &Request<'_>,
        controls: &RequestControls<'_>,
        proxied: ProxiedAuthorization<'_>,
    ) -> Result<(), Outcome> {
        if self.is_of_transaction(op, controls) {
            let reason =
                "proxied authorization goes with the start of a transaction only (RFC 5805 §4.4)";
            return Err(Outcome::new(ResultCode::ProtocolError, reason));
        }
        if !proxied.is_critical {
            let reason = "the control of proxied authorization must be critical (RFC 4370 §3)";
            return Err(Outcome::new(ResultCode::ProtocolError, reason));
        }
        if self.context.must_change && self.check_must_change().is_err() {
            return Err(denied());
        }
        Ok(())
    }

    /// Whether a request is the end of a transaction, or one of its updates.
    fn is_of_transaction(&self, op: &Request<'_>, controls: &RequestControls<'_>) -> bool {
        let is_update = match op {
            Request::Extended(request) if request.name == END_TRANSACTION => return true,
            Request::Extended(request) => request.name == PASSWORD_MODIFY,
            Request::Add(_) | Request::Delete(_) | Request::Modify(_) | Request::ModifyDn(_) => {
                true
            }
            _ => false,
        };
        let is_implied = self.service.extensions.implicit_membership
            && controls.non_transactional.is_none()
            && !self.operations.transactions.is_empty();
        is_update && (controls.transaction_specification.is_some() || is_implied)
    }

    /// For whom a request is done by the data of a snapshot: `None` for who may not act as whom they ask for. What
    /// deciding that takes counts as work of this turn.
    pub(super) fn acting_in(
        &mut self,
        snapshot: &Snapshot<E>,
        proxied: Option<ProxiedAuthorization<'_>>,
    ) -> Result<Option<Arc<Requester>>, Error> {
        let named = match proxied.map(|proxied| proxied.whom) {
            None => Named::ByBind,
            Some(Whom::AuthzId(authzid)) => Named::AuthzId(authzid.to_owned()),
            Some(Whom::Dn(dn)) => Named::Dn(dn.to_owned()),
        };
        let is_current = |known: &Arc<Requester>| {
            // The commit is the first store's: others may have changed.
            self.service.directory.stores() == 1 && self.service.directory.is_current(known)
        };
        let known = self.context.acting.find(snapshot.commit(), &named);
        if let Some(known) = known.filter(is_current) {
            return Ok(Some(known));
        }
        let mut work = ACTING_WORK_MAX;
        let acting = self.decide(snapshot, proxied, &mut work);
        self.turn_work += ACTING_WORK_MAX - work;
        self.turn_used |= self.turn_work >= STEP_WORK;
        if let Ok(Some(acting)) = &acting {
            self.context.acting.keep(named, acting.clone());
        }
        acting
    }

    fn decide(
        &self,
        snapshot: &Snapshot<E>,
        proxied: Option<ProxiedAuthorization<'_>>,
        work: &mut u64,
    ) -> Result<Option<Arc<Requester>>, Error> {
        let bound = &self.context.requester;
        match proxied {
            // Who may not act any more as the one that the bind has made them acts as nobody for that one.
            Some(proxied) => acts_as(snapshot, &self.settings, bound, proxied.whom, work),
            None => {
                let may = snapshot.is_authorized(bound, work)?;
                Ok(may.then(|| bound.clone()))
            }
        }
    }

    /// Says in the log who acts as whom.
    pub(super) fn log_acting(&self, id: u32, by: &Requester) {
        if by.is_acted_as() && self.settings.config.log.access {
            let schema = &self.service.directory.schema();
            let real = LoggedName::dn(schema, by.real().dn());
            let acting = LoggedName::dn(schema, by.identity().dn());
            tracing::info!(target: "access", conn = self.context.number, id, %real, %acting, "acts as");
        }
    }
}
