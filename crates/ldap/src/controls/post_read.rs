//! Post-read (RFC 4527): the target as it was after the update.

use super::{Control, Fault, Layer, ReadEntry, Spec};
use crate::operation::Operation::{Add, Modify, ModifyDn};

/// OID of the request and of the response control.
pub const POST_READ: &str = "1.3.6.1.1.13.2";

pub(super) const SPEC: Spec = Spec {
    oids: &[POST_READ],
    operations: &[Add, Modify, ModifyDn],
    layer: Layer::Directory,
};

/// Which attributes are asked for.
pub(super) type Value<'m> = ReadEntry<'m>;

pub(super) fn decode<'m>(control: &Control<'m>) -> Result<Value<'m>, Fault> {
    Ok(ReadEntry::decode(control.value()?)?)
}
