//! Filters that rules ask of an entry in the middle of an update, when it has no record yet, or has none any more: of
//! attributes and values, with and, or and not.

use sapwood_ldap::filter::{Filter, FilterBuf, FilterView};
use sapwood_ldap::filter_text;

use crate::schema::{AttributeTypeId, Schema};
use crate::steps;

/// Such a filter.
#[derive(Debug)]
pub(super) struct PlainFilter(FilterBuf);

/// The values that an entry has of an attribute, whatever their options.
pub(super) type ValuesOf<'v> = dyn Fn(AttributeTypeId) -> Vec<Vec<u8>> + 'v;

impl PlainFilter {
    /// Reads one.
    ///
    /// # Errors
    /// Says what of it cannot be asked.
    pub(super) fn new(schema: &Schema, text: &str) -> Result<PlainFilter, String> {
        let filter = filter_text::parse(text).map_err(|error| error.to_string())?;
        check(schema, filter.as_filter())?;
        Ok(PlainFilter(filter))
    }

    /// Whether it is true of an entry.
    pub(super) fn matches(&self, schema: &Schema, values: &ValuesOf<'_>) -> bool {
        matches(schema, self.0.as_filter(), values)
    }
}

fn check(schema: &Schema, filter: Filter<'_>) -> Result<(), String> {
    let known = |name: &[u8]| {
        let known = schema.attribute_type(name);
        let name = String::from_utf8_lossy(name);
        known.ok_or_else(|| format!("the schema does not define '{name}'"))
    };
    match filter.view() {
        FilterView::And(filters) | FilterView::Or(filters) => {
            filters.iter().try_for_each(|part| check(schema, part))
        }
        FilterView::Not(part) => check(schema, part),
        FilterView::Present(name) => known(name).map(drop),
        FilterView::EqualityMatch(assertion) => {
            let known = known(assertion.attribute)?;
            let rule = known.equality();
            let is_one = rule.is_some_and(|rule| {
                let mut normal = Vec::new();
                rule.normalise(schema, assertion.value, &mut normal).is_ok()
            });
            match is_one {
                true => Ok(()),
                false => Err(format!("{} cannot have this value", known.name())),
            }
        }
        _ => Err("ask for attributes and for values, with and, or and not".to_owned()),
    }
}

fn matches(schema: &Schema, filter: Filter<'_>, values: &ValuesOf<'_>) -> bool {
    let of_all = |name: &[u8]| {
        let known = schema.attribute_type(name)?;
        let values: Vec<Vec<u8>> = known.subtypes().iter().flat_map(values).collect();
        Some((known, values))
    };
    match filter.view() {
        FilterView::And(filters) => filters.iter().all(|part| matches(schema, part, values)),
        FilterView::Or(filters) => filters.iter().any(|part| matches(schema, part, values)),
        FilterView::Not(part) => !matches(schema, part, values),
        FilterView::Present(name) => of_all(name).is_some_and(|(_, values)| !values.is_empty()),
        FilterView::EqualityMatch(assertion) => {
            let Some((known, values)) = of_all(assertion.attribute) else {
                return false;
            };
            steps::count(values.len());
            let normal = |value: &[u8]| {
                let mut normal = Vec::new();
                known
                    .equality()?
                    .normalise(schema, value, &mut normal)
                    .ok()?;
                Some(normal)
            };
            let asserted = normal(assertion.value);
            asserted.is_some() && values.iter().any(|value| normal(value) == asserted)
        }
        _ => false,
    }
}
