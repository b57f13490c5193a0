//! Matching rules (RFC 4517 §4).

use super::{Assertion, InvalidValue, Schema, Syntax};

/// What a matching rule can be used for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RuleKind {
    /// Equality, and every rule that is only used in extensible matches.
    Equality,
    /// Greater-or-equal and less-or-equal.
    Ordering,
    /// Substrings.
    Substrings,
}

/// A matching rule. All rules are built in: [`MatchingRule::find`].
#[derive(Debug)]
pub struct MatchingRule {
    oid: &'static str,
    name: &'static str,
    kind: RuleKind,
}

impl MatchingRule {
    /// The rule with this name or dotted-decimal OID; letter case does not matter.
    pub fn find(name_or_oid: &[u8]) -> Option<&'static MatchingRule> {
        let _ = name_or_oid;
        unimplemented!()
    }

    /// All rules.
    pub fn all() -> &'static [MatchingRule] {
        unimplemented!()
    }

    /// The object identifier in dotted-decimal form.
    pub fn oid(&self) -> &'static str {
        self.oid
    }

    /// The name.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// What the rule can be used for.
    pub fn kind(&self) -> RuleKind {
        self.kind
    }

    /// The syntax of assertion values.
    pub fn syntax(&self) -> &'static Syntax {
        unimplemented!()
    }

    /// Whether [`normalise`](Self::normalise) decides the rule, so that an index can serve it. Not so for
    /// rules that match parts of a value (`wordMatch`) or compute (`bitAndMatch`).
    pub fn is_indexable(&self) -> bool {
        unimplemented!()
    }

    /// Appends the normal form of an attribute value: equal exactly when the values match, and in the order
    /// of the rule under `memcmp`. For a substrings rule this is the prepared string in which
    /// [`SubstringPattern`](super::SubstringPattern) looks for its parts (RFC 4518 §2.6.1: one space around, two between words).
    ///
    /// # Errors
    /// When the value does not have the form the rule needs; `out` is then as before.
    pub fn normalise(
        &self,
        schema: &Schema,
        value: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), InvalidValue> {
        let _ = (schema, value, out);
        unimplemented!()
    }

    /// Prepares an equality or ordering assertion for this rule.
    ///
    /// # Errors
    /// When the value is not of the assertion syntax: the filter item is then Undefined (RFC 4511 §4.5.1.7).
    pub fn assertion(
        &'static self,
        schema: &Schema,
        value: &[u8],
    ) -> Result<Assertion, InvalidValue> {
        let _ = (schema, value);
        unimplemented!()
    }
}
