//! Access rules as text, and whom names stand for: what is accepted prints as text that means the same.

#![no_main]

use libfuzzer_sys::fuzz_target;
use sapwood_directory::Settings;
use sapwood_directory::access::{AuthzRegexp, Rule, parse_rules};

fuzz_target!(|text: &str| {
    for (_, rule) in parse_rules(text).unwrap_or_default() {
        assert_eq!(rule.to_string().parse::<Rule>().unwrap(), rule);
    }
    if let Ok(regexp) = text.parse::<AuthzRegexp>() {
        assert_eq!(regexp.to_string().parse::<AuthzRegexp>().unwrap(), regexp);
        let settings = Settings {
            authz_regexps: vec![regexp],
            ..Settings::default()
        };
        let _ = settings.mapped(text);
    }
});
