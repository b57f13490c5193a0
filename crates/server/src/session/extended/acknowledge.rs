//! A server that follows this one says what it has on its disk ([`crate::acknowledgements`]).

use sapwood_directory::Outcome;
use sapwood_directory::engine::Engine;
use sapwood_ldap::controls::ControlSet;
use sapwood_ldap::extended::{ACKNOWLEDGE, Acknowledge};
use sapwood_ldap::result::ResultCode;
use sapwood_replication::Cookie;

use super::{Call, ExtendedOperation};
use crate::session::Session;

pub(super) const fn operations<E: Engine>() -> &'static [ExtendedOperation<E>] {
    const {
        &[ExtendedOperation {
            oid: ACKNOWLEDGE,
            response: None,
            works_on: |_| true,
            needs: None,
            is_exclusive: false,
            takes: ControlSet::EMPTY,
            run: |session, call| session.acknowledge(&call),
        }]
    }
}

impl<E: Engine> Session<E> {
    fn acknowledge(&mut self, call: &Call<'_, '_, '_, E>) -> bool {
        let outcome = match self.take_acknowledged(call) {
            Ok(()) => Outcome::SUCCESS,
            Err(refused) => refused,
        };
        self.answer_extended(call.id, &outcome, None, None);
        true
    }

    fn take_acknowledged(&mut self, call: &Call<'_, '_, '_, E>) -> Result<(), Outcome> {
        let malformed = |error: String| Outcome::new(ResultCode::ProtocolError, error);
        let Some(known) = self.service.writer.acknowledgements().cloned() else {
            let reason = "nobody waits for other servers here (acknowledge_peers)";
            return Err(Outcome::new(ResultCode::UnwillingToPerform, reason));
        };
        // Who has less of the directory has not what clients are told.
        if !call.by.sees_everything() || !self.has_persistent() {
            let reason = "this is for servers that follow all that is here";
            let code = ResultCode::InsufficientAccessRights;
            return Err(Outcome::new(code, reason));
        }
        let told = Acknowledge::decode(call.value.unwrap_or_default())
            .map_err(|error| malformed(format!("acknowledge: {error}")))?;
        let cookie = Cookie::parse(told.cookie).map_err(|error| malformed(error.to_string()))?;
        let own = self.service.directory.options().replica;
        let connection = self.context.number;
        let acknowledging = (self.acknowledging)
            .get_or_insert_with(|| known.begin(connection, told.replica));
        acknowledging.say(cookie.vector.of(own));
        Ok(())
    }
}
