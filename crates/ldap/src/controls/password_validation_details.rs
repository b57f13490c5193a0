//! Password Validation Details, as PingDirectory and the UnboundID LDAP SDK have it: the answer to a change of a
//! password says what is asked of a new one, and which of that it is. The control of the request has no value.
//!
//! controlValue of the response:
//!
//! ```text
//! PasswordValidationDetailsResponse ::= SEQUENCE {
//!     validationResult CHOICE {
//!         validationDetails         [0] SEQUENCE OF PasswordQualityRequirementValidationResult,
//!         noPasswordProvided        [1] NULL,
//!         multiplePasswordsProvided [2] NULL,
//!         noValidationAttempted     [3] NULL },
//!     missingCurrentPassword [3] BOOLEAN DEFAULT FALSE,
//!     mustChangePassword     [4] BOOLEAN DEFAULT FALSE,
//!     secondsUntilExpiration [5] INTEGER OPTIONAL }
//!
//! PasswordQualityRequirementValidationResult ::= SEQUENCE {
//!     passwordRequirement SEQUENCE {
//!         description              OCTET STRING,
//!         clientSideValidationInfo [1] SEQUENCE {
//!             validationType OCTET STRING,
//!             properties     [1] SET OF SEQUENCE {
//!                 name  OCTET STRING,
//!                 value OCTET STRING } } OPTIONAL },
//!     requirementSatisfied BOOLEAN,
//!     additionalInfo       [0] OCTET STRING OPTIONAL }
//! ```
//!
//! The SDK's documentation has `[0]` where its code reads and writes the two tags `[1]`.

use super::{Control, Fault, Layer, Spec};
use crate::ber;
use crate::operation::Operation;

/// OID of the request control.
pub const PASSWORD_VALIDATION_DETAILS: &str = "1.3.6.1.4.1.30221.2.5.40";
/// OID of the response control.
pub const PASSWORD_VALIDATION_DETAILS_RESPONSE: &str = "1.3.6.1.4.1.30221.2.5.41";

/// Password Modify takes it besides.
pub(super) const SPEC: Spec = Spec {
    oids: &[PASSWORD_VALIDATION_DETAILS],
    operations: &[Operation::Add, Operation::Modify],
    layer: Layer::Session,
};

/// That it is there.
pub(super) type Value<'m> = ();

pub(super) fn decode(control: &Control<'_>) -> Result<(), Fault> {
    control.no_value()
}

/// What is asked of a password, and whether it is so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckedRequirement {
    /// For people.
    pub description: String,
    /// For programs: the fewest and the most bytes, where it asks for a length; 0 for no limit.
    pub length: Option<(u64, u64)>,
    /// Whether the password meets it.
    pub is_met: bool,
}

/// What came of looking at a new password.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PasswordValidation {
    /// It was looked at.
    Checked(Vec<CheckedRequirement>),
    /// The request brings none.
    NoPassword,
    /// It brings several.
    SeveralPasswords,
    /// Nobody looks at it, or it was not looked at before the request was refused.
    NotAttempted,
}

/// The value of the response control.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PasswordValidationDetails {
    /// What came of looking at the password.
    pub validation: PasswordValidation,
    /// Whether the request was refused because it has to bring the password that there is.
    pub misses_current: bool,
    /// Whether the password is to be changed by its owner before anything else.
    pub must_change: bool,
    /// For how many seconds it holds; none without end.
    pub expires_in: Option<u32>,
}

impl PasswordValidationDetails {
    /// Appends the value.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let value = ber::open(out, ber::SEQUENCE, 0);
        match &self.validation {
            PasswordValidation::Checked(requirements) => {
                let list = ber::open(out, ber::context_constructed(0), 0);
                requirements.iter().for_each(|checked| checked.encode(out));
                ber::close(out, list);
            }
            PasswordValidation::NoPassword => ber::put_octets(out, ber::context(1), b""),
            PasswordValidation::SeveralPasswords => ber::put_octets(out, ber::context(2), b""),
            PasswordValidation::NotAttempted => ber::put_octets(out, ber::context(3), b""),
        }
        for (number, is) in [(3, self.misses_current), (4, self.must_change)] {
            if is {
                ber::put_boolean(out, ber::context(number), true);
            }
        }
        if let Some(seconds) = self.expires_in {
            ber::put_integer(out, ber::context(5), seconds.into());
        }
        ber::close(out, value);
    }
}

impl CheckedRequirement {
    fn encode(&self, out: &mut Vec<u8>) {
        let result = ber::open(out, ber::SEQUENCE, 0);
        let requirement = ber::open(out, ber::SEQUENCE, 0);
        ber::put_octets(out, ber::OCTET_STRING, self.description.as_bytes());
        if let Some((least, most)) = self.length {
            let info = ber::open(out, ber::context_constructed(1), 0);
            ber::put_octets(out, ber::OCTET_STRING, b"length");
            let properties = ber::open(out, ber::context_constructed(1), 0);
            for (name, bytes) in [("min-password-length", least), ("max-password-length", most)] {
                if bytes > 0 {
                    let property = ber::open(out, ber::SEQUENCE, 0);
                    ber::put_octets(out, ber::OCTET_STRING, name.as_bytes());
                    ber::put_octets(out, ber::OCTET_STRING, bytes.to_string().as_bytes());
                    ber::close(out, property);
                }
            }
            ber::close(out, properties);
            ber::close(out, info);
        }
        ber::close(out, requirement);
        ber::put_boolean(out, ber::BOOLEAN, self.is_met);
        ber::close(out, result);
    }
}

/// The response control with an encoded value.
pub fn password_validation_response(value: &[u8]) -> Control<'_> {
    Control {
        oid: PASSWORD_VALIDATION_DETAILS_RESPONSE,
        critical: false,
        value: Some(value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_asked_for_and_answered_as_the_sdk_does() {
        let asked = |value| {
            decode(&Control {
                oid: PASSWORD_VALIDATION_DETAILS,
                critical: true,
                value,
            })
        };
        assert_eq!(asked(None), Ok(()));
        assert!(asked(Some(b"")).is_err());
        let encoded = |validation, misses_current, expires_in| {
            let mut value = Vec::new();
            PasswordValidationDetails {
                validation,
                misses_current,
                must_change: misses_current,
                expires_in,
            }
            .encode(&mut value);
            value
        };
        assert_eq!(
            encoded(PasswordValidation::NoPassword, true, Some(7)),
            b"\x30\x0b\x81\x00\x83\x01\xff\x84\x01\xff\x85\x01\x07"
        );
        assert_eq!(encoded(PasswordValidation::SeveralPasswords, false, None), b"\x30\x02\x82\x00");
        assert_eq!(encoded(PasswordValidation::NotAttempted, false, None), b"\x30\x02\x83\x00");
        let plain = CheckedRequirement {
            description: "x".into(),
            length: None,
            is_met: true,
        };
        assert_eq!(
            encoded(PasswordValidation::Checked(vec![plain.clone()]), false, None),
            b"\x30\x0c\xa0\x0a\x30\x08\x30\x03\x04\x01x\x01\x01\xff"
        );
        let length = CheckedRequirement {
            length: Some((8, 0)),
            is_met: false,
            ..plain
        };
        let expected: &[u8] = b"\x30\x32\xa0\x30\x30\x2e\x30\x29\x04\x01x\xa1\x24\x04\x06length\xa1\x1a\x30\x18\
                                \x04\x13min-password-length\x04\x018\x01\x01\x00";
        assert_eq!(encoded(PasswordValidation::Checked(vec![length]), false, None), expected);
    }
}
