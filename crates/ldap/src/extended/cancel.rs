//! Cancel (RFC 3909). Its response has no value.

use crate::ber;
use crate::controls::sequence;
use crate::error::{PartError, Violation};
use crate::limits::MESSAGE_ID_MAX;

/// Its OID.
pub const CANCEL: &str = "1.3.6.1.1.8";

/// Reads the request value of Cancel: the message ID of the operation to cancel.
pub fn cancel_id(value: &[u8]) -> Result<u32, PartError> {
    let mut reader = sequence(value, "cancelRequestValue")?;
    let id = reader.integer("cancelID")?;
    reader.skip_extensions()?;
    match u32::try_from(id) {
        Ok(id) if id <= MESSAGE_ID_MAX => Ok(id),
        _ => Err(Violation::OutOfRange { field: "cancelID" }.into()),
    }
}

/// Appends the request value of Cancel.
pub fn put_cancel_id(out: &mut Vec<u8>, id: u32) {
    let id = i64::from(id);
    ber::put_header(out, ber::SEQUENCE, 2 + ber::integer_len(id));
    ber::put_integer(out, ber::INTEGER, id);
}
