//! The engine over `sapwood-store`: nothing is copied on the way from the map to the directory.

use std::ops::Bound;
use std::path::Path;
use std::sync::OnceLock;

use sapwood_store as store;
use sapwood_store::page::ReadPages;
use sapwood_store::tree::{Cursor as StoreCursor, TreeRecord, View};
use sapwood_store::{BulkTree, Env, TreeId, TreeKind, WriteTxn};

use super::postings::{self, BlockBuilder, BlockCursor, BlockTree, BlockTreeMut, List, Scratch};
use super::{
    AttributeNo, Bundle, Caps, CommitNo, Cursor, Direction, Engine, EntryId, Error, Index, Load,
    Loader, PushPosting, PushRecord, Range, Read, Result, Table, Verdict, Write,
};

/// The tree of the change feed: commit number (u64, big-endian) -> record. Under commit 0 stands the last commit whose
/// record was trimmed.
const CHANGE: &str = "change";
const TRIMMED_KEY: [u8; 8] = [0; 8];

/// Trees of ids under keys are counted, so that long lists can be estimated.
const INDEX_KIND: TreeKind = TreeKind { counted: true };

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
    }
}

/// The position of a table in [`Table::FIXED`].
#[inline]
fn fixed(table: Table) -> Option<usize> {
    match table {
        Table::Name => Some(0),
        Table::Entry => Some(1),
        Table::Operational => Some(2),
        Table::State => Some(3),
        Table::Attribute => Some(4),
        Table::Meta => Some(5),
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
}

impl EmbeddedSnapshot {
    #[inline]
    fn tree(&self, table: Table) -> Result<Option<store::Tree<'_>>> {
        let known = fixed(table).and_then(|at| self.fixed.get(at));
        match known.and_then(OnceLock::get) {
            Some(Some(record)) => Ok(Some(self.snapshot.tree_of(*record)?)),
            Some(None) => Ok(None),
            None => {
                let tree = self.snapshot.tree(table.name().as_str())?;
                if let Some(known) = known {
                    // Another thread may have been faster, with the same answer.
                    let _ = known.set(tree.map(|tree| *tree.record()));
                }
                Ok(tree)
            }
        }
    }

    fn blocks(&self, index: Index) -> Result<Option<store::Tree<'_>>> {
        Ok(self.snapshot.tree(index.name().as_str())?)
    }
}

impl Read for EmbeddedSnapshot {
    type Value<'r> = &'r [u8];
    type Cursor<'r> = EmbeddedCursor<'r>;
    type Postings<'r> = EmbeddedPostings<'r>;

    fn commit(&self) -> CommitNo {
        CommitNo(self.snapshot.commit().0)
    }

    fn get(&self, table: Table, key: &[u8]) -> Result<Option<&[u8]>> {
        get(self.tree(table)?, key)
    }

    fn scan(
        &self,
        table: Table,
        range: Range<'_>,
        direction: Direction,
    ) -> Result<EmbeddedCursor<'_>> {
        EmbeddedCursor::new(self.tree(table)?, range, direction)
    }

    fn estimate(&self, table: Table, range: Range<'_>) -> Result<u64> {
        estimate(self.tree(table)?, range)
    }

    fn postings(&self, index: Index, key: &[u8]) -> Result<EmbeddedPostings<'_>> {
        EmbeddedPostings::new(index, self.blocks(index)?, key)
    }

    fn scan_index(
        &self,
        index: Index,
        range: Range<'_>,
        each: impl FnMut(&[u8], EntryId) -> bool,
    ) -> Result<()> {
        self.blocks(index)?
            .map_or(Ok(()), |tree| postings::scan(index, tree, range, each))
    }

    fn cardinality(&self, index: Index, key: &[u8]) -> Result<u64> {
        self.blocks(index)?
            .map_or(Ok(0), |tree| postings::cardinality(index, tree, key))
    }

    fn has_index(&self, index: Index) -> Result<bool> {
        Ok(self.blocks(index)?.is_some())
    }
}

