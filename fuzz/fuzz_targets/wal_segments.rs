//! A log whose segments were damaged anyhow: it is read up to the damage or refused.

#![no_main]

use std::io::IoSlice;
use std::sync::Arc;

use libfuzzer_sys::fuzz_target;
use sapwood_wal::storage::{Memory, OpenMode, Storage};
use sapwood_wal::{LogId, Lsn, Options, Position, Shared, Wal};

const SMALL: Options = Options {
    segment_bytes: 8192,
    segments: 2,
};

fn payload(number: usize) -> Vec<u8> {
    vec![number as u8; number * 37]
}

fn open(storage: &Arc<dyn Storage>) -> sapwood_wal::Result<Wal> {
    let shared = Arc::new(Shared::default());
    Wal::open(storage, "log", OpenMode::Write, shared)
}

/// Reads the log, appends to it, and returns how many of its records were those of `log`.
fn read_and_go_on(storage: &Arc<dyn Storage>) -> sapwood_wal::Result<usize> {
    let log = open(storage)?;
    let mut records = log.records(Position::START)?;
    let mut number = 0;
    while let Some(record) = records.next()? {
        assert_eq!(record.payload, payload(number));
        number += 1;
    }
    log.start(Lsn(0), &records)?;
    let end = log.append(&[IoSlice::new(&payload(number))])?;
    log.sync_to(end.lsn)?;
    Ok(number)
}

// Each patch: a segment, an offset in it (two bytes), a length, and so many bytes.
fuzz_target!(|patches: &[u8]| {
    let storage: Arc<dyn Storage> = Arc::new(Memory::new());
    Wal::create(&storage, "log", LogId([7; 16]), &SMALL).unwrap();
    for _ in 0..12 {
        read_and_go_on(&storage).unwrap();
    }
    let mut rest = patches;
    while let [segment, low, high, length, bytes @ ..] = rest {
        let (bytes, left) = bytes.split_at(usize::from(*length).min(bytes.len()));
        let offset = u64::from(u16::from_le_bytes([*low, *high]) % 8192);
        let length = bytes.len().min(8192 - offset as usize);
        if let Ok(file) = storage.open(&format!("log.{}", segment % 2), OpenMode::Write) {
            file.write_all_at(&bytes[..length], offset).unwrap();
        }
        rest = left;
    }
    if let Ok(number) = read_and_go_on(&storage) {
        assert!(number <= 12);
        assert_eq!(read_and_go_on(&storage).unwrap(), number + 1);
    }
});
