//! Rules of unique values in the form of slapo-unique(5): olcUniqueURI, an LDAP URL with the base, the attributes and
//! the scope `sub`. A rule with a name of its own has it in an extension of the URL, `x-name`.

use sapwood_ldap::url::{LdapUrl, Scheme, Scope, UrlExtension};

use super::Settings;
use super::entries::UNIQUE;
use super::listed::ListedRule;
use super::rules::is_rule_name;

/// A rule of unique values, as it is configured.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UniqueRule {
    /// The names or OIDs of the attribute types, without options.
    pub attributes: Vec<String>,
    /// The DN at and below which values are unique; empty for the whole directory.
    pub base: String,
    /// What the rule is called; empty if it has no name of its own.
    pub name: String,
}

impl UniqueRule {
    /// The rule as a value of olcUniqueURI.
    pub fn uri(&self) -> String {
        let name = (!self.name.is_empty()).then(|| UrlExtension {
            critical: false,
            name: NAME.to_owned(),
            value: Some(self.name.clone()),
        });
        let url = LdapUrl {
            dn: self.base.clone(),
            attributes: self.attributes.clone(),
            scope: Some(Scope::Sub),
            extensions: Vec::from_iter(name),
            ..LdapUrl::default()
        };
        url.to_string()
    }
}

/// The attribute that says which values are unique.
pub(crate) const UNIQUE_URI: &str = "olcUniqueURI";

/// The attributes of one rule.
const ATTRIBUTES_MAX: usize = 100;

/// The extension of the URL that has the name.
const NAME: &str = "x-name";

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
    if url.filter.is_some() {
        return Err("values are unique among all entries: write no filter".to_owned());
    }
    let name = match url.extensions.as_slice() {
        [] => String::new(),
        [extension] if extension.name.eq_ignore_ascii_case(NAME) => {
            let name = extension.value.clone().unwrap_or_default();
            is_rule_name(&name)?;
            name
        }
        _ => return Err(format!("the one extension there is names the rule: {NAME}")),
    };
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
        name,
    })
}

impl ListedRule for UniqueRule {
    const ATTRIBUTE: &'static str = UNIQUE_URI;
    const ENTRY: &'static str = UNIQUE;
    const EXAMPLE: &'static str = "ldap:///?uid?sub";

    fn list(settings: &mut Settings) -> &mut Vec<UniqueRule> {
        &mut settings.unique
    }

    fn read(value: &str) -> Result<UniqueRule, String> {
        rule(value)
    }
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
                name: String::new(),
            };
            assert_eq!(rule(&known.uri()), Ok(known.clone()));
            let named = UniqueRule {
                name: "people-2".to_owned(),
                ..known
            };
            assert_eq!(rule(&named.uri()), Ok(named));
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
            "ldap:///?uid?sub??x-other=y",
            "ldap:///?uid?sub??x-name",
            "ldap:///?uid?sub??x-name=two%20words",
            "ldap:///?uid?sub??x-name=a,x-name=b",
        ] {
            assert!(rule(wrong).is_err(), "{wrong}");
        }
    }
}
