//! Messages of a provider to a consumer: whatever comes, the consumer goes on or says why not, and asks for nothing
//! twice without having been told more.

#![no_main]

use libfuzzer_sys::fuzz_target;
use sapwood_server::consumer::use_messages;

fuzz_target!(|bytes: &[u8]| use_messages(bytes));
