//! What C programs rely on beside the results that `cargo xtask judge-lmdb` compares with the original's: refusals, limits, files, and what
//! happens where programs break the rules.

// A C program, in Rust.
#![allow(unsafe_code, clippy::undocumented_unsafe_blocks)]
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::fs;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::ptr::{null, null_mut};

use lmdb::abi::*;
use lmdb::values::{CursorOp as Op, db_flags, env_flags, write_flags};
use lmdb::{Code, Cursor, Env, EnvInfo, Stat, Txn, Val};

const OK: c_int = 0;
const CREATE: u32 = db_flags::CREATE;
const MIB: usize = 1 << 20;

fn val(bytes: &[u8]) -> Val {
    Val {
        size: bytes.len(),
        data: bytes.as_ptr().cast_mut().cast(),
    }
}

fn empty() -> Val {
    val(&[])
}

fn bytes(val: Val) -> Vec<u8> {
    match val.size {
        0 => Vec::new(),
        size => unsafe { std::slice::from_raw_parts(val.data.cast::<u8>(), size) }.to_vec(),
    }
}

fn c_path(path: &Path) -> CString {
    CString::new(path.to_str().unwrap()).unwrap()
}

fn try_open(path: &Path, flags: u32, map_bytes: usize) -> Result<*mut Env, c_int> {
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
fn open(path: &Path) -> *mut Env {
    try_open(path, env_flags::NOSYNC, 16 * MIB).unwrap()
}

fn begin(env: *mut Env, parent: *mut Txn, flags: u32) -> Result<*mut Txn, c_int> {
    let mut txn = null_mut();
    match unsafe { mdb_txn_begin(env, parent, flags, &mut txn) } {
        OK => Ok(txn),
        code => Err(code),
    }
}

fn write(env: *mut Env) -> *mut Txn {
    begin(env, null_mut(), 0).unwrap()
}

fn read(env: *mut Env) -> *mut Txn {
    begin(env, null_mut(), env_flags::RDONLY).unwrap()
}

fn commit(txn: *mut Txn) {
    assert_eq!(unsafe { mdb_txn_commit(txn) }, OK);
}

fn database(txn: *mut Txn, name: &CStr, flags: u32) -> Result<u32, c_int> {
    let mut dbi = 0;
    match unsafe { mdb_dbi_open(txn, name.as_ptr(), flags, &mut dbi) } {
        OK => Ok(dbi),
        code => Err(code),
    }
}

fn put(txn: *mut Txn, dbi: u32, key: &[u8], value: &[u8], flags: u32) -> c_int {
    unsafe { mdb_put(txn, dbi, &mut val(key), &mut val(value), flags) }
}

fn get(txn: *mut Txn, dbi: u32, key: &[u8]) -> Result<Vec<u8>, c_int> {
    let mut value = empty();
    match unsafe { mdb_get(txn, dbi, &mut val(key), &mut value) } {
        OK => Ok(bytes(value)),
        code => Err(code),
    }
}

fn delete(txn: *mut Txn, dbi: u32, key: &[u8]) -> c_int {
    unsafe { mdb_del(txn, dbi, &mut val(key), null_mut()) }
}

fn cursor(txn: *mut Txn, dbi: u32) -> *mut Cursor {
    let mut cursor = null_mut();
    assert_eq!(unsafe { mdb_cursor_open(txn, dbi, &mut cursor) }, OK);
    cursor
}

fn go(cursor: *mut Cursor, op: Op) -> Result<(Vec<u8>, Vec<u8>), c_int> {
    let (mut key, mut value) = (empty(), empty());
    match unsafe { mdb_cursor_get(cursor, &mut key, &mut value, op as u32) } {
        OK => Ok((bytes(key), bytes(value))),
        code => Err(code),
    }
}

#[test]
fn null_pointers_are_refused() {
    const EINVAL: c_int = Code::EINVAL.0;
    unsafe {
        assert_eq!(mdb_env_create(null_mut()), EINVAL);
        assert_eq!(mdb_env_open(null_mut(), null(), 0, 0), EINVAL);
        assert_eq!(mdb_env_copy(null_mut(), null()), EINVAL);
        assert_eq!(mdb_env_copyfd(null_mut(), 0), EINVAL);
        assert_eq!(mdb_env_stat(null_mut(), null_mut()), EINVAL);
        assert_eq!(mdb_env_info(null_mut(), null_mut()), EINVAL);
        assert_eq!(mdb_env_sync(null_mut(), 1), EINVAL);
        assert_eq!(mdb_env_set_flags(null_mut(), 0, 1), EINVAL);
        assert_eq!(mdb_env_get_flags(null_mut(), null_mut()), EINVAL);
        assert_eq!(mdb_env_get_path(null_mut(), null_mut()), EINVAL);
        assert_eq!(mdb_env_get_fd(null_mut(), null_mut()), EINVAL);
        assert_eq!(mdb_env_set_mapsize(null_mut(), 1), EINVAL);
        assert_eq!(mdb_env_set_maxreaders(null_mut(), 1), EINVAL);
        assert_eq!(mdb_env_set_maxdbs(null_mut(), 1), EINVAL);
        assert_eq!(mdb_env_set_userctx(null_mut(), null_mut()), EINVAL);
        assert!(mdb_env_get_userctx(null_mut()).is_null());
        assert_eq!(mdb_txn_begin(null_mut(), null_mut(), 0, null_mut()), EINVAL);
        assert_eq!(mdb_txn_commit(null_mut()), EINVAL);
        assert_eq!(mdb_txn_renew(null_mut()), EINVAL);
        assert!(mdb_txn_env(null_mut()).is_null());
        assert_eq!(mdb_txn_id(null_mut()), 0);
        assert_eq!(mdb_dbi_open(null_mut(), null(), 0, null_mut()), EINVAL);
        assert_eq!(mdb_drop(null_mut(), 1, 0), EINVAL);
        assert_eq!(mdb_set_compare(null_mut(), 1, None), EINVAL);
        let none = null_mut();
        assert_eq!(mdb_get(null_mut(), 1, none, none), EINVAL);
        assert_eq!(mdb_put(null_mut(), 1, none, none, 0), EINVAL);
        assert_eq!(mdb_del(null_mut(), 1, none, none), EINVAL);
        assert_eq!(mdb_cursor_open(null_mut(), 1, null_mut()), EINVAL);
        assert_eq!(mdb_cursor_get(null_mut(), none, none, 0), EINVAL);
        assert_eq!(mdb_cursor_put(null_mut(), none, none, 0), EINVAL);
        assert_eq!(mdb_cursor_del(null_mut(), 0), EINVAL);
        assert_eq!(mdb_cursor_count(null_mut(), null_mut()), EINVAL);
        assert_eq!(mdb_cursor_renew(null_mut(), null_mut()), EINVAL);
        assert_eq!(mdb_reader_check(null_mut(), null_mut()), EINVAL);
        assert!(mdb_reader_list(null_mut(), None, null_mut()) < 0);
        // These have nothing to say it with.
        mdb_env_close(null_mut());
        mdb_txn_abort(null_mut());
        mdb_txn_reset(null_mut());
        mdb_cursor_close(null_mut());
        mdb_dbi_close(null_mut(), 1);
    }
}

#[test]
fn every_code_has_its_text() {
    let text = |code| {
        unsafe { CStr::from_ptr(mdb_strerror(code)) }
            .to_str()
            .unwrap()
    };
    assert_eq!(text(0), "Successful return: 0");
    assert_eq!(text(-30799), "MDB_KEYEXIST: Key/data pair already exists");
    assert_eq!(
        text(-30792),
        "MDB_MAP_FULL: Environment mapsize limit reached"
    );
    assert_eq!(
        text(-30779),
        "MDB_PROBLEM: Unexpected problem - txn should abort"
    );
    assert!(text(libc::ENOENT).starts_with("No such file"));
    // Whatever number comes, there is a text.
    for code in [-30778, -30800, c_int::MIN, c_int::MAX] {
        assert!(!text(code).is_empty());
    }
}

#[test]
fn sizes_are_limited() {
    const BAD_VALSIZE: c_int = Code::BAD_VALSIZE.0;
    let folder = tempfile::tempdir().unwrap();
    let env = open(folder.path());
    let txn = write(env);
    let plain = database(txn, c"plain", CREATE).unwrap();
    let sorted = database(txn, c"sorted", CREATE | db_flags::DUPSORT).unwrap();
    let numbers = database(txn, c"numbers", CREATE | db_flags::INTEGERKEY).unwrap();
    let fixed = db_flags::DUPSORT | db_flags::DUPFIXED;
    let fixed = database(txn, c"fixed", CREATE | fixed).unwrap();

    assert_eq!(unsafe { mdb_env_get_maxkeysize(env) }, 511);
    assert_eq!(put(txn, plain, &[1; 511], b"v", 0), OK);
    assert_eq!(put(txn, plain, &[1; 512], b"v", 0), BAD_VALSIZE);
    assert_eq!(put(txn, plain, &[], b"v", 0), BAD_VALSIZE);
    assert_eq!(get(txn, plain, &[]), Err(BAD_VALSIZE));
    assert_eq!(put(txn, plain, b"empty", b"", 0), OK);
    assert_eq!(get(txn, plain, b"empty").unwrap(), b"");

    assert_eq!(put(txn, numbers, &[1; 3], b"v", 0), BAD_VALSIZE);
    assert_eq!(put(txn, numbers, &[1; 4], b"v", 0), OK);

    assert_eq!(put(txn, sorted, b"k", &[1; 511], 0), OK);
    assert_eq!(put(txn, sorted, b"k", &[1; 512], 0), BAD_VALSIZE);
    assert_eq!(
        put(txn, sorted, b"k", b"", 0),
        BAD_VALSIZE,
        "one of several"
    );
    assert_eq!(put(txn, sorted, b"alone", b"", 0), OK);
    assert_eq!(put(txn, sorted, b"alone", b"", 0), OK, "the same");
    assert_eq!(get(txn, sorted, b"alone").unwrap(), b"");

    assert_eq!(put(txn, fixed, b"k", b"12345678", 0), OK);
    assert_eq!(put(txn, fixed, b"k", b"1234567", 0), BAD_VALSIZE);
    assert_eq!(put(txn, fixed, b"other", b"", 0), BAD_VALSIZE);

    let long = CString::new(vec![b'n'; 511]).unwrap();
    assert_eq!(database(txn, &long, CREATE), Err(BAD_VALSIZE));
    commit(txn);
    unsafe { mdb_env_close(env) };
}

#[test]
fn a_transaction_does_only_what_its_state_allows() {
    const BAD_TXN: c_int = Code::BAD_TXN.0;
    let folder = tempfile::tempdir().unwrap();
    let env = open(folder.path());
    let txn = write(env);
    let dbi = database(txn, c"d", CREATE).unwrap();
    assert_eq!(put(txn, dbi, b"a", b"1", 0), OK);

    let child = begin(env, txn, 0).unwrap();
    assert_eq!(put(txn, dbi, b"b", b"1", 0), BAD_TXN, "it has a child");
    assert_eq!(begin(env, txn, 0).err(), Some(BAD_TXN));
    assert_eq!(begin(env, child, env_flags::RDONLY).err(), Some(BAD_TXN));
    assert_eq!(put(child, dbi, b"b", b"2", 0), OK);
    let grandchild = begin(env, child, 0).unwrap();
    assert_eq!(delete(grandchild, dbi, b"a"), OK);
    unsafe { mdb_txn_abort(grandchild) };
    assert_eq!(get(child, dbi, b"a").unwrap(), b"1");
    commit(child);
    assert_eq!(get(txn, dbi, b"b").unwrap(), b"2");
    let child = begin(env, txn, 0).unwrap();
    assert_eq!(put(child, dbi, b"c", b"3", 0), OK);
    // The children of a transaction that ends are ended with it.
    commit(txn);

    let txn = read(env);
    assert_eq!(get(txn, dbi, b"c").unwrap(), b"3");
    assert_eq!(put(txn, dbi, b"d", b"", 0), libc::EACCES);
    assert_eq!(delete(txn, dbi, b"a"), libc::EACCES);
    assert_eq!(begin(env, txn, 0).err(), Some(libc::EINVAL), "no children");
    assert_eq!(
        begin(env, null_mut(), env_flags::RDONLY).err(),
        Some(Code::BAD_RSLOT.0),
        "one to a thread"
    );
    unsafe {
        assert_eq!(mdb_txn_renew(txn), libc::EINVAL);
        mdb_txn_reset(txn);
        assert_eq!(get(txn, dbi, b"a"), Err(BAD_TXN));
        mdb_txn_reset(txn);
        assert_eq!(mdb_txn_renew(txn), OK);
        assert_eq!(get(txn, dbi, b"a").unwrap(), b"1");
        mdb_txn_abort(txn);
        mdb_env_close(env);
    }
}

#[test]
fn a_reset_transaction_sees_the_newest_state_when_it_is_renewed() {
    let folder = tempfile::tempdir().unwrap();
    let env = open(folder.path());
    let txn = write(env);
    let dbi = database(txn, c"d", CREATE).unwrap();
    assert_eq!(put(txn, dbi, b"k", b"old", 0), OK);
    commit(txn);

    let reading = read(env);
    let at = cursor(reading, dbi);
    assert_eq!(go(at, Op::First).unwrap().1, b"old");
    let txn = write(env);
    assert_eq!(put(txn, dbi, b"k", b"new", 0), OK);
    commit(txn);
    assert_eq!(get(reading, dbi, b"k").unwrap(), b"old");
    assert_eq!(go(at, Op::GetCurrent).unwrap().1, b"old");
    unsafe {
        mdb_txn_reset(reading);
        assert_eq!(mdb_txn_renew(reading), OK);
        assert_eq!(get(reading, dbi, b"k").unwrap(), b"new");
        assert_eq!(mdb_cursor_renew(reading, at), OK);
        assert_eq!(go(at, Op::First).unwrap().1, b"new");
        // A cursor of a read transaction may outlive it.
        mdb_txn_abort(reading);
        mdb_cursor_close(at);
        mdb_env_close(env);
    }
}

/// Many values at a time come back in pieces, in both directions.
#[test]
fn fixed_values_are_stored_and_shown_many_at_a_time() {
    let folder = tempfile::tempdir().unwrap();
    let env = open(folder.path());
    let txn = write(env);
    let flags = CREATE | db_flags::DUPSORT | db_flags::DUPFIXED;
    let dbi = database(txn, c"d", flags).unwrap();
    let at = cursor(txn, dbi);
    let mut model: BTreeMap<Vec<u8>, std::collections::BTreeSet<[u8; 8]>> = BTreeMap::new();
    for round in 0_u64..40 {
        let key = vec![b'a' + (round % 3) as u8];
        let of_key = model.entry(key.clone()).or_default();
        let words: Vec<[u8; 8]> = (0..100)
            .map(|n| {
                (n * 7919 + round * 31)
                    .wrapping_mul(0x9e37_79b9)
                    .to_be_bytes()
            })
            .collect();
        of_key.extend(&words);
        let mut values = [val(words[0].as_slice()), empty()];
        values[1].size = words.len();
        let stored = unsafe {
            let values = values.as_mut_ptr();
            mdb_cursor_put(at, &mut val(&key), values, write_flags::MULTIPLE)
        };
        assert_eq!((stored, values[1].size), (OK, words.len()));
        assert_eq!(go(at, Op::GetCurrent).unwrap().1, words[99]);
    }
    let pieces = |first: Op, further: Op, at: *mut Cursor| {
        let mut shown = go(at, first).map(|(_, piece)| vec![piece]).unwrap();
        while let Ok((_, piece)) = go(at, further) {
            shown.push(piece);
        }
        shown
    };
    for (key, words) in &model {
        let words: Vec<u8> = words.iter().flatten().copied().collect();
        let set = || unsafe { mdb_cursor_get(at, &mut val(key), &mut empty(), Op::Set as u32) };
        assert_eq!(set(), OK);
        let mut count = 0;
        assert_eq!(unsafe { mdb_cursor_count(at, &mut count) }, OK);
        assert_eq!(count, words.len() / 8);
        let forward = pieces(Op::GetMultiple, Op::NextMultiple, at);
        assert_eq!(forward.concat(), words, "{} pieces", forward.len());
        if key == b"a" {
            assert_eq!(set(), OK);
            assert!(go(at, Op::PrevMultiple).is_err(), "nothing is before it");
        }
    }
    let wrong = database(txn, c"sorted", CREATE | db_flags::DUPSORT).unwrap();
    let wrong = cursor(txn, wrong);
    let mut values = [val(&[1; 8]), empty()];
    values[1].size = 1;
    let stored = unsafe {
        let values = values.as_mut_ptr();
        mdb_cursor_put(wrong, &mut val(b"k"), values, write_flags::MULTIPLE)
    };
    assert_eq!(stored, Code::INCOMPATIBLE.0);
    // More bytes than there can be.
    values[1].size = usize::MAX / 4;
    let stored = unsafe {
        let values = values.as_mut_ptr();
        mdb_cursor_put(at, &mut val(b"k"), values, write_flags::MULTIPLE)
    };
    assert_eq!(stored, Code::BAD_VALSIZE.0);
    commit(txn);
    unsafe { mdb_env_close(env) };
}

#[test]
fn what_is_appended_comes_last_or_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let env = open(folder.path());
    let txn = write(env);
    let dbi = database(txn, c"d", CREATE | db_flags::DUPSORT).unwrap();
    let append = |key: &[u8], value: &[u8]| put(txn, dbi, key, value, write_flags::APPEND);
    let append_dup = |key: &[u8], value: &[u8]| put(txn, dbi, key, value, write_flags::APPENDDUP);
    assert_eq!(append(b"b", b"1"), OK);
    assert_eq!(append(b"a", b"1"), Code::KEYEXIST.0);
    assert_eq!(append(b"b", b"2"), Code::KEYEXIST.0);
    assert_eq!(append_dup(b"b", b"2"), OK);
    assert_eq!(append_dup(b"b", b"1"), Code::KEYEXIST.0);
    for n in 0_u32..500 {
        assert_eq!(append_dup(b"c", &n.to_be_bytes()), OK);
    }
    let at = cursor(txn, dbi);
    assert_eq!(
        go(at, Op::Last).unwrap(),
        (b"c".to_vec(), 499_u32.to_be_bytes().to_vec())
    );
    assert_eq!(go(at, Op::Next), Err(Code::NOTFOUND.0));
    assert_eq!(go(at, Op::Prev).unwrap().1, 498_u32.to_be_bytes());
    commit(txn);
    unsafe { mdb_env_close(env) };
}

