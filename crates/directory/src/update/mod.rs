//! Updates: add, delete, modify, modify DN and password change, applied in batches where each succeeds or fails alone.

use crate::access::Identity;
use crate::outcome::Outcome;

/// One update, owning what it needs: it travels from a session to the writer.
#[derive(Clone, Debug)]
pub struct Update {
    /// For whom it is done.
    pub identity: Identity,
    /// What is to be done.
    pub request: UpdateRequest,
}

/// What an update does.
#[derive(Clone, Debug)]
pub enum UpdateRequest {
    /// A whole encoded LDAPMessage with an AddRequest, DelRequest, ModifyRequest or ModifyDNRequest and its controls
    /// (ManageDsaIT is understood; another critical control is refused with `unavailableCriticalExtension`).
    Message(Vec<u8>),
    /// Password Modify (RFC 3062), after the server has checked the old password and found or made the new one.
    SetPassword {
        /// DN of the entry; its userPassword values are replaced.
        dn: String,
        /// The new password in its stored form.
        stored: Vec<u8>,
    },
}

/// What became of a batch.
#[derive(Debug)]
pub struct Applied<T> {
    /// One for each update, in order. A success may be told to the client only once the ticket is durable.
    pub outcomes: Vec<Outcome>,
    /// The one commit; `None` when no update changed anything.
    pub ticket: Option<T>,
}
