//! Reads the values of an entry one by one for access rules, which see them without any right.

use super::condition::FINDING_WORK;
use crate::engine::{Cursor as _, EntryId, Read, Table};
use crate::entry::Entry;
use crate::error::{Error, Result};
use crate::large;
use crate::names;
use crate::operational::{self, Vocabulary};
use crate::schema::{AttributeType, AttributeTypeId, NormalDn, Schema};
use crate::state::State;

/// Work of going through a value.
pub(super) const VALUE_WORK: u64 = 200;

/// The text that a value is compared as: in normal form, and a name as [`NormalDn::to_text`] has it.
pub(super) fn text_of(schema: &Schema, known: &AttributeType, value: &[u8]) -> Vec<u8> {
    let Some(rule) = known.equality() else {
        return value.to_vec();
    };
    let mut name = NormalDn::new();
    match rule.name() {
        "distinguishedNameMatch" | "uniqueMemberMatch" => match name.parse(schema, value).is_ok() {
            true => name.to_text().into_bytes(),
            false => value.to_vec(),
        },
        // slapd has no normal form of them.
        "objectIdentifierMatch" => value.to_vec(),
        _ => {
            let mut text = Vec::with_capacity(value.len());
            match rule.normalise(schema, value, &mut text) {
                Ok(()) => text,
                Err(_) => value.to_vec(),
            }
        }
    }
}

/// Reads values of entries.
pub(super) struct ValueReader<'a, R: Read> {
    pub(super) view: &'a R,
    pub(super) schema: &'a Schema,
    pub(super) state: &'a State,
}

impl<'a, R: Read> ValueReader<'a, R> {
    pub(super) fn new(view: &'a R, schema: &'a Schema, state: &'a State) -> ValueReader<'a, R> {
        ValueReader {
            view,
            schema,
            state,
        }
    }

    /// Shows the values of a type without options one by one, as long as `goes_on` says so. Of an entry that is not
    /// there, there are none.
    pub(super) fn each(
        &self,
        id: EntryId,
        attribute: AttributeTypeId,
        goes_on: &mut dyn FnMut(&[u8]) -> Result<bool>,
    ) -> Result<()> {
        self.read(id, attribute, true, goes_on)
    }

    /// The same; those of a large attribute only if that is asked for.
    fn read(
        &self,
        id: EntryId,
        attribute: AttributeTypeId,
        with_large: bool,
        goes_on: &mut dyn FnMut(&[u8]) -> Result<bool>,
    ) -> Result<()> {
        let Some(number) = self.state.attributes.number(attribute, "") else {
            return Ok(());
        };
        let Some(record) = self.view.get(Table::Entry, &id.to_key())? else {
            return Ok(());
        };
        let damaged = |damaged| Error::corrupt(format!("entry {id}: {damaged}"));
        let entry = Entry::new(&record).map_err(damaged)?;
        let mut spelled = Vec::new();
        let entry = match self.schema.type_of(attribute).is_operational() {
            true => {
                let vocabulary = Vocabulary {
                    schema: self.schema,
                    attributes: &self.state.attributes,
                };
                operational::spell(&entry, vocabulary, &mut spelled).map_err(damaged)?
            }
            false => entry,
        };
        if let Some(stored) = entry.attribute(number).map_err(damaged)? {
            for value in stored.values() {
                if !goes_on(value)? {
                    return Ok(());
                }
            }
        }
        if with_large && entry.large().any(|large| large.number == number) {
            let mut cursor = large::scan(self.view, id, number, None)?;
            while let Some((_, value)) = cursor.next()? {
                if !goes_on(value)? {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// Whether there is a value that is compared as a text. Of very many, it is looked up.
    pub(super) fn has(
        &self,
        id: EntryId,
        attribute: AttributeTypeId,
        text: &[u8],
        work: &mut u64,
    ) -> Result<bool> {
        let known = self.schema.type_of(attribute);
        if let Some(number) = self.state.attributes.number(attribute, "") {
            let form = large::form_of(self.schema, known, text);
            *work = work.saturating_add(FINDING_WORK);
            if let Some(value) = large::get(self.view, id, number, &form)? {
                return Ok(text_of(self.schema, known, &value) == text);
            }
        }
        let mut is_there = false;
        self.read(id, attribute, false, &mut |value| {
            *work = work.saturating_add(VALUE_WORK);
            is_there = text_of(self.schema, known, value) == text;
            Ok(!is_there)
        })?;
        Ok(is_there)
    }

    /// The entry with a DN, on which the decision depends from now on.
    pub(super) fn find(&self, dn: &NormalDn) -> Result<Option<EntryId>> {
        let walk = names::walk(self.view, &self.state.contexts, dn)?;
        let found = walk.and_then(|walk| walk.found());
        Ok(found.map(|found| {
            self.view.rely_on(Table::Entry, &found.id.to_key());
            found.id
        }))
    }
}