#[test]
fn at_the_map_size_puts_fail_and_deletions_do_not() {
    let folder = tempfile::tempdir().unwrap();
    let env = try_open(folder.path(), env_flags::NOSYNC, 2 * MIB).unwrap();
    let txn = write(env);
    let dbi = database(txn, c"d", CREATE).unwrap();
    commit(txn);
    let fill = |from: u32| {
        let mut stored = from;
        loop {
            let txn = write(env);
            let code = put(txn, dbi, &stored.to_be_bytes(), &[7; 3000], 0);
            if code != OK {
                assert_eq!(code, Code::MAP_FULL.0);
                // After that the transaction can only be aborted.
                assert_eq!(get(txn, dbi, b"k"), Err(Code::BAD_TXN.0));
                assert_eq!(unsafe { mdb_txn_commit(txn) }, Code::BAD_TXN.0);
                return stored;
            }
            match unsafe { mdb_txn_commit(txn) } {
                OK => stored += 1,
                code => {
                    assert_eq!(code, Code::MAP_FULL.0);
                    return stored;
                }
            }
            assert!(stored < 2000, "no bound");
        }
    };
    let stored = fill(0);
    assert!(stored > 300, "{stored}");
    assert!(fs::metadata(folder.path().join("data.mdb")).unwrap().len() <= 8 * MIB as u64);
    for n in 0..stored {
        let txn = write(env);
        assert_eq!(delete(txn, dbi, &n.to_be_bytes()), OK);
        commit(txn);
    }
    let again = fill(0);
    assert!(again > stored / 2, "{again} after {stored}");
    assert_eq!(unsafe { mdb_env_set_mapsize(env, 4 * MIB) }, OK);
    assert!(fill(again) > stored + again / 2);
    unsafe { mdb_env_close(env) };
}

