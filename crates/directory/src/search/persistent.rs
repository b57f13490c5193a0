//! Persistent searches (draft-ietf-ldapext-psearch): a search that tells what there is, then waits, and tells what
//! changes.
//!
//! It goes from one snapshot to a newer one. The change feed says which entries were changed between the two; what
//! became of them the snapshots themselves say: an entry that only the newer one has was added, one that only the older
//! one has was deleted. So each change is told once, as what it came to, however often an entry was changed meanwhile,
//! and a deleted entry is told as it was, to those only who could see it. Base, scope, filter and access are those of
//! any search, with the rules, the groups and the data of each snapshot.
//!
//! While it waits it holds the snapshot that it has told all of. Its client reads what follows in a bounded time, or it
//! is [given up](Persistent::too_slow): what has been deleted since is not kept for it.

use std::collections::HashMap;
use std::sync::Arc;

use sapwood_ldap::controls::{
    ChangeType, ControlsBuf, EntryChange, PersistentSearch, entry_change_notification,
};
use sapwood_ldap::message::SearchRequest;
use sapwood_ldap::result::ResultCode;

use super::unbegun::Unbegun;
use super::{Budget, Running, Search, SearchOptions, Step, Wire};
use crate::access::{Asked, Requester};
use crate::changes::ChangeKind;
use crate::directory::{ChangeReader, Snapshot};
use crate::engine::{Embedded, Engine, EntryId, Read, Table};
use crate::error::{Error, Result};
use crate::names;
use crate::outcome::Outcome;

/// Changes that are read from the feed at once; an entry that was changed several times among them is told once.
const READ_AT_ONCE: usize = 256;
/// Changed entries that are looked at in one step at most; each may do that part of the step's work.
const LOOKED_AT_ONCE: u64 = 64;

/// A persistent search under way.
pub struct Persistent<E: Engine = Embedded> {
    wanted: PersistentSearch,
    /// The search that each change is held against: without the limits of the server, which are for what there is.
    asked: Unbegun,
    size_limit: u32,
    /// Entries and references that were sent for changes.
    sent: u32,
    reader: Option<ChangeReader<E>>,
    stage: Progress<E>,
}

enum Progress<E: Engine> {
    /// What there is, is being told.
    Existing(Search<E>),
    /// All of a snapshot was told.
    Waiting(Snapshot<E>),
    /// What has changed is being told.
    Telling(Box<Telling<E>>),
    /// It has ended.
    Over,
}

/// What has changed from one snapshot to another.
struct Telling<E: Engine> {
    before: Side<E>,
    now: Side<E>,
    /// What was read from the feed and is to be told yet, the first last.
    changed: Vec<Changed>,
    /// Whether the feed has no more.
    is_read: bool,
    /// What is being told.
    told: Option<Told>,
    /// Whether something of the older snapshot was not here when that was asked last.
    lacks_before: bool,
}

/// One of two snapshots, and the search in it.
pub(super) struct Side<E: Engine> {
    pub(super) snapshot: Snapshot<E>,
    pub(super) search: Begun,
}

/// How far the search in a snapshot has come.
pub(super) enum Begun {
    /// Nothing has been asked of it.
    NotYet,
    /// It covers nothing there.
    Nothing,
    /// It is told its candidates.
    Running(Box<Running>),
}

/// An entry that was changed.
#[derive(Clone, Copy, Debug)]
struct Changed {
    id: EntryId,
    /// Whether its attributes were changed, and its name.
    modified: bool,
    renamed: bool,
}

/// A change that is being told.
struct Told {
    /// Whether the entry is told as it was.
    is_before: bool,
    /// The value of its notification, if that is wanted.
    notification: Option<Vec<u8>>,
}

