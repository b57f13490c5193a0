//! What a server asks for that joins as a copy: an account for its invitation, then all data.

use std::thread;

use sapwood_directory::engine::Engine;
use sapwood_directory::{Identity, Outcome};
use sapwood_ldap::controls::ControlSet;
use sapwood_ldap::extended::{REDEEM_INVITATION, RedeemInvitation, SEND_BACKUP};
use sapwood_ldap::message::Operation;
use sapwood_ldap::result::ResultCode;

use super::{Call, ExtendedOperation};
use crate::invitations::{self, NotRedeemed};
use crate::memory::Share;
use crate::session::backup::{Backup, Turn};
use crate::session::long::{Prepared, Preparing};
use crate::session::search::{Queued, Reading, UnderWay};
use crate::session::{Completion, Session};

pub(super) const fn operations<E: Engine>() -> &'static [ExtendedOperation<E>] {
    const {
        &[
            ExtendedOperation {
                oid: REDEEM_INVITATION,
                response: None,
                works_on: |channel| channel.is_under_tls,
                needs: None,
                is_exclusive: false,
                takes: ControlSet::EMPTY,
                run: |session, call| session.redeem_invitation(&call),
            },
            ExtendedOperation {
                oid: SEND_BACKUP,
                response: None,
                works_on: |channel| channel.is_under_tls,
                needs: None,
                is_exclusive: false,
                takes: ControlSet::EMPTY,
                run: |session, call| session.send_backup(&call),
            },
        ]
    }
}

impl<E: Engine> Session<E> {
    fn redeem_invitation(&mut self, call: &Call<'_, '_, '_, E>) -> bool {
        let request = RedeemInvitation::decode(call.value.unwrap_or_default());
        let outcome = match request {
            _ if !self.context.channel.is_under_tls => Outcome::new(
                ResultCode::ConfidentialityRequired,
                "an invitation is redeemed under TLS only",
            ),
            Err(error) => Outcome::new(ResultCode::ProtocolError, format!("invitation: {error}")),
            Ok(request) => match invitations::redeem(&self.service.folder, request) {
                Ok(()) => {
                    tracing::info!("replica {}: the invitation was redeemed", request.name);
                    Outcome::SUCCESS
                }
                Err(why) => {
                    let code = match why {
                        NotRedeemed::Unknown => ResultCode::InvalidCredentials,
                        NotRedeemed::Password => ResultCode::ConstraintViolation,
                        NotRedeemed::Io(_) => ResultCode::Unavailable,
                    };
                    Outcome::new(code, why.to_string())
                }
            },
        };
        self.answer_extended(call.id, &outcome, None, None);
        true
    }

    /// Has a thread make a backup, whose parts are sent then as the results of a search are.
    fn send_backup(&mut self, call: &Call<'_, '_, '_, E>) -> bool {
        let is_confidential = self.context.channel.is_under_tls || self.context.peer.is_near();
        let turn = match call.by.identity() {
            Identity::Admin { .. } | Identity::Replica { .. } if !is_confidential => {
                let reason = "all data go over a network under TLS only";
                Err(Outcome::new(ResultCode::ConfidentialityRequired, reason))
            }
            Identity::Admin { .. } | Identity::Replica { .. } => {
                Turn::take(&self.service.backing_up).ok_or_else(|| {
                    let reason = "another server is being sent all data: try again later";
                    Outcome::new(ResultCode::Busy, reason)
                })
            }
            _ => Err(Outcome::new(
                ResultCode::InsufficientAccessRights,
                "all data are for the administrator, and for servers that were invited",
            )),
        };
        let begun = turn.and_then(|turn| {
            let id = call.id;
            let number = self.operations.searches.next_number();
            let session = self.completions.clone();
            let (directory, folder) = (
                self.service.directory.clone(),
                self.service.folder.clone(),
            );
            let make = move || {
                let backup = Backup::make(directory.engine(), &folder, turn);
                let running = backup.map(|backup| {
                    let reading = Reading::Backup(Box::new(backup));
                    UnderWay::new(id, Operation::Extended, reading, Share::default())
                });
                let running = running.map_err(|why| {
                    let reason = format!("no backup can be made: {why}");
                    Outcome::new(ResultCode::Unavailable, reason)
                });
                let prepared = Prepared::new(number, running);
                let _ = session.send(Completion::Prepared(Box::new(prepared)));
            };
            let thread = thread::Builder::new().name("backup".into()).spawn(make);
            thread.map_err(|error| Outcome::new(ResultCode::Unavailable, error.to_string()))?;
            Ok(Preparing::new(id, Operation::Extended, number))
        });
        match begun {
            Ok(preparing) => (self.operations.searches).push(Queued::Preparing(preparing)),
            Err(outcome) => self.answer_extended(call.id, &outcome, None, None),
        }
        true
    }
}
