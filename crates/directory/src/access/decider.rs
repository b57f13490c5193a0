//! The rights on the entries of a search.

use std::collections::HashMap;
use std::hash::BuildHasherDefault;
use std::sync::{Arc, MutexGuard, PoisonError};

use super::Requester;
use super::condition::Asked;
use super::entry_grants::EntryGrants;
use super::evaluate::Evaluate;
use super::grants::Grants;
use super::met::Met;
use super::place::Place;
use crate::engine::{CommitNo, EntryId};
use crate::entry::Entry;
use crate::error::Result;
use crate::names::{IdHasher, Superior};
use crate::schema::{NormalDn, Schema, Siblings};

/// The most places that a requester keeps.
const PLACES_MAX: usize = 64;
/// The most entries of whose children a requester keeps the place.
const PARENTS_MAX: usize = 512;
/// The same for a search, which keeps them no longer than it lasts.
const PARENTS_OF_SEARCH_MAX: usize = 8192;

/// A map by the ids of entries.
type ByEntry<T> = HashMap<EntryId, T, BuildHasherDefault<IdHasher>>;

/// The places of entries, which all searches of a requester share.
#[derive(Debug, Default)]
pub(super) struct Decisions {
    /// By which rules cover an entry, as far as its name tells.
    known: Vec<(Box<[bool]>, Arc<Place>)>,
    /// The commit that `of_children` is about. Entries may be renamed by the next one.
    commit: Option<CommitNo>,
    /// Those that all children of an entry share.
    of_children: ByEntry<Arc<Place>>,
}

impl Decisions {
    /// The place of the children of an entry, on a commit.
    fn of_children(&self, commit: Option<CommitNo>, parent: EntryId) -> Option<&Arc<Place>> {
        let is_same = commit.is_some() && self.commit == commit;
        is_same.then(|| self.of_children.get(&parent)).flatten()
    }

    /// Keeps the place of the children of an entry. Those of an older commit make way.
    fn keep(&mut self, commit: CommitNo, parent: EntryId, place: &Arc<Place>) {
        if self.commit.is_none_or(|before| before < commit) {
            self.of_children.clear();
            self.commit = Some(commit);
        }
        if self.commit == Some(commit) {
            if self.of_children.len() == PARENTS_MAX {
                self.of_children.clear();
            }
            self.of_children.insert(parent, place.clone());
        }
    }
}

/// Decides the rights on the entries of a search, one after the other. Entries that the same rules cover share a
/// decision. Siblings mostly do, so that their names need not be read.
pub(crate) struct Decider {
    requester: Arc<Requester>,
    /// The commit that the search reads, if its number tells all that may have changed.
    commit: Option<CommitNo>,
    /// The places that it has met.
    places: Vec<Arc<Place>>,
    /// That of the entry before, by its index, and the entry all of whose children are there, if there is one.
    last: Option<(Option<EntryId>, usize)>,
    /// Those of the children of other entries.
    of_children: ByEntry<usize>,
    names: Siblings,
    text: String,
    conditions: Conditions,
}

/// An entry of a search, as far as its rights depend on it.
#[derive(Clone, Copy)]
pub(crate) struct DecidedCandidate<'c> {
    /// Its id.
    pub(crate) id: EntryId,
    /// Its RDN as written, or its DN if it is a naming context.
    pub(crate) rdn: &'c [u8],
    /// What is above it, if it is no naming context.
    pub(crate) superior: Option<&'c Superior>,
    /// Its record as it is stored, if it is at hand.
    pub(crate) record: Option<Entry<'c>>,
}

/// The conditions of rules, tried on one entry after the other.
#[derive(Default)]
struct Conditions {
    /// Which of those are met that decide.
    case: Vec<bool>,
    /// What was granted on the entry before: in its place, by its index, and in its case.
    last: Option<(usize, Vec<bool>, Arc<EntryGrants>)>,
    /// Memory for all that are evaluated.
    memory: Vec<Option<bool>>,
    /// The work since [`take_work`](Decider::take_work).
    work: u64,
}

