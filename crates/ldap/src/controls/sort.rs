//! Server-side sorting (RFC 2891): a search sends its entries in the order of values of theirs.
//!
//! controlValue of the request:
//!
//! ```text
//! SortKeyList ::= SEQUENCE OF SEQUENCE {
//!     attributeType   AttributeDescription,
//!     orderingRule    [0] MatchingRuleId OPTIONAL,
//!     reverseOrder    [1] BOOLEAN DEFAULT FALSE }
//! ```
//!
//! controlValue of the response:
//!
//! ```text
//! SortResult ::= SEQUENCE {
//!     sortResult      ENUMERATED { result codes of LDAP },
//!     attributeType   [0] AttributeDescription OPTIONAL }
//! ```

use super::{Control, Fault, Layer, Spec, sequence};
use crate::ber::{self, Reader, utf8};
use crate::error::{Malformed, PartError, Violation};
use crate::operation::Operation;
use crate::result_code::ResultCode;

/// OID of the request control.
pub const SORT_REQUEST: &str = "1.2.840.113556.1.4.473";
/// OID of the response control.
pub const SORT_RESPONSE: &str = "1.2.840.113556.1.4.474";

/// Most sort keys in one request.
pub const SORT_KEYS_MAX: usize = 16;

const ORDERING_RULE: u8 = ber::context(0);
const REVERSE_ORDER: u8 = ber::context(1);
const ATTRIBUTE_TYPE: u8 = ber::context(0);

pub(super) const SPEC: Spec = Spec {
    oids: &[SORT_REQUEST],
    operations: &[Operation::Search],
    layer: Layer::Directory,
};

pub(super) type Value<'m> = Sort<'m>;

pub(super) fn decode<'m>(control: &Control<'m>) -> Result<Value<'m>, Fault> {
    let value = control.value()?;
    Ok(Sort {
        keys: SortKeys::decode(value)?,
        value,
        is_critical: control.critical,
    })
}

/// What the control of a request asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sort<'a> {
    /// The keys, and the value that they were read from.
    pub keys: SortKeys<'a>,
    /// As it was sent.
    pub value: &'a [u8],
    /// Whether nothing is to be sent if it cannot be sorted (RFC 2891 §2).
    pub is_critical: bool,
}

/// One key to sort by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SortKey<'a> {
    /// The attribute description as sent.
    pub attribute: &'a [u8],
    /// The ordering rule's name or OID; the attribute's own if absent.
    pub rule: Option<&'a [u8]>,
    /// Whether the largest comes first.
    pub reverse: bool,
}

impl<'a> SortKey<'a> {
    fn decode(content: &'a [u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(content);
        let attribute = reader.octets("attributeType")?;
        let rule = reader.optional(ORDERING_RULE, "orderingRule")?;
        let reverse = match reader.optional(REVERSE_ORDER, "reverseOrder")? {
            Some(content) => ber::boolean(content, "reverseOrder")?,
            None => false,
        };
        reader.skip_extensions()?;
        Ok(SortKey {
            attribute,
            rule,
            reverse,
        })
    }
}

/// The request value: keys in falling weight, from one to [`SORT_KEYS_MAX`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SortKeys<'a> {
    ber: &'a [u8],
}

impl<'a> SortKeys<'a> {
    /// Checks a control value.
    pub fn decode(value: &'a [u8]) -> Result<Self, PartError> {
        let mut reader = sequence(value, "SortKeyList")?;
        let ber = reader.rest();
        let mut keys = 0;
        while !reader.is_empty() {
            SortKey::decode(reader.expect(ber::SEQUENCE, "sort key")?)?;
            keys += 1;
        }
        match keys {
            1..=SORT_KEYS_MAX => Ok(SortKeys { ber }),
            _ => Err(Violation::OutOfRange {
                field: "number of sort keys",
            }
            .into()),
        }
    }

