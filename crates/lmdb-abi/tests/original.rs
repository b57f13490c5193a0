//! What programs rely on beyond the letter of `lmdb.h`, each asked of the original too, where it is installed.

// A C program, in Rust.
#![allow(unsafe_code, clippy::undocumented_unsafe_blocks)]
#![allow(clippy::unwrap_used)]

mod program;

use std::ffi::{c_int, c_void};
use std::fs;
use std::path::Path;
use std::ptr::{null, null_mut};

use lmdb::abi::Pair;
use lmdb::values::{CursorOp as Op, db_flags, env_flags, write_flags};
use lmdb::{Code, Env, EnvInfo, MdbCursor as Cursor, MdbTxn as Txn};

use program::*;

const FIXED: u32 = db_flags::DUPSORT | db_flags::DUPFIXED;

fn close(env: *mut Env) {
    unsafe { mdb_env_close(env) };
}

fn abort(txn: *mut Txn) {
    unsafe { mdb_txn_abort(txn) };
}

fn set(cursor: *mut Cursor, op: Op, key: &[u8]) -> Result<Vec<u8>, c_int> {
    let mut value = empty();
    match unsafe { mdb_cursor_get(cursor, &mut val(key), &mut value, op as u32) } {
        OK => Ok(bytes(value)),
        code => Err(code),
    }
}

/// An environment whose database `d` has these records.
fn with(folder: &Path, flags: u32, records: &[(&[u8], &[u8])]) -> (*mut Env, u32) {
    let env = open(folder);
    let txn = write(env);
    let dbi = database(txn, c"d", CREATE | flags).unwrap();
    for (key, value) in records {
        assert_eq!(put(txn, dbi, key, value, 0), OK);
    }
    commit(txn);
    (env, dbi)
}

/// Postfix locks the data file by the descriptor that it is given.
#[test]
fn the_descriptor_can_be_locked_and_is_none_before_the_environment_is_open() {
    beside_the_original(|| unsafe {
        let folder = tempfile::tempdir().unwrap();
        let mut env = null_mut();
        assert_eq!(mdb_env_create(&mut env), OK);
        let (mut fd, mut path) = (7, c"none".as_ptr());
        assert_eq!((mdb_env_get_fd(env, &mut fd), fd), (OK, -1));
        assert_eq!((mdb_env_get_path(env, &mut path), path), (OK, null()));
        assert_eq!(
            mdb_env_open(env, c_path(folder.path()).as_ptr(), 0, 0o600),
            OK
        );
        assert_eq!(mdb_env_get_fd(env, &mut fd), OK);
        let lock = |kind: c_int| {
            let mut range: libc::flock = std::mem::zeroed();
            range.l_type = kind as i16;
            libc::fcntl(fd, libc::F_SETLK, &mut range)
        };
        for kind in [libc::F_WRLCK, libc::F_RDLCK, libc::F_UNLCK] {
            assert_eq!(lock(kind), 0, "{}", std::io::Error::last_os_error());
        }
        close(env);
    });
}

/// What a program does to the locks of its descriptor must not let others in where the environment is its alone.
#[test]
fn a_program_that_unlocks_its_descriptor_unlocks_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let env = try_open(folder.path(), env_flags::NOLOCK, MIB).unwrap();
    let mut fd = -1;
    assert_eq!(unsafe { mdb_env_get_fd(env, &mut fd) }, OK);
    assert_eq!(unsafe { libc::flock(fd, libc::LOCK_UN) }, 0);
    let data = fs::File::open(folder.path().join("data.mdb")).unwrap();
    assert!(data.try_lock_shared().is_err(), "the library has let it go");
    close(env);
}

