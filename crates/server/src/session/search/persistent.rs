//! Searches of a session that wait for commits, and go on with each: persistent searches, and those of consumers who
//! synchronise copies of entries (RFC 4533). Of these some only tell what there is, and end.
//!
//! The connection has a session that follows changes told of commits ([`Completion::Committed`]). Then each of its
//! persistent searches gets a newer snapshot, and its place among the searches under way until it has told all that
//! this one shows. One of them is all that a turn of the connection does, so that others are served between them.
//!
//! One that waits is not under way for others: it keeps no request waiting, and the connection may make room as if it
//! were idle. Only who has bound may have any: each costs work with every commit, which has to be somebody's.
//!
//! [`Completion::Committed`]: crate::session::Completion::Committed

use std::sync::Arc;
use std::time::{Duration, Instant};

use sapwood_directory::engine::Engine;
use sapwood_directory::{
    Budget, Clock, Error, Outcome, Persistent, Requester, Snapshot, Step, Synchronisation,
    SystemClock, Wire,
};
use sapwood_ldap::controls::{PersistentSearch, RequestControls, SyncMode, SyncRequest};
use sapwood_ldap::message::{Operation, RequestMessage, SearchRequest};
use sapwood_ldap::result::ResultCode;

use super::{
    LONG_REQUEST_BYTES, Queued, Reading, Running, SEARCH_BYTES, UnderWay, is_sorted, items_besides,
    reading_bytes,
};
use crate::memory::Share;
use crate::session::acting::denied;
use crate::session::{Burst, Reader, Session};
use crate::writer::refusal;

/// The newest snapshot that a persistent search goes on in may be so old, whatever is configured.
const AGE_LEAST: Duration = Duration::from_secs(1);

/// What a client that is to be told of changes has asked for.
#[derive(Clone, Copy)]
pub(super) enum FollowWanted<'m> {
    Persistent(PersistentSearch),
    Synchronisation(SyncRequest<'m>),
}

impl<'m> FollowWanted<'m> {
    /// That of a search with such controls, if it is one of these.
    pub(super) fn of(controls: &RequestControls<'m>) -> Option<FollowWanted<'m>> {
        match (controls.sync_request, controls.persistent_search) {
            (Some(wanted), _) => Some(FollowWanted::Synchronisation(wanted)),
            (None, Some(wanted)) => Some(FollowWanted::Persistent(wanted)),
            (None, None) => None,
        }
    }

    /// Whether it goes on with changes.
    fn waits(self) -> bool {
        match self {
            FollowWanted::Persistent(_) => true,
            FollowWanted::Synchronisation(wanted) => wanted.mode == SyncMode::RefreshAndPersist,
        }
    }
}

/// A search that tells of changes.
pub(super) enum Followed<E: Engine> {
    Persistent(Persistent<E>),
    Synchronisation(Synchronisation<E>),
}

impl<E: Engine> Followed<E> {
    pub(super) fn step(&mut self, wire: &mut Wire<'_>, budget: Budget) -> Result<Step, Error> {
        match self {
            Followed::Persistent(search) => search.step(wire, budget),
            Followed::Synchronisation(search) => search.step(wire, budget),
        }
    }

    pub(super) fn snapshot(&self) -> Option<&Snapshot<E>> {
        match self {
            Followed::Persistent(search) => search.snapshot(),
            Followed::Synchronisation(search) => search.snapshot(),
        }
    }

    pub(super) fn is_gathering(&self) -> bool {
        match self {
            Followed::Persistent(search) => search.is_gathering(),
            Followed::Synchronisation(search) => search.is_gathering(),
        }
    }

    fn waits(&self) -> bool {
        match self {
            Followed::Persistent(search) => search.waits(),
            Followed::Synchronisation(search) => search.waits(),
        }
    }

    fn go_on(&mut self, snapshot: Snapshot<E>, requester: &Arc<Requester>) {
        match self {
            Followed::Persistent(search) => search.go_on(snapshot, requester),
            Followed::Synchronisation(search) => search.go_on(snapshot, requester),
        }
    }

