//! The members of a group, which are the entries with a value of memberOf: `(memberOf=GROUP)` costs what the values of
//! the group cost.

use std::cell::Cell;
use std::collections::HashSet;
use std::hash::BuildHasherDefault;

use super::{ID_WORK, LIST_WORK, Planner, RANGE_IDS_MAX, Term};
use crate::engine::{AttributeNo, Cursor, Direction, EntryId, Range, Read, Table};
use crate::entry::Entry;
use crate::error::{Error, Result};
use crate::large;
use crate::matching::filter::Item;
use crate::matching::in_chain::Chain;
use crate::member_of::MemberOf;
use crate::names::IdHasher;
use crate::schema::NormalDn;
use crate::steps;
use crate::virtual_attributes::VirtualAttribute;

/// What it costs to find an entry by its name, in ids read.
const NAME_IDS: u64 = LIST_WORK / ID_WORK;

/// The candidates for an assertion about a virtual attribute, where an index can give them.
pub(super) fn term<R: Read>(
    planner: &Planner<'_, R>,
    attribute: VirtualAttribute,
    item: &Item,
    asked: &Cell<u64>,
) -> Result<Option<Term>> {
    let Planner {
        schema,
        state,
        view,
    } = planner;
    let group = item.equal_to(attribute.attribute_type(schema), schema);
    let member_of = state.attributes.member_of();
    let (VirtualAttribute::MemberOf, Some(group), Some(member_of)) = (attribute, group, member_of)
    else {
        return Ok(None);
    };
    asked.set(asked.get() + 1);
    let Some(group) = member_of.entry_of(*view, &NormalDn::from_normal(group))? else {
        return Ok(Some(Term::NOTHING));
    };
    let Some(members) = members_of(planner, member_of, group)? else {
        return Ok(Some(Term::NOTHING));
    };
    let Members { mut ids, large } = members;
    asked.set(asked.get() + ids.len() as u64);
    let large = large.into_iter();
    let mut terms: Vec<Term> = large
        .map(|(number, cardinality)| Term::Members {
            group,
            number,
            cardinality,
        })
        .collect();
    ids.sort_unstable();
    ids.dedup();
    if terms.is_empty() {
        return Ok(Some(Term::Ids(ids)));
    }
    terms.push(Term::Ids(ids));
    Ok(Some(Term::Union(terms)))
}

/// The candidates for an item that follows names from entry to entry, where an index can give them.
pub(super) fn chain_term<R: Read>(
    planner: &Planner<'_, R>,
    chain: &Chain,
    asked: &Cell<u64>,
) -> Result<Option<Term>> {
    asked.set(asked.get() + 1);
    let Some(group) = chain.group() else {
        return Ok(chain.found().map(Term::Ids));
    };
    let Some(member_of) = planner.state.attributes.member_of() else {
        return Ok(Some(Term::NOTHING));
    };
    let Some(group) = member_of.entry_of(planner.view, group)? else {
        return Ok(Some(Term::NOTHING));
    };
    let Some(members) = members_of(planner, member_of, group)? else {
        return Ok(Some(Term::NOTHING));
    };
    asked.set(asked.get() + members.ids.len() as u64);
    let large: u64 = members.large.iter().map(|(_, count)| count).sum();
    Ok(Some(Term::Nested {
        group,
        cardinality: members.ids.len() as u64 + large,
    }))
}

/// The members of a group.
struct Members {
    /// Those that the entry names itself, in any order.
    ids: Vec<EntryId>,
    /// Its large attributes of members, and how many values each has.
    large: Vec<(AttributeNo, u64)>,
}

/// The members of an entry, if it is a group.
fn members_of<R: Read>(
    planner: &Planner<'_, R>,
    member_of: &MemberOf,
    group: EntryId,
) -> Result<Option<Members>> {
    let Planner {
        schema,
        state,
        view,
    } = planner;
    let record = view.get(Table::Entry, &group.to_key())?;
    let record = record.ok_or_else(|| Error::corrupt(format!("entry {group} has a name only")))?;
    let damaged = |damaged| Error::corrupt(format!("entry {group}: {damaged}"));
    let entry = Entry::new(&record).map_err(damaged)?;
    let object_class = state
        .attributes
        .numbers_of(schema.well_known().object_class);
    if !member_of.is_group(schema, object_class, (group, &entry))? {
        return Ok(None);
    }
    let mut members = Members {
        ids: Vec::new(),
        large: Vec::new(),
    };
    for number in state.attributes.numbers_of(member_of.member) {
        if let Some(stored) = entry.attribute(*number).map_err(damaged)? {
            for value in stored.values() {
                members.ids.extend(member(planner, member_of, value)?);
            }
        }
        let mut large = entry.large();
        if let Some(large) = large.find(|large| large.number == *number) {
            members.large.push((*number, u64::from(large.count)));
        }
    }
    Ok(Some(members))
}

