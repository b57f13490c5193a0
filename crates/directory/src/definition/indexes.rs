//! Indexes that come into being and go, as the definition has them.

use super::{ALWAYS_INDEXED, place_of, set_index};
use crate::engine::{CommitNo, Index, IndexKind, Write};
use crate::error::{Error, Result};
use crate::index_definition::{IndexDefinition, KIND_WORDS};
use crate::indexes::{AttributeIndexes, Completeness};
use crate::schema::{AttributeTypeId, Schema};
use crate::state::State;

/// An index that is being built: a type, the word for the kind, and the commit that began it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Build {
    pub(crate) attribute_type: AttributeTypeId,
    /// As in [`KIND_WORDS`].
    pub(crate) kind: &'static str,
    pub(crate) began: CommitNo,
}

impl Build {
    /// How far it has come; none if it was dropped.
    pub(crate) fn completeness(&self, state: &State) -> Option<Completeness> {
        let indexes = state.indexes.of(self.attribute_type)?;
        let now = completeness(indexes, self.kind);
        (now == Completeness::Complete || now == Completeness::Building(self.began)).then_some(now)
    }
}

/// The indexes that are being built.
pub(crate) fn building(state: &State) -> Vec<Build> {
    let mut builds = Vec::new();
    for indexes in state.indexes.iter() {
        for (kind, _) in KIND_WORDS {
            if let Completeness::Building(began) = completeness(indexes, kind) {
                builds.push(Build {
                    attribute_type: indexes.attribute_type,
                    kind,
                    began,
                });
            }
        }
    }
    builds
}

/// Has indexes come into being, empty, unless they are complete; they are to be built. The definition is still to be
/// stored.
///
/// # Errors
/// [`Error::Config`] when the attribute cannot be indexed so.
pub(crate) fn begin<T: Write>(
    txn: &mut T,
    schema: &Schema,
    state: &mut State,
    wanted: &IndexDefinition,
) -> Result<Vec<Build>> {
    let attribute = wanted.attribute.as_str();
    let began = txn.commit();
    let mut builds = Vec::new();
    for (kind, is_wanted) in wanted.kinds() {
        let known = schema.attribute_type(attribute.as_bytes());
        let indexes = known.and_then(|known| state.indexes.of(known.id()));
        let is_complete =
            indexes.is_some_and(|indexes| completeness(indexes, kind) == Completeness::Complete);
        if is_wanted && !is_complete {
            let building = Completeness::Building(began);
            builds.push(Build {
                attribute_type: set_index(txn, schema, state, attribute, kind, building)?,
                kind,
                began,
            });
        }
    }
    Ok(builds)
}

/// Drops indexes, of which `is_read` says whether a rule reads them; how many of them there were. The definition is
/// still to be stored.
///
/// # Errors
/// [`Error::Config`] for the two that every directory keeps, for those that a rule reads, and for an attribute the
/// schema does not have.
pub(crate) fn drop_from<T: Write>(
    txn: &mut T,
    schema: &Schema,
    state: &mut State,
    unwanted: &IndexDefinition,
    is_read: impl Fn(&State, Index) -> bool,
) -> Result<usize> {
    let known = schema.attribute_type(unwanted.attribute.as_bytes());
    let known = known.ok_or_else(|| {
        Error::Config(format!("the schema does not define {}", unwanted.attribute))
    })?;
    if unwanted.equality && ALWAYS_INDEXED.contains(&known.name()) {
        return Err(Error::Config(format!(
            "every directory keeps the index {} eq",
            known.name()
        )));
    }
    let Some(number) = state.indexes.of(known.id()).map(|indexes| indexes.number) else {
        return Ok(0);
    };
    let kind = IndexKind::Equality;
    let attribute = number;
    if unwanted.equality && is_read(state, Index { attribute, kind }) {
        return Err(Error::Config(format!(
            "a rule needs the index {0} eq: drop the rule, or take {0} out of it, first",
            known.name()
        )));
    }
    let indexes = state.indexes.of_mut(known.id(), number);
    let mut dropped = 0;
    for (kind, is_unwanted) in unwanted.kinds() {
        if !is_unwanted || completeness(indexes, kind) == Completeness::Absent {
            continue;
        }
        match posting_kind(kind) {
            Some(kind) => txn.drop_index(indexes.index(kind))?,
            None => txn.drop_table(indexes.order_table())?,
        };
        if let Some(place) = place_of(indexes, kind) {
            *place = Completeness::Absent;
        }
        dropped += 1;
    }
    Ok(dropped)
}

/// The kind of posting list a word stands for; `None` for ordering, which is a table.
pub(crate) fn posting_kind(word: &str) -> Option<IndexKind> {
    KIND_WORDS
        .iter()
        .find(|(known, _)| *known == word)
        .and_then(|(_, kind)| *kind)
}

fn completeness(indexes: &AttributeIndexes, kind: &str) -> Completeness {
    match posting_kind(kind) {
        Some(kind) => indexes.completeness(kind),
        None => indexes.ordering,
    }
}
