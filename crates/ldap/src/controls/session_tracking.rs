//! Session tracking (draft-wahl-ldap-session-03): for whom an application asks, as the logs of the server are to have
//! it. It gives no rights.
//!
//! controlValue:
//!
//! ```text
//! SessionIdentifierControlValue ::= SEQUENCE {
//!     sessionSourceIp           LDAPString,
//!     sessionSourceName         LDAPString,
//!     formatOID                 LDAPOID,
//!     sessionTrackingIdentifier LDAPString }
//! ```

use super::{Control, Fault, Layer, OF_ANSWERED, Spec, sequence};
use crate::ber::utf8;

/// Its OID.
pub const SESSION_TRACKING: &str = "1.3.6.1.4.1.21008.108.63.1";

pub(super) const SPEC: Spec = Spec {
    oids: &[SESSION_TRACKING],
    operations: OF_ANSWERED,
    layer: Layer::Session,
};

/// The control value. Nothing in it is checked: it is what a client says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SessionTracking<'a> {
    /// The address that the application was asked from.
    pub address: &'a str,
    /// The name of the application, or of its host.
    pub name: &'a str,
    /// What kind of identifier it is.
    pub format: &'a str,
    /// Who or which session of the application it is.
    pub identifier: &'a str,
}

pub(super) type Value<'m> = SessionTracking<'m>;

pub(super) fn decode<'m>(control: &Control<'m>) -> Result<Value<'m>, Fault> {
    let mut reader = sequence(control.value()?, "SessionIdentifierControlValue")?;
    let address = reader.octets("sessionSourceIp")?;
    let name = reader.octets("sessionSourceName")?;
    let format = reader.octets("formatOID")?;
    let identifier = reader.octets("sessionTrackingIdentifier")?;
    reader.skip_extensions()?;
    Ok(SessionTracking {
        address: utf8(address, "sessionSourceIp")?,
        name: utf8(name, "sessionSourceName")?,
        format: utf8(format, "formatOID")?,
        identifier: utf8(identifier, "sessionTrackingIdentifier")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(value: &[u8]) -> Result<SessionTracking<'_>, Fault> {
        decode(&Control {
            oid: SESSION_TRACKING,
            critical: false,
            value: Some(value),
        })
    }

    #[test]
    fn it_is_what_the_document_says() {
        let expected = SessionTracking {
            address: "::1",
            name: "",
            format: "1.2",
            identifier: "u",
        };
        assert_eq!(
            read(b"\x30\x0f\x04\x03::1\x04\x00\x04\x031.2\x04\x01u"),
            Ok(expected)
        );
        for wrong in [
            &b""[..],
            b"\x30\x00",
            b"\x30\x06\x04\x00\x04\x00\x04\x00",
            b"\x30\x08\x04\x00\x04\x00\x04\x00\x02\x00",
            b"\x30\x09\x04\x00\x04\x00\x04\x00\x04\x01\xff",
        ] {
            assert!(read(wrong).is_err(), "{wrong:?}");
        }
    }
}
