//! Values that tokens of one-time passwords are made of: no bytes are too odd to be read, and nothing that was used is
//! accepted.

#![no_main]

use libfuzzer_sys::fuzz_target;
use sapwood_directory::read_token_values;
use sapwood_server::password::use_one_time_passwords;

fuzz_target!(|bytes: &[u8]| {
    if let Some(token) = read_token_values(bytes) {
        use_one_time_passwords(&token);
    }
});
