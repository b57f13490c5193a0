//! ManageDsaIT (RFC 3296): referral objects are plain entries. It has no value.

use super::{Control, Fault, Layer, Spec};
use crate::operation::Operation::{Add, Compare, Delete, Modify, ModifyDn, Search};

/// Its OID.
pub const MANAGE_DSA_IT: &str = "2.16.840.1.113730.3.4.2";

pub(super) const SPEC: Spec = Spec {
    oids: &[MANAGE_DSA_IT],
    operations: &[Search, Compare, Add, Modify, Delete, ModifyDn],
    layer: Layer::Directory,
};

/// That it is there.
pub(super) type Value<'m> = ();

pub(super) fn decode(control: &Control<'_>) -> Result<(), Fault> {
    control.no_value()
}
