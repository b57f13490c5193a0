//! Collective attributes (RFC 3671): values that a subentry holds for all entries of its subtree (RFC 3672 §2.1).
//!
//! Clients see them as values of each of these entries. For that the entry is read as a record that has them, made for
//! each entry that a subentry governs; so filters, comparisons, assertions and results see the same. A directory that
//! never had a collective attribute is read as it is stored.
//!
//! The entry above a subentry is its administrative point, whether it says so by administrativeRole or not.

use std::collections::BTreeMap;
use std::collections::HashSet;
use std::sync::Arc;

use crate::engine::{AttributeNo, EntryId, Read, Table};
use crate::entry::{Damaged, Entry, RecordBuilder};
use crate::error::{Error, Result};
use crate::names::{self, Superior};
use crate::operational::{self, Operational, Vocabulary};
use crate::schema::{NormalDn, OperationalAttribute, Refinement, Schema, SubtreeSpecification};
use crate::search;
use crate::state::State;

/// The OID of excludeAllCollectiveAttributes (RFC 3671 §2.3).
const EXCLUDE_ALL: &[u8] = b"2.5.18.0";
/// Its name.
const EXCLUDE_ALL_NAME: &[u8] = b"excludeAllCollectiveAttributes";

/// The subentries of a commit that hold collective attributes.
#[derive(Debug)]
pub(crate) struct Collective {
    subentries: Vec<Governing>,
}

/// One of them.
#[derive(Debug)]
struct Governing {
    base: EntryId,
    chop_before: Vec<EntryId>,
    chop_after: Vec<EntryId>,
    minimum: usize,
    maximum: usize,
    filter: Option<Refinement>,
    /// Its collective attributes.
    attributes: Vec<(AttributeNo, Vec<Vec<u8>>)>,
}

impl Collective {
    /// Those of a snapshot or a transaction; none if there are none.
    pub(crate) fn of<R: Read>(
        schema: &Schema,
        state: &State,
        view: &R,
    ) -> Result<Option<Arc<Collective>>> {
        if !state.attributes.has_collective() {
            return Ok(None);
        }
        let mut subentries = Vec::new();
        for id in search::subentries(schema, state, view)? {
            let damaged = |damaged| Error::corrupt(format!("entry {id}: {damaged}"));
            if let Some(record) = view.get(Table::Entry, &id.to_key())? {
                let entry = Entry::new(&record).map_err(damaged)?;
                subentries.extend(Governing::of(schema, state, view, &entry)?);
            }
        }
        Ok((!subentries.is_empty()).then(|| Arc::new(Collective { subentries })))
    }

    /// Makes the record of an entry with the collective attributes that it has, in place of `record`; whether it has
    /// any.
    pub(crate) fn read(
        &self,
        vocabulary: Vocabulary<'_>,
        id: EntryId,
        entry: &Entry<'_>,
        superior: Option<&Superior>,
        record: &mut Vec<u8>,
    ) -> Result<bool> {
        if entry.flags().is_subentry() {
            return Ok(false);
        }
        let damaged = |damaged| Error::corrupt(format!("entry {id}: {damaged}"));
        let Vocabulary { schema, attributes } = vocabulary;
        let mut classes = None;
        let mut governing = Vec::new();
        for subentry in &self.subentries {
            if !subentry.covers(id, superior) {
                continue;
            }
            if let Some(filter) = &subentry.filter {
                if classes.is_none() {
                    classes = Some(classes_of(vocabulary, entry).map_err(damaged)?);
                }
                let has = |class: &str| {
                    let class = schema.object_class(class.as_bytes());
                    let mut classes = classes.iter().flatten();
                    class.is_some_and(|class| classes.any(|known| *known == class.id()))
                };
                if !filter.is_true(&has) {
                    continue;
                }
            }
            governing.push(subentry);
        }
        if governing.is_empty() {
            return Ok(false);
        }
        let excluded = exclusions(vocabulary, entry).map_err(damaged)?;
        let mut collected: BTreeMap<AttributeNo, Vec<&[u8]>> = BTreeMap::new();
        for (number, values) in governing.iter().flat_map(|subentry| &subentry.attributes) {
            if !excluded.is_excluded(vocabulary, *number) {
                let collected = collected.entry(*number).or_default();
                collected.extend(values.iter().map(Vec::as_slice));
            }
        }
        if collected.is_empty() {
            return Ok(false);
        }
        let mut builder = RecordBuilder::new();
        for stored in entry.attributes() {
            let stored = stored.map_err(damaged)?;
            match collected.get_mut(&stored.number()) {
                // From before such values could stand in subentries alone.
                Some(values) => values.extend(stored.values()),
                None => builder.copy(&stored),
            }
        }
        for (number, values) in collected {
            let known = attributes.get(number).ok_or_else(|| damaged(Damaged))?;
            let attribute_type = schema.type_of(known.attribute_type());
            let mut normal_forms = HashSet::new();
            // Whose values they are does not show, so that one is there once (RFC 3671 §1.2).
            let is_new = |value: &&[u8]| {
                let mut normal = Vec::new();
                let rule = attribute_type.equality();
                match rule.map(|rule| rule.normalise(schema, value, &mut normal)) {
                    Some(Ok(())) => normal_forms.insert(normal),
                    _ => normal_forms.insert(value.to_vec()),
                }
            };
            let values = values.into_iter().filter(is_new);
            builder.push(number, known.text().as_bytes(), values, false);
        }
        entry.large().for_each(|large| builder.push_large(large));
        record.clear();
        let rdn = entry.rdn().map_err(damaged)?;
        builder
            .finish(entry.parent(), entry.flags(), rdn, record)
            .map_err(|too_large| Error::State(format!("entry {id}: {too_large}")))?;
        record.extend_from_slice(entry.operational());
        Ok(true)
    }
}

