//! Checks of whole entries against the schema (RFC 4512 §2.4, §2.5, §3.3; RFC 4511 §4.6, §4.7).

use super::{AttributeTypeId, ObjectClassId, Schema};

/// One attribute of an entry: all values under one attribute description.
#[derive(Debug, Clone, Copy)]
pub struct AttributeValues<'a> {
    /// The type.
    pub attribute_type: AttributeTypeId,
    /// The options as in the attribute table: sorted, lower case, joined by `;`, empty for none.
    pub options: &'a [u8],
    /// The values, at least one.
    pub values: &'a [&'a [u8]],
}

/// Who wants the entry to be as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CheckMode {
    /// A client's update: attributes marked NO-USER-MODIFICATION are refused.
    Client,
    /// The directory's own data, or an import that brings operational attributes along.
    Trusted,
}

/// What a check found out about a valid entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CheckedEntry {
    /// The most subordinate structural class: the value of structuralObjectClass.
    pub structural_class: ObjectClassId,
}

/// The result codes of RFC 4511 a check can end with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum ResultCode {
    UndefinedAttributeType,
    ConstraintViolation,
    AttributeOrValueExists,
    InvalidAttributeSyntax,
    NamingViolation,
    ObjectClassViolation,
}

/// Why an entry or an update is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{diagnostic}")]
pub struct Violation {
    /// The result code of RFC 4511.
    pub code: ResultCode,
    /// A sentence that names the attribute and the class.
    pub diagnostic: String,
}

impl Schema {
    /// Checks a whole entry: classes, required and allowed attributes, syntaxes, single values, duplicate values
    /// and that the RDN's values are there.
    ///
    /// # Errors
    /// The first violation found.
    pub fn check_entry(
        &self,
        entry: &[AttributeValues<'_>],
        rdn: Option<&[u8]>,
        mode: CheckMode,
    ) -> Result<CheckedEntry, Violation> {
        let _ = (entry, rdn, mode);
        unimplemented!()
    }

    /// Checks the values of one attribute on their own: syntax, single value, duplicates.
    ///
    /// # Errors
    /// The first violation found.
    pub fn check_values(&self, attribute: &AttributeValues<'_>) -> Result<(), Violation> {
        let _ = attribute;
        unimplemented!()
    }
}
