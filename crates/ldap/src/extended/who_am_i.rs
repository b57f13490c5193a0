//! Who am I? (RFC 4532). The request has no value; the response's value is the authzId itself.

/// Its OID.
pub const WHO_AM_I: &str = "1.3.6.1.4.1.4203.1.11.3";
