//! Our store with its default options: a log of 64 MiB, checkpoints when three eighths of it are used. Only that it
//! compacts itself when it rests is left to the row that measures it: it would do so while others are measured.
//!
//! Bulk: sorted input goes into the bulk builder, any other through the sorter first, which gets 256 MiB and one more
//! thread. Compaction: `Env::compact` online, otherwise a compacting backup, restored. Transactions that need not be
//! durable are `Durability::Relaxed`: logged, and not waited for.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use sapwood_store::restore;
use sapwood_store::sort::Sorter;
use sapwood_store::{Durability, Env, Options, Snapshot, Tree, TreeId, TreeKind, WriteTxn};

use crate::data::{Input, Sum};
use crate::engine::{Engine, ReadWork, Reader, WriteWork, Writer};

const ENV: &str = "env";
const TREE: &str = "records";
const SORT_MEMORY_BYTES: usize = 256 << 20;

pub(crate) struct Sapwood {
    /// `None` only while it is closed.
    env: Option<Env>,
    folder: PathBuf,
}

impl Sapwood {
    pub(crate) fn open(folder: &Path) -> Result<Self> {
        Ok(Self {
            env: Some(Env::open(folder.join(ENV), &options())?),
            folder: folder.to_owned(),
        })
    }

    pub(crate) fn open_with_defaults(folder: &Path) -> Result<Self> {
        Ok(Self {
            env: Some(Env::open(folder.join(ENV), &Options::new())?),
            folder: folder.to_owned(),
        })
    }

    fn env(&self) -> &Env {
        match &self.env {
            Some(env) => env,
            None => unreachable!("the function that closes it opens it again"),
        }
    }

    fn reopen(&mut self, options: &Options) -> Result<()> {
        self.env = None;
        self.env = Some(Env::open(self.folder.join(ENV), options)?);
        Ok(())
    }
}

fn options() -> Options {
    Options::new().idle_compaction(None)
}

impl Engine for Sapwood {
    fn bulk(&self, input: &Input<'_>) -> Result<()> {
        let mut load = self.env().bulk()?;
        let mut tree = load.tree(TREE, TreeKind::COMPACT)?;
        if input.in_order.is_some() {
            input.each(|key, value| tree.push(&mut load, key, value))?;
        } else {
            let mut sorter = Sorter::new(&self.folder, SORT_MEMORY_BYTES, 1);
            input.each(|key, value| sorter.push(key, value))?;
            let mut sorted = sorter.finish()?;
            while let Some((key, value)) = sorted.next()? {
                tree.push(&mut load, key, value)?;
            }
        }
        tree.finish(&mut load)?;
        load.commit()?;
        Ok(())
    }

    fn write(&self, durable: bool, work: &mut WriteWork<'_>) -> Result<()> {
        let mut txn = self.env().write()?;
        write(&mut txn, work)?;
        if durable {
            txn.commit()?.wait_durable()?;
        } else {
            drop(txn.commit_with(Durability::Relaxed)?);
        }
        Ok(())
    }

    fn read(&self, work: &mut ReadWork<'_>) -> Result<()> {
        let snapshot = self.env().read()?;
        work(&mut Read {
            snapshot: &snapshot,
            tree: None,
        })
    }

    fn settle(&self) -> Result<()> {
        self.env().checkpoint()?;
        Ok(())
    }

    fn rest(&mut self) -> Result<()> {
        self.reopen(&Options::new())?;
        let env = self.env();
        // It counts the time from the first transaction on.
        drop(env.write()?);
        let newest = || anyhow::Ok(env.read()?.commit());
        let (mut last, mut since) = (newest()?, Instant::now());
        // It begins ten seconds after the last commit.
        while since.elapsed() < Duration::from_secs(15) {
            std::thread::sleep(Duration::from_millis(100));
            let now = newest()?;
            if now != last {
                (last, since) = (now, Instant::now());
            }
        }
        self.reopen(&options())
    }

    fn compact_online(&mut self) -> Result<bool> {
        self.env().compact(|_| ())?;
        Ok(true)
    }

    fn compact(&mut self) -> Result<bool> {
        let (copy, env) = (self.folder.join("copy"), self.folder.join(ENV));
        self.env().backup_compacted(&copy)?;
        self.env = None;
        fs::remove_dir_all(&env)?;
        restore(&copy, &env)?;
        fs::remove_file(copy)?;
        self.env = Some(Env::open(env, &options())?);
        Ok(true)
    }

    fn is_log(&self, file_name: &str) -> bool {
        file_name.starts_with("log")
    }
}

fn write(txn: &mut WriteTxn, work: &mut WriteWork<'_>) -> Result<()> {
    let tree = match txn.tree(TREE)? {
        Some(tree) => tree,
        None => txn.create_tree(TREE, TreeKind::COMPACT)?,
    };
    work(&mut Write { txn, tree })
}

struct Write<'t> {
    txn: &'t mut WriteTxn,
    tree: TreeId,
}

impl Writer for Write<'_> {
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.txn.put(self.tree, key, value)?;
        Ok(())
    }

    fn remove(&mut self, key: &[u8]) -> Result<()> {
        ensure!(self.txn.delete(self.tree, key)?, "a record is missing");
        Ok(())
    }
}

struct Read<'s> {
    snapshot: &'s Snapshot,
    /// Opened by the first operation.
    tree: Option<Tree<'s>>,
}

impl<'s> Read<'s> {
    #[inline]
    fn tree(&mut self) -> Result<&Tree<'s>> {
        match self.tree {
            Some(ref tree) => Ok(tree),
            None => {
                let tree = self.snapshot.tree(TREE)?.context("nothing is loaded")?;
                Ok(self.tree.insert(tree))
            }
        }
    }
}

impl Reader for Read<'_> {
    fn get(&mut self, key: &[u8], sum: &mut Sum) -> Result<()> {
        if let Some(value) = self.tree()?.get(key)? {
            sum.add_value(value);
        }
        Ok(())
    }

    fn scan(&mut self, from: &[u8], most: u64, sum: &mut Sum) -> Result<()> {
        let mut cursor = self.tree()?.cursor();
        let mut left = most;
        let mut is_on = cursor.seek(from)?;
        while is_on && left > 0 {
            if let Some((key, value)) = cursor.record()? {
                sum.add(key, value);
            }
            left -= 1;
            is_on = left > 0 && cursor.next()?;
        }
        Ok(())
    }
}
