//! The write transaction of the embedded store.

use std::sync::Arc;

use sapwood_store as store;
use sapwood_store::{TreeId, TreeKind, WriteTxn};

use super::read::Trees;
use super::{CHANGE, INDEX_KIND, TRIMMED_KEY, commit_of, fixed, kind};
use crate::engine::postings::{self, BlockTree, BlockTreeMut, Scratch};
use crate::engine::{AttributeNo, CommitNo, EntryId, Error, Index, Result, Table, Write};

/// The write transaction of the store, with the trees it has touched.
#[derive(Debug)]
pub struct EmbeddedTxn {
    pub(super) txn: WriteTxn,
    /// Shared with the savepoints that would bring it back: it seldom changes.
    pub(super) trees: Arc<KnownTrees>,
    scratch: ScratchBox,
}

/// The trees known to a transaction. The fixed tables are looked up at its beginning, all others when they are needed.
#[derive(Clone, Debug, Default)]
pub(super) struct KnownTrees {
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
    pub(super) fn new(mut txn: WriteTxn) -> Result<EmbeddedTxn> {
        let mut trees = KnownTrees::default();
        for (table, place) in Table::FIXED.iter().zip(&mut trees.fixed) {
            *place = txn.tree(table.name().as_str())?;
        }
        Ok(EmbeddedTxn {
            txn,
            trees: Arc::new(trees),
            scratch: ScratchBox::default(),
        })
    }

    fn trees_mut(&mut self) -> &mut KnownTrees {
        Arc::make_mut(&mut self.trees)
    }

    /// The tree to write a table to, made when it is missing.
    fn tree_mut(&mut self, table: Table) -> Result<TreeId> {
        if let Some(tree) = self.open_table(table)? {
            return Ok(tree);
        }
        let tree = self.txn.create_tree(table.name().as_str(), kind(table))?;
        match fixed(table) {
            Some(at) => self.trees_mut().fixed[at] = Some(tree),
            None => self.trees_mut().order.push((table, tree)),
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
        if let Some(tree) = tree {
            self.trees_mut().order.push((table, tree));
        }
        Ok(tree)
    }

    fn open_blocks(&mut self, index: Index) -> Result<Option<TreeId>> {
        if let Some((_, tree)) = self.trees.indexes.iter().find(|(known, _)| *known == index) {
            return Ok(Some(*tree));
        }
        let tree = self.txn.tree(index.name().as_str())?;
        if let Some(tree) = tree {
            self.trees_mut().indexes.push((index, tree));
        }
        Ok(tree)
    }

    fn existing_blocks(&mut self, index: Index) -> Result<TreeId> {
        self.open_blocks(index)?.ok_or_else(|| {
            Error::Corrupt(format!("index {} does not exist", index.name().as_str()))
        })
    }
}

impl Trees for EmbeddedTxn {
    fn commit(&self) -> CommitNo {
        CommitNo(self.txn.commit_no().0)
    }

    fn table(&self, table: Table) -> Result<Option<store::Tree<'_>>> {
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
            self.trees_mut().indexes.push((index, tree));
        }
        Ok(())
    }

    fn drop_index(&mut self, index: Index) -> Result<bool> {
        self.trees_mut()
            .indexes
            .retain(|(known, _)| *known != index);
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
            Some(at) => self.trees_mut().fixed[at] = None,
            None => self.trees_mut().order.retain(|(known, _)| *known != table),
        }
        Ok(self.txn.drop_tree(table.name().as_str())?)
    }

    fn record_change(&mut self, record: &[u8]) -> Result<()> {
        let tree = match self.txn.tree(CHANGE)? {
            Some(tree) => tree,
            None => self.txn.create_tree(CHANGE, TreeKind::COMPACT)?,
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
