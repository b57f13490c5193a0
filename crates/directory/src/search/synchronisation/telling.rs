//! Telling what has changed, as the change feed names it: each entry as it is in a snapshot, and which have gone.
//!
//! Entries come in the order of their last changes, but none before an entry above it that is new or has a new name:
//! what later portions of the feed say of these is known from [`Later`]. With an older snapshot at hand an entry has
//! gone if it was a result there. Without one, each changed entry that is no result has: the consumer may have had it.

use std::collections::HashMap;
use std::collections::hash_map::Entry::{Occupied, Vacant};

use sapwood_ldap::controls::{ControlsBuf, EntryState};
use sapwood_ldap::list::AttributesBuf;
use sapwood_ldap::result::ResultCode;

use super::later::Later;
use super::sinks::{Changed as ChangedEntry, Probe, UuidSet, push_state};
use super::{ENVELOPE_BYTES_MAX, Extent, refresh_required};
use crate::changes::{ChangeKind, Csn};
use crate::directory::{ChangeReader, Snapshot};
use crate::engine::{Engine, EntryId, Read, Table};
use crate::entry::Entry;
use crate::error::{Error, Result};
use crate::matching::sink::{Sink, Wire};
use crate::names;
use crate::operational::{self, Vocabulary};
use crate::outcome::Outcome;
use crate::schema::NormalDn;
use crate::search::persistent::{Begun, Side};
use crate::search::unbegun::Unbegun;
use crate::search::{Budget, Running, Step};

/// Changes that are read from the feed at once; an entry that was changed several times among them is told once.
const READ_AT_ONCE: usize = 256;
/// Changed entries that are looked at in one step at most; each may do that part of the step's work.
const LOOKED_AT_ONCE: u64 = 64;

/// How far a step has come.
pub(super) enum Told {
    /// Everything is told.
    All,
    /// Not yet.
    Part(Step),
}

/// What has changed up to a snapshot.
pub(super) struct Telling<E: Engine> {
    before: Option<Side<E>>,
    now: Side<E>,
    /// Whether it is the refresh of a consumer.
    is_refresh: bool,
    /// Whether it is known that what is granted has not changed.
    is_granted: bool,
    /// What was read from the feed and is not told yet.
    changed: HashMap<EntryId, Changed>,
    /// The same, in the order of the last changes, the first last. Some may be told already.
    order: Vec<EntryId>,
    /// Whether the feed has no more.
    is_read: bool,
    /// Where the feed has more than is read at once: which entries are not told in their turn.
    later: Option<Later<E>>,
    told: Option<ToldEntry>,
    /// What the deleted ones of these were called.
    deleted_names: HashMap<EntryId, String>,
    /// Entries that have gone, and of which neither name nor number are known.
    gone: UuidSet,
    /// Whether something of the older snapshot was not here when that was asked last.
    lacks_before: bool,
}

/// What the feed says of an entry.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Changed {
    /// Its place in the order.
    at: usize,
    is_new: bool,
    is_renamed: bool,
    /// The entryUUID of one that was deleted, and the number of that change.
    deleted: Option<([u8; 16], Csn)>,
}

impl Changed {
    /// One of which only the name is known.
    pub(super) fn named(is_new: bool, is_renamed: bool) -> Changed {
        Changed {
            is_new,
            is_renamed,
            ..Changed::default()
        }
    }

    /// With a change of some kind.
    pub(super) fn and(self, kind: ChangeKind) -> Changed {
        Changed {
            is_new: self.is_new || kind == ChangeKind::Added,
            is_renamed: self.is_renamed || kind == ChangeKind::Renamed,
            ..self
        }
    }

    /// Takes what another portion says of the name.
    pub(super) fn add(&mut self, other: Changed) {
        self.is_new |= other.is_new;
        self.is_renamed |= other.is_renamed;
    }

    /// Whether there is a new name.
    pub(super) fn is_named(&self) -> bool {
        self.is_new || self.is_renamed
    }
}

/// An entry that is being told.
struct ToldEntry {
    id: EntryId,
    changed: Changed,
    phase: Phase,
    /// The entryUUID that the consumer knows it by.
    was: Option<[u8; 16]>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// What the feed says of it is looked at.
    Begun,
    /// Whether it was a result is found out.
    Before,
    /// That is known.
    Known,
    /// It is sent, if it is a result.
    Now,
    /// It has gone.
    Gone,
}

