//! Password Modify (RFC 3062).

use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::sync::Arc;

use sapwood_directory::engine::Engine;
use sapwood_directory::{
    Credentials, EntryId, Identity, Outcome, PasswordChange, PasswordHasher as _, Requester,
    UpdateRequest,
};
use sapwood_ldap::controls::{ControlSet, KnownControl, RequestControls};
use sapwood_ldap::extended::{PASSWORD_MODIFY, PasswordModify, put_generated_password};
use sapwood_ldap::result::ResultCode;

use super::ExtendedOperation;
use crate::memory::Share;
use crate::password::{
    self, PASSWORD_BYTES_MAX, Password, PasswordError, Verified, Verifier, Work,
};
use crate::session::bind::stopped;
use crate::session::reply::{Reply, ReplyKind};
use crate::session::{Completion, Hashed, Session};
use crate::workers::Turn;

pub(super) const fn operations<E: Engine>() -> &'static [ExtendedOperation<E>] {
    const {
        &[ExtendedOperation {
            oid: PASSWORD_MODIFY,
            response: None,
            works_on: |_| true,
            needs: None,
            is_exclusive: true,
            takes: ControlSet::EMPTY
                .with(KnownControl::TransactionSpecification)
                .with(KnownControl::NonTransactional)
                .with(KnownControl::EagerTransaction)
                .with(KnownControl::ProxiedAuthorization)
                .with(KnownControl::PasswordValidationDetails),
            run: |session, call| {
                if let Err(outcome) =
                    session.password_modify(call.id, call.value, (call.controls, call.by))
                {
                    session.answer_extended(call.id, &outcome, None, None);
                }
                true
            },
        }]
    }
}

impl<E: Engine> Session<E> {
    pub(in crate::session) fn answer_password_modify(
        &mut self,
        id: u32,
        generated: Option<Password>,
        outcome: &Outcome,
    ) {
        let mut value = Vec::new();
        if let (Some(generated), ResultCode::Success) = (&generated, outcome.code) {
            put_generated_password(&mut value, generated);
        }
        self.answer_extended(
            id,
            outcome,
            None,
            (!value.is_empty()).then_some(value.as_slice()),
        );
        zeroize::Zeroize::zeroize(&mut value);
    }

    /// The entry with this DN, or this one whatever it is called now, if who asks may know of it and set its password.
    /// That is judged again when the update is applied; here it keeps the hasher from working for who may not.
    fn changeable_credentials(
        &self,
        by: &Arc<Requester>,
        own: Option<EntryId>,
        dn: &str,
    ) -> Result<Option<Credentials>, Outcome> {
        let values_max = self.settings.config.limits.password_values_max;
        let found = self.read(|snapshot| {
            let now = own
                .map(|entry| snapshot.dn_of(entry))
                .transpose()?
                .flatten();
            let found = snapshot.credentials(now.as_deref().unwrap_or(dn), values_max)?;
            // Another entry may have its name by now.
            let Some(found) = found.filter(|found| own.is_none_or(|own| own == found.entry)) else {
                return Ok(None);
            };
            let may_set = snapshot.may_set_password(by, &found)?;
            Ok(may_set.map(|may_set| (found, may_set)))
        })?;
        match found {
            Some((found, true)) => Ok(Some(found)),
            Some((_, false)) => Err(Outcome::new(
                ResultCode::InsufficientAccessRights,
                "the access rules do not let you change the password of this entry",
            )),
            None => Ok(None),
        }
    }

    /// The change of the password of an entry, as policies see it; none where none governs it.
    fn governed_change(
        &self,
        by: &Arc<Requester>,
        entry: EntryId,
        stored: Vec<Vec<u8>>,
    ) -> Result<Option<PasswordChange>, Outcome> {
        self.read(|snapshot| snapshot.password_change(by, entry, stored))
    }

