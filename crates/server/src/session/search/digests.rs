//! Searches that tell digests of what they find, by which copies are compared.

use std::sync::Arc;

use sapwood_directory::engine::Engine;
use sapwood_directory::{Digests, Outcome, Requester};
use sapwood_ldap::controls::{ContentDigests, RequestControls};
use sapwood_ldap::message::{Operation, SearchRequest};
use sapwood_ldap::result::ResultCode;

use super::{LONG_REQUEST_BYTES, Reading, UnderWay, is_sorted, items_besides};
use crate::session::{Burst, Reader, Session};

impl<E: Engine> Session<E> {
    /// Begins one; `false` when there is no memory for it yet, or it has to wait for what is not here.
    #[cold]
    pub(super) fn tell_digests(
        &mut self,
        id: u32,
        (request, bytes, controls): (&SearchRequest<'_>, &[u8], &RequestControls<'_>),
        wanted: &ContentDigests<'_>,
        by: &Arc<Requester>,
        burst: &mut Burst<'_, E>,
    ) -> bool {
        if let Some(outcome) = refused(bytes.len(), controls) {
            self.answer(id, Operation::Search, &outcome);
            return true;
        }
        let items = || request.filter.items() + items_besides(controls);
        let Some(share) = self.share_of_reading(bytes.len(), Digests::<E>::BYTES_MAX, items) else {
            return false;
        };
        let begun = burst.snapshot(self).cloned().and_then(|snapshot| {
            let limits = self.limits(&snapshot, by)?;
            let asked = (request.size_limit, request.time_limit);
            let options = self.search_options(controls, limits, asked);
            Ok(Digests::new(snapshot, by, request, options, wanted))
        });
        if self.waits_for_fetch(Reader::Request) {
            return false;
        }
        self.log_search(id, request);
        match begun {
            Ok(digests) => {
                let reading = Reading::Digests(Box::new(digests));
                self.step(UnderWay::new(id, Operation::Search, reading, share));
                self.operations.searches.keep_request(id, bytes);
            }
            Err(outcome) => self.answer(id, Operation::Search, &outcome),
        }
        true
    }
}

/// Why there is to be none.
fn refused(request_bytes: usize, controls: &RequestControls<'_>) -> Option<Outcome> {
    if is_sorted(controls) || controls.paged_results.is_some() {
        let diagnostic = "digests of entries have no order and no pages";
        return Some(Outcome::new(ResultCode::UnwillingToPerform, diagnostic));
    }
    (request_bytes > LONG_REQUEST_BYTES).then(|| {
        let diagnostic = format!("digests may be asked for in at most {LONG_REQUEST_BYTES} bytes");
        Outcome::new(ResultCode::AdminLimitExceeded, diagnostic)
    })
}
