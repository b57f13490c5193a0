//! The matching rule inchainMatch (1.2.840.113556.1.4.1941, of Active Directory): an item of a filter that follows
//! names from entry to entry. `(member:inchainMatch:=X)` is true of the groups that name X, of those that name these,
//! and so on; `(memberOf:inchainMatch:=G)` of the members of G and of groups in it.
//!
//! Names are followed upwards, from a name to the entries that name it, by the index for equality: of other attributes
//! from the asserted name, once for all candidates; of memberOf from each candidate, until the asserted group is met.
//! An entry is reached once, breadth first. A step counts only if who asks may search the value that it follows.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, HashSet, VecDeque};
use std::hash::BuildHasherDefault;

use super::candidate::Candidate;
use super::filter::{Node, Truth};
use crate::access::{Asked, EntryGrants, Grants, Rights, Visible};
use crate::engine::{EntryId, Index, Postings, Read, Table};
use crate::entry::Entry;
use crate::error::{Error, Result};
use crate::indexes::equality_key;
use crate::member_of::MemberOf;
use crate::names::{self, IdHasher};
use crate::operational::Vocabulary;
use crate::schema::{AttributeTypeId, NormalDn, Schema};
use crate::steps;

/// The most entries that one item keeps in memory. A search that reaches more of them is refused.
pub(crate) const CHAIN_ENTRIES_MAX: usize = 1 << 17;
/// The most of such items that a filter may have.
pub(crate) const CHAINS_MAX: usize = 8;

/// Work of reading an id of an index, in about as many nanoseconds.
const ID_WORK: u64 = 1 << 7;
/// Work of reading an entry, or its name.
const ENTRY_WORK: u64 = 1 << 10;

type Ids<V> = HashMap<EntryId, V, BuildHasherDefault<IdHasher>>;
type IdSet = HashSet<EntryId, BuildHasherDefault<IdHasher>>;

/// An item of a filter by the rule.
#[derive(Debug)]
pub(crate) struct Chain {
    /// The attribute that is named, on which rights are asked.
    named: AttributeTypeId,
    /// The asserted name.
    asserted: NormalDn,
    links: Links,
    progress: RefCell<Progress>,
    /// Whether there is more to be reached than [`CHAIN_ENTRIES_MAX`], or there are too many items.
    is_exceeded: Cell<bool>,
}

/// Which names are followed.
#[derive(Debug)]
pub(crate) enum Links {
    /// The values of these types, by their indexes.
    Values(Box<[(AttributeTypeId, Index)]>),
    /// The groups of an entry, which are computed.
    MemberOf,
}

#[derive(Debug, Default)]
struct Progress {
    walk: Walk,
    /// The candidate that it has begun at; none if it has begun at the asserted name.
    begun: Option<EntryId>,
    is_over: bool,
    /// The entry with the asserted name, once it was looked for. It is a group.
    goal: Option<Option<EntryId>>,
    /// Groups that are known to be in the asserted one, and groups that are known not to be.
    inside: IdSet,
    outside: IdSet,
}

/// Follows names breadth first.
#[derive(Debug, Default)]
struct Walk {
    /// What was reached, and by which entry that was reached before.
    reached: Ids<Option<EntryId>>,
    /// Those of them which are to be looked for next.
    waiting: VecDeque<EntryId>,
    at: Option<At>,
}

/// An entry whose name is being looked for.
#[derive(Debug)]
struct At {
    /// None for an asserted name.
    id: Option<EntryId>,
    name: NormalDn,
    /// What is granted on it, where that is asked of it.
    granted: Option<EntryGrants>,
    /// The index that is read, among those of the links, and the id to go on with.
    index: usize,
    next: EntryId,
}

impl At {
    fn new(id: Option<EntryId>, name: NormalDn) -> At {
        At {
            id,
            name,
            granted: None,
            index: 0,
            next: EntryId(0),
        }
    }
}

/// Where a walk is after a step.
enum Walked {
    /// The work is used up.
    Part,
    /// There is nothing more to be reached.
    Whole,
    /// It has met what it was to stop at, which this entry has led to.
    Met(Option<EntryId>),
    /// There is too much.
    Exceeded,
}

/// What is read for whom.
struct Reading<'r, R: Read> {
    view: &'r R,
    vocabulary: Vocabulary<'r>,
    /// Where rights depend on the entry.
    viewer: Option<&'r Grants>,
}

