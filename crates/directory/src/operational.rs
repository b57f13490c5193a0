//! The operational attributes of a record: who made the entry and when, who changed it last, and which one it is
//! (RFC 4512 §3.4, RFC 4530).
//!
//! Nearly every entry has the same seven of them, and their values follow from a few dozen bytes. These are stored *in
//! brief*, and spelled out when somebody asks, as a record of the form of [`crate::entry`]. So they are a fifth as
//! long, stand in the entry's own record, and a change of the entry is a change of one page. What cannot be told in
//! brief is stored *in full*, as that record.
//!
//! ```text
//!  offset  size  field
//!       0     1  kind      3: in brief; 2: in full, a record follows
//!       1    16  uuid      entryUUID
//!      17     4  created   createTimestamp, in seconds since 1970
//!      21     8  modified  the microseconds since 1970 of entryCSN, whose second is modifyTimestamp
//!      29     4  count     the count of entryCSN
//!      33     2  replica   that of entryCSN
//!      35     1  class     length of structuralObjectClass
//!      36     2  creator   length of creatorsName
//!      38        class, creatorsName
//!           ...  modifiersName, unless it is creatorsName
//! ```
//!
//! Numbers are little-endian.

#![deny(clippy::indexing_slicing)]

use sapwood_ldap::csn::Csn;

use crate::attributes::AttributeTable;
use crate::engine::{AttributeNo, EntryId};
use crate::entry::{Damaged, Entry, EntryFlags, RecordBuilder};
use crate::schema::{OperationalAttribute, Schema};
use crate::stamp::{Stamp, generalized_time, seconds_of, uuid_of, uuid_text};

const FULL: u8 = 2;
const BRIEF: u8 = 3;
/// What stands between the kind and the class.
const HEADER_BYTES: usize = 37;

/// What gives the attributes of records their names and numbers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Vocabulary<'v> {
    pub(crate) schema: &'v Schema,
    pub(crate) attributes: &'v AttributeTable,
}

impl Vocabulary<'_> {
    /// The number of an operational attribute, if it has one.
    fn number(&self, attribute: OperationalAttribute) -> Option<AttributeNo> {
        let known = self.schema.operational(attribute);
        self.attributes.number(known, "")
    }
}

/// The values of the attributes that every entry is stored with ([`OperationalAttribute::STORED`]), as clients see
/// them.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct StoredValues<'v> {
    pub(crate) class: &'v [u8],
    pub(crate) uuid: &'v [u8],
    pub(crate) creator: &'v [u8],
    pub(crate) created: &'v [u8],
    pub(crate) modifier: &'v [u8],
    pub(crate) modified: &'v [u8],
    pub(crate) csn: &'v [u8],
}

impl<'v> StoredValues<'v> {
    /// Those of an entry of a class that is added now.
    pub(crate) fn of_new(
        class: &'v str,
        uuid: &'v str,
        creator: &'v str,
        stamp: &'v Stamp,
    ) -> StoredValues<'v> {
        StoredValues {
            class: class.as_bytes(),
            uuid: uuid.as_bytes(),
            created: stamp.time.as_bytes(),
            creator: creator.as_bytes(),
            ..StoredValues::of_change(creator, stamp)
        }
    }

    /// Those that a change changes; the others are empty.
    pub(crate) fn of_change(modifier: &'v str, stamp: &'v Stamp) -> StoredValues<'v> {
        StoredValues {
            modifier: modifier.as_bytes(),
            modified: stamp.time.as_bytes(),
            csn: stamp.csn.as_bytes(),
            ..StoredValues::default()
        }
    }

    /// The value of one of them; nothing of an attribute that is not stored with every entry.
    pub(crate) fn of(&self, attribute: OperationalAttribute) -> &'v [u8] {
        match attribute {
            OperationalAttribute::StructuralObjectClass => self.class,
            OperationalAttribute::EntryUuid => self.uuid,
            OperationalAttribute::CreatorsName => self.creator,
            OperationalAttribute::CreateTimestamp => self.created,
            OperationalAttribute::ModifiersName => self.modifier,
            OperationalAttribute::ModifyTimestamp => self.modified,
            OperationalAttribute::EntryCsn => self.csn,
            _ => &[],
        }
    }
}

