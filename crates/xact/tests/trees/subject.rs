//! What the tests do with a tree, whichever it is.

use std::ops::Bound;

use std::sync::Arc;

use sapwood_xact::{
    BPlusTree, CacheObliviousTree, Census, Error, File, Memory, Plain, Rebalancer, Space,
    Transaction,
};

pub(crate) type Keys<'k> = (Bound<&'k [u8]>, Bound<&'k [u8]>);
pub(crate) type Records = Vec<(Vec<u8>, Vec<u8>)>;

pub(crate) trait Subject<M: Memory>: Sized {
    /// Opens the tree again in the memory that an earlier one gave back.
    fn reopen(memory: M, offset: u64) -> Result<Self, M::Error>;
    fn offset(&self) -> u64;
    fn into_memory(self) -> M;
    fn key_bytes_max(&self) -> usize;
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, M::Error>;
    fn insert(&mut self, key: &[u8], value: &[u8]) -> Result<bool, M::Error>;
    fn remove(&mut self, key: &[u8]) -> Result<bool, M::Error>;
    fn check(&self) -> Result<Census, M::Error>;
    /// The records between two keys, taken from the front where `front` says so and from the back otherwise, in the
    /// order taken.
    fn range(&self, keys: Keys<'_>, front: impl FnMut() -> bool) -> Result<Records, M::Error>;
}

/// What a memory is when a program has closed it and opened it again.
pub(crate) trait Renew: Memory {
    fn renew(self) -> Self;
}

impl Renew for Plain {
    fn renew(self) -> Self {
        self
    }
}

impl Renew for File {
    fn renew(self) -> Self {
        self
    }
}

/// A memory that is a transaction: the next one after each commit.
pub(crate) struct Committing<'s> {
    space: &'s Space,
    transaction: Transaction<'s>,
}

impl<'s> Committing<'s> {
    pub(crate) fn new(space: &'s Space) -> Self {
        let transaction = space.begin().unwrap();
        Self { space, transaction }
    }
}

impl Renew for Committing<'_> {
    fn renew(self) -> Self {
        self.transaction.commit().unwrap();
        Self::new(self.space)
    }
}

impl Memory for Committing<'_> {
    type Error = Error;

    fn read(&self, offset: u64, bytes: usize) -> Result<&[u8], Error> {
        self.transaction.read(offset, bytes)
    }

    fn write(&mut self, offset: u64, bytes: usize) -> Result<&mut [u8], Error> {
        self.transaction.write(offset, bytes)
    }

    fn allocate(&mut self, bytes: u64) -> Result<u64, Error> {
        self.transaction.allocate(bytes)
    }

    fn free(&mut self, offset: u64, bytes: u64) -> Result<(), Error> {
        self.transaction.free(offset, bytes)
    }

    fn root(&self) -> Result<u64, Error> {
        self.transaction.root()
    }

    fn set_root(&mut self, root: u64) -> Result<(), Error> {
        self.transaction.set_root(root)
    }
}

macro_rules! subject {
    ($tree:ident) => {
        impl<M: Memory> Subject<M> for $tree<M> {
            fn reopen(memory: M, offset: u64) -> Result<Self, M::Error> {
                $tree::open(memory, offset)
            }

            fn offset(&self) -> u64 {
                self.offset()
            }

            fn into_memory(self) -> M {
                self.into_memory()
            }

            fn key_bytes_max(&self) -> usize {
                self.key_bytes_max()
            }

            fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, M::Error> {
                Ok(self.get(key)?.map(<[u8]>::to_vec))
            }

            fn insert(&mut self, key: &[u8], value: &[u8]) -> Result<bool, M::Error> {
                self.insert(key, value)
            }

            fn remove(&mut self, key: &[u8]) -> Result<bool, M::Error> {
                self.remove(key)
            }

            fn check(&self) -> Result<Census, M::Error> {
                self.check()
            }

            fn range(
                &self,
                keys: Keys<'_>,
                mut front: impl FnMut() -> bool,
            ) -> Result<Records, M::Error> {
                let mut range = self.range(keys)?;
                let mut taken = Vec::new();
                while let Some(record) = if front() {
                    range.next()
                } else {
                    range.next_back()
                } {
                    let (key, value) = record?;
                    taken.push((key.to_vec(), value.to_vec()));
                }
                assert!(range.next().is_none() && range.next_back().is_none());
                Ok(taken)
            }
        }
    };
}

subject!(BPlusTree);
subject!(CacheObliviousTree);

/// A cache-oblivious tree that leaves rebalancing for later, and does a step of it after every third change.
pub(crate) struct Deferred<M> {
    tree: CacheObliviousTree<M>,
    rebalancer: Arc<Rebalancer>,
    changes: u64,
}

impl<M: Memory> Deferred<M> {
    pub(crate) fn new(tree: CacheObliviousTree<M>) -> Result<Self, M::Error> {
        let offset = tree.offset();
        Self::reopen(tree.into_memory(), offset)
    }

    pub(crate) fn maintain(&mut self) -> Result<bool, M::Error> {
        self.tree.maintain()
    }

    /// Inserts without any rebalancing.
    pub(crate) fn insert_alone(&mut self, key: &[u8], value: &[u8]) -> Result<bool, M::Error> {
        self.tree.insert(key, value)
    }

    pub(crate) fn due(&self) -> bool {
        self.rebalancer.due()
    }

    fn changed(&mut self) -> Result<(), M::Error> {
        self.changes += 1;
        if self.changes.is_multiple_of(3) && self.due() {
            self.maintain()?;
        }
        Ok(())
    }
}

impl<M: Memory> Subject<M> for Deferred<M> {
    fn reopen(memory: M, offset: u64) -> Result<Self, M::Error> {
        let rebalancer = Arc::new(Rebalancer::deferred());
        Ok(Self {
            tree: CacheObliviousTree::with_rebalancer(memory, offset, Arc::clone(&rebalancer))?,
            rebalancer,
            changes: 0,
        })
    }

    fn offset(&self) -> u64 {
        self.tree.offset()
    }

    fn into_memory(self) -> M {
        self.tree.into_memory()
    }

    fn key_bytes_max(&self) -> usize {
        self.tree.key_bytes_max()
    }

    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, M::Error> {
        Subject::get(&self.tree, key)
    }

    fn insert(&mut self, key: &[u8], value: &[u8]) -> Result<bool, M::Error> {
        let new = self.tree.insert(key, value)?;
        self.changed()?;
        Ok(new)
    }

    fn remove(&mut self, key: &[u8]) -> Result<bool, M::Error> {
        let found = self.tree.remove(key)?;
        self.changed()?;
        Ok(found)
    }

    fn check(&self) -> Result<Census, M::Error> {
        self.tree.check()
    }

    fn range(&self, keys: Keys<'_>, front: impl FnMut() -> bool) -> Result<Records, M::Error> {
        Subject::range(&self.tree, keys, front)
    }
}
