//! What password policies mean for a session: what its binds are told, and what it may do until its user has changed
//! the password.

use std::sync::Arc;
use std::time::Instant;

use sapwood_directory::access::Rights;
use sapwood_directory::engine::Engine;
use sapwood_directory::{
    AccountChange, BindFailure, BindVerdict, Directory, EntryId, Error, Identity, Outcome,
    PasswordChange, Requester, Update, UpdateRequest,
};
use sapwood_ldap::controls::{
    Control, ControlsBuf, PASSWORD_EXPIRED, PASSWORD_EXPIRING, PasswordPolicyError,
    PasswordPolicyResponse, PasswordPolicyWarning, password_policy_response,
};
use sapwood_ldap::dn::Dn;
use sapwood_ldap::extended::{CANCEL, PASSWORD_MODIFY, START_TLS, WHO_AM_I};
use sapwood_ldap::message::{Operation, Request, RequestMessage};
use sapwood_ldap::result::ResultCode;

use super::Session;
use super::bind::{ActsAs, Begun, BindEnd, Verdict, wrong};
use super::reply::{Reply, ReplyKind, Unit};
use super::update::is_password;
use crate::workers::Claim;

/// The answer to what is not allowed until the password is changed.
pub(super) fn must_change() -> Outcome {
    let reason = "change your password first: until then nothing else is allowed but to bind, StartTLS, and to unbind";
    Outcome {
        password_policy: Some(PasswordPolicyError::ChangeAfterReset),
        ..Outcome::new(ResultCode::InsufficientAccessRights, reason)
    }
}

impl<E: Engine> Session<E> {
    /// Whether policies are asked for.
    pub(super) fn has_policies(&self) -> bool {
        // Without a snapshot what asks will fail, too.
        let has = self.service.directory.has_password_policies();
        has.unwrap_or_default()
    }

    /// Refuses what is not allowed before the password is changed, unless it was changed since the bind.
    pub(super) fn check_must_change(&mut self) -> Result<(), Outcome> {
        if let Identity::User { entry, .. } = self.context.identity() {
            self.context.must_change =
                self.read(|snapshot| snapshot.must_change_password(*entry))?;
        }
        match self.context.must_change {
            true => Err(must_change()),
            false => Ok(()),
        }
    }

    /// The controls of a bind that a policy has judged.
    pub(super) fn put_policy(&self, response: &PasswordPolicyResponse, controls: &mut ControlsBuf) {
        if self.operations.tells_policy {
            let mut value = Vec::new();
            response.encode(&mut value);
            controls.push(password_policy_response(&value));
            return;
        }
        if *response == PasswordPolicyResponse::default() {
            return;
        }
        let sends_controls = self.service.directory.ask_settings(|settings| {
            let overlay = settings.password_policy.as_ref();
            overlay.is_some_and(|overlay| overlay.send_netscape_controls)
        });
        if !sends_controls.unwrap_or_default() {
            return;
        }
        let is_over = response.error.is_some()
            || matches!(
                response.warning,
                Some(PasswordPolicyWarning::GraceAuthNsRemaining(_))
            );
        let (oid, value) = match response.warning {
            _ if is_over => (PASSWORD_EXPIRED, "0".to_owned()),
            Some(PasswordPolicyWarning::TimeBeforeExpiration(seconds)) if seconds > 0 => {
                (PASSWORD_EXPIRING, seconds.to_string())
            }
            _ => return,
        };
        controls.push(Control {
            oid,
            critical: false,
            value: Some(value.as_bytes()),
        });
    }

    /// What comes of a bind with the right password, at once or when it is durable. When something is not here that is
    /// read for it, it does not count.
    pub(super) fn right_password(
        &mut self,
        id: u32,
        identity: Identity,
        told: Option<Vec<u8>>,
        failure: (Instant, Claim),
    ) -> Result<Begun, Outcome> {
        let verdict = match identity {
            Identity::User { entry, .. } => self.read(|snapshot| snapshot.bind_succeeded(entry))?,
            _ => BindVerdict::default(),
        };
        Ok(self.judged_right(id, (identity, told, verdict), failure))
    }

