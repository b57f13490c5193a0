//! The engine over `sapwood-store`: nothing is copied on the way from the map to the directory.

mod cursor;
mod read;
mod txn;

use std::path::Path;
use std::sync::OnceLock;

use sapwood_store as store;
use sapwood_store::tree::TreeRecord;
use sapwood_store::{Env, TreeKind};

pub use cursor::{EmbeddedCursor, EmbeddedPostings};
pub use txn::EmbeddedTxn;

use read::Trees;

use super::postings::BlockBuilder;
use super::{
    Bundle, Caps, CommitNo, Engine, Error, Index, Load, Loader, PushPosting, PushRecord, Result,
    Table, Verdict,
};

/// The tree of the change feed: commit number (u64, big-endian) -> record. Under commit 0 stands the last commit whose
/// record was trimmed.
const CHANGE: &str = "change";
const TRIMMED_KEY: [u8; 8] = [0; 8];

/// Trees of ids under keys are counted, so that long lists can be estimated.
const INDEX_KIND: TreeKind = TreeKind::COUNTED;

impl From<store::Error> for Error {
    fn from(error: store::Error) -> Error {
        let text = error.to_string();
        match error {
            store::Error::KeyTooLong(bytes) => Error::TooLarge {
                what: "key",
                bytes,
                limit_bytes: store::KEY_BYTES_MAX,
            },
            store::Error::ValueTooLong(bytes) => Error::TooLarge {
                what: "value",
                bytes,
                limit_bytes: store::VALUE_BYTES_MAX,
            },
            store::Error::Corrupt { .. }
            | store::Error::FromTheFuture { .. }
            | store::Error::Damaged(_) => Error::Corrupt(text),
            _ => Error::Unavailable(text),
        }
    }
}

/// A directory's environment.
#[derive(Clone, Debug)]
pub struct Embedded {
    env: Env,
}

impl Embedded {
    /// Opens the environment in a folder.
    pub fn open(path: &Path, options: &store::Options) -> Result<Embedded> {
        Ok(Embedded {
            env: Env::open(path, options)?,
        })
    }

    /// An environment that lives as long as its last handle.
    pub fn in_memory() -> Result<Embedded> {
        Ok(Embedded {
            env: Env::in_memory(&store::Options::new())?,
        })
    }

    /// The same, beginning with the contents of a backup.
    pub fn in_memory_from(backup: &Path) -> Result<Embedded> {
        Ok(Embedded {
            env: Env::in_memory_from(backup, &store::Options::new())?,
        })
    }

    /// The engine over an environment that is open already, such as one on a simulated disk.
    pub fn over(env: Env) -> Embedded {
        Embedded { env }
    }

    /// The environment, for what concerns pages and files: check, backup, figures.
    pub fn env(&self) -> &Env {
        &self.env
    }
}

fn kind(table: Table) -> TreeKind {
    TreeKind {
        counted: table.is_counted(),
        ..TreeKind::COMPACT
    }
}

/// The position of a table in [`Table::FIXED`].
#[inline]
fn fixed(table: Table) -> Option<usize> {
    match table {
        Table::Name => Some(0),
        Table::Entry => Some(1),
        Table::State => Some(2),
        Table::Attribute => Some(3),
        Table::Meta => Some(4),
        Table::Order(_) => None,
    }
}

impl Engine for Embedded {
    type Snapshot = EmbeddedSnapshot;
    type Ticket = EmbeddedTicket;

    fn caps(&self) -> Caps {
        Caps {
            key_bytes_max: store::KEY_BYTES_MAX,
            value_bytes_max: store::VALUE_BYTES_MAX,
            transaction_bytes_max: usize::MAX,
            snapshot_age_max: None,
        }
    }

    fn snapshot(&self) -> Result<EmbeddedSnapshot> {
        Ok(EmbeddedSnapshot {
            snapshot: self.env.read()?,
            fixed: Default::default(),
            indexes: Default::default(),
        })
    }

    fn write<B: Bundle>(&self, bundle: &mut B) -> Result<Option<EmbeddedTicket>> {
        let mut txn = EmbeddedTxn::new(self.env.write()?)?;
        bundle.begin(&mut txn)?;
        let operations = bundle.operations();
        let mut kept = 0;
        for operation in 0..operations {
            // Alone, or standing and falling with the others, an operation is undone by dropping the transaction.
            let savepoint = (operations > 1 && !bundle.stands_or_falls_as_one())
                .then(|| (txn.txn.savepoint(), txn.trees.clone()));
            match (bundle.apply(&mut txn, operation)?, savepoint) {
                (Verdict::Keep, savepoint) => {
                    kept += 1;
                    if let Some((savepoint, _)) = savepoint {
                        txn.txn.release(savepoint);
                    }
                }
                (Verdict::Undo, Some((savepoint, trees))) => {
                    txn.txn.rollback_to(&savepoint);
                    txn.txn.release(savepoint);
                    txn.trees = trees;
                }
                (Verdict::Undo, None) => return Ok(None),
            }
        }
        if kept == 0 {
            return Ok(None);
        }
        bundle.finish(&mut txn)?;
        Ok(Some(EmbeddedTicket {
            ticket: txn.txn.commit()?,
        }))
    }

    fn load<L: Load>(&self, load: &mut L) -> Result<CommitNo> {
        self.drop_empty_trees()?;
        let mut loader = EmbeddedLoader {
            bulk: self.env.bulk()?,
        };
        load.run(&mut loader)?;
        Ok(CommitNo(loader.bulk.commit()?.0))
    }

