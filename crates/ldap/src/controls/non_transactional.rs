//! Non-transactional, Sapwood's own (`docs/reference/protocol-extensions.md`): the update stands alone although a
//! transaction is open. It has no value.

use super::{Control, Fault, Layer, OF_UPDATES, Spec};

/// Its OID.
pub const NON_TRANSACTIONAL: &str = "2.25.180230154754660789957868430727127687432";

pub(super) const SPEC: Spec = Spec {
    oids: &[NON_TRANSACTIONAL],
    operations: OF_UPDATES,
    layer: Layer::Session,
};

/// That it is there.
pub(super) type Value<'m> = ();

pub(super) fn decode(control: &Control<'_>) -> Result<(), Fault> {
    control.no_value()
}
