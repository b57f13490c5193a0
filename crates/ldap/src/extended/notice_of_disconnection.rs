//! Notice of Disconnection (RFC 4511 §4.4.1): an unsolicited response with message ID zero, without a value.

/// The name of the response.
pub const NOTICE_OF_DISCONNECTION: &str = "1.3.6.1.4.1.1466.20036";
