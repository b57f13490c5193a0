//! Searches: those of a burst, and those that go on after it in steps. A compare is read the same way.

mod compare;
mod digests;
mod persistent;
mod reading;
mod running;
mod sorting;

use std::sync::Arc;
use std::time::{Duration, Instant};

use sapwood_directory::access::SearchLimits;
use sapwood_directory::engine::Engine;
use sapwood_directory::schema::EXPANSION_MAX;
use sapwood_directory::{
    AttributesOnly, Budget, Clock, Dereferences, Outcome, Requester, RightsOf, RightsQuestion,
    SORTING_BYTES_MAX, Search, SearchOptions, Snapshot, Step, SystemClock, Wire, is_secret,
};
use sapwood_ldap::controls::{Controls, ControlsBuf, GetEffectiveRights, RequestControls};
use sapwood_ldap::filter::Filter;
use sapwood_ldap::message::{Operation, Request, RequestMessage, SearchRequest};
use sapwood_ldap::result::ResultCode;

pub(super) use self::compare::begin_compare;
use self::persistent::FollowWanted;
pub(super) use self::reading::Reading;
pub(super) use self::running::{Queued, Running, UnderWay};
pub(super) use self::sorting::is_sorted;
use super::acting::denied;
use super::log::{LoggedFilter, LoggedName};
use super::{Burst, Reader, Session, Wanted};
use crate::memory::Share;
use crate::writer::refusal;

/// Entries that a search looks at before another one, or another connection, has its turn: about a millisecond.
const STEP_ENTRIES: u32 = 500;

/// Work that a search or a compare does before another has its turn, in about as many nanoseconds.
pub(super) const STEP_WORK: u64 = 1 << 20;

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
/// From this length on, making a request ready may take longer than a step: a [worker](super::long) does it.
const LONG_REQUEST_BYTES: usize = 16 << 10;

/// What becomes of a search whose snapshot is too old.
enum Renewed {
    /// It goes on, in a newer one if there is one.
    GoesOn,
    /// It waits for what is not here.
    Waits,
}

impl<E: Engine> Session<E> {
    /// `false` when there is no memory for the search yet.
    pub(super) fn search(
        &mut self,
        message: &RequestMessage<'_>,
        request: &SearchRequest<'_>,
        controls: &RequestControls<'_>,
        by: &Arc<Requester>,
        (bytes, begun): (&[u8], Option<Search<E>>),
        burst: &mut Burst<'_, E>,
    ) -> bool {
        if let Some(diagnostic) = contradiction(controls) {
            let outcome = Outcome::new(ResultCode::UnwillingToPerform, diagnostic);
            self.answer(message.id, Operation::Search, &outcome);
            return true;
        }
        if let Some(wanted) = FollowWanted::of(controls) {
            let asked = (request, bytes, controls);
            return self.follow(message.id, asked, wanted, by, burst);
        }
        if let Some(wanted) = &controls.content_digests {
            let asked = (request, bytes, controls);
            return self.tell_digests(message.id, asked, wanted, by, burst);
        }
        let items = || request.filter.items() + items_besides(controls);
        let sorting = controls.sort.map_or(0, |_| SORTING_BYTES_MAX);
        let Some(share) = self.share_of_reading(bytes.len(), sorting, items) else {
            return false;
        };
        let id = message.id;
        self.log_search(id, request);
        if bytes.len() > LONG_REQUEST_BYTES {
            return self.prepare(bytes, message, (controls, by), share, burst);
        }
        let search = match begun {
            Some(search) => Ok(Reading::Search(search)),
            None => burst.snapshot(self).cloned().and_then(|snapshot| {
                let limits = self.limits(&snapshot, by)?;
                let asked = (request.size_limit, request.time_limit);
                let options = self.search_options(controls, limits, asked);
                Ok(Reading::begin(snapshot, by, request, options))
            }),
        };
        if self.waits_for_fetch(Reader::Request) {
            return false;
        }
        match search {
            Ok(reading) => {
                let running = UnderWay::new(id, Operation::Search, reading, share);
                self.step(running.with_controls(self.entry_controls(controls)));
                self.operations.searches.keep_request(id, bytes);
            }
            Err(outcome) => self.answer(id, Operation::Search, &outcome),
        }
        true
    }

    /// Memory for a search or a compare with so many items in its filter, and for what it takes besides; `None` when
    /// there is none yet.
    fn share_of_reading(
        &mut self,
        request_bytes: usize,
        besides: usize,
        items: impl FnOnce() -> usize,
    ) -> Option<Share> {
        let bytes = besides + reading_bytes(request_bytes, items);
        // Each connection has one small search for free.
        if self.operations.searches.is_empty() && bytes <= READING_FREE_BYTES {
            self.operations.granted = Share::default();
            return Some(Share::default());
        }
        self.share(Wanted::Search(SEARCH_BYTES + bytes))
    }

