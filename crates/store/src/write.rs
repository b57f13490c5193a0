//! Write transactions.

use std::fmt;

use sapwood_wal::Wal;
use sapwood_wal::lock::Taken;

use crate::background::Background;
use crate::checkpoint;
use crate::commit::{self, Durability, Ticket};
use crate::env::{Env, Inner};
use crate::error::{Error, Result};
use crate::head::Head;
use crate::own::{OwnPages, Workshop};
use crate::page::CommitNo;
use crate::record::RecordHeader;
use crate::snapshot::{Tree, decode_record};
use crate::sync::{Arc, lock};
use crate::tree::{self, TreeKind, TreeRecord, View};

/// The longest name of a tree, in bytes.
pub const TREE_NAME_BYTES_MAX: usize = 255;

/// A tree within one write transaction; given by [`WriteTxn::tree`] and [`WriteTxn::create_tree`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct TreeId(u32);

/// A point of a write transaction to return to. Savepoints nest.
#[derive(Debug)]
pub struct Savepoint(u64);

/// The one write transaction of an environment. It sees its own changes; nobody else does before it is committed and
/// durable. It may be moved to another thread. Dropped without [`WriteTxn::commit`], it leaves no trace.
///
/// After an operation failed with anything but a refusal of its arguments (key or value too long, unknown tree), the
/// transaction may hold half of that operation: roll back to a savepoint or drop it.
/// Committing it is refused with [`Error::TxnFailed`](crate::Error::TxnFailed).
pub struct WriteTxn {
    head: Head,
    /// `None` once it is over.
    pages: Option<OwnPages>,
    trees: Vec<OpenTree>,
    savepoints: Vec<Mark>,
    savepoints_so_far: u64,
    failed: bool,
    /// Dropped last.
    lock: WriterLock,
}

/// A tree that the transaction has looked up or created.
struct OpenTree {
    name: String,
    record: TreeRecord,
    /// As the catalog has it; `None` if it was created here.
    stored: Option<TreeRecord>,
    is_dropped: bool,
}

/// The state of a transaction at a savepoint.
struct Mark {
    number: u64,
    undo: usize,
    /// For each open tree: its record and whether it was dropped.
    trees: Vec<(TreeRecord, bool)>,
}

/// Held by the one write transaction.
struct WriterLock(Env);

impl WriterLock {
    fn take(env: &Env) -> Result<Self> {
        let inner = env.inner();
        check_may_write(inner)?;
        let me = inner.membership.index();
        let lock = &inner.region.writer;
        let taken = lock.lock(me, |process| inner.is_alive(process));
        Self(env.clone()).inherit(taken)
    }

    fn try_take(env: &Env) -> Result<Option<Self>> {
        let inner = env.inner();
        check_may_write(inner)?;
        let me = inner.membership.index();
        let lock = &inner.region.writer;
        match lock.try_lock(me, |process| inner.is_alive(process)) {
            Some(taken) => Self(env.clone()).inherit(taken).map(Some),
            None => Ok(None),
        }
    }

    fn inherit(self, taken: Taken) -> Result<Self> {
        let inner = self.0.inner();
        inner.check_sound()?;
        if let (Taken::Inherited, Some(wal)) = (taken, &inner.wal) {
            // Whoever took the lock after a failure here would know of no heritage, and write over it.
            complete(inner, wal).inspect_err(|_| inner.poison())?;
        }
        Ok(self)
    }
}

/// Completes what a dead writer left: a record that was appended whole is applied, made durable and shown; anything less
/// is cut off. Its pages need no attention, since nothing refers to them.
fn complete(inner: &Inner, wal: &Wal) -> Result<()> {
    let end = wal.inherit()?;
    let mut head = inner.region.applied_head()?;
    let mut has_unlogged = false;
    let mut records = wal.records(head.log)?;
    while head.log.lsn < end.lsn
        && let Some(record) = records.next()?
    {
        let (header, _) = RecordHeader::decode(record.payload)?;
        if header.commit.0 != head.commit.0 + 1 {
            return Err(Error::Damaged("the log skips a commit".into()));
        }
        has_unlogged |= !header.has_changes;
        head = Head {
            commit: header.commit,
            log: record.end,
            roots: header.roots,
        };
        inner.region.apply(&head, Durability::Durable);
    }
    inner.region.publish(head.commit);
    if has_unlogged {
        checkpoint::checkpoint(inner)?;
    }
    Ok(())
}

