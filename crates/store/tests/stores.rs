//! Several stores in one environment: each with a writer of its own, transactions and snapshots over all of them.

#![allow(clippy::unwrap_used)]

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use sapwood_store::{
    BulkLoad, CommitNo, Env, Error, Options, Restore, Snapshot, TreeKind, WriteTxn,
};

fn options(stores: u16) -> Options {
    Options::new().log_bytes(1 << 20).stores(stores)
}

fn put(txn: &mut WriteTxn, key: &[u8], value: &[u8]) {
    let tree = match txn.tree("t").unwrap() {
        Some(tree) => tree,
        None => txn.create_tree("t", TreeKind::COMPACT).unwrap(),
    };
    txn.put(tree, key, value).unwrap();
}

fn get(snapshot: &Snapshot, key: &[u8]) -> Option<Vec<u8>> {
    let tree = snapshot.tree("t").unwrap()?;
    tree.get(key).unwrap().map(<[u8]>::to_vec)
}

fn number(snapshot: &Snapshot) -> u64 {
    get(snapshot, b"number").map_or(0, |bytes| u64::from_be_bytes(bytes.try_into().unwrap()))
}

#[test]
fn each_store_is_one_of_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let elsewhere = tempfile::tempdir().unwrap();
    let options = options(3).store_folder(2, elsewhere.path());
    let env = Env::open(folder.path(), &options).unwrap();
    assert_eq!(env.stores(), 3);
    assert!(env.store(3).is_none());
    let stores: Vec<Env> = (0..3).map(|number| env.store(number).unwrap()).collect();
    // All have a writer at the same time.
    let mut txns: Vec<WriteTxn> = stores.iter().map(|store| store.write().unwrap()).collect();
    assert!(stores[1].try_write().unwrap().is_none());
    for (n, txn) in txns.iter_mut().enumerate() {
        put(txn, b"key", &[n as u8]);
    }
    for txn in txns.into_iter().rev() {
        txn.commit().unwrap().wait_durable().unwrap();
    }
    drop((env, stores));
    assert!(folder.path().join("data-1").exists());
    assert!(elsewhere.path().join("data-2").exists());

    // Their number is kept; where they are has to be said.
    let error = Env::open(folder.path(), &self::options(1)).unwrap_err();
    assert!(error.to_string().contains("data-2"), "{error}");
    let env = Env::open(folder.path(), &options.clone().stores(1)).unwrap();
    for (n, snapshot) in env.read_stores().unwrap().iter().enumerate() {
        assert_eq!(get(snapshot, b"key"), Some(vec![n as u8]));
    }
}

#[test]
fn another_store_in_the_place_of_one_is_refused() {
    let folders = [(); 2].map(|()| tempfile::tempdir().unwrap());
    for folder in &folders {
        drop(Env::open(folder.path(), &options(3)).unwrap());
    }
    let path = |folder: usize, name: &str| folders[folder].path().join(name);
    let mine = std::fs::read(path(0, "data-1")).unwrap();
    std::fs::copy(path(1, "data-1"), path(0, "data-1")).unwrap();
    assert!(matches!(
        Env::open(folders[0].path(), &options(3)),
        Err(Error::Damaged(_))
    ));
    std::fs::copy(path(0, "data-2"), path(0, "data-1")).unwrap();
    assert!(matches!(
        Env::open(folders[0].path(), &options(3)),
        Err(Error::Damaged(_))
    ));
    std::fs::write(path(0, "data-1"), mine).unwrap();
    Env::open(folders[0].path(), &options(3)).unwrap();
}

#[test]
fn a_multi_store_transaction_is_seen_wholly_or_not() {
    for in_memory in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let env = if in_memory {
            Env::in_memory(&options(3)).unwrap()
        } else {
            Env::open(folder.path(), &options(3)).unwrap()
        };
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for stores in [[0, 1], [1, 2]] {
                let (env, done) = (&env, &done);
                scope.spawn(move || {
                    for _ in 0..300 {
                        let mut txn = env.write_stores(&stores).unwrap();
                        for number in stores {
                            let key = format!("{stores:?}");
                            let part = txn.store(number).unwrap();
                            let count = part.commit_no().0;
                            put(part, key.as_bytes(), &count.to_be_bytes());
                            let sum = match part.tree("t").unwrap() {
                                Some(tree) => part.get(tree, b"number").unwrap(),
                                None => None,
                            };
                            let sum =
                                sum.map_or(0, |sum| u64::from_be_bytes(sum.try_into().unwrap()));
                            put(part, b"number", &(sum + 1).to_be_bytes());
                        }
                        txn.commit().unwrap().wait_durable().unwrap();
                    }
                    done.store(true, Ordering::Relaxed);
                });
            }
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    let snapshots = env.read_stores().unwrap();
                    let [first, second, third] = [0, 1, 2].map(|at| number(&snapshots[at]));
                    assert_eq!(first + third, second);
                }
            });
        });
        let snapshots = env.read_stores().unwrap();
        assert_eq!(number(&snapshots[1]), 600);
    }
}