impl<E: Engine> Telling<E> {
    /// What has changed from one snapshot to another.
    pub(super) fn between(before: Snapshot<E>, now: Snapshot<E>) -> Telling<E> {
        Telling {
            before: Some(Side::new(before)),
            ..Telling::replay(now).for_persist()
        }
    }

    /// What has changed while the contents were told, up to a snapshot.
    pub(super) fn since_refresh(now: Snapshot<E>) -> Telling<E> {
        Telling::replay(now).for_persist()
    }

    /// What has changed since a consumer was told everything last.
    pub(super) fn replay(now: Snapshot<E>) -> Telling<E> {
        Telling {
            before: None,
            now: Side::new(now),
            is_refresh: true,
            is_granted: false,
            changed: HashMap::new(),
            order: Vec::new(),
            is_read: false,
            later: None,
            told: None,
            deleted_names: HashMap::new(),
            gone: UuidSet::default(),
            lacks_before: false,
        }
    }

    fn for_persist(self) -> Telling<E> {
        Telling {
            is_refresh: false,
            ..self
        }
    }

    pub(super) fn is_refresh(&self) -> bool {
        self.is_refresh
    }

    /// The snapshot up to which it tells.
    pub(super) fn snapshot(&self) -> &Snapshot<E> {
        &self.now.snapshot
    }

    /// The snapshot on which something was not here.
    pub(super) fn asked_last(&self) -> &Snapshot<E> {
        match &self.before {
            Some(before) if self.lacks_before => &before.snapshot,
            _ => &self.now.snapshot,
        }
    }

    pub(super) fn is_gathering(&self) -> bool {
        self.now.is_gathering()
    }

    /// Bytes of the message at most that tells of entries which have gone.
    pub(super) fn gone_bytes_max(&self) -> usize {
        self.gone.bytes_max()
    }

    /// Tells of entries that have gone and were not told of.
    pub(super) fn put_gone(&mut self, wire: &mut Wire<'_>) {
        self.gone.put(wire, true);
    }

    /// Goes on.
    pub(super) fn step(
        &mut self,
        wire: &mut Wire<'_>,
        budget: Budget,
        (asked, extent, reader): (&Unbegun, &Extent, &mut ChangeReader<E>),
    ) -> Result<Told> {
        let each = Budget {
            work: budget.work / LOOKED_AT_ONCE,
            ..budget
        };
        if !self.is_granted {
            let current = self.now.snapshot.current(asked.requester())?;
            let is_same = |before: &_| current.grants().are_same(before);
            if extent
                .granted
                .as_ref()
                .is_some_and(|before| !is_same(before.grants()))
            {
                return Ok(ended("what the consumer may see has changed"));
            }
            self.is_granted = true;
        }
        for _ in 0..LOOKED_AT_ONCE {
            self.lacks_before = false;
            let Some(told) = &mut self.told else {
                if let Some(later) = &mut self.later
                    && later.read(&self.now.snapshot)?
                {
                    return Ok(Told::Part(Step::More));
                }
                match self.next()? {
                    Some(told) => self.told = Some(told),
                    None if self.is_read => return Ok(Told::All),
                    None => self.read(reader)?,
                }
                continue;
            };
            let id = told.id;
            self.lacks_before = told.phase == Phase::Before;
            match told.phase {
                Phase::Begun => {
                    if told.changed.is_renamed && self.moves_others(id, asked, extent)? {
                        return Ok(ended("entries below a renamed one have entered or left"));
                    }
                    if let Some(outcome) = self.aim_before(id, asked)? {
                        return Ok(Told::Part(Step::Done(outcome)));
                    }
                }
                Phase::Before => {
                    let Some(Side { snapshot, search }) = &mut self.before else {
                        told.phase = Phase::Known;
                        continue;
                    };
                    let Begun::Running(running) = search else {
                        told.phase = Phase::Known;
                        continue;
                    };
                    let mut probe = Probe::default();
                    let step = running.step(snapshot, &mut probe, each)?;
                    told.was = told.was.or(probe.found);
                    match step {
                        Step::Done(_) => {
                            running.sent = 0;
                            told.phase = Phase::Known;
                        }
                        step => return Ok(Told::Part(step)),
                    }
                }
                Phase::Known => {
                    if let Some(outcome) = self.aim_now(id, asked)? {
                        return Ok(Told::Part(Step::Done(outcome)));
                    }
                }
                Phase::Now => {
                    let Begun::Running(running) = &mut self.now.search else {
                        told.phase = Phase::Gone;
                        continue;
                    };
                    let state = match told.was {
                        Some(_) => EntryState::Modify,
                        None => EntryState::Add,
                    };
                    let mut sink = ChangedEntry::new(wire, state);
                    match running.step(&self.now.snapshot, &mut sink, each)? {
                        Step::Done(outcome) if outcome.code == ResultCode::Success => {
                            match std::mem::take(&mut running.sent) {
                                0 => told.phase = Phase::Gone,
                                _ => self.told = None,
                            }
                        }
                        step => return Ok(Told::Part(step)),
                    }
                }
                Phase::Gone => {
                    if self.is_there_again()? {
                        if !extent.follows_changes() {
                            return Ok(ended("an entry that was deleted is there again"));
                        }
                    } else if let Some(bytes) = self.tell_gone(wire, budget, (asked, extent))? {
                        return Ok(Told::Part(Step::Room(bytes)));
                    }
                    self.told = None;
                }
            }
        }
        Ok(Told::Part(Step::More))
    }

