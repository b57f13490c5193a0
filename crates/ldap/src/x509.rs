//! What a directory reads of X.509 certificates (RFC 5280 §4.1, RFC 4523): serial number, names, and what the subject
//! is called otherwise. Nothing is verified here.

use crate::dn;

const INTEGER: u8 = 0x02;
const BIT_STRING: u8 = 0x03;
const OCTET_STRING: u8 = 0x04;
const OBJECT_IDENTIFIER: u8 = 0x06;
const BOOLEAN: u8 = 0x01;
const UNIVERSAL_STRING: u8 = 0x1c;
const BMP_STRING: u8 = 0x1e;
const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;

/// The extension subjectAltName, 2.5.29.17.
const SUBJECT_ALT_NAME: &[u8] = &[0x55, 0x1d, 0x11];
/// A user principal name as an otherName, 1.3.6.1.4.1.311.20.2.3.
const PRINCIPAL_NAME: &[u8] = &[0x2b, 6, 1, 4, 1, 0x82, 0x37, 20, 2, 3];

/// A certificate in DER. What stands behind the validity is read when it is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Certificate<'a> {
    serial: &'a [u8],
    issuer: Name<'a>,
    /// Subject, public key and extensions.
    behind_validity: &'a [u8],
    signature_algorithm: &'a [u8],
}

/// A distinguished name in DER.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Name<'a> {
    rdns: &'a [u8],
}

/// What a subject is called by the extension subjectAltName.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AlternativeName<'a> {
    /// A mail address (rfc822Name).
    Mail(&'a str),
    /// The name of a host (dNSName).
    Host(&'a str),
    /// A URI.
    Uri(&'a str),
    /// A user principal name, as Microsoft's directories have them.
    Principal(&'a str),
    /// An entry.
    Entry(Name<'a>),
}

impl<'a> Certificate<'a> {
    /// Reads a certificate; `None` if it is none.
    pub fn parse(der: &'a [u8]) -> Option<Certificate<'a>> {
        let (outer, rest) = expect(der, SEQUENCE)?;
        if !rest.is_empty() {
            return None;
        }
        let (mut fields, after) = expect(outer, SEQUENCE)?;
        let (signature_algorithm, after) = expect(after, SEQUENCE)?;
        expect(after, BIT_STRING)?;
        // The version.
        if let Some((_, rest)) = expect(fields, 0xa0) {
            fields = rest;
        }
        let (serial, rest) = expect(fields, INTEGER)?;
        let (_, rest) = expect(rest, SEQUENCE)?;
        let (rdns, rest) = expect(rest, SEQUENCE)?;
        let (_, behind_validity) = expect(rest, SEQUENCE)?;
        Some(Certificate {
            serial: shortest(serial)?,
            issuer: Name { rdns },
            behind_validity,
            signature_algorithm,
        })
    }

    /// The serial number, the shortest two's complement, most significant octet first.
    pub fn serial(&self) -> &'a [u8] {
        self.serial
    }

    /// Who issued it.
    pub fn issuer(&self) -> Name<'a> {
        self.issuer
    }

    /// Whom it is about.
    pub fn subject(&self) -> Option<Name<'a>> {
        let (rdns, _) = expect(self.behind_validity, SEQUENCE)?;
        Some(Name { rdns })
    }

    /// The OID of the algorithm that it is signed with, as dotted decimal.
    pub fn signature_algorithm(&self) -> Option<String> {
        dotted(expect(self.signature_algorithm, OBJECT_IDENTIFIER)?.0)
    }

    /// What the subject is called otherwise. Names of forms that no directory needs are left out.
    pub fn alternative_names(&self) -> Vec<AlternativeName<'a>> {
        let mut names = Vec::new();
        let mut rest = self.extension(SUBJECT_ALT_NAME).unwrap_or_default();
        while let Some((tag, content, behind)) = element(rest) {
            names.extend(AlternativeName::read(tag, content));
            rest = behind;
        }
        names
    }

    /// The content of an extension that is a SEQUENCE.
    fn extension(&self, wanted: &[u8]) -> Option<&'a [u8]> {
        let (_, rest) = expect(self.behind_validity, SEQUENCE)?;
        let (_, mut rest) = expect(rest, SEQUENCE)?;
        loop {
            let (tag, content, behind) = element(rest)?;
            // Unique identifiers may come before.
            if tag == 0xa3 {
                rest = expect(content, SEQUENCE)?.0;
                break;
            }
            rest = behind;
        }
        while !rest.is_empty() {
            let (extension, behind) = expect(rest, SEQUENCE)?;
            let (oid, mut value) = expect(extension, OBJECT_IDENTIFIER)?;
            if let Some((_, behind)) = expect(value, BOOLEAN) {
                value = behind;
            }
            if oid == wanted {
                return Some(expect(expect(value, OCTET_STRING)?.0, SEQUENCE)?.0);
            }
            rest = behind;
        }
        None
    }
}

