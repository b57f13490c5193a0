//! Records that are on their way to the disk in memory that the users of a log share.
#![allow(clippy::unwrap_used)]

mod common;

use std::io::IoSlice;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use common::{SMALL, append, create, open, read_all, start};
use sapwood_wal::storage::{Folder, Memory, OpenMode, Storage};
use sapwood_wal::{Error, Options, Position, Shared, Wal};

/// A log and the state that its users share.
struct Log {
    _folder: tempfile::TempDir,
    storage: Arc<dyn Storage>,
    shared: Arc<Shared>,
    words: Arc<Vec<AtomicU64>>,
    outlives: bool,
    wal: Wal,
}

fn new_log() -> Log {
    new_log_with(false)
}

/// `outlives` says whether the memory survives its users.
fn new_log_with(outlives: bool) -> Log {
    new_log_of(outlives, &SMALL)
}

fn new_log_of(outlives: bool, options: &Options) -> Log {
    let folder = tempfile::tempdir().unwrap();
    let storage: Arc<dyn Storage> = Arc::new(Folder::open(folder.path()).unwrap());
    create(&storage, options).unwrap();
    let shared = Arc::new(Shared::default());
    let words = Arc::new((0..2048).map(AtomicU64::new).collect());
    let wal = Wal::open(&storage, "log", OpenMode::Write, shared.clone()).unwrap();
    start(&wal, Position::START).unwrap();
    let log = Log {
        _folder: folder,
        storage,
        shared,
        words,
        outlives,
        wal,
    };
    log.share(&log.wal, 0);
    log
}

impl Log {
    fn share(&self, wal: &Wal, process: u16) {
        wal.share_buffer(self.words.clone(), self.outlives, process, |_| true);
    }

    /// Salvages what is in the memory, as the one that comes first after all processes have died does.
    fn salvage(&self) {
        let first = open(&self.storage).unwrap();
        first
            .salvage(Position::START, &self.shared, &self.words)
            .unwrap();
    }

    /// What the one that comes first after all processes have died finds.
    fn left(&self, from: Position) -> Vec<Vec<u8>> {
        read_all(&open(&self.storage).unwrap(), from).unwrap().0
    }
}

fn append_buffered(log: &Wal, payload: &[u8]) -> Position {
    log.append_buffered(&[IoSlice::new(payload)]).unwrap()
}

#[test]
fn records_of_any_size_are_there_when_they_are_durable() {
    let log = new_log();
    let mut floor = Position::START;
    for number in 0..400_u32 {
        let length = number.wrapping_mul(2_654_435_761) % 5000 / (1 + number % 7);
        let payload = vec![number as u8; length as usize];
        let mut expected = vec![payload.clone()];
        let end = if number % 5 == 0 {
            append(&log.wal, &payload).unwrap();
            expected.push(b"behind it".to_vec());
            append_buffered(&log.wal, b"behind it")
        } else {
            append_buffered(&log.wal, &payload)
        };
        log.wal.sync_to(end.lsn).unwrap();
        assert_eq!(log.left(floor), expected, "record {number}");
        log.wal.recycle_before(end.lsn);
        floor = end;
    }
    assert!(log.wal.end().0 > 10 * log.wal.capacity());
}

#[test]
fn what_is_in_the_buffer_is_read_back() {
    let log = new_log();
    for number in 0..6 {
        append_buffered(&log.wal, &[number; 100]);
        let (payloads, _) = read_all(&log.wal, Position::START).unwrap();
        assert_eq!(payloads.len(), usize::from(number) + 1);
        // Who has read it has had it written.
        assert_eq!(log.left(Position::START), payloads);
    }
}

#[test]
fn what_was_appended_to_the_files_survives_all_processes() {
    let log = new_log();
    let first = append_buffered(&log.wal, b"one");
    log.wal.sync_to(first.lsn).unwrap();
    append_buffered(&log.wal, b"two");
    assert_eq!(log.left(Position::START), [b"one"]);
    append(&log.wal, b"three").unwrap();
    assert_eq!(log.left(first), [b"two".to_vec(), b"three".to_vec()]);
}

#[test]
fn users_who_share_a_buffer_go_on_for_each_other() {
    let log = new_log();
    let open = || Wal::open(&log.storage, "log", OpenMode::Write, log.shared.clone()).unwrap();
    let (other, stranger) = (open(), open());
    log.share(&other, 1);
    let first = append_buffered(&log.wal, b"one");
    let second = append_buffered(&other, b"two");
    assert!(matches!(
        stranger.sync_to(first.lsn),
        Err(Error::NotBuffered)
    ));
    other.sync_to(second.lsn).unwrap();
    stranger.sync_to(first.lsn).unwrap();
    assert_eq!(log.left(Position::START).len(), 2);
}

#[test]
fn another_user_makes_durable_what_the_dead_have_buffered() {
    let log = new_log();
    let heir = Wal::open(&log.storage, "log", OpenMode::Write, log.shared.clone()).unwrap();
    log.share(&heir, 1);
    let first = append_buffered(&log.wal, b"one");
    let second = append_buffered(&log.wal, b"two");
    heir.sync_to(first.lsn).unwrap();
    assert_eq!(log.left(Position::START).len(), 2);
    append_buffered(&log.wal, b"three");
    assert_eq!(heir.inherit().unwrap(), heir.tail().unwrap());
    assert_eq!(log.left(second), [b"three"]);
}

