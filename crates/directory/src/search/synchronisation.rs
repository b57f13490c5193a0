//! Content synchronisation (RFC 4533), as its provider: a search that tells somebody who holds copies of its entries
//! what has changed since a cookie, and if that is wanted, goes on with each change.
//!
//! | stage | what is told |
//! | --- | --- |
//! | replay | what the change feed has behind the position in the cookie, and which entries have gone |
//! | contents | all there is: entries whole that have changed since the cookie, of others the entryUUID; the rest has gone |
//! | changes | from one snapshot to a newer one, as a [persistent search](super::Persistent) does |
//!
//! Contents come without a cookie, with one of another server or that does not reach back far enough. Where what the
//! consumer gets may change without a change of the entry, they come always, and all entries whole: to those who do not
//! see every entry, as rules change; and where a search covers a part of a naming context, as entries enter and leave
//! with one above them that is renamed.
//!
//! A cookie names no change above the watermark. It has the numbers of the snapshot with which the refresh began, also
//! if that went on in newer ones: what was changed meanwhile is told again.

mod cookies;
mod later;
mod sinks;
mod telling;

use std::sync::Arc;

use sapwood_ldap::controls::{Control, ControlsBuf, SYNC_DONE, SyncDone, SyncMode, SyncRequest};
use sapwood_ldap::message::{DerefAliases, Scope, SearchRequest};
use sapwood_ldap::result::ResultCode;
use sapwood_ldap::sync_info::{SYNC_INFO, SyncInfo};
use sapwood_replication::{Cookie, Vector};

use self::cookies::Given;
use self::sinks::{Contents, UuidSet};
use self::telling::{Telling, Told};
use super::begin::planner;
use super::unbegun::Unbegun;
use super::{Budget, Running, Search, SearchOptions, Sink, Stage as SearchStage, Step, Wire};
use crate::access::{Requester, Sight};
use crate::changes::vector;
use crate::directory::{ChangeReader, Snapshot};
use crate::engine::{self, Embedded, Engine};
use crate::error::{Error, Result};
use crate::outcome::Outcome;

/// Bytes of a message around what it tells at most.
const ENVELOPE_BYTES_MAX: usize = 128;

/// A search of a consumer under way.
pub struct Synchronisation<E: Engine = Embedded> {
    /// The search that each change is held against: without the limits of the server, which are for a refresh.
    asked: Unbegun,
    persists: bool,
    /// What the cookies of this search begin with.
    cookies: cookies::Writer,
    /// Reads the feed behind the snapshot that the refresh has begun with.
    reader: Option<ChangeReader<E>>,
    /// What the consumer has, as it was told by a cookie last.
    has: Vector,
    extent: Extent,
    stage: Stage<E>,
}

/// What a consumer sees and asks for.
struct Extent {
    /// By what is granted to it.
    granted: Option<Arc<Requester>>,
    /// Whether it sees all of every entry.
    sees_all: bool,
    /// Whether it asks for whole naming contexts.
    is_whole: bool,
}

enum Stage<E: Engine> {
    /// Nothing has been looked at.
    Unbegun(Box<Beginning<E>>),
    Contents(Box<Existing<E>>),
    /// All of a snapshot was told.
    Waiting(Snapshot<E>),
    Telling(Box<Telling<E>>),
    /// It has ended.
    Over,
}

struct Beginning<E: Engine> {
    snapshot: Snapshot<E>,
    contents: Unbegun,
    given: Given,
}

/// All there is, on its way.
struct Existing<E: Engine> {
    search: Search<E>,
    /// What it was begun with.
    begun: Unbegun,
    /// What the consumer has.
    known: Vector,
    /// Entries that are as the consumer has them.
    unchanged: UuidSet,
    /// The cookie for it.
    cookie: Vec<u8>,
    /// Whether the search went on in a newer snapshot.
    is_renewed: bool,
    /// Whether all entries are told.
    is_told: bool,
}

