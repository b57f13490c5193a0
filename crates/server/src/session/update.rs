//! Add, modify, delete and modify DN: from the request to the writer's queue, and back.

use sapwood_directory::{Outcome, Update, UpdateRequest};
use sapwood_ldap::message::{Operation, Request, RequestMessage};
use sapwood_ldap::result::ResultCode;

use super::{Burst, Completion, Session};
use crate::password;
use crate::writer::{Reply, Unit};

/// Bytes of the queue that each update counts for besides its own.
const UPDATE_BYTES: usize = 256;

impl Session {
    pub(super) fn update(&mut self, bytes: &[u8], message: &RequestMessage<'_>, burst: &mut Burst) {
        let operation = message.op.operation();
        self.log_update(message);
        let update = Update { identity: self.identity.clone(), request: UpdateRequest::Message(bytes.to_vec()) };
        let reply = Reply { id: message.id, operation, generated: None };
        if has_cleartext_password(&message.op) {
            // What came before goes first; what comes after waits.
            self.submit(std::mem::take(&mut burst.updates), std::mem::take(&mut burst.replies));
            self.hash(update, reply);
        } else {
            burst.updates.push(update);
            burst.replies.push(reply);
        }
    }

    /// Puts updates into the writer's queue, or keeps them until it has room.
    pub(super) fn submit(&mut self, updates: Vec<Update>, replies: Vec<Reply>) {
        if updates.is_empty() {
            return;
        }
        self.updating.extend(replies.iter().map(|reply| reply.id));
        let mut unit = Unit { updates, replies, session: self.completions.clone(), permit: None };
        let share = self.share_of_queue(&unit);
        match std::sync::Arc::clone(&self.service.update_bytes).try_acquire_many_owned(share) {
            Ok(permit) => {
                unit.permit = Some(permit);
                self.service.writer.submit(unit);
            }
            Err(_) => match &mut self.waiting_unit {
                None => self.waiting_unit = Some(unit),
                Some(waiting) => {
                    waiting.updates.append(&mut unit.updates);
                    waiting.replies.append(&mut unit.replies);
                }
            },
        }
    }

    /// Bytes that a unit takes of the queue; one that is larger than the queue takes all of it.
    pub(super) fn share_of_queue(&self, unit: &Unit) -> u32 {
        let bytes: usize = unit
            .updates
            .iter()
            .map(|update| match &update.request {
                UpdateRequest::Message(bytes) => bytes.len() + UPDATE_BYTES,
                _ => UPDATE_BYTES,
            })
            .sum();
        u32::try_from(bytes.min(self.settings.config.limits.update_queue_bytes_max)).unwrap_or(u32::MAX)
    }

    pub(super) fn answer_update(&mut self, reply: &Reply, outcome: &Outcome) {
        if reply.operation == Operation::Extended {
            self.answer_password_modify(reply, outcome);
        } else {
            self.answer(reply.id, reply.operation, outcome);
        }
    }

    fn log_update(&self, message: &RequestMessage<'_>) {
        if self.settings.config.log.access {
            let dn = match message.op {
                Request::Add(request) => request.dn,
                Request::Modify(request) => request.dn,
                Request::Delete(dn) => dn,
                Request::ModifyDn(request) => request.dn,
                _ => "",
            };
            let operation = message.op.operation().name();
            tracing::info!(target: "access", conn = self.number, id = message.id, dn, "{operation}");
        }
    }
}