impl Decider {
    /// A decider for a search of a requester, on a commit if its number tells all that may have changed.
    pub(crate) fn new(requester: Arc<Requester>, commit: Option<CommitNo>) -> Decider {
        Decider {
            requester,
            commit,
            places: Vec::new(),
            last: None,
            of_children: ByEntry::default(),
            names: Siblings::default(),
            text: String::new(),
            conditions: Conditions::default(),
        }
    }

    /// The work of conditions since the last call, about one unit a nanosecond.
    #[inline]
    pub(crate) fn take_work(&mut self) -> u64 {
        std::mem::take(&mut self.conditions.work)
    }

    /// The grants of the requester, and the rights on this entry up to reading it. `None` for an entry whose name
    /// cannot be read.
    pub(crate) fn decide<R: Evaluate>(
        &mut self,
        reading: (&R, &Schema),
        candidate: DecidedCandidate<'_>,
    ) -> Result<Option<(&Grants, &EntryGrants)>> {
        let is_own = Some(candidate.id) == self.requester.grants().entry;
        let parent = candidate.superior.map(|superior| superior.id);
        let shared = parent.filter(|_| !is_own);
        let at = match self.last {
            Some((of, at)) if of.is_some() && of == shared => at,
            _ => match self.find_place(reading.1, candidate, shared)? {
                Some(at) => at,
                None => return Ok(None),
            },
        };
        // A decision is about the entry itself, or about all in its place.
        if self
            .places
            .get(at)
            .is_none_or(|place| place.on_all().is_none())
        {
            return self.decide_by_conditions(reading, candidate, at);
        }
        let on_all = self.places.get(at).and_then(|place| place.on_all());
        Ok(on_all.map(|on_all| (self.requester.grants(), on_all)))
    }

    /// The place of an entry, by its index; `None` if its name is needed and cannot be read. `shared` is the entry
    /// above it, if all children of that may be in one place.
    fn find_place(
        &mut self,
        schema: &Schema,
        candidate: DecidedCandidate<'_>,
        shared: Option<EntryId>,
    ) -> Result<Option<usize>> {
        if let Some(parent) = shared
            && let Some(at) = self.of_children.get(&parent)
        {
            self.last = Some((shared, *at));
            return Ok(Some(*at));
        }
        let known = shared.and_then(|parent| {
            let decisions = self.decisions();
            decisions.of_children(self.commit, parent).cloned()
        });
        let (of, place) = match known {
            Some(place) => (shared, place),
            None => match self.place_by_name(schema, candidate)? {
                Some(found) => found,
                None => return Ok(None),
            },
        };
        // A search of one entry meets no other.
        let is_first = self.places.is_empty();
        let same = |known: &Arc<Place>| Arc::ptr_eq(known, &place);
        let at = match self.places.iter().position(same) {
            Some(at) => at,
            None => {
                if self.places.len() == PLACES_MAX {
                    self.places.clear();
                    self.of_children.clear();
                    self.conditions.last = None;
                }
                self.places.push(place);
                self.places.len() - 1
            }
        };
        if let (Some(parent), false) = (of, is_first) {
            if self.of_children.len() == PARENTS_OF_SEARCH_MAX {
                self.of_children.clear();
            }
            self.of_children.insert(parent, at);
        }
        self.last = Some((of, at));
        Ok(Some(at))
    }

