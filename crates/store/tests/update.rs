//! Updates of many threads at once: each happens wholly or not at all, and is there when its thread goes on.
#![allow(clippy::unwrap_used)]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use sapwood_store::{Durability, Env, Error, LOG_BYTES_MIN, Options, TreeKind, WriteTxn};
use sapwood_wal::storage::Storage;
use sapwood_wal::storage::recording::{Disk, Fault};

const TREE: &str = "accounts";
const THREADS: u64 = 8;
const UPDATES: u64 = 60;
const SUM: &[u8] = b"sum";

/// What may go wrong in a work of these tests.
#[derive(Debug)]
enum Refusal {
    NotWanted(u64),
    Store(Error),
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        Self::Store(error)
    }
}

fn with_tree(env: &Env) {
    env.update(|txn| txn.create_tree(TREE, TreeKind::COMPACT))
        .unwrap();
}

fn add(txn: &mut WriteTxn, key: &[u8], amount: u64) -> Result<u64, Error> {
    let tree = txn.tree(TREE)?.ok_or(Error::NoSuchTree)?;
    let before = txn.get(tree, key)?.map_or(0, number_of);
    txn.put(tree, key, &(before + amount).to_le_bytes())?;
    Ok(before + amount)
}

fn number_of(value: &[u8]) -> u64 {
    u64::from_le_bytes(value[..8].try_into().unwrap())
}

fn get(env: &Env, key: &[u8]) -> u64 {
    let snapshot = env.read().unwrap();
    let tree = snapshot.tree(TREE).unwrap().unwrap();
    tree.get(key).unwrap().map_or(0, number_of)
}

fn assert_clean(env: &Env) {
    let report = env.check().unwrap();
    assert!(report.is_clean(), "{:?}", report.problems);
}

/// One update of a thread, of a kind that its number says.
fn update_once(env: &Env, thread: u64, update: u64) {
    let key = thread.to_be_bytes();
    let before = get(env, &key);
    match update % 10 {
        3 => {
            let result = env.update(|txn| {
                add(txn, &key, 1)?;
                add(txn, SUM, 1)?;
                let other = txn.create_tree("of nobody", TreeKind::COMPACT)?;
                txn.put(other, &key, &[1; 6000])?;
                Err::<(), _>(Refusal::NotWanted(update))
            });
            match result.unwrap_err() {
                Refusal::NotWanted(it) => assert_eq!(it, update),
                Refusal::Store(error) => panic!("{error}"),
            }
            assert_eq!(get(env, &key), before);
        }
        5 => {
            let work = |txn: &mut WriteTxn| -> Result<(), Error> {
                add(txn, &key, 1)?;
                panic!("not today");
            };
            let panic = catch_unwind(AssertUnwindSafe(|| env.update(work))).unwrap_err();
            assert_eq!(panic.downcast_ref(), Some(&"not today"));
            assert_eq!(get(env, &key), before);
        }
        7 => {
            // Without company this is the first one to be run; it is refused either way.
            let result = env.update(|txn| {
                let tree = txn.tree(TREE)?.ok_or(Error::NoSuchTree)?;
                let long = txn.put(tree, &[0; 5000], b"");
                assert!(matches!(long, Err(Error::KeyTooLong(_))), "{long:?}");
                add(txn, &key, 1)?;
                add(txn, SUM, 1)
            });
            result.unwrap();
            assert_eq!(get(env, &key), before + 1);
        }
        8 => {
            // Many pages, and a savepoint that is left lying around.
            env.update(|txn| {
                let tree = txn.tree(TREE)?.ok_or(Error::NoSuchTree)?;
                let _left: sapwood_store::Savepoint = txn.savepoint();
                for part in 0..30_u64 {
                    let record = [thread.to_be_bytes(), part.to_be_bytes()].concat();
                    txn.put(tree, &record, &vec![update as u8; 400 * part as usize])?;
                }
                add(txn, &key, 1)?;
                add(txn, SUM, 1)
            })
            .unwrap();
            assert_eq!(get(env, &key), before + 1);
        }
        9 if thread.is_multiple_of(2) => {
            // An ordinary writer.
            let mut txn = env.write().unwrap();
            add(&mut txn, &key, 1).unwrap();
            add(&mut txn, SUM, 1).unwrap();
            txn.commit().unwrap().wait_durable().unwrap();
            assert_eq!(get(env, &key), before + 1);
        }
        _ => {
            let after = env.update(|txn| {
                add(txn, SUM, 1)?;
                add(txn, &key, 1)
            });
            assert_eq!(after.unwrap(), before + 1);
            assert_eq!(get(env, &key), before + 1);
        }
    }
}

