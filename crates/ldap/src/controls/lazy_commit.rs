//! Lazy commit, of Active Directory: an update may be answered before it is durable. It is accepted, and none is: the
//! answer means the same with it and without. It has no value.

use super::{Control, Fault, Layer, OF_UPDATES, Spec};

/// Its OID.
pub const LAZY_COMMIT: &str = "1.2.840.113556.1.4.619";

pub(super) const SPEC: Spec = Spec {
    oids: &[LAZY_COMMIT],
    operations: OF_UPDATES,
    layer: Layer::Session,
};

/// That it is there.
pub(super) type Value<'m> = ();

pub(super) fn decode(control: &Control<'_>) -> Result<(), Fault> {
    control.no_value()
}
