//! Assertion (RFC 4528): the operation takes place only if a filter is true of its target.
//!
//! controlValue: `Filter` (RFC 4511 §4.5.1)

use super::{Control, Fault, Layer, Spec};
use crate::filter::Filter;
use crate::operation::Operation::{Add, Compare, Delete, Modify, ModifyDn, Search};

/// Its OID. To write the control's value, take the filter's BER.
pub const ASSERTION: &str = "1.3.6.1.1.12";

pub(super) const SPEC: Spec = Spec {
    oids: &[ASSERTION],
    operations: &[Search, Compare, Add, Modify, Delete, ModifyDn],
    layer: Layer::Directory,
};

/// The filter that the target entry must match.
pub(super) type Value<'m> = Filter<'m>;

pub(super) fn decode<'m>(control: &Control<'m>) -> Result<Value<'m>, Fault> {
    Ok(Filter::from_ber(control.value()?)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn its_value_is_a_filter() {
        let asked = |value| {
            decode(&Control {
                oid: ASSERTION,
                critical: true,
                value,
            })
        };
        // (objectClass=*)
        let present = b"\x87\x0bobjectClass";
        assert_eq!(asked(Some(present)).unwrap().as_ber(), present);
        assert_eq!(asked(None), Err(Fault::NoValue));
        for wrong in [&b""[..], b"\x87\x0bobject", b"\x87\x02cn\x00"] {
            assert!(asked(Some(wrong)).is_err(), "{wrong:?}");
        }
    }
}
