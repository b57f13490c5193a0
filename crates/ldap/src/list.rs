//! Lists inside messages: strings, attributes with values, modifications.
//!
//! Each is a view of BER that was checked once, walked in place as often as needed; its `…Buf` twin owns such BER and
//! is how one is made. A view of bytes that were not checked is harmless: its iterator ends where they stop making
//! sense.

#![deny(clippy::indexing_slicing)]

use crate::ber::{self, Reader};
use crate::error::{Malformed, PartError, Violation};
use crate::limits::ATTRIBUTES_MAX;

/// A SEQUENCE OF or SET OF OCTET STRING: attribute values, a search's attribute selection, referral URIs.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct OctetStrings<'a> {
    ber: &'a [u8],
}

impl<'a> OctetStrings<'a> {
    /// The empty list.
    pub const EMPTY: OctetStrings<'static> = OctetStrings { ber: &[] };

    /// Checks the content of a SEQUENCE OF or SET OF OCTET STRING.
    pub fn from_ber(content: &'a [u8]) -> Result<Self, Malformed> {
        Self::checked(content, "list")
    }

    /// The same for content that was checked before, such as what a store has kept.
    #[inline]
    pub const fn from_checked(content: &'a [u8]) -> Self {
        OctetStrings { ber: content }
    }

    #[inline]
    fn checked(content: &'a [u8], field: &'static str) -> Result<Self, Malformed> {
        let mut reader = Reader::new(content);
        while !reader.is_empty() {
            reader.octets(field)?;
        }
        Ok(OctetStrings { ber: content })
    }

    /// The same for a list of at most [`ATTRIBUTES_MAX`] strings; `field` names it in errors.
    #[inline]
    pub(crate) fn bounded(content: &'a [u8], field: &'static str) -> Result<Self, PartError> {
        let mut reader = Reader::new(content);
        let mut elements = 0;
        while !reader.is_empty() {
            elements += 1;
            if elements > ATTRIBUTES_MAX {
                return Err(Violation::Attributes.into());
            }
            reader.octets(field)?;
        }
        Ok(OctetStrings { ber: content })
    }

    /// The elements as BER, without the list's own header.
    #[inline]
    pub const fn as_ber(self) -> &'a [u8] {
        self.ber
    }

    /// Whether there is no element.
    #[inline]
    pub const fn is_empty(self) -> bool {
        self.ber.is_empty()
    }

    /// The strings, in the order of the message.
    #[inline]
    pub const fn iter(self) -> OctetStringsIter<'a> {
        OctetStringsIter {
            reader: Reader::new(self.ber),
        }
    }
}

impl<'a> IntoIterator for OctetStrings<'a> {
    type Item = &'a [u8];
    type IntoIter = OctetStringsIter<'a>;

    #[inline]
    fn into_iter(self) -> OctetStringsIter<'a> {
        self.iter()
    }
}

impl std::fmt::Debug for OctetStrings<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list()
            .entries(self.iter().map(|octets| octets.escape_ascii().to_string()))
            .finish()
    }
}

/// Iterates over [`OctetStrings`].
#[derive(Debug, Clone)]
pub struct OctetStringsIter<'a> {
    reader: Reader<'a>,
}

impl<'a> OctetStringsIter<'a> {
    /// The strings that are still to come.
    #[inline]
    pub const fn rest(&self) -> OctetStrings<'a> {
        OctetStrings {
            ber: self.reader.rest(),
        }
    }
}

impl<'a> Iterator for OctetStringsIter<'a> {
    type Item = &'a [u8];

    #[inline]
    fn next(&mut self) -> Option<&'a [u8]> {
        if self.reader.is_empty() {
            None
        } else {
            self.reader.octets("element").ok()
        }
    }
}

/// Owns the BER of [`OctetStrings`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OctetStringsBuf {
    ber: Vec<u8>,
}

impl OctetStringsBuf {
    /// Appends a string.
    pub fn push(&mut self, octets: &[u8]) {
        ber::put_octets(&mut self.ber, ber::OCTET_STRING, octets);
    }

    /// Empties it; its memory is kept.
    pub fn clear(&mut self) {
        self.ber.clear();
    }

    /// The list.
    pub fn view(&self) -> OctetStrings<'_> {
        OctetStrings { ber: &self.ber }
    }
}

impl<T: AsRef<[u8]>> FromIterator<T> for OctetStringsBuf {
    fn from_iter<I: IntoIterator<Item = T>>(strings: I) -> Self {
        let mut list = OctetStringsBuf::default();
        strings
            .into_iter()
            .for_each(|string| list.push(string.as_ref()));
        list
    }
}

/// PartialAttribute (RFC 4511 §4.1.7): a description with values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attribute<'a> {
    /// Type and options as sent; not checked to be an attribute description.
    pub description: &'a [u8],
    /// May be empty in a search result and in a modification.
    pub values: OctetStrings<'a>,
}