    /// What bounds the searches and compares of somebody.
    pub(super) fn limits(
        &self,
        snapshot: &Snapshot<E>,
        by: &Arc<Requester>,
    ) -> Result<SearchLimits, Outcome> {
        self.read_in(snapshot, |snapshot| snapshot.search_limits(by))
    }

    /// What a search is asked besides its request, which has these limits of size and time, by who has these.
    pub(super) fn search_options(
        &self,
        controls: &RequestControls<'_>,
        limits: SearchLimits,
        (size_limit, time_limit): (u32, u32),
    ) -> SearchOptions {
        SearchOptions {
            channel: self.context.channel,
            manage_dsa_it: controls.manage_dsa_it.is_some(),
            domain_scope: controls.domain_scope.is_some(),
            subentries: controls.subentries,
            as_stored: false,
            assertion: controls.assertion.map(Filter::to_buf),
            only: match (
                controls.real_attributes_only,
                controls.virtual_attributes_only,
            ) {
                (Some(()), _) => Some(AttributesOnly::Real),
                (None, Some(())) => Some(AttributesOnly::Virtual),
                (None, None) => None,
            },
            values: controls
                .matched_values
                .map(|values| values.items().iter().map(Filter::to_buf).collect()),
            page: controls
                .paged_results
                .map(|page| (limits.page_max(page.size), page.cookie.to_vec())),
            sorting: self.sort_options(controls),
            tells_usability: controls.account_usability.is_some(),
            attribute_scope: controls.attribute_scoped_query.map(<[u8]>::to_vec),
            raw_values: controls.value_sort == Some(true),
            count: controls.matching_entry_count,
            dereferences: controls
                .dereference
                .map(|asked| Box::new(Dereferences::of(asked))),
            effective_rights: controls
                .get_effective_rights
                .map(|asked| Box::new(self.rights_question(&asked))),
            entries_max: match controls.paged_results {
                Some(_) => {
                    // Where there are none it does not begin.
                    limits.paged_entries_max(size_limit).unwrap_or(1)
                }
                None => limits.entries_max(size_limit),
            },
            candidates_max: limits.candidates_max(),
            deadline_micros: deadline_micros(limits, time_limit),
        }
    }

    /// What Get Effective Rights asks for.
    fn rights_question(&self, asked: &GetEffectiveRights<'_>) -> RightsQuestion {
        let schema = self.service.directory.schema();
        RightsQuestion {
            of: match asked.dn {
                None => RightsOf::Asker,
                Some("") => RightsOf::Anonymous,
                Some(dn) if self.settings.is_admin(&schema, dn) => {
                    RightsOf::Administrator(dn.into())
                }
                Some(dn) => RightsOf::Named(dn.into()),
            },
            attributes: asked.attributes.iter().map(<[u8]>::to_vec).collect(),
        }
    }

    /// Steps the searches under way in turn, as long as there is room, until one has used up its step: then other
    /// connections have their turn.
    pub(super) fn step_searches(&mut self) {
        for _ in 0..self.operations.searches.queue.len() {
            if self.turn_used || !self.has_room() {
                break;
            }
            let next = self.next_search();
            let next = next.and_then(|index| self.operations.searches.queue.remove(index));
            let Some(Queued::UnderWay(mut running)) = next else {
                break;
            };
            if matches!(running.reading, Reading::Persistent(_)) {
                self.step_persistent(running);
                continue;
            }
            if running.is_stale(self.snapshot_age_max()) {
                match self.renew_search(&mut running) {
                    Ok(Renewed::GoesOn) => {}
                    Ok(Renewed::Waits) => {
                        self.operations.searches.push(Queued::UnderWay(running));
                        continue;
                    }
                    Err(outcome) => {
                        self.answer(running.id, running.operation, &outcome);
                        continue;
                    }
                }
            }
            self.step(running);
        }
    }

