//! Bind (RFC 4511 §4.2, RFC 4513 §5).
//!
//! A bind that succeeds is answered at once, or when what is kept of it is durable. A timer answers one that fails, for
//! any reason: not before the hash of a new password would have been checked, had it come at the same time. So the time
//! of the answer does not tell whether the entry exists, or how its password is stored, and a client that tries names
//! which do not exist keeps no hasher busy. Answers at once are of what no name has to do with: of mechanisms, channel
//! bindings and authorization identities that do not fit the connection or the request itself.

mod compare;

use std::sync::Arc;
use std::time::Instant;

use sapwood_directory::access::{ACTING_WORK_MAX, NOT_AUTHORIZED};
use sapwood_directory::engine::Engine;
use sapwood_directory::schema::NormalDn;
use sapwood_directory::{
    AccountChange, BindFailure, BindVerdict, Credentials, EntryId, Identity, Outcome, Requester,
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
use crate::password::{PASSWORD_BYTES_MAX, Pending, Ticket, is_outdated};
use crate::workers::{Claim, Owner};

/// As whom a client acts that has authenticated.
#[derive(Clone, Debug, Default)]
pub(crate) enum ActsAs {
    /// It has asked for nobody else.
    #[default]
    Itself,
    /// It has asked for somebody else.
    Other {
        /// As whom it may act; none for somebody as whom it may not.
        requester: Option<Arc<Requester>>,
        /// When it is told at the earliest that it may not.
        denied_at: Instant,
    },
}

/// What came of the check of a password.
#[derive(Clone, Debug)]
pub(crate) enum Verdict {
    /// It is right, as whom the client acts, and what password policies say.
    Bound(Identity, ActsAs, BindVerdict),
    /// It is wrong, and what password policies make of that.
    Wrong(Option<(EntryId, BindFailure)>),
    /// Policies could not be asked.
    Failed(Outcome),
    /// The check was stopped before.
    Stopped,
}

/// What a session waits for that hashes, and that nothing may overlap.
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
    /// A request that may not be done for whom it names, and when that is told.
    Denied {
        at: Instant,
        operation: Operation,
        outcome: Outcome,
    },
}

/// How a bind ends that waits for what policies keep with its entry.
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
    /// It was right, and is stored in another form now, unless that could not be.
    StoredAnew {
        identity: Identity,
        verdict: BindVerdict,
        failure: (Instant, Claim),
    },
    /// The one-time password behind it was right, and is used up; the password itself was not looked at yet.
    SecondFactor(PasswordCheck),
}

/// What becomes of a bind at once.
pub(super) enum Begun {
    Bound {
        identity: Identity,
        /// What a SASL mechanism tells the client.
        told: Option<Vec<u8>>,
        /// What a password policy says.
        verdict: BindVerdict,
    },
    /// The password was right, and a policy does not let it be used.
    Refused(PasswordPolicyResponse),
    /// The client is to answer a challenge of the SASL mechanism.
    Challenged(Vec<u8>),
    /// A hasher is at it, or the timer of its failure runs.
    Waits,
}

/// A SASL bind whose client was given a challenge.
pub(super) struct Challenged {
    mechanism: &'static Mechanism,
    exchange: Box<dyn Exchange>,
}

