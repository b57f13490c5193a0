//! Which controls a request takes on this connection, and what Get Server ID and the controls of passwords add
//! to the answers. What other controls ask for stands with the operation: `RequestControls` says it decoded.

use std::borrow::Cow;

use sapwood_directory::engine::Engine;
use sapwood_directory::{Extension, Outcome};
use sapwood_ldap::controls::{
    ControlSet, ControlsBuf, KnownControl, PasswordPolicyError, PasswordPolicyResponse,
    PasswordValidation, RequestControls, password_policy_response, password_validation_response,
    server_id_response,
};
use sapwood_ldap::extended::START_TRANSACTION;
use sapwood_ldap::message::{Request, RequestMessage};
use sapwood_ldap::result::ResultCode;

use super::extended::ExtendedOperation;
use super::ids::Wish;
use super::password_policy::not_validated;
use super::{Session, what_failed};
use crate::extensions;

impl<E: Engine> Session<E> {
    /// Reads the controls of a request (RFC 4511 §4.1.11). Unbind has no response and is done whatever they are
    /// (§4.3).
    #[cold]
    pub(super) fn read_controls<'m>(
        &self,
        message: &RequestMessage<'m>,
        extended: Option<&ExtendedOperation<E>>,
    ) -> Result<RequestControls<'m>, Outcome> {
        if matches!(message.op, Request::Unbind) {
            return Ok(RequestControls::NONE);
        }
        let own = extended.map_or(ControlSet::EMPTY, |extended| extended.takes);
        let takes = ControlSet::of(message.op.operation()).or(own);
        let is_start = extended.is_some_and(|extended| extended.oid == START_TRANSACTION);
        let mut failed = None;
        let read = RequestControls::read_if(message.controls.iter(), |control| {
            takes.has(control)
                && self.speaks(control, is_start).unwrap_or_else(|outcome| {
                    failed = Some(outcome);
                    false
                })
        });
        match (failed, read) {
            (Some(outcome), _) => Err(outcome),
            (None, read) => read.map_err(|refused| {
                let is_taken = |control| {
                    takes.has(control) && self.speaks(control, is_start).unwrap_or_default()
                };
                let told = what_failed::refused(message.controls, is_taken, refused);
                let mut outcome = Outcome::new(refused.code(), refused.to_string());
                outcome.controls = told.view().as_ber().to_vec();
                outcome
            }),
        }
    }

    /// Whether a control is spoken on this connection. Only for one that an extension has brought the settings of the
    /// data are looked at.
    fn speaks(&self, control: KnownControl, is_start: bool) -> Result<bool, Outcome> {
        let Some(extension) = extensions::of_control(control) else {
            return Ok(true);
        };
        match control {
            // As long as updates belong to a transaction by themselves, some can be kept out of it.
            KnownControl::NonTransactional if self.operations.transactions.take_all() => Ok(true),
            // Only where an update can start a transaction it can ask for an eager one.
            KnownControl::EagerTransaction if !is_start => Ok(self
                .has_extension(Extension::ImplicitStart)?
                && self.has_extension(extension)?),
            _ => self.has_extension(extension),
        }
    }

    /// Whether an extension of the protocol is on, as of the newest commit.
    pub(super) fn has_extension(&self, extension: Extension) -> Result<bool, Outcome> {
        let directory = &self.service.directory;
        let on = directory.ask_settings(|settings| settings.extensions.has(extension));
        on.map_err(|error| crate::writer::refusal(&error))
    }

    /// Does what controls ask of the session, whatever the operation.
    pub(super) fn apply_controls(&mut self, id: u32, controls: &RequestControls<'_>) {
        if let Some(length) = controls.queue_length {
            self.output.queue_length = length;
        }
        let wish = Wish {
            name: controls.get_server_id.is_some(),
            policy: controls.password_policy.is_some(),
            failed: match controls.what_failed {
                Some(()) => what_failed::suspects(controls),
                None => ControlSet::EMPTY,
            },
            validation: controls
                .password_validation_details
                .map(|()| Box::new(not_validated(PasswordValidation::NotAttempted))),
        };
        if wish != Wish::default() {
            self.operations.wishes.insert(id, wish);
        }
    }

    /// The controls of a response: its own, and what the request asked for besides.
    pub(super) fn response_controls<'o>(
        &mut self,
        id: u32,
        own: &'o [u8],
        (code, error): (ResultCode, Option<PasswordPolicyError>),
    ) -> Cow<'o, [u8]> {
        if self.operations.wishes.is_empty() {
            return Cow::Borrowed(own);
        }
        let Some(wish) = self.operations.wishes.remove(&id) else {
            return Cow::Borrowed(own);
        };
        let mut controls = match wish.name {
            true => self.server_id(),
            false => ControlsBuf::default(),
        };
        if let Some(error) = error.filter(|_| wish.policy) {
            let mut value = Vec::new();
            let response = PasswordPolicyResponse {
                error: Some(error),
                warning: None,
            };
            response.encode(&mut value);
            controls.push(password_policy_response(&value));
        }
        if let Some(details) = wish.validation {
            let mut value = Vec::new();
            details.encode(&mut value);
            controls.push(password_validation_response(&value));
        }
        let failed = what_failed::told(what_failed::culprit(code, wish.failed).into_iter());
        Cow::Owned([own, controls.view().as_ber(), failed.view().as_ber()].concat())
    }

    /// What the entries and references of a search carry.
    pub(super) fn entry_controls(&self, controls: &RequestControls<'_>) -> ControlsBuf {
        match controls.get_server_id {
            Some(_) => self.server_id(),
            None => ControlsBuf::default(),
        }
    }

    fn server_id(&self) -> ControlsBuf {
        let mut controls = ControlsBuf::default();
        controls.push(server_id_response(&self.service.name));
        controls
    }
}
