//! The numbers that stand for attribute descriptions inside the store.
//!
//! Each attribute type in use has a number, and each set of options it is used with another one. Numbers are never
//! given up, so that a table that knows more numbers than a snapshot is right for that snapshot too.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use sapwood_ldap::attribute::AttributeDescription;

use crate::accounts::Accounts;
use crate::dynamic_groups::DynamicGroups;
use crate::engine::{self, AttributeNo, Direction, Index, IndexKind, Range, Read, Table, Write};
use crate::error::{Error, Result};
use crate::indexes::{AttributeIndexes, Completeness, IndexSet};
use crate::member_of::MemberOf;
use crate::schema::{ATTRIBUTE_TYPES_MAX, AttributeTypeId, Schema};
use crate::sources::Clock;
use crate::steps;

/// Most attribute descriptions with options of a directory: clients that make up options cannot make more. What is left
/// of the numbers is for types without options, of which the schema has [`ATTRIBUTE_TYPES_MAX`] at most.
pub(crate) const DESCRIPTIONS_WITH_OPTIONS_MAX: usize = 20_000;
/// Most numbers: those of types that were removed from the schema are not given again.
const NUMBERS_MAX: usize = u16::MAX as usize;

const _: () = assert!(DESCRIPTIONS_WITH_OPTIONS_MAX + ATTRIBUTE_TYPES_MAX <= NUMBERS_MAX);

/// The attribute descriptions of a directory and their numbers.
#[derive(Clone, Debug, Default)]
pub(crate) struct AttributeTable {
    /// By number.
    known: Vec<KnownAttribute>,
    /// By the type's position in the schema.
    by_type: Vec<OfType>,
    /// How many of them have options.
    with_options: usize,
    /// Whether one of them is collective.
    has_collective: bool,
    /// Where the values are of attributes that binds change, where password policies ask for them.
    accounts: Option<Arc<Accounts>>,
    /// How the groups of an entry are found, where that is asked for.
    member_of: Option<Arc<MemberOf>>,
    /// The complete indexes for equality, by the type.
    equality_indexes: Arc<[(AttributeTypeId, Index)]>,
    /// The clock by which entries end, if any do.
    clock: Option<EndClock>,
    /// Which entries have values that LDAP URLs find, if any have.
    dynamic_groups: Option<Arc<DynamicGroups>>,
}

/// A clock by which entries end.
#[derive(Clone)]
struct EndClock(Arc<dyn Clock>);

impl fmt::Debug for EndClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("EndClock")
    }
}

/// The descriptions of a type.
#[derive(Clone, Debug, Default)]
struct OfType {
    /// Their numbers, ascending.
    numbers: Vec<AttributeNo>,
    /// The numbers by options, once they are many.
    by_options: HashMap<Box<str>, AttributeNo>,
}

/// What stands before the description of a number whose type was removed from the schema: nothing has it any more.
const REMOVED: char = '-';

/// Descriptions of a type that are looked at one by one.
const SEARCHED_MAX: usize = 16;

/// An attribute description that has a number.
#[derive(Clone, Debug)]
pub(crate) struct KnownAttribute {
    number: AttributeNo,
    attribute_type: AttributeTypeId,
    /// The type's name, then the options in lower case and sorted.
    text: Box<str>,
    type_bytes: usize,
}

impl KnownAttribute {
    /// Its number.
    pub(crate) fn number(&self) -> AttributeNo {
        self.number
    }

    /// Its type.
    pub(crate) fn attribute_type(&self) -> AttributeTypeId {
        self.attribute_type
    }

    /// How it is written in answers: the type's name and the options.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// The options in lower case, sorted, joined by semicolons; empty for none.
    pub(crate) fn options(&self) -> &str {
        self.text.get(self.type_bytes + 1..).unwrap_or_default()
    }

    /// Whether its options are these, in their normal form. Mostly there are none on either side, and comparing two
    /// strings that are empty can cost more than all else that is done for an attribute: the C library reads them
    /// under an empty mask, which takes the processor hundreds of cycles where nothing is mapped.
    #[inline]
    pub(crate) fn has_options(&self, options: &str) -> bool {
        match options {
            _ if options.is_empty() => self.type_bytes == self.text.len(),
            options => self.options() == options,
        }
    }

    /// As a description.
    ///
    /// # Panics
    /// Never: it was a description when it became known.
    pub(crate) fn description(&self) -> AttributeDescription<'_> {
        AttributeDescription::parse(&self.text).expect("checked when the number was given")
    }
}

/// No more attribute descriptions can be numbered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum TooManyDescriptions {
    /// None with options.
    #[error(
        "the directory knows {DESCRIPTIONS_WITH_OPTIONS_MAX} attribute descriptions with options, as many as it can; \
         use one that was used before, or none"
    )]
    WithOptions,
    /// None at all.
    #[error(
        "the directory has numbered {NUMBERS_MAX} attribute descriptions, as many as it can, those of types that were \
         removed from its schema included: export it, and import that into a new one"
    )]
    All,
}

