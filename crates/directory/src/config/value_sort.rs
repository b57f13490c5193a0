//! The order in which values are sent, in the form of slapo-valsort(5): olcValSortAttr, a value for each rule.
//!
//! ```text
//! value  attribute base method [name=WORD]
//! method alpha-ascend | alpha-descend | numeric-ascend | numeric-descend | weighted [one of these]
//! ```
//!
//! A base with spaces stands in quotes, in which a backslash stands before a quote or another backslash. The name is
//! Sapwood's own.

use std::fmt;
use std::str::FromStr;

use super::Settings;
use super::constraint::{quoted, words};
use super::entries::VALUE_SORT;
use super::listed::ListedRule;
use super::rules::is_rule_name;

/// A rule, as it is configured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValueSortRule {
    /// The name or OID of the attribute type, without options.
    pub attribute: String,
    /// The DN of the entry at and below which it holds.
    pub base: String,
    /// The order.
    pub method: SortMethod,
    /// What the rule is called; empty if it has no name of its own.
    pub name: String,
}

/// In which order values are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SortMethod {
    /// By the number in braces before each, the least first. It is not sent.
    pub is_weighted: bool,
    /// By the values themselves, or those with the same number; there is one of both at least.
    pub by: Option<SortBy>,
}

/// How values are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SortBy {
    /// As whole numbers, and not by their normal forms.
    pub is_numeric: bool,
    /// The greatest first.
    pub is_descending: bool,
}

const METHODS: &str = "alpha-ascend, alpha-descend, numeric-ascend, numeric-descend, or weighted and perhaps one of them";

impl FromStr for SortMethod {
    type Err = String;

    fn from_str(text: &str) -> Result<SortMethod, String> {
        let words: Vec<&str> = text.split_ascii_whitespace().collect();
        let (is_weighted, word) = match words[..] {
            ["weighted"] => (true, None),
            ["weighted", word] => (true, Some(word)),
            [word] => (false, Some(word)),
            _ => return Err(format!("the order is one of {METHODS}")),
        };
        let by = word.map(|word| {
            let (is_numeric, is_descending) = match word {
                "alpha-ascend" => (false, false),
                "alpha-descend" => (false, true),
                "numeric-ascend" => (true, false),
                "numeric-descend" => (true, true),
                _ => return Err(format!("'{word}' is none of {METHODS}")),
            };
            Ok(SortBy {
                is_numeric,
                is_descending,
            })
        });
        Ok(SortMethod {
            is_weighted,
            by: by.transpose()?,
        })
    }
}

impl fmt::Display for SortMethod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_weighted {
            f.write_str("weighted")?;
        }
        if let Some(by) = self.by {
            let space = if self.is_weighted { " " } else { "" };
            let kind = if by.is_numeric { "numeric" } else { "alpha" };
            let way = if by.is_descending {
                "descend"
            } else {
                "ascend"
            };
            write!(f, "{space}{kind}-{way}")?;
        }
        Ok(())
    }
}

/// The attribute that has the rules.
pub(crate) const ATTRIBUTE: &str = "olcValSortAttr";

/// Bytes of a value.
const BYTES_MAX: usize = 8 << 10;

impl FromStr for ValueSortRule {
    type Err = String;

    fn from_str(value: &str) -> Result<ValueSortRule, String> {
        if value.len() > BYTES_MAX || value.contains(['\n', '\r']) {
            return Err(format!(
                "write at most {BYTES_MAX} bytes, without line breaks"
            ));
        }
        let mut words = words(value)?;
        let mut name = String::new();
        if let Some(given) = words.last().and_then(|word| word.strip_prefix("name=")) {
            is_rule_name(given)?;
            name = given.to_owned();
            words.pop();
        }
        let [attribute, base, method @ ..] = words.as_slice() else {
            return Err("write: ATTRIBUTE BASE METHOD".to_owned());
        };
        let is_of_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-.".contains(&byte);
        if attribute.is_empty() || !attribute.bytes().all(is_of_name) {
            return Err("name an attribute type, without options".to_owned());
        }
        Ok(ValueSortRule {
            attribute: attribute.clone(),
            base: base.clone(),
            method: method.join(" ").parse()?,
            name,
        })
    }
}

impl fmt::Display for ValueSortRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} {} {}",
            self.attribute,
            quoted(&self.base),
            self.method
        )?;
        match self.name.as_str() {
            "" => Ok(()),
            name => write!(f, " name={name}"),
        }
    }
}

/// The weight of a value and what is behind it, if it begins with one: `{10}value`.
pub(crate) fn weighted(value: &[u8]) -> Option<(i64, &[u8])> {
    let rest = value.strip_prefix(b"{")?;
    let end = rest.iter().position(|byte| *byte == b'}')?;
    let weight = std::str::from_utf8(rest.get(..end)?).ok()?;
    Some((weight.parse().ok()?, rest.get(end + 1..)?))
}

impl ListedRule for ValueSortRule {
    const ATTRIBUTE: &'static str = ATTRIBUTE;
    const ENTRY: &'static str = VALUE_SORT;
    const EXAMPLE: &'static str = "member ou=groups,dc=example,dc=com alpha-ascend";

    fn list(settings: &mut Settings) -> &mut Vec<ValueSortRule> {
        &mut settings.value_sorts
    }

    fn read(value: &str) -> Result<ValueSortRule, String> {
        value.parse()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read_as_they_are_written() {
        for text in [
            "member ou=groups,dc=example,dc=com alpha-ascend",
            "2.5.4.31 \"ou=some groups,dc=x\" alpha-descend name=groups",
            "uidNumber dc=x numeric-ascend",
            "uidNumber dc=x numeric-descend",
            "mail dc=x weighted",
            "mail dc=x weighted alpha-ascend",
        ] {
            let rule: ValueSortRule = text.parse().unwrap();
            assert_eq!(rule.to_string(), text);
        }
        for wrong in [
            "",
            "member",
            "member dc=x",
            "member dc=x backwards",
            "member dc=x alpha-ascend weighted",
            "member dc=x weighted alpha-ascend numeric-ascend",
            "member;lang-en dc=x weighted",
            "member dc=x weighted name=two%20words",
            "member \"dc=x weighted",
        ] {
            assert!(wrong.parse::<ValueSortRule>().is_err(), "{wrong}");
        }
    }
}
