//! What C programs rely on beside the results that `cargo xtask judge-lmdb` compares with the original's: refusals,
//! limits, and what happens where programs break the rules. (Of environments and their files: `environments.rs`.)

// A C program, in Rust.
#![allow(unsafe_code, clippy::undocumented_unsafe_blocks)]
#![allow(clippy::unwrap_used)]

mod program;

use std::collections::BTreeMap;
use std::ffi::{CStr, CString, c_int};
use std::ptr::{null, null_mut};

use lmdb::values::{CursorOp as Op, db_flags, env_flags, write_flags};
use lmdb::{Code, MdbCursor as Cursor};

use program::*;

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
