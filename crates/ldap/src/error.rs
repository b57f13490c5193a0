//! Why bytes from a peer were refused. All of it is plain data: comparable, and nothing is allocated to report it.

use crate::limits::{
    ATTRIBUTES_MAX, CONTROLS_MAX, FILTER_BYTES_MAX, FILTER_DEPTH_MAX, FILTER_ELEMENTS_MAX,
};
use crate::operation::Operation;
use crate::result_code::ResultCode;

/// Bytes that are not the BER of an LDAP message.
///
/// RFC 4511 §4.1.1: who receives such a message sends the Notice of Disconnection with `protocolError` and closes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Malformed {
    /// An element reaches beyond the end of what holds it.
    #[error("{field} is longer than what holds it")]
    Truncated {
        /// The field of RFC 4511 that was being read.
        field: &'static str,
    },
    /// Nothing is left where a field is required.
    #[error("{field} is missing")]
    Missing {
        /// The field of RFC 4511 that was being read.
        field: &'static str,
    },
    /// Another tag than the one required.
    #[error("{field} has tag {found:#04x} in place of {expected:#04x}")]
    Tag {
        /// The field of RFC 4511 that was being read.
        field: &'static str,
        /// The tag RFC 4511 gives it.
        expected: u8,
        /// The tag that is there.
        found: u8,
    },
    /// An indefinite length (RFC 4511 §5.1 forbids it).
    #[error("an indefinite length is not allowed in LDAP")]
    IndefiniteLength,
    /// A length written in more than [`LENGTH_OCTETS_MAX`](crate::ber::LENGTH_OCTETS_MAX) octets.
    #[error("a length has too many octets")]
    LengthOctets,
    /// A tag number of 31 or more; LDAP has none.
    #[error("a tag number above 30 is not used in LDAP")]
    TagNumber,
    /// A number that is empty or has more than 64 bits.
    #[error("{field} is not a number of at most 64 bits")]
    Integer {
        /// The field of RFC 4511 that was being read.
        field: &'static str,
    },
    /// A truth value that is not one octet.
    #[error("{field} is not a BOOLEAN of one octet")]
    Boolean {
        /// The field of RFC 4511 that was being read.
        field: &'static str,
    },
    /// A message that is larger than the limit the reader was given.
    #[error("a message of {bytes} bytes is larger than the limit of {bytes_max}")]
    TooLarge {
        /// Bytes of the whole message.
        bytes: u64,
        /// The limit.
        bytes_max: usize,
    },
    /// Bytes after the end of the message.
    #[error("there are bytes after the end of the message")]
    Trailing,
    /// A message ID outside of 0..=2147483647, or zero in a request (RFC 4511 §4.1.1.1).
    #[error("the message ID is out of range")]
    MessageId,
    /// An operation that is no request (or no response, for a client).
    #[error("tag {tag:#04x} is no operation that may be sent in this direction")]
    Operation {
        /// The tag of the protocolOp.
        tag: u8,
    },
}

/// A well-formed message that asks for something LDAP or a limit does not allow; the session goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Violation {
    /// A DN that is not UTF-8.
    #[error("the DN is not UTF-8")]
    DnNotUtf8,
    /// Another string that must be UTF-8 (RFC 4511 §4.1.2) and is not.
    #[error("{field} is not UTF-8")]
    NotUtf8 {
        /// The field of RFC 4511.
        field: &'static str,
    },
    /// A number outside of the range RFC 4511 gives it.
    #[error("{field} is out of range")]
    OutOfRange {
        /// The field of RFC 4511.
        field: &'static str,
    },
    /// Neither simple nor SASL.
    #[error("the authentication choice is not known")]
    AuthenticationChoice,
    /// More nested than [`FILTER_DEPTH_MAX`].
    #[error("the filter is nested deeper than {FILTER_DEPTH_MAX}")]
    FilterDepth,
    /// More components than [`FILTER_ELEMENTS_MAX`].
    #[error("the filter has more than {FILTER_ELEMENTS_MAX} components")]
    FilterElements,
    /// Longer than [`FILTER_BYTES_MAX`].
    #[error("the filter is longer than {FILTER_BYTES_MAX} bytes")]
    FilterBytes,
    /// A substrings filter that is empty, or whose initial is not first, or whose final is not last.
    #[error("the parts of a substrings filter are not in the order initial, any, final")]
    FilterSubstrings,
    /// An extensible match with neither matching rule nor attribute (RFC 4511 §4.5.1.7.7).
    #[error("an extensible match names neither a matching rule nor an attribute")]
    FilterExtensible,
    /// More attributes than [`ATTRIBUTES_MAX`].
    #[error("the message lists more than {ATTRIBUTES_MAX} attributes")]
    Attributes,
    /// An attribute that must have values and has none (RFC 4511 §4.1.7, §4.6).
    #[error("an attribute is given without values")]
    NoValues,
    /// More controls than [`CONTROLS_MAX`].
    #[error("the message has more than {CONTROLS_MAX} controls")]
    Controls,
}

impl Violation {
    /// The result code to answer with.
    pub const fn code(self) -> ResultCode {
        match self {
            Violation::DnNotUtf8 => ResultCode::InvalidDnSyntax,
            Violation::AuthenticationChoice => ResultCode::AuthMethodNotSupported,
            Violation::FilterElements
            | Violation::FilterBytes
            | Violation::Attributes
            | Violation::Controls => ResultCode::AdminLimitExceeded,
            _ => ResultCode::ProtocolError,
        }
    }
}

/// Why a message was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// The session cannot go on: Notice of Disconnection, then close.
    #[error(transparent)]
    Malformed(#[from] Malformed),
    /// The operation is refused and answered, the session goes on.
    #[error("{violation}")]
    Refused {
        /// The message ID to answer to.
        id: u32,
        /// The operation that was asked for: says which response to send, if any. For a client, the response's own
        /// kind.
        operation: Operation,
        /// What is wrong; its `Display` is the diagnostic message, its [`code`](Violation::code) the result code.
        violation: Violation,
    },
}

/// Why a part of a message (a filter, a control value, an extended value) was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PartError {
    /// Not the BER it should be.
    #[error(transparent)]
    Malformed(#[from] Malformed),
    /// Well-formed but not allowed.
    #[error(transparent)]
    Violation(#[from] Violation),
}
