//! The engine over `sapwood-store`: nothing is copied on the way from the map to the directory.

mod cursor;
mod feed;
mod read;
mod stores;
mod txn;

use std::path::Path;
use std::sync::OnceLock;

use sapwood_store as store;
use sapwood_store::{Env, TreeKind};

pub use cursor::{EmbeddedCursor, EmbeddedPostings};
pub use txn::EmbeddedTxn;

use read::Trees;
use stores::{Claim, Stores};

use super::pending::PENDING;
use super::placement;
use super::placement::StoreSet;
use super::postings::BlockBuilder;
use super::{
    Bundle, Caps, CommitNo, Engine, Error, FeedPosition, Index, Load, Loader, PushPosting,
    PushRecord, Result, STORES_MAX, Table, Verdict,
};

/// Postings trees are counted, so that the lengths of long lists can be estimated.
const INDEX_KIND: TreeKind = TreeKind::COUNTED;

/// The length of a directory's log. It takes this much of the disk only once this much was written. With a longer log,
/// checkpoints are rarer, and a page that changes often is written out fewer times.
const LOG_BYTES: u64 = 256 << 20;

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
            store::Error::Corrupt { .. } | store::Error::FromTheFuture { .. } => {
                Error::Corrupt(text)
            }
            store::Error::Damaged(what) => Error::Corrupt(what),
            store::Error::NotABackup(_) | store::Error::NotTheBase(_) => Error::WrongFile(text),
            _ => Error::Unavailable(text),
        }
    }
}

/// A directory's environment: one store, or several with a writer each.
#[derive(Clone, Debug)]
pub struct Embedded {
    stores: Stores,
}

impl Embedded {
    /// Opens the environment in a folder with all its stores. An environment of several stores can be open for writing
    /// only once at a time.
    pub fn open(path: &Path, options: &store::Options) -> Result<Embedded> {
        let engine = Embedded::over(Env::open(path, options)?);
        if options.is_read_only() {
            return Ok(engine);
        }
        let stores = engine.stores.alone(path)?;
        Ok(Embedded { stores })
    }

    /// Makes an environment with so many stores in an empty or missing folder.
    pub fn create(path: &Path, stores: u16) -> Result<Embedded> {
        let options = store::Options::new().create(true).stores(stores);
        Embedded::open(path, &options.log_bytes(LOG_BYTES))
    }

    /// Opens the environment in a folder and adds a store behind the last one. It must not be open anywhere else.
    pub fn add_store(path: &Path, options: &store::Options) -> Result<(Embedded, u16)> {
        let options = options.clone();
        let stores = Env::open(path, &options)?.stores() as u16;
        if stores == STORES_MAX {
            let text = format!("there are {STORES_MAX} stores, as many as there can be");
            return Err(Error::Unavailable(text));
        }
        let engine = Embedded::open(path, &options.stores(stores + 1))?;
        Ok((engine, stores))
    }

    /// An environment that lives as long as its last handle.
    pub fn in_memory() -> Result<Embedded> {
        Embedded::in_memory_with(1)
    }

    /// The same with so many stores.
    pub fn in_memory_with(stores: u16) -> Result<Embedded> {
        let options = store::Options::new().stores(stores);
        Ok(Embedded::over(Env::in_memory(&options)?))
    }

    /// The same, beginning with the contents of a [backup](Self::backup).
    pub fn in_memory_from(backup: &Path) -> Result<Embedded> {
        let options = store::Options::new();
        Ok(Embedded::over(Env::in_memory_from(backup, &options)?))
    }

    /// Writes what is visible, or what has changed since another backup, to `dest`, which must not exist yet. It
    /// becomes a file or, for several stores, a folder with a file for each as of the same moment.
    ///
    /// # Errors
    /// Those of the store, which name the file and what is wrong with it.
    pub fn backup(&self, since: Option<&Path>, dest: &Path) -> store::Result<()> {
        let env = self.env();
        match (self.envs().len(), since) {
            (1, None) => drop(env.backup(dest)?),
            (1, Some(base)) => drop(env.backup_since(base, dest)?),
            (_, None) => drop(env.backup_stores(dest)?),
            (_, Some(base)) => drop(env.backup_stores_since(base, dest)?),
        }
        Ok(())
    }

    /// The engine over an environment that is open already, such as one on a simulated disk.
    pub fn over(env: Env) -> Embedded {
        Embedded {
            stores: Stores::of(env),
        }
    }

    /// The first store, for what concerns pages and files: check, backup, figures.
    pub fn env(&self) -> &Env {
        self.stores.first()
    }

    /// All stores, for what concerns the pages and the file of each.
    pub fn envs(&self) -> &[Env] {
        self.stores.all()
    }
}