fn check_may_write(inner: &Inner) -> Result<()> {
    inner.check_usable()?;
    if inner.options.read_only {
        return Err(Error::ReadOnly);
    }
    Ok(())
}

impl Drop for WriterLock {
    fn drop(&mut self) {
        let inner = self.0.inner();
        if !inner.membership.is_forked() {
            inner.region.writer.unlock();
        }
    }
}

impl WriteTxn {
    pub(crate) fn begin(env: &Env) -> Result<Self> {
        Self::new(WriterLock::take(env)?)
    }

    pub(crate) fn try_begin(env: &Env) -> Result<Option<Self>> {
        WriterLock::try_take(env)?.map(Self::new).transpose()
    }

    fn new(writer: WriterLock) -> Result<Self> {
        let inner = writer.0.inner().clone();
        Background::start(&inner)?;
        let head = inner.region.applied_head()?;
        let shop = lock(&inner.workshop).take();
        let shop = shop.unwrap_or_else(|| Box::new(Workshop::new(&inner)));
        Ok(Self {
            head,
            pages: Some(OwnPages::new(inner, &head, shop)),
            trees: Vec::new(),
            savepoints: Vec::new(),
            savepoints_so_far: 0,
            failed: false,
            lock: writer,
        })
    }

    /// The number this transaction's commit will have.
    pub fn commit_no(&self) -> CommitNo {
        CommitNo(self.head.commit.0 + 1)
    }

    /// The tree of this name, if there is one. The answer stays valid for this transaction.
    pub fn tree(&mut self, name: &str) -> Result<Option<TreeId>> {
        self.env().inner().check_usable()?;
        // At most one of a name is there; others were dropped, or created after a savepoint that was returned to.
        let mut known = (0..)
            .zip(&self.trees)
            .filter(|(_, tree)| tree.name == name)
            .peekable();
        if known.peek().is_some() {
            return Ok(known
                .find(|(_, tree)| !tree.is_dropped)
                .map(|(at, _)| TreeId(at)));
        }
        let catalog = View::new(self.own().view(), self.head.roots.catalog);
        let Some(record) = catalog.get(name.as_bytes())? else {
            return Ok(None);
        };
        let record = decode_record(name, record)?;
        self.open_tree(name, record, Some(record)).map(Some)
    }

    /// Creates an empty tree; [`Error::TreeExists`](crate::Error::TreeExists) if there is one of this name.
    /// A name has 1 to [`TREE_NAME_BYTES_MAX`] bytes.
    pub fn create_tree(&mut self, name: &str, kind: TreeKind) -> Result<TreeId> {
        if name.is_empty() || name.len() > TREE_NAME_BYTES_MAX {
            return Err(Error::TreeName(name.len()));
        }
        if self.tree(name)?.is_some() {
            return Err(Error::TreeExists(name.into()));
        }
        self.open_tree(name, TreeRecord::empty(kind), None)
    }

    fn open_tree(
        &mut self,
        name: &str,
        record: TreeRecord,
        stored: Option<TreeRecord>,
    ) -> Result<TreeId> {
        let id = TreeId(u32::try_from(self.trees.len()).map_err(|_| Error::NoSuchTree)?);
        self.trees.push(OpenTree {
            name: name.into(),
            record,
            stored,
            is_dropped: false,
        });
        Ok(id)
    }

