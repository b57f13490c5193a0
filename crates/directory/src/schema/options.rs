//! Attribute options (RFC 4512 §2.5): which are recognised, and with which types. Language tags and ranges (RFC 3866)
//! and the binary option (RFC 4522) are built in; others have to be registered.

use sapwood_ldap::attribute::AttributeDescription;

use super::{AttributeType, Schema};

/// What an attribute description is given for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// To store values under it.
    Store,
    /// To find what is stored: language ranges are for this.
    Find,
}

/// Why an attribute description is not recognised, although its type is.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum UnrecognisedOption {
    /// Nobody registered it.
    #[error(
        "the attribute option {0} is not registered here (attribute_options in sapwood.toml is the list)"
    )]
    NotRegistered(String),
    /// It begins as a language tag does, and is none.
    #[error("the attribute option {0} is not a language tag (RFC 3866 §2.1)")]
    NotALanguage(String),
    /// RFC 3866 §3: "Attributes cannot be stored with language range options."
    #[error("the attribute option {0} is a language range, which only finds values (RFC 3866 §3)")]
    Range(String),
    /// RFC 4522 §3.
    #[error("{0} has no values in BER, so that it cannot have the option binary (RFC 4522 §3)")]
    NotBinary(String),
    /// RFC 4522 §4, RFC 4523 §2.
    #[error("{0} is transferred in BER only: write {0};binary (RFC 4523 §2)")]
    OnlyBinary(String),
}

/// Syntax Binary: whatever is in it, RFC 2798 has values of it transferred with the binary option (§2.8).
const BINARY_SYNTAX: &str = "1.3.6.1.4.1.1466.115.121.1.5";
const BINARY: &str = "binary";
const LANGUAGE: &str = "lang-";

impl Schema {
    /// Whether the options of a description are recognised with its type.
    ///
    /// # Errors
    /// The first reason why not. The description is then to be treated as unrecognised (RFC 4512 §2.5).
    pub(crate) fn check_options(
        &self,
        known: &AttributeType,
        description: &AttributeDescription<'_>,
        purpose: Purpose,
    ) -> Result<(), UnrecognisedOption> {
        let has_binary =
            description.has_options() && self.check_each(known, description, purpose)?;
        if purpose == Purpose::Store && !has_binary && requires_binary(known) {
            return Err(UnrecognisedOption::OnlyBinary(known.name().to_owned()));
        }
        Ok(())
    }

    /// Each option by itself; whether one is binary.
    fn check_each(
        &self,
        known: &AttributeType,
        description: &AttributeDescription<'_>,
        purpose: Purpose,
    ) -> Result<bool, UnrecognisedOption> {
        let is_binary = || {
            let syntax = known.syntax();
            requires_binary(known) || syntax.is_some_and(|syntax| syntax.oid() == BINARY_SYNTAX)
        };
        let mut has_binary = false;
        for option in description.options() {
            if option.eq_ignore_ascii_case(BINARY) {
                has_binary = true;
                if !is_binary() {
                    return Err(UnrecognisedOption::NotBinary(known.name().to_owned()));
                }
                continue;
            }
            if let Some(tag) = strip_prefix_ignoring_case(option, LANGUAGE) {
                check_language(option, tag, purpose)?;
            } else if !self
                .content
                .options
                .iter()
                .any(|known| meets(option, known))
            {
                return Err(UnrecognisedOption::NotRegistered(option.to_owned()));
            }
        }
        Ok(has_binary)
    }
}

/// Whether values of a type are transferred with the option binary only.
fn requires_binary(known: &AttributeType) -> bool {
    let syntax = known.syntax();
    syntax.is_some_and(|syntax| syntax.is_binary() && syntax.requires_binary_transfer())
}

