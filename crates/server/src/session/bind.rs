//! Bind (RFC 4511 §4.2, RFC 4513 §5).
//!
//! A successful bind is answered at once, or once what the directory keeps of it is durable. A timer answers a failed
//! bind, whatever the reason: not before a hasher would have checked a password in the newest form, had the bind come
//! at the same time. So the time of the answer does not tell whether the entry exists or how its password is stored,
//! and a client that tries names that do not exist keeps no hasher busy. Failures that do not depend on a name are
//! answered at once: mechanisms, channel bindings and authorization identities that do not fit the connection or the
//! request.

mod compare;

use std::sync::Arc;
use std::time::Instant;

use sapwood_directory::access::{ACTING_WORK_MAX, NOT_AUTHORIZED, SearchLimits};
use sapwood_directory::engine::Engine;
use sapwood_directory::schema::NormalDn;
use sapwood_directory::{
    AccountChange, BindFailure, BindVerdict, Credentials, EntryId, Error, Identity, Outcome,
    Requester, Snapshot,
};
use sapwood_ldap::controls::{
    Controls, ControlsBuf, PasswordPolicyResponse, RequestControls, ResourceLimits,
    authorization_identity_response, resource_limits_response,
};
use sapwood_ldap::message::{
    Authentication, BindRequest, BindResponse, Frame, Message, Operation, Request, RequestMessage,
    Response, frame,
};
use sapwood_ldap::result::{LdapResult, ResultCode};

pub(super) use self::compare::Candidate;
use super::acting::acts_at_bind;
use super::log::LoggedName;
use super::second_factor::PasswordCheck;
use super::{Reader, Session};
use crate::auth::lookup::Entries;
use crate::auth::{self, Client, Exchange, Mechanism, Step, Wait, names};
use crate::invitations;
use crate::password::{PASSWORD_BYTES_MAX, Pending, Ticket, is_outdated};
use crate::settings::Settings;
use crate::workers::{Claim, Owner};

/// What a client may do that has authenticated.
#[derive(Clone, Debug, Default)]
pub(crate) struct Authorization {
    acts_as: ActsAs,
    /// The limits of that identity, if the client asked for them.
    limits: Option<ResourceLimits>,
}

/// The identity with which an authenticated client acts.
#[derive(Clone, Debug, Default)]
pub(crate) enum ActsAs {
    /// It has asked for nobody else.
    #[default]
    Itself,
    /// It has asked for somebody else.
    Other {
        /// The identity that it asked for; none if it may not have it.
        requester: Option<Arc<Requester>>,
        /// The earliest time for a refusal.
        denied_at: Instant,
    },
}

/// The result of checking a password.
#[derive(Clone, Debug)]
pub(crate) enum Verdict {
    /// It is right. Says what the client may do, and what password policies make of the bind.
    Bound(Identity, Authorization, BindVerdict),
    /// It is wrong, and what password policies make of that.
    Wrong(Option<(EntryId, BindFailure)>),
    /// Policies could not be asked.
    Failed(Outcome),
    /// The check was stopped before it had a result.
    Stopped,
}

/// The hashing job or the timer that a session waits for: one at a time.
pub(super) enum Hashing {
    /// A job in the pool; for a bind, with when its failure may be told.
    Job {
        _ticket: Ticket,
        failure: Option<(Instant, Claim)>,
    },
    /// A bind that has failed, and when that is told.
    Failed {
        at: Instant,
        response: PasswordPolicyResponse,
        _pending: Pending,
    },
    /// A request in a name that the client may not use, and when that is told.
    Denied {
        at: Instant,
        operation: Operation,
        outcome: Outcome,
    },
}

/// How a bind ends once what password policies keep with its entry is durable.
#[derive(Debug)]
pub(super) enum BindEnd {
    /// The password was right.
    Bound {
        identity: Identity,
        /// What a SASL mechanism tells the client.
        told: Option<Vec<u8>>,
        verdict: BindVerdict,
    },
    /// It was wrong, which is told at this time.
    Failed { at: Instant, claim: Claim },
    /// It was right, and was stored in the newest form, if that was possible.
    StoredAnew {
        identity: Identity,
        verdict: BindVerdict,
        failure: (Instant, Claim),
    },
    /// The one-time password after it was right and is used up. The password itself has not been checked yet.
    SecondFactor(PasswordCheck),
}

