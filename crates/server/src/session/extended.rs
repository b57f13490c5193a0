//! Extended operations (RFC 4511 §4.12): a file each, which says what the session has to know of it, and a line in the
//! table below. The root DSE is made from the table.

use std::borrow::Cow;
use std::sync::Arc;

use sapwood_directory::engine::Engine;
use sapwood_directory::{Channel, Needs, Outcome, Requester};
use sapwood_ldap::controls::{ControlSet, Controls, RequestControls};
use sapwood_ldap::message::{ExtendedRequest, ExtendedResponse, Message, Operation, Response};
use sapwood_ldap::result::{LdapResult, ResultCode};

use super::{Burst, Reader, Session, what_failed};

macro_rules! extended_operations {
    ($($file:ident)*) => {
        $(pub(super) mod $file;)*

        /// By file.
        const fn operations<E: Engine>() -> &'static [&'static [ExtendedOperation<E>]] {
            const { &[$($file::operations::<E>()),*] }
        }
    };
}

extended_operations! {
    acknowledge
    cancel
    lburp
    password_modify
    refresh
    replica
    start_tls
    transaction
    verify_credentials
    who_am_i
}

/// An extended operation.
pub(crate) struct ExtendedOperation<E: Engine> {
    /// The name of its requests.
    pub(crate) oid: &'static str,
    /// The name of its responses, where that is registered as what the root DSE has besides.
    pub(crate) response: Option<&'static str>,
    /// Whether it works on a connection: only there the root DSE has it.
    pub(crate) works_on: fn(Channel) -> bool,
    /// What has to be on for it to work.
    pub(crate) needs: Option<Needs>,
    /// Whether it must not overlap with others of its connection.
    pub(super) is_exclusive: bool,
    /// The controls that it takes besides those of all extended operations.
    pub(super) takes: ControlSet,
    /// Does it, or has it begun; `false` when it has to wait.
    run: for<'s> fn(&'s mut Session<E>, Call<'_, '_, '_, E>) -> bool,
}

/// A request for one.
struct Call<'m, 'b, 'i, E: Engine> {
    id: u32,
    oid: &'static str,
    value: Option<&'m [u8]>,
    controls: &'m RequestControls<'m>,
    /// For whom it is done.
    by: &'m Arc<Requester>,
    burst: &'b mut Burst<'i, E>,
}

/// All of them.
pub(crate) fn all<E: Engine>() -> impl Iterator<Item = &'static ExtendedOperation<E>> {
    operations::<E>().iter().copied().flatten()
}

/// The one with this name.
pub(super) fn find<E: Engine>(oid: &str) -> Option<&'static ExtendedOperation<E>> {
    all().find(|known| known.oid == oid)
}

impl<E: Engine> Session<E> {
    /// `false` when it has to wait.
    pub(super) fn extended(
        &mut self,
        id: u32,
        request: &ExtendedRequest<'_>,
        known: Option<&ExtendedOperation<E>>,
        (controls, by): (&RequestControls<'_>, &Arc<Requester>),
        burst: &mut Burst<'_, E>,
    ) -> bool {
        if self.kept_for(Reader::Request).is_none() {
            self.log_extended(id, request.name);
        }
        let Some(known) = known else {
            let reason = format!("the extended operation {} is not known", request.name);
            let mut outcome = Outcome::new(ResultCode::ProtocolError, reason);
            if controls.what_failed.is_some() {
                let failed = what_failed::told(std::iter::once(request.name));
                outcome.controls = failed.view().as_ber().to_vec();
            }
            self.answer_extended(id, &outcome, None, None);
            return true;
        };
        let call = Call {
            id,
            oid: known.oid,
            value: request.value,
            controls,
            by,
            burst,
        };
        (known.run)(self, call) && !self.waits_for_fetch(Reader::Request)
    }

    pub(super) fn log_extended(&self, id: u32, oid: &str) {
        if self.settings.config.log.access {
            tracing::info!(target: "access", conn = self.context.number, id, oid, "extended");
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
        if self.lacks() {
            return;
        }
        self.log_result(id, Operation::Extended, outcome);
        self.output.queue_length = self.output.queue_length.saturating_sub(1);
        let controls = self.response_controls(
            id,
            &outcome.controls,
            (outcome.code, outcome.password_policy),
        );
        let told = match outcome.code {
            ResultCode::Success => Cow::Borrowed(outcome),
            _ => self.fitting(outcome),
        };
        let result = LdapResult::new(told.code, &told.diagnostic).matched(&told.matched_dn);
        let op = Response::Extended(ExtendedResponse {
            result,
            name,
            value,
        });
        Message {
            id,
            op,
            controls: Controls::from_ber(&controls).unwrap_or_default(),
        }
        .encode(&mut self.output.bytes);
    }
}
