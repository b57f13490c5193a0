//! What cursors put behind the values of a key is there whatever is asked next, though the library stores it later.

// A C program, in Rust.
#![allow(unsafe_code, clippy::undocumented_unsafe_blocks)]
#![allow(clippy::unwrap_used)]
// Words of the calling program, not of a file.
#![allow(clippy::host_endian_bytes)]

mod program;

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::c_int;

use lmdb::values::{CursorOp as Op, Stat, db_flags, write_flags};
use lmdb::{Code, MdbCursor as Cursor, MdbTxn as Txn, Val};

use program::*;

const INDEX: u32 = db_flags::DUPSORT | db_flags::DUPFIXED | db_flags::INTEGERDUP;
const BEHIND: u32 = write_flags::APPENDDUP | write_flags::NODUPDATA;

type Model = BTreeMap<[u8; 4], BTreeSet<u64>>;

fn set(cursor: *mut Cursor, key: &[u8]) -> Result<Val, c_int> {
    let mut value = empty();
    match unsafe { mdb_cursor_get(cursor, &mut val(key), &mut value, Op::Set as u32) } {
        OK => Ok(value),
        code => Err(code),
    }
}

fn count(cursor: *mut Cursor) -> Result<usize, c_int> {
    let mut count = 0;
    match unsafe { mdb_cursor_count(cursor, &mut count) } {
        OK => Ok(count),
        code => Err(code),
    }
}

fn cursor_put(cursor: *mut Cursor, key: &[u8], value: u64, flags: u32) -> c_int {
    let value = value.to_ne_bytes();
    unsafe { mdb_cursor_put(cursor, &mut val(key), &mut val(&value), flags) }
}

fn number(value: Val) -> u64 {
    u64::from_ne_bytes(bytes(value).try_into().unwrap())
}

/// As slapd does for each key of an entry; whether the value was put.
fn index(cursor: *mut Cursor, model: &mut Model, key: [u8; 4], value: u64) -> bool {
    let values = model.entry(key).or_default();
    let found = set(cursor, &key);
    assert_eq!(found.map(number).ok(), values.first().copied());
    if values.is_empty() {
        assert_eq!(cursor_put(cursor, &key, value, write_flags::NODUPDATA), OK);
        return values.insert(value);
    }
    assert_eq!(count(cursor), Ok(values.len()));
    let fits = values.last().unwrap() < &value;
    let expected = if fits { OK } else { Code::KEYEXIST.0 };
    assert_eq!(cursor_put(cursor, &key, value, BEHIND), expected);
    if fits {
        values.insert(value);
        assert_eq!(count(cursor), Ok(values.len()));
    }
    fits
}

fn entries(txn: *mut Txn, dbi: u32) -> usize {
    let mut stat = Stat::default();
    assert_eq!(unsafe { mdb_stat(txn, dbi, &mut stat) }, OK);
    stat.entries
}

fn all(txn: *mut Txn, dbi: u32) -> Model {
    let (at, mut all) = (cursor(txn, dbi), Model::new());
    while let Ok((key, value)) = go(at, Op::Next) {
        let value = u64::from_ne_bytes(value.try_into().unwrap());
        let is_new = all
            .entry(key.try_into().unwrap())
            .or_default()
            .insert(value);
        assert!(is_new);
    }
    unsafe { mdb_cursor_close(at) };
    all
}

/// Something other than putting values behind others.
fn look(txn: *mut Txn, dbi: u32, at: *mut Cursor, model: &mut Model, key: [u8; 4], kind: u64) {
    let values = model.entry(key).or_default();
    let first = values.first().copied();
    let shown = |value: &[u8]| u64::from_ne_bytes(value.try_into().unwrap());
    match kind {
        0 => assert_eq!(get(txn, dbi, &key).ok().map(|value| shown(&value)), first),
        1 if key[3] == 0 => {
            let removed = delete(txn, dbi, &key);
            assert_eq!(removed == OK, first.is_some());
            values.clear();
        }
        2 => {
            // One that may be anywhere among the others.
            let new = first.map_or(7, |first| first + 3);
            assert_eq!(put(txn, dbi, &key, &new.to_ne_bytes(), 0), OK);
            values.insert(new);
        }
        3 if set(at, &key).is_ok() => {
            let last = go(at, Op::LastDup).map(|(_, value)| shown(&value));
            assert_eq!(last, Ok(*values.last().unwrap()));
            assert_eq!(count(at), Ok(values.len()));
        }
        4 if set(at, &key).is_ok() => {
            let next = go(at, Op::NextDup).map(|(_, value)| shown(&value));
            assert_eq!(next.ok(), values.iter().nth(1).copied());
        }
        5 if set(at, &key).is_ok() => {
            assert_eq!(unsafe { mdb_cursor_del(at, 0) }, OK);
            values.pop_first();
        }
        6 => assert_eq!(entries(txn, dbi), model.values().map(BTreeSet::len).sum()),
        _ => {}
    }
}