    /// Reads more changes from the feed.
    fn read(&mut self, reader: &mut ChangeReader<E>) -> Result<()> {
        let (changed, order) = (&mut self.changed, &mut self.order);
        let names = &mut self.deleted_names;
        changed.clear();
        order.clear();
        names.clear();
        self.is_read = reader.take(&self.now.snapshot, READ_AT_ONCE, |change| {
            let at = order.len();
            order.push(change.entry);
            let known = match changed.entry(change.entry) {
                Occupied(known) => known.into_mut(),
                Vacant(place) => place.insert(Changed::default()),
            };
            known.at = at;
            *known = known.and(change.kind);
            if change.kind == ChangeKind::Deleted {
                known.deleted = change.former.map(|former| (former.uuid, change.csn));
                let name = change
                    .former
                    .map_or(String::new(), |former| former.dn.to_owned());
                names.insert(change.entry, name);
            }
        })?;
        match &self.later {
            Some(later) => changed.retain(|id, _| !later.is_told(*id)),
            None if self.is_read => {}
            None => {
                self.later = Some(match self.before {
                    Some(_) => Later::compared(),
                    None => Later::read_by(reader.another()),
                });
            }
        }
        // Each at its last change.
        let mut at = 0;
        order.retain(|id| {
            at += 1;
            changed.get(id).is_some_and(|known| known.at == at - 1)
        });
        order.reverse();
        Ok(())
    }

    /// Which entry is told next.
    fn next(&mut self) -> Result<Option<ToldEntry>> {
        while let Some(&last) = self.order.last() {
            if !self.changed.contains_key(&last) {
                self.order.pop();
                continue;
            }
            let (id, early) = self.first_of_line(last)?;
            let is_there = self.now.has(id)?;
            let mut changed = self.changed.remove(&id).unwrap_or_default();
            changed.add(early);
            if let Some(later) = &mut self.later
                && changed.is_named()
                && is_there
            {
                later.keep(id, true);
            }
            return Ok(Some(ToldEntry {
                id,
                changed,
                phase: Phase::Begun,
                was: None,
            }));
        }
        Ok(None)
    }

    /// An entry, or the highest one above it that is new or has a new name and is not told yet; what later portions say
    /// of that one.
    fn first_of_line(&mut self, id: EntryId) -> Result<(EntryId, Changed)> {
        let in_turn = (id, Changed::default());
        let has_named = || self.changed.values().any(Changed::is_named);
        if !self.now.has(id)? || self.later.is_none() && !has_named() {
            return Ok(in_turn);
        }
        let mut names = self.now.snapshot.take_names();
        let parent = parent_of(&self.now.snapshot, id)?;
        let above = names.superior(self.now.snapshot.view(), parent);
        let line = names::if_named(above.map(|superior| {
            let line = superior.into_iter().flat_map(|superior| superior.line());
            line.collect::<Vec<_>>()
        }));
        self.now.snapshot.put_back_names(names);
        for above in line?.unwrap_or_default().into_iter().rev() {
            if let Some(later) = &mut self.later {
                let sides = (self.before.as_ref(), &self.now.snapshot);
                if let Some(due) = later.due(above, sides, &mut self.lacks_before)? {
                    return Ok((above, due));
                }
            }
            if self.changed.get(&above).is_some_and(Changed::is_named) {
                return Ok((above, Changed::default()));
            }
        }
        Ok(in_turn)
    }

