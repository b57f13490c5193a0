//! Our own trees under the workloads: each worker is a process of its own, as the peers are.

use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result, anyhow, ensure};
use clap::ValueEnum;
use rustix::fs::OFlags;
use rustix::io::{ReadWriteFlags, pwritev2};
use sapwood_xact::{
    BPlusTree, CacheObliviousTree, Error, File, Memory, Mode, Options, Rebalancer, Space,
};

use crate::aged::Aged;
use crate::keys::{self, KEY_BYTES, VALUE_BYTES};
use crate::outcome::{Outcome, Times};
use crate::usage;

/// What holds the records. The peers' names are those of `peers.c`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Engine {
    /// A B+tree in a mapped file
    FileBplus,
    /// The cache-oblivious tree in a mapped file
    FileCacheOblivious,
    /// A B+tree in a space, a durable transaction for each insert
    SpaceBplus,
    /// The cache-oblivious tree in a space
    SpaceCacheOblivious,
    /// A B+tree on loads and stores alone, in a space in mode tracked
    SpaceBplusTracked,
    /// The same in mode snapshot
    SpaceBplusSnapshot,
    /// The cache-oblivious tree on loads and stores alone, in a space in mode tracked
    SpaceCacheObliviousTracked,
    /// The same in mode snapshot
    SpaceCacheObliviousSnapshot,
    /// Berkeley DB without transactions
    BerkeleyDb,
    /// Berkeley DB with transactions and its write-ahead log
    BerkeleyDbDurable,
    /// The same with a log that is opened for synchronous writes (DB_LOG_DSYNC)
    BerkeleyDbDsync,
    /// The same with log files of 64 MiB that are written before they are used (DB_LOG_ZERO)
    BerkeleyDbZero,
    /// The same with both
    BerkeleyDbDsyncZero,
    /// LMDB
    LmdbDurable,
    /// No records: a block of 4 KiB written past the page cache and synced, as a commit writes its log
    BareWrite,
}

/// What is done with them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Phase {
    /// Make an empty tree
    Create,
    /// Insert keys in any order
    InsertRandom,
    /// Insert keys in their order
    InsertInOrder,
    /// Go through all records
    Scan,
    /// Look up keys in any order
    Search,
    /// The same, of those that were inserted in order
    SearchInOrder,
}

/// A part of a workload.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Work {
    pub(crate) engine: Engine,
    pub(crate) phase: Phase,
    /// Where the data are
    pub(crate) folder: PathBuf,
    /// The first key
    pub(crate) first: u64,
    /// How many
    pub(crate) count: u64,
    /// How many there are to search among
    pub(crate) total: u64,
    /// The pool of Berkeley DB in bytes
    pub(crate) cache_bytes: u64,
    #[command(flatten)]
    pub(crate) how: How,
}

impl Work {
    /// Makes parts of the work on one folder, with blocks of 4096 bytes: a phase, the first key, and how many.
    pub(crate) fn parts(
        engine: Engine,
        folder: &Path,
        (total, cache_bytes): (u64, u64),
    ) -> impl Fn(Phase, u64, u64) -> Work {
        move |phase, first, count| Work {
            engine,
            phase,
            folder: folder.to_owned(),
            first,
            count,
            total,
            cache_bytes,
            how: How::blocks(4096),
        }
    }
}

/// How a tree is used.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct How {
    /// The block size of a B+tree in bytes
    #[arg(long, default_value_t = 4096)]
    pub(crate) block_bytes: usize,
    /// Take the blocks of a B+tree in no order
    #[arg(long)]
    pub(crate) aged: bool,
    /// Tell the system nothing of what will be read
    #[arg(long)]
    pub(crate) unadvised: bool,
}

impl How {
    /// With blocks of so many bytes.
    pub(crate) fn blocks(block_bytes: usize) -> Self {
        Self {
            block_bytes,
            aged: false,
            unadvised: false,
        }
    }

    /// As arguments of a worker.
    pub(crate) fn arguments(&self) -> Vec<String> {
        let mut arguments = vec![format!("--block-bytes={}", self.block_bytes)];
        arguments.extend(self.aged.then(|| "--aged".to_owned()));
        arguments.extend(self.unadvised.then(|| "--unadvised".to_owned()));
        arguments
    }
}

