//! Password Modify (RFC 3062).

use crate::ber;
use crate::controls::sequence;
use crate::error::PartError;

/// Its OID.
pub const PASSWORD_MODIFY: &str = "1.3.6.1.4.1.4203.1.11.1";

/// The request value of Password Modify; its `Debug` keeps the passwords to itself.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct PasswordModify<'a> {
    /// Whose password; the session's own user if absent.
    pub user_identity: Option<&'a [u8]>,
    /// The current password.
    pub old_password: Option<&'a [u8]>,
    /// The new password; if absent, the server makes one.
    pub new_password: Option<&'a [u8]>,
}

const USER_IDENTITY: u8 = ber::context(0);
const OLD_PASSWORD: u8 = ber::context(1);
const NEW_PASSWORD: u8 = ber::context(2);
const GENERATED_PASSWORD: u8 = ber::context(0);

impl<'a> PasswordModify<'a> {
    /// Reads a request value; an absent one means that no field is there.
    pub fn decode(value: Option<&'a [u8]>) -> Result<Self, PartError> {
        let Some(value) = value else {
            return Ok(PasswordModify::default());
        };
        let mut reader = sequence(value, "PasswdModifyRequestValue")?;
        let user_identity = reader.optional(USER_IDENTITY, "userIdentity")?;
        let old_password = reader.optional(OLD_PASSWORD, "oldPasswd")?;
        let new_password = reader.optional(NEW_PASSWORD, "newPasswd")?;
        reader.skip_extensions()?;
        Ok(PasswordModify {
            user_identity,
            old_password,
            new_password,
        })
    }

    /// Appends the request value.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let element = ber::open(out, ber::SEQUENCE, 0);
        let fields = [
            (USER_IDENTITY, self.user_identity),
            (OLD_PASSWORD, self.old_password),
            (NEW_PASSWORD, self.new_password),
        ];
        for (tag, field) in fields {
            if let Some(octets) = field {
                ber::put_octets(out, tag, octets);
            }
        }
        ber::close(out, element);
    }
}

impl std::fmt::Debug for PasswordModify<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let identity = self
            .user_identity
            .map(|octets| octets.escape_ascii().to_string());
        f.debug_struct("PasswordModify")
            .field("user_identity", &identity)
            .finish_non_exhaustive()
    }
}

/// Reads the response value of Password Modify: the password the server has made, if it made one.
pub fn generated_password(value: &[u8]) -> Result<Option<&[u8]>, PartError> {
    let mut reader = sequence(value, "PasswdModifyResponseValue")?;
    let password = reader.optional(GENERATED_PASSWORD, "genPasswd")?;
    reader.skip_extensions()?;
    Ok(password)
}

/// Appends the response value of Password Modify for a password that the server has made. A server that made none
/// sends no value at all.
pub fn put_generated_password(out: &mut Vec<u8>, password: &[u8]) {
    ber::put_header(out, ber::SEQUENCE, ber::element_len(password.len()));
    ber::put_octets(out, GENERATED_PASSWORD, password);
}
