//! Bind (RFC 4511 §4.2, RFC 4513 §5).

use sapwood_directory::{Credentials, Identity, Outcome};
use sapwood_ldap::message::{Authentication, BindRequest, Operation};
use sapwood_ldap::result::ResultCode;

use super::{Completion, Peer, Session};
use crate::password::{self, PASSWORD_BYTES_MAX};
use crate::writer::refusal;

/// One answer for a wrong name and a wrong password: names are not to be found out by trying.
fn wrong() -> Outcome {
    Outcome::new(ResultCode::InvalidCredentials, "")
}

/// Bytes of the name in a bind.
const NAME_BYTES_MAX: usize = 8 << 10;

impl Session {
    pub(super) fn bind(&mut self, id: u32, request: &BindRequest<'_>) {
        // RFC 4511 §4.2.1: while a bind is under way, and when it fails, the connection is anonymous.
        self.identity = Identity::Anonymous;
        self.transactions.clear();
        self.abandon_lburp();
        let outcome = match request.authentication {
            _ if request.version != 3 => Err(Outcome::new(
                ResultCode::ProtocolError,
                "only version 3 of the protocol is spoken here",
            )),
            Authentication::Simple(password) => self.simple(id, request.name, password),
            Authentication::Sasl {
                mechanism,
                credentials,
            } => self.sasl(mechanism, credentials).map(Some),
        };
        if self.settings.config.log.access {
            tracing::info!(target: "access", conn = self.number, id, dn = request.name, "bind");
        }
        match outcome {
            Ok(Some(identity)) => self.bound(id, Some(identity)),
            // A hasher is at it.
            Ok(None) => self.exclusive = Some(id),
            Err(outcome) => self.answer(id, Operation::Bind, &outcome),
        }
    }

    /// A bind is decided.
    pub(super) fn bound(&mut self, id: u32, identity: Option<Identity>) {
        self.exclusive = None;
        let outcome = match identity {
            Some(identity) => {
                self.identity = identity;
                Outcome::SUCCESS
            }
            None => wrong(),
        };
        self.answer(id, Operation::Bind, &outcome);
    }

    /// Simple authentication: who the client is, or `None` once a hasher checks the password.
    fn simple(
        &mut self,
        id: u32,
        name: &str,
        password: &[u8],
    ) -> Result<Option<Identity>, Outcome> {
        if password.is_empty() {
            return if name.is_empty() {
                Ok(Some(Identity::Anonymous))
            } else {
                let reason = "a bind with a name needs a password (RFC 4513 §5.1.2)";
                Err(Outcome::new(ResultCode::UnwillingToPerform, reason))
            };
        }
        self.require_confidentiality()?;
        if name.len() > NAME_BYTES_MAX || password.len() > PASSWORD_BYTES_MAX {
            let reason = format!(
                "a name has at most {NAME_BYTES_MAX} bytes, a password {PASSWORD_BYTES_MAX}"
            );
            return Err(Outcome::new(ResultCode::InvalidCredentials, reason));
        }
        let (identity, stored) = if self
            .settings
            .is_admin(self.service.directory.schema(), name)
        {
            let identity = Identity::Admin {
                dn: self.settings.config.admin.dn.clone(),
            };
            (Some(identity), vec![self.settings.admin_password.clone()])
        } else {
            match self.credentials(name)? {
                Some(Credentials { entry, dn, stored }) => {
                    (Some(Identity::User { entry, dn }), stored)
                }
                // The hasher works all the same: the time taken does not tell either.
                None => (None, Vec::new()),
            }
        };
        if identity.is_some() && password::is_quick(stored.iter().map(Vec::as_slice)) {
            return if password::verify(password, stored.iter().map(Vec::as_slice)) {
                Ok(identity)
            } else {
                Err(wrong())
            };
        }
        let (password, session) = (
            password::Password::new(password.to_vec()),
            self.completions.clone(),
        );
        let check = move || {
            let matches = password::verify(&password, stored.iter().map(Vec::as_slice));
            let _ = session.send(Completion::Verified {
                id,
                identity: identity.filter(|_| matches),
            });
        };
        self.service
            .hashers
            .submit(check)
            .map_err(|full| Outcome::new(ResultCode::Busy, full.to_string()))?;
        Ok(None)
    }

    pub(super) fn credentials(&self, dn: &str) -> Result<Option<Credentials>, Outcome> {
        let snapshot = self
            .service
            .directory
            .snapshot()
            .map_err(|error| refusal(&error))?;
        snapshot.credentials(dn).map_err(|error| refusal(&error))
    }

    /// EXTERNAL (RFC 4513 §5.2.3): on a local socket the kernel vouches for the peer's user id. Root and the user that
    /// runs the server are the administrator; nobody else has an identity.
    fn sasl(&self, mechanism: &str, credentials: Option<&[u8]>) -> Result<Identity, Outcome> {
        if mechanism != "EXTERNAL" {
            let reason = "the only SASL mechanism here is EXTERNAL, on ldapi";
            return Err(Outcome::new(ResultCode::AuthMethodNotSupported, reason));
        }
        let Peer::Local { uid } = self.peer else {
            let reason = "EXTERNAL works on ldapi only";
            return Err(Outcome::new(
                ResultCode::InappropriateAuthentication,
                reason,
            ));
        };
        if uid != 0 && uid != rustix::process::geteuid().as_raw() {
            let reason = format!(
                "user id {uid} has no identity here: only root and the user that runs the server have"
            );
            return Err(Outcome::new(ResultCode::InvalidCredentials, reason));
        }
        let dn = &self.settings.config.admin.dn;
        match credentials.unwrap_or_default() {
            [] => {}
            asked => {
                let asked = std::str::from_utf8(asked)
                    .ok()
                    .and_then(|asked| asked.strip_prefix("dn:"));
                if !asked.is_some_and(|asked| {
                    self.settings
                        .is_admin(self.service.directory.schema(), asked)
                }) {
                    let reason = format!("the authorization identity here is dn:{dn}");
                    return Err(Outcome::new(ResultCode::InvalidCredentials, reason));
                }
            }
        }
        Ok(Identity::Admin { dn: dn.clone() })
    }

    /// Refuses a password that others could have read on its way.
    pub(super) fn require_confidentiality(&self) -> Result<(), Outcome> {
        let confidential = self.secure
            || match self.peer {
                Peer::Tcp(address) => address.ip().to_canonical().is_loopback(),
                Peer::Local { .. } => true,
            };
        if confidential || self.settings.config.access.danger_plaintext_passwords {
            Ok(())
        } else {
            let reason =
                "passwords are accepted over TLS only: use StartTLS (ldapsearch -ZZ) or ldaps://";
            Err(Outcome::new(ResultCode::ConfidentialityRequired, reason))
        }
    }
}
