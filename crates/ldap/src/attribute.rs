//! Attribute descriptions (RFC 4512 §2.5): a type with options, such as `cn;lang-de`, and the names and object
//! identifiers they are made of (RFC 4512 §1.4).

#![deny(clippy::indexing_slicing)]

use std::fmt;

/// The longest attribute description that is read.
pub const ATTRIBUTE_DESCRIPTION_BYTES_MAX: usize = 1024;

/// The most options an attribute description may have.
pub const OPTIONS_MAX: usize = 32;

/// A checked attribute description, borrowed from where it was read. Options are kept as written; comparisons take
/// neither their order nor anybody's case into account (RFC 4512 §2.5).
#[derive(Debug, Clone, Copy)]
pub struct AttributeDescription<'a> {
    text: &'a str,
    /// Where the type ends and the options, with their semicolon, begin.
    type_end: usize,
}

/// Why text is not an attribute description.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AttributeDescriptionError {
    /// The type is neither a short name nor a numeric object identifier.
    #[error("the attribute type is neither a name nor a numeric object identifier")]
    BadType,
    /// An option is empty or holds other characters than letters, digits and hyphens.
    #[error("an attribute option must be one or more letters, digits and hyphens")]
    BadOption,
    /// Longer than [`ATTRIBUTE_DESCRIPTION_BYTES_MAX`].
    #[error("attribute description longer than {ATTRIBUTE_DESCRIPTION_BYTES_MAX} bytes")]
    TooLong,
    /// More options than [`OPTIONS_MAX`].
    #[error("more than {OPTIONS_MAX} attribute options")]
    TooManyOptions,
}

impl<'a> AttributeDescription<'a> {
    /// Checks `text` against the grammar of RFC 4512 §2.5.
    pub fn parse(text: &'a str) -> Result<AttributeDescription<'a>, AttributeDescriptionError> {
        if text.len() > ATTRIBUTE_DESCRIPTION_BYTES_MAX {
            return Err(AttributeDescriptionError::TooLong);
        }
        if is_descriptor(text) {
            return Ok(AttributeDescription {
                text,
                type_end: text.len(),
            });
        }
        let (attribute_type, options) = match text.split_once(';') {
            Some((attribute_type, options)) => (attribute_type, Some(options)),
            None => (text, None),
        };
        if !is_descriptor(attribute_type) && !is_numeric_oid(attribute_type) {
            return Err(AttributeDescriptionError::BadType);
        }
        for (index, option) in options
            .into_iter()
            .flat_map(|options| options.split(';'))
            .enumerate()
        {
            if index == OPTIONS_MAX {
                return Err(AttributeDescriptionError::TooManyOptions);
            }
            if option.is_empty() || !option.bytes().all(is_keychar) {
                return Err(AttributeDescriptionError::BadOption);
            }
        }
        Ok(AttributeDescription {
            text,
            type_end: attribute_type.len(),
        })
    }

    /// A description without options, of a type that a schema knows by this name, which is not checked again.
    pub fn of_type(name: &'a str) -> AttributeDescription<'a> {
        AttributeDescription {
            text: name,
            type_end: name.len(),
        }
    }

    /// The whole description as written.
    pub fn as_str(&self) -> &'a str {
        self.text
    }

    /// The attribute type: a short name or a numeric object identifier, as written.
    pub fn attribute_type(&self) -> &'a str {
        self.text.get(..self.type_end).unwrap_or_default()
    }

    /// The options in the order written.
    pub fn options(&self) -> impl Iterator<Item = &'a str> + Clone + use<'a> {
        self.text
            .get(self.type_end..)
            .unwrap_or_default()
            .split(';')
            .skip(1)
    }

    /// Whether there are any options.
    pub fn has_options(&self) -> bool {
        self.type_end < self.text.len()
    }

    /// Whether `option` is among the options.
    pub fn has_option(&self, option: &str) -> bool {
        self.options().any(|own| own.eq_ignore_ascii_case(option))
    }

    /// The options in lower case, sorted, each once, joined with semicolons: equal for equal sets of options.
    pub fn normalised_options(&self) -> String {
        let mut options: Vec<String> = self.options().map(str::to_ascii_lowercase).collect();
        options.sort_unstable();
        options.dedup();
        options.join(";")
    }

    /// Whether the options here are a superset of those of `requested`, so that, the types agreeing, an attribute
    /// described by `self` is (a subtype of) what was asked for (RFC 4512 §2.5.2). A requested option that ends
    /// with a hyphen is a language range and is met by each option that begins with it (RFC 3866 §3.2).
    pub fn options_cover(&self, requested: &AttributeDescription<'_>) -> bool {
        // Mostly none are asked for.
        !requested.has_options()
            || requested
                .options()
                .all(|wanted| self.options().any(|own| option_meets(own, wanted)))
    }
}