impl Begun {
    /// Of somebody whom no password policy has to do with.
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

/// One answer for a wrong name and a wrong password: names are not to be found out by trying.
pub(super) fn wrong() -> Outcome {
    Outcome::new(ResultCode::InvalidCredentials, "")
}

/// What is told who has failed too often.
fn too_many_failures() -> Outcome {
    let reason = "too many binds from this address have failed, or too many in this name: wait a minute \
                  (limits.failed_binds_per_address_max, limits.failed_binds_per_name_max)";
    Outcome::new(ResultCode::Busy, reason)
}

/// The answer to what was still to be hashed when the session ended.
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
        self.operations.tells_identity = controls.authorization_identity.is_some();
        self.operations.tells_limits = controls.get_user_resource_limits.is_some();
        self.operations.tells_policy = controls.password_policy.is_some() && self.has_policies();
        self.operations.acts_as = ActsAs::Itself;
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
            // It begins again.
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
            Err(outcome) => self.answer(id, Operation::Bind, &outcome),
        }
        true
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
        match std::mem::take(&mut self.operations.acts_as) {
            ActsAs::Itself => self.set_identity(identity),
            ActsAs::Other {
                requester,
                denied_at,
            } => match requester {
                // Who has to change the password acts for nobody.
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
        let controls = self.bind_controls(&verdict.response);
        match told {
            Some(told) => self.answer_sasl(id, ResultCode::Success, &told, controls),
            None => {
                let mut outcome = Outcome::SUCCESS;
                outcome.controls = controls;
                self.answer(id, Operation::Bind, &outcome);
            }
        }
    }

    /// The controls of a bind that has succeeded: who the client is, and what its searches may take, if it wants to
    /// know (RFC 3829 §3), and what a password policy says.
    fn bind_controls(&self, response: &PasswordPolicyResponse) -> Vec<u8> {
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
        if self.operations.tells_limits
            && let Ok(limits) = self.resource_limits()
        {
            limits.encode(&mut value);
            controls.push(resource_limits_response(&value));
        }
        self.put_policy(response, &mut controls);
        controls.view().as_ber().to_vec()
    }

    /// What the operations of who has bound may take.
    fn resource_limits(&self) -> Result<ResourceLimits, Outcome> {
        let limits = self.read(|snapshot| snapshot.search_limits(&self.context.requester))?;
        let idle = self.settings.config.limits.idle_seconds_max;
        Ok(ResourceLimits {
            size: limits.entries_max(u32::MAX),
            time: limits.seconds_max(u32::MAX),
            idle: u32::try_from(idle).unwrap_or(u32::MAX),
            candidates: limits.candidates_max(),
        })
    }

    /// Simple authentication: who the client is, unless that takes time.
    fn simple(&mut self, id: u32, name: &str, password: &[u8]) -> Result<Begun, Outcome> {
        if password.is_empty() {
            return if name.is_empty() {
                Ok(Begun::bound(Identity::Anonymous))
            } else {
                let reason = "a bind with a name needs a password (RFC 4513 §5.1.2)";
                Err(Outcome::new(ResultCode::UnwillingToPerform, reason))
            };
        }
        self.require_confidentiality()?;
        self.check_password(id, (name, None), None, password)
    }

    /// Counts a bind in a name as one that may fail. If too many have, it is refused at this time, without a look at
    /// the password.
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

    /// The bind under way has not failed.
    fn uncount(&mut self) {
        if let Some(claim) = self.operations.counted.take() {
            self.service.failed_binds.succeeded(claim);
        }
    }

    /// Decides as whom somebody acts that has authenticated, and asks for this.
    fn decide_acting(&mut self, identity: &Identity, authzid: Option<&str>) -> Result<(), Outcome> {
        if let Some(authzid) = authzid {
            let asked = (authzid, Instant::now());
            let asker = self.requester(identity.clone());
            let settings = self.settings.clone();
            let mut work = ACTING_WORK_MAX;
            let acts_as =
                self.read(|snapshot| acts_at_bind(snapshot, &settings, &asker, asked, &mut work));
            self.charge(ACTING_WORK_MAX - work);
            self.operations.acts_as = acts_as?;
        }
        Ok(())
    }

    /// Whether the password is the one of who has this name, unless that takes time. `nobody` is charged for a name
    /// that nobody has; without it, what stands for the name is.
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
        let found = self.bindable(dn.as_ref(), password)?;
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

    /// Who may have the password; `None` for a name that nobody has.
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
        // Who may not be bound as is not there, also in the time that it takes.
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
            (Verdict::Bound(identity, acts_as, verdict), Some(failure)) => {
                self.operations.acts_as = acts_as;
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
            // The session has given it up.
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
            Err(outcome) => self.answer(id, Operation::Bind, &outcome),
        }
    }

    /// What to tell who binds as an entry that is locked.
    fn locked(&self, entry: EntryId) -> Result<Option<PasswordPolicyResponse>, Outcome> {
        self.read(|snapshot| snapshot.locked(entry))
    }

    /// Has a bind fail at a time.
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
                }) => self.answer(id, operation, &outcome),
                _ => {}
            }
        }
    }

    /// Stops what is hashed for this session, as the server stops or the client has gone. A job says so itself.
    pub(super) fn stop_hashing(&mut self) {
        let (operation, outcome) = match self.operations.hashing.take() {
            Some(Hashing::Failed { .. }) => (Operation::Bind, stopped()),
            Some(Hashing::Denied {
                operation, outcome, ..
            }) => (operation, outcome),
            Some(Hashing::Job { .. }) | None => return,
        };
        if let Some(id) = self.operations.exclusive.take() {
            self.answer(id, operation, &outcome);
        }
    }

    /// Whether a password is being hashed or checked, or its check has failed: what the client does then tells whether
    /// anybody waits for it.
    pub(super) fn is_hashing(&self) -> bool {
        matches!(
            self.operations.hashing,
            Some(Hashing::Job { .. } | Hashing::Failed { .. })
        )
    }

    /// Ends the session of a client that has gone while its bind was under way, if one was. Nothing is answered:
    /// whether there was still something to stop would tell who goes early enough whether there is such an entry.
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

    /// Whether what comes next is the end of the session, while something is hashed for it.
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

    /// Who asks to act as somebody else.
    fn requester_if(
        &self,
        authzid: &Option<String>,
        identity: &Identity,
    ) -> Option<Arc<Requester>> {
        let asks = authzid.is_some();
        asks.then(|| self.requester(identity.clone()))
    }

    /// A request of a SASL bind (RFC 4513 §5.2), which goes on where its client was challenged.
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
            // It is asked again, and answers then.
            self.operations.challenged = Some(bind);
            return Err(wrong());
        }
        let begun = match stepped? {
            Step::Done(Client { identity, authzid }) => self
                .decide_acting(&identity, authzid.as_deref())
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
                let decided = self.decide_acting(&identity, authzid.as_deref());
                decided
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

    /// Answers with what a SASL mechanism says to the client.
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

    /// Refuses a password that others could have read on its way.
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