    fn decisions(&self) -> MutexGuard<'_, Decisions> {
        let decisions = self.requester.decisions.lock();
        decisions.unwrap_or_else(PoisonError::into_inner)
    }

    /// The place of an entry, found by its name, and the entry above it if all children of that share the place. `None`
    /// if the name cannot be read.
    fn place_by_name(
        &mut self,
        schema: &Schema,
        candidate: DecidedCandidate<'_>,
    ) -> Result<Option<(Option<EntryId>, Arc<Place>)>> {
        let grants = self.requester.grants();
        let is_own = Some(candidate.id) == grants.entry;
        let Some(dn) = read_name((&mut self.names, &mut self.text), schema, candidate) else {
            return Ok(None);
        };
        let list = grants.set.list_of(dn);
        let covers = grants.rules.iter().map(|rule| rule.may_cover(list, dn));
        let case: Box<[bool]> = [is_own].into_iter().chain(covers).collect();
        let mut are_alike = None;
        if let Some(superior) = candidate.superior.filter(|_| !is_own) {
            let mut parent = dn.clone();
            parent.truncate(parent.len().saturating_sub(1));
            let mut tests = grants.rules.iter().filter_map(|rule| rule.entries.as_ref());
            let is_alone = tests.any(|test| test.tells_children_apart(&parent));
            are_alike = (!is_alone).then_some(superior.id);
        }
        let mut decisions = self.decisions();
        let known = decisions.known.iter().find(|(known, _)| *known == case);
        let place = match known {
            Some((_, place)) => place.clone(),
            None => {
                let rules = case.iter().skip(1).enumerate();
                let rules: Vec<usize> = rules
                    .filter(|(_, covers)| **covers)
                    .map(|(at, _)| at)
                    .collect();
                let place = Arc::new(Place::new(grants, &rules, is_own)?);
                if decisions.known.len() == PLACES_MAX {
                    decisions.known.clear();
                }
                decisions.known.push((case, place.clone()));
                place
            }
        };
        if let (Some(commit), Some(parent)) = (self.commit, are_alike) {
            decisions.keep(commit, parent, &place);
        }
        Ok(Some((are_alike, place)))
    }

    /// The same as [`decide`](Self::decide) for an entry in a place where conditions decide.
    fn decide_by_conditions<R: Evaluate>(
        &mut self,
        (view, schema): (&R, &Schema),
        candidate: DecidedCandidate<'_>,
        at: usize,
    ) -> Result<Option<(&Grants, &EntryGrants)>> {
        let Decider {
            requester,
            places,
            names,
            text,
            conditions,
            ..
        } = self;
        let grants = requester.grants();
        let Some(place) = places.get(at) else {
            return Ok(None);
        };
        let nameless = NormalDn::new();
        let dn = match place.asks_for_names() {
            true => match read_name((names, text), schema, candidate) {
                Some(dn) => dn,
                None => return Ok(None),
            },
            false => &nameless,
        };
        let asked = Asked {
            view,
            schema,
            dn,
            id: candidate.id,
        };
        let memory = std::mem::take(&mut conditions.memory);
        let met = Met::of_record(grants, &asked, candidate.record, memory);
        place.try_conditions(&met, &mut conditions.case)?;
        let is_same = |(of, case, _): &(usize, Vec<bool>, _)| *of == at && *case == conditions.case;
        if !conditions.last.as_ref().is_some_and(is_same) {
            let decided = place.on_entry(grants, &met, &conditions.case)?;
            conditions.last = Some((at, conditions.case.clone(), decided));
        }
        conditions.work = conditions.work.saturating_add(met.work.get());
        conditions.memory = met.into_memory();
        let last = conditions.last.as_ref();
        Ok(last.map(|(_, _, on_entry)| (grants, &**on_entry)))
    }
}

/// Reads the DN of an entry; `None` if it cannot be read.
fn read_name<'n>(
    (names, text): (&'n mut Siblings, &mut String),
    schema: &Schema,
    candidate: DecidedCandidate<'_>,
) -> Option<&'n NormalDn> {
    text.clear();
    text.push_str(std::str::from_utf8(candidate.rdn).ok()?);
    if let Some(superior) = candidate.superior {
        text.push(',');
        text.push_str(&superior.dn);
    }
    names.read(schema, text).ok()?;
    Some(names.normal())
}