fn get<'t>(tree: Option<store::Tree<'t>>, key: &[u8]) -> Result<Option<&'t [u8]>> {
    match tree {
        Some(tree) => Ok(tree.get(key)?),
        None => Ok(None),
    }
}

fn estimate(tree: Option<store::Tree<'_>>, range: Range<'_>) -> Result<u64> {
    match tree {
        Some(tree) => Ok(tree.estimate(range.from, range.to)?),
        None => Ok(0),
    }
}

/// The write transaction of the store, with the trees it has touched.
#[derive(Debug)]
pub struct EmbeddedTxn {
    txn: WriteTxn,
    trees: Trees,
    scratch: ScratchBox,
}

/// The trees known to a transaction. The fixed tables are looked up at its beginning, all others when they are needed.
#[derive(Clone, Debug, Default)]
struct Trees {
    fixed: [Option<TreeId>; Table::FIXED.len()],
    order: Vec<(Table, TreeId)>,
    indexes: Vec<(Index, TreeId)>,
}

#[derive(Default)]
struct ScratchBox(Box<Scratch>);

impl std::fmt::Debug for ScratchBox {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Scratch")
    }
}

impl EmbeddedTxn {
    fn new(mut txn: WriteTxn) -> Result<EmbeddedTxn> {
        let mut trees = Trees::default();
        for (table, place) in Table::FIXED.iter().zip(&mut trees.fixed) {
            *place = txn.tree(table.name().as_str())?;
        }
        Ok(EmbeddedTxn {
            txn,
            trees,
            scratch: ScratchBox::default(),
        })
    }

    /// The tree to write a table to, made when it is missing.
    fn tree_mut(&mut self, table: Table) -> Result<TreeId> {
        if let Some(tree) = self.open_table(table)? {
            return Ok(tree);
        }
        let tree = self.txn.create_tree(table.name().as_str(), kind(table))?;
        match fixed(table) {
            Some(at) => self.trees.fixed[at] = Some(tree),
            None => self.trees.order.push((table, tree)),
        }
        Ok(tree)
    }

    fn open_table(&mut self, table: Table) -> Result<Option<TreeId>> {
        if let Some(at) = fixed(table) {
            return Ok(self.trees.fixed[at]);
        }
        if let Some((_, tree)) = self.trees.order.iter().find(|(known, _)| *known == table) {
            return Ok(Some(*tree));
        }
        let tree = self.txn.tree(table.name().as_str())?;
        self.trees.order.extend(tree.map(|tree| (table, tree)));
        Ok(tree)
    }

    fn open_blocks(&mut self, index: Index) -> Result<Option<TreeId>> {
        if let Some((_, tree)) = self.trees.indexes.iter().find(|(known, _)| *known == index) {
            return Ok(Some(*tree));
        }
        let tree = self.txn.tree(index.name().as_str())?;
        self.trees.indexes.extend(tree.map(|tree| (index, tree)));
        Ok(tree)
    }

    fn existing_blocks(&mut self, index: Index) -> Result<TreeId> {
        self.open_blocks(index)?.ok_or_else(|| {
            Error::Corrupt(format!("index {} does not exist", index.name().as_str()))
        })
    }

    fn tree(&self, table: Table) -> Result<Option<store::Tree<'_>>> {
        let tree = match fixed(table) {
            Some(at) => self.trees.fixed[at],
            None => self
                .trees
                .order
                .iter()
                .find(|(known, _)| *known == table)
                .map(|(_, tree)| *tree),
        };
        tree.map(|tree| self.txn.view(tree))
            .transpose()
            .map_err(Error::from)
    }

    fn blocks(&self, index: Index) -> Result<Option<store::Tree<'_>>> {
        let tree = self.trees.indexes.iter().find(|(known, _)| *known == index);
        tree.map(|(_, tree)| self.txn.view(*tree))
            .transpose()
            .map_err(Error::from)
    }
}

