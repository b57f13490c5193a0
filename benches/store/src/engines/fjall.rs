//! fjall with a cache as large as the data, without compression.
//!
//! Bulk: sorted input by its ingestion, any other by batches of 1,000 that are synced once at the end. Transactions are
//! batches (a single writer's, so that nothing else is needed to make them atomic): durable ones with
//! `PersistMode::SyncData`, others with `PersistMode::Buffer`.

use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use fjall::config::CompressionPolicy;
use fjall::{CompressionType, Database, Keyspace, KeyspaceCreateOptions, OwnedWriteBatch};
use fjall::{PersistMode, Readable, Snapshot};

use crate::data::{Input, Sum};
use crate::engine::{Engine, ReadWork, Reader, WriteWork, Writer};

pub(crate) struct Fjall {
    database: Database,
    records: Keyspace,
}

impl Fjall {
    pub(crate) fn open(folder: &Path, cache_bytes: usize) -> Result<Self> {
        let database = Database::builder(folder.join("data"))
            .cache_size(cache_bytes as u64)
            .open()?;
        let records = database.keyspace("records", || {
            let none = || CompressionPolicy::all(CompressionType::None);
            KeyspaceCreateOptions::default()
                .data_block_compression_policy(none())
                .index_block_compression_policy(none())
                .expect_point_read_hits(true)
        })?;
        Ok(Self { database, records })
    }
}

impl Engine for Fjall {
    fn bulk(&self, input: &Input<'_>) -> Result<()> {
        if input.in_order.is_some() {
            let mut ingestion = self.records.start_ingestion()?;
            input.each(|key, value| ingestion.write(key, value))?;
            ingestion.finish()?;
        } else {
            input.each(|key, value| self.records.insert(key, value))?;
        }
        Ok(self.database.persist(PersistMode::SyncData)?)
    }

    fn write(&self, durable: bool, work: &mut WriteWork<'_>) -> Result<()> {
        let mode = match durable {
            true => PersistMode::SyncData,
            false => PersistMode::Buffer,
        };
        let mut write = Write {
            batch: self.database.batch().durability(Some(mode)),
            records: &self.records,
        };
        work(&mut write)?;
        Ok(write.batch.commit()?)
    }

    fn read(&self, work: &mut ReadWork<'_>) -> Result<()> {
        work(&mut Read {
            snapshot: self.database.snapshot(),
            records: &self.records,
        })
    }

    fn settle(&self) -> Result<()> {
        self.records.rotate_memtable_and_wait()?;
        while self.database.outstanding_flushes() + self.database.active_compactions() > 0 {
            std::thread::sleep(Duration::from_millis(2));
        }
        Ok(())
    }

    fn compact_online(&mut self) -> Result<bool> {
        self.compact()
    }

    fn compact(&mut self) -> Result<bool> {
        self.settle()?;
        self.records.major_compact()?;
        Ok(true)
    }

    fn is_log(&self, file_name: &str) -> bool {
        file_name.ends_with(".jnl")
    }
}

struct Write<'k> {
    batch: OwnedWriteBatch,
    records: &'k Keyspace,
}

impl Writer for Write<'_> {
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.batch.insert(self.records, key, value);
        Ok(())
    }

    fn remove(&mut self, key: &[u8]) -> Result<()> {
        self.batch.remove(self.records, key);
        Ok(())
    }
}

struct Read<'k> {
    snapshot: Snapshot,
    records: &'k Keyspace,
}

impl Reader for Read<'_> {
    fn get(&mut self, key: &[u8], sum: &mut Sum) -> Result<()> {
        if let Some(value) = self.snapshot.get(self.records, key)? {
            sum.add_value(&value);
        }
        Ok(())
    }

    fn scan(&mut self, from: &[u8], most: u64, sum: &mut Sum) -> Result<()> {
        for record in self
            .snapshot
            .range(self.records, from..)
            .take(most as usize)
        {
            let (key, value) = record.into_inner()?;
            sum.add(&key, &value);
        }
        Ok(())
    }
}
