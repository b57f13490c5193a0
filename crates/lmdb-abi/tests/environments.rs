//! What C programs rely on about environments: their files, sizes, handles, readers and copies.

// A C program, in Rust.
#![allow(unsafe_code, clippy::undocumented_unsafe_blocks)]
#![allow(clippy::unwrap_used)]

mod program;

use std::ffi::{CStr, c_char, c_int, c_void};
use std::fs;
use std::os::fd::AsRawFd;
use std::ptr::{null, null_mut};

use lmdb::values::{CursorOp as Op, db_flags, env_flags};
use lmdb::{Code, Env, EnvInfo, MdbTxn as Txn, Stat, Val};

use program::*;

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
    let txn = write(env);
    let db = database(txn, c"kept", CREATE).unwrap();
    assert_eq!(put(txn, db, b"k", b"v", 0), OK);
    commit(txn);
    unsafe { mdb_env_close(env) };
    // The file stands alone: it can be moved like any other, and goes on where it is.
    let names = fs::read_dir(folder.path()).unwrap();
    let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut single: Vec<_> = names.filter(|name| name.starts_with("single")).collect();
    single.sort();
    assert_eq!(single, ["single.db", "single.db-lock"]);
    let moved = folder.path().join("moved.db");
    fs::rename(&file, &moved).unwrap();
    for value in [b"v", b"w", b"x"] {
        let env = try_open(&moved, env_flags::NOSUBDIR, 16 * MIB).unwrap();
        let txn = write(env);
        let db = database(txn, c"kept", 0).unwrap();
        assert_eq!(get(txn, db, b"k").unwrap(), value);
        assert_eq!(put(txn, db, b"k", &[value[0] + 1], 0), OK);
        commit(txn);
        unsafe { mdb_env_close(env) };
    }

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
