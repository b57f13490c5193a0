//! How a server joins another one as a copy, Sapwood's own (`docs/reference/protocol-extensions.md`): it redeems an
//! invitation for an account, and is sent all data at disk speed.
//!
//! ```text
//! RedeemInvitation ::= SEQUENCE { name OCTET STRING, secret OCTET STRING, password OCTET STRING }
//! BackupPart       ::= SEQUENCE { file OCTET STRING, offset INTEGER, bytes OCTET STRING }
//! ```
//!
//! The parts of a backup are intermediate responses, whose responseName is the OID of its request.

use crate::ber::{self, utf8};
use crate::controls::sequence;
use crate::error::{PartError, Violation};

/// The requestName with which an invitation is redeemed.
pub const REDEEM_INVITATION: &str = "2.25.133094600596671521037073436520538698644";
/// The requestName with which all data are asked for, and the responseName of their parts.
pub const SEND_BACKUP: &str = "2.25.209540974352338050874846844503720382361";

/// The value of a request that redeems an invitation.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct RedeemInvitation<'a> {
    /// The name of the account.
    pub name: &'a str,
    /// The secret of the invitation.
    pub secret: &'a [u8],
    /// The password that the account gets.
    pub password: &'a [u8],
}

/// Without what is secret.
impl std::fmt::Debug for RedeemInvitation<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "an invitation for {}", self.name)
    }
}

impl<'a> RedeemInvitation<'a> {
    /// Reads a requestValue.
    ///
    /// # Errors
    /// When it is not of its form.
    pub fn decode(value: &'a [u8]) -> Result<Self, PartError> {
        let mut reader = sequence(value, "redeemInvitation")?;
        let name = utf8(reader.octets("name")?, "name")?;
        let secret = reader.octets("secret")?;
        let password = reader.octets("password")?;
        reader.skip_extensions()?;
        Ok(RedeemInvitation {
            name,
            secret,
            password,
        })
    }

    /// Appends the requestValue.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let element = ber::open(out, ber::SEQUENCE, 0);
        ber::put_octets(out, ber::OCTET_STRING, self.name.as_bytes());
        ber::put_octets(out, ber::OCTET_STRING, self.secret);
        ber::put_octets(out, ber::OCTET_STRING, self.password);
        ber::close(out, element);
    }
}

/// A part of a file of a backup.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BackupPart<'a> {
    /// The name of the file.
    pub file: &'a str,
    /// Where the part begins, in bytes.
    pub offset: u64,
    /// What stands there. The last part of a file has nothing: the file ends there. What is in no part is zero.
    pub bytes: &'a [u8],
}

impl<'a> BackupPart<'a> {
    /// Reads a responseValue.
    ///
    /// # Errors
    /// When it is not of its form.
    pub fn decode(value: &'a [u8]) -> Result<Self, PartError> {
        let mut reader = sequence(value, "backupPart")?;
        let file = utf8(reader.octets("file")?, "file")?;
        let offset = reader.integer("offset")?;
        let offset =
            u64::try_from(offset).map_err(|_| Violation::OutOfRange { field: "offset" })?;
        let bytes = reader.octets("bytes")?;
        reader.skip_extensions()?;
        Ok(BackupPart {
            file,
            offset,
            bytes,
        })
    }

    /// Appends the responseValue. An offset is below 2^63.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let element = ber::open(out, ber::SEQUENCE, self.bytes.len());
        ber::put_octets(out, ber::OCTET_STRING, self.file.as_bytes());
        let offset = i64::try_from(self.offset).unwrap_or(i64::MAX);
        ber::put_integer(out, ber::INTEGER, offset);
        ber::put_octets(out, ber::OCTET_STRING, self.bytes);
        ber::close(out, element);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_what_they_were() {
        let mut value = Vec::new();
        let redeem = RedeemInvitation {
            name: "n",
            secret: b"s",
            password: b"p",
        };
        redeem.encode(&mut value);
        assert_eq!(value, b"\x30\x09\x04\x01n\x04\x01s\x04\x01p");
        assert_eq!(RedeemInvitation::decode(&value), Ok(redeem));
        value.clear();
        let part = BackupPart {
            file: "data-0",
            offset: 1 << 40,
            bytes: &[7; 300],
        };
        part.encode(&mut value);
        assert_eq!(BackupPart::decode(&value), Ok(part));
        for refused in [
            &b""[..],
            b"\x30\x00",
            b"\x30\x08\x04\x01f\x02\x01\xff\x04\x00",
        ] {
            assert!(BackupPart::decode(refused).is_err(), "{refused:?}");
            assert!(RedeemInvitation::decode(refused).is_err(), "{refused:?}");
        }
    }
}
