//! The subset of BER that LDAP uses (RFC 4511 §5.1): definite lengths, one-octet tags, primitive strings.
//!
//! Reading never allocates and never looks outside the bytes it was given. Writing appends to a `Vec<u8>`;
//! every length it writes is minimal.

#![deny(clippy::indexing_slicing)]

use crate::error::{Malformed, Violation};

/// Tag of a BOOLEAN.
pub const BOOLEAN: u8 = 0x01;
/// Tag of an INTEGER.
pub const INTEGER: u8 = 0x02;
/// Tag of an OCTET STRING.
pub const OCTET_STRING: u8 = 0x04;
/// Tag of an ENUMERATED.
pub const ENUMERATED: u8 = 0x0a;
/// Tag of a SEQUENCE or SEQUENCE OF.
pub const SEQUENCE: u8 = 0x30;
/// Tag of a SET OF.
pub const SET: u8 = 0x31;

/// Tag of a primitive context-specific element, `[number]`.
pub const fn context(number: u8) -> u8 {
    0x80 | number
}

/// Tag of a constructed context-specific element, `[number]`.
pub const fn context_constructed(number: u8) -> u8 {
    0xa0 | number
}

/// Most length octets that are understood after the first one; the number they hold must fit 64 bits.
pub const LENGTH_OCTETS_MAX: usize = 8;

/// What the first octets of an element say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Header {
    /// Tag, octets of the header itself, octets of the content.
    Complete {
        tag: u8,
        header: usize,
        content: u64,
    },
    /// At least this many octets are needed to know the header.
    Incomplete(usize),
}

/// Reads a tag and a length; the content need not be there yet.
pub(crate) fn header(bytes: &[u8]) -> Result<Header, Malformed> {
    let (tag, first) = match *bytes {
        [] => return Ok(Header::Incomplete(2)),
        [tag, ..] if tag & 0x1f == 0x1f => return Err(Malformed::TagNumber),
        [_] => return Ok(Header::Incomplete(2)),
        [tag, first, ..] => (tag, first),
    };
    let octets = match first {
        0x00..=0x7f => {
            return Ok(Header::Complete {
                tag,
                header: 2,
                content: u64::from(first),
            });
        }
        0x80 => return Err(Malformed::IndefiniteLength),
        _ => usize::from(first & 0x7f),
    };
    if octets > LENGTH_OCTETS_MAX {
        return Err(Malformed::LengthOctets);
    }
    let Some(length) = bytes.get(2..2 + octets) else {
        return Ok(Header::Incomplete(2 + octets));
    };
    let content = length
        .iter()
        .fold(0u64, |value, octet| (value << 8) | u64::from(*octet));
    Ok(Header::Complete {
        tag,
        header: 2 + octets,
        content,
    })
}

