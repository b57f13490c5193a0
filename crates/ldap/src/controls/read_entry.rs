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
