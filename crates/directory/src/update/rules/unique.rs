//! `unique`: no two entries share a value of an attribute, in the whole directory or at and below a base, as OpenLDAP's
//! slapo-unique and the attribute uniqueness of 389 Directory Server have it.
//!
//! The values that an update gives to an entry are looked up in the equality index, in the update's own transaction, so
//! that those of a batch see each other. What was there before the rule came makes no update fail. Each attribute is by
//! itself; its options make no difference, and its subtypes are attributes of their own.

use sapwood_ldap::result::ResultCode;

use super::{After, CANDIDATES_MAX, Existing, Rule, complete, complete_or_refused, equality_of};
use crate::config::UniqueRule;
use crate::config::unique::UNIQUE_URI;
use crate::engine::{AttributeNo, EntryId, Index, IndexKind, Postings, Read, Table};
use crate::entry::Entry;
use crate::error::{Error, Result};
use crate::indexes::{AttributeIndexes, can_index};
use crate::large;
use crate::names::{self, DnCache};
use crate::outcome::Stop;
use crate::reindex::{KeySet, Side, index_keys, is_unchanged};
use crate::schema::{AttributeTypeId, NormalDn, Schema};
use crate::state::State;
use crate::steps;

/// An instance of the rule, ready.
#[derive(Debug)]
pub(super) struct Unique {
    attributes: Vec<AttributeTypeId>,
    /// None for the whole directory.
    base: Option<NormalDn>,
    /// As configured.
    base_dn: String,
}

/// Where the values of an entry may not be a second time.
#[derive(Clone, Copy)]
enum Extent {
    Everywhere,
    /// At this entry and below it.
    Below(EntryId),
    Nowhere,
}

impl Unique {
    pub(super) fn new(schema: &Schema, state: &State, rule: &UniqueRule) -> Result<Unique> {
        let wrong = |why: String| Error::Config(format!("{UNIQUE_URI}: {why}"));
        if rule.attributes.is_empty() {
            return Err(wrong("attributes: name one at least".into()));
        }
        let attribute = |name: &String| {
            let known = schema
                .attribute_type(name.as_bytes())
                .ok_or_else(|| wrong(format!("attributes: the schema does not define '{name}'")))?;
            if schema.is_protected(known.id()) {
                let why =
                    format!("attributes: whether a {name} is there already is nobody's business");
                return Err(wrong(why));
            }
            can_index(known, IndexKind::Equality)
                .map_err(|why| wrong(format!("attributes: {name} cannot be looked up: {why}")))?;
            Ok(known.id())
        };
        let base = match rule.base.as_str() {
            "" => None,
            dn => {
                let base = names::within_contexts(schema, &state.contexts, dn);
                Some(base.map_err(|why| wrong(format!("base: {why}")))?)
            }
        };
        Ok(Unique {
            attributes: rule
                .attributes
                .iter()
                .map(attribute)
                .collect::<Result<_>>()?,
            base,
            base_dn: rule.base.clone(),
        })
    }

