//! Transactions (RFC 5805), with the extensions of `docs/reference/protocol-extensions.md`.
//!
//! A transaction is gathered here and locks nothing: its updates go to the writer as one when the client ends it. Only
//! the updates of an *eager* one go there as they come, to be tried: together with all before them, and undone.

use std::sync::Arc;
use std::time::{Duration, Instant};

use sapwood_directory::engine::Engine;
use sapwood_directory::{
    Extension, Identity, Outcome, RequestView, Requester, Settlement, StoreSet, Transaction, TransactionUpdates,
    UpdateRequest,
};
use sapwood_ldap::controls::{ControlSet, Controls, KnownControl, RequestControls};
use sapwood_ldap::extended::{
    ABORTED_TRANSACTION, END_TRANSACTION, EndTransaction, START_TRANSACTION, put_transaction_ended,
};
use sapwood_ldap::message::{ExtendedRequest, ExtendedResponse, Message, Response};
use sapwood_ldap::result::{LdapResult, ResultCode};

use super::ExtendedOperation;
use crate::accounts::Claimant;
use crate::closing::Reason;
use crate::memory::{Pool, Share};
use crate::session::ids::MessageIds;
use crate::session::{Burst, Session};
use crate::session::reply::{Reply, ReplyKind, Trial, Unit};

/// Bytes that an update in a transaction counts for besides its own.
const UPDATE_BYTES: usize = 128;
/// Bytes of the memory of all transactions that one takes at a time.
const GRANT_BYTES: usize = 64 << 10;
/// Void identifiers that are remembered. With more, whose ends were not asked for, no identifier starts a transaction
/// until the next bind.
const VOID_MAX: usize = 64;
/// Longest identifier that a client may choose.
const IDENTIFIER_BYTES_MAX: usize = 256;

pub(super) const fn operations<E: Engine>() -> &'static [ExtendedOperation<E>] {
    const {
        &[
            ExtendedOperation {
                oid: START_TRANSACTION,
                response: None,
                works_on: |_| true,
                needs: None,
                is_exclusive: false,
                takes: ControlSet::EMPTY
                    .with(KnownControl::EagerTransaction)
                    .with(KnownControl::ProxiedAuthorization),
                run: |session, call| {
                    session.start_transaction(call.id, call.value, (call.controls, call.by));
                    true
                },
            },
            ExtendedOperation {
                oid: END_TRANSACTION,
                response: None,
                works_on: |_| true,
                needs: None,
                is_exclusive: false,
                takes: ControlSet::EMPTY.with(KnownControl::ProxiedAuthorization),
                run: |session, call| {
                    session.end_transaction(call.id, call.value, call.burst);
                    true
                },
            },
        ]
    }
}

/// The transactions of a session.
#[derive(Default)]
pub(in crate::session) struct Transactions {
    open: Vec<OpenTransaction>,
    started: u64,
    /// Identifiers of transactions that were aborted, or could not be started, until their end is asked for: what the
    /// client had sent before it learned of it must not become a transaction of its own (RFC 5805 §3.3).
    void: Vec<Vec<u8>>,
    /// There were more of them than are remembered.
    are_all_void: bool,
}

/// A transaction that waits for its end.
struct OpenTransaction {
    identifier: Vec<u8>,
    /// For whom its updates are done (RFC 5805 §4.4).
    by: Arc<Requester>,
    updates: TransactionUpdates,
    /// The message ids of the updates, once they are not in ascending order.
    ids: Option<MessageIds>,
    bytes: usize,
    /// The stores that the updates are to be applied in.
    shards: StoreSet,
    is_eager: bool,
    /// Updates that name no transaction belong to it: implicit membership was on when it began.
    takes_all: bool,
    last_used: Instant,
    /// Its share of the memory of all transactions.
    share: Share,
}

impl Transactions {
    pub(in crate::session) fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// Whether updates that name no transaction belong to an open one.
    pub(in crate::session) fn take_all(&self) -> bool {
        self.open.iter().any(|open| open.takes_all)
    }

    /// Forgets all, as a bind does (RFC 5805 §3.5).
    pub(in crate::session) fn clear(&mut self) {
        self.open.clear();
        self.void.clear();
        self.are_all_void = false;
    }

    /// Remembers that nothing may be done under an identifier any more.
    fn make_void(&mut self, identifier: &[u8]) {
        if self.is_void(identifier) {
            return;
        }
        if self.void.len() < VOID_MAX {
            self.void.push(identifier.to_vec());
        } else {
            self.are_all_void = true;
        }
    }