    /// Deletes a tree and all in it; whether there was one. Its [`TreeId`] may not be used any more.
    pub fn drop_tree(&mut self, name: &str) -> Result<bool> {
        let Some(id) = self.tree(name)? else {
            return Ok(false);
        };
        self.change(id, true, tree::clear)?;
        if let Some(tree) = self.trees.get_mut(id.0 as usize) {
            tree.is_dropped = true;
        }
        Ok(true)
    }

    /// The value of `key`, this transaction's own changes included.
    pub fn get(&self, tree: TreeId, key: &[u8]) -> Result<Option<&[u8]>> {
        self.view(tree)?.get(key)
    }

    /// Stores a record, in place of the one with the same key if there is one; whether there was none.
    pub fn put(&mut self, tree: TreeId, key: &[u8], value: &[u8]) -> Result<bool> {
        self.change(tree, false, |pages, record| {
            tree::put(pages, record, key, value)
        })
    }

    /// Stores a record unless there is one with the same key; whether it was stored.
    pub fn insert(&mut self, tree: TreeId, key: &[u8], value: &[u8]) -> Result<bool> {
        self.change(tree, false, |pages, record| {
            tree::insert(pages, record, key, value)
        })
    }

    /// Deletes a record; whether there was one.
    pub fn delete(&mut self, tree: TreeId, key: &[u8]) -> Result<bool> {
        self.change(tree, true, |pages, record| tree::delete(pages, record, key))
    }

