//! PLAIN (RFC 4616), under TLS only: a name and its password, as in a simple bind. The name is a DN, mostly written
//! `dn:cn=Ann,dc=example`, or one of which olcAuthzRegexp makes a DN.

use sapwood_directory::Outcome;
use sapwood_ldap::result::ResultCode;

use super::names::{self, Claimed};
use super::{Asked, Exchange, Mechanism, Step, Wait};
use crate::password::Password;
use crate::workers::Owner;

pub(super) const MECHANISM: Mechanism = Mechanism {
    name: "PLAIN",
    is_set_up: |_| true,
    works_on: |channel| channel.is_under_tls,
    begin: || Box::new(Plain),
};

struct Plain;

impl Exchange for Plain {
    fn step(&mut self, asked: &Asked<'_>, credentials: Option<&[u8]>) -> Result<Step, Outcome> {
        if !asked.channel.is_under_tls {
            let reason = "PLAIN works over TLS only: use StartTLS (ldapsearch -ZZ) or ldaps://";
            return Err(Outcome::new(ResultCode::ConfidentialityRequired, reason));
        }
        // The client speaks first (RFC 4422 §3.2): without an initial response it is asked for one.
        let Some(message) = credentials else {
            return Ok(Step::More(Vec::new()));
        };
        let Some(message) = Message::read(message) else {
            let reason = "PLAIN has [authzid] NUL authcid NUL password (RFC 4616 §2)";
            return Err(Outcome::new(ResultCode::ProtocolError, reason));
        };
        let Claimed { dn, stand_in } = names::claimed(asked, message.authcid, MECHANISM.name)?;
        Ok(Step::Wait(Wait::Password {
            dn,
            nobody: Owner::nobody(&stand_in),
            password: Password::new(message.password.to_vec()),
            authzid: names::other(asked.schema, message.authzid, message.authcid),
        }))
    }
}

/// What a client says (RFC 4616 §2).
#[derive(Debug, PartialEq, Eq)]
struct Message<'m> {
    authzid: &'m str,
    authcid: &'m str,
    password: &'m [u8],
}

impl<'m> Message<'m> {
    fn read(message: &'m [u8]) -> Option<Self> {
        let mut parts = message.split(|byte| *byte == 0);
        let (authzid, authcid, password) = (parts.next()?, parts.next()?, parts.next()?);
        if parts.next().is_some() || authcid.is_empty() || password.is_empty() {
            return None;
        }
        Some(Message {
            authzid: std::str::from_utf8(authzid).ok()?,
            authcid: std::str::from_utf8(authcid).ok()?,
            password,
        })
    }
}

/// Reads a message of a client, for the fuzzer.
pub(super) fn read_message(message: &[u8]) {
    let _ = Message::read(message);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_has_three_parts() {
        let read = Message::read(b"dn:cn=b\0dn:cn=a\0p\xffw").unwrap();
        assert_eq!(
            (read.authzid, read.authcid, read.password),
            ("dn:cn=b", "dn:cn=a", b"p\xffw".as_slice())
        );
        assert_eq!(Message::read(b"\0a\0p").unwrap().authzid, "");
        for wrong in [
            b"".as_slice(),
            b"a",
            b"a\0p",
            b"\0\0p",
            b"\0a\0",
            b"\0a\0p\0",
            b"\0a\0p\0q",
            b"\0\xff\0p",
            b"\xff\0a\0p",
        ] {
            assert_eq!(Message::read(wrong), None, "{wrong:?}");
        }
    }
}
