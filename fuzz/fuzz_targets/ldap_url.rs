//! LDAP URLs: what is accepted prints as text that reads the same.

#![no_main]

use libfuzzer_sys::fuzz_target;
use sapwood_ldap::url::LdapUrl;

fuzz_target!(|text: &str| {
    if let Ok(url) = LdapUrl::parse(text) {
        assert_eq!(LdapUrl::parse(&url.to_string()), Ok(url));
    }
});
