//! `sapwood store` on environments that a program has made by `liblmdb`, beside that program and after it.

// A C program, in Rust.
#![allow(unsafe_code, clippy::undocumented_unsafe_blocks)]
#![allow(clippy::unwrap_used)]

#[path = "../crates/lmdb-abi/tests/program/mod.rs"]
mod program;

use std::fs;
use std::path::{Path, PathBuf};

use lmdb::Env;
use lmdb::values::env_flags;
use program::*;
use sapwood_testkit::program::{sapwood, sapwood_ok, text};

fn store(args: &[&str]) -> String {
    sapwood_ok([&["store"], args].concat())
}

fn sound(env: &str) {
    assert!(store(&["check", env]).contains("Nothing is wrong"));
}

/// Stores a record in the database `letters`.
fn add(env: *mut Env, key: &str, value: &str) {
    let txn = write(env);
    let dbi = database(txn, c"letters", CREATE).unwrap();
    assert_eq!(put(txn, dbi, key.as_bytes(), value.as_bytes(), 0), OK);
    commit(txn);
}

fn value(env: *mut Env, key: &str) -> Option<String> {
    let txn = read(env);
    let dbi = database(txn, c"letters", 0).unwrap();
    let found = get(txn, dbi, key.as_bytes());
    unsafe { mdb_txn_abort(txn) };
    found.ok().map(|bytes| text(&bytes))
}

fn close(env: *mut Env) {
    unsafe { mdb_env_close(env) };
}

/// The names of the files beside one, that of a lock apart.
fn names_beside(file: &Path) -> Vec<String> {
    let names = fs::read_dir(file.parent().unwrap()).unwrap();
    let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<_> = names.filter(|name| !name.contains("lock")).collect();
    names.sort();
    names
}

fn every_command_works(flags: u32) {
    let scratch = tempfile::tempdir().unwrap();
    let path = |name: &str| scratch.path().join(name);
    let arg = |name: &str| path(name).to_str().unwrap().to_owned();
    let is_file = flags & env_flags::NOSUBDIR != 0;
    fs::create_dir(path("place")).unwrap();
    let place = if is_file {
        path("place/file")
    } else {
        path("place")
    };
    let data = if is_file {
        place.clone()
    } else {
        place.join("data.mdb")
    };
    let at = place.to_str().unwrap();
    let open = |path: &Path| try_open(path, flags, 16 * MIB).unwrap();

    let env = open(&place);
    add(env, "a", "alpha");
    let look = || {
        assert!(store(&["stat", at]).contains("  dletters\n"));
        sound(at);
        // Their data file means the environment.
        sound(data.to_str().unwrap());
        let dumped = store(&["dump", at, "--tree", "dletters", "--print"]);
        assert!(dumped.contains("\n a\n alpha\n"), "{dumped}");
    };
    // Beside the program.
    look();
    let txn = read(env);
    let readers = store(&["readers", at]);
    let own = std::process::id().to_string();
    assert!(readers.contains(&own), "{readers}");
    unsafe { mdb_txn_abort(txn) };
    store(&["backup", at, &arg("full")]);
    add(env, "b", "beta");
    store(&["backup", at, &arg("increment"), "--since", &arg("full")]);
    for (name, more) in [("copy", &[][..]), ("compact copy", &["--compact"])] {
        store(&[&["copy", at, &arg(name)], more].concat());
        let copy = open(&path(name));
        assert_eq!(value(copy, "b").as_deref(), Some("beta"));
        close(copy);
    }
    close(env);

    // After it. Looking leaves a file alone if it stands alone.
    let before = names_beside(&data);
    look();
    assert_eq!(names_beside(&data), before);
    if is_file {
        assert_eq!(before, ["file"]);
        let lone = path("lone");
        fs::copy(&data, &lone).unwrap();
        let bytes = fs::read(&lone).unwrap();
        sound(lone.to_str().unwrap());
        assert_eq!(fs::read(&lone).unwrap(), bytes);
        assert!(!path("lone-lock").exists());
    }
    let restored = arg("restored");
    store(&[
        "restore",
        "--lmdb",
        &arg("full"),
        &arg("increment"),
        &restored,
    ]);
    let restored = try_open(Path::new(&restored), 0, 16 * MIB).unwrap();
    assert_eq!(value(restored, "a").as_deref(), Some("alpha"));
    assert_eq!(value(restored, "b").as_deref(), Some("beta"));
    close(restored);

    // What they write the program reads.
    let dump = "VERSION=3\nformat=print\ndatabase=dletters\ntype=btree\nwhole=1\nHEADER=END\n c\n gamma\nDATA=END\n";
    fs::write(path("dump"), dump).unwrap();
    assert!(store(&["load", at, "-f", &arg("dump")]).contains("1 records"));
    store(&["compact", at]);
    let env = open(&place);
    assert_eq!(value(env, "c").as_deref(), Some("gamma"));
    close(env);
    sound(at);
    assert_eq!(names_beside(&data), before);
}

#[test]
fn every_command_works_on_a_folder() {
    every_command_works(env_flags::NOSYNC);
}

#[test]
fn every_command_works_on_a_file() {
    every_command_works(env_flags::NOSYNC | env_flags::NOSUBDIR);
}

/// A program that takes no locks is alone while it writes.
#[test]
fn a_program_without_locks_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let place: PathBuf = folder.path().to_owned();
    let env = try_open(&place, env_flags::NOLOCK, MIB).unwrap();
    add(env, "a", "alpha");
    let output = sapwood(["store", "check", place.to_str().unwrap()]);
    let told = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1));
    assert!(told.contains("MDB_NOLOCK"), "{told}");
    close(env);
    sound(place.to_str().unwrap());
}