fn kind(table: Table) -> TreeKind {
    TreeKind {
        counted: table.is_counted(),
        // Directories have many entries, which change one by one and in no order. The cost of a change must not grow
        // with their number.
        out_of_line: table == Table::Entry,
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
        Table::Values => Some(5),
        Table::Order(_) => None,
    }
}

impl Engine for Embedded {
    type Snapshot = EmbeddedSnapshot;
    type Retired = RetiredEmbedded;
    type Ticket = EmbeddedTicket;

    fn caps(&self) -> Caps {
        Caps {
            key_bytes_max: store::KEY_BYTES_MAX,
            value_bytes_max: store::VALUE_BYTES_MAX,
            transaction_bytes_max: usize::MAX,
            snapshot_age_max: None,
        }
    }

    fn stores(&self) -> usize {
        self.stores.count()
    }

    fn exceeds_memory(&self) -> bool {
        self.env().exceeds_memory()
    }

    fn snapshot(&self) -> Result<EmbeddedSnapshot> {
        EmbeddedSnapshot::new(&self.stores)
    }

    #[inline]
    fn end(snapshot: EmbeddedSnapshot) -> RetiredEmbedded {
        RetiredEmbedded {
            first: snapshot.first.end(),
            others: snapshot.others.into_iter().map(StoreView::end).collect(),
        }
    }

    #[inline]
    fn snapshot_after(&self, retired: RetiredEmbedded) -> Result<(EmbeddedSnapshot, bool)> {
        let (first, others) = self.stores.read()?;
        let (first, mut is_same) = StoreView::after(retired.first, first);
        if others.is_empty() {
            let others = Vec::new();
            return Ok((EmbeddedSnapshot { first, others }, is_same));
        }
        let others = others.into_iter().zip(retired.others);
        let others = others.map(|(snapshot, retired)| {
            let (view, is_same_here) = StoreView::after(retired, snapshot);
            is_same &= is_same_here;
            view
        });
        let others = others.collect();
        Ok((EmbeddedSnapshot { first, others }, is_same))
    }

    fn write<B: Bundle>(&self, bundle: &mut B) -> Result<Option<EmbeddedTicket>> {
        let mut held = bundle.stores();
        loop {
            let mut txn = EmbeddedTxn::new(&self.stores, held)?;
            let kept = run(bundle, &mut txn);
            if !txn.wanted().is_empty() {
                held = held.with(txn.wanted());
                continue;
            }
            let ticket = match kept? {
                true => Some(txn.commit()?),
                false => None,
            };
            bundle.settled();
            return Ok(ticket.map(|ticket| EmbeddedTicket { ticket }));
        }
    }

    fn back_up(&self, dest: &Path) -> Result<()> {
        Ok(self.backup(None, dest)?)
    }

    fn settle(&self, stores: StoreSet) -> Result<()> {
        loop {
            let mut txn = EmbeddedTxn::new(&self.stores, stores)?;
            if !txn.merge_first()? {
                return Ok(());
            }
            let ticket = txn.commit()?;
            super::Ticket::wait(EmbeddedTicket { ticket })?;
        }
    }

    fn load<L: Load>(&self, load: &mut L) -> Result<CommitNo> {
        // Pending postings may belong to entries that are gone.
        self.settle(StoreSet::all(self.stores.count()))?;
        self.drop_empty_trees()?;
        let mut loader = EmbeddedLoader {
            bulks: self.stores.bulk()?,
        };
        load.run(&mut loader)?;
        let mut bulks = loader.bulks;
        if bulks.len() > 1 {
            store::BulkLoad::commit_stores(bulks)?;
            return Ok(CommitNo(self.env().read()?.commit().0));
        }
        match bulks.pop() {
            Some(bulk) => Ok(CommitNo(bulk.commit()?.0)),
            None => Err(Error::Corrupt("the environment has no store".into())),
        }
    }

    fn position(&self, snapshot: &EmbeddedSnapshot) -> FeedPosition {
        let mut position = FeedPosition::default();
        for (store, view) in snapshot.views().enumerate() {
            position.advance(store, CommitNo(view.snapshot.commit().0));
        }
        position
    }

    fn changes(
        &self,
        snapshot: &EmbeddedSnapshot,
        after: &FeedPosition,
        each: impl FnMut(&FeedPosition, &[u8]) -> bool,
    ) -> Result<()> {
        feed::read(snapshot, after, each)
    }
}

