//! Get Effective Rights (draft-ietf-ldapext-acl-model-08 §9, and as 389 Directory Server has it): each entry of a
//! search tells what somebody may do with it, in the attributes entryLevelRights and attributeLevelRights.
//!
//! controlValue, if there is one:
//!
//! ```text
//! GetRightsControl ::= SEQUENCE {
//!     authzId    OCTET STRING,                      dn:, and a DN
//!     attributes SEQUENCE OF OCTET STRING OPTIONAL }
//! ```
//!
//! or, as clients of 389 send it, the authzId alone. Without one, or with an empty one, it is about who asks.

use super::{Control, Fault, Layer, Spec, sequence};
use crate::ber::{self, utf8};
use crate::error::{PartError, Violation};
use crate::list::OctetStrings;
use crate::operation::Operation;

/// OID of the control.
pub const GET_EFFECTIVE_RIGHTS: &str = "1.3.6.1.4.1.42.2.27.9.5.2";

pub(super) const SPEC: Spec = Spec {
    oids: &[GET_EFFECTIVE_RIGHTS],
    operations: &[Operation::Search],
    layer: Layer::Directory,
};

/// What is asked.
pub(super) type Value<'m> = GetEffectiveRights<'m>;

/// Whose rights, on what.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GetEffectiveRights<'m> {
    /// The DN of whose rights are asked for, empty for nobody; `None` for who asks.
    pub dn: Option<&'m str>,
    /// Attributes that are told of besides those of the entry, as sent.
    pub attributes: OctetStrings<'m>,
}

pub(super) fn decode<'m>(control: &Control<'m>) -> Result<Value<'m>, Fault> {
    let value = control.value.unwrap_or_default();
    Ok(GetEffectiveRights::decode(value)?)
}

impl<'m> GetEffectiveRights<'m> {
    /// Reads a control value.
    ///
    /// # Errors
    /// When it is of neither form, or names somebody by something else than a DN.
    pub fn decode(value: &'m [u8]) -> Result<Self, PartError> {
        let (authzid, attributes) = match value.first() {
            Some(&ber::SEQUENCE) => {
                let mut reader = sequence(value, "GetRightsControl")?;
                let authzid = reader.octets("authzId")?;
                let attributes = reader.optional(ber::SEQUENCE, "attributes")?;
                reader.end()?;
                (authzid, attributes.unwrap_or_default())
            }
            _ => (value, b"".as_slice()),
        };
        let authzid = utf8(authzid, "authzId")?;
        let dn = match authzid.split_at_checked(3) {
            _ if authzid.is_empty() => None,
            Some((scheme, dn)) if scheme.eq_ignore_ascii_case("dn:") => Some(dn.trim_start()),
            _ => return Err(Violation::OutOfRange { field: "authzId" }.into()),
        };
        Ok(GetEffectiveRights {
            dn,
            attributes: OctetStrings::bounded(attributes, "attribute")?,
        })
    }

    /// Appends the control value, in the form of the draft.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let element = ber::open(out, ber::SEQUENCE, 0);
        let authzid = self.dn.map_or(String::new(), |dn| format!("dn:{dn}"));
        ber::put_octets(out, ber::OCTET_STRING, authzid.as_bytes());
        ber::put_octets(out, ber::SEQUENCE, self.attributes.as_ber());
        ber::close(out, element);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_are_read() {
        let attributes = [b"cn".as_slice(), b"mail"].into_iter().collect();
        let attributes: &crate::list::OctetStringsBuf = &attributes;
        for dn in [None, Some(""), Some("cn=a,o=x")] {
            let asked = GetEffectiveRights {
                dn,
                attributes: attributes.view(),
            };
            let mut value = Vec::new();
            asked.encode(&mut value);
            assert_eq!(GetEffectiveRights::decode(&value), Ok(asked));
        }
        let alone = |value: &'static [u8]| {
            let asked = GetEffectiveRights::decode(value).unwrap();
            assert!(asked.attributes.is_empty());
            asked.dn
        };
        assert_eq!(alone(b""), None);
        assert_eq!(alone(b"dn:"), Some(""));
        assert_eq!(alone(b"DN: cn=a,o=x"), Some("cn=a,o=x"));
        assert_eq!(alone(b"\x30\x02\x04\x00"), None);
        for wrong in [
            b"cn=a,o=x".as_slice(),
            b"u:ann",
            b"dn",
            b"dn:\xff",
            b"\x30\x00",
            b"\x30\x04\x04\x02u:",
            b"\x30\x03\x04\x00",
            b"\x30\x05\x04\x00\x30\x01\x04",
        ] {
            assert!(GetEffectiveRights::decode(wrong).is_err(), "{wrong:?}");
        }
    }
}
