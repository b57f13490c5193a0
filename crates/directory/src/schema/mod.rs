//! Attribute types, object classes, syntaxes and matching rules (RFC 4512, RFC 4517, RFC 4518).
//!
//! A [`Schema`] is immutable and cheap to clone; a changed schema is a new one. Attribute types and object
//! classes are named by small dense ids ([`AttributeTypeId`], [`ObjectClassId`]) that index its tables.
//! These ids live as long as the `Schema` and are never written to disk.
//!
//! Matching works on *normal forms*: [`MatchingRule::normalise`] turns a value into bytes that are equal
//! exactly when the rule says the values match, and whose `memcmp` order is the order of the rule. They
//! are the keys of names and indexes; [`PREPARATION_VERSION`] says when they have to be rebuilt.

pub(crate) mod additions;
mod assertion;
mod base;
mod check;
mod class;
mod governing;
mod load;
mod lookup;
mod name;
mod named;
mod operational;
mod options;
mod prepare;
mod publish;
mod rule;
mod sound;
mod syntax;
mod types;

use std::sync::Arc;

use lookup::NameTable;
use operational::OPERATIONAL_ATTRIBUTES;
use sapwood_ldap::attribute::is_numeric_oid;

pub use assertion::{Assertion, SubstringPattern};
pub use check::{AttributeValues, CheckMode, CheckedEntry, Violation};
pub use class::{ClassKind, ClassSet, ObjectClass, ObjectClassId};
pub(crate) use governing::Governed;
pub use load::{SchemaBuilder, SchemaError, Source};
pub(crate) use name::Siblings;
pub use name::{InvalidName, NormalDn};
pub use named::{NAMED_SCHEMAS, NamedSchema};
pub(crate) use operational::OperationalAttribute;
pub(crate) use options::Purpose;
pub use prepare::{EXPANSION_MAX, PREPARATION_VERSION};
pub use rule::{MatchingRule, RuleKind};
pub use sound::SoundPattern;
pub(crate) use sound::for_each_code;
pub(crate) use syntax::{AuthzRule, AuthzScope, Refinement, SubtreeSpecification};
pub use syntax::{InvalidValue, Syntax};
pub use types::{AttributeType, AttributeTypeId, TypeSet, Usage};

/// Greatest number of attribute types in a schema.
pub const ATTRIBUTE_TYPES_MAX: usize = 16_384;
/// Greatest number of object classes in a schema.
pub const OBJECT_CLASSES_MAX: usize = 16_384;

/// An immutable schema. Clones share their content.
#[derive(Clone)]
pub struct Schema {
    content: Arc<Content>,
}

struct Content {
    types: Vec<AttributeType>,
    classes: Vec<ObjectClass>,
    type_names: NameTable,
    class_names: NameTable,
    /// Content rules, name forms and structure rules.
    governing: governing::Governing,
    /// The attribute options that are registered.
    options: Vec<String>,
    well_known: WellKnown,
    /// By [`OperationalAttribute`].
    operational: [AttributeTypeId; OPERATIONAL_ATTRIBUTES],
    /// What is read in the place of a type that is not there.
    gone: AttributeType,
    /// What was added to the definitions of the program.
    additions: Arc<additions::Additions>,
    /// What it was made of, and others can be.
    base: Arc<base::Base>,
}

impl Default for Schema {
    /// The schema built in.
    fn default() -> Schema {
        Schema::standard()
    }
}

impl std::fmt::Debug for Schema {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "Schema of {} attribute types and {} object classes",
            self.content.types.len(),
            self.content.classes.len()
        )
    }
}

/// The ids of what the directory itself interprets, besides operational attributes. They are in every schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct WellKnown {
    pub object_class: AttributeTypeId,
    pub aliased_object_name: AttributeTypeId,
    pub user_password: AttributeTypeId,
    pub auth_password: AttributeTypeId,
    pub oath_secret: AttributeTypeId,
    pub top: ObjectClassId,
    pub alias: ObjectClassId,
    pub referral: ObjectClassId,
    pub extensible_object: ObjectClassId,
    pub subentry: ObjectClassId,
    pub collective_attribute_subentry: ObjectClassId,
    pub subschema: ObjectClassId,
    pub password_policy: ObjectClassId,
    pub dynamic_object: ObjectClassId,
    pub oath_user: ObjectClassId,
}

impl Schema {
    /// The schema built in: RFC 4512, 4519, 4524, 2798, 2079, 2307, 3296, 4523, 4530, 5020 and what they need.
    pub fn standard() -> Schema {
        load::standard()
    }

    /// The attribute type with this name or dotted-decimal OID, without options; letter case does not matter.
    pub fn attribute_type(&self, name_or_oid: &[u8]) -> Option<&AttributeType> {
        let number = self.content.type_names.get(name_or_oid)?;
        self.content.types.get(usize::from(number))
    }

