//! For whom a request is done: for who is bound, or for somebody else whom they act as, by a control of the request
//! (RFC 4370) or by the authorization identity of a SASL bind. Whether they may is decided anew for each commit, and of
//! an update once more where it is applied.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sapwood_directory::access::{ACTING_WORK_MAX, NOT_AUTHORIZED, UserName};
use sapwood_directory::engine::{CommitNo, Engine};
use sapwood_directory::{Error, Identity, Outcome, Requester, Snapshot};
use sapwood_ldap::controls::{ProxiedAuthorization, RequestControls, Whom};
use sapwood_ldap::extended::{END_TRANSACTION, PASSWORD_MODIFY};
use sapwood_ldap::message::{Operation, Request};
use sapwood_ldap::result::ResultCode;

use super::bind::{ActsAs, Hashing};
use super::log::LoggedName;
use super::{Burst, Session};
use crate::auth::lookup;
use crate::settings::Settings;

/// Identities that a session remembers to act as.
const KNOWN_MAX: usize = 4;
/// Bytes of a name.
const NAME_BYTES_MAX: usize = 8 << 10;

/// How long after it came a request is answered at the earliest that somebody may not have done for whom they name:
/// several times what the longest decision takes. So the time does not tell what was looked at, and whether there is
/// such an identity.
pub(super) const DENIED_AFTER: Duration = Duration::from_nanos(4 * ACTING_WORK_MAX);
/// For how long is known as whom a session may act, if no commit comes: the times of passwords come and go.
const KNOWN_FOR: Duration = Duration::from_secs(1);

/// Whom a session acts as by the data of one commit.
#[derive(Default)]
pub(super) struct Acting {
    commit: CommitNo,
    since: Option<Instant>,
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
    fn find(
        &mut self,
        (commit, now): (CommitNo, Instant),
        named: &Named,
    ) -> Option<Arc<Requester>> {
        let is_old = |since| now.duration_since(since) >= KNOWN_FOR;
        if self.commit != commit || self.since.is_none_or(is_old) {
            *self = Acting {
                commit,
                since: Some(now),
                known: VecDeque::new(),
            };
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

/// As whom a request is done: who names themselves is not acting.
fn is_own(acting: &Arc<Requester>, asker: &Arc<Requester>) -> bool {
    Arc::ptr_eq(acting, asker)
}

/// As whom somebody acts that has authenticated, and asks for this; `came` is when the bind that asks was begun, or
/// later, but before this. To be bound as nobody is not to act for somebody.
pub(super) fn acts_at_bind<E: Engine>(
    snapshot: &Snapshot<E>,
    settings: &Settings,
    asker: &Arc<Requester>,
    (authzid, came): (&str, Instant),
    work: &mut u64,
) -> Result<ActsAs, Error> {
    let acting = acts_as(snapshot, settings, asker, Whom::AuthzId(authzid), work)?;
    Ok(match acting {
        Some(acting) if is_own(&acting, asker) => ActsAs::Itself,
        acting => ActsAs::Other {
            requester: acting.filter(|acting| *acting.identity() != Identity::Anonymous),
            denied_at: came + DENIED_AFTER,
        },
    })
}

/// Somebody as whom they ask to act, if they may: themselves, if that is whom they name.
fn acts_as<E: Engine>(
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
    let found = lookup::by_mapping(snapshot, settings, mapped, work)?;
    // That a search for it takes too long is the operator's fault, and is told by the log.
    let known = found.unwrap_or_default();
    Ok(known.filter(|known| !matches!(known, Identity::External { .. })))
}

impl<E: Engine> Session<E> {
    /// For whom a request is done.
    ///
    /// # Errors
    /// How it is answered; without an outcome, a timer answers it.
    pub(super) fn asker(
        &mut self,
        (id, op): (u32, &Request<'_>),
        controls: &RequestControls<'_>,
        burst: &mut Burst<'_, E>,
    ) -> Result<Arc<Requester>, Option<Outcome>> {
        if controls.proxied_authorization.is_none() && !self.context.requester.is_acted_as() {
            return Ok(self.context.requester.clone());
        }
        match op {
            Request::Bind(_) | Request::Unbind | Request::Abandon(_) => {
                Ok(self.context.requester.clone())
            }
            _ => self.acting((id, op), controls, burst),
        }
    }

    #[cold]
    fn acting(
        &mut self,
        (id, op): (u32, &Request<'_>),
        controls: &RequestControls<'_>,
        burst: &mut Burst<'_, E>,
    ) -> Result<Arc<Requester>, Option<Outcome>> {
        let came = Instant::now();
        if let Some(proxied) = controls.proxied_authorization {
            self.check_proxied(op, controls, proxied)?;
        }
        let snapshot = burst.snapshot(self)?.clone();
        let acting = self.acting_in(&snapshot, controls.proxied_authorization);
        let mut acting = self.read_in(&snapshot, |_| acting)?;
        // Who has to change the password acts for nobody else.
        if self.context.must_change
            && let Some(by) = &acting
            && !is_own(by, &self.context.requester)
            && self.check_must_change().is_err()
        {
            acting = None;
        }
        match (acting, controls.proxied_authorization) {
            (Some(by), _) => Ok(by),
            (None, Some(proxied)) if !self.lacks() => {
                self.log_denied(id, proxied.whom);
                self.deny((id, op.operation()), denied(), came + DENIED_AFTER);
                Err(None)
            }
            (None, _) => Err(Some(denied())),
        }
    }

    /// Has a request be answered at this time, as it may not be done for whom it names.
    pub(super) fn deny(
        &mut self,
        (id, operation): (u32, Operation),
        outcome: Outcome,
        at: Instant,
    ) {
        self.operations.hashing = Some(Hashing::Denied {
            at,
            operation,
            outcome,
        });
        self.operations.exclusive = Some(id);
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
        let is_implied =
            controls.non_transactional.is_none() && self.operations.transactions.take_all();
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
        let moment = (snapshot.commit(), Instant::now());
        let known = self.context.acting.find(moment, &named);
        if let Some(known) = known.filter(is_current) {
            return Ok(Some(known));
        }
        let mut work = ACTING_WORK_MAX;
        let acting = self.decide(snapshot, proxied, &mut work);
        self.charge(ACTING_WORK_MAX - work);
        self.end_long_turn();
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

    /// Says in the log who may not act as whom they have asked for.
    fn log_denied(&mut self, id: u32, whom: Whom<'_>) {
        if !self.settings.is_logged {
            return;
        }
        let schema = &self.service.directory.schema();
        let (Whom::Dn(asked) | Whom::AuthzId(asked)) = whom;
        let prefix = asked.get(..3);
        let is_dn = prefix.is_some_and(|prefix| prefix.eq_ignore_ascii_case("dn:"));
        let asked = LoggedName::dn(schema, if is_dn { &asked[3..] } else { asked });
        self.record_denied(id, &asked);
        if self.settings.config.log.access {
            let real = LoggedName::dn(schema, self.context.requester.real().dn());
            let by = LoggedName::dn(schema, self.context.identity().dn());
            tracing::info!(target: "access", conn = self.context.number, id, %real, %by, %asked, "may not act as");
        }
    }

    /// The same of a bind as which somebody has authenticated.
    pub(super) fn log_denied_bind(&self, id: u32, identity: &Identity) {
        if self.settings.config.log.access {
            let schema = &self.service.directory.schema();
            let real = LoggedName::dn(schema, identity.dn());
            tracing::info!(target: "access", conn = self.context.number, id, %real, "may not act as its bind asks");
        }
    }
}
