//! What is asked of every engine.

use std::path::Path;

use anyhow::{Result, ensure};
use clap::ValueEnum;
use heed::EnvFlags;

use crate::data::{Input, Sum};
use crate::engines;

/// An open, durable, ordered map on the disk. The same folder is never open twice.
pub(crate) trait Engine: Send + Sync {
    /// Loads records into the empty map by the fastest way the engine has for such input; durable on return.
    fn bulk(&self, input: &Input<'_>) -> Result<()> {
        self.write(true, &mut |writer| {
            input.each(|key, value| writer.put(key, value))
        })
    }

    /// One transaction that writes. On return it is visible to new readers, and survives a power cut if it is
    /// `durable`; otherwise it must still be wholly there or wholly absent afterwards. `work` may be repeated if the
    /// engine has to begin again.
    fn write(&self, durable: bool, work: &mut WriteWork<'_>) -> Result<()>;

    /// One transaction that reads a single state.
    fn read(&self, work: &mut ReadWork<'_>) -> Result<()>;

    /// Finishes what the engine has put off, so that it does not disturb others while they are measured.
    fn settle(&self) -> Result<()>;

    /// Waits until the engine does nothing any more of what it does by itself when nobody uses it.
    fn rest(&mut self) -> Result<()> {
        self.settle()
    }

    /// Gives unused space back as far as that is possible while others read and write; `false` if it is not.
    fn compact_online(&mut self) -> Result<bool> {
        Ok(false)
    }

    /// Makes the files as small as the engine can; `false` if it has nothing for it.
    fn compact(&mut self) -> Result<bool>;

    /// Whether a file belongs to a log, which has a length of its own and is not counted with the data.
    fn is_log(&self, _file_name: &str) -> bool {
        false
    }
}

/// What is done within a transaction that writes.
pub(crate) type WriteWork<'w> =
    dyn for<'t> FnMut(&'t mut (dyn Writer + 't)) -> Result<()> + Send + 'w;

/// The same for a transaction that only reads.
pub(crate) type ReadWork<'w> = dyn for<'t> FnMut(&'t mut (dyn Reader + 't)) -> Result<()> + 'w;

/// A transaction that writes.
pub(crate) trait Writer {
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()>;

    /// Removes a record that is there.
    fn remove(&mut self, key: &[u8]) -> Result<()>;
}

/// A transaction that reads.
pub(crate) trait Reader {
    /// Adds the value of `key` to the sum, if there is one.
    fn get(&mut self, key: &[u8], sum: &mut Sum) -> Result<()>;

    /// Adds up to `most` records from `from` on to the sum.
    fn scan(&mut self, from: &[u8], most: u64, sum: &mut Sum) -> Result<()>;
}

/// The engines there are.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Kind {
    Sapwood,
    Lmdb,
    Redb,
    Fjall,
    #[cfg(feature = "system-peers")]
    Rocksdb,
    #[cfg(feature = "system-peers")]
    BerkeleyDb,
}

impl Kind {
    /// Berkeley DB needs a cache for every page as a reader has seen it and as it has become since: with one as large
    /// as the data it makes a few hundred updates a second.
    pub(crate) fn keeps_old_states_in_its_cache(self) -> bool {
        match self {
            #[cfg(feature = "system-peers")]
            Kind::BerkeleyDb => true,
            _ => false,
        }
    }

    /// As [`Kind::open`], and the engine does by itself whatever it does by default.
    pub(crate) fn open_with_defaults(
        self,
        folder: &Path,
        cache_bytes: usize,
    ) -> Result<Box<dyn Engine>> {
        match self {
            Kind::Sapwood => Ok(Box::new(engines::sapwood::Sapwood::open_with_defaults(
                folder,
            )?)),
            _ => self.open(folder, cache_bytes),
        }
    }

    /// Whether it has a setting by which the system is told that accesses to its map jump.
    pub(crate) fn has_read_ahead(self) -> bool {
        self == Kind::Lmdb
    }

    /// Opens an engine that has such a setting, with it.
    pub(crate) fn open_without_read_ahead(self, folder: &Path) -> Result<Box<dyn Engine>> {
        ensure!(self == Kind::Lmdb, "{self} has no such setting");
        let engine = engines::lmdb::Lmdb::open_with(folder, EnvFlags::NO_READ_AHEAD)?;
        Ok(Box::new(engine))
    }

    /// Opens an engine in an empty folder that exists. A cache of the engine's own may take `cache_bytes`.
    pub(crate) fn open(self, folder: &Path, cache_bytes: usize) -> Result<Box<dyn Engine>> {
        Ok(match self {
            Kind::Sapwood => Box::new(engines::sapwood::Sapwood::open(folder)?),
            Kind::Lmdb => Box::new(engines::lmdb::Lmdb::open(folder)?),
            Kind::Redb => Box::new(engines::redb::Redb::open(folder, cache_bytes)?),
            Kind::Fjall => Box::new(engines::fjall::Fjall::open(folder, cache_bytes)?),
            #[cfg(feature = "system-peers")]
            Kind::Rocksdb => Box::new(engines::rocksdb::RocksDb::open(folder, cache_bytes)?),
            #[cfg(feature = "system-peers")]
            Kind::BerkeleyDb => {
                Box::new(engines::berkeley_db::BerkeleyDb::open(folder, cache_bytes)?)
            }
        })
    }
}

impl std::fmt::Display for Kind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(
            self.to_possible_value()
                .as_ref()
                .map_or("", |value| value.get_name()),
        )
    }
}
