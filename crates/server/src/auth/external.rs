//! EXTERNAL (RFC 4513 §5.2.3): on a local socket the kernel vouches for the peer's user id. Root and the user that runs
//! the server are the administrator; nobody else has an identity.

use sapwood_directory::{Identity, Outcome};
use sapwood_ldap::result::ResultCode;

use super::{Asked, Exchange, Mechanism, Step};
use crate::session::Peer;

pub(super) const MECHANISM: Mechanism = Mechanism {
    name: "EXTERNAL",
    works_on: |channel| channel.is_vouched_for,
    begin: || Box::new(External),
};

struct External;

impl Exchange for External {
    fn step(&mut self, asked: &Asked<'_>, credentials: Option<&[u8]>) -> Result<Step, Outcome> {
        let Peer::Local { uid } = asked.peer else {
            let reason = "EXTERNAL works on ldapi only";
            return Err(Outcome::new(
                ResultCode::InappropriateAuthentication,
                reason,
            ));
        };
        if !asked.channel.is_vouched_for {
            let reason = format!(
                "user id {uid} has no identity here: only root and the user that runs the server have"
            );
            return Err(Outcome::new(ResultCode::InvalidCredentials, reason));
        }
        let dn = &asked.settings.config.admin.dn;
        let wanted = credentials.unwrap_or_default();
        let is_admin = || {
            let wanted = std::str::from_utf8(wanted).ok();
            let wanted = wanted.and_then(|wanted| wanted.strip_prefix("dn:"));
            wanted.is_some_and(|wanted| asked.settings.is_admin(asked.schema, wanted))
        };
        if !wanted.is_empty() && !is_admin() {
            let reason = format!("the authorization identity here is dn:{dn}");
            return Err(Outcome::new(ResultCode::InvalidCredentials, reason));
        }
        Ok(Step::Done(Identity::Admin { dn: dn.clone() }))
    }
}
