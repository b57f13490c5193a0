//! Password policies in a session: the results and controls of binds, and the requests that are allowed until the user
//! has changed the password.

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
    PasswordPolicyResponse, PasswordPolicyWarning, PasswordValidation, PasswordValidationDetails,
    password_policy_response,
};
use sapwood_ldap::dn::Dn;
use sapwood_ldap::extended::{CANCEL, PASSWORD_MODIFY, START_TLS, WHO_AM_I};
use sapwood_ldap::message::{Request, RequestMessage};
use sapwood_ldap::result::ResultCode;

use super::Session;
use super::bind::{Authorization, Begun, BindEnd, Verdict, wrong};
use super::reply::{Reply, ReplyKind, Unit};
use super::update::is_password;
use crate::workers::Claim;

/// The answer to a request that is not allowed until the password is changed.
pub(super) fn must_change() -> Outcome {
    let reason = "change your password first: until then nothing else is allowed but to bind, StartTLS, and to unbind";
    Outcome {
        password_policy: Some(PasswordPolicyError::ChangeAfterReset),
        ..Outcome::new(ResultCode::InsufficientAccessRights, reason)
    }
}

impl<E: Engine> Session<E> {
    /// Whether password policies are configured.
    pub(super) fn has_policies(&self) -> bool {
        // If no snapshot can be had, the request fails later.
        let has = self.service.directory.has_password_policies();
        has.unwrap_or_default()
    }

    /// Refuses the request if the user must still change the password. The password may have been changed since the
    /// bind.
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

    /// Appends the controls of a bind to which a policy applies.
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

    /// Ends a bind with the right password, now or when its changes are durable. If data for that are not here, the
    /// bind starts over when they have been fetched.
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

    /// The same with the verdict of the policy.
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
            // Another bind has locked the account meanwhile: fail as if the lock had come first.
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

    /// Ends a bind with a wrong password. It fails at the time at which all failing binds of this claim do, and after
    /// the policy's record of it is durable. If data for that are not here, it starts over when they have been fetched.
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

    /// The same with the verdict of the policy.
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

    /// Sends an update of an account in the server's own name. The bind ends when the update is durable.
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

    /// Ends a bind whose update is durable, or was refused.
    pub(super) fn bind_ends(&mut self, id: u32, end: BindEnd, outcome: Outcome) {
        match end {
            // A lock that could not be stored still holds in memory.
            BindEnd::Failed { at, claim } => {
                self.fail_at(at, claim, PasswordPolicyResponse::default());
                self.operations.exclusive = Some(id);
            }
            // If the new form of the password could not be stored, the old one stays.
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
                    // Another bind has used the last grace login.
                    ResultCode::InvalidCredentials => self.refuse_bind(
                        id,
                        &PasswordPolicyResponse {
                            error: Some(PasswordPolicyError::PasswordExpired),
                            warning: None,
                        },
                    ),
                    _ => self.answer_bind(id, &outcome),
                }
            }
        }
    }

    /// Refuses a bind. The client learns why if it has sent the control of password policies.
    pub(super) fn refuse_bind(&mut self, id: u32, response: &PasswordPolicyResponse) {
        let mut outcome = wrong();
        let mut controls = ControlsBuf::default();
        self.put_policy(response, &mut controls);
        outcome.controls = controls.view().as_ber().to_vec();
        self.answer_bind(id, &outcome);
    }
}

/// The details of a password that nobody has looked at.
pub(super) fn not_validated(validation: PasswordValidation) -> PasswordValidationDetails {
    PasswordValidationDetails {
        validation,
        misses_current: false,
        must_change: false,
        expires_in: None,
    }
}

/// What is told of the details of a password whose change comes to this: who has not shown that they know the old one
/// learns nothing of what is asked of a new one.
pub(super) fn told(
    details: PasswordValidationDetails,
    outcome: Option<&Outcome>,
) -> PasswordValidationDetails {
    use PasswordPolicyError::{
        InsufficientPasswordQuality, MustSupplyOldPassword, PasswordInHistory, PasswordTooLong,
        PasswordTooShort,
    };
    match outcome.map(|outcome| outcome.password_policy) {
        None
        | Some(Some(
            InsufficientPasswordQuality | PasswordInHistory | PasswordTooLong | PasswordTooShort,
        )) => details,
        Some(error) => PasswordValidationDetails {
            misses_current: error == Some(MustSupplyOldPassword),
            ..not_validated(PasswordValidation::NotAttempted)
        },
    }
}

/// Whether a request is allowed before the password is changed.
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

/// The verdict of the policy on a password that a hasher has found right or wrong. Blocks while data are fetched.
pub(super) fn judge<E: Engine>(
    directory: &Directory<E>,
    entry: EntryId,
    identity: Option<(Identity, Authorization)>,
) -> Result<Verdict, Error> {
    let snapshot = directory.snapshot()?;
    match identity {
        Some((identity, authorization)) => {
            let verdict = snapshot.through(|snapshot| snapshot.bind_succeeded(entry))?;
            Ok(Verdict::Bound(identity, authorization, verdict))
        }
        None => {
            let failure = snapshot.through(|snapshot| snapshot.bind_failed(entry))?;
            Ok(Verdict::Wrong(Some((entry, failure))))
        }
    }
}

/// The password change in an update, if a policy governs it. Blocks while data are fetched.
pub(super) fn governed<E: Engine>(
    directory: &Directory<E>,
    requester: &Arc<Requester>,
    request: &UpdateRequest,
    values_max: usize,
) -> Result<Option<PasswordChange>, Error> {
    let UpdateRequest::Message(bytes) = request else {
        return Ok(None);
    };
    // The writer refuses a message that cannot be decoded.
    let Ok(message) = RequestMessage::decode(bytes) else {
        return Ok(None);
    };
    directory.snapshot()?.through(|snapshot| {
        let (dn, policy) = match &message.op {
            Request::Modify(request) => {
                let mut rights = Rights::NONE;
                for change in request.changes {
                    if is_password(change.attribute.description) {
                        let has_values = !change.attribute.values.is_empty();
                        rights = rights | Rights::of_change(change.kind, has_values);
                    }
                }
                // For a requester who may not change the password nothing is compared: the answer would tell whether
                // they have guessed it. The entry counts as missing here, and the writer refuses the change.
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
        // The entry may be added in the same transaction. The policy then follows from the entries above it.
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
