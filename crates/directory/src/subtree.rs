//! The subtree of a subentry (RFC 3672 §2.1): which entries it is about.
//!
//! The entry above a subentry is its administrative point, whether it says so by administrativeRole or not.

use crate::engine::{EntryId, Read};
use crate::entry::{Damaged, Entry};
use crate::error::{Error, Result};
use crate::names::{self, Superior};
use crate::operational::{self, Vocabulary};
use crate::schema::{
    NormalDn, ObjectClassId, OperationalAttribute, Refinement, Schema, SubtreeSpecification,
};

/// The subtree of a subentry.
#[derive(Debug)]
pub(crate) struct Subtree {
    base: EntryId,
    chop_before: Vec<EntryId>,
    chop_after: Vec<EntryId>,
    minimum: usize,
    maximum: usize,
    filter: Option<Refinement>,
}

impl Subtree {
    /// That of a subentry, if it has one, and its base is there.
    pub(crate) fn of<R: Read>(
        vocabulary: Vocabulary<'_>,
        view: &R,
        entry: &Entry<'_>,
    ) -> Result<Option<Subtree>> {
        let Vocabulary { schema, attributes } = vocabulary;
        let damaged = |damaged| Error::corrupt(format!("a subentry: {damaged}"));
        let mut spelled = Vec::new();
        let operational = operational::spell(entry, vocabulary, &mut spelled).map_err(damaged)?;
        let specification = schema.operational(OperationalAttribute::SubtreeSpecification);
        let specification = match attributes.number(specification, "") {
            Some(number) => operational.attribute(number).map_err(damaged)?,
            None => None,
        };
        let specification = specification.and_then(|stored| stored.values().iter().next());
        let Some(read) = specification.and_then(SubtreeSpecification::parse) else {
            return Ok(None);
        };
        let Some(base) = find(schema, view, entry.parent(), &read.base)? else {
            return Ok(None);
        };
        let all = |names: &[String]| -> Result<Vec<EntryId>> {
            let mut found = Vec::new();
            for name in names {
                found.extend(find(schema, view, base, name)?);
            }
            Ok(found)
        };
        let depth = |levels: u32| usize::try_from(levels).unwrap_or(usize::MAX);
        Ok(Some(Subtree {
            base,
            chop_before: all(&read.chop_before)?,
            chop_after: all(&read.chop_after)?,
            minimum: depth(read.minimum),
            maximum: read.maximum.map_or(usize::MAX, depth),
            filter: read.filter,
        }))
    }

    /// How far an entry is below the base, if it is in the subtree, whatever its classes.
    pub(crate) fn depth(&self, id: EntryId, superior: Option<&Superior>) -> Option<usize> {
        let above = || superior.into_iter().flat_map(Superior::line);
        let depth = std::iter::once(id)
            .chain(above())
            .position(|at| at == self.base)?;
        let mut line = std::iter::once(id).chain(above()).take(depth + 1);
        let is_in = (self.minimum..=self.maximum).contains(&depth)
            && !line.any(|at| self.chop_before.contains(&at))
            && !above().take(depth).any(|at| self.chop_after.contains(&at));
        is_in.then_some(depth)
    }

    /// Whether the classes of an entry are such that it is about it.
    pub(crate) fn suits(
        &self,
        vocabulary: Vocabulary<'_>,
        entry: &Entry<'_>,
    ) -> std::result::Result<bool, Damaged> {
        let Some(filter) = &self.filter else {
            return Ok(true);
        };
        let classes = classes_of(vocabulary, entry)?;
        Ok(filter.is_true(&|class: &str| {
            let class = vocabulary.schema.object_class(class.as_bytes());
            class.is_some_and(|class| classes.contains(&class.id()))
        }))
    }
}

/// Whether an entry has an object class, by name.
pub(crate) fn has_class(
    vocabulary: Vocabulary<'_>,
    entry: &Entry<'_>,
    class: ObjectClassId,
) -> std::result::Result<bool, Damaged> {
    Ok(classes_of(vocabulary, entry)?.contains(&class))
}

/// The object classes of an entry.
pub(crate) fn classes_of(
    vocabulary: Vocabulary<'_>,
    entry: &Entry<'_>,
) -> std::result::Result<Vec<ObjectClassId>, Damaged> {
    let object_class = vocabulary.schema.well_known().object_class;
    let stored = match vocabulary.attributes.number(object_class, "") {
        Some(number) => entry.attribute(number)?,
        None => None,
    };
    let values = stored.iter().flat_map(|stored| stored.values());
    let classes = values.filter_map(|name| vocabulary.schema.object_class(name));
    Ok(classes.map(|class| class.id()).collect())
}

/// The entry with a name relative to another one; none if there is none.
fn find<R: Read>(schema: &Schema, view: &R, from: EntryId, name: &str) -> Result<Option<EntryId>> {
    let mut normal = NormalDn::new();
    if normal.parse(schema, name.as_bytes()).is_err() {
        return Ok(None);
    }
    let (mut at, mut key) = (from, Vec::new());
    for rdn in normal.rdns() {
        match names::child(view, at, rdn, &mut key)? {
            Some(child) => at = child.id,
            None => return Ok(None),
        }
    }
    Ok(Some(at))
}
