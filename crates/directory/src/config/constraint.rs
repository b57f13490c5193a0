//! Constraints on the values of attributes, in the form of slapo-constraint(5): olcConstraintAttribute, which says of
//! some attributes what their values have to be, and perhaps of which entries that holds.
//!
//! ```text
//! value  attribute[,attribute]... test [restrict="URL"] [name=WORD]
//! test   regex PATTERN | negregex PATTERN | size BYTES | count VALUES | uri "URL"
//! ```
//!
//! A word with spaces or quotes stands in quotes, in which a backslash stands before a quote or another backslash.
//! Elsewhere a backslash is itself, as patterns have them. The name is Sapwood's own.

use std::fmt;
use std::str::FromStr;

use sapwood_ldap::url::{LdapUrl, Scheme};

use super::Settings;
use super::entries::CONSTRAINT;
use super::listed::ListedRule;
use super::rules::is_rule_name;

/// A constraint, as it is configured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConstraintRule {
    /// The names or OIDs of the attribute types, without options.
    pub attributes: Vec<String>,
    /// What their values have to be.
    pub test: ConstraintTest,
    /// An LDAP URL with the base, the scope and the filter of the entries that it holds of; empty for all.
    pub restrict: String,
    /// What the rule is called; empty if it has no name of its own.
    pub name: String,
}

/// What values have to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConstraintTest {
    /// Each has a match of this expression, as POSIX has them ("extended").
    Regex(String),
    /// None has.
    NegRegex(String),
    /// None has more bytes.
    Size(u32),
    /// There are no more of an attribute.
    Count(u32),
    /// Each is a value of one of the attributes of an LDAP URL, in the entries that its base, scope and filter are
    /// about.
    Uri(String),
}

impl ConstraintTest {
    /// The word for it, and what stands behind the word.
    pub(crate) fn parts(&self) -> (&'static str, String) {
        match self {
            ConstraintTest::Regex(pattern) => ("regex", pattern.clone()),
            ConstraintTest::NegRegex(pattern) => ("negregex", pattern.clone()),
            ConstraintTest::Size(bytes) => ("size", bytes.to_string()),
            ConstraintTest::Count(values) => ("count", values.to_string()),
            ConstraintTest::Uri(url) => ("uri", url.clone()),
        }
    }

    /// The test that a word and what is behind it stand for.
    ///
    /// # Errors
    /// Says what is wrong.
    pub fn of(word: &str, value: &str) -> Result<ConstraintTest, String> {
        let number = || {
            let number = value.parse::<u32>().ok();
            number.ok_or_else(|| format!("{word}: '{value}' is not a number"))
        };
        Ok(match word {
            "regex" => ConstraintTest::Regex(value.to_owned()),
            "negregex" => ConstraintTest::NegRegex(value.to_owned()),
            "size" => ConstraintTest::Size(number()?),
            "count" => ConstraintTest::Count(number()?),
            "uri" => ConstraintTest::Uri(local_url(value)?.to_string()),
            "set" => return Err("sets are not evaluated here: write regex or uri".to_owned()),
            _ => {
                return Err(format!(
                    "'{word}' is none of regex, negregex, size, count, uri"
                ));
            }
        })
    }
}

/// The attribute that says what values have to be.
pub(crate) const ATTRIBUTE: &str = "olcConstraintAttribute";

/// The attributes of one constraint, and the bytes of its value.
const ATTRIBUTES_MAX: usize = 100;
const BYTES_MAX: usize = 8 << 10;

/// Reads an LDAP URL about entries of this directory.
pub(crate) fn local_url(text: &str) -> Result<LdapUrl, String> {
    let url = LdapUrl::parse(text).map_err(|error| format!("'{text}': {error}"))?;
    if url.scheme != Scheme::Ldap || !url.host.is_empty() || url.port.is_some() {
        return Err(format!(
            "'{text}': the URL begins with ldap:///, without a host"
        ));
    }
    match url.extensions.is_empty() {
        true => Ok(url),
        false => Err(format!("'{text}': the URL has an extension")),
    }
}

impl ConstraintRule {
    /// The attributes in whose values those of others are looked for.
    pub fn listed(&self) -> Vec<String> {
        match &self.test {
            ConstraintTest::Uri(url) => local_url(url).map_or(Vec::new(), |url| url.attributes),
            _ => Vec::new(),
        }
    }
}

impl FromStr for ConstraintRule {
    type Err = String;