impl Governing {
    /// A subentry with collective attributes, if it is one, and its base is there.
    fn of<R: Read>(
        schema: &Schema,
        state: &State,
        view: &R,
        entry: &Entry<'_>,
    ) -> Result<Option<Governing>> {
        let attributes = &state.attributes;
        let vocabulary = Vocabulary { schema, attributes };
        let damaged = |damaged| Error::corrupt(format!("a subentry: {damaged}"));
        let class = schema.well_known().collective_attribute_subentry;
        if !classes_of(vocabulary, entry)
            .map_err(damaged)?
            .contains(&class)
        {
            return Ok(None);
        }
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
        let mut held = Vec::new();
        for stored in entry.attributes() {
            let stored = stored.map_err(damaged)?;
            let known = attributes.get(stored.number());
            let known = known.map(|known| schema.type_of(known.attribute_type()));
            if known.is_some_and(|known| known.is_collective()) {
                let values = stored.values().iter().map(<[u8]>::to_vec).collect();
                held.push((stored.number(), values));
            }
        }
        let depth = |levels: u32| usize::try_from(levels).unwrap_or(usize::MAX);
        Ok(Some(Governing {
            base,
            chop_before: all(&read.chop_before)?,
            chop_after: all(&read.chop_after)?,
            minimum: depth(read.minimum),
            maximum: read.maximum.map_or(usize::MAX, depth),
            filter: read.filter,
            attributes: held,
        }))
    }

    /// Whether an entry is in the subtree, whatever its classes.
    fn covers(&self, id: EntryId, superior: Option<&Superior>) -> bool {
        let above = || superior.into_iter().flat_map(Superior::line);
        let mut line = std::iter::once(id).chain(above());
        let Some(depth) = line.position(|at| at == self.base) else {
            return false;
        };
        let mut line = std::iter::once(id).chain(above()).take(depth + 1);
        (self.minimum..=self.maximum).contains(&depth)
            && !line.any(|at| self.chop_before.contains(&at))
            && !above().take(depth).any(|at| self.chop_after.contains(&at))
    }
}

/// What an entry does not want (RFC 3671 §2.3).
#[derive(Default)]
struct Exclusions {
    values: Vec<Vec<u8>>,
}

impl Exclusions {
    fn is_excluded(&self, vocabulary: Vocabulary<'_>, number: AttributeNo) -> bool {
        let known = vocabulary.attributes.get(number);
        self.values.iter().any(|value| {
            let excluded = vocabulary.schema.attribute_type(value);
            value == EXCLUDE_ALL
                || value.eq_ignore_ascii_case(EXCLUDE_ALL_NAME)
                || excluded.map(|excluded| excluded.id())
                    == known.map(|known| known.attribute_type())
        })
    }
}

fn exclusions(
    vocabulary: Vocabulary<'_>,
    entry: &Entry<'_>,
) -> std::result::Result<Exclusions, Damaged> {
    let known = vocabulary
        .schema
        .operational(OperationalAttribute::CollectiveExclusions);
    let number = vocabulary.attributes.number(known, "");
    // In brief there are none.
    let (Operational::Full(full), Some(number)) = (Operational::read(entry.operational())?, number)
    else {
        return Ok(Exclusions::default());
    };
    let stored = Entry::new(full)?.attribute(number)?;
    let values = stored.iter().flat_map(|stored| stored.values());
    Ok(Exclusions {
        values: values.map(<[u8]>::to_vec).collect(),
    })
}

/// The object classes of an entry.
fn classes_of(
    vocabulary: Vocabulary<'_>,
    entry: &Entry<'_>,
) -> std::result::Result<Vec<crate::schema::ObjectClassId>, Damaged> {
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
