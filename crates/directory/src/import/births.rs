//! What new entries of an import have that no source says: who made them and when, and which entry each is (RFC 4512 §3.4,
//! RFC 4530).
//!
//! Such a record differs from that of another entry of the same structural class in a few bytes only, so that it is
//! made once for each class and then copied.

use std::collections::HashMap;

use super::prepare::number;
use super::{Prepared, Shared};
use crate::attributes::AttributeTable;
use crate::engine::{AttributeNo, Engine, EntryId};
use crate::entry::{EntryFlags, RecordBuilder};
use crate::error::{Error, Result};
use crate::operational::{Brief, Operational, Vocabulary};
use crate::outcome::Stop;
use crate::schema::AttributeTypeId;
use crate::update::stamp::{Stamp, Stamps, uuid_text};

/// Makes the operational records of entries whose sources bring none.
pub(super) struct Births<'b, E: Engine> {
    shared: &'b Shared<'b, E>,
    stamps: Stamps,
    attributes: AttributeTable,
    numbers: Vec<(AttributeTypeId, AttributeNo)>,
    /// By the position of the structural class in the schema.
    forms: HashMap<usize, Form>,
}

/// The record of one class, and where in it stands what is each entry's own.
struct Form {
    class: String,
    record: Vec<u8>,
    uuid: Place,
    created: Place,
    modified: Place,
    csn: Place,
}

/// Where a value of a record begins, and its length.
type Place = (usize, usize);

impl<'b, E: Engine> Births<'b, E> {
    /// Gives numbers to the attributes, in transactions of their own.
    pub(super) fn new(shared: &'b Shared<'b, E>) -> Result<Self> {
        let known = shared.directory.schema().well_known();
        let mut attributes =
            AttributeTable::clone(&shared.directory.snapshot()?.state().attributes);
        let mut numbers = Vec::new();
        for attribute in [
            known.structural_object_class,
            known.entry_uuid,
            known.creators_name,
            known.create_timestamp,
            known.modifiers_name,
            known.modify_timestamp,
            known.entry_csn,
        ] {
            let number = match number(shared, &mut attributes, attribute, "") {
                Ok(number) => number,
                Err(Stop::Failed(error)) => return Err(error),
                Err(Stop::Refused(outcome)) => return Err(Error::State(outcome.diagnostic)),
            };
            numbers.push((attribute, number));
        }
        Ok(Self {
            shared,
            stamps: Stamps::default(),
            attributes,
            numbers,
            forms: HashMap::new(),
        })
    }

    /// Replaces `out` by the entry's operational record, its own or a new one, and appends to `stored` what is stored of it.
    pub(super) fn record(
        &mut self,
        prepared: &Prepared<'_>,
        out: &mut Vec<u8>,
        stored: &mut Vec<u8>,
    ) -> Result<()> {
        out.clear();
        let options = self.shared.directory.options();
        let vocabulary = Vocabulary {
            schema: self.shared.directory.schema(),
            attributes: &self.attributes,
        };
        if !prepared.records[1].is_empty() {
            out.extend_from_slice(prepared.records[1]);
            Operational::put(vocabulary, out, stored);
            return Ok(());
        }
        let stamp = Stamp::from(self.stamps.next(options.clock.now_micros()));
        let uuid_bytes = options.uuids.uuid();
        let uuid = uuid_text(uuid_bytes);
        let form = match self.forms.get(&prepared.class) {
            Some(form) if form.fits(&stamp) => form,
            _ => {
                let form = self.form(prepared.class, &stamp, &uuid)?;
                self.forms.insert(prepared.class, form);
                &self.forms[&prepared.class]
            }
        };
        out.extend_from_slice(&form.record);
        for ((at, len), value) in [
            (form.uuid, &uuid),
            (form.created, &stamp.time),
            (form.modified, &stamp.time),
            (form.csn, &stamp.csn),
        ] {
            out[at..at + len].copy_from_slice(value.as_bytes());
        }
        let creator = self.shared.options.creator.as_bytes();
        let brief = Brief {
            uuid: uuid_bytes,
            created: (stamp.moment.micros / 1_000_000) as u32,
            modified: stamp.moment,
            class: form.class.as_bytes(),
            creator,
            modifier: creator,
        };
        if brief.fits() && stamp.moment.micros / 1_000_000 <= u64::from(u32::MAX) {
            brief.put(stored);
        } else {
            Operational::put(vocabulary, out, stored);
        }
        Ok(())
    }

    fn form(&self, class: usize, stamp: &Stamp, uuid: &str) -> Result<Form> {
        let schema = self.shared.directory.schema();
        let damaged = || Error::corrupt("a sorted entry has no structural class");
        let class = schema.object_classes().get(class).ok_or_else(damaged)?;
        let known = schema.well_known();
        let mut builder = RecordBuilder::new();
        let mut record = Vec::new();
        let mut places = HashMap::new();
        for (attribute, number) in &self.numbers {
            let value = match *attribute {
                attribute if attribute == known.structural_object_class => class.name(),
                attribute if attribute == known.entry_uuid => uuid,
                attribute if attribute == known.entry_csn => &stamp.csn,
                attribute
                    if attribute == known.creators_name || attribute == known.modifiers_name =>
                {
                    &self.shared.options.creator
                }
                _ => &stamp.time,
            };
            let name = schema.type_of(*attribute).name();
            builder.push(*number, name.as_bytes(), [value.as_bytes()], false);
            // The value is the last that was pushed: as far from the record's end as from the end of the attributes.
            record.clear();
            builder
                .finish(EntryId::ROOT, EntryFlags::default(), "", &mut record)
                .map_err(|error| Error::State(error.to_string()))?;
            let rows_behind = self.numbers.len() - 1 - places.len();
            let at = record.len() - value.len() + rows_behind * RecordBuilder::ROW_BYTES;
            places.insert(*attribute, (at, value.len()));
        }
        let place = |attribute| places.get(&attribute).copied().unwrap_or_default();
        Ok(Form {
            class: class.name().to_owned(),
            uuid: place(known.entry_uuid),
            created: place(known.create_timestamp),
            modified: place(known.modify_timestamp),
            csn: place(known.entry_csn),
            record,
        })
    }
}

impl Form {
    fn fits(&self, stamp: &Stamp) -> bool {
        self.created.1 == stamp.time.len() && self.csn.1 == stamp.csn.len()
    }
}
