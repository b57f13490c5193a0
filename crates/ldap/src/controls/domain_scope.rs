//! Domain scope, of Active Directory: a search sends no references to other servers. It has no value.

use super::{Control, Fault, Layer, Spec};
use crate::operation::Operation;

/// Its OID.
pub const DOMAIN_SCOPE: &str = "1.2.840.113556.1.4.1339";

pub(super) const SPEC: Spec = Spec {
    oids: &[DOMAIN_SCOPE],
    operations: &[Operation::Search],
    layer: Layer::Directory,
};

/// That it is there.
pub(super) type Value<'m> = ();

pub(super) fn decode(control: &Control<'_>) -> Result<(), Fault> {
    control.no_value()
}