/// The immediate outcome of a bind.
pub(super) enum Begun {
    Bound {
        identity: Identity,
        /// What a SASL mechanism tells the client.
        told: Option<Vec<u8>>,
        /// What a password policy says.
        verdict: BindVerdict,
    },
    /// The password was right, but a policy forbids its use.
    Refused(PasswordPolicyResponse),
    /// The client is to answer a challenge of the SASL mechanism.
    Challenged(Vec<u8>),
    /// A hasher checks the password, or the timer of a failed bind runs.
    Waits,
}

/// A SASL bind whose client was given a challenge.
pub(super) struct Challenged {
    mechanism: &'static Mechanism,
    exchange: Box<dyn Exchange>,
}

impl Begun {
    /// The client is not subject to a password policy.
    fn bound(identity: Identity) -> Begun {
        Begun::Bound {
            identity,
            told: None,
            verdict: BindVerdict::default(),
        }
    }
}

/// The entry of a user.
fn entry_of(identity: &Identity) -> Option<EntryId> {
    match identity {
        Identity::User { entry, .. } => Some(*entry),
        _ => None,
    }
}

/// Who may have a password.
struct Bindable {
    identity: Identity,
    /// The stored ones to compare with.
    stored: Vec<Vec<u8>>,
    /// Whether password policies are to judge it.
    is_governed: bool,
    /// Whether a one-time password may have to stand behind the password.
    may_have_second_factor: bool,
    /// Whether the right one is to be stored in the usual form.
    is_stored_anew: bool,
}

/// A client may ask to act as somebody else, and to be told its limits.
struct AuthorizationRequest {
    asker: Arc<Requester>,
    authzid: Option<String>,
    tells_limits: bool,
    settings: Arc<Settings>,
}

impl AuthorizationRequest {
    fn authorization<E: Engine>(
        &self,
        snapshot: &Snapshot<E>,
        work: &mut u64,
    ) -> Result<Authorization, Error> {
        let acts_as = match &self.authzid {
            Some(authzid) => {
                let asked = (&**authzid, Instant::now());
                acts_at_bind(snapshot, &self.settings, &self.asker, asked, work)?
            }
            None => ActsAs::Itself,
        };
        let requester = match &acts_as {
            ActsAs::Other {
                requester: Some(requester),
                ..
            } => requester,
            _ => &self.asker,
        };
        let limits = match self.tells_limits {
            true => Some(self.resource_limits(&snapshot.search_limits(requester)?)),
            false => None,
        };
        Ok(Authorization { acts_as, limits })
    }

    fn resource_limits(&self, limits: &SearchLimits) -> ResourceLimits {
        let idle = self.settings.config.limits.idle_seconds_max;
        ResourceLimits {
            size: limits.entries_max(u32::MAX),
            time: limits.seconds_max(u32::MAX),
            idle: u32::try_from(idle).unwrap_or(u32::MAX),
            candidates: limits.candidates_max(),
        }
    }
}

impl Bindable {
    /// A server that was invited.
    fn replica(dn: String, stored: Vec<u8>) -> Bindable {
        Bindable {
            identity: Identity::Replica { dn },
            stored: vec![stored],
            is_governed: false,
            may_have_second_factor: false,
            is_stored_anew: false,
        }
    }
}

/// The same answer for a wrong name and a wrong password, so that nobody can find out names by trying.
pub(super) fn wrong() -> Outcome {
    Outcome::new(ResultCode::InvalidCredentials, "")
}

/// The answer after too many failures.
fn too_many_failures() -> Outcome {
    let reason = "too many binds from this address have failed, or too many in this name: wait a minute \
                  (limits.failed_binds_per_address_max, limits.failed_binds_per_name_max)";
    Outcome::new(ResultCode::Busy, reason)
}

/// The answer to a request whose password was still being hashed when the session ended.
pub(super) fn stopped() -> Outcome {
    let reason = "the session ended before the password was hashed";
    Outcome::new(ResultCode::Unavailable, reason)
}

