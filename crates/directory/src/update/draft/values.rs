//! The values of one attribute while they are changed.

use std::borrow::Cow;
use std::collections::HashMap;

use crate::schema::{AttributeType, Schema};
use crate::steps;

/// From how many comparisons on the normal forms of all values are made, to look others up in.
const COMPARISONS_MAX: usize = 256;

/// The values of an attribute that is being changed. They may be hundreds of thousands, and so may the values that a
/// request adds and deletes one by one.
#[derive(Debug, Default)]
pub(super) struct Values<'a> {
    /// In their order; none in the place of one that was deleted.
    list: Vec<Option<Cow<'a, [u8]>>>,
    deleted: usize,
    /// Times that a value was looked for.
    lookups: usize,
    /// Boxed as it hardly ever is there: what is moved for each attribute of an entry stays short.
    normal: Option<Box<NormalForms>>,
}

/// Where each value is by its normal form, once many have been looked for.
#[derive(Debug)]
struct NormalForms(HashMap<Vec<u8>, usize>);

impl<'a> Values<'a> {
    pub(super) fn new(values: impl IntoIterator<Item = Cow<'a, [u8]>>) -> Values<'a> {
        Values {
            list: values.into_iter().map(Some).collect(),
            ..Values::default()
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &[u8]> {
        self.list.iter().flatten().map(|value| &**value)
    }

    /// The values, each of which may get another form.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Cow<'a, [u8]>> {
        self.normal = None;
        self.list.iter_mut().flatten()
    }

    /// The value, if there has been no other one.
    #[inline]
    pub(super) fn only(&self) -> Option<&[u8]> {
        match self.list.as_slice() {
            [Some(only)] => Some(only),
            _ => None,
        }
    }

    fn len(&self) -> usize {
        self.list.len() - self.deleted
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Where a value is. `lookups` says how many are going to be looked for.
    pub(super) fn find(
        &mut self,
        schema: &Schema,
        known: &AttributeType,
        value: &[u8],
        lookups: usize,
    ) -> Option<usize> {
        if self.is_empty() {
            return None;
        }
        self.lookups += 1;
        let lookups = lookups.max(self.lookups);
        if self.normal.is_none()
            && lookups > 1
            && self.len().saturating_mul(lookups) > COMPARISONS_MAX
        {
            let places = self.list.iter().enumerate();
            let places = places.filter_map(|(at, value)| Some((value.as_ref()?, at)));
            steps::count(self.list.len());
            let normal = places.map(|(value, at)| (normal_form(schema, known, value), at));
            self.normal = Some(Box::new(NormalForms(normal.collect())));
        }
        steps::count(1);
        if let Some(NormalForms(normal)) = self.normal.as_deref() {
            return normal.get(&normal_form(schema, known, value)).copied();
        }
        steps::count(self.list.len());
        let is_same = |stored: &Option<Cow<'_, [u8]>>| stored.as_deref() == Some(value);
        if let Some(at) = self.list.iter().position(is_same) {
            return Some(at);
        }
        let normal = normal_form(schema, known, value);
        let mut stored_normal = Vec::new();
        let rule = known.equality()?;
        self.list.iter().position(|stored| {
            stored_normal.clear();
            stored.as_deref().is_some_and(|stored| {
                rule.normalise(schema, stored, &mut stored_normal).is_ok()
                    && stored_normal == normal
            })
        })
    }

    pub(super) fn push(&mut self, schema: &Schema, known: &AttributeType, value: Cow<'a, [u8]>) {
        steps::count(1);
        if let Some(NormalForms(normal)) = self.normal.as_deref_mut() {
            normal.insert(normal_form(schema, known, &value), self.list.len());
        }
        self.list.push(Some(value));
    }

    pub(super) fn delete(&mut self, schema: &Schema, known: &AttributeType, at: usize) {
        steps::count(1);
        if let Some(value) = self.list.get_mut(at).and_then(Option::take) {
            self.deleted += 1;
            if let Some(NormalForms(normal)) = self.normal.as_deref_mut() {
                normal.remove(&normal_form(schema, known, &value));
            }
        }
    }
}

/// What is equal for two values that are equal by the attribute's rule; without one, or a form that it can use, the
/// octets.
fn normal_form(schema: &Schema, known: &AttributeType, value: &[u8]) -> Vec<u8> {
    let mut normal = Vec::with_capacity(value.len());
    match known
        .equality()
        .map(|rule| rule.normalise(schema, value, &mut normal))
    {
        Some(Ok(())) => normal,
        _ => value.to_vec(),
    }
}
