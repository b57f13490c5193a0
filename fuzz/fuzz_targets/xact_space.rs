//! A space whose files were damaged anyhow, or whose log holds any records: it is refused, or opened and good for
//! further use.

#![no_main]

use std::io::IoSlice;
use std::sync::Arc;

use libfuzzer_sys::fuzz_target;
use sapwood_wal::storage::{Memory as Files, OpenMode, Storage};
use sapwood_wal::{Lsn, Position, Shared, Wal};
use sapwood_xact::{Error, Memory, Options, PAGE_BYTES, Ptr, RESERVED_BYTES, Space};

const COUNT: Ptr<u64> = Ptr::new(RESERVED_BYTES + 64);
const NAMES: [&str; 4] = ["data", "log.0", "log.1", "large"];

fn open(storage: &Arc<dyn Storage>) -> Result<Space, Error> {
    let options = Options::new()
        .bytes(RESERVED_BYTES + 12 * PAGE_BYTES as u64)
        .log_bytes(0)
        .versions_bytes(8 * PAGE_BYTES as u64);
    Space::open_storage(storage.clone(), &options)
}

fn increment(space: &Space, at: u64) -> Result<u64, Error> {
    space.transaction(|t| {
        let count = t.load(COUNT)?.wrapping_add(1);
        t.store(COUNT, &count)?;
        t.write(RESERVED_BYTES + at, 300)?.fill(count as u8);
        Ok(count)
    })
}

/// Appends a record of the fuzzer's, so that it need not find out checksums.
fn append(storage: &Arc<dyn Storage>, record: &[u8]) -> sapwood_wal::Result<()> {
    let log = Wal::open(storage, "log", OpenMode::Write, Arc::new(Shared::default()))?;
    let mut records = log.records(Position::START)?;
    while records.next()?.is_some() {}
    log.start(Lsn(0), &records)?;
    let end = log.append(&[IoSlice::new(record)])?;
    log.sync_to(end.lsn)
}

// Each change: a file, an offset in it (two bytes), a length, and so many bytes; file 4 stands for a record in the log.
fuzz_target!(|changes: &[u8]| {
    let storage: Arc<dyn Storage> = Arc::new(Files::new());
    let space = open(&storage).unwrap();
    for round in 1..6 {
        increment(&space, round * 5000).unwrap();
    }
    drop(space);
    let mut rest = changes;
    while let [file, low, high, length, bytes @ ..] = rest {
        let (bytes, left) = bytes.split_at(usize::from(*length).min(bytes.len()));
        match NAMES.get(usize::from(file % 5)) {
            None => {
                let _ = append(&storage, bytes);
            }
            Some(name) => {
                let mode = match *name {
                    "large" => OpenMode::CreateNew,
                    _ => OpenMode::Write,
                };
                let place = u64::from(u16::from_le_bytes([*low, *high]));
                let offset = match *name {
                    // The headers, the pages, and what follows them.
                    "data" => 2 * place,
                    _ => place % 8192,
                };
                if let Ok(file) = storage.open(name, mode) {
                    file.write_all_at(bytes, offset).unwrap();
                }
            }
        }
        rest = left;
    }
    if let Ok(space) = open(&storage) {
        let count = match increment(&space, 30_000) {
            Err(Error::PageDamaged { .. }) => return,
            count => count.unwrap(),
        };
        drop(space);
        let space = open(&storage).unwrap();
        assert_eq!(space.read(|t| t.load(COUNT)).unwrap(), count);
    }
});
