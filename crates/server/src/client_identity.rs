//! Templates of DNs and of searches (`tls.client_identity`), in which names of a client's certificate are put in the
//! place of words in braces. What is put in is escaped: whatever a certificate says, it stands for one value.

use sapwood_directory::schema::Schema;
use sapwood_ldap::dn;
use sapwood_ldap::url::{LdapUrl, Scope};
use sapwood_ldap::x509::{AlternativeName, Certificate};

/// A way from a certificate to an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ClientIdentity {
    /// The entry with a DN.
    Dn(Template),
    /// The only entry that a search finds.
    Search {
        base: Template,
        scope: Scope,
        filter: Template,
    },
    /// The entry with a DN, or nobody's entry but this name.
    Name(Template),
}

/// What stands before the template of a [name](ClientIdentity::Name).
const NAME: &str = "name:";

/// How an entry is named.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum EntryName {
    /// By its DN.
    Dn(String),
    /// As the only one that a search finds.
    Search {
        base: String,
        scope: Scope,
        filter: String,
        /// Whether it must have the certificate itself.
        is_exact: bool,
    },
    /// By its DN; if there is none, the DN is a name by itself.
    Name(String),
}

/// A text with names of a certificate in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Template(Vec<Piece>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    Text(String),
    Name(CertificateName),
}

/// A name in a certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
enum CertificateName {
    /// The subject, as a DN.
    Subject,
    /// Serial number and issuer, as certificateExactMatch compares them.
    Certificate,
    /// A value in the subject's name, of the attribute type with this OID.
    OfSubject(String),
    /// One of subjectAltName.
    Alternative(Alternative),
}

/// The forms of subjectAltName that entries can be found by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Alternative {
    Mail,
    Host,
    Uri,
    Principal,
}

/// Their names, as OpenSSL's configuration has them.
const ALTERNATIVES: &[(&str, Alternative)] = &[
    ("san.email", Alternative::Mail),
    ("san.dns", Alternative::Host),
    ("san.uri", Alternative::Uri),
    ("san.upn", Alternative::Principal),
];

impl Alternative {
    fn of(self, name: &AlternativeName<'_>) -> Option<String> {
        let text = match (self, name) {
            (Self::Mail, AlternativeName::Mail(text))
            | (Self::Host, AlternativeName::Host(text))
            | (Self::Uri, AlternativeName::Uri(text))
            | (Self::Principal, AlternativeName::Principal(text)) => text,
            _ => return None,
        };
        Some((*text).to_owned())
    }
}

/// What a template is for, which says how values stand in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Dn,
    Filter,
}

impl ClientIdentity {
    /// Reads one from the configuration.
    ///
    /// # Errors
    /// Says what is wrong with it.
    pub(crate) fn parse(schema: &Schema, text: &str) -> Result<Self, String> {
        let is_url = text
            .get(..7)
            .is_some_and(|scheme| scheme.eq_ignore_ascii_case("ldap://"));
        if !is_url {
            let (text, kind): (_, fn(Template) -> Self) = match text.strip_prefix(NAME) {
                Some(template) => (template, Self::Name),
                None => (text, Self::Dn),
            };
            let template = Template::parse(schema, text)?;
            if template.has(&CertificateName::Certificate) {
                return Err("{certificate} can be searched for only, with a URL".to_owned());
            }
            return Ok(kind(template));
        }
        let url = LdapUrl::parse(text).map_err(|error| error.to_string())?;
        if !url.host.is_empty() || url.port.is_some() {
            return Err(
                "it is searched for here: write the URL without a host (ldap:///)".to_owned(),
            );
        }
        if !url.attributes.is_empty() || !url.extensions.is_empty() {
            return Err("neither attributes nor extensions can be asked for".to_owned());
        }
        let filter = url.filter.as_deref().unwrap_or("(objectClass=*)");
        Ok(Self::Search {
            base: Template::parse(schema, &url.dn)?,
            scope: url.scope.unwrap_or(Scope::Base),
            filter: Template::parse(schema, filter)?,
        })
    }