/// The entry that a value names, if there is one.
fn member<R: Read>(
    planner: &Planner<'_, R>,
    member_of: &MemberOf,
    value: &[u8],
) -> Result<Option<EntryId>> {
    steps::count(1);
    let known = planner.schema.type_of(member_of.member);
    let mut name = NormalDn::new();
    match name.parse(planner.schema, planner.schema.name_in(known, value)) {
        Ok(()) => member_of.entry_of(planner.view, &name),
        Err(_) => Ok(None),
    }
}

/// How far the values of a group were read.
#[derive(Debug)]
pub(super) struct MembersRead {
    /// The key of the next value, and where the values end.
    from: Vec<u8>,
    to: Vec<u8>,
}

impl MembersRead {
    pub(super) fn of(group: EntryId, number: AttributeNo) -> MembersRead {
        let [from, to] = large::bounds(group, number);
        MembersRead { from, to }
    }

    /// Reads as many values as are left to be read; whether these are all.
    pub(super) fn go_on<R: Read>(
        &mut self,
        planner: &Planner<'_, R>,
        left: &mut u64,
        ids: &mut Vec<EntryId>,
    ) -> Result<bool> {
        let Some(member_of) = planner.state.attributes.member_of() else {
            return Ok(true);
        };
        let range = Range::between(&self.from, &self.to);
        let mut values = planner
            .view
            .scan(Table::Values, range, Direction::Forward)?;
        let rest = loop {
            let Some((key, value)) = values.next()? else {
                return Ok(true);
            };
            if *left == 0 {
                break key.to_vec();
            }
            *left = left.saturating_sub(NAME_IDS);
            ids.extend(member(planner, member_of, value)?);
        };
        drop(values);
        self.from = rest;
        Ok(false)
    }
}

/// How far the members of a group were read, and those of the groups in it. They are told when all were read.
#[derive(Debug, Default)]
pub(super) struct Nested {
    found: HashSet<EntryId, BuildHasherDefault<IdHasher>>,
    /// Those which may be groups whose members are not read yet.
    waiting: Vec<EntryId>,
    /// The large attributes of the group being read.
    large: Vec<MembersRead>,
    /// Whether there are more than may be kept.
    pub(super) has_too_many: bool,
}

impl Nested {
    pub(super) fn of(group: EntryId) -> Nested {
        Nested {
            waiting: vec![group],
            ..Nested::default()
        }
    }

    /// Reads on; whether these are all, or too many. After an error it goes on at the same group.
    pub(super) fn go_on<R: Read>(
        &mut self,
        planner: &Planner<'_, R>,
        left: &mut u64,
        ids: &mut Vec<EntryId>,
    ) -> Result<bool> {
        let Some(member_of) = planner.state.attributes.member_of() else {
            return Ok(true);
        };
        loop {
            self.has_too_many = self.found.len() as u64 > RANGE_IDS_MAX;
            if self.has_too_many {
                return Ok(true);
            }
            if let Some(large) = self.large.last_mut() {
                let mut members = Vec::new();
                let is_whole = large.go_on(planner, left, &mut members)?;
                self.take(members);
                if !is_whole {
                    return Ok(false);
                }
                self.large.pop();
                continue;
            }
            let Some(next) = self.waiting.last().copied() else {
                ids.extend(&self.found);
                return Ok(true);
            };
            if *left == 0 {
                return Ok(false);
            }
            steps::count(1);
            let members = members_of(planner, member_of, next)?;
            self.waiting.pop();
            *left = left.saturating_sub(NAME_IDS);
            if let Some(Members { ids, large }) = members {
                *left = left.saturating_sub(NAME_IDS * ids.len() as u64);
                self.take(ids);
                let large = large.into_iter();
                self.large = large
                    .map(|(number, _)| MembersRead::of(next, number))
                    .collect();
            }
        }
    }

    fn take(&mut self, members: Vec<EntryId>) {
        for id in members {
            if self.found.insert(id) {
                self.waiting.push(id);
            }
        }
    }
}
