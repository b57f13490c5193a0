//! Rules of members: entries that a filter is true of are members of a group. The form is that of the rules of numbers:
//! an LDAP URL with the base, the attribute of members, the scope `sub` and the filter of the entries, with an
//! extension for the group, `x-group`, and one for a name of its own, `x-name`.

use std::fmt;
use std::str::FromStr;

use sapwood_ldap::filter_text;
use sapwood_ldap::url::{LdapUrl, Scheme, Scope, UrlExtension};

use super::Settings;
use super::entries::AUTOMEMBER;
use super::listed::ListedRule;
use super::rules::is_rule_name;

/// Members of a group, as it is configured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AutomemberRule {
    /// The DN of the group.
    pub group: String,
    /// The attribute of the group that names its members.
    pub member: String,
    /// Which entries are members, as text.
    pub filter: String,
    /// The DN at and below which entries are; empty for the whole directory.
    pub base: String,
    /// What the rule is called; empty if it has no name of its own.
    pub name: String,
}

/// The attribute that has the rules.
pub(crate) const ATTRIBUTE: &str = "sapwoodAutomemberURI";

/// Bytes of a value.
const BYTES_MAX: usize = 8 << 10;

const NAME: &str = "x-name";
const GROUP: &str = "x-group";

impl FromStr for AutomemberRule {
    type Err = String;

    fn from_str(value: &str) -> Result<AutomemberRule, String> {
        const FORM: &str = "write ldap:///BASE?member?sub?FILTER?x-group=DN";
        if value.len() > BYTES_MAX {
            return Err(format!("write {BYTES_MAX} bytes at most"));
        }
        let url = LdapUrl::parse(value).map_err(|error| format!("{error}; {FORM}"))?;
        let is_local = url.scheme == Scheme::Ldap && url.host.is_empty() && url.port.is_none();
        let (Some(Scope::Sub), Some(filter), [member], true) =
            (url.scope, &url.filter, &url.attributes[..], is_local)
        else {
            return Err(FORM.to_owned());
        };
        filter_text::parse(filter).map_err(|error| format!("the filter: {error}"))?;
        let is_of_name = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'.';
        if !member.bytes().all(is_of_name) {
            return Err("name an attribute without options".to_owned());
        }
        let (mut group, mut name) = (String::new(), String::new());
        for UrlExtension {
            name: word, value, ..
        } in &url.extensions
        {
            let value = value.as_deref().unwrap_or_default();
            if word.eq_ignore_ascii_case(GROUP) && group.is_empty() {
                group = value.to_owned();
            } else if word.eq_ignore_ascii_case(NAME) && name.is_empty() {
                is_rule_name(value)?;
                name = value.to_owned();
            } else {
                return Err(format!("the extensions there are: {GROUP}, {NAME}"));
            }
        }
        match group.is_empty() {
            true => Err(FORM.to_owned()),
            false => Ok(AutomemberRule {
                group,
                member: member.clone(),
                filter: filter.clone(),
                base: url.dn.clone(),
                name,
            }),
        }
    }
}

impl fmt::Display for AutomemberRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let extension = |name: &str, value: &str| UrlExtension {
            critical: false,
            name: name.to_owned(),
            value: Some(value.to_owned()),
        };
        let mut extensions = vec![extension(GROUP, &self.group)];
        if !self.name.is_empty() {
            extensions.push(extension(NAME, &self.name));
        }
        let url = LdapUrl {
            dn: self.base.clone(),
            attributes: vec![self.member.clone()],
            scope: Some(Scope::Sub),
            filter: Some(self.filter.clone()),
            extensions,
            ..LdapUrl::default()
        };
        url.fmt(f)
    }
}

impl ListedRule for AutomemberRule {
    const ATTRIBUTE: &'static str = ATTRIBUTE;
    const ENTRY: &'static str = AUTOMEMBER;
    const EXAMPLE: &'static str = "ldap:///?member?sub?(objectClass=person)?x-group=cn=all%2Cdc=x";

    fn list(settings: &mut Settings) -> &mut Vec<AutomemberRule> {
        &mut settings.automember
    }

    fn read(value: &str) -> Result<AutomemberRule, String> {
        value.parse()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read_as_they_are_written() {
        for (base, name) in [("", ""), ("ou=people,dc=x y", "everybody")] {
            let rule = AutomemberRule {
                group: "cn=all,ou=groups,dc=x y".into(),
                member: "uniqueMember".into(),
                filter: "(&(objectClass=person)(!(cn=a,b?c)))".into(),
                base: base.into(),
                name: name.into(),
            };
            assert_eq!(rule.to_string().parse(), Ok(rule));
        }
        let example: Result<AutomemberRule, _> = AutomemberRule::EXAMPLE.parse();
        assert_eq!(example.map(|rule| rule.group), Ok("cn=all,dc=x".to_owned()));
        for wrong in [
            "",
            "ldap:///?member?sub?(cn=*)",
            "ldap:///?member,owner?sub?(cn=*)?x-group=cn=x",
            "ldap:///?member?one?(cn=*)?x-group=cn=x",
            "ldap:///?member?sub??x-group=cn=x",
            "ldap:///?member?sub?(cn=*)?x-group=cn=x,x-other=3",
        ] {
            assert!(wrong.parse::<AutomemberRule>().is_err(), "{wrong}");
        }
    }
}