    /// When it ends although it waits, as its client has said. A synchronisation does not: its time limit is for the
    /// refresh alone (RFC 4533 §3.5.4).
    fn deadline_micros(&self) -> Option<u64> {
        match self {
            Followed::Persistent(search) => search.deadline_micros(),
            Followed::Synchronisation(_) => None,
        }
    }
}

/// A search that tells of changes, and what its session knows of it.
pub(in crate::session) struct Following<E: Engine> {
    pub(super) search: Followed<E>,
    /// Its request, if somebody else is named in it as whom it is done: whether that is allowed is asked again with
    /// each snapshot.
    proxied: Option<Vec<u8>>,
    /// Commits that the session had been told of when the search got its snapshot.
    commits: u64,
    /// When that was.
    since: Instant,
    /// When it ends, as its client has said.
    ends: Option<Instant>,
}

impl<E: Engine> Running<E> {
    /// Whether there are persistent searches.
    fn has_persistent(&self) -> bool {
        let is_persistent =
            |running: &UnderWay<E>| matches!(running.reading, Reading::Persistent(_));
        !self.waiting.is_empty() || self.under_way().any(is_persistent)
    }

    /// Has a persistent search wait for commits.
    pub(super) fn wait(&mut self, running: UnderWay<E>) {
        // One may have come since it got its snapshot.
        self.wakes |= following(&running).is_some_and(|one| one.commits != self.commits);
        self.waiting.push(running);
    }

    /// There was a commit.
    pub(in crate::session) fn committed(&mut self) {
        self.commits += 1;
        self.wakes = !self.waiting.is_empty();
    }

    /// Has those that wait go on, if they are to.
    pub(in crate::session) fn wake(&mut self) {
        if self.wakes {
            self.wakes = false;
            let woken = self.waiting.drain(..).map(Queued::UnderWay);
            self.queue.extend(woken);
        }
    }

    /// Takes all persistent searches out; their message ids.
    fn take_persistent(&mut self) -> Vec<u32> {
        let mut ids: Vec<u32> = self.waiting.drain(..).map(|waiting| waiting.id).collect();
        self.queue.retain(|queued| {
            let under_way = queued.under_way();
            let found = under_way.filter(|running| following(running).is_some());
            ids.extend(found.map(|running| running.id));
            found.is_none()
        });
        ids
    }
}

fn following<E: Engine>(running: &UnderWay<E>) -> Option<&Following<E>> {
    match &running.reading {
        Reading::Persistent(following) => Some(following),
        _ => None,
    }
}

impl<E: Engine> Session<E> {
    /// Whether it is to be told of commits.
    pub(crate) fn follows(&self) -> bool {
        self.has_persistent() || !self.operations.awaited.is_empty()
    }

    /// Whether it has persistent searches.
    pub(crate) fn has_persistent(&self) -> bool {
        self.operations.searches.has_persistent()
    }

    /// Begins a search that tells of changes; `false` when it has to wait for what is not here.
    #[cold]
    pub(super) fn follow(
        &mut self,
        id: u32,
        (request, bytes, controls): (&SearchRequest<'_>, &[u8], &RequestControls<'_>),
        wanted: FollowWanted<'_>,
        by: &Arc<Requester>,
        burst: &mut Burst<'_, E>,
    ) -> bool {
        let bounded = self
            .share_of_persistent(bytes.len(), request, (controls, wanted))
            .and_then(|share| {
                let snapshot = burst.snapshot(self)?.clone();
                let limits = self.limits(&snapshot, by)?;
                Ok((share, snapshot, limits))
            });
        if self.waits_for_fetch(Reader::Request) {
            return false;
        }
        self.log_search(id, request);
        let (share, snapshot, limits) = match bounded {
            Ok(bounded) => bounded,
            Err(outcome) => {
                self.answer(id, Operation::Search, &outcome);
                return true;
            }
        };
        let asked = (request.size_limit, request.time_limit);
        let options = self.search_options(controls, limits, asked);
        let search = match wanted {
            FollowWanted::Persistent(wanted) => Ok(Followed::Persistent(Persistent::new(
                snapshot, by, request, options, wanted,
            ))),
            FollowWanted::Synchronisation(wanted) => {
                let search = Synchronisation::new(snapshot, by, request, options, &wanted);
                search.map(Followed::Synchronisation)
            }
        };
        let search = match search {
            Ok(search) => search,
            Err(outcome) => {
                self.answer(id, Operation::Search, &outcome);
                return true;
            }
        };
        let ends = search.deadline_micros().map(|deadline| {
            let left = deadline.saturating_sub(SystemClock.now_micros());
            Instant::now() + Duration::from_micros(left)
        });
        let proxied = controls.proxied_authorization.is_some();
        let reading = Reading::Persistent(Box::new(Following {
            search,
            proxied: proxied.then(|| bytes.to_vec()),
            commits: match E::REMOTE {
                // Its snapshot was begun before: it looks for what came meanwhile.
                true => self.operations.searches.commits.wrapping_sub(1),
                false => self.operations.searches.commits,
            },
            since: Instant::now(),
            ends,
        }));
        let running = UnderWay::new(id, Operation::Search, reading, share);
        self.step(running.with_controls(self.entry_controls(controls)));
        true
    }

