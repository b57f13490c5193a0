//! Extended operations (RFC 4511 §4.12) that are understood: their OIDs and values.

#![deny(clippy::indexing_slicing)]

mod lburp;
mod transaction;

pub use lburp::{
    EndLburp, LburpUpdate, OperationResults, OperationResultsBuf, StartLburp, UpdateOperation,
    UpdateOperations, UpdateOperationsBuf, max_operations, next_sequence_number,
    put_max_operations,
};
pub use transaction::{EndTransaction, TransactionEnded, UpdatesControls, put_transaction_ended};

use crate::ber;
use crate::control::sequence;
use crate::error::{PartError, Violation};
use crate::message::MESSAGE_ID_MAX;

/// StartTLS (RFC 4511 §4.14). Neither request nor response has a value.
pub const START_TLS: &str = "1.3.6.1.4.1.1466.20037";
/// Notice of Disconnection (RFC 4511 §4.4.1), the name of an unsolicited response with message ID zero.
pub const NOTICE_OF_DISCONNECTION: &str = "1.3.6.1.4.1.1466.20036";
/// Password Modify (RFC 3062).
pub const PASSWORD_MODIFY: &str = "1.3.6.1.4.1.4203.1.11.1";
/// Who am I? (RFC 4532). The request has no value, the response's value is the authzId itself.
pub const WHO_AM_I: &str = "1.3.6.1.4.1.4203.1.11.3";
/// Cancel (RFC 3909). The response has no value.
pub const CANCEL: &str = "1.3.6.1.1.8";

/// Start Transaction (RFC 5805 §2.1). The request has no value, the response's value is the transaction's identifier.
pub const START_TRANSACTION: &str = "1.3.6.1.1.21.1";
/// End Transaction (RFC 5805 §2.3): [`EndTransaction`] and [`TransactionEnded`].
pub const END_TRANSACTION: &str = "1.3.6.1.1.21.3";
/// Aborted Transaction Notice (RFC 5805 §2.4), the name of an unsolicited response whose value is the identifier.
pub const ABORTED_TRANSACTION: &str = "1.3.6.1.1.21.4";

/// StartLBURP request (RFC 4373 §5.1): [`StartLburp`].
pub const START_LBURP: &str = "1.3.6.1.1.17.1";
/// StartLBURP response (RFC 4373 §5.2): [`max_operations`].
pub const START_LBURP_RESPONSE: &str = "1.3.6.1.1.17.2";
/// EndLBURP request (RFC 4373 §5.5): [`EndLburp`].
pub const END_LBURP: &str = "1.3.6.1.1.17.3";
/// EndLBURP response (RFC 4373 §5.6). It has no value.
pub const END_LBURP_RESPONSE: &str = "1.3.6.1.1.17.4";
/// LBURPUpdate request (RFC 4373 §5.3): [`LburpUpdate`].
pub const LBURP_UPDATE: &str = "1.3.6.1.1.17.5";
/// LBURPUpdate response (RFC 4373 §5.4): [`OperationResults`].
pub const LBURP_UPDATE_RESPONSE: &str = "1.3.6.1.1.17.6";
/// The incremental update style (RFC 4373 §6), which is a feature of a server besides.
pub const LBURP_INCREMENTAL: &str = "1.3.6.1.1.17.7";

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

/// Reads the request value of Cancel: the message ID of the operation to cancel.
pub fn cancel_id(value: &[u8]) -> Result<u32, PartError> {
    let mut reader = sequence(value, "cancelRequestValue")?;
    let id = reader.integer("cancelID")?;
    reader.skip_extensions()?;
    match u32::try_from(id) {
        Ok(id) if id <= MESSAGE_ID_MAX => Ok(id),
        _ => Err(Violation::OutOfRange { field: "cancelID" }.into()),
    }
}

/// Appends the request value of Cancel.
pub fn put_cancel_id(out: &mut Vec<u8>, id: u32) {
    let id = i64::from(id);
    ber::put_header(out, ber::SEQUENCE, 2 + ber::integer_len(id));
    ber::put_integer(out, ber::INTEGER, id);
}
