//! Virtual attributes only, of the directory servers that come from Netscape's: of a search of its entries only those
//! attributes are sent that are computed, or come from a subentry. It has no value.

use super::{Control, Fault, Layer, Spec};
use crate::operation::Operation;

/// Its OID.
pub const VIRTUAL_ATTRIBUTES_ONLY: &str = "2.16.840.1.113730.3.4.19";

pub(super) const SPEC: Spec = Spec {
    oids: &[VIRTUAL_ATTRIBUTES_ONLY],
    operations: &[Operation::Search],
    layer: Layer::Directory,
};

/// That it is there.
pub(super) type Value<'m> = ();

pub(super) fn decode(control: &Control<'_>) -> Result<(), Fault> {
    control.no_value()
}