    /// Whether an identifier that no open transaction has must not start one.
    fn is_void(&self, identifier: &[u8]) -> bool {
        self.are_all_void || self.void.iter().any(|void| void == identifier)
    }

    fn position(&self, identifier: &[u8]) -> Option<usize> {
        let mut open = self.open.iter();
        open.position(|open| open.identifier == identifier)
    }

    fn remove(&mut self, identifier: &[u8]) -> Option<OpenTransaction> {
        self.position(identifier).map(|at| self.open.remove(at))
    }
}

impl OpenTransaction {
    /// Adds an update whose message id no other [has](Self::has).
    fn push(&mut self, id: u32, request: RequestView<'_>, shards: StoreSet) {
        self.shards = self.shards.with(shards);
        if let Some(ids) = &mut self.ids {
            ids.insert(id);
        }
        self.bytes += request.bytes() + UPDATE_BYTES;
        self.updates.push(id, request);
    }

    /// Whether an update has this message id.
    fn has(&mut self, id: u32) -> bool {
        let last = self.updates.len().checked_sub(1);
        let last = last.and_then(|last| self.updates.id(last));
        if self.ids.is_none() && last >= Some(id) {
            self.ids = Some(self.updates.ids().collect());
        }
        self.ids.as_ref().is_some_and(|ids| ids.contains(&id))
    }

    /// Takes memory for so many more bytes; whether there was enough.
    fn reserve(&mut self, memory: &Pool, claimant: &Arc<Claimant>, bytes: usize) -> bool {
        let missing = (self.bytes + bytes).saturating_sub(self.share.bytes());
        if missing == 0 {
            return true;
        }
        match memory.try_take(claimant, missing.max(GRANT_BYTES)) {
            Some(more) if more.bytes() >= missing => self.share.add(more),
            _ => return false,
        }
        true
    }
}

