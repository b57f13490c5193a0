//! Distinguished names as text (RFC 4514): reading, walking and writing them. Comparing values is the business of
//! matching rules, which live in the directory; here a name is what was written.

#![deny(clippy::indexing_slicing)]

use std::borrow::Cow;
use std::fmt;

use crate::attribute::{is_descriptor, is_numeric_oid};

/// The longest distinguished name that is read.
pub const DN_BYTES_MAX: usize = 64 << 10;

/// The most relative distinguished names a distinguished name may have.
pub const RDNS_MAX: usize = 512;

/// The most attribute values one relative distinguished name may have.
pub const AVAS_MAX: usize = 64;

/// A checked distinguished name, borrowed from where it was read. Cheap to copy; walking it decodes nothing until a
/// value is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Dn<'a> {
    text: &'a str,
}

/// A checked relative distinguished name: one or more attribute values joined by `+`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rdn<'a> {
    text: &'a str,
}

/// One attribute type and value of a relative distinguished name (AttributeTypeAndValue of RFC 4514 §2.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ava<'a> {
    attribute: &'a str,
    /// The value as written, without the spaces around it.
    value: &'a str,
}

/// Why text is not a distinguished name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DnError {
    /// Not UTF-8.
    #[error("the name is not UTF-8")]
    NotUtf8,
    /// Longer than [`DN_BYTES_MAX`].
    #[error("the name is longer than {DN_BYTES_MAX} bytes")]
    TooLong,
    /// More than [`RDNS_MAX`] relative names.
    #[error("the name has more than {RDNS_MAX} parts")]
    TooManyRdns,
    /// More than [`AVAS_MAX`] values in one relative name.
    #[error("a part of the name has more than {AVAS_MAX} values")]
    TooManyAvas,
    /// A part without an equals sign.
    #[error("a part of the name has no equals sign")]
    MissingEquals,
    /// An attribute type that is neither a short name nor a numeric object identifier.
    #[error("an attribute type in the name is neither a name nor a numeric object identifier")]
    BadType,
    /// A character that must be escaped stands alone.
    #[error("the character {0:?} must be escaped in a name")]
    Unescaped(char),
    /// A backslash followed neither by a special character nor by two hexadecimal digits.
    #[error("a backslash in a name must precede a special character or two hexadecimal digits")]
    BadEscape,
    /// After `#`: not the hexadecimal digits of one primitive BER element.
    #[error("a value after # must be the hexadecimal digits of one BER element")]
    BadHexValue,
    /// For [`Rdn::parse`]: not exactly one relative name.
    #[error("expected exactly one relative name")]
    NotOneRdn,
}

impl<'a> Dn<'a> {
    /// The name of the root: no relative names at all.
    pub const ROOT: Dn<'static> = Dn { text: "" };

    /// Checks `text` against RFC 4514 §3. Spaces around `,`, `+` and `=` are allowed, as servers do; the quotes
    /// and semicolons of the older RFC 1779 are not.
    pub fn parse(text: &'a str) -> Result<Dn<'a>, DnError> {
        if text.len() > DN_BYTES_MAX {
            return Err(DnError::TooLong);
        }
        let text = trim(text);
        let dn = Dn { text };
        for (index, rdn) in dn.rdns().enumerate() {
            if index == RDNS_MAX {
                return Err(DnError::TooManyRdns);
            }
            rdn.check()?;
        }
        Ok(dn)
    }

    /// Checks the bytes of a protocol field, which must be UTF-8 (RFC 4511 §4.1.3).
    pub fn from_bytes(bytes: &'a [u8]) -> Result<Dn<'a>, DnError> {
        Dn::parse(std::str::from_utf8(bytes).map_err(|_| DnError::NotUtf8)?)
    }

    /// The name as written, without spaces at its ends.
    pub fn as_str(self) -> &'a str {
        self.text
    }

    /// Whether this is the name of the root.
    pub fn is_root(self) -> bool {
        self.text.is_empty()
    }

    /// The relative names, the entry's own first. Backwards it goes from the root down.
    pub fn rdns(self) -> Rdns<'a> {
        Rdns {
            rest: (!self.text.is_empty()).then_some(self.text),
        }
    }

    /// The entry's own relative name; `None` at the root.
    pub fn rdn(self) -> Option<Rdn<'a>> {
        self.rdns().next()
    }

    /// The name of the entry above; `None` at the root.
    pub fn parent(self) -> Option<Dn<'a>> {
        let mut rdns = self.rdns();
        rdns.next()?;
        Some(Dn {
            text: rdns.rest.map(trim).unwrap_or_default(),
        })
    }
}

