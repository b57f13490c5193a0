//! The write transaction of the embedded store.
//!
//! It holds the writer lock of the stores that it was begun with. Of all other stores it reads what is visible. A write
//! to another store, or a guard that needs it to stand still, fails, and the bundle runs again with that store held,
//! too.

use std::collections::HashMap;
use std::ops::Bound;
use std::sync::{Arc, OnceLock};

use sapwood_store as store;
use sapwood_store::{Savepoint, TreeId, TreeKind, WriteTxn};
use xxhash_rust::xxh3::xxh3_64;

use super::read::Trees;
use super::stores::{Claim, Stores, StoresTxn};
use super::{EmbeddedSnapshot, INDEX_KIND, feed, fixed, kind};
use crate::engine::ids::GivenIds;
use crate::engine::pending::{self, PENDING, Posting};
use crate::engine::placement::{self, StoreSet};
use crate::engine::postings::{self, BlockTree, BlockTreeMut, Change, Scratch};
use crate::engine::{
    AttributeNo, CommitNo, EntryId, Error, Index, IndexKind, Read, Result, Table, Write,
};
use crate::steps;

/// The write transaction of the stores, with the trees it has touched.
#[derive(Debug)]
pub struct EmbeddedTxn {
    txn: StoresTxn,
    /// By the position of their store in the transaction. Shared with the savepoints, since they seldom change.
    trees: Vec<Arc<KnownTrees>>,
    all: Stores,
    /// What the other stores show.
    seen: OnceLock<EmbeddedSnapshot>,
    /// Stores that the next run has to hold, too.
    wanted: StoreSet,
    /// By position: the postings that will pend, in the order in which they were made.
    put_off: Vec<Vec<PutOff>>,
    /// By position: the other postings. The commit files them and changes each list once.
    unfiled: Vec<Unfiled>,
    /// The ids of entries that it gives.
    ids: GivenIds,
    scratch: ScratchBox,
}

/// The trees known to a transaction in one store. The fixed tables are looked up at its beginning, all others when they
/// are needed.
#[derive(Clone, Debug, Default)]
pub(super) struct KnownTrees {
    fixed: [Option<TreeId>; Table::FIXED.len()],
    order: Vec<(Table, TreeId)>,
    indexes: Vec<(Index, TreeId)>,
    /// That of pending postings.
    pending: Option<TreeId>,
    /// That of the change feed.
    feed: Option<TreeId>,
}

/// A posting that is put off until the commit. Without effect when its index is dropped before.
#[derive(Clone, Copy, Debug)]
struct PutOff {
    attribute: AttributeNo,
    /// That of the index.
    tree: TreeId,
    posting: Posting,
}

/// Postings on their way to their lists, in the order in which they were made.
#[derive(Clone, Debug, Default)]
struct Unfiled {
    postings: Vec<UnfiledPosting>,
    /// Their keys, one behind the other.
    keys: Vec<u8>,
    /// The places of the postings by the hash of their key, once somebody has asked for those of one key.
    places: Option<HashMap<u64, Vec<usize>>>,
}

/// Without effect when its index is dropped before the commit.
#[derive(Clone, Copy, Debug)]
struct UnfiledPosting {
    index: Index,
    /// That of the index.
    tree: TreeId,
    /// Where its key ends in the keys, and how long that is.
    key_end: usize,
    key_bytes: usize,
    change: Change,
}

impl Unfiled {
    fn push(&mut self, index: Index, tree: TreeId, key: &[u8], change: Change) {
        if let Some(places) = &mut self.places {
            let place = self.postings.len();
            places.entry(xxh3_64(key)).or_default().push(place);
        }
        self.keys.extend_from_slice(key);
        self.postings.push(UnfiledPosting {
            index,
            tree,
            key_end: self.keys.len(),
            key_bytes: key.len(),
            change,
        });
    }