impl<E: Engine> Synchronisation<E> {
    /// Begins one. What is wrong is told by the first step.
    ///
    /// # Errors
    /// An outcome when the request does not go with a synchronisation.
    pub fn new(
        snapshot: Snapshot<E>,
        requester: &Arc<Requester>,
        request: &SearchRequest<'_>,
        options: SearchOptions,
        wanted: &SyncRequest<'_>,
    ) -> std::result::Result<Synchronisation<E>, Outcome> {
        let follows = matches!(
            request.deref_aliases,
            DerefAliases::InSearching | DerefAliases::Always
        );
        if follows {
            let diagnostic = "a synchronisation follows no aliases (RFC 4533 section 3.5.2)";
            return Err(Outcome::new(ResultCode::ProtocolError, diagnostic));
        }
        let cookie = match wanted.cookie.map(Cookie::parse) {
            None => Some(Cookie::default()),
            Some(Ok(cookie)) => Some(cookie),
            Some(Err(_)) if wanted.reload_hint => None,
            Some(Err(error)) => return Err(refresh_required(&error.to_string())),
        };
        let cookie = cookie.unwrap_or_default();
        let replica = snapshot.directory().options().replica;
        let settings = &snapshot.state().settings;
        let only_of = settings.takes_updates_of_others().then_some(replica);
        let options = SearchOptions {
            as_stored: true,
            manage_dsa_it: true,
            tells_usability: false,
            page: None,
            ..options
        };
        let of_changes = SearchOptions {
            assertion: None,
            deadline_micros: None,
            ..options.clone()
        };
        let without_time = SearchRequest {
            time_limit: 0,
            ..*request
        };
        let asked = Unbegun::new(&snapshot, requester, &without_time, &of_changes);
        let contents = Unbegun::new(&snapshot, requester, request, &options);
        Ok(Synchronisation {
            asked,
            persists: wanted.mode == SyncMode::RefreshAndPersist,
            cookies: cookies::Writer {
                agreement: cookie.rid,
                replica,
            },
            reader: None,
            has: Vector::default(),
            extent: Extent {
                granted: None,
                sees_all: false,
                is_whole: false,
            },
            stage: Stage::Unbegun(Box::new(Beginning {
                snapshot,
                contents,
                given: Given {
                    cookie,
                    may_reload: wanted.reload_hint,
                    only_of,
                },
            })),
        })
    }

    /// Whether it waits for a newer snapshot: its last step was [`Step::Wait`].
    pub fn waits(&self) -> bool {
        matches!(self.stage, Stage::Waiting(_))
    }

    /// The snapshot on which something was not here, after [`Step::Fetch`].
    pub fn snapshot(&self) -> Option<&Snapshot<E>> {
        match &self.stage {
            Stage::Unbegun(beginning) => Some(&beginning.snapshot),
            Stage::Contents(existing) => Some(existing.search.snapshot()),
            Stage::Waiting(snapshot) => Some(snapshot),
            Stage::Telling(telling) => Some(telling.asked_last()),
            Stage::Over => None,
        }
    }

    /// Whether a part of the next message is gathered: see [`Search::is_gathering`].
    pub fn is_gathering(&self) -> bool {
        match &self.stage {
            Stage::Contents(existing) => existing.search.is_gathering(),
            Stage::Telling(telling) => telling.is_gathering(),
            _ => false,
        }
    }

    /// Has one that waits go on with what a newer snapshot shows, for somebody as they are by then.
    pub fn go_on(&mut self, snapshot: Snapshot<E>, requester: &Arc<Requester>) {
        self.stage = match std::mem::replace(&mut self.stage, Stage::Over) {
            Stage::Waiting(told) => {
                self.asked.set_requester(requester);
                Stage::Telling(Box::new(Telling::between(told, snapshot)))
            }
            stage => stage,
        };
    }

    /// Has one that tells contents go on in a newer snapshot, for somebody as they are by then; whether it can. Who
    /// does not see everything would have to be told afterwards what they cannot see any more.
    pub fn renew(&mut self, snapshot: Snapshot<E>, requester: &Arc<Requester>) -> bool {
        let Stage::Contents(existing) = &mut self.stage else {
            return false;
        };
        if self.persists && !self.extent.sees_all {
            return false;
        }
        existing.begun.set_requester(requester);
        let request = existing.begun.request();
        let options = existing.begun.options().clone();
        (existing.search).renew(snapshot, requester, &request, options);
        existing.is_renewed = true;
        true
    }

