//! Persistent search (draft-ietf-ldapext-psearch): a search that goes on when it has found what there is, and tells of
//! changes from then on. Each entry that it sends for a change can carry a notification, which says what has happened.
//!
//! controlValue of the request:
//!
//! ```text
//! SEQUENCE {
//!     changeTypes INTEGER,    the sum of those that are wanted
//!     changesOnly BOOLEAN,    whether what there is when the search begins is left out
//!     returnECs   BOOLEAN }   whether notifications are wanted
//! ```
//!
//! controlValue of the notification:
//!
//! ```text
//! SEQUENCE {
//!     changeType   ENUMERATED { add (1), delete (2), modify (4), modDN (8) },
//!     previousDN   LDAPDN OPTIONAL,     of modDN
//!     changeNumber INTEGER OPTIONAL }   which this server leaves out
//! ```

use super::{Control, Fault, Layer, Spec, sequence};
use crate::ber::{self, utf8};
use crate::error::{PartError, Violation};
use crate::operation::Operation;

/// Its OID.
pub const PERSISTENT_SEARCH: &str = "2.16.840.1.113730.3.4.3";
/// OID of the notification on an entry.
pub const ENTRY_CHANGE_NOTIFICATION: &str = "2.16.840.1.113730.3.4.7";

pub(super) const SPEC: Spec = Spec {
    oids: &[PERSISTENT_SEARCH],
    operations: &[Operation::Search],
    layer: Layer::Directory,
};

/// What is wanted.
pub(super) type Value<'m> = PersistentSearch;

pub(super) fn decode(control: &Control<'_>) -> Result<PersistentSearch, Fault> {
    Ok(PersistentSearch::decode(control.value()?)?)
}

/// The value of the request control.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PersistentSearch {
    /// Which changes are told.
    pub types: ChangeTypes,
    /// Whether what there is when the search begins is left out.
    pub changes_only: bool,
    /// Whether entries that are sent for changes carry notifications.
    pub notifies: bool,
}

impl PersistentSearch {
    /// Reads a control value.
    pub fn decode(value: &[u8]) -> Result<PersistentSearch, PartError> {
        let mut reader = sequence(value, "PersistentSearch")?;
        let field = "changeTypes";
        let types = reader.integer(field)?;
        let types = u8::try_from(types).ok().and_then(ChangeTypes::of);
        let types = types.ok_or(Violation::OutOfRange { field })?;
        let changes_only = reader.boolean("changesOnly")?;
        let notifies = reader.boolean("returnECs")?;
        reader.end()?;
        Ok(PersistentSearch {
            types,
            changes_only,
            notifies,
        })
    }

    /// Appends the control value.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let types = i64::from(self.types.0);
        ber::put_header(out, ber::SEQUENCE, 2 + ber::integer_len(types) + 6);
        ber::put_integer(out, ber::INTEGER, types);
        ber::put_boolean(out, ber::BOOLEAN, self.changes_only);
        ber::put_boolean(out, ber::BOOLEAN, self.notifies);
    }
}

/// What may happen to an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum ChangeType {
    /// It was added.
    Add = 1,
    /// It was deleted.
    Delete = 2,
    /// Its attributes were changed.
    Modify = 4,
    /// It got another name.
    ModDn = 8,
}

impl ChangeType {
    const ALL: [ChangeType; 4] = [
        ChangeType::Add,
        ChangeType::Delete,
        ChangeType::Modify,
        ChangeType::ModDn,
    ];
}

/// A set of them, which is not empty.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChangeTypes(u8);

impl ChangeTypes {
    /// Every change.
    pub const ALL: ChangeTypes = ChangeTypes(0b1111);

    /// Those with these numbers in their sum; `None` where others are in it, or none.
    fn of(sum: u8) -> Option<ChangeTypes> {
        matches!(sum, 1..=0b1111).then_some(ChangeTypes(sum))
    }

    /// Whether changes of a type are in it.
    pub const fn has(self, one: ChangeType) -> bool {
        self.0 & one as u8 != 0
    }
}

impl From<ChangeType> for ChangeTypes {
    fn from(one: ChangeType) -> ChangeTypes {
        ChangeTypes(one as u8)
    }
}

/// The value of the control on an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EntryChange<'a> {
    /// What has happened to it.
    pub kind: ChangeType,
    /// With another name: what its DN was before.
    pub previous_dn: Option<&'a str>,
    /// The number of the change, if the server tells it.
    pub number: Option<i64>,
}

