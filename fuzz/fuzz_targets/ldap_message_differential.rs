//! Where `ldap-parser` accepts a message as well, it reads the same in it.

#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../crates/ldap/tests/model/mod.rs"]
mod model;

fuzz_target!(|bytes: &[u8]| model::agree_if_both_accept(bytes));
