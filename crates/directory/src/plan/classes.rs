//! The entries of an object class, found by its index.

use super::stream::{Pace, Stream};
use super::{Planner, Term};
use crate::engine::{EntryId, Index, IndexKind, Read};
use crate::error::{Error, Result};
use crate::indexes::Completeness;
use crate::schema::{ObjectClassId, Schema};
use crate::state::State;

/// All subentries of a snapshot; none if the index of object classes is being built.
pub(crate) fn subentries<R: Read>(
    schema: &Schema,
    state: &State,
    view: &R,
) -> Result<Vec<EntryId>> {
    let class = schema.well_known().subentry;
    of_class((schema, state, view), class)
}

/// All password policies, subentries or not; none if the index of object classes is being built.
pub(crate) fn password_policies<R: Read>(
    schema: &Schema,
    state: &State,
    view: &R,
) -> Result<Vec<EntryId>> {
    let class = schema.well_known().password_policy;
    of_class((schema, state, view), class)
}

/// The index that entries of a class are found by, if it is complete.
pub(crate) fn class_index(schema: &Schema, state: &State) -> Option<Index> {
    let indexes = state.indexes.of(schema.well_known().object_class)?;
    let is_complete = indexes.equality == Completeness::Complete;
    is_complete.then(|| indexes.index(IndexKind::Equality))
}

/// The candidates for subentries; `None` if the index of object classes is being built.
pub(crate) fn subentry_term<R: Read>(planner: &Planner<'_, R>) -> Result<Option<Term>> {
    complete_term(planner, planner.schema.well_known().subentry)
}

/// The entries of an object class, by its name.
pub(crate) fn class_term<R: Read>(planner: &Planner<'_, R>, class: &str) -> Result<Term> {
    let object_class = planner.schema.well_known().object_class;
    let rule = planner
        .schema
        .type_of(object_class)
        .equality()
        .ok_or_else(|| Error::State("objectClass has no equality rule".into()))?;
    let mut normal = Vec::new();
    rule.normalise(planner.schema, class.as_bytes(), &mut normal)
        .map_err(|invalid| Error::State(format!("object class {class}: {invalid}")))?;
    planner
        .equality(object_class, &normal)?
        .ok_or_else(|| Error::State("the index of objectClass is not complete".into()))
}

/// The same, or `None` if the index of object classes is being built.
pub(super) fn complete_term<R: Read>(
    planner: &Planner<'_, R>,
    class: ObjectClassId,
) -> Result<Option<Term>> {
    let schema = planner.schema;
    match class_index(schema, planner.state) {
        Some(_) => class_term(planner, schema.class_of(class).name()).map(Some),
        None => Ok(None),
    }
}

/// All entries of an object class.
fn of_class<R: Read>(
    (schema, state, view): (&Schema, &State, &R),
    class: ObjectClassId,
) -> Result<Vec<EntryId>> {
    let planner = Planner {
        schema,
        state,
        view,
    };
    match complete_term(&planner, class)? {
        Some(term) => entries_of(view, &term),
        None => Ok(Vec::new()),
    }
}

/// Every entry of a term.
fn entries_of<R: Read>(view: &R, term: &Term) -> Result<Vec<EntryId>> {
    let pace = Pace::new(u64::MAX);
    let mut stream = Stream::open(view, term, None, &pace);
    let mut entries = Vec::new();
    let mut next = stream.find(EntryId::ROOT)?;
    while let Some(entry) = next {
        entries.push(entry);
        next = stream.find(EntryId(entry.0.saturating_add(1)))?;
    }
    Ok(entries)
}
