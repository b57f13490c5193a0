//! Assertion values made ready to be compared with many attribute values.

use super::{InvalidValue, MatchingRule, Schema};

/// An equality or ordering assertion made ready: made once per filter item, compared with each value.
#[derive(Debug, Clone)]
pub struct Assertion {
    rule: &'static MatchingRule,
    key: Vec<u8>,
}

impl Assertion {
    /// The rule it is for.
    pub fn rule(&self) -> &'static MatchingRule {
        self.rule
    }

    /// The normal form: the key to look up in an index of the rule (if the rule is indexable).
    pub fn key(&self) -> &[u8] {
        &self.key
    }

    /// Whether a stored value matches. A stored value that is not of the rule's form does not match.
    /// `scratch` is overwritten; plain ASCII is compared without it.
    pub fn matches(&self, schema: &Schema, stored: &[u8], scratch: &mut Vec<u8>) -> bool {
        self.compare(schema, stored, scratch) == Some(std::cmp::Ordering::Equal)
    }

    /// How a stored value compares with the asserted one, for greater-or-equal and less-or-equal;
    /// `None` when the stored value is not of the rule's form.
    pub fn compare(
        &self,
        schema: &Schema,
        stored: &[u8],
        scratch: &mut Vec<u8>,
    ) -> Option<std::cmp::Ordering> {
        let _ = (schema, stored, scratch);
        unimplemented!()
    }
}

/// A substrings assertion made ready: prepared parts in order (RFC 4518 §2.6).
#[derive(Debug, Clone)]
pub struct SubstringPattern {
    rule: &'static MatchingRule,
    initial: Option<Vec<u8>>,
    any: Vec<Vec<u8>>,
    last: Option<Vec<u8>>,
}

impl SubstringPattern {
    /// Prepares the parts of a substrings assertion.
    ///
    /// # Errors
    /// When a part cannot be prepared: the filter item is then Undefined.
    pub fn new<'a>(
        rule: &'static MatchingRule,
        schema: &Schema,
        initial: Option<&[u8]>,
        any: impl IntoIterator<Item = &'a [u8]>,
        last: Option<&[u8]>,
    ) -> Result<SubstringPattern, InvalidValue> {
        let _ = (schema, any.into_iter().count());
        let _ = (rule, initial, last);
        unimplemented!()
    }

    /// The rule it is for.
    pub fn rule(&self) -> &'static MatchingRule {
        self.rule
    }

    /// The prepared initial part: what the prepared value begins with.
    pub fn initial(&self) -> Option<&[u8]> {
        self.initial.as_deref()
    }

    /// The prepared parts between: found in order, without overlap. An index takes 3-grams from each part.
    pub fn any(&self) -> impl Iterator<Item = &[u8]> {
        self.any.iter().map(|part| &**part)
    }

    /// The prepared final part: what the prepared value ends with.
    pub fn last(&self) -> Option<&[u8]> {
        self.last.as_deref()
    }

    /// Whether a stored value matches. `scratch` is overwritten.
    pub fn matches(&self, schema: &Schema, stored: &[u8], scratch: &mut Vec<u8>) -> bool {
        scratch.clear();
        self.rule.normalise(schema, stored, scratch).is_ok() && self.matches_prepared(scratch)
    }

    /// Whether a value prepared by [`MatchingRule::normalise`] matches.
    pub fn matches_prepared(&self, prepared: &[u8]) -> bool {
        let _ = prepared;
        unimplemented!()
    }
}
