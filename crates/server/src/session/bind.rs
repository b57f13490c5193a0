//! Bind (RFC 4511 §4.2, RFC 4513 §5).
//!
//! A bind that succeeds is answered at once. A timer answers one that fails, for any reason: not before the hash of a
//! new password would have been checked, had it come at the same time. So the time of the answer does not tell whether
//! the entry exists, or how its password is stored, and a client that tries names which do not exist keeps no hasher
//! busy.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Instant;

use sapwood_directory::engine::Engine;
use sapwood_directory::{Credentials, Identity, Outcome, Requester};
use sapwood_ldap::controls::{
    Controls, ControlsBuf, RequestControls, authorization_identity_response,
};
use sapwood_ldap::message::{
    Authentication, BindRequest, BindResponse, Frame, Message, Operation, Request, RequestMessage,
    Response, frame,
};
use sapwood_ldap::result::{LdapResult, ResultCode};

use super::log::LoggedName;
use super::{Completion, Peer, Reader, Session};
use crate::auth::lookup::Entries;
use crate::auth::{self, Exchange, Mechanism, Step, Wait};
use crate::password::{PASSWORD_BYTES_MAX, Pending, Ticket, Verified, Verifier};
use crate::workers::{Claim, Owner, Turn};

/// Bytes of the name in a bind.
const NAME_BYTES_MAX: usize = 8 << 10;

/// What came of the check of a password.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It is right.
    Bound(Identity),
    /// It is wrong.
    Wrong,
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
    Failed { at: Instant, _pending: Pending },
}

/// What becomes of a bind at once.
enum Begun {
    Bound(Identity),
    /// The same, and the client is told this by the SASL mechanism.
    BoundWith(Identity, Vec<u8>),
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

/// Who may have a password.
struct Bindable {
    identity: Identity,
    /// The stored ones to compare with.
    stored: Vec<Vec<u8>>,
}

/// One answer for a wrong name and a wrong password: names are not to be found out by trying.
fn wrong() -> Outcome {
    Outcome::new(ResultCode::InvalidCredentials, "")
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
        if self.waits_for_fetch(Reader::Request) {
            return false;
        }
        if self.settings.config.log.access {
            let schema = self.service.directory.schema();
            let dn = LoggedName::dn(&schema, request.name);
            tracing::info!(target: "access", conn = self.context.number, id, %dn, "bind");
        }
        match outcome {
            Ok(Begun::Bound(identity)) => self.bound(id, identity),
            Ok(Begun::BoundWith(identity, told)) => {
                self.set_identity(identity);
                self.answer_sasl(id, ResultCode::Success, &told);
            }
            Ok(Begun::Challenged(challenge)) => {
                self.answer_sasl(id, ResultCode::SaslBindInProgress, &challenge);
            }
            Ok(Begun::Waits) => self.operations.exclusive = Some(id),
            Err(outcome) => self.answer(id, Operation::Bind, &outcome),
        }
        true
    }

    fn bound(&mut self, id: u32, identity: Identity) {
        self.set_identity(identity);
        let mut outcome = Outcome::SUCCESS;
        outcome.controls = self.identity_told();
        self.answer(id, Operation::Bind, &outcome);
    }

    /// The control that says who the client is, if it wants to know (RFC 3829 §3).
    fn identity_told(&self) -> Vec<u8> {
        let mut controls = ControlsBuf::default();
        if self.operations.tells_identity {
            let dn = self.context.identity().dn();
            let authzid = match dn {
                "" => String::new(),
                _ => format!("dn:{dn}"),
            };
            controls.push(authorization_identity_response(&authzid));
        }
        controls.view().as_ber().to_vec()
    }

    /// Simple authentication: who the client is, unless that takes time.
    fn simple(&mut self, id: u32, name: &str, password: &[u8]) -> Result<Begun, Outcome> {
        if password.is_empty() {
            return if name.is_empty() {
                Ok(Begun::Bound(Identity::Anonymous))
            } else {
                let reason = "a bind with a name needs a password (RFC 4513 §5.1.2)";
                Err(Outcome::new(ResultCode::UnwillingToPerform, reason))
            };
        }
        self.require_confidentiality()?;
        self.check_password(id, name, password)
    }

    /// Whether the password is the one of who has this name, unless that takes time.
    fn check_password(&mut self, id: u32, name: &str, password: &[u8]) -> Result<Begun, Outcome> {
        let came = Instant::now();
        let Some(Bindable { identity, stored }) = self.bindable(name, password)? else {
            let claim = Claim {
                origin: self.context.peer.origin(),
                owner: Owner::nobody(name),
            };
            return Ok(self.fail(came, claim));
        };
        let claim = self.claim(&identity);
        let limits = self.settings.config.limits.passwords();
        let stored = stored.iter().map(Vec::as_slice);
        let mut verifier = Verifier::new(password, stored, limits);
        if verifier.is_quick() {
            return Ok(match verifier.run() {
                Some(_) => Begun::Bound(identity),
                None => self.fail(came, claim),
            });
        }
        let hashers = &self.service.hashers;
        let (work, failure) = (verifier.work(), came + hashers.failure_delay(claim));
        let session = self.completions.clone();
        let check = move |turn| {
            let verdict = match turn {
                Turn::Stop => Verdict::Stopped,
                Turn::Step => match verifier.step() {
                    Verified::More => return ControlFlow::Continue(()),
                    Verified::Matches(_) => Verdict::Bound(identity.clone()),
                    Verified::Differs => Verdict::Wrong,
                },
            };
            let _ = session.send(Completion::Verified { id, verdict });
            ControlFlow::Break(())
        };
        self.operations.hashing = Some(Hashing::Job {
            _ticket: self.service.hashers.submit(claim, work, check),
            failure: Some((failure, claim)),
        });
        Ok(Begun::Waits)
    }

