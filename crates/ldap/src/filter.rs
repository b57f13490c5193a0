//! Search filters as they travel (RFC 4511 §4.5.1.7): BER that is checked once and then looked at in place.

#![deny(clippy::indexing_slicing)]

use crate::ber::{self, Reader};
use crate::error::{Malformed, PartError, Violation};

/// Most levels of and, or, not around a component. Who walks a filter recursively may rely on it.
pub const FILTER_DEPTH_MAX: usize = 128;

/// Most components, counting and, or, not themselves.
pub const FILTER_ELEMENTS_MAX: usize = 65_536;

const AND: u8 = ber::context_constructed(0);
const OR: u8 = ber::context_constructed(1);
const NOT: u8 = ber::context_constructed(2);
const EQUALITY_MATCH: u8 = ber::context_constructed(3);
const SUBSTRINGS: u8 = ber::context_constructed(4);
const GREATER_OR_EQUAL: u8 = ber::context_constructed(5);
const LESS_OR_EQUAL: u8 = ber::context_constructed(6);
const PRESENT: u8 = ber::context(7);
const APPROX_MATCH: u8 = ber::context_constructed(8);
const EXTENSIBLE_MATCH: u8 = ber::context_constructed(9);

const SUBSTRING_INITIAL: u8 = ber::context(0);
const SUBSTRING_ANY: u8 = ber::context(1);
const SUBSTRING_FINAL: u8 = ber::context(2);

const MATCHING_RULE: u8 = ber::context(1);
const TYPE: u8 = ber::context(2);
const MATCH_VALUE: u8 = ber::context(3);
const DN_ATTRIBUTES: u8 = ber::context(4);

/// A filter: one element of checked BER.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Filter<'a> {
    /// The whole element, header included.
    ber: &'a [u8],
}

