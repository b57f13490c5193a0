//! Schema files: each definition that is accepted prints as text that reads the same.

#![no_main]

use libfuzzer_sys::fuzz_target;
use sapwood_ldap::schema::{Definition, Macros, parse_file};

fuzz_target!(|text: &str| {
    let _ = parse_file(text, &mut Macros::default());
    for attribute in [
        "attributeTypes",
        "objectClasses",
        "matchingRules",
        "matchingRuleUse",
        "ldapSyntaxes",
        "dITContentRules",
        "dITStructureRules",
        "nameForms",
    ] {
        if let Some(Ok(definition)) = Definition::parse(attribute, text) {
            assert_eq!(
                Definition::parse(attribute, &definition.to_string()),
                Some(Ok(definition))
            );
        }
    }
});