    /// The same when policies have judged it.
    pub(super) fn judged_right(
        &mut self,
        id: u32,
        (identity, told, mut verdict): (Identity, Option<Vec<u8>>, BindVerdict),
        (failure, claim): (Instant, Claim),
    ) -> Begun {
        if verdict.is_refused {
            if !verdict.is_locked {
                return Begun::Refused(verdict.response);
            }
            // Others have locked it meanwhile: it is as if that had been before.
            self.fail_at(failure, claim, verdict.response);
            return Begun::Waits;
        }
        match (verdict.change.take(), &identity) {
            (Some(change), Identity::User { entry, .. }) => {
                let entry = *entry;
                let end = BindEnd::Bound {
                    identity,
                    told,
                    verdict,
                };
                self.change_account(id, entry, change, end);
                Begun::Waits
            }
            _ => Begun::Bound {
                identity,
                told,
                verdict,
            },
        }
    }

    /// Has a bind with a wrong password fail when others would, and what policies keep of it be durable before. When
    /// something is not here that is read for it, it does not count.
    pub(super) fn wrong_password(
        &mut self,
        id: u32,
        entry: Option<EntryId>,
        failure: (Instant, Claim),
    ) -> Result<Begun, Outcome> {
        let judged = match entry {
            Some(entry) => Some((entry, self.read(|snapshot| snapshot.bind_failed(entry))?)),
            None => None,
        };
        Ok(self.judged_wrong(id, judged, failure))
    }

    /// The same when policies have judged it.
    pub(super) fn judged_wrong(
        &mut self,
        id: u32,
        judged: Option<(EntryId, BindFailure)>,
        (failure, claim): (Instant, Claim),
    ) -> Begun {
        let (entry, judged) = judged.unwrap_or_default();
        match judged.change {
            Some(change) => {
                let end = BindEnd::Failed { at: failure, claim };
                self.change_account(id, entry, change, end);
            }
            None => self.fail_at(failure, claim, judged.response),
        }
        Begun::Waits
    }

    /// Changes what is stored with an entry, for the server itself. The bind ends when that is durable.
    pub(super) fn change_account(
        &mut self,
        id: u32,
        entry: EntryId,
        change: AccountChange,
        end: BindEnd,
    ) {
        let request = UpdateRequest::Account { entry, change };
        let requester: Arc<Requester> =
            Requester::administrator(self.settings.config.admin.dn.clone());
        let mut unit = Unit::default();
        unit.shards.push(self.service.directory.shards(&request));
        unit.updates.push(Update { requester, request });
        let kind = ReplyKind::Bind(Box::new(end));
        unit.replies.push(Reply::new(id, kind));
        self.output.answers_due += 1;
        self.submit(unit);
        self.operations.exclusive = Some(id);
    }

    /// What a bind has waited for is durable, or refused.
    pub(super) fn bind_ends(&mut self, id: u32, end: BindEnd, outcome: Outcome) {
        match end {
            // The lock holds in memory if it could not be stored.
            BindEnd::Failed { at, claim } => {
                self.fail_at(at, claim, PasswordPolicyResponse::default());
                self.operations.exclusive = Some(id);
            }
            // It holds in the form that it was in if it could not be stored.
            BindEnd::StoredAnew {
                identity,
                verdict,
                failure,
            } => {
                self.operations.exclusive = None;
                let begun = self.judged_right(id, (identity, None, verdict), failure);
                self.go_on_binding(id, Ok(begun));
            }
            BindEnd::SecondFactor(check) => self.second_factor_used(id, check, &outcome),
            BindEnd::Bound {
                identity,
                told,
                verdict,
            } => {
                self.operations.exclusive = None;
                match outcome.code {
                    ResultCode::Success => self.bound(id, identity, told, &verdict),
                    // Another bind has used the last login that was left.
                    ResultCode::InvalidCredentials => self.refuse_bind(
                        id,
                        &PasswordPolicyResponse {
                            error: Some(PasswordPolicyError::PasswordExpired),
                            warning: None,
                        },
                    ),
                    _ => self.answer(id, Operation::Bind, &outcome),
                }
            }
        }
    }

