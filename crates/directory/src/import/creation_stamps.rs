//! What new entries of an import have that no source says: who made them and when, and which entry each is (RFC 4512
//! §3.4, RFC 4530).
//!
//! What is stored of it is told in brief. For the indexes some of it is spelled out: a record that differs from that of
//! another entry of the same structural class in a few bytes only, so that it is made once for each class and then
//! copied.

use std::collections::HashMap;

use super::Shared;
use super::prepare::number;
use crate::attributes::AttributeTable;
use crate::changes::Csn;
use crate::engine::{AttributeNo, Engine, EntryId};
use crate::entry::{EntryFlags, RecordBuilder};
use crate::error::{Error, Result};
use crate::operational::{Brief, Operational, Vocabulary};
use crate::outcome::Stop;
use crate::schema::OperationalAttribute;
use crate::stamp::{generalized_time, uuid_text};
use crate::update::Prepared;

/// How much of a new record is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Spelled {
    All,
    /// The attributes that are indexed.
    Indexed,
}

/// Makes the operational records of entries whose sources bring none.
pub(super) struct CreationStamps<'b, E: Engine> {
    shared: &'b Shared<'b, E>,
    /// The number of the next entry, if numbers were taken for all; otherwise it is drawn.
    next: Option<Csn>,
    /// The greatest number that an entry has brought.
    latest: Csn,
    attributes: AttributeTable,
    numbers: Vec<(OperationalAttribute, AttributeNo)>,
    /// Those of them that are spelled out.
    spelled: Vec<(OperationalAttribute, AttributeNo)>,
    /// By the position of the structural class in the schema.
    templates: HashMap<usize, RecordTemplate>,
}

/// The spelled part of the record of one class, and where in it stands what is each entry's own.
struct RecordTemplate {
    class: String,
    record: Vec<u8>,
    /// Attribute, where its value begins, and the value's length.
    places: Vec<(OperationalAttribute, usize, usize)>,
}

impl<'b, E: Engine> CreationStamps<'b, E> {
    /// Gives numbers to the attributes, in transactions of their own.
    pub(super) fn new(shared: &'b Shared<'b, E>, spelled: Spelled) -> Result<Self> {
        let snapshot = shared.directory.snapshot()?;
        let schema = snapshot.schema();
        let mut attributes = AttributeTable::clone(&snapshot.state().attributes);
        let mut numbers = Vec::new();
        for attribute in OperationalAttribute::STORED {
            let attribute_type = schema.operational(attribute);
            let number = match number(shared, &mut attributes, attribute_type, "") {
                Ok(number) => number,
                Err(Stop::Failed(error)) => return Err(error),
                Err(Stop::Refused(outcome)) => return Err(Error::State(outcome.diagnostic)),
            };
            numbers.push((attribute, number));
        }
        let is_spelled = |(attribute, _): &&(OperationalAttribute, AttributeNo)| {
            let indexes = &snapshot.state().indexes;
            spelled == Spelled::All || indexes.of(schema.operational(*attribute)).is_some()
        };
        Ok(Self {
            shared,
            next: None,
            latest: Csn::default(),
            attributes,
            spelled: numbers.iter().filter(is_spelled).copied().collect(),
            numbers,
            templates: HashMap::new(),
        })
    }

    /// Gives the entries consecutive numbers from this one on.
    pub(super) fn number_from(&mut self, first: Csn) {
        self.next = Some(first);
    }

    /// The greatest number that an entry has brought along.
    pub(super) fn latest(&self) -> Csn {
        self.latest
    }

