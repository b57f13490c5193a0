//! Search and compare: the reads of a burst, and the searches that go on after it.

use std::collections::VecDeque;

use sapwood_directory::schema::EXPANSION_MAX;
use sapwood_directory::{
    Budget, Clock, Compare, CompareOptions, Identity, Outcome, Search, SearchOptions, Step,
    SystemClock, is_secret,
};
use sapwood_ldap::control::{self, Control, Controls, PagedResults, assertion_filter};
use sapwood_ldap::filter::Filter;
use sapwood_ldap::message::{CompareRequest, Operation, RequestMessage, SearchRequest};
use sapwood_ldap::result::ResultCode;

use super::log::{self, LoggedName};
use super::{Burst, Session, Wanted};
use crate::memory::Share;
use crate::writer::refusal;

/// Searches of one connection that are under way at once; requests behind them wait.
const SEARCHES_MAX: usize = 32;
/// Entries that a search looks at before another one, or another connection, has its turn: about a millisecond.
const STEP_ENTRIES: u32 = 500;

/// Work that a search or a compare does before another has its turn, in about as many nanoseconds.
const STEP_WORK: u64 = 1 << 20;

/// Bytes that a search under way is charged besides what its request asks for. It takes some two KiB, but also a
/// snapshot, and thereby a slot of the store's reader table: so many bytes leave half of the slots to others, whatever
/// clients do.
const SEARCH_BYTES: usize = 16 << 10;
/// Bytes that the texts of its filter take for each byte of its request at most, made ready and with spaces; a
/// substring of three bytes takes no more.
const BYTES_PER_REQUEST_BYTE: usize = 2 * EXPANSION_MAX;
/// Bytes that an item of its filter takes besides, and in the plan.
const ITEM_BYTES: usize = 384;
/// A filter has no more items than an ordinary search in a shorter request.
const SHORT_REQUEST_BYTES: usize = 256;
/// What the request of one small search may ask for that each connection has for free, in bytes.
const READING_FREE_BYTES: usize = 30 << 10;
/// From this length on, making a request ready may take about as long as a step.
const LONG_REQUEST_BYTES: usize = 16 << 10;

/// Searches and compares that were not done with their first step. Each has a step in turn.
#[derive(Default)]
pub(super) struct Running {
    queue: VecDeque<UnderWay>,
}

enum Reading {
    Search(Search),
    Compare(Compare),
}

impl Reading {
    fn operation(&self) -> Operation {
        match self {
            Reading::Search(_) => Operation::Search,
            Reading::Compare(_) => Operation::Compare,
        }
    }

    fn step(&mut self, out: &mut Vec<u8>, budget: Budget) -> sapwood_directory::Result<Step> {
        match self {
            Reading::Search(search) => search.step(out, budget),
            Reading::Compare(compare) => {
                Ok(compare.step(budget.work)?.map_or(Step::More, Step::Done))
            }
        }
    }
}

struct UnderWay {
    id: u32,
    reading: Reading,
    /// Bytes of the next entry's message, when it did not fit into the room there was; else 0.
    needed: usize,
    /// The memory that the search takes.
    share: Share,
}

impl Running {
    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    pub(super) fn is_full(&self) -> bool {
        self.queue.len() >= SEARCHES_MAX
    }

    /// Gives up the search or compare with this message id; which of them it was, if there is one.
    pub(super) fn remove(&mut self, id: u32) -> Option<Operation> {
        let at = self.queue.iter().position(|running| running.id == id)?;
        let removed = self.queue.remove(at)?;
        Some(removed.reading.operation())
    }

    pub(super) fn clear(&mut self) {
        self.queue.clear();
    }

    /// Bytes of shared memory that they hold.
    pub(super) fn shared_bytes(&self) -> usize {
        self.queue.iter().map(|running| running.share.bytes()).sum()
    }

    /// Bytes of the longest message that did not fit.
    pub(super) fn needed_max(&self) -> Option<usize> {
        self.queue
            .iter()
            .map(|running| running.needed)
            .max()
            .filter(|needed| *needed > 0)
    }
}

