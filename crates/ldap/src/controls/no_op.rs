//! No-op (draft-zeilenga-ldap-noop): an update is checked as if it were to be made, and nothing is changed. What would
//! have been done is answered with noOperation. It has no value.

use super::{Control, Fault, Layer, OF_UPDATES, Spec};

/// Its OID.
pub const NO_OP: &str = "1.3.6.1.4.1.4203.1.10.2";
/// The OID that OpenLDAP has for it.
const NO_OP_OF_OPENLDAP: &str = "1.3.6.1.4.1.4203.666.5.2";

pub(super) const SPEC: Spec = Spec {
    oids: &[NO_OP, NO_OP_OF_OPENLDAP],
    operations: OF_UPDATES,
    layer: Layer::Directory,
};

/// That it is there.
pub(super) type Value<'m> = ();

pub(super) fn decode(control: &Control<'_>) -> Result<(), Fault> {
    control.no_value()
}
