//! Attribute descriptions: what is accepted equals itself and is made of its parts.

#![no_main]

use libfuzzer_sys::fuzz_target;
use sapwood_ldap::attribute::AttributeDescription;

fuzz_target!(|text: &str| {
    let Ok(description) = AttributeDescription::parse(text) else {
        return;
    };
    let parts: Vec<&str> = std::iter::once(description.attribute_type())
        .chain(description.options())
        .collect();
    assert_eq!(parts.join(";"), text);
    assert_eq!(description, description);
    assert!(description.options_cover(&description));
});
