//! Search filters as text (RFC 4515), to and from the BER of [`filter`](crate::filter).

#![deny(clippy::indexing_slicing)]

use std::fmt;

use crate::attribute::{AttributeDescription, is_descriptor, is_numeric_oid};
use crate::ber;
use crate::error::{PartError, Violation};
use crate::filter::{
    ExtensibleMatch, Filter, FilterBuf, FilterView, SubstringPart, open_and, open_not, open_or,
    put_approx_match, put_equality_match, put_extensible_match, put_greater_or_equal,
    put_less_or_equal, put_present, put_substrings,
};
use crate::limits::{FILTER_BYTES_MAX, FILTER_DEPTH_MAX, FILTER_ELEMENTS_MAX};

/// The longest filter text that is read.
pub const FILTER_TEXT_BYTES_MAX: usize = 4 << 20;

/// Why text is not a filter.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{kind} at byte {offset} of the filter")]
pub struct FilterTextError {
    /// Where in the text, in bytes from its start.
    pub offset: usize,
    /// What is wrong there.
    pub kind: FilterTextErrorKind,
}

/// What is wrong with a filter text.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FilterTextErrorKind {
    /// Longer than [`FILTER_TEXT_BYTES_MAX`].
    #[error("text longer than {FILTER_TEXT_BYTES_MAX} bytes")]
    TooLong,
    /// More levels than [`FILTER_DEPTH_MAX`].
    #[error("more than {FILTER_DEPTH_MAX} levels")]
    TooDeep,
    /// More components than [`FILTER_ELEMENTS_MAX`].
    #[error("more than {FILTER_ELEMENTS_MAX} components")]
    TooManyElements,
    /// More than [`FILTER_BYTES_MAX`] as it is sent.
    #[error("more than {FILTER_BYTES_MAX} bytes to be sent")]
    TooManyBytes,
    /// Something else than an opening parenthesis.
    #[error("expected an opening parenthesis")]
    ExpectedOpen,
    /// A parenthesis that is never closed.
    #[error("expected a closing parenthesis")]
    ExpectedClose,
    /// A negation of no filter, or of more than one.
    #[error("! takes exactly one filter")]
    NotOneOperand,
    /// No comparison.
    #[error("expected =, >=, <=, ~= or :=")]
    ExpectedComparison,
    /// What is compared is no attribute description.
    #[error("{0:?} is not an attribute description")]
    BadAttribute(String),
    /// What stands between colons is no matching rule.
    #[error("{0:?} is not the name of a matching rule")]
    BadRule(String),
    /// An extensible match with neither attribute nor rule.
    #[error("an extensible match needs an attribute or a matching rule")]
    NothingToMatch,
    /// A backslash without two hexadecimal digits.
    #[error("a backslash must precede two hexadecimal digits")]
    BadEscape,
    /// A parenthesis or an asterisk that must be escaped.
    #[error("the character {0:?} must be escaped here")]
    Unescaped(char),
    /// Text after the filter.
    #[error("text after the filter")]
    TrailingText,
}

/// Parses a filter. Spaces are allowed around components, and the outermost parentheses may be missing around a
/// single comparison, as the tools of the field do.
pub fn parse(text: &str) -> Result<FilterBuf, FilterTextError> {
    let mut out = Vec::with_capacity(text.len() + 16);
    encode(text, &mut out)?;
    FilterBuf::from_ber(out).map_err(|error| FilterTextError {
        offset: 0,
        kind: match error {
            PartError::Violation(Violation::FilterBytes) => FilterTextErrorKind::TooManyBytes,
            _ => FilterTextErrorKind::TooManyElements,
        },
    })
}

/// Appends the BER of the filter that `text` spells, with the latitude of [`parse`]. After an error `out` holds
/// something unfinished.
pub fn encode(text: &str, out: &mut Vec<u8>) -> Result<(), FilterTextError> {
    if text.len() > FILTER_TEXT_BYTES_MAX {
        return Err(FilterTextError {
            offset: 0,
            kind: FilterTextErrorKind::TooLong,
        });
    }
    let mut parser = Parser {
        text,
        offset: 0,
        elements: 0,
    };
    parser.skip_spaces();
    match parser.peek() {
        Some(b'(') => parser.read_filter(out)?,
        _ => parser.read_comparison(text.len(), out)?,
    }
    parser.skip_spaces();
    match parser.peek() {
        None => Ok(()),
        Some(_) => Err(parser.error(FilterTextErrorKind::TrailingText)),
    }
}

/// An and, or, not whose parenthesis is open.
struct Level {
    element: ber::Open,
    /// For a not: how many filters it has so far.
    negated: Option<usize>,
}

