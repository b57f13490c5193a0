//! Group commit under a model checker, which runs it in many orders that real threads would hardly ever take.
//!
//! `RUSTFLAGS="--cfg shuttle" cargo test -p sapwood-wal --lib model` runs only these: nothing else works outside of the
//! checker then.

#![allow(clippy::unwrap_used)]

use std::io::IoSlice;
use std::sync::Arc;

use shuttle::sync::Mutex;
use shuttle::thread;

use crate::guard::{Guard, Guards};
use crate::storage::recording::{Disk, Fault};
use crate::storage::{OpenMode, Storage};
use crate::{Error, LogId, Lsn, Options, Position, Shared, Wal};

const SMALL: Options = Options {
    segment_bytes: 8192,
    segments: 2,
};
const THREADS: u8 = 3;
const RECORDS: u8 = 2;
const SCHEDULES: usize = 3000;

fn new_log(disk: &Disk, guards: Guards) -> Wal {
    let storage: Arc<dyn Storage> = Arc::new(disk.clone());
    Wal::create(&storage, "log", LogId([0; 16]), &SMALL).unwrap();
    let shared = Arc::new(Shared::default());
    let log = Wal::open_with(&storage, "log", OpenMode::Write, shared, guards).unwrap();
    let mut records = log.records(Position::START).unwrap();
    assert!(records.next().unwrap().is_none());
    log.start(Lsn(0), &records).unwrap();
    drop(records);
    log
}

/// Whether a record with this payload is durable.
fn is_on_disk(disk: &Disk, payload: [u8; 2]) -> bool {
    let storage: Arc<dyn Storage> = Arc::new(Disk::from_image(&disk.synced_image()).unwrap());
    let shared = Arc::new(Shared::default());
    let log = Wal::open(&storage, "log", OpenMode::Read, shared).unwrap();
    let mut records = log.records(Position::START).unwrap();
    while let Some(record) = records.next().unwrap() {
        if record.payload == payload {
            return true;
        }
    }
    false
}

/// Several threads append in turn and wait for their own records.
fn acknowledged_means_durable(guards: Guards) {
    let disk = Disk::new();
    let log = Arc::new(new_log(&disk, guards));
    let writer = Arc::new(Mutex::new(()));
    let threads: Vec<_> = (0..THREADS)
        .map(|thread| {
            let (log, writer, disk) = (log.clone(), writer.clone(), disk.clone());
            thread::spawn(move || {
                for number in 0..RECORDS {
                    let payload = [thread, number];
                    let guard = writer.lock().unwrap();
                    let end = log.append(&[IoSlice::new(&payload)]).unwrap();
                    drop(guard);
                    thread::yield_now();
                    log.sync_to(end.lsn).unwrap();
                    assert!(is_on_disk(&disk, payload), "acknowledged but not durable");
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    assert_eq!(log.durable(), log.end());
}

/// The only sync there is fails. Any of the threads may lead it.
fn a_failure_is_known_to_all() {
    let disk = Disk::new();
    let log = Arc::new(new_log(&disk, Guards::default()));
    let ends: Vec<_> = (0..THREADS)
        .map(|number| log.append(&[IoSlice::new(&[number])]).unwrap())
        .collect();
    disk.fail(0, Fault::Io, false);
    let threads: Vec<_> = ends
        .into_iter()
        .map(|end| {
            let log = log.clone();
            thread::spawn(move || log.sync_to(end.lsn))
        })
        .collect();
    let answers: Vec<_> = threads
        .into_iter()
        .map(|thread| thread.join().unwrap())
        .collect();
    let failed = |answer: &&Result<(), Error>| matches!(answer, Err(Error::Io { .. }));
    assert_eq!(answers.iter().filter(failed).count(), 1);
    assert!(answers.iter().all(Result::is_err));
}

#[test]
fn acknowledged_means_durable_in_any_order() {
    shuttle::check_random(|| acknowledged_means_durable(Guards::default()), SCHEDULES);
    shuttle::check_pct(
        || acknowledged_means_durable(Guards::default()),
        SCHEDULES,
        4,
    );
}

#[test]
fn a_failure_is_known_to_all_in_any_order() {
    shuttle::check_random(a_failure_is_known_to_all, SCHEDULES);
    shuttle::check_pct(a_failure_is_known_to_all, SCHEDULES, 4);
}

#[test]
#[should_panic(expected = "acknowledged but not durable")]
fn the_model_fails_without_a_sync() {
    let guards = Guards::without(Guard::SyncRecords);
    shuttle::check_random(move || acknowledged_means_durable(guards), SCHEDULES);
}

#[test]
#[should_panic(expected = "deadlock")]
fn the_model_fails_when_nobody_is_woken() {
    let guards = Guards::without(Guard::WakeFollowers);
    shuttle::check_random(move || acknowledged_means_durable(guards), SCHEDULES);
}
