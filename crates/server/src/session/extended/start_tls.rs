//! StartTLS (RFC 4511 §4.14).

use sapwood_directory::Outcome;
use sapwood_directory::engine::Engine;
use sapwood_ldap::controls::ControlSet;
use sapwood_ldap::extended::START_TLS;
use sapwood_ldap::result::ResultCode;

use super::{Call, ExtendedOperation};
use crate::peer::Peer;
use crate::session::{Session, Then};

pub(super) const fn operations<E: Engine>() -> &'static [ExtendedOperation<E>] {
    const {
        &[ExtendedOperation {
            oid: START_TLS,
            response: None,
            works_on: |channel| channel.takes_tls,
            needs: None,
            is_exclusive: true,
            takes: ControlSet::EMPTY,
            run: |session, call| session.start_tls(&call),
        }]
    }
}

impl<E: Engine> Session<E> {
    /// Nothing else is under way: the request is exclusive.
    fn start_tls(&mut self, call: &Call<'_, '_, '_, E>) -> bool {
        let outcome = if call.value.is_some() {
            Outcome::new(ResultCode::ProtocolError, "StartTLS has no value")
        } else if self.context.channel.is_under_tls {
            Outcome::new(ResultCode::OperationsError, "TLS is established already")
        } else if self.operations.challenged.is_some() {
            let reason = "a SASL bind is under way: end it first (RFC 4511 §4.14.1)";
            Outcome::new(ResultCode::OperationsError, reason)
        } else if !self.operations.transactions.is_empty() {
            // RFC 5805 §3.5: a transaction keeps to one security context.
            let reason = "a transaction is open: end it first";
            Outcome::new(ResultCode::OperationsError, reason)
        } else if self.operations.lburp.is_open() {
            let reason = "a bulk update is open: end it first";
            Outcome::new(ResultCode::OperationsError, reason)
        } else if matches!(self.context.peer, Peer::Local { .. }) {
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
        self.answer_extended(call.id, &outcome, Some(START_TLS), None);
        true
    }
}
