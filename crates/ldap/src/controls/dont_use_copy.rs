//! Don't use copy (RFC 6171): what is read is not to come from a copy. Here it never does. It has no value.

use super::{Control, Fault, Layer, Spec};
use crate::operation::Operation::{Compare, Search};

/// Its OID.
pub const DONT_USE_COPY: &str = "1.3.6.1.1.22";

pub(super) const SPEC: Spec = Spec {
    oids: &[DONT_USE_COPY],
    operations: &[Search, Compare],
    layer: Layer::Session,
};

/// That it is there.
pub(super) type Value<'m> = ();

pub(super) fn decode(control: &Control<'_>) -> Result<(), Fault> {
    control.no_value()
}
