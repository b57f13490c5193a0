//! Managed entries, as the plugin of that name of 389 Directory Server has them. The form is that of the rules of
//! members: an LDAP URL with the base, the scope `sub` and the filter of the entries that others are made of, with an
//! extension for the template, `x-template`, one for the entry below which they are made, `x-below`, and one for a name
//! of its own, `x-name`.

use std::fmt;
use std::str::FromStr;

use sapwood_ldap::filter_text;
use sapwood_ldap::url::{LdapUrl, Scheme, Scope, UrlExtension};

use super::Settings;
use super::entries::MANAGED;
use super::listed::ListedRule;
use super::refint::RefintRule;
use super::rules::is_rule_name;

/// Entries that are made of others, as it is configured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ManagedRule {
    /// The DN of the entry that says what is made of an entry.
    pub template: String,
    /// The DN below which entries are made.
    pub below: String,
    /// Which entries others are made of, as text.
    pub filter: String,
    /// The DN at and below which these are; empty for the whole directory.
    pub base: String,
    /// What the rule is called; empty if it has no name of its own.
    pub name: String,
}

/// The attribute that has the rules.
pub(crate) const ATTRIBUTE: &str = "sapwoodManagedURI";

/// The attribute of an entry that names the one that was made of it, and the one of that which names it in turn.
pub(crate) const MANAGED_ENTRY: &str = "mepManagedEntry";
pub(crate) const MANAGED_BY: &str = "mepManagedBy";

/// Bytes of a value.
const BYTES_MAX: usize = 8 << 10;

const NAME: &str = "x-name";
const TEMPLATE: &str = "x-template";
const BELOW: &str = "x-below";

impl ManagedRule {
    /// The rule of referential integrity that such rules stand for as well: names follow entries that get other ones.
    pub(crate) fn following() -> RefintRule {
        RefintRule {
            attributes: vec![MANAGED_ENTRY.to_owned(), MANAGED_BY.to_owned()],
            ..RefintRule::default()
        }
    }
}

impl FromStr for ManagedRule {
    type Err = String;

    fn from_str(value: &str) -> Result<ManagedRule, String> {
        const FORM: &str = "write ldap:///BASE??sub?FILTER?x-template=DN,x-below=DN";
        if value.len() > BYTES_MAX {
            return Err(format!("write {BYTES_MAX} bytes at most"));
        }
        let url = LdapUrl::parse(value).map_err(|error| format!("{error}; {FORM}"))?;
        let is_local = url.scheme == Scheme::Ldap && url.host.is_empty() && url.port.is_none();
        let (Some(Scope::Sub), Some(filter), [], true) =
            (url.scope, &url.filter, &url.attributes[..], is_local)
        else {
            return Err(FORM.to_owned());
        };
        filter_text::parse(filter).map_err(|error| format!("the filter: {error}"))?;
        let [mut template, mut below, mut name] = [const { String::new() }; 3];
        for UrlExtension {
            name: word, value, ..
        } in &url.extensions
        {
            let value = value.as_deref().unwrap_or_default();
            let place = match word.to_ascii_lowercase().as_str() {
                TEMPLATE => &mut template,
                BELOW => &mut below,
                NAME => {
                    is_rule_name(value)?;
                    &mut name
                }
                _ => {
                    let there = [TEMPLATE, BELOW, NAME].join(", ");
                    return Err(format!("the extensions there are: {there}"));
                }
            };
            if !place.is_empty() {
                return Err(format!("{word} is given twice"));
            }
            value.clone_into(place);
        }
        match template.is_empty() || below.is_empty() {
            true => Err(FORM.to_owned()),
            false => Ok(ManagedRule {
                template,
                below,
                filter: filter.clone(),
                base: url.dn.clone(),
                name,
            }),
        }
    }
}

impl fmt::Display for ManagedRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let extension = |name: &str, value: &str| UrlExtension {
            critical: false,
            name: name.to_owned(),
            value: Some(value.to_owned()),
        };
        let mut extensions = vec![
            extension(TEMPLATE, &self.template),
            extension(BELOW, &self.below),
        ];
        if !self.name.is_empty() {
            extensions.push(extension(NAME, &self.name));
        }
        let url = LdapUrl {
            dn: self.base.clone(),
            scope: Some(Scope::Sub),
            filter: Some(self.filter.clone()),
            extensions,
            ..LdapUrl::default()
        };
        url.fmt(f)
    }
}

impl ListedRule for ManagedRule {
    const ATTRIBUTE: &'static str = ATTRIBUTE;
    const ENTRY: &'static str = MANAGED;
    const EXAMPLE: &'static str =
        "ldap:///??sub?(objectClass=posixAccount)?x-template=cn=upg%2Cdc=x,x-below=dc=x";

    fn list(settings: &mut Settings) -> &mut Vec<ManagedRule> {
        &mut settings.managed
    }

    fn read(value: &str) -> Result<ManagedRule, String> {
        value.parse()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read_as_they_are_written() {
        for (base, name) in [("", ""), ("ou=people,dc=x y", "groups")] {
            let rule = ManagedRule {
                template: "cn=template,dc=x y".into(),
                below: "ou=groups,dc=x y".into(),
                filter: "(&(objectClass=posixAccount)(!(cn=a,b?c)))".into(),
                base: base.into(),
                name: name.into(),
            };
            assert_eq!(rule.to_string().parse(), Ok(rule));
        }
        let example: Result<ManagedRule, _> = ManagedRule::EXAMPLE.parse();
        let expected = Ok("cn=upg,dc=x".to_owned());
        assert_eq!(example.map(|rule| rule.template), expected);
        for wrong in [
            "",
            "ldap:///??sub?(cn=*)",
            "ldap:///??sub?(cn=*)?x-template=cn=x",
            "ldap:///?member?sub?(cn=*)?x-template=cn=x,x-below=cn=x",
            "ldap:///??one?(cn=*)?x-template=cn=x,x-below=cn=x",
            "ldap:///??sub??x-template=cn=x,x-below=cn=x",
            "ldap:///??sub?(cn=*)?x-template=cn=x,x-below=cn=x,x-below=cn=y",
            "ldap:///??sub?(cn=*)?x-template=cn=x,x-below=cn=x,x-other=3",
        ] {
            assert!(wrong.parse::<ManagedRule>().is_err(), "{wrong}");
        }
    }
}