/// PHP's dba keeps one cursor for ever, and one read transaction that it resets and renews for each step.
#[test]
fn a_cursor_keeps_its_place_while_its_transaction_is_reset() {
    let letters: Vec<[u8; 1]> = (b'a'..=b'z').map(|letter| [letter]).collect();
    let plain: Vec<(&[u8], &[u8])> = letters.iter().map(|key| (&key[..], &b"v"[..])).collect();
    let sorted: Vec<(&[u8], &[u8])> = letters
        .iter()
        .map(|value| (&b"key"[..], &value[..]))
        .collect();
    for (flags, records) in [(0, plain), (db_flags::DUPSORT, sorted)] {
        beside_the_original(|| {
            let folder = tempfile::tempdir().unwrap();
            let (env, dbi) = with(folder.path(), flags, &records);
            let txn = read(env);
            let at = cursor(txn, dbi);
            let mut seen = vec![go(at, Op::First).unwrap()];
            let renewed = |op| {
                unsafe {
                    mdb_txn_reset(txn);
                    assert_eq!(mdb_txn_renew(txn), OK);
                }
                go(at, op)
            };
            while let Ok(record) = renewed(Op::Next) {
                seen.push(record);
                assert!(seen.len() <= records.len(), "it goes round in circles");
            }
            let shown = |(key, value): &(Vec<u8>, Vec<u8>)| (key.clone(), value.clone());
            let expected: Vec<_> = records
                .iter()
                .map(|(key, value)| shown(&(key.to_vec(), value.to_vec())))
                .collect();
            assert_eq!(seen, expected);
            assert_eq!(renewed(Op::GetCurrent).unwrap(), expected[25], "at the end");
            assert_eq!(renewed(Op::Prev).unwrap(), expected[24]);
            abort(txn);
            unsafe { mdb_cursor_close(at) };
            close(env);
        });
    }
}

/// Between two steps somebody deletes the very record, and others around it.
#[test]
fn a_cursor_goes_on_behind_a_record_that_is_gone_when_its_transaction_is_renewed() {
    let folder = tempfile::tempdir().unwrap();
    let records: Vec<[u8; 1]> = (b'a'..=b'h').map(|letter| [letter]).collect();
    let records: Vec<(&[u8], &[u8])> = records.iter().map(|key| (&key[..], &b"v"[..])).collect();
    let (env, dbi) = with(folder.path(), 0, &records);
    let txn = read(env);
    let at = cursor(txn, dbi);
    let remove = |key: &[u8]| {
        let txn = write(env);
        assert_eq!(delete(txn, dbi, key), OK);
        commit(txn);
    };
    let renew = || unsafe {
        mdb_txn_reset(txn);
        assert_eq!(mdb_txn_renew(txn), OK);
    };
    assert_eq!(set(at, Op::SetRange, b"c").unwrap(), b"v");
    unsafe { mdb_txn_reset(txn) };
    remove(b"c");
    assert_eq!(unsafe { mdb_txn_renew(txn) }, OK);
    renew();
    assert_eq!(go(at, Op::Next).unwrap().0, b"d", "not b, not e");
    unsafe { mdb_txn_reset(txn) };
    remove(b"d");
    assert_eq!(unsafe { mdb_txn_renew(txn) }, OK);
    renew();
    assert_eq!(go(at, Op::Prev).unwrap().0, b"b");
    // A cursor outlives its transaction, and can be renewed for another one.
    abort(txn);
    assert_eq!(go(at, Op::Next), Err(libc::EINVAL));
    let other = read(env);
    assert_eq!(unsafe { mdb_cursor_renew(other, at) }, OK);
    assert_eq!(go(at, Op::Next).unwrap().0, b"a");
    unsafe { mdb_cursor_close(at) };
    abort(other);
    close(env);
}

