//! redb with a cache as large as the data, its other options at their defaults (one sync a commit).
//!
//! Bulk: insertions in one transaction. Transactions that need not be durable: `Durability::None`.

use std::path::Path;

use anyhow::{Result, ensure};
use redb::{Database, Durability, ReadOnlyTable, ReadTransaction, ReadableDatabase, Table};
use redb::{TableDefinition, TableError};

use crate::data::Sum;
use crate::engine::{Engine, ReadWork, Reader, WriteWork, Writer};

const TABLE: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("records");

pub(crate) struct Redb {
    database: Database,
}

impl Redb {
    pub(crate) fn open(folder: &Path, cache_bytes: usize) -> Result<Self> {
        let database = Database::builder()
            .set_cache_size(cache_bytes)
            .create(folder.join("data.redb"))?;
        Ok(Self { database })
    }
}

impl Engine for Redb {
    fn write(&self, durable: bool, work: &mut WriteWork<'_>) -> Result<()> {
        let mut txn = self.database.begin_write()?;
        if !durable {
            txn.set_durability(Durability::None)?;
        }
        work(&mut Write {
            table: txn.open_table(TABLE)?,
        })?;
        Ok(txn.commit()?)
    }

    fn read(&self, work: &mut ReadWork<'_>) -> Result<()> {
        let txn = self.database.begin_read()?;
        work(&mut Read {
            txn: &txn,
            table: None,
        })
    }

    fn settle(&self) -> Result<()> {
        // What was written without durability goes to the disk with the next commit that has it.
        Ok(self.database.begin_write()?.commit()?)
    }

    fn compact(&mut self) -> Result<bool> {
        self.database.compact()?;
        Ok(true)
    }
}

struct Write<'t> {
    table: Table<'t, &'static [u8], &'static [u8]>,
}

impl Writer for Write<'_> {
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.table.insert(key, value)?;
        Ok(())
    }

    fn remove(&mut self, key: &[u8]) -> Result<()> {
        ensure!(self.table.remove(key)?.is_some(), "a record is missing");
        Ok(())
    }
}

struct Read<'t> {
    txn: &'t ReadTransaction,
    /// Opened by the first operation.
    table: Option<ReadOnlyTable<&'static [u8], &'static [u8]>>,
}

impl Read<'_> {
    fn table(&mut self) -> Result<&ReadOnlyTable<&'static [u8], &'static [u8]>, TableError> {
        match self.table {
            Some(ref table) => Ok(table),
            None => Ok(self.table.insert(self.txn.open_table(TABLE)?)),
        }
    }
}

impl Reader for Read<'_> {
    fn get(&mut self, key: &[u8], sum: &mut Sum) -> Result<()> {
        if let Some(value) = self.table()?.get(key)? {
            sum.add_value(value.value());
        }
        Ok(())
    }

    fn scan(&mut self, from: &[u8], most: u64, sum: &mut Sum) -> Result<()> {
        for record in self.table()?.range(from..)?.take(most as usize) {
            let (key, value) = record?;
            sum.add(key.value(), value.value());
        }
        Ok(())
    }
}
