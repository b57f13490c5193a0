//! Updates of several threads survive power cuts: each that was acknowledged is there, and none is half there.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use sapwood_wal::storage::Storage;
use sapwood_wal::storage::recording::Disk;

use crate::env::Env;
use crate::error::Error;
use crate::guard::{Guard, Guards};
use crate::options::{LOG_BYTES_MIN, Options};
use crate::tree::TreeKind;
use crate::write::WriteTxn;

const TREE: &str = "numbers";
const THREADS: u64 = 4;
const UPDATES: u64 = 12;
const SUM: &[u8] = b"sum";

fn open(disk: &Disk, guards: Guards) -> Result<Env, Error> {
    let storage: Arc<dyn Storage> = Arc::new(disk.clone());
    let mut options = Options::new()
        .log_bytes(8 * LOG_BYTES_MIN)
        .idle_checkpoint(None);
    options.guards = guards;
    Env::on_storage(storage, &options)
}

fn number(txn: &mut WriteTxn, key: &[u8]) -> Result<u64, Error> {
    let tree = txn.tree(TREE)?.ok_or(Error::NoSuchTree)?;
    let value = txn.get(tree, key)?;
    Ok(value.map_or(0, |value| u64::from_le_bytes(value.try_into().unwrap())))
}

/// Counts one more for a thread, and in the sum of all; or gives up in the middle.
fn count(env: &Env, thread: u64, gives_up: bool) -> Result<u64, Error> {
    env.update(|txn| {
        let key = thread.to_be_bytes();
        let tree = txn.tree(TREE)?.ok_or(Error::NoSuchTree)?;
        let own = number(txn, &key)? + 1;
        txn.put(tree, &key, &own.to_le_bytes())?;
        if gives_up {
            return Err(Error::NoRecord);
        }
        let sum = number(txn, SUM)? + 1;
        txn.put(tree, SUM, &sum.to_le_bytes())?;
        Ok(own)
    })
}

/// What the disk has seen when threads have updated at the same time. Each notes its number and how far it was told to have come.
fn live(guards: Guards) -> Disk {
    let disk = Disk::new();
    let env = open(&disk, guards).unwrap();
    env.update(|txn| txn.create_tree(TREE, TreeKind::COMPACT))
        .unwrap();
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (env, disk) = (&env, &disk);
            scope.spawn(move || {
                for update in 1..=UPDATES {
                    if update % 5 == thread {
                        let gave_up = count(env, thread, true);
                        assert!(matches!(gave_up, Err(Error::NoRecord)), "{gave_up:?}");
                    }
                    assert_eq!(count(env, thread, false).unwrap(), update);
                    disk.note(thread << 32 | update);
                }
            });
        }
    });
    disk
}

/// Compares what is there after a power cut with what was acknowledged before.
fn compare(env: &Env, notes: &[u64]) -> Result<(), String> {
    let report = env.check().unwrap();
    if !report.is_clean() {
        return Err(report.problems.join(", "));
    }
    let snapshot = env.read().unwrap();
    let Some(tree) = snapshot.tree(TREE).unwrap() else {
        return match notes {
            [] => Ok(()),
            _ => Err("the tree is gone".into()),
        };
    };
    let get = |key: &[u8]| {
        let value = tree.get(key).unwrap();
        value.map_or(0, |value| u64::from_le_bytes(value.try_into().unwrap()))
    };
    let mut sum = 0;
    for thread in 0..THREADS {
        let found = get(&thread.to_be_bytes());
        let its = notes.iter().filter(|note| **note >> 32 == thread);
        let acknowledged = its.map(|note| note & 0xffff_ffff).max().unwrap_or(0);
        if found < acknowledged {
            return Err(format!("thread {thread}: {found} of {acknowledged}"));
        }
        sum += found;
    }
    if get(SUM) != sum {
        return Err(format!("a sum of {} and not {sum}", get(SUM)));
    }
    Ok(())
}

fn suite(guards: Guards, seeds: u64) -> Result<(), String> {
    for seed in 0..seeds {
        let disk = live(guards);
        for crash in disk.crashes(seed, 60) {
            let image = Disk::from_image(crash.image()).unwrap();
            let env = open(&image, Guards::default()).map_err(|error| error.to_string())?;
            compare(&env, crash.notes()).map_err(|error| format!("{crash}: {error}"))?;
        }
    }
    Ok(())
}

#[test]
fn acknowledged_updates_survive_a_power_cut() {
    suite(Guards::default(), 6).unwrap();
}

#[test]
fn updates_are_lost_without_a_sync() {
    assert!(suite(Guards::without(Guard::SyncLog), 50).is_err());
}
