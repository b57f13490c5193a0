//! Syntaxes of plain strings, numbers and octets (RFC 4517 §3.3).

use sapwood_ldap::attribute::{is_descriptor, is_numeric_oid};
use uuid::Uuid;

use super::super::Schema;
use super::Reason;

/// Any octets at all.
pub(super) fn octets(_: &Schema, _: &[u8]) -> Result<(), Reason> {
    Ok(())
}

/// RFC 4517 §3.3.6
pub(super) fn directory_string(_: &Schema, value: &[u8]) -> Result<(), Reason> {
    if value.is_empty() {
        return Err("it is empty");
    }
    if value.is_ascii() || std::str::from_utf8(value).is_ok() {
        Ok(())
    } else {
        Err("it is not UTF-8")
    }
}

/// RFC 4517 §3.3.15
pub(super) fn ia5_string(_: &Schema, value: &[u8]) -> Result<(), Reason> {
    if value.is_ascii() {
        Ok(())
    } else {
        Err("it has a character that is not ASCII")
    }
}

/// RFC 4517 §3.3.29 and, with the same characters, §3.3.31
pub(super) fn printable_string(_: &Schema, value: &[u8]) -> Result<(), Reason> {
    if value.is_empty() {
        Err("it is empty")
    } else if value.iter().all(|byte| is_printable(*byte)) {
        Ok(())
    } else {
        Err("it has a character other than letters, digits, space and '()+,-./:?=")
    }
}

/// PrintableCharacter of RFC 4517 §3.2.
pub(super) fn is_printable(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"'()+,-./:?= ".contains(&byte)
}

/// RFC 4517 §3.3.4
pub(super) fn country_string(_: &Schema, value: &[u8]) -> Result<(), Reason> {
    if value.len() == 2 && value.iter().all(|byte| is_printable(*byte)) {
        Ok(())
    } else {
        Err("it is not a country code of two characters")
    }
}

/// RFC 4517 §3.3.23
pub(super) fn numeric_string(_: &Schema, value: &[u8]) -> Result<(), Reason> {
    if !value.is_empty()
        && value
            .iter()
            .all(|byte| byte.is_ascii_digit() || *byte == b' ')
    {
        Ok(())
    } else {
        Err("it is not a string of digits and spaces")
    }
}

/// RFC 4517 §3.3.16
pub(super) fn integer(_: &Schema, value: &[u8]) -> Result<(), Reason> {
    let digits = value.strip_prefix(b"-").unwrap_or(value);
    let negative = digits.len() < value.len();
    match digits {
        [b'0'] if !negative => Ok(()),
        [b'1'..=b'9', rest @ ..] if rest.iter().all(u8::is_ascii_digit) => Ok(()),
        _ => Err("it is not a whole number in decimal digits without leading zeros"),
    }
}

/// RFC 4517 §3.3.3
pub(super) fn boolean(_: &Schema, value: &[u8]) -> Result<(), Reason> {
    if value == b"TRUE" || value == b"FALSE" {
        Ok(())
    } else {
        Err("it is neither TRUE nor FALSE")
    }
}

/// RFC 4517 §3.3.2
pub(super) fn bit_string(_: &Schema, value: &[u8]) -> Result<(), Reason> {
    bits(value)
        .map(|_| ())
        .ok_or("it is not binary digits as in '0101'B")
}

/// The digits of a bit string.
pub(in super::super) fn bits(value: &[u8]) -> Option<&[u8]> {
    let digits = value.strip_prefix(b"'")?.strip_suffix(b"'B")?;
    digits
        .iter()
        .all(|digit| matches!(digit, b'0' | b'1'))
        .then_some(digits)
}

/// RFC 4517 §3.3.26
pub(super) fn oid(_: &Schema, value: &[u8]) -> Result<(), Reason> {
    match std::str::from_utf8(value) {
        Ok(text) if is_descriptor(text) || is_numeric_oid(text) => Ok(()),
        _ => Err("it is neither a name nor a numeric object identifier"),
    }
}

/// RFC 4530 §2.1
pub(super) fn uuid(_: &Schema, value: &[u8]) -> Result<(), Reason> {
    if uuid_bytes(value).is_some() {
        Ok(())
    } else {
        Err("it is not a UUID such as 597ae2f6-16a6-1027-98f4-d28b5365dc14")
    }
}

/// The UUID whose 36-character form (RFC 4122 §3) a value is.
pub(in super::super) fn uuid_bytes(value: &[u8]) -> Option<[u8; 16]> {
    // The other forms that are read have other lengths.
    let uuid = Uuid::try_parse_ascii(value).ok();
    uuid.filter(|_| value.len() == 36).map(Uuid::into_bytes)
}
