//! GSSAPI (RFC 4752) with Kerberos: a ticket says who the client is. It authenticates only: no security layer is
//! offered, for what goes over the connection TLS encrypts.

use std::fmt;

use sapwood_directory::access::user_name;
use sapwood_directory::{Identity, Outcome};
use sapwood_ldap::result::ResultCode;

use super::{Asked, Client, Exchange, Mechanism, Step, names};
use crate::kerberos::{Accepted, Acceptor, Context};

pub(super) const MECHANISM: Mechanism = Mechanism {
    name: "GSSAPI",
    is_set_up: |config| config.gssapi.is_on(),
    works_on: |_| true,
    begin: || Box::new(Gssapi::Begins),
};

/// Bytes of a message of the client: a ticket with all that Active Directory writes into it.
const MESSAGE_BYTES_MAX: usize = 64 << 10;
/// Messages that Kerberos may need to get to know a client; it needs one.
const TOKENS_MAX: u32 = 4;
/// The only security layer that is offered: none (RFC 4752 §3.3), with which no message has a size.
const NO_LAYER: u8 = 1;
const OFFER: [u8; 4] = [NO_LAYER, 0, 0, 0];

/// Where a bind is.
enum Gssapi {
    Begins,
    /// Kerberos waits for another message of the client, after so many.
    Accepts(Context, u32),
    /// The client is known, and has to say that it has nothing to add.
    Known(Context),
    /// The client is to choose a security layer.
    Offered(Context),
    Failed,
}

impl Exchange for Gssapi {
    fn step(&mut self, asked: &Asked<'_>, credentials: Option<&[u8]>) -> Result<Step, Outcome> {
        let message = credentials.unwrap_or_default();
        if message.len() > MESSAGE_BYTES_MAX {
            return Err(refused("the message is too long"));
        }
        let Some(acceptor) = &asked.settings.gssapi else {
            let reason = "no service is set up that Kerberos tickets could be for (gssapi.service)";
            return Err(Outcome::new(ResultCode::AuthMethodNotSupported, reason));
        };
        match std::mem::replace(self, Self::Failed) {
            // The client speaks first (RFC 4752 §3.1).
            Self::Begins if message.is_empty() => {
                *self = Self::Begins;
                Ok(Step::More(Vec::new()))
            }
            Self::Begins => self.accept(acceptor, Context::new(), 1, message),
            Self::Accepts(context, count) if count < TOKENS_MAX => {
                self.accept(acceptor, context, count + 1, message)
            }
            Self::Known(context) if message.is_empty() => self.offer(context),
            Self::Offered(context) => {
                let (step, context) = chosen(asked, context, message)?;
                // The entry of the client may have to be asked for again.
                *self = Self::Offered(context);
                Ok(step)
            }
            Self::Accepts(..) | Self::Known(_) => Err(refused("it has too many messages")),
            Self::Failed => Err(refused("it has failed before")),
        }
    }
}

impl Gssapi {
    /// Hands a message of the client to Kerberos.
    fn accept(
        &mut self,
        acceptor: &Acceptor,
        mut context: Context,
        count: u32,
        message: &[u8],
    ) -> Result<Step, Outcome> {
        match context.accept(acceptor, message).map_err(refused)? {
            Accepted::More(answer) => {
                *self = Self::Accepts(context, count);
                Ok(Step::More(answer.to_vec()))
            }
            Accepted::Known(answer) if !answer.is_empty() => {
                *self = Self::Known(context);
                Ok(Step::More(answer.to_vec()))
            }
            Accepted::Known(_) => self.offer(context),
        }
    }

    /// Says which security layers there are (RFC 4752 §3.1).
    fn offer(&mut self, mut context: Context) -> Result<Step, Outcome> {
        let offer = context.wrap(&OFFER).map_err(refused)?;
        *self = Self::Offered(context);
        Ok(Step::More(offer.to_vec()))
    }
}

