//! Collective attributes (RFC 3671): values that a subentry holds for all entries of its subtree (RFC 3672 §2.1).
//!
//! Clients see them as values of each of these entries. For that the entry is read as a record that has them, made for
//! each entry that a subentry governs; so filters, comparisons, assertions and results see the same. A directory that
//! never had a collective attribute is read as it is stored.
//!
//! The entry above a subentry is its administrative point, whether it says so by administrativeRole or not. Its area
//! ends where another specific area begins: at an entry with the role collectiveAttributeSpecificArea or
//! autonomousArea. Areas of the role collectiveAttributeInnerArea are in the one around them: both govern (RFC 3672
//! §2.2).

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};

use crate::engine::{AttributeNo, EntryId, Read, Table};
use crate::entry::{Damaged, Entry, RecordBuilder};
use crate::error::{Error, Result};
use crate::names::{self, Superior};
use crate::operational::{Operational, Vocabulary};
use crate::schema::{NormalDn, OperationalAttribute};
use crate::subtree::{Subtree, has_class};

/// The OID of excludeAllCollectiveAttributes (RFC 3671 §2.3).
const EXCLUDE_ALL: &[u8] = b"2.5.18.0";
/// Its name.
const EXCLUDE_ALL_NAME: &[u8] = b"excludeAllCollectiveAttributes";

/// The roles of entries at which a specific area begins (RFC 3672 §2.2, RFC 3671 §2), by OID and by name.
const ENDS_AREA: [&[u8]; 4] = [
    b"2.5.23.1",
    b"autonomousArea",
    b"2.5.23.5",
    b"collectiveAttributeSpecificArea",
];

/// The subentries of a commit that hold collective attributes.
#[derive(Debug)]
pub(crate) struct Collective {
    subentries: Vec<Governing>,
    /// Of entries above others, whether a specific area begins there. None where no entry has a role.
    areas: Option<Mutex<HashMap<EntryId, bool>>>,
}

/// Entries above others that are kept in mind.
const AREAS_MAX: usize = 10_000;

/// One of them.
#[derive(Debug)]
pub(crate) struct Governing {
    /// The subentry.
    pub(crate) id: EntryId,
    /// Its DN as written.
    pub(crate) dn: String,
    /// Its DN in normal form.
    pub(crate) normal: NormalDn,
    /// The administrative point.
    point: EntryId,
    subtree: Subtree,
    /// Its collective attributes.
    attributes: Vec<(AttributeNo, Vec<Vec<u8>>)>,
}

