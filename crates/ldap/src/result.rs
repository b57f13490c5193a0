//! The LDAPResult that ends an operation (RFC 4511 §4.1.9).

pub use crate::result_code::ResultCode;

use std::borrow::Cow;

use crate::ber::{self, utf8};
use crate::dn::Dn;
use crate::error::{PartError, Violation};
use crate::list::OctetStrings;

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
        let code = u32::try_from(code).map_err(|_| Violation::OutOfRange {
            field: "resultCode",
        })?;
        let matched_dn = utf8(reader.octets("matchedDN")?, "matchedDN")?;
        let diagnostic = utf8(reader.octets("diagnosticMessage")?, "diagnosticMessage")?;
        let referral = match reader.optional(REFERRAL, "referral")? {
            Some(uris) => Some(OctetStrings::bounded(uris, "referral")?),
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
