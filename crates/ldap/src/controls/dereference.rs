//! Dereference (draft-masarati-ldap-deref): each entry of a search tells attributes of the entries that it names.
//!
//! controlValue of the request, and of the one that comes with an entry:
//!
//! ```text
//! DerefSpecs ::= SEQUENCE OF SEQUENCE {
//!     derefAttr  AttributeDescription,                  with names as values, and each but once
//!     attributes SEQUENCE OF AttributeDescription }
//!
//! DerefResults ::= SEQUENCE OF SEQUENCE {
//!     derefAttr  AttributeDescription,
//!     derefVal   LDAPDN,
//!     attrVals   [0] PartialAttributeList OPTIONAL }
//! ```

use super::{Control, Fault, Layer, Spec, sequence};
use crate::ber::{self, Reader};
use crate::error::{PartError, Violation};
use crate::list::{Attributes, OctetStrings};
use crate::operation::Operation;

/// OID of the control, in requests and with entries.
pub const DEREFERENCE: &str = "1.3.6.1.4.1.4203.666.5.16";

/// The most attributes whose values are followed.
pub const DEREFERENCE_SPECS_MAX: usize = 16;
/// The most attributes of the entries named by one of them.
pub const DEREFERENCE_ATTRIBUTES_MAX: usize = 64;

pub(super) const SPEC: Spec = Spec {
    oids: &[DEREFERENCE],
    operations: &[Operation::Search],
    layer: Layer::Directory,
};

/// What is asked.
pub(super) type Value<'m> = Dereference<'m>;

pub(super) fn decode<'m>(control: &Control<'m>) -> Result<Value<'m>, Fault> {
    let is_critical = control.critical;
    Ok(Dereference::decode(control.value()?, is_critical)?)
}

/// Which values are followed, to what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dereference<'m> {
    /// The checked content of the list.
    specs: &'m [u8],
    /// Whether the search is not to be done without.
    pub is_critical: bool,
}

impl<'m> Dereference<'m> {
    /// Reads a control value.
    ///
    /// # Errors
    /// When it is not of that form, or asks for too much.
    pub fn decode(value: &'m [u8], is_critical: bool) -> Result<Self, PartError> {
        let mut reader = sequence(value, "DerefSpecs")?;
        let specs = reader.rest();
        let mut count = 0;
        while !reader.is_empty() {
            let (_, attributes) = spec(&mut reader)?;
            count += 1;
            let field = match (count, attributes.iter().count()) {
                (1..=DEREFERENCE_SPECS_MAX, 1..=DEREFERENCE_ATTRIBUTES_MAX) => continue,
                (1..=DEREFERENCE_SPECS_MAX, _) => "number of attributes",
                _ => "number of DerefSpecs",
            };
            return Err(Violation::OutOfRange { field }.into());
        }
        Ok(Dereference { specs, is_critical })
    }

    /// Each attribute whose values are followed, with those that are asked of the entries which it names.
    pub fn specs(self) -> impl Iterator<Item = (&'m [u8], OctetStrings<'m>)> {
        let mut reader = Reader::new(self.specs);
        std::iter::from_fn(move || match reader.is_empty() {
            true => None,
            false => spec(&mut reader).ok(),
        })
    }
}

fn spec<'m>(reader: &mut Reader<'m>) -> Result<(&'m [u8], OctetStrings<'m>), PartError> {
    let mut spec = Reader::new(reader.expect(ber::SEQUENCE, "DerefSpec")?);
    let followed = spec.octets("derefAttr")?;
    let attributes = OctetStrings::bounded(spec.expect(ber::SEQUENCE, "attributes")?, "attribute")?;
    spec.end()?;
    Ok((followed, attributes))
}

/// Appends what one value has led to, to the content of the response's list. What is empty is left out.
pub fn put_dereferenced(out: &mut Vec<u8>, followed: &str, dn: &[u8], attributes: Attributes<'_>) {
    let result = ber::open(out, ber::SEQUENCE, attributes.as_ber().len());
    ber::put_octets(out, ber::OCTET_STRING, followed.as_bytes());
    ber::put_octets(out, ber::OCTET_STRING, dn);
    if !attributes.is_empty() {
        ber::put_octets(out, ber::context_constructed(0), attributes.as_ber());
    }
    ber::close(out, result);
}

/// The control that comes with an entry, whose value is a list of such results.
pub fn dereference_response(value: &[u8]) -> Control<'_> {
    Control {
        oid: DEREFERENCE,
        critical: false,
        value: Some(value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(specs: &[(&str, &[&str])]) -> Vec<u8> {
        let mut out = Vec::new();
        let list = ber::open(&mut out, ber::SEQUENCE, 0);
        for (followed, attributes) in specs {
            let spec = ber::open(&mut out, ber::SEQUENCE, 0);
            ber::put_octets(&mut out, ber::OCTET_STRING, followed.as_bytes());
            let asked = ber::open(&mut out, ber::SEQUENCE, 0);
            for attribute in *attributes {
                ber::put_octets(&mut out, ber::OCTET_STRING, attribute.as_bytes());
            }
            ber::close(&mut out, asked);
            ber::close(&mut out, spec);
        }
        ber::close(&mut out, list);
        out
    }

    #[test]
    fn specs_are_read_in_their_order() {
        let specs: &[(&str, &[&str])] = &[("member", &["cn", "uid"]), ("manager", &["mail"])];
        let value = value(specs);
        let read = Dereference::decode(&value, true).unwrap();
        let read: Vec<_> = read
            .specs()
            .map(|(followed, attributes)| (followed, attributes.iter().collect::<Vec<_>>()))
            .collect();
        let expected: Vec<(&[u8], Vec<&[u8]>)> = vec![
            (b"member", vec![b"cn", b"uid"]),
            (b"manager", vec![b"mail"]),
        ];
        assert_eq!(read, expected);
    }

    #[test]
    fn what_is_malformed_or_too_much_is_refused() {
        let many = vec!["cn"; DEREFERENCE_ATTRIBUTES_MAX + 1];
        assert!(Dereference::decode(&value(&[("member", &many[1..])]), false).is_ok());
        assert!(Dereference::decode(&value(&[("member", &many)]), false).is_err());
        assert!(Dereference::decode(&value(&[("member", &[])]), false).is_err());
        let specs: Vec<(&str, &[&str])> = vec![("member", &["cn"]); DEREFERENCE_SPECS_MAX + 1];
        assert!(Dereference::decode(&value(&specs[1..]), false).is_ok());
        assert!(Dereference::decode(&value(&specs), false).is_err());
        let whole = value(&[("member", &["cn"])]);
        for end in 0..whole.len() {
            assert!(Dereference::decode(&whole[..end], false).is_err(), "{end}");
        }
        assert!(Dereference::decode(b"\x30\x04\x30\x02\x04\x00", false).is_err());
    }
}
