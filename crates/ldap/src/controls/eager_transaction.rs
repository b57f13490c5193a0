//! Eager transaction, Sapwood's own (`docs/reference/protocol-extensions.md`): the transaction being started tries its
//! updates at once. It has no value.

use super::{Control, Fault, Layer, OF_UPDATES, Spec};

/// Its OID.
pub const EAGER_TRANSACTION: &str = "2.25.273916400648347082955731837904341156054";

pub(super) const SPEC: Spec = Spec {
    oids: &[EAGER_TRANSACTION],
    operations: OF_UPDATES,
    layer: Layer::Session,
};

/// That it is there.
pub(super) type Value<'m> = ();

pub(super) fn decode(control: &Control<'_>) -> Result<(), Fault> {
    control.no_value()
}
