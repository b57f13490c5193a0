//! Which registers of an entry a change has changed, where servers that take updates keep values apart: their numbers
//! are written down in the commit of the change ([`crate::changes::registers`]). An entry that is added has none of its
//! own, as all of it has the number of its entryCSN.

use std::borrow::Cow;
use std::collections::BTreeMap;

use sapwood_replication::{EntryRegisters, Kind, Register};
use sha2::{Digest as _, Sha256};

use super::Run;
use super::draft::Draft;
use crate::changes::{Csn, registers};
use crate::engine::{EntryId, Write};
use crate::entry::Entry;
use crate::error::Error;
use crate::large;
use crate::operational;
use crate::outcome::Stop;
use crate::schema::{AttributeType, AttributeTypeId, OperationalAttribute, Schema};

/// Longer forms of values are hashed.
const FORM_BYTES_MAX: usize = 32;
/// What stands before a hash; the form of a value begins otherwise.
const HASHED: u8 = 2;

/// What a change does besides what becomes of the draft.
#[derive(Clone, Copy)]
pub(super) struct RegisterChange<'c> {
    /// Its number.
    pub(super) csn: Csn,
    /// Attributes, by type and options, of which it puts other values in the place of all that there are, wherever
    /// these came from; also if that changes nothing here.
    pub(super) replaced: &'c [(AttributeTypeId, &'c str)],
    /// Whether the entry gets another name or another entry above it.
    pub(super) is_moved: bool,
}

impl<T: Write> Run<'_, T> {
    /// Whether values are kept apart.
    pub(super) fn keeps_values_apart(&self) -> bool {
        self.state.settings.keeps_values_apart()
    }

    /// Writes down which registers of an entry a change changes, which makes of `old` what is in the draft.
    #[cold]
    pub(super) fn note_registers(
        &mut self,
        id: EntryId,
        old: &Entry<'_>,
        draft: &Draft<'_>,
        change: RegisterChange<'_>,
    ) -> Result<(), Stop> {
        let schema = self.schema;
        let Some((uuid, mut kept)) = self.registers_of(old)? else {
            return Ok(());
        };
        let RegisterChange { csn, replaced, .. } = change;
        let is_replaced = |known, options| replaced.contains(&(known, options));
        for (known, options) in replaced {
            kept.set_all(&description_of(schema.type_of(*known), options), csn);
        }
        for difference in draft.differences() {
            let known = schema.type_of(difference.attribute_type);
            if is_of_entry(schema, known.id()) || is_replaced(known.id(), difference.options) {
                continue;
            }
            let name = description_of(known, difference.options);
            if kind_of(schema, known) != Kind::Values {
                kept.set_all(&name, csn);
                continue;
            }
            let form = |value: &[u8]| large::form_of(schema, known, value);
            let formed = |values: &[&[u8]]| {
                let formed = values.iter().map(|value| (form(value), value.to_vec()));
                formed.collect::<BTreeMap<Vec<u8>, Vec<u8>>>()
            };
            let before = match difference.large {
                Some(large) => large.stored_values(self.txn, id)?.into_iter().collect(),
                None => formed(&difference.before),
            };
            let now = formed(&difference.now);
            for form in before.keys().filter(|form| !now.contains_key(*form)) {
                set_value(&mut kept, &name, form, (csn, false));
            }
            // One that is written otherwise now is changed as well.
            let is_new = |(form, value): &(&Vec<u8>, &Vec<u8>)| before.get(*form) != Some(*value);
            for (form, _) in now.iter().filter(is_new) {
                set_value(&mut kept, &name, form, (csn, true));
            }
        }
        for (known, options, large) in draft.large_differences() {
            let name = description_of(schema.type_of(known), options);
            for (form, is_present) in large.edits() {
                set_value(&mut kept, &name, form, (csn, is_present));
            }
        }
        if change.is_moved {
            kept.place(csn);
        }
        kept.csn = csn;
        self.put_registers(uuid, kept, old)
    }

    /// Writes the registers of an entry down, as short as they may be.
    pub(super) fn put_registers(
        &mut self,
        uuid: [u8; 16],
        mut kept: EntryRegisters,
        entry: &Entry<'_>,
    ) -> Result<(), Stop> {
        let added = operational::added(entry, self.vocabulary())
            .map_err(|damaged| Error::corrupt(format!("an entry with registers: {damaged}")))?;
        kept.shorten(self.now().saturating_sub(registers::KEPT_MICROS));
        Ok(registers::put(self.txn, uuid, &kept, added)?)
    }

    /// Writes down the registers of an entry that was just written.
    pub(super) fn put_told_registers(
        &mut self,
        id: EntryId,
        registers: Option<EntryRegisters>,
    ) -> Result<(), Stop> {
        let Some(registers) = registers else {
            return Ok(());
        };
        let mut record = Vec::new();
        self.read_record(id, &mut record)?;
        let entry = super::read(id, &record)?;
        let uuid = operational::uuid(&entry, self.vocabulary())
            .map_err(|damaged| Error::corrupt(format!("entry {id}: {damaged}")))?;
        self.put_registers(uuid, registers, &entry)
    }

    /// By which change an attribute without options has all its values, if values are kept apart.
    pub(super) fn changed_since(
        &self,
        entry: &Entry<'_>,
        attribute: AttributeTypeId,
    ) -> Result<Option<Csn>, Error> {
        if !self.keeps_values_apart() {
            return Ok(None);
        }
        let name = self.schema.type_of(attribute).oid();
        let kept = self.registers_of(entry)?;
        Ok(kept.map(|(_, kept)| kept.of_all(name)))
    }

    /// Gives an attribute whose values are one register an earlier number than that of the change which was just made.
    pub(super) fn date_back(
        &mut self,
        id: EntryId,
        attribute: AttributeTypeId,
        csn: Csn,
    ) -> Result<(), Stop> {
        let mut record = Vec::new();
        self.read_record(id, &mut record)?;
        let entry = super::read(id, &record)?;
        if let Some((uuid, mut kept)) = self.registers_of(&entry)? {
            kept.set_all(self.schema.type_of(attribute).oid(), csn);
            self.put_registers(uuid, kept, &entry)?;
        }
        Ok(())
    }

    /// The registers of an entry, and its entryUUID.
    pub(super) fn registers_of(
        &self,
        entry: &Entry<'_>,
    ) -> Result<Option<([u8; 16], EntryRegisters)>, Error> {
        registers::of_entry(self.txn, entry, self.vocabulary())
    }
}

