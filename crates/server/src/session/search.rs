//! Search and compare: the reads of a burst, and the searches that go on after it.

use std::collections::VecDeque;

use sapwood_directory::{
    Budget, Clock, CompareOptions, Identity, Outcome, Search, SearchOptions, Step, SystemClock,
};
use sapwood_ldap::control::{self, Control, Controls, PagedResults, assertion_filter};
use sapwood_ldap::filter::Filter;
use sapwood_ldap::message::{CompareRequest, Operation, SearchRequest};
use sapwood_ldap::result::ResultCode;

use super::{Burst, Session};
use crate::writer::refusal;

/// Searches of one connection that are under way at once; requests behind them wait.
const SEARCHES_MAX: usize = 32;
/// Entries that a search looks at before another one, or another connection, has its turn: about a millisecond.
const STEP_ENTRIES: u32 = 500;

/// Searches that were not done with their first step. Each has a step in turn.
#[derive(Default)]
pub(super) struct Running {
    queue: VecDeque<(u32, Search)>,
}

impl Running {
    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    pub(super) fn is_full(&self) -> bool {
        self.queue.len() >= SEARCHES_MAX
    }

    /// Gives up the search with this message id, if there is one.
    pub(super) fn remove(&mut self, id: u32) {
        self.queue.retain(|(running, _)| *running != id);
    }

    pub(super) fn contains(&self, id: u32) -> bool {
        self.queue.iter().any(|(running, _)| *running == id)
    }

    pub(super) fn clear(&mut self) {
        self.queue.clear();
    }
}

impl Session {
    pub(super) fn search(
        &mut self,
        id: u32,
        request: &SearchRequest<'_>,
        controls: Controls<'_>,
        burst: &mut Burst,
    ) {
        self.log_search(id, request);
        match self.begin_search(id, request, controls, burst) {
            Ok(search) => self.step(id, search),
            Err(outcome) => self.answer(id, Operation::Search, &outcome),
        }
    }

    fn begin_search(
        &self,
        id: u32,
        request: &SearchRequest<'_>,
        controls: Controls<'_>,
        burst: &mut Burst,
    ) -> Result<Search, Outcome> {
        let mut options = SearchOptions {
            message_id: id,
            ..SearchOptions::default()
        };
        for control in controls.iter() {
            if control.oid == control::MANAGE_DSA_IT {
                options.manage_dsa_it = true;
            } else if control.oid == control::ASSERTION {
                options.assertion = Some(assertion(&control)?.to_buf());
            } else if control.oid == control::PAGED_RESULTS {
                let value = control.value.unwrap_or_default();
                let page = PagedResults::decode(value).map_err(|error| {
                    Outcome::new(
                        ResultCode::ProtocolError,
                        format!("paged results control: {error}"),
                    )
                })?;
                options.page = Some((page.size, page.cookie.to_vec()));
            }
        }
        if !matches!(self.identity, Identity::Admin { .. }) {
            let limits = &self.settings.config.limits;
            options.entries_max = limits.search_entries_max;
            if limits.search_seconds_max > 0 {
                let micros = u64::from(limits.search_seconds_max) * 1_000_000;
                options.deadline_micros = Some(SystemClock.now_micros() + micros);
            }
        }
        Ok(Search::new(
            burst.snapshot(&self.service)?,
            &self.identity,
            request,
            options,
        ))
    }

    /// Steps each search under way once, as long as there is room.
    pub(super) fn step_searches(&mut self) {
        for _ in 0..self.searches.queue.len() {
            if !self.has_room() {
                break;
            }
            if let Some((id, search)) = self.searches.queue.pop_front() {
                self.step(id, search);
            }
        }
    }

    fn step(&mut self, id: u32, mut search: Search) {
        let out_bytes = self.written + self.settings.config.limits.output_bytes_max;
        match search.step(
            &mut self.output,
            Budget {
                entries: STEP_ENTRIES,
                out_bytes,
            },
        ) {
            Ok(Step::More) => self.searches.queue.push_back((id, search)),
            Ok(Step::Done(outcome)) => self.answer(id, Operation::Search, &outcome),
            Err(error) => {
                tracing::error!(conn = self.number, id, "a search failed: {error}");
                self.answer(id, Operation::Search, &refusal(&error));
            }
        }
    }

    pub(super) fn compare(
        &mut self,
        id: u32,
        request: &CompareRequest<'_>,
        controls: Controls<'_>,
        burst: &mut Burst,
    ) {
        if self.settings.config.log.access {
            let attribute = String::from_utf8_lossy(request.assertion.attribute);
            tracing::info!(target: "access", conn = self.number, id, dn = request.dn, %attribute, "compare");
        }
        let outcome = self.compared(request, controls, burst);
        self.answer(
            id,
            Operation::Compare,
            &outcome.unwrap_or_else(|outcome| outcome),
        );
    }

    fn compared(
        &self,
        request: &CompareRequest<'_>,
        controls: Controls<'_>,
        burst: &mut Burst,
    ) -> Result<Outcome, Outcome> {
        let options = CompareOptions {
            manage_dsa_it: controls.find(control::MANAGE_DSA_IT).is_some(),
            assertion: controls
                .find(control::ASSERTION)
                .map(|control| assertion(&control))
                .transpose()?,
        };
        let asserted = &request.assertion;
        burst
            .snapshot(&self.service)?
            .compare(
                &self.identity,
                request.dn,
                asserted.attribute,
                asserted.value,
                options,
            )
            .map_err(|error| refusal(&error))
    }

    fn log_search(&self, id: u32, request: &SearchRequest<'_>) {
        if self.settings.config.log.access {
            let (base, scope, filter) = (request.base, request.scope.number(), request.filter);
            tracing::info!(target: "access", conn = self.number, id, base, scope, %filter, "search");
        }
    }
}

/// The filter of an assertion control (RFC 4528).
fn assertion<'m>(control: &Control<'m>) -> Result<Filter<'m>, Outcome> {
    assertion_filter(control.value.unwrap_or_default()).map_err(|error| {
        Outcome::new(
            ResultCode::ProtocolError,
            format!("assertion control: {error}"),
        )
    })
}