    /// Forgets all but the first postings.
    fn truncate(&mut self, postings: usize) {
        if let Some(mut places) = self.places.take() {
            for posting in self.postings.iter().skip(postings) {
                if let Some(of_key) = places.get_mut(&xxh3_64(self.key(posting))) {
                    of_key.pop();
                }
            }
            self.places = Some(places);
        }
        self.postings.truncate(postings);
        let end = self.postings.last().map_or(0, |last| last.key_end);
        self.keys.truncate(end);
    }

    /// From now on the postings of one key are found without looking at the others.
    fn find_by_key(&mut self) {
        if self.places.is_some() {
            return;
        }
        let mut places: HashMap<u64, Vec<usize>> = HashMap::new();
        for (place, posting) in self.postings.iter().enumerate() {
            let hash = xxh3_64(self.key(posting));
            places.entry(hash).or_default().push(place);
        }
        self.places = Some(places);
    }

    /// The changes of a key's list in a tree, in the order in which they were made.
    fn of_key(&self, tree: TreeId, key: &[u8]) -> Vec<Change> {
        let is_of_list =
            |posting: &&UnfiledPosting| posting.tree == tree && self.key(posting) == key;
        let change = |posting: &UnfiledPosting| posting.change;
        let Some(places) = &self.places else {
            steps::count(self.postings.len());
            return self
                .postings
                .iter()
                .filter(is_of_list)
                .map(change)
                .collect();
        };
        let places = places.get(&xxh3_64(key)).map_or(&[][..], |places| places);
        steps::count(places.len());
        let places = places.iter();
        let postings = places.filter_map(|place| self.postings.get(*place));
        postings.filter(is_of_list).map(change).collect()
    }

    fn key(&self, posting: &UnfiledPosting) -> &[u8] {
        &self.keys[posting.key_end - posting.key_bytes..posting.key_end]
    }
}

/// What is needed to roll back an operation.
pub(super) struct Before {
    first: StoreBefore,
    others: Vec<StoreBefore>,
}

/// The same of one store.
struct StoreBefore {
    savepoint: Savepoint,
    trees: Arc<KnownTrees>,
    /// How many postings were to pend and how many were unfiled.
    put_off: usize,
    unfiled: usize,
}

#[derive(Default)]
struct ScratchBox(Box<Scratch>);

impl std::fmt::Debug for ScratchBox {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Scratch")
    }
}

impl EmbeddedTxn {
    /// Begins one that holds some of the stores.
    pub(super) fn new(all: &Stores, held: StoreSet) -> Result<EmbeddedTxn> {
        let mut txn = all.write(held)?;
        let mut known = Vec::with_capacity(txn.len());
        for at in 0..txn.len() {
            let mut trees = KnownTrees::default();
            for (table, place) in Table::FIXED.iter().zip(&mut trees.fixed) {
                *place = txn.txn_mut(at).tree(table.name().as_str())?;
            }
            trees.feed = txn.txn_mut(at).tree(feed::CHANGE)?;
            known.push(Arc::new(trees));
        }
        let put_off = vec![Vec::new(); known.len()];
        let unfiled = vec![Unfiled::default(); known.len()];
        Ok(EmbeddedTxn {
            txn,
            trees: known,
            all: all.clone(),
            seen: OnceLock::new(),
            wanted: StoreSet::default(),
            put_off,
            unfiled,
            ids: GivenIds::default(),
            scratch: ScratchBox::default(),
        })
    }

    /// The stores that it lacked.
    pub(super) fn wanted(&self) -> StoreSet {
        self.wanted
    }

    pub(super) fn before(&mut self) -> Before {
        let mut before = |at: usize| StoreBefore {
            savepoint: self.txn.txn_mut(at).savepoint(),
            trees: self.trees[at].clone(),
            put_off: self.put_off[at].len(),
            unfiled: self.unfiled[at].postings.len(),
        };
        Before {
            first: before(0),
            others: (1..self.trees.len()).map(before).collect(),
        }
    }

    pub(super) fn forget(&mut self, before: Before) {
        for (at, before) in before.stores() {
            self.txn.txn_mut(at).release(before.savepoint);
        }
    }