impl Session {
    /// `false` when there is no memory for the search yet.
    pub(super) fn search(
        &mut self,
        message: &RequestMessage<'_>,
        request: &SearchRequest<'_>,
        request_bytes: usize,
        begun: Option<Search>,
        burst: &mut Burst<'_>,
    ) -> bool {
        let Some(share) = self.share_of_reading(request_bytes, || request.filter.items()) else {
            return false;
        };
        let id = message.id;
        self.log_search(id, request);
        let search = match begun {
            Some(search) => Ok(search),
            None => self.begin_search(id, request, message.controls, burst),
        };
        match search {
            Ok(search) => self.step(UnderWay {
                id,
                reading: Reading::Search(search),
                needed: 0,
                share,
            }),
            Err(outcome) => self.answer(id, Operation::Search, &outcome),
        }
        true
    }

    /// Memory for a search or a compare with so many items in its filter; `None` when there is none yet.
    fn share_of_reading(
        &mut self,
        request_bytes: usize,
        items: impl FnOnce() -> usize,
    ) -> Option<Share> {
        // One long request is begun, and others have their turn.
        self.turn_used |= request_bytes > LONG_REQUEST_BYTES;
        let items = match request_bytes {
            ..SHORT_REQUEST_BYTES => 1,
            _ => items(),
        };
        let texts = BYTES_PER_REQUEST_BYTE * request_bytes;
        // Texts are long where items are few.
        let bytes = texts.max(ITEM_BYTES * items);
        // Each connection has one small search for free.
        if self.searches.is_empty() && bytes <= READING_FREE_BYTES {
            self.granted = Share::default();
            return Some(Share::default());
        }
        self.share(Wanted::Search(SEARCH_BYTES + bytes))
    }

    fn begin_search(
        &self,
        id: u32,
        request: &SearchRequest<'_>,
        controls: Controls<'_>,
        burst: &mut Burst<'_>,
    ) -> Result<Search, Outcome> {
        let mut options = self.search_options(id);
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
        Ok(Search::new(
            burst.snapshot(self)?.clone(),
            &self.identity,
            request,
            options,
        ))
    }

    /// What a search is asked besides its request, when it has no controls.
    pub(super) fn search_options(&self, id: u32) -> SearchOptions {
        let mut options = SearchOptions {
            message_id: id,
            channel: self.channel,
            ..SearchOptions::default()
        };
        if !matches!(self.identity, Identity::Admin { .. }) {
            options.entries_max = self.settings.config.limits.search_entries_max;
            options.deadline_micros = self.deadline_micros();
        }
        options
    }

    /// When a search or compare that begins now has to end.
    fn deadline_micros(&self) -> Option<u64> {
        let seconds = self.settings.config.limits.search_seconds_max;
        let is_limited = seconds > 0 && !matches!(self.identity, Identity::Admin { .. });
        is_limited.then(|| SystemClock.now_micros() + u64::from(seconds) * 1_000_000)
    }

    /// Steps the searches under way in turn, as long as there is room, until one has used up its step: then other
    /// connections have their turn.
    pub(super) fn step_searches(&mut self) {
        for _ in 0..self.searches.queue.len() {
            if self.turn_used || !self.has_room() {
                break;
            }
            let next = self.next_search();
            let Some(running) = next.and_then(|index| self.searches.queue.remove(index)) else {
                break;
            };
            self.step(running);
        }
    }

    /// Whether a search under way can go on.
    pub(super) fn can_step(&self) -> bool {
        self.next_search().is_some()
    }

    /// The search whose turn it is. One that waits for memory is passed over; none passes one that only waits until what
    /// is there has been written, or it might wait for ever.
    fn next_search(&self) -> Option<usize> {
        for (index, running) in self.searches.queue.iter().enumerate() {
            if self.fits(running.needed) {
                return Some(index);
            }
            if self.would_fit(running.needed) {
                return None;
            }
        }
        None
    }

    /// Whether a search waits until there is room.
    pub(super) fn waits_for_room(&self) -> bool {
        let mut queue = self.searches.queue.iter();
        queue.any(|running| !self.fits(running.needed))
    }

