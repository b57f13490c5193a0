//! The root DSE (RFC 4512 §5.1): what the server says about itself.

use crate::beside::Beside;
use crate::error::Result;
use crate::schema::Schema;

/// What only the server knows of the root DSE.
#[derive(Clone, Debug, Default)]
pub struct RootDse {
    /// OIDs of the controls it supports.
    pub controls: Vec<String>,
    /// OIDs of the extended operations it supports.
    pub extensions: Vec<String>,
    /// OIDs of the features it supports.
    pub features: Vec<String>,
    /// SASL mechanisms it supports.
    pub sasl_mechanisms: Vec<String>,
    /// Name and version of the product.
    pub vendor_version: String,
}

/// The highest version of the protocol that is spoken (RFC 4511).
const LDAP_VERSION: &str = "3";

impl RootDse {
    /// The root DSE as an entry: what the server knows, and what the directory does.
    ///
    /// # Errors
    /// When the schema lacks an attribute of it, or its form cannot hold it.
    pub(crate) fn entry<'c>(
        &self,
        schema: &Schema,
        naming_contexts: impl IntoIterator<Item = &'c str>,
        subschema_dn: &str,
    ) -> Result<Beside> {
        let one = |value: &str| vec![value.to_owned()];
        let content = [
            ("objectClass", one("top")),
            (
                "namingContexts",
                naming_contexts.into_iter().map(str::to_owned).collect(),
            ),
            ("supportedControl", self.controls.clone()),
            ("supportedExtension", self.extensions.clone()),
            ("supportedFeatures", self.features.clone()),
            ("supportedLDAPVersion", one(LDAP_VERSION)),
            ("supportedSASLMechanisms", self.sasl_mechanisms.clone()),
            ("vendorName", one("Sapwood")),
            (
                "vendorVersion",
                Vec::from_iter(
                    (!self.vendor_version.is_empty()).then(|| self.vendor_version.clone()),
                ),
            ),
            ("entryDN", one("")),
            ("subschemaSubentry", one(subschema_dn)),
        ];
        Beside::new(schema, "", &content)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_entry_says_what_is_there() {
        let schema = Schema::standard();
        let root_dse = RootDse {
            controls: vec!["1.2.840.113556.1.4.319".to_owned()],
            ..RootDse::default()
        };
        let entry = root_dse
            .entry(&schema, ["dc=example,dc=com", "o=other"], "cn=Subschema")
            .unwrap();
        let (user, operational) = entry.records().unwrap();
        let values = |record: &crate::entry::Entry<'_>, name: &str| {
            let id = schema.attribute_type(name.as_bytes()).unwrap().id();
            let number = entry.attributes().number(id, "")?;
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