impl<E: Engine> Session<E> {
    pub(super) fn bind(
        &mut self,
        id: u32,
        request: &BindRequest<'_>,
        controls: &RequestControls<'_>,
    ) -> bool {
        self.operations.verifies = false;
        self.operations.tells_identity = controls.authorization_identity.is_some();
        self.operations.tells_limits = controls.get_user_resource_limits.is_some();
        self.operations.tells_policy = controls.password_policy.is_some() && self.has_policies();
        self.operations.authorization = Authorization::default();
        self.operations.counted = None;
        self.context.must_change = false;
        // RFC 4511 §4.2.1: while a bind is under way, and when it fails, the connection is anonymous.
        self.set_identity(Identity::Anonymous);
        self.context.deletions = self.service.directory.deletions();
        self.operations.transactions.clear();
        self.abandon_lburp();
        // RFC 4511 §4.2.1: any other bind than the next of the same mechanism aborts it.
        let challenged = self.operations.challenged.take();
        let outcome = match request.authentication {
            _ if request.version != 3 => Err(Outcome::new(
                ResultCode::ProtocolError,
                "only version 3 of the protocol is spoken here",
            )),
            Authentication::Simple(password) => self.simple(id, request.name, password),
            Authentication::Sasl {
                mechanism,
                credentials,
            } => self.sasl(id, mechanism, credentials, challenged),
        };
        self.end_long_turn();
        if self.waits_for_fetch(Reader::Request) {
            // The mechanism begins again.
            self.uncount();
            return false;
        }
        if self.settings.config.log.access {
            let schema = self.service.directory.schema();
            let dn = LoggedName::dn(&schema, request.name);
            tracing::info!(target: "access", conn = self.context.number, id, %dn, "bind");
        }
        match outcome {
            Ok(Begun::Bound {
                identity,
                told,
                verdict,
            }) => self.bound(id, identity, told, &verdict),
            Ok(Begun::Refused(response)) => self.refuse_bind(id, &response),
            Ok(Begun::Challenged(challenge)) => {
                self.answer_sasl(id, ResultCode::SaslBindInProgress, &challenge, Vec::new());
            }
            Ok(Begun::Waits) => self.operations.exclusive = Some(id),
            Err(outcome) => self.answer_bind(id, &outcome),
        }
        true
    }

    /// Answers a bind, or who has asked whether it would succeed.
    pub(super) fn answer_bind(&mut self, id: u32, outcome: &Outcome) {
        match std::mem::take(&mut self.operations.verifies) {
            true => self.answer_verified(id, outcome),
            false => self.answer(id, Operation::Bind, outcome),
        }
    }

    /// Answers an operation that a timer has kept.
    fn answer_late(&mut self, id: u32, operation: Operation, outcome: &Outcome) {
        match operation {
            Operation::Bind => self.answer_bind(id, outcome),
            operation => self.answer(id, operation, outcome),
        }
    }

    /// Answers a bind that has succeeded.
    pub(super) fn bound(
        &mut self,
        id: u32,
        identity: Identity,
        told: Option<Vec<u8>>,
        verdict: &BindVerdict,
    ) {
        self.uncount();
        if self.operations.verifies {
            let mut outcome = Outcome::SUCCESS;
            outcome.controls = self.bind_controls(None, &verdict.response);
            return self.answer_bind(id, &outcome);
        }
        let Authorization { acts_as, limits } = std::mem::take(&mut self.operations.authorization);
        match acts_as {
            ActsAs::Itself => self.set_identity(identity),
            ActsAs::Other {
                requester,
                denied_at,
            } => match requester {
                // A client that must change its password first cannot act for others.
                Some(requester) if !verdict.must_change => self.set_requester(requester),
                // RFC 4513 §5.
                _ => {
                    self.log_denied_bind(id, &identity);
                    let outcome = Outcome::new(ResultCode::InvalidCredentials, NOT_AUTHORIZED);
                    return self.deny((id, Operation::Bind), outcome, denied_at);
                }
            },
        }
        self.context.must_change = verdict.must_change;
        let controls = self.bind_controls(limits.as_ref(), &verdict.response);
        match told {
            Some(told) => self.answer_sasl(id, ResultCode::Success, &told, controls),
            None => {
                let mut outcome = Outcome::SUCCESS;
                outcome.controls = controls;
                self.answer_bind(id, &outcome);
            }
        }
    }

