//! Who am I? (RFC 4532).

use sapwood_directory::engine::Engine;
use sapwood_directory::{Identity, Outcome};
use sapwood_ldap::controls::{ControlSet, KnownControl};
use sapwood_ldap::extended::WHO_AM_I;
use sapwood_ldap::result::ResultCode;

use super::{Call, ExtendedOperation};
use crate::session::Session;

pub(super) const fn operations<E: Engine>() -> &'static [ExtendedOperation<E>] {
    const {
        &[ExtendedOperation {
            oid: WHO_AM_I,
            response: None,
            works_on: |_| true,
            needs: None,
            is_exclusive: false,
            takes: ControlSet::EMPTY.with(KnownControl::ProxiedAuthorization),
            run: |session, call| session.who_am_i(call),
        }]
    }
}

impl<E: Engine> Session<E> {
    /// A user is told the name that the entry has now.
    fn who_am_i(&mut self, call: Call<'_, '_, '_, E>) -> bool {
        let authorization = if call.value.is_some() {
            let reason = "Who am I? has no value";
            Err(Outcome::new(ResultCode::ProtocolError, reason))
        } else {
            match call.by.identity() {
                Identity::Anonymous => Ok(String::new()),
                Identity::Admin { dn } | Identity::External { dn } | Identity::Replica { dn } => {
                    Ok(format!("dn:{dn}"))
                }
                Identity::User { entry, dn } => call.burst.snapshot(self).and_then(|snapshot| {
                    let now = self.read_in(snapshot, |snapshot| snapshot.dn_of(*entry))?;
                    Ok(format!("dn:{}", now.as_ref().unwrap_or(dn)))
                }),
            }
        };
        match authorization {
            Ok(name) => {
                self.answer_extended(call.id, &Outcome::SUCCESS, None, Some(name.as_bytes()));
            }
            Err(outcome) => self.answer_extended(call.id, &outcome, None, None),
        }
        true
    }
}
