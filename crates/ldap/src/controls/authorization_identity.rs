//! Authorization identity (RFC 3829): a bind that succeeds says who the client is from now on. The request has no
//! value.
//!
//! controlValue of the response: the authzId, empty for anonymous

use super::{Control, Fault, Layer, Spec};
use crate::operation::Operation;

/// OID of the request control.
pub const AUTHORIZATION_IDENTITY: &str = "2.16.840.1.113730.3.4.16";
/// OID of the response control.
pub const AUTHORIZATION_IDENTITY_RESPONSE: &str = "2.16.840.1.113730.3.4.15";

pub(super) const SPEC: Spec = Spec {
    oids: &[AUTHORIZATION_IDENTITY],
    operations: &[Operation::Bind],
    layer: Layer::Session,
};

/// That it is there.
pub(super) type Value<'m> = ();

pub(super) fn decode(control: &Control<'_>) -> Result<(), Fault> {
    control.no_value()
}

/// The response control with an authzId.
pub fn authorization_identity_response(authzid: &str) -> Control<'_> {
    Control {
        oid: AUTHORIZATION_IDENTITY_RESPONSE,
        critical: false,
        value: Some(authzid.as_bytes()),
    }
}