#[test]
fn files_are_where_programs_look_for_them() {
    let folder = tempfile::tempdir().unwrap();
    let env = open(folder.path());
    assert!(folder.path().join("data.mdb").exists());
    assert!(folder.path().join("lock.mdb").exists());
    unsafe {
        let mut path: *const c_char = null();
        assert_eq!(mdb_env_get_path(env, &mut path), OK);
        assert_eq!(CStr::from_ptr(path), c_path(folder.path()).as_c_str());
        let mut fd = -1;
        assert_eq!(mdb_env_get_fd(env, &mut fd), OK);
        assert!(fd >= 0);
        mdb_env_close(env);
    }
    let file = folder.path().join("single.db");
    let env = try_open(&file, env_flags::NOSUBDIR, 16 * MIB).unwrap();
    assert!(file.is_file());
    assert!(folder.path().join("single.db-lock").exists());
    unsafe { mdb_env_close(env) };

    let missing = folder.path().join("missing");
    assert_eq!(try_open(&missing, 0, MIB).err(), Some(libc::ENOENT));
    let read_only = env_flags::RDONLY | env_flags::NOSUBDIR;
    assert_eq!(try_open(&missing, read_only, MIB).err(), Some(libc::ENOENT));
    assert!(!missing.exists());
}

#[test]
fn other_files_are_no_environments() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("data.mdb");
    for content in [&b"no environment"[..], &[0xff; 3 * 4096], &[0; 9000]] {
        fs::write(&path, content).unwrap();
        let refused = try_open(folder.path(), 0, MIB).unwrap_err();
        assert_eq!(refused, Code::INVALID.0);
        assert_eq!(fs::read(&path).unwrap(), content, "it is not touched");
    }
}