impl<'a> Attribute<'a> {
    /// Reads one PartialAttribute from its content.
    #[inline]
    fn decode(content: &'a [u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(content);
        let description = reader.octets("type")?;
        let values = reader.expect(ber::SET, "vals")?;
        Ok(Attribute {
            description,
            values: OctetStrings { ber: values },
        })
    }

    /// The same, and checks everything that [`decode`](Self::decode) leaves to later readers.
    fn checked(content: &'a [u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(content);
        let description = reader.octets("type")?;
        let values = OctetStrings::checked(reader.expect(ber::SET, "vals")?, "value")?;
        reader.skip_extensions()?;
        Ok(Attribute {
            description,
            values,
        })
    }

    /// Appends the attribute as a PartialAttribute.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let values = ber::element_len(self.values.ber.len());
        ber::put_header(
            out,
            ber::SEQUENCE,
            ber::element_len(self.description.len()) + values,
        );
        ber::put_octets(out, ber::OCTET_STRING, self.description);
        ber::put_octets(out, ber::SET, self.values.ber);
    }
}

/// Appends a PartialAttribute whose values are at hand one by one.
pub fn put_attribute<'v>(
    out: &mut Vec<u8>,
    description: &[u8],
    values: impl IntoIterator<Item = &'v [u8]>,
) {
    let attribute = ber::open(out, ber::SEQUENCE, 0);
    ber::put_octets(out, ber::OCTET_STRING, description);
    let set = ber::open(out, ber::SET, 0);
    values
        .into_iter()
        .for_each(|value| ber::put_octets(out, ber::OCTET_STRING, value));
    ber::close(out, set);
    ber::close(out, attribute);
}

/// A SEQUENCE OF PartialAttribute: the attributes of an add request or of a search result entry.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct Attributes<'a> {
    ber: &'a [u8],
}

impl<'a> Attributes<'a> {
    /// The empty list.
    pub const EMPTY: Attributes<'static> = Attributes { ber: &[] };

    /// Checks the content of a SEQUENCE OF PartialAttribute.
    pub fn from_ber(content: &'a [u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(content);
        while !reader.is_empty() {
            Attribute::checked(reader.expect(ber::SEQUENCE, "attribute")?)?;
        }
        Ok(Attributes { ber: content })
    }

    /// The same for content that was checked before, such as what a store has kept.
    #[inline]
    pub const fn from_checked(content: &'a [u8]) -> Self {
        Attributes { ber: content }
    }

    /// The list of an add request: every attribute has values, and there are at most `attributes_max`.
    pub(crate) fn with_values(content: &'a [u8], attributes_max: usize) -> Result<Self, PartError> {
        let mut reader = Reader::new(content);
        let mut attributes = 0;
        let mut violation = None;
        // Malformed bytes anywhere weigh more than a violation seen before them: they end the session.
        while !reader.is_empty() {
            let attribute = Attribute::checked(reader.expect(ber::SEQUENCE, "attribute")?)?;
            attributes += 1;
            if attribute.values.is_empty() {
                violation = Some(Violation::NoValues);
            }
        }
        if attributes > attributes_max {
            violation = Some(Violation::Attributes);
        }
        violation.map_or(Ok(Attributes { ber: content }), |violation| {
            Err(violation.into())
        })
    }

    /// The attributes as BER, without the list's own header.
    #[inline]
    pub const fn as_ber(self) -> &'a [u8] {
        self.ber
    }

    /// Whether there is no attribute.
    #[inline]
    pub const fn is_empty(self) -> bool {
        self.ber.is_empty()
    }

    /// The attributes, in the order of the message. The same description may come twice.
    #[inline]
    pub const fn iter(self) -> AttributesIter<'a> {
        AttributesIter {
            reader: Reader::new(self.ber),
        }
    }
}

impl<'a> IntoIterator for Attributes<'a> {
    type Item = Attribute<'a>;
    type IntoIter = AttributesIter<'a>;

    #[inline]
    fn into_iter(self) -> AttributesIter<'a> {
        self.iter()
    }
}

impl std::fmt::Debug for Attributes<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

/// Iterates over [`Attributes`].
#[derive(Debug, Clone)]
pub struct AttributesIter<'a> {
    reader: Reader<'a>,
}

impl<'a> Iterator for AttributesIter<'a> {
    type Item = Attribute<'a>;

    #[inline]
    fn next(&mut self) -> Option<Attribute<'a>> {
        if self.reader.is_empty() {
            return None;
        }
        Attribute::decode(self.reader.expect(ber::SEQUENCE, "attribute").ok()?).ok()
    }
}

/// Owns the BER of [`Attributes`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AttributesBuf {
    ber: Vec<u8>,
}

impl AttributesBuf {
    /// Appends an attribute.
    pub fn push<'v>(&mut self, description: &[u8], values: impl IntoIterator<Item = &'v [u8]>) {
        put_attribute(&mut self.ber, description, values);
    }

    /// Empties it; its memory is kept.
    pub fn clear(&mut self) {
        self.ber.clear();
    }

    /// The list.
    pub fn view(&self) -> Attributes<'_> {
        Attributes { ber: &self.ber }
    }
}