    /// Memory for a search that tells of changes, or why there is to be none.
    fn share_of_persistent(
        &self,
        request_bytes: usize,
        request: &SearchRequest<'_>,
        (controls, wanted): (&RequestControls<'_>, FollowWanted<'_>),
    ) -> Result<Share, Outcome> {
        let is_replica = self.service.directory.options().replica != 0;
        if matches!(wanted, FollowWanted::Synchronisation(_)) && !is_replica {
            let diagnostic = "this directory is no replica: 'sapwood replica enable' makes it one";
            return Err(Outcome::new(ResultCode::UnwillingToPerform, diagnostic));
        }
        if controls.sync_request.is_some() && controls.persistent_search.is_some() {
            let diagnostic = "a search is a persistent one or a synchronisation, not both";
            return Err(Outcome::new(ResultCode::UnwillingToPerform, diagnostic));
        }
        if wanted.waits() && self.is_anonymous() {
            let diagnostic = "bind first: persistent searches are for those who have bound";
            let code = ResultCode::InsufficientAccessRights;
            return Err(Outcome::new(code, diagnostic));
        }
        if controls.paged_results.is_some() {
            let diagnostic = "a persistent search has no pages";
            return Err(Outcome::new(ResultCode::UnwillingToPerform, diagnostic));
        }
        if is_sorted(controls) {
            let diagnostic = "a persistent search has no order";
            return Err(Outcome::new(ResultCode::UnwillingToPerform, diagnostic));
        }
        if request_bytes > LONG_REQUEST_BYTES {
            let diagnostic =
                format!("a persistent search may ask in at most {LONG_REQUEST_BYTES} bytes");
            return Err(Outcome::new(ResultCode::AdminLimitExceeded, diagnostic));
        }
        // It may have two snapshots, and be made ready for both.
        let items = || request.filter.items() + items_besides(controls);
        let bytes = 2 * (SEARCH_BYTES + reading_bytes(request_bytes, items));
        let pool = &self.service.memory.persistent;
        pool.try_take(&self.context.claimant, bytes).ok_or_else(|| {
            let diagnostic = "there are as many persistent searches as there may be";
            Outcome::new(ResultCode::Busy, diagnostic)
        })
    }

    /// Goes on with a persistent search, which is enough for this turn.
    #[cold]
    pub(super) fn step_persistent(&mut self, mut running: UnderWay<E>) {
        self.turn_used = true;
        let age_max = self.snapshot_age_max().max(AGE_LEAST);
        let (id, operation) = (running.id, running.operation);
        let Reading::Persistent(following) = &mut running.reading else {
            return self.step(running);
        };
        if !following.search.waits() {
            if following.since.elapsed() < age_max {
                return self.step(running);
            }
            return match self.renew_contents(following) {
                Ok(true) => self.step(running),
                Ok(false) => self.answer(id, operation, &Persistent::<E>::too_slow()),
                Err(outcome) => self.answer(id, operation, &outcome),
            };
        }
        let begun = running.newest.take();
        if begun.is_none() {
            // Of later ones it is told again.
            following.commits = self.operations.searches.commits;
        }
        let snapshot = match begun {
            Some(begun) => begun,
            None if E::REMOTE => {
                running.fetch = Some(self.begin());
                return self.operations.searches.push(Queued::UnderWay(running));
            }
            None => match self.last_snapshot.next(&self.service) {
                Ok(snapshot) => snapshot,
                Err(outcome) => return self.answer(id, operation, &outcome),
            },
        };
        match self.asker_of(following, &snapshot) {
            Ok(Some(by)) => {
                following.since = Instant::now();
                following.search.go_on(snapshot, &by);
                self.step(running);
            }
            Ok(None) => self.answer(id, operation, &denied()),
            Err(error) if E::REMOTE && error.is_not_here() => {
                running.newest = Some(snapshot.clone());
                running.fetch = Some(self.fetch(snapshot));
                self.operations.searches.push(Queued::UnderWay(running));
            }
            Err(error) => self.answer(id, operation, &refusal(&error)),
        }
    }