    /// Whether the entries below one that was renamed may have entered or left what the consumer sees.
    fn moves_others(&mut self, id: EntryId, asked: &Unbegun, extent: &Extent) -> Result<bool> {
        if extent.follows_changes() {
            return Ok(false);
        }
        let mut covered = [false; 2];
        let sides = [self.before.as_mut(), Some(&mut self.now)];
        let mut has_children = false;
        for (at, side) in sides.into_iter().enumerate() {
            let Some(side) = side else {
                // It may have been covered or not.
                return Ok(true);
            };
            self.lacks_before = at == 0;
            if !side.has(id)? {
                continue;
            }
            has_children |= side.snapshot.view().has_children(id)?;
            if side.search(asked)?.is_ok()
                && let Begun::Running(running) = &mut side.search
            {
                covered[at] = covers(running, &side.snapshot, id)?;
            }
        }
        self.lacks_before = false;
        let [was, is] = covered;
        Ok(has_children && (was != is || is && !extent.sees_all))
    }

    /// Has the older snapshot's search look at an entry, or else the newer one's. An outcome ends the search.
    fn aim_before(&mut self, id: EntryId, asked: &Unbegun) -> Result<Option<Outcome>> {
        let mut is_aimed = false;
        self.lacks_before = self.before.is_some();
        if let Some(before) = &mut self.before
            && before.has(id)?
            && let Ok(Some(running)) = before.search(asked)?
        {
            running.aim(id);
            is_aimed = true;
        }
        self.lacks_before = false;
        if !is_aimed {
            return self.aim_now(id, asked);
        }
        self.set_phase(Phase::Before);
        Ok(None)
    }

    /// Has the newer snapshot's search look at an entry. An outcome ends the search.
    fn aim_now(&mut self, id: EntryId, asked: &Unbegun) -> Result<Option<Outcome>> {
        self.lacks_before = false;
        if !self.now.has(id)? {
            self.set_phase(Phase::Gone);
            return Ok(None);
        }
        match self.now.search(asked)? {
            Ok(Some(running)) => {
                running.aim(id);
                self.set_phase(Phase::Now);
                Ok(None)
            }
            Ok(None) => {
                let why = "the base of the search has gone or changed";
                Ok(Some(refresh_required(why)))
            }
            Err(outcome) => Ok(Some(outcome)),
        }
    }

    fn set_phase(&mut self, phase: Phase) {
        if let Some(told) = &mut self.told {
            told.phase = phase;
        }
    }

    /// Whether the entry that is told was deleted, and another server's change has brought it back since. As what it is
    /// now it may be told before its delete, as an entry above others is.
    fn is_there_again(&self) -> Result<bool> {
        match self.told.as_ref().and_then(|told| told.changed.deleted) {
            Some((uuid, _)) => Ok(self.now.snapshot.entry_of_uuid(uuid)?.is_some()),
            None => Ok(false),
        }
    }