#[test]
fn handles_are_limited_and_given_back() {
    let folder = tempfile::tempdir().unwrap();
    let env = open(folder.path());
    let txn = write(env);
    let names = [c"a", c"b", c"c", c"d"];
    let handles = names.map(|name| database(txn, name, CREATE).unwrap());
    assert_eq!(handles, [2, 3, 4, 5]);
    assert_eq!(database(txn, c"e", CREATE), Err(Code::DBS_FULL.0));
    assert_eq!(database(txn, c"a", 0), Ok(2), "it is open already");
    commit(txn);

    unsafe { mdb_dbi_close(env, 3) };
    let txn = write(env);
    assert!(put(txn, 3, b"k", b"v", 0) != OK, "it is closed");
    assert_eq!(database(txn, c"missing", 0), Err(Code::NOTFOUND.0));
    assert_eq!(database(txn, c"e", CREATE), Ok(3));
    unsafe { mdb_txn_abort(txn) };
    let txn = write(env);
    assert_eq!(
        database(txn, c"e", 0),
        Err(Code::NOTFOUND.0),
        "it was aborted"
    );
    assert_eq!(unsafe { mdb_drop(txn, 2, 1) }, OK);
    assert_eq!(database(txn, c"a", 0), Err(Code::NOTFOUND.0), "it is gone");
    assert_eq!(
        put(txn, 1, b"b", b"v", 0),
        Code::INCOMPATIBLE.0,
        "a database"
    );
    assert_eq!(delete(txn, 1, b"b"), Code::INCOMPATIBLE.0);
    assert!(put(txn, 77, b"k", b"v", 0) != OK);
    commit(txn);
    unsafe { mdb_env_close(env) };
}