/// The operational part of a record.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Operational<'r> {
    Brief(Brief<'r>),
    /// A record.
    Full(&'r [u8]),
}

/// The seven attributes that the directory itself keeps, in brief.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Brief<'r> {
    /// entryUUID.
    pub(crate) uuid: [u8; 16],
    /// createTimestamp, in seconds since 1970.
    pub(crate) created: u32,
    /// entryCSN and modifyTimestamp.
    pub(crate) modified: Csn,
    /// structuralObjectClass.
    pub(crate) class: &'r [u8],
    /// creatorsName.
    pub(crate) creator: &'r [u8],
    /// modifiersName.
    pub(crate) modifier: &'r [u8],
}

impl<'r> Operational<'r> {
    /// Reads the operational part of a record.
    pub(crate) fn read(part: &'r [u8]) -> Result<Operational<'r>, Damaged> {
        match part.split_first() {
            Some((&BRIEF, rest)) => Brief::read(rest).map(Operational::Brief),
            Some((&FULL, rest)) => Ok(Operational::Full(rest)),
            _ => Err(Damaged),
        }
    }

    /// Spells the attributes out: `record` becomes their record.
    pub(crate) fn spell<'s>(
        &self,
        vocabulary: Vocabulary<'_>,
        record: &'s mut Vec<u8>,
    ) -> Result<Entry<'s>, Damaged> {
        record.clear();
        match self {
            Operational::Full(full) => record.extend_from_slice(full),
            Operational::Brief(brief) => brief.spell(vocabulary, record)?,
        }
        Entry::new(record)
    }

    /// The latest time that the attributes tell of.
    #[inline]
    pub(crate) fn last_csn(&self, vocabulary: Vocabulary<'_>) -> Result<Csn, Damaged> {
        let at = |seconds: u64| Csn {
            micros: seconds.saturating_mul(1_000_000),
            ..Csn::default()
        };
        let full = match self {
            Operational::Brief(brief) => return Ok(brief.modified.max(at(brief.created.into()))),
            Operational::Full(full) => Entry::new(full)?,
        };
        let text = |attribute| first_text(&full, vocabulary, attribute);
        let time = |attribute| text(attribute).and_then(seconds_of).map(at);
        let told = [
            text(OperationalAttribute::EntryCsn).and_then(Csn::parse),
            time(OperationalAttribute::ModifyTimestamp),
            time(OperationalAttribute::CreateTimestamp),
        ];
        Ok(told.into_iter().flatten().max().unwrap_or_default())
    }

    /// Which entry it is, and as of which change; `None` if it has no entryUUID.
    fn version(&self, vocabulary: Vocabulary<'_>) -> Result<Option<EntryVersion>, Damaged> {
        let full = match self {
            Operational::Brief(brief) => {
                let (uuid, csn) = (brief.uuid, Some(brief.modified));
                return Ok(Some(EntryVersion { uuid, csn }));
            }
            Operational::Full(full) => Entry::new(full)?,
        };
        let text = |attribute| first_text(&full, vocabulary, attribute);
        let uuid = text(OperationalAttribute::EntryUuid).and_then(uuid_of);
        let csn = text(OperationalAttribute::EntryCsn).and_then(Csn::parse);
        Ok(uuid.map(|uuid| EntryVersion { uuid, csn }))
    }

    /// Appends the operational part with the attributes of a record: in brief, if that says all.
    pub(crate) fn put(vocabulary: Vocabulary<'_>, record: &[u8], out: &mut Vec<u8>) {
        let start = out.len();
        let is_told = Entry::new(record)
            .is_ok_and(|record| Brief::put_if_it_tells(vocabulary, &record, out).is_some());
        if !is_told {
            out.truncate(start);
            out.push(FULL);
            out.extend_from_slice(record);
        }
    }
}

/// The first value of an attribute of a record, if it is a text.
fn first_text<'r>(
    record: &Entry<'r>,
    vocabulary: Vocabulary<'_>,
    attribute: OperationalAttribute,
) -> Option<&'r str> {
    let stored = record.attribute(vocabulary.number(attribute)?).ok()??;
    std::str::from_utf8(stored.values().iter().next()?).ok()
}

