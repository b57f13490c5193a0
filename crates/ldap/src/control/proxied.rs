//! Proxied authorization (RFC 4370).

use crate::error::PartError;
use crate::message::utf8;

/// The authzId to act as, from the control's value; empty for anonymous. To write one, the value is the authzId itself.
pub fn proxied_authorization(value: &[u8]) -> Result<&str, PartError> {
    Ok(utf8(value, "authzId")?)
}