struct Parser<'a> {
    text: &'a str,
    offset: usize,
    elements: usize,
}

impl<'a> Parser<'a> {
    fn read_filter(&mut self, out: &mut Vec<u8>) -> Result<(), FilterTextError> {
        let mut levels: Vec<Level> = Vec::new();
        loop {
            self.skip_spaces();
            match self.peek() {
                Some(b')') if !levels.is_empty() => {}
                Some(b'(') => {
                    self.count_element(levels.last_mut())?;
                    self.offset += 1;
                    self.skip_spaces();
                    let level = match self.peek() {
                        Some(b'&') => Some(Level {
                            element: open_and(out),
                            negated: None,
                        }),
                        Some(b'|') => Some(Level {
                            element: open_or(out),
                            negated: None,
                        }),
                        Some(b'!') => Some(Level {
                            element: open_not(out),
                            negated: Some(0),
                        }),
                        _ => None,
                    };
                    if let Some(level) = level {
                        self.offset += 1;
                        if levels.len() == FILTER_DEPTH_MAX {
                            return Err(self.error(FilterTextErrorKind::TooDeep));
                        }
                        levels.push(level);
                        continue;
                    }
                    let rest = self.text.get(self.offset..).unwrap_or_default();
                    let end = rest
                        .find([')', '('])
                        .map_or(self.text.len(), |end| self.offset + end);
                    self.read_comparison(end, out)?;
                    self.read_close()?;
                }
                _ if levels.is_empty() => return Err(self.error(FilterTextErrorKind::ExpectedOpen)),
                _ => return Err(self.error(FilterTextErrorKind::ExpectedClose)),
            }
            // What was read may have been the last of one or more levels.
            loop {
                self.skip_spaces();
                if levels.is_empty() {
                    return Ok(());
                }
                if self.peek() != Some(b')') {
                    break;
                }
                if levels.last().is_some_and(|level| level.negated == Some(0)) {
                    return Err(self.error(FilterTextErrorKind::NotOneOperand));
                }
                self.offset += 1;
                if let Some(level) = levels.pop() {
                    ber::close(out, level.element);
                }
            }
        }
    }

    fn count_element(&mut self, parent: Option<&mut Level>) -> Result<(), FilterTextError> {
        self.elements += 1;
        if self.elements > FILTER_ELEMENTS_MAX {
            return Err(self.error(FilterTextErrorKind::TooManyElements));
        }
        if let Some(Level {
            negated: Some(operands),
            ..
        }) = parent
        {
            *operands += 1;
            if *operands > 1 {
                return Err(self.error(FilterTextErrorKind::NotOneOperand));
            }
        }
        Ok(())
    }