impl<'a> EntryChange<'a> {
    /// Reads a control value.
    pub fn decode(value: &'a [u8]) -> Result<EntryChange<'a>, PartError> {
        let mut reader = sequence(value, "EntryChangeNotification")?;
        let field = "changeType";
        let kind = ber::integer(reader.expect(ber::ENUMERATED, field)?, field)?;
        let known = |known: &ChangeType| i64::from(*known as u8) == kind;
        let kind = ChangeType::ALL.into_iter().find(known);
        let kind = kind.ok_or(Violation::OutOfRange { field })?;
        let previous_dn = reader.optional(ber::OCTET_STRING, "previousDN")?;
        let previous_dn = previous_dn.map(|dn| utf8(dn, "previousDN")).transpose()?;
        let number = reader.optional(ber::INTEGER, "changeNumber")?;
        let number = number.map(|number| ber::integer(number, "changeNumber"));
        let number = number.transpose()?;
        reader.skip_extensions()?;
        Ok(EntryChange {
            kind,
            previous_dn,
            number,
        })
    }

    /// Appends the control value.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let value = ber::open(out, ber::SEQUENCE, self.previous_dn.map_or(0, str::len));
        ber::put_integer(out, ber::ENUMERATED, i64::from(self.kind as u8));
        if let Some(dn) = self.previous_dn {
            ber::put_octets(out, ber::OCTET_STRING, dn.as_bytes());
        }
        if let Some(number) = self.number {
            ber::put_integer(out, ber::INTEGER, number);
        }
        ber::close(out, value);
    }
}

/// The control on an entry, with an [encoded](EntryChange::encode) value.
pub fn entry_change_notification(value: &[u8]) -> Control<'_> {
    Control {
        oid: ENTRY_CHANGE_NOTIFICATION,
        critical: false,
        value: Some(value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(value: &[u8]) -> Result<PersistentSearch, Fault> {
        decode(&Control {
            oid: PERSISTENT_SEARCH,
            critical: true,
            value: Some(value),
        })
    }

    #[test]
    fn what_is_wanted_is_read_as_it_was_written() {
        for sum in 1..16 {
            for (changes_only, notifies) in [(true, false), (false, true)] {
                let wanted = PersistentSearch {
                    types: ChangeTypes::of(sum).unwrap(),
                    changes_only,
                    notifies,
                };
                let mut value = Vec::new();
                wanted.encode(&mut value);
                assert_eq!(read(&value), Ok(wanted));
            }
        }
        let all = read(b"\x30\x09\x02\x01\x0f\x01\x01\xff\x01\x01\x00").unwrap();
        assert_eq!(all.types, ChangeTypes::ALL);
        assert!(all.changes_only && !all.notifies);
        let one = ChangeTypes::from(ChangeType::Delete);
        assert!(one.has(ChangeType::Delete) && !one.has(ChangeType::Add));
    }

    #[test]
    fn nonsense_is_refused() {
        for wrong in [
            &b""[..],
            b"\x30\x00",
            b"\x30\x09\x02\x01\x00\x01\x01\xff\x01\x01\x00",
            b"\x30\x09\x02\x01\x10\x01\x01\xff\x01\x01\x00",
            b"\x30\x09\x02\x01\xff\x01\x01\xff\x01\x01\x00",
            b"\x30\x06\x02\x01\x0f\x01\x01\xff",
            b"\x30\x0c\x02\x01\x0f\x01\x01\xff\x01\x01\x00\x01\x01\x00",
        ] {
            assert!(read(wrong).is_err(), "{wrong:?}");
        }
        for wrong in [
            &b"\x30\x03\x0a\x01\x03"[..],
            b"\x30\x03\x02\x01\x01",
            b"\x30\x06\x0a\x01\x01\x04\x01\xff",
        ] {
            assert!(EntryChange::decode(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn a_notification_is_read_as_it_was_written() {
        let long = "x".repeat(300);
        for kind in ChangeType::ALL {
            for (previous_dn, number) in
                [(None, None), (Some("cn=a"), Some(7)), (Some(&*long), None)]
            {
                let change = EntryChange {
                    kind,
                    previous_dn,
                    number,
                };
                let mut value = Vec::new();
                change.encode(&mut value);
                assert_eq!(EntryChange::decode(&value), Ok(change));
                let control = entry_change_notification(&value);
                assert_eq!(control.oid, ENTRY_CHANGE_NOTIFICATION);
            }
        }
    }
}
