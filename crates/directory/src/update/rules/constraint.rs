//! `constraint`: what the values of an attribute have to be besides their syntax, as OpenLDAP's slapo-constraint has
//! it.
//!
//! Of an update those values are looked at that it brings: what was there before the rule came makes none fail. An
//! attribute's options make no difference, and its subtypes are attributes of their own.

use std::collections::HashSet;

use sapwood_ldap::filter::FilterBuf;
use sapwood_ldap::filter_text;
use sapwood_ldap::result::ResultCode;
use sapwood_ldap::url::Scope;

use super::{After, CANDIDATES_MAX, Existing, Rule, complete, complete_or_refused, equality_of};
use crate::access::matches_filter;
use crate::config::constraint::{ATTRIBUTE, local_url};
use crate::config::{ConstraintRule, ConstraintTest};
use crate::engine::{EntryId, Index, IndexKind, Postings, Read, Table};
use crate::entry::Entry;
use crate::error::{Error, Result};
use crate::indexes::{can_index, for_each_key};
use crate::names::{self, DnCache};
use crate::outcome::Stop;
use crate::policy::regex::CaseRegex;
use crate::reindex::{Side, each_value};
use crate::schema::{AttributeTypeId, NormalDn, Schema};
use crate::state::State;
use crate::steps;

/// Work on the filters of one constraint for an update, in about as many nanoseconds.
const FILTER_WORK_MAX: u64 = 1 << 24;

/// An instance of the rule, ready.
#[derive(Debug)]
pub(super) struct Constraint {
    attributes: Vec<AttributeTypeId>,
    test: Test,
    /// The entries that it holds of; all if there is none.
    restrict: Option<Place>,
}

/// What values have to be.
#[derive(Debug)]
enum Test {
    Regex(CaseRegex),
    NegRegex(CaseRegex),
    Size(usize),
    Count(usize),
    /// Values of one of these in the entries of a place.
    Among(Vec<AttributeTypeId>, Place),
}

/// Entries by their names and what they have.
#[derive(Debug)]
struct Place {
    base: Option<NormalDn>,
    scope: Scope,
    filter: Option<FilterBuf>,
}

/// What an update or a look at an entry has at hand.
struct Reading<'r, R> {
    view: &'r R,
    schema: &'r Schema,
    state: &'r State,
    names: &'r mut DnCache,
    filter_work: u64,
    /// Candidates that may still be looked at.
    candidates_left: u32,
}

/// Why a test cannot be ended.
enum Untold {
    TooMuch,
    Failed(Error),
}

impl From<Error> for Untold {
    fn from(error: Error) -> Untold {
        Untold::Failed(error)
    }
}

impl From<crate::engine::Error> for Untold {
    fn from(error: crate::engine::Error) -> Untold {
        Untold::Failed(error.into())
    }
}

fn wrong(why: String) -> Error {
    Error::Config(format!("{ATTRIBUTE}: {why}"))
}

fn attribute_of(schema: &Schema, name: &str) -> Result<AttributeTypeId> {
    let known = schema.attribute_type(name.as_bytes());
    let known = known.ok_or_else(|| wrong(format!("the schema does not define '{name}'")))?;
    match schema.is_protected(known.id()) || known.is_no_user_modification() {
        true => Err(wrong(format!(
            "{name}: the server keeps it, and says itself what it has to be"
        ))),
        false => Ok(known.id()),
    }
}

impl Place {
    fn new(schema: &Schema, state: &State, url: &str) -> Result<Place> {
        let url = local_url(url).map_err(wrong)?;
        let base = match url.dn.as_str() {
            "" => None,
            dn => Some(names::within_contexts(schema, &state.contexts, dn).map_err(wrong)?),
        };
        let filter = url.filter.as_deref().map(filter_text::parse).transpose();
        Ok(Place {
            base,
            scope: url.scope.unwrap_or(Scope::Base),
            filter: filter.map_err(|error| wrong(format!("the filter: {error}")))?,
        })
    }

    /// Whether an entry is there.
    fn has<R: Read>(
        &self,
        reading: &mut Reading<'_, R>,
        id: EntryId,
    ) -> std::result::Result<bool, Untold> {
        if let Some(base) = &self.base
            && !self.covers(reading, base, id)?
        {
            return Ok(false);
        }
        let Some(filter) = &self.filter else {
            return Ok(true);
        };
        let (view, schema, state) = (reading.view, reading.schema, reading.state);
        let matches = matches_filter((view, schema), state, id, filter, &mut reading.filter_work)?;
        matches.ok_or(Untold::TooMuch)
    }

