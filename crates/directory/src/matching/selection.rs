//! Which attributes of an entry are sent (RFC 4511 §4.5.1.8, RFC 3673, RFC 4529).

use std::collections::HashSet;

use sapwood_ldap::attribute::AttributeDescription;
use sapwood_ldap::list::OctetStrings;

use super::candidate::Seen;
use super::filter::Item;
use super::shaping::Shape;
use super::value_range::ranged;
use crate::access::{Sight, SingleValues, Visible};
use crate::attributes::AttributeTable;
use crate::engine::AttributeNo;
use crate::entry::{Entry, StoredAttribute};
use crate::schema::{AttributeTypeId, ObjectClassId, Purpose, Schema};
use crate::steps;
use crate::virtual_attributes::VirtualAttribute;

/// Which attributes are sent of those that a search asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttributesOnly {
    /// Those that the entry itself has.
    Real,
    /// Those that are computed, or come from a subentry (RFC 3671).
    Virtual,
}

/// The same, with what comes from subentries.
#[derive(Debug)]
struct Only {
    which: AttributesOnly,
    collective: NumberSet,
}

impl Only {
    /// Whether an attribute of an entry is one of them.
    fn has(&self, number: AttributeNo, of_subentry: bool) -> bool {
        let is_virtual = !of_subentry && self.collective.contains(number);
        is_virtual == (self.which == AttributesOnly::Virtual)
    }
}

/// The attributes a search asks for.
#[derive(Debug)]
pub(crate) struct Selection {
    pub(super) all_user: bool,
    pub(super) all_operational: bool,
    /// Those named, as numbers; user and operational ones.
    named: NumberSet,
    names_operational: bool,
    /// Virtual ones.
    pub(super) virtual_attributes: Vec<VirtualAttribute>,
    pub(super) types_only: bool,
    /// Those that there are besides, if not all of these are wanted.
    only: Option<Only>,
    /// Which of their values, unless these are all.
    pub(super) shape: Option<Shape>,
    /// Whether the list names what is no attribute description: perhaps some with a range.
    is_unreadable: bool,
    pub(super) sight: Sight,
}

impl Selection {
    /// Reads the list of a search request. Descriptions that are not known are left out (RFC 4511 §4.5.1.8).
    pub(crate) fn new(
        schema: &Schema,
        attributes: &AttributeTable,
        list: OctetStrings<'_>,
        types_only: bool,
        sight: Sight,
    ) -> Selection {
        let mut selection = Selection {
            all_user: list.is_empty(),
            all_operational: false,
            named: NumberSet::default(),
            names_operational: false,
            virtual_attributes: Vec::new(),
            types_only,
            only: None,
            shape: None,
            is_unreadable: false,
            sight,
        };
        // Of a long list most names are there before.
        let mut before = (list.as_ber().len() > SHORT_LIST_BYTES).then(Named::default);
        for wanted in list
            .iter()
            .filter_map(|text| std::str::from_utf8(text).ok())
        {
            match wanted.as_bytes() {
                b"*" => selection.all_user = true,
                b"+" => selection.all_operational = true,
                [b'@', class @ ..] => selection.add_class(schema, attributes, class, &mut before),
                _ => selection.add(schema, attributes, wanted, &mut before),
            }
        }
        if selection.all_operational {
            let named = std::mem::take(&mut selection.virtual_attributes);
            let all = VirtualAttribute::ALL.iter().copied();
            let is_wanted = |one: &VirtualAttribute| !one.is_for_replicas() || named.contains(one);
            selection.virtual_attributes = all.filter(is_wanted).collect();
        }
        selection
    }

    fn add_class(
        &mut self,
        schema: &Schema,
        attributes: &AttributeTable,
        class: &[u8],
        before: &mut Option<Named>,
    ) {
        if let Some(class) = schema.object_class(class) {
            if let Some(before) = before
                && !before.classes.insert(class.id())
            {
                return;
            }
            for attribute_type in class.must().iter().chain(class.may().iter()) {
                self.add_type(schema, attributes, attribute_type, None);
            }
        }
    }

