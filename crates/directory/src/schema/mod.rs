//! Attribute types, object classes, syntaxes and matching rules (RFC 4512, RFC 4517, RFC 4518).
//!
//! A [`Schema`] is immutable and cheap to clone; a changed schema is a new one. Attribute types and object
//! classes are named by small dense ids ([`AttributeTypeId`], [`ObjectClassId`]) that index its tables.
//! These ids live as long as the `Schema` and are never written to disk.
//!
//! Matching works on *normal forms*: [`MatchingRule::normalise`] turns a value into bytes that are equal
//! exactly when the rule says the values match, and whose `memcmp` order is the order of the rule. They
//! are the keys of names and indexes; [`PREPARATION_VERSION`] says when they have to be rebuilt.

mod assertion;
mod check;
mod class;
mod name;
mod prepare;
mod rule;
mod syntax;
mod types;

use std::sync::Arc;

pub use assertion::{Assertion, SubstringPattern};
pub use check::{AttributeValues, CheckMode, CheckedEntry, ResultCode, Violation};
pub use class::{ClassKind, ClassSet, ObjectClass, ObjectClassId};
pub use name::{InvalidName, NormalDn};
pub use prepare::PREPARATION_VERSION;
pub use rule::{MatchingRule, RuleKind};
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
    well_known: WellKnown,
}

/// The ids of what the directory itself sets or interprets. They are in every schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct WellKnown {
    pub object_class: AttributeTypeId,
    pub aliased_object_name: AttributeTypeId,
    pub reference: AttributeTypeId,
    pub user_password: AttributeTypeId,
    pub structural_object_class: AttributeTypeId,
    pub subschema_subentry: AttributeTypeId,
    pub has_subordinates: AttributeTypeId,
    pub num_subordinates: AttributeTypeId,
    pub entry_dn: AttributeTypeId,
    pub entry_uuid: AttributeTypeId,
    pub entry_csn: AttributeTypeId,
    pub create_timestamp: AttributeTypeId,
    pub modify_timestamp: AttributeTypeId,
    pub creators_name: AttributeTypeId,
    pub modifiers_name: AttributeTypeId,
    pub top: ObjectClassId,
    pub alias: ObjectClassId,
    pub referral: ObjectClassId,
    pub extensible_object: ObjectClassId,
    pub subschema: ObjectClassId,
}

impl Schema {
    /// The schema built in: RFC 4512, 4519, 4524, 2798, 2079, 2307, 3296, 4523, 4530, 5020 and what they need.
    pub fn standard() -> Schema {
        unimplemented!()
    }

    /// The attribute type with this name or dotted-decimal OID, without options; letter case does not matter.
    pub fn attribute_type(&self, name_or_oid: &[u8]) -> Option<&AttributeType> {
        self.content
            .types
            .iter()
            .find(|known| known.name().as_bytes().eq_ignore_ascii_case(name_or_oid))
    }

    /// The object class with this name or dotted-decimal OID; letter case does not matter.
    pub fn object_class(&self, name_or_oid: &[u8]) -> Option<&ObjectClass> {
        self.content
            .classes
            .iter()
            .find(|known| known.name().as_bytes().eq_ignore_ascii_case(name_or_oid))
    }

    /// All attribute types; the index of each is its id.
    pub fn attribute_types(&self) -> &[AttributeType] {
        &self.content.types
    }

    /// All object classes; the index of each is its id.
    pub fn object_classes(&self) -> &[ObjectClass] {
        &self.content.classes
    }

    /// The attribute type of an id handed out by this schema.
    ///
    /// # Panics
    /// With an id of another schema that has more types.
    pub fn type_of(&self, id: AttributeTypeId) -> &AttributeType {
        &self.content.types[id.index()]
    }

    /// The object class of an id handed out by this schema.
    ///
    /// # Panics
    /// With an id of another schema that has more classes.
    pub fn class_of(&self, id: ObjectClassId) -> &ObjectClass {
        &self.content.classes[id.index()]
    }

    /// The types and classes that the directory itself sets or interprets.
    pub fn well_known(&self) -> &WellKnown {
        &self.content.well_known
    }
}