    /// Checks what can be checked at once and leaves the rest to a hasher: the old password, then the new hash.
    fn password_modify(
        &mut self,
        id: u32,
        value: Option<&[u8]>,
        (controls, by): (&RequestControls<'_>, &Arc<Requester>),
    ) -> Result<(), Outcome> {
        let request = PasswordModify::decode(value).map_err(|error| {
            Outcome::new(
                ResultCode::ProtocolError,
                format!("Password Modify: {error}"),
            )
        })?;
        self.require_confidentiality()?;
        let transaction = self.transaction_of(controls, by)?;
        let by = match transaction {
            Some(at) => self.transaction_by((id, at), by),
            None => by.clone(),
        };
        if *by.identity() == Identity::Anonymous {
            return Err(Outcome::new(
                ResultCode::StrongerAuthRequired,
                "bind before changing a password",
            ));
        }
        let own = match (request.user_identity, by.identity()) {
            (None, Identity::User { entry, .. }) => Some(*entry),
            _ => None,
        };
        let target = match request.user_identity {
            None => by.identity().dn().to_owned(),
            Some(identity) => {
                let identity = std::str::from_utf8(identity).map_err(|_| {
                    Outcome::new(
                        ResultCode::InvalidDnSyntax,
                        "the user identity is not UTF-8",
                    )
                })?;
                identity.strip_prefix("dn:").unwrap_or(identity).to_owned()
            }
        };
        let (dn, stored_before, entry) = match self.changeable_credentials(&by, own, &target)? {
            Some(found) => (found.dn, found.stored, Some(found.entry)),
            None if self
                .settings
                .is_admin(&self.service.directory.schema(), &target) =>
            {
                let reason =
                    "the administrator's password is set with 'sapwood passwd DIR' on the server";
                return Err(Outcome::new(ResultCode::UnwillingToPerform, reason));
            }
            // The entry may be one that the transaction adds; it has no password yet that could be checked.
            None if transaction.is_some()
                && request.old_password.is_none()
                && matches!(by.identity(), Identity::Admin { .. }) =>
            {
                (target, Vec::new(), None)
            }
            None => {
                return Err(Outcome::new(
                    ResultCode::NoSuchObject,
                    "no entry has this user identity as its DN",
                ));
            }
        };
        let too_long = |password: Option<&[u8]>| {
            password.is_some_and(|password| password.len() > PASSWORD_BYTES_MAX)
        };
        if let Some(new) = request.new_password {
            let refused = |error: PasswordError| {
                Outcome::new(ResultCode::ConstraintViolation, error.to_string())
            };
            password::check_new(new).map_err(refused)?;
        }
        if request.new_password == Some(b"")
            || too_long(request.new_password)
            || too_long(request.old_password)
        {
            let reason = format!("a password has 1 to {PASSWORD_BYTES_MAX} bytes");
            return Err(Outcome::new(ResultCode::ConstraintViolation, reason));
        }
        let old = request.old_password.map(|old| Password::new(old.to_vec()));
        let governed = match entry {
            Some(entry) => self.governed_change(&by, entry, stored_before.clone())?,
            None => None,
        };
        let (new, generated) = match request.new_password {
            Some(new) => (Password::new(new.to_vec()), None),
            None => {
                let usual = password::GENERATED_CHARACTERS;
                let length = governed
                    .as_ref()
                    .map(|change| change.generated_length(usual));
                let new = password::generate_of(length.unwrap_or(usual));
                (new.clone(), Some(new))
            }
        };
        let mut used = VecDeque::new();
        if let Some(change) = &governed {
            change.check(old.is_some())?;
            used.extend(change.used().into_iter().map(<[u8]>::to_vec));
        }
        let reply = Reply::new(id, ReplyKind::PasswordModify(generated));
        let transaction = transaction.map(|at| self.transaction_identifier(at));
        let limits = self.settings.config.limits.passwords();
        let stored = stored_before.iter().map(Vec::as_slice);
        let hasher = self.hasher();
        let mut verifier = old.map(|old| Verifier::new(&old, stored, limits));
        let work = verifier.as_ref().map_or(Work::default(), Verifier::work);
        let work = work.and(password::hash_work().times(used.len() as u64));
        let work = work.and(hasher.work());
        let mut waits = Some((dn, reply, by, transaction));
        let mut judged = governed;
        let session = self.completions.clone();
        let (wants_details, mut details) = (controls.password_validation_details.is_some(), None);
        // What the old password matches must still be there when the update is applied.
        let mut replaces = None;
        let job = move |turn| {
            let request = match turn {
                Turn::Stop => Err(stopped()),
                Turn::Step => match verifier.as_mut().map(Verifier::step) {
                    Some(Verified::More) => return ControlFlow::Continue(()),
                    Some(Verified::Matches(at)) => {
                        replaces = stored_before.get(at).cloned();
                        verifier = None;
                        // The new one is hashed in a turn of its own.
                        return ControlFlow::Continue(());
                    }
                    // No other program is asked here.
                    Some(Verified::Differs | Verified::Unknown) => {
                        let reason = "the old password is not the current one";
                        Err(Outcome::new(ResultCode::InvalidCredentials, reason))
                    }
                    None => match judged.take().map(|change| {
                        details = wants_details.then(|| change.details(&new, &hasher));
                        change.check_new(&new, &hasher)
                    }) {
                        Some(Err(outcome)) => Err(outcome),
                        _ => match used.pop_front() {
                            Some(used) if hasher.matches(&new, &used) => {
                                Err(PasswordChange::in_history())
                            }
                            Some(_) => return ControlFlow::Continue(()),
                            None => Ok((
                                password::hash(&new),
                                password::verifiers(&new, hasher.schemes),
                            )),
                        },
                    },
                },
            };
            if let Some((dn, reply, by, transaction)) = waits.take() {
                let request = request.map(|(stored, verifiers)| UpdateRequest::SetPassword {
                    entry: own,
                    dn,
                    stored,
                    verifiers,
                    replaces: replaces.take(),
                });
                let _ = session.send(Completion::Hashed(Box::new(Hashed {
                    request,
                    details: details.take(),
                    by,
                    reply,
                    transaction,
                    share: Share::default(),
                })));
            }
            ControlFlow::Break(())
        };
        self.have_hashed(id, work, job);
        Ok(())
    }
}
