//! `dds`: entries of the class dynamicObject end by themselves (RFC 2589), as OpenLDAP's slapo-dds has it. Here they
//! get the time at which they end, and what cannot be is refused; what deletes them is in [`crate::upkeep`].

use std::borrow::Cow;

use sapwood_ldap::result::ResultCode;

use super::{After, Before, Existing, Rule, Touched};
use crate::config::DdsRule;
use crate::engine::{EntryId, Index, Read, Table};
use crate::entry::Entry;
use crate::error::{Error, Result};
use crate::indexes::equality_key;
use crate::names;
use crate::operational::Vocabulary;
use crate::outcome::Stop;
use crate::plan::classes::class_index;
use crate::reindex::Side;
use crate::schema::{OperationalAttribute, Schema};
use crate::stamp::generalized_time;
use crate::state::State;
use crate::subtree::has_class;

/// The rule, ready.
#[derive(Debug)]
pub(super) struct Dds {
    rule: DdsRule,
    /// The class in normal form.
    class: Vec<u8>,
}

impl Dds {
    pub(super) fn new(schema: &Schema, rule: &DdsRule) -> Result<Dds> {
        let known = schema.well_known();
        let class = schema.class_of(known.dynamic_object).name();
        let mut normal = Vec::new();
        let rule_of_classes = schema.type_of(known.object_class).equality();
        let normalised =
            rule_of_classes.map(|rule| rule.normalise(schema, class.as_bytes(), &mut normal));
        match normalised {
            Some(Ok(())) => Ok(Dds {
                rule: rule.clone(),
                class: normal,
            }),
            _ => Err(Error::State("objectClass has no equality rule".into())),
        }
    }

    /// Refuses one dynamic entry too many.
    fn check_count<R: Read>(&self, update: &Before<'_, '_, R>) -> std::result::Result<(), Stop> {
        let Some(index) = class_index(update.schema, update.state) else {
            return Ok(());
        };
        let most = u64::from(self.rule.max_objects);
        let key = equality_key(&self.class);
        if most > 0 && update.view.cardinality(index, &key, &mut Vec::new())? >= most {
            let diagnostic = format!("there are {most} dynamic entries, and may be no more");
            return Err(Stop::refuse(ResultCode::UnwillingToPerform, diagnostic));
        }
        Ok(())
    }
}

/// Whether an entry is a dynamic one.
fn is_dynamic((schema, state): (&Schema, &State), id: EntryId, entry: &Entry<'_>) -> Result<bool> {
    let vocabulary = Vocabulary {
        schema,
        attributes: &state.attributes,
    };
    let class = schema.well_known().dynamic_object;
    has_class(vocabulary, entry, class)
        .map_err(|damaged| Error::corrupt(format!("entry {id}: {damaged}")))
}

/// Whether it is known when an entry ends.
fn has_end((schema, state): (&Schema, &State), id: EntryId, side: &Side<'_>) -> Result<bool> {
    let expires = schema.operational(OperationalAttribute::EntryExpireTimestamp);
    let Some([_, operational]) = &side.records else {
        return Ok(false);
    };
    let Some(number) = state.attributes.number(expires, "") else {
        return Ok(false);
    };
    let stored = operational.attribute(number);
    let stored = stored.map_err(|damaged| Error::corrupt(format!("entry {id}: {damaged}")))?;
    Ok(stored.is_some())
}

impl Rule for Dds {
    fn indexes(&self, state: &State) -> impl Iterator<Item = Index> {
        class_index(&state.schema, state).into_iter()
    }

    fn check(&self, _: &Schema, _: &State) -> Result<()> {
        Ok(())
    }

    fn sees_drafts(&self, _: Touched) -> bool {
        true
    }

    fn before<R: Read>(&self, update: &mut Before<'_, '_, R>) -> std::result::Result<(), Stop> {
        let (schema, known) = (update.schema, update.schema.well_known());
        let classes = update.draft.values(known.object_class);
        let mut classes = classes
            .into_iter()
            .filter_map(|name| schema.object_class(name));
        let is = classes.any(|class| class.id() == known.dynamic_object);
        match &update.old {
            Some([old, _]) => {
                let turned = match (is_dynamic((schema, update.state), update.id, old)?, is) {
                    (false, true) => "an entry cannot become a dynamic one: add another",
                    (true, false) => "a dynamic entry stays one until it ends",
                    _ => return Ok(()),
                };
                Err(Stop::refuse(ResultCode::ObjectClassViolation, turned))
            }
            None if is => {
                self.check_count(update)?;
                let ends = update.now + u64::from(self.rule.new_ttl()) * 1_000_000;
                let expires = schema.operational(OperationalAttribute::EntryExpireTimestamp);
                let ends = Cow::Owned(generalized_time(ends).into_bytes());
                update
                    .draft
                    .replace(schema, schema.type_of(expires), "", vec![ends]);
                Ok(())
            }
            None => Ok(()),
        }
    }

    fn look<R: Read>(&self, existing: &mut Existing<'_, R>) -> Result<()> {
        let names = (existing.schema, existing.state);
        let Some([entry, _]) = &existing.side.records else {
            return Ok(());
        };
        if is_dynamic(names, existing.id, entry)? && !has_end(names, existing.id, existing.side)? {
            let dn = names::dn_of(existing.view, existing.id)?;
            let text = format!("'{dn}' is a dynamicObject, and nothing says when it ends");
            existing.violations.push(text);
        }
        Ok(())
    }

    fn after<R: Read>(&self, update: &mut After<'_, R>) -> std::result::Result<(), Stop> {
        let names = (update.schema, update.state);
        let Some([new, _]) = &update.new.records else {
            return Ok(());
        };
        if is_dynamic(names, update.id, new)? {
            // Imports do not come by drafts.
            return match has_end(names, update.id, update.new)? {
                true => Ok(()),
                false => {
                    let diagnostic = "a dynamicObject needs an entryExpireTimestamp: when it ends";
                    Err(Stop::refuse(ResultCode::ConstraintViolation, diagnostic))
                }
            };
        }
        let parent = new.parent();
        let stayed = update
            .old
            .records
            .as_ref()
            .is_some_and(|[old, _]| old.parent() == parent);
        if stayed || parent.is_root() {
            return Ok(());
        }
        let record = update.view.get(Table::Entry, &parent.to_key())?;
        let record =
            record.ok_or_else(|| Error::corrupt(format!("entry {parent} has no record")))?;
        let above = Entry::new(&record)
            .map_err(|damaged| Error::corrupt(format!("entry {parent}: {damaged}")))?;
        match is_dynamic(names, parent, &above)? {
            false => Ok(()),
            true => {
                let diagnostic = "below a dynamic entry there are dynamic ones only";
                Err(Stop::refuse(ResultCode::ConstraintViolation, diagnostic))
            }
        }
    }
}