    /// Refuses values of an attribute that the entry has got and another one has.
    fn check_values<R: Read>(
        &self,
        update: &mut After<'_, R>,
        indexed: &AttributeIndexes,
        (old, new): (Side<'_>, Side<'_>),
    ) -> std::result::Result<(), Stop> {
        let (schema, attributes) = (update.schema, &update.state.attributes);
        let name = schema.type_of(indexed.attribute_type).name();
        let mut had = KeySet::default();
        let mut has = KeySet::default();
        let key = &mut Vec::new();
        for (side, keys) in [(&old, &mut had), (&new, &mut has)] {
            index_keys(
                schema,
                attributes,
                indexed,
                IndexKind::Equality,
                side,
                keys,
                key,
            )
            .map_err(|damaged| Error::corrupt(format!("entry {}: {damaged}", update.id)))?;
        }
        let view = update.view;
        let mut extent = None;
        has.without(&had, |key| {
            let mut postings = view.postings(indexed.index(IndexKind::Equality), key)?;
            while let Some(other) = postings.next()? {
                if other == update.id {
                    continue;
                }
                // The same for all that have the value, and mostly nobody has.
                let extent = match extent {
                    Some(extent) => extent,
                    None => {
                        let of = self.extent((view, update.state), update.names, update.id)?;
                        update.names.take_read();
                        *extent.insert(of)
                    }
                };
                steps::count(1);
                let is_there = match extent {
                    Extent::Everywhere => true,
                    Extent::Below(base) => is_at_or_below(view, update.names, other, base)?,
                    Extent::Nowhere => return Ok(()),
                };
                if is_there {
                    let diagnostic = format!(
                        "{name}: a value is that of another entry already, and must be unique"
                    );
                    return Err(Stop::refuse(ResultCode::ConstraintViolation, diagnostic));
                }
                let looked_at = 1 + update.names.take_read();
                if let Some(left) = update.candidates_left.checked_sub(looked_at) {
                    *update.candidates_left = left;
                } else {
                    let diagnostic = format!(
                        "{name}: more than {CANDIDATES_MAX} entries elsewhere have values of this update or transaction, \
                         which must be unique: too many to tell whether another one is among them"
                    );
                    return Err(Stop::refuse(ResultCode::AdminLimitExceeded, diagnostic));
                }
            }
            Ok(())
        })
    }

    /// The entry at the base, if there is one.
    fn base_entry<R: Read>(&self, view: &R, state: &State) -> Result<Option<EntryId>> {
        let Some(base) = &self.base else {
            return Ok(None);
        };
        let walk = names::walk(view, &state.contexts, base)?;
        Ok(walk.and_then(|walk| walk.found()).map(|found| found.id))
    }

    /// Where the values of an entry may not be a second time.
    fn extent<R: Read>(
        &self,
        (view, state): (&R, &State),
        names: &mut DnCache,
        id: EntryId,
    ) -> Result<Extent> {
        if self.base.is_none() {
            return Ok(Extent::Everywhere);
        }
        let Some(base) = self.base_entry(view, state)? else {
            return Ok(Extent::Nowhere);
        };
        Ok(match is_at_or_below(view, names, id, base)? {
            true => Extent::Below(base),
            false => Extent::Nowhere,
        })
    }

    /// Whether the entry has just come to where values are unique, because it was renamed or moved. One that brings
    /// others along is refused: they would all have to be looked at.
    fn has_entered<R: Read>(
        &self,
        update: &mut After<'_, R>,
        old: &Entry<'_>,
        new: &Entry<'_>,
    ) -> std::result::Result<bool, Stop> {
        if self.base.is_none() || !update.is_renamed(old, new) {
            return Ok(false);
        }
        let view = update.view;
        let Some(base) = self.base_entry(view, update.state)? else {
            return Ok(false);
        };
        let is_base = is_below(view, update.names, base, update.id)?;
        let has_entered = is_base
            || is_below(view, update.names, new.parent(), base)?
                && !is_below(view, update.names, old.parent(), base)?;
        if has_entered && view.has_children(update.id)? {
            let diagnostic = format!(
                "values are unique below '{}': entries with others below them cannot get there by a new name; move \
                 what is below them first",
                self.base_dn
            );
            return Err(Stop::refuse(ResultCode::UnwillingToPerform, diagnostic));
        }
        Ok(has_entered)
    }
}

impl Rule for Unique {
    fn indexes(&self, state: &State) -> impl Iterator<Item = Index> {
        equality_of(state, &self.attributes)
    }

    fn check(&self, schema: &Schema, state: &State) -> Result<()> {
        complete_or_refused(
            (schema, state),
            &self.attributes,
            (UNIQUE_URI, "equal values"),
        )
    }

