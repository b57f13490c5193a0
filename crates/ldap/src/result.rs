//! Result codes and the LDAPResult that ends an operation (RFC 4511 §4.1.9).

use std::borrow::Cow;

use crate::ber;
use crate::dn::Dn;
use crate::error::PartError;
use crate::list::OctetStrings;
use crate::message::{checked_list, utf8};

macro_rules! result_codes {
    ($($(#[$doc:meta])* $variant:ident = $code:literal, $name:literal;)*) => {
        /// How an operation ended (RFC 4511 appendix A and the registry of RFC 4520 §3.8).
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum ResultCode {
            $($(#[$doc])* $variant,)*
            /// A code that is not in this list.
            Other(u32),
        }

        impl ResultCode {
            /// The number on the wire.
            pub const fn code(self) -> u32 {
                match self {
                    $(ResultCode::$variant => $code,)*
                    ResultCode::Other(code) => code,
                }
            }

            /// The name in RFC 4511, `other` for a number that is not in this list.
            pub const fn name(self) -> &'static str {
                match self {
                    $(ResultCode::$variant => $name,)*
                    ResultCode::Other(_) => "other",
                }
            }
        }

        impl From<u32> for ResultCode {
            fn from(code: u32) -> Self {
                match code {
                    $($code => ResultCode::$variant,)*
                    code => ResultCode::Other(code),
                }
            }
        }
    };
}

result_codes! {
    /// Done.
    Success = 0, "success";
    /// The operation is not properly sequenced with others.
    OperationsError = 1, "operationsError";
    /// The message breaks the protocol.
    ProtocolError = 2, "protocolError";
    /// The time limit ended the operation.
    TimeLimitExceeded = 3, "timeLimitExceeded";
    /// The size limit ended the operation.
    SizeLimitExceeded = 4, "sizeLimitExceeded";
    /// Compare: the assertion is false or undefined.
    CompareFalse = 5, "compareFalse";
    /// Compare: the assertion is true.
    CompareTrue = 6, "compareTrue";
    /// The authentication method or mechanism is not supported.
    AuthMethodNotSupported = 7, "authMethodNotSupported";
    /// Strong(er) authentication is required.
    StrongerAuthRequired = 8, "strongerAuthRequired";
    /// Other servers may be able to do it.
    Referral = 10, "referral";
    /// A limit set by the administrator was exceeded.
    AdminLimitExceeded = 11, "adminLimitExceeded";
    /// A critical control is not recognised or not fit for the operation.
    UnavailableCriticalExtension = 12, "unavailableCriticalExtension";
    /// The operation needs a confidential session.
    ConfidentialityRequired = 13, "confidentialityRequired";
    /// SASL: one more round is needed.
    SaslBindInProgress = 14, "saslBindInProgress";
    /// The entry does not have the attribute or the value.
    NoSuchAttribute = 16, "noSuchAttribute";
    /// The attribute description is not known.
    UndefinedAttributeType = 17, "undefinedAttributeType";
    /// The matching rule does not fit the attribute.
    InappropriateMatching = 18, "inappropriateMatching";
    /// A constraint on values is broken.
    ConstraintViolation = 19, "constraintViolation";
    /// The attribute or value is already there.
    AttributeOrValueExists = 20, "attributeOrValueExists";
    /// A value does not follow the attribute's syntax.
    InvalidAttributeSyntax = 21, "invalidAttributeSyntax";
    /// The entry does not exist.
    NoSuchObject = 32, "noSuchObject";
    /// An alias was met that cannot be followed.
    AliasProblem = 33, "aliasProblem";
    /// A DN does not follow its syntax.
    InvalidDnSyntax = 34, "invalidDNSyntax";
    /// An alias was met where dereferencing is not allowed.
    AliasDereferencingProblem = 36, "aliasDereferencingProblem";
    /// Anonymous where a name is needed, or the like.
    InappropriateAuthentication = 48, "inappropriateAuthentication";
    /// The name or the password is wrong.
    InvalidCredentials = 49, "invalidCredentials";
    /// Not allowed.
    InsufficientAccessRights = 50, "insufficientAccessRights";
    /// Too busy.
    Busy = 51, "busy";
    /// Shutting down or offline.
    Unavailable = 52, "unavailable";
    /// The server is unwilling.
    UnwillingToPerform = 53, "unwillingToPerform";
    /// A loop was found.
    LoopDetect = 54, "loopDetect";
    /// The entry's name breaks a structure rule.
    NamingViolation = 64, "namingViolation";
    /// The entry breaks its object classes.
    ObjectClassViolation = 65, "objectClassViolation";
    /// The operation is not allowed on an entry with children.
    NotAllowedOnNonLeaf = 66, "notAllowedOnNonLeaf";
    /// The operation would take away a value of the RDN.
    NotAllowedOnRdn = 67, "notAllowedOnRDN";
    /// The entry exists already.
    EntryAlreadyExists = 68, "entryAlreadyExists";
    /// The structural object class may not change.
    ObjectClassModsProhibited = 69, "objectClassModsProhibited";
    /// The operation would touch several servers.
    AffectsMultipleDsas = 71, "affectsMultipleDSAs";
    /// Anything else.
    UnknownError = 80, "other";
    /// The operation was cancelled (RFC 3909).
    Canceled = 118, "canceled";
    /// There is no such operation to cancel (RFC 3909).
    NoSuchOperation = 119, "noSuchOperation";
    /// It is too late to cancel (RFC 3909).
    TooLate = 120, "tooLate";
    /// The operation cannot be cancelled (RFC 3909).
    CannotCancel = 121, "cannotCancel";
    /// The assertion control's filter is false (RFC 4528).
    AssertionFailed = 122, "assertionFailed";
    /// The proxied authorization was refused (RFC 4370).
    AuthorizationDenied = 123, "authorizationDenied";
    /// A content synchronisation must start over (RFC 4533).
    SyncRefreshRequired = 4096, "e-syncRefreshRequired";
}

impl ResultCode {
    /// Whether it is the ordinary end of an operation that was done: success, the two of compare, a SASL round.
    pub const fn is_success(self) -> bool {
        matches!(
            self,
            ResultCode::Success
                | ResultCode::CompareFalse
                | ResultCode::CompareTrue
                | ResultCode::SaslBindInProgress
        )
    }
}

impl std::fmt::Display for ResultCode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ({})", self.name(), self.code())
    }
}

/// Most bytes of a diagnostic message and of a matchedDN that are sent. Both may echo what came in a request.
pub const RESULT_TEXT_BYTES_MAX: usize = 1024;

/// What stands for the end of a text that was too long.
const ELLIPSIS: &str = "...";

/// A text for people, cut at a character, and marked so, when it is longer than [`RESULT_TEXT_BYTES_MAX`].
#[must_use]
#[inline]
pub fn shortened(text: &str) -> Cow<'_, str> {
    shortened_to(text, RESULT_TEXT_BYTES_MAX)
}

