//! Simple paged results (RFC 2696), in a request and in its last response.
//!
//! controlValue: `SEQUENCE { size INTEGER (0..maxInt), cookie OCTET STRING }`

use super::{Control, Fault, Layer, Spec, sequence};
use crate::ber;
use crate::error::{PartError, Violation};
use crate::limits::INTEGER_MAX;
use crate::operation::Operation;

/// Its OID.
pub const PAGED_RESULTS: &str = "1.2.840.113556.1.4.319";

pub(super) const SPEC: Spec = Spec {
    oids: &[PAGED_RESULTS],
    operations: &[Operation::Search],
    layer: Layer::Directory,
};

/// Which page is asked for.
pub(super) type Value<'m> = PagedResults<'m>;

pub(super) fn decode<'m>(control: &Control<'m>) -> Result<Value<'m>, Fault> {
    Ok(PagedResults::decode(control.value()?)?)
}

/// The value of the control, in a request and in a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PagedResults<'a> {
    /// Request: entries wanted in this page. Response: an estimate of the whole result, zero when not known.
    pub size: u32,
    /// Empty in the first request and in the last response; else what the server gave out with the page before.
    pub cookie: &'a [u8],
}

impl<'a> PagedResults<'a> {
    /// Reads a control value.
    pub fn decode(value: &'a [u8]) -> Result<Self, PartError> {
        let mut reader = sequence(value, "realSearchControlValue")?;
        let size = reader.integer("size")?;
        let cookie = reader.octets("cookie")?;
        reader.skip_extensions()?;
        let size = u32::try_from(size).ok().filter(|size| *size <= INTEGER_MAX);
        Ok(PagedResults {
            size: size.ok_or(Violation::OutOfRange { field: "size" })?,
            cookie,
        })
    }

    /// Appends the control value.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let size = i64::from(self.size);
        ber::put_header(
            out,
            ber::SEQUENCE,
            2 + ber::integer_len(size) + ber::element_len(self.cookie.len()),
        );
        ber::put_integer(out, ber::INTEGER, size);
        ber::put_octets(out, ber::OCTET_STRING, self.cookie);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn its_value_is_a_size_and_a_cookie() {
        let largest = PagedResults {
            size: INTEGER_MAX,
            cookie: b"here",
        };
        for (value, read) in [
            (
                &b"\x30\x05\x02\x01\x05\x04\x00"[..],
                PagedResults {
                    size: 5,
                    cookie: b"",
                },
            ),
            (b"\x30\x0c\x02\x04\x7f\xff\xff\xff\x04\x04here", largest),
        ] {
            assert_eq!(PagedResults::decode(value), Ok(read));
            let mut written = Vec::new();
            read.encode(&mut written);
            assert_eq!(written, value);
        }
        for wrong in [
            &b""[..],
            b"\x30\x03\x02\x01\x05",
            b"\x30\x05\x02\x01\xff\x04\x00",
            b"\x30\x09\x02\x05\x00\x80\x00\x00\x00\x04\x00",
            b"\x30\x05\x02\x01\x05\x04\x00\x00",
        ] {
            assert!(PagedResults::decode(wrong).is_err(), "{wrong:?}");
        }
    }
}