    /// Goes on: gives entries and messages to `wire`.
    ///
    /// # Errors
    /// When the engine fails, stored data is damaged, or the feed does not reach back any more; the search cannot go on
    /// then, nor after its end.
    pub fn step(&mut self, wire: &mut Wire<'_>, budget: Budget) -> Result<Step> {
        let step = match &mut self.stage {
            Stage::Unbegun(_) => self.begin(),
            Stage::Contents(_) => self.step_contents(wire, budget),
            Stage::Waiting(_) => Ok(Step::Wait),
            Stage::Telling(_) => self.step_telling(wire, budget),
            Stage::Over => Err(Error::State("the search is over".into())),
        };
        let step = match step {
            Err(error) if E::REMOTE && error.is_not_here() => Ok(Step::Fetch),
            step => step,
        };
        if matches!(step, Ok(Step::Done(_)) | Err(_)) {
            self.stage = Stage::Over;
        }
        step
    }

    /// Finds out how the refresh is done.
    fn begin(&mut self) -> Result<Step> {
        let Stage::Unbegun(beginning) = &self.stage else {
            return Ok(Step::More);
        };
        let (snapshot, given) = (&beginning.snapshot, &beginning.given);
        let running = match self.asked.begin_for_told(snapshot)? {
            Ok(running) => running,
            Err(outcome) => return Ok(Step::Done(outcome)),
        };
        let complete = vector::of(snapshot.view())?;
        let behind = snapshot.change_position_here()?;
        if let Err(outcome) = given.check(&complete) {
            return Ok(Step::Done(outcome));
        }
        let extent = Extent::of(snapshot, &running)?;
        let position = given.position(&complete, self.cookies.replica);
        let mut replayed = None;
        if let Some(position) = position.filter(|_| extent.follows_changes()) {
            let mut reader = snapshot.directory().read_changes(position);
            match reader.take(snapshot, 0, |_| {}) {
                Ok(_) => replayed = Some(reader),
                Err(Error::Engine(engine::Error::TooOld)) => {}
                Err(error) => return Err(error),
            }
        }
        let known = match extent.follows_changes() {
            true => given.known(&complete),
            false => Vector::default(),
        };
        let cookie = self.cookies.write(&complete, &behind);
        self.extent = extent;
        let Stage::Unbegun(beginning) = std::mem::replace(&mut self.stage, Stage::Over) else {
            return Ok(Step::More);
        };
        let Beginning {
            snapshot, contents, ..
        } = *beginning;
        self.has = complete;
        if let Some(reader) = replayed {
            self.reader = Some(reader);
            self.stage = Stage::Telling(Box::new(Telling::replay(snapshot)));
            return Ok(Step::More);
        }
        self.reader = Some(snapshot.directory().read_changes(behind));
        // Made twice, as the search goes on by itself.
        let options = contents.options().clone();
        let begun = Unbegun::new(
            &snapshot,
            contents.requester(),
            &contents.request(),
            &options,
        );
        let search = Search {
            snapshot,
            stage: SearchStage::Unbegun(Box::new(contents)),
            resumed: None,
        };
        self.stage = Stage::Contents(Box::new(Existing {
            search,
            begun,
            known,
            unchanged: UuidSet::default(),
            cookie,
            is_renewed: false,
            is_told: false,
        }));
        Ok(Step::More)
    }