    /// Whether there is room for a message of so many bytes.
    fn fits(&self, needed: usize) -> bool {
        let room = self
            .open_room()
            .min(self.settings.config.limits.output_bytes_max);
        needed == 0
            || self.unsent_bytes() + needed <= room
            || self.unsent_bytes() == 0 && self.would_fit(needed)
    }

    /// Whether there is room for a message of so many bytes once all output has been written.
    pub(super) fn would_fit(&self, needed: usize) -> bool {
        let answers = &self.service.memory.answers;
        needed <= self.open_room() || answers.suffices(self.room.bytes(), needed)
    }

    fn step(&mut self, mut running: UnderWay) {
        let output_bytes_max = self.settings.config.limits.output_bytes_max;
        let id = running.id;
        loop {
            let room = self
                .open_room()
                .min(output_bytes_max)
                .max(self.unsent_bytes() + running.needed);
            let out_bytes = self.written + room;
            if running.needed > 0 {
                self.output
                    .reserve_exact(out_bytes.saturating_sub(self.output.len()));
            }
            let budget = Budget {
                entries: STEP_ENTRIES,
                work: STEP_WORK,
                out_bytes,
            };
            let operation = running.reading.operation();
            match running.reading.step(&mut self.output, budget) {
                Ok(Step::More) => {
                    self.turn_used = true;
                    self.ahead = 1;
                    running.needed = 0;
                    self.searches.queue.push_back(running);
                }
                Ok(Step::Room(needed)) => {
                    // What is free was enough so far.
                    if self.reserve_room() {
                        continue;
                    }
                    running.needed = needed;
                    self.searches.queue.push_back(running);
                }
                Ok(Step::Done(outcome)) => self.answer(id, operation, &outcome),
                Err(error) => {
                    let name = operation.name();
                    tracing::error!(conn = self.number, id, "a {name} failed: {error}");
                    self.answer(id, operation, &refusal(&error));
                }
            }
            break;
        }
    }

    /// `false` when there is no memory for the compare yet.
    pub(super) fn compare(
        &mut self,
        id: u32,
        request: &CompareRequest<'_>,
        controls: Controls<'_>,
        request_bytes: usize,
        burst: &mut Burst<'_>,
    ) -> bool {
        let asserted = controls.find(control::ASSERTION);
        let items = || {
            let filter = asserted.and_then(|control| assertion(&control).ok());
            1 + filter.map_or(0, Filter::items)
        };
        let Some(share) = self.share_of_reading(request_bytes, items) else {
            return false;
        };
        if self.settings.config.log.access {
            let schema = self.service.directory.schema();
            let attribute = log::description(schema, request.assertion.attribute);
            let dn = LoggedName::dn(schema, request.dn);
            tracing::info!(target: "access", conn = self.number, id, %dn, attribute, "compare");
        }
        match self.begin_compare(request, controls, burst) {
            Ok(compare) => self.step(UnderWay {
                id,
                reading: Reading::Compare(compare),
                needed: 0,
                share,
            }),
            Err(outcome) => self.answer(id, Operation::Compare, &outcome),
        }
        true
    }

    fn begin_compare(
        &self,
        request: &CompareRequest<'_>,
        controls: Controls<'_>,
        burst: &mut Burst<'_>,
    ) -> Result<Compare, Outcome> {
        let options = CompareOptions {
            channel: self.channel,
            manage_dsa_it: controls.find(control::MANAGE_DSA_IT).is_some(),
            assertion: controls
                .find(control::ASSERTION)
                .map(|control| assertion(&control))
                .transpose()?,
            deadline_micros: self.deadline_micros(),
        };
        let asserted = &request.assertion;
        Ok(Compare::new(
            burst.snapshot(self)?.clone(),
            &self.identity,
            request.dn,
            asserted.attribute,
            asserted.value,
            options,
        ))
    }

    fn log_search(&self, id: u32, request: &SearchRequest<'_>) {
        if self.settings.config.log.access {
            let schema = self.service.directory.schema();
            let is_secret = |description: &[u8]| is_secret(schema, description);
            let base = LoggedName::dn(schema, request.base);
            let (scope, filter) = (request.scope.number(), request.filter.redacted(&is_secret));
            tracing::info!(target: "access", conn = self.number, id, %base, scope, %filter, "search");
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