    /// Has a search go on with the data as they are now, and with what the rules grant by them: what an old snapshot
    /// shows is kept for it, however much is changed and deleted meanwhile. Who acts for somebody has to be allowed to
    /// by these data.
    #[cold]
    fn renew_search(&mut self, running: &mut UnderWay<E>) -> Result<Renewed, Outcome> {
        let Some((bytes, since)) = running.request.as_deref_mut() else {
            return Ok(Renewed::GoesOn);
        };
        let before = std::mem::replace(since, Instant::now());
        let Ok(message) = RequestMessage::decode(bytes) else {
            return Ok(Renewed::GoesOn);
        };
        let Request::Search(request) = &message.op else {
            return Ok(Renewed::GoesOn);
        };
        let Ok(controls) = self.read_controls(&message, None) else {
            return Ok(Renewed::GoesOn);
        };
        let snapshot = match running.newest.take() {
            Some(begun) => begun,
            None if E::REMOTE => {
                *since = before;
                running.fetch = Some(self.begin());
                return Ok(Renewed::Waits);
            }
            None => match self.last_snapshot.next(&self.service) {
                Ok(snapshot) => snapshot,
                // It goes on with what it has.
                Err(_) => return Ok(Renewed::GoesOn),
            },
        };
        let is_own = controls.proxied_authorization.is_none();
        let by = match is_own && !self.context.requester.is_acted_as() {
            true => self.context.requester.clone(),
            false => match self.acting_in(&snapshot, controls.proxied_authorization) {
                Ok(Some(by)) => by,
                Ok(None) => return Err(denied()),
                Err(error) if E::REMOTE && error.is_not_here() => {
                    *since = before;
                    running.newest = Some(snapshot.clone());
                    running.fetch = Some(self.fetch(snapshot));
                    return Ok(Renewed::Waits);
                }
                Err(error) => return Err(refusal(&error)),
            },
        };
        let limits = match snapshot.search_limits(&by) {
            Ok(limits) => limits,
            Err(error) if E::REMOTE && error.is_not_here() => {
                *since = before;
                running.newest = Some(snapshot.clone());
                running.fetch = Some(self.fetch(snapshot));
                return Ok(Renewed::Waits);
            }
            Err(error) => return Err(refusal(&error)),
        };
        let asked = (request.size_limit, request.time_limit);
        let options = self.search_options(&controls, limits, asked);
        running.reading.renew(snapshot, &by, request, options);
        Ok(Renewed::GoesOn)
    }

    /// Ends all that are under way, as the server stops: they could take as long as they like.
    pub(super) fn stop_searches(&mut self) {
        for queued in std::mem::take(&mut self.operations.searches.queue) {
            self.answer(queued.id(), queued.operation(), &stopping());
        }
        for waiting in std::mem::take(&mut self.operations.searches.waiting) {
            self.answer(waiting.id, waiting.operation, &stopping());
        }
    }

    /// Whether a search under way can go on.
    pub(super) fn can_step(&self) -> bool {
        self.next_search().is_some() || self.operations.searches.wakes
    }

