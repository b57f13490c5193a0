//! `valsort`: values that are sent by weights have one, as OpenLDAP's slapo-valsort asks for. How they are sent is said
//! by [`crate::search::value_order`].

use std::collections::HashSet;

use sapwood_ldap::result::ResultCode;

use super::{After, Existing, Rule};
use crate::config::ValueSortRule;
use crate::config::value_sort::{ATTRIBUTE, weighted};
use crate::engine::{EntryId, Index, Read};
use crate::error::{Error, Result};
use crate::names::{self, DnCache};
use crate::outcome::Stop;
use crate::reindex::{Side, each_value};
use crate::schema::{AttributeTypeId, NormalDn, Schema};
use crate::state::State;

/// An instance of the rule, ready.
#[derive(Debug)]
pub(super) struct ValueSort {
    attribute: AttributeTypeId,
    base: NormalDn,
    is_weighted: bool,
}

fn wrong(why: String) -> Error {
    Error::Config(format!("{ATTRIBUTE}: {why}"))
}

impl ValueSort {
    pub(super) fn new(schema: &Schema, state: &State, rule: &ValueSortRule) -> Result<ValueSort> {
        let name = &rule.attribute;
        let known = schema.attribute_type(name.as_bytes());
        let known = known.ok_or_else(|| wrong(format!("the schema does not define '{name}'")))?;
        if known.is_single_value() || known.is_operational() {
            return Err(wrong(format!(
                "{name} has one value at most, or is the server's own"
            )));
        }
        let is_numeric = rule.method.by.is_some_and(|by| by.is_numeric);
        let is_number = |rule: &str| ["integerMatch", "numericStringMatch"].contains(&rule);
        if is_numeric && !known.equality().is_some_and(|rule| is_number(rule.name())) {
            return Err(wrong(format!("the values of {name} are no numbers")));
        }
        let base = names::within_contexts(schema, &state.contexts, &rule.base).map_err(wrong)?;
        Ok(ValueSort {
            attribute: known.id(),
            base,
            is_weighted: rule.method.is_weighted,
        })
    }

    /// What is wrong with an entry that has come to be so, for people.
    fn fault<R: Read>(
        &self,
        (view, schema, state): (&R, &Schema, &State),
        names: &mut DnCache,
        (id, old, new): (EntryId, &Side<'_>, &Side<'_>),
    ) -> Result<Option<String>> {
        if !self.is_weighted {
            return Ok(None);
        }
        let damaged = |damaged| Error::corrupt(format!("entry {id}: {damaged}"));
        let mut lacking = HashSet::new();
        each_value(&state.attributes, self.attribute, new, |value| {
            if weighted(value).is_none() {
                lacking.insert(value.to_vec());
            }
        })
        .map_err(damaged)?;
        if lacking.is_empty() {
            return Ok(None);
        }
        // What was there before the rule came makes no update fail.
        each_value(&state.attributes, self.attribute, old, |value| {
            lacking.remove(value);
        })
        .map_err(damaged)?;
        if lacking.is_empty() {
            return Ok(None);
        }
        let walk = names::walk(view, &state.contexts, &self.base)?;
        let base = walk.and_then(|walk| walk.found()).map(|found| found.id);
        let is_below = match base {
            None => false,
            Some(base) => {
                let own = names.superior(view, id)?;
                own.is_some_and(|own| own.is_at_or_below(base))
            }
        };
        let name = schema.type_of(self.attribute).name();
        Ok(is_below.then(|| format!("{name}: a value has no weight before it, such as {{10}}")))
    }
}

impl Rule for ValueSort {
    fn is_local(&self) -> bool {
        !self.is_weighted
    }

    fn indexes(&self, _: &State) -> impl Iterator<Item = Index> {
        std::iter::empty()
    }

    fn check(&self, _: &Schema, _: &State) -> Result<()> {
        Ok(())
    }

    fn look<R: Read>(&self, existing: &mut Existing<'_, R>) -> Result<()> {
        let reading = (existing.view, existing.schema, existing.state);
        let about = (existing.id, &Side::NONE, existing.side);
        if let Some(fault) = self.fault(reading, existing.names, about)? {
            let dn = names::dn_of(existing.view, existing.id)?;
            existing.violations.push(format!("'{dn}': {fault}"));
        }
        Ok(())
    }

    fn after<R: Read>(&self, update: &mut After<'_, R>) -> std::result::Result<(), Stop> {
        if update.new.records.is_none() {
            return Ok(());
        }
        let reading = (update.view, update.schema, update.state);
        let about = (update.id, update.old, update.new);
        match self.fault(reading, update.names, about)? {
            None => Ok(()),
            Some(fault) => Err(Stop::refuse(ResultCode::ConstraintViolation, fault)),
        }
    }
}
