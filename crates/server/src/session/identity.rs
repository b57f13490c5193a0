//! Whom a connection is, beyond the moment at which it was bound.

use sapwood_directory::{EntryId, Identity};
use sapwood_ldap::result::ResultCode;

use super::{Peer, Session};
use crate::closing::Reason;

impl Peer {
    /// Whether it is root or the user that runs the server, whom SASL EXTERNAL makes the administrator.
    pub(super) fn is_trusted(&self) -> bool {
        match self {
            Self::Tcp(_) => false,
            Self::Local { uid } => *uid == 0 || *uid == rustix::process::geteuid().as_raw(),
        }
    }
}

impl Session {
    /// Ends the session of a user whose entry was deleted: there is nobody any more for whom it could go on (RFC 4513
    /// §4). Done when any entry was deleted since the last time.
    pub(super) fn check_user(&mut self, entry: EntryId) {
        let deletions = self.service.directory.deletions();
        let Ok(snapshot) = self.last_snapshot.next(&self.service) else {
            // What is asked fails for the same reason, and the next burst looks again.
            return;
        };
        let dn = snapshot.dn_of(entry);
        self.last_snapshot.0.set(snapshot.end());
        match dn {
            Ok(Some(_)) => self.deletions = deletions,
            Ok(None) => {
                self.set_identity(Identity::Anonymous);
                let reason = "the entry that this connection was bound as has been deleted";
                self.disconnect(Reason::Deleted, ResultCode::StrongerAuthRequired, reason);
            }
            Err(error) => tracing::error!(
                conn = self.number,
                "whether the user's entry is there: {error}"
            ),
        }
    }
}
