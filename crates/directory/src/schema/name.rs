//! Normal forms of distinguished names (distinguishedNameMatch, RFC 4517 §4.2.15).

#![deny(clippy::indexing_slicing)]

use sapwood_ldap::dn::{Ava, DN_BYTES_MAX, Dn, DnError, RDNS_MAX, Rdn};

use super::prepare::{Shape, append_printable, prepare};
use super::rule::Method;
use super::{AttributeType, InvalidValue, Schema};
use crate::steps;

/// Why a DN has no normal form.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidName {
    /// The text is not a DN.
    #[error(transparent)]
    Text(#[from] DnError),
    /// A value is not of its attribute type's syntax.
    #[error("the value of {attribute} in {rdn:?} is {error}")]
    Value {
        /// The attribute type as written.
        attribute: String,
        /// The RDN as written.
        rdn: String,
        /// What is wrong with the value.
        error: InvalidValue,
    },
    /// An attribute type stands twice in one RDN (RFC 4512 §2.3.1).
    #[error("{attribute} occurs twice in {rdn:?}")]
    DuplicateType {
        /// The attribute type as written.
        attribute: String,
        /// The RDN as written.
        rdn: String,
    },
}

/// Ends an attribute value that is not the last of its RDN.
const AVA_END: [u8; 2] = [0, 1];
/// Ends an RDN.
const RDN_END: [u8; 2] = [0, 0];

/// The normal form of a DN, reusable: each RDN by the equality rules of its attribute types, the RDN next to the
/// root first. Two DNs match exactly when their [`bytes`](Self::bytes) are equal, and a DN is at or below
/// another exactly when its bytes begin with the other's.
///
/// An RDN is its attribute values sorted, each as lower-case type name, `=`, normal value with 0x00 written as 0x00
/// 0xFF; 0x00 0x01 stands between two of them and 0x00 0x00 after the last. The value of a type that the schema does
/// not know, or that has no equality rule, is taken as it is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NormalDn {
    bytes: Vec<u8>,
    /// The end of each RDN in `bytes`, after its terminator.
    ends: Vec<u32>,
}

impl NormalDn {
    /// An empty DN: the root.
    pub fn new() -> NormalDn {
        NormalDn::default()
    }

    /// Replaces the content by the normal form of an RFC 4514 string.
    ///
    /// # Errors
    /// When it is not a DN, or a value is not of its type's syntax; the content is then the root.
    pub fn parse(&mut self, schema: &Schema, dn: &[u8]) -> Result<(), InvalidName> {
        if self.parse_plain(schema, dn) {
            return Ok(());
        }
        for rdn in Dn::from_bytes(dn)?.rdns().rev() {
            if let Err(error) = self.push(schema, rdn) {
                self.truncate(0);
                return Err(error);
            }
        }
        Ok(())
    }

    /// As [`parse`](Self::parse) for a name as plain as most are: printable ASCII without escapes, one value to an RDN,
    /// of types that hold text. Whether it is; if not, the content is the root.
    pub(crate) fn parse_plain(&mut self, schema: &Schema, dn: &[u8]) -> bool {
        self.truncate(0);
        let is_plain = append_plain(schema, dn, &mut self.bytes, |end| self.ends.push(end));
        if !is_plain {
            self.ends.clear();
            self.bytes.clear();
        }
        is_plain
    }

    /// Puts an RDN that is written plainly in the place of the last. Whether it is; if not, the content is the name
    /// above.
    pub(crate) fn replace_plain(&mut self, schema: &Schema, rdn: &[u8]) -> bool {
        let above = self.len().saturating_sub(1);
        self.truncate(above);
        let start = self.bytes.len();
        let is_plain = !rdn.contains(&b',')
            && append_plain(schema, rdn, &mut self.bytes, |end| self.ends.push(end));
        if !is_plain {
            self.ends.truncate(above);
            self.bytes.truncate(start);
        }
        is_plain
    }

    /// Adds an RDN below.
    ///
    /// # Errors
    /// When a value is not of its type's syntax; the content is then as before.
    pub fn push(&mut self, schema: &Schema, rdn: Rdn<'_>) -> Result<(), InvalidName> {
        append_rdn(schema, rdn, Nesting::Outer, &mut self.bytes)?;
        // A DN's text is limited to DN_BYTES_MAX, and its normal form to a small multiple of that.
        self.ends
            .push(u32::try_from(self.bytes.len()).unwrap_or(u32::MAX));
        Ok(())
    }