/// After a movement to one value, `MDB_NEXT_MULTIPLE` shows all that lie together with the next one. Programs that read
/// a key's values so come from any of these.
#[test]
fn many_values_are_shown_after_whatever_movement() {
    let words: Vec<[u8; 8]> = (0_u64..3000).map(u64::to_be_bytes).collect();
    let of = |key: &[u8], count: usize| (key.to_vec(), words[..count].to_vec());
    let keys = [
        of(b"a", 1),
        of(b"b", 5),
        of(b"c", 3000),
        of(b"d", 1),
        of(b"e", 2),
    ];
    beside_the_original(|| {
        let folder = tempfile::tempdir().unwrap();
        let pairs = keys
            .iter()
            .flat_map(|(key, words)| words.iter().map(|word| (&key[..], &word[..])));
        let (env, dbi) = with(folder.path(), FIXED, &pairs.collect::<Vec<_>>());
        let txn = read(env);
        let rest = |at| {
            let mut shown = Vec::new();
            loop {
                match go(at, Op::NextMultiple) {
                    Ok((_, piece)) => shown.extend(piece),
                    Err(code) => {
                        assert_eq!(code, Code::NOTFOUND.0);
                        return shown;
                    }
                }
            }
        };
        for (n, (key, words)) in keys.iter().enumerate() {
            // A single value is none of several.
            let expected = if words.len() > 1 {
                words.concat()
            } else {
                Vec::new()
            };
            for op in [Op::Set, Op::SetKey, Op::SetRange] {
                let at = cursor(txn, dbi);
                assert_eq!(set(at, op, key).unwrap(), words[0]);
                assert_eq!(rest(at), expected, "{op:?} {key:?}");
                unsafe { mdb_cursor_close(at) };
            }
            let at = cursor(txn, dbi);
            for _ in 0..=n {
                assert!(go(at, Op::NextNodup).is_ok());
            }
            assert_eq!(rest(at), expected, "NEXT_NODUP {key:?}");
            assert_eq!(go(at, Op::LastDup).unwrap().1, words[words.len() - 1]);
            assert!(rest(at).is_empty());
            if n == 0 {
                assert_eq!(go(at, Op::First).unwrap().1, words[0]);
                assert!(rest(at).is_empty());
                assert_eq!(go(at, Op::Next).unwrap().0, keys[1].0);
                assert_eq!(rest(at), keys[1].1.concat(), "NEXT to the next key");
                assert_eq!(go(at, Op::Next).unwrap().0, keys[2].0);
                // The second value of the key: the piece that it is in comes whole.
                assert_eq!(go(at, Op::Next).unwrap().1, self::bytes(val(&keys[2].1[1])));
                assert_eq!(rest(at), keys[2].1.concat(), "NEXT to the next value");
            }
            unsafe { mdb_cursor_close(at) };
        }
        let at = cursor(txn, dbi);
        assert!(rest(at).is_empty(), "the first key has one value");
        assert_eq!(set(at, Op::Set, b"c").unwrap(), words[0]);
        let piece = go(at, Op::GetMultiple).unwrap().1;
        assert_eq!([piece, rest(at)].concat(), words.concat());
        unsafe { mdb_cursor_close(at) };
        abort(txn);
        close(env);
    });
}

/// A program's key stays its own where the cursor stays at the key.
#[test]
fn keys_are_left_alone_by_movements_within_one() {
    beside_the_original(|| {
        let folder = tempfile::tempdir().unwrap();
        let records: [(&[u8], &[u8]); 4] = [(b"a", b"1"), (b"b", b"1"), (b"b", b"2"), (b"b", b"3")];
        let (env, dbi) = with(folder.path(), FIXED, &records);
        let txn = read(env);
        let at = cursor(txn, dbi);
        let shown = |op: Op| {
            let mine = b"mine";
            let (mut key, mut value) = (val(mine), empty());
            let code = unsafe { mdb_cursor_get(at, &mut key, &mut value, op as u32) };
            assert_eq!(code, OK, "{op:?}");
            (bytes(key), bytes(value))
        };
        assert_eq!(set(at, Op::Set, b"b").unwrap(), b"1");
        assert_eq!(shown(Op::LastDup), (b"mine".to_vec(), b"3".to_vec()));
        assert_eq!(shown(Op::FirstDup), (b"mine".to_vec(), b"1".to_vec()));
        assert_eq!(shown(Op::GetMultiple), (b"mine".to_vec(), b"123".to_vec()));
        assert_eq!(shown(Op::GetCurrent), (b"b".to_vec(), b"3".to_vec()));
        // Of a single value the key is shown.
        assert_eq!(set(at, Op::Set, b"a").unwrap(), b"1");
        assert_eq!(shown(Op::LastDup), (b"a".to_vec(), b"1".to_vec()));
        assert_eq!(shown(Op::FirstDup), (b"a".to_vec(), b"1".to_vec()));
        unsafe { mdb_cursor_close(at) };
        abort(txn);
        close(env);
    });
}

