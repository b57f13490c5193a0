//! Account usability, of Sun's directory servers: with each entry of a search comes whether its password can be used.
//! The request has no value; the response on an entry has the same OID and
//!
//! ```text
//! ACCOUNT_USABLE_RESPONSE ::= CHOICE {
//!    is_available     [0] INTEGER,     seconds until the password expires, -1 for never
//!    is_not_available [1] MORE_INFO }
//! MORE_INFO ::= SEQUENCE {
//!    inactive              [0] BOOLEAN DEFAULT FALSE,
//!    reset                 [1] BOOLEAN DEFAULT FALSE,
//!    expired               [2] BOOLEAN DEFAULT FALSE,
//!    remaining_grace       [3] INTEGER OPTIONAL,
//!    seconds_before_unlock [4] INTEGER OPTIONAL }
//! ```

use super::{Control, Fault, Layer, Spec};
use crate::ber::{self, Reader};
use crate::error::{PartError, Violation};
use crate::limits::INTEGER_MAX;
use crate::operation::Operation;

/// OID of the request control and of the response control.
pub const ACCOUNT_USABILITY: &str = "1.3.6.1.4.1.42.2.27.9.5.8";

pub(super) const SPEC: Spec = Spec {
    oids: &[ACCOUNT_USABILITY],
    operations: &[Operation::Search],
    layer: Layer::Directory,
};

/// That it is there.
pub(super) type Value<'m> = ();

pub(super) fn decode(control: &Control<'_>) -> Result<(), Fault> {
    control.no_value()
}

/// Whether the password of an entry can be used. Numbers are at most 2,147,483,647.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccountUsability {
    /// It can.
    Usable {
        /// For so many seconds; none where it does not expire.
        expires_in: Option<u32>,
    },
    /// It cannot, or only to change it.
    Unusable(Unusable),
}

/// Why a password cannot be used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unusable {
    /// The account is locked, or it is not its time.
    pub inactive: bool,
    /// The password was reset, and has to be changed.
    pub reset: bool,
    /// The password has expired.
    pub expired: bool,
    /// How often a password that has expired may still be used.
    pub remaining_grace: Option<u32>,
    /// After how many seconds a lock ends.
    pub unlocks_in: Option<u32>,
}

const AVAILABLE: u8 = ber::context(0);
const NOT_AVAILABLE: u8 = ber::context_constructed(1);
const INACTIVE: u8 = ber::context(0);
const RESET: u8 = ber::context(1);
const EXPIRED: u8 = ber::context(2);
const GRACE: u8 = ber::context(3);
const UNLOCK: u8 = ber::context(4);

impl AccountUsability {
    /// Bytes of the response control at most, with what is around it.
    pub const CONTROL_BYTES_MAX: usize = 96;

    /// Appends the value of the response control.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            AccountUsability::Usable { expires_in } => {
                let seconds = expires_in.map_or(-1, i64::from);
                ber::put_integer(out, AVAILABLE, seconds);
            }
            AccountUsability::Unusable(why) => {
                let mut content = Vec::new();
                for (tag, is_set) in [
                    (INACTIVE, why.inactive),
                    (RESET, why.reset),
                    (EXPIRED, why.expired),
                ] {
                    // DER leaves out what is the default.
                    if is_set {
                        ber::put_boolean(&mut content, tag, true);
                    }
                }
                for (tag, number) in [(GRACE, why.remaining_grace), (UNLOCK, why.unlocks_in)] {
                    if let Some(number) = number {
                        ber::put_integer(&mut content, tag, number.into());
                    }
                }
                ber::put_octets(out, NOT_AVAILABLE, &content);
            }
        }
    }

    /// Reads the value of a response control.
    ///
    /// # Errors
    /// When it has another form, or a number beyond its bounds.
    pub fn decode(value: &[u8]) -> Result<AccountUsability, PartError> {
        let mut reader = Reader::new(value);
        if let Some(content) = reader.optional(AVAILABLE, "is_available")? {
            reader.end()?;
            let expires_in = match ber::integer(content, "is_available")? {
                -1 => None,
                seconds => Some(bounded(seconds, "is_available")?),
            };
            return Ok(AccountUsability::Usable { expires_in });
        }
        let content = reader.expect(NOT_AVAILABLE, "is_not_available")?;
        reader.end()?;
        let mut reader = Reader::new(content);
        let mut flag = |tag, field| match reader.optional(tag, field)? {
            Some(content) => ber::boolean(content, field),
            None => Ok(false),
        };
        let (inactive, reset) = (flag(INACTIVE, "inactive")?, flag(RESET, "reset")?);
        let expired = flag(EXPIRED, "expired")?;
        let mut number = |tag, field| -> Result<Option<u32>, PartError> {
            match reader.optional(tag, field)? {
                Some(content) => Ok(Some(bounded(ber::integer(content, field)?, field)?)),
                None => Ok(None),
            }
        };
        let remaining_grace = number(GRACE, "remaining_grace")?;
        let unlocks_in = number(UNLOCK, "seconds_before_unlock")?;
        reader.skip_extensions()?;
        Ok(AccountUsability::Unusable(Unusable {
            inactive,
            reset,
            expired,
            remaining_grace,
            unlocks_in,
        }))
    }
}

fn bounded(number: i64, field: &'static str) -> Result<u32, PartError> {
    let known = u32::try_from(number).ok();
    let known = known.filter(|known| *known <= INTEGER_MAX);
    known.ok_or(PartError::from(Violation::OutOfRange { field }))
}

/// The response control with a value.
pub fn account_usability_response(value: &[u8]) -> Control<'_> {
    Control {
        oid: ACCOUNT_USABILITY,
        critical: false,
        value: Some(value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(usability: AccountUsability) -> Vec<u8> {
        let mut value = Vec::new();
        usability.encode(&mut value);
        value
    }

    #[test]
    fn responses_are_read_as_they_are_written() {
        let usable = [None, Some(0), Some(INTEGER_MAX)];
        let usable = usable.map(|expires_in| AccountUsability::Usable { expires_in });
        let flags = (0..8_u8).flat_map(|flags| {
            [None, Some(7)].map(|number| {
                AccountUsability::Unusable(Unusable {
                    inactive: flags & 1 > 0,
                    reset: flags & 2 > 0,
                    expired: flags & 4 > 0,
                    remaining_grace: number,
                    unlocks_in: number.filter(|_| flags & 1 > 0),
                })
            })
        });
        for usability in usable.into_iter().chain(flags) {
            let value = value(usability);
            assert_eq!(AccountUsability::decode(&value), Ok(usability));
            let bytes = value.len() + ACCOUNT_USABILITY.len() + 32;
            assert!(bytes <= AccountUsability::CONTROL_BYTES_MAX);
        }
    }

    #[test]
    fn values_have_the_form_of_others() {
        let forever = AccountUsability::Usable { expires_in: None };
        assert_eq!(value(forever), [0x80, 1, 0xff]);
        let locked = AccountUsability::Unusable(Unusable {
            inactive: true,
            unlocks_in: Some(300),
            ..Unusable::default()
        });
        assert_eq!(value(locked), [0xa1, 7, 0x80, 1, 0xff, 0x84, 2, 1, 44]);
        for wrong in [&[][..], &[0x80, 0], &[0x80, 1, 0xfe], &[0xa1, 3, 0x83, 1, 0xff]] {
            assert!(AccountUsability::decode(wrong).is_err(), "{wrong:?}");
        }
    }
}