impl Read for EmbeddedTxn {
    type Value<'r> = &'r [u8];
    type Cursor<'r> = EmbeddedCursor<'r>;
    type Postings<'r> = EmbeddedPostings<'r>;

    fn commit(&self) -> CommitNo {
        CommitNo(self.txn.commit_no().0)
    }

    fn get(&self, table: Table, key: &[u8]) -> Result<Option<&[u8]>> {
        get(self.tree(table)?, key)
    }

    fn scan(
        &self,
        table: Table,
        range: Range<'_>,
        direction: Direction,
    ) -> Result<EmbeddedCursor<'_>> {
        EmbeddedCursor::new(self.tree(table)?, range, direction)
    }

    fn estimate(&self, table: Table, range: Range<'_>) -> Result<u64> {
        estimate(self.tree(table)?, range)
    }

    fn postings(&self, index: Index, key: &[u8]) -> Result<EmbeddedPostings<'_>> {
        EmbeddedPostings::new(index, self.blocks(index)?, key)
    }

    fn scan_index(
        &self,
        index: Index,
        range: Range<'_>,
        each: impl FnMut(&[u8], EntryId) -> bool,
    ) -> Result<()> {
        self.blocks(index)?
            .map_or(Ok(()), |tree| postings::scan(index, tree, range, each))
    }

    fn cardinality(&self, index: Index, key: &[u8]) -> Result<u64> {
        self.blocks(index)?
            .map_or(Ok(0), |tree| postings::cardinality(index, tree, key))
    }

    fn has_index(&self, index: Index) -> Result<bool> {
        Ok(self.blocks(index)?.is_some())
    }
}

impl Write for EmbeddedTxn {
    fn put(&mut self, table: Table, key: &[u8], value: &[u8]) -> Result<()> {
        let tree = self.tree_mut(table)?;
        self.txn.put(tree, key, value)?;
        Ok(())
    }

    fn insert(&mut self, table: Table, key: &[u8], value: &[u8]) -> Result<()> {
        let tree = self.tree_mut(table)?;
        if self.txn.insert(tree, key, value)? {
            Ok(())
        } else {
            Err(Error::Exists)
        }
    }

    fn delete(&mut self, table: Table, key: &[u8]) -> Result<bool> {
        match self.open_table(table)? {
            Some(tree) => Ok(self.txn.delete(tree, key)?),
            None => Ok(false),
        }
    }

    fn guard_child(&mut self, _parent: EntryId) -> Result<()> {
        Ok(())
    }

    fn guard_removal(&mut self, _parent: EntryId) -> Result<()> {
        Ok(())
    }

    fn open_index(&mut self, index: Index) -> Result<bool> {
        Ok(self.open_blocks(index)?.is_some())
    }

    fn open_order(&mut self, attribute: AttributeNo) -> Result<bool> {
        Ok(self.open_table(Table::Order(attribute))?.is_some())
    }

    fn create_index(&mut self, index: Index) -> Result<()> {
        if self.open_blocks(index)?.is_none() {
            let tree = self.txn.create_tree(index.name().as_str(), INDEX_KIND)?;
            self.trees.indexes.push((index, tree));
        }
        Ok(())
    }

    fn drop_index(&mut self, index: Index) -> Result<bool> {
        self.trees.indexes.retain(|(known, _)| *known != index);
        Ok(self.txn.drop_tree(index.name().as_str())?)
    }

    fn index_add(&mut self, index: Index, key: &[u8], id: EntryId) -> Result<bool> {
        let tree = self.existing_blocks(index)?;
        postings::add(
            index,
            &mut TxnBlocks {
                txn: &mut self.txn,
                tree,
            },
            &mut self.scratch.0,
            key,
            id,
        )
    }

    fn index_remove(&mut self, index: Index, key: &[u8], id: EntryId) -> Result<bool> {
        let tree = self.existing_blocks(index)?;
        postings::remove(
            index,
            &mut TxnBlocks {
                txn: &mut self.txn,
                tree,
            },
            &mut self.scratch.0,
            key,
            id,
        )
    }

