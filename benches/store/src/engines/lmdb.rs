//! LMDB through heed, with its defaults (two syncs a commit, no writable map) and a map that is large enough.
//!
//! Bulk: sorted input by puts that append, any other by puts in one transaction. Transactions that need not be durable:
//! `MDB_NOSYNC`, which on a file system that keeps the order of writes loses commits and nothing else.

#![allow(unsafe_code)] // heed's way to say that nobody may map the file twice, or change its flags under a writer.

use std::fs;
use std::ops::Bound;
use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};
use heed::types::Bytes;
use heed::{CompactionOption, Database, Env, EnvFlags, EnvOpenOptions, FlagSetMode, PutFlags};
use heed::{RoTxn, RwTxn};

use crate::data::{Input, Sum};
use crate::engine::{Engine, ReadWork, Reader, WriteWork, Writer};

const MAP_BYTES: usize = 64 << 30;
const MAP_BYTES_MIN: usize = 1 << 30;

pub(crate) struct Lmdb {
    /// `None` only while it is being compacted.
    open: Option<(Env, Database<Bytes, Bytes>)>,
    folder: PathBuf,
}

impl Lmdb {
    pub(crate) fn open(folder: &Path) -> Result<Self> {
        Self::open_with(folder, EnvFlags::empty())
    }

    pub(crate) fn open_with(folder: &Path, flags: EnvFlags) -> Result<Self> {
        Ok(Self {
            open: Some(open(folder, flags)?),
            folder: folder.to_owned(),
        })
    }

    fn parts(&self) -> (&Env, Database<Bytes, Bytes>) {
        match &self.open {
            Some((env, database)) => (env, *database),
            None => unreachable!("only `compact` closes it, and opens it again"),
        }
    }
}

fn open(folder: &Path, flags: EnvFlags) -> Result<(Env, Database<Bytes, Bytes>)> {
    let mut options = EnvOpenOptions::new();
    // SAFETY: none that is set here takes a lock or a sync away.
    unsafe { options.flags(flags) };
    let mut map_bytes = MAP_BYTES;
    let env = loop {
        options.map_size(map_bytes);
        // SAFETY: the folder belongs to this process, which opens it once.
        match unsafe { options.open(folder) } {
            Ok(env) => break env,
            // Under valgrind there is less room.
            Err(_) if map_bytes > MAP_BYTES_MIN => map_bytes /= 2,
            Err(error) => return Err(error.into()),
        }
    };
    let mut txn = env.write_txn()?;
    let database = env.create_database(&mut txn, None)?;
    txn.commit()?;
    Ok((env, database))
}

impl Engine for Lmdb {
    fn bulk(&self, input: &Input<'_>) -> Result<()> {
        let (env, database) = self.parts();
        let flags = match input.in_order {
            Some(_) => PutFlags::APPEND,
            None => PutFlags::empty(),
        };
        let mut txn = env.write_txn()?;
        input.each(|key, value| database.put_with_flags(&mut txn, flags, key, value))?;
        Ok(txn.commit()?)
    }

    fn write(&self, durable: bool, work: &mut WriteWork<'_>) -> Result<()> {
        let (env, database) = self.parts();
        let is_durable = env.flags()?.is_none_or(|f| !f.contains(EnvFlags::NO_SYNC));
        if durable != is_durable {
            let mode = match durable {
                true => FlagSetMode::Disable,
                false => FlagSetMode::Enable,
            };
            // SAFETY: rows that are not durable write from one thread.
            unsafe { env.set_flags(EnvFlags::NO_SYNC, mode)? };
        }
        let mut txn = env.write_txn()?;
        work(&mut Write {
            txn: &mut txn,
            database,
        })?;
        Ok(txn.commit()?)
    }

    fn read(&self, work: &mut ReadWork<'_>) -> Result<()> {
        let (env, database) = self.parts();
        let txn = env.read_txn()?;
        work(&mut Read {
            txn: &txn,
            database,
        })
    }

    fn settle(&self) -> Result<()> {
        Ok(self.parts().0.force_sync()?)
    }

    fn compact(&mut self) -> Result<bool> {
        let (data, copy) = (self.folder.join("data.mdb"), self.folder.join("copy"));
        self.parts()
            .0
            .copy_to_path(&copy, CompactionOption::Enabled)?;
        if let Some((env, _)) = self.open.take() {
            env.prepare_for_closing().wait();
        }
        fs::rename(copy, data)?;
        self.open = Some(open(&self.folder, EnvFlags::empty())?);
        Ok(true)
    }
}

struct Write<'t, 'e> {
    txn: &'t mut RwTxn<'e>,
    database: Database<Bytes, Bytes>,
}

impl Writer for Write<'_, '_> {
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        Ok(self.database.put(self.txn, key, value)?)
    }

    fn remove(&mut self, key: &[u8]) -> Result<()> {
        ensure!(self.database.delete(self.txn, key)?, "a record is missing");
        Ok(())
    }
}

struct Read<'t, 'e> {
    txn: &'t RoTxn<'e>,
    database: Database<Bytes, Bytes>,
}

impl Reader for Read<'_, '_> {
    fn get(&mut self, key: &[u8], sum: &mut Sum) -> Result<()> {
        if let Some(value) = self.database.get(self.txn, key)? {
            sum.add_value(value);
        }
        Ok(())
    }

    fn scan(&mut self, from: &[u8], most: u64, sum: &mut Sum) -> Result<()> {
        let bounds = (Bound::Included(from), Bound::Unbounded);
        for record in self.database.range(self.txn, &bounds)?.take(most as usize) {
            let (key, value) = record?;
            sum.add(key, value);
        }
        Ok(())
    }
}