impl Chain {
    /// `place` is how many there are before it in its filter.
    pub(crate) fn new(
        named: AttributeTypeId,
        asserted: NormalDn,
        links: Links,
        place: usize,
    ) -> Chain {
        Chain {
            named,
            asserted,
            links,
            progress: RefCell::default(),
            is_exceeded: Cell::new(place >= CHAINS_MAX),
        }
    }

    /// The asserted name, of a group whose members are looked for.
    pub(crate) fn group(&self) -> Option<&NormalDn> {
        matches!(self.links, Links::MemberOf).then_some(&self.asserted)
    }

    /// All that it is true of, ascending, if that was found out without looking at candidates.
    pub(crate) fn found(&self) -> Option<Vec<EntryId>> {
        let progress = self.progress.borrow();
        let is_known = progress.is_over && matches!(self.links, Links::Values(_));
        is_known.then(|| {
            let mut ids: Vec<EntryId> = progress.walk.reached.keys().copied().collect();
            steps::count(ids.len());
            ids.sort_unstable();
            ids
        })
    }

    /// Whether it is true of a candidate; `None` when the work is used up, or there is too much to be reached.
    pub(super) fn holds<R: Read>(
        &self,
        candidate: &Candidate<'_, R>,
        work: &mut u64,
    ) -> Result<Option<Truth>> {
        let Some(id) = candidate.id() else {
            return Ok(Some(Truth::False));
        };
        if self.is_exceeded.get() {
            *work = 0;
            return Ok(None);
        }
        if candidate
            .seen()
            .is_some_and(|seen| !seen.searches_type(self.named))
        {
            return Ok(Some(Truth::Undefined));
        }
        let reading = Reading {
            view: candidate.view(),
            vocabulary: candidate.vocabulary(),
            viewer: candidate.viewer(),
        };
        let is_reached = || self.progress.borrow().walk.reached.contains_key(&id);
        let held = match self.links {
            Links::Values(_) if is_reached() => Some(true),
            Links::Values(_) => self.goes_on(&reading, work)?.then(is_reached),
            Links::MemberOf => self.is_member(&reading, id, work)?,
        };
        Ok(held.map(|held| match held {
            true => Truth::True,
            false => Truth::False,
        }))
    }

    /// Goes on from the asserted name; whether all is found that can be found before there are candidates.
    fn goes_on<R: Read>(&self, reading: &Reading<'_, R>, work: &mut u64) -> Result<bool> {
        let progress = &mut *self.progress.borrow_mut();
        if matches!(self.links, Links::MemberOf) || progress.is_over || self.is_exceeded.get() {
            return Ok(true);
        }
        let walk = &mut progress.walk;
        if walk.at.is_none() && walk.reached.is_empty() {
            walk.at = Some(At::new(None, self.asserted.clone()));
        }
        match walk.go_on(self, reading, &|_| false, &|_| false, work)? {
            Walked::Whole => {
                progress.is_over = true;
                Ok(true)
            }
            Walked::Exceeded => {
                self.exceed(work);
                Ok(false)
            }
            Walked::Part | Walked::Met(_) => Ok(false),
        }
    }

    /// Whether an entry is in the asserted group, or in a group that is in it.
    fn is_member<R: Read>(
        &self,
        reading: &Reading<'_, R>,
        id: EntryId,
        work: &mut u64,
    ) -> Result<Option<bool>> {
        let Vocabulary { schema, attributes } = reading.vocabulary;
        let Some(member_of) = attributes.member_of() else {
            return Ok(Some(false));
        };
        let progress = &mut *self.progress.borrow_mut();
        let goal = match progress.goal {
            Some(goal) => goal,
            None => {
                *work = work.saturating_sub(ENTRY_WORK);
                let goal = member_of.entry_of(reading.view, &self.asserted)?;
                *progress.goal.insert(goal)
            }
        };
        let Some(goal) = goal else {
            return Ok(Some(false));
        };
        if progress.begun != Some(id) {
            let name = names::if_named(names::normal_dn_of(reading.view, schema, id))?;
            let Some(name) = name else {
                return Ok(Some(false));
            };
            progress.walk = Walk {
                at: Some(At::new(Some(id), name)),
                ..Walk::default()
            };
            progress.begun = Some(id);
        }
        let (inside, outside) = (&progress.inside, &progress.outside);
        let meets = |id: EntryId| id == goal || inside.contains(&id);
        let leads_nowhere = |id: EntryId| outside.contains(&id);
        let walked = (progress.walk).go_on(self, reading, &meets, &leads_nowhere, work)?;
        if progress.inside.len() + progress.outside.len() > CHAIN_ENTRIES_MAX {
            progress.inside.clear();
            progress.outside.clear();
        }
        let held = match walked {
            Walked::Part => return Ok(None),
            Walked::Exceeded => {
                self.exceed(work);
                return Ok(None);
            }
            Walked::Met(mut by) => {
                // What has led there is inside.
                while let Some(group) = by.filter(|group| *group != id) {
                    progress.inside.insert(group);
                    by = progress.walk.reached.get(&group).copied().flatten();
                }
                true
            }
            Walked::Whole => {
                progress.outside.extend(progress.walk.reached.keys());
                false
            }
        };
        progress.begun = None;
        progress.walk = Walk::default();
        Ok(Some(held))
    }