/// Which entry a record is of, and as of which change: what those go by who hold copies of entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntryVersion {
    /// Its entryUUID.
    pub uuid: [u8; 16],
    /// Its entryCSN; `None` if it has none.
    pub csn: Option<Csn>,
}

/// Which entry it is, and as of which change; `None` if it has no entryUUID.
pub(crate) fn version_of(
    entry: &Entry<'_>,
    vocabulary: Vocabulary<'_>,
) -> Result<Option<EntryVersion>, Damaged> {
    Operational::read(entry.operational())?.version(vocabulary)
}

/// Spells the operational attributes of an entry out: `record` becomes their record.
pub(crate) fn spell<'s>(
    entry: &Entry<'_>,
    vocabulary: Vocabulary<'_>,
    record: &'s mut Vec<u8>,
) -> Result<Entry<'s>, Damaged> {
    Operational::read(entry.operational())?.spell(vocabulary, record)
}

impl<'r> Brief<'r> {
    fn read(bytes: &'r [u8]) -> Result<Brief<'r>, Damaged> {
        let (header, rest) = bytes.split_first_chunk::<HEADER_BYTES>().ok_or(Damaged)?;
        let (uuid, header) = header.split_first_chunk::<16>().ok_or(Damaged)?;
        let (created, header) = header.split_first_chunk::<4>().ok_or(Damaged)?;
        let (micros, header) = header.split_first_chunk::<8>().ok_or(Damaged)?;
        let (count, header) = header.split_first_chunk::<4>().ok_or(Damaged)?;
        let [r0, r1, class, c0, c1] = *header else {
            return Err(Damaged);
        };
        let (class, rest) = rest.split_at_checked(class.into()).ok_or(Damaged)?;
        let creator = usize::from(u16::from_le_bytes([c0, c1]));
        let (creator, modifier) = rest.split_at_checked(creator).ok_or(Damaged)?;
        Ok(Brief {
            uuid: *uuid,
            created: u32::from_le_bytes(*created),
            modified: Csn {
                micros: u64::from_le_bytes(*micros),
                count: u32::from_le_bytes(*count),
                replica: u16::from_le_bytes([r0, r1]),
            },
            class,
            creator,
            modifier: if modifier.is_empty() {
                creator
            } else {
                modifier
            },
        })
    }

    /// Whether it can be stored.
    pub(crate) fn fits(&self) -> bool {
        self.class.len() <= usize::from(u8::MAX)
            && self.creator.len() <= usize::from(u16::MAX)
            // Nobody is not the creator.
            && (!self.modifier.is_empty() || self.creator.is_empty())
    }

    /// What is to be stored after a change, if that can be told in brief.
    pub(crate) fn changed(self, modified: Csn, modifier: &'r str) -> Option<Brief<'r>> {
        let changed = Brief {
            modified,
            modifier: modifier.as_bytes(),
            ..self
        };
        changed.fits().then_some(changed)
    }

    /// Appends the operational part; it must fit.
    pub(crate) fn put(&self, out: &mut Vec<u8>) {
        debug_assert!(self.fits());
        out.push(BRIEF);
        out.extend_from_slice(&self.uuid);
        out.extend_from_slice(&self.created.to_le_bytes());
        out.extend_from_slice(&self.modified.micros.to_le_bytes());
        out.extend_from_slice(&self.modified.count.to_le_bytes());
        out.extend_from_slice(&self.modified.replica.to_le_bytes());
        out.push(self.class.len() as u8);
        out.extend_from_slice(&(self.creator.len() as u16).to_le_bytes());
        out.extend_from_slice(self.class);
        out.extend_from_slice(self.creator);
        if self.modifier != self.creator {
            out.extend_from_slice(self.modifier);
        }
    }

    /// Appends what tells the attributes of a record in brief; `None` when nothing does.
    fn put_if_it_tells(
        vocabulary: Vocabulary<'_>,
        record: &Entry<'r>,
        out: &mut Vec<u8>,
    ) -> Option<()> {
        let value = |attribute| {
            let number = vocabulary.number(attribute)?;
            record.attribute(number).ok()??.values().iter().next()
        };
        let text = |attribute| std::str::from_utf8(value(attribute)?).ok();
        let start = out.len();
        let brief = Brief {
            uuid: uuid_of(text(OperationalAttribute::EntryUuid)?)?,
            created: u32::try_from(seconds_of(text(OperationalAttribute::CreateTimestamp)?)?)
                .ok()?,
            modified: Csn::parse(text(OperationalAttribute::EntryCsn)?)?,
            class: value(OperationalAttribute::StructuralObjectClass)?,
            creator: value(OperationalAttribute::CreatorsName)?,
            modifier: value(OperationalAttribute::ModifiersName)?,
        };
        brief.fits().then(|| brief.put(out))?;
        // Whether it does is seen by spelling it out: values can be written in several ways, and more than one.
        let mut scratch = Vec::new();
        let told = Operational::read(out.get(start..)?)
            .and_then(|told| told.spell(vocabulary, &mut scratch))
            .ok()?;
        let is_all = told.attributes_count() == record.attributes_count()
            && told.attributes().flatten().all(|told| {
                record
                    .attribute(told.number())
                    .is_ok_and(|given| given.is_some_and(|given| given.ber() == told.ber()))
            });
        is_all.then_some(())
    }

    /// Appends the record of the attributes.
    fn spell(&self, vocabulary: Vocabulary<'_>, out: &mut Vec<u8>) -> Result<(), Damaged> {
        let (uuid, stamp) = (uuid_text(self.uuid), Stamp::from(self.modified));
        let created = generalized_time(u64::from(self.created) * 1_000_000);
        let values = StoredValues {
            class: self.class,
            uuid: uuid.as_bytes(),
            creator: self.creator,
            created: created.as_bytes(),
            modifier: self.modifier,
            modified: stamp.time.as_bytes(),
            csn: stamp.csn.as_bytes(),
        };
        let mut builder = RecordBuilder::new();
        for attribute in OperationalAttribute::STORED {
            let number = vocabulary.number(attribute).ok_or(Damaged)?;
            let schema = vocabulary.schema;
            let name = schema.type_of(schema.operational(attribute)).name();
            builder.push(number, name.as_bytes(), [values.of(attribute)], false);
        }
        let finished = builder.finish(EntryId::ROOT, EntryFlags::default(), "", out);
        finished.map_err(|_| Damaged)
    }
}

/// The latest time that an entry's operational attributes tell of: no change of the entry may seem to come before it.
pub(crate) fn last_csn(entry: &Entry<'_>, vocabulary: Vocabulary<'_>) -> Result<Csn, Damaged> {
    Operational::read(entry.operational())?.last_csn(vocabulary)
}

/// When an entry was added, as far as createTimestamp tells: the first number of that second.
pub(crate) fn added(entry: &Entry<'_>, vocabulary: Vocabulary<'_>) -> Result<Csn, Damaged> {
    let seconds = match Operational::read(entry.operational())? {
        Operational::Brief(brief) => Some(brief.created.into()),
        Operational::Full(full) => {
            let full = Entry::new(full)?;
            let created = first_text(&full, vocabulary, OperationalAttribute::CreateTimestamp);
            created.and_then(seconds_of)
        }
    };
    Ok(Csn {
        micros: seconds.unwrap_or_default().saturating_mul(1_000_000),
        ..Csn::default()
    })
}

/// An entry's entryUUID; zeroes if it has none.
pub(crate) fn uuid(entry: &Entry<'_>, vocabulary: Vocabulary<'_>) -> Result<[u8; 16], Damaged> {
    let full = match Operational::read(entry.operational())? {
        Operational::Brief(brief) => return Ok(brief.uuid),
        Operational::Full(full) => Entry::new(full)?,
    };
    let values = match vocabulary.number(OperationalAttribute::EntryUuid) {
        Some(number) => full.attribute(number)?,
        None => None,
    };
    let value = values.and_then(|values| values.values().iter().next());
    let text = value.and_then(|value| std::str::from_utf8(value).ok());
    Ok(text.and_then(uuid_of).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The seven attributes and one more, with these values.
    fn record(
        schema: &Schema,
        attributes: &mut AttributeTable,
        values: [(OperationalAttribute, &str); 7],
        more: Option<&str>,
    ) -> Vec<u8> {
        let mut builder = RecordBuilder::new();
        let more = more.map(|value| (OperationalAttribute::Ref, value));
        for (attribute, value) in values.into_iter().chain(more) {
            let attribute = schema.operational(attribute);
            let number = attributes.number_synthetic(schema, attribute);
            let name = schema.type_of(attribute).name().as_bytes();
            builder.push(number, name, [value.as_bytes()], false);
        }
        let mut record = Vec::new();
        builder
            .finish(EntryId::ROOT, EntryFlags::default(), "", &mut record)
            .unwrap();
        record
    }

    /// Whether the record is told in brief. However it is told, it says the same.
    fn is_brief(schema: &Schema, attributes: &AttributeTable, record: &[u8]) -> bool {
        let vocabulary = Vocabulary { schema, attributes };
        let (mut part, mut scratch) = (Vec::new(), Vec::new());
        Operational::put(vocabulary, record, &mut part);
        let operational = Operational::read(&part).unwrap();
        let spelled = operational.spell(vocabulary, &mut scratch).unwrap();
        let by_number = |entry: &Entry<'_>| {
            let mut all: Vec<_> = entry.attributes().map(|known| known.unwrap()).collect();
            all.sort_by_key(|known| known.number().0);
            all.iter()
                .map(|known| known.ber().to_vec())
                .collect::<Vec<_>>()
        };
        assert_eq!(by_number(&spelled), by_number(&Entry::new(record).unwrap()));
        matches!(operational, Operational::Brief(_))
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn what_is_put_is_spelled(
            uuid: [u8; 16],
            created: u32,
            micros in 0..4_000_000_000_000_000_u64,
            count in 0..0x100_0000_u32,
            replica in 0..=Csn::REPLICA_MAX,
            names in prop::array::uniform3("[a-z=,]{0,40}"),
            order in Just([0, 1, 2, 3, 4, 5, 6]).prop_shuffle(),
            more in prop::option::of("[a-z]{1,8}"),
            spoilt in prop::option::of((0..7_usize, "[0-9a-zA-Z-]{0,44}")),
        ) {
            let schema = Schema::standard();
            let (uuid, stamp) = (uuid_text(uuid), Stamp::from(Csn { micros, count, replica }));
            let created = generalized_time(u64::from(created) * 1_000_000);
            let [class, creator, modifier] = &names;
            let usual = [
                (OperationalAttribute::StructuralObjectClass, class.as_str()),
                (OperationalAttribute::EntryUuid, uuid.as_str()),
                (OperationalAttribute::CreatorsName, creator.as_str()),
                (OperationalAttribute::CreateTimestamp, created.as_str()),
                (OperationalAttribute::ModifiersName, modifier.as_str()),
                (OperationalAttribute::ModifyTimestamp, stamp.time.as_str()),
                (OperationalAttribute::EntryCsn, stamp.csn.as_str()),
            ];
            let mut values = order.map(|at: usize| usual[at]);
            if let Some((at, value)) = &spoilt {
                values[*at].1 = value;
            }
            let mut attributes = AttributeTable::default();
            let record = record(&schema, &mut attributes, values, more.as_deref());
            let brief = is_brief(&schema, &attributes, &record);
            if spoilt.is_none() && more.is_none() && !modifier.is_empty() {
                prop_assert!(brief);
            }
            prop_assert!(!brief || more.is_none());
        }

        #[test]
        fn any_bytes_are_read_or_refused(mut part in prop::collection::vec(any::<u8>(), 0..200), kind in 0..3_u8) {
            if let Some(first) = part.first_mut() {
                *first = kind;
            }
            let schema = Schema::standard();
            let mut attributes = AttributeTable::default();
            if let Ok(operational) = Operational::read(&part) {
                for attribute in OperationalAttribute::STORED {
                    attributes.number_synthetic(&schema, schema.operational(attribute));
                }
                let vocabulary = Vocabulary { schema: &schema, attributes: &attributes };
                let _ = operational.spell(vocabulary, &mut Vec::new());
            }
        }
    }
}