/// What a filter is at its top. Attribute descriptions and rule names are as sent, not checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FilterView<'a> {
    /// All must be true; true when empty (RFC 4526).
    And(Filters<'a>),
    /// One must be true; false when empty (RFC 4526).
    Or(Filters<'a>),
    /// Must be false.
    Not(Filter<'a>),
    /// A value is equal.
    EqualityMatch(Assertion<'a>),
    /// A value has these parts.
    Substrings(Substrings<'a>),
    /// A value is greater or equal.
    GreaterOrEqual(Assertion<'a>),
    /// A value is less or equal.
    LessOrEqual(Assertion<'a>),
    /// The attribute is there.
    Present(&'a [u8]),
    /// A value is about equal.
    ApproxMatch(Assertion<'a>),
    /// A matching rule chosen by the client.
    ExtensibleMatch(ExtensibleMatch<'a>),
    /// A choice that RFC 4511 does not have: it evaluates to Undefined.
    Unknown,
}

/// AttributeValueAssertion: an attribute description and an assertion value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Assertion<'a> {
    /// The attribute description as sent.
    pub attribute: &'a [u8],
    /// The assertion value.
    pub value: &'a [u8],
}

impl<'a> Assertion<'a> {
    /// Reads one from the content of an AttributeValueAssertion.
    #[inline]
    pub(crate) fn decode(content: &'a [u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(content);
        let attribute = reader.octets("attributeDesc")?;
        let value = reader.octets("assertionValue")?;
        reader.skip_extensions()?;
        Ok(Assertion { attribute, value })
    }

    /// Octets of its content.
    pub(crate) fn content_len(&self) -> usize {
        ber::element_len(self.attribute.len()) + ber::element_len(self.value.len())
    }

    /// Appends it with a tag of the caller's choice.
    pub(crate) fn encode(&self, out: &mut Vec<u8>, tag: u8) {
        ber::put_header(out, tag, self.content_len());
        ber::put_octets(out, ber::OCTET_STRING, self.attribute);
        ber::put_octets(out, ber::OCTET_STRING, self.value);
    }
}

/// A substrings filter: at least one part; initial only first, final only last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Substrings<'a> {
    /// The attribute description as sent.
    pub attribute: &'a [u8],
    parts: &'a [u8],
}

/// One part of a substrings filter. It may be empty, which RFC 4511 does not allow but peers send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SubstringPart<'a> {
    /// The value starts with it.
    Initial(&'a [u8]),
    /// The value has it, after the parts before.
    Any(&'a [u8]),
    /// The value ends with it.
    Final(&'a [u8]),
}

impl<'a> Substrings<'a> {
    /// The parts, in their order.
    pub fn parts(self) -> impl Iterator<Item = SubstringPart<'a>> + Clone {
        let mut reader = Reader::new(self.parts);
        std::iter::from_fn(move || {
            if reader.is_empty() {
                return None;
            }
            match reader.element("substring").ok()? {
                (SUBSTRING_INITIAL, octets) => Some(SubstringPart::Initial(octets)),
                (SUBSTRING_ANY, octets) => Some(SubstringPart::Any(octets)),
                (SUBSTRING_FINAL, octets) => Some(SubstringPart::Final(octets)),
                _ => None,
            }
        })
    }

    #[inline]
    fn decode(content: &'a [u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(content);
        let attribute = reader.octets("type")?;
        let parts = reader.expect(ber::SEQUENCE, "substrings")?;
        reader.skip_extensions()?;
        Ok(Substrings { attribute, parts })
    }

    fn check(content: &'a [u8]) -> Result<Option<Violation>, Malformed> {
        let substrings = Self::decode(content)?;
        let mut reader = Reader::new(substrings.parts);
        let mut ordered = !reader.is_empty();
        let mut first = true;
        while !reader.is_empty() {
            let (tag, _) = reader.element("substring")?;
            ordered &= match tag {
                SUBSTRING_INITIAL => first,
                SUBSTRING_ANY => true,
                SUBSTRING_FINAL => reader.is_empty(),
                _ => false,
            };
            first = false;
        }
        Ok(if ordered {
            None
        } else {
            Some(Violation::FilterSubstrings)
        })
    }
}

/// MatchingRuleAssertion: an extensible match.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExtensibleMatch<'a> {
    /// Name or OID of the matching rule; if absent, `attribute` is there and its equality rule is meant.
    pub rule: Option<&'a [u8]>,
    /// The attribute description; if absent, every attribute the rule fits.
    pub attribute: Option<&'a [u8]>,
    /// The assertion value.
    pub value: &'a [u8],
    /// Whether the attributes of the entry's DN count as well.
    pub dn_attributes: bool,
}

impl<'a> ExtensibleMatch<'a> {
    fn decode(content: &'a [u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(content);
        let rule = reader.optional(MATCHING_RULE, "matchingRule")?;
        let attribute = reader.optional(TYPE, "type")?;
        let value = reader.expect(MATCH_VALUE, "matchValue")?;
        let dn_attributes = match reader.optional(DN_ATTRIBUTES, "dnAttributes")? {
            Some(content) => ber::boolean(content, "dnAttributes")?,
            None => false,
        };
        reader.skip_extensions()?;
        Ok(ExtensibleMatch {
            rule,
            attribute,
            value,
            dn_attributes,
        })
    }

    fn encode(&self, out: &mut Vec<u8>) {
        let element = ber::open(out, EXTENSIBLE_MATCH, 0);
        if let Some(rule) = self.rule {
            ber::put_octets(out, MATCHING_RULE, rule);
        }
        if let Some(attribute) = self.attribute {
            ber::put_octets(out, TYPE, attribute);
        }
        ber::put_octets(out, MATCH_VALUE, self.value);
        if self.dn_attributes {
            ber::put_boolean(out, DN_ATTRIBUTES, true);
        }
        ber::close(out, element);
    }
}

/// The components of an and or an or.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Filters<'a> {
    ber: &'a [u8],
}

impl<'a> Filters<'a> {
    /// Whether there is none.
    #[inline]
    pub const fn is_empty(self) -> bool {
        self.ber.is_empty()
    }

    /// The components, in the order of the message.
    #[inline]
    pub const fn iter(self) -> FiltersIter<'a> {
        FiltersIter { rest: self.ber }
    }
}

impl<'a> IntoIterator for Filters<'a> {
    type Item = Filter<'a>;
    type IntoIter = FiltersIter<'a>;

    #[inline]
    fn into_iter(self) -> FiltersIter<'a> {
        self.iter()
    }
}

impl std::fmt::Debug for Filters<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

/// Iterates over [`Filters`].
#[derive(Debug, Clone)]
pub struct FiltersIter<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for FiltersIter<'a> {
    type Item = Filter<'a>;

    #[inline]
    fn next(&mut self) -> Option<Filter<'a>> {
        if self.rest.is_empty() {
            return None;
        }
        let mut reader = Reader::new(self.rest);
        reader.element("filter").ok()?;
        let (ber, rest) = self
            .rest
            .split_at_checked(self.rest.len() - reader.rest().len())?;
        self.rest = rest;
        Some(Filter { ber })
    }
}

impl<'a> Filter<'a> {
    /// `(objectClass=*)`.
    pub const OBJECT_CLASS_PRESENT: Filter<'static> = Filter {
        ber: b"\x87\x0bobjectClass",
    };

    /// Checks that `ber` is exactly one filter, within [`FILTER_DEPTH_MAX`] and [`FILTER_ELEMENTS_MAX`].
    pub fn from_ber(ber: &'a [u8]) -> Result<Self, PartError> {
        let mut reader = Reader::new(ber);
        let filter = Self::decode(&mut reader)?;
        if reader.is_empty() {
            Ok(filter)
        } else {
            Err(Malformed::Trailing.into())
        }
    }

    /// Reads the filter that comes next.
    #[inline]
    pub(crate) fn decode(reader: &mut Reader<'a>) -> Result<Self, PartError> {
        let start = reader.rest();
        let (tag, content) = reader.element("filter")?;
        let violation = match tag {
            AND | OR | NOT => check_nested(tag, content)?,
            _ => check_item(tag, content)?,
        };
        if let Some(violation) = violation {
            return Err(violation.into());
        }
        let octets = start.len() - reader.rest().len();
        Ok(Filter {
            ber: start.get(..octets).unwrap_or_default(),
        })
    }

    /// The filter as BER, header included.
    #[inline]
    pub const fn as_ber(self) -> &'a [u8] {
        self.ber
    }

    /// What it is at its top: a few nanoseconds, each time anew.
    #[inline]
    pub fn view(self) -> FilterView<'a> {
        self.try_view().unwrap_or(FilterView::Unknown)
    }

    #[inline]
    fn try_view(self) -> Result<FilterView<'a>, Malformed> {
        let (tag, content) = Reader::new(self.ber).element("filter")?;
        Ok(match tag {
            AND => FilterView::And(Filters { ber: content }),
            OR => FilterView::Or(Filters { ber: content }),
            NOT => FilterView::Not(Filter { ber: content }),
            EQUALITY_MATCH => FilterView::EqualityMatch(Assertion::decode(content)?),
            SUBSTRINGS => FilterView::Substrings(Substrings::decode(content)?),
            GREATER_OR_EQUAL => FilterView::GreaterOrEqual(Assertion::decode(content)?),
            LESS_OR_EQUAL => FilterView::LessOrEqual(Assertion::decode(content)?),
            PRESENT => FilterView::Present(content),
            APPROX_MATCH => FilterView::ApproxMatch(Assertion::decode(content)?),
            EXTENSIBLE_MATCH => FilterView::ExtensibleMatch(ExtensibleMatch::decode(content)?),
            _ => FilterView::Unknown,
        })
    }

    /// A copy that outlives the message.
    pub fn to_buf(self) -> FilterBuf {
        FilterBuf {
            ber: self.ber.into(),
        }
    }
}

