//! Entries that resemble one before: the same attributes in the same order, and the same object classes. What the
//! schema says of these was found out then, so that only the values are left to be looked at.
//!
//! Whatever is not plainly right goes the long way, which finds out what is wrong with it.

use sapwood_ldap::ldif::AttributeValue;

use crate::engine::{AttributeNo, EntryId};
use crate::entry::{Entry, EntryFlags, RecordBuilder};
use crate::schema::{AttributeType, ObjectClassId, Schema};

/// The patterns that entries mostly have.
pub(super) struct Patterns<'s> {
    schema: &'s Schema,
    known: Vec<Pattern<'s>>,
    /// The one that was used or learned last.
    last: usize,
    builder: RecordBuilder,
}

/// What entries have in common.
pub(super) struct Pattern<'s> {
    /// The naming attribute's type as RDNs write it, and its place among the attributes.
    pub(super) naming: (Box<str>, usize),
    /// In the order of the source.
    pub(super) attributes: Vec<Attribute<'s>>,
    /// The structural class.
    pub(super) class: ObjectClassId,
    /// The flags that follow from it.
    pub(super) flags: EntryFlags,
    /// The record of the entry that it was learned from.
    pub(super) record: Vec<u8>,
}

/// One attribute of a pattern.
pub(super) struct Attribute<'s> {
    /// Its description as the source writes it.
    pub(super) text: Box<str>,
    pub(super) known: &'s AttributeType,
    pub(super) number: AttributeNo,
    /// Its description as answers write it.
    pub(super) description: Box<str>,
    pub(super) is_protected: bool,
    /// The values that all entries of the pattern have, as the source writes them: those of objectClass.
    pub(super) fixed: Option<Vec<Box<[u8]>>>,
}

impl<'s> Patterns<'s> {
    const KNOWN_MAX: usize = 8;

    pub(super) fn new(schema: &'s Schema) -> Self {
        Self {
            schema,
            known: Vec::new(),
            last: 0,
            builder: RecordBuilder::new(),
        }
    }

    /// Replaces `record` by that of an entry with this RDN, which is written plainly, and these values, if it has the
    /// pattern of one before and is correct. Its class and its flags.
    pub(super) fn write(
        &mut self,
        rdn: &str,
        values: &[AttributeValue<'_>],
        record: &mut Vec<u8>,
    ) -> Option<(ObjectClassId, EntryFlags)> {
        let name = rdn.split_once('=')?;
        let count = self.known.len();
        let at = (0..count)
            .map(|step| (self.last + step) % count)
            .find(|at| {
                self.known[*at]
                    .fill(self.schema, name, values, &mut self.builder)
                    .is_some()
            })?;
        self.last = at;
        let Pattern { class, flags, .. } = self.known[at];
        record.clear();
        let finished = self.builder.finish(EntryId::ROOT, flags, rdn, record);
        finished.ok().map(|()| (class, flags))
    }

    /// Adds a pattern; the one that was not used for longest goes.
    pub(super) fn learn(&mut self, pattern: Pattern<'s>) {
        if self.known.len() < Self::KNOWN_MAX {
            self.last = self.known.len();
            self.known.push(pattern);
        } else {
            self.last = (self.last + 1) % Self::KNOWN_MAX;
            self.known[self.last] = pattern;
        }
    }
}

impl Pattern<'_> {
    /// Fills the builder with the values of an entry; `None` unless it has this pattern and is correct.
    fn fill(
        &self,
        schema: &Schema,
        (naming, name): (&str, &str),
        values: &[AttributeValue<'_>],
        builder: &mut RecordBuilder,
    ) -> Option<()> {
        if *naming != *self.naming.0 {
            return None;
        }
        builder.clear();
        let mut rest = values;
        for (at, attribute) in self.attributes.iter().enumerate() {
            let is_own = |value: &&AttributeValue<'_>| *value.description == *attribute.text;
            let (own, behind) = rest.split_at(rest.iter().take_while(is_own).count());
            rest = behind;
            attribute.check(schema, own)?;
            // The entry has the value in its name.
            if at == self.naming.1 && own.iter().all(|value| *value.value != *name.as_bytes()) {
                return None;
            }
            if attribute.fixed.is_some() {
                let learned = Entry::new(&self.record).ok()?;
                builder.copy(&learned.attribute(attribute.number).ok()??);
            } else {
                builder.push(
                    attribute.number,
                    attribute.description.as_bytes(),
                    own.iter().map(|value| &*value.value),
                    attribute.is_protected,
                );
            }
        }
        rest.is_empty().then_some(())
    }
}

impl Attribute<'_> {
    /// Whether these can be its values.
    fn check(&self, schema: &Schema, values: &[AttributeValue<'_>]) -> Option<()> {
        if let Some(fixed) = &self.fixed {
            let mut pairs = fixed.iter().zip(values);
            let is_same =
                fixed.len() == values.len() && pairs.all(|(fixed, value)| **fixed == *value.value);
            return is_same.then_some(());
        }
        if let Some(syntax) = self.known.syntax() {
            let mut values = values.iter();
            if !values.all(|value| syntax.validate(schema, &value.value).is_ok()) {
                return None;
            }
        }
        match values {
            [] => None,
            [_] => Some(()),
            _ if self.known.is_single_value() => None,
            _ => {
                let values: Vec<_> = values.iter().map(|value| &*value.value).collect();
                schema
                    .duplicate(self.known, &values)
                    .is_none()
                    .then_some(())
            }
        }
    }
}