fn set_value(kept: &mut EntryRegisters, name: &str, form: &[u8], (csn, is_present): (Csn, bool)) {
    kept.set_value(name, &short(form), Register { csn, is_present });
}

/// How the values of an attribute are kept apart. All servers have to say the same.
pub(super) fn kind_of(schema: &Schema, known: &AttributeType) -> Kind {
    let is_ordered = || {
        let mut extensions = known.definition().extensions.iter();
        extensions.any(|one| one.name.eq_ignore_ascii_case("X-ORDERED"))
    };
    match schema.is_protected(known.id()) {
        true => Kind::Secret,
        false if known.is_single_value() || known.equality().is_none() || is_ordered() => {
            Kind::Whole
        }
        false => Kind::Values,
    }
}

/// Whether an attribute goes with the entry's own number, or never changes.
pub(super) fn is_of_entry(schema: &Schema, known: AttributeTypeId) -> bool {
    let mut all = OperationalAttribute::STORED.into_iter();
    all.any(|attribute| schema.operational(attribute) == known)
}

/// What all servers call an attribute.
pub(super) fn description_of<'k>(known: &'k AttributeType, options: &str) -> Cow<'k, str> {
    match options {
        "" => Cow::Borrowed(known.oid()),
        options => Cow::Owned(format!("{};{options}", known.oid())),
    }
}

/// What a value goes by among the registers of an attribute.
pub(super) fn form_of(schema: &Schema, known: &AttributeType, value: &[u8]) -> Vec<u8> {
    short(&large::form_of(schema, known, value)).into_owned()
}

/// A form that is as short as a hash. Nobody who chooses values finds two with the same.
fn short(form: &[u8]) -> Cow<'_, [u8]> {
    match form.len() <= FORM_BYTES_MAX {
        true => Cow::Borrowed(form),
        false => Cow::Owned([&[HASHED], Sha256::digest(form).as_slice()].concat()),
    }
}