fn crowd(env: &Env) {
    with_tree(env);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            scope.spawn(move || (0..UPDATES).for_each(|update| update_once(env, thread, update)));
        }
    });
    let kept = (0..UPDATES).filter(|update| !matches!(update % 10, 3 | 5));
    let each = kept.count() as u64;
    assert_eq!(get(env, SUM), THREADS * each);
    for thread in 0..THREADS {
        assert_eq!(get(env, &thread.to_be_bytes()), each);
    }
    let snapshot = env.read().unwrap();
    assert!(snapshot.tree("of nobody").unwrap().is_none());
    assert_clean(env);
}

#[test]
fn updates_of_many_threads() {
    let folder = tempfile::tempdir().unwrap();
    crowd(&Env::open(folder.path(), &Options::new()).unwrap());
    assert_eq!(
        get(&Env::open(folder.path(), &Options::new()).unwrap(), SUM),
        THREADS * UPDATES * 8 / 10
    );
}

#[test]
fn updates_in_memory() {
    crowd(&Env::in_memory(&Options::new()).unwrap());
}

#[test]
fn updates_with_the_smallest_log() {
    let folder = tempfile::tempdir().unwrap();
    let options = Options::new().log_bytes(LOG_BYTES_MIN);
    crowd(&Env::open(folder.path(), &options.idle_checkpoint(None)).unwrap());
}

#[test]
fn updates_that_nobody_waits_for() {
    let folder = tempfile::tempdir().unwrap();
    let options = Options::new().durability(Durability::Relaxed);
    crowd(&Env::open(folder.path(), &options).unwrap());
}

/// The threads that come while one is busy share one commit.
#[test]
fn those_who_wait_share_a_commit() {
    let env = Env::in_memory(&Options::new()).unwrap();
    with_tree(&env);
    let before = env.read().unwrap().commit().0;
    let (is_running, may_end) = (AtomicBool::new(false), AtomicBool::new(false));
    let waiting = AtomicU64::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            env.update(|txn| {
                is_running.store(true, Ordering::SeqCst);
                while !may_end.load(Ordering::SeqCst) {
                    std::thread::yield_now();
                }
                add(txn, SUM, 1)
            })
            .unwrap()
        });
        while !is_running.load(Ordering::SeqCst) {
            std::thread::yield_now();
        }
        let (env, waiting) = (&env, &waiting);
        for _ in 0..20 {
            scope.spawn(|| {
                waiting.fetch_add(1, Ordering::SeqCst);
                env.update(|txn| add(txn, SUM, 1)).unwrap()
            });
        }
        while waiting.load(Ordering::SeqCst) < 20 {
            std::thread::yield_now();
        }
        may_end.store(true, Ordering::SeqCst);
    });
    assert_eq!(get(&env, SUM), 21);
    let commits = env.read().unwrap().commit().0 - before;
    assert!(commits < 21, "{commits} commits");
}

#[test]
fn an_update_within_an_update_is_refused() {
    let env = Env::in_memory(&Options::new().stores(2)).unwrap();
    with_tree(&env);
    let other = env.store(1).unwrap();
    env.update(|txn| {
        let nested = env.update(|_| Ok(()));
        assert!(matches!(nested, Err(Error::WithinUpdate)), "{nested:?}");
        let write = env.write();
        assert!(matches!(write, Err(Error::WithinUpdate)), "{write:?}");
        assert!(env.try_write()?.is_none());
        // Another store's are its own.
        other.update(|txn| txn.create_tree(TREE, TreeKind::COMPACT))?;
        add(txn, SUM, 1)
    })
    .unwrap();
    assert_eq!(get(&env, SUM), 1);
    env.update(|txn| add(txn, SUM, 1)).unwrap();
    assert_eq!(get(&other, SUM), 0);
}

