//! Real attributes only, of the directory servers that come from Netscape's: of a search its entries are sent as they
//! are stored, without attributes that are computed or come from a subentry. It has no value.

use super::{Control, Fault, Layer, Spec};
use crate::operation::Operation;

/// Its OID.
pub const REAL_ATTRIBUTES_ONLY: &str = "2.16.840.1.113730.3.4.17";

pub(super) const SPEC: Spec = Spec {
    oids: &[REAL_ATTRIBUTES_ONLY],
    operations: &[Operation::Search],
    layer: Layer::Directory,
};

/// That it is there.
pub(super) type Value<'m> = ();

pub(super) fn decode(control: &Control<'_>) -> Result<(), Fault> {
    control.no_value()
}