impl AttributeTable {
    /// Reads the table as of a snapshot.
    pub(crate) fn load<R: Read>(schema: &Schema, view: &R) -> Result<AttributeTable> {
        let mut table = AttributeTable::default();
        table.extend(schema, view)?;
        Ok(table)
    }

    /// Where the values are of attributes that binds change, if there are any.
    pub(crate) fn accounts(&self) -> Option<&Accounts> {
        self.accounts.as_deref()
    }

    /// How the groups of an entry are found, if that is asked for.
    #[inline]
    pub(crate) fn member_of(&self) -> Option<&MemberOf> {
        self.member_of.as_deref()
    }

    /// Says how they are found.
    pub(crate) fn set_member_of(&mut self, member_of: Option<Arc<MemberOf>>) {
        self.member_of = member_of;
    }

    /// The index for equality of a type, if it is complete.
    pub(crate) fn equality_index(&self, attribute_type: AttributeTypeId) -> Option<Index> {
        let mut indexes = self.equality_indexes.iter();
        let found = indexes.find(|(of, _)| *of == attribute_type);
        found.map(|(_, index)| *index)
    }

    /// Says which are complete.
    pub(crate) fn set_equality_indexes(&mut self, indexes: &IndexSet) {
        let complete = |of: &&AttributeIndexes| of.equality == Completeness::Complete;
        let complete = indexes.iter().filter(complete);
        let indexes = complete.map(|of| (of.attribute_type, of.index(IndexKind::Equality)));
        self.equality_indexes = indexes.collect();
    }

    /// The clock by which entries end, if any do.
    pub(crate) fn clock(&self) -> Option<&dyn Clock> {
        self.clock.as_ref().map(|clock| &*clock.0)
    }

    /// Sets it.
    pub(crate) fn set_clock(&mut self, clock: Option<Arc<dyn Clock>>) {
        self.clock = clock.map(EndClock);
    }

    /// Which entries have values that LDAP URLs find, if any have.
    #[inline]
    pub(crate) fn dynamic_groups(&self) -> Option<&Arc<DynamicGroups>> {
        self.dynamic_groups.as_ref()
    }

    /// Says which.
    pub(crate) fn set_dynamic_groups(&mut self, groups: Option<Arc<DynamicGroups>>) {
        self.dynamic_groups = groups;
    }

    /// Says where these values are.
    pub(crate) fn set_accounts(&mut self, accounts: Option<Arc<Accounts>>) {
        self.accounts = accounts;
    }

    /// Learns the numbers that a snapshot knows beyond these; whether there were any.
    pub(crate) fn extend<R: Read>(&mut self, schema: &Schema, view: &R) -> Result<bool> {
        use engine::Cursor;
        let before = self.known.len();
        let from = (before as u16).to_be_bytes();
        let mut rows = view.scan(Table::Attribute, Range::from(&from), Direction::Forward)?;
        while let Some((key, text)) = rows.next()? {
            let text = std::str::from_utf8(text)
                .map_err(|_| Error::corrupt("an attribute description is not text"))?;
            if key != (self.known.len() as u16).to_be_bytes() {
                return Err(Error::corrupt(format!(
                    "the number of the attribute description {text} does not follow the one before"
                )));
            }
            if let Some(text) = text.strip_prefix(REMOVED) {
                self.push(AttributeTypeId::GONE, text.into(), text.len());
                continue;
            }
            let description = AttributeDescription::parse(text).map_err(|error| {
                Error::corrupt(format!("attribute description {text}: {error}"))
            })?;
            let attribute_type = schema
                .attribute_type(description.attribute_type().as_bytes())
                .ok_or_else(|| {
                    Error::State(format!(
                        "the directory has values of {text}, which its schema does not define (any more)"
                    ))
                })?;
            self.has_collective |= attribute_type.is_collective();
            self.push(
                attribute_type.id(),
                text.into(),
                description.attribute_type().len(),
            );
        }
        Ok(self.known.len() > before)
    }

    /// The description with a number.
    pub(crate) fn get(&self, number: AttributeNo) -> Option<&KnownAttribute> {
        self.known.get(usize::from(number.0))
    }

    /// The descriptions of a type (not of its subtypes), with all options.
    pub(crate) fn of_type(
        &self,
        attribute_type: AttributeTypeId,
    ) -> impl Iterator<Item = &KnownAttribute> {
        self.numbers_of(attribute_type)
            .iter()
            .filter_map(|number| self.get(*number))
    }

    /// The numbers of [these](Self::of_type), ascending.
    pub(crate) fn numbers_of(&self, attribute_type: AttributeTypeId) -> &[AttributeNo] {
        let of_type = self.by_type.get(attribute_type.index());
        of_type.map_or(&[], |of_type| &of_type.numbers)
    }