    fn changes(
        &self,
        after: CommitNo,
        mut each: impl FnMut(CommitNo, &[u8]) -> bool,
    ) -> Result<()> {
        let snapshot = self.env.read()?;
        let Some(tree) = snapshot.tree(CHANGE)? else {
            return Ok(());
        };
        if let Some(trimmed) = tree.get(&TRIMMED_KEY)?
            && commit_of(trimmed)? > after
        {
            return Err(Error::TooOld);
        }
        let mut cursor = tree.cursor();
        let mut standing = cursor.seek(&(after.0.saturating_add(1)).to_be_bytes())?;
        while standing {
            let Some((key, record)) = cursor.record()? else {
                break;
            };
            if !each(commit_of(key)?, record) {
                break;
            }
            standing = cursor.next()?;
        }
        Ok(())
    }
}

impl Embedded {
    /// A bulk build makes its trees: those that exist and are empty give way.
    fn drop_empty_trees(&self) -> Result<()> {
        let mut txn = self.env.write()?;
        let names = self.env.read()?.tree_names()?;
        let mut dropped = false;
        for name in names {
            if let Some(tree) = txn.tree(&name)?
                && txn.view(tree)?.record().records == 0
            {
                dropped |= txn.drop_tree(&name)?;
            }
        }
        if dropped {
            txn.commit()?.wait()?;
        }
        Ok(())
    }
}

fn commit_of(key: &[u8]) -> Result<CommitNo> {
    let bytes = key
        .try_into()
        .map_err(|_| Error::Corrupt("a key of the change feed is no commit number".into()))?;
    Ok(CommitNo(u64::from_be_bytes(bytes)))
}

/// A commit of the store on its way to the disk.
#[derive(Clone, Debug)]
pub struct EmbeddedTicket {
    ticket: store::Ticket,
}

impl super::Ticket for EmbeddedTicket {
    fn is_durable(&self) -> bool {
        self.ticket.is_durable()
    }

    fn wait(self) -> Result<CommitNo> {
        match self.ticket.wait() {
            Ok(commit) => Ok(CommitNo(commit.0)),
            Err(error) => Err(Error::Undetermined(error.to_string())),
        }
    }
}

/// A snapshot of the store.
#[derive(Debug)]
pub struct EmbeddedSnapshot {
    snapshot: store::Snapshot,
    /// The fixed tables' trees, looked up when they are first needed.
    fixed: [OnceLock<Option<TreeRecord>>; Table::FIXED.len()],
    /// The indexes' trees, in the order in which they were needed.
    indexes: [OnceLock<(Index, Option<TreeRecord>)>; INDEXES_KNOWN_MAX],
}

/// How many indexes' trees a snapshot remembers; more are looked up each time.
const INDEXES_KNOWN_MAX: usize = 12;

impl Trees for EmbeddedSnapshot {
    fn commit(&self) -> CommitNo {
        CommitNo(self.snapshot.commit().0)
    }

    #[inline]
    fn table(&self, table: Table) -> Result<Option<store::Tree<'_>>> {
        let known = fixed(table).and_then(|at| self.fixed.get(at));
        match known.and_then(OnceLock::get) {
            Some(Some(record)) => Ok(Some(self.snapshot.tree_of(*record)?)),
            Some(None) => Ok(None),
            None => {
                let tree = self.snapshot.tree(table.name())?;
                if let Some(known) = known {
                    // Another thread may have been faster, with the same answer.
                    let _ = known.set(tree.map(|tree| *tree.record()));
                }
                Ok(tree)
            }
        }
    }

    fn blocks(&self, index: Index) -> Result<Option<store::Tree<'_>>> {
        for known in &self.indexes {
            match known.get() {
                Some((of, None)) if *of == index => return Ok(None),
                Some((of, Some(record))) if *of == index => {
                    return Ok(Some(self.snapshot.tree_of(*record)?));
                }
                Some(_) => {}
                None => {
                    let tree = self.snapshot.tree(index.name())?;
                    // Another thread may have been faster; then it is looked up once more.
                    let _ = known.set((index, tree.map(|tree| *tree.record())));
                    return Ok(tree);
                }
            }
        }
        Ok(self.snapshot.tree(index.name())?)
    }
}

/// A bulk build of the store.
struct EmbeddedLoader {
    bulk: store::BulkLoad,
}

impl Loader for EmbeddedLoader {
    fn table(
        &mut self,
        table: Table,
        fill: impl FnOnce(&mut PushRecord<'_>) -> Result<()>,
    ) -> Result<()> {
        let bulk = &mut self.bulk;
        let mut tree = bulk.tree(table.name(), kind(table))?;
        fill(&mut |key, value| Ok(tree.push(bulk, key, value)?))?;
        tree.finish(bulk)?;
        Ok(())
    }

    fn index(
        &mut self,
        index: Index,
        fill: impl FnOnce(&mut PushPosting<'_>) -> Result<()>,
    ) -> Result<()> {
        let bulk = &mut self.bulk;
        let mut tree = bulk.tree(index.name(), INDEX_KIND)?;
        let mut blocks = BlockBuilder::default();
        let mut push = |key: &[u8], value: &[u8]| Ok(tree.push(bulk, key, value)?);
        fill(&mut |key, id| blocks.post(key, id, &mut push))?;
        blocks.flush(&mut push)?;
        tree.finish(bulk)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fixed_tables_know_their_positions() {
        for (at, table) in Table::FIXED.into_iter().enumerate() {
            assert_eq!(fixed(table), Some(at));
        }
    }
}