    /// The response controls of a successful bind: the authorization identity (RFC 3829 §3) and the resource limits, if
    /// the client asked for them, and what the password policy says.
    fn bind_controls(
        &self,
        limits: Option<&ResourceLimits>,
        response: &PasswordPolicyResponse,
    ) -> Vec<u8> {
        let mut controls = ControlsBuf::default();
        let authzid;
        if self.operations.tells_identity {
            authzid = match self.context.identity().dn() {
                "" => String::new(),
                dn => format!("dn:{dn}"),
            };
            controls.push(authorization_identity_response(&authzid));
        }
        let mut value = Vec::new();
        if let Some(limits) = limits {
            limits.encode(&mut value);
            controls.push(resource_limits_response(&value));
        }
        self.put_policy(response, &mut controls);
        controls.view().as_ber().to_vec()
    }

    /// Simple authentication. Returns the identity if it can be told at once.
    pub(super) fn simple(
        &mut self,
        id: u32,
        name: &str,
        password: &[u8],
    ) -> Result<Begun, Outcome> {
        if password.is_empty() {
            return if name.is_empty() {
                self.authorize(&Identity::Anonymous, None)?;
                Ok(Begun::bound(Identity::Anonymous))
            } else {
                let reason = "a bind with a name needs a password (RFC 4513 §5.1.2)";
                Err(Outcome::new(ResultCode::UnwillingToPerform, reason))
            };
        }
        self.require_confidentiality()?;
        self.check_password(id, (name, None), None, password)
    }

    /// Counts a bind in a name as one that may fail. After too many failures, returns false and refuses the
    /// bind at `refused_at`, without a look at the password.
    fn counts(&mut self, id: u32, name: Owner, refused_at: Instant) -> bool {
        let claim = Claim {
            origin: self.context.peer.origin(),
            owner: name,
        };
        let limits = &self.settings.config.limits;
        let counts = self
            .service
            .failed_binds
            .begin(claim, limits, Instant::now());
        match counts {
            true => self.operations.counted = Some(claim),
            false => self.deny((id, Operation::Bind), too_many_failures(), refused_at),
        }
        counts
    }

    /// Takes the bind under way out of the count: it has not failed.
    pub(super) fn uncount(&mut self) {
        if let Some(claim) = self.operations.counted.take() {
            self.service.failed_binds.succeeded(claim);
        }
    }

    /// Decides what a client may do that has authenticated and asked to act as somebody.
    fn authorize(&mut self, identity: &Identity, authzid: Option<&str>) -> Result<(), Outcome> {
        if let Some(request) = self.authorization_request(identity, authzid) {
            let mut work = ACTING_WORK_MAX;
            let authorization = self.read(|snapshot| request.authorization(snapshot, &mut work));
            self.charge(ACTING_WORK_MAX - work);
            self.operations.authorization = authorization?;
        }
        Ok(())
    }

    /// What there is to decide for the client of the bind under way, if it asks for anything.
    fn authorization_request(
        &self,
        identity: &Identity,
        authzid: Option<&str>,
    ) -> Option<AuthorizationRequest> {
        let tells_limits = self.operations.tells_limits;
        (authzid.is_some() || tells_limits).then(|| AuthorizationRequest {
            asker: self.requester(identity.clone()),
            authzid: authzid.map(str::to_owned),
            tells_limits,
            settings: self.settings.clone(),
        })
    }

