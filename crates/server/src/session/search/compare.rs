//! Compare: one reading of one entry, begun, charged and stepped as searches are.

use std::sync::Arc;

use sapwood_directory::engine::Engine;
use sapwood_directory::{Compare, CompareOptions, Requester, Snapshot};
use sapwood_ldap::controls::RequestControls;
use sapwood_ldap::message::{CompareRequest, Operation, RequestMessage};

use super::{LONG_REQUEST_BYTES, Reading, UnderWay, deadline_micros, items_besides};
use crate::session::log::{self, LoggedName};
use crate::session::{Burst, Reader, Session};

impl<E: Engine> Session<E> {
    /// `false` when there is no memory for the compare yet.
    pub(in crate::session) fn compare(
        &mut self,
        message: &RequestMessage<'_>,
        request: &CompareRequest<'_>,
        controls: &RequestControls<'_>,
        by: &Arc<Requester>,
        bytes: &[u8],
        burst: &mut Burst<'_, E>,
    ) -> bool {
        let id = message.id;
        let items = || 1 + items_besides(controls);
        let Some(share) = self.share_of_reading(bytes.len(), 0, items) else {
            return false;
        };
        if self.settings.config.log.access {
            let schema = &self.service.directory.schema();
            let attribute = log::description(schema, request.assertion.attribute);
            let dn = LoggedName::dn(schema, request.dn);
            tracing::info!(target: "access", conn = self.context.number, id, %dn, attribute, "compare");
        }
        if bytes.len() > LONG_REQUEST_BYTES {
            return self.prepare(bytes, message, (controls, by), share, burst);
        }
        let compare = burst.snapshot(self).cloned();
        let compare = compare.and_then(|snapshot| {
            let options = CompareOptions {
                channel: self.context.channel,
                manage_dsa_it: controls.manage_dsa_it.is_some(),
                assertion: controls.assertion,
                deadline_micros: deadline_micros(self.limits(&snapshot, by)?, 0),
            };
            Ok(begin_compare(snapshot, by, request, options))
        });
        if self.waits_for_fetch(Reader::Request) {
            return false;
        }
        match compare {
            Ok(compare) => {
                let reading = Reading::Compare(compare);
                self.step(UnderWay::new(id, Operation::Compare, reading, share));
            }
            Err(outcome) => self.answer(id, Operation::Compare, &outcome),
        }
        true
    }
}

/// Begins a compare.
pub(in crate::session) fn begin_compare<E: Engine>(
    snapshot: Snapshot<E>,
    requester: &Arc<Requester>,
    request: &CompareRequest<'_>,
    options: CompareOptions<'_>,
) -> Compare<E> {
    let asserted = &request.assertion;
    Compare::new(
        snapshot,
        requester,
        request.dn,
        asserted.attribute,
        asserted.value,
        options,
    )
}