/// How many records fit before the first `MDB_MAP_FULL`, each in a transaction of its own, or all in one.
fn fill(folder: &Path, map_bytes: Option<usize>, value: &[u8], in_one: bool) -> u32 {
    unsafe {
        let mut env = null_mut();
        assert_eq!(mdb_env_create(&mut env), OK);
        if let Some(bytes) = map_bytes {
            assert_eq!(mdb_env_set_mapsize(env, bytes), OK);
        }
        let path = c_path(folder);
        assert_eq!(
            mdb_env_open(env, path.as_ptr(), env_flags::NOSYNC, 0o600),
            OK
        );
        let mut txn = write(env);
        let mut dbi = 0;
        assert_eq!(mdb_dbi_open(txn, null(), 0, &mut dbi), OK);
        let mut stored = 0_u32;
        loop {
            let mut code = put(txn, dbi, &stored.to_be_bytes(), value, 0);
            if code == OK && !in_one {
                code = mdb_txn_commit(txn);
                txn = null_mut();
            }
            if code != OK {
                assert_eq!(code, Code::MAP_FULL.0);
                break;
            }
            stored += 1;
            assert!(stored < 1_000_000, "no bound");
            if txn.is_null() {
                txn = write(env);
            }
        }
        if !txn.is_null() {
            abort(txn);
        }
        close(env);
        stored
    }
}

/// Programs make a map as large as what they know they will store, or wait for `MDB_MAP_FULL` to make it larger.
#[test]
fn a_small_map_is_full_when_the_originals_is() {
    let expected = std::cell::RefCell::new(Vec::new());
    beside_the_original(|| {
        let mut counts = Vec::new();
        for map_bytes in [
            None,
            Some(1),
            Some(1 << 14),
            Some(24 << 10),
            Some(1 << 16),
            Some(1 << 17),
        ] {
            for value in [20, 1000, 10_000] {
                for in_one in [true, false] {
                    // Near the bound commits become slow; so many show nothing that fewer do not.
                    if !in_one && map_bytes.is_none() && value == 20 {
                        continue;
                    }
                    let folder = tempfile::tempdir().unwrap();
                    let stored = fill(folder.path(), map_bytes, &vec![7; value], in_one);
                    counts.push((map_bytes, value, in_one, stored));
                }
            }
        }
        if !is_ours() {
            *expected.borrow_mut() = counts;
            return;
        }
        // A few pages more or less, which are kept or used again at another time.
        for ((map_bytes, value, in_one, original), ours) in expected.borrow().iter().zip(counts) {
            let of_pages = |pages: u32| pages * 4096 / (*value as u32 + 12);
            let least = (original * 9 / 10).saturating_sub(of_pages(1));
            let most = original * 9 / 8 + of_pages(5) + 1;
            assert!(
                (least..=most).contains(&ours.3),
                "{map_bytes:?} {value} {in_one}: {} and not {original}",
                ours.3
            );
        }
    });
}

/// Programs' tests count pages: so many commits succeed, and the one that does not is refused as a whole.
#[test]
fn maps_of_few_pages_let_as_many_commits_pass_as_the_originals() {
    beside_the_original(|| {
        for (pages, passes) in [(8, 1), (9, 1), (10, 2)] {
            let folder = tempfile::tempdir().unwrap();
            let env = try_open(folder.path(), 0, pages * 4096).unwrap();
            let txn = write(env);
            let dbi = database(txn, c"d", CREATE).unwrap();
            commit(txn);
            for round in 0..2_u8 {
                let txn = write(env);
                let mut puts = (0..64).map(|n| put(txn, dbi, &[round * 64 + n], b"world", 0));
                let code = match puts.find(|&code| code != OK) {
                    Some(code) => {
                        abort(txn);
                        code
                    }
                    None => unsafe { mdb_txn_commit(txn) },
                };
                let expected = if round < passes { OK } else { Code::MAP_FULL.0 };
                assert_eq!(code, expected, "commit {round} to {pages} pages");
            }
            close(env);
        }
    });
}

#[test]
fn the_default_map_has_one_mebibyte() {
    beside_the_original(|| unsafe {
        let folder = tempfile::tempdir().unwrap();
        let mut env = null_mut();
        assert_eq!(mdb_env_create(&mut env), OK);
        let path = c_path(folder.path());
        assert_eq!(mdb_env_open(env, path.as_ptr(), 0, 0o600), OK);
        let mut info: EnvInfo = std::mem::zeroed();
        assert_eq!(mdb_env_info(env, &mut info), OK);
        assert_eq!(info.mapsize, MIB);
        close(env);
    });
}