impl<'a> AlternativeName<'a> {
    fn read(tag: u8, content: &'a [u8]) -> Option<AlternativeName<'a>> {
        let text = || std::str::from_utf8(content).ok();
        match tag {
            0x81 => text().map(AlternativeName::Mail),
            0x82 => text().map(AlternativeName::Host),
            0x86 => text().map(AlternativeName::Uri),
            0xa4 => {
                let (rdns, _) = expect(content, SEQUENCE)?;
                Some(AlternativeName::Entry(Name { rdns }))
            }
            0xa0 => {
                let (oid, rest) = expect(content, OBJECT_IDENTIFIER)?;
                let (_, value, _) = element(expect(rest, 0xa0)?.0)?;
                let value = std::str::from_utf8(value).ok()?;
                (oid == PRINCIPAL_NAME).then_some(AlternativeName::Principal(value))
            }
            _ => None,
        }
    }
}

impl Name<'_> {
    /// As an RFC 4514 string: the types that the document has short names of by these, others as OIDs (§2.3). `None` if
    /// it is damaged.
    pub fn to_dn(&self) -> Option<String> {
        let mut names = Vec::new();
        let mut rdns = self.rdns;
        while !rdns.is_empty() {
            let (mut avas, rest) = expect(rdns, SET)?;
            let mut text = String::new();
            while !avas.is_empty() {
                let (oid, value, behind) = ava(avas)?;
                if !text.is_empty() {
                    text.push('+');
                }
                let oid = dotted(oid)?;
                let attribute = short_name(&oid).unwrap_or(&oid);
                dn::write_ava(&mut text, attribute, value.as_bytes());
                avas = behind;
            }
            names.push(text);
            rdns = rest;
        }
        names.reverse();
        Some(names.join(","))
    }

    /// The values that it has of an attribute type, the one nearest to the root first.
    pub fn values_of(&self, oid: &str) -> Vec<String> {
        let mut values = Vec::new();
        let mut rdns = self.rdns;
        while let Some((mut avas, rest)) = expect(rdns, SET) {
            while let Some((found, value, behind)) = ava(avas) {
                if dotted(found).is_some_and(|found| found == oid) {
                    values.push(value);
                }
                avas = behind;
            }
            rdns = rest;
        }
        values
    }
}

/// What RFC 4514 §3 calls a type.
fn short_name(oid: &str) -> Option<&'static str> {
    Some(match oid {
        "2.5.4.3" => "cn",
        "2.5.4.6" => "c",
        "2.5.4.7" => "l",
        "2.5.4.8" => "st",
        "2.5.4.9" => "street",
        "2.5.4.10" => "o",
        "2.5.4.11" => "ou",
        "0.9.2342.19200300.100.1.1" => "uid",
        "0.9.2342.19200300.100.1.25" => "dc",
        _ => return None,
    })
}