unsafe extern "C" fn gather(line: *const c_char, lines: *mut c_void) -> c_int {
    let lines = unsafe { &mut *lines.cast::<Vec<String>>() };
    lines.push(unsafe { CStr::from_ptr(line) }.to_str().unwrap().into());
    0
}

#[test]
fn readers_are_listed_and_limited() {
    let folder = tempfile::tempdir().unwrap();
    let list = |env| {
        let mut lines: Vec<String> = Vec::new();
        let context = (&raw mut lines).cast();
        assert!(unsafe { mdb_reader_list(env, Some(gather), context) } >= 0);
        lines
    };
    unsafe {
        let mut env = null_mut();
        assert_eq!(mdb_env_create(&mut env), OK);
        assert_eq!(mdb_env_set_maxreaders(env, 3), OK);
        let path = c_path(folder.path());
        assert_eq!(
            mdb_env_open(env, path.as_ptr(), env_flags::NOTLS, 0o600),
            OK
        );
        assert_eq!(list(env), ["(no active readers)\n"]);
        let readers = [read(env), read(env), read(env)];
        let refused = begin(env, null_mut(), env_flags::RDONLY);
        assert_eq!(refused.err(), Some(Code::READERS_FULL.0));
        let lines = list(env);
        assert_eq!(lines.len(), 4, "{lines:?}");
        assert!(
            lines[1]
                .trim_start()
                .starts_with(&std::process::id().to_string())
        );
        for txn in readers {
            mdb_txn_abort(txn);
        }
        mdb_txn_abort(read(env));
        let mut dead = -1;
        assert_eq!(mdb_reader_check(env, &mut dead), OK);
        assert_eq!(dead, 0);
        mdb_env_close(env);
    }
}