/// The same for a text of more than `bytes_max` bytes.
#[must_use]
#[inline]
pub fn shortened_to(text: &str, bytes_max: usize) -> Cow<'_, str> {
    match text.len() <= bytes_max {
        true => Cow::Borrowed(text),
        false => Cow::Owned(beginning(text, bytes_max)),
    }
}

#[cold]
fn beginning(text: &str, bytes_max: usize) -> String {
    let end = text.floor_char_boundary(bytes_max.saturating_sub(ELLIPSIS.len()));
    format!("{}{ELLIPSIS}", &text[..end])
}

/// A DN, or the nearest superior of it that is not longer than `bytes_max`: a DN that was cut would name nothing.
#[must_use]
#[inline]
pub fn near_superior(dn: &str, bytes_max: usize) -> &str {
    match dn.len() <= bytes_max {
        true => dn,
        false => nearest_short_superior(dn, bytes_max),
    }
}

#[cold]
fn nearest_short_superior(dn: &str, bytes_max: usize) -> &str {
    let Ok(parsed) = Dn::parse(dn) else {
        return "";
    };
    std::iter::successors(Some(parsed), |dn| dn.parent())
        .map(Dn::as_str)
        .find(|superior| superior.len() <= bytes_max)
        .unwrap_or_default()
}