#[test]
fn what_is_asked_of_stores_that_are_not_there_is_refused() {
    let env = Env::in_memory(&options(2)).unwrap();
    assert!(matches!(
        env.write_stores(&[0, 2]),
        Err(Error::NoSuchStore(2))
    ));
    let mut txn = env.write_stores(&[1]).unwrap();
    assert!(matches!(txn.store(0), Err(Error::NoSuchStore(0))));
    drop(txn);
    // Nothing has changed, so there is no commit.
    let ticket = env.write_stores(&[0, 1]).unwrap().commit().unwrap();
    ticket.wait_durable().unwrap();
    assert_eq!(ticket.tickets()[0].commit(), env.read().unwrap().commit());
}

#[test]
fn a_busy_store_does_not_wait_for_a_resting_one() {
    for idle in [None, Some(Duration::from_millis(20))] {
        let folder = tempfile::tempdir().unwrap();
        let options = options(2).idle_checkpoint(idle);
        let env = Env::open(folder.path(), &options).unwrap();
        let resting = env.store(1).unwrap();
        let mut txn = resting.write().unwrap();
        put(&mut txn, b"key", b"value");
        txn.commit().unwrap().wait_durable().unwrap();
        // Many times the log.
        for n in 0..600_u32 {
            let mut txn = env.write().unwrap();
            put(&mut txn, &n.to_be_bytes(), &[7; 12_000]);
            drop(txn.commit().unwrap());
        }
        let stat = env.stat().unwrap();
        assert!(stat.log_bytes_ever > 5 << 20);
        drop((env, resting));
        let env = Env::open(folder.path(), &options).unwrap();
        let snapshots = env.read_stores().unwrap();
        assert_eq!(get(&snapshots[1], b"key").unwrap(), b"value");
        assert_eq!(
            snapshots[0].tree("t").unwrap().unwrap().record().records,
            600
        );
    }
}

#[test]
fn transactions_begun_one_by_one_are_committed_together() {
    let folder = tempfile::tempdir().unwrap();
    let env = Env::open(folder.path(), &options(3)).unwrap();
    let stores: Vec<Env> = (0..3).map(|number| env.store(number).unwrap()).collect();
    let mut txns: Vec<WriteTxn> = stores.iter().map(|store| store.write().unwrap()).collect();
    for txn in &mut txns {
        put(txn, b"key", b"one");
    }
    txns.reverse();
    let ticket = WriteTxn::commit_stores(txns).unwrap();
    ticket.wait_durable().unwrap();
    assert!(ticket.is_durable());

    // Bulk loads have no log record of their pages.
    let mut loads: Vec<_> = stores.iter().map(|store| store.bulk().unwrap()).collect();
    for load in &mut loads {
        let mut tree = load.tree("bulk", TreeKind::COMPACT).unwrap();
        for n in 0..5000_u32 {
            tree.push(load, &n.to_be_bytes(), &[1; 100]).unwrap();
        }
        tree.finish(load).unwrap();
    }
    let syncs = env.stat().unwrap().log_syncs;
    BulkLoad::commit_stores(loads).unwrap();
    assert_eq!(env.stat().unwrap().log_syncs, syncs + 1);
    for (store, snapshot) in stores.iter().zip(env.read_stores().unwrap()) {
        assert_eq!(get(&snapshot, b"key").unwrap(), b"one");
        let tree = snapshot.tree("bulk").unwrap().unwrap();
        assert_eq!(tree.record().records, 5000);
        assert!(store.check().unwrap().is_clean());
    }

    let other = Env::in_memory(&options(1)).unwrap();
    let foreign = vec![other.write().unwrap(), stores[1].write().unwrap()];
    assert!(matches!(
        WriteTxn::commit_stores(foreign),
        Err(Error::ForeignTxn)
    ));
}

fn restore_stores(backup: &Path, dest: &Path) -> sapwood_store::Result<Vec<CommitNo>> {
    Restore::of(backup).into_folder(dest)
}

