//! String preparation (RFC 4518).

/// Version of everything that shapes normal forms: this module's rules and the Unicode tables beneath it. An index or
/// name table written under another version is rebuilt.
pub const PREPARATION_VERSION: u32 = 1 << 24
    | (char::UNICODE_VERSION.0 as u32) << 16
    | (char::UNICODE_VERSION.1 as u32) << 8
    | unicode_normalization::UNICODE_VERSION.0 as u32;
