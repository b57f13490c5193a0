//! Reads the values of an entry one by one for access rules, which see them without any right.

use super::condition::FINDING_WORK;
use crate::engine::{AttributeNo, Cursor as _, EntryId, Read, Table};
use crate::entry::{Damaged, Entry};
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
    /// An entry whose record is at hand.
    at_hand: Option<(EntryId, Entry<'a>)>,
}

impl<'a, R: Read> ValueReader<'a, R> {
    pub(super) fn new(view: &'a R, schema: &'a Schema, state: &'a State) -> ValueReader<'a, R> {
        ValueReader {
            view,
            schema,
            state,
            at_hand: None,
        }
    }

    /// The same with the record of an entry, if that is at hand.
    pub(super) fn with(self, at_hand: Option<(EntryId, Entry<'a>)>) -> ValueReader<'a, R> {
        ValueReader { at_hand, ..self }
    }

    /// Shows the values of a type without options one by one, as long as `goes_on` says so. Of an entry that is not
    /// there, there are none.
    pub(super) fn each(
        &self,
        id: EntryId,
        attribute: AttributeTypeId,
        goes_on: &mut dyn FnMut(&[u8]) -> Result<bool>,
    ) -> Result<()> {
        let Some(number) = self.state.attributes.number(attribute, "") else {
            return Ok(());
        };
        self.look_at(id, |entry| {
            if !self.each_in(entry, (id, attribute, number), goes_on)? {
                return Ok(());
            }
            if entry.large().any(|large| large.number == number) {
                let mut cursor = large::scan(self.view, id, number, None)?;
                while let Some((_, value)) = cursor.next()? {
                    if !goes_on(value)? {
                        return Ok(());
                    }
                }
            }
            Ok(())
        })
    }

    /// Looks at the record of an entry, if it is there.
    fn look_at(&self, id: EntryId, look: impl FnOnce(&Entry<'_>) -> Result<()>) -> Result<()> {
        if let Some((at_hand, entry)) = &self.at_hand
            && *at_hand == id
        {
            return look(entry);
        }
        match self.view.get(Table::Entry, &id.to_key())? {
            Some(record) => look(&Entry::new(&record).map_err(damaged(id))?),
            None => Ok(()),
        }
    }

    /// Shows the values that stand in a record; whether it is to go on.
    fn each_in(
        &self,
        entry: &Entry<'_>,
        (id, attribute, number): (EntryId, AttributeTypeId, AttributeNo),
        goes_on: &mut dyn FnMut(&[u8]) -> Result<bool>,
    ) -> Result<bool> {
        let mut spelled = Vec::new();
        let entry = match self.schema.type_of(attribute).is_operational() {
            true => {
                let vocabulary = Vocabulary {
                    schema: self.schema,
                    attributes: &self.state.attributes,
                };
                operational::spell(entry, vocabulary, &mut spelled).map_err(damaged(id))?
            }
            false => *entry,
        };
        if let Some(stored) = entry.attribute(number).map_err(damaged(id))? {
            for value in stored.values() {
                if !goes_on(value)? {
                    return Ok(false);
                }
            }
        }
        Ok(true)
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
        let Some(number) = self.state.attributes.number(attribute, "") else {
            return Ok(false);
        };
        let mut is_there = false;
        self.look_at(id, |entry| {
            self.each_in(entry, (id, attribute, number), &mut |value| {
                *work = work.saturating_add(VALUE_WORK);
                is_there = text_of(self.schema, known, value) == text;
                Ok(!is_there)
            })?;
            if !is_there && entry.large().any(|large| large.number == number) {
                let form = large::form_of(self.schema, known, text);
                *work = work.saturating_add(FINDING_WORK);
                let value = large::get(self.view, id, number, &form)?;
                is_there = value.is_some_and(|value| text_of(self.schema, known, &value) == text);
            }
            Ok(())
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

fn damaged(id: EntryId) -> impl Fn(Damaged) -> Error {
    move |damaged| Error::corrupt(format!("entry {id}: {damaged}"))
}
