//! Sync Info (RFC 4533 §2.5): an intermediate response to a search with Sync Request, about many entries or none.
//!
//! responseValue:
//!
//! ```text
//! syncInfoValue ::= CHOICE {
//!     newcookie      [0] OCTET STRING,
//!     refreshDelete  [1] SEQUENCE { cookie OCTET STRING OPTIONAL, refreshDone BOOLEAN DEFAULT TRUE },
//!     refreshPresent [2] SEQUENCE { cookie OCTET STRING OPTIONAL, refreshDone BOOLEAN DEFAULT TRUE },
//!     syncIdSet      [3] SEQUENCE { cookie OCTET STRING OPTIONAL, refreshDeletes BOOLEAN DEFAULT FALSE,
//!                                   syncUUIDs SET OF OCTET STRING (SIZE(16)) } }
//! ```

#![deny(clippy::indexing_slicing)]

use crate::ber::{self, Reader};
use crate::controls::sync_uuid;
use crate::error::{Malformed, PartError};

/// The responseName.
pub const SYNC_INFO: &str = "1.3.6.1.4.1.4203.1.9.1.4";

const NEW_COOKIE: u8 = ber::context(0);
const REFRESH_DELETE: u8 = ber::context_constructed(1);
const REFRESH_PRESENT: u8 = ber::context_constructed(2);
const SYNC_ID_SET: u8 = ber::context_constructed(3);

/// The responseValue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SyncInfo<'a> {
    /// What the consumer has now.
    NewCookie(&'a [u8]),
    /// The part of the refresh ends that tells which entries have gone.
    RefreshDelete {
        /// What the consumer has now.
        cookie: Option<&'a [u8]>,
        /// Whether the whole refresh ends.
        done: bool,
    },
    /// The part of the refresh ends that tells which entries are there. All others have gone.
    RefreshPresent {
        /// What the consumer has now.
        cookie: Option<&'a [u8]>,
        /// Whether the whole refresh ends.
        done: bool,
    },
    /// Entries that are as they were, or have gone.
    IdSet {
        /// What the consumer has now.
        cookie: Option<&'a [u8]>,
        /// Whether they have gone.
        refresh_deletes: bool,
        /// Their entryUUIDs.
        uuids: SyncUuids<'a>,
    },
}

impl<'a> SyncInfo<'a> {
    /// Reads a responseValue.
    ///
    /// # Errors
    /// When it is not of its form.
    pub fn decode(value: &'a [u8]) -> Result<Self, PartError> {
        let mut outer = Reader::new(value);
        let (tag, content) = outer.element("syncInfoValue")?;
        outer.end()?;
        let mut reader = Reader::new(content);
        Ok(match tag {
            NEW_COOKIE => SyncInfo::NewCookie(content),
            REFRESH_DELETE => {
                let (cookie, done) = cookie_and(&mut reader, "refreshDone", true)?;
                reader.skip_extensions()?;
                SyncInfo::RefreshDelete { cookie, done }
            }
            REFRESH_PRESENT => {
                let (cookie, done) = cookie_and(&mut reader, "refreshDone", true)?;
                reader.skip_extensions()?;
                SyncInfo::RefreshPresent { cookie, done }
            }
            SYNC_ID_SET => {
                let (cookie, refresh_deletes) = cookie_and(&mut reader, "refreshDeletes", false)?;
                let uuids = SyncUuids::checked(reader.expect(ber::SET, "syncUUIDs")?)?;
                reader.skip_extensions()?;
                SyncInfo::IdSet {
                    cookie,
                    refresh_deletes,
                    uuids,
                }
            }
            found => {
                return Err(Malformed::Tag {
                    field: "syncInfoValue",
                    expected: NEW_COOKIE,
                    found,
                }
                .into());
            }
        })
    }

    /// Appends the responseValue.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let (tag, cookie, flag) = match *self {
            SyncInfo::NewCookie(cookie) => return ber::put_octets(out, NEW_COOKIE, cookie),
            SyncInfo::RefreshDelete { cookie, done } => {
                (REFRESH_DELETE, cookie, (!done).then_some(false))
            }
            SyncInfo::RefreshPresent { cookie, done } => {
                (REFRESH_PRESENT, cookie, (!done).then_some(false))
            }
            SyncInfo::IdSet {
                cookie,
                refresh_deletes,
                ..
            } => (SYNC_ID_SET, cookie, refresh_deletes.then_some(true)),
        };
        let element = ber::open(out, tag, 0);
        if let Some(cookie) = cookie {
            ber::put_octets(out, ber::OCTET_STRING, cookie);
        }
        if let Some(flag) = flag {
            ber::put_boolean(out, ber::BOOLEAN, flag);
        }
        if let SyncInfo::IdSet { uuids, .. } = self {
            ber::put_octets(out, ber::SET, uuids.ber);
        }
        ber::close(out, element);
    }
}

