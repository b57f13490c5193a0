//! Berkeley DB, Debian's library, as a B-tree with log, locks and transactions, and a cache as large as the data;
//! `berkeley_db.c` has its settings.
//!
//! Bulk: puts in one transaction. Transactions that need not be durable: `DB_TXN_NOSYNC`. Reads are from a snapshot
//! (`DB_TXN_SNAPSHOT`), so that they wait for no writer, as with the others.

#![allow(unsafe_code)] // A C library.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::path::Path;
use std::ptr::{null, null_mut};

use anyhow::{Context, Result, bail, ensure};

use crate::data::Sum;
use crate::engine::{Engine, ReadWork, Reader, WriteWork, Writer};

/// Everything the library hands out is opaque.
type Handle = *mut c_void;

unsafe extern "C" {
    fn bdb_open(folder: *const c_char, cache_bytes: u64, store: *mut Handle) -> c_int;
    fn bdb_close(store: Handle) -> c_int;
    fn bdb_error(error: c_int) -> *const c_char;
    fn bdb_begin(store: Handle, snapshot: c_int, txn: *mut Handle) -> c_int;
    fn bdb_commit(txn: Handle, durable: c_int) -> c_int;
    fn bdb_abort(txn: Handle) -> c_int;
    #[rustfmt::skip]
    fn bdb_put(
        store: Handle,
        txn: Handle,
        key: *const u8,
        len: u32,
        value: *const u8,
        bytes: u32,
    ) -> c_int;
    fn bdb_delete(store: Handle, txn: Handle, key: *const u8, len: u32) -> c_int;
    #[rustfmt::skip]
    fn bdb_get(
        store: Handle,
        txn: Handle,
        key: *const u8,
        len: u32,
        buffer: *mut u8,
        room: u32,
        bytes: *mut u32,
    ) -> c_int;
    fn bdb_cursor(store: Handle, txn: Handle, cursor: *mut Handle) -> c_int;
    fn bdb_cursor_close(cursor: Handle) -> c_int;
    #[rustfmt::skip]
    fn bdb_cursor_get(
        cursor: Handle,
        from: *const u8,
        from_len: u32,
        key: *mut u8,
        key_room: u32,
        len: *mut u32,
        value: *mut u8,
        room: u32,
        bytes: *mut u32,
    ) -> c_int;
    fn bdb_checkpoint(store: Handle) -> c_int;
    fn bdb_compact(store: Handle) -> c_int;
}

const NOT_FOUND: c_int = 1;
const DEADLOCK: c_int = -1;

/// Room for the longest value of any row.
const VALUE_BYTES_MAX: usize = 128 << 10;
const KEY_BYTES_MAX: usize = 64;

fn check(error: c_int) -> Result<()> {
    if error != 0 {
        bail!(Failure(error));
    }
    Ok(())
}

#[derive(Debug)]
struct Failure(c_int);

impl std::error::Error for Failure {}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // SAFETY: the library answers with a constant for every number.
        let text = unsafe { CStr::from_ptr(bdb_error(self.0)) };
        write!(f, "Berkeley DB: {}", text.to_string_lossy())
    }
}

pub(crate) struct BerkeleyDb(Handle);

// SAFETY: opened with DB_THREAD.
unsafe impl Send for BerkeleyDb {}
// SAFETY: as above.
unsafe impl Sync for BerkeleyDb {}

impl BerkeleyDb {
    pub(crate) fn open(folder: &Path, cache_bytes: usize) -> Result<Self> {
        let folder = CString::new(folder.to_str().context("the folder's name is not UTF-8")?)?;
        let mut store = null_mut();
        // SAFETY: a string that ends with a zero, and room for the answer.
        check(unsafe { bdb_open(folder.as_ptr(), cache_bytes as u64, &mut store) })?;
        Ok(Self(store))
    }

    fn begin(&self, snapshot: bool) -> Result<Txn> {
        let mut txn = null_mut();
        // SAFETY: an open store, and room for the answer.
        check(unsafe { bdb_begin(self.0, snapshot.into(), &mut txn) })?;
        let cursor = null_mut();
        let value = vec![0; if snapshot { VALUE_BYTES_MAX } else { 0 }];
        Ok(Txn {
            store: self.0,
            txn,
            cursor,
            value,
        })
    }
}

impl Drop for BerkeleyDb {
    fn drop(&mut self) {
        // SAFETY: closed once, with no transaction left.
        if let Err(failure) = check(unsafe { bdb_close(self.0) }) {
            eprintln!("{failure}");
        }
    }
}

