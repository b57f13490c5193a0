//! An entry while it is made or changed: attributes that nobody touches stay where they are stored, the others are
//! lists of values that borrow from the old record and the request.

mod differences;
mod values;

use std::borrow::Cow;
use std::cell::OnceCell;
use std::collections::{HashMap, HashSet};

use sapwood_ldap::dn::Rdn;
use sapwood_ldap::list::OctetStrings;
use sapwood_ldap::result::ResultCode;

use crate::engine::{AttributeNo, EntryId};
use crate::entry::{
    Entry, EntryFlags, EntryTooLarge, KEPT_BYTES_MAX, RecordBuilder, StoredAttribute,
};
use crate::error::{Error, Result};
use crate::large;
use crate::operational::{Brief, Operational, StoredValues, Vocabulary};
use crate::outcome::Stop;
use crate::schema::{
    AttributeType, AttributeTypeId, AttributeValues, CheckMode, ObjectClassId,
    OperationalAttribute, Schema,
};
use crate::sources::PasswordHasher;
use crate::state::State;
use crate::steps;

use self::values::Values;
use super::large_change::{LargeDraft, LargeWrite};
use crate::stamp::Stamp;

/// From how many attributes on they are looked up by name, instead of being looked at one by one.
const ATTRIBUTES_SEARCHED_MAX: usize = 64;

/// An entry being made or changed.
#[derive(Debug, Default)]
pub(crate) struct Draft<'a> {
    attributes: Vec<DraftAttribute<'a>>,
    /// Where each of them is, by type and options, once they are many.
    places: OnceCell<HashMap<AttributeTypeId, HashMap<String, usize>>>,
    /// Whether an attribute came or went, or objectClass changed: then the classes must be asked again.
    shape_changed: bool,
    large: Vec<LargeDraft>,
}

/// One attribute of a draft.
#[derive(Debug)]
pub(crate) struct DraftAttribute<'a> {
    attribute_type: AttributeTypeId,
    /// In their normal form, empty for none.
    options: String,
    stored: Stored<'a>,
    /// The values, once the attribute was touched; of a large one, once they were all read.
    values: Option<Values<'a>>,
}

/// What was stored of an attribute.
#[derive(Clone, Copy, Debug)]
enum Stored<'a> {
    Nothing,
    Attribute(StoredAttribute<'a>),
    /// One of the large ones.
    Large(usize),
}

/// Where the values of a large attribute go when they are read: it is changed like any other then.
pub(super) struct Unread<'d, 'a> {
    values: &'d mut Option<Values<'a>>,
    shape_changed: &'d mut bool,
}

impl Unread<'_, '_> {
    pub(super) fn take(self, values: Vec<Vec<u8>>) {
        *self.shape_changed |= values.is_empty();
        *self.values = Some(Values::new(values.into_iter().map(Cow::Owned)));
    }
}

impl<'a> DraftAttribute<'a> {
    fn current(&self) -> Vec<&[u8]> {
        let mut current = Vec::new();
        self.append_current(&mut current);
        current
    }

    fn append_current<'v>(&'v self, out: &mut Vec<&'v [u8]>) {
        match (&self.values, &self.stored) {
            (Some(values), _) => out.extend(values.iter()),
            (None, Stored::Attribute(stored)) => out.extend(stored.values()),
            (None, Stored::Nothing | Stored::Large(_)) => {}
        }
    }

    /// The attribute with its values, for the schema to check.
    fn as_checked<'v>(&'v self, values: &'v [&'v [u8]]) -> AttributeValues<'v> {
        AttributeValues {
            attribute_type: self.attribute_type,
            options: self.options.as_bytes(),
            values,
        }
    }

    fn is(&self, attribute_type: AttributeTypeId, options: &str) -> bool {
        self.attribute_type == attribute_type
            && self.options.len() == options.len()
            && (options.is_empty() || self.options == options)
    }

    fn is_gone(&self) -> bool {
        self.values.as_ref().is_some_and(Values::is_empty)
    }
}