/// Whether an option can be registered: letters, digits and hyphens; with a hyphen at its end it stands for all options
/// that begin so (RFC 4520 §3.5). Those that are built in cannot.
pub(super) fn can_be_registered(option: &str) -> bool {
    let is_keychar = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    !option.is_empty()
        && option.bytes().all(is_keychar)
        && !option.eq_ignore_ascii_case(BINARY)
        && strip_prefix_ignoring_case(option, LANGUAGE).is_none()
}

fn meets(option: &str, registered: &str) -> bool {
    if registered.ends_with('-') {
        strip_prefix_ignoring_case(option, registered).is_some_and(|rest| !rest.is_empty())
    } else {
        option.eq_ignore_ascii_case(registered)
    }
}

/// RFC 3866 §2.1 and §3: `lang-` and a language tag; for a range, its beginning and a hyphen, or nothing.
fn check_language(option: &str, tag: &str, purpose: Purpose) -> Result<(), UnrecognisedOption> {
    let range = if tag.is_empty() {
        Some("")
    } else {
        tag.strip_suffix('-')
    };
    if range.is_some() && purpose == Purpose::Store {
        return Err(UnrecognisedOption::Range(option.to_owned()));
    }
    if range != Some("") && !is_language_tag(range.unwrap_or(tag)) || tag == "-" {
        return Err(UnrecognisedOption::NotALanguage(option.to_owned()));
    }
    Ok(())
}

fn is_language_tag(tag: &str) -> bool {
    tag.split('-').enumerate().all(|(place, subtag)| {
        let is_letter = |byte: u8| byte.is_ascii_alphabetic() || place > 0 && byte.is_ascii_digit();
        matches!(subtag.len(), 1..=8) && subtag.bytes().all(is_letter)
    })
}

fn strip_prefix_ignoring_case<'t>(text: &'t str, prefix: &str) -> Option<&'t str> {
    let (head, rest) = text.split_at_checked(prefix.len())?;
    head.eq_ignore_ascii_case(prefix).then_some(rest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::SchemaBuilder;

    fn check(description: &str, purpose: Purpose) -> Result<(), UnrecognisedOption> {
        let mut builder = SchemaBuilder::new();
        let options = ["x-one", "X-Family-"].map(str::to_owned);
        builder.attribute_options(&options).unwrap();
        let schema = builder.build().unwrap();
        let description = AttributeDescription::parse(description).unwrap();
        let known = schema.attribute_type(description.attribute_type().as_bytes());
        schema.check_options(known.unwrap(), &description, purpose)
    }

    #[test]
    fn recognised_are_languages_and_what_is_registered() {
        for both in [
            "cn",
            "cn;lang-de",
            "CN;LANG-EN-us",
            "cn;lang-x-klingon1;X-ONE",
            "cn;x-family-a",
            "userCertificate;binary",
            "userPKCS12;binary",
            "userPKCS12",
        ] {
            for purpose in [Purpose::Store, Purpose::Find] {
                assert_eq!(check(both, purpose), Ok(()), "{both}");
            }
        }
        for neither in [
            "cn;x-two",
            "cn;x-one;x-on",
            "cn;x-family-",
            "cn;x-family",
            "cn;binary",
            "description;binary",
            "cn;lang-1",
            "cn;lang-en--us",
            "cn;lang--",
            "cn;lang-abcdefghi",
            "cn;lang-de;y",
        ] {
            for purpose in [Purpose::Store, Purpose::Find] {
                assert!(check(neither, purpose).is_err(), "{neither}");
            }
        }
        for found in [
            "cn;lang-",
            "cn;lang-en-",
            "cn;lang-en-us-;x-one",
            "userCertificate",
        ] {
            assert_eq!(check(found, Purpose::Find), Ok(()), "{found}");
            assert!(check(found, Purpose::Store).is_err(), "{found}");
        }
    }

    #[test]
    fn what_is_built_in_or_no_option_is_not_registered() {
        for option in ["", "binary", "lang-de", "Lang-", "x_y", "x;y"] {
            let registered = SchemaBuilder::new().attribute_options(&[option.to_owned()]);
            assert!(registered.is_err(), "{option}");
        }
    }
}
