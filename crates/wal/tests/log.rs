//! The log in ordinary use: append, sync, close, recover, recycle, fill up.
#![allow(clippy::unwrap_used)]

mod common;

use std::io::IoSlice;
use std::sync::Arc;

use common::{ID, SMALL, append};
use sapwood_wal::storage::{Memory, OpenMode, Storage};
use sapwood_wal::{Error, Lsn, Options, Position, Wal};

fn new_log(options: &Options) -> (Arc<dyn Storage>, Wal) {
    let storage: Arc<dyn Storage> = Arc::new(Memory::new());
    common::create(&storage, options).unwrap();
    let log = open(&storage);
    common::start(&log, Position::START).unwrap();
    (storage, log)
}

fn open(storage: &Arc<dyn Storage>) -> Wal {
    common::open(storage).unwrap()
}

fn read_all(log: &Wal, from: Position) -> (Vec<Vec<u8>>, Position) {
    common::read_all(log, from).unwrap()
}

#[test]
fn what_was_appended_is_read_back() {
    let (storage, log) = new_log(&SMALL);
    let parts = [
        IoSlice::new(b"one "),
        IoSlice::new(b""),
        IoSlice::new(b"two"),
    ];
    let first = log.append(&parts).unwrap();
    let second = append(&log, b"").unwrap();
    log.sync_to(second.lsn).unwrap();
    assert_eq!(log.durable(), second.lsn);
    drop(log);

    let log = open(&storage);
    let (payloads, end) = read_all(&log, Position::START);
    assert_eq!(payloads, [b"one two".to_vec(), Vec::new()]);
    assert_eq!(end, second);
    assert_eq!(read_all(&log, first), (vec![Vec::new()], second));
    common::start(&log, Position::START).unwrap();
    let third = append(&log, b"three").unwrap();
    log.sync_to(third.lsn).unwrap();
    assert_eq!(read_all(&log, second), (vec![b"three".to_vec()], third));
}

#[test]
fn records_run_over_segment_borders_and_laps() {
    let (storage, log) = new_log(&SMALL);
    let mut floor = Position::START;
    for number in 0..200_u32 {
        let payload: Vec<u8> = (0..number * 31 % 6000)
            .map(|at| (at ^ number) as u8)
            .collect();
        let before = floor;
        let end = append(&log, &payload).unwrap();
        log.sync_to(end.lsn).unwrap();
        assert_eq!(read_all(&open(&storage), before), (vec![payload], end));
        log.recycle_before(end.lsn);
        floor = end;
    }
    assert!(log.end() > Lsn(10 * log.capacity()));
    let files = storage.names().unwrap().len();
    assert_eq!(files, 3, "segments are used again");
}

#[test]
fn a_lap_that_begins_early_leads_on_from_there_and_needs_no_further_segment() {
    let (storage, log) = new_log(&SMALL);
    assert_eq!(log.next_lap().unwrap(), None, "it is at the beginning");
    let mut before = Position::START;
    for number in 0..50_u8 {
        let end = append(&log, &[number; 900]).unwrap();
        let lap = log.next_lap().unwrap().unwrap();
        let refused = log.begin_lap(lap);
        assert!(
            matches!(refused, Err(Error::NotInLog { .. })),
            "{refused:?}"
        );
        log.sync_to(end.lsn).unwrap();
        log.begin_lap(lap).unwrap();
        assert_eq!((log.end(), log.durable()), (lap.lsn, lap.lsn));
        assert_eq!(log.room(), log.capacity());
        assert_eq!(log.next_lap().unwrap(), None);
        let behind = append(&log, &[number; 1700]).unwrap();
        log.sync_to(behind.lsn).unwrap();
        // Nothing in the log leads from one to the other.
        let reader = open(&storage);
        assert_eq!(read_all(&reader, end), (Vec::new(), end));
        let (payloads, found) = read_all(&reader, lap);
        assert_eq!((payloads, found), (vec![vec![number; 1700]], behind));
        assert_eq!(reader.next_lap_of(end), lap);
        assert_ne!(reader.next_lap_of(before), lap);
        before = behind;
        log.recycle_before(behind.lsn);
    }
    assert_eq!(storage.names().unwrap().len(), 1);
}

