//! The errors of a client.

use std::sync::Arc;

use sapwood_ldap::error::{DecodeError, Malformed};
use sapwood_ldap::result::{LdapResult, ResultCode};
use sapwood_ldap::url::UrlError;

/// Why a connection or an operation failed.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The text is not an LDAP URL.
    #[error("{0}")]
    Url(#[from] UrlError),
    /// The URL asks for something this client cannot do.
    #[error("{0}")]
    Unsupported(&'static str),
    /// The network failed.
    #[error("{0}")]
    Io(Arc<std::io::Error>),
    /// TLS is configured wrong, or the server's certificate is not trusted.
    #[error("TLS: {0}")]
    Tls(String),
    /// The server sent something that is not LDAP.
    #[error("the server's answer is not LDAP: {0}")]
    Malformed(#[from] DecodeError),
    /// The server's response does not belong to the operation.
    #[error("the server answered with another operation's response")]
    UnexpectedResponse,
    /// The connection has ended. The text says why.
    #[error("the connection has ended: {0}")]
    Closed(String),
    /// The server has ended the session with a Notice of Disconnection (RFC 4511 §4.4.1).
    #[error("the server has ended the session: {0}")]
    Disconnected(OperationError),
    /// The server has refused a bind.
    #[error("binding as {name:?}: {error}")]
    Bind {
        /// The name of the bind.
        name: String,
        /// The server's answer.
        error: OperationError,
    },
    /// The operation was answered with something other than success.
    #[error("{0}")]
    Operation(#[from] OperationError),
}

impl Error {
    /// The server's result code, if it has answered.
    pub fn code(&self) -> Option<ResultCode> {
        match self {
            Error::Operation(error) | Error::Disconnected(error) | Error::Bind { error, .. } => {
                Some(error.code)
            }
            _ => None,
        }
    }
}

impl From<std::io::Error> for Error {
    fn from(error: std::io::Error) -> Self {
        Error::Io(Arc::new(error))
    }
}

impl From<Malformed> for Error {
    fn from(malformed: Malformed) -> Self {
        Error::Malformed(malformed.into())
    }
}

/// An LDAPResult other than success.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OperationError {
    /// The result code.
    pub code: ResultCode,
    /// The deepest existing superior of the name, where the result code calls for it (RFC 4511 §4.1.9).
    pub matched_dn: String,
    /// The diagnostic message of the server.
    pub diagnostic: String,
    /// URLs of other servers to ask.
    pub referral: Vec<String>,
}

impl OperationError {
    /// Copies a result, whatever its code.
    pub fn new(result: &LdapResult<'_>) -> Self {
        let uris = result.referral.into_iter().flatten();
        OperationError {
            code: result.code,
            matched_dn: result.matched_dn.to_owned(),
            diagnostic: result.diagnostic.to_owned(),
            referral: uris
                .map(|uri| String::from_utf8_lossy(uri).into_owned())
                .collect(),
        }
    }
}

impl std::fmt::Display for OperationError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.code)?;
        if !self.diagnostic.is_empty() {
            write!(f, ": {}", self.diagnostic)?;
        }
        if !self.matched_dn.is_empty() {
            write!(f, ", matched {}", self.matched_dn)?;
        }
        Ok(())
    }
}

impl std::error::Error for OperationError {}
