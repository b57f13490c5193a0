//! Cookies of consumers: what is accepted reads the same when written again.

#![no_main]

use libfuzzer_sys::fuzz_target;
use sapwood_replication::{COOKIE_BYTES_MAX, Cookie};

fuzz_target!(|bytes: &[u8]| {
    let Ok(cookie) = Cookie::parse(bytes) else {
        return;
    };
    let text = cookie.to_string();
    assert!(text.len() <= COOKIE_BYTES_MAX);
    assert_eq!(Cookie::parse(text.as_bytes()), Ok(cookie));
});