    fn covers<R: Read>(
        &self,
        reading: &mut Reading<'_, R>,
        base: &NormalDn,
        id: EntryId,
    ) -> Result<bool> {
        let walk = names::walk(reading.view, &reading.state.contexts, base)?;
        let Some(base) = walk.and_then(|walk| walk.found()).map(|found| found.id) else {
            return Ok(false);
        };
        if id == base {
            return Ok(matches!(self.scope, Scope::Base | Scope::Sub));
        }
        let record = reading.view.get(Table::Entry, &id.to_key())?;
        let record = record.ok_or_else(|| Error::corrupt(format!("entry {id} is indexed only")))?;
        let entry = Entry::new(&record)
            .map_err(|damaged| Error::corrupt(format!("entry {id}: {damaged}")))?;
        let parent = entry.parent();
        Ok(match self.scope {
            Scope::Base => false,
            Scope::One => parent == base,
            Scope::Sub | Scope::Subordinates => {
                let superior = reading.names.superior(reading.view, parent)?;
                superior.is_some_and(|superior| superior.is_at_or_below(base))
            }
        })
    }
}

impl Constraint {
    pub(super) fn new(schema: &Schema, state: &State, rule: &ConstraintRule) -> Result<Constraint> {
        let names = rule.attributes.iter();
        let attributes = names.map(|name| attribute_of(schema, name));
        let regex = |pattern: &String| CaseRegex::new(pattern).map_err(wrong);
        let test = match &rule.test {
            ConstraintTest::Regex(pattern) => Test::Regex(regex(pattern)?),
            ConstraintTest::NegRegex(pattern) => Test::NegRegex(regex(pattern)?),
            ConstraintTest::Size(bytes) => Test::Size(*bytes as usize),
            ConstraintTest::Count(values) => Test::Count(*values as usize),
            ConstraintTest::Uri(url) => {
                let listed = local_url(url).map_err(wrong)?.attributes;
                if listed.is_empty() {
                    return Err(wrong(format!("'{url}' names no attribute")));
                }
                let listed = listed.iter().map(|name| {
                    let known = attribute_of(schema, name)?;
                    can_index(schema.type_of(known), IndexKind::Equality)
                        .map_err(|why| wrong(format!("{name} cannot be looked up: {why}")))?;
                    Ok(known)
                });
                let listed = listed.collect::<Result<_>>()?;
                Test::Among(listed, Place::new(schema, state, url)?)
            }
        };
        Ok(Constraint {
            attributes: attributes.collect::<Result<_>>()?,
            test,
            restrict: match rule.restrict.as_str() {
                "" => None,
                url => Some(Place::new(schema, state, url)?),
            },
        })
    }

    /// What is wrong with values of an attribute, if anything is, for people.
    fn fault<R: Read>(
        &self,
        reading: &mut Reading<'_, R>,
        values: &[Vec<u8>],
    ) -> std::result::Result<Option<String>, Untold> {
        for value in values {
            steps::count(1);
            let text = std::str::from_utf8(value);
            match &self.test {
                Test::Regex(regex) if !text.is_ok_and(|text| regex.is_match(text)) => {
                    return Ok(Some(
                        "a value is not of the form that it must have".to_owned(),
                    ));
                }
                Test::NegRegex(regex) if text.is_ok_and(|text| regex.is_match(text)) => {
                    return Ok(Some(
                        "a value is of a form that it must not have".to_owned(),
                    ));
                }
                Test::Size(most) if value.len() > *most => {
                    return Ok(Some(format!("a value has more than {most} bytes")));
                }
                Test::Among(listed, place) if !is_listed(reading, (listed, place), value)? => {
                    return Ok(Some(
                        "a value is none of those that are listed for it".to_owned(),
                    ));
                }
                _ => {}
            }
        }
        Ok(None)
    }

    /// Whether it holds of an entry at all.
    fn is_about<R: Read>(
        &self,
        reading: &mut Reading<'_, R>,
        id: EntryId,
    ) -> std::result::Result<bool, Untold> {
        match &self.restrict {
            None => Ok(true),
            Some(place) => place.has(reading, id),
        }
    }

    /// What is wrong with an entry, in the place of how it was, if anything is.
    fn look_at<R: Read>(
        &self,
        reading: &mut Reading<'_, R>,
        id: EntryId,
        (old, new): (&Side<'_>, &Side<'_>),
    ) -> std::result::Result<Option<String>, Untold> {
        for attribute in &self.attributes {
            let damaged = |damaged| Error::corrupt(format!("entry {id}: {damaged}"));
            let attributes = &reading.state.attributes;
            let fault = if let Test::Count(most) = self.test {
                let [had, has] = [old, new].map(|side| count(reading.state, *attribute, side));
                let has = has.map_err(damaged)?;
                (has > most && has > had.map_err(damaged)?)
                    .then(|| format!("there are more than {most} values"))
            } else {
                let mut had = HashSet::new();
                each_value(attributes, *attribute, old, |value| {
                    had.insert(value.to_vec());
                })
                .map_err(damaged)?;
                let mut come = Vec::new();
                each_value(attributes, *attribute, new, |value| {
                    if !had.contains(value) {
                        come.push(value.to_vec());
                    }
                })
                .map_err(damaged)?;
                self.fault(reading, &come)?
            };
            if let Some(fault) = fault
                && self.is_about(reading, id)?
            {
                let name = reading.schema.type_of(*attribute).name();
                return Ok(Some(format!("{name}: {fault}")));
            }
        }
        Ok(None)
    }