/// `lmdb.h` forbids it, LMDB lets it pass, and programs do it: room for the first value of a key.
#[test]
fn room_can_be_reserved_where_a_key_may_have_several_values() {
    beside_the_original(|| {
        let folder = tempfile::tempdir().unwrap();
        let (env, dbi) = with(folder.path(), db_flags::DUPSORT, &[]);
        let txn = write(env);
        let mut room = val(b"12345");
        let reserved = unsafe {
            let code = mdb_put(txn, dbi, &mut val(b"k"), &mut room, write_flags::RESERVE);
            if code == OK {
                room.data.cast::<u8>().copy_from(b"ABCDE".as_ptr(), 5);
            }
            code
        };
        assert_eq!((reserved, room.size), (OK, 5));
        assert_eq!(get(txn, dbi, b"k").unwrap(), b"ABCDE");
        assert_eq!(put(txn, dbi, b"k", b"AB", 0), OK);
        commit(txn);
        let txn = read(env);
        let at = cursor(txn, dbi);
        assert_eq!(go(at, Op::Next).unwrap().1, b"AB");
        assert_eq!(go(at, Op::Next).unwrap().1, b"ABCDE");
        unsafe { mdb_cursor_close(at) };
        abort(txn);
        close(env);
    });
}

fn store(env: *mut Env, key: &[u8]) -> c_int {
    let txn = write(env);
    let dbi = database(txn, c"d", CREATE).unwrap();
    assert_eq!(put(txn, dbi, key, b"v", 0), OK);
    unsafe { mdb_txn_commit(txn) }
}

fn has(env: *mut Env, key: &[u8]) -> bool {
    let txn = read(env);
    let found = database(txn, c"d", 0).and_then(|dbi| get(txn, dbi, key));
    abort(txn);
    found.is_ok()
}

/// Programs, their tests above all, remove the files that they know of, and begin anew.
#[test]
fn a_path_is_opened_anew_after_its_files_were_deleted() {
    for (flags, names) in [
        (0, ["data.mdb", "lock.mdb"]),
        (env_flags::NOSUBDIR, ["file", "file-lock"]),
    ] {
        for is_closed in [true, false] {
            beside_the_original(|| {
                let folder = tempfile::tempdir().unwrap();
                let path = match flags {
                    0 => folder.path().to_owned(),
                    _ => folder.path().join("file"),
                };
                let env = try_open(&path, flags, 16 * MIB).unwrap();
                assert_eq!(store(env, b"old"), OK);
                if is_closed {
                    close(env);
                }
                for name in names {
                    fs::remove_file(folder.path().join(name)).unwrap();
                }
                let new = try_open(&path, flags, 16 * MIB).unwrap();
                assert!(!has(new, b"old"), "the old environment is still there");
                assert_eq!(store(new, b"new"), OK);
                if !is_closed {
                    // Whatever becomes of what is written to deleted files, it harms nobody.
                    if let Ok(txn) = begin(env, null_mut(), 0) {
                        let dbi = database(txn, c"d", CREATE).unwrap();
                        put(txn, dbi, b"more", b"v", 0);
                        unsafe { mdb_txn_commit(txn) };
                    }
                    close(env);
                }
                assert_eq!(store(new, b"newer"), OK);
                close(new);
                let new = try_open(&path, flags, 16 * MIB).unwrap();
                assert!(has(new, b"new") && has(new, b"newer"));
                assert!(!has(new, b"old") && !has(new, b"more"));
                close(new);
            });
        }
    }
}

#[test]
fn a_lock_file_that_nobody_uses_takes_no_room() {
    let bytes = |folder: &Path| fs::metadata(folder.join("lock.mdb")).unwrap().len();
    beside_the_original(|| {
        let folder = tempfile::tempdir().unwrap();
        for _ in 0..2 {
            let env = open(folder.path());
            assert_eq!(store(env, b"k"), OK);
            close(env);
            assert!(bytes(folder.path()) <= 8192, "{}", bytes(folder.path()));
        }
        let env = open(folder.path());
        assert!(has(env, b"k"));
        close(env);
    });
}

