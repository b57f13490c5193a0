//! Cancel (RFC 3909).

use sapwood_directory::engine::Engine;
use sapwood_directory::Outcome;
use sapwood_ldap::controls::ControlSet;
use sapwood_ldap::extended::{CANCEL, cancel_id};
use sapwood_ldap::result::ResultCode;

use super::ExtendedOperation;
use crate::session::Session;

pub(super) const fn operations<E: Engine>() -> &'static [ExtendedOperation<E>] {
    const {
        &[ExtendedOperation {
            oid: CANCEL,
            response: None,
            works_on: |_| true,
            needs: None,
            is_exclusive: false,
            takes: ControlSet::EMPTY,
            run: |session, call| session.cancel(call.id, call.value),
        }]
    }
}

impl<E: Engine> Session<E> {
    /// A search or compare is ended with `canceled`, and so is a tree delete between two commits, before Cancel is
    /// answered; another update that the writer has can no longer be stopped.
    fn cancel(&mut self, id: u32, value: Option<&[u8]>) -> bool {
        let outcome = match cancel_id(value.unwrap_or_default()) {
            Err(error) => Outcome::new(ResultCode::ProtocolError, format!("Cancel: {error}")),
            Ok(target) => {
                if let Some(operation) = self.operations.searches.remove(target) {
                    self.canceled(id, target, operation);
                    return true;
                }
                if self.operations.tree_deletes.cancel(target, id) {
                    return true;
                }
                self.cannot_cancel(target)
            }
        };
        self.answer_extended(id, &outcome, None, None);
        true
    }

    /// Why what has this message id goes on.
    fn cannot_cancel(&self, target: u32) -> Outcome {
        let operations = &self.operations;
        if operations.updating.contains(&target) || operations.tree_deletes.has(target) {
            Outcome::new(ResultCode::TooLate, "the update is being applied")
        } else if self.operations.lburp.keeps(target) {
            let reason = "a request of a bulk update has its place among others";
            Outcome::new(ResultCode::CannotCancel, reason)
        } else {
            let reason = format!("no operation {target} is under way");
            Outcome::new(ResultCode::NoSuchOperation, reason)
        }
    }
}