/// LDAPResult (RFC 4511 §4.1.9). What is longer than [`RESULT_TEXT_BYTES_MAX`] is sent in part: of a diagnostic message
/// its beginning, of a matchedDN the nearest superior that is short enough.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LdapResult<'a> {
    /// How it ended.
    pub code: ResultCode,
    /// The deepest existing superior, where the code calls for it; else empty.
    pub matched_dn: &'a str,
    /// For people.
    pub diagnostic: &'a str,
    /// Other servers to ask, only with [`ResultCode::Referral`]; `None` is different from an empty list.
    pub referral: Option<OctetStrings<'a>>,
}

impl<'a> LdapResult<'a> {
    /// Plain success.
    pub const SUCCESS: LdapResult<'static> = LdapResult::new(ResultCode::Success, "");

    /// A result with a code and a diagnostic.
    pub const fn new(code: ResultCode, diagnostic: &'a str) -> Self {
        LdapResult {
            code,
            matched_dn: "",
            diagnostic,
            referral: None,
        }
    }

    /// The same with a matchedDN.
    pub const fn matched(self, matched_dn: &'a str) -> Self {
        LdapResult { matched_dn, ..self }
    }

    pub(crate) fn decode(reader: &mut ber::Reader<'a>) -> Result<Self, PartError> {
        const REFERRAL: u8 = ber::context_constructed(3);
        let code = reader.enumerated("resultCode")?;
        let code = u32::try_from(code).map_err(|_| crate::error::Violation::OutOfRange {
            field: "resultCode",
        })?;
        let matched_dn = utf8(reader.octets("matchedDN")?, "matchedDN")?;
        let diagnostic = utf8(reader.octets("diagnosticMessage")?, "diagnosticMessage")?;
        let referral = match reader.optional(REFERRAL, "referral")? {
            Some(uris) => Some(checked_list(uris, "referral")?),
            None => None,
        };
        Ok(LdapResult {
            code: code.into(),
            matched_dn,
            diagnostic,
            referral,
        })
    }

    /// Octets of its components.
    pub(crate) fn content_len(&self) -> usize {
        2 + ber::integer_len(i64::from(self.code.code()))
            + ber::element_len(near_superior(self.matched_dn, RESULT_TEXT_BYTES_MAX).len())
            + ber::element_len(shortened(self.diagnostic).len())
            + self
                .referral
                .map_or(0, |uris| ber::element_len(uris.as_ber().len()))
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        ber::put_integer(out, ber::ENUMERATED, i64::from(self.code.code()));
        ber::put_octets(
            out,
            ber::OCTET_STRING,
            near_superior(self.matched_dn, RESULT_TEXT_BYTES_MAX).as_bytes(),
        );
        ber::put_octets(
            out,
            ber::OCTET_STRING,
            shortened(self.diagnostic).as_bytes(),
        );
        if let Some(uris) = self.referral {
            ber::put_octets(out, ber::context_constructed(3), uris.as_ber());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(result: &LdapResult<'_>) -> Vec<u8> {
        let mut out = Vec::new();
        result.encode(&mut out);
        assert_eq!(out.len(), result.content_len());
        out
    }

    #[test]
    fn what_is_echoed_is_bounded() {
        let long = "é".repeat(1 << 20);
        let dn = format!(
            "cn={},ou=near,dc=example",
            "x".repeat(RESULT_TEXT_BYTES_MAX)
        );
        let out = sent(&LdapResult::new(ResultCode::NoSuchObject, &long).matched(&dn));
        let result = LdapResult::decode(&mut ber::Reader::new(&out)).unwrap();
        assert_eq!(result.matched_dn, "ou=near,dc=example");
        assert!(result.diagnostic.len() <= RESULT_TEXT_BYTES_MAX);
        assert!(result.diagnostic.starts_with('é') && result.diagnostic.ends_with("é..."));

        let exact = "x".repeat(RESULT_TEXT_BYTES_MAX);
        let out = sent(&LdapResult::new(ResultCode::Success, &exact).matched(&long));
        let result = LdapResult::decode(&mut ber::Reader::new(&out)).unwrap();
        assert_eq!((result.matched_dn, result.diagnostic), ("", exact.as_str()));
    }
}