    fn drop_table(&mut self, table: Table) -> Result<bool> {
        match fixed(table) {
            Some(at) => self.trees.fixed[at] = None,
            None => self.trees.order.retain(|(known, _)| *known != table),
        }
        Ok(self.txn.drop_tree(table.name().as_str())?)
    }

    fn record_change(&mut self, record: &[u8]) -> Result<()> {
        let tree = match self.txn.tree(CHANGE)? {
            Some(tree) => tree,
            None => self.txn.create_tree(CHANGE, TreeKind { counted: false })?,
        };
        let commit = self.txn.commit_no().0.to_be_bytes();
        self.txn.put(tree, &commit, record)?;
        Ok(())
    }

    fn trim_changes(&mut self, upto: CommitNo, records_max: usize) -> Result<()> {
        let Some(tree) = self.txn.tree(CHANGE)? else {
            return Ok(());
        };
        let mut doomed = Vec::new();
        {
            let mut cursor = self.txn.view(tree)?.cursor();
            let mut standing = cursor.seek(&1u64.to_be_bytes())?;
            while standing && doomed.len() < records_max {
                let Some(key) = cursor.key()? else { break };
                let commit = commit_of(key)?;
                if commit > upto {
                    break;
                }
                doomed.push(commit);
                standing = cursor.next()?;
            }
        }
        for commit in &doomed {
            self.txn.delete(tree, &commit.0.to_be_bytes())?;
        }
        if let Some(last) = doomed.last() {
            self.txn.put(tree, &TRIMMED_KEY, &last.0.to_be_bytes())?;
        }
        Ok(())
    }
}

/// An index's tree in a transaction.
struct TxnBlocks<'t> {
    txn: &'t mut WriteTxn,
    tree: TreeId,
}

impl BlockTreeMut for TxnBlocks<'_> {
    fn view(&self) -> Result<impl BlockTree<'_>> {
        Ok(self.txn.view(self.tree)?)
    }

    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.txn.put(self.tree, key, value)?;
        Ok(())
    }

    fn delete(&mut self, key: &[u8]) -> Result<()> {
        self.txn.delete(self.tree, key)?;
        Ok(())
    }
}

impl<'t, P: ReadPages + ?Sized> BlockTree<'t> for View<'t, P> {
    type Cursor = StoreCursor<'t, P>;

    fn cursor(&self) -> StoreCursor<'t, P> {
        View::cursor(self)
    }

    fn estimate(&self, from: Bound<&[u8]>, to: Bound<&[u8]>) -> Result<u64> {
        Ok(View::estimate(self, from, to)?)
    }
}

impl<'t, P: ReadPages + ?Sized> BlockCursor<'t> for StoreCursor<'t, P> {
    fn seek(&mut self, key: &[u8]) -> Result<bool> {
        Ok(StoreCursor::seek(self, key)?)
    }

    fn seek_back(&mut self, key: &[u8]) -> Result<bool> {
        Ok(StoreCursor::seek_back(self, key)?)
    }

    fn next(&mut self) -> Result<bool> {
        Ok(StoreCursor::next(self)?)
    }

    fn record(&mut self) -> Result<Option<(&[u8], &'t [u8])>> {
        Ok(StoreCursor::record(self)?)
    }
}

/// A scan of a tree of the store.
pub struct EmbeddedCursor<'t> {
    /// `None` when there is nothing to scan.
    cursor: Option<store::TreeCursor<'t>>,
    is_over: bool,
    direction: Direction,
    /// The far end.
    end: Bound<Vec<u8>>,
    /// Whether the cursor stands on a record that was not lent yet.
    ahead: bool,
}