#[test]
fn a_backup_of_all_stores_is_of_one_moment() {
    let folder = tempfile::tempdir().unwrap();
    let env = Env::open(folder.path().join("env"), &options(3)).unwrap();
    let path = |name: &str| folder.path().join(name);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                let mut txn = env.write_stores(&[0, 1, 2]).unwrap();
                for store in 0..3 {
                    let part = txn.store(store).unwrap();
                    let count = part.commit_no().0;
                    put(part, b"number", &count.to_be_bytes());
                    put(part, &count.to_be_bytes(), &[store as u8; 200]);
                }
                txn.commit().unwrap().wait_durable().unwrap();
            }
        });
        for round in 0..3 {
            let backup = path(&format!("backup {round}"));
            let commits = env.backup_stores(&backup).unwrap();
            assert_eq!(commits.len(), 3);
            let restored = path(&format!("restored {round}"));
            assert_eq!(restore_stores(&backup, &restored).unwrap(), commits);
            for env in [
                Env::open(&restored, &options(1)).unwrap(),
                Env::in_memory_from(&backup, &options(1)).unwrap(),
            ] {
                assert_eq!(env.stores(), 3);
                let numbers: Vec<u64> = env.read_stores().unwrap().iter().map(number).collect();
                assert!(numbers.iter().all(|n| *n == numbers[0]), "{numbers:?}");
                let mut txn = env.write_stores(&[0, 2]).unwrap();
                put(txn.store(2).unwrap(), b"goes", b"on");
                put(txn.store(0).unwrap(), b"goes", b"on");
                txn.commit().unwrap().wait_durable().unwrap();
            }
            // Each file is a backup of its store, too.
            let one = path(&format!("one {round}"));
            sapwood_store::restore(backup.join("data-1"), &one).unwrap();
            let one = Env::open(&one, &options(1)).unwrap();
            assert_eq!(one.stores(), 1);
            assert!(number(&one.read().unwrap()) > 0 || commits[1].0 == 1);
            let increment = path(&format!("increment {round}"));
            let store = env.store(1).unwrap();
            store
                .backup_since(backup.join("data-1"), &increment)
                .unwrap();
            let again = path(&format!("again {round}"));
            let commits_again = Restore::of(backup.join("data-1"))
                .increment(&increment)
                .into_folder(&again);
            assert!(commits_again.unwrap()[0] >= commits[1]);
            // And so are increments of all of them, of one moment again.
            let (first, second) = (
                path(&format!("first {round}")),
                path(&format!("second {round}")),
            );
            env.backup_stores_since(&backup, &first).unwrap();
            let commits = env.backup_stores_since(&first, &second).unwrap();
            let whole = path(&format!("whole {round}"));
            let restore = Restore::of(&backup).increment(&first).increment(&second);
            assert_eq!(restore.into_folder(&whole).unwrap(), commits);
            let whole = Env::open(&whole, &options(1)).unwrap();
            let numbers: Vec<u64> = whole.read_stores().unwrap().iter().map(number).collect();
            assert!(numbers.iter().all(|n| *n == numbers[0]), "{numbers:?}");
            assert!((0..3).all(|n| whole.store(n).unwrap().check().unwrap().is_clean()));
            let skipped = Restore::of(&backup)
                .increment(&second)
                .into_folder(path("skipped"));
            assert!(matches!(skipped, Err(Error::NotTheBase(_))), "{skipped:?}");
            std::fs::remove_dir(path("skipped")).unwrap();
        }
        done.store(true, Ordering::Relaxed);
    });
    // What one store has changed since a backup of all, and all of them without what is free.
    let store = env.store(2).unwrap();
    let increment = path("since all");
    store.backup_since(path("backup 1"), &increment).unwrap();
    let alone = Restore::of(path("backup 1/data-2")).increment(increment);
    let alone = alone.into_folder(path("alone")).unwrap();
    assert_eq!(alone, [store.read().unwrap().commit()]);
    let compacted = path("compacted");
    let commits = env.backup_stores_compacted(&compacted).unwrap();
    let small = path("small");
    assert_eq!(restore_stores(&compacted, &small).unwrap(), commits);
    let small = Env::open(&small, &options(1)).unwrap();
    let snapshots = env.read_stores().unwrap();
    for (n, snapshot) in small.read_stores().unwrap().iter().enumerate() {
        assert_eq!(number(snapshot), number(&snapshots[n]));
        let report = small.store(n).unwrap().check().unwrap();
        assert!(report.is_clean() && report.pages_free == 0);
    }
    let error = env
        .backup_stores_since(&compacted, path("since compacted"))
        .unwrap_err();
    assert!(matches!(error, Error::NotTheBase(_)), "{error}");
    assert_eq!(
        std::fs::read_dir(path("since compacted")).unwrap().count(),
        0
    );
    // Not the other way round, and not without one of them.
    std::fs::copy(path("backup 0/data-1"), path("backup 0/data-2")).unwrap();
    let error = restore_stores(&path("backup 0"), &path("wrong"));
    assert!(matches!(error, Err(Error::Damaged(_))), "{error:?}");
    std::fs::remove_file(path("backup 0/data-2")).unwrap();
    assert!(restore_stores(&path("backup 0"), &path("missing")).is_err());
    assert!(!path("missing/data-0").exists());
}

