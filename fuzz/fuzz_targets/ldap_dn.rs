//! Distinguished names: walked from both ends they are the same, and written anew each value is the same.

#![no_main]

use libfuzzer_sys::fuzz_target;
use sapwood_ldap::dn::{Dn, Rdn, write_ava};

fuzz_target!(|bytes: &[u8]| {
    let Ok(dn) = Dn::from_bytes(bytes) else {
        return;
    };
    let forwards: Vec<Rdn<'_>> = dn.rdns().collect();
    let mut backwards: Vec<Rdn<'_>> = dn.rdns().rev().collect();
    backwards.reverse();
    assert_eq!(forwards, backwards);
    for ava in forwards.iter().flat_map(|rdn| rdn.avas()) {
        let mut written = String::new();
        write_ava(&mut written, ava.attribute(), &ava.value());
        let reread = Rdn::parse(&written).unwrap().avas().next().unwrap();
        assert_eq!(reread.value(), ava.value());
    }
    let mut next = Some(dn);
    while let Some(dn) = next {
        assert_eq!(Dn::parse(dn.as_str()), Ok(dn));
        next = dn.parent();
    }
});