impl<E: Engine> Persistent<E> {
    /// Begins one. What is wrong is told by the first step.
    pub fn new(
        snapshot: Snapshot<E>,
        requester: &Arc<Requester>,
        request: &SearchRequest<'_>,
        options: SearchOptions,
        wanted: PersistentSearch,
    ) -> Persistent<E> {
        let of_changes = SearchOptions {
            assertion: None,
            page: None,
            entries_max: 0,
            deadline_micros: None,
            ..options.clone()
        };
        let asked = Unbegun::new(&snapshot, requester, request, &of_changes);
        let search = Search::new(snapshot, requester, request, options);
        Persistent {
            wanted,
            asked,
            size_limit: request.size_limit,
            sent: 0,
            reader: None,
            stage: Progress::Existing(search),
        }
    }

    /// Whether it waits for a newer snapshot: its last step was [`Step::Wait`].
    pub fn waits(&self) -> bool {
        matches!(self.stage, Progress::Waiting(_))
    }

    /// When it ends, as its client has said, in microseconds of the directory's clock.
    pub fn deadline_micros(&self) -> Option<u64> {
        self.asked.limits().deadline_micros
    }

    /// The outcome of one whose time is over while it waits.
    pub fn out_of_time() -> Outcome {
        let diagnostic = "the time limit of the persistent search is over";
        Outcome::new(ResultCode::TimeLimitExceeded, diagnostic)
    }

    /// The outcome of one that takes too long to tell what there is, or what has changed: what it reads is kept from
    /// being forgotten for nobody that long.
    pub fn too_slow() -> Outcome {
        let diagnostic =
            "changes are not kept any longer for a client that reads them so slowly: search anew";
        Outcome::new(ResultCode::AdminLimitExceeded, diagnostic)
    }

    /// The snapshot on which something was not here, after [`Step::Fetch`].
    pub fn snapshot(&self) -> Option<&Snapshot<E>> {
        match &self.stage {
            Progress::Existing(search) => Some(search.snapshot()),
            Progress::Waiting(snapshot) => Some(snapshot),
            Progress::Telling(telling) => Some(match telling.lacks_before {
                true => &telling.before.snapshot,
                false => &telling.now.snapshot,
            }),
            Progress::Over => None,
        }
    }

    /// Whether a part of the next message is gathered: see [`Search::is_gathering`].
    pub fn is_gathering(&self) -> bool {
        match &self.stage {
            Progress::Existing(search) => search.is_gathering(),
            Progress::Telling(telling) => {
                telling.before.is_gathering() || telling.now.is_gathering()
            }
            _ => false,
        }
    }

    /// Has one that waits go on with what a newer snapshot shows, for somebody as they are by then.
    pub fn go_on(&mut self, snapshot: Snapshot<E>, requester: &Arc<Requester>) {
        self.stage = match std::mem::replace(&mut self.stage, Progress::Over) {
            Progress::Waiting(told) => {
                self.asked.set_requester(requester);
                Progress::Telling(Box::new(Telling {
                    before: Side::new(told),
                    now: Side::new(snapshot),
                    changed: Vec::new(),
                    is_read: false,
                    told: None,
                    lacks_before: false,
                }))
            }
            stage => stage,
        };
    }

    /// Goes on: gives entries and references to `wire`, those of changes with their notifications.
    ///
    /// # Errors
    /// When the engine fails, stored data is damaged, or the feed does not reach back any more; the search cannot go on
    /// then, nor after its end.
    pub fn step(&mut self, wire: &mut Wire<'_>, budget: Budget) -> Result<Step> {
        let step = match &mut self.stage {
            Progress::Existing(_) => self.step_existing(wire, budget),
            Progress::Waiting(_) => Ok(Step::Wait),
            Progress::Telling(_) => self.step_telling(wire, budget),
            Progress::Over => Err(Error::State("the search is over".into())),
        };
        let step = match step {
            Err(error) if E::REMOTE && error.is_not_here() => Ok(Step::Fetch),
            step => step,
        };
        if matches!(step, Ok(Step::Done(_)) | Err(_)) {
            self.stage = Progress::Over;
        }
        step
    }