/// An attribute value assertion: the type's OID, the value as text, what stands behind it.
fn ava(avas: &[u8]) -> Option<(&[u8], String, &[u8])> {
    let (ava, rest) = expect(avas, SEQUENCE)?;
    let (oid, value) = expect(ava, OBJECT_IDENTIFIER)?;
    let (tag, contents, _) = element(value)?;
    let value = match tag {
        // These are transcoded; the rest is taken as UTF-8 or Latin-1.
        BMP_STRING => {
            let (pairs, _) = contents.as_chunks::<2>();
            let units: Vec<u16> = pairs.iter().map(|pair| u16::from_be_bytes(*pair)).collect();
            String::from_utf16(&units).ok()?
        }
        UNIVERSAL_STRING => {
            let (fours, _) = contents.as_chunks::<4>();
            let characters = fours
                .iter()
                .map(|four| char::from_u32(u32::from_be_bytes(*four)));
            characters.collect::<Option<_>>()?
        }
        _ => match std::str::from_utf8(contents) {
            Ok(text) => text.to_owned(),
            Err(_) => contents.iter().map(|byte| char::from(*byte)).collect(),
        },
    };
    Some((oid, value, rest))
}

/// An object identifier's contents as dotted decimal.
fn dotted(contents: &[u8]) -> Option<String> {
    let mut text = String::new();
    let mut arc: u64 = 0;
    let mut first = true;
    for byte in contents {
        if arc > u64::MAX >> 8 {
            return None;
        }
        arc = arc << 7 | u64::from(byte & 0x7f);
        if byte & 0x80 == 0 {
            if first {
                let root = (arc / 40).min(2);
                text = format!("{root}.{}", arc - root * 40);
                first = false;
            } else {
                text.push_str(&format!(".{arc}"));
            }
            arc = 0;
        }
    }
    (!first).then_some(text)
}

/// Two's complement octets without superfluous leading ones; `None` if there are none at all.
pub fn shortest(mut octets: &[u8]) -> Option<&[u8]> {
    while let [0x00, 0x00..=0x7f, ..] | [0xff, 0x80..=0xff, ..] = octets {
        octets = octets.get(1..)?;
    }
    (!octets.is_empty()).then_some(octets)
}

/// The content of the first element, which must have this tag, and what stands behind it.
fn expect(value: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    match element(value)? {
        (found, contents, rest) if found == tag => Some((contents, rest)),
        _ => None,
    }
}

