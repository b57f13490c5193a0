//! What the tests of the log have in common.
#![allow(dead_code, reason = "no test uses everything")]

use std::io::IoSlice;
use std::sync::Arc;

use sapwood_wal::storage::{OpenMode, Storage};
use sapwood_wal::{Error, LogId, Options, Position, Shared, Wal};

pub(crate) const ID: LogId = LogId([3; 16]);
/// The smallest log: a lap is soon over.
pub(crate) const SMALL: Options = Options {
    segment_bytes: 8192,
    segments: 3,
};

pub(crate) fn create(storage: &Arc<dyn Storage>, options: &Options) -> Result<(), Error> {
    Wal::create(storage, "log", ID, options)
}

pub(crate) fn open(storage: &Arc<dyn Storage>) -> Result<Wal, Error> {
    let shared = Arc::new(Shared::default());
    Wal::open(storage, "log", OpenMode::Write, shared)
}

/// Reads everything from a position on and starts the log.
pub(crate) fn start(log: &Wal, floor: Position) -> Result<Vec<Vec<u8>>, Error> {
    let mut records = log.records(floor)?;
    let mut payloads = Vec::new();
    while let Some(record) = records.next()? {
        payloads.push(record.payload.to_vec());
    }
    log.start(floor.lsn, &records)?;
    Ok(payloads)
}

pub(crate) fn append(log: &Wal, payload: &[u8]) -> Result<Position, Error> {
    log.append(&[IoSlice::new(payload)])
}

pub(crate) fn read_all(log: &Wal, from: Position) -> Result<(Vec<Vec<u8>>, Position), Error> {
    let mut records = log.records(from)?;
    let mut payloads = Vec::new();
    while let Some(record) = records.next()? {
        payloads.push(record.payload.to_vec());
    }
    Ok((payloads, records.position()))
}
