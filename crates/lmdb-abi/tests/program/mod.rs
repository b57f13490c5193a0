//! How tests call the C interface.

#![allow(dead_code, reason = "no test uses everything")]

use std::ffi::{CStr, CString, c_int};
use std::path::Path;
use std::ptr::null_mut;

use lmdb::abi::*;
use lmdb::values::{CursorOp as Op, db_flags, env_flags};
use lmdb::{Cursor, Env, Txn, Val};

pub(crate) const OK: c_int = 0;
pub(crate) const CREATE: u32 = db_flags::CREATE;
pub(crate) const MIB: usize = 1 << 20;

pub(crate) fn val(bytes: &[u8]) -> Val {
    Val {
        size: bytes.len(),
        data: bytes.as_ptr().cast_mut().cast(),
    }
}

pub(crate) fn empty() -> Val {
    val(&[])
}

pub(crate) fn bytes(val: Val) -> Vec<u8> {
    match val.size {
        0 => Vec::new(),
        size => unsafe { std::slice::from_raw_parts(val.data.cast::<u8>(), size) }.to_vec(),
    }
}

pub(crate) fn c_path(path: &Path) -> CString {
    CString::new(path.to_str().unwrap()).unwrap()
}

pub(crate) fn try_open(path: &Path, flags: u32, map_bytes: usize) -> Result<*mut Env, c_int> {
    unsafe {
        let mut env = null_mut();
        assert_eq!(mdb_env_create(&mut env), OK);
        assert_eq!(mdb_env_set_maxdbs(env, 4), OK);
        assert_eq!(mdb_env_set_mapsize(env, map_bytes), OK);
        match mdb_env_open(env, c_path(path).as_ptr(), flags, 0o600) {
            OK => Ok(env),
            code => {
                mdb_env_close(env);
                Err(code)
            }
        }
    }
}

/// Commits wait for no disk.
pub(crate) fn open(path: &Path) -> *mut Env {
    try_open(path, env_flags::NOSYNC, 16 * MIB).unwrap()
}

pub(crate) fn begin(env: *mut Env, parent: *mut Txn, flags: u32) -> Result<*mut Txn, c_int> {
    let mut txn = null_mut();
    match unsafe { mdb_txn_begin(env, parent, flags, &mut txn) } {
        OK => Ok(txn),
        code => Err(code),
    }
}

pub(crate) fn write(env: *mut Env) -> *mut Txn {
    begin(env, null_mut(), 0).unwrap()
}

pub(crate) fn read(env: *mut Env) -> *mut Txn {
    begin(env, null_mut(), env_flags::RDONLY).unwrap()
}

pub(crate) fn commit(txn: *mut Txn) {
    assert_eq!(unsafe { mdb_txn_commit(txn) }, OK);
}

pub(crate) fn database(txn: *mut Txn, name: &CStr, flags: u32) -> Result<u32, c_int> {
    let mut dbi = 0;
    match unsafe { mdb_dbi_open(txn, name.as_ptr(), flags, &mut dbi) } {
        OK => Ok(dbi),
        code => Err(code),
    }
}

pub(crate) fn put(txn: *mut Txn, dbi: u32, key: &[u8], value: &[u8], flags: u32) -> c_int {
    unsafe { mdb_put(txn, dbi, &mut val(key), &mut val(value), flags) }
}

pub(crate) fn get(txn: *mut Txn, dbi: u32, key: &[u8]) -> Result<Vec<u8>, c_int> {
    let mut value = empty();
    match unsafe { mdb_get(txn, dbi, &mut val(key), &mut value) } {
        OK => Ok(bytes(value)),
        code => Err(code),
    }
}

pub(crate) fn delete(txn: *mut Txn, dbi: u32, key: &[u8]) -> c_int {
    unsafe { mdb_del(txn, dbi, &mut val(key), null_mut()) }
}

pub(crate) fn cursor(txn: *mut Txn, dbi: u32) -> *mut Cursor {
    let mut cursor = null_mut();
    assert_eq!(unsafe { mdb_cursor_open(txn, dbi, &mut cursor) }, OK);
    cursor
}

pub(crate) fn go(cursor: *mut Cursor, op: Op) -> Result<(Vec<u8>, Vec<u8>), c_int> {
    let (mut key, mut value) = (empty(), empty());
    match unsafe { mdb_cursor_get(cursor, &mut key, &mut value, op as u32) } {
        OK => Ok((bytes(key), bytes(value))),
        code => Err(code),
    }
}
