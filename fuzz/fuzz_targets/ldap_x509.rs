//! Certificates: whatever their bytes, the names in them are distinguished names.

#![no_main]

use libfuzzer_sys::fuzz_target;
use sapwood_ldap::dn::Dn;
use sapwood_ldap::x509::{AlternativeName, Certificate};

fuzz_target!(|bytes: &[u8]| {
    let Some(certificate) = Certificate::parse(bytes) else {
        return;
    };
    let _ = (certificate.serial(), certificate.signature_algorithm());
    let mut names = vec![certificate.issuer()];
    names.extend(certificate.subject());
    for name in certificate.alternative_names() {
        if let AlternativeName::Entry(name) = name {
            names.push(name);
        }
    }
    for name in names {
        if let Some(text) = name.to_dn().filter(|text| text.len() < 32 << 10) {
            // A certificate may have more parts than a name has here, or a type without arcs.
            let _ = Dn::parse(&text);
        }
        let _ = name.values_of("2.5.4.3");
    }
});