    pub(super) fn roll_back(&mut self, before: Before) {
        for (at, before) in before.stores() {
            let txn = self.txn.txn_mut(at);
            txn.rollback_to(&before.savepoint);
            txn.release(before.savepoint);
            self.trees[at] = before.trees;
            self.put_off[at].truncate(before.put_off);
            self.unfiled[at].truncate(before.unfiled);
        }
    }

    pub(super) fn commit(mut self) -> Result<Claim> {
        std::mem::take(&mut self.ids).put(&mut self)?;
        for at in 0..self.put_off.len() {
            self.file(at)?;
            self.file_put_off(at)?;
        }
        self.txn.commit()
    }

    /// Files the unfiled postings of a store in their lists: those of many entries in the same list at once.
    fn file(&mut self, at: usize) -> Result<()> {
        let unfiled = std::mem::take(&mut self.unfiled[at]);
        let place = |posting: &UnfiledPosting| {
            let Index { attribute, kind } = posting.index;
            (attribute, kind as u8)
        };
        let is_of_list = |one: &UnfiledPosting, other: &UnfiledPosting| {
            place(one) == place(other) && unfiled.key(one) == unfiled.key(other)
        };
        let mut sorted = unfiled.postings.clone();
        // Those in the same list stay in the order in which they were made.
        sorted.sort_by(|one, other| {
            let keys = || unfiled.key(one).cmp(unfiled.key(other));
            place(one).cmp(&place(other)).then_with(keys)
        });
        let mut changes = Vec::new();
        for list in sorted.chunk_by(is_of_list) {
            let index = list[0].index;
            let Some(tree) = self.open_blocks(at, index)? else {
                continue;
            };
            changes.clear();
            let of_tree = list.iter().filter(|posting| posting.tree == tree);
            changes.extend(of_tree.map(|posting| posting.change));
            pending::sort_changes(&mut changes);
            let (mut blocks, scratch) = self.blocks_mut(at, index)?;
            postings::change(index, &mut blocks, scratch, unfiled.key(&list[0]), &changes)?;
        }
        Ok(())
    }

    /// Appends the put-off postings of a store to the pending ones, or merges all of them into their lists.
    fn file_put_off(&mut self, at: usize) -> Result<()> {
        let mut put_off = std::mem::take(&mut self.put_off[at]);
        put_off.sort_by_key(|put_off| put_off.attribute);
        let kind = IndexKind::Substring;
        let mut postings = Vec::new();
        for of_one in put_off.chunk_by(|one, other| one.attribute == other.attribute) {
            let attribute = of_one[0].attribute;
            let Some(tree) = self.open_blocks(at, Index { attribute, kind })? else {
                continue;
            };
            postings.clear();
            let of_tree = of_one.iter().filter(|put_off| put_off.tree == tree);
            postings.extend(of_tree.map(|put_off| put_off.posting));
            if !postings.is_empty()
                && !pending::append(attribute, &mut self.pending_mut(at)?, &postings)?
            {
                self.merge(at, attribute, &postings)?;
            }
        }
        Ok(())
    }

    /// Files what pends for an attribute's index in its lists, and some postings that came after it.
    fn merge(&mut self, at: usize, attribute: AttributeNo, more: &[Posting]) -> Result<()> {
        let mut postings = Vec::new();
        let mut pending = self.pending_mut(at)?;
        pending::postings(attribute, pending.view()?, &mut postings)?;
        pending::clear(attribute, &mut pending)?;
        postings.extend_from_slice(more);
        let kind = IndexKind::Substring;
        let index = Index { attribute, kind };
        let (mut blocks, scratch) = self.blocks_mut(at, index)?;
        pending::each_list(&postings, |gram, changes| {
            postings::change(index, &mut blocks, scratch, &gram, changes)
        })
    }

