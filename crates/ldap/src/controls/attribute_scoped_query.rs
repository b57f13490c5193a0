//! Attribute-scoped query (of Active Directory): a search among the entries that an attribute of its base names.
//!
//! controlValue of the request, and of the one that comes with the end of the search:
//!
//! ```text
//! ASQRequestValue ::= SEQUENCE { sourceAttribute OCTET STRING }
//! ASQResponseValue ::= SEQUENCE { searchResult ENUMERATED {
//!     success (0), invalidAttributeSyntax (21), unwillingToPerform (53), affectsMultipleDSAs (71) } }
//! ```

use super::{Control, Fault, Layer, Spec, sequence};
use crate::ber;
use crate::operation::Operation;
use crate::result_code::ResultCode;

/// OID of the control, in requests and with the end of a search.
pub const ATTRIBUTE_SCOPED_QUERY: &str = "1.2.840.113556.1.4.1504";

pub(super) const SPEC: Spec = Spec {
    oids: &[ATTRIBUTE_SCOPED_QUERY],
    operations: &[Operation::Search],
    layer: Layer::Directory,
};

/// The attribute, as sent.
pub(super) type Value<'m> = &'m [u8];

pub(super) fn decode<'m>(control: &Control<'m>) -> Result<Value<'m>, Fault> {
    let mut reader = sequence(control.value()?, "ASQRequestValue")?;
    let attribute = reader.octets("sourceAttribute")?;
    reader.end()?;
    Ok(attribute)
}

/// Appends the value of the response control.
pub fn put_attribute_scoped(out: &mut Vec<u8>, code: ResultCode) {
    let response = ber::open(out, ber::SEQUENCE, 0);
    ber::put_integer(out, ber::ENUMERATED, i64::from(code.code()));
    ber::close(out, response);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_what_the_document_says() {
        let read = |value: &'static [u8]| {
            let control = Control {
                oid: ATTRIBUTE_SCOPED_QUERY,
                critical: true,
                value: Some(value),
            };
            decode(&control).ok()
        };
        assert_eq!(read(b"\x30\x08\x04\x06member"), Some(b"member".as_slice()));
        for wrong in [&b""[..], b"member", b"\x30\x00", b"\x30\x02\x02\x00", b"\x30\x04\x04\x00\x04\x00"] {
            assert_eq!(read(wrong), None);
        }
        let mut value = Vec::new();
        put_attribute_scoped(&mut value, ResultCode::Success);
        assert_eq!(value, b"\x30\x03\x0a\x01\x00");
    }
}