    /// Checks a password of the entry with this name, at once if that takes no time. For a name without an entry, the
    /// failure is charged to `nobody` if it is given, else to the name itself.
    fn check_password(
        &mut self,
        id: u32,
        (name, authzid): (&str, Option<String>),
        nobody: Option<Owner>,
        password: &[u8],
    ) -> Result<Begun, Outcome> {
        let came = Instant::now();
        let dn = names::normal(&self.service.directory.schema(), name);
        let nobody = nobody.unwrap_or_else(|| names::nobody(dn.as_ref(), name));
        let found = match invitations::account(&self.service.folder, name) {
            Some((dn, stored)) => Some(Bindable::replica(dn, stored)),
            None => self.bindable(dn.as_ref(), password)?,
        };
        let claim = match &found {
            Some(found) => self.claim(&found.identity),
            None => Claim {
                origin: self.context.peer.origin(),
                owner: nobody,
            },
        };
        let failure = came + self.service.hashers.failure_delay(claim);
        if !self.counts(id, nobody, failure) {
            return Ok(Begun::Waits);
        }
        let Some(Bindable {
            identity,
            stored,
            is_governed,
            may_have_second_factor,
            is_stored_anew,
        }) = found
        else {
            self.fail_at(failure, claim, PasswordPolicyResponse::default());
            return Ok(Begun::Waits);
        };
        let entry = entry_of(&identity);
        let candidate = Candidate {
            identity,
            governed: entry.filter(|_| is_governed),
            authzid,
            failure: (failure, claim),
            is_stored_anew: is_stored_anew && stored.iter().any(|stored| is_outdated(stored)),
            stored,
        };
        if let Some(governed) = candidate.governed
            && let Some(response) = self.locked(governed)?
        {
            self.fail_at(failure, claim, response);
            return Ok(Begun::Waits);
        }
        if may_have_second_factor
            && let Some(entry) = entry
            && let Some(factor) = self.second_factor(entry)?
        {
            return self.check_second_factor(id, candidate, password, &factor);
        }
        let verifier = self.verifier(password, &candidate);
        match verifier.is_quick() && !candidate.is_stored_anew {
            true => self.compare_at_once(id, candidate, verifier),
            false => Ok(self.compare_apart(id, candidate, Some(verifier))),
        }
    }

    /// The entry that the password may belong to. `None` if no entry has the name.
    fn bindable(
        &self,
        dn: Option<&NormalDn>,
        password: &[u8],
    ) -> Result<Option<Bindable>, Outcome> {
        let Some(dn) = dn.filter(|_| password.len() <= PASSWORD_BYTES_MAX) else {
            return Ok(None);
        };
        if *dn == self.settings.admin_name {
            let identity = Identity::Admin {
                dn: self.settings.config.admin.dn.clone(),
            };
            let stored = vec![self.settings.admin_password.clone()];
            return Ok(Some(Bindable {
                identity,
                stored,
                is_governed: false,
                may_have_second_factor: false,
                is_stored_anew: false,
            }));
        }
        // An entry that nobody may bind as is treated like one that does not exist, also in the time that this takes.
        let values_max = self.settings.config.limits.password_values_max;
        let found = Entries::bindable(self, dn, &self.context.nobody, values_max)?;
        Ok(found.map(|found| {
            let Credentials {
                entry,
                dn,
                stored,
                is_governed,
                may_have_second_factor,
                is_stored_anew,
                ..
            } = found;
            let identity = Identity::User { entry, dn };
            Bindable {
                identity,
                stored,
                is_governed,
                may_have_second_factor,
                is_stored_anew,
            }
        }))
    }

    /// A hasher has checked the password of a bind.
    pub(super) fn verified(&mut self, id: u32, verdict: Verdict, change: Option<AccountChange>) {
        let failure = match self.operations.hashing.take() {
            Some(Hashing::Job { failure, .. }) => failure,
            _ => None,
        };
        self.operations.exclusive = None;
        let begun = match (verdict, failure) {
            (Verdict::Bound(identity, authorization, verdict), Some(failure)) => {
                self.operations.authorization = authorization;
                match (change, entry_of(&identity)) {
                    (Some(change), Some(entry)) if !verdict.is_refused => {
                        let end = BindEnd::StoredAnew {
                            identity,
                            verdict,
                            failure,
                        };
                        self.change_account(id, entry, change, end);
                        Ok(Begun::Waits)
                    }
                    _ => Ok(self.judged_right(id, (identity, None, verdict), failure)),
                }
            }
            (Verdict::Wrong(change), Some(failure)) => Ok(self.judged_wrong(id, change, failure)),
            (Verdict::Failed(outcome), _) => Err(outcome),
            // The session has abandoned the bind.
            (Verdict::Stopped, _) | (_, None) => Err(stopped()),
        };
        self.go_on_binding(id, begun);
    }