    /// Appends the normal form of an RFC 4514 string to `out`, without where its RDNs end.
    ///
    /// # Errors
    /// As [`parse`](Self::parse); `out` is then as before.
    pub fn append(schema: &Schema, dn: &[u8], out: &mut Vec<u8>) -> Result<(), InvalidName> {
        let start = out.len();
        if append_plain(schema, dn, out, |_| {}) {
            return Ok(());
        }
        out.truncate(start);
        append_rdns(schema, dn, Nesting::Outer, out).inspect_err(|_| out.truncate(start))
    }

    /// Whether what the bytes of a name have beyond those of a name above it is exactly one RDN.
    pub(super) fn is_one_rdn(bytes: &[u8]) -> bool {
        // An RDN begins with the name of a type, and a value has no zero byte without 0xFF behind it: both bytes of the
        // first pair of zeros end an RDN.
        let end = bytes.windows(2).position(|pair| pair == RDN_END);
        end.is_some_and(|end| end + RDN_END.len() == bytes.len())
    }

    /// Number of RDNs.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether this is the root, the DN of no RDN.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The whole normal form.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The RDNs from the one next to the root to the entry's own, with their terminators.
    pub fn rdns(&self) -> impl DoubleEndedIterator<Item = &[u8]> + ExactSizeIterator {
        (0..self.ends.len()).map(|at| {
            self.bytes
                .get(self.end_of(at)..self.end_of(at + 1))
                .unwrap_or_default()
        })
    }

    /// It as a string: what the DN would be if all its values were written in normal form. Access rules compare it with
    /// regular expressions.
    pub fn to_text(&self) -> String {
        let mut text = String::with_capacity(self.bytes.len());
        for (at, rdn) in self.rdns().rev().enumerate() {
            if at > 0 {
                text.push(',');
            }
            append_text(rdn.strip_suffix(&RDN_END).unwrap_or(rdn), &mut text);
        }
        text
    }

    /// The name that has these [`bytes`](Self::bytes).
    pub(crate) fn from_normal(bytes: &[u8]) -> NormalDn {
        let mut normal = NormalDn {
            bytes: bytes.to_vec(),
            ends: Vec::new(),
        };
        let mut at = 0;
        while let Some(byte) = bytes.get(at) {
            // What stands behind 0x00 tells an end from a value's own 0x00.
            at += 1 + usize::from(*byte == 0);
            if *byte == 0 && bytes.get(at - 1) == Some(&0) {
                normal.ends.push(at as u32);
            }
        }
        normal
    }

    /// Whether this is `other` or below it.
    pub fn is_at_or_below(&self, other: &NormalDn) -> bool {
        self.bytes.starts_with(&other.bytes)
    }

    /// Keeps the first `rdns` RDNs, counted from the root, and drops those below.
    pub fn truncate(&mut self, rdns: usize) {
        self.ends.truncate(rdns);
        self.bytes.truncate(self.end_of(self.ends.len()));
    }

    /// Where the first `rdns` RDNs end.
    fn end_of(&self, rdns: usize) -> usize {
        rdns.checked_sub(1)
            .and_then(|last| self.ends.get(last))
            .map_or(0, |end| *end as usize)
    }
}

/// Appends an RDN in normal form, without its end, as text.
fn append_text(rdn: &[u8], out: &mut String) {
    let text = String::from_utf8_lossy(rdn);
    let mut letters = text.chars().peekable();
    let (mut is_value, mut is_first) = (false, true);
    while let Some(letter) = letters.next() {
        match letter {
            '\0' if letters.peek() == Some(&'\u{1}') => {
                letters.next();
                out.push('+');
                (is_value, is_first) = (false, true);
                continue;
            }
            // Behind it stands what is not UTF-8.
            '\0' => {
                letters.next();
                out.push_str("\\00");
            }
            '=' if !is_value => {
                is_value = true;
                out.push('=');
                continue;
            }
            ',' | '+' | '"' | '\\' | '<' | '>' | ';' => {
                out.push_str(&format!("\\{:02X}", u32::from(letter)))
            }
            ' ' | '#' if is_value && is_first => {
                out.push_str(&format!("\\{:02X}", u32::from(letter)))
            }
            ' ' if letters.peek().is_none() => out.push_str("\\20"),
            letter => out.push(letter),
        }
        is_first = !is_value;
    }
}