#[test]
fn stores_stand_alone_when_they_are_closed() {
    let folder = tempfile::tempdir().unwrap();
    let options = options(3).alone_when_closed(true);
    for round in 0_u64..4 {
        let env = Env::open(folder.path(), &options).unwrap();
        let numbers: Vec<u64> = env.read_stores().unwrap().iter().map(number).collect();
        assert_eq!(numbers, [round; 3]);
        let mut txn = env.write_stores(&[0, 1, 2]).unwrap();
        for store in 0..3 {
            let part = txn.store(store).unwrap();
            put(part, b"number", &(round + 1).to_be_bytes());
        }
        txn.commit().unwrap().wait_durable().unwrap();
        let kept = (round == 2).then(|| env.read().unwrap());
        drop(env);
        let names = std::fs::read_dir(folder.path()).unwrap();
        let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<String> = names.collect();
        names.sort();
        if kept.is_some() {
            assert!(
                names.contains(&"log.0".to_owned()),
                "it is open still: {names:?}"
            );
        } else {
            assert_eq!(names, ["data-0", "data-1", "data-2", "lock"]);
        }
    }
    assert!(
        Restore::of(folder.path())
            .into_folder(folder.path().join("copy"))
            .is_ok()
    );
}

#[test]
fn two_restores_of_one_backup_are_not_taken_for_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let env = Env::open(path("env"), &options(1)).unwrap();
    env.backup(path("backup")).unwrap();
    let restored = ["one", "other"].map(|name| {
        sapwood_store::restore(path("backup"), path(name)).unwrap();
        let env = Env::open(path(name), &options(1)).unwrap();
        let mut txn = env.write().unwrap();
        put(&mut txn, b"name", name.as_bytes());
        txn.commit().unwrap().wait_durable().unwrap();
        env.backup(path(&format!("backup of {name}"))).unwrap();
        env
    });
    let since = |of: usize, base: &str, dest: &str| {
        restored[of].backup_since(path(base), path(dest)).map(drop)
    };
    since(0, "backup of one", "increment").unwrap();
    let error = since(0, "backup of other", "refused");
    assert!(matches!(error, Err(Error::NotTheBase(_))), "{error:?}");
}

const ROLE: &str = "SAPWOOD_TEST_STORES";

/// Another process: counts in several stores for ever, or opens with more stores.
#[test]
fn child() {
    let Ok(folder) = std::env::var(ROLE) else {
        return;
    };
    assert!(matches!(
        Env::open(&folder, &options(4)),
        Err(Error::StoresFixed(3))
    ));
    let env = Env::open(&folder, &options(3)).unwrap();
    loop {
        let count = number(&env.read().unwrap()) + 1;
        let mut txn = env.write_stores(&[0, 1, 2]).unwrap();
        for store in 0..3 {
            let part = txn.store(store).unwrap();
            put(part, b"number", &count.to_be_bytes());
            put(part, &count.to_be_bytes(), &[count as u8; 300]);
        }
        txn.commit().unwrap().wait_durable().unwrap();
        println!("acknowledged {count}");
    }
}

#[test]
fn multi_store_transactions_survive_their_processes() {
    let folder = tempfile::tempdir().unwrap();
    let env = Env::open(folder.path(), &options(3)).unwrap();
    for round in 0..25_u64 {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["child", "--exact", "--nocapture"])
            .env(ROLE, folder.path())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut acknowledged = 0;
        for line in lines.map_while(Result::ok) {
            if let Some(count) = line.strip_prefix("acknowledged ") {
                acknowledged = count.parse().unwrap();
                if acknowledged % (5 + round) == 0 {
                    child.kill().unwrap();
                }
            }
        }
        child.wait().unwrap();
        // A writer that inherits from it sees all that it had acknowledged, everywhere.
        let mut txn = env.store((round % 3) as usize).unwrap().write().unwrap();
        put(&mut txn, b"round", &round.to_be_bytes());
        txn.commit().unwrap().wait_durable().unwrap();
        let numbers: Vec<u64> = env.read_stores().unwrap().iter().map(number).collect();
        assert!(numbers.iter().all(|n| *n == numbers[0]), "{numbers:?}");
        assert!(numbers[0] >= acknowledged, "{numbers:?}, {acknowledged}");
    }
    for store in 0..3 {
        assert!(env.store(store).unwrap().check().unwrap().is_clean());
    }
}
