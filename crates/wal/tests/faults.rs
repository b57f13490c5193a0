//! Whatever system call fails, what was acknowledged stays, and everything else ends with an error.
#![allow(clippy::unwrap_used)]

mod common;

use std::sync::Arc;

use common::{SMALL, append, create, open, read_all, start};
use sapwood_testkit::storage::recording::{Disk, Fault, Image};
use sapwood_wal::storage::Storage;
use sapwood_wal::{Error, Position, Wal};

const RECORDS: usize = 40;

fn payload(number: usize) -> Vec<u8> {
    vec![number as u8 + 1; number * 97 % 1500]
}

/// What the work has come to when it met the fault, or its end.
#[derive(Default)]
struct Progress {
    created: bool,
    appended: usize,
    acknowledged: usize,
    floor: (Position, usize),
}

impl Progress {
    /// Makes a log, or recovers it, and appends records up to the last one.
    fn go_on(&mut self, storage: &Arc<dyn Storage>) -> Result<(), Error> {
        if !self.created {
            Wal::remove(&**storage, "log")?;
            create(storage, &SMALL)?;
            self.created = true;
        }
        let log = open(storage)?;
        let (floor, first) = self.floor;
        let found = start(&log, floor)?;
        for (number, found) in (first..).zip(&found) {
            assert_eq!(*found, payload(number));
        }
        let found = first + found.len();
        assert!(
            found >= self.acknowledged,
            "{found} left of {}",
            self.acknowledged
        );
        (self.appended, self.acknowledged) = (found, found);
        while self.appended < RECORDS {
            let end = append(&log, &payload(self.appended))?;
            self.appended += 1;
            if self.appended.is_multiple_of(3) {
                log.sync_to(end.lsn)?;
                self.acknowledged = self.appended;
                self.floor = (end, self.appended);
                log.recycle_before(end.lsn);
            }
        }
        log.sync_to(log.end())?;
        self.acknowledged = self.appended;
        Ok(())
    }

    fn check(&self, image: &Image) {
        if !self.created {
            return;
        }
        let storage: Arc<dyn Storage> = Arc::new(Disk::from_image(image).unwrap());
        let (found, _) = read_all(&open(&storage).unwrap(), self.floor.0).unwrap();
        let first = self.floor.1;
        for (number, found) in (first..).zip(&found) {
            assert_eq!(*found, payload(number));
        }
        assert!(first + found.len() >= self.acknowledged);
    }
}

fn calls_without_fault() -> u64 {
    let disk = Disk::new();
    let storage: Arc<dyn Storage> = Arc::new(disk.clone());
    Progress::default().go_on(&storage).unwrap();
    disk.calls()
}

#[test]
fn every_call_may_fail_once() {
    let calls = calls_without_fault();
    assert!(calls > 100);
    for fault in [Fault::Io, Fault::NoSpace] {
        for call in 0..calls {
            let disk = Disk::new();
            let storage: Arc<dyn Storage> = Arc::new(disk.clone());
            disk.fail(call, fault, false);
            let mut progress = Progress::default();
            let stopped = progress.go_on(&storage);
            progress.check(&disk.synced_image());
            // The process starts again; the disk is well now.
            if let Err(error) = stopped {
                let cause = match &error {
                    Error::NoSegment(cause) if fault == Fault::NoSpace => cause,
                    error => error,
                };
                let named = matches!(cause, Error::Io { file, .. } if file.starts_with("log"));
                assert!(named, "call {call}: {error}");
                progress.go_on(&storage).unwrap();
            }
            assert_eq!(progress.acknowledged, RECORDS);
            progress.check(&disk.synced_image());
        }
    }
}

#[test]
fn all_calls_may_fail_from_some_moment_on() {
    for fault in [Fault::Io, Fault::NoSpace] {
        for call in 0..calls_without_fault() {
            let disk = Disk::new();
            let storage: Arc<dyn Storage> = Arc::new(disk.clone());
            disk.fail(call, fault, true);
            let mut progress = Progress::default();
            let stopped = progress.go_on(&storage);
            assert!(stopped.is_err() || fault == Fault::NoSpace, "call {call}");
            progress.check(&disk.synced_image());
            disk.heal();
            progress.go_on(&storage).unwrap();
            assert_eq!(progress.acknowledged, RECORDS);
            progress.check(&disk.synced_image());
        }
    }
}

#[test]
fn short_and_interrupted_calls_are_no_errors() {
    for fault in [
        Fault::ShortWrite(1),
        Fault::ShortWrite(300),
        Fault::Interrupted,
    ] {
        for call in 0..calls_without_fault() {
            let disk = Disk::new();
            let storage: Arc<dyn Storage> = Arc::new(disk.clone());
            disk.fail(call, fault, false);
            let mut progress = Progress::default();
            progress.go_on(&storage).unwrap();
            assert_eq!(progress.acknowledged, RECORDS);
            progress.check(&disk.synced_image());
        }
    }
}

#[test]
fn nothing_is_acknowledged_after_a_failed_sync() {
    let disk = Disk::new();
    let storage: Arc<dyn Storage> = Arc::new(disk.clone());
    create(&storage, &SMALL).unwrap();
    let log = open(&storage).unwrap();
    start(&log, Position::START).unwrap();
    let first = append(&log, b"one").unwrap();
    log.sync_to(first.lsn).unwrap();
    let second = append(&log, b"two").unwrap();
    disk.fail(0, Fault::Io, false);
    let error = log.sync_to(second.lsn).unwrap_err();
    assert!(matches!(error, Error::Io { .. }), "{error}");
    assert!(log.is_poisoned());
    // What was durable before is so still.
    log.sync_to(first.lsn).unwrap();
    assert!(matches!(log.sync_to(second.lsn), Err(Error::Poisoned)));
    assert!(matches!(append(&log, b"three"), Err(Error::Poisoned)));
    assert!(matches!(log.reserve(1), Err(Error::Poisoned)));
    assert!(matches!(log.inherit(), Err(Error::Poisoned)));
    assert_eq!(log.durable(), first.lsn);
}
