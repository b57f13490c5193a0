//! Proxied authorization (RFC 4370), and the form that it had before: the request is done as if somebody else had sent
//! it.
//!
//! controlValue: the authzId itself (RFC 4513 §5.2.1.8), empty for anonymous
//!
//! controlValue of the first version (draft-weltman-ldapv3-proxy): `SEQUENCE { proxyDN LDAPDN }`

use super::{Control, Fault, Layer, Spec, sequence};
use crate::ber::utf8;
use crate::error::PartError;
use crate::operation::Operation;

/// Its OID.
pub const PROXIED_AUTHORIZATION: &str = "2.16.840.1.113730.3.4.18";
/// The OID of the first version.
pub const PROXIED_AUTHORIZATION_V1: &str = "2.16.840.1.113730.3.4.12";

pub(super) const SPEC: Spec = Spec {
    oids: &[PROXIED_AUTHORIZATION, PROXIED_AUTHORIZATION_V1],
    operations: &[
        Operation::Search,
        Operation::Compare,
        Operation::Add,
        Operation::Modify,
        Operation::Delete,
        Operation::ModifyDn,
    ],
    layer: Layer::Session,
};

/// Whom to act as.
pub(super) type Value<'m> = ProxiedAuthorization<'m>;

/// What the control asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProxiedAuthorization<'m> {
    /// Whether the control is critical, without which it is a protocol error (RFC 4370 §3).
    pub is_critical: bool,
    /// Whom to act as.
    pub whom: Whom<'m>,
}

/// How an identity is named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whom<'m> {
    /// By an authzId: `dn:cn=Ann,dc=example`, `u:ann`, or empty for anonymous.
    AuthzId(&'m str),
    /// By a DN, empty for anonymous.
    Dn(&'m str),
}

pub(super) fn decode<'m>(control: &Control<'m>) -> Result<Value<'m>, Fault> {
    let value = control.value()?;
    let whom = if control.oid == PROXIED_AUTHORIZATION_V1 {
        let mut reader = sequence(value, "proxyAuthValue")?;
        let dn = reader.octets("proxyDN")?;
        reader.end()?;
        Whom::Dn(utf8(dn, "proxyDN").map_err(PartError::from)?)
    } else {
        Whom::AuthzId(utf8(value, "authzId").map_err(PartError::from)?)
    };
    Ok(ProxiedAuthorization {
        is_critical: control.critical,
        whom,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_versions_say_whom() {
        let whom = |oid, value: &'static [u8]| {
            let control = Control {
                oid,
                critical: true,
                value: Some(value),
            };
            decode(&control).map(|proxied| (proxied.is_critical, proxied.whom))
        };
        for authzid in ["", "dn:cn=a", "u:a"] {
            let read = whom(PROXIED_AUTHORIZATION, authzid.as_bytes());
            assert_eq!(read, Ok((true, Whom::AuthzId(authzid))));
        }
        assert!(whom(PROXIED_AUTHORIZATION, b"\xff").is_err());
        let of_dn = |value| whom(PROXIED_AUTHORIZATION_V1, value);
        assert_eq!(of_dn(b"\x30\x06\x04\x04cn=a"), Ok((true, Whom::Dn("cn=a"))));
        assert_eq!(of_dn(b"\x30\x02\x04\x00"), Ok((true, Whom::Dn(""))));
        for wrong in [
            b"".as_slice(),
            b"cn=a",
            b"\x30\x02\x04\x01\xff",
            b"\x30\x03\x04\x01\xff",
            b"\x30\x04\x04\x00\x04\x00",
        ] {
            assert!(of_dn(wrong).is_err(), "{wrong:?}");
        }
    }
}