impl Engine {
    /// Its name for people and on command lines.
    pub(crate) fn name(self) -> String {
        self.to_possible_value()
            .map_or_else(String::new, |value| value.get_name().to_owned())
    }

    /// In which mode its space is, if it has one.
    fn mode(self) -> Option<Mode> {
        match self {
            Engine::SpaceBplus | Engine::SpaceCacheOblivious => Some(Mode::Explicit),
            Engine::SpaceBplusTracked | Engine::SpaceCacheObliviousTracked => Some(Mode::Tracked),
            Engine::SpaceBplusSnapshot | Engine::SpaceCacheObliviousSnapshot => {
                Some(Mode::Snapshot)
            }
            _ => None,
        }
    }

    fn is_cache_oblivious(self) -> bool {
        matches!(
            self,
            Engine::FileCacheOblivious
                | Engine::SpaceCacheOblivious
                | Engine::SpaceCacheObliviousTracked
                | Engine::SpaceCacheObliviousSnapshot
        )
    }

    pub(crate) fn is_peer(self) -> bool {
        self == Engine::BerkeleyDb || self == Engine::LmdbDurable || self.is_durable_peer()
    }

    /// Whether it is Berkeley DB with transactions, however it is set.
    pub(crate) fn is_durable_peer(self) -> bool {
        matches!(
            self,
            Engine::BerkeleyDbDurable
                | Engine::BerkeleyDbDsync
                | Engine::BerkeleyDbZero
                | Engine::BerkeleyDbDsyncZero
        )
    }
}

/// Runs in a worker: opens, says so, waits for the start, works, and prints what it measured.
pub(crate) fn run(work: &Work) -> Result<()> {
    if let Some(mode) = work.engine.mode() {
        return run_in_space(work, mode);
    }
    match work.engine {
        Engine::FileBplus | Engine::FileCacheOblivious => {
            let mut file = File::open(&work.folder.join("tree"))?;
            if work.phase == Phase::Create {
                create(work, &mut file)?;
            }
            let root = file.root()?;
            file.set_advice(!work.how.unadvised);
            let block_bytes = work.how.block_bytes as u64;
            if work.engine == Engine::FileBplus
                && work.how.aged
                && work.phase == Phase::InsertRandom
            {
                // As many as it will have, as far as can be told.
                let blocks = work.count * RECORD_BYTES / block_bytes * 3 / 2;
                let memory = Aged::new(file, block_bytes, blocks)?;
                let mut tree = BPlusTree::open(memory, root)?;
                drive(work, &mut tree, || 0)
            } else if work.engine == Engine::FileBplus {
                let mut tree = BPlusTree::open(file, root)?;
                drive(work, &mut tree, || 0)
            } else {
                let mut tree = CacheObliviousTree::open(file, root)?;
                drive(work, &mut tree, || 0)
            }
        }
        Engine::BareWrite => {
            let path = work.folder.join("blocks");
            if work.phase == Phase::Create {
                let mut file = fs::File::create(&path)?;
                file.write_all(&vec![0; BareWrites::BLOCKS * BLOCK_BYTES])?;
                file.sync_all()?;
            }
            drive(work, &mut BareWrites::open(&path)?, || 0)
        }
        _ => Err(anyhow!("peers run in a program of their own")),
    }
}

fn run_in_space(work: &Work, mode: Mode) -> Result<()> {
    let space = Space::open(work.folder.join("space"), &Options::new().mode(mode))?;
    if work.phase == Phase::Create {
        space.transaction(|transaction| create(work, transaction))?;
    }
    let root = space.read(|transaction| transaction.root())?;
    let log = space.clone();
    let mut tree = InSpace {
        space,
        root,
        cache_oblivious: work.engine.is_cache_oblivious(),
        rebalancer: Arc::new(Rebalancer::deferred()),
    };
    drive(work, &mut tree, || log.stat().last)
}

