//! Rules of numbers: a number that is free is given to each entry that has none. The form is that of the rules of
//! unique values: an LDAP URL with the base, the attributes, the scope `sub` and the filter of the entries, with an
//! extension for the range, `x-range`, and one for a name of its own, `x-name`.

use std::fmt;
use std::str::FromStr;

use sapwood_ldap::filter_text;
use sapwood_ldap::url::{LdapUrl, Scheme, Scope, UrlExtension};

use super::Settings;
use super::entries::NUMBERS;
use super::listed::ListedRule;
use super::rules::is_rule_name;

/// Numbers that are given, as it is configured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NumbersRule {
    /// The names or OIDs of the attribute types, without options.
    pub attributes: Vec<String>,
    /// Which entries get numbers, as text.
    pub filter: String,
    /// The first number and the last.
    pub range: (u64, u64),
    /// The DN at and below which entries get numbers; empty for the whole directory.
    pub base: String,
    /// What the rule is called; empty if it has no name of its own.
    pub name: String,
}

/// The attribute that has the rules.
pub(crate) const ATTRIBUTE: &str = "sapwoodNumbersURI";

/// The attributes of one rule, and bytes of its value.
const ATTRIBUTES_MAX: usize = 20;
const BYTES_MAX: usize = 8 << 10;

const NAME: &str = "x-name";
const RANGE: &str = "x-range";

/// Reads a range, such as `10000-59999`.
///
/// # Errors
/// Says what a range is.
pub fn range_of_numbers(text: &str) -> Result<(u64, u64), String> {
    let number = |text: &str| {
        let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let number = is_number.then(|| text.parse::<u64>().ok()).flatten();
        number.filter(|number| *number <= i64::MAX as u64)
    };
    let ends = text.split_once('-');
    let ends = ends.and_then(|(first, last)| Some((number(first)?, number(last)?)));
    ends.filter(|(first, last)| first <= last)
        .ok_or_else(|| format!("'{text}' is no range of numbers: write such as 10000-59999"))
}

impl FromStr for NumbersRule {
    type Err = String;

    fn from_str(value: &str) -> Result<NumbersRule, String> {
        const FORM: &str = "write ldap:///BASE?ATTRIBUTES?sub?FILTER?x-range=FIRST-LAST";
        if value.len() > BYTES_MAX {
            return Err(format!("write {BYTES_MAX} bytes at most"));
        }
        let url = LdapUrl::parse(value).map_err(|error| format!("{error}; {FORM}"))?;
        let is_local = url.scheme == Scheme::Ldap && url.host.is_empty() && url.port.is_none();
        let (Some(Scope::Sub), Some(filter), true) = (url.scope, &url.filter, is_local) else {
            return Err(FORM.to_owned());
        };
        filter_text::parse(filter).map_err(|error| format!("the filter: {error}"))?;
        if !(1..=ATTRIBUTES_MAX).contains(&url.attributes.len()) {
            return Err(format!("name 1 to {ATTRIBUTES_MAX} attributes"));
        }
        let is_of_name = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'.';
        if !url
            .attributes
            .iter()
            .all(|name| name.bytes().all(is_of_name))
        {
            return Err("name attributes without options".to_owned());
        }
        let (mut range, mut name) = (None, String::new());
        for UrlExtension {
            name: word, value, ..
        } in &url.extensions
        {
            let value = value.as_deref().unwrap_or_default();
            if word.eq_ignore_ascii_case(RANGE) && range.is_none() {
                range = Some(range_of_numbers(value)?);
            } else if word.eq_ignore_ascii_case(NAME) && name.is_empty() {
                is_rule_name(value)?;
                name = value.to_owned();
            } else {
                return Err(format!("the extensions there are: {RANGE}, {NAME}"));
            }
        }
        Ok(NumbersRule {
            attributes: url.attributes.clone(),
            filter: filter.clone(),
            range: range.ok_or(FORM)?,
            base: url.dn.clone(),
            name,
        })
    }
}

impl fmt::Display for NumbersRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let extension = |name: &str, value: String| UrlExtension {
            critical: false,
            name: name.to_owned(),
            value: Some(value),
        };
        let (first, last) = self.range;
        let mut extensions = vec![extension(RANGE, format!("{first}-{last}"))];
        if !self.name.is_empty() {
            extensions.push(extension(NAME, self.name.clone()));
        }
        let url = LdapUrl {
            dn: self.base.clone(),
            attributes: self.attributes.clone(),
            scope: Some(Scope::Sub),
            filter: Some(self.filter.clone()),
            extensions,
            ..LdapUrl::default()
        };
        url.fmt(f)
    }
}

impl ListedRule for NumbersRule {
    const ATTRIBUTE: &'static str = ATTRIBUTE;
    const ENTRY: &'static str = NUMBERS;
    const EXAMPLE: &'static str =
        "ldap:///?uidNumber?sub?(objectClass=posixAccount)?x-range=10000-59999";

    fn list(settings: &mut Settings) -> &mut Vec<NumbersRule> {
        &mut settings.numbers
    }

    fn read(value: &str) -> Result<NumbersRule, String> {
        value.parse()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read_as_they_are_written() {
        for (base, name) in [("", ""), ("ou=people,dc=x y", "accounts")] {
            let rule = NumbersRule {
                attributes: vec!["uidNumber".into(), "gidNumber".into()],
                filter: "(&(objectClass=posixAccount)(!(cn=a,b?c)))".into(),
                range: (1, 59_999),
                base: base.into(),
                name: name.into(),
            };
            assert_eq!(rule.to_string().parse(), Ok(rule));
        }
        for wrong in [
            "",
            "ldap:///?uidNumber?sub?(cn=*)",
            "ldap:///??sub?(cn=*)?x-range=1-2",
            "ldap:///?uidNumber?one?(cn=*)?x-range=1-2",
            "ldap:///?uidNumber?sub??x-range=1-2",
            "ldap:///?uidNumber?sub?(cn=*?x-range=1-2",
            "ldap:///?uidNumber?sub?(cn=*)?x-range=2-1",
            "ldap:///?uidNumber?sub?(cn=*)?x-range=1",
            "ldap:///?uidNumber?sub?(cn=*)?x-range=1-9223372036854775808",
            "ldap:///?uidNumber;x-a?sub?(cn=*)?x-range=1-2",
            "ldap://host/?uidNumber?sub?(cn=*)?x-range=1-2",
            "ldap:///?uidNumber?sub?(cn=*)?x-range=1-2,x-other=3",
        ] {
            assert!(wrong.parse::<NumbersRule>().is_err(), "{wrong}");
        }
    }
}