/// With `MDB_WRITEMAP`, what a write transaction reads can be written to, and is stored with it. LMDB_File does so.
#[test]
fn values_read_from_a_writable_map_can_be_written_to() {
    beside_the_original(|| {
        let folder = tempfile::tempdir().unwrap();
        let env = try_open(folder.path(), env_flags::WRITEMAP, 16 * MIB).unwrap();
        let txn = write(env);
        let dbi = database(txn, c"d", CREATE).unwrap();
        for n in 0_u8..100 {
            assert_eq!(put(txn, dbi, &[n], &[n; 100], 0), OK);
        }
        assert_eq!(put(txn, dbi, b"large", &[1; 20_000], 0), OK);
        commit(txn);
        let scribble = |value: lmdb::Val, byte: u8| unsafe {
            value.data.cast::<u8>().write(byte);
            value.data.cast::<u8>().add(value.size - 1).write(byte);
        };
        let txn = write(env);
        for key in [&[5][..], b"large"] {
            let mut value = empty();
            assert_eq!(unsafe { mdb_get(txn, dbi, &mut val(key), &mut value) }, OK);
            scribble(value, b'!');
            let seen = get(txn, dbi, key).unwrap();
            assert_eq!(
                (seen[0], seen[1], seen[seen.len() - 1]),
                (b'!', seen[2], b'!')
            );
        }
        let at = cursor(txn, dbi);
        let mut value = empty();
        let code = unsafe { mdb_cursor_get(at, &mut val(&[7]), &mut value, Op::SetRange as u32) };
        assert_eq!(code, OK);
        scribble(value, b'?');
        assert_eq!(go(at, Op::GetCurrent).unwrap().1[0], b'?');
        assert_eq!(put(txn, dbi, &[8], b"put", 0), OK);
        assert_eq!(get(txn, dbi, &[7]).unwrap()[99], b'?');
        commit(txn);
        let txn = read(env);
        for (key, byte) in [(&[5][..], b'!'), (b"large", b'!'), (&[7], b'?')] {
            let seen = get(txn, dbi, key).unwrap();
            assert_eq!((seen[0], seen[seen.len() - 1]), (byte, byte), "{key:?}");
            assert!(seen[1..seen.len() - 1].iter().all(|&byte| byte == seen[1]));
        }
        assert_eq!(get(txn, dbi, &[6]).unwrap(), [6; 100]);
        abort(txn);
        close(env);
    });
}

/// A value as large as LMDB's default map lets it be; and then written to where it lies, which needs no room there.
#[test]
fn a_value_that_fills_the_map_can_be_written_to() {
    beside_the_original(|| unsafe {
        let folder = tempfile::tempdir().unwrap();
        let open = |flags: u32| {
            let mut env = null_mut();
            assert_eq!(mdb_env_create(&mut env), OK);
            let path = c_path(folder.path());
            assert_eq!(mdb_env_open(env, path.as_ptr(), flags, 0o600), OK);
            env
        };
        let mut main = 0;
        let env = open(0);
        let txn = write(env);
        assert_eq!(mdb_dbi_open(txn, null(), 0, &mut main), OK);
        assert_eq!(put(txn, main, b"k", &vec![b'v'; 1_000_000], 0), OK);
        commit(txn);
        close(env);
        let env = open(env_flags::WRITEMAP);
        let txn = write(env);
        assert_eq!(mdb_dbi_open(txn, null(), 0, &mut main), OK);
        let mut value = empty();
        assert_eq!(mdb_get(txn, main, &mut val(b"k"), &mut value), OK);
        value.data.cast::<u8>().add(500_000).write(b'!');
        commit(txn);
        let txn = read(env);
        assert_eq!(get(txn, main, b"k").unwrap()[500_000], b'!');
        abort(txn);
        let txn = write(env);
        assert_eq!(put(txn, main, b"l", &[1; 500], 0), OK);
        commit(txn);
        close(env);
    });
}

