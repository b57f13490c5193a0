//! Assertion values made ready to be compared with many attribute values.

#![deny(clippy::indexing_slicing)]

use std::cmp::Ordering;

use super::prepare::{Case, Part, ascii_words_equal};
use super::rule::{Method, Place, parse_i64};
use super::syntax::substring_parts;
use super::{InvalidValue, MatchingRule, NormalDn, Schema};
use crate::steps;

/// An equality or ordering assertion made ready: made once per filter item, compared with each value.
#[derive(Debug, Clone)]
pub struct Assertion {
    rule: &'static MatchingRule,
    key: Vec<u8>,
    test: Test,
}

/// What decides equality.
#[derive(Debug, Clone)]
enum Test {
    /// Normal forms are compared.
    Key,
    /// Words of ASCII are compared in place.
    Words(Case),
    /// The octets themselves.
    Octets,
    /// One of the ways to write the asserted object identifier.
    Spellings(Vec<Box<[u8]>>),
    Word,
    Keyword,
    BitAnd(i64),
    BitOr(i64),
    Place(Place),
}

impl Assertion {
    pub(super) fn new(
        rule: &'static MatchingRule,
        schema: &Schema,
        value: &[u8],
    ) -> Result<Assertion, InvalidValue> {
        let mut key = Vec::new();
        rule.normalise_assertion(schema, value, &mut key)?;
        let test = match rule.method {
            Method::Words(case) => Test::Words(case),
            Method::Octets => Test::Octets,
            Method::ObjectIdentifier => Test::Spellings(schema.spellings(&key)),
            Method::Word => Test::Word,
            Method::Keyword => Test::Keyword,
            Method::BitAnd => Test::BitAnd(parse_i64(value).unwrap_or_default()),
            Method::BitOr => Test::BitOr(parse_i64(value).unwrap_or_default()),
            Method::Place(place) => Test::Place(place),
            _ => Test::Key,
        };
        Ok(Assertion { rule, key, test })
    }

    /// The rule it is for.
    pub fn rule(&self) -> &'static MatchingRule {
        self.rule
    }

    /// The normal form: the key to look up in an index of the rule (if the rule is indexable).
    pub fn key(&self) -> &[u8] {
        &self.key
    }

    /// Whether most stored values are compared as they are, without making their normal form.
    pub(crate) fn is_decided_in_place(&self) -> bool {
        !matches!(
            self.test,
            Test::Key | Test::Word | Test::Keyword | Test::Place(_)
        )
    }

    /// Whether the values that match are those with the same normal form.
    pub(crate) fn is_decided_by_key(&self) -> bool {
        matches!(self.test, Test::Key | Test::Words(_) | Test::Octets)
    }

    /// Whether a stored value matches. A stored value that is not of the rule's form does not match.
    /// `scratch` is overwritten; plain ASCII is compared without it.
    pub fn matches(&self, schema: &Schema, stored: &[u8], scratch: &mut Vec<u8>) -> bool {
        match &self.test {
            Test::Words(case) => ascii_words_equal(stored, *case, &self.key)
                .unwrap_or_else(|| self.compare(schema, stored, scratch) == Some(Ordering::Equal)),
            Test::Octets => stored == self.key,
            Test::Spellings(spellings) => spellings
                .iter()
                .any(|spelling| spelling.eq_ignore_ascii_case(stored)),
            Test::Key => self.compare(schema, stored, scratch) == Some(Ordering::Equal),
            Test::Word => self
                .prepared(schema, stored, scratch)
                .is_some_and(|text| words(text).any(|word| word == self.key)),
            Test::Keyword => self.prepared(schema, stored, scratch).is_some_and(|text| {
                words(text).any(|word| word == self.key)
                    || text
                        .split(|byte| matches!(byte, b',' | b';'))
                        .any(|phrase| phrase.trim_ascii() == self.key)
            }),
            Test::BitAnd(bits) => parse_i64(stored).is_some_and(|number| number & bits == *bits),
            Test::BitOr(bits) => parse_i64(stored).is_some_and(|number| number & bits != 0),
            Test::Place(place) => self
                .prepared(schema, stored, scratch)
                .is_some_and(|name| is_at(name, *place, &self.key)),
        }
    }

    /// How a stored value compares with the asserted one, for greater-or-equal and less-or-equal;
    /// `None` when the stored value is not of the rule's form.
    pub fn compare(
        &self,
        schema: &Schema,
        stored: &[u8],
        scratch: &mut Vec<u8>,
    ) -> Option<Ordering> {
        self.prepared(schema, stored, scratch)
            .map(|stored| stored.cmp(&self.key))
    }

    fn prepared<'s>(
        &self,
        schema: &Schema,
        stored: &[u8],
        scratch: &'s mut Vec<u8>,
    ) -> Option<&'s [u8]> {
        scratch.clear();
        self.rule.normalise(schema, stored, scratch).ok()?;
        Some(scratch)
    }
}

