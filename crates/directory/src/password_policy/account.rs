//! What is stored with an entry that has a password: when it was changed, locked, reset.

use crate::engine::EntryId;
use crate::entry::Entry;
use crate::error::{Error, Result};
use crate::operational::{Operational, Vocabulary};
use crate::schema::{OperationalAttribute, Schema};
use crate::stamp::seconds_of;

/// The part of an entry that password policies ask for. Times are in seconds since 1970.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Account {
    pub(crate) changed: Option<u64>,
    pub(crate) locked: Option<Locked>,
    pub(crate) grace_uses: u64,
    pub(crate) reset: bool,
    /// From when on the password may be used, and until when.
    pub(crate) start: Option<u64>,
    pub(crate) end: Option<u64>,
    /// The DN of the policy that the entry names.
    pub(crate) policy: Option<String>,
    /// Values of pwdHistory.
    pub(crate) history: Vec<Vec<u8>>,
}

/// A lock that is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Locked {
    /// Until an administrator takes it away: the year 0.
    ForGood,
    /// From this time on, for as long as the policy says.
    Since(u64),
}

impl Account {
    /// Whether an operational attribute is one that this is made of.
    pub(super) fn take(&mut self, schema: &Schema, attribute: OperationalAttribute, value: &[u8]) {
        match attribute {
            OperationalAttribute::PwdChangedTime => self.changed = seconds(schema, value),
            OperationalAttribute::PwdAccountLockedTime => {
                let since = seconds(schema, value);
                self.locked = Some(since.map_or(Locked::ForGood, Locked::Since));
            }
            OperationalAttribute::PwdGraceUseTime => self.grace_uses += 1,
            OperationalAttribute::PwdReset => self.reset = value == b"TRUE",
            OperationalAttribute::PwdStartTime => {
                // What is no time lets nobody in.
                self.start = Some(seconds(schema, value).unwrap_or(u64::MAX));
            }
            OperationalAttribute::PwdEndTime => {
                self.end = Some(seconds(schema, value).unwrap_or_default());
            }
            OperationalAttribute::PwdPolicySubentry => {
                self.policy = Some(String::from_utf8_lossy(value).into_owned());
            }
            OperationalAttribute::PwdHistory => self.history.push(value.to_vec()),
            _ => {}
        }
    }

    /// That of an entry by its record.
    pub(crate) fn of(
        vocabulary: Vocabulary<'_>,
        id: EntryId,
        entry: &Entry<'_>,
    ) -> Result<Account> {
        let damaged = |damaged| Error::corrupt(format!("entry {id}: {damaged}"));
        match Operational::read(entry.operational()).map_err(damaged)? {
            // In brief there is nothing of it.
            Operational::Brief(_) => Ok(Account::default()),
            Operational::Full(full) => {
                let full = Entry::new(full).map_err(damaged)?;
                Account::of_operational(vocabulary, id, &full)
            }
        }
    }

    /// That of an entry by the record of its operational attributes.
    pub(crate) fn of_operational(
        Vocabulary { schema, attributes }: Vocabulary<'_>,
        id: EntryId,
        operational: &Entry<'_>,
    ) -> Result<Account> {
        let mut account = Account::default();
        for stored in operational.attributes() {
            let stored =
                stored.map_err(|damaged| Error::corrupt(format!("entry {id}: {damaged}")))?;
            let known = attributes.get(stored.number());
            let known = known.and_then(|known| schema.as_operational(known.attribute_type()));
            if let Some(known) = known {
                for value in stored.values() {
                    account.take(schema, known, value);
                }
            }
        }
        Ok(account)
    }
}

/// The seconds since 1970 of a Generalized Time in any of its forms; none before 1970.
fn seconds(schema: &Schema, value: &[u8]) -> Option<u64> {
    let known = schema.type_of(schema.operational(OperationalAttribute::PwdStartTime));
    let mut key = Vec::new();
    known.equality()?.normalise(schema, value, &mut key).ok()?;
    seconds_of(std::str::from_utf8(&key).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_in_any_form() {
        let schema = Schema::standard();
        for (value, expected) in [
            ("19700101000000Z", Some(0)),
            ("1970010100Z", Some(0)),
            ("19700101010000+0100", Some(0)),
            ("20250102030405.678Z", Some(1_735_787_045)),
            ("000001010000Z", None),
            ("nonsense", None),
        ] {
            assert_eq!(seconds(&schema, value.as_bytes()), expected, "{value}");
        }
        let mut account = Account::default();
        let locked = OperationalAttribute::PwdAccountLockedTime;
        account.take(&schema, locked, b"000001010000Z");
        assert_eq!(account.locked, Some(Locked::ForGood));
        account.take(&schema, locked, b"19700101000007Z");
        assert_eq!(account.locked, Some(Locked::Since(7)));
    }
}