    /// Merges what pends for the first index for which anything does; whether there was one.
    pub(super) fn merge_first(&mut self) -> Result<bool> {
        for at in 0..self.trees.len() {
            let Some(tree) = self.open_pending(at)? else {
                continue;
            };
            let attributes = pending::attributes(self.txn.txn(at).view(tree)?)?;
            if let Some(attribute) = attributes.first() {
                self.merge(at, *attribute, &[])?;
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn open_pending(&mut self, at: usize) -> Result<Option<TreeId>> {
        if self.trees[at].pending.is_none()
            && let Some(tree) = self.txn.txn_mut(at).tree(PENDING)?
        {
            self.trees_mut(at).pending = Some(tree);
        }
        Ok(self.trees[at].pending)
    }

    /// The tree of pending postings, made when it is missing.
    fn pending_mut(&mut self, at: usize) -> Result<TxnBlocks<'_>> {
        let tree = match self.open_pending(at)? {
            Some(tree) => tree,
            None => {
                let txn = self.txn.txn_mut(at);
                let tree = txn.create_tree(PENDING, TreeKind::COMPACT)?;
                self.trees_mut(at).pending = Some(tree);
                tree
            }
        };
        let txn = self.txn.txn_mut(at);
        Ok(TxnBlocks { txn, tree })
    }

    /// Files a posting or takes it away, now or later.
    fn post(&mut self, index: Index, key: &[u8], change: Change) -> Result<()> {
        let at = self.hold_entry(EntryId(change.id))?;
        let tree = self.existing_blocks(at, index)?;
        match (pending::gram(index, key), index.kind) {
            (Some(gram), _) => {
                let attribute = index.attribute;
                let posting = Posting { gram, change };
                self.put_off[at].push(PutOff {
                    attribute,
                    tree,
                    posting,
                });
            }
            (None, IndexKind::Equality | IndexKind::Presence | IndexKind::Approximate) => {
                self.unfiled[at].push(index, tree, key, change);
            }
            // The directory makes keys of three bytes only.
            (None, IndexKind::Substring) => {
                let (mut blocks, scratch) = self.blocks_mut(at, index)?;
                postings::change(index, &mut blocks, scratch, key, &[change])?;
            }
        }
        Ok(())
    }

    /// The position of a store, if it is held.
    #[inline]
    fn position(&self, store: usize) -> Option<usize> {
        match self.all.count() {
            1 => Some(0),
            _ => self.txn.position(store),
        }
    }

    /// The position of a store; without it the bundle is run again.
    #[inline]
    fn hold(&mut self, store: usize) -> Result<usize> {
        let position = self.position(store);
        if position.is_none() {
            self.wanted = self.wanted.with(StoreSet::one(store as u16));
        }
        position.ok_or(Error::Conflict)
    }

    fn hold_all(&mut self) -> Result<()> {
        let held = (0..self.all.count()).map(|store| self.hold(store).map(drop));
        // Wants all stores that are missing, not only the first of them.
        held.fold(Ok(()), Result::and)
    }

    #[inline]
    fn hold_record(&mut self, table: Table, key: &[u8]) -> Result<usize> {
        match self.all.count() {
            1 => Ok(0),
            stores => self.hold(placement::store_of(table, key, stores)),
        }
    }

    #[inline]
    fn hold_entry(&mut self, id: EntryId) -> Result<usize> {
        match self.all.count() {
            1 => Ok(0),
            stores => self.hold(placement::store_of_id(id, stores)),
        }
    }

    /// What the stores that are not held show.
    fn seen(&self) -> Result<&EmbeddedSnapshot> {
        if let Some(seen) = self.seen.get() {
            return Ok(seen);
        }
        self.all.settle()?;
        let seen = EmbeddedSnapshot::new(&self.all)?;
        Ok(self.seen.get_or_init(|| seen))
    }

    fn trees_mut(&mut self, at: usize) -> &mut KnownTrees {
        Arc::make_mut(&mut self.trees[at])
    }

    /// The tree to write a table to, made when it is missing.
    fn tree_mut(&mut self, at: usize, table: Table) -> Result<TreeId> {
        if let Some(tree) = self.open_table(at, table)? {
            return Ok(tree);
        }
        let txn = self.txn.txn_mut(at);
        let tree = txn.create_tree(table.name().as_str(), kind(table))?;
        match fixed(table) {
            Some(place) => self.trees_mut(at).fixed[place] = Some(tree),
            None => self.trees_mut(at).order.push((table, tree)),
        }
        Ok(tree)
    }

    fn open_table(&mut self, at: usize, table: Table) -> Result<Option<TreeId>> {
        let trees = &self.trees[at];
        if let Some(place) = fixed(table) {
            return Ok(trees.fixed[place]);
        }
        if let Some((_, tree)) = trees.order.iter().find(|(known, _)| *known == table) {
            return Ok(Some(*tree));
        }
        let tree = self.txn.txn_mut(at).tree(table.name().as_str())?;
        if let Some(tree) = tree {
            self.trees_mut(at).order.push((table, tree));
        }
        Ok(tree)
    }

    fn open_blocks(&mut self, at: usize, index: Index) -> Result<Option<TreeId>> {
        let known = self.trees[at].tree_of(index);
        if known.is_some() {
            return Ok(known);
        }
        let tree = self.txn.txn_mut(at).tree(index.name().as_str())?;
        if let Some(tree) = tree {
            self.trees_mut(at).indexes.push((index, tree));
            if index.kind == IndexKind::Substring {
                self.open_pending(at)?;
            }
        }
        Ok(tree)
    }

    fn existing_blocks(&mut self, at: usize, index: Index) -> Result<TreeId> {
        self.open_blocks(at, index)?.ok_or_else(|| {
            Error::Corrupt(format!("index {} does not exist", index.name().as_str()))
        })
    }

    /// The blocks of an index in a store.
    fn blocks_mut(&mut self, at: usize, index: Index) -> Result<(TxnBlocks<'_>, &mut Scratch)> {
        let tree = self.existing_blocks(at, index)?;
        let txn = self.txn.txn_mut(at);
        Ok((TxnBlocks { txn, tree }, &mut self.scratch.0))
    }
}

impl KnownTrees {
    /// The tree of an index's blocks, if it is known.
    #[inline]
    fn tree_of(&self, index: Index) -> Option<TreeId> {
        let mut known = self.indexes.iter();
        let found = known.find(|(known, _)| *known == index);
        found.map(|(_, tree)| *tree)
    }
}

impl Before {
    /// By position.
    fn stores(self) -> impl Iterator<Item = (usize, StoreBefore)> {
        std::iter::once(self.first).chain(self.others).enumerate()
    }
}

impl Trees for EmbeddedTxn {
    fn commit(&self) -> CommitNo {
        CommitNo(self.txn.txn(0).commit_no().0)
    }

    fn stores(&self) -> usize {
        self.all.count()
    }

    fn table(&self, store: usize, table: Table) -> Result<Option<store::Tree<'_>>> {
        let Some(at) = self.position(store) else {
            return self.seen()?.table(store, table);
        };
        let trees = &self.trees[at];
        let tree = match fixed(table) {
            Some(place) => trees.fixed[place],
            None => trees
                .order
                .iter()
                .find(|(known, _)| *known == table)
                .map(|(_, tree)| *tree),
        };
        match tree {
            Some(tree) => Ok(Some(self.txn.txn(at).view(tree)?)),
            None => Ok(None),
        }
    }

    fn blocks(&self, store: usize, index: Index) -> Result<Option<store::Tree<'_>>> {
        let Some(at) = self.position(store) else {
            return self.seen()?.blocks(store, index);
        };
        self.trees[at]
            .tree_of(index)
            .map(|tree| self.txn.txn(at).view(tree))
            .transpose()
            .map_err(Error::from)
    }

