//! Updates of several threads in one commit.
//!
//! `combiner` says how they come together, and `job` how a thread's work gets to the thread that runs it; here is what they are in the store.

mod combiner;
#[cfg(all(test, not(feature = "shuttle")))]
mod crash_tests;
mod job;
#[cfg(all(test, feature = "shuttle"))]
mod model_tests;

use std::panic::{self, AssertUnwindSafe};

use crate::commit::{self, Durability, Ticket};
use crate::env::{Env, Inner, RESERVE_PAGES};
use crate::error::{Error, Result};
use crate::page::PAGE_BYTES;
use crate::sync::Ordering;
use crate::write::WriteTxn;

use combiner::{Combiner, Failure, Store};
use job::Job;

pub(crate) use combiner::Ran;

/// The updates of a process in a store.
pub(crate) type Updates = Combiner<WriteTxn, Ticket, Error>;

/// When so many pages may have been changed, a group is committed.
const GROUP_PAGES_MAX: u64 = 1024;
/// What a page takes in a log record at most, in bytes.
const PAGE_IN_RECORD_BYTES_MAX: u64 = PAGE_BYTES as u64 + 64;

impl Env {
    /// Does some work in a transaction and commits it; returns when the commit is durable and visible, or as soon as it is logged where
    /// [`Options::durability`](crate::Options::durability) asks for no more. If the work gives an error, or panics, nothing of it happens.
    ///
    /// Threads that update at the same time share a commit: while the disk is busy with one group of updates, the next one is gathered. So many threads
    /// together make many more updates a second than there are syncs of the log, and one alone loses nothing. Each update is atomic and
    /// sees what those before it have done, as if each were a transaction of its own.
    ///
    /// The work may be run by another thread, after works of others and before more of them: all wait for each, so it had better not take long,
    /// and it must not wait for another update. It may not begin one of the same store, nor a write transaction: both
    /// fail with [`Error::WithinUpdate`]. A panic is resumed in the thread that called. An error of the work is told when all that the work had seen is
    /// durable. If the commit itself fails, all that share it get [`Error::SharedCommit`].
    ///
    /// ```
    /// # fn main() -> sapwood_store::Result<()> {
    /// use sapwood_store::{Env, Error, Options, TreeKind};
    ///
    /// let env = Env::in_memory(&Options::new())?;
    /// env.update(|txn| txn.create_tree("visits", TreeKind::COMPACT))?;
    /// std::thread::scope(|scope| {
    ///     for _ in 0..4 {
    ///         scope.spawn(|| {
    ///             env.update(|txn| {
    ///                 let visits = txn.tree("visits")?.ok_or(Error::NoSuchTree)?;
    ///                 let before = txn.get(visits, b"home")?.map_or(0, |value| value[0]);
    ///                 txn.put(visits, b"home", &[before + 1])
    ///             })
    ///         });
    ///     }
    /// });
    /// let snapshot = env.read()?;
    /// let visits = snapshot.tree("visits")?.unwrap();
    /// assert_eq!(visits.get(b"home")?, Some(&[4][..]));
    /// # Ok(())
    /// # }
    /// ```
    pub fn update<T, E>(
        &self,
        work: impl FnOnce(&mut WriteTxn) -> Result<T, E> + Send,
    ) -> Result<T, E>
    where
        T: Send,
        E: From<Error> + Send,
    {
        self.inner().check_may_write()?;
        let mut work = Some(work);
        let mut result = None;
        let mut run = |txn: &mut WriteTxn| {
            let Some(work) = work.take() else {
                return false;
            };
            let ran = panic::catch_unwind(AssertUnwindSafe(|| work(txn)));
            let is_kept = matches!(ran, Ok(Ok(_)));
            result = Some(ran);
            is_kept
        };
        let failure = self.inner().updates.update(self, &mut run).err();
        let error = match (result, failure) {
            (Some(Err(panic)), _) => panic::resume_unwind(panic),
            (Some(Ok(result)), None) => return result,
            (_, Some(Failure::Own(error))) => error,
            (_, Some(Failure::Shared(error))) => Error::SharedCommit(error),
            (_, Some(Failure::Nested)) => Error::WithinUpdate,
            (None, None) => Error::TxnFailed,
        };
        Err(error.into())
    }
}

/// Waits for the writer lock, with `take`, so that no group of updates keeps it for longer than it must. `is_taken` says whether it is taken at all.
pub(crate) fn give_way<R>(
    env: &Env,
    is_taken: impl FnOnce() -> bool,
    take: impl FnOnce() -> R,
) -> R {
    env.inner().updates.give_way(env, is_taken, take)
}

impl Store for Env {
    type Txn = WriteTxn;
    type Ticket = Ticket;
    type Error = Error;

    fn begin(&self) -> Result<WriteTxn> {
        self.write()
    }

    fn run(&self, txn: &mut WriteTxn, is_first: bool, job: Job<WriteTxn>) -> Ran {
        txn.attempt(is_first, |txn| job.run(txn))
    }

    fn is_enough(&self, txn: &WriteTxn) -> bool {
        txn.own().changes_max() >= pages_max(self.inner()) || is_tight(self.inner(), txn)
    }

    fn is_wanted(&self) -> bool {
        self.inner().region.writer.has_heir()
    }

    fn prepare(&self, txn: &mut WriteTxn) -> Result<()> {
        txn.own_mut().finish_waiting()
    }

    fn commit(&self, txn: WriteTxn) -> Result<Ticket> {
        txn.commit()
    }

    fn wait(&self, ticket: &Ticket) -> Result<()> {
        match self.inner().options.durability {
            Durability::Durable => ticket.wait_durable().map(drop),
            Durability::Relaxed => Ok(()),
        }
    }

    fn lost() -> Error {
        Error::TxnFailed
    }
}

/// How many pages a group may change: not so many that it does not go into the log because of the number of its members.
fn pages_max(inner: &Inner) -> u64 {
    match &inner.wal {
        None => GROUP_PAGES_MAX,
        Some(_) => {
            let record_bytes = commit::record_bytes_max(inner) as u64;
            GROUP_PAGES_MAX.min(record_bytes / 2 / PAGE_IN_RECORD_BYTES_MAX)
        }
    }
}

/// Whether pages that one update has freed had better be there for the next: the store has hardly any others, and perhaps gets none.
fn is_tight(inner: &Inner, txn: &WriteTxn) -> bool {
    let pages = txn.own().view().limit();
    let room = inner.region.growth.pages.load(Ordering::Relaxed);
    inner.is_nearly_full(pages) || pages + 2 * RESERVE_PAGES > room
}
