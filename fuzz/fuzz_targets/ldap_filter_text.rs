//! Filters as text: what is accepted prints as text that means the same.

#![no_main]

use libfuzzer_sys::fuzz_target;
use sapwood_ldap::filter_text;

fuzz_target!(|text: &str| {
    if let Ok(filter) = filter_text::parse(text) {
        assert_eq!(filter_text::parse(&filter.to_string()).unwrap(), filter);
    }
});
