//! Several processes with one environment: opened by many at once, read while another writes, and left by the dead.
//!
//! The other processes are this test program again, with [`child`] as the only test.

// A C program, in Rust.
#![allow(unsafe_code, clippy::undocumented_unsafe_blocks)]
#![allow(clippy::unwrap_used)]

mod program;

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::ptr::null_mut;

use lmdb::values::env_flags::{NOLOCK, NOSYNC, RDONLY};
use lmdb::{Env, MdbTxn as Txn, Val};
use sapwood_testkit::children::{self, Child, command, mounted, pause, play};

use program::*;

const OK: c_int = 0;
const MAIN: u32 = 1;
const ON_A_READ_ONLY_MEDIUM: &str = "on a read-only medium";
const WITHOUT_LOCKS: &str = "without locks";
const READ_WITHOUT_LOCKS: &str = "read without locks";

fn open(folder: &Path, flags: u32) -> *mut Env {
    try_open(folder, flags).unwrap()
}

fn try_open(folder: &Path, flags: u32) -> Result<*mut Env, c_int> {
    let path = CString::new(folder.to_str().unwrap()).unwrap();
    let mut env = null_mut();
    unsafe {
        assert_eq!(mdb_env_create(&mut env), OK);
        match mdb_env_open(env, path.as_ptr(), flags, 0o600) {
            OK => Ok(env),
            code => {
                mdb_env_close(env);
                Err(code)
            }
        }
    }
}

fn begin(env: *mut Env, flags: u32) -> *mut Txn {
    let mut txn = null_mut();
    assert_eq!(
        unsafe { mdb_txn_begin(env, null_mut(), flags, &mut txn) },
        OK
    );
    txn
}

fn val(bytes: &[u8]) -> Val {
    Val {
        size: bytes.len(),
        data: bytes.as_ptr().cast_mut().cast(),
    }
}

fn put(env: *mut Env, key: &[u8]) {
    let txn = begin(env, 0);
    unsafe {
        assert_eq!(mdb_put(txn, MAIN, &mut val(key), &mut val(b"v"), 0), OK);
        assert_eq!(mdb_txn_commit(txn), OK);
    }
}

fn has(env: *mut Env, key: &[u8]) -> bool {
    let txn = begin(env, RDONLY);
    let found = unsafe { mdb_get(txn, MAIN, &mut val(key), &mut val(b"")) };
    unsafe { mdb_txn_abort(txn) };
    found == OK
}

/// What another process does.
#[test]
fn child() {
    let Some((role, folder)) = children::role() else {
        return;
    };
    if role == ON_A_READ_ONLY_MEDIUM {
        let file = folder.join("new");
        assert!(fs::write(file, b"").is_err(), "it can be written to");
        let env = open(&folder, RDONLY);
        assert!(has(env, b"k"));
        let mut txn = null_mut();
        let begun = unsafe { mdb_txn_begin(env, null_mut(), 0, &mut txn) };
        assert_eq!(begun, libc::EACCES);
        unsafe { mdb_env_close(env) };
        return;
    }
    if role == WITHOUT_LOCKS {
        let env = open(&folder, NOLOCK);
        assert!(has(env, b"first"));
        put(env, b"second");
        unsafe { mdb_env_close(env) };
        let env = open(&folder, NOLOCK | RDONLY);
        assert!(has(env, b"second"));
        unsafe { mdb_env_close(env) };
        return;
    }
    let flags = match role.as_str() {
        READ_WITHOUT_LOCKS => NOLOCK | RDONLY,
        _ => NOSYNC,
    };
    let env = open(&folder, flags);
    match role.as_str() {
        READ_WITHOUT_LOCKS => assert!(has(env, b"first")),
        "read" => {
            begin(env, RDONLY);
        }
        "write" => {
            let txn = begin(env, 0);
            let (mut key, mut value) = (val(b"half"), val(b"v"));
            assert_eq!(unsafe { mdb_put(txn, MAIN, &mut key, &mut value, 0) }, OK);
        }
        key => {
            put(env, key.as_bytes());
            unsafe { mdb_env_close(env) };
            return;
        }
    }
    pause();
}

/// A process that has come as far as it should.
fn paused(role: &str, folder: &Path) -> Child {
    let mut child = Child::start(&mut command(role, folder));
    child.wait();
    child
}

#[test]
fn many_processes_open_a_new_environment_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let keys: Vec<String> = (0..32).map(|n| format!("process {n}")).collect();
    let start = |key: &String| Child::start(&mut command(key, folder.path()));
    let children: Vec<Child> = keys.iter().map(start).collect();
    for child in children {
        assert!(child.end().success());
    }
    let env = open(folder.path(), NOSYNC);
    for key in &keys {
        assert!(has(env, key.as_bytes()), "{key}");
    }
    unsafe { mdb_env_close(env) };
}

