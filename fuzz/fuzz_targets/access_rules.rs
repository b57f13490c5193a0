//! Access rules as text: what is accepted prints as text that means the same.

#![no_main]

use libfuzzer_sys::fuzz_target;
use sapwood_directory::access::{Rule, parse_rules};

fuzz_target!(|text: &str| {
    for (_, rule) in parse_rules(text).unwrap_or_default() {
        assert_eq!(rule.to_string().parse::<Rule>().unwrap(), rule);
    }
});