impl std::fmt::Debug for Filter<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.view().fmt(f)
    }
}

/// Checks everything below an and, or, not. The stack is of fixed size, so a hostile message costs no memory.
fn check_nested(tag: u8, content: &[u8]) -> Result<Option<Violation>, Malformed> {
    // For each level that is open, the octets that follow it in the level around it.
    let mut after = [&[][..]; FILTER_DEPTH_MAX];
    let mut depth = 1;
    let mut elements = 1usize;
    let mut violation = None;
    let mut reader = Reader::new(content);
    let mut alone = tag == NOT;
    loop {
        if reader.is_empty() && !alone {
            depth -= 1;
            if depth == 0 {
                return Ok(violation);
            }
            let Some(rest) = after.get(depth) else {
                return Ok(Some(Violation::FilterDepth));
            };
            reader = Reader::new(rest);
            continue;
        }
        let (tag, content) = reader.element("filter")?;
        if alone && !reader.is_empty() {
            return Err(Malformed::Trailing);
        }
        alone = false;
        elements += 1;
        if elements > FILTER_ELEMENTS_MAX {
            return Ok(Some(Violation::FilterElements));
        }
        if matches!(tag, AND | OR | NOT) {
            let Some(slot) = after.get_mut(depth) else {
                return Ok(Some(Violation::FilterDepth));
            };
            *slot = reader.rest();
            depth += 1;
            reader = Reader::new(content);
            alone = tag == NOT;
        } else if let Some(found) = check_item(tag, content)? {
            violation = Some(found);
        }
    }
}