    /// Answers a bind that is refused, and says why if the client asks.
    pub(super) fn refuse_bind(&mut self, id: u32, response: &PasswordPolicyResponse) {
        let mut outcome = wrong();
        let mut controls = ControlsBuf::default();
        self.put_policy(response, &mut controls);
        outcome.controls = controls.view().as_ber().to_vec();
        self.answer(id, Operation::Bind, &outcome);
    }
}

/// Whether a request is one that is allowed before the password is changed.
pub(super) fn changes_password_only(op: &Request<'_>) -> bool {
    match op {
        Request::Bind(_) | Request::Unbind | Request::Abandon(_) => true,
        Request::Extended(request) => {
            [PASSWORD_MODIFY, START_TLS, WHO_AM_I, CANCEL].contains(&request.name)
        }
        Request::Modify(request) => {
            let mut changes = request.changes.iter();
            changes.all(|change| is_password(change.attribute.description))
        }
        _ => false,
    }
}

/// What policies say of a password that a hasher has found to be right, or wrong. Waits for what is not here.
pub(super) fn judge<E: Engine>(
    directory: &Directory<E>,
    entry: EntryId,
    identity: Option<(Identity, ActsAs)>,
) -> Result<Verdict, Error> {
    let snapshot = directory.snapshot()?;
    match identity {
        Some((identity, acts_as)) => {
            let verdict = snapshot.through(|snapshot| snapshot.bind_succeeded(entry))?;
            Ok(Verdict::Bound(identity, acts_as, verdict))
        }
        None => {
            let failure = snapshot.through(|snapshot| snapshot.bind_failed(entry))?;
            Ok(Verdict::Wrong(Some((entry, failure))))
        }
    }
}

/// The change of a password that an update is, as policies see it; none where none governs it. Waits for what is not
/// here.
pub(super) fn governed<E: Engine>(
    directory: &Directory<E>,
    requester: &Arc<Requester>,
    request: &UpdateRequest,
    values_max: usize,
) -> Result<Option<PasswordChange>, Error> {
    let UpdateRequest::Message(bytes) = request else {
        return Ok(None);
    };
    // What cannot be decoded is refused when it is applied.
    let Ok(message) = RequestMessage::decode(bytes) else {
        return Ok(None);
    };
    directory.snapshot()?.through(|snapshot| {
        let (dn, policy) = match &message.op {
            Request::Modify(request) => {
                let mut rights = Rights::NONE;
                for change in request.changes {
                    if is_password(change.attribute.description) {
                        rights = rights | Rights::of_change(change.kind);
                    }
                }
                // Nothing is compared for who may not change the password: the answer would tell them whether they have
                // guessed it. It is as if the entry were not there, until the writer refuses the change.
                if let Some(found) = snapshot.credentials(request.dn, values_max)?
                    && snapshot.may_change_password(requester, found.entry, rights)? == Some(true)
                {
                    return snapshot.password_change(requester, found.entry, found.stored);
                }
                (request.dn, None)
            }
            Request::Add(request) => {
                let mut attributes = request.attributes.iter();
                let named = attributes.find(|attribute| {
                    let description = attribute.description;
                    description.eq_ignore_ascii_case(b"pwdPolicySubentry")
                });
                let named = named.and_then(|attribute| attribute.values.iter().next());
                let named = named.map(|dn| String::from_utf8_lossy(dn).into_owned());
                (request.dn, named)
            }
            _ => return Ok(None),
        };
        // It may be added in the same transaction: what is above it says where it is going to be.
        let request_dn = dn;
        let mut above = Dn::parse(dn).ok().and_then(Dn::parent);
        while let Some(dn) = above {
            if let Some(found) = snapshot.credentials(dn.as_str(), 0)? {
                let place = (request_dn, found.entry);
                return snapshot.password_of_new(requester, place, policy);
            }
            above = dn.parent();
        }
        Ok(None)
    })
}