/// Walks over the elements in a run of bytes.
///
/// `field` arguments name the field of RFC 4511 being read; they only serve error messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// Starts at the first of `bytes`.
    #[inline]
    pub const fn new(bytes: &'a [u8]) -> Self {
        Reader { rest: bytes }
    }

    /// What has not been read yet.
    #[inline]
    pub const fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// Whether everything has been read.
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// The tag of the next element.
    #[inline]
    pub fn peek(&self) -> Option<u8> {
        self.rest.first().copied()
    }

    /// The next element, whatever it is: its tag and its content.
    #[inline]
    pub fn element(&mut self, field: &'static str) -> Result<(u8, &'a [u8]), Malformed> {
        let [tag, length @ 0x00..=0x7f, rest @ ..] = self.rest else {
            return self.long_element(field);
        };
        let Some((content, rest)) = rest.split_at_checked(usize::from(*length)) else {
            return Err(Malformed::Truncated { field });
        };
        if tag & 0x1f == 0x1f {
            return Err(Malformed::TagNumber);
        }
        self.rest = rest;
        Ok((*tag, content))
    }

    fn long_element(&mut self, field: &'static str) -> Result<(u8, &'a [u8]), Malformed> {
        if self.rest.is_empty() {
            return Err(Malformed::Missing { field });
        }
        let truncated = Malformed::Truncated { field };
        let Header::Complete {
            tag,
            header,
            content,
        } = header(self.rest)?
        else {
            return Err(truncated);
        };
        let content = usize::try_from(content).map_err(|_| truncated)?;
        let (_, rest) = self.rest.split_at_checked(header).ok_or(truncated)?;
        let (content, rest) = rest.split_at_checked(content).ok_or(truncated)?;
        self.rest = rest;
        Ok((tag, content))
    }

    /// The content of the next element, which must have this tag.
    #[inline]
    pub fn expect(&mut self, expected: u8, field: &'static str) -> Result<&'a [u8], Malformed> {
        let (found, content) = self.element(field)?;
        if found != expected {
            return Err(Malformed::Tag {
                field,
                expected,
                found,
            });
        }
        Ok(content)
    }

    /// The content of the next element if it has this tag; otherwise it is left for the next call.
    #[inline]
    pub fn optional(
        &mut self,
        tag: u8,
        field: &'static str,
    ) -> Result<Option<&'a [u8]>, Malformed> {
        if self.peek() == Some(tag) {
            self.expect(tag, field).map(Some)
        } else {
            Ok(None)
        }
    }

    /// An OCTET STRING.
    #[inline]
    pub fn octets(&mut self, field: &'static str) -> Result<&'a [u8], Malformed> {
        self.expect(OCTET_STRING, field)
    }

    /// An INTEGER of at most 64 bits.
    #[inline]
    pub fn integer(&mut self, field: &'static str) -> Result<i64, Malformed> {
        integer(self.expect(INTEGER, field)?, field)
    }

    /// An ENUMERATED of at most 64 bits.
    #[inline]
    pub fn enumerated(&mut self, field: &'static str) -> Result<i64, Malformed> {
        integer(self.expect(ENUMERATED, field)?, field)
    }

    /// A BOOLEAN. Any octet but zero reads as TRUE: BER allows it, and RFC 4511 §5.1 binds only who writes.
    #[inline]
    pub fn boolean(&mut self, field: &'static str) -> Result<bool, Malformed> {
        boolean(self.expect(BOOLEAN, field)?, field)
    }

    /// Refuses what is left, where nothing may be.
    #[inline]
    pub fn end(&self) -> Result<(), Malformed> {
        match self.is_empty() {
            true => Ok(()),
            false => Err(Malformed::Trailing),
        }
    }

    /// Passes over the trailing components that RFC 4511 §4 tells us to ignore; they must still be whole elements.
    #[inline]
    pub fn skip_extensions(&mut self) -> Result<(), Malformed> {
        while !self.is_empty() {
            self.element("extension")?;
        }
        Ok(())
    }
}

/// The number in the content of an INTEGER or ENUMERATED of at most 64 bits.
#[inline]
pub fn integer(content: &[u8], field: &'static str) -> Result<i64, Malformed> {
    match content {
        [octet] => Ok(i64::from(octet.cast_signed())),
        [first, rest @ ..] if rest.len() < 8 => {
            let start = i64::from(first.cast_signed());
            Ok(rest
                .iter()
                .fold(start, |value, octet| (value << 8) | i64::from(*octet)))
        }
        _ => Err(Malformed::Integer { field }),
    }
}

/// The truth in the content of a BOOLEAN.
#[inline]
pub fn boolean(content: &[u8], field: &'static str) -> Result<bool, Malformed> {
    match content {
        [octet] => Ok(*octet != 0),
        _ => Err(Malformed::Boolean { field }),
    }
}

/// The text in the content of an LDAPString (RFC 4511 §4.1.2).
#[inline]
pub(crate) fn utf8<'a>(octets: &'a [u8], field: &'static str) -> Result<&'a str, Violation> {
    std::str::from_utf8(octets).map_err(|_| Violation::NotUtf8 { field })
}

/// Octets that [`put_header`] writes for a content of this many octets.
#[inline]
pub const fn header_len(content: usize) -> usize {
    2 + long_octets(content)
}