/// Runs a bundle once; whether anything is to be committed.
fn run<B: Bundle>(bundle: &mut B, txn: &mut EmbeddedTxn) -> Result<bool> {
    bundle.begin(txn)?;
    let is_alone = bundle.operations() == 1;
    let mut kept = 0;
    let mut operation = 0;
    while operation < bundle.operations() {
        // A single operation, and operations that succeed or fail together, are undone by dropping the transaction.
        let before = (!is_alone && !bundle.stands_or_falls_as_one()).then(|| txn.before());
        match (bundle.apply(txn, operation)?, before) {
            (Verdict::Keep, before) => {
                kept += 1;
                if let Some(before) = before {
                    txn.forget(before);
                }
            }
            (Verdict::Undo, Some(before)) => txn.roll_back(before),
            (Verdict::Undo, None) => return Ok(false),
        }
        operation += 1;
    }
    if kept > 0 {
        bundle.finish(txn)?;
    }
    Ok(kept > 0)
}

impl Embedded {
    /// A bulk build makes its trees itself. It replaces empty ones that exist.
    fn drop_empty_trees(&self) -> Result<()> {
        for env in self.envs() {
            let mut txn = env.write()?;
            let names = env.read()?.tree_names()?;
            let mut dropped = false;
            for name in names {
                if let Some(tree) = txn.tree(&name)?
                    && txn.view(tree)?.record().records == 0
                {
                    dropped |= txn.drop_tree(&name)?;
                }
            }
            if dropped {
                txn.commit()?.wait_durable()?;
            }
        }
        Ok(())
    }
}

/// A commit of the store on its way to the disk.
#[derive(Clone, Debug)]
pub struct EmbeddedTicket {
    ticket: Claim,
}

impl super::Ticket for EmbeddedTicket {
    fn is_durable(&self) -> bool {
        self.ticket.is_durable()
    }

    fn wait(self) -> Result<CommitNo> {
        match self.ticket.wait() {
            Ok(commit) => Ok(commit),
            Err(error) => Err(Error::Undetermined(error.to_string())),
        }
    }
}

/// A snapshot of the stores.
#[derive(Debug)]
pub struct EmbeddedSnapshot {
    first: StoreView,
    others: Vec<StoreView>,
}

impl EmbeddedSnapshot {
    fn new(stores: &Stores) -> Result<EmbeddedSnapshot> {
        let (first, others) = stores.read()?;
        Ok(EmbeddedSnapshot {
            first: StoreView::new(first),
            others: others.into_iter().map(StoreView::new).collect(),
        })
    }

    #[inline]
    /// Those of all stores, by number.
    fn views(&self) -> impl Iterator<Item = &StoreView> {
        std::iter::once(&self.first).chain(&self.others)
    }

    fn view(&self, store: usize) -> &StoreView {
        match store {
            0 => &self.first,
            store => &self.others[store - 1],
        }
    }
}

impl Trees for EmbeddedSnapshot {
    fn commit(&self) -> CommitNo {
        CommitNo(self.first.snapshot.commit().0)
    }

    #[inline]
    fn stores(&self) -> usize {
        1 + self.others.len()
    }

    #[inline]
    fn table(&self, store: usize, table: Table) -> Result<Option<store::Tree<'_>>> {
        self.view(store).table(table)
    }

    fn blocks(&self, store: usize, index: Index) -> Result<Option<store::Tree<'_>>> {
        self.view(store).blocks(index)
    }

    fn pending(&self, store: usize) -> Result<Option<store::Tree<'_>>> {
        self.view(store).pending()
    }

    fn feed(&self, store: usize) -> Result<Option<store::Tree<'_>>> {
        Ok(self.view(store).snapshot.tree(feed::CHANGE)?)
    }
}

/// What is left of a snapshot of the stores.
#[derive(Debug)]
pub struct RetiredEmbedded {
    first: RetiredView,
    others: Vec<RetiredView>,
}

/// A snapshot of one store, with the trees that were needed.
#[derive(Debug)]
struct StoreView {
    snapshot: store::Snapshot,
    trees: Box<KnownTrees>,
}

/// What is left of it.
#[derive(Debug)]
struct RetiredView {
    commit: store::CommitNo,
    trees: Box<KnownTrees>,
}

/// The trees of a commit, as far as they were needed.
#[derive(Debug, Default)]
struct KnownTrees {
    /// The fixed tables' trees, looked up when they are first needed.
    fixed: [OnceLock<Option<store::KnownTree>>; Table::FIXED.len()],
    /// The indexes' trees, in the order in which they were needed.
    indexes: [OnceLock<(Index, Option<store::KnownTree>)>; INDEXES_KNOWN_MAX],
    /// That of pending postings.
    pending: OnceLock<Option<store::KnownTree>>,
}

/// How many indexes' trees a snapshot remembers; more are looked up each time.
const INDEXES_KNOWN_MAX: usize = 12;

impl StoreView {
    fn new(snapshot: store::Snapshot) -> StoreView {
        StoreView {
            snapshot,
            trees: Box::default(),
        }
    }

    #[inline]
    fn end(self) -> RetiredView {
        RetiredView {
            commit: self.snapshot.commit(),
            trees: self.trees,
        }
    }