    /// How it names the entry of a certificate; `None` if the certificate does not say enough.
    pub(crate) fn name(&self, certificate: &Certificate<'_>) -> Option<EntryName> {
        match self {
            Self::Dn(template) => template.fill(certificate, Form::Dn).map(EntryName::Dn),
            Self::Name(template) => template.fill(certificate, Form::Dn).map(EntryName::Name),
            Self::Search {
                base,
                scope,
                filter,
            } => Some(EntryName::Search {
                base: base.fill(certificate, Form::Dn)?,
                scope: *scope,
                filter: filter.fill(certificate, Form::Filter)?,
                is_exact: filter.has(&CertificateName::Certificate),
            }),
        }
    }
}

impl Template {
    fn parse(schema: &Schema, text: &str) -> Result<Self, String> {
        let mut pieces = Vec::new();
        let mut rest = text;
        while let Some((before, behind)) = rest.split_once('{') {
            let (name, behind) = behind.split_once('}').ok_or("a brace is not closed")?;
            if !before.is_empty() {
                pieces.push(Piece::Text(before.to_owned()));
            }
            pieces.push(Piece::Name(CertificateName::parse(schema, name)?));
            rest = behind;
        }
        if !rest.is_empty() {
            pieces.push(Piece::Text(rest.to_owned()));
        }
        match pieces.is_empty() {
            true => Err("it is empty".to_owned()),
            false => Ok(Self(pieces)),
        }
    }

    fn has(&self, wanted: &CertificateName) -> bool {
        let is_it = |piece: &Piece| matches!(piece, Piece::Name(name) if name == wanted);
        self.0.iter().any(is_it)
    }

    /// The text for a certificate; `None` if it does not have exactly one of each name.
    fn fill(&self, certificate: &Certificate<'_>, form: Form) -> Option<String> {
        let mut text = String::new();
        for piece in &self.0 {
            match piece {
                Piece::Text(piece) => text.push_str(piece),
                Piece::Name(name) => {
                    let value = name.value(certificate)?;
                    match form {
                        // A DN in a DN is a part of it, not a value.
                        Form::Dn if *name == CertificateName::Subject => text.push_str(&value),
                        Form::Dn => dn::write_value(&mut text, value.as_bytes()),
                        Form::Filter => escape_for_filter(&mut text, &value),
                    }
                }
            }
        }
        Some(text)
    }
}

impl CertificateName {
    fn parse(schema: &Schema, name: &str) -> Result<Self, String> {
        if name.eq_ignore_ascii_case("subject") {
            return Ok(Self::Subject);
        }
        if name.eq_ignore_ascii_case("certificate") {
            return Ok(Self::Certificate);
        }
        let mut alternatives = ALTERNATIVES.iter();
        if let Some((_, kind)) = alternatives.find(|(known, _)| known.eq_ignore_ascii_case(name)) {
            return Ok(Self::Alternative(*kind));
        }
        match schema.attribute_type(name.as_bytes()) {
            Some(known) => Ok(Self::OfSubject(known.oid().to_owned())),
            None => Err(format!(
                "{{{name}}} is none of {{subject}}, {{certificate}}, {{san.email}}, {{san.dns}}, {{san.uri}}, {{san.upn}}, \
                 and no attribute type"
            )),
        }
    }

    /// The value in a certificate; `None` unless there is exactly one, which is not empty.
    fn value(&self, certificate: &Certificate<'_>) -> Option<String> {
        let mut values = match self {
            Self::Subject => vec![certificate.subject()?.to_dn()?],
            Self::Certificate => vec![exact(certificate)?],
            Self::OfSubject(oid) => certificate.subject()?.values_of(oid),
            Self::Alternative(kind) => {
                let names = certificate.alternative_names();
                names.iter().filter_map(|name| kind.of(name)).collect()
            }
        };
        match values.len() {
            1 => values.pop().filter(|value| !value.is_empty()),
            _ => None,
        }
    }
}

/// A certificateExactAssertion (RFC 4523 §2.5) that only this certificate matches.
fn exact(certificate: &Certificate<'_>) -> Option<String> {
    let serial = certificate.serial();
    // The form has no negative numbers, which no authority should give.
    if serial.first().is_none_or(|first| *first >= 0x80) {
        return None;
    }
    let serial: String = serial.iter().map(|octet| format!("{octet:02X}")).collect();
    let issuer = certificate.issuer().to_dn()?.replace('"', "\"\"");
    Some(format!(
        "{{ serialNumber '{serial}'H, issuer rdnSequence:\"{issuer}\" }}"
    ))
}

