//! Proxied authorization (RFC 4370): the operation is done for somebody else. It is read so that it can be refused
//! where RFC 5805 §4.4 says how.
//!
//! controlValue: the authzId itself, empty for anonymous

use super::{Control, Fault, Layer, Spec};
use crate::message::utf8;

/// Its OID.
pub const PROXIED_AUTHORIZATION: &str = "2.16.840.1.113730.3.4.18";

pub(super) const SPEC: Spec = Spec {
    oids: &[PROXIED_AUTHORIZATION],
    operations: &[],
    layer: Layer::Directory,
};

/// The authzId to act as.
pub(super) type Value<'m> = &'m str;

pub(super) fn decode<'m>(control: &Control<'m>) -> Result<Value<'m>, Fault> {
    Ok(utf8(control.value()?, "authzId").map_err(crate::error::PartError::from)?)
}
