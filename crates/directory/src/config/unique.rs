//! Rules of unique values in the form of slapo-unique(5): olcUniqueURI, an LDAP URL with the base, the attributes and
//! the scope `sub`.

use sapwood_ldap::url::{LdapUrl, Scheme, Scope};

/// A rule of unique values, as it is configured.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UniqueRule {
    /// The names or OIDs of the attribute types, without options.
    pub attributes: Vec<String>,
    /// The DN at and below which values are unique; empty for the whole directory.
    pub base: String,
}

/// The attribute that says which values are unique.
pub(crate) const UNIQUE_URI: &str = "olcUniqueURI";

/// The rules that a directory has at most, and the attributes of one.
pub(crate) const RULES_MAX: usize = 100;
const ATTRIBUTES_MAX: usize = 100;

/// A rule as a value of olcUniqueURI.
pub(crate) fn uri(rule: &UniqueRule) -> String {
    let url = LdapUrl {
        dn: rule.base.clone(),
        attributes: rule.attributes.clone(),
        scope: Some(Scope::Sub),
        ..LdapUrl::default()
    };
    url.to_string()
}

/// The rule that a value of olcUniqueURI is.
///
/// # Errors
/// Says what of it cannot be.
pub(crate) fn rule(value: &str) -> Result<UniqueRule, String> {
    let url = LdapUrl::parse(value)
        .map_err(|error| format!("{error}; write ldap:///BASE?ATTRIBUTES?sub"))?;
    if url.scheme != Scheme::Ldap || !url.host.is_empty() || url.port.is_some() {
        return Err("the URL begins with ldap:///, without a host".to_owned());
    }
    if url.scope != Some(Scope::Sub) {
        return Err("values are unique in a whole subtree: write the scope sub".to_owned());
    }
    if url.filter.is_some() || !url.extensions.is_empty() {
        return Err(
            "values are unique among all entries: write neither filter nor extensions".to_owned(),
        );
    }
    if url.attributes.len() > ATTRIBUTES_MAX {
        return Err(format!("more than {ATTRIBUTES_MAX} attributes"));
    }
    // They stand in lines and lists of the definition.
    let is_name = |name: &String| {
        let is_of_name = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'.';
        !name.is_empty() && name.bytes().all(is_of_name)
    };
    if !url.attributes.iter().all(is_name) {
        return Err("name attribute types, without options".to_owned());
    }
    if url.dn.contains(['\n', '\r']) {
        return Err("the base has a line break: escape it".to_owned());
    }
    Ok(UniqueRule {
        attributes: url.attributes,
        base: url.dn,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_urls() {
        for (attributes, base) in [
            (&["uid"][..], ""),
            (&["uid", "mail"], "ou=people,dc=example,dc=com"),
            (&["2.5.4.3"], "o=Ünïcode \\, and? more%,dc=x"),
        ] {
            let known = UniqueRule {
                attributes: attributes.iter().map(|name| (*name).to_owned()).collect(),
                base: base.to_owned(),
            };
            assert_eq!(rule(&uri(&known)), Ok(known));
        }
        assert_eq!(rule("ldap:///?uid?sub").unwrap().attributes, ["uid"]);
        for wrong in [
            "",
            "uid",
            "ldap:///?uid",
            "ldap:///?uid?one",
            "ldap://host/?uid?sub",
            "ldaps:///?uid?sub",
            "ldap:///?uid?sub?(cn=x)",
            "ldap:///no%20dn?uid?sub",
            "strict ldap:///?uid?sub",
            "ldap:///?uid;x-a?sub",
            "ldap:///?*?sub",
        ] {
            assert!(rule(wrong).is_err(), "{wrong}");
        }
    }
}
