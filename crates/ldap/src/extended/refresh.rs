//! Refresh (RFC 2589 §4): a dynamic entry lives on.

use crate::ber;
use crate::controls::sequence;
use crate::dn::{Dn, DnError};
use crate::error::PartError;

/// Its OID, which is also the name of its responses.
pub const REFRESH: &str = "1.3.6.1.4.1.1466.101.119.1";

const ENTRY_NAME: u8 = ber::context(0);
const TTL: u8 = ber::context(1);

/// The request value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refresh<'a> {
    /// The DN of the entry, as it came.
    pub entry: &'a [u8],
    /// For how many seconds it is to live on.
    pub ttl: i64,
}

impl<'a> Refresh<'a> {
    /// Reads a request value.
    ///
    /// # Errors
    /// [`PartError`] when it is malformed.
    pub fn decode(value: &'a [u8]) -> Result<Refresh<'a>, PartError> {
        let mut reader = sequence(value, "refreshRequestValue")?;
        let entry = reader.expect(ENTRY_NAME, "entryName")?;
        let ttl = reader.expect(TTL, "requestTtl")?;
        let ttl = ber::integer(ttl, "requestTtl")?;
        reader.skip_extensions()?;
        Ok(Refresh { entry, ttl })
    }

    /// Appends the request value.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let element = ber::open(out, ber::SEQUENCE, 0);
        ber::put_octets(out, ENTRY_NAME, self.entry);
        ber::put_integer(out, TTL, self.ttl);
        ber::close(out, element);
    }

    /// The entry's DN as text.
    ///
    /// # Errors
    /// [`DnError`] when it is none.
    pub fn dn(&self) -> Result<&'a str, DnError> {
        Dn::from_bytes(self.entry).map(|dn| dn.as_str())
    }
}

/// Appends the response value: the seconds for which the entry lives on.
pub fn put_refreshed(out: &mut Vec<u8>, ttl: u32) {
    let element = ber::open(out, ber::SEQUENCE, 0);
    ber::put_integer(out, TTL, ttl.into());
    ber::close(out, element);
}

/// Reads the response value.
///
/// # Errors
/// [`PartError`] when it is malformed.
pub fn refreshed(value: &[u8]) -> Result<i64, PartError> {
    let mut reader = sequence(value, "refreshResponseValue")?;
    let ttl = reader.expect(TTL, "responseTtl")?;
    Ok(ber::integer(ttl, "responseTtl")?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read_as_they_are_written() {
        for ttl in [0, 1, 127, 128, 31_557_600, -1, i64::MAX] {
            let request = Refresh {
                entry: b"cn=x",
                ttl,
            };
            let mut value = Vec::new();
            request.encode(&mut value);
            assert_eq!(Refresh::decode(&value), Ok(request));
            assert_eq!(request.dn(), Ok("cn=x"));
            for end in 0..value.len() {
                assert!(Refresh::decode(&value[..end]).is_err());
            }
        }
        let mut value = Vec::new();
        put_refreshed(&mut value, 86_400);
        assert_eq!(value, b"\x30\x05\x81\x03\x01\x51\x80");
        assert_eq!(refreshed(&value), Ok(86_400));
    }
}
