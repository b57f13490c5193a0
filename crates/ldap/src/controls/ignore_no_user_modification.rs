//! Ignore no-user-modification, as PingDirectory and the UnboundID LDAP SDK have it: an add may bring attributes that
//! only the directory sets otherwise, such as entryUUID and createTimestamp. It has no value.

use super::{Control, Fault, Layer, Spec};
use crate::operation::Operation;

/// Its OID.
pub const IGNORE_NO_USER_MODIFICATION: &str = "1.3.6.1.4.1.30221.2.5.5";

pub(super) const SPEC: Spec = Spec {
    oids: &[IGNORE_NO_USER_MODIFICATION],
    operations: &[Operation::Add],
    layer: Layer::Directory,
};

/// That it is there.
pub(super) type Value<'m> = ();

pub(super) fn decode(control: &Control<'_>) -> Result<(), Fault> {
    control.no_value()
}
