//! The ASN.1 syntaxes of X.509 (RFC 4523), as far as a directory looks into them: values are DER inside out, and of a
//! certificate the serial number and the issuer's name are read.

use sapwood_ldap::dn;
use sapwood_ldap::x509::{Certificate, element, shortest};

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
    /// The issuer's distinguished name as an RFC 4514 string.
    pub(in super::super) issuer: String,
    /// The serial number's octets, the shortest two's complement, most significant first.
    pub(in super::super) serial: Vec<u8>,
}

/// Reads those of a certificate.
pub(in super::super) fn certificate_issuer_and_serial(value: &[u8]) -> Option<IssuerAndSerial> {
    let certificate = Certificate::parse(value)?;
    Some(IssuerAndSerial {
        issuer: certificate.issuer().to_dn()?,
        serial: certificate.serial().to_vec(),
    })
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
