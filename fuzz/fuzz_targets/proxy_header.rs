//! Headers of the PROXY protocol: whatever comes, no more is asked for than a header may have, and what is one stays it
//! when more comes behind it.

#![no_main]

use libfuzzer_sys::fuzz_target;
use sapwood_server::proxy_protocol::{HEADER_BYTES_MAX, Header, Network};

fuzz_target!(|bytes: &[u8]| {
    match Header::read(bytes) {
        Ok(Header::Needs(length)) => assert!(bytes.len() < length && length <= HEADER_BYTES_MAX),
        Ok(Header::Whole { length, client }) => {
            assert!(length <= bytes.len().min(HEADER_BYTES_MAX));
            let alone = Header::read(&bytes[..length]);
            assert_eq!(alone, Ok(Header::Whole { length, client }));
        }
        // What follows mends nothing.
        Err(_) => assert!(Header::read(&[bytes, b"\r\n"].concat()).is_err()),
    }
    let network = std::str::from_utf8(bytes).map(str::parse::<Network>);
    if let Ok(Ok(network)) = network {
        assert_eq!(network.to_string().parse(), Ok(network));
    }
});