    fn pending(&self, store: usize) -> Result<Option<store::Tree<'_>>> {
        match self.position(store) {
            Some(at) => self.trees[at]
                .pending
                .map(|tree| self.txn.txn(at).view(tree))
                .transpose()
                .map_err(Error::from),
            None => self.seen()?.pending(store),
        }
    }

    fn feed(&self, store: usize) -> Result<Option<store::Tree<'_>>> {
        match self.position(store) {
            Some(at) => self.trees[at]
                .feed
                .map(|tree| self.txn.txn(at).view(tree))
                .transpose()
                .map_err(Error::from),
            None => self.seen()?.feed(store),
        }
    }

    fn put_off(&self, store: usize, index: Index) -> impl Iterator<Item = &Posting> {
        let at = self.position(store);
        let known = at.and_then(|at| self.trees[at].tree_of(index));
        at.map_or(&[][..], |at| &self.put_off[at])
            .iter()
            .filter(move |put_off| Some(put_off.tree) == known)
            .map(|put_off| &put_off.posting)
    }

    fn unfiled(&self, store: usize, index: Index) -> impl Iterator<Item = (&[u8], Change)> {
        let at = self.position(store);
        let known = at.and_then(|at| self.trees[at].tree_of(index));
        let unfiled = at.map(|at| &self.unfiled[at]).into_iter();
        unfiled.flat_map(move |unfiled| {
            let postings = unfiled.postings.iter();
            let of_index = postings.filter(move |posting| Some(posting.tree) == known);
            of_index.map(|posting| (unfiled.key(posting), posting.change))
        })
    }

    fn unfiled_of(&self, store: usize, index: Index, key: &[u8]) -> Vec<Change> {
        let at = self.position(store);
        let known = at.and_then(|at| Some((at, self.trees[at].tree_of(index)?)));
        known.map_or_else(Vec::new, |(at, tree)| self.unfiled[at].of_key(tree, key))
    }
}

