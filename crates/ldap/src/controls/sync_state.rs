//! Sync State (RFC 4533 §2.3): what an entry or reference of a search with Sync Request tells of.
//!
//! controlValue:
//!
//! ```text
//! syncStateValue ::= SEQUENCE {
//!     state ENUMERATED { present (0), add (1), modify (2), delete (3) },
//!     entryUUID OCTET STRING (SIZE(16)),
//!     cookie    OCTET STRING OPTIONAL }
//! ```

use super::sequence;
use crate::ber::{self, Reader};
use crate::error::{PartError, Violation};

/// OID of the control.
pub const SYNC_STATE: &str = "1.3.6.1.4.1.4203.1.9.1.2";

/// What has become of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EntryState {
    /// It is as it was.
    Present,
    /// It is new to the consumer, or told anew.
    Add,
    /// It has changed.
    Modify,
    /// It has gone.
    Delete,
}

/// The control value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SyncState<'a> {
    /// What has become of the entry.
    pub state: EntryState,
    /// Its entryUUID.
    pub entry_uuid: [u8; 16],
    /// What the consumer has, once it has this.
    pub cookie: Option<&'a [u8]>,
}

impl<'a> SyncState<'a> {
    /// Reads a control value.
    ///
    /// # Errors
    /// When it is not of its form.
    pub fn decode(value: &'a [u8]) -> Result<Self, PartError> {
        let mut reader = sequence(value, "syncStateValue")?;
        let state = match reader.enumerated("state")? {
            0 => EntryState::Present,
            1 => EntryState::Add,
            2 => EntryState::Modify,
            3 => EntryState::Delete,
            _ => return Err(Violation::OutOfRange { field: "state" }.into()),
        };
        let entry_uuid = sync_uuid(&mut reader, "entryUUID")?;
        let cookie = reader.optional(ber::OCTET_STRING, "cookie")?;
        reader.skip_extensions()?;
        Ok(SyncState {
            state,
            entry_uuid,
            cookie,
        })
    }

    /// Appends the control value.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let element = ber::open(out, ber::SEQUENCE, 0);
        let state = match self.state {
            EntryState::Present => 0,
            EntryState::Add => 1,
            EntryState::Modify => 2,
            EntryState::Delete => 3,
        };
        ber::put_integer(out, ber::ENUMERATED, state);
        ber::put_octets(out, ber::OCTET_STRING, &self.entry_uuid);
        if let Some(cookie) = self.cookie {
            ber::put_octets(out, ber::OCTET_STRING, cookie);
        }
        ber::close(out, element);
    }
}

/// Reads a syncUUID (RFC 4533 §2.1.1).
pub(crate) fn sync_uuid(
    reader: &mut Reader<'_>,
    field: &'static str,
) -> Result<[u8; 16], PartError> {
    let uuid = reader.octets(field)?.try_into();
    uuid.map_err(|_| Violation::OutOfRange { field }.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_what_the_document_says() {
        let mut value = Vec::new();
        let state = SyncState {
            state: EntryState::Delete,
            entry_uuid: *b"0123456789abcdef",
            cookie: Some(b"c"),
        };
        state.encode(&mut value);
        assert_eq!(
            value,
            b"\x30\x18\x0a\x01\x03\x04\x100123456789abcdef\x04\x01c"
        );
        assert_eq!(SyncState::decode(&value), Ok(state));
        for refused in [
            &b""[..],
            b"\x30\x03\x0a\x01\x00",
            b"\x30\x15\x0a\x01\x04\x04\x100123456789abcdef",
            b"\x30\x14\x0a\x01\x00\x04\x0f123456789abcdef",
        ] {
            assert!(SyncState::decode(refused).is_err(), "{refused:?}");
        }
    }
}