    /// Tells that an entry has gone, if the consumer may have it; bytes that this takes when there is no room.
    ///
    /// A server that takes updates weighs the delete by its number, and may have an entry that has come and gone here
    /// without being told: so who gets whole naming contexts is told of each delete, with the number as entryCSN.
    fn tell_gone(
        &mut self,
        wire: &mut Wire<'_>,
        budget: Budget,
        (asked, extent): (&Unbegun, &Extent),
    ) -> Result<Option<usize>> {
        let Some(ToldEntry {
            id, changed, was, ..
        }) = self.told
        else {
            return Ok(None);
        };
        let name = self.deleted_names.get(&id).cloned();
        let name = name.filter(|_| extent.follows_changes());
        let is_nameless = name.as_deref() == Some("");
        let name = name.filter(|name| self.is_in_base(name, asked));
        let (uuid, dn) = if let (Some((uuid, _)), Some(name)) = (changed.deleted, name) {
            (uuid, name)
        } else if let (Some(before), Some(uuid)) = (&self.before, was) {
            self.lacks_before = true;
            let dn = names::dn_of(before.snapshot.view(), id)?;
            self.lacks_before = false;
            (uuid, dn)
        } else if self.before.is_some() && !is_nameless {
            return Ok(None);
        } else {
            let uuid = match changed.deleted {
                Some((uuid, _)) => Some(uuid),
                None if self.now.has(id)? => uuid_of(&self.now.snapshot, id)?,
                // A later portion has its end.
                None => None,
            };
            if let Some(uuid) = uuid
                && !self.gone.push(uuid)
            {
                let bytes = self.gone.bytes_max();
                if wire.bytes() + bytes > budget.out_bytes {
                    return Ok(Some(bytes));
                }
                self.gone.put(wire, true);
                self.gone.push(uuid);
            }
            return Ok(None);
        };
        let bytes = wire.envelope_bytes_max() + dn.len() + ENVELOPE_BYTES_MAX;
        if wire.bytes() + bytes > budget.out_bytes {
            return Ok(Some(bytes));
        }
        let mut controls = ControlsBuf::default();
        let own = wire.controls().iter();
        own.for_each(|control| controls.push(control));
        push_state(&mut controls, EntryState::Delete, uuid);
        let mut attributes = AttributesBuf::default();
        if let Some((_, csn)) = changed.deleted.filter(|_| extent.follows_changes()) {
            attributes.push(b"entryCSN", [csn.to_string().as_bytes()]);
        }
        wire.carrying(controls.view())
            .put_entry(dn.as_bytes(), None, attributes.view().as_ber());
        Ok(None)
    }

    /// Whether a name is one at or below the base of the search.
    fn is_in_base(&self, dn: &str, asked: &Unbegun) -> bool {
        let schema = self.now.snapshot.schema();
        let [mut normal, mut base] = [NormalDn::new(), NormalDn::new()];
        let base_dn = asked.request().base.as_bytes();
        !dn.is_empty()
            && normal.parse(schema, dn.as_bytes()).is_ok()
            && base.parse(schema, base_dn).is_ok()
            && normal.is_at_or_below(&base)
    }
}

fn ended(why: &str) -> Told {
    Told::Part(Step::Done(refresh_required(why)))
}

fn parent_of<E: Engine>(snapshot: &Snapshot<E>, id: EntryId) -> Result<EntryId> {
    read(snapshot, id, |entry| Ok(entry.parent()))
}

/// The entryUUID of an entry; `None` if it has none.
fn uuid_of<E: Engine>(snapshot: &Snapshot<E>, id: EntryId) -> Result<Option<[u8; 16]>> {
    let vocabulary = Vocabulary {
        schema: snapshot.schema(),
        attributes: &snapshot.state().attributes,
    };
    read(snapshot, id, |entry| {
        let version = operational::version_of(entry, vocabulary);
        let version =
            version.map_err(|damaged| Error::corrupt(format!("entry {id}: {damaged}")))?;
        Ok(version.map(|version| version.uuid))
    })
}

pub(super) fn read<E: Engine, T>(
    snapshot: &Snapshot<E>,
    id: EntryId,
    told: impl FnOnce(&Entry<'_>) -> Result<T>,
) -> Result<T> {
    let record = snapshot.view().get(Table::Entry, &id.to_key())?;
    let record = record.ok_or_else(|| Error::corrupt(format!("entry {id} does not exist")))?;
    let entry =
        Entry::new(&record).map_err(|damaged| Error::corrupt(format!("entry {id}: {damaged}")))?;
    told(&entry)
}

/// Whether the search covers an entry.
fn covers<E: Engine>(running: &mut Running, snapshot: &Snapshot<E>, id: EntryId) -> Result<bool> {
    let parent = parent_of(snapshot, id)?;
    let mut names = snapshot.take_names();
    let above = names.superior(snapshot.view(), parent);
    let covered = names::if_named(above.map(|superior| {
        let superior = superior.map(|superior| &**superior);
        running.covered.contains(id, parent, superior)
    }));
    snapshot.put_back_names(names);
    Ok(covered?.unwrap_or(false))
}