    fn look<R: Read>(&self, existing: &mut Existing<'_, R>) -> Result<()> {
        let (view, state, id) = (existing.view, existing.state, existing.id);
        let mut extent = None;
        for attribute in &self.attributes {
            let Some(indexed) = complete(state, *attribute) else {
                continue;
            };
            let name = existing.schema.type_of(*attribute).name();
            let mut keys = KeySet::default();
            index_keys(
                existing.schema,
                &state.attributes,
                indexed,
                IndexKind::Equality,
                existing.side,
                &mut keys,
                &mut Vec::new(),
            )
            .map_err(|damaged| Error::corrupt(format!("entry {id}: {damaged}")))?;
            for key in keys.iter() {
                let mut postings = view.postings(indexed.index(IndexKind::Equality), key)?;
                while let Some(other) = postings.next()? {
                    if other == id {
                        continue;
                    }
                    let extent = match extent {
                        Some(extent) => extent,
                        None => *extent.insert(self.extent((view, state), existing.names, id)?),
                    };
                    let is_there = match extent {
                        Extent::Everywhere => true,
                        Extent::Below(base) => is_at_or_below(view, existing.names, other, base)?,
                        Extent::Nowhere => return Ok(()),
                    };
                    if !is_there {
                        continue;
                    }
                    // Of those that share a value, the first tells of it.
                    if other > id {
                        let value = String::from_utf8_lossy(key);
                        let (one, other) = (names::dn_of(view, id)?, names::dn_of(view, other)?);
                        existing
                            .violations
                            .push(format!("{name}: '{value}' is in '{one}' and in '{other}'"));
                    }
                    break;
                }
                if existing.violations.is_full() {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    fn after<R: Read>(&self, update: &mut After<'_, R>) -> std::result::Result<(), Stop> {
        let (old, new) = (*update.old, *update.new);
        let Some([record, _]) = &new.records else {
            return Ok(());
        };
        let has_entered = match &old.records {
            Some([old, _]) => self.has_entered(update, old, record)?,
            None => false,
        };
        // Of one that has entered all values are looked at, those of large attributes, too.
        let all = match has_entered {
            true => large::all(update.view, update.id, record)?,
            false => Vec::new(),
        };
        let sides = match has_entered {
            true => (Side::NONE, Side { large: &all, ..new }),
            false => (old, new),
        };
        for attribute in &self.attributes {
            if let Some(indexed) = complete(update.state, *attribute) {
                let is_same = is_unchanged(&update.state.attributes, indexed, &sides.0, &sides.1)
                    .map_err(|damaged| {
                    Error::corrupt(format!("entry {}: {damaged}", update.id))
                })?;
                if !is_same {
                    self.check_values(update, indexed, sides)?;
                }
            } else if has_values(update.state, *attribute, record) {
                let name = update.schema.type_of(*attribute).name();
                let diagnostic = format!(
                    "{name}: values must be unique, and there is no complete equality index to find equal ones by: \
                     the administrator can make one"
                );
                return Err(Stop::refuse(ResultCode::UnwillingToPerform, diagnostic));
            }
        }
        Ok(())
    }
}

/// Whether an entry is at or below another one.
fn is_at_or_below<R: Read>(
    view: &R,
    names: &mut DnCache,
    id: EntryId,
    base: EntryId,
) -> Result<bool> {
    if id == base {
        return Ok(true);
    }
    let record = view.get(Table::Entry, &id.to_key())?;
    let record = record.ok_or_else(|| Error::corrupt(format!("entry {id} is indexed only")))?;
    let entry =
        Entry::new(&record).map_err(|damaged| Error::corrupt(format!("entry {id}: {damaged}")))?;
    is_below(view, names, entry.parent(), base)
}

/// Whether an entry with this parent is below another one.
fn is_below<R: Read>(
    view: &R,
    names: &mut DnCache,
    parent: EntryId,
    base: EntryId,
) -> Result<bool> {
    let superior = names.superior(view, parent)?;
    Ok(superior.is_some_and(|superior| superior.is_at_or_below(base)))
}

/// Whether an entry has values of an attribute.
fn has_values(state: &State, attribute: AttributeTypeId, entry: &Entry<'_>) -> bool {
    let numbers = state.attributes.numbers_of(attribute);
    let is_stored =
        |number: &AttributeNo| entry.attribute(*number).is_ok_and(|found| found.is_some());
    numbers.iter().any(is_stored) || entry.large().any(|large| numbers.contains(&large.number))
}
