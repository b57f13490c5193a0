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
