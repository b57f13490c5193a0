//! How tests call the C interface: our library's, or the original's where it is installed, so that a test can ask both.

#![allow(dead_code, reason = "no test uses everything")]

use std::cell::Cell;
use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::path::Path;
use std::ptr::null_mut;

use lmdb::abi::Pair;
use lmdb::values::{Compare, CursorOp as Op, Message, db_flags, env_flags};
use lmdb::{Env, EnvInfo, MdbCursor as Cursor, MdbTxn as Txn, Stat, Val};

/// The functions, each of which calls that of the library in use.
macro_rules! functions {
    ($(fn $name:ident($($arg:ident: $kind:ty),*) $(-> $result:ty)?;)*) => {
        mod ours {
            use super::*;

            #[allow(improper_ctypes, reason = "to a program they are opaque")]
            unsafe extern "C" {
                $(pub(super) fn $name($($arg: $kind),*) $(-> $result)?;)*
            }
        }

        #[derive(Clone, Copy)]
        struct Library {
            $($name: unsafe extern "C" fn($($kind),*) $(-> $result)?,)*
        }

        const OURS: Library = Library { $($name: ours::$name,)* };

        impl Library {
            /// The original, if it is installed.
            fn original() -> Option<Self> {
                let handle = unsafe { dlopen(ORIGINAL.as_ptr(), RTLD_NOW) };
                if handle.is_null() {
                    return None;
                }
                $(let $name = unsafe {
                    let name = CString::new(stringify!($name)).unwrap();
                    let found = dlsym(handle, name.as_ptr());
                    assert!(!found.is_null(), "{name:?}");
                    std::mem::transmute::<*mut c_void, unsafe extern "C" fn($($kind),*) $(-> $result)?>(found)
                };)*
                Some(Self { $($name,)* })
            }
        }

        $(pub(crate) unsafe fn $name($($arg: $kind),*) $(-> $result)? {
            unsafe { (LIBRARY.get().$name)($($arg),*) }
        })*
    };
}

unsafe extern "C" {
    fn dlopen(name: *const c_char, flags: c_int) -> *mut c_void;
    fn dlsym(library: *mut c_void, name: *const c_char) -> *mut c_void;
}

const RTLD_NOW: c_int = 2;

const ORIGINAL: &CStr = c"liblmdb.so.0";

thread_local! {
    static LIBRARY: Cell<Library> = const { Cell::new(OURS) };
    static IS_OURS: Cell<bool> = const { Cell::new(true) };
}

/// Whether the library in use is ours.
pub(crate) fn is_ours() -> bool {
    IS_OURS.get()
}

/// Runs a test with the original, if it is installed, and then with ours. What the test asserts is what LMDB does.
pub(crate) fn beside_the_original(test: impl Fn()) {
    match Library::original() {
        Some(original) => {
            LIBRARY.set(original);
            IS_OURS.set(false);
            test();
        }
        None => eprintln!("the original is not installed: only ours is tested"),
    }
    LIBRARY.set(OURS);
    IS_OURS.set(true);
    test();
}

