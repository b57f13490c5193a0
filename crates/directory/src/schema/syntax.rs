//! Attribute syntaxes (RFC 4517 §3).

use super::Schema;

/// Why a value is not of a syntax.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a valid {syntax}: {reason}")]
pub struct InvalidValue {
    /// The name of the syntax, as in RFC 4517.
    pub syntax: &'static str,
    /// What is wrong.
    pub reason: &'static str,
}

/// An attribute syntax. All syntaxes are built in: [`Syntax::find`].
#[derive(Debug)]
pub struct Syntax {
    oid: &'static str,
    description: &'static str,
}

impl Syntax {
    /// The syntax with this dotted-decimal OID.
    pub fn find(oid: &[u8]) -> Option<&'static Syntax> {
        let _ = oid;
        unimplemented!()
    }

    /// All syntaxes.
    pub fn all() -> &'static [Syntax] {
        unimplemented!()
    }

    /// The object identifier in dotted-decimal form.
    pub fn oid(&self) -> &'static str {
        self.oid
    }

    /// The description, as in RFC 4517.
    pub fn description(&self) -> &'static str {
        self.description
    }

    /// Whether values are not readable text (LDIF writers and browsers ask).
    pub fn is_binary(&self) -> bool {
        unimplemented!()
    }

    /// Checks a value. Never panics, whatever the bytes.
    ///
    /// # Errors
    /// When the value is not of this syntax.
    pub fn validate(&self, schema: &Schema, value: &[u8]) -> Result<(), InvalidValue> {
        let _ = (schema, value);
        unimplemented!()
    }
}