    /// Replaces `out` by the entry's operational record, its own or as much of a new one as is spelled out, and appends
    /// to `stored` what is stored of it.
    pub(super) fn record(
        &mut self,
        prepared: &Prepared<'_>,
        out: &mut Vec<u8>,
        stored: &mut Vec<u8>,
    ) -> Result<()> {
        out.clear();
        let options = self.shared.directory.options();
        let vocabulary = Vocabulary {
            schema: &self.shared.directory.schema(),
            attributes: &self.attributes,
        };
        if !prepared.records[1].is_empty() {
            out.extend_from_slice(prepared.records[1]);
            let part = stored.len();
            Operational::put(vocabulary, out, stored);
            let told = Operational::read(&stored[part..]);
            if let Ok(brought) = told.and_then(|told| told.last_csn(vocabulary)) {
                self.latest = self.latest.max(brought);
            }
            return Ok(());
        }
        let csn = match &mut self.next {
            Some(next) => std::mem::replace(next, next.next()),
            None => self
                .shared
                .directory
                .clock()
                .next(options.clock.now_micros()),
        };
        let uuid = options.uuids.uuid();
        let template = match self.templates.get(&prepared.class) {
            Some(template) if self.fill(template, csn, uuid, out) => template,
            _ => {
                let template = self.template(prepared.class, csn, uuid, &self.spelled)?;
                out.clone_from(&template.record);
                self.templates.insert(prepared.class, template);
                &self.templates[&prepared.class]
            }
        };
        let creator = self.shared.options.creator.as_bytes();
        let seconds = u32::try_from(csn.micros / 1_000_000);
        let brief = Brief {
            uuid,
            created: seconds.unwrap_or_default(),
            modified: csn,
            class: template.class.as_bytes(),
            creator,
            modifier: creator,
        };
        if brief.fits() && seconds.is_ok() {
            brief.put(stored);
        } else {
            let whole = self.template(prepared.class, csn, uuid, &self.numbers)?;
            Operational::put(vocabulary, &whole.record, stored);
        }
        Ok(())
    }

    /// Replaces `out` by the record of a template with an entry's own values; `false` if they are longer or shorter.
    fn fill(&self, template: &RecordTemplate, csn: Csn, uuid: [u8; 16], out: &mut Vec<u8>) -> bool {
        out.clone_from(&template.record);
        template.places.iter().all(|(attribute, at, length)| {
            let value = own_value(*attribute, csn, uuid);
            let place = out.get_mut(*at..at + length);
            match value.as_bytes() {
                value if value.len() == *length => {
                    place.map(|place| place.copy_from_slice(value)).is_some()
                }
                _ => false,
            }
        })
    }

    fn template(
        &self,
        class: usize,
        csn: Csn,
        uuid: [u8; 16],
        numbers: &[(OperationalAttribute, AttributeNo)],
    ) -> Result<RecordTemplate> {
        let schema = &self.shared.directory.schema();
        let damaged = || Error::corrupt("a sorted entry has no structural class");
        let class = schema.object_classes().get(class).ok_or_else(damaged)?;
        let mut builder = RecordBuilder::new();
        let mut record = Vec::new();
        let mut places = Vec::new();
        for (at, (attribute, number)) in numbers.iter().enumerate() {
            let shared = match attribute {
                OperationalAttribute::StructuralObjectClass => Some(class.name()),
                OperationalAttribute::CreatorsName | OperationalAttribute::ModifiersName => {
                    Some(self.shared.options.creator.as_str())
                }
                _ => None,
            };
            let value = match shared {
                Some(shared) => shared.to_owned(),
                None => own_value(*attribute, csn, uuid),
            };
            let name = schema.type_of(schema.operational(*attribute)).name();
            builder.push(*number, name.as_bytes(), [value.as_bytes()], false);
            record.clear();
            builder
                .finish(EntryId::ROOT, EntryFlags::default(), "", &mut record)
                .map_err(|error| Error::State(error.to_string()))?;
            if shared.is_none() {
                // The value is the last that was pushed: as far from the record's end as from the end of the
                // attributes.
                let rows_behind = numbers.len() - 1 - at;
                let start = record.len() - value.len() + rows_behind * RecordBuilder::ROW_BYTES;
                places.push((*attribute, start, value.len()));
            }
        }
        if numbers.is_empty() {
            builder
                .finish(EntryId::ROOT, EntryFlags::default(), "", &mut record)
                .map_err(|error| Error::State(error.to_string()))?;
        }
        Ok(RecordTemplate {
            class: class.name().to_owned(),
            record,
            places,
        })
    }
}

/// The value of an attribute that is not the same for all entries of a class.
fn own_value(attribute: OperationalAttribute, csn: Csn, uuid: [u8; 16]) -> String {
    match attribute {
        OperationalAttribute::EntryUuid => uuid_text(uuid),
        OperationalAttribute::EntryCsn => csn.to_string(),
        _ => generalized_time(csn.micros),
    }
}
