//! Transactions and snapshots over several stores of an environment.
//!
//! A multi-store transaction is one record in the log, so it is durable in all its stores or in none. It becomes
//! visible when the log is durable up to its record, and the one that wants to see several stores at one moment first
//! shows in each of them all that is durable and applied; if nothing became durable or visible while the snapshots were
//! taken, they belong together.

use std::fmt;

use crate::commit::Ticket;
use crate::env::{Env, Inner};
use crate::error::{Error, Result};
use crate::ids::CommitNo;
use crate::log::append::AppendLock;
use crate::sync::{Arc, Ordering};
use crate::txn::WriteTxn;
use crate::txn::snapshot::Snapshot;

/// Snapshots of all stores, of one moment. `begin` takes one of them, of which `commit` tells what it sees.
pub(crate) fn read<T>(
    stores: &[Arc<Inner>],
    begin: impl Fn(&Arc<Inner>) -> Result<T>,
    commit: impl Fn(&T) -> CommitNo,
) -> Result<Vec<T>> {
    let begin_all = || stores.iter().map(&begin).collect();
    let Some(first) = stores.first() else {
        return Ok(Vec::new());
    };
    first.check_usable()?;
    let Some(wal) = &first.wal else {
        // In memory, commits are shown by the one that has this lock.
        let _nobody_commits = AppendLock::take(first)?;
        return begin_all();
    };
    loop {
        let durable = wal.durable();
        if first.first_region().log_applied.load(Ordering::SeqCst) < durable.0 {
            // Somebody is between appending a record and applying it to its stores, or died there.
            drop(AppendLock::take(first)?);
            continue;
        }
        for store in stores {
            store.region.publish_ready(|| durable);
        }
        let snapshots: Vec<T> = begin_all()?;
        let is_newest =
            |(store, snapshot): (&Arc<Inner>, &T)| store.region.visible() == commit(snapshot);
        if stores.iter().zip(&snapshots).all(is_newest) && wal.durable() == durable {
            return Ok(snapshots);
        }
    }
}

/// A write transaction over several stores: one commit, which happens in all of them or in none. While it is open it is
/// the one write transaction of each. Dropped without [`MultiStoreTxn::commit`], it leaves no trace.
#[must_use = "a transaction that is dropped without being committed changes nothing"]
pub struct MultiStoreTxn {
    /// In ascending order of their stores, which is the order in which everybody waits for them.
    txns: Vec<(usize, WriteTxn)>,
}

impl Env {
    /// A snapshot of each store, by number, all of the same moment: of a transaction over several stores they show
    /// everything or nothing, and with a commit all that was visible before it.
    pub fn read_stores(&self) -> Result<Vec<Snapshot>> {
        read(&self.owner().stores, Snapshot::begin, Snapshot::commit)
    }

    /// Begins a transaction over several stores, named by their numbers, which waits for the write transactions in each
    /// of them.
    ///
    /// Fails with [`Error::NoSuchStore`] if there are not so many.
    ///
    /// ```
    /// # fn main() -> sapwood_store::Result<()> {
    /// # use sapwood_store::{Env, Options, TreeKind};
    /// let env = Env::in_memory(&Options::new().stores(2))?;
    /// let mut txn = env.write_stores(&[0, 1])?;
    /// for number in [0, 1] {
    ///     let store = txn.store(number)?;
    ///     let tree = store.create_tree("accounts", TreeKind::COMPACT)?;
    ///     store.put(tree, b"balance", b"100")?;
    /// }
    /// txn.commit()?.wait_durable()?;
    ///
    /// let snapshots = env.read_stores()?;
    /// assert!(snapshots[0].tree("accounts")?.is_some() && snapshots[1].tree("accounts")?.is_some());
    /// # Ok(())
    /// # }
    /// ```
    pub fn write_stores(&self, numbers: &[usize]) -> Result<MultiStoreTxn> {
        MultiStoreTxn::begin(self, numbers)
    }
}

impl MultiStoreTxn {
    pub(crate) fn begin(env: &Env, numbers: &[usize]) -> Result<Self> {
        let mut numbers = numbers.to_vec();
        numbers.sort_unstable();
        numbers.dedup();
        let txns = numbers.into_iter().map(|number| {
            let store = env.store(number).ok_or(Error::NoSuchStore(number))?;
            Ok((number, store.write()?))
        });
        Ok(Self {
            txns: txns.collect::<Result<_>>()?,
        })
    }

    /// The transaction's part in one of its stores, by the number of that.
    ///
    /// Fails with [`Error::NoSuchStore`] if the transaction was not begun over it.
    pub fn store(&mut self, number: usize) -> Result<&mut WriteTxn> {
        let txn = self.txns.iter_mut().find(|(of, _)| *of == number);
        txn.map(|(_, txn)| txn).ok_or(Error::NoSuchStore(number))
    }

    /// As [`WriteTxn::commit`], for all stores at once. Whatever the environment's [`Durability`](crate::Durability),
    /// the commit is visible only when it is durable.
    pub fn commit(self) -> Result<MultiStoreTicket> {
        WriteTxn::commit_stores(self.txns.into_iter().map(|(_, txn)| txn).collect())
    }
}

impl fmt::Debug for MultiStoreTxn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&self.txns).finish()
    }
}

/// The claim to a commit over several stores, as [`Ticket`] is to that of one: durable when
/// [`MultiStoreTicket::wait_durable`] has returned.
///
/// ```compile_fail
/// #![deny(unused_must_use)]
/// # use sapwood_store::{Env, Options, Result};
/// # fn main() -> Result<()> {
/// # let env = Env::in_memory(&Options::new().stores(2))?;
/// env.write_stores(&[0, 1])?.commit()?;
/// # Ok(())
/// # }
/// ```
#[must_use = "the commit may be lost before `wait_durable` has returned; drop the ticket to leave it to a later commit"]
#[derive(Clone, Debug)]
pub struct MultiStoreTicket {
    tickets: Vec<Ticket>,
}

impl MultiStoreTicket {
    pub(crate) fn new(tickets: Vec<Ticket>) -> Self {
        Self { tickets }
    }

    /// Whether the commit is durable, and visible in all its stores.
    pub fn is_durable(&self) -> bool {
        self.tickets.iter().all(Ticket::is_durable)
    }

    /// Waits until the commit is durable and visible in all its stores.
    pub fn wait_durable(&self) -> Result<()> {
        self.tickets
            .iter()
            .try_for_each(|ticket| ticket.wait_durable().map(drop))
    }

    /// The claims to the parts, in ascending order of their stores.
    pub fn tickets(&self) -> &[Ticket] {
        &self.tickets
    }
}
