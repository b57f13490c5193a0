//! Search filters as they travel (RFC 4511 §4.5.1.7): BER that is checked once and then looked at in place.

#![deny(clippy::indexing_slicing)]

use crate::ber::{self, Reader};
use crate::error::{Malformed, PartError, Violation};
use crate::limits::{FILTER_BYTES_MAX, FILTER_DEPTH_MAX, FILTER_ELEMENTS_MAX};

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
    /// Filters that were checked before, one behind the other.
    pub(crate) const fn from_checked(ber: &'a [u8]) -> Filters<'a> {
        Filters { ber }
    }

    /// The same as BER.
    pub(crate) const fn as_ber(self) -> &'a [u8] {
        self.ber
    }

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
        reader.end()?;
        Ok(filter)
    }

    /// Reads the filter that comes next.
    #[inline]
    pub(crate) fn decode(reader: &mut Reader<'a>) -> Result<Self, PartError> {
        let start = reader.rest();
        let (tag, content) = reader.element("filter")?;
        if content.len() > FILTER_BYTES_MAX {
            return Err(Violation::FilterBytes.into());
        }
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

    /// The number of its components without and, or, not: of the tests that an entry is put to.
    pub fn items(self) -> usize {
        match self.view() {
            FilterView::And(filters) | FilterView::Or(filters) => {
                filters.iter().map(Filter::items).sum()
            }
            FilterView::Not(filter) => filter.items(),
            _ => 1,
        }
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
    // Where each open level ends; four octets a level, because clearing them is most of what a small filter costs.
    let mut ends = [0u32; FILTER_DEPTH_MAX];
    let Ok(mut end) = u32::try_from(content.len()) else {
        return Ok(Some(Violation::FilterElements));
    };
    let mut position = 0u32;
    let mut depth = 0;
    let mut elements = 1usize;
    let mut violation = None;
    // Whether exactly one component must follow, up to `end`.
    let mut alone = tag == NOT;
    loop {
        if position == end && !alone {
            if depth == 0 {
                return Ok(violation);
            }
            depth -= 1;
            end = ends.get(depth).copied().unwrap_or(end);
            continue;
        }
        let mut reader = Reader::new(
            content
                .get(position as usize..end as usize)
                .unwrap_or_default(),
        );
        let (tag, inner) = reader.element("filter")?;
        if alone {
            reader.end()?;
        }
        alone = false;
        elements += 1;
        if elements > FILTER_ELEMENTS_MAX {
            return Ok(Some(Violation::FilterElements));
        }
        // Both fit: they are at most `end`.
        let after = end - reader.rest().len() as u32;
        if matches!(tag, AND | OR | NOT) {
            // The outermost level is open as well, but nothing follows it.
            let Some(slot) = ends.get_mut(depth).filter(|_| depth + 1 < FILTER_DEPTH_MAX) else {
                return Ok(Some(Violation::FilterDepth));
            };
            *slot = end;
            depth += 1;
            end = after;
            position = after - inner.len() as u32;
            alone = tag == NOT;
        } else {
            if let Some(found) = check_item(tag, inner)? {
                violation = Some(found);
            }
            position = after;
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

impl From<Filter<'_>> for FilterBuf {
    fn from(filter: Filter<'_>) -> FilterBuf {
        FilterBuf {
            ber: filter.ber.into(),
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    /// `levels` nots around `(a=*)`.
    fn nots(levels: usize) -> Vec<u8> {
        let mut filter = vec![PRESENT, 1, b'a'];
        for _ in 0..levels {
            let mut around = Vec::new();
            ber::put_octets(&mut around, NOT, &filter);
            filter = around;
        }
        filter
    }

    fn violation(filter: &[u8]) -> Option<Violation> {
        match Filter::from_ber(filter) {
            Ok(_) => None,
            Err(PartError::Violation(violation)) => Some(violation),
            Err(PartError::Malformed(malformed)) => panic!("{malformed}"),
        }
    }

    #[test]
    fn depth_is_limited() {
        assert_eq!(violation(&nots(FILTER_DEPTH_MAX)), None);
        assert_eq!(
            violation(&nots(FILTER_DEPTH_MAX + 1)),
            Some(Violation::FilterDepth)
        );
        assert_eq!(violation(&nots(10_000)), Some(Violation::FilterDepth));
    }

    #[test]
    fn elements_are_limited() {
        let or_with = |components: usize| {
            let mut ber = Vec::new();
            let or = open_or(&mut ber);
            (0..components).for_each(|_| put_present(&mut ber, b"a"));
            ber::close(&mut ber, or);
            ber
        };
        assert_eq!(violation(&or_with(FILTER_ELEMENTS_MAX - 1)), None);
        assert_eq!(
            violation(&or_with(FILTER_ELEMENTS_MAX)),
            Some(Violation::FilterElements)
        );
    }

    #[test]
    fn items_are_counted() {
        let count = |ber: &[u8]| Filter::from_ber(ber).map(Filter::items);
        let mut ber = Vec::new();
        let or = open_or(&mut ber);
        (0..3).for_each(|_| put_present(&mut ber, b"a"));
        ber.extend_from_slice(&nots(5));
        let inner = open_or(&mut ber);
        ber::close(&mut ber, inner);
        ber::close(&mut ber, or);
        assert_eq!(count(&ber), Ok(4));
    }

    #[test]
    fn octets_are_limited() {
        let present = |bytes: usize| {
            let mut ber = Vec::new();
            put_present(&mut ber, &vec![b'a'; bytes]);
            ber
        };
        assert_eq!(violation(&present(FILTER_BYTES_MAX)), None);
        assert_eq!(
            violation(&present(FILTER_BYTES_MAX + 1)),
            Some(Violation::FilterBytes)
        );
    }

    #[test]
    fn every_choice_comes_back_as_written() {
        let mut ber = Vec::new();
        let and = open_and(&mut ber);
        put_equality_match(&mut ber, b"cn", b"x");
        let or = open_or(&mut ber);
        put_greater_or_equal(&mut ber, b"n", b"1");
        put_less_or_equal(&mut ber, b"n", b"2");
        put_approx_match(&mut ber, b"cn", b"y");
        ber::close(&mut ber, or);
        let not = open_not(&mut ber);
        put_present(&mut ber, b"mail");
        ber::close(&mut ber, not);
        let parts = [
            SubstringPart::Initial(b"a"),
            SubstringPart::Any(b"b"),
            SubstringPart::Final(b"c"),
        ];
        put_substrings(&mut ber, b"sn", parts);
        let matched = ExtensibleMatch {
            rule: Some(b"2.5.13.2"),
            attribute: None,
            value: b"z",
            dn_attributes: true,
        };
        put_extensible_match(&mut ber, &matched);
        ber.extend_from_slice(&[ber::context(20), 1, 0]);
        ber::close(&mut ber, and);

        let filter = Filter::from_ber(&ber).unwrap().to_buf();
        let FilterView::And(all) = filter.as_filter().view() else {
            panic!("{filter:?}")
        };
        let all: Vec<_> = all.iter().map(Filter::view).collect();
        let [
            cn,
            FilterView::Or(any),
            FilterView::Not(not),
            FilterView::Substrings(sn),
            extensible,
            unknown,
        ] = all[..]
        else {
            panic!("{all:?}")
        };
        assert_eq!(
            cn,
            FilterView::EqualityMatch(Assertion {
                attribute: b"cn",
                value: b"x"
            })
        );
        let any: Vec<_> = any.iter().map(Filter::view).collect();
        assert_eq!(
            any,
            [
                FilterView::GreaterOrEqual(Assertion {
                    attribute: b"n",
                    value: b"1"
                }),
                FilterView::LessOrEqual(Assertion {
                    attribute: b"n",
                    value: b"2"
                }),
                FilterView::ApproxMatch(Assertion {
                    attribute: b"cn",
                    value: b"y"
                }),
            ]
        );
        assert_eq!(not.view(), FilterView::Present(b"mail"));
        assert_eq!(sn.attribute, b"sn");
        assert_eq!(sn.parts().collect::<Vec<_>>(), parts);
        assert_eq!(extensible, FilterView::ExtensibleMatch(matched));
        assert_eq!(unknown, FilterView::Unknown);
    }

    #[test]
    fn true_and_false_are_filters() {
        for ber in [[AND, 0], [OR, 0]] {
            assert_eq!(violation(&ber), None);
        }
        assert_eq!(
            Filter::from_ber(&[NOT, 0]),
            Err(Malformed::Missing { field: "filter" }.into())
        );
        assert_eq!(
            Filter::OBJECT_CLASS_PRESENT.view(),
            FilterView::Present(b"objectClass")
        );
        assert_eq!(violation(Filter::OBJECT_CLASS_PRESENT.as_ber()), None);
    }

    #[test]
    fn a_not_has_one_component() {
        let ber = [NOT, 6, PRESENT, 1, b'a', PRESENT, 1, b'a'];
        assert_eq!(Filter::from_ber(&ber), Err(Malformed::Trailing.into()));
    }

    #[test]
    fn broken_inside_is_broken() {
        // An and whose component reaches beyond it.
        let ber = [AND, 3, PRESENT, 2, b'a', b'b'];
        assert_eq!(
            Filter::from_ber(&ber[..5]),
            Err(Malformed::Truncated { field: "filter" }.into())
        );
        assert_eq!(
            Filter::from_ber(&[]),
            Err(Malformed::Missing { field: "filter" }.into())
        );
    }

    #[test]
    fn the_order_of_substrings_is_checked() {
        let substrings = |parts: &[SubstringPart<'_>]| {
            let mut ber = Vec::new();
            put_substrings(&mut ber, b"cn", parts.iter().copied());
            violation(&ber)
        };
        let (initial, any, last) = (
            SubstringPart::Initial(b"a"),
            SubstringPart::Any(b""),
            SubstringPart::Final(b"c"),
        );
        for good in [
            &[initial][..],
            &[any],
            &[last],
            &[initial, any, any, last],
            &[initial, last],
        ] {
            assert_eq!(substrings(good), None, "{good:?}");
        }
        for bad in [
            &[][..],
            &[any, initial],
            &[last, any],
            &[initial, initial],
            &[last, last],
        ] {
            assert_eq!(
                substrings(bad),
                Some(Violation::FilterSubstrings),
                "{bad:?}"
            );
        }
    }

    #[test]
    fn an_extensible_match_names_something() {
        let mut ber = Vec::new();
        put_extensible_match(
            &mut ber,
            &ExtensibleMatch {
                rule: None,
                attribute: None,
                value: b"z",
                dn_attributes: false,
            },
        );
        assert_eq!(violation(&ber), Some(Violation::FilterExtensible));
    }
}