/// What a modification does (RFC 4511 §4.6, RFC 4525).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChangeKind {
    /// Adds the values.
    Add,
    /// Removes the values; all of them when none is listed.
    Delete,
    /// Puts the values in place of all there are.
    Replace,
    /// Adds the one value to the number there is (RFC 4525).
    Increment,
}

impl ChangeKind {
    /// The number on the wire.
    pub const fn number(self) -> u8 {
        match self {
            ChangeKind::Add => 0,
            ChangeKind::Delete => 1,
            ChangeKind::Replace => 2,
            ChangeKind::Increment => 3,
        }
    }

    const fn from_number(number: i64) -> Option<Self> {
        match number {
            0 => Some(ChangeKind::Add),
            1 => Some(ChangeKind::Delete),
            2 => Some(ChangeKind::Replace),
            3 => Some(ChangeKind::Increment),
            _ => None,
        }
    }
}

/// One modification of a modify request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Change<'a> {
    /// What to do.
    pub kind: ChangeKind,
    /// To what, with which values.
    pub attribute: Attribute<'a>,
}

/// The modifications of a modify request, in their order.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct Changes<'a> {
    ber: &'a [u8],
}

impl<'a> Changes<'a> {
    /// Checks the content of the `changes` of a modify request. Every modification has a known kind, an add has
    /// values, and there are at most `attributes_max`.
    pub(crate) fn checked(content: &'a [u8], attributes_max: usize) -> Result<Self, PartError> {
        let mut reader = Reader::new(content);
        let mut changes = 0;
        let mut violation = None;
        while !reader.is_empty() {
            let mut change = Reader::new(reader.expect(ber::SEQUENCE, "change")?);
            let kind = ChangeKind::from_number(change.enumerated("operation")?);
            let attribute = Attribute::checked(change.expect(ber::SEQUENCE, "modification")?)?;
            change.skip_extensions()?;
            changes += 1;
            match kind {
                None => {
                    violation = Some(Violation::OutOfRange {
                        field: "modify operation",
                    })
                }
                Some(ChangeKind::Add) if attribute.values.is_empty() => {
                    violation = Some(Violation::NoValues)
                }
                Some(_) => {}
            }
        }
        if changes > attributes_max {
            violation = Some(Violation::Attributes);
        }
        violation.map_or(Ok(Changes { ber: content }), |violation| {
            Err(violation.into())
        })
    }

    /// The modifications as BER, without the list's own header.
    #[inline]
    pub const fn as_ber(self) -> &'a [u8] {
        self.ber
    }

    /// Whether there is no modification.
    #[inline]
    pub const fn is_empty(self) -> bool {
        self.ber.is_empty()
    }

    /// The modifications, in the order they are to be made.
    #[inline]
    pub const fn iter(self) -> ChangesIter<'a> {
        ChangesIter {
            reader: Reader::new(self.ber),
        }
    }
}

impl<'a> IntoIterator for Changes<'a> {
    type Item = Change<'a>;
    type IntoIter = ChangesIter<'a>;

    #[inline]
    fn into_iter(self) -> ChangesIter<'a> {
        self.iter()
    }
}

impl std::fmt::Debug for Changes<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

/// Iterates over [`Changes`].
#[derive(Debug, Clone)]
pub struct ChangesIter<'a> {
    reader: Reader<'a>,
}

impl<'a> Iterator for ChangesIter<'a> {
    type Item = Change<'a>;

    fn next(&mut self) -> Option<Change<'a>> {
        if self.reader.is_empty() {
            return None;
        }
        let mut change = Reader::new(self.reader.expect(ber::SEQUENCE, "change").ok()?);
        let kind = ChangeKind::from_number(change.enumerated("operation").ok()?)?;
        let attribute =
            Attribute::decode(change.expect(ber::SEQUENCE, "modification").ok()?).ok()?;
        Some(Change { kind, attribute })
    }
}

/// Owns the BER of [`Changes`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ChangesBuf {
    ber: Vec<u8>,
}

impl ChangesBuf {
    /// Appends a modification.
    pub fn push<'v>(
        &mut self,
        kind: ChangeKind,
        description: &[u8],
        values: impl IntoIterator<Item = &'v [u8]>,
    ) {
        let change = ber::open(&mut self.ber, ber::SEQUENCE, 0);
        ber::put_integer(&mut self.ber, ber::ENUMERATED, i64::from(kind.number()));
        put_attribute(&mut self.ber, description, values);
        ber::close(&mut self.ber, change);
    }

    /// Empties it; its memory is kept.
    pub fn clear(&mut self) {
        self.ber.clear();
    }

    /// The list.
    pub fn view(&self) -> Changes<'_> {
        Changes { ber: &self.ber }
    }
}
