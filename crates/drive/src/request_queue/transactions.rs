//! Transactions of a connection (RFC 5805): updates are sent in them, and count as failed when they are not committed.

use sapwood_client::{Error, OperationError};
use sapwood_ldap::message::{Response, ResponseMessage};
use sapwood_ldap::result::ResultCode;

use super::{RequestKind, RequestQueue, slot_of};
use crate::stats::Stats;
use crate::transaction;
use crate::values::TRANSACTION;

/// The most ends of transactions in flight when another transaction is started. It is a limit for the server's sake,
/// which keeps all updates of a transaction until its end.
const ENDS_IN_FLIGHT_MAX: u32 = 1;

/// Why an update failed that was answered as expected.
const NOT_COMMITTED: &str = "its transaction was not committed";

/// The state of a connection's current transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Transaction {
    None,
    Starting,
    /// Takes this many more updates.
    Open(u32),
}

/// The number of no transaction.
pub(super) const OUTSIDE: u8 = 0;

/// The updates of a transaction that were answered as expected. They have failed after all if it is not committed.
#[derive(Debug)]
pub(super) struct Uncommitted {
    pub(super) number: u8,
    /// The slot of the request that ends the transaction.
    end: Option<usize>,
    /// How many, by the index of their label.
    pub(super) answered: Vec<u64>,
}

impl Uncommitted {
    /// Labels, each with its number of updates.
    pub(super) fn counts(&self) -> impl Iterator<Item = (usize, u64)> {
        let counts = self.answered.iter().copied().enumerate();
        counts.filter(|(_, count)| *count > 0)
    }
}

impl RequestQueue {
    /// Whether a transaction is open. Asks for one if none is.
    pub(super) fn ensure_transaction(&mut self, now_ns: u64, out: &mut Vec<u8>) -> bool {
        let ends_max = match self.pipelines_starts {
            true => ENDS_IN_FLIGHT_MAX,
            false => 0,
        };
        if self.transaction == Transaction::None && self.ends_in_flight <= ends_max {
            let id = self.take_slot(RequestKind::StartTransaction, now_ns);
            transaction::put_start(id, out);
            self.transaction = Transaction::Starting;
        }
        matches!(self.transaction, Transaction::Open(_))
    }

    /// Asks for the open transaction to be committed.
    pub(super) fn commit(&mut self, now_ns: u64, out: &mut Vec<u8>) {
        let id = self.take_slot(RequestKind::EndTransaction, now_ns);
        self.ends_in_flight += 1;
        if let Some(uncommitted) = self.uncommitted.iter_mut().find(|own| own.end.is_none()) {
            uncommitted.end = Some(slot_of(id));
        }
        transaction::put_commit(id, self.values.get(TRANSACTION), out);
        self.transaction = Transaction::None;
        // The next transaction is asked for at once, so that each costs one round trip.
        if !self.is_done {
            self.ensure_transaction(now_ns, out);
        }
    }

    /// Takes the answer to a transaction's start or end.
    pub(super) fn transaction_answer(
        &mut self,
        kind: RequestKind,
        slot: usize,
        message: &[u8],
        now_ns: u64,
        stats: &mut Stats,
    ) -> Result<(), Error> {
        let label = match kind {
            RequestKind::StartTransaction => self.shared.start_label,
            _ => self.shared.end_label,
        };
        let due_ns = self.slots[slot].due_ns;
        self.free_slot(slot);
        let Response::Extended(response) = ResponseMessage::decode(message)?.op else {
            return Err(Error::UnexpectedResponse);
        };
        match kind {
            RequestKind::StartTransaction
                if response.result.code == ResultCode::Busy && self.pipelines_starts =>
            {
                // Like OpenLDAP's, the server takes one transaction at a time. From now on each start waits for the
                // answer to the end before.
                self.pipelines_starts = false;
                self.transaction = Transaction::None;
                return Ok(());
            }
            RequestKind::EndTransaction => {
                self.ends_in_flight -= 1;
                let is_committed = response.result.code == ResultCode::Success;
                self.close(Some(slot), is_committed, stats);
            }
            _ => {}
        }
        let counts = &mut stats.operations[label];
        counts.answered += 1;
        counts
            .latency
            .saturating_record(now_ns.saturating_sub(due_ns));
        if response.result.code != ResultCode::Success {
            let error = OperationError::new(&response.result);
            stats.fail(label, error.to_string(), 1);
            // A session with transactions can do nothing without them.
            return match kind {
                RequestKind::StartTransaction => Err(error.into()),
                _ => Ok(()),
            };
        }
        if kind == RequestKind::StartTransaction {
            if let Some(value) = self.values.slot(TRANSACTION) {
                value.set(response.value.unwrap_or_default());
            }
            let length = self.shared.transaction.unwrap_or(1);
            self.transaction = Transaction::Open(length);
            self.transaction_number = self
                .transaction_number
                .checked_add(1)
                .unwrap_or(OUTSIDE + 1);
            self.uncommitted.push(Uncommitted {
                number: self.transaction_number,
                end: None,
                answered: vec![0; stats.operations.len()],
            });
        }
        Ok(())
    }

    /// Forgets a transaction that is over; `end` is the slot of the request that ended it. If it is not committed,
    /// counts its updates as failed.
    pub(super) fn close(&mut self, end: Option<usize>, is_committed: bool, stats: &mut Stats) {
        let Some(index) = self.uncommitted.iter().position(|own| own.end == end) else {
            return;
        };
        let uncommitted = self.uncommitted.swap_remove(index);
        if is_committed {
            return;
        }
        for (label, count) in uncommitted.counts() {
            stats.fail(label, NOT_COMMITTED.to_owned(), count);
        }
    }
}