    /// The keys, the weightiest first.
    pub fn iter(self) -> impl Iterator<Item = SortKey<'a>> + Clone {
        let mut reader = Reader::new(self.ber);
        std::iter::from_fn(move || {
            if reader.is_empty() {
                return None;
            }
            SortKey::decode(reader.expect(ber::SEQUENCE, "sort key").ok()?).ok()
        })
    }
}

/// Appends a request value.
pub fn put_sort_keys<'k>(out: &mut Vec<u8>, keys: impl IntoIterator<Item = SortKey<'k>>) {
    let list = ber::open(out, ber::SEQUENCE, 0);
    for key in keys {
        let element = ber::open(out, ber::SEQUENCE, 0);
        ber::put_octets(out, ber::OCTET_STRING, key.attribute);
        if let Some(rule) = key.rule {
            ber::put_octets(out, ORDERING_RULE, rule);
        }
        if key.reverse {
            ber::put_boolean(out, REVERSE_ORDER, true);
        }
        ber::close(out, element);
    }
    ber::close(out, list);
}

/// The response value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SortResult<'a> {
    /// How the sorting ended.
    pub code: ResultCode,
    /// The first attribute that was in the way, if one was.
    pub attribute: Option<&'a str>,
}

impl<'a> SortResult<'a> {
    /// Reads a control value.
    pub fn decode(value: &'a [u8]) -> Result<Self, PartError> {
        let mut reader = sequence(value, "SortResult")?;
        let code = u32::try_from(reader.enumerated("sortResult")?);
        let attribute = reader.optional(ATTRIBUTE_TYPE, "attributeType")?;
        reader.skip_extensions()?;
        Ok(SortResult {
            code: code
                .map_err(|_| Violation::OutOfRange {
                    field: "sortResult",
                })?
                .into(),
            attribute: attribute
                .map(|attribute| utf8(attribute, "attributeType"))
                .transpose()?,
        })
    }

    /// Appends the control value.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let element = ber::open(out, ber::SEQUENCE, 0);
        ber::put_integer(out, ber::ENUMERATED, i64::from(self.code.code()));
        if let Some(attribute) = self.attribute {
            ber::put_octets(out, ATTRIBUTE_TYPE, attribute.as_bytes());
        }
        ber::close(out, element);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_read_as_they_are_written() {
        let key = |attribute: &'static str, rule: Option<&'static str>, reverse| SortKey {
            attribute: attribute.as_bytes(),
            rule: rule.map(str::as_bytes),
            reverse,
        };
        let keys = [
            key("sn", None, false),
            key("cn;lang-de", Some("2.5.13.3"), true),
        ];
        let mut value = Vec::new();
        put_sort_keys(&mut value, keys);
        let expected = b"\x30\x21\x30\x04\x04\x02sn\x30\x19\x04\x0acn;lang-de\x80\x082.5.13.3\x81\x01\xff";
        assert_eq!(value, expected);
        let read = SortKeys::decode(&value).unwrap();
        assert_eq!(read.iter().collect::<Vec<_>>(), keys);
        let of = |count| {
            let mut value = Vec::new();
            put_sort_keys(&mut value, std::iter::repeat_n(key("cn", None, false), count));
            SortKeys::decode(&value).is_ok()
        };
        assert!(of(1) && of(SORT_KEYS_MAX) && !of(0) && !of(SORT_KEYS_MAX + 1));
    }

    #[test]
    fn a_result_is_read_as_it_is_written() {
        for (attribute, expected) in [
            (None, &b"\x30\x03\x0a\x01\x10"[..]),
            (Some("cn"), b"\x30\x07\x0a\x01\x10\x80\x02cn"),
        ] {
            let result = SortResult {
                code: ResultCode::NoSuchAttribute,
                attribute,
            };
            let mut value = Vec::new();
            result.encode(&mut value);
            assert_eq!(value, expected);
            assert_eq!(SortResult::decode(&value), Ok(result));
        }
        for wrong in [&b""[..], b"\x30\x00", b"\x30\x03\x0a\x01\xff"] {
            assert!(SortResult::decode(wrong).is_err(), "{wrong:?}");
        }
    }
}
