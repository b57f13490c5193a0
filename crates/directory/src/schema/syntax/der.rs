//! The ASN.1 syntaxes of X.509 (RFC 4523), as far as a directory looks into them: values are DER inside out, and of a
//! certificate the serial number and the issuer's name are read.

use sapwood_ldap::dn;

use super::super::Schema;
use super::Reason;

/// A value that is one DER SEQUENCE.
pub(super) fn sequence(_: &Schema, value: &[u8]) -> Result<(), Reason> {
    match element(value) {
        Some((0x30, _, [])) => Ok(()),
        _ => Err("it is not one ASN.1 SEQUENCE in DER"),
    }
}

/// RFC 4523 §2.1
pub(super) fn certificate(_: &Schema, value: &[u8]) -> Result<(), Reason> {
    certificate_issuer_and_serial(value)
        .map(|_| ())
        .ok_or("it is not an X.509 certificate in DER")
}

/// RFC 4523 §2.5
pub(super) fn certificate_exact_assertion(_: &Schema, value: &[u8]) -> Result<(), Reason> {
    gser_issuer_and_serial(value)
        .map(|_| ())
        .ok_or("it is not { serialNumber number, issuer rdnSequence:\"name\" }")
}

/// What identifies a certificate.
#[derive(Debug, PartialEq, Eq)]
pub(in super::super) struct IssuerAndSerial {
    /// The issuer's distinguished name as an RFC 4514 string, its types as OIDs where the certificate says so.
    pub(in super::super) issuer: String,
    /// The serial number's octets, the shortest two's complement, most significant first.
    pub(in super::super) serial: Vec<u8>,
}

/// Reads a certificate: Certificate ::= SEQUENCE { tbsCertificate SEQUENCE { \[0\] version, serialNumber, signature,
/// issuer, ...
pub(in super::super) fn certificate_issuer_and_serial(value: &[u8]) -> Option<IssuerAndSerial> {
    let (outer, rest) = expect(value, 0x30)?;
    if !rest.is_empty() {
        return None;
    }
    let (mut fields, after) = expect(outer, 0x30)?;
    expect(expect(after, 0x30)?.1, 0x03)?;
    if let Some((_, rest)) = expect(fields, 0xa0) {
        fields = rest;
    }
    let (serial, rest) = expect(fields, 0x02)?;
    let (_, rest) = expect(rest, 0x30)?;
    let (mut rdns, rest) = expect(rest, 0x30)?;
    expect(rest, 0x30)?;
    let mut names = Vec::new();
    while !rdns.is_empty() {
        let (rdn, rest) = expect(rdns, 0x31)?;
        names.push(relative_name(rdn)?);
        rdns = rest;
    }
    names.reverse();
    Some(IssuerAndSerial {
        issuer: names.join(","),
        serial: shortest(serial)?.to_vec(),
    })
}

fn relative_name(mut avas: &[u8]) -> Option<String> {
    let mut text = String::new();
    while !avas.is_empty() {
        let (ava, rest) = expect(avas, 0x30)?;
        let (oid, value) = expect(ava, 0x06)?;
        let (tag, contents, _) = element(value)?;
        if !text.is_empty() {
            text.push('+');
        }
        let value = match tag {
            // BMPString and UniversalString are transcoded; the rest is taken as UTF-8 or Latin-1.
            0x1e => String::from_utf16(
                &contents
                    .as_chunks::<2>()
                    .0
                    .iter()
                    .map(|pair| u16::from_be_bytes(*pair))
                    .collect::<Vec<_>>(),
            )
            .ok()?,
            0x1c => contents
                .as_chunks::<4>()
                .0
                .iter()
                .map(|four| char::from_u32(u32::from_be_bytes(*four)))
                .collect::<Option<_>>()?,
            _ => match std::str::from_utf8(contents) {
                Ok(text) => text.to_owned(),
                Err(_) => contents.iter().map(|byte| char::from(*byte)).collect(),
            },
        };
        dn::write_ava(&mut text, &dotted(oid)?, value.as_bytes());
        avas = rest;
    }
    Some(text)
}

