//! EXTERNAL (RFC 4513 §5.2.3): somebody else vouches for the client. On a local socket that is the kernel: root and the
//! user that runs the server are the administrator, others have a name made of their ids. Under TLS it is an authority,
//! by the client's certificate, which stands for an entry.

use sapwood_directory::schema::{NormalDn, Schema};
use sapwood_directory::{Identity, Outcome};
use sapwood_ldap::result::ResultCode;

use super::{Asked, Exchange, Mechanism, Step, certificate};
use crate::session::Peer;

pub(super) const MECHANISM: Mechanism = Mechanism {
    name: "EXTERNAL",
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
            Peer::Local { uid, gid } => Identity::External {
                dn: format!("gidNumber={gid}+uidNumber={uid},cn=peercred,cn=external,cn=auth"),
            },
            Peer::Tcp(_) => match asked.tls.and_then(|tls| tls.certificate.as_ref()) {
                Some(own) => certificate::identity(asked, own)?,
                None => {
                    let reason = "EXTERNAL works on ldapi, and over TLS for clients that show a certificate where they are \
                                  asked for one (tls.client_certificates)";
                    let code = ResultCode::InappropriateAuthentication;
                    return Err(Outcome::new(code, reason));
                }
            },
        };
        let wanted = credentials.unwrap_or_default();
        if !wanted.is_empty() && !is_its_own(asked.schema, identity.dn(), wanted) {
            let reason = format!("the authorization identity here is dn:{}", identity.dn());
            return Err(Outcome::new(ResultCode::InvalidCredentials, reason));
        }
        Ok(Step::Done(identity))
    }
}

/// Whether an authorization identity is that of who has this DN.
fn is_its_own(schema: &Schema, dn: &str, wanted: &[u8]) -> bool {
    let normal = |dn: &str| {
        let mut normal = NormalDn::new();
        let read = normal.parse(schema, dn.as_bytes());
        read.is_ok().then_some(normal)
    };
    let wanted = std::str::from_utf8(wanted).ok();
    let wanted = wanted.and_then(|wanted| wanted.strip_prefix("dn:"));
    let wanted = wanted.and_then(normal);
    wanted.is_some() && wanted == normal(dn)
}