    /// The attributes whose indexes it reads.
    fn looked_up(&self) -> &[AttributeTypeId] {
        match &self.test {
            Test::Among(listed, _) => listed,
            _ => &[],
        }
    }
}

/// How many values of a type an entry has.
fn count(
    state: &State,
    attribute: AttributeTypeId,
    side: &Side<'_>,
) -> std::result::Result<usize, crate::entry::Damaged> {
    let Some([entry, operational]) = &side.records else {
        return Ok(0);
    };
    let mut count = 0;
    for number in state.attributes.numbers_of(attribute) {
        for record in [entry, operational] {
            if let Some(stored) = record.attribute(*number)? {
                count += stored.values().iter().count();
            }
        }
        let large = entry.large().filter(|large| large.number == *number);
        count += large.map(|large| large.count as usize).sum::<usize>();
    }
    Ok(count)
}

/// Whether a value is one of an attribute in an entry of a place.
fn is_listed<R: Read>(
    reading: &mut Reading<'_, R>,
    (listed, place): (&[AttributeTypeId], &Place),
    value: &[u8],
) -> std::result::Result<bool, Untold> {
    let view = reading.view;
    for attribute in listed {
        let Some(indexed) = complete(reading.state, *attribute) else {
            continue;
        };
        let (known, mut key) = (reading.schema.type_of(*attribute), None);
        let kind = IndexKind::Equality;
        for_each_key(reading.schema, known, kind, value, &mut Vec::new(), |own| {
            key = Some(own.to_vec());
        });
        let Some(key) = key else {
            continue;
        };
        let mut postings = view.postings(indexed.index(kind), &key)?;
        while let Some(id) = postings.next()? {
            let left = reading.candidates_left.checked_sub(1);
            reading.candidates_left = left.ok_or(Untold::TooMuch)?;
            if place.has(reading, id)? {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

impl Rule for Constraint {
    fn is_local(&self) -> bool {
        self.restrict.is_none() && self.looked_up().is_empty()
    }

    fn indexes(&self, state: &State) -> impl Iterator<Item = Index> {
        equality_of(state, self.looked_up())
    }

    fn check(&self, schema: &Schema, state: &State) -> Result<()> {
        complete_or_refused(
            (schema, state),
            self.looked_up(),
            (ATTRIBUTE, "listed values"),
        )
    }

    fn look<R: Read>(&self, existing: &mut Existing<'_, R>) -> Result<()> {
        let mut reading = Reading {
            view: existing.view,
            schema: existing.schema,
            state: existing.state,
            names: existing.names,
            filter_work: FILTER_WORK_MAX,
            candidates_left: CANDIDATES_MAX,
        };
        let fault = match self.look_at(&mut reading, existing.id, (&Side::NONE, existing.side)) {
            Ok(fault) => fault,
            Err(Untold::TooMuch) => Some("it takes too long to tell whether it holds".to_owned()),
            Err(Untold::Failed(error)) => return Err(error),
        };
        if let Some(fault) = fault {
            let dn = names::dn_of(existing.view, existing.id)?;
            existing.violations.push(format!("'{dn}': {fault}"));
        }
        Ok(())
    }

    fn after<R: Read>(&self, update: &mut After<'_, R>) -> std::result::Result<(), Stop> {
        if update.new.records.is_none() {
            return Ok(());
        }
        let mut reading = Reading {
            view: update.view,
            schema: update.schema,
            state: update.state,
            names: update.names,
            filter_work: FILTER_WORK_MAX,
            candidates_left: *update.candidates_left,
        };
        let looked = self.look_at(&mut reading, update.id, (update.old, update.new));
        *update.candidates_left = reading.candidates_left;
        match looked {
            Ok(None) => Ok(()),
            Ok(Some(fault)) => Err(Stop::refuse(ResultCode::ConstraintViolation, fault)),
            Err(Untold::TooMuch) => {
                let diagnostic = "a constraint on the values of an attribute takes too long on this update: too many \
                                  entries are to be looked at, or its filter has too much to do";
                Err(Stop::refuse(ResultCode::AdminLimitExceeded, diagnostic))
            }
            Err(Untold::Failed(error)) => Err(error.into()),
        }
    }
}