impl<E: Engine> Session<E> {
    /// Start Transaction (RFC 5805 §2.1).
    fn start_transaction(
        &mut self,
        id: u32,
        value: Option<&[u8]>,
        (controls, by): (&RequestControls<'_>, &Arc<Requester>),
    ) {
        self.operations.transactions.started += 1;
        let identifier = format!("{}.{}", self.context.number, self.operations.transactions.started).into_bytes();
        let started = if value.is_some() {
            let reason = "Start Transaction has no value";
            Err(Outcome::new(ResultCode::ProtocolError, reason))
        } else {
            self.open_transaction(identifier.clone(), controls, by)
        };
        match started {
            Ok(_) => self.answer_extended(id, &Outcome::SUCCESS, None, Some(&identifier)),
            Err(outcome) => self.answer_extended(id, &outcome, None, None),
        }
    }

    /// Opens a transaction; where it stands among the open ones.
    fn open_transaction(
        &mut self,
        identifier: Vec<u8>,
        controls: &RequestControls<'_>,
        by: &Arc<Requester>,
    ) -> Result<usize, Outcome> {
        if *by.identity() == Identity::Anonymous {
            let reason = "a transaction needs a bind with a name and a password first";
            return Err(Outcome::new(ResultCode::StrongerAuthRequired, reason));
        }
        if self.operations.lburp.is_open() {
            let reason = "a bulk update (RFC 4373) is open: end it first";
            return Err(Outcome::new(ResultCode::OperationsError, reason));
        }
        let open_max = self.settings.config.limits.transactions_max;
        if self.operations.transactions.open.len() >= open_max {
            let reason =
                format!("a connection has at most {open_max} transactions open (transactions_max)");
            return Err(Outcome::new(ResultCode::AdminLimitExceeded, reason));
        }
        let takes_all = self.has_extension(Extension::ImplicitMembership)?;
        self.operations.transactions.open.push(OpenTransaction {
            identifier,
            by: by.clone(),
            updates: TransactionUpdates::default(),
            ids: None,
            bytes: 0,
            shards: StoreSet::default(),
            is_eager: controls.eager_transaction.is_some(),
            takes_all,
            last_used: Instant::now(),
            share: Share::default(),
        });
        Ok(self.operations.transactions.open.len() - 1)
    }

    /// Which of the open transactions an update belongs to, as its controls say. With implicit start an identifier that
    /// is not known opens one.
    pub(in crate::session) fn transaction_of(
        &mut self,
        controls: &RequestControls<'_>,
        by: &Arc<Requester>,
    ) -> Result<Option<usize>, Outcome> {
        if let Some(identifier) = controls.transaction_specification {
            if let Some(at) = self.operations.transactions.position(identifier) {
                return Ok(Some(at));
            }
            return self.start_implicitly(identifier, controls, by).map(Some);
        }
        if controls.non_transactional.is_some() || !self.operations.transactions.take_all() {
            return Ok(None);
        }
        match self.operations.transactions.open.len() {
            1 => Ok(Some(0)),
            _ => {
                let reason = "several transactions are open: say which one with the transaction specification control";
                Err(Outcome::new(ResultCode::UnwillingToPerform, reason))
            }
        }
    }

    /// Opens a transaction under an identifier that the client has chosen, if implicit start is on.
    fn start_implicitly(
        &mut self,
        identifier: &[u8],
        controls: &RequestControls<'_>,
        by: &Arc<Requester>,
    ) -> Result<usize, Outcome> {
        if !self.has_extension(Extension::ImplicitStart)? {
            return Err(unknown_transaction());
        }
        if self.operations.transactions.is_void(identifier) {
            let reason = "the transaction was aborted or could not be started: end it, or choose another identifier";
            return Err(Outcome::new(ResultCode::UnwillingToPerform, reason));
        }
        if identifier.len() > IDENTIFIER_BYTES_MAX {
            let reason =
                format!("the identifier of a transaction has at most {IDENTIFIER_BYTES_MAX} bytes");
            return Err(Outcome::new(ResultCode::AdminLimitExceeded, reason));
        }
        let opened = self.open_transaction(identifier.to_vec(), controls, by);
        if opened.is_err() {
            self.operations.transactions.make_void(identifier);
        }
        opened
    }

    /// For whom an update of an open transaction is done, which the log says if it is not who asks.
    pub(in crate::session) fn transaction_by(
        &mut self,
        (id, at): (u32, usize),
        asker: &Arc<Requester>,
    ) -> Arc<Requester> {
        let by = self.operations.transactions.open[at].by.clone();
        if !Arc::ptr_eq(&by, asker) {
            self.log_acting(id, &by);
            self.record_asker(id, &by);
        }
        by
    }

    /// Bytes of the updates that are tried again with each update of an open transaction, if they are.
    pub(in crate::session) fn tried_bytes(&self, at: usize) -> Option<usize> {
        let open = &self.operations.transactions.open[at];
        open.is_eager.then_some(open.bytes)
    }

    /// The identifier of an open transaction, for what comes back later.
    pub(in crate::session) fn transaction_identifier(&self, at: usize) -> Vec<u8> {
        self.operations.transactions
            .open
            .get(at)
            .map_or_else(Vec::new, |open| open.identifier.clone())
    }

    /// Makes an update part of a transaction that was open a while ago.
    pub(in crate::session) fn join_identified(
        &mut self,
        identifier: &[u8],
        request: UpdateRequest,
        reply: Reply,
        share: Share,
        unit: &mut Unit<E>,
    ) {
        match self.operations.transactions.position(identifier) {
            Some(at) => {
                let shards = self.service.directory.shards(&request);
                self.join(at, request.view(), reply, shards, share, unit);
            }
            None => self.answer_update(reply, unknown_transaction()),
        }
    }

    /// Makes an update part of an open transaction and answers it; in an eager one it is tried first. A transaction
    /// that grows too large is aborted.
    pub(in crate::session) fn join(
        &mut self,
        at: usize,
        request: RequestView<'_>,
        reply: Reply,
        shards: StoreSet,
        share: Share,
        unit: &mut Unit<E>,
    ) {
        let now = self.now();
        let limits = &self.settings.config.limits;
        let open = &mut self.operations.transactions.open[at];
        if open.has(reply.id) {
            let reason = "the transaction has an update with this message id already";
            let outcome = Outcome::new(ResultCode::ProtocolError, reason);
            return self.answer_update(reply, outcome);
        }
        let bytes = request.bytes() + UPDATE_BYTES;
        let (key, operations_max) = if open.is_eager {
            ("eager_operations_max", limits.eager_operations_max)
        } else {
            (
                "transaction_operations_max",
                limits.transaction_operations_max,
            )
        };
        let refusal = if open.updates.len() >= operations_max {
            let reason = format!("a transaction has at most {operations_max} updates ({key})");
            Some(Outcome::new(ResultCode::AdminLimitExceeded, reason))
        } else if open.bytes + bytes > limits.transaction_bytes_max {
            let reason = format!(
                "a transaction has at most {} bytes (transaction_bytes_max)",
                limits.transaction_bytes_max
            );
            Some(Outcome::new(ResultCode::AdminLimitExceeded, reason))
        } else if !open.reserve(&self.service.memory.transactions, &self.context.claimant, bytes) {
            let reason = "the transactions of all connections take too much memory (open_transactions_bytes_max)";
            Some(Outcome::new(ResultCode::Busy, reason))
        } else {
            None
        };
        if let Some(refusal) = refusal {
            // Without this update the client would not want the others: none of them may take place.
            let open = self.operations.transactions.open.remove(at);
            self.notify_aborted(&open.identifier, &refusal);
            return self.answer_update(reply, refusal);
        }
        open.last_used = now;
        if !open.is_eager {
            open.push(reply.id, request, shards);
            return self.answer_update(reply, Outcome::SUCCESS);
        }
        let mut updates = open.updates.clone();
        updates.push(reply.id, request);
        let (identifier, by) = (open.identifier.clone(), open.by.clone());
        let shards = shards.with(open.shards);
        // What comes next may depend on what becomes of it.
        self.operations.exclusive = Some(reply.id);
        let trial = UpdateRequest::Transaction(Transaction {
            updates,
            is_trial: true,
        });
        let trial_kind = ReplyKind::Trial(Box::new(Trial {
            identifier,
            request: request.to_request(),
            kind: reply.kind,
        }));
        let reply = Reply::new(reply.id, trial_kind);
        unit.answer_room = Some(self.answer_room());
        self.push((trial, &by), reply, shards, share, unit);
    }

    /// An update of an eager transaction has been tried.
    pub(in crate::session) fn tried(&mut self, id: u32, trial: Trial, mut outcome: Outcome) {
        self.operations.exclusive = None;
        let reply = Reply::new(id, trial.kind);
        let failed = outcome.settlement.take().and_then(|told| told.failed);
        if let Some(earlier) = failed.filter(|failed| *failed != id) {
            let reason = format!(
                "the update with message id {earlier}, which was tried with success, fails now: {}",
                outcome.diagnostic
            );
            if self.operations.transactions.remove(&trial.identifier).is_some() {
                let aborted = Outcome::new(outcome.code, reason);
                self.notify_aborted(&trial.identifier, &aborted);
            }
            let reason = "the transaction was aborted, because others have changed what it works on: start it again";
            return self.answer_update(reply, Outcome::new(ResultCode::Busy, reason));
        }
        if outcome.code == ResultCode::Success {
            match self.operations.transactions.position(&trial.identifier) {
                Some(at) => {
                    let shards = self.service.directory.shards(&trial.request);
                    self.operations.transactions.open[at].push(id, trial.request.view(), shards);
                }
                None => outcome = unknown_transaction(),
            }
        }
        self.answer_update(reply, outcome);
    }

    /// The shards of the updates that a request commits, if it is the end of a transaction.
    pub(in crate::session) fn shards_of_end(&self, request: &ExtendedRequest<'_>) -> StoreSet {
        let value = request
            .value
            .filter(|_| request.name == END_TRANSACTION);
        let end = value.and_then(|value| EndTransaction::decode(value).ok());
        let at = end.and_then(|end| self.operations.transactions.position(end.identifier));
        at.map_or(StoreSet::default(), |at| self.operations.transactions.open[at].shards)
    }

    /// End Transaction (RFC 5805 §2.3): its updates go to the writer as one.
    fn end_transaction(
        &mut self,
        id: u32,
        value: Option<&[u8]>,
        burst: &mut Burst<'_, E>,
    ) {
        match self.ended(value) {
            Ok(Some(open)) => {
                let transaction = UpdateRequest::Transaction(Transaction {
                    updates: open.updates,
                    is_trial: false,
                });
                let kind = ReplyKind::EndTransaction;
                let reply = Reply::new(id, kind);
                self.record_asker(id, &open.by);
                // It keeps the memory that it has.
                let (shards, share) = (open.shards, Share::default());
                self.push((transaction, &open.by), reply, shards, share, &mut burst.unit);
                burst.unit.transactions.push(open.share);
                burst.unit.answer_room = Some(self.answer_room());
            }
            Ok(None) => self.answer_extended(id, &Outcome::SUCCESS, None, None),
            Err(outcome) => self.answer_extended(id, &outcome, None, None),
        }
    }

    /// The transaction that is to be committed, unless there is nothing to do.
    fn ended(
        &mut self,
        value: Option<&[u8]>,
    ) -> Result<Option<OpenTransaction>, Outcome> {
        let end = EndTransaction::decode(value.unwrap_or_default()).map_err(|error| {
            let reason = format!("End Transaction: {error}");
            Outcome::new(ResultCode::ProtocolError, reason)
        })?;
        self.operations.transactions.void.retain(|void| void != end.identifier);
        let open = self.operations.transactions.remove(end.identifier);
        let open = open.ok_or_else(unknown_transaction)?;
        Ok((end.commit && !open.updates.is_empty()).then_some(open))
    }

    /// Appends the response that ends a transaction.
    pub(in crate::session) fn answer_end_transaction(&mut self, id: u32, outcome: &Outcome) {
        let mut value = Vec::new();
        if let Some(settlement) = &outcome.settlement {
            let Settlement {
                failed, controls, ..
            } = &**settlement;
            let controls = controls.iter().map(|(id, ber)| (*id, ber.as_slice()));
            put_transaction_ended(&mut value, *failed, controls);
        }
        let value = (!value.is_empty()).then_some(value.as_slice());
        if outcome.code == ResultCode::Referral {
            // RFC 5805 §5: clients do not chase what stands in a transaction.
            let reason = "an update of the transaction concerns an entry that another server holds";
            let outcome = Outcome::new(ResultCode::AffectsMultipleDsas, reason);
            return self.answer_extended(id, &outcome, None, value);
        }
        self.answer_extended(id, outcome, None, value);
    }

    /// When a request is to be answered that was refused before, the transaction that was left alone longest to be
    /// aborted, or the connection of a bulk update ended that is not complete.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        let open = self.operations.transactions.open.iter().map(|open| open.last_used);
        let oldest = open.chain(self.operations.lburp.waits_since()).min();
        let left_alone = oldest.map(|oldest| oldest + self.transaction_idle_max());
        self.failure_due().into_iter().chain(left_alone).chain(self.waiting_due()).min()
    }

