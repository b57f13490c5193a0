//! Comparators that the program has registered, by the names of their trees.

use std::collections::HashMap;

use crate::env::Env;
use crate::sync::{AtomicU64, Mutex, Ordering, lock};
use crate::tree::Comparators;

/// What is registered in one environment of this process.
#[derive(Default)]
pub(crate) struct Registry {
    /// How many there are: looking a tree up costs nothing in a program that registers none.
    count: AtomicU64,
    by_name: Mutex<HashMap<Box<[u8]>, Comparators>>,
}

impl Registry {
    #[inline]
    pub(crate) fn of(&self, name: &[u8]) -> Comparators {
        if self.count.load(Ordering::Acquire) == 0 {
            return Comparators::default();
        }
        lock(&self.by_name).get(name).copied().unwrap_or_default()
    }
}

impl Env {
    /// Registers how the tree of this name is ordered, in this process until the environment is closed. It is in force
    /// for every tree that is looked up or created by this name afterwards, and replaces what was registered before.
    ///
    /// Nothing else in the store compares keys: recovery, backup and compaction need no comparator. [`Env::check`]
    /// without it cannot check the order.
    ///
    /// ```
    /// # fn main() -> sapwood_store::Result<()> {
    /// use sapwood_store::{Comparators, Env, Options, TreeKind};
    ///
    /// let env = Env::in_memory(&Options::new())?;
    /// let descending = Comparators { keys: Some(&|a, b| b.cmp(a)), duplicates: None };
    /// env.set_comparators("scores", descending);
    ///
    /// let mut txn = env.write()?;
    /// let scores = txn.create_tree("scores", TreeKind::WHOLE)?;
    /// txn.put(scores, b"1", b"")?;
    /// txn.put(scores, b"2", b"")?;
    /// let mut cursor = txn.view(scores)?.cursor();
    /// assert!(cursor.first()?);
    /// assert_eq!(cursor.key()?, Some(&b"2"[..]));
    /// # Ok(())
    /// # }
    /// ```
    pub fn set_comparators(&self, tree: impl AsRef<[u8]>, comparators: Comparators) {
        let registry = &self.inner().comparators;
        let mut by_name = lock(&registry.by_name);
        by_name.insert(tree.as_ref().into(), comparators);
        let count = by_name.len() as u64;
        registry.count.store(count, Ordering::Release);
    }
}