/// Equal as written but for case and for the order and repetition of options. A name and an object identifier of
/// the same type compare as different: only a schema knows.
impl PartialEq for AttributeDescription<'_> {
    fn eq(&self, other: &AttributeDescription<'_>) -> bool {
        self.attribute_type()
            .eq_ignore_ascii_case(other.attribute_type())
            && self.options().all(|option| other.has_option(option))
            && other.options().all(|option| self.has_option(option))
    }
}

impl Eq for AttributeDescription<'_> {}

impl fmt::Display for AttributeDescription<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text)
    }
}

fn option_meets(own: &str, wanted: &str) -> bool {
    if own.eq_ignore_ascii_case(wanted) {
        return true;
    }
    let Some(bare) = wanted.strip_suffix('-') else {
        return false;
    };
    let is_range = wanted
        .get(..5)
        .is_some_and(|head| head.eq_ignore_ascii_case("lang-"));
    let begins = own
        .get(..wanted.len())
        .is_some_and(|head| head.eq_ignore_ascii_case(wanted));
    is_range && (begins || own.eq_ignore_ascii_case(bare))
}

/// A short name: a letter followed by letters, digits and hyphens (`descr`, RFC 4512 §1.4).
pub fn is_descriptor(text: &str) -> bool {
    text.bytes()
        .next()
        .is_some_and(|first| first.is_ascii_alphabetic())
        && text.bytes().all(is_keychar)
}

/// A dotted-decimal object identifier of two or more numbers without leading zeros (`numericoid`, RFC 4512 §1.4).
pub fn is_numeric_oid(text: &str) -> bool {
    let is_number = |number: &str| {
        let canonical = number == "0" || !number.starts_with('0');
        !number.is_empty() && canonical && number.bytes().all(|byte| byte.is_ascii_digit())
    };
    text.contains('.') && text.split('.').all(is_number)
}

fn is_keychar(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'-'
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parse(text: &str) -> AttributeDescription<'_> {
        AttributeDescription::parse(text).unwrap()
    }

    #[test]
    fn types_and_options_are_found() {
        let description = parse("2.5.4.3;Lang-DE;binary");
        assert_eq!(description.attribute_type(), "2.5.4.3");
        assert_eq!(
            description.options().collect::<Vec<_>>(),
            ["Lang-DE", "binary"]
        );
        assert_eq!(description.normalised_options(), "binary;lang-de");
        assert!(!parse("cn").has_options());
        assert_eq!(parse("cn").options().count(), 0);
    }

    #[test]
    fn order_and_case_do_not_matter() {
        assert_eq!(parse("CN;x-b;x-a"), parse("cn;X-A;x-b;x-a"));
        assert_ne!(parse("cn;x-a"), parse("cn"));
        assert_ne!(parse("cn"), parse("sn"));
    }

    #[test]
    fn supersets_of_options_are_subtypes() {
        assert!(parse("cn;lang-de;x-a").options_cover(&parse("name;LANG-de")));
        assert!(!parse("cn;x-a").options_cover(&parse("name;lang-de")));
        assert!(parse("cn;lang-en-US").options_cover(&parse("cn;lang-en-")));
        assert!(parse("cn;lang-en").options_cover(&parse("cn;lang-en-")));
        assert!(!parse("cn;lang-enx").options_cover(&parse("cn;lang-en-")));
        assert!(parse("cn;lang-de").options_cover(&parse("cn;lang-")));
        assert!(!parse("cn").options_cover(&parse("cn;lang-")));
    }

    #[test]
    fn what_is_no_description_is_refused() {
        use AttributeDescriptionError::*;
        let error = |text: &str| AttributeDescription::parse(text).unwrap_err();
        for text in [
            "", "1", "1.", ".1", "1.02", "1..2", "-cn", "c n", "cn=", "cné", ";x", "*", "@person",
        ] {
            assert_eq!(error(text), BadType, "{text:?}");
        }
        for text in ["cn;", "cn;;x", "cn;a b", "cn;a_b"] {
            assert_eq!(error(text), BadOption, "{text:?}");
        }
        assert_eq!(error(&"a".repeat(1025)), TooLong);
        assert_eq!(error(&format!("cn{}", ";a".repeat(33))), TooManyOptions);
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn no_text_panics_and_parts_make_the_whole(text in "[a-c0-2.;-]{0,20}|\\PC{0,40}") {
            if let Ok(description) = AttributeDescription::parse(&text) {
                let parts: Vec<_> = std::iter::once(description.attribute_type()).chain(description.options()).collect();
                prop_assert_eq!(parts.join(";"), text.as_str());
                prop_assert!(description.options_cover(&description));
            }
        }
    }
}