fn create<M: Memory>(work: &Work, memory: &mut M) -> Result<(), M::Error> {
    let root = match work.engine.is_cache_oblivious() {
        true => CacheObliviousTree::create(&mut *memory)?.offset(),
        false => BPlusTree::create(&mut *memory, work.how.block_bytes)?.offset(),
    };
    memory.set_root(root)
}

/// What the workloads do with a tree.
trait Subject {
    fn insert(&mut self, key: &[u8], value: &[u8]) -> Result<()>;
    fn contains(&self, key: &[u8]) -> Result<bool>;
    fn count(&self) -> Result<u64>;
}

macro_rules! subject {
    ($tree:ident) => {
        impl<M: Memory<Error: Send + Sync + 'static>> Subject for $tree<M> {
            fn insert(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
                $tree::insert(self, key, value)?;
                Ok(())
            }

            fn contains(&self, key: &[u8]) -> Result<bool> {
                Ok(self.get(key)?.is_some())
            }

            fn count(&self) -> Result<u64> {
                let mut count = 0;
                for record in self.range(..)? {
                    record?;
                    count += 1;
                }
                Ok(count)
            }
        }
    };
}

subject!(BPlusTree);
subject!(CacheObliviousTree);

/// A tree in a space: every operation is a transaction.
struct InSpace {
    space: Space,
    root: u64,
    cache_oblivious: bool,
    rebalancer: Arc<Rebalancer>,
}

impl InSpace {
    fn put<M: Memory>(&self, memory: M, key: &[u8], value: &[u8]) -> Result<bool, M::Error> {
        match self.cache_oblivious {
            true => self.tree(memory)?.insert(key, value),
            false => BPlusTree::open(memory, self.root)?.insert(key, value),
        }
    }

    fn has<M: Memory>(&self, memory: M, key: &[u8]) -> Result<bool, M::Error> {
        match self.cache_oblivious {
            true => Ok(self.tree(memory)?.get(key)?.is_some()),
            false => Ok(BPlusTree::open(memory, self.root)?.get(key)?.is_some()),
        }
    }

    fn number<M: Memory>(&self, memory: M) -> Result<u64, M::Error> {
        let mut count = 0;
        if self.cache_oblivious {
            for record in self.tree(memory)?.range(..)? {
                record?;
                count += 1;
            }
        } else {
            for record in BPlusTree::open(memory, self.root)?.range(..)? {
                record?;
                count += 1;
            }
        }
        Ok(count)
    }

    fn tree<M: Memory>(&self, memory: M) -> Result<CacheObliviousTree<M>, M::Error> {
        CacheObliviousTree::with_rebalancer(memory, self.root, Arc::clone(&self.rebalancer))
    }
}

/// Does something in the memory of a transaction: where there is any, with loads and stores alone.
macro_rules! in_memory {
    ($transaction:expr, $memory:ident => $what:expr) => {{
        let transaction = $transaction;
        if transaction.map().is_none() {
            let $memory = transaction;
            $what
        } else {
            let $memory = transaction.mapped().ok_or(Error::GivenUp)?;
            $what
        }
    }};
}

impl Subject for InSpace {
    fn insert(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.space
            .transaction(|t| in_memory!(t, memory => self.put(memory, key, value)))?;
        if self.cache_oblivious && self.rebalancer.due() {
            self.space
                .transaction_relaxed(|t| in_memory!(t, memory => self.tree(memory)?.maintain()))?;
        }
        Ok(())
    }

    fn contains(&self, key: &[u8]) -> Result<bool> {
        let t = &mut self.space.begin_read()?;
        Ok(in_memory!(t, memory => self.has(memory, key))?)
    }

    fn count(&self) -> Result<u64> {
        let t = &mut self.space.begin_read()?;
        Ok(in_memory!(t, memory => self.number(memory))?)
    }
}

/// A file that was written before, overwritten a block at a time. Blocks are numbered from 1.
struct BareWrites {
    file: fs::File,
    block: Box<Block>,
    written: u64,
}

const BLOCK_BYTES: usize = 4096;

/// What a record takes up in a block, about.
const RECORD_BYTES: u64 = (KEY_BYTES + VALUE_BYTES) as u64 + 8;