impl Engine for BerkeleyDb {
    fn write(&self, durable: bool, work: &mut WriteWork<'_>) -> Result<()> {
        loop {
            let mut txn = self.begin(false)?;
            match work(&mut txn) {
                Ok(()) => return txn.commit(durable),
                Err(error) => match error.downcast_ref() {
                    // Dropped, it is aborted.
                    Some(Failure(DEADLOCK)) => {}
                    _ => return Err(error),
                },
            }
        }
    }

    fn read(&self, work: &mut ReadWork<'_>) -> Result<()> {
        let mut txn = self.begin(true)?;
        work(&mut txn)?;
        txn.commit(false)
    }

    fn settle(&self) -> Result<()> {
        // SAFETY: an open store.
        check(unsafe { bdb_checkpoint(self.0) })
    }

    fn compact_online(&mut self) -> Result<bool> {
        self.compact()
    }

    fn compact(&mut self) -> Result<bool> {
        // SAFETY: an open store.
        check(unsafe { bdb_compact(self.0) })?;
        Ok(true)
    }

    fn is_log(&self, file_name: &str) -> bool {
        file_name.starts_with("log.")
    }
}

struct Txn {
    store: Handle,
    /// Null once it is over.
    txn: Handle,
    /// Null until the first scan.
    cursor: Handle,
    value: Vec<u8>,
}

impl Txn {
    fn close_cursor(&mut self) -> Result<()> {
        let cursor = std::mem::replace(&mut self.cursor, null_mut());
        if cursor.is_null() {
            return Ok(());
        }
        // SAFETY: closed once, before its transaction ends.
        check(unsafe { bdb_cursor_close(cursor) })
    }

    fn commit(mut self, durable: bool) -> Result<()> {
        self.close_cursor()?;
        let txn = std::mem::replace(&mut self.txn, null_mut());
        // SAFETY: ended once.
        check(unsafe { bdb_commit(txn, durable.into()) })
    }
}

impl Drop for Txn {
    fn drop(&mut self) {
        if !self.txn.is_null() {
            // What is wrong is told by what comes before.
            let _: Result<()> = self.close_cursor();
            // SAFETY: ended once.
            let _: c_int = unsafe { bdb_abort(self.txn) };
        }
    }
}

impl Writer for Txn {
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        let (k, v) = (key.as_ptr(), value.as_ptr());
        // SAFETY: copied by the library, as long as it is said.
        check(unsafe {
            bdb_put(
                self.store,
                self.txn,
                k,
                key.len() as u32,
                v,
                value.len() as u32,
            )
        })
    }

    fn remove(&mut self, key: &[u8]) -> Result<()> {
        // SAFETY: as above.
        check(unsafe { bdb_delete(self.store, self.txn, key.as_ptr(), key.len() as u32) })
    }
}

impl Reader for Txn {
    fn get(&mut self, key: &[u8], sum: &mut Sum) -> Result<()> {
        let (buffer, room) = (self.value.as_mut_ptr(), self.value.len() as u32);
        let mut bytes = 0;
        // SAFETY: at most `room` bytes are copied into the buffer.
        let error = unsafe {
            let key_bytes = key.len() as u32;
            bdb_get(
                self.store,
                self.txn,
                key.as_ptr(),
                key_bytes,
                buffer,
                room,
                &mut bytes,
            )
        };
        if error == NOT_FOUND {
            return Ok(());
        }
        check(error)?;
        sum.add_value(&self.value[..bytes as usize]);
        Ok(())
    }

    fn scan(&mut self, from: &[u8], most: u64, sum: &mut Sum) -> Result<()> {
        ensure!(from.len() <= KEY_BYTES_MAX, "a key is too long");
        if self.cursor.is_null() {
            // SAFETY: an open transaction, and room for the answer.
            check(unsafe { bdb_cursor(self.store, self.txn, &mut self.cursor) })?;
        }
        let mut key = [0; KEY_BYTES_MAX];
        let mut start = from.as_ptr();
        for _ in 0..most {
            let (mut key_bytes, mut bytes) = (0, 0);
            let (value, room) = (self.value.as_mut_ptr(), self.value.len() as u32);
            // SAFETY: at most as many bytes as said are copied from `start` and into the buffers.
            let error = unsafe {
                let (from_bytes, key_room) = (from.len() as u32, KEY_BYTES_MAX as u32);
                let (key, key_bytes) = (key.as_mut_ptr(), &mut key_bytes);
                bdb_cursor_get(
                    self.cursor,
                    start,
                    from_bytes,
                    key,
                    key_room,
                    key_bytes,
                    value,
                    room,
                    &mut bytes,
                )
            };
            if error == NOT_FOUND {
                return Ok(());
            }
            check(error)?;
            sum.add(&key[..key_bytes as usize], &self.value[..bytes as usize]);
            start = null();
        }
        Ok(())
    }
}