impl fmt::Display for Dn<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text)
    }
}

/// The relative names of a [`Dn`], from either end.
#[derive(Debug, Clone)]
pub struct Rdns<'a> {
    rest: Option<&'a str>,
}

impl<'a> Iterator for Rdns<'a> {
    type Item = Rdn<'a>;

    fn next(&mut self) -> Option<Rdn<'a>> {
        let (text, rest) = split_first(self.rest?, b',');
        self.rest = rest;
        Some(Rdn { text: trim(text) })
    }
}

impl DoubleEndedIterator for Rdns<'_> {
    fn next_back(&mut self) -> Option<Self::Item> {
        let (rest, text) = split_last(self.rest?, b',');
        self.rest = rest;
        Some(Rdn { text: trim(text) })
    }
}

impl<'a> Rdn<'a> {
    /// Checks a relative name alone, such as the newrdn of a Modify DN request (RFC 4511 §4.9).
    pub fn parse(text: &'a str) -> Result<Rdn<'a>, DnError> {
        let mut rdns = Dn::parse(text)?.rdns();
        match (rdns.next(), rdns.next()) {
            (Some(rdn), None) => Ok(rdn),
            _ => Err(DnError::NotOneRdn),
        }
    }

    /// Checks the bytes of a protocol field, which must be UTF-8 (RFC 4511 §4.1.3).
    pub fn from_bytes(bytes: &'a [u8]) -> Result<Rdn<'a>, DnError> {
        Rdn::parse(std::str::from_utf8(bytes).map_err(|_| DnError::NotUtf8)?)
    }

    /// The relative name as written.
    pub fn as_str(self) -> &'a str {
        self.text
    }

    /// Its attribute values, in the order written.
    pub fn avas(self) -> impl Iterator<Item = Ava<'a>> + Clone + use<'a> {
        self.parts().filter_map(Ava::split)
    }

    /// What the plus signs divide.
    fn parts(self) -> impl Iterator<Item = &'a str> + Clone + use<'a> {
        let mut rest = Some(self.text);
        std::iter::from_fn(move || {
            let (text, after) = split_first(rest?, b'+');
            rest = after;
            Some(text)
        })
    }

    fn check(self) -> Result<(), DnError> {
        for (index, part) in self.parts().enumerate() {
            if index == AVAS_MAX {
                return Err(DnError::TooManyAvas);
            }
            Ava::split(part).ok_or(DnError::MissingEquals)?.check()?;
        }
        Ok(())
    }
}

impl fmt::Display for Rdn<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text)
    }
}

impl<'a> Ava<'a> {
    /// The attribute type as written: a short name or a numeric object identifier.
    pub fn attribute(self) -> &'a str {
        self.attribute
    }

    /// The value: escapes undone, or the contents of the BER element after `#`. Borrowed when it was written plainly.
    pub fn value(self) -> Cow<'a, [u8]> {
        if let Some(digits) = self.value.strip_prefix('#') {
            return Cow::Owned(ber_contents(digits).unwrap_or_default());
        }
        if !self.value.contains('\\') {
            return Cow::Borrowed(self.value.as_bytes());
        }
        let mut value = Vec::with_capacity(self.value.len());
        let mut bytes = self.value.bytes();
        while let Some(byte) = bytes.next() {
            if byte != b'\\' {
                value.push(byte);
                continue;
            }
            let Some(first) = bytes.next() else { break };
            match hex_digit(first) {
                Some(high) => {
                    value.push(high << 4 | bytes.next().and_then(hex_digit).unwrap_or_default())
                }
                None => value.push(first),
            }
        }
        Cow::Owned(value)
    }

    /// Divides at the equals sign.
    fn split(text: &'a str) -> Option<Ava<'a>> {
        let (attribute, value) = text.split_once('=')?;
        Some(Ava {
            attribute: trim(attribute),
            value: trim(value),
        })
    }

    fn check(self) -> Result<(), DnError> {
        if !is_descriptor(self.attribute) && !is_numeric_oid(self.attribute) {
            return Err(DnError::BadType);
        }
        if let Some(digits) = self.value.strip_prefix('#') {
            return ber_contents(digits).map(|_| ()).ok_or(DnError::BadHexValue);
        }
        let mut bytes = self.value.bytes();
        while let Some(byte) = bytes.next() {
            match byte {
                b'"' | b';' | b'<' | b'>' | 0 => return Err(DnError::Unescaped(char::from(byte))),
                b'\\' => match bytes.next() {
                    Some(b' ' | b'"' | b'#' | b'+' | b',' | b';' | b'<' | b'=' | b'>' | b'\\') => {}
                    Some(first)
                        if hex_digit(first).is_some()
                            && bytes.next().and_then(hex_digit).is_some() => {}
                    _ => return Err(DnError::BadEscape),
                },
                _ => {}
            }
        }
        Ok(())
    }
}