#[repr(align(4096))]
struct Block([u8; BLOCK_BYTES]);

impl BareWrites {
    const BLOCKS: usize = 2048;

    fn open(path: &Path) -> Result<Self> {
        let flags = i32::try_from(OFlags::DIRECT.bits())?;
        let mut options = fs::OpenOptions::new();
        let options = options.read(true).write(true).custom_flags(flags);
        Ok(Self {
            file: options.open(path)?,
            block: Box::new(Block([0; BLOCK_BYTES])),
            written: 0,
        })
    }
}

impl Subject for BareWrites {
    fn insert(&mut self, key: &[u8], _: &[u8]) -> Result<()> {
        let place = self.written % Self::BLOCKS as u64 * BLOCK_BYTES as u64;
        self.written += 1;
        let (number, rest) = self.block.0.split_at_mut(8);
        number.copy_from_slice(&self.written.to_le_bytes());
        rest[..key.len()].copy_from_slice(key);
        let block = [io::IoSlice::new(&self.block.0)];
        let bytes = pwritev2(&self.file, &block, place, ReadWriteFlags::DSYNC)?;
        ensure!(bytes == BLOCK_BYTES, "half a block was written");
        Ok(())
    }

    fn contains(&self, _: &[u8]) -> Result<bool> {
        Err(anyhow!("there are no records"))
    }

    fn count(&self) -> Result<u64> {
        let mut block = Box::new(Block([0; BLOCK_BYTES]));
        let mut newest = 0;
        for place in 0..Self::BLOCKS as u64 {
            let at = place * BLOCK_BYTES as u64;
            self.file.read_exact_at(&mut block.0, at)?;
            let number = block.0.first_chunk().map_or(0, |n| u64::from_le_bytes(*n));
            newest = newest.max(number);
        }
        Ok(newest)
    }
}

fn drive(work: &Work, tree: &mut impl Subject, log_bytes: impl Fn() -> u64) -> Result<()> {
    println!("ready");
    io::stdout().flush()?;
    let mut line = String::new();
    ensure!(io::stdin().read_line(&mut line)? > 0, "nobody has started");
    let mut outcome = Outcome::default();
    let (log, usage) = (log_bytes(), usage::own()?);
    let start = Instant::now();
    let mut last = start;
    let mut timed = |times: &mut Times| {
        let now = Instant::now();
        times.add(u64::try_from((now - last).as_nanos()).unwrap_or(u64::MAX));
        last = now;
    };
    let numbers = work.first..work.first + work.count;
    match work.phase {
        Phase::Create => {}
        Phase::Scan => outcome.done = tree.count()?,
        Phase::Search | Phase::SearchInOrder => {
            let in_order = work.phase == Phase::SearchInOrder;
            for number in numbers {
                let sample = keys::sample(number, work.total);
                let key: [u8; KEY_BYTES] = keys::key(sample, in_order);
                outcome.done += u64::from(tree.contains(&key)?);
                timed(&mut outcome.times);
            }
        }
        Phase::InsertRandom | Phase::InsertInOrder => {
            let in_order = work.phase == Phase::InsertInOrder;
            for number in numbers {
                let value: [u8; VALUE_BYTES] = number.to_le_bytes();
                tree.insert(&keys::key(number, in_order), &value)?;
                outcome.done += 1;
                timed(&mut outcome.times);
            }
        }
    }
    outcome.nanoseconds = u64::try_from(start.elapsed().as_nanos())?;
    let used = usage::own()?;
    outcome.cpu_us = used.cpu_us - usage.cpu_us;
    outcome.major_faults = used.major_faults - usage.major_faults;
    outcome.minor_faults = used.minor_faults - usage.minor_faults;
    outcome.read_bytes = used.read_bytes - usage.read_bytes;
    outcome.log_bytes = log_bytes() - log;
    println!("{outcome}");
    Ok(())
}

/// Makes the folder of a tree new.
pub(crate) fn clear(folder: &Path) -> Result<()> {
    if folder.exists() {
        fs::remove_dir_all(folder).with_context(|| folder.display().to_string())?;
    }
    fs::create_dir_all(folder).with_context(|| folder.display().to_string())
}
