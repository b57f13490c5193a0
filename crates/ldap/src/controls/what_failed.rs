//! What failed (draft-masarati-ldap-whatfailed): a response that tells of an error says which controls or extended
//! operations of the request are its reason. The control of the request has no value, and should not be critical.
//!
//! controlValue of the response, whose OID is the same (§2.3):
//!
//! ```text
//! SET OF oid LDAPOID
//! ```

use super::{Control, Fault, Layer, OF_ANSWERED, Spec};
use crate::ber::{self, Reader, utf8};
use crate::error::PartError;

/// Its OID: that of OpenLDAP (§3).
pub const WHAT_FAILED: &str = "1.3.6.1.4.1.4203.666.5.17";

/// Most OIDs that a client takes in one response.
pub const WHAT_FAILED_OIDS_MAX: usize = crate::limits::CONTROLS_MAX;

pub(super) const SPEC: Spec = Spec {
    oids: &[WHAT_FAILED],
    operations: OF_ANSWERED,
    layer: Layer::Session,
};

/// That it is there.
pub(super) type Value<'m> = ();

pub(super) fn decode(control: &Control<'_>) -> Result<(), Fault> {
    control.no_value()
}

/// Appends the value of the response control.
pub fn put_what_failed<'o>(out: &mut Vec<u8>, oids: impl Iterator<Item = &'o str> + Clone) {
    let content = oids.clone().map(|oid| ber::element_len(oid.len())).sum();
    ber::put_header(out, ber::SET, content);
    oids.for_each(|oid| ber::put_octets(out, ber::OCTET_STRING, oid.as_bytes()));
}

/// Reads the value of the response control: the OIDs of what has failed, at most [`WHAT_FAILED_OIDS_MAX`].
///
/// # Errors
/// If it is malformed, or there are more.
pub fn what_failed(value: &[u8]) -> Result<Vec<&str>, PartError> {
    let mut reader = Reader::new(value);
    let mut oids = Reader::new(reader.expect(ber::SET, "oid")?);
    reader.end()?;
    let mut failed = Vec::new();
    while !oids.is_empty() {
        if failed.len() == WHAT_FAILED_OIDS_MAX {
            return Err(crate::error::Violation::Controls.into());
        }
        failed.push(utf8(oids.octets("oid")?, "oid")?);
    }
    Ok(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oids_of_a_response_are_a_set() {
        let mut value = Vec::new();
        put_what_failed(&mut value, ["1.2", "1.3.6"].into_iter());
        assert_eq!(value, b"\x31\x0c\x04\x031.2\x04\x051.3.6");
        assert_eq!(what_failed(&value), Ok(vec!["1.2", "1.3.6"]));
        assert_eq!(what_failed(b"\x31\x00"), Ok(vec![]));
        for wrong in [
            &b""[..],
            b"\x30\x00",
            b"\x31\x01",
            b"\x31\x00\x00",
            b"\x31\x02\x02\x00",
            b"\x31\x03\x04\x01\xff",
        ] {
            assert!(what_failed(wrong).is_err(), "{wrong:?}");
        }
        let many = [b"\x04\x00".as_slice(); WHAT_FAILED_OIDS_MAX + 1].concat();
        let mut value = Vec::new();
        ber::put_octets(&mut value, ber::SET, &many);
        assert!(what_failed(&value).is_err());
    }
}
