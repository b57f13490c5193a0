//! Subentries (RFC 3672 §3): whether a search sees subentries, and they only, or normal entries only. Without it a
//! search sees subentries where its scope is the base alone.
//!
//! controlValue: `BOOLEAN`, TRUE for subentries
//!
//! The control of draft-ietf-ldup-subentry, which came before, has no value and means TRUE.

use super::{Control, Fault, Layer, Spec};
use crate::ber::Reader;
use crate::operation::Operation;

/// Its OID.
pub const SUBENTRIES: &str = "1.3.6.1.4.1.4203.1.10.1";
/// The OID of the draft's control.
pub const SUBENTRIES_OF_DRAFT: &str = "1.3.6.1.4.1.7628.5.101.1";

pub(super) const SPEC: Spec = Spec {
    oids: &[SUBENTRIES, SUBENTRIES_OF_DRAFT],
    operations: &[Operation::Search],
    layer: Layer::Directory,
};

/// Whether subentries are visible, and normal entries are not.
pub(super) type Value<'m> = bool;

pub(super) fn decode(control: &Control<'_>) -> Result<bool, Fault> {
    if control.oid == SUBENTRIES_OF_DRAFT {
        return control.no_value().map(|()| true);
    }
    let mut reader = Reader::new(control.value()?);
    let are_visible = reader.boolean("visibility")?;
    reader.end()?;
    Ok(are_visible)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(oid: &'static str, value: Option<&[u8]>) -> Result<bool, Fault> {
        decode(&Control {
            oid,
            critical: true,
            value,
        })
    }

    #[test]
    fn its_value_is_a_boolean() {
        assert_eq!(read(SUBENTRIES, Some(b"\x01\x01\xff")), Ok(true));
        assert_eq!(read(SUBENTRIES, Some(b"\x01\x01\x00")), Ok(false));
        assert_eq!(read(SUBENTRIES, None), Err(Fault::NoValue));
        for wrong in [
            &b""[..],
            b"\x01\x00",
            b"\x01\x01\xff\x00",
            b"\x02\x01\x01",
            b"\x01\x02\x00\x00",
        ] {
            assert!(read(SUBENTRIES, Some(wrong)).is_err(), "{wrong:?}");
        }
        assert_eq!(read(SUBENTRIES_OF_DRAFT, None), Ok(true));
        assert_eq!(read(SUBENTRIES_OF_DRAFT, Some(b"")), Err(Fault::HasValue));
    }
}