/// The first element with a one-octet tag and definite length: tag, contents, rest.
pub fn element(value: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (tag, rest) = value.split_first()?;
    if tag & 0x1f == 0x1f {
        return None;
    }
    let (length, rest) = match rest.split_first()? {
        (length @ 0..=0x7f, rest) => (usize::from(*length), rest),
        (count @ 0x81..=0x84, rest) => {
            let (octets, rest) = rest.split_at_checked(usize::from(count & 0x7f))?;
            let append = |length: usize, octet: &u8| length << 8 | usize::from(*octet);
            (octets.iter().fold(0, append), rest)
        }
        _ => return None,
    };
    let (contents, rest) = rest.split_at_checked(length)?;
    Some((*tag, contents, rest))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn der(tag: u8, content: &[&[u8]]) -> Vec<u8> {
        let mut out = Vec::new();
        let content = content.concat();
        crate::ber::put_octets(&mut out, tag, &content);
        out
    }

    fn name(avas: &[(&[u8], &str)]) -> Vec<u8> {
        let rdns = avas.iter().map(|(oid, value)| {
            let ava = [
                der(OBJECT_IDENTIFIER, &[oid]),
                der(0x0c, &[value.as_bytes()]),
            ];
            der(SET, &[&der(SEQUENCE, &[&ava[0], &ava[1]])])
        });
        der(SEQUENCE, &[&rdns.collect::<Vec<_>>().concat()])
    }

    const CN: &[u8] = &[0x55, 4, 3];
    const O: &[u8] = &[0x55, 4, 10];

    fn certificate() -> Vec<u8> {
        let principal = [
            der(OBJECT_IDENTIFIER, &[PRINCIPAL_NAME]),
            der(0xa0, &[&der(0x0c, &[b"anne@EXAMPLE"])]),
        ];
        let names = [
            der(0x81, &[b"anne@example.com"]),
            der(0x87, &[&[127, 0, 0, 1]]),
            der(0xa0, &[&principal[0], &principal[1]]),
            der(0xa4, &[&name(&[(CN, "Other")])]),
        ];
        let value = der(OCTET_STRING, &[&der(SEQUENCE, &[&names.concat()])]);
        let extension = der(
            SEQUENCE,
            &[&der(OBJECT_IDENTIFIER, &[SUBJECT_ALT_NAME]), &value],
        );
        let algorithm = der(SEQUENCE, &[&der(OBJECT_IDENTIFIER, &[&[0x2b, 0x65, 0x70]])]);
        let fields = [
            der(0xa0, &[&der(INTEGER, &[&[2]])]),
            der(INTEGER, &[&[0, 200]]),
            algorithm.clone(),
            name(&[(CN, "Authority")]),
            der(SEQUENCE, &[]),
            name(&[(O, "Example, Inc."), (CN, "Anne")]),
            der(SEQUENCE, &[]),
            der(0xa3, &[&der(SEQUENCE, &[&extension])]),
        ];
        let signature = der(BIT_STRING, &[&[0]]);
        der(
            SEQUENCE,
            &[&der(SEQUENCE, &[&fields.concat()]), &algorithm, &signature],
        )
    }

    #[test]
    fn names_are_read() {
        let der = certificate();
        let read = Certificate::parse(&der).unwrap();
        assert_eq!(read.serial(), [0, 200]);
        assert_eq!(read.issuer().to_dn().unwrap(), "cn=Authority");
        let subject = read.subject().unwrap();
        assert_eq!(subject.to_dn().unwrap(), r"cn=Anne,o=Example\, Inc.");
        assert_eq!(subject.values_of("2.5.4.3"), ["Anne"]);
        assert!(subject.values_of("2.5.4.4").is_empty());
        assert_eq!(read.signature_algorithm().unwrap(), "1.3.101.112");
        let names = read.alternative_names();
        assert_eq!(names[0], AlternativeName::Mail("anne@example.com"));
        assert_eq!(names[1], AlternativeName::Principal("anne@EXAMPLE"));
        let AlternativeName::Entry(entry) = &names[2] else {
            panic!("{names:?}");
        };
        assert_eq!(entry.to_dn().unwrap(), "cn=Other");
        assert_eq!(names.len(), 3);
    }

    #[test]
    fn types_of_the_document_have_its_short_names() {
        let serial_number: &[u8] = &[0x55, 4, 5];
        let written = name(&[(O, "Example"), (serial_number, "7"), (CN, "Anne")]);
        let (rdns, _) = expect(&written, SEQUENCE).unwrap();
        let named = Name { rdns }.to_dn();
        assert_eq!(named.unwrap(), "cn=Anne,2.5.4.5=7,o=Example");
        for (oid, short) in [("0.9.2342.19200300.100.1.25", "dc"), ("2.5.4.6", "c")] {
            assert_eq!(short_name(oid), Some(short));
        }
        assert_eq!(short_name("2.5.4.5"), None);
    }

    #[test]
    fn what_is_cut_off_is_refused_or_has_fewer_names() {
        let der = certificate();
        for end in 0..der.len() {
            assert_eq!(Certificate::parse(&der[..end]), None, "{end}");
        }
        for at in 0..der.len() {
            let mut damaged = der.clone();
            damaged[at] ^= 0x81;
            if let Some(read) = Certificate::parse(&damaged) {
                let _ = read.issuer().to_dn();
                let _ = read.subject().and_then(|subject| subject.to_dn());
                let _ = (read.alternative_names(), read.signature_algorithm());
            }
        }
    }
}
