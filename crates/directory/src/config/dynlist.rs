//! Dynamic groups and lists, as the overlay dynlist of OpenLDAP 2.5 has them: values of olcDynListAttrSet, called
//! olcDlAttrSet before.
//!
//! ```text
//! CLASS URL-ATTRIBUTE [MEMBER-ATTRIBUTE]
//! ```

use std::fmt;
use std::str::FromStr;

use super::Settings;
use super::entries::DYNLIST;
use super::listed::ListedRule;
use crate::schema::{AttributeTypeId, Schema};

/// Which entries have values that LDAP URLs find, as it is configured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DynlistRule {
    /// Their class.
    pub class: String,
    /// Their attribute that has the URLs.
    pub url: String,
    /// The attribute that names the entries which the URLs find; without it an entry has the attributes that the URLs
    /// name, with the values that they have in these entries.
    pub member: Option<String>,
}

impl Default for DynlistRule {
    fn default() -> DynlistRule {
        DynlistRule {
            class: CLASS.to_owned(),
            url: URL.to_owned(),
            member: Some(MEMBER.to_owned()),
        }
    }
}

/// What groups are by default.
const CLASS: &str = "groupOfURLs";
const URL: &str = "memberURL";
const MEMBER: &str = "member";

/// The attribute that has the rules.
pub(crate) const ATTRIBUTE: &str = "olcDynListAttrSet";

impl DynlistRule {
    /// The options that add it.
    pub(crate) fn options(&self) -> Vec<(&'static str, String)> {
        let usual = DynlistRule::default();
        let mut options = Vec::new();
        if self.class != usual.class {
            options.push(("class", self.class.clone()));
        }
        if self.url != usual.url {
            options.push(("url", self.url.clone()));
        }
        match &self.member {
            Some(member) if member == MEMBER => {}
            Some(member) => options.push(("member", member.clone())),
            None => options.push(("list", String::new())),
        }
        options
    }
}

/// The attributes that name what URLs find.
pub(crate) fn members(settings: &Settings, schema: &Schema) -> Vec<AttributeTypeId> {
    let names = settings
        .dynlist
        .iter()
        .filter_map(|rule| rule.member.as_ref());
    let known = names.filter_map(|name| schema.attribute_type(name.as_bytes()));
    known.map(|known| known.id()).collect()
}

impl FromStr for DynlistRule {
    type Err = String;

    fn from_str(value: &str) -> Result<DynlistRule, String> {
        let value = match value.strip_prefix('{') {
            Some(ordered) => ordered.split_once('}').map_or("", |(_, value)| value),
            None => value,
        };
        let words: Vec<&str> = value.split_ascii_whitespace().collect();
        let (class, url, member) = match words[..] {
            [class, url] => (class, url, None),
            [class, url, member] => (class, url, Some(member)),
            _ => return Err("write: CLASS URL-ATTRIBUTE [MEMBER-ATTRIBUTE]".to_owned()),
        };
        if words.iter().any(|word| word.contains([':', '+', '@'])) {
            return Err(
                "neither URLs that choose groups, nor other names for attributes, nor memberOf of dynamic groups are \
                 here: write CLASS URL-ATTRIBUTE [MEMBER-ATTRIBUTE]"
                    .to_owned(),
            );
        }
        let is_of_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-.".contains(&byte);
        match words.iter().all(|word| word.bytes().all(is_of_name)) {
            true => Ok(DynlistRule {
                class: class.to_owned(),
                url: url.to_owned(),
                member: member.map(str::to_owned),
            }),
            false => {
                Err("write the names of a class and of attributes, without options".to_owned())
            }
        }
    }
}

impl fmt::Display for DynlistRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.class, self.url)?;
        match &self.member {
            Some(member) => write!(f, " {member}"),
            None => Ok(()),
        }
    }
}

impl ListedRule for DynlistRule {
    const ATTRIBUTE: &'static str = ATTRIBUTE;
    const ENTRY: &'static str = DYNLIST;
    const EXAMPLE: &'static str = "groupOfURLs memberURL member";

    fn list(settings: &mut Settings) -> &mut Vec<DynlistRule> {
        &mut settings.dynlist
    }

    fn read(value: &str) -> Result<DynlistRule, String> {
        value.parse()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read_as_they_are_written() {
        let list = DynlistRule {
            member: None,
            class: "x".into(),
            url: "1.2.3".into(),
        };
        for rule in [DynlistRule::default(), list] {
            assert_eq!(rule.to_string().parse(), Ok(rule.clone()));
            assert_eq!(format!("{{3}}{rule}").parse(), Ok(rule));
        }
        for wrong in [
            "",
            "groupOfURLs",
            "groupOfURLs ldap:///dc=x??sub? memberURL",
            "groupOfURLs memberURL member+memberOf@groupOfNames*",
            "groupOfURLs memberURL sn:cn",
            "groupOfURLs memberURL member;x-a",
            "groupOfURLs memberURL member more",
        ] {
            assert!(wrong.parse::<DynlistRule>().is_err(), "{wrong}");
        }
    }
}