/// Appends `attribute=value`, the value escaped as RFC 4514 §2.4 asks.
pub fn write_ava(out: &mut String, attribute: &str, value: &[u8]) {
    out.push_str(attribute);
    out.push('=');
    write_value(out, value);
}

/// Appends `value` escaped as RFC 4514 §2.4 asks: special characters behind a backslash, and bytes that are no UTF-8,
/// and control characters, as two hexadecimal digits.
pub fn write_value(out: &mut String, value: &[u8]) {
    let last = value.len().wrapping_sub(1);
    let mut offset = 0;
    for chunk in value.utf8_chunks() {
        for c in chunk.valid().chars() {
            let needs_backslash = match c {
                '"' | '+' | ',' | ';' | '<' | '=' | '>' | '\\' => true,
                '#' => offset == 0,
                ' ' => offset == 0 || offset == last,
                _ => false,
            };
            if c.is_ascii_control() {
                write_hex(out, c as u8);
            } else {
                if needs_backslash {
                    out.push('\\');
                }
                out.push(c);
            }
            offset += c.len_utf8();
        }
        for &byte in chunk.invalid() {
            write_hex(out, byte);
        }
        offset += chunk.invalid().len();
    }
}

fn write_hex(out: &mut String, byte: u8) {
    out.push('\\');
    for digit in [byte >> 4, byte & 15] {
        out.push(char::from_digit(u32::from(digit), 16).unwrap_or_default());
    }
}

fn hex_digit(byte: u8) -> Option<u8> {
    char::from(byte)
        .to_digit(16)
        .and_then(|digit| u8::try_from(digit).ok())
}

/// The contents of the one primitive BER element of definite length that `digits` spell.
fn ber_contents(digits: &str) -> Option<Vec<u8>> {
    let (pairs, rest) = digits.as_bytes().as_chunks::<2>();
    if !rest.is_empty() {
        return None;
    }
    let pair = |[high, low]: &[u8; 2]| Some(hex_digit(*high)? << 4 | hex_digit(*low)?);
    let element: Vec<u8> = pairs.iter().map(pair).collect::<Option<_>>()?;
    let (tag, length, contents) = match element.as_slice() {
        [tag, length @ 0..=0x7f, contents @ ..] => (tag, usize::from(*length), contents),
        [tag, 0x81, length, contents @ ..] => (tag, usize::from(*length), contents),
        [tag, 0x82, high, low, contents @ ..] => (
            tag,
            usize::from(u16::from_be_bytes([*high, *low])),
            contents,
        ),
        _ => return None,
    };
    let primitive_with_one_byte_tag = tag & 0x20 == 0 && tag & 0x1f != 0x1f;
    (primitive_with_one_byte_tag && contents.len() == length).then(|| contents.to_vec())
}

/// Strips the spaces around a part of a name, leaving a space that is escaped.
fn trim(text: &str) -> &str {
    let text = text.trim_start_matches(' ');
    let trimmed = text.trim_end_matches(' ');
    let escaped = trimmed.len() < text.len() && ends_in_escape(trimmed.as_bytes());
    let kept = trimmed.len() + usize::from(escaped);
    text.get(..kept).unwrap_or(trimmed)
}

/// Whether a backslash that is not itself escaped ends `text`.
fn ends_in_escape(text: &[u8]) -> bool {
    text.iter().rev().take_while(|&&byte| byte == b'\\').count() % 2 == 1
}

/// Divides at the first `separator` that is not escaped.
fn split_first(text: &str, separator: u8) -> (&str, Option<&str>) {
    let mut escaped = false;
    for (index, byte) in text.bytes().enumerate() {
        if escaped {
            escaped = false;
        } else if byte == b'\\' {
            escaped = true;
        } else if byte == separator {
            return (text.get(..index).unwrap_or_default(), text.get(index + 1..));
        }
    }
    (text, None)
}

/// Divides at the last `separator` that is not escaped.
fn split_last(text: &str, separator: u8) -> (Option<&str>, &str) {
    for (index, byte) in text.bytes().enumerate().rev() {
        if byte == separator && !text.as_bytes().get(..index).is_some_and(ends_in_escape) {
            return (text.get(..index), text.get(index + 1..).unwrap_or_default());
        }
    }
    (None, text)
}

#[cfg(test)]
mod tests;