    /// The number of a type with options in their normal form (lower case, sorted, joined by semicolons).
    pub(crate) fn number(
        &self,
        attribute_type: AttributeTypeId,
        options: &str,
    ) -> Option<AttributeNo> {
        let of_type = self.by_type.get(attribute_type.index())?;
        if of_type.numbers.len() > SEARCHED_MAX {
            return of_type.by_options.get(options).copied();
        }
        steps::count(of_type.numbers.len());
        self.of_type(attribute_type)
            .find(|known| known.has_options(options))
            .map(KnownAttribute::number)
    }

    /// The number of a type with options, given now if it had none. The table must be the transaction's own copy.
    pub(crate) fn number_or_new<W: Write>(
        &mut self,
        schema: &Schema,
        txn: &mut W,
        attribute_type: AttributeTypeId,
        options: &str,
    ) -> engine::Result<std::result::Result<AttributeNo, TooManyDescriptions>> {
        if let Some(number) = self.number(attribute_type, options) {
            return Ok(Ok(number));
        }
        if !options.is_empty() && self.with_options >= DESCRIPTIONS_WITH_OPTIONS_MAX {
            return Ok(Err(TooManyDescriptions::WithOptions));
        }
        if self.known.len() >= NUMBERS_MAX {
            return Ok(Err(TooManyDescriptions::All));
        }
        let name = schema.type_of(attribute_type).name();
        let text = match options {
            "" => name.to_owned(),
            options => format!("{name};{options}"),
        };
        let number = AttributeNo(self.known.len() as u16);
        self.has_collective |= schema.type_of(attribute_type).is_collective();
        txn.insert(Table::Attribute, &number.0.to_be_bytes(), text.as_bytes())?;
        self.push(attribute_type, text.into(), name.len());
        Ok(Ok(number))
    }

    /// The number of a type without options in a table that no store keeps: a synthetic entry has its own.
    pub(crate) fn number_synthetic(
        &mut self,
        schema: &Schema,
        attribute_type: AttributeTypeId,
    ) -> AttributeNo {
        self.number(attribute_type, "").unwrap_or_else(|| {
            let name = schema.type_of(attribute_type).name();
            self.push(attribute_type, name.into(), name.len());
            AttributeNo((self.known.len() - 1) as u16)
        })
    }

    /// Whether a collective attribute (RFC 3671) may have been stored.
    #[inline]
    pub(crate) fn has_collective(&self) -> bool {
        self.has_collective
    }

    /// Marks the numbers of a type as those of a type that was removed, in the table of a transaction. The definition
    /// is to be written, too, so that the table is read again.
    pub(crate) fn remove<W: Write>(
        &self,
        txn: &mut W,
        attribute_type: AttributeTypeId,
    ) -> engine::Result<()> {
        for known in self.of_type(attribute_type) {
            let text = format!("{REMOVED}{}", known.text);
            txn.put(
                Table::Attribute,
                &known.number.0.to_be_bytes(),
                text.as_bytes(),
            )?;
        }
        Ok(())
    }

    /// How many numbers there are.
    pub(crate) fn len(&self) -> usize {
        self.known.len()
    }

    /// Forgets the numbers from `len` on: those a transaction gave before it was undone.
    pub(crate) fn truncate(&mut self, len: usize) {
        for known in self.known.drain(len.min(self.known.len())..) {
            self.with_options -= usize::from(has_options(&known.text));
            if let Some(of_type) = self.by_type.get_mut(known.attribute_type.index()) {
                of_type.by_options.remove(known.options());
                // The numbers that are forgotten are the last of each type.
                let kept = of_type
                    .numbers
                    .partition_point(|number| usize::from(number.0) < len);
                of_type.numbers.truncate(kept);
            }
        }
    }

    fn push(&mut self, attribute_type: AttributeTypeId, text: Box<str>, type_bytes: usize) {
        let number = AttributeNo(self.known.len() as u16);
        self.with_options += usize::from(has_options(&text));
        if attribute_type == AttributeTypeId::GONE {
            self.known.push(KnownAttribute {
                number,
                attribute_type,
                text,
                type_bytes,
            });
            return;
        }
        let at = attribute_type.index();
        if self.by_type.len() <= at {
            self.by_type.resize_with(at + 1, OfType::default);
        }
        self.known.push(KnownAttribute {
            number,
            attribute_type,
            text,
            type_bytes,
        });
        let of_type = &mut self.by_type[at];
        of_type.numbers.push(number);
        if of_type.numbers.len() > SEARCHED_MAX {
            let known = &self.known;
            let missing = of_type.numbers.iter().skip(of_type.by_options.len());
            let missing = missing.filter_map(|number| known.get(usize::from(number.0)));
            of_type
                .by_options
                .extend(missing.map(|known| (known.options().into(), known.number)));
        }
    }
}

/// Whether a description has options, of a type that was removed, too.
fn has_options(description: &str) -> bool {
    description.contains(';')
}