/// An aborted transaction takes back what was written into its values. (In LMDB it may stay.)
#[test]
fn what_was_written_into_values_is_aborted_with_the_transaction() {
    let folder = tempfile::tempdir().unwrap();
    let env = try_open(folder.path(), env_flags::WRITEMAP, 16 * MIB).unwrap();
    assert_eq!(store(env, b"k"), OK);
    let txn = write(env);
    let dbi = database(txn, c"d", 0).unwrap();
    let mut value = empty();
    assert_eq!(unsafe { mdb_get(txn, dbi, &mut val(b"k"), &mut value) }, OK);
    unsafe { value.data.cast::<u8>().write(b'x') };
    abort(txn);
    let txn = read(env);
    assert_eq!(get(txn, dbi, b"k").unwrap(), b"v");
    abort(txn);
    close(env);
}

/// The lists of `midl.h`, whose functions LMDB's library shows.
#[test]
fn lists_of_numbers_are_kept_as_the_original_keeps_them() {
    beside_the_original(|| unsafe {
        let all = |ids: *mut usize| std::slice::from_raw_parts(ids.add(1), *ids).to_vec();
        let room = |ids: *mut usize| *ids.sub(1);
        let mut ids = mdb_midl_alloc(4);
        assert_eq!((room(ids), *ids), (4, 0));
        assert_eq!(mdb_midl_search(ids, 5), 1);
        for n in [7, 3, 9, 1] {
            assert_eq!(mdb_midl_append(&mut ids, n), OK);
        }
        assert_eq!(room(ids), 4);
        assert_eq!(mdb_midl_append(&mut ids, 5), OK);
        assert_eq!(room(ids), 4 + 131_071);
        mdb_midl_sort(ids);
        assert_eq!(all(ids), [9, 7, 5, 3, 1]);
        let found = [10, 9, 8, 5, 2, 1, 0].map(|n| mdb_midl_search(ids, n));
        assert_eq!(found, [1, 1, 2, 3, 5, 5, 6]);
        assert_eq!(mdb_midl_append_range(&mut ids, 20, 4), OK);
        assert_eq!(all(ids), [9, 7, 5, 3, 1, 23, 22, 21, 20]);
        mdb_midl_sort(ids);
        let mut other = mdb_midl_alloc(1);
        for n in [30, 22, 8, 0] {
            assert_eq!(mdb_midl_append(&mut other, n), OK);
        }
        mdb_midl_xmerge(ids, other);
        assert_eq!(all(ids), [30, 23, 22, 22, 21, 20, 9, 8, 7, 5, 3, 1, 0]);
        assert_eq!(mdb_midl_append_list(&mut ids, other), OK);
        assert_eq!(*ids, 17);
        assert_eq!(mdb_midl_need(&mut other, 1000), OK);
        assert_eq!(room(other), 4 + 131_071 - 3, "it has enough");
        mdb_midl_shrink(&mut ids);
        assert_eq!((room(ids), *ids), (131_071, 17));
        let mut small = mdb_midl_alloc(2);
        assert_eq!(mdb_midl_need(&mut small, 1000), OK);
        assert_eq!(room(small), 1278);
        assert_eq!(mdb_midl_append_range(&mut small, 1, 2000), OK);
        assert_eq!((room(small), *small), (1278 + (2000 | 131_071), 2000));
        for ids in [ids, other, small, null_mut()] {
            mdb_midl_free(ids);
        }

        let pair = |id, pointer: usize| Pair {
            id,
            pointer: pointer as *mut c_void,
        };
        let mut list = vec![pair(0, 0); 131_072];
        let pairs = list.as_mut_ptr();
        assert_eq!(mdb_mid2l_search(pairs, 5), 1);
        for (id, answer) in [(5, 0), (2, 0), (9, 0), (5, -1), (7, 0)] {
            assert_eq!(mdb_mid2l_insert(pairs, &pair(id, id * 100)), answer);
        }
        assert_eq!(mdb_mid2l_append(pairs, &pair(11, 0)), 0);
        let ids: Vec<_> = list[..6].iter().map(|pair| pair.id).collect();
        assert_eq!(ids, [5, 2, 5, 7, 9, 11]);
        assert_eq!(list[3].pointer as usize, 700);
        let found = [1, 2, 6, 12].map(|id| mdb_mid2l_search(list.as_mut_ptr(), id));
        assert_eq!(found, [1, 1, 3, 6]);
        list[0].id = 131_071;
        assert_eq!(mdb_mid2l_append(list.as_mut_ptr(), &pair(1, 0)), -2);
    });
}
