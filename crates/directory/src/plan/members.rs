//! The members of a group, which are the entries with a value of memberOf: `(memberOf=GROUP)` costs what the values of
//! the group cost.

use std::cell::Cell;

use super::{ID_WORK, LIST_WORK, Planner, Term};
use crate::engine::{AttributeNo, Cursor, Direction, EntryId, Range, Read, Table};
use crate::entry::Entry;
use crate::error::{Error, Result};
use crate::large;
use crate::matching::filter::Item;
use crate::member_of::MemberOf;
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
    let record = view.get(Table::Entry, &group.to_key())?;
    let record = record.ok_or_else(|| Error::corrupt(format!("entry {group} has a name only")))?;
    let damaged = |damaged| Error::corrupt(format!("entry {group}: {damaged}"));
    let entry = Entry::new(&record).map_err(damaged)?;
    let object_class = state
        .attributes
        .numbers_of(schema.well_known().object_class);
    if !member_of.is_group(schema, object_class, (group, &entry))? {
        return Ok(Some(Term::NOTHING));
    }
    let (mut ids, mut terms) = (Vec::new(), Vec::new());
    for number in state.attributes.numbers_of(member_of.member) {
        if let Some(stored) = entry.attribute(*number).map_err(damaged)? {
            for value in stored.values() {
                asked.set(asked.get() + 1);
                ids.extend(member(planner, member_of, value)?);
            }
        }
        let mut large = entry.large();
        if let Some(large) = large.find(|large| large.number == *number) {
            terms.push(Term::Members {
                group,
                number: *number,
                cardinality: u64::from(large.count),
            });
        }
    }
    ids.sort_unstable();
    ids.dedup();
    if terms.is_empty() {
        return Ok(Some(Term::Ids(ids)));
    }
    terms.push(Term::Ids(ids));
    Ok(Some(Term::Union(terms)))
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
