//! Whom names stand for: the first line is a value of olcAuthzRegexp, the rest a name. To make an expression ready takes
//! some milliseconds here, so that this is a target of its own.

#![no_main]

use libfuzzer_sys::fuzz_target;
use sapwood_directory::Settings;
use sapwood_directory::access::AuthzRegexp;

fuzz_target!(|text: &str| {
    let (value, name) = text.split_once('\n').unwrap_or((text, text));
    if let Ok(regexp) = value.parse::<AuthzRegexp>() {
        assert_eq!(regexp.to_string(), value);
        let settings = Settings {
            authz_regexps: vec![regexp],
            ..Settings::default()
        };
        let _ = settings.mapped(name);
    }
});