/// Whether a name is at a place, seen from another; both are normal forms, and one that lies below another begins with
/// it.
fn is_at(name: &[u8], place: Place, other: &[u8]) -> bool {
    let below = |name: &[u8], other: &[u8]| name.len() > other.len() && name.starts_with(other);
    match place {
        Place::Child => name.strip_prefix(other).is_some_and(NormalDn::is_one_rdn),
        Place::Within => name.starts_with(other),
        Place::Below => below(name, other),
        Place::Above => below(other, name),
    }
}

/// The words of a prepared string: runs of letters, digits and marks.
pub(super) fn words(prepared: &[u8]) -> impl Iterator<Item = &[u8]> {
    let text = std::str::from_utf8(prepared).unwrap_or_default();
    text.split(|c: char| {
        c.is_ascii_punctuation() || c == ' ' || (!c.is_ascii() && is_general_punctuation(c))
    })
    .filter(|word| !word.is_empty())
    .map(str::as_bytes)
}

/// Punctuation outside ASCII that commonly stands between words.
fn is_general_punctuation(c: char) -> bool {
    matches!(c, '\u{a1}' | '\u{ab}' | '\u{b7}' | '\u{bb}' | '\u{bf}' | '\u{2010}'..='\u{2027}' | '\u{2030}'..='\u{205e}' | '\u{3001}'..='\u{3003}')
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
    /// When a part is empty or cannot be prepared: the filter item is then Undefined.
    pub fn new<'a>(
        rule: &'static MatchingRule,
        initial: Option<&[u8]>,
        any: impl IntoIterator<Item = &'a [u8]>,
        last: Option<&[u8]>,
    ) -> Result<SubstringPattern, InvalidValue> {
        let prepared = |value: &[u8], part| {
            let mut out = Vec::new();
            rule.normalise_part(value, part, &mut out).map(|()| out)
        };
        Ok(SubstringPattern {
            rule,
            initial: initial
                .map(|value| prepared(value, Part::Initial))
                .transpose()?,
            // Numbers and telephone numbers may have parts of which nothing is left: they are found anywhere.
            any: any
                .into_iter()
                .map(|value| prepared(value, Part::Any))
                .filter(|part| !part.as_ref().is_ok_and(Vec::is_empty))
                .collect::<Result<_, _>>()?,
            last: last.map(|value| prepared(value, Part::Final)).transpose()?,
        })
    }

    /// Prepares an assertion in the form an extensible match has it: one string with asterisks (RFC 4517 §3.3.30).
    ///
    /// # Errors
    /// When it is not of that form or a part cannot be prepared.
    pub fn parse(
        rule: &'static MatchingRule,
        assertion: &[u8],
    ) -> Result<SubstringPattern, InvalidValue> {
        let (initial, any, last) = substring_parts(assertion).ok_or_else(|| {
            rule.syntax()
                .invalid("it is not substrings separated by asterisks")
        })?;
        SubstringPattern::new(
            rule,
            initial.as_deref(),
            any.iter().map(Vec::as_slice),
            last.as_deref(),
        )
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
    pub fn any(&self) -> impl Iterator<Item = &[u8]> + Clone {
        self.any.iter().map(|part| &**part)
    }

    /// The prepared final part: what the prepared value ends with.
    pub fn last(&self) -> Option<&[u8]> {
        self.last.as_deref()
    }

    /// Whether a stored value matches. `scratch` is overwritten.
    pub fn matches(&self, schema: &Schema, stored: &[u8], scratch: &mut Vec<u8>) -> bool {
        if let Some(initial) = &self.initial
            && self.rule.begins_otherwise(stored, initial)
        {
            return false;
        }
        scratch.clear();
        self.rule.normalise(schema, stored, scratch).is_ok() && self.matches_prepared(scratch)
    }

    /// Whether a value prepared by [`MatchingRule::normalise`] matches.
    pub fn matches_prepared(&self, prepared: &[u8]) -> bool {
        let mut rest = prepared;
        if let Some(initial) = &self.initial {
            match rest.strip_prefix(initial.as_slice()) {
                Some(after) => rest = after,
                None => return false,
            }
        }
        if let Some(last) = &self.last {
            match rest.strip_suffix(last.as_slice()) {
                Some(before) => rest = before,
                None => return false,
            }
        }
        for part in &self.any {
            steps::count(1);
            match position(rest, part).and_then(|at| rest.get(at + part.len()..)) {
                Some(after) => rest = after,
                None => return false,
            }
        }
        true
    }
}