impl<'a> Draft<'a> {
    /// One without attributes, and with room for so many.
    pub(crate) fn with_room(attributes: usize) -> Draft<'a> {
        Draft {
            attributes: Vec::with_capacity(attributes),
            ..Draft::default()
        }
    }

    /// The draft of an entry as it is stored in its two records.
    pub(crate) fn of(state: &State, id: EntryId, records: [Entry<'a>; 2]) -> Result<Draft<'a>> {
        let attributes = records.iter().map(Entry::attributes_count).sum::<usize>();
        // One more will perhaps be added.
        let mut draft = Draft::with_room(attributes + 1);
        for record in records {
            for stored in record.attributes() {
                let stored =
                    stored.map_err(|damaged| Error::corrupt(format!("entry {id}: {damaged}")))?;
                let known = state.attributes.get(stored.number()).ok_or_else(|| {
                    Error::corrupt(format!(
                        "entry {id} has an attribute of number {}",
                        stored.number().0
                    ))
                })?;
                draft.attributes.push(DraftAttribute {
                    attribute_type: known.attribute_type(),
                    options: known.options().to_owned(),
                    stored: Stored::Attribute(stored),
                    values: None,
                });
            }
            if record.has_large() {
                draft.take_large(state, id, &record)?;
            }
        }
        Ok(draft)
    }

    #[cold]
    fn take_large(&mut self, state: &State, id: EntryId, record: &Entry<'_>) -> Result<()> {
        for large in record.large() {
            let known = state.attributes.get(large.number);
            let known = known.ok_or_else(|| large::not_as_told(id, large.number))?;
            self.attributes.push(DraftAttribute {
                attribute_type: known.attribute_type(),
                options: known.options().to_owned(),
                stored: Stored::Large(self.large.len()),
                values: None,
            });
            self.large.push(LargeDraft::of(large));
        }
        Ok(())
    }

    /// The large attribute of a type with options, and where its values go when they are read; none if they were.
    pub(super) fn large(
        &mut self,
        attribute_type: AttributeTypeId,
        options: &str,
    ) -> Option<(&mut LargeDraft, Unread<'_, 'a>)> {
        let at = self.find(attribute_type, options)?;
        let DraftAttribute { stored, values, .. } = &mut self.attributes[at];
        let (Stored::Large(large), None) = (*stored, &values) else {
            return None;
        };
        let large = self.large.get_mut(large)?;
        let unread = Unread {
            values,
            shape_changed: &mut self.shape_changed,
        };
        Some((large, unread))
    }

    /// Whether there may be such an attribute.
    #[inline]
    pub(super) fn has_large(&self) -> bool {
        !self.large.is_empty()
    }

    fn find(&self, attribute_type: AttributeTypeId, options: &str) -> Option<usize> {
        if self.attributes.len() > ATTRIBUTES_SEARCHED_MAX {
            steps::count(1);
            let places = self.places.get_or_init(|| {
                let mut places: HashMap<_, HashMap<_, _>> = HashMap::new();
                for (at, known) in self.attributes.iter().enumerate() {
                    let of_type = places.entry(known.attribute_type).or_default();
                    of_type.insert(known.options.clone(), at);
                }
                places
            });
            let at = *places.get(&attribute_type)?.get(options)?;
            return (!self.attributes[at].is_gone()).then_some(at);
        }
        steps::count(self.attributes.len());
        self.attributes
            .iter()
            .position(|known| known.is(attribute_type, options) && !known.is_gone())
    }

    /// Whether there is the attribute with just these options.
    pub(crate) fn has(&self, attribute_type: AttributeTypeId, options: &str) -> bool {
        self.find(attribute_type, options).is_some()
    }

    /// Whether there is an operational attribute.
    pub(crate) fn has_operational(&self, schema: &Schema) -> bool {
        self.attributes
            .iter()
            .any(|known| schema.type_of(known.attribute_type).is_operational())
    }

    /// The values of a type without options.
    pub(crate) fn values(&self, attribute_type: AttributeTypeId) -> Vec<&[u8]> {
        self.find(attribute_type, "")
            .map_or_else(Vec::new, |at| self.attributes[at].current())
    }

    /// The values of a type with any options.
    pub(crate) fn values_of_all(&self, attribute_type: AttributeTypeId) -> Vec<&[u8]> {
        let mut values = Vec::new();
        let of_type = |known: &&DraftAttribute<'_>| known.attribute_type == attribute_type;
        for known in self.attributes.iter().filter(of_type) {
            known.append_current(&mut values);
        }
        values
    }

    /// The values of an attribute, to be changed; it is made when there was none.
    fn touch(
        &mut self,
        schema: &Schema,
        attribute_type: AttributeTypeId,
        options: &str,
    ) -> &mut Values<'a> {
        let DraftAttribute { stored, values, .. } = self.place(schema, attribute_type, options);
        values.get_or_insert_with(|| {
            let stored = match stored {
                Stored::Attribute(stored) => stored.values(),
                Stored::Nothing | Stored::Large(_) => OctetStrings::EMPTY,
            };
            Values::new(stored.into_iter().map(Cow::Borrowed))
        })
    }

    /// The attribute that is to be changed; it is made when there was none.
    fn place(
        &mut self,
        schema: &Schema,
        attribute_type: AttributeTypeId,
        options: &str,
    ) -> &mut DraftAttribute<'a> {
        let at = self.find(attribute_type, options).unwrap_or_else(|| {
            self.shape_changed = true;
            if let Some(places) = self.places.get_mut() {
                let of_type = places.entry(attribute_type).or_default();
                of_type.insert(options.to_owned(), self.attributes.len());
            }
            self.attributes.push(DraftAttribute {
                attribute_type,
                options: options.to_owned(),
                stored: Stored::Nothing,
                values: Some(Values::default()),
            });
            self.attributes.len() - 1
        });
        self.shape_changed |= attribute_type == schema.well_known().object_class;
        &mut self.attributes[at]
    }

    /// Adds values; `attributeOrValueExists` when one is there already. Values without an equality rule cannot be
    /// told apart, so none may join others (RFC 4512 §2.5.1: `inappropriateMatching`).
    pub(crate) fn add(
        &mut self,
        schema: &Schema,
        known: &AttributeType,
        options: &str,
        values: Vec<Cow<'a, [u8]>>,
    ) -> std::result::Result<(), Stop> {
        let current = self.touch(schema, known.id(), options);
        if known.equality().is_none() && !current.is_empty() {
            let diagnostic = format!(
                "{}: without an equality rule values can only be added where there are none",
                known.name()
            );
            return Err(Stop::refuse(ResultCode::InappropriateMatching, diagnostic));
        }
        for (number, value) in values.iter().enumerate() {
            if current.find(schema, known, value, values.len()).is_some() {
                let diagnostic = format!("{}: value #{number} is there already", known.name());
                return Err(Stop::refuse(ResultCode::AttributeOrValueExists, diagnostic));
            }
        }
        for value in values {
            current.push(schema, known, value);
        }
        Ok(())
    }

    /// Where a value of a type without options is, which is not touched by that.
    fn position(&self, schema: &Schema, known: &AttributeType, value: &[u8]) -> Option<usize> {
        let at = self.find(known.id(), "")?;
        let current = self.attributes[at].current().into_iter();
        Values::new(current.map(Cow::Borrowed)).find(schema, known, value, 1)
    }

    /// Adds a value unless it is there.
    pub(crate) fn add_if_missing(
        &mut self,
        schema: &Schema,
        known: &AttributeType,
        value: Cow<'a, [u8]>,
    ) {
        if self.position(schema, known, &value).is_none() {
            self.touch(schema, known.id(), "")
                .push(schema, known, value);
        }
    }

    /// Adds the values of a relative name where they are missing: they are the entry's whether the client lists them
    /// or not (RFC 4511 §4.7, §4.9). Those of operational attributes, which cannot name an entry, are left for
    /// [`check_rdn`](Self::check_rdn) to refuse.
    pub(crate) fn add_rdn_values(
        &mut self,
        schema: &Schema,
        rdn: Rdn<'_>,
    ) -> std::result::Result<(), Stop> {
        for ava in rdn.avas() {
            let known = schema.defined_attribute_type(ava.attribute())?;
            if schema.is_protected(known.id()) {
                let diagnostic = format!(
                    "{}: a protected attribute cannot name an entry: names are shown to everybody, and logged",
                    known.name()
                );
                return Err(Stop::refuse(ResultCode::NamingViolation, diagnostic));
            }
            if !known.is_operational() {
                self.add_if_missing(schema, known, Cow::Owned(ava.value().into_owned()));
            }
        }
        Ok(())
    }

    /// Removes values, all of them when none is named; `noSuchAttribute` when one is not there.
    pub(crate) fn delete(
        &mut self,
        schema: &Schema,
        known: &AttributeType,
        options: &str,
        values: &[&[u8]],
    ) -> std::result::Result<(), Stop> {
        let missing = |what: String| Stop::refuse(ResultCode::NoSuchAttribute, what);
        if !values.is_empty() && known.equality().is_none() {
            let diagnostic = format!(
                "{}: without an equality rule only the whole attribute can be deleted",
                known.name()
            );
            return Err(Stop::refuse(ResultCode::InappropriateMatching, diagnostic));
        }
        if !self.has(known.id(), options) {
            return Err(missing(format!(
                "{}: the entry does not have this attribute",
                known.name()
            )));
        }
        let current = self.touch(schema, known.id(), options);
        if values.is_empty() {
            *current = Values::default();
        }
        for (number, value) in values.iter().enumerate() {
            // The same value twice is a value that is not there the second time.
            let Some(at) = current.find(schema, known, value, values.len()) else {
                let what = format!("{}: value #{number} is not there", known.name());
                return Err(missing(what));
            };
            current.delete(schema, known, at);
        }
        let is_gone = current.is_empty();
        self.shape_changed |= is_gone;
        Ok(())
    }

    /// Removes a value if it is there.
    pub(crate) fn delete_if_there(&mut self, schema: &Schema, known: &AttributeType, value: &[u8]) {
        if self.position(schema, known, value).is_none() {
            return;
        }
        let current = self.touch(schema, known.id(), "");
        if let Some(at) = current.find(schema, known, value, 1) {
            current.delete(schema, known, at);
        }
        let is_gone = current.is_empty();
        self.shape_changed |= is_gone;
    }

    /// Puts values in place of all there are.
    pub(crate) fn replace(
        &mut self,
        schema: &Schema,
        known: &AttributeType,
        options: &str,
        values: Vec<Cow<'a, [u8]>>,
    ) {
        if values.is_empty() && !self.has(known.id(), options) {
            return;
        }
        self.shape_changed |= values.is_empty();
        self.place(schema, known.id(), options).values = Some(Values::new(values));
    }

    /// Takes the place of all there is: attributes with their values, of each of which none is there twice. What has
    /// these values already stays as it is stored.
    pub(crate) fn become_these(&mut self, schema: &Schema, lists: Vec<AttributeList<'_, 'a>>) {
        let stays: HashSet<(AttributeTypeId, &str)> = lists
            .iter()
            .map(|(known, options, _)| (known.id(), *options))
            .collect();
        for known in &mut self.attributes {
            if !stays.contains(&(known.attribute_type, known.options.as_str())) {
                known.values = Some(Values::default());
            }
        }
        self.shape_changed = true;
        for (known, options, values) in lists {
            let at = self.find(known.id(), options);
            let is_same = at.is_some_and(|at| {
                let own = &self.attributes[at];
                own.values.is_none()
                    && matches!(own.stored, Stored::Attribute(stored)
                        if stored.values().iter().eq(values.iter().map(|value| &**value)))
            });
            if !is_same {
                self.replace(schema, known, options, values);
            }
        }
    }

    /// Adds a number to each value (RFC 4525).
    pub(crate) fn increment(
        &mut self,
        schema: &Schema,
        known: &AttributeType,
        options: &str,
        by: i128,
    ) -> std::result::Result<(), Stop> {
        if !self.has(known.id(), options) {
            let diagnostic = format!("{}: there is nothing to increment", known.name());
            return Err(Stop::refuse(ResultCode::NoSuchAttribute, diagnostic));
        }
        for value in self.touch(schema, known.id(), options).iter_mut() {
            let number = std::str::from_utf8(value)
                .ok()
                .and_then(|text| text.parse::<i128>().ok());
            let sum = number
                .and_then(|number| number.checked_add(by))
                .ok_or_else(|| {
                    let diagnostic =
                        format!("{}: the value cannot be incremented by {by}", known.name());
                    Stop::refuse(ResultCode::ConstraintViolation, diagnostic)
                })?;
            *value = Cow::Owned(sum.to_string().into_bytes());
        }
        Ok(())
    }

    /// Says who changed the entry and when.
    pub(crate) fn stamp_change(&mut self, schema: &Schema, who: &'a str, stamp: &'a Stamp) {
        let values = StoredValues::of_change(who, stamp);
        for attribute in OperationalAttribute::CHANGED {
            self.stamp(schema, attribute, &values);
        }
    }

    /// Gives it the number of a change, and leaves who has changed it last and when.
    pub(crate) fn renumber(&mut self, schema: &Schema, stamp: &'a Stamp) {
        let values = StoredValues::of_change("", stamp);
        self.stamp(schema, OperationalAttribute::EntryCsn, &values);
    }

    /// Gives an operational attribute its one value.
    pub(crate) fn stamp(
        &mut self,
        schema: &Schema,
        attribute: OperationalAttribute,
        values: &StoredValues<'a>,
    ) {
        let known = schema.type_of(schema.operational(attribute));
        let value = Cow::Borrowed(values.of(attribute));
        self.replace(schema, known, "", vec![value]);
    }

    /// The structural class that the classes make.
    pub(crate) fn structural_class(
        &self,
        schema: &Schema,
    ) -> std::result::Result<ObjectClassId, Stop> {
        let named = schema.classes_named(&self.values(schema.well_known().object_class))?;
        Ok(schema.structural_class(&named)?)
    }

    /// Adds the superclasses that the classes imply (RFC 4512 §3.3).
    pub(crate) fn add_implied_classes(
        &mut self,
        schema: &'a Schema,
    ) -> std::result::Result<(), Stop> {
        let object_class = schema.well_known().object_class;
        let named = schema.classes_named(&self.values(object_class))?;
        let implied = schema.implied_classes(&named);
        if !implied.is_empty() {
            let known = schema.type_of(object_class);
            let current = self.touch(schema, object_class, "");
            for class in implied {
                let name = Cow::Borrowed(schema.class_of(class).name().as_bytes());
                current.push(schema, known, name);
            }
        }
        Ok(())
    }

    /// Checks the draft against the schema, as far as what was touched can have broken it. Answers the structural class
    /// when the classes were looked at.
    pub(crate) fn check(
        &self,
        schema: &Schema,
    ) -> std::result::Result<Option<ObjectClassId>, Stop> {
        if !self.shape_changed {
            for known in &self.attributes {
                let Some(values) = known.values.as_ref().filter(|values| !values.is_empty()) else {
                    continue;
                };
                match values.only() {
                    Some(only) => schema.check_values(&known.as_checked(&[only]))?,
                    None => schema.check_values(&known.as_checked(&known.current()))?,
                }
            }
            return Ok(None);
        }
        // All values in one list, of which each attribute has a part.
        let there = || self.attributes.iter().filter(|known| !known.is_gone());
        let mut values = Vec::new();
        let mut ends = Vec::with_capacity(self.attributes.len());
        for known in there() {
            known.append_current(&mut values);
            ends.push(values.len());
        }
        let mut rest = values.as_slice();
        let mut taken = 0;
        let attributes: Vec<_> = there()
            .zip(ends)
            .map(|(known, end)| {
                let (own, after) = rest.split_at(end - taken);
                (rest, taken) = (after, end);
                known.as_checked(own)
            })
            .collect();
        let checked = schema.check_entry(&attributes, CheckMode::Trusted)?;
        Ok(Some(checked.structural_class))
    }

    /// Checks the passwords of the entry.
    pub(crate) fn check_passwords(
        &self,
        schema: &Schema,
        hasher: &dyn PasswordHasher,
    ) -> std::result::Result<(), Stop> {
        let values = self.values_of_all(schema.well_known().user_password);
        if values.is_empty() {
            return Ok(());
        }
        hasher
            .check(&values)
            .map_err(|why| Stop::refuse(ResultCode::ConstraintViolation, why))
    }

    /// Checks that the attributes of an RDN can name an entry and are there; `missing` is the result code when they are
    /// not.
    pub(crate) fn check_rdn(
        &self,
        schema: &Schema,
        rdn: Rdn<'_>,
        missing: ResultCode,
    ) -> std::result::Result<(), Stop> {
        let types: Vec<_> = rdn
            .avas()
            .filter_map(|ava| schema.attribute_type(ava.attribute().as_bytes()))
            .map(AttributeType::id)
            .collect();
        let lists: Vec<_> = types
            .iter()
            .map(|named| (*named, self.values(*named)))
            .collect();
        let values: Vec<_> = lists
            .iter()
            .map(|(named, values)| AttributeValues {
                attribute_type: *named,
                options: b"",
                values,
            })
            .collect();
        schema
            .check_rdn(rdn, &values)
            .map_err(|violation| match violation.code {
                ResultCode::NamingViolation => Stop::refuse(missing, violation.diagnostic),
                code => Stop::refuse(code, violation.diagnostic),
            })
    }

    /// Whether one of the types of an RDN was touched.
    pub(crate) fn touches_rdn(&self, schema: &Schema, rdn: Rdn<'_>) -> bool {
        rdn.avas()
            .filter_map(|ava| schema.attribute_type(ava.attribute().as_bytes()))
            .any(|named| self.touches(named))
    }

    /// Whether one of the types of the first RDN of a name may have been touched. Of a name with one type alone, as
    /// most entries have, it is certain, and seen without reading the name.
    pub(crate) fn may_touch_rdn(&self, schema: &Schema, name: &str) -> bool {
        let mut parts = name.as_bytes().split(|&byte| byte == b'=');
        let (Some(only), Some(_), None) = (parts.next(), parts.next(), parts.next()) else {
            return true;
        };
        let named = schema.attribute_type(only.trim_ascii());
        named.is_none_or(|named| self.touches(named))
    }

    fn touches(&self, named: &AttributeType) -> bool {
        self.attributes
            .iter()
            .any(|known| known.attribute_type == named.id() && known.values.is_some())
    }

    /// Makes the records of user and operational attributes; what was read or is new of large ones is in them. `number`
    /// answers the number of a type with options, giving a new one where there is none.
    pub(crate) fn write(
        &self,
        schema: &Schema,
        mut number: impl FnMut(AttributeTypeId, &str) -> std::result::Result<AttributeNo, Stop>,
        frame: Frame<'_>,
        records: &mut Records,
    ) -> std::result::Result<(), Stop> {
        let Records {
            builders: [user, operational],
            bytes,
            large,
            ..
        } = records;
        user.clear();
        operational.clear();
        large.clear();
        for known in &self.attributes {
            let attribute_type = schema.type_of(known.attribute_type);
            let builder = if attribute_type.is_operational() {
                &mut *operational
            } else {
                &mut *user
            };
            if let Stored::Large(stored) = known.stored {
                let stored = &self.large[stored];
                match &known.values {
                    None => {
                        builder.push_large(stored.told());
                        large.extend(LargeWrite::edits(stored));
                    }
                    Some(_) => large.push(LargeWrite::instead_of(stored)),
                }
            }
            match (&known.values, &known.stored) {
                (None, Stored::Attribute(stored)) => builder.copy(stored),
                (Some(values), _) if !values.is_empty() => {
                    let number = number(known.attribute_type, &known.options)?;
                    let description = match known.options.as_str() {
                        "" => Cow::Borrowed(attribute_type.name()),
                        options => Cow::Owned(format!("{};{options}", attribute_type.name())),
                    };
                    let protected = schema.is_protected(known.attribute_type);
                    builder.push(number, description.as_bytes(), values.iter(), protected);
                }
                _ => {}
            }
        }
        bytes.iter_mut().for_each(Vec::clear);
        let too_large =
            |error: EntryTooLarge| Stop::refuse(ResultCode::AdminLimitExceeded, error.to_string());
        user.finish(frame.parent, frame.flags, frame.rdn, &mut bytes[0])
            .map_err(too_large)?;
        user.give_back();
        operational
            .finish(EntryId::ROOT, EntryFlags::default(), "", &mut bytes[1])
            .map_err(too_large)
    }
}