    fn from_str(value: &str) -> Result<ConstraintRule, String> {
        if value.len() > BYTES_MAX || value.contains(['\n', '\r']) {
            return Err(format!(
                "write at most {BYTES_MAX} bytes, without line breaks"
            ));
        }
        let words = words(value)?;
        let [attributes, word, test, more @ ..] = words.as_slice() else {
            return Err("write: ATTRIBUTE,... regex|negregex|size|count|uri VALUE".to_owned());
        };
        let attributes: Vec<String> = attributes.split(',').map(str::to_owned).collect();
        let is_of_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-.".contains(&byte);
        let is_name = |name: &String| !name.is_empty() && name.bytes().all(is_of_name);
        if attributes.len() > ATTRIBUTES_MAX || !attributes.iter().all(is_name) {
            return Err(format!(
                "name up to {ATTRIBUTES_MAX} attribute types, without options"
            ));
        }
        let mut rule = ConstraintRule {
            attributes,
            test: ConstraintTest::of(word, test)?,
            restrict: String::new(),
            name: String::new(),
        };
        for word in more {
            match word.split_once('=') {
                Some(("restrict", url)) if rule.restrict.is_empty() => {
                    let url = local_url(url)?;
                    if !url.attributes.is_empty() {
                        return Err("restrict: name no attributes".to_owned());
                    }
                    rule.restrict = url.to_string();
                }
                Some(("name", name)) if rule.name.is_empty() => {
                    is_rule_name(name)?;
                    rule.name = name.to_owned();
                }
                _ => return Err(format!("'{word}' is neither restrict=URL nor name=WORD")),
            }
        }
        Ok(rule)
    }
}

impl fmt::Display for ConstraintRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (word, test) = self.test.parts();
        write!(f, "{} {word} {}", self.attributes.join(","), quoted(&test))?;
        if !self.restrict.is_empty() {
            write!(f, " restrict={}", quoted(&self.restrict))?;
        }
        match self.name.as_str() {
            "" => Ok(()),
            name => write!(f, " name={name}"),
        }
    }
}

/// A word as it stands in a value.
pub(super) fn quoted(word: &str) -> String {
    let is_plain = |letter: char| !letter.is_whitespace() && letter != '"';
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    let escaped = word.replace('\\', "\\\\").replace('"', "\\\"");
    format!("\"{escaped}\"")
}

/// The words of a value, without their quotes.
pub(super) fn words(value: &str) -> Result<Vec<String>, String> {
    let (mut words, mut word) = (Vec::new(), None::<String>);
    let mut letters = value.chars();
    let mut is_quoted = false;
    while let Some(letter) = letters.next() {
        match letter {
            '"' => {
                is_quoted = !is_quoted;
                word.get_or_insert_default();
            }
            '\\' if is_quoted => match letters.next() {
                Some(escaped @ ('"' | '\\')) => word.get_or_insert_default().push(escaped),
                Some(other) => word.get_or_insert_default().extend(['\\', other]),
                None => break,
            },
            space if space.is_whitespace() && !is_quoted => words.extend(word.take()),
            other => word.get_or_insert_default().push(other),
        }
    }
    words.extend(word);
    match is_quoted {
        true => Err("a quote is not closed".to_owned()),
        false => Ok(words),
    }
}

impl ListedRule for ConstraintRule {
    const ATTRIBUTE: &'static str = ATTRIBUTE;
    const ENTRY: &'static str = CONSTRAINT;
    const EXAMPLE: &'static str = "mail regex @example.com$";

    fn list(settings: &mut Settings) -> &mut Vec<ConstraintRule> {
        &mut settings.constraints
    }

    fn read(value: &str) -> Result<ConstraintRule, String> {
        value.parse()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read_as_they_are_written() {
        let url = "ldap:///ou=titles,dc=x?title?sub?(objectClass=*)";
        for test in [
            ConstraintTest::Regex("^[a-z]+@x\\.org$".into()),
            ConstraintTest::NegRegex("a \"b\\\" c".into()),
            ConstraintTest::Regex(String::new()),
            ConstraintTest::Size(131_072),
            ConstraintTest::Count(3),
            ConstraintTest::Uri(url.into()),
        ] {
            for (restrict, name) in [
                ("", ""),
                ("ldap:///ou=people,dc=x??sub?(objectClass=person)", "people"),
            ] {
                let rule = ConstraintRule {
                    attributes: vec!["mail".into(), "2.5.4.3".into()],
                    test: test.clone(),
                    restrict: restrict.into(),
                    name: name.into(),
                };
                assert_eq!(rule.to_string().parse(), Ok(rule));
            }
        }
        let as_in_the_manual = "jpegPhoto size 131072";
        let rule: ConstraintRule = as_in_the_manual.parse().unwrap();
        assert_eq!(rule.test, ConstraintTest::Size(131_072));
        for wrong in [
            "",
            "mail",
            "mail regex",
            "mail like x",
            "mail size many",
            "mail size -1",
            "mail;lang-en size 1",
            "mail, size 1",
            "cn set \"this/cn\"",
            "mail regex x name=a name=b",
            "mail regex x name=two%20words",
            "mail regex x restrict=ldap://host/",
            "mail regex x restrict=\"ldap:///dc=x?cn\"",
            "mail regex x other",
            "mail regex \"x",
            "mail uri http://x",
            "mail regex x\ny",
        ] {
            assert!(wrong.parse::<ConstraintRule>().is_err(), "{wrong}");
        }
    }
}