    /// Has one that tells all there is go on in a newer snapshot; whether it can.
    fn renew_contents(&mut self, following: &mut Following<E>) -> Result<bool, Outcome> {
        if E::REMOTE || !matches!(following.search, Followed::Synchronisation(_)) {
            return Ok(false);
        }
        let snapshot = self.last_snapshot.next(&self.service)?;
        let by = match self.asker_of(following, &snapshot) {
            Ok(Some(by)) => by,
            Ok(None) => return Err(denied()),
            Err(error) => return Err(refusal(&error)),
        };
        let Followed::Synchronisation(search) = &mut following.search else {
            return Ok(false);
        };
        following.since = Instant::now();
        Ok(search.renew(snapshot, &by))
    }

    /// For whom a persistent search is done by now; `None` if who is bound may not act as that one any more.
    fn asker_of(
        &mut self,
        following: &Following<E>,
        snapshot: &Snapshot<E>,
    ) -> Result<Option<Arc<Requester>>, Error> {
        let Some(bytes) = &following.proxied else {
            return match self.context.requester.is_acted_as() {
                false => Ok(Some(self.context.requester.clone())),
                true => self.acting_in(snapshot, None),
            };
        };
        let Ok(message) = RequestMessage::decode(bytes) else {
            return Ok(None);
        };
        let controls = self.read_controls(&message, None);
        match controls.map(|controls| controls.proxied_authorization) {
            Ok(Some(proxied)) => self.acting_in(snapshot, Some(proxied)),
            _ => Ok(None),
        }
    }

    /// Ends all persistent searches, as something begins that ends what is under way.
    pub(in crate::session) fn end_persistent(&mut self, why: &str) {
        for id in self.operations.searches.take_persistent() {
            let outcome = Outcome::new(ResultCode::Canceled, why);
            self.answer(id, Operation::Search, &outcome);
        }
    }

    /// When one that waits is to end, or to give up the snapshot that it holds for a newer one.
    pub(in crate::session) fn waiting_due(&self) -> Option<Instant> {
        let age_max = self.snapshot_age_max().max(AGE_LEAST);
        let waiting = self.operations.searches.waiting.iter();
        let due = waiting.filter_map(following).flat_map(|one| {
            let renewed = one.since + age_max;
            one.ends.into_iter().chain([renewed])
        });
        due.min()
    }

    /// Ends those that wait and whose time is over, and has the others give up snapshots that they hold for too long.
    pub(in crate::session) fn expire_waiting(&mut self) {
        if self.operations.searches.waiting.is_empty() {
            return;
        }
        let (now, age_max) = (Instant::now(), self.snapshot_age_max().max(AGE_LEAST));
        let is_over = |one: &Following<E>| one.ends.is_some_and(|ends| ends <= now);
        let is_old = |one: &Following<E>| one.since + age_max <= now;
        let searches = &mut self.operations.searches;
        let mut ended = Vec::new();
        searches.waiting.retain(|waiting| {
            let ends = following(waiting).is_some_and(is_over);
            ended.extend(ends.then_some(waiting.id));
            !ends
        });
        searches.wakes |= searches.waiting.iter().filter_map(following).any(is_old);
        for id in ended {
            self.answer(id, Operation::Search, &Persistent::<E>::out_of_time());
        }
    }
}
