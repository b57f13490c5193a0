//! Sync Request (RFC 4533 §2.2): a search is to tell what has changed since a cookie.
//!
//! controlValue:
//!
//! ```text
//! syncRequestValue ::= SEQUENCE {
//!     mode ENUMERATED { refreshOnly (1), refreshAndPersist (3) },
//!     cookie     OCTET STRING OPTIONAL,
//!     reloadHint BOOLEAN DEFAULT FALSE }
//! ```

use super::{Control, Fault, Layer, Spec, sequence};
use crate::ber;
use crate::error::{PartError, Violation};
use crate::operation::Operation;

/// OID of the control.
pub const SYNC_REQUEST: &str = "1.3.6.1.4.1.4203.1.9.1.1";

pub(super) const SPEC: Spec = Spec {
    oids: &[SYNC_REQUEST],
    operations: &[Operation::Search],
    layer: Layer::Directory,
};

/// What is wanted.
pub(super) type Value<'m> = SyncRequest<'m>;

pub(super) fn decode<'m>(control: &Control<'m>) -> Result<SyncRequest<'m>, Fault> {
    Ok(SyncRequest::decode(control.value()?)?)
}

/// How long the search lasts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SyncMode {
    /// It ends when everything was told.
    RefreshOnly,
    /// It goes on and tells of changes as they are made, until it is cancelled.
    RefreshAndPersist,
}

/// The control value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SyncRequest<'a> {
    /// How long the search lasts.
    pub mode: SyncMode,
    /// What the consumer has, in the provider's words; if it is absent, nothing.
    pub cookie: Option<&'a [u8]>,
    /// Whether everything may be told anew when the cookie does not do, rather than refused (RFC 4533 §3.8).
    pub reload_hint: bool,
}

impl<'a> SyncRequest<'a> {
    /// Reads a control value.
    ///
    /// # Errors
    /// When it is not of its form.
    pub fn decode(value: &'a [u8]) -> Result<Self, PartError> {
        let mut reader = sequence(value, "syncRequestValue")?;
        let mode = match reader.enumerated("mode")? {
            1 => SyncMode::RefreshOnly,
            3 => SyncMode::RefreshAndPersist,
            _ => return Err(Violation::OutOfRange { field: "mode" }.into()),
        };
        let cookie = reader.optional(ber::OCTET_STRING, "cookie")?;
        let reload_hint = match reader.optional(ber::BOOLEAN, "reloadHint")? {
            Some(content) => ber::boolean(content, "reloadHint")?,
            None => false,
        };
        reader.skip_extensions()?;
        Ok(SyncRequest {
            mode,
            cookie,
            reload_hint,
        })
    }

    /// Appends the control value.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let element = ber::open(out, ber::SEQUENCE, 0);
        let mode = match self.mode {
            SyncMode::RefreshOnly => 1,
            SyncMode::RefreshAndPersist => 3,
        };
        ber::put_integer(out, ber::ENUMERATED, mode);
        if let Some(cookie) = self.cookie {
            ber::put_octets(out, ber::OCTET_STRING, cookie);
        }
        if self.reload_hint {
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
        let request = SyncRequest {
            mode: SyncMode::RefreshAndPersist,
            cookie: Some(b"c"),
            reload_hint: true,
        };
        request.encode(&mut value);
        assert_eq!(value, b"\x30\x09\x0a\x01\x03\x04\x01c\x01\x01\xff");
        assert_eq!(SyncRequest::decode(&value), Ok(request));
        // Defaults may be written; an empty cookie is one.
        let read = SyncRequest::decode(b"\x30\x08\x0a\x01\x01\x04\x00\x01\x01\x00").unwrap();
        assert_eq!(
            (read.mode, read.reload_hint),
            (SyncMode::RefreshOnly, false)
        );
        assert_eq!(read.cookie, Some(&b""[..]));
        for refused in [
            &b""[..],
            b"\x30\x00",
            b"\x30\x03\x0a\x01\x02",
            b"\x30\x03\x02\x01\x01",
            b"\x30\x03\x0a\x01\x01\x00",
        ] {
            assert!(SyncRequest::decode(refused).is_err(), "{refused:?}");
        }
    }
}