/// DNs in normal form, one after the other: mostly a sibling of the one before, so that only its RDN is new.
#[derive(Debug, Default)]
pub(crate) struct Siblings {
    normal: NormalDn,
    /// What stands behind the RDN of the name before, if that is written plainly.
    above: Option<Vec<u8>>,
}

impl Siblings {
    /// Reads a DN. Answers the RDN if the DN is written as plainly as most are: printable ASCII without escapes and
    /// spaces around it.
    pub(crate) fn read<'d>(
        &mut self,
        schema: &Schema,
        dn: &'d str,
    ) -> Result<Option<&'d str>, InvalidName> {
        let (rdn, above) = dn.split_at(dn.find(',').unwrap_or(dn.len()));
        let is_sibling =
            dn.len() <= DN_BYTES_MAX && self.above.as_deref() == Some(above.as_bytes());
        if !(is_sibling && self.normal.replace_plain(schema, rdn.as_bytes())) {
            if !self.normal.parse_plain(schema, dn.as_bytes()) {
                self.above = None;
                self.normal.parse(schema, dn.as_bytes())?;
                return Ok(None);
            }
            let known = self.above.get_or_insert_default();
            known.clear();
            known.extend_from_slice(above.as_bytes());
        }
        Ok((rdn.trim_matches(' ').len() == rdn.len()).then_some(rdn))
    }

    /// The DN that was read last.
    pub(crate) fn normal(&self) -> &NormalDn {
        &self.normal
    }
}

/// Appends the normal form of a name in one pass, if it is as plain as most are: printable ASCII without escapes, one
/// value to an RDN, of types that hold text. `ended` is told where each RDN ends. Otherwise `false`, with any part of
/// the form appended.
fn append_plain(schema: &Schema, dn: &[u8], out: &mut Vec<u8>, mut ended: impl FnMut(u32)) -> bool {
    let plain = |byte: &u8| {
        (byte.wrapping_sub(b' ') < 0x5f)
            & !matches!(byte, b'"' | b'#' | b'+' | b';' | b'<' | b'>' | b'\\')
    };
    // Without an early exit, so that it compiles to vector instructions.
    if dn.is_empty()
        || dn.len() > DN_BYTES_MAX
        || !dn.iter().fold(true, |all, byte| all & plain(byte))
    {
        return false;
    }
    steps::count(dn.len());
    let has_spaces = dn.contains(&b' ');
    // Each comma makes room for most of what ends an RDN.
    out.reserve(dn.len() + 8);
    // Most have the type of the one above: dc=example,dc=com.
    let mut above: Option<(&[u8], &AttributeType)> = None;
    for (count, rdn) in dn.rsplit(|byte| *byte == b',').enumerate() {
        let Some(equals) = rdn.iter().position(|byte| *byte == b'=') else {
            return false;
        };
        let Some((name, [_, value @ ..])) = rdn.split_at_checked(equals) else {
            return false;
        };
        let (name, is_empty) = match has_spaces {
            true => (name.trim_ascii(), value.trim_ascii().is_empty()),
            false => (name, value.is_empty()),
        };
        let known = match above {
            Some((same, known)) if same == name => known,
            _ => match schema.attribute_type(name) {
                Some(known) => known,
                None => return false,
            },
        };
        above = Some((name, known));
        let (Some(case), false, true) = (known.plain_text, is_empty, count < RDNS_MAX) else {
            return false;
        };
        out.extend_from_slice(known.key_name().as_bytes());
        out.push(b'=');
        if !has_spaces {
            append_printable(value, case, out);
        } else if prepare(value, case, Shape::Words, out).is_err() {
            return false;
        }
        out.extend_from_slice(&RDN_END);
        ended(u32::try_from(out.len()).unwrap_or(u32::MAX));
    }
    true
}

/// Where a name stands. The value of an attribute type with DN syntax is itself a name, and that name may have such
/// values again, without end: the third and deeper ones are compared octet by octet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Nesting {
    Outer,
    Inner,
}