#[test]
fn a_reader_reads_what_another_process_writes() {
    let folder = tempfile::tempdir().unwrap();
    let env = open(folder.path(), NOSYNC);
    put(env, b"before");
    play("between", folder.path());
    assert!(has(env, b"before") && has(env, b"between"));
    unsafe { mdb_env_close(env) };

    let env = open(folder.path(), RDONLY);
    let mut txn = null_mut();
    assert_eq!(
        unsafe { mdb_txn_begin(env, null_mut(), 0, &mut txn) },
        libc::EACCES
    );
    play("after", folder.path());
    assert!(has(env, b"after"));
    unsafe { mdb_env_close(env) };
}

unsafe extern "C" fn count(_line: *const c_char, lines: *mut c_void) -> c_int {
    unsafe { *lines.cast::<usize>() += 1 };
    0
}

#[test]
fn a_dead_reader_is_found_and_cleared() {
    let folder = tempfile::tempdir().unwrap();
    let env = open(folder.path(), NOSYNC);
    put(env, b"k");
    let child = paused("read", folder.path());
    let lines = || {
        let mut lines = 0_usize;
        unsafe { mdb_reader_list(env, Some(count), (&raw mut lines).cast()) };
        lines
    };
    let check = || {
        let mut dead = -1;
        assert_eq!(unsafe { mdb_reader_check(env, &mut dead) }, OK);
        dead
    };
    assert_eq!((lines(), check()), (2, 0), "a heading and a reader");
    child.kill();
    assert_eq!(check(), 1);
    assert_eq!((lines(), check()), (1, 0), "no readers");
    unsafe { mdb_env_close(env) };
}

#[test]
fn the_lock_of_a_dead_writer_is_taken_over() {
    let folder = tempfile::tempdir().unwrap();
    let env = open(folder.path(), NOSYNC);
    put(env, b"k");
    let child = paused("write", folder.path());
    child.kill();
    put(env, b"after");
    assert!(has(env, b"k") && has(env, b"after") && !has(env, b"half"));
    unsafe { mdb_env_close(env) };
}

unsafe extern "C" fn is_no_reader(line: *const c_char, _context: *mut c_void) -> c_int {
    let line = unsafe { CStr::from_ptr(line) };
    assert_eq!(line, c"(no reader locks)\n");
    0
}

/// With `MDB_NOLOCK` it is the programs that see to it that one writes at a time.
#[test]
fn programs_without_locks_take_turns() {
    let folder = tempfile::tempdir().unwrap();
    let lock_file = folder.path().join("lock.mdb");
    unsafe { mdb_env_close(open(folder.path(), NOLOCK)) };
    assert!(!lock_file.exists());
    unsafe { mdb_env_close(open(folder.path(), 0)) };
    assert!(lock_file.exists());
    for flags in [NOLOCK, NOLOCK | RDONLY] {
        let env = open(folder.path(), flags);
        if flags & RDONLY == 0 {
            put(env, b"first");
        }
        play(WITHOUT_LOCKS, folder.path());
        let readers: Vec<_> = (0..200).map(|_| begin(env, RDONLY)).collect();
        assert!(has(env, b"second"));
        assert_eq!(
            unsafe { mdb_reader_list(env, Some(is_no_reader), null_mut()) },
            OK
        );
        for txn in readers {
            unsafe { mdb_txn_abort(txn) };
        }
        unsafe { mdb_env_close(env) };
    }
}

/// Where this process is not let into folders that it made unwritable.
#[test]
fn without_a_lock_file_readers_share_what_stands_still() {
    let folder = tempfile::tempdir().unwrap();
    let env = open(folder.path(), 0);
    put(env, b"first");
    unsafe { mdb_env_close(env) };
    fs::remove_file(folder.path().join("lock.mdb")).unwrap();
    let permissions = |mode| fs::set_permissions(folder.path(), fs::Permissions::from_mode(mode));
    permissions(0o500).unwrap();
    if fs::write(folder.path().join("new"), b"").is_ok() {
        eprintln!("left out: permissions mean nothing to this process");
        return;
    }
    let readers = [(); 3].map(|()| open(folder.path(), NOLOCK | RDONLY));
    let other = paused(READ_WITHOUT_LOCKS, folder.path());
    assert!(readers.iter().all(|env| has(*env, b"first")));
    other.kill();
    for env in readers {
        unsafe { mdb_env_close(env) };
    }
    assert_eq!(try_open(folder.path(), RDONLY).err(), Some(libc::EACCES));
    permissions(0o700).unwrap();
}

/// Where this process may mount one.
#[test]
fn a_read_only_medium_is_read() {
    const READ_ONLY: &str = "mount --bind \"$0\" \"$0\" && mount -o remount,ro,bind \"$0\"";
    let folder = tempfile::tempdir().unwrap();
    let env = open(folder.path(), 0);
    put(env, b"k");
    unsafe { mdb_env_close(env) };
    let read = command(ON_A_READ_ONLY_MEDIUM, folder.path());
    if let Some(mut read) = mounted(READ_ONLY, folder.path(), &read) {
        assert!(Child::start(&mut read).end().success());
    }
}