/// Needles up to this length are looked for at each place in turn; longer ones in time linear in the text.
const PLAIN_NEEDLE_BYTES_MAX: usize = 32;

/// Where `needle` first occurs.
fn position(text: &[u8], needle: &[u8]) -> Option<usize> {
    let Some(first) = needle.first() else {
        return Some(0);
    };
    // Nothing of a long needle is looked at for a short text.
    if needle.len() > text.len() {
        return None;
    }
    steps::count(text.len());
    if needle.len() <= PLAIN_NEEDLE_BYTES_MAX {
        let last_start = text.len().checked_sub(needle.len())?;
        let mut at = 0;
        while at <= last_start {
            at += text
                .get(at..=last_start)?
                .iter()
                .position(|byte| byte == first)?;
            if text.get(at..at + needle.len()) == Some(needle) {
                return Some(at);
            }
            at += 1;
        }
        return None;
    }
    // Knuth, Morris and Pratt: `borders` holds, for each prefix, the length of its longest proper border.
    steps::count(needle.len());
    let mut borders = vec![0usize; needle.len()];
    let mut matched = 0;
    for at in 1..needle.len() {
        while matched > 0 && needle.get(at) != needle.get(matched) {
            matched = *borders.get(matched - 1)?;
        }
        matched += usize::from(needle.get(at) == needle.get(matched));
        *borders.get_mut(at)? = matched;
    }
    matched = 0;
    for (at, byte) in text.iter().enumerate() {
        while matched > 0 && needle.get(matched) != Some(byte) {
            matched = *borders.get(matched - 1)?;
        }
        matched += usize::from(needle.get(matched) == Some(byte));
        if matched == needle.len() {
            return Some(at + 1 - matched);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::schema::Schema;
    use crate::steps::counted;

    #[test]
    fn parts_that_a_value_cannot_have_are_not_looked_at() {
        let schema = Schema::standard();
        let pattern = |rule: &str, part: &str, times: usize| {
            let rule = MatchingRule::find(rule.as_bytes()).unwrap();
            let parts = std::iter::repeat_n(part.as_bytes(), times);
            SubstringPattern::new(rule, None, parts, None).unwrap()
        };
        let long = "x".repeat(100_000);
        for (pattern, value, matches) in [
            (pattern("caseExactSubstringsMatch", &long, 1), "xx", false),
            (
                pattern("caseExactSubstringsMatch", "x", 100_000),
                "xx",
                false,
            ),
            (
                pattern("numericStringSubstringsMatch", "  ", 100_000),
                "1 2",
                true,
            ),
            (
                pattern("telephoneNumberSubstringsMatch", "-", 100_000),
                "+1-2",
                true,
            ),
        ] {
            let mut scratch = Vec::new();
            let (found, steps) =
                counted(|| pattern.matches(&schema, value.as_bytes(), &mut scratch));
            assert_eq!(found, matches, "{value:?}");
            assert!(steps < 100, "{steps} steps for {value:?}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn position_agrees_with_str(text in "[ab]{0,200}", needle in "[ab]{0,6}", times in 1usize..12, tail in "[ab]{0,3}") {
            let needle = needle.repeat(times) + &tail;
            prop_assert_eq!(position(text.as_bytes(), needle.as_bytes()), text.find(&needle));
            let around = format!("{text}{needle}{text}");
            prop_assert_eq!(position(around.as_bytes(), needle.as_bytes()), around.find(&needle));
        }
    }
}
