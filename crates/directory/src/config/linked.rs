//! Linked attributes, as the plugin of that name of 389 Directory Server has them: two words, the attribute with the
//! links and the one with the links back.

use std::fmt;
use std::str::FromStr;

use super::Settings;
use super::entries::LINKED;
use super::listed::ListedRule;

/// Two attributes of which the second says backwards what the first says, as it is configured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkedRule {
    /// The attribute that names other entries.
    pub link: String,
    /// The attribute of these that names the entry in turn.
    pub managed: String,
}

/// The attribute that has the rules.
pub(crate) const ATTRIBUTE: &str = "sapwoodLinked";

impl FromStr for LinkedRule {
    type Err = String;

    fn from_str(value: &str) -> Result<LinkedRule, String> {
        let is_of_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-.".contains(&byte);
        let words: Vec<&str> = value.split_ascii_whitespace().collect();
        match words[..] {
            [link, managed] if words.iter().all(|word| word.bytes().all(is_of_name)) => {
                Ok(LinkedRule {
                    link: link.to_owned(),
                    managed: managed.to_owned(),
                })
            }
            _ => Err("write: LINK-ATTRIBUTE MANAGED-ATTRIBUTE".to_owned()),
        }
    }
}

impl fmt::Display for LinkedRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.link, self.managed)
    }
}

impl ListedRule for LinkedRule {
    const ATTRIBUTE: &'static str = ATTRIBUTE;
    const ENTRY: &'static str = LINKED;
    const EXAMPLE: &'static str = "secretary manager";

    fn list(settings: &mut Settings) -> &mut Vec<LinkedRule> {
        &mut settings.linked
    }

    fn read(value: &str) -> Result<LinkedRule, String> {
        value.parse()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read_as_they_are_written() {
        let rule = LinkedRule {
            link: "directReport".into(),
            managed: "2.5.4.31".into(),
        };
        assert_eq!(rule.to_string().parse(), Ok(rule));
        for wrong in ["", "member", "member owner x", "member;x owner"] {
            assert!(wrong.parse::<LinkedRule>().is_err(), "{wrong}");
        }
    }
}
