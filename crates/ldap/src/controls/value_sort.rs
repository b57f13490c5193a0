//! Value sort (slapo-valsort): whether the values of attributes that have an order are sent as they are stored, with
//! their weights, which is for clients that change them.
//!
//! controlValue:
//!
//! ```text
//! ValueSort ::= SEQUENCE { raw BOOLEAN }
//! ```

use super::{Control, Fault, Layer, Spec, sequence};
use crate::operation::Operation;

/// OID of the control.
pub const VALUE_SORT: &str = "1.3.6.1.4.1.4203.666.5.14";

pub(super) const SPEC: Spec = Spec {
    oids: &[VALUE_SORT],
    operations: &[Operation::Search],
    layer: Layer::Directory,
};

/// Whether values are sent as they are stored.
pub(super) type Value<'m> = bool;

pub(super) fn decode(control: &Control<'_>) -> Result<bool, Fault> {
    let mut reader = sequence(control.value()?, "ValueSort")?;
    let raw = reader.boolean("raw")?;
    reader.end()?;
    Ok(raw)
}