    fn add(
        &mut self,
        schema: &Schema,
        attributes: &AttributeTable,
        wanted: &str,
        before: &mut Option<Named>,
    ) {
        // `1.1` (no attributes) is an OID that no type has, so that it needs no rule of its own.
        let Ok(wanted) = AttributeDescription::parse(wanted) else {
            self.is_unreadable = true;
            return;
        };
        if let Some(attribute_type) = schema.attribute_type(wanted.attribute_type().as_bytes())
            && (!wanted.has_options()
                || schema
                    .check_options(attribute_type, &wanted, Purpose::Find)
                    .is_ok())
        {
            if let Some(before) = before
                && !before
                    .types
                    .insert((attribute_type.id(), wanted.normalised_options()))
            {
                return;
            }
            self.add_type(schema, attributes, attribute_type.id(), Some(&wanted));
        }
    }

    fn add_type(
        &mut self,
        schema: &Schema,
        attributes: &AttributeTable,
        attribute_type: AttributeTypeId,
        wanted: Option<&AttributeDescription<'_>>,
    ) {
        steps::count(1);
        for subtype in schema.type_of(attribute_type).subtypes().iter() {
            if let Some(attribute) = VirtualAttribute::of(schema, subtype)
                && !self.virtual_attributes.contains(&attribute)
            {
                self.virtual_attributes.push(attribute);
            }
            self.names_operational |= schema.type_of(subtype).is_operational();
            for known in attributes.of_type(subtype) {
                if wanted.is_none_or(|wanted| known.description().options_cover(wanted)) {
                    self.named.insert(known.number());
                }
            }
        }
    }

    /// How much of every entry is seen.
    pub(crate) fn sight(&self) -> Sight {
        self.sight
    }

    /// Of all operational attributes only those are wanted that are stored, and those for replicas that are named.
    pub(crate) fn leave_out_computed(&mut self) {
        if self.all_operational {
            self.virtual_attributes.retain(|one| one.is_for_replicas());
        }
    }

    /// Has only some attributes sent.
    pub(crate) fn set_only(
        &mut self,
        schema: &Schema,
        attributes: &AttributeTable,
        which: AttributesOnly,
    ) {
        let mut collective = NumberSet::default();
        let types = schema.attribute_types().iter();
        for known in types.filter(|known| known.is_collective()) {
            let described = attributes.of_type(known.id());
            described.for_each(|described| collective.insert(described.number()));
        }
        if which == AttributesOnly::Real {
            self.virtual_attributes.clear();
        }
        self.only = Some(Only { which, collective });
    }

    /// Has only values sent that match one of these. Where none are sent that changes nothing (RFC 3876 §2).
    pub(crate) fn set_matching(&mut self, items: Vec<Item>) {
        if !self.types_only {
            self.shape.get_or_insert_default().set_matching(items);
        }
    }

    /// Reads what the list of the request names with a range of values.
    pub(crate) fn read_ranges(
        &mut self,
        schema: &Schema,
        attributes: &AttributeTable,
        list: OctetStrings<'_>,
    ) {
        if !self.is_unreadable {
            return;
        }
        let texts = list
            .iter()
            .filter_map(|text| std::str::from_utf8(text).ok());
        let mut before = HashSet::new();
        for (text, range) in texts.filter_map(ranged) {
            if !before.insert(text.clone()) {
                continue;
            }
            self.add(schema, attributes, &text, &mut None);
            let Ok(wanted) = AttributeDescription::parse(&text) else {
                continue;
            };
            let known = schema.attribute_type(wanted.attribute_type().as_bytes());
            let described = known
                .into_iter()
                .flat_map(|known| attributes.of_type(known.id()));
            for described in described.filter(|_| !self.types_only) {
                if described.description().options_cover(&wanted) {
                    let shape = self.shape.get_or_insert_default();
                    shape.add_range(described.number(), range);
                }
            }
        }
    }

    /// Whether only some values are sent.
    pub(crate) fn is_shaped(&self) -> bool {
        self.shape.is_some()
    }

    /// Whether an attribute is asked for.
    pub(crate) fn names(&self, number: AttributeNo) -> bool {
        self.all_user || self.named.contains(number)
    }

    /// Whether any stored attribute is.
    pub(crate) fn names_any(&self) -> bool {
        self.all_user || !self.named.words.is_empty()
    }

    /// Whether nothing is sent but what entries have themselves.
    pub(crate) fn is_real_only(&self) -> bool {
        let only = self.only.as_ref();
        only.is_some_and(|only| only.which == AttributesOnly::Real)
    }