/// A cookie and a flag, neither of which need be there.
fn cookie_and<'a>(
    reader: &mut Reader<'a>,
    field: &'static str,
    default: bool,
) -> Result<(Option<&'a [u8]>, bool), Malformed> {
    let cookie = reader.optional(ber::OCTET_STRING, "cookie")?;
    let flag = match reader.optional(ber::BOOLEAN, field)? {
        Some(content) => ber::boolean(content, field)?,
        None => default,
    };
    Ok((cookie, flag))
}

/// A SET OF syncUUID: a view of checked BER.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct SyncUuids<'a> {
    ber: &'a [u8],
}

impl<'a> SyncUuids<'a> {
    fn checked(content: &'a [u8]) -> Result<Self, PartError> {
        let mut reader = Reader::new(content);
        while !reader.is_empty() {
            sync_uuid(&mut reader, "syncUUIDs")?;
        }
        Ok(SyncUuids { ber: content })
    }

    /// The entryUUIDs, in the order of the message.
    pub fn iter(self) -> impl Iterator<Item = [u8; 16]> + Clone + use<'a> {
        let mut reader = Reader::new(self.ber);
        std::iter::from_fn(move || match reader.is_empty() {
            true => None,
            false => sync_uuid(&mut reader, "syncUUIDs").ok(),
        })
    }
}

impl std::fmt::Debug for SyncUuids<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

/// Owns the BER of [`SyncUuids`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SyncUuidsBuf {
    ber: Vec<u8>,
}

impl SyncUuidsBuf {
    /// Appends an entryUUID.
    pub fn push(&mut self, uuid: [u8; 16]) {
        ber::put_octets(&mut self.ber, ber::OCTET_STRING, &uuid);
    }

    /// Bytes of those that were appended.
    pub fn bytes(&self) -> usize {
        self.ber.len()
    }

    /// Empties it; its memory is kept.
    pub fn clear(&mut self) {
        self.ber.clear();
    }

    /// The set.
    pub fn view(&self) -> SyncUuids<'_> {
        SyncUuids { ber: &self.ber }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn each_choice_is_what_the_document_says() {
        let mut uuids = SyncUuidsBuf::default();
        uuids.push(*b"0123456789abcdef");
        for (info, expected) in [
            (SyncInfo::NewCookie(b"c"), &b"\x80\x01c"[..]),
            (
                SyncInfo::RefreshDelete {
                    cookie: Some(b"c"),
                    done: true,
                },
                b"\xa1\x03\x04\x01c",
            ),
            (
                SyncInfo::RefreshPresent {
                    cookie: None,
                    done: false,
                },
                b"\xa2\x03\x01\x01\x00",
            ),
            (
                SyncInfo::IdSet {
                    cookie: None,
                    refresh_deletes: true,
                    uuids: uuids.view(),
                },
                b"\xa3\x17\x01\x01\xff\x31\x12\x04\x100123456789abcdef",
            ),
        ] {
            let mut value = Vec::new();
            info.encode(&mut value);
            assert_eq!(value, expected);
            assert_eq!(SyncInfo::decode(&value), Ok(info));
        }
        let told: Vec<_> = uuids.view().iter().collect();
        assert_eq!(told, [*b"0123456789abcdef"]);
        for refused in [
            &b""[..],
            b"\x84\x00",
            b"\xa1\x00\x00",
            b"\xa3\x00",
            b"\xa3\x05\x31\x03\x04\x01x",
        ] {
            assert!(SyncInfo::decode(refused).is_err(), "{refused:?}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(mut bytes in prop::collection::vec(any::<u8>(), 0..60)) {
            if let Some(tag) = bytes.first_mut() {
                *tag = 0xa0 | *tag & 3;
            }
            if let Ok(SyncInfo::IdSet { uuids, .. }) = SyncInfo::decode(&bytes) {
                prop_assert!(uuids.iter().count() <= bytes.len() / 18);
            }
        }
    }
}
