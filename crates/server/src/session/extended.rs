//! Extended operations: StartTLS, Who am I?, Cancel; [Password Modify](super::password_modify), [transactions](super::transaction) and
//! [bulk updates](super::lburp) have files of their own.

use sapwood_directory::{Identity, Outcome};
use sapwood_ldap::control::Controls;
use sapwood_ldap::extended as oids;
use sapwood_ldap::message::{ExtendedRequest, ExtendedResponse, Message, Operation, Response};
use sapwood_ldap::result::{LdapResult, ResultCode};

use super::{Burst, Peer, Session, Then};
use crate::writer::refusal;

impl Session {
    /// `false` when it has to wait.
    pub(super) fn extended(
        &mut self,
        id: u32,
        request: &ExtendedRequest<'_>,
        controls: Controls<'_>,
        burst: &mut Burst<'_>,
    ) -> bool {
        self.log_extended(id, request.name);
        match request.name {
            oids::START_TLS => self.start_tls(id, request.value),
            oids::WHO_AM_I => self.who_am_i(id, request.value, burst),
            oids::CANCEL => self.cancel(id, request.value),
            oids::PASSWORD_MODIFY => self.password_modify(id, request.value, controls),
            oids::START_TRANSACTION => self.start_transaction(id, request.value, controls),
            oids::END_TRANSACTION => self.end_transaction(id, request.value, controls, burst),
            oids::START_LBURP | oids::LBURP_UPDATE | oids::END_LBURP => {
                return self.lburp(id, request, burst);
            }
            oid => {
                let reason = format!("the extended operation {oid} is not known");
                self.answer_extended(
                    id,
                    &Outcome::new(ResultCode::ProtocolError, reason),
                    None,
                    None,
                );
            }
        }
        true
    }

    pub(super) fn log_extended(&self, id: u32, oid: &str) {
        if self.settings.config.log.access {
            tracing::info!(target: "access", conn = self.number, id, oid, "extended");
        }
    }

    /// Appends the ExtendedResponse.
    pub(super) fn answer_extended(
        &mut self,
        id: u32,
        outcome: &Outcome,
        name: Option<&str>,
        value: Option<&[u8]>,
    ) {
        self.log_result(id, Operation::Extended, outcome);
        self.queue_length = self.queue_length.saturating_sub(1);
        let result =
            LdapResult::new(outcome.code, &outcome.diagnostic).matched(&outcome.matched_dn);
        let op = Response::Extended(ExtendedResponse {
            result,
            name,
            value,
        });
        Message {
            id,
            op,
            controls: Controls::EMPTY,
        }
        .encode(&mut self.output);
    }

    /// RFC 4511 §4.14. Nothing else is under way: the request is exclusive.
    fn start_tls(&mut self, id: u32, value: Option<&[u8]>) {
        let outcome = if value.is_some() {
            Outcome::new(ResultCode::ProtocolError, "StartTLS has no value")
        } else if self.secure {
            Outcome::new(ResultCode::OperationsError, "TLS is established already")
        } else if !self.transactions.is_empty() {
            // RFC 5805 §3.5: a transaction keeps to one security context.
            let reason = "a transaction is open: end it first";
            Outcome::new(ResultCode::OperationsError, reason)
        } else if self.lburp.is_open() {
            let reason = "a bulk update is open: end it first";
            Outcome::new(ResultCode::OperationsError, reason)
        } else if matches!(self.peer, Peer::Local { .. }) {
            Outcome::new(
                ResultCode::UnwillingToPerform,
                "a local socket needs no TLS",
            )
        } else if self.service.tls.is_none() {
            Outcome::new(ResultCode::Unavailable, "this server has no certificate")
        } else {
            self.then = Then::StartTls;
            Outcome::SUCCESS
        };
        self.answer_extended(id, &outcome, Some(oids::START_TLS), None);
    }

    /// RFC 4532. A user is told the name that the entry has now.
    fn who_am_i(&mut self, id: u32, value: Option<&[u8]>, burst: &mut Burst<'_>) {
        if value.is_some() {
            let outcome = Outcome::new(ResultCode::ProtocolError, "Who am I? has no value");
            return self.answer_extended(id, &outcome, None, None);
        }
        let authorization = match &self.identity {
            Identity::Anonymous => Ok(String::new()),
            Identity::Admin { dn } => Ok(format!("dn:{dn}")),
            Identity::User { entry, dn } => burst.snapshot(self).and_then(|snapshot| {
                let now = snapshot.dn_of(*entry).map_err(|error| refusal(&error))?;
                Ok(format!("dn:{}", now.as_ref().unwrap_or(dn)))
            }),
        };
        let authorization = match authorization {
            Ok(authorization) => authorization,
            Err(outcome) => return self.answer_extended(id, &outcome, None, None),
        };
        self.answer_extended(id, &Outcome::SUCCESS, None, Some(authorization.as_bytes()));
    }

    /// RFC 3909. A search or compare is ended with `canceled`; an update that the writer has can no longer be stopped.
    fn cancel(&mut self, id: u32, value: Option<&[u8]>) {
        let target = match oids::cancel_id(value.unwrap_or_default()) {
            Ok(target) => target,
            Err(error) => {
                let outcome = Outcome::new(ResultCode::ProtocolError, format!("Cancel: {error}"));
                return self.answer_extended(id, &outcome, None, None);
            }
        };
        let outcome = if let Some(operation) = self.searches.remove(target) {
            return self.canceled(id, target, operation);
        } else if self.updating.contains(&target) {
            Outcome::new(ResultCode::TooLate, "the update is being applied")
        } else if self.lburp.keeps(target) {
            let reason = "a request of a bulk update has its place among others";
            Outcome::new(ResultCode::CannotCancel, reason)
        } else {
            let reason = format!("no operation {target} is under way");
            Outcome::new(ResultCode::NoSuchOperation, reason)
        };
        self.answer_extended(id, &outcome, None, None);
    }
}