    /// Answers a bind that has failed. Ends persistent searches whose time is over. Aborts the transactions that were
    /// left alone for too long. A bulk update of which a request does not come ends the connection (RFC 4373 §7).
    pub(crate) fn expire(&mut self) {
        self.tell_failure();
        self.expire_waiting();
        let (now, idle_max) = (Instant::now(), self.transaction_idle_max());
        let waits_since = self.operations.lburp.waits_since();
        if waits_since.is_some_and(|since| now.duration_since(since) >= idle_max) {
            let reason = format!(
                "a request of the bulk update has not come for {} seconds (transaction_idle_seconds_max)",
                idle_max.as_secs()
            );
            self.disconnect(Reason::Idle, ResultCode::TimeLimitExceeded, &reason);
        }
        let (left_alone, open) = std::mem::take(&mut self.operations.transactions.open)
            .into_iter()
            .partition(|open| now.duration_since(open.last_used) >= idle_max);
        self.operations.transactions.open = open;
        let left_alone: Vec<OpenTransaction> = left_alone;
        for open in left_alone {
            let reason = format!(
                "the transaction was left alone for {} seconds (transaction_idle_seconds_max)",
                idle_max.as_secs()
            );
            let outcome = Outcome::new(ResultCode::TimeLimitExceeded, reason);
            self.notify_aborted(&open.identifier, &outcome);
        }
    }

