//! The order in which the values of some attributes are sent (the rule `valsort`): by themselves, or by the numbers in
//! braces before them, which are not sent.

use crate::config::value_sort::weighted;
use crate::config::{SortMethod, ValueSortRule};
use crate::engine::{EntryId, Read};
use crate::error::Result;
use crate::names::{self, Superior};
use crate::schema::{AttributeType, NormalDn, Schema};
use crate::state::State;

/// Of an attribute with more values nothing is sorted: they are in memory at once.
const VALUES_MAX: usize = 1 << 16;

/// The rules that may be about entries of a search.
#[derive(Debug)]
pub(super) struct ValueOrder {
    rules: Vec<Ordered>,
}

#[derive(Debug)]
struct Ordered {
    /// The attribute as it is sent, without options.
    name: String,
    base: EntryId,
    method: SortMethod,
}

impl ValueOrder {
    /// Those of a snapshot whose bases are there; `None` if there is none.
    pub(super) fn of<R: Read>(
        view: &R,
        schema: &Schema,
        state: &State,
    ) -> Result<Option<ValueOrder>> {
        let mut rules = Vec::new();
        for ValueSortRule {
            attribute,
            base,
            method,
            ..
        } in &state.settings.value_sorts
        {
            let mut dn = NormalDn::new();
            let Some(known) = schema.attribute_type(attribute.as_bytes()) else {
                continue;
            };
            if dn.parse(schema, base.as_bytes()).is_err() {
                continue;
            }
            let walk = names::walk(view, &state.contexts, &dn)?;
            if let Some(base) = walk.and_then(|walk| walk.found()) {
                rules.push(Ordered {
                    name: known.name().to_owned(),
                    base: base.id,
                    method: *method,
                });
            }
        }
        Ok((!rules.is_empty()).then_some(ValueOrder { rules }))
    }

    /// Whether it is about an entry at all.
    pub(super) fn is_about(&self, id: EntryId, superior: Option<&Superior>) -> bool {
        self.rules.iter().any(|rule| rule.is_about(id, superior))
    }

    /// Puts the values of an attribute of an entry in order.
    pub(super) fn sort(
        &self,
        schema: &Schema,
        (id, superior): (EntryId, Option<&Superior>),
        description: &[u8],
        values: &mut Vec<&[u8]>,
    ) {
        let rule = self.rules.iter().find(|rule| {
            rule.name.as_bytes().eq_ignore_ascii_case(description) && rule.is_about(id, superior)
        });
        let known = schema.attribute_type(description);
        if let (Some(rule), Some(known)) = (rule, known)
            && values.len() <= VALUES_MAX
        {
            rule.sort(schema, known, values);
        }
    }
}

impl Ordered {
    fn is_about(&self, id: EntryId, superior: Option<&Superior>) -> bool {
        id == self.base || superior.is_some_and(|superior| superior.is_at_or_below(self.base))
    }

    fn sort(&self, schema: &Schema, known: &AttributeType, values: &mut Vec<&[u8]>) {
        let mut keyed = Vec::with_capacity(values.len());
        for value in values.iter() {
            let (weight, value) = match self.method.is_weighted.then(|| weighted(value)) {
                // As in slapd: what has no weight is sent as it is.
                Some(None) => return,
                Some(Some(weighted)) => weighted,
                None => (0, *value),
            };
            keyed.push((weight, self.key(schema, known, value), value));
        }
        let descends = self.method.by.is_some_and(|by| by.is_descending);
        keyed.sort_by(|(weight, key, _), (other_weight, other, _)| {
            let by_value = match descends {
                true => other.cmp(key),
                false => key.cmp(other),
            };
            weight.cmp(other_weight).then(by_value)
        });
        values.clear();
        values.extend(keyed.into_iter().map(|(_, _, value)| value));
    }

    fn key(&self, schema: &Schema, known: &AttributeType, value: &[u8]) -> Key {
        match self.method.by {
            None => Key::Number(0),
            Some(by) if by.is_numeric => {
                let number = std::str::from_utf8(value).ok();
                Key::Number(
                    number
                        .and_then(|text| text.trim().parse().ok())
                        .unwrap_or(0),
                )
            }
            Some(_) => {
                let mut text = Vec::new();
                let rule = known.equality();
                if rule.is_none_or(|rule| rule.normalise(schema, value, &mut text).is_err()) {
                    text = value.to_vec();
                }
                Key::Text(text)
            }
        }
    }
}

/// What a value is sorted by.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Key {
    Number(i64),
    Text(Vec<u8>),
}
