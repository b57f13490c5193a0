//! StartTLS (RFC 4511 §4.14). Neither request nor response has a value.

/// Its OID, which is the name of the response, too.
pub const START_TLS: &str = "1.3.6.1.4.1.1466.20037";
