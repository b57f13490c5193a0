//! Verify Credentials (OpenLDAP's contrib/slapd-modules/vc): whether a bind would succeed, on a connection that stays
//! bound as it is.
//!
//! ```text
//! VCRequest ::= SEQUENCE {
//!     cookie         [0] OCTET STRING OPTIONAL,
//!     name           LDAPDN,
//!     authentication AuthenticationChoice,
//!     controls       [2] Controls OPTIONAL }
//!
//! VCResponse ::= SEQUENCE {
//!     resultCode        INTEGER,
//!     diagnosticMessage LDAPString,
//!     cookie            [0] OCTET STRING OPTIONAL,
//!     serverSaslCreds   [1] OCTET STRING OPTIONAL,
//!     controls          [2] Controls OPTIONAL }
//! ```
//!
//! Cookies and server credentials are for SASL, whose mechanisms take several requests.

use crate::ber;
use crate::controls::{Controls, sequence};
use crate::error::PartError;
use crate::message::Authentication;
use crate::result_code::ResultCode;

/// Its OID.
pub const VERIFY_CREDENTIALS: &str = "1.3.6.1.4.1.4203.666.6.5";

const COOKIE: u8 = ber::context(0);
const CONTROLS: u8 = ber::context_constructed(2);

/// The request value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VerifyCredentials<'a> {
    /// Whose credentials, as in a bind.
    pub name: &'a str,
    /// What they are.
    pub authentication: Authentication<'a>,
    /// What a bind with them would carry.
    pub controls: Controls<'a>,
}

impl<'a> VerifyCredentials<'a> {
    /// Reads a request value.
    ///
    /// # Errors
    /// When it is not of that form.
    pub fn decode(value: &'a [u8]) -> Result<Self, PartError> {
        let mut reader = sequence(value, "VCRequest")?;
        reader.optional(COOKIE, "cookie")?;
        let name = reader.octets("name")?;
        let authentication = Authentication::decode(&mut reader)?;
        let controls = match reader.optional(CONTROLS, "controls")? {
            Some(content) => Controls::from_ber(content)?,
            None => Controls::EMPTY,
        };
        reader.skip_extensions()?;
        Ok(VerifyCredentials {
            name: ber::utf8(name, "name")?,
            authentication,
            controls,
        })
    }

    /// Appends the request value.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let element = ber::open(out, ber::SEQUENCE, 0);
        ber::put_octets(out, ber::OCTET_STRING, self.name.as_bytes());
        self.authentication.encode(out);
        if !self.controls.is_empty() {
            ber::put_octets(out, CONTROLS, self.controls.as_ber());
        }
        ber::close(out, element);
    }
}

/// Appends a response value: what a bind would have been answered.
pub fn put_verified(out: &mut Vec<u8>, code: ResultCode, diagnostic: &str, controls: Controls<'_>) {
    let element = ber::open(out, ber::SEQUENCE, 0);
    ber::put_integer(out, ber::INTEGER, i64::from(code.code()));
    ber::put_octets(out, ber::OCTET_STRING, diagnostic.as_bytes());
    if !controls.is_empty() {
        ber::put_octets(out, CONTROLS, controls.as_ber());
    }
    ber::close(out, element);
}

/// Reads a response value: the result code and the response controls of the bind.
///
/// # Errors
/// When it is not of that form.
pub fn verified(value: &[u8]) -> Result<(i64, Controls<'_>), PartError> {
    let mut reader = sequence(value, "VCResponse")?;
    let code = reader.integer("resultCode")?;
    reader.octets("diagnosticMessage")?;
    let controls = match reader.optional(CONTROLS, "controls")? {
        Some(content) => Controls::from_ber(content)?,
        None => Controls::EMPTY,
    };
    reader.skip_extensions()?;
    Ok((code, controls))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controls::{Control, ControlsBuf, PASSWORD_POLICY};

    #[test]
    fn what_libldap_sends_is_read() {
        let mut controls = ControlsBuf::default();
        controls.push(Control {
            oid: PASSWORD_POLICY,
            critical: false,
            value: None,
        });
        let asked = VerifyCredentials {
            name: "cn=x,dc=y",
            authentication: Authentication::Simple(b"secret"),
            controls: controls.view(),
        };
        let mut value = Vec::new();
        asked.encode(&mut value);
        let sent = b"\x30\x32\x04\x09cn=x,dc=y\x80\x06secret\xa2\x1d\x30\x1b\x04\x191.3.6.1.4.1.42.2.27.8.5.1";
        assert_eq!(value, sent);
        assert_eq!(VerifyCredentials::decode(&value), Ok(asked));
        for end in 0..value.len() {
            assert!(VerifyCredentials::decode(&value[..end]).is_err());
        }
        let with_cookie = b"\x30\x07\x80\x01c\x04\x00\x80\x00";
        assert_eq!(
            VerifyCredentials::decode(with_cookie).map(|read| read.name),
            Ok("")
        );
        let unknown = b"\x30\x04\x04\x00\x81\x00";
        assert!(VerifyCredentials::decode(unknown).is_err());
    }

    #[test]
    fn an_answer_is_read_as_it_was_written() {
        let mut value = Vec::new();
        put_verified(
            &mut value,
            ResultCode::InvalidCredentials,
            "no",
            Controls::EMPTY,
        );
        assert_eq!(value, b"\x30\x07\x02\x01\x31\x04\x02no");
        assert_eq!(verified(&value), Ok((49, Controls::EMPTY)));
    }
}
