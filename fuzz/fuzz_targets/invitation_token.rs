//! Tokens of invitations: what is accepted reads the same when written again.

#![no_main]

use libfuzzer_sys::fuzz_target;
use sapwood_server::invitations::Token;

fuzz_target!(|bytes: &[u8]| {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    if let Ok(token) = text.parse::<Token>() {
        assert_eq!(token.to_string().parse(), Ok(token));
    }
});