/// More threads than there are slots, and half of them end in the middle of a transaction, which then keeps no pages.
#[test]
fn threads_give_their_slots_back_when_they_end() {
    let folder = tempfile::tempdir().unwrap();
    let env = open(folder.path());
    let txn = write(env);
    let dbi = database(txn, c"d", CREATE).unwrap();
    commit(txn);
    let address = env as usize;
    let forgotten: Vec<usize> = (0..300)
        .map(|n| {
            let reading = std::thread::spawn(move || {
                let txn = read(address as *mut Env);
                if n % 2 == 0 {
                    unsafe { mdb_txn_abort(txn) };
                }
                txn as usize
            });
            reading.join().unwrap()
        })
        .skip(1)
        .step_by(2)
        .collect();
    let mut info: EnvInfo = unsafe { std::mem::zeroed() };
    assert_eq!(unsafe { mdb_env_info(env, &mut info) }, OK);
    assert_eq!(info.numreaders, 0);
    for n in 0_u32..200 {
        let txn = write(env);
        assert_eq!(put(txn, dbi, &[n as u8], &[1; 3000], 0), OK);
        commit(txn);
        let txn = write(env);
        assert_eq!(delete(txn, dbi, &[n as u8]), OK);
        commit(txn);
    }
    assert_eq!(unsafe { mdb_env_info(env, &mut info) }, OK);
    assert!(info.last_pgno < 400, "{}", info.last_pgno);
    for txn in forgotten {
        let txn = txn as *mut Txn;
        assert_eq!(get(txn, dbi, b"k"), Err(Code::BAD_TXN.0));
        unsafe { mdb_txn_abort(txn) };
    }
    unsafe { mdb_env_close(env) };
}

