//! Which controls a request takes on this connection, and what Get Server ID and the control of password policies add
//! to the answers. What other controls ask for stands with the operation: `RequestControls` says it decoded.

use std::borrow::Cow;

use sapwood_directory::Outcome;
use sapwood_directory::engine::Engine;
use sapwood_ldap::controls::{
    ControlSet, ControlsBuf, KnownControl, PasswordPolicyError, PasswordPolicyResponse,
    RequestControls, password_policy_response, server_id_response,
};
use sapwood_ldap::extended::START_TRANSACTION;
use sapwood_ldap::message::{Request, RequestMessage};

use super::Session;
use super::extended::ExtendedOperation;
use super::ids::Wish;

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
        RequestControls::read(message.controls.iter(), self.takes(&message.op, extended))
            .map_err(|refused| Outcome::new(refused.code(), refused.to_string()))
    }

    /// The controls that a request takes.
    fn takes(&self, op: &Request<'_>, extended: Option<&ExtendedOperation<E>>) -> ControlSet {
        let own = extended.map_or(ControlSet::EMPTY, |extended| extended.takes);
        let mut takes = ControlSet::of(op.operation()).or(own);
        let is_start = extended.is_some_and(|extended| extended.oid == START_TRANSACTION);
        if !is_start && !self.service.extensions.implicit_start {
            takes = takes.without(KnownControl::EagerTransaction);
        }
        takes.and(self.service.spoken)
    }

    /// Does what controls ask of the session, whatever the operation.
    pub(super) fn apply_controls(&mut self, id: u32, controls: &RequestControls<'_>) {
        if let Some(length) = controls.queue_length {
            self.output.queue_length = length;
        }
        let wish = Wish {
            name: controls.get_server_id.is_some(),
            policy: controls.password_policy.is_some(),
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
        error: Option<PasswordPolicyError>,
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
        Cow::Owned([own, controls.view().as_ber()].concat())
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
