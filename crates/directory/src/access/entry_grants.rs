//! The rights on one entry.

use std::sync::{Arc, OnceLock};

use super::compile::{AccessRules, Slot};
use super::single::{ByValue, SingleValues};
use crate::attributes::AttributeTable;
use crate::engine::AttributeNo;
use crate::policy::Rights;
use crate::schema::{AttributeTypeId, Schema};

/// The rights on one entry, and on all other entries that the same rules cover.
#[derive(Debug)]
pub(crate) struct EntryGrants {
    set: Arc<AccessRules>,
    rights: Box<[Rights]>,
    /// The slots in which some values are treated apart, if any are.
    by_values: Vec<ByValue>,
    visible: Visible,
    /// Which attributes may be read as a whole, by their numbers, as far as these were known when it was first asked.
    /// They keep their numbers.
    readable: OnceLock<Box<[bool]>>,
}

/// How much of an entry may be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Visible {
    /// All of it.
    All,
    /// All but protected attributes.
    Public,
    /// Some attributes.
    These,
    /// Nothing: the entry looks as if it did not exist.
    Nothing,
}

impl EntryGrants {
    pub(super) fn new(
        rights: Box<[Rights]>,
        by_values: Vec<ByValue>,
        set: Arc<AccessRules>,
    ) -> EntryGrants {
        let is_protected = |at| set.protected.is_some_and(|slot| slot.index() == at);
        let mut visible = match by_values.is_empty() {
            true => Visible::All,
            false => Visible::These,
        };
        for (at, rights) in rights.iter().enumerate() {
            if rights.has(Rights::READ) || at == Slot::CHILDREN.index() {
                continue;
            }
            visible = match at {
                _ if at == Slot::ENTRY.index() => Visible::Nothing,
                _ if visible == Visible::Nothing => Visible::Nothing,
                _ if visible == Visible::All && is_protected(at) => Visible::Public,
                _ => Visible::These,
            };
        }
        EntryGrants {
            set,
            rights,
            by_values,
            visible,
            readable: OnceLock::new(),
        }
    }

    /// Whether an attribute may be read as a whole, for many of them.
    #[inline]
    pub(crate) fn readable<'g>(&'g self, attributes: &'g AttributeTable) -> Readable<'g> {
        let known = || {
            let all = (0..attributes.len()).filter_map(|number| u16::try_from(number).ok());
            let read = |number| self.has_on_number(attributes, AttributeNo(number), Rights::READ);
            all.map(read).collect()
        };
        Readable {
            grants: self,
            attributes,
            known: self.readable.get_or_init(known),
        }
    }

    /// Whether no attribute has values that are treated apart.
    #[inline]
    pub(crate) fn is_by_attribute(&self) -> bool {
        self.by_values.is_empty()
    }

    /// The rights on single values of a type, if some are treated apart. `None` mostly: they have those on the type.
    #[inline]
    pub(crate) fn single_values<'g>(
        &'g self,
        schema: &'g Schema,
        attribute_type: AttributeTypeId,
    ) -> Option<SingleValues<'g>> {
        match self.by_values.is_empty() {
            true => None,
            false => self.single_values_of(schema, attribute_type),
        }
    }

    #[cold]
    fn single_values_of<'g>(
        &'g self,
        schema: &'g Schema,
        attribute_type: AttributeTypeId,
    ) -> Option<SingleValues<'g>> {
        let slot = self.set.slot(attribute_type);
        let by_value = self
            .by_values
            .iter()
            .find(|by_value| by_value.slot == slot)?;
        Some(SingleValues {
            by_value,
            tests: &self.set.value_tests,
            schema,
            known: schema.type_of(attribute_type),
        })
    }

    /// Whether these rights are granted on a value of a type, which the entry need not have.
    pub(crate) fn has_on_value(
        &self,
        (schema, attribute_type): (&Schema, AttributeTypeId),
        value: &[u8],
        rights: Rights,
    ) -> bool {
        match self.single_values(schema, attribute_type) {
            Some(values) => values.grant(value, rights),
            None => self.has_on(attribute_type, rights),
        }
    }

    /// How much of it may be read.
    #[inline]
    pub(crate) fn visible(&self) -> Visible {
        self.visible
    }

    /// Whether these rights are granted on a slot.
    #[inline]
    pub(crate) fn has(&self, slot: Slot, rights: Rights) -> bool {
        self.rights[slot.index()].has(rights)
    }

    /// Whether these rights are granted on an attribute type.
    #[inline]
    pub(crate) fn has_on(&self, attribute_type: AttributeTypeId, rights: Rights) -> bool {
        self.has(self.set.slot(attribute_type), rights)
    }

    /// The same for the type of an attribute description. False for a number that is not in the table.
    #[inline]
    pub(crate) fn has_on_number(
        &self,
        attributes: &AttributeTable,
        number: AttributeNo,
        rights: Rights,
    ) -> bool {
        let known = attributes.get(number);
        known.is_some_and(|known| self.has_on(known.attribute_type(), rights))
    }
}

/// Which attributes of an entry may be read.
#[derive(Clone, Copy)]
pub(crate) struct Readable<'g> {
    grants: &'g EntryGrants,
    attributes: &'g AttributeTable,
    known: &'g [bool],
}

impl Readable<'_> {
    /// Whether one may be read as a whole.
    #[inline]
    pub(crate) fn has(&self, number: AttributeNo) -> bool {
        match self.known.get(usize::from(number.0)) {
            Some(is_readable) => *is_readable,
            None => self.has_unknown(number),
        }
    }

    /// The same for one that had no number yet when the others were asked for.
    #[cold]
    fn has_unknown(&self, number: AttributeNo) -> bool {
        (self.grants).has_on_number(self.attributes, number, Rights::READ)
    }
}