#[test]
fn copies_have_the_same_records() {
    let folder = tempfile::tempdir().unwrap();
    let env = open(folder.path());
    let txn = write(env);
    let dbi = database(txn, c"d", CREATE | db_flags::DUPSORT).unwrap();
    for n in 0_u32..3000 {
        assert_eq!(
            put(txn, dbi, &(n % 500).to_be_bytes(), &[n as u8; 200], 0),
            OK
        );
    }
    commit(txn);
    let txn = write(env);
    for n in 0_u32..400 {
        assert_eq!(delete(txn, dbi, &n.to_be_bytes()), OK);
    }
    commit(txn);

    let all = |env: *mut Env| {
        let txn = read(env);
        let at = cursor(txn, database(txn, c"d", 0).unwrap());
        let mut records = Vec::new();
        while let Ok(record) = go(at, Op::Next) {
            records.push(record);
        }
        unsafe { mdb_txn_abort(txn) };
        records
    };
    let pages = |env: *mut Env| unsafe {
        let mut info: EnvInfo = std::mem::zeroed();
        assert_eq!(mdb_env_info(env, &mut info), OK);
        info.last_pgno
    };
    let expected = all(env);
    assert!(!expected.is_empty());
    for flags in [0, 1] {
        let to = folder.path().join(format!("copy{flags}"));
        fs::create_dir(&to).unwrap();
        assert_eq!(
            unsafe { mdb_env_copy2(env, c_path(&to).as_ptr(), flags) },
            OK
        );
        let names: Vec<_> = fs::read_dir(&to)
            .unwrap()
            .map(|e| e.unwrap().file_name())
            .collect();
        assert_eq!(names, ["data.mdb"], "it stands alone");
        let copy = open(&to);
        assert_eq!(all(copy), expected);
        if flags == 1 {
            assert!(
                pages(copy) < pages(env) / 2,
                "{} {}",
                pages(copy),
                pages(env)
            );
        }
        unsafe { mdb_env_close(copy) };
    }
    let to = folder.path().join("fd");
    let file = fs::File::create(&to).unwrap();
    assert_eq!(unsafe { mdb_env_copyfd2(env, file.as_raw_fd(), 1) }, OK);
    let copy = try_open(&to, env_flags::NOSUBDIR | env_flags::RDONLY, 16 * MIB).unwrap();
    assert_eq!(all(copy), expected);
    let refused = unsafe { mdb_env_copy2(env, c_path(folder.path()).as_ptr(), 2) };
    assert_eq!(refused, libc::EINVAL);
    unsafe {
        mdb_env_close(copy);
        mdb_env_close(env);
    }
}

unsafe extern "C" fn backwards(a: *const Val, b: *const Val) -> c_int {
    let (a, b) = unsafe { (bytes(*a), bytes(*b)) };
    b.cmp(&a) as c_int
}

