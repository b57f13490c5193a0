//! Pre-read (RFC 4527): the target as it was before the update.

use super::{Control, Fault, Layer, ReadEntry, Spec};
use crate::operation::Operation::{Delete, Modify, ModifyDn};

/// OID of the request and of the response control.
pub const PRE_READ: &str = "1.3.6.1.1.13.1";

pub(super) const SPEC: Spec = Spec {
    oids: &[PRE_READ],
    operations: &[Delete, Modify, ModifyDn],
    layer: Layer::Directory,
};

/// Which attributes are asked for.
pub(super) type Value<'m> = ReadEntry<'m>;

pub(super) fn decode<'m>(control: &Control<'m>) -> Result<Value<'m>, Fault> {
    Ok(ReadEntry::decode(control.value()?)?)
}