/// An object identifier's contents as dotted decimal.
fn dotted(contents: &[u8]) -> Option<String> {
    let mut text = String::new();
    let mut arc: u64 = 0;
    let mut first = true;
    for byte in contents {
        if arc > u64::MAX >> 8 {
            return None;
        }
        arc = arc << 7 | u64::from(byte & 0x7f);
        if byte & 0x80 == 0 {
            if first {
                let root = (arc / 40).min(2);
                text = format!("{root}.{}", arc - root * 40);
                first = false;
            } else {
                text.push_str(&format!(".{arc}"));
            }
            arc = 0;
        }
    }
    (!first).then_some(text)
}

/// Reads `{ serialNumber 17, issuer rdnSequence:"cn=ca" }` (RFC 4523 §2.5, components in either order) or the older
/// `17$cn=ca`.
pub(in super::super) fn gser_issuer_and_serial(value: &[u8]) -> Option<IssuerAndSerial> {
    let text = std::str::from_utf8(value).ok()?.trim();
    let (serial, issuer) = match text
        .strip_prefix('{')
        .and_then(|rest| rest.strip_suffix('}'))
    {
        None => {
            let (serial, issuer) = text.split_once('$')?;
            (serial.trim(), issuer.to_owned())
        }
        Some(inside) => {
            let inside = inside.trim();
            let (serial, name) = if let Some(rest) = inside.strip_prefix("serialNumber") {
                let (serial, rest) = rest.split_once(',')?;
                (serial, rest.trim_start().strip_prefix("issuer")?)
            } else {
                let rest = inside.strip_prefix("issuer")?;
                let (name, serial) = rest.rsplit_once(',')?;
                (serial.trim_start().strip_prefix("serialNumber")?, name)
            };
            let name = name.trim();
            let quoted = name
                .strip_prefix("rdnSequence:")
                .unwrap_or(name)
                .trim_start();
            let name = quoted.strip_prefix('"')?.strip_suffix('"')?;
            (serial.trim(), name.replace("\"\"", "\""))
        }
    };
    dn::Dn::parse(&issuer).ok()?;
    Some(IssuerAndSerial {
        issuer,
        serial: integer_octets(serial)?,
    })
}

/// Digits of an assertion's serial number that are read: RFC 5280 §4.1.2.2 has them end at 20 octets.
const SERIAL_DIGITS_MAX: usize = 128;

/// The shortest two's complement of a non-negative number in decimal or, after `0x` or with an `H` after quotes,
/// hexadecimal.
fn integer_octets(text: &str) -> Option<Vec<u8>> {
    let (digits, radix) = match text.strip_prefix("0x") {
        Some(digits) => (digits, 16),
        None => match text
            .strip_prefix('\'')
            .and_then(|rest| rest.strip_suffix("'H"))
        {
            Some(digits) => (digits, 16),
            None => (text, 10),
        },
    };
    if digits.is_empty() || digits.len() > SERIAL_DIGITS_MAX {
        return None;
    }
    // Least significant octet first.
    let mut octets: Vec<u8> = vec![0];
    for digit in digits.chars() {
        let mut carry = digit.to_digit(radix)?;
        for octet in &mut octets {
            let product = u32::from(*octet) * radix + carry;
            *octet = product as u8;
            carry = product >> 8;
        }
        if carry > 0 {
            octets.push(carry as u8);
        }
    }
    octets.push(0);
    octets.reverse();
    shortest(&octets).map(<[u8]>::to_vec)
}

/// Two's complement octets without superfluous leading ones.
fn shortest(mut octets: &[u8]) -> Option<&[u8]> {
    while let [0x00, 0x00..=0x7f, ..] | [0xff, 0x80..=0xff, ..] = octets {
        octets = octets.get(1..)?;
    }
    (!octets.is_empty()).then_some(octets)
}

fn expect(value: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    match element(value)? {
        (found, contents, rest) if found == tag => Some((contents, rest)),
        _ => None,
    }
}

/// The first element with a one-octet tag and definite length: tag, contents, rest.
fn element(value: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (tag, rest) = value.split_first()?;
    if tag & 0x1f == 0x1f {
        return None;
    }
    let (length, rest) = match rest.split_first()? {
        (length @ 0..=0x7f, rest) => (usize::from(*length), rest),
        (count @ 0x81..=0x84, rest) => {
            let (octets, rest) = rest.split_at_checked(usize::from(count & 0x7f))?;
            (
                octets
                    .iter()
                    .fold(0usize, |length, octet| length << 8 | usize::from(*octet)),
                rest,
            )
        }
        _ => return None,
    };
    let (contents, rest) = rest.split_at_checked(length)?;
    Some((*tag, contents, rest))
}