    /// Answers a bind that has waited, unless it waits again.
    pub(super) fn go_on_binding(&mut self, id: u32, begun: Result<Begun, Outcome>) {
        match begun {
            Ok(Begun::Bound {
                identity,
                told,
                verdict,
            }) => self.bound(id, identity, told, &verdict),
            Ok(Begun::Refused(response)) => self.refuse_bind(id, &response),
            Ok(Begun::Waits | Begun::Challenged(_)) => {
                self.operations.exclusive = Some(id);
                self.tell_failure();
            }
            Err(outcome) => self.answer_bind(id, &outcome),
        }
    }

    /// The answer to a bind as a locked entry.
    fn locked(&self, entry: EntryId) -> Result<Option<PasswordPolicyResponse>, Outcome> {
        self.read(|snapshot| snapshot.locked(entry))
    }

    /// Makes a bind fail at a later time.
    pub(super) fn fail_at(&mut self, at: Instant, claim: Claim, response: PasswordPolicyResponse) {
        self.operations.hashing = Some(Hashing::Failed {
            at,
            response,
            _pending: self.service.hashers.delay(claim),
        });
    }

    /// When a bind that has failed, or a request that is denied, is to be answered.
    pub(super) fn failure_due(&self) -> Option<Instant> {
        match &self.operations.hashing {
            Some(Hashing::Failed { at, .. } | Hashing::Denied { at, .. }) => Some(*at),
            _ => None,
        }
    }

    /// Answers a bind that has failed, or a request that is denied, if it is time.
    pub(super) fn tell_failure(&mut self) {
        if self.failure_due().is_some_and(|at| Instant::now() >= at)
            && let Some(id) = self.operations.exclusive.take()
        {
            match self.operations.hashing.take() {
                Some(Hashing::Failed { response, .. }) => self.refuse_bind(id, &response),
                Some(Hashing::Denied {
                    operation, outcome, ..
                }) => self.answer_late(id, operation, &outcome),
                _ => {}
            }
        }
    }

    /// Stops the hashing job of this session, because the server stops or the client has gone. The job reports that it
    /// was stopped.
    pub(super) fn stop_hashing(&mut self) {
        let (operation, outcome) = match self.operations.hashing.take() {
            Some(Hashing::Failed { .. }) => (Operation::Bind, stopped()),
            Some(Hashing::Denied {
                operation, outcome, ..
            }) => (operation, outcome),
            Some(Hashing::Job { .. }) | None => return,
        };
        if let Some(id) = self.operations.exclusive.take() {
            self.answer_late(id, operation, &outcome);
        }
    }

    /// Whether a password is being hashed or checked, or the answer to a failed check is due later. Only then it
    /// matters whether the client still waits.
    pub(super) fn is_hashing(&self) -> bool {
        matches!(
            self.operations.hashing,
            Some(Hashing::Job { .. } | Hashing::Failed { .. })
        )
    }

    /// Ends the session of a client that left while its bind was under way. Nothing is answered: otherwise a client
    /// that leaves early could tell from the answer whether the entry exists.
    pub(super) fn leave_bind(&mut self) -> bool {
        let is_binding = matches!(
            self.operations.hashing,
            Some(
                Hashing::Job {
                    failure: Some(_),
                    ..
                } | Hashing::Failed { .. }
            )
        );
        if is_binding {
            self.operations.hashing = None;
            self.operations.exclusive = None;
            self.end();
        }
        is_binding
    }

    /// Whether the session only waits for a hashing job before it ends.
    pub(super) fn is_unbound(&self) -> bool {
        let Ok(Frame::Complete(length)) = frame(&self.input.bytes, self.message_bytes_max()) else {
            return false;
        };
        let message = self.input.bytes.get(..length).map(RequestMessage::decode);
        matches!(
            message,
            Some(Ok(RequestMessage {
                op: Request::Unbind,
                ..
            }))
        )
    }