/// Compaction asks for no order, which only the program knows.
#[test]
fn a_compact_copy_keeps_an_order_of_the_programs_own() {
    let folder = tempfile::tempdir().unwrap();
    let ordered = |env: *mut Env, flags: u32| {
        let txn = write(env);
        let dbi = database(txn, c"d", flags).unwrap();
        unsafe {
            assert_eq!(mdb_set_compare(txn, dbi, Some(backwards)), OK);
            assert_eq!(mdb_set_dupsort(txn, dbi, Some(backwards)), OK);
        }
        (txn, dbi)
    };
    let env = open(folder.path());
    let (txn, dbi) = ordered(env, CREATE | db_flags::DUPSORT);
    for n in 0_u32..2000 {
        let key = (n % 50).to_be_bytes();
        assert_eq!(put(txn, dbi, &key, &n.to_be_bytes(), 0), OK);
    }
    commit(txn);
    unsafe { mdb_env_close(env) };

    let to = folder.path().join("copy");
    fs::create_dir(&to).unwrap();
    let env = open(folder.path());
    assert_eq!(unsafe { mdb_env_copy2(env, c_path(&to).as_ptr(), 1) }, OK);
    unsafe { mdb_env_close(env) };
    let env = open(&to);
    let (txn, dbi) = ordered(env, db_flags::DUPSORT);
    let at = cursor(txn, dbi);
    for key in (0_u32..50).rev() {
        for value in (0..40).rev() {
            let (shown, shown_value) = go(at, Op::Next).unwrap();
            assert_eq!(shown, key.to_be_bytes());
            assert_eq!(shown_value, (value * 50 + key).to_be_bytes());
        }
    }
    assert_eq!(go(at, Op::Next), Err(Code::NOTFOUND.0));
    unsafe { mdb_txn_abort(txn) };
    unsafe { mdb_env_close(env) };
}

#[test]
fn one_file_opened_twice_is_one_environment() {
    let folder = tempfile::tempdir().unwrap();
    let (one, other) = (open(folder.path()), open(folder.path()));
    let txn = write(one);
    let dbi = database(txn, c"d", CREATE).unwrap();
    assert_eq!(put(txn, dbi, b"k", b"v", 0), OK);
    commit(txn);
    let txn = read(other);
    let dbi = database(txn, c"d", 0).unwrap();
    assert_eq!(get(txn, dbi, b"k").unwrap(), b"v");
    commit(txn);
    unsafe { mdb_env_close(one) };
    let txn = write(other);
    assert_eq!(put(txn, dbi, b"k", b"w", 0), OK, "the other is still open");
    commit(txn);
    unsafe { mdb_env_close(other) };
    let env = open(folder.path());
    let txn = read(env);
    let dbi = database(txn, c"d", 0).unwrap();
    assert_eq!(get(txn, dbi, b"k").unwrap(), b"w");
    unsafe {
        mdb_txn_abort(txn);
        mdb_env_close(env);
    }
}

#[test]
fn a_forked_child_is_refused_and_harms_nobody() {
    let folder = tempfile::tempdir().unwrap();
    let env = open(folder.path());
    let txn = write(env);
    let dbi = database(txn, c"d", CREATE).unwrap();
    commit(txn);
    let status = unsafe {
        match libc::fork() {
            0 => {
                let refused = begin(env, null_mut(), 0).err() == Some(Code::PANIC.0);
                mdb_env_close(env);
                libc::_exit(c_int::from(!refused));
            }
            child => {
                let mut status = -1;
                assert_eq!(libc::waitpid(child, &mut status, 0), child);
                status
            }
        }
    };
    assert!(
        libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0,
        "{status}"
    );
    let txn = write(env);
    assert_eq!(put(txn, dbi, b"k", b"v", 0), OK);
    commit(txn);
    unsafe { mdb_env_close(env) };
}

#[test]
fn statistics_count_what_there_is() {
    let folder = tempfile::tempdir().unwrap();
    let env = open(folder.path());
    let txn = write(env);
    let dbi = database(txn, c"d", CREATE).unwrap();
    for n in 0_u32..1000 {
        assert_eq!(put(txn, dbi, &n.to_be_bytes(), &[1; 100], 0), OK);
    }
    assert_eq!(put(txn, dbi, b"large", &[1; 20_000], 0), OK);
    let mut stat = Stat::default();
    assert_eq!(unsafe { mdb_stat(txn, dbi, &mut stat) }, OK);
    assert_eq!((stat.psize, stat.entries, stat.depth), (4096, 1001, 2));
    assert!(stat.leaf_pages > 20 && stat.branch_pages == 1, "{stat:?}");
    assert_eq!(stat.overflow_pages, 5);
    assert_eq!(unsafe { mdb_txn_id(txn) }, 1);
    commit(txn);
    assert_eq!(unsafe { mdb_env_stat(env, &mut stat) }, OK);
    assert_eq!(
        stat.entries, 1,
        "the main database has a record for the named one"
    );
    unsafe { mdb_env_close(env) };
}
