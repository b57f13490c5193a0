//! RocksDB, Debian's library through its C interface, with a block cache as large as the data, bloom filters of 10
//! bits, no compression, two background threads, its other options at their defaults.
//!
//! Bulk: sorted input goes into a table file that is then ingested, any other by batches of 1,000 without the log,
//! flushed at the end. Transactions are write batches: durable ones with `sync`. Reads are from a snapshot; ranges keep
//! their iterator for as long as it.

#![allow(unsafe_code)] // A C library.

use std::ffi::{CStr, CString, c_char, c_double, c_int, c_uchar, c_void};
use std::path::{Path, PathBuf};
use std::ptr::{null, null_mut};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use crate::data::{Input, Sum};
use crate::engine::{Engine, ReadWork, Reader, WriteWork, Writer};

/// Everything the library hands out is opaque.
type Handle = *mut c_void;
type Failure = *mut *mut c_char;

#[link(name = "rocksdb")]
unsafe extern "C" {
    fn rocksdb_options_create() -> Handle;
    fn rocksdb_options_set_create_if_missing(options: Handle, yes: c_uchar);
    fn rocksdb_options_set_compression(options: Handle, kind: c_int);
    fn rocksdb_options_increase_parallelism(options: Handle, threads: c_int);
    fn rocksdb_options_set_block_based_table_factory(options: Handle, table: Handle);
    fn rocksdb_block_based_options_create() -> Handle;
    fn rocksdb_block_based_options_set_block_cache(table: Handle, cache: Handle);
    fn rocksdb_block_based_options_set_filter_policy(table: Handle, policy: Handle);
    fn rocksdb_cache_create_lru(bytes: usize) -> Handle;
    fn rocksdb_filterpolicy_create_bloom(bits: c_double) -> Handle;
    fn rocksdb_open(options: Handle, path: *const c_char, failure: Failure) -> Handle;
    fn rocksdb_close(db: Handle);
    fn rocksdb_free(memory: *mut c_void);
    fn rocksdb_writeoptions_create() -> Handle;
    fn rocksdb_writeoptions_destroy(options: Handle);
    fn rocksdb_writeoptions_set_sync(options: Handle, yes: c_uchar);
    fn rocksdb_writeoptions_disable_WAL(options: Handle, yes: c_int);
    fn rocksdb_writebatch_create() -> Handle;
    fn rocksdb_writebatch_destroy(batch: Handle);
    fn rocksdb_writebatch_clear(batch: Handle);
    fn rocksdb_writebatch_count(batch: Handle) -> c_int;
    fn rocksdb_writebatch_put(
        batch: Handle,
        key: *const u8,
        len: usize,
        value: *const u8,
        bytes: usize,
    );
    fn rocksdb_writebatch_delete(batch: Handle, key: *const u8, len: usize);
    fn rocksdb_write(db: Handle, options: Handle, batch: Handle, failure: Failure);
    fn rocksdb_readoptions_create() -> Handle;
    fn rocksdb_readoptions_destroy(options: Handle);
    fn rocksdb_readoptions_set_snapshot(options: Handle, snapshot: *const c_void);
    fn rocksdb_create_snapshot(db: Handle) -> *const c_void;
    fn rocksdb_release_snapshot(db: Handle, snapshot: *const c_void);
    fn rocksdb_get_pinned(
        db: Handle,
        options: Handle,
        key: *const u8,
        len: usize,
        failure: Failure,
    ) -> Handle;
    fn rocksdb_pinnableslice_value(slice: Handle, bytes: *mut usize) -> *const u8;
    fn rocksdb_pinnableslice_destroy(slice: Handle);
    fn rocksdb_create_iterator(db: Handle, options: Handle) -> Handle;
    fn rocksdb_iter_destroy(iterator: Handle);
    fn rocksdb_iter_seek(iterator: Handle, key: *const u8, len: usize);
    fn rocksdb_iter_valid(iterator: Handle) -> c_uchar;
    fn rocksdb_iter_next(iterator: Handle);
    fn rocksdb_iter_key(iterator: Handle, len: *mut usize) -> *const u8;
    fn rocksdb_iter_value(iterator: Handle, bytes: *mut usize) -> *const u8;
    fn rocksdb_iter_get_error(iterator: Handle, failure: Failure);
    fn rocksdb_flushoptions_create() -> Handle;
    fn rocksdb_flushoptions_destroy(options: Handle);
    fn rocksdb_flush(db: Handle, options: Handle, failure: Failure);
    fn rocksdb_compact_range(
        db: Handle,
        from: *const u8,
        from_len: usize,
        to: *const u8,
        to_len: usize,
    );
    fn rocksdb_property_int(db: Handle, name: *const c_char, value: *mut u64) -> c_int;
    fn rocksdb_envoptions_create() -> Handle;
    fn rocksdb_envoptions_destroy(options: Handle);
    fn rocksdb_sstfilewriter_create(env: Handle, options: Handle) -> Handle;
    fn rocksdb_sstfilewriter_open(writer: Handle, path: *const c_char, failure: Failure);
    fn rocksdb_sstfilewriter_put(
        writer: Handle,
        key: *const u8,
        len: usize,
        value: *const u8,
        bytes: usize,
        failure: Failure,
    );
    fn rocksdb_sstfilewriter_finish(writer: Handle, failure: Failure);
    fn rocksdb_sstfilewriter_destroy(writer: Handle);
    fn rocksdb_ingestexternalfileoptions_create() -> Handle;
    fn rocksdb_ingestexternalfileoptions_set_move_files(options: Handle, yes: c_uchar);
    fn rocksdb_ingestexternalfileoptions_destroy(options: Handle);
    fn rocksdb_ingest_external_file(
        db: Handle,
        paths: *const *const c_char,
        count: usize,
        options: Handle,
        failure: Failure,
    );
}