    /// Ends the step: what asks has to ask whether that is the end.
    fn exceed(&self, work: &mut u64) {
        self.is_exceeded.set(true);
        *work = 0;
    }
}

impl Walk {
    /// Goes on with so much work, until it meets an entry that it is to stop at. Entries that lead nowhere are not
    /// followed. On an error it goes on at the same place.
    fn go_on<R: Read>(
        &mut self,
        chain: &Chain,
        reading: &Reading<'_, R>,
        meets: &dyn Fn(EntryId) -> bool,
        leads_nowhere: &dyn Fn(EntryId) -> bool,
        work: &mut u64,
    ) -> Result<Walked> {
        loop {
            let at = match &mut self.at {
                Some(at) => at,
                at => match self.waiting.front() {
                    None => return Ok(Walked::Whole),
                    Some(next) => {
                        *work = work.saturating_sub(ENTRY_WORK);
                        let schema = reading.vocabulary.schema;
                        let name = names::normal_dn_of(reading.view, schema, *next);
                        let name = names::if_named(name)?;
                        let next = self.waiting.pop_front();
                        match name {
                            Some(name) => at.insert(At::new(next, name)),
                            None => continue,
                        }
                    }
                },
            };
            let Some((known, index)) = chain.links.index(reading, at.index) else {
                self.at = None;
                continue;
            };
            let mut ids = (reading.view).postings(index, &equality_key(at.name.bytes()))?;
            let mut next = ids.seek(at.next)?;
            while let Some(id) = next {
                if *work == 0 {
                    return Ok(Walked::Part);
                }
                steps::count(1);
                *work = work.saturating_sub(ID_WORK);
                let is_new = !self.reached.contains_key(&id) && !leads_nowhere(id);
                if is_new
                    && chain
                        .links
                        .lead(reading, (chain.named, known), at, id, work)?
                {
                    if meets(id) {
                        return Ok(Walked::Met(at.id));
                    }
                    if self.reached.len() == CHAIN_ENTRIES_MAX {
                        return Ok(Walked::Exceeded);
                    }
                    self.reached.insert(id, at.id);
                    self.waiting.push_back(id);
                }
                at.next = EntryId(id.0.saturating_add(1));
                next = ids.next()?;
            }
            (at.index, at.next) = (at.index + 1, EntryId(0));
        }
    }
}

impl Links {
    /// One of the indexes in which a name is looked for, with the type whose values it has.
    fn index<R: Read>(
        &self,
        reading: &Reading<'_, R>,
        at: usize,
    ) -> Option<(AttributeTypeId, Index)> {
        match self {
            Links::Values(indexes) => indexes.get(at).copied(),
            Links::MemberOf => {
                let member_of = reading.vocabulary.attributes.member_of();
                member_of
                    .filter(|_| at == 0)
                    .map(|known| (known.member, known.index()))
            }
        }
    }

