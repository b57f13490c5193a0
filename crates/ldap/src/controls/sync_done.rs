//! Sync Done (RFC 4533 §2.4): how a search with Sync Request has ended.
//!
//! controlValue:
//!
//! ```text
//! syncDoneValue ::= SEQUENCE {
//!     cookie          OCTET STRING OPTIONAL,
//!     refreshDeletes  BOOLEAN DEFAULT FALSE }
//! ```

use super::sequence;
use crate::ber;
use crate::error::PartError;

/// OID of the control.
pub const SYNC_DONE: &str = "1.3.6.1.4.1.4203.1.9.1.3";

/// The control value.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SyncDone<'a> {
    /// What the consumer has now.
    pub cookie: Option<&'a [u8]>,
    /// Whether deletes were told. If not, entries that were not told of have gone (RFC 4533 §3.3.2).
    pub refresh_deletes: bool,
}

impl<'a> SyncDone<'a> {
    /// Reads a control value.
    ///
    /// # Errors
    /// When it is not of its form.
    pub fn decode(value: &'a [u8]) -> Result<Self, PartError> {
        let mut reader = sequence(value, "syncDoneValue")?;
        let cookie = reader.optional(ber::OCTET_STRING, "cookie")?;
        let refresh_deletes = match reader.optional(ber::BOOLEAN, "refreshDeletes")? {
            Some(content) => ber::boolean(content, "refreshDeletes")?,
            None => false,
        };
        reader.skip_extensions()?;
        Ok(SyncDone {
            cookie,
            refresh_deletes,
        })
    }

    /// Appends the control value.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let element = ber::open(out, ber::SEQUENCE, 0);
        if let Some(cookie) = self.cookie {
            ber::put_octets(out, ber::OCTET_STRING, cookie);
        }
        if self.refresh_deletes {
            ber::put_boolean(out, ber::BOOLEAN, true);
        }
        ber::close(out, element);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_what_the_document_says() {
        let mut value = Vec::new();
        let done = SyncDone {
            cookie: Some(b"c"),
            refresh_deletes: true,
        };
        done.encode(&mut value);
        assert_eq!(value, b"\x30\x06\x04\x01c\x01\x01\xff");
        assert_eq!(SyncDone::decode(&value), Ok(done));
        assert_eq!(SyncDone::decode(b"\x30\x00"), Ok(SyncDone::default()));
        for refused in [&b""[..], b"\x30\x02\x04\x01", b"\x30\x00\x00", b"\x31\x00"] {
            assert!(SyncDone::decode(refused).is_err(), "{refused:?}");
        }
    }
}