#[test]
fn the_values_of_an_index_are_those_that_were_put() {
    beside_the_original(|| {
        let mut state = 88_172_645_463_325_252_u64;
        let mut random = move |below: u64| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state % below
        };
        let folder = tempfile::tempdir().unwrap();
        let env = open(folder.path());
        let txn = write(env);
        let dbi = database(txn, c"index", CREATE | INDEX).unwrap();
        commit(txn);
        let mut model = Model::new();
        for _ in 0..60 {
            let txn = write(env);
            let before = model.clone();
            let cursors = [cursor(txn, dbi), cursor(txn, dbi)];
            // Lists that stay in their leaf, and some that grow out of it.
            let keys = 3 + random(12);
            for _ in 0..random(400) {
                let key = [b'k', b'e', b'y', random(keys) as u8];
                let at = cursors[random(2) as usize];
                match random(40) {
                    kind @ 0..8 => look(txn, dbi, at, &mut model, key, kind),
                    8 => {
                        let child = begin(env, txn, 0).unwrap();
                        let inner = cursor(child, dbi);
                        let mut tried = model.clone();
                        let last = tried.get(&key).and_then(BTreeSet::last).copied();
                        for more in 1..4 {
                            index(inner, &mut tried, key, last.unwrap_or(1) + more);
                        }
                        match random(2) {
                            0 => unsafe { mdb_txn_abort(child) },
                            _ => {
                                commit(child);
                                model = tried;
                            }
                        }
                    }
                    _ => {
                        let last = model.get(&key).and_then(BTreeSet::last).copied();
                        let value = last.map_or(random(9), |last| last + random(4));
                        index(at, &mut model, key, value);
                    }
                }
            }
            model.retain(|_, values| !values.is_empty());
            match random(4) {
                0 => {
                    unsafe { mdb_txn_abort(txn) };
                    model = before;
                }
                _ => commit(txn),
            }
            let txn = read(env);
            assert_eq!(all(txn, dbi), model);
            unsafe { mdb_txn_abort(txn) };
        }
        // Of eight bytes, more than stand in the leaf of their key.
        assert!(model.values().any(|values| values.len() > 300));
        unsafe { mdb_env_close(env) };
    });
}

/// What was shown stays what it is until the program changes something, though reading it may store what was put.
#[test]
fn what_a_cursor_has_shown_stays_until_the_next_change() {
    beside_the_original(|| {
        let folder = tempfile::tempdir().unwrap();
        let env = open(folder.path());
        let txn = write(env);
        let dbi = database(txn, c"index", CREATE | INDEX).unwrap();
        let at = cursor(txn, dbi);
        let (mut model, keys) = (Model::new(), [*b"one.", *b"two.", *b"six."]);
        for round in 1..200 {
            for (at_key, key) in keys.iter().enumerate() {
                // Once in a while a key is left out, which the store then has and nothing is gathered of.
                if (round + at_key) % 7 > 0 {
                    assert!(index(at, &mut model, *key, round as u64));
                }
            }
            if round % 5 == 0 {
                let shown = keys.map(|key| set(at, &key).unwrap());
                assert_eq!(entries(txn, dbi), model.values().map(BTreeSet::len).sum());
                let first = |key: &[u8; 4]| *model[key].first().unwrap();
                assert_eq!(shown.map(number), keys.each_ref().map(first));
            }
        }
        assert_eq!(all(txn, dbi), model);
        unsafe { mdb_txn_abort(txn) };
        unsafe { mdb_env_close(env) };
    });
}

/// A database that is dropped, and made again, has nothing of what was put before.
#[test]
fn what_was_put_goes_with_its_database() {
    beside_the_original(|| {
        let folder = tempfile::tempdir().unwrap();
        let env = open(folder.path());
        for deletes in [0, 1] {
            let txn = write(env);
            let dbi = database(txn, c"index", CREATE | INDEX).unwrap();
            let at = cursor(txn, dbi);
            let mut model = Model::new();
            for value in 1..5 {
                index(at, &mut model, *b"key.", value);
            }
            unsafe { mdb_cursor_close(at) };
            assert_eq!(unsafe { mdb_drop(txn, dbi, deletes) }, OK);
            let dbi = database(txn, c"index", CREATE | INDEX).unwrap();
            assert_eq!(get(txn, dbi, b"key."), Err(Code::NOTFOUND.0));
            assert_eq!(entries(txn, dbi), 0);
            commit(txn);
        }
        unsafe { mdb_env_close(env) };
    });
}