    /// The object class with this name or dotted-decimal OID; letter case does not matter.
    pub fn object_class(&self, name_or_oid: &[u8]) -> Option<&ObjectClass> {
        let number = self.content.class_names.get(name_or_oid)?;
        self.content.classes.get(usize::from(number))
    }

    /// All attribute types; the index of each is its id. In the place of one that was removed while the process runs
    /// stands one that [is gone](AttributeType::is_gone).
    pub fn attribute_types(&self) -> &[AttributeType] {
        &self.content.types
    }

    /// All object classes; the index of each is its id. In the place of one that was removed while the process runs
    /// stands one that [is gone](ObjectClass::is_gone).
    pub fn object_classes(&self) -> &[ObjectClass] {
        &self.content.classes
    }

    /// The attribute type of an id handed out by this schema or another one of the same directory; one that
    /// [is gone](AttributeType::is_gone) if this schema does not have it.
    #[inline]
    pub fn type_of(&self, id: AttributeTypeId) -> &AttributeType {
        let known = self.content.types.get(id.index());
        known.unwrap_or(&self.content.gone)
    }

    /// The name in a value of a type whose values are names: all of it, or what stands before a unique identifier
    /// (RFC 4517 §3.3.21).
    pub(crate) fn name_in<'v>(&self, known: &AttributeType, value: &'v [u8]) -> &'v [u8] {
        match known.equality() {
            Some(rule) if rule.takes_unique_identifier() => syntax::split_optional_uid(value).0,
            _ => value,
        }
    }

    /// Whether values of a type are protected. They stand last in an entry's record, and without access rules only the
    /// administrator reads them.
    pub(crate) fn is_protected(&self, attribute_type: AttributeTypeId) -> bool {
        attribute_type == self.well_known().user_password
            || self.is_companion_secret(attribute_type)
    }

    /// Whether values of a type are secrets that go with userPassword. Access rules for userPassword cover them, and no
    /// other rule does.
    pub(crate) fn is_companion_secret(&self, attribute_type: AttributeTypeId) -> bool {
        self.companion_secrets().contains(&attribute_type)
    }

    /// The types of these secrets: verifiers, former passwords, keys of one-time passwords.
    pub(crate) fn companion_secrets(&self) -> [AttributeTypeId; 3] {
        let known = self.well_known();
        let history = self.operational(OperationalAttribute::PwdHistory);
        [known.auth_password, history, known.oath_secret]
    }

    /// Whether both are one.
    pub(crate) fn is_same(&self, other: &Schema) -> bool {
        Arc::ptr_eq(&self.content, &other.content)
    }

    /// The object class of an id handed out by this schema.
    ///
    /// # Panics
    /// With an id of another schema that has more classes.
    pub fn class_of(&self, id: ObjectClassId) -> &ObjectClass {
        &self.content.classes[id.index()]
    }

    /// The types and classes that the directory itself interprets.
    pub fn well_known(&self) -> &WellKnown {
        &self.content.well_known
    }

    /// The dotted-decimal form of an object identifier given in either form (objectIdentifierMatch, RFC 4517 §4.2.26);
    /// `None` for a name that nothing in the schema has. A name that a class shares with an attribute type stands for
    /// the class.
    fn object_identifier<'a>(&'a self, value: &'a [u8]) -> Option<&'a [u8]> {
        if value.first()?.is_ascii_digit() {
            return std::str::from_utf8(value)
                .is_ok_and(is_numeric_oid)
                .then_some(value);
        }
        if let Some(class) = self.object_class(value) {
            return Some(class.oid().as_bytes());
        }
        if let Some(attribute) = self.attribute_type(value) {
            return Some(attribute.oid().as_bytes());
        }
        MatchingRule::find(value).map(|rule| rule.oid().as_bytes())
    }

    /// All ways to write an object identifier given in dotted-decimal form.
    fn spellings(&self, oid: &[u8]) -> Vec<Box<[u8]>> {
        let mut spellings: Vec<Box<[u8]>> = vec![oid.into()];
        spellings.extend(
            self.object_class(oid)
                .into_iter()
                .flat_map(ObjectClass::names)
                .map(|name| name.as_bytes().into()),
        );
        // A class takes precedence over an attribute type of the same name.
        let names = self
            .attribute_type(oid)
            .into_iter()
            .flat_map(AttributeType::names);
        spellings.extend(
            names
                .filter(|name| self.object_class(name.as_bytes()).is_none())
                .map(|name| name.as_bytes().into()),
        );
        spellings.extend(MatchingRule::find(oid).map(|rule| rule.name().as_bytes().into()));
        spellings
    }
}