/// Who ignores that an operation failed half way is told, and others are not concerned.
#[test]
fn what_failed_half_way_is_not_committed() {
    let env = Env::in_memory(&Options::new()).unwrap();
    with_tree(&env);
    env.set_bytes_max(40 * 4096);
    let fill = |txn: &mut WriteTxn| -> Result<(), Error> {
        let tree = txn.tree(TREE)?.ok_or(Error::NoSuchTree)?;
        for n in 0..1000_u32 {
            if txn.put(tree, &n.to_be_bytes(), &[1; 1500]).is_err() {
                return Ok(());
            }
        }
        unreachable!("there is no room for so much")
    };
    let refused = env.update(fill);
    assert!(matches!(refused, Err(Error::TxnFailed)), "{refused:?}");
    std::thread::scope(|scope| {
        for thread in 0..6 {
            let env = &env;
            scope.spawn(move || match thread % 2 {
                0 => {
                    let refused = env.update(fill);
                    assert!(matches!(refused, Err(Error::TxnFailed)), "{refused:?}");
                }
                _ => drop(env.update(|txn| add(txn, SUM, 1)).unwrap()),
            });
        }
    });
    assert_eq!(get(&env, SUM), 3);
    assert_clean(&env);
}

#[test]
fn nothing_is_updated_where_only_reading_is_allowed() {
    let folder = tempfile::tempdir().unwrap();
    drop(Env::open(folder.path(), &Options::new()).unwrap());
    let env = Env::open(folder.path(), &Options::new().read_only(true)).unwrap();
    let refused = env.update(|_| -> Result<(), Error> { unreachable!("not run") });
    assert!(matches!(refused, Err(Error::ReadOnly)), "{refused:?}");
}

/// Whatever call to the system fails while many update: who was told of success finds the update, and who was told of failure may go on once
/// the environment was opened anew.
#[test]
fn a_failing_disk_is_told_to_all() {
    for nth in (0..60).step_by(3) {
        for (fault, lasting) in [
            (Fault::Io, false),
            (Fault::Io, true),
            (Fault::NoSpace, true),
        ] {
            let disk = Disk::new();
            let storage: Arc<dyn Storage> = Arc::new(disk.clone());
            let env = Env::on_storage(storage, &Options::new().idle_checkpoint(None)).unwrap();
            with_tree(&env);
            disk.fail(nth, fault, lasting);
            let told = AtomicU64::new(0);
            let failed = AtomicU64::new(0);
            std::thread::scope(|scope| {
                for thread in 0..THREADS {
                    let (env, told, failed) = (&env, &told, &failed);
                    scope.spawn(move || {
                        for _ in 0..6 {
                            let work = |txn: &mut WriteTxn| {
                                add(txn, SUM, 1)?;
                                add(txn, &thread.to_be_bytes(), 1)
                            };
                            match env.update(work) {
                                Ok(_) => told.fetch_add(1, Ordering::SeqCst),
                                Err(_) => failed.fetch_add(1, Ordering::SeqCst),
                            };
                        }
                    });
                }
            });
            disk.heal();
            drop(env);
            let disk = Disk::from_image(&disk.synced_image()).unwrap();
            let env = Env::on_storage(Arc::new(disk), &Options::new()).unwrap();
            let (told, failed) = (told.into_inner(), failed.into_inner());
            assert_eq!(told + failed, THREADS * 6);
            let sum = get(&env, SUM);
            assert!((told..=told + failed).contains(&sum), "{sum}, {told} told");
            let each = (0..THREADS).map(|thread| get(&env, &thread.to_be_bytes()));
            assert_eq!(each.sum::<u64>(), sum);
            assert_clean(&env);
        }
    }
}
