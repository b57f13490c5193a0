//! EXTERNAL (RFC 4513 §5.2.3): somebody else vouches for the client. On a local socket that is the kernel: root and the
//! user that runs the server are the administrator, others have a name made of their ids. Under TLS it is an authority,
//! by the client's certificate, which stands for an entry.

use sapwood_directory::{Identity, Outcome};
use sapwood_ldap::result::ResultCode;

use super::{Asked, Client, Exchange, Mechanism, Step, certificate, names};
use crate::peer::Peer;

pub(super) const MECHANISM: Mechanism = Mechanism {
    name: "EXTERNAL",
    is_set_up: |_| true,
    works_on: |channel| channel.is_vouched_for,
    begin: || Box::new(External),
};

struct External;

impl Exchange for External {
    fn step(&mut self, asked: &Asked<'_>, credentials: Option<&[u8]>) -> Result<Step, Outcome> {
        let identity = match asked.peer {
            Peer::Local { .. } if asked.peer.is_trusted() => Identity::Admin {
                dn: asked.settings.config.admin.dn.clone(),
            },
            // As OpenLDAP names them.
            Peer::Local { uid, gid } => {
                let dn = format!("gidNumber={gid}+uidNumber={uid},cn=peercred,cn=external,cn=auth");
                let known = asked.entries.outsider(&dn)?;
                known.unwrap_or(Identity::External { dn })
            }
            Peer::Tcp(_) | Peer::Proxied { .. } => {
                let shown = asked.tls.and_then(|tls| tls.certificate.as_ref());
                match shown {
                    Some(own) => certificate::identity(asked, own)?,
                    None => {
                        let reason = "EXTERNAL works on ldapi, and over TLS for clients that show a certificate \
                                      where they are asked for one (tls.client_certificates)";
                        let code = ResultCode::InappropriateAuthentication;
                        return Err(Outcome::new(code, reason));
                    }
                }
            }
        };
        let wanted = std::str::from_utf8(credentials.unwrap_or_default()).map_err(|_| {
            let reason = "the authorization identity is not UTF-8";
            Outcome::new(ResultCode::InvalidCredentials, reason)
        })?;
        let own = format!("dn:{}", identity.dn());
        Ok(Step::Done(Client {
            authzid: names::other(asked.schema, wanted, &own),
            identity,
        }))
    }
}