    /// Who may have the password; `None` for a name that nobody has.
    fn bindable(&self, name: &str, password: &[u8]) -> Result<Option<Bindable>, Outcome> {
        if name.len() > NAME_BYTES_MAX || password.len() > PASSWORD_BYTES_MAX {
            return Ok(None);
        }
        if self
            .settings
            .is_admin(&self.service.directory.schema(), name)
        {
            let identity = Identity::Admin {
                dn: self.settings.config.admin.dn.clone(),
            };
            let stored = vec![self.settings.admin_password.clone()];
            return Ok(Some(Bindable { identity, stored }));
        }
        // Who may not be bound as is not there, also in the time that it takes.
        let values_max = self.settings.config.limits.password_values_max;
        let found = Entries::bindable(self, name, &self.nobody(), values_max)?;
        Ok(found.map(|found| {
            let Credentials {
                entry, dn, stored, ..
            } = found;
            let identity = Identity::User { entry, dn };
            Bindable { identity, stored }
        }))
    }

    /// A hasher has checked the password of a bind.
    pub(super) fn verified(&mut self, id: u32, verdict: Verdict) {
        let failure = match self.operations.hashing.take() {
            Some(Hashing::Job { failure, .. }) => failure,
            _ => None,
        };
        self.operations.exclusive = None;
        match (verdict, failure) {
            (Verdict::Bound(identity), _) => self.bound(id, identity),
            (Verdict::Wrong, Some((at, claim))) if at > Instant::now() => {
                self.fail_at(at, claim);
                self.operations.exclusive = Some(id);
            }
            (Verdict::Wrong, _) => self.answer(id, Operation::Bind, &wrong()),
            (Verdict::Stopped, _) => self.answer(id, Operation::Bind, &stopped()),
        }
    }

    /// Has a bind that came at a time fail when others would.
    fn fail(&mut self, came: Instant, claim: Claim) -> Begun {
        self.fail_at(came + self.service.hashers.failure_delay(claim), claim)
    }

    fn fail_at(&mut self, at: Instant, claim: Claim) -> Begun {
        self.operations.hashing = Some(Hashing::Failed {
            at,
            _pending: self.service.hashers.delay(claim),
        });
        Begun::Waits
    }

    /// When a bind that has failed is to be answered.
    pub(super) fn failure_due(&self) -> Option<Instant> {
        match &self.operations.hashing {
            Some(Hashing::Failed { at, .. }) => Some(*at),
            _ => None,
        }
    }

    /// Answers a bind that has failed, if it is time.
    pub(super) fn tell_failure(&mut self) {
        if self.failure_due().is_some_and(|at| Instant::now() >= at)
            && let Some(id) = self.operations.exclusive.take()
        {
            self.operations.hashing = None;
            self.answer(id, Operation::Bind, &wrong());
        }
    }

    /// Stops what is hashed for this session, which ends. A job says so itself.
    pub(super) fn stop_hashing(&mut self) {
        if let Some(Hashing::Failed { .. }) = self.operations.hashing.take()
            && let Some(id) = self.operations.exclusive.take()
        {
            self.answer(id, Operation::Bind, &stopped());
        }
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

    /// The connection as long as nobody is bound.
    fn nobody(&self) -> Arc<Requester> {
        match self.is_anonymous() {
            true => self.context.requester.clone(),
            false => self.requester(Identity::Anonymous),
        }
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
            nobody: self.nobody(),
        };
        let came = Instant::now();
        let stepped = bind.exchange.step(&asked, credentials);
        if self.lacks() {
            // It is asked again, and answers then.
            self.operations.challenged = Some(bind);
            return Err(wrong());
        }
        match stepped? {
            Step::Done(identity) => Ok(Begun::Bound(identity)),
            Step::DoneWith(identity, told) => Ok(Begun::BoundWith(identity, told)),
            Step::Failed(owner) => {
                let origin = self.context.peer.origin();
                Ok(self.fail(came, Claim { origin, owner }))
            }
            Step::More(challenge) => {
                self.operations.challenged = Some(bind);
                Ok(Begun::Challenged(challenge))
            }
            Step::Wait(Wait::Password { dn, password }) => self.check_password(id, &dn, &password),
        }
    }

    /// Answers with what a SASL mechanism says to the client.
    fn answer_sasl(&mut self, id: u32, code: ResultCode, told: &[u8]) {
        let mut outcome = Outcome::new(code, "");
        if code == ResultCode::Success {
            outcome.controls = self.identity_told();
        }
        self.log_result(id, Operation::Bind, &outcome);
        self.output.queue_length = self.output.queue_length.saturating_sub(1);
        let controls = self.response_controls(id, &outcome.controls);
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
        let confidential = self.context.channel.is_under_tls
            || match self.context.peer {
                Peer::Tcp(address) => address.ip().to_canonical().is_loopback(),
                Peer::Local { .. } => true,
            };
        if confidential || self.settings.config.access.danger_plaintext_passwords {
            Ok(())
        } else {
            let reason =
                "passwords are accepted over TLS only: use StartTLS (ldapsearch -ZZ) or ldaps://";
            Err(Outcome::new(ResultCode::ConfidentialityRequired, reason))
        }
    }
}