impl<'t> EmbeddedCursor<'t> {
    fn new(
        tree: Option<store::Tree<'t>>,
        range: Range<'_>,
        direction: Direction,
    ) -> Result<EmbeddedCursor<'t>> {
        let (near, end) = match direction {
            Direction::Forward => (range.from, range.to),
            Direction::Backward => (range.to, range.from),
        };
        let end = end.map(<[u8]>::to_vec);
        let mut scan = EmbeddedCursor {
            cursor: None,
            is_over: false,
            direction,
            end,
            ahead: true,
        };
        let Some(tree) = tree else { return Ok(scan) };
        let mut cursor = tree.cursor();
        let mut standing = match (near, direction) {
            (Bound::Unbounded, Direction::Forward) => cursor.first()?,
            (Bound::Unbounded, Direction::Backward) => cursor.last()?,
            (Bound::Included(key) | Bound::Excluded(key), Direction::Forward) => {
                cursor.seek(key)?
            }
            (Bound::Included(key) | Bound::Excluded(key), Direction::Backward) => {
                cursor.seek_back(key)?
            }
        };
        if let Bound::Excluded(key) = near
            && standing
            && cursor.key()? == Some(key)
        {
            standing = match direction {
                Direction::Forward => cursor.next()?,
                Direction::Backward => cursor.prev()?,
            };
        }
        scan.cursor = standing.then_some(cursor);
        Ok(scan)
    }
}

impl Cursor for EmbeddedCursor<'_> {
    fn next(&mut self) -> Result<Option<(&[u8], &[u8])>> {
        let Some(cursor) = self.cursor.as_mut().filter(|_| !self.is_over) else {
            return Ok(None);
        };
        let standing = match (std::mem::take(&mut self.ahead), self.direction) {
            (true, _) => true,
            (false, Direction::Forward) => cursor.next()?,
            (false, Direction::Backward) => cursor.prev()?,
        };
        let record = if standing { cursor.record()? } else { None };
        let Some((key, value)) = record else {
            self.is_over = true;
            return Ok(None);
        };
        let within = match (&self.end, self.direction) {
            (Bound::Unbounded, _) => true,
            (Bound::Included(end), Direction::Forward) => key <= end.as_slice(),
            (Bound::Excluded(end), Direction::Forward) => key < end.as_slice(),
            (Bound::Included(end), Direction::Backward) => key >= end.as_slice(),
            (Bound::Excluded(end), Direction::Backward) => key > end.as_slice(),
        };
        if !within {
            self.is_over = true;
            return Ok(None);
        }
        Ok(Some((key, value)))
    }
}

/// A posting list of an index of the store.
pub struct EmbeddedPostings<'t> {
    list: List<'t, store::Tree<'t>>,
}

impl<'t> EmbeddedPostings<'t> {
    fn new(
        index: Index,
        tree: Option<store::Tree<'t>>,
        key: &[u8],
    ) -> Result<EmbeddedPostings<'t>> {
        Ok(EmbeddedPostings {
            list: List::new(index, tree, key)?,
        })
    }
}

impl super::Postings for EmbeddedPostings<'_> {
    fn next(&mut self) -> Result<Option<EntryId>> {
        self.list.next()
    }

    fn seek(&mut self, id: EntryId) -> Result<Option<EntryId>> {
        self.list.seek(id)
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
        let mut tree = self.bulk.tree(table.name().as_str(), kind(table))?;
        fill(&mut |key, value| Ok(tree.push(key, value)?))?;
        tree.finish()?;
        Ok(())
    }

    fn index(
        &mut self,
        index: Index,
        fill: impl FnOnce(&mut PushPosting<'_>) -> Result<()>,
    ) -> Result<()> {
        let mut tree = self.bulk.tree(index.name().as_str(), INDEX_KIND)?;
        let mut blocks = BlockBuilder::default();
        let push = |tree: &mut BulkTree<'_>, key: &[u8], value: &[u8]| -> Result<()> {
            Ok(tree.push(key, value)?)
        };
        fill(&mut |key, id| blocks.post(key, id, &mut |key, value| push(&mut tree, key, value)))?;
        blocks.flush(&mut |key, value| push(&mut tree, key, value))?;
        tree.finish()?;
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