/// Calls a function that says what failed.
fn call<T>(function: impl FnOnce(Failure) -> T) -> Result<T> {
    let mut failure = null_mut();
    let value = function(&mut failure);
    if !failure.is_null() {
        // SAFETY: a string of the library's, which is ours now.
        let text = unsafe { CStr::from_ptr(failure).to_string_lossy().into_owned() };
        // SAFETY: as above, and freed once.
        unsafe { rocksdb_free(failure.cast()) };
        bail!("RocksDB: {text}");
    }
    Ok(value)
}

const BULK_BATCH: c_int = 1_000;

pub(crate) struct RocksDb {
    db: Handle,
    options: Handle,
    durable: Handle,
    loose: Handle,
    folder: PathBuf,
}

// SAFETY: the library's databases and options may be used by several threads at once.
unsafe impl Send for RocksDb {}
// SAFETY: as above.
unsafe impl Sync for RocksDb {}

impl RocksDb {
    pub(crate) fn open(folder: &Path, cache_bytes: usize) -> Result<Self> {
        // SAFETY: fresh handles in the order that the library's own examples use. Options live as long as the process.
        unsafe {
            let options = rocksdb_options_create();
            rocksdb_options_set_create_if_missing(options, 1);
            rocksdb_options_set_compression(options, 0);
            rocksdb_options_increase_parallelism(options, 2);
            let table = rocksdb_block_based_options_create();
            rocksdb_block_based_options_set_block_cache(
                table,
                rocksdb_cache_create_lru(cache_bytes),
            );
            rocksdb_block_based_options_set_filter_policy(
                table,
                rocksdb_filterpolicy_create_bloom(10.0),
            );
            rocksdb_options_set_block_based_table_factory(options, table);
            let path = path(&folder.join("data"))?;
            let db = call(|failure| rocksdb_open(options, path.as_ptr(), failure))?;
            let durable = rocksdb_writeoptions_create();
            rocksdb_writeoptions_set_sync(durable, 1);
            let loose = rocksdb_writeoptions_create();
            let folder = folder.to_owned();
            Ok(Self {
                db,
                options,
                durable,
                loose,
                folder,
            })
        }
    }

