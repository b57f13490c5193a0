//! The values of the subschema subentry (RFC 4512 §4.2), as clients discover them.

use std::collections::BTreeMap;

use super::{MatchingRule, Schema, Syntax};

impl Schema {
    /// The values of attributeTypes.
    pub fn attribute_type_values(&self) -> impl Iterator<Item = String> {
        let types = self.attribute_types().iter();
        types
            .filter(|known| !known.is_gone())
            .map(|known| known.definition.to_string())
    }

    /// The values of objectClasses.
    pub fn object_class_values(&self) -> impl Iterator<Item = String> {
        let classes = self.object_classes().iter();
        classes
            .filter(|known| !known.is_gone())
            .map(|known| known.definition.to_string())
    }

    /// The values of matchingRules.
    pub fn matching_rule_values(&self) -> impl Iterator<Item = String> {
        MatchingRule::all().iter().map(|rule| {
            format!(
                "( {} NAME '{}' SYNTAX {} )",
                rule.oid(),
                rule.name(),
                rule.syntax().oid()
            )
        })
    }

    /// The values of matchingRuleUse: each rule with the types for whose syntax it can be used in an extensible match.
    pub fn matching_rule_use_values(&self) -> impl Iterator<Item = String> {
        let mut by_syntax: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        let mut by_rule: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for known in self.attribute_types() {
            if let Some(syntax) = known.syntax() {
                by_syntax
                    .entry(syntax.oid())
                    .or_default()
                    .push(known.name());
            }
            for rule in [known.equality(), known.ordering(), known.substrings()]
                .into_iter()
                .flatten()
            {
                by_rule.entry(rule.oid()).or_default().push(known.name());
            }
        }
        MatchingRule::all().iter().filter_map(move |rule| {
            let mut names = by_rule.get(rule.oid()).cloned().unwrap_or_default();
            names.extend(by_syntax.get(rule.syntax().oid()).into_iter().flatten());
            names.sort_unstable();
            names.dedup();
            let applies = match names.as_slice() {
                [] => return None,
                [only] => (*only).to_owned(),
                several => format!("( {} )", several.join(" $ ")),
            };
            Some(format!(
                "( {} NAME '{}' APPLIES {applies} )",
                rule.oid(),
                rule.name()
            ))
        })
    }

    /// The values of ldapSyntaxes.
    pub fn syntax_values(&self) -> impl Iterator<Item = String> {
        Syntax::all().iter().map(|syntax| {
            let marks = match (syntax.requires_binary_transfer(), syntax.is_binary()) {
                (true, _) => " X-BINARY-TRANSFER-REQUIRED 'TRUE' X-NOT-HUMAN-READABLE 'TRUE'",
                (false, true) => " X-NOT-HUMAN-READABLE 'TRUE'",
                (false, false) => "",
            };
            format!(
                "( {} DESC '{}'{marks} )",
                syntax.oid(),
                syntax.description()
            )
        })
    }
}