    fn transaction_idle_max(&self) -> Duration {
        Duration::from_secs(self.settings.config.limits.transaction_idle_seconds_max)
    }

    /// Aborts all transactions, telling the client why.
    pub(in crate::session) fn abort_transactions(&mut self, outcome: &Outcome) {
        for open in std::mem::take(&mut self.operations.transactions.open) {
            self.notify_aborted(&open.identifier, outcome);
        }
    }

    /// Appends the Aborted Transaction Notice (RFC 5805 §2.4).
    fn notify_aborted(&mut self, identifier: &[u8], outcome: &Outcome) {
        // Also while nothing starts by itself: it may before the client has learned of the end.
        self.operations.transactions.make_void(identifier);
        let op = Response::Extended(ExtendedResponse {
            result: LdapResult::new(outcome.code, &outcome.diagnostic),
            name: Some(ABORTED_TRANSACTION),
            value: Some(identifier),
        });
        Message {
            id: 0,
            op,
            controls: Controls::EMPTY,
        }
        .encode(&mut self.output.bytes);
    }
}

fn unknown_transaction() -> Outcome {
    let reason = "no transaction with this identifier is open on this connection";
    Outcome::new(ResultCode::UnwillingToPerform, reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_void_identifier_is_forgotten_for_others() {
        let mut transactions = Transactions::default();
        let identifier = |n: usize| n.to_be_bytes();
        for n in 0..VOID_MAX {
            transactions.make_void(&identifier(n));
        }
        assert!(transactions.is_void(&identifier(0)));
        assert!(!transactions.is_void(&identifier(VOID_MAX)));
        transactions.make_void(&identifier(VOID_MAX));
        assert!((0..2 * VOID_MAX).all(|n| transactions.is_void(&identifier(n))));
        transactions.clear();
        assert!(!transactions.is_void(&identifier(0)));
    }
}