    /// From now on each entry is decided by itself.
    pub(crate) fn have_decided(&mut self) {
        self.sight = Sight::Decided;
    }

    pub(super) fn wants_all_user(&self) -> bool {
        self.all_user
    }

    pub(super) fn wants_all_operational(&self) -> bool {
        self.all_operational
    }

    /// Whether an attribute of a record is sent.
    pub(super) fn wants(
        &self,
        record: &Entry<'_>,
        all: bool,
        attribute: &StoredAttribute<'_>,
        seen: Option<Seen<'_>>,
    ) -> bool {
        let number = attribute.number();
        let is_of = |only: &Only| only.has(number, record.flags().is_subentry());
        self.wants_number(all, number, seen)
            && self.only.as_ref().is_none_or(is_of)
            && (self.sight != Sight::Public || !attribute.is_protected())
    }

    fn wants_number(&self, all: bool, number: AttributeNo, seen: Option<Seen<'_>>) -> bool {
        let is_seen = |seen: Seen<'_>| {
            seen.readable().has(number) || self.single_values(Some(seen), number).is_some()
        };
        (all || self.named.contains(number)) && seen.is_none_or(is_seen)
    }

    /// What tells which values of an attribute are sent, where rules look at single ones.
    pub(super) fn single_values<'c>(
        &self,
        seen: Option<Seen<'c>>,
        number: AttributeNo,
    ) -> Option<SingleValues<'c>> {
        seen?.single_values(number).filter(|_| !self.types_only)
    }

    /// Whether a large attribute is sent.
    pub(super) fn wants_large(&self, number: AttributeNo, seen: Option<Seen<'_>>) -> bool {
        let is_of = |only: &Only| only.has(number, false);
        self.wants_number(self.all_user, number, seen) && self.only.as_ref().is_none_or(is_of)
    }

    /// Whether the values of a large attribute are sent.
    pub(super) fn wants_values(&self, number: AttributeNo, seen: Option<Seen<'_>>) -> bool {
        !self.types_only && self.wants_large(number, seen)
    }

    pub(super) fn sends_operational(&self) -> bool {
        self.all_operational || self.names_operational
    }

    /// Whether the user attributes can be sent as they are stored.
    pub(super) fn copies_user(&self) -> bool {
        self.all_user && !self.types_only && self.only.is_none()
    }

    /// All user attributes that may be seen of every entry, as they are stored.
    pub(super) fn user_ber<'r>(&self, entry: &Entry<'r>) -> &'r [u8] {
        if self.sight == Sight::Public {
            entry.public_ber()
        } else {
            entry.ber()
        }
    }

    /// All user attributes that may be seen of an entry, as they are stored, if they are wanted and stand together.
    pub(super) fn copied<'r>(&self, entry: &Entry<'r>, seen: Option<Seen<'_>>) -> Option<&'r [u8]> {
        if !self.copies_user() {
            return None;
        }
        match seen.map(|seen| seen.visible()) {
            None => Some(self.user_ber(entry)),
            Some(Visible::All) => Some(entry.ber()),
            Some(Visible::Public) => Some(entry.public_ber()),
            Some(Visible::These | Visible::Nothing) => None,
        }
    }
}

/// A list of attributes that is longer may name the same ones again and again.
const SHORT_LIST_BYTES: usize = 512;

/// What a list of attributes has named so far.
#[derive(Debug, Default)]
struct Named {
    types: HashSet<(AttributeTypeId, String)>,
    classes: HashSet<ObjectClassId>,
}

/// A set of attribute numbers, as a bitmap.
#[derive(Debug, Default)]
struct NumberSet {
    words: Vec<u64>,
}

impl NumberSet {
    fn insert(&mut self, number: AttributeNo) {
        let (word, bit) = NumberSet::place(number);
        if word >= self.words.len() {
            self.words.resize(word + 1, 0);
        }
        self.words[word] |= bit;
    }

    fn contains(&self, number: AttributeNo) -> bool {
        let (word, bit) = NumberSet::place(number);
        self.words.get(word).is_some_and(|word| word & bit != 0)
    }

    fn place(number: AttributeNo) -> (usize, u64) {
        (usize::from(number.0 / 64), 1 << (number.0 % 64))
    }
}