    fn step_existing(&mut self, wire: &mut Wire<'_>, budget: Budget) -> Result<Step> {
        let Progress::Existing(search) = &mut self.stage else {
            return Ok(Step::More);
        };
        if self.reader.is_none() {
            let snapshot = search.snapshot();
            // Asked before anything is sent: whether there is anything to wait for.
            if let Err(outcome) = self.asked.begin_for_told(snapshot)? {
                return Ok(Step::Done(outcome));
            }
            let position = snapshot.change_position_here()?;
            self.reader = Some(snapshot.directory().read_changes(position));
        }
        if !self.wanted.changes_only || search.is_beginning() {
            match search.step(wire, budget)? {
                Step::Done(outcome) if outcome.code == ResultCode::Success => {}
                step => return Ok(step),
            }
        }
        self.stage = Progress::Waiting(search.snapshot().clone());
        Ok(Step::Wait)
    }

    fn step_telling(&mut self, wire: &mut Wire<'_>, budget: Budget) -> Result<Step> {
        let Progress::Telling(telling) = &mut self.stage else {
            return Ok(Step::More);
        };
        let each = Budget {
            work: budget.work / LOOKED_AT_ONCE,
            ..budget
        };
        for _ in 0..LOOKED_AT_ONCE {
            telling.lacks_before = false;
            if telling.told.is_none() {
                let Some(changed) = telling.changed.last().copied() else {
                    if telling.is_read {
                        self.stage = Progress::Waiting(telling.now.snapshot.clone());
                        return Ok(Step::Wait);
                    }
                    let Some(reader) = &mut self.reader else {
                        return Err(Error::State("nobody reads the feed".into()));
                    };
                    telling.read(reader)?;
                    continue;
                };
                match telling.look(changed, &self.asked, self.wanted)? {
                    Ok(told) => telling.told = told,
                    Err(outcome) => return Ok(Step::Done(outcome)),
                }
                telling.changed.pop();
            }
            let Some(told) = &telling.told else {
                continue;
            };
            telling.lacks_before = told.is_before;
            let side = match told.is_before {
                true => &mut telling.before,
                false => &mut telling.now,
            };
            let Begun::Running(running) = &mut side.search else {
                telling.told = None;
                continue;
            };
            if self.size_limit > 0 {
                running.limits.entries_max = self.size_limit.saturating_sub(self.sent);
            }
            let mut controls = ControlsBuf::default();
            wire.controls()
                .iter()
                .for_each(|control| controls.push(control));
            if let Some(value) = &told.notification {
                controls.push(entry_change_notification(value));
            }
            let mut wire = wire.carrying(controls.view());
            match running.step(&side.snapshot, &mut wire, each)? {
                Step::Done(outcome) if outcome.code == ResultCode::Success => {
                    self.sent = self.sent.saturating_add(std::mem::take(&mut running.sent));
                    telling.told = None;
                }
                Step::Done(outcome) if outcome.code == ResultCode::SizeLimitExceeded => {
                    let diagnostic = format!("more than {} entries have changed", self.size_limit);
                    let code = ResultCode::SizeLimitExceeded;
                    return Ok(Step::Done(Outcome::new(code, diagnostic)));
                }
                step => return Ok(step),
            }
        }
        Ok(Step::More)
    }
}

impl<E: Engine> Side<E> {
    pub(super) fn new(snapshot: Snapshot<E>) -> Side<E> {
        Side {
            snapshot,
            search: Begun::NotYet,
        }
    }

    pub(super) fn has(&self, id: EntryId) -> Result<bool> {
        let record = self.snapshot.view().get(Table::Entry, &id.to_key())?;
        Ok(record.is_some())
    }

    /// Whether a part of the next message is gathered: see [`Search::is_gathering`].
    pub(super) fn is_gathering(&self) -> bool {
        matches!(&self.search, Begun::Running(running) if running.gathered.is_some())
    }