#[inline]
fn check_item(tag: u8, content: &[u8]) -> Result<Option<Violation>, Malformed> {
    match tag {
        EQUALITY_MATCH | GREATER_OR_EQUAL | LESS_OR_EQUAL | APPROX_MATCH => {
            Assertion::decode(content)?;
        }
        SUBSTRINGS => return Substrings::check(content),
        EXTENSIBLE_MATCH => {
            let matched = ExtensibleMatch::decode(content)?;
            if matched.rule.is_none() && matched.attribute.is_none() {
                return Ok(Some(Violation::FilterExtensible));
            }
        }
        // Present has any content, and a choice that is not known is left alone.
        _ => {}
    }
    Ok(None)
}

/// Owns the BER of a [`Filter`].
#[derive(Clone, PartialEq, Eq)]
pub struct FilterBuf {
    ber: Box<[u8]>,
}

impl FilterBuf {
    /// Takes the BER of one filter, checked like [`Filter::from_ber`].
    pub fn from_ber(ber: Vec<u8>) -> Result<Self, PartError> {
        Filter::from_ber(&ber)?;
        Ok(FilterBuf {
            ber: ber.into_boxed_slice(),
        })
    }

    /// The filter.
    pub fn as_filter(&self) -> Filter<'_> {
        Filter { ber: &self.ber }
    }
}

impl std::fmt::Debug for FilterBuf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.as_filter().fmt(f)
    }
}

/// Starts an and; append its components, then [`ber::close`].
pub fn open_and(out: &mut Vec<u8>) -> ber::Open {
    ber::open(out, AND, 0)
}

/// Starts an or; append its components, then [`ber::close`].
pub fn open_or(out: &mut Vec<u8>) -> ber::Open {
    ber::open(out, OR, 0)
}

/// Starts a not; append its one component, then [`ber::close`].
pub fn open_not(out: &mut Vec<u8>) -> ber::Open {
    ber::open(out, NOT, 0)
}

/// Appends an equality match.
pub fn put_equality_match(out: &mut Vec<u8>, attribute: &[u8], value: &[u8]) {
    Assertion { attribute, value }.encode(out, EQUALITY_MATCH);
}

/// Appends a greater-or-equal.
pub fn put_greater_or_equal(out: &mut Vec<u8>, attribute: &[u8], value: &[u8]) {
    Assertion { attribute, value }.encode(out, GREATER_OR_EQUAL);
}

/// Appends a less-or-equal.
pub fn put_less_or_equal(out: &mut Vec<u8>, attribute: &[u8], value: &[u8]) {
    Assertion { attribute, value }.encode(out, LESS_OR_EQUAL);
}

/// Appends an approximate match.
pub fn put_approx_match(out: &mut Vec<u8>, attribute: &[u8], value: &[u8]) {
    Assertion { attribute, value }.encode(out, APPROX_MATCH);
}

/// Appends a presence test.
pub fn put_present(out: &mut Vec<u8>, attribute: &[u8]) {
    ber::put_octets(out, PRESENT, attribute);
}

/// Appends a substrings filter. The parts must be in the order initial, any, final, and at least one.
pub fn put_substrings<'p>(
    out: &mut Vec<u8>,
    attribute: &[u8],
    parts: impl IntoIterator<Item = SubstringPart<'p>>,
) {
    let filter = ber::open(out, SUBSTRINGS, 0);
    ber::put_octets(out, ber::OCTET_STRING, attribute);
    let sequence = ber::open(out, ber::SEQUENCE, 0);
    for part in parts {
        match part {
            SubstringPart::Initial(octets) => ber::put_octets(out, SUBSTRING_INITIAL, octets),
            SubstringPart::Any(octets) => ber::put_octets(out, SUBSTRING_ANY, octets),
            SubstringPart::Final(octets) => ber::put_octets(out, SUBSTRING_FINAL, octets),
        }
    }
    ber::close(out, sequence);
    ber::close(out, filter);
}

/// Appends an extensible match.
pub fn put_extensible_match(out: &mut Vec<u8>, matched: &ExtensibleMatch<'_>) {
    matched.encode(out);
}
