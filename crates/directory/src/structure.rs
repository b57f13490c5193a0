//! Which DIT structure rule governs an entry (RFC 4512 §4.1.7.1): that follows from those that govern the entries above
//! it. It is asked where rules are kept, and where governingStructureRule is read.

use sapwood_ldap::dn::{Dn, RDNS_MAX};

use crate::engine::{EntryId, Read, Table};
use crate::entry::Entry;
use crate::error::{Error, Result};
use crate::operational::Vocabulary;
use crate::schema::{Governed, ObjectClassId};

/// What governs an entry, and the one above it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) above: Governed,
    pub(crate) own: Governed,
}

/// Finds out what governs an entry. Subentries are governed by nothing.
pub(crate) fn place_of<R: Read>(
    view: &R,
    vocabulary: Vocabulary<'_>,
    (id, entry): (EntryId, &Entry<'_>),
) -> Result<Place> {
    let mut line = vec![named(vocabulary, (id, entry))?];
    let mut at = entry.parent();
    while !at.is_root() && line.len() <= RDNS_MAX {
        let record = view.get(Table::Entry, &at.to_key())?;
        let record = record.ok_or_else(|| Error::corrupt(format!("entry {at} has no record")))?;
        let above = Entry::new(&record)
            .map_err(|damaged| Error::corrupt(format!("entry {at}: {damaged}")))?;
        line.push(named(vocabulary, (at, &above))?);
        at = above.parent();
    }
    let mut place = Place {
        above: Governed::Free,
        own: Governed::Free,
    };
    for (class, rdn) in line.into_iter().rev() {
        let dn = Dn::parse(&rdn).ok();
        place.above = place.own;
        place.own = match (class, dn.and_then(|dn| dn.rdn())) {
            (Some(class), Some(rdn)) => vocabulary.schema.governing_rule(class, rdn, place.above),
            _ => Governed::Free,
        };
    }
    if entry.flags().is_subentry() {
        place.own = Governed::Free;
    }
    Ok(place)
}

/// The structural class of an entry, as far as it has one, and its RDN.
fn named(
    vocabulary: Vocabulary<'_>,
    (id, entry): (EntryId, &Entry<'_>),
) -> Result<(Option<ObjectClassId>, String)> {
    let damaged = |damaged| Error::corrupt(format!("entry {id}: {damaged}"));
    let rdn = entry.rdn().map_err(damaged)?.to_owned();
    Ok((structural_class(vocabulary, (id, entry))?, rdn))
}

/// The structural class of an entry; none if its classes make none.
pub(crate) fn structural_class(
    vocabulary: Vocabulary<'_>,
    (id, entry): (EntryId, &Entry<'_>),
) -> Result<Option<ObjectClassId>> {
    let Vocabulary { schema, attributes } = vocabulary;
    let Some(number) = attributes.number(schema.well_known().object_class, "") else {
        return Ok(None);
    };
    let stored = entry.attribute(number);
    let stored = stored.map_err(|damaged| Error::corrupt(format!("entry {id}: {damaged}")))?;
    let values: Vec<&[u8]> = stored.iter().flat_map(|stored| stored.values()).collect();
    let classes = schema.classes_named(&values).ok();
    Ok(classes.and_then(|classes| schema.structural_class(&classes).ok()))
}
