//! What clients say to SASL mechanisms: no bytes are too odd to be read or refused.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| sapwood_server::read_sasl_messages(bytes));