    /// Whether there is a step from an entry to another one, which names it in a value of a type: for who asks, and for
    /// memberOf only to a group.
    fn lead<R: Read>(
        &self,
        reading: &Reading<'_, R>,
        (named, known): (AttributeTypeId, AttributeTypeId),
        at: &mut At,
        other: EntryId,
        work: &mut u64,
    ) -> Result<bool> {
        let Reading {
            view, vocabulary, ..
        } = *reading;
        let schema = vocabulary.schema;
        match self {
            // The value is in the other entry.
            Links::Values(_) => match reading.granted(other, work)? {
                Some(granted) => Ok(is_searched(&granted, schema, known, at.name.to_text())),
                None => Ok(reading.viewer.is_none()),
            },
            // Or it is computed of this one.
            Links::MemberOf => {
                *work = work.saturating_sub(ENTRY_WORK);
                let member_of = vocabulary.attributes.member_of();
                if !member_of.map_or(Ok(false), |member_of| {
                    is_group(member_of, view, vocabulary, other)
                })? {
                    return Ok(false);
                }
                if at.granted.is_none()
                    && let Some(id) = at.id
                {
                    at.granted = reading.granted(id, work)?;
                }
                let Some(granted) = &at.granted else {
                    return Ok(reading.viewer.is_none());
                };
                let name = match granted.single_values(schema, named) {
                    None => String::new(),
                    Some(_) => names::dn_of(view, other)?,
                };
                Ok(is_searched(granted, schema, named, name))
            }
        }
    }
}

/// Whether a value may be searched of an entry on which this is granted.
fn is_searched(
    granted: &EntryGrants,
    schema: &Schema,
    known: AttributeTypeId,
    value: String,
) -> bool {
    granted.visible() != Visible::Nothing
        && granted.has_on_value((schema, known), value.as_bytes(), Rights::SEARCH)
}

fn is_group<R: Read>(
    member_of: &MemberOf,
    view: &R,
    Vocabulary { schema, attributes }: Vocabulary<'_>,
    id: EntryId,
) -> Result<bool> {
    let record = view.get(Table::Entry, &id.to_key())?;
    let record = record.ok_or_else(|| Error::corrupt(format!("entry {id} is indexed only")))?;
    let entry =
        Entry::new(&record).map_err(|damaged| Error::corrupt(format!("entry {id}: {damaged}")))?;
    let object_class = attributes.numbers_of(schema.well_known().object_class);
    member_of.is_group(schema, object_class, (id, &entry))
}

impl<R: Read> Reading<'_, R> {
    /// What is granted on an entry, where that depends on it; `None` otherwise, and for one whose name is too long.
    fn granted(&self, id: EntryId, work: &mut u64) -> Result<Option<EntryGrants>> {
        let Some(viewer) = self.viewer else {
            return Ok(None);
        };
        *work = work.saturating_sub(ENTRY_WORK);
        let schema = self.vocabulary.schema;
        let Some(dn) = names::if_named(names::normal_dn_of(self.view, schema, id))? else {
            return Ok(None);
        };
        let asked = Asked {
            view: self.view,
            schema,
            dn: &dn,
            id,
        };
        viewer.on_entry_within(&asked, work).map(Some)
    }
}

impl Node {
    /// Follows the names of items by the rule as far as that can be done before there are candidates, with so much
    /// work; whether it is done.
    pub(crate) fn follow_chains<R: Read>(
        &self,
        (view, vocabulary): (&R, Vocabulary<'_>),
        viewer: Option<&Grants>,
        work: &mut u64,
    ) -> Result<bool> {
        let reading = Reading {
            view,
            vocabulary,
            viewer,
        };
        self.each_chain(&mut |chain| chain.goes_on(&reading, work))
    }

    /// Whether an item by the rule has reached too many entries.
    pub(crate) fn exceeds_chain(&self) -> bool {
        let is_within = self.each_chain(&mut |chain| Ok(!chain.is_exceeded.get()));
        !is_within.unwrap_or(false)
    }

    /// Forgets what was found of items by the rule: the data, or the rights, are others.
    pub(crate) fn forget_chains(&mut self) {
        let forgotten = self.each_chain(&mut |chain| {
            chain.progress.replace(Progress::default());
            Ok(true)
        });
        debug_assert!(forgotten.is_ok());
    }

    /// Goes through the items by the rule, as long as all are told to be done.
    fn each_chain(&self, each: &mut dyn FnMut(&Chain) -> Result<bool>) -> Result<bool> {
        match self {
            Node::InChain(chain) => each(chain),
            Node::And(nodes) | Node::Or(nodes) => {
                for node in nodes {
                    if !node.each_chain(each)? {
                        return Ok(false);
                    }
                }
                Ok(true)
            }
            Node::Not(node) => node.each_chain(each),
            Node::Constant(_) | Node::Item(_) | Node::AnyOf(_) => Ok(true),
        }
    }
}