impl Write for EmbeddedTxn {
    fn put(&mut self, table: Table, key: &[u8], value: &[u8]) -> Result<()> {
        let at = self.hold_record(table, key)?;
        let tree = self.tree_mut(at, table)?;
        self.txn.txn_mut(at).put(tree, key, value)?;
        Ok(())
    }

    fn insert(&mut self, table: Table, key: &[u8], value: &[u8]) -> Result<()> {
        let at = self.hold_record(table, key)?;
        let tree = self.tree_mut(at, table)?;
        if self.txn.txn_mut(at).insert(tree, key, value)? {
            Ok(())
        } else {
            Err(Error::Exists)
        }
    }

    fn delete(&mut self, table: Table, key: &[u8]) -> Result<bool> {
        let at = self.hold_record(table, key)?;
        match self.open_table(at, table)? {
            Some(tree) => Ok(self.txn.txn_mut(at).delete(tree, key)?),
            None => Ok(false),
        }
    }

    fn guard(&mut self, table: Table, key: &[u8]) -> Result<()> {
        self.hold_record(table, key).map(drop)
    }

    fn guard_child(&mut self, parent: EntryId) -> Result<()> {
        // Who removes a partitioned parent holds all stores; naming contexts have no parent.
        if self.all.count() == 1 || parent.is_root() || parent.partitions().is_some() {
            return Ok(());
        }
        // It was found by a name that may be in a store that is not held, where it may be gone by now.
        if self.get(Table::Entry, &parent.to_key())?.is_none() {
            self.hold_all()?;
        }
        self.hold_entry(parent).map(drop)
    }

    fn guard_removal(&mut self, parent: EntryId) -> Result<()> {
        match parent.partitions() {
            Some(_) => self.hold_all(),
            None => self.hold_entry(parent).map(drop),
        }
    }

    fn guard_move(&mut self) -> Result<()> {
        self.hold_all()
    }

    fn new_id(&mut self, name_key: &[u8]) -> Result<Option<EntryId>> {
        let store = self.birthplace(name_key);
        // The record of the next one is there.
        self.hold_entry(EntryId::root_of(store))?;
        let mut ids = std::mem::take(&mut self.ids);
        let given = ids.give(self, store);
        self.ids = ids;
        given
    }