/// Appends a value of a filter (RFC 4515 §3).
fn escape_for_filter(out: &mut String, value: &str) {
    for character in value.chars() {
        match character {
            '*' | '(' | ')' | '\\' | '\0'..='\x1f' => {
                out.push_str(&format!("\\{:02x}", u32::from(character)))
            }
            _ => out.push(character),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<ClientIdentity, String> {
        ClientIdentity::parse(&Schema::standard(), text)
    }

    #[test]
    fn templates_are_dns_or_urls() {
        let ClientIdentity::Dn(template) = parse("uid={UID},ou=people,dc=x").unwrap() else {
            panic!("no DN");
        };
        assert_eq!(template.0.len(), 3);
        assert!(parse("{subject}").is_ok());
        let search = parse("ldap:///ou=people,dc=x??sub?(mail={san.email})").unwrap();
        assert!(matches!(
            search,
            ClientIdentity::Search {
                scope: Scope::Sub,
                ..
            }
        ));
        assert!(parse("ldap:///dc=x??sub?(userCertificate={certificate})").is_ok());
        for (wrong, why) in [
            ("", "empty"),
            ("uid={nothing}", "{san.email}"),
            ("uid={uid", "closed"),
            ("cn={certificate}", "searched"),
            ("ldap://host/dc=x??sub?(uid={uid})", "host"),
            ("ldap:///dc=x?cn?sub?(uid={uid})", "attributes"),
            ("ldap:///dc=x??deep?(uid={uid})", "scope"),
        ] {
            let error = parse(wrong).unwrap_err();
            assert!(error.contains(why), "{wrong}: {error}");
        }
    }

    /// A certificate of a subject with these common names, and with these mail addresses.
    fn certificate(names: &[&str], mail: &[&str]) -> Vec<u8> {
        let mut params = rcgen::CertificateParams::default();
        params.serial_number = Some(rcgen::SerialNumber::from_slice(&[1, 0]));
        params.distinguished_name = rcgen::DistinguishedName::new();
        for name in names {
            params
                .distinguished_name
                .push(rcgen::DnType::CommonName, *name);
        }
        for address in mail {
            let address = rcgen::string::Ia5String::try_from(*address).unwrap();
            params
                .subject_alt_names
                .push(rcgen::SanType::Rfc822Name(address));
        }
        let key = rcgen::KeyPair::generate().unwrap();
        params.self_signed(&key).unwrap().der().to_vec()
    }

    fn filled(template: &str, form: Form, der: &[u8]) -> Option<String> {
        let template = Template::parse(&Schema::standard(), template).unwrap();
        template.fill(&Certificate::parse(der).unwrap(), form)
    }

    #[test]
    fn what_a_certificate_says_is_one_value() {
        let der = certificate(&["a,dc=x)(*"], &["a*)(uid=*@x"]);
        let dn = filled("cn={cn},o=y", Form::Dn, &der);
        assert_eq!(dn.unwrap(), r"cn=a\,dc\=x)(*,o=y");
        let filter = filled("(&(cn={cn})(mail={san.email}))", Form::Filter, &der);
        assert_eq!(
            filter.unwrap(),
            r"(&(cn=a,dc=x\29\28\2a)(mail=a\2a\29\28uid=\2a@x))"
        );
        let subject = filled("{subject},o=y", Form::Dn, &der);
        assert_eq!(subject.unwrap(), r"cn=a\,dc\=x)(*,o=y");
        let subject = filled("(seeAlso={subject})", Form::Filter, &der);
        assert_eq!(subject.unwrap(), r"(seeAlso=cn=a\5c,dc\5c=x\29\28\2a)");
        let exact = filled("{certificate}", Form::Filter, &der).unwrap();
        assert!(
            exact.starts_with("{ serialNumber '0100'H, issuer rdnSequence:\"cn=a"),
            "{exact}"
        );
    }

    #[test]
    fn a_name_must_be_there_once() {
        assert!(filled("{san.email}", Form::Dn, &certificate(&["a"], &[])).is_none());
        let two = certificate(&["a"], &["a@x", "b@x"]);
        assert!(filled("{san.email}", Form::Dn, &two).is_none());
        assert!(filled("cn={cn}", Form::Dn, &two).is_some());
        assert!(filled("uid={uid}", Form::Dn, &two).is_none());
        assert!(filled("cn={cn}", Form::Dn, &certificate(&[""], &[])).is_none());
    }
}