/// Octets of a whole element with a content of this many octets.
#[inline]
pub const fn element_len(content: usize) -> usize {
    header_len(content) + content
}

/// Length octets after the first one.
#[inline]
const fn long_octets(content: usize) -> usize {
    if content < 0x80 {
        0
    } else {
        (content.ilog2() / 8 + 1) as usize
    }
}

/// A tag and a length below 2^16, which nearly all are: the octets from the first on as a little-endian number, and how
/// many they are.
#[inline]
const fn short_header(tag: u8, content: u16) -> (u32, usize) {
    let [high, low] = content.to_be_bytes();
    match content {
        0x00..=0x7f => (u32::from_le_bytes([tag, low, 0, 0]), 2),
        0x80..=0xff => (u32::from_le_bytes([tag, 0x81, low, 0]), 3),
        0x100.. => (u32::from_le_bytes([tag, 0x82, high, low]), 4),
    }
}

/// The content of an INTEGER or ENUMERATED in the same form.
#[inline]
const fn integer_content(value: i64) -> (u64, usize) {
    let octets = integer_len(value);
    (
        value.cast_unsigned().swap_bytes() >> (64 - 8 * octets),
        octets,
    )
}

/// Appends the first `octets` of `bytes`. All are copied and the others dropped again, as a copy of known size is
/// cheaper.
#[inline]
fn put_first<const N: usize>(out: &mut Vec<u8>, bytes: &[u8; N], octets: usize) {
    let end = out.len() + octets;
    out.extend_from_slice(bytes);
    out.truncate(end);
}

/// Appends a tag and a length.
#[inline]
pub fn put_header(out: &mut Vec<u8>, tag: u8, content: usize) {
    match u16::try_from(content) {
        Ok(content) => {
            let (header, octets) = short_header(tag, content);
            put_first(out, &header.to_le_bytes(), octets);
        }
        Err(_) => put_long_header(out, tag, content),
    }
}

#[cold]
fn put_long_header(out: &mut Vec<u8>, tag: u8, content: usize) {
    out.extend_from_slice(&[tag, 0x80 | long_octets(content) as u8]);
    out.extend(long_length(content));
}

/// The length octets after the first.
fn long_length(content: usize) -> impl Iterator<Item = u8> {
    let octets = content.to_be_bytes().into_iter();
    octets.skip(size_of::<usize>() - long_octets(content))
}

/// The headers that a message begins with, put together here and appended in one piece.
#[derive(Debug)]
pub(crate) struct Head {
    bytes: [u8; Head::BYTES],
    len: usize,
}

impl Head {
    /// Room for an INTEGER of 32 bits and three headers.
    const BYTES: usize = 40;

    pub(crate) const fn new() -> Head {
        Head {
            bytes: [0; Head::BYTES],
            len: 0,
        }
    }

    /// Adds a tag and a length: the third one at most.
    #[inline]
    pub(crate) fn push_header(&mut self, tag: u8, content: usize) {
        match u16::try_from(content) {
            Ok(content) => {
                let (header, octets) = short_header(tag, content);
                self.push_first(header.to_le_bytes(), octets);
            }
            Err(_) => self.push_long_header(tag, content),
        }
    }

    #[cold]
    fn push_long_header(&mut self, tag: u8, content: usize) {
        self.push_first([tag, 0x80 | long_octets(content) as u8], 2);
        for octet in long_length(content) {
            self.push_first([octet], 1);
        }
    }

    /// Adds an INTEGER: one at most.
    #[inline]
    pub(crate) fn push_integer(&mut self, value: u32) {
        let (content, octets) = integer_content(i64::from(value));
        // Five octets at most, behind two.
        let element = content << 16 | (octets as u64) << 8 | u64::from(INTEGER);
        self.push_first(element.to_le_bytes(), 2 + octets);
    }

