//! The root DSE (RFC 4512 §5.1): what the server says about itself.

use super::{Content, Definition, Follows, Server};
use crate::config::{Extension, Settings};

/// What only the server knows of the root DSE.
#[derive(Clone, Debug, Default)]
pub struct RootDse {
    /// OIDs of the controls it supports.
    pub controls: Vec<Offered>,
    /// OIDs of the extended operations it supports.
    pub extensions: Vec<Offered>,
    /// OIDs of the features it supports.
    pub features: Vec<Offered>,
    /// The SASL mechanisms it supports.
    pub sasl_mechanisms: Vec<Offered>,
    /// Name and version of the product.
    pub vendor_version: String,
}

/// What is offered where it works.
#[derive(Clone, Debug)]
pub struct Offered {
    /// Its OID or name.
    pub name: String,
    /// Whether it works on a connection.
    pub works_on: fn(Channel) -> bool,
    /// What has to be on; `None` for what is always there.
    pub needs: Option<Needs>,
}

/// What has to be on for something to work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Needs {
    /// An extension of the protocol.
    Extension(Extension),
    /// The rule of dynamic entries (RFC 2589).
    DynamicEntries,
}

impl Offered {
    /// What works on every connection, as long as an extension is on if it needs one.
    pub fn everywhere(name: &str, needs: Option<Needs>) -> Offered {
        Offered {
            name: name.to_owned(),
            works_on: |_| true,
            needs,
        }
    }

    fn is_there(&self, channel: Channel, settings: &Settings) -> bool {
        let is_on = |needed| match needed {
            Needs::Extension(extension) => settings.extensions.has(extension),
            Needs::DynamicEntries => settings.dds.is_some(),
        };
        (self.works_on)(channel) && self.needs.is_none_or(is_on)
    }
}

/// What of a connection decides what the root DSE says on it: nothing that would not work there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Channel {
    /// The operating system vouches for the peer, who can so authenticate by a SASL mechanism of its own.
    pub is_vouched_for: bool,
    /// It can be put under TLS, or was.
    pub takes_tls: bool,
    /// It is under TLS.
    pub is_under_tls: bool,
}

impl Channel {
    /// Kinds of connections.
    const KINDS: usize = 8;

    /// The kind with a number.
    const fn of_kind(number: usize) -> Channel {
        Channel {
            is_vouched_for: number & 1 != 0,
            takes_tls: number & 2 != 0,
            is_under_tls: number & 4 != 0,
        }
    }

    /// Its number.
    pub(super) fn kind(self) -> usize {
        usize::from(self.is_vouched_for)
            | usize::from(self.takes_tls) << 1
            | usize::from(self.is_under_tls) << 2
    }
}

/// The highest version of the protocol that is spoken (RFC 4511).
const LDAP_VERSION: &str = "3";

pub(super) const CONTEXT: Definition = Definition {
    // Which no other entry has.
    suffix: "",
    what: "the root DSE",
    remedy: "it says what the server is and can do",
    is_hidden: false,
    follows: Follows::Extensions,
    make,
};

/// The entry on each kind of connection.
fn make(server: &Server<'_>) -> Vec<Vec<Content>> {
    let on = |kind| vec![server.root_dse.content(server, Channel::of_kind(kind))];
    (0..Channel::KINDS).map(on).collect()
}

impl RootDse {
    /// What the server knows, and what the directory does.
    fn content(&self, server: &Server<'_>, channel: Channel) -> Content {
        let naming_contexts = server.state.contexts.iter();
        let naming_contexts: Vec<&str> = naming_contexts.map(|context| &*context.dn).collect();
        let one = |value: &str| vec![value.to_owned()];
        let all = |values: &[&str]| values.iter().map(|value| (*value).to_owned()).collect();
        let offered = |all: &[Offered]| {
            let settings = &server.state.settings;
            let there = all.iter().filter(|offered| offered.is_there(channel, settings));
            there.map(|offered| offered.name.clone()).collect()
        };
        let first_context = naming_contexts.split_at(naming_contexts.len().min(1)).0;
        let attributes = vec![
            ("objectClass", one("top")),
            ("namingContexts", all(&naming_contexts)),
            ("defaultNamingContext", all(first_context)),
            (
                "dynamicSubtrees",
                match server.state.settings.dds {
                    Some(_) => all(&naming_contexts),
                    None => Vec::new(),
                },
            ),
            ("supportedControl", offered(&self.controls)),
            ("supportedExtension", offered(&self.extensions)),
            ("supportedFeatures", offered(&self.features)),
            ("supportedLDAPVersion", one(LDAP_VERSION)),
            ("supportedSASLMechanisms", offered(&self.sasl_mechanisms)),
            ("vendorName", one("Sapwood")),
            (
                "vendorVersion",
                Vec::from_iter(
                    (!self.vendor_version.is_empty()).then(|| self.vendor_version.clone()),
                ),
            ),
        ];
        Content {
            dn: CONTEXT.suffix.to_owned(),
            also: Vec::new(),
            attributes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::Schema;
    use crate::definition;
    use crate::state::State;
    use crate::synthetic::{SyntheticContext, SyntheticContexts};
    use std::sync::Arc;

    #[test]
    fn the_entry_says_what_is_there() {
        let schema = Schema::standard();
        let root_dse = RootDse {
            controls: vec![Offered::everywhere("1.2.840.113556.1.4.319", None)],
            ..RootDse::default()
        };
        let mut state = State::default();
        for dn in ["dc=example,dc=com", "o=other"] {
            definition::add_context(&mut state, &schema, &[], dn, 0).unwrap();
        }
        let opened = "20260101000000Z".to_owned();
        let contexts = SyntheticContexts::new(&root_dse, &state, opened).unwrap();
        let which = SyntheticContext::RootDse;
        let context = contexts.get(which, Channel::default(), &root_dse, &Arc::new(state), || Ok(Vec::new())).unwrap();
        let (user, operational) = context.entry(0).unwrap().records().unwrap();
        let values = |record: &crate::entry::Entry<'_>, name: &str| {
            let id = schema.attribute_type(name.as_bytes()).unwrap().id();
            let number = context.attributes().number(id, "")?;
            let found = record.attribute(number).unwrap()?;
            Some(
                found
                    .values()
                    .iter()
                    .map(|value| String::from_utf8(value.to_vec()).unwrap())
                    .collect::<Vec<_>>(),
            )
        };
        assert_eq!(values(&user, "objectClass").unwrap(), ["top"]);
        assert_eq!(
            values(&operational, "namingContexts").unwrap(),
            ["dc=example,dc=com", "o=other"]
        );
        assert_eq!(
            values(&operational, "defaultNamingContext").unwrap(),
            ["dc=example,dc=com"]
        );
        assert_eq!(
            values(&operational, "supportedControl").unwrap(),
            ["1.2.840.113556.1.4.319"]
        );
        assert_eq!(values(&operational, "supportedLDAPVersion").unwrap(), ["3"]);
        assert_eq!(
            values(&operational, "subschemaSubentry").unwrap(),
            ["cn=Subschema"]
        );
        assert_eq!(values(&operational, "entryDN").unwrap(), [""]);
        // Without values an attribute is not there at all.
        assert_eq!(values(&operational, "supportedExtension"), None);
        assert_eq!(values(&operational, "vendorVersion"), None);
    }
}