    /// The tree as it is now, own changes included, to be read like a snapshot's.
    pub fn view(&self, tree: TreeId) -> Result<Tree<'_>> {
        let record = self.open(tree)?.record;
        Ok(View::new(self.own().view(), record))
    }

    fn open(&self, id: TreeId) -> Result<&OpenTree> {
        self.trees
            .get(id.0 as usize)
            .filter(|tree| !tree.is_dropped)
            .ok_or(Error::NoSuchTree)
    }

    fn change<T>(
        &mut self,
        id: TreeId,
        frees: bool,
        how: impl FnOnce(&mut OwnPages, &mut TreeRecord) -> Result<T>,
    ) -> Result<T> {
        self.env().inner().check_usable()?;
        let mut record = self.open(id)?.record;
        let pages = self.own_mut();
        pages.may_use_reserve = frees;
        let result = how(pages, &mut record);
        match &result {
            Ok(_) => self.trees[id.0 as usize].record = record,
            Err(Error::KeyTooLong(_) | Error::ValueTooLong(_)) => {}
            Err(_) => self.failed = true,
        }
        result
    }

    /// Marks the present state, to return to with [`WriteTxn::rollback_to`]. Costs nothing by itself; afterwards each
    /// page is copied when it is changed for the first time.
    pub fn savepoint(&mut self) -> Savepoint {
        self.savepoints_so_far += 1;
        let number = self.savepoints_so_far;
        let undo = self.own_mut().begin_savepoint(number);
        self.savepoints.push(Mark {
            number,
            undo,
            trees: self
                .trees
                .iter()
                .map(|tree| (tree.record, tree.is_dropped))
                .collect(),
        });
        Savepoint(number)
    }

    /// Undoes everything since the savepoint, later savepoints included; it may be returned to again.
    /// Trees created since are gone, and so are their [`TreeId`]s. Does nothing if the transaction had failed before the
    /// savepoint.
    ///
    /// Panics if the savepoint has been released or rolled back over, or belongs to another transaction.
    pub fn rollback_to(&mut self, savepoint: &Savepoint) {
        let at = self.index_of(savepoint);
        self.savepoints.truncate(at + 1);
        if self.env().inner().check_usable().is_err() {
            return;
        }
        let Mark { number, undo, .. } = self.savepoints[at];
        let pages = self.own_mut();
        let undone = pages.undo_to(undo);
        pages.end_savepoint(number);
        self.failed = undone.is_err();
        let Self {
            trees, savepoints, ..
        } = self;
        let mut marked = savepoints[at].trees.iter();
        for tree in trees {
            (tree.record, tree.is_dropped) = match (marked.next(), tree.stored) {
                (Some(&state), _) => state,
                (None, Some(stored)) => (stored, false),
                (None, None) => (TreeRecord::empty(tree.record.kind), true),
            };
        }
    }

    /// Forgets a savepoint and all later ones; the changes since become part of what is around it.
    ///
    /// Panics as [`WriteTxn::rollback_to`] does.
    pub fn release(&mut self, savepoint: Savepoint) {
        let at = self.index_of(&savepoint);
        self.savepoints.truncate(at);
        let around = self.savepoints.last().map_or(0, |mark| mark.number);
        self.own_mut().end_savepoint(around);
    }

    fn index_of(&self, savepoint: &Savepoint) -> usize {
        let at = self
            .savepoints
            .iter()
            .position(|mark| mark.number == savepoint.0);
        match at {
            Some(at) => at,
            None => panic!("this savepoint is not one of the transaction's any more"),
        }
    }

    /// Applies and logs everything, and lets the next write transaction begin. The commit is neither durable nor
    /// visible before [`Ticket::wait`] has returned.
    ///
    /// A transaction without changes makes no commit: its ticket is that of the commit it began from.
    pub fn commit(self) -> Result<Ticket> {
        let durability = self.env().inner().options.durability;
        self.commit_with(durability)
    }

    /// As [`WriteTxn::commit`], with another [`Durability`] than the environment's.
    pub fn commit_with(mut self, durability: Durability) -> Result<Ticket> {
        self.env().inner().check_usable()?;
        if self.failed {
            return Err(Error::TxnFailed);
        }
        let head = commit::commit(&mut self, durability)?;
        let env = self.env().clone();
        let is_new = head.commit != self.head.commit;
        self.end(is_new);
        drop(self);
        if is_new {
            commit::afterwards(&env, &head);
        }
        Ok(Ticket::new(env, &head))
    }

    /// Writes the records of changed trees into the catalog, whose record is returned.
    pub(crate) fn save_catalog(&mut self) -> Result<TreeRecord> {
        let mut catalog = self.head.roots.catalog;
        let Self { trees, pages, .. } = self;
        let pages = pages.as_mut().ok_or(Error::TxnFailed)?;
        for tree in trees {
            let name = tree.name.as_bytes();
            if tree.is_dropped {
                if tree.stored.is_some() {
                    tree::delete(pages, &mut catalog, name)?;
                }
            } else if tree.stored != Some(tree.record) {
                tree::put(pages, &mut catalog, name, &tree.record.encode())?;
            }
        }
        Ok(catalog)
    }

    /// Puts a tree that was built apart into the transaction.
    pub(crate) fn set_record(&mut self, id: TreeId, record: TreeRecord) {
        if let Some(tree) = self.trees.get_mut(id.0 as usize) {
            tree.record = record;
        }
    }

    pub(crate) fn env(&self) -> &Env {
        &self.lock.0
    }

    /// The commit it began from.
    pub(crate) fn head(&self) -> &Head {
        &self.head
    }

    pub(crate) fn own(&self) -> &OwnPages {
        match &self.pages {
            Some(pages) => pages,
            None => unreachable!("only `commit` and `drop` end a transaction"),
        }
    }

    pub(crate) fn own_mut(&mut self) -> &mut OwnPages {
        match &mut self.pages {
            Some(pages) => pages,
            None => unreachable!("only `commit` and `drop` end a transaction"),
        }
    }

    fn end(&mut self, committed: bool) {
        if let Some(pages) = self.pages.take() {
            let inner: &Arc<Inner> = self.lock.0.inner();
            *lock(&inner.workshop) = Some(pages.into_shop(committed));
        }
    }
}

impl Drop for WriteTxn {
    fn drop(&mut self) {
        self.end(false);
    }
}

impl fmt::Debug for WriteTxn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WriteTxn")
            .field("commit", &self.commit_no())
            .field("failed", &self.failed)
            .finish_non_exhaustive()
    }
}