    /// The view of a new snapshot, and whether it is of the same commit as the retired one.
    #[inline]
    fn after(retired: RetiredView, snapshot: store::Snapshot) -> (StoreView, bool) {
        let RetiredView { commit, mut trees } = retired;
        let is_same = snapshot.commit() == commit;
        if !is_same {
            *trees = KnownTrees::default();
        }
        (StoreView { snapshot, trees }, is_same)
    }

    #[inline]
    fn table(&self, table: Table) -> Result<Option<store::Tree<'_>>> {
        let known = fixed(table).and_then(|at| self.trees.fixed.get(at));
        self.tree(|| table.name(), known)
    }

    fn pending(&self) -> Result<Option<store::Tree<'_>>> {
        self.tree(|| PENDING, Some(&self.trees.pending))
    }

    /// The tree with a name. The name is made only if the tree was not needed before.
    #[inline]
    fn tree<N: AsRef<[u8]>>(
        &self,
        name: impl FnOnce() -> N,
        known: Option<&OnceLock<Option<store::KnownTree>>>,
    ) -> Result<Option<store::Tree<'_>>> {
        match known.and_then(OnceLock::get) {
            Some(Some(known)) => Ok(Some(self.snapshot.tree_of(known)?)),
            Some(None) => Ok(None),
            None => {
                let tree = self.snapshot.tree(name())?;
                if let Some(known) = known {
                    // Another thread may have been faster, with the same answer.
                    let _ = known.set(tree.map(|tree| tree.known()));
                }
                Ok(tree)
            }
        }
    }

    fn blocks(&self, index: Index) -> Result<Option<store::Tree<'_>>> {
        for known in &self.trees.indexes {
            match known.get() {
                Some((of, None)) if *of == index => return Ok(None),
                Some((of, Some(known))) if *of == index => {
                    return Ok(Some(self.snapshot.tree_of(known)?));
                }
                Some(_) => {}
                None => {
                    let tree = self.snapshot.tree(index.name())?;
                    // Another thread may have been faster; then it is looked up once more.
                    let _ = known.set((index, tree.map(|tree| tree.known())));
                    return Ok(tree);
                }
            }
        }
        Ok(self.snapshot.tree(index.name())?)
    }
}

/// Bulk builds of all stores.
struct EmbeddedLoader {
    bulks: Vec<store::BulkLoad>,
}

impl EmbeddedLoader {
    /// Begins a tree in each store.
    fn trees(&mut self, name: &str, kind: TreeKind) -> Result<Vec<store::BulkTree>> {
        let begin = |bulk: &mut store::BulkLoad| Ok(bulk.tree(name, kind)?);
        self.bulks.iter_mut().map(begin).collect()
    }

    fn finish(&mut self, trees: Vec<store::BulkTree>) -> Result<()> {
        for (tree, bulk) in trees.into_iter().zip(&mut self.bulks) {
            tree.finish(bulk)?;
        }
        Ok(())
    }

    /// Adds a record to the tree of the store that it belongs to.
    fn push(
        bulks: &mut [store::BulkLoad],
        trees: &mut [store::BulkTree],
        table: Table,
        key: &[u8],
        value: &[u8],
    ) -> Result<()> {
        let store = match bulks.len() {
            1 => 0,
            stores => placement::store_of(table, key, stores),
        };
        Ok(trees[store].push(&mut bulks[store], key, value)?)
    }
}

impl Loader for EmbeddedLoader {
    fn table(
        &mut self,
        table: Table,
        fill: impl FnOnce(&mut PushRecord<'_>) -> Result<()>,
    ) -> Result<()> {
        let mut trees = self.trees(table.name().as_str(), kind(table))?;
        let bulks = &mut self.bulks;
        fill(&mut |key, value| Self::push(bulks, &mut trees, table, key, value))?;
        self.finish(trees)
    }

    fn index(
        &mut self,
        index: Index,
        fill: impl FnOnce(&mut PushPosting<'_>) -> Result<()>,
    ) -> Result<()> {
        let mut trees = self.trees(index.name().as_str(), INDEX_KIND)?;
        let mut blocks: Vec<_> = trees.iter().map(|_| BlockBuilder::default()).collect();
        let bulks = &mut self.bulks;
        let stores = bulks.len();
        fill(&mut |key, id| {
            let store = placement::store_of_id(id, stores);
            let (tree, bulk) = (&mut trees[store], &mut bulks[store]);
            blocks[store].post(key, id, &mut |key, value| Ok(tree.push(bulk, key, value)?))
        })?;
        for ((blocks, tree), bulk) in blocks.iter_mut().zip(&mut trees).zip(&mut *bulks) {
            blocks.flush(&mut |key, value| Ok(tree.push(bulk, key, value)?))?;
        }
        self.finish(trees)
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
