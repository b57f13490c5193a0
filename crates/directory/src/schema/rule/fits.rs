//! Which rules may be applied to values of which types.

use super::MatchingRule;
use crate::schema::AttributeType;

const DIRECTORY_STRING: &str = "1.3.6.1.4.1.1466.115.121.1.15";

/// Printable String, Country String, Telephone Number: what rules for Directory String are for as well (RFC 4517
/// §4.2.4, §4.2.11).
const DIRECTORY_STRINGS: [&str; 3] = [
    "1.3.6.1.4.1.1466.115.121.1.44",
    "1.3.6.1.4.1.1466.115.121.1.11",
    "1.3.6.1.4.1.1466.115.121.1.50",
];

impl MatchingRule {
    /// Whether it may be applied to values of a type: it is one of the type's own rules, or takes the same syntax as
    /// one of them (RFC 4512 §4.1.4).
    pub(crate) fn fits(&self, attribute_type: &AttributeType) -> bool {
        self.is_of(attribute_type)
            || attribute_type.syntax().is_some_and(|syntax| {
                syntax.oid() == self.syntax().oid()
                    || (self.syntax().oid() == DIRECTORY_STRING
                        && self.is_textual()
                        && DIRECTORY_STRINGS.contains(&syntax.oid()))
            })
            || [attribute_type.equality(), attribute_type.substrings()]
                .into_iter()
                .flatten()
                .any(|own| {
                    own.syntax().oid() == self.syntax().oid()
                        && own.is_textual() == self.is_textual()
                })
    }

    fn is_of(&self, attribute_type: &AttributeType) -> bool {
        [
            attribute_type.equality(),
            attribute_type.ordering(),
            attribute_type.substrings(),
        ]
        .into_iter()
        .flatten()
        .any(|own| own.oid() == self.oid())
    }
}
