//! Tree delete, of Active Directory (draft-armijo-ldap-treedelete): a delete takes all entries below its target with
//! it. It has no value.

use super::{Control, Fault, Layer, Spec};
use crate::operation::Operation;

/// Its OID.
pub const TREE_DELETE: &str = "1.2.840.113556.1.4.805";

pub(super) const SPEC: Spec = Spec {
    oids: &[TREE_DELETE],
    operations: &[Operation::Delete],
    layer: Layer::Directory,
};

/// That it is there.
pub(super) type Value<'m> = ();

pub(super) fn decode(control: &Control<'_>) -> Result<(), Fault> {
    control.no_value()
}