    /// The search whose turn it is. One that waits for memory is passed over; none passes one that only waits until
    /// what is there has been written, or it might wait for ever.
    fn next_search(&self) -> Option<usize> {
        for (index, queued) in self.operations.searches.queue.iter().enumerate() {
            let Queued::UnderWay(running) = queued else {
                continue;
            };
            if E::REMOTE && running.fetch.is_some() {
                // Another one would take the room of the message that it has begun.
                match running.reading.is_gathering() {
                    true => return None,
                    false => continue,
                }
            }
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
        let mut under_way = self.operations.searches.under_way();
        under_way.any(|running| !self.fits(running.needed))
    }

    /// Whether a search waits for room that is not there when all output has been written either.
    pub(super) fn waits_for_memory(&self) -> bool {
        let mut under_way = self.operations.searches.under_way();
        under_way.any(|running| running.needed > 0 && !self.would_fit(running.needed))
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
        needed <= self.open_room() || answers.suffices(self.output.room.bytes(), needed)
    }

    fn step(&mut self, mut running: UnderWay<E>) {
        let output_bytes_max = self.settings.config.limits.output_bytes_max;
        let id = running.id;
        loop {
            let room = self
                .open_room()
                .min(output_bytes_max)
                .max(self.unsent_bytes() + running.needed);
            let out_bytes = self.output.written + room;
            if running.needed > 0 {
                self.output
                    .bytes
                    .reserve_exact(out_bytes.saturating_sub(self.output.bytes.len()));
            }
            let budget = Budget {
                entries: STEP_ENTRIES,
                work: STEP_WORK,
                out_bytes,
            };
            let operation = running.operation;
            let controls = running.entry_controls.as_deref();
            let controls = controls.map_or(Controls::EMPTY, ControlsBuf::view);
            let mut wire = Wire::new(&mut self.output.bytes, id, controls);
            match running.reading.step(&mut wire, budget) {
                Ok(Step::More) => {
                    self.turn_used = true;
                    self.operations.prefetch = 1;
                    if running.reading.is_gathering() {
                        // It keeps its room, and has its message finished before another one begins one.
                        self.operations
                            .searches
                            .push_first(Queued::UnderWay(running));
                    } else {
                        running.needed = 0;
                        self.operations.searches.push(Queued::UnderWay(running));
                    }
                }
                Ok(Step::Room(needed)) => {
                    // What is free was enough so far.
                    if self.reserve_room() {
                        continue;
                    }
                    running.needed = needed;
                    self.operations.searches.push(Queued::UnderWay(running));
                }
                Ok(Step::Done(outcome)) => {
                    if let Some(entries) = running.reading.sent() {
                        self.record_entries(id, entries);
                    }
                    self.answer(id, operation, &outcome);
                }
                Ok(Step::Wait) => self.operations.searches.wait(running),
                Ok(Step::Fetch) => {
                    self.operations.prefetch = 1;
                    let snapshot = running.reading.snapshot().cloned();
                    running.fetch = snapshot.map(|snapshot| self.fetch(snapshot));
                    let is_gathering = running.reading.is_gathering();
                    let queued = Queued::UnderWay(running);
                    match is_gathering {
                        true => self.operations.searches.push_first(queued),
                        false => self.operations.searches.push(queued),
                    }
                }
                Err(error) => {
                    let name = operation.name();
                    tracing::error!(conn = self.context.number, id, "a {name} failed: {error}");
                    self.answer(id, operation, &refusal(&error));
                }
            }
            break;
        }
    }

    /// How old the snapshot of a search may get.
    fn snapshot_age_max(&self) -> Duration {
        let configured = self.settings.config.limits.snapshot_seconds_max;
        let caps = self.service.directory.engine().caps();
        snapshot_age_max(configured, caps.snapshot_age_max)
    }

    fn log_search(&self, id: u32, request: &SearchRequest<'_>) {
        if self.settings.config.log.access {
            let schema = &self.service.directory.schema();
            let is_secret = |description: &[u8]| is_secret(schema, description);
            let base = LoggedName::dn(schema, request.base);
            let filter = LoggedFilter::new(request.filter, &is_secret);
            let scope = request.scope.number();
            tracing::info!(target: "access", conn = self.context.number, id, %base, scope, %filter, "search");
        }
    }
}

/// Bytes that a search or a compare takes, whose request has so many, and so many items in its filter.
fn reading_bytes(request_bytes: usize, items: impl FnOnce() -> usize) -> usize {
    let items = match request_bytes {
        ..SHORT_REQUEST_BYTES => 1,
        _ => items(),
    };
    let texts = BYTES_PER_REQUEST_BYTE * request_bytes;
    // Texts are long where items are few.
    texts.max(ITEM_BYTES * items)
}

/// Items of filters that controls have.
fn items_besides(controls: &RequestControls<'_>) -> usize {
    let assertion = controls.assertion.map_or(0, Filter::items);
    let values = controls.matched_values;
    assertion + values.map_or(0, |values| values.items().iter().count())
}

/// Why the controls of a search do not go together, if they do not.
fn contradiction(controls: &RequestControls<'_>) -> Option<&'static str> {
    let is_followed = controls.persistent_search.is_some()
        || controls.sync_request.is_some()
        || controls.content_digests.is_some();
    let has_order = controls.paged_results.is_some()
        || controls.sort.is_some()
        || controls.virtual_list_view.is_some();
    if controls.matching_entry_count.is_some() && (is_followed || has_order) {
        return Some(
            "a search whose entries are counted sends none: neither in pages nor in an order, and none later",
        );
    }
    if controls.attribute_scoped_query.is_some() && is_followed {
        return Some("an attribute-scoped query ends when it has sent what there is");
    }
    if controls.real_attributes_only.is_some() && controls.virtual_attributes_only.is_some() {
        return Some("a search has real attributes only or virtual ones only, not both");
    }
    None
}

fn stopping() -> Outcome {
    Outcome::new(ResultCode::Unavailable, "the server is stopping")
}

/// When a search or compare that begins now has to end, whose request has this time limit.
fn deadline_micros(limits: SearchLimits, asked: u32) -> Option<u64> {
    let seconds = limits.seconds_max(asked);
    (seconds > 0).then(|| SystemClock.now_micros() + u64::from(seconds) * 1_000_000)
}

/// How old the snapshot of a search may get before the search goes on in another one: half as old as the engine lets it
/// become at most, as the search does not get its turn at once.
fn snapshot_age_max(configured_seconds: u64, by_engine: Option<Duration>) -> Duration {
    let configured = Duration::from_secs(configured_seconds);
    by_engine.map_or(configured, |age| configured.min(age / 2))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_snapshot_is_given_up_before_the_engine_takes_it() {
        let seconds = Duration::from_secs;
        assert_eq!(snapshot_age_max(60, None), seconds(60));
        assert_eq!(snapshot_age_max(60, Some(seconds(1200))), seconds(60));
        assert_eq!(snapshot_age_max(60, Some(seconds(10))), seconds(5));
    }
}