    fn open_index(&mut self, index: Index) -> Result<bool> {
        let mut exists = true;
        for at in 0..self.trees.len() {
            exists &= self.open_blocks(at, index)?.is_some();
            self.unfiled[at].find_by_key();
        }
        Ok(exists)
    }

    fn open_order(&mut self, attribute: AttributeNo) -> Result<bool> {
        let mut exists = false;
        for at in 0..self.trees.len() {
            exists |= self.open_table(at, Table::Order(attribute))?.is_some();
        }
        Ok(exists)
    }

    fn create_index(&mut self, index: Index) -> Result<()> {
        self.hold_all()?;
        for at in 0..self.trees.len() {
            if self.open_blocks(at, index)?.is_none() {
                let txn = self.txn.txn_mut(at);
                let tree = txn.create_tree(index.name().as_str(), INDEX_KIND)?;
                self.trees_mut(at).indexes.push((index, tree));
            }
        }
        Ok(())
    }

    fn drop_index(&mut self, index: Index) -> Result<bool> {
        self.hold_all()?;
        let mut existed = false;
        for at in 0..self.trees.len() {
            if index.kind == IndexKind::Substring && self.open_pending(at)?.is_some() {
                pending::clear(index.attribute, &mut self.pending_mut(at)?)?;
            }
            let trees = self.trees_mut(at);
            trees.indexes.retain(|(known, _)| *known != index);
            existed |= self.txn.txn_mut(at).drop_tree(index.name().as_str())?;
        }
        Ok(existed)
    }

    fn index_add(&mut self, index: Index, key: &[u8], id: EntryId) -> Result<()> {
        let (id, is_added) = (id.0, true);
        self.post(index, key, Change { id, is_added })
    }

    fn index_remove(&mut self, index: Index, key: &[u8], id: EntryId) -> Result<()> {
        let (id, is_added) = (id.0, false);
        self.post(index, key, Change { id, is_added })
    }

    fn drop_table(&mut self, table: Table) -> Result<bool> {
        self.hold_all()?;
        let mut existed = false;
        for at in 0..self.trees.len() {
            let trees = self.trees_mut(at);
            match fixed(table) {
                Some(place) => trees.fixed[place] = None,
                None => trees.order.retain(|(known, _)| *known != table),
            }
            existed |= self.txn.txn_mut(at).drop_tree(table.name().as_str())?;
        }
        Ok(existed)
    }

    fn record_change(&mut self, record: &[u8]) -> Result<()> {
        let turn = match self.all.count() {
            1 => None,
            _ => Some(self.all.turns().next(|| feed::last_turn(self.seen()?))?),
        };
        let txn = self.txn.txn_mut(0);
        let tree = match self.trees[0].feed {
            Some(tree) => tree,
            None => {
                let tree = txn.create_tree(feed::CHANGE, TreeKind::COMPACT)?;
                self.trees_mut(0).feed = Some(tree);
                tree
            }
        };
        feed::append(self.txn.txn_mut(0), tree, turn, record)
    }

    fn trim_changes(
        &mut self,
        bytes_max: u64,
        work_bytes: u64,
        is_old: impl FnMut(&[u8]) -> bool,
    ) -> Result<()> {
        let Some(tree) = self.trees[0].feed else {
            return Ok(());
        };
        let bytes_max = bytes_max / self.all.count() as u64;
        feed::trim(self.txn.txn_mut(0), tree, bytes_max, work_bytes, is_old)
    }

    fn data_bytes(&self) -> Result<u64> {
        let txn = self.txn.txn(0);
        let feed = match self.trees[0].feed {
            Some(tree) => feed::bytes(&txn.view(tree)?),
            None => 0,
        };
        Ok(txn.store_bytes().saturating_sub(feed) * self.all.count() as u64)
    }
}

/// A tree of an index's blocks, or of pending postings, in a transaction.
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

    fn delete_range(&mut self, from: Bound<&[u8]>, to: Bound<&[u8]>) -> Result<bool> {
        Ok(self.txn.delete_range(self.tree, from, to)? > 0)
    }
}