    /// The search in it, if it covers anything there; an outcome ends the search.
    pub(super) fn search(
        &mut self,
        asked: &Unbegun,
    ) -> Result<std::result::Result<Option<&mut Running>, Outcome>> {
        if let Begun::NotYet = self.search {
            self.search = match asked.begin_for_told(&self.snapshot)? {
                Ok(running) => Begun::Running(running),
                Err(outcome) if outcome.code == ResultCode::InsufficientAccessRights => {
                    return Ok(Err(outcome));
                }
                // The base is not there, or leads elsewhere; it may come back.
                Err(_) => Begun::Nothing,
            };
        }
        Ok(Ok(match &mut self.search {
            Begun::Running(running) => Some(running),
            Begun::NotYet | Begun::Nothing => None,
        }))
    }
}

impl<E: Engine> Telling<E> {
    /// Reads more changes from the feed.
    fn read(&mut self, reader: &mut ChangeReader<E>) -> Result<()> {
        let changed = &mut self.changed;
        let mut places = HashMap::new();
        self.is_read = reader.take(&self.now.snapshot, READ_AT_ONCE, |change| {
            let at = *places.entry(change.entry).or_insert_with(|| {
                changed.push(Changed {
                    id: change.entry,
                    modified: false,
                    renamed: false,
                });
                changed.len() - 1
            });
            changed[at].modified |= change.kind == ChangeKind::Modified;
            changed[at].renamed |= change.kind == ChangeKind::Renamed;
        })?;
        self.changed.reverse();
        Ok(())
    }

    /// What is to be told of a changed entry, if anything, and has the search of that side look at it next. An outcome
    /// ends the search.
    fn look(
        &mut self,
        changed: Changed,
        asked: &Unbegun,
        wanted: PersistentSearch,
    ) -> Result<std::result::Result<Option<Told>, Outcome>> {
        let id = changed.id;
        let is_now = self.now.has(id)?;
        self.lacks_before = true;
        let was_before = self.before.has(id)?;
        self.lacks_before = false;
        let (kind, is_before) = match (was_before, is_now) {
            (false, true) => (ChangeType::Add, false),
            (true, false) => (ChangeType::Delete, true),
            (true, true) if changed.renamed && wanted.types.has(ChangeType::ModDn) => {
                (ChangeType::ModDn, false)
            }
            (true, true) if changed.modified => (ChangeType::Modify, false),
            _ => return Ok(Ok(None)),
        };
        if !wanted.types.has(kind) {
            return Ok(Ok(None));
        }
        let mut previous_dn = None;
        if kind == ChangeType::ModDn && wanted.notifies {
            self.lacks_before = true;
            previous_dn = self.previous_dn(id, asked)?;
        }
        self.lacks_before = is_before;
        let side = match is_before {
            true => &mut self.before,
            false => &mut self.now,
        };
        match side.search(asked)? {
            Ok(Some(running)) => running.aim(id),
            Ok(None) => return Ok(Ok(None)),
            Err(_) if is_before => return Ok(Ok(None)),
            Err(outcome) => return Ok(Err(outcome)),
        }
        let notification = wanted.notifies.then(|| {
            let mut value = Vec::new();
            let change = EntryChange {
                kind,
                previous_dn: previous_dn.as_deref(),
                number: None,
            };
            change.encode(&mut value);
            value
        });
        Ok(Ok(Some(Told {
            is_before,
            notification,
        })))
    }

    /// What the DN of a renamed entry was, if the entry might be known of.
    fn previous_dn(&mut self, id: EntryId, asked: &Unbegun) -> Result<Option<String>> {
        let Side { snapshot, .. } = &self.before;
        let snapshot = snapshot.clone();
        let requester = match self.before.search(asked)? {
            Ok(Some(running)) => running.requester.clone(),
            Ok(None) | Err(_) => return Ok(None),
        };
        let dn = names::normal_dn_of(snapshot.view(), snapshot.schema(), id)?;
        let asked = Asked {
            view: snapshot.view(),
            schema: snapshot.schema(),
            dn: &dn,
            id,
        };
        match requester.grants().discloses(&asked)? {
            true => Ok(Some(names::dn_of(snapshot.view(), id)?)),
            false => Ok(None),
        }
    }
}
