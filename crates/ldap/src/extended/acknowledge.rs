//! What a server that follows another one has on its disk, Sapwood's own (`docs/reference/protocol-extensions.md`): it
//! tells the cookie of its last commit.
//!
//! ```text
//! Acknowledge ::= SEQUENCE { replica INTEGER (0..4095), cookie OCTET STRING }
//! ```

use crate::ber;
use crate::controls::sequence;
use crate::csn::Csn;
use crate::error::{PartError, Violation};

/// The requestName.
pub const ACKNOWLEDGE: &str = "2.25.83582145878542474313725358023668996359";

/// The requestValue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Acknowledge<'a> {
    /// The number of the server that follows; 0 if it has none.
    pub replica: u16,
    /// What it has on its disk, in its provider's words (RFC 4533 §2.1.2).
    pub cookie: &'a [u8],
}

impl<'a> Acknowledge<'a> {
    /// Reads a requestValue.
    ///
    /// # Errors
    /// When it is not of its form.
    pub fn decode(value: &'a [u8]) -> Result<Self, PartError> {
        let mut reader = sequence(value, "acknowledge")?;
        let replica = u16::try_from(reader.integer("replica")?).ok();
        let replica = replica.filter(|replica| *replica <= Csn::REPLICA_MAX);
        let replica = replica.ok_or(Violation::OutOfRange { field: "replica" })?;
        let cookie = reader.octets("cookie")?;
        reader.skip_extensions()?;
        Ok(Acknowledge { replica, cookie })
    }

    /// Appends the requestValue.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let element = ber::open(out, ber::SEQUENCE, 0);
        ber::put_integer(out, ber::INTEGER, self.replica.into());
        ber::put_octets(out, ber::OCTET_STRING, self.cookie);
        ber::close(out, element);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_what_the_document_says() {
        let mut value = Vec::new();
        let told = Acknowledge {
            replica: 2,
            cookie: b"c",
        };
        told.encode(&mut value);
        assert_eq!(value, b"\x30\x06\x02\x01\x02\x04\x01c");
        assert_eq!(Acknowledge::decode(&value), Ok(told));
        for refused in [
            &b""[..],
            b"\x30\x03\x02\x01\x02",
            b"\x30\x07\x02\x02\x10\x00\x04\x01c",
        ] {
            assert!(Acknowledge::decode(refused).is_err(), "{refused:?}");
        }
    }
}
