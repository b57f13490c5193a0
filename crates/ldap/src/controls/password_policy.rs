//! Password policy (draft-behera-ldap-password-policy §6). The request has no value; the response has the same OID and
//!
//! ```text
//! PasswordPolicyResponseValue ::= SEQUENCE {
//!    warning [0] CHOICE {
//!       timeBeforeExpiration [0] INTEGER (0 .. maxInt),
//!       graceAuthNsRemaining [1] INTEGER (0 .. maxInt) } OPTIONAL,
//!    error   [1] ENUMERATED { ... } OPTIONAL }
//! ```
//!
//! Clients that do not ask get two controls of Netscape instead, if the server is told to send them: their values are
//! numbers written as text (draft-vchu-ldap-pwd-policy §3).

use super::{Control, Fault, Layer, OF_ANSWERED, Spec, sequence};
use crate::ber::{self, Reader};
use crate::error::{PartError, Violation};
use crate::limits::INTEGER_MAX;

/// OID of the request control and of the response control.
pub const PASSWORD_POLICY: &str = "1.3.6.1.4.1.42.2.27.8.5.1";
/// OID of Netscape's response control for a password that has expired, or is to be changed: its value is `0`.
pub const PASSWORD_EXPIRED: &str = "2.16.840.1.113730.3.4.4";
/// OID of Netscape's response control for a password that expires in the seconds that its value says.
pub const PASSWORD_EXPIRING: &str = "2.16.840.1.113730.3.4.5";

pub(super) const SPEC: Spec = Spec {
    oids: &[PASSWORD_POLICY],
    operations: OF_ANSWERED,
    layer: Layer::Session,
};

/// That it is there.
pub(super) type Value<'m> = ();

pub(super) fn decode(control: &Control<'_>) -> Result<(), Fault> {
    control.no_value()
}

/// What a response control says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PasswordPolicyResponse {
    /// What is to come.
    pub warning: Option<PasswordPolicyWarning>,
    /// What is wrong.
    pub error: Option<PasswordPolicyError>,
}

/// What a client is warned of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PasswordPolicyWarning {
    /// The password expires in so many seconds.
    TimeBeforeExpiration(u32),
    /// The password has expired, and may be used so many times more.
    GraceAuthNsRemaining(u32),
}

/// What is wrong with a password or an account.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(
    missing_docs,
    reason = "the names are those of the draft, which explains them"
)]
pub enum PasswordPolicyError {
    PasswordExpired = 0,
    AccountLocked = 1,
    ChangeAfterReset = 2,
    PasswordModNotAllowed = 3,
    MustSupplyOldPassword = 4,
    InsufficientPasswordQuality = 5,
    PasswordTooShort = 6,
    PasswordTooYoung = 7,
    PasswordInHistory = 8,
    PasswordTooLong = 9,
}

impl PasswordPolicyError {
    const ALL: [PasswordPolicyError; 10] = [
        PasswordPolicyError::PasswordExpired,
        PasswordPolicyError::AccountLocked,
        PasswordPolicyError::ChangeAfterReset,
        PasswordPolicyError::PasswordModNotAllowed,
        PasswordPolicyError::MustSupplyOldPassword,
        PasswordPolicyError::InsufficientPasswordQuality,
        PasswordPolicyError::PasswordTooShort,
        PasswordPolicyError::PasswordTooYoung,
        PasswordPolicyError::PasswordInHistory,
        PasswordPolicyError::PasswordTooLong,
    ];
}

const WARNING: u8 = ber::context_constructed(0);
const ERROR: u8 = ber::context(1);
const EXPIRES: u8 = ber::context(0);
const GRACE: u8 = ber::context(1);

impl PasswordPolicyResponse {
    /// Appends the value of the control.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut content = Vec::new();
        if let Some(warning) = self.warning {
            let (tag, number) = match warning {
                PasswordPolicyWarning::TimeBeforeExpiration(seconds) => (EXPIRES, seconds),
                PasswordPolicyWarning::GraceAuthNsRemaining(uses) => (GRACE, uses),
            };
            let mut chosen = Vec::new();
            ber::put_integer(&mut chosen, tag, number.into());
            ber::put_octets(&mut content, WARNING, &chosen);
        }
        if let Some(error) = self.error {
            ber::put_integer(&mut content, ERROR, error as i64);
        }
        ber::put_octets(out, ber::SEQUENCE, &content);
    }

    /// Reads the value of the control.
    pub fn decode(value: &[u8]) -> Result<PasswordPolicyResponse, PartError> {
        let mut reader = sequence(value, "PasswordPolicyResponseValue")?;
        let mut read = PasswordPolicyResponse::default();
        if let Some(content) = reader.optional(WARNING, "warning")? {
            let mut chosen = Reader::new(content);
            let number = |content| {
                let number = ber::integer(content, "warning")?;
                let number = u32::try_from(number)
                    .ok()
                    .filter(|number| *number <= INTEGER_MAX);
                number.ok_or(PartError::from(Violation::OutOfRange { field: "warning" }))
            };
            read.warning = Some(match chosen.optional(EXPIRES, "timeBeforeExpiration")? {
                Some(content) => PasswordPolicyWarning::TimeBeforeExpiration(number(content)?),
                None => {
                    let content = chosen.expect(GRACE, "graceAuthNsRemaining")?;
                    PasswordPolicyWarning::GraceAuthNsRemaining(number(content)?)
                }
            });
        }
        if let Some(content) = reader.optional(ERROR, "error")? {
            let number = ber::integer(content, "error")?;
            let mut all = PasswordPolicyError::ALL.into_iter();
            let known = all.find(|known| *known as i64 == number);
            read.error = Some(known.ok_or(Violation::OutOfRange { field: "error" })?);
        }
        reader.skip_extensions()?;
        Ok(read)
    }
}

/// The response control with a value.
pub fn password_policy_response(value: &[u8]) -> Control<'_> {
    Control {
        oid: PASSWORD_POLICY,
        critical: false,
        value: Some(value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn responses_are_read_as_they_are_written() {
        let warnings = [
            None,
            Some(PasswordPolicyWarning::TimeBeforeExpiration(0)),
            Some(PasswordPolicyWarning::GraceAuthNsRemaining(INTEGER_MAX)),
        ];
        for warning in warnings {
            for error in [None].into_iter().chain(PasswordPolicyError::ALL.map(Some)) {
                let response = PasswordPolicyResponse { warning, error };
                let mut value = Vec::new();
                response.encode(&mut value);
                assert_eq!(PasswordPolicyResponse::decode(&value), Ok(response));
            }
        }
    }

    #[test]
    fn values_are_those_of_the_draft() {
        let value = |warning, error| {
            let mut value = Vec::new();
            PasswordPolicyResponse { warning, error }.encode(&mut value);
            value
        };
        assert_eq!(value(None, None), [0x30, 0]);
        let warning = Some(PasswordPolicyWarning::TimeBeforeExpiration(300));
        assert_eq!(value(warning, None), [0x30, 6, 0xa0, 4, 0x80, 2, 1, 44]);
        let error = Some(PasswordPolicyError::PasswordInHistory);
        assert_eq!(value(None, error), [0x30, 3, 0x81, 1, 8]);
        for wrong in [&[][..], &[0x30, 3, 0x81, 1, 10], &[0x30, 2, 0xa0, 0]] {
            assert!(PasswordPolicyResponse::decode(wrong).is_err(), "{wrong:?}");
        }
    }
}
