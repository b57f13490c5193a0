//! Verify Credentials (OpenLDAP's contrib/slapd-modules/vc): a simple bind that leaves the connection as it is.
//!
//! Whatever happens at a bind with a password happens here: policies, second factors, hashers, limits of failed binds
//! and the time of an answer that tells of a failure. Only the answer is another one.

use sapwood_directory::Outcome;
use sapwood_directory::engine::Engine;
use sapwood_ldap::controls::{ControlSet, Controls, KnownControl, RequestControls};
use sapwood_ldap::extended::{VERIFY_CREDENTIALS, VerifyCredentials, put_verified};
use sapwood_ldap::message::{Authentication, ExtendedResponse, Message, Operation, Response};
use sapwood_ldap::result::{LdapResult, ResultCode};

use super::{Call, ExtendedOperation};
use crate::session::bind::{Authorization, Begun};
use crate::session::{Reader, Session};

pub(super) const fn operations<E: Engine>() -> &'static [ExtendedOperation<E>] {
    const {
        &[ExtendedOperation {
            oid: VERIFY_CREDENTIALS,
            response: None,
            works_on: |_| true,
            needs: None,
            is_exclusive: true,
            takes: ControlSet::EMPTY,
            run: |session, call| session.verify_credentials(call),
        }]
    }
}

impl<E: Engine> Session<E> {
    /// `false` when it has to wait.
    fn verify_credentials(&mut self, call: Call<'_, '_, '_, E>) -> bool {
        let id = call.id;
        let read = VerifyCredentials::decode(call.value.unwrap_or_default());
        let asked = match read {
            Ok(asked) => asked,
            Err(error) => {
                let reason = format!("Verify Credentials: {error}");
                let outcome = Outcome::new(ResultCode::ProtocolError, reason);
                self.answer_extended(id, &outcome, None, None);
                return true;
            }
        };
        let takes = ControlSet::EMPTY.with(KnownControl::PasswordPolicy);
        let controls = RequestControls::read(asked.controls.iter(), takes)
            .map_err(|refused| Outcome::new(refused.code(), refused.to_string()));
        self.operations.verifies = true;
        self.operations.tells_identity = false;
        self.operations.tells_limits = false;
        self.operations.authorization = Authorization::default();
        self.operations.counted = None;
        let begun = controls.and_then(|controls| {
            self.operations.tells_policy =
                controls.password_policy.is_some() && self.has_policies();
            match asked.authentication {
                Authentication::Simple(password) => self.simple(id, asked.name, password),
                Authentication::Sasl { .. } => {
                    let reason = "only passwords are verified: a simple bind";
                    Err(Outcome::new(ResultCode::AuthMethodNotSupported, reason))
                }
            }
        });
        self.end_long_turn();
        if self.waits_for_fetch(Reader::Request) {
            self.uncount();
            self.operations.verifies = false;
            return false;
        }
        match begun {
            Ok(Begun::Waits) => self.operations.exclusive = Some(id),
            begun => self.go_on_binding(id, begun),
        }
        true
    }

    /// Answers a bind that is not to change the connection: that it was verified is a success, whatever has come out.
    pub(in crate::session) fn answer_verified(&mut self, id: u32, outcome: &Outcome) {
        self.log_result(id, Operation::Extended, outcome);
        self.output.queue_length = self.output.queue_length.saturating_sub(1);
        let controls = Controls::from_ber(&outcome.controls).unwrap_or_default();
        let mut value = Vec::new();
        put_verified(&mut value, outcome.code, &outcome.diagnostic, controls);
        let controls = self.response_controls(id, &[], (ResultCode::Success, None));
        Message {
            id,
            op: Response::Extended(ExtendedResponse {
                result: LdapResult::SUCCESS,
                name: None,
                value: Some(&value),
            }),
            controls: Controls::from_ber(&controls).unwrap_or_default(),
        }
        .encode(&mut self.output.bytes);
    }
}
