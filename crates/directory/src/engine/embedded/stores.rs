//! The stores of one environment, read and written together.

use std::fs::File;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use sapwood_store as store;
use sapwood_store::{BulkLoad, Env, MultiStoreTicket, Snapshot, WriteTxn};

use super::feed::Turns;
use crate::engine::placement::StoreSet;
use crate::engine::{CommitNo, Error, Result};

/// A handle to each store, by number. There is always a first one.
#[derive(Clone, Debug)]
pub(super) struct Stores {
    envs: Vec<Env>,
    /// The last commit to the first store together with others. Others may write to what it changed there before it is
    /// visible in the first store.
    last_multi_store: Arc<Mutex<Option<MultiStoreTicket>>>,
    turns: Arc<Turns>,
    /// The environment's folder, locked, if there are several stores and this may write.
    lock: Option<Arc<File>>,
}

impl Stores {
    /// All stores of an environment.
    pub(super) fn of(env: Env) -> Stores {
        let mut stores = Vec::from_iter((1..env.stores()).filter_map(|number| env.store(number)));
        stores.insert(0, env);
        Stores {
            envs: stores,
            last_multi_store: Arc::default(),
            turns: Arc::default(),
            lock: None,
        }
    }

    /// Keeps all other processes from writing to the environment in a folder while there is a handle to it. Several
    /// processes may write to a single store. The writer of several stores remembers the last multi-store commit and
    /// the last turn, which other processes would not know.
    pub(super) fn alone(mut self, folder: &Path) -> Result<Stores> {
        if self.count() > 1 {
            self.lock = Some(Arc::new(lock_folder(folder)?));
        }
        Ok(self)
    }

    /// The turns of transactions in the change feed.
    pub(super) fn turns(&self) -> &Turns {
        &self.turns
    }

    pub(super) fn count(&self) -> usize {
        self.envs.len()
    }

    pub(super) fn all(&self) -> &[Env] {
        &self.envs
    }

    pub(super) fn first(&self) -> &Env {
        &self.envs[0]
    }

    /// One moment of the first store, and of the others.
    #[inline]
    pub(super) fn read(&self) -> Result<(Snapshot, Vec<Snapshot>)> {
        if self.count() == 1 {
            return Ok((self.first().read()?, Vec::new()));
        }
        let mut snapshots = self.first().read_stores()?;
        let others = snapshots.split_off(1);
        let first = snapshots.pop();
        let first = first.ok_or_else(|| Error::Corrupt("the environment has no store".into()))?;
        Ok((first, others))
    }

    /// Waits until the first store shows all that belongs to what a transaction finds in its own stores. Entries there
    /// may have attributes whose numbers were given in the same commit.
    pub(super) fn settle(&self) -> Result<()> {
        let last = lock(&self.last_multi_store).clone();
        match last {
            Some(ticket) if !ticket.is_durable() => Ok(ticket.wait_durable()?),
            _ => Ok(()),
        }
    }

    /// Begins a transaction over some of them, in the order in which everybody waits for them.
    pub(super) fn write(&self, stores: StoreSet) -> Result<StoresTxn> {
        let txn = |store: usize| Ok::<_, Error>((store, self.envs[store].write()?));
        let mut held = (0..self.count()).filter(|store| stores.contains(*store as u16));
        let first = txn(held.next().unwrap_or(0))?;
        Ok(StoresTxn {
            first,
            others: held.map(txn).collect::<Result<_>>()?,
            last_multi_store: self.last_multi_store.clone(),
        })
    }

    /// Begins bulk loads of all of them.
    pub(super) fn bulk(&self) -> Result<Vec<BulkLoad>> {
        self.envs.iter().map(|env| Ok(env.bulk()?)).collect()
    }
}

fn lock_folder(folder: &Path) -> Result<File> {
    let failed = |error: std::io::Error| {
        let text = format!("{} cannot be locked: {error}", folder.display());
        Error::Unavailable(text)
    };
    let file = File::open(folder).map_err(failed)?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(file),
        Err(Errno::WOULDBLOCK) => Err(Error::Unavailable(
            "another process has it open for writing, and a directory in several stores has one writing process at a time"
                .into(),
        )),
        Err(error) => Err(failed(error.into())),
    }
}

/// A transaction over some stores: one commit.
#[derive(Debug)]
pub(super) struct StoresTxn {
    first: (usize, WriteTxn),
    others: Vec<(usize, WriteTxn)>,
    last_multi_store: Arc<Mutex<Option<MultiStoreTicket>>>,
}

impl StoresTxn {
    /// How many stores it has.
    pub(super) fn len(&self) -> usize {
        1 + self.others.len()
    }

    /// The number of a store of it, by its position.
    fn store(&self, at: usize) -> usize {
        match at {
            0 => self.first.0,
            at => self.others[at - 1].0,
        }
    }

    /// The position of a store in it.
    pub(super) fn position(&self, store: usize) -> Option<usize> {
        (0..self.len()).find(|at| self.store(*at) == store)
    }

    #[inline]
    pub(super) fn txn(&self, at: usize) -> &WriteTxn {
        match at {
            0 => &self.first.1,
            at => &self.others[at - 1].1,
        }
    }

    #[inline]
    pub(super) fn txn_mut(&mut self, at: usize) -> &mut WriteTxn {
        match at {
            0 => &mut self.first.1,
            at => &mut self.others[at - 1].1,
        }
    }

    pub(super) fn commit(self) -> Result<Claim> {
        let (number, first) = self.first;
        if self.others.is_empty() {
            return Ok(Claim::One(first.commit()?));
        }
        let others = self.others.into_iter().map(|(_, txn)| txn);
        let txns = std::iter::once(first).chain(others).collect();
        // Held until the commit is noted, because the next writer may begin before this call returns.
        let mut last = (number == 0).then(|| lock(&self.last_multi_store));
        let ticket = WriteTxn::commit_stores(txns)?;
        if let Some(last) = &mut last {
            **last = Some(ticket.clone());
        }
        Ok(Claim::Several(ticket))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A commit on its way to the disk.
#[derive(Clone, Debug)]
pub(super) enum Claim {
    One(store::Ticket),
    Several(MultiStoreTicket),
}

impl Claim {
    pub(super) fn is_durable(&self) -> bool {
        match self {
            Claim::One(ticket) => ticket.is_durable(),
            Claim::Several(ticket) => ticket.is_durable(),
        }
    }

    /// The commit's number in the first of its stores.
    pub(super) fn wait(self) -> store::Result<CommitNo> {
        let commit = match self {
            Claim::One(ticket) => Some(ticket.wait_durable()?),
            Claim::Several(ticket) => {
                ticket.wait_durable()?;
                ticket.tickets().first().map(store::Ticket::commit)
            }
        };
        Ok(CommitNo(commit.map_or(0, |commit| commit.0)))
    }
}