functions! {
    fn mdb_env_create(env: *mut *mut Env) -> c_int;
    fn mdb_env_open(env: *mut Env, path: *const c_char, flags: c_uint, mode: c_uint) -> c_int;
    fn mdb_env_copy(env: *mut Env, path: *const c_char) -> c_int;
    fn mdb_env_copyfd(env: *mut Env, fd: c_int) -> c_int;
    fn mdb_env_copy2(env: *mut Env, path: *const c_char, flags: c_uint) -> c_int;
    fn mdb_env_copyfd2(env: *mut Env, fd: c_int, flags: c_uint) -> c_int;
    fn mdb_env_stat(env: *mut Env, stat: *mut Stat) -> c_int;
    fn mdb_env_info(env: *mut Env, info: *mut EnvInfo) -> c_int;
    fn mdb_env_sync(env: *mut Env, force: c_int) -> c_int;
    fn mdb_env_close(env: *mut Env);
    fn mdb_env_set_flags(env: *mut Env, flags: c_uint, on: c_int) -> c_int;
    fn mdb_env_get_flags(env: *mut Env, flags: *mut c_uint) -> c_int;
    fn mdb_env_get_path(env: *mut Env, path: *mut *const c_char) -> c_int;
    fn mdb_env_get_fd(env: *mut Env, fd: *mut c_int) -> c_int;
    fn mdb_env_set_mapsize(env: *mut Env, size: usize) -> c_int;
    fn mdb_env_set_maxreaders(env: *mut Env, readers: c_uint) -> c_int;
    fn mdb_env_set_maxdbs(env: *mut Env, dbs: c_uint) -> c_int;
    fn mdb_env_get_maxkeysize(env: *mut Env) -> c_int;
    fn mdb_env_set_userctx(env: *mut Env, context: *mut c_void) -> c_int;
    fn mdb_env_get_userctx(env: *mut Env) -> *mut c_void;
    fn mdb_txn_begin(env: *mut Env, parent: *mut Txn, flags: c_uint, txn: *mut *mut Txn) -> c_int;
    fn mdb_txn_env(txn: *mut Txn) -> *mut Env;
    fn mdb_txn_id(txn: *mut Txn) -> usize;
    fn mdb_txn_commit(txn: *mut Txn) -> c_int;
    fn mdb_txn_abort(txn: *mut Txn);
    fn mdb_txn_reset(txn: *mut Txn);
    fn mdb_txn_renew(txn: *mut Txn) -> c_int;
    fn mdb_dbi_open(txn: *mut Txn, name: *const c_char, flags: c_uint, dbi: *mut c_uint) -> c_int;
    fn mdb_stat(txn: *mut Txn, dbi: c_uint, stat: *mut Stat) -> c_int;
    fn mdb_dbi_close(env: *mut Env, dbi: c_uint);
    fn mdb_drop(txn: *mut Txn, dbi: c_uint, del: c_int) -> c_int;
    fn mdb_set_compare(txn: *mut Txn, dbi: c_uint, compare: Option<Compare>) -> c_int;
    fn mdb_set_dupsort(txn: *mut Txn, dbi: c_uint, compare: Option<Compare>) -> c_int;
    fn mdb_get(txn: *mut Txn, dbi: c_uint, key: *mut Val, data: *mut Val) -> c_int;
    fn mdb_put(txn: *mut Txn, dbi: c_uint, key: *mut Val, data: *mut Val, flags: c_uint) -> c_int;
    fn mdb_del(txn: *mut Txn, dbi: c_uint, key: *mut Val, data: *mut Val) -> c_int;
    fn mdb_cursor_open(txn: *mut Txn, dbi: c_uint, cursor: *mut *mut Cursor) -> c_int;
    fn mdb_cursor_close(cursor: *mut Cursor);
    fn mdb_cursor_renew(txn: *mut Txn, cursor: *mut Cursor) -> c_int;
    fn mdb_cursor_get(cursor: *mut Cursor, key: *mut Val, data: *mut Val, op: c_uint) -> c_int;
    fn mdb_cursor_put(cursor: *mut Cursor, key: *mut Val, data: *mut Val, flags: c_uint) -> c_int;
    fn mdb_cursor_del(cursor: *mut Cursor, flags: c_uint) -> c_int;
    fn mdb_cursor_count(cursor: *mut Cursor, count: *mut usize) -> c_int;
    fn mdb_strerror(code: c_int) -> *const c_char;
    fn mdb_reader_list(env: *mut Env, func: Option<Message>, context: *mut c_void) -> c_int;
    fn mdb_reader_check(env: *mut Env, dead: *mut c_int) -> c_int;
    fn mdb_midl_alloc(room: c_int) -> *mut usize;
    fn mdb_midl_free(ids: *mut usize);
    fn mdb_midl_shrink(place: *mut *mut usize);
    fn mdb_midl_need(place: *mut *mut usize, more: c_uint) -> c_int;
    fn mdb_midl_append(place: *mut *mut usize, id: usize) -> c_int;
    fn mdb_midl_append_list(place: *mut *mut usize, other: *mut usize) -> c_int;
    fn mdb_midl_append_range(place: *mut *mut usize, id: usize, count: c_uint) -> c_int;
    fn mdb_midl_search(ids: *mut usize, id: usize) -> c_uint;
    fn mdb_midl_sort(ids: *mut usize);
    fn mdb_midl_xmerge(ids: *mut usize, other: *mut usize);
    fn mdb_mid2l_search(list: *mut Pair, id: usize) -> c_uint;
    fn mdb_mid2l_insert(list: *mut Pair, pair: *const Pair) -> c_int;
    fn mdb_mid2l_append(list: *mut Pair, pair: *const Pair) -> c_int;
}

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
