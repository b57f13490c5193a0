//! Transaction specification (RFC 5805 §2.2): the update belongs to a transaction.
//!
//! controlValue: the identifier itself

use super::{Control, Fault, Layer, OF_UPDATES, Spec};

/// Its OID.
pub const TRANSACTION_SPECIFICATION: &str = "1.3.6.1.1.21.2";

pub(super) const SPEC: Spec = Spec {
    oids: &[TRANSACTION_SPECIFICATION],
    operations: OF_UPDATES,
    layer: Layer::Session,
};

/// The transaction's identifier.
pub(super) type Value<'m> = &'m [u8];

pub(super) fn decode<'m>(control: &Control<'m>) -> Result<Value<'m>, Fault> {
    match control.critical {
        true => control.value(),
        false => Err(Fault::NotCritical),
    }
}