#[test]
fn a_full_log_says_so_and_goes_on_after_a_checkpoint() {
    let (_storage, log) = new_log(&SMALL);
    let mut end = Position::START;
    let full = loop {
        match append(&log, &[1; 1000]) {
            Ok(position) => end = position,
            Err(error) => break error,
        }
    };
    let Error::Full { needed, room } = full else {
        panic!("{full}")
    };
    assert_eq!((needed, room), (1056, log.room()));
    assert!(room < needed);
    assert!(matches!(log.reserve(1000), Err(Error::Full { .. })));
    // What is not durable cannot have been checkpointed.
    log.recycle_before(end.lsn);
    assert_eq!(log.room(), room);
    log.sync_to(end.lsn).unwrap();
    log.recycle_before(end.lsn);
    assert_eq!(log.room(), log.capacity());
    log.reserve(log.record_bytes_max()).unwrap();
    append(&log, &vec![2; log.record_bytes_max() as usize]).unwrap();
}

#[test]
fn a_record_that_can_never_fit_is_refused() {
    let (_storage, log) = new_log(&SMALL);
    let bytes = log.record_bytes_max() + 1;
    let error = append(&log, &vec![0; bytes as usize]).unwrap_err();
    assert!(matches!(error, Error::RecordTooLarge { .. }), "{error}");
    assert_eq!(log.end(), Lsn(0));
}

#[test]
fn a_log_wants_to_be_read_and_started() {
    let (storage, log) = new_log(&SMALL);
    append(&log, b"").unwrap();
    let log = open(&storage);
    let records = log.records(Position::START).unwrap();
    assert!(matches!(log.start(Lsn(0), &records), Err(Error::Unread)));
    assert!(matches!(append(&log, b""), Err(Error::NotStarted)));
    assert!(matches!(log.sync_to(Lsn(8)), Err(Error::NotStarted)));
}

#[test]
fn waiting_for_what_was_never_appended_is_an_error() {
    let (_storage, log) = new_log(&SMALL);
    let error = log.sync_to(Lsn(8)).unwrap_err();
    assert!(matches!(error, Error::NotInLog { .. }), "{error}");
}

#[test]
fn the_heir_erases_what_the_dead_left() {
    let (storage, log) = new_log(&SMALL);
    let end = append(&log, b"whole").unwrap();
    // A second user of the same files stands in for a writer that died before it could say that it had appended.
    let dead = open(&storage);
    common::start(&dead, Position::START).unwrap();
    append(&dead, b"hole").unwrap();
    assert_eq!(read_all(&log, Position::START).0.len(), 2);
    assert_eq!(log.inherit().unwrap(), end);
    assert_eq!(log.durable(), end.lsn);
    assert_eq!(
        read_all(&log, Position::START),
        (vec![b"whole".to_vec()], end)
    );
}

#[test]
fn shapes_that_cannot_be_are_refused() {
    let storage: Arc<dyn Storage> = Arc::new(Memory::new());
    for (segment_bytes, segments) in [
        (4096, 4),
        (8191, 4),
        (8192, 1),
        (!4095, 2),
        (8192, u32::MAX),
    ] {
        let options = Options {
            segment_bytes,
            segments,
        };
        let error = Wal::create(&storage, "log", ID, &options).unwrap_err();
        assert!(matches!(error, Error::BadShape(_)), "{error}");
    }
    assert!(storage.names().unwrap().is_empty());
}

#[test]
fn a_log_can_be_removed() {
    let (storage, log) = new_log(&SMALL);
    append(&log, &[0; 5000]).unwrap();
    append(&log, &[0; 5000]).unwrap();
    storage.open("logbook.1", OpenMode::CreateNew).unwrap();
    Wal::remove(&*storage, "log").unwrap();
    assert_eq!(storage.names().unwrap(), ["logbook.1"]);
    Wal::remove(&*storage, "log").unwrap();
}