    /// Reads a comparison that goes on until `end`.
    fn read_comparison(&mut self, end: usize, out: &mut Vec<u8>) -> Result<(), FilterTextError> {
        let text = self.text.get(self.offset..end).unwrap_or_default();
        let Some((left, value)) = text.split_once('=') else {
            return Err(self.error(FilterTextErrorKind::ExpectedComparison));
        };
        let value_offset = self.offset + left.len() + 1;
        let value_of = |parser: &Parser<'_>| {
            if let Some(asterisk) = value.find('*') {
                return Err(
                    parser.error_at(value_offset + asterisk, FilterTextErrorKind::Unescaped('*'))
                );
            }
            parser.unescape(value, value_offset)
        };
        match left.bytes().last() {
            Some(b':') => {
                let value = value_of(self)?;
                self.read_extensible(left.strip_suffix(':').unwrap_or(left), &value, out)?;
            }
            Some(operator @ (b'>' | b'<' | b'~')) => {
                let attribute = self.attribute(left.get(..left.len() - 1).unwrap_or_default())?;
                let value = value_of(self)?;
                match operator {
                    b'>' => put_greater_or_equal(out, attribute, &value),
                    b'<' => put_less_or_equal(out, attribute, &value),
                    _ => put_approx_match(out, attribute, &value),
                }
            }
            _ => {
                let attribute = self.attribute(left)?;
                if value == "*" {
                    put_present(out, attribute);
                } else if value.contains('*') {
                    self.read_substrings(attribute, value, value_offset, out)?;
                } else {
                    put_equality_match(out, attribute, &value_of(self)?);
                }
            }
        }
        self.offset = end;
        Ok(())
    }

    /// Reads what stands before `:=`: `[attribute][:dn][:rule]`.
    fn read_extensible(
        &self,
        left: &str,
        value: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), FilterTextError> {
        let mut words = left.split(':');
        let attribute = words.next().filter(|attribute| !attribute.is_empty());
        let attribute = attribute
            .map(|attribute| self.attribute(attribute))
            .transpose()?;
        let mut words = words.peekable();
        let dn_attributes = words
            .next_if(|word| word.eq_ignore_ascii_case("dn"))
            .is_some();
        let rule = words.next();
        let bad = rule
            .filter(|rule| !is_descriptor(rule) && !is_numeric_oid(rule))
            .or(words.next());
        if let Some(bad) = bad {
            return Err(self.error(FilterTextErrorKind::BadRule(bad.to_owned())));
        }
        if attribute.is_none() && rule.is_none() {
            return Err(self.error(FilterTextErrorKind::NothingToMatch));
        }
        let rule = rule.map(str::as_bytes);
        put_extensible_match(
            out,
            &ExtensibleMatch {
                rule,
                attribute,
                value,
                dn_attributes,
            },
        );
        Ok(())
    }

    fn read_substrings(
        &self,
        attribute: &[u8],
        text: &str,
        offset: usize,
        out: &mut Vec<u8>,
    ) -> Result<(), FilterTextError> {
        let mut parts = Vec::new();
        let mut at = offset;
        for part in text.split('*') {
            parts.push(self.unescape(part, at)?);
            at += part.len() + 1;
        }
        let last = parts.len().saturating_sub(1);
        let as_part = |(index, part)| match index {
            0 => SubstringPart::Initial(part),
            index if index == last => SubstringPart::Final(part),
            _ => SubstringPart::Any(part),
        };
        let parts: Vec<&[u8]> = parts.iter().map(Vec::as_slice).collect();
        let parts = parts
            .into_iter()
            .enumerate()
            .filter(|(_, part)| !part.is_empty())
            .map(as_part);
        let mut parts = parts.peekable();
        if parts.peek().is_none() {
            // Asterisks alone, more than one of them.
            return Err(self.error_at(offset, FilterTextErrorKind::Unescaped('*')));
        }
        put_substrings(out, attribute, parts);
        Ok(())
    }

    fn read_close(&mut self) -> Result<(), FilterTextError> {
        match self.peek() {
            Some(b')') => {
                self.offset += 1;
                Ok(())
            }
            Some(b'(') => Err(self.error(FilterTextErrorKind::Unescaped('('))),
            _ => Err(self.error(FilterTextErrorKind::ExpectedClose)),
        }
    }

    fn attribute<'t>(&self, text: &'t str) -> Result<&'t [u8], FilterTextError> {
        let text = text.trim_matches(' ');
        match AttributeDescription::parse(text) {
            Ok(_) => Ok(text.as_bytes()),
            Err(_) => Err(self.error(FilterTextErrorKind::BadAttribute(text.to_owned()))),
        }
    }

    /// Undoes the escapes of a value that begins at `offset`.
    fn unescape(&self, text: &str, offset: usize) -> Result<Vec<u8>, FilterTextError> {
        let mut value = Vec::with_capacity(text.len());
        let mut bytes = text.bytes().enumerate();
        while let Some((index, byte)) = bytes.next() {
            match byte {
                b'\\' => {
                    let mut digit = || char::from(bytes.next()?.1).to_digit(16);
                    let digits = digit()
                        .zip(digit())
                        .and_then(|(high, low)| u8::try_from(high << 4 | low).ok());
                    let bad = || self.error_at(offset + index, FilterTextErrorKind::BadEscape);
                    value.push(digits.ok_or_else(bad)?);
                }
                b'(' | b')' | 0 => {
                    let kind = FilterTextErrorKind::Unescaped(char::from(byte));
                    return Err(self.error_at(offset + index, kind));
                }
                _ => value.push(byte),
            }
        }
        Ok(value)
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.offset).copied()
    }

    fn skip_spaces(&mut self) {
        while self.peek().is_some_and(|byte| byte.is_ascii_whitespace()) {
            self.offset += 1;
        }
    }

    fn error(&self, kind: FilterTextErrorKind) -> FilterTextError {
        self.error_at(self.offset, kind)
    }

    fn error_at(&self, offset: usize, kind: FilterTextErrorKind) -> FilterTextError {
        FilterTextError { offset, kind }
    }
}

impl std::str::FromStr for FilterBuf {
    type Err = FilterTextError;

    fn from_str(text: &str) -> Result<FilterBuf, FilterTextError> {
        parse(text)
    }
}

/// The text of RFC 4515. A choice that RFC 4511 does not have, which has no text, shows as `(?=unknown)`.
impl fmt::Display for Filter<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.redacted(&|_| false).fmt(f)
    }
}

