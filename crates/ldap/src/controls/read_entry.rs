//! The value that pre-read and post-read share (RFC 4527).
//!
//! controlValue: `AttributeSelection` (RFC 4511 §4.5.1)

use super::sequence;
use crate::ber;
use crate::error::PartError;
use crate::list::OctetStrings;

/// The request value of both controls. The response value is a bare
/// [`SearchResultEntry`](crate::message::SearchResultEntry).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadEntry<'a> {
    /// Which attributes, as in a search.
    pub attributes: OctetStrings<'a>,
}

impl<'a> ReadEntry<'a> {
    /// Reads a control value.
    pub fn decode(value: &'a [u8]) -> Result<Self, PartError> {
        let attributes = OctetStrings::bounded(
            sequence(value, "AttributeSelection")?.rest(),
            "attribute selector",
        )?;
        Ok(ReadEntry { attributes })
    }

    /// Appends the control value.
    pub fn encode(&self, out: &mut Vec<u8>) {
        ber::put_octets(out, ber::SEQUENCE, self.attributes.as_ber());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::list::OctetStringsBuf;

    #[test]
    fn its_value_selects_attributes() {
        for names in [&[][..], &["cn"], &["*", "+"]] {
            let list = OctetStringsBuf::from_iter(names.iter().map(|name| name.as_bytes()));
            let asked = ReadEntry {
                attributes: list.view(),
            };
            let mut value = Vec::new();
            asked.encode(&mut value);
            assert_eq!(ReadEntry::decode(&value), Ok(asked));
        }
        let mut value = Vec::new();
        let list = OctetStringsBuf::from_iter([b"cn"]);
        let attributes = list.view();
        ReadEntry { attributes }.encode(&mut value);
        assert_eq!(value, b"\x30\x04\x04\x02cn");
        for wrong in [
            &b""[..],
            b"\x04\x02cn",
            b"\x30\x04\x02\x02cn",
            b"\x30\x04\x04\x02cn\x00",
        ] {
            assert!(ReadEntry::decode(wrong).is_err(), "{wrong:?}");
        }
    }
}
