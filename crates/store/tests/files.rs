//! Environments under other names, with other permissions, without a lock file, and of bounded size.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::os::unix::fs::PermissionsExt;

use sapwood_store::{Env, Error, FileNames, LOG_BYTES_MIN, Options, TreeKind};

fn options() -> Options {
    Options::new().log_bytes(LOG_BYTES_MIN)
}

fn named(name: &str) -> Options {
    let names = FileNames::new(name, format!("{name}-lock"), format!("{name}-log"));
    options().names(names.unwrap())
}

fn store(env: &Env, key: &[u8]) {
    let mut txn = env.write().unwrap();
    let tree = match txn.tree("t").unwrap() {
        Some(tree) => tree,
        None => txn.create_tree("t", TreeKind::default()).unwrap(),
    };
    txn.put(tree, key, b"value").unwrap();
    txn.commit().unwrap().wait_durable().unwrap();
}

fn holds(env: &Env, key: &[u8]) -> bool {
    let snapshot = env.read().unwrap();
    let tree = snapshot.tree("t").unwrap();
    tree.is_some_and(|tree| tree.get(key).unwrap().is_some())
}

#[test]
fn two_environments_live_in_one_folder() {
    let folder = tempfile::tempdir().unwrap();
    let open = |name: &str| Env::open(folder.path(), &named(name)).unwrap();
    let (a, b) = (open("a"), open("b"));
    store(&a, b"in a");
    store(&b, b"in b");
    assert!(holds(&open("a"), b"in a") && !holds(&open("a"), b"in b"));
    drop((a, b));
    assert!(holds(&open("b"), b"in b") && !holds(&open("b"), b"in a"));
    for file in ["a", "a-lock", "b", "b-lock"] {
        assert!(folder.path().join(file).is_file(), "{file}");
    }
}

#[test]
fn names_are_plain_and_differ() {
    for [data, lock, log] in [
        ["", "b", "c"],
        ["a", "x/b", "c"],
        ["a", "a", "c"],
        ["a", "b", "b"],
        // Names of other stores, and of those that are not complete.
        ["a-0", "a-63", "c"],
        ["a", "a-1", "c"],
        ["a-0", "a-1.new", "c"],
        // Segments of the log.
        ["log.3", "b", "log"],
        ["a", "log.12", "log"],
        ["a", "log.0.new", "log"],
        ["log.0-0", "log.0-1", "log"],
    ] {
        assert!(FileNames::new(data, lock, log).is_err());
    }
    for [data, lock, log] in [
        ["log-0", "log.lock", "log"],
        ["a", "a-64", "a.log"],
        ["data.mdb", "lock.mdb", "log.mdb"],
    ] {
        assert!(FileNames::new(data, lock, log).is_ok());
    }
}

#[test]
fn an_empty_file_is_no_data_if_so_wanted() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("a"), b"").unwrap();
    assert!(matches!(
        Env::open(folder.path(), &named("a")),
        Err(Error::Damaged(_))
    ));
    store(
        &Env::open(folder.path(), &named("a").over_empty(true)).unwrap(),
        b"k",
    );
    assert!(holds(
        &Env::open(folder.path(), &named("a").create(false)).unwrap(),
        b"k"
    ));
}

#[test]
fn new_files_get_the_permissions_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    store(
        &Env::open(folder.path(), &named("a").permissions(0o640)).unwrap(),
        b"k",
    );
    for entry in fs::read_dir(folder.path()).unwrap() {
        let entry = entry.unwrap();
        let mode = entry.metadata().unwrap().permissions().mode();
        // Whatever the umask takes away, nobody else may read, and the owner may.
        assert_eq!(mode & 0o607, 0o600, "{:?}", entry.file_name());
    }
}

#[test]
fn alone_there_is_no_lock_file() {
    let folder = tempfile::tempdir().unwrap();
    let env = Env::open(folder.path(), &named("a").shared(false)).unwrap();
    store(&env, b"k");
    drop(env);
    assert!(!folder.path().join("a-lock").exists());
    assert!(holds(&Env::open(folder.path(), &named("a")).unwrap(), b"k"));
}

/// The one that opens it next writes its lock region anew; nobody is to be kept from that by what others still use.
#[test]
fn the_last_to_close_an_environment_empties_its_lock_file() {
    let folder = tempfile::tempdir().unwrap();
    let bytes = || fs::metadata(folder.path().join("a-lock")).unwrap().len();
    for _ in 0..2 {
        let env = Env::open(folder.path(), &named("a")).unwrap();
        store(&env, b"k");
        let snapshot = env.read().unwrap();
        drop(env);
        assert!(bytes() > 0, "a snapshot still looks at it");
        assert!(snapshot.tree("t").unwrap().is_some());
        drop(snapshot);
        drop(Env::open(folder.path(), &named("a")).unwrap());
        assert_eq!(bytes(), 0);
    }
}

/// What was open before can be read, but harms nobody who has its name now.
#[test]
fn an_environment_whose_files_were_deleted_is_opened_anew() {
    let folder = tempfile::tempdir().unwrap();
    let open = || Env::open(folder.path(), &named("a").alone_when_closed(true)).unwrap();
    let old = open();
    store(&old, b"old");
    for file in ["a", "a-lock"] {
        fs::remove_file(folder.path().join(file)).unwrap();
    }
    let new = open();
    assert!(!holds(&new, b"old"));
    store(&new, b"new");
    assert!(holds(&old, b"old"));
    assert!(matches!(
        old.sync().and(old.write().map(drop)),
        Err(Error::Poisoned)
    ));
    drop(old);
    store(&new, b"newer");
    assert!(new.check().unwrap().problems.is_empty());
    drop(new);
    let new = open();
    assert!(holds(&new, b"new") && holds(&new, b"newer"));
}

#[test]
fn a_bounded_store_refuses_to_grow_and_lets_delete() {
    const BYTES_MAX: u64 = 2 << 20;
    let folder = tempfile::tempdir().unwrap();
    let env = Env::open(folder.path(), &options()).unwrap();
    env.set_bytes_max(BYTES_MAX);
    let mut stored = 0_u32;
    let full = loop {
        let mut txn = env.write().unwrap();
        let tree = match txn.tree("t").unwrap() {
            Some(tree) => tree,
            None => txn.create_tree("t", TreeKind::default()).unwrap(),
        };
        let put = (stored..stored + 20).try_for_each(|n| {
            txn.put(tree, &n.to_be_bytes(), &[7; 1500])?;
            Ok::<_, Error>(())
        });
        if let Err(error) = put {
            assert!(matches!(txn.commit(), Err(Error::TxnFailed)));
            break error;
        }
        txn.commit().unwrap().wait_durable().unwrap();
        stored += 20;
        assert!(stored < 10_000, "no bound");
    };
    assert!(matches!(full, Error::StoreFull(512)), "{full:?}");
    assert!(stored > 600, "{stored}");

    for n in 0..stored {
        let mut txn = env.write().unwrap();
        let tree = txn.tree("t").unwrap().unwrap();
        assert!(txn.delete(tree, &n.to_be_bytes()).unwrap());
        txn.commit().unwrap().wait_durable().unwrap();
        assert!(env.stat().unwrap().pages <= BYTES_MAX / 4096);
    }
    assert!(env.check().unwrap().problems.is_empty());
    assert_eq!(env.clear_dead_readers().unwrap(), 0);
}
