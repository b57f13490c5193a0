//! Queue length, Sapwood's own (`docs/reference/protocol-extensions.md`): how many responses the client waits for, so
//! that they can travel in full segments.
//!
//! controlValue: `INTEGER (1..maxInt)`

use super::{Control, Fault, Layer, OF_ANSWERED, Spec};
use crate::ber::{self, Reader};
use crate::error::{PartError, Violation};
use crate::limits::INTEGER_MAX;

/// Its OID.
pub const QUEUE_LENGTH: &str = "2.25.17923252228340713602020445768925731241";

pub(super) const SPEC: Spec = Spec {
    oids: &[QUEUE_LENGTH],
    operations: OF_ANSWERED,
    layer: Layer::Session,
};

/// The responses that the client waits for.
pub(super) type Value<'m> = u32;

pub(super) fn decode(control: &Control<'_>) -> Result<u32, Fault> {
    Ok(queue_length(control.value()?)?)
}

/// Reads the control's value: the responses that the client waits for, that of this request included.
pub fn queue_length(value: &[u8]) -> Result<u32, PartError> {
    let mut reader = Reader::new(value);
    let length = reader.integer("queueLength")?;
    reader.end()?;
    match u32::try_from(length) {
        Ok(length @ 1..=INTEGER_MAX) => Ok(length),
        _ => Err(Violation::OutOfRange {
            field: "queueLength",
        }
        .into()),
    }
}

/// Appends the control's value.
pub fn put_queue_length(out: &mut Vec<u8>, length: u32) {
    ber::put_integer(out, ber::INTEGER, i64::from(length));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_length_is_a_positive_integer() {
        let mut value = Vec::new();
        put_queue_length(&mut value, 1000);
        assert_eq!(value, b"\x02\x02\x03\xe8");
        assert_eq!(queue_length(&value), Ok(1000));
        for wrong in [
            &b""[..],
            b"\x02\x01\x00",
            b"\x02\x01\xff",
            b"\x02\x01\x01\x00",
            b"\x04\x01\x01",
        ] {
            assert!(queue_length(wrong).is_err(), "{wrong:?}");
        }
    }
}