    fn step_contents(&mut self, wire: &mut Wire<'_>, budget: Budget) -> Result<Step> {
        let Stage::Contents(existing) = &mut self.stage else {
            return Ok(Step::More);
        };
        if !existing.is_told {
            let snapshot = existing.search.snapshot().clone();
            let keeps_values_apart = snapshot.state().settings.keeps_values_apart();
            let registers = keeps_values_apart.then(|| snapshot.view());
            let known = (&existing.known, registers);
            let mut sink = Contents::new(wire, known, &mut existing.unchanged);
            let step = existing.search.step(&mut sink, budget)?;
            if let Some(error) = sink.failed() {
                return Err(error);
            }
            match step {
                Step::Done(outcome) if outcome.code == ResultCode::Success => {
                    existing.is_told = true;
                }
                step => return Ok(step),
            }
        }
        let bytes = existing.unchanged.bytes_max() + existing.cookie.len() + ENVELOPE_BYTES_MAX;
        if wire.bytes() + bytes > budget.out_bytes {
            return Ok(Step::Room(bytes));
        }
        existing.unchanged.put(wire, false);
        let done = end_of_refresh(wire, self.persists, &existing.cookie, false);
        let snapshot = existing.search.snapshot().clone();
        match existing.is_renewed {
            // It is told what has changed meanwhile, in place of what may have been told before it did.
            true if self.persists => {
                self.stage = Stage::Telling(Box::new(Telling::since_refresh(snapshot)));
                Ok(Step::More)
            }
            _ => {
                self.stage = Stage::Waiting(snapshot);
                Ok(done)
            }
        }
    }

    fn step_telling(&mut self, wire: &mut Wire<'_>, budget: Budget) -> Result<Step> {
        let Stage::Telling(telling) = &mut self.stage else {
            return Ok(Step::More);
        };
        let Some(reader) = &mut self.reader else {
            return Err(Error::State("nobody reads the feed".into()));
        };
        match telling.step(wire, budget, (&self.asked, &self.extent, reader))? {
            Told::All => {}
            Told::Part(step) => return Ok(step),
        }
        let complete = vector::of(telling.snapshot().view())?;
        let cookie = self.cookies.write(&complete, reader.position());
        let bytes = telling.gone_bytes_max() + cookie.len() + ENVELOPE_BYTES_MAX;
        if wire.bytes() + bytes > budget.out_bytes {
            return Ok(Step::Room(bytes));
        }
        telling.put_gone(wire);
        let snapshot = telling.snapshot().clone();
        let step = match telling.is_refresh() {
            true => end_of_refresh(wire, self.persists, &cookie, true),
            false => {
                if complete != self.has {
                    put_info(wire, &SyncInfo::NewCookie(&cookie));
                }
                Step::Wait
            }
        };
        self.has = complete;
        self.stage = Stage::Waiting(snapshot);
        Ok(step)
    }
}

impl Extent {
    /// Whether what the consumer gets changes with changes of its entries alone.
    fn follows_changes(&self) -> bool {
        self.sees_all && self.is_whole
    }

    fn of<E: Engine>(snapshot: &Snapshot<E>, running: &Running) -> Result<Extent> {
        let is_whole = running.covered.scope() == Scope::Subtree
            && (running.covered.base().is_root() || running.is_at_top(&planner(snapshot))?);
        Ok(Extent {
            granted: Some(running.requester.clone()),
            sees_all: running.requester.grants().sight() == Sight::All,
            is_whole,
        })
    }
}

/// Ends a refresh: with a message, after which changes are told, or with the search.
fn end_of_refresh(wire: &mut Wire<'_>, persists: bool, cookie: &[u8], deletes: bool) -> Step {
    let cookie = Some(cookie);
    if persists {
        let done = true;
        let info = match deletes {
            true => SyncInfo::RefreshDelete { cookie, done },
            false => SyncInfo::RefreshPresent { cookie, done },
        };
        put_info(wire, &info);
        return Step::Wait;
    }
    let mut value = Vec::new();
    let done = SyncDone {
        cookie,
        refresh_deletes: deletes,
    };
    done.encode(&mut value);
    let mut controls = ControlsBuf::default();
    controls.push(Control {
        oid: SYNC_DONE,
        critical: false,
        value: Some(&value),
    });
    let mut outcome = Outcome::SUCCESS;
    outcome.controls = controls.view().as_ber().to_vec();
    Step::Done(outcome)
}

fn put_info(wire: &mut Wire<'_>, info: &SyncInfo<'_>) {
    let mut value = Vec::new();
    info.encode(&mut value);
    wire.put_intermediate(SYNC_INFO, &value);
}

/// A consumer has to begin anew (RFC 4533 §3.8).
fn refresh_required(why: &str) -> Outcome {
    Outcome::new(
        ResultCode::SyncRefreshRequired,
        format!("synchronise anew: {why}"),
    )
}