impl Collective {
    /// Those of a snapshot or a transaction, whose subentries these are among others; none if there are none.
    pub(crate) fn of<R: Read>(
        (view, vocabulary): (&R, Vocabulary<'_>),
        candidates: Vec<EntryId>,
    ) -> Result<Option<Arc<Collective>>> {
        let Vocabulary { schema, attributes } = vocabulary;
        let mut subentries = Vec::new();
        for id in candidates {
            let damaged = |damaged| Error::corrupt(format!("entry {id}: {damaged}"));
            if let Some(record) = view.get(Table::Entry, &id.to_key())? {
                let entry = Entry::new(&record).map_err(damaged)?;
                subentries.extend(Governing::of((view, vocabulary), (id, &entry))?);
            }
        }
        let role = schema.operational(OperationalAttribute::AdministrativeRole);
        let has_roles = !attributes.numbers_of(role).is_empty();
        Ok((!subentries.is_empty()).then(|| {
            Arc::new(Collective {
                subentries,
                areas: has_roles.then(Mutex::default),
            })
        }))
    }

    /// The subentries that an entry is governed by.
    fn governing<R: Read>(
        &self,
        (view, vocabulary): (&R, Vocabulary<'_>),
        id: EntryId,
        entry: &Entry<'_>,
        superior: Option<&Superior>,
    ) -> Result<Vec<&Governing>> {
        let damaged = |damaged| Error::corrupt(format!("entry {id}: {damaged}"));
        let mut governing = Vec::new();
        if entry.flags().is_subentry() {
            return Ok(governing);
        }
        for subentry in &self.subentries {
            let Governing { subtree, point, .. } = subentry;
            if subtree.depth(id, superior).is_some()
                && subtree.suits(vocabulary, entry).map_err(damaged)?
                && self.is_in_area((view, vocabulary), *point, (id, entry), superior)?
            {
                governing.push(subentry);
            }
        }
        Ok(governing)
    }

    /// Whether no other specific area begins between an administrative point and an entry below it.
    fn is_in_area<R: Read>(
        &self,
        (view, vocabulary): (&R, Vocabulary<'_>),
        point: EntryId,
        (id, entry): (EntryId, &Entry<'_>),
        superior: Option<&Superior>,
    ) -> Result<bool> {
        let Some(areas) = &self.areas else {
            return Ok(true);
        };
        if id == point {
            return Ok(true);
        }
        let damaged = |id| move |damaged| Error::corrupt(format!("entry {id}: {damaged}"));
        if begins_area(vocabulary, entry).map_err(damaged(id))? {
            return Ok(false);
        }
        let above = superior.into_iter().flat_map(Superior::line);
        for at in above.take_while(|at| *at != point) {
            let known = areas
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .get(&at)
                .copied();
            let begins = match known {
                Some(begins) => begins,
                None => {
                    let record = view.get(Table::Entry, &at.to_key())?;
                    let record = record.ok_or_else(|| {
                        Error::corrupt(format!("entry {at} has entries below it and no record"))
                    })?;
                    let entry = Entry::new(&record).map_err(damaged(at))?;
                    let begins = begins_area(vocabulary, &entry).map_err(damaged(at))?;
                    let mut areas = areas.lock().unwrap_or_else(PoisonError::into_inner);
                    if areas.len() < AREAS_MAX {
                        areas.insert(at, begins);
                    }
                    begins
                }
            };
            if begins {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Hands each subentry that an entry is governed by to `each`.
    pub(crate) fn each_subentry<R: Read>(
        &self,
        reading: (&R, Vocabulary<'_>),
        id: EntryId,
        entry: &Entry<'_>,
        superior: Option<&Superior>,
        each: impl FnMut(&Governing) -> Result<()>,
    ) -> Result<()> {
        let governing = self.governing(reading, id, entry, superior)?;
        governing.into_iter().try_for_each(each)
    }

    /// Makes the record of an entry with the collective attributes that it has, in place of `record`; whether it has
    /// any.
    pub(crate) fn read<R: Read>(
        &self,
        (view, vocabulary): (&R, Vocabulary<'_>),
        id: EntryId,
        entry: &Entry<'_>,
        superior: Option<&Superior>,
        record: &mut Vec<u8>,
    ) -> Result<bool> {
        let damaged = |damaged| Error::corrupt(format!("entry {id}: {damaged}"));
        let Vocabulary { schema, attributes } = vocabulary;
        let governing = self.governing((view, vocabulary), id, entry, superior)?;
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
        (view, vocabulary): (&R, Vocabulary<'_>),
        (id, entry): (EntryId, &Entry<'_>),
    ) -> Result<Option<Governing>> {
        let Vocabulary { schema, attributes } = vocabulary;
        let damaged = |damaged| Error::corrupt(format!("a subentry: {damaged}"));
        let class = schema.well_known().collective_attribute_subentry;
        if !has_class(vocabulary, entry, class).map_err(damaged)? {
            return Ok(None);
        }
        let Some(subtree) = Subtree::of(vocabulary, view, entry)? else {
            return Ok(None);
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
        Ok(Some(Governing {
            id,
            dn: names::dn_of(view, id)?,
            normal: names::normal_dn_of(view, schema, id)?,
            point: entry.parent(),
            subtree,
            attributes: held,
        }))
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

/// Whether a specific area begins at an entry.
fn begins_area(
    vocabulary: Vocabulary<'_>,
    entry: &Entry<'_>,
) -> std::result::Result<bool, Damaged> {
    let values = operational_values(vocabulary, entry, OperationalAttribute::AdministrativeRole)?;
    let mut roles = values.iter();
    Ok(roles.any(|role| {
        ENDS_AREA
            .iter()
            .any(|known| role.eq_ignore_ascii_case(known))
    }))
}

fn exclusions(
    vocabulary: Vocabulary<'_>,
    entry: &Entry<'_>,
) -> std::result::Result<Exclusions, Damaged> {
    let values = operational_values(
        vocabulary,
        entry,
        OperationalAttribute::CollectiveExclusions,
    )?;
    Ok(Exclusions { values })
}

/// The values of an operational attribute that is never stored in brief.
fn operational_values(
    vocabulary: Vocabulary<'_>,
    entry: &Entry<'_>,
    attribute: OperationalAttribute,
) -> std::result::Result<Vec<Vec<u8>>, Damaged> {
    let known = vocabulary.schema.operational(attribute);
    let number = vocabulary.attributes.number(known, "");
    let (Operational::Full(full), Some(number)) = (Operational::read(entry.operational())?, number)
    else {
        return Ok(Vec::new());
    };
    let stored = Entry::new(full)?.attribute(number)?;
    let values = stored.iter().flat_map(|stored| stored.values());
    Ok(values.map(<[u8]>::to_vec).collect())
}