    #[inline]
    #[expect(
        clippy::indexing_slicing,
        reason = "there is room for all that may be pushed"
    )]
    fn push_first<const N: usize>(&mut self, bytes: [u8; N], octets: usize) {
        self.bytes[self.len..][..N].copy_from_slice(&bytes);
        self.len += octets;
    }

    /// Appends them all.
    #[inline]
    pub(crate) fn put(&self, out: &mut Vec<u8>) {
        put_first(out, &self.bytes, self.len);
    }
}

/// Appends an element with this content.
#[inline]
pub fn put_octets(out: &mut Vec<u8>, tag: u8, content: &[u8]) {
    put_header(out, tag, content.len());
    out.extend_from_slice(content);
}

/// Octets of the shortest content of an INTEGER or ENUMERATED.
#[inline]
pub const fn integer_len(value: i64) -> usize {
    let magnitude = if value < 0 { !value } else { value };
    ((64 - magnitude.leading_zeros()) / 8 + 1) as usize
}

/// Appends an INTEGER or ENUMERATED, or whatever `tag` says in their place.
#[inline]
pub fn put_integer(out: &mut Vec<u8>, tag: u8, value: i64) {
    out.extend_from_slice(&[tag, integer_len(value) as u8]);
    put_integer_content(out, value);
}

/// Appends the content of an INTEGER or ENUMERATED alone.
#[inline]
pub(crate) fn put_integer_content(out: &mut Vec<u8>, value: i64) {
    let (content, octets) = integer_content(value);
    put_first(out, &content.to_le_bytes(), octets);
}

/// Appends a BOOLEAN, or whatever `tag` says in its place; TRUE is FF (RFC 4511 §5.1).
#[inline]
pub fn put_boolean(out: &mut Vec<u8>, tag: u8, value: bool) {
    out.extend_from_slice(&[tag, 1, if value { 0xff } else { 0 }]);
}

/// A constructed element whose content is still being appended; [`close`] must follow.
#[derive(Debug)]
#[must_use = "an element that is not closed has no length"]
pub struct Open {
    /// Where its content starts.
    start: usize,
    /// Length octets after the first that room was left for.
    octets: usize,
}

/// Starts an element whose length is not known yet. `expected` is a guess at its content's octets: a guess of the
/// right order of magnitude saves moving the content when the element is closed.
#[inline]
pub fn open(out: &mut Vec<u8>, tag: u8, expected: usize) -> Open {
    put_header(out, tag, expected);
    Open {
        start: out.len(),
        octets: long_octets(expected),
    }
}