/// Who the client is, when it has chosen a layer.
fn chosen(
    asked: &Asked<'_>,
    mut context: Context,
    message: &[u8],
) -> Result<(Step, Context), Outcome> {
    let chosen = context.unwrap(message).map_err(refused)?;
    let authzid = Choice::read(&chosen).map_err(refused)?.authzid;
    if context.is_anonymous() {
        return Err(refused("the ticket is of nobody"));
    }
    let [client, service] = context.names().map_err(refused)?;
    let [client, service] = [&client, &service].map(|name| std::str::from_utf8(name));
    let (Ok(client), Ok(service)) = (client, service) else {
        return Err(refused("the name in the ticket is not UTF-8"));
    };
    let (user, realm) = user_and_realm(client, service);
    let within = (MECHANISM.name, realm);
    let Some(outside) = user_name(asked.schema, user, within) else {
        return Err(refused("the name in the ticket is too long"));
    };
    let known = asked.entries.user(user, within)?.identity;
    let identity = known.unwrap_or_else(|| Identity::External {
        dn: outside.to_text(),
    });
    let own = format!("dn:{}", identity.dn());
    // Cyrus SASL asks for the name in the ticket where its user asks for nobody.
    let is_own = [user, client].contains(&authzid);
    let other = (!is_own).then(|| names::other(asked.schema, authzid, &own));
    let authzid = other.flatten();
    Ok((Step::Done(Client { identity, authzid }), context))
}

/// A principal's name and its realm; that is empty if it is the service's own.
fn user_and_realm<'n>(client: &'n str, service: &str) -> (&'n str, &'n str) {
    let own = split(service).1;
    match split(client) {
        (user, realm) if realm == own => (user, ""),
        other => other,
    }
}

/// What is before and behind the `@` that no backslash escapes.
fn split(principal: &str) -> (&str, &str) {
    let mut is_escaped = false;
    let at = principal.char_indices().find(|(_, char)| {
        let is_at = *char == '@' && !is_escaped;
        is_escaped = *char == '\\' && !is_escaped;
        is_at
    });
    let parted = at.and_then(|(at, _)| Some((principal.get(..at)?, principal.get(at + 1..)?)));
    parted.unwrap_or((principal, ""))
}

/// What the client says last (RFC 4752 §3.1): a security layer, the longest message it takes, and as whom it acts.
#[derive(Debug, PartialEq, Eq)]
struct Choice<'m> {
    authzid: &'m str,
}

impl<'m> Choice<'m> {
    fn read(message: &'m [u8]) -> Result<Self, &'static str> {
        let Some(([layer, _, _, _], authzid)) = message.split_first_chunk() else {
            return Err("it has no security layer");
        };
        if *layer != NO_LAYER {
            return Err("no security layer is offered: use TLS, and maxssf=0 (ldapsearch -O)");
        }
        let authzid = std::str::from_utf8(authzid).map_err(|_| "it is not UTF-8")?;
        Ok(Self { authzid })
    }
}

/// Reads a message as the mechanism does, for the fuzzer.
pub(super) fn read_message(message: &[u8]) {
    let _ = Choice::read(message);
    if let Ok(name) = std::str::from_utf8(message) {
        let _ = user_and_realm(name, name);
    }
}

fn refused(reason: impl fmt::Display) -> Outcome {
    Outcome::new(ResultCode::InvalidCredentials, format!("GSSAPI: {reason}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_principal_has_a_realm_unless_it_is_the_services_own() {
        let service = "ldap/ldap.example.com@EXAMPLE.COM";
        let read = |client| user_and_realm(client, service);
        assert_eq!(read("ann@EXAMPLE.COM"), ("ann", ""));
        assert_eq!(read("host/a.b@EXAMPLE.COM"), ("host/a.b", ""));
        assert_eq!(read("ann@OTHER.ORG"), ("ann", "OTHER.ORG"));
        assert_eq!(read("ann@EXAMPLE.COM.ORG"), ("ann", "EXAMPLE.COM.ORG"));
        // Somebody whose name has the realm in it is not who is without.
        assert_eq!(
            read("ann\\@EXAMPLE.COM@OTHER"),
            ("ann\\@EXAMPLE.COM", "OTHER")
        );
        assert_eq!(read("ann\\\\@OTHER"), ("ann\\\\", "OTHER"));
        assert_eq!(read("ann"), ("ann", ""));
    }

    #[test]
    fn a_client_chooses_no_layer() {
        assert_eq!(Choice::read(b"\x01\0\0\0").unwrap().authzid, "");
        assert_eq!(Choice::read(b"\x01\0\x10\0u:ann").unwrap().authzid, "u:ann");
        for wrong in [
            b"".as_slice(),
            b"\x01\0\0",
            b"\x02\0\0\0",
            b"\x03\0\0\0",
            b"\x01\0\0\0\xff",
        ] {
            Choice::read(wrong).unwrap_err();
        }
    }
}