/// A filter as text for others to read, see [`Filter::redacted`].
#[derive(Clone, Copy)]
pub struct Redacted<'f> {
    filter: Filter<'f>,
    is_secret: &'f dyn Fn(&[u8]) -> bool,
}

impl<'f> Filter<'f> {
    /// The filter as text in which values of the attributes that `is_secret` are left out: it is given their
    /// descriptions, and an empty one where an extensible match names none.
    pub fn redacted(self, is_secret: &'f dyn Fn(&[u8]) -> bool) -> Redacted<'f> {
        Redacted {
            filter: self,
            is_secret,
        }
    }
}

impl Redacted<'_> {
    fn write_value(
        &self,
        f: &mut fmt::Formatter<'_>,
        attribute: &[u8],
        value: &[u8],
    ) -> fmt::Result {
        match (self.is_secret)(attribute) {
            true => write!(f, "<{} bytes>", value.len()),
            false => write_escaped(f, value),
        }
    }

    fn write_comparison(
        &self,
        f: &mut fmt::Formatter<'_>,
        attribute: &[u8],
        operator: &str,
        value: &[u8],
    ) -> fmt::Result {
        write_escaped(f, attribute)?;
        f.write_str(operator)?;
        self.write_value(f, attribute, value)
    }
}

impl fmt::Display for Redacted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The checked filter bounds how deep this goes.
        let is_secret = self.is_secret;
        f.write_str("(")?;
        match self.filter.view() {
            FilterView::And(filters) => {
                f.write_str("&")?;
                let mut filters = filters.iter();
                filters.try_for_each(|filter| filter.redacted(is_secret).fmt(f))?;
            }
            FilterView::Or(filters) => {
                f.write_str("|")?;
                let mut filters = filters.iter();
                filters.try_for_each(|filter| filter.redacted(is_secret).fmt(f))?;
            }
            FilterView::Not(filter) => write!(f, "!{}", filter.redacted(is_secret))?,
            FilterView::EqualityMatch(assertion) => {
                self.write_comparison(f, assertion.attribute, "=", assertion.value)?
            }
            FilterView::GreaterOrEqual(assertion) => {
                self.write_comparison(f, assertion.attribute, ">=", assertion.value)?
            }
            FilterView::LessOrEqual(assertion) => {
                self.write_comparison(f, assertion.attribute, "<=", assertion.value)?
            }
            FilterView::ApproxMatch(assertion) => {
                self.write_comparison(f, assertion.attribute, "~=", assertion.value)?
            }
            FilterView::Present(attribute) => {
                write_escaped(f, attribute)?;
                f.write_str("=*")?;
            }
            FilterView::Substrings(substrings) => {
                let attribute = substrings.attribute;
                write_escaped(f, attribute)?;
                f.write_str("=")?;
                let mut ended = false;
                for (index, part) in substrings.parts().enumerate() {
                    match part {
                        SubstringPart::Initial(part) => self.write_value(f, attribute, part)?,
                        SubstringPart::Any(part) => {
                            f.write_str(if index == 0 { "*" } else { "" })?;
                            self.write_value(f, attribute, part)?;
                        }
                        SubstringPart::Final(part) => {
                            f.write_str(if index == 0 { "*" } else { "" })?;
                            self.write_value(f, attribute, part)?;
                            ended = true;
                        }
                    }
                    f.write_str(if ended { "" } else { "*" })?;
                }
            }
            FilterView::ExtensibleMatch(matched) => {
                let attribute = matched.attribute.unwrap_or_default();
                write_escaped(f, attribute)?;
                f.write_str(if matched.dn_attributes { ":dn" } else { "" })?;
                if let Some(rule) = matched.rule {
                    f.write_str(":")?;
                    write_escaped(f, rule)?;
                }
                f.write_str(":=")?;
                self.write_value(f, attribute, matched.value)?;
            }
            FilterView::Unknown => f.write_str("?=unknown")?,
        }
        f.write_str(")")
    }
}

impl fmt::Display for FilterBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_filter().fmt(f)
    }
}

/// Writes `value` with its special characters, its control characters and what is no UTF-8 escaped.
fn write_escaped(f: &mut fmt::Formatter<'_>, value: &[u8]) -> fmt::Result {
    for chunk in value.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '(' | ')' | '*' | '\\' | '\0'..='\x1f' | '\x7f' => {
                    write!(f, "\\{:02x}", u32::from(c))?
                }
                c => write!(f, "{c}")?,
            }
        }
        for byte in chunk.invalid() {
            write!(f, "\\{byte:02x}")?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