/// Writes the length of everything appended since [`open`].
///
/// # Panics
/// When `out` was cut back to before the element's start: a mistake of the caller, never of its input.
#[expect(clippy::indexing_slicing, reason = "the header was written by `open`")]
pub fn close(out: &mut Vec<u8>, element: Open) {
    let content = out.len() - element.start;
    let octets = long_octets(content);
    let mut start = element.start;
    if octets > element.octets {
        let more = octets - element.octets;
        out.resize(out.len() + more, 0);
        out.copy_within(start..start + content, start + more);
        start += more;
    } else if octets < element.octets {
        let fewer = element.octets - octets;
        out.copy_within(start.., start - fewer);
        out.truncate(out.len() - fewer);
        start -= fewer;
    }
    if octets == 0 {
        out[start - 1] = content as u8;
        return;
    }
    out[start - octets - 1] = 0x80 | octets as u8;
    for octet in 0..octets {
        out[start - 1 - octet] = (content >> (8 * octet)) as u8;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(bytes: &[u8]) -> Result<(u8, &[u8]), Malformed> {
        Reader::new(bytes).element("x")
    }

    #[test]
    fn reads_short_and_long_lengths() {
        assert_eq!(one(&[4, 1, 7, 9]), Ok((4, &[7][..])));
        assert_eq!(one(&[4, 0x81, 1, 7, 9]), Ok((4, &[7][..])));
        assert_eq!(one(&[4, 0x84, 0, 0, 0, 1, 7]), Ok((4, &[7][..])));
        assert_eq!(
            one(&[4, 0x88, 0, 0, 0, 0, 0, 0, 0, 1, 7]),
            Ok((4, &[7][..]))
        );
    }

    #[test]
    fn refuses_what_ldap_forbids() {
        assert_eq!(one(&[]), Err(Malformed::Missing { field: "x" }));
        assert_eq!(one(&[4]), Err(Malformed::Truncated { field: "x" }));
        assert_eq!(one(&[4, 2, 0]), Err(Malformed::Truncated { field: "x" }));
        assert_eq!(one(&[4, 0x82, 1]), Err(Malformed::Truncated { field: "x" }));
        assert_eq!(one(&[0x24, 0x80, 0, 0]), Err(Malformed::IndefiniteLength));
        assert_eq!(
            one(&[4, 0x89, 0, 0, 0, 0, 0, 0, 0, 0, 1, 7]),
            Err(Malformed::LengthOctets)
        );
        assert_eq!(one(&[4, 0xff, 0]), Err(Malformed::LengthOctets));
        assert_eq!(one(&[0x1f, 1, 0]), Err(Malformed::TagNumber));
        assert_eq!(
            one(&[4, 0x88, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]),
            Err(Malformed::Truncated { field: "x" })
        );
        // A constructed OCTET STRING.
        assert_eq!(
            Reader::new(&[0x24, 0]).octets("x"),
            Err(Malformed::Tag {
                field: "x",
                expected: 4,
                found: 0x24
            })
        );
    }

    #[test]
    fn numbers_survive_in_the_shortest_form() {
        let mut out = Vec::new();
        for (value, octets) in [
            (0, 1),
            (1, 1),
            (127, 1),
            (128, 2),
            (-1, 1),
            (-128, 1),
            (-129, 2),
            (32767, 2),
            (32768, 3),
            (i64::from(i32::MAX), 4),
            (i64::MAX, 8),
            (i64::MIN, 8),
        ] {
            out.clear();
            put_integer(&mut out, INTEGER, value);
            assert_eq!(out.len(), 2 + octets, "{value}");
            assert_eq!(Reader::new(&out).integer("x"), Ok(value));
        }
        assert_eq!(integer(&[], "x"), Err(Malformed::Integer { field: "x" }));
        assert_eq!(
            integer(&[0; 9], "x"),
            Err(Malformed::Integer { field: "x" })
        );
        assert_eq!(integer(&[0, 0, 0, 5], "x"), Ok(5));
    }

    #[test]
    fn an_open_element_gets_its_length_whatever_was_expected() {
        let sizes = [0, 1, 127, 128, 255, 256, 65535, 65536, 70000];
        for content in sizes {
            for expected in sizes {
                let mut out = vec![0xee];
                let element = open(&mut out, SEQUENCE, expected);
                out.extend((0..content).map(|n| n as u8));
                close(&mut out, element);
                let mut direct = vec![0xee];
                put_octets(
                    &mut direct,
                    SEQUENCE,
                    &(0..content).map(|n| n as u8).collect::<Vec<_>>(),
                );
                assert_eq!(out, direct, "{content} octets, {expected} expected");
                assert_eq!(out.len() - 1, element_len(content));
            }
        }
    }

    #[test]
    fn headers_put_together_are_those_put_one_by_one() {
        let lengths = [0, 1, 127, 128, 255, 256, 65535, 65536, usize::MAX];
        for (content, id) in
            lengths
                .into_iter()
                .zip([0, 1, 127, 128, 300, 32767, 32768, 1 << 23, u32::MAX])
        {
            let mut head = Head::new();
            let mut one_by_one = vec![0xee];
            head.push_header(SEQUENCE, content);
            put_header(&mut one_by_one, SEQUENCE, content);
            assert_eq!(one_by_one.len() - 1, header_len(content));
            head.push_integer(id);
            put_integer(&mut one_by_one, INTEGER, i64::from(id));
            for other in [usize::MAX, content] {
                head.push_header(OCTET_STRING, other);
                put_header(&mut one_by_one, OCTET_STRING, other);
            }
            let mut together = vec![0xee];
            head.put(&mut together);
            assert_eq!(together, one_by_one, "{content} octets, {id}");
        }
    }
}