/// An attribute type with options, and all values.
pub(crate) type AttributeList<'l, 'v> = (&'l AttributeType, &'l str, Vec<Cow<'v, [u8]>>);

/// What frames an entry's attributes in its record.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Frame<'f> {
    /// The id of the parent.
    pub(crate) parent: EntryId,
    /// The flags.
    pub(crate) flags: EntryFlags,
    /// The RDN as written; of a naming context the whole DN.
    pub(crate) rdn: &'f str,
}

/// An entry being written.
#[derive(Debug, Default)]
pub(crate) struct Records {
    builders: [RecordBuilder; 2],
    /// The user attributes, behind them the operational part once it is joined; and the operational attributes spelled
    /// out.
    pub(crate) bytes: [Vec<u8>; 2],
    /// What was stored before.
    pub(crate) old: Vec<u8>,
    /// What is to be written of large attributes.
    pub(crate) large: Vec<LargeWrite>,
}

impl Records {
    /// Makes what is stored of both records.
    pub(crate) fn join(&mut self, vocabulary: Vocabulary<'_>) {
        let [stored, operational] = &mut self.bytes;
        Operational::put(vocabulary, operational, stored);
    }

    /// The same with an operational part that is known in brief.
    pub(crate) fn join_brief(&mut self, brief: &Brief<'_>) {
        brief.put(&mut self.bytes[0]);
    }

    /// Gives the memory of long records back.
    pub(crate) fn give_back(&mut self) {
        for bytes in self.bytes.iter_mut().chain([&mut self.old]) {
            if bytes.capacity() > KEPT_BYTES_MAX {
                *bytes = Vec::new();
            }
        }
    }
}