#[test]
fn where_the_page_cache_is_all_there_is_records_go_there() {
    let storage: Arc<dyn Storage> = Arc::new(Memory::new());
    create(&storage, &SMALL).unwrap();
    let wal = open(&storage).unwrap();
    start(&wal, Position::START).unwrap();
    let words: Vec<AtomicU64> = (0..2048).map(AtomicU64::new).collect();
    wal.share_buffer(Arc::new(words), false, 0, |_| true);
    let end = append_buffered(&wal, b"record");
    let (payloads, _) = read_all(&open(&storage).unwrap(), Position::START).unwrap();
    assert_eq!(payloads, [b"record"]);
    wal.sync_to(end.lsn).unwrap();
}

#[test]
fn segments_are_made_ahead_beside_whoever_appends() {
    let log = new_log();
    let has_second = || log.storage.names().unwrap().contains(&"log.1".into());
    let mut end = Position::START;
    while !log.wal.is_segment_due() {
        end = append_buffered(&log.wal, &[7; 100]);
        assert!(end.lsn.0 < log.wal.capacity(), "never due");
    }
    assert!(!has_second());
    log.wal.make_segment().unwrap();
    assert!(has_second() && !log.wal.is_segment_due());
    let log = &log;
    let end = std::thread::scope(|scope| {
        let appender = scope.spawn(move || {
            for number in 0..400_u32 {
                log.wal.sync_to(end.lsn).unwrap();
                log.wal.recycle_before(end.lsn);
                let floor = end;
                let payload = vec![number as u8; 500];
                end = append_buffered(&log.wal, &payload);
                log.wal.sync_to(end.lsn).unwrap();
                assert_eq!(log.left(floor), [payload]);
            }
            end
        });
        while !appender.is_finished() {
            log.wal.make_segment().unwrap();
        }
        appender.join().unwrap()
    });
    assert!(end.lsn.0 > 2 * log.wal.capacity());
}

#[test]
fn what_is_left_in_memory_that_outlives_its_users_is_salvaged() {
    let log = new_log_with(true);
    let first = append_buffered(&log.wal, b"one");
    log.wal.sync_to(first.lsn).unwrap();
    let mut expected = vec![b"one".to_vec()];
    for number in 0..9 {
        append(&log.wal, &[number; 100]).unwrap();
        expected.push(vec![number; 100]);
    }
    assert_eq!(log.left(Position::START).len(), 1, "nothing was written");
    log.salvage();
    assert_eq!(log.left(Position::START), expected);
    log.salvage();
    assert_eq!(log.left(Position::START), expected);
}

#[test]
fn no_more_than_a_part_of_the_memory_is_left_to_salvage() {
    let large = Options {
        segment_bytes: 64 << 10,
        segments: 2,
    };
    let log = new_log_of(true, &large);
    let part = log.words.len() as u64 * 8 / 4;
    let unwritten = |end: Position| {
        let (_, written) = read_all(&open(&log.storage).unwrap(), Position::START).unwrap();
        end.lsn.0 - written.lsn.0
    };
    for _ in 0..100 {
        let end = append(&log.wal, &[7; 300]).unwrap();
        let left = unwritten(end);
        assert!(left <= 3 * part);
        assert_eq!(log.wal.is_write_due(), left > part);
    }
    assert!(unwritten(append(&log.wal, &[7; 300]).unwrap()) > 0);
    log.wal.write_through().unwrap();
    assert_eq!(unwritten(log.wal.tail().unwrap()), 0);
    assert!(!log.wal.is_write_due());
    append(&log.wal, &vec![8; 4200]).unwrap();
    assert_eq!(
        log.left(Position::START).len(),
        102,
        "a large record is written"
    );
}

#[test]
fn memory_that_the_log_has_outlived_changes_nothing() {
    for lost in [&b"lost"[..], b"gone too long"] {
        let log = new_log_with(true);
        append(&log.wal, b"one").unwrap();
        log.salvage();
        append(&log.wal, lost).unwrap();
        append(&log.wal, lost).unwrap();
        // Somebody opened the log without the memory, and went on.
        let other = open(&log.storage).unwrap();
        start(&other, Position::START).unwrap();
        append(&other, b"kept").unwrap();
        let expected = log.left(Position::START);
        assert_eq!(expected, [b"one".to_vec(), b"kept".to_vec()]);
        log.salvage();
        assert_eq!(log.left(Position::START), expected);
    }
}

#[test]
fn what_is_no_record_is_not_salvaged() {
    const RECORD_WORDS: usize = 10;
    for damaged in 0..4 * RECORD_WORDS {
        let log = new_log_with(true);
        let payloads: Vec<_> = (0..4).map(|number| vec![number; 24]).collect();
        for payload in &payloads {
            append(&log.wal, payload).unwrap();
        }
        let bit = 1 << (damaged % 64);
        log.words[damaged].fetch_xor(bit, Ordering::Relaxed);
        log.salvage();
        assert_eq!(
            log.left(Position::START),
            payloads[..damaged / RECORD_WORDS]
        );
    }
}

#[test]
fn a_record_of_an_earlier_place_is_not_salvaged() {
    const RECORD_WORDS: usize = 10;
    let log = new_log_with(true);
    for number in 0..4 {
        append(&log.wal, &[number; 24]).unwrap();
    }
    // The third place holds the first record once more, whole.
    for at in 0..RECORD_WORDS {
        let word = log.words[at].load(Ordering::Relaxed);
        log.words[2 * RECORD_WORDS + at].store(word, Ordering::Relaxed);
    }
    log.salvage();
    assert_eq!(log.left(Position::START), [[0; 24], [1; 24]]);
}