    fn load_sorted(&self, input: &Input<'_>) -> Result<()> {
        let path = path(&self.folder.join("sorted.sst"))?;
        // SAFETY: handles are used between their creation and their destruction; keys and values are as long as it is
        // said.
        unsafe {
            let env = rocksdb_envoptions_create();
            let writer = rocksdb_sstfilewriter_create(env, self.options);
            call(|failure| rocksdb_sstfilewriter_open(writer, path.as_ptr(), failure))?;
            input.each(|key, value| {
                let (k, v) = (key.as_ptr(), value.as_ptr());
                call(|failure| {
                    rocksdb_sstfilewriter_put(writer, k, key.len(), v, value.len(), failure)
                })
            })?;
            call(|failure| rocksdb_sstfilewriter_finish(writer, failure))?;
            rocksdb_sstfilewriter_destroy(writer);
            rocksdb_envoptions_destroy(env);
            let options = rocksdb_ingestexternalfileoptions_create();
            rocksdb_ingestexternalfileoptions_set_move_files(options, 1);
            let paths = [path.as_ptr()];
            call(|failure| {
                rocksdb_ingest_external_file(self.db, paths.as_ptr(), 1, options, failure)
            })?;
            rocksdb_ingestexternalfileoptions_destroy(options);
        }
        Ok(())
    }

    fn flush(&self) -> Result<()> {
        // SAFETY: the options wait by default, and live until they are destroyed.
        unsafe {
            let options = rocksdb_flushoptions_create();
            let flushed = call(|failure| rocksdb_flush(self.db, options, failure));
            rocksdb_flushoptions_destroy(options);
            flushed
        }
    }

    fn property(&self, name: &CStr) -> Result<u64> {
        let mut value = 0;
        // SAFETY: a name that ends with a zero, and room for the answer.
        let failed = unsafe { rocksdb_property_int(self.db, name.as_ptr(), &mut value) };
        ensure!(failed == 0, "RocksDB has no {name:?}");
        Ok(value)
    }
}

impl Drop for RocksDb {
    fn drop(&mut self) {
        // SAFETY: everything made from it is gone.
        unsafe { rocksdb_close(self.db) }
    }
}

fn path(path: &Path) -> Result<CString> {
    CString::new(path.to_str().context("the folder's name is not UTF-8")?).context("the folder")
}

impl Engine for RocksDb {
    fn bulk(&self, input: &Input<'_>) -> Result<()> {
        if input.in_order.is_some() {
            return self.load_sorted(input);
        }
        // SAFETY: options of our own, alive until they are destroyed.
        let options = unsafe {
            let options = rocksdb_writeoptions_create();
            rocksdb_writeoptions_disable_WAL(options, 1);
            options
        };
        let mut batch = Batch::new();
        input.each(|key, value| {
            batch.put(key, value)?;
            // SAFETY: a live batch.
            if unsafe { rocksdb_writebatch_count(batch.0) } == BULK_BATCH {
                batch.write(self.db, options)?;
            }
            anyhow::Ok(())
        })?;
        batch.write(self.db, options)?;
        // SAFETY: not used after this.
        unsafe { rocksdb_writeoptions_destroy(options) };
        self.flush()
    }

    fn write(&self, durable: bool, work: &mut WriteWork<'_>) -> Result<()> {
        let mut batch = Batch::new();
        work(&mut batch)?;
        batch.write(self.db, if durable { self.durable } else { self.loose })
    }

    fn read(&self, work: &mut ReadWork<'_>) -> Result<()> {
        work(&mut Read::new(self.db))
    }

    fn settle(&self) -> Result<()> {
        self.flush()?;
        while self.property(c"rocksdb.num-running-compactions")? > 0
            || self.property(c"rocksdb.compaction-pending")? > 0
        {
            std::thread::sleep(Duration::from_millis(2));
        }
        Ok(())
    }

    fn compact_online(&mut self) -> Result<bool> {
        self.compact()
    }

    fn compact(&mut self) -> Result<bool> {
        self.flush()?;
        // SAFETY: no bounds: everything.
        unsafe { rocksdb_compact_range(self.db, null(), 0, null(), 0) };
        Ok(true)
    }