/// Appends the normal forms of all RDNs of a name; what was appended before an error stays.
fn append_rdns(
    schema: &Schema,
    dn: &[u8],
    nesting: Nesting,
    out: &mut Vec<u8>,
) -> Result<(), InvalidName> {
    steps::count(dn.len());
    Dn::from_bytes(dn)?
        .rdns()
        .rev()
        .try_for_each(|rdn| append_rdn(schema, rdn, nesting, out))
}

/// Appends the normal form of an RDN with its terminator; `out` is as before after an error.
fn append_rdn(
    schema: &Schema,
    rdn: Rdn<'_>,
    nesting: Nesting,
    out: &mut Vec<u8>,
) -> Result<(), InvalidName> {
    let start = out.len();
    let mut avas = rdn.avas();
    let first = avas.next();
    let second = avas.next();
    let result = match (first, second) {
        (Some(only), None) => append_ava(schema, rdn, only, nesting, out),
        _ => append_sorted(schema, rdn, nesting, out),
    };
    match result {
        Ok(()) => out.extend_from_slice(&RDN_END),
        Err(_) => out.truncate(start),
    }
    result
}

/// Appends the attribute values of an RDN of several, sorted.
fn append_sorted(
    schema: &Schema,
    rdn: Rdn<'_>,
    nesting: Nesting,
    out: &mut Vec<u8>,
) -> Result<(), InvalidName> {
    let mut sorted = Vec::new();
    for ava in rdn.avas() {
        let mut bytes = Vec::new();
        append_ava(schema, rdn, ava, nesting, &mut bytes)?;
        sorted.push((bytes, ava.attribute()));
    }
    sorted.sort_unstable_by(|one, other| {
        steps::count(1);
        one.cmp(other)
    });
    let type_of = |bytes: &[u8]| bytes.iter().position(|byte| *byte == b'=');
    for pair in sorted.windows(2) {
        if let [(one, _), (other, attribute)] = pair
            && type_of(one).map(|end| one.get(..end)) == type_of(other).map(|end| other.get(..end))
        {
            return Err(InvalidName::DuplicateType {
                attribute: (*attribute).to_owned(),
                rdn: rdn.as_str().to_owned(),
            });
        }
    }
    for (at, (bytes, _)) in sorted.iter().enumerate() {
        if at > 0 {
            out.extend_from_slice(&AVA_END);
        }
        out.extend_from_slice(bytes);
    }
    Ok(())
}

/// Appends type, equals sign and escaped normal value.
fn append_ava(
    schema: &Schema,
    rdn: Rdn<'_>,
    ava: Ava<'_>,
    nesting: Nesting,
    out: &mut Vec<u8>,
) -> Result<(), InvalidName> {
    let known = schema.attribute_type(ava.attribute().as_bytes());
    match known {
        Some(known) => out.extend_from_slice(known.key_name().as_bytes()),
        None => out.extend(
            ava.attribute()
                .bytes()
                .map(|byte| byte.to_ascii_lowercase()),
        ),
    }
    out.push(b'=');
    let start = out.len();
    let value = ava.value();
    steps::count(value.len());
    match known.and_then(|known| Some((known.syntax()?, known.equality()?))) {
        Some((_, equality)) if equality.method == Method::Dn => match nesting {
            Nesting::Outer => append_rdns(schema, &value, Nesting::Inner, out)?,
            Nesting::Inner => out.extend_from_slice(&value),
        },
        Some((_, equality)) if equality.method == Method::NameAndOptionalUid => {
            out.extend_from_slice(&value);
        }
        Some((syntax, equality)) => syntax
            .validate(schema, &value)
            .and_then(|()| equality.normalise(schema, &value, out))
            .map_err(|error| InvalidName::Value {
                attribute: ava.attribute().to_owned(),
                rdn: rdn.as_str().to_owned(),
                error,
            })?,
        None => out.extend_from_slice(&value),
    }
    escape_zeros(out, start);
    Ok(())
}

/// Puts 0xFF behind each 0x00 of `out[start..]`.
fn escape_zeros(out: &mut Vec<u8>, start: usize) {
    let value = out.get(start..).unwrap_or_default();
    if !value.contains(&0) {
        return;
    }
    let escaped: Vec<u8> = value
        .iter()
        .flat_map(|byte| [Some(*byte), (*byte == 0).then_some(0xff)])
        .flatten()
        .collect();
    out.truncate(start);
    out.extend_from_slice(&escaped);
}

#[cfg(test)]
mod tests;