    /// Handles a SASL bind request (RFC 4513 §5.2): the first, or the answer to a challenge.
    fn sasl(
        &mut self,
        id: u32,
        name: &str,
        credentials: Option<&[u8]>,
        challenged: Option<Challenged>,
    ) -> Result<Begun, Outcome> {
        let mut bind = match challenged.filter(|challenged| challenged.mechanism.name == name) {
            Some(challenged) => challenged,
            None => {
                let Some(mechanism) = auth::find(name) else {
                    let reason = "the root DSE has the SASL mechanisms that work here, in supportedSASLMechanisms";
                    return Err(Outcome::new(ResultCode::AuthMethodNotSupported, reason));
                };
                let exchange = (mechanism.begin)();
                Challenged {
                    mechanism,
                    exchange,
                }
            }
        };
        let asked = auth::Asked {
            peer: self.context.peer,
            channel: self.context.channel,
            tls: self.context.tls.as_deref(),
            settings: &self.settings,
            entries: &*self,
            schema: &self.service.directory.schema(),
            nobody: self.context.nobody.clone(),
        };
        let came = Instant::now();
        let stepped = bind.exchange.step(&asked, credentials);
        if self.lacks() {
            // The mechanism is asked again later, and answers then.
            self.operations.challenged = Some(bind);
            return Err(wrong());
        }
        let begun = match stepped? {
            Step::Done(Client { identity, authzid }) => self
                .authorize(&identity, authzid.as_deref())
                .map(|()| Begun::bound(identity)),
            Step::Proved {
                client: Client { identity, authzid },
                told,
                name,
            } => {
                let claim = self.claim(&identity);
                let failure = came + self.service.hashers.failure_delay(claim);
                if !self.counts(id, name, failure) {
                    return Ok(Begun::Waits);
                }
                let authorized = self.authorize(&identity, authzid.as_deref());
                authorized
                    .and_then(|()| self.right_password(id, identity, Some(told), (failure, claim)))
            }
            Step::Failed { owner, name } => {
                let origin = self.context.peer.origin();
                let claim = Claim { origin, owner };
                let failure = came + self.service.hashers.failure_delay(claim);
                if !self.counts(id, name, failure) {
                    return Ok(Begun::Waits);
                }
                let entry = match owner {
                    Owner::Entry(entry) => Some(EntryId(entry)),
                    _ => None,
                };
                self.wrong_password(id, entry, (failure, claim))
            }
            Step::More(challenge) => {
                self.operations.challenged = Some(bind);
                return Ok(Begun::Challenged(challenge));
            }
            Step::Wait(Wait::Password {
                dn,
                nobody,
                password,
                authzid,
            }) => self.check_password(id, (&dn, authzid), Some(nobody), &password),
        };
        if self.lacks() {
            self.operations.challenged = Some(bind);
        }
        begun
    }

    /// Sends the server's SASL credentials to the client.
    fn answer_sasl(&mut self, id: u32, code: ResultCode, told: &[u8], controls: Vec<u8>) {
        let mut outcome = Outcome::new(code, "");
        outcome.controls = controls;
        self.log_result(id, Operation::Bind, &outcome);
        self.output.queue_length = self.output.queue_length.saturating_sub(1);
        let controls = self.response_controls(id, &outcome.controls, (outcome.code, None));
        Message {
            id,
            op: Response::Bind(BindResponse {
                result: LdapResult::new(outcome.code, ""),
                server_sasl_credentials: Some(told),
            }),
            controls: Controls::from_ber(&controls).unwrap_or_default(),
        }
        .encode(&mut self.output.bytes);
    }

    /// Refuses a password that came over a network without TLS, unless the configuration allows that.
    pub(super) fn require_confidentiality(&self) -> Result<(), Outcome> {
        let confidential = self.context.channel.is_under_tls || self.context.peer.is_near();
        if confidential || self.settings.config.access.danger_plaintext_passwords {
            Ok(())
        } else {
            let reason =
                "passwords are accepted over TLS only: use StartTLS (ldapsearch -ZZ) or ldaps://";
            Err(Outcome::new(ResultCode::ConfidentialityRequired, reason))
        }
    }
}