    fn is_log(&self, file_name: &str) -> bool {
        file_name.ends_with(".log")
    }
}

struct Batch(Handle);

impl Batch {
    fn new() -> Self {
        // SAFETY: needs nothing.
        Self(unsafe { rocksdb_writebatch_create() })
    }

    /// Writes what was gathered and empties it.
    fn write(&mut self, db: Handle, options: Handle) -> Result<()> {
        // SAFETY: live handles.
        unsafe {
            call(|failure| rocksdb_write(db, options, self.0, failure))?;
            rocksdb_writebatch_clear(self.0);
        }
        Ok(())
    }
}

impl Drop for Batch {
    fn drop(&mut self) {
        // SAFETY: dropped once.
        unsafe { rocksdb_writebatch_destroy(self.0) }
    }
}

impl Writer for Batch {
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        // SAFETY: copied by the library, as long as it is said.
        unsafe {
            rocksdb_writebatch_put(self.0, key.as_ptr(), key.len(), value.as_ptr(), value.len());
        }
        Ok(())
    }

    fn remove(&mut self, key: &[u8]) -> Result<()> {
        // SAFETY: as above.
        unsafe { rocksdb_writebatch_delete(self.0, key.as_ptr(), key.len()) };
        Ok(())
    }
}

struct Read {
    db: Handle,
    snapshot: *const c_void,
    options: Handle,
    /// Made by the first scan.
    iterator: Handle,
}

impl Read {
    fn new(db: Handle) -> Self {
        // SAFETY: the snapshot and the options live until they are dropped together.
        unsafe {
            let snapshot = rocksdb_create_snapshot(db);
            let options = rocksdb_readoptions_create();
            rocksdb_readoptions_set_snapshot(options, snapshot);
            let iterator = null_mut();
            Self {
                db,
                snapshot,
                options,
                iterator,
            }
        }
    }
}

impl Drop for Read {
    fn drop(&mut self) {
        // SAFETY: in the reverse order of creation, once.
        unsafe {
            if !self.iterator.is_null() {
                rocksdb_iter_destroy(self.iterator);
            }
            rocksdb_readoptions_destroy(self.options);
            rocksdb_release_snapshot(self.db, self.snapshot);
        }
    }
}

impl Reader for Read {
    fn get(&mut self, key: &[u8], sum: &mut Sum) -> Result<()> {
        // SAFETY: the value is read while its slice lives.
        unsafe {
            let (db, options) = (self.db, self.options);
            let slice =
                call(|failure| rocksdb_get_pinned(db, options, key.as_ptr(), key.len(), failure))?;
            if !slice.is_null() {
                let mut bytes = 0;
                let value = rocksdb_pinnableslice_value(slice, &mut bytes);
                sum.add_value(std::slice::from_raw_parts(value, bytes));
                rocksdb_pinnableslice_destroy(slice);
            }
        }
        Ok(())
    }

    fn scan(&mut self, from: &[u8], most: u64, sum: &mut Sum) -> Result<()> {
        // SAFETY: keys and values are read before the iterator moves on.
        unsafe {
            if self.iterator.is_null() {
                self.iterator = rocksdb_create_iterator(self.db, self.options);
            }
            let iterator = self.iterator;
            rocksdb_iter_seek(iterator, from.as_ptr(), from.len());
            let mut left = most;
            while left > 0 && rocksdb_iter_valid(iterator) != 0 {
                let (mut key_bytes, mut value_bytes) = (0, 0);
                let key = rocksdb_iter_key(iterator, &mut key_bytes);
                let value = rocksdb_iter_value(iterator, &mut value_bytes);
                sum.add(
                    std::slice::from_raw_parts(key, key_bytes),
                    std::slice::from_raw_parts(value, value_bytes),
                );
                left -= 1;
                if left > 0 {
                    rocksdb_iter_next(iterator);
                }
            }
            call(|failure| rocksdb_iter_get_error(iterator, failure))
        }
    }
}
