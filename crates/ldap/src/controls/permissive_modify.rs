//! Permissive modify, of Active Directory: to add a value that is there, or to delete what is not, is no error. It has
//! no value.

use super::{Control, Fault, Layer, Spec};
use crate::operation::Operation;

/// Its OID.
pub const PERMISSIVE_MODIFY: &str = "1.2.840.113556.1.4.1413";

pub(super) const SPEC: Spec = Spec {
    oids: &[PERMISSIVE_MODIFY],
    operations: &[Operation::Modify],
    layer: Layer::Directory,
};

/// That it is there.
pub(super) type Value<'m> = ();

pub(super) fn decode(control: &Control<'_>) -> Result<(), Fault> {
    control.no_value()
}
